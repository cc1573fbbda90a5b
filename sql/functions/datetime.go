package functions

import (
	"math"
	"strings"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

const (
	microsPerSecond = 1_000_000
	microsPerMinute = 60 * microsPerSecond
	microsPerHour   = 60 * microsPerMinute
)

func loc(f *expr.Frame) *time.Location {
	if l := f.Format().Location; l != nil {
		return l
	}
	return time.UTC
}

func clock() int64 { return types.TimestampFromTime(time.Now()) }

// datetimeFunctions lists operators and functions on dates and times.
func datetimeFunctions() []entry {
	ivlNeg := map1e(intervalSlot, intervalSlot, types.IntervalNeg)
	out := []entry{
		fn("date_pli(date,int4)", "date '2024-02-28'+2", map2e(intSlot, intSlot, intSlot, types.DateAddDays)),
		fn("date_mii(date,int4)", "date '2024-03-01'-1", map2e(intSlot, intSlot, intSlot, func(d, n int64) (int64, error) { return types.DateAddDays(d, -n) })),
		fn("integer_pl_date(int4,date)", "2+date '2024-02-28'", map2e(intSlot, intSlot, intSlot, func(n, d int64) (int64, error) { return types.DateAddDays(d, n) })),
		fn("date_mi(date,date)", "date '2024-03-01'-date '2024-02-01'", map2e(intSlot, intSlot, intSlot, func(a, b int64) (int64, error) {
			if types.IsDateInfinite(a) || types.IsDateInfinite(b) {
				return 0, pgerr.Newf(pgerr.DatetimeFieldOverflow, "cannot subtract infinite dates")
			}
			return a - b, nil
		})),
		fn("date_pl_interval(date,interval)", "date '2020-01-31'+interval '1 month'", map2e(intSlot, intervalSlot, intSlot, datePlus)),
		fn("interval_pl_date(interval,date)", "", map2e(intervalSlot, intSlot, intSlot, func(iv types.Interval, d int64) (int64, error) { return datePlus(d, iv) })),
		fn("date_mi_interval(date,interval)", "date '2020-03-31'-interval '1 month'", map2e(intSlot, intervalSlot, intSlot, func(d int64, iv types.Interval) (int64, error) {
			n, err := types.IntervalNeg(iv)
			if err != nil {
				return 0, err
			}
			return datePlus(d, n)
		})),
		fn("datetime_pl(date,time)", "date '2024-01-02'+time '03:04'", map2e(intSlot, intSlot, intSlot, dateTime)),
		fn("timedate_pl(time,date)", "", map2e(intSlot, intSlot, intSlot, func(t, d int64) (int64, error) { return dateTime(d, t) })),
		fn("datetimetz_pl(date,timetz)", "", map2e(intSlot, strSlot, intSlot, dateTimetz)),
		fn("timetzdate_pl(timetz,date)", "", map2e(strSlot, intSlot, intSlot, func(t string, d int64) (int64, error) { return dateTimetz(d, t) })),
		fn("timestamp_pl_interval(timestamp,interval)", "timestamp '2020-01-31 10:00'+interval '1 month'", map2e(intSlot, intervalSlot, intSlot, timestampPlus)),
		fn("interval_pl_timestamp(interval,timestamp)", "", map2e(intervalSlot, intSlot, intSlot, func(iv types.Interval, ts int64) (int64, error) { return timestampPlus(ts, iv) })),
		fn("timestamp_mi_interval(timestamp,interval)", "timestamp '2024-03-31 10:00'-interval '1 month 1 hour'", map2e(intSlot, intervalSlot, intSlot, func(ts int64, iv types.Interval) (int64, error) {
			return types.TimestampSubInterval(ts, iv, nil)
		})),
		fn("timestamptz_pl_interval(timestamptz,interval)", "", ctx2(intSlot, intervalSlot, intSlot, func(f *expr.Frame, ts int64, iv types.Interval) (int64, error) {
			return types.TimestampAddInterval(ts, iv, loc(f))
		})),
		fn("interval_pl_timestamptz(interval,timestamptz)", "", ctx2(intervalSlot, intSlot, intSlot, func(f *expr.Frame, iv types.Interval, ts int64) (int64, error) {
			return types.TimestampAddInterval(ts, iv, loc(f))
		})),
		fn("timestamptz_mi_interval(timestamptz,interval)", "", ctx2(intSlot, intervalSlot, intSlot, func(f *expr.Frame, ts int64, iv types.Interval) (int64, error) {
			return types.TimestampSubInterval(ts, iv, loc(f))
		})),
		fn("timestamp_mi(timestamp,timestamp)", "timestamp '2024-03-01'-timestamp '2024-02-01 12:00'", map2e(intSlot, intSlot, intervalSlot, types.TimestampSub)),
		fn("timestamptz_mi(timestamptz,timestamptz)", "", map2e(intSlot, intSlot, intervalSlot, types.TimestampSub)),
		fn("time_pl_interval(time,interval)", "time '23:00'+interval '2 hours'", map2(intSlot, intervalSlot, intSlot, func(t int64, iv types.Interval) int64 { return timeOfDay(t + iv.Micros%microsPerDay) })),
		fn("interval_pl_time(interval,time)", "", map2(intervalSlot, intSlot, intSlot, func(iv types.Interval, t int64) int64 { return timeOfDay(t + iv.Micros%microsPerDay) })),
		fn("time_mi_interval(time,interval)", "time '01:00'-interval '2 hours'", map2(intSlot, intervalSlot, intSlot, func(t int64, iv types.Interval) int64 { return timeOfDay(t - iv.Micros%microsPerDay) })),
		fn("time_mi_time(time,time)", "time '01:00'-time '02:30'", map2(intSlot, intSlot, intervalSlot, func(a, b int64) types.Interval { return types.Interval{Micros: a - b} })),
		fn("timetz_pl_interval(timetz,interval)", "timetz '23:00+02'+interval '2 hours'", map2(strSlot, intervalSlot, strSlot, func(s string, iv types.Interval) string { return timetzPlus(s, iv.Micros%microsPerDay) })),
		fn("interval_pl_timetz(interval,timetz)", "", map2(intervalSlot, strSlot, strSlot, func(iv types.Interval, s string) string { return timetzPlus(s, iv.Micros%microsPerDay) })),
		fn("timetz_mi_interval(timetz,interval)", "", map2(strSlot, intervalSlot, strSlot, func(s string, iv types.Interval) string { return timetzPlus(s, -(iv.Micros % microsPerDay)) })),
		fn("interval_pl(interval,interval)", "interval '1 month'+interval '2 days'", map2e(intervalSlot, intervalSlot, intervalSlot, types.IntervalAdd)),
		fn("interval_mi(interval,interval)", "interval '1 month'-interval '2 days'", map2e(intervalSlot, intervalSlot, intervalSlot, types.IntervalSub)),
		fn("interval_mul(interval,float8)", "interval '1 month'*1.5", map2e(intervalSlot, floatSlot, intervalSlot, types.IntervalMul)),
		fn("mul_d_interval(float8,interval)", "2*interval '1 day 02:00'", map2e(floatSlot, intervalSlot, intervalSlot, func(x float64, iv types.Interval) (types.Interval, error) { return types.IntervalMul(iv, x) })),
		fn("interval_div(interval,float8)", "interval '1 month'/4", map2e(intervalSlot, floatSlot, intervalSlot, types.IntervalDiv)),
		fn("interval_um(interval)", "-interval '1 day'", ivlNeg),
		fn("age(timestamp,timestamp)", "age(timestamp '2001-04-10',timestamp '1957-06-13')", map2e(intSlot, intSlot, intervalSlot, types.Age)),
		{id: "age(timestamptz,timestamptz)", impl: impl{kernel: each(func(c *call) error { return c.ageZoned(c.int(0), c.int(1)) }), session: true}},
		fn("age(timestamp)", "", each(func(c *call) error {
			today, err := types.TimestamptzToLocal(txnTime(c.f), loc(c.f))
			if err != nil {
				return err
			}
			iv, err := types.Age(today-timeOfDay(today), c.int(0))
			c.out.Ivl[c.row] = iv
			return err
		})),
		fn("age(timestamptz)", "", each(func(c *call) error {
			today, _, err := types.DateTruncTZ(types.FieldDay, txnTime(c.f), loc(c.f))
			if err != nil {
				return err
			}
			return c.ageZoned(today, c.int(0))
		})),
		fn("justify_hours(interval)", "justify_hours(interval '27 hours')", map1e(intervalSlot, intervalSlot, types.IntervalJustifyHours)),
		fn("justify_days(interval)", "justify_days(interval '35 days')", map1e(intervalSlot, intervalSlot, types.IntervalJustifyDays)),
		fn("justify_interval(interval)", "justify_interval(interval '1 mon -1 hour')", map1e(intervalSlot, intervalSlot, types.IntervalJustify)),
		fn("date_bin(interval,timestamp,timestamp)", "date_bin('15 minutes',timestamp '1969-12-31 23:59:59','2001-01-01')", map3e(intervalSlot, intSlot, intSlot, intSlot, types.DateBin)),
		fn("date_bin(interval,timestamptz,timestamptz)", "", map3e(intervalSlot, intSlot, intSlot, intSlot, types.DateBin)),
		fn("date_trunc(text,timestamp)", "date_trunc('week',timestamp '2024-02-29 10:11:12')", byField(intSlot, intSlot, truncTimestamp)),
		fn("date_trunc(text,timestamptz)", "", byField(intSlot, intSlot, func(f *expr.Frame, d dateField, ts int64) (int64, error) { return truncZoned(d, ts, loc(f)) })),
		fn("date_trunc(text,timestamptz,text)", "date_trunc('hour',timestamptz '2024-10-27 01:20Z','Europe/Berlin') AT TIME ZONE 'UTC'", map3e(strSlot, intSlot, strSlot, intSlot, func(field string, ts int64, zone string) (int64, error) {
			l, err := types.ZoneByText(zone)
			if err != nil {
				return 0, err
			}
			return truncZoned(dateField{name: field, is: types.ParseDateField(field)}, ts, l)
		})),
		fn("date_trunc(text,interval)", "date_trunc('hour',interval '2 days 03:04:05')", map2e(strSlot, intervalSlot, intervalSlot, func(field string, iv types.Interval) (types.Interval, error) {
			r, ok := types.DateTruncInterval(types.ParseDateField(field), iv)
			if !ok {
				return r, types.ErrDateField(field, types.IntervalT)
			}
			return r, nil
		})),
		fn("make_date(int4,int4,int4)", "make_date(2024,2,29)", map3e(intSlot, intSlot, intSlot, intSlot, makeDate)),
		fn("make_time(int4,int4,float8)", "make_time(8,15,23.5)", map3e(intSlot, intSlot, floatSlot, intSlot, makeTime)),
		fn("make_timestamp(int4,int4,int4,int4,int4,float8)", "make_timestamp(2024,2,29,8,15,23.5)", each(func(c *call) error {
			ts, err := makeTimestamp(c)
			c.out.Int[c.row] = ts
			return err
		})),
		fn("make_timestamptz(int4,int4,int4,int4,int4,float8)", "", each(func(c *call) error { return c.makeZoned(loc(c.f)) })),
		fn("make_timestamptz(int4,int4,int4,int4,int4,float8,text)", "make_timestamptz(2024,2,29,8,15,23.5,'Europe/Berlin') AT TIME ZONE 'UTC'", each(func(c *call) error {
			// A number is east of Greenwich here, as in the text of a timestamp.
			zone := c.str(6)
			switch {
			case strings.HasPrefix(zone, "+"):
				zone = "-" + zone[1:]
			case strings.HasPrefix(zone, "-"):
				zone = "+" + zone[1:]
			}
			l, err := types.ZoneByText(zone)
			if err != nil {
				return err
			}
			return c.makeZoned(l)
		})),
		fn("make_interval(int4,int4,int4,int4,int4,int4,float8)", "make_interval(1,2,3,4,5,6,7.5)", each(makeInterval)),
		fn("to_timestamp(float8)", "to_timestamp(1284352323.5) AT TIME ZONE 'UTC'", map1e(floatSlot, intSlot, fromUnix)),
		fn("isfinite(date)", "isfinite(date 'infinity')", map1(intSlot, boolSlot, func(v int64) bool { return !types.IsDateInfinite(v) })),
		fn("isfinite(timestamp)", "isfinite(timestamp 'infinity')", map1(intSlot, boolSlot, func(v int64) bool { return !types.IsTimestampInfinite(v) })),
		fn("isfinite(timestamptz)", "", map1(intSlot, boolSlot, func(v int64) bool { return !types.IsTimestampInfinite(v) })),
		fn("isfinite(interval)", "isfinite(interval '1 day')", map1(intervalSlot, boolSlot, func(types.Interval) bool { return true })),
	}
	return append(append(append(out, dateParts()...), zoneFunctions()...), append(nowFunctions(), overlapsFunctions()...)...)
}

func datePlus(d int64, iv types.Interval) (int64, error) {
	ts, err := types.DateToTimestamp(d)
	if err != nil {
		return 0, err
	}
	return types.TimestampAddInterval(ts, iv, nil)
}

func timestampPlus(ts int64, iv types.Interval) (int64, error) {
	return types.TimestampAddInterval(ts, iv, nil)
}

func dateTime(d, t int64) (int64, error) {
	ts, err := types.DateToTimestamp(d)
	if err != nil || types.IsTimestampInfinite(ts) {
		return ts, err
	}
	return types.TimestampAddInterval(ts, types.Interval{Micros: t}, nil)
}

func dateTimetz(d int64, t string) (int64, error) {
	us, west := types.SplitTimetz(t)
	return dateTime(d, us+int64(west)*microsPerSecond)
}

func timetzPlus(s string, us int64) string {
	t, zone := types.SplitTimetz(s)
	return types.MakeTimetz(timeOfDay(t+us), zone)
}

func (c *call) ageZoned(a, b int64) error {
	x, err := types.TimestamptzToLocal(a, loc(c.f))
	if err != nil {
		return err
	}
	y, err := types.TimestamptzToLocal(b, loc(c.f))
	if err != nil {
		return err
	}
	iv, err := types.Age(x, y)
	c.out.Ivl[c.row] = iv
	return err
}

// dateField is a field of points of time by its name. It is looked up once where the rows that follow each other have one name.
type dateField struct {
	name  string
	is    types.DateField
	known bool
}

func (d *dateField) parse(name string) {
	if !d.known || name != d.name {
		d.name, d.is, d.known = name, types.ParseDateField(name), true
	}
}

// byField makes a kernel of a function whose first argument is the name of a field.
func byField[A, R any](a slot[A], r slot[R], fn func(f *expr.Frame, d dateField, x A) (R, error)) expr.Kernel {
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		var d dateField
		names, x, o := strSlot(args[0].Vector), a(args[1].Vector), r(out)
		for i := range f.Len() {
			row := f.Row(i)
			d.parse(names[args[0].At(row)])
			v, err := fn(f, d, x[args[1].At(row)])
			if err != nil {
				f.Fail(out, row, err)
				continue
			}
			o[row] = v
		}
	}
}

