// Package sqlprint prints parsed queries as SQL, through the views of package pgext alone: what it prints parses to the same tree, in PostgreSQL too.
package sqlprint

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/pgext"
)

// Query prints a query.
func Query(q *pgext.Query) string {
	var b strings.Builder
	if w := q.With; w != nil {
		b.WriteString("WITH ")
		if w.Recursive {
			b.WriteString("RECURSIVE ")
		}
		for i, c := range w.CTEs {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(lex.QuoteIdent(c.Name) + Columns(c.Columns) + " AS (" + Query(pgext.QueryOf(c.Query)) + ")" + clauses(c.CTEClauses))
		}
		b.WriteString(" ")
	}
	switch {
	case q.Values != nil:
		var rows []string
		for _, r := range q.Values.Rows {
			rows = append(rows, "("+exprs(r)+")")
		}
		b.WriteString("VALUES " + strings.Join(rows, ", "))
	case q.SetOp != nil:
		op := [...]string{"UNION", "EXCEPT", "INTERSECT"}[q.SetOp.Kind]
		if q.SetOp.All {
			op += " ALL"
		}
		b.WriteString("(" + Query(q.SetOp.Left) + ") " + op + " (" + Query(q.SetOp.Right) + ")")
	default:
		b.WriteString(selectBody(q.Select))
	}
	if q.OrderBy != nil {
		b.WriteString(" ORDER BY " + keys(q.OrderBy))
	}
	if l := q.Limit; l != nil {
		if l.Offset != nil {
			b.WriteString(" OFFSET " + Expr(l.Offset))
		}
		switch {
		case l.WithTies:
			b.WriteString(" FETCH FIRST (" + Expr(l.Count) + ") ROWS WITH TIES")
		case l.Count != nil:
			b.WriteString(" LIMIT " + Expr(l.Count))
		}
	}
	for _, l := range q.Locks {
		b.WriteString(" " + l.Strength.String())
		for i, n := range l.Of {
			b.WriteString([...]string{" OF ", ", "}[min(i, 1)] + lex.QuoteIdent(n))
		}
		if l.Wait != "" {
			b.WriteString(" " + l.Wait)
		}
	}
	return b.String()
}

// Columns prints a list of column names in parentheses, nothing for nil.
func Columns(cs []string) string {
	if len(cs) == 0 {
		return ""
	}
	return "(" + idents(cs, ", ") + ")"
}

func keys(ks []pgext.SortKey) string {
	var xs []string
	for _, k := range ks {
		s := strconv.Itoa(k.Ordinal)
		if !k.ByNumber {
			s = Expr(k.X)
		}
		if k.Using != "" {
			s += " USING " + operator(k.UsingSchema, k.Using)
		} else if k.Desc {
			s += " DESC"
		}
		if k.NullsFirst {
			s += " NULLS FIRST"
		} else {
			s += " NULLS LAST"
		}
		xs = append(xs, s)
	}
	return strings.Join(xs, ", ")
}

func selectBody(s *pgext.Select) string {
	out := "SELECT "
	if s.Distinct {
		out += "DISTINCT "
	}
	if s.DistinctOn != nil {
		out += "DISTINCT ON (" + exprs(s.DistinctOn) + ") "
	}
	var xs []string
	for _, t := range s.Targets {
		switch {
		case t.Star && t.StarOf != nil:
			xs = append(xs, names(t.StarOf)+".*")
		case t.Star:
			xs = append(xs, "*")
		case t.Alias != "":
			xs = append(xs, Expr(t.X)+" AS "+lex.QuoteIdent(t.Alias))
		default:
			xs = append(xs, Expr(t.X))
		}
	}
	out += strings.Join(xs, ", ")
	for i, f := range s.From {
		out += [...]string{" FROM ", ", "}[min(i, 1)] + fromItem(f)
	}
	if s.Where != nil {
		out += " WHERE " + Expr(s.Where)
	}
	for i, g := range s.GroupBy {
		out += [...]string{" GROUP BY ", ", "}[min(i, 1)]
		if i == 0 && s.GroupDistinct {
			out += "DISTINCT "
		}
		out += group(g)
	}
	if s.Having != nil {
		out += " HAVING " + Expr(s.Having)
	}
	for i := range s.Windows {
		w := s.Windows[i]
		name := w.Name
		w.Name = ""
		out += [...]string{" WINDOW ", ", "}[min(i, 1)] + lex.QuoteIdent(name) + " AS " + window(w)
	}
	return out
}

