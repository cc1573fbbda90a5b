package types

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// The readers below follow PostgreSQL's datetime.c field by field: text is cut into fields (splitDateTime), each field claims the date
// parts it gives (a bit mask), and a part claimed twice is an error. Format.DateOrder decides where the text leaves it open.

// fieldType classifies the fields of date/time text.
type fieldType uint8

const (
	ftNumber  fieldType = iota
	ftString            // text: month, zone, keyword
	ftDate              // digits or text with - / . inside
	ftTime              // digits with :
	ftZone              // signed number
	ftSpecial           // signed text
)

// maxDateFields bounds the fields of date/time text, maxDateText its length in bytes.
const (
	maxDateFields = 25
	maxDateText   = 128
)

type dateField struct {
	typ  fieldType
	text string
}

// dtErr is a failure of a date/time reader, without the text that names it.
type dtErr uint8

const (
	dtOK dtErr = iota
	dtBadFormat
	dtFieldOverflow
	dtMDFieldOverflow
	dtIntervalOverflow
	dtZoneOverflow
	dtIntervalRange
)

func (e dtErr) report(typ, text string) error {
	switch e {
	case dtFieldOverflow:
		return pgerr.Newf(pgerr.DatetimeFieldOverflow, "date/time field value out of range: \"%s\"", text)
	case dtMDFieldOverflow:
		return pgerr.Newf(pgerr.DatetimeFieldOverflow, "date/time field value out of range: \"%s\"", text).WithHint("Perhaps you need a different \"datestyle\" setting.")
	case dtIntervalOverflow:
		return pgerr.Newf(pgerr.IntervalFieldOverflow, "interval field value out of range: \"%s\"", text)
	case dtIntervalRange:
		return errIntervalRange()
	case dtZoneOverflow:
		return pgerr.Newf(pgerr.InvalidTimeZoneDisplacementValue, "time zone displacement out of range: \"%s\"", text)
	}
	return pgerr.Newf(pgerr.InvalidDatetimeFormat, "invalid input syntax for type %s: \"%s\"", typ, text)
}

func isAlnum(c byte) bool { return isAlpha(c) || isDigit(c) }
func isPunct(c byte) bool { return c > ' ' && c < 0x7F && !isAlnum(c) }

// splitDateTime cuts text into fields, folded to lower case.
func splitDateTime(text string) ([]dateField, dtErr) {
	if len(text) > maxDateText {
		return nil, dtBadFormat
	}
	s := strings.ToLower(text)
	fields := make([]dateField, 0, 8)
	at := func(i int) byte {
		if i < len(s) {
			return s[i]
		}
		return 0
	}
	run := func(i int, ok func(byte) bool) int {
		for i < len(s) && ok(s[i]) {
			i++
		}
		return i
	}
	for i := 0; i < len(s); {
		start := i
		var typ fieldType
		prefix := ""
		switch c := s[i]; {
		case isSpace(c):
			i++
			continue
		case isDigit(c):
			i = run(i, isDigit)
			switch delim := at(i); delim {
			case ':':
				typ = ftTime
				i = run(i, func(c byte) bool { return isDigit(c) || c == ':' || c == '.' })
			case '-', '/', '.':
				i++
				if isDigit(at(i)) {
					typ = ftDate
					if delim == '.' {
						typ = ftNumber
					}
					if i = run(i, isDigit); at(i) == delim {
						typ = ftDate
						i = run(i, func(c byte) bool { return isDigit(c) || c == delim })
					}
				} else {
					typ = ftDate
					i = run(i, func(c byte) bool { return isAlnum(c) || c == delim })
				}
			default:
				typ = ftNumber
			}
		case c == '.':
			typ = ftNumber
			i = run(i+1, isDigit)
		case isAlpha(c):
			typ = ftString
			i = run(i, isAlpha)
			isDate := false
			switch d := at(i); {
			case d == '-' || d == '/' || d == '.':
				isDate = true
			case d == '+' || isDigit(d):
				_, known := dateTokens[cutToken(s[start:i])]
				isDate = !known
			}
			if isDate {
				typ = ftDate
				i = run(i, func(c byte) bool {
					return isAlnum(c) || c == '+' || c == '-' || c == '/' || c == '_' || c == '.' || c == ':'
				})
			}
		case c == '+' || c == '-':
			prefix = s[i : i+1]
			i = run(i+1, isSpace)
			start = i
			switch d := at(i); {
			case isDigit(d):
				typ = ftZone
				i = run(i, func(c byte) bool { return isDigit(c) || c == ':' || c == '.' || c == '-' })
			case isAlpha(d):
				typ = ftSpecial
				i = run(i, isAlpha)
			default:
				return nil, dtBadFormat
			}
		case isPunct(c):
			i++
			continue
		default:
			return nil, dtBadFormat
		}
		if len(fields) >= maxDateFields {
			return nil, dtBadFormat
		}
		fields = append(fields, dateField{typ, prefix + s[start:i]})
	}
	return fields, dtOK
}