// eachByField is each for such functions.
func eachByField(fn func(c *call, d *dateField) error) expr.Kernel {
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		var d dateField
		each(func(c *call) error {
			d.parse(c.str(0))
			return fn(c, &d)
		})(f, args, out)
	}
}

func truncTimestamp(_ *expr.Frame, d dateField, ts int64) (int64, error) {
	if types.IsTimestampInfinite(ts) && d.is != types.FieldInvalid {
		return ts, nil
	}
	r, ok := types.DateTrunc(d.is, ts)
	if !ok {
		return 0, types.ErrDateField(d.name, types.Timestamp)
	}
	return r, nil
}

func truncZoned(d dateField, ts int64, l *time.Location) (int64, error) {
	if types.IsTimestampInfinite(ts) && d.is != types.FieldInvalid {
		return ts, nil
	}
	r, ok, err := types.DateTruncTZ(d.is, ts, l)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, types.ErrDateField(d.name, types.Timestamptz)
	}
	return r, nil
}

func errDateValue(format string, args ...any) error {
	return pgerr.Newf(pgerr.DatetimeFieldOverflow, format, args...)
}

func makeDate(y, m, d int64) (int64, error) {
	bad := errDateValue("date field value out of range: %d-%02d-%02d", y, m, d)
	year := y
	if y < 0 {
		year = y + 1
	}
	if y == 0 || m < 1 || m > 12 || d < 1 || d > 31 || year > 5_900_000 || year < -5_000 {
		return 0, bad
	}
	days := types.DaysFromCivil(int(year), int(m), int(d))
	if yy, mm, dd := types.CivilFromDays(days); yy != int(year) || mm != int(m) || dd != int(d) {
		return 0, bad
	}
	return types.DateAddDays(days, 0)
}

