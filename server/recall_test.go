package server_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/server"
	"github.com/streamdb/streamdb/storage/object/objecttest"
)

// TestViewsBehindAtACheckpointGoOn: views that were no part of the newest checkpoint, here paused ones, go on after a crash from where they were. Temporal
// joins show whether they do: computed again they would meet the prices of now.
func TestViewsBehindAtACheckpointGoOn(t *testing.T) {
	checkpointrows.Shows(t, 4)
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE orders (id int PRIMARY KEY, item int, n int)", "CREATE TABLE prices (item int PRIMARY KEY, price int)", "CREATE TABLE other (a int)",
		"INSERT INTO prices SELECT g, 100 FROM generate_series(1, 10) g",
		"CREATE MATERIALIZED VIEW big AS SELECT id, item, n * 10 AS n FROM orders",
		"CREATE MATERIALIZED VIEW over_table AS SELECT o.id, o.n, p.price FROM orders o JOIN prices FOR SYSTEM_TIME AS OF PROCTIME() p ON o.item = p.item",
		"CREATE MATERIALIZED VIEW over_view AS SELECT o.id, o.n, p.price FROM big o JOIN prices FOR SYSTEM_TIME AS OF PROCTIME() p ON o.item = p.item",
		"CREATE MATERIALIZED VIEW above AS SELECT price, count(*) AS c, sum(n) AS n FROM over_view GROUP BY price",
		"CREATE INDEX ON over_view (price)",
		"INSERT INTO orders SELECT g, g % 10 + 1, g FROM generate_series(1, 1000) g", "FLUSH", "CHECKPOINT")
	crashes := 0
	check := func(want ...string) {
		t.Helper()
		s.must("FLUSH")
		for _, v := range []string{"over_table", "over_view"} {
			require.Equal(t, strings.Join(want, " "), strings.Join(s.rows("SELECT price, count(*), sum(id) FROM "+v+" GROUP BY 1 ORDER BY 1"), " "), "%s after %d crashes", v, crashes)
			require.Equal(t, s.row("SELECT count(*), sum(n) FROM "+v+" v"), s.row("SELECT count(*), sum(n) * "+map[string]string{"over_table": "1", "over_view": "10"}[v]+" FROM orders"), v)
		}
		require.Equal(t, s.rows("SELECT price, count(*), sum(n) FROM over_view GROUP BY 1 ORDER BY 1"), s.rows("SELECT * FROM above ORDER BY 1"))
	}
	crash := func() {
		d.crash()
		crashes++
		s = d.connect()
	}
	pause, resume := []string{"PAUSE over_table", "PAUSE over_view"}, []string{"RESUME over_table", "RESUME over_view"}
	check("100|1000|500500")

	// What they miss: new, changed and deleted rows, and a table that they do not read.
	s.must(pause...)
	s.must("INSERT INTO orders SELECT g, g % 10 + 1, g FROM generate_series(1001, 2000) g", "DELETE FROM orders WHERE id <= 100", "UPDATE orders SET n = n + 1 WHERE id BETWEEN 500 AND 599",
		"INSERT INTO other VALUES (1)", "CHECKPOINT", "UPDATE prices SET price = 200", "INSERT INTO other VALUES (2)", "CHECKPOINT")
	crash()
	require.Equal(t, "100|1000", s.row("SELECT price, count(*) FROM over_table GROUP BY 1"), "they are paused and show what they were")
	s.must(resume...)
	check("100|800|440500", "200|1100|1555450") // 1..100 gone, 500..599 met the new price again
	s.must("CHECKPOINT")
	crash()
	check("100|800|440500", "200|1100|1555450")

	// Two of them behind by different checkpoints, with crashes while they are.
	s.must("PAUSE over_view", "INSERT INTO orders SELECT g, g % 10 + 1, g FROM generate_series(2001, 2010) g", "CHECKPOINT", "PAUSE over_table",
		"INSERT INTO orders SELECT g, g % 10 + 1, g FROM generate_series(2011, 2020) g", "CHECKPOINT")
	crash()
	s.must("UPDATE prices SET price = 300", "CHECKPOINT", "INSERT INTO orders SELECT g, g % 10 + 1, g FROM generate_series(2021, 2030) g", "CHECKPOINT")
	crash()
	require.Equal(t, "1900 1910", strings.Join(s.rows("SELECT count(*) FROM over_view UNION ALL SELECT count(*) FROM over_table"), " "))
	s.must(resume...)
	s.must("FLUSH")
	require.Equal(t, "300|20", s.rows("SELECT price, count(*) FROM over_table GROUP BY 1 ORDER BY 1")[2])
	require.Equal(t, "300|30", s.rows("SELECT price, count(*) FROM over_view GROUP BY 1 ORDER BY 1")[2])
	require.Equal(t, s.rows("SELECT price, count(*), sum(n) FROM over_view GROUP BY 1 ORDER BY 1"), s.rows("SELECT * FROM above ORDER BY 1"))

	// The table got another column meanwhile, and then all of its rows new ones: only then nothing can be told from before.
	s.must("CHECKPOINT", "PAUSE over_table", "ALTER TABLE orders ADD COLUMN note text DEFAULT 'x'", "INSERT INTO orders SELECT g, g % 10 + 1, g FROM generate_series(2031, 2040) g",
		"UPDATE prices SET price = 400", "CHECKPOINT")
	crash()
	s.must("RESUME over_table", "FLUSH")
	require.Equal(t, "400|10", s.rows("SELECT price, count(*) FROM over_table GROUP BY 1 ORDER BY 1")[3])

	// When nobody is behind any more nothing is held.
	s.must("CHECKPOINT", "INSERT INTO orders VALUES (3000, 1, 1)", "FLUSH", "CHECKPOINT")
	require.Empty(t, d.srv.Coordinator().Latest().Held)
}

