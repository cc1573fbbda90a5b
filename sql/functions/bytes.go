package functions

import (
	"math/bits"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// byteFunctions lists functions over single bytes and bits of bytea, and over sizes.
func byteFunctions() []entry {
	overlay := each(func(c *call) error {
		s, by, from := c.str(0), c.str(1), c.int(2)
		n := int64(len(by))
		if c.has(3) {
			n = c.int(3)
		}
		if from <= 0 {
			return pgerr.Newf(pgerr.SubstringError, "negative substring length not allowed")
		}
		size := int64(len(s))
		head, tail := min(from-1, size), min(max(0, from-1+n), size)
		return c.setStr(s[:head] + by + s[tail:])
	})
	larger := func(c *call) error {
		if types.CompareDatum(c.datum(0), c.datum(1)) > 0 {
			return c.setDatum(c.datum(0))
		}
		return c.setDatum(c.datum(1))
	}
	smaller := func(c *call) error {
		if types.CompareDatum(c.datum(0), c.datum(1)) < 0 {
			return c.setDatum(c.datum(0))
		}
		return c.setDatum(c.datum(1))
	}
	out := []entry{
		fn("overlay(bytea,bytea,int4)", `overlay('\x010203'::bytea placing '\xff'::bytea from 2)`, overlay), fn("overlay(bytea,bytea,int4,int4)", "", overlay),
		fn("set_byte(bytea,int4,int4)", `set_byte('\x0102'::bytea,1,255)`, each(func(c *call) error {
			b, at := []byte(c.str(0)), c.int(1)
			if err := inRange(at, int64(len(b))); err != nil {
				return err
			}
			b[at] = byte(c.int(2))
			return c.setStr(string(b))
		})),
		fn("get_bit(bytea,int8)", `get_bit('\x05'::bytea,2)`, each(func(c *call) error {
			s, at := c.str(0), c.int(1)
			if err := inRange(at, int64(len(s))*8); err != nil {
				return err
			}
			return c.setInt(int64(s[at/8] >> (at % 8) & 1))
		})),
		fn("set_bit(bytea,int8,int4)", `set_bit('\x00'::bytea,3,1)`, each(func(c *call) error {
			b, at, v := []byte(c.str(0)), c.int(1), c.int(2)
			if err := inRange(at, int64(len(b))*8); err != nil {
				return err
			}
			switch v {
			case 0:
				b[at/8] &^= 1 << (at % 8)
			case 1:
				b[at/8] |= 1 << (at % 8)
			default:
				return pgerr.Newf(pgerr.InvalidParameterValue, "new bit must be 0 or 1")
			}
			return c.setStr(string(b))
		})),
		fn("bit_count(bytea)", `bit_count('\x05ff'::bytea)`, map1(strSlot, intSlot, func(s string) int64 {
			n := 0
			for i := range len(s) {
				n += bits.OnesCount8(s[i])
			}
			return int64(n)
		})),
		fn("parse_ident(text,bool)", "parse_ident('\"Some Schema\".tab',true)", each(parseIdent)),
		fn("pg_size_bytes(text)", "pg_size_bytes('1.5 MB')", map1e(strSlot, intSlot, sizeBytes)),
		fn("pg_size_pretty(numeric)", "pg_size_pretty(12345678.9)", map1e(numSlot, strSlot, sizePrettyNumeric)),
	}
	for _, id := range [...]string{
		"text_%(text,text)", "bpchar_%(bpchar,bpchar)", "float8%(float8,float8)", "float4%(float4,float4)", "int8%(int8,int8)", "int4%(int4,int4)",
		"int2%(int2,int2)", "numeric_%(numeric,numeric)", "date_%(date,date)", "timestamp_%(timestamp,timestamp)",
		"timestamptz_%(timestamptz,timestamptz)", "interval_%(interval,interval)", "time_%(time,time)", "timetz_%(timetz,timetz)", "oid%(oid,oid)",
		"array_%(anyarray,anyarray)",
	} {
		out = append(out, fn(strings.Replace(id, "%", "larger", 1), "", each(larger)), fn(strings.Replace(id, "%", "smaller", 1), "", each(smaller)))
	}
	compare := each(func(c *call) error {
		return c.setInt(int64(types.CompareDatum(c.datum(0), c.datum(1))))
	})
	for _, t := range [...]string{"int2", "int4", "int8", "float4", "float8", "text", "name", "bool", "oid"} {
		out = append(out, fn("bt"+t+"cmp("+t+","+t+")", "", compare))
	}
	for _, id := range [...]string{"jsonb_cmp(jsonb,jsonb)", "bpcharcmp(bpchar,bpchar)", "uuid_cmp(uuid,uuid)", "byteacmp(bytea,bytea)", "numeric_cmp(numeric,numeric)", "btarraycmp(anyarray,anyarray)"} {
		out = append(out, fn(id, "", compare))
	}
	one := types.NumericFromInt64(1)
	return append(out, fn("numeric_inc(numeric)", "", map1e(numSlot, numSlot, func(n types.Numeric) (types.Numeric, error) { return types.NumAdd(n, one) })))
}

func inRange(at, size int64) error {
	if at < 0 || at >= size {
		return pgerr.Newf(pgerr.ArraySubscriptError, "index %d out of valid range, 0..%d", at, size-1)
	}
	return nil
}

var sizeUnits = [...]string{"bytes", "kB", "MB", "GB", "TB", "PB"}

// sizeBytes is pg_size_bytes: a number with a unit of 1024.
func sizeBytes(s string) (int64, error) {
	text := strings.TrimSpace(s)
	n := 0
	if n < len(text) && (text[n] == '+' || text[n] == '-') {
		n++
	}
	for n < len(text) && (text[n] >= '0' && text[n] <= '9' || text[n] == '.') {
		n++
	}
	if n+1 < len(text) && (text[n] == 'e' || text[n] == 'E') {
		at := n + 1
		if text[at] == '+' || text[at] == '-' {
			at++
		}
		if at < len(text) && text[at] >= '0' && text[at] <= '9' {
			for n = at; n < len(text) && text[n] >= '0' && text[n] <= '9'; {
				n++
			}
		}
	}
	v, err := types.ParseNumeric(text[:n])
	if err != nil || strings.Trim(text[:n], "+-.") == "" {
		return 0, pgerr.Newf(pgerr.InvalidParameterValue, "invalid size: \"%s\"", s)
	}
	if unit := strings.TrimSpace(text[n:]); unit != "" {
		power := -1
		for i, u := range sizeUnits {
			if strings.EqualFold(u, unit) || i == 0 && strings.EqualFold(unit, "B") {
				power = i
			}
		}
		if power < 0 {
			return 0, pgerr.Newf(pgerr.InvalidParameterValue, "invalid size: \"%s\"", s).WithDetail("Invalid size unit: \"%s\".", unit).
				WithHint("Valid units are \"bytes\", \"B\", \"kB\", \"MB\", \"GB\", \"TB\", and \"PB\".")
		}
		if v, err = types.NumMul(v, types.NumericFromInt64(1<<(10*power))); err != nil {
			return 0, err
		}
	}
	return types.NumToInt(v, types.OIDInt8)
}

// sizePrettyNumeric is pg_size_pretty of a numeric: the largest unit in which the size is below 10240, rounded half up at the last step.
func sizePrettyNumeric(n types.Numeric) (string, error) {
	const unitLimit, halfUnits = 10 * 1024, 20*1024 - 1
	below := func(v types.Numeric, limit int64) bool {
		return types.CompareNumeric(types.NumAbs(v), types.NumericFromInt64(limit)) < 0
	}
	if below(n, unitLimit) {
		return n.String() + " bytes", nil
	}
	divide := func(v types.Numeric, by int64) (types.Numeric, error) {
		return types.NumDivTrunc(v, types.NumericFromInt64(by))
	}
	// All but one of the bits that the unit drops are gone: the last decides how to round.
	v, err := divide(n, 1<<9)
	for i := 1; err == nil && i < len(sizeUnits); i++ {
		if below(v, halfUnits) || i == len(sizeUnits)-1 {
			step := types.NumericFromInt64(1)
			if v.Sign() < 0 {
				step = types.NumNeg(step)
			}
			if v, err = types.NumAdd(v, step); err != nil {
				break
			}
			if v, err = divide(v, 2); err != nil {
				break
			}
			return v.String() + " " + sizeUnits[i], nil
		}
		v, err = divide(v, 1<<10)
	}
	return "", err
}
