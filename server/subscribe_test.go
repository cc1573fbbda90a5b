package server_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/server"
)

// changes removes the epochs from the rows of a subscription, which must ascend.
func changes(t *testing.T, rows []string) []string {
	t.Helper()
	last := int64(0)
	out := make([]string, 0, len(rows))
	for _, r := range rows {
		epoch, rest, _ := strings.Cut(r, "|")
		n, err := strconv.ParseInt(epoch, 10, 64)
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, last)
		last = n
		out = append(out, rest)
	}
	return out
}

func TestSubscribeGivesSnapshotThenChanges(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, NULL)",
		"DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE TO t")
	require.Equal(t, []string{"1|1|a", "1|2|NULL"}, changes(t, s.rows("FETCH ALL FROM c")))
	require.Empty(t, s.rows("FETCH ALL FROM c"))
	s.must("INSERT INTO t VALUES (3, 'c')", "UPDATE t SET v = 'b' WHERE id = 2", "DELETE FROM t WHERE id = 1")
	require.Equal(t, []string{"1|3|c", "-1|2|NULL"}, changes(t, s.rows("FETCH 2 FROM c")))
	require.Equal(t, []string{"1|2|b", "-1|1|a"}, changes(t, s.rows("FETCH ALL FROM c")))
	// An epoch is consolidated: what one transaction does and undoes is no change.
	s.must("BEGIN; INSERT INTO t VALUES (9, 'x'); UPDATE t SET v = 'bb' WHERE id = 2; DELETE FROM t WHERE id = 9; COMMIT")
	require.Equal(t, []string{"-1|2|b", "1|2|bb"}, changes(t, s.rows("FETCH ALL FROM c")))
	s.must("MOVE 1 FROM c", "CLOSE c")

	s.must("DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE t WITH (SNAPSHOT = false)")
	require.Empty(t, s.rows("FETCH ALL FROM c"))
	s.must("TRUNCATE t")
	require.Equal(t, []string{"-1|2|bb", "-1|3|c"}, changes(t, s.rows("FETCH ALL FROM c")))
	s.must("CLOSE ALL")

	s.must("BEGIN", "DECLARE c CURSOR FOR SUBSCRIBE t WITH (PROGRESS)")
	rows := s.rows("FETCH ALL FROM c")
	require.Len(t, rows, 1)
	require.True(t, strings.HasSuffix(rows[0], "|t|NULL|NULL|NULL"), rows)
	s.must("COMMIT")
	s.fails("FETCH ALL FROM c", "34000", `cursor "c" does not exist`)
}

func TestSubscribeToViewsAndQueries(t *testing.T) {
	d := open(t)
	s, w := d.connect(), d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, k int, v int)", "INSERT INTO t VALUES (1, 1, 10), (2, 1, 20), (3, 2, 5)",
		"CREATE MATERIALIZED VIEW m AS SELECT k, sum(v) AS s FROM t GROUP BY k", "CREATE VIEW p AS SELECT * FROM m WHERE s > 6")
	for _, target := range []string{"m", "(SELECT k, sum(v) AS s FROM t GROUP BY k)", "p", "(SELECT k, s FROM m WHERE s > 6)"} {
		s.must("DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE TO " + target)
		got := map[string]int{}
		take := func() {
			for _, r := range changes(t, s.rows("FETCH ALL FROM c WITH (timeout = '10s')")) {
				diff, row, _ := strings.Cut(r, "|")
				n, err := strconv.Atoi(diff)
				require.NoError(t, err)
				if got[row] += n; got[row] == 0 {
					delete(got, row)
				}
			}
		}
		expect := func(where string) {
			want := map[string]int{}
			for _, r := range s.rows("SELECT k, sum(v) FROM t GROUP BY k HAVING " + where) {
				want[r]++
			}
			for !maps.Equal(want, got) {
				take()
			}
		}
		where := "true"
		if strings.Contains(target, "6") || target == "p" {
			where = "sum(v) > 6"
		}
		expect(where)
		w.must("INSERT INTO t VALUES (4, 2, 7)")
		expect(where)
		w.must("DELETE FROM t WHERE id = 4", "UPDATE t SET k = 3 WHERE id = 3")
		expect(where)
		w.must("UPDATE t SET k = 2 WHERE id = 3")
		expect(where)
		s.must("CLOSE c")
	}
	// Nothing is left of the queries' jobs.
	require.Equal(t, []string{"m"}, s.rows("SELECT name FROM streamdb.jobs"))
	s.must("CHECKPOINT")
}

