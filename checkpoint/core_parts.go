package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// errBlocked: what the job reads from did not complete the same checkpoint.
var errBlocked = errors.New("a relation it reads from did not complete the checkpoint")

// errSubsumed: a newer one was completed first.
var errSubsumed = errors.New("a newer checkpoint was completed")

// errNotPublished: the store failed.
var errNotPublished = errors.New("publishing the checkpoint failed")

// ackResult is what became of an acknowledgement.
type ackResult uint8

const (
	ackSuccess   ackResult = iota
	ackDuplicate           // it was there already
	ackDiscarded           // of a checkpoint that has ended, or of a part that was given up: the state is let go
	ackUnknown             // of a checkpoint nobody knows: the same
)

// ack takes in a participant's state. A late one, of a checkpoint given up, is answered so that the participant lets its files go.
func (c *core) ack(now time.Time, s *JobState, acts []action) (ackResult, []action) {
	p := c.find(s.Checkpoint)
	var q *part
	if p != nil {
		q = p.parts[s.Job]
	}
	switch {
	case q == nil || q.state == partFailed:
		if m := c.members[s.Job]; m != nil {
			acts = append(acts, actNotify{participant: m.p, id: s.Checkpoint})
		}
		if q != nil || c.recent.has(s.Checkpoint) {
			return ackDiscarded, acts
		}
		return ackUnknown, acts
	case !q.open():
		return ackDuplicate, acts
	case s.Unchanged && p.cut.Full:
		return ackDiscarded, c.fail(now, p, s.Job, errors.New("it has not handed in its state"), acts)
	}
	s.Epoch, s.Name, s.Inputs, s.full = p.epoch, q.p.Name(), q.inputs, q.full
	if s.Unchanged && !c.entries[s.Job] {
		s.Unchanged = false // nothing durable to be equal to
	}
	q.to(partAcked)
	q.ack = s
	if p.firstAck.IsZero() {
		p.firstAck = now
	}
	c.stats.acknowledged(now, p, q)
	return ackSuccess, acts
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
	if q.state == partAcked || q.state == partTriggered && (errors.Is(err, errBlocked) || errors.Is(err, errSubsumed) || ReasonOf(err) == CheckpointExpired) {
		acts = append(acts, actNotify{participant: q.p, id: p.id})
	}
	acts = c.failed(now, p, q, err, acts)
	if p.savepoint != nil && (p.savepoint.Jobs != nil || !errors.Is(err, ErrNotRunning)) {
		return c.failSavepoint(now, p, q, err, acts)
	}
	acts = c.failReaders(now, p, job, err, acts)
	if p.savepoint != nil && !slices.ContainsFunc(p.order, func(id uint64) bool { return p.parts[id].state != partFailed }) {
		return c.finish(p.savepoint, reply{err: notPossible(quoted(q.p), err)}, acts)
	}
	return acts
}

func (c *core) failReaders(now time.Time, p *pendingCheckpoint, job uint64, err error, acts []action) []action {
	for _, id := range p.order {
		if r := p.parts[id]; r.state < partPublishing && slices.Contains(r.inputs, job) {
			blocked := fmt.Errorf("%w (%s): %w", errBlocked, p.parts[job].p.Name(), err)
			acts = c.fail(now, p, id, Failed(CheckpointDeclinedOnCancellationBarrier, blocked), acts)
		}
	}
	return acts
}

// failed records that a part will not be published.
func (c *core) failed(now time.Time, p *pendingCheckpoint, q *part, err error, acts []action) []action {
	job := q.p.ID()
	q.to(partFailed)
	q.err = err
	c.stats.failed(now, p, q)
	c.freed(job)
	if p.savepoint != nil {
		return acts // whoever asked is told; the job goes on
	}
	// What was late after the participant had handed in its state is not its fault: starting it again would mend nothing.
	counts := q.ack == nil || ReasonOf(err) != CheckpointExpired
	if m := c.members[job]; m != nil && counts {
		if n := m.failures.failed(p.id, ReasonOf(err)); n > 0 {
			acts = append(acts, actLog{id: p.id, job: q.p.Name(), msg: "checkpoint failed", err: err})
			if n > 1 && m.every > 0 {
				m.next = now.Add(m.every * time.Duration(min(1<<min(n-1, 8), backoffMax)))
				m.pauses()
			}
			if n > m.p.Settings().TolerableFailures {
				clear(m.failures.ids)
				acts = append(acts, actFailJob{job: job, err: fmt.Errorf("checkpoint %d failed more often than %s allows: %w", p.id, SettingTolerableFailures, err)})
			}
		}
	}
	return c.failRequests(p, q, err, acts)
}

