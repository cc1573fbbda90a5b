package planner

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// tableFunction binds f(..) in FROM.
func (b *binder) tableFunction(f *pgext.TableFunction, lat *scope, ev *env) (*node, *scope, error) {
	if len(f.Funcs) == 1 && !f.RowsFrom {
		if c, ok := pgext.ExprOf(f.Funcs[0].X).(*pgext.Call); ok && c.Schema == "streamdb" && c.Name == "read_checkpoint" {
			return b.readCheckpoint(f, c, lat, ev)
		}
		if c, ok := pgext.ExprOf(f.Funcs[0].X).(*pgext.Call); ok && c.Schema == "" {
			switch c.Name {
			case "tumble", "hop", "cumulate", "session":
				return b.windowFunction(f, c, ev)
			}
		}
	}
	pos := b.pos(f.Pos)
	t := &rangeTable{name: f.Alias}
	x := &exprCtx{b: b, sc: lat, ev: ev, clause: "functions in FROM"}
	if c, ok := pgext.ExprOf(f.Funcs[0].X).(*pgext.Call); ok && len(f.Funcs) == 1 && len(b.routines(c.Schema, c.Name)) > 0 {
		in := &exprCtx{b: b, sc: lat, ev: ev, clause: x.clause}
		fn, args, err := in.routine(c)
		if err != nil {
			return nil, nil, err
		}
		if fn != nil && fn.Set {
			return b.fromRoutine(f, fn, args, in.applies, b.pos(c.Pos))
		}
	}
	un := &node{op: opUnnest}
	var scalars []int
	var scalarExprs []*expr.Expr
	var all []fromCall
	var gathered []*srfItem
	sets := false
	for _, item := range f.Funcs {
		calls, err := x.fromCalls(item)
		if err != nil {
			return nil, nil, err
		}
		for _, c := range calls {
			sets = sets || c.set
		}
		all = append(all, calls...)
	}
	for _, c := range all {
		if t.name == "" {
			t.name = c.name
		}
		single := c.name
		if f.Alias != "" && len(all) == 1 {
			single = f.Alias
		}
		if !c.set {
			if len(c.columns) > 0 {
				single = c.columns[0].Name
			}
			id := b.md.add(single, c.e.Type)
			b.keepShape(id, c.e)
			t.cols = append(t.cols, scopeCol{single, id})
			if sets {
				// Beside sets a value is a set of one row.
				un.calls = append(un.calls, &expr.Expr{Kind: expr.Call, Type: c.e.Type, Func: onceFunc, Args: []*expr.Expr{c.e}, Cols: []types.Type{c.e.Type}, Pos: c.e.Pos})
				un.added = append(un.added, id)
				continue
			}
			scalars, scalarExprs = append(scalars, id), append(scalarExprs, c.e)
			continue
		}
		if c.item != nil {
			gathered = append(gathered, c.item)
			un.added = append(un.added, c.item.ids...)
			for i, id := range c.item.ids[:max(len(c.columns), 1)] {
				name := single
				if len(c.columns) > 0 {
					name = c.columns[i].Name
				}
				t.cols = append(t.cols, scopeCol{name, id})
			}
			un.calls = append(un.calls, nil)
			continue
		}
		un.calls = append(un.calls, c.e)
		if len(c.columns) == 0 {
			id := b.md.add(single, c.e.Type)
			un.added = append(un.added, id)
			t.cols = append(t.cols, scopeCol{single, id})
		}
		for _, col := range c.columns {
			name := col.Name
			if len(c.columns) == 1 && c.scalar {
				name = single
			}
			id := b.md.add(name, col.Type)
			un.added = append(un.added, id)
			t.cols = append(t.cols, scopeCol{name, id})
		}
	}
	base := b.attach(b.md.dual(), x.applies)
	for i, call := range un.calls {
		if call == nil {
			base, un.calls[i] = b.gather(base, gathered[0])
			gathered = gathered[1:]
		}
	}
	var n *node
	ord := 0
	switch {
	case len(un.calls) == 0:
		n = b.md.extend(base, scalars, scalarExprs)
		if f.Ordinality {
			ord = b.md.add("ordinality", types.Int8)
			n = b.md.extend(n, []int{ord}, []*expr.Expr{intConst(types.Int8, 1)})
		}
	case len(all) == 1 && len(x.applies) == 0 && constantArgs(un.calls[0]) && un.calls[0].Cols == nil:
		n = &node{op: opSeries, calls: un.calls, cols: append([]int(nil), un.added...)}
		if f.Ordinality {
			ord = b.md.add("ordinality", types.Int8)
			n.ordinal = ord
			n.cols = append(n.cols, ord)
		}
	default:
		ord = b.md.add("ordinality", types.Int8)
		un.in, un.ordinal = []*node{base}, ord
		n = un
	}
	t.scalar = len(t.cols) == 1
	if f.Ordinality {
		t.scalar = false
		b.md.cols[ord].notNull = true
		t.cols = append(t.cols, scopeCol{"ordinality", ord})
	}
	sc, err := b.tableScope(t, f.Columns, pos)
	return n, sc, err
}

