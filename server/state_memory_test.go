package server_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/server"
)

// Views with more state than there is memory share one cache of blocks and one budget: however many they are, what they hold stays within the limits that follow from
// --memory, and what one has read of its files is found again in the cache.
func TestStateOfAllViewsSharesMemory(t *testing.T) {
	checkpointrows.Shows(t, 84)
	d := open(t, func(c *server.Config) { c.Memory = 16 << 20 })
	limits := d.metric("state_memory_limit_bytes") + d.metric("state_cache_limit_bytes")
	require.LessOrEqual(t, limits, float64(16<<20))
	s := d.connect()
	s.must("CREATE TABLE t (k int PRIMARY KEY, v text)")
	for _, name := range []string{"a", "b", "c", "d"} {
		s.must("CREATE MATERIALIZED VIEW " + name + " AS SELECT v, count(*) AS n, max(k) AS k FROM t GROUP BY v")
	}
	within := func(when string) {
		t.Helper()
		require.LessOrEqual(t, d.metric("state_memory_bytes"), d.metric("state_memory_limit_bytes"), when)
		require.LessOrEqual(t, d.metric("state_cache_bytes"), d.metric("state_cache_limit_bytes"), when)
	}
	const rows = 40_000
	most := 0.0
	for at := 0; at < rows; at += rows / 40 {
		s.must(fmt.Sprintf("INSERT INTO t SELECT g, md5(g::text) || repeat('x', 60) FROM generate_series(%d, %d) g", at+1, at+rows/40), "CHECKPOINT")
		within("while rows come")
		most = max(most, d.metric("state_memory_bytes"))
	}
	s.must(fmt.Sprintf("INSERT INTO t SELECT g + %d, md5(g::text) || repeat('x', 60) FROM generate_series(1, %d) g", rows, rows/40), "CHECKPOINT") // groups that are in files by now
	require.Positive(t, most)
	require.Greater(t, 4*rows*100.0, limits, "there is more state than memory")
	hits := d.metric("state_cache_hits_total")
	require.Positive(t, hits+d.metric("state_cache_misses_total"))
	for _, name := range []string{"a", "b", "c", "d"} {
		require.Equal(t, fmt.Sprintf("%d|%d", rows, rows+rows/40), s.row("SELECT count(*), sum(n) FROM "+name))
	}
	require.Greater(t, d.metric("state_cache_hits_total"), hits)
	within("at the end")
}
