package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Backlogger is a participant that may have to work off what piled up, and is then checkpointed more rarely.
type Backlogger interface{ Backlog() bool }

// plan is a checkpoint that is about to begin.
type plan struct {
	id       uint64
	cut      Cut
	all      map[uint64]Participant
	left     map[uint64]error // who does not take part, and why
	blockers []uint64         // who had something in flight
	requests []*request
}

// serves reports whether a request has something of the checkpoint: not when an earlier one covers it meanwhile, or has all that is left of it in flight.
func (pl *plan) serves(r *request) bool {
	if !r.begun || r.savepoint != nil {
		return true
	}
	for id := range r.remaining {
		if pl.all[id] != nil && pl.left[id] == nil && pl.cut.Means(id) {
			return true
		}
	}
	return false
}

const (
	// Participants that are due within a tenth of their interval, and not later than shareMax, join a checkpoint that begins.
	shareDivisor = 10
	shareMax     = time.Second
	// A job that fails one checkpoint after the other is asked more and more rarely, down to every backoffMax intervals.
	backoffMax = 8
	// maxCleaning is how many removals of old checkpoints may be under way when another checkpoint begins.
	maxCleaning = 4
)

// held reports that no checkpoint begins because too many old ones are still being removed.
func (c *core) held() bool { return c.cleaning > maxCleaning }

// anyDue reports whether a periodic checkpoint is.
func (c *core) anyDue(now time.Time) bool {
	if c.last || c.held() {
		return false
	}
	for _, m := range c.members {
		if !m.next.IsZero() && !now.Before(m.next) {
			return true
		}
	}
	return false
}

// interval is the effective one between periodic checkpoints.
func interval(s JobSettings) time.Duration {
	if s.Interval <= 0 {
		return 0
	}
	return max(s.Interval, s.MinPause)
}

// enroll takes in who is there now, with which settings.
func (c *core) enroll(now time.Time, participants []Participant) map[uint64]Participant {
	all := map[uint64]Participant{}
	own := interval(c.cfg.JobSettings())
	for _, p := range participants {
		id, s := p.ID(), p.Settings()
		all[id] = p
		m := c.members[id]
		isNew := m == nil
		if isNew {
			m = &member{}
			c.members[id] = m
		}
		m.p = p
		every := interval(s)
		if !isNew && m.every == every && m.pause == s.MinPause {
			continue
		}
		m.every, m.pause = every, s.MinPause
		switch {
		case every == 0:
			m.next = time.Time{}
		case !isNew:
			m.next = now.Add(every)
		case every == own && !c.phase(id, own).IsZero():
			m.next = c.phase(id, own) // jobs without an interval of their own are checkpointed together
		default:
			// What starts together should not hit a store together.
			m.next = now.Add(m.pause + time.Duration(c.random()*float64(every-m.pause)))
		}
		m.pauses()
	}
	for id, m := range c.members {
		if all[id] == nil {
			m.next, m.every = time.Time{}, 0
		}
	}
	return all
}

// phase is when the next checkpoint of the others with the given interval is due.
func (c *core) phase(job uint64, every time.Duration) time.Time {
	var t time.Time
	for id, m := range c.members {
		if id != job && m.every == every && !m.next.IsZero() && (t.IsZero() || m.next.Before(t)) {
			t = m.next
		}
	}
	return t
}

// pauses puts off the next periodic checkpoint when it would come too soon after the last completed one.
func (m *member) pauses() {
	if earliest := m.success.Add(m.pause); !m.next.IsZero() && !m.success.IsZero() && m.next.Before(earliest) {
		m.next = earliest
	}
}

// replan puts the next periodic checkpoint one interval after now.
func (m *member) replan(now time.Time) {
	if m.every > 0 {
		m.next = now.Add(m.every)
		m.pauses()
	}
}

// dueJobs are those whose periodic checkpoint is due, and those that may as well join them.
func (c *core) dueJobs(now time.Time, all map[uint64]Participant) []uint64 {
	var due, joining []uint64
	for _, id := range slices.Sorted(maps.Keys(all)) {
		m := c.members[id]
		switch {
		case m.next.IsZero():
		case !now.Before(m.next):
			if at := m.backlogged(now); !at.IsZero() {
				m.next = at
				continue
			}
			due = append(due, id)
		case !now.Before(m.next.Add(-min(shareMax, m.every/shareDivisor))) && (m.success.IsZero() || !now.Before(m.success.Add(m.pause))) && m.backlogged(now).IsZero():
			joining = append(joining, id)
		}
	}
	if len(due) == 0 {
		return nil
	}
	return append(due, joining...)
}

// backlogged returns when to look again at a participant that catches up and is not due yet because of that.
func (m *member) backlogged(now time.Time) time.Time {
	b, ok := m.p.(Backlogger)
	if !ok || !b.Backlog() {
		return time.Time{}
	}
	at := now.Add(m.every)
	if s := m.p.Settings(); s.BacklogInterval > 0 {
		due := m.triggered.Add(s.BacklogInterval)
		if !now.Before(due) {
			return time.Time{}
		}
		if due.Before(at) {
			at = due
		}
	}
	return at
}

