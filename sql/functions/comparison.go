package functions

import (
	"math"

	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// compareOps are the suffixes of comparison function names.
var compareOps = [...]string{cmpEQ: "eq", cmpNE: "ne", cmpLT: "lt", cmpLE: "le", cmpGT: "gt", cmpGE: "ge"}

// comparisons lists = <> < <= > >= of every type, and the btree support functions that clients call by name.
func comparisons() []entry {
	var out []entry
	add := func(id string, i impl) { out = append(out, entry{id: id, impl: i}) }
	for k, op := range compareOps {
		c := comparison(k)
		ints := orderedCompare(c, intSlot)
		if c == cmpEQ {
			ints.intEquality = true
		}
		for _, p := range [...][2]string{
			{"int2", "int2,int2"},
			{"int24", "int2,int4"},
			{"int28", "int2,int8"},
			{"int42", "int4,int2"},
			{"int4", "int4,int4"},
			{"int48", "int4,int8"},
			{"int82", "int8,int2"},
			{"int84", "int8,int4"},
			{"int8", "int8,int8"},
			{"oid", "oid,oid"},
			{"date_", "date,date"},
			{"time_", "time,time"},
			{"timestamp_", "timestamp,timestamp"},
			{"timestamptz_", "timestamptz,timestamptz"},
		} {
			add(p[0]+op+"("+p[1]+")", ints)
		}
		texts := orderedCompare(c, strSlot)
		if c == cmpEQ {
			texts.filter = textEqualFilter(texts.filter)
		}
		add("enum_"+op+"(anyenum,anyenum)", orderedCompare(c, strSlot))
		for _, p := range [...][2]string{{"name", "name,name"}, {"bytea", "bytea,bytea"}, {"char", "char,char"}, {"uuid_", "uuid,uuid"}} {
			add(p[0]+op+"("+p[1]+")", texts)
		}
		add("name"+op+"text(name,text)", texts)
		add("text"+op+"name(text,name)", texts)
		if c <= cmpNE {
			add("text"+op+"(text,text)", texts)
		} else {
			add("text_"+op+"(text,text)", texts)
			add("text_pattern_"+op+"(text,text)", texts)
		}
		floats := floatCompare(c)
		for _, p := range [...][2]string{{"float4", "float4,float4"}, {"float48", "float4,float8"}, {"float84", "float8,float4"}, {"float8", "float8,float8"}} {
			add(p[0]+op+"("+p[1]+")", floats)
		}
		any := genericCompare(c)
		for _, p := range [...][2]string{
			{"bool", "bool,bool"},
			{"bpchar", "bpchar,bpchar"},
			{"numeric_", "numeric,numeric"},
			{"interval_", "interval,interval"},
			{"jsonb_", "jsonb,jsonb"},
			{"array_", "anyarray,anyarray"},
			{"record_", "record,record"},
			{"timetz_", "timetz,timetz"},
			{"oidvector", "oidvector,oidvector"},
		} {
			add(p[0]+op+"("+p[1]+")", any)
		}
		mixedTimes(c, op, add)
	}
	add("xideq(xid,xid)", orderedCompare(cmpEQ, intSlot))
	add("xidneq(xid,xid)", orderedCompare(cmpNE, intSlot))
	add("xideqint4(xid,int4)", orderedCompare(cmpEQ, intSlot))
	add("xidneqint4(xid,int4)", orderedCompare(cmpNE, intSlot))
	return out
}

// textEqualFilter selects the strings that equal a constant; most others differ in length already.
func textEqualFilter(other expr.Filter) expr.Filter {
	return func(f *expr.Frame, args []expr.Arg, sel []uint16) []uint16 {
		a, b := args[0], args[1]
		if a.IsConst() {
			a, b = b, a
		}
		if a.IsConst() || !b.IsConst() {
			return other(f, args, sel)
		}
		want := b.Str[0]
		k := len(sel)
		sel = expr.Grow(sel, f.Len())
		if f.Rows != nil {
			for _, r := range f.Rows {
				sel[k] = r
				if s := a.Str[r]; len(s) == len(want) && s == want {
					k++
				}
			}
			return sel[:k]
		}
		for i, s := range a.Str[:f.N] {
			sel[k] = uint16(i)
			if len(s) == len(want) && s == want {
				k++
			}
		}
		return sel[:k]
	}
}

func floatLess(a, b float64) bool  { return a < b || b != b && a == a }
func floatEqual(a, b float64) bool { return a == b || a != a && b != b }

// floatCompare orders NaN above everything and equal to itself.
func floatCompare(c comparison) impl {
	var test func(a, b float64) bool
	switch c {
	case cmpEQ:
		test = floatEqual
	case cmpNE:
		test = func(a, b float64) bool { return !floatEqual(a, b) }
	case cmpLT:
		test = floatLess
	case cmpLE:
		test = func(a, b float64) bool { return !floatLess(b, a) }
	case cmpGT:
		test = func(a, b float64) bool { return floatLess(b, a) }
	default:
		test = func(a, b float64) bool { return !floatLess(a, b) }
	}
	return impl{total: true, kernel: func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		a, b := args[0], args[1]
		if f.Rows == nil && b.IsConst() && !a.IsConst() && !math.IsNaN(b.Float[0]) {
			floatCompareConst(c, out.Bool, a.Float, b.Float[0])
			return
		}
		if f.Rows == nil && !a.IsConst() && !b.IsConst() {
			floatCompareVectors(c, out.Bool, a.Float, b.Float)
			return
		}
		for i := range f.Len() {
			r := f.Row(i)
			out.Bool[r] = test(a.Float[a.At(r)], b.Float[b.At(r)])
		}
	}}
}

