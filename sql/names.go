package sql

import (
	"github.com/streamdb/streamdb/sql/internal/lex"
)

// QuoteIdent prints an identifier as PostgreSQL's quote_ident does: quoted where that is needed.
func QuoteIdent(s string) string { return lex.QuoteIdent(s) }

// QuoteLiteral prints a string constant as PostgreSQL's quote_literal does.
func QuoteLiteral(s string) string { return lex.QuoteLiteral(s) }
