package sql

import (
	"strings"

	"github.com/streamdb/streamdb/sql/internal/lex"
)

// QuoteIdent prints an identifier as PostgreSQL's quote_ident does: quoted where that is needed.
func QuoteIdent(s string) string { return lex.QuoteIdent(s) }

// QuoteLiteral prints a string constant as PostgreSQL's quote_literal does.
func QuoteLiteral(s string) string {
	q := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(s, `\`) {
		return "E" + strings.ReplaceAll(q, `\`, `\\`)
	}
	return q
}
