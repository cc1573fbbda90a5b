package server_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/server"
)

// The keys of rows that are older than the type of their key must be those of new values.
func TestKeysOlderThanTheirTypes(t *testing.T) {
	for _, c := range []struct{ name, from, to, old, other, third string }{
		{"int2", "smallint", "int", "-7", "300", "70000"},
		{"int4", "int", "bigint", "-7", "300", "5000000000"},
		{"int8", "smallint", "bigint", "-7", "300", "5000000000"},
		{"varchar", "varchar(5)", "varchar(10)", "'a b'", "'zz'", "'long text'"},
		{"text", "varchar(5)", "text", "'ab '", "'zz'", "'a rather long text'"},
		{"varchar without length", "text", "varchar", "'ab '", "'zz'", "'a rather long text'"},
		{"numeric", "numeric(6,2)", "numeric", "1.50", "-20", "1.23456789"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bucket := t.TempDir()
			d := open(t, func(cfg *server.Config) { cfg.CheckpointDir = "file://" + bucket })
			s := d.connect()
			s.must("CREATE TABLE t (k "+c.from+" PRIMARY KEY, x "+c.from+" UNIQUE, v int)", "CREATE INDEX tx ON t (x DESC, v)",
				"CREATE TABLE n (k "+c.to+", w int)", "INSERT INTO t VALUES ("+c.old+", "+c.old+", 1), ("+c.other+", "+c.other+", 2)",
				"INSERT INTO n VALUES ("+c.old+", 10), ("+c.other+", 20)",
				"CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v", "CHECKPOINT")
			s.must("ALTER TABLE t ALTER COLUMN k TYPE "+c.to, "ALTER TABLE t ALTER COLUMN x TYPE "+c.to,
				"CREATE MATERIALIZED VIEW j AS SELECT t.v, n.w FROM t JOIN n ON t.k = n.k", "INSERT INTO t VALUES ("+c.third+", "+c.third+", 3)")
			all := []string{"1|10", "2|20"}
			check := func() {
				t.Helper()
				s.must("FLUSH")
				old, third := c.old+"::"+c.to, c.third+"::"+c.to
				require.Equal(t, []string{"1", "3"}, s.rows("SELECT v FROM t WHERE k IN ("+old+", "+third+") ORDER BY v"))
				require.Equal(t, "1", s.row("SELECT v FROM t WHERE k = "+old))
				require.Equal(t, "1", s.row("SELECT v FROM t WHERE x = "+old))
				require.Equal(t, "1", s.row("SELECT v FROM t WHERE x >= "+old+" AND x <= "+old))
				require.Equal(t, all, s.rows("SELECT t.v, n.w FROM t JOIN n USING (k) ORDER BY 1"))
				require.Equal(t, all, s.rows("SELECT * FROM j ORDER BY 1"))
				require.Equal(t, s.rows("SELECT v, count(*) FROM t GROUP BY v ORDER BY 1"), s.rows("SELECT * FROM m ORDER BY 1"))
				require.Equal(t, "23505", s.code("INSERT INTO t VALUES ("+old+", "+third+", 9)"))
				require.Equal(t, "23505", s.code("INSERT INTO t SELECT k, "+old+", 9 FROM (SELECT max(k) AS k FROM n) q WHERE false UNION ALL VALUES ("+third+", "+old+", 9)"))
				s.must("INSERT INTO t VALUES ("+old+", "+old+", 9) ON CONFLICT (k) DO NOTHING", "INSERT INTO t VALUES ('9'::"+c.to+", "+old+", 9) ON CONFLICT (x) DO UPDATE SET v = t.v",
					"UPDATE t SET v = v WHERE k = "+old)
				require.Equal(t, "3", s.row("SELECT count(*) FROM t"))
			}
			check()
			d.crash()
			s = d.connect()
			check()
			s.must("CHECKPOINT")
			require.NoError(t, d.srv.Abort())
			require.NoError(t, os.RemoveAll(d.cfg.DataDir))
			d.cfg.DataDir = t.TempDir()
			d.start()
			s = d.connect()
			check()
			s.must("UPDATE t SET v = 5, x = x WHERE k = "+c.other, "DELETE FROM t WHERE k = "+c.old, "FLUSH")
			require.Equal(t, []string{"5|20"}, s.rows("TABLE j"))
			require.Equal(t, []string{"3|1", "5|1"}, s.rows("SELECT * FROM m ORDER BY 1"))
			require.Equal(t, "0", s.row("SELECT count(*) FROM t WHERE x = "+c.old))
			s.must("INSERT INTO t VALUES ("+c.old+", "+c.old+", 6)", "FLUSH")
			require.Equal(t, []string{"5|20", "6|10"}, s.rows("SELECT * FROM j ORDER BY 1"))
		})
	}
}
