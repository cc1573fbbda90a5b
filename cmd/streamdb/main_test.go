package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVersion(t *testing.T) {
	require.Zero(t, run([]string{"version"}))
	require.Zero(t, run([]string{"--version"}))
	require.NotZero(t, run([]string{"--versions"}))
}
