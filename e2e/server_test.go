//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// Limits of the harness.
const (
	startTimeout     = 60 * time.Second // a restart restores state; the machine may be busy
	statementTimeout = 90 * time.Second
	stopTimeout      = 60 * time.Second
	keptLogBytes     = 64 << 10
	pollEvery        = 20 * time.Millisecond
)

var binary string // set once by TestMain

func TestMain(m *testing.M) {
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	binary = os.Getenv("STREAMDB_E2E_BINARY")
	if binary == "" {
		dir, err := os.MkdirTemp("", "streamdb-e2e")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "streamdb")
		if err := build(binary, "-tags", "invariants"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	if v := violations.String(); v != "" {
		fmt.Fprintf(os.Stderr, "servers ended by broken invariants:\n%s", v)
		return max(code, 1)
	}
	return code
}

// build makes a binary of the product.
func build(binary string, flags ...string) error {
	c := exec.Command("go", slices.Concat([]string{"build", "-trimpath", "-o", binary}, flags, []string{"../cmd/streamdb"})...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

// violations are the ends of the logs of servers that a broken invariant has stopped. Tests that kill servers would not notice.
var violations tail

// serveOptions are the flags of one server.
type serveOptions struct {
	dataDir, checkpointDir string
	memory                 string
	failpoints             string
	settings               []string // name=value
	env                    []string
	args                   []string // further flags
	listen, http           string   // addresses; "": any, and none
}

// process is a running server.
type process struct {
	cmd  *exec.Cmd
	addr string
	done chan struct{} // closed when the process has ended
	err  error         // of Wait, after done
	log  *tail
}

// tail keeps the end of a log.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (l *tail) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, b...)
	if n := len(l.buf) - keptLogBytes; n > 0 {
		l.buf = l.buf[n:]
	}
	return len(b), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf)
}

// launch starts a server and waits until it is ready, or has ended: then the error says so and the process is returned all the same.
func launch(o serveOptions) (*process, error) {
	p, ready, err := begin(o)
	if err != nil {
		return nil, err
	}
	return p, p.awaitReady(ready)
}

// begin starts a server. The channel has its address when it is ready.
func begin(o serveOptions) (*process, <-chan string, error) {
	args := []string{"--log-format", "json", "serve", "--listen", cmp.Or(o.listen, "127.0.0.1:0"), "--http", o.http, "--data-dir", o.dataDir}
	if o.checkpointDir != "" {
		args = append(args, "--checkpoint-dir", o.checkpointDir)
	}
	if o.memory != "" {
		args = append(args, "--memory", o.memory)
	}
	if o.failpoints != "" {
		args = append(args, "--failpoints", o.failpoints)
	}
	for _, s := range o.settings {
		args = append(args, "--set", s)
	}
	args = append(args, o.args...)
	p := &process{cmd: exec.Command(binary, args...), done: make(chan struct{}), log: &tail{}}
	p.cmd.Env = append(os.Environ(), o.env...)
	out, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, nil, err
	}
	ready := make(chan string, 1)
	go func() {
		defer close(p.done)
		r := bufio.NewReader(io.TeeReader(out, p.log))
		for {
			line, err := r.ReadBytes('\n')
			var entry struct{ Message, Listen string }
			if json.Unmarshal(line, &entry) == nil && entry.Listen != "" {
				ready <- entry.Listen
			}
			if err != nil {
				break
			}
		}
		p.err = p.cmd.Wait()
		if l := p.log.String(); strings.Contains(l, "invariants.Violation(") {
			_, _ = violations.Write([]byte(l)) // never fails
		}
	}()
	return p, ready, nil
}

func (p *process) awaitReady(ready <-chan string) error {
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case p.addr = <-ready:
		return nil
	case <-p.done:
		return fmt.Errorf("server ended before it was ready: %w\n%s", errors.Join(p.err, errEnded), p.log)
	case <-timeout.C:
		p.kill()
		return fmt.Errorf("server not ready in %s\n%s", startTimeout, p.log)
	}
}

var errEnded = errors.New("process ended")

