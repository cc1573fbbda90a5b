package server_test

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/server"
)

// follower keeps a copy of a relation by a subscription: it takes over what it was given when it is told that an epoch is complete, and goes on after
// that with the next connection.
type follower struct {
	t      *testing.T
	target string
	epoch  int64
	rows   map[string]int
	open   map[string]int // not complete
	s      *session
}

func follow(t *testing.T, target string) *follower {
	return &follower{t: t, target: target, rows: map[string]int{}}
}

// connect subscribes, from the last complete epoch on.
func (f *follower) connect(d *database) {
	f.t.Helper()
	f.s = d.connect()
	from := ""
	if f.epoch > 0 {
		from = fmt.Sprintf(" AS OF %d", f.epoch)
	}
	f.open = map[string]int{}
	f.s.must("DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE " + f.target + " WITH (PROGRESS)" + from)
}

// take fetches what there is, n rows at most.
func (f *follower) take(n int, timeout string) {
	f.t.Helper()
	last := f.epoch
	for _, r := range f.s.rows(fmt.Sprintf("FETCH %d FROM c WITH (timeout = '%s')", n, timeout)) {
		p := strings.SplitN(r, "|", 4)
		epoch, err := strconv.ParseInt(p[0], 10, 64)
		require.NoError(f.t, err)
		require.GreaterOrEqual(f.t, epoch, last)
		last = epoch
		if p[1] == "t" {
			for row, n := range f.open {
				if f.rows[row] += n; f.rows[row] == 0 {
					delete(f.rows, row)
				}
				require.GreaterOrEqual(f.t, f.rows[row], 0, "%s of %s at %d", row, f.target, epoch)
			}
			f.open, f.epoch = map[string]int{}, epoch
			continue
		}
		diff, err := strconv.Atoi(p[2])
		require.NoError(f.t, err)
		f.open[p[3]] += diff
	}
}

func (f *follower) content() []string {
	out := []string{}
	for r, n := range f.rows {
		for range n {
			out = append(out, r)
		}
	}
	sort.Strings(out)
	return out
}

// reaches takes until the copy is what a query gives.
func (f *follower) reaches(query func() []string) {
	f.t.Helper()
	for try := 0; ; try++ {
		want := query()
		sort.Strings(want)
		if got := f.content(); len(f.open) == 0 && strings.Join(want, "\n") == strings.Join(got, "\n") {
			return
		} else if try == 200 {
			require.Equal(f.t, want, got, f.target)
		}
		f.take(1000, "100ms")
	}
}

func TestSubscribeResumesOverCrashes(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, k int, v int) WITH (retention = '1 hour')", "CREATE TABLE plain (id int)",
		"CREATE MATERIALIZED VIEW m WITH (retention = '1 hour') AS SELECT k, count(*) AS n, sum(v) AS s FROM t GROUP BY k",
		"CREATE MATERIALIZED VIEW mm WITH (retention = '1 hour', parallelism = 1) AS SELECT n, count(*) AS c FROM m GROUP BY n",
		`CREATE SOURCE b WITH (connector = 'nexmark', "nexmark.table.type" = 'Bid', "nexmark.event.rate" = '2000')`,
		"CREATE MATERIALIZED VIEW src WITH (retention = '1 hour') AS SELECT auction % 50 AS a, count(*) AS n FROM b GROUP BY 1",
		"CHECKPOINT")
	random := rand.New(rand.NewPCG(1, 2))
	followers := []*follower{follow(t, "t"), follow(t, "m"), follow(t, "mm"), follow(t, "src")}
	for round := range 6 {
		for _, f := range followers {
			f.connect(d)
		}
		w := d.connect()
		for range 60 {
			switch id := random.IntN(200); random.IntN(4) {
			case 0:
				w.must(fmt.Sprintf("DELETE FROM t WHERE id = %d", id))
			case 1:
				w.must(fmt.Sprintf("UPDATE t SET k = %d, v = v + 1 WHERE id BETWEEN %d AND %d", random.IntN(8), id, id+random.IntN(20)))
			default:
				w.must(fmt.Sprintf("INSERT INTO t VALUES (%d, %d, %d) ON CONFLICT DO NOTHING", id, random.IntN(8), random.IntN(100)))
			}
			if random.IntN(5) == 0 {
				followers[random.IntN(len(followers))].take(1+random.IntN(30), "0")
			}
			if random.IntN(25) == 0 {
				w.must("CHECKPOINT")
			}
			if round%2 == 1 && random.IntN(40) == 0 {
				w.must("RECOVER")
			}
		}
		for _, f := range followers {
			f.take(100, "10ms")
		}
		d.crash()
	}
	w := d.connect()
	for _, f := range followers {
		f.connect(d)
	}
	w.must("INSERT INTO t VALUES (1000, 1, 1)")
	for _, f := range followers[:3] {
		f.reaches(func() []string { return w.rows("SELECT * FROM " + f.target) })
	}
	w.must("PAUSE src", "FLUSH")
	followers[3].reaches(func() []string { return w.rows("SELECT * FROM src") })
}

