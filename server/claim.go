package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/storage/object"
)

const (
	claimFile  = "claim"
	claimMagic = "SDBCLM"
	// supersededDir holds local data of servers that others took over from, at most keptSuperseded of them.
	supersededDir  = "superseded"
	keptSuperseded = 3
)

// claimMark says what the local data of a data directory goes on from. The checkpoint directory's HEAD has the claim of the server that writes there: where that is another
// one, a server with other local data has gone on from the last checkpoint, and this directory's log and catalog lead to a state that never was.
//
// Intended is written before a claim and becomes Claim after it. A crash in between is recognized by HEAD: its claim is the intended one, and was made from Claim.
type claimMark struct {
	Claim    string `json:"claim"`
	Intended string `json:"intended,omitempty"`
	// Store is the URL of the checkpoint directory, and Database what its HEAD has as that: absent in files of older versions.
	Store    string `json:"store,omitempty"`
	Database string `json:"database,omitempty"`
	before   string // the claim of the directory's last server
}

// ours reports whether the store is as the server with the mark has left it.
func (m claimMark) ours(now checkpoint.Claimed) bool {
	return now.Claim == "" || now.Claim == m.Claim || now.Claim == m.Intended && now.From == m.Claim
}

// localData is what belongs to a claim; the rest of a data directory is checked by its checksums or stands for itself.
var localData = []string{catalogFile, epochsFile, rootFile, "wal", "history"}

// beginClaim finds out whether the local data is what the store goes on from, sets it aside when it is not, and notes that this server is about to claim the store.
func (s *Server) beginClaim(ctx context.Context) (claimMark, error) {
	next := claimMark{Intended: checkpoint.NewClaim()}
	if s.cfg.MemoryOnly {
		return next, nil
	}
	mark, now, err := s.compare(ctx, s.objects)
	if err != nil {
		return next, err
	}
	if !mark.ours(now) {
		if err := s.setAside(mark, now); err != nil {
			return next, err
		}
	}
	next.Store, next.Database = s.cfg.CheckpointDir, now.Database
	next.Claim, next.before = now.Claim, mark.Claim
	return next, s.writeClaim(next)
}

// endClaim notes that the store was claimed. When another server was faster and is superseded now in turn, its successor's local data is no better than it was.
func (s *Server) endClaim(ctx context.Context, mark claimMark) error {
	if s.cfg.MemoryOnly {
		return nil
	}
	now, err := s.coord.Claimed(ctx)
	if err != nil {
		return err
	}
	if now.From != mark.Claim {
		if err := s.setAside(mark, now); err != nil {
			return err
		}
	}
	return s.writeClaim(claimMark{Claim: mark.Intended, Store: mark.Store, Database: now.Database})
}

// checkFolders refuses a start over a checkpoint directory that the data directory does not belong to. Nothing is written on either side, no folder made.
func (s *Server) checkFolders(ctx context.Context) error {
	if s.cfg.MemoryOnly {
		return nil
	}
	folder, local, err := object.Folder(s.cfg.CheckpointDir)
	if err != nil {
		return fmt.Errorf("checkpoint directory %s: %w", s.cfg.CheckpointDir, err)
	}
	var store object.Store
	if local {
		if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
			store = object.NewMemory("") // opening the folder would make it
		}
	}
	if store == nil {
		if store, err = object.Open(ctx, s.cfg.CheckpointDir); err != nil {
			return fmt.Errorf("checkpoint directory %s: %w", s.cfg.CheckpointDir, err)
		}
	}
	_, _, err = s.compare(ctx, store)
	return err
}

// compare reads what the data directory goes on from and whom the store belongs to, in this order, as another server may be at work on both. It is an error when the data
// directory has data that neither goes on from what is in the store nor has been overtaken by it.
func (s *Server) compare(ctx context.Context, store object.Store) (mark claimMark, now checkpoint.Claimed, err error) {
	data, err := readFile(s.dataFile(claimFile), claimMagic, "claim", "Remove it to go on from the checkpoint directory alone.")
	if err != nil {
		return mark, now, err
	}
	if data != nil {
		if err := json.Unmarshal(data, &mark); err != nil {
			return mark, now, pgerr.Wrap(pgerr.DataCorrupted, err, "%s is malformed", s.dataFile(claimFile))
		}
	}
	if now, err = checkpoint.Look(ctx, store); err != nil {
		return mark, now, fmt.Errorf("checkpoint directory %s: %w", s.cfg.CheckpointDir, err)
	}
	have, err := s.localData()
	if err != nil || len(have) == 0 {
		return mark, now, err
	}
	holds := "which holds another database"
	switch inMemory := strings.HasPrefix(s.cfg.CheckpointDir, "memory:"); {
	case now.Term > 0:
		if mark.ours(now) || data == nil || now.GoesOnFrom(mark.Claim, mark.Database) || mark.Intended != "" && now.GoesOnFrom(mark.Intended, mark.Database) {
			return mark, now, nil
		}
	case strings.HasPrefix(mark.Store, "memory:"), inMemory && mark.Store == "": // the write-ahead log was kept whole
		return mark, now, nil
	default:
		holds = "which holds none"
	}
	to := "another checkpoint directory"
	if mark.Store != "" {
		to = mark.Store
	}
	if mark.Store == s.cfg.CheckpointDir {
		return mark, now, pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "the database of data directory %s is not in its checkpoint directory %s any more, %s", s.cfg.DataDir, to, holds).
			WithHint("Put its checkpoints back, or begin anew with an empty --data-dir.")
	}
	e := pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "data directory %s belongs to checkpoint directory %s, not to %s, %s", s.cfg.DataDir, to, s.cfg.CheckpointDir, holds)
	e.Detail = "Rows that are only in checkpoints, or only in the data directory, would be missing. Nothing was changed."
	right := "Give the checkpoint directory that it belongs to"
	if mark.Store != "" {
		right = "Give --checkpoint-dir=" + mark.Store
	}
	return mark, now, e.WithHint("%s, or an empty --data-dir. To move a database to another store copy its checkpoint directory there, or start a server with an empty data directory and %s.",
		right, checkpoint.SettingRecoveryPath)
}