// TestReadersOfWhatHasNotChanged: checkpoints of other views take tables along that have not changed. Readers that were no part of these go on as well, and those that had missed
// changes before get them once.
func TestReadersOfWhatHasNotChanged(t *testing.T) {
	checkpointrows.Shows(t, 4)
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE orders (id int PRIMARY KEY, item int)", "CREATE TABLE prices (item int PRIMARY KEY, price int)", "INSERT INTO prices SELECT g, 100 FROM generate_series(1, 10) g",
		"CREATE SOURCE g (id bigint) WITH (connector = 'datagen', fields.id.kind = 'sequence', datagen.rows.per.second = '2000')",
		"CREATE MATERIALIZED VIEW a AS SELECT (SELECT count(*) FROM orders) AS orders, count(*) AS n FROM g",
		"CREATE MATERIALIZED VIEW reads AS SELECT o.id, p.price FROM orders o JOIN prices FOR SYSTEM_TIME AS OF PROCTIME() p ON o.item = p.item",
		"CREATE MATERIALIZED VIEW behind AS SELECT o.id, p.price FROM orders o JOIN prices FOR SYSTEM_TIME AS OF PROCTIME() p ON o.item = p.item",
		"INSERT INTO orders SELECT g, g % 10 + 1 FROM generate_series(1, 100) g", "FLUSH", "UPDATE prices SET price = 200", "FLUSH", "CHECKPOINT")
	require.Equal(t, "100|100 100|100", strings.Join(s.rows("SELECT count(*), max(price) FROM reads UNION ALL SELECT count(*), max(price) FROM behind"), " "))
	s.must("CHECKPOINT a", "CHECKPOINT a")
	d.crash()
	s = d.connect()
	require.Equal(t, "100|100 100|100", strings.Join(s.rows("SELECT count(*), max(price) FROM reads UNION ALL SELECT count(*), max(price) FROM behind"), " "), "they have not been computed again")

	s.must("PAUSE behind", "INSERT INTO orders SELECT g, g % 10 + 1 FROM generate_series(101, 150) g", "DELETE FROM orders WHERE id <= 10", "CHECKPOINT reads", "CHECKPOINT a", "CHECKPOINT a")
	d.crash()
	s = d.connect()
	s.must("RESUME behind", "FLUSH")
	for range 2 {
		for _, v := range []string{"reads", "behind"} {
			require.Equal(t, "100|90 200|50", strings.Join(s.rows("SELECT price, count(*) FROM "+v+" GROUP BY 1 ORDER BY 1"), " "), v)
		}
		require.Equal(t, "140", s.row("SELECT orders FROM a"))
		s.must("CHECKPOINT")
		d.crash()
		s = d.connect()
	}
}

