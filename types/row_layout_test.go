package types

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRowLayoutReadsRowsOfAllAges(t *testing.T) {
	// Tables that begin with 7, 8 and 9 columns: the width of the null bitmap must not matter.
	for _, base := range []int{1, 7, 8, 9} {
		var ts []Type
		first := []Datum{}
		for i := range base {
			ts = append(ts, Text)
			first = append(first, Datum{Type: Text, Str: fmt.Sprint("v", i)})
		}
		old := AppendDatumRow(nil, first)
		l := &RowLayout{Types: ts, Base: base}
		for i := range base {
			l.Slots = append(l.Slots, Slot{Type: Text, Column: i})
			l.Missing = append(l.Missing, NullDatum(Text))
		}
		add := func(t Type, missing Datum) *RowLayout {
			n := *l
			n.Types = append(append([]Type(nil), l.Types...), t)
			n.Slots = append(append([]Slot(nil), l.Slots...), Slot{Type: t, Column: len(l.Types)})
			n.Missing = append(append([]Datum(nil), l.Missing...), missing)
			return &n
		}
		l = add(Int4, Datum{Type: Int4, Int: 42})
		mid := l
		l = add(Text, Datum{Type: Text, Str: "missing"})
		c := NewChunk(l.Types)
		require.NoError(t, l.Decode(old, c.Cols))
		require.Equal(t, "v0", c.Cols[0].Str[0])
		require.Equal(t, int64(42), c.Cols[base].Int[0])
		require.Equal(t, "missing", c.Cols[base+1].Str[0])
		// A row that was written between the two additions, with a NULL that is no missing value.
		m := NewChunk(mid.Types)
		require.NoError(t, mid.Decode(old, m.Cols))
		m.Cols[base].SetNull(0)
		between := mid.Append(nil, m.Cols, 0)
		require.NoError(t, l.Decode(between, c.Cols))
		require.True(t, c.Cols[base].IsNull(1))
		require.Equal(t, "missing", c.Cols[base+1].Str[1])
		require.True(t, l.Same(old, l.Append(nil, c.Cols, 0)))
		require.False(t, l.Same(old, between))
		// The first column moves to a new place with another type.
		moved := add(Int8, NullDatum(Int8))
		moved.Types = append([]Type{Int8}, moved.Types[1:len(moved.Types)-1]...)
		moved.Slots[0].Column = -1
		moved.Slots[len(moved.Slots)-1].Column = 0
		moved.Missing = append([]Datum{NullDatum(Int8)}, moved.Missing[1:len(moved.Missing)-1]...)
		d := NewChunk(moved.Types)
		require.NoError(t, moved.Decode(old, d.Cols))
		require.True(t, d.Cols[0].IsNull(0))
		d.Cols[0] = NewVector(Int8, 1)
		d.Cols[0].Int[0] = 7
		again := moved.Append(nil, d.Cols, 0)
		e := NewChunk(moved.Types)
		require.NoError(t, moved.Decode(again, e.Cols))
		require.Equal(t, int64(7), e.Cols[0].Int[0])
		require.Equal(t, "missing", e.Cols[base+1].Str[0])
		require.Error(t, l.Decode(old[:len(old)-1], c.Cols))
	}
}
