package functions

import (
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// parsedTime is what a template found in a text.
type parsedTime struct {
	text                     string
	year, month, day, doy    int
	hour, minute, sec        int
	micros                   int64
	julian                   int64
	haveYear, haveJulian     bool
	twelve, pm, haveMeridian bool
	bc                       bool
	zoned                    bool
	zone                     int // seconds east
	century                  int
}

func isSeparator(c byte) bool {
	return c > ' ' && c < 0x7F && !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z')
}

// parseTemplate reads s by a template of to_date and to_timestamp: separators match any separators, blanks are skipped, numbers may have
// fewer digits than their field.
func parseTemplate(s, template string) (*parsedTime, error) {
	p := &parsedTime{text: s, month: 1, day: 1, year: 1}
	tokens := splitTemplate(template)
	at := 0
	blanks := func() {
		for at < len(s) && s[at] == ' ' {
			at++
		}
	}
	for i, t := range tokens {
		if at >= len(s) {
			break
		}
		if t.word == "" {
			switch {
			case t.text == " " || isSeparator(t.text[0]):
				for at < len(s) && (s[at] == ' ' || isSeparator(s[at]) && s[at] != '-' && s[at] != '+') {
					at++
				}
				if at < len(s) && isSeparator(s[at]) && t.text != " " {
					at++
				}
			default:
				at++
			}
			continue
		}
		blanks()
		next := ""
		if i+1 < len(tokens) {
			next = tokens[i+1].word
		}
		n, err := p.read(t, s[at:], next != "" && next[0] != 'A' && next[0] != 'P')
		if err != nil {
			return nil, err
		}
		at += n
		if t.ordinal != "" && at+2 <= len(s) {
			at += 2
		}
	}
	return p, nil
}

func errTemplateValue(s, word string) error {
	return pgerr.Newf(pgerr.InvalidDatetimeFormat, "invalid value %q for %q", s, word).WithDetail("Value must be an integer.")
}

// templateWidths are the digits of numeric fields.
var templateWidths = map[string]int{
	"YYYY": 4, "YYY": 3, "YY": 2, "Y": 1, "MM": 2, "DD": 2, "DDD": 3, "HH24": 2, "HH12": 2, "HH": 2, "MI": 2, "SS": 2, "MS": 3, "US": 6, "J": 7, "SSSS": 5, "SSSSS": 5,
	"FF1": 1, "FF2": 2, "FF3": 3, "FF4": 4, "FF5": 5, "FF6": 6, "CC": 2, "Q": 1, "D": 1, "ID": 1, "W": 1, "WW": 2, "TZM": 2,
}

// read reads one field at the start of s and returns its length. adjacent is set when another field follows at once: then the number has
// no more digits than its width.
func (p *parsedTime) read(t templateToken, s string, adjacent bool) (int, error) {
	word := strings.ToUpper(t.word)
	switch word {
	case "MONTH", "MON":
		return p.readName(s, t.word, monthNames[:], word == "MON", func(i int) { p.month = i + 1 })
	case "DAY", "DY":
		return p.readName(s, t.word, dayNames[:], word == "DY", func(int) {})
	case "AM", "PM", "A.M.", "P.M.":
		if len(s) < len(word) {
			return 0, pgerr.Newf(pgerr.InvalidDatetimeFormat, "invalid value %q for %q", s, t.word)
		}
		p.haveMeridian, p.pm = true, s[0] == 'p' || s[0] == 'P'
		return len(word), nil
	case "BC", "AD", "B.C.", "A.D.":
		p.bc = s[0] == 'b' || s[0] == 'B'
		return min(len(word), len(s)), nil
	case "TZH":
		return p.readZone(s, t.word)
	}
	if word == "TZ" || word == "OF" {
		return 0, pgerr.Newf(pgerr.FeatureNotSupported, "formatting field %q is only supported in to_char", t.word)
	}
	width, ok := templateWidths[word]
	if !ok {
		return 0, pgerr.Newf(pgerr.FeatureNotSupported, "formatting field %q is not supported in input", t.word)
	}
	n, sign := 0, 1
	if s != "" && (s[0] == '-' || s[0] == '+') && strings.HasPrefix(word, "Y") {
		if s[0] == '-' {
			sign = -1
		}
		n++
	}
	start := n
	for n < len(s) && s[n] >= '0' && s[n] <= '9' && (!adjacent || n-start < width) {
		n++
	}
	v, err := strconv.Atoi(s[start:n])
	if err != nil {
		bad := s
		if len(bad) > width {
			bad = bad[:width]
		}
		return 0, errTemplateValue(bad, t.word)
	}
	p.set(word, v*sign, s[start:n])
	return n, nil
}

func (p *parsedTime) set(word string, v int, digits string) {
	switch word {
	case "YYYY", "YYY", "YY", "Y":
		p.haveYear = true
		p.year = v
		switch {
		case len(digits) <= 2 && word != "YYYY" || len(digits) <= 2 && v < 0:
			p.year = v + 1900
			if v < 70 {
				p.year = v + 2000
			}
		case len(digits) == 3 && word != "YYYY":
			p.year = v + 1000
			if v < 520 {
				p.year = v + 2000
			}
		}
	case "MM":
		p.month = v
	case "DD":
		p.day = v
	case "DDD":
		p.doy = v
	case "HH24":
		p.hour = v
	case "HH12", "HH":
		p.hour, p.twelve = v, true
	case "MI":
		p.minute = v
	case "SS":
		p.sec = v
	case "MS", "US", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6":
		frac := (digits + "000000")[:6]
		n, _ := strconv.Atoi(frac)
		p.micros += int64(n)
	case "SSSS", "SSSSS":
		p.hour, p.minute, p.sec = v/3600, v/60%60, v%60
	case "J":
		p.julian, p.haveJulian = int64(v), true
	case "CC":
		p.century = v
	case "TZM":
		if p.zone < 0 {
			v = -v
		}
		p.zone += v * 60
	}
}

func (p *parsedTime) readName(s, word string, names []string, short bool, found func(int)) (int, error) {
	lower := strings.ToLower(s)
	for i, n := range names {
		n = strings.ToLower(n)
		if short {
			n = n[:3]
		}
		if strings.HasPrefix(lower, n) {
			found(i)
			return len(n), nil
		}
	}
	return 0, pgerr.Newf(pgerr.InvalidDatetimeFormat, "invalid value %q for %q", s, word).WithDetail("The given value did not match any of the allowed values for this field.")
}

func (p *parsedTime) readZone(s, word string) (int, error) {
	sign, n := 1, 0
	if s[0] == '-' || s[0] == '+' {
		if s[0] == '-' {
			sign = -1
		}
		n++
	}
	start := n
	for n < len(s) && n-start < 2 && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	v, err := strconv.Atoi(s[start:n])
	if err != nil {
		return 0, errTemplateValue(s, word)
	}
	p.zoned, p.zone = true, sign*v*3600
	return n, nil
}

func (p *parsedTime) errRange() error {
	return errDateValue("date/time field value out of range: %q", p.text)
}

// value returns the date and the time of day.
func (p *parsedTime) value() (days, timeOfDay int64, err error) {
	hour := p.hour
	if p.twelve || p.haveMeridian {
		if hour < 1 || hour > 12 {
			return 0, 0, pgerr.Newf(pgerr.InvalidDatetimeFormat, "hour \"%d\" is invalid for the 12-hour clock", hour).WithHint("Use the 24-hour clock, or give an hour between 1 and 12.")
		}
		if hour == 12 {
			hour = 0
		}
		if p.pm {
			hour += 12
		}
	}
	if hour > 24 || p.minute > 59 || p.sec > 60 {
		return 0, 0, p.errRange()
	}
	timeOfDay = int64(hour)*microsPerHour + int64(p.minute)*microsPerMinute + int64(p.sec)*microsPerSecond + p.micros
	if p.haveJulian {
		return p.julian - 2451545, timeOfDay, nil
	}
	year := p.year
	switch {
	case !p.haveYear && p.century > 0:
		year = (p.century-1)*100 + 1
	case !p.haveYear:
		year = 0 // without a year PostgreSQL takes 1 BC
	case p.bc:
		year = 1 - year
	case year < 0:
		year++
	}
	if p.doy > 0 {
		return types.DaysFromCivil(year, 1, 1) + int64(p.doy) - 1, timeOfDay, nil
	}
	if p.month < 1 || p.month > 12 || p.day < 1 || p.day > 31 {
		return 0, 0, p.errRange()
	}
	days = types.DaysFromCivil(year, p.month, p.day)
	if _, m, d := types.CivilFromDays(days); m != p.month || d != p.day {
		return 0, 0, p.errRange()
	}
	days, err = types.DateAddDays(days, 0)
	return days, timeOfDay, err
}
