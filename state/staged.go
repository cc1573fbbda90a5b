package state

import (
	"slices"

	"github.com/cespare/xxhash/v2"
)

// staged is what a staged part has on the Pebble backend instead of an overlay.
//
//	Put, Delete ──▶ cur ── seal ──▶ stages (frozen, oldest first) ── written, ingested ──▶ Pebble
//	                                   │ while there is no Pebble DB, merged in the background so that their number stays logarithmic
//	Get, Scan: cur, stages from the newest, filter, Pebble
type staged struct {
	cur    *stage
	stages []*stage
	filter keyFilter

	// Guarded by store.mu: published by the background.
	merged   []*stage // each replaces the stages of its sequences
	toFilter []*stage // written, keys not yet in the filter
}

// stageLoaded moves what was loaded at the restore into a stage.
func (p *Part) stageLoaded() {
	if p.staged == nil || p.overlay.len() == 0 {
		return
	}
	x := &stage{from: 1, to: 1}
	p.overlay.scan(func(e entry) bool {
		x.addEntry(e)
		return true
	})
	p.overlay = newTree()
	p.staged.stages = []*stage{x}
	p.staged.toFilter = []*stage{x}
	p.bytes = x.bytes()
	p.report()
}

// Append is Put for callers that know whether the key is there already: a staged part then need not look. The caller's word also decides
// what Len counts.
func (p *Part) Append(kg uint16, key, val []byte, fresh bool) {
	if p.staged == nil {
		p.Put(kg, key, val)
		return
	}
	if fresh {
		p.live++
	}
	p.stageRecord(kg, key, val, false)
}

// Remove is Delete for callers that know that the key is there.
func (p *Part) Remove(kg uint16, key []byte) {
	if p.staged == nil {
		p.Delete(kg, key)
		return
	}
	p.live--
	p.stageRecord(kg, key, nil, true)
}

func (p *Part) stageRecord(kg uint16, key, val []byte, tombstone bool) {
	st := p.staged
	before := st.cur.size
	st.cur.add(kg, key, val, tombstone)
	p.bytes += st.cur.size - before
	p.mods++
	if p.dirtyN == 0 {
		p.changed.Store(true)
	}
	p.dirtyN++
	if p.ops++; p.ops%maintainEveryOps == 0 {
		p.maintain()
		p.store.waitForRoom()
	}
}

// findStaged looks a key up in memory.
func (p *Part) findStaged(h uint64, k []byte) (entry, bool) {
	st := p.staged
	if e, ok := p.findIn(st.cur, h, k); ok {
		return e, true
	}
	for i := len(st.stages) - 1; i >= 0; i-- {
		if e, ok := p.findIn(st.stages[i], h, k); ok {
			return e, true
		}
	}
	return entry{}, false
}

func (p *Part) findIn(s *stage, h uint64, k []byte) (entry, bool) {
	if s.indexed == len(s.recs) {
		return s.find(h, k)
	}
	before := len(s.index)
	e, ok := s.find(h, k)
	p.bytes += int64(len(s.index)-before) * 8
	return e, ok
}

func (p *Part) getStaged(kg uint16, key []byte) ([]byte, bool, error) {
	if p.news.Load() {
		p.maintainStaged() // operators that only read must let go of what was ingested, too
	}
	k := bytesOf(p.scratchKey(kg, key))
	h := xxhash.Sum64(k)
	if e, found := p.findStaged(h, k); found {
		if e.tombstone() {
			return nil, false, nil
		}
		return e.value(), true, nil
	}
	if p.complete {
		return nil, false, nil
	}
	if f := &p.staged.filter; !f.off.Load() && !f.has(h) {
		return nil, false, nil
	}
	val, ok, err := p.reader.get(p.cold, kg, p.table, key)
	if ok && err == nil {
		p.lastCold = appendGroupKey(p.lastCold[:0], kg, key)
	}
	return val, ok, err
}

func (p *Part) putStaged(kg uint16, key, val []byte) {
	k := bytesOf(p.scratchKey(kg, key))
	e, found := p.findStaged(xxhash.Sum64(k), k)
	switch {
	case found && !e.tombstone():
		if e.kv[e.klen:] == stringOf(val) {
			return
		}
	case found, p.complete, string(p.lastCold) != stringOf(k):
		p.live++
	}
	p.stageRecord(kg, key, val, false)
}

func (p *Part) deleteStaged(kg uint16, key []byte) {
	k := bytesOf(p.scratchKey(kg, key))
	e, found := p.findStaged(xxhash.Sum64(k), k)
	if found && e.tombstone() || !found && p.complete {
		return
	}
	p.live--
	p.stageRecord(kg, key, nil, true)
}

// freeze makes cur the newest stage, so that it can be sorted. Stages of one sequence are merged when they are of a size, so that
// reading in turns with changes costs a logarithm.
func (p *Part) freeze() {
	st := p.staged
	if len(st.cur.recs) == 0 {
		return
	}
	st.stages = append(st.stages[:len(st.stages):len(st.stages)], st.cur)
	st.cur = p.newStage()
	for n := len(st.stages); n > 1 && st.stages[n-2].from == p.seq && st.stages[n-2].bytes() <= 2*st.stages[n-1].bytes(); n-- {
		p.mergeNewest(2)
	}
}

