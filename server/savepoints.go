package server

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/storage/object"
)

// Savepoint implements expr.SessionActions.
func (a *actions) Savepoint(r expr.Savepoint) (string, error) {
	if r.Stop {
		if err := a.inSession("streamdb.stop_with_savepoint"); err != nil {
			return "", err
		}
	}
	spec := checkpoint.SavepointSpec{Canonical: r.Canonical, Drain: r.Drain, Target: r.Target}
	o, err := a.savepointOf(r.Relation)
	if err != nil {
		return "", err
	}
	if err := a.target(&spec); err != nil {
		return "", err
	}
	if r.Stop {
		return a.stop(o, spec)
	}
	req := checkpoint.SavepointRequest{Spec: spec}
	if o != nil {
		req.Jobs = []uint64{exec.TablesID}
		if o.Plan != nil {
			req.Jobs = []uint64{o.JobID()}
		}
	}
	res, err := a.ss.srv.coord.Savepoint(a.ctx, req)
	if err != nil {
		return "", err
	}
	return res.Path, a.tellLeft(res)
}

// tellLeft warns of the views that a savepoint of the database does not hold because they are paused, and refuses one that lacks others: these will be back.
func (a *actions) tellLeft(res checkpoint.SavepointResult) error {
	srv := a.ss.srv
	for _, id := range res.Left {
		j, ok := srv.engine.JobWithID(id)
		if !ok {
			continue // dropped meanwhile
		}
		err := error(pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%q cannot be part of a savepoint now: it is not running", srv.jobName(j)).
			WithHint("Try again when streamdb.jobs has it as RUNNING."))
		if slices.ContainsFunc(j.Upstream(), (*exec.Job).Paused) {
			err = a.ss.notice("WARNING", pgerr.Warning, "%q is not in the savepoint: it, or a view that it reads, is paused and behind what it reads; restored it is computed again", srv.jobName(j))
			if err == nil {
				continue
			}
		}
		return errors.Join(err, checkpoint.DisposeSavepoint(context.WithoutCancel(a.ctx), res.Path))
	}
	return nil
}

// savepointOf finds the relation to make a savepoint of, nil for the whole database, if the session may.
func (a *actions) savepointOf(name string) (*catalog.Object, error) {
	ss := a.ss
	snap := ss.snapshot()
	if name == "" {
		if !snap.IsSuper(ss.role()) {
			return nil, denied("must be superuser to make a savepoint of the whole database")
		}
		return nil, nil
	}
	o, ok := a.named(name)
	if !ok {
		return nil, pgerr.Newf(pgerr.UndefinedTable, "relation %q does not exist", name)
	}
	if o.Kind == catalog.Source || o.Kind == catalog.View || o.Kind == catalog.Sequence {
		return nil, pgerr.Newf(pgerr.WrongObjectType, "%q has no state", name).WithHint("Name a table or a materialized view.")
	}
	return o, ss.mustOwn(o, false)
}

// named finds the relation with a name as it is written in SQL.
func (a *actions) named(name string) (*catalog.Object, bool) {
	switch parts, ok := functions.SplitName(name); {
	case ok && len(parts) == 1:
		return a.ss.resolve(sql.Name{Name: parts[0]})
	case ok && len(parts) == 2:
		return a.ss.resolve(sql.Name{Schema: parts[0], Name: parts[1]})
	}
	return nil, false
}

// jobState is how a job is shown: one that was stopped with a savepoint as such.
func (s *Server) jobState(j *exec.Job) string {
	if o, ok := s.catalog.Snapshot().Get(j.PublicID()); ok && o.Stopped && j.Status() == exec.JobPaused {
		return exec.JobStopped.String()
	}
	return j.Status().String()
}

// target finds out where a savepoint goes, and whether the session may write there.
func (a *actions) target(spec *checkpoint.SavepointSpec) error {
	s, own := a.ss.srv, a.ss.srv.settings.get(checkpoint.SettingSavepointDirectory)
	if spec.Target == "" {
		if spec.Target = own; own == "" {
			return pgerr.Newf(pgerr.InvalidParameterValue, "the savepoint needs a target").
				WithHint("Give the URL of a folder, or set %s.", checkpoint.SettingSavepointDirectory)
		}
		return s.notOwnFolder(own)
	}
	if err := checkpoint.CheckTarget(spec.Target); err != nil {
		return err
	}
	if err := s.notOwnFolder(spec.Target); err != nil {
		return err
	}
	return a.mayWrite(s, spec.Target)
}