// localData are the files and folders of the data directory that belong to a claim.
func (s *Server) localData() (have []string, err error) {
	for _, name := range localData {
		if _, err := os.Stat(s.dataFile(name)); err == nil {
			have = append(have, name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, ioError(err, "look for local data")
		}
	}
	return have, nil
}

func (s *Server) dataFile(name string) string { return filepath.Join(s.cfg.DataDir, name) }

func (s *Server) writeClaim(m claimMark) error { return m.write(s.dataFile(claimFile)) }

func (m claimMark) write(path string) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return writeFile(path, claimMagic, "claim", body)
}

// setAside moves away the local data of a server that another one has taken over from. The database is restored from the checkpoint directory alone.
// The mark goes with it: over a copy of the store from before it is a data directory still.
func (s *Server) setAside(mark claimMark, now checkpoint.Claimed) error {
	have, err := s.localData()
	if err != nil {
		return err
	}
	if len(have) == 0 {
		return nil
	}
	all := s.dataFile(supersededDir)
	to := filepath.Join(all, time.Now().UTC().Format("20060102T150405.000000000"))
	if err := os.MkdirAll(to, 0o700); err != nil {
		return ioError(err, "set local data aside")
	}
	if err := mark.write(filepath.Join(to, claimFile)); err != nil {
		return err
	}
	for _, name := range have {
		if err := os.Rename(s.dataFile(name), filepath.Join(to, name)); err != nil {
			return ioError(err, "set local data aside")
		}
	}
	s.log.Warn().Str("holder", now.Holder).Uint64("term", now.Term).Uint64("checkpoint", now.Checkpoint).Str("moved_to", to).
		Msg("another server has gone on from the last checkpoint: what was committed here since, and not in it, is set aside; docs/operations.md tells how to read it")
	entries, err := os.ReadDir(all) // in order of their names: of time
	if err != nil {
		return ioError(err, "look for superseded data")
	}
	for _, old := range slices.Backward(entries[:max(0, len(entries)-keptSuperseded)]) {
		if err := os.RemoveAll(filepath.Join(all, old.Name())); err != nil {
			return ioError(err, "remove superseded data")
		}
	}
	return nil
}

// checkOwner refuses to take the store from a process that runs on this machine. Several servers with an elected leader agree by that.
func (s *Server) checkOwner(ctx context.Context, store object.Store) error {
	now, err := checkpoint.PeekClaim(ctx, store)
	if err != nil {
		return fmt.Errorf("checkpoint directory %s: %w", s.cfg.CheckpointDir, err)
	}
	owner := now.Owner()
	if !owner.Sure || s.elector != nil && now.Elected {
		return nil
	}
	return pgerr.Newf(pgerr.ObjectInUse, "checkpoint directory %s belongs to server %s, whose process %d is running", s.cfg.CheckpointDir, now.Holder, owner.PID).
		WithHint("Stop it, or give this server its own --checkpoint-dir and --data-dir. Servers that wait for each other are all started with --standby.")
}

// ownerPoll is how often a server that waits looks whether the process still runs that has the store and is no elected leader.
const ownerPoll = 500 * time.Millisecond

// awaitOwner returns when no process on this machine has the store that has not been elected.
func (s *Server) awaitOwner(ctx context.Context, store object.Store) error {
	for told := false; ; told = true {
		err := s.checkOwner(ctx, store)
		if pgerr.CodeOf(err) != pgerr.ObjectInUse {
			return err
		}
		if !told {
			s.log.Warn().Err(err).Msg("waiting for a server that runs without --standby to end")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(ownerPoll):
		}
	}
}

// watchInterval is how often a server looks whether the store is still its own: what it acknowledges after another one has claimed that may be lost.
const watchInterval = 3 * time.Second

// watchOwner ends the server when another one has taken the store over, even when it has nothing to write there.
func (s *Server) watchOwner() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		err := s.coord.StillHeld(s.ctx)
		if !errors.Is(err, checkpoint.ErrFenced) {
			continue // who cannot be asked is asked again
		}
		s.log.Error().Err(err).Msg("the checkpoint directory is lost")
		select {
		case s.fatal <- err:
		default:
		}
		return
	}
}