func makeTime(h, m int64, s float64) (int64, error) {
	if h < 0 || m < 0 || m > 59 || s < 0 || s > 60 || s != s || h > 24 || h == 24 && (m > 0 || s > 0) {
		return 0, errDateValue("time field value out of range: %d:%02d:%02g", h, m, s)
	}
	return h*microsPerHour + m*microsPerMinute + int64(math.RoundToEven(s*microsPerSecond)), nil
}

func makeTimestamp(c *call) (int64, error) {
	d, err := makeDate(c.int(0), c.int(1), c.int(2))
	if err != nil {
		return 0, err
	}
	t, err := makeTime(c.int(3), c.int(4), c.float(5))
	if err != nil {
		return 0, err
	}
	return dateTime(d, t)
}

func (c *call) makeZoned(l *time.Location) error {
	ts, err := makeTimestamp(c)
	if err != nil {
		return err
	}
	ts, err = types.LocalToTimestamptz(ts, l)
	c.out.Int[c.row] = ts
	return err
}

// makeInterval takes years, months, weeks, days, hours, minutes, seconds; those left out are 0.
func makeInterval(c *call) error {
	arg := func(i int) int64 {
		if c.has(i) {
			return c.int(i)
		}
		return 0
	}
	secs := 0.0
	if c.has(6) {
		secs = c.float(6)
	}
	months := arg(0)*12 + arg(1)
	days := arg(2)*7 + arg(3)
	us := math.RoundToEven(secs * microsPerSecond)
	if months != int64(int32(months)) || days != int64(int32(days)) || math.IsNaN(us) || math.Abs(us) > math.MaxInt64/2 {
		return errDateValue("interval out of range")
	}
	return c.setIvl(types.Interval{Months: int32(months), Days: int32(days), Micros: arg(4)*microsPerHour + arg(5)*microsPerMinute + int64(us)})
}

