package server_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/server"
)

// Readers of a view whose query is replaced again and again, and of what reads it, see one definition at a time, and all rows of it.
func TestReadersSeeOneDefinition(t *testing.T) {
	d := open(t)
	s := d.connect()
	define := func(n int) string {
		return fmt.Sprintf("CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT k, %d AS def, count(*) AS n FROM t GROUP BY k", n)
	}
	s.must("CREATE TABLE t (k int, v int)", "INSERT INTO t SELECT i % 7, i FROM generate_series(1, 500) i", define(1),
		"CREATE MATERIALIZED VIEW over_m AS SELECT def, sum(n)::int8 AS n FROM m GROUP BY def", "CREATE INDEX ON m (def)", "CREATE VIEW w AS SELECT max(def) AS def FROM m")
	const q = "SELECT (SELECT min(def) FROM m), (SELECT def FROM w), (SELECT def FROM over_m), (SELECT sum(n) FROM m), (SELECT n FROM over_m), (SELECT count(*) FROM t)"
	stop := make(chan struct{})
	var wg sync.WaitGroup
	reader := func(read func(*session) []string) {
		r := d.connect()
		wg.Add(1)
		go func() {
			defer wg.Done()
			last := "0"
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, row := range read(r) {
					c := strings.Split(row, "|")
					if len(c) != 6 || c[0] != c[1] || c[0] != c[2] || c[3] != c[4] || c[3] != c[5] || c[0] < last {
						t.Errorf("after definition %s: %s", last, row)
						return
					}
					last = c[0]
				}
			}
		}()
	}
	reader(func(r *session) []string { return r.rows(q) })
	reader(func(r *session) []string {
		r.must("BEGIN")
		var rows []string
		for range 3 {
			res, err := r.PgConn().Exec(d.ctx, q).ReadAll()
			if err != nil { // another definition that cannot be read as of the beginning of the block is refused
				if code := codeOf(t, err); code != pgerr.SerializationFailure {
					t.Errorf("in a block: %v", err)
				}
				break
			}
			rows = append(rows, string(bytes.Join(res[0].Rows[0], []byte("|"))))
		}
		r.must("ROLLBACK")
		return rows
	})
	prepared := d.connect()
	_, err := prepared.Prepare(d.ctx, "q", q)
	require.NoError(t, err)
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			select {
			case <-stop:
				return
			default:
			}
			var c [6]int
			if err := prepared.QueryRow(d.ctx, "q").Scan(&c[0], &c[1], &c[2], &c[3], &c[4], &c[5]); err != nil || c[0] != c[1] || c[0] != c[2] || c[3] != c[4] || c[3] != c[5] {
				t.Errorf("prepared: %v %v", c, err)
				return
			}
		}
	}()
	writer := d.connect()
	wg.Add(1)
	go func() {
		defer wg.Done()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				writer.must(fmt.Sprintf("INSERT INTO t VALUES (%d, %d)", i%9, i))
			}
		}
	}()
	for n := 2; n < 9; n++ {
		s.must(define(n))
		require.Equal(t, fmt.Sprint(n), s.row("SELECT max(def) FROM over_m"))
		if n%3 == 0 {
			s.must("CHECKPOINT")
		}
	}
	close(stop)
	wg.Wait()
	s.must("CHECKPOINT")
	want := s.row(q)
	d.crash()
	require.Equal(t, want, d.connect().row(q))
}

// jobDirs are the folders with state of jobs.
func (d *database) jobDirs() []string {
	dirs, err := os.ReadDir(filepath.Join(d.cfg.DataDir, "jobs"))
	if err != nil {
		require.ErrorIs(d.t, err, os.ErrNotExist)
	}
	out := []string{}
	for _, e := range dirs {
		out = append(out, e.Name())
	}
	return out
}

