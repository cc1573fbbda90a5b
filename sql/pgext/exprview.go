package pgext

import (
	"fmt"
	"strings"

	"github.com/pingcap/tidb/pkg/parser/ast"
	"github.com/pingcap/tidb/pkg/parser/opcode"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/tidb"
)

// Marker returns the name and arguments of a marker call, "" for any other node.
func Marker(e ast.Node) (string, []ast.ExprNode) {
	if f, ok := e.(*ast.FuncCallExpr); ok && f.Schema.O == Schema {
		return f.FnName.O, f.Args
	}
	return "", nil
}

// bug reports a tree that the translator cannot have produced.
func bug(format string, args ...any) {
	panic(pgerr.Newf(pgerr.InternalError, "unexpected syntax tree: "+format, args...))
}

// Recover turns the panic of a view over an impossible tree into an error; defer it where a tree is first consumed.
func Recover(err *error) {
	switch r := recover().(type) {
	case nil:
	case *pgerr.Error:
		*err = r
	default:
		panic(r)
	}
}

func text(e ast.ExprNode) string {
	c, ok := e.(*tidb.Const)
	if !ok {
		bug("constant wanted, got %T", e)
	}
	return c.GetString()
}

func integer(e ast.ExprNode) int64 {
	c, ok := unparen(e).(*tidb.Const)
	if ok {
		if n, ok := c.V.(int64); ok {
			return n
		}
	}
	bug("integer wanted, got %T", e)
	return 0
}

func texts(xs []ast.ExprNode) []string {
	out := make([]string, len(xs))
	for i, x := range xs {
		out[i] = text(x)
	}
	return out
}

func unparen(e ast.ExprNode) ast.ExprNode {
	for {
		p, ok := e.(*ast.ParenthesesExpr)
		if !ok {
			return e
		}
		e = p.Expr
	}
}

func names(cs []ast.CIStr) []string {
	if len(cs) == 0 {
		return nil
	}
	out := make([]string, len(cs))
	for i, c := range cs {
		out[i] = c.O
	}
	return out
}

// opName reads the operator argument of a marker: a symbol, [not ]like or ilike, or operator:schema.symbol.
func opName(e ast.ExprNode) (schema, name string) {
	s := text(e)
	switch s {
	case "like":
		return "", "~~"
	case "not like":
		return "", "!~~"
	case "ilike":
		return "", "~~*"
	case "not ilike":
		return "", "!~~*"
	}
	if q, ok := strings.CutPrefix(s, "operator:"); ok {
		if i := strings.LastIndexByte(q, '.'); i >= 0 {
			return q[:i], q[i+1:]
		}
		return "", q
	}
	return "", s
}

// splitName splits a canonical quoted name, `"a"."b"`, into schema and name.
func splitName(s string) (schema, name string) {
	var parts []string
	for len(s) > 0 && s[0] == '"' {
		i := 1
		for i < len(s) {
			if s[i] == '"' {
				if i+1 < len(s) && s[i+1] == '"' {
					i += 2
					continue
				}
				break
			}
			i++
		}
		if i >= len(s) {
			bug("name %s", s)
		}
		parts = append(parts, strings.ReplaceAll(s[1:i], `""`, `"`))
		s = strings.TrimPrefix(s[i+1:], ".")
	}
	switch len(parts) {
	case 0:
		return "", s
	case 1:
		return "", parts[0]
	}
	return parts[len(parts)-2], parts[len(parts)-1]
}

var binaryNames = map[opcode.Op]string{
	opcode.Plus: "+", opcode.Minus: "-", opcode.Mul: "*", opcode.Div: "/", opcode.Mod: "%",
	opcode.EQ: "=", opcode.NE: "<>", opcode.LT: "<", opcode.GT: ">", opcode.LE: "<=", opcode.GE: ">=",
}