func TestSubscribeStreamsOverCopyUntilUpTo(t *testing.T) {
	d := open(t)
	s, w := d.connect(), d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 5000)")
	epoch := func() int64 {
		w.must("FLUSH", "DECLARE e CURSOR WITH HOLD FOR SUBSCRIBE t WITH (SNAPSHOT = false, PROGRESS)")
		r := w.rows("FETCH 1 FROM e WITH (timeout = '10s')")
		w.must("CLOSE e")
		require.Len(t, r, 1)
		n, _, _ := strings.Cut(r[0], "|")
		v, err := strconv.ParseInt(n, 10, 64)
		require.NoError(t, err)
		return v
	}
	up := epoch() + 20
	var out bytes.Buffer
	done := make(chan error, 1)
	go func() {
		tag, err := s.PgConn().CopyTo(d.ctx, &out, fmt.Sprintf("COPY (SUBSCRIBE t UP TO %d) TO STDOUT", up))
		if err == nil && tag.RowsAffected() != int64(bytes.Count(out.Bytes(), []byte("\n"))) {
			err = fmt.Errorf("tag %s", tag)
		}
		done <- err
	}()
	n := 5000
	for running := true; running; {
		select {
		case err := <-done:
			require.NoError(t, err)
			running = false
		default:
			n++
			w.must(fmt.Sprintf("INSERT INTO t VALUES (%d)", n))
		}
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Greater(t, len(lines), 5000)
	for i, l := range lines {
		f := strings.Split(l, "\t")
		require.Equal(t, []string{"1", strconv.Itoa(i + 1)}, f[1:])
	}
	// A plain statement ends there, too.
	s.fails("SUBSCRIBE t UP TO 1", "22023", "")
	s.fails("SUBSCRIBE t AS OF 100000000", "22023", "")
}

// TestSubscribeUpToAnEpochThatIsOver: an epoch since the last change is a last epoch like a later one; with it the subscription has ended.
func TestSubscribeUpToAnEpochThatIsOver(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE k (id int PRIMARY KEY) WITH (retention = '1h')",
		"CREATE MATERIALIZED VIEW m AS SELECT id FROM t", "INSERT INTO t VALUES (1), (2)", "INSERT INTO k VALUES (1), (2)")
	for _, name := range []string{"t", "k", "m"} {
		s.must("FLUSH", "DECLARE e CURSOR WITH HOLD FOR SUBSCRIBE "+name+" WITH (SNAPSHOT = false, PROGRESS)")
		up, _, _ := strings.Cut(s.row("FETCH 1 FROM e WITH (timeout = '10s')"), "|")
		s.must("CLOSE e", "INSERT INTO t VALUES (0)", "DELETE FROM t WHERE id = 0", "FLUSH")
		switch name {
		case "t":
			s.fails("SUBSCRIBE t UP TO "+up, "22023", "")
		case "k":
			require.ElementsMatch(t, []string{up + "|1|1", up + "|1|2"}, s.rows("SUBSCRIBE k UP TO "+up))
		}
		s.must("FLUSH", "DECLARE e CURSOR WITH HOLD FOR SUBSCRIBE "+name+" WITH (SNAPSHOT = false, PROGRESS)")
		up, _, _ = strings.Cut(s.row("FETCH 1 FROM e WITH (timeout = '10s')"), "|")
		s.must("CLOSE e", "FLUSH")
		require.ElementsMatch(t, []string{up + "|1|1", up + "|1|2"}, s.rows("SUBSCRIBE "+name+" UP TO "+up), name)
		require.Equal(t, []string{}, s.rows("SUBSCRIBE "+name+" WITH (SNAPSHOT = false) UP TO "+up), name)
		require.Equal(t, []string{up + "|t|NULL|NULL"}, s.rows("SUBSCRIBE "+name+" WITH (SNAPSHOT = false, PROGRESS) UP TO "+up), name)
		require.Equal(t, []string{}, s.rows("SUBSCRIBE "+name+" AS OF "+up+" UP TO "+up), name)
		require.Equal(t, []string{}, s.rows("SUBSCRIBE "+name+" UP TO "+up+" AS OF "+up), name)
		s.fails("SUBSCRIBE "+name+" UP TO "+up+" UP TO "+up, "42601", "")
	}
}

