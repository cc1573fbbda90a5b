package planner

import (
	"math"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// winItem is a window function call; everything in it is an expression over the level's (aggregated) input.
type winItem struct {
	id        int
	fn        string
	args      []*expr.Expr
	filter    *expr.Expr
	partition []*expr.Expr
	order     []exprKey
	frame     plan.Frame
	typ       types.Type

	ignoreNulls bool
}

type winCollector struct {
	named map[string]pgext.Window
	index map[string]int // place of the named windows in WINDOW
	items []winItem
}

// window binds f(..) OVER (..).
func (x *exprCtx) window(e *pgext.WindowCall) (*expr.Expr, error) {
	b, pos := x.b, x.b.pos(e.Pos)
	if x.inWinSpec {
		return nil, pgerr.Newf(pgerr.WindowingError, "window functions are not allowed in window definitions").At(pos)
	}
	if x.inWin {
		return nil, pgerr.Newf(pgerr.WindowingError, "window function calls cannot be nested").At(pos)
	}
	if x.inAgg {
		return nil, pgerr.Newf(pgerr.GroupingError, "aggregate function calls cannot contain window function calls").At(pos)
	}
	if x.wins == nil {
		return nil, pgerr.Newf(pgerr.WindowingError, "window functions are not allowed in %s", x.place()).At(pos)
	}
	kind := x.kindOf(e.Call)
	if kind == functions.Scalar && len(b.routines(e.Call.Schema, e.Call.Name)) > 0 {
		return nil, pgerr.Newf(pgerr.WrongObjectType, "OVER specified, but %s is not a window function nor an aggregate function", e.Call.Name).At(pos)
	}
	if kind != functions.Aggregate && kind != functions.Window {
		if _, err := b.reg.ResolveFunction(e.Call.Name, nil); err != nil && len(b.reg.Lookup(e.Call.Name)) == 0 {
			args, aerr := x.callArgs(e.Call)
			if aerr != nil {
				return nil, aerr
			}
			_, err = b.reg.ResolveFunction(e.Call.Name, argTypes(args))
			return nil, pgerr.From(err).At(pos)
		}
		return nil, pgerr.Newf(pgerr.WrongObjectType, "OVER specified, but %s is not a window function nor an aggregate function", e.Call.Name).At(pos)
	}
	if kind == functions.Aggregate && (len(e.Call.WithinGroup) > 0 || orderedSet(e.Call.Name)) {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "OVER is not supported for ordered-set aggregate %s", e.Call.Name).At(pos)
	}
	if e.Call.Distinct {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "DISTINCT is not implemented for window functions").At(pos)
	}
	if len(e.Call.OrderBy) > 0 || len(e.Call.WithinGroup) > 0 {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "aggregate ORDER BY is not implemented for window functions").At(pos)
	}
	if kind == functions.Window && e.Call.Filter != nil {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "FILTER is not implemented for non-aggregate window functions").At(pos)
	}
	if e.Call.IgnoreNulls && kind == functions.Aggregate {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "IGNORE NULLS is not for aggregates").
			WithHint("Most aggregates pass over NULLs; FILTER (WHERE x IS NOT NULL) makes others do so.").At(b.pos(e.Call.IgnoreNullsPos))
	}
	in := &exprCtx{b: b, sc: x.sc, ev: x.ev, clause: x.clause, aggs: x.aggs, inWin: true, wins: x.wins}
	var args []*expr.Expr
	it := winItem{}
	if kind == functions.Window {
		var err error
		if args, err = in.callArgs(e.Call); err != nil {
			return nil, err
		}
		res, args, err := b.resolve(e.Call.Name, args, e.Call.Variadic, pos)
		if err != nil {
			return nil, err
		}
		it.fn, it.args, it.typ, it.ignoreNulls = res.Func.ID, args, res.Result, e.Call.IgnoreNulls
		switch name, _, _ := strings.Cut(it.fn, "("); name {
		case "lag", "lead", "first_value", "last_value", "nth_value":
		default:
			if it.ignoreNulls {
				return nil, pgerr.Newf(pgerr.FeatureNotSupported, "IGNORE NULLS is for lag, lead, first_value, last_value and nth_value only").At(b.pos(e.Call.IgnoreNullsPos))
			}
		}
	} else {
		a, err := in.aggCall(e.Call)
		if err != nil {
			return nil, err
		}
		it.fn, it.args, it.filter, it.typ = a.fn, a.args, a.filter, a.typ
	}
	in.inWinSpec = true
	if err := in.windowSpec(e.Window, &it, len(x.wins.named), true); err != nil {
		return nil, err
	}
	x.applies = append(x.applies, in.applies...)
	it.id = b.md.add(e.Call.Name, it.typ)
	if len(it.args) > 0 {
		b.keepShape(it.id, &expr.Expr{Kind: expr.Coalesce, Type: it.typ, Args: it.args[:1]})
	}
	x.wins.items = append(x.wins.items, it)
	c := b.md.ref(it.id)
	c.Pos = pos
	return c, nil
}

