package planner

// Rule is a rewriting of plans that streamdb.disabled_rules switches off and EXPLAIN (VERBOSE) names where it has fired.
type Rule struct{ Name, Does string }

// Rules lists all of them.
func Rules() []Rule {
	return []Rule{
		{"fold_constants", "expressions of constants are computed once"},
		{"empty_inputs", "conditions that are never true leave nothing of what is below them, nor of what gives nothing for nothing"},
		{"decorrelate", "subqueries become joins; switched off, in their plainest form"},
		{ruleUnnestFilters, "correlated conditions are pulled up instead of joining with the values of the outer query"},
		{"merge_projects", "projections on each other are one"},
		{"push_down_predicates", "conditions are tested as early as they can be"},
		{ruleOuterJoins, "outer joins become inner ones where conditions reject the padded rows"},
		{ruleInfer, "comparisons of a join key with constants hold for the column that it is equal to as well"},
		{rulePushWindows, "conditions on `window_start` and `window_end` bound the time column below the windows"},
		{"late_projections", "expressions that may fail are computed for joined rows, not for those that find no partner"},
		{"extreme_joins", "joins of rows with the greatest or least value of their group become a Top-N"},
		{"reorder_joins", "chains of inner joins begin with what leaves few rows"},
		{"rank_filters", "conditions on ranks become a Top-N"},
		{"reverse_frames", "frames that look forward are computed backward"},
		{"prune_columns", "columns that nobody needs are left out, from the scans on"},
		{ruleJoinKeys, "equalities of a join condition become hash keys"},
		{ruleRangeJoin, "comparisons of a join condition find rows in ordered state"},
		{ruleBroadcastJoin, "joins without keys run in several subtasks"},
		{ruleJoinOnce, "joins of rows that are only added do not keep those that have met the only partner they can have"},
		{ruleShareFragments, "equal fragments of a job are one: a subquery that stands twice is computed once, a relation is read once"},
		{rulePointReads, "reads by primary key run no operators"},
		{ruleIndexScans, "parts of a table are read by its key or an index"},
		{ruleIndexJoins, "joins look up the rows of one side by the keys of the other"},
		{ruleLookupJoins, "joins of views read a large relation by its key instead of keeping its rows"},
		{ruleMinMax, "the least or greatest value is the first one of an index"},
		{ruleDynamicFilter, "comparisons with one value that changes keep the rows in order"},
		{ruleLiveRecursion, "recursive queries with a linear step are kept up to date from changes"},
		{rulePartialTopN, "rows that a Top-N cannot show are dropped where they are, before they are spread by group"},
		{rulePanes, "sliding windows are made of the sums of the slides that they share"},
		{rulePartialAgg, "rows are added up where they are before they are spread by group"},
	}
}
