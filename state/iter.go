package state

import (
	"bytes"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// Iter walks keys of one table in order, the overlay merged over Pebble. It must be closed.
//
// The part of an open Iter may be changed: the Iter then goes on behind the last key that it returned, over the changed content.
type Iter struct {
	part *Part // nil when over a view
	mods uint64

	overlay *tree
	hot     cursor
	hotOK   bool
	cur     entry
	stages  []*stage   // of staged parts, instead of the overlay
	staged  *stageIter // over them

	cold     *coldSnap
	coldIter *pebble.Iterator
	borrowed bool // coldIter is the part's
	coldOK   bool
	table    uint32
	group    uint16 // that coldIter is bound to
	lastGrp  uint16 // the last one to visit

	lo, hi  []byte // bounds as group and key; hi exclusive, nil: none
	desc    bool
	started bool
	useHot  bool // which side the present position came from; both when the keys were equal
	useCold bool

	keyGroup uint16
	key, val []byte
	last     []byte // group and key returned last, kept for parts only
	err      error
}

func (it *Iter) open(overlay *tree, cold *coldSnap, table uint32) {
	it.overlay, it.table = overlay, table
	if cold != nil {
		it.cold = cold.retain()
	}
}

// bound limits the iterator to one group, prefix and start.
func (it *Iter) bound(kg uint16, prefix, from []byte, desc bool) {
	it.desc, it.group, it.lastGrp = desc, kg, kg
	it.lo = appendGroupKey(it.lo[:0], kg, prefix)
	it.hi = types.KeySuccessor(it.lo)
	if from == nil {
		return
	}
	f := appendGroupKey(nil, kg, from)
	if !desc {
		if bytes.Compare(f, it.lo) > 0 {
			it.lo = f
		}
	} else if f = append(f, 0); it.hi == nil || bytes.Compare(f, it.hi) < 0 {
		it.hi = f
	}
}

func (it *Iter) boundAll(r Range) {
	it.desc, it.group, it.lastGrp = false, r.From, r.To-1
	it.lo = appendGroupKey(it.lo[:0], r.From, nil)
	it.hi = appendGroupKey(nil, r.To, nil)
	if r.From >= r.To { // empty range
		it.group, it.lastGrp = r.From, r.From
		it.hi = append([]byte(nil), it.lo...)
	}
}

// Next moves to the next live key and reports whether there is one.
func (it *Iter) Next() bool {
	if it.err != nil {
		return false
	}
	if !it.started {
		it.started = true
		it.seekHot(nil)
		if it.cold != nil {
			it.startCold()
		}
	} else {
		if it.part != nil && it.mods != it.part.mods {
			it.seekHot(it.last)
		} else if it.useHot {
			it.stepHot()
		}
		if it.useCold {
			it.stepCold()
		}
	}
	for it.hotOK || it.coldOK {
		it.choose()
		if it.useHot && it.cur.tombstone() {
			it.stepHot()
			if it.useCold {
				it.stepCold()
			}
			continue
		}
		it.settle()
		return it.err == nil
	}
	it.useHot, it.useCold = false, false
	return false
}

// choose sets useHot and useCold: the side, or both, with the key that comes first.
func (it *Iter) choose() {
	it.useHot, it.useCold = it.hotOK, it.coldOK
	if !it.hotOK || !it.coldOK {
		return
	}
	dk := it.coldIter.Key()
	hk := bytesOf(it.cur.key())
	c := bytes.Compare(hk[:groupBytes], dk[:groupBytes])
	if c == 0 {
		c = bytes.Compare(hk[groupBytes:], dk[diskPrefix:])
	}
	if it.desc {
		c = -c
	}
	it.useHot, it.useCold = c <= 0, c >= 0
}

// settle takes key and value of the present position.
func (it *Iter) settle() {
	if it.useHot {
		it.key, it.val, it.keyGroup = bytesOf(it.cur.kv[groupBytes:it.cur.klen]), it.cur.value(), it.cur.group()
	} else {
		dk := it.coldIter.Key()
		it.keyGroup, it.key = binary.BigEndian.Uint16(dk), dk[diskPrefix:]
		if it.val, it.err = it.coldIter.ValueAndErr(); it.err != nil {
			it.err = ioError(it.err, "read state")
		}
	}
	if it.part != nil {
		it.last = appendGroupKey(it.last[:0], it.keyGroup, it.key)
	}
}

// seekHot positions the overlay's side at the start, or behind after.
func (it *Iter) seekHot(after []byte) {
	if it.part != nil {
		it.mods, it.overlay = it.part.mods, it.part.overlay
	}
	if it.part != nil && it.part.staged != nil {
		it.part.freeze()
		it.stages, it.mods = it.part.staged.stages, it.part.mods
	}
	if len(it.stages) > 0 {
		it.seekStages(after)
		return
	}
	switch {
	case !it.desc:
		from := it.lo
		if after != nil {
			from = after
		}
		it.hotOK = it.hot.seek(it.overlay, stringOf(from))
		if it.hotOK && after != nil && it.hot.item().key() == stringOf(after) {
			it.hotOK = it.hot.next()
		}
	default:
		below := it.hi
		if after != nil {
			below = after
		}
		if below != nil && it.hot.seek(it.overlay, stringOf(below)) {
			it.hotOK = it.hot.prev()
		} else {
			it.hotOK = it.hot.last(it.overlay)
		}
	}
	it.checkHot()
}

func (it *Iter) seekStages(after []byte) {
	from := it.lo
	if it.desc {
		from = it.hi
	}
	if after != nil {
		from = after
	}
	it.staged = newStageIter(it.stages, from, it.desc)
	if !it.desc && after != nil && it.staged.ok && it.staged.cur.key() == stringOf(after) {
		it.staged.next()
	}
	it.checkHot()
}

func (it *Iter) stepHot() {
	if it.staged != nil {
		it.staged.next()
		it.checkHot()
		return
	}
	if it.desc {
		it.hotOK = it.hot.prev()
	} else {
		it.hotOK = it.hot.next()
	}
	it.checkHot()
}

func (it *Iter) checkHot() {
	if it.staged != nil {
		if it.hotOK = it.staged.ok; !it.hotOK {
			return
		}
		it.cur = it.staged.cur
	} else {
		if !it.hotOK {
			return
		}
		it.cur = it.hot.item()
	}
	if it.desc {
		it.hotOK = it.cur.key() >= stringOf(it.lo)
	} else {
		it.hotOK = it.hi == nil || it.cur.key() < stringOf(it.hi)
	}
}

// startCold opens the Pebble side on the first group.
func (it *Iter) startCold() {
	if it.part != nil && !it.part.reader.scanBusy {
		it.coldIter, it.err = it.part.reader.scanIter(it.cold)
		it.borrowed = it.err == nil
	} else {
		it.coldIter, it.err = it.cold.newIter(false)
	}
	if it.err != nil {
		return
	}
	it.seekGroup()
}

// seekGroup binds the Pebble side to the present group and goes on to the next ones until one has a key.
func (it *Iter) seekGroup() {
	for {
		lo, hi := it.coldBounds()
		it.coldIter.SetBounds(lo, hi)
		if it.desc {
			it.coldOK = it.coldIter.Last()
		} else {
			it.coldOK = it.coldIter.First()
		}
		if it.coldOK || it.coldEnd() {
			return
		}
		it.group++
	}
}

// coldEnd reports whether the Pebble side has no further group, taking its error if there is one.
func (it *Iter) coldEnd() bool {
	if err := it.coldIter.Error(); err != nil {
		it.err = ioError(err, "read state")
		return true
	}
	return it.group >= it.lastGrp
}

// coldBounds are lo and hi as keys on disk, cut to the present group.
func (it *Iter) coldBounds() (lo, hi []byte) {
	var from []byte
	if binary.BigEndian.Uint16(it.lo) == it.group {
		from = it.lo[groupBytes:]
	}
	lo = appendDiskKey(nil, it.group, it.table, from)
	if len(it.hi) >= groupBytes && binary.BigEndian.Uint16(it.hi) == it.group {
		hi = appendDiskKey(nil, it.group, it.table, it.hi[groupBytes:])
	} else {
		hi = types.KeySuccessor(appendDiskKey(nil, it.group, it.table, nil))
	}
	return lo, hi
}

func (it *Iter) stepCold() {
	if it.desc {
		it.coldOK = it.coldIter.Prev()
	} else {
		it.coldOK = it.coldIter.Next()
	}
	if !it.coldOK && !it.coldEnd() {
		it.group++
		it.seekGroup()
	}
}

// Key returns the present key without key group and table, valid until Next.
func (it *Iter) Key() []byte { return it.key }

// Value returns the present value, valid until Next. It must not be modified.
func (it *Iter) Value() []byte { return it.val }

// Group returns the key group of the present key.
func (it *Iter) Group() uint16 { return it.keyGroup }

// Err returns the error that ended the iteration, nil at its natural end.
func (it *Iter) Err() error { return it.err }

// closeCold closes the iterator that is the Iter's own.
func (it *Iter) closeCold() {
	if it.coldIter != nil && !it.borrowed {
		if err := it.coldIter.Close(); err != nil && it.err == nil {
			it.err = ioError(err, "read state")
		}
	}
	it.coldIter = nil
}

// Close releases the iterator. Err stays valid until the part's next scan, which may reuse the Iter: close it once.
func (it *Iter) Close() {
	if it.overlay == nil {
		return
	}
	if it.borrowed {
		it.part.reader.scanBusy = false
	}
	it.closeCold()
	it.borrowed = false
	it.cold.release()
	it.cold, it.overlay, it.cur, it.stages, it.staged, it.hot = nil, nil, entry{}, nil, nil, cursor{}
	it.hotOK, it.coldOK = false, false
	if it.part != nil {
		it.part.openIters--
		it.part.freeIter = it
	}
}

func (p *Part) newIter() *Iter {
	it := p.freeIter
	p.freeIter = nil
	if it == nil {
		it = &Iter{part: p}
	} else {
		it.started, it.useHot, it.useCold, it.err = false, false, false, nil
	}
	p.openIters++
	var cold *coldSnap
	if !p.complete {
		cold = p.cold
	}
	it.open(p.overlay, cold, p.table)
	return it
}

// Scan iterates over the keys of a key group that start with prefix, in ascending order.
func (p *Part) Scan(kg uint16, prefix []byte) *Iter { return p.ScanFrom(kg, prefix, nil, false) }

// ScanFrom iterates over the keys that start with prefix: in ascending order those not below from, or with desc in descending
// order those not above from. From is a whole key; nil starts at the end of the prefix that comes first.
func (p *Part) ScanFrom(kg uint16, prefix, from []byte, desc bool) *Iter {
	it := p.newIter()
	it.bound(kg, prefix, from, desc)
	return it
}

// ScanAll iterates over all key groups of the part, each in ascending order of keys.
func (p *Part) ScanAll() *Iter {
	it := p.newIter()
	it.boundAll(p.rng)
	return it
}

func ioError(err error, doing string) error {
	if pebble.IsCorruptionError(err) {
		return pgerr.Wrap(pgerr.DataCorrupted, err, "%s", doing)
	}
	return pgerr.Wrap(pgerr.IOError, err, "%s", doing)
}
