package functions

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// numberFormat is a template of to_char and to_number for numbers, taken apart.
type numberFormat struct {
	tokens    []string // 9 0 . , S MI PL SG PR L TH th and literal characters (with a leading quote)
	pre, post int      // digit positions before and after the decimal point
	zero      int      // first position before the point that shows zeros, -1 for none
	keepZeros int      // decimal digits that FM keeps
	point     bool
	fill      bool // FM
	signAt    byte // f before the number, b after it, 0 as the default leading sign, t at a token
	brackets  bool // PR
	roman     bool
	lower     bool // rn
	shift     int  // digits after V: the number is multiplied by that power of ten
	shifting  bool
	exponent  bool // EEEE
}

func errNumberFormat(format string, args ...any) error {
	return pgerr.Newf(pgerr.SyntaxError, format, args...)
}

func parseNumberFormat(f string) (*numberFormat, error) {
	n := &numberFormat{zero: -1}
	for i := 0; i < len(f); {
		rest := f[i:]
		up := strings.ToUpper(rest)
		word := ""
		for _, w := range [...]string{"EEEE", "FM", "MI", "PL", "SG", "PR", "RN", "TH", "9", "0", ".", ",", "D", "G", "S", "L", "V", "B", "C"} {
			if strings.HasPrefix(up, w) {
				word = w
				break
			}
		}
		if n.exponent && word != "" {
			return nil, errNumberFormat(`"EEEE" must be the last pattern used`)
		}
		if err := n.checkSign(word); err != nil {
			return nil, err
		}
		switch word {
		case "":
			if rest[0] == '"' {
				end := strings.IndexByte(rest[1:], '"')
				if end < 0 {
					end = len(rest) - 1
				}
				n.tokens = append(n.tokens, "'"+rest[1:min(end+1, len(rest))])
				i += min(end+2, len(rest))
				continue
			}
			n.tokens = append(n.tokens, "'"+rest[:1])
			i++
			continue
		case "EEEE":
			if n.fill || n.signAt != 0 || n.brackets || n.roman || n.shifting {
				return nil, errNumberFormat(`"EEEE" is incompatible with other formats`).(*pgerr.Error).
					WithDetail(`"EEEE" may only be used together with digit and decimal point patterns.`)
			}
			n.exponent = true
		case "V":
			if n.point {
				return nil, errNumberFormat(`cannot use "V" and decimal point together`)
			}
			n.shifting = true
		case "C":
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "%q in a number format is not supported", word)
		case "FM":
			n.fill = true
		case "B":
		case "RN":
			n.roman, n.lower = true, rest[0] == 'r'
		case "9", "0":
			if n.shifting {
				n.shift++
			}
			if n.point {
				n.post++
				if word == "0" {
					n.keepZeros = n.post
				}
			} else {
				if word == "0" && n.zero < 0 {
					n.zero = n.pre
				}
				n.pre++
			}
			n.tokens = append(n.tokens, word)
		case ".", "D":
			if n.shifting {
				return nil, errNumberFormat(`cannot use "V" and decimal point together`)
			}
			if n.point {
				return nil, pgerr.Newf(pgerr.SyntaxError, "multiple decimal points")
			}
			n.point = true
			n.tokens = append(n.tokens, ".")
		case ",", "G":
			n.tokens = append(n.tokens, ",")
		case "S":
			if n.pre+n.post == 0 {
				n.signAt = 'f'
			} else {
				n.signAt = 't'
				n.tokens = append(n.tokens, "S")
			}
		case "PR":
			n.brackets = true
		case "TH":
			n.tokens = append(n.tokens, rest[:2])
		default:
			if word == "MI" || word == "SG" {
				n.signAt = 't'
			}
			n.tokens = append(n.tokens, word)
		}
		i += len(word)
	}
	return n, nil
}

// checkSign refuses two signs, and digits behind the closing bracket of PR.
func (f *numberFormat) checkSign(word string) error {
	switch {
	case f.brackets && (word == "9" || word == "0"):
		return errNumberFormat(`"%s" must be ahead of "PR"`, word)
	case word == "S" && (f.signAt == 'f' || f.anySign("S")):
		return errNumberFormat(`cannot use "S" twice`)
	case word == "S" && (f.brackets || f.anySign("MI", "PL", "SG")):
		return errNumberFormat(`cannot use "S" and "PL"/"MI"/"SG"/"PR" together`)
	case (word == "MI" || word == "PL" || word == "SG" || word == "PR") && (f.signAt == 'f' || f.anySign("S")):
		return errNumberFormat(`cannot use "S" and "%s" together`, word)
	}
	return nil
}

func (f *numberFormat) anySign(signs ...string) bool {
	for _, s := range signs {
		if slices.Contains(f.tokens, s) {
			return true
		}
	}
	return false
}