// TestViewBehindAnUnalignedCheckpoint: what an unaligned checkpoint had in flight its readers have taken in. One that was no part of later checkpoints does not get it again.
func TestViewBehindAnUnalignedCheckpoint(t *testing.T) {
	points := failpoint.New()
	d := open(t, func(c *server.Config) { c.Failpoints = points })
	s := d.connect()
	s.must("SET parallelism = 2", "CREATE TABLE b (id int, auction int, price int)",
		"CREATE MATERIALIZED VIEW v WITH (execution.checkpointing.unaligned.enabled) AS SELECT auction, count(*) AS n, max(price) AS m FROM (SELECT DISTINCT auction, id, price FROM b) AS x GROUP BY auction",
		"CREATE MATERIALIZED VIEW behind AS SELECT count(*) AS auctions, sum(n) AS n FROM v")
	require.NoError(t, points.Change("exec/take=delay(20ms)"))
	require.Eventually(t, func() bool {
		s.must("INSERT INTO b SELECT g, g % 1000, g FROM generate_series(1, 20000) g", "CHECKPOINT behind")
		return s.row("SELECT count(*) > 0 FROM streamdb.checkpoint_subtasks WHERE unaligned AND persisted_bytes > 0 AND checkpoint_id = (SELECT max(checkpoint_id) FROM streamdb.checkpoints WHERE status = 'COMPLETED')") == "t"
	}, 60*time.Second, 50*time.Millisecond)
	s.must("PAUSE behind")
	require.NoError(t, points.Change("exec/take=off"))
	s.must("INSERT INTO b VALUES (-1, -1, -1)", "FLUSH", "ALTER MATERIALIZED VIEW v SET (execution.checkpointing.unaligned.enabled = false)", "CHECKPOINT v")
	d.crash()
	s = d.connect()
	s.must("RESUME behind", "FLUSH")
	require.Equal(t, s.row("SELECT count(*), sum(n) FROM v"), s.row("SELECT * FROM behind"))
}

// TestReplacedAndRestoredFromUnaligned: rows in flight are no state that another job could take over. A replacement has its view checkpointed aligned first; a restored view is refused.
func TestReplacedAndRestoredFromUnaligned(t *testing.T) {
	points := failpoint.New()
	d := open(t, func(c *server.Config) {
		c.Failpoints = points
		c.Settings = map[string]string{"execution.checkpointing.interval": "20ms", "execution.checkpointing.min-pause": "0"}
	})
	s := d.connect()
	const query = "SELECT auction, count(*) AS n, max(price) AS m FROM (SELECT DISTINCT auction, id, price FROM b) AS x GROUP BY auction"
	s.must("SET parallelism = 2", "CREATE TABLE b (id int, auction int, price int)", "CREATE MATERIALIZED VIEW v WITH (execution.checkpointing.unaligned.enabled) AS "+query)
	n := 0
	inFlight := func() bool {
		s.must(fmt.Sprintf("INSERT INTO b SELECT g, g %% 1000, g FROM generate_series(%d, %d) g", n+1, n+20000))
		n += 20000
		m := d.srv.Coordinator().Latest()
		if m == nil {
			return false // the first one is still being written
		}
		for _, js := range m.Jobs {
			if len(js.Inflight) > 0 {
				return true
			}
		}
		return false
	}
	for range 2 {
		require.NoError(t, points.Change("exec/take=delay(5ms)"))
		require.Eventually(t, inFlight, 60*time.Second, time.Millisecond)
		s.must("CREATE OR REPLACE MATERIALIZED VIEW v AS " + query)
		require.NoError(t, points.Change("exec/take=off"))
		s.must("FLUSH")
		require.Equal(t, fmt.Sprintf("%d", n), s.row("SELECT sum(n) FROM v"))
	}
	require.NoError(t, points.Change("exec/take=delay(5ms)"))
	require.Eventually(t, inFlight, 60*time.Second, time.Millisecond)
	folder := filepath.Join(d.cfg.DataDir, "checkpoints")
	d.crash()
	copied := filepath.Join(t.TempDir(), "copied")
	require.NoError(t, os.CopyFS(copied, os.DirFS(folder)))
	require.NoError(t, points.Change("exec/take=off"))
	s = d.connect()
	s.must("DROP MATERIALIZED VIEW v")
	s.fails("CREATE MATERIALIZED VIEW v WITH (execution.state-recovery.path = 'file://"+copied+"') AS "+query, "55000", `the checkpoint of "v" in file://`+copied+` is unaligned: rows that were in flight are not in its state`)
}

