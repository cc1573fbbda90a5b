package types

import (
	"bytes"
	"cmp"
	"strings"
)

// Compare compares row i of a with row j of b as ORDER BY does. Both must be of the same type and not NULL.
func Compare(a *Vector, i int, b *Vector, j int) int {
	switch a.Type.Kind() {
	case KindBool:
		return compareBool(a.Bool[i], b.Bool[j])
	case KindInt:
		return cmp.Compare(a.Int[i], b.Int[j])
	case KindFloat:
		return compareFloat(a.Float[i], b.Float[j])
	case KindString:
		return compareString(a.Type.OID, a.Str[i], b.Str[j])
	case KindNumeric:
		return compareNumeric(&a.Num[i], &b.Num[j])
	case KindInterval:
		return CompareInterval(a.Ivl[i], b.Ivl[j])
	}
	return 0
}

// CompareDatum compares two values of the same type; NULLs are equal to each other and above everything else.
func CompareDatum(a, b Datum) int {
	if a.Null || b.Null {
		return compareBool(a.Null, b.Null)
	}
	switch a.Type.Kind() {
	case KindBool:
		return compareBool(a.Bool, b.Bool)
	case KindInt:
		return cmp.Compare(a.Int, b.Int)
	case KindFloat:
		return compareFloat(a.Float, b.Float)
	case KindString:
		return compareString(a.Type.OID, a.Str, b.Str)
	case KindNumeric:
		return compareNumeric(&a.Num, &b.Num)
	case KindInterval:
		return CompareInterval(a.Ivl, b.Ivl)
	}
	return 0
}

// EqualDatum reports whether a and b are not distinct: NULL equals NULL.
func EqualDatum(a, b Datum) bool { return CompareDatum(a, b) == 0 }

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func compareFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	case a == b:
		return 0
	}
	return compareBool(a != a, b != b)
}

// CompareString compares two values of a KindString type as ORDER BY does.
func CompareString(oid OID, a, b string) int { return compareString(oid, a, b) }

func compareString(oid OID, a, b string) int {
	switch oid {
	case OIDText, OIDVarchar, OIDBytea, OIDUUID, OIDName, OIDChar, OIDUnknown:
		return strings.Compare(a, b)
	case OIDBpchar:
		return strings.Compare(trimBlanks(a), trimBlanks(b))
	}
	if a == b {
		return 0
	}
	if T(oid).IsEnum() {
		return strings.Compare(a, b)
	}
	return bytes.Compare(appendStringKey(nil, oid, a), appendStringKey(nil, oid, b))
}
