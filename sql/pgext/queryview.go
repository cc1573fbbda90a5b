package pgext

import (
	"encoding/json"
	"strings"

	"github.com/pingcap/tidb/pkg/parser/ast"
)

// QueryOf returns the view of a query: the Stmt of a sql.Query, or the Query handle of another view.
func QueryOf(n ast.Node) *Query {
	switch s := n.(type) {
	case *ast.SelectStmt:
		q := &Query{With: with(s.With), Pos: s.OriginTextPosition()}
		if s.Kind == ast.SelectStmtKindValues {
			q.Values = &Values{Rows: make([][]ast.ExprNode, len(s.Lists))}
			for i, r := range s.Lists {
				q.Values.Rows[i] = r.Values
			}
			if len(s.Lists) > 0 && len(s.Lists[0].Values) > 0 {
				q.Pos = s.Lists[0].Values[0].OriginTextPosition()
			}
		} else {
			q.Select = selectOf(s)
			if t := q.Select.Targets; len(t) > 0 {
				q.Pos = t[0].Pos
			}
		}
		q.order(s.OrderBy)
		return q
	case *ast.SetOprStmt:
		q := setOp(s.SelectList.Selects)
		q.With = with(s.With)
		q.order(s.OrderBy)
		return q
	case *ast.SetOprSelectList:
		if len(s.Selects) == 1 && s.OrderBy == nil && s.With == nil {
			return QueryOf(s.Selects[0])
		}
		q := setOp(s.Selects)
		q.With = with(s.With)
		q.order(s.OrderBy)
		return q
	case *ast.SubqueryExpr:
		return QueryOf(s.Query)
	}
	bug("query %T", n)
	return nil
}

// Change returns the number of the statement that a WITH query stands for, in sql.Query's Changes. Ok tells whether it is such a one.
func Change(q ast.Node) (number int, ok bool) {
	s, ok := q.(*ast.SelectStmt)
	if !ok || s.Kind != ast.SelectStmtKindSelect || s.Fields == nil || len(s.Fields.Fields) != 1 || s.Fields.Fields[0].Expr == nil {
		return 0, false
	}
	name, args := Marker(s.Fields.Fields[0].Expr)
	if name != MarkChange {
		return 0, false
	}
	return int(integer(args[0])), true
}

// setOp folds the list of operands from the left, as both grammars do among operators of one precedence.
func setOp(xs []ast.Node) *Query {
	q := QueryOf(xs[0])
	for _, x := range xs[1:] {
		var op *ast.SetOprType
		switch s := x.(type) {
		case *ast.SelectStmt:
			op = s.AfterSetOperator
		case *ast.SetOprSelectList:
			op = s.AfterSetOperator
		}
		if op == nil {
			bug("operand %T of a set operation", x)
		}
		s := &SetOp{Left: q, Right: QueryOf(x)}
		switch *op {
		case ast.UnionAll, ast.ExceptAll, ast.IntersectAll:
			s.All = true
		}
		switch *op {
		case ast.Except, ast.ExceptAll:
			s.Kind = Except
		case ast.Intersect, ast.IntersectAll:
			s.Kind = Intersect
		}
		q = &Query{SetOp: s, Pos: q.Pos}
	}
	return q
}

func with(w *ast.WithClause) *With {
	if w == nil {
		return nil
	}
	out := &With{Recursive: w.IsRecursive, CTEs: make([]CTE, len(w.CTEs))}
	for i, c := range w.CTEs {
		out.CTEs[i] = CTE{Name: c.Name.O, Columns: names(c.ColNameList), Query: c.Query.Query, Pos: c.OriginTextPosition()}
		out.CTEs[i].clauses()
	}
	return out
}

// clausesPrefix begins the name that carries CTEClauses; no identifier has a NUL.
const clausesPrefix = "\x00"

// Name writes the clauses as a name.
func (c *CTEClauses) Name() string {
	b, err := json.Marshal(c)
	if err != nil { // there are only strings and numbers in it
		panic(err)
	}
	return clausesPrefix + string(b)
}

