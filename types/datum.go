package types

// Datum is one value outside a vector: literals, keys of point reads, option values. Never used per row on a data path.
type Datum struct {
	Type  Type
	Null  bool
	Bool  bool
	Int   int64
	Float float64
	Str   string
	Num   Numeric
	Ivl   Interval
}

// NullDatum returns the NULL of type t.
func NullDatum(t Type) Datum { return Datum{Type: t, Null: true} }

// Get returns row i of v.
func (v *Vector) Get(i int) Datum {
	d := Datum{Type: v.Type}
	if v.IsNull(i) {
		d.Null = true
		return d
	}
	switch v.Type.Kind() {
	case KindBool:
		d.Bool = v.Bool[i]
	case KindInt:
		d.Int = v.Int[i]
	case KindFloat:
		d.Float = v.Float[i]
	case KindString:
		d.Str = v.Str[i]
	case KindNumeric:
		d.Num = v.Num[i]
	case KindInterval:
		d.Ivl = v.Ivl[i]
	}
	return d
}

// AppendDatum appends d, which must be of v's kind or NULL.
func (v *Vector) AppendDatum(d Datum) {
	if d.Null {
		v.AppendNull()
		return
	}
	n := v.Len()
	switch v.Type.Kind() {
	case KindBool:
		v.Bool = append(v.Bool, d.Bool)
	case KindInt:
		v.Int = append(v.Int, d.Int)
	case KindFloat:
		v.Float = append(v.Float, d.Float)
	case KindString:
		v.Str = append(v.Str, d.Str)
	case KindNumeric:
		v.Num = append(v.Num, d.Num)
	case KindInterval:
		v.Ivl = append(v.Ivl, d.Ivl)
	}
	if v.Valid != nil {
		v.growValid(n, n+1)
	}
}
