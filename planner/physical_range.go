package planner

import (
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// joinBound is a comparison between the sides of a join: l >= r + offset, or with upper l <= r + offset. Cond is what the user wrote.
type joinBound struct {
	l, r   *expr.Expr
	offset int64
	upper  bool
	cond   *expr.Expr
}

// joinRange is what narrows the candidates of a join: a bound, or one from each end.
type joinRange struct{ lower, upper *joinBound }

// joinRange takes the comparisons that become a range out of the conditions of a join: a bound from each end before a single one, those on the same
// expression of a side before others, times with watermarks before all, then the first.
func (ph *physical) joinRange(conds []*expr.Expr, l, r *phys) (rng *joinRange, rest []*expr.Expr) {
	if ph.o.off(ruleRangeJoin) || !ph.b.stream && (len(l.key) == 0 || len(r.key) == 0) {
		return nil, conds // a single row is found without
	}
	lset, rset := toSet(l.ids), toSet(r.ids)
	var lower, upper []*joinBound
	for _, c := range conds {
		b, ok := ph.joinBound(c, lset, rset)
		switch {
		case !ok:
		case b.upper:
			upper = append(upper, b)
		default:
			lower = append(lower, b)
		}
	}
	best := -1
	for _, lo := range lower {
		for _, up := range upper {
			if wordType(lo.l.Type) != wordType(up.l.Type) {
				continue // orders have one form of keys
			}
			score := 0
			if sameExpr(lo.l, up.l) {
				score++
			}
			if sameExpr(lo.r, up.r) {
				score++
			}
			if score == 2 && marked(lo.l, l) && marked(lo.r, r) {
				score++
			}
			if score > best {
				best, rng = score, &joinRange{lo, up}
			}
		}
	}
	switch {
	case rng != nil:
	case len(lower) > 0:
		rng = &joinRange{lower: lower[0]}
	case len(upper) > 0:
		rng = &joinRange{upper: upper[0]}
	default:
		return nil, conds
	}
	for _, c := range conds {
		if rng.lower != nil && rng.lower.cond == c || rng.upper != nil && rng.upper.cond == c {
			continue
		}
		rest = append(rest, c)
	}
	ph.o.fire(ruleRangeJoin)
	return rng, rest
}

// marked reports whether e is a column with a watermark.
func marked(e *expr.Expr, p *phys) bool { return e.Kind == expr.Column && p.wm[e.Col] }

func wordType(t types.Type) bool {
	switch t.Kind() {
	case types.KindInt, types.KindFloat, types.KindBool:
		return true
	}
	return false
}

func (ph *physical) joinBound(c *expr.Expr, l, r map[int]bool) (*joinBound, bool) {
	x, y, op := ph.o.compares(c, l, r)
	if op == "" || op == "=" || ph.b.volatileExpr(c) || !ordersAlike(x.Type, y.Type) {
		return nil, false
	}
	b := &joinBound{cond: c, upper: op == "<" || op == "<="}
	var by int64
	b.l, by = shiftedTime(x)
	b.offset -= by
	b.r, by = shiftedTime(y)
	b.offset += by
	if !ph.plainExpr(b.l) || !ph.plainExpr(b.r) {
		return nil, false
	}
	// Widening conversions keep the order.
	b.l, b.r = ph.widened(b.l), ph.widened(b.r)
	return b, true
}

// plainExpr reports whether e may be computed for rows that other conditions would have kept from it: it does not fail, but for numbers out of range.
func (ph *physical) plainExpr(e *expr.Expr) bool {
	switch e.Kind {
	case expr.Column, expr.Const:
		return true
	case expr.Call:
	default:
		return false
	}
	for _, a := range e.Args {
		if !ph.plainExpr(a) {
			return false
		}
	}
	if f, ok := ph.b.reg.Function(e.Func); ok && f.Total {
		return true
	}
	if len(e.Args) == 1 {
		c, err := ph.b.reg.Cast(e.Args[0], e.Type, functions.Implicit)
		return err == nil && sameExpr(c, e)
	}
	for _, name := range []string{"+", "-", "*"} {
		if len(e.Args) != 2 {
			break
		}
		if r, err := ph.b.reg.ResolveOperator(name, e.Args[0].Type, e.Args[1].Type); err == nil && r.Func.ID == e.Func {
			return true
		}
	}
	return false
}

// maxShift bounds the constants that are taken out of a comparison, in µs: sums of two stay exact.
const maxShift = int64(1) << 60

// shiftedTime splits a time into one of the same type and a constant that is added, in µs. Months are of different lengths, days too where clocks
// are changed.
func shiftedTime(e *expr.Expr) (*expr.Expr, int64) {
	if e.Kind != expr.Call || len(e.Args) != 2 {
		return e, 0
	}
	of, by, sign := e.Args[0], e.Args[1], int64(1)
	days := false
	switch e.Func {
	case "timestamp_pl_interval(timestamp,interval)":
		days = true
	case "timestamp_mi_interval(timestamp,interval)":
		days, sign = true, -1
	case "interval_pl_timestamp(interval,timestamp)":
		of, by, days = by, of, true
	case "timestamptz_pl_interval(timestamptz,interval)":
	case "timestamptz_mi_interval(timestamptz,interval)":
		sign = -1
	case "interval_pl_timestamptz(interval,timestamptz)":
		of, by = by, of
	default:
		return e, 0
	}
	if by.Kind != expr.Const || by.Const.Null {
		return e, 0
	}
	iv := by.Const.Ivl
	us := iv.Micros + int64(iv.Days)*microsPerDay
	if iv.Months != 0 || iv.Days != 0 && !days || us > maxShift || us < -maxShift {
		return e, 0
	}
	in, more := shiftedTime(of)
	if sum := more + sign*us; sum <= maxShift && sum >= -maxShift {
		return in, sum
	}
	return of, sign * us
}

// rangeColumns makes the expressions of a range columns of one side.
func (ph *physical) rangeColumns(p *phys, rng *joinRange, side func(*joinBound) *expr.Expr) (*phys, [2]int) {
	pre := &preparer{b: ph.b}
	var out [2]int
	for i, b := range []*joinBound{rng.lower, rng.upper} {
		if b != nil {
			out[i] = pre.col(side(b))
		}
	}
	return ph.compute(p, pre.ids, pre.exprs), out
}

// rangeExpires reports whether the watermarks of both sides tell which rows a range join need not keep.
func (ph *physical) rangeExpires(l, r *phys, lc, rc [2]int) bool {
	return ph.b.stream && l.app && r.app && lc[0] == lc[1] && rc[0] == rc[1] && l.wm[lc[0]] && r.wm[rc[0]]
}

// rangeOf is the stored form of a range whose expressions are columns of the inputs; all are the columns of both.
func (ph *physical) rangeOf(rng *joinRange, l, r *phys, lc, rc [2]int, all []int) *plan.JoinRange {
	out := &plan.JoinRange{}
	var conds []*expr.Expr
	of := func(i int, b *joinBound) *plan.JoinBound {
		if b == nil {
			return nil
		}
		conds = append(conds, b.cond)
		return &plan.JoinBound{Left: l.at(lc[i]), Right: r.at(rc[i]), Offset: b.offset}
	}
	out.Lower, out.Upper = of(0, rng.lower), of(1, rng.upper)
	out.Cond = ph.exprOver(and(conds...), all)
	if ph.rangeExpires(l, r, lc, rc) {
		out.Expire, out.OnClose = true, ph.b.o.EmitOnClose
		ph.final = ph.final || out.OnClose
	}
	return out
}
