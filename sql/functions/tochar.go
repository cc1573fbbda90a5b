package functions

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// templateFunctions lists to_char, to_date, to_timestamp and to_number.
func templateFunctions() []entry {
	out := []entry{
		fn("to_char(timestamp,text)", "", charTimes(func(_ *expr.Frame, ts int64) (int64, zoneText, error) { return ts, zoneText{}, nil }, false)),
		fn("to_char(timestamptz,text)", "", charTimes(func(f *expr.Frame, ts int64) (int64, zoneText, error) {
			local, err := types.TimestamptzToLocal(ts, loc(f))
			if err != nil {
				return 0, zoneText{}, err
			}
			off, abbrev := types.ZoneOffset(ts, loc(f))
			return local, zoneText{off, abbrev}, nil
		}, true)),
		fn("to_char(interval,text)", "", each(charInterval)),
		fn("to_char(numeric,text)", "", map2e(numSlot, strSlot, strSlot, charNumeric)),
		fn("to_date(text,text)", "", map2e(strSlot, strSlot, intSlot, func(s, f string) (int64, error) {
			p, err := parseTemplate(s, f)
			if err != nil {
				return 0, err
			}
			d, _, err := p.value()
			return d, err
		})),
		fn("to_timestamp(text,text)", "", ctx2(strSlot, strSlot, intSlot, func(f *expr.Frame, s, format string) (int64, error) {
			p, err := parseTemplate(s, format)
			if err != nil {
				return 0, err
			}
			d, t, err := p.value()
			if err != nil {
				return 0, err
			}
			ts, err := dateTime(d, t)
			if err != nil {
				return 0, err
			}
			if p.zoned {
				return ts - int64(p.zone)*microsPerSecond, nil
			}
			return types.LocalToTimestamptz(ts, loc(f))
		})),
		fn("to_number(text,text)", "", map2e(strSlot, strSlot, numSlot, toNumber)),
	}
	for _, t := range [...]string{"int4", "int8"} {
		out = append(out, fn("to_char("+t+",text)", "", map2e(intSlot, strSlot, strSlot, func(v int64, f string) (string, error) {
			return charNumeric(types.NumericFromInt64(v), f)
		})))
	}
	for t, digits := range map[string]int{"float4": 6, "float8": 15} {
		out = append(out, fn("to_char("+t+",text)", "", map2e(floatSlot, strSlot, strSlot, func(v float64, f string) (string, error) {
			return charFloat(v, digits, f)
		})))
	}
	return out
}

// templateWords are the fields of date templates, longest first where one begins another. Words in capitals match in lower case too.
var templateWords = []string{
	"A.D.", "A.M.", "AD", "AM", "B.C.", "BC", "CC", "Day", "DAY", "DDD", "DD", "Dy", "DY", "D", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6",
	"HH24", "HH12", "HH", "IDDD", "ID", "IW", "IYYY", "IYY", "IY", "I", "J", "MI", "MM", "Month", "MONTH", "Mon", "MON", "MS", "OF", "P.M.", "PM", "Q", "RM",
	"SSSSS", "SSSS", "SS", "TZH", "TZM", "TZ", "US", "WW", "W", "Y,YYY", "YYYY", "YYY", "YY", "Y",
}

// templateToken is a field of a template, or literal text (word empty).
type templateToken struct {
	word, text string
	fill       bool // FM: no padding
	ordinal    string
}

