//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/connector/connectortest"
	"github.com/streamdb/streamdb/connector/postgres"
	"github.com/streamdb/streamdb/e2e/pgserver"
	"github.com/streamdb/streamdb/internal/checkpointrows"
)

// sinkTimeout bounds how long rows take to be in a target.
const sinkTimeout = time.Minute

// target runs statements in a PostgreSQL server.
func target(t *testing.T, url, statements string) [][]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), statementTimeout)
	defer cancel()
	conn, err := pgconn.Connect(ctx, url)
	require.NoError(t, err)
	defer conn.Close(ctx)
	rows, err := query(ctx, conn, statements)
	require.NoError(t, err, statements)
	return rows
}

// The PostgreSQL sink keeps what the engine relies on.
func TestPostgresSinkContract(t *testing.T) {
	url := pgserver.Start(t)
	n := 0
	connectortest.TestSink(t, func(t *testing.T) connectortest.SinkTarget {
		n++
		table := fmt.Sprintf("rows_%d", n)
		target(t, url, "CREATE TABLE "+table+" (id bigint, name text); DROP TABLE IF EXISTS streamdb_sinks")
		return connectortest.SinkTarget{
			Connector: postgres.New(),
			Config:    connector.SinkConfig{Name: table, Options: map[string]string{"connector": "postgres", "url": url, "table": table}},
			Rows: func(t *testing.T) (rows []string) {
				for _, r := range target(t, url, "SELECT id || ',' || name FROM "+table) {
					rows = append(rows, r[0])
				}
				return rows
			},
		}
	})
}

// sinkPoints are the steps of a sink's commit, and of the checkpoint before it, at which the process is killed.
var sinkPoints = []string{
	"sink/before-precommit", "sink/after-precommit", "checkpoint/after-upload", "checkpoint/after-manifest", "checkpoint/after-head", "checkpoint/before-notify",
	"sink/before-commit", "sink/half-commit", "sink/after-commit",
}

