// Package pgext holds the convention by which PostgreSQL's constructs live in TiDB's AST, and the views which are its only readers.
//
// Constructs that TiDB's grammar lacks are calls in the reserved schema pg_ext ("markers"). ExprOf, QueryOf and the types they
// return hide both the markers and TiDB's own nodes: a consumer switches on the view's type and never looks at the AST.
package pgext

import "github.com/streamdb/streamdb/sql/internal/tidb"

// Schema is the reserved schema of the markers; a user's mention of it is refused with 3F000.
const Schema = "pg_ext"

// CTEPlace qualifies the names of WITH queries among the places of relations.
const CTEPlace = tidb.CTEPlace

// The markers, by group. x, e, p are expressions; 'quoted' arguments are string constants.
const (
	// Values.
	MarkCast     = "cast"      // (x, 'type')
	MarkLiteral  = "literal"   // ('type', 'text')
	MarkNumeric  = "numeric"   // ('text')
	MarkBit      = "bit"       // ('b101') or ('x1f')
	MarkParam    = "param"     // (n)
	MarkSQLValue = "sql_value" // ('current_date'[, precision])
	MarkColumn   = "column"    // ('a','b','c','d'): more parts than TiDB's column names have

	// Operators.
	MarkOp                  = "op"                    // ('symbol', [left,] right)
	MarkAny                 = "any"                   // ('symbol', x, array)
	MarkAll                 = "all"                   // ('symbol', x, array)
	MarkAnySubquery         = "any_subquery"          // ('symbol', x, (query))
	MarkAllSubquery         = "all_subquery"          // ('symbol', x, (query))
	MarkIsDistinct          = "is_distinct"           // (a, b)
	MarkIsNotDistinct       = "is_not_distinct"       // (a, b)
	MarkIsUnknown           = "is_unknown"            // (x)
	MarkIsNotUnknown        = "is_not_unknown"        // (x)
	MarkBetweenSymmetric    = "between_symmetric"     // (x, lo, hi)
	MarkNotBetweenSymmetric = "not_between_symmetric" // (x, lo, hi)
	MarkCollate             = "collate"               // (x, '"C"')

	// Special calls: functions by syntax, not by name.
	MarkCoalesce = "coalesce"
	MarkNullIf   = "nullif"
	MarkGreatest = "greatest"
	MarkLeast    = "least"
	MarkGrouping = "grouping"

	// Composite values.
	MarkArray         = "array"          // (elements)
	MarkArraySubquery = "array_subquery" // ((query))
	MarkSubscript     = "subscript"      // (x, i)
	MarkSlice         = "slice"          // (x, lo, hi)
	MarkNoBound       = "no_bound"       // () an omitted bound of a slice
	MarkField         = "field"          // (x, 'name')
	MarkFieldStar     = "field_star"     // (x)
	MarkRow           = "row"            // (elements)
	MarkImplicitRow   = "implicit_row"   // (a, b): a row without the word ROW
	MarkRowStar       = "row_star"       // ('t'): t.* inside an expression

	// Decorations of a call, among its arguments.
	MarkStar        = "star"         // ()
	MarkDistinct    = "distinct"     // ()
	MarkVariadic    = "variadic"     // (x)
	MarkNamed       = "named"        // ('name', x)
	MarkOrderBy     = "order_by"     // (keys)
	MarkWithinGroup = "within_group" // (keys)
	MarkFilter      = "filter"       // (p)
	MarkIgnoreNulls = "ignore_nulls" // ()
	MarkAsc         = "asc"          // (x) a key with ASC
	MarkDesc        = "desc"         // (x) a key with DESC
	MarkAscDefault  = "asc_default"  // (x) a key without a direction

	// Ordering.
	MarkNullsFirst    = "nulls_first"     // (x)
	MarkNullsLast     = "nulls_last"      // (x)
	MarkOrderUsing    = "order_using"     // (x, 'symbol')
	MarkOrdinal       = "ordinal"         // (n) a column number of ORDER BY and GROUP BY
	MarkLimit         = "limit"           // (count[, offset]), the last ORDER BY item
	MarkLimitWithTies = "limit_with_ties" // (count[, offset])

	// The select list.
	MarkDistinctOn = "distinct_on" // (exprs), the first item
	MarkNoColumns  = "no_columns"  // () SELECT FROM t
	MarkLock       = "lock"        // (strength, wait, relations..) last ORDER BY items
	MarkChange     = "change"      // (number) a statement that changes data, as a WITH query
	MarkNoFrom     = "no_from"     // a table, where TiDB wants a FROM clause

	// GROUP BY.
	MarkRollup           = "rollup"
	MarkCube             = "cube"
	MarkGroupingSets     = "grouping_sets"
	MarkEmptyGroupingSet = "empty_grouping_set"
	MarkGroupDistinct    = "group_distinct"

	// MarkExclude is ('ties'), the last PARTITION BY item.
	MarkExclude = "exclude"

	// Joins: the ON condition of a LEFT JOIN, or of a plain one for join_using.
	MarkFullJoin        = "full_join"         // (p)
	MarkFullJoinUsing   = "full_join_using"   // (alias or NULL, columns)
	MarkNaturalFullJoin = "natural_full_join" // ()
	MarkJoinUsing       = "join_using"        // (alias, columns)
	MarkAsofJoin        = "asof"              // (p), also of a plain join

	// The only select item of a FROM wrapper, LATERAL (SELECT marker(..) [FROM inner]) AS alias (columns).
	MarkRelation      = "relation"       // ()
	MarkDerived       = "derived"        // ()
	MarkJoinAlias     = "join_alias"     // ()
	MarkTableFunction = "table_function" // (call[, column_def(..) ..][, ordinality()])
	MarkRowsFrom      = "rows_from"      // (calls ..)
	MarkCallColumns   = "call_columns"   // (call, column_def(..) ..) inside rows_from
	MarkOrdinality    = "ordinality"     // ()
	MarkColumnDef     = "column_def"     // ('name', 'type'[, 'collation'])
	MarkTableSample   = "tablesample"    // ('method', args .. [, repeatable(seed)])
	MarkRepeatable    = "repeatable"     // (seed)
	MarkSystemTime    = "system_time"    // (e), of FOR SYSTEM_TIME AS OF

	// Statements that change data.
	MarkAssign    = "assign"     // ('column' with subscripts or fields, value)
	MarkAssignRow = "assign_row" // (row or query, 'columns' as in assign ..)
	MarkDefault   = "default"    // ()
	MarkDeleteRow = "delete_row" // ()
)