// A replacement that fails, is cancelled, or is interrupted by the end of the server leaves the view as it was, and nothing else.
func TestReplacementThatDoesNotComeAbout(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (k int, v int)", "CREATE MATERIALIZED VIEW slow AS SELECT k, v FROM t", "CREATE MATERIALIZED VIEW m AS SELECT k FROM t",
		"CREATE MATERIALIZED VIEW over_m AS SELECT count(*) AS n FROM m", "INSERT INTO t VALUES (1, 2), (3, 4)", "FLUSH", "CHECKPOINT")
	const replace = "CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT k, v FROM slow"
	jobs, dirs := s.rows("SELECT job_id, name FROM streamdb.jobs ORDER BY 1"), d.jobDirs()
	asBefore := func() {
		t.Helper()
		s := d.connect()
		s.must("FLUSH")
		require.Equal(t, jobs, s.rows("SELECT job_id, name FROM streamdb.jobs ORDER BY 1"))
		require.Equal(t, s.rows("SELECT k FROM t ORDER BY 1"), s.rows("SELECT * FROM m ORDER BY 1"))
		require.Equal(t, s.row("SELECT count(*) FROM t"), s.row("SELECT n FROM over_m"))
		s.must("CHECKPOINT")
		require.Equal(t, dirs, d.jobDirs())
	}
	// A view that does not advance cannot be read at the moment from which on the new one would follow it.
	s.must("PAUSE slow", "INSERT INTO t VALUES (5, 6)", "SET statement_timeout = '300ms'")
	s.fails(replace, "57014", "")
	s.must("RESET statement_timeout", "RESUME slow")
	asBefore()

	points, err := failpoint.Parse("view/swapped=error*1")
	require.NoError(t, err)
	d.cfg.Failpoints = points
	d.crash()
	_, err = d.connect().PgConn().Exec(d.ctx, replace).ReadAll()
	require.ErrorContains(t, err, "view/swapped")
	asBefore()

	waiting := func() (done chan error) {
		d.connect().must("PAUSE slow", "INSERT INTO t VALUES (7, 8)")
		done = make(chan error, 1)
		r := d.connect()
		go func() {
			_, err := r.PgConn().Exec(d.ctx, replace).ReadAll()
			done <- err
		}()
		w := d.connect()
		require.Eventually(t, func() bool { return len(w.rows("SELECT 1 FROM streamdb.jobs")) == 5 }, testTimeout/2, time.Millisecond)
		return done
	}
	done := waiting()
	d.crash()
	require.Error(t, <-done)
	d.connect().must("RESUME slow")
	asBefore()

	done = waiting()
	s = d.connect()
	id := s.row("SELECT min(job_id) FROM streamdb.jobs WHERE name LIKE 'm (%'")
	require.Contains(t, s.rows("SHOW JOBS"), id+"|REPLACE MATERIALIZED VIEW m|BACKFILLING|100 % (0 of 0 rows)|NULL")
	require.Equal(t, id, s.row("CANCEL JOBS "+id))
	require.Equal(t, "57014", string(codeOf(t, <-done)))
	s.must("RESUME slow")
	asBefore()

	done = waiting()
	s = d.connect()
	s.must("DROP MATERIALIZED VIEW m CASCADE", "RESUME slow")
	require.Equal(t, "57014", string(codeOf(t, <-done)))
	require.Equal(t, []string{"slow"}, s.rows("SELECT name FROM streamdb.jobs"))
}

// Temporal joins look up rows of the view that has taken the place of the one that they were planned over.
func TestTemporalJoinOfAReplacedView(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE dim (id int PRIMARY KEY, v int)", "INSERT INTO dim VALUES (1, 1), (2, 2)", "CREATE TABLE s (k int) APPEND ONLY",
		"CREATE MATERIALIZED VIEW dv AS SELECT id, max(v) AS v FROM dim GROUP BY id",
		"CREATE MATERIALIZED VIEW j AS SELECT s.k, dv.v FROM s LEFT JOIN dv FOR SYSTEM_TIME AS OF PROCTIME() ON s.k = dv.id", "INSERT INTO s VALUES (1)", "FLUSH")
	for n := range 2 {
		s.must(fmt.Sprintf("CREATE OR REPLACE MATERIALIZED VIEW dv AS SELECT id, max(v) * %d AS v FROM dim GROUP BY id", 10+n),
			fmt.Sprintf("INSERT INTO dim VALUES (%d, 3)", 3+n), "FLUSH", fmt.Sprintf("INSERT INTO s VALUES (2), (%d)", 3+n), "FLUSH")
	}
	s.must("UPDATE dim SET v = 9", "FLUSH", "CHECKPOINT")
	want := []string{"1|11", "2|22", "2|22", "3|33", "4|33"}
	require.Equal(t, want, s.rows("TABLE j ORDER BY 1, 2"))
	d.crash()
	s = d.connect()
	s.must("INSERT INTO s VALUES (4)", "FLUSH")
	require.Equal(t, append(want, "4|99"), s.rows("TABLE j ORDER BY 1, 2"))
}

