package functions

import (
	"math"
	"strings"
	"unicode/utf8"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

const microsPerDay = 86_400_000_000

// maxNameBytes is the length of a name (NAMEDATALEN - 1).
const maxNameBytes = 63

// castFunctions lists the functions of pg_cast and the internal casts.
func castFunctions() []entry {
	out := append(numberCasts(), timeCasts()...)
	out = append(out, textCasts()...)
	own := func(id string, f string, k expr.Kernel) entry {
		return entry{id: id, sig: f, impl: impl{kernel: k}}
	}
	return append(out,
		own(castRetype, "any f t i", retypeKernel),
		entry{id: castInput, sig: "any f t i", impl: impl{kernel: inputKernel, session: true}},
		entry{id: castOutput, sig: "text f t i", impl: impl{kernel: outputKernel, session: true}},
		own(castLength, "any f t i", lengthKernel(false)), own(castLengthCut, "any f t i", lengthKernel(true)),
		own(castOidInt, "oid f t i", map1(intSlot, intSlot, func(v int64) int64 { return int64(uint32(v)) })),
		own(castIntOid, "int4 f t i", map1(intSlot, intSlot, func(v int64) int64 { return int64(int32(v)) })),
	)
}

func intCast(to types.OID) expr.Kernel {
	g := rangeOf(to)
	return map1e(intSlot, intSlot, func(v int64) (int64, error) {
		if !g.has(v) {
			return 0, g.err()
		}
		return v, nil
	})
}

func floatToInt(to types.OID) expr.Kernel {
	g := rangeOf(to)
	return map1e(floatSlot, intSlot, func(v float64) (int64, error) {
		v = math.RoundToEven(v)
		// The upper bound + 1 is a power of two, so it is exact as a float.
		if v != v || v < float64(g.lo) || v >= -float64(g.lo) {
			return 0, g.err()
		}
		return int64(v), nil
	})
}

func toFloat4(v float64) (float64, error) {
	r := float64(float32(v))
	switch {
	case math.IsInf(r, 0) && !math.IsInf(v, 0):
		return 0, errFloatOverflow()
	case r == 0 && v != 0:
		return 0, errFloatUnderflow()
	}
	return r, nil
}

func numberCasts() []entry {
	var out []entry
	ints := [...]string{"int2", "int4", "int8"}
	for _, t := range ints {
		oid, _ := typeOID(t)
		for _, s := range ints {
			if s == t {
				continue
			}
			if s < t {
				out = append(out, total(t+"("+s+")", "", map1(intSlot, intSlot, same[int64])))
			} else {
				out = append(out, fn(t+"("+s+")", "", intCast(oid)))
			}
		}
		out = append(out,
			fn(t+"(float4)", t+"(2.5::float4)", floatToInt(oid)), fn(t+"(float8)", t+"(3.5::float8)", floatToInt(oid)),
			fn(t+"(numeric)", t+"(-2.5)", map1e(numSlot, intSlot, func(n types.Numeric) (int64, error) { return types.NumToInt(n, oid) })),
			fn(t+"(jsonb)", "(jsonb '2.5')::"+t, map1e(strSlot, intSlot, func(s string) (int64, error) {
				n, err := jsonbNumber(s, rangeOf(oid).name)
				if err != nil {
					return 0, err
				}
				return types.NumToInt(n, oid)
			})),
			total("float4("+t+")", "", map1(intSlot, floatSlot, func(v int64) float64 { return float64(float32(v)) })),
			total("float8("+t+")", "", map1(intSlot, floatSlot, func(v int64) float64 { return float64(v) })),
			fn("numeric("+t+")", "", map1(intSlot, numSlot, types.NumericFromInt64)))
	}
	toFloat8 := func(n types.Numeric) (float64, error) { return n.ToFloat64() }
	numToFloat4 := func(n types.Numeric) (float64, error) {
		v, err := n.ToFloat64()
		if err == nil {
			v, err = toFloat4(v)
		}
		if err != nil {
			return types.ParseFloat(n.String(), types.OIDFloat4) // its error shows the number
		}
		return v, nil
	}
	return append(out,
		total("float8(float4)", "", map1(floatSlot, floatSlot, same[float64])), fn("float4(float8)", "float4(0.1::float8)", map1e(floatSlot, floatSlot, toFloat4)),
		fn("float8(numeric)", "", map1e(numSlot, floatSlot, toFloat8)), fn("float4(numeric)", "", map1e(numSlot, floatSlot, numToFloat4)),
		fn("numeric(float4)", "(1.1::float4)::numeric", map1e(floatSlot, numSlot, func(v float64) (types.Numeric, error) { return types.NumericFromFloat64(v, 6) })),
		fn("numeric(float8)", "(0.1::float8)::numeric", map1e(floatSlot, numSlot, func(v float64) (types.Numeric, error) { return types.NumericFromFloat64(v, 15) })),
		total("bool(int4)", "2::bool", map1(intSlot, boolSlot, func(v int64) bool { return v != 0 })),
		total("int4(bool)", "true::int4", map1(boolSlot, intSlot, func(v bool) int64 {
			if v {
				return 1
			}
			return 0
		})),
		fn("oid(int8)", "oid(42::int8)", map1e(intSlot, intSlot, func(v int64) (int64, error) {
			if v < 0 || v > math.MaxUint32 {
				return 0, pgerr.Newf(pgerr.NumericValueOutOfRange, "OID out of range")
			}
			return v, nil
		})),
		total("int8(oid)", "int8(42::oid)", map1(intSlot, intSlot, same[int64])),
		fn("bool(jsonb)", "(jsonb 'true')::bool", map1e(strSlot, boolSlot, jsonbBool)),
		fn("numeric(jsonb)", "(jsonb '1.50')::numeric", map1e(strSlot, numSlot, func(s string) (types.Numeric, error) { return jsonbNumber(s, "numeric") })),
		fn("float8(jsonb)", "(jsonb '1.50')::float8", map1e(strSlot, floatSlot, func(s string) (float64, error) {
			n, err := jsonbNumber(s, "double precision")
			if err != nil {
				return 0, err
			}
			return n.ToFloat64()
		})),
		fn("float4(jsonb)", "(jsonb '1.50')::float4", map1e(strSlot, floatSlot, func(s string) (float64, error) {
			n, err := jsonbNumber(s, "real")
			if err != nil {
				return 0, err
			}
			return numToFloat4(n)
		})))
}

func errJSONBCast(j *types.JSONTree, to string) error {
	kind := j.Kind.String()
	switch j.Kind {
	case types.JSONNumber:
		kind = "numeric"
	case types.JSONArray, types.JSONObject:
		kind = "array or object"
		if j.Kind == types.JSONArray {
			kind = "array"
		} else {
			kind = "object"
		}
	}
	return pgerr.Newf(pgerr.InvalidParameterValue, "cannot cast jsonb %s to type %s", kind, to)
}

func jsonbNumber(s, to string) (types.Numeric, error) {
	j, err := types.ParseJSON(s)
	if err != nil {
		return types.Numeric{}, err
	}
	if j.Kind != types.JSONNumber {
		return types.Numeric{}, errJSONBCast(&j, to)
	}
	return j.Num, nil
}

func jsonbBool(s string) (bool, error) {
	j, err := types.ParseJSON(s)
	if err != nil {
		return false, err
	}
	if j.Kind != types.JSONBool {
		return false, errJSONBCast(&j, "boolean")
	}
	return j.Bool, nil
}

// timeOfDay returns the time part of a finite local timestamp.
func timeOfDay(ts int64) int64 {
	t := ts % microsPerDay
	if t < 0 {
		t += microsPerDay
	}
	return t
}

func timeCasts() []entry {
	local := func(f *expr.Frame, ts int64) (int64, error) { return types.TimestamptzToLocal(ts, loc(f)) }
	zoned := func(f *expr.Frame, ts int64) (int64, error) { return types.LocalToTimestamptz(ts, loc(f)) }
	return []entry{
		fn("timestamp(date)", "timestamp(date '2024-02-29')", map1e(intSlot, intSlot, types.DateToTimestamp)),
		fn("timestamptz(date)", "", ctx1(intSlot, intSlot, func(f *expr.Frame, d int64) (int64, error) {
			ts, err := types.DateToTimestamp(d)
			if err != nil || types.IsTimestampInfinite(ts) {
				return ts, err
			}
			return zoned(f, ts)
		})),
		fn("date(timestamp)", "date(timestamp '1969-12-31 23:59:59')", map1(intSlot, intSlot, types.TimestampToDate)),
		fn("date(timestamptz)", "", ctx1(intSlot, intSlot, func(f *expr.Frame, ts int64) (int64, error) {
			l, err := local(f, ts)
			return types.TimestampToDate(l), err
		})),
		fn("timestamptz(timestamp)", "", ctx1(intSlot, intSlot, zoned)),
		fn("timestamp(timestamptz)", "", ctx1(intSlot, intSlot, local)),
		fn("time(timestamp)", "", each(func(c *call) error {
			if types.IsTimestampInfinite(c.int(0)) {
				c.setNull()
				return nil
			}
			return c.setInt(timeOfDay(c.int(0)))
		})),
		fn("time(timestamptz)", "", each(func(c *call) error {
			l, err := local(c.f, c.int(0))
			if err != nil {
				return err
			}
			if types.IsTimestampInfinite(l) {
				c.setNull()
				return nil
			}
			return c.setInt(timeOfDay(l))
		})),
		fn("timetz(timestamptz)", "", each(func(c *call) error {
			ts := c.int(0)
			l, err := local(c.f, ts)
			if err != nil {
				return err
			}
			if types.IsTimestampInfinite(l) {
				c.setNull()
				return nil
			}
			off, _ := types.ZoneOffset(ts, loc(c.f))
			return c.setStr(types.MakeTimetz(timeOfDay(l), int32(-off)))
		})),
		fn("timetz(time)", "", each(func(c *call) error {
			off, _ := types.ZoneOffset(txnTime(c.f), loc(c.f))
			return c.setStr(types.MakeTimetz(c.int(0), int32(-off)))
		})),
		fn("time(timetz)", "", map1(strSlot, intSlot, func(s string) int64 { us, _ := types.SplitTimetz(s); return us })),
		fn("interval(time)", "interval(time '04:05:06')", map1(intSlot, intervalSlot, func(us int64) types.Interval { return types.Interval{Micros: us} })),
		fn("time(interval)", "time(interval '-1 hour')", map1(intervalSlot, intSlot, func(iv types.Interval) int64 { return timeOfDay(iv.Micros) })),
	}
}

func txnTime(f *expr.Frame) int64 {
	if f.Env == nil {
		return 0
	}
	return f.Env.TxnTime
}

// toName cuts a string to the length of a name at a character's end.
func toName(s string) string {
	if len(s) <= maxNameBytes {
		return s
	}
	n := maxNameBytes
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func trimBlanks(s string) string { return strings.TrimRight(s, " ") }

func textCasts() []entry {
	str := func(id, ex string, f func(string) string) entry { return total(id, ex, map1(strSlot, strSlot, f)) }
	firstByte := func(s string) string { return s[:min(len(s), 1)] }
	return []entry{
		str("text(bpchar)", "text('ab  '::char(4))||'|'", trimBlanks), str("text(name)", "", same[string]), str("name(text)", "", toName),
		str("name(varchar)", "", toName), str("name(bpchar)", "", func(s string) string { return toName(trimBlanks(s)) }),
		str("bpchar(name)", "", same[string]), str("varchar(name)", "", same[string]),
		str("text(char)", "", same[string]), str("bpchar(char)", "", same[string]), str("char(text)", `'xyz'::"char"`, firstByte),
		fn("text(bool)", "text(true)", map1(boolSlot, strSlot, func(b bool) string {
			if b {
				return "true"
			}
			return "false"
		})),
		fn("int4(char)", `'a'::"char"::int`, map1(strSlot, intSlot, func(s string) int64 {
			if s == "" {
				return 0
			}
			return int64(int8(s[0]))
		})),
		fn("char(int4)", `97::"char"`, map1e(intSlot, strSlot, func(v int64) (string, error) {
			if v < math.MinInt8 || v > math.MaxInt8 {
				return "", pgerr.Newf(pgerr.NumericValueOutOfRange, `"char" out of range`)
			}
			if v == 0 {
				return "", nil
			}
			return string([]byte{byte(v)}), nil
		})),
	}
}

// retypeKernel copies; programs use a node that shares the values instead, array casts use this.
func retypeKernel(f *expr.Frame, args []expr.Arg, out *types.Vector) {
	c := call{f: f, args: args, out: out}
	for i := range f.Len() {
		c.row = f.Row(i)
		expr.Set(out, c.row, c.datum(0))
	}
}

func inputKernel(f *expr.Frame, args []expr.Arg, out *types.Vector) {
	c := call{f: f, args: args, out: out}
	t := types.T(f.Type.OID)
	for i := range f.Len() {
		c.row = f.Row(i)
		d, err := parseValue(f, t, c.str(0))
		if err != nil {
			f.Fail(out, c.row, err)
			continue
		}
		expr.Set(out, c.row, d)
	}
}

// parseValue is the input function of a type.
func parseValue(f *expr.Frame, t types.Type, s string) (types.Datum, error) {
	if isReg(t.OID) {
		oid, err := parseReg(f.Env, t.OID, s)
		return types.Datum{Type: t, Int: int64(oid)}, err
	}
	switch t.OID {
	case types.OIDJSONPath:
		return parsePath(s)
	case types.OIDAclItem:
		item, err := parseACLItem(env(f).Catalog, s)
		return types.Datum{Type: t, Str: item.text(env(f).Catalog)}, err
	}
	return types.ParseText(f.Format(), t, s)
}

func outputKernel(f *expr.Frame, args []expr.Arg, out *types.Vector) {
	a := args[0]
	fm := f.Format()
	var buf []byte
	reg := isReg(a.Type.OID)
	name := f.Type.OID == types.OIDName
	for i := range f.Len() {
		r := f.Row(i)
		if reg {
			out.Str[r] = regText(f.Env, a.Type.OID, uint32(a.Int[a.At(r)]))
			continue
		}
		buf = types.AppendText(buf[:0], fm, a.Vector, a.At(r))
		out.Str[r] = string(buf)
		if name {
			out.Str[r] = toName(out.Str[r])
		}
	}
}

func lengthKernel(explicit bool) expr.Kernel {
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		c := call{f: f, args: args, out: out}
		for i := range f.Len() {
			c.row = f.Row(i)
			d, err := types.Coerce(c.datum(0), f.Type, explicit)
			if err != nil {
				f.Fail(out, c.row, err)
				continue
			}
			expr.Set(out, c.row, d)
		}
	}
}

// arrayCast applies a cast to every element of arrays.
func arrayCast(elem expr.Impl) expr.Kernel {
	return each(func(c *call) error {
		a, err := types.DecodeArray(c.str(0))
		if err != nil {
			return err
		}
		et, _ := c.f.Type.Elem()
		et.Mod = -1
		if len(a.Elems) > 0 {
			in, out := types.Vector{Type: types.T(a.Elem)}, types.NewVector(et, len(a.Elems))
			var errs expr.RowErrors
			f := expr.Frame{N: len(a.Elems), Env: c.f.Env, Errs: &errs, Type: et, Rows: make([]uint16, 0, len(a.Elems))}
			if len(a.Elems) > math.MaxUint16 {
				return pgerr.Newf(pgerr.ProgramLimitExceeded, "cannot cast arrays of more than %d elements", math.MaxUint16)
			}
			for i, d := range a.Elems {
				in.AppendDatum(d)
				if !d.Null {
					f.Rows = append(f.Rows, uint16(i))
				}
			}
			elem.Kernel(&f, []expr.Arg{expr.NewArg(&in)}, out)
			if len(errs.Errs) > 0 {
				return errs.Errs[0]
			}
			for i, d := range a.Elems {
				if d.Null {
					a.Elems[i] = types.NullDatum(et)
				} else {
					a.Elems[i] = out.Get(i)
				}
			}
		}
		a.Elem = et.OID
		return c.setStr(types.EncodeArray(a))
	})
}
