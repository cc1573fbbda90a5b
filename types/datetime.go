package types

import (
	"encoding/binary"
	"math"
	"math/bits"
	"time"
	_ "time/tzdata" // the binary brings its own time zones

	"github.com/streamdb/streamdb/internal/pgerr"
)

// Units of time in microseconds.
const (
	microsPerSecond int64 = 1_000_000
	microsPerMinute       = 60 * microsPerSecond
	microsPerHour         = 60 * microsPerMinute
	microsPerDay          = 24 * microsPerHour
	secsPerDay      int64 = 86400
)

// DateInfinity and its siblings are the physical values of the infinities.
const (
	DateInfinity         = math.MaxInt32
	DateNegInfinity      = math.MinInt32
	TimestampInfinity    = math.MaxInt64
	TimestampNegInfinity = math.MinInt64
)

// PostgreSQL's ranges: julian day 0 to the end of 5874897 AD for dates, to the end of 294276 AD for timestamps.
const (
	pgEpochUnixDays = 10957 // 2000-01-01
	pgEpochJulian   = 2451545
	pgEpochUnix     = pgEpochUnixDays * secsPerDay

	minDate              = -pgEpochJulian
	endDate              = 2147483494 - pgEpochJulian
	minTimestamp   int64 = -211813488000000000
	endTimestamp   int64 = 9223371331200000000
	endDateForTs         = 109203528 - pgEpochJulian
	maxTimezoneSec       = 15*3600 + 59*60 + 59
)

// IsDateInfinite reports whether a date's physical value is ±infinity.
func IsDateInfinite(d int64) bool { return d == DateInfinity || d == DateNegInfinity }

// IsTimestampInfinite reports whether a timestamp's physical value is ±infinity.
func IsTimestampInfinite(ts int64) bool {
	return ts == TimestampInfinity || ts == TimestampNegInfinity
}

// Civil is a point of local time, taken apart. Year 0 is 1 BC.
type Civil struct {
	Year, Month, Day     int
	Hour, Minute, Second int
	Micros               int
}

// DaysFromCivil returns the days since 2000-01-01 of a proleptic Gregorian date. Month and day may exceed their ranges.
func DaysFromCivil(year, month, day int) int64 {
	month--
	year += floorDiv(month, 12)
	month = month - 12*floorDiv(month, 12) + 1
	y := int64(year)
	if month <= 2 {
		y--
	}
	era := floorDiv64(y, 400)
	yoe := y - era*400
	mp := int64(month+9) % 12
	doy := (153*mp + 2) / 5
	doe := yoe*365 + yoe/4 - yoe/100 + doy
	return era*146097 + doe - 719468 - pgEpochUnixDays + int64(day) - 1
}

// CivilFromDays takes days since 2000-01-01 apart.
func CivilFromDays(days int64) (year, month, day int) {
	z := days + pgEpochUnixDays + 719468
	era := floorDiv64(z, 146097)
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	y := yoe + era*400
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day = int(doy - (153*mp+2)/5 + 1)
	month = int(mp + 3)
	if month > 12 {
		month -= 12
		y++
	}
	return int(y), month, day
}

// CivilFromTimestamp takes a finite timestamp apart.
func CivilFromTimestamp(ts int64) Civil {
	days := floorDiv64(ts, microsPerDay)
	c := civilTime(ts - days*microsPerDay)
	c.Year, c.Month, c.Day = CivilFromDays(days)
	return c
}

func civilTime(us int64) Civil {
	return Civil{Hour: int(us / microsPerHour), Minute: int(us / microsPerMinute % 60), Second: int(us / microsPerSecond % 60), Micros: int(us % microsPerSecond)}
}

// TimeOfDay returns c's microseconds since midnight.
func (c Civil) TimeOfDay() int64 {
	return int64(c.Hour)*microsPerHour + int64(c.Minute)*microsPerMinute + int64(c.Second)*microsPerSecond + int64(c.Micros)
}

// Timestamp returns c as a timestamp; 22008 when out of range.
func (c Civil) Timestamp() (int64, error) {
	return makeTimestamp(DaysFromCivil(c.Year, c.Month, c.Day), c.TimeOfDay())
}

func makeTimestamp(days, timeOfDay int64) (int64, error) {
	hi, lo := bits.Mul64(uint64(max(days, -days)), uint64(microsPerDay))
	if hi != 0 || lo > math.MaxInt64 {
		return 0, errTimestampRange()
	}
	ts := days*microsPerDay + timeOfDay
	if timeOfDay > 0 && ts < days*microsPerDay || !validTimestamp(ts) {
		return 0, errTimestampRange()
	}
	return ts, nil
}

func validTimestamp(ts int64) bool { return ts >= minTimestamp && ts < endTimestamp }

// TimestampFromUnixMicros returns a timestamp that is given in microseconds since 1970-01-01, DateFromUnixDays a date that is given in days since then. Errors are out of range (22008).
func TimestampFromUnixMicros(us int64) (int64, error) {
	if ts := us - pgEpochUnix*microsPerSecond; ts <= us && validTimestamp(ts) {
		return ts, nil
	}
	return 0, errTimestampRange()
}

