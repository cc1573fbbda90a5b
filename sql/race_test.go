package sql_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/sql"
)

// Trees are immutable once parsed, whatever is parsed elsewhere: run it with -race.
func TestTreesAreNotSharedBetweenParses(t *testing.T) {
	const workers, rounds = 8, 200
	texts := []string{
		"INSERT INTO t VALUES (1, 2) ON CONFLICT (id) DO UPDATE SET bal = t.bal + excluded.bal", "UPDATE t SET bal = bal + 1 WHERE id = 1", "SELECT 1",
		"SELECT a + b * 2 FROM t WHERE c = 3 AND d < 4 ORDER BY a LIMIT 5",
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range rounds {
				stmts, err := sql.Parse(texts[(w+i)%len(texts)])
				if err != nil {
					t.Error(err)
					return
				}
				var q *sql.Query
				switch st := stmts[0].(type) {
				case *sql.Query:
					q = st
				case *sql.Update:
					q = st.Query
				default:
					continue
				}
				for range 20 {
					q.Pos(q.Expr())
				}
			}
		}()
	}
	wg.Wait()
	require.False(t, t.Failed())
}
