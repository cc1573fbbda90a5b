package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/object"
	"github.com/streamdb/streamdb/types"
)

// The claim modes.
const (
	claimNo = "NO_CLAIM"
	claimIt = "CLAIM"
)

// recoverySettings are those of what a start begins from, and where savepoints go.
func recoverySettings() []setting {
	return []setting{
		{name: checkpoint.SettingDirectory, scope: scopeReadOnly, check: orEmpty(object.Check), deprecated: []string{"state.checkpoints.dir"}, doc: "URL of the checkpoint directory; set it with --checkpoint-dir, which wins, or in the configuration."},
		{name: checkpoint.SettingSavepointDirectory, scope: scopeServer, check: orEmpty(checkpoint.CheckTarget), deprecated: []string{"state.savepoints.dir"}, doc: "URL of the folder that savepoints go to when none is named."},
		{name: checkpoint.SettingRecoveryPath, scope: scopeReadOnly, check: orEmpty(object.Check), deprecated: []string{"execution.savepoint.path"}, doc: "Savepoint or checkpoint that an empty server starts from; set it in the configuration."},
		{name: checkpoint.SettingClaimMode, value: claimNo, scope: scopeReadOnly, check: claimMode, deprecated: []string{"execution.savepoint-restore-mode"}, doc: "Whether the server takes over what it starts from and removes it (CLAIM), or leaves it alone (NO_CLAIM); set it in the configuration."},
		{name: checkpoint.SettingWithoutChannel, value: "0", scope: scopeReadOnly, check: integer(0, math.MaxInt64), doc: "Unaligned checkpoint from which jobs go on without the rows that were in flight, which are lost; 0: none; set it in the configuration."},
		{name: settingFallback, value: fallbackNone, scope: scopeReadOnly, check: oneOf(fallbackNone, fallbackPrevious), doc: "Whether a view whose state in the newest checkpoint is damaged goes on with the one before (previous) that is retained, or waits until it can be read (none); set it in the configuration."},
	}
}

// What becomes of a job whose state in the newest checkpoint is damaged.
const (
	settingFallback  = "execution.state-recovery.fallback"
	fallbackNone     = "none"
	fallbackPrevious = "previous"
)

// orEmpty takes what check does, and an empty value.
func orEmpty(check func(string) error) func(string) (string, error) {
	return func(s string) (string, error) {
		if s == "" {
			return "", nil
		}
		return s, check(s)
	}
}

func claimMode(s string) (string, error) {
	if strings.EqualFold(s, "LEGACY") {
		return "", errors.New("use NO_CLAIM, which needs the snapshot until the first checkpoint only, or CLAIM: with LEGACY nobody could tell when it may be removed")
	}
	return oneOf(claimNo, claimIt)(strings.ReplaceAll(s, "-", "_"))
}

// root is what a server that was empty was started from, while that is needed.
type root struct {
	claim bool
	file  string // that says so to the next start; "" when nothing is kept

	mu     sync.Mutex
	opened *checkpoint.Opened // nil: not needed any more
}

const (
	rootFile  = "restored-from"
	rootMagic = "SDBFROM\x00"
	rootHint  = "Remove it when the newest checkpoint of this server holds everything."
)