// What a subscription tells can be gone on from at once, also where no checkpoint has been made of the view since it keeps its changes.
func TestSubscribeResumesOverACrashBeforeTheFirstCheckpoint(t *testing.T) {
	keep := " WITH (retention = '1 hour')"
	count := " AS SELECT k, count(*) AS n FROM t GROUP BY k"
	for name, create := range map[string][]string{
		"view":             {"CREATE MATERIALIZED VIEW m" + keep + count},
		"over a view":      {"CREATE MATERIALIZED VIEW below" + count, "CREATE MATERIALIZED VIEW m" + keep + " AS SELECT n, count(*) AS c FROM below GROUP BY n"},
		"in a block":       {"BEGIN", "CREATE MATERIALIZED VIEW m" + keep + count, "COMMIT"},
		"background":       {"SET background_ddl = on", "CREATE MATERIALIZED VIEW m" + keep + count, "WAIT m"},
		"set later":        {"CREATE MATERIALIZED VIEW m" + count, "CHECKPOINT", "INSERT INTO t VALUES (1000, 1)", "ALTER MATERIALIZED VIEW m SET (retention = '1 hour')"},
		"set for all":      {"SET retention = '1 hour'", "CREATE MATERIALIZED VIEW m" + count},
		"another query":    {"CREATE MATERIALIZED VIEW m" + keep + count, "CHECKPOINT", "INSERT INTO t VALUES (1000, 1)", "CREATE OR REPLACE MATERIALIZED VIEW m" + keep + " AS SELECT k, max(id) AS n FROM t GROUP BY k"},
		"over a source":    {"CREATE MATERIALIZED VIEW m" + keep + " AS SELECT k, count(*) AS n FROM src GROUP BY k"},
		"with a bad row":   {"INSERT INTO t VALUES (1000, 0)", "CREATE MATERIALIZED VIEW m" + keep + " AS SELECT 10 / k AS n FROM t"},
		"changed and back": {"CREATE MATERIALIZED VIEW m" + keep + count, "CHECKPOINT", "ALTER MATERIALIZED VIEW m RESET (retention)", "INSERT INTO t VALUES (1000, 1)", "ALTER MATERIALIZED VIEW m SET (retention = '1 hour')"},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, func(c *server.Config) { c.Settings = map[string]string{"execution.checkpointing.interval": "0"} })
			s := d.connect()
			s.must("CREATE TABLE t (id int PRIMARY KEY, k int)", "INSERT INTO t SELECT i, 1 + i % 5 FROM generate_series(1, 100) AS i",
				`CREATE SOURCE src (id int, k int) WITH (connector = 'datagen', "fields.id.kind" = 'sequence', "fields.k.kind" = 'sequence', "fields.k.start" = '1', "fields.k.end" = '50')`)
			s.must(create...)
			f := follow(t, "m")
			f.connect(d)
			f.take(1000, "0")
			require.NotZero(t, f.epoch)
			for i := range 3 {
				w := d.connect()
				w.must(fmt.Sprintf("INSERT INTO t SELECT i, 1 + i %% 5 FROM generate_series(%d, %d) AS i", 2000+10*i, 2000+10*i+9))
				f.take(1000, "10ms")
				d.crash()
				f.connect(d)
			}
			w := d.connect()
			w.must("FLUSH")
			f.reaches(func() []string { return w.rows("SELECT * FROM m") })
		})
	}
}