func (p *Part) newStage() *stage { return &stage{from: p.seq, to: p.seq} }

// mergeNewest replaces the newest n stages by one.
func (p *Part) mergeNewest(n int) {
	st := p.staged
	at := len(st.stages) - n
	for _, s := range st.stages[at:] {
		p.bytes -= s.bytes()
	}
	m := mergeStages(st.stages[at:], false)
	p.bytes += m.bytes()
	st.stages = append(st.stages[:at:at], m)
}

// sealStaged ends the present sequence; what it changed becomes one stage.
func (p *Part) sealStaged() (sealedPart, bool) {
	st := p.staged
	if p.dirtyN > 0 {
		p.freeze()
		n := 0
		for n < len(st.stages) && st.stages[len(st.stages)-1-n].from == p.seq {
			n++
		}
		if n > 1 {
			p.mergeNewest(n)
		}
		p.pending = append(p.pending, dirtySet{seq: p.seq})
		p.dirtyN = 0
		p.seq++
		st.cur = p.newStage()
		p.changed.Store(false)
	}
	p.liveNow.Store(p.live)
	if len(p.pending) == 0 {
		return sealedPart{}, false
	}
	return sealedPart{part: p, stages: st.stages[:len(st.stages):len(st.stages)], seq: p.seq - 1, live: p.live}, true
}

// maintainStaged takes over what the background has published.
func (p *Part) maintainStaged() {
	if p.openIters > 0 || !p.news.Load() {
		return
	}
	st := p.staged
	p.store.mu.Lock()
	p.news.Store(false)
	merged := st.merged
	st.merged = nil
	ingested := p.ingestedSeq
	if c := p.store.cold; c != p.cold {
		p.reader.close()
		p.cold.release()
		p.cold = c.retain()
	}
	p.store.mu.Unlock()

	for _, m := range merged {
		st.stages = replaceStages(st.stages, m)
	}
	if p.cold != nil && ingested > p.evictedSeq {
		n := 0
		for n < len(st.stages) && st.stages[n].to <= ingested {
			n++
		}
		if n > 0 {
			st.stages = slices.Clone(st.stages[n:])
			p.complete = false
			p.store.evictions.Add(1)
		}
		p.evictedSeq = ingested
	}
	p.mods++
	p.bytes = st.cur.bytes()
	for _, s := range st.stages {
		p.bytes += s.bytes()
	}
	p.report()
}

// replaceStages puts m in the place of the stages whose sequences it has.
func replaceStages(ss []*stage, m *stage) []*stage {
	out := make([]*stage, 0, len(ss))
	put := false
	for _, s := range ss {
		if s.from < m.from || s.to > m.to {
			out = append(out, s)
			continue
		}
		if !put {
			out, put = append(out, m), true
		}
	}
	return out
}

// stagesOf returns what sp has to write: the stages that are in no delta yet.
func (s *Store) stagesOf(sp sealedPart, written uint32) []*stage {
	var out []*stage
	for _, x := range sp.stages {
		if x.to > written && x.to <= sp.seq {
			out = append(out, x)
		}
	}
	return out
}

// condense merges a part's written stages while no Pebble DB takes them: the last ones as long as they are not much smaller than what lies
// before them, so that each entry is rewritten a logarithmic number of times. It runs after the write, outside of all locks.
func (s *Store) condense(sp sealedPart) {
	p := sp.part
	s.mu.Lock()
	ss := sp.stages
	for _, m := range p.staged.merged {
		ss = replaceStages(ss, m)
	}
	s.mu.Unlock()
	n := len(ss)
	i := n - 1
	for sum := int64(0); i > 0; i-- {
		sum += ss[i].size
		if ss[i-1].size > 2*sum {
			break
		}
	}
	if i < 0 || n-i < 2 {
		return
	}
	m := mergeStages(ss[i:], i == 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	p.staged.merged = append(p.staged.merged, m)
	p.staged.toFilter = replaceStages(p.staged.toFilter, m)
	p.news.Store(true)
}

// fillFilters adds the keys that Pebble has now to the parts' filters.
func (s *Store) fillFilters() {
	s.mu.Lock()
	parts := slices.Clone(s.parts)
	s.mu.Unlock()
	for _, p := range parts {
		if p.staged == nil {
			continue
		}
		s.mu.Lock()
		stages := p.staged.toFilter
		p.staged.toFilter = nil
		s.mu.Unlock()
		f := &p.staged.filter
		for _, x := range stages {
			if f.off.Load() {
				break
			}
			var grown int64
			for i := range x.recs {
				grown += f.add(xxhash.Sum64(x.key(uint32(i))))
			}
			s.overlayBytes.Add(grown)
			s.budget.Add(grown)
			if limit := s.budget.Limit(); limit > 0 && f.bytes > limit/filterShare {
				d := f.drop()
				s.overlayBytes.Add(-d)
				s.budget.Add(-d)
			}
		}
	}
}