// DateFromUnixDays is explained at TimestampFromUnixMicros.
func DateFromUnixDays(days int64) (int64, error) {
	if d := days - pgEpochUnixDays; d <= days && d >= minDate && d < endDate {
		return d, nil
	}
	return 0, errDateRange()
}

func errTimestampRange() error {
	return pgerr.Newf(pgerr.DatetimeFieldOverflow, "timestamp out of range")
}

func errDateRange() error { return pgerr.Newf(pgerr.DatetimeFieldOverflow, "date out of range") }

func errIntervalRange() error {
	return pgerr.Newf(pgerr.DatetimeFieldOverflow, "interval out of range")
}

func floorDiv64(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

// daysInMonth returns the length of a month of the proleptic Gregorian calendar.
func daysInMonth(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// TimestampFromTime returns t in microseconds since 2000-01-01 UTC, rounded to nearest.
func TimestampFromTime(t time.Time) int64 {
	return (t.Unix()-pgEpochUnix)*microsPerSecond + (int64(t.Nanosecond())+500)/1000
}

// TimeFromTimestamp returns a finite timestamptz as a time in UTC.
func TimeFromTimestamp(ts int64) time.Time {
	s := floorDiv64(ts, microsPerSecond)
	return time.Unix(s+pgEpochUnix, (ts-s*microsPerSecond)*1000).UTC()
}

// zoneOffset returns loc's offset east of UTC in seconds, and its abbreviation, at a timestamptz.
func zoneOffset(ts int64, loc *time.Location) (offset int, abbrev string) {
	if loc == nil || loc == time.UTC {
		return 0, "UTC"
	}
	abbrev, offset = time.Unix(floorDiv64(ts, microsPerSecond)+pgEpochUnix, 0).In(loc).Zone()
	return offset, abbrev
}

// ZoneOffset returns loc's offset east of UTC in seconds at the timestamptz ts, and its abbreviation.
func ZoneOffset(ts int64, loc *time.Location) (seconds int, abbrev string) {
	return zoneOffset(ts, loc)
}

// TimestamptzToLocal returns the local time of ts in loc (timestamptz AT TIME ZONE).
func TimestamptzToLocal(ts int64, loc *time.Location) (int64, error) {
	if IsTimestampInfinite(ts) {
		return ts, nil
	}
	off, _ := zoneOffset(ts, loc)
	r := ts + int64(off)*microsPerSecond
	if !validTimestamp(r) {
		return 0, errTimestampRange()
	}
	return r, nil
}

// LocalToTimestamptz returns the instant of local time ts in loc (timestamp AT TIME ZONE). A time skipped by a forward jump is read with
// the offset before it, one that occurs twice with the standard (later) offset, as PostgreSQL does.
func LocalToTimestamptz(ts int64, loc *time.Location) (int64, error) {
	if IsTimestampInfinite(ts) {
		return ts, nil
	}
	r := ts - int64(localOffset(ts, loc))*microsPerSecond
	if !validTimestamp(r) {
		return 0, errTimestampRange()
	}
	return r, nil
}

// localOffset is PostgreSQL's DetermineTimeZoneOffset, in seconds east of UTC.
func localOffset(local int64, loc *time.Location) int {
	if loc == nil || loc == time.UTC {
		return 0
	}
	secs := floorDiv64(local, microsPerSecond) + pgEpochUnix
	// Any transition that matters lies within a day of the local time read as UTC.
	prev := secs - secsPerDay
	t := time.Unix(prev, 0).In(loc)
	_, before := t.Zone()
	_, end := t.ZoneBounds()
	for !end.IsZero() && end.Unix() <= secs+secsPerDay {
		_, after := end.Zone()
		boundary := end.Unix()
		beforeTime, afterTime := secs-int64(before), secs-int64(after)
		switch {
		case beforeTime < boundary && afterTime < boundary:
			return before
		case beforeTime >= boundary && afterTime >= boundary:
			before = after
			// A zone's rule can report a bound that does not move on; the loop must.
			_, next := end.ZoneBounds()
			if !next.After(end) {
				return before
			}
			end = next
			continue
		case beforeTime > afterTime:
			// Skipped by a forward jump: the offset before it.
			return before
		default:
			// Occurs twice: the later instant.
			return after
		}
	}
	return before
}

// DateToTimestamp returns midnight of a date; 22008 when no timestamp reaches it.
func DateToTimestamp(days int64) (int64, error) {
	switch {
	case days == DateInfinity:
		return TimestampInfinity, nil
	case days == DateNegInfinity:
		return TimestampNegInfinity, nil
	case days >= endDateForTs:
		return 0, pgerr.Newf(pgerr.DatetimeFieldOverflow, "date out of range for timestamp")
	}
	return days * microsPerDay, nil
}

// TimestampToDate returns the date of a local timestamp.
func TimestampToDate(ts int64) int64 {
	switch ts {
	case TimestampInfinity:
		return DateInfinity
	case TimestampNegInfinity:
		return DateNegInfinity
	}
	return floorDiv64(ts, microsPerDay)
}

// DateAddDays returns a date days later.
func DateAddDays(date, days int64) (int64, error) {
	if IsDateInfinite(date) {
		return date, nil
	}
	r := date + days
	if r < minDate || r >= endDate {
		return 0, errDateRange()
	}
	return r, nil
}

// addMonths moves a civil date by months, to the last day where the month is shorter.
func addMonths(days int64, months int32) (int64, error) {
	y, m, d := CivilFromDays(days)
	t := m - 1 + int(months)
	y += floorDiv(t, 12)
	m = t - 12*floorDiv(t, 12) + 1
	d = min(d, daysInMonth(y, m))
	r := DaysFromCivil(y, m, d)
	if r < minDate || r >= endDateForTs {
		return 0, errTimestampRange()
	}
	return r, nil
}

// TimestampAddInterval returns ts + iv: months, then days, then the time. With loc the value is a timestamptz, whose months and days are
// counted in local time; nil means timestamp.
func TimestampAddInterval(ts int64, iv Interval, loc *time.Location) (int64, error) {
	if IsTimestampInfinite(ts) {
		return ts, nil
	}
	if iv.Months != 0 || iv.Days != 0 {
		local, err := ts, error(nil)
		if loc != nil {
			if local, err = TimestamptzToLocal(ts, loc); err != nil {
				return 0, err
			}
		}
		days := floorDiv64(local, microsPerDay)
		tod := local - days*microsPerDay
		if iv.Months != 0 {
			if days, err = addMonths(days, iv.Months); err != nil {
				return 0, err
			}
		}
		days += int64(iv.Days)
		if local, err = makeTimestamp(days, tod); err != nil {
			return 0, err
		}
		if ts = local; loc != nil {
			if ts, err = LocalToTimestamptz(local, loc); err != nil {
				return 0, err
			}
		}
	}
	r := ts + iv.Micros
	if (r < ts) != (iv.Micros < 0) || !validTimestamp(r) {
		return 0, errTimestampRange()
	}
	return r, nil
}

// TimestampSubInterval returns ts - iv.
func TimestampSubInterval(ts int64, iv Interval, loc *time.Location) (int64, error) {
	neg, err := IntervalNeg(iv)
	if err != nil {
		return 0, err
	}
	return TimestampAddInterval(ts, neg, loc)
}

// TimestampSub returns a - b as days and a time (timestamp minus timestamp).
func TimestampSub(a, b int64) (Interval, error) {
	if IsTimestampInfinite(a) || IsTimestampInfinite(b) {
		return Interval{}, pgerr.Newf(pgerr.DatetimeFieldOverflow, "cannot subtract infinite timestamps")
	}
	d := a - b
	if (a < b) != (d < 0) {
		return Interval{}, errIntervalRange()
	}
	return IntervalJustifyHours(Interval{Micros: d})
}

// Age returns the symbolic difference of two local timestamps in years, months, days and a time.
func Age(a, b int64) (Interval, error) {
	if IsTimestampInfinite(a) || IsTimestampInfinite(b) {
		return Interval{}, pgerr.Newf(pgerr.DatetimeFieldOverflow, "timestamp out of range")
	}
	x, y := CivilFromTimestamp(a), CivilFromTimestamp(b)
	sign := 1
	if a < b {
		x, y, sign = y, x, -1
	}
	us := x.TimeOfDay() - y.TimeOfDay()
	days, months, years := x.Day-y.Day, x.Month-y.Month, x.Year-y.Year
	if us < 0 {
		us += microsPerDay
		days--
	}
	for days < 0 {
		// The month that is borrowed is the earlier date's.
		days += daysInMonth(y.Year, y.Month)
		months--
	}
	for months < 0 {
		months += 12
		years--
	}
	iv := Interval{Months: int32(sign * (years*12 + months)), Days: int32(sign * days), Micros: int64(sign) * us}
	return iv, nil
}

// RoundMicros rounds a time value to p fraction digits, half away from zero.
func RoundMicros(us int64, p int) int64 {
	if p < 0 || p >= maxSecondPrecision {
		return us
	}
	unit := int64Pow10[maxSecondPrecision-p]
	if us >= 0 {
		return (us + unit/2) / unit * unit
	}
	return -((-us + unit/2) / unit * unit)
}

// MakeTimetz returns the storage form of a timetz: local microseconds of the day and the zone in seconds west of UTC.
func MakeTimetz(us int64, zoneWest int32) string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 12), uint64(us))
	return string(binary.BigEndian.AppendUint32(b, uint32(zoneWest)))
}

// SplitTimetz takes the storage form of a timetz apart.
func SplitTimetz(s string) (us int64, zoneWest int32) { return splitTimetz(s) }

func splitTimetz(s string) (us int64, zoneWest int32) {
	if len(s) != 12 {
		return 0, 0
	}
	b := []byte(s)
	return int64(binary.BigEndian.Uint64(b)), int32(binary.BigEndian.Uint32(b[8:]))
}
