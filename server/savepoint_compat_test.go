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
	"github.com/streamdb/streamdb/storage/object"
)

// sampleViews are the views over tables in the kept savepoints, by their queries.
var sampleViews = map[string]string{
	"plain":     "SELECT id, upper(name) AS name, price * 2 AS twice FROM items WHERE id % 3 = 0",
	"totals":    "SELECT kind, count(*) AS n, sum(price) AS total, avg(price) AS mean, min(at) AS first, max(name) AS last, count(DISTINCT price) AS prices FROM items GROUP BY kind",
	"lists":     "SELECT kind, array_agg(id ORDER BY id) AS ids, string_agg(name, ',' ORDER BY id DESC) AS names FROM items WHERE id < 60 GROUP BY kind",
	"joined":    "SELECT i.id, k.label FROM items AS i LEFT JOIN kinds AS k ON k.kind = i.kind",
	"top":       "SELECT id, price FROM items ORDER BY price DESC, id LIMIT 7",
	"ranked":    "SELECT id, row_number() OVER (PARTITION BY kind ORDER BY price, id) AS place, lag(id) OVER (PARTITION BY kind ORDER BY id) AS before FROM items",
	"per_hour":  "SELECT window_start, count(*) AS n FROM tumble(items, at, interval '1 hour') GROUP BY window_start",
	"reachable": "WITH RECURSIVE r AS (SELECT 1 AS id UNION SELECT e.b FROM r JOIN edges AS e ON e.a = r.id) SELECT id FROM r",
	"above":     "SELECT n, count(*) AS kinds FROM totals GROUP BY n",
	"in_memory": "SELECT kind, count(*) AS n FROM items GROUP BY kind",
	"median":    "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY price) AS price FROM items",
}

// sampleRows is how many rows the source of the kept savepoints gives, of which they have read a part.
const sampleRows = 3000

// writeSamples makes the database that the samples are of, and a savepoint in each form.
func writeSamples(t *testing.T, root string) {
	d := open(t)
	s := d.connect()
	s.must("CREATE ROLE reader LOGIN", "CREATE TYPE mood AS ENUM ('sad', 'happy')", "CREATE SEQUENCE ids START 1000",
		"CREATE TABLE kinds (kind int PRIMARY KEY, label text, mood mood)", "INSERT INTO kinds VALUES (0, 'zero', 'sad'), (1, 'one', 'happy'), (2, NULL, NULL)",
		"CREATE TABLE items (id int PRIMARY KEY DEFAULT nextval('ids'), kind int, name text, price numeric(10, 2), at timestamptz, tags text[], doc jsonb)",
		"CREATE INDEX items_by_kind ON items (kind, price)", "CREATE TABLE edges (a int, b int)", "INSERT INTO edges VALUES (1, 2), (2, 3), (3, 1), (5, 6)", "GRANT SELECT ON items TO reader",
		`INSERT INTO items SELECT i, i % 4, 'item ' || i, i * 1.5, timestamptz '2024-01-01 00:00:00Z' + i * interval '7 minutes', ARRAY['a', i::text], jsonb_build_object('i', i) FROM generate_series(1, 150) AS i`,
		`CREATE SOURCE numbers (id int, ts timestamp, WATERMARK FOR ts AS ts) WITH (connector = 'datagen', "fields.id.kind" = 'sequence', "fields.ts.kind" = 'sequence', "datagen.rows" = '`+fmt.Sprint(sampleRows)+`', "datagen.rows.per.second" = '1000', "datagen.split.num" = '2')`)
	for _, name := range []string{"plain", "totals", "lists", "joined", "top", "ranked", "per_hour", "reachable", "above", "in_memory", "median"} {
		with := ""
		if name == "in_memory" {
			with = " WITH (state.backend.type = 'memory', parallelism = 2)"
		}
		s.must("CREATE MATERIALIZED VIEW " + name + with + " AS " + sampleViews[name])
	}
	s.must("CREATE INDEX totals_by_n ON totals (n)", "CREATE MATERIALIZED VIEW inverse AS SELECT id, 100 / (id - 150) AS x FROM items",
		"CREATE MATERIALIZED VIEW summed WITH (background = true) AS SELECT id % 7 AS k, count(*) AS n, sum(id) AS s FROM numbers GROUP BY 1",
		"CREATE MATERIALIZED VIEW seconds WITH (background = true) AS SELECT window_start, count(*) AS n FROM tumble(numbers, ts, interval '1 second') GROUP BY window_start EMIT ON WINDOW CLOSE",
		"DELETE FROM items WHERE id % 11 = 0", "UPDATE items SET price = price + 1 WHERE id % 13 = 0", "INSERT INTO items (kind, name) VALUES (9, 'numbered')")
	s.until("SELECT sum(n) > 500 FROM summed", "t")
	for _, form := range []string{checkpoint.FormNative, checkpoint.FormCanonical} {
		path := s.row(fmt.Sprintf("SELECT streamdb.savepoint('%s', format => '%s')", t.TempDir(), form))
		require.NoError(t, os.MkdirAll(root, 0o755))
		require.NoError(t, os.Rename(strings.TrimPrefix(path, "file://"), filepath.Join(root, form)))
	}
}

