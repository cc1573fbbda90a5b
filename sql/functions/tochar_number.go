package functions

import (
	"math/big"
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
		case "EEEE", "V", "C":
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "%q in a number format is not supported", word)
		case "FM":
			n.fill = true
		case "B":
		case "RN":
			n.roman = true
		case "9", "0":
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

// charNumeric is to_char of a number.
func charNumeric(v types.Numeric, template string) (string, error) {
	f, err := parseNumberFormat(template)
	if err != nil {
		return "", err
	}
	if f.roman {
		return f.romanText(v)
	}
	overflow := v.Form != types.Finite
	digits, frac := "", ""
	neg := v.Sign() < 0
	if !overflow {
		r, err := types.NumRound(v, f.post)
		if err != nil {
			return "", err
		}
		s := types.NumAbs(r).String()
		digits, frac, _ = strings.Cut(s, ".")
		digits = strings.TrimLeft(digits, "0")
		if neg && r.Sign() == 0 && digits == "" {
			// PostgreSQL keeps the sign of what rounds to zero.
			neg = v.Sign() < 0
		}
		overflow = len(digits) > f.pre
	}
	return f.render(digits, frac, neg, overflow), nil
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
			b.WriteByte('.')
		case ",":
			if started || pos > first {
				b.WriteByte(',')
			} else if !f.fill {
				b.WriteByte(' ')
			}
		default:
			f.mark(&b, t, digits, neg)
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
func (f *numberFormat) mark(b *strings.Builder, t, digits string, neg bool) {
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
		if neg || digits == "" || f.point {
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
	if !f.fill && len(s) < romanWidth {
		s = strings.Repeat(" ", romanWidth-len(s)) + s
	}
	return s, nil
}

// toNumber reads a number by a template: digits and signs count, everything else is skipped.
func toNumber(s, template string) (types.Numeric, error) {
	f, err := parseNumberFormat(template)
	if err != nil {
		return types.Numeric{}, err
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
		return types.Numeric{}, pgerr.Newf(pgerr.InvalidTextRepresentation, "invalid input syntax for type numeric: %q", s)
	}
	v, _ := new(big.Int).SetString(string(digits), 10)
	if neg {
		v.Neg(v)
	}
	return types.NewNumeric(v, scale)
}
