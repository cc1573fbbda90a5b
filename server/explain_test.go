package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// TestExplainJSON is what a client that checks queries when it is compiled asks for.
func TestExplainJSON(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (a int PRIMARY KEY, b text)", "PREPARE p (int) AS SELECT t.a, u.b FROM t JOIN t AS u ON t.a = u.a WHERE t.a > $1")
	for _, q := range []string{"EXPLAIN (VERBOSE, FORMAT JSON) EXECUTE p(NULL)", "EXPLAIN (FORMAT JSON, VERBOSE) CREATE MATERIALIZED VIEW v AS SELECT b, count(*) FROM t GROUP BY b"} {
		var plans []struct {
			Plan struct {
				Type   string   `json:"Node Type"`
				Output []string `json:"Output"`
				Plans  []struct {
					Type     string `json:"Node Type"`
					Relation string `json:"Parent Relationship"`
				} `json:"Plans"`
			} `json:"Plan"`
		}
		require.NoError(t, json.Unmarshal([]byte(s.row(q)), &plans), s.row(q))
		require.Len(t, plans, 1)
		require.NotEmpty(t, plans[0].Plan.Type)
		require.NotEmpty(t, plans[0].Plan.Plans)
	}
}

// TestExplainAnalyze runs statements and shows what each operator did.
func TestExplainAnalyze(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (a int PRIMARY KEY, b text)", "INSERT INTO t SELECT g, (g % 3)::text FROM generate_series(1, 10000) AS g",
		"PREPARE p (int) AS SELECT b FROM t WHERE a > $1")
	const plain = "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF) "
	require.Equal(t, []string{
		"Result (actual rows=2 loops=1)",
		"  ->  Top-N (actual rows=2 loops=1)",
		"      Sort Key: b",
		"      Limit: 2",
		"      ->  Hash Aggregate (actual rows=3 loops=1)",
		"          Group By: b",
		"          Calls: count(*)",
		"          ->  Filter (actual rows=5000 loops=1)",
		"              Condition: ((a % 2) = 0)",
		"              Rows Removed by Filter: 5000",
		"              ->  Scan on t (actual rows=10000 loops=1)",
	}, s.rows(plain+"SELECT b, count(*) FROM t WHERE a % 2 = 0 GROUP BY b ORDER BY 1 LIMIT 2"))
	require.Equal(t, []string{
		"Result (actual rows=1 loops=1)",
		"  ->  Point Read on t (actual rows=1 loops=1)",
		"      Key: 9000",
	}, s.rows(plain+"DECLARE c CURSOR FOR SELECT * FROM t WHERE a = 9000"))
	require.Contains(t, s.rows(plain+"WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 10) SELECT sum(n) FROM r"),
		"                      ->  Rows of the last iteration (actual rows=1 loops=10)")

	// Changes take place; the root has the rows that are returned.
	require.Equal(t, "Update on t (actual rows=0 loops=1)", s.rows(plain + "UPDATE t SET b = 'x' WHERE a < 10")[0])
	require.Equal(t, "9", s.row("SELECT count(*) FROM t WHERE b = 'x'"))
	require.Equal(t, []string{
		"Result (actual rows=1 loops=1)",
		"  CTE d",
		"    ->  Delete on t (actual rows=4 loops=1)",
		"        ->  Filter (actual rows=4 loops=1)",
		"            Condition: (a < 5)",
		"            ->  Index Scan using t_pkey on t (actual rows=4 loops=1)",
		"                Index Condition: key 1 < 5",
		"  ->  Aggregate (actual rows=1 loops=1)",
		"      Calls: count(*)",
		"      ->  CTE Scan on d (actual rows=4 loops=1)",
	}, s.rows(plain+"WITH d AS (DELETE FROM t WHERE a < 5 RETURNING *) SELECT count(*) FROM d"))
	require.Equal(t, "9996", s.row("SELECT count(*) FROM t"))
	s.must("BEGIN")
	require.Equal(t, "Insert on t (actual rows=2 loops=1)", s.rows(plain + "INSERT INTO t VALUES (-1, 'x'), (-2, 'y') RETURNING a")[0])
	require.Equal(t, "9998", s.row("SELECT count(*) FROM t"))
	s.must("ROLLBACK")
	require.Equal(t, "9996", s.row("SELECT count(*) FROM t"))
	require.Equal(t, "Result (actual rows=1000 loops=1)", s.rows(plain + "CREATE TABLE u AS SELECT * FROM t WHERE a > 9000")[0])
	require.Equal(t, "1000", s.row("SELECT count(*) FROM u"))
	require.Equal(t, "23505", s.code(plain+"INSERT INTO t VALUES (10)"))
	s.must("BEGIN READ ONLY")
	require.Equal(t, "25006", s.code(plain+"INSERT INTO t VALUES (-1)"))
	s.must("ROLLBACK")
	require.Equal(t, "9996", s.row("SELECT count(*) FROM t"))

	// Times of the operators add up to no more than the whole.
	type node struct {
		Type     string  `json:"Node Type"`
		Relation string  `json:"Relation Name"`
		Rows     int64   `json:"Actual Rows"`
		S        float64 `json:"Actual Startup Time"`
		T        float64 `json:"Actual Total Time"`
		Plans    []node  `json:"Plans"`
	}
	var docs []struct {
		Plan      node
		Planning  *float64 `json:"Planning Time"`
		Execution *float64 `json:"Execution Time"`
	}
	require.NoError(t, json.Unmarshal([]byte(s.row("EXPLAIN (ANALYZE, FORMAT JSON, VERBOSE, BUFFERS, WAL) SELECT x.b, y.b FROM t AS x JOIN t AS y ON x.a = y.a")), &docs))
	require.Len(t, docs, 1)
	require.NotNil(t, docs[0].Planning)
	require.NotNil(t, docs[0].Execution)
	require.LessOrEqual(t, docs[0].Plan.T, *docs[0].Execution)
	join := docs[0].Plan
	for join.Type != "Hash Join" {
		require.Len(t, join.Plans, 1)
		join = join.Plans[0]
	}
	require.Equal(t, int64(9996), join.Rows)
	require.Len(t, join.Plans, 2)
	for _, in := range join.Plans {
		require.Equal(t, "Seq Scan", in.Type)
		require.Equal(t, "t", in.Relation)
		require.Positive(t, in.T)
		require.LessOrEqual(t, in.S, in.T)
	}
	require.GreaterOrEqual(t, join.T, join.Plans[0].T+join.Plans[1].T-0.002)

	xml := s.row("EXPLAIN (ANALYZE, FORMAT XML) EXECUTE p(9995)")
	require.Contains(t, xml, "<Node-Type>Index Scan</Node-Type>")
	require.Contains(t, xml, "<Condition>(a &gt; $1)</Condition>")
	require.Contains(t, s.row("EXPLAIN (ANALYZE, FORMAT YAML, TIMING OFF, SUMMARY OFF) EXECUTE p(9995)"), "- Plan: \n    Node Type: \"Result\"\n    Actual Rows: 5\n")
	require.Contains(t, s.row("EXPLAIN (FORMAT YAML) SELECT 1"), "- Plan: \n    Node Type: \"Result\"\n    Plans: \n      - Node Type: \"Result\"\n        Parent Relationship: \"Outer\"\n")

	// What is expected stands beside what there was.
	const expected = "EXPLAIN (ANALYZE, COSTS, TIMING OFF, SUMMARY OFF"
	require.Equal(t, []string{
		"Result  (rows=10) (actual rows=5 loops=1)", "  ->  Filter  (rows=10) (actual rows=5 loops=1)", "      Condition: (b = 'x'::text)",
		"      Rows Removed by Filter: 9991", "      ->  Scan on t  (rows=9996) (actual rows=9996 loops=1)",
	}, s.rows(expected+") SELECT * FROM t WHERE b = 'x'"))
	require.Contains(t, s.row(expected+", FORMAT JSON) SELECT count(*) FROM t"), `"Plan Rows": 9996`)

	// A query of a WITH clause that is evaluated once.
	require.Equal(t, []string{"Result (actual rows=1 loops=1)", "  CTE w", "    ->  Result (actual rows=3 loops=1)"},
		s.rows(plain + "WITH w AS (SELECT random() AS r FROM t LIMIT 3) SELECT count(*) FROM w AS a JOIN w AS b USING (r)")[:3])

	// A statement with parameters is explained as it would run.
	rows, err := s.Query(s.d.ctx, plain+"SELECT * FROM t WHERE a = $1", 7)
	require.NoError(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, "  ->  Point Read on t (actual rows=1 loops=1)", got[1])

	s.fails("EXPLAIN (TIMING) SELECT 1", "22023", "EXPLAIN option TIMING requires ANALYZE")
	s.fails("EXPLAIN (WAL) SELECT 1", "22023", "EXPLAIN option WAL requires ANALYZE")
	s.fails("EXPLAIN (COSTS nope) SELECT 1", "42601", "costs requires a Boolean value")
	require.Equal(t, "0A000", s.code("EXPLAIN ANALYZE CREATE MATERIALIZED VIEW m AS SELECT count(*) FROM t"))
	require.Equal(t, "0A000", s.code("EXPLAIN CREATE TABLE x (a int)"))
	s.must("SET search_path = public, pg_catalog")
	require.Contains(t, s.rows("EXPLAIN (SETTINGS, SUMMARY) SELECT 1"), "Settings: search_path = 'public, pg_catalog'")
}

