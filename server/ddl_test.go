package server_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// The SQLSTATEs were read from PostgreSQL 15 for what it knows.
func TestMistakesInDDL(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (a int)", "CREATE VIEW v AS SELECT a FROM t", "CREATE VIEW v2 AS SELECT a FROM v", "CREATE MATERIALIZED VIEW m AS SELECT count(*) FROM t",
		"CREATE SCHEMA s1", "CREATE TABLE s1.t (a int)", "CREATE TABLE n (a int NOT NULL, b text NOT NULL DEFAULT 'q')")
	for _, c := range []struct{ q, code, message string }{
		{"CREATE TABLE x (a int, a int)", "42701", `column "a" specified more than once`},
		{"CREATE TABLE x (a nope)", "42704", `type "nope" does not exist`},
		{"CREATE TABLE x (a int PRIMARY KEY, b int PRIMARY KEY)", "42P16", `multiple primary keys for table "x" are not allowed`},
		{"CREATE TABLE x (a int, PRIMARY KEY (b))", "42703", `column "b" named in key does not exist`},
		{"CREATE TABLE x (a int, PRIMARY KEY (a, a))", "42701", `column "a" appears twice in primary key constraint`},
		{"CREATE TABLE x (a int DEFAULT 'x')", "22P02", `invalid input syntax for type integer: "x"`},
		{"CREATE TABLE x (a int DEFAULT true)", "42804", `column "a" is of type integer but default expression is of type boolean`},
		{"CREATE TABLE x (a int DEFAULT b)", "0A000", "cannot use column reference in DEFAULT expression"},
		{"CREATE TABLE x (a int DEFAULT (SELECT 1))", "0A000", "cannot use subquery in DEFAULT expression"},
		{"CREATE TABLE x (a int CHECK (b > 1))", "42703", `column "b" does not exist`},
		{"CREATE TABLE x (a int CHECK (a))", "42804", "argument of CHECK must be type boolean, not type integer"},
		{"CREATE TABLE x (a int CHECK (sum(a) > 1))", "42803", "aggregate functions are not allowed in check constraints"},
		{"CREATE TABLE x (a int, b int GENERATED ALWAYS AS (c) STORED)", "42703", `column "c" does not exist`},
		{"CREATE TABLE x (a int, b int GENERATED ALWAYS AS (random()) STORED)", "42P17", "generation expression is not immutable"},
		{"CREATE TABLE x (a int, b int GENERATED ALWAYS AS (a) STORED, c int GENERATED ALWAYS AS (b) STORED)", "42P17", `cannot use generated column "b" in column generation expression`},
		{"CREATE TABLE x (a int, b int GENERATED ALWAYS AS (a) STORED DEFAULT 3)", "42601", `both default and generation expression specified for column "b" of table "x"`},
		{"CREATE TABLE x (a varchar(0))", "22023", "length for type varchar must be at least 1"},
		{"CREATE TABLE x (a numeric(2000))", "22023", "NUMERIC precision 2000 must be between 1 and 1000"},
		{"CREATE TABLE t (a int)", "42P07", `relation "t" already exists`},
		{"CREATE VIEW t AS SELECT 1 AS a", "42P07", `relation "t" already exists`},
		{"CREATE TABLE nope.x (a int)", "3F000", `schema "nope" does not exist`},
		{"CREATE TABLE pg_catalog.x (a int)", "42501", `permission denied to create "pg_catalog.x"`},
		{"CREATE VIEW x AS SELECT nope FROM t", "42703", `column "nope" does not exist`},
		{"CREATE VIEW x AS SELECT a, a FROM t", "42701", `column "a" specified more than once`},
		{"CREATE MATERIALIZED VIEW x AS SELECT a, a FROM t", "42701", `column "a" specified more than once`},
		{"CREATE OR REPLACE VIEW v AS SELECT a::text FROM t", "42P16", `cannot change data type of view column "a" from integer to text`},
		{"CREATE OR REPLACE VIEW v AS SELECT a AS b FROM t", "42P16", `cannot change name of view column "a" to "b"`},
		{"CREATE OR REPLACE VIEW t AS SELECT 1 AS a", "42809", `"t" is not a view`},
		{"CREATE VIEW x AS SELECT $1", "42P02", "there is no parameter $1"},
		{"CREATE TABLE x AS SELECT 1 AS a, 2 AS a", "42701", `column "a" specified more than once`},
		{"CREATE TABLE x (a, b) AS SELECT 1", "42601", "too many column names were specified"},
		{"DROP TABLE v", "42809", `"v" is not a table`},
		{"DROP VIEW t", "42809", `"t" is not a view`},
		{"DROP VIEW m", "42809", `"m" is not a view`},
		{"DROP MATERIALIZED VIEW v", "42809", `"v" is not a materialized view`},
		{"DROP TABLE t", "2BP01", "cannot drop table t because other objects depend on it"},
		{"DROP TABLE nope", "42P01", `table "nope" does not exist`},
		{"DROP TABLE n, nope", "42P01", `table "nope" does not exist`},
		{"DROP SCHEMA nope", "3F000", `schema "nope" does not exist`},
		{"DROP SCHEMA s1", "2BP01", "cannot drop schema s1 because other objects depend on it"},
		{"DROP SCHEMA pg_catalog CASCADE", "2BP01", "cannot drop schema pg_catalog because it is required by the database system"},
		{"DROP SCHEMA information_schema", "2BP01", ""},
		{"DROP SCHEMA streamdb", "2BP01", ""},
		{"CREATE SCHEMA s1", "42P06", `schema "s1" already exists`},
		{"CREATE SCHEMA pg_foo", "42939", `unacceptable schema name "pg_foo"`},
		{"ALTER TABLE nope RENAME TO x", "42P01", `relation "nope" does not exist`},
		{"ALTER TABLE n RENAME TO t", "42P07", `relation "t" already exists`},
		{"INSERT INTO m VALUES (1)", "42809", `cannot change materialized view "m"`},
		{"TRUNCATE v", "42809", `"v" is not a table`},
		{"TRUNCATE nope", "42P01", `relation "nope" does not exist`},
		{"COMMENT ON COLUMN n.zz IS 'x'", "42703", `column "zz" of relation "n" does not exist`},
		{"COMMENT ON TABLE v IS 'x'", "42809", `"v" is not a table`},
		{"EXPLAIN EXECUTE nope", "26000", ""},
		{"LOCK TABLE n", "25P01", "LOCK TABLE can only be used in transaction blocks"},
		{"CREATE INDEX ON n USING gin (a)", "42704", `access method "gin" does not exist`},
		{"PREPARE p AS SELECT nope", "42703", ""},
		{"EXECUTE nope", "26000", `prepared statement "nope" does not exist`},
	} {
		s.fails(c.q, c.code, c.message)
	}
	require.Equal(t, []string{"n", "t", "t"}, s.rows("SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND table_schema IN ('public', 's1') ORDER BY 1"))
	require.Empty(t, s.rows("SHOW JOBS")[1:])
}