// openRoot finds what to restore besides own, the newest checkpoint of this server (nil: none): the snapshot that execution.state-recovery.path names when this
// server was empty, and after that as long as own checkpoints do not have all of it.
func (s *Server) openRoot(ctx context.Context, own *checkpoint.Manifest) (*checkpoint.Opened, error) {
	path := s.settings.get(checkpoint.SettingRecoveryPath)
	s.root.claim = s.settings.get(checkpoint.SettingClaimMode) == claimIt
	if !s.cfg.MemoryOnly {
		s.root.file = filepath.Join(s.cfg.DataDir, rootFile)
		b, err := readFile(s.root.file, rootMagic, "recovery", rootHint)
		switch {
		case err != nil:
			return nil, err
		case b != nil:
			if path != "" && path != string(b) {
				s.log.Warn().Str("path", path).Str("restored_from", string(b)).Msg(checkpoint.SettingRecoveryPath + " is ignored: this database was restored from another snapshot")
			}
			return s.reopenRoot(ctx, string(b), own)
		}
	}
	if path == "" {
		return nil, nil
	}
	if own != nil { // own checkpoints win
		return nil, s.ignoreRoot(ctx, path, own)
	}
	if !s.cfg.MemoryOnly {
		data, err := readCatalog(filepath.Join(s.cfg.DataDir, catalogFile))
		if err != nil {
			return nil, err
		}
		if data != nil {
			return nil, pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%s cannot be restored: %s already holds a database", path, s.cfg.DataDir).
				WithHint("Use an empty data directory, or remove %s.", checkpoint.SettingRecoveryPath)
		}
	}
	o, err := checkpoint.OpenPath(ctx, path)
	if err == nil && o.CatalogVersion == 0 {
		err = pgerr.Newf(pgerr.DataCorrupted, "%s has no catalog", path)
	}
	if err == nil && s.root.claim && !o.Savepoint {
		err = pgerr.Newf(pgerr.InvalidParameterValue, "%s is a checkpoint of a server: it cannot be claimed", path).
			WithHint("Claim a savepoint, or set %s to %s.", checkpoint.SettingClaimMode, claimNo)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", checkpoint.SettingRecoveryPath, err)
	}
	if s.root.file != "" {
		if err := writeFile(s.root.file, rootMagic, "recovery", []byte(path)); err != nil {
			return nil, err
		}
	}
	s.root.opened = o
	return o, nil
}

// ignoredRootTime bounds how long a start waits for the store of a snapshot that it does not need.
const ignoredRootTime = 5 * time.Second

// ignoreRoot says that own checkpoints win over what path names, and refuses to start where that is certainly another database's: somebody expects that one.
func (s *Server) ignoreRoot(ctx context.Context, path string, own *checkpoint.Manifest) error {
	look, cancel := context.WithTimeout(ctx, ignoredRootTime)
	defer cancel()
	if o, err := checkpoint.OpenPath(look, path); err == nil && checkpoint.Unrelated(o.Line, s.coord.Line()) {
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%s cannot be restored: %s and checkpoint directory %s already hold another database", path, s.cfg.DataDir, s.cfg.CheckpointDir).
			WithHint("Use an empty data directory and an empty checkpoint directory, or remove %s.", checkpoint.SettingRecoveryPath)
	}
	s.log.Warn().Str("path", path).Str("checkpoint_dir", s.cfg.CheckpointDir).Uint64("checkpoint", own.ID).
		Msg(checkpoint.SettingRecoveryPath + " is ignored: this server has checkpoints of its own")
	return nil
}

// reopenRoot opens what an earlier run was started from and has no checkpoint of its own of.
func (s *Server) reopenRoot(ctx context.Context, path string, own *checkpoint.Manifest) (*checkpoint.Opened, error) {
	o, err := checkpoint.OpenPath(ctx, path)
	if err == nil {
		s.root.opened = o
		return o, nil
	}
	if own == nil {
		return nil, fmt.Errorf("this database was restored from %s and has no checkpoint of its own yet: %w", path, err)
	}
	s.log.Warn().Err(err).Str("path", path).Msg("what this database was restored from is gone: jobs without a checkpoint of their own are computed again")
	return nil, nil
}

// fetchFiles returns a state with its files local, in the folder of its job.
func (s *Server) fetchFiles(ctx context.Context, js *checkpoint.JobState) (*state.Snapshot, error) {
	return s.coord.Fetch(ctx, js, filepath.Join(s.cfg.DataDir, "jobs", fmt.Sprint(js.Job)))
}

// fetchState makes a state's files local, at the start of the server.
func (s *Server) fetchState(ctx context.Context, js *checkpoint.JobState) error {
	began := time.Now()
	snap, err := s.fetchFiles(ctx, js)
	if err == nil {
		js.State = snap
		s.downloads.Store(js.Job, time.Since(began))
	}
	return err
}

// restoresRelation has how each job was last restored from a checkpoint.
func restoresRelation(s *Server) [][]types.Datum {
	var rows [][]types.Datum
	for _, j := range s.engine.Jobs() {
		r := j.Restored()
		if r == nil {
			continue
		}
		rows = append(rows, []types.Datum{
			int8d(int64(j.PublicID())), text(s.jobName(j)), int8d(int64(r.Checkpoint)), timestamptz(r.At), ms(s.downloaded(j, r)), ms(r.Open), ms(r.Rebuild),
		})
	}
	return rows
}

