package functions

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// jsonObjectFunctions lists functions that make objects of text arrays, and those whose output may be spread over lines.
func jsonObjectFunctions() []entry {
	var out []entry
	for _, t := range [...]string{"json", "jsonb"} {
		jsonb := t == "jsonb"
		out = append(out,
			fn(t+"_object(_text)", t+`_object('{a,1,b,"x y"}')`, each(func(c *call) error { return c.objectOfArray(jsonb) })),
			fn(t+"_object(_text,_text)", t+"_object('{a,b}','{1,NULL}')", each(func(c *call) error { return c.objectOfArrays(jsonb) })))
	}
	return append(out,
		fn("jsonb_set_lax(jsonb,_text,jsonb,bool,text)", `jsonb_set_lax('{"a":1,"b":2}','{a}',NULL,true,'delete_key')`, each(jsonSetLax)),
		fn("row_to_json(record,bool)", "row_to_json(row(1,'a'),true)", each(prettyOuter)),
		fn("array_to_json(anyarray,bool)", "array_to_json(array[[1,2],[3,4]],true)", each(prettyOuter)),
	)
}

func errObjectKey() error {
	return pgerr.Newf(pgerr.NullValueNotAllowed, "null value not allowed for object key")
}

func (c *call) objectOfArray(jsonb bool) error {
	a, err := c.array(0)
	if err != nil {
		return err
	}
	switch len(a.Dims) {
	case 0:
	case 1:
		if len(a.Elems)%2 != 0 {
			return pgerr.Newf(pgerr.ArraySubscriptError, "array must have even number of elements")
		}
	case 2:
		if a.Dims[1].Len != 2 {
			return pgerr.Newf(pgerr.ArraySubscriptError, "array must have two columns")
		}
	default:
		return pgerr.Newf(pgerr.ArraySubscriptError, "wrong number of array subscripts")
	}
	var keys, vals []types.Datum
	for i := 0; i+1 < len(a.Elems); i += 2 {
		keys, vals = append(keys, a.Elems[i]), append(vals, a.Elems[i+1])
	}
	return c.setObject(keys, vals, jsonb)
}

func (c *call) objectOfArrays(jsonb bool) error {
	k, err := c.array(0)
	if err != nil {
		return err
	}
	v, err := c.array(1)
	if err != nil {
		return err
	}
	switch {
	case len(k.Dims) > 1 || len(k.Dims) != len(v.Dims):
		return pgerr.Newf(pgerr.ArraySubscriptError, "wrong number of array subscripts")
	case len(k.Elems) != len(v.Elems):
		return pgerr.Newf(pgerr.ArraySubscriptError, "mismatched array dimensions")
	}
	return c.setObject(k.Elems, v.Elems, jsonb)
}

func (c *call) setObject(keys, vals []types.Datum, jsonb bool) error {
	if jsonb {
		names, members := make([]string, len(keys)), make([]types.JSONTree, len(keys))
		for i, k := range keys {
			if k.Null {
				return errObjectKey()
			}
			names[i] = k.Str
			if !vals[i].Null {
				members[i] = types.JSONTree{Kind: types.JSONString, Str: vals[i].Str}
			}
		}
		obj := types.NewJSONObject(names, members)
		return c.setStr(obj.String())
	}
	b := []byte{'{'}
	for i, k := range keys {
		if k.Null {
			return errObjectKey()
		}
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(types.AppendJSONString(b, k.Str), " : "...)
		if vals[i].Null {
			b = append(b, "null"...)
		} else {
			b = types.AppendJSONString(b, vals[i].Str)
		}
	}
	return c.setStr(string(append(b, '}')))
}

// jsonSetLax is jsonb_set_lax(target, path, value [, create_if_missing [, null_value_treatment]]).
func jsonSetLax(c *call) error {
	if c.null(0) || c.null(1) || c.has(3) && c.null(3) {
		c.setNull()
		return nil
	}
	if !c.null(2) {
		inner := *c
		inner.args = c.args[:min(len(c.args), 4)]
		return jsonSet(&inner)
	}
	treatment := "use_json_null"
	if c.has(4) {
		if c.null(4) {
			return pgerr.Newf(pgerr.InvalidParameterValue, `null_value_treatment must be "delete_key", "return_target", "use_json_null", or "raise_exception"`)
		}
		treatment = c.str(4)
	}
	switch treatment {
	case "raise_exception":
		return pgerr.Newf(pgerr.NullValueNotAllowed, "JSON value must not be null").WithDetail(`Exception was raised because null_value_treatment is "raise_exception".`).
			WithHint("To avoid, either change the null_value_treatment argument or ensure that an SQL NULL is not passed.")
	case "return_target":
		return c.setStr(c.str(0))
	case "delete_key":
		return jsonDeletePath(c)
	case "use_json_null":
		create := !c.has(3) || c.bool(3)
		return c.editPathTo(types.JSONTree{}, func(j *types.JSONTree, path []string, v types.JSONTree) error {
			return setPath(j, path, 0, &v, create, false, false)
		})
	}
	return pgerr.Newf(pgerr.InvalidParameterValue, `null_value_treatment must be "delete_key", "return_target", "use_json_null", or "raise_exception"`)
}

// prettyOuter is to_json with a line feed between the members of the outermost level.
func prettyOuter(c *call) error {
	d := c.datum(0)
	b, err := AppendJSON(nil, c.f.Format(), d, false)
	if err != nil || !c.bool(1) {
		c.out.Str[c.row] = string(b)
		return err
	}
	var out strings.Builder
	depth, quoted := 0, false
	for i := 0; i < len(b); i++ {
		out.WriteByte(b[i])
		switch ch := b[i]; {
		case quoted:
			if ch == '\\' {
				i++
				out.WriteByte(b[i])
			} else if ch == '"' {
				quoted = false
			}
		case ch == '"':
			quoted = true
		case ch == '{' || ch == '[':
			depth++
		case ch == '}' || ch == ']':
			depth--
		case ch == ',' && depth == 1:
			out.WriteString("\n ")
		}
	}
	return c.setStr(out.String())
}
