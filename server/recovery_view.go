package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
)

// viewRecovery is what a new view takes over from the view of that name in a savepoint or checkpoint.
type viewRecovery struct {
	path  string
	pos   int
	claim bool
	skip  bool // state that no operator takes may be left behind

	from  *checkpoint.Opened
	state *checkpoint.JobState
	kept  *plan.Kept
	dir   string // with the files of the state
}

// end removes the files: the view has its own copy of what it takes.
func (r *viewRecovery) end(d *dispatch) {
	if r.dir == "" {
		return
	}
	if err := os.RemoveAll(r.dir); err != nil {
		d.ss.srv.log.Warn().Err(err).Msg("temporary files of a restored view")
	}
}

// recoveryOptions takes the options of a view about what it begins from out of those given; nil when there is none.
func (d *dispatch) recoveryOptions(opts []sql.Option) (r *viewRecovery, rest []sql.Option, err error) {
	about := &viewRecovery{}
	given := 0
	for _, o := range opts {
		name := strings.ToLower(o.Name)
		if st, err := d.ss.srv.settings.table.find(name); err == nil {
			name = st.name
		}
		switch name {
		case checkpoint.SettingRecoveryPath:
			about.path, about.pos = o.Value, o.ValuePos
		case checkpoint.SettingClaimMode:
			mode, err := claimMode(o.Value)
			if err != nil {
				return nil, nil, pgerr.Newf(pgerr.InvalidParameterValue, "invalid value for parameter %q: %q", checkpoint.SettingClaimMode, o.Value).At(o.ValuePos).WithHint("%s.", capital(err.Error()))
			}
			about.claim = mode == claimIt
		case checkpoint.SettingIgnoreUnclaimed:
			if about.skip, err = boolOption(o); err != nil {
				return nil, nil, err
			}
		default:
			rest = append(rest, o)
			continue
		}
		given++
		if err := d.ss.tellDeprecated(o.Name); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case given == 0:
		return nil, rest, nil
	case about.path == "":
		return nil, nil, pgerr.Newf(pgerr.InvalidParameterValue, "%s and %s need %s", checkpoint.SettingClaimMode, checkpoint.SettingIgnoreUnclaimed, checkpoint.SettingRecoveryPath)
	}
	return about, rest, nil
}

// plan finds the operators of the new view that go on with state, and gives them the ids that they have in it.
func (r *viewRecovery) plan(d *dispatch, snap snapshotView, o *catalog.Object) error {
	ss := d.ss
	if !ss.snapshot().IsSuper(ss.role()) {
		return denied("must be superuser to set %s", checkpoint.SettingRecoveryPath)
	}
	var err error
	if r.from, err = checkpoint.OpenPath(d.ctx, r.path); err != nil {
		return atPos(err, r.pos)
	}
	if r.claim && !r.from.Savepoint {
		return pgerr.Newf(pgerr.InvalidParameterValue, "%s is a checkpoint of a server: it cannot be claimed", r.path).At(r.pos)
	}
	c, err := catalog.New(r.from.Catalog, nil)
	if err != nil {
		return err
	}
	was, ok := c.Snapshot().Lookup(o.Schema, o.Name)
	if !ok || was.Kind != catalog.MaterializedView {
		return pgerr.Newf(pgerr.UndefinedTable, "%s has no materialized view \"%s.%s\"", r.path, o.Schema, o.Name).At(r.pos).WithHint("The new view must have the name of the one whose state it takes.")
	}
	if r.state = r.from.Jobs[was.JobID()]; r.state == nil || r.state.State == nil {
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%s has no state of %q", r.path, o.Name).At(r.pos)
	}
	if len(r.state.Inflight) > 0 {
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "the checkpoint of %q in %s is unaligned: rows that were in flight are not in its state", o.Name, r.path).At(r.pos).
			WithHint("Start a server with %s in its configuration, which restores all of it, and take a savepoint there.", checkpoint.SettingRecoveryPath)
	}
	var old, now plan.Plan
	if err := errors.Join(json.Unmarshal(was.Plan, &old), json.Unmarshal(o.Plan, &now)); err != nil {
		return pgerr.Wrap(pgerr.DataCorrupted, err, "stored plan of %q is malformed", o.Name)
	}
	renumber(&old, c.Snapshot(), snap)
	// Epochs of another database mean nothing here: what reads relations is computed from them.
	r.kept = now.Keep(&old, func(uint64) bool { return true })
	if err := r.unclaimed(d, &old, &now); err != nil {
		return err
	}
	o.Plan, err = json.Marshal(&now)
	return err
}