func TestNamesNeedNoLuck(t *testing.T) {
	d := open(t)
	s := d.connect()
	for _, name := range []string{`Weird "Name" ü`, "a.b", "select", "日本語", " ", `back\slash`, "it's", "%s %d", strings.Repeat("x", 63)} {
		q := pgx.Identifier{name}.Sanitize()
		s.must("CREATE TABLE "+q+" ("+q+" int PRIMARY KEY CHECK ("+q+" < 100), v text)", "INSERT INTO "+q+" VALUES (1, 'x')", "CREATE MATERIALIZED VIEW "+
			pgx.Identifier{"m" + strings.TrimSuffix(name, "x")}.Sanitize()+" AS SELECT "+q+" + 1 AS "+q+" FROM "+q)
		pe := s.fails("INSERT INTO "+q+" VALUES (1, 'y')", "23505", "")
		require.Contains(t, pe.Message, name)
		require.NotContains(t, pe.Message, `\"`)
		s.fails("INSERT INTO "+q+" VALUES (100, 'y')", "23514", "")
		s.must("DROP TABLE " + q + " CASCADE")
	}
	s.must("CREATE TABLE " + strings.Repeat("y", 80) + " (a int)")
	require.Equal(t, "42622", s.notices[len(s.notices)-1].Code)
	d.crash()
	require.Equal(t, []string{strings.Repeat("y", 63)}, d.connect().rows("SHOW TABLES"))
}

