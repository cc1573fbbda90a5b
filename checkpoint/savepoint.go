package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// SavepointRequest asks for a savepoint.
type SavepointRequest struct {
	Jobs []uint64 // and all they read from; nil: all jobs
	Spec SavepointSpec
}

// SavepointResult is a savepoint that is complete.
type SavepointResult struct {
	ID, Epoch uint64
	Path      string // of its folder
	// Left are, of a savepoint of all jobs, those that are not in it: they were not running, or paused and behind what they read.
	Left []uint64
}

// Savepoint makes a savepoint and returns when it is complete. It goes before all checkpoints that wait, is not held back by those in flight,
// and never becomes what jobs restart from by themselves.
// It is an error when one of the jobs is not running.
func (c *Coordinator) Savepoint(ctx context.Context, req SavepointRequest) (SavepointResult, error) {
	spec := req.Spec
	spec.Named = req.Jobs
	r, err := c.request(ctx, &request{TriggerRequest: TriggerRequest{Jobs: req.Jobs}, savepoint: &spec, done: make(chan reply, 1)})
	return SavepointResult{ID: r.id, Epoch: r.epoch, Path: r.path, Left: r.left}, err
}

// stop is a job that ends with a savepoint.
type stop struct {
	kept  []*Manifest // published since it was asked for; pinned
	unpin []func(context.Context) error
}

// Stop makes a checkpoint with which a job ends: it takes nothing in behind the barrier, and what it has prepared outside is committed as with every
// checkpoint. Then that checkpoint, of the job and all it reads from, is copied as a savepoint. It is the caller's to keep the job from running
// again, or to let it when there is an error.
func (c *Coordinator) Stop(ctx context.Context, job uint64, spec SavepointSpec) (res SavepointResult, err error) {
	spec.Stop, spec.Named = true, []uint64{job}
	s := &stop{}
	c.mu.Lock()
	c.stops = append(c.stops, s)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.stops = slices.DeleteFunc(c.stops, func(o *stop) bool { return o == s })
		c.mu.Unlock()
		for _, unpin := range s.unpin {
			err = errors.Join(err, unpin(context.WithoutCancel(ctx)))
		}
	}()
	r, err := c.request(ctx, &request{TriggerRequest: TriggerRequest{Jobs: []uint64{job}, Class: ClassForced}, stop: &spec, done: make(chan reply, 1)})
	if err != nil {
		return res, err
	}
	c.mu.Lock()
	kept := slices.Clone(s.kept)
	c.mu.Unlock()
	i := slices.IndexFunc(kept, func(m *Manifest) bool { return m.Jobs[job] != nil && m.Jobs[job].Checkpoint >= r.id })
	if i < 0 {
		return res, pgerr.Newf(pgerr.InternalError, "checkpoint %d is not in what was published", r.id)
	}
	m := kept[i]
	all := map[uint64]Participant{}
	for _, q := range c.env.Participants() {
		all[q.ID()] = q
	}
	var states []*JobState
	for _, id := range slices.Sorted(maps.Keys(closure(all, spec.Named, Participant.Inputs))) {
		// What is read may have gone on, or have been published before.
		var s *HeldState
		for _, k := range slices.Backward(kept) {
			if s = k.at(id, r.id); s != nil {
				break
			}
		}
		if s == nil {
			return res, pgerr.Newf(pgerr.InternalError, "checkpoint %d does not hold job %d", r.id, id)
		}
		states = append(states, s.JobState)
	}
	res.ID, res.Epoch = r.id, m.Jobs[job].Epoch
	res.Path, err = c.pub.writeSavepoint(ctx, &spec, states, res.Epoch, r.id, m.CatalogVersion, m.Catalog)
	return res, err
}

// Retain copies what the newest completed checkpoint has of a job and of all that it reads from as a native savepoint below the folder target, and returns the path
// of its own folder, "" when no completed checkpoint has the job.
func (c *Coordinator) Retain(ctx context.Context, job uint64, target string) (path string, err error) {
	var m *Manifest
	for {
		m = c.pub.latest()
		if m == nil || m.Jobs[job] == nil {
			return "", nil
		}
		unpin := c.pub.pin(m)
		defer func() { err = errors.Join(err, unpin(context.WithoutCancel(ctx))) }()
		if c.pub.latest() == m {
			break // else it may have left HEAD before it was pinned
		}
	}
	var states []*JobState
	for _, id := range slices.Sorted(maps.Keys(closure(m.Jobs, []uint64{job}, func(s *JobState) []uint64 { return s.Inputs }))) {
		states = append(states, m.Jobs[id])
	}
	spec := &SavepointSpec{Target: target, Named: []uint64{job}}
	return c.pub.writeSavepoint(ctx, spec, states, m.Jobs[job].Epoch, m.ID, m.CatalogVersion, m.Catalog)
}

// keepForStops keeps what was just published for the savepoints of jobs that end.
func (c *Coordinator) keepForStops(m *Manifest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.stops {
		s.kept, s.unpin = append(s.kept, m), append(s.unpin, c.pub.pin(m))
	}
}

// writeSavepoint writes a savepoint of the given states, which hold all of their jobs, below the folder that spec names and returns the path of its own folder.
// Local files of the states stay until it has returned. It runs in a goroutine of the coordinator, several at a time.
func (p *publisher) writeSavepoint(ctx context.Context, spec *SavepointSpec, states []*JobState, epoch, id, catalogVersion uint64, catalog []byte) (path string, err error) {
	if err := p.hit("savepoint/begin"); err != nil {
		return "", err
	}
	path, _, err = WriteSavepoint(ctx, Places{Root: spec.Target, Own: p.store, Scratch: filepath.Join(p.scratch, fmt.Sprintf("savepoint-%d-%s", id, hostOf(ctx).nonce()))}, &Snapshot{
		ID: id, Epoch: epoch, CatalogVersion: catalogVersion, Catalog: catalog, Jobs: states, Named: spec.Named, Line: p.lineNow(),
	}, spec.Canonical)
	if err == nil {
		err = p.hit("savepoint/written")
	}
	return path, err
}
