package types

import (
	"strconv"
	"strings"
)

// DateStyle selects the text form of dates and timestamps.
type DateStyle uint8

// The date styles of PostgreSQL.
const (
	DateISO DateStyle = iota
	DateSQL
	DatePostgres
	DateGerman
)

// DateOrder is the order of day, month and year in texts that leave it open, and in those of the styles SQL and Postgres.
type DateOrder uint8

// The orders.
const (
	OrderMDY DateOrder = iota
	OrderDMY
	OrderYMD
)

func (f *Format) dateStyle() (DateStyle, DateOrder) {
	if f == nil {
		return DateISO, OrderMDY
	}
	return f.DateStyle, f.DateOrder
}

func appendYear(dst []byte, year int) []byte {
	if year <= 0 {
		year = 1 - year
	}
	for unit := 1000; unit > 1 && year < unit; unit /= 10 {
		dst = append(dst, '0')
	}
	return strconv.AppendInt(dst, int64(year), 10)
}

// appendStyledDate appends the digits of a date in a style other than ISO, without BC.
func appendStyledDate(dst []byte, style DateStyle, order DateOrder, year, month, day int) []byte {
	sep := byte('/')
	switch style {
	case DatePostgres:
		sep = '-'
	case DateGerman:
		sep = '.'
	}
	first, second := month, day
	if order == OrderDMY || style == DateGerman {
		first, second = day, month
	}
	dst = append(append2(dst, first), sep)
	return appendYear(append(append2(dst, second), sep), year)
}

func appendDateIn(dst []byte, f *Format, days int64) []byte {
	style, order := f.dateStyle()
	if style == DateISO || days == DateInfinity || days == DateNegInfinity {
		return AppendDate(dst, days)
	}
	y, m, d := CivilFromDays(days)
	return appendEra(appendStyledDate(dst, style, order, y, m, d), y)
}

func appendEra(dst []byte, year int) []byte {
	if year <= 0 {
		return append(dst, " BC"...)
	}
	return dst
}

func appendTimestampIn(dst []byte, f *Format, ts int64) []byte {
	style, order := f.dateStyle()
	if style == DateISO || IsTimestampInfinite(ts) {
		return AppendTimestamp(dst, ts)
	}
	return appendStyled(dst, style, order, ts, "")
}

func appendTimestamptzIn(dst []byte, f *Format, ts int64) []byte {
	style, order := f.dateStyle()
	if style == DateISO || IsTimestampInfinite(ts) {
		return AppendTimestamptz(dst, f, ts)
	}
	off, abbrev := zoneOffset(ts, f.location())
	if abbrev == "" {
		abbrev = string(appendZone(nil, off))
	}
	if rest, ok := strings.CutPrefix(abbrev, "<"); ok {
		abbrev, _, _ = strings.Cut(rest, ">")
	}
	return appendStyled(dst, style, order, ts+int64(off)*microsPerSecond, abbrev)
}

// Names of days, from Sunday, and months as the style Postgres prints them.
var (
	shortDays   = [...]string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}
	shortMonths = [...]string{"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"}
)

const (
	daysPerWeek  = 7
	epochWeekday = 6 // 2000-01-01 was a Saturday
)

// appendStyled appends a local timestamp in a style other than ISO, with a zone's name where there is one.
func appendStyled(dst []byte, style DateStyle, order DateOrder, local int64, zone string) []byte {
	days := floorDiv64(local, microsPerDay)
	us := local - days*microsPerDay
	y, m, d := CivilFromDays(days)
	if style == DatePostgres {
		weekday := (days%daysPerWeek + daysPerWeek + epochWeekday) % daysPerWeek
		dst = append(append(dst, shortDays[weekday]...), ' ')
		if order == OrderDMY {
			dst = append(append(append2(dst, d), ' '), shortMonths[m-1]...)
		} else {
			dst = append2(append(append(dst, shortMonths[m-1]...), ' '), d)
		}
		dst = append(AppendTime(append(dst, ' '), us), ' ')
		dst = appendYear(dst, y)
	} else {
		dst = appendStyledDate(dst, style, order, y, m, d)
		dst = AppendTime(append(dst, ' '), us)
	}
	if zone != "" {
		dst = append(append(dst, ' '), zone...)
	}
	return appendEra(dst, y)
}

// ReadsDateOrder reports whether the meaning of a date's text depends on DateStyle: it does unless a year of three or more digits comes first.
func ReadsDateOrder(s string) bool {
	i := strings.IndexFunc(s, func(r rune) bool { return r >= '0' && r <= '9' })
	if i < 0 {
		return false
	}
	n := 0
	for i+n < len(s) && isDigit(s[i+n]) {
		n++
	}
	return n < 3
}
