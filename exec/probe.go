package exec

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// findTemporal notes the lookup joins of the job and finds the relations that the job's temporal joins read: by their key, or as an input of the join.
func (j *Job) findTemporal() {
	for _, f := range j.Spec.Plan.Fragments {
		f.Root.Walk(func(n *plan.Node) {
			if n.Kind == plan.KindScan && (n.Scan.Leading || n.Scan.Probed) {
				if rel, ok := j.input(n.Scan.Relation); ok && !slices.Contains(j.temporal, rel) {
					j.temporal = append(j.temporal, rel)
				}
			}
			j.lookups = j.lookups || n.Kind == plan.KindLookupJoin
			if n.Kind == plan.KindTemporalJoin && !n.Inputs[0].AppendOnly {
				j.exact.Store(1) // a row that goes and comes again meets what the right side is then
			}
		})
	}
}

// addExact adds n to the count of temporal joins above of all jobs that the job reads from, directly or not.
func (j *Job) addExact(n int32) {
	for _, k := range j.upstream[1:] {
		k.exact.Add(n)
	}
}

// filling is the first part of the job's backfill.
func (j *Job) filling() checkpoint.Filling {
	switch {
	case len(j.temporal) > 0:
		return checkpoint.FillLeading
	case j.lookups:
		return checkpoint.FillRest
	}
	return checkpoint.NotFilling
}

// untilTemporal shortens a barrier's epochs, whose first change is in first, so that the right side of a temporal join is the same from there to their end.
func (j *Job) untilTemporal(first, through uint64) uint64 {
	for _, rel := range j.temporal {
		if next, ok := rel.Log.FirstAfter(first, through); ok {
			through = next - 1
		}
	}
	return through
}

// relationProbe reads a relation by its key. The version of the epoch that is wanted may be gone where the job lags or has started again: then a later one
// is read, and what the change log has in between is undone.
type relationProbe struct {
	run     *run
	rel     *Relation
	columns []int
	v       *Version
	epoch   uint64
	undo    map[string][]undoRow // by key, ascending epochs; nil: v is the content at the epoch
	full    *types.Chunk
	layout  *types.RowLayout
}

// undoRow is a row as a change log has it.
type undoRow struct {
	epoch uint64
	chunk *types.Chunk
	row   int
}

var _ op.Probe = (*relationProbe)(nil)

func (r *run) probe(relation uint64, columns []int) (op.Probe, error) {
	rel, ok := r.job.input(relation)
	if !ok {
		return nil, pgerr.Newf(pgerr.UndefinedTable, "relation %d does not exist any more", relation)
	}
	return &relationProbe{run: r, rel: rel, columns: columns}, nil
}

// Seek implements op.Probe.
func (p *relationProbe) Seek(epoch uint64) error {
	if p.v != nil && p.epoch == epoch {
		return nil
	}
	if epoch == 0 {
		p.v, p.epoch = p.run.pins.Versions[p.rel.ID], 0
		p.v.retain()
		return nil
	}
	if v := p.rel.pinAt(epoch); v != nil {
		p.Close()
		p.v, p.epoch = v, epoch
		return nil
	}
	p.epoch = epoch
	if p.undo != nil && p.v.Epoch > epoch {
		return nil
	}
	p.Close()
	return p.later(epoch)
}

// later pins a version that came after an epoch.
func (p *relationProbe) later(epoch uint64) error {
	e := p.run.engine
	for {
		changed := e.progress.wait()
		if v := p.rel.pinAfter(epoch); v != nil {
			if entries, ok := p.rel.Log.Range(epoch, v.Epoch); !ok {
				v.Release()
				return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "change log of %q no longer holds epoch %d", p.rel.Name, epoch+1)
			} else if p.rel.Log.Closed() >= v.Epoch {
				p.v, p.undo = v, map[string][]undoRow{}
				var key []byte
				cols := make([]*types.Vector, len(p.rel.Key))
				for _, en := range entries {
					for _, c := range en.Chunks {
						for i, k := range p.rel.Key {
							cols[i] = c.Cols[k]
						}
						for i := range c.Rows() {
							key = types.AppendKeyRow(key[:0], cols, c.Row(i))
							p.undo[string(key)] = append(p.undo[string(key)], undoRow{en.Epoch, c, c.Row(i)})
						}
					}
				}
				return nil
			}
			v.Release() // it is being published, and its changes come next
		}
		select {
		case <-changed:
		case <-p.run.stop:
			return errStopped
		}
	}
}

// Get implements op.Probe.
func (p *relationProbe) Get(hash uint64, key []byte, cols []*types.Vector) (bool, error) {
	if rows := p.undo[string(key)]; len(rows) > 0 {
		at, _ := slices.BinarySearchFunc(rows, p.epoch+1, func(u undoRow, e uint64) int { return cmp.Compare(u.epoch, e) })
		if rows = rows[at:]; len(rows) > 0 {
			u, ok := p.before(rows)
			if ok {
				for i, c := range p.columns {
					cols[i].Append(u.chunk.Cols[c], u.row)
				}
			}
			return ok, nil
		}
	}
	kg := uint16(0)
	if p.rel.Grouped {
		kg = types.KeyGroup(hash, p.rel.MaxPar)
	}
	row, ok, err := p.v.Get(kg, key)
	if err != nil || !ok {
		return false, err
	}
	if l := p.v.Layout(); l != p.layout {
		p.layout, p.full = l, types.NewChunk(l.Types)
	}
	p.full.Reset()
	if err := decodeRow(row, p.full, p.layout); err != nil {
		return false, fmt.Errorf("row of %q: %w", p.rel.Name, err)
	}
	for i, c := range p.columns {
		cols[i].Append(p.full.Cols[c], 0)
	}
	return true, nil
}

// before returns the row that the first epoch of rows, all changes of one key, found.
func (p *relationProbe) before(rows []undoRow) (undoRow, bool) {
	for _, u := range rows {
		if u.epoch != rows[0].epoch {
			break
		}
		if u.chunk.Weight(u.row) < 0 {
			return u, true
		}
		if p.rel.job == nil {
			break // a table's changes are in the order in which they were made
		}
	}
	return undoRow{}, false
}

// Close implements op.Probe.
func (p *relationProbe) Close() {
	if p.v != nil {
		p.v.Release()
	}
	p.v, p.undo = nil, nil
}

// pinAfter pins the first version that came after an epoch, nil when there is none.
func (r *Relation) pinAfter(epoch uint64) *Version {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.versions {
		if v.Epoch > epoch {
			v.retain()
			return v
		}
	}
	return nil
}