func TestConstraintsAreNamedAsPostgreSQLNamesThem(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE ck (p int CHECK (p > 0) CHECK (p < 100), q int, r text, PRIMARY KEY (q, p), CHECK (p < q), CHECK (r <> 'bad'), CHECK (q <> p + 50))",
		"INSERT INTO ck VALUES (1, 2, 'r')")
	for q, constraint := range map[string]string{
		"INSERT INTO ck VALUES (0, 5, 'r')": "ck_p_check", "INSERT INTO ck VALUES (100, 500, 'r')": "ck_p_check1", "INSERT INTO ck VALUES (3, 1, 'r')": "ck_check",
		"INSERT INTO ck VALUES (1, 5, 'bad')": "ck_r_check", "INSERT INTO ck VALUES (5, 55, 'r')": "ck_check1", "INSERT INTO ck VALUES (1, 2, 'r')": "ck_pkey",
	} {
		_, err := s.PgConn().Exec(s.d.ctx, q).ReadAll()
		pe := pgErr(t, err)
		require.Equal(t, []string{"public", "ck", constraint}, []string{pe.SchemaName, pe.TableName, pe.ConstraintName}, q)
	}
}

func TestDropSaysWhatDepends(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (a int)", "CREATE VIEW v AS SELECT a FROM t", "CREATE SCHEMA s1", "CREATE MATERIALIZED VIEW s1.m AS SELECT a FROM v")
	pe := s.fails("DROP TABLE t", "2BP01", "")
	require.Equal(t, "view v depends on table t\nmaterialized view s1.m depends on view v", pe.Detail)
	s.must("DROP TABLE t CASCADE")
	require.Equal(t, "drop cascades to 2 other objects", s.notices[len(s.notices)-1].Message)
	require.Empty(t, s.rows("SHOW JOBS"))
}

func TestSchemaChangesWhileWritersRun(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, v int)")
	var stop atomic.Bool
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	var rows atomic.Int64
	for w := range 3 {
		c := d.connect()
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; !stop.Load(); i++ {
				if _, err := c.PgConn().Exec(d.ctx, fmt.Sprintf("INSERT INTO t VALUES (%d, 1)", i*3+w)).ReadAll(); err != nil {
					errs <- err
					return
				}
				rows.Add(1)
			}
		}()
	}
	c := d.connect()
	wg.Add(1)
	go func() {
		defer wg.Done()
		for !stop.Load() {
			if _, err := c.PgConn().Exec(d.ctx, "CHECKPOINT").ReadAll(); err != nil {
				errs <- err
				return
			}
		}
	}()
	r := d.connect()
	wg.Add(1)
	go func() { // readers of what is dropped get rows or a clean error
		defer wg.Done()
		for !stop.Load() {
			switch code := r.code("SELECT count(*) FROM m0 JOIN m1 ON m0.n = m1.n"); code {
			case "", "42P01":
			default:
				errs <- fmt.Errorf("reader: %s", code)
				return
			}
		}
	}()
	for i := range 30 {
		m := fmt.Sprint("m", i%2)
		s.must("CREATE MATERIALIZED VIEW " + m + " AS SELECT count(*) AS n, sum(v) AS s FROM t")
		got := s.row("SELECT n = s, n = (SELECT count(*) FROM t) FROM " + m)
		require.Equal(t, "t|t", got)
		s.must("DROP MATERIALIZED VIEW " + m)
	}
	stop.Store(true)
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, fmt.Sprint(rows.Load()), s.row("SELECT count(*) FROM t"))
}

