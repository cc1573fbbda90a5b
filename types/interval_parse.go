package types

import (
	"math"
	"strconv"
	"strings"
)

// intervalUnits are the unit words of interval text, cut to tokenLen.
var intervalUnits = map[string]dateToken{
	"@": {tkIgnore, 0}, "ago": {tkAgo, 0},
	"c": {tkUnits, unitCentury}, "cent": {tkUnits, unitCentury}, "centuries": {tkUnits, unitCentury}, "century": {tkUnits, unitCentury},
	"d": {tkUnits, unitDay}, "day": {tkUnits, unitDay}, "days": {tkUnits, unitDay},
	"dec": {tkUnits, unitDecade}, "decade": {tkUnits, unitDecade}, "decades": {tkUnits, unitDecade}, "decs": {tkUnits, unitDecade},
	"h": {tkUnits, unitHour}, "hour": {tkUnits, unitHour}, "hours": {tkUnits, unitHour}, "hr": {tkUnits, unitHour}, "hrs": {tkUnits, unitHour},
	"m": {tkUnits, unitMinute}, "min": {tkUnits, unitMinute}, "mins": {tkUnits, unitMinute}, "minute": {tkUnits, unitMinute}, "minutes": {tkUnits, unitMinute},
	"microsecon": {tkUnits, unitMicrosecond}, "us": {tkUnits, unitMicrosecond}, "usec": {tkUnits, unitMicrosecond}, "usecond": {tkUnits, unitMicrosecond},
	"useconds": {tkUnits, unitMicrosecond}, "usecs": {tkUnits, unitMicrosecond},
	"mil": {tkUnits, unitMillennium}, "mils": {tkUnits, unitMillennium}, "millennia": {tkUnits, unitMillennium}, "millennium": {tkUnits, unitMillennium},
	"millisecon": {tkUnits, unitMillisecond}, "ms": {tkUnits, unitMillisecond}, "msec": {tkUnits, unitMillisecond}, "msecond": {tkUnits, unitMillisecond},
	"mseconds": {tkUnits, unitMillisecond}, "msecs": {tkUnits, unitMillisecond},
	"mon": {tkUnits, unitMonth}, "mons": {tkUnits, unitMonth}, "month": {tkUnits, unitMonth}, "months": {tkUnits, unitMonth},
	"qtr": {tkUnits, unitQuarter}, "quarter": {tkUnits, unitQuarter},
	"s": {tkUnits, unitSecond}, "sec": {tkUnits, unitSecond}, "second": {tkUnits, unitSecond}, "seconds": {tkUnits, unitSecond}, "secs": {tkUnits, unitSecond},
	"w": {tkUnits, unitWeek}, "week": {tkUnits, unitWeek}, "weeks": {tkUnits, unitWeek},
	"y": {tkUnits, unitYear}, "year": {tkUnits, unitYear}, "years": {tkUnits, unitYear}, "yr": {tkUnits, unitYear}, "yrs": {tkUnits, unitYear},
}

// ivlBuilder adds up the fields of an interval; over is set when one leaves its range.
type ivlBuilder struct {
	years, months, days int64
	us                  int64
	over                bool
}

func (b *ivlBuilder) addTo(dst *int64, v, scale int64) {
	p := v * scale
	if v != 0 && (p/scale != v || v == math.MinInt64 && scale != 1) {
		b.over = true
		return
	}
	var ok bool
	if *dst, ok = addInt64(*dst, p); !ok {
		b.over = true
	}
}

// addMicros adds v and a fraction of the unit scale.
func (b *ivlBuilder) addMicros(v int64, f float64, scale int64) {
	b.addTo(&b.us, v, scale)
	b.addFractMicros(f, scale)
}

func (b *ivlBuilder) addFractMicros(f float64, scale int64) {
	if f == 0 {
		return
	}
	f *= float64(scale)
	us := int64(f)
	switch f -= float64(us); {
	case f > 0.5:
		us++
	case f < -0.5:
		us--
	}
	b.addTo(&b.us, us, 1)
}

func (b *ivlBuilder) addFractDays(f float64, scale int) {
	if f == 0 {
		return
	}
	f *= float64(scale)
	days := int64(f)
	b.addTo(&b.days, days, 1)
	b.addFractMicros(f-float64(days), microsPerDay)
}

