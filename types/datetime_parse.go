package types

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// The readers below follow PostgreSQL's datetime.c field by field: text is cut into fields (splitDateTime), each field claims the date
// parts it gives (a bit mask), and a part claimed twice is an error. DateStyle is ISO, MDY.

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

// dateDecoder gathers the parts of one date/time text.
type dateDecoder struct {
	f         *Format
	c         Civil
	yday      int
	mask      int
	is2digits bool
	isJulian  bool
	textMonth bool
	bc        bool
	mer       int
	special   int // rvEpoch, rvInfinity, rvNegInfinity; -1 for none
	east      int // offset in seconds east of UTC, when maskTZ is set and zone is nil
	zone      *time.Location
	badZone   string
	noNow     bool
	timeOnly  bool
	abbrev    string // zone was given by this abbreviation
}

// atoi reads leading digits like strtoint; rest is what follows them.
func atoi(s string) (v int, rest string, ok bool) {
	i := 0
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		i++
	}
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	n, err := strconv.ParseInt(s[:i], 10, 32)
	if err != nil {
		if i == 0 || i == 1 && !isDigit(s[0]) {
			return 0, s, true
		}
		return 0, s[i:], false
	}
	return int(n), s[i:], true
}

// fraction reads ".digits" as microseconds, rounded.
func fraction(s string) (int, dtErr) {
	if len(s) == 1 {
		return 0, dtOK
	}
	for i := 1; i < len(s); i++ {
		if !isDigit(s[i]) {
			return 0, dtBadFormat
		}
	}
	v, err := strconv.ParseFloat("0"+s, 64)
	if err != nil {
		return 0, dtBadFormat
	}
	return int(math.RoundToEven(v * 1e6)), dtOK
}

func (d *dateDecoder) decodeTime(s string, rng int32) dtErr {
	h, rest, ok := atoi(s)
	if !ok {
		return dtFieldOverflow
	}
	if rest == "" || rest[0] != ':' {
		return dtBadFormat
	}
	m, rest, ok := atoi(rest[1:])
	if !ok {
		return dtFieldOverflow
	}
	sec, us, e := 0, 0, dtOK
	switch {
	case rest == "":
		if rng == 1<<fieldMinute|1<<fieldSecond {
			h, m, sec = 0, h, m
		}
	case rest[0] == '.':
		us, e = fraction(rest)
		h, m, sec = 0, h, m
	case rest[0] == ':':
		if sec, rest, ok = atoi(rest[1:]); !ok {
			return dtFieldOverflow
		}
		if rest != "" {
			if rest[0] != '.' {
				return dtBadFormat
			}
			us, e = fraction(rest)
		}
	default:
		return dtBadFormat
	}
	if e != dtOK {
		return e
	}
	if h < 0 || m < 0 || m > 59 || sec < 0 || sec > 60 {
		return dtFieldOverflow
	}
	d.c.Hour, d.c.Minute, d.c.Second, d.c.Micros = h, m, sec, us
	return dtOK
}

func (d *dateDecoder) timeOverflows() bool {
	c := &d.c
	return c.Hour < 0 || c.Hour > 24 || c.Minute < 0 || c.Minute > 59 || c.Second < 0 || c.Second > 60 || c.TimeOfDay() > microsPerDay
}

// decodeZone reads +hh, +hh:mm, +hhmm, +hh:mm:ss.
func decodeZone(s string) (east int, e dtErr) {
	if s == "" || s[0] != '+' && s[0] != '-' {
		return 0, dtBadFormat
	}
	h, rest, ok := atoiDigits(s[1:])
	if !ok {
		return 0, dtZoneOverflow
	}
	m, sec := 0, 0
	if rest != "" && rest[0] == ':' {
		if m, rest, ok = atoiDigits(rest[1:]); !ok {
			return 0, dtZoneOverflow
		}
		if rest != "" && rest[0] == ':' {
			if sec, rest, ok = atoiDigits(rest[1:]); !ok {
				return 0, dtZoneOverflow
			}
		}
	} else if rest == "" && len(s) > 3 {
		h, m = h/100, h%100
	}
	if h < 0 || h > 15 || m > 59 || sec > 59 {
		return 0, dtZoneOverflow
	}
	if rest != "" {
		return 0, dtBadFormat
	}
	east = (h*60+m)*60 + sec
	if s[0] == '-' {
		east = -east
	}
	return east, dtOK
}

