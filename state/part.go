package state

import (
	"encoding/binary"
	"sync/atomic"
)

const (
	// maintainEveryOps is how many changes and cached reads pass between two looks at the budget and at what the background has published.
	maintainEveryOps = 256
	// scanDirtyMin is the number of dirty keys from which on a part may stop listing them and have the snapshot look through the
	// frozen tree instead.
	scanDirtyMin = 4096
)

// Part is the share of one table that one subtask owns. Only that subtask's goroutine may call its methods; others read Views.
//
// Invariant: what the overlay holds for a key, tombstones included, wins over Pebble. A key that is not in the overlay lives in
// Pebble or not at all; in a complete part it is the latter.
type Part struct {
	store   *Store
	table   uint32
	subtask int
	rng     Range
	mode    PartMode
	staged  *staged // of staged parts on the Pebble backend; the overlay is empty then

	overlay  *tree
	seq      uint32 // of changes made now; a seal ends it
	complete bool
	mods     uint64 // counts changes of the overlay, for open iterators
	ops      uint32 // counts what fills the overlay, for maintenance

	dirty     []string // keys first changed since the last seal; nil when scanDirty
	scanDirty bool
	dirtyN    int
	changed   atomic.Bool // dirtyN > 0, for other goroutines

	live, bytes, reported int64
	tombstones            int64
	cached                int64 // clean entries put by reads since the last eviction

	cold       *coldSnap // reference held; nil when the store has no Pebble DB
	reader     coldReader
	evictedSeq uint32
	purgedSeq  uint32
	openIters  int
	freeIter   *Iter
	lastCold   []byte // key of the last read that Pebble answered, so that the put that follows is not counted as new
	kbuf       []byte

	liveNow, bytesNow atomic.Int64 // published at every maintenance

	// Published by the background, guarded by store.mu; news tells that there is something to take.
	news        atomic.Bool
	pending     []dirtySet // sealed and not yet in a delta, oldest first
	held        []purge    // tombstones in deltas that Pebble has to see before they may go
	tombs       []purge    // tombstones that may be purged
	writtenSeq  uint32     // all changes up to it are in deltas
	ingestedSeq uint32     // all changes up to it are in Pebble
	evictNow    bool       // memory was short when Pebble took them
}

// dirtySet is what one seal froze.
type dirtySet struct {
	seq  uint32
	keys []string
	scan bool // keys is not kept: look for entries newer than writtenSeq
}

type purge struct {
	seq  uint32
	keys []string
}

// Table returns the table id.
func (p *Part) Table() uint32 { return p.table }

// Range returns the key groups of the part.
func (p *Part) Range() Range { return p.rng }

// Len returns the number of live entries: exact while the part is complete, else an estimate.
func (p *Part) Len() int64 { return max(0, p.live) }

// Bytes returns the heap bytes of the overlay, approximately.
func (p *Part) Bytes() int64 { return p.bytes }

func (p *Part) scratchKey(kg uint16, key []byte) string {
	b := binary.BigEndian.AppendUint16(p.kbuf[:0], kg)
	b = append(b, key...)
	p.kbuf = b
	return stringOf(b)
}

// Get returns the value of key, valid until the next call that modifies the part. It must not be modified.
func (p *Part) Get(kg uint16, key []byte) (val []byte, ok bool, err error) {
	if p.staged != nil {
		return p.getStaged(kg, key)
	}
	if e, found := p.overlay.get(p.scratchKey(kg, key)); found {
		if e.tombstone() {
			return nil, false, nil
		}
		return e.value(), true, nil
	}
	if p.complete {
		return nil, false, nil
	}
	return p.getCold(kg, key)
}

func (p *Part) getCold(kg uint16, key []byte) ([]byte, bool, error) {
	val, ok, err := p.reader.get(p.cold, kg, p.table, key)
	if err != nil || !ok {
		return nil, false, err
	}
	p.lastCold = appendGroupKey(p.lastCold[:0], kg, key)
	e := newEntry(kg, key, val, 0)
	if p.mode == Ordered && !p.store.budget.Soft() {
		p.overlay.set(e)
		p.bytes += e.size()
		p.cached++
		p.mods++
		if p.ops++; p.ops%maintainEveryOps == 0 {
			p.maintain()
		}
	}
	return e.value(), true, nil
}

// Put sets key to val, copying both. Putting the value that is there already changes nothing.
func (p *Part) Put(kg uint16, key, val []byte) {
	if p.staged != nil {
		p.putStaged(kg, key, val)
		return
	}
	var at cursor
	at.seek(p.overlay, p.scratchKey(kg, key))
	old, found := entry{}, at.found
	if found {
		old = at.item()
	}
	meta := p.seq << metaShift
	switch {
	case !found:
		if p.complete {
			meta |= metaFresh
		}
		if p.complete || string(p.lastCold) != stringOf(p.kbuf) {
			p.live++
		}
	default:
		if !old.tombstone() {
			if old.kv[old.klen:] == stringOf(val) {
				return
			}
		} else {
			p.live++
			p.tombstones--
		}
		if old.seq() == p.seq {
			meta |= old.meta & metaFresh
		}
		p.bytes -= old.size()
	}
	e := newEntry(kg, key, val, meta)
	p.overlay.put(&at, e)
	p.bytes += e.size()
	p.touched(e, found && old.seq() == p.seq)
}

