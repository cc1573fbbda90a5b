package state

import "context"

// The chain is what the next snapshot will consist of: a base and the deltas written since, oldest first.
//
// Deltas are merged so that their number, and the bytes that a restore has to read, stay bounded, while every byte is rewritten
// only a logarithmic number of times: a snapshot costs what changed, not what is stored.
const (
	// maxDeltas is the number of deltas from which on the youngest are merged into one.
	maxDeltas = 64
	// maxInlineBytes bounds what a description carries inline.
	maxInlineBytes = 64 << 10
	// renewPercent: deltas larger than this share of the base make a new base, or one full delta when there is no Pebble DB.
	renewPercent = 50
	// minRenewBytes and minMergeBytes keep small states from being rewritten for every other snapshot.
	minRenewBytes = 32 << 20
	minMergeBytes = 256 << 10
	// ingestMinBytes and ingestMaxDeltas make an ingestion: few and large ones, as each makes Pebble rewrite what it overlaps.
	ingestMinBytes  = 16 << 20
	ingestMaxDeltas = 30
)

type delta struct {
	handles  []Handle // files that do not overlap, in order
	bytes    int64
	inline   int64
	ingested bool
}

func makeDelta(hs []Handle, ingested bool) delta {
	d := delta{handles: hs, ingested: ingested}
	for _, h := range hs {
		d.bytes += h.Size
		d.inline += int64(len(h.Inline))
	}
	return d
}

type chain struct {
	base      []Handle
	baseBytes int64
	deltas    []delta
	version   int // counts changes
}

func (c *chain) deltaBytes() int64 {
	var n int64
	for _, d := range c.deltas {
		n += d.bytes
	}
	return n
}

func (c *chain) inlineBytes() int64 {
	var n int64
	for _, d := range c.deltas {
		n += d.inline
	}
	return n
}

// pending returns the deltas that Pebble has not ingested: always the youngest ones.
func (c *chain) pending() []delta {
	i := len(c.deltas)
	for i > 0 && !c.deltas[i-1].ingested {
		i--
	}
	return c.deltas[i:]
}

func (c *chain) handles() []Handle {
	hs := append([]Handle(nil), c.base...)
	for _, d := range c.deltas {
		hs = append(hs, d.handles...)
	}
	return hs
}

func (c *chain) append(d delta) {
	c.deltas = append(c.deltas, d)
	c.version++
}

// arrange merges, ingests and renews the base where it pays.
func (s *Store) arrange(ctx context.Context) error {
	soft := s.budget.Soft() && s.overlayBytes.Load() > s.budget.fairShare()
	if s.db == nil && soft && len(s.chain.deltas) > 0 {
		if err := s.openDB(nil); err != nil {
			return err
		}
	}
	if s.db == nil {
		return s.arrangeDeltas(ctx)
	}
	un := s.chain.pending()
	var bytes int64
	for _, d := range un {
		bytes += d.bytes
	}
	if bytes > ingestMinBytes || len(un) > ingestMaxDeltas || soft && len(un) > 0 {
		if err := s.ingest(ctx); err != nil {
			return err
		}
	}
	if s.chain.deltaBytes() > max(minRenewBytes, s.chain.baseBytes*renewPercent/100) {
		return s.renewBase(ctx)
	}
	if len(s.chain.deltas) > maxDeltas || s.chain.inlineBytes() > maxInlineBytes {
		if err := s.ingest(ctx); err != nil {
			return err
		}
		return s.mergeDeltas(ctx, s.tail())
	}
	return nil
}

// arrangeDeltas keeps a chain without Pebble short.
func (s *Store) arrangeDeltas(ctx context.Context) error {
	ds := s.chain.deltas
	if len(ds) < 2 {
		return nil
	}
	if rest := s.chain.deltaBytes() - ds[0].bytes; rest > max(minMergeBytes, ds[0].bytes*renewPercent/100) {
		return s.mergeDeltas(ctx, 0)
	}
	if len(ds) > maxDeltas || s.chain.inlineBytes() > maxInlineBytes {
		return s.mergeDeltas(ctx, s.tail())
	}
	return nil
}

// tail returns where the run of youngest deltas to merge begins: at least half of them, and on as long as the next older one is
// not more than twice what was gathered.
func (s *Store) tail() int {
	ds := s.chain.deltas
	i := len(ds) - 1
	sum := ds[i].bytes
	for i > 0 && (len(ds)-i < len(ds)/2 || ds[i-1].bytes <= 2*sum) {
		i--
		sum += ds[i].bytes
	}
	return i
}

// mergeDeltas replaces the deltas from index i on by one. They are all ingested, or none is.
func (s *Store) mergeDeltas(ctx context.Context, i int) error {
	if len(s.chain.deltas)-i < 2 {
		return nil
	}
	whole := i == 0 && len(s.chain.base) == 0
	hs, err := s.mergeFiles(ctx, s.chain.deltas[i:], &sstWriter{store: s, prefix: "delta"}, whole)
	if err != nil {
		return err
	}
	d := makeDelta(hs, s.chain.deltas[i].ingested)
	s.chain.deltas = append(append([]delta(nil), s.chain.deltas[:i]...), d)
	s.chain.version++
	s.stats.Merges++
	return nil
}

// mergeFiles writes the newest versions of the keys of ds; whole says that there is nothing older for tombstones to hide.
func (s *Store) mergeFiles(ctx context.Context, ds []delta, w *sstWriter, whole bool) (hs []Handle, err error) {
	m, err := s.newMerger(ctx, ds)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := m.close(); err == nil && e != nil {
			err = ioError(e, "read state")
		}
		if err != nil {
			w.abort()
		}
	}()
	for n := 0; ; n++ {
		if n%ctxCheckEntries == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		ok, err := m.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if m.tomb && whole {
			continue
		}
		if err := w.add(m.key, m.val, m.tomb); err != nil {
			return nil, err
		}
	}
	if err := w.finish(); err != nil {
		return nil, err
	}
	return w.handles, nil
}
