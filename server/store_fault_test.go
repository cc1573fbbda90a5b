package server_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/server"
	"github.com/streamdb/streamdb/storage/object/objecttest"
)

// onBucket makes a server keep its checkpoints in a bucket of s.
func onBucket(t *testing.T, s *objecttest.S3Server) func(*server.Config) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	return func(c *server.Config) {
		c.CheckpointDir = s.StoreURL("db")
		c.Settings = map[string]string{"execution.checkpointing.interval": "0"}
	}
}

// closesItsConnections makes the server of a test end the connections that clients keep for later, which goleak would find.
func closesItsConnections(t *testing.T, s *objecttest.S3Server) {
	t.Helper()
	s.Config.SetKeepAlivesEnabled(false)
}

// metric reads one of the server's.
func (d *database) metric(name string) float64 {
	d.t.Helper()
	w := httptest.NewRecorder()
	d.srv.HTTPHandler().ServeHTTP(w, httptest.NewRequestWithContext(d.ctx, http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(w.Body)
	require.NoError(d.t, err)
	m := regexp.MustCompile(`(?m)^streamdb_` + name + ` (\S+)$`).FindSubmatch(body)
	require.NotNil(d.t, m, name)
	v, err := strconv.ParseFloat(string(m[1]), 64)
	require.NoError(d.t, err)
	return v
}

// lockedLog keeps what a server logs.
type lockedLog struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// A store in trouble: jobs stay up and take in what comes, nothing restarts, the checkpoint fails and the next one after the trouble completes. A last checkpoint that
// fails is no failure of anything.
func TestStoreOutage(t *testing.T) {
	checkpointrows.Shows(t, 64, 70, 96)
	for name, fault := range map[string]objecttest.S3Fault{"500": objecttest.S3FailBefore, "applied": objecttest.S3FailAfter} {
		t.Run(name, func(t *testing.T) {
			s3 := objecttest.NewS3Server(t, "bucket")
			closesItsConnections(t, s3)
			var log lockedLog
			d := open(t, onBucket(t, s3), func(c *server.Config) { c.Logger = zerolog.New(&log) })
			c := d.connect()
			c.must("CREATE TABLE t (k int PRIMARY KEY, v int)", "CREATE MATERIALIZED VIEW s AS SELECT count(*) AS n, sum(v) AS v FROM t", "INSERT INTO t VALUES (1, 1)", "CHECKPOINT")
			down := &atomic.Bool{}
			s3.SetFault(func(r *http.Request) objecttest.S3Fault {
				if down.Load() && (fault != objecttest.S3FailAfter || r.Method != http.MethodGet) {
					return fault
				}
				return objecttest.S3Fault{}
			})
			down.Store(true)
			c.must("INSERT INTO t SELECT i, i FROM generate_series(2, 100) AS i")
			if code := c.code("CHECKPOINT"); fault == objecttest.S3FailBefore {
				require.Equal(t, "58030", code)
			}
			require.Equal(t, "100|5050", c.row("SELECT * FROM s"), "the view goes on")
			if fault == objecttest.S3FailBefore {
				require.Contains(t, log.String(), "publishing a checkpoint failed")
				require.NotContains(t, log.String(), `"job":""`)
			}
			require.Equal(t, "RUNNING|", c.row("SELECT state, coalesce(last_error, '') FROM streamdb.jobs WHERE name = 's'"))
			require.Positive(t, d.metric("object_store_retries_total"))
			down.Store(false)
			c.must("INSERT INTO t VALUES (101, 101)", "CHECKPOINT")
			require.Equal(t, "COMPLETED", c.row("SELECT status FROM streamdb.checkpoints ORDER BY checkpoint_id DESC LIMIT 1"))
			require.Equal(t, "0", c.row("SELECT count(*) FROM streamdb.jobs WHERE last_error IS NOT NULL"))

			// The last checkpoint fails; what is committed is in the write-ahead log.
			c.must("INSERT INTO t VALUES (102, 102)")
			if fault == objecttest.S3FailBefore {
				down.Store(true)
			}
			require.NoError(t, d.srv.Close(context.Background()))
			down.Store(false)
			d.start()
			c = d.connect()
			c.must("FLUSH")
			require.Equal(t, "102|5253", c.row("SELECT * FROM s"))
		})
	}
}
