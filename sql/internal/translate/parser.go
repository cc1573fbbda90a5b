// Package translate is PostgreSQL's query grammar. It parses queries and expressions and prints them in TiDB's dialect, with the
// markers of package pgext for what that lacks.
//
// There is one method per rule of gram.y, by its name where it helps; precedence climbing with gram.y's levels for expressions.
// Two rules carry most of the weight: "(" may open a query, a row, a join or an expression, solved without backtracking by returning
// either from one function (parenExpr, parenTable, selectParens); and a query stays open until rendered, since PostgreSQL lets
// `(SELECT ..) ORDER BY ..` add clauses to the inner one.
package translate

import (
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/pgext"
)

// Parser parses the queries of one message. The statement grammar of package sql shares its cursor.
type Parser struct {
	lex.Cursor

	relations map[string]int
	// unqualified has the offsets of the names of relations that no schema stands before.
	unqualified map[int]bool
	into        *Name
	intoTemp    bool

	// allowDefault lets DEFAULT stand inside a row: UPDATE SET (a,b) = (1,DEFAULT).
	allowDefault bool

	// Change parses INSERT, UPDATE or DELETE inside a WITH clause and returns its number among those of the statement.
	Change func() int
}

// Name is a possibly qualified name.
type Name struct {
	Catalog, Schema, Name string
	Pos                   int
}

// Part is one translated query.
type Part struct {
	Text       string
	Map        SourceMap
	Relations  map[string]int // relation (schema.name or name) -> first offset
	Into       *Name          // SELECT INTO
	IntoTemp   bool
	Start, End int // span in the message
	MaxParam   int
}

// New returns a parser over the tokens of src.
func New(src string, toks []lex.Token) *Parser {
	return &Parser{Cursor: lex.Cursor{Src: src, Toks: toks}}
}

// part renders what was parsed since token start.
func (p *Parser) part(start int, f *frag) *Part {
	r := &renderer{m: make(SourceMap, 0, 2*(p.I-start)+8)}
	r.b.Grow(4*(p.I-start) + 64)
	r.add(f)
	out := &Part{Text: r.b.String(), Map: r.m, Relations: p.relations, Into: p.into, IntoTemp: p.intoTemp, Start: p.Toks[start].Pos, MaxParam: p.MaxParam(start)}
	out.End = out.Start
	if p.I > start {
		out.End = p.Toks[p.I-1].End
	}
	p.relations, p.into, p.intoTemp = nil, nil, false
	return out
}

// MaxParam returns the highest parameter number among the tokens from start to the cursor.
func (p *Parser) MaxParam(start int) int {
	n := 0
	for i := start; i < p.I; i++ {
		if t := &p.Toks[i]; t.K == lex.Param {
			v, _ := strconv.Atoi(t.Val)
			n = max(n, v)
		}
	}
	return n
}

// Query parses a whole query: SelectStmt.
func (p *Parser) Query() *Part {
	start := p.I
	return p.part(start, p.queryFrom(nil).render())
}

// Expr parses one expression (a_expr) as SELECT e.
func (p *Parser) Expr() *Part {
	start := p.I
	return p.part(start, seq(0, lit("SELECT "), p.expr(0)))
}

// BExpr parses a restricted expression (b_expr), which DEFAULT of a column takes.
func (p *Parser) BExpr() *Part {
	start := p.I
	return p.part(start, seq(0, lit("SELECT "), p.bExpr()))
}

// CExpr parses a primary expression (c_expr): an index expression without parentheses is a function call.
func (p *Parser) CExpr() *Part {
	start := p.I
	return p.part(start, seq(0, lit("SELECT "), p.cExpr()))
}

// ParenSelect reports whether the "(" at the cursor opens a (possibly nested) query.
func (p *Parser) ParenSelect() bool { return p.parenSelect() }

// StartsQuery reports whether the token at the cursor can begin a query.
func (p *Parser) StartsQuery() bool { return p.startsSelect(0) || p.parenSelect() }

// QualifiedName parses a name of up to three parts.
func (p *Parser) QualifiedName() Name {
	t := p.ColID()
	parts := []string{t.Val}
	for p.Accept(".") {
		parts = append(parts, p.ColLabel().Val)
	}
	n := Name{Pos: t.Pos, Name: parts[len(parts)-1]}
	switch len(parts) {
	case 1:
	case 2:
		n.Schema = parts[0]
	case 3:
		n.Catalog, n.Schema = parts[0], parts[1]
	default:
		lex.Fail(pgerr.SyntaxError, t.Pos, "improper qualified name (too many dotted names): %s", strings.Join(parts, "."))
	}
	p.Local(n)
	if n.Schema == pgext.Schema {
		lex.Fail(pgerr.InvalidSchemaName, t.Pos, "schema \"%s\" does not exist", n.Schema)
	}
	return n
}

// Local refuses the name of something in another database.
func (p *Parser) Local(n Name) {
	if n.Catalog != "" && n.Catalog != lex.DatabaseName {
		lex.Fail(pgerr.FeatureNotSupported, n.Pos, "cross-database references are not implemented: \"%s.%s.%s\"", n.Catalog, n.Schema, n.Name)
	}
}

func (n Name) frag() *frag {
	if n.Schema == "" {
		return at(n.Pos, quoteIdent(n.Name))
	}
	return at(n.Pos, quoteIdent(n.Schema)+"."+quoteIdent(n.Name))
}

// relationName parses the name of a relation and records its place.
func (p *Parser) relationName() *frag {
	n := p.QualifiedName()
	key := n.Name
	if n.Schema != "" {
		key = n.Schema + "." + n.Name
	} else {
		if p.unqualified == nil {
			p.unqualified = make(map[int]bool, 4)
		}
		p.unqualified[n.Pos] = true
	}
	p.place(key, n.Pos)
	return n.frag()
}

// NamesRelation reports whether the unqualified name at the offset is that of a relation, and not of a query of a WITH clause.
func (p *Parser) NamesRelation(name string, pos int) bool {
	_, with := p.relations[pgext.CTEPlace+"."+name]
	return p.unqualified[pos] && !with
}

// place records where a name stands first.
func (p *Parser) place(key string, pos int) {
	if p.relations == nil {
		p.relations = make(map[string]int, 4)
	}
	if _, ok := p.relations[key]; !ok {
		p.relations[key] = pos
	}
}

func ident(t *lex.Token) *frag { return at(t.Pos, quoteIdent(t.Val)) }
