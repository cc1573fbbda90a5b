package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/server"
)

// damaged is a database whose view big, over a source, has a damaged file in its newest checkpoint, and nothing of it on local disk. Its view small reads a table, over
// reads big.
type damaged struct {
	*database
	file  string
	good  []byte
	files string
}

func newDamaged(t *testing.T, settings map[string]string, more ...string) *damaged {
	t.Helper()
	x := &damaged{files: t.TempDir()}
	rows := func(from, to int) (out []string) {
		for i := from; i < to; i++ {
			out = append(out, fmt.Sprintf(`{"k":%d,"v":%d}`, i, i))
		}
		return out
	}
	write(t, x.files, "1.json", rows(0, 40_000)...)
	x.database = open(t, func(c *server.Config) { c.Settings = settings })
	s := x.connect()
	s.must(`CREATE SOURCE f (k int, v int) WITH (connector = 'file', path = '`+filepath.Join(x.files, "*.json")+`') FORMAT PLAIN ENCODE JSON`,
		"CREATE MATERIALIZED VIEW big AS SELECT k, sum(v) AS s, md5(k::text) AS h FROM f GROUP BY k", "CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)",
		"CREATE MATERIALIZED VIEW small AS SELECT count(*) AS n FROM t", "CREATE MATERIALIZED VIEW over AS SELECT count(*) AS n FROM big")
	s.must(more...)
	s.until("TABLE over", "40000")
	s.must("CHECKPOINT")
	dir := filepath.Join(x.cfg.DataDir, "checkpoints", "data")
	id := s.row("SELECT job_id FROM streamdb.jobs WHERE name = 'big'")
	listed := func() map[string]bool {
		found := map[string]bool{}
		require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err == nil && !e.IsDir() && strings.Contains(path, "/"+id+"/") {
				found[path] = true
			}
			return nil // folders go while they are looked at
		}))
		return found
	}
	first := listed()
	write(t, x.files, "1.json", rows(40_000, 80_000)...)
	s.until("TABLE over", "80000")
	s.must("CHECKPOINT")
	for path := range listed() {
		if !first[path] {
			x.file = path
		}
	}
	require.NotEmpty(t, x.file, "the newest checkpoint has a file of its own")
	require.NoError(t, x.srv.Abort())
	require.NoError(t, os.RemoveAll(filepath.Join(x.cfg.DataDir, "jobs")))
	var err error
	x.good, err = os.ReadFile(x.file)
	require.NoError(t, err)
	x.damage()
	return x
}

func (x *damaged) damage() {
	bad := append([]byte(nil), x.good...)
	bad[len(bad)/2] ^= 1
	require.NoError(x.t, os.Remove(x.file)) // a savepoint or local file may be the same by a hard link
	require.NoError(x.t, os.WriteFile(x.file, bad, 0o600))
}

func TestDamagedStateOfAView(t *testing.T) {
	checkpointrows.Shows(t, 65, 115)
	x := newDamaged(t, map[string]string{checkpoint.SettingInterval: "0"})
	x.start()
	s := x.connect()
	require.Equal(t, "1", s.row("TABLE small"), "the others serve")
	s.must("INSERT INTO t VALUES (2)", "FLUSH")
	require.Equal(t, "2", s.row("TABLE small"))
	require.Contains(t, s.row("SELECT last_error FROM streamdb.jobs WHERE name = 'big'"), strings.TrimPrefix(x.file, x.cfg.DataDir))
	s.must("SET statement_timeout = '2s'")
	require.NotEmpty(t, s.code("SELECT count(*) FROM big"), "nothing is made up")
	s.must("SET statement_timeout = 0")
	// When the object is there again the view goes on, from where it was.
	require.NoError(t, os.WriteFile(x.file, x.good, 0o600))
	require.Eventually(t, func() bool { return s.code("SET statement_timeout = '1s'; SELECT count(*) FROM big") == "" }, testTimeout, 100e6)
	s.must("SET statement_timeout = 0")
	require.Equal(t, "80000", s.row("SELECT count(*) FROM big"))
	write(t, x.files, "1.json", `{"k":1,"v":1}`)
	s.until("SELECT s FROM big WHERE k = 1", "2")
	s.until("TABLE over", "80000")
}

func TestFallBackToAnEarlierCheckpoint(t *testing.T) {
	checkpointrows.Shows(t, 115, 116)
	settings := map[string]string{checkpoint.SettingRetained: "3", checkpoint.SettingInterval: "0", "execution.state-recovery.fallback": "previous"}
	x := newDamaged(t, settings)
	x.start()
	s := x.connect()
	s.until("TABLE over", "80000") // it reads the source on from there
	require.Equal(t, "80000|3199960000", s.row("SELECT count(*), sum(s) FROM big"))
	s.must("INSERT INTO t VALUES (2)", "FLUSH")
	require.Equal(t, "2", s.row("TABLE small"))
	s.must("CHECKPOINT")
	x.crash()
	require.Equal(t, "80000|80000", x.connect().row("SELECT count(*), (SELECT n FROM over) FROM big"))
}

func TestNoFallBackUnderASink(t *testing.T) {
	checkpointrows.Shows(t, 116)
	settings := map[string]string{checkpoint.SettingRetained: "3", checkpoint.SettingInterval: "0", "execution.state-recovery.fallback": "previous"}
	out := t.TempDir()
	x := newDamaged(t, settings, `CREATE SINK k FROM over WITH (connector = 'file', path = '`+out+`') FORMAT UPSERT ENCODE JSON`)
	x.start()
	s := x.connect()
	s.until("SELECT coalesce(last_error LIKE '%is corrupt%', false) FROM streamdb.jobs WHERE name = 'big'", "t")
	require.Equal(t, "1", s.row("TABLE small"))
}
