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