// Delete removes key.
func (p *Part) Delete(kg uint16, key []byte) {
	if p.staged != nil {
		p.deleteStaged(kg, key)
		return
	}
	k := p.scratchKey(kg, key)
	old, found := p.overlay.get(k)
	if found && old.tombstone() || !found && p.complete {
		return
	}
	p.live--
	if found {
		p.bytes -= old.size()
	}
	if p.store.heapOnly || found && old.fresh() && old.seq() == p.seq {
		p.overlay.delete(k)
		p.touched(old, !p.store.heapOnly)
		return
	}
	e := newEntry(kg, key, nil, p.seq<<metaShift|metaTombstone)
	p.overlay.set(e)
	p.bytes += e.size()
	p.tombstones++
	p.touched(e, found && old.seq() == p.seq)
}

// touched records that e's key changed; listed says that the key is among the dirty ones already.
func (p *Part) touched(e entry, listed bool) {
	p.mods++
	if p.dirtyN == 0 {
		p.changed.Store(true)
	}
	if !listed {
		p.dirtyN++
		if !p.scanDirty && !p.store.heapOnly {
			if len(p.dirty) >= scanDirtyMin && len(p.dirty) > p.overlay.len()/4 {
				p.dirty, p.scanDirty = nil, true
			} else {
				p.dirty = append(p.dirty, e.key())
			}
		}
	}
	if p.ops++; p.ops%maintainEveryOps == 0 {
		p.maintain()
		p.store.waitForRoom()
	}
}

// maintain tells the budget and takes over what the background has published: a newer Pebble snapshot, tombstones that are no
// longer needed, permission to evict.
func (p *Part) maintain() {
	p.report()
	if p.staged != nil {
		p.maintainStaged()
		return
	}
	if p.openIters > 0 {
		return // iterators hold the present overlay over the present Pebble snapshot
	}
	soft := p.store.budget.Soft()
	if !p.news.Load() && !(soft && p.evictable()) {
		return
	}
	p.store.mu.Lock()
	p.news.Store(false)
	tombs := p.tombs
	p.tombs = nil
	ingested := p.ingestedSeq
	soft = soft || p.evictNow
	p.evictNow = false
	if c := p.store.cold; c != p.cold {
		p.reader.close()
		p.cold.release()
		p.cold = c.retain()
	}
	p.store.mu.Unlock()

	for _, t := range tombs {
		p.purge(t)
	}
	clean := ingested > p.evictedSeq || p.cached > 0
	if p.cold != nil && clean && ingested >= p.purgedSeq && soft {
		p.evict(ingested)
	}
}

// report tells the budget and other goroutines how large the part is.
func (p *Part) report() {
	if d := p.bytes - p.reported; d != 0 {
		p.store.budget.Add(d)
		p.store.overlayBytes.Add(d)
		p.reported = p.bytes
	}
	p.liveNow.Store(p.live)
	p.bytesNow.Store(p.bytes)
}

// evictable reports whether an eviction would free anything worth its cost.
func (p *Part) evictable() bool { return p.cold != nil && p.cached >= maintainEveryOps }

// purge drops tombstones that the deltas or Pebble hold.
func (p *Part) purge(t purge) {
	for _, k := range t.keys {
		if e, ok := p.overlay.get(k); ok && e.tombstone() && e.seq() <= t.seq {
			p.overlay.delete(k)
			p.bytes -= e.size()
			p.tombstones--
			p.mods++
		}
	}
	p.purgedSeq = max(p.purgedSeq, t.seq)
}

// evict keeps only what Pebble does not have.
func (p *Part) evict(ingested uint32) {
	kept := newTree()
	var bytes, tombstones int64
	p.overlay.scan(func(e entry) bool {
		if e.seq() > ingested {
			kept.load(e)
			bytes += e.size()
			if e.tombstone() {
				tombstones++
			}
		}
		return true
	})
	if kept.len() < p.overlay.len() {
		p.complete = false
	}
	p.overlay, p.tombstones, p.cached = kept, tombstones, 0
	p.evictedSeq = ingested
	p.mods++
	p.store.evictions.Add(1)
	d := bytes - p.bytes
	p.bytes = bytes
	p.reported += d
	p.store.budget.Add(d)
	p.store.overlayBytes.Add(d)
	p.bytesNow.Store(bytes)
}

// seal ends the present sequence; store.mu is held.
func (p *Part) seal() (sealedPart, bool) {
	if p.staged != nil {
		return p.sealStaged()
	}
	if p.dirtyN > 0 {
		p.pending = append(p.pending, dirtySet{seq: p.seq, keys: p.dirty, scan: p.scanDirty})
		p.dirty, p.scanDirty, p.dirtyN = nil, false, 0
		p.seq++
		p.changed.Store(false)
	}
	p.liveNow.Store(p.live)
	if len(p.pending) == 0 && !p.store.heapOnly {
		return sealedPart{}, false
	}
	return sealedPart{part: p, frozen: p.overlay.copy(), seq: p.seq - 1, live: p.live}, true
}

// View returns an immutable copy of the present content in O(1). The caller must Close it.
func (p *Part) View() *View {
	p.liveNow.Store(p.Len())
	v := &View{table: p.table, rng: p.rng, overlay: p.overlay.copy(), live: p.Len()}
	if p.staged != nil {
		p.freeze()
		v.stages = p.staged.stages[:len(p.staged.stages):len(p.staged.stages)]
	}
	if !p.complete {
		v.cold = p.cold.retain()
	}
	v.refs.Store(1)
	return v
}

// release gives back what the part holds; its goroutine has ended.
func (p *Part) release() {
	p.reader.close()
	if p.freeIter != nil {
		p.freeIter.closeCold()
	}
	p.cold.release()
	p.cold = nil
	p.store.budget.Add(-p.reported)
	p.store.overlayBytes.Add(-p.reported)
	p.reported = 0
	p.overlay = newTree()
	if p.staged != nil {
		p.staged.cur, p.staged.stages = p.newStage(), nil
	}
}
