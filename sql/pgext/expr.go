package pgext

import (
	"github.com/pingcap/tidb/pkg/parser/ast"
)

// Expr is a view of one expression node. The concrete types are those of this file; operands stay ast.ExprNode, to be viewed in turn.
// Every view's Pos is the byte offset in the message that PostgreSQL would report, -1 when unknown.
type Expr interface{ expr() }

// ConstKind is the lexical class of a constant.
type ConstKind uint8

// The classes of constants.
const (
	ConstNull    ConstKind = iota
	ConstBool              // Bool
	ConstInt               // Int: fits int8 (int4 when it fits that)
	ConstString            // Text: of unknown type
	ConstNumeric           // Text: exact digits
	ConstBit               // Text: "b101" or "x1f"
)

type (
	// Const is a literal without a type of its own.
	Const struct {
		Kind ConstKind
		Bool bool
		Int  int64
		Text string
		Pos  int
	}
	// TypedLiteral is `type 'text'`.
	TypedLiteral struct {
		Type, Text string
		Pos        int // of the type
		TextPos    int
	}
	// Param is $n.
	Param struct{ N, Pos int }
	// Default is DEFAULT as a value of INSERT or UPDATE.
	Default struct{ Pos int }
	// SQLValue is CURRENT_DATE, LOCALTIME(3), CURRENT_USER ..; Name in lower case, Precision -1 when absent.
	SQLValue struct {
		Name      string
		Precision int
		Pos       int
	}
	// Column is a column reference of one to four parts: [[[catalog.]schema.]table.]column.
	Column struct {
		Names []string
		Pos   int
	}
	// Star is `t.*` inside an expression, as in row(t.*) or count(t.*).
	Star struct {
		Names []string
		Pos   int
	}
	// Cast is x::type and CAST(x AS type).
	Cast struct {
		X       ast.ExprNode
		Type    string // read it with sql.ParseTypeName
		Pos     int
		TypePos int
	}
	// Op is an operator with one or two operands, PostgreSQL's names (<> not !=; LIKE is ~~, NOT ILIKE is !~~*).
	Op struct {
		Schema, Name string
		Args         []ast.ExprNode
		Pos          int
	}
	// Logic is AND, or OR when Or is set, of two or more operands.
	Logic struct {
		Or   bool
		Args []ast.ExprNode
		Pos  int // of the last operator
	}
	// Not is NOT x.
	Not struct {
		X   ast.ExprNode
		Pos int
	}
	// IsNull is x IS [NOT] NULL.
	IsNull struct {
		X   ast.ExprNode
		Not bool
		Pos int
	}
	// IsBool is x IS [NOT] TRUE, FALSE or UNKNOWN.
	IsBool struct {
		X     ast.ExprNode
		Value Truth
		Not   bool
		Pos   int
	}
	// IsDistinct is a IS [NOT] DISTINCT FROM b.
	IsDistinct struct {
		L, R ast.ExprNode
		Not  bool
		Pos  int
	}
	// Between is x [NOT] BETWEEN [SYMMETRIC] lo AND hi.
	Between struct {
		X, Lo, Hi      ast.ExprNode
		Not, Symmetric bool
		Pos            int
	}
	// In is x [NOT] IN (list), or x [NOT] IN (query) when Query is set.
	In struct {
		X     ast.ExprNode
		List  []ast.ExprNode
		Query ast.Node
		Not   bool
		Pos   int
	}
	// AnyAll is x op ANY|ALL (array), or (query) when Query is set.
	AnyAll struct {
		Schema, Op string
		X          ast.ExprNode
		All        bool
		Array      ast.ExprNode
		Query      ast.Node
		Pos        int
	}
	// Exists is [NOT] EXISTS (query).
	Exists struct {
		Query ast.Node
		Not   bool
		Pos   int
	}
	// Subquery is a scalar (query).
	Subquery struct {
		Query ast.Node
		Pos   int
	}
	// ArrayQuery is ARRAY(query).
	ArrayQuery struct {
		Query ast.Node
		Pos   int
	}
	// Array is ARRAY[..]; nested brackets are Arrays too.
	Array struct {
		Elems []ast.ExprNode
		Pos   int
	}
	// Row is ROW(..), or (a, b) when not Explicit. Elements may be Star.
	Row struct {
		Elems    []ast.ExprNode
		Explicit bool
		Pos      int
	}
	// Subscript is x[i].
	Subscript struct {
		X, Index ast.ExprNode
		Pos      int
	}
	// Slice is x[lo:hi]; nil for an omitted bound.
	Slice struct {
		X, Lo, Hi ast.ExprNode
		Pos       int
	}
	// Field is (x).name.
	Field struct {
		X    ast.ExprNode
		Name string
		Pos  int
	}
	// FieldStar is (x).*.
	FieldStar struct {
		X   ast.ExprNode
		Pos int
	}
	// Collate is x COLLATE name.
	Collate struct {
		X            ast.ExprNode
		Schema, Name string
		Pos          int
	}
	// Case is CASE [arg] WHEN .. END.
	Case struct {
		Arg   ast.ExprNode
		Whens []When
		Else  ast.ExprNode
		Pos   int
	}
	// When is one branch of Case.
	When struct{ Cond, Result ast.ExprNode }
	// Special is COALESCE, NULLIF, GREATEST, LEAST or GROUPING; Name in lower case.
	Special struct {
		Name string
		Args []ast.ExprNode
		Pos  int
	}
	// Call is a function call with its decorations.
	Call struct {
		Schema, Name string
		Args         []Arg
		Star         bool // f(*)
		Variadic     bool // the last argument is VARIADIC
		Distinct     bool
		OrderBy      []SortKey
		WithinGroup  []SortKey
		Filter       ast.ExprNode
		// IgnoreNulls: IGNORE NULLS before OVER, as in the SQL standard.
		IgnoreNulls    bool
		IgnoreNullsPos int
		Pos            int
	}
	// Arg is one argument of a call; Name is empty for a positional one.
	Arg struct {
		Name string
		X    ast.ExprNode
		Pos  int // of the name, if there is one
	}
	// WindowCall is call OVER window.
	WindowCall struct {
		Call   *Call
		Window Window
		Pos    int
	}
)

// Truth is the right side of IS TRUE and its kin.
type Truth uint8

// The values of Truth.
const (
	True Truth = iota
	False
	Unknown
)

func (*Const) expr()        {}
func (*TypedLiteral) expr() {}
func (*Param) expr()        {}
func (*Default) expr()      {}
func (*SQLValue) expr()     {}
func (*Column) expr()       {}
func (*Star) expr()         {}
func (*Cast) expr()         {}
func (*Op) expr()           {}
func (*Logic) expr()        {}
func (*Not) expr()          {}
func (*IsNull) expr()       {}
func (*IsBool) expr()       {}
func (*IsDistinct) expr()   {}
func (*Between) expr()      {}
func (*In) expr()           {}
func (*AnyAll) expr()       {}
func (*Exists) expr()       {}
func (*Subquery) expr()     {}
func (*ArrayQuery) expr()   {}
func (*Array) expr()        {}
func (*Row) expr()          {}
func (*Subscript) expr()    {}
func (*Slice) expr()        {}
func (*Field) expr()        {}
func (*FieldStar) expr()    {}
func (*Collate) expr()      {}
func (*Case) expr()         {}
func (*Special) expr()      {}
func (*Call) expr()         {}
func (*WindowCall) expr()   {}
