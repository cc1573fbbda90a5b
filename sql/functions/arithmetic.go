package functions

import (
	"math"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

func errDivision() error { return pgerr.Newf(pgerr.DivisionByZero, "division by zero") }

// intPairs are the combinations of integer types with operators of their own: prefix, argument types, result.
var intPairs = [...]struct {
	name, args string
	result     types.OID
}{
	{"int2", "int2,int2", types.OIDInt2},
	{"int4", "int4,int4", types.OIDInt4},
	{"int8", "int8,int8", types.OIDInt8},
	{"int24", "int2,int4", types.OIDInt4},
	{"int42", "int4,int2", types.OIDInt4},
	{"int28", "int2,int8", types.OIDInt8},
	{"int82", "int8,int2", types.OIDInt8},
	{"int48", "int4,int8", types.OIDInt8},
	{"int84", "int8,int4", types.OIDInt8},
}

// arithmetic lists the operators + - * / % ^ and bit operations on numbers.
func arithmetic() []entry {
	var out []entry
	add := func(id, example string, k expr.Kernel) { out = append(out, fn(id, example, k)) }
	for _, p := range intPairs {
		add(p.name+"pl("+p.args+")", "", intAdd(p.result))
		add(p.name+"mi("+p.args+")", "", intSub(p.result))
		add(p.name+"mul("+p.args+")", "", intMul(p.result))
		add(p.name+"div("+p.args+")", "", intDiv(p.result))
	}
	for _, p := range intPairs[:3] {
		g := rangeOf(p.result)
		mod := fn(p.name+"mod("+p.args+")", "", intMod)
		mod.intModulus = true
		out = append(out, mod)
		add("mod("+p.args+")", "mod(-7,3)", intMod)
		add(p.name+"and("+p.args+")", "", map2(intSlot, intSlot, intSlot, func(a, b int64) int64 { return a & b }))
		add(p.name+"or("+p.args+")", "", map2(intSlot, intSlot, intSlot, func(a, b int64) int64 { return a | b }))
		add(p.name+"xor("+p.args+")", "", map2(intSlot, intSlot, intSlot, func(a, b int64) int64 { return a ^ b }))
		add(p.name+"not("+p.name+")", "", map1(intSlot, intSlot, func(a int64) int64 { return ^a }))
		width := map[string]int64{"int2": 16, "int4": 32, "int8": 64}[p.name]
		add(p.name+"shl("+p.name+",int4)", "", map2(intSlot, intSlot, intSlot, func(a, n int64) int64 { return shiftLeft(a, n, width) }))
		add(p.name+"shr("+p.name+",int4)", "", map2(intSlot, intSlot, intSlot, func(a, n int64) int64 { return a >> uint64(n&max(width-1, 31)) }))
		neg := map1e(intSlot, intSlot, func(a int64) (int64, error) {
			if a == g.lo {
				return 0, g.err()
			}
			return -a, nil
		})
		abs := map1e(intSlot, intSlot, func(a int64) (int64, error) {
			if a == g.lo {
				return 0, g.err()
			}
			return max(a, -a), nil
		})
		add(p.name+"um("+p.name+")", "", neg)
		add(p.name+"up("+p.name+")", "", map1(intSlot, intSlot, same[int64]))
		add(p.name+"abs("+p.name+")", "", abs)
		add("abs("+p.name+")", "abs(-7)", abs)
		add(p.name+"larger("+p.args+")", "", map2(intSlot, intSlot, intSlot, func(a, b int64) int64 { return max(a, b) }))
		add(p.name+"smaller("+p.args+")", "", map2(intSlot, intSlot, intSlot, func(a, b int64) int64 { return min(a, b) }))
	}
	return append(append(out, floatArithmetic()...), numericArithmetic()...)
}

func same[T any](v T) T { return v }

func shiftLeft(a, n, width int64) int64 {
	switch width {
	case 16:
		return int64(int16(a << uint64(n&31)))
	case 32:
		return int64(int32(a << uint64(n&31)))
	}
	return a << uint64(n&63)
}

func intDiv(oid types.OID) expr.Kernel {
	g := rangeOf(oid)
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		a, b := args[0], args[1]
		if b.IsConst() && b.Int[0] != 0 && b.Int[0] != -1 && !a.IsConst() && dense(f) {
			y := b.Int[0]
			for i, x := range a.Int[:f.N] {
				out.Int[i] = x / y
			}
			return
		}
		for i := range f.Len() {
			r := f.Row(i)
			x, y := a.Int[a.At(r)], b.Int[b.At(r)]
			switch {
			case y == 0:
				f.Fail(out, r, errDivision())
			case y == -1 && x == g.lo:
				f.Fail(out, r, g.err())
			default:
				out.Int[r] = x / y
			}
		}
	}
}

