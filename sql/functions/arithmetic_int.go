package functions

import (
	"math"
	"math/bits"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// denseShare: kernels that may compute rows nobody asked for do so unless fewer than one in denseShare rows is asked for.
const denseShare = 4

func dense(f *expr.Frame) bool { return f.Rows == nil || len(f.Rows)*denseShare > f.N }

// intRange is the value range of an integer type and the error of leaving it.
type intRange struct {
	lo, hi int64
	name   string
}

func rangeOf(oid types.OID) intRange {
	switch oid {
	case types.OIDInt2:
		return intRange{math.MinInt16, math.MaxInt16, "smallint"}
	case types.OIDInt4:
		return intRange{math.MinInt32, math.MaxInt32, "integer"}
	}
	return intRange{math.MinInt64, math.MaxInt64, "bigint"}
}

func (g intRange) err() error {
	return pgerr.Newf(pgerr.NumericValueOutOfRange, "%s out of range", g.name)
}

func (g intRange) has(v int64) bool { return v >= g.lo && v <= g.hi }

// The kernels below compute all rows without branches and look for an overflow in the collected sign bits; only when one is found
// are the rows that matter checked one by one. Narrow types cannot overflow int64, so a range check is enough for them.

func intAdd(oid types.OID) expr.Kernel {
	g := rangeOf(oid)
	if oid != types.OIDInt8 {
		return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
			if !dense(f) || intAddNarrow(args, out.Int[:f.N], g.lo, g.hi) < 0 {
				intAddChecked(f, args, out, g)
			}
		}
	}
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		if !dense(f) || intAddWide(args, out.Int[:f.N]) < 0 {
			intAddChecked(f, args, out, g)
		}
	}
}

func intAddNarrow(args []expr.Arg, o []int64, lo, hi int64) (bad int64) {
	switch {
	case args[1].IsConst():
		y := args[1].Int[0]
		if args[0].IsConst() {
			x := args[0].Int[0]
			for i := range o {
				s := x + y
				o[i] = s
				bad |= (s - lo) | (hi - s)
			}
			return bad
		}
		for i, x := range args[0].Int[:len(o)] {
			s := x + y
			o[i] = s
			bad |= (s - lo) | (hi - s)
		}
	case args[0].IsConst():
		x := args[0].Int[0]
		for i, y := range args[1].Int[:len(o)] {
			s := x + y
			o[i] = s
			bad |= (s - lo) | (hi - s)
		}
	default:
		a, b := args[0].Int[:len(o)], args[1].Int[:len(o)]
		for i := range o {
			x, y := a[i], b[i]
			s := x + y
			o[i] = s
			bad |= (s - lo) | (hi - s)
		}
	}
	return bad
}

func intAddWide(args []expr.Arg, o []int64) (bad int64) {
	switch {
	case args[1].IsConst():
		y := args[1].Int[0]
		if args[0].IsConst() {
			x := args[0].Int[0]
			for i := range o {
				s := x + y
				o[i] = s
				bad |= (x ^ s) & (y ^ s)
			}
			return bad
		}
		for i, x := range args[0].Int[:len(o)] {
			s := x + y
			o[i] = s
			bad |= (x ^ s) & (y ^ s)
		}
	case args[0].IsConst():
		x := args[0].Int[0]
		for i, y := range args[1].Int[:len(o)] {
			s := x + y
			o[i] = s
			bad |= (x ^ s) & (y ^ s)
		}
	default:
		a, b := args[0].Int[:len(o)], args[1].Int[:len(o)]
		for i := range o {
			x, y := a[i], b[i]
			s := x + y
			o[i] = s
			bad |= (x ^ s) & (y ^ s)
		}
	}
	return bad
}

func intAddChecked(f *expr.Frame, args []expr.Arg, out *types.Vector, g intRange) {
	for i := range f.Len() {
		r := f.Row(i)
		x, y := args[0].Int[args[0].At(r)], args[1].Int[args[1].At(r)]
		s := x + y
		out.Int[r] = s
		if (x^s)&(y^s) < 0 || !g.has(s) {
			f.Fail(out, r, g.err())
		}
	}
}

func intSub(oid types.OID) expr.Kernel {
	g := rangeOf(oid)
	if oid != types.OIDInt8 {
		return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
			if !dense(f) || intSubNarrow(args, out.Int[:f.N], g.lo, g.hi) < 0 {
				intSubChecked(f, args, out, g)
			}
		}
	}
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		if !dense(f) || intSubWide(args, out.Int[:f.N]) < 0 {
			intSubChecked(f, args, out, g)
		}
	}
}

func intSubNarrow(args []expr.Arg, o []int64, lo, hi int64) (bad int64) {
	switch {
	case args[1].IsConst():
		y := args[1].Int[0]
		if args[0].IsConst() {
			x := args[0].Int[0]
			for i := range o {
				s := x - y
				o[i] = s
				bad |= (s - lo) | (hi - s)
			}
			return bad
		}
		for i, x := range args[0].Int[:len(o)] {
			s := x - y
			o[i] = s
			bad |= (s - lo) | (hi - s)
		}
	case args[0].IsConst():
		x := args[0].Int[0]
		for i, y := range args[1].Int[:len(o)] {
			s := x - y
			o[i] = s
			bad |= (s - lo) | (hi - s)
		}
	default:
		a, b := args[0].Int[:len(o)], args[1].Int[:len(o)]
		for i := range o {
			x, y := a[i], b[i]
			s := x - y
			o[i] = s
			bad |= (s - lo) | (hi - s)
		}
	}
	return bad
}

