package expr

import (
	"slices"

	"github.com/streamdb/streamdb/types"
)

// Library finds implementations by function ID. functions.Registry is one.
type Library interface {
	Function(id string) (Impl, bool)
}

// Impl is what evaluation needs to know of a function.
type Impl struct {
	Kernel   Kernel
	Set      SetKernel // set-returning functions
	Filter   Filter    // optional, boolean functions
	Strict   bool      // NULL if any argument is; the kernel sees only rows whose arguments are not NULL
	Total    bool      // never fails and tolerates unspecified values: may run over rows that do not matter
	Volatile bool
	Stable   bool // depends on Env
	Columns  []types.Column
	// IntEquality and IntModulus mark = and % over integers: filters fuse the two.
	IntEquality, IntModulus bool
}

// Kernel computes a function for the rows of f into out, which has f.N rows, none of them NULL. It writes out's values, marks NULL
// results with out.SetNull and reports rows that fail with f.Fail. It keeps nothing of its arguments but strings.
type Kernel func(f *Frame, args []Arg, out *types.Vector)

// Filter appends to sel the rows of f for which the function is true.
type Filter func(f *Frame, args []Arg, sel []uint16) []uint16

// SetKernel starts a set-returning function for row r of its arguments. The argument vectors stay valid only during the call.
type SetKernel func(f *Frame, args []Arg, r int) (SetRows, error)

// SetRows yields the result rows of one call of a set-returning function.
type SetRows interface {
	// Next appends up to limit rows to the vectors of out, one per result column, and returns how many; 0 means the end.
	Next(out []*types.Vector, limit int) (int, error)
}

// Arg is an argument of a kernel: a vector, and how rows map to its positions. Constant arguments have one position.
type Arg struct {
	*types.Vector
	mask int
}

// NewArg returns v as an argument with one value per row.
func NewArg(v *types.Vector) Arg { return Arg{Vector: v, mask: -1} }

// ConstArg returns an argument that is v's first value in every row.
func ConstArg(v *types.Vector) Arg { return Arg{Vector: v} }

// At returns the position of row r in the vector.
func (a Arg) At(r int) int { return r & a.mask }

// IsConst reports whether the argument is the same in all rows (position 0).
func (a Arg) IsConst() bool { return a.mask == 0 }

// Null reports whether the argument is NULL in row r.
func (a Arg) Null(r int) bool { return a.Valid != nil && !a.Valid.Get(r&a.mask) }

// Frame is the context of one kernel call.
type Frame struct {
	N    int      // physical rows
	Rows []uint16 // rows to compute, ascending; nil = 0 … N-1
	Env  *Env
	Errs *RowErrors
	Type types.Type // the call's result type, with modifier
	// Names and Cols are the columns of a set-returning call that names them itself.
	Names []string
	Cols  []types.Type
	// State belongs to the call: kernels keep compiled patterns and the like here between chunks.
	State any
}

// Len returns the number of rows to compute.
func (f *Frame) Len() int {
	if f.Rows != nil {
		return len(f.Rows)
	}
	return f.N
}

// Row returns the i-th row to compute.
func (f *Frame) Row(i int) int {
	if f.Rows != nil {
		return int(f.Rows[i])
	}
	return i
}

// Fail records that row r failed: its value is NULL.
func (f *Frame) Fail(out *types.Vector, r int, err error) {
	f.Errs.Add(r, err)
	out.SetNull(r)
}

// Interrupted returns why the statement has to end, nil while it may go on. Functions that may work long on one value ask for it.
func (f *Frame) Interrupted() error { return f.Env.Interrupted() }

// Interruptible calls Interrupted once in interruptEvery steps of a loop.
func (f *Frame) Interruptible(step int) error {
	if step%interruptEvery != interruptEvery-1 {
		return nil
	}
	return f.Env.Interrupted()
}

// interruptEvery is how many short steps are done between two looks for a cancellation.
const interruptEvery = 1024

// Format returns the text format of the environment, the default one without an environment.
func (f *Frame) Format() *types.Format { return f.Env.format() }

var defaultFormat = types.DefaultFormat()

func (e *Env) format() *types.Format {
	if e == nil || e.Format == nil {
		return defaultFormat
	}
	return e.Format
}

// Sort orders the failures by row and keeps the first of each row.
func (e *RowErrors) Sort() {
	if len(e.Rows) < 2 {
		return
	}
	idx := make([]int, len(e.Rows))
	for i := range idx {
		idx[i] = i
	}
	slices.SortStableFunc(idx, func(a, b int) int { return int(e.Rows[a]) - int(e.Rows[b]) })
	rows, errs := make([]uint16, 0, len(idx)), make([]error, 0, len(idx))
	for _, i := range idx {
		if n := len(rows); n > 0 && rows[n-1] == e.Rows[i] {
			continue
		}
		rows, errs = append(rows, e.Rows[i]), append(errs, e.Errs[i])
	}
	e.Rows, e.Errs = append(e.Rows[:0], rows...), append(e.Errs[:0], errs...)
}
