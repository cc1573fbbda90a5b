package types

import (
	"cmp"
	"math"
	"math/bits"

	"github.com/streamdb/streamdb/internal/pgerr"
)

const (
	daysPerMonth  = 30
	monthsPerYear = 12
)

// span returns the interval in microseconds with 30-day months and 24-hour days, in 128 bits: what SQL compares.
func (iv Interval) span() (hi int64, lo uint64) {
	days := int64(iv.Months)*daysPerMonth + int64(iv.Days)
	h, l := bits.Mul64(uint64(max(days, -days)), uint64(microsPerDay))
	if days < 0 {
		var c uint64
		l, c = bits.Sub64(0, l, 0)
		h, _ = bits.Sub64(0, h, c)
	}
	var c uint64
	l, c = bits.Add64(l, uint64(iv.Micros), 0)
	h, _ = bits.Add64(h, uint64(iv.Micros>>63), c)
	return int64(h), l
}

// CompareInterval orders intervals with 30-day months and 24-hour days.
func CompareInterval(a, b Interval) int {
	ah, al := a.span()
	bh, bl := b.span()
	if c := cmp.Compare(ah, bh); c != 0 {
		return c
	}
	return cmp.Compare(al, bl)
}

func addInt32(a, b int32) (int32, bool) {
	s := int64(a) + int64(b)
	return int32(s), s == int64(int32(s))
}

func addInt64(a, b int64) (int64, bool) {
	s := a + b
	return s, (s > a) == (b > 0)
}

// IntervalAdd returns a + b by field.
func IntervalAdd(a, b Interval) (Interval, error) {
	m, ok1 := addInt32(a.Months, b.Months)
	d, ok2 := addInt32(a.Days, b.Days)
	us, ok3 := addInt64(a.Micros, b.Micros)
	if !ok1 || !ok2 || !ok3 {
		return Interval{}, errIntervalRange()
	}
	return Interval{m, d, us}, nil
}

// IntervalNeg returns -iv.
func IntervalNeg(iv Interval) (Interval, error) {
	if iv.Months == math.MinInt32 || iv.Days == math.MinInt32 || iv.Micros == math.MinInt64 {
		return Interval{}, errIntervalRange()
	}
	return Interval{-iv.Months, -iv.Days, -iv.Micros}, nil
}

// IntervalSub returns a - b by field.
func IntervalSub(a, b Interval) (Interval, error) {
	m, d := int64(a.Months)-int64(b.Months), int64(a.Days)-int64(b.Days)
	us := a.Micros - b.Micros
	if m != int64(int32(m)) || d != int64(int32(d)) || (us < a.Micros) != (b.Micros > 0) {
		return Interval{}, errIntervalRange()
	}
	return Interval{int32(m), int32(d), us}, nil
}

// roundTS is PostgreSQL's TSROUND.
func roundTS(f float64) float64 { return math.RoundToEven(f*1e6) / 1e6 }

// IntervalMul returns iv × f; fractions of months go to days, those of days to the time.
func IntervalMul(iv Interval, f float64) (Interval, error) {
	return intervalScale(iv, func(x float64) float64 { return x * f }, f)
}

// IntervalDiv returns iv / f.
func IntervalDiv(iv Interval, f float64) (Interval, error) {
	if f == 0 {
		return Interval{}, errDivisionByZero()
	}
	return intervalScale(iv, func(x float64) float64 { return x / f }, f)
}

func intervalScale(iv Interval, op func(float64) float64, f float64) (Interval, error) {
	months, days := op(float64(iv.Months)), op(float64(iv.Days))
	if f != f || !fitsInt32(months) || !fitsInt32(days) {
		return Interval{}, errIntervalRange()
	}
	r := Interval{Months: int32(months), Days: int32(days)}
	// The fraction of a month is worth 30 days; what is left of a day after both is worth 24 hours.
	monthDays := roundTS((months - float64(r.Months)) * daysPerMonth)
	secs := roundTS((days - float64(r.Days) + monthDays - math.Trunc(monthDays)) * float64(secsPerDay))
	if math.Abs(secs) >= float64(secsPerDay) {
		carry := int32(secs / float64(secsPerDay))
		var ok bool
		if r.Days, ok = addInt32(r.Days, carry); !ok {
			return Interval{}, errIntervalRange()
		}
		secs -= float64(carry) * float64(secsPerDay)
	}
	var ok bool
	if r.Days, ok = addInt32(r.Days, int32(monthDays)); !ok {
		return Interval{}, errIntervalRange()
	}
	us := math.RoundToEven(op(float64(iv.Micros)) + secs*1e6)
	if us != us || us < math.MinInt64 || us >= -math.MinInt64 {
		return Interval{}, errIntervalRange()
	}
	r.Micros = int64(us)
	return r, nil
}

