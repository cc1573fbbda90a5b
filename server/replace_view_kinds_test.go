package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// keptKinds are subqueries, each with the operator that goes on with its state while an aggregation over it is replaced by another one.
var keptKinds = []struct{ name, query, keeps string }{
	{"left join", "SELECT t.k, t.v, u.w FROM t LEFT JOIN u ON t.k = u.k", "Hash Left Join"},
	{"right join", "SELECT u.k, t.v, u.w FROM t RIGHT JOIN u ON t.k = u.k AND t.v > u.w", "Hash Right Join"},
	{"full join", "SELECT t.k, t.v, u.w FROM t FULL JOIN u ON t.k = u.k", "Hash Full Join"},
	{"anti join", "SELECT k, v, id FROM t WHERE NOT EXISTS (SELECT FROM u WHERE u.k = t.k)", "Hash Anti Join"},
	{"range join", "SELECT t.k, t.v, u.w FROM t LEFT JOIN u ON t.v BETWEEN u.w AND u.w + 2", "Left Join"},
	{"nested loop", "SELECT t.k, t.v, u.w FROM t LEFT JOIN u ON (t.v + u.w) % 50 = 0", "Left Join"},
	{"asof join", "SELECT t.k, t.v, u.w FROM t ASOF LEFT JOIN u ON t.k = u.k AND t.v >= u.w", "ASOF"},
	{"lookup join", "SELECT t.k, t.v, p.w FROM t JOIN p ON t.k = p.k", "Lookup Join"},
	{"dynamic filter", "SELECT k, v, id FROM t WHERE v > (SELECT avg(w) FROM u)", "Dynamic Filter"},
	{"top-n", "SELECT k, v, id FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS rn FROM t) x WHERE rn <= 2", "Top-N"},
	{"limit", "SELECT k, v, id FROM (SELECT * FROM t ORDER BY v DESC NULLS LAST, id LIMIT 7 OFFSET 1) x", "Top-N"},
	{"distinct on", "SELECT k, v, id FROM (SELECT DISTINCT ON (k) * FROM t ORDER BY k, v, id) x", "Top-N"},
	{"window functions", "SELECT k, s, id FROM (SELECT k, id, sum(v) OVER (PARTITION BY k ORDER BY id) AS s FROM t) x", "Window"},
	{"distinct", "SELECT DISTINCT k, v, v % 3 FROM t", "Distinct"},
	{"except all", "SELECT k, v, v FROM t EXCEPT ALL SELECT k, w, w FROM u", "Hash Aggregate"},
	{"intersect all", "SELECT k, v % 10, 1 FROM t INTERSECT ALL SELECT k, w % 10, 1 FROM u", "Hash Aggregate"},
	{"recursion", "WITH RECURSIVE r(k, v) AS (SELECT k, v FROM t WHERE id < 20 UNION SELECT r.k, u.w FROM r JOIN u ON u.k = r.v % 10) SELECT k, v, v FROM r", "Rec"},
	{"session", "SELECT k, v, extract(epoch FROM window_end - window_start)::int FROM SESSION(t, k, at, INTERVAL '20 seconds')", "Session"},
	{"state_ttl", "SELECT k, v, id FROM t", "Expire"},
}

// Every kind of operator that is the same in the new query goes on with its state, whatever of it is new above: the view is what its query says while tables change, nothing of what
// the operator reads is read again, and a crash changes nothing.
func TestEveryKindOfOperatorKeepsItsState(t *testing.T) {
	for _, c := range keptKinds {
		for _, parallelism := range []int{3, 1} {
			if parallelism == 1 && testing.Short() {
				continue
			}
			t.Run(fmt.Sprintf("%s, parallelism %d", c.name, parallelism), func(t *testing.T) {
				d := open(t)
				s := d.connect()
				with := ""
				if c.name == "state_ttl" {
					with = "WITH (state_ttl = '1 day') "
				}
				old := "SELECT a, sum(b) AS x, sum(c) AS y FROM (" + c.query + ") q(a, b, c) GROUP BY a"
				next := "SELECT a, min(b) AS x, max(c) AS y FROM (" + c.query + ") q(a, b, c) GROUP BY a"
				s.must(fmt.Sprint("SET parallelism = ", parallelism), "SET lookup_join_rows = 1", "CREATE TABLE t (id int PRIMARY KEY, k int, v int, at timestamp)", "CREATE TABLE u (k int, w int)",
					"CREATE TABLE p (k int PRIMARY KEY, w int)", "INSERT INTO p SELECT i, i * 3 FROM generate_series(0, 9) i", "INSERT INTO u SELECT nullif(i % 11, 3), i * 7 % 90 FROM generate_series(0, 30) i",
					"INSERT INTO t SELECT i, nullif(i % 12, 5), nullif(i % 97, 4), timestamp '2024-01-01' + i * interval '7 seconds' FROM generate_series(1, 300) i", "FLUSH",
					"CREATE MATERIALIZED VIEW m "+with+"AS "+old)
				stop := d.writing(func(w *session, i int) {
					w.must(fmt.Sprintf("INSERT INTO t VALUES (%d, nullif(%d, 5), nullif(%d, 4), timestamp '2024-01-01' + %d * interval '5 seconds')", 2000+i, i%13, i%23, i),
						fmt.Sprintf("DELETE FROM t WHERE id = %d", 10*i), fmt.Sprintf("UPDATE u SET k = nullif(%d, 3), w = %d WHERE w = %d", i%8, i%90, i*7%90),
						fmt.Sprintf("UPDATE p SET w = %d WHERE k = %d", i, i%10))
				})
				check := func(s *session, q string) {
					t.Helper()
					s.must("BEGIN")
					require.Equal(t, s.rows("SELECT * FROM ("+q+") x ORDER BY 1, 2, 3"), s.rows("SELECT * FROM m ORDER BY 1, 2, 3"))
					s.must("COMMIT")
				}
				replace := func(q string) {
					t.Helper()
					s.notices = nil
					s.must("ALTER MATERIALIZED VIEW m AS " + q)
					var told []string
					for _, n := range s.notices {
						told = append(told, n.Message)
					}
					require.Contains(t, strings.Join(told, "\n"), c.keeps)
					require.NotContains(t, strings.Join(told, "\n"), "again")
				}
				for range 2 {
					replace(next)
					check(s, next)
					replace(old)
					check(s, old)
				}
				stop()
				check(s, old)
				s.must("CHECKPOINT")
				replace(next)
				require.Equal(t, "0", s.row("SELECT sum(rows_out) FROM streamdb.operators WHERE name = 'scan'"))
				s.must("INSERT INTO t VALUES (50000, 1, 1, '2024-01-01'), (50001, NULL, 2, '2024-01-02')", "FLUSH")
				check(s, next)
				d.crash()
				check(d.connect(), next)
				s = d.connect()
				s.must("CHECKPOINT", "INSERT INTO t VALUES (50002, NULL, 3, '2024-01-03')", "DELETE FROM u WHERE k IS NULL OR k = 1", "DELETE FROM t WHERE k IS NULL AND id < 100 OR k = 2", "FLUSH")
				d.crash()
				check(d.connect(), next)
			})
		}
	}
}
