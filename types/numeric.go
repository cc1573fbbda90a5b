package types

import (
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// NumericForm tells finite numbers from the special values.
type NumericForm uint8

// The forms of a numeric. The order is not the sort order: NaN sorts above everything.
const (
	Finite NumericForm = iota
	NaN
	PosInf
	NegInf
)

// Numeric is PostgreSQL's numeric: coefficient × 10^-Scale, Scale being the display scale (1.10 has Scale 2).
// The coefficient is Coef while Big is nil; a Big that is set is immutable and outside int64. Scale is never negative.
type Numeric struct {
	Coef  int64
	Big   *big.Int
	Scale int16
	Form  NumericForm
}

// PostgreSQL's limits of numeric, in decimal digits.
const (
	maxNumericIntDigits = 131072 // before the point
	maxNumericDScale    = 16383  // after it
	minSigDigits        = 16     // NUMERIC_MIN_SIG_DIGITS
	maxDisplayScale     = 1000   // NUMERIC_MAX_DISPLAY_SCALE
	maxResultScale      = 2000   // NUMERIC_MAX_RESULT_SCALE
)

// maxInt64Pow10 is the largest n with 10^n inside int64.
const maxInt64Pow10 = 18

var (
	bigTen = big.NewInt(10)
	bigOne = big.NewInt(1)

	int64Pow10 = func() (p [maxInt64Pow10 + 1]int64) {
		p[0] = 1
		for i := 1; i < len(p); i++ {
			p[i] = 10 * p[i-1]
		}
		return p
	}()
	bigPow10 = func() (p [128]*big.Int) {
		p[0] = big.NewInt(1)
		for i := 1; i < len(p); i++ {
			p[i] = new(big.Int).Mul(p[i-1], bigTen)
		}
		return p
	}()
)

// pow10 returns 10^n; the result is shared, do not modify it.
func pow10(n int) *big.Int {
	if n < len(bigPow10) {
		return bigPow10[n]
	}
	return new(big.Int).Exp(bigTen, big.NewInt(int64(n)), nil)
}

func errNumericOverflow() error {
	return pgerr.Newf(pgerr.NumericValueOutOfRange, "value overflows numeric format")
}

func errDivisionByZero() error { return pgerr.Newf(pgerr.DivisionByZero, "division by zero") }

// NumericFromInt64 returns v with scale 0.
func NumericFromInt64(v int64) Numeric { return Numeric{Coef: v} }

// NewNumeric returns coef × 10^-scale. It takes over coef.
func NewNumeric(coef *big.Int, scale int) (Numeric, error) { return makeNumeric(coef, scale) }

// makeNumeric takes over c and checks the limits.
func makeNumeric(c *big.Int, scale int) (Numeric, error) {
	if scale < 0 {
		c = new(big.Int).Mul(c, pow10(-scale))
		scale = 0
	}
	if scale > maxNumericDScale {
		return Numeric{}, errNumericOverflow()
	}
	if c.IsInt64() {
		return Numeric{Coef: c.Int64(), Scale: int16(scale)}, nil
	}
	// 3.3219 bits a digit: exact digits are only counted close to the limit.
	if c.BitLen() > (maxNumericIntDigits+scale)*3321/1000 && decimalLen(c)-scale > maxNumericIntDigits {
		return Numeric{}, errNumericOverflow()
	}
	return Numeric{Big: c, Scale: int16(scale)}, nil
}

func decimalLen(c *big.Int) int {
	n := len(c.Append(nil, 10))
	if c.Sign() < 0 {
		n--
	}
	return n
}

// coef returns the coefficient as a big integer that must not be modified.
func (n *Numeric) coef() *big.Int {
	if n.Big != nil {
		return n.Big
	}
	return big.NewInt(n.Coef)
}

// BigCoef returns a copy of the coefficient.
func (n Numeric) BigCoef() *big.Int { return new(big.Int).Set(n.coef()) }

// Sign returns -1, 0 or 1; NaN has sign 1, as it sorts.
func (n Numeric) Sign() int {
	switch n.Form {
	case NaN, PosInf:
		return 1
	case NegInf:
		return -1
	}
	if n.Big != nil {
		return n.Big.Sign()
	}
	switch {
	case n.Coef > 0:
		return 1
	case n.Coef < 0:
		return -1
	}
	return 0
}

// isSpace is C's isspace in the C locale.
func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func trimSpace(s string) string {
	for len(s) > 0 && isSpace(s[0]) {
		s = s[1:]
	}
	for len(s) > 0 && isSpace(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

// ParseNumeric reads the text form of a numeric.
func ParseNumeric(text string) (Numeric, error) {
	s := trimSpace(text)
	bad := func() (Numeric, error) {
		return Numeric{}, pgerr.Newf(pgerr.InvalidTextRepresentation, "invalid input syntax for type %s: \"%s\"", "numeric", text)
	}
	body, neg := s, false
	if body != "" && (body[0] == '-' || body[0] == '+') {
		neg = body[0] == '-'
		body = body[1:]
	}
	if body == "" {
		return bad()
	}
	if c := body[0]; c != '.' && (c < '0' || c > '9') {
		switch strings.ToLower(body) {
		case "nan":
			if body == s {
				return Numeric{Form: NaN}, nil
			}
		case "infinity", "inf":
			if neg {
				return Numeric{Form: NegInf}, nil
			}
			return Numeric{Form: PosInf}, nil
		}
		return bad()
	}
	var coef uint64
	digits, frac, significant := 0, 0, 0
	seenPoint, i := false, 0
	for ; i < len(body); i++ {
		c := body[i]
		if c == '.' {
			if seenPoint {
				return bad()
			}
			seenPoint = true
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		digits++
		if significant > 0 || c != '0' {
			significant++
		}
		if seenPoint {
			frac++
		}
		if significant <= 19 {
			coef = coef*10 + uint64(c-'0')
		}
	}
	if digits == 0 {
		return bad()
	}
	mantissa, exp := body[:i], 0
	if i < len(body) {
		if body[i] != 'e' && body[i] != 'E' {
			return bad()
		}
		e, err := strconv.ParseInt(body[i+1:], 10, 64)
		if err != nil {
			if ne, ok := err.(*strconv.NumError); !ok || ne.Err != strconv.ErrRange {
				return bad()
			}
		}
		if strings.IndexByte(body[i+1:], '_') >= 0 {
			return bad()
		}
		if e > math.MaxInt32/2 || e < -math.MaxInt32/2 {
			return Numeric{}, errNumericOverflow()
		}
		exp = int(e)
	}
	scale := frac - exp
	if scale > maxNumericDScale || significant > 0 && significant-scale > maxNumericIntDigits {
		return Numeric{}, errNumericOverflow()
	}
	if significant == 0 {
		return Numeric{Scale: int16(max(scale, 0))}, nil
	}
	if significant <= maxInt64Pow10 && scale >= 0 {
		n := Numeric{Coef: int64(coef), Scale: int16(scale)}
		if neg {
			n.Coef = -n.Coef
		}
		return n, nil
	}
	if seenPoint {
		mantissa = strings.Replace(mantissa, ".", "", 1)
	}
	c, _ := new(big.Int).SetString(mantissa, 10)
	if neg {
		c.Neg(c)
	}
	return makeNumeric(c, scale)
}

// AppendText appends PostgreSQL's text form.
func (n Numeric) AppendText(dst []byte) []byte {
	switch n.Form {
	case NaN:
		return append(dst, "NaN"...)
	case PosInf:
		return append(dst, "Infinity"...)
	case NegInf:
		return append(dst, "-Infinity"...)
	}
	at := len(dst)
	if n.Big != nil {
		dst = n.Big.Append(dst, 10)
	} else {
		dst = strconv.AppendInt(dst, n.Coef, 10)
	}
	if n.Scale == 0 {
		return dst
	}
	if dst[at] == '-' {
		at++
	}
	// Leading zeros up to one before the point.
	scale := int(n.Scale)
	for missing := scale + 1 - (len(dst) - at); missing > 0; {
		k := min(missing, 16)
		dst = append(dst, "0000000000000000"[:k]...)
		copy(dst[at+k:], dst[at:len(dst)-k])
		for j := range k {
			dst[at+j] = '0'
		}
		missing -= k
	}
	dst = append(dst, 0)
	p := len(dst) - 1 - scale
	copy(dst[p+1:], dst[p:len(dst)-1])
	dst[p] = '.'
	return dst
}

// String returns the text form.
func (n Numeric) String() string { return string(n.AppendText(nil)) }

// mulPow10 returns c × 10^k when it fits int64.
func mulPow10(c int64, k int) (int64, bool) {
	if k > maxInt64Pow10 {
		return 0, c == 0
	}
	hi, lo := bits.Mul64(absU64(c), uint64(int64Pow10[k]))
	if hi != 0 || lo > math.MaxInt64 {
		return 0, false
	}
	if c < 0 {
		return -int64(lo), true
	}
	return int64(lo), true
}

func absU64(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}

func formRank(f NumericForm) int {
	switch f {
	case NegInf:
		return 0
	case PosInf:
		return 2
	case NaN:
		return 3
	}
	return 1
}

// CompareNumeric orders numerics as SQL does: NaN equals itself and is above infinity.
func CompareNumeric(a, b Numeric) int { return compareNumeric(&a, &b) }

func compareNumeric(a, b *Numeric) int {
	if a.Form != Finite || b.Form != Finite {
		return formRank(a.Form) - formRank(b.Form)
	}
	if a.Big == nil && b.Big == nil {
		x, y, ok := alignInt64(a, b)
		if ok {
			switch {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return 0
		}
	}
	x, y := align(a, b)
	return x.Cmp(y)
}

// alignInt64 brings two small coefficients to the larger scale.
func alignInt64(a, b *Numeric) (x, y int64, ok bool) {
	x, y, ok = a.Coef, b.Coef, true
	if d := int(a.Scale) - int(b.Scale); d > 0 {
		y, ok = mulPow10(y, d)
	} else if d < 0 {
		x, ok = mulPow10(x, -d)
	}
	return x, y, ok
}

// align brings two coefficients to the larger scale. The results may be shared.
func align(a, b *Numeric) (x, y *big.Int) {
	x, y = a.coef(), b.coef()
	if d := int(a.Scale) - int(b.Scale); d > 0 {
		y = new(big.Int).Mul(y, pow10(d))
	} else if d < 0 {
		x = new(big.Int).Mul(x, pow10(-d))
	}
	return x, y
}

// NumAdd returns a + b with the larger scale.
func NumAdd(a, b Numeric) (Numeric, error) {
	if a.Form != Finite || b.Form != Finite {
		switch {
		case a.Form == NaN || b.Form == NaN || a.Form != b.Form && a.Form != Finite && b.Form != Finite:
			return Numeric{Form: NaN}, nil
		case a.Form != Finite:
			return Numeric{Form: a.Form}, nil
		}
		return Numeric{Form: b.Form}, nil
	}
	scale := max(a.Scale, b.Scale)
	if a.Big == nil && b.Big == nil {
		if x, y, ok := alignInt64(&a, &b); ok {
			if s := x + y; (s > x) == (y > 0) {
				return Numeric{Coef: s, Scale: scale}, nil
			}
		}
	}
	x, y := align(&a, &b)
	return makeNumeric(new(big.Int).Add(x, y), int(scale))
}

// NumSub returns a - b with the larger scale.
func NumSub(a, b Numeric) (Numeric, error) { return NumAdd(a, NumNeg(b)) }

// NumNeg returns -n.
func NumNeg(n Numeric) Numeric {
	switch {
	case n.Form == PosInf:
		n.Form = NegInf
	case n.Form == NegInf:
		n.Form = PosInf
	case n.Form == NaN:
	case n.Big != nil:
		if x := new(big.Int).Neg(n.Big); x.IsInt64() {
			n.Coef, n.Big = x.Int64(), nil
		} else {
			n.Big = x
		}
	case n.Coef == math.MinInt64:
		n.Big, n.Coef = new(big.Int).Neg(big.NewInt(n.Coef)), 0
	default:
		n.Coef = -n.Coef
	}
	return n
}

// NumAbs returns |n|.
func NumAbs(n Numeric) Numeric {
	if n.Form == NegInf || n.Form == Finite && n.Sign() < 0 {
		return NumNeg(n)
	}
	return n
}

func infSigned(sign int) Numeric {
	if sign < 0 {
		return Numeric{Form: NegInf}
	}
	return Numeric{Form: PosInf}
}

// NumMul returns a × b; the scale is the sum of the scales.
func NumMul(a, b Numeric) (Numeric, error) {
	if a.Form != Finite || b.Form != Finite {
		s := a.Sign() * b.Sign()
		if a.Form == NaN || b.Form == NaN || s == 0 {
			return Numeric{Form: NaN}, nil
		}
		return infSigned(s), nil
	}
	scale := int(a.Scale) + int(b.Scale)
	if a.Big == nil && b.Big == nil && scale <= maxNumericDScale {
		hi, lo := bits.Mul64(absU64(a.Coef), absU64(b.Coef))
		if hi == 0 && lo <= math.MaxInt64 {
			r := int64(lo)
			if a.Coef < 0 != (b.Coef < 0) {
				r = -r
			}
			return Numeric{Coef: r, Scale: int16(scale)}, nil
		}
	}
	c := new(big.Int).Mul(a.coef(), b.coef())
	if scale > maxNumericDScale {
		c = divRound(c, pow10(scale-maxNumericDScale))
		scale = maxNumericDScale
	}
	return makeNumeric(c, scale)
}

// divRound returns x / y rounded half away from zero, in a new integer.
func divRound(x, y *big.Int) *big.Int {
	q, r := new(big.Int).QuoRem(x, y, new(big.Int))
	r.Abs(r).Lsh(r, 1)
	if r.CmpAbs(y) >= 0 {
		if x.Sign()*y.Sign() < 0 {
			q.Sub(q, bigOne)
		} else {
			q.Add(q, bigOne)
		}
	}
	return q
}

// base10000 returns the weight and the value of the first non-zero base-10000 digit, the terms in which PostgreSQL estimates scales.
func (n *Numeric) base10000() (weight, first int) {
	var buf [48]byte
	var d []byte
	if n.Big == nil {
		if n.Coef == 0 {
			return 0, 0
		}
		d = strconv.AppendUint(buf[:0], absU64(n.Coef), 10)
	} else {
		d = new(big.Int).Abs(n.Big).Append(buf[:0], 10)
	}
	point := len(d) - int(n.Scale)
	weight = floorDiv(point-1, 4)
	for k := range point - 4*weight {
		first *= 10
		if k < len(d) {
			first += int(d[k] - '0')
		}
	}
	return weight, first
}

func floorDiv(a, b int) int {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

func clampScale(rscale int, inputs ...int16) int {
	for _, s := range inputs {
		rscale = max(rscale, int(s))
	}
	return min(max(rscale, 0), maxDisplayScale)
}

// divScale is PostgreSQL's select_div_scale.
func divScale(a, b *Numeric) int {
	w1, f1 := a.base10000()
	w2, f2 := b.base10000()
	q := w1 - w2
	if f1 <= f2 {
		q--
	}
	return clampScale(minSigDigits-q*4, a.Scale, b.Scale)
}

// NumDiv returns a / b with PostgreSQL's choice of scale, rounded half away from zero.
func NumDiv(a, b Numeric) (Numeric, error) {
	if a.Form != Finite || b.Form != Finite {
		switch {
		case a.Form == NaN || b.Form == NaN:
			return Numeric{Form: NaN}, nil
		case a.Form != Finite && b.Form != Finite:
			return Numeric{Form: NaN}, nil
		case a.Form != Finite:
			if b.Sign() == 0 {
				return Numeric{}, errDivisionByZero()
			}
			return infSigned(a.Sign() * b.Sign()), nil
		}
		return Numeric{}, nil
	}
	if b.Sign() == 0 {
		return Numeric{}, errDivisionByZero()
	}
	return divToScale(&a, &b, divScale(&a, &b))
}

// divToScale returns a / b at the given scale, rounded half away from zero; both finite, b not zero.
func divToScale(a, b *Numeric, scale int) (Numeric, error) {
	k := scale + int(b.Scale) - int(a.Scale)
	if a.Big == nil && b.Big == nil && k >= 0 && k <= maxInt64Pow10 {
		d := absU64(b.Coef)
		hi, lo := bits.Mul64(absU64(a.Coef), uint64(int64Pow10[k]))
		if hi < d {
			q, r := bits.Div64(hi, lo, d)
			if r >= d-r {
				q++
			}
			if q <= math.MaxInt64 {
				n := Numeric{Coef: int64(q), Scale: int16(scale)}
				if a.Coef < 0 != (b.Coef < 0) {
					n.Coef = -n.Coef
				}
				return n, nil
			}
		}
	}
	x, y := a.coef(), b.coef()
	if k >= 0 {
		x = new(big.Int).Mul(x, pow10(k))
	} else {
		y = new(big.Int).Mul(y, pow10(-k))
	}
	return makeNumeric(divRound(x, y), scale)
}

// NumDivTrunc returns the integer quotient of a / b, truncated toward zero (SQL div).
func NumDivTrunc(a, b Numeric) (Numeric, error) {
	if a.Form != Finite || b.Form != Finite {
		return NumDiv(a, b)
	}
	if b.Sign() == 0 {
		return Numeric{}, errDivisionByZero()
	}
	x, y := align(&a, &b)
	return makeNumeric(new(big.Int).Quo(x, y), 0)
}

// NumMod returns the remainder of the truncated division, with a's sign.
func NumMod(a, b Numeric) (Numeric, error) {
	if a.Form != Finite || b.Form != Finite {
		switch {
		case a.Form == NaN || b.Form == NaN:
			return Numeric{Form: NaN}, nil
		case a.Form != Finite:
			if b.Form == Finite && b.Sign() == 0 {
				return Numeric{}, errDivisionByZero()
			}
			return Numeric{Form: NaN}, nil
		}
		return a, nil
	}
	if b.Sign() == 0 {
		return Numeric{}, errDivisionByZero()
	}
	scale := max(a.Scale, b.Scale)
	if a.Big == nil && b.Big == nil {
		if x, y, ok := alignInt64(&a, &b); ok {
			if y == -1 {
				return Numeric{Scale: scale}, nil
			}
			return Numeric{Coef: x % y, Scale: scale}, nil
		}
	}
	x, y := align(&a, &b)
	return makeNumeric(new(big.Int).Rem(x, y), int(scale))
}

// NumRound rounds half away from zero to scale digits after the point; a negative scale rounds before it. The result has that scale, at least 0.
func NumRound(n Numeric, scale int) (Numeric, error) {
	return n.rescale(scale, func(x, y *big.Int) *big.Int { return divRound(x, y) })
}

// NumTrunc cuts to scale digits after the point, toward zero.
func NumTrunc(n Numeric, scale int) (Numeric, error) {
	return n.rescale(scale, func(x, y *big.Int) *big.Int { return new(big.Int).Quo(x, y) })
}

// NumCeil returns the least integer not below n.
func NumCeil(n Numeric) (Numeric, error) {
	return n.rescale(0, func(x, y *big.Int) *big.Int {
		q, r := new(big.Int).QuoRem(x, y, new(big.Int))
		if r.Sign() > 0 {
			q.Add(q, bigOne)
		}
		return q
	})
}

// NumFloor returns the greatest integer not above n.
func NumFloor(n Numeric) (Numeric, error) {
	return n.rescale(0, func(x, y *big.Int) *big.Int {
		q, r := new(big.Int).QuoRem(x, y, new(big.Int))
		if r.Sign() < 0 {
			q.Sub(q, bigOne)
		}
		return q
	})
}

func (n Numeric) rescale(scale int, div func(x, y *big.Int) *big.Int) (Numeric, error) {
	if n.Form != Finite {
		return n, nil
	}
	scale = min(max(scale, -maxNumericIntDigits), maxNumericDScale)
	cut := int(n.Scale) - scale
	if cut == 0 {
		return n, nil
	}
	if cut < 0 {
		if n.Big == nil {
			if c, ok := mulPow10(n.Coef, -cut); ok {
				return Numeric{Coef: c, Scale: int16(scale)}, nil
			}
		}
		return makeNumeric(new(big.Int).Mul(n.coef(), pow10(-cut)), scale)
	}
	return makeNumeric(div(n.coef(), pow10(cut)), scale)
}

// NumTrimScale removes trailing zeros after the point.
func NumTrimScale(n Numeric) Numeric {
	for n.Form == Finite && n.Scale > 0 {
		if n.Big == nil {
			if n.Coef%10 != 0 {
				break
			}
			n.Coef /= 10
		} else {
			q, r := new(big.Int).QuoRem(n.Big, bigTen, new(big.Int))
			if r.Sign() != 0 {
				break
			}
			if n.Big = q; q.IsInt64() {
				n.Coef, n.Big = q.Int64(), nil
			}
		}
		n.Scale--
	}
	return n
}

// NumericFromFloat64 converts a float with digits significant digits: 15 for float8, 6 for float4, as PostgreSQL casts.
func NumericFromFloat64(f float64, digits int) (Numeric, error) {
	switch {
	case f != f:
		return Numeric{Form: NaN}, nil
	case math.IsInf(f, 1):
		return Numeric{Form: PosInf}, nil
	case math.IsInf(f, -1):
		return Numeric{Form: NegInf}, nil
	case f == 0:
		return Numeric{}, nil
	}
	var buf [32]byte
	s := strconv.AppendFloat(buf[:0], f, 'e', digits-1, 64)
	n, err := ParseNumeric(string(s))
	if err != nil {
		return n, err
	}
	return NumTrimScale(n), nil
}

// ToInt64 rounds half away from zero; 22003 when the result is no bigint.
func (n Numeric) ToInt64() (int64, error) { return NumToInt(n, OIDInt8) }

// NumToInt rounds n to the integer type oid; 22003 when it does not fit.
func NumToInt(n Numeric, oid OID) (int64, error) {
	name := T(oid).String()
	switch n.Form {
	case NaN:
		return 0, pgerr.Newf(pgerr.FeatureNotSupported, "cannot convert NaN to %s", name)
	case PosInf, NegInf:
		return 0, pgerr.Newf(pgerr.FeatureNotSupported, "cannot convert infinity to %s", name)
	}
	if n.Scale > 0 {
		n, _ = NumRound(n, 0)
	}
	if n.Big != nil || !intFits(oid, n.Coef) {
		return 0, pgerr.Newf(pgerr.NumericValueOutOfRange, "%s out of range", name)
	}
	return n.Coef, nil
}

func intFits(oid OID, v int64) bool {
	switch oid {
	case OIDInt2:
		return v == int64(int16(v))
	case OIDInt4:
		return v == int64(int32(v))
	case OIDInt8:
		return true
	}
	return v == int64(uint32(v))
}

// maxExactFloatPow10 is the largest n for which 10^n is an exact float64.
const maxExactFloatPow10 = 22

// ToFloat64 returns the nearest float8; 22003 when n is too large for one.
func (n Numeric) ToFloat64() (float64, error) {
	switch n.Form {
	case NaN:
		return math.NaN(), nil
	case PosInf:
		return math.Inf(1), nil
	case NegInf:
		return math.Inf(-1), nil
	}
	if n.Big == nil && absU64(n.Coef) < 1<<53 && n.Scale <= maxExactFloatPow10 {
		// Both operands are exact, so one division rounds once.
		return float64(n.Coef) / math.Pow10(int(n.Scale)), nil
	}
	s := n.String()
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f == 0 && n.Sign() != 0 {
		return 0, pgerr.Newf(pgerr.NumericValueOutOfRange, "\"%s\" is out of range for type double precision", s)
	}
	return f, nil
}

// applyNumericTypmod rounds n to numeric(p, s), 22003 when it does not fit.
func applyNumericTypmod(n Numeric, mod int32) (Numeric, error) {
	if mod < varHeader || n.Form == NaN {
		return n, nil
	}
	p, s := numericTypmod(mod)
	if n.Form != Finite {
		return Numeric{}, pgerr.Newf(pgerr.NumericValueOutOfRange, "numeric field overflow").
			WithDetail("A field with precision %d, scale %d cannot hold an infinite value.", p, s)
	}
	r, err := NumRound(n, s)
	if err != nil {
		return r, err
	}
	if r.Sign() != 0 {
		d := 0
		if r.Big == nil {
			d = len(strconv.AppendUint(make([]byte, 0, 20), absU64(r.Coef), 10))
		} else {
			d = decimalLen(r.Big)
		}
		if d-int(r.Scale) > p-s {
			bound := "1"
			if p != s {
				bound = "10^" + strconv.Itoa(p-s)
			}
			return Numeric{}, pgerr.Newf(pgerr.NumericValueOutOfRange, "numeric field overflow").
				WithDetail("A field with precision %d, scale %d must round to an absolute value less than %s.", p, s, bound)
		}
	}
	return r, nil
}