func intMod(f *expr.Frame, args []expr.Arg, out *types.Vector) {
	a, b := args[0], args[1]
	if b.IsConst() && b.Int[0] != 0 && !a.IsConst() && dense(f) {
		y := b.Int[0]
		for i, x := range a.Int[:f.N] {
			out.Int[i] = x % y
		}
		return
	}
	for i := range f.Len() {
		r := f.Row(i)
		y := b.Int[b.At(r)]
		if y == 0 {
			f.Fail(out, r, errDivision())
			continue
		}
		// Go defines the remainder of the least integer by -1 as 0.
		out.Int[r] = a.Int[a.At(r)] % y
	}
}

func errFloatOverflow() error {
	return pgerr.Newf(pgerr.NumericValueOutOfRange, "value out of range: overflow")
}

func errFloatUnderflow() error {
	return pgerr.Newf(pgerr.NumericValueOutOfRange, "value out of range: underflow")
}

// floatOp is one of + - * / on floats with PostgreSQL's checks. single rounds to float4.
func floatOp(op byte, single bool) expr.Kernel {
	checked := func(x, y float64) (float64, error) {
		var v float64
		switch op {
		case '+':
			v = x + y
		case '-':
			v = x - y
		case '*':
			v = x * y
		default:
			if y == 0 && x == x {
				return 0, errDivision()
			}
			v = x / y
		}
		if single {
			v = float64(float32(v))
		}
		if math.IsInf(v, 0) && !math.IsInf(x, 0) && !(math.IsInf(y, 0) && op != '/') {
			return 0, errFloatOverflow()
		}
		if v == 0 && x != 0 && (op == '*' && y != 0 || op == '/' && !math.IsInf(y, 0)) {
			return 0, errFloatUnderflow()
		}
		return v, nil
	}
	slow := map2e(floatSlot, floatSlot, floatSlot, checked)
	if single || op == '/' {
		return slow
	}
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		if !dense(f) || args[0].IsConst() && args[1].IsConst() || !floatFast(op, args, out.Float[:f.N]) {
			slow(f, args, out)
		}
	}
}

// floatFast computes all rows and reports whether all results are finite and no product became zero: then no check can fail.
func floatFast(op byte, args []expr.Arg, o []float64) bool {
	a, b := args[0], args[1]
	if a.IsConst() {
		if op == '-' {
			x := a.Float[0]
			for i, y := range b.Float[:len(o)] {
				o[i] = x - y
			}
			return allFinite(o)
		}
		a, b = b, a
	}
	x := a.Float[:len(o)]
	if b.IsConst() {
		y := b.Float[0]
		switch op {
		case '+':
			for i := range o {
				o[i] = x[i] + y
			}
		case '-':
			for i := range o {
				o[i] = x[i] - y
			}
		default:
			return mulConst(o, x, y)
		}
		return allFinite(o)
	}
	y := b.Float[:len(o)]
	switch op {
	case '+':
		for i := range o {
			o[i] = x[i] + y[i]
		}
	case '-':
		for i := range o {
			o[i] = x[i] - y[i]
		}
	default:
		zero := false
		for i := range o {
			o[i] = x[i] * y[i]
			zero = zero || o[i] == 0 && x[i] != 0 && y[i] != 0
		}
		return !zero && allFinite(o)
	}
	return allFinite(o)
}

