package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/storage/object"
)

type checkpointCmd struct {
	List    checkpointList    `cmd:"" help:"List the completed checkpoints."`
	Inspect checkpointInspect `cmd:"" help:"Show what a checkpoint consists of."`
	Verify  checkpointVerify  `cmd:"" help:"Check that every file a checkpoint needs is there and intact."`
	GC      checkpointGC      `cmd:"" name:"gc" help:"Delete what no checkpoint needs, as servers do themselves at their start and once a day."`
}

// openStore opens the store of checkpoints. A folder must be there: opening it would make it.
func openStore(a *app, rawURL string) (object.Store, error) {
	rawURL, err := object.FromHere(rawURL)
	if err != nil {
		return nil, err
	}
	folder, local, err := object.Folder(rawURL)
	if err != nil {
		return nil, err
	}
	if local {
		if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
			return nil, pgerr.Newf(pgerr.UndefinedFile, "folder %q does not exist", folder).WithHint("Give what the server has as --checkpoint-dir; by default that is a folder in the data directory.")
		}
	}
	return object.Open(a.ctx, rawURL)
}

type checkpointList struct {
	URL string `arg:"" help:"file:///dir or s3://bucket/prefix?…"`
}

// Run lists checkpoints.
func (c *checkpointList) Run(a *app) error {
	s, err := openStore(a, c.URL)
	if err != nil {
		return err
	}
	return checkpoint.List(a.ctx, s, a.stdout)
}

type checkpointInspect struct {
	URL string `arg:""`
	ID  uint64 `arg:"" optional:"" help:"Checkpoint id; the newest when absent."`
}

// Run shows one checkpoint.
func (c *checkpointInspect) Run(a *app) error {
	s, err := openStore(a, c.URL)
	if err != nil {
		return err
	}
	return checkpoint.Inspect(a.ctx, s, c.ID, a.stdout)
}

type checkpointVerify struct {
	URL string `arg:""`
}

// Run verifies all checkpoints.
func (c *checkpointVerify) Run(a *app) error {
	s, err := openStore(a, c.URL)
	if err != nil {
		return err
	}
	n, err := checkpoint.Verify(a.ctx, s, a.stdout)
	if err == nil && n > 0 {
		err = fmt.Errorf("%d problems found", n)
	}
	return err
}

type checkpointGC struct {
	URL    string `arg:""`
	DryRun bool   `help:"Only print what would be deleted."`
	Force  bool   `help:"Also when a server may be running on it. Its checkpoints are safe; a savepoint that it copies from one that was replaced meanwhile, or a query that reads that, fails."`
}

// Run collects garbage.
func (c *checkpointGC) Run(a *app) error {
	s, err := openStore(a, c.URL)
	if err != nil {
		return err
	}
	if !c.DryRun && !c.Force {
		at, err := checkpoint.PeekClaim(a.ctx, s)
		if err != nil {
			return err
		}
		if why := mayRun(at); why != "" {
			return pgerr.Newf(pgerr.ObjectInUse, "%s belongs to server %s, %s", s, at.Holder, why).
				WithDetail("What it reads of checkpoints that were replaced meanwhile, to copy a savepoint for example, would go.").
				WithHint("Stop it, or look at what would go with --dry-run; when it is gone, or what it reads does not matter, use --force.")
		}
	}
	return checkpoint.GC(a.ctx, s, c.DryRun, a.stdout)
}

// mayRun says why the server that has claimed a store may still be running; "" when it does not.
func mayRun(at checkpoint.Claimed) string {
	switch o := at.Owner(); {
	case o.Elsewhere:
		return "which may be running on " + o.Host
	case o.Here:
		return fmt.Sprintf("whose process %d is running", o.PID)
	}
	return ""
}