// charNumeric is to_char of a number.
func charNumeric(v types.Numeric, template string) (string, error) {
	f, err := parseNumberFormat(template)
	if err != nil || template == "" {
		return "", err
	}
	switch {
	case f.roman:
		return f.romanText(v)
	case f.exponent && v.Form == types.Finite:
		return f.scientific(v)
	case f.exponent:
		return f.noDigits(), nil
	}
	overflow := v.Form != types.Finite
	digits, frac := "", ""
	neg := v.Sign() < 0
	if !overflow {
		if v, err = f.shifted(v); err != nil {
			return "", err
		}
		r, err := types.NumRound(v, f.post)
		if err != nil {
			return "", err
		}
		digits, frac, _ = strings.Cut(types.NumAbs(r).String(), ".")
		digits = strings.TrimLeft(digits, "0")
		overflow = max(len(digits), 1) > f.pre
	}
	return f.render(digits, frac, neg, overflow), nil
}

// shifted multiplies a number by the power of ten that V asks for.
func (f *numberFormat) shifted(v types.Numeric) (types.Numeric, error) {
	for range f.shift {
		var err error
		if v, err = types.NumMul(v, types.NumericFromInt64(10)); err != nil {
			return v, err
		}
	}
	return v, nil
}

// charFloat is to_char of a floating point number of so many decimal digits: rounded as printf rounds it, and digits beyond are not shown.
func charFloat(v float64, precision int, template string) (string, error) {
	f, err := parseNumberFormat(template)
	if err != nil || template == "" {
		return "", err
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		n, err := types.NumericFromFloat64(v, 1)
		if err != nil {
			return "", err
		}
		return charNumeric(n, template)
	}
	switch {
	case f.roman:
		n, err := types.NumericFromFloat64(math.RoundToEven(v), precision)
		if err != nil {
			return "", err
		}
		return f.romanText(n)
	case f.exponent:
		s := strconv.FormatFloat(v, 'e', f.post, 64)
		if v >= 0 {
			s = " " + s
		}
		return s, nil
	}
	neg := math.Signbit(v) && v != 0
	v = math.Abs(v) * math.Pow10(f.shift)
	whole := len(strconv.FormatFloat(v, 'f', 0, 64))
	post := max(0, min(f.post, precision-whole))
	digits, frac, _ := strings.Cut(strconv.FormatFloat(v, 'f', post, 64), ".")
	digits = strings.TrimLeft(digits, "0")
	return f.render(digits, frac, neg, max(len(digits), 1) > f.pre), nil
}

// scientific writes one digit before the point and the exponent in at least two digits.
func (f *numberFormat) scientific(v types.Numeric) (string, error) {
	sign := " "
	if v.Sign() < 0 {
		sign, v = "-", types.NumAbs(v)
	}
	exp := 0
	if v.Sign() != 0 {
		whole, frac, _ := strings.Cut(v.String(), ".")
		if whole = strings.TrimLeft(whole, "0"); whole != "" {
			exp = len(whole) - 1
		} else {
			exp = -(len(frac) - len(strings.TrimLeft(frac, "0")) + 1)
		}
	}
	mantissa := func() (types.Numeric, error) {
		m, err := types.ParseNumeric("1e" + strconv.Itoa(-exp))
		if err == nil {
			m, err = types.NumMul(v, m)
		}
		if err != nil {
			return m, err
		}
		return types.NumRound(m, f.post)
	}
	m, err := mantissa()
	if err == nil && types.CompareNumeric(m, types.NumericFromInt64(10)) >= 0 {
		exp++
		m, err = mantissa()
	}
	if err != nil {
		return "", err
	}
	e := strconv.Itoa(max(exp, -exp))
	if len(e) < 2 {
		e = "0" + e
	}
	if exp < 0 {
		return sign + m.String() + "e-" + e, nil
	}
	return sign + m.String() + "e+" + e, nil
}

// noDigits is what EEEE makes of numbers without digits.
func (f *numberFormat) noDigits() string {
	const exponentWidth = 6
	b := []byte(strings.Repeat("#", f.pre+f.post+exponentWidth))
	b[0] = ' '
	b[f.pre+1] = '.'
	return string(b)
}