// plan decides whether a checkpoint begins, and for whom.
func (c *core) plan(now time.Time, participants []Participant, acts []action) []action {
	c.planning, c.changed = false, false
	all := c.enroll(now, participants)
	if len(c.requests) > 0 && c.requests[0].savepoint != nil {
		if i := slices.IndexFunc(c.requests, func(r *request) bool { return r.savepoint != nil && !r.begun }); i >= 0 {
			return c.planSavepoint(c.requests[i], all, acts)
		}
	}
	if c.held() {
		return acts
	}
	cut := Cut{Kind: KindCheckpoint}
	var jobs []uint64
	var asking []*request
	for _, r := range c.requests {
		if r.savepoint != nil || r.begun && !r.retry {
			continue
		}
		if r.stop != nil {
			if cut.Savepoint != nil {
				continue // one at a time
			}
			cut.Savepoint = r.stop
		}
		asking = append(asking, r)
		switch {
		case r.begun:
			jobs = slices.AppendSeq(jobs, maps.Keys(r.remaining))
		case r.Jobs == nil:
			jobs = slices.AppendSeq(jobs, maps.Keys(all))
		default:
			jobs = append(jobs, r.Jobs...)
		}
		cut.Full = cut.Full || r.Type == TypeFull
		cut.Incremental = cut.Incremental || r.Type == TypeIncremental
	}
	var due []uint64
	if !c.last {
		due = c.dueJobs(now, all)
	}
	jobs = append(jobs, due...)
	left := c.leftOut(all, closure(all, jobs, Participant.Inputs))
	// What is free is cut only for somebody who is, too.
	jobs = slices.DeleteFunc(jobs, func(id uint64) bool { return left[id] != nil })
	cut.Jobs = map[uint64]bool{}
	settled := len(asking) == 0 && len(c.dropped) == 0
	for id := range closure(all, jobs, Participant.Inputs) {
		cut.Jobs[id] = true
		settled = settled && c.members[id].done >= c.quietSince
	}
	for _, id := range due {
		c.members[id].replan(now) // those that are busy have missed it
	}
	pl := &plan{id: c.nextID, all: all, left: left, requests: asking}
	for id := range all {
		if c.inFlight(id) > 0 {
			pl.blockers = append(pl.blockers, id)
		}
	}
	if len(cut.Jobs) == 0 && (len(all) > 0 || len(asking) == 0) {
		for _, r := range asking {
			acts = c.note(r, pl, acts)
		}
		return acts
	}
	if len(cut.Jobs) == len(all) {
		cut.Jobs = nil
	}
	pl.cut = cut
	c.planned = pl
	c.nextID++
	return append(acts, actBegin{id: pl.id, cut: cut, mayBeQuiet: settled})
}

// closure is the given ones of all jobs and all that they read from.
func closure[J any](all map[uint64]J, jobs []uint64, inputs func(J) []uint64) map[uint64]J {
	want := map[uint64]J{}
	var add func(id uint64)
	add = func(id uint64) {
		j, known := all[id]
		if _, done := want[id]; done || !known {
			return
		}
		want[id] = j
		for _, in := range inputs(j) {
			add(in)
		}
	}
	for _, id := range jobs {
		add(id)
	}
	return want
}

// leftOut tells which participants cannot take part, and why: those that have enough in flight, not wanted ones, and those that read from such.
func (c *core) leftOut(all, want map[uint64]Participant) map[uint64]error {
	// What is read from may have as many in flight as its readers, else these could not.
	limit := map[uint64]int{}
	var raise func(id uint64, n int)
	raise = func(id uint64, n int) {
		if want[id] == nil {
			return
		}
		if want[id].Settings().Unaligned {
			n = 1 // a newer one would overtake it
		}
		if limit[id] >= n {
			return
		}
		limit[id] = n
		for _, in := range want[id].Inputs() {
			raise(in, n)
		}
	}
	for id, p := range want {
		raise(id, max(1, p.Settings().MaxConcurrent))
	}
	left := map[uint64]error{}
	for id, q := range all {
		switch {
		case want[id] == nil:
			left[id] = errNotWanted
		case slices.ContainsFunc(c.restarts, func(r *restart) bool { return slices.Contains(r.jobs, id) }):
			left[id] = ErrNotRunning
		case c.inFlight(id) >= limit[id]:
			left[id] = errBusy
		default:
			for _, in := range q.Inputs() {
				if all[in] == nil {
					left[id] = fmt.Errorf("reads from relation %d, which takes no part in checkpoints", in)
				}
			}
		}
	}
	ids := slices.Sorted(maps.Keys(all))
	for changed := true; changed; {
		changed = false
		for _, id := range ids {
			for _, in := range all[id].Inputs() {
				if left[id] == nil && left[in] != nil {
					left[id] = left[in]
					changed = true
				}
			}
		}
	}
	return left
}