func mulConst(o, x []float64, y float64) bool {
	if y == 0 {
		return false
	}
	zero := false
	for i := range o {
		o[i] = x[i] * y
		zero = zero || o[i] == 0 && x[i] != 0
	}
	return !zero && allFinite(o)
}

// allFinite adds one to the exponents: only that of infinities and NaN, all ones, reaches the sign bit.
func allFinite(o []float64) bool {
	const exponent, one = 0x7FF << 52, 1 << 52
	var acc uint64
	for _, v := range o {
		acc |= math.Float64bits(v)&exponent + one
	}
	return acc>>63 == 0
}

func floatArithmetic() []entry {
	var out []entry
	for _, p := range [...]struct {
		name, args string
		single     bool
	}{{"float4", "float4,float4", true}, {"float48", "float4,float8", false}, {"float84", "float8,float4", false}, {"float8", "float8,float8", false}} {
		out = append(out,
			fn(p.name+"pl("+p.args+")", "", floatOp('+', p.single)), fn(p.name+"mi("+p.args+")", "", floatOp('-', p.single)),
			fn(p.name+"mul("+p.args+")", "", floatOp('*', p.single)), fn(p.name+"div("+p.args+")", "", floatOp('/', p.single)))
	}
	for _, t := range [...]string{"float4", "float8"} {
		abs := map1(floatSlot, floatSlot, math.Abs)
		out = append(out,
			total(t+"um("+t+")", "", map1(floatSlot, floatSlot, func(v float64) float64 { return -v })),
			total(t+"up("+t+")", "", map1(floatSlot, floatSlot, same[float64])),
			total(t+"abs("+t+")", "", abs), total("abs("+t+")", "abs((-1.5)::float8)", abs))
	}
	return out
}

func numericArithmetic() []entry {
	two := func(f func(a, b types.Numeric) (types.Numeric, error)) expr.Kernel {
		return map2e(numSlot, numSlot, numSlot, f)
	}
	abs := map1(numSlot, numSlot, types.NumAbs)
	return []entry{
		fn("numeric_add(numeric,numeric)", "1.10+1.9", two(types.NumAdd)),
		fn("numeric_sub(numeric,numeric)", "1.10-1.9", two(types.NumSub)),
		fn("numeric_mul(numeric,numeric)", "1.10*2.0", two(types.NumMul)),
		fn("numeric_div(numeric,numeric)", "10::numeric/3", two(types.NumDiv)),
		fn("numeric_mod(numeric,numeric)", "-7.5%2", two(types.NumMod)),
		fn("mod(numeric,numeric)", "mod(7.5,2)", two(types.NumMod)),
		fn("numeric_div_trunc(numeric,numeric)", "numeric_div_trunc(7.5,2)", two(types.NumDivTrunc)),
		fn("div(numeric,numeric)", "div(-7.5,2)", two(types.NumDivTrunc)),
		fn("numeric_power(numeric,numeric)", "2.0^0.5", two(types.NumPower)),
		fn("pow(numeric,numeric)", "pow(2.0,10)", two(types.NumPower)),
		fn("power(numeric,numeric)", "power(2.5,3)", two(types.NumPower)),
		fn("numeric_uminus(numeric)", "-(1.50)", map1(numSlot, numSlot, types.NumNeg)),
		fn("numeric_uplus(numeric)", "+(1.50)", map1(numSlot, numSlot, same[types.Numeric])),
		fn("numeric_abs(numeric)", "", abs),
		fn("abs(numeric)", "abs(-1.50)", abs),
	}
}
