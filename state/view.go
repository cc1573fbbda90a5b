package state

import "sync/atomic"

// View is the immutable content of a part at one moment. Any number of goroutines may read it until the last reference is closed;
// it outlives its part and its store.
type View struct {
	table   uint32
	rng     Range
	overlay *tree
	stages  []*stage  // of staged parts
	cold    *coldSnap // nil when the overlay is all there is
	live    int64
	refs    atomic.Int32
}

// Table returns the table id.
func (v *View) Table() uint32 { return v.table }

// Range returns the key groups that the view covers.
func (v *View) Range() Range { return v.rng }

// Len returns the number of live entries, approximately.
func (v *View) Len() int64 { return v.live }

// Retain adds a reference and returns v.
func (v *View) Retain() *View {
	v.refs.Add(1)
	return v
}

// Close drops a reference.
func (v *View) Close() {
	if v.refs.Add(-1) == 0 {
		v.cold.release()
	}
}

// Get returns the value of key, which must not be modified and stays valid.
func (v *View) Get(kg uint16, key []byte) (val []byte, ok bool, err error) {
	var buf [64]byte
	k := appendGroupKey(buf[:0], kg, key)
	for i := len(v.stages) - 1; i >= 0; i-- {
		if e, found := v.stages[i].sorted().search(k); found {
			if e.tombstone() {
				return nil, false, nil
			}
			return e.value(), true, nil
		}
	}
	if e, found := v.overlay.get(stringOf(k)); found {
		if e.tombstone() {
			return nil, false, nil
		}
		return e.value(), true, nil
	}
	if v.cold == nil {
		return nil, false, nil
	}
	return v.cold.get(kg, v.table, key)
}

// Scan iterates over the keys of a key group that start with prefix, in ascending order.
func (v *View) Scan(kg uint16, prefix []byte) *Iter { return v.ScanFrom(kg, prefix, nil, false) }

// ScanFrom iterates over the keys that start with prefix: in ascending order those not below from, or with desc in descending
// order those not above from. From is a whole key; nil starts at the end of the prefix that comes first.
func (v *View) ScanFrom(kg uint16, prefix, from []byte, desc bool) *Iter {
	it := &Iter{stages: v.stages}
	it.open(v.overlay, v.cold, v.table)
	it.bound(kg, prefix, from, desc)
	return it
}

// ScanAll iterates over all key groups, each in ascending order of keys.
func (v *View) ScanAll() *Iter {
	it := &Iter{stages: v.stages}
	it.open(v.overlay, v.cold, v.table)
	it.boundAll(v.rng)
	return it
}
