package failpoint

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNilSetIsInactive(t *testing.T) {
	var s *Set
	require.NoError(t, s.Hit("anything"))
	s, err := Parse("  ")
	require.NoError(t, err)
	require.Nil(t, s)
}

func TestErrorsAndCounts(t *testing.T) {
	s, err := Parse("a=error(disk full, really; yes)*2; b=delay(1ms), c=0%kill\nd=100%error()")
	require.NoError(t, err)
	var fe *Error
	require.True(t, errors.As(s.Hit("a"), &fe))
	require.Equal(t, "disk full, really; yes", fe.Message)
	require.Error(t, s.Hit("a"))
	require.NoError(t, s.Hit("a"))
	require.EqualValues(t, 3, s.Hits("a"))
	require.NoError(t, s.Hit("b"))
	require.NoError(t, s.Hit("c"))
	require.ErrorContains(t, s.Hit("d"), "injected error")
	require.NoError(t, s.Hit("unknown"))
}

func TestParseRefuses(t *testing.T) {
	for _, spec := range []string{"x", "=kill", "x=explode", "x=200%kill", "x=error(a", "x=error(a)*z", "x=delay(soon)", "x=delay(1000h)"} {
		_, err := Parse(spec)
		require.Error(t, err, spec)
	}
}

func TestKill(t *testing.T) {
	if os.Getenv("FAILPOINT_TEST_KILL") != "" {
		s, err := Parse("k=kill")
		require.NoError(t, err)
		_ = s.Hit("k")
		os.Exit(0)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKill$")
	cmd.Env = append(os.Environ(), "FAILPOINT_TEST_KILL=1")
	err := cmd.Run()
	var ee *exec.ExitError
	require.True(t, errors.As(err, &ee))
	ws, ok := ee.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.Equal(t, syscall.SIGKILL, ws.Signal())
}
