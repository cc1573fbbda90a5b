package catalog

import (
	"cmp"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// arrayPrefix before the name of a type names its array type.
const arrayPrefix = "_"

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
	if o, ok := t.s.Lookup(e.Schema, e.Name); ok && o.hasRowType() {
		return pgerr.Newf(pgerr.DuplicateObject, "type %q already exists", e.Name)
	}
	if _, old := t.s.enums[e.OID]; !old {
		e.Owner, e.ACL = t.creator, t.s.NewACL(ClassType, t.creator, e.Schema)
	}
	t.s.enums[e.OID] = e
	return nil
}

// hasRowType reports whether a type of the relation's name holds its rows.
func (o *Object) hasRowType() bool { return o.Kind != Index && o.Kind != Sequence && o.Kind != Sink }

// RemoveEnum drops an enum type.
func (t *Tx) RemoveEnum(oid uint32) { delete(t.s.enums, oid) }

// Values returns the stored forms of the labels in their order.
func (e *Enum) Values() []string {
	out := make([]string, len(e.Labels))
	for i, l := range e.Labels {
		out[i] = types.EnumValue(l.Sort, l.Label)
	}
	return out
}

// enumOf returns the enum type whose values, or arrays of them, t holds; 0 when there is none.
func enumOf(t types.Type) uint64 {
	if e, ok := t.Elem(); ok {
		t = e
	}
	if t.IsEnum() {
		return uint64(t.OID)
	}
	return 0
}

// dependOnTypes makes the enum types of the columns dependencies of o. A table loses those that no column has any more.
func (t *Tx) dependOnTypes(o *Object) {
	var enums []uint64
	for _, c := range o.Columns {
		if id := enumOf(c.Type); id != 0 && !c.Dropped && !slices.Contains(enums, id) {
			enums = append(enums, id)
		}
	}
	deps := slices.DeleteFunc(slices.Clone(o.DependsOn), func(id uint64) bool {
		_, isEnum := t.s.enums[uint32(id)]
		return slices.Contains(enums, id) || isEnum && o.Kind == Table
	})
	o.DependsOn = append(deps, enums...)
}

// EnumDependents lists the relations that use an enum type directly: a column has it, or a stored query names it.
func (s *Snapshot) EnumDependents(oid uint32) []*Object {
	var out []*Object
	for _, o := range s.Objects() {
		if slices.Contains(o.DependsOn, uint64(oid)) {
			out = append(out, o)
		}
	}
	return out
}

// ResolveEnum looks a possibly unqualified name of an enum type up along path.
func (s *Snapshot) ResolveEnum(schema, name string, path []string) (*Enum, bool) {
	if schema != "" {
		return s.LookupEnum(schema, name)
	}
	for _, p := range path {
		if e, ok := s.LookupEnum(p, name); ok {
			return e, true
		}
	}
	return nil, false
}

// ResolveEnumArray finds the array type of an enum type by the name that pg_type shows for it.
func (s *Snapshot) ResolveEnumArray(schema, name string, path []string) (types.OID, bool) {
	elem, ok := strings.CutPrefix(name, arrayPrefix)
	if !ok {
		return 0, false
	}
	e, ok := s.ResolveEnum(schema, elem, path)
	if !ok {
		return 0, false
	}
	return types.ArrayOf(types.OID(e.OID)), true
}

// EnumName returns the name of an enum type as format_type prints it: qualified where path does not find it.
func (s *Snapshot) EnumName(oid uint32, path []string) (string, bool) {
	e, ok := s.enums[oid]
	if !ok {
		return "", false
	}
	name := functions.QuoteIdent(e.Name)
	if found, ok := s.ResolveEnum("", e.Name, path); !ok || found.OID != oid {
		name = functions.QuoteIdent(e.Schema) + "." + name
	} else if _, hidden := types.TypeByName(e.Name); hidden { // by a type of pg_catalog
		name = functions.QuoteIdent(e.Schema) + "." + name
	}
	return name, true
}

// TypeName implements expr.CatalogInfo.
func (i *Info) TypeName(oid uint32, path []string) (string, bool) {
	id, class, _ := splitOID(oid)
	switch class {
	case 0:
		return i.Snap.EnumName(oid, path)
	case classEnumArray, classRowArray:
		elem := uint32(id)
		if class == classRowArray {
			elem = derivedOID(classRowType, id)
		}
		name, ok := i.TypeName(elem, path)
		return name + "[]", ok
	case classRowType:
		if o, ok := i.Snap.Get(id); !ok || !o.hasRowType() {
			return "", false
		}
		return i.RelationName(uint32(id), path)
	}
	return "", false
}

// TypeOID implements expr.CatalogInfo.
func (i *Info) TypeOID(name string, path []string) (uint32, error) {
	n, err := sql.ParseTypeName(name)
	if err != nil {
		e := pgerr.From(err)
		e.Pos = -1
		return 0, e
	}
	missing := func() (uint32, error) {
		return 0, pgerr.Newf(pgerr.UndefinedObject, "type %q does not exist", strings.TrimRight(n.Text, "[]"))
	}
	array := func(elem, array uint32) (uint32, error) {
		if n.ArrayDims == 0 {
			return elem, nil
		}
		return array, nil
	}
	if n.Schema == "" || n.Schema == PgCatalog {
		builtin := n.Name
		if n.Schema == PgCatalog {
			builtin = "pg_catalog." + builtin
		}
		if oid, ok := types.TypeByName(builtin); ok {
			if len(n.Mods) > 0 {
				if _, err := types.TypmodIn(oid, n.Mods); err != nil {
					return 0, err
				}
			}
			return array(uint32(oid), uint32(types.ArrayOf(oid)))
		}
	}
	if n.Schema != "" {
		if _, ok := i.Snap.Namespace(n.Schema); !ok {
			return 0, pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", n.Schema)
		}
	}
	if len(n.Mods) > 0 {
		return 0, pgerr.Newf(pgerr.SyntaxError, "type modifier is not allowed for type %q", n.Name)
	}
	if e, ok := i.Snap.ResolveEnum(n.Schema, n.Name, path); ok {
		return array(e.OID, uint32(types.ArrayOf(types.OID(e.OID))))
	}
	if o, ok := i.Snap.Resolve(n.Schema, n.Name, path); ok && o.hasRowType() {
		return array(rowTypeOID(o), rowArrayOID(o))
	}
	if n.ArrayDims > 0 {
		return missing()
	}
	if oid, ok := i.Snap.ResolveEnumArray(n.Schema, n.Name, path); ok {
		return uint32(oid), nil
	}
	if elem, ok := strings.CutPrefix(n.Name, arrayPrefix); ok {
		if o, ok := i.Snap.Resolve(n.Schema, elem, path); ok && o.hasRowType() {
			return rowArrayOID(o), nil
		}
	}
	return missing()
}

// EnumValue implements expr.CatalogInfo.
func (i *Info) EnumValue(enum uint32, label string) (string, bool) {
	e, ok := i.Snap.Enum(enum)
	if !ok {
		return "", false
	}
	for _, l := range e.Labels {
		if l.Label == label {
			return types.EnumValue(l.Sort, l.Label), true
		}
	}
	return "", false
}

func sortedByOID[T any](m map[uint32]T, oid func(T) uint32) []T {
	out := make([]T, 0, len(m))
	for _, v := range m {
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b T) int { return cmp.Compare(oid(a), oid(b)) })
	return out
}
