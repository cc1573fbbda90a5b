package catalog

import "github.com/streamdb/streamdb/types"

// IndexDef is what an object of kind Index is beyond a relation. A UNIQUE constraint is an index with Constraint set. A primary key that the
// table was created with is no object of its own (Object.Key and Object.Constraint of its table), one that was added later is one with Primary set.
type IndexDef struct {
	Table            uint64     `json:"table"`
	Keys             []IndexKey `json:"keys"`
	Include          []int      `json:"include,omitempty"` // columns of the table
	Unique           bool       `json:"unique,omitempty"`
	NullsNotDistinct bool       `json:"nulls_not_distinct,omitempty"`
	Constraint       bool       `json:"constraint,omitempty"`
	Primary          bool       `json:"primary,omitempty"`
	Method           string     `json:"method,omitempty"` // as given; "" is btree
	Built            uint64     `json:"built,omitempty"`  // epoch from which on the state holds all rows
	Where            string     `json:"where,omitempty"`  // predicate of a partial index
}

// IndexKey is a column of the table, or an expression over its columns.
type IndexKey struct {
	Column  int    `json:"column"` // -1 for an expression
	Expr    string `json:"expr,omitempty"`
	OpClass string `json:"op_class,omitempty"` // where it is not the type's own
	// Type is that of an expression.
	Type       types.Type `json:"type"`
	Desc       bool       `json:"desc,omitempty"`
	NullsFirst bool       `json:"nulls_first,omitempty"`
}

// SequenceDef is what CREATE SEQUENCE says. Its current value is not part of the catalog.
type SequenceDef struct {
	Type      uint32 `json:"type"` // int2, int4 or int8
	Start     int64  `json:"start"`
	Increment int64  `json:"increment"`
	Min       int64  `json:"min"`
	Max       int64  `json:"max"`
	Cache     int64  `json:"cache"`
	Cycle     bool   `json:"cycle,omitempty"`
	// OwnerTable and OwnerColumn name the column that the sequence belongs to and is dropped with; OwnerTable 0 means none.
	OwnerTable  uint64 `json:"owner_table,omitempty"`
	OwnerColumn int    `json:"owner_column,omitempty"`
}

// IndexesOf lists the indexes of a table or materialized view by id.
func (s *Snapshot) IndexesOf(relation uint64) []*Object {
	var out []*Object
	for _, o := range s.Objects() {
		if o.Kind == Index && o.Index != nil && o.Index.Table == relation {
			out = append(out, o)
		}
	}
	return out
}

// RelationNamed reports whether a relation or the index of a primary key has the name.
func (s *Snapshot) RelationNamed(schema, name string) bool {
	if _, ok := s.Lookup(schema, name); ok {
		return true
	}
	for _, o := range s.objects {
		if o.Schema == schema && o.Constraint == name {
			return true
		}
	}
	return false
}

// PrimaryIndex returns the index that is the primary key of a table which was created without one.
func (s *Snapshot) PrimaryIndex(table uint64) (*Object, bool) {
	for _, o := range s.IndexesOf(table) {
		if o.Index.Primary {
			return o, true
		}
	}
	return nil, false
}

// OwnedSequences lists the sequences that belong to columns of a table, by id.
func (s *Snapshot) OwnedSequences(table uint64) []*Object {
	var out []*Object
	for _, o := range s.Objects() {
		if o.Kind == Sequence && o.Sequence != nil && o.Sequence.OwnerTable == table {
			out = append(out, o)
		}
	}
	return out
}
