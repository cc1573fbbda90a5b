package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// A savepoint has an id and an epoch of its own. It goes beside the checkpoints: it does not make its jobs busy, none that completes later ends it,
// and what it has written changes nothing for them.

// planSavepoint begins a savepoint. Somebody who cannot take part makes it fail.
func (c *core) planSavepoint(r *request, all map[uint64]Participant, acts []action) []action {
	r.begun = true
	want := all
	if r.Jobs != nil {
		want = closure(all, r.Jobs, Participant.Inputs)
	}
	for _, id := range r.Jobs {
		if all[id] == nil {
			return c.finish(r, reply{err: notPossible(c.nameOf(id, all), ErrNotRunning)}, acts)
		}
	}
	if len(want) == 0 {
		return c.finish(r, reply{err: Failed(NotAllRequiredTasksRunning, pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "there is nothing to make a savepoint of"))}, acts)
	}
	cut := Cut{Kind: KindSavepoint, Savepoint: r.savepoint, Full: true, Jobs: map[uint64]bool{}}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		cut.Jobs[id] = true
		for _, in := range want[id].Inputs() {
			if all[in] == nil {
				return c.finish(r, reply{err: notPossible(quoted(want[id]), fmt.Errorf("it reads from relation %d, which takes no part in checkpoints", in))}, acts)
			}
		}
	}
	if len(cut.Jobs) == len(all) {
		cut.Jobs = nil
	}
	c.planned = &plan{id: c.nextID, cut: cut, all: all, requests: []*request{r}}
	c.nextID++
	return append(acts, actBegin{id: c.planned.id, cut: cut})
}

// writeSavepoints hands the savepoints to the publisher that all have acknowledged; of one of the whole database those who cannot take part now are left out.
func (c *core) writeSavepoints(acts []action) []action {
	for _, p := range c.pending {
		here := func(id uint64) bool { return p.parts[id].state == partAcked }
		open := func(id uint64) bool { return !here(id) && p.parts[id].state != partFailed }
		if p.savepoint == nil || !slices.ContainsFunc(p.order, here) || slices.ContainsFunc(p.order, open) {
			continue
		}
		p.write = &write{}
		a := actSavepoint{id: p.id, epoch: p.epoch, spec: p.savepoint.savepoint, catalogVersion: p.catalogVersion, catalog: p.catalog, write: p.write}
		for _, id := range p.order {
			if !here(id) {
				p.savepoint.left = append(p.savepoint.left, id)
				continue
			}
			p.parts[id].to(partPublishing)
			a.states = append(a.states, p.parts[id].ack)
		}
		acts = append(acts, a)
	}
	return acts
}

// failSavepoint gives up all parts of a savepoint after that of q has failed, and tells who asked for it.
func (c *core) failSavepoint(now time.Time, p *pendingCheckpoint, q *part, err error, acts []action) []action {
	reason := ReasonOf(err)
	if errors.Is(err, ErrNotRunning) {
		err = notPossible(quoted(q.p), err)
	}
	err = about(err, "savepoint %d of %q", p.id, q.p.Name())
	acts = c.finish(p.savepoint, reply{err: err}, acts)
	for _, id := range p.order {
		if o := p.parts[id]; o.state < partPublishing {
			if o.state > partCalled {
				acts = append(acts, actNotify{participant: o.p, id: p.id})
			}
			acts = c.failed(now, p, o, Failed(reason, fmt.Errorf("%w: %w", errBlocked, err)), acts)
		}
	}
	return acts
}

// savepointWritten ends a savepoint.
func (c *core) savepointWritten(now time.Time, e evSavepoint, acts []action) []action {
	p := c.find(e.id)
	if p == nil {
		return acts
	}
	told := savepoint
	switch {
	case errors.Is(e.err, errGivenUp):
		told, e.err = aborted, tooLate("savepoint %d expired before completing", p.id)
	case e.err != nil:
		told, e.err = aborted, Failed(FinalizeCheckpointFailure, e.err)
	}
	for _, id := range p.order {
		q := p.parts[id]
		if q.state == partFailed {
			continue
		}
		acts = append(acts, actNotify{participant: q.p, id: p.id, outcome: told})
		if e.err != nil {
			acts = c.failed(now, p, q, e.err, acts)
			continue
		}
		q.to(partDone)
		c.stats.completed(now, p, q, 0, e.path)
		c.freed(id)
	}
	return c.finish(p.savepoint, reply{id: p.id, epoch: p.epoch, path: e.path, left: p.savepoint.left, err: e.err}, acts)
}
