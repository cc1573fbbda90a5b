package types

import (
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
)

func parseDateTime(f *Format, typ, text string, timeOnly bool) (*dateDecoder, error) {
	fields, e := splitDateTime(text)
	d := &dateDecoder{f: f, special: -1, timeOnly: timeOnly}
	if e == dtOK {
		e = d.decode(fields, timeOnly)
	}
	if e == dtOK && d.special < 0 {
		want := maskDate
		if timeOnly {
			want = maskTime
		}
		if d.mask&want != want || d.mask&maskDSTMod != 0 && (d.mask&maskTZ == 0 || d.zone != nil) {
			e = dtBadFormat
		}
	}
	if e != dtOK {
		switch {
		case d.badZone != "":
			return nil, errZone(d.badZone)
		case d.noNow:
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "\"%s\" depends on the current time, which is not known here", text)
		}
		return nil, e.report(typ, text)
	}
	return d, nil
}

// ParseDate reads a date; days since 2000-01-01.
func ParseDate(f *Format, text string) (int64, error) {
	if days, ok := isoDate(text); ok && len(text) == 10 {
		return days, nil
	}
	d, err := parseDateTime(f, "date", text, false)
	if err != nil {
		return 0, err
	}
	switch d.special {
	case rvInfinity:
		return DateInfinity, nil
	case rvNegInfinity:
		return DateNegInfinity, nil
	case rvEpoch:
		return -pgEpochUnixDays, nil
	}
	days := DaysFromCivil(d.c.Year, d.c.Month, d.c.Day)
	if days < minDate || days >= endDate {
		return 0, pgerr.Newf(pgerr.DatetimeFieldOverflow, "date out of range: \"%s\"", text)
	}
	return days, nil
}

// isoDate reads a leading yyyy-mm-dd without allocation; ok is false for everything else, which the full reader then judges.
func isoDate(s string) (days int64, ok bool) {
	if len(s) < 10 || s[4] != '-' || s[7] != '-' {
		return 0, false
	}
	y, ok1 := digits(s[:4])
	m, ok2 := digits(s[5:7])
	d, ok3 := digits(s[8:10])
	if !ok1 || !ok2 || !ok3 || y == 0 || m < 1 || m > 12 || d < 1 || d > daysInMonth(y, m) {
		return 0, false
	}
	return DaysFromCivil(y, m, d), true
}

func digits(s string) (int, bool) {
	v := 0
	for i := 0; i < len(s); i++ {
		if !isDigit(s[i]) {
			return 0, false
		}
		v = v*10 + int(s[i]-'0')
	}
	return v, true
}

// isoTime reads hh:mm:ss[.f] up to six digits; n is the length read.
func isoTime(s string) (us int64, n int, ok bool) {
	if len(s) < 8 || s[2] != ':' || s[5] != ':' {
		return 0, 0, false
	}
	h, ok1 := digits(s[:2])
	m, ok2 := digits(s[3:5])
	sec, ok3 := digits(s[6:8])
	if !ok1 || !ok2 || !ok3 || h > 23 || m > 59 || sec > 59 {
		return 0, 0, false
	}
	us = int64(h)*microsPerHour + int64(m)*microsPerMinute + int64(sec)*microsPerSecond
	n = 8
	if len(s) > 8 && s[8] == '.' {
		unit := int64(100000)
		for n = 9; n < len(s) && isDigit(s[n]); n++ {
			if unit == 0 {
				return 0, 0, false
			}
			us += unit * int64(s[n]-'0')
			unit /= 10
		}
		if n == 9 {
			return 0, 0, false
		}
	}
	return us, n, true
}

// isoTimestamp reads "yyyy-mm-dd hh:mm:ss[.f]" (blank or T between) and returns what follows.
func isoTimestamp(s string) (ts int64, rest string, ok bool) {
	days, ok := isoDate(s)
	if !ok || len(s) < 19 || s[10] != ' ' && s[10] != 'T' {
		return 0, "", false
	}
	us, n, ok := isoTime(s[11:])
	if !ok {
		return 0, "", false
	}
	return days*microsPerDay + us, s[11+n:], true
}