// floatCompareConst compares with a number that is not NaN: of Go's operators only > and >= err, for NaN on the left.
func floatCompareConst(c comparison, o []bool, a []float64, y float64) {
	a = a[:len(o)]
	switch c {
	case cmpEQ:
		for i := range o {
			o[i] = a[i] == y
		}
	case cmpNE:
		for i := range o {
			o[i] = a[i] != y
		}
	case cmpLT:
		for i := range o {
			o[i] = a[i] < y
		}
	case cmpLE:
		for i := range o {
			o[i] = a[i] <= y
		}
	case cmpGT:
		for i := range o {
			o[i] = !(a[i] <= y)
		}
	case cmpGE:
		for i := range o {
			o[i] = !(a[i] < y)
		}
	}
}

func floatCompareVectors(c comparison, o []bool, a, b []float64) {
	a, b = a[:len(o)], b[:len(o)]
	switch c {
	case cmpEQ:
		for i := range o {
			o[i] = floatEqual(a[i], b[i])
		}
	case cmpNE:
		for i := range o {
			o[i] = !floatEqual(a[i], b[i])
		}
	case cmpLT:
		for i := range o {
			o[i] = floatLess(a[i], b[i])
		}
	case cmpLE:
		for i := range o {
			o[i] = !floatLess(b[i], a[i])
		}
	case cmpGT:
		for i := range o {
			o[i] = floatLess(b[i], a[i])
		}
	case cmpGE:
		for i := range o {
			o[i] = !floatLess(a[i], b[i])
		}
	}
}

// genericCompare compares as ORDER BY does.
func genericCompare(c comparison) impl {
	return impl{kernel: func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		a, b := args[0], args[1]
		for i := range f.Len() {
			r := f.Row(i)
			out.Bool[r] = c.holds(types.Compare(a.Vector, a.At(r), b.Vector, b.At(r)))
		}
	}}
}

// mixedTimes adds the comparisons between date, timestamp and timestamptz. A side that lies outside the other type's range
// compares as infinite.
func mixedTimes(c comparison, op string, add func(string, impl)) {
	kinds := map[string]func(f *expr.Frame, v int64, zoned bool) int64{
		"date": func(f *expr.Frame, v int64, zoned bool) int64 {
			ts, err := types.DateToTimestamp(v)
			if err != nil {
				return beyond(v)
			}
			if zoned {
				return toZoned(f, ts)
			}
			return ts
		},
		"timestamp": func(f *expr.Frame, v int64, zoned bool) int64 {
			if zoned {
				return toZoned(f, v)
			}
			return v
		},
		"timestamptz": func(_ *expr.Frame, v int64, _ bool) int64 { return v },
	}
	for l, lf := range kinds {
		for r, rf := range kinds {
			if l == r {
				continue
			}
			zoned := l == "timestamptz" || r == "timestamptz"
			add(l+"_"+op+"_"+r+"("+l+","+r+")", impl{kernel: func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
				a, b := args[0], args[1]
				for i := range f.Len() {
					row := f.Row(i)
					x, y := lf(f, a.Int[a.At(row)], zoned), rf(f, b.Int[b.At(row)], zoned)
					out.Bool[row] = compareOne(c, x, y)
				}
			}})
		}
	}
}

func beyond(v int64) int64 {
	if v < 0 {
		return math.MinInt64
	}
	return math.MaxInt64
}

func toZoned(f *expr.Frame, ts int64) int64 {
	z, err := types.LocalToTimestamptz(ts, loc(f))
	if err != nil {
		return beyond(ts)
	}
	return z
}