// A subscription to a view, or to a query over one, ends with a clear error when the view's query is replaced.
func TestSubscriptionToReplacedView(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (k int)", "INSERT INTO t VALUES (1)", "CREATE MATERIALIZED VIEW m AS SELECT k FROM t")
	a, b := d.connect(), d.connect()
	a.must("BEGIN", "DECLARE c CURSOR FOR SUBSCRIBE m", "FETCH 1 c")
	b.must("BEGIN", "DECLARE c CURSOR FOR SUBSCRIBE (SELECT count(*) FROM m)", "FETCH 1 c")
	s.must("ALTER MATERIALIZED VIEW m AS SELECT k, k + 1 AS next FROM t")
	a.fails("FETCH 1 c", "55000", `the query of materialized view "m" was replaced`)
	b.fails("FETCH 1 c", "55000", `the query of materialized view "m" was replaced`)
}

// A view that was replaced keeps what does not belong to its query, and comes back from a checkpoint, also where only that is left.
func TestReplacedViewKeepsItsProperties(t *testing.T) {
	bucket := t.TempDir()
	d := open(t, func(c *server.Config) { c.CheckpointDir = "file://" + bucket })
	s := d.connect()
	s.must("CREATE ROLE reader", "CREATE ROLE maker", "CREATE TABLE t (k int, v int)", "INSERT INTO t SELECT i % 10, i FROM generate_series(1, 1000) i",
		"CREATE MATERIALIZED VIEW m WITH (parallelism = 3) AS SELECT k, count(*) AS n FROM t GROUP BY k", "GRANT SELECT ON m TO reader", "COMMENT ON MATERIALIZED VIEW m IS 'about m'",
		"COMMENT ON COLUMN m.n IS 'about n'", "GRANT SELECT ON t TO maker", "ALTER MATERIALIZED VIEW m OWNER TO maker", "CREATE INDEX m_n ON m (n DESC)")
	const q = `SELECT c.oid, relowner::regrole, obj_description(c.oid), col_description(c.oid, 2), has_table_privilege('reader', 'm', 'select'), reloptions,
		(SELECT parallelism FROM streamdb.jobs WHERE job_id = c.oid) FROM pg_class c WHERE relname = 'm'`
	before := s.row(q)
	s.must("ALTER MATERIALIZED VIEW m AS SELECT k, count(*) AS n, sum(v) AS s FROM t GROUP BY k")
	require.Equal(t, before, s.row(q))
	s.must("CREATE OR REPLACE MATERIALIZED VIEW m WITH (parallelism = 2) AS SELECT k, count(*) AS n, sum(v) AS s, max(v) AS top FROM t GROUP BY k")
	require.Equal(t, strings.ReplaceAll(strings.ReplaceAll(before, "parallelism=3", "parallelism=2"), "|3", "|2"), s.row(q))
	s.must("CREATE ROLE other", "GRANT ALL ON SCHEMA public TO other", "SET ROLE other")
	s.fails("CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT 1 AS k", "42501", "must be owner of materialized view m")
	s.must("RESET ROLE", "CHECKPOINT", "INSERT INTO t VALUES (1, 5000)", "FLUSH")
	check := func() {
		t.Helper()
		s := d.connect()
		s.must("FLUSH")
		require.Equal(t, s.rows("SELECT k, count(*) AS n, sum(v), max(v) FROM t GROUP BY k ORDER BY k"), s.rows("SELECT * FROM m ORDER BY k"))
		require.Equal(t, s.rows("SELECT k FROM m ORDER BY n DESC, k LIMIT 3"), s.rows("SELECT k FROM (SELECT k, count(*) AS n FROM t GROUP BY k) x ORDER BY n DESC, k LIMIT 3"))
	}
	check()
	d.crash()
	check()
	d.connect().must("CHECKPOINT")
	require.NoError(t, d.srv.Abort())
	require.NoError(t, os.RemoveAll(d.cfg.DataDir))
	d.start()
	check()
	d.connect().must("DROP INDEX m_n", "ALTER MATERIALIZED VIEW m AS SELECT 'x' AS other") // nothing depends on it: any columns will do
	require.Equal(t, "x", d.connect().row("TABLE m"))
	d.connect().must("ALTER MATERIALIZED VIEW m AS SELECT k, count(*) AS n, sum(v) AS s, max(v) AS top FROM t GROUP BY k")
	require.Equal(t, "CREATE MATERIALIZED VIEW public.m (k, n, s, top) WITH (parallelism = '2') AS SELECT k, count(*) AS n, sum(v) AS s, max(v) AS top FROM t GROUP BY k",
		strings.Split(d.connect().row("SHOW CREATE MATERIALIZED VIEW m"), "|")[1])
}

