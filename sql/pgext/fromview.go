package pgext

import (
	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/sql/internal/tidb"
)

// fromList returns the comma-separated items of FROM. TiDB makes them left-deep joins without parentheses, which the translator
// writes around every real join.
func fromList(j *ast.Join) []FromItem {
	if j.ExplicitParens {
		return []FromItem{fromItem(j)}
	}
	if j.Right == nil {
		if l, ok := j.Left.(*ast.Join); ok {
			return fromList(l)
		}
		if noFrom(j.Left) {
			return nil
		}
		return []FromItem{fromItem(j.Left)}
	}
	var out []FromItem
	if l, ok := j.Left.(*ast.Join); ok {
		out = fromList(l)
	} else {
		out = []FromItem{fromItem(j.Left)}
	}
	return append(out, fromItem(j.Right))
}

func noFrom(n ast.ResultSetNode) bool {
	ts, ok := n.(*ast.TableSource)
	if !ok {
		return false
	}
	t, ok := ts.Source.(*ast.TableName)
	return ok && t.Schema.O == Schema && t.Name.O == MarkNoFrom
}

func fromItem(n ast.ResultSetNode) FromItem {
	switch t := n.(type) {
	case *ast.Join:
		if t.Right == nil {
			return fromItem(t.Left)
		}
		return joinOf(t)
	case *ast.TableSource:
		alias := t.AsName.O
		cols := names(t.ColumnNames)
		switch s := t.Source.(type) {
		case *ast.TableName:
			r := &Relation{Schema: s.Schema.O, Name: s.Name.O, Alias: alias, Pos: s.OriginTextPosition()}
			if s.AsOf != nil {
				if n, a := Marker(unparen(s.AsOf.TsExpr)); n == MarkSystemTime {
					r.SystemTime = a[0]
				}
			}
			return r
		case *ast.SelectStmt:
			if t.Lateral {
				if w := wrapped(s, alias, cols); w != nil {
					return w
				}
			}
		case *ast.Join:
			return fromItem(s)
		}
		q := QueryOf(t.Source)
		return &Derived{Query: t.Source, Lateral: t.Lateral, Alias: alias, Columns: cols, Pos: q.Pos}
	}
	bug("FROM item %T", n)
	return nil
}

// wrapped reads LATERAL (SELECT marker(..) [FROM inner]) AS alias (columns); nil when s is a user's own sub-select.
func wrapped(s *ast.SelectStmt, alias string, cols []string) FromItem {
	if s.Kind != ast.SelectStmtKindSelect || s.OrderBy != nil || len(s.Fields.Fields) != 1 || s.Fields.Fields[0].WildCard != nil {
		return nil
	}
	e := s.Fields.Fields[0].Expr
	kind, args := Marker(e)
	pos := e.OriginTextPosition()
	inner := func() FromItem { return fromItem(s.From.TableRefs) }
	switch kind {
	case MarkRelation:
		r := inner().(*Relation)
		r.Alias, r.Columns = alias, cols
		return r
	case MarkDerived:
		d := inner().(*Derived)
		d.Alias, d.Columns = alias, cols
		return d
	case MarkJoinAlias:
		switch f := inner().(type) {
		case *Join:
			f.Alias, f.Columns = alias, cols
			return f
		default:
			bug("alias of a parenthesised %T", f)
		}
	case MarkTableSample:
		r := inner().(*Relation)
		r.Columns = cols
		sample := &TableSample{Method: text(args[0]), Args: args[1:], Pos: pos}
		if last := len(sample.Args) - 1; last >= 0 {
			if n, a := Marker(sample.Args[last]); n == MarkRepeatable {
				sample.Repeatable, sample.Args = a[0], sample.Args[:last]
			}
		}
		r.Sample = sample
		return r
	case MarkTableFunction, MarkRowsFrom:
		f := &TableFunction{RowsFrom: kind == MarkRowsFrom, Alias: alias, Columns: cols, Pos: pos}
		for _, a := range args {
			switch n, x := Marker(a); n {
			case MarkOrdinality:
				f.Ordinality = true
			case MarkColumnDef:
				last := &f.Funcs[len(f.Funcs)-1]
				last.Columns = append(last.Columns, columnDef(a, x))
			case MarkCallColumns:
				item := FuncItem{X: x[0]}
				for _, d := range x[1:] {
					_, y := Marker(d)
					item.Columns = append(item.Columns, columnDef(d, y))
				}
				f.Funcs = append(f.Funcs, item)
			default:
				f.Funcs = append(f.Funcs, FuncItem{X: a})
			}
		}
		return f
	}
	return nil
}

func columnDef(e ast.ExprNode, a []ast.ExprNode) ColumnDef {
	c := ColumnDef{Name: text(a[0]), Type: text(a[1]), Pos: e.OriginTextPosition()}
	if len(a) > 2 {
		_, c.Collation = splitName(text(a[2]))
	}
	return c
}

func joinOf(j *ast.Join) *Join {
	out := &Join{Left: fromItem(j.Left), Right: fromItem(j.Right), Natural: j.NaturalJoin, Pos: j.OriginTextPosition()}
	switch j.Tp {
	case ast.LeftJoin:
		out.Kind = LeftJoin
	case ast.RightJoin:
		out.Kind = RightJoin
	}
	switch {
	case j.NaturalJoin:
	case len(j.Using) > 0:
		for _, u := range j.Using {
			out.Using = append(out.Using, u.Name.O)
		}
	case j.On == nil:
		out.Kind = CrossJoin
	default:
		out.On = j.On.Expr
		switch n, a := Marker(j.On.Expr); n {
		case MarkFullJoin:
			out.Kind, out.On, out.Pos = FullJoin, a[0], j.On.Expr.OriginTextPosition()
		case MarkAsofJoin:
			out.Asof, out.On, out.Pos = true, a[0], j.On.Expr.OriginTextPosition()
		case MarkNaturalFullJoin:
			out.Kind, out.On, out.Natural = FullJoin, nil, true
		case MarkFullJoinUsing, MarkJoinUsing:
			if n == MarkFullJoinUsing {
				out.Kind = FullJoin
			}
			out.On = nil
			if c, ok := a[0].(*tidb.Const); !ok || c.V != nil {
				out.UsingAlias = columnName(a[0])
			}
			for _, x := range a[1:] {
				out.Using = append(out.Using, columnName(x))
			}
		}
	}
	return out
}

func columnName(e ast.ExprNode) string {
	c, ok := e.(*ast.ColumnNameExpr)
	if !ok {
		bug("column name wanted, got %T", e)
	}
	return c.Name.Name.O
}
