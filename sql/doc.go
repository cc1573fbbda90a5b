// Package sql turns the text of a client's message into statements.
//
//	text -> internal/lex (tokens) -> statement grammar (this package)      -> own structs
//	                              \-> internal/translate (query grammar)   -> text in TiDB's dialect
//	                                   \-> internal/tidb (TiDB's parser)   -> ast, read through pgext
//
// Statements of streamdb and of PostgreSQL's utility commands are structs of this package. Every query and every expression in
// them is a *Query, whose tree is TiDB's AST with PostgreSQL-only constructs as calls in the reserved schema pg_ext. Package pgext
// is the only reader of that convention. All positions are byte offsets into the whole message.
package sql