// readCheckpoint binds streamdb.read_checkpoint(uri, relation) in FROM: a scan of the relation as it is in a checkpoint or savepoint.
func (b *binder) readCheckpoint(f *pgext.TableFunction, c *pgext.Call, lat *scope, ev *env) (*node, *scope, error) {
	pos := b.pos(c.Pos)
	x := &exprCtx{b: b, sc: lat, ev: ev, clause: "functions in FROM"}
	args, err := x.callArgs(c)
	if err != nil {
		return nil, nil, err
	}
	if len(args) != 2 {
		return nil, nil, pgerr.Newf(pgerr.UndefinedFunction, "function streamdb.read_checkpoint takes a path and the name of a relation").At(pos)
	}
	var texts [2]string
	for i, a := range args {
		if a.Kind != expr.Const || a.Const.Null || a.Const.Type.OID != types.OIDText && a.Const.Type.OID != types.OIDUnknown {
			return nil, nil, pgerr.Newf(pgerr.FeatureNotSupported, "the arguments of streamdb.read_checkpoint must be text constants").At(b.pos(c.Args[i].X.OriginTextPosition()))
		}
		texts[i] = a.Const.Str
	}
	if b.o.Checkpoint == nil || f.Ordinality {
		return nil, nil, pgerr.Newf(pgerr.FeatureNotSupported, "streamdb.read_checkpoint cannot be used here").At(pos)
	}
	if b.stream {
		return nil, nil, pgerr.Newf(pgerr.FeatureNotSupported, "streamdb.read_checkpoint cannot be used in a materialized view").
			WithHint("What a checkpoint holds does not change: query it directly, or keep its rows with CREATE TABLE AS.").At(pos)
	}
	rel, err := b.o.Checkpoint(texts[0], texts[1])
	if err != nil {
		return nil, nil, pgerr.From(err).At(pos)
	}
	alias := f.Alias
	if alias == "" {
		alias = c.Name
	}
	return b.scan(rel, alias, f.Columns, pos)
}

func constantArgs(e *expr.Expr) bool {
	used := map[int]bool{}
	e.Columns(used)
	return len(used) == 0
}

// onceFunc makes a set of one row of a value.
const onceFunc = "$once(any)"

// fromCall is a function of FROM.
type fromCall struct {
	name    string
	e       *expr.Expr
	set     bool
	scalar  bool // the columns stand for a scalar result
	columns []types.Column
	item    *srfItem // of a function in language SQL
}

// fromCalls binds a function of FROM; unnest of several arrays is several calls side by side.
func (x *exprCtx) fromCalls(item pgext.FuncItem) ([]fromCall, error) {
	b, e := x.b, item.X
	c, ok := pgext.ExprOf(e).(*pgext.Call)
	if ok && len(b.routines(c.Schema, c.Name)) > 0 {
		f, args, err := x.routine(c)
		if err != nil {
			return nil, err
		}
		if f != nil && len(item.Columns) > 0 {
			return nil, b.noColumnList(f, item)
		}
		if f != nil {
			return x.fromRoutineCalls(f, args, b.pos(c.Pos))
		}
	}
	if ok {
		if _, ok := populates(c); ok {
			return x.fromPopulate(c, item)
		}
	}
	if len(item.Columns) > 0 && (!ok || x.kindOf(c) != functions.SetOf) {
		return nil, pgerr.Newf(pgerr.SyntaxError, "a column definition list is only allowed for functions returning \"record\"").At(b.pos(item.Columns[0].Pos))
	}
	if !ok {
		v, err := x.bind(e)
		if err == nil {
			v, err = b.known(v)
		}
		if err != nil {
			return nil, err
		}
		return []fromCall{{name: sql.ColumnName(e), e: v}}, nil
	}
	c = b.schemaCall(c)
	if (c.Schema == "" || c.Schema == "pg_catalog") && c.Name == "unnest" && len(c.Args) > 1 {
		var out []fromCall
		for i := range c.Args {
			one := *c
			one.Args = c.Args[i : i+1]
			r, err := x.setCall(&one, nil)
			if err != nil {
				return nil, err
			}
			out = append(out, r)
		}
		return out, nil
	}
	if x.kindOf(c) != functions.SetOf {
		v, err := x.bindView(c)
		if err == nil {
			v, err = b.known(v)
		}
		if err != nil {
			return nil, err
		}
		return []fromCall{{name: c.Name, e: v}}, nil
	}
	r, err := x.setCall(c, item.Columns)
	if err != nil {
		return nil, err
	}
	return []fromCall{r}, nil
}

