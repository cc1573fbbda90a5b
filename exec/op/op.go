// Package op holds the operators, one per file. An operator is driven by its subtask's task loop and never reads a channel: the loop
// owns barriers, alignment, watermarks and cancellation. One-shot queries drive the same operators with one final barrier.
//
//	Process* … Barrier, Process* … Barrier, … Close
//
// Rows are weighted (Z-sets). Within an epoch rows may arrive in any order, even a retraction before its insertion; at the barrier
// sums are consistent. Linear operators (filter, project, window, union) pass deltas on at once; operators with state emit the consolidated
// difference in Barrier.
package op

import (
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// Watermark promises that no row with a smaller value in the column follows. For timestamps in µs since 2000-01-01.
type Watermark struct {
	Column int
	Value  int64
}

// Emitter passes an operator's output on. The chunk is lent for the call (see types.Chunk).
type Emitter interface {
	Emit(c *types.Chunk) error
	EmitWatermark(w Watermark) error
}

// Operator is one node of a subtask's tree. All methods are called by one goroutine. After an error only Close is called.
type Operator interface {
	// Open binds the operator to its environment and state; it must not touch the outside world.
	Open(ctx *Context) error
	// Process takes rows on an input port.
	Process(port int, c *types.Chunk, out Emitter) error
	// Watermark takes a watermark on an input port; non-decreasing per column.
	Watermark(port int, w Watermark, out Emitter) error
	// Barrier ends an epoch. Everything the epoch changed is emitted here at the latest; with b.Checkpoint != 0 everything that belongs to
	// the operator's state has been put into its state parts when Barrier returns.
	Barrier(b checkpoint.Barrier, out Emitter) error
	Close() error
}

// Idler is an operator whose watermark does not wait for an input that is idle while others are not. Idle is called at barriers; a row or a watermark of
// the input ends it.
type Idler interface {
	Idle(port int, out Emitter) error
}

// Replayer is an operator that can put out again, from its state, all that it has put out since it began, consolidated. Replay is called between
// a barrier and the first row behind it. plan.Node knows which operators can.
type Replayer interface {
	Replay(out Emitter) error
}

// Context is what an operator gets at Open.
type Context struct {
	Node        *plan.Node
	InputTypes  [][]types.Type // per port
	Subtask     int
	Parallelism int
	Groups      state.Range
	Store       *state.Store
	Lib         expr.Library
	Env         *expr.Env
	Errors      ErrorReporter
	// Now is the engine's clock at Open, in µs since 2000-01-01 UTC; barriers move it on.
	Now int64
	// Filling: the job reads what its inputs hold. Barriers tell how that goes on.
	Filling bool
	// Live: the job has sources, or rows of another one, which come at any time.
	Live bool
	// Probe opens a reader of a relation of the job, for its stored columns, by its key or an index. Only jobs have it.
	Probe func(relation uint64, columns []int, by *plan.LookupIndex) (Probe, error)
	// Clock returns what the engine's clock shows now; nil: only barriers tell.
	Clock func() int64
	// OneShot: a single final barrier; errors in rows end the query; no state survives.
	OneShot bool
	// Limits is the memory accounting operators' own caches report to.
	Budget    *state.Budget
	Cancelled func() bool // polled by long loops, at least every few thousand rows
	// Profile counts what the operators of a one-shot query do, nil: nobody asked. Self is the operator's own entry in it.
	Profile *Profile
	Self    *NodeProfile
}

// Probe reads the rows of a relation by its key or an index, as of an epoch. Not safe for concurrent use.
type Probe interface {
	// Seek chooses the epoch, that of a barrier which the job is at; 0 is that from which it is filled. Epochs never decrease.
	Seek(epoch uint64) error
	// Each calls found after it has appended a row with the key to cols, once for each such row. Of the relation's key hash is that of the columns.
	Each(hash uint64, key []byte, cols []*types.Vector, found func() error) error
	Close()
}

// appendLookupKey appends the key of row i of cols to read a relation by: ascending with NULLs last, or as an index has it.
func appendLookupKey(dst []byte, cols []*types.Vector, i int, by *plan.LookupIndex) []byte {
	if by == nil {
		return types.AppendKeyRow(dst, cols, i)
	}
	return by.AppendKey(dst, cols, i)
}

// time returns what the clock shows, at least now: an operator may not have seen a barrier for long, and what comes before one must not be taken for older than it is.
func (c *Context) time(now int64) int64 {
	if c.Clock == nil {
		return now
	}
	return max(now, c.Clock())
}

// ErrorReporter diverts rows whose evaluation failed. The weight makes an error leave again when its cause is retracted.
// In one-shot plans Report returns err itself, which the operator returns at once.
type ErrorReporter interface {
	Report(node *plan.Node, err error, row *types.Chunk, r int, weight int64) error
	// Late counts and keeps a row that arrived after its window had closed.
	Late(node *plan.Node, row *types.Chunk, r int) error
}
