package functions

import (
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// compositeFunctions are the functions behind the syntax of composite values. The planner knows the fields and gives $field the type of its result.
func compositeFunctions() []entry {
	own := func(id, sig, doc string, k func(c *call) error) entry {
		return entry{id: id, sig: sig, doc: doc, impl: impl{kernel: each(k)}}
	}
	return []entry{
		own("$field(record,int4)", "any f t i", "field n of a composite value", func(c *call) error {
			fields, err := types.DecodeRecord(c.str(0))
			if err != nil {
				return err
			}
			n := int(c.int(1))
			if n < 1 || n > len(fields) {
				c.setNull()
				return nil
			}
			return c.setDatum(fields[n-1])
		}),
		own("$row_is_null(record)", "bool f f i", "composite IS NULL: every field is NULL", func(c *call) error { return c.rowNulls(true) }),
		own("$row_is_not_null(record)", "bool f f i", "composite IS NOT NULL: no field is NULL", func(c *call) error { return c.rowNulls(false) }),
		{
			id: "information_schema._pg_expandarray(anyarray)", sig: "record s t i - x:anyelement,n:int4",
			doc: "the elements of an array with their positions", impl: impl{set: rowsOf(expandArray)},
		},
	}
}

// SampleFunc decides TABLESAMPLE … REPEATABLE: percentage, seed, key columns.
const SampleFunc = "$sample(float8,float8,any)"

// sampled hashes the key with the seed. The hash is part of what a view's rows are: it never changes.
func (c *call) sampled() error {
	p := c.float(0)
	if p != p || p < 0 || p > 100 {
		return pgerr.Newf(pgerr.InvalidTablesampleArgument, "sample percentage must be between 0 and 100")
	}
	key := types.AppendKeyDatum(nil, c.datum(1), false, false)
	for i := 2; i < len(c.args); i++ {
		key = types.AppendKeyDatum(key, c.datum(i), false, false)
	}
	return c.setBool(float64(xxhash.Sum64(key)>>11)/(1<<53)*100 < p)
}

// rowNulls tells whether all fields of argument 0 are NULL (want) or none is.
func (c *call) rowNulls(want bool) error {
	if c.null(0) {
		return c.setBool(want)
	}
	fields, err := types.DecodeRecord(c.str(0))
	if err != nil {
		return err
	}
	for i := range fields {
		if fields[i].Null != want {
			return c.setBool(false)
		}
	}
	return c.setBool(true)
}

func expandArray(c *call) ([][]types.Datum, error) {
	a, err := c.array(0)
	if err != nil || len(a.Dims) == 0 {
		return nil, err
	}
	n := min(int(a.Dims[0].Len), len(a.Elems))
	out := make([][]types.Datum, n)
	for i := range out {
		out[i] = []types.Datum{a.Elems[i], {Type: types.Int4, Int: int64(i + 1)}}
	}
	return out, nil
}

// recordFunctions turn JSON objects into rows of the columns that the call names.
func recordFunctions() []entry {
	var out []entry
	for _, t := range [...]string{"json", "jsonb"} {
		out = append(out,
			entry{id: t + "_to_record(" + t + ")", impl: impl{set: rowsOf(toRecord)}},
			entry{id: t + "_to_recordset(" + t + ")", impl: impl{set: rowsOf(toRecordset(t + "_to_recordset"))}},
		)
	}
	for _, set := range [...]bool{false, true} {
		id := map[bool]string{false: "$populate_record(any)", true: "$populate_recordset(any)"}[set]
		out = append(out, entry{id: id, sig: "record s f s v", doc: "rows of JSON over given ones", impl: impl{set: rowsOf(func(c *call) ([][]types.Datum, error) {
			name := "json_populate_recordset"
			if c.args[0].Type.OID == types.OIDJSONB {
				name = "jsonb_populate_recordset"
			}
			if set {
				return toRecordset(name)(c)
			}
			return toRecord(c)
		})}})
	}
	return append(out, entry{
		id: SampleFunc, sig: "bool f t i v", doc: "whether the row with this key belongs to a sample of so many percent, by a seed",
		impl: impl{kernel: each((*call).sampled)},
	}, entry{
		id: "$once(any)", sig: "any s f i", doc: "a value as a set of one row",
		impl: impl{set: rowsOf(func(c *call) ([][]types.Datum, error) { return [][]types.Datum{{c.datum(0)}}, nil })},
	}, entry{
		id: "$rows(_record)", sig: "record s t i", doc: "the rows of an array, field by field",
		impl: impl{set: rowsOf(func(c *call) ([][]types.Datum, error) {
			a, err := c.array(0)
			if err != nil {
				return nil, err
			}
			out := make([][]types.Datum, len(a.Elems))
			for i, e := range a.Elems {
				if e.Null {
					for _, t := range c.f.Cols {
						out[i] = append(out[i], types.NullDatum(t))
					}
					continue
				}
				if out[i], err = types.DecodeRecord(e.Str); err != nil {
					return nil, err
				}
			}
			return out, nil
		})},
	}, entry{
		id: "$void(any)", sig: "void f f v v", doc: "nothing, of what was computed",
		impl: impl{kernel: each(func(c *call) error { c.setNull(); return nil })},
	})
}

func toRecord(c *call) ([][]types.Datum, error) {
	if c.null(0) {
		var none error
		return [][]types.Datum{c.populate(nil, &none)}, nil
	}
	row, err := c.objectRow(c.str(0))
	if err != nil {
		return nil, err
	}
	return [][]types.Datum{row}, nil
}

func toRecordset(name string) func(c *call) ([][]types.Datum, error) {
	return func(c *call) ([][]types.Datum, error) {
		if c.null(0) {
			return nil, nil
		}
		members, object, container, err := rawMembers(c.str(0))
		if err != nil {
			return nil, err
		}
		switch {
		case object:
			return nil, pgerr.Newf(pgerr.InvalidParameterValue, "cannot call %s on a non-array", name)
		case !container:
			return nil, pgerr.Newf(pgerr.InvalidParameterValue, "cannot call %s on a scalar", name)
		}
		out := make([][]types.Datum, len(members))
		for i, m := range members {
			if !strings.HasPrefix(m.val, "{") {
				return nil, pgerr.Newf(pgerr.InvalidParameterValue, "argument of %s must be an array of objects", name)
			}
			if out[i], err = c.objectRow(m.val); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
}

// objectRow takes the call's columns out of the text of a JSON object.
func (c *call) objectRow(s string) ([]types.Datum, error) {
	members, object, container, err := rawMembers(s)
	if err != nil {
		return nil, err
	}
	if !object {
		what := "a scalar"
		if container {
			what = "an array"
		}
		return nil, pgerr.Newf(pgerr.InvalidParameterValue, "cannot call populate_composite on %s", what)
	}
	byKey := make(map[string]string, len(members))
	for _, m := range members {
		byKey[m.key] = m.val
	}
	row := c.populate(byKey, &err)
	return row, err
}

// populate makes a row of the members' values, NULL where there is none.
func (c *call) populate(members map[string]string, failed *error) []types.Datum {
	row := make([]types.Datum, len(c.f.Cols))
	for i, t := range c.f.Cols {
		if row[i] = types.NullDatum(t); len(c.args) > 1 {
			row[i] = c.datum(i + 1)
		}
		s, ok := members[c.f.Names[i]]
		if !ok || *failed != nil {
			continue
		}
		if row[i], *failed = jsonColumn(c.f.Format(), t, s, c.f.Names[i]); *failed != nil {
			return row
		}
	}
	return row
}

// jsonColumn converts a JSON value, given as text, to type t as json_populate_record does.
func jsonColumn(f *types.Format, t types.Type, s, key string) (types.Datum, error) {
	text, null, err := rawText(s)
	if err != nil || null {
		return types.NullDatum(t), err
	}
	elem, isArray := t.Elem()
	switch {
	case t.OID == types.OIDJSON:
		text = s
	case t.OID == types.OIDJSONB:
		text, err = types.CanonicalJSONB(s)
		return types.Datum{Type: t, Str: text}, err
	case isArray && strings.HasPrefix(s, "["):
		a := types.Array{Elem: elem.OID}
		if err := jsonArrayColumn(f, &a, elem, s, key, 0); err != nil {
			return types.Datum{}, err
		}
		if len(a.Elems) == 0 {
			a.Dims = nil
		}
		return types.Datum{Type: t, Str: types.EncodeArray(a)}, nil
	case isArray && !strings.HasPrefix(s, `"`):
		return types.Datum{}, pgerr.Newf(pgerr.InvalidTextRepresentation, "expected JSON array").WithHint("See the value of key \"%s\".", key)
	}
	d, err := types.ParseText(f, types.T(t.OID), text)
	if err != nil {
		return d, err
	}
	return types.Coerce(d, t, false)
}

// jsonArrayColumn adds the elements of a JSON array, which is dimension depth of a.
func jsonArrayColumn(f *types.Format, a *types.Array, elem types.Type, s, key string, depth int) error {
	members, _, _, err := rawMembers(s)
	if err != nil {
		return err
	}
	malformed := func() error {
		return pgerr.Newf(pgerr.InvalidTextRepresentation, "malformed JSON array").WithDetail("Multidimensional arrays must have sub-arrays with matching dimensions.")
	}
	if depth == len(a.Dims) {
		if len(a.Elems) > 0 {
			return malformed()
		}
		a.Dims = append(a.Dims, types.Dim{Len: int32(len(members)), Lower: 1})
	} else if int(a.Dims[depth].Len) != len(members) {
		return malformed()
	}
	for _, m := range members {
		if strings.HasPrefix(m.val, "[") && elem.OID != types.OIDJSON && elem.OID != types.OIDJSONB {
			if err := jsonArrayColumn(f, a, elem, m.val, key, depth+1); err != nil {
				return err
			}
			continue
		}
		if depth+1 < len(a.Dims) {
			return malformed()
		}
		d, err := jsonColumn(f, elem, m.val, key)
		if err != nil {
			return err
		}
		d.Type = types.T(elem.OID)
		a.Elems = append(a.Elems, d)
	}
	return nil
}
