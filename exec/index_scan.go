package exec

import (
	"bytes"
	"context"
	"slices"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// Limits of scans by an index.
const (
	maxLookups     = 1 << 17 // rows looked up one by one; a scan that finds more in its index reads the table instead
	lookupShare    = 8       // the same as a share of the table
	fewLookups     = 1024    // rows that are looked up whatever their share
	firstIndexRows = 16      // rows of the first chunk when a limit may need no more; the next ones double
)

// keySpan is a range of encoded keys: from lo, below hi; hi nil has no end.
type keySpan struct{ lo, hi []byte }

func (s keySpan) holds(key []byte) bool {
	return bytes.Compare(key, s.lo) >= 0 && (s.hi == nil || bytes.Compare(key, s.hi) < 0)
}

// indexScan is a scan of a part of a table by its primary key or an index.
type indexScan struct {
	x    *oneShot
	n    *shotNode
	plan *plan.IndexScan
	v    *Version
	own  *OwnRows
	// lookup: entries hold keys of rows, not rows.
	lookup bool
	spans  []keySpan
	layout *types.RowLayout
	full   *types.Chunk
	want   int // rows of the chunk being filled
}

// scanIndex reads what an index scan names, or what a join has narrowed it to; used is false when the table has to be read whole.
func (x *oneShot) scanIndex(n *shotNode, v *Version, own *OwnRows, p *plan.IndexScan, by *narrowed) (used bool, err error) {
	view := v.views[0]
	lookup := p.Index != 0
	switch {
	case p.Relation != 0:
		if w := x.q.Pinned.Index(n.plan.Scan.Relation, p.Relation); w != nil {
			v, view, lookup = w, w.views[0], false
		} else if view = nil; !p.Ordered {
			return false, nil
		}
	case p.Index != 0:
		if view = v.index(p.Index); view == nil && !p.Ordered { // the version is from before the index
			return false, nil
		}
	}
	s := &indexScan{x: x, n: n, plan: p, v: v, own: own, lookup: lookup, want: x.engine.cfg.ChunkRows}
	if by != nil {
		for _, k := range by.keys {
			s.spans = append(s.spans, keySpan{k, types.KeySuccessor(k)})
		}
	} else if s.spans, err = x.spans(p); err != nil {
		return true, err
	}
	if len(s.spans) == 0 {
		return true, nil
	}
	s.layout = v.Layout()
	s.full = types.NewChunk(s.layout.Types)
	if p.Ordered {
		s.want = min(s.want, firstIndexRows)
		if view == nil {
			return true, s.sorted()
		}
		return true, s.ordered(view)
	}
	if by != nil && by.whole && p.Index == 0 {
		err = s.get(by.keys)
	} else if !lookup {
		err = s.byKey(view)
	} else if used, err = s.lookUp(view); err != nil || !used {
		return used, err
	}
	if err == nil {
		err = own.Each(func(_, row []byte) error { return s.add(row) }) // conditions are checked above
	}
	if err == nil {
		err = s.flush()
	}
	return true, err
}

// spans computes the ranges that the plan reads, in order of keys, without overlaps.
func (x *oneShot) spans(p *plan.IndexScan) ([]keySpan, error) {
	prefixes := [][]byte{nil}
	for i, vals := range p.Equal {
		ds, err := x.values(p.Keys[i].Expr.Type, vals)
		if err != nil {
			return nil, err
		}
		next := make([][]byte, 0, len(prefixes)*len(ds))
		for _, pre := range prefixes {
			for _, d := range ds {
				next = append(next, types.AppendKeyDatum(slices.Clone(pre), d, p.Keys[i].Desc, p.Keys[i].NullsFirst))
			}
		}
		prefixes = next
	}
	slices.SortFunc(prefixes, bytes.Compare)
	prefixes = slices.CompactFunc(prefixes, bytes.Equal)
	var out []keySpan
	for _, pre := range prefixes {
		s := keySpan{lo: pre}
		if len(pre) > 0 {
			s.hi = types.KeySuccessor(pre)
		}
		if p.Low != nil || p.High != nil {
			var ok bool
			var err error
			if s, ok, err = x.bounded(p, pre); err != nil {
				return nil, err
			} else if !ok {
				return nil, nil
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// bounded is the range behind prefix that the plan's bounds leave. ok is false when a bound is NULL.
func (x *oneShot) bounded(p *plan.IndexScan, prefix []byte) (s keySpan, ok bool, err error) {
	k := p.Keys[len(p.Equal)]
	enc := func(d types.Datum) []byte { return types.AppendKeyDatum(slices.Clone(prefix), d, k.Desc, k.NullsFirst) }
	null := enc(types.NullDatum(k.Expr.Type))
	// NULLs are in no range.
	s.lo, s.hi = prefix, null
	if k.NullsFirst {
		s.lo, s.hi = types.KeySuccessor(null), nil
		if len(prefix) > 0 {
			s.hi = types.KeySuccessor(prefix)
		}
	}
	for _, b := range [...]struct {
		bound *plan.IndexBound
		low   bool
	}{{p.Low, true}, {p.High, false}} {
		if b.bound == nil {
			continue
		}
		d, err := expr.EvalConst(b.bound.Value, &x.env, x.engine.cfg.Lib)
		if err != nil || d.Null {
			return s, false, err
		}
		d.Type = types.Type{OID: k.Expr.Type.OID}
		e := enc(d)
		// In a descending index large values come first.
		first := b.low != k.Desc
		if first != b.bound.Inclusive {
			e = types.KeySuccessor(e)
		}
		if first {
			s.lo = e
		} else {
			s.hi = e
		}
	}
	return s, true, nil
}

// values evaluates what a key may be; NULLs are equal to nothing. An array stands for its elements.
func (x *oneShot) values(t types.Type, vals []*expr.Expr) ([]types.Datum, error) {
	var out []types.Datum
	for _, e := range vals {
		d, err := expr.EvalConst(e, &x.env, x.engine.cfg.Lib)
		if err != nil {
			return nil, err
		}
		if d.Null {
			continue
		}
		if _, array := e.Type.Elem(); !array || e.Type.OID == t.OID {
			d.Type = types.Type{OID: t.OID}
			out = append(out, d)
			continue
		}
		a, err := types.DecodeArray(d.Str)
		if err != nil {
			return nil, err
		}
		for _, el := range a.Elems {
			if !el.Null {
				el.Type = types.Type{OID: t.OID}
				out = append(out, el)
			}
		}
	}
	return out, nil
}

// each calls f with the entries of the spans until it returns false.
func (s *indexScan) each(view *state.View, backward bool, f func(key, val []byte) (bool, error)) error {
	for i := range s.spans {
		sp := s.spans[i]
		from := sp.lo
		if backward {
			sp = s.spans[len(s.spans)-1-i]
			from = sp.hi
		}
		it := view.ScanFrom(0, nil, from, backward)
		for n := 0; it.Next(); n++ {
			k := it.Key()
			if !sp.holds(k) {
				if backward && sp.hi != nil && bytes.Compare(k, sp.hi) >= 0 {
					continue
				}
				break
			}
			if n%s.x.engine.cfg.ChunkRows == 0 && s.x.ctx.Err() != nil {
				it.Close()
				return context.Cause(s.x.ctx)
			}
			more, err := f(k, it.Value())
			if err != nil || !more {
				it.Close()
				return err
			}
		}
		err := it.Err()
		it.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *indexScan) add(row []byte) error {
	if err := decodeRow(row, s.full, s.layout); err != nil {
		return err
	}
	if s.full.N >= s.want {
		return s.flush()
	}
	return nil
}

func (s *indexScan) flush() error {
	if s.full.N == 0 {
		return nil
	}
	err := s.n.Emit(pick(s.full, s.n.plan.Scan.Columns))
	s.full.Reset()
	s.want = min(2*s.want, s.x.engine.cfg.ChunkRows)
	return err
}

// byKey reads rows by the primary key, in no particular order as far as the reader is concerned.
func (s *indexScan) byKey(view *state.View) error {
	return s.each(view, false, func(key, row []byte) (bool, error) {
		if s.own.Has(key) {
			return true, nil
		}
		return true, s.add(row)
	})
}

// lookUp finds the keys in the index first, then the rows: when they are many the table is read whole, which costs less.
func (s *indexScan) lookUp(view *state.View) (used bool, err error) {
	limit := min(max(int(s.v.Rows/lookupShare), fewLookups), maxLookups)
	var keys [][]byte
	over := false
	if err := s.each(view, false, func(_, pk []byte) (bool, error) {
		if len(keys) == limit {
			over = true
			return false, nil
		}
		keys = append(keys, slices.Clone(pk))
		return true, nil
	}); err != nil || over {
		return false, err
	}
	slices.SortFunc(keys, bytes.Compare) // as they lie in the table
	return true, s.get(keys)
}

// get reads rows by their primary keys.
func (s *indexScan) get(keys [][]byte) error {
	for i, pk := range keys {
		if i%s.x.engine.cfg.ChunkRows == 0 && s.x.ctx.Err() != nil {
			return context.Cause(s.x.ctx)
		}
		if s.own.Has(pk) {
			continue
		}
		row, ok, err := s.v.Get(0, pk)
		if err != nil {
			return err
		}
		if ok {
			if err := s.add(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownEntry is a row, of the session's transaction where nothing else is said, with its key in the index.
type ownEntry struct{ key, row []byte }

// entries gives rows with their keys, those that each calls its argument with, in the order of the scan.
func (s *indexScan) entries(each func(func(key, row []byte) error) error) ([]ownEntry, error) {
	spec := &IndexSpec{Unique: s.plan.Unique, NullsNotDistinct: s.plan.NullsNotDistinct}
	for _, k := range s.plan.Keys {
		spec.Keys = append(spec.Keys, IndexKey{Expr: k.Expr, Desc: k.Desc, NullsFirst: k.NullsFirst})
	}
	enc, err := newIndexEncoder(spec, s.v.form, s.x.engine.cfg.Lib)
	if err != nil {
		return nil, err
	}
	var out []ownEntry
	if err := each(func(pk, row []byte) error {
		key, _, err := enc.Entry(row, pk)
		switch {
		case err != nil && enc.row.N == 0:
			return err
		case err != nil:
			// A key that cannot be computed decides nothing here: what the query needs of it fails above.
			out = append(out, ownEntry{slices.Clone(enc.buf), row})
		case slices.ContainsFunc(s.spans, func(sp keySpan) bool { return sp.holds(key) }):
			out = append(out, ownEntry{slices.Clone(key), row})
		}
		return nil
	}); err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b ownEntry) int {
		if s.plan.Backward {
			return bytes.Compare(b.key, a.key)
		}
		return bytes.Compare(a.key, b.key)
	})
	return out, nil
}

// ordered reads rows in order of the index, the transaction's own among them. The limit above ends it.
func (s *indexScan) ordered(view *state.View) error {
	own, err := s.entries(s.own.Each)
	if err != nil {
		return err
	}
	// before adds the transaction's rows that come before key.
	before := func(key []byte) error {
		for len(own) > 0 && (key == nil || (bytes.Compare(own[0].key, key) < 0) != s.plan.Backward) {
			if err := s.add(own[0].row); err != nil {
				return err
			}
			own = own[1:]
		}
		return nil
	}
	if err := s.each(view, s.plan.Backward, func(key, val []byte) (bool, error) {
		pk := val
		if !s.lookup {
			pk = key
		}
		if s.own.Has(pk) {
			return true, nil
		}
		if err := before(key); err != nil {
			return false, err
		}
		row := val
		if s.lookup {
			var ok bool
			if row, ok, err = s.v.Get(0, pk); err != nil || !ok {
				return err == nil, err
			}
		}
		return true, s.add(row)
	}); err != nil {
		return err
	}
	if err := before(nil); err != nil {
		return err
	}
	return s.flush()
}

// sorted gives rows in order of an index that the version does not have: the transaction is older than the index, or the index of a view is not
// of the same moment.
func (s *indexScan) sorted() error {
	rows, err := s.entries(func(f func(key, row []byte) error) error {
		for _, w := range s.v.views {
			it := w.ScanAll()
			for it.Next() {
				if s.own.Has(it.Key()) {
					continue
				}
				if err := f(it.Key(), slices.Clone(it.Value())); err != nil {
					it.Close()
					return err
				}
			}
			err := it.Err()
			it.Close()
			if err != nil {
				return err
			}
		}
		return s.own.Each(f)
	})
	if err != nil {
		return err
	}
	for i := range rows {
		if err := s.add(rows[i].row); err != nil {
			return err
		}
	}
	return s.flush()
}
