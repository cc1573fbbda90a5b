package exec

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// Adoption is what a job takes over from another one: operators go on from copies of what the other's have in its last completed checkpoint. They
// take in what their inputs' change logs have after that, up to the epoch at which all others begin, and then put out again all that
// they have put out until then: their readers are filled from that instead of from the inputs.
//
// Where the state does not hold that, the rows of the other job's relation are it, if they are all that an operator has put out (plan.Kept.Stored): they are copied
// with the state, as of the same checkpoint, and what the operator puts out from then on follows them.
type Adoption struct {
	From *Job
	Kept *plan.Kept
	// State, when set, is taken instead of that of a job: from a savepoint, or a checkpoint of another server. Its files are local, and its epoch is one of now:
	// kept operators read no relations.
	State *checkpoint.JobState
}

// completed is the state to take over, nil when there is none.
func (a *Adoption) completed() *checkpoint.JobState {
	if a.State != nil {
		return a.State
	}
	a.From.mu.Lock()
	defer a.From.mu.Unlock()
	return a.From.completed
}

// adopted is an adoption in a run.
type adopted struct {
	kept *plan.Kept
	from *checkpoint.JobState
}

func (a *adopted) has(id uint32) bool { return a != nil && a.kept.Nodes[id] }

// rows reports whether the replaced view's rows are put out again.
func (a *adopted) rows() bool { return a != nil && len(a.kept.Stored) > 0 }

func (a *adopted) hasRoot(id uint32) bool { return a != nil && a.kept.Roots[id] }

// stored returns what the replaced view's rows are to a root that they are all output of, nil for others.
func (a *adopted) stored(id uint32) *plan.StoredRows {
	if a == nil {
		return nil
	}
	return a.kept.Stored[id]
}

// adopt takes up the logs behind the last checkpoint of the job whose state is to be taken over, and copies that; false when it cannot be done.
func (r *run) adopt() bool {
	a := r.job.Spec.Adopt
	if a == nil || r.job.adopted.Swap(true) && !a.Kept.Lasting {
		return false
	}
	log := r.engine.cfg.Logger
	for range adoptAttempts {
		from := a.completed()
		if from == nil || from.State == nil || len(from.Inflight) > 0 { // rows in flight are in no operator's state
			return false
		}
		if !r.attach(from.Epoch, func(in *Relation) bool { return a.Kept.Inputs[in.ID] }) {
			continue // another checkpoint has been completed meanwhile
		}
		err := r.copyState(a.Kept, from)
		if err == nil {
			r.adopted = &adopted{kept: a.Kept, from: from}
			r.again.Store(r.adopted.rows())
			return true
		}
		log.Warn().Err(err).Str("job", r.job.Spec.Name).Msg("state of the replaced view cannot be taken over")
		r.detach()
		r.readers = nil
	}
	return false
}

// adoptAttempts bounds how often a checkpoint is looked for whose files and logs are still there when they are taken.
const adoptAttempts = 3

// copyState opens the run's state with a copy of the kept operators' tables.
func (r *run) copyState(kept *plan.Kept, from *checkpoint.JobState) error {
	opts := r.engine.storeOptions(r.job.Spec.ID, r.job.Spec.Backend)
	snap, err := state.Extract(r.ctx, opts, from.State, func(table uint32) (uint32, bool) {
		if table == materializeTable {
			return adoptedTable, len(kept.Stored) > 0
		}
		return table, table < materializeTable && kept.Nodes[op.NodeOf(table)]
	})
	if err != nil {
		return err
	}
	var rows []ErrorRow
	if data := from.Operators[operatorErrors]; len(data) > 0 {
		if err := json.Unmarshal(data, &rows); err != nil {
			return pgerr.Wrap(pgerr.DataCorrupted, err, "rows of the errors relation are malformed")
		}
	}
	rows = slices.DeleteFunc(rows, func(e ErrorRow) bool { return !kept.Nodes[e.Operator] })
	data, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	if err := r.errors.load(data); err != nil {
		return err
	}
	r.store, err = state.Open(context.Background(), opts, snap)
	return err
}

// restoredPositions returns where a source's splits stood, and their watermarks, in the checkpoint that the run begins from.
func (r *run) restoredPositions(n *plan.Node, mine func(split string) bool) (positions map[string][]byte, marks map[string]int64) {
	positions, marks = map[string][]byte{}, map[string]int64{}
	from := r.from
	if from == nil && r.adopted.has(n.ID) {
		from = r.adopted.from
	}
	if from == nil {
		return positions, marks
	}
	prefix := fmt.Sprintf("%d/", n.ID)
	for k, pos := range from.Positions {
		if id, ok := strings.CutPrefix(k, prefix); ok && mine(id) {
			positions[id] = pos
		}
		if id, ok := strings.CutPrefix(k, markPrefix(n)); ok && len(pos) == 8 && mine(id) {
			marks[id] = int64(binary.BigEndian.Uint64(pos))
		}
	}
	return positions, marks
}

// adoptedTable is the state table with the rows of the job whose state was taken over, until they have been put out.
const adoptedTable = materializeTable + 1

