package server_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

func TestSeveralStatementsOfOneMessageAreOneTransaction(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY)")
	require.Equal(t, "22012", s.code("INSERT INTO t VALUES (1); SELECT 1/0; INSERT INTO t VALUES (2)"))
	require.Empty(t, s.rows("TABLE t"))
	require.Equal(t, byte('I'), s.PgConn().TxStatus())

	require.Equal(t, "22012", s.code("INSERT INTO t VALUES (3); COMMIT; INSERT INTO t VALUES (4); SELECT 1/0"), "COMMIT ends the implicit transaction")
	require.Equal(t, []string{"3"}, s.rows("TABLE t"))
	require.Equal(t, "25P01", s.notices[len(s.notices)-1].Code)

	s.must("INSERT INTO t VALUES (5); BEGIN; INSERT INTO t VALUES (6); ROLLBACK")
	require.Equal(t, []string{"3"}, s.rows("TABLE t"), "BEGIN turns what came before into a block")
	require.Equal(t, "22012", s.code("BEGIN; INSERT INTO t VALUES (7); COMMIT; SELECT 1/0"))
	require.Equal(t, []string{"3", "7"}, s.rows("SELECT id FROM t ORDER BY id"))
}

func TestDuplicatesAreFoundByTheirStatement(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
	res, err := s.PgConn().Exec(s.d.ctx, "INSERT INTO t VALUES (1); SELECT 1").ReadAll()
	require.Equal(t, "23505", pgErr(t, err).Code)
	require.LessOrEqual(t, len(res), 1)
	got := s.raw(1, &pgproto3.Parse{Query: "INSERT INTO t VALUES (1)"}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Sync{})
	require.Equal(t, []string{"ParseComplete", "BindComplete", "E(23505)", "Z(I)"}, got)
	got = s.raw(1, &pgproto3.Parse{Query: "INSERT INTO t VALUES (1)"}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Flush{}, &pgproto3.Sync{})
	require.Equal(t, []string{"ParseComplete", "BindComplete", "E(23505)", "Z(I)"}, got)
}

func TestFailedBlock(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY)")
	require.Equal(t, "42703", s.code("BEGIN; SELECT 1; SELECT nope"))
	require.Equal(t, byte('E'), s.PgConn().TxStatus())
	require.Equal(t, "25P02", s.code("SELECT 1"))
	require.Equal(t, "25P02", s.code("SAVEPOINT a"))
	res, err := s.PgConn().Exec(s.d.ctx, "COMMIT").ReadAll()
	require.NoError(t, err)
	require.Equal(t, "ROLLBACK", res[0].CommandTag.String())
	require.Equal(t, byte('I'), s.PgConn().TxStatus())
}

func TestSavepointsBringBackRowsAndSettings(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, v int)", "BEGIN", "INSERT INTO t VALUES (1, 1)", "SAVEPOINT a", "SET TimeZone = 'Asia/Tokyo'",
		"UPDATE t SET v = 2", "SAVEPOINT a", "DELETE FROM t", "ROLLBACK TO a")
	require.Equal(t, "1|2", s.row("TABLE t"))
	require.Equal(t, "Asia/Tokyo", s.row("SHOW TimeZone"))
	s.must("RELEASE a", "ROLLBACK TO SAVEPOINT a")
	require.Equal(t, "1|1", s.row("TABLE t"))
	require.Equal(t, "UTC", s.row("SHOW TimeZone"))
	require.Equal(t, "3B001", s.code("ROLLBACK TO nope"))
	require.Equal(t, "25P02", s.code("SELECT 1"))
	s.must("ROLLBACK TO a", "COMMIT")
	require.Equal(t, "1|1", s.row("TABLE t"))
}

func TestReadOnlyTransactions(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY)")
	for _, begin := range []string{"BEGIN READ ONLY", "BEGIN; SET TRANSACTION READ ONLY", "BEGIN; SET transaction_read_only = on"} {
		for _, q := range []string{
			"INSERT INTO t VALUES (1)", "DELETE FROM t", "UPDATE t SET id = 2", "TRUNCATE t", "CREATE TABLE u (a int)", "DROP TABLE t",
			"CREATE MATERIALIZED VIEW m AS SELECT 1 AS a", "CREATE VIEW v AS SELECT 1 AS a", "SELECT 1 AS a INTO u", "COMMENT ON TABLE t IS 'x'", "ALTER TABLE t RENAME TO u",
		} {
			s.must(begin)
			require.Equal(t, "25006", s.code(q), q)
			s.must("ROLLBACK")
		}
	}
	s.must("SET default_transaction_read_only = on")
	require.Equal(t, "25006", s.code("INSERT INTO t VALUES (1)"))
	s.must("BEGIN READ WRITE", "INSERT INTO t VALUES (1)", "COMMIT AND CHAIN", "INSERT INTO t VALUES (2)", "COMMIT")
	require.Equal(t, "25006", s.code("INSERT INTO t VALUES (3)"))
	s.must("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE")
	s.must("INSERT INTO t VALUES (3)")
	require.Equal(t, "3", s.row("SELECT count(*) FROM t"))
}