// add adds v + f of a unit; mask is the part it claims.
func (b *ivlBuilder) add(unit int, v int64, f float64) (mask int, e dtErr) {
	years := func(scale int64) {
		b.addTo(&b.years, v, scale)
		b.addTo(&b.months, int64(math.RoundToEven(f*float64(scale)*12)), 1)
	}
	switch unit {
	case unitMicrosecond:
		b.addMicros(v, f, 1)
		mask = maskMicro
	case unitMillisecond:
		b.addMicros(v, f, 1000)
		mask = maskMilli
	case unitSecond:
		b.addMicros(v, f, microsPerSecond)
		if mask = maskSecond; f != 0 {
			mask = maskAllSecs
		}
	case unitMinute:
		b.addMicros(v, f, microsPerMinute)
		mask = maskMinute
	case unitHour:
		b.addMicros(v, f, microsPerHour)
		mask = maskHour
	case unitDay:
		b.addTo(&b.days, v, 1)
		b.addFractMicros(f, microsPerDay)
		mask = maskDay
	case unitWeek:
		b.addTo(&b.days, v, 7)
		b.addFractDays(f, 7)
		mask = maskWeek
	case unitMonth:
		b.addTo(&b.months, v, 1)
		b.addFractDays(f, daysPerMonth)
		mask = maskMonth
	case unitYear:
		years(1)
		mask = maskYear
	case unitDecade:
		years(10)
		mask = maskDecade
	case unitCentury:
		years(100)
		mask = maskCent
	case unitMillennium:
		years(1000)
		mask = maskMill
	default:
		return 0, dtBadFormat
	}
	if b.years != int64(int32(b.years)) || b.months != int64(int32(b.months)) || b.days != int64(int32(b.days)) {
		b.over = true
	}
	if b.over {
		return 0, dtFieldOverflow
	}
	return mask, dtOK
}

// rangeUnit returns the unit of a number without one, from the modifier's field range.
func rangeUnit(rng int32) int {
	switch {
	case rng == intervalFullRange || rng&(1<<fieldSecond) != 0:
		return unitSecond
	case rng&(1<<fieldMinute) != 0:
		return unitMinute
	case rng&(1<<fieldHour) != 0:
		return unitHour
	case rng&(1<<fieldDay) != 0:
		return unitDay
	case rng&(1<<fieldMonth) != 0:
		return unitMonth
	case rng&(1<<fieldYear) != 0:
		return unitYear
	}
	return unitSecond
}

// ParseInterval reads an interval in any of PostgreSQL's forms. mod is the type's modifier, whose field range names the unit of a bare number;
// the caller applies it to the result.
func ParseInterval(f *Format, text string, mod int32) (Interval, error) {
	rng := int32(intervalFullRange)
	if mod >= 0 {
		rng = mod >> 16 & 0x7FFF
	}
	fields, e := splitDateTime(text)
	var iv Interval
	if e == dtOK {
		iv, e = decodeInterval(fields, rng, f != nil && f.IntervalStyle == IntervalSQLStandard)
	}
	if e == dtBadFormat && strings.HasPrefix(text, "P") {
		iv, e = decodeISOInterval(text[1:])
	}
	if e != dtOK {
		if e == dtFieldOverflow {
			e = dtIntervalOverflow
		}
		return Interval{}, e.report("interval", text)
	}
	return iv, nil
}

// decodeInterval reads the fields backwards, so that a unit is known before its value.
func decodeInterval(fields []dateField, rng int32, sqlStandard bool) (Interval, dtErr) {
	var b ivlBuilder
	mask, unit, ago := 0, unitNone, false
	// In the SQL standard's form a leading minus counts for all fields when no other sign follows.
	negate := false
	if sqlStandard && len(fields) > 0 && strings.HasPrefix(fields[0].text, "-") {
		negate = true
		for _, f := range fields[1:] {
			if f.text[0] == '-' || f.text[0] == '+' {
				negate = false
			}
		}
	}
	for i := len(fields) - 1; i >= 0; i-- {
		f := fields[i]
		tmask, e := 0, dtOK
		typ := f.typ
		if typ == ftZone && strings.IndexByte(f.text, ':') >= 0 {
			typ = ftTime
		}
		switch typ {
		case ftTime:
			tmask, e = b.addTime(f.text, rng, negate)
			if e == dtBadFormat && f.typ == ftZone {
				return Interval{}, e
			}
			unit = unitDay
		case ftZone, ftDate, ftNumber:
			if unit == unitNone {
				unit = rangeUnit(rng)
			}
			if tmask, unit, e = b.addNumber(f.text, unit, negate); unit == unitHour {
				unit = unitDay // of a number before it
			}
		default:
			t, ok := intervalUnits[cutToken(f.text)]
			if !ok {
				t = dateTokens[cutToken(f.text)]
			}
			switch t.kind {
			case tkIgnore:
				continue
			case tkUnits:
				unit = t.val
			case tkAgo:
				ago, unit = true, unitNone
			default:
				return Interval{}, dtBadFormat
			}
		}
		if e != dtOK {
			return Interval{}, e
		}
		if tmask&mask != 0 {
			return Interval{}, dtBadFormat
		}
		mask |= tmask
	}
	if mask == 0 {
		return Interval{}, dtBadFormat
	}
	return b.interval(ago)
}