// notOwnFolder refuses folders of the data directory from which the server removes what it does not know.
func (s *Server) notOwnFolder(target string) error {
	folder, local, err := object.Folder(target)
	if err != nil || !local {
		return err
	}
	data, err := filepath.Abs(s.cfg.DataDir)
	if err != nil {
		return err
	}
	rel, below := strings.CutPrefix(filepath.Clean(folder), data+string(filepath.Separator))
	if top, _, _ := strings.Cut(filepath.ToSlash(rel), "/"); below && slices.Contains([]string{"wal", "history", "jobs", supersededDir, scratchDir}, top) {
		return pgerr.Newf(pgerr.InvalidParameterValue, "a savepoint cannot be written to %s: the server removes what is there", target).WithHint("Give a folder of its own.")
	}
	return nil
}

// mayWrite checks that the session may write to a folder of the server, or to a bucket with its credentials.
func (a *actions) mayWrite(s *Server, path string) error {
	own := s.settings.get(checkpoint.SettingSavepointDirectory)
	if own != "" && (path == own || strings.HasPrefix(path, strings.TrimSuffix(own, "/")+"/") && !strings.Contains(path, "..")) {
		return nil
	}
	if err := object.Check(path); err != nil {
		return err
	}
	if !a.ss.snapshot().HasPrivilegesOf(a.ss.role(), catalog.RoleWriteServerFiles) {
		return denied("must be superuser or have privileges of the pg_write_server_files role to write to %s", path)
	}
	return nil
}

// stop ends a job with a savepoint. The catalog says so first: whatever happens from then on, the job does not run again by itself.
func (a *actions) stop(o *catalog.Object, spec checkpoint.SavepointSpec) (string, error) {
	ss, id := a.ss, o.ID
	j, ok := ss.srv.engine.Job(id)
	if !ok || o.Index != nil {
		return "", pgerr.Newf(pgerr.WrongObjectType, "%q is not a materialized view", o.Name)
	}
	if ss.tx.explicit {
		return "", pgerr.Newf(pgerr.ActiveSQLTransaction, "streamdb.stop_with_savepoint cannot run inside a transaction block")
	}
	if o.Creating {
		return "", pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "materialized view %q is being created", o.Name)
	}
	if o.Paused {
		return "", pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "materialized view %q is paused or stopped already", o.Name).WithHint("RESUME it first.")
	}
	mark := func(stopped bool) error {
		return ss.srv.catalog.Update(func(tx *catalog.Tx) error {
			cur, ok := tx.Snapshot().Get(id)
			if !ok {
				return pgerr.Newf(pgerr.UndefinedTable, "relation %q does not exist", o.Name)
			}
			c := *cur
			c.Paused, c.Stopped = stopped, stopped
			return tx.Replace(&c)
		})
	}
	if err := mark(true); err != nil {
		return "", err
	}
	res, err := ss.srv.coord.Stop(a.ctx, j.Spec.ID, spec)
	if err == nil {
		err = ss.srv.cfg.Failpoints.Hit("savepoint/stopped")
	}
	if err == nil {
		return res.Path, j.AwaitCommits(a.ctx)
	}
	if merr := mark(false); merr != nil {
		return "", errors.Join(err, merr)
	}
	j.Resume()
	return "", err
}

// DisposeSavepoint implements expr.SessionActions.
func (a *actions) DisposeSavepoint(path string) error {
	if err := a.mayWrite(a.ss.srv, path); err != nil {
		return err
	}
	if a.ss.srv.rootedIn(path) {
		return pgerr.Newf(pgerr.ObjectInUse, "%s is what this database was restored from, and no checkpoint of its own has all of it yet", path).
			WithHint("CHECKPOINT makes one.")
	}
	return checkpoint.DisposeSavepoint(a.ctx, path)
}