// downloaded returns what it took to make the files local that j was restored from, at the start of the server or when it began again.
func (s *Server) downloaded(j *exec.Job, r *exec.Restored) time.Duration {
	if d, ok := s.downloads.Load(j.Spec.ID); ok {
		return r.Download + d.(time.Duration) //nolint:forcetypeassert // only durations are stored
	}
	return r.Download
}

// fallback finds states in earlier checkpoints for views whose state in the newest one is damaged, and for what reads them: a reader is never newer than what it
// reads.
type fallback struct {
	s  *Server
	on bool
	to map[uint64]*checkpoint.Manifest // by relation; nil: to its inputs
}

// state returns what the job of a relation goes on with, after the jobs that it reads have been asked for. With an error the state's files are not all there.
func (f *fallback) state(ctx context.Context, o *catalog.Object, newest func(uint64) (*checkpoint.JobState, error)) (*checkpoint.JobState, error) {
	for _, in := range o.DependsOn {
		m, fallen := f.to[in]
		if !fallen {
			continue
		}
		f.to[o.ID] = m
		if m == nil || m.Jobs[o.JobID()] == nil {
			return nil, nil
		}
		js := m.Jobs[o.JobID()]
		return js, f.s.fetchState(ctx, js)
	}
	js, err := newest(o.JobID())
	if err == nil || !f.on {
		return js, err
	}
	older, oerr := f.s.coord.Earlier(ctx)
	if oerr != nil {
		return js, errors.Join(err, oerr)
	}
	for _, m := range older {
		was := m.Jobs[o.JobID()]
		if was == nil || f.s.fetchState(ctx, was) != nil {
			continue
		}
		if sink := f.sinkOver(o); sink != nil {
			return js, pgerr.Wrap(pgerr.ObjectNotInPrerequisiteState, err, "%q does not fall back to checkpoint %d: sink %q has each row once", o.Name, m.ID, sink.Name)
		}
		f.s.log.Warn().Err(err).Str("view", o.Name).Uint64("checkpoint", m.ID).Msg("state of the newest checkpoint is damaged: the view goes on with an earlier one")
		f.to[o.ID] = m
		return was, nil
	}
	return js, err
}

// sinkOver returns a sink that a relation is or that reads it, directly or not, whose other side has each row once; nil when there is none.
func (f *fallback) sinkOver(o *catalog.Object) *catalog.Object {
	snap := f.s.catalog.Snapshot()
	for _, d := range append([]*catalog.Object{o}, snap.Dependents(o.ID)...) {
		if d.Kind != catalog.Sink {
			continue
		}
		if spec, err := jobSpec(d); err != nil || spec.Sink != nil && spec.Sink.ExactlyOnce {
			return d
		}
	}
	return nil
}

// checkpointCompleted is told every checkpoint that was completed: when it and those before have all that the server was started from, that is not needed any more.
func (s *Server) checkpointCompleted(m *checkpoint.Manifest) {
	s.root.mu.Lock()
	defer s.root.mu.Unlock()
	o := s.root.opened
	if o == nil {
		return
	}
	for id := range o.Jobs {
		if m.Jobs[id] == nil && s.hasJob(id) {
			return
		}
	}
	s.root.opened = nil
	if s.root.file != "" {
		if err := os.Remove(s.root.file); err != nil {
			s.log.Warn().Err(err).Msg("note of what this database was restored from")
		}
	}
	if !s.root.claim {
		return
	}
	if err := checkpoint.DisposeSavepoint(s.ctx, o.Path); err != nil {
		s.log.Warn().Err(err).Str("path", o.Path).Msg("claimed savepoint cannot be removed")
	}
}

func (s *Server) hasJob(id uint64) bool {
	_, ok := s.engine.JobWithID(id)
	return ok
}

// rootedIn reports whether the server still needs the snapshot at path.
func (s *Server) rootedIn(path string) bool {
	s.root.mu.Lock()
	defer s.root.mu.Unlock()
	return s.root.opened != nil && strings.TrimSuffix(s.root.opened.Path, "/") == strings.TrimSuffix(path, "/")
}
