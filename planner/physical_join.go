package planner

import (
	"slices"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// joinKey is a pair of expressions whose equality joins.
type joinKey struct {
	l, r     *expr.Expr
	nullSafe bool
}

// joinKeys takes the equalities between the sides out of a condition.
func (ph *physical) joinKeys(cond *expr.Expr, l, r map[int]bool) (keys []joinKey, rest []*expr.Expr) {
	for _, c := range conjuncts(cond) {
		k, ok := ph.joinKey(c, l, r)
		if !ok || ph.o.off(ruleJoinKeys) {
			rest = append(rest, c)
			continue
		}
		dup := false
		for _, o := range keys {
			dup = dup || o.nullSafe == k.nullSafe && sameExpr(o.l, k.l) && sameExpr(o.r, k.r)
		}
		if !dup {
			keys = append(keys, k)
		}
	}
	if len(keys) > 0 {
		ph.o.fire(ruleJoinKeys)
	}
	return keys, rest
}

func (ph *physical) joinKey(c *expr.Expr, l, r map[int]bool) (joinKey, bool) {
	k := joinKey{}
	switch {
	case ph.o.equality(c):
	case c.Kind == expr.Not && c.Args[0].Kind == expr.Distinct:
		c, k.nullSafe = c.Args[0], true
	default:
		return k, false
	}
	if ph.b.volatileExpr(c) {
		return k, false
	}
	var ok bool
	if k.l, k.r, _, ok = across(c, l, r); !ok {
		return k, false
	}
	// Hashing needs one type on both sides whose equality is the operator's.
	t, ok := hashType(k.l.Type.OID, k.r.Type.OID)
	if !ok {
		return k, false
	}
	var err error
	if k.l, err = ph.b.reg.Cast(k.l, types.T(t), functions.Implicit); err != nil {
		return k, false
	}
	if k.r, err = ph.b.reg.Cast(k.r, types.T(t), functions.Implicit); err != nil {
		return k, false
	}
	return k, true
}

// onSide reports whether e uses columns, all of them in set.
func onSide(e *expr.Expr, set map[int]bool) bool {
	some, all := refs(e, set)
	return some && all
}

// across returns the two operands of e, that of the left side of a join first; turned: they are written the other way round. It is false when they are not of one side each.
func across(e *expr.Expr, l, r map[int]bool) (x, y *expr.Expr, turned, ok bool) {
	x, y = e.Args[0], e.Args[1]
	switch {
	case onSide(x, l) && onSide(y, r):
		return x, y, false, true
	case onSide(x, r) && onSide(y, l):
		return y, x, true, true
	}
	return nil, nil, false, false
}

// compares takes a comparison of one side of a join with the other apart, as if the left one were written first. The operator of other conditions is "".
func (o *optimizer) compares(c *expr.Expr, l, r map[int]bool) (x, y *expr.Expr, op string) {
	if op = o.comparison(c); op == "" {
		return nil, nil, ""
	}
	x, y, turned, ok := across(c, l, r)
	switch {
	case !ok:
		return nil, nil, ""
	case turned:
		op = turnedComparison[op]
	}
	return x, y, op
}

// ordersAlike reports whether values of two types can be brought to one whose order is that of the comparison.
func ordersAlike(a, c types.Type) bool {
	_, ok := hashType(a.OID, c.OID)
	return ok
}

func hashType(a, c types.OID) (types.OID, bool) {
	rank := func(o types.OID) int {
		switch o {
		case types.OIDInt2:
			return 1
		case types.OIDInt4:
			return 2
		case types.OIDInt8:
			return 3
		case types.OIDFloat4:
			return 11
		case types.OIDFloat8:
			return 12
		}
		return 0
	}
	switch x, y := rank(a), rank(c); {
	case a == c:
		return a, orderable(types.T(a)) && a != types.OIDRecord
	case textual(a) && textual(c):
		return types.OIDText, true
	case x == 0 || y == 0 || (x > 10) != (y > 10):
		return 0, false
	case x > y:
		return a, true
	default:
		return c, true
	}
}

func (ph *physical) join(n *node, want, need map[int]bool) *phys {
	keys, rest := ph.joinKeys(n.cond, toSet(n.in[0].out()), toSet(n.in[1].out()))
	if p := ph.lookupJoin(n, keys, rest, want, need); p != nil {
		return p
	}
	l, r := ph.build(n.in[0], need), ph.build(n.in[1], need)
	below := n.placed.built(l, r)
	var wanted *lifted
	l, r, wanted = ph.lift(n, l, r, keys)
	if len(keys) == 0 {
		if p := ph.dynamicFilter(n, l, r, rest, want, need); p != nil {
			return p
		}
	}
	rng, rest := ph.joinRange(rest, l, r)
	var lk, rk []int
	l, lk = ph.keyColumns(l, keys, func(k joinKey) *expr.Expr { return k.l })
	r, rk = ph.keyColumns(r, keys, func(k joinKey) *expr.Expr { return k.r })
	var lc, rc [2]int
	keep := union(need, lk, rk, below)
	if wanted != nil {
		wanted.cond.Columns(keep)
	}
	if rng != nil {
		l, lc = ph.rangeColumns(l, rng, func(b *joinBound) *expr.Expr { return b.l })
		r, rc = ph.rangeColumns(r, rng, func(b *joinBound) *expr.Expr { return b.r })
		keep = union(keep, lc[:], rc[:])
	}
	if n.jtype == plan.Full {
		l, r = ph.markPadded(l), ph.markPadded(r)
	}
	if !arrange(l, lk, rk, keys) {
		arrange(r, rk, lk, keys)
	}
	if len(keys) == 0 && rng == nil {
		ph.noteAllPairs(n, l, r)
	}
	var spread *plan.JoinSpread
	timed := rng != nil && ph.rangeExpires(l, r, lc, rc) // keeps what later rows can meet only
	if len(keys) == 0 {
		if !timed {
			l, r = ph.expireByKey(l, keep), ph.expireByKey(r, keep)
		}
		l, r, spread = ph.spread(n.jtype, l, r, keep)
	} else {
		l, r = ph.coPartition(l, r, lk, rk, keep)
		if !timed {
			l, r = ph.expire(l, nil, lk), ph.expire(r, nil, rk)
		}
	}
	semi := n.jtype == plan.Semi || n.jtype == plan.Anti

	all := appendAll(l.ids, r.ids)
	key := ph.joinedKey(n.jtype, l, r, lk, rk, keys)
	visible := all
	if semi {
		visible = l.ids
	}
	key, inKey := ph.placedKey(n, key)
	out, pos := joinOutput(visible, want, inKey)
	p := ph.node(plan.KindJoin, out, key, l, r)
	j := &plan.Join{Type: n.jtype, LeftKeys: l.positions(lk), RightKeys: r.positions(rk), NullSafe: nullSafe(keys), Output: pos, Spread: spread}
	j.CloseKey = ph.closeKey(l, r, lk, rk)
	if rng != nil {
		j.Range = ph.rangeOf(rng, l, r, lc, rc, all)
		j.Range.Expire = j.Range.Expire && j.CloseKey == nil
	}
	if cond := and(rest...); cond != nil {
		j.Residual = ph.exprOver(cheapFirst(cond), all)
	}
	j.Once = ph.once(n.jtype, l, r, lk, rk, keys)
	if wanted != nil {
		j.Wanted = &plan.JoinWanted{Side: wanted.side, Cond: ph.expr(cheapFirst(wanted.cond), []*phys{l, r}[wanted.side])}
	}
	ph.lookups(n, j, keys, [2]*phys{l, r})
	j.KeepNulls = ph.b.stream && j.Pads() && !j.Closes()
	p.n.Join = j
	ph.joinProperties(p, n.jtype, l, r, lk, rk)
	return ph.seal(p)
}

// joinOutput picks the columns that a join gives: wanted ones and those of its key, one at least. Their positions are nil when it gives all.
func joinOutput(all []int, want, key map[int]bool) (out, pos []int) {
	for i, id := range all {
		if want[id] || key[id] {
			out, pos = append(out, id), append(pos, i)
		}
	}
	if len(out) == 0 {
		out, pos = all[:1], []int{0}
	}
	if len(out) == len(all) {
		pos = nil
	}
	return out, pos
}

// nullSafe tells which keys match NULL with NULL, nil when none does.
func nullSafe(keys []joinKey) []bool {
	var out []bool
	for i, k := range keys {
		if k.nullSafe {
			if out == nil {
				out = make([]bool, len(keys))
			}
			out[i] = true
		}
	}
	return out
}

// keyColumns makes the key expressions of one side columns.
func (ph *physical) keyColumns(p *phys, keys []joinKey, side func(joinKey) *expr.Expr) (*phys, []int) {
	pre := &preparer{b: ph.b}
	var out []int
	for _, k := range keys {
		out = append(out, pre.col(side(k)))
	}
	return ph.compute(p, pre.ids, pre.exprs), out
}

// markPadded makes sure that the key of a full join's side has a column that is NULL only in padded rows: otherwise a padded left
// row and a padded right row whose own keys are NULL could not be told apart.
func (ph *physical) markPadded(p *phys) *phys {
	for _, k := range p.key {
		if p.nn[k] {
			return p
		}
	}
	id := ph.md.add("?present?", types.Bool)
	q := ph.compute(p, []int{id}, []*expr.Expr{boolConst(true)})
	q.key = append(append([]int(nil), q.key...), id)
	return ph.seal(q)
}

// joinedKey is the stream key of a join: both keys, or one side's when the other side has at most one partner for each row.
func (ph *physical) joinedKey(t plan.JoinType, l, r *phys, lk, rk []int, keys []joinKey) []int {
	switch {
	case t == plan.Semi || t == plan.Anti:
		return l.key
	case t == plan.Left && ph.fixes(r.key, rk, keys, func(k joinKey) *expr.Expr { return k.r }):
		return l.key
	case t == plan.Right && ph.fixes(l.key, lk, keys, func(k joinKey) *expr.Expr { return k.l }):
		return r.key
	case t == plan.Inner:
		return ph.innerKey(l.key, r.key, lk, rk, keys)
	}
	return appendAll(l.key, r.key)
}

// innerKey is the key of an inner join of sides with the given keys.
func (ph *physical) innerKey(l, r, lk, rk []int, keys []joinKey) []int {
	switch {
	case ph.fixes(r, rk, keys, func(k joinKey) *expr.Expr { return k.r }):
		return l
	case ph.fixes(l, lk, keys, func(k joinKey) *expr.Expr { return k.l }):
		return r
	}
	return appendAll(l, r)
}

// once returns the sides of a join whose rows need not be kept once they have met a partner (see plan.Join.Once).
func (ph *physical) once(t plan.JoinType, l, r *phys, lk, rk []int, keys []joinKey) []int {
	if t != plan.Inner || len(keys) == 0 || ph.sub != nil || !l.app || !r.app || ph.o.off(ruleJoinOnce) {
		return nil
	}
	var sides []int
	if ph.fixes(r.key, rk, keys, func(k joinKey) *expr.Expr { return k.r }) {
		sides = append(sides, 0)
	}
	if ph.fixes(l.key, lk, keys, func(k joinKey) *expr.Expr { return k.l }) {
		sides = append(sides, 1)
	}
	if sides != nil {
		ph.o.fire(ruleJoinOnce)
	}
	return sides
}

// lifted is a filter that became a condition of a join (see plan.Join.Wanted).
type lifted struct {
	side int
	cond *expr.Expr
}

// lift takes the filter off an input that has at most one row for each value of the join keys, if that is worth it: rows of the other input whose partner the
// filter drops would be kept for ever, which are more than it drops where that input is larger. It returns the inputs.
func (ph *physical) lift(n *node, l, r *phys, keys []joinKey) (*phys, *phys, *lifted) {
	if ph.expires() || !ph.b.stream {
		return l, r, nil
	}
	ins := [2]*phys{l, r}
	for _, other := range ph.once(n.jtype, l, r, nil, nil, keys) {
		side := 1 - other
		p := ins[side]
		rows := storedRows(n.in[side])
		if p.n.Kind != plan.KindFilter || rows == 0 || storedRows(n.in[other]) < liftShare*rows {
			continue
		}
		x := &lifted{side: side, cond: mapCols(p.n.Filter.Cond, func(c int) int { return p.ids[c] })}
		if mayFail(x.cond) || ph.b.volatileExpr(x.cond) {
			continue
		}
		in := *p
		in.n = p.n.Inputs[0]
		ins[side] = &in
		return ins[0], ins[1], x
	}
	return l, r, nil
}

// liftShare is how many times as many rows the other input of a join must have for a filter to become a condition of the join.
const liftShare = 4

// storedRows is how many rows the one relation has that a tree reads, 0 when that is not known.
func storedRows(n *node) int64 {
	for n.op == opFilter || n.op == opProject || n.op == opWatermark {
		n = n.in[0]
	}
	if n.op != opSource && n.op != opScan {
		return 0
	}
	return n.rel.Rows
}

// fixes reports whether the equalities give values to all of a side's key: a row of the other side has at most one partner.
func (ph *physical) fixes(key, cols []int, keys []joinKey, side func(joinKey) *expr.Expr) bool {
	set := toSet(ph.fixed(cols, keys, side))
	return !slices.ContainsFunc(key, func(k int) bool { return !set[k] })
}

// fixed returns the key columns of a side and the columns that follow from them: those under a widening conversion.
func (ph *physical) fixed(cols []int, keys []joinKey, side func(joinKey) *expr.Expr) []int {
	out := append([]int(nil), cols...)
	for _, k := range keys {
		if e := ph.widened(side(k)); e.Kind == expr.Column {
			out = append(out, e.Col)
		}
	}
	return out
}

// widened returns what e converts without making different values equal. Other functions of one argument between such types are none of that.
func (ph *physical) widened(e *expr.Expr) *expr.Expr { return widened(ph.b.reg, e) }

func widened(reg *functions.Registry, e *expr.Expr) *expr.Expr {
	for e.Kind == expr.Call && len(e.Args) == 1 && widening(e.Args[0].Type.OID, e.Type.OID) {
		c, err := reg.Cast(e.Args[0], types.T(e.Type.OID), functions.Implicit)
		if e.Func != expr.Retype && (err != nil || !sameExpr(c, e)) {
			break
		}
		e = e.Args[0]
	}
	return e
}

// widening reports whether converting from one type to the other keeps different values different.
func widening(from, to types.OID) bool {
	if from == to || textual(from) && textual(to) {
		return true
	}
	t, ok := hashType(from, to)
	return ok && t == to
}

// closeKey returns the key by which a join of a view that emits when windows close can forget: a window column with a watermark on both
// sides.
func (ph *physical) closeKey(l, r *phys, lk, rk []int) *int {
	if !ph.b.o.EmitOnClose {
		return nil
	}
	for i := range lk {
		if l.wm[lk[i]] && r.wm[rk[i]] && ph.md.cols[lk[i]].window != 0 && ph.md.cols[rk[i]].window != 0 {
			return &i
		}
	}
	return nil
}

func (ph *physical) joinProperties(p *phys, t plan.JoinType, l, r *phys, lk, rk []int) {
	padL, padR := t == plan.Right || t == plan.Full, t == plan.Left || t == plan.Full
	for _, id := range p.ids {
		switch {
		case l.has(id):
			p.nn[id] = l.nn[id] && !padL
		default:
			p.nn[id] = r.nn[id] && !padR
		}
	}
	// A watermark survives on keys that carry one on both sides: older rows find no partner any more.
	for i := range lk {
		if l.wm[lk[i]] && r.wm[rk[i]] && t == plan.Inner {
			p.wm[lk[i]], p.wm[rk[i]] = true, true
		}
	}
	p.app = (t == plan.Inner || t == plan.Semi) && l.app && r.app
	if p.n.Join.CloseKey != nil {
		// Nothing is padded before its window closes, so nothing is taken back, and the watermark stays true of columns never padded.
		p.app = l.app && r.app
		for i := range lk {
			if l.wm[lk[i]] && r.wm[rk[i]] {
				p.wm[lk[i]], p.wm[rk[i]] = !padL, !padR && t != plan.Semi && t != plan.Anti
			}
		}
	}
	if rng := p.n.Join.Range; rng != nil && rng.Expire {
		x, y := l.ids[rng.Lower.Left], r.ids[rng.Lower.Right]
		p.wm[x], p.wm[y] = !padL, !padR && t != plan.Semi && t != plan.Anti
		p.app = p.app || rng.OnClose
	}
	if l.dist == distSingle && (r.dist == distSingle || !ph.cut) {
		p.dist = distSingle
		return
	}
	of := l
	if j := p.n.Join; j.Spread != nil {
		of = []*phys{l, r}[j.Spread.Side]
	}
	if of.dist == distHash {
		switch {
		case of == r || !padL:
			p.spreadAs(of)
		case t == plan.Right && r.dist == distHash:
			p.spreadAs(r)
		}
	}
}

// coPartition brings rows that may join into the same subtask.
func (ph *physical) coPartition(l, r *phys, lk, rk []int, need map[int]bool) (*phys, *phys) {
	if !ph.cut {
		return l, r
	}
	if len(lk) == 0 {
		return ph.require(l, distSingle, nil, need), ph.require(r, distSingle, nil, need)
	}
	if l.dist == distSingle && r.dist == distSingle {
		return l, r
	}
	return ph.hashExactly(l, lk, need), ph.hashExactly(r, rk, need)
}

// spread brings the rows of a join without keys into several subtasks, where its type allows that: those of one side are spread, each subtask has all
// of the other side.
func (ph *physical) spread(t plan.JoinType, l, r *phys, need map[int]bool) (*phys, *phys, *plan.JoinSpread) {
	if !ph.cut || l.dist == distSingle && r.dist == distSingle {
		return l, r, nil
	}
	side := 0 // whose rows decide what is output
	if t == plan.Right || t == plan.Inner && len(l.key) == 0 {
		side = 1
	}
	sides := []*phys{l, r}
	of := sides[side]
	if t == plan.Full || len(of.key) == 0 || ph.o.off(ruleBroadcastJoin) {
		l, r = ph.coPartition(l, r, nil, nil, need)
		return l, r, nil
	}
	if of.dist != distHash {
		of = ph.exchange(ph.slim(of, need), plan.DistHash, of.key)
	}
	sides[side] = of
	sides[1-side] = ph.exchange(ph.slim(sides[1-side], need), plan.DistBroadcast, nil)
	ph.o.fire(ruleBroadcastJoin)
	return sides[0], sides[1], &plan.JoinSpread{Side: side, Columns: of.positions(of.cols)}
}

// noteAllPairs tells who creates a view with a join that has nothing to find rows by.
func (ph *physical) noteAllPairs(n *node, l, r *phys) {
	few := func(p *phys) bool {
		x := p.n
		for len(x.Inputs) == 1 && (x.Kind == plan.KindProject || x.Kind == plan.KindFilter) {
			x = x.Inputs[0]
		}
		return len(p.key) == 0 || x.Kind == plan.KindValues
	}
	if !ph.b.stream || few(l) || few(r) {
		return
	}
	what := "a join has no condition that finds rows: each row of one side is compared with every row of the other side"
	for _, x := range ph.notices {
		if x.Message == what {
			return
		}
	}
	e := pgerr.Newf(pgerr.SuccessfulCompletion, "%s", what).
		WithHint("An equality of expressions of the two sides, or a comparison (<, <=, >, >=, BETWEEN) of an expression of one side with one of the other, would find them.")
	if n.cond != nil && n.cond.Pos >= 0 {
		e = e.At(n.cond.Pos)
	}
	e.Severity = "NOTICE"
	ph.notices = append(ph.notices, e)
}

// arrange puts the keys of a join into the order by which the rows of p are spread already, if they are spread by these columns. mine
// are p's key columns, other those of the other side.
func arrange(p *phys, mine, other []int, keys []joinKey) bool {
	if p.dist != distHash || len(p.cols) != len(mine) || len(dedup(mine)) != len(mine) {
		return false
	}
	for _, c := range p.cols {
		if !slices.Contains(mine, c) {
			return false
		}
	}
	for i, c := range p.cols {
		j := slices.Index(mine, c)
		mine[i], mine[j] = mine[j], mine[i]
		other[i], other[j] = other[j], other[i]
		keys[i], keys[j] = keys[j], keys[i]
	}
	return true
}

// hashExactly spreads p by exactly these columns in this order.
func (ph *physical) hashExactly(p *phys, cols []int, need map[int]bool) *phys {
	if p.dist == distHash && len(p.cols) == len(cols) {
		same := true
		for i := range cols {
			same = same && p.cols[i] == cols[i]
		}
		if same {
			return p
		}
	}
	return ph.exchange(ph.slim(p, need), plan.DistHash, cols)
}

func union(set map[int]bool, lists ...[]int) map[int]bool {
	out := copySet(set)
	for _, l := range lists {
		for _, c := range l {
			out[c] = true
		}
	}
	return out
}