// Operators that are the same in the new query go on with their state: nothing that they read is read again, and the view is what its query says
// all the same, while tables change, at any parallelism, and after a crash.
func TestUnchangedOperatorsKeepTheirState(t *testing.T) {
	for _, parallelism := range []int{1, 4} {
		t.Run(fmt.Sprint("parallelism ", parallelism), func(t *testing.T) { keepState(t, parallelism) })
	}
}

func keepState(t *testing.T, parallelism int) {
	d := open(t)
	s := d.connect()
	const agg = "SELECT name, count(*) AS n, sum(v) AS s FROM t JOIN u USING (k) GROUP BY name"
	queries := []struct {
		query, keeps string
		again        string // relations that are read again
	}{
		{agg, "", "t u"},
		{"SELECT name, n, s, n * 2 AS twice FROM (" + agg + ") x", "Hash Aggregate", ""},
		{"SELECT name, count(*) AS n, max(v) AS s FROM t JOIN u USING (k) GROUP BY name", "Hash Join", ""},
		{"SELECT name, n, s FROM (SELECT name, count(*) AS n, max(v) AS s FROM t JOIN u USING (k) GROUP BY name) x JOIN u USING (name) WHERE n > 3", "Hash Aggregate", "u"},
		{"SELECT name, count(*) AS n, max(v) AS s, min(v) FROM t JOIN u USING (k) WHERE v > 5 GROUP BY name", "", "t u"},
		{"SELECT v % 7 AS name, count(*) AS n, count(DISTINCT name) AS s FROM t JOIN u USING (k) WHERE v > 5 GROUP BY 1", "Hash Join", ""},
		{"SELECT v, name FROM t JOIN u USING (k) WHERE v > 5 AND EXISTS (SELECT FROM t b WHERE b.id = t.id + 1)", "", "t u"},
	}
	s.must(fmt.Sprint("SET parallelism = ", parallelism), "CREATE TABLE t (id int PRIMARY KEY, k int, v int)", "CREATE TABLE u (k int PRIMARY KEY, name text)",
		"INSERT INTO u SELECT i, 'n' || i % 7 FROM generate_series(0, 9) i", "INSERT INTO t SELECT i, i % 12, i FROM generate_series(1, 1000) i", "CREATE MATERIALIZED VIEW m AS "+queries[0].query)
	stop := d.writing(func(w *session, i int) {
		w.must(fmt.Sprintf("INSERT INTO t VALUES (%d, %d, %d)", 2000+i, i%13, i), fmt.Sprintf("DELETE FROM t WHERE id = %d", 10*i), fmt.Sprintf("UPDATE u SET name = 'n' || %d WHERE k = %d", i%8, i%10))
	})
	check := func(s *session, q string) {
		t.Helper()
		s.must("BEGIN")
		require.Equal(t, s.rows("SELECT * FROM ("+q+") x ORDER BY 1, 2"), s.rows("SELECT * FROM m ORDER BY 1, 2"), q)
		s.must("COMMIT")
	}
	for i, q := range queries[1:] {
		if i%2 == 0 {
			s.must("CHECKPOINT")
		}
		s.notices = nil
		s.must("ALTER MATERIALIZED VIEW m AS " + q.query)
		kept := ""
		for _, n := range s.notices {
			kept += n.Message
		}
		require.Contains(t, kept, q.keeps, q.query)
		require.Equal(t, q.keeps == "", kept == "", "%s: %s", q.query, kept)
		check(s, q.query)
	}
	stop()
	check(s, queries[len(queries)-1].query)
	// Nothing is read again of what only unchanged operators read.
	s.must("ALTER MATERIALIZED VIEW m AS " + queries[0].query)
	for _, q := range queries[1:4] {
		s.must("CHECKPOINT", "ALTER MATERIALIZED VIEW m AS "+q.query)
		want := int64(0)
		for _, r := range strings.Fields(q.again) {
			var n int64
			require.NoError(t, s.QueryRow(d.ctx, "SELECT count(*) FROM "+r).Scan(&n))
			want += n
		}
		require.Equal(t, fmt.Sprint(want), s.row("SELECT sum(rows_out) FROM streamdb.operators WHERE name = 'scan'"), q.query)
		check(s, q.query)
	}
	s.must("INSERT INTO t VALUES (50000, 1, 1), (50001, 2, 2)")
	check(s, queries[3].query)
	d.crash()
	check(d.connect(), queries[3].query)
	s = d.connect()
	s.must("CHECKPOINT", "INSERT INTO t VALUES (50002, 2, 2)")
	d.crash()
	check(d.connect(), queries[3].query)
}

