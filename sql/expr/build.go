package expr

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// builder turns expressions into nodes. Subtrees without columns are computed once per chunk, those that depend on nothing at all
// once at compilation.
type builder struct {
	lib Library
	env *Env // of constants: nothing but what interrupts them
}

// build returns the node of e and whether it is the same for all rows of a chunk. A constant node must be wrapped with once before
// it is used with other rows than row 0.
func (b *builder) build(e *Expr) (node, bool, error) {
	switch e.Kind {
	case Column:
		return columnNode(e.Col), false, nil
	case Const:
		d := *e.Const
		d.Type = e.Type
		return constNode{constVector(d)}, true, nil
	case Param:
		return &paramNode{n: e.Col, t: e.Type}, true, nil
	}
	args := make([]node, len(e.Args))
	consts := make([]bool, len(e.Args))
	all := true
	for i, a := range e.Args {
		var err error
		if args[i], consts[i], err = b.build(a); err != nil {
			return nil, false, err
		}
		all = all && consts[i]
	}
	var impl Impl
	if e.Func != "" {
		var ok bool
		impl, ok = b.lib.Function(e.Func)
		if !ok || impl.Kernel == nil {
			return nil, false, pgerr.Newf(pgerr.UndefinedFunction, "function %s does not exist or is not a scalar function", e.Func)
		}
		all = all && !impl.Volatile
	} else if e.Kind == Call {
		return nil, false, pgerr.Newf(pgerr.InternalError, "call without a function")
	}
	if !all {
		for i := range args {
			if consts[i] {
				args[i] = b.once(args[i], e.Args[i])
			}
		}
	}
	n, err := b.node(e, args, impl)
	if err != nil || !all || !b.immutable(e) {
		return n, all, err
	}
	return b.fold(n, e), true, nil
}

// immutable reports whether e depends on nothing: neither rows nor environment.
func (b *builder) immutable(e *Expr) bool {
	ok := true
	e.Walk(func(x *Expr) bool {
		if x.Kind == Column || x.Kind == Param {
			ok = false
		}
		if x.Func != "" {
			f, found := b.lib.Function(x.Func)
			ok = ok && found && !f.Stable && !f.Volatile
		}
		return ok
	})
	return ok
}

// fold computes a constant node now. One that fails stays as it is: it may never be evaluated.
func (b *builder) fold(n node, e *Expr) node {
	var errs RowErrors
	x := run{c: &types.Chunk{N: 1}, n: 1, env: b.env, errs: &errs}
	a := n.eval(&x, nil)
	if len(errs.Rows) > 0 {
		return n
	}
	d := a.Get(0)
	d.Type = e.Type
	return constNode{constVector(d)}
}

func (b *builder) once(n node, e *Expr) node {
	if _, ok := n.(constNode); ok {
		return n
	}
	return &onceNode{in: n, t: e.Type}
}

func (b *builder) node(e *Expr, args []node, f Impl) (node, error) {
	want := func(n int) error {
		if len(args) < n {
			return pgerr.Newf(pgerr.InternalError, "expression %s has too few arguments", e.Kind)
		}
		return nil
	}
	minimum := map[Kind]int{Not: 1, IsNull: 1, IsNotNull: 1, Distinct: 2, InList: 1, AnyArray: 2, AllArray: 2, Case: 2, Coalesce: 1, Greatest: 1, Least: 1}
	if err := want(minimum[e.Kind]); err != nil {
		return nil, err
	}
	switch e.Kind {
	case Call:
		if e.Func == Retype && len(args) == 1 {
			return &retypeNode{in: args[0], t: e.Type}, nil
		}
		return newCall(e.Type, args, f), nil
	case And:
		return &logicNode{args: args}, nil
	case Or:
		return &logicNode{args: args, or: true}, nil
	case Not:
		return &notNode{in: args[0]}, nil
	case Case:
		return &caseNode{args: args, t: e.Type}, nil
	case Coalesce:
		return &coalesceNode{args: args, t: e.Type}, nil
	case Greatest:
		return &extremeNode{args: args, t: e.Type, sign: 1}, nil
	case Least:
		return &extremeNode{args: args, t: e.Type, sign: -1}, nil
	case IsNull:
		return &nullNode{in: args[0]}, nil
	case IsNotNull:
		return &nullNode{in: args[0], not: true}, nil
	case Distinct:
		if f.Kernel == nil {
			return &distinctNode{args: args}, nil
		}
		return &distinctNode{args: args, eq: newCall(types.Bool, []node{&slotNode{}, &slotNode{}}, f)}, nil
	case InList:
		return newIn(args), nil
	case AnyArray, AllArray:
		if f.Kernel == nil {
			return nil, pgerr.Newf(pgerr.InternalError, "expression %s without an operator", e.Kind)
		}
		return newQuantified(e, args, f), nil
	case Array:
		return &arrayNode{args: args, t: e.Type}, nil
	case Row:
		return &rowNode{args: args, names: e.Names, t: e.Type}, nil
	}
	return nil, pgerr.Newf(pgerr.InternalError, "unknown expression form %q", e.Kind)
}

type columnNode int

func (n columnNode) eval(x *run, _ []uint16) Arg { return NewArg(x.c.Cols[n]) }

type constNode struct{ v *types.Vector }