// Where no checkpoint can be made a subscription begins all the same, and says what that means.
func TestSubscribeWithoutACheckpoint(t *testing.T) {
	d := open(t, func(c *server.Config) {
		fp, err := failpoint.Parse("checkpoint/before-upload=error")
		require.NoError(t, err)
		c.Failpoints, c.Settings = fp, map[string]string{"execution.checkpointing.interval": "0"}
	})
	s := d.connect()
	s.must("CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)", "CREATE MATERIALIZED VIEW m WITH (retention = '1 hour') AS SELECT count(*) AS n FROM t")
	f := follow(t, "m")
	f.connect(d)
	require.Len(t, f.s.notices, 1)
	require.Contains(t, f.s.notices[0].Message, `no checkpoint has materialized view "m" yet: until one is complete, no subscription goes on after a crash: `)
	f.reaches(func() []string { return []string{"1"} })
	d.cfg.Failpoints = nil
	d.crash()
	require.Equal(t, "55000", d.connect().code(fmt.Sprintf("DECLARE x CURSOR WITH HOLD FOR SUBSCRIBE m AS OF %d", f.epoch)))
}

func TestSubscribeAsOfNeedsWhatIsKept(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE p (id int PRIMARY KEY)", "CREATE TABLE t (id int PRIMARY KEY) WITH (retention = '1 hour', retention_size = '64kB')")
	p, f := follow(t, "p"), follow(t, "t")
	p.connect(d)
	f.connect(d)
	p.take(10, "0")
	f.take(10, "0")
	// Nothing has changed: there is nothing to be kept.
	p.connect(d)
	s.must("INSERT INTO p VALUES (1)", "INSERT INTO t VALUES (1)")
	e := s.fails(fmt.Sprintf("DECLARE x CURSOR WITH HOLD FOR SUBSCRIBE p AS OF %d", p.epoch), "55000", fmt.Sprintf(`the changes of "p" after epoch %d are not kept any more`, p.epoch))
	require.Contains(t, e.Hint, "retention")
	f.connect(d)
	f.reaches(func() []string { return []string{"1"} })
	s.must("CHECKPOINT")
	for i := range 40 {
		s.must(fmt.Sprintf("INSERT INTO t SELECT %d + g * 7 %% 1000003 FROM generate_series(1, 5000) g", i*10_000_000))
		if i == 20 {
			s.must("CHECKPOINT")
		}
	}
	s.must("CHECKPOINT", "INSERT INTO t SELECT -g FROM generate_series(1, 20000) g", "INSERT INTO t VALUES (-100000)")
	e = s.fails(fmt.Sprintf("DECLARE x CURSOR WITH HOLD FOR SUBSCRIBE t AS OF %d", f.epoch), "55000", "")
	require.Contains(t, e.Detail, "The earliest epoch to go on from is ")
	// The reader that was left behind is cut off, too.
	_, err := f.s.PgConn().Exec(d.ctx, "FETCH ALL FROM c").ReadAll()
	require.Equal(t, "55000", string(codeOf(t, err)))

	s.must("ALTER TABLE p SET (retention = '1 h')")
	require.Equal(t, []string{"{retention=1h}"}, s.rows("SELECT reloptions FROM pg_class WHERE relname = 'p'"))
	p = follow(t, "p")
	p.connect(d)
	p.reaches(func() []string { return []string{"1"} })
	s.must("INSERT INTO p VALUES (2)")
	p.connect(d)
	p.reaches(func() []string { return []string{"1", "2"} })
	s.must("ALTER TABLE p ADD COLUMN x int")
	require.Equal(t, "55000", s.code(fmt.Sprintf("DECLARE x CURSOR WITH HOLD FOR SUBSCRIBE p AS OF %d", p.epoch)))
	s.must("ALTER TABLE p RESET (retention)", "DROP TABLE t")
	require.Equal(t, []string{"NULL"}, s.rows("SELECT reloptions FROM pg_class WHERE relname = 'p'"))
	s.must("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM p", "ALTER MATERIALIZED VIEW m SET (retention = '1 hour')")
	m := follow(t, "m")
	m.connect(d)
	m.reaches(func() []string { return []string{"2"} })
	s.must("INSERT INTO p VALUES (3)")
	m.connect(d)
	m.reaches(func() []string { return []string{"3"} })
	s.must("CREATE OR REPLACE MATERIALIZED VIEW m WITH (retention = '1 hour') AS SELECT count(*) + 100 AS n FROM p")
	s.fails(fmt.Sprintf("DECLARE x CURSOR WITH HOLD FOR SUBSCRIBE m AS OF %d", m.epoch), "55000", "")
	m = follow(t, "m")
	m.connect(d)
	m.reaches(func() []string { return []string{"103"} })
	s.must("INSERT INTO p VALUES (4)")
	m.connect(d)
	m.reaches(func() []string { return []string{"104"} })
	s.must("ALTER MATERIALIZED VIEW m RESET (retention)")
	require.Equal(t, "22023", s.code("ALTER TABLE p SET (retention = 'x')"))
}

