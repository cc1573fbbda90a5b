package types

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/pgerr"
)

func TestTypeNames(t *testing.T) {
	for name, oid := range map[string]OID{
		"int": OIDInt4, "INTEGER": OIDInt4, "int8": OIDInt8, "double precision": OIDFloat8, "double  precision": OIDFloat8, "decimal": OIDNumeric, "char": OIDBpchar,
		`"char"`: OIDChar, "pg_catalog.char": OIDChar, "timestamp with time zone": OIDTimestamptz, "character varying": OIDVarchar, "_int4": 1007, "int[]": 1007,
		"text[][]": 1009, "pg_catalog.int4": OIDInt4, "timestamptz[3]": 1185, "bool": OIDBool,
	} {
		got, ok := TypeByName(name)
		require.True(t, ok, name)
		require.Equal(t, oid, got, name)
	}
	for _, name := range []string{"", "nope", "int]", "pg_catalog.int", "void[]"} {
		_, ok := TypeByName(name)
		require.False(t, ok, name)
	}
}

func TestFormatType(t *testing.T) {
	for want, typ := range map[string]Type{
		"integer": Int4, "character varying(5)": {OIDVarchar, 9}, "character varying(5)[]": {1015, 9}, "numeric(6,2)": {OIDNumeric, 393222}, "numeric(2,-3)": {OIDNumeric, NumericTypmod(2, -3)},
		"timestamp(3) with time zone": {OIDTimestamptz, 3}, "interval day to second(3)": {OIDInterval, 1<<28 | 3 | (1<<fieldDay|1<<fieldHour|1<<fieldMinute)<<16},
		`"char"`: T(OIDChar), "int2vector": T(OIDInt2Vector), "character(1)": {OIDBpchar, 5}, "interval(2)": {OIDInterval, 0x7FFF0002},
	} {
		require.Equal(t, want, typ.String())
	}
}

func TestTypmodErrors(t *testing.T) {
	for _, c := range []struct {
		oid  OID
		mods []int
		code pgerr.Code
		msg  string
	}{
		{OIDVarchar, []int{0}, "22023", "length for type varchar must be at least 1"},
		{OIDBpchar, []int{10485761}, "22023", "length for type char cannot exceed 10485760"},
		{OIDNumeric, []int{1001}, "22023", "NUMERIC precision 1001 must be between 1 and 1000"},
		{OIDNumeric, []int{5, 1001}, "22023", "NUMERIC scale 1001 must be between -1000 and 1000"},
		{OIDTimestamp, []int{-1}, "22023", "TIMESTAMP(-1) precision must not be negative"},
		{OIDInt4, []int{3}, "42601", `type modifier is not allowed for type "int4"`},
	} {
		_, err := TypmodIn(c.oid, c.mods)
		require.Equal(t, c.code, pgerr.CodeOf(err))
		require.EqualError(t, err, c.msg)
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	c := benchChunk()
	buf := make([]byte, 0, 4096)
	out := make([]uint64, c.N)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		HashRows(c, []int{0, 1, 2, 3}, out)
		for i := range c.N {
			for _, v := range c.Cols {
				buf = AppendText(buf[:0], nil, v, i)
				buf = AppendBinary(buf[:0], v, i)
			}
			buf = AppendKeyRow(buf[:0], c.Cols, i)
			buf = AppendRow(buf[:0], c.Cols, i)
		}
	}))
}