// serve starts a server that has to become ready; it is killed at the test's end.
func serve(t *testing.T, o serveOptions) *process {
	t.Helper()
	p, err := launch(o)
	require.NoError(t, err)
	t.Cleanup(p.kill)
	return p
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails when the process has ended, which is what is wanted
	<-p.done
}

// stop is a clean stop.
func (p *process) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.True(t, p.endsWithin(stopTimeout), "server did not stop\n%s", p.log)
	require.NoError(t, p.err, "%s", p.log)
}

func (p *process) endsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}

func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// connect opens a connection.
func (p *process) connect(ctx context.Context) (*pgconn.PgConn, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return pgconn.Connect(ctx, "postgres://streamdb@"+p.addr+"/streamdb?sslmode=disable")
}

// client is a connection of a test.
type client struct {
	t    *testing.T
	conn *pgconn.PgConn
	p    *process
}

func (p *process) client(t *testing.T) *client {
	t.Helper()
	conn, err := p.connect(t.Context())
	require.NoError(t, err, "%s", p.log)
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // the server may have been killed
	return &client{t: t, conn: conn, p: p}
}

// try runs statements.
func (c *client) try(sql string) ([][]string, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), statementTimeout)
	defer cancel()
	return query(ctx, c.conn, sql)
}

// exec runs statements that have to succeed and returns the rows of the last one in text form.
func (c *client) exec(sql string) [][]string {
	c.t.Helper()
	rows, err := c.try(sql)
	require.NoError(c.t, err, "%s\nserver: %s", sql, c.p.log)
	return rows
}

// flush makes all that is committed visible. When that does not end it tells where the jobs are.
func (c *client) flush() {
	c.t.Helper()
	if _, err := c.try(`FLUSH`); err != nil {
		other, log := c.p.client(c.t), c.p.log.String()
		for _, sql := range []string{`SELECT * FROM streamdb.jobs`, `SELECT * FROM streamdb.checkpoints ORDER BY checkpoint_id DESC LIMIT 40`} {
			log += "\n" + lines(other.exec(sql))
		}
		require.NoError(c.t, err, log)
	}
}

// value returns the only value of a query.
func (c *client) value(sql string) string {
	c.t.Helper()
	rows := c.exec(sql)
	require.Len(c.t, rows, 1, sql)
	return rows[0][0]
}

func (c *client) number(sql string) int64 {
	c.t.Helper()
	n, err := strconv.ParseInt(c.value(sql), 10, 64)
	require.NoError(c.t, err)
	return n
}

// wait repeats a query until its only value is want.
func (c *client) wait(sql, want string) {
	c.t.Helper()
	got := ""
	require.True(c.t, eventually(statementTimeout, func() bool {
		got = c.value(sql)
		return got == want
	}), "%s: %s instead of %s\nserver: %s", sql, got, want, c.p.log)
}

// code returns the SQLSTATE and message of an error.
func code(err error) (sqlstate, message string) {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code, e.Message + " " + e.Hint
	}
	return "", fmt.Sprint(err)
}

const null = "∅"

// query runs statements by the simple protocol and returns the last one's rows.
func query(ctx context.Context, conn *pgconn.PgConn, sql string) ([][]string, error) {
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, err
	}
	var rows [][]string
	if len(results) > 0 {
		for _, r := range results[len(results)-1].Rows {
			row := make([]string, len(r))
			for i, v := range r {
				row[i] = string(v)
				if v == nil {
					row[i] = null
				}
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// lines are sorted rows, one per line.
func lines(rows [][]string) string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = strings.Join(r, "|")
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// eventually repeats f until it is true or the time is over.
func eventually(limit time.Duration, f func() bool) bool {
	deadline := time.Now().Add(limit)
	for !f() {
		if time.Now().After(deadline) {
			return false
		}
		pause(pollEvery)
	}
	return true
}

// pause lets the server work for a while: what it does on its own has no end that could be waited for.
func pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// command runs a subcommand of the binary and returns its exit code and output.
func command(t *testing.T, env []string, args ...string) (exit int, output string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// intEnv reads a number from the environment.
func intEnv(t *testing.T, name string, otherwise int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	require.NoError(t, err, name)
	return n
}
