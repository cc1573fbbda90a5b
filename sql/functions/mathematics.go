package functions

import (
	"math"
	"sort"
	"strconv"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// mathFunctions lists the mathematical functions.
func mathFunctions() []entry {
	f1 := func(f func(float64) float64) expr.Kernel { return map1(floatSlot, floatSlot, f) }
	f1e := func(f func(float64) (float64, error)) expr.Kernel { return map1e(floatSlot, floatSlot, f) }
	f2e := func(f func(a, b float64) (float64, error)) expr.Kernel {
		return map2e(floatSlot, floatSlot, floatSlot, f)
	}
	n1e := func(f func(types.Numeric) (types.Numeric, error)) expr.Kernel { return map1e(numSlot, numSlot, f) }
	sqrt := f1e(func(v float64) (float64, error) {
		if v < 0 {
			return 0, pgerr.Newf(pgerr.InvalidArgumentForPowerFunction, "cannot take square root of a negative number")
		}
		return math.Sqrt(v), nil
	})
	exp := f1e(func(v float64) (float64, error) {
		r := math.Exp(v)
		switch {
		case math.IsInf(r, 0) && !math.IsInf(v, 0):
			return 0, errFloatOverflow()
		case r == 0 && !math.IsInf(v, 0):
			return 0, errFloatUnderflow()
		}
		return r, nil
	})
	ln, log10 := f1e(logOf(math.Log)), f1e(logOf(math.Log10))
	pow := f2e(power)
	round, trunc := f1(math.RoundToEven), f1(math.Trunc)
	cbrt := f1(math.Cbrt)
	numRound := n1e(func(n types.Numeric) (types.Numeric, error) { return types.NumRound(n, 0) })
	numTrunc := n1e(func(n types.Numeric) (types.Numeric, error) { return types.NumTrunc(n, 0) })
	numSqrt, numExp, numLn := n1e(types.NumSqrt), n1e(types.NumExp), n1e(types.NumLn)
	numLog := map2e(numSlot, numSlot, numSlot, types.NumLog)
	numLog10 := n1e(func(n types.Numeric) (types.Numeric, error) { return types.NumLog(types.NumericFromInt64(10), n) })
	out := []entry{
		fn("ceil(float8)", "ceil(-1.5::float8)", f1(math.Ceil)), fn("ceiling(float8)", "", f1(math.Ceil)), fn("floor(float8)", "floor(-1.5::float8)", f1(math.Floor)),
		fn("ceil(numeric)", "ceil(-1.5)", n1e(types.NumCeil)), fn("ceiling(numeric)", "", n1e(types.NumCeil)), fn("floor(numeric)", "floor(-1.5)", n1e(types.NumFloor)),
		fn("round(float8)", "round(2.5::float8)", round), fn("dround(float8)", "", round), fn("trunc(float8)", "trunc(-1.7::float8)", trunc), fn("dtrunc(float8)", "", trunc),
		fn("round(numeric)", "round(2.5)", numRound), fn("trunc(numeric)", "trunc(-1.7)", numTrunc),
		fn("round(numeric,int4)", "round(1234.567,-2)", map2e(numSlot, intSlot, numSlot, func(n types.Numeric, s int64) (types.Numeric, error) { return types.NumRound(n, clampDigits(s)) })),
		fn("trunc(numeric,int4)", "trunc(1234.567,1)", map2e(numSlot, intSlot, numSlot, func(n types.Numeric, s int64) (types.Numeric, error) { return types.NumTrunc(n, clampDigits(s)) })),
		fn("sign(float8)", "sign(-2.5::float8)", f1(func(v float64) float64 {
			switch {
			case v > 0:
				return 1
			case v < 0:
				return -1
			}
			return 0
		})),
		fn("sign(numeric)", "sign(-2.5)", map1(numSlot, numSlot, func(n types.Numeric) types.Numeric {
			if n.Form == types.NaN {
				return n
			}
			return types.NumericFromInt64(int64(n.Sign()))
		})),
		fn("sqrt(float8)", "sqrt(2::float8)", sqrt), fn("dsqrt(float8)", "|/ 2::float8", sqrt), fn("sqrt(numeric)", "sqrt(2.0)", numSqrt), fn("numeric_sqrt(numeric)", "", numSqrt),
		fn("cbrt(float8)", "cbrt(27)", cbrt), fn("dcbrt(float8)", "||/ 27::float8", cbrt),
		fn("exp(float8)", "exp(1::float8)", exp), fn("dexp(float8)", "", exp), fn("exp(numeric)", "exp(1.0)", numExp), fn("numeric_exp(numeric)", "", numExp),
		fn("ln(float8)", "ln(2::float8)", ln), fn("dlog1(float8)", "", ln), fn("ln(numeric)", "ln(2.0)", numLn), fn("numeric_ln(numeric)", "", numLn),
		fn("log(float8)", "log(1000::float8)", log10), fn("log10(float8)", "log10(100::float8)", log10), fn("dlog10(float8)", "", log10),
		fn("log(numeric)", "log(1000.0)", numLog10), fn("log10(numeric)", "log10(100.0)", numLog10), fn("log(numeric,numeric)", "log(2.0,64.0)", numLog), fn("numeric_log(numeric,numeric)", "", numLog),
		fn("power(float8,float8)", "power(9::float8,3)", pow), fn("pow(float8,float8)", "pow(9::float8,0.5)", pow), fn("dpow(float8,float8)", "2::float8^10", pow),
		fn("scale(numeric)", "scale(1.500)", each(func(c *call) error { return c.finiteScale(c.num(0)) })),
		fn("trim_scale(numeric)", "trim_scale(1.500)", map1(numSlot, numSlot, types.NumTrimScale)),
		fn("min_scale(numeric)", "min_scale(1.500)", each(func(c *call) error { return c.finiteScale(types.NumTrimScale(c.num(0))) })),
		fn("pi()", "pi()", nullary(floatSlot, func(*expr.Frame) float64 { return math.Pi })),
		fn("random()", "", nullary(floatSlot, func(f *expr.Frame) float64 { return randomOf(f).Float64() })),
		fn("setseed(float8)", "", each(setSeed)),
		fn("degrees(float8)", "degrees(0.5)", f1(func(v float64) float64 { return v / (math.Pi / 180) })),
		fn("radians(float8)", "radians(45)", f1(func(v float64) float64 { return v * (math.Pi / 180) })),
		fn("atan2(float8,float8)", "atan2(1,2)", map2(floatSlot, floatSlot, floatSlot, math.Atan2)),
		fn("factorial(int8)", "factorial(20)", ctx1(intSlot, numSlot, factorial)),
		fn("width_bucket(float8,float8,float8,int4)", "width_bucket(5.35::float8,0.024,10.06,5)", each(widthBucketFloat)),
		fn("width_bucket(numeric,numeric,numeric,int4)", "width_bucket(5.35,0.024,10.06,5)", each(widthBucketNumeric)),
	}
	for _, t := range [...]string{"int4", "int8"} {
		g := rangeOf(types.OIDInt4)
		if t == "int8" {
			g = rangeOf(types.OIDInt8)
		}
		gcdE := func(a, b int64) (int64, error) {
			v, ok := gcd(a, b)
			if !ok || !g.has(v) {
				return 0, g.err()
			}
			return v, nil
		}
		out = append(out,
			fn("gcd("+t+","+t+")", "gcd(1071,462)", map2e(intSlot, intSlot, intSlot, gcdE)),
			fn("lcm("+t+","+t+")", "lcm(1071,462)", map2e(intSlot, intSlot, intSlot, func(a, b int64) (int64, error) {
				if a == 0 || b == 0 {
					return 0, nil
				}
				d, err := gcdE(a, b)
				if err != nil {
					return 0, err
				}
				q := a / d
				v := q * b
				if mulOverflow(q, b, v) < 0 || !g.has(v) || v == math.MinInt64 || !g.has(max(v, -v)) {
					return 0, g.err()
				}
				return max(v, -v), nil
			})))
	}
	return append(append(out, trigonometry()...),
		fn("gcd(numeric,numeric)", "gcd(1.5,0.6)", map2e(numSlot, numSlot, numSlot, numericGCD)),
		fn("lcm(numeric,numeric)", "lcm(1.5,0.6)", map2e(numSlot, numSlot, numSlot, func(a, b types.Numeric) (types.Numeric, error) {
			if a.Form != types.Finite || b.Form != types.Finite {
				return types.ParseNumeric("NaN")
			}
			scale := max(int(a.Scale), int(b.Scale))
			if a.Sign() == 0 || b.Sign() == 0 {
				return types.NumRound(types.NumericFromInt64(0), scale)
			}
			g, err := numericGCD(a, b)
			if err != nil {
				return g, err
			}
			q, err := types.NumDivTrunc(a, g)
			if err != nil {
				return q, err
			}
			v, err := types.NumMul(q, b)
			if err != nil {
				return v, err
			}
			return types.NumRound(types.NumAbs(v), scale)
		})),
		fn("width_bucket(anycompatible,anycompatiblearray)", "width_bucket(3,array[1,3,4,6])", each(bucketOf)),
	)
}

// finiteScale sets the scale of a number, NULL for NaN and the infinities.
func (c *call) finiteScale(n types.Numeric) error {
	if n.Form != types.Finite {
		c.setNull()
		return nil
	}
	return c.setInt(int64(n.Scale))
}

func numericGCD(a, b types.Numeric) (types.Numeric, error) {
	if a.Form != types.Finite || b.Form != types.Finite {
		return types.ParseNumeric("NaN")
	}
	scale := max(int(a.Scale), int(b.Scale))
	a, b = types.NumAbs(a), types.NumAbs(b)
	for b.Sign() != 0 {
		r, err := types.NumMod(a, b)
		if err != nil {
			return r, err
		}
		a, b = b, r
	}
	return types.NumRound(a, scale)
}

// bucketOf is width_bucket(operand, thresholds): how many of the ascending thresholds the operand reaches.
func bucketOf(c *call) error {
	a, err := c.array(1)
	if err != nil {
		return err
	}
	if len(a.Dims) > 1 {
		return pgerr.Newf(pgerr.ArraySubscriptError, "thresholds must be one-dimensional array")
	}
	for _, d := range a.Elems {
		if d.Null {
			return pgerr.Newf(pgerr.NullValueNotAllowed, "thresholds array must not contain NULLs")
		}
	}
	v := c.datum(0)
	return c.setInt(int64(sort.Search(len(a.Elems), func(i int) bool { return types.CompareDatum(v, a.Elems[i]) < 0 })))
}

func clampDigits(s int64) int { return int(max(-2000, min(s, 2000))) }

func logOf(f func(float64) float64) func(float64) (float64, error) {
	return func(v float64) (float64, error) {
		switch {
		case v == 0:
			return 0, pgerr.Newf(pgerr.InvalidArgumentForLogarithm, "cannot take logarithm of zero")
		case v < 0:
			return 0, pgerr.Newf(pgerr.InvalidArgumentForLogarithm, "cannot take logarithm of a negative number")
		}
		return f(v), nil
	}
}

func power(a, b float64) (float64, error) {
	switch {
	case a == 0 && b < 0:
		return 0, pgerr.Newf(pgerr.InvalidArgumentForPowerFunction, "zero raised to a negative power is undefined")
	case a < 0 && b != math.Trunc(b):
		return 0, pgerr.Newf(pgerr.InvalidArgumentForPowerFunction, "a negative number raised to a non-integer power yields a complex result")
	}
	r := math.Pow(a, b)
	if !math.IsInf(a, 0) && !math.IsInf(b, 0) {
		if math.IsInf(r, 0) {
			return 0, errFloatOverflow()
		}
		if r == 0 && a != 0 {
			return 0, errFloatUnderflow()
		}
	}
	return r, nil
}

// maxFactorial is the largest argument whose factorial a numeric holds.
const maxFactorial = 32177

func factorial(f *expr.Frame, n int64) (types.Numeric, error) {
	switch {
	case n < 0:
		return types.Numeric{}, pgerr.Newf(pgerr.NumericValueOutOfRange, "factorial of a negative number is undefined")
	case n > maxFactorial:
		return types.Numeric{}, pgerr.Newf(pgerr.NumericValueOutOfRange, "value overflows numeric format")
	}
	r := types.NumericFromInt64(1)
	for i := int64(2); i <= n; i++ {
		if err := f.Interruptible(int(i)); err != nil {
			return r, err
		}
		var err error
		if r, err = types.NumMul(r, types.NumericFromInt64(i)); err != nil {
			return r, err
		}
	}
	return r, nil
}

// gcd is false when the result does not fit int64.
func gcd(a, b int64) (int64, bool) {
	for b != 0 {
		a, b = b, a%b
	}
	if a == math.MinInt64 {
		return 0, false
	}
	return max(a, -a), true
}

func errBucket(what string) error {
	return pgerr.Newf(pgerr.InvalidArgumentForWidthBucket, "%s", what)
}

func widthBucketFloat(c *call) error {
	v, lo, hi, n := c.float(0), c.float(1), c.float(2), c.int(3)
	switch {
	case n <= 0:
		return errBucket("count must be greater than zero")
	case v != v || lo != lo || hi != hi:
		return errBucket("operand, lower bound, and upper bound cannot be NaN")
	case math.IsInf(lo, 0) || math.IsInf(hi, 0):
		return errBucket("lower and upper bounds must be finite")
	case lo == hi:
		return errBucket("lower bound cannot equal upper bound")
	}
	if lo > hi {
		v, lo, hi = -v, -lo, -hi
	}
	switch {
	case v < lo:
		return c.setInt(0)
	case v >= hi:
		if n == math.MaxInt32 {
			return rangeOf(types.OIDInt4).err()
		}
		return c.setInt(n + 1)
	}
	return c.setInt(min(n, int64(float64(n)*((v-lo)/(hi-lo)))+1))
}

func widthBucketNumeric(c *call) error {
	v, lo, hi, n := c.num(0), c.num(1), c.num(2), c.int(3)
	switch {
	case n <= 0:
		return errBucket("count must be greater than zero")
	case v.Form == types.NaN || lo.Form == types.NaN || hi.Form == types.NaN:
		return errBucket("operand, lower bound, and upper bound cannot be NaN")
	case lo.Form != types.Finite || hi.Form != types.Finite:
		return errBucket("lower and upper bounds must be finite")
	case types.CompareNumeric(lo, hi) == 0:
		return errBucket("lower bound cannot equal upper bound")
	}
	if types.CompareNumeric(lo, hi) > 0 {
		v, lo, hi = types.NumNeg(v), types.NumNeg(lo), types.NumNeg(hi)
	}
	switch {
	case types.CompareNumeric(v, lo) < 0:
		return c.setInt(0)
	case types.CompareNumeric(v, hi) >= 0:
		if n == math.MaxInt32 {
			return rangeOf(types.OIDInt4).err()
		}
		return c.setInt(n + 1)
	}
	off, err := types.NumSub(v, lo)
	if err != nil {
		return err
	}
	width, err := types.NumSub(hi, lo)
	if err != nil {
		return err
	}
	if off, err = types.NumMul(off, types.NumericFromInt64(n)); err != nil {
		return err
	}
	q, err := types.NumDivTrunc(off, width)
	if err != nil {
		return err
	}
	k, err := q.ToInt64()
	if err != nil {
		return err
	}
	return c.setInt(min(n, k+1))
}

func trigonometry() []entry {
	var out []entry
	errInput := pgerr.Newf(pgerr.NumericValueOutOfRange, "input is out of range")
	periodic := func(f func(float64) float64) expr.Kernel {
		return map1e(floatSlot, floatSlot, func(v float64) (float64, error) {
			if math.IsInf(v, 0) {
				return 0, errInput
			}
			return f(v), nil
		})
	}
	bounded := func(lo, hi float64, f func(float64) float64) expr.Kernel {
		return map1e(floatSlot, floatSlot, func(v float64) (float64, error) {
			if v < lo || v > hi {
				return 0, errInput
			}
			return f(v), nil
		})
	}
	plain := func(f func(float64) float64) expr.Kernel { return map1(floatSlot, floatSlot, f) }
	inf := math.Inf(1)
	for name, k := range map[string]expr.Kernel{
		"sin": periodic(math.Sin), "cos": periodic(math.Cos), "tan": periodic(math.Tan), "cot": periodic(func(v float64) float64 { return 1 / math.Tan(v) }),
		"asind": bounded(-1, 1, asind), "acosd": bounded(-1, 1, acosd), "atand": plain(func(v float64) float64 { return atan2d(v, 1) }),
		"asin": bounded(-1, 1, math.Asin), "acos": bounded(-1, 1, math.Acos), "atan": plain(math.Atan),
		"sinh": plain(math.Sinh), "cosh": plain(math.Cosh), "tanh": plain(math.Tanh), "asinh": plain(math.Asinh),
		"acosh": bounded(1, inf, math.Acosh), "atanh": bounded(-1, 1, math.Atanh),
		"sind": periodic(sind), "cosd": periodic(cosd), "tand": periodic(tand), "cotd": periodic(cotd),
	} {
		example := name + "(1)"
		if len(name) == 4 && name[3] == 'd' {
			example = name + "(45)"
		}
		if name == "asind" || name == "acosd" || name == "atand" {
			example = name + "(1)"
		}
		if name == "atanh" || name == "asin" || name == "acos" {
			example = name + "(0.5)"
		}
		out = append(out, fn(name+"(float8)", example, k))
	}
	return append(out, fn("atan2d(float8,float8)", "atan2d(1,1)", map2(floatSlot, floatSlot, floatSlot, atan2d)))
}

func setSeed(c *call) error {
	seed := c.float(0)
	if !(seed >= -1 && seed <= 1) {
		return pgerr.Newf(pgerr.InvalidParameterValue, "setseed parameter %s is out of allowed range [-1,1]", strconv.FormatFloat(seed, 'g', 6, 64))
	}
	random := randomOf(c.f)
	if random == nil {
		return pgerr.Newf(pgerr.FeatureNotSupported, "setseed is not supported here").WithHint("Call it in a session of its own, before the query.")
	}
	random.Seed(seed)
	return c.setStr("")
}

// randomOf is the generator of the session, nil without one.
func randomOf(f *expr.Frame) *expr.Random {
	if f.Env == nil {
		return nil
	}
	return f.Env.Random
}
