package state_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/state"
)

// TestCompat opens snapshots that earlier versions wrote. STATE_WRITE_COMPAT=1 writes samples of the present format, for keeping
// when the format changes.
func TestCompat(t *testing.T) {
	if os.Getenv("STATE_WRITE_COMPAT") != "" {
		writeCompat(t)
	}
	files, err := filepath.Glob("testdata/compat/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		var sn state.Snapshot
		require.NoError(t, json.Unmarshal(text, &sn))
		for _, o := range []state.Options{
			{Backend: state.BackendMemory}, {Backend: state.BackendPebble}, {Backend: state.BackendPebble, Budget: state.NewBudget(1)},
		} {
			o.Dir = t.TempDir()
			j := open(t, o, &sn)
			j.check(0, 50, "new")
			j.check(60, 300, "old")
			for i := 50; i < 60; i++ {
				_, ok, err := j.part.Get(uint16(i%groups), []byte{'0', '0', '0', '0', byte('0' + i/10), byte('0' + i%10)})
				require.NoError(t, err)
				require.False(t, ok)
			}
		}
	}
}

func writeCompat(t *testing.T) {
	for name, o := range map[string]state.Options{
		"format1-deltas.json": {},
		"format1-base.json":   {Policy: state.Policy{MinRenewBytes: 1, IngestMinBytes: 1}, Budget: state.NewBudget(1000)},
		"format1-memory.json": {Backend: state.BackendMemory},
	} {
		o.Dir = t.TempDir()
		j := open(t, o, nil)
		j.fill(0, 300, "old")
		j.checkpoint()
		j.fill(0, 50, "new")
		for i := 50; i < 60; i++ {
			j.part.Delete(uint16(i%groups), []byte{'0', '0', '0', '0', byte('0' + i/10), byte('0' + i%10)})
		}
		sn := j.checkpoint()
		for _, hs := range [][]state.Handle{sn.Base, sn.Deltas} {
			for i := range hs {
				if hs[i].Path != "" {
					text, err := os.ReadFile(hs[i].Path)
					require.NoError(t, err)
					hs[i].Inline, hs[i].Path = text, ""
				}
			}
		}
		text, err := json.MarshalIndent(sn, "", " ")
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll("testdata/compat", 0o755))
		require.NoError(t, os.WriteFile(filepath.Join("testdata/compat", name), text, 0o644))
	}
}
