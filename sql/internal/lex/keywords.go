package lex

import "strings"

// DatabaseName is the one database of a server.
const DatabaseName = "streamdb"

// The keywords of PostgreSQL 15, as pg_get_keywords() lists them, by category: U unreserved, C column name, T type or function name,
// R reserved. Those in the AS lists cannot be a column label without AS.
const (
	columnName = `between bigint bit boolean coalesce dec decimal exists extract float greatest grouping inout int integer interval
least national nchar none normalize nullif numeric out overlay position real row setof smallint substring time
timestamp treat trim values varchar xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse
xmlpi xmlroot xmlserialize xmltable`
	columnNameAS = `char character precision`
	reserved     = `all analyse analyze and any asc asymmetric both case cast check collate column constraint current_catalog current_date
current_role current_time current_timestamp current_user default deferrable desc distinct do else end false foreign in
initially lateral leading localtime localtimestamp not null only or placing primary references select session_user
some symmetric table then trailing true unique user using variadic when`
	reservedAS = `array as create except fetch for from grant group having intersect into limit offset on order returning to union where
window with`
	typeFunc = `authorization binary collation concurrently cross current_schema freeze full ilike inner is join left like natural
outer right similar tablesample verbose`
	typeFuncAS = `isnull notnull overlaps`
	unreserved = `abort absolute access action add admin after aggregate also alter always asensitive assertion assignment at atomic
attach attribute backward before begin breadth by cache call called cascade cascaded catalog chain characteristics
checkpoint class close cluster columns comment comments commit committed compression configuration conflict connection
constraints content continue conversion copy cost csv cube current cursor cycle data database deallocate declare
defaults deferred definer delete delimiter delimiters depends depth detach dictionary disable discard document domain
double drop each enable encoding encrypted enum escape event exclude excluding exclusive execute explain expression
extension external family finalize first following force forward function functions generated global granted groups
handler header hold identity if immediate immutable implicit import include including increment index indexes inherit
inherits inline input insensitive insert instead invoker isolation key label language large last leakproof level
listen load local location lock locked logged mapping match matched materialized maxvalue merge method minvalue mode
move name names new next nfc nfd nfkc nfkd no normalized nothing notify nowait nulls object of off oids old operator
option options ordinality others overriding owned owner parallel parameter parser partial partition passing password
plans policy preceding prepare prepared preserve prior privileges procedural procedure procedures program publication
quote range read reassign recheck recursive ref referencing refresh reindex relative release rename repeatable replace
replica reset restart restrict return returns revoke role rollback rollup routine routines rows rule savepoint schema
schemas scroll search security sequence sequences serializable server session set sets share show simple skip snapshot
sql stable standalone start statement statistics stdin stdout storage stored strict strip subscription support sysid
system tables tablespace temp template temporary text ties transaction transform trigger truncate trusted type types
uescape unbounded uncommitted unencrypted unknown unlisten unlogged until update vacuum valid validate validator value
version view views volatile whitespace work wrapper write xml yes zone`
	unreservedAS = `day filter hour minute month over second varying within without year`
)

// keyword is what is known of a word.
type keyword struct {
	cat  byte
	bare bool
}

var keywords = buildKeywords()

func buildKeywords() map[string]keyword {
	m := make(map[string]keyword, 500)
	add := func(words string, cat byte, bare bool) {
		for _, w := range strings.Fields(words) {
			m[w] = keyword{cat, bare}
		}
	}
	add(columnName, 'C', true)
	add(columnNameAS, 'C', false)
	add(reserved, 'R', true)
	add(reservedAS, 'R', false)
	add(typeFunc, 'T', true)
	add(typeFuncAS, 'T', false)
	add(unreserved, 'U', true)
	add(unreservedAS, 'U', false)
	return m
}

// Category returns the keyword category of a lower-case word (U, C, T or R), 0 for a word that is no keyword.
func Category(word string) byte { return keywords[word].cat }
