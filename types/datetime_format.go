package types

import (
	"strconv"
	"time"
)

func append2(dst []byte, v int) []byte { return append(dst, byte('0'+v/10%10), byte('0'+v%10)) }

func appendYMD(dst []byte, year, month, day int) []byte {
	y := year
	if y <= 0 {
		y = 1 - y
	}
	if y < 10000 {
		dst = append(dst, byte('0'+y/1000), byte('0'+y/100%10), byte('0'+y/10%10), byte('0'+y%10))
	} else {
		dst = strconv.AppendInt(dst, int64(y), 10)
	}
	dst = append2(append(dst, '-'), month)
	return append2(append(dst, '-'), day)
}

// AppendDate appends a date in ISO form.
func AppendDate(dst []byte, days int64) []byte {
	switch days {
	case DateInfinity:
		return append(dst, "infinity"...)
	case DateNegInfinity:
		return append(dst, "-infinity"...)
	}
	y, m, d := CivilFromDays(days)
	dst = appendYMD(dst, y, m, d)
	if y <= 0 {
		dst = append(dst, " BC"...)
	}
	return dst
}

// AppendTime appends a time of day.
func AppendTime(dst []byte, us int64) []byte {
	dst = append2(dst, int(us/microsPerHour))
	dst = append2(append(dst, ':'), int(us/microsPerMinute%60))
	dst = append2(append(dst, ':'), int(us/microsPerSecond%60))
	return appendFraction(dst, us%microsPerSecond)
}

// appendFraction appends microseconds as .ffffff without trailing zeros, nothing for zero.
func appendFraction(dst []byte, us int64) []byte {
	if us == 0 {
		return dst
	}
	dst = append(dst, '.')
	for unit := int64(100000); us > 0; unit /= 10 {
		dst = append(dst, byte('0'+us/unit))
		us %= unit
	}
	return dst
}

// appendZone appends an offset east of UTC as +hh[:mm[:ss]].
func appendZone(dst []byte, east int) []byte {
	sign := byte('+')
	if east < 0 {
		sign, east = '-', -east
	}
	dst = append2(append(dst, sign), east/3600)
	if east%3600 != 0 {
		dst = append2(append(dst, ':'), east/60%60)
		if east%60 != 0 {
			dst = append2(append(dst, ':'), east%60)
		}
	}
	return dst
}

func appendInfinite(dst []byte, ts int64) []byte {
	if ts > 0 {
		return append(dst, "infinity"...)
	}
	return append(dst, "-infinity"...)
}

// AppendTimestamp appends a timestamp without time zone in ISO form.
func AppendTimestamp(dst []byte, ts int64) []byte {
	if IsTimestampInfinite(ts) {
		return appendInfinite(dst, ts)
	}
	days := floorDiv64(ts, microsPerDay)
	y, m, d := CivilFromDays(days)
	dst = append(appendYMD(dst, y, m, d), ' ')
	dst = AppendTime(dst, ts-days*microsPerDay)
	if y <= 0 {
		dst = append(dst, " BC"...)
	}
	return dst
}

// AppendTimestamptz appends a timestamp with time zone in ISO form, in f's zone.
func AppendTimestamptz(dst []byte, f *Format, ts int64) []byte {
	if IsTimestampInfinite(ts) {
		return appendInfinite(dst, ts)
	}
	off, _ := zoneOffset(ts, f.location())
	local := ts + int64(off)*microsPerSecond
	days := floorDiv64(local, microsPerDay)
	y, m, d := CivilFromDays(days)
	dst = append(appendYMD(dst, y, m, d), ' ')
	dst = appendZone(AppendTime(dst, local-days*microsPerDay), off)
	if y <= 0 {
		dst = append(dst, " BC"...)
	}
	return dst
}

// location returns the zone, UTC for a nil format.
func (f *Format) location() *time.Location {
	if f == nil || f.Location == nil {
		return time.UTC
	}
	return f.Location
}

// ivlParts are the fields of an interval as they are printed; all time fields share one sign.
type ivlParts struct {
	year, mon, day   int64
	hour, min, sec   int64
	us               int64
	negTime, hasTime bool
}

func splitInterval(iv Interval) ivlParts {
	t := iv.Micros
	p := ivlParts{year: int64(iv.Months / 12), mon: int64(iv.Months % 12), day: int64(iv.Days), hasTime: t != 0, negTime: t < 0}
	p.hour, t = t/microsPerHour, t%microsPerHour
	p.min, t = t/microsPerMinute, t%microsPerMinute
	p.sec, p.us = t/microsPerSecond, t%microsPerSecond
	return p
}

func abs64(v int64) int64 {
	if v < 0 {
		return -v
	}
	return v
}

// appendSeconds appends |sec| with its fraction, in two digits when fill is set.
func (p *ivlParts) appendSeconds(dst []byte, fill bool) []byte {
	if s := abs64(p.sec); fill {
		dst = append2(dst, int(s))
	} else {
		dst = strconv.AppendInt(dst, s, 10)
	}
	return appendFraction(dst, abs64(p.us))
}