// ExprOf returns the view of an expression. It never returns nil; a tree that no query can produce panics (see Recover).
func ExprOf(e ast.ExprNode) Expr {
	e = unparen(e)
	pos := e.OriginTextPosition()
	switch x := e.(type) {
	case *tidb.Const:
		return constant(x, pos)
	case *ast.ColumnNameExpr:
		n := x.Name
		c := &Column{Pos: pos}
		if n.Schema.O != "" {
			c.Names = append(c.Names, n.Schema.O)
		}
		if n.Table.O != "" {
			c.Names = append(c.Names, n.Table.O)
		}
		c.Names = append(c.Names, n.Name.O)
		return c
	case *ast.DefaultExpr:
		return &Default{Pos: pos}
	case *ast.SubqueryExpr:
		return &Subquery{Query: x.Query, Pos: pos}
	case *ast.ExistsSubqueryExpr:
		return &Exists{Query: subquery(x.Sel), Not: x.Not, Pos: pos}
	case *ast.UnaryOperationExpr:
		switch x.Op {
		case opcode.Not, opcode.Not2:
			return &Not{X: x.V, Pos: pos}
		case opcode.Minus:
			return &Op{Name: "-", Args: []ast.ExprNode{x.V}, Pos: pos}
		case opcode.Plus:
			return &Op{Name: "+", Args: []ast.ExprNode{x.V}, Pos: pos}
		}
	case *ast.BinaryOperationExpr:
		if x.Op == opcode.LogicAnd || x.Op == opcode.LogicOr {
			return logic(x, pos)
		}
		if name, ok := binaryNames[x.Op]; ok {
			return &Op{Name: name, Args: []ast.ExprNode{x.L, x.R}, Pos: pos}
		}
	case *ast.CompareSubqueryExpr:
		return &AnyAll{Op: binaryNames[x.Op], X: x.L, All: x.All, Query: subquery(x.R), Pos: pos}
	case *ast.IsNullExpr:
		return &IsNull{X: x.Expr, Not: x.Not, Pos: pos}
	case *ast.IsTruthExpr:
		v := False
		if x.True > 0 {
			v = True
		}
		return &IsBool{X: x.Expr, Value: v, Not: x.Not, Pos: pos}
	case *ast.BetweenExpr:
		return &Between{X: x.Expr, Lo: x.Left, Hi: x.Right, Not: x.Not, Pos: pos}
	case *ast.PatternInExpr:
		if x.Sel != nil {
			return &In{X: x.Expr, Query: subquery(x.Sel), Not: x.Not, Pos: pos}
		}
		return &In{X: x.Expr, List: x.List, Not: x.Not, Pos: pos}
	case *ast.PatternLikeOrIlikeExpr:
		name := "~~"
		if !x.IsLike {
			name = "~~*"
		}
		if x.Not {
			name = "!" + name
		}
		return &Op{Name: name, Args: []ast.ExprNode{x.Expr, x.Pattern}, Pos: pos}
	case *ast.CaseExpr:
		c := &Case{Arg: x.Value, Else: x.ElseClause, Pos: pos, Whens: make([]When, len(x.WhenClauses))}
		for i, w := range x.WhenClauses {
			c.Whens[i] = When{w.Expr, w.Result}
		}
		return c
	case *ast.WindowFuncExpr:
		call, ok := x.Args[0].(*ast.FuncCallExpr)
		if !ok {
			bug("window carrier of %T", x.Args[0])
		}
		w := window(&x.Spec)
		return &WindowCall{Call: callOf(call), Window: w, Pos: call.OriginTextPosition()}
	case *ast.FuncCallExpr:
		if x.Schema.O == Schema {
			return marked(x.FnName.O, x.Args, pos)
		}
		return callOf(x)
	}
	bug("expression %T", e)
	return nil
}

func subquery(e ast.ExprNode) ast.Node {
	s, ok := unparen(e).(*ast.SubqueryExpr)
	if !ok {
		bug("sub-select wanted, got %T", e)
	}
	return s.Query
}

func constant(x *tidb.Const, pos int) *Const {
	switch v := x.V.(type) {
	case nil:
		return &Const{Kind: ConstNull, Pos: pos}
	case bool:
		return &Const{Kind: ConstBool, Bool: v, Pos: pos}
	case int64:
		return &Const{Kind: ConstInt, Int: v, Pos: pos}
	case string:
		return &Const{Kind: ConstString, Text: v, Pos: pos}
	}
	bug("constant %T", x.V)
	return nil
}

// logic flattens the left spine of an AND or OR chain, so that consumers do not recurse as deep as it is long.
func logic(x *ast.BinaryOperationExpr, pos int) *Logic {
	n := 2
	for l, ok := x.L.(*ast.BinaryOperationExpr); ok && l.Op == x.Op; l, ok = l.L.(*ast.BinaryOperationExpr) {
		n++
	}
	out := &Logic{Or: x.Op == opcode.LogicOr, Args: make([]ast.ExprNode, n), Pos: pos}
	for n--; n > 1; n-- {
		out.Args[n] = x.R
		x = x.L.(*ast.BinaryOperationExpr)
	}
	out.Args[1], out.Args[0] = x.R, x.L
	return out
}

