package functions

import (
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// comparison is one of the six operators.
type comparison uint8

const (
	cmpEQ comparison = iota
	cmpNE
	cmpLT
	cmpLE
	cmpGT
	cmpGE
)

// flip returns the comparison with its operands exchanged.
func (c comparison) flip() comparison {
	switch c {
	case cmpLT:
		return cmpGT
	case cmpLE:
		return cmpGE
	case cmpGT:
		return cmpLT
	case cmpGE:
		return cmpLE
	}
	return c
}

// holds reports whether the comparison is true of the outcome of a three-way comparison.
func (c comparison) holds(d int) bool {
	switch c {
	case cmpEQ:
		return d == 0
	case cmpNE:
		return d != 0
	case cmpLT:
		return d < 0
	case cmpLE:
		return d <= 0
	case cmpGT:
		return d > 0
	}
	return d >= 0
}

// ordered are the Go types whose own operators agree with SQL's.
type ordered interface{ ~int64 | ~string }

func compareConst[T ordered](c comparison, o []bool, a []T, y T) {
	a = a[:len(o)]
	switch c {
	case cmpEQ:
		for i := range o {
			o[i] = a[i] == y
		}
	case cmpNE:
		for i := range o {
			o[i] = a[i] != y
		}
	case cmpLT:
		for i := range o {
			o[i] = a[i] < y
		}
	case cmpLE:
		for i := range o {
			o[i] = a[i] <= y
		}
	case cmpGT:
		for i := range o {
			o[i] = a[i] > y
		}
	case cmpGE:
		for i := range o {
			o[i] = a[i] >= y
		}
	}
}

func compareVectors[T ordered](c comparison, o []bool, a, b []T) {
	a, b = a[:len(o)], b[:len(o)]
	switch c {
	case cmpEQ:
		for i := range o {
			o[i] = a[i] == b[i]
		}
	case cmpNE:
		for i := range o {
			o[i] = a[i] != b[i]
		}
	case cmpLT:
		for i := range o {
			o[i] = a[i] < b[i]
		}
	case cmpLE:
		for i := range o {
			o[i] = a[i] <= b[i]
		}
	case cmpGT:
		for i := range o {
			o[i] = a[i] > b[i]
		}
	case cmpGE:
		for i := range o {
			o[i] = a[i] >= b[i]
		}
	}
}

// selectConst appends the rows (nil = all of a) whose value compares with y. The loops over all rows have no branch that data decides.
func selectConst[T ordered](c comparison, sel, rows []uint16, a []T, y T) []uint16 {
	k := len(sel)
	if rows != nil {
		sel = expr.Grow(sel, len(rows))
		switch c {
		case cmpEQ:
			for _, r := range rows {
				sel[k] = r
				if a[r] == y {
					k++
				}
			}
		case cmpNE:
			for _, r := range rows {
				sel[k] = r
				if a[r] != y {
					k++
				}
			}
		case cmpLT:
			for _, r := range rows {
				sel[k] = r
				if a[r] < y {
					k++
				}
			}
		case cmpLE:
			for _, r := range rows {
				sel[k] = r
				if a[r] <= y {
					k++
				}
			}
		case cmpGT:
			for _, r := range rows {
				sel[k] = r
				if a[r] > y {
					k++
				}
			}
		case cmpGE:
			for _, r := range rows {
				sel[k] = r
				if a[r] >= y {
					k++
				}
			}
		}
		return sel[:k]
	}
	sel = expr.Grow(sel, len(a))
	switch c {
	case cmpEQ:
		for i, x := range a {
			sel[k] = uint16(i)
			if x == y {
				k++
			}
		}
	case cmpNE:
		for i, x := range a {
			sel[k] = uint16(i)
			if x != y {
				k++
			}
		}
	case cmpLT:
		for i, x := range a {
			sel[k] = uint16(i)
			if x < y {
				k++
			}
		}
	case cmpLE:
		for i, x := range a {
			sel[k] = uint16(i)
			if x <= y {
				k++
			}
		}
	case cmpGT:
		for i, x := range a {
			sel[k] = uint16(i)
			if x > y {
				k++
			}
		}
	case cmpGE:
		for i, x := range a {
			sel[k] = uint16(i)
			if x >= y {
				k++
			}
		}
	}
	return sel[:k]
}

// orderedCompare is the kernel of a comparison between values whose Go operators agree with SQL's.
func orderedCompare[T ordered](c comparison, s slot[T]) impl {
	kernel := func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		a, b := args[0], args[1]
		switch {
		case f.Rows != nil:
			x, y := s(a.Vector), s(b.Vector)
			for _, r := range f.Rows {
				i := int(r)
				out.Bool[i] = compareOne(c, x[a.At(i)], y[b.At(i)])
			}
		case a.IsConst() && b.IsConst():
			v := compareOne(c, s(a.Vector)[0], s(b.Vector)[0])
			for i := range out.Bool {
				out.Bool[i] = v
			}
		case b.IsConst():
			compareConst(c, out.Bool, s(a.Vector), s(b.Vector)[0])
		case a.IsConst():
			compareConst(c.flip(), out.Bool, s(b.Vector), s(a.Vector)[0])
		default:
			compareVectors(c, out.Bool, s(a.Vector), s(b.Vector))
		}
	}
	filter := func(f *expr.Frame, args []expr.Arg, sel []uint16) []uint16 {
		a, b := args[0], args[1]
		switch {
		case b.IsConst() && !a.IsConst():
			return selectConst(c, sel, f.Rows, s(a.Vector)[:f.N], s(b.Vector)[0])
		case a.IsConst() && !b.IsConst():
			return selectConst(c.flip(), sel, f.Rows, s(b.Vector)[:f.N], s(a.Vector)[0])
		}
		x, y := s(a.Vector), s(b.Vector)
		for i := range f.Len() {
			r := f.Row(i)
			if compareOne(c, x[a.At(r)], y[b.At(r)]) {
				sel = append(sel, uint16(r))
			}
		}
		return sel
	}
	return impl{kernel: kernel, filter: filter, total: true}
}

func compareOne[T ordered](c comparison, x, y T) bool {
	switch c {
	case cmpEQ:
		return x == y
	case cmpNE:
		return x != y
	case cmpLT:
		return x < y
	case cmpLE:
		return x <= y
	case cmpGT:
		return x > y
	}
	return x >= y
}
