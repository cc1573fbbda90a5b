package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/storage/object"
)

// TestAStartIsPatientOnce: what views behind need is tried again for a time that all of it shares, and only while trying may help.
func TestAStartIsPatientOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, tries := time.Now(), 0
		r := &recall{s: &Server{log: zerolog.Nop()}}
		fetch := func(err error, times int) func() error {
			tries = 0
			return func() error {
				if tries++; tries > times {
					return nil
				}
				return err
			}
		}
		outage, refused := &object.Error{Op: "get", Retryable: true}, &object.Error{Op: "get"}
		require.ErrorIs(t, r.patiently(t.Context(), fetch(refused, 1)), refused)
		require.Equal(t, 1, tries)
		require.Zero(t, time.Since(began))
		time.Sleep(time.Hour) // restoring others takes no patience
		began = time.Now()
		require.NoError(t, r.patiently(t.Context(), fetch(outage, 3)))
		require.Equal(t, recallFirst+2*recallFirst+4*recallFirst, time.Since(began))
		require.ErrorIs(t, r.patiently(t.Context(), fetch(outage, 1000)), outage)
		require.LessOrEqual(t, time.Since(began), recallPatience)
		require.Greater(t, time.Since(began), recallPatience-recallLast)
		require.Less(t, tries, 30)
		require.ErrorIs(t, r.patiently(t.Context(), fetch(outage, 1000)), outage)
		require.LessOrEqual(t, time.Since(began), recallPatience)

		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("shut down"))
		require.ErrorIs(t, (&recall{s: r.s}).patiently(ctx, fetch(outage, 1000)), context.Canceled)
		require.Equal(t, 1, tries)
	})
}