func atoiDigits(s string) (int, string, bool) {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		return 0, s, true
	}
	return atoi(s)
}

func (d *dateDecoder) decodeNumberField(s string, mask int) (tmask int, e dtErr) {
	if p := strings.IndexByte(s, '.'); p >= 0 {
		if d.c.Micros, e = fraction(s[p:]); e != dtOK {
			return 0, e
		}
		s = s[:p]
	} else if mask&maskDate != maskDate && len(s) >= 6 {
		n := len(s)
		d.c.Day, _, _ = atoi(s[n-2:])
		d.c.Month, _, _ = atoi(s[n-4 : n-2])
		y, _, ok := atoi(s[:n-4])
		if !ok {
			return 0, dtFieldOverflow
		}
		d.c.Year = y
		d.is2digits = n-4 == 2
		return maskDate, dtOK
	}
	if mask&maskTime != maskTime && (len(s) == 6 || len(s) == 4) {
		d.c.Hour, _, _ = atoi(s[:2])
		d.c.Minute, _, _ = atoi(s[2:4])
		d.c.Second = 0
		if len(s) == 6 {
			d.c.Second, _, _ = atoi(s[4:])
		}
		return maskTime, dtOK
	}
	return 0, dtBadFormat
}

func (d *dateDecoder) decodeNumber(s string, mask int) (tmask int, e dtErr) {
	v, rest, ok := atoi(s)
	if !ok {
		return 0, dtFieldOverflow
	}
	if len(rest) == len(s) {
		return 0, dtBadFormat
	}
	if rest != "" {
		if rest[0] != '.' {
			return 0, dtBadFormat
		}
		if len(s)-len(rest) > 2 {
			return d.decodeNumberField(s, mask|maskDate)
		}
		if d.c.Micros, e = fraction(rest); e != dtOK {
			return 0, e
		}
	}
	if len(s) == 3 && mask&maskDate == maskYear && v >= 1 && v <= 366 {
		d.yday = v
		return maskDOY | maskMonth | maskDay, dtOK
	}
	switch mask & maskDate {
	case 0:
		if len(s) >= 3 {
			tmask = maskYear
		} else {
			tmask = maskMonth
		}
	case maskYear, maskDay:
		tmask = maskMonth
	case maskMonth:
		tmask = maskDay
		if d.textMonth && len(s) >= 3 {
			tmask = maskYear
		}
	case maskYear | maskMonth:
		tmask = maskDay
		if d.textMonth && len(s) >= 3 && d.is2digits {
			d.c.Day, d.c.Year, d.is2digits = d.c.Year, v, false
			return maskDay, dtOK
		}
	case maskMonth | maskDay:
		tmask = maskYear
	case maskDate:
		return d.decodeNumberField(s, mask)
	default:
		return 0, dtBadFormat
	}
	switch tmask {
	case maskYear:
		d.c.Year, d.is2digits = v, len(s) <= 2
	case maskMonth:
		d.c.Month = v
	case maskDay:
		d.c.Day = v
	}
	return tmask, dtOK
}

// decodeDate reads a field such as 2024-07-04, 7/4/2024 or 4-jul-2024.
func (d *dateDecoder) decodeDate(s string, mask int) (tmask int, e dtErr) {
	var parts []string
	for i := 0; i < len(s) && len(parts) < maxDateFields; {
		for i < len(s) && !isAlnum(s[i]) {
			i++
		}
		if i >= len(s) {
			return 0, dtBadFormat
		}
		from := i
		ok := isAlpha
		if isDigit(s[i]) {
			ok = isDigit
		}
		for i < len(s) && ok(s[i]) {
			i++
		}
		parts = append(parts, s[from:i])
		if i < len(s) {
			// PostgreSQL drops one character here whatever it is; a letter after digits is thus lost there too.
			i++
		}
	}
	claim := func(m int) bool {
		if mask&m != 0 {
			return false
		}
		mask |= m
		tmask |= m
		return true
	}
	for i, p := range parts {
		if !isAlpha(p[0]) {
			continue
		}
		t := dateTokens[cutToken(p)]
		if t.kind == tkIgnore {
			continue
		}
		if t.kind != tkMonth || !claim(maskMonth) {
			return 0, dtBadFormat
		}
		d.c.Month, d.textMonth = t.val, true
		parts[i] = ""
	}
	for _, p := range parts {
		if p == "" {
			continue
		}
		m, e := d.decodeNumber(p, mask)
		if e != dtOK {
			return 0, e
		}
		if !claim(m) {
			return 0, dtBadFormat
		}
	}
	if mask&^(maskDOY|maskTZ) != maskDate {
		return 0, dtBadFormat
	}
	return tmask, dtOK
}