func group(g pgext.GroupItem) string {
	var xs []string
	for _, x := range g.Items {
		xs = append(xs, group(x))
	}
	items := "(" + strings.Join(xs, ", ") + ")"
	switch g.Kind {
	case pgext.GroupEmpty:
		return "()"
	case pgext.GroupRollup:
		return "ROLLUP " + items
	case pgext.GroupCube:
		return "CUBE " + items
	case pgext.GroupSets:
		return "GROUPING SETS " + items
	}
	if g.ByNumber {
		return strconv.Itoa(g.Ordinal)
	}
	return Expr(g.X)
}

func window(w pgext.Window) string {
	if w.Name != "" {
		return lex.QuoteIdent(w.Name)
	}
	var parts []string
	if w.Ref != "" {
		parts = append(parts, lex.QuoteIdent(w.Ref))
	}
	if w.PartitionBy != nil {
		parts = append(parts, "PARTITION BY "+exprs(w.PartitionBy))
	}
	if w.OrderBy != nil {
		parts = append(parts, "ORDER BY "+keys(w.OrderBy))
	}
	if f := w.Frame; f != nil {
		s := [...]string{"ROWS", "RANGE", "GROUPS"}[f.Unit] + " BETWEEN " + bound(f.Start) + " AND " + bound(f.End)
		s += [...]string{"", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES"}[f.Exclude]
		parts = append(parts, s)
	}
	return "(" + strings.Join(parts, " ") + ")"
}

func bound(b pgext.Bound) string {
	switch b.Kind {
	case pgext.UnboundedPreceding:
		return "UNBOUNDED PRECEDING"
	case pgext.UnboundedFollowing:
		return "UNBOUNDED FOLLOWING"
	case pgext.CurrentRow:
		return "CURRENT ROW"
	case pgext.BoundPreceding:
		return operand(b.Offset) + " PRECEDING"
	}
	return operand(b.Offset) + " FOLLOWING"
}

func fromItem(f pgext.FromItem) string {
	alias := func(name string, cols []string) string {
		if name == "" {
			return ""
		}
		return " AS " + lex.QuoteIdent(name) + Columns(cols)
	}
	switch f := f.(type) {
	case *pgext.Relation:
		out := lex.QuoteIdent(f.Name)
		if f.Schema != "" {
			out = lex.QuoteIdent(f.Schema) + "." + out
		}
		if f.SystemTime != nil {
			out += " FOR SYSTEM_TIME AS OF " + Expr(f.SystemTime)
		}
		out += alias(f.Alias, f.Columns)
		if s := f.Sample; s != nil {
			out += " TABLESAMPLE " + lex.QuoteIdent(s.Method) + "(" + exprs(s.Args) + ")"
			if s.Repeatable != nil {
				out += " REPEATABLE (" + Expr(s.Repeatable) + ")"
			}
		}
		return out
	case *pgext.Derived:
		out := "(" + Query(pgext.QueryOf(f.Query)) + ")" + alias(f.Alias, f.Columns)
		if f.Lateral {
			out = "LATERAL " + out
		}
		return out
	case *pgext.TableFunction:
		var fs []string
		defs := ""
		for _, x := range f.Funcs {
			d := ""
			for i, c := range x.Columns {
				d += [...]string{"", ", "}[min(i, 1)] + lex.QuoteIdent(c.Name) + " " + c.Type
				if c.Collation != "" {
					d += " COLLATE " + lex.QuoteIdent(c.Collation)
				}
			}
			s := Expr(x.X)
			if d != "" {
				if f.RowsFrom {
					s += " AS (" + d + ")"
				} else {
					defs = "(" + d + ")"
				}
			}
			fs = append(fs, s)
		}
		out := strings.Join(fs, ", ")
		if f.RowsFrom {
			out = "ROWS FROM (" + out + ")"
		}
		if f.Ordinality {
			out += " WITH ORDINALITY"
		}
		if defs != "" {
			out += " AS "
			if f.Alias != "" {
				out += lex.QuoteIdent(f.Alias)
			}
			return out + defs
		}
		return out + alias(f.Alias, f.Columns)
	case *pgext.Join:
		kind := [...]string{"JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"}[f.Kind]
		if f.Natural {
			kind = "NATURAL " + kind
		}
		if f.Asof {
			kind = "ASOF " + kind
		}
		out := "(" + fromItem(f.Left) + " " + kind + " " + fromItem(f.Right)
		if f.On != nil {
			out += " ON " + Expr(f.On)
		}
		if f.Using != nil {
			out += " USING " + Columns(f.Using)
			if f.UsingAlias != "" {
				out += " AS " + lex.QuoteIdent(f.UsingAlias)
			}
		}
		return out + ")" + alias(f.Alias, f.Columns)
	}
	return fmt.Sprintf("<%T>", f)
}

// names prints a name of several parts.
func names(ns []string) string { return idents(ns, ".") }

func idents(ns []string, between string) string {
	var xs []string
	for _, n := range ns {
		xs = append(xs, lex.QuoteIdent(n))
	}
	return strings.Join(xs, between)
}

func exprs(xs []ast.ExprNode) string {
	var out []string
	for _, x := range xs {
		out = append(out, Expr(x))
	}
	return strings.Join(out, ", ")
}

func operator(schema, name string) string {
	if schema != "" {
		return "OPERATOR(" + lex.QuoteIdent(schema) + "." + name + ")"
	}
	return name
}

func operand(e ast.ExprNode) string {
	switch pgext.ExprOf(e).(type) {
	case *pgext.Const, *pgext.Column, *pgext.Param, *pgext.Subquery, *pgext.Row, *pgext.Call:
		return Expr(e)
	}
	return "(" + Expr(e) + ")"
}

func notWord(not bool) string {
	if not {
		return "NOT "
	}
	return ""
}

func call(c *pgext.Call) string {
	out := ""
	if c.Schema != "" {
		out = lex.QuoteIdent(c.Schema) + "."
	}
	out += `"` + strings.ReplaceAll(c.Name, `"`, `""`) + `"(`
	if c.Distinct {
		out += "DISTINCT "
	}
	if c.Star {
		out += "*"
	}
	for i, a := range c.Args {
		if i > 0 {
			out += ", "
		}
		if c.Variadic && i == len(c.Args)-1 {
			out += "VARIADIC "
		}
		if a.Name != "" {
			out += lex.QuoteIdent(a.Name) + " => "
		}
		out += Expr(a.X)
	}
	if c.OrderBy != nil {
		out += " ORDER BY " + keys(c.OrderBy)
	}
	out += ")"
	if c.WithinGroup != nil {
		out += " WITHIN GROUP (ORDER BY " + keys(c.WithinGroup) + ")"
	}
	if c.Filter != nil {
		out += " FILTER (WHERE " + Expr(c.Filter) + ")"
	}
	if c.IgnoreNulls {
		out += " IGNORE NULLS"
	}
	return out
}

// Expr prints an expression.
func Expr(e ast.ExprNode) string {
	sub := func(n ast.Node) string { return "(" + Query(pgext.QueryOf(n)) + ")" }
	switch x := pgext.ExprOf(e).(type) {
	case *pgext.Const:
		switch x.Kind {
		case pgext.ConstNull:
			return "NULL"
		case pgext.ConstBool:
			return strings.ToUpper(strconv.FormatBool(x.Bool))
		case pgext.ConstInt:
			return strconv.FormatInt(x.Int, 10)
		case pgext.ConstString:
			return lex.QuoteLiteral(x.Text)
		case pgext.ConstNumeric:
			return x.Text
		}
		return strings.ToUpper(x.Text[:1]) + lex.QuoteLiteral(x.Text[1:])
	case *pgext.TypedLiteral:
		if f, ok := strings.CutPrefix(x.Type, "interval "); ok {
			return "interval " + lex.QuoteLiteral(x.Text) + " " + f
		}
		return x.Type + " " + lex.QuoteLiteral(x.Text)
	case *pgext.Param:
		return "$" + strconv.Itoa(x.N)
	case *pgext.Default:
		return "DEFAULT"
	case *pgext.SQLValue:
		if x.Precision >= 0 {
			return strings.ToUpper(x.Name) + "(" + strconv.Itoa(x.Precision) + ")"
		}
		return strings.ToUpper(x.Name)
	case *pgext.Column:
		return names(x.Names)
	case *pgext.Star:
		return names(x.Names) + ".*"
	case *pgext.Cast:
		return operand(x.X) + "::" + x.Type
	case *pgext.Op:
		if len(x.Args) == 1 {
			return operator(x.Schema, x.Name) + " " + operand(x.Args[0])
		}
		return operand(x.Args[0]) + " " + operator(x.Schema, x.Name) + " " + operand(x.Args[1])
	case *pgext.Logic:
		var xs []string
		for _, a := range x.Args {
			xs = append(xs, operand(a))
		}
		if x.Or {
			return strings.Join(xs, " OR ")
		}
		return strings.Join(xs, " AND ")
	case *pgext.Not:
		return "NOT " + operand(x.X)
	case *pgext.IsNull:
		return operand(x.X) + " IS " + notWord(x.Not) + "NULL"
	case *pgext.IsBool:
		return operand(x.X) + " IS " + notWord(x.Not) + [...]string{"TRUE", "FALSE", "UNKNOWN"}[x.Value]
	case *pgext.IsDistinct:
		return operand(x.L) + " IS " + notWord(x.Not) + "DISTINCT FROM " + operand(x.R)
	case *pgext.Between:
		s := "BETWEEN "
		if x.Symmetric {
			s += "SYMMETRIC "
		}
		return operand(x.X) + " " + notWord(x.Not) + s + operand(x.Lo) + " AND " + operand(x.Hi)
	case *pgext.In:
		if x.Query != nil {
			return operand(x.X) + " " + notWord(x.Not) + "IN " + sub(x.Query)
		}
		return operand(x.X) + " " + notWord(x.Not) + "IN (" + exprs(x.List) + ")"
	case *pgext.AnyAll:
		s := operand(x.X) + " " + operator(x.Schema, x.Op) + " " + anyAll(x.All)
		if x.Query != nil {
			return s + sub(x.Query)
		}
		return s + "(" + operand(x.Array) + ")"
	case *pgext.Exists:
		return notWord(x.Not) + "EXISTS " + sub(x.Query)
	case *pgext.Subquery:
		return sub(x.Query)
	case *pgext.ArrayQuery:
		return "ARRAY" + sub(x.Query)
	case *pgext.Array:
		return "ARRAY[" + exprs(x.Elems) + "]"
	case *pgext.Row:
		if !x.Explicit && len(x.Elems) > 1 {
			return "(" + exprs(x.Elems) + ")"
		}
		return "ROW(" + exprs(x.Elems) + ")"
	case *pgext.Subscript:
		return subscripted(x.X) + "[" + Expr(x.Index) + "]"
	case *pgext.Slice:
		lo, hi := "", ""
		if x.Lo != nil {
			lo = Expr(x.Lo)
		}
		if x.Hi != nil {
			hi = Expr(x.Hi)
		}
		return subscripted(x.X) + "[" + lo + " : " + hi + "]"
	case *pgext.Field:
		return "(" + Expr(x.X) + ")." + lex.QuoteIdent(x.Name)
	case *pgext.FieldStar:
		return "(" + Expr(x.X) + ").*"
	case *pgext.Collate:
		s := lex.QuoteIdent(x.Name)
		if x.Schema != "" {
			s = lex.QuoteIdent(x.Schema) + "." + s
		}
		return operand(x.X) + " COLLATE " + s
	case *pgext.Case:
		s := "CASE"
		if x.Arg != nil {
			s += " " + Expr(x.Arg)
		}
		for _, w := range x.Whens {
			s += " WHEN " + Expr(w.Cond) + " THEN " + Expr(w.Result)
		}
		if x.Else != nil {
			s += " ELSE " + Expr(x.Else)
		}
		return s + " END"
	case *pgext.Special:
		return strings.ToUpper(x.Name) + "(" + exprs(x.Args) + ")"
	case *pgext.Call:
		return call(x)
	case *pgext.WindowCall:
		return call(x.Call) + " OVER " + window(x.Window)
	}
	return fmt.Sprintf("<%T>", e)
}

// clauses prints SEARCH and CYCLE.
func clauses(c pgext.CTEClauses) string {
	out := ""
	if s := c.Search; s != nil {
		order := "DEPTH"
		if s.Breadth {
			order = "BREADTH"
		}
		out += " SEARCH " + order + " FIRST BY " + idents(s.By, ", ") + " SET " + lex.QuoteIdent(s.Column)
	}
	if y := c.Cycle; y != nil {
		out += " CYCLE " + idents(y.By, ", ") + " SET " + lex.QuoteIdent(y.Mark) + " TO " + y.Value + " DEFAULT " + y.Default + " USING " + lex.QuoteIdent(y.Path)
	}
	return out
}

func anyAll(all bool) string {
	if all {
		return "ALL "
	}
	return "ANY "
}

// subscripted prints what stands before a bracket: another bracket of the same array as it is, for a[1][2] is not (a[1])[2].
func subscripted(e ast.ExprNode) string {
	switch pgext.ExprOf(e).(type) {
	case *pgext.Subscript, *pgext.Slice:
		return Expr(e)
	}
	return "(" + Expr(e) + ")"
}
