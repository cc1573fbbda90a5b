package datagen

import (
	"math"
	"strconv"
	"strings"
	"unsafe"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// The kinds of columns.
const (
	kindSequence = "sequence"
	kindRandom   = "random"
)

// Defaults and limits of columns.
const (
	defaultMin     = 0
	defaultMax     = 100
	defaultLength  = 10
	maxLength      = 1 << 20 // bytes of a random text
	defaultMaxPast = "1 day"
	defaultScale   = 2 // digits after the point of a numeric without modifier
	maxScale       = 15
	microsPerDay   = 86_400_000_000
	microsPerSec   = 1_000_000
	alphabet       = "abcdefghijklmnopqrstuvwxyz0123456789"
)

const golden = 0x9e3779b97f4a7c15

func mix64(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// column generates one column. It is immutable.
type column struct {
	t        types.Type
	sequence bool
	seed     uint64
	start    int64
	min, max int64   // of integers, and of numerics as coefficients
	lo, hi   float64 // of floats
	scale    int16
	length   int
	maxPast  int64 // microseconds
	origin   int64 // event time of row 0
	rate     int64 // rows per second of event time
}

// fieldValues reads the options of one column.
type fieldValues struct {
	connector.Values
	prefix string
}

func (f *fieldValues) text(name string) (string, bool) {
	s, ok := f.Options[f.prefix+name]
	return s, ok
}

func (f *fieldValues) float(def float64, name string) float64 {
	s, ok := f.text(name)
	if !ok {
		return def
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if (err != nil || math.IsNaN(v) || math.IsInf(v, 0)) && f.Err == nil {
		f.Err = pgerr.Newf(pgerr.InvalidParameterValue, "invalid value for option \"%s%s\": \"%s\" is not a number", f.prefix, name, s)
	}
	return v
}

// lengths are numbers of rows: declared is the shortest sequence that was given an end, -1 for none; possible is the longest for which every
// sequence stays inside its type.
type lengths struct{ declared, possible int64 }

func (l *lengths) limit(rows int64, declared bool) {
	l.possible = min(l.possible, rows)
	if declared && (l.declared < 0 || rows < l.declared) {
		l.declared = rows
	}
}

// newColumns makes the generators of all columns.
func newColumns(cfg *connector.SourceConfig) (cols []column, rows lengths, err error) {
	v := connector.Values{Options: cfg.Options}
	seed, start := uint64(v.Int(0, optSeed)), v.Timestamp(defaultStart, optStart)
	rate := v.Int(defaultRate, optRate)
	if v.Err != nil {
		return nil, rows, v.Err
	}
	if rate == 0 {
		rate = unpacedRate
	}
	rows = lengths{declared: -1, possible: math.MaxInt64}
	for i, c := range cfg.Columns {
		col := column{t: c.Type, seed: mix64(seed + uint64(i+1)*golden), origin: start, rate: rate}
		f := &fieldValues{Values: connector.Values{Options: cfg.Options}, prefix: fieldPrefix + c.Name + "."}
		if s, ok := f.text("seed"); ok {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return nil, rows, pgerr.Newf(pgerr.InvalidParameterValue, "invalid value for option \"%sseed\": \"%s\" is not an integer", f.prefix, s)
			}
			col.seed = mix64(uint64(n))
		}
		kind, _ := f.text("kind")
		col.sequence = strings.EqualFold(kind, kindSequence)
		if err := col.configure(f, &rows); err != nil {
			return nil, rows, err
		}
		if f.Err != nil {
			return nil, rows, f.Err
		}
		cols = append(cols, col)
	}
	return cols, rows, nil
}

func intRange(oid types.OID) (lo, hi int64) {
	switch oid {
	case types.OIDInt2:
		return math.MinInt16, math.MaxInt16
	case types.OIDInt4:
		return math.MinInt32, math.MaxInt32
	}
	return math.MinInt64, math.MaxInt64
}

func pow10(n int16) float64 { return math.Pow10(int(n)) }

// configure reads what the column's type needs.
func (c *column) configure(f *fieldValues, rows *lengths) error {
	switch c.t.OID {
	case types.OIDInt2, types.OIDInt4, types.OIDInt8, types.OIDFloat4, types.OIDFloat8, types.OIDNumeric, types.OIDVarchar, types.OIDText:
		lo, hi := intRange(c.t.OID)
		c.start = f.Int(0, f.prefix+"start")
		_, hasEnd := f.text("end")
		end := f.Int(hi, f.prefix+"end")
		if c.sequence && (c.start < lo || c.start > hi || end > hi || end < c.start-1) {
			return pgerr.Newf(pgerr.InvalidParameterValue, "sequence %d … %d of column options \"%s*\" does not fit %s", c.start, end, f.prefix, c.t)
		}
		if c.sequence {
			n := int64(0) // end may be just before start
			if end >= c.start {
				n = int64(min(uint64(end)-uint64(c.start), math.MaxInt64-1)) + 1
			}
			rows.limit(n, hasEnd)
		}
	case types.OIDBool, types.OIDDate, types.OIDTimestamp, types.OIDTimestamptz:
	default:
		return pgerr.Newf(pgerr.FeatureNotSupported, "datagen cannot make values of type %s", c.t).
			WithHint("It makes smallint, integer, bigint, real, double precision, numeric, boolean, varchar, text, date, timestamp and timestamptz.")
	}
	switch c.t.OID {
	case types.OIDInt2, types.OIDInt4, types.OIDInt8:
		lo, hi := intRange(c.t.OID)
		c.min, c.max = f.Int(defaultMin, f.prefix+"min"), f.Int(defaultMax, f.prefix+"max")
		if c.min > c.max || c.min < lo || c.max > hi {
			return f.badRange(c.t)
		}
	case types.OIDFloat4, types.OIDFloat8:
		if c.lo, c.hi = f.float(defaultMin, "min"), f.float(defaultMax, "max"); c.lo > c.hi {
			return f.badRange(c.t)
		}
	case types.OIDNumeric:
		c.scale = defaultScale
		if c.t.Mod >= 0 {
			one, err := types.Coerce(types.Datum{Num: types.NumericFromInt64(0)}, c.t, false)
			if err != nil {
				return err
			}
			c.scale = min(one.Num.Scale, maxScale)
		}
		lo, hi := f.float(defaultMin, "min")*pow10(c.scale), f.float(defaultMax, "max")*pow10(c.scale)
		if lo > hi || math.Abs(lo) > 1<<62 || math.Abs(hi) > 1<<62 {
			return f.badRange(c.t)
		}
		c.min, c.max = int64(math.Ceil(lo)), int64(math.Floor(hi))
		for _, v := range []int64{c.min, c.max} {
			if _, err := types.Coerce(types.Datum{Num: types.Numeric{Coef: v, Scale: c.scale}}, c.t, false); err != nil {
				return f.badRange(c.t)
			}
		}
	case types.OIDVarchar, types.OIDText:
		c.length = int(f.Int(defaultLength, f.prefix+"length"))
		if c.length < 0 || c.length > maxLength {
			return pgerr.Newf(pgerr.InvalidParameterValue, "option \"%slength\" must be between 0 and %d", f.prefix, maxLength)
		}
		if _, err := types.Coerce(types.Datum{Str: strings.Repeat("x", c.length)}, c.t, false); err != nil {
			return pgerr.Newf(pgerr.InvalidParameterValue, "option \"%slength\" is more than %s holds", f.prefix, c.t)
		}
	case types.OIDDate, types.OIDTimestamp, types.OIDTimestamptz:
		s, ok := f.text("max.past")
		if !ok {
			s = defaultMaxPast
		}
		iv, err := types.ParseInterval(nil, s, -1)
		if err != nil {
			return err
		}
		c.maxPast = iv.Micros + (int64(iv.Days)+30*int64(iv.Months))*microsPerDay
		if c.maxPast < 0 {
			return pgerr.Newf(pgerr.InvalidParameterValue, "option \"%smax.past\" must not be negative", f.prefix)
		}
	}
	return nil
}

func (f *fieldValues) badRange(t types.Type) error {
	return pgerr.Newf(pgerr.InvalidParameterValue, "options \"%smin\" and \"%smax\" are no range of %s", f.prefix, f.prefix, t)
}

// fill writes the values of the rows from, from+step, … at v's rows from base to its end.
func (c *column) fill(v *types.Vector, base int, from, step int64) {
	switch c.t.OID {
	case types.OIDInt2, types.OIDInt4, types.OIDInt8:
		out := v.Int[base:]
		for i := range out {
			row := from + int64(i)*step
			if c.sequence {
				out[i] = c.start + row
			} else {
				out[i] = c.integer(row)
			}
		}
	case types.OIDFloat4, types.OIDFloat8:
		for i := range v.Float[base:] {
			row := from + int64(i)*step
			f := float64(c.start + row)
			if !c.sequence {
				f = c.lo + float64((c.hi-c.lo)*float64(float64(c.hash(row)>>11)*(1.0/(1<<53))))
			}
			if c.t.OID == types.OIDFloat4 {
				f = float64(float32(f))
			}
			v.Float[base+i] = f
		}
	case types.OIDNumeric:
		for i := range v.Num[base:] {
			row := from + int64(i)*step
			n := types.Numeric{Coef: c.start + row}
			if !c.sequence {
				n = types.Numeric{Coef: c.integer(row), Scale: c.scale}
			} else if c.t.Mod >= 0 {
				if d, err := types.Coerce(types.Datum{Num: n}, c.t, true); err == nil {
					n = d.Num
				}
			}
			v.Num[base+i] = n
		}
	case types.OIDBool:
		for i := range v.Bool[base:] {
			row := from + int64(i)*step
			v.Bool[base+i] = c.sequence && row&1 != 0 || !c.sequence && c.hash(row)&1 != 0
		}
	case types.OIDVarchar, types.OIDText:
		c.text(v.Str[base:], from, step)
	default:
		for i := range v.Int[base:] {
			row := from + int64(i)*step
			ts := c.origin + row/c.rate*microsPerSec + row%c.rate*microsPerSec/c.rate
			if !c.sequence {
				ts -= int64(c.hash(row) % uint64(c.maxPast+1))
			}
			if c.t.OID == types.OIDDate {
				ts = floorDiv(ts, microsPerDay)
			}
			v.Int[base+i] = ts
		}
	}
}

func (c *column) hash(row int64) uint64 { return mix64(uint64(row)*golden + c.seed) }

// integer returns a random integer of [min, max].
func (c *column) integer(row int64) int64 {
	span := uint64(c.max) - uint64(c.min) + 1
	h := c.hash(row)
	if span == 0 {
		return int64(h)
	}
	return c.min + int64(h%span)
}

// text writes into memory of its own, which is never reused: the strings live as long as somebody holds them.
func (c *column) text(out []string, from, step int64) {
	if c.sequence {
		buf := make([]byte, 0, len(out)*20)
		for i := range out {
			at := len(buf)
			buf = strconv.AppendInt(buf, c.start+from+int64(i)*step, 10)
			out[i] = view(buf[at:])
		}
		return
	}
	buf := make([]byte, len(out)*c.length)
	for i := range out {
		b := buf[i*c.length : (i+1)*c.length]
		h := c.hash(from + int64(i)*step)
		for j := range b {
			if j&7 == 0 {
				h = mix64(h + golden)
			}
			b[j] = alphabet[h&0xff*uint64(len(alphabet))>>8]
			h >>= 8
		}
		out[i] = view(b)
	}
}

func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