var (
	errNotWanted = errors.New("not asked for")
	errBusy      = errors.New("busy with an earlier checkpoint")
)

// begun triggers the participants of the checkpoint that has begun.
func (c *core) begun(now time.Time, e evBegun, acts []action) []action {
	pl := c.planned
	c.planned = nil
	if e.quiet {
		c.nextID = e.id // it was not given out
		for _, r := range c.requests {
			r.from = min(r.from, e.id)
		}
		for job, from := range c.dropped {
			c.dropped[job] = min(from, e.id)
		}
		return acts
	}
	if e.err == nil && e.epoch != c.lastEpoch+1 {
		c.quietSince = e.id // something has happened since the last one
	}
	c.lastEpoch = max(c.lastEpoch, e.epoch)
	if e.err != nil {
		c.recent.add(e.id)
		if errors.Is(e.err, ErrFenced) {
			c.fatal = e.err
		}
		for _, r := range pl.requests {
			if pl.serves(r) {
				acts = c.finish(r, reply{err: Failed(TriggerCheckpointFailure, e.err)}, acts)
			}
		}
		return append(acts, actLog{id: e.id, msg: "checkpoint could not begin", err: e.err})
	}
	p := &pendingCheckpoint{
		id: e.id, epoch: e.epoch, cut: pl.cut, triggered: now, parts: map[uint64]*part{}, forced: len(pl.requests) > 0,
		catalogVersion: e.catalogVersion, catalog: e.catalog, deadline: now.Add(c.cfg.Timeout),
	}
	if pl.cut.Kind == KindSavepoint {
		p.savepoint = pl.requests[0]
	}
	p.catalogDone = p.savepoint != nil || c.haveManifest && e.catalogVersion <= c.catalogVersion || e.catalog == nil
	for id, q := range pl.all {
		if pl.left[id] != nil || !pl.cut.Means(id) {
			continue
		}
		s := q.Settings()
		p.parts[id] = &part{p: q, inputs: q.Inputs(), settings: s, deadline: now.Add(s.Timeout), full: pl.cut.Full || !s.Incremental && !pl.cut.Incremental}
		if d := p.parts[id].deadline; p.deadline.Before(d) {
			p.deadline = d
		}
		if m := c.members[id]; m != nil && p.savepoint == nil {
			m.triggered = now
			m.replan(now)
		}
	}
	p.order = triggerOrder(p.parts)
	if p.savepoint == nil {
		for _, r := range pl.requests {
			if pl.serves(r) {
				r.id = p.id
			}
			acts = c.note(r, pl, acts)
		}
	}
	c.pending = append(c.pending, p)
	for _, id := range p.order {
		c.stats.begin(p, p.parts[id])
	}
	for _, r := range c.restarts {
		for _, job := range r.jobs {
			if p.parts[job] != nil {
				acts = c.fail(now, p, job, restarting(), acts)
			}
		}
	}
	return c.triggerReady(p, acts)
}

// triggerOrder sorts participants so that each comes after what it reads from.
func triggerOrder(parts map[uint64]*part) []uint64 {
	depth := map[uint64]int{}
	var visit func(id uint64, limit int) int
	visit = func(id uint64, limit int) int {
		if d, ok := depth[id]; ok || limit == 0 {
			return d
		}
		d := 0
		for _, in := range parts[id].inputs {
			if parts[in] != nil {
				d = max(d, visit(in, limit-1)+1)
			}
		}
		depth[id] = d
		return d
	}
	order := make([]uint64, 0, len(parts))
	for id := range parts {
		visit(id, len(parts))
		order = append(order, id)
	}
	slices.SortFunc(order, func(a, b uint64) int { return cmp.Or(cmp.Compare(depth[a], depth[b]), cmp.Compare(a, b)) })
	return order
}

// triggerReady triggers the waiting parts whose inputs all have been.
func (c *core) triggerReady(p *pendingCheckpoint, acts []action) []action {
	for _, id := range p.order {
		part := p.parts[id]
		if part.state != partWaiting {
			continue
		}
		ready := true
		for _, in := range part.inputs {
			ready = ready && p.parts[in] != nil && p.parts[in].state > partCalled
		}
		if ready {
			part.to(partCalled)
			acts = append(acts, actTrigger{part.p, p.cut.Barrier(p.id, p.epoch, p.triggered, part.settings)})
		}
	}
	return acts
}

func (c *core) triggered(now time.Time, e evTriggered, acts []action) []action {
	p := c.find(e.id)
	if p == nil {
		return acts
	}
	if e.err != nil {
		return c.fail(now, p, e.job, e.err, acts)
	}
	if part := p.parts[e.job]; part.state == partCalled {
		part.to(partTriggered)
	}
	return c.triggerReady(p, acts)
}
