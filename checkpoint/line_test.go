package checkpoint

import (
	"context"
	"fmt"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/storage/object"
)

// HEAD has the starts that led to it, whatever becomes of what the database was restored from, and so have savepoints.
func TestLineOfClaims(t *testing.T) {
	ctx, root := context.Background(), t.TempDir()
	start := func(dir, claim string) *Coordinator {
		store, err := object.Open(ctx, dir)
		require.NoError(t, err)
		c, err := New(manual(), store, Env{Claim: claim, Log: zerolog.Nop(), Scratch: t.TempDir()})
		require.NoError(t, err)
		_, err = c.Claim(ctx)
		require.NoError(t, err)
		return c
	}
	publish := func(c *Coordinator) { publishState(t, c.pub, pebbleState(t, t.TempDir(), 1, 1)) }
	first := root + "/first"
	publish(start(first, "a"))
	c := start(first, "b")
	require.Equal(t, []string{"a", "b"}, c.Line())
	path, err := c.pub.writeSavepoint(ctx, &SavepointSpec{Target: root + "/savepoints"}, []*JobState{pebbleState(t, t.TempDir(), 3, 1)}, 30, 3, 5, []byte("catalog"))
	require.NoError(t, err)
	for from, want := range map[string][]string{path: {"a", "b"}, first: {"a", "b"}, first + "/" + c.pub.latest().Object: {"a", "b"}} {
		o, err := OpenPath(ctx, from)
		require.NoError(t, err)
		require.Equal(t, want, o.Line, from)
	}
	start(first, "c")
	o, err := OpenPath(ctx, path)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, o.Line, "as of when it was made")

	second := root + "/second"
	require.Equal(t, []string{"x"}, start(second, "x").Line()) // and crashes before its first checkpoint
	c = start(second, "y")
	require.NoError(t, c.Descend(ctx, o.Line))
	require.Equal(t, []string{"a", "b", "x", "y"}, c.Line())
	publish(c)
	require.Equal(t, []string{"a", "b", "x", "y", "z"}, start(second, "z").Line())
	for i := range maxLine {
		c = start(second, fmt.Sprint(i))
	}
	require.Len(t, c.Line(), maxLine)
	require.Equal(t, []string{"62", "63"}, c.Line()[maxLine-2:])

	// One of a version without it has what HEAD told then.
	require.Equal(t, []string{"o", "p"}, (&head{Claim: "p", ClaimedFrom: "o"}).line())
	require.Empty(t, (&head{}).line())
}
