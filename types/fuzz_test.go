package types

import "testing"

// FuzzParseText feeds every type's reader; what it accepts must survive a trip through its own text form.
func FuzzParseText(f *testing.F) {
	for _, row := range readGolden(f, "text.golden") {
		f.Add(row[1])
	}
	format := newYork(f)
	f.Fuzz(func(t *testing.T, s string) {
		for _, i := range AllInfos() {
			d, err := ParseText(format, T(i.OID), s)
			if err != nil {
				continue
			}
			text := string(d.AppendText(nil, format))
			back, err := ParseText(format, T(i.OID), text)
			if err != nil {
				t.Fatalf("%s: %q prints as %q, which does not read: %v", i.Name, s, text, err)
			}
			if CompareDatum(d, back) != 0 {
				t.Fatalf("%s: %q prints as %q, which reads as another value", i.Name, s, text)
			}
		}
	})
}

func FuzzParseBinary(f *testing.F) {
	for _, t := range sampleTypes() {
		d := Datum{Type: t, Str: EncodeArray(NewArray(OIDInt4, []Datum{{Type: Int4, Int: 1}}))}
		f.Add(d.AppendBinary(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, i := range AllInfos() {
			if d, err := ParseBinary(T(i.OID), b); err == nil {
				_ = d.AppendText(nil, nil)
				_ = AppendKeyDatum(nil, d, false, false)
			}
		}
	})
}

func FuzzDecodeArray(f *testing.F) {
	f.Add(EncodeArray(NewArray(OIDInt4, []Datum{{Type: Int4, Int: 1}, NullDatum(Int4)})))
	f.Add(EncodeRecord([]Datum{{Type: Text, Str: "a"}}))
	f.Add(EncodeNamedRecord([]Datum{{Type: Text, Str: "a"}, NullDatum(Int4)}, []string{"x", ""}))
	f.Fuzz(func(t *testing.T, s string) {
		if a, err := DecodeArray(s); err == nil {
			b, err := DecodeArray(EncodeArray(a))
			if err != nil || len(b.Elems) != len(a.Elems) {
				t.Fatalf("array changed: %v", err)
			}
		}
		if r, err := DecodeRecord(s); err == nil {
			if _, err := DecodeRecord(EncodeRecord(r)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzDecodeChunk(f *testing.F) {
	ts := sampleTypes()
	c := NewChunk(ts)
	for i := range c.Cols {
		c.Cols[i].AppendNull()
	}
	c.PushWeight(-1)
	f.Add(AppendChunk(nil, c))
	f.Fuzz(func(t *testing.T, b []byte) {
		for n := range len(ts) {
			if d, err := DecodeChunk(b, ts[n:]); err == nil {
				out := make([]uint64, d.N)
				HashRows(d, []int{0}, out)
			}
		}
	})
}