func splitTemplate(f string) []templateToken {
	var out []templateToken
	literal := func(s string) { out = append(out, templateToken{text: s}) }
	fill := false
	for i := 0; i < len(f); {
		rest := f[i:]
		switch {
		case strings.HasPrefix(rest, "FM") || strings.HasPrefix(rest, "fm"):
			fill = true
			i += 2
			continue
		case strings.HasPrefix(rest, "TM"):
			// Names in the locale's language: there is one locale, but they are not padded.
			fill = true
			i += 2
			continue
		case strings.HasPrefix(rest, "FX") || strings.HasPrefix(rest, "fx"):
			i += 2
			continue
		case strings.HasPrefix(rest, `\"`):
			literal(`"`)
			i += 2
			continue
		case rest[0] == '"':
			end := strings.IndexByte(rest[1:], '"')
			if end < 0 {
				end = len(rest) - 1
			}
			for _, r := range rest[1:min(1+end, len(rest))] {
				literal(string(r))
			}
			i += min(end+2, len(rest))
			continue
		}
		word := ""
		for _, w := range templateWords {
			if strings.HasPrefix(rest, w) || strings.ToUpper(w) == w && strings.HasPrefix(rest, strings.ToLower(w)) {
				word = rest[:len(w)]
				break
			}
		}
		if word == "" {
			literal(rest[:1])
			i++
			continue
		}
		t := templateToken{word: word, fill: fill}
		fill = false
		i += len(word)
		if strings.HasPrefix(f[i:], "TH") || strings.HasPrefix(f[i:], "th") {
			t.ordinal = f[i : i+2]
			i += 2
		}
		out = append(out, t)
	}
	return out
}

type zoneText struct {
	offset int
	abbrev string
}

// charFields is a point of time, or an interval, taken apart for to_char.
type charFields struct {
	year, month, day  int
	hour, minute, sec int
	micros            int
	days              int64 // since 2000-01-01
	zone              *zoneText
	interval          bool
}

// charTimes is to_char of points of time. One text holds for all that lie in one unit of the template's smallest field, so that it is made once where times follow each other.
func charTimes(local func(f *expr.Frame, ts int64) (int64, zoneText, error), zoned bool) expr.Kernel {
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		m := charMemo{zoned: zoned}
		each(func(c *call) error { return m.fill(c, local) })(f, args, out)
	}
}

// charMemo is a template taken apart, and the last text that was made by it.
type charMemo struct {
	template string
	tokens   []templateToken
	unit     int64 // µs for which a text holds
	zoned    bool
	zone     zoneText
	from     int64
	known    bool
	text     string
}

func (m *charMemo) fill(c *call, at func(f *expr.Frame, ts int64) (int64, zoneText, error)) error {
	ts, template := c.int(0), c.str(1)
	if template == "" || types.IsTimestampInfinite(ts) {
		c.setNull()
		return nil
	}
	ts, zone, err := at(c.f, ts)
	if err != nil {
		return err
	}
	if template != m.template {
		m.template, m.tokens, m.known = template, splitTemplate(template), false
		m.unit = smallestUnit(m.tokens)
	}
	if m.known && ts >= m.from && ts-m.from < m.unit && zone == m.zone {
		c.out.Str[c.row] = m.text
		return nil
	}
	t := types.CivilFromTimestamp(ts)
	v := charFields{
		year: t.Year, month: t.Month, day: t.Day, hour: t.Hour, minute: t.Minute, sec: t.Second, micros: t.Micros, days: types.TimestampToDate(ts),
	}
	if m.zoned {
		v.zone = &zone
	}
	s, err := v.format(m.tokens)
	c.out.Str[c.row] = s
	past := ts % m.unit
	if past < 0 {
		past += m.unit
	}
	m.from, m.zone, m.text, m.known = ts-past, zone, s, err == nil
	return err
}

// smallestUnit returns the µs of the smallest field of a template, at most those of a day.
func smallestUnit(tokens []templateToken) int64 {
	unit := int64(microsPerDay)
	for _, t := range tokens {
		switch w := strings.ToUpper(t.word); {
		case w == "":
		case w == "US" || strings.HasPrefix(w, "FF"):
			return 1
		case w == "MS":
			unit = min(unit, microsPerSecond/1000)
		case strings.HasPrefix(w, "SS"):
			unit = min(unit, microsPerSecond)
		case w == "MI":
			unit = min(unit, microsPerMinute)
		case strings.HasPrefix(w, "HH") || w == "AM" || w == "PM" || w == "A.M." || w == "P.M.":
			unit = min(unit, microsPerHour)
		}
	}
	return unit
}

