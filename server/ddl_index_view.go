package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
)

// addViewIndex stores an index of a materialized view and waits until its job has taken in what the view holds. The index is a relation with a
// job of its own: it reads the view's change log, has checkpoints as every job, and is pinned together with the view. The schema lock is given
// back before the wait.
func (d *dispatch) addViewIndex(x, view *catalog.Object, unlock func()) error {
	if err := complete(view); err != nil {
		return err
	}
	x.Creating = true
	x.Settings = map[string]string{settingParallelism: "1", "state.backend.type": view.Settings["state.backend.type"]}
	if err := d.ss.update(func(tx *catalog.Tx) error {
		if tx.Snapshot().RelationNamed(x.Schema, x.Name) {
			return pgerr.Newf(pgerr.DuplicateTable, "relation %q already exists", x.Name)
		}
		x.ID = tx.NextID()
		if err := d.planViewIndex(tx.Snapshot(), x, view); err != nil {
			return err
		}
		return tx.Add(x)
	}); err != nil {
		return err
	}
	create := func() (*exec.Job, error) { return d.ss.srv.createJob(x, nil, d.ss.tx.hidden()) }
	return d.launch(x, create, unlock, false, "CREATE INDEX", func(j *exec.Job) error {
		if err := j.WaitCaughtUp(d.ctx, progressEvery, j.HeldUp); err != nil {
			return err
		}
		return failedKey(j)
	})
}

// planViewIndex plans the job of an index of a materialized view.
func (d *dispatch) planViewIndex(snap *catalog.Snapshot, x, view *catalog.Object) error {
	srv := d.ss.srv
	if x.Index.Unique {
		if err := alwaysUnique(x.Index, view); err != nil {
			return err
		}
	}
	c := srv.planCatalog(snap, x.SearchPath)
	rel, ok := c.relation(view)
	if !ok {
		return undefinedRelation(sql.Name{Name: view.Name})
	}
	ri := c.index(x)
	o := srv.indexOptions(snap, x.SearchPath)
	o.Relation = x.ID
	p, err := planner.PlanIndex(rel, &ri, o)
	if err != nil {
		return err
	}
	if x.Plan, err = json.Marshal(p); err != nil {
		return fmt.Errorf("encode plan: %w", err)
	}
	return nil
}

// failedKey is the error of a row whose keys cannot be computed.
func failedKey(j *exec.Job) error {
	if j.ErrorCount() == 0 {
		return nil
	}
	if r, ok := j.FirstFailed(); ok {
		return pgerr.Newf(r.Code, "%s", r.Message).WithDetail("Row %s.", r.Row)
	}
	return pgerr.Newf(pgerr.InvalidParameterValue, "%d rows have keys that cannot be computed", j.ErrorCount())
}

// alwaysUnique refuses unique indexes of materialized views unless the view's own key shows that rows cannot be equal: a view has nobody whose
// change could be refused.
func alwaysUnique(def *catalog.IndexDef, view *catalog.Object) error {
	var missing []string
	for _, k := range view.Key {
		if !slices.ContainsFunc(def.Keys, func(x catalog.IndexKey) bool { return x.Column == k }) {
			missing = append(missing, sql.QuoteIdent(view.Columns[k].Name))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	err := pgerr.Newf(pgerr.FeatureNotSupported, "unique index on materialized view %q is not supported: rows with equal keys could not be refused", view.Name).
		WithDetail("Rows of the view are told apart by columns that are not in the index: %s.", strings.Join(missing, ", "))
	return err.WithHint("Create an index that is not unique, or include the columns that the view groups by.")
}
