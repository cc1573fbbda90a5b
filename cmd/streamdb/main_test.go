package main

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersion(t *testing.T) {
	require.Zero(t, run([]string{"version"}))
	require.Zero(t, run([]string{"--version"}))
	require.NotZero(t, run([]string{"--versions"}))
}

func TestSpareThreads(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	t.Setenv("GOMAXPROCS", "some number")
	require.Equal(t, before, spareThreads())
	require.Equal(t, before, runtime.GOMAXPROCS(0), "who says how many threads there are gets them")
	t.Setenv("GOMAXPROCS", "")
	require.Equal(t, before, spareThreads())
	require.Equal(t, threadsPerCore*before, runtime.GOMAXPROCS(0))
}

// Commands that run in one process, one after the other, do not ask for more threads each time.
func TestThreadsPerProcess(t *testing.T) {
	require.Equal(t, exitOK, run([]string{"version"}))
	n := runtime.GOMAXPROCS(0)
	require.Equal(t, exitOK, run([]string{"version"}))
	require.Equal(t, n, runtime.GOMAXPROCS(0))
}