func (f *numberFormat) render(digits, frac string, neg, overflow bool) string {
	var b strings.Builder
	zeroShown := digits == "" && f.zero < 0 && (!f.point || f.post == 0 || f.fill && strings.Trim(frac, "0") == "" && f.keepZeros == 0)
	if zeroShown && f.pre > 0 {
		digits = "0"
	}
	first := f.pre - len(digits)
	if f.zero >= 0 && f.zero < first {
		first = f.zero
	}
	if overflow {
		first = 0
	}
	started := false
	start := func() {
		if started {
			return
		}
		started = true
		switch {
		case f.brackets && neg:
			b.WriteByte('<')
		case f.brackets && !f.fill:
			b.WriteByte(' ')
		case f.brackets || f.signAt == 't':
		case neg:
			b.WriteByte('-')
		case f.signAt == 'f':
			b.WriteByte('+')
		case !f.fill:
			b.WriteByte(' ')
		}
	}
	shown := len(frac)
	if f.fill {
		shown = max(len(strings.TrimRight(frac, "0")), f.keepZeros)
	}
	pos, dec, afterPoint := 0, 0, false
	for _, t := range f.tokens {
		switch t {
		case "9", "0":
			switch {
			case afterPoint:
				if overflow {
					b.WriteByte('#')
				} else if dec < shown {
					b.WriteByte(frac[dec])
				}
				dec++
			case overflow:
				start()
				b.WriteByte('#')
			case pos >= first:
				start()
				if at := pos - (f.pre - len(digits)); at >= 0 {
					b.WriteByte(digits[at])
				} else {
					b.WriteByte('0')
				}
			case !f.fill:
				b.WriteByte(' ')
			}
			if !afterPoint {
				pos++
			}
		case ".":
			start()
			afterPoint = true
			if f.post > 0 || overflow {
				b.WriteByte('.')
			}
		case ",":
			if started || pos > first {
				b.WriteByte(',')
			} else if !f.fill {
				b.WriteByte(' ')
			}
		default:
			f.mark(&b, t, digits, neg, overflow)
		}
	}
	start()
	if f.brackets {
		if neg {
			b.WriteByte('>')
		} else if !f.fill {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// mark writes a token that is no digit.
func (f *numberFormat) mark(b *strings.Builder, t, digits string, neg, overflow bool) {
	sign := func(minus, plus string) {
		switch {
		case neg:
			b.WriteString(minus)
		case plus != " " || !f.fill:
			b.WriteString(plus)
		}
	}
	switch t {
	case "S", "SG":
		sign("-", "+")
	case "MI":
		sign("-", " ")
	case "PL":
		sign(" ", "+")
	case "L":
		if !f.fill {
			b.WriteByte(' ')
		}
	case "TH", "th", "Th", "tH":
		if neg || digits == "" || f.point || overflow {
			return
		}
		suffix := ordinalSuffix(digits)
		if t[0] == 'T' {
			suffix = strings.ToUpper(suffix)
		}
		b.WriteString(suffix)
	default:
		b.WriteString(t[1:])
	}
}

// romanWidth is the width Roman numerals are padded to.
const romanWidth = 15

func (f *numberFormat) romanText(v types.Numeric) (string, error) {
	r, err := types.NumRound(v, 0)
	if err != nil {
		return "", err
	}
	n, err := r.ToInt64()
	if err != nil || n < 1 || n > 3999 {
		return strings.Repeat("#", romanWidth), nil
	}
	var b strings.Builder
	for _, d := range [...]struct {
		v int64
		s string
	}{{1000, "M"}, {900, "CM"}, {500, "D"}, {400, "CD"}, {100, "C"}, {90, "XC"}, {50, "L"}, {40, "XL"}, {10, "X"}, {9, "IX"}, {5, "V"}, {4, "IV"}, {1, "I"}} {
		for ; n >= d.v; n -= d.v {
			b.WriteString(d.s)
		}
	}
	s := b.String()
	if f.lower {
		s = strings.ToLower(s)
	}
	if !f.fill && len(s) < romanWidth {
		s = strings.Repeat(" ", romanWidth-len(s)) + s
	}
	return s, nil
}

// toNumber reads a number by a template: digits and signs count, everything else is skipped.
func toNumber(s, template string) (types.Numeric, error) {
	f, err := parseNumberFormat(template)
	switch {
	case err != nil:
		return types.Numeric{}, err
	case f.roman:
		return types.Numeric{}, pgerr.Newf(pgerr.FeatureNotSupported, "\"RN\" not supported for input")
	case f.exponent:
		return types.Numeric{}, pgerr.Newf(pgerr.FeatureNotSupported, "\"EEEE\" not supported for input")
	}
	neg := false
	var digits []byte
	scale, point := 0, false
	left := [2]int{f.pre, f.post}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			k := 0
			if point {
				k = 1
			}
			if left[k] == 0 {
				continue
			}
			left[k]--
			digits = append(digits, c)
			if point {
				scale++
			}
		case c == '.' && f.point:
			point = true
		case c == '-' || c == '<' && f.brackets:
			neg = true
		}
	}
	if len(digits) == 0 {
		return types.Numeric{}, pgerr.Newf(pgerr.InvalidTextRepresentation, "invalid input syntax for type numeric: %q", " ")
	}
	v, _ := new(big.Int).SetString(string(digits), 10)
	if neg {
		v.Neg(v)
	}
	return types.NewNumeric(v, scale)
}
