// Package expr holds bound scalar expressions and their vectorised evaluation. The planner builds trees of Expr (names resolved,
// every implicit cast explicit); operators compile them once into Programs and run these over chunks. The same programs serve
// views and one-shot queries: there is no second evaluator.
package expr

import "github.com/streamdb/streamdb/types"

// Kind is the form of an expression node. Its text is part of stored plans: never rename.
type Kind string

// The expression forms and what their fields mean.
const (
	Column    Kind = "col"      // Col: position in the input schema
	Const     Kind = "const"    // Const
	Param     Kind = "param"    // Col: parameter number from 1
	Call      Kind = "call"     // Func, Args: a function, operator or cast of functions.Registry by its ID
	And       Kind = "and"      // Args (2 or more); SQL three-valued, later arguments are evaluated only where still undecided
	Or        Kind = "or"       // Args (2 or more)
	Not       Kind = "not"      // Args[0]
	Case      Kind = "case"     // Args: when1, then1, when2, then2, …[, else]; branches are evaluated only where taken
	Coalesce  Kind = "coalesce" // Args, evaluated only where the earlier ones are NULL
	Greatest  Kind = "greatest" // Args of one type; NULLs ignored
	Least     Kind = "least"    //
	IsNull    Kind = "isnull"   // Args[0]
	IsNotNull Kind = "notnull"  // Args[0]
	Distinct  Kind = "distinct" // Args[0] IS DISTINCT FROM Args[1]; Func is the equality function of their type
	InList    Kind = "in"       // Args[0] IN (Args[1:]), all of one type
	AnyArray  Kind = "any"      // Args[0] op ANY (Args[1] array); Func is the operator's function on element type
	AllArray  Kind = "all"      // Args[0] op ALL (Args[1] array)
	Array     Kind = "array"    // ARRAY[Args…]; Type is the array type
	Row       Kind = "row"      // ROW(Args…)
)

// Expr is a bound, typed expression. It is immutable after binding and serialises to JSON as part of stored plans.
type Expr struct {
	Kind  Kind         `json:"k"`
	Type  types.Type   `json:"t"`
	Col   int          `json:"c,omitempty"`
	Const *types.Datum `json:"v,omitempty"`
	Func  string       `json:"f,omitempty"`
	Args  []*Expr      `json:"a,omitempty"`
	// Names are the fields of a Row, nil for ROW(…) as written, or the result columns of a set-returning Call, where Cols gives their types.
	// Both are nil for calls whose columns are those of the function.
	Names []string     `json:"n,omitempty"`
	Cols  []types.Type `json:"cs,omitempty"`
	Pos   int          `json:"-"` // byte offset in the statement, for error positions
}

// Col returns a reference to input column i.
func Col(i int, t types.Type) *Expr { return &Expr{Kind: Column, Type: t, Col: i, Pos: -1} }

// Literal returns a constant.
func Literal(d types.Datum) *Expr { return &Expr{Kind: Const, Type: d.Type, Const: &d, Pos: -1} }

// Walk calls f for e and all its descendants, parents first, until f returns false for a node (its children are then skipped).
func (e *Expr) Walk(f func(*Expr) bool) {
	if e == nil || !f(e) {
		return
	}
	for _, a := range e.Args {
		a.Walk(f)
	}
}

// Rewrite returns e with f applied bottom-up; nodes are copied where something changed, e itself is never modified.
func (e *Expr) Rewrite(f func(*Expr) *Expr) *Expr {
	var args []*Expr
	for i, a := range e.Args {
		b := a.Rewrite(f)
		if b != a && args == nil {
			args = append(make([]*Expr, 0, len(e.Args)), e.Args[:i]...)
		}
		if args != nil {
			args = append(args, b)
		}
	}
	if args != nil {
		c := *e
		c.Args = args
		e = &c
	}
	return f(e)
}

// MapColumns returns e with every column reference i replaced by m[i].
func (e *Expr) MapColumns(m []int) *Expr {
	return e.Rewrite(func(x *Expr) *Expr {
		if x.Kind != Column || m[x.Col] == x.Col {
			return x
		}
		c := *x
		c.Col = m[x.Col]
		return &c
	})
}

// Columns adds the columns that e reads to set.
func (e *Expr) Columns(set map[int]bool) {
	e.Walk(func(x *Expr) bool {
		if x.Kind == Column {
			set[x.Col] = true
		}
		return true
	})
}
