package format

import (
	"bytes"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// maxLearnedKeys bounds the learned order of keys; objects with more members look the others up.
const maxLearnedKeys = 1024

// jsonDecoder reads newline-delimited JSON objects. Members go to columns by name: the exact name wins over one that differs in case, and of
// equal names the last one wins, as in jsonb. The order of keys is learned from the rows, so that a key usually costs two comparisons.
type jsonDecoder struct {
	targets []target
	marks   []mark // parallel to targets
	exact   map[string]int
	folded  map[string]int
	order   []jsonKey
	row     uint64 // number of the row being read, never 0
	seen    int    // targets set in it
	rowID   bool
	line    int64
	memo    dateMemo
	buf     []byte

	escapeAt int  // index of the first backslash in buf that is not before the row being read
	simple   bool // the row being read has no escapes and no control characters and is UTF-8: strings end at the next quote
}

// mark tells in which row a target was set last, and whether by its exact name.
type mark struct {
	row   uint64
	exact bool
}

// jsonKey is an expected key: its spelling with quotes and colon, and where its value goes.
type jsonKey struct {
	text   string
	w, m   [2]uint64
	target int // -1: nowhere
	exact  bool
}

func newJSON(cfg *Config) *jsonDecoder {
	d := &jsonDecoder{rowID: cfg.RowID, line: 1, exact: map[string]int{}, folded: map[string]int{}}
	var wanted []int
	d.targets, wanted = newTargets(cfg)
	folds := foldedNames(cfg.Schema)
	for i, c := range cfg.Schema {
		k := wanted[i]
		d.exact[c.Name] = k // those that are not wanted, too: their names must not fall to others that differ in case
		if f := strings.ToLower(c.Name); k >= 0 && folds[f] == 1 {
			d.folded[f] = k
		}
	}
	d.marks = make([]mark, len(d.targets))
	return d
}

// Start implements Decoder.
func (d *jsonDecoder) Start(in *Input) (int, bool, error) { return skipBOM(in) }

func skipBOM(in *Input) (int, bool, error) {
	if len(in.Data) < len(utf8BOM) && !in.Final && bytes.HasPrefix(utf8BOM, in.Data) {
		return 0, false, nil
	}
	if bytes.HasPrefix(in.Data, utf8BOM) {
		return len(utf8BOM), true, nil
	}
	return 0, true, nil
}

// Line implements Decoder.
func (d *jsonDecoder) Line() int64 { return d.line }

// SetLine implements Decoder.
func (d *jsonDecoder) SetLine(n int64) { d.line = n }

// Resync implements Decoder: rows end with lines.
func (d *jsonDecoder) Resync(data []byte) int {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		d.line++
		return i + 1
	}
	return -1
}

// Decode implements Decoder.
func (d *jsonDecoder) Decode(in *Input, c *types.Chunk, limit int) int {
	r := bind(d.targets, c, limit)
	last := r + limit
	d.buf, d.escapeAt = in.Data, -1
	at := 0
	for r < last && at < len(in.Data) {
		end := len(in.Data)
		next := end
		if i := bytes.IndexByte(in.Data[at:], '\n'); i >= 0 {
			end = at + i
			next = end + 1
		} else if !in.Final {
			break
		}
		if i := d.space(at, end); i < end {
			err := tooLong(end - at)
			if err == nil {
				d.simple = d.isSimple(i, end)
				err = d.object(i, end, r)
			}
			if err != nil {
				forget(d.targets, r)
				in.Bad(d.line, in.Offset+int64(at), err, in.Data[at:end])
			} else {
				if d.rowID {
					c.Cols[len(c.Cols)-1].Int[r] = in.IDBase + in.Offset + int64(at)
				}
				r++
			}
		}
		at = next
		d.line++
	}
	d.buf = nil
	finish(d.targets, c, r)
	return at
}

