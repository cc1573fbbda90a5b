package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/server"
)

// Any backend goes with any store: what is restored from the store alone is the same.
func TestBackendsAndStores(t *testing.T) {
	checkpointrows.Shows(t, 67, 80)
	for _, backend := range []string{"pebble", "memory"} {
		for _, store := range []string{"folder", "bucket"} {
			t.Run(backend+" in a "+store, func(t *testing.T) {
				files := t.TempDir()
				write(t, files, "1.json", `{"k":1,"v":10}`, `{"k":2,"v":20}`)
				s3, _ := bucket(t)
				d := open(t, func(c *server.Config) {
					c.Settings = map[string]string{"state.backend.type": backend}
					if store == "bucket" {
						c.CheckpointDir = s3.StoreURL("db")
					}
				})
				s := d.connect()
				fill(s, files)
				s.until("SELECT coalesce(sum(s), 0) FROM fm", "30")
				require.Equal(t, backend, s.row("SELECT DISTINCT backend FROM streamdb.jobs"))
				s.must("CHECKPOINT")
				require.NoError(t, d.srv.Abort())
				require.NoError(t, os.RemoveAll(filepath.Join(d.cfg.DataDir, "jobs")))
				d.start()
				s = d.connect()
				require.Equal(t, "1000|1000|1000|30", s.row("SELECT (SELECT count(*) FROM t), (SELECT sum(n) FROM m), (SELECT n FROM mm), (SELECT sum(s) FROM fm)"))
				write(t, files, "2.json", `{"k":1,"v":1}`)
				s.until("SELECT sum(s) || ' ' || sum(n) FROM fm", "31 3")
			})
		}
	}
}

// Another parallelism at each restart: groups, both sides of a join, windows that are still open, and positions of splits are where their new subtasks are.
func TestRestoreWithAnotherParallelism(t *testing.T) {
	checkpointrows.Shows(t, 86, 108, 113, 114, 118)
	files := t.TempDir()
	n := 0
	more := func(rows int) {
		var lines []string
		for range rows {
			n++
			lines = append(lines, fmt.Sprintf(`{"k":%d,"v":%d,"t":"2024-01-01 00:%02d:%02d"}`, n%97, n, n/60%60, n%60))
		}
		write(t, files, fmt.Sprintf("%d.json", n%5), lines...)
	}
	more(500)
	d := open(t)
	s := d.connect()
	s.must(`CREATE SOURCE f (k int, v int, t timestamp, WATERMARK FOR t AS t - INTERVAL '5 minutes') WITH (connector = 'file', path = '`+filepath.Join(files, "*.json")+`') FORMAT PLAIN ENCODE JSON`,
		"SET parallelism = 2", "CREATE TABLE dim (k int PRIMARY KEY, name text)", "INSERT INTO dim SELECT g, 'n' || g FROM generate_series(0, 50) g",
		"CREATE MATERIALIZED VIEW groups AS SELECT k, count(*) AS n, sum(v) AS s, max(v) AS m FROM f GROUP BY k",
		"CREATE MATERIALIZED VIEW joined AS SELECT f.v, dim.name FROM f JOIN dim USING (k)",
		"CREATE MATERIALIZED VIEW windows AS SELECT window_end, count(*) AS n FROM TUMBLE(f, t, INTERVAL '1 minute') GROUP BY window_end")
	check := func() {
		t.Helper()
		matched := 0
		for i := 1; i <= n; i++ {
			if i%97 <= 50 {
				matched++
			}
		}
		s.until("SELECT coalesce(sum(n), 0) FROM groups", fmt.Sprint(n))
		s.until("SELECT count(*) FROM joined", fmt.Sprint(matched))
		s.until("SELECT coalesce(sum(n), 0) FROM windows", fmt.Sprint(n))
		require.Equal(t, fmt.Sprint(n*(n+1)/2, "|", n), s.row("SELECT sum(s), max(m) FROM groups"))
		require.Equal(t, fmt.Sprint(matched), s.row("SELECT count(DISTINCT v) FROM joined"))
	}
	check()
	for _, p := range []int{4, 3, 1, 2} {
		s.must("CHECKPOINT")
		for _, v := range []string{"groups", "joined", "windows"} {
			s.must(fmt.Sprintf("ALTER MATERIALIZED VIEW %s SET (parallelism = %d)", v, p))
		}
		require.Equal(t, []string{fmt.Sprint(p)}, s.rows("SELECT DISTINCT parallelism FROM streamdb.jobs"))
		more(100)
		check()
		more(50)
		d.crash()
		s = d.connect()
		require.Equal(t, fmt.Sprint(p), strings.Join(s.rows("SELECT DISTINCT parallelism FROM streamdb.jobs"), " "))
		check()
	}
}
