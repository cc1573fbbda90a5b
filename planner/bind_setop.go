package planner

import (
	"slices"

	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

func (b *binder) values(v *pgext.Values, ev *env, keepUnknown bool) (*bound, error) {
	width := len(v.Rows[0])
	rows := make([][]*expr.Expr, len(v.Rows))
	x := &exprCtx{b: b, sc: ev.outer, ev: ev, clause: "VALUES"}
	if x.sc == nil {
		x.sc = &scope{}
	}
	for i, r := range v.Rows {
		if len(r) != width {
			return nil, pgerr.Newf(pgerr.SyntaxError, "VALUES lists must all be the same length").At(b.pos(r[0].OriginTextPosition()))
		}
		for _, e := range r {
			if d, ok := pgext.ExprOf(e).(*pgext.Default); ok {
				return nil, pgerr.Newf(pgerr.SyntaxError, "DEFAULT is not allowed in this context").At(b.pos(d.Pos))
			}
			c, err := x.bind(e)
			if err != nil {
				return nil, err
			}
			rows[i] = append(rows[i], c)
		}
	}
	r := &bound{}
	ids := make([]int, width)
	for j := range width {
		ts := make([]types.Type, len(rows))
		for i := range rows {
			ts[i] = rows[i][j].Type
		}
		t := types.Unknown
		if !keepUnknown || !allUnknown(ts) {
			var err error
			if t, err = b.commonType("VALUES", column(rows, j)); err != nil {
				return nil, err
			}
			for i := range rows {
				if rows[i][j], err = b.cast(rows[i][j], t, functions.Implicit); err != nil {
					return nil, err
				}
			}
		}
		name := "column" + itoa(j+1)
		ids[j] = b.md.add(name, t)
		b.keepShape(ids[j], rows[0][j])
		r.cols = append(r.cols, outCol{name, ids[j]})
	}
	r.n = b.valuesNode(rows, ids, x.applies)
	return r, nil
}

func column(rows [][]*expr.Expr, j int) []*expr.Expr {
	out := make([]*expr.Expr, len(rows))
	for i := range rows {
		out[i] = rows[i][j]
	}
	return out
}

func allUnknown(ts []types.Type) bool {
	for _, t := range ts {
		if t.OID != types.OIDUnknown {
			return false
		}
	}
	return true
}

// valuesNode builds the rows; those that read outer columns or subqueries become projections.
func (b *binder) valuesNode(rows [][]*expr.Expr, ids []int, applies []apply) *node {
	used := map[int]bool{}
	for _, r := range rows {
		for _, e := range r {
			e.Columns(used)
		}
	}
	if len(used) == 0 && len(applies) == 0 {
		return &node{op: opValues, cols: ids, rows: rows}
	}
	if len(rows) == 1 {
		return &node{op: opProject, in: []*node{b.attach(b.md.dual(), applies)}, cols: ids, exprs: rows[0]}
	}
	u := &node{op: opUnion, cols: ids}
	for _, r := range rows {
		mine := make([]int, len(ids))
		rowUses := map[int]bool{}
		for j, id := range ids {
			mine[j] = b.md.add(b.md.cols[id].name, b.md.typ(id))
			r[j].Columns(rowUses)
		}
		var own []apply
		for _, a := range applies {
			if a.usedBy(rowUses) {
				own = append(own, a)
			}
		}
		u.in = append(u.in, &node{op: opProject, in: []*node{b.attach(b.md.dual(), own)}, cols: mine, exprs: r})
		u.branches = append(u.branches, mine)
	}
	return u
}

// setOp binds UNION, INTERSECT and EXCEPT. A chain of them is not nested, however long: its operands are bound one after the other.
func (b *binder) setOp(s *pgext.SetOp, ev *env, keepUnknown bool) (*bound, error) {
	chain := []*pgext.SetOp{s}
	for q := s.Left; q.SetOp != nil && q.With == nil && q.OrderBy == nil && q.Limit == nil && q.Locks == nil; q = q.SetOp.Left {
		chain = append(chain, q.SetOp)
	}
	slices.Reverse(chain)
	l, err := b.query(chain[0].Left, ev, true)
	if err != nil {
		return nil, err
	}
	for i, s := range chain {
		r, err := b.query(s.Right, ev, true)
		if err != nil {
			return nil, err
		}
		last := i == len(chain)-1
		if l, err = b.combine(s, l, r, keepUnknown || !last); err != nil {
			return nil, err
		}
		if !last {
			if err = b.settle(l); err != nil {
				return nil, err
			}
		}
	}
	return l, nil
}

// combine binds one set operation. Unions of unions become one.
func (b *binder) combine(s *pgext.SetOp, l, r *bound, keepUnknown bool) (*bound, error) {
	name := [...]string{"UNION", "EXCEPT", "INTERSECT"}[s.Kind]
	if len(l.cols) != len(r.cols) {
		return nil, pgerr.Newf(pgerr.SyntaxError, "each %s query must have the same number of columns", name).At(b.pos(columnPos(s.Right, 0)))
	}
	out := &bound{}
	for i := range l.cols {
		a, c := b.md.typ(l.cols[i].id), b.md.typ(r.cols[i].id)
		t, err := b.reg.CommonType(name, []types.Type{a, c})
		if err != nil {
			return nil, pgerr.From(err).At(b.pos(columnPos(s.Right, i)))
		}
		if keepUnknown && allUnknown([]types.Type{a, c}) && s.All && s.Kind == pgext.Union {
			t = types.Text
		}
		if err = b.coerceOutput(l, i, t, functions.Implicit); err != nil {
			return nil, err
		}
		if err = b.coerceOutput(r, i, t, functions.Implicit); err != nil {
			return nil, err
		}
		if !(s.All && s.Kind == pgext.Union) && !orderable(t) {
			return nil, pgerr.Newf(pgerr.UndefinedFunction, "could not identify an equality operator for type %s", b.reg.TypeName(t.OID)).At(b.pos(columnPos(s.Left, i)))
		}
		id := b.md.add(l.cols[i].name, t)
		b.md.cols[id].shape = b.md.cols[l.cols[i].id].shape
		out.cols = append(out.cols, outCol{l.cols[i].name, id})
	}
	lids, rids, ids := colIDs(l.cols), colIDs(r.cols), colIDs(out.cols)
	if s.Kind != pgext.Union {
		out.n = b.countedSetOp(s, l.n, r.n, lids, rids, ids)
		return out, nil
	}
	u := unionOf(l.n, lids, s.All)
	if u == nil {
		u = &node{op: opUnion, in: []*node{l.n}, cols: ids, branches: [][]int{lids}}
	} else {
		out.cols, ids = l.cols, lids
	}
	if v := unionOf(r.n, rids, s.All); v == nil {
		u.in, u.branches = append(u.in, r.n), append(u.branches, rids)
	} else {
		u.in, u.branches = append(u.in, v.in...), append(u.branches, v.branches...)
	}
	if out.n = u; !s.All {
		out.n = &node{op: opAgg, in: []*node{u}, group: ids}
	}
	return out, nil
}

// unionOf returns the union that n is, for one that keeps duplicates or does not to have its branches; nil when n is none.
func unionOf(n *node, ids []int, all bool) *node {
	if !all && n.op == opAgg && len(n.aggs) == 0 && slices.Equal(n.group, ids) {
		n = n.in[0] // duplicates are removed once, on top
	}
	if n.op == opUnion && slices.Equal(n.cols, ids) {
		return n
	}
	return nil
}

// countedSetOp computes INTERSECT and EXCEPT [ALL]: both branches are tagged, united and counted per distinct row.
func (b *binder) countedSetOp(s *pgext.SetOp, l, r *node, lids, rids, ids []int) *node {
	side := func(n *node, ids []int, left bool) (*node, []int) {
		a, c := b.md.add("?left?", types.Bool), b.md.add("?right?", types.Bool)
		p := b.md.narrow(n, dedup(ids))
		p.cols = append(p.cols, a, c)
		p.exprs = append(p.exprs, boolConst(left), boolConst(!left))
		return p, append(append([]int(nil), ids...), a, c)
	}
	ln, lc := side(l, lids, true)
	rn, rc := side(r, rids, false)
	isL, isR := b.md.add("?left?", types.Bool), b.md.add("?right?", types.Bool)
	u := &node{op: opUnion, in: []*node{ln, rn}, cols: append(append([]int(nil), ids...), isL, isR), branches: [][]int{lc, rc}}
	count := b.countFunc()
	cl, cr := b.md.add("?count_left?", types.Int8), b.md.add("?count_right?", types.Int8)
	agg := &node{op: opAgg, in: []*node{u}, group: append([]int(nil), ids...), aggs: []aggCall{
		{id: cl, fn: count, filter: isL, typ: types.Int8}, {id: cr, fn: count, filter: isR, typ: types.Int8},
	}}
	nl, nr := b.md.ref(cl), b.md.ref(cr)
	zero := intConst(types.Int8, 0)
	if !s.All {
		second := b.mustOp(">", nr, zero)
		if s.Kind == pgext.Except {
			second = b.mustOp("=", nr, zero)
		}
		return b.md.narrow(filterNode(agg, and(b.mustOp(">", nl, zero), second)), ids)
	}
	copies := &expr.Expr{Kind: expr.Least, Type: types.Int8, Args: []*expr.Expr{nl, nr}, Pos: -1}
	if s.Kind == pgext.Except {
		copies = b.mustOp("-", nl, nr)
	}
	cnt := b.md.add("?copies?", types.Int8)
	n := filterNode(b.md.extend(agg, []int{cnt}, []*expr.Expr{copies}), b.mustOp(">", b.md.ref(cnt), zero))
	series, err := b.call("generate_series", []*expr.Expr{intConst(types.Int8, 1), b.md.ref(cnt)}, -1)
	if err != nil {
		b.fail(err)
	}
	un := &node{op: opUnnest, in: []*node{n}, calls: []*expr.Expr{series}, added: []int{b.md.add("?copy?", types.Int8)}, ordinal: b.md.add("?ordinal?", types.Int8)}
	return b.md.narrow(un, ids)
}

// orderOutput adds the ORDER BY and LIMIT of a set operation or VALUES: only output columns can be named.
func (b *binder) orderOutput(q *pgext.Query, r *bound, ev *env) error {
	var keys []sortKey
	for _, k := range q.OrderBy {
		if k.Ordinal != 0 {
			if k.Ordinal < 1 || k.Ordinal > len(r.cols) {
				return pgerr.Newf(pgerr.InvalidColumnReference, "ORDER BY position %d is not in select list", k.Ordinal).At(b.pos(k.Pos))
			}
			sk, err := b.sortKey(k, r.cols[k.Ordinal-1].id)
			if err != nil {
				return err
			}
			keys = append(keys, sk)
			continue
		}
		c, ok := pgext.ExprOf(k.X).(*pgext.Column)
		found := 0
		if ok && len(c.Names) == 1 {
			for _, o := range r.cols {
				if o.name == c.Names[0] && found == 0 {
					found = o.id
				}
			}
		}
		if found == 0 && q.Values != nil {
			sc := &scope{parent: ev.outer}
			t := &rangeTable{name: "*VALUES*"}
			for _, o := range r.cols {
				t.cols = append(t.cols, scopeCol(o))
			}
			sc.tables, sc.visible = []*rangeTable{t}, t.cols
			x := &exprCtx{b: b, sc: sc, ev: ev, clause: "ORDER BY"}
			e, err := x.bind(k.X)
			if err != nil {
				return err
			}
			found = b.md.add("?sort?", e.Type)
			r.n = b.md.extend(b.attach(r.n, x.applies), []int{found}, []*expr.Expr{e})
		}
		if found == 0 {
			if ok && len(c.Names) == 1 {
				return pgerr.Newf(pgerr.UndefinedColumn, "column \"%s\" does not exist", c.Names[0]).At(b.pos(c.Pos))
			}
			return pgerr.Newf(pgerr.FeatureNotSupported, "invalid UNION/INTERSECT/EXCEPT ORDER BY clause").
				WithDetail("Only result column names can be used, not expressions or functions.").
				WithHint("Add the expression/function to every SELECT, or move the UNION into a FROM clause.").At(b.pos(firstPos(k.X)))
		}
		sk, err := b.sortKey(k, found)
		if err != nil {
			return err
		}
		keys = append(keys, sk)
	}
	if err := b.settle(r); err != nil {
		return err
	}
	return b.limit(q, r, keys, &scope{parent: ev.outer}, ev)
}

// limit puts the ordering and the limit on top of r. An order without a limit matters in one-shot queries only. sc is what the query's
// expressions see: the limit must not.
func (b *binder) limit(q *pgext.Query, r *bound, keys []sortKey, sc *scope, ev *env) error {
	r.order = keys
	if q.Limit == nil || q.Limit.Count == nil && q.Limit.Offset == nil {
		if len(keys) > 0 && !b.stream {
			r.n = &node{op: opTopN, in: []*node{r.n}, order: keys}
		}
		return nil
	}
	n := &node{op: opTopN, in: []*node{r.n}, order: keys, withTies: q.Limit.WithTies}
	if n.withTies && len(keys) == 0 {
		return pgerr.Newf(pgerr.SyntaxError, "WITH TIES cannot be specified without ORDER BY clause").At(b.pos(q.Limit.Pos))
	}
	var err error
	var applies []apply
	if n.limit, err = b.limitExpr("LIMIT", q.Limit.Count, sc, ev, &applies); err != nil {
		return err
	}
	if n.offset, err = b.limitExpr("OFFSET", q.Limit.Offset, sc, ev, &applies); err != nil {
		return err
	}
	if len(applies) > 0 {
		return b.computedLimit(n, r, applies)
	}
	r.n = n
	return nil
}

// computedLimit is a limit that subqueries compute: the rows are numbered, and those whose numbers are in the range stay.
func (b *binder) computedLimit(n *node, r *bound, applies []apply) error {
	name := "row_number"
	if n.withTies {
		name = "rank"
	}
	res, err := b.reg.ResolveFunction(name, nil)
	if err != nil {
		return err
	}
	cols := r.n.out()
	over := func(in *node, fn string) (*node, *expr.Expr) {
		id := b.md.add("?row?", types.Int8)
		frame := plan.Frame{Mode: plan.FrameRange, Start: plan.Bound{Kind: plan.UnboundedPreceding}, End: plan.Bound{Kind: plan.CurrentRow}}
		return &node{op: opOver, in: []*node{in}, order: n.order, over: []overCall{{id: id, fn: fn, frame: frame, typ: types.Int8}}}, b.md.ref(id)
	}
	numbered, row := over(r.n, res.Func.ID)
	first := row
	if n.withTies && n.offset != nil {
		number, err := b.reg.ResolveFunction("row_number", nil)
		if err != nil {
			return err
		}
		numbered, first = over(numbered, number.Func.ID)
	}
	skip := intConst(types.Int8, 0)
	var conds []*expr.Expr
	if n.offset != nil {
		checked, err := b.call("$offset", []*expr.Expr{n.offset}, -1)
		if err != nil {
			return err
		}
		skip = coalesce(checked, skip)
		conds = append(conds, b.mustOp(">", first, skip))
	}
	if n.limit != nil {
		// LIMIT NULL is no limit.
		checked, err := b.call("$limit", []*expr.Expr{n.limit}, -1)
		if err != nil {
			return err
		}
		most := b.mustOp("+", skip, checked)
		conds = append(conds, coalesce(b.mustOp("<=", row, most), boolConst(true)))
	}
	r.n = b.md.narrow(filterNode(b.attach(numbered, applies), and(conds...)), cols)
	if len(n.order) > 0 && !b.stream {
		r.n = &node{op: opTopN, in: []*node{r.n}, order: n.order}
	}
	return nil
}

func (b *binder) limitExpr(what string, e ast.ExprNode, sc *scope, ev *env, applies *[]apply) (*expr.Expr, error) {
	if e == nil {
		return nil, nil
	}
	x := &exprCtx{b: b, sc: sc, ev: ev, clause: what}
	c, err := x.bind(e)
	if err != nil {
		return nil, err
	}
	used := map[int]bool{}
	c.Columns(used)
	inner := false
	for _, a := range x.applies {
		for _, id := range a.right.out() {
			delete(used, id)
		}
		inner = inner || sc.holds(freeCols(a.right)) || a.cond != nil
	}
	*applies = append(*applies, x.applies...)
	if len(used) > 0 || inner {
		pos := leftmost(c)
		c.Walk(func(v *expr.Expr) bool {
			if v.Kind == expr.Column && used[v.Col] && pos < v.Pos {
				pos = v.Pos
			}
			return true
		})
		return nil, pgerr.Newf(pgerr.InvalidColumnReference, "argument of %s must not contain variables", what).At(pos)
	}
	if c.Type.OID != types.OIDUnknown && !b.reg.CanCast(c.Type, types.Int8, functions.Assignment) {
		return nil, pgerr.Newf(pgerr.DatatypeMismatch, "argument of %s must be type bigint, not type %s", what, types.T(c.Type.OID)).At(leftmost(c))
	}
	if c, err = b.cast(c, types.Int8, functions.Assignment); err != nil {
		return nil, err
	}
	c = b.fold(c)
	if c.Kind == expr.Const {
		if c.Const.Null {
			return nil, nil
		}
		if c.Const.Int < 0 {
			if what == "LIMIT" {
				return nil, pgerr.Newf(pgerr.InvalidRowCountInLimit, "LIMIT must not be negative")
			}
			return nil, pgerr.Newf(pgerr.InvalidRowCountInOffset, "OFFSET must not be negative")
		}
		if what == "OFFSET" && c.Const.Int == 0 {
			return nil, nil
		}
	}
	return c, nil
}

// firstPos is where the text of an unbound expression begins.
func firstPos(e ast.ExprNode) int {
	pos := e.OriginTextPosition()
	var first ast.ExprNode
	switch x := pgext.ExprOf(e).(type) {
	case *pgext.Op:
		first = x.Args[0]
	case *pgext.Cast:
		first = x.X
	}
	if first != nil {
		if p := firstPos(first); p >= 0 && p < pos {
			return p
		}
	}
	return pos
}
