package types

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEnumValues(t *testing.T) {
	enum := T(20000)
	require.True(t, enum.IsEnum())
	require.False(t, T(ArrayOf(enum.OID)).IsEnum())
	elem, ok := T(ArrayOf(enum.OID)).Elem()
	require.True(t, ok)
	require.Equal(t, enum, elem)
	last := ""
	for _, sort := range []float32{float32(math.Inf(-1)), -2.5, -1, 0, 0.5, 1, 1.5, 2, 1 << 20} {
		v := EnumValue(sort, "z")
		require.Equal(t, "z", EnumLabel(v))
		require.Less(t, last, v)
		require.Equal(t, -1, CompareString(enum.OID, last, v))
		last = v
	}
	d := Datum{Type: enum, Str: EnumValue(1, "ok")}
	require.Equal(t, "ok", string(d.AppendText(nil, nil)))
	require.Equal(t, "ok", string(d.AppendBinary(nil)))
	require.Equal(t, `{ok,NULL}`, Datum{Type: T(ArrayOf(enum.OID)), Str: EncodeArray(NewArray(enum.OID, []Datum{d, NullDatum(enum)}))}.String())
	_, err := ParseText(nil, enum, "ok")
	require.Error(t, err, "labels are in the catalogue")
}

// FuzzDateStyle prints timestamps in every style and reads them back.
func FuzzDateStyle(f *testing.F) {
	f.Add(int64(0), uint8(0), uint8(0))
	f.Add(int64(-63_082_281_600_000_000), uint8(2), uint8(1))
	f.Add(int64(123_456_789), uint8(3), uint8(2))
	f.Fuzz(func(t *testing.T, us int64, style, order uint8) {
		if !validTimestamp(us) {
			t.Skip()
		}
		fm := DefaultFormat()
		fm.DateStyle, fm.DateOrder = DateStyle(style%4), DateOrder(order%2)
		if fm.DateStyle == DateGerman {
			fm.DateOrder = OrderDMY
		}
		text := string(Datum{Type: Timestamp, Int: us}.AppendText(nil, fm))
		back, err := ParseTimestamp(fm, text)
		require.NoError(t, err, text)
		require.Equal(t, us, back, text)
		day := floorDiv64(us, microsPerDay)
		text = string(Datum{Type: Date, Int: day}.AppendText(nil, fm))
		back, err = ParseDate(fm, text)
		require.NoError(t, err, text)
		require.Equal(t, day, back, text)
	})
}
