package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
)

func TestViewFromASavepoint(t *testing.T) {
	checkpointrows.Shows(t, 105, 107, 110, 112, 117)
	for _, form := range []string{"native", "canonical"} {
		for _, par := range [][2]int{{1, 1}, {2, 3}} {
			t.Run(fmt.Sprint(form, par), func(t *testing.T) {
				files := t.TempDir()
				source := `CREATE SOURCE f (k int, v int) WITH (connector = 'file', path = '` + filepath.Join(files, "*.json") + `') FORMAT PLAIN ENCODE JSON`
				query := "SELECT k, count(*) AS n, sum(v) AS s FROM f GROUP BY k"
				write(t, files, "1.json", `{"k":1,"v":10}`, `{"k":2,"v":20}`, `{"k":1,"v":5}`)
				s := open(t).connect()
				s.must(fmt.Sprint("SET parallelism = ", par[0]), "CREATE TABLE dim (k int PRIMARY KEY, name text)", source, "CREATE MATERIALIZED VIEW a AS "+query, "CREATE MATERIALIZED VIEW plain AS SELECT k + 1 AS k1, v FROM f",
					"CREATE MATERIALIZED VIEW d AS SELECT count(*) AS n FROM dim")
				s.until("SELECT coalesce(sum(n), 0) || ' ' || (SELECT count(*) FROM plain) FROM a", "3 3")
				path := s.row(fmt.Sprintf("SELECT streamdb.savepoint('%s', format => '%s')", t.TempDir(), form))
				d := open(t)
				s = d.connect()
				with := fmt.Sprintf(`WITH ("execution.state-recovery.path" = '%s'`, path)
				s.must(fmt.Sprint("SET parallelism = ", par[1]), "CREATE TABLE other (x int)", source, "INSERT INTO other SELECT generate_series(1, 10)", "CREATE TABLE dim (k int PRIMARY KEY, name text)")
				s.must("CREATE MATERIALIZED VIEW a "+with+") AS "+query, "CREATE MATERIALIZED VIEW plain "+with+") AS SELECT k + 1 AS k1, v FROM f")
				require.Equal(t, []string{"1|2|15", "2|1|20"}, s.rows("SELECT * FROM a ORDER BY k"))
				require.Equal(t, []string{"2|5", "2|10", "3|20"}, s.rows("SELECT * FROM plain ORDER BY k1, v"))
				write(t, files, "2.json", `{"k":1,"v":100}`)
				s.until("SELECT s FROM a WHERE k = 1", "115")
				s.until("SELECT count(*) FROM plain", "4")
				require.NoError(t, os.RemoveAll(path))
				d.crash()
				s = d.connect()
				s.until("SELECT s || ' ' || n FROM a WHERE k = 1", "115 3")
				s.until("SELECT count(*) FROM plain", "4")
				write(t, files, "2.json", `{"k":2,"v":1}`)
				s.until("SELECT sum(n) || ' ' || (SELECT count(*) FROM plain) FROM a", "5 5")
				left, err := os.ReadDir(filepath.Join(d.cfg.DataDir, "scratch"))
				require.True(t, os.IsNotExist(err) || err == nil && len(left) == 0, "%v", left)
			})
		}
	}
}

func TestViewFromASavepointThatDoesNotFit(t *testing.T) {
	checkpointrows.Shows(t, 88, 109, 110)
	files := t.TempDir()
	source := `CREATE SOURCE f (k int, v int) WITH (connector = 'file', path = '` + filepath.Join(files, "*.json") + `') FORMAT PLAIN ENCODE JSON`
	write(t, files, "1.json", `{"k":1,"v":10}`)
	s := open(t).connect()
	s.must("CREATE TABLE t (a int)", source, "CREATE MATERIALIZED VIEW a AS SELECT k, sum(v) AS s FROM f GROUP BY k", "CREATE MATERIALIZED VIEW r AS SELECT count(*) AS n FROM t")
	s.until("SELECT coalesce(sum(s), 0) FROM a", "10")
	path := s.row("SELECT streamdb.savepoint('" + t.TempDir() + "')")
	d := open(t)
	s = d.connect()
	s.must("CREATE TABLE t (a int)", source)
	create := func(name, query, more string) string {
		return fmt.Sprintf(`CREATE MATERIALIZED VIEW %s WITH ("execution.state-recovery.path" = '%s'%s) AS %s`, name, path, more, query)
	}
	// Another aggregate, another key: nobody takes the state.
	for _, q := range []string{"SELECT k, max(v) AS s FROM f GROUP BY k", "SELECT k::bigint AS k, sum(v) AS s FROM f GROUP BY 1", "SELECT v FROM f"} {
		e := s.fails(create("a", q, ""), "55000", "")
		require.Contains(t, e.Message, "no operator of the view takes")
		require.Contains(t, e.Message, "operator ")
		require.Contains(t, e.Hint, "execution.state-recovery.ignore-unclaimed-state")
		require.Empty(t, s.rows("SELECT 1 FROM pg_class WHERE relname = 'a'"))
	}
	s.must(create("a", "SELECT k, max(v) AS s FROM f GROUP BY k", `, "execution.state-recovery.ignore-unclaimed-state" = true`))
	require.Len(t, s.notices, 1)
	require.Contains(t, s.notices[0].Message, "is left behind")
	s.until("SELECT coalesce(max(s), 0) FROM a", "10")
	s.must("DROP MATERIALIZED VIEW a")
	// A filter, a projection and a further nullable column over what is kept.
	s.must(create("a", "SELECT k * 2 AS k2, s, NULL::text AS note FROM (SELECT k, sum(v) AS s FROM f GROUP BY k) x WHERE s > 0", ""))
	require.Equal(t, "2|10|NULL", s.row("TABLE a"))
	s.must("DROP MATERIALIZED VIEW a")

	s.fails(create("r", "SELECT count(*) AS n FROM t", ""), "55000", "no operator of the view goes on with state of "+path)
	s.fails(create("none", "SELECT k FROM f", ""), "42P01", "")
	s.fails(`CREATE MATERIALIZED VIEW a WITH ("execution.state-recovery.path" = '/nowhere/at/all') AS SELECT k FROM f`, "58P01", "")
	s.fails(`CREATE MATERIALIZED VIEW a WITH ("execution.state-recovery.claim-mode" = 'CLAIM') AS SELECT k FROM f`, "22023", "")
	s.fails(create("a", "SELECT k, sum(v) AS s FROM f GROUP BY k", `, "execution.state-recovery.claim-mode" = 'LEGACY'`), "22023", "")
	s.fails(create("a", "SELECT k, sum(v) AS s FROM f GROUP BY k", ", background = true"), "0A000", "")
	s.must(create("a", "SELECT k, sum(v) AS s FROM f GROUP BY k", `, "execution.state-recovery.claim-mode" = 'CLAIM'`))
	_, err := os.Stat(path + "/manifest")
	require.True(t, os.IsNotExist(err), "a claimed savepoint goes when it is not needed any more")
	require.Equal(t, "1|10", s.row("TABLE a"))
}
