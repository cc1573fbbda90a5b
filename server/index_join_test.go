package server_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Joins that look rows up by keys give what joins of whole tables give: for all kinds of joins and indexes, over uncommitted rows, in changes.
func TestIndexJoins(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 3))
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE big (id int PRIMARY KEY, a int, b text, c int2, n numeric)", "CREATE INDEX ON big (a DESC)", "CREATE INDEX ON big (lower(b), id)", "CREATE INDEX ON big (c) WHERE a > 20", "CREATE INDEX ON big (b, a)",
		"CREATE INDEX ON big (n NULLS FIRST)",
		"INSERT INTO big SELECT i, nullif(i % 50, 7), CASE WHEN i % 3 = 0 THEN 'K' ELSE 'k' END || i % 80, nullif(i % 90, 11), i % 40 / 4.0 FROM generate_series(1, 2000) i",
		"CREATE TABLE small (id int8 PRIMARY KEY, x int8, y text, z int)",
		"INSERT INTO small SELECT i, nullif(i * 3000000000 / 7 % 60, 5), 'k' || i % 90, i % 45 FROM generate_series(1, 60) i", "INSERT INTO small VALUES (900, 5000000000, NULL, NULL), (901, -1, 'K1', 70000)",
		"CREATE MATERIALIZED VIEW seen AS SELECT id, a, b FROM big WHERE id % 2 = 0", "CREATE INDEX ON seen (a)", "FLUSH")
	queries := []string{
		"SELECT s.id, b.* FROM small s JOIN big b ON b.id = s.x",
		"SELECT s.id, b.id FROM small s LEFT JOIN big b ON b.id = s.id",
		"SELECT s.id, b.id FROM big b RIGHT JOIN small s ON b.a = s.z AND b.id > 5",
		"SELECT s.id, b.id FROM small s FULL JOIN big b ON b.id = s.id AND b.a = 3",
		"SELECT s.id, b.id FROM small s JOIN big b ON lower(b.b) = s.y",
		"SELECT s.id, b.id FROM small s JOIN big b ON b.b = s.y AND b.a = s.z",
		"SELECT s.id, b.id FROM small s JOIN big b ON b.c = s.z AND b.a > 20",
		"SELECT s.id, b.id FROM small s JOIN big b ON b.a IS NOT DISTINCT FROM s.z",
		"SELECT s.id, b.id FROM small s JOIN big b ON abs(b.a) = s.z",
		"SELECT s.id, b.n FROM small s JOIN big b ON b.n = s.z",
		"SELECT id FROM big WHERE a IN (SELECT z FROM small WHERE id < 9)",
		"SELECT id FROM big WHERE id NOT IN (SELECT x FROM small WHERE x IS NOT NULL) AND a < 3",
		"SELECT id FROM small s WHERE NOT EXISTS (SELECT FROM big b WHERE b.a = s.z)",
		"SELECT id FROM small s WHERE EXISTS (SELECT FROM big b WHERE b.id = s.z AND b.c > 4)",
		"SELECT id, (SELECT sum(c) FROM big b WHERE b.a = s.z) FROM small s",
		"SELECT id, (SELECT count(*) FROM big b WHERE b.id = s.x) FROM small s",
		"SELECT s.id, l.id FROM small s CROSS JOIN LATERAL (SELECT id FROM big b WHERE b.a = s.z ORDER BY id LIMIT 2) l",
		"SELECT s.id, v.id FROM small s JOIN seen v ON v.a = s.z",
		"SELECT s.id, t.id, b.id FROM small s JOIN small t ON t.z = s.z JOIN big b ON b.id = t.x WHERE s.id < 20",
		"SELECT s.id, g.a, g.n FROM small s LEFT JOIN (SELECT a, count(*) AS n FROM big GROUP BY a) g ON g.a = s.z",
		"SELECT s.id, g.a FROM small s JOIN (SELECT DISTINCT a, c FROM big WHERE id > 7) g ON g.a = s.z",
		"SELECT s.id, g.k FROM small s JOIN (SELECT a + 1 AS k, a AS q FROM big) g ON g.q = s.z AND g.k > 3",
		"SELECT max(id), min(a), max(n) FROM big",
		"SELECT max(a), min(id) FROM big WHERE c = 5", "SELECT max(id) FROM big", "SELECT min(a) FROM big", "SELECT max(a) FROM big", "SELECT max(n) FROM big WHERE id > 9", "SELECT min(n) FROM big WHERE a = 3", "SELECT max(id) FROM big WHERE a = -1",
		"SELECT max(lower(b)) FROM big", "SELECT max(id) FILTER (WHERE a = 3) FROM big", "SELECT max(DISTINCT id) FROM big", "SELECT a, max(id) FROM big GROUP BY a", "SELECT max(id + 1) FROM big",
	}
	rows := func(q string) string {
		t.Helper()
		return strings.Join(s.rows("SELECT * FROM ("+q+") q ORDER BY q::text"), "\n")
	}
	used := 0
	check := func() {
		t.Helper()
		for _, q := range queries {
			got := rows(q)
			s.must("SET streamdb.disabled_rules = 'index_joins, index_scans, min_max_by_index'")
			want := rows(q)
			s.must("RESET streamdb.disabled_rules")
			require.Equal(t, want, got, q)
			if plan := strings.Join(s.rows("EXPLAIN "+q), "\n"); strings.Contains(plan, "By keys of the join") || strings.Contains(plan, "In order of the index") {
				used++
			}
		}
	}
	check()
	require.Equal(t, 23, used, "queries that can use an index")
	for round := range 4 {
		s.must("BEGIN")
		for range 20 {
			i := rnd.IntN(2000)
			s.must(fmt.Sprintf("INSERT INTO big VALUES (%d, %d, 'k%d', 4, 2.50) ON CONFLICT (id) DO UPDATE SET a = excluded.a, b = excluded.b", i, rnd.IntN(60), rnd.IntN(70)),
				fmt.Sprintf("DELETE FROM big WHERE id = %d", rnd.IntN(2000)), fmt.Sprintf("UPDATE small SET x = %d WHERE id = %d", rnd.IntN(2000), rnd.IntN(60)))
		}
		check()
		s.must([]string{"COMMIT", "ROLLBACK"}[round%2], "FLUSH")
		check()
	}

	// Changes whose rows are found by keys of another table change what they change without.
	for _, q := range []string{
		"UPDATE big SET b = 'new' WHERE id IN (SELECT x FROM small)", "UPDATE big SET b = s.y || 'u' FROM small s WHERE s.z = big.id", "DELETE FROM big USING small s WHERE s.x = big.id AND s.id > 30",
		"MERGE INTO big USING (SELECT DISTINCT z FROM small) s ON s.z = big.id WHEN MATCHED THEN UPDATE SET b = 'merged' WHEN NOT MATCHED AND s.z IS NOT NULL THEN DO NOTHING",
	} {
		s.must("BEGIN", q)
		got := rows("TABLE big")
		s.must("ROLLBACK", "BEGIN", "SET LOCAL streamdb.disabled_rules = 'index_joins, index_scans'", q)
		require.Equal(t, rows("TABLE big"), got, q)
		s.must("ROLLBACK")
	}
}