func TestSubscribeResumesAfterAStopInOrder(t *testing.T) {
	d := open(t, func(c *server.Config) { c.Settings = map[string]string{"retention": "1 hour"} })
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t", "INSERT INTO t VALUES (1)")
	f, m := follow(t, "t"), follow(t, "m")
	for i := 2; i < 6; i++ {
		f.connect(d)
		m.connect(d)
		f.reaches(func() []string { return s.rows("TABLE t") })
		m.reaches(func() []string { return s.rows("TABLE m") })
		s.must(fmt.Sprintf("INSERT INTO t VALUES (%d)", i))
		require.NoError(t, d.srv.Close(d.ctx))
		d.start()
		s = d.connect()
	}
	s.must("SET synchronous_commit = off", "INSERT INTO t VALUES (100)")
	f.connect(d)
	f.reaches(func() []string { return s.rows("TABLE t") })
	d.crash() // perhaps the row is lost, and then the subscriber is told so
	s = d.connect()
	f.connect(d)
	m.connect(d)
	f.reaches(func() []string { return s.rows("TABLE t") })
	m.reaches(func() []string { return s.rows("TABLE m") })
}

func TestSubscribeToAPausedViewOverACrash(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE other (id int PRIMARY KEY)", "CREATE TABLE t (id int PRIMARY KEY)", "CREATE MATERIALIZED VIEW m WITH (retention = '1 hour') AS SELECT count(*) AS n FROM t", "CHECKPOINT", "INSERT INTO t VALUES (1)")
	m := follow(t, "m")
	m.connect(d)
	m.reaches(func() []string { return []string{"1"} })
	s.must("PAUSE m")
	d.crash() // the view is paused at its checkpoint, before what the subscriber has
	s = d.connect()
	s.must("INSERT INTO t VALUES (2)")
	resumed := make(chan struct{})
	go func() {
		defer close(resumed)
		_, _ = s.PgConn().Exec(d.ctx, "RESUME m").ReadAll()
	}()
	m.connect(d) // it waits for that
	<-resumed
	require.Equal(t, []string{"1"}, m.content())
	m.reaches(func() []string { return []string{"2"} })
	d.connect().must("CHECKPOINT")
	d.crash()
	m.connect(d)
	m.reaches(func() []string { return []string{"2"} })
}

// The checkpoint after one that went on without a view, which had written its state already, must not take the view for unchanged.
func TestViewIsNotUnchangedAfterACheckpointWithoutIt(t *testing.T) {
	d := open(t)
	d.connect().must("CREATE TABLE other (id int PRIMARY KEY)", "CREATE TABLE t (id int PRIMARY KEY)", "CREATE MATERIALIZED VIEW m WITH (retention = '1 hour') AS SELECT count(*) AS n FROM t",
		"CHECKPOINT", "INSERT INTO t VALUES (1), (2)", "FLUSH")
	points, err := failpoint.Parse("history/reach=error*1")
	require.NoError(t, err)
	d.cfg.Failpoints = points
	d.crash()
	s := d.connect()
	s.must("FLUSH")
	s.must("CHECKPOINT", "INSERT INTO other VALUES (1)", "CHECKPOINT")
	d.cfg.Failpoints = nil
	d.crash()
	s = d.connect()
	s.must("FLUSH")
	require.Equal(t, []string{"2"}, s.rows("TABLE m"))
}

