package sql

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/sql/pgext"
)

// printQuery prints a query through the views alone, so that a round trip shows that they lose nothing.
func printQuery(q *pgext.Query) string {
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
			b.WriteString(QuoteIdent(c.Name) + printColumns(c.Columns) + " AS (" + printQuery(pgext.QueryOf(c.Query)) + ")")
		}
		b.WriteString(" ")
	}
	switch {
	case q.Values != nil:
		var rows []string
		for _, r := range q.Values.Rows {
			rows = append(rows, "("+printExprs(r)+")")
		}
		b.WriteString("VALUES " + strings.Join(rows, ", "))
	case q.SetOp != nil:
		op := [...]string{"UNION", "EXCEPT", "INTERSECT"}[q.SetOp.Kind]
		if q.SetOp.All {
			op += " ALL"
		}
		b.WriteString("(" + printQuery(q.SetOp.Left) + ") " + op + " (" + printQuery(q.SetOp.Right) + ")")
	default:
		b.WriteString(printSelect(q.Select))
	}
	if q.OrderBy != nil {
		b.WriteString(" ORDER BY " + printKeys(q.OrderBy))
	}
	if l := q.Limit; l != nil {
		if l.Offset != nil {
			b.WriteString(" OFFSET " + printExpr(l.Offset))
		}
		switch {
		case l.WithTies:
			b.WriteString(" FETCH FIRST (" + printExpr(l.Count) + ") ROWS WITH TIES")
		case l.Count != nil:
			b.WriteString(" LIMIT " + printExpr(l.Count))
		}
	}
	return b.String()
}

func printColumns(cs []string) string {
	if cs == nil {
		return ""
	}
	var xs []string
	for _, c := range cs {
		xs = append(xs, QuoteIdent(c))
	}
	return "(" + strings.Join(xs, ", ") + ")"
}

