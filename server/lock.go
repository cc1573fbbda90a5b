package server

import (
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// lockBytes is what a remembered row lock takes beside its key and row, in bytes.
const lockBytes = 96

// lockRows remembers the rows of a chunk that the query locks, with their present content: when the transaction commits and has changed anything,
// they must not have been changed, nor locked in a way that excludes this one, by a transaction that committed meanwhile.
func (ss *session) lockRows(p *prepared, pins *exec.Pinned, c *types.Chunk) error {
	for _, l := range p.query.Locks {
		o, ok := p.snap.Get(l.Relation)
		if !ok {
			return pgerr.Newf(pgerr.UndefinedTable, "relation %d does not exist any more", l.Relation)
		}
		rels, err := ss.srv.engine.Relations([]uint64{l.Relation})
		if err != nil {
			return err
		}
		w := ss.tx.table(rels[0], o.Constraint)
		var key []byte
	rows:
		for i := range c.Rows() {
			r := c.Row(i)
			key = key[:0]
			for _, k := range l.Columns {
				if c.Cols[k].IsNull(r) {
					continue rows
				}
				key = types.AppendKey(key, c.Cols[k], r, false, false)
			}
			if w.changes.Find(key) >= 0 {
				continue // the commit looks at it anyway
			}
			v := pins.Versions[l.Relation]
			if v == nil {
				continue
			}
			row, ok, err := v.Get(0, key)
			if err != nil {
				return err
			}
			if ok {
				w.lock(key, row, lockModes[l.Strength], pins.Epoch)
			}
		}
	}
	return ss.tx.fits(ss.srv.transactionLimit())
}

// lockModes are the engine's names for the strengths of SQL.
var lockModes = [...]exec.LockMode{
	pgext.LockUpdate: exec.LockUpdate, pgext.LockNoKeyUpdate: exec.LockNoKeyUpdate, pgext.LockShare: exec.LockShare, pgext.LockKeyShare: exec.LockKeyShare,
}

// lock remembers a row lock; the strongest of a row counts.
func (w *tableWrites) lock(key, row []byte, mode exec.LockMode, epoch uint64) {
	old, had := w.locks[string(key)]
	if had && old.Mode <= mode {
		return
	}
	if !had {
		w.lockedBytes += int64(len(key)+len(row)) + lockBytes
	}
	w.relocked = append(w.relocked, relock{key: string(key), before: old, had: had})
	if w.locks == nil {
		w.locks = map[string]exec.RowLock{}
	}
	w.locks[string(key)] = exec.RowLock{Key: append([]byte(nil), key...), Row: append([]byte(nil), row...), Mode: mode, Epoch: epoch}
}

// lockList are the locks of rows that the transaction did not change.
func (w *tableWrites) lockList() []exec.RowLock {
	var out []exec.RowLock
	for _, l := range w.locks {
		if w.changes.Find(l.Key) < 0 {
			out = append(out, l)
		}
	}
	return out
}
