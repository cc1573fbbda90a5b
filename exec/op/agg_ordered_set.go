package op

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// orderedSetCall is an aggregate with WITHIN GROUP: an ordered multiset of the group's values. Equal values share an entry, so the state is as large
// as there are distinct values. Words: the number of values. Entry key: the values in the order of WITHIN GROUP → count, values.
type orderedSetCall struct {
	callBase
	name  string
	args  []int
	types []types.Type
	order []plan.SortKey
	// hypothetical aggregates rank a row that is not there; they see NULLs, which the others skip.
	hypothetical bool
	direct       []types.Datum // arguments before WITHIN GROUP
	probe        []byte        // hypothetical: the key of direct
	vecs         []*types.Vector
	buf          *types.Chunk
}

func isOrderedSet(name string, c plan.AggCall) bool {
	switch name {
	case "percentile_cont", "percentile_disc", "mode":
		return true
	case "rank", "dense_rank", "percent_rank", "cume_dist":
		return len(c.Order) > 0
	}
	return false
}

func (o *aggOp) newOrderedSet(cb callBase, name string, c plan.AggCall) (aggCall, error) {
	s := &orderedSetCall{callBase: cb, name: name, args: c.Args, order: c.Order}
	s.hypothetical = name != "percentile_cont" && name != "percentile_disc" && name != "mode"
	for _, a := range c.Args {
		s.types = append(s.types, o.ctx.InputTypes[0][a])
	}
	s.buf = types.NewChunk(s.types)
	for _, e := range c.Direct {
		d, err := expr.EvalConst(e, o.ctx.Env, o.ctx.Lib)
		if err != nil {
			return nil, err
		}
		s.direct = append(s.direct, d)
	}
	if s.hypothetical {
		for i, k := range s.order {
			s.probe = types.AppendKeyDatum(s.probe, s.direct[i], k.Desc, k.NullsFirst)
		}
	}
	return s, nil
}

func (s *orderedSetCall) place(at int) int { s.at = at; return 1 }
func (s *orderedSetCall) sided() bool      { return true }

func (s *orderedSetCall) update(b *aggBatch) error {
	s.vecs = pick(s.vecs, b.c, s.args)
	values := func(r int) func([]byte) []byte {
		return func(dst []byte) []byte { return types.AppendRow(dst, s.vecs, r) }
	}
	for i, g := range b.groups {
		r := b.row(i)
		if !s.hypothetical && s.vecs[0].IsNull(r) {
			continue
		}
		row := s.o.groups.row(g)
		kg, key := s.o.sideKey(row, s.no)
		for j, k := range s.order {
			key = types.AppendKey(key, s.vecs[j], r, k.Desc, k.NullsFirst)
		}
		s.o.key = key
		if _, _, err := s.o.bump(kg, key, b.weight(i), values(r)); err != nil {
			return err
		}
		row[s.at] += uint64(b.weight(i))
	}
	return nil
}

// each visits the entries in order: the part of the key that is the values', the count and the encoded values.
func (s *orderedSetCall) each(row []uint64, f func(key []byte, n int64, v []byte) (bool, error)) error {
	kg, key := s.o.sideKey(row, s.no)
	prefix := len(key)
	err := s.o.side.scan(kg, key, false, func(k, v []byte) (bool, error) {
		n, used := binary.Varint(v)
		if used <= 0 {
			return false, errCorruptState(s.o.node)
		}
		if n <= 0 {
			return true, nil
		}
		return f(k[prefix:], n, v[used:])
	})
	if err != nil {
		return stateError{err}
	}
	return nil
}

func (s *orderedSetCall) final(row []uint64, _ *callVar, dst *types.Vector) error {
	n := int64(row[s.at])
	switch {
	case s.hypothetical:
		return s.rank(row, n, dst)
	case s.name == "mode":
		return s.mode(row, dst)
	}
	d := s.direct[0]
	if d.Type.IsArray() {
		return s.percentiles(row, n, d, dst)
	}
	if d.Null {
		dst.AppendNull()
		return nil
	}
	if err := checkFraction(d.Float); err != nil {
		return err
	}
	if n <= 0 {
		dst.AppendNull()
		return nil
	}
	out, err := s.nth(row, n, []float64{d.Float})
	if err != nil {
		return err
	}
	dst.AppendDatum(out[0])
	return nil
}

func checkFraction(p float64) error {
	if p < 0 || p > 1 || p != p {
		return pgerr.Newf(pgerr.NumericValueOutOfRange, "percentile value %g is not between 0 and 1", p)
	}
	return nil
}