func printKeys(ks []pgext.SortKey) string {
	var xs []string
	for _, k := range ks {
		s := strconv.Itoa(k.Ordinal)
		if !k.ByNumber {
			s = printExpr(k.X)
		}
		if k.Using != "" {
			s += " USING " + printOp(k.UsingSchema, k.Using)
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

func printSelect(s *pgext.Select) string {
	out := "SELECT "
	if s.Distinct {
		out += "DISTINCT "
	}
	if s.DistinctOn != nil {
		out += "DISTINCT ON (" + printExprs(s.DistinctOn) + ") "
	}
	var xs []string
	for _, t := range s.Targets {
		switch {
		case t.Star && t.StarOf != nil:
			xs = append(xs, printNames(t.StarOf)+".*")
		case t.Star:
			xs = append(xs, "*")
		case t.Alias != "":
			xs = append(xs, printExpr(t.X)+" AS "+QuoteIdent(t.Alias))
		default:
			xs = append(xs, printExpr(t.X))
		}
	}
	out += strings.Join(xs, ", ")
	for i, f := range s.From {
		out += [...]string{" FROM ", ", "}[min(i, 1)] + printFrom(f)
	}
	if s.Where != nil {
		out += " WHERE " + printExpr(s.Where)
	}
	for i, g := range s.GroupBy {
		out += [...]string{" GROUP BY ", ", "}[min(i, 1)]
		if i == 0 && s.GroupDistinct {
			out += "DISTINCT "
		}
		out += printGroup(g)
	}
	if s.Having != nil {
		out += " HAVING " + printExpr(s.Having)
	}
	for i := range s.Windows {
		w := s.Windows[i]
		name := w.Name
		w.Name = ""
		out += [...]string{" WINDOW ", ", "}[min(i, 1)] + QuoteIdent(name) + " AS " + printWindow(w)
	}
	return out
}

func printGroup(g pgext.GroupItem) string {
	var xs []string
	for _, x := range g.Items {
		xs = append(xs, printGroup(x))
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
	return printExpr(g.X)
}

func printWindow(w pgext.Window) string {
	if w.Name != "" {
		return QuoteIdent(w.Name)
	}
	var parts []string
	if w.Ref != "" {
		parts = append(parts, QuoteIdent(w.Ref))
	}
	if w.PartitionBy != nil {
		parts = append(parts, "PARTITION BY "+printExprs(w.PartitionBy))
	}
	if w.OrderBy != nil {
		parts = append(parts, "ORDER BY "+printKeys(w.OrderBy))
	}
	if f := w.Frame; f != nil {
		s := [...]string{"ROWS", "RANGE", "GROUPS"}[f.Unit] + " BETWEEN " + printBound(f.Start) + " AND " + printBound(f.End)
		s += [...]string{"", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES"}[f.Exclude]
		parts = append(parts, s)
	}
	return "(" + strings.Join(parts, " ") + ")"
}

func printBound(b pgext.Bound) string {
	switch b.Kind {
	case pgext.UnboundedPreceding:
		return "UNBOUNDED PRECEDING"
	case pgext.UnboundedFollowing:
		return "UNBOUNDED FOLLOWING"
	case pgext.CurrentRow:
		return "CURRENT ROW"
	case pgext.BoundPreceding:
		return printOperand(b.Offset) + " PRECEDING"
	}
	return printOperand(b.Offset) + " FOLLOWING"
}

func printFrom(f pgext.FromItem) string {
	alias := func(name string, cols []string) string {
		if name == "" {
			return ""
		}
		return " AS " + QuoteIdent(name) + printColumns(cols)
	}
	switch f := f.(type) {
	case *pgext.Relation:
		out := QuoteIdent(f.Name)
		if f.Schema != "" {
			out = QuoteIdent(f.Schema) + "." + out
		}
		if f.SystemTime != nil {
			out += " FOR SYSTEM_TIME AS OF " + printExpr(f.SystemTime)
		}
		out += alias(f.Alias, f.Columns)
		if s := f.Sample; s != nil {
			out += " TABLESAMPLE " + QuoteIdent(s.Method) + "(" + printExprs(s.Args) + ")"
			if s.Repeatable != nil {
				out += " REPEATABLE (" + printExpr(s.Repeatable) + ")"
			}
		}
		return out
	case *pgext.Derived:
		out := "(" + printQuery(pgext.QueryOf(f.Query)) + ")" + alias(f.Alias, f.Columns)
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
				d += [...]string{"", ", "}[min(i, 1)] + QuoteIdent(c.Name) + " " + c.Type
				if c.Collation != "" {
					d += " COLLATE " + QuoteIdent(c.Collation)
				}
			}
			s := printExpr(x.X)
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
				out += QuoteIdent(f.Alias)
			}
			return out + defs
		}
		return out + alias(f.Alias, f.Columns)
	case *pgext.Join:
		kind := [...]string{"JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"}[f.Kind]
		if f.Natural {
			kind = "NATURAL " + kind
		}
		out := "(" + printFrom(f.Left) + " " + kind + " " + printFrom(f.Right)
		if f.On != nil {
			out += " ON " + printExpr(f.On)
		}
		if f.Using != nil {
			out += " USING " + printColumns(f.Using)
			if f.UsingAlias != "" {
				out += " AS " + QuoteIdent(f.UsingAlias)
			}
		}
		return out + ")" + alias(f.Alias, f.Columns)
	}
	return fmt.Sprintf("<%T>", f)
}

func printNames(ns []string) string {
	var xs []string
	for _, n := range ns {
		xs = append(xs, QuoteIdent(n))
	}
	return strings.Join(xs, ".")
}

func printExprs(xs []ast.ExprNode) string {
	var out []string
	for _, x := range xs {
		out = append(out, printExpr(x))
	}
	return strings.Join(out, ", ")
}

func printOp(schema, name string) string {
	if schema != "" {
		return "OPERATOR(" + QuoteIdent(schema) + "." + name + ")"
	}
	return name
}

func printOperand(e ast.ExprNode) string {
	switch pgext.ExprOf(e).(type) {
	case *pgext.Const, *pgext.Column, *pgext.Param, *pgext.Subquery, *pgext.Row, *pgext.Call:
		return printExpr(e)
	}
	return "(" + printExpr(e) + ")"
}

func notWord(not bool) string {
	if not {
		return "NOT "
	}
	return ""
}

func printCall(c *pgext.Call) string {
	out := ""
	if c.Schema != "" {
		out = QuoteIdent(c.Schema) + "."
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
			out += QuoteIdent(a.Name) + " => "
		}
		out += printExpr(a.X)
	}
	if c.OrderBy != nil {
		out += " ORDER BY " + printKeys(c.OrderBy)
	}
	out += ")"
	if c.WithinGroup != nil {
		out += " WITHIN GROUP (ORDER BY " + printKeys(c.WithinGroup) + ")"
	}
	if c.Filter != nil {
		out += " FILTER (WHERE " + printExpr(c.Filter) + ")"
	}
	return out
}

func printExpr(e ast.ExprNode) string {
	sub := func(n ast.Node) string { return "(" + printQuery(pgext.QueryOf(n)) + ")" }
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
			return QuoteLiteral(x.Text)
		case pgext.ConstNumeric:
			return x.Text
		}
		return strings.ToUpper(x.Text[:1]) + QuoteLiteral(x.Text[1:])
	case *pgext.TypedLiteral:
		if f, ok := strings.CutPrefix(x.Type, "interval "); ok {
			return "interval " + QuoteLiteral(x.Text) + " " + f
		}
		return x.Type + " " + QuoteLiteral(x.Text)
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
		return printNames(x.Names)
	case *pgext.Star:
		return printNames(x.Names) + ".*"
	case *pgext.Cast:
		return printOperand(x.X) + "::" + x.Type
	case *pgext.Op:
		if len(x.Args) == 1 {
			return printOp(x.Schema, x.Name) + " " + printOperand(x.Args[0])
		}
		return printOperand(x.Args[0]) + " " + printOp(x.Schema, x.Name) + " " + printOperand(x.Args[1])
	case *pgext.Logic:
		var xs []string
		for _, a := range x.Args {
			xs = append(xs, printOperand(a))
		}
		if x.Or {
			return strings.Join(xs, " OR ")
		}
		return strings.Join(xs, " AND ")
	case *pgext.Not:
		return "NOT " + printOperand(x.X)
	case *pgext.IsNull:
		return printOperand(x.X) + " IS " + notWord(x.Not) + "NULL"
	case *pgext.IsBool:
		return printOperand(x.X) + " IS " + notWord(x.Not) + [...]string{"TRUE", "FALSE", "UNKNOWN"}[x.Value]
	case *pgext.IsDistinct:
		return printOperand(x.L) + " IS " + notWord(x.Not) + "DISTINCT FROM " + printOperand(x.R)
	case *pgext.Between:
		s := "BETWEEN "
		if x.Symmetric {
			s += "SYMMETRIC "
		}
		return printOperand(x.X) + " " + notWord(x.Not) + s + printOperand(x.Lo) + " AND " + printOperand(x.Hi)
	case *pgext.In:
		if x.Query != nil {
			return printOperand(x.X) + " " + notWord(x.Not) + "IN " + sub(x.Query)
		}
		return printOperand(x.X) + " " + notWord(x.Not) + "IN (" + printExprs(x.List) + ")"
	case *pgext.AnyAll:
		s := printOperand(x.X) + " " + printOp(x.Schema, x.Op) + " " + [...]string{"ANY ", "ALL "}[boolToInt(x.All)]
		if x.Query != nil {
			return s + sub(x.Query)
		}
		return s + "(" + printOperand(x.Array) + ")"
	case *pgext.Exists:
		return notWord(x.Not) + "EXISTS " + sub(x.Query)
	case *pgext.Subquery:
		return sub(x.Query)
	case *pgext.ArrayQuery:
		return "ARRAY" + sub(x.Query)
	case *pgext.Array:
		return "ARRAY[" + printExprs(x.Elems) + "]"
	case *pgext.Row:
		if !x.Explicit && len(x.Elems) > 1 {
			return "(" + printExprs(x.Elems) + ")"
		}
		return "ROW(" + printExprs(x.Elems) + ")"
	case *pgext.Subscript:
		return "(" + printExpr(x.X) + ")[" + printExpr(x.Index) + "]"
	case *pgext.Slice:
		lo, hi := "", ""
		if x.Lo != nil {
			lo = printExpr(x.Lo)
		}
		if x.Hi != nil {
			hi = printExpr(x.Hi)
		}
		return "(" + printExpr(x.X) + ")[" + lo + " : " + hi + "]"
	case *pgext.Field:
		return "(" + printExpr(x.X) + ")." + QuoteIdent(x.Name)
	case *pgext.FieldStar:
		return "(" + printExpr(x.X) + ").*"
	case *pgext.Collate:
		s := QuoteIdent(x.Name)
		if x.Schema != "" {
			s = QuoteIdent(x.Schema) + "." + s
		}
		return printOperand(x.X) + " COLLATE " + s
	case *pgext.Case:
		s := "CASE"
		if x.Arg != nil {
			s += " " + printExpr(x.Arg)
		}
		for _, w := range x.Whens {
			s += " WHEN " + printExpr(w.Cond) + " THEN " + printExpr(w.Result)
		}
		if x.Else != nil {
			s += " ELSE " + printExpr(x.Else)
		}
		return s + " END"
	case *pgext.Special:
		return strings.ToUpper(x.Name) + "(" + printExprs(x.Args) + ")"
	case *pgext.Call:
		return printCall(x)
	case *pgext.WindowCall:
		return printCall(x.Call) + " OVER " + printWindow(x.Window)
	}
	return fmt.Sprintf("<%T>", e)
}