// Rows of a source are not read again for operators that go on with their state.
func TestSourcesAreNotReadAgain(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must(`CREATE SOURCE b WITH (connector = 'nexmark', "nexmark.table.type" = 'Bid', "nexmark.event.num" = '1000', "nexmark.split.num" = '3')`,
		"CREATE MATERIALIZED VIEW m AS SELECT auction, count(*) AS n, max(price) AS top FROM b GROUP BY auction", "FLUSH", "CHECKPOINT")
	want := s.rows("SELECT auction, n FROM m WHERE n > 3 ORDER BY 1")
	require.Equal(t, "920", s.row("SELECT sum(n) FROM m"))
	s.must("ALTER MATERIALIZED VIEW m AS SELECT auction, n FROM (SELECT auction, count(*) AS n, max(price) AS top FROM b GROUP BY auction) x WHERE n > 3 AND top > 0", "FLUSH")
	require.Equal(t, want, s.rows("SELECT * FROM m ORDER BY 1"))
	require.Equal(t, "0", s.row("SELECT sum(rows_out) FROM streamdb.operators WHERE name = 'source'"))
	s.must("CHECKPOINT")
	d.crash()
	require.Equal(t, want, d.connect().rows("SELECT * FROM m ORDER BY 1"))
}

// The checkpoint that a replacement makes for a view without one does not leave other views behind the tables: after a crash they go on, and what they
// have kept of their changes is there.
func TestReplacementLeavesOtherViewsTheirHistory(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (k int, v int)", "CREATE MATERIALIZED VIEW other WITH (retention = '1 hour') AS SELECT k, sum(v) AS v FROM t GROUP BY k", "INSERT INTO t VALUES (1, 2), (3, 4)", "FLUSH", "CHECKPOINT")
	f := follow(t, "other")
	f.connect(d)
	content := func() []string { return d.connect().rows("SELECT * FROM other") }
	f.reaches(content)
	s.must("CREATE MATERIALIZED VIEW m AS SELECT k, count(*) AS n FROM t GROUP BY k", "INSERT INTO t VALUES (1, 3), (5, 6)", "FLUSH")
	s.must("ALTER MATERIALIZED VIEW m AS SELECT k, n + 1 AS n FROM (SELECT k, count(*) AS n FROM t GROUP BY k) x")
	require.Contains(t, s.notices[len(s.notices)-1].Message, "keep their state")
	f.reaches(content)
	d.crash()
	f.connect(d)
	d.connect().must("DELETE FROM t WHERE k = 1", "FLUSH")
	f.reaches(content)
}