func appendHourMin(dst []byte, p *ivlParts, fillHour bool) []byte {
	h := abs64(p.hour)
	if fillHour && h < 10 {
		dst = append(dst, '0')
	}
	dst = strconv.AppendInt(dst, h, 10)
	return append(append2(append(dst, ':'), int(abs64(p.min))), ':')
}

// AppendInterval appends an interval in the given style.
func AppendInterval(dst []byte, iv Interval, style IntervalStyle) []byte {
	p := splitInterval(iv)
	switch style {
	case IntervalPostgresVerbose:
		return p.appendVerbose(dst)
	case IntervalSQLStandard:
		return p.appendSQLStandard(dst)
	case IntervalISO8601:
		return p.appendISO8601(dst)
	}
	return p.appendPostgres(dst)
}

func (p *ivlParts) appendPostgres(dst []byte) []byte {
	zero, before := true, false
	part := func(v int64, unit string) {
		if v == 0 {
			return
		}
		if !zero {
			dst = append(dst, ' ')
		}
		if before && v > 0 {
			dst = append(dst, '+')
		}
		dst = strconv.AppendInt(dst, v, 10)
		dst = append(append(dst, ' '), unit...)
		if v != 1 {
			dst = append(dst, 's')
		}
		zero, before = false, v < 0
	}
	part(p.year, "year")
	part(p.mon, "mon")
	part(p.day, "day")
	if !zero && !p.hasTime {
		return dst
	}
	if !zero {
		dst = append(dst, ' ')
	}
	if p.negTime {
		dst = append(dst, '-')
	} else if before {
		dst = append(dst, '+')
	}
	return p.appendSeconds(appendHourMin(dst, p, true), true)
}

func (p *ivlParts) appendVerbose(dst []byte) []byte {
	zero, before := true, false
	dst = append(dst, '@')
	part := func(v int64, unit string) {
		if v == 0 {
			return
		}
		if zero {
			before = v < 0
			v = abs64(v)
		} else if before {
			v = -v
		}
		dst = strconv.AppendInt(append(dst, ' '), v, 10)
		dst = append(append(dst, ' '), unit...)
		if v != 1 {
			dst = append(dst, 's')
		}
		zero = false
	}
	part(p.year, "year")
	part(p.mon, "mon")
	part(p.day, "day")
	part(p.hour, "hour")
	part(p.min, "min")
	if p.sec != 0 || p.us != 0 {
		dst = append(dst, ' ')
		switch neg := p.sec < 0 || p.us < 0; {
		case neg && zero:
			before = true
		case neg != before:
			dst = append(dst, '-')
		}
		dst = append(p.appendSeconds(dst, false), " sec"...)
		if abs64(p.sec) != 1 || p.us != 0 {
			dst = append(dst, 's')
		}
		zero = false
	}
	if zero {
		dst = append(dst, " 0"...)
	}
	if before {
		dst = append(dst, " ago"...)
	}
	return dst
}

func (p *ivlParts) appendSQLStandard(dst []byte) []byte {
	hasYM := p.year != 0 || p.mon != 0
	neg := p.year < 0 || p.mon < 0 || p.day < 0 || p.negTime
	pos := p.year > 0 || p.mon > 0 || p.day > 0 || p.hasTime && !p.negTime
	standard := !(neg && pos) && !(hasYM && (p.day != 0 || p.hasTime))
	sign := func(negative bool) byte {
		if negative {
			return '-'
		}
		return '+'
	}
	switch {
	case !neg && !pos:
		return append(dst, '0')
	case !standard:
		dst = strconv.AppendInt(append(dst, sign(p.year < 0 || p.mon < 0)), abs64(p.year), 10)
		dst = strconv.AppendInt(append(dst, '-'), abs64(p.mon), 10)
		dst = strconv.AppendInt(append(dst, ' ', sign(p.day < 0)), abs64(p.day), 10)
		dst = appendHourMin(append(dst, ' ', sign(p.negTime)), p, false)
		return p.appendSeconds(dst, true)
	}
	if neg {
		dst = append(dst, '-')
	}
	if hasYM {
		dst = strconv.AppendInt(dst, abs64(p.year), 10)
		return strconv.AppendInt(append(dst, '-'), abs64(p.mon), 10)
	}
	if p.day != 0 {
		dst = append(strconv.AppendInt(dst, abs64(p.day), 10), ' ')
	}
	return p.appendSeconds(appendHourMin(dst, p, false), true)
}

func (p *ivlParts) appendISO8601(dst []byte) []byte {
	if p.year == 0 && p.mon == 0 && p.day == 0 && !p.hasTime {
		return append(dst, "PT0S"...)
	}
	part := func(v int64, unit byte) {
		if v != 0 {
			dst = append(strconv.AppendInt(dst, v, 10), unit)
		}
	}
	dst = append(dst, 'P')
	part(p.year, 'Y')
	part(p.mon, 'M')
	part(p.day, 'D')
	if p.hasTime {
		dst = append(dst, 'T')
	}
	part(p.hour, 'H')
	part(p.min, 'M')
	if p.sec != 0 || p.us != 0 {
		if p.negTime {
			dst = append(dst, '-')
		}
		dst = append(p.appendSeconds(dst, false), 'S')
	}
	return dst
}
