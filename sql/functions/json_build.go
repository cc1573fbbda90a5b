package functions

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// AppendJSON appends d as to_jsonb (jsonb set) or to_json writes it.
func AppendJSON(b []byte, f *types.Format, d types.Datum, jsonb bool) ([]byte, error) {
	if d.Null {
		return append(b, "null"...), nil
	}
	sep, colon := ",", ":"
	if jsonb {
		sep, colon = ", ", ": "
	}
	switch d.Type.OID {
	case types.OIDBool:
		return strconv.AppendBool(b, d.Bool), nil
	case types.OIDInt2, types.OIDInt4, types.OIDInt8:
		return strconv.AppendInt(b, d.Int, 10), nil
	case types.OIDFloat4, types.OIDFloat8, types.OIDNumeric:
		s := datumText(d, f)
		if strings.ContainsAny(s, "Nn") {
			return types.AppendJSONString(b, s), nil
		}
		if jsonb {
			n, err := types.ParseNumeric(s)
			if err != nil {
				return b, err
			}
			return n.AppendText(b), nil
		}
		return append(b, s...), nil
	case types.OIDJSON, types.OIDJSONB:
		if jsonb && d.Type.OID == types.OIDJSON {
			s, err := types.CanonicalJSONB(d.Str)
			return append(b, s...), err
		}
		return append(b, d.Str...), nil
	case types.OIDDate:
		return append(types.AppendDate(append(b, '"'), d.Int), '"'), nil // in any DateStyle
	case types.OIDTimestamp, types.OIDTimestamptz:
		if f != nil && f.DateStyle != types.DateISO {
			iso := *f
			iso.DateStyle = types.DateISO
			f = &iso
		}
		s := datumText(d, f)
		if i := strings.IndexByte(s, ' '); i > 0 {
			s = s[:i] + "T" + s[i+1:]
		}
		if d.Type.OID == types.OIDTimestamptz && len(s) > 3 && (s[len(s)-3] == '+' || s[len(s)-3] == '-') {
			s += ":00"
		}
		return types.AppendJSONString(b, s), nil
	case types.OIDRecord:
		fields, names, err := types.DecodeNamedRecord(d.Str)
		if err != nil {
			return b, err
		}
		start := len(b)
		b = append(b, '{')
		for i, v := range fields {
			if i > 0 {
				b = append(b, sep...)
			}
			if names == nil {
				b = append(strconv.AppendInt(append(b, `"f`...), int64(i+1), 10), '"')
			} else {
				b = types.AppendJSONString(b, names[i])
			}
			b = append(b, colon...)
			if b, err = AppendJSON(b, f, v, jsonb); err != nil {
				return b, err
			}
		}
		b = append(b, '}')
		if jsonb && names != nil {
			// The order of jsonb's keys is its own.
			canonical, err := types.CanonicalJSONB(string(b[start:]))
			return append(b[:start], canonical...), err
		}
		return b, nil
	}
	if d.Type.IsArray() {
		a, err := types.DecodeArray(d.Str)
		if err != nil {
			return b, err
		}
		at := 0
		return appendJSONArray(b, f, a, 0, &at, jsonb)
	}
	return types.AppendJSONString(b, textOf(d, f)), nil
}

