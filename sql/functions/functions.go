// Package functions is the table of builtin functions, operators, casts, aggregates, window and set-returning functions: signatures,
// documentation and implementations side by side, one file per family. Builtins returns the immutable registry that is passed down; pg_proc,
// pg_operator, pg_cast and the manual are made from it.
package functions

import "github.com/streamdb/streamdb/types"

// Volatility of a function, as PostgreSQL defines it.
type Volatility byte

// The volatilities.
const (
	Immutable Volatility = 'i'
	Stable    Volatility = 's'
	Volatile  Volatility = 'v'
)

// FuncKind tells what a registry entry is.
type FuncKind byte

// The kinds of entries (pg_proc.prokind, plus set-returning scalar functions).
const (
	Scalar    FuncKind = 'f'
	Aggregate FuncKind = 'a'
	Window    FuncKind = 'w'
	SetOf     FuncKind = 's' // set-returning
)

// Func is one overload. ID is unique and stored in plans ("int4pl", "lower(text)"): never rename.
type Func struct {
	ID       string
	Name     string
	OID      uint32 // pg_proc.oid of the same function in PostgreSQL where there is one
	Kind     FuncKind
	Args     []types.OID // may hold pseudo types
	Defaults int         // trailing arguments that may be left out
	Variadic bool        // the last argument repeats
	// ArgNames are the parameters' names, nil when they have none; ArgDefaults the text of what stands for those left out, "" for none.
	ArgNames, ArgDefaults []string
	Result                types.OID      // may be a pseudo type, resolved from the arguments
	Columns               []types.Column // result columns of a set-returning function with several
	Strict                bool
	Volatility            Volatility
	Doc                   string
	Example               string // an expression; its PostgreSQL answer is recorded in testdata

	impl // implementation, by kind
}
