package functions

import "strings"

// keywords are the words that need quotes as identifiers: PostgreSQL's keywords that are not unreserved.
const keywords = `
all analyse analyze and any array as asc asymmetric authorization between bigint binary bit boolean both case cast char character check
coalesce collate collation column concurrently constraint create cross current_catalog current_date current_role current_schema current_time
current_timestamp current_user dec decimal default deferrable desc distinct do else end except exists extract false fetch float for foreign
freeze from full grant greatest group grouping having ilike in initially inner inout int integer intersect interval into is isnull join
lateral leading least left like limit localtime localtimestamp national natural nchar none normalize not notnull null nullif numeric offset
on only or order out outer overlaps overlay placing position precision primary real references returning right row select session_user setof
similar smallint some substring symmetric table tablesample then time timestamp to trailing treat trim true union unique user using values
varchar variadic verbose when where window with xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot
xmlserialize xmltable
`

// QuoteIdent quotes a name where SQL needs it, as quote_ident does.
func QuoteIdent(s string) string { return quoteIdent(s) }

// quoteIdent quotes a name where SQL needs it.
func quoteIdent(s string) string {
	plain := s != "" && (s[0] >= 'a' && s[0] <= 'z' || s[0] == '_')
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_') {
			plain = false
		}
	}
	if plain {
		for _, k := range strings.Fields(keywords) {
			if k == s {
				plain = false
				break
			}
		}
	}
	if plain {
		return s
	}
	return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
}
