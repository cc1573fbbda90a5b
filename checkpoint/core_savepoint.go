package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// A savepoint has an id and an epoch of its own. It goes beside the checkpoints: it does not make its jobs busy, none that completes later ends it,
// and what it has written changes nothing for them.

// begunSavepoint triggers all that the savepoint is to hold. One that cannot take part makes it fail.
func (c *core) begunSavepoint(now time.Time, e evBegun, acts []action) []action {
	r := e.savepoint
	c.nextID = e.id + 1
	c.settled = false // the clock now counts from here, and no checkpoint holds what came before
	r.begun = true
	if e.err == nil {
		e.err = c.savepointMisses(e)
	}
	if e.err != nil {
		if errors.Is(e.err, ErrFenced) {
			c.fatal = e.err
		}
		return c.finish(r, reply{err: e.err}, acts)
	}
	p := &pendingCheckpoint{
		id: e.id, epoch: e.epoch, cut: e.cut, savepoint: r, triggered: now, parts: map[uint64]*part{}, forced: true,
		catalogVersion: e.catalogVersion, catalog: e.catalog, catalogDone: true,
	}
	for _, q := range e.participants {
		if e.cut.Means(q.ID()) {
			c.known[q.ID()] = q
			p.parts[q.ID()] = &part{p: q, inputs: q.Inputs()}
		}
	}
	p.order = triggerOrder(p.parts)
	c.pending = append(c.pending, p)
	for id := range p.parts {
		c.stats.begin(p, p.parts[id])
	}
	return c.triggerReady(p, acts)
}

// savepointMisses is the error for a savepoint that needs somebody who takes no part in checkpoints.
func (c *core) savepointMisses(e evBegun) error {
	all := map[uint64]bool{}
	for _, q := range e.participants {
		all[q.ID()] = true
	}
	for _, id := range e.savepoint.jobs {
		if !all[id] {
			return notPossible(id, ErrNotRunning)
		}
	}
	for _, q := range e.participants {
		for _, in := range q.Inputs() {
			if e.cut.Means(q.ID()) && !all[in] {
				return notPossible(q.ID(), fmt.Errorf("it reads from relation %d, which takes no part in checkpoints", in))
			}
		}
	}
	return nil
}

// writeSavepoints hands the savepoints to the publisher that all have acknowledged.
func (c *core) writeSavepoints(acts []action) []action {
	for _, p := range c.pending {
		if p.savepoint == nil || slices.ContainsFunc(p.order, func(id uint64) bool { return p.parts[id].state != partAcked }) {
			continue
		}
		a := actSavepoint{id: p.id, epoch: p.epoch, spec: p.savepoint.savepoint, catalogVersion: p.catalogVersion, catalog: p.catalog}
		for _, id := range p.order {
			p.parts[id].state = partPublishing
			a.states = append(a.states, p.parts[id].ack)
		}
		acts = append(acts, a)
	}
	return acts
}

// failSavepoint gives up all parts of a savepoint after that of q has failed, and tells who asked for it.
func (c *core) failSavepoint(now time.Time, p *pendingCheckpoint, q *part, err error, acts []action) []action {
	if errors.Is(err, ErrNotRunning) {
		err = notPossible(q.p.ID(), err)
	}
	err = fmt.Errorf("savepoint %d of %q: %w", p.id, q.p.Name(), err)
	acts = c.finish(p.savepoint, reply{err: err}, acts)
	for _, id := range p.order {
		if o := p.parts[id]; o.state < partPublishing {
			acts = append(acts, actNotify{participant: o.p, id: p.id})
			acts = c.failed(now, p, o, fmt.Errorf("%w: %w", errBlocked, err), acts)
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
	if e.err != nil {
		told = aborted
	}
	for _, id := range p.order {
		q := p.parts[id]
		acts = append(acts, actNotify{participant: q.p, id: p.id, outcome: told})
		if e.err != nil {
			acts = c.failed(now, p, q, fmt.Errorf("%w: %w", errNotPublished, e.err), acts)
			continue
		}
		q.state = partDone
		c.stats.completed(now, p, q, 0)
	}
	return c.finish(p.savepoint, reply{id: p.id, epoch: p.epoch, path: e.path, err: e.err}, acts)
}