// percentiles is percentile_…(array): an array of results of the same shape.
func (s *orderedSetCall) percentiles(row []uint64, n int64, d types.Datum, dst *types.Vector) error {
	if d.Null || n <= 0 {
		dst.AppendNull()
		return nil
	}
	a, err := types.DecodeArray(d.Str)
	if err != nil {
		return err
	}
	var ps []float64
	for _, e := range a.Elems {
		if e.Null {
			continue
		}
		if err := checkFraction(e.Float); err != nil {
			return err
		}
		ps = append(ps, e.Float)
	}
	found, err := s.nth(row, n, ps)
	if err != nil {
		return err
	}
	elem, _ := s.result.Elem()
	out := types.Array{Elem: elem.OID, Dims: a.Dims, Elems: make([]types.Datum, len(a.Elems))}
	next := 0
	for i, e := range a.Elems {
		if e.Null {
			out.Elems[i] = types.NullDatum(types.T(elem.OID))
			continue
		}
		out.Elems[i] = found[next]
		out.Elems[i].Type = types.T(elem.OID)
		next++
	}
	pushString(dst, types.EncodeArray(out))
	return nil
}

// nth computes the percentiles ps, each between 0 and 1, of n > 0 values in one pass over the entries.
func (s *orderedSetCall) nth(row []uint64, n int64, ps []float64) ([]types.Datum, error) {
	cont := s.name == "percentile_cont"
	// Per percentile the row numbers wanted, from 0: one, or two to interpolate between.
	lo, hi := make([]int64, len(ps)), make([]int64, len(ps))
	last := int64(-1)
	for i, p := range ps {
		if cont {
			at := p * float64(n-1)
			lo[i], hi[i] = int64(math.Floor(at)), int64(math.Ceil(at))
		} else {
			lo[i] = max(int64(math.Ceil(p*float64(n)))-1, 0)
			hi[i] = lo[i]
		}
		last = max(last, hi[i])
	}
	first, second := make([]types.Datum, len(ps)), make([]types.Datum, len(ps))
	seen := int64(0)
	err := s.each(row, func(_ []byte, count int64, v []byte) (bool, error) {
		decoded := false
		for i := range ps {
			for _, w := range [...]struct {
				at int64
				to *types.Datum
			}{{lo[i], &first[i]}, {hi[i], &second[i]}} {
				if w.at < seen || w.at >= seen+count {
					continue
				}
				if !decoded {
					s.buf.Cols[0].Reset()
					if _, err := types.DecodeRow(v, s.buf.Cols); err != nil {
						return false, err
					}
					decoded = true
				}
				*w.to = s.buf.Cols[0].Get(0)
			}
		}
		seen += count
		return seen <= last, nil
	})
	if err != nil {
		return nil, err
	}
	if !cont {
		return first, nil
	}
	for i, p := range ps {
		if lo[i] == hi[i] {
			continue
		}
		part := p*float64(n-1) - float64(lo[i])
		if first[i].Type.Kind() == types.KindInterval {
			diff, err := types.IntervalSub(second[i].Ivl, first[i].Ivl)
			if err == nil {
				diff, err = types.IntervalMul(diff, part)
			}
			if err == nil {
				first[i].Ivl, err = types.IntervalAdd(diff, first[i].Ivl)
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		first[i].Float += part * (second[i].Float - first[i].Float)
	}
	return first, nil
}

// mode is the value that comes most often, the first in order of several.
func (s *orderedSetCall) mode(row []uint64, dst *types.Vector) error {
	best := int64(0)
	s.buf.Cols[0].Reset()
	err := s.each(row, func(_ []byte, n int64, v []byte) (bool, error) {
		if n > best {
			best = n
			s.buf.Cols[0].Reset()
			_, err := types.DecodeRow(v, s.buf.Cols)
			return err == nil, err
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	if best == 0 {
		dst.AppendNull()
		return nil
	}
	dst.Append(s.buf.Cols[0], 0)
	return nil
}

// rank computes the place that the direct arguments would have among n rows.
func (s *orderedSetCall) rank(row []uint64, n int64, dst *types.Vector) error {
	var below, distinct, equal int64
	err := s.each(row, func(key []byte, count int64, _ []byte) (bool, error) {
		switch bytes.Compare(key, s.probe) {
		case -1:
			below += count
			distinct++
			return true, nil
		case 0:
			equal = count
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	switch s.name {
	case "rank":
		pushInt(dst, below+1)
	case "dense_rank":
		pushInt(dst, distinct+1)
	case "percent_rank":
		share := 0.0
		if n > 0 {
			share = float64(below) / float64(n)
		}
		pushFloat(dst, share)
	default:
		pushFloat(dst, float64(below+equal+1)/float64(max(n, 0)+1))
	}
	return nil
}
