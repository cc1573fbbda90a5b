//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestResidentMemory: with more state than memory what is resident stays near --memory: an eighth more for the heap, and the pages of the program and of what it writes. The
// binary is one without the contracts of operators, which remember rows.
func TestResidentMemory(t *testing.T) {
	const memory, program = 256 << 20, 90 << 20
	binary := filepath.Join(t.TempDir(), "streamdb")
	require.NoError(t, build(binary))
	bench := exec.Command(binary, "bench", "memory", "--memory", "256MiB", "--groups", "4000000", "--join-rows", "0", "--json")
	bench.Env = append(os.Environ(), "GOMEMLIMIT=", "GOGC=")
	out, err := bench.Output()
	require.NoError(t, err, "%s", out)
	var r struct {
		PeakRSS int64 `json:"peak_rss_bytes"`
	}
	require.NoError(t, json.Unmarshal(out, &r), "%s", out)
	t.Logf("%d MiB resident", r.PeakRSS>>20)
	require.Less(t, r.PeakRSS, int64(memory+memory/8+program))
}
