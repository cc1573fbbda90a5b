//go:build e2e

package e2e

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestResidentMemory: with more state than memory what is resident stays near --memory: an eighth more for the heap, and the pages of the program.
func TestResidentMemory(t *testing.T) {
	const memory, program = 256 << 20, 60 << 20
	code, out := command(t, []string{"GOMEMLIMIT=", "GOGC="}, "bench", "memory", "--memory", "256MiB", "--groups", "4000000", "--json")
	require.Zero(t, code, out)
	var r struct {
		PeakRSS    int64 `json:"peak_rss_bytes"`
		StateBytes int64 `json:"state_bytes"`
	}
	require.NoError(t, json.Unmarshal([]byte(out), &r), out)
	t.Logf("%d MiB resident", r.PeakRSS>>20)
	require.Less(t, r.PeakRSS, int64(memory+memory/8+program))
}