func TestIsolationIsShown(t *testing.T) {
	s := open(t).connect()
	s.must("BEGIN ISOLATION LEVEL SERIALIZABLE")
	require.Equal(t, "serializable", s.row("SHOW transaction_isolation"))
	s.must("COMMIT")
	require.Equal(t, "read committed", s.row("SHOW TRANSACTION ISOLATION LEVEL"))
}

func TestSnapshotIsolation(t *testing.T) {
	d := open(t)
	a, b := d.connect(), d.connect()
	a.must("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 0), (2, 0)", "CREATE MATERIALIZED VIEW m AS SELECT sum(v) AS s FROM t")
	a.must("BEGIN")
	require.Equal(t, "0", a.row("SELECT sum(v) FROM t"))
	b.must("UPDATE t SET v = 5 WHERE id = 1", "INSERT INTO t VALUES (3, 7)")
	require.Equal(t, "12", b.row("TABLE m"))
	require.Equal(t, "0", a.row("SELECT sum(v) FROM t"))
	require.Equal(t, "0", a.row("TABLE m"), "the view is read at the block's instant too")
	a.must("UPDATE t SET v = 100 WHERE id = 2")
	require.Equal(t, "100", a.row("SELECT sum(v) FROM t"), "own writes are visible")
	a.must("COMMIT")
	require.Equal(t, "112", a.row("SELECT sum(v) FROM t"))
	require.Equal(t, "112", a.row("TABLE m"), "a session sees in views what it has committed")

	a.must("BEGIN", "UPDATE t SET v = v + 1 WHERE id = 1")
	b.must("UPDATE t SET v = v + 1 WHERE id = 1")
	require.Equal(t, "40001", a.code("COMMIT"))
	require.Equal(t, byte('I'), a.PgConn().TxStatus())
	require.Equal(t, "6", a.row("SELECT v FROM t WHERE id = 1"))

	a.must("BEGIN", "INSERT INTO t VALUES (9, 9)")
	b.must("INSERT INTO t VALUES (9, 10)")
	require.Equal(t, "23505", a.code("COMMIT"))
	require.Equal(t, "10", a.row("SELECT v FROM t WHERE id = 9"))
}

func TestNoUpdateIsLost(t *testing.T) {
	const writers, each = 16, 40
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, bal int)", "INSERT INTO t VALUES (1, 0)", "CREATE MATERIALIZED VIEW m AS SELECT sum(bal) AS s, count(*) AS n FROM t")
	var wg sync.WaitGroup
	errs := make(chan error, writers)
	for w := range writers {
		c := d.connect()
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range each {
				q := "UPDATE t SET bal = bal + 1 WHERE id = 1"
				if (w+i)%2 == 0 {
					q = "INSERT INTO t VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET bal = t.bal + excluded.bal"
				}
				if w%4 == 3 { // blocks: the client repeats what conflicts
					for {
						_, err := c.PgConn().Exec(d.ctx, "BEGIN; "+q+"; COMMIT").ReadAll()
						var pe *pgconn.PgError
						if err == nil {
							break
						}
						if !errors.As(err, &pe) || pe.Code != "40001" {
							errs <- err
							return
						}
					}
					continue
				}
				var err error
				if w%4 == 2 {
					_, err = c.Exec(d.ctx, q) // prepared
				} else {
					_, err = c.PgConn().Exec(d.ctx, q).ReadAll()
				}
				if err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, fmt.Sprint(writers*each), s.row("SELECT bal FROM t"))
	s.must("FLUSH")
	require.Equal(t, fmt.Sprint(writers*each, "|1"), s.row("TABLE m"))
	d.crash()
	require.Equal(t, fmt.Sprint(writers*each), d.connect().row("SELECT bal FROM t"))
}
