package exec

import (
	"slices"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/changelog"
	"github.com/streamdb/streamdb/types"
)

// backfillRound is how many rows a scan reads of a version before the job may flush its state to disk.
const backfillRound = 1 << 20

// backfillLeast is how many it reads at least: while memory is short for all jobs together, a barrier and a flush for every chunk would cost
// more than they free.
const backfillLeast = 1 << 16

// scanLeaf feeds a relation into a job: its version during the backfill, then its change log epoch by epoch.
type scanLeaf struct {
	node    *node
	rel     *Relation
	task    *subtask
	share   int // this subtask takes chunks i with i % of == share
	of      int
	done    uint64
	kept    bool // its readers go on from state: it gives what follows that, also while others are filled
	columns []int
	chunk   types.Chunk // columns picked from a log's chunk
	rows    *versionScan
	feeding *logFeed // nil: everything up to done was fed
}

// logFeed is a place in the changes of the epochs that a barrier closes.
type logFeed struct {
	entries []changelog.Entry
	chunk   int  // of the first entry
	whole   bool // all of its chunks are of one subtask
	through uint64
}

func (t *subtask) addScan(n *node, parallelism int) error {
	rel, ok := t.run.job.input(n.plan.Scan.Relation)
	if !ok {
		return pgerr.Newf(pgerr.UndefinedTable, "relation %q does not exist", n.plan.Scan.Name)
	}
	s := &scanLeaf{node: n, rel: rel, task: t, share: t.index, of: parallelism, columns: n.plan.Scan.Columns, done: t.run.done}
	if s.kept = t.run.adopted.has(n.plan.ID); s.kept {
		s.done = t.run.adopted.from.Epoch
	}
	s.chunk.Cols = make([]*types.Vector, len(s.columns))
	t.scans = append(t.scans, s)
	return nil
}

// begin finds what a barrier of the driver closes. During the backfill it is also fed.
func (s *scanLeaf) begin(b checkpoint.Barrier) error {
	r := s.task.run
	if s.node.plan.Scan.Probed {
		return nil
	}
	if r.backfill && !s.kept {
		return s.fill(b)
	}
	// The driver passes over epochs without changes when it answers a checkpoint with "unchanged": the log may have forgotten them.
	s.done = max(s.done, r.done)
	entries, err := s.changes(s.done, b.Epoch)
	if err != nil {
		return err
	}
	if r.job.Spec.Temporary {
		if err := s.stands(entries); err != nil {
			return err
		}
	}
	s.feeding = &logFeed{entries: entries, through: b.Epoch}
	for r.backfill && s.feeding != nil {
		if err := s.step(); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanLeaf) changes(after, through uint64) ([]changelog.Entry, error) {
	entries, ok := s.rel.Log.Range(after, through)
	if !ok {
		return nil, pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "change log of %q no longer holds epoch %d", s.rel.Name, after+1)
	}
	return entries, nil
}

// step feeds the next chunk of what was begun.
func (s *scanLeaf) step() error {
	c := s.next(s.feeding)
	if c == nil {
		s.done = max(s.done, s.feeding.through)
		s.feeding = nil
		return nil
	}
	return s.node.Emit(c)
}

// next returns the next chunk that is the subtask's, lent until the following call, nil at the end. Which these are depends on the epoch alone: subtasks
// may look at the log from different epochs on. All chunks of an epoch with retractions are of one subtask, so that none overtakes what it retracts.
func (s *scanLeaf) next(f *logFeed) *types.Chunk {
	for len(f.entries) > 0 {
		e := &f.entries[0]
		if f.chunk == 0 {
			f.whole = slices.ContainsFunc(e.Chunks, func(c *types.Chunk) bool { return c.Weights != nil })
		}
		k := f.chunk
		if k == len(e.Chunks) {
			f.entries, f.chunk = f.entries[1:], 0
			continue
		}
		f.chunk++
		of := e.Epoch
		if !f.whole {
			of += uint64(k)
		}
		if of%uint64(s.of) != uint64(s.share) {
			continue
		}
		c := e.Chunks[k]
		for j, col := range s.columns {
			s.chunk.Cols[j] = c.Cols[col]
		}
		s.chunk.N, s.chunk.Sel, s.chunk.Weights = c.N, c.Sel, c.Weights
		return &s.chunk
	}
	return nil
}

