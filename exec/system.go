package exec

import (
	"context"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// SystemTableID is the table in which the server keeps small durable values of its own: rows of three numbers, found by the first. It is
// written, checkpointed and restored as users' tables are, but no catalog lists it.
const SystemTableID uint64 = 2

// OpenSystemTable opens the server's own table; call it before users' tables are opened.
func (e *Engine) OpenSystemTable(ctx context.Context) (*Relation, error) {
	return e.CreateTable(ctx, SystemTableID, "system", types.Schema{{Name: "key", Type: types.Int8}, {Name: "a", Type: types.Int8}, {Name: "b", Type: types.Int8}}, []int{0})
}

// Logged calls f with the changes to a table that the write-ahead log holds, oldest first; row is nil for a deletion. The bytes are lent.
func (e *Engine) Logged(table uint64, f func(key, row []byte) error) error {
	if e.cfg.WAL == nil {
		return nil
	}
	return e.cfg.WAL.Replay(0, func(lsn uint64, rec []byte) error {
		r := recordReader{b: rec}
		r.uvarint() // epoch
		for range r.uvarint() {
			id := r.uvarint()
			if id == 0 {
				r.side() // the table is small
				continue
			}
			for n := r.uvarint(); n > 0 && !r.bad; n-- {
				key := r.bytes(r.uvarint())
				var row []byte
				if l := r.uvarint(); l > 0 {
					row = r.bytes(l - 1)
				}
				if id == table && !r.bad {
					if err := f(key, row); err != nil {
						return err
					}
				}
			}
		}
		if r.bad {
			return pgerr.Newf(pgerr.DataCorrupted, "write-ahead log: record %d is malformed", lsn)
		}
		return nil
	})
}