// renumber gives the sources of a plan of another database the ids that those of the same names have here.
func renumber(p *plan.Plan, was, now interface {
	Get(id uint64) (*catalog.Object, bool)
	Lookup(schema, name string) (*catalog.Object, bool)
},
) {
	for _, f := range p.Fragments {
		f.Root.Walk(func(n *plan.Node) {
			if n.Kind != plan.KindSource {
				return
			}
			if o, ok := was.Get(n.Source.Relation); ok {
				if here, ok := now.Lookup(o.Schema, o.Name); ok && here.Kind == catalog.Source {
					n.Source.Relation = here.ID
				}
			}
		})
	}
}

// unclaimed tells the operators whose state nobody takes although it cannot be computed again.
func (r *viewRecovery) unclaimed(d *dispatch, old, now *plan.Plan) error {
	var left []string
	lasting := map[*plan.Node]bool{}
	var lasts func(n *plan.Node) bool
	lasts = func(n *plan.Node) bool {
		yes := n.Remembers()
		for _, in := range n.Inputs {
			yes = lasts(in) || yes
		}
		if n.Kind == plan.KindExchange {
			yes = lasts(old.Sender(n.Exchange))
		}
		lasting[n] = yes
		return yes
	}
	for _, f := range old.Fragments {
		lasts(f.Root)
	}
	for _, f := range old.Fragments {
		f.Root.Walk(func(n *plan.Node) {
			keeps := n.Remembers() || n.Replayable()
			if keeps && lasting[n] && (r.kept == nil || !r.kept.Nodes[n.ID]) {
				left = append(left, fmt.Sprintf("%s (operator %d)", planner.OperatorTitle(old, n), n.ID))
			}
		})
	}
	if len(left) == 0 && r.kept == nil {
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "no operator of the view goes on with state of %s", r.path).At(r.pos).
			WithDetail("What reads tables and views is computed from them.").WithHint("Create the view without %s.", checkpoint.SettingRecoveryPath)
	}
	if len(left) == 0 {
		return nil
	}
	slices.Sort(left)
	if !r.skip {
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "state in %s that no operator of the view takes: %s", r.path, strings.Join(left, ", ")).At(r.pos).
			WithHint("Set %s to leave it behind: sources are then read from where their options say.", checkpoint.SettingIgnoreUnclaimed)
	}
	d.ss.srv.log.Warn().Str("path", r.path).Strs("operators", left).Msg("state of a savepoint that no operator takes is left behind")
	return d.ss.notice("WARNING", pgerr.Warning, "state in %s that no operator of the view takes is left behind: %s", r.path, strings.Join(left, ", "))
}

// adoption makes the state local.
func (r *viewRecovery) adoption(d *dispatch, o *catalog.Object) (*exec.Adoption, error) {
	srv := d.ss.srv
	if r.kept == nil {
		return nil, nil
	}
	r.dir = filepath.Join(srv.cfg.DataDir, scratchDir, fmt.Sprintf("view-%d", o.ID))
	snap, err := srv.coord.Fetch(d.ctx, r.state, r.dir)
	if err != nil {
		return nil, err
	}
	js := *r.state
	js.State, js.Epoch = snap, srv.engine.Epoch()
	return &exec.Adoption{Kept: r.kept, State: &js}, nil
}

// done makes what the view has taken over the server's own: a checkpoint holds it before anybody is told that the view is there.
func (r *viewRecovery) done(d *dispatch, j *exec.Job) error {
	srv := d.ss.srv
	if _, err := srv.coord.Trigger(d.ctx, nil); err != nil {
		return err
	}
	if !j.Checkpointed() {
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "there is no checkpoint of the state that the view has taken over")
	}
	if !r.claim {
		return nil
	}
	return checkpoint.DisposeSavepoint(d.ctx, r.path)
}

// create prepares the job of the new view, which takes over state when there is some to.
func (r *viewRecovery) create(d *dispatch, o *catalog.Object) (*exec.Job, error) {
	adopt, err := r.adoption(d, o)
	if err != nil {
		return nil, err
	}
	spec, err := jobSpec(o)
	if err != nil {
		return nil, err
	}
	spec.Reads, spec.Adopt = d.ss.tx.hidden(), adopt
	return d.ss.srv.createJobOf(o, spec, nil)
}