func (b *ivlBuilder) interval(negate bool) (Interval, dtErr) {
	months := b.years*monthsPerYear + b.months
	if months != int64(int32(months)) {
		return Interval{}, dtIntervalRange
	}
	iv := Interval{Months: int32(months), Days: int32(b.days), Micros: b.us}
	if negate {
		var err error
		if iv, err = IntervalNeg(iv); err != nil {
			return iv, dtFieldOverflow
		}
	}
	return iv, dtOK
}

// addTime adds [+-]hh:mm[:ss[.f]].
func (b *ivlBuilder) addTime(s string, rng int32, negate bool) (mask int, e dtErr) {
	neg := s[0] == '-'
	if neg || s[0] == '+' {
		s = s[1:]
	}
	hs, rest, _ := strings.Cut(s, ":")
	h, err := strconv.ParseInt(hs, 10, 64)
	if err != nil {
		return 0, dtFieldOverflow
	}
	var d dateDecoder
	// The hour may be larger than a time of day's: the other fields are read with a zero one.
	if e = d.decodeTime("0:"+rest, rng); e != dtOK {
		return 0, e
	}
	short := strings.IndexByte(rest, ':') < 0 && (strings.IndexByte(rest, '.') >= 0 || rng == 1<<fieldMinute|1<<fieldSecond)
	if short {
		// mm:ss.f
		if h > 59 {
			return 0, dtFieldOverflow
		}
		d.c.Minute, h = int(h), 0
	}
	us := d.c.TimeOfDay()
	var t ivlBuilder
	t.addTo(&t.us, h, microsPerHour)
	t.addTo(&t.us, us, 1)
	if t.over {
		return 0, dtFieldOverflow
	}
	if neg || negate {
		t.us = -t.us
	}
	b.addTo(&b.us, t.us, 1)
	if b.over {
		return 0, dtFieldOverflow
	}
	return maskTime, dtOK
}

// addNumber adds a number of the given unit, or years-months.
func (b *ivlBuilder) addNumber(s string, unit int, negate bool) (mask, newUnit int, e dtErr) {
	neg := s[0] == '-'
	i := 0
	if neg || s[0] == '+' {
		i = 1
	}
	from := i
	for i < len(s) && isDigit(s[i]) {
		i++
	}
	v := int64(0)
	if i > from {
		var err error
		if v, err = strconv.ParseInt(strings.TrimPrefix(s[:i], "+"), 10, 64); err != nil {
			return 0, unit, dtFieldOverflow
		}
	}
	f := 0.0
	switch rest := s[i:]; {
	case rest == "":
	case rest[0] == '-':
		m, err := strconv.ParseInt(rest[1:], 10, 32)
		if err != nil || !isDigit(rest[1]) {
			return 0, unit, dtBadFormat
		}
		if m < 0 || m >= monthsPerYear {
			return 0, unit, dtFieldOverflow
		}
		if neg {
			m = -m
		}
		unit = unitMonth
		if max(v, -v) > math.MaxInt32 {
			return 0, unit, dtFieldOverflow
		}
		v = v*monthsPerYear + m
	case rest[0] == '.':
		var err error
		if rest != "." {
			if f, err = strconv.ParseFloat("0"+rest, 64); err != nil {
				return 0, unit, dtBadFormat
			}
		}
		if neg {
			f = -f
		}
	default:
		return 0, unit, dtBadFormat
	}
	if negate {
		v, f = -abs64(v), -math.Abs(f)
	}
	mask, e = b.add(unit, v, f)
	return mask, unit, e
}

