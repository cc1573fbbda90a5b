package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/server"
)

// TestErrorsReachViewsAbove: rows that a view lacks are missing from what is made of it, too, so its readers are told, and fail where the view asks for that.
func TestErrorsReachViewsAbove(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, 0)",
		"CREATE MATERIALIZED VIEW q AS SELECT id, 10 / v AS q FROM t",
		"CREATE MATERIALIZED VIEW middle AS SELECT a.id, a.q FROM q AS a JOIN q AS b USING (id)",
		"CREATE MATERIALIZED VIEW top AS SELECT count(*) AS n FROM middle",
		"CREATE MATERIALIZED VIEW beside AS SELECT count(*) AS n FROM t")
	told := func(query string) []string {
		s.notices = nil
		s.must(query)
		var out []string
		for _, n := range s.notices {
			out = append(out, n.Severity+": "+n.Message)
		}
		return out
	}
	missing := []string{`WARNING: 1 row is missing from materialized view "q" because its evaluation failed; see streamdb.errors`}
	for _, query := range []string{"SELECT * FROM q", "SELECT * FROM middle", "SELECT * FROM top", "SELECT * FROM top, middle, q", "SELECT q FROM middle WHERE id = 1"} {
		require.Equal(t, missing, told(query), query)
	}
	require.Empty(t, told("SELECT * FROM beside"))
	s.must("ALTER MATERIALIZED VIEW q SET (on_error = 'raise')")
	for _, query := range []string{"SELECT * FROM q", "SELECT * FROM middle", "SELECT * FROM top", "SELECT n FROM beside, (SELECT id FROM middle) AS m"} {
		s.fails(query, "22012", "division by zero")
	}
	s.must("SELECT * FROM beside", "UPDATE t SET v = 5 WHERE id = 2")
	require.Empty(t, told("SELECT * FROM top"))
	require.Equal(t, []string{"2"}, s.rows("SELECT n FROM top"))
}

// Rows that failed are counted once, however often the server crashes: checkpoints have of them what their cut has of everything else.
func TestFailedRowsAreCountedOnceOverCrashes(t *testing.T) {
	for _, unaligned := range []string{"off", "on"} {
		t.Run("unaligned "+unaligned, func(t *testing.T) { failedRowsOverCrashes(t, unaligned) })
	}
}

func failedRowsOverCrashes(t *testing.T, unaligned string) {
	t.Helper()
	const n = 20_000
	files := t.TempDir()
	f, err := os.Create(filepath.Join(files, "rows.json"))
	require.NoError(t, err)
	for i := range n {
		if i%10 == 0 {
			_, err = fmt.Fprintf(f, "bad %d\n", i)
		} else {
			_, err = fmt.Fprintf(f, `{"id":%d,"k":%d}`+"\n", i, i%20-1)
		}
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	d := open(t, func(c *server.Config) {
		c.EpochInterval = 5 * time.Millisecond
		c.Settings = map[string]string{"execution.checkpointing.interval": "10ms", "execution.checkpointing.unaligned.enabled": unaligned, "parallelism": "2"}
	})
	s := d.connect()
	s.must(`CREATE SOURCE rows (id int, k int) WITH (connector = 'file', path = '`+filepath.Join(files, "*.json")+`') FORMAT PLAIN ENCODE JSON`,
		`CREATE SOURCE gen (id int) WITH (connector = 'datagen', "fields.id.kind" = 'sequence', "fields.id.start" = '0', "fields.id.end" = '`+fmt.Sprint(n-1)+`', "datagen.rows.per.second" = '20000', "datagen.split.num" = '2')`,
		"CREATE MATERIALIZED VIEW v WITH (background = true) AS SELECT 100 / k AS x, count(*) AS n FROM rows GROUP BY 1",
		"CREATE MATERIALIZED VIEW w WITH (background = true) AS SELECT 10 / (id % 5) AS x, count(*) AS n FROM gen GROUP BY 1")
	counts := "SELECT job, count(*), sum(weight), max(weight) FROM streamdb.errors GROUP BY job ORDER BY job"
	for i := range 8 {
		s.until(fmt.Sprintf("SELECT count(*) > %d FROM streamdb.errors WHERE job = 'w'", 400*i), "t")
		d.crash()
		s = d.connect()
	}
	s.until("SELECT (SELECT sum(n) FROM v) || ' ' || (SELECT sum(n) FROM w)", fmt.Sprintf("%d %d", n-3000, n-4000))
	require.Equal(t, []string{"v|3000|3000|1", "w|4000|4000|1"}, s.rows(counts))
}
