package server

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/object"
)

// Where the store fails for now, a start tries again to fetch what views that are behind need: after recallFirst, then twice as long up to recallLast, for recallPatience in all.
const (
	recallFirst    = 100 * time.Millisecond
	recallLast     = 5 * time.Second
	recallPatience = time.Minute
)

// recall gives relations that are being restored back what views missed that were not part of the newest checkpoint: paused ones, ones that were starting again,
// slow ones. The manifest holds for them what the relations were when they last took part.
type recall struct {
	s *Server
	m *checkpoint.Manifest
	// readers are, by relation, what the jobs that read it and are behind others go on from.
	readers map[uint64][]*checkpoint.JobState
	held    map[*checkpoint.HeldState]*heldCopy
	until   time.Time // patience ends then; zero: nothing has failed yet
}

// heldCopy is a held state as it is needed for the relations in it, each when it is first asked for.
type heldCopy struct {
	catalog *catalog.Snapshot // nil: it cannot be read
	state   *state.Snapshot   // with local files; nil: not fetched yet
}

func (s *Server) newRecall(m *checkpoint.Manifest) *recall {
	r := &recall{s: s, m: m, readers: map[uint64][]*checkpoint.JobState{}, held: map[*checkpoint.HeldState]*heldCopy{}}
	if m == nil {
		return r
	}
	for _, o := range s.catalog.Snapshot().Objects() {
		js := m.Jobs[o.JobID()]
		if o.Plan == nil || js == nil || js.Epoch >= m.Epoch { // nothing that it reads is newer
			continue
		}
		spec, err := jobSpec(o)
		if err != nil {
			continue // reported when the job is made
		}
		for _, in := range spec.Plan.Inputs {
			r.readers[in] = append(r.readers[in], js)
		}
	}
	return r
}

// patiently fetches a state, again after errors that may pass: a view that does not find what it missed is computed again, and a sink that has written rows cannot be.
func (r *recall) patiently(ctx context.Context, fetch func() error) error {
	for pause := recallFirst; ; pause = min(2*pause, recallLast) {
		err := fetch()
		if err == nil || !object.IsRetryable(err) {
			return err
		}
		if r.until.IsZero() {
			r.until = time.Now().Add(recallPatience)
		}
		if time.Until(r.until) < pause {
			return err
		}
		r.s.log.Warn().Err(err).Dur("retry_in", pause).Msg("a state that views which are behind need cannot be fetched: the start tries again")
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// newest fetches the state that a job goes on from, patiently when what views missed is how it differs from one that is held.
func (r *recall) newest(ctx context.Context, o *catalog.Object, fetch func(job uint64) (*checkpoint.JobState, error)) func(job uint64) (*checkpoint.JobState, error) {
	return func(job uint64) (js *checkpoint.JobState, err error) {
		behind := func(reader *checkpoint.JobState) bool {
			now := r.m.Jobs[job]
			return now != nil && now.Since() > reader.Checkpoint
		}
		if !slices.ContainsFunc(r.readers[o.ID], behind) {
			return fetch(job)
		}
		err = r.patiently(ctx, func() (err error) {
			js, err = fetch(job)
			return err
		})
		return js, err
	}
}

// relation is called for each relation that was restored from now, before the views that read it. Where the past cannot be had these are computed
// again.
func (r *recall) relation(ctx context.Context, o *catalog.Object, now *checkpoint.JobState) {
	if now == nil || len(r.readers[o.ID]) == 0 {
		return
	}
	held := map[*checkpoint.HeldState]uint64{} // with the epoch of the earliest reader
	at := now.Epoch                            // the earliest of those who have taken in all of what is there now
	for _, js := range r.readers[o.ID] {
		if now.Since() <= js.Checkpoint {
			at = min(at, js.Epoch)
			continue
		}
		h := r.m.HeldAt(now.Job, js.Checkpoint)
		if h == nil || !r.sameRows(o, h) {
			continue
		}
		if e, ok := held[h]; !ok || js.Epoch < e {
			held[h] = js.Epoch
		}
	}
	if len(held) == 0 && at == now.Epoch {
		return
	}
	rel, ok := r.s.engine.Relation(o.ID)
	if !ok {
		return
	}
	if err := r.bring(ctx, rel, now, held, at); err != nil {
		r.s.log.Warn().Err(err).Str("relation", o.Name).Msg("what views missed of a relation cannot be found: they are computed again")
		r.s.engine.NotRecalled(rel, err)
	}
}

func (r *recall) bring(ctx context.Context, rel *exec.Relation, now *checkpoint.JobState, held map[*checkpoint.HeldState]uint64, at uint64) error {
	if len(held) > 0 && len(now.Inflight) > 0 {
		return errors.New("its checkpoint is unaligned: what it held then is not all in its state")
	}
	var past []exec.PastState
	for h, epoch := range held {
		c := r.held[h]
		if c.state == nil {
			err := r.patiently(ctx, func() (err error) {
				c.state, err = r.s.fetchFiles(ctx, h.JobState)
				return err
			})
			if err != nil {
				return err
			}
		}
		past = append(past, exec.PastState{Epoch: epoch, State: c.state})
	}
	slices.SortFunc(past, func(a, b exec.PastState) int { return cmp.Compare(a.Epoch, b.Epoch) })
	ok, err := r.s.engine.Recall(ctx, rel, past, exec.PastState{Epoch: at, State: now.State})
	if err == nil && !ok {
		r.s.log.Warn().Str("relation", rel.Name).Msg("views missed more changes of a relation than its change log holds: they are computed again")
	}
	return err
}

// sameRows reports whether the rows that are held can be read as those of now.
func (r *recall) sameRows(o *catalog.Object, h *checkpoint.HeldState) bool {
	c := r.held[h]
	if c == nil {
		c = &heldCopy{}
		r.held[h] = c
		if len(h.Catalog) > 0 {
			was, err := catalog.New(h.Catalog, nil)
			if err != nil {
				r.s.log.Warn().Err(err).Msg("the catalog of an earlier checkpoint cannot be read")
			} else {
				c.catalog = was.Snapshot()
			}
		}
	}
	if c.catalog == nil {
		return false
	}
	was, ok := c.catalog.Get(o.ID)
	return ok && was.JobID() == o.JobID() && was.Rewrites == o.Rewrites
}
