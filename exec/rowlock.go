package exec

// LockMode is the strength of a row lock, the strongest first.
type LockMode uint8

// The row locks of SELECT … FOR.
const (
	LockUpdate LockMode = iota
	LockNoKeyUpdate
	LockShare
	LockKeyShare
	lockModes
)

// lockConflicts tells which locks exclude each other.
var lockConflicts = [lockModes][lockModes]bool{
	LockUpdate:      {true, true, true, true},
	LockNoKeyUpdate: {true, true, true, false},
	LockShare:       {true, true, false, false},
	LockKeyShare:    {true, false, false, false},
}

// RowLock is a row that a transaction locked without changing it. Nothing waits for it: the commit fails with 40001 when a transaction that
// committed since Epoch changed the row (LockKeyShare: took it away), or locked it in a way that excludes this lock.
type RowLock struct {
	Key, Row []byte
	Mode     LockMode
	Epoch    uint64 // of the snapshot in which the row was seen
}

// maxLockedRows is how many locked rows a table remembers. When there are more they are forgotten, and transactions that began before count as
// in conflict with them.
const maxLockedRows = 1 << 16

// lockedRows remembers the newest commit that held a lock of a row, by mode. It belongs to the clock's goroutine.
type lockedRows struct {
	rows  map[string]*[lockModes]uint64
	floor uint64 // what was committed up to here is forgotten
}

// excluded reports whether a transaction that committed since held a lock that excludes l.
func (r *lockedRows) excluded(l *RowLock) bool {
	if l.Epoch < r.floor {
		return true
	}
	held := r.rows[string(l.Key)]
	if held == nil {
		return false
	}
	for m, epoch := range held {
		if epoch > l.Epoch && lockConflicts[l.Mode][m] {
			return true
		}
	}
	return false
}

func (r *lockedRows) add(locks []RowLock, epoch uint64) {
	if len(locks) == 0 {
		return
	}
	if r.rows == nil || len(r.rows) >= maxLockedRows {
		if len(r.rows) > 0 {
			r.floor = epoch
		}
		r.rows = map[string]*[lockModes]uint64{}
	}
	for i := range locks {
		l := &locks[i]
		held := r.rows[string(l.Key)]
		if held == nil {
			held = new([lockModes]uint64)
			r.rows[string(l.Key)] = held
		}
		held[l.Mode] = epoch
	}
}

// checkLocks reports whether the rows that a transaction locked are still what it saw.
func (t *Table) checkLocks(locks []RowLock) error {
	for i := range locks {
		l := &locks[i]
		cur, ok, err := t.part.Get(0, l.Key)
		if err != nil {
			return err
		}
		if !ok || l.Mode != LockKeyShare && string(cur) != string(l.Row) || t.locked.excluded(l) {
			return errConcurrentUpdate()
		}
	}
	return nil
}