// TestSavepointsOfEarlierVersions restores the savepoints in testdata/compat, which earlier versions wrote, goes on from them, and reads them in SQL. SERVER_WRITE_COMPAT=FOLDER writes
// samples of the present format there, for keeping when the format changes.
func TestSavepointsOfEarlierVersions(t *testing.T) {
	checkpointrows.Shows(t, 99, 105)
	if root := os.Getenv("SERVER_WRITE_COMPAT"); root != "" {
		writeSamples(t, root)
	}
	samples, err := filepath.Glob("../testdata/compat/savepoint-v*/*")
	require.NoError(t, err)
	require.NotEmpty(t, samples)
	for _, sample := range samples {
		version, form := filepath.Base(filepath.Dir(sample)), filepath.Base(sample)
		t.Run(version+" "+form, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "sample")
			require.NoError(t, os.CopyFS(dir, os.DirFS(sample)))
			o, err := checkpoint.OpenPath(t.Context(), dir)
			require.NoError(t, err)
			require.Equal(t, form, o.Form)
			store, err := object.Open(t.Context(), dir)
			require.NoError(t, err)
			var out strings.Builder
			problems, err := checkpoint.Verify(t.Context(), store, &out)
			require.NoError(t, err)
			require.Zero(t, problems, out.String())
			for _, backend := range []string{"pebble", "memory"} {
				d := from(t, dir, func(c *server.Config) { c.Settings["state.backend.type"] = backend })
				goesOnFromSample(t, d)
			}
			s := open(t).connect()
			require.Equal(t, "138|15496.00", s.row("SELECT count(*), sum(price) FROM streamdb.read_checkpoint('"+dir+"', 'items')"))
			require.Equal(t, "138", s.row("SELECT sum(n) FROM streamdb.read_checkpoint('"+dir+"', 'totals')"))
			require.Equal(t, "7", s.row("SELECT count(*) FROM streamdb.read_checkpoint('"+dir+"', 'summed')"))
		})
	}
}

func goesOnFromSample(t *testing.T, d *database) {
	t.Helper()
	s := d.connect()
	equal := func() {
		t.Helper()
		s.must("FLUSH")
		for name, query := range sampleViews {
			require.ElementsMatch(t, s.rows(query), s.rows("SELECT * FROM "+name), name)
		}
	}
	require.Equal(t, "138|15496.00|3|4", s.row("SELECT count(*), sum(price), (SELECT count(*) FROM kinds), (SELECT count(*) FROM edges) FROM items"))
	require.Equal(t, "happy", s.row("SELECT max(mood) FROM kinds"))
	require.Equal(t, "t|f", s.row("SELECT has_table_privilege('reader', 'items', 'select'), has_table_privilege('reader', 'kinds', 'select')"))
	require.Equal(t, "150|1", s.row("SELECT row -> 'id', weight FROM streamdb.errors WHERE job = 'inverse'"))
	equal()
	s.must("INSERT INTO items (kind, name, price, at) VALUES (1, 'new', 7, '2024-01-01 01:00:00Z')", "DELETE FROM items WHERE id = 149", "INSERT INTO edges VALUES (3, 5)",
		"UPDATE kinds SET label = 'two' WHERE kind = 2")
	require.Equal(t, "t", s.row("SELECT max(id) > 1000 FROM items"), "the sequence goes on")
	equal()
	sum := sampleRows * (sampleRows - 1) / 2
	s.until("SELECT sum(n) || ' ' || sum(s) || ' ' || (SELECT sum(n) FROM seconds) FROM summed", fmt.Sprintf("%d %d %d", sampleRows, sum, sampleRows))
	require.Equal(t, "3|1000|1000", s.row("SELECT count(*), min(n), max(n) FROM seconds"))
}