func marked(name string, a []ast.ExprNode, pos int) Expr {
	switch name {
	case MarkCast:
		return &Cast{X: a[0], Type: text(a[1]), Pos: pos, TypePos: a[1].OriginTextPosition()}
	case MarkLiteral:
		return &TypedLiteral{Type: text(a[0]), Text: text(a[1]), Pos: pos, TextPos: a[1].OriginTextPosition()}
	case MarkNumeric:
		return &Const{Kind: ConstNumeric, Text: text(a[0]), Pos: pos}
	case MarkBit:
		return &Const{Kind: ConstBit, Text: text(a[0]), Pos: pos}
	case MarkParam:
		return &Param{N: int(integer(a[0])), Pos: pos}
	case MarkDefault:
		return &Default{Pos: pos}
	case MarkSQLValue:
		v := &SQLValue{Name: text(a[0]), Precision: -1, Pos: pos}
		if len(a) > 1 {
			v.Precision = int(integer(a[1]))
		}
		return v
	case MarkColumn:
		return &Column{Names: texts(a), Pos: pos}
	case MarkRowStar:
		return &Star{Names: texts(a), Pos: pos}
	case MarkOrdinal:
		return &Const{Kind: ConstInt, Int: integer(a[0]), Pos: pos}
	case MarkOp:
		schema, op := opName(a[0])
		return &Op{Schema: schema, Name: op, Args: a[1:], Pos: pos}
	case MarkAny, MarkAll:
		schema, op := opName(a[0])
		return &AnyAll{Schema: schema, Op: op, X: a[1], All: name == MarkAll, Array: a[2], Pos: pos}
	case MarkAnySubquery, MarkAllSubquery:
		schema, op := opName(a[0])
		return &AnyAll{Schema: schema, Op: op, X: a[1], All: name == MarkAllSubquery, Query: subquery(a[2]), Pos: pos}
	case MarkIsDistinct, MarkIsNotDistinct:
		return &IsDistinct{L: a[0], R: a[1], Not: name == MarkIsNotDistinct, Pos: pos}
	case MarkIsUnknown, MarkIsNotUnknown:
		return &IsBool{X: a[0], Value: Unknown, Not: name == MarkIsNotUnknown, Pos: pos}
	case MarkBetweenSymmetric, MarkNotBetweenSymmetric:
		return &Between{X: a[0], Lo: a[1], Hi: a[2], Symmetric: true, Not: name == MarkNotBetweenSymmetric, Pos: pos}
	case MarkCollate:
		schema, coll := splitName(text(a[1]))
		return &Collate{X: a[0], Schema: schema, Name: coll, Pos: pos}
	case MarkCoalesce, MarkNullIf, MarkGreatest, MarkLeast, MarkGrouping:
		return &Special{Name: name, Args: a, Pos: pos}
	case MarkArray:
		return &Array{Elems: a, Pos: pos}
	case MarkArraySubquery:
		return &ArrayQuery{Query: subquery(a[0]), Pos: pos}
	case MarkSubscript:
		return &Subscript{X: a[0], Index: a[1], Pos: pos}
	case MarkSlice:
		return &Slice{X: a[0], Lo: bound(a[1]), Hi: bound(a[2]), Pos: pos}
	case MarkField:
		return &Field{X: a[0], Name: text(a[1]), Pos: pos}
	case MarkFieldStar:
		return &FieldStar{X: a[0], Pos: pos}
	case MarkRow, MarkImplicitRow:
		return &Row{Elems: a, Explicit: name == MarkRow, Pos: pos}
	}
	bug("marker %s", name)
	return nil
}

func bound(e ast.ExprNode) ast.ExprNode {
	if n, _ := Marker(e); n == MarkNoBound {
		return nil
	}
	return e
}

func callOf(x *ast.FuncCallExpr) *Call {
	c := &Call{Schema: x.Schema.O, Name: x.FnName.O, Pos: x.OriginTextPosition()}
	for _, a := range x.Args {
		switch n, y := Marker(a); n {
		case MarkStar:
			c.Star = true
		case MarkDistinct:
			c.Distinct = true
		case MarkVariadic:
			c.Variadic = true
			a = y[0]
			if n, z := Marker(a); n == MarkNamed {
				c.Args = append(c.Args, Arg{Name: text(z[0]), X: z[1], Pos: a.OriginTextPosition()})
			} else {
				c.Args = append(c.Args, Arg{X: a})
			}
		case MarkNamed:
			c.Args = append(c.Args, Arg{Name: text(y[0]), X: y[1], Pos: a.OriginTextPosition()})
		case MarkOrderBy:
			c.OrderBy = callKeys(y)
		case MarkWithinGroup:
			c.WithinGroup = callKeys(y)
		case MarkFilter:
			c.Filter = y[0]
		case MarkIgnoreNulls:
			c.IgnoreNulls, c.IgnoreNullsPos = true, a.OriginTextPosition()
		default:
			c.Args = append(c.Args, Arg{X: a})
		}
	}
	return c
}

func callKeys(xs []ast.ExprNode) []SortKey {
	out := make([]SortKey, len(xs))
	for i, x := range xs {
		dir, y := Marker(x)
		out[i] = sortKey(y[0], dir == MarkDesc, false)
	}
	return out
}

// describe names a view in messages about trees that cannot be.
func describe(e Expr) string { return strings.TrimPrefix(fmt.Sprintf("%T", e), "*pgext.") }
