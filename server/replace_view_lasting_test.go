package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/failpoint"
)

// told are the messages that a replacement gave, with their details.
func (s *session) told(q string) string {
	s.d.t.Helper()
	s.notices = nil
	s.must(q)
	var out strings.Builder
	for _, n := range s.notices {
		fmt.Fprintln(&out, n.Severity, n.Message, n.Detail)
	}
	return out.String()
}

// reaches waits until a query has rows.
func (s *session) reaches(q string, want []string) {
	s.d.t.Helper()
	var got []string
	require.Eventually(s.d.t, func() bool { got = s.rows(q); return slices.Equal(got, want) }, testTimeout/2, 10*time.Millisecond, "%s, got last %q, want %q", q, &got, want)
}

// Windows that have closed exist nowhere but in the view: they stay when the whole of its query goes on in the new one, while the source has lost the rows that they were of, after
// a crash right behind the replacement, too.
func TestClosedWindowsSurviveAnotherQuery(t *testing.T) {
	const old = "SELECT k, window_start, count(*) AS n, sum(v) AS s FROM TUMBLE(e, t, INTERVAL '10 seconds') GROUP BY k, window_start, window_end"
	const sessions = "SELECT k, window_start, window_end, v FROM SESSION(e, k, t, INTERVAL '3 seconds')"
	const best = "SELECT window_start, k, v, rn FROM (SELECT *, row_number() OVER (PARTITION BY window_start, window_end ORDER BY v DESC) AS rn FROM TUMBLE(e, t, INTERVAL '10 seconds')) x WHERE rn <= 2"
	const running = "SELECT window_start, k, v, sum(v) OVER (PARTITION BY window_start, window_end ORDER BY v, k) AS s FROM TUMBLE(e, t, INTERVAL '10 seconds')"
	for _, c := range []struct{ name, old, next, of string }{
		{"filter", old, "SELECT * FROM (" + old + ") x WHERE n > 1", "SELECT * FROM old WHERE n > 1"},
		{"order of columns", old, "SELECT s AS total, n, window_start AS w, k FROM (" + old + ") x", "SELECT s, n, window_start, k FROM old"},
		{"the same", old, old, "SELECT * FROM old"},
		{"expressions", old, "SELECT k, window_start, n * 2 AS twice, s, n + s AS more FROM (" + old + ") x", "SELECT k, window_start, n * 2, s, n + s FROM old"},
		{"join", old, "SELECT x.*, names.name FROM (" + old + ") x LEFT JOIN names ON names.k = x.k", "SELECT old.*, names.name FROM old LEFT JOIN names ON names.k = old.k"},
		{"sessions", sessions, "SELECT *, window_end - window_start AS d FROM (" + sessions + ") x", "SELECT *, window_end - window_start FROM old"},
		{"best", best, "SELECT *, v + 1 AS w FROM (" + best + ") x", "SELECT *, v + 1 FROM old"},
		{"running", running, "SELECT *, s - v AS before FROM (" + running + ") x", "SELECT *, s - v FROM old"},
	} {
		for _, parallelism := range []int{3, 1} {
			if parallelism == 1 && testing.Short() {
				continue
			}
			t.Run(fmt.Sprintf("%s, parallelism %d", c.name, parallelism), func(t *testing.T) {
				dir := t.TempDir()
				write := func(file string, from, to int) {
					var b strings.Builder
					for i := from; i < to; i++ {
						fmt.Fprintf(&b, "{\"k\": %d, \"v\": %d, \"t\": %q}\n", i%3, i, time.Date(2024, 1, 1, 0, 0, i*2, 0, time.UTC).Format("2006-01-02 15:04:05"))
					}
					tmp := filepath.Join(t.TempDir(), file)
					require.NoError(t, os.WriteFile(tmp, []byte(b.String()), 0o600))
					require.NoError(t, os.Rename(tmp, filepath.Join(dir, file)))
				}
				write("1.json", 0, 50)
				d := open(t)
				s := d.connect()
				s.must(fmt.Sprint("SET parallelism = ", parallelism), `CREATE SOURCE e (k int, v int, t timestamp, WATERMARK FOR t AS t - INTERVAL '5 seconds') WITH (connector = 'file', path = '`+filepath.Join(dir, "*.json")+
					"', file.follow = 'true', scan.watermark.idle-timeout = '100ms') FORMAT PLAIN ENCODE JSON", "CREATE TABLE names (k int PRIMARY KEY, name text)", "INSERT INTO names SELECT i, 'n' || i FROM generate_series(0, 1) i",
					"CREATE MATERIALIZED VIEW old AS "+c.old+" EMIT ON WINDOW CLOSE", "CREATE MATERIALIZED VIEW m AS "+c.old+" EMIT ON WINDOW CLOSE")
				settled := func(after int) {
					t.Helper()
					n := 0
					require.Eventually(t, func() bool {
						was := n
						require.NoError(t, s.QueryRow(d.ctx, "SELECT count(*) FROM old").Scan(&n))
						return n == was && n > after && slices.Equal(s.rows("SELECT * FROM old ORDER BY 1, 2, 3, 4"), s.rows("SELECT * FROM m ORDER BY 1, 2, 3, 4"))
					}, testTimeout/2, 100*time.Millisecond)
				}
				settled(15)
				s.must("CHECKPOINT")
				require.NoError(t, os.Remove(filepath.Join(dir, "1.json")))
				alter := "ALTER MATERIALIZED VIEW m AS " + c.next
				if c.name == "filter" && parallelism > 1 {
					alter = "CREATE OR REPLACE MATERIALIZED VIEW m WITH (parallelism = 2) AS " + c.next
				}
				said := s.told(alter + " EMIT ON WINDOW CLOSE")
				require.Contains(t, said, "keep their state")
				require.NotContains(t, said, "WARNING")
				check := func() {
					t.Helper()
					s = d.connect()
					s.reaches("SELECT * FROM m ORDER BY 1, 2, 3, 4", s.rows(c.of+" ORDER BY 1, 2, 3, 4"))
				}
				check()
				d.crash()
				check()
				write("2.json", 50, 90)
				s = d.connect()
				require.Eventually(t, func() bool {
					return s.row("SELECT count(*) FROM old WHERE window_start > '2024-01-01 00:02:30'") != "0"
				}, testTimeout/2, 10*time.Millisecond)
				check()
				s.must("CHECKPOINT", "UPDATE names SET name = 'x'")
				check()
				d.crash()
				check()
			})
		}
	}
}

