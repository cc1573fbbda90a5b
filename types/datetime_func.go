package types

import (
	"math"
	"math/big"
	"strings"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// DateField is a field of date_trunc and extract.
type DateField uint8

// The fields, in the order of their size where they have one.
const (
	FieldInvalid DateField = iota
	FieldMicroseconds
	FieldMilliseconds
	FieldSecond
	FieldMinute
	FieldHour
	FieldDay
	FieldWeek
	FieldMonth
	FieldQuarter
	FieldYear
	FieldDecade
	FieldCentury
	FieldMillennium
	FieldEpoch
	FieldDOW
	FieldISODOW
	FieldDOY
	FieldISOYear
	FieldJulian
	FieldTimezone
	FieldTimezoneHour
	FieldTimezoneMinute
)

// dateFieldWords are the spellings beside those of intervalUnits.
var dateFieldWords = map[string]DateField{
	"epoch": FieldEpoch, "dow": FieldDOW, "isodow": FieldISODOW, "doy": FieldDOY, "isoyear": FieldISOYear, "julian": FieldJulian, "jd": FieldJulian, "j": FieldJulian,
	"timezone": FieldTimezone, "timezone_h": FieldTimezoneHour, "timezone_m": FieldTimezoneMinute,
}

var unitFields = map[int]DateField{
	unitMicrosecond: FieldMicroseconds, unitMillisecond: FieldMilliseconds, unitSecond: FieldSecond, unitMinute: FieldMinute, unitHour: FieldHour,
	unitDay: FieldDay, unitWeek: FieldWeek, unitMonth: FieldMonth, unitQuarter: FieldQuarter, unitYear: FieldYear, unitDecade: FieldDecade,
	unitCentury: FieldCentury, unitMillennium: FieldMillennium,
}

// ParseDateField returns the field of that name in any case, FieldInvalid when there is none.
func ParseDateField(name string) DateField {
	w := cutToken(strings.ToLower(name))
	if f, ok := dateFieldWords[w]; ok {
		return f
	}
	if t := intervalUnits[w]; t.kind == tkUnits {
		return unitFields[t.val]
	}
	return FieldInvalid
}

// ErrDateField is PostgreSQL's error for a field that a type does not have: 22023 for a word that is no field, 0A000 for one that does
// not apply.
func ErrDateField(name string, t Type) error {
	if ParseDateField(name) == FieldInvalid {
		return pgerr.Newf(pgerr.InvalidParameterValue, "unit \"%s\" not recognized for type %s", strings.ToLower(name), t)
	}
	return pgerr.Newf(pgerr.FeatureNotSupported, "unit \"%s\" not supported for type %s", strings.ToLower(name), t)
}

// ErrTruncField is PostgreSQL's error for a field that date_trunc does not have: there, fields known to extract alone are not recognized.
func ErrTruncField(name string, t Type) error {
	if f := ParseDateField(name); f >= FieldEpoch && f < FieldTimezone {
		return pgerr.Newf(pgerr.InvalidParameterValue, "unit \"%s\" not recognized for type %s", strings.ToLower(name), t)
	}
	return ErrDateField(name, t)
}

// isoWeekMonday returns the Monday (days since 2000-01-01) of the week that holds days.
func isoWeekMonday(days int64) int64 {
	// 2000-01-03 was a Monday.
	return floorDiv64(days-2, 7)*7 + 2
}

// isoYearWeek returns the ISO 8601 year and week of a date.
func isoYearWeek(days int64) (year, week int) {
	thursday := isoWeekMonday(days) + 3
	year, _, _ = CivilFromDays(thursday)
	return year, int(thursday-DaysFromCivil(year, 1, 1))/7 + 1
}

// truncUnit returns the fixed length of a field in microseconds, 0 when it has none.
func truncUnit(f DateField) int64 {
	switch f {
	case FieldMicroseconds:
		return 1
	case FieldMilliseconds:
		return 1000
	case FieldSecond:
		return microsPerSecond
	case FieldMinute:
		return microsPerMinute
	case FieldHour:
		return microsPerHour
	case FieldDay:
		return microsPerDay
	}
	return 0
}

// truncYear returns the first year of the decade, century or millennium of y (year 0 is 1 BC).
func truncYear(f DateField, y int) int {
	switch f {
	case FieldDecade:
		return floorDiv(y, 10) * 10
	case FieldCentury:
		return floorDiv(y-1, 100)*100 + 1
	case FieldMillennium:
		return floorDiv(y-1, 1000)*1000 + 1
	}
	return y
}

// truncDays returns the first day of the week or larger field that holds a date.
func truncDays(f DateField, days int64) int64 {
	if f == FieldWeek {
		return isoWeekMonday(days)
	}
	y, m, _ := CivilFromDays(days)
	switch f {
	case FieldMonth:
		return DaysFromCivil(y, m, 1)
	case FieldQuarter:
		return DaysFromCivil(y, (m-1)/3*3+1, 1)
	case FieldYear, FieldDecade, FieldCentury, FieldMillennium:
		return DaysFromCivil(truncYear(f, y), 1, 1)
	}
	return days
}

// DateTrunc truncates a timestamp to a field; ok is false for a field that date_trunc does not have.
func DateTrunc(f DateField, ts int64) (r int64, ok bool) {
	if IsTimestampInfinite(ts) {
		return ts, true
	}
	if f == FieldInvalid || f > FieldMillennium {
		return 0, false
	}
	if u := truncUnit(f); u != 0 {
		return floorDiv64(ts, u) * u, true
	}
	return truncDays(f, floorDiv64(ts, microsPerDay)) * microsPerDay, true
}

// DateTruncTZ truncates a timestamptz to a field of local time in loc. Fields below a day keep the instant's own offset, so that the two hours of a
// night when clocks go back stay apart.
func DateTruncTZ(f DateField, ts int64, loc *time.Location) (r int64, ok bool, err error) {
	if IsTimestampInfinite(ts) {
		return ts, true, nil
	}
	if f == FieldInvalid || f > FieldMillennium {
		return 0, false, nil
	}
	off, _ := zoneOffset(ts, loc)
	local := ts + int64(off)*microsPerSecond
	t, _ := DateTrunc(f, local)
	if f >= FieldDay {
		r, err = LocalToTimestamptz(t, loc)
		return r, true, err
	}
	return t - int64(off)*microsPerSecond, true, nil
}

// DateTruncInterval truncates an interval; ok is false for a field that intervals do not have (week included).
func DateTruncInterval(f DateField, iv Interval) (r Interval, ok bool) {
	trunc := func(months int32) Interval { return Interval{Months: iv.Months / months * months} }
	switch f {
	case FieldMillennium:
		return trunc(12000), true
	case FieldCentury:
		return trunc(1200), true
	case FieldDecade:
		return trunc(120), true
	case FieldYear:
		return trunc(12), true
	case FieldQuarter:
		return trunc(3), true
	case FieldMonth:
		return trunc(1), true
	case FieldDay:
		iv.Micros = 0
		return iv, true
	}
	u := truncUnit(f)
	if u == 0 {
		return iv, false
	}
	iv.Micros = iv.Micros / u * u
	return iv, true
}

// DateBin returns the start of the bin of width stride, counted from origin, that holds ts: also before origin and before 1970.
func DateBin(stride Interval, ts, origin int64) (int64, error) {
	if IsTimestampInfinite(ts) {
		return ts, nil
	}
	if stride.Months != 0 {
		return 0, pgerr.Newf(pgerr.FeatureNotSupported, "timestamps cannot be binned into intervals containing months or years")
	}
	if IsTimestampInfinite(origin) {
		return 0, pgerr.Newf(pgerr.DatetimeFieldOverflow, "origin out of range")
	}
	width := int64(stride.Days)*microsPerDay + stride.Micros
	if width <= 0 {
		return 0, pgerr.Newf(pgerr.DatetimeFieldOverflow, "stride must be greater than zero")
	}
	d := ts - origin
	if (ts < origin) != (d < 0) {
		return 0, errTimestampRange()
	}
	return origin + floorDiv64(d, width)*width, nil
}

// WindowStart returns the start of the window of the given width, in microseconds, that holds ts; windows are aligned to 1970-01-01 plus offset.
// Width must be positive.
func WindowStart(ts, width, offset int64) int64 {
	base := -pgEpochUnix*microsPerSecond + offset
	return base + floorDiv64(ts-base, width)*width
}

func numInt(v int64) Numeric { return Numeric{Coef: v} }

// numScaled returns v × 10^-scale with that scale.
func numScaled(v int64, scale int16) Numeric { return Numeric{Coef: v, Scale: scale} }

// timePart returns the sub-day fields of us microseconds since midnight (or of an interval's time).
func timePart(f DateField, us int64) (Numeric, bool) {
	switch f {
	case FieldMicroseconds:
		return numInt(us % microsPerMinute), true
	case FieldMilliseconds:
		return numScaled(us%microsPerMinute, 3), true
	case FieldSecond:
		return numScaled(us%microsPerMinute, 6), true
	case FieldMinute:
		return numInt(us / microsPerMinute % 60), true
	case FieldHour:
		return numInt(us / microsPerHour), true
	}
	return Numeric{}, false
}

// datePartDays returns the fields of a date.
func datePartDays(f DateField, days int64) (Numeric, bool) {
	y, m, d := CivilFromDays(days)
	switch f {
	case FieldDay:
		return numInt(int64(d)), true
	case FieldMonth:
		return numInt(int64(m)), true
	case FieldQuarter:
		return numInt(int64(m-1)/3 + 1), true
	case FieldWeek:
		_, w := isoYearWeek(days)
		return numInt(int64(w)), true
	case FieldYear:
		return numInt(int64(bcYear(y))), true
	case FieldISOYear:
		iy, _ := isoYearWeek(days)
		return numInt(int64(bcYear(iy))), true
	case FieldDecade:
		return numInt(int64(floorDiv(y, 10))), true
	case FieldCentury:
		if y > 0 {
			return numInt(int64((y + 99) / 100)), true
		}
		return numInt(-int64((99 - (y - 1)) / 100)), true
	case FieldMillennium:
		if y > 0 {
			return numInt(int64((y + 999) / 1000)), true
		}
		return numInt(-int64((999 - (y - 1)) / 1000)), true
	case FieldDOW:
		return numInt((days - isoWeekMonday(days) + 1) % 7), true
	case FieldISODOW:
		return numInt(days - isoWeekMonday(days) + 1), true
	case FieldDOY:
		return numInt(days - DaysFromCivil(y, 1, 1) + 1), true
	case FieldJulian:
		return numInt(days + pgEpochJulian), true
	}
	return Numeric{}, false
}

// bcYear turns the internal year, where 0 is 1 BC, into PostgreSQL's, which has no year 0.
func bcYear(y int) int {
	if y <= 0 {
		return y - 1
	}
	return y
}

// infinitePart returns what a field of an infinite value is: infinity for fields that grow without bound, NULL for the others.
func infinitePart(f DateField, positive bool) (n Numeric, null, ok bool) {
	switch f {
	case FieldYear, FieldDecade, FieldCentury, FieldMillennium, FieldJulian, FieldISOYear, FieldEpoch:
		if positive {
			return Numeric{Form: PosInf}, false, true
		}
		return Numeric{Form: NegInf}, false, true
	case FieldInvalid:
		return n, false, false
	}
	return n, true, true
}

// DatePart extracts a field of a value of type date, time, timetz, timestamp, timestamptz or interval as extract does: a numeric, or NULL for most fields of an
// infinity. loc is the session's zone, used for timestamptz. ok is false when the type has no such field (see ErrDateField).
func DatePart(f DateField, d Datum, loc *time.Location) (n Numeric, null, ok bool) {
	switch d.Type.OID {
	case OIDDate:
		return datePartDate(f, d.Int)
	case OIDTime:
		if f == FieldEpoch {
			return numScaled(d.Int, 6), false, true
		}
		n, ok = timePart(f, d.Int)
		return n, false, ok
	case OIDTimetz:
		us, west := splitTimetz(d.Str)
		if n, ok = zonePart(f, -int64(west)); ok {
			return n, false, true
		}
		if f == FieldEpoch {
			return numScaled(us+int64(west)*microsPerSecond, 6), false, true
		}
		n, ok = timePart(f, us)
		return n, false, ok
	case OIDTimestamp:
		return datePartTimestamp(f, d.Int, d.Int)
	case OIDTimestamptz:
		if IsTimestampInfinite(d.Int) {
			return infinitePart(f, d.Int > 0)
		}
		off, _ := zoneOffset(d.Int, loc)
		if n, ok = zonePart(f, int64(off)); ok {
			return n, false, true
		}
		return datePartTimestamp(f, d.Int+int64(off)*microsPerSecond, d.Int)
	case OIDInterval:
		n, ok = datePartInterval(f, d.Ivl)
		return n, false, ok
	}
	return Numeric{}, false, false
}

func zonePart(f DateField, east int64) (Numeric, bool) {
	switch f {
	case FieldTimezone:
		return numInt(east), true
	case FieldTimezoneHour:
		return numInt(east / 3600), true
	case FieldTimezoneMinute:
		return numInt(east % 3600 / 60), true
	}
	return Numeric{}, false
}

func datePartDate(f DateField, days int64) (n Numeric, null, ok bool) {
	if f < FieldDay || f > FieldJulian {
		return n, false, false
	}
	if IsDateInfinite(days) {
		return infinitePart(f, days > 0)
	}
	if f == FieldEpoch {
		return numInt((days + pgEpochUnixDays) * secsPerDay), false, true
	}
	n, ok = datePartDays(f, days)
	return n, false, ok
}

// datePartTimestamp takes local time for the fields and the instant for the epoch.
func datePartTimestamp(f DateField, local, instant int64) (n Numeric, null, ok bool) {
	if IsTimestampInfinite(local) {
		return infinitePart(f, local > 0)
	}
	if f == FieldInvalid || f >= FieldTimezone {
		return n, false, false
	}
	days := floorDiv64(local, microsPerDay)
	us := local - days*microsPerDay
	switch f {
	case FieldEpoch:
		if us, fits := addInt64(instant, pgEpochUnix*microsPerSecond); fits {
			return numScaled(us, 6), false, true
		}
		x := new(big.Int).Add(big.NewInt(instant), big.NewInt(pgEpochUnix*microsPerSecond))
		return Numeric{Big: x, Scale: 6}, false, true
	case FieldJulian:
		j := numInt(days + pgEpochJulian)
		frac, err := NumDiv(numInt(us), numInt(microsPerDay))
		if err != nil {
			return n, false, false
		}
		if n, err = NumAdd(j, frac); err != nil {
			return n, false, false
		}
		return n, false, true
	}
	if n, ok = timePart(f, us); ok {
		return n, false, true
	}
	n, ok = datePartDays(f, days)
	return n, false, ok
}

func datePartInterval(f DateField, iv Interval) (Numeric, bool) {
	y, m := int64(iv.Months/12), int64(iv.Months%12)
	switch f {
	case FieldDay:
		return numInt(int64(iv.Days)), true
	case FieldMonth:
		return numInt(m), true
	case FieldQuarter:
		return numInt(m/3 + 1), true
	case FieldYear:
		return numInt(y), true
	case FieldDecade:
		return numInt(y / 10), true
	case FieldCentury:
		return numInt(y / 100), true
	case FieldMillennium:
		return numInt(y / 1000), true
	case FieldEpoch:
		// A year counts 365.25 days here, a month 30.
		secs := y*36525*(secsPerDay/100) + (m*daysPerMonth+int64(iv.Days))*secsPerDay
		us := new(big.Int).Mul(big.NewInt(secs), big.NewInt(microsPerSecond))
		us.Add(us, big.NewInt(iv.Micros))
		n, err := makeNumeric(us, 6)
		return n, err == nil
	}
	return timePart(f, iv.Micros)
}

// DatePartFloat is DatePart as date_part returns it: float8.
func DatePartFloat(f DateField, d Datum, loc *time.Location) (v float64, null, ok bool) {
	n, null, ok := DatePart(f, d, loc)
	if null || !ok {
		return 0, null, ok
	}
	v, err := n.ToFloat64()
	if err != nil {
		v = math.Inf(n.Sign())
	}
	return v, false, true
}
