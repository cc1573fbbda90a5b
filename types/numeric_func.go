package types

import (
	"math"
	"math/big"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// guardDigits is the extra decimal precision of the series below; their error stays far under half a unit of the last kept digit.
const guardDigits = 12

// fix is a binary fixed-point number: value × 2^-bits, computed by the functions below.
type fixCtx struct{ bits uint }

func newFix(decimals int) fixCtx {
	return fixCtx{bits: uint(float64(decimals+guardDigits)*3.3219281) + 16}
}

func (c fixCtx) fromNumeric(n *Numeric) *big.Int {
	x := new(big.Int).Lsh(n.coef(), c.bits)
	return x.Quo(x, pow10(int(n.Scale)))
}

func (c fixCtx) one() *big.Int { return new(big.Int).Lsh(bigOne, c.bits) }

func (c fixCtx) mul(a, b *big.Int) *big.Int {
	r := new(big.Int).Mul(a, b)
	return r.Rsh(r, c.bits)
}

func (c fixCtx) div(a, b *big.Int) *big.Int {
	r := new(big.Int).Lsh(a, c.bits)
	return r.Quo(r, b)
}

// toNumeric rounds half away from zero to scale digits.
func (c fixCtx) toNumeric(x *big.Int, scale int) (Numeric, error) {
	return makeNumeric(divRound(new(big.Int).Mul(x, pow10(scale)), c.one()), scale)
}

// atanh2 returns 2·atanh(p/q) for a small fraction.
func (c fixCtx) atanh2(z *big.Int) *big.Int {
	sum, term, zz := new(big.Int).Set(z), new(big.Int).Set(z), c.mul(z, z)
	for k := int64(3); ; k += 2 {
		term = c.mul(term, zz)
		t := new(big.Int).Quo(term, big.NewInt(k))
		if t.Sign() == 0 {
			return sum.Lsh(sum, 1)
		}
		sum.Add(sum, t)
	}
}

func (c fixCtx) ln2() *big.Int { return c.atanh2(new(big.Int).Quo(c.one(), big.NewInt(3))) }

// ln of a positive fixed-point number.
func (c fixCtx) ln(x *big.Int) *big.Int {
	k := x.BitLen() - 1 - int(c.bits)
	f := new(big.Int)
	if k >= 0 {
		f.Rsh(x, uint(k))
	} else {
		f.Lsh(x, uint(-k))
	}
	one := c.one()
	// f in [1, 2); above 4/3 halve it, so that |z| <= 1/5.
	if new(big.Int).Mul(f, big.NewInt(3)).Cmp(new(big.Int).Lsh(one, 2)) > 0 {
		f.Rsh(f, 1)
		k++
	}
	r := c.atanh2(c.div(new(big.Int).Sub(f, one), new(big.Int).Add(f, one)))
	return r.Add(r, new(big.Int).Mul(c.ln2(), big.NewInt(int64(k))))
}

// expHalvings is how often exp halves its reduced argument before the series.
const expHalvings = 16

func (c fixCtx) exp(x *big.Int) *big.Int {
	w := fixCtx{bits: c.bits + expHalvings + 8}
	y := new(big.Int).Lsh(x, w.bits-c.bits)
	ln2 := w.ln2()
	k := new(big.Int).Quo(y, ln2)
	y.Sub(y, new(big.Int).Mul(k, ln2))
	y.Rsh(y, expHalvings)
	sum, term := w.one(), w.one()
	for i := int64(1); ; i++ {
		term = w.mul(term, y)
		term.Quo(term, big.NewInt(i))
		if term.Sign() == 0 || term.BitLen() <= 1 && term.Sign() < 0 {
			break
		}
		sum.Add(sum, term)
	}
	for range expHalvings {
		sum = w.mul(sum, sum)
	}
	if k.Sign() >= 0 {
		sum.Lsh(sum, uint(k.Int64()))
	} else {
		sum.Rsh(sum, uint(-k.Int64()))
	}
	return sum.Rsh(sum, w.bits-c.bits)
}

// approx returns n as a float, without regard to overflow.
func (n *Numeric) approx() float64 {
	f, err := n.ToFloat64()
	if err != nil {
		return math.Inf(n.Sign())
	}
	return f
}

// NumSqrt returns the square root of n.
func NumSqrt(n Numeric) (Numeric, error) {
	if n.Form == NaN || n.Form == PosInf {
		return n, nil
	}
	if n.Sign() < 0 {
		return Numeric{}, pgerr.Newf(pgerr.InvalidArgumentForPowerFunction, "cannot take square root of a negative number")
	}
	w, _ := n.base10000()
	// PostgreSQL's estimate of the decimal weight of the root; integer division truncates as in C.
	rscale := clampScale(minSigDigits-(w*4/2+1), n.Scale)
	// root × 10^(rscale+1), then one rounding step.
	shift := 2*(rscale+1) - int(n.Scale)
	x := n.coef()
	if shift >= 0 {
		x = new(big.Int).Mul(x, pow10(shift))
	} else {
		x = new(big.Int).Quo(x, pow10(-shift))
	}
	return makeNumeric(divRound(new(big.Int).Sqrt(x), bigTen), rscale)
}

const log10e = 0.434294481903252

// NumExp returns e^n.
func NumExp(n Numeric) (Numeric, error) {
	switch n.Form {
	case NaN, PosInf:
		return n, nil
	case NegInf:
		return Numeric{}, nil
	}
	val := n.approx() * log10e
	val = min(max(val, -maxResultScale), maxResultScale)
	return expToScale(&n, clampScale(minSigDigits-int(val), n.Scale))
}

// expToScale returns e^n at the given scale.
func expToScale(n *Numeric, rscale int) (Numeric, error) {
	v := n.approx()
	if math.Abs(v) >= maxResultScale*3 {
		if v > 0 {
			return Numeric{}, errNumericOverflow()
		}
		return Numeric{Scale: int16(rscale)}, nil
	}
	c := newFix(rscale + max(0, int(v*log10e)) + 1)
	return c.toNumeric(c.exp(c.fromNumeric(n)), rscale)
}

// lnWeight is PostgreSQL's estimate_ln_dweight.
func (n *Numeric) lnWeight() int {
	if n.Sign() <= 0 {
		return 0
	}
	lo, hi := Numeric{Coef: 9, Scale: 1}, Numeric{Coef: 11, Scale: 1}
	if compareNumeric(n, &lo) >= 0 && compareNumeric(n, &hi) <= 0 {
		x, _ := NumSub(*n, Numeric{Coef: 1})
		if x.Sign() == 0 {
			return 0
		}
		w, first := x.base10000()
		return w*4 + int(math.Log10(float64(first)))
	}
	// ln from the two leading base-10000 digits.
	w, first := n.base10000()
	digits, dw := float64(first), w*4
	if d2, ok := n.secondDigit(w); ok {
		digits = digits*10000 + float64(d2)
		dw -= 4
	}
	return int(math.Log10(math.Abs(math.Log(digits) + float64(dw)*2.302585092994046)))
}

// secondDigit returns the base-10000 digit of weight w-1, if the number has digits there.
func (n *Numeric) secondDigit(w int) (int, bool) {
	// |n| × 10^(4·(1-w)) truncated, modulo 10000.
	shift := 4*(1-w) - int(n.Scale)
	x := new(big.Int).Abs(n.coef())
	rest := new(big.Int)
	if shift >= 0 {
		x.Mul(x, pow10(shift))
	} else {
		x.QuoRem(x, pow10(-shift), rest)
	}
	d := int(new(big.Int).Rem(x, big.NewInt(10000)).Int64())
	return d, d != 0 || rest.Sign() != 0
}

func errLog(n *Numeric) error {
	if n.Sign() == 0 {
		return pgerr.Newf(pgerr.InvalidArgumentForLogarithm, "cannot take logarithm of zero")
	}
	return pgerr.Newf(pgerr.InvalidArgumentForLogarithm, "cannot take logarithm of a negative number")
}

// lnFix returns ln(n) in c's precision, taking the logarithm of very large or small numbers apart so that no digits are lost.
func (c fixCtx) lnNumeric(n *Numeric) *big.Int {
	// n = m × 2^e with m of full precision.
	x := n.coef()
	den := pow10(int(n.Scale))
	e := x.BitLen() - den.BitLen()
	num := new(big.Int).Set(x)
	d := new(big.Int).Set(den)
	if e > 0 {
		d.Lsh(d, uint(e))
	} else {
		num.Lsh(num, uint(-e))
	}
	m := c.div(num, d)
	r := c.ln(m)
	return r.Add(r, new(big.Int).Mul(c.ln2(), big.NewInt(int64(e))))
}

// NumLn returns the natural logarithm of n.
func NumLn(n Numeric) (Numeric, error) {
	if n.Form == NaN || n.Form == PosInf {
		return n, nil
	}
	if n.Sign() <= 0 {
		return Numeric{}, errLog(&n)
	}
	rscale := clampScale(minSigDigits-n.lnWeight(), n.Scale)
	c := newFix(rscale + 6)
	return c.toNumeric(c.lnNumeric(&n), rscale)
}

// NumLog returns the logarithm of n to the given base.
func NumLog(base, n Numeric) (Numeric, error) {
	if base.Form == NaN || n.Form == NaN {
		return Numeric{Form: NaN}, nil
	}
	if base.Sign() <= 0 {
		return Numeric{}, errLog(&base)
	}
	if n.Sign() <= 0 {
		return Numeric{}, errLog(&n)
	}
	switch {
	case base.Form == PosInf && n.Form == PosInf:
		return Numeric{Form: NaN}, nil
	case n.Form == PosInf:
		return Numeric{Form: PosInf}, nil
	case base.Form == PosInf:
		return Numeric{}, nil
	}
	bw, nw := base.lnWeight(), n.lnWeight()
	rscale := clampScale(minSigDigits-(nw-bw), base.Scale, n.Scale)
	c := newFix(rscale + 8 + max(0, -bw) + max(0, nw) + max(0, -2*bw))
	lb := c.lnNumeric(&base)
	if lb.Sign() == 0 {
		return Numeric{}, errDivisionByZero()
	}
	return c.toNumeric(c.div(c.lnNumeric(&n), lb), rscale)
}

// NumPower returns base^exp.
func NumPower(base, exp Numeric) (Numeric, error) {
	if base.Form != Finite || exp.Form != Finite {
		return powerSpecial(base, exp)
	}
	if base.Sign() == 0 && exp.Sign() < 0 {
		return Numeric{}, pgerr.Newf(pgerr.InvalidArgumentForPowerFunction, "zero raised to a negative power is undefined")
	}
	e := NumTrimScale(exp)
	if e.Scale == 0 && e.Big == nil && e.Coef == int64(int32(e.Coef)) {
		return powerInt(&base, int(e.Coef), exp.Scale)
	}
	if base.Sign() == 0 {
		return Numeric{Scale: minSigDigits}, nil
	}
	negate := false
	if base.Sign() < 0 {
		if e.Scale != 0 {
			return Numeric{}, pgerr.Newf(pgerr.InvalidArgumentForPowerFunction, "a negative number raised to a non-integer power yields a complex result")
		}
		negate = e.coef().Bit(0) != 0
		base = NumAbs(base)
	}
	lnw := base.lnWeight()
	c := newFix(max(8-lnw, 0) + 8)
	val := new(big.Float).SetInt(c.lnNumeric(&base))
	val.SetMantExp(val, -int(c.bits))
	lnb, _ := val.Float64()
	w := lnb * exp.approx()
	if math.Abs(w) > maxResultScale*3.01 {
		if w > 0 {
			return Numeric{}, errNumericOverflow()
		}
		return Numeric{Scale: maxDisplayScale}, nil
	}
	w *= log10e
	rscale := clampScale(minSigDigits-int(w), base.Scale, exp.Scale)
	expDigits := max(0, decimalLen(exp.coef())-int(exp.Scale))
	c = newFix(rscale + max(0, int(w)) + expDigits + 8)
	p := new(big.Int).Mul(c.lnNumeric(&base), exp.coef())
	p.Quo(p, pow10(int(exp.Scale)))
	r, err := c.toNumeric(c.exp(p), rscale)
	if err == nil && negate {
		r = NumNeg(r)
	}
	return r, err
}

func powerSpecial(base, exp Numeric) (Numeric, error) {
	one := Numeric{Coef: 1}
	switch {
	case base.Form == NaN:
		if exp.Form == Finite && exp.Sign() == 0 {
			return one, nil
		}
		return base, nil
	case exp.Form == NaN:
		if base.Form == Finite && compareNumeric(&base, &one) == 0 {
			return one, nil
		}
		return exp, nil
	}
	if exp.Form != Finite {
		switch {
		case base.Form == Finite && base.Sign() == 0 && exp.Form == NegInf:
			return Numeric{}, pgerr.Newf(pgerr.InvalidArgumentForPowerFunction, "zero raised to a negative power is undefined")
		}
		abs := NumAbs(base)
		c := compareNumeric(&abs, &one)
		if c == 0 {
			return one, nil
		}
		if (c > 0) == (exp.Form == PosInf) {
			return Numeric{Form: PosInf}, nil
		}
		return Numeric{}, nil
	}
	// base is infinite, exp finite.
	if exp.Sign() == 0 {
		return one, nil
	}
	e := NumTrimScale(exp)
	if base.Form == NegInf && e.Scale != 0 {
		return Numeric{}, pgerr.Newf(pgerr.InvalidArgumentForPowerFunction, "a negative number raised to a non-integer power yields a complex result")
	}
	if exp.Sign() < 0 {
		return Numeric{}, nil
	}
	if base.Form == NegInf && e.coef().Bit(0) != 0 {
		return Numeric{Form: NegInf}, nil
	}
	return Numeric{Form: PosInf}, nil
}

// maxExactPowerDigits bounds the decimal places powerInt computes with; beyond, logarithms are cheaper.
const maxExactPowerDigits = 50000

func powerByLog(base *Numeric, exp, rscale int, weight float64) (Numeric, error) {
	abs := NumAbs(*base)
	c := newFix(rscale + max(0, int(weight)) + 20)
	p := new(big.Int).Mul(c.lnNumeric(&abs), big.NewInt(int64(exp)))
	r, err := c.toNumeric(c.exp(p), rscale)
	if err == nil && base.Sign() < 0 && exp%2 != 0 {
		r = NumNeg(r)
	}
	return r, err
}

// powerInt is PostgreSQL's power_var_int: an exact or correctly rounded power at a scale of its choice.
func powerInt(base *Numeric, exp int, expScale int16) (Numeric, error) {
	f := 0.0
	if base.Sign() != 0 {
		abs := NumAbs(*base)
		x := new(big.Float).SetInt(abs.coef())
		mant := new(big.Float)
		e2 := x.MantExp(mant)
		m, _ := mant.Float64()
		f = float64(exp) * (math.Log10(m) + float64(e2)*0.30102999566398119521 - float64(base.Scale))
	}
	if f > maxNumericIntDigits+4 {
		return Numeric{}, errNumericOverflow()
	}
	if f+1 < -maxDisplayScale {
		return Numeric{Scale: maxDisplayScale}, nil
	}
	rscale := clampScale(minSigDigits, base.Scale, expScale)
	switch exp {
	case 0:
		return NumRound(Numeric{Coef: 1}, rscale)
	case 1:
		return NumRound(*base, rscale)
	}
	if base.Sign() == 0 {
		return Numeric{Scale: int16(rscale)}, nil
	}
	if n := int64(exp); base.Scale > 0 && int64(base.Scale)*max(n, -n) > maxExactPowerDigits {
		return powerByLog(base, exp, rscale, f)
	}
	// Floating decimal: mantissa × 10^-scale, cut to the digits that can matter.
	keep := uint(float64(max(1, 1+rscale+int(f)+int(math.Log10(math.Abs(float64(exp))))+16)) * 3.3219281)
	n := exp
	if n < 0 {
		n = -n
	}
	mant, e2 := big.NewInt(1), 0
	sq, s2 := new(big.Int).Set(base.coef()), 0
	cut := func(x *big.Int, e int) int {
		if over := x.BitLen() - int(keep); over > 0 {
			x.Quo(x, new(big.Int).Lsh(bigOne, uint(over)))
			return e + over
		}
		return e
	}
	for k := n; k > 0; k >>= 1 {
		if k&1 != 0 {
			mant.Mul(mant, sq)
			e2 = cut(mant, e2+s2)
		}
		if k > 1 {
			sq.Mul(sq, sq)
			s2 = cut(sq, 2*s2)
		}
	}
	// base^n = mant × 2^e2 × 10^-(scale·n)
	num := mant
	var den *big.Int
	if e2 > 0 {
		num.Lsh(num, uint(e2))
	}
	ten := pow10(int(base.Scale) * n)
	if exp < 0 {
		num, den = new(big.Int).Set(ten), num
		if den.Sign() < 0 {
			num.Neg(num)
			den.Neg(den)
		}
	} else {
		den = ten
	}
	return makeNumeric(divRound(new(big.Int).Mul(num, pow10(rscale)), den), rscale)
}