// isSimple looks at the row from i to end as a whole, which is cheaper than at its strings one by one.
func (d *jsonDecoder) isSimple(i, end int) bool {
	if d.escapeAt < i {
		d.escapeAt = indexFrom(d.buf, i, '\\')
	}
	if d.buf[end-1] == '\r' {
		end--
	}
	if d.escapeAt < end || end-i < wordBytes {
		return false
	}
	p := unsafe.Pointer(unsafe.SliceData(d.buf))
	var control, high uint64
	k := i
	for ; k+4*wordBytes <= end; k += 4 * wordBytes {
		a, b, c, d := load(p, k), load(p, k+wordBytes), load(p, k+2*wordBytes), load(p, k+3*wordBytes)
		control |= (a-blanks)&^a | (b-blanks)&^b | (c-blanks)&^c | (d-blanks)&^d
		high |= a | b | c | d
	}
	for ; k < end; k += wordBytes {
		x := load(p, min(k, end-wordBytes))
		control |= (x - blanks) &^ x
		high |= x
	}
	return control&highs == 0 && (high&highs == 0 || utf8.Valid(d.buf[i:end]))
}

// space returns the first index from i, at most end, that holds no blank.
func (d *jsonDecoder) space(i, end int) int {
	for i < end {
		switch d.buf[i] {
		case ' ', '\t', '\r', '\n':
			i++
		default:
			return i
		}
	}
	return i
}

func (d *jsonDecoder) errAt(i int, what string) error {
	e := pgerr.Newf(pgerr.InvalidTextRepresentation, "invalid input syntax for type json")
	if i >= len(d.buf) || d.buf[i] == '\n' {
		return e.WithDetail("The input string ended unexpectedly; expected %s.", what)
	}
	_, n := utf8.DecodeRune(d.buf[i:])
	return e.WithDetail("Expected %s, but found \"%s\" at byte %d of the line.", what, strings.ToValidUTF8(string(d.buf[i:i+n]), "?"), d.column(i))
}

// column returns the position of index i in its line, the first is 1.
func (d *jsonDecoder) column(i int) int { return i - bytes.LastIndexByte(d.buf[:i], '\n') }

// object reads the object at i as row r. It must be all there is before end.
func (d *jsonDecoder) object(i, end, r int) error {
	if d.buf[i] != '{' {
		return d.errAt(i, "a JSON object")
	}
	d.row++
	d.seen = 0
	p := unsafe.Pointer(unsafe.SliceData(d.buf))
	i = d.space(i+1, end)
	if i < end && d.buf[i] == '}' {
		i++
		goto done
	}
	for f := 0; ; f++ {
		if i < end && d.buf[i] <= ' ' {
			i = d.space(i, end)
		}
		var k *jsonKey
		if f < len(d.order) {
			o := &d.order[f]
			if (load(p, i)^o.w[0])&o.m[0]|(load(p, i+8)^o.w[1])&o.m[1] == 0 && i+len(o.text) <= end &&
				(len(o.text) <= 16 || view(d.buf[i:i+len(o.text)]) == o.text) {
				k = o
				i += len(o.text)
			}
		}
		var other jsonKey
		if k == nil {
			var err error
			if i, err = d.key(i, end, f, &other); err != nil {
				return err
			}
			k = &other
		}
		if i < end && d.buf[i] <= ' ' {
			i = d.space(i, end)
		}
		if k.target < 0 && d.simple && i < end && d.buf[i] == '"' {
			n := bytes.IndexByte(d.buf[i+1:end], '"')
			if n < 0 {
				return d.errAt(end, "a closing quote")
			}
			i += n + 2
		} else {
			var err error
			if i, err = d.member(i, end, r, k); err != nil {
				return err
			}
		}
		if i < end && d.buf[i] <= ' ' {
			i = d.space(i, end)
		}
		if i >= end {
			return d.errAt(end, "\",\" or \"}\"")
		}
		if d.buf[i] == ',' {
			i++
			continue
		}
		if d.buf[i] != '}' {
			return d.errAt(i, "\",\" or \"}\"")
		}
		i++
		break
	}
done:
	if i = d.space(i, end); i < end {
		return d.errAt(i, "the end of the line")
	}
	if d.seen < len(d.targets) {
		for t := range d.targets {
			if d.marks[t].row != d.row {
				d.targets[t].null(r)
			}
		}
	}
	return nil
}

