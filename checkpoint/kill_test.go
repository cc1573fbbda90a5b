package checkpoint

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/storage/object"
)

// The variables by which TestKill tells its victim what to do.
const (
	victimDir   = "STREAMDB_TEST_VICTIM_DIR"
	victimPoint = "STREAMDB_TEST_VICTIM_POINT"
)

// maxVictimCheckpoints ends a victim that no failpoint kills.
const maxVictimCheckpoints = 40

// TestVictim is the process that TestKill kills: it goes on from what is durable and reports every completed checkpoint.
func TestVictim(t *testing.T) {
	dir := os.Getenv(victimDir)
	if dir == "" {
		t.Skip("only a part of TestKill")
	}
	points, err := failpoint.Parse(os.Getenv(victimPoint) + "=25%kill")
	require.NoError(t, err)
	store, err := object.Open(context.Background(), dir)
	require.NoError(t, err)
	a, b := job(1), job(2, 1)
	r := newRig(t, manual(), store, points, a, b)
	m, err := r.c.Claim(context.Background())
	require.NoError(t, err)
	if m != nil {
		for _, j := range []*scripted{a, b} {
			j.version, err = strconv.Atoi(string(m.Jobs[j.id].Positions["src/0"]))
			require.NoError(t, err)
		}
	}
	r.run()
	for range maxVictimCheckpoints {
		id, err := r.checkpoint()
		require.NoError(t, err)
		fmt.Printf("completed %d %d\n", id, a.version)
	}
	require.NoError(t, r.end())
}

// A kill -9 at every step around the commit: what was reported stays, ids rise, the next server starts, and nothing is left over.
func TestKill(t *testing.T) {
	for _, point := range []string{
		"checkpoint/after-claim", "checkpoint/before-upload", "checkpoint/after-upload", "checkpoint/after-manifest", "checkpoint/after-head",
		"checkpoint/before-notify", "checkpoint/gc",
	} {
		t.Run(strings.TrimPrefix(point, "checkpoint/"), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			lastID, kills := uint64(0), 0
			for run := 0; run < 60 && kills < 4; run++ {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestVictim$")
				cmd.Env = append(os.Environ(), victimDir+"="+dir, victimPoint+"="+point)
				out, err := cmd.Output()
				cancel()
				var exit *exec.ExitError
				if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
					kills++
				} else {
					require.NoError(t, err, string(out))
				}
				version := uint64(0)
				for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
					var id, v uint64
					if _, err := fmt.Sscanf(lines.Text(), "completed %d %d", &id, &v); err == nil {
						require.Greater(t, id, lastID)
						lastID, version = id, v
					}
				}
				store, err := object.Open(context.Background(), dir)
				require.NoError(t, err)
				if version == 0 {
					continue
				}
				m, err := Load(context.Background(), store)
				require.NoError(t, err)
				got, err := strconv.ParseUint(string(m.Jobs[1].Positions["src/0"]), 10, 64)
				require.NoError(t, err)
				require.GreaterOrEqual(t, got, version, "a reported checkpoint is lost")
				require.LessOrEqual(t, got, version+1)
				durable(t, store)
			}
			require.Positive(t, kills)
			store, err := object.Open(context.Background(), dir)
			require.NoError(t, err)
			p := newPublisher(store, "last", zerolog.Nop(), nil)
			_, _, err = p.claim(context.Background())
			require.NoError(t, err)
			require.NoError(t, p.sweep(context.Background()))
			requireTidy(t, store)
		})
	}
}
