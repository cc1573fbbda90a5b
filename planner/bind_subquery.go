package planner

import (
	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// sub binds a subquery of an expression; its outer columns are those of this clause.
func (x *exprCtx) sub(q ast.Node, keepUnknown bool) (*bound, error) {
	outer := *x.sc
	outer.holder = x
	return x.b.query(pgext.QueryOf(q), x.ev.with(&outer), keepUnknown)
}

// scalar binds (SELECT ..) as a value.
func (x *exprCtx) scalar(q ast.Node, pos int) (*expr.Expr, error) {
	r, err := x.sub(q, false)
	if err != nil {
		return nil, err
	}
	if len(r.cols) != 1 {
		return nil, pgerr.Newf(pgerr.SyntaxError, "subquery must return only one column").At(pos)
	}
	n, id := x.b.single(r.n, r.cols[0].id)
	x.applies = append(x.applies, apply{right: n, jtype: plan.Left})
	c := x.b.md.ref(id)
	c.Pos = pos
	return c, nil
}

// single makes sure that n yields at most one row, by an aggregate that fails on a second one.
func (b *binder) single(n *node, id int) (*node, int) {
	if b.atMostOne(n) {
		return b.md.narrow(n, []int{id}), id
	}
	res, err := b.reg.ResolveFunction("$scalar", []types.Type{b.md.typ(id)})
	if err != nil {
		b.fail(err)
	}
	out := b.md.copy(id)
	b.md.cols[out].shape = b.md.cols[id].shape
	return &node{op: opAgg, in: []*node{n}, global: true, aggs: []aggCall{{id: out, fn: res.Func.ID, args: []int{id}, typ: b.md.typ(id)}}}, out
}

// atMostOne reports whether n can be seen to yield no more than one row.
func (b *binder) atMostOne(n *node) bool {
	switch n.op {
	case opValues:
		return len(n.rows) <= 1
	case opAgg:
		return n.global
	case opProject, opFilter, opWatermark, opOver:
		return b.atMostOne(n.in[0])
	case opTopN:
		return len(n.group) == 0 && !n.withTies && n.limit != nil && n.limit.Kind == expr.Const && n.limit.Const.Int <= 1 || b.atMostOne(n.in[0])
	case opAsof:
		return b.atMostOne(n.in[0])
	case opJoin, opApply:
		if n.jtype == plan.Semi || n.jtype == plan.Anti {
			return b.atMostOne(n.in[0])
		}
		return n.jtype != plan.Full && b.atMostOne(n.in[0]) && b.atMostOne(n.in[1])
	}
	return false
}

// exists binds EXISTS outside of a conjunction: a count that is compared.
func (x *exprCtx) exists(e *pgext.Exists) (*expr.Expr, error) {
	r, err := x.sub(e.Query, false)
	if err != nil {
		return nil, err
	}
	b := x.b
	// One row is enough to know.
	n := stripOrder(r.n)
	cnt := b.md.add("?count?", types.Int8)
	agg := &node{op: opAgg, in: []*node{n}, global: true, aggs: []aggCall{{id: cnt, fn: b.countFunc(), typ: types.Int8}}}
	x.applies = append(x.applies, apply{right: agg, jtype: plan.Left})
	op := ">"
	if e.Not {
		op = "="
	}
	c := b.mustOp(op, b.md.ref(cnt), intConst(types.Int8, 0))
	c.Pos = b.pos(e.Pos)
	return c, nil
}

// stripOrder removes a sort without limit, which cannot matter to the consumer.
func stripOrder(n *node) *node {
	for n.op == opTopN && n.limit == nil && n.offset == nil {
		n = n.in[0]
	}
	return n
}

func (x *exprCtx) arrayQuery(e *pgext.ArrayQuery) (*expr.Expr, error) {
	b, pos := x.b, x.b.pos(e.Pos)
	r, err := x.sub(e.Query, false)
	if err != nil {
		return nil, err
	}
	if len(r.cols) != 1 {
		return nil, pgerr.Newf(pgerr.SyntaxError, "subquery must return only one column").At(pos)
	}
	id := r.cols[0].id
	res, err := b.reg.ResolveFunction("array_agg", []types.Type{b.md.typ(id)})
	if err != nil {
		return nil, pgerr.From(err).At(pos)
	}
	out := b.md.add("array", res.Result)
	b.md.cols[out].shape = b.md.cols[id].shape
	n := &node{op: opAgg, in: []*node{stripOrder(r.n)}, global: true, aggs: []aggCall{{id: out, fn: res.Func.ID, args: []int{id}, order: append([]sortKey(nil), r.order...), typ: res.Result}}}
	x.applies = append(x.applies, apply{right: n, jtype: plan.Left})
	empty := &expr.Expr{Kind: expr.Array, Type: res.Result, Pos: pos}
	return coalesce(b.md.ref(out), empty), nil
}

// compared binds x op (query) and returns the query's node with the comparison over its columns.
func (x *exprCtx) compared(l ast.ExprNode, op string, q ast.Node, pos int) (r *bound, left []*expr.Expr, cmp *expr.Expr, err error) {
	if row, ok := pgext.ExprOf(l).(*pgext.Row); ok {
		left, err = x.rowElems(row)
	} else {
		left = make([]*expr.Expr, 1)
		left[0], err = x.bind(l)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	if r, err = x.sub(q, true); err != nil {
		return nil, nil, nil, err
	}
	switch {
	case len(r.cols) > len(left):
		return nil, nil, nil, pgerr.Newf(pgerr.SyntaxError, "subquery has too many columns").At(pos)
	case len(r.cols) < len(left):
		return nil, nil, nil, pgerr.Newf(pgerr.SyntaxError, "subquery has too few columns").At(pos)
	}
	if err = x.b.settle(r); err != nil {
		return nil, nil, nil, err
	}
	right := make([]*expr.Expr, len(left))
	for i, c := range r.cols {
		right[i] = x.b.md.ref(c.id)
	}
	if len(left) == 1 {
		cmp, err = x.b.operatorOn(op, []*expr.Expr{left[0], right[0]}, pos)
	} else {
		if !comparison(op) {
			return nil, nil, nil, pgerr.Newf(pgerr.FeatureNotSupported, "operator %s is not supported for rows", op).At(pos)
		}
		cmp, err = x.b.rowCompare(op, left, right, pos)
	}
	if err == nil && cmp.Type.OID != types.OIDBool {
		err = pgerr.Newf(pgerr.DatatypeMismatch, "operator %s must return type boolean, not type %s", op, cmp.Type).At(pos)
	}
	return r, left, cmp, err
}

// quantified binds x op ANY|ALL (query) as a value: the rows that decide are counted.
func (x *exprCtx) quantified(l ast.ExprNode, op string, q ast.Node, all, negate bool, pos int) (*expr.Expr, error) {
	b := x.b
	r, left, cmp, err := x.compared(l, op, q, pos)
	if err != nil {
		return nil, err
	}
	if len(left) == 1 && (op == "=" && !all || op == "<>" && all) && len(freeCols(r.n)) == 0 {
		if op == "<>" {
			if cmp, err = b.operatorOn("=", []*expr.Expr{left[0], b.md.ref(r.cols[0].id)}, pos); err != nil {
				return nil, err
			}
			negate = !negate
		}
		return x.member(r, left[0], cmp, negate), nil
	}
	decide := cmp
	if all {
		decide = not(cmp)
	}
	cid, did := b.md.add("?cmp?", types.Bool), b.md.add("?decides?", types.Bool)
	n := b.md.extend(stripOrder(r.n), []int{cid, did}, []*expr.Expr{cmp, decide})
	total, known, decided := b.md.add("?rows?", types.Int8), b.md.add("?known?", types.Int8), b.md.add("?decided?", types.Int8)
	res, err := b.reg.ResolveFunction("count", []types.Type{types.Bool})
	if err != nil {
		b.fail(err)
	}
	agg := &node{op: opAgg, in: []*node{n}, global: true, aggs: []aggCall{
		{id: total, fn: b.countFunc(), typ: types.Int8},
		{id: known, fn: res.Func.ID, args: []int{cid}, typ: types.Int8},
		{id: decided, fn: b.countFunc(), filter: did, typ: types.Int8},
	}}
	x.applies = append(x.applies, apply{right: agg, jtype: plan.Left})
	out := &expr.Expr{Kind: expr.Case, Type: types.Bool, Pos: pos, Args: []*expr.Expr{
		b.mustOp(">", b.md.ref(decided), intConst(types.Int8, 0)), boolConst(!all),
		b.mustOp("<", b.md.ref(known), b.md.ref(total)), nullConst(types.Bool),
		boolConst(all),
	}}
	if negate {
		return not(out), nil
	}
	return out, nil
}

// condition binds a WHERE, HAVING or ON condition: subqueries that are whole conjuncts become semi and anti joins.
func (x *exprCtx) condition(e ast.ExprNode) (*expr.Expr, error) {
	switch v := pgext.ExprOf(e).(type) {
	case *pgext.Logic:
		if v.Or {
			break
		}
		var parts []*expr.Expr
		for _, a := range v.Args {
			sub := *x
			sub.clause = "AND"
			if _, ok := pgext.ExprOf(a).(*pgext.Logic); ok {
				sub.clause = x.clause
			}
			c, err := sub.condition(a)
			if err != nil {
				return nil, err
			}
			x.applies = sub.applies
			if c != nil {
				parts = append(parts, c)
			}
		}
		return and(parts...), nil
	case *pgext.Not:
		switch w := pgext.ExprOf(v.X).(type) {
		case *pgext.Exists:
			c := *w
			c.Not = !c.Not
			return x.existsCondition(&c)
		case *pgext.In:
			if w.Query != nil {
				c := *w
				c.Not = !c.Not
				return x.inCondition(&c)
			}
		}
	case *pgext.Exists:
		return x.existsCondition(v)
	case *pgext.In:
		if v.Query != nil {
			return x.inCondition(v)
		}
	case *pgext.AnyAll:
		if v.Query == nil {
			break
		}
		switch {
		case !v.All && v.Op == "=":
			return x.inCondition(&pgext.In{X: v.X, Query: v.Query, Pos: v.Pos})
		case v.All && v.Op == "<>":
			return x.inCondition(&pgext.In{X: v.X, Query: v.Query, Not: true, Pos: v.Pos})
		}
		r, _, cmp, err := x.compared(v.X, v.Op, v.Query, x.b.pos(v.Pos))
		if err != nil {
			return nil, err
		}
		if v.All {
			x.applies = append(x.applies, apply{right: stripOrder(r.n), jtype: plan.Anti, cond: not(isTruth(cmp))})
		} else {
			x.applies = append(x.applies, apply{right: stripOrder(r.n), jtype: plan.Semi, cond: cmp})
		}
		return nil, nil
	}
	return x.bool(e)
}

func (x *exprCtx) existsCondition(e *pgext.Exists) (*expr.Expr, error) {
	r, err := x.sub(e.Query, false)
	if err != nil {
		return nil, err
	}
	t := plan.Semi
	if e.Not {
		t = plan.Anti
	}
	x.applies = append(x.applies, apply{right: stripOrder(r.n), jtype: t})
	return nil, nil
}

// inCondition is [NOT] IN (query) as a conjunct. NOT IN keeps a row when the query is empty, or when neither side has a NULL and
// nothing matches: the NULLs are counted beside an anti join on equality.
func (x *exprCtx) inCondition(e *pgext.In) (*expr.Expr, error) {
	b, pos := x.b, x.b.pos(e.Pos)
	r, left, cmp, err := x.compared(e.X, "=", e.Query, pos)
	if err != nil {
		return nil, err
	}
	n := stripOrder(r.n)
	if !e.Not {
		x.applies = append(x.applies, apply{right: n, jtype: plan.Semi, cond: cmp})
		return nil, nil
	}
	leftSafe, rightSafe := true, true
	for i, l := range left {
		leftSafe = leftSafe && b.neverNull(l, x.base)
		rightSafe = rightSafe && b.neverNull(b.md.ref(r.cols[i].id), n)
	}
	if leftSafe && rightSafe {
		x.applies = append(x.applies, apply{right: n, jtype: plan.Anti, cond: cmp})
		return nil, nil
	}
	if len(left) > 1 || len(freeCols(n)) > 0 {
		// not(coalesce(not(..))): a row that is equal or may be equal.
		x.applies = append(x.applies, apply{right: n, jtype: plan.Anti, cond: not(isTruth(not(cmp)))})
		return nil, nil
	}
	empty, nulls := x.nullFlags(n, r.cols[0].id)
	x.applies = append(x.applies, apply{right: n, jtype: plan.Anti, cond: cmp})
	return or(b.md.ref(empty), and(isNotNull(left[0]), not(b.md.ref(nulls)))), nil
}

// member is x IN (query) as a value, for a query that does not depend on the row: an outer join with the distinct values tells
// whether there is a match, the flags whether no match means false or NULL.
func (x *exprCtx) member(r *bound, left, cmp *expr.Expr, negate bool) *expr.Expr {
	b := x.b
	n := stripOrder(r.n)
	id := r.cols[0].id
	var empty, nulls *expr.Expr
	if !b.neverNull(left, x.base) || !b.neverNull(b.md.ref(id), n) {
		e, s := x.nullFlags(n, id)
		empty, nulls = b.md.ref(e), b.md.ref(s)
	}
	found := b.md.add("?found?", types.Bool)
	set := b.md.extend(&node{op: opAgg, in: []*node{n}, group: []int{id}}, []int{found}, []*expr.Expr{boolConst(true)})
	x.applies = append(x.applies, apply{right: set, jtype: plan.Left, cond: cmp})
	out := isNotNull(b.md.ref(found))
	if empty != nil {
		out = &expr.Expr{Kind: expr.Case, Type: types.Bool, Pos: cmp.Pos, Args: []*expr.Expr{
			out, boolConst(true), empty, boolConst(false), or(isNull(left), nulls), nullConst(types.Bool), boolConst(false),
		}}
	}
	if negate {
		return not(out)
	}
	return out
}

// nullFlags adds a subquery of one row to the clause: whether n is empty, and whether its column id has a NULL. n itself is not used up.
func (x *exprCtx) nullFlags(n *node, id int) (empty, nulls int) {
	b := x.b
	m := map[int]int{}
	c := b.md.copyTree(n, m)
	if y, ok := m[id]; ok {
		id = y
	}
	count, err := b.reg.ResolveFunction("count", []types.Type{b.md.typ(id)})
	if err != nil {
		b.fail(err)
	}
	total, known := b.md.add("?rows?", types.Int8), b.md.add("?known?", types.Int8)
	agg := &node{op: opAgg, in: []*node{c}, global: true, aggs: []aggCall{
		{id: total, fn: b.countFunc(), typ: types.Int8}, {id: known, fn: count.Func.ID, args: []int{id}, typ: types.Int8},
	}}
	empty, nulls = b.md.add("?empty?", types.Bool), b.md.add("?nulls?", types.Bool)
	p := &node{op: opProject, in: []*node{agg}, cols: []int{empty, nulls}, exprs: []*expr.Expr{
		b.mustOp("=", b.md.ref(total), intConst(types.Int8, 0)), b.mustOp("<", b.md.ref(known), b.md.ref(total)),
	}}
	// The grouping swallows changes of the counts that change neither flag.
	flags := &node{op: opAgg, in: []*node{p}, group: []int{empty, nulls}}
	x.applies = append(x.applies, apply{right: flags, jtype: plan.Inner})
	return empty, nulls
}

// neverNull reports whether e is provably not NULL over the rows of n (nil: nothing is known of the rows).
func (b *binder) neverNull(e *expr.Expr, n *node) bool {
	switch e.Kind {
	case expr.Const:
		return !e.Const.Null
	case expr.Column:
		return n != nil && b.notNullCol(n, e.Col)
	case expr.IsNull, expr.IsNotNull, expr.Distinct:
		return true
	}
	return false
}

// notNullCol reports whether column id of n's output never is NULL.
func (b *binder) notNullCol(n *node, id int) bool {
	switch n.op {
	case opScan, opSource, opSeries:
		return b.md.cols[id].notNull
	case opValues:
		for i, c := range n.cols {
			if c == id {
				for _, r := range n.rows {
					if !b.neverNull(r[i], nil) {
						return false
					}
				}
				return true
			}
		}
	case opProject:
		for i, c := range n.cols {
			if c == id {
				return b.neverNull(n.exprs[i], n.in[0])
			}
		}
	case opUnion:
		for i, c := range n.cols {
			if c == id {
				for k, in := range n.in {
					if !b.notNullCol(in, n.branches[k][i]) {
						return false
					}
				}
				return true
			}
		}
	case opAgg:
		for _, a := range n.aggs {
			if a.id == id {
				return isCount(a.fn)
			}
		}
		return b.notNullCol(n.in[0], id)
	case opFilter, opTopN, opWatermark, opOver, opWindow, opSession, opUnnest:
		if (n.op == opWindow || n.op == opSession) && (id == n.winStart || id == n.winEnd || id == n.column) {
			return true
		}
		if n.op == opFilter {
			for _, c := range conjuncts(n.cond) {
				if b.rejectsNull(c, map[int]bool{id: true}) {
					return true
				}
			}
		}
		for _, c := range n.in[0].out() {
			if c == id {
				return b.notNullCol(n.in[0], id)
			}
		}
	case opJoin, opApply, opAsof, opTemporal:
		for side, in := range n.in {
			for _, c := range in.out() {
				if c != id {
					continue
				}
				padded := n.jtype == plan.Full || n.jtype == plan.Left && side == 1 || n.jtype == plan.Right && side == 0
				return !padded && b.notNullCol(in, id)
			}
		}
	}
	return false
}

func isCount(fn string) bool {
	return len(fn) >= 6 && fn[:6] == "count(" || len(fn) >= 11 && fn[:11] == "regr_count("
}