// TestSinksKilled kills the server at each step of a checkpoint with sinks, while events come and rows change: what is in the targets at the end is what the views
// hold, each row once.
func TestSinksKilled(t *testing.T) {
	checkpointrows.Shows(t, 123)
	url := pgserver.Start(t)
	target(t, url, `CREATE TABLE bids (auction bigint, price bigint, extra text);
		CREATE TABLE totals (k int PRIMARY KEY, n bigint, s numeric, at timestamptz, tags text[], doc jsonb, raw bytea, f float8)`)
	dir := t.TempDir()
	files := filepath.Join(dir, "files")
	o := serveOptions{dataDir: filepath.Join(dir, "data"), settings: []string{"execution.checkpointing.interval=200ms", "execution.checkpointing.min-pause=0s"}}
	p := serve(t, o)
	c := p.client(t)
	run := func(statements string) {
		t.Helper()
		_, err := c.try(statements)
		require.NoError(t, err, statements)
	}
	run(`CREATE SOURCE bid WITH (connector = 'nexmark', nexmark.table.type = 'Bid', nexmark.event.num = '400000', nexmark.event.rate = '20000')`)
	run(`CREATE TABLE t (id int PRIMARY KEY, k int, v numeric)`)
	run(`CREATE MATERIALIZED VIEW bids AS SELECT count(*) AS n, sum(price) AS s, sum(auction) AS a FROM bid`)
	run(`CREATE MATERIALIZED VIEW totals AS SELECT k, count(*) AS n, sum(v) AS s, max('2024-02-03 04:05:06+02'::timestamptz) AS at, array_agg('a"' || id ORDER BY id) AS tags,
		jsonb_build_object('k', k) AS doc, max('x'::text)::bytea AS raw, avg(v)::float8 AS f FROM t GROUP BY k`)
	run(`CREATE SINK pg_bids AS SELECT auction, price, extra FROM bid WITH (connector = 'postgres', url = '` + url + `', table = 'bids')`)
	run(`CREATE SINK pg_totals FROM totals WITH (connector = 'postgres', url = '` + url + `', table = 'totals', primary_key = 'k')`)
	run(`CREATE SINK file_bids AS SELECT auction, price FROM bid WITH (connector = 'file', path = '` + files + `') FORMAT PLAIN ENCODE CSV (header = 'false')`)
	i := 0
	for _, point := range sinkPoints {
		p.kill()
		withFault := o
		withFault.failpoints = point + "=kill"
		var err error
		p, err = launch(withFault)
		if err != nil {
			require.ErrorIs(t, err, errEnded)
		} else {
			t.Cleanup(p.kill)
			if conn, err := p.connect(t.Context()); err == nil { // it may have reached the step already
				c = &client{t: t, conn: conn, p: p}
			}
			for began := time.Now(); p.alive() && time.Since(began) < sinkTimeout; i++ {
				_, _ = c.try(fmt.Sprintf("INSERT INTO t VALUES (%d, %d, %d.5); DELETE FROM t WHERE id = %d", i, i%10, i%7, i/3)) // ends with the server
			}
			require.False(t, p.alive(), "%s was not reached", point)
		}
		p = serve(t, o)
		c = p.client(t)
	}
	run("WAIT")
	want := func(q string) string {
		rows, err := c.try(q)
		require.NoError(t, err)
		return fmt.Sprint(rows)
	}
	same := func(what string, both func() (want, got string)) {
		t.Helper()
		var w, g string
		eventually(sinkTimeout, func() bool { w, g = both(); return w == g })
		require.Equal(t, w, g, what)
	}
	const all = "SELECT k, n, s, at::timestamptz AT TIME ZONE 'UTC', tags, doc, raw, f FROM totals ORDER BY k"
	same("upserts", func() (string, string) { return want(all), fmt.Sprint(target(t, url, all)) })
	same("bids in PostgreSQL", func() (string, string) {
		return want("SELECT n, s, a FROM bids"), fmt.Sprint(target(t, url, "SELECT count(*), sum(price), sum(auction) FROM bids"))
	})
	require.Equal(t, "[[368000]]", want("SELECT n FROM bids"), "all events were read")
	same("bids in files", func() (string, string) {
		paths, err := filepath.Glob(filepath.Join(files, "[^.]*"))
		require.NoError(t, err)
		return want("SELECT n, s, a FROM bids"), bidsIn(t, paths)
	})
	hidden, err := filepath.Glob(filepath.Join(files, ".streamdb-*"))
	require.NoError(t, err)
	require.Empty(t, hidden, "what was aborted is cleared away")
}

