package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// TestViewsOverSourcesAreCreatedFilled: CREATE MATERIALIZED VIEW returns when it has read what its sources hold, followed or not.
func TestViewsOverSourcesAreCreatedFilled(t *testing.T) {
	s := open(t).connect()
	path := filepath.Join(t.TempDir(), "rows.json")
	const rows = 50_000
	var b strings.Builder
	for i := range rows {
		fmt.Fprintf(&b, "{\"id\":%d,\"page\":\"/p%d\"}\n", i, i%7)
	}
	require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o600))
	for i, follow := range []string{"true", "false"} {
		s.must(fmt.Sprintf("CREATE SOURCE f%d (id bigint, page text) WITH (connector = 'file', path = '%s', file.follow = '%s') FORMAT PLAIN ENCODE JSON", i, path, follow),
			fmt.Sprintf("CREATE MATERIALIZED VIEW n%d AS SELECT count(*), count(DISTINCT page) AS pages FROM f%d", i, i))
		require.Equal(t, fmt.Sprintf("%d|7", rows), s.row(fmt.Sprintf("TABLE n%d", i)))
	}
	s.must("CREATE SOURCE g WITH (connector = 'nexmark', nexmark.table.type = 'Bid', nexmark.event.num = '100000')",
		"CREATE MATERIALIZED VIEW bids AS SELECT count(*) FROM g",
		"CREATE SOURCE none (id bigint) WITH (connector = 'file', path = '"+filepath.Join(t.TempDir(), "*.json")+"') FORMAT PLAIN ENCODE JSON",
		"CREATE MATERIALIZED VIEW nothing AS SELECT count(*) FROM none",
		"CREATE SOURCE forever WITH (connector = 'nexmark', nexmark.table.type = 'Bid')",
		"CREATE MATERIALIZED VIEW endless AS SELECT count(*) FROM forever")
	require.Equal(t, "92000", s.row("TABLE bids"))
	require.Equal(t, "0", s.row("TABLE nothing"))
}

// TestPauseOutlivesACrash: a paused view is paused after a restart, and goes on after RESUME.
func TestPauseOutlivesACrash(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY)", "CREATE MATERIALIZED VIEW n AS SELECT count(*) FROM t", "INSERT INTO t VALUES (1)")
	require.Equal(t, "1", s.row("TABLE n"))
	s.must("PAUSE n", "INSERT INTO t VALUES (2)", "CHECKPOINT")
	d.crash()
	s = d.connect()
	require.Eventually(t, func() bool { return s.row("SELECT state FROM streamdb.jobs") == "PAUSED" }, testTimeout, time.Millisecond)
	s.must("RESUME n", "FLUSH")
	require.Equal(t, "2", s.row("TABLE n"))
	s.fails("CHECKPOINT nosuch", string(pgerr.UndefinedTable), `relation "nosuch" does not exist`)
	s.must("CHECKPOINT n")
}

// TestUpsertConflictIsASerializationFailure: what an ON CONFLICT clause decided by a row's absence is a conflict when the row came meanwhile, so that
// clients that try again on 40001 do.
func TestUpsertConflictIsASerializationFailure(t *testing.T) {
	d := open(t)
	a, b := d.connect(), d.connect()
	a.must("CREATE TABLE k (id int PRIMARY KEY, v int)")
	for i, action := range []string{"UPDATE SET v = 99", "NOTHING"} {
		a.must("BEGIN", fmt.Sprintf("SELECT count(*) FROM k; INSERT INTO k VALUES (%d, 2) ON CONFLICT (id) DO %s", i, action))
		b.must(fmt.Sprintf("INSERT INTO k VALUES (%d, 20)", i))
		require.Equal(t, string(pgerr.SerializationFailure), a.code("COMMIT"))
	}
	require.Equal(t, []string{"0|20", "1|20"}, a.rows("SELECT * FROM k ORDER BY 1"))
}

// TestBlocksWarnAboutWhatTheyRead: a view that misses rows concerns those who read it.
func TestBlocksWarnAboutWhatTheyRead(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE z1 (a int)", "INSERT INTO z1 VALUES (0)", "CREATE MATERIALIZED VIEW zv AS SELECT 1 / a AS q FROM z1", "CREATE TABLE z2 (a int)")
	n := len(s.notices)
	s.must("BEGIN", "INSERT INTO z2 VALUES (2)", "SELECT * FROM z2")
	require.Len(t, s.notices, n)
	s.must("SELECT * FROM zv", "COMMIT")
	require.Len(t, s.notices, n+1)
}

// TestCheckpointCoversItsOwnMessage: rows of the statements before it in the same message are part of the checkpoint.
func TestCheckpointCoversItsOwnMessage(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY)", "CREATE MATERIALIZED VIEW n AS SELECT count(*) FROM t")
	s.must("INSERT INTO t VALUES (1), (2); CHECKPOINT")
	require.NotEqual(t, "0", s.row("SELECT max(full_size) FROM streamdb.checkpoints WHERE job_id = 1"))
	s.must("INSERT INTO t VALUES (3); FLUSH; SELECT * FROM n")
	require.Equal(t, "3", s.row("TABLE n"))
}
