package functions

import (
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// jsonFunctions lists operators and functions on jsonb and json.
func jsonFunctions() []entry {
	out := []entry{
		fn("jsonb_object_field(jsonb,text)", `'{"a":{"b":1}}'::jsonb->'a'`, jsonKernel(jsonField, false)),
		fn("jsonb_object_field_text(jsonb,text)", `'{"a":"x"}'::jsonb->>'a'`, jsonKernel(jsonField, true)),
		fn("jsonb_array_element(jsonb,int4)", `'[1,[2]]'::jsonb->-1`, jsonKernel(jsonElement, false)),
		fn("jsonb_array_element_text(jsonb,int4)", `'["x",null]'::jsonb->>0`, jsonKernel(jsonElement, true)),
		fn("jsonb_extract_path(jsonb,_text)", `'{"a":[1,{"b":2}]}'::jsonb#>'{a,1}'`, jsonKernel(jsonPath, false)),
		fn("jsonb_extract_path_text(jsonb,_text)", `'{"a":[1,{"b":2}]}'::jsonb#>>'{a,1,b}'`, jsonKernel(jsonPath, true)),
		fn("json_object_field(json,text)", `'{"a" : {"b": 1.0}}'::json->'a'`, jsonRawKernel(rawField, false)),
		fn("json_object_field_text(json,text)", `'{"a":"x"}'::json->>'a'`, jsonRawKernel(rawField, true)),
		fn("json_array_element(json,int4)", `'[1, [2 ]]'::json->1`, jsonRawKernel(rawElement, false)),
		fn("json_array_element_text(json,int4)", `'["x",null]'::json->>0`, jsonRawKernel(rawElement, true)),
		fn("json_extract_path(json,_text)", `'{"a":[1,{"b":2}]}'::json#>'{a,1}'`, jsonRawKernel(rawPath, false)),
		fn("json_extract_path_text(json,_text)", `'{"a":[1,{"b":2}]}'::json#>>'{a,1,b}'`, jsonRawKernel(rawPath, true)),
		fn("jsonb_contains(jsonb,jsonb)", `'{"a":1,"b":[1,2]}'::jsonb@>'{"b":[2]}'`, map2e(strSlot, strSlot, boolSlot, func(a, b string) (bool, error) { return jsonContainsText(a, b) })),
		fn("jsonb_contained(jsonb,jsonb)", `'{"a":1}'::jsonb<@'{"a":1,"b":2}'`, map2e(strSlot, strSlot, boolSlot, func(a, b string) (bool, error) { return jsonContainsText(b, a) })),
		fn("jsonb_exists(jsonb,text)", `jsonb_exists('{"a":1}','a')`, map2e(strSlot, strSlot, boolSlot, func(s, k string) (bool, error) {
			j, err := types.ParseJSON(s)
			return err == nil && jsonHas(&j, k), err
		})),
		fn("jsonb_exists_any(jsonb,_text)", `jsonb_exists_any('["a","b"]','{c,b}')`, map2e(strSlot, strSlot, boolSlot, jsonExists(true))),
		fn("jsonb_exists_all(jsonb,_text)", `jsonb_exists_all('["a","b"]','{a,b}')`, map2e(strSlot, strSlot, boolSlot, jsonExists(false))),
		fn("jsonb_concat(jsonb,jsonb)", `'{"a":1,"b":2}'::jsonb||'{"b":3}'`, jsonMap2(jsonConcat)),
		fn("jsonb_delete(jsonb,text)", `'{"a":1,"b":2}'::jsonb-'a'`, each(jsonDelete)), fn("jsonb_delete(jsonb,int4)", `'[1,2,3]'::jsonb - -1`, each(jsonDelete)),
		fn("jsonb_delete(jsonb,_text)", `'{"a":1,"b":2,"c":3}'::jsonb-'{a,c}'::text[]`, each(jsonDelete)),
		fn("jsonb_delete_path(jsonb,_text)", `'{"a":[1,2]}'::jsonb#-'{a,0}'`, each(jsonDeletePath)),
		fn("jsonb_typeof(jsonb)", `jsonb_typeof('[1]')`, map1e(strSlot, strSlot, jsonTypeof)), fn("json_typeof(json)", `json_typeof('1.5')`, map1e(strSlot, strSlot, jsonTypeof)),
		fn("jsonb_array_length(jsonb)", `jsonb_array_length('[1,2,[3]]')`, map1e(strSlot, intSlot, jsonLength)), fn("json_array_length(json)", `json_array_length('[1,2]')`, map1e(strSlot, intSlot, jsonLength)),
		fn("jsonb_strip_nulls(jsonb)", `jsonb_strip_nulls('{"a":null,"b":[null,{"c":null}]}')`, jsonMap1(stripNulls)),
		fn("json_strip_nulls(json)", `json_strip_nulls('{"a":null,"b":1}')`, jsonCompact(stripNulls)),
		fn("jsonb_pretty(jsonb)", `jsonb_pretty('{"a":[1,{}],"b":{"c":2}}')`, map1e(strSlot, strSlot, func(s string) (string, error) {
			j, err := types.ParseJSON(s)
			return string(jsonPretty(nil, &j, 0)), err
		})),
		fn("jsonb_set(jsonb,_text,jsonb,bool)", `jsonb_set('{"a":[1,2]}','{a,1}','9',true)`, each(jsonSet)),
		fn("jsonb_insert(jsonb,_text,jsonb,bool)", `jsonb_insert('{"a":[1,2]}','{a,1}','9',false)`, each(jsonInsert)),
		fn("to_jsonb(anyelement)", `to_jsonb('x"y'::text)`, each(func(c *call) error { return c.toJSON(0, true) })),
		fn("to_json(anyelement)", "to_json(array[1,2])", each(func(c *call) error { return c.toJSON(0, false) })),
		fn("array_to_json(anyarray)", "array_to_json(array[[1,2],[3,4]])", each(func(c *call) error { return c.toJSON(0, false) })),
		fn("row_to_json(record)", "", each(func(c *call) error { return c.toJSON(0, false) })),
		fn("row_to_json(record,bool)", "", each((*call).toJSONLines)), fn("array_to_json(anyarray,bool)", "", each((*call).toJSONLines)),
		fn("jsonb_build_array(any)", "jsonb_build_array(1,'a',NULL,true)", each(jsonBuildArray(true))), fn("jsonb_build_array()", "jsonb_build_array()", each(jsonBuildArray(true))),
		fn("json_build_array(any)", "json_build_array(1,'a',NULL,true)", each(jsonBuildArray(false))), fn("json_build_array()", "", each(jsonBuildArray(false))),
		fn("jsonb_build_object(any)", "jsonb_build_object('b',1,'a',NULL)", each(jsonBuildObject(true))), fn("jsonb_build_object()", "", each(jsonBuildObject(true))),
		fn("json_build_object(any)", "json_build_object('b',1,'a',NULL)", each(jsonBuildObject(false))), fn("json_build_object()", "", each(jsonBuildObject(false))),
	}
	return out
}

// jsonText returns a member as ->> does: strings without quotes, null as NULL.
func jsonText(j *types.JSONTree) (s string, null bool) {
	switch j.Kind {
	case types.JSONNull:
		return "", true
	case types.JSONString:
		return j.Str, false
	}
	return j.String(), false
}

// jsonKernel makes an access operator of jsonb; pick returns nil where there is nothing.
func jsonKernel(pick func(c *call, j *types.JSONTree) (*types.JSONTree, error), text bool) expr.Kernel {
	return each(func(c *call) error {
		j, err := types.ParseJSON(c.str(0))
		if err != nil {
			return err
		}
		m, err := pick(c, &j)
		if err != nil {
			return err
		}
		if m == nil {
			c.setNull()
			return nil
		}
		if !text {
			return c.setStr(m.String())
		}
		s, null := jsonText(m)
		if null {
			c.setNull()
		}
		return c.setStr(s)
	})
}

func jsonField(c *call, j *types.JSONTree) (*types.JSONTree, error) {
	m, _ := j.Get(c.str(1))
	return m, nil
}

func jsonElement(c *call, j *types.JSONTree) (*types.JSONTree, error) {
	if j.Kind != types.JSONArray && j.Kind != types.JSONObject && c.args[0].Type.OID == types.OIDJSONB {
		j = &types.JSONTree{Kind: types.JSONArray, Elems: []types.JSONTree{*j}} // a scalar counts as an array of itself
	}
	return elementAt(j, c.int(1)), nil
}

func elementAt(j *types.JSONTree, i int64) *types.JSONTree {
	if j.Kind != types.JSONArray {
		return nil
	}
	if i < 0 {
		i += int64(len(j.Elems))
	}
	if i < 0 || i >= int64(len(j.Elems)) {
		return nil
	}
	return &j.Elems[i]
}

// pathArg returns the path elements of argument i; null tells whether one of them is NULL.
func (c *call) pathArg(i int) (path []string, null bool, err error) {
	// A path is an array, or its elements as separate arguments of the variadic functions.
	if c.args[i].Type.OID != types.ArrayOf(types.OIDText) {
		for ; i < len(c.args); i++ {
			if c.null(i) {
				return nil, true, nil
			}
			path = append(path, c.str(i))
		}
		return path, false, nil
	}
	a, err := types.DecodeArray(c.str(i))
	if err != nil {
		return nil, false, err
	}
	for _, d := range a.Elems {
		if d.Null {
			return nil, true, nil
		}
		path = append(path, d.Str)
	}
	return path, false, nil
}

func jsonPath(c *call, j *types.JSONTree) (*types.JSONTree, error) {
	path, null, err := c.pathArg(1)
	if err != nil || null {
		return nil, err
	}
	for _, p := range path {
		switch j.Kind {
		case types.JSONObject:
			m, ok := j.Get(p)
			if !ok {
				return nil, nil
			}
			j = m
		case types.JSONArray:
			i, err := strconv.ParseInt(strings.TrimSpace(p), 10, 32)
			if err != nil {
				return nil, nil
			}
			if j = elementAt(j, i); j == nil {
				return nil, nil
			}
		default:
			return nil, nil
		}
	}
	return j, nil
}

func jsonContainsText(a, b string) (bool, error) {
	x, err := types.ParseJSON(a)
	if err != nil {
		return false, err
	}
	y, err := types.ParseJSON(b)
	if err != nil {
		return false, err
	}
	return jsonContains(&x, &y, true), nil
}

func jsonEqual(a, b *types.JSONTree) bool {
	if a.Kind != b.Kind || len(a.Elems) != len(b.Elems) {
		return false
	}
	switch a.Kind {
	case types.JSONBool:
		return a.Bool == b.Bool
	case types.JSONString:
		return a.Str == b.Str
	case types.JSONNumber:
		return types.CompareNumeric(a.Num, b.Num) == 0
	}
	for i := range a.Elems {
		if a.Kind == types.JSONObject && a.Keys[i] != b.Keys[i] || !jsonEqual(&a.Elems[i], &b.Elems[i]) {
			return false
		}
	}
	return true
}

// jsonContains is a @> b. At the top an array may contain a bare scalar.
func jsonContains(a, b *types.JSONTree, top bool) bool {
	scalar := b.Kind != types.JSONArray && b.Kind != types.JSONObject
	switch {
	case a.Kind == types.JSONObject && b.Kind == types.JSONObject:
		for i, k := range b.Keys {
			m, ok := a.Get(k)
			if !ok || !jsonContains(m, &b.Elems[i], false) {
				return false
			}
		}
		return true
	case a.Kind == types.JSONArray && b.Kind == types.JSONArray:
		for i := range b.Elems {
			found := false
			for k := range a.Elems {
				if a.Elems[k].Kind == b.Elems[i].Kind && jsonContains(&a.Elems[k], &b.Elems[i], false) {
					found = true
					break
				}
			}
			if !found {
				return false
			}
		}
		return true
	case a.Kind == types.JSONArray && scalar && top:
		for k := range a.Elems {
			if jsonEqual(&a.Elems[k], b) {
				return true
			}
		}
		return false
	}
	return scalar && jsonEqual(a, b)
}

// jsonHas is the operator ?: a key of an object, a string element of an array, or the string itself.
func jsonHas(j *types.JSONTree, k string) bool {
	switch j.Kind {
	case types.JSONObject:
		_, ok := j.Get(k)
		return ok
	case types.JSONString:
		return j.Str == k
	case types.JSONArray:
		for i := range j.Elems {
			if j.Elems[i].Kind == types.JSONString && j.Elems[i].Str == k {
				return true
			}
		}
	}
	return false
}

func jsonExists(any bool) func(s, keys string) (bool, error) {
	return func(s, keys string) (bool, error) {
		j, err := types.ParseJSON(s)
		if err != nil {
			return false, err
		}
		a, err := types.DecodeArray(keys)
		if err != nil {
			return false, err
		}
		for _, d := range a.Elems {
			if !d.Null && jsonHas(&j, d.Str) == any {
				return any, nil
			}
		}
		return !any, nil
	}
}

func jsonMap1(f func(*types.JSONTree) types.JSONTree) expr.Kernel {
	return map1e(strSlot, strSlot, func(s string) (string, error) {
		j, err := types.ParseJSON(s)
		if err != nil {
			return "", err
		}
		r := f(&j)
		return r.String(), nil
	})
}

func jsonMap2(f func(a, b *types.JSONTree) (types.JSONTree, error)) expr.Kernel {
	return map2e(strSlot, strSlot, strSlot, func(a, b string) (string, error) {
		x, err := types.ParseJSON(a)
		if err != nil {
			return "", err
		}
		y, err := types.ParseJSON(b)
		if err != nil {
			return "", err
		}
		r, err := f(&x, &y)
		return r.String(), err
	})
}

// jsonCompact is jsonMap1 for json, which prints without blanks.
func jsonCompact(f func(*types.JSONTree) types.JSONTree) expr.Kernel {
	return map1e(strSlot, strSlot, func(s string) (string, error) {
		j, err := types.ParseJSON(s)
		if err != nil {
			return "", err
		}
		r := f(&j)
		return string(compactJSON(nil, &r)), nil
	})
}

func compactJSON(b []byte, j *types.JSONTree) []byte {
	switch j.Kind {
	case types.JSONArray:
		b = append(b, '[')
		for i := range j.Elems {
			if i > 0 {
				b = append(b, ',')
			}
			b = compactJSON(b, &j.Elems[i])
		}
		return append(b, ']')
	case types.JSONObject:
		b = append(b, '{')
		for i := range j.Elems {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(types.AppendJSONString(b, j.Keys[i]), ':')
			b = compactJSON(b, &j.Elems[i])
		}
		return append(b, '}')
	}
	return j.AppendText(b)
}

func elements(j *types.JSONTree) []types.JSONTree {
	if j.Kind == types.JSONArray {
		return j.Elems
	}
	return []types.JSONTree{*j}
}

func jsonConcat(a, b *types.JSONTree) (types.JSONTree, error) {
	if a.Kind == types.JSONObject && b.Kind == types.JSONObject {
		keys := append(append([]string(nil), a.Keys...), b.Keys...)
		return types.NewJSONObject(keys, append(append([]types.JSONTree(nil), a.Elems...), b.Elems...)), nil
	}
	return types.JSONTree{Kind: types.JSONArray, Elems: append(append([]types.JSONTree(nil), elements(a)...), elements(b)...)}, nil
}

func errScalarDelete() error {
	return pgerr.Newf(pgerr.InvalidParameterValue, "cannot delete from scalar")
}

func jsonDelete(c *call) error {
	j, err := types.ParseJSON(c.str(0))
	if err != nil {
		return err
	}
	if j.Kind != types.JSONArray && j.Kind != types.JSONObject {
		return errScalarDelete()
	}
	if c.args[1].Type.OID == types.OIDInt4 {
		if j.Kind == types.JSONObject {
			return pgerr.Newf(pgerr.InvalidParameterValue, "cannot delete from object using integer index")
		}
		i := c.int(1)
		if i < 0 {
			i += int64(len(j.Elems))
		}
		if i >= 0 && i < int64(len(j.Elems)) {
			j.Elems = append(j.Elems[:i:i], j.Elems[i+1:]...)
		}
		return c.setStr(j.String())
	}
	keys := map[string]bool{}
	if c.args[1].Type.OID == types.OIDText {
		keys[c.str(1)] = true
	} else {
		a, err := types.DecodeArray(c.str(1))
		if err != nil {
			return err
		}
		for _, d := range a.Elems {
			if !d.Null {
				keys[d.Str] = true
			}
		}
	}
	out := types.JSONTree{Kind: j.Kind}
	for i := range j.Elems {
		if j.Kind == types.JSONObject {
			if keys[j.Keys[i]] {
				continue
			}
			out.Keys = append(out.Keys, j.Keys[i])
		} else if j.Elems[i].Kind == types.JSONString && keys[j.Elems[i].Str] {
			continue
		}
		out.Elems = append(out.Elems, j.Elems[i])
	}
	return c.setStr(out.String())
}

func jsonTypeof(s string) (string, error) {
	j, err := types.ParseJSON(s)
	return j.Kind.String(), err
}

func jsonLength(s string) (int64, error) {
	j, err := types.ParseJSON(s)
	if err != nil {
		return 0, err
	}
	switch j.Kind {
	case types.JSONArray:
		return int64(len(j.Elems)), nil
	case types.JSONObject:
		return 0, pgerr.Newf(pgerr.InvalidParameterValue, "cannot get array length of a non-array")
	}
	return 0, pgerr.Newf(pgerr.InvalidParameterValue, "cannot get array length of a scalar")
}

func stripNulls(j *types.JSONTree) types.JSONTree {
	out := *j
	if j.Kind != types.JSONArray && j.Kind != types.JSONObject {
		return out
	}
	out.Keys, out.Elems = nil, nil
	for i := range j.Elems {
		if j.Kind == types.JSONObject {
			if j.Elems[i].Kind == types.JSONNull {
				continue
			}
			out.Keys = append(out.Keys, j.Keys[i])
		}
		out.Elems = append(out.Elems, stripNulls(&j.Elems[i]))
	}
	return out
}

// jsonIndent is the indentation of one level in jsonb_pretty.
const jsonIndent = 4

func jsonPretty(b []byte, j *types.JSONTree, level int) []byte {
	line := func(n int) { b = append(append(b, '\n'), strings.Repeat(" ", n*jsonIndent)...) }
	switch j.Kind {
	case types.JSONArray, types.JSONObject:
		open, end := byte('['), byte(']')
		if j.Kind == types.JSONObject {
			open, end = '{', '}'
		}
		b = append(b, open)
		for i := range j.Elems {
			if i > 0 {
				b = append(b, ',')
			}
			line(level + 1)
			if j.Kind == types.JSONObject {
				b = append(types.AppendJSONString(b, j.Keys[i]), ": "...)
			}
			b = jsonPretty(b, &j.Elems[i], level+1)
		}
		line(level)
		return append(b, end)
	}
	return j.AppendText(b)
}