// key reads a key that was not expected, with its colon, and expects it from the next row on.
func (d *jsonDecoder) key(i, end, f int, k *jsonKey) (int, error) {
	if i >= end || d.buf[i] != '"' {
		return 0, d.errAt(min(i, end), "a member's name in quotes")
	}
	quote, escaped, err := d.str(i+1, end)
	if err != nil {
		return 0, err
	}
	name := view(d.buf[i+1 : quote])
	if escaped {
		if name, err = unescape(view(d.buf[i : quote+1])); err != nil {
			return 0, err
		}
	}
	after := quote + 1
	colon := d.space(after, end)
	if colon >= end || d.buf[colon] != ':' {
		return 0, d.errAt(min(colon, end), "\":\"")
	}
	k.target, k.exact = -1, true
	if t, ok := d.exact[name]; ok {
		k.target = t
	} else if t, ok := d.folded[strings.ToLower(name)]; ok {
		k.target, k.exact = t, false
	}
	if colon == after && f <= len(d.order) && f < maxLearnedKeys {
		learned := *k
		learned.text = string(d.buf[i : colon+1])
		learned.w, learned.m = word(learned.text)
		if f == len(d.order) {
			d.order = append(d.order, learned)
		} else {
			d.order[f] = learned
		}
	}
	return colon + 1, nil
}

// member reads the value at i for key k.
func (d *jsonDecoder) member(i, end, r int, k *jsonKey) (int, error) {
	if i >= end {
		return 0, d.errAt(end, "a JSON value")
	}
	if k.target < 0 {
		return d.skip(i, end, 0)
	}
	m, t := &d.marks[k.target], &d.targets[k.target]
	if m.row == d.row {
		if m.exact && !k.exact {
			return d.skip(i, end, 0)
		}
		if t.v.Valid != nil {
			t.v.Valid.Set(r) // what the earlier member said no longer counts
		}
	} else {
		d.seen++
	}
	m.row, m.exact = d.row, k.exact
	p := unsafe.Pointer(unsafe.SliceData(d.buf))
	c := d.buf[i]
	switch {
	case c == '"':
		if t.how == convertJSON {
			break
		}
		if t.how == convertTimestamp || t.how == convertTimestamptz {
			if v, n := d.memo.prefix(view(d.buf[i+1 : end])); n >= 0 && i+1+n < end && d.buf[i+1+n] == '"' {
				t.v.Int[r] = v
				return i + n + 2, nil
			}
		}
		quote, escaped, err := d.str(i+1, end)
		if err != nil {
			return 0, err
		}
		s := view(d.buf[i+1 : quote])
		if escaped {
			if s, err = unescape(view(d.buf[i : quote+1])); err != nil {
				return 0, err
			}
		}
		return quote + 1, t.text(r, s, &d.memo)
	case t.how == convertInt && c <= '9':
		if v, n := integer(p, i); n > 0 && n <= end && delimits(d.buf, n, end) && fits(t.t.OID, v) {
			t.v.Int[r] = v
			return n, nil
		}
	case (t.how == convertFloat || t.how == convertNumeric) && c <= '9':
		if v, scale, n := decimal(p, i); n > 0 && n <= end && delimits(d.buf, n, end) {
			t.setDecimal(r, v, scale)
			return n, nil
		}
	}
	return d.other(i, end, r, t)
}

// delimits reports whether a value may end before i.
func delimits(b []byte, i, end int) bool {
	if i >= end {
		return true
	}
	switch b[i] {
	case ',', '}', ']', ' ', '\t', '\r':
		return true
	}
	return false
}

// other reads a value that has no fast path.
func (d *jsonDecoder) other(i, end, r int, t *target) (int, error) {
	next, err := d.skip(i, end, 0)
	if err != nil {
		return 0, err
	}
	return next, t.json(r, view(d.buf[i:next]))
}