func TestSubscribeIsCancelled(t *testing.T) {
	d := open(t)
	w := d.connect()
	w.must("CREATE TABLE t (id int PRIMARY KEY)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
	for _, target := range []string{"t", "m", "(SELECT * FROM t)"} {
		s := d.connect()
		s.must("SET statement_timeout = '200ms'")
		s.fails("SUBSCRIBE "+target, "57014", "canceling statement due to statement timeout")
		s.must("SET statement_timeout = 0")
		// A client that goes away.
		ctx, cancel := context.WithTimeout(d.ctx, 200*time.Millisecond)
		_, err := s.PgConn().CopyTo(ctx, &bytes.Buffer{}, "COPY (SUBSCRIBE "+target+") TO STDOUT")
		cancel()
		require.Error(t, err)
	}
	s := d.connect()
	s.must("DECLARE a CURSOR WITH HOLD FOR SUBSCRIBE t", "DECLARE b CURSOR WITH HOLD FOR SUBSCRIBE (SELECT id + 1 FROM t)", "DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE m",
		"FETCH ALL FROM a", "FETCH ALL FROM b", "FETCH ALL FROM c")
	w.must("ALTER TABLE t ADD COLUMN x int", "INSERT INTO t VALUES (1, 2)")
	s.fails("FETCH ALL FROM a", "55000", `the definition of "t" was changed`)
	s.fails("FETCH ALL FROM b", "55000", `the definition of "t" was changed`)
	s.fails("FETCH ALL FROM b", "55000", `portal "b" cannot be run`)
	s.must("CLOSE a", "CLOSE b", "DECLARE a CURSOR WITH HOLD FOR SUBSCRIBE t", "DECLARE b CURSOR WITH HOLD FOR SUBSCRIBE (SELECT id + 1 FROM t)")
	w.must("DROP TABLE t CASCADE")
	s.fails("FETCH ALL FROM a", "42P01", `relation "t" was dropped`)
	s.fails("FETCH ALL FROM b", "42P01", `relation "t" was dropped`)
	s.fails("FETCH ALL FROM c WITH (timeout = '10s')", "42P01", `relation "m" was dropped`)
}

func TestSubscribeEndsWithTheServer(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY)")
	done := make(chan error, 1)
	started := make(chan struct{}, 1)
	go func() {
		done <- s.PgConn().Exec(d.ctx, "SUBSCRIBE t WITH (PROGRESS)").Close()
	}()
	w := d.connect()
	for len(w.rows("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SUBSCRIBE%'")) == 0 {
	}
	close(started)
	began := time.Now()
	require.NoError(t, d.srv.Close(d.ctx))
	require.Less(t, time.Since(began), 5*time.Second)
	var pe *pgconn.PgError
	require.ErrorAs(t, <-done, &pe)
	require.Equal(t, "57P01", pe.Code)
	d.start()
}

func TestSubscribeChecksPrivilegesAndOptions(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE ROLE r LOGIN", "GRANT SELECT (id) ON t TO r", "SET ROLE r")
	s.fails("SUBSCRIBE t", "42501", "permission denied for table t")
	s.fails("DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE (SELECT v FROM t)", "42501", "permission denied for table t")
	s.must("DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE (SELECT id FROM t)", "RESET ROLE")
	s.fails("SUBSCRIBE t WITH (speed = 1)", "22023", `unrecognized parameter "speed"`)
	s.fails("SUBSCRIBE t WITH (snapshot) AS OF 1", "0A000", "")
	s.fails("SUBSCRIBE (SELECT 1) AS OF 1", "0A000", "")
	s.fails("SUBSCRIBE streamdb.jobs", "0A000", "")
	s.must("CREATE SEQUENCE q")
	s.fails("SUBSCRIBE q", "0A000", "")
	require.Equal(t, int32(11), s.fails("SUBSCRIBE nope", "42P01", `relation "nope" does not exist`).Position)
	require.Equal(t, int32(11), s.fails("SUBSCRIBE pg_class", "0A000", "").Position)
	require.Equal(t, int32(29), s.fails("SUBSCRIBE t WITH (progress, PROGRESS = false)", "42601", "conflicting or redundant options").Position)
	s.fails("SUBSCRIBE t AS OF 5 UP TO 4", "22023", "UP TO 4 is before AS OF 5")
	s.fails("SUBSCRIBE", "42601", "")
	s.fails("FETCH BACKWARD 1 FROM c", "55000", "cursor can only scan forward")
	s.fails("DECLARE d CURSOR FOR SUBSCRIBE t", "25P01", "DECLARE CURSOR can only be used in transaction blocks")
	s.fails("DECLARE d SCROLL CURSOR WITH HOLD FOR SUBSCRIBE t", "42P11", "")
	s.must("DECLARE d CURSOR WITH HOLD FOR SELECT 1")
	s.fails("FETCH d WITH (timeout = '1s')", "0A000", "")
}