// done records that a part is durable. Older ones of the same participant have lost their use.
func (c *core) done(now time.Time, p *pendingCheckpoint, q *part, uploaded int64, path string, notify bool, acts []action) []action {
	job := q.p.ID()
	q.to(partDone)
	c.stats.completed(now, p, q, uploaded, path)
	if notify {
		acts = append(acts, actNotify{participant: q.p, id: p.id, outcome: complete})
	}
	if m := c.members[job]; m != nil {
		m.success, m.done = now, max(m.done, p.id)
		m.failures.succeeded(p.id)
		m.pauses()
	}
	c.freed(job)
	c.covered(job, p.id)
	for _, old := range c.pending {
		if o := old.parts[job]; o != nil && old.id < p.id && old.savepoint == nil && o.state < partPublishing {
			acts = c.fail(now, old, job, Failed(CheckpointSubsumed, fmt.Errorf("%w: %d", errSubsumed, p.id)), acts)
		}
	}
	return acts
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

// expire gives up what is not done in time.
func (c *core) expire(now time.Time, acts []action) []action {
	for _, p := range c.pending {
		w := p.write
		if b := c.publishing; b != nil {
			if _, in := b.parts[p]; in {
				w = b.write
			}
		}
		for _, id := range p.order {
			q := p.parts[id]
			switch {
			case q.ended() || q.late || now.Before(q.deadline):
			case q.state == partPublishing:
				q.late = true
				acts = append(acts, actGiveUp{w})
			default:
				acts = c.fail(now, p, id, expired(q), acts)
			}
		}
		if !p.catalogDone && !p.late && !now.Before(p.deadline) {
			if p.late = true; w == nil {
				p.catalogDone = true // the next checkpoint brings it again
				acts = c.notStored(p, tooLate("checkpoint %d expired before completing", p.id), acts)
			} else {
				acts = append(acts, actGiveUp{w})
			}
		}
	}
	return acts
}

func expired(q *part) error {
	what := "no answer"
	if q.ack != nil {
		what = "it was not published"
	}
	return tooLate("checkpoint expired before completing: %s within %v", what, q.settings.Timeout)
}

// tooLate is the error for what has taken longer than it may.
func tooLate(format string, args ...any) error {
	return Failed(CheckpointExpired, pgerr.Newf(pgerr.QueryCanceled, format, args...).
		WithHint("EXPLAIN CHECKPOINT tells where the time went; %s is how long one may take.", SettingTimeout))
}

// notStored tells those who wait for checkpoint p as a whole that it was not stored.
func (c *core) notStored(p *pendingCheckpoint, err error, acts []action) []action {
	for _, r := range slices.Clone(c.requests) {
		if r.begun && r.id == p.id && r.savepoint == nil {
			acts = c.finish(r, reply{err: err}, acts)
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
		if good && q.state == partAcked {
			ids = append(ids, id)
		}
		ok[id] = good
	}
	return ids
}

// due returns what is to be published now, by checkpoint.
func (c *core) due(now time.Time) map[*pendingCheckpoint][]uint64 {
	all, due := map[*pendingCheckpoint][]uint64{}, map[*pendingCheckpoint][]uint64{}
	for _, p := range c.pending {
		if p.savepoint != nil {
			continue
		}
		all[p] = c.ready(p)
		if wait := p.anyOpen() && (len(all[p]) == 0 || p.firstAck.IsZero() || now.Before(p.firstAck.Add(c.cfg.GroupWindow))); !wait && (len(all[p]) > 0 || !p.catalogDone) {
			due[p] = all[p]
		}
	}
	// What others go on from is stored before what comes after it.
	for p := c.firstNeeded(all, due); p != nil; p = c.firstNeeded(all, due) {
		maps.DeleteFunc(due, func(o *pendingCheckpoint, _ []uint64) bool { return o.id > p.id })
		due[p] = all[p]
	}
	return due
}

// firstNeeded returns the oldest checkpoint of all that lacks in due, or comes together with newer ones there, and is needed by somebody.
func (c *core) firstNeeded(all, due map[*pendingCheckpoint][]uint64) *pendingCheckpoint {
	for _, p := range c.pending {
		newer := map[uint64]bool{}
		for o, ids := range due {
			for _, id := range ids {
				newer[id] = newer[id] || o.id > p.id && slices.Contains(all[p], id)
			}
		}
		if len(newer) > 0 && p.needed(newer) {
			return p
		}
	}
	return nil
}

// needed reports whether one of the participants of which a newer state is to be published is read by one that goes on from p: its state at p must be stored first, or
// what the reader misses could not be found after a crash.
func (p *pendingCheckpoint) needed(newer map[uint64]bool) bool {
	goesOn := map[uint64]bool{} // from p
	for _, id := range slices.Backward(p.order) {
		q := p.parts[id]
		read := slices.ContainsFunc(p.order, func(r uint64) bool { return goesOn[r] && slices.Contains(p.parts[r].inputs, id) })
		if read && newer[id] {
			return true
		}
		goesOn[id] = q.state < partPublishing && (read || !newer[id])
	}
	return false
}

// publish puts together what is due and hands it to the publisher; what changed nothing is done at once.
func (c *core) publish(now time.Time, acts []action) []action {
	if c.publishing != nil {
		return acts
	}
	ready := c.due(now)
	newest := map[uint64]uint64{} // participant → the checkpoint to be published of it
	for _, p := range c.pending {
		for _, id := range ready[p] {
			newest[id] = p.id
		}
	}
	b := &batch{parts: map[*pendingCheckpoint][]uint64{}, write: &write{}}
	for _, p := range c.pending {
		ids, ok := ready[p]
		if !ok {
			continue
		}
		ids = slices.DeleteFunc(ids, func(id uint64) bool { return newest[id] != p.id }) // the newer one makes it superfluous
		if len(ids) > 0 || !p.catalogDone {
			c.collect(p, ids, b)
		}
	}
	if len(b.parts) == 0 {
		return acts
	}
	b.late = c.late(b)
	for job, from := range c.dropped {
		switch {
		case !c.entries[job] && c.inFlight(job) == 0:
			delete(c.dropped, job)
		case from <= b.id:
			b.drop = append(b.drop, job)
		}
	}
	slices.Sort(b.drop)
	// A checkpoint with which a job ends is copied from what is published.
	ends := slices.ContainsFunc(b.checkpoints(), func(p *pendingCheckpoint) bool { return p.cut.Savepoint != nil })
	if len(b.changed) == 0 && len(b.drop) == 0 && b.catalog == nil && !ends {
		for _, p := range b.checkpoints() {
			for _, id := range b.parts[p] {
				acts = c.done(now, p, p.parts[id], 0, "", true, acts)
			}
			p.firstAck = time.Time{}
		}
		return c.settle(acts)
	}
	for _, p := range b.checkpoints() {
		for _, id := range b.parts[p] {
			p.parts[id].to(partPublishing)
			c.stats.publishing(now, p, p.parts[id])
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

// late finds the checkpoints whose readers are slower than what they read. What has not changed until then is shown with that checkpoint.
func (c *core) late(b *batch) map[uint64][]uint64 {
	late := map[uint64][]uint64{}
	for _, p := range c.pending {
		if p.savepoint != nil {
			continue
		}
		for _, id := range p.order {
			q := p.parts[id]
			if q.state >= partPublishing || slices.Contains(b.parts[p], id) {
				continue
			}
			for _, in := range q.inputs {
				if p.parts[in] == nil || slices.Contains(late[in], p.id) {
					continue
				}
				late[in] = append(late[in], p.id)
			}
		}
		for _, id := range p.order {
			if q := p.parts[id]; q.state == partDone && q.ack.Unchanged {
				b.unchanged = append(b.unchanged, q.ack)
			}
		}
	}
	return late
}

func (c *core) published(now time.Time, e evPublished, acts []action) []action {
	b := e.batch
	c.publishing = nil
	if errors.Is(e.err, errGivenUp) {
		return c.givenUp(now, b, append(acts, actLog{id: b.id, msg: "publishing a checkpoint took too long", err: e.err}))
	}
	if e.err != nil {
		if errors.Is(e.err, ErrFenced) {
			c.fatal = e.err
		}
		acts = append(acts, actLog{id: b.id, msg: "publishing a checkpoint failed", err: e.err})
		for _, p := range b.checkpoints() {
			for _, id := range b.parts[p] {
				q := p.parts[id]
				acts = append(acts, actNotify{participant: q.p, id: p.id})
				acts = c.failed(now, p, q, Failed(FinalizeCheckpointFailure, fmt.Errorf("%w: %w", errNotPublished, e.err)), acts)
				acts = c.failReaders(now, p, id, errNotPublished, acts)
			}
			p.catalogDone = p.catalogDone || p.over() // what is left of it brings it, or the next checkpoint
			acts = c.notStored(p, Failed(FinalizeCheckpointFailure, fmt.Errorf("checkpoint %d: %w: %w", p.id, errNotPublished, e.err)), acts)
		}
		return acts
	}
	c.cleaning++
	c.haveManifest = true
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
	for _, p := range c.pending {
		p.catalogDone = p.catalogDone || p.catalogVersion <= c.catalogVersion
	}
	for _, p := range b.checkpoints() {
		for _, id := range b.parts[p] {
			acts = c.done(now, p, p.parts[id], e.result.uploaded[id], e.result.manifest.Object, !e.result.silent, acts)
		}
	}
	c.stats.published(e.result.manifest)
	return acts
}

// givenUp ends the parts of a batch that were late. The others are published without them, at once.
func (c *core) givenUp(now time.Time, b *batch, acts []action) []action {
	for _, p := range b.checkpoints() {
		p.firstAck = p.triggered
		for _, id := range b.parts[p] {
			p.parts[id].to(partAcked)
		}
		if p.late {
			p.catalogDone = true
			acts = c.notStored(p, tooLate("checkpoint %d expired before completing", p.id), acts)
		}
	}
	for _, p := range b.checkpoints() {
		for _, id := range b.parts[p] {
			switch q := p.parts[id]; {
			case q.late:
				acts = c.fail(now, p, id, expired(q), acts)
			case slices.ContainsFunc(c.restarts, func(r *restart) bool { return slices.Contains(r.jobs, id) }):
				acts = c.fail(now, p, id, restarting(), acts)
			case c.members[id] == nil:
				acts = c.fail(now, p, id, wasDropped(), acts)
			}
		}
	}
	return acts
}

// settle forgets checkpoints that are over and answers the requests they cover.
func (c *core) settle(acts []action) []action {
	c.pending = slices.DeleteFunc(c.pending, func(p *pendingCheckpoint) bool {
		if !p.over() || !p.catalogDone || c.publishing != nil && c.publishing.parts[p] != nil {
			return false
		}
		c.recent.add(p.id)
		return true
	})
	for _, r := range slices.Clone(c.requests) {
		if r.savepoint == nil && r.begun && len(r.remaining) == 0 && c.find(r.id) == nil {
			with := reply{id: r.id}
			if r.id == 0 {
				with.err = Failed(NotAllRequiredTasksRunning, pgerr.Wrap(pgerr.ObjectNotInPrerequisiteState, ErrNotRunning, "no job can take part in a checkpoint"))
			}
			acts = c.finish(r, with, acts)
		}
	}
	return acts
}
