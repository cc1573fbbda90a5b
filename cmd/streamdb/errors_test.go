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