func fromUnix(v float64) (int64, error) {
	switch {
	case v != v:
		return 0, errDateValue("timestamp cannot be NaN")
	case math.IsInf(v, 1):
		return types.TimestampInfinity, nil
	case math.IsInf(v, -1):
		return types.TimestampNegInfinity, nil
	case v < -210_866_803_200 || v >= 9_224_318_016_000:
		return 0, errDateValue("timestamp out of range: \"%g\"", v)
	}
	return int64(math.RoundToEven((v - 946_684_800) * microsPerSecond)), nil
}

func dateParts() []entry {
	var out []entry
	for _, t := range [...]string{"date", "time", "timetz", "timestamp", "timestamptz", "interval"} {
		field, literal := "hour", "'10:11:12.5'"
		switch t {
		case "date":
			field, literal = "isodow", "'2024-02-29'"
		case "timestamp":
			field, literal = "epoch", "'2024-02-29 10:11:12.5'"
		case "interval":
			field, literal = "epoch", "'1 year 2 mons 03:04:05'"
		case "timetz":
			literal = "'10:11:12.5+02'"
		case "timestamptz":
			field, literal = "epoch", "'2024-02-29 10:11:12.5+02'"
		}
		out = append(out,
			fn("extract(text,"+t+")", "extract("+field+" from "+t+" "+literal+")", eachByField(extract)),
			fn("date_part(text,"+t+")", "date_part('"+field+"',"+t+" "+literal+")", eachByField(datePart)))
	}
	return out
}

