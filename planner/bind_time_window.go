package planner

import (
	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// windowUsages are the forms of the functions that assign rows to windows in time.
var windowUsages = map[string]string{
	"tumble":   "tumble(relation, time column, size [, offset] [, zone => 'name'])",
	"hop":      "hop(relation, time column, slide, size [, offset] [, zone => 'name'])",
	"cumulate": "cumulate(relation, time column, step, size [, offset] [, zone => 'name'])",
	"session":  "session(relation, [key column, ..,] time column, gap)",
}

// windowFunction binds a call of one of windowUsages in FROM.
func (b *binder) windowFunction(f *pgext.TableFunction, c *pgext.Call, ev *env) (*node, *scope, error) {
	pos := b.pos(c.Pos)
	usage := windowUsages[c.Name]
	wrong := func(err *pgerr.Error) error { return err.WithHint("Write %s.", usage).At(pos) }
	var args []ast.ExprNode
	var zone *pgext.Arg
	for i, a := range c.Args {
		switch {
		case a.Name == "":
			args = append(args, a.X)
		case a.Name == "zone" && zone == nil && c.Name != "session":
			zone = &c.Args[i]
		default:
			return nil, nil, wrong(pgerr.Newf(pgerr.UndefinedFunction, "function %s has no argument \"%s\"", c.Name, a.Name))
		}
	}
	least, most := 4, 5
	switch c.Name {
	case "tumble":
		least, most = 3, 4
	case "session":
		least, most = 3, len(args)
	}
	if len(args) < least || len(args) > most || f.Ordinality {
		return nil, nil, wrong(pgerr.Newf(pgerr.UndefinedFunction, "function %s does not take these arguments", c.Name))
	}
	n, sc, err := b.windowInput(c, args[0], ev, pos)
	if err != nil {
		return nil, nil, err
	}
	w := &node{op: opWindow, in: []*node{n}}
	if c.Name == "session" {
		w.op = opSession
		for _, a := range args[1 : len(args)-2] {
			keys := []ast.ExprNode{a}
			if row, ok := pgext.ExprOf(a).(*pgext.Row); ok {
				keys = row.Elems
			}
			for _, k := range keys {
				e, err := b.windowColumn(c.Name, "key", k, sc, pos)
				if err != nil {
					return nil, nil, err
				}
				w.partition = append(w.partition, e.Col)
			}
		}
		w.partition = dedup(w.partition)
		args = append([]ast.ExprNode{args[0]}, args[len(args)-2:]...)
	}
	ts, err := b.windowColumn(c.Name, "time", args[1], sc, pos)
	if err != nil {
		return nil, nil, err
	}
	w.column = ts.Col
	wt := ts.Type
	switch wt.OID {
	case types.OIDTimestamp, types.OIDTimestamptz:
		wt = types.T(wt.OID)
	case types.OIDDate:
		wt = types.Timestamp
	default:
		return nil, nil, pgerr.Newf(pgerr.DatatypeMismatch, "the time column of %s must be of type date, timestamp or timestamptz, not %s", c.Name, ts.Type).At(ts.Pos)
	}
	sizes := make([]windowInterval, len(args)-2)
	for i, a := range args[2:] {
		if sizes[i], err = b.windowInterval(c.Name, a, i == most-3 && w.op == opWindow); err != nil {
			return nil, nil, err
		}
	}
	if w.op == opSession {
		if sizes[0].Months != 0 {
			return nil, nil, pgerr.Newf(pgerr.InvalidParameterValue, "the gap of a session must not have months or years: their length varies").WithHint("Use days.").At(sizes[0].pos)
		}
		w.win.Size = sizes[0].micros()
	} else if err = b.windowSizes(w, c.Name, sizes, zone, wt, pos); err != nil {
		return nil, nil, err
	}
	w.winStart, w.winEnd = b.md.add("window_start", wt), b.md.add("window_end", wt)
	b.md.cols[w.winStart].window, b.md.cols[w.winEnd].window = w.winEnd, w.winEnd
	b.md.cols[w.winStart].notNull, b.md.cols[w.winEnd].notNull = true, true
	in := sc.tables[0]
	t := &rangeTable{name: in.name, schema: in.schema, cols: append([]scopeCol(nil), in.cols...), hidden: in.hidden}
	if f.Alias != "" {
		t.name, t.schema = f.Alias, ""
	}
	// All columns are of the windows, as far as they are not of relations in a view or query.
	if t.label = in.label; t.label != nil && f.Alias != "" {
		t.label.alias = f.Alias
	}
	t.cols = append(t.cols, scopeCol{"window_start", w.winStart}, scopeCol{"window_end", w.winEnd})
	out, err := b.tableScope(t, f.Columns, pos)
	return w, out, err
}

// windowInput binds the first argument: the name of a relation, or a query.
func (b *binder) windowInput(c *pgext.Call, arg ast.ExprNode, ev *env, pos int) (*node, *scope, error) {
	switch v := pgext.ExprOf(arg).(type) {
	case *pgext.Column:
		r := &pgext.Relation{Name: v.Names[len(v.Names)-1], Pos: v.Pos}
		if len(v.Names) > 1 {
			r.Schema = v.Names[len(v.Names)-2]
		}
		return b.relation(r, ev)
	case *pgext.Subquery:
		q, err := b.query(pgext.QueryOf(v.Query), ev, false)
		if err != nil {
			return nil, nil, err
		}
		t := &rangeTable{name: c.Name}
		n := b.aliased(q, t)
		sc, err := b.tableScope(t, nil, pos)
		return n, sc, err
	}
	return nil, nil, pgerr.Newf(pgerr.SyntaxError, "the first argument of %s must be a relation", c.Name).WithHint("Write %s.", windowUsages[c.Name]).At(pos)
}

// windowColumn binds an argument that names a column of the input.
func (b *binder) windowColumn(fn, what string, arg ast.ExprNode, sc *scope, pos int) (*expr.Expr, error) {
	x := &exprCtx{b: b, sc: sc, ev: &env{}, clause: "a window function"}
	e, err := x.bind(arg)
	if err != nil {
		return nil, err
	}
	if e.Kind != expr.Column {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "the %s argument of %s must be a column", what, fn).WithHint("Compute it in a subquery first.").At(pos)
	}
	return e, nil
}