// What a temporal join has found stays, though the other side is different now, whatever is put above it, and rows that come while the query is replaced meet what their epoch has.
func TestTemporalJoinsKeepWhatTheyFound(t *testing.T) {
	const old = "SELECT s.id, s.k, dim.v FROM s LEFT JOIN dim FOR SYSTEM_TIME AS OF PROCTIME() ON s.k = dim.k"
	nexts := []struct{ next, of string }{
		{"SELECT * FROM (" + old + ") x WHERE v IS NULL OR v > 3", "SELECT * FROM old WHERE v IS NULL OR v > 3"},
		{"SELECT v AS w, id, k FROM (" + old + ") x", "SELECT v, id, k FROM old"},
		{"SELECT id, k, v, sum(v) OVER (PARTITION BY k ORDER BY id) FROM (" + old + ") x", "SELECT id, k, v, sum(v) OVER (PARTITION BY k ORDER BY id) FROM old"},
		{"SELECT k, count(*), sum(v), max(id) FROM (" + old + ") x GROUP BY k", "SELECT k, count(*), sum(v), max(id) FROM old GROUP BY k"},
		{"SELECT x.*, dim.v AS now FROM (" + old + ") x JOIN dim ON dim.k = x.k", "SELECT old.*, dim.v FROM old JOIN dim ON dim.k = old.k"},
	}
	for i, c := range nexts {
		for _, kind := range []string{"", " APPEND ONLY"} {
			t.Run(fmt.Sprintf("%d%s", i, kind), func(t *testing.T) {
				d := open(t)
				s := d.connect()
				s.must("SET parallelism = 3", "CREATE TABLE s (id int, k int)"+kind, "CREATE TABLE dim (k int PRIMARY KEY, v int)", "INSERT INTO dim SELECT i, i FROM generate_series(0, 6) i",
					"CREATE MATERIALIZED VIEW old AS "+old, "CREATE MATERIALIZED VIEW m AS "+old)
				for i := range 30 {
					s.must(fmt.Sprintf("INSERT INTO s VALUES (%d, %d)", i, i%9), fmt.Sprintf("UPDATE dim SET v = %d WHERE k = %d", 10+i, i%7))
				}
				stop := d.writing(func(w *session, i int) {
					i += 100
					w.must(fmt.Sprintf("INSERT INTO s VALUES (%d, %d)", i, i%9), fmt.Sprintf("UPDATE dim SET v = %d WHERE k = %d", i, i%7))
					if kind == "" {
						w.must(fmt.Sprintf("DELETE FROM s WHERE id = %d", i-90))
					}
				})
				check := func() {
					t.Helper()
					s := d.connect()
					s.must("BEGIN")
					require.Equal(t, s.rows(c.of+" ORDER BY 1, 2, 3"), s.rows("SELECT * FROM m ORDER BY 1, 2, 3"))
					s.must("COMMIT")
				}
				said := s.told("ALTER MATERIALIZED VIEW m AS " + c.next)
				require.Contains(t, said, "keep their state")
				require.NotContains(t, said, "WARNING")
				check()
				stop()
				check()
				d.crash()
				check()
				s = d.connect()
				s.must("INSERT INTO s VALUES (50000, 1), (50001, 8)", "UPDATE dim SET v = 0", "INSERT INTO s VALUES (50002, 1), (50003, 8)", "FLUSH")
				check()
				s.must("CHECKPOINT", "UPDATE dim SET v = 1")
				d.crash()
				check()
			})
		}
	}
}

