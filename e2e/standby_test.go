//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
)

// Times of the tests of leaders and standbys.
const (
	lease      = 2 * time.Second
	restoreFor = 4 * time.Second // of the small database of these tests, on a busy machine
	zombieFor  = 3 * lease
)

// member is one of the servers on a checkpoint directory.
func member(t *testing.T, name, store string, env []string) serveOptions {
	t.Helper()
	return serveOptions{
		dataDir: filepath.Join(t.TempDir(), name), checkpointDir: store, env: env, listen: freeAddr(t), http: freeAddr(t), args: []string{"--standby"},
		settings: []string{"high-availability.leader-election.lease-duration=" + lease.String(), "execution.checkpointing.interval=300ms"},
	}
}

// standby starts a member that has to wait, and makes sure that it says so.
func standby(t *testing.T, o serveOptions, leader *process) (*process, <-chan string) {
	t.Helper()
	p, ready, err := begin(o)
	require.NoError(t, err)
	t.Cleanup(p.kill)
	p.addr = o.listen
	var refused *pgconn.PgError
	require.True(t, eventually(startTimeout, func() bool {
		_, err := p.connect(t.Context())
		var pe *pgconn.PgError
		if errors.As(err, &pe) && strings.Contains(pe.Detail, leader.addr) {
			refused = pe
		}
		return refused != nil
	}), "%s", p.log)
	require.Equal(t, "57P03", refused.Code)
	status, _ := get(t, o, "/healthz")
	require.Equal(t, http.StatusOK, status)
	status, body := get(t, o, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, leader.addr)
	findsLeader(t, o.listen, leader.addr)
	return p, ready
}

// findsLeader: psql that is given all servers goes on from a standby to the leader.
func findsLeader(t *testing.T, addrs ...string) {
	t.Helper()
	psql, err := exec.LookPath("psql")
	if err != nil {
		return
	}
	var hosts, ports []string
	for _, addr := range addrs {
		host, port, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		hosts, ports = append(hosts, host), append(ports, port)
	}
	out, err := exec.Command(psql, "-X", "-At", "-c", "SELECT 1", fmt.Sprintf("host=%s port=%s user=streamdb dbname=streamdb", strings.Join(hosts, ","), strings.Join(ports, ","))).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "1", strings.TrimSpace(string(out)))
}