// maxWindowsPerRow bounds the copies that hop and cumulate make of each row.
const maxWindowsPerRow = 100_000

// windowInterval is an interval argument and where it stands.
type windowInterval struct {
	types.Interval
	pos int
}

// micros is the length of an interval without months; days have 24 hours.
func (w windowInterval) micros() int64 { return int64(w.Days)*microsPerDay + w.Micros }

const microsPerDay = 86_400_000_000

// maxWindowMicros bounds the lengths of windows, so that sums of them and timestamps do not overflow.
const maxWindowMicros = 1 << 60

// windowInterval evaluates an interval argument.
func (b *binder) windowInterval(fn string, e ast.ExprNode, offset bool) (windowInterval, error) {
	what := "size"
	switch {
	case offset:
		what = "offset"
	case fn == "session":
		what = "gap"
	}
	d, pos, err := b.windowConst(e, types.IntervalT, "window sizes must be of type interval, not type %s")
	if err != nil {
		return windowInterval{}, err
	}
	if d == nil || d.Null {
		return windowInterval{}, pgerr.Newf(pgerr.InvalidParameterValue, "the window %s of %s must be a constant interval", what, fn).At(pos)
	}
	w := windowInterval{d.Ivl, pos}
	if offset {
		return w, nil
	}
	// A length with parts of both signs is no length.
	if w.Months < 0 || w.micros() < 0 || w.Months == 0 && w.micros() == 0 {
		return w, pgerr.Newf(pgerr.InvalidParameterValue, "the window %s of %s must be greater than zero", what, fn).At(pos)
	}
	if w.micros() > maxWindowMicros || w.Days > maxWindowMicros/microsPerDay {
		return w, pgerr.Newf(pgerr.InvalidParameterValue, "the window %s of %s is too large", what, fn).At(pos)
	}
	return w, nil
}

// windowConst evaluates an argument that must be a constant; nil when it is none.
func (b *binder) windowConst(e ast.ExprNode, t types.Type, msg string) (*types.Datum, int, error) {
	x := &exprCtx{b: b, sc: &scope{}, ev: &env{}, clause: "a window function"}
	c, err := x.bind(e)
	if err != nil {
		return nil, 0, err
	}
	pos := c.Pos
	if c, err = b.castArg(c, t, msg); err != nil {
		return nil, pos, err
	}
	if c = b.fold(c); c.Kind != expr.Const {
		return nil, pos, nil
	}
	return c.Const, pos, nil
}

