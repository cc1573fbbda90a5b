package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// errBlocked: what the job reads from did not complete the same checkpoint.
var errBlocked = errors.New("a relation it reads from did not complete the checkpoint")

// errExpired: no answer within the timeout.
var errExpired = errors.New("checkpoint expired before completing")

// errNotPublished: the store failed. Not the job's fault, so not counted against it.
var errNotPublished = errors.New("publishing the checkpoint failed")

// counted tells whether a failure counts towards TolerableFailures.
func counted(err error) bool {
	return !errors.Is(err, ErrNotRunning) && !errors.Is(err, errBlocked) && !errors.Is(err, errNotPublished)
}

// ack takes in a participant's state. A late one, of a checkpoint given up, is answered so that the participant lets its files go.
func (c *core) ack(now time.Time, s *JobState, acts []action) []action {
	p := c.find(s.Checkpoint)
	var q *part
	if p != nil {
		q = p.parts[s.Job]
	}
	switch {
	case q == nil || q.state == partFailed:
		if known := c.known[s.Job]; known != nil {
			acts = append(acts, actNotify{participant: known, id: s.Checkpoint})
		}
		return acts
	case !q.open():
		return acts
	}
	s.Epoch, s.Name, s.Inputs = p.epoch, q.p.Name(), q.inputs
	if s.Unchanged && !c.entries[s.Job] {
		s.Unchanged = false // nothing durable to be equal to
	}
	q.state, q.ack = partAcked, s
	if p.firstAck.IsZero() {
		p.firstAck = now
	}
	c.stats.acknowledged(p, q)
	return acts
}

func (c *core) decline(now time.Time, e evDecline, acts []action) []action {
	p := c.find(e.id)
	if p == nil || p.parts[e.job] == nil {
		return acts
	}
	return c.fail(now, p, e.job, e.err, acts)
}

// fail gives up a part, unless it is being or has been published, and everything in the same checkpoint that reads from it.
func (c *core) fail(now time.Time, p *pendingCheckpoint, job uint64, err error, acts []action) []action {
	q := p.parts[job]
	if q.state >= partPublishing {
		return acts
	}
	expired := errors.Is(err, errExpired) || errors.Is(err, errBlocked)
	if q.state == partAcked || expired && q.state == partTriggered {
		acts = append(acts, actNotify{participant: q.p, id: p.id})
	}
	acts = c.failed(now, p, q, err, acts)
	if p.savepoint != nil {
		return c.failSavepoint(now, p, q, err, acts)
	}
	return c.failReaders(now, p, job, err, acts)
}

func (c *core) failReaders(now time.Time, p *pendingCheckpoint, job uint64, err error, acts []action) []action {
	for _, id := range p.order {
		if r := p.parts[id]; r.state < partPublishing && slices.Contains(r.inputs, job) {
			acts = c.fail(now, p, id, fmt.Errorf("%w (%s): %w", errBlocked, p.parts[job].p.Name(), err), acts)
		}
	}
	return acts
}

// failed records that a part will not be published.
func (c *core) failed(now time.Time, p *pendingCheckpoint, q *part, err error, acts []action) []action {
	job := q.p.ID()
	q.state, q.err = partFailed, err
	c.stats.failed(now, p, q)
	if counted(err) && p.savepoint == nil {
		c.failures[job]++
		acts = append(acts, actLog{id: p.id, job: q.p.Name(), msg: "checkpoint failed", err: err})
		if c.failures[job] > c.cfg.TolerableFailures {
			c.failures[job] = 0
			acts = append(acts, actFailJob{job: job, err: fmt.Errorf("checkpoint %d failed more often than %s allows: %w", p.id, SettingTolerableFailures, err)})
		}
	}
	c.freed(p, job)
	for _, r := range slices.Clone(c.requests) {
		if r.from > p.id || !r.remaining[job] || p.savepoint != nil {
			continue
		}
		if r.jobs == nil && errors.Is(err, ErrNotRunning) {
			delete(r.remaining, job)
			continue
		}
		if errors.Is(err, ErrNotRunning) {
			err = notPossible(job, err)
		}
		acts = c.finish(r, reply{err: fmt.Errorf("checkpoint %d of %q: %w", p.id, q.p.Name(), err)}, acts)
	}
	return acts
}

// done records that a part is durable.
func (c *core) done(now time.Time, p *pendingCheckpoint, q *part, uploaded int64, notify bool, acts []action) []action {
	job := q.p.ID()
	q.state = partDone
	c.failures[job] = 0
	c.stats.completed(now, p, q, uploaded)
	if notify {
		acts = append(acts, actNotify{participant: q.p, id: p.id, outcome: complete})
	}
	c.freed(p, job)
	for _, r := range slices.Clone(c.requests) {
		if r.from <= p.id && r.remaining[job] {
			delete(r.remaining, job)
		}
	}
	return acts
}

