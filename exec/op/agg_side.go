package op

import (
	"encoding/binary"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// Side entries: group key · call number (1 byte) · entry key → varint count · encoded row of the values (empty where the key says it all).
// Counts may be negative within an epoch, when a retraction comes before its insertion.

// sideKey builds the start of a group's side keys for a call in o.key.
func (o *aggOp) sideKey(row []uint64, no int) (kg uint16, key []byte) {
	o.key = o.groups.appendKey(o.key[:0], row)
	o.key = append(o.key, byte(no))
	return keyGroup(o.ctx, row[rowHash]), o.key
}

// bump adds w to the count of a side entry and returns the counts before and after. A count of 0 removes the entry.
func (o *aggOp) bump(kg uint16, key []byte, w int64, values func([]byte) []byte) (before, after int64, err error) {
	v, ok, err := o.side.get(kg, key)
	if err != nil {
		return 0, 0, err
	}
	o.val = o.val[:0]
	if ok {
		n, k := binary.Varint(v)
		if k <= 0 {
			return 0, 0, errCorruptState(o.node)
		}
		before = n
		if after = before + w; after == 0 {
			return before, after, o.side.del(kg, key)
		}
		o.val = append(binary.AppendVarint(o.val, after), v[k:]...)
	} else {
		after = w
		o.val = binary.AppendVarint(o.val, after)
		if values != nil {
			o.val = values(o.val)
		}
	}
	return before, after, o.side.put(kg, key, o.val)
}

// sideExtreme is min and max under retraction: an ordered multiset of the group's values.
type sideExtreme struct {
	callBase
	max  bool
	vecs [1]*types.Vector
}

func (c *sideExtreme) place(int) int { return 0 }
func (c *sideExtreme) sided() bool   { return true }

func (c *sideExtreme) update(b *aggBatch) error {
	v := b.c.Cols[c.arg]
	c.vecs[0] = v
	for i, g := range b.groups {
		r := b.row(i)
		if v.IsNull(r) {
			continue
		}
		kg, key := c.o.sideKey(c.o.groups.row(g), c.no)
		key = types.AppendKey(key, v, r, false, false)
		c.o.key = key
		values := func(dst []byte) []byte { return types.AppendRow(dst, c.vecs[:], r) }
		if _, _, err := c.o.bump(kg, key, b.weight(i), values); err != nil {
			return err
		}
	}
	return nil
}

func (c *sideExtreme) final(row []uint64, _ *callVar, dst *types.Vector) error {
	kg, key := c.o.sideKey(row, c.no)
	found := false
	c.vecs[0] = dst
	err := c.o.side.scan(kg, key, c.max, func(_, v []byte) (bool, error) {
		n, k := binary.Varint(v)
		if k <= 0 {
			return false, errCorruptState(c.o.node)
		}
		if n <= 0 {
			return true, nil
		}
		found = true
		_, err := types.DecodeRow(v[k:], c.vecs[:])
		return false, err
	})
	if err != nil {
		return stateError{err}
	}
	if !found {
		dst.AppendNull()
	}
	return nil
}

// listCall keeps the group's rows in order: string_agg, array_agg, the JSON aggregates, and $scalar. Entry key: order columns · stream key of the
// input, with DISTINCT the arguments instead · encoded arguments.
type listCall struct {
	callBase
	name     string
	args     []int
	argTypes []types.Type
	order    []plan.SortKey
	tie      []int // stream key columns, none with DISTINCT
	distinct bool
	json     *expr.Program // first (json_agg) or second argument to JSON
	vecs     []*types.Vector
	tieVecs  []*types.Vector
	buf      *types.Chunk
}

func (o *aggOp) newList(cb callBase, name string, c plan.AggCall) (*listCall, error) {
	l := &listCall{callBase: cb, name: name, args: c.Args, order: c.Order, distinct: c.Distinct}
	in := o.ctx.InputTypes[0]
	for _, a := range c.Args {
		l.argTypes = append(l.argTypes, in[a])
	}
	if !c.Distinct {
		l.tie = inputKey(o.node, 0, len(in))
	}
	l.buf = types.NewChunk(l.argTypes)
	if !strings.HasPrefix(name, "json") {
		return l, nil
	}
	fn, t := "to_json(anyelement)", types.JSON
	if strings.HasPrefix(name, "jsonb") {
		fn, t = "to_jsonb(anyelement)", types.JSONB
	}
	var err error
	l.json, err = compileCall(o.ctx, fn, l.argTypes[len(l.argTypes)-1], t)
	return l, err
}

func (l *listCall) place(int) int { return 0 }
func (l *listCall) sided() bool   { return true }

func (l *listCall) update(b *aggBatch) error {
	l.vecs = pick(l.vecs, b.c, l.args)
	l.tieVecs = pick(l.tieVecs, b.c, l.tie)
	for i, g := range b.groups {
		r := b.row(i)
		if l.name == "string_agg" && l.vecs[0].IsNull(r) {
			continue
		}
		kg, key := l.o.sideKey(l.o.groups.row(g), l.no)
		for _, s := range l.order {
			key = types.AppendKey(key, b.c.Cols[s.Column], r, s.Desc, s.NullsFirst)
		}
		if l.distinct {
			key = types.AppendKeyRow(key, l.vecs, r)
		} else {
			key = types.AppendKeyRow(key, l.tieVecs, r)
			key = types.AppendRow(key, l.vecs, r)
		}
		l.o.key = key
		values := func(dst []byte) []byte { return types.AppendRow(dst, l.vecs, r) }
		if _, _, err := l.o.bump(kg, key, b.weight(i), values); err != nil {
			return err
		}
	}
	return nil
}

// rows reads the group's arguments in order into l.buf, at most limit of them.
func (l *listCall) rows(row []uint64, limit int) error {
	for _, v := range l.buf.Cols {
		v.Reset()
	}
	l.buf.N = 0
	kg, key := l.o.sideKey(row, l.no)
	err := l.o.side.scan(kg, key, false, func(_, v []byte) (bool, error) {
		n, k := binary.Varint(v)
		if k <= 0 {
			return false, errCorruptState(l.o.node)
		}
		if l.distinct {
			n = min(n, 1)
		}
		for range n {
			if _, err := types.DecodeRow(v[k:], l.buf.Cols); err != nil {
				return false, err
			}
			if l.buf.N++; l.buf.N >= limit {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return stateError{err}
	}
	return nil
}

// maxListRows caps the rows of one list: PostgreSQL's limit of an array.
const maxListRows = 134217727

func (l *listCall) final(row []uint64, _ *callVar, dst *types.Vector) error {
	if l.name == "$scalar" || l.name == "$first" {
		if err := l.rows(row, 2); err != nil {
			return err
		}
		switch {
		case l.buf.N == 0:
			dst.AppendNull()
		case l.buf.N > 1 && l.name == "$scalar":
			return pgerr.Newf(pgerr.CardinalityViolation, "more than one row returned by a subquery used as an expression")
		default:
			dst.Append(l.buf.Cols[0], 0)
		}
		return nil
	}
	if err := l.rows(row, maxListRows); err != nil {
		return err
	}
	if l.buf.N == 0 {
		dst.AppendNull()
		return nil
	}
	var s string
	var err error
	switch l.name {
	case "string_agg":
		s = l.joinStrings()
	case "array_agg":
		s, err = l.array()
	default:
		s, err = l.jsonText()
	}
	if err != nil {
		return err
	}
	pushString(dst, s)
	return nil
}

func (l *listCall) joinStrings() string {
	var b strings.Builder
	v, sep := l.buf.Cols[0], l.buf.Cols[1]
	for i := range l.buf.N {
		if i > 0 && !sep.IsNull(i) {
			b.WriteString(sep.Str[i])
		}
		b.WriteString(v.Str[i])
	}
	return b.String()
}

func (l *listCall) array() (string, error) {
	v := l.buf.Cols[0]
	elem, isArray := l.argTypes[0].Elem()
	if !isArray || !l.argTypes[0].IsArray() {
		elems := make([]types.Datum, l.buf.N)
		for i := range elems {
			elems[i] = v.Get(i)
		}
		return types.EncodeArray(types.NewArray(l.argTypes[0].OID, elems)), nil
	}
	out := types.Array{Elem: elem.OID}
	for i := range l.buf.N {
		if v.IsNull(i) {
			return "", pgerr.Newf(pgerr.NullValueNotAllowed, "cannot accumulate null arrays")
		}
		a, err := types.DecodeArray(v.Str[i])
		if err != nil {
			return "", stateError{err}
		}
		if i == 0 {
			if len(a.Dims) == 0 {
				return "", pgerr.Newf(pgerr.ArraySubscriptError, "cannot accumulate empty arrays")
			}
			if len(a.Dims) == types.MaxArrayDims {
				return "", types.ErrArrayDims(len(a.Dims) + 1)
			}
			out.Dims = append([]types.Dim{{Lower: 1}}, a.Dims...)
		} else if !sameDims(out.Dims[1:], a.Dims) {
			return "", pgerr.Newf(pgerr.ArraySubscriptError, "cannot accumulate arrays of different dimensionality")
		}
		out.Dims[0].Len++
		out.Elems = append(out.Elems, a.Elems...)
	}
	return types.EncodeArray(out), nil
}

func sameDims(a, b []types.Dim) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func (l *listCall) jsonText() (string, error) {
	object := strings.HasSuffix(l.name, "object_agg")
	open, end, sep := "[", "]", ", "
	if object {
		open, end = "{ ", " }"
	}
	var b strings.Builder
	b.WriteString(open)
	last := l.buf.Cols[len(l.buf.Cols)-1]
	structured := false
	switch oid := last.Type.OID; {
	case oid == types.OIDRecord, last.Type.IsArray():
		structured = true
	}
	for from := 0; from < l.buf.N; from += types.MaxChunkRows {
		to := min(from+types.MaxChunkRows, l.buf.N)
		part := types.NewChunk([]types.Type{last.Type})
		part.Cols[0].AppendRange(last, from, to)
		part.N = to - from
		v, err := l.json.Eval(part, l.o.ctx.Env, nil)
		if err != nil {
			return "", err
		}
		for i := range part.N {
			if from+i > 0 {
				b.WriteString(sep)
				if structured && !object && !v.IsNull(i) {
					b.WriteString("\n ")
				}
			}
			if object {
				k := l.buf.Cols[0]
				if k.IsNull(from + i) {
					code := pgerr.Code(pgerr.NullValueNotAllowed)
					if strings.HasPrefix(l.name, "jsonb") {
						code = pgerr.InvalidParameterValue
					}
					return "", pgerr.Newf(code, "field name must not be null")
				}
				text := types.AppendText(nil, l.o.ctx.Env.Format, k, from+i)
				b.Write(types.AppendJSONString(nil, string(text)))
				b.WriteString(" : ")
			}
			if v.IsNull(i) {
				b.WriteString("null")
			} else {
				b.WriteString(v.Str[i])
			}
		}
	}
	b.WriteString(end)
	if strings.HasPrefix(l.name, "jsonb") {
		return types.CanonicalJSONB(b.String())
	}
	return b.String(), nil
}