// windowSizes fills in the windows of tumble, hop and cumulate.
func (b *binder) windowSizes(w *node, fn string, sizes []windowInterval, zone *pgext.Arg, wt types.Type, pos int) error {
	size, unit := sizes[0], sizes[0] // windows begin, or grow, every unit
	rest := sizes[1:]
	if fn != "tumble" {
		size, rest = sizes[1], sizes[2:]
	}
	var offset windowInterval
	if len(rest) > 0 {
		offset = rest[0]
	}
	var sizeLen, unitLen int64
	if zone == nil && size.Months == 0 && unit.Months == 0 {
		if offset.Months != 0 {
			return pgerr.Newf(pgerr.InvalidParameterValue, "the offset of windows that are not months long must not have months").At(offset.pos)
		}
		sizeLen, unitLen = size.micros(), unit.micros()
		w.win = plan.Window{Size: sizeLen, Offset: offset.micros()}
		switch fn {
		case "hop":
			w.win.Slide = unitLen
		case "cumulate":
			w.win.Step = unitLen
		}
	} else {
		cal := &plan.Calendar{Months: size.Months != 0, Cumulate: fn == "cumulate"}
		if zone != nil {
			d, zpos, err := b.windowConst(zone.X, types.Text, "the time zone must be of type text, not type %s")
			switch {
			case err != nil:
				return err
			case d == nil || d.Null:
				return pgerr.Newf(pgerr.InvalidParameterValue, "the time zone of %s must be a constant", fn).At(zpos)
			case wt.OID != types.OIDTimestamptz:
				return pgerr.Newf(pgerr.DatatypeMismatch, "windows in a time zone need a time column of type timestamptz").At(zpos)
			}
			if _, err = types.ZoneByText(d.Str); err != nil {
				return pgerr.From(err).At(zpos)
			}
			cal.Zone = d.Str
		}
		whole := func(v windowInterval) (int64, error) {
			switch {
			case cal.Months && (v.Months == 0 || v.Days != 0 || v.Micros != 0):
				return 0, pgerr.Newf(pgerr.InvalidParameterValue, "windows of months must be whole months, and so must be what they move or grow by").At(v.pos)
			case cal.Months:
				return int64(v.Months), nil
			case v.Months != 0 || v.Days == 0 || v.Micros != 0:
				return 0, pgerr.Newf(pgerr.InvalidParameterValue, "windows in a time zone must be whole days, weeks, months or years, and so must be what they move or grow by").
					WithHint("Leave zone out for windows of hours: they are the same everywhere, but for zones that are not whole hours apart, which an offset takes into account.").At(v.pos)
			}
			return int64(v.Days), nil
		}
		var err error
		if sizeLen, err = whole(size); err != nil {
			return err
		}
		if unitLen, err = whole(unit); err != nil {
			return err
		}
		if offset.Months != 0 && !cal.Months {
			return pgerr.Newf(pgerr.InvalidParameterValue, "the offset of windows that are not months long must not have months").At(offset.pos)
		}
		cal.Unit, cal.Count = unitLen, sizeLen/unitLen
		cal.OffsetMonths, cal.OffsetDays, cal.Offset = int64(offset.Months), int64(offset.Days), offset.Micros
		w.win = plan.Window{Calendar: cal}
	}
	if sizeLen%unitLen != 0 {
		what := "slide"
		if fn == "cumulate" {
			what = "step"
		}
		return pgerr.Newf(pgerr.InvalidParameterValue, "the size of a %s window must be a multiple of its %s", fn, what).
			WithHint("The arguments are %s(relation, column, %s, size).", fn, what).At(pos)
	}
	if sizeLen/unitLen > maxWindowsPerRow {
		return pgerr.Newf(pgerr.InvalidParameterValue, "a row would belong to %d windows, more than the limit of %d", sizeLen/unitLen, maxWindowsPerRow).At(pos)
	}
	if sizeLen == unitLen {
		w.win.Slide, w.win.Step = 0, 0 // every row belongs to one window
	}
	return nil
}
