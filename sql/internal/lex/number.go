package lex

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// number scans a number, with the forms of later versions: 0x1F, 0o17, 0b1, 1_000.
func (l *lexer) number() Token {
	p := l.i
	digits := func(set string) {
		for l.i < len(l.s) && (strings.IndexByte(set, l.s[l.i]) >= 0 || l.s[l.i] == '_' && l.i+1 < len(l.s) && strings.IndexByte(set, l.s[l.i+1]) >= 0) {
			l.i++
		}
	}
	const dec = "0123456789"
	k := Int
	base := 10
	if l.s[p] == '0' && strings.IndexByte("xXoObB", l.at(1)) >= 0 && l.at(1) != 0 {
		l.i += 2
		switch l.at(-1) | 0x20 {
		case 'x':
			base = 16
			digits("0123456789abcdefABCDEF")
		case 'o':
			base = 8
			digits("01234567")
		default:
			base = 2
			digits("01")
		}
	} else {
		digits(dec)
		if l.at(0) == '.' && l.at(1) != '.' {
			k = Num
			l.i++
			digits(dec)
		}
		if c := l.at(0); c == 'e' || c == 'E' {
			save := l.i
			l.i++
			if l.at(0) == '+' || l.at(0) == '-' {
				l.i++
			}
			if isDigit(l.at(0)) {
				k = Num
				digits(dec)
			} else {
				l.i = save
			}
		}
	}
	if l.i < len(l.s) && identStart(l.s[l.i]) {
		Fail(pgerr.SyntaxError, p, "trailing junk after numeric literal at or near %q", l.s[p:l.i+1])
	}
	v := strings.ReplaceAll(l.s[p:l.i], "_", "")
	return normNumber(k, v, base, p, l.i)
}

// normNumber makes the token: what fits int8 is Int, anything else Num.
func normNumber(k Kind, v string, base, p, end int) Token {
	t := Token{K: k, Val: v, Pos: p, End: end}
	if k != Int {
		return t
	}
	if base == 10 {
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			t.Val = strconv.FormatInt(n, 10)
		} else {
			t.K = Num
		}
		return t
	}
	n, ok := new(big.Int).SetString(v[2:], base)
	if !ok {
		Fail(pgerr.SyntaxError, p, "invalid integer at or near %q", v)
	}
	t.Val = n.String()
	if !n.IsInt64() {
		t.K = Num
	}
	return t
}