// TestPostgresSinkRefusals: a target that does not fit is refused when the sink is made, and passwords are not shown.
func TestPostgresSinkRefusals(t *testing.T) {
	url := pgserver.Start(t)
	target(t, url, "CREATE TABLE a (id int, v text); CREATE TABLE b (id int PRIMARY KEY, v text, must int NOT NULL); CREATE TABLE d (id date, v text); CREATE TABLE e (id bigint PRIMARY KEY, v varchar(3))")
	dir := t.TempDir()
	p := serve(t, serveOptions{dataDir: dir, settings: []string{"execution.checkpointing.interval=100ms"}})
	c := p.client(t)
	_, err := c.try("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'x')")
	require.NoError(t, err)
	with := func(table string) string {
		return "WITH (connector = 'postgres', url = '" + url + "', table = '" + table + "'"
	}
	for statement, message := range map[string]string{
		"CREATE SINK s FROM t " + with("nope") + ")":                                                      "the target has no table",
		"CREATE SINK s FROM t " + with("a") + ")":                                                         "has no primary key or unique index of (id)",
		"CREATE SINK s FROM t " + with("b") + ")":                                                         `column "must"`,
		"CREATE SINK s AS SELECT v, id, 1 AS more FROM t " + with("e") + ")":                              `has no column "more"`,
		"CREATE SINK s FROM t " + with("d") + ", type = 'append-only', force_append_only = 'true')":       `is of type date but the sink's is of type integer`,
		"CREATE SINK s FROM t " + with("e") + ", type = 'append-only')":                                   "an append-only sink cannot take rows that change",
		"CREATE SINK s FROM t " + with("e") + ") FORMAT UPSERT ENCODE JSON":                               "takes no FORMAT",
		"CREATE SINK s FROM t WITH (connector = 'postgres', url = 'host=/nowhere', table = 'e')":          "target of the sink",
		"CREATE SINK s FROM t WITH (connector = 'postgres', url = 'postgres://u:secret@:x', table = 'e')": "it is not a connection URL",
	} {
		_, err := c.try(statement)
		require.ErrorContains(t, err, message, statement)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err = c.try("CREATE SINK s FROM t " + with("e") + ", password = 'a secret')")
	require.NoError(t, err)
	rows, err := c.try("SHOW CREATE SINK s")
	require.NoError(t, err)
	require.NotContains(t, rows[0][1], "a secret")
	becomes := func(want, q string, ask func(string) [][]string) {
		t.Helper()
		got := ""
		eventually(sinkTimeout, func() bool { got = fmt.Sprint(ask(q)); return got == want })
		require.Equal(t, want, got, q)
	}
	there := func(q string) [][]string { return target(t, url, q) }
	here := func(q string) [][]string {
		rows, err := c.try(q)
		require.NoError(t, err)
		return rows
	}
	becomes("[[1 x]]", "SELECT * FROM e", there)
	// What the target refuses stops the sink alone, says why, and is written when the cause has gone.
	_, err = c.try("UPDATE t SET v = 'much too long'")
	require.NoError(t, err)
	becomes("[[RUNNING t]]", "SELECT state, last_error LIKE '%value too long for type character varying(3)%' FROM streamdb.jobs WHERE name = 's'", here)
	target(t, url, "ALTER TABLE e ALTER v TYPE text")
	becomes("[[1 much too long]]", "SELECT * FROM e", there)
	becomes("[[RUNNING t t]]", "SELECT state, last_error IS NULL, last_error_at IS NULL FROM streamdb.jobs WHERE name = 's'", here)
	_, err = c.try("DELETE FROM t; INSERT INTO t VALUES (2, NULL), (3, E'\\\\N\\t')")
	require.NoError(t, err)
	becomes("[[2 NULL] [3 \\N\t]]", "SELECT id, coalesce(v, 'NULL') FROM e ORDER BY id", there)
	_, err = c.try("DROP SINK s")
	require.NoError(t, err)
	require.Equal(t, [][]string{{"0"}}, there("SELECT count(*) FROM streamdb_sinks"))
}

// TestPostgresSinkOfAnOlderVersion: a target whose table of sinks is that of a version that did not say who writes goes on with it, and a table that is gone is not
// taken for one in which nothing was written.
func TestPostgresSinkOfAnOlderVersion(t *testing.T) {
	url := pgserver.Start(t)
	target(t, url, "CREATE TABLE e (id int PRIMARY KEY); CREATE TABLE streamdb_sinks (sink text PRIMARY KEY, epoch bigint NOT NULL)")
	o := serveOptions{dataDir: t.TempDir(), settings: []string{"execution.checkpointing.interval=100ms"}}
	p := serve(t, o)
	c := p.client(t)
	written := func(want string) {
		t.Helper()
		got := ""
		eventually(sinkTimeout, func() bool { got = fmt.Sprint(target(t, url, "SELECT id FROM e ORDER BY id")); return got == want })
		require.Equal(t, want, got)
	}
	c.exec("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
	c.exec("CREATE SINK s FROM t WITH (connector = 'postgres', url = '" + url + "', table = 'e', type = 'append-only', force_append_only = 'true')")
	written("[[1]]")
	p.stop(t)
	target(t, url, "ALTER TABLE streamdb_sinks DROP owner, DROP token, DROP holder, DROP since")
	p = serve(t, o)
	p.client(t).exec("INSERT INTO t VALUES (2)")
	written("[[1] [2]]")
	require.Equal(t, [][]string{{"t"}}, target(t, url, "SELECT owner <> '' AND token <> '' AND holder <> '' AND since > now() - interval '5 minutes' FROM streamdb_sinks"))
	p.kill()
	target(t, url, "ALTER TABLE streamdb_sinks RENAME TO kept")
	p = serve(t, o)
	c = p.client(t)
	c.exec("INSERT INTO t VALUES (3)")
	c.wait("SELECT last_error LIKE '%the target has no table%how far the sink has written is not known%' FROM streamdb.jobs WHERE name = 's'", "t")
	target(t, url, "ALTER TABLE kept RENAME TO streamdb_sinks")
	written("[[1] [2] [3]]")
}

// TestPostgresSinkAtLeastOnce: such a sink knows of other servers, too, where it may keep what it takes for that.
func TestPostgresSinkAtLeastOnce(t *testing.T) {
	url := pgserver.Start(t)
	target(t, url, "CREATE TABLE e (id int, name text); CREATE ROLE guest LOGIN; GRANT ALL ON e TO guest; REVOKE ALL ON SCHEMA public FROM public; GRANT USAGE ON SCHEMA public TO guest")
	cfg, err := pgconn.ParseConfig(url)
	require.NoError(t, err)
	guest := fmt.Sprintf("host=%s port=%d user=guest dbname=%s", cfg.Host, cfg.Port, cfg.Database)
	list := func(row string) *connector.Committables {
		return &connector.Committables{Len: 1, Last: 1, Each: func(fn func(uint64, []byte) error) error { return fn(1, []byte(row+"\n")) }}
	}
	open := func(url string, line ...string) connector.Sink {
		c := &connector.SinkConfig{
			Name: "s", ID: "77", Options: map[string]string{"url": url, "table": "e"}, Columns: connectortest.SinkColumns()[:1], Mode: connector.AppendOnly,
			Writer: connector.Identity{Line: line, Holder: line[len(line)-1]},
		}
		require.NoError(t, postgres.New().Check(t.Context(), c))
		s, err := postgres.New().Sink(c)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	for _, line := range [][]string{{"a"}, {"b"}} { // who may do no more than write rows is not known
		s := open(guest, line...)
		require.NoError(t, s.Recover(t.Context(), 0, list("1")))
		require.NoError(t, s.Commit(t.Context(), 1, list("1")))
		require.NoError(t, s.Commit(t.Context(), 1, list("1")))
		require.NoError(t, s.Abandon(t.Context()))
	}
	require.Equal(t, [][]string{{"4"}}, target(t, url, "SELECT count(*) FROM e"))
	target(t, url, "GRANT CREATE ON SCHEMA public TO guest")
	a, b := open(guest, "a"), open(guest, "a", "b")
	require.NoError(t, a.Recover(t.Context(), 0, list("2")))
	require.NoError(t, a.Commit(t.Context(), 1, list("2")))
	require.NoError(t, b.Recover(t.Context(), 1, list("2")))
	require.ErrorIs(t, a.Commit(t.Context(), 2, list("3")), connector.ErrSinkTaken)
	require.NoError(t, b.Commit(t.Context(), 2, list("2")))
	require.ErrorIs(t, open(guest, "a", "a2").Recover(t.Context(), 2, list("3")), connector.ErrSinkTaken)
	require.NoError(t, a.Abandon(t.Context()))
	require.NoError(t, b.Commit(t.Context(), 3, list("4")))
	require.NoError(t, b.Abandon(t.Context()))
	require.Equal(t, [][]string{{"1", "4"}, {"2", "2"}, {"4", "1"}}, target(t, url, "SELECT id, count(*) FROM e GROUP BY id ORDER BY id"))
	require.Empty(t, target(t, url, "SELECT FROM streamdb_sinks"))
}

// TestPostgresSinkHeldUp: a server that was cut off in the middle of a commit, and that the target still waits for, holds up nobody who takes over.
func TestPostgresSinkHeldUp(t *testing.T) {
	url := pgserver.Start(t)
	target(t, url, "CREATE TABLE e (id int PRIMARY KEY)")
	o := serveOptions{dataDir: t.TempDir(), settings: []string{"execution.checkpointing.interval=100ms"}}
	p := serve(t, o)
	c := p.client(t)
	c.exec("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
	c.exec("CREATE SINK s FROM t WITH (connector = 'postgres', url = '" + url + "', table = 'e')")
	require.True(t, eventually(sinkTimeout, func() bool { return len(target(t, url, "SELECT FROM e")) == 1 }))
	p.kill()
	cfg, err := pgconn.ParseConfig(url)
	require.NoError(t, err)
	hold := func(application string) *pgconn.PgConn {
		cfg.RuntimeParams["application_name"] = application
		conn, err := pgconn.ConnectConfig(t.Context(), cfg)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		_, err = query(t.Context(), conn, "BEGIN; SELECT FROM streamdb_sinks FOR UPDATE")
		require.NoError(t, err)
		return conn
	}
	cut := hold("streamdb sink s") // which never goes on
	p = serve(t, o)
	p.client(t).exec("INSERT INTO t VALUES (2)")
	require.True(t, eventually(sinkTimeout, func() bool { return len(target(t, url, "SELECT FROM e")) == 2 }))
	_, err = query(t.Context(), cut, "COMMIT")
	require.Error(t, err, "the session has ended")
	p.kill()
	other := hold("psql") // somebody else is waited for
	p = serve(t, o)
	p.client(t).exec("INSERT INTO t VALUES (3)")
	pause(10 * time.Second)
	require.Len(t, target(t, url, "SELECT FROM e"), 2)
	_, err = query(t.Context(), other, "COMMIT")
	require.NoError(t, err)
	require.True(t, eventually(sinkTimeout, func() bool { return len(target(t, url, "SELECT FROM e")) == 3 }))
}

// TestPostgresSinkMoves: a database goes on elsewhere from what was stopped, killed, or suspended in the middle of it, and its sinks go on with the same rows. The one that
// was suspended stops its sinks when it wakes up.
func TestPostgresSinkMoves(t *testing.T) {
	url := pgserver.Start(t)
	target(t, url, `CREATE TABLE bids (auction bigint, price bigint, extra text); CREATE TABLE totals (auction bigint PRIMARY KEY, n bigint, s numeric)`)
	dir := t.TempDir()
	at := func(n int) serveOptions {
		o := serveOptions{dataDir: filepath.Join(dir, fmt.Sprint(n)), settings: []string{"execution.checkpointing.interval=200ms", "execution.checkpointing.min-pause=0s"}}
		if n > 0 {
			o.settings = append(o.settings, "execution.state-recovery.path=file://"+filepath.Join(dir, fmt.Sprint(n-1), "checkpoints"))
		}
		return o
	}
	p := serve(t, at(0))
	c := p.client(t)
	c.exec(`CREATE SOURCE bid WITH (connector = 'nexmark', nexmark.table.type = 'Bid', nexmark.event.num = '300000', nexmark.event.rate = '20000')`)
	c.exec(`CREATE MATERIALIZED VIEW bids AS SELECT count(*) AS n, sum(price) AS s, sum(auction) AS a FROM bid`)
	c.exec(`CREATE MATERIALIZED VIEW totals AS SELECT auction, count(*) AS n, sum(price) AS s FROM bid GROUP BY auction`)
	c.exec(`CREATE SINK pg_bids AS SELECT auction, price, extra FROM bid WITH (connector = 'postgres', url = '` + url + `', table = 'bids')`)
	c.exec(`CREATE SINK pg_totals FROM totals WITH (connector = 'postgres', url = '` + url + `', table = 'totals')`)
	written := func() int {
		var n int
		_, err := fmt.Sscan(target(t, url, "SELECT count(*) FROM bids")[0][0], &n)
		require.NoError(t, err)
		return n
	}
	more := func() {
		n := written()
		require.True(t, eventually(sinkTimeout, func() bool { return written() > n }), "rows come")
	}
	more()
	p.stop(t)
	p = serve(t, at(1))
	more()
	p.kill()
	p = serve(t, at(2))
	more()
	old := p
	require.NoError(t, old.cmd.Process.Signal(syscall.SIGSTOP))
	p = serve(t, at(3))
	more()
	require.NoError(t, old.cmd.Process.Signal(syscall.SIGCONT))
	o := old.client(t)
	o.wait(`SELECT count(*) FROM streamdb.jobs WHERE name LIKE 'pg_%' AND state = 'FAILED' AND last_error LIKE '%its target belongs to %(since 2%HINT:%'`, "2")
	more()
	old.stop(t)
	p.kill()
	last := at(3)
	p = serve(t, last)
	c = p.client(t)
	c.wait("SELECT n FROM bids", "276000")
	same := func(ours, theirs string) {
		t.Helper()
		var w, g string
		eventually(sinkTimeout, func() bool {
			w, g = fmt.Sprint(c.exec(ours)), fmt.Sprint(target(t, url, theirs))
			return w == g
		})
		require.Equal(t, w, g)
	}
	same("SELECT n, s, a FROM bids", "SELECT count(*), sum(price), sum(auction) FROM bids")
	const totals = "SELECT count(*), sum(n), sum(s), sum(n * auction) FROM totals"
	same(totals, totals)
	require.Equal(t, [][]string{{"2"}}, target(t, url, "SELECT count(*) FROM streamdb_sinks"))
}

// TestSinksInABucketKilled: files of an S3 server have each row once, whenever the server that writes them is killed.
func TestSinksInABucketKilled(t *testing.T) {
	g := startGateway(t)
	o := serveOptions{
		dataDir: filepath.Join(t.TempDir(), "data"), checkpointDir: g.url("checkpoints"), env: g.env,
		settings: []string{"execution.checkpointing.interval=200ms", "execution.checkpointing.min-pause=0s"},
	}
	p := serve(t, o)
	c := p.client(t)
	c.exec(`CREATE SOURCE bid WITH (connector = 'nexmark', nexmark.table.type = 'Bid', nexmark.event.num = '300000', nexmark.event.rate = '20000')`)
	c.exec(`CREATE MATERIALIZED VIEW bids AS SELECT count(*) AS n, sum(price) AS s, sum(auction) AS a FROM bid`)
	c.exec(`CREATE SINK bucket_bids AS SELECT auction, price FROM bid WITH (connector = 'file', path = '` + g.url("out") + `', file.max.bytes = '65536', parallelism = '2') FORMAT PLAIN ENCODE CSV (header = 'false')`)
	out := filepath.Join(g.root, bucket, "out")
	published := func() (paths []string) {
		require.NoError(t, filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !strings.Contains(path, "/_staged/") {
				paths = append(paths, path)
			}
			return ignoreGone(err)
		}))
		return paths
	}
	for i, point := range sinkPoints {
		if i%2 == 0 { // in between at a step of its own
			n := len(published())
			require.True(t, eventually(sinkTimeout, func() bool { return len(published()) > n || c.value("SELECT n FROM bids") == "276000" }), "files come")
			p.kill()
		} else {
			p.kill()
			faulty := o
			faulty.failpoints = point + "=kill"
			q, err := launch(faulty)
			if err == nil {
				require.True(t, q.endsWithin(sinkTimeout), "%s was not reached", point)
			} else {
				require.ErrorIs(t, err, errEnded)
			}
		}
		p = serve(t, o)
		c = p.client(t)
	}
	c.wait("SELECT n FROM bids", "276000")
	var w, got string
	eventually(sinkTimeout, func() bool {
		w = fmt.Sprint(c.exec("SELECT n, s, a FROM bids"))
		got = bidsIn(t, published())
		return w == got
	})
	require.Equal(t, w, got)
	staged := func() (names []string) {
		entries, err := os.ReadDir(filepath.Join(out, "_staged"))
		require.NoError(t, ignoreGone(err))
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	require.Len(t, staged(), 1, "what was aborted is cleared away: the lease is left")
	c.exec("DROP SINK bucket_bids")
	require.Empty(t, staged())
}

// bidsIn is what a view of count, sum(price) and sum(auction) shows of the bids in files.
func bidsIn(t *testing.T, paths []string) string {
	t.Helper()
	var n, s, a int64
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		for l := range strings.Lines(string(data)) {
			var auction, price int64
			_, err := fmt.Sscanf(l, "%d,%d", &auction, &price)
			require.NoError(t, err, "%s: %q", path, l)
			n, s, a = n+1, s+price, a+auction
		}
	}
	return fmt.Sprintf("[[%d %d %d]]", n, s, a)
}
