package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// Class orders what waits for a checkpoint: when too many wait, the last of the highest class is refused.
type Class uint8

// The classes. Savepoints go before all of them.
const (
	ClassManual Class = iota // a user asks
	ClassForced              // the server needs it to go on
)

// Type tells how much a checkpoint on request writes.
type Type uint8

// The types.
const (
	TypeConfigured  Type = iota // as the job's settings say
	TypeFull                    // everything
	TypeIncremental             // what changed
)

// ParseType reads the name of a type, in any case.
func ParseType(s string) (Type, bool) {
	for i, name := range []string{"CONFIGURED", "FULL", "INCREMENTAL"} {
		if strings.EqualFold(s, name) {
			return Type(i), true //nolint:gosec // of three
		}
	}
	return 0, false
}

// TriggerRequest asks for a checkpoint.
type TriggerRequest struct {
	Jobs  []uint64 // and all they read from; nil: all jobs
	Type  Type
	Class Class
}

// request is a CHECKPOINT statement: done when every job it means is covered by a checkpoint triggered after it was made; or a savepoint, which has an
// id of its own.
type request struct {
	TriggerRequest
	savepoint *SavepointSpec
	left      []uint64       // of a savepoint: who could not take part
	stop      *SavepointSpec // of a checkpoint with which the jobs end
	at        time.Time
	begun     bool
	retry     bool            // some job that was busy is free now
	blockers  map[uint64]bool // who was busy when the last checkpoint for it began
	remaining map[uint64]bool // not covered yet
	from      uint64          // ids from here on count
	id        uint64
	done      chan reply // capacity 1
}

type reply struct {
	id, epoch uint64
	path      string // of a savepoint
	left      []uint64
	err       error
}

// maxRequests bounds the requests that wait.
const maxRequests = 1000

// rank is the place in the queue: the lowest goes first.
func (r *request) rank() int {
	switch {
	case r.savepoint != nil:
		return 0
	case r.Class == ClassForced:
		return 1
	}
	return 2
}

// compareRequests orders the queue: savepoints, what the server needs, what users ask for; in each the oldest first.
func compareRequests(a, b *request) int {
	if d := a.rank() - b.rank(); d != 0 {
		return d
	}
	return a.at.Compare(b.at)
}

// enqueue takes in a request. When too many wait the newest of the lowest class is refused.
func (c *core) enqueue(now time.Time, r *request, acts []action) []action {
	r.from, r.at = c.nextID, now
	i, _ := slices.BinarySearchFunc(c.requests, r, func(x, r *request) int {
		if compareRequests(x, r) <= 0 {
			return -1
		}
		return 1
	})
	c.requests = slices.Insert(c.requests, i, r)
	if len(c.requests) <= maxRequests {
		return acts
	}
	for _, last := range slices.Backward(c.requests) {
		if !last.begun {
			err := pgerr.Newf(pgerr.ConfigurationLimitExceeded, "more than %d checkpoint requests are waiting", maxRequests)
			return c.finish(last, reply{err: Failed(TooManyCheckpointRequests, err)}, acts)
		}
	}
	return acts
}

// finish answers a request.
func (c *core) finish(r *request, with reply, acts []action) []action {
	n := len(c.requests)
	if c.requests = slices.DeleteFunc(c.requests, func(x *request) bool { return x == r }); len(c.requests) == n {
		return acts // cancelled
	}
	return append(acts, actReply{request: r, reply: with})
}

// asked reports whether a request wants a checkpoint to begin.
func (c *core) asked() bool {
	return slices.ContainsFunc(c.requests, func(r *request) bool {
		return !r.begun && r.savepoint != nil || r.savepoint == nil && (!r.begun || r.retry) && !c.held()
	})
}

// note tells which jobs a request waits for after the checkpoint pl, which began for it or did not for want of somebody who is free.
func (c *core) note(r *request, pl *plan, acts []action) []action {
	all, left := pl.all, pl.left
	r.retry = false
	if !r.begun {
		r.begun = true
		r.remaining = map[uint64]bool{}
		for _, id := range r.Jobs {
			r.remaining[id] = true
		}
		if r.Jobs == nil {
			for id := range all {
				r.remaining[id] = true
			}
		}
	}
	r.blockers = map[uint64]bool{}
	for _, id := range pl.blockers {
		r.blockers[id] = true
		r.retry = r.retry || c.inFlight(id) == 0 // meanwhile
	}
	for _, id := range slices.Sorted(maps.Keys(r.remaining)) {
		why := left[id]
		if all[id] == nil {
			why = ErrNotRunning
		}
		if why != nil && !errors.Is(why, errBusy) {
			if r.Jobs != nil {
				return c.finish(r, reply{err: notPossible(c.nameOf(id, all), why)}, acts)
			}
			delete(r.remaining, id)
		}
	}
	return acts
}

// freed lets requests go on that waited for a participant.
func (c *core) freed(job uint64) {
	for _, r := range c.requests {
		if r.blockers[job] {
			r.retry = true
		}
	}
}

// comes reports whether a participant has a part of a newer checkpoint in flight.
func (c *core) comes(job, id uint64) bool {
	return slices.ContainsFunc(c.pending, func(p *pendingCheckpoint) bool {
		q := p.parts[job]
		return p.id > id && p.savepoint == nil && q != nil && !q.ended()
	})
}

// notPossible is the error for a checkpoint of somebody, named as messages do, who cannot take part.
func notPossible(who string, why error) error {
	return Failed(NotAllRequiredTasksRunning, pgerr.Wrap(pgerr.ObjectNotInPrerequisiteState, why, "%s cannot take part in a checkpoint", who).
		WithHint("Try again when streamdb.jobs has it, and what it reads, as RUNNING."))
}

// nameOf is how messages name a participant, though it may have gone.
func (c *core) nameOf(id uint64, all map[uint64]Participant) string {
	switch p, m := all[id], c.members[id]; {
	case p != nil:
		return quoted(p)
	case m != nil:
		return quoted(m.p)
	}
	return fmt.Sprintf("job %d", id)
}

func quoted(p Participant) string { return `"` + p.Name() + `"` }

// about says in front of err which checkpoint it is about; SQLSTATE and hint stay.
func about(err error, format string, args ...any) error {
	e := pgerr.From(err)
	return pgerr.Wrap(e.Code, err, format, args...).WithHint("%s", e.Hint)
}

// covered takes job, whose part of checkpoint id is done, off the requests that wait for it.
func (c *core) covered(job, id uint64) {
	for _, r := range c.requests {
		if r.from <= id && r.savepoint == nil && (r.stop == nil || r.id == id) {
			delete(r.remaining, job)
		}
	}
}

// failRequests tells those who wait for job that its part of checkpoint id has failed.
func (c *core) failRequests(p *pendingCheckpoint, q *part, err error, acts []action) []action {
	job := q.p.ID()
	for _, r := range slices.Clone(c.requests) {
		if r.from > p.id || !r.remaining[job] {
			continue
		}
		if errors.Is(err, errSubsumed) {
			r.retry = r.retry || r.stop != nil || !c.comes(job, p.id)
			continue // the newer one covers it, or the next
		}
		if r.Jobs == nil && errors.Is(err, ErrNotRunning) {
			delete(r.remaining, job)
			continue
		}
		if errors.Is(err, ErrNotRunning) {
			err = notPossible(quoted(q.p), err)
		}
		acts = c.finish(r, reply{err: about(err, "checkpoint %d of %q", p.id, q.p.Name())}, acts)
	}
	return acts
}
