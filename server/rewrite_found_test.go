package server_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Columns of enum types get their defaults like all others, in rows that are there too.
func TestAddColumnOfEnum(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TYPE mood AS ENUM ('sad', 'happy')", "CREATE TABLE h (k int PRIMARY KEY)", "ALTER TABLE h ADD a mood DEFAULT 'sad'", "INSERT INTO h VALUES (1)",
		"ALTER TABLE h ADD b mood DEFAULT 'happy' NOT NULL", "ALTER TABLE h ADD c mood[] DEFAULT '{sad,happy}', ADD d mood DEFAULT enum_last(NULL::mood)", "INSERT INTO h VALUES (2)")
	want := []string{"1|sad|happy|{sad,happy}|happy", "2|sad|happy|{sad,happy}|happy"}
	require.Equal(t, want, s.rows("SELECT * FROM h ORDER BY k"))
	d.crash()
	require.Equal(t, want, d.connect().rows("SELECT * FROM h ORDER BY k"))
}

// A primary key that came later makes columns follow from it as one that was there from the start.
func TestColumnsFollowFromALaterKey(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE x (a int, b text)", "INSERT INTO x VALUES (1, 'q')")
	s.fails("SELECT a, b FROM x GROUP BY a", "42803", `column "x.b" must appear in the GROUP BY clause or be used in an aggregate function`)
	s.must("ALTER TABLE x ADD PRIMARY KEY (a)")
	require.Equal(t, []string{"1|q"}, s.rows("SELECT a, b FROM x GROUP BY a"))
	s.must("CREATE MATERIALIZED VIEW v AS SELECT x.a, b, count(*) FROM x GROUP BY x.a")
	require.Equal(t, []string{"1|q|1"}, s.rows("TABLE v"))
	s.must("CREATE TABLE y (a int PRIMARY KEY, b text)", "ALTER TABLE y DROP CONSTRAINT y_pkey")
	s.fails("SELECT a, b FROM y GROUP BY a", "42803", "")
}

// A statement outside of a block does not notice that a default it was planned with is gone by now.
func TestInsertWhileDefaultsComeAndGo(t *testing.T) {
	d := open(t)
	s, other := d.connect(), d.connect()
	s.must("CREATE TABLE r (k int PRIMARY KEY, n int)")
	const n = 400
	var ddl sync.WaitGroup
	ddl.Add(1)
	go func() {
		defer ddl.Done()
		for range 60 {
			other.must("ALTER TABLE r ADD s serial", "ALTER TABLE r DROP s")
		}
	}()
	for i := range n {
		s.must(fmt.Sprintf("INSERT INTO r (k, n) VALUES (%d, 1)", i))
	}
	ddl.Wait()
	require.Equal(t, []string{fmt.Sprint(n)}, s.rows("SELECT count(*) FROM r"))
}
