package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
)

func TestReadCheckpoint(t *testing.T) {
	checkpointrows.Shows(t, 142)
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, v text, gone int)", "INSERT INTO t SELECT g, 'v' || g, 1 FROM generate_series(1, 5000) g",
		"CREATE MATERIALIZED VIEW m AS SELECT id % 10 AS k, count(*) AS n, max(v) AS v FROM t GROUP BY 1", "CREATE TABLE keyless (a int[], b jsonb)",
		`INSERT INTO keyless VALUES ('{1,2}', '{"x": 1}'), (NULL, NULL)`, "CREATE SCHEMA other", `CREATE MATERIALIZED VIEW other."Big" AS SELECT count(*) AS n FROM t`,
		"ALTER TABLE t DROP COLUMN gone", "ALTER TABLE t ADD COLUMN late int DEFAULT 7")
	queries := map[string]string{
		"t": "SELECT * FROM %s ORDER BY id", "m": "SELECT * FROM %s ORDER BY k", "keyless": "SELECT * FROM %s ORDER BY a", `other."Big"`: "SELECT * FROM %s",
	}
	want := map[string][]string{}
	for rel, q := range queries {
		want[rel] = s.rows(fmt.Sprintf(q, rel))
	}
	native := s.row("SELECT streamdb.savepoint('" + t.TempDir() + "')")
	canonical := s.row("SELECT streamdb.savepoint('" + t.TempDir() + "', format => 'canonical')")
	s.must("CHECKPOINT")
	dir := filepath.Join(d.cfg.DataDir, "checkpoints")
	kept := t.TempDir()
	require.NoError(t, os.CopyFS(kept, os.DirFS(dir)))
	s.must("DELETE FROM t WHERE id > 10", "DROP TABLE keyless", "FLUSH")
	for _, path := range []string{native, canonical, kept, dir, "file://" + dir} {
		for rel, q := range queries {
			require.Equal(t, want[rel], s.rows(fmt.Sprintf(q, fmt.Sprintf("streamdb.read_checkpoint('%s', '%s')", path, rel))), "%s of %s", rel, path)
		}
	}
	call := func(rel string) string { return fmt.Sprintf("streamdb.read_checkpoint('%s', '%s')", native, rel) }
	require.Equal(t, "10|5000|500", s.row("SELECT count(*), sum(c.n), max(c.n) FROM "+call("m")+" AS c JOIN "+call("m")+" AS d USING (k)"))
	require.Equal(t, "4990", s.row("SELECT count(*) FROM "+call("t")+" AS was (key) WHERE NOT EXISTS (SELECT FROM t WHERE id = key)"))
	s.must("CHECKPOINT")
	require.Equal(t, "10", s.row("SELECT count(*) FROM streamdb.read_checkpoint('"+dir+"', 't')"), "the newest one")
	s.fails("SELECT * FROM "+call("none"), "42P01", fmt.Sprintf(`relation "none" does not exist in %s`, native))
	s.fails("SELECT * FROM streamdb.read_checkpoint('"+t.TempDir()+"', 't')", "58P01", "")
	s.fails("SELECT * FROM streamdb.read_checkpoint('x')", "42883", "")
	s.fails("SELECT * FROM t, LATERAL streamdb.read_checkpoint(t.v, 't')", "0A000", "")
	s.fails("CREATE MATERIALIZED VIEW mm AS SELECT * FROM "+call("t"), "0A000", "")
	s.must("CREATE ROLE ann", "SET ROLE ann")
	s.fails("SELECT * FROM "+call("t"), "42501", "must be superuser to read checkpoints")
	require.NoError(t, os.RemoveAll(native))
	left, err := os.ReadDir(filepath.Join(d.cfg.DataDir, "scratch"))
	require.NoError(t, err)
	require.Empty(t, left)
}
