package main

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestListenOnPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	_, err = listenOn(l.Addr().String(), "--http")
	require.Error(t, err)
	require.Contains(t, describe(err), "address "+l.Addr().String()+" is already in use\n  hint: Stop the program that listens there, or give another address with --http.")
}

// The tools know savepoints as they know the directory of a server.
func TestToolsOverSavepoints(t *testing.T) {
	dir := t.TempDir()
	data, savepoints := filepath.Join(dir, "data"), filepath.Join(dir, "savepoints")
	for _, canonical := range []string{"native", "canonical"} {
		require.Zero(t, run([]string{
			"sql", "--data-dir", data, "-c",
			"CREATE TABLE IF NOT EXISTS t (a int); INSERT INTO t VALUES (1); SELECT streamdb.savepoint('" + savepoints + "', format => '" + canonical + "')",
		}))
	}
	paths, err := filepath.Glob(filepath.Join(savepoints, "savepoint-*"))
	require.NoError(t, err)
	require.Len(t, paths, 2)
	for _, path := range append(paths, filepath.Join(data, "checkpoints")) {
		for _, tool := range []string{"list", "inspect", "verify"} {
			require.Zero(t, run([]string{"checkpoint", tool, path}), "%s %s", tool, path)
		}
	}
	require.Equal(t, exitFailure, run([]string{"checkpoint", "verify", savepoints}), "there is nothing to verify")
}

// Tools over checkpoints do not make the folder that they are to look at.
func TestCheckpointsOfNoFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	for _, url := range []string{dir, "file://" + dir} {
		for _, tool := range []string{"list", "inspect", "verify", "gc"} {
			require.Equal(t, exitFailure, run([]string{"checkpoint", tool, url}), tool)
			require.NoDirExists(t, dir)
		}
	}
}