// stands checks that changes are such as a temporary job was planned for. A table that takes only new rows may have become one whose rows change.
func (s *scanLeaf) stands(entries []changelog.Entry) error {
	if err := s.task.run.job.inputsStand(); err != nil || !s.node.plan.AppendOnly {
		return err
	}
	for i := range entries {
		for _, c := range entries[i].Chunks {
			for k := range c.Rows() {
				if c.Weight(c.Row(k)) < 0 {
					return errRedefined(s.rel)
				}
			}
		}
	}
	return nil
}

// fill reads the next round of the pinned version.
func (s *scanLeaf) fill(b checkpoint.Barrier) error {
	r := s.task.run
	if s.node.plan.Scan.ChangesOnly {
		s.done = b.Epoch
		return nil
	}
	if b.Filling.Early() && !(b.Filling == checkpoint.FillLeading && s.node.plan.Scan.Leading) || b.Filling == checkpoint.FillComplete {
		return nil
	}
	if s.rows == nil {
		s.rows = newVersionScan(r.pins.Versions[s.rel.ID], s.columns, s.share, s.of, r.engine.cfg.ChunkRows)
	}
	for n := 0; n < backfillRound; {
		c, err := s.rows.next()
		if err != nil {
			return err
		}
		if c == nil {
			s.rows.close()
			s.rows.v = nil
			s.done = b.Epoch
			return nil
		}
		if err := s.node.Emit(c); err != nil {
			return err
		}
		n += c.N
		r.scanned.Add(int64(c.N))
		if r.stopped() {
			return errStopped
		}
		if n >= backfillLeast && r.store.NeedsFlush() {
			break
		}
	}
	r.more.Store(true)
	return nil
}

// versionScan reads the rows of a version in chunks.
type versionScan struct {
	v       *Version
	columns []int
	share   int
	of      int
	rows    int
	view    int
	it      *state.Iter
	full    *types.Chunk // all stored columns, decoded
	layout  *types.RowLayout
	out     types.Chunk // the picked ones
}

func newVersionScan(v *Version, columns []int, share, of, rows int) *versionScan {
	s := &versionScan{v: v, columns: columns, share: share, of: of, rows: rows, view: -1}
	if v != nil {
		s.layout = v.Layout()
		s.full = types.NewChunk(s.layout.Types)
		s.out.Cols = make([]*types.Vector, len(columns))
		for i, c := range columns {
			s.out.Cols[i] = s.full.Cols[c]
		}
	}
	return s
}

// next returns the next chunk, lent until the following call, nil at the end.
func (s *versionScan) next() (*types.Chunk, error) {
	if s.v == nil {
		return nil, nil
	}
	s.full.Reset()
	for {
		if s.it == nil {
			s.view++
			for s.view < len(s.v.views) && len(s.v.views) > 1 && s.view%s.of != s.share {
				s.view++
			}
			if s.view >= len(s.v.views) || (len(s.v.views) == 1 && s.share != 0) {
				break
			}
			s.it = s.v.views[s.view].ScanAll()
		}
		for s.full.N < s.rows && s.it.Next() {
			if err := decodeRow(s.it.Value(), s.full, s.layout); err != nil {
				return nil, err
			}
		}
		if s.full.N == s.rows {
			break
		}
		err := s.it.Err()
		s.it.Close()
		s.it = nil
		if err != nil {
			return nil, err
		}
	}
	if s.full.N == 0 {
		return nil, nil
	}
	s.out.N = s.full.N
	return &s.out, nil
}

func decodeRow(b []byte, c *types.Chunk, l *types.RowLayout) error {
	if err := l.Decode(b, c.Cols); err != nil {
		return err
	}
	c.PushWeight(1)
	return nil
}

func (s *versionScan) close() {
	if s.it != nil {
		s.it.Close()
		s.it = nil
	}
}