func appendJSONArray(b []byte, f *types.Format, a types.Array, dim int, at *int, jsonb bool) ([]byte, error) {
	b = append(b, '[')
	n := 0
	if dim < len(a.Dims) {
		n = int(a.Dims[dim].Len)
	}
	for i := range n {
		if i > 0 {
			b = append(b, ',')
			if jsonb {
				b = append(b, ' ')
			}
		}
		var err error
		if dim < len(a.Dims)-1 {
			b, err = appendJSONArray(b, f, a, dim+1, at, jsonb)
		} else {
			b, err = AppendJSON(b, f, a.Elems[*at], jsonb)
			*at++
		}
		if err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

func (c *call) toJSON(i int, jsonb bool) error {
	b, err := AppendJSON(nil, c.f.Format(), c.datum(i), jsonb)
	c.out.Str[c.row] = string(b)
	return err
}

// toJSONLines is toJSON with a line per member where argument 1 asks for it.
func (c *call) toJSONLines() error {
	if !c.bool(1) {
		return c.toJSON(0, false)
	}
	d, f := c.datum(0), c.f.Format()
	var parts []types.Datum
	var names []string
	b, end := []byte{'['}, byte(']')
	if d.Type.OID == types.OIDRecord {
		var err error
		if parts, names, err = types.DecodeNamedRecord(d.Str); err != nil {
			return err
		}
		for i := range parts {
			if names == nil || len(names) < len(parts) {
				names = append(names, "f"+strconv.Itoa(i+1))
			}
		}
		b[0], end = '{', '}'
	} else {
		a, err := types.DecodeArray(d.Str)
		if err != nil {
			return err
		}
		parts = firstDimension(a, d.Type)
	}
	for i, p := range parts {
		if i > 0 {
			b = append(b, ",\n "...)
		}
		if names != nil {
			b = append(types.AppendJSONString(b, names[i]), ':')
		}
		var err error
		if b, err = AppendJSON(b, f, p, false); err != nil {
			return err
		}
	}
	return c.setStr(string(append(b, end)))
}

// firstDimension splits an array of type t into the elements of its first dimension.
func firstDimension(a types.Array, t types.Type) []types.Datum {
	if len(a.Dims) < 2 {
		return a.Elems
	}
	n := int(a.Dims[0].Len)
	out := make([]types.Datum, n)
	size := len(a.Elems) / n
	for i := range out {
		part := types.Array{Elem: a.Elem, Dims: a.Dims[1:], Elems: a.Elems[i*size : (i+1)*size]}
		out[i] = types.Datum{Type: t, Str: types.EncodeArray(part)}
	}
	return out
}

func jsonBuildArray(jsonb bool) func(c *call) error {
	return func(c *call) error {
		b := []byte{'['}
		var err error
		for i := range c.args {
			if i > 0 {
				b = append(b, ", "...)
			}
			if b, err = AppendJSON(b, c.f.Format(), c.datum(i), jsonb); err != nil {
				return err
			}
		}
		return c.setStr(string(append(b, ']')))
	}
}

func jsonBuildObject(jsonb bool) func(c *call) error {
	return func(c *call) error {
		if len(c.args)%2 != 0 {
			name := "json_build_object"
			if jsonb {
				name = "jsonb_build_object"
			}
			return pgerr.Newf(pgerr.InvalidParameterValue, "argument list must have even number of elements").
				WithHint("The arguments of %s() must consist of alternating keys and values.", name)
		}
		b := []byte{'{'}
		var err error
		for i := 0; i < len(c.args); i += 2 {
			if c.null(i) {
				if jsonb {
					return pgerr.Newf(pgerr.InvalidParameterValue, "argument %d: key must not be null", i+1)
				}
				return pgerr.Newf(pgerr.InvalidParameterValue, "argument %d cannot be null", i+1).WithHint("Object keys should be text.")
			}
			if i > 0 {
				b = append(b, ", "...)
			}
			key := outText(c, i)
			if jsonb && c.args[i].Type.OID == types.OIDBool {
				key = map[bool]string{true: "true", false: "false"}[c.bool(i)]
			}
			b = types.AppendJSONString(b, key)
			if jsonb {
				b = append(b, ": "...)
			} else {
				b = append(b, " : "...)
			}
			if b, err = AppendJSON(b, c.f.Format(), c.datum(i+1), jsonb); err != nil {
				return err
			}
		}
		b = append(b, '}')
		if !jsonb {
			return c.setStr(string(b))
		}
		s, err := types.CanonicalJSONB(string(b))
		c.out.Str[c.row] = s
		return err
	}
}

// jsonSet is jsonb_set(target, path, value [, create_if_missing]).
func jsonSet(c *call) error {
	create := !c.has(3) || c.bool(3)
	return c.editPath(func(j *types.JSONTree, path []string, v types.JSONTree) error {
		return setPath(j, path, 0, &v, create, false, false)
	})
}

// jsonInsert is jsonb_insert(target, path, value [, insert_after]).
func jsonInsert(c *call) error {
	after := c.has(3) && c.bool(3)
	return c.editPath(func(j *types.JSONTree, path []string, v types.JSONTree) error {
		return setPath(j, path, 0, &v, true, true, after)
	})
}

func (c *call) editPath(edit func(j *types.JSONTree, path []string, v types.JSONTree) error) error {
	v, err := types.ParseJSON(c.str(2))
	if err != nil {
		return err
	}
	return c.editPathTo(v, edit)
}

func (c *call) editPathTo(v types.JSONTree, edit func(j *types.JSONTree, path []string, v types.JSONTree) error) error {
	j, err := types.ParseJSON(c.str(0))
	if err != nil {
		return err
	}
	path, null, err := c.pathArg(1)
	if err != nil {
		return err
	}
	if null {
		return pgerr.Newf(pgerr.NullValueNotAllowed, "path element at position 1 is null")
	}
	if j.Kind != types.JSONArray && j.Kind != types.JSONObject {
		return pgerr.Newf(pgerr.InvalidParameterValue, "cannot set path in scalar")
	}
	if len(path) > 0 {
		if err := edit(&j, path, v); err != nil {
			return err
		}
	}
	return c.setStr(j.String())
}

// setPath replaces, inserts or (v nil) deletes what stands at path[at:].
func setPath(j *types.JSONTree, path []string, at int, v *types.JSONTree, create, insert, after bool) error {
	last := at == len(path)-1
	switch j.Kind {
	case types.JSONObject:
		return setMember(j, path, at, v, create, insert, after, last)
	case types.JSONArray:
		if len(j.Elems) == 0 && !create {
			return nil
		}
		i, err := strconv.ParseInt(strings.TrimSpace(path[at]), 10, 32)
		if err != nil {
			return pgerr.Newf(pgerr.InvalidTextRepresentation, "path element at position %d is not an integer: %q", at+1, path[at])
		}
		n := int64(len(j.Elems))
		if i < 0 {
			i += n
		}
		if !last {
			if i < 0 || i >= n {
				return nil
			}
			return setPath(&j.Elems[i], path, at+1, v, create, insert, after)
		}
		switch {
		case v == nil:
			if i >= 0 && i < n {
				j.Elems = append(j.Elems[:i:i], j.Elems[i+1:]...)
			}
		case i < 0 || i >= n || insert:
			if !create {
				return nil
			}
			if i >= 0 && i < n && after {
				i++
			}
			i = max(0, min(i, n))
			j.Elems = append(j.Elems[:i:i], append([]types.JSONTree{*v}, j.Elems[i:]...)...)
		default:
			j.Elems[i] = *v
		}
	}
	return nil
}

func setMember(j *types.JSONTree, path []string, at int, v *types.JSONTree, create, insert, after, last bool) error {
	m, ok := j.Get(path[at])
	switch {
	case !last:
		if ok {
			return setPath(m, path, at+1, v, create, insert, after)
		}
	case v == nil:
		out := types.JSONTree{Kind: types.JSONObject}
		for i, k := range j.Keys {
			if k != path[at] {
				out.Keys, out.Elems = append(out.Keys, k), append(out.Elems, j.Elems[i])
			}
		}
		*j = out
	case ok && insert:
		return pgerr.Newf(pgerr.InvalidParameterValue, "cannot replace existing key").WithHint("Try using the function jsonb_set to replace key value.")
	case ok:
		*m = *v
	case create:
		*j = types.NewJSONObject(append(append([]string(nil), j.Keys...), path[at]), append(append([]types.JSONTree(nil), j.Elems...), *v))
	}
	return nil
}

func jsonDeletePath(c *call) error {
	j, err := types.ParseJSON(c.str(0))
	if err != nil {
		return err
	}
	path, null, err := c.pathArg(1)
	if err != nil {
		return err
	}
	if j.Kind != types.JSONArray && j.Kind != types.JSONObject {
		return pgerr.Newf(pgerr.InvalidParameterValue, "cannot delete path in scalar")
	}
	if len(path) > 0 && !null {
		if err := setPath(&j, path, 0, nil, false, false, false); err != nil {
			return err
		}
	}
	return c.setStr(j.String())
}

// The json type keeps its text, so its operators return the source text of members.

// rawMember is one member of a json object, or one element of an array (no key).
type rawMember struct {
	key string
	val string
}

// rawMembers takes an object or array apart without changing the members' text.
func rawMembers(s string) (members []rawMember, object, container bool, err error) {
	s = strings.TrimSpace(s)
	if s == "" || s[0] != '{' && s[0] != '[' {
		return nil, false, false, nil
	}
	object = s[0] == '{'
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	if _, err = dec.Token(); err != nil {
		return nil, false, false, errRawJSON(err)
	}
	for dec.More() {
		var m rawMember
		if object {
			t, err := dec.Token()
			if err != nil {
				return nil, false, false, errRawJSON(err)
			}
			m.key, _ = t.(string)
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, false, false, errRawJSON(err)
		}
		m.val = string(raw)
		members = append(members, m)
	}
	return members, object, true, nil
}

func errRawJSON(err error) error {
	return pgerr.Wrap(pgerr.InvalidTextRepresentation, err, "invalid input syntax for type json")
}

func jsonRawKernel(pick func(c *call, s string) (string, bool, error), text bool) expr.Kernel {
	return each(func(c *call) error {
		s, ok, err := pick(c, c.str(0))
		if err != nil {
			return err
		}
		if !ok {
			c.setNull()
			return nil
		}
		if !text {
			return c.setStr(s)
		}
		s, null, err := rawText(s)
		if null {
			c.setNull()
		}
		c.out.Str[c.row] = s
		return err
	})
}

// rawText is a json value as ->> returns it.
func rawText(s string) (text string, null bool, err error) {
	switch {
	case s == "null":
		return "", true, nil
	case strings.HasPrefix(s, `"`):
		j, err := types.ParseJSON(s)
		return j.Str, false, err
	}
	return s, false, nil
}

func rawKey(s, key string) (string, bool, error) {
	members, object, _, err := rawMembers(s)
	if err != nil || !object {
		return "", false, err
	}
	// Of equal keys the last one counts.
	for i := len(members) - 1; i >= 0; i-- {
		if members[i].key == key {
			return members[i].val, true, nil
		}
	}
	return "", false, nil
}

func rawIndex(s string, i int64) (string, bool, error) {
	members, object, container, err := rawMembers(s)
	if err != nil || object || !container {
		return "", false, err
	}
	if i < 0 {
		i += int64(len(members))
	}
	if i < 0 || i >= int64(len(members)) {
		return "", false, nil
	}
	return members[i].val, true, nil
}

func rawField(c *call, s string) (string, bool, error)   { return rawKey(s, c.str(1)) }
func rawElement(c *call, s string) (string, bool, error) { return rawIndex(s, c.int(1)) }

func rawPath(c *call, s string) (string, bool, error) {
	path, null, err := c.pathArg(1)
	if err != nil || null {
		return "", false, err
	}
	s = strings.TrimSpace(s)
	for _, p := range path {
		var ok bool
		if strings.HasPrefix(s, "{") {
			s, ok, err = rawKey(s, p)
		} else {
			i, bad := strconv.ParseInt(p, 10, 32)
			if bad != nil {
				return "", false, nil
			}
			s, ok, err = rawIndex(s, i)
		}
		if err != nil || !ok {
			return "", false, err
		}
	}
	return s, true, nil
}
