package optest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/state"
)

// Host runs single operators over a memory store, for tests that look at more than rows.
type Host struct {
	r *runner
}

// NewHost returns a host with empty state.
func NewHost(t *testing.T, lib expr.Library) *Host {
	h := &Host{r: &runner{t: t, s: Spec{Lib: lib}, errs: &reporter{live: map[string]int64{}}}}
	h.reopen()
	t.Cleanup(func() { require.NoError(t, h.r.store.Close()) })
	return h
}

func (h *Host) reopen() {
	var err error
	h.r.store, err = state.Open(context.Background(), state.Options{Dir: h.r.dir(), Backend: state.BackendMemory, MaxParallelism: maxParallelism, Job: 1},
		h.r.last)
	require.NoError(h.r.t, err)
}

// Open opens the operator of a node over the present state.
func (h *Host) Open(n *plan.Node) op.Operator {
	o, err := op.New(n)
	require.NoError(h.r.t, err)
	ctx := h.r.context(n)
	ctx.Store = h.r.store
	require.NoError(h.r.t, o.Open(ctx))
	return o
}

// Barrier passes a barrier without a checkpoint through o.
func (h *Host) Barrier(o op.Operator, out op.Emitter) {
	h.r.epoch++
	require.NoError(h.r.t, o.Barrier(checkpoint.Barrier{Epoch: h.r.epoch}, out))
}

// tablesPerNode is the number of state tables that ids leave to each operator.
const tablesPerNode = 8

// Entries returns how many entries the last checkpoint has in a state table of the node.
func (h *Host) Entries(n *plan.Node, table uint32) int64 {
	return h.r.last.Entries[n.ID*tablesPerNode+table]
}

// Checkpoint passes a checkpoint barrier through o and takes a snapshot.
func (h *Host) Checkpoint(o op.Operator, out op.Emitter) {
	h.r.epoch++
	h.r.id++
	require.NoError(h.r.t, o.Barrier(checkpoint.Barrier{Epoch: h.r.epoch, Checkpoint: h.r.id}, out))
	sn, err := h.r.store.Snapshot(context.Background(), h.r.id, []*state.Sealed{h.r.store.Seal(0)})
	require.NoError(h.r.t, err)
	h.r.store.Confirm(h.r.id)
	h.r.last = sn
}

// Put puts an entry into a state table of the node, whose operator is not open, and takes a snapshot: as another version of it may have left it.
func (h *Host) Put(n *plan.Node, table uint32, kg uint16, key, val []byte) {
	p, err := h.r.store.Part(n.ID*tablesPerNode+table, 0, state.Range{To: maxParallelism}, state.Ordered)
	require.NoError(h.r.t, err)
	p.Put(kg, key, val)
	h.r.id++
	sn, err := h.r.store.Snapshot(context.Background(), h.r.id, []*state.Sealed{h.r.store.Seal(0)})
	require.NoError(h.r.t, err)
	h.r.store.Confirm(h.r.id)
	h.r.last = sn
	require.NoError(h.r.t, h.r.store.Close())
	h.reopen()
}

// Restore opens the operator of a node over the last checkpoint, in a new store.
func (h *Host) Restore(n *plan.Node) op.Operator {
	require.NoError(h.r.t, h.r.store.Close())
	h.reopen()
	return h.Open(n)
}