// freed lets a participant take part in the next checkpoint.
func (c *core) freed(p *pendingCheckpoint, job uint64) {
	if c.busy[job] == p.id {
		delete(c.busy, job)
	}
	for _, r := range c.requests {
		if r.blockers[job] {
			r.retry = true
		}
	}
}

// finish answers a request.
func (c *core) finish(r *request, with reply, acts []action) []action {
	n := len(c.requests)
	if c.requests = slices.DeleteFunc(c.requests, func(x *request) bool { return x == r }); len(c.requests) == n {
		return acts // cancelled
	}
	return append(acts, actReply{request: r, reply: with})
}

// failOpen gives up whatever a job has in flight.
func (c *core) failOpen(now time.Time, job uint64, err error, acts []action) []action {
	for _, p := range c.pending {
		if p.parts[job] != nil {
			acts = c.fail(now, p, job, err, acts)
		}
	}
	return acts
}

// answerRestarts lets runtimes go on whose jobs have nothing in the batch that is being published.
func (c *core) answerRestarts(acts []action) []action {
	c.restarts = slices.DeleteFunc(c.restarts, func(r *restart) bool {
		if c.publishing != nil {
			for _, ids := range c.publishing.parts {
				if slices.ContainsFunc(r.jobs, func(job uint64) bool { return slices.Contains(ids, job) }) {
					return false
				}
			}
		}
		acts = append(acts, actRestart{restart: r})
		return true
	})
	return acts
}

// drop removes a job from the checkpoints that begin from now on; those that have begun still hold a catalog that knows it.
func (c *core) drop(job uint64) {
	from := c.nextID
	if c.beginning {
		from++
	}
	c.dropped[job] = from
	delete(c.failures, job)
	delete(c.known, job)
}

// expire gives up the participants that have not answered in time.
func (c *core) expire(now time.Time, acts []action) []action {
	for _, p := range c.pending {
		if now.Before(p.triggered.Add(c.cfg.Timeout)) {
			continue
		}
		for _, id := range p.order {
			if p.parts[id].open() {
				acts = c.fail(now, p, id, fmt.Errorf("%w: no answer within %v", errExpired, c.cfg.Timeout), acts)
			}
		}
	}
	return acts
}

// ready returns the acknowledged participants of p that the causal rule lets be published.
func (c *core) ready(p *pendingCheckpoint) []uint64 {
	ok := map[uint64]bool{}
	var ids []uint64
	// Inputs come before readers in p.order, so one pass decides.
	for _, id := range p.order {
		q := p.parts[id]
		good := q.state == partAcked || q.state == partDone
		for _, in := range q.inputs {
			good = good && ok[in]
		}
		ok[id] = good
		if good && q.state == partAcked {
			ids = append(ids, id)
		}
	}
	return ids
}

// publish puts together what is due and hands it to the publisher; what changed nothing is done at once.
func (c *core) publish(now time.Time, acts []action) []action {
	if c.publishing != nil {
		return acts
	}
	b := &batch{parts: map[*pendingCheckpoint][]uint64{}}
	for _, p := range c.pending {
		if p.savepoint != nil {
			continue
		}
		ids := c.ready(p)
		open := p.anyOpen()
		if open && (p.firstAck.IsZero() || now.Before(p.firstAck.Add(c.cfg.GroupWindow))) || open && len(ids) == 0 {
			continue
		}
		if len(ids) == 0 && p.catalogDone {
			continue
		}
		c.collect(p, ids, b)
	}
	if len(b.parts) == 0 {
		return acts
	}
	for job, from := range c.dropped {
		switch {
		case !c.entries[job] && c.busy[job] == 0:
			delete(c.dropped, job)
		case from <= b.id:
			b.drop = append(b.drop, job)
		}
	}
	slices.Sort(b.drop)
	if len(b.changed) == 0 && len(b.drop) == 0 && b.catalog == nil {
		for p, ids := range b.parts {
			for _, id := range ids {
				acts = c.done(now, p, p.parts[id], 0, true, acts)
			}
			p.firstAck = time.Time{}
			c.lastSuccess = now
		}
		return c.settle(now, acts)
	}
	for p, ids := range b.parts {
		for _, id := range ids {
			p.parts[id].state = partPublishing
		}
		p.firstAck = time.Time{}
	}
	c.publishing = b
	return append(acts, actPublish{b})
}