func (d *dateDecoder) setJulian(j int) {
	d.c.Year, d.c.Month, d.c.Day = CivilFromDays(int64(j) - pgEpochJulian)
	d.isJulian = true
}

// now returns the session's current local time.
func (d *dateDecoder) now() (Civil, int, bool) {
	if d.f == nil || d.f.Now.IsZero() {
		d.noNow = true
		return Civil{}, 0, false
	}
	ts := TimestampFromTime(d.f.Now)
	off, _ := zoneOffset(ts, d.f.location())
	return CivilFromTimestamp(ts + int64(off)*microsPerSecond), off, true
}

func (d *dateDecoder) reserved(v int) (tmask int, e dtErr) {
	switch v {
	case rvNow:
		c, off, ok := d.now()
		if !ok {
			return 0, dtBadFormat
		}
		d.c, d.east = c, off
		return maskDate | maskTime | maskTZ, dtOK
	case rvToday, rvTomorrow, rvYesterday:
		c, _, ok := d.now()
		if !ok {
			return 0, dtBadFormat
		}
		days := DaysFromCivil(c.Year, c.Month, c.Day)
		switch v {
		case rvTomorrow:
			days++
		case rvYesterday:
			days--
		}
		d.c.Year, d.c.Month, d.c.Day = CivilFromDays(days)
		d.isJulian = true
		return maskDate, dtOK
	case rvZulu:
		d.east = 0
		d.c.Hour, d.c.Minute, d.c.Second = 0, 0, 0
		return maskTime | maskTZ, dtOK
	}
	d.special = v
	return maskDate | maskTime | maskTZ, dtOK
}

// text handles ftString and ftSpecial fields; ptype is the unit it labels the next field with.
func (d *dateDecoder) text(fields []dateField, i int) (tmask, ptype int, e dtErr) {
	s := fields[i].text
	if off, zone, ok := AbbrevOffset(s); ok {
		if zone != nil {
			d.zone, d.abbrev = zone, s
			return maskTZ, 0, dtOK
		}
		d.east = off
		if zoneAbbrevs[s].dst {
			return maskTZ | maskDTZ, 0, dtOK
		}
		return maskTZ, 0, dtOK
	}
	t := dateTokens[cutToken(s)]
	switch t.kind {
	case tkIgnore:
		return 0, -1, dtOK
	case tkReserved:
		tmask, e = d.reserved(t.val)
		return tmask, 0, e
	case tkMonth:
		tmask = maskMonth
		if d.mask&maskMonth != 0 && !d.textMonth && d.mask&maskDay == 0 && d.c.Month >= 1 && d.c.Month <= 31 {
			d.c.Day, tmask = d.c.Month, maskDay
		}
		d.textMonth, d.c.Month = true, t.val
		return tmask, 0, dtOK
	case tkDSTMod:
		d.east += t.val
		return maskDSTMod | maskDTZ, 0, dtOK
	case tkAMPM:
		d.mer = t.val
		return maskAMPM, 0, dtOK
	case tkADBC:
		d.bc = t.val == 1
		return maskADBC, 0, dtOK
	case tkWeekday:
		return maskDOW, 0, dtOK
	case tkUnits:
		return 0, t.val, dtOK
	case tkISOTime:
		if !d.timeOnly && d.mask&maskDate != maskDate || i+1 >= len(fields) {
			return 0, 0, dtBadFormat
		}
		switch fields[i+1].typ {
		case ftNumber, ftTime, ftDate:
			return 0, unitTime, dtOK
		}
		return 0, 0, dtBadFormat
	}
	loc, ok := LookupZone(s)
	if !ok || fields[i].typ == ftSpecial {
		return 0, 0, dtBadFormat
	}
	d.zone = loc
	return maskTZ, 0, dtOK
}