// Views that read no table may be in a newer checkpoint than the tables: what follows in the tables is then of epochs that have been closed.
func TestViewsOverTablesAfterACheckpointWithoutTheTables(t *testing.T) {
	for _, retention := range []string{"0", "1 hour"} {
		points, err := failpoint.Parse("tables/written=error*1")
		require.NoError(t, err)
		d := open(t, func(c *server.Config) {
			c.Settings = map[string]string{"execution.checkpointing.interval": "0", "retention": retention}
		})
		d.connect().must("CREATE TABLE t (id int PRIMARY KEY)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n, sum(id) AS s FROM t",
			`CREATE SOURCE b WITH (connector = 'nexmark', "nexmark.table.type" = 'Bid', "nexmark.event.rate" = '2000')`,
			"CREATE MATERIALIZED VIEW src AS SELECT count(*) AS n FROM b", "INSERT INTO t VALUES (1)", "CHECKPOINT")
		d.cfg.Failpoints = points
		d.crash()
		s := d.connect()
		s.must("INSERT INTO t VALUES (2)", "INSERT INTO t VALUES (3)", "UPDATE t SET id = 4 WHERE id = 1", "CHECKPOINT")
		require.Eventually(t, func() bool {
			return len(s.rows("SELECT 1 FROM streamdb.checkpoints JOIN streamdb.jobs USING (job_id) WHERE name = 'src' AND status = 'COMPLETED'")) > 0
		}, testTimeout, time.Millisecond)
		d.cfg.Failpoints = nil
		d.crash()
		s = d.connect()
		s.must("FLUSH")
		require.Equal(t, []string{"3|9"}, s.rows("TABLE m"), retention)
	}
}

// What a history has on disk is told to subscribers of a later process: no epoch of it comes again, though nobody was told of it yet.
func TestHistoriesWithoutSubscribersReserveTheirEpochs(t *testing.T) {
	d := open(t, func(c *server.Config) { c.Settings = map[string]string{"execution.checkpointing.interval": "0"} })
	d.connect().must(`CREATE SOURCE b WITH (connector = 'nexmark', "nexmark.table.type" = 'Bid', "nexmark.event.rate" = '2000')`,
		"CREATE MATERIALIZED VIEW m WITH (retention = '1 hour') AS SELECT count(*) AS n FROM b", "CHECKPOINT")
	m := follow(t, "m")
	m.connect(d)
	m.take(5, "1s")
	d.crash()
	kept := func(s *session) int {
		n, err := strconv.Atoi(s.row("SELECT newest_epoch FROM streamdb.histories"))
		require.NoError(t, err)
		return n
	}
	s := d.connect()
	began := int(m.epoch) + 1000 // epochs after those that were told are far from them
	require.Eventually(t, func() bool { return kept(s) > began }, testTimeout, time.Millisecond)
	began = kept(s)
	require.Eventually(t, func() bool { return kept(s) > began+50 }, testTimeout, time.Millisecond)
	d.crash()
	m.connect(d)
	s = d.connect()
	s.must("PAUSE m", "FLUSH")
	m.reaches(func() []string { return s.rows("TABLE m") })
}

// Checkpoints in which nothing changed at all are not written: a job that starts again after them goes on from where it is, not from the one that was.
func TestViewGoesOnAfterCheckpointsThatWereNotWritten(t *testing.T) {
	d := open(t, func(c *server.Config) { c.Settings = map[string]string{"execution.checkpointing.interval": "0"} })
	s := d.connect()
	s.must("CREATE TABLE other (id int PRIMARY KEY)", "CREATE TABLE t (id int PRIMARY KEY)",
		"CREATE MATERIALIZED VIEW m WITH (retention = '1 hour', parallelism = 2) AS SELECT id % 3 AS k, count(*) AS n FROM t GROUP BY 1",
		"INSERT INTO t VALUES (1), (2)", "CHECKPOINT",
		"INSERT INTO other VALUES (1)", "CHECKPOINT", // the view is in it as it was
		"CREATE TABLE later (id int)", "INSERT INTO later VALUES (1)", "DELETE FROM later", "CHECKPOINT", "CHECKPOINT", "CHECKPOINT")
	from := s.rows("SELECT earliest_epoch FROM streamdb.histories WHERE name = 'm'")
	s.must("INSERT INTO t VALUES (3)", "ALTER MATERIALIZED VIEW m SET (parallelism = 3)", "INSERT INTO t VALUES (4)", "FLUSH")
	m := follow(t, "m")
	m.connect(d)
	m.reaches(func() []string { return []string{"0|1", "1|2", "2|1"} })
	require.Equal(t, from, s.rows("SELECT earliest_epoch FROM streamdb.histories WHERE name = 'm'"))
}
