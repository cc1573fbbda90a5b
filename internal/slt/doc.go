// Package slt runs sqllogictest files against a server, in several modes.
//
//	files ─▶ parse ─▶ []record ─▶ runner ─▶ Target (PostgreSQL protocol)
//	                                │
//	                                └─ views: each query again as a materialized view (view-first, data-first, restart, parallel)
//
// # The format
//
// Records are separated by empty lines; a line that begins with # is a comment.
//
//	statement ok                     the statement succeeds
//	statement count N                it succeeds and touches N rows
//	statement error [22012|REGEXP]   it fails, with that SQLSTATE or a message that matches
//	query TYPES [nosort|rowsort|valuesort [LABEL]]
//	query error [22012|REGEXP]
//	----                             the expected rows follow, one per line, values separated by blanks
//
// TYPES has one letter per column: I smallint, integer, bigint or oid; R real, double precision or numeric; B boolean; T anything. Values stand in
// PostgreSQL's text form: NULL for null, (empty) for an empty text, \n for a line feed. Runs of blanks count as one. Two queries with
// the same LABEL must return the same rows. A result of many values may be given as "N values hashing to MD5", and is written so when it
// has more values than hash-threshold.
//
//	connection NAME    the next record runs in the session of that name
//	flush              waits until all that is committed is visible in all views (FLUSH; REFRESH of every materialized view on PostgreSQL)
//	checkpoint         writes a checkpoint (CHECKPOINT)
//	restart            stops the server hard and opens it again; nothing where the server is not the runner's own
//	let $name          the first value of the following query; $name or ${name} stands for it in later SQL
//	append PATH        appends the following lines to a file that sources read
//	wait               repeats the following query until its first value is true: for rows that come from outside
//	for $x in a b c    repeats the records up to endfor; also: loop $i FROM TO … endloop (TO excluded)
//	include PATH       the records of another file
//	\i PATH            in SQL or expected rows: the lines of another file
//	hash-threshold N   see above
//	halt               ignores the rest of the file
//	skipif LABEL # reason, onlyif LABEL # reason
//	                   the next record is left out; LABEL is a mode, streamdb, postgresql, or any other product's name. Printed and counted.
//
// ${SLT_DIR} is the folder of the test file, ${SLT_TMP} an empty one of the run.
//
// There is no sleep: what has to be waited for has a statement that waits.
//
// # The modes
//
//   - batch: the file as it is written.
//   - view-first: each query that can be a view is also created as one as soon as its relations exist; where the query stands, the view
//     must have the query's rows.
//   - data-first: the same, but the view is created where the query stands (so it is filled from what there is), compared and dropped.
//   - restart: view-first, with a checkpoint, hard stops and restarts between the statements.
//   - parallel: view-first with three subtasks per fragment, once with ordinary chunks and once with chunks of one row.
package slt