func TestSubscribePauseAndRecover(t *testing.T) {
	d := open(t)
	s, w := d.connect(), d.connect()
	w.must("CREATE TABLE t (id int PRIMARY KEY)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
	s.must("DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE m", "DECLARE q CURSOR WITH HOLD FOR SUBSCRIBE (SELECT n + 1 FROM m)")
	require.Equal(t, []string{"1|0"}, changes(t, s.rows("FETCH ALL FROM c")))
	require.Equal(t, []string{"1|1"}, changes(t, s.rows("FETCH ALL FROM q")))
	w.must("PAUSE m", "INSERT INTO t VALUES (1)")
	require.Empty(t, s.rows("FETCH ALL FROM c WITH (timeout = '50ms')"))
	w.must("RESUME m")
	require.Equal(t, []string{"-1|0", "1|1"}, changes(t, s.rows("FETCH ALL FROM c WITH (timeout = '10s')")))
	w.must("RECOVER", "INSERT INTO t VALUES (2)")
	pe := s.fails("FETCH ALL FROM c WITH (timeout = '10s')", "55000", "")
	require.Contains(t, pe.Message, "was started again from its last checkpoint")
	s.fails("FETCH ALL FROM q WITH (timeout = '10s')", "55000", "")
	require.Equal(t, []string{"2"}, w.rows("TABLE m"))
}

func TestSubscribeStreamsAsAStatement(t *testing.T) {
	d := open(t)
	w := d.connect()
	w.must("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec, pgx.QueryExecModeCacheStatement} {
		s := d.connect()
		ctx, cancel := context.WithCancel(d.ctx)
		rows, err := s.Query(ctx, "SUBSCRIBE t", mode)
		require.NoError(t, err)
		next := func() string {
			require.True(t, rows.Next(), "%v", rows.Err())
			var epoch, diff int64
			var id int
			var v string
			require.NoError(t, rows.Scan(&epoch, &diff, &id, &v))
			require.Positive(t, epoch)
			return fmt.Sprintf("%d %d %s", diff, id, v)
		}
		require.Equal(t, "1 1 a", next())
		w.must("UPDATE t SET v = 'b'")
		require.Equal(t, "-1 1 a", next())
		require.Equal(t, "1 1 b", next())
		w.must("UPDATE t SET v = 'a'")
		require.Equal(t, "-1 1 b", next())
		cancel()
		more := rows.Next() // what the last change brought
		if more {
			more = rows.Next()
		}
		require.False(t, more)
		rows.Close()
	}
}

func TestSubscribePagesOfAPortal(t *testing.T) {
	d := open(t)
	w := d.connect()
	w.must("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 5)")
	conn, err := d.srv.Dial(d.ctx, "", "")
	require.NoError(t, err)
	defer conn.Close() //nolint:errcheck // the test's
	f := pgproto3.NewFrontend(conn, conn)
	receive := func(until string) (rows int) {
		t.Helper()
		require.NoError(t, f.Flush())
		for {
			m, err := f.Receive()
			require.NoError(t, err)
			switch m := m.(type) {
			case *pgproto3.DataRow:
				rows++
			case *pgproto3.ErrorResponse:
				t.Fatal(m.Message)
			}
			if fmt.Sprintf("%T", m) == "*pgproto3."+until {
				return rows
			}
		}
	}
	f.Send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersionNumber, Parameters: map[string]string{"user": "streamdb", "database": "streamdb"}})
	receive("ReadyForQuery")
	f.Send(&pgproto3.Query{String: "BEGIN"})
	receive("ReadyForQuery")
	f.Send(&pgproto3.Parse{Query: "SUBSCRIBE t"})
	f.Send(&pgproto3.Bind{DestinationPortal: "p"})
	page := func() int {
		f.Send(&pgproto3.Execute{Portal: "p", MaxRows: 3})
		f.Send(&pgproto3.Flush{})
		return receive("PortalSuspended")
	}
	require.Equal(t, 3, page())
	require.Equal(t, 2, page()) // it does not wait for more
	w.must("INSERT INTO t VALUES (6)")
	require.Equal(t, 1, page())
	f.Send(&pgproto3.Sync{})
	receive("ReadyForQuery")
	f.Send(&pgproto3.Query{String: "COMMIT"})
	receive("ReadyForQuery")
}