func extract(c *call, field *dateField) error {
	d := c.datum(1)
	n, null, ok := types.DatePart(field.is, d, loc(c.f))
	if !ok {
		return types.ErrDateField(field.name, d.Type)
	}
	if null {
		c.setNull()
		return nil
	}
	return c.setNum(n)
}

func datePart(c *call, field *dateField) error {
	d := c.datum(1)
	// date_part of a date is that of the timestamp, PostgreSQL defines it so.
	if d.Type.OID == types.OIDDate {
		ts, err := types.DateToTimestamp(d.Int)
		if err != nil {
			return err
		}
		d = types.Datum{Type: types.Timestamp, Int: ts}
	}
	v, null, ok := types.DatePartFloat(field.is, d, loc(c.f))
	if !ok {
		return types.ErrDateField(field.name, d.Type)
	}
	if null {
		c.setNull()
		return nil
	}
	return c.setFloat(v)
}

func zoneFunctions() []entry {
	fixed := func(iv types.Interval) (*time.Location, error) {
		if iv.Months != 0 || iv.Days != 0 {
			return nil, pgerr.Newf(pgerr.InvalidParameterValue, "interval time zone %q must not include months or days", types.AppendInterval(nil, iv, types.IntervalPostgres))
		}
		return time.FixedZone("", int(iv.Micros/microsPerSecond)), nil
	}
	toLocal := func(l *time.Location, ts int64) (int64, error) { return types.TimestamptzToLocal(ts, l) }
	toZoned := func(l *time.Location, ts int64) (int64, error) { return types.LocalToTimestamptz(ts, l) }
	byText := func(f func(*time.Location, int64) (int64, error)) expr.Kernel {
		return map2e(strSlot, intSlot, intSlot, func(zone string, ts int64) (int64, error) {
			l, err := types.ZoneByText(zone)
			if err != nil {
				return 0, err
			}
			return f(l, ts)
		})
	}
	byInterval := func(f func(*time.Location, int64) (int64, error)) expr.Kernel {
		return map2e(intervalSlot, intSlot, intSlot, func(iv types.Interval, ts int64) (int64, error) {
			l, err := fixed(iv)
			if err != nil {
				return 0, err
			}
			return f(l, ts)
		})
	}
	shift := func(c *call, l *time.Location) error {
		us, west := types.SplitTimetz(c.str(1))
		off, _ := types.ZoneOffset(txnTime(c.f), l)
		return c.setStr(types.MakeTimetz(timeOfDay(us+(int64(west)+int64(off))*microsPerSecond), int32(-off)))
	}
	return []entry{
		fn("timezone(text,timestamptz)", "timestamptz '2024-07-01 12:00Z' AT TIME ZONE 'America/New_York'", byText(toLocal)),
		fn("timezone(text,timestamp)", "timestamp '2024-03-31 02:30' AT TIME ZONE 'Europe/Berlin' AT TIME ZONE 'UTC'", byText(toZoned)),
		fn("timezone(interval,timestamptz)", "timestamptz '2024-07-01 12:00Z' AT TIME ZONE interval '-5 hours'", byInterval(toLocal)),
		fn("timezone(interval,timestamp)", "", byInterval(toZoned)),
		fn("timezone(text,timetz)", "", each(func(c *call) error {
			l, err := types.ZoneByText(c.str(0))
			if err != nil {
				return err
			}
			return shift(c, l)
		})),
		fn("timezone(interval,timetz)", "", each(func(c *call) error {
			l, err := fixed(c.ivl(0))
			if err != nil {
				return err
			}
			return shift(c, l)
		})),
	}
}