// timestamp returns the local timestamp of the text.
func (d *dateDecoder) timestamp(text string) (int64, error) {
	switch d.special {
	case rvInfinity:
		return TimestampInfinity, nil
	case rvNegInfinity:
		return TimestampNegInfinity, nil
	case rvEpoch:
		return -pgEpochUnix * microsPerSecond, nil
	}
	return makeLocal(d.c, text)
}

func errTimestampText(text string) error {
	return pgerr.Newf(pgerr.DatetimeFieldOverflow, "timestamp out of range: \"%s\"", text)
}

func makeLocal(c Civil, text string) (int64, error) {
	ts, err := c.Timestamp()
	if err != nil {
		return 0, errTimestampText(text)
	}
	return ts, nil
}

// ParseTimestamp reads a timestamp without time zone; a zone in the text is ignored.
func ParseTimestamp(f *Format, text string) (int64, error) {
	if ts, rest, ok := isoTimestamp(text); ok && rest == "" {
		return ts, nil
	}
	d, err := parseDateTime(f, "timestamp", text, false)
	if err != nil {
		return 0, err
	}
	return d.timestamp(text)
}

// ParseTimestamptz reads a timestamp with time zone; microseconds since 2000-01-01 UTC.
func ParseTimestamptz(f *Format, text string) (int64, error) {
	if ts, rest, ok := isoTimestamp(text); ok {
		switch {
		case rest == "Z" || rest == "+00":
			return ts, nil
		case rest == "":
			return ts - int64(localOffset(ts, f.location()))*microsPerSecond, nil
		}
	}
	d, err := parseDateTime(f, "timestamp with time zone", text, false)
	if err != nil {
		return 0, err
	}
	if d.special >= 0 {
		return d.timestamp(text)
	}
	c := d.c
	days := DaysFromCivil(c.Year, c.Month, c.Day)
	if days < minDate-1 || days > endDateForTs {
		return 0, errTimestampText(text)
	}
	local := days*microsPerDay + c.TimeOfDay()
	ts := local - int64(d.offset(local))*microsPerSecond
	if !validTimestamp(ts) || (ts > 0) != (local > 0) && max(ts, -ts) > 2*microsPerDay {
		return 0, errTimestampText(text)
	}
	return ts, nil
}

// ParseTime reads a time of day; a zone in the text is ignored.
func ParseTime(f *Format, text string) (int64, error) {
	if us, n, ok := isoTime(text); ok && n == len(text) {
		return us, nil
	}
	d, err := parseTimeOnly(f, "time", text)
	if err != nil {
		return 0, err
	}
	return d.c.TimeOfDay(), nil
}

func parseTimeOnly(f *Format, typ, text string) (*dateDecoder, error) {
	d, err := parseDateTime(f, typ, text, true)
	if err != nil {
		return nil, err
	}
	if d.special >= 0 || d.zone != nil && d.mask&maskDate != maskDate && !fixedZone(d.zone) {
		return nil, dtBadFormat.report(typ, text)
	}
	if d.timeOverflows() {
		return nil, dtFieldOverflow.report(typ, text)
	}
	return d, nil
}

// fixedZone reports whether loc never changes its offset.
func fixedZone(loc *time.Location) bool {
	start, end := time.Unix(pgEpochUnix, 0).In(loc).ZoneBounds()
	return start.IsZero() && end.IsZero()
}

// ParseTimetz reads a time with time zone into its storage form.
func ParseTimetz(f *Format, text string) (string, error) {
	d, err := parseTimeOnly(f, "time with time zone", text)
	if err != nil {
		return "", err
	}
	c := d.c
	if d.mask&maskDate != maskDate {
		// The session's offset is that of today; without a clock, of PostgreSQL's epoch.
		c.Year, c.Month, c.Day = 2000, 1, 1
		if now, _, ok := d.now(); ok {
			c.Year, c.Month, c.Day = now.Year, now.Month, now.Day
		}
	}
	local := DaysFromCivil(c.Year, c.Month, c.Day)*microsPerDay + c.TimeOfDay()
	return MakeTimetz(c.TimeOfDay(), int32(-d.offset(local))), nil
}
