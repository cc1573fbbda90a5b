package streamdb_test

import (
	"context"
	"flag"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb"
	"github.com/streamdb/streamdb/internal/slt"
)

// sltMemory is enough for each of many small databases that are open at the same time.
const sltMemory = 64 << 20 // bytes

var sltModes = flag.String("slt.modes", "all", "modes in which TestSLT runs the files of testdata/slt")

// sltServer opens the databases of test files.
func sltServer() slt.NewServer {
	return slt.Embedded(func(ctx context.Context, dir string, o slt.ServerOptions) (slt.Database, error) {
		opts := streamdb.Options{DataDir: dir, MemoryOnly: !o.Durable, Memory: sltMemory, Settings: map[string]string{"execution.checkpointing.interval": "0"}}
		if o.ChunkRows > 0 {
			opts.Settings["chunk_rows"] = strconv.Itoa(o.ChunkRows)
		}
		return streamdb.Open(ctx, opts)
	})
}

// TestSLT runs every file in every mode, each on a database of its own.
func TestSLT(t *testing.T) {
	files, err := slt.Expand([]string{filepath.Join("testdata", "slt"), filepath.Join("testdata", "nexmark")})
	require.NoError(t, err)
	modes, err := slt.ParseModes(*sltModes)
	require.NoError(t, err)
	newServer := sltServer()
	for _, m := range modes {
		t.Run(m.Name, func(t *testing.T) {
			var mu sync.Mutex
			var sum slt.Summary
			t.Run("files", func(t *testing.T) {
				for _, f := range files {
					t.Run(strings.TrimSuffix(filepath.Base(f), ".slt"), func(t *testing.T) {
						t.Parallel()
						r := slt.RunFile(context.Background(), f, m, newServer)
						mu.Lock()
						sum.Add(r)
						mu.Unlock()
						if r.Failed > 0 {
							t.Errorf("%s", r)
						}
					})
				}
			})
			t.Logf("%s: %d views compared, %d queries cannot be views, %d restarts\n%s", m.Name, sum.Views, sum.NotMaterializable, sum.Restarts, sum)
		})
	}
}