func get(t *testing.T, o serveOptions, path string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + o.http + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// inserter inserts rows through whatever server takes them and knows which were acknowledged.
type inserter struct {
	addrs []string
	stop  chan struct{}
	wg    sync.WaitGroup
	acked []int
}

func (w *inserter) run(t *testing.T) {
	w.wg.Go(func() {
		var conn *pgconn.PgConn
		for n := 1; ; n++ {
			select {
			case <-w.stop:
				if conn != nil {
					_ = conn.Close(t.Context())
				}
				return
			default:
			}
			for _, addr := range w.addrs {
				if conn != nil {
					break
				}
				if c, err := (&process{addr: addr}).connect(t.Context()); err == nil {
					if _, err := query(t.Context(), c, "SET synchronous_commit = remote"); err == nil {
						conn = c
					}
				}
			}
			if conn == nil {
				pause(pollEvery)
				continue
			}
			if _, err := query(t.Context(), conn, fmt.Sprintf("INSERT INTO t VALUES (%d, %d)", n, n%7)); err != nil {
				_ = conn.Close(t.Context())
				conn = nil
				continue
			}
			w.acked = append(w.acked, n)
		}
	})
}

// TestFailover kills the leader while a client writes: the standby takes over within two leases, every row that was acknowledged is there once, views agree with tables, and the
// killed server comes back as a standby that takes over at once when the other is stopped in good order.
func TestFailover(t *testing.T) {
	for _, kind := range []string{"folder", "bucket"} {
		t.Run(kind, func(t *testing.T) {
			checkpointrows.Shows(t, 45, 126, 127)
			store, env := "file://"+t.TempDir(), []string(nil)
			if kind == "bucket" {
				g := startGateway(t)
				store, env = g.url("ha"), g.env
			}
			ao, bo := member(t, "a", store, env), member(t, "b", store, env)
			a := serve(t, ao)
			c := a.client(t)
			c.exec(`CREATE TABLE t (k int, g int)`)
			c.exec(`CREATE MATERIALIZED VIEW v AS SELECT g, count(*) AS n, sum(k) AS s FROM t GROUP BY g`)
			b, ready := standby(t, bo, a)
			w := &inserter{addrs: []string{ao.listen, bo.listen}, stop: make(chan struct{})}
			w.run(t)
			c.wait(`SELECT (count(*) > 5)::text FROM t`, "true")
			a.kill()
			died := time.Now()
			require.NoError(t, b.awaitReady(ready))
			took := time.Since(died)
			t.Logf("ready %d ms after the leader was killed", took.Milliseconds())
			require.Less(t, took, 2*lease+restoreFor)
			c = b.client(t)
			before := c.number(`SELECT count(*) FROM t`)
			c.wait(fmt.Sprintf(`SELECT (count(*) > %d)::text FROM t`, before+5), "true")
			close(w.stop)
			w.wg.Wait()
			check := func(c *client) {
				c.exec(`FLUSH`)
				require.Equal(t, c.value(`SELECT count(*) FROM t`), c.value(`SELECT count(DISTINCT k) FROM t`), "no row twice")
				ids := make([]string, len(w.acked))
				for i, n := range w.acked {
					ids[i] = fmt.Sprint(n)
				}
				require.Equal(t, fmt.Sprint(len(ids)), c.value(`SELECT count(*) FROM t WHERE k IN (`+strings.Join(ids, ",")+`)`), "what was acknowledged is there")
				c.sameRows("v", `SELECT g, count(*), sum(k) FROM t GROUP BY g`)
			}
			check(c)

			a, ready = standby(t, ao, b)
			b.stop(t)
			died = time.Now()
			require.NoError(t, a.awaitReady(ready))
			t.Logf("ready %d ms after the leader was stopped", time.Since(died).Milliseconds())
			check(a.client(t))
			a.stop(t)
		})
	}
}

// TestZombie stops the leader's process for longer than its lease and lets it go on when another has taken over: it acknowledges nothing any more and ends.
func TestZombie(t *testing.T) {
	checkpointrows.Shows(t, 129)
	store := "file://" + t.TempDir()
	ao, bo := member(t, "a", store, nil), member(t, "b", store, nil)
	a := serve(t, ao)
	old := a.client(t)
	old.exec(`CREATE TABLE t (k int PRIMARY KEY)`)
	old.exec(`INSERT INTO t VALUES (1)`)
	old.exec(`CHECKPOINT`)
	b, ready := standby(t, bo, a)
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGSTOP))
	stopped := time.Now()
	require.NoError(t, b.awaitReady(ready))
	t.Logf("ready %d ms after the leader was stopped", time.Since(stopped).Milliseconds())
	c := b.client(t)
	c.exec(`INSERT INTO t VALUES (2)`)
	c.exec(`CHECKPOINT`)
	pause(max(0, zombieFor-time.Since(stopped)))
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGCONT))
	_, err := old.try(`INSERT INTO t VALUES (3)`)
	require.Error(t, err, "nothing is acknowledged any more")
	require.True(t, a.endsWithin(restoreFor+lease), "%s", a.log)
	require.Equal(t, 1, a.cmd.ProcessState.ExitCode())
	require.Contains(t, a.log.String(), "is now led by")
	c.exec(`INSERT INTO t VALUES (4)`)
	c.exec(`CHECKPOINT`)
	require.Equal(t, "1 2 4", strings.Join(strings.Fields(lines(c.exec(`SELECT k FROM t ORDER BY k`))), " "))
	b.stop(t)
}