func TestJobsOfUsers(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (id int)", "INSERT INTO t SELECT * FROM generate_series(1, 2000)", "SET background_ddl = on")
	s.must("CREATE MATERIALIZED VIEW big AS SELECT count(*) AS n FROM t a, t b, t c WHERE a.id < b.id AND b.id < c.id")
	job := strings.Split(s.row("SHOW JOBS"), "|")
	require.Regexp(t, `^\d+ % \(\d+ of \d+ rows\)$`, job[3])
	require.Equal(t, "55000", s.code("CREATE MATERIALIZED VIEW over AS SELECT n FROM big"))
	require.Equal(t, job[0], s.row("CANCEL JOBS "+job[0]))
	require.Empty(t, s.rows("SHOW JOBS"))
	require.Equal(t, "42P01", s.code("TABLE big"))
	require.Equal(t, "42704", s.code("CANCEL JOBS 99999"))
	s.must("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t", "WAIT m")
	require.Equal(t, "2000", s.row("TABLE m"))
	require.Equal(t, "55000", s.code("CANCEL JOBS "+strings.Split(s.row("SHOW JOBS"), "|")[0]))
	s.must("PAUSE m", "INSERT INTO t VALUES (0)")
	require.Equal(t, "2000", s.row("TABLE m"), "a paused view shows an earlier moment")
	require.Equal(t, "WARNING", s.notices[len(s.notices)-1].Severity)
	require.Equal(t, "paused", strings.ToLower(s.row("SELECT state FROM streamdb.jobs")))
	require.Eventually(t, func() bool { return s.row("SELECT lag_ms BETWEEN 20 AND 60000 FROM streamdb.jobs") == "t" }, testTimeout, time.Millisecond)
	s.must("RESUME m", "FLUSH")
	require.Equal(t, "2001", s.row("TABLE m"))
	require.Equal(t, "0", s.row("SELECT lag_ms FROM streamdb.jobs"))
	require.Equal(t, "42809", s.code("PAUSE t"))
	require.Equal(t, "42P01", s.code("WAIT nope"))
	s.must("PAUSE", "DROP MATERIALIZED VIEW m", "RESUME")
}

func TestCloseWhileAViewIsFilled(t *testing.T) {
	d := open(t)
	s := d.connect()
	const slow = "CREATE MATERIALIZED VIEW %s AS SELECT count(*) AS n FROM t a, t b, t c WHERE a.id < b.id AND b.id < c.id"
	s.must("CREATE TABLE t (id int)", "INSERT INTO t SELECT * FROM generate_series(1, 250)", "CHECKPOINT", "SET background_ddl = on", fmt.Sprintf(slow, "behind"))
	c := d.connect()
	done := make(chan error, 1)
	go func() {
		_, err := c.PgConn().Exec(d.ctx, "SET background_ddl = off; "+fmt.Sprintf(slow, "waited")).ReadAll()
		done <- err
	}()
	require.Eventually(t, func() bool { return len(s.rows("SHOW JOBS")) == 2 }, testTimeout, time.Millisecond)
	d.crash()
	require.Error(t, <-done)
	s = d.connect()
	require.Equal(t, []string{"behind"}, s.rows("SELECT name FROM streamdb.jobs"), "nobody waits any more for the other one")
	s.must("DELETE FROM t WHERE id > 100", "WAIT behind")
	require.Equal(t, "161700", s.row("TABLE behind"))
	s.must("CREATE MATERIALIZED VIEW over AS SELECT n + 1 AS n1 FROM behind")
	require.Equal(t, "161701", s.row("TABLE over"))
}

func TestRowsThatFailAreCounted(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, a int, b int)", "INSERT INTO t VALUES (1, 10, 2), (2, 1, 0)", "CREATE MATERIALIZED VIEW m AS SELECT id, a / b AS q FROM t")
	require.Equal(t, "1|5", s.row("TABLE m"))
	require.Equal(t, `1 row is missing from materialized view "m" because its evaluation failed; see streamdb.errors`, s.notices[len(s.notices)-1].Message)
	s.must("INSERT INTO t VALUES (3, 1, 0)")
	s.rows("TABLE m")
	require.Contains(t, s.notices[len(s.notices)-1].Message, "2 rows are missing")
	s.must("DELETE FROM t WHERE b = 0")
	n := len(s.notices)
	require.Equal(t, "1|5", s.row("TABLE m"))
	require.Len(t, s.notices, n)
}

func TestRunTimeErrorsHaveNoPosition(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, a varchar(3), n numeric(4,2))")
	for q, pos := range map[string]int32{
		"SELECT 1/0": 0, "INSERT INTO t VALUES (1/0)": 0, "INSERT INTO t VALUES (1, 'a', 1000)": 0, "INSERT INTO t VALUES (99999999999)": 0,
		"SELECT 2147483647 + 1": 0, "SELECT 99999999999::int": 0, "SELECT 'x'::int": 8, "INSERT INTO t VALUES ('x')": 23, "SELECT nope": 8, "SELECT '2024-02-30'::date": 8,
	} {
		_, err := s.PgConn().Exec(s.d.ctx, q).ReadAll()
		require.Equal(t, pos, pgErr(t, err).Position, q)
	}
}
