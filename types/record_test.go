package types

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The names of a composite value's fields are for JSON only: they take no part in order and equality.
func TestNamedRecord(t *testing.T) {
	fields := []Datum{{Type: Int4, Int: 7}, {Type: Text, Str: "x"}, NullDatum(Bool)}
	plain := EncodeRecord(fields)
	named := EncodeNamedRecord(fields, []string{"id", "", "ok"})
	got, names, err := DecodeNamedRecord(named)
	require.NoError(t, err)
	require.Equal(t, fields, got)
	require.Equal(t, []string{"id", "", "ok"}, names)
	got, names, err = DecodeNamedRecord(plain)
	require.NoError(t, err)
	require.Equal(t, fields, got)
	require.Nil(t, names)
	require.Zero(t, CompareString(OIDRecord, plain, named))
	a, b := Datum{Type: T(OIDRecord), Str: plain}, Datum{Type: T(OIDRecord), Str: named}
	require.Equal(t, AppendKeyDatum(nil, a, false, false), AppendKeyDatum(nil, b, false, false))
	_, _, err = DecodeNamedRecord(named[:len(named)-1])
	require.Error(t, err)
}
