package expr

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// Program is a compiled expression. It owns scratch vectors and is not safe for concurrent use; Clone gives every user its own.
type Program struct {
	expr   *Expr
	lib    Library
	root   node
	filter filterNode
	x      run
	errs   RowErrors
	spread types.Vector // the root's result when that is a constant
	failed types.Vector // the root's result with failed rows NULL
}

// run is the context of one evaluation.
type run struct {
	c    *types.Chunk
	n    int
	env  *Env
	errs *RowErrors
	all  []uint16 // 0, 1, 2 …
}

// every returns rows, or all rows as a list when rows is nil.
func (x *run) every(rows []uint16) []uint16 {
	if rows != nil {
		return rows
	}
	for i := len(x.all); i < x.n; i++ {
		x.all = append(x.all, uint16(i))
	}
	return x.all[:x.n]
}

// node computes a subexpression for some rows (nil = all). The result belongs to the node until its next evaluation.
type node interface {
	eval(x *run, rows []uint16) Arg
}

// Compile prepares e for evaluation.
func Compile(e *Expr, lib Library) (*Program, error) {
	b := builder{lib: lib}
	root, constant, err := b.build(e)
	if err != nil {
		return nil, err
	}
	if constant {
		root = b.once(root, e)
	}
	p := &Program{expr: e, lib: lib, root: root}
	if e.Type.OID == types.OIDBool {
		p.filter = b.filter(root)
	}
	return p, nil
}

// Clone returns an independent copy.
func (p *Program) Clone() *Program {
	q, err := Compile(p.expr, p.lib)
	if err != nil {
		// The same expression compiled before.
		return &Program{expr: p.expr, lib: p.lib, root: failNode{err: err}}
	}
	return q
}

// Expr returns the expression the program was compiled from.
func (p *Program) Expr() *Expr { return p.expr }

// Type returns the type of the result.
func (p *Program) Type() types.Type { return p.expr.Type }

func (p *Program) start(c *types.Chunk, env *Env, errs *RowErrors) {
	p.x.c, p.x.n, p.x.env, p.x.errs = c, c.N, env, errs
	if errs == nil {
		p.errs.Reset()
		p.x.errs = &p.errs
	}
}

func (p *Program) finish(errs *RowErrors, before int) error {
	x := &p.x
	x.c, x.env = nil, nil
	failed := x.errs
	x.errs = nil
	if len(failed.Rows) == before {
		return nil
	}
	failed.Sort()
	if errs == nil {
		return failed.Errs[0]
	}
	return nil
}

// Eval computes the expression for the selected rows of c. The result is indexed by physical row and has c.N rows; rows that are
// not selected have unspecified values. It stays valid until the next call; a column reference returns the input's own vector.
// Rows that fail are NULL and listed in errs; with errs nil the first failure is returned.
func (p *Program) Eval(c *types.Chunk, env *Env, errs *RowErrors) (*types.Vector, error) {
	p.start(c, env, errs)
	before := len(p.x.errs.Rows)
	a := p.root.eval(&p.x, c.Sel)
	v := a.Vector
	if a.IsConst() {
		v = p.spreadConst(a, c.N)
	}
	if len(p.x.errs.Rows) > before {
		v = p.withoutFailed(v, p.x.errs.Rows[before:])
	}
	return v, p.finish(errs, before)
}

// withoutFailed returns v with the failed rows NULL. The validity is copied: a type change shares it with the input.
func (p *Program) withoutFailed(v *types.Vector, failed []uint16) *types.Vector {
	c := *v
	c.Valid = types.NewBitmap(v.Len(), true)
	if v.Valid != nil {
		copy(c.Valid, v.Valid)
	}
	for _, r := range failed {
		c.Valid.Clear(int(r))
	}
	p.failed = c
	return &p.failed
}

func (p *Program) spreadConst(a Arg, n int) *types.Vector {
	v := &p.spread
	v.Type = a.Type
	v.Valid = nil
	v.Resize(n)
	if a.Null(0) {
		v.Valid = types.NewBitmap(n, false)
		return v
	}
	for r := range n {
		v.SetValue(r, a.Vector, 0)
	}
	return v
}

