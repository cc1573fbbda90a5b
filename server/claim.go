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
	"time"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
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
	before   string // the claim of the directory's last server
}

// localData is what belongs to a claim; the rest of a data directory is checked by its checksums or stands for itself.
var localData = []string{catalogFile, epochsFile, rootFile, "wal", "history"}

// beginClaim finds out whether the local data is what the store goes on from, sets it aside when it is not, and notes that this server is about to claim the store.
func (s *Server) beginClaim(ctx context.Context) (claimMark, error) {
	next := claimMark{Intended: checkpoint.NewClaim()}
	if s.cfg.MemoryOnly {
		return next, nil
	}
	now, err := checkpoint.PeekClaim(ctx, s.objects)
	if err != nil {
		return next, fmt.Errorf("checkpoint directory %s: %w", s.cfg.CheckpointDir, err)
	}
	var mark claimMark
	data, err := readFile(s.dataFile(claimFile), claimMagic, "claim", "Remove it to go on from the checkpoint directory alone.")
	if err != nil {
		return next, err
	}
	if data != nil {
		if err := json.Unmarshal(data, &mark); err != nil {
			return next, pgerr.Wrap(pgerr.DataCorrupted, err, "%s is malformed", s.dataFile(claimFile))
		}
	}
	ours := now.Claim == "" || now.Claim == mark.Claim || now.Claim == mark.Intended && now.From == mark.Claim
	if !ours {
		if err := s.setAside(now); err != nil {
			return next, err
		}
	}
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
		if err := s.setAside(now); err != nil {
			return err
		}
	}
	return s.writeClaim(claimMark{Claim: mark.Intended})
}

func (s *Server) dataFile(name string) string { return filepath.Join(s.cfg.DataDir, name) }

func (s *Server) writeClaim(m claimMark) error {
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return writeFile(s.dataFile(claimFile), claimMagic, "claim", body)
}

// setAside moves away the local data of a server that another one has taken over from. The database is restored from the checkpoint directory alone.
func (s *Server) setAside(now checkpoint.Claimed) error {
	var have []string
	for _, name := range localData {
		if _, err := os.Stat(s.dataFile(name)); err == nil {
			have = append(have, name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return ioError(err, "look for local data")
		}
	}
	if len(have) == 0 {
		return nil
	}
	all := s.dataFile(supersededDir)
	to := filepath.Join(all, time.Now().UTC().Format("20060102T150405.000000000"))
	if err := os.MkdirAll(to, 0o700); err != nil {
		return ioError(err, "set local data aside")
	}
	for _, name := range have {
		if err := os.Rename(s.dataFile(name), filepath.Join(to, name)); err != nil {
			return ioError(err, "set local data aside")
		}
	}
	s.log.Warn().Str("holder", now.Holder).Uint64("term", now.Term).Uint64("checkpoint", now.Checkpoint).Str("moved_to", to).
		Msg("another server has gone on from the last checkpoint: what was committed here since, and not in it, is set aside")
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