func nowFunctions() []entry {
	now := nullary(intSlot, txnTime)
	own := func(id, sig, doc string, k expr.Kernel) entry {
		return entry{id: id, sig: sig, doc: doc, impl: impl{kernel: k}}
	}
	local := func(f *expr.Frame) int64 {
		l, err := types.TimestamptzToLocal(txnTime(f), loc(f))
		if err != nil {
			return 0
		}
		return l
	}
	return []entry{
		fn("now()", "", now), fn("transaction_timestamp()", "", now),
		fn("statement_timestamp()", "", nullary(intSlot, func(f *expr.Frame) int64 {
			if f.Env == nil {
				return 0
			}
			return f.Env.StmtTime
		})),
		fn("clock_timestamp()", "", nullary(intSlot, func(*expr.Frame) int64 { return clock() })),
		fn("timeofday()", "", nullary(strSlot, func(f *expr.Frame) string {
			return time.Now().In(loc(f)).Format("Mon Jan 02 15:04:05.000000 2006 MST")
		})),
		own("current_timestamp()", "timestamptz f t s", "CURRENT_TIMESTAMP", now),
		own("localtimestamp()", "timestamp f t s", "LOCALTIMESTAMP", nullary(intSlot, local)),
		own("localtime()", "time f t s", "LOCALTIME", nullary(intSlot, func(f *expr.Frame) int64 { return timeOfDay(local(f)) })),
		own("current_date()", "date f t s", "CURRENT_DATE", nullary(intSlot, func(f *expr.Frame) int64 { return types.TimestampToDate(local(f)) })),
		own("current_time()", "timetz f t s", "CURRENT_TIME", nullary(strSlot, func(f *expr.Frame) string {
			off, _ := types.ZoneOffset(txnTime(f), loc(f))
			return types.MakeTimetz(timeOfDay(local(f)), int32(-off))
		})),
	}
}