// decodeISOInterval reads what follows the P of an ISO 8601 duration, in the form with designators or the alternative P0001-02-03T04:05:06.
func decodeISOInterval(s string) (Interval, dtErr) {
	var b ivlBuilder
	datePart, haveField := true, false
	if s == "" {
		return Interval{}, dtBadFormat
	}
	for s != "" {
		if s[0] == 'T' {
			datePart, haveField = false, false
			s = s[1:]
			continue
		}
		i := 0
		if s[0] == '-' || s[0] == '+' {
			i++
		}
		for i < len(s) && (isDigit(s[i]) || s[i] == '.') {
			i++
		}
		num := s[:i]
		whole, frac, _ := strings.Cut(num, ".")
		v, f := int64(0), 0.0
		var err error
		if w := strings.TrimPrefix(whole, "+"); w != "" && w != "-" {
			if v, err = strconv.ParseInt(w, 10, 64); err != nil {
				return Interval{}, dtFieldOverflow
			}
		} else if frac == "" {
			return Interval{}, dtBadFormat
		}
		if frac != "" {
			if f, err = strconv.ParseFloat("0."+frac, 64); err != nil {
				return Interval{}, dtBadFormat
			}
			if strings.HasPrefix(whole, "-") {
				f = -f
			}
		}
		s = s[i:]
		unit := byte(0)
		if s != "" {
			unit = s[0]
		}
		if unit == 0 || unit == '-' || unit == ':' || unit == 'T' && datePart {
			return decodeISOAlternative(&b, num+s, datePart, haveField)
		}
		s = s[1:]
		e := dtOK
		kind := unitNone
		switch unit {
		case 'Y':
			kind = unitYear
		case 'M':
			if kind = unitMonth; !datePart {
				kind = unitMinute
			}
		case 'W':
			kind = unitWeek
		case 'D':
			kind = unitDay
		case 'H':
			kind = unitHour
		case 'S':
			kind = unitSecond
		}
		if kind == unitNone || datePart != (kind >= unitDay) {
			return Interval{}, dtBadFormat
		}
		if _, e = b.add(kind, v, f); e != dtOK {
			return Interval{}, e
		}
		haveField = true
	}
	return b.interval(false)
}

// decodeISOAlternative reads years-months-days, THH:MM:SS and the basic forms yyyymmdd and hhmmss.
func decodeISOAlternative(b *ivlBuilder, s string, datePart, haveField bool) (Interval, dtErr) {
	if haveField {
		return Interval{}, dtBadFormat
	}
	date, clock, hasT := "", s, false
	if datePart {
		date, clock, hasT = strings.Cut(s, "T")
		if hasT && clock == "" {
			return Interval{}, dtBadFormat
		}
	}
	addAll := func(parts []string, units []int) dtErr {
		if len(parts) > len(units) {
			return dtBadFormat
		}
		for i, p := range parts {
			if _, _, e := b.addNumber(orZero(p), units[i], false); p == "" || e != dtOK {
				return max(e, dtBadFormat)
			}
		}
		return dtOK
	}
	if date != "" {
		parts := splitSigned(date, '-')
		if len(parts) == 1 && len(date) == 8 {
			parts = []string{date[:4], date[4:6], date[6:]}
		}
		if e := addAll(parts, []int{unitYear, unitMonth, unitDay}); e != dtOK {
			return Interval{}, e
		}
	}
	if clock != "" {
		parts := strings.Split(clock, ":")
		if w, _, _ := strings.Cut(clock, "."); len(parts) == 1 && len(w) == 6 {
			parts = []string{clock[:2], clock[2:4], clock[4:]}
		}
		if e := addAll(parts, []int{unitHour, unitMinute, unitSecond}); e != dtOK {
			return Interval{}, e
		}
	}
	return b.interval(false)
}

func orZero(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

// splitSigned splits at sep, except where it is a sign at the start of a part.
func splitSigned(s string, sep byte) []string {
	var parts []string
	from := 0
	for i := 1; i < len(s); i++ {
		if s[i] == sep && i > from {
			parts = append(parts, s[from:i])
			from = i + 1
		}
	}
	return append(parts, s[from:])
}