// tokenKind classifies keywords of date/time text.
type tokenKind uint8

const (
	tkUnknown tokenKind = iota
	tkMonth
	tkWeekday
	tkAMPM
	tkADBC
	tkIgnore
	tkReserved
	tkDSTMod
	tkUnits
	tkISOTime
	tkAgo
)

type dateToken struct {
	kind tokenKind
	val  int
}

// Values of tkReserved, tkAMPM and tkUnits tokens.
const (
	rvNow = iota
	rvToday
	rvTomorrow
	rvYesterday
	rvZulu
	rvEpoch
	rvInfinity
	rvNegInfinity
)

const (
	mer24 = iota
	merAM
	merPM
)

const (
	unitNone = iota
	unitMicrosecond
	unitMillisecond
	unitSecond
	unitMinute
	unitHour
	unitDay
	unitWeek
	unitMonth
	unitQuarter
	unitYear
	unitDecade
	unitCentury
	unitMillennium
	unitJulian
	unitTime
)

var dateTokens = map[string]dateToken{
	"-infinity": {tkReserved, rvNegInfinity}, "+infinity": {tkReserved, rvInfinity}, "infinity": {tkReserved, rvInfinity},
	"epoch": {tkReserved, rvEpoch}, "now": {tkReserved, rvNow}, "today": {tkReserved, rvToday}, "tomorrow": {tkReserved, rvTomorrow},
	"yesterday": {tkReserved, rvYesterday}, "allballs": {tkReserved, rvZulu},
	"ad": {tkADBC, 0}, "bc": {tkADBC, 1}, "am": {tkAMPM, merAM}, "pm": {tkAMPM, merPM}, "at": {tkIgnore, 0}, "on": {tkIgnore, 0},
	"dst": {tkDSTMod, 3600}, "t": {tkISOTime, unitTime},
	"j": {tkUnits, unitJulian}, "jd": {tkUnits, unitJulian}, "julian": {tkUnits, unitJulian},
	"d": {tkUnits, unitDay}, "h": {tkUnits, unitHour}, "m": {tkUnits, unitMonth}, "mm": {tkUnits, unitMinute}, "s": {tkUnits, unitSecond}, "y": {tkUnits, unitYear},
	"jan": {tkMonth, 1}, "january": {tkMonth, 1}, "feb": {tkMonth, 2}, "february": {tkMonth, 2}, "mar": {tkMonth, 3}, "march": {tkMonth, 3},
	"apr": {tkMonth, 4}, "april": {tkMonth, 4}, "may": {tkMonth, 5}, "jun": {tkMonth, 6}, "june": {tkMonth, 6}, "jul": {tkMonth, 7}, "july": {tkMonth, 7},
	"aug": {tkMonth, 8}, "august": {tkMonth, 8}, "sep": {tkMonth, 9}, "sept": {tkMonth, 9}, "september": {tkMonth, 9},
	"oct": {tkMonth, 10}, "october": {tkMonth, 10}, "nov": {tkMonth, 11}, "november": {tkMonth, 11}, "dec": {tkMonth, 12}, "december": {tkMonth, 12},
	"sun": {tkWeekday, 0}, "sunday": {tkWeekday, 0}, "mon": {tkWeekday, 1}, "monday": {tkWeekday, 1}, "tue": {tkWeekday, 2}, "tues": {tkWeekday, 2}, "tuesday": {tkWeekday, 2},
	"wed": {tkWeekday, 3}, "weds": {tkWeekday, 3}, "wednesday": {tkWeekday, 3}, "thu": {tkWeekday, 4}, "thur": {tkWeekday, 4}, "thurs": {tkWeekday, 4}, "thursday": {tkWeekday, 4},
	"fri": {tkWeekday, 5}, "friday": {tkWeekday, 5}, "sat": {tkWeekday, 6}, "saturday": {tkWeekday, 6},
}

// tokenLen is PostgreSQL's TOKMAXLEN: longer keywords are compared by their first characters.
const tokenLen = 10

func cutToken(s string) string { return s[:min(len(s), tokenLen)] }

// Bits of the parts of a date/time.
const (
	maskMonth  = 1 << fieldMonth
	maskYear   = 1 << fieldYear
	maskDay    = 1 << fieldDay
	maskTZ     = 1 << 5
	maskDTZ    = 1 << 6
	maskAMPM   = 1 << 9
	maskHour   = 1 << fieldHour
	maskMinute = 1 << fieldMinute
	maskSecond = 1 << fieldSecond
	maskMilli  = 1 << 13
	maskMicro  = 1 << 14
	maskDOY    = 1 << 15
	maskDOW    = 1 << 16
	maskADBC   = 1 << 18
	maskWeek   = 1 << 24
	maskDSTMod = 1 << 28
	maskDecade = 1 << 25
	maskCent   = 1 << 26
	maskMill   = 1 << 27

	maskDate    = maskYear | maskMonth | maskDay
	maskAllSecs = maskSecond | maskMilli | maskMicro
	maskTime    = maskHour | maskMinute | maskAllSecs
)