// windowSpec fills partitioning, order and frame, following named windows: of those, a definition sees the ones before it.
func (x *exprCtx) windowSpec(w pgext.Window, it *winItem, before int, call bool) error {
	b := x.b
	named := func(name string) (pgext.Window, error) {
		n, ok := x.wins.named[name]
		if !ok || x.wins.index[name] >= before {
			return n, pgerr.Newf(pgerr.UndefinedObject, "window \"%s\" does not exist", name).At(b.pos(w.Pos))
		}
		return n, nil
	}
	if w.Name != "" && call {
		n, err := named(w.Name)
		if err != nil {
			return err
		}
		return x.windowSpec(n, it, x.wins.index[w.Name], false)
	}
	if w.Ref != "" {
		n, err := named(w.Ref)
		if err != nil {
			return err
		}
		if err = x.windowSpec(n, it, x.wins.index[w.Ref], false); err != nil {
			return err
		}
		switch {
		case len(w.PartitionBy) > 0:
			return pgerr.Newf(pgerr.WindowingError, "cannot override PARTITION BY clause of window \"%s\"", w.Ref).At(b.pos(w.Pos))
		case len(w.OrderBy) > 0 && len(it.order) > 0:
			return pgerr.Newf(pgerr.WindowingError, "cannot override ORDER BY clause of window \"%s\"", w.Ref).At(b.pos(w.Pos))
		case n.Frame != nil:
			return pgerr.Newf(pgerr.WindowingError, "cannot copy window \"%s\" because it has a frame clause", w.Ref).WithHint("Omit the parentheses in this OVER clause.").At(b.pos(w.Pos))
		}
	}
	for _, p := range w.PartitionBy {
		c, err := x.bind(p)
		if err == nil {
			c, err = b.known(c)
		}
		if err != nil {
			return err
		}
		it.partition = append(it.partition, c)
	}
	for _, k := range w.OrderBy {
		c, err := x.bind(k.X)
		if err == nil {
			c, err = b.known(c)
		}
		if err != nil {
			return err
		}
		it.order = append(it.order, exprKey{e: c, desc: k.Desc || k.Using == ">", nullsFirst: k.NullsFirst})
	}
	it.frame = plan.Frame{Mode: plan.FrameRange, Start: plan.Bound{Kind: plan.UnboundedPreceding}, End: plan.Bound{Kind: plan.CurrentRow}}
	if w.Frame == nil {
		return nil
	}
	return x.frame(w, it)
}

var boundKinds = [...]plan.BoundKind{
	pgext.UnboundedPreceding: plan.UnboundedPreceding, pgext.BoundPreceding: plan.Preceding, pgext.CurrentRow: plan.CurrentRow,
	pgext.BoundFollowing: plan.Following, pgext.UnboundedFollowing: plan.UnboundedFollowing,
}

func (x *exprCtx) frame(w pgext.Window, it *winItem) error {
	f, pos := w.Frame, x.b.pos(w.Pos)
	it.frame.Mode = [...]plan.FrameMode{pgext.Rows: plan.FrameRows, pgext.Range: plan.FrameRange, pgext.Groups: plan.FrameGroups}[f.Unit]
	it.frame.Exclude = [...]string{"", "current", "group", "ties"}[f.Exclude]
	if f.Start.Kind == pgext.UnboundedFollowing {
		return pgerr.Newf(pgerr.WindowingError, "frame start cannot be UNBOUNDED FOLLOWING").At(pos)
	}
	if f.End.Kind == pgext.UnboundedPreceding {
		return pgerr.Newf(pgerr.WindowingError, "frame end cannot be UNBOUNDED PRECEDING").At(pos)
	}
	if f.Start.Kind > f.End.Kind {
		names := [...]string{"", "", "current row", "following row", ""}
		what := "cannot have preceding rows"
		if f.End.Kind == pgext.CurrentRow {
			what = "cannot end with current row"
		}
		return pgerr.Newf(pgerr.WindowingError, "frame starting from %s %s", names[f.Start.Kind], what).At(pos)
	}
	if f.Unit == pgext.Groups && len(it.order) == 0 {
		return pgerr.Newf(pgerr.WindowingError, "GROUPS mode requires an ORDER BY clause").At(pos)
	}
	var err error
	if it.frame.Start, err = x.frameBound(f, f.Start, it, "starting"); err != nil {
		return err
	}
	it.frame.End, err = x.frameBound(f, f.End, it, "ending")
	return err
}

