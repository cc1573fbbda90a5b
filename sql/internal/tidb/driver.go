// Package tidb is the only caller of TiDB's parser. It supplies the parser's literal driver, keeps parsers in a pool and turns the
// positions of the tree into positions of the user's text.
package tidb

import (
	"fmt"
	"io"
	"sync"

	"github.com/pingcap/tidb/pkg/parser/ast"
	"github.com/pingcap/tidb/pkg/parser/format"
)

// Const is the literal node of the driver: V is nil, bool, int64 or string. The translated text has no other literals; numbers
// beyond int8 and with a point are calls of the numeric marker.
type Const struct {
	ast.TexprNode
	V any
}

var _ ast.ValueExpr = (*Const)(nil)

// SetValue implements ast.ValueExpr.
func (c *Const) SetValue(v any) { c.V = v }

// GetValue implements ast.ValueExpr.
func (c *Const) GetValue() any { return c.V }

// GetString implements ast.ValueExpr.
func (c *Const) GetString() string { s, _ := c.V.(string); return s }

// GetDatumString implements ast.ValueExpr.
func (c *Const) GetDatumString() string { return c.GetString() }

// GetProjectionOffset implements ast.ValueExpr.
func (c *Const) GetProjectionOffset() int { return -1 }

// SetProjectionOffset implements ast.ValueExpr.
func (c *Const) SetProjectionOffset(int) {}

// Format implements ast.ExprNode.
func (c *Const) Format(w io.Writer) { fmt.Fprint(w, c.V) }

// Restore implements ast.Node.
func (c *Const) Restore(ctx *format.RestoreCtx) error {
	switch v := c.V.(type) {
	case nil:
		ctx.WriteKeyWord("NULL")
	case string:
		ctx.WriteString(v)
	default:
		ctx.WritePlain(fmt.Sprint(v))
	}
	return nil
}

// Accept implements ast.Node.
func (c *Const) Accept(v ast.Visitor) (ast.Node, bool) {
	n, _ := v.Enter(c)
	return v.Leave(n)
}

// paramMarker exists because the parser requires a constructor; the translated text has no `?`.
type paramMarker struct{ Const }

func (p *paramMarker) SetOrder(int) {}

// install sets the parser's literal constructors, which are variables of package ast.
var install = sync.OnceFunc(func() {
	ast.NewValueExpr = func(v any, _, _ string) ast.ValueExpr {
		if c, ok := v.(*Const); ok {
			return c
		}
		return &Const{V: v}
	}
	ast.NewParamMarkerExpr = func(int) ast.ParamMarkerExpr { return &paramMarker{} }
	text := func(s string) (any, error) { return s, nil }
	ast.NewDecimal, ast.NewHexLiteral, ast.NewBitLiteral = text, text, text
})