// TestStatesThatViewsBehindNeedAreAwaited: a store in trouble while the server starts on a machine that has no files yet. What a sink has missed while it was paused is fetched when the store answers
// again: the state that was held, and the one that the relation goes on from. A sink that could not have it would stop.
func TestStatesThatViewsBehindNeedAreAwaited(t *testing.T) {
	s3 := objecttest.NewS3Server(t, "bucket")
	closesItsConnections(t, s3)
	d := open(t, onBucket(t, s3))
	s, out := d.connect(), t.TempDir()
	s.must("CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE MATERIALIZED VIEW m AS SELECT id, md5(id::text) || md5((id + v)::text) AS h, v FROM t",
		"CREATE SINK k FROM m WITH (connector = 'file', path = '"+out+"') FORMAT UPSERT ENCODE JSON",
		"INSERT INTO t SELECT g, 0 FROM generate_series(1, 20000) g", "FLUSH", "CHECKPOINT", "PAUSE k", "UPDATE t SET v = id WHERE id % 2 = 0", "FLUSH", "CHECKPOINT")
	require.NotEmpty(t, d.srv.Coordinator().Latest().Held)
	job := s.row("SELECT job_id FROM streamdb.jobs WHERE name = 'm'")
	require.NoError(t, d.srv.Abort())

	var mu sync.Mutex
	failures := map[string]int{}
	s3.SetFault(func(r *http.Request) objecttest.S3Fault {
		mu.Lock()
		defer mu.Unlock()
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/"+job+"/") || failures[r.URL.Path] >= 6 { // a call fails after five
			return objecttest.S3Fault{}
		}
		failures[r.URL.Path]++
		return objecttest.S3FailBefore
	})
	d.cfg.DataDir = t.TempDir()
	d.start()
	s = d.connect()
	mu.Lock()
	require.Len(t, failures, 2, "%v", failures)
	mu.Unlock()
	s.must("RESUME k", "FLUSH", "INSERT INTO t VALUES (0, 7)", "FLUSH", "CHECKPOINT")
	require.Equal(t, "RUNNING|", s.row("SELECT state, coalesce(last_error, '') FROM streamdb.jobs WHERE name = 'k'"))
	appears(t, out, 20000+10000+1)
}

// TestASinkGoesOnAtTheStartThatFindsWhatItMissed: a sink that a start could not give back what it missed does not run, and loses nothing: what is held for it stays in the checkpoints that follow.
func TestASinkGoesOnAtTheStartThatFindsWhatItMissed(t *testing.T) {
	s3 := objecttest.NewS3Server(t, "bucket")
	closesItsConnections(t, s3)
	d := open(t, onBucket(t, s3))
	s, out := d.connect(), t.TempDir()
	s.must("CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE MATERIALIZED VIEW m AS SELECT id, md5(id::text) || md5((id + v)::text) AS h, v FROM t",
		"CREATE SINK k FROM m WITH (connector = 'file', path = '"+out+"') FORMAT UPSERT ENCODE JSON", "INSERT INTO t SELECT g, 0 FROM generate_series(1, 20000) g", "FLUSH", "CHECKPOINT")
	job, held := s.row("SELECT job_id FROM streamdb.jobs WHERE name = 'm'"), map[string]bool{}
	for _, key := range s3.Keys() {
		held[key] = strings.Contains(key, "/"+job+"/")
	}
	s.must("PAUSE k", "UPDATE t SET v = id WHERE id % 2 = 0", "FLUSH", "CHECKPOINT")
	move := func() {
		require.NoError(t, d.srv.Abort())
		d.cfg.DataDir = t.TempDir()
		d.start()
		s = d.connect()
	}
	s3.SetFault(func(r *http.Request) objecttest.S3Fault {
		if r.Method == http.MethodGet && held[strings.TrimPrefix(r.URL.Path, "/bucket/")] {
			return objecttest.S3Forbidden
		}
		return objecttest.S3Fault{}
	})
	move()
	s.must("RESUME k", "INSERT INTO t VALUES (0, 7)", "CHECKPOINT m", "DELETE FROM t WHERE id = 1", "CHECKPOINT m")
	require.Contains(t, s.row("SELECT last_error FROM streamdb.jobs WHERE name = 'k'"), `sink "k" cannot go on before the server is started again: what has changed in "m" since its last checkpoint could not be fetched`)
	s3.SetFault(nil)
	move()
	require.Equal(t, "20000", s.row("SELECT count(*) FROM m"))
	s.must("FLUSH", "CHECKPOINT")
	require.Equal(t, "RUNNING|", s.row("SELECT state, coalesce(last_error, '') FROM streamdb.jobs WHERE name = 'k'"))
	appears(t, out, 20000+10000+2)
}

// appears waits until a file sink has written that many lines in all: it is told of a checkpoint, and then they are there.
func appears(t *testing.T, dir string, lines int) {
	t.Helper()
	require.Eventually(t, func() bool {
		files, err := filepath.Glob(filepath.Join(dir, "*.json"))
		require.NoError(t, err)
		n := 0
		for _, f := range files {
			b, err := os.ReadFile(f)
			require.NoError(t, err)
			n += strings.Count(string(b), "\n")
		}
		require.LessOrEqual(t, n, lines)
		return n == lines
	}, 30*time.Second, 20*time.Millisecond)
}
