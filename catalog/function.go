package catalog

import (
	"slices"

	"github.com/streamdb/streamdb/types"
)

// Function is a function made by CREATE FUNCTION .. LANGUAGE sql. It is immutable once in a snapshot. Calls are inlined when they are bound,
// so that what is stored in a plan does not depend on it.
type Function struct {
	OID        uint32        `json:"oid"`
	Schema     string        `json:"schema"`
	Name       string        `json:"name"`
	Args       []FunctionArg `json:"args,omitempty"`
	Returns    types.Type    `json:"returns"`
	ReturnsSet bool          `json:"returns_set,omitempty"`
	Columns    []FunctionArg `json:"columns,omitempty"` // of RETURNS TABLE, and OUT arguments
	Body       string        `json:"body"`
	SearchPath []string      `json:"search_path,omitempty"`
	Definition string        `json:"definition"`           // the statement as given
	Volatility string        `json:"volatility,omitempty"` // "i", "s"; "" = volatile
	Strict     bool          `json:"strict,omitempty"`
	Leakproof  bool          `json:"leakproof,omitempty"`
	Parallel   string        `json:"parallel,omitempty"` // "s", "r"; "" = unsafe
	Cost       float64       `json:"cost,omitempty"`     // 0 = what PostgreSQL takes
	Rows       float64       `json:"rows,omitempty"`
	Style      string        `json:"style,omitempty"`      // of the body: StyleReturn, StyleAtomic, "" = a string
	Params     []FunctionArg `json:"params,omitempty"`     // all in their order, unless Args and Columns as RETURNS TABLE are all
	RowOf      uint64        `json:"row_of,omitempty"`     // RETURNS a relation
	DependsOn  []uint64      `json:"depends_on,omitempty"` // relations, enum types and functions that the body names
	Owner      uint32        `json:"owner,omitempty"`
	ACL        []ACL         `json:"acl,omitempty"`
	Comment    string        `json:"comment,omitempty"`
}

// FunctionArg is a parameter, or a column of the result.
type FunctionArg struct {
	Name    string     `json:"name,omitempty"`
	Type    types.Type `json:"type"`
	Default string     `json:"default,omitempty"` // expression text
	Mode    string     `json:"mode,omitempty"`    // ModeOut ..; "" = IN
}

// Modes of parameters, as in pg_proc. Stored.
const (
	ModeOut      = "o"
	ModeInOut    = "b"
	ModeVariadic = "v"
	ModeTable    = "t" // a column of RETURNS TABLE
)

// The ways to write a body that is no string. Stored.
const (
	StyleReturn = "return"
	StyleAtomic = "atomic"
)

// output reports whether callers give no value for it.
func (a FunctionArg) output() bool { return a.Mode == ModeOut || a.Mode == ModeTable }

// Parameters lists all parameters in their order, with the columns of RETURNS TABLE at the end.
func (f *Function) Parameters() []FunctionArg {
	if f.Params != nil {
		return f.Params
	}
	out := slices.Clone(f.Args)
	if f.RowOf == 0 {
		for _, c := range f.Columns {
			c.Mode = ModeTable
			out = append(out, c)
		}
	}
	return out
}

// ArgTypes returns the types of what a call is given.
func (f *Function) ArgTypes() []types.OID {
	out := make([]types.OID, len(f.Args))
	for i, a := range f.Args {
		out[i] = a.Type.OID
	}
	return out
}

// Functions lists all functions of users by OID.
func (s *Snapshot) Functions() []*Function {
	return sortedByOID(s.functions, func(f *Function) uint32 { return f.OID })
}

// Function returns a function of users by OID.
func (s *Snapshot) Function(oid uint32) (*Function, bool) {
	f, ok := s.functions[oid]
	return f, ok
}

// FunctionsNamed lists the overloads of a name in a schema by OID.
func (s *Snapshot) FunctionsNamed(schema, name string) []*Function {
	var out []*Function
	for _, f := range s.Functions() {
		if f.Schema == schema && f.Name == name {
			out = append(out, f)
		}
	}
	return out
}

// PutFunction adds a function or puts a changed copy in the place of the old one; the caller has looked for another with its signature.
func (t *Tx) PutFunction(f *Function) {
	if _, old := t.s.functions[f.OID]; !old {
		f.Owner, f.ACL = t.creator, t.s.NewACL(ClassFunction, t.creator, f.Schema)
	}
	t.s.functions[f.OID] = f
}

// RemoveFunction drops a function.
func (t *Tx) RemoveFunction(oid uint32) { delete(t.s.functions, oid) }
