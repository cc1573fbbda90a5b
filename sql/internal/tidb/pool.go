package tidb

import (
	"reflect"
	"sync"
	"unsafe"

	tidb "github.com/pingcap/tidb/pkg/parser"
	"github.com/pingcap/tidb/pkg/parser/ast"
	"github.com/pingcap/tidb/pkg/parser/mysql"
)

// mode is what the translated text is written in.
const mode = mysql.ModeANSIQuotes | mysql.ModeNoBackslashEscapes

// parsers are reused because a fresh one costs more than the parse of a short query.
var parsers = sync.Pool{New: func() any {
	install()
	p := tidb.New()
	p.SetSQLMode(mode)
	f := reflect.ValueOf(p).Elem().FieldByName("cache")
	return &pooled{Parser: p, stack: reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()}
}}

// pooled is a parser and its stack. The parser leaves the nodes of the last tree on the stack and, when it reduces an empty production,
// sets the position of what lies there: without forget it would write into a tree that another session reads by then.
type pooled struct {
	*tidb.Parser
	stack reflect.Value
}

func (p *pooled) forget() { p.stack.Slice(0, p.stack.Cap()).Clear() }

// CTEPlace stands for the schema in the places of WITH queries: their nodes have no position of their own.
const CTEPlace = "\x00with"

// Mapping gives the user's offset for an offset of the translated text.
type Mapping interface {
	// Exact returns the source offset of the token that starts at out, -1 when it has none.
	Exact(out int) int
	// Find returns the source offset of the last token with one that starts at or before out.
	Find(out int) int
}

// Parse parses one translated query and rewrites the positions of its nodes to the source: -1 where there is none, the operator's
// own place for operators, relation for the first offset of a table name.
func Parse(text string, m Mapping, relation func(schema, name string) int) (ast.StmtNode, error) {
	p := parsers.Get().(*pooled)
	defer parsers.Put(p)
	st, err := p.ParseOneStmt(text, "", "")
	p.forget()
	if err != nil {
		return nil, err
	}
	st.Accept(&positions{m: m, relation: relation})
	return st, nil
}

// positions rewrites each node's offset. A node's operands still carry translated offsets when it is entered, which tells where an
// operator stands: just before its right operand.
type positions struct {
	m        Mapping
	relation func(schema, name string) int
}

// Enter implements ast.Visitor.
func (v *positions) Enter(n ast.Node) (ast.Node, bool) {
	var right ast.Node
	pos := -1
	switch x := n.(type) {
	case *ast.BinaryOperationExpr:
		right = x.R
	case *ast.CompareSubqueryExpr:
		right = x.R
	case *ast.BetweenExpr:
		right = x.Left
	case *ast.PatternLikeOrIlikeExpr:
		right = x.Pattern
	case *ast.PatternInExpr:
		if x.Sel != nil {
			right = x.Sel
		} else if len(x.List) > 0 {
			right = x.List[0]
		}
	case *ast.TableName:
		n.SetOriginTextPosition(v.relation(x.Schema.O, x.Name.O))
		return n, false
	case *ast.CommonTableExpression:
		n.SetOriginTextPosition(v.relation(CTEPlace, x.Name.O))
		return n, false
	case *ast.SelectField:
		if x.WildCard != nil {
			pos = v.m.Exact(x.Offset)
		}
		n.SetOriginTextPosition(pos)
		return n, false
	}
	switch raw := n.OriginTextPosition(); {
	case right != nil:
		pos = v.m.Find(right.OriginTextPosition() - 1)
	case raw > 0:
		pos = v.m.Exact(raw)
	}
	n.SetOriginTextPosition(pos)
	return n, false
}

// Leave implements ast.Visitor.
func (v *positions) Leave(n ast.Node) (ast.Node, bool) { return n, true }
