package catalog

import (
	"cmp"
	"slices"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// Enum is a type made by CREATE TYPE .. AS ENUM. It is immutable once in a snapshot. The OID of its array type follows from its own
// (types.ArrayOf).
type Enum struct {
	OID     uint32      `json:"oid"`
	Schema  string      `json:"schema"`
	Name    string      `json:"name"`
	Labels  []EnumLabel `json:"labels"` // in their order
	Owner   uint32      `json:"owner,omitempty"`
	ACL     []ACL       `json:"acl,omitempty"`
	Comment string      `json:"comment,omitempty"`
}

// EnumLabel is one value. Sort orders it among the others and never changes; a label put between two others gets a number between theirs.
type EnumLabel struct {
	OID   uint32  `json:"oid"`
	Label string  `json:"label"`
	Sort  float32 `json:"sort"`
}

// Enums lists all enum types by OID.
func (s *Snapshot) Enums() []*Enum {
	return sortedByOID(s.enums, func(e *Enum) uint32 { return e.OID })
}

// Enum returns an enum type by OID.
func (s *Snapshot) Enum(oid uint32) (*Enum, bool) {
	e, ok := s.enums[oid]
	return e, ok
}

// LookupEnum returns the enum type called name in schema.
func (s *Snapshot) LookupEnum(schema, name string) (*Enum, bool) {
	for _, e := range s.enums {
		if e.Schema == schema && e.Name == name {
			return e, true
		}
	}
	return nil, false
}

// PutEnum adds an enum type or puts a changed copy in the place of the old one.
func (t *Tx) PutEnum(e *Enum) error {
	if old, ok := t.s.LookupEnum(e.Schema, e.Name); ok && old.OID != e.OID {
		return pgerr.Newf(pgerr.DuplicateObject, "type %q already exists", e.Name)
	}
	if _, ok := t.s.Lookup(e.Schema, e.Name); ok { // a relation's row type has its name
		return pgerr.Newf(pgerr.DuplicateObject, "type %q already exists", e.Name)
	}
	t.s.enums[e.OID] = e
	return nil
}

// RemoveEnum drops an enum type.
func (t *Tx) RemoveEnum(oid uint32) { delete(t.s.enums, oid) }

func sortedByOID[T any](m map[uint32]T, oid func(T) uint32) []T {
	out := make([]T, 0, len(m))
	for _, v := range m {
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b T) int { return cmp.Compare(oid(a), oid(b)) })
	return out
}