// A replacement that must read a source again, or compute again what depends on when rows came, says so before it begins; one that cannot keep what it promised to keep fails, and
// leaves the view as it is.
func TestReplacementSaysWhatIsLost(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must(`CREATE SOURCE b WITH (connector = 'nexmark', "nexmark.table.type" = 'Bid', "nexmark.event.num" = '1000')`, "CREATE TABLE s (id int, k int)", "CREATE TABLE dim (k int PRIMARY KEY, v int)",
		"CREATE MATERIALIZED VIEW m AS SELECT auction, count(*) AS n FROM b GROUP BY auction", "CREATE MATERIALIZED VIEW j AS SELECT s.id, dim.v FROM s JOIN dim FOR SYSTEM_TIME AS OF PROCTIME() ON s.k = dim.k",
		"FLUSH", "CHECKPOINT")
	require.Contains(t, s.told("ALTER MATERIALIZED VIEW m AS SELECT auction, max(price) AS n FROM b GROUP BY auction"),
		`WARNING source "b" is read again from where its options say that it begins, for materialized view "m" Rows that it does not give any more will be missing.`)
	require.Contains(t, s.told("ALTER MATERIALIZED VIEW j AS SELECT s.id, dim.v FROM s JOIN dim FOR SYSTEM_TIME AS OF PROCTIME() ON s.id = dim.k"), `WARNING what Temporal Join`)
	require.NotContains(t, s.told("CREATE OR REPLACE MATERIALIZED VIEW m AS SELECT auction, n + 1 AS n FROM (SELECT auction, max(price) AS n FROM b GROUP BY auction) x"), "WARNING")
	require.Contains(t, s.told("ALTER MATERIALIZED VIEW m AS SELECT auction, n, (SELECT count(*) FROM dim) FROM (SELECT auction, max(price) AS n FROM b GROUP BY auction) x"), "Read again: dim.")
}

// A crash while a replacement waits leaves the view as it was, though the new job has a checkpoint already, and the replacement can be made again.
func TestCrashWhileStateIsTakenOver(t *testing.T) {
	const old = "SELECT s.id, s.k, dim.v FROM s LEFT JOIN dim FOR SYSTEM_TIME AS OF PROCTIME() ON s.k = dim.k"
	d := open(t)
	s := d.connect()
	s.must("SET parallelism = 2", "CREATE TABLE s (id int, k int)", "CREATE TABLE dim (k int PRIMARY KEY, v int)", "INSERT INTO dim VALUES (1, 1), (2, 2)", "CREATE MATERIALIZED VIEW old AS "+old,
		"CREATE MATERIALIZED VIEW m AS "+old, "CREATE MATERIALIZED VIEW slow AS SELECT k, v FROM dim", "INSERT INTO s VALUES (1, 1), (2, 2), (3, 3)", "FLUSH", "UPDATE dim SET v = v + 10", "CHECKPOINT", "PAUSE slow",
		"UPDATE dim SET v = v + 10", "INSERT INTO s VALUES (4, 1)")
	const next, of = "SELECT x.*, slow.v AS now FROM (" + old + ") x LEFT JOIN slow ON slow.k = x.k", "SELECT old.*, slow.v FROM old LEFT JOIN slow ON slow.k = old.k ORDER BY 1"
	// one epoch of both: what is read next by the same session may be newer
	check := func(want string) {
		t.Helper()
		s.must("BEGIN")
		require.Equal(t, s.rows(want), s.rows("SELECT * FROM m ORDER BY 1"))
		s.must("COMMIT")
	}
	done := make(chan error, 1)
	r := d.connect()
	go func() {
		_, err := r.PgConn().Exec(d.ctx, "ALTER MATERIALIZED VIEW m AS "+next).ReadAll()
		done <- err
	}()
	require.Eventually(t, func() bool { return len(s.rows("SELECT 1 FROM streamdb.jobs")) == 4 }, testTimeout/2, time.Millisecond)
	d.crash()
	require.Error(t, <-done)
	s = d.connect()
	check("SELECT * FROM old ORDER BY 1")
	s.must("RESUME slow", "FLUSH")
	points, err := failpoint.Parse("view/swapped=error*1")
	require.NoError(t, err)
	d.cfg.Failpoints = points
	d.crash()
	s = d.connect()
	_, err = s.PgConn().Exec(d.ctx, "ALTER MATERIALIZED VIEW m AS "+next).ReadAll()
	require.ErrorContains(t, err, "view/swapped")
	d.crash()
	s = d.connect()
	check("SELECT * FROM old ORDER BY 1")
	require.Contains(t, s.told("ALTER MATERIALIZED VIEW m AS "+next), "keep their state")
	check(of)
	d.crash()
	s = d.connect()
	s.must("INSERT INTO s VALUES (5, 2)", "UPDATE dim SET v = v + 10", "FLUSH")
	check(of)
}
