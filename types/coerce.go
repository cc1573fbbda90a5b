package types

import (
	"strings"
	"unicode/utf8"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// Coerce applies the length or precision modifier of to, whose base type is d's. An explicit cast cuts strings that are too long; an
// assignment fails with 22001 unless only blanks are cut.
func Coerce(d Datum, to Type, explicit bool) (Datum, error) {
	d.Type = to
	if d.Null || to.Mod < 0 {
		return d, nil
	}
	var err error
	switch to.OID {
	case OIDVarchar:
		d.Str, err = coerceVarchar(d.Str, int(to.Mod)-varHeader, explicit)
	case OIDBpchar:
		d.Str, err = coerceBpchar(d.Str, int(to.Mod)-varHeader, explicit)
	case OIDNumeric:
		d.Num, err = applyNumericTypmod(d.Num, to.Mod)
	case OIDTime:
		d.Int = RoundMicros(d.Int, int(to.Mod))
	case OIDTimestamp, OIDTimestamptz:
		if !IsTimestampInfinite(d.Int) {
			d.Int = RoundMicros(d.Int, int(to.Mod))
		}
	case OIDTimetz:
		us, zone := splitTimetz(d.Str)
		d.Str = MakeTimetz(RoundMicros(us, int(to.Mod)), zone)
	case OIDInterval:
		d.Ivl, err = applyIntervalTypmod(d.Ivl, to.Mod)
	default:
		if e, ok := to.Elem(); ok {
			d.Str, err = coerceArray(d.Str, e, explicit)
		}
	}
	return d, err
}

func coerceArray(s string, elem Type, explicit bool) (string, error) {
	a, err := DecodeArray(s)
	if err != nil {
		return "", err
	}
	for i := range a.Elems {
		if a.Elems[i], err = Coerce(a.Elems[i], elem, explicit); err != nil {
			return "", err
		}
		a.Elems[i].Type = T(elem.OID)
	}
	return EncodeArray(a), nil
}

// cutChars splits s after n characters.
func cutChars(s string, n int) (head, tail string) {
	if len(s) <= n {
		return s, ""
	}
	i := 0
	for ; n > 0 && i < len(s); n-- {
		_, w := utf8.DecodeRuneInString(s[i:])
		i += w
	}
	return s[:i], s[i:]
}

func coerceVarchar(s string, n int, explicit bool) (string, error) {
	head, tail := cutChars(s, n)
	if tail != "" && !explicit && trimBlanks(tail) != "" {
		return "", pgerr.Newf(pgerr.StringDataRightTruncation, "value too long for type character varying(%d)", n)
	}
	return head, nil
}

func coerceBpchar(s string, n int, explicit bool) (string, error) {
	head, tail := cutChars(s, n)
	if tail != "" {
		if !explicit && trimBlanks(tail) != "" {
			return "", pgerr.Newf(pgerr.StringDataRightTruncation, "value too long for type character(%d)", n)
		}
		return head, nil
	}
	if pad := n - utf8.RuneCountInString(s); pad > 0 {
		return s + strings.Repeat(" ", pad), nil
	}
	return s, nil
}
