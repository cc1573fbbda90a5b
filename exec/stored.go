package exec

import (
	"context"
	"errors"

	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// ViewRows is the state table with the rows of a view's job.
const ViewRows = uint64(materializeTable)

// ScanStored emits the rows in a table of a snapshot, whose files are local: the given columns of its layout. The snapshot is opened in the folder of opts.
// Chunks are lent.
func ScanStored(ctx context.Context, opts state.Options, from *state.Snapshot, table uint64, layout *types.RowLayout, columns []int, emit func(*types.Chunk) error) (err error) {
	store, err := state.Open(ctx, opts, from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Destroy()) }()
	part, err := store.Part(uint32(table), 0, state.Range{To: uint16(store.MaxParallelism())}, state.Ordered) //nolint:gosec // ids of relations fit
	if err != nil {
		return err
	}
	all := types.NewChunk(layout.Types)
	out := &types.Chunk{}
	flush := func() error {
		if all.N == 0 {
			return nil
		}
		*out = types.Chunk{N: all.N, Cols: out.Cols[:0]}
		for _, c := range columns {
			out.Cols = append(out.Cols, all.Cols[c])
		}
		err := emit(out)
		all.Reset()
		return err
	}
	it := part.ScanAll()
	defer it.Close()
	for it.Next() {
		if err := layout.Decode(it.Value(), all.Cols); err != nil {
			return err
		}
		all.PushWeight(1)
		if all.N == types.MaxChunkRows {
			if err := errors.Join(ctx.Err(), flush()); err != nil {
				return err
			}
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	return flush()
}
