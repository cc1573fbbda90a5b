package expr

import (
	"math/bits"

	"github.com/streamdb/streamdb/types"
)

// filterNode appends to sel the rows (nil = all) for which a condition is true.
type filterNode interface {
	filter(x *run, rows, sel []uint16) []uint16
}

// filter chooses how a boolean node selects: conjunctions one condition after the other, comparisons with a constant without
// writing a boolean vector.
func (b *builder) filter(n node) filterNode {
	switch n := n.(type) {
	case *logicNode:
		if n.or {
			break
		}
		f := &andFilter{}
		for _, a := range n.args {
			f.parts = append(f.parts, b.filter(a))
		}
		f.bufs = make([][]uint16, len(f.parts))
		return f
	case *callNode:
		if n.f.Filter == nil {
			break
		}
		if m := modulusFilter(n); m != nil {
			return m
		}
		return callFilter{n}
	case constNode:
		return constFilter(!n.v.IsNull(0) && n.v.Bool[0])
	}
	return boolFilter{n}
}

type constFilter bool

func (f constFilter) filter(x *run, rows, sel []uint16) []uint16 {
	if !f {
		return sel
	}
	return append(sel, x.every(rows)...)
}

// boolFilter selects by a computed boolean.
type boolFilter struct{ in node }

func (f boolFilter) filter(x *run, rows, sel []uint16) []uint16 {
	a := f.in.eval(x, rows)
	if a.IsConst() {
		return constFilter(!a.Null(0) && a.Bool[0]).filter(x, rows, sel)
	}
	if rows == nil && a.Valid == nil {
		base := len(sel)
		sel = grow(sel, x.n)
		k := base
		for i, v := range a.Bool[:x.n] {
			sel[k] = uint16(i)
			if v {
				k++
			}
		}
		return sel[:k]
	}
	for _, r := range x.every(rows) {
		if a.Bool[r] && !a.Null(int(r)) {
			sel = append(sel, r)
		}
	}
	return sel
}

// grow returns sel with n positions more (and one spare that branch-free loops may write).
func grow(sel []uint16, n int) []uint16 {
	need := len(sel) + n + 1
	if cap(sel) < need {
		s := make([]uint16, len(sel), need)
		copy(s, sel)
		sel = s
	}
	return sel[:need]
}

// Grow is for Filter implementations: it makes room for n more rows, plus a spare position that branch-free loops may write.
func Grow(sel []uint16, n int) []uint16 { return grow(sel, n) }

// andFilter applies conditions one after the other, as PostgreSQL does with the conditions of WHERE.
type andFilter struct {
	parts []filterNode
	bufs  [][]uint16
}

func (f *andFilter) filter(x *run, rows, sel []uint16) []uint16 {
	last := len(f.parts) - 1
	for i, p := range f.parts[:last] {
		buf := f.bufs[i][:0]
		if buf == nil {
			buf = make([]uint16, 0, x.n+1)
		}
		rows = p.filter(x, rows, buf)
		f.bufs[i] = rows
		if len(rows) == 0 {
			return sel
		}
	}
	return f.parts[last].filter(x, rows, sel)
}

// callFilter selects with the fused form of a comparison.
type callFilter struct{ n *callNode }

func (f callFilter) filter(x *run, rows, sel []uint16) []uint16 {
	n := f.n
	nulls, ok := n.prepare(x, rows)
	if !ok {
		return sel
	}
	if nulls {
		valid := n.out.bitmap(x.n)
		for _, a := range n.vals {
			if a.Valid != nil && !a.IsConst() {
				andWords(valid, a.Valid)
			}
		}
		n.live = liveRows(n.live[:0], valid, x.n, rows)
		n.frame.Rows = n.live
	}
	return n.f.Filter(&n.frame, n.vals, sel)
}

// modFilter is column % constant = constant over integers: the remainder is compared without being stored.
type modFilter struct {
	in       node
	mod, rem int64
	fall     filterNode
}

func modulusFilter(n *callNode) filterNode {
	if len(n.args) != 2 || !n.f.IntEquality {
		return nil
	}
	inner, ok := n.args[0].(*callNode)
	rem, ok2 := n.args[1].(constNode)
	if !ok || !ok2 || !inner.f.IntModulus || rem.v.IsNull(0) || rem.v.Type.Kind() != types.KindInt {
		return nil
	}
	mod, ok := inner.args[1].(constNode)
	if !ok || mod.v.IsNull(0) || mod.v.Int[0] == 0 || mod.v.Int[0] == -1 {
		return nil
	}
	if m := mod.v.Int[0]; rem.v.Int[0] == 0 && m > 1 && m&(m-1) != 0 {
		return &divisibleFilter{in: inner.args[0], fall: callFilter{n}, test: newDivisibility(m)}
	}
	return &modFilter{in: inner.args[0], mod: mod.v.Int[0], rem: rem.v.Int[0], fall: callFilter{n}}
}

func (f *modFilter) filter(x *run, rows, sel []uint16) []uint16 {
	a := f.in.eval(x, rows)
	if a.IsConst() {
		return f.fall.filter(x, rows, sel)
	}
	m, rem := f.mod, f.rem
	if rows == nil && a.Valid == nil {
		k := len(sel)
		sel = grow(sel, x.n)
		for i, v := range a.Int[:x.n] {
			sel[k] = uint16(i)
			if v%m == rem {
				k++
			}
		}
		return sel[:k]
	}
	for _, r := range x.every(rows) {
		if !a.Null(int(r)) && a.Int[r]%m == rem {
			sel = append(sel, r)
		}
	}
	return sel
}

// divisibility tests x % m = 0 with a multiplication: x times the inverse of m's odd part is small exactly for multiples of m
// (Hacker's Delight, chapter 10).
type divisibility struct {
	inverse, offset, limit uint64
	shift                  int
}

func newDivisibility(m int64) divisibility {
	shift := bits.TrailingZeros64(uint64(m))
	odd := uint64(m) >> shift
	// Each step doubles the number of right bits, starting with three.
	inv := odd
	for range 5 {
		inv *= 2 - odd*inv
	}
	offset := (uint64(1) << 63) / odd &^ (uint64(1)<<shift - 1)
	return divisibility{inverse: inv, offset: offset, limit: 2 * offset >> shift, shift: shift}
}

func (d divisibility) holds(x int64) bool {
	return bits.RotateLeft64(uint64(x)*d.inverse+d.offset, -d.shift) <= d.limit
}

// divisibleFilter is column % constant = 0.
type divisibleFilter struct {
	in   node
	fall filterNode
	test divisibility
}

func (f *divisibleFilter) filter(x *run, rows, sel []uint16) []uint16 {
	a := f.in.eval(x, rows)
	if a.IsConst() {
		return f.fall.filter(x, rows, sel)
	}
	d := f.test
	if rows == nil && a.Valid == nil {
		k := len(sel)
		sel = grow(sel, x.n)
		for i, v := range a.Int[:x.n] {
			sel[k] = uint16(i)
			if d.holds(v) {
				k++
			}
		}
		return sel[:k]
	}
	for _, r := range x.every(rows) {
		if !a.Null(int(r)) && d.holds(a.Int[r]) {
			sel = append(sel, r)
		}
	}
	return sel
}
