package planner

import (
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// Timestamps that conditions are moved to: those of PostgreSQL, in µs since 2000.
const (
	leastTimestamp    = -211_813_488_000_000_000
	greatestTimestamp = 9_223_371_331_200_000_000
)

// longestMonth is that of the windows of so many months that are longest for their number.
const longestMonth = 31 * microsPerDay

// zoneShift is more than what clocks of a time zone can have been set back in all: no zone is 16 hours from UTC.
const zoneShift = 2 * microsPerDay

// windowBounds returns conditions on the time column of windows that hold wherever one on window_start or window_end does. A window holds its rows: start <= time < end,
// and its start is no more than its whole length before its end.
func (o *optimizer) windowBounds(n *node, p *expr.Expr) []*expr.Expr {
	size := n.win.Size
	if c := n.win.Calendar; c != nil {
		if size = c.Unit * c.Count; size > maxWindowMicros/longestMonth {
			return nil
		}
		if c.Months {
			size *= longestMonth
		} else {
			size *= microsPerDay
		}
		if c.Zone != "" {
			size += zoneShift
		}
	}
	x, op, values := o.compared(p)
	if x == nil || op == "in" || x.Kind != expr.Column || x.Col != n.winStart && x.Col != n.winEnd {
		return nil
	}
	v := values[0]
	if v.Kind != expr.Const || v.Type.OID != x.Type.OID || v.Const.Int < leastTimestamp || v.Const.Int > greatestTimestamp {
		return nil
	}
	at := v.Const.Int
	var out []*expr.Expr
	bound := func(op string, us int64) {
		if us < leastTimestamp || us > greatestTimestamp {
			return
		}
		d := types.Datum{Type: v.Type, Int: us}
		e, err := o.b.operatorOn(op, []*expr.Expr{o.md.ref(n.column), {Kind: expr.Const, Type: v.Type, Const: &d, Pos: v.Pos}}, p.Pos)
		if err == nil {
			out = append(out, e)
		}
	}
	start := x.Col == n.winStart
	if !start { // as if it were of the start
		at -= size
	}
	switch op {
	case ">", ">=":
		bound(op, at)
	case "=":
		bound(">=", at)
	}
	switch op {
	case "<", "<=", "=":
		bound("<", at+size)
	}
	if len(out) > 0 {
		o.fire(rulePushWindows)
	}
	return out
}