func TestSubscribeCutsOffWhoIsTooSlow(t *testing.T) {
	d := open(t, func(c *server.Config) { c.Memory = 64 << 20 })
	s, w := d.connect(), d.connect()
	s.must("CREATE TABLE t (id int, v text)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t",
		"DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE t", "DECLARE q CURSOR WITH HOLD FOR SUBSCRIBE (SELECT id + 1, v FROM t)", "FETCH ALL FROM c", "FETCH ALL FROM q")
	for range 26 { // more than minChangeLog
		w.must("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 3000) g")
	}
	w.must("FLUSH")
	require.Equal(t, []string{"78000"}, w.rows("TABLE m"))
	s.fails("FETCH ALL FROM c", "53400", "")
	s.fails("FETCH ALL FROM q", "53400", "")
	// A transaction that is larger than the change log leaves a gap in a history.
	s.must("CLOSE ALL", "CREATE TABLE k (id int, v text) WITH (retention = '1 hour')", "INSERT INTO k VALUES (1, 'x')", "DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE k WITH (PROGRESS)")
	rows := s.rows("FETCH ALL FROM c")
	epoch, _, _ := strings.Cut(rows[len(rows)-1], "|")
	w.must("INSERT INTO k SELECT id, v FROM t", "CHECKPOINT")
	s.fails("FETCH ALL FROM c WITH (timeout = '10s')", "55000", "")
	s.fails("DECLARE d CURSOR WITH HOLD FOR SUBSCRIBE k AS OF "+epoch, "55000", "")
	s.must("DECLARE d CURSOR WITH HOLD FOR SUBSCRIBE k")
	require.Len(t, s.rows("FETCH ALL FROM d"), 78001)
	w.must("INSERT INTO k VALUES (2, 'y')")
	require.Equal(t, []string{"1|2|y"}, changes(t, s.rows("FETCH ALL FROM d WITH (timeout = '10s')")))
	s.must("CLOSE ALL", "DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE m")
	require.Equal(t, []string{"1|78000"}, changes(t, s.rows("FETCH ALL FROM c")))
}

func TestSubscriptionsAndHistoriesAreShown(t *testing.T) {
	d := open(t)
	s, w := d.connect(), d.connect()
	w.must("CREATE TABLE t (id int) WITH (retention = '1 hour')", "CREATE ROLE r", "INSERT INTO t VALUES (1)")
	s.must("DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE t", "DECLARE q CURSOR WITH HOLD FOR SUBSCRIBE (SELECT count(*) FROM t)", "FETCH ALL FROM c", "FETCH ALL FROM q")
	const all = "SELECT name, rows, epoch > 0, lag_ms < 60000, relation_id > 0 FROM streamdb.subscriptions ORDER BY name"
	require.Equal(t, []string{"t|1|t|t|t", "NULL|1|t|t|NULL"}, w.rows(all))
	require.Equal(t, "t|t|t", w.row("SELECT name, earliest_epoch < newest_epoch, bytes > 0 FROM streamdb.histories"))
	w.must("SET ROLE r")
	require.Empty(t, w.rows(all))
	s.must("CLOSE c")
	require.Len(t, s.rows(all), 1)
	require.NoError(t, s.Close(d.ctx))
	w.must("RESET ROLE", "ALTER TABLE t RESET (retention)")
	for len(w.rows(all)) > 0 {
	}
	require.Empty(t, w.rows("SELECT name FROM streamdb.histories"))
}