func (n constNode) eval(*run, []uint16) Arg { return ConstArg(n.v) }

// failNode fails in every row.
type failNode struct{ err error }

func (n failNode) eval(x *run, rows []uint16) Arg {
	for _, r := range x.every(rows) {
		x.errs.Add(int(r), n.err)
	}
	return ConstArg(constVector(types.NullDatum(types.Text)))
}

type paramNode struct {
	n int
	t types.Type
	v *types.Vector
}

func (n *paramNode) eval(x *run, rows []uint16) Arg {
	if x.env == nil || n.n < 1 || n.n > len(x.env.Params) {
		err := pgerr.Newf(pgerr.UndefinedParameter, "there is no parameter $%d", n.n)
		for _, r := range x.every(rows) {
			x.errs.Add(int(r), err)
		}
		n.v = constVector(types.NullDatum(n.t))
		return ConstArg(n.v)
	}
	d := x.env.Params[n.n-1]
	d.Type = n.t
	n.v = constVector(d)
	return ConstArg(n.v)
}

// onceNode computes a subexpression without columns for one row per chunk.
type onceNode struct {
	in   node
	t    types.Type
	x    run
	c    types.Chunk
	errs RowErrors
	v    types.Vector
}

func (n *onceNode) eval(x *run, rows []uint16) Arg {
	n.errs.Reset()
	n.c.N = 1
	n.x.c, n.x.n, n.x.env, n.x.errs = &n.c, 1, x.env, &n.errs
	a := n.in.eval(&n.x, nil)
	n.v.Type = n.t
	n.v.Reset()
	n.v.Append(a.Vector, 0)
	if len(n.errs.Errs) > 0 {
		for _, r := range x.every(rows) {
			x.errs.Add(int(r), n.errs.Errs[0])
		}
	}
	return ConstArg(&n.v)
}

// Retype is the function ID of casts that change the type only: both types have the same representation.
const Retype = "$retype(any)"

type retypeNode struct {
	in node
	t  types.Type
	v  types.Vector // shares the values of the argument
}

func (n *retypeNode) eval(x *run, rows []uint16) Arg {
	a := n.in.eval(x, rows)
	n.v = *a.Vector
	n.v.Type = n.t
	return Arg{Vector: &n.v, mask: a.mask}
}

// slotNode stands for an argument that its owner computed already.
type slotNode struct{ a Arg }

func (n *slotNode) eval(*run, []uint16) Arg { return n.a }

// callNode calls a function.
type callNode struct {
	args  []node
	f     Impl
	frame Frame
	vals  []Arg
	live  []uint16
	out   result
	null  *types.Vector
}

func newCall(t types.Type, args []node, f Impl) *callNode {
	return &callNode{args: args, f: f, frame: Frame{Type: t}, vals: make([]Arg, len(args)), null: constVector(types.NullDatum(t))}
}

// prepare computes the arguments and the rows the kernel has to see; false means that the result is NULL everywhere.
// valid is the validity of the result, nil when all rows of the frame are valid.
func (n *callNode) prepare(x *run, rows []uint16) (nulls, ok bool) {
	for i, a := range n.args {
		n.vals[i] = a.eval(x, rows)
	}
	n.frame.N, n.frame.Rows, n.frame.Env, n.frame.Errs = x.n, rows, x.env, x.errs
	if !n.f.Strict {
		return false, true
	}
	for _, a := range n.vals {
		if a.Valid == nil {
			continue
		}
		if a.IsConst() {
			if !a.Valid.Get(0) {
				return false, false
			}
			continue
		}
		nulls = true
	}
	return nulls, true
}

func (n *callNode) eval(x *run, rows []uint16) Arg {
	nulls, ok := n.prepare(x, rows)
	if !ok {
		return ConstArg(n.null)
	}
	out := n.out.begin(n.frame.Type, x.n)
	if nulls {
		valid := n.out.bitmap(x.n)
		for _, a := range n.vals {
			if a.Valid != nil && !a.IsConst() {
				andWords(valid, a.Valid)
			}
		}
		if !n.f.Total {
			n.live = liveRows(n.live[:0], valid, x.n, rows)
			n.frame.Rows = n.live
		}
	}
	if n.f.Total && n.frame.Rows != nil && len(n.frame.Rows)*4 > x.n {
		n.frame.Rows = nil
	}
	if err := x.env.Interrupted(); err != nil {
		for i := range n.frame.Len() {
			n.frame.Fail(out, n.frame.Row(i), err)
		}
	} else {
		n.f.Kernel(&n.frame, n.vals, out)
	}
	n.frame.Env, n.frame.Errs = nil, nil
	return NewArg(out)
}

func andWords(dst, src types.Bitmap) {
	for i := range dst {
		dst[i] &= src[i]
	}
}

// liveRows appends the rows whose bit is set.
func liveRows(dst []uint16, valid types.Bitmap, n int, rows []uint16) []uint16 {
	if dst == nil {
		dst = make([]uint16, 0, n)
	}
	if rows == nil {
		for r := range n {
			if valid.Get(r) {
				dst = append(dst, uint16(r))
			}
		}
		return dst
	}
	for _, r := range rows {
		if valid.Get(int(r)) {
			dst = append(dst, r)
		}
	}
	return dst
}