// labelled handles a number that the field before it named (J, T, and single letters).
func (d *dateDecoder) labelled(s string, ptype int) (tmask int, e dtErr) {
	v, rest, ok := atoi(s)
	if !ok {
		return 0, dtFieldOverflow
	}
	if rest != "" && (rest[0] != '.' || ptype != unitJulian && ptype != unitTime && ptype != unitSecond) {
		return 0, dtBadFormat
	}
	switch ptype {
	case unitJulian:
		if v < 0 {
			return 0, dtFieldOverflow
		}
		d.setJulian(v)
		if rest == "" {
			return maskDate, dtOK
		}
		f, err := strconv.ParseFloat("0"+rest, 64)
		if err != nil {
			return 0, dtBadFormat
		}
		t := civilTime(int64(f * float64(microsPerDay)))
		d.c.Hour, d.c.Minute, d.c.Second, d.c.Micros = t.Hour, t.Minute, t.Second, t.Micros
		return maskDate | maskTime, dtOK
	case unitTime:
		tmask, e = d.decodeNumberField(s, d.mask|maskDate)
		if e == dtOK && tmask != maskTime {
			e = dtBadFormat
		}
		return tmask, e
	case unitYear:
		d.c.Year = v
		return maskYear, dtOK
	case unitMonth:
		// "m" after a month and with an hour already given means minutes.
		if d.mask&maskMonth != 0 && d.mask&maskHour != 0 {
			d.c.Minute = v
			return maskMinute, dtOK
		}
		d.c.Month = v
		return maskMonth, dtOK
	case unitDay:
		d.c.Day = v
		return maskDay, dtOK
	case unitHour:
		d.c.Hour = v
		return maskHour, dtOK
	case unitMinute:
		d.c.Minute = v
		return maskMinute, dtOK
	case unitSecond:
		d.c.Second = v
		tmask = maskSecond
		if rest != "" {
			tmask = maskAllSecs
			d.c.Micros, e = fraction(rest)
		}
		return tmask, e
	}
	return 0, dtBadFormat
}

// embeddedDate handles an ftDate field where a date is known already: a zone name, or digits of a time with a zone behind them.
func (d *dateDecoder) embeddedDate(s string, labelled bool, mask int) (tmask int, e dtErr) {
	if !isDigit(s[0]) && !labelled {
		loc, ok := LookupZone(s)
		if !ok {
			d.badZone = s
			return 0, dtBadFormat
		}
		d.zone = loc
		return maskTZ, dtOK
	}
	if mask&maskTime == maskTime {
		return 0, dtBadFormat
	}
	p := strings.IndexByte(s, '-')
	if p < 0 {
		return 0, dtBadFormat
	}
	if d.east, e = decodeZone(s[p:]); e != dtOK {
		return 0, e
	}
	tmask, e = d.decodeNumberField(s[:p], mask)
	return tmask | maskTZ, e
}

// decode reads a date with an optional time and zone. timeOnly reads a time with an optional date and zone.
func (d *dateDecoder) decode(fields []dateField, timeOnly bool) dtErr {
	ptype := 0
	for i, f := range fields {
		tmask, e := 0, dtOK
		switch f.typ {
		case ftDate:
			tmask, e, ptype = d.dateField(fields, i, ptype, timeOnly)
		case ftTime:
			if ptype != 0 && ptype != unitTime {
				return dtBadFormat
			}
			ptype, tmask = 0, maskTime
			if e = d.decodeTime(f.text, intervalFullRange); e == dtOK && d.timeOverflows() {
				e = dtFieldOverflow
			}
		case ftZone:
			d.east, e = decodeZone(f.text)
			tmask = maskTZ
		case ftNumber:
			if ptype != 0 {
				tmask, e = d.labelled(f.text, ptype)
				ptype = 0
				break
			}
			tmask, e = d.number(fields, i, timeOnly)
		default:
			var p int
			if tmask, p, e = d.text(fields, i); p < 0 {
				continue
			}
			ptype = p
		}
		if e != dtOK {
			return e
		}
		if tmask&d.mask != 0 {
			return dtBadFormat
		}
		d.mask |= tmask
	}
	if e := d.validate(); e != dtOK {
		return e
	}
	switch {
	case d.mer != mer24 && d.c.Hour > 12:
		return dtFieldOverflow
	case d.mer == merAM && d.c.Hour == 12:
		d.c.Hour = 0
	case d.mer == merPM && d.c.Hour != 12:
		d.c.Hour += 12
	}
	return dtOK
}

