package server

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// storedRelation begins the name of the virtual relation that a relation of a checkpoint is to queries; its path, escaped, and its name follow.
const storedRelation = "checkpoint."

// checkpointRelation describes a relation as it is in a checkpoint or savepoint: what streamdb.read_checkpoint scans.
func (ss *session) checkpointRelation(path, name string) (*planner.Relation, error) {
	if snap := ss.snapshot(); !snap.IsSuper(ss.role()) {
		return nil, denied("must be superuser to read checkpoints")
	}
	_, o, err := ss.openStored(ss.stmtCtx, path, name)
	if err != nil {
		return nil, err
	}
	r := &planner.Relation{Schema: o.Schema, Name: o.Name, Kind: planner.System, Virtual: storedRelation + url.PathEscape(path) + "/" + name}
	for _, c := range o.Columns {
		if catalog.IsUserID(uint64(c.Type.OID)) {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "column %q of %q has a type that the checkpoint's database defines", c.Name, name)
		}
		r.Columns = append(r.Columns, planner.RelColumn{Name: c.Name, Type: c.Type, NotNull: c.NotNull, Hidden: c.Hidden})
	}
	return r, nil
}

// openStored finds a relation in a checkpoint or savepoint.
func (ss *session) openStored(ctx context.Context, path, name string) (*checkpoint.Opened, *catalog.Object, error) {
	o, err := checkpoint.OpenPath(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	c, err := catalog.New(o.Catalog, nil)
	if err != nil {
		return nil, nil, err
	}
	parts, ok := functions.SplitName(name)
	var rel *catalog.Object
	switch {
	case ok && len(parts) == 1:
		rel, ok = c.Snapshot().Resolve("", parts[0], ss.vars.searchPath())
	case ok && len(parts) == 2:
		rel, ok = c.Snapshot().Lookup(parts[0], parts[1])
	default:
		ok = false
	}
	switch {
	case !ok:
		return nil, nil, pgerr.Newf(pgerr.UndefinedTable, "relation %q does not exist in %s", name, path)
	case rel.Kind != catalog.Table && rel.Kind != catalog.MaterializedView:
		return nil, nil, pgerr.Newf(pgerr.WrongObjectType, "%q has no rows of its own in a checkpoint", name).WithHint("Name a table or a materialized view.")
	case o.Jobs[stateOf(rel)] == nil:
		return nil, nil, pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%s has no state of %q", path, name)
	}
	return o, rel, nil
}

// stateOf is the id under which checkpoints hold the rows of a relation.
func stateOf(o *catalog.Object) uint64 {
	if o.Kind == catalog.Table {
		return exec.TablesID
	}
	return o.JobID()
}

// storedRows scans a relation of a checkpoint.
func (t *systemTables) storedRows(ctx context.Context, virtual string, columns []int, emit func(*types.Chunk) error) (err error) {
	ss := t.ss
	escaped, name, _ := strings.Cut(virtual, "/")
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return undefinedSystem(storedRelation + virtual)
	}
	from, o, err := ss.openStored(ctx, path, name)
	if err != nil {
		return err
	}
	layout, err := layoutOf(o)
	if err != nil {
		return err
	}
	for _, c := range columns {
		if c >= len(layout.Types) {
			return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%s has other columns of %q than when the query was planned", path, name)
		}
	}
	if err := os.MkdirAll(filepath.Join(ss.srv.cfg.DataDir, scratchDir), 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Join(ss.srv.cfg.DataDir, scratchDir), "read-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	snap, err := ss.srv.coord.Fetch(ctx, from.Jobs[stateOf(o)], filepath.Join(dir, "files"))
	if err != nil || snap == nil {
		return err
	}
	return exec.ScanStored(ctx, state.Options{
		Dir: filepath.Join(dir, "state"), Backend: state.BackendPebble, MaxParallelism: snap.MaxParallelism, Shared: ss.srv.shared, Logger: ss.srv.log,
	}, snap, tableOf(o), layout, columns, emit)
}

// tableOf is the state table with the rows of a relation: that of a table has its id, views have one of their own.
func tableOf(o *catalog.Object) uint64 {
	if o.Kind == catalog.Table {
		return o.ID
	}
	return exec.ViewRows
}

// scratchDir is the folder in the data directory for files of savepoints being written and checkpoints being read.
const scratchDir = "scratch"

// clearScratch removes what an earlier run left there.
func (s *Server) clearScratch() error {
	if err := os.RemoveAll(filepath.Join(s.cfg.DataDir, scratchDir)); err != nil {
		return fmt.Errorf("remove temporary files: %w", err)
	}
	return nil
}
