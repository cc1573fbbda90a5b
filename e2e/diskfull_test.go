//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
)

// Sizes of the tests with a full disk.
const (
	diskBytes  = 48 << 20
	mostFilled = 60 // statements that fill it
)

// smallDisk mounts a file system of its own.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", diskBytes)); err != nil {
		t.Skipf("a file system of its own needs privileges: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// TestDiskFull fills the disk under the checkpoints, and under the data directory: errors name the place, reads go on, and when there is space again so do checkpoints and writes; a kill at
// that point loses nothing.
func TestDiskFull(t *testing.T) {
	for _, where := range []string{"checkpoints", "data"} {
		t.Run(where, func(t *testing.T) {
			checkpointrows.Shows(t, 69)
			disk := smallDisk(t)
			o := serveOptions{dataDir: filepath.Join(t.TempDir(), "data"), checkpointDir: "file://" + filepath.Join(disk, "cp"), settings: []string{"execution.checkpointing.interval=0"}}
			if where == "data" {
				o.dataDir, o.checkpointDir = filepath.Join(disk, "data"), "file://"+t.TempDir()
			}
			p := serve(t, o)
			c := p.client(t)
			c.exec(`CREATE TABLE t (k int PRIMARY KEY, v text)`)
			c.exec(`CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n, max(k) AS k FROM t`)
			c.exec(`INSERT INTO t VALUES (0, 'first')`)
			c.exec(`CHECKPOINT`)
			ballast := filepath.Join(disk, "ballast")
			require.NoError(t, fill(ballast))
			acked := 0
			var failure error
			for n := 1; n <= mostFilled && failure == nil; n++ {
				_, failure = c.try(fmt.Sprintf(`INSERT INTO t SELECT %d, string_agg(md5((i * %d)::text), '') FROM generate_series(1, 4000) AS i`, n, n))
				if failure == nil {
					acked = n
					_, failure = c.try(`CHECKPOINT`)
				}
			}
			require.Error(t, failure, "the disk is full")
			sqlstate, message := code(failure)
			t.Logf("%s %s", sqlstate, message)
			if p.alive() {
				require.Equal(t, "53100", sqlstate, message)
				require.True(t, strings.Contains(message, disk) || strings.Contains(p.log.String(), disk), "%s\n%s", message, p.log)
				require.Equal(t, fmt.Sprint(acked), c.value(`SELECT max(k) FROM t`), "reads are served")
			}
			require.NoError(t, os.Remove(ballast))
			if p.alive() {
				done := eventually(10*time.Second, func() bool {
					_, err := c.try(`CHECKPOINT`)
					return err == nil || !p.alive()
				})
				require.True(t, done, "%s", p.log)
			}
			p.kill()
			p = serve(t, o)
			c = p.client(t)
			c.exec(`FLUSH`)
			got := c.number(`SELECT max(k) FROM t`)
			require.GreaterOrEqual(t, got, int64(acked))
			require.Equal(t, fmt.Sprintf("%d|%d", got+1, got), lines(c.exec(`SELECT * FROM n`)))
			c.exec(`INSERT INTO t VALUES (1000, 'again')`)
			c.exec(`CHECKPOINT`)
			p.stop(t)
			_, out := command(t, nil, "checkpoint", "verify", o.checkpointDir)
			require.Contains(t, out, ", 0 problems")
		})
	}
}

// fill writes a file until nothing more fits.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for block := make([]byte, 1<<20); err == nil && len(block) >= 4096; {
		if _, err = f.Write(block); err != nil {
			err, block = nil, block[:len(block)/2]
		}
	}
	return f.Close()
}