// EXPLAIN ANALYZE of a running view shows what its operators do and keep.
func TestExplainAnalyzeOfARunningView(t *testing.T) {
	s := open(t).connect()
	s.must("SET parallelism = 2", "SET streamdb.disabled_rules = 'partial_aggregation'", "CREATE TABLE t (id int PRIMARY KEY, k int)", "CREATE TABLE u (k int PRIMARY KEY, name text)", "INSERT INTO t SELECT i, i % 10 FROM generate_series(1, 1000) i",
		"INSERT INTO u SELECT i, 'n' || i FROM generate_series(0, 9) i", "CREATE MATERIALIZED VIEW m AS SELECT name, count(*) AS n FROM t JOIN u USING (k) GROUP BY name", "CHECKPOINT")
	lines := strings.Join(s.rows("EXPLAIN ANALYZE MATERIALIZED VIEW m"), "\n")
	require.Regexp(t, `->  Hash Join \(rows in=1010 out=1000 state rows=1010 bytes=[1-9]\d* busy=\d+\.\d% backpressure=\d+\.\d%\)`, lines)
	require.Regexp(t, `->  Hash Aggregate \(rows in=1000 out=10 state rows=10 bytes=[1-9]`, lines)
	require.Regexp(t, `->  Materialize \(rows in=10 out=0 state rows=10 `, lines)
	require.NotContains(t, strings.Join(s.rows("EXPLAIN MATERIALIZED VIEW m"), "\n"), "rows in=")
	require.NotContains(t, strings.Join(s.rows("EXPLAIN MATERIALIZED VIEW m"), "\n"), "rows=")
	require.Contains(t, strings.Join(s.rows("EXPLAIN (COSTS) MATERIALIZED VIEW m"), "\n"), "->  Hash Join  (rows=1000 state rows=1010)\n")
	require.Regexp(t, `Hash Join  \(rows=1000 state rows=1010\) \(rows in=1010 out=1000 state rows=1010 `, strings.Join(s.rows("EXPLAIN (ANALYZE, COSTS) MATERIALIZED VIEW m"), "\n"))
	require.Contains(t, s.row("EXPLAIN (COSTS, FORMAT JSON) CREATE MATERIALIZED VIEW n AS SELECT k, count(*) FROM t GROUP BY k"), `"Plan State Rows": 100,`)
	lines = strings.Join(s.rows("EXPLAIN (ANALYZE, VERBOSE, DURATION '10ms') MATERIALIZED VIEW m"), "\n")
	require.Regexp(t, `Hash Join  \(id=\d+\) \(rows/s in=0\.0 out=0\.0 state rows=1010`, lines)
	require.Regexp(t, `Subtask 1: rows/s in=0\.0 out=0\.0 state rows=\d+`, lines)
	var doc []struct {
		Plan struct {
			Plans []struct {
				Type     string `json:"Node Type"`
				Rows     int64  `json:"State Rows"`
				Subtasks []struct {
					Rows int64 `json:"State Rows"`
				} `json:"Subtasks"`
			} `json:"Plans"`
		} `json:"Plan"`
	}
	require.NoError(t, json.Unmarshal([]byte(s.row("EXPLAIN (ANALYZE, VERBOSE, FORMAT JSON) MATERIALIZED VIEW m")), &doc))
	join := doc[0].Plan.Plans[1]
	require.Equal(t, "Hash Join", join.Type)
	require.Len(t, join.Subtasks, 2)
	require.EqualValues(t, 1010, join.Rows)
	require.EqualValues(t, 1010, join.Subtasks[0].Rows+join.Subtasks[1].Rows)
	require.Equal(t, []string{"join|1010|t", "agg|10|t", "materialize|10|t"}, s.rows("SELECT name, state_rows, state_bytes > 0 FROM streamdb.operators WHERE state_rows > 0 ORDER BY operator_id"))

	dot := strings.Join(s.rows("EXPLAIN (FORMAT DOT) MATERIALIZED VIEW m"), "\n")
	require.Regexp(t, `(?s)^digraph plan \{.*subgraph cluster_2 \{.*n3 \[label="Hash Join"\];.*n1 -> n4 \[label="hash by t.k", style=bold\];.*\}$`, dot)
	require.Contains(t, strings.Join(s.rows(`EXPLAIN (FORMAT DOT, VERBOSE) SELECT * FROM u WHERE name = 'a"\b'`), "\n"), `Condition: (name = 'a\"\\b'`)
	s.fails("EXPLAIN ANALYZE MATERIALIZED VIEW t", "42809", `"t" is not a materialized view`)
	s.fails("EXPLAIN ANALYZE MATERIALIZED VIEW none", "42P01", `relation "none" does not exist`)
	s.fails("EXPLAIN (DURATION '1s') MATERIALIZED VIEW m", "22023", "")
	s.fails("EXPLAIN (ANALYZE, DURATION 'long') MATERIALIZED VIEW m", "22023", "")
}
