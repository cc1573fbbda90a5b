package server_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Nothing of a large line stays with the connection that has sent it, or with the server once the row is gone.
func TestALargeLineLeavesNothing(t *testing.T) {
	const size = 48 << 20
	d := open(t)
	s := d.connect()
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	s.must("CREATE TABLE t (id int PRIMARY KEY, v text)")
	before := heap()
	line := "1\t" + strings.Repeat("x", size) + "\n"
	require.NoError(t, s.copyFrom("COPY t FROM STDIN", strings.NewReader(line)))
	line = ""
	t.Logf("after COPY %d MiB", (heap()-before)>>20)
	s.must("DELETE FROM t", "CHECKPOINT", "INSERT INTO t VALUES (2, 'x')", "INSERT INTO t VALUES (3, 'x')", "INSERT INTO t VALUES (4, 'x')")
	after := heap() - before
	t.Logf("after DELETE %d MiB", after>>20)
	require.Less(t, after, int64(size/2))
}
