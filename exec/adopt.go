package exec

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/state"
)

// Adoption is what a job takes over from another one: operators go on from copies of what the other's have in its last completed checkpoint. They
// take in what their inputs' change logs have after that, up to the epoch at which all others begin, and then put out again all that
// they have put out until then: their readers are filled from that instead of from the inputs.
type Adoption struct {
	From *Job
	Kept *plan.Kept
}

// adopted is an adoption in a run.
type adopted struct {
	kept *plan.Kept
	from *checkpoint.JobState
}

func (a *adopted) has(id uint32) bool { return a != nil && a.kept.Nodes[id] }

// adopt takes up the logs behind the last checkpoint of the job whose state is to be taken over, and copies that; false when it cannot be done.
func (r *run) adopt() bool {
	a := r.job.Spec.Adopt
	if a == nil || r.job.adopted.Swap(true) {
		return false
	}
	log := r.engine.cfg.Logger
	for range adoptAttempts {
		a.From.mu.Lock()
		from := a.From.completed
		a.From.mu.Unlock()
		if from == nil || from.State == nil {
			return false
		}
		if !r.attach(from.Epoch, func(in *Relation) bool { return a.Kept.Inputs[in.ID] }) {
			continue // another checkpoint has been completed meanwhile
		}
		err := r.copyState(a.Kept, from)
		if err == nil {
			r.adopted = &adopted{kept: a.Kept, from: from}
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
	snap, err := state.Extract(r.ctx, opts, from.State, func(table uint32) bool { return table < materializeTable && kept.Nodes[op.NodeOf(table)] })
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

// replay has a kept operator, whose subtask has just passed the first barrier, put out all that it had put out before.
func (n *node) replay() error {
	n.muted = false
	o, ok := n.op.(op.Replayer)
	if !ok {
		return pgerr.Newf(pgerr.InternalError, "operator %d cannot put out its rows again", n.plan.ID)
	}
	if err := o.Replay(n); err != nil {
		return err
	}
	for _, w := range n.held {
		if err := n.EmitWatermark(w); err != nil {
			return err
		}
	}
	n.held = nil
	return nil
}