func intSubWide(args []expr.Arg, o []int64) (bad int64) {
	switch {
	case args[1].IsConst():
		y := args[1].Int[0]
		if args[0].IsConst() {
			x := args[0].Int[0]
			for i := range o {
				s := x - y
				o[i] = s
				bad |= (x ^ y) & (x ^ s)
			}
			return bad
		}
		for i, x := range args[0].Int[:len(o)] {
			s := x - y
			o[i] = s
			bad |= (x ^ y) & (x ^ s)
		}
	case args[0].IsConst():
		x := args[0].Int[0]
		for i, y := range args[1].Int[:len(o)] {
			s := x - y
			o[i] = s
			bad |= (x ^ y) & (x ^ s)
		}
	default:
		a, b := args[0].Int[:len(o)], args[1].Int[:len(o)]
		for i := range o {
			x, y := a[i], b[i]
			s := x - y
			o[i] = s
			bad |= (x ^ y) & (x ^ s)
		}
	}
	return bad
}

func intSubChecked(f *expr.Frame, args []expr.Arg, out *types.Vector, g intRange) {
	for i := range f.Len() {
		r := f.Row(i)
		x, y := args[0].Int[args[0].At(r)], args[1].Int[args[1].At(r)]
		s := x - y
		out.Int[r] = s
		if (x^y)&(x^s) < 0 || !g.has(s) {
			f.Fail(out, r, g.err())
		}
	}
}

func intMul(oid types.OID) expr.Kernel {
	g := rangeOf(oid)
	if oid != types.OIDInt8 {
		return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
			if !dense(f) || intMulNarrow(args, out.Int[:f.N], g.lo, g.hi) < 0 {
				intMulChecked(f, args, out, g)
			}
		}
	}
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		if !dense(f) || intMulWide(args, out.Int[:f.N]) < 0 {
			intMulChecked(f, args, out, g)
		}
	}
}

func intMulNarrow(args []expr.Arg, o []int64, lo, hi int64) (bad int64) {
	switch {
	case args[1].IsConst():
		y := args[1].Int[0]
		if args[0].IsConst() {
			x := args[0].Int[0]
			for i := range o {
				s := x * y
				o[i] = s
				bad |= (s - lo) | (hi - s)
			}
			return bad
		}
		for i, x := range args[0].Int[:len(o)] {
			s := x * y
			o[i] = s
			bad |= (s - lo) | (hi - s)
		}
	case args[0].IsConst():
		x := args[0].Int[0]
		for i, y := range args[1].Int[:len(o)] {
			s := x * y
			o[i] = s
			bad |= (s - lo) | (hi - s)
		}
	default:
		a, b := args[0].Int[:len(o)], args[1].Int[:len(o)]
		for i := range o {
			x, y := a[i], b[i]
			s := x * y
			o[i] = s
			bad |= (s - lo) | (hi - s)
		}
	}
	return bad
}

func intMulWide(args []expr.Arg, o []int64) (bad int64) {
	switch {
	case args[1].IsConst():
		y := args[1].Int[0]
		if args[0].IsConst() {
			x := args[0].Int[0]
			for i := range o {
				s := x * y
				o[i] = s
				bad |= mulOverflow(x, y, s)
			}
			return bad
		}
		for i, x := range args[0].Int[:len(o)] {
			s := x * y
			o[i] = s
			bad |= mulOverflow(x, y, s)
		}
	case args[0].IsConst():
		x := args[0].Int[0]
		for i, y := range args[1].Int[:len(o)] {
			s := x * y
			o[i] = s
			bad |= mulOverflow(x, y, s)
		}
	default:
		a, b := args[0].Int[:len(o)], args[1].Int[:len(o)]
		for i := range o {
			x, y := a[i], b[i]
			s := x * y
			o[i] = s
			bad |= mulOverflow(x, y, s)
		}
	}
	return bad
}

func intMulChecked(f *expr.Frame, args []expr.Arg, out *types.Vector, g intRange) {
	for i := range f.Len() {
		r := f.Row(i)
		x, y := args[0].Int[args[0].At(r)], args[1].Int[args[1].At(r)]
		s := x * y
		out.Int[r] = s
		if mulOverflow(x, y, s) < 0 || !g.has(s) {
			f.Fail(out, r, g.err())
		}
	}
}

// mulOverflow is negative when s, the low half of x*y, is not the product.
func mulOverflow(x, y, s int64) int64 {
	hi, _ := bits.Mul64(uint64(x), uint64(y))
	h := int64(hi) - (x >> 63 & y) - (y >> 63 & x)
	if h != s>>63 {
		return -1
	}
	return 0
}