func (d *dateDecoder) dateField(fields []dateField, i, ptype int, timeOnly bool) (tmask int, e dtErr, next int) {
	s := fields[i].text
	switch {
	case timeOnly:
		if i == 0 && len(fields) >= 2 && (fields[len(fields)-1].typ == ftDate || fields[1].typ == ftTime) {
			tmask, e = d.decodeDate(s, d.mask)
			break
		}
		tmask, e = d.embeddedDate(s, ptype != 0, d.mask|maskDate)
	case ptype == unitJulian:
		v, rest, ok := atoi(s)
		if !ok || v < 0 {
			return 0, dtFieldOverflow, 0
		}
		d.setJulian(v)
		d.east, e = decodeZone(rest)
		tmask = maskDate | maskTime | maskTZ
	case ptype != 0 || d.mask&(maskMonth|maskDay) == maskMonth|maskDay:
		if ptype != 0 && ptype != unitTime {
			return 0, dtBadFormat, 0
		}
		tmask, e = d.embeddedDate(s, ptype != 0, d.mask)
	default:
		tmask, e = d.decodeDate(s, d.mask)
	}
	return tmask, e, 0
}

func (d *dateDecoder) number(fields []dateField, i int, timeOnly bool) (tmask int, e dtErr) {
	s := fields[i].text
	point := strings.IndexByte(s, '.')
	if timeOnly {
		switch {
		case point >= 0 && i == 0 && len(fields) >= 2 && fields[len(fields)-1].typ == ftDate:
			return d.decodeDate(s, d.mask)
		case point > 2:
			return d.decodeNumberField(s, d.mask|maskDate)
		case point >= 0:
			return 0, dtBadFormat
		case len(s) > 4:
			return d.decodeNumberField(s, d.mask|maskDate)
		}
		return d.decodeNumber(s, d.mask|maskDate)
	}
	switch {
	case point >= 0 && d.mask&maskDate == 0:
		return d.decodeDate(s, d.mask)
	case point > 2:
		return d.decodeNumberField(s, d.mask)
	case len(s) >= 6 && (d.mask&maskDate == 0 || d.mask&maskTime == 0):
		return d.decodeNumberField(s, d.mask)
	}
	return d.decodeNumber(s, d.mask)
}

// validate is PostgreSQL's ValidateDate.
func (d *dateDecoder) validate() dtErr {
	c := &d.c
	if d.special >= 0 {
		return dtOK
	}
	if d.mask&maskYear != 0 && !d.isJulian {
		switch {
		case d.bc:
			if c.Year <= 0 {
				return dtFieldOverflow
			}
			c.Year = 1 - c.Year
		case d.is2digits:
			switch {
			case c.Year < 0:
				return dtFieldOverflow
			case c.Year < 70:
				c.Year += 2000
			case c.Year < 100:
				c.Year += 1900
			}
		case c.Year <= 0 && d.mask&maskTZ == 0:
			return dtFieldOverflow
		case c.Year <= 0:
			return dtFieldOverflow
		}
	}
	if d.mask&maskDOY != 0 {
		c.Year, c.Month, c.Day = CivilFromDays(DaysFromCivil(c.Year, 1, 1) + int64(d.yday) - 1)
	}
	if d.mask&maskMonth != 0 && (c.Month < 1 || c.Month > 12) {
		return dtMDFieldOverflow
	}
	if d.mask&maskDay != 0 && (c.Day < 1 || c.Day > 31) {
		return dtMDFieldOverflow
	}
	if d.mask&maskDate == maskDate && c.Day > daysInMonth(c.Year, c.Month) {
		return dtFieldOverflow
	}
	return dtOK
}

// offset returns the zone of the text in seconds east of UTC, the session's when it names none.
func (d *dateDecoder) offset(local int64) int {
	switch {
	case d.abbrev != "":
		return abbrevOffsetAt(local, d.zone, d.abbrev)
	case d.zone != nil:
		return localOffset(local, d.zone)
	case d.mask&maskTZ != 0:
		return d.east
	}
	return localOffset(local, d.f.location())
}

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
