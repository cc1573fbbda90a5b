package op

import (
	"encoding/binary"
	"math"
	"math/big"
	"slices"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// callVar is the part of a group's state that does not fit into fixed words. Calls use the fields they need.
type callVar struct {
	best   *types.Vector // one value
	sum    types.Numeric // of the finite values
	sum2   types.Numeric // of their squares
	scales []scaleCount  // live values per display scale: a sum shows the largest one
	exact  [5]*big.Int   // exact float sums, as integers: see addFloat
}

type scaleCount struct {
	scale int16
	n     int64
}

// encode appends the state form: a byte of field bits, then per field length and bytes.
func (cv *callVar) encode(dst []byte) []byte {
	vecs := []*types.Vector{nil}
	field := func(bit byte, b []byte) {
		dst = append(dst, bit)
		dst = binary.AppendUvarint(dst, uint64(len(b)))
		dst = append(dst, b...)
	}
	if cv.best != nil {
		vecs[0] = cv.best
		b := binary.AppendUvarint(nil, uint64(cv.best.Type.OID))
		field(1, types.AppendRow(b, vecs, 0))
	}
	for i, n := range []types.Numeric{cv.sum, cv.sum2} {
		if n.Big != nil || n.Coef != 0 || n.Scale != 0 {
			field(2+byte(i), types.AppendDatumRow(nil, []types.Datum{{Type: types.NumericType, Num: n}}))
		}
	}
	if len(cv.scales) > 0 {
		var b []byte
		for _, s := range cv.scales {
			b = binary.AppendVarint(b, int64(s.scale))
			b = binary.AppendVarint(b, s.n)
		}
		field(4, b)
	}
	for i, z := range cv.exact {
		if z != nil && z.Sign() != 0 {
			sign := byte(0)
			if z.Sign() < 0 {
				sign = 1
			}
			field(5+byte(i), append([]byte{sign}, z.Bytes()...))
		}
	}
	return dst
}

func (cv *callVar) decode(b []byte) bool {
	r := byteReader{b: b}
	*cv = callVar{}
	for len(r.b) > 0 {
		k := r.byte()
		f := byteReader{b: r.bytes(int(r.uvarint()))}
		if r.bad {
			return false
		}
		switch {
		case k == 1:
			cv.best = &types.Vector{Type: types.T(types.OID(f.uvarint()))}
			if _, err := types.DecodeRow(f.b, []*types.Vector{cv.best}); err != nil {
				return false
			}
		case k == 2 || k == 3:
			d, _, err := types.DecodeDatumRow(f.b, []types.Type{types.NumericType})
			if err != nil {
				return false
			}
			if k == 2 {
				cv.sum = d[0].Num
			} else {
				cv.sum2 = d[0].Num
			}
		case k == 4:
			for len(f.b) > 0 {
				cv.scales = append(cv.scales, scaleCount{int16(f.varint()), f.varint()})
			}
			if f.bad {
				return false
			}
		case k >= 5 && k < 10:
			neg := f.byte() == 1
			z := new(big.Int).SetBytes(f.b)
			if neg {
				z.Neg(z)
			}
			cv.exact[k-5] = z
		default:
			return false
		}
	}
	return true
}

func (cv *callVar) countScale(scale int16, w int64) {
	for i := range cv.scales {
		if s := &cv.scales[i]; s.scale == scale {
			if s.n += w; s.n == 0 {
				cv.scales = slices.Delete(cv.scales, i, i+1)
			}
			return
		}
	}
	cv.scales = append(cv.scales, scaleCount{scale, w})
}

func (cv *callVar) maxScale() int {
	m := 0
	for _, s := range cv.scales {
		if s.n > 0 {
			m = max(m, int(s.scale))
		}
	}
	return m
}

// statistic is what a sum-like call shows of its sums.
type statistic uint8

const (
	statSum statistic = iota
	statAvg
	statVarPop
	statVarSamp
	statStddevPop
	statStddevSamp
)

func statOf(name string) statistic {
	switch name {
	case "sum":
		return statSum
	case "avg":
		return statAvg
	case "var_pop":
		return statVarPop
	case "stddev_pop":
		return statStddevPop
	case "variance", "var_samp":
		return statVarSamp
	}
	return statStddevSamp
}

func (s statistic) squares() bool { return s >= statVarPop }

func (s statistic) sample() bool { return s == statVarSamp || s == statStddevSamp }

func (s statistic) root() bool { return s >= statStddevPop }

func (cb callBase) newSum(name string, retract bool) aggCall {
	switch cb.argType.Kind() {
	case types.KindInt:
		return &intSum{callBase: cb, avg: name == "avg"}
	case types.KindFloat:
		return &floatCall{callBase: cb, stat: statOf(name), exact: retract}
	case types.KindNumeric:
		return &numericCall{callBase: cb, stat: statOf(name)}
	case types.KindInterval:
		return &intervalSum{callBase: cb, avg: name == "avg"}
	}
	return nil
}

// numericCall is sum, avg and the variances of numeric, and the variances of integers: words count, NaN, +infinity, -infinity; the sums are
// exact, so that a retraction leaves nothing behind.
type numericCall struct {
	callBase
	stat statistic
}

func (c *numericCall) place(at int) int { c.at = at; return 4 }
func (c *numericCall) variable() bool   { return true }

func (c *numericCall) update(b *aggBatch) error {
	v := b.c.Cols[c.arg]
	for i, g := range b.groups {
		r := b.row(i)
		if v.IsNull(r) {
			continue
		}
		w, n := b.weight(i), c.values(b, i, r)
		row := c.o.groups.row(g)[c.at : c.at+4]
		row[0] += uint64(n)
		x := numberAt(v, r)
		if x.Form != types.Finite {
			row[x.Form] += uint64(w)
			continue
		}
		cv := &c.o.vars[g][c.no]
		if n != 0 {
			cv.countScale(x.Scale, n)
		}
		var err error
		if cv.sum, err = addWeighted(cv.sum, x, w); err != nil {
			return err
		}
		if c.stat.squares() {
			var sq types.Numeric
			if c.squares != nil {
				sq = b.c.Cols[*c.squares].Num[r]
			} else if sq, err = types.NumMul(x, x); err != nil {
				return err
			}
			if cv.sum2, err = addWeighted(cv.sum2, sq, w); err != nil {
				return err
			}
		}
	}
	return nil
}

func addWeighted(sum, x types.Numeric, w int64) (types.Numeric, error) {
	switch w {
	case 1:
		return types.NumAdd(sum, x)
	case -1:
		return types.NumSub(sum, x)
	}
	x, err := types.NumMul(x, types.NumericFromInt64(w))
	if err != nil {
		return sum, err
	}
	return types.NumAdd(sum, x)
}

func (c *numericCall) final(row []uint64, cv *callVar, dst *types.Vector) error {
	n := int64(row[c.at])
	nan, pinf, ninf := int64(row[c.at+1]), int64(row[c.at+2]), int64(row[c.at+3])
	if n <= 0 || n == 1 && c.stat.sample() {
		dst.AppendNull()
		return nil
	}
	if nan > 0 || pinf > 0 || ninf > 0 {
		form := types.NaN
		if nan <= 0 && !c.stat.squares() {
			if pinf > 0 && ninf <= 0 {
				form = types.PosInf
			} else if ninf > 0 && pinf <= 0 {
				form = types.NegInf
			}
		}
		pushNumeric(dst, types.Numeric{Form: form})
		return nil
	}
	x, err := c.value(cv, n)
	if err != nil {
		return err
	}
	pushNumeric(dst, x)
	return nil
}

func (c *numericCall) value(cv *callVar, n int64) (types.Numeric, error) {
	count := types.NumericFromInt64(n)
	scale := cv.maxScale()
	sum, err := types.NumRound(cv.sum, scale)
	if err != nil || c.stat == statSum {
		return sum, err
	}
	if c.stat == statAvg {
		return types.NumDiv(sum, count)
	}
	sum2, err := types.NumRound(cv.sum2, 2*scale)
	if err != nil {
		return sum, err
	}
	a, err := types.NumMul(count, sum2)
	if err != nil {
		return a, err
	}
	b, err := types.NumMul(sum, sum)
	if err != nil {
		return b, err
	}
	num, err := types.NumSub(a, b)
	if err != nil {
		return num, err
	}
	if num.Sign() <= 0 {
		return types.NumericFromInt64(0), nil
	}
	m := n
	if c.stat.sample() {
		m--
	}
	den, err := types.NumMul(count, types.NumericFromInt64(m))
	if err != nil {
		return den, err
	}
	v, err := types.NumDiv(num, den)
	if err != nil || !c.stat.root() {
		return v, err
	}
	root, err := types.NumSqrt(v)
	if err != nil {
		return root, err
	}
	return types.NumRound(root, int(v.Scale))
}

// floatCall is sum, avg and the variances of floats: words count, NaN, +infinity, -infinity, running sum, running sum of squared deviations
// (Youngs-Cramer, as PostgreSQL), retracted. While nothing was retracted the running sums give PostgreSQL's very result. They
// cannot be undone (1e16 + 1 - 1e16), so where retractions are possible the exact sums are kept too.
type floatCall struct {
	callBase
	stat  statistic
	exact bool
}

const (
	floatN = iota
	floatNaN
	floatPosInf
	floatNegInf
	floatSum
	floatDev
	floatRetracted
	floatWords
)

func (c *floatCall) place(at int) int { c.at = at; return floatWords }
func (c *floatCall) variable() bool   { return c.exact }

func (c *floatCall) update(b *aggBatch) error {
	v := b.c.Cols[c.arg]
	narrow := c.stat == statSum && c.argType.OID == types.OIDFloat4
	for i, g := range b.groups {
		r := b.row(i)
		if v.IsNull(r) {
			continue
		}
		w, x := b.weight(i), v.Float[r]
		row := c.o.groups.row(g)[c.at : c.at+floatWords]
		row[floatN] += uint64(w)
		switch {
		case x != x:
			row[floatNaN] += uint64(w)
			continue
		case math.IsInf(x, 1):
			row[floatPosInf] += uint64(w)
			continue
		case math.IsInf(x, -1):
			row[floatNegInf] += uint64(w)
			continue
		}
		if w < 0 {
			row[floatRetracted] = 1
		}
		for range w {
			sum := math.Float64frombits(row[floatSum]) + x
			if narrow {
				sum = float64(float32(sum))
			}
			n := float64(int64(row[floatN]) - int64(row[floatNaN]) - int64(row[floatPosInf]) - int64(row[floatNegInf]))
			if n > 1 && c.stat.squares() {
				d := x*n - sum
				row[floatDev] = math.Float64bits(math.Float64frombits(row[floatDev]) + d*d/(n*(n-1)))
			}
			row[floatSum] = math.Float64bits(sum)
		}
		if c.exact {
			cv := &c.o.vars[g][c.no]
			cv.addFloat(0, x, w)
			if c.stat.squares() {
				cv.addProduct(1, x, x, w)
			}
		}
	}
	return nil
}

func errFloatOverflow() error {
	return pgerr.Newf(pgerr.NumericValueOutOfRange, "value out of range: overflow")
}

func (c *floatCall) final(row []uint64, cv *callVar, dst *types.Vector) error {
	w := row[c.at : c.at+floatWords]
	n := int64(w[floatN])
	nan, pinf, ninf := int64(w[floatNaN]), int64(w[floatPosInf]), int64(w[floatNegInf])
	if n <= 0 || n == 1 && c.stat.sample() {
		dst.AppendNull()
		return nil
	}
	if nan > 0 || pinf > 0 || ninf > 0 {
		x := math.NaN()
		if nan <= 0 && !c.stat.squares() {
			if pinf > 0 && ninf <= 0 {
				x = math.Inf(1)
			} else if ninf > 0 && pinf <= 0 {
				x = math.Inf(-1)
			}
		}
		pushFloat(dst, x)
		return nil
	}
	sum, dev := math.Float64frombits(w[floatSum]), math.Float64frombits(w[floatDev])
	if w[floatRetracted] != 0 {
		sum = floatOf(cv.exact[0], 1)
		if c.stat.squares() {
			dev = deviation(cv.exact[0], cv.exact[0], cv.exact[1], n)
		}
		if c.stat == statSum && c.argType.OID == types.OIDFloat4 {
			sum = float64(float32(sum))
		}
	}
	x := sum
	switch {
	case c.stat == statAvg:
		x = sum / float64(n)
	case c.stat.squares():
		x = dev / float64(n)
		if c.stat.sample() {
			x = dev / float64(n-1)
		}
		if c.stat.root() {
			x = math.Sqrt(x)
		}
	}
	if math.IsInf(sum, 0) || math.IsInf(x, 0) {
		return errFloatOverflow()
	}
	pushFloat(dst, x)
	return nil
}

// floatUnit is the exponent of the smallest float: exact sums count units of 2^-floatUnit, sums of products of its square.
const floatUnit = 1074

// mantissa splits a finite float into m × 2^e with integer m and e >= -floatUnit.
func mantissa(f float64) (m int64, e int) {
	b := math.Float64bits(f)
	m = int64(b & (1<<52 - 1))
	e = int(b >> 52 & 0x7FF)
	if e == 0 {
		e = 1
	} else {
		m |= 1 << 52
	}
	if b>>63 != 0 {
		m = -m
	}
	return m, e - 1075
}

func (cv *callVar) addFloat(k int, f float64, w int64) {
	m, e := mantissa(f)
	cv.addShifted(k, big.NewInt(m), uint(e+floatUnit), w)
}

func (cv *callVar) addProduct(k int, x, y float64, w int64) {
	m1, e1 := mantissa(x)
	m2, e2 := mantissa(y)
	z := big.NewInt(m1)
	cv.addShifted(k, z.Mul(z, big.NewInt(m2)), uint(e1+e2+2*floatUnit), w)
}

func (cv *callVar) addShifted(k int, z *big.Int, shift uint, w int64) {
	z.Lsh(z, shift)
	if w != 1 {
		z.Mul(z, big.NewInt(w))
	}
	if cv.exact[k] == nil {
		cv.exact[k] = new(big.Int)
	}
	cv.exact[k].Add(cv.exact[k], z)
}

// floatOf rounds an exact sum of units 2^-(floatUnit × power).
func floatOf(z *big.Int, power int) float64 {
	if z == nil || z.Sign() == 0 {
		return 0
	}
	f := new(big.Float).SetInt(z)
	f.SetMantExp(f, -power*floatUnit)
	x, _ := f.Float64()
	return x
}

// deviation returns Sxy - Sx·Sy/n, rounded once.
func deviation(sx, sy, sxy *big.Int, n int64) float64 {
	if sx == nil || sy == nil || sxy == nil {
		return 0
	}
	num := new(big.Int).Mul(sxy, big.NewInt(n))
	num.Sub(num, new(big.Int).Mul(sx, sy))
	if num.Sign() == 0 {
		return 0
	}
	f := new(big.Float).SetPrec(128).SetInt(num)
	f.Quo(f, new(big.Float).SetPrec(128).SetInt64(n))
	f.SetMantExp(f, -2*floatUnit)
	x, _ := f.Float64()
	return x
}

// pairCall is the family of regression aggregates, agg(Y, X). Its sums are exact; words: count, values that are not finite.
type pairCall struct {
	callBase
	arg2 int
	name string
}

func (c *pairCall) place(at int) int { c.at = at; return 2 }
func (c *pairCall) variable() bool   { return true }

const (
	pairX = iota
	pairY
	pairXX
	pairYY
	pairXY
)

func (c *pairCall) update(b *aggBatch) error {
	vy, vx := b.c.Cols[c.arg], b.c.Cols[c.arg2]
	for i, g := range b.groups {
		r := b.row(i)
		if vy.IsNull(r) || vx.IsNull(r) {
			continue
		}
		w, y, x := b.weight(i), vy.Float[r], vx.Float[r]
		row := c.o.groups.row(g)
		row[c.at] += uint64(w)
		if s := x - x + y - y; s != 0 {
			row[c.at+1] += uint64(w)
			continue
		}
		cv := &c.o.vars[g][c.no]
		cv.addFloat(pairX, x, w)
		cv.addFloat(pairY, y, w)
		cv.addProduct(pairXX, x, x, w)
		cv.addProduct(pairYY, y, y, w)
		cv.addProduct(pairXY, x, y, w)
	}
	return nil
}

func (c *pairCall) final(row []uint64, cv *callVar, dst *types.Vector) error {
	n := int64(row[c.at])
	if c.name == "regr_count" {
		pushInt(dst, n)
		return nil
	}
	if n <= 0 || n == 1 && c.name == "covar_samp" {
		dst.AppendNull()
		return nil
	}
	if int64(row[c.at+1]) > 0 {
		pushFloat(dst, math.NaN())
		return nil
	}
	e := &cv.exact
	f := float64(n)
	sxx, syy := deviation(e[pairX], e[pairX], e[pairXX], n), deviation(e[pairY], e[pairY], e[pairYY], n)
	sxy := deviation(e[pairX], e[pairY], e[pairXY], n)
	avgX, avgY := floatOf(e[pairX], 1)/f, floatOf(e[pairY], 1)/f
	x, null := 0.0, false
	switch c.name {
	case "regr_sxx":
		x = sxx
	case "regr_syy":
		x = syy
	case "regr_sxy":
		x = sxy
	case "regr_avgx":
		x = avgX
	case "regr_avgy":
		x = avgY
	case "covar_pop":
		x = sxy / f
	case "covar_samp":
		x = sxy / (f - 1)
	case "corr":
		null = sxx == 0 || syy == 0
		x = sxy / math.Sqrt(sxx*syy)
	case "regr_r2":
		null = sxx == 0
		x = 1
		if syy != 0 {
			x = sxy * sxy / (sxx * syy)
		}
	case "regr_slope":
		null = sxx == 0
		x = sxy / sxx
	case "regr_intercept":
		null = sxx == 0
		x = (floatOf(e[pairY], 1) - floatOf(e[pairX], 1)*sxy/sxx) / f
	}
	if null {
		dst.AppendNull()
		return nil
	}
	if math.IsInf(x, 0) {
		return errFloatOverflow()
	}
	pushFloat(dst, x)
	return nil
}