// What a view reads can get another query while the view's own is being replaced: the new job reads what everybody reads in the end.
func TestReplacementOfAViewAndOfWhatItReads(t *testing.T) {
	for _, explicit := range []bool{false, true} {
		t.Run(fmt.Sprintf("block %v", explicit), func(t *testing.T) {
			d := open(t)
			s := d.connect()
			s.must("CREATE TABLE t (k int, v int)", "CREATE MATERIALIZED VIEW slow AS SELECT k, v FROM t", "CREATE MATERIALIZED VIEW inside AS SELECT k, v FROM t",
				"CREATE MATERIALIZED VIEW outside AS SELECT k, v FROM inside", "CREATE MATERIALIZED VIEW reader AS SELECT count(*) AS n, sum(v) AS v FROM outside", "INSERT INTO t VALUES (1, 2), (3, 4)", "FLUSH",
				"PAUSE slow", "INSERT INTO t VALUES (5, 6)")
			r := d.connect()
			done := make(chan error, 1)
			go func() {
				_, err := r.PgConn().Exec(d.ctx, "CREATE OR REPLACE MATERIALIZED VIEW outside AS SELECT k, v * 10 AS v FROM inside UNION ALL SELECT k, v FROM slow").ReadAll()
				done <- err
			}()
			require.Eventually(t, func() bool { return len(s.rows("SELECT 1 FROM streamdb.jobs WHERE name LIKE 'outside (%'")) == 1 }, testTimeout/2, time.Millisecond)
			w := d.connect()
			if explicit {
				w.must("BEGIN")
			}
			w.must("CREATE OR REPLACE MATERIALIZED VIEW inside AS SELECT k, -v AS v FROM t")
			if explicit {
				w.must("COMMIT")
			}
			s.must("RESUME slow")
			require.NoError(t, <-done)
			for _, change := range []string{"INSERT INTO t VALUES (7, 8)", "DELETE FROM t WHERE k = 1", "CHECKPOINT"} {
				s.must(change, "FLUSH")
				require.Equal(t, s.rows("SELECT k, -v * 10 FROM t UNION ALL SELECT k, v FROM t ORDER BY 1, 2"), s.rows("SELECT * FROM outside ORDER BY 1, 2"), change)
				require.Equal(t, s.rows("SELECT count(*), sum(v) FROM outside"), s.rows("SELECT * FROM reader"), change)
			}
			d.crash()
			s = d.connect()
			s.must("INSERT INTO t VALUES (9, 10)", "FLUSH")
			require.Equal(t, s.rows("SELECT k, -v * 10 FROM t UNION ALL SELECT k, v FROM t ORDER BY 1, 2"), s.rows("SELECT * FROM outside ORDER BY 1, 2"))
			require.Equal(t, s.rows("SELECT count(*), sum(v) FROM outside"), s.rows("SELECT * FROM reader"))
		})
	}
}

// writing runs write, with a session of its own, again and again until stop, which waits for it.
func (d *database) writing(write func(w *session, i int)) (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	w := d.connect()
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			default:
				write(w, i)
			}
		}
	}()
	return func() {
		close(end)
		<-done
	}
}

// TestReadersOfAReplacedStream: what reads a view that is filled from a source gets a new job together with it, which may be filled from the view's first epoch already:
// the rows of the next one must reach it.
func TestReadersOfAReplacedStream(t *testing.T) {
	files := t.TempDir()
	var rows strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&rows, "{\"k\":%d}\n", i)
	}
	require.NoError(t, os.WriteFile(filepath.Join(files, "1.json"), []byte(rows.String()), 0o600))
	d := open(t)
	s := d.connect()
	s.must("CREATE SOURCE src (k int) WITH (connector = 'file', path = '"+files+"/*.json') FORMAT PLAIN ENCODE JSON",
		"CREATE MATERIALIZED VIEW a AS SELECT k FROM src", "CREATE MATERIALIZED VIEW b AS SELECT k FROM a WHERE k >= 0", "CREATE MATERIALIZED VIEW c AS SELECT k FROM b")
	for i := range 30 {
		s.must(fmt.Sprintf("ALTER MATERIALIZED VIEW a AS SELECT k + %d AS k FROM src", i))
		require.Equal(t, "3000|3000|3000", s.row("SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b), (SELECT count(*) FROM c)"), i)
	}
}