// json stores a JSON value that is no string in quotes, followed by eight readable bytes.
func (g *target) json(r int, raw string) error {
	switch c := raw[0]; {
	case c == 'n':
		g.null(r)
		return nil
	case g.how == convertJSON:
		return g.parse(r, raw)
	case g.how == convertBool && (c == 't' || c == 'f'):
		g.v.Bool[r] = c == 't'
		return nil
	case c == '[' && g.t.IsArray():
		return g.array(r, raw)
	case c == '-' || c >= '0' && c <= '9':
		return g.number(r, raw)
	case g.t.Kind() == types.KindString:
		switch g.t.OID {
		case types.OIDText, types.OIDVarchar, types.OIDBpchar, types.OIDName:
			return g.parse(r, raw)
		}
	}
	return wrongKind(g.t, raw)
}

func wrongKind(t types.Type, raw string) error {
	kind := "number"
	switch raw[0] {
	case '{':
		kind = "object"
	case '[':
		kind = "array"
	case 't', 'f':
		kind = "boolean"
	}
	return pgerr.Newf(pgerr.DatatypeMismatch, "cannot read a JSON %s as %s", kind, t)
}

// number stores a JSON number that has no fast path.
func (g *target) number(r int, raw string) error {
	switch g.t.OID {
	case types.OIDInt2, types.OIDInt4, types.OIDInt8:
		if !strings.ContainsAny(raw, ".eE") {
			return g.parse(r, raw)
		}
		n, err := types.ParseNumeric(raw)
		if err != nil {
			return err
		}
		v, err := types.NumToInt(n, g.t.OID)
		if err != nil {
			return err
		}
		if types.CompareNumeric(n, types.NumericFromInt64(v)) != 0 {
			return pgerr.Newf(pgerr.InvalidTextRepresentation, "invalid input syntax for type %s: \"%s\"", g.t, raw)
		}
		g.v.Int[r] = v
		return nil
	case types.OIDFloat4, types.OIDFloat8, types.OIDNumeric, types.OIDText, types.OIDVarchar, types.OIDBpchar, types.OIDName,
		types.OIDBool, types.OIDOid:
		return g.parse(r, raw)
	}
	e := wrongKind(g.t, raw)
	switch g.t.OID {
	case types.OIDTimestamp, types.OIDTimestamptz, types.OIDDate:
		return pgerr.From(e).WithHint("Declare the column as bigint and convert it with to_timestamp.")
	}
	return e
}

// array stores a JSON array of one dimension in an array column.
func (g *target) array(r int, raw string) error {
	j, err := types.ParseJSON(raw)
	if err != nil {
		return err
	}
	elem, _ := g.t.Elem()
	one := target{t: elem, v: types.NewVector(elem, 1)}
	ds := make([]types.Datum, len(j.Elems))
	for i := range j.Elems {
		e := &j.Elems[i]
		switch e.Kind {
		case types.JSONNull:
			ds[i] = types.NullDatum(elem)
			continue
		case types.JSONArray:
			return pgerr.Newf(pgerr.FeatureNotSupported, "arrays of arrays cannot be read from JSON").
				WithHint("Declare the column as jsonb.")
		case types.JSONNumber:
			err = one.number(0, e.String())
		case types.JSONString:
			if elem.OID == types.OIDJSONB || elem.OID == types.OIDJSON {
				err = one.parse(0, e.String())
			} else {
				err = one.parse(0, e.Str)
			}
		case types.JSONBool, types.JSONObject:
			switch elem.OID {
			case types.OIDBool, types.OIDJSONB, types.OIDJSON, types.OIDText, types.OIDVarchar:
				err = one.parse(0, e.String())
			default:
				err = wrongKind(elem, e.String())
			}
		}
		if err != nil {
			return err
		}
		ds[i] = one.v.Get(0)
	}
	g.v.Str[r] = types.EncodeArray(types.NewArray(elem.OID, ds))
	return nil
}

// unescape returns the text of a JSON string literal with quotes, followed by Pad readable bytes.
func unescape(lit string) (string, error) {
	j, err := types.ParseJSON(lit)
	if err != nil {
		return "", err
	}
	b := make([]byte, len(j.Str), len(j.Str)+Pad)
	copy(b, j.Str)
	return view(b), nil
}

// maxJSONDepth bounds nesting in values that are skipped; PostgreSQL's bound is its stack depth limit.
const maxJSONDepth = 6000
