package server_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A block of 10 000 statements with a savepoint before each, as psql's ON_ERROR_ROLLBACK and many object mappers do it.
func BenchmarkSavepointPerStatement(b *testing.B) {
	const rows = 10_000
	d := open(b)
	s := d.connect()
	for i := range b.N {
		s.must(fmt.Sprintf("CREATE TABLE t%d (id int PRIMARY KEY, v text)", i))
		require.NoError(b, run(s, "BEGIN"))
		for id := range rows {
			require.NoError(b, run(s, "SAVEPOINT s"))
			require.NoError(b, run(s, fmt.Sprintf("INSERT INTO t%d VALUES (%d, 'some text')", i, id)))
			require.NoError(b, run(s, "RELEASE s"))
		}
		require.NoError(b, run(s, "COMMIT"))
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*rows), "µs/row")
}

func run(s *session, q string) error {
	_, err := s.PgConn().Exec(s.d.ctx, q).ReadAll()
	return err
}