// collect adds the given participants' states of p to b.
func (c *core) collect(p *pendingCheckpoint, ids []uint64, b *batch) {
	b.parts[p] = ids
	b.id, b.epoch = max(b.id, p.id), max(b.epoch, p.epoch)
	for _, id := range ids {
		if s := p.parts[id].ack; !s.Unchanged {
			b.changed = append(b.changed, s)
		}
	}
	// Unchanged inputs that were done without a write advance together with their readers, so that the manifest shows one instant.
	for _, id := range p.order {
		if q := p.parts[id]; q.ack != nil && q.ack.Unchanged && (q.state == partDone || slices.Contains(ids, id)) {
			b.unchanged = append(b.unchanged, q.ack)
		}
	}
	if !p.catalogDone && (b.catalog == nil || p.catalogVersion >= b.catalogVersion) {
		b.catalogVersion, b.catalog = p.catalogVersion, p.catalog
	}
}

func (c *core) published(now time.Time, e evPublished, acts []action) []action {
	b := e.batch
	c.publishing = nil
	if e.err != nil {
		if errors.Is(e.err, ErrFenced) {
			c.fatal = e.err
		}
		acts = append(acts, actLog{id: b.id, msg: "publishing a checkpoint failed", err: e.err})
		for p, ids := range b.parts {
			p.catalogDone = true // the next checkpoint brings it again
			for _, id := range ids {
				q := p.parts[id]
				acts = append(acts, actNotify{participant: q.p, id: p.id})
				acts = c.failed(now, p, q, fmt.Errorf("%w: %w", errNotPublished, e.err), acts)
				acts = c.failReaders(now, p, id, errNotPublished, acts)
			}
			p.partial = true
			for _, r := range slices.Clone(c.requests) {
				if r.begun && r.id == p.id {
					acts = c.finish(r, reply{err: fmt.Errorf("checkpoint %d: %w: %w", p.id, errNotPublished, e.err)}, acts)
				}
			}
		}
		return acts
	}
	c.lastSuccess = now
	c.haveManifest = true
	c.planPeriodic(c.nextPeriodic)
	if b.catalog != nil {
		c.catalogVersion = b.catalogVersion
	}
	for _, s := range b.changed {
		c.entries[s.Job] = true
	}
	for _, job := range b.drop {
		delete(c.entries, job)
		delete(c.dropped, job)
	}
	for p, ids := range b.parts {
		p.catalogDone = p.catalogDone || p.catalogVersion <= c.catalogVersion
		for _, id := range ids {
			acts = c.done(now, p, p.parts[id], e.result.uploaded[id], !e.result.silent, acts)
		}
	}
	c.stats.published(e.result.manifest)
	return acts
}

// settle forgets checkpoints that are over and answers the requests they cover.
func (c *core) settle(now time.Time, acts []action) []action {
	c.pending = slices.DeleteFunc(c.pending, func(p *pendingCheckpoint) bool {
		complete := !p.partial
		for _, q := range p.parts {
			if q.state != partDone && q.state != partFailed {
				return false
			}
			complete = complete && q.state == partDone
		}
		if !p.catalogDone || c.publishing != nil && c.publishing.parts[p] != nil {
			return false
		}
		if p.id == c.nextID-1 && p.savepoint == nil {
			c.settled = complete
		}
		return true
	})
	for _, r := range slices.Clone(c.requests) {
		if r.savepoint == nil && r.begun && len(r.remaining) == 0 && !slices.ContainsFunc(c.pending, func(p *pendingCheckpoint) bool { return p.id == r.id }) {
			acts = c.finish(r, reply{id: r.id}, acts)
		}
	}
	return acts
}

// stop ends everything with err. What is being published stays undecided: its outcome is in HEAD.
func (c *core) stop(now time.Time, err error) []action {
	var acts []action
	for _, p := range c.pending {
		for _, id := range p.order {
			if q := p.parts[id]; q.state == partTriggered || q.state == partAcked || q.state == partPublishing && p.savepoint != nil {
				q.state, q.err = partFailed, err
				c.stats.failed(now, p, q)
				acts = append(acts, actNotify{participant: q.p, id: p.id})
			}
		}
	}
	for _, r := range slices.Clone(c.requests) {
		acts = c.finish(r, reply{err: err}, acts)
	}
	for _, r := range c.restarts {
		acts = append(acts, actRestart{restart: r, err: err})
	}
	c.restarts = nil
	c.last = true
	if c.fatal == nil {
		c.fatal = pgerr.Newf(pgerr.AdminShutdown, "the checkpoint coordinator has stopped")
	}
	return acts
}