func (x *exprCtx) frameBound(f *pgext.Frame, bd pgext.Bound, it *winItem, which string) (plan.Bound, error) {
	out := plan.Bound{Kind: boundKinds[bd.Kind]}
	if bd.Offset == nil {
		return out, nil
	}
	b := x.b
	mode := [...]string{pgext.Rows: "ROWS", pgext.Range: "RANGE", pgext.Groups: "GROUPS"}[f.Unit]
	o := &exprCtx{b: b, sc: x.sc, ev: x.ev, clause: "window " + mode}
	c, err := o.bind(bd.Offset)
	if err != nil {
		return out, err
	}
	var column *expr.Expr
	c.Walk(func(e *expr.Expr) bool {
		if e.Kind == expr.Column && len(o.applies) == 0 && column == nil {
			column = e
		}
		return true
	})
	if column != nil {
		return out, pgerr.Newf(pgerr.InvalidColumnReference, "argument of %s must not contain variables", mode).At(column.Pos)
	}
	if f.Unit == pgext.Range {
		c, err = b.rangeOffset(c, it)
	} else {
		given := c
		if c, err = b.cast(c, types.Int8, functions.Assignment); err != nil && given.Type.OID != types.OIDUnknown {
			err = pgerr.Newf(pgerr.DatatypeMismatch, "argument of %s must be type bigint, not type %s", mode, b.reg.TypeName(given.Type.OID)).At(given.Pos)
		}
	}
	if err != nil {
		return out, err
	}
	c = b.fold(c)
	if len(o.applies) > 0 || c.Kind != expr.Const && b.stream {
		return out, pgerr.Newf(pgerr.FeatureNotSupported, "frame offsets must be constants").At(c.Pos)
	}
	if c.Kind != expr.Const {
		out.Expr = c
		return out, nil
	}
	d := *c.Const
	if err := plan.CheckOffset(d, it.frame.Mode, which); err != nil {
		return out, err // as when it is a parameter: without a position
	}
	if math.IsInf(d.Float, 0) || math.IsNaN(d.Float) {
		out.Expr = c // as a number it could not be stored
		return out, nil
	}
	out.Offset = &d
	return out, nil
}

// rangeOffset converts an offset of RANGE to the type that goes with the order column.
func (b *binder) rangeOffset(c *expr.Expr, it *winItem) (*expr.Expr, error) {
	if len(it.order) != 1 {
		return nil, pgerr.Newf(pgerr.WindowingError, "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column").At(c.Pos)
	}
	k := it.order[0].e.Type
	t := types.IntervalT
	switch k.OID {
	case types.OIDDate, types.OIDTimestamp, types.OIDTimestamptz, types.OIDTime, types.OIDTimetz, types.OIDInterval:
	case types.OIDInt2, types.OIDInt4, types.OIDInt8:
		t = types.Int8
	case types.OIDFloat4, types.OIDFloat8:
		t = types.Float8
	case types.OIDNumeric:
		t = types.NumericType
	default:
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "RANGE with offset PRECEDING/FOLLOWING is not supported for column type %s", b.reg.TypeName(k.OID)).At(c.Pos)
	}
	out, err := b.cast(c, t, functions.Implicit)
	if err != nil && c.Type.OID != types.OIDUnknown {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "RANGE with offset PRECEDING/FOLLOWING is not supported for column type %s and offset type %s",
			b.reg.TypeName(k.OID), b.reg.TypeName(c.Type.OID)).WithHint("Cast the offset value to an appropriate type.").At(c.Pos)
	}
	return out, err
}
