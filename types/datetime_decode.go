package types

import (
	"math"
	"strconv"
	"strings"
	"time"
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
		switch _, order := d.f.dateStyle(); {
		case len(s) >= 3 || order == OrderYMD:
			tmask = maskYear
		case order == OrderDMY:
			tmask = maskDay
		default:
			tmask = maskMonth
		}
	case maskYear, maskDay:
		tmask = maskMonth
	case maskMonth:
		tmask = maskDay
		if _, order := d.f.dateStyle(); d.textMonth && (len(s) >= 3 || order == OrderYMD) {
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