func charInterval(c *call) error {
	if c.str(1) == "" {
		c.setNull()
		return nil
	}
	iv := c.ivl(0)
	v := charFields{
		year: int(iv.Months / 12), month: int(iv.Months % 12), day: int(iv.Days), hour: int(iv.Micros / microsPerHour),
		minute: int(iv.Micros / microsPerMinute % 60), sec: int(iv.Micros / microsPerSecond % 60), micros: int(iv.Micros % microsPerSecond), interval: true,
	}
	s, err := v.format(splitTemplate(c.str(1)))
	c.out.Str[c.row] = s
	return err
}

var (
	monthNames = [...]string{"January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"}
	dayNames   = [...]string{"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"}
	romans     = [...]string{"I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"}
)

// longestName is the width that month and day names are padded to.
const longestName = 9

func (v *charFields) format(tokens []templateToken) (string, error) {
	var b strings.Builder
	for _, t := range tokens {
		if t.word == "" {
			b.WriteString(t.text)
			continue
		}
		s, err := v.field(t)
		if err != nil {
			return "", err
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

func ordinalSuffix(digits string) string {
	n := len(digits)
	if n > 1 && digits[n-2] == '1' {
		return "th"
	}
	switch digits[n-1] {
	case '1':
		return "st"
	case '2':
		return "nd"
	case '3':
		return "rd"
	}
	return "th"
}

func (v *charFields) dow() int { return int(((v.days+6)%7 + 7) % 7) } // 2000-01-01 was a Saturday

func (v *charFields) doy() int { return int(v.days-types.DaysFromCivil(v.year, 1, 1)) + 1 }

// isoWeek returns the ISO year, week and day of the year.
func (v *charFields) isoWeek() (year, week, day int) {
	thursday := v.days + 3 - int64((v.dow()+6)%7)
	y, _, _ := types.CivilFromDays(thursday)
	jan4 := types.DaysFromCivil(y, 1, 4)
	j := charFields{days: jan4}
	monday := jan4 - int64((j.dow()+6)%7)
	d := int(v.days - monday)
	return y, d/7 + 1, d + 1
}

// shownYear counts years before Christ from 1.
func shownYear(y int) int {
	if y <= 0 {
		return 1 - y
	}
	return y
}

func (v *charFields) field(t templateToken) (string, error) {
	num := func(n, width int) (string, error) {
		s := strconv.Itoa(n)
		if !t.fill {
			if n < 0 {
				width++
			}
			s = fmt.Sprintf("%0*d", width, n)
		}
		if t.ordinal != "" {
			suffix := ordinalSuffix(s)
			if t.ordinal == "TH" {
				suffix = strings.ToUpper(suffix)
			}
			s += suffix
		}
		return s, nil
	}
	name := func(s string, width int) (string, error) {
		switch {
		case t.word == strings.ToUpper(t.word):
			s = strings.ToUpper(s)
		case t.word == strings.ToLower(t.word):
			s = strings.ToLower(s)
		}
		if !t.fill {
			s = fmt.Sprintf("%-*s", width, s)
		}
		return s, nil
	}
	year := v.year
	if !v.interval {
		year = shownYear(v.year)
	}
	upper := strings.ToUpper(t.word)
	switch upper {
	case "HH", "HH12":
		h := v.hour % 12
		if h == 0 {
			h = 12
		}
		return num(h, 2)
	case "HH24":
		return num(v.hour, 2)
	case "MI":
		return num(v.minute, 2)
	case "SS":
		return num(v.sec, 2)
	case "MS":
		return num(v.micros/1000, 3)
	case "US":
		return num(v.micros, 6)
	case "FF1", "FF2", "FF3", "FF4", "FF5", "FF6":
		w := int(upper[2] - '0')
		s := fmt.Sprintf("%06d", v.micros)
		return s[:w], nil
	case "SSSS", "SSSSS":
		return num(v.hour*3600+v.minute*60+v.sec, 1)
	case "AM", "PM", "A.M.", "P.M.":
		s := "A"
		if v.hour%24 >= 12 {
			s = "P"
		}
		if strings.Contains(upper, ".") {
			s += ".M."
		} else {
			s += "M"
		}
		if t.word != upper {
			s = strings.ToLower(s)
		}
		return s, nil
	case "YYYY":
		return num(year, 4)
	case "YYY":
		return num(year%1000, 3)
	case "YY":
		return num(year%100, 2)
	case "Y":
		return num(year%10, 1)
	case "Y,YYY":
		return fmt.Sprintf("%d,%03d", year/1000, year%1000), nil
	case "MM":
		return num(v.month, 2)
	case "DD":
		return num(v.day, 2)
	case "Q":
		if v.month == 0 {
			return "", nil
		}
		return num((v.month-1)/3+1, 1)
	case "CC":
		if v.interval {
			return num(year/100, 2)
		}
		c := (year-1)/100 + 1
		if v.year <= 0 {
			c = -c
		}
		return num(c, 2)
	case "RM":
		if v.month < 1 {
			return "", nil
		}
		return name(romans[v.month-1], 4)
	case "MONTH", "MON":
		if v.month < 1 {
			return "", nil
		}
		if upper == "MON" {
			t.fill = true
			return name(monthNames[v.month-1][:3], 0)
		}
		return name(monthNames[v.month-1], longestName)
	}
	if v.interval {
		return "", pgerr.Newf(pgerr.InvalidDatetimeFormat, "invalid format specification for an interval value").WithHint("Intervals are not tied to specific calendar dates.")
	}
	iy, iw, id := v.isoWeek()
	switch upper {
	case "DAY":
		return name(dayNames[v.dow()], longestName)
	case "DY":
		t.fill = true
		return name(dayNames[v.dow()][:3], 0)
	case "D":
		return num(v.dow()+1, 1)
	case "ID":
		return num((v.dow()+6)%7+1, 1)
	case "DDD":
		return num(v.doy(), 3)
	case "IDDD":
		return num(id, 3)
	case "W":
		return num((v.day-1)/7+1, 1)
	case "WW":
		return num((v.doy()-1)/7+1, 2)
	case "IW":
		return num(iw, 2)
	case "IYYY":
		return num(shownYear(iy), 4)
	case "IYY":
		return num(shownYear(iy)%1000, 3)
	case "IY":
		return num(shownYear(iy)%100, 2)
	case "I":
		return num(shownYear(iy)%10, 1)
	case "J":
		return num(int(v.days+2451545), 1)
	case "BC", "AD", "B.C.", "A.D.":
		s := "AD"
		if v.year <= 0 {
			s = "BC"
		}
		if strings.Contains(upper, ".") {
			s = s[:1] + "." + s[1:] + "."
		}
		if t.word != upper {
			s = strings.ToLower(s)
		}
		return s, nil
	}
	return v.zoneField(upper, t.word != upper)
}

func (v *charFields) zoneField(word string, lower bool) (string, error) {
	z := v.zone
	if z == nil {
		z = &zoneText{}
		if word == "TZ" {
			return "", nil
		}
	}
	off, sign := z.offset, "+"
	if off < 0 {
		off, sign = -off, "-"
	}
	switch word {
	case "TZ":
		if lower {
			return strings.ToLower(z.abbrev), nil
		}
		return z.abbrev, nil
	case "TZH":
		return fmt.Sprintf("%s%02d", sign, off/3600), nil
	case "TZM":
		return fmt.Sprintf("%02d", off/60%60), nil
	}
	s := fmt.Sprintf("%s%02d", sign, off/3600)
	if off%3600 != 0 {
		s += fmt.Sprintf(":%02d", off/60%60)
	}
	return s, nil
}