// Filter appends to sel[:0] the selected rows of c for which the boolean expression is true.
func (p *Program) Filter(c *types.Chunk, env *Env, errs *RowErrors, sel []uint16) ([]uint16, error) {
	if p.filter == nil {
		return nil, pgerr.Newf(pgerr.DatatypeMismatch, "argument of WHERE must be type boolean, not type %s", types.T(p.expr.Type.OID))
	}
	p.start(c, env, errs)
	before := len(p.x.errs.Rows)
	sel = p.filter.filter(&p.x, c.Sel, sel[:0])
	return sel, p.finish(errs, before)
}

// EvalConst computes an expression without columns.
func EvalConst(e *Expr, env *Env, lib Library) (types.Datum, error) {
	b := builder{lib: lib}
	if env != nil && env.Interrupt != nil {
		b.env = &Env{Interrupt: env.Interrupt}
	}
	root, _, err := b.build(e)
	if err != nil {
		return types.Datum{}, err
	}
	var errs RowErrors
	x := run{c: &types.Chunk{N: 1}, n: 1, env: env, errs: &errs}
	a := root.eval(&x, nil)
	if len(errs.Errs) > 0 {
		return types.Datum{}, errs.Errs[0]
	}
	d := a.Get(0)
	d.Type = e.Type
	return d, nil
}

// SetProgram is a compiled call of a set-returning function.
type SetProgram struct {
	set    SetKernel
	args   []*Program
	frame  Frame
	vals   []Arg
	own    RowErrors
	strict bool
	types  []types.Type
	marked bool
	mark   markedRows
}

// MarkedSet is the function of a set-returning call in the argument: its rows, each with true behind it, so that a row of NULLs differs
// from no row.
const MarkedSet = "$marked"

// markedRows puts the marks; one is in use per call at a time.
type markedRows struct{ rows SetRows }

func (m *markedRows) Next(out []*types.Vector, limit int) (int, error) {
	last := len(out) - 1
	n, err := m.rows.Next(out[:last], limit)
	if err != nil {
		return 0, err
	}
	for range n {
		out[last].AppendDatum(types.Datum{Type: types.Bool, Bool: true})
	}
	return n, nil
}

// CompileSet prepares e, a Call of a set-returning function.
func CompileSet(e *Expr, lib Library) (*SetProgram, error) {
	if e.Kind == Call && e.Func == MarkedSet {
		p, err := CompileSet(e.Args[0], lib)
		if err == nil {
			p.marked, p.types = true, append(append([]types.Type(nil), p.types...), types.Bool)
		}
		return p, err
	}
	f, ok := lib.Function(e.Func)
	if e.Kind != Call || !ok || f.Set == nil {
		return nil, pgerr.Newf(pgerr.InternalError, "%s is not a set-returning function", e.Func)
	}
	p := &SetProgram{set: f.Set, vals: make([]Arg, len(e.Args)), strict: f.Strict, types: []types.Type{e.Type}}
	switch {
	case len(e.Cols) > 0:
		p.types = e.Cols
	case len(f.Columns) > 0:
		p.types = types.Schema(f.Columns).Types()
	}
	p.frame.Type, p.frame.Names, p.frame.Cols = e.Type, e.Names, e.Cols
	for _, a := range e.Args {
		q, err := Compile(a, lib)
		if err != nil {
			return nil, err
		}
		p.args = append(p.args, q)
	}
	return p, nil
}

// Types returns the types of the result columns.
func (p *SetProgram) Types() []types.Type { return p.types }

// Prepare computes the arguments for the selected rows of c. Call Start for these rows before the next Prepare.
func (p *SetProgram) Prepare(c *types.Chunk, env *Env, errs *RowErrors) error {
	for i, a := range p.args {
		v, err := a.Eval(c, env, errs)
		if err != nil {
			return err
		}
		p.vals[i] = NewArg(v)
	}
	p.frame.N, p.frame.Env, p.frame.Errs = c.N, env, &p.own
	return nil
}

// Start begins the call for row r; a nil result means that it yields no rows.
func (p *SetProgram) Start(r int) (SetRows, error) {
	if p.strict {
		for _, a := range p.vals {
			if a.Null(r) {
				return nil, nil
			}
		}
	}
	rows, err := p.set(&p.frame, p.vals, r)
	if !p.marked || rows == nil || err != nil {
		return rows, err
	}
	p.mark.rows = rows
	return &p.mark, nil
}