// overlapsFunctions are (a, b) OVERLAPS (c, d), where b and d may be lengths.
func overlapsFunctions() []entry {
	var out []entry
	for _, t := range [...]string{"timestamp", "timestamptz", "time", "timetz"} {
		for mask := range 4 {
			second, fourth := t, t
			if mask&1 != 0 {
				second = "interval"
			}
			if mask&2 != 0 {
				fourth = "interval"
			}
			if t == "timetz" && mask != 0 {
				continue
			}
			example := ""
			if t == "timestamp" && mask == 0 {
				example = "(timestamp '2001-02-16',timestamp '2001-12-21') OVERLAPS (timestamp '2001-10-30',timestamp '2002-10-30')"
			}
			out = append(out, fn("overlaps("+t+","+second+","+t+","+fourth+")", example, each(overlaps)))
		}
	}
	return out
}

func overlaps(c *call) error {
	get := func(start, end int) (a, b types.Datum, err error) {
		a, b = c.datum(start), c.datum(end)
		if b.Type.OID != types.OIDInterval || a.Null || b.Null {
			if b.Type.OID == types.OIDInterval {
				b = types.NullDatum(a.Type)
			}
			return a, b, nil
		}
		iv := b.Ivl
		b = a
		switch a.Type.OID {
		case types.OIDTime:
			b.Int = timeOfDay(a.Int + iv.Micros%microsPerDay)
		case types.OIDTimestamptz:
			b.Int, err = types.TimestampAddInterval(a.Int, iv, loc(c.f))
		default:
			b.Int, err = types.TimestampAddInterval(a.Int, iv, nil)
		}
		return a, b, err
	}
	s1, e1, err := get(0, 1)
	if err != nil {
		return err
	}
	s2, e2, err := get(2, 3)
	if err != nil {
		return err
	}
	v, known := overlap(s1, e1, s2, e2)
	if !known {
		c.setNull()
		return nil
	}
	return c.setBool(v)
}

// overlap follows PostgreSQL's overlaps_timestamp: a NULL end makes the answer unknown unless the other ends decide.
func overlap(s1, e1, s2, e2 types.Datum) (v, known bool) {
	order := func(s, e types.Datum) (types.Datum, types.Datum, bool) {
		if s.Null {
			return e, s, !e.Null
		}
		if !e.Null && types.CompareDatum(s, e) > 0 {
			return e, s, true
		}
		return s, e, true
	}
	var ok bool
	if s1, e1, ok = order(s1, e1); !ok {
		return false, false
	}
	if s2, e2, ok = order(s2, e2); !ok {
		return false, false
	}
	d := types.CompareDatum(s1, s2)
	switch {
	case d > 0:
		if e2.Null {
			return false, false
		}
		if types.CompareDatum(s1, e2) < 0 {
			return true, true
		}
		return false, !e1.Null
	case d < 0:
		if e1.Null {
			return false, false
		}
		if types.CompareDatum(s2, e1) < 0 {
			return true, true
		}
		return false, !e2.Null
	}
	return true, !e1.Null && !e2.Null
}
