package pgwire

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shutdown stops srv and waits for its connections, however they are busy.
func shutdown(t testing.TB, srv *Server) {
	ctx, cancel := context.WithTimeout(context.Background(), scriptTimeout)
	defer cancel()
	require.NoError(t, srv.Shutdown(ctx))
}