// clauses takes such a name out of the columns' names.
func (c *CTE) clauses() {
	last := len(c.Columns) - 1
	if last < 0 || !strings.HasPrefix(c.Columns[last], clausesPrefix) {
		return
	}
	if err := json.Unmarshal([]byte(c.Columns[last][len(clausesPrefix):]), &c.CTEClauses); err != nil {
		panic(err)
	}
	c.Columns = c.Columns[:last:last]
}

func (q *Query) order(o *ast.OrderByClause) {
	if o == nil {
		return
	}
	items := o.Items
	for len(items) > 0 {
		e := items[len(items)-1].Expr
		name, a := Marker(e)
		if name != MarkLock {
			break
		}
		items = items[:len(items)-1]
		l := Lock{Strength: LockStrength(integer(a[0])), Wait: text(a[1]), Pos: e.OriginTextPosition()}
		for _, x := range a[2:] {
			l.Of, l.OfPos = append(l.Of, text(x)), append(l.OfPos, x.OriginTextPosition())
		}
		q.Locks = append([]Lock{l}, q.Locks...)
	}
	if len(items) == 0 {
		return
	}
	last := items[len(items)-1].Expr
	if name, a := Marker(last); name == MarkLimit || name == MarkLimitWithTies {
		items = items[:len(items)-1]
		q.Limit = &Limit{WithTies: name == MarkLimitWithTies, Pos: last.OriginTextPosition(), Count: bound(a[0])}
		if len(a) > 1 {
			q.Limit.Offset = a[1]
		}
	}
	q.OrderBy = sortKeys(items)
}

func sortKeys(items []*ast.ByItem) []SortKey {
	if len(items) == 0 {
		return nil
	}
	out := make([]SortKey, len(items))
	for i, it := range items {
		out[i] = sortKey(it.Expr, it.Desc, true)
	}
	return out
}

func sortKey(e ast.ExprNode, desc, ordinals bool) SortKey {
	k := SortKey{Desc: desc}
	nulls, inner := Marker(e)
	if nulls == MarkNullsFirst || nulls == MarkNullsLast {
		e = inner[0]
	}
	if n, a := Marker(e); n == MarkOrderUsing {
		k.UsingSchema, k.Using = opName(a[1])
		k.Desc = k.Using == ">"
		e = a[0]
	}
	k.NullsFirst = nulls == MarkNullsFirst || k.Desc && nulls != MarkNullsLast
	if n, a := Marker(e); n == MarkOrdinal && ordinals {
		k.ByNumber, k.Ordinal = true, int(integer(a[0]))
	}
	k.X, k.Pos = e, e.OriginTextPosition()
	return k
}

func selectOf(s *ast.SelectStmt) *Select {
	out := &Select{Distinct: s.Distinct}
	fields := s.Fields.Fields
	if len(fields) > 0 && fields[0].WildCard == nil {
		switch n, a := Marker(fields[0].Expr); n {
		case MarkDistinctOn:
			out.DistinctOn = a
			fields = fields[1:]
		case MarkNoColumns, MarkDeleteRow:
			fields = nil
		}
	}
	out.Targets = make([]Target, len(fields))
	for i, f := range fields {
		out.Targets[i] = target(f)
	}
	if s.From != nil && s.From.TableRefs != nil {
		out.From = fromList(s.From.TableRefs)
	}
	out.Where = s.Where
	if s.GroupBy != nil {
		for _, it := range s.GroupBy.Items {
			if n, _ := Marker(it.Expr); n == MarkGroupDistinct {
				out.GroupDistinct = true
				continue
			}
			out.GroupBy = append(out.GroupBy, groupItem(it.Expr))
		}
	}
	if s.Having != nil {
		out.Having = s.Having.Expr
	}
	for i := range s.WindowSpecs {
		out.Windows = append(out.Windows, window(&s.WindowSpecs[i]))
	}
	return out
}

func target(f *ast.SelectField) Target {
	if w := f.WildCard; w != nil {
		t := Target{Star: true, Pos: f.OriginTextPosition()}
		if w.Schema.O != "" {
			t.StarOf = append(t.StarOf, w.Schema.O)
		}
		if w.Table.O != "" {
			t.StarOf = append(t.StarOf, w.Table.O)
		}
		return t
	}
	return Target{X: f.Expr, Alias: f.AsName.O, Pos: f.Expr.OriginTextPosition()}
}

