package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/streamdb/streamdb/auth"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/storage/object"
)

// The settings of servers that share a checkpoint directory.
const (
	settingHA         = "high-availability.type"
	settingLease      = "high-availability.leader-election.lease-duration"
	settingAdvertised = "high-availability.advertised-address"
)

// lockPoll is how often a new leader looks whether the data directory is free: that of a server on the same machine is until that has ended.
const lockPoll = 100 * time.Millisecond

// Standby answers for a server that waits for the lead.
type Standby struct {
	srv *Server
}

// Leader tells who has the lead, as last seen.
func (b *Standby) Leader() checkpoint.Lease { return b.srv.elector.Leader() }

// Serve refuses clients on l with 57P03 and the address of the leader until ctx ends. It does not close l.
func (b *Standby) Serve(ctx context.Context, l *net.TCPListener) error {
	cfg := pgwire.Config{Refuse: func() error { return checkpoint.NotLeader(b.Leader()) }, Logger: b.srv.log}
	if files := b.srv.cfg.TLS; files.Cert != "" || files.Key != "" {
		t, err := auth.OpenTLS(files)
		if err != nil {
			return err
		}
		if cfg.TLSConfig, err = t.Config(); err != nil {
			return err
		}
	}
	wire := pgwire.NewServer(cfg)
	done := make(chan error, 1)
	go func() { done <- wire.Serve(borrowed{l}) }()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = wire.Shutdown(now) // cuts off who has not read its refusal yet
		err = <-done
	}
	return errors.Join(err, l.SetDeadline(time.Time{}))
}

// borrowed is a listener that stays open for its next user: Close ends Accept.
type borrowed struct{ *net.TCPListener }

func (b borrowed) Close() error { return b.SetDeadline(time.Unix(1, 0)) }

// HTTPHandler serves health: alive, but not ready.
func (b *Standby) HTTPHandler() http.Handler {
	mux := startingMux(func() string {
		l := b.Leader()
		return strings.TrimSpace(fmt.Sprintf("standby; the leader is %s %s", l.Holder, l.Addr))
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "# HELP streamdb_leader %s\n# TYPE streamdb_leader gauge\nstreamdb_leader 0\n", leaderHelp)
	})
	return mux
}

const leaderHelp = "1 while this server may execute, 0 while it waits for the lead or cannot renew it."

// Starting serves health while a server is being restored.
func Starting() http.Handler { return startingMux(func() string { return "starting" }) }

func startingMux(why func() string) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not ready: "+why(), http.StatusServiceUnavailable)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		httpError(w, pgerr.Newf(pgerr.CannotConnectNow, "the server is not ready: %s", why()))
	})
	return mux
}

// awaitLead returns when this server may execute: at once where there are no standbys.
func (s *Server) awaitLead(ctx context.Context) error {
	if s.settings.get(settingHA) != "storage" {
		return nil
	}
	if strings.HasPrefix(s.cfg.CheckpointDir, "memory:") {
		return pgerr.Newf(pgerr.InvalidParameterValue, "%s = storage cannot be combined with a checkpoint directory in memory", settingHA).
			WithHint("Give all servers the same --checkpoint-dir.")
	}
	ttl, err := parseDuration(s.settings.get(settingLease))
	if err != nil {
		return err
	}
	// Its own connections and its own pace: uploads must not hold up renewals.
	store, err := object.Open(ctx, s.cfg.CheckpointDir)
	if err == nil {
		err = object.Probe(ctx, store)
	}
	if err != nil {
		return fmt.Errorf("checkpoint directory %s: %w", s.cfg.CheckpointDir, err)
	}
	if s.elector, err = checkpoint.NewElector(store, checkpoint.Holder(), s.settings.get(settingAdvertised), ttl, s.log); err != nil {
		return fmt.Errorf("%s: %w", settingLease, err)
	}
	var run context.Context
	run, s.abandon = context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	s.election.Go(func() {
		err := s.awaitOwner(run, store)
		if err == nil {
			err = s.elector.Run(run)
		}
		ended <- err
		if err != nil {
			s.log.Error().Err(err).Msg("the lead is lost")
			select {
			case s.fatal <- err:
			default:
			}
		}
	})
	if s.cfg.OnStandby != nil {
		s.cfg.OnStandby(&Standby{s})
	}
	s.log.Info().Str("store", store.String()).Dur("lease_ms", ttl).Msg("waiting for the lead")
	select {
	case <-s.elector.Won():
		return nil
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lockData locks the data directory. A leader waits for it: its predecessor on the same machine may still be ending.
func (s *Server) lockData(ctx context.Context) (*os.File, error) {
	for told := false; ; told = true {
		f, err := lockDir(s.cfg.DataDir)
		if s.elector == nil || err == nil || pgerr.CodeOf(err) != pgerr.ObjectInUse {
			return f, err
		}
		if !told {
			s.log.Warn().Str("data_dir", s.cfg.DataDir).Msg("waiting for the former leader to end: it still has the data directory")
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case err := <-s.fatal:
			return nil, err
		case <-time.After(lockPoll):
		}
	}
}

// mayExecute refuses statements while this server cannot be sure to be the leader. It reads the clock, so that a process that was stopped for long notices before it
// does anything.
func (s *Server) mayExecute() error {
	if s.elector == nil || s.elector.Valid() {
		return nil
	}
	return pgerr.Newf(pgerr.CannotConnectNow, "this server cannot renew its lead of %s and takes no statements", s.objects).
		WithHint("Try again, or connect to another server.")
}

// acknowledge ends a commit: with remote it waits for a checkpoint, which every server can go on from. Without, a server that may have lost the lead meanwhile does not acknowledge it.
func (s *Server) acknowledge(ctx context.Context, remote bool) error {
	if remote {
		_, err := s.coord.Trigger(ctx, nil)
		if err == nil || ctx.Err() != nil {
			return err
		}
		return pgerr.Wrap(pgerr.TransactionResolutionUnknown, err, "the transaction is committed here, but is in no checkpoint yet").
			WithHint("The next checkpoint that succeeds has it.")
	}
	if s.elector == nil || s.elector.Valid() {
		return nil
	}
	return pgerr.Newf(pgerr.TransactionResolutionUnknown, "the transaction is committed here, but this server may have lost the lead").
		WithHint("Look whether it is there, on whatever server is the leader.")
}