// adoptedRows are a subtask's share of the rows that a kept operator has put out.
type adoptedRows struct {
	node  *node
	part  *state.Part
	cols  []int // of the rows, those of the operator
	rows  *types.Chunk
	nulls *types.Chunk // the operator's columns, for those that the rows do not have
	shown types.Chunk
}

func (t *subtask) addAdopted(n *node, from *plan.StoredRows, groups state.Range) error {
	p, err := t.run.store.Part(adoptedTable, t.number, groups, state.Ordered)
	t.adopted = append(t.adopted, &adoptedRows{node: n, part: p, cols: from.Columns, rows: types.NewChunk(from.Schema.Types()), nulls: types.NewChunk(n.plan.Schema.Types())})
	return err
}

// feed puts out the next round of rows, which are gone then.
func (a *adoptedRows) feed() error {
	r := a.node.task.run
	type place struct {
		kg  uint16
		key string
	}
	var gone []place
	emit := func() error {
		if a.rows.N == 0 {
			return nil
		}
		a.shown = types.Chunk{N: a.rows.N, Cols: a.shown.Cols[:0]}
		for i, c := range a.cols {
			v := a.nulls.Cols[i]
			if c >= 0 {
				v = a.rows.Cols[c]
			}
			for c < 0 && v.Len() < a.rows.N {
				v.AppendNull()
			}
			a.shown.Cols = append(a.shown.Cols, v)
		}
		put := a.node.Emit
		if !r.adopted.whole(a.node.plan.ID) {
			put = a.node.pass // they are not what the contract has to see
		}
		err := put(&a.shown)
		a.rows.Reset()
		if r.stopped() {
			return errStopped
		}
		return err
	}
	it := a.part.ScanAll()
	defer it.Close()
	more := false
	for it.Next() {
		if more = len(gone) >= backfillRound || len(gone) >= backfillLeast && r.store.NeedsFlush(); more {
			break
		}
		if _, err := types.DecodeRow(it.Value(), a.rows.Cols); err != nil {
			return err
		}
		a.rows.PushWeight(1)
		gone = append(gone, place{it.Group(), string(it.Key())})
		if a.rows.N == r.engine.cfg.ChunkRows {
			if err := emit(); err != nil {
				return err
			}
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	if err := emit(); err != nil {
		return err
	}
	for _, p := range gone {
		a.part.Delete(p.kg, []byte(p.key))
	}
	if more {
		r.more.Store(true)
	}
	return nil
}

// catchUp has the rows of the replaced view put out again by the operators that they are the output of, and takes kept temporal joins through the epochs since the checkpoint that
// they go on from, one after the other: each row meets what its epoch has. What is changed in the last ones the barriers of the backfill bring.
func (r *run) catchUp(through uint64) error {
	if r.adopted.rows() {
		for r.more.Store(true); r.more.Load(); {
			r.more.Store(false)
			if err := r.pass(r.early(r.adopted.from.Epoch, checkpoint.FillAgain)); err != nil {
				return err
			}
		}
	}
	r.again.Store(false)
	if r.adopted == nil || !r.adopted.kept.Temporal {
		return nil
	}
	for done := r.adopted.from.Epoch; ; {
		first, has := through, false
		for _, in := range r.job.inputs {
			if f, ok := in.Log.FirstAfter(done, through); ok && r.adopted.kept.Inputs[in.ID] {
				first, has = min(first, f), true
			}
		}
		epoch := r.job.untilTemporal(first, through)
		if !has || epoch >= through {
			return nil
		}
		b := r.early(epoch, checkpoint.FillKept)
		if len(r.timed) > 0 {
			b.Now = r.engine.now()
		}
		if err := r.pass(b); err != nil {
			return err
		}
		done = epoch
	}
}

// early returns a barrier of the beginning of a backfill.
func (r *run) early(epoch uint64, filling checkpoint.Filling) checkpoint.Barrier {
	b := checkpoint.Barrier{Epoch: epoch, Triggered: time.Now(), Filling: filling}
	if r.store.NeedsFlush() {
		b.Checkpoint = flushOnly
	}
	return b
}

// whole reports whether an operator puts out, in this run, all that it ever did: of kept ones the roots do, unless their rows lack columns.
func (a *adopted) whole(id uint32) bool {
	s := a.stored(id)
	return !a.has(id) || a.hasRoot(id) && (s == nil || !slices.Contains(s.Columns, -1))
}

// resume has a kept operator, whose subtask has just passed the first barrier with which others are filled, put out all that it had put out before, and then
// its watermarks.
func (n *node) resume() error {
	n.holds = false
	if n.muted {
		n.muted = false
		o, ok := n.op.(op.Replayer)
		if !ok {
			return pgerr.Newf(pgerr.InternalError, "operator %d cannot put out its rows again", n.plan.ID)
		}
		if err := o.Replay(n); err != nil {
			return err
		}
	}
	for _, w := range n.held {
		if err := n.EmitWatermark(w); err != nil {
			return err
		}
	}
	n.held = nil
	return nil
}
