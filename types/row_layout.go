package types

import "unsafe"

// RowLayout says how the columns of a table lie in its stored rows. Rows never say it themselves, and rows of all ages must stay readable
// when columns come and go: a row is the row form of the columns that the table began with, and then, one after the other, the row form of
// each column added since, as many of them as there were when it was written. Columns that are gone keep their place, and a column that got
// another type has a new one.
//
// A nil layout, and one without Slots, is the plain row form of the columns. It is immutable.
type RowLayout struct {
	Types []Type // of the columns, in the order of the table
	Base  int    // slots of the first part
	Slots []Slot
	// Missing are the values of columns for rows that end before them, by column.
	Missing []Datum
	// Generation counts how often all rows were replaced: with the layouts of a later one, rows of an earlier one lack values.
	Generation uint64
}

// Slot is a place in a row. Every column has exactly one.
type Slot struct {
	Type   Type `json:"type"`
	Column int  `json:"column"` // -1: nobody's any more
}

func (l *RowLayout) plain() bool { return l == nil || l.Slots == nil }

// Append appends the row form of physical row i of cols.
func (l *RowLayout) Append(dst []byte, cols []*Vector, i int) []byte {
	if l.plain() {
		return AppendRow(dst, cols, i)
	}
	at := len(dst)
	for range (l.Base + 7) / 8 {
		dst = append(dst, 0)
	}
	null := func(s Slot) bool { return s.Column < 0 || cols[s.Column].IsNull(i) }
	for k, s := range l.Slots[:l.Base] {
		if null(s) {
			dst[at+k>>3] |= 1 << (k & 7)
			continue
		}
		dst = appendVectorValue(dst, cols[s.Column], i)
	}
	for _, s := range l.Slots[l.Base:] {
		if null(s) {
			dst = append(dst, 1)
			continue
		}
		dst = appendVectorValue(append(dst, 0), cols[s.Column], i)
	}
	return dst
}

// Decode appends one row, which is all of b, to cols. The row's strings share one new allocation; b may be reused. On error cols are unchanged.
func (l *RowLayout) Decode(b []byte, cols []*Vector) error {
	if l.plain() {
		_, err := DecodeRow(b, cols)
		return err
	}
	if len(cols) == 0 {
		return nil
	}
	n := cols[0].Len()
	if err := l.DecodeView(b, cols); err != nil {
		return err
	}
	l.own(b, cols, n)
	return nil
}

// DecodeView is Decode with strings that are views of b, which must never change.
func (l *RowLayout) DecodeView(b []byte, cols []*Vector) error {
	if len(cols) == 0 {
		return nil
	}
	n := cols[0].Len()
	r := decoder{s: unsafe.String(unsafe.SliceData(b), len(b))}
	if l.plain() {
		r.row(cols)
	} else {
		l.decode(&r, cols)
	}
	if r.bad {
		truncate(cols, n)
		return errCorrupt("row")
	}
	return nil
}

func (l *RowLayout) decode(r *decoder, cols []*Vector) {
	value := func(s Slot, null bool) {
		switch {
		case s.Column < 0 && !null:
			r.value(s.Type)
		case s.Column < 0:
		case null:
			cols[s.Column].AppendNull()
		default:
			r.appendTo(cols[s.Column])
		}
	}
	nulls := r.bytes(uint64(l.Base+7) / 8)
	if r.bad {
		return
	}
	for k, s := range l.Slots[:l.Base] {
		if value(s, nulls[k>>3]>>(k&7)&1 != 0); r.bad {
			return
		}
	}
	for _, s := range l.Slots[l.Base:] {
		if r.s == "" {
			if s.Column >= 0 {
				cols[s.Column].AppendDatum(l.Missing[s.Column])
			}
			continue
		}
		if value(s, r.byte() != 0); r.bad {
			return
		}
	}
}

// own gives the strings of row n, which are views into b, memory of their own.
func (l *RowLayout) own(b []byte, cols []*Vector, n int) {
	var own string
	base := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	for _, v := range cols {
		if v.Type.Kind() != KindString || v.IsNull(n) {
			continue
		}
		s := v.Str[n]
		if s == "" {
			v.Str[n] = ""
			continue
		}
		off := uintptr(unsafe.Pointer(unsafe.StringData(s))) - base
		if off >= uintptr(len(b)) {
			continue // a missing value
		}
		if own == "" {
			own = string(b)
		}
		v.Str[n] = own[off : int(off)+len(s)]
	}
}

// Same reports whether two row forms hold the same row, whatever the layouts were when they were written.
func (l *RowLayout) Same(a, b []byte) bool {
	if string(a) == string(b) {
		return true
	}
	if l.plain() {
		return false
	}
	c := NewChunk(l.Types)
	if l.Decode(a, c.Cols) != nil || l.Decode(b, c.Cols) != nil {
		return false
	}
	return string(l.Append(nil, c.Cols, 0)) == string(l.Append(nil, c.Cols, 1))
}
