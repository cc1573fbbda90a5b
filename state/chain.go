package state

import "context"

// Policy decides how the chain of a store is kept short. The chain is what the next snapshot will consist of: a base and the deltas
// written since, oldest first. Deltas are merged so that their number, and the bytes that a restore has to read, stay bounded,
// while every byte is rewritten only a logarithmic number of times: a snapshot costs what changed, not what is stored.
type Policy struct {
	// InlineMaxBytes is the size up to which a file of a snapshot travels inside its description; InlineTotalBytes bounds their sum.
	InlineMaxBytes, InlineTotalBytes int64
	// SSTBytes is the size at which a delta goes on in a next file: large files make compactions coarse.
	SSTBytes int64
	// MaxDeltas is the number of deltas from which on the youngest are merged into one.
	MaxDeltas int
	// Deltas that together are larger than RenewPercent of the base make a new base, or one full delta when there is no Pebble DB.
	// MinRenewBytes and MinMergeBytes keep small states from being rewritten for every other snapshot.
	RenewPercent, MinRenewBytes, MinMergeBytes int64
	// IngestMinBytes or IngestMaxDeltas of deltas make an ingestion. Few and large ones are best: each makes Pebble rewrite what it
	// overlaps.
	IngestMinBytes  int64
	IngestMaxDeltas int
}

// DefaultPolicy is in force for all fields that Options.Policy leaves zero.
func DefaultPolicy() Policy {
	return Policy{
		InlineMaxBytes: 20 << 10, InlineTotalBytes: 64 << 10, SSTBytes: 32 << 20, MaxDeltas: 64,
		RenewPercent: 50, MinRenewBytes: 32 << 20, MinMergeBytes: 256 << 10,
		IngestMinBytes: 16 << 20, IngestMaxDeltas: 30,
	}
}

func (p Policy) withDefaults() Policy {
	d := DefaultPolicy()
	for _, f := range []struct{ v, def *int64 }{
		{&p.InlineMaxBytes, &d.InlineMaxBytes},
		{&p.InlineTotalBytes, &d.InlineTotalBytes},
		{&p.SSTBytes, &d.SSTBytes},
		{&p.RenewPercent, &d.RenewPercent},
		{&p.MinRenewBytes, &d.MinRenewBytes},
		{&p.MinMergeBytes, &d.MinMergeBytes},
		{&p.IngestMinBytes, &d.IngestMinBytes},
	} {
		if *f.v == 0 {
			*f.v = *f.def
		}
	}
	if p.MaxDeltas == 0 {
		p.MaxDeltas = d.MaxDeltas
	}
	if p.IngestMaxDeltas == 0 {
		p.IngestMaxDeltas = d.IngestMaxDeltas
	}
	return p
}

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
	if bytes > s.policy.IngestMinBytes || len(un) > s.policy.IngestMaxDeltas || soft && len(un) > 0 {
		if err := s.ingest(ctx); err != nil {
			return err
		}
	}
	if s.chain.deltaBytes() > max(s.policy.MinRenewBytes, s.chain.baseBytes*s.policy.RenewPercent/100) {
		return s.renewBase(ctx)
	}
	if len(s.chain.deltas) > s.policy.MaxDeltas || s.chain.inlineBytes() > s.policy.InlineTotalBytes {
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
	if rest := s.chain.deltaBytes() - ds[0].bytes; rest > max(s.policy.MinMergeBytes, ds[0].bytes*s.policy.RenewPercent/100) {
		return s.mergeDeltas(ctx, 0)
	}
	if len(ds) > s.policy.MaxDeltas || s.chain.inlineBytes() > s.policy.InlineTotalBytes {
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
