//go:build e2e

// Package pgserver starts PostgreSQL servers for tests.
package pgserver

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

const (
	postgresStartTimeout = 60 * time.Second
	postgresConnections  = 40
)

// Start returns the connection string of a PostgreSQL server that lives as long as the test.
func Start(t *testing.T) string {
	t.Helper()
	if conn := os.Getenv("STREAMDB_POSTGRES"); conn != "" {
		return conn
	}
	bin := postgresBinaries()
	if bin == "" {
		const missing = "no PostgreSQL: set STREAMDB_POSTGRES to a connection string or install its server (initdb and postgres in /usr/lib/postgresql/*/bin or PATH)"
		if os.Getenv("STREAMDB_E2E_REQUIRE_POSTGRES") == "1" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	return startPostgres(t, bin)
}

// postgresBinaries returns the directory of the newest server, "" for none.
func postgresBinaries() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // the pattern is well-formed
	best, version := "", -1
	for _, f := range found {
		dir := filepath.Dir(f)
		if v, err := strconv.Atoi(filepath.Base(filepath.Dir(dir))); err == nil && v > version {
			best, version = dir, v
		}
	}
	if best == "" {
		if f, err := exec.LookPath("postgres"); err == nil {
			best = filepath.Dir(f)
		}
	}
	return best
}

func startPostgres(t *testing.T, bin string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "differential")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	attr := &syscall.SysProcAttr{}
	if os.Getuid() == 0 {
		// PostgreSQL refuses to run as root.
		u, err := user.Lookup("postgres")
		if err != nil {
			u, err = user.Lookup("nobody")
		}
		require.NoError(t, err)
		uid, err := strconv.Atoi(u.Uid)
		require.NoError(t, err)
		gid, err := strconv.Atoi(u.Gid)
		require.NoError(t, err)
		require.NoError(t, os.Chown(dir, uid, gid))
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = attr, dir
	out, err := initdb.CombinedOutput()
	require.NoError(t, err, "%s", out)

	server := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off",
		"-c", "max_connections="+strconv.Itoa(postgresConnections), "-c", "lc_messages=C", "-c", "timezone=UTC")
	server.SysProcAttr, server.Dir = attr, dir
	log, err := server.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	ready, done := make(chan struct{}), make(chan struct{})
	var head strings.Builder // read after done only
	go func() {
		defer close(done)
		lines := bufio.NewScanner(log)
		for lines.Scan() {
			head.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), "ready to accept connections") {
				break
			}
		}
		close(ready)
		_, _ = io.Copy(io.Discard, log) // ends with the server
	}()
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT) // fails when it has ended, which is what is wanted
		<-done
		_ = server.Wait() // reports the signal
	})
	timeout := time.NewTimer(postgresStartTimeout)
	defer timeout.Stop()
	select {
	case <-ready:
	case <-timeout.C:
		t.Fatalf("PostgreSQL is not ready after %s", postgresStartTimeout)
	}
	conn := fmt.Sprintf("host=%s user=postgres dbname=postgres", dir)
	ctx, cancel := context.WithTimeout(t.Context(), postgresStartTimeout)
	defer cancel()
	c, err := pgconn.Connect(ctx, conn)
	if err != nil {
		t.Fatalf("PostgreSQL did not start: %v", err)
	}
	require.NoError(t, c.Close(ctx))
	return conn
}