func fitsInt32(f float64) bool { return f >= math.MinInt32 && f < -math.MinInt32 }

// IntervalJustifyHours turns 24-hour periods into days.
func IntervalJustifyHours(iv Interval) (Interval, error) {
	whole := iv.Micros / microsPerDay
	iv.Micros -= whole * microsPerDay
	d, ok := addInt32(iv.Days, int32(whole))
	if !ok || whole != int64(int32(whole)) {
		return Interval{}, errIntervalRange()
	}
	iv.Days = d
	switch {
	case iv.Days > 0 && iv.Micros < 0:
		iv.Micros += microsPerDay
		iv.Days--
	case iv.Days < 0 && iv.Micros > 0:
		iv.Micros -= microsPerDay
		iv.Days++
	}
	return iv, nil
}

// IntervalJustifyDays turns 30-day periods into months.
func IntervalJustifyDays(iv Interval) (Interval, error) {
	whole := iv.Days / daysPerMonth
	iv.Days -= whole * daysPerMonth
	m, ok := addInt32(iv.Months, whole)
	if !ok {
		return Interval{}, errIntervalRange()
	}
	iv.Months = m
	switch {
	case iv.Months > 0 && iv.Days < 0:
		iv.Days += daysPerMonth
		iv.Months--
	case iv.Months < 0 && iv.Days > 0:
		iv.Days -= daysPerMonth
		iv.Months++
	}
	return iv, nil
}

// IntervalJustify turns 24-hour periods into days and 30-day periods into months, and gives all fields one sign (justify_interval).
func IntervalJustify(iv Interval) (Interval, error) {
	whole := iv.Micros / microsPerDay
	iv.Micros -= whole * microsPerDay
	days := int64(iv.Days) + whole
	wm := days / daysPerMonth
	days -= wm * daysPerMonth
	months := int64(iv.Months) + wm
	switch {
	case months > 0 && (days < 0 || days == 0 && iv.Micros < 0):
		days += daysPerMonth
		months--
	case months < 0 && (days > 0 || days == 0 && iv.Micros > 0):
		days -= daysPerMonth
		months++
	}
	switch {
	case days > 0 && iv.Micros < 0:
		iv.Micros += microsPerDay
		days--
	case days < 0 && iv.Micros > 0:
		iv.Micros -= microsPerDay
		days++
	}
	if months != int64(int32(months)) || days != int64(int32(days)) {
		return Interval{}, errIntervalRange()
	}
	iv.Months, iv.Days = int32(months), int32(days)
	return iv, nil
}

// applyIntervalTypmod cuts fields finer than the modifier's range and rounds seconds to its precision.
func applyIntervalTypmod(iv Interval, mod int32) (Interval, error) {
	if mod < 0 {
		return iv, nil
	}
	rng, prec := mod>>16&0x7FFF, int(mod&0xFFFF)
	switch {
	case rng == intervalFullRange:
	case rng == 1<<fieldYear:
		iv = Interval{Months: iv.Months / monthsPerYear * monthsPerYear}
	case rng&(1<<fieldDay|1<<fieldHour|1<<fieldMinute|1<<fieldSecond) == 0:
		iv = Interval{Months: iv.Months}
	case rng == 1<<fieldDay:
		iv.Micros = 0
	case rng&(1<<fieldMinute|1<<fieldSecond) == 0:
		iv.Micros = iv.Micros / microsPerHour * microsPerHour
	case rng&(1<<fieldSecond) == 0:
		iv.Micros = iv.Micros / microsPerMinute * microsPerMinute
	}
	if prec != intervalFullPrecision {
		if prec < 0 || prec > maxSecondPrecision {
			return iv, pgerr.Newf(pgerr.InvalidParameterValue, "interval(%d) precision must be between 0 and %d", prec, maxSecondPrecision)
		}
		iv.Micros = RoundMicros(iv.Micros, prec)
	}
	return iv, nil
}
