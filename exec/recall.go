package exec

import (
	"context"
	"os"
	"path/filepath"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/changelog"
	"github.com/streamdb/streamdb/types"
)

// PastState is what the job of a relation, or the tables, held at an epoch; its files are local.
type PastState struct {
	Epoch uint64
	State *state.Snapshot
}

// recallDir is the folder, beside those of the jobs, for links to files of the states that are compared.
const recallDir = "compare"

// Recall puts into the change log of a relation that was just restored what has changed since earlier states, oldest first, each difference as one
// entry at the epoch of the state after it, the last at that of now: views that go on from these epochs find there what they have missed. From the epoch of now
// until the one that the relation was restored at nothing has changed. False: it is more than the log holds. Call it before those are created, and before Replay.
func (e *Engine) Recall(ctx context.Context, rel *Relation, past []PastState, now PastState) (ok bool, err error) {
	opts := e.storeOptions(TablesID, state.BackendPebble)
	opts.Dir = filepath.Join(filepath.Dir(e.jobDir(0)), recallDir)
	opts.Failpoints = nil
	layout, table := rel.Layout(), materializeTable
	if rel.job == nil {
		table = uint32(rel.ID) //nolint:gosec // as in CreateTable
	}
	var entries []changelog.Entry
	size := int64(0)
	for i, was := range past {
		is := now
		if i+1 < len(past) {
			is = past[i+1]
		}
		d := &difference{layout: layout, limit: rel.Log.Limit() - size}
		err := os.RemoveAll(opts.Dir)
		if err == nil {
			err = state.Compare(ctx, opts, table, was.State, is.State, d.add)
		}
		if rmErr := os.RemoveAll(opts.Dir); err == nil && rmErr != nil {
			err = rmErr
		}
		switch {
		case err == errTooMuch: //nolint:errorlint // made here
			return false, nil
		case err != nil:
			return false, pgerr.Wrap(pgerr.CodeOf(err), err, "compare states of %s", rel.Name)
		}
		size += d.bytes
		entries = append(entries, changelog.Entry{Epoch: is.Epoch, Chunks: d.done()})
	}
	from := now.Epoch
	if len(past) > 0 {
		from = past[0].Epoch
	}
	rel.recalled = rel.Log.Closed() // there are no versions from before
	rel.Log.Recall(from, entries)
	return true, nil
}

// NotRecalled tells why what views missed of a relation cannot be found. Call it before those are created.
func (e *Engine) NotRecalled(rel *Relation, err error) { rel.unrecalled = err }

var errTooMuch = pgerr.Newf(pgerr.ConfigurationLimitExceeded, "more has changed than the change log holds")

// difference gathers changed rows in chunks.
type difference struct {
	layout *types.RowLayout
	limit  int64 // bytes
	bytes  int64
	chunk  *types.Chunk
	chunks []*types.Chunk
}

func (d *difference) add(was, is []byte) error {
	if was != nil {
		if err := d.row(was, -1); err != nil {
			return err
		}
	}
	if is != nil {
		return d.row(is, 1)
	}
	return nil
}

func (d *difference) row(row []byte, weight int64) error {
	if d.chunk != nil && d.chunk.N == types.MaxChunkRows {
		d.next()
		if d.bytes > d.limit {
			return errTooMuch
		}
	}
	if d.chunk == nil {
		d.chunk = types.NewChunk(d.layout.Types)
	}
	if err := d.layout.Decode(row, d.chunk.Cols); err != nil {
		return err
	}
	d.chunk.PushWeight(weight)
	return nil
}

func (d *difference) next() {
	d.bytes += d.chunk.Bytes()
	d.chunks, d.chunk = append(d.chunks, d.chunk), nil
}

func (d *difference) done() []*types.Chunk {
	if d.chunk != nil {
		d.next()
	}
	return d.chunks
}
