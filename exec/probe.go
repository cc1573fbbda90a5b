package exec

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/state"
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

// relationProbe reads a relation by its key or an index. The version of the epoch that is wanted may be gone where the job lags or has started again: then a later one
// is read, and what the change log has in between is undone.
type relationProbe struct {
	run     *run
	rel     *Relation
	columns []int
	by      *plan.LookupIndex
	v       *Version
	epoch   uint64
	undo    map[string][]undoRow // by key, ascending epochs; nil: v is the content at the epoch
	undone  map[string][]string  // by key in the index: keys of the rows in undo that have or had it
	key     []byte
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

func (r *run) probe(relation uint64, columns []int, by *plan.LookupIndex) (op.Probe, error) {
	rel, ok := r.job.input(relation)
	if !ok {
		return nil, pgerr.Newf(pgerr.UndefinedTable, "relation %d does not exist any more", relation)
	}
	return &relationProbe{run: r, rel: rel, columns: columns, by: by}, nil
}

// view returns what is read of a version by the index: entries of the index or, by the primary key, rows; nil when the version does not have it.
func (p *relationProbe) view(v *Version) *state.View {
	if p.by.Index == 0 {
		return v.views[0]
	}
	return v.index(p.by.Index)
}

// has reports whether a version can be read.
func (p *relationProbe) has(v *Version) bool { return p.by == nil || p.view(v) != nil }

func (p *relationProbe) errNoIndex() error {
	return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "relation %q does not have index %q", p.rel.Name, p.by.Name)
}

// Seek implements op.Probe.
func (p *relationProbe) Seek(epoch uint64) error {
	if p.v != nil && p.epoch == epoch {
		return nil
	}
	if epoch == 0 {
		p.v, p.epoch = p.run.pins.Versions[p.rel.ID], 0
		p.v.retain()
		if !p.has(p.v) {
			return p.errNoIndex()
		}
		return nil
	}
	if v := p.rel.pinAt(epoch); v != nil {
		if p.has(v) {
			p.Close()
			p.v, p.epoch = v, epoch
			return nil
		}
		v.Release()
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
			if !p.has(v) {
				v.Release()
				return p.errNoIndex()
			}
			if entries, ok := p.rel.Log.Range(epoch, v.Epoch); !ok {
				v.Release()
				return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "change log of %q no longer holds epoch %d", p.rel.Name, epoch+1)
			} else if p.rel.Log.Closed() >= v.Epoch {
				p.v, p.undo, p.undone = v, map[string][]undoRow{}, map[string][]string{}
				for _, en := range entries {
					for _, c := range en.Chunks {
						p.undoing(en.Epoch, c)
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

// undoing notes what a change log has.
func (p *relationProbe) undoing(epoch uint64, c *types.Chunk) {
	pk := pick(c, p.rel.Key).Cols
	var by []*types.Vector
	if p.by != nil {
		by = pick(c, p.by.Columns).Cols
	}
	for i := range c.Rows() {
		r := c.Row(i)
		p.key = types.AppendKeyRow(p.key[:0], pk, r)
		key := string(p.key)
		p.undo[key] = append(p.undo[key], undoRow{epoch, c, r})
		if p.by == nil {
			continue
		}
		p.key = p.by.AppendKey(p.key[:0], by, r)
		if had := p.undone[string(p.key)]; !slices.Contains(had, key) {
			p.undone[string(p.key)] = append(had, key)
		}
	}
}

// since returns the changes of a row after the epoch.
func (p *relationProbe) since(pk []byte) []undoRow {
	rows := p.undo[string(pk)]
	at, _ := slices.BinarySearchFunc(rows, p.epoch+1, func(u undoRow, e uint64) int { return cmp.Compare(u.epoch, e) })
	return rows[at:]
}

// Each implements op.Probe.
func (p *relationProbe) Each(hash uint64, key []byte, cols []*types.Vector, found func() error) error {
	if p.by != nil {
		return p.eachIn(key, cols, found)
	}
	if rows := p.since(key); len(rows) > 0 {
		u, ok := p.before(rows)
		if !ok {
			return nil
		}
		p.appendUndone(u, cols)
		return found()
	}
	kg := uint16(0)
	if p.rel.Grouped {
		kg = types.KeyGroup(hash, p.rel.MaxPar)
	}
	row, ok, err := p.v.Get(kg, key)
	if err != nil || !ok {
		return err
	}
	if err := p.appendStored(row, cols); err != nil {
		return err
	}
	return found()
}

// eachIn is Each for an index.
func (p *relationProbe) eachIn(key []byte, cols []*types.Vector, found func() error) error {
	it := p.view(p.v).Scan(0, key)
	defer it.Close()
	for it.Next() {
		pk, row := it.Key(), it.Value()
		if p.by.Index != 0 {
			pk = row
		}
		if len(p.since(pk)) > 0 {
			continue
		}
		if p.by.Index != 0 {
			var ok bool
			var err error
			if row, ok, err = p.v.Get(0, pk); err != nil {
				return err
			} else if !ok {
				return pgerr.Newf(pgerr.DataCorrupted, "index %q has a row that %q does not have", p.by.Name, p.rel.Name)
			}
		} else {
			row = slices.Clone(row) // strings refer to it
		}
		if err := p.appendStored(row, cols); err != nil {
			return err
		}
		if err := found(); err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	for _, pk := range p.undone[string(key)] {
		rows := p.since([]byte(pk))
		if len(rows) == 0 {
			continue
		}
		u, ok := p.before(rows)
		if !ok {
			continue
		}
		if p.key = p.by.AppendKey(p.key[:0], pick(u.chunk, p.by.Columns).Cols, u.row); string(p.key) != string(key) {
			continue
		}
		p.appendUndone(u, cols)
		if err := found(); err != nil {
			return err
		}
	}
	return nil
}

func (p *relationProbe) appendUndone(u undoRow, cols []*types.Vector) {
	for i, c := range p.columns {
		cols[i].Append(u.chunk.Cols[c], u.row)
	}
}

func (p *relationProbe) appendStored(row []byte, cols []*types.Vector) error {
	if l := p.v.Layout(); l != p.layout {
		p.layout, p.full = l, types.NewChunk(l.Types)
	}
	p.full.Reset()
	if err := decodeRow(row, p.full, p.layout); err != nil {
		return fmt.Errorf("row of %q: %w", p.rel.Name, err)
	}
	for i, c := range p.columns {
		cols[i].Append(p.full.Cols[c], 0)
	}
	return nil
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
	p.v, p.undo, p.undone = nil, nil, nil
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