func groupItem(e ast.ExprNode) GroupItem {
	g := GroupItem{Pos: e.OriginTextPosition()}
	n, a := Marker(e)
	switch n {
	case MarkEmptyGroupingSet:
		g.Kind = GroupEmpty
		return g
	case MarkOrdinal:
		g.ByNumber, g.Ordinal, g.X = true, int(integer(a[0])), e
		return g
	case MarkRollup:
		g.Kind = GroupRollup
	case MarkCube:
		g.Kind = GroupCube
	case MarkGroupingSets:
		g.Kind = GroupSets
	default:
		g.X = e
		return g
	}
	g.Items = make([]GroupItem, len(a))
	for i, x := range a {
		g.Items[i] = groupItem(x)
	}
	return g
}

func window(w *ast.WindowSpec) Window {
	out := Window{Name: w.Name.O, Pos: w.OriginTextPosition()}
	if w.OnlyAlias {
		return out
	}
	out.Ref = w.Ref.O
	var excl Exclusion
	if w.PartitionBy != nil {
		items := w.PartitionBy.Items
		if n, a := Marker(items[len(items)-1].Expr); n == MarkExclude {
			switch text(a[0]) {
			case "current row":
				excl = ExcludeCurrentRow
			case "group":
				excl = ExcludeGroup
			case "ties":
				excl = ExcludeTies
			}
			items = items[:len(items)-1]
		}
		for _, it := range items {
			out.PartitionBy = append(out.PartitionBy, it.Expr)
		}
	}
	if w.OrderBy != nil {
		out.OrderBy = sortKeys(w.OrderBy.Items)
	}
	if f := w.Frame; f != nil {
		out.Frame = &Frame{Start: frameBound(f.Extent.Start), End: frameBound(f.Extent.End), Exclude: excl}
		switch f.Type {
		case ast.Ranges:
			out.Frame.Unit = Range
		case ast.Groups:
			out.Frame.Unit = Groups
		}
	}
	return out
}

func frameBound(b ast.FrameBound) Bound {
	following := b.Type == ast.Following
	switch {
	case b.Type == ast.CurrentRow:
		return Bound{Kind: CurrentRow}
	case b.UnBounded && following:
		return Bound{Kind: UnboundedFollowing}
	case b.UnBounded:
		return Bound{Kind: UnboundedPreceding}
	case following:
		return Bound{Kind: BoundFollowing, Offset: b.Expr}
	}
	return Bound{Kind: BoundPreceding, Offset: b.Expr}
}

// Assignments returns the SET list of an UPDATE's or ON CONFLICT's query.
func Assignments(s *Select) []Assignment {
	out := make([]Assignment, len(s.Targets))
	for i, t := range s.Targets {
		n, a := Marker(t.X)
		switch n {
		case MarkAssign:
			out[i] = Assignment{Columns: []AssignTarget{assignTarget(a[0])}, Value: a[1], Pos: t.Pos}
		case MarkAssignRow:
			out[i] = Assignment{Row: true, Value: a[0], Pos: t.Pos}
			for _, c := range a[1:] {
				out[i].Columns = append(out[i].Columns, assignTarget(c))
			}
		default:
			bug("assignment %s", describe(ExprOf(t.X)))
		}
	}
	return out
}

// AssignTargets returns the column list of an INSERT's Targets.
func AssignTargets(s *Select) []AssignTarget {
	out := make([]AssignTarget, len(s.Targets))
	for i, t := range s.Targets {
		out[i] = assignTarget(t.X)
	}
	return out
}

func assignTarget(n ast.ExprNode) AssignTarget {
	base := n
	for {
		switch e := ExprOf(base).(type) {
		case *Subscript:
			base = e.X
		case *Slice:
			base = e.X
		case *Field:
			base = e.X
		case *Const:
			t := AssignTarget{Column: e.Text, Pos: e.Pos}
			if base != n {
				t.Part = n
			}
			return t
		default:
			bug("assignment to %s", describe(e))
		}
	}
}
