package planner

import (
	"strings"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// nowIn returns the call of now() or a function like it in e, nil when there is none.
func nowIn(e *expr.Expr) *expr.Expr {
	var found *expr.Expr
	e.Walk(func(x *expr.Expr) bool {
		if x.Kind == expr.Call && isNow(nowName(x)) {
			found = x
		}
		return found == nil
	})
	return found
}

func nowName(e *expr.Expr) string {
	name, _, _ := strings.Cut(e.Func, "(")
	return name
}

// onlyInFilters refuses now() where it is no condition on rows.
func onlyInFilters(n *node) error {
	var err error
	n.walk(func(x *node) {
		if x.op == opFilter {
			return
		}
		x.eachExpr(func(e *expr.Expr) *expr.Expr {
			if c := nowIn(e); c != nil && err == nil {
				err = errSliding(nowName(c), c.Pos)
			}
			return e
		})
	})
	return err
}

// splitTimed splits a condition into those that ask for the time and the others.
func splitTimed(cond *expr.Expr) (timed []*expr.Expr, rest *expr.Expr) {
	var others []*expr.Expr
	for _, c := range conjuncts(cond) {
		if nowIn(c) != nil {
			timed = append(timed, c)
		} else {
			others = append(others, c)
		}
	}
	return timed, and(others...)
}

// temporal makes the operators of the conditions of a job that compare the clock with an expression of the row.
func (ph *physical) temporal(in *phys, conds []*expr.Expr, need map[int]bool) *phys {
	for _, c := range conds {
		now := nowIn(c)
		t := ph.clockBound(c)
		if t == nil || ph.sub != nil {
			ph.b.fail(errSliding(nowName(now), now.Pos))
		}
		cols := map[int]bool{}
		t.Bound.Columns(cols)
		for id := range need {
			cols[id] = true
		}
		if len(in.key) == 0 {
			in = ph.require(in, distSingle, nil, cols)
		} else {
			in = ph.require(in, distHash, in.key, cols)
		}
		p := ph.like(plan.KindTemporal, in)
		t.Bound = ph.expr(t.Bound, in)
		p.n.Temporal = t
		p.wm, p.app = map[int]bool{}, false // rows come when their time has come, and go
		in = ph.seal(p)
	}
	return in
}

// clockBound solves a comparison for now(); nil when it cannot.
func (ph *physical) clockBound(c *expr.Expr) *plan.Temporal {
	op := ph.o.comparison(c)
	if op == "" || op == "=" {
		return nil
	}
	clock, bound := c.Args[0], c.Args[1]
	if nowIn(bound) != nil {
		// The clock comes to the left.
		clock, bound = bound, clock
		op = turnedComparison[op]
	}
	if nowIn(bound) != nil || clock.Type.OID != types.OIDTimestamptz {
		return nil
	}
	if bound.Type.OID != types.OIDTimestamptz {
		var err error
		if bound, err = ph.b.cast(bound, types.Timestamptz, functions.Implicit); err != nil {
			return nil
		}
	}
	for !isNow(nowName(clock)) {
		// now() - i < x is now() < x + i, as long as i has no months.
		if clock.Kind != expr.Call || len(clock.Args) != 2 || nowIn(clock.Args[0]) == nil {
			return nil
		}
		by := clock.Args[1]
		if by.Kind != expr.Const || by.Const.Null || by.Type.OID != types.OIDInterval || by.Const.Ivl.Months != 0 {
			return nil
		}
		switch {
		case strings.HasPrefix(clock.Func, "timestamptz_mi_interval("):
			bound = ph.b.mustOp("+", bound, by)
		case strings.HasPrefix(clock.Func, "timestamptz_pl_interval("):
			bound = ph.b.mustOp("-", bound, by)
		default:
			return nil
		}
		clock = clock.Args[0]
	}
	return &plan.Temporal{Bound: bound, Leaves: op == "<" || op == "<=", After: op == "<=" || op == ">"}
}