func (x *exprCtx) setCall(c *pgext.Call, defs []pgext.ColumnDef) (fromCall, error) {
	b, pos := x.b, x.b.pos(c.Pos)
	if err := x.plainCall(c, pos); err != nil {
		return fromCall{}, err
	}
	args, err := x.callArgs(c)
	if err != nil {
		return fromCall{}, err
	}
	res, args, err := b.resolve(c.Name, args, c.Variadic, pos)
	if err != nil {
		return fromCall{}, err
	}
	if res.Func == nil || res.Func.Kind != functions.SetOf {
		return fromCall{}, pgerr.Newf(pgerr.FeatureNotSupported, "function %s is not supported in FROM", c.Name).At(pos)
	}
	if err = b.sliding(c.Name, res.Func, "", pos); err != nil {
		return fromCall{}, err
	}
	out := fromCall{name: c.Name[strings.LastIndexByte(c.Name, '.')+1:], set: true, e: &expr.Expr{Kind: expr.Call, Type: res.Result, Func: res.Func.ID, Args: args, Pos: pos}}
	var own bool
	if out.columns, own = setColumns(res.Func, args); own {
		out.e.Cols = types.Schema(out.columns).Types()
	}
	if len(defs) > 0 {
		at := b.pos(defs[0].Pos)
		if res.Result.OID != types.OIDRecord {
			return out, pgerr.Newf(pgerr.SyntaxError, "a column definition list is only allowed for functions returning \"record\"").At(at)
		}
		if len(out.columns) > 0 {
			return out, pgerr.Newf(pgerr.SyntaxError, "a column definition list is redundant for a function with OUT parameters").At(at)
		}
		if out.columns, err = b.definedColumns(defs); err != nil {
			return out, err
		}
		for _, c := range out.columns {
			out.e.Names, out.e.Cols = append(out.e.Names, c.Name), append(out.e.Cols, c.Type)
		}
	}
	if s := b.unnested(c.Name, args); s != nil && res.Result.OID == types.OIDRecord && len(defs) == 0 {
		out.e.Func = rowsFunc
		for i, n := range s.names {
			out.columns = append(out.columns, types.Column{Name: n, Type: s.types[i]})
		}
		out.e.Cols = types.Schema(out.columns).Types()
	}
	if len(out.columns) == 0 && res.Result.OID == types.OIDRecord {
		return fromCall{}, pgerr.Newf(pgerr.SyntaxError, "a column definition list is required for functions returning \"record\"").At(pos)
	}
	return out, nil
}

// definedColumns are the columns of a column definition list.
func (b *binder) definedColumns(defs []pgext.ColumnDef) ([]types.Column, error) {
	var out []types.Column
	for i, d := range defs {
		for _, e := range defs[:i] {
			if e.Name == d.Name {
				return nil, pgerr.Newf(pgerr.DuplicateColumn, "column name \"%s\" specified more than once", d.Name).At(b.pos(d.Pos))
			}
		}
		t, err := b.parseType(d.Type)
		if err != nil {
			return nil, pgerr.From(err).At(b.pos(d.Pos))
		}
		out = append(out, types.Column{Name: d.Name, Type: t})
	}
	return out, nil
}

// fromPopulate binds in FROM a function that makes rows of JSON.
func (x *exprCtx) fromPopulate(c *pgext.Call, item pgext.FuncItem) ([]fromCall, error) {
	defs, err := x.b.definedColumns(item.Columns)
	if err != nil {
		return nil, err
	}
	call, columns, base, err := x.populate(c, defs)
	if err != nil {
		return nil, err
	}
	if defs != nil && x.b.shapeOf(base) != nil {
		return nil, pgerr.Newf(pgerr.SyntaxError, "a column definition list is redundant for a function returning a named composite type").At(x.b.pos(item.Columns[0].Pos))
	}
	return []fromCall{{name: c.Name, e: call, set: true, columns: columns}}, nil
}

// unnested is the shape of the rows that unnest makes of an array of rows, nil where that is not known.
func (b *binder) unnested(name string, args []*expr.Expr) *shape {
	if name != "unnest" || len(args) != 1 {
		return nil
	}
	return b.shapeOf(args[0])
}
