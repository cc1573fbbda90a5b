package format

import (
	"bytes"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// Options of ENCODE CSV.
const (
	optHeader        = "header"
	optWithoutHeader = "without_header"
	optDelimiter     = "delimiter"
	optQuote         = "quote"
	optNull          = "null"
)

func csvOptions() []connector.Option {
	oneByte := func(s string) error {
		_, err := delimiterByte(s)
		return err
	}
	return []connector.Option{
		{
			Name: optHeader, Default: "true", Check: connector.CheckBool,
			Doc: "Whether the first row names the columns. With a header, columns are found by name (the exact name, else one that differs in case only, unless other columns do too) " +
				"and those that the header lacks are NULL; without one, by position.",
		},
		{Name: optWithoutHeader, Default: "false", Check: connector.CheckBool, Doc: "The opposite of " + optHeader + "."},
		{Name: optDelimiter, Default: ",", Check: oneByte, Doc: "The character between columns; \\t is a tab."},
		{Name: optQuote, Default: "\"", Check: oneByte, Doc: "The character around values that hold delimiters, quotes (doubled) or line ends."},
		{Name: optNull, Default: "", Doc: "The unquoted text that stands for NULL."},
	}
}

func delimiterByte(s string) (byte, error) {
	if s == "\\t" {
		s = "\t"
	}
	if len(s) != 1 || s[0] == '\n' || s[0] == '\r' || s[0] == 0 || s[0] >= utf8.RuneSelf {
		return 0, pgerr.Newf(pgerr.InvalidParameterValue, "\"%s\" is not a single one-byte character", s)
	}
	return s[0], nil
}

// csvDecoder reads CSV as COPY does: quotes may stand anywhere in a value, doubled ones are literal, an unquoted null string is NULL. Rows
// end with LF or CRLF; blank lines are skipped.
type csvDecoder struct {
	schema    types.Schema
	targets   []target
	wanted    []int // target of each column of schema, -1: none
	fields    []int // target of each field, -1: none; known after Start
	missing   []int // targets without a field
	wantedEnd int   // number of fields up to the last one that has a target
	exact     bool  // numbers and timestamps may be read before the end of their field is known: nothing in them is a delimiter or stands for NULL
	quoteAt   int   // index of the first quote in buf that is not before the row being read
	header    bool
	delim     byte
	quote     byte
	null      string
	rowID     bool
	line      int64
	memo      dateMemo
	buf       []byte
	unquoted  []byte // value being put together from quoted and unquoted parts
	delimText [1]byte
	delims    uint64 // the delimiter, eight times
	quotes    uint64
	extraLine int64 // line ends inside quotes of the row being read
	cleanTo   int64 // offset up to which the stream is known to be text

	// Of the row being read: its place in the vectors, its fields so far, the first error, and the names when it is the header.
	row     int
	seen    int
	rowErr  error
	inNames bool
	names   []string
}

func newCSV(cfg *Config) (*csvDecoder, error) {
	v := connector.Values{Options: cfg.Options}
	d := &csvDecoder{schema: cfg.Schema, rowID: cfg.RowID, line: 1, null: v.String("", optNull)}
	_, both := cfg.Options[optHeader]
	d.header = v.Bool(true, optHeader)
	if _, ok := cfg.Options[optWithoutHeader]; ok {
		without := v.Bool(false, optWithoutHeader)
		if both && d.header == without && v.Err == nil {
			return nil, pgerr.Newf(pgerr.InvalidParameterValue, "options \"%s\" and \"%s\" contradict each other", optHeader, optWithoutHeader)
		}
		d.header = !without
	}
	if v.Err != nil {
		return nil, v.Err
	}
	var err error
	if d.delim, err = delimiterByte(v.String(",", optDelimiter)); err != nil {
		return nil, err
	}
	if d.quote, err = delimiterByte(v.String("\"", optQuote)); err != nil {
		return nil, err
	}
	if d.delim == d.quote {
		return nil, pgerr.Newf(pgerr.InvalidParameterValue, "options \"%s\" and \"%s\" must differ", optDelimiter, optQuote)
	}
	d.exact = d.null == "" && !strings.ContainsRune("0123456789-.: TZ", rune(d.delim))
	d.delimText[0] = d.delim
	d.delims, d.quotes = uint64(d.delim)*ones, uint64(d.quote)*ones
	d.targets, d.wanted = newTargets(cfg)
	return d, nil
}

// Line implements Decoder.
func (d *csvDecoder) Line() int64 { return d.line }

// SetLine implements Decoder.
func (d *csvDecoder) SetLine(n int64) { d.line = n }

// Resync implements Decoder: a row that does not end has an unbalanced quote, the next line is as good a start as any.
func (d *csvDecoder) Resync(data []byte) int {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		d.line++
		return i + 1
	}
	return -1
}

// Start implements Decoder.
func (d *csvDecoder) Start(in *Input) (int, bool, error) {
	at, ok, _ := skipBOM(in)
	if !ok {
		return 0, false, nil
	}
	if !d.header {
		d.bindFields(d.wanted)
		return at, true, nil
	}
	d.buf, d.inNames, d.names = in.Data, true, nil
	next, end := d.scan(at, len(in.Data), in.Final)
	d.buf, d.inNames = nil, false
	if next < 0 {
		if !in.Final {
			return 0, false, nil
		}
		return 0, true, pgerr.Newf(pgerr.BadCopyFileFormat, "the CSV header does not end")
	}
	d.line += 1 + d.extraLine
	if end == at && next == at { // an empty file has no rows that the header could be wrong for
		return at, true, nil
	}
	return next, true, d.bindHeader(d.names)
}

// bindHeader finds the columns in the header.
func (d *csvDecoder) bindHeader(names []string) error {
	fields := make([]int, len(names))
	for i, n := range names {
		if slices.Contains(names[:i], n) {
			return pgerr.Newf(pgerr.DuplicateColumn, "the CSV header has two columns \"%s\"", n)
		}
		fields[i] = -1
	}
	found := false
	for c, f := range matchNames(d.schema, names) {
		found = found || f >= 0
		switch t := d.wanted[c]; {
		case t < 0:
		case f < 0:
			d.missing = append(d.missing, t)
		default:
			fields[f] = t
		}
	}
	if !found {
		return pgerr.Newf(pgerr.BadCopyFileFormat, "none of the columns is in the CSV header \"%s\"", strings.Join(names, string(d.delim))).
			WithHint("If the first row is not a header, use ENCODE CSV (header = false).")
	}
	d.bindFields(fields)
	return nil
}

func (d *csvDecoder) bindFields(fields []int) {
	d.fields = fields
	for f, t := range fields {
		if t >= 0 {
			d.wantedEnd = f + 1
		}
	}
}

// Decode implements Decoder.
func (d *csvDecoder) Decode(in *Input, c *types.Chunk, limit int) int {
	r := bind(d.targets, c, limit)
	last := r + limit
	d.buf, d.quoteAt = in.Data, -1
	at := 0
	clean := d.isClean(in)
	for r < last && at < len(in.Data) {
		d.row, d.seen, d.rowErr = r, 0, nil
		next, end := d.read(at, in.Final)
		rowErr, fields := d.rowErr, d.seen
		if next < 0 {
			if !in.Final {
				break
			}
			next = len(in.Data)
			if n := bytes.IndexByte(in.Data[at:], '\n'); n >= 0 {
				next = at + n + 1
			}
			forget(d.targets, r)
			in.Bad(d.line, in.Offset+int64(at), pgerr.Newf(pgerr.BadCopyFileFormat, "unterminated CSV quoted field"), in.Data[at:next])
			at = next
			d.line++
			continue
		}
		switch {
		case end == at && len(d.fields) != 1: // blank line
			forget(d.targets, r)
			at = next
			d.line++
			continue
		case rowErr == nil && fields < len(d.fields):
			rowErr = pgerr.Newf(pgerr.BadCopyFileFormat, "missing data: the row has %d columns, expected %d", fields, len(d.fields))
		case rowErr == nil && fields > len(d.fields):
			rowErr = pgerr.Newf(pgerr.BadCopyFileFormat, "extra data after last expected column: the row has %d columns, expected %d", fields, len(d.fields))
		}
		if rowErr == nil {
			rowErr = tooLong(end - at)
		}
		if rowErr == nil && !clean {
			rowErr = checkText(in.Data[at:end])
		}
		if rowErr != nil {
			forget(d.targets, r)
			in.Bad(d.line, in.Offset+int64(at), rowErr, in.Data[at:end])
		} else {
			for _, t := range d.missing {
				d.targets[t].null(r)
			}
			if d.rowID {
				c.Cols[len(c.Cols)-1].Int[r] = in.IDBase + in.Offset + int64(at)
			}
			r++
		}
		at = next
		d.line += 1 + d.extraLine
	}
	d.buf = nil
	finish(d.targets, c, r)
	return at
}

// store takes field f of the row.
func (d *csvDecoder) store(f int, value string, quoted bool) {
	d.seen = f + 1
	if d.inNames {
		d.names = append(d.names, strings.Clone(strings.TrimSpace(value)))
		return
	}
	if f >= len(d.fields) || d.fields[f] < 0 || d.rowErr != nil {
		return
	}
	t := &d.targets[d.fields[f]]
	switch {
	case !quoted && value == d.null:
		t.null(d.row)
	case t.how == convertText:
		t.v.Str[d.row] = value
	default:
		d.rowErr = t.text(d.row, value, &d.memo)
	}
}

// read goes over the fields of the row at i, as scan does.
func (d *csvDecoder) read(i int, final bool) (next, end int) {
	if d.quoteAt < i {
		d.quoteAt = indexFrom(d.buf, i, d.quote)
	}
	switch n := bytes.IndexByte(d.buf[i:], '\n'); {
	case n >= 0:
		end, next = i+n, i+n+1
	case final:
		end, next = len(d.buf), len(d.buf)
	default:
		return -1, 0
	}
	if d.quoteAt < end {
		return d.scan(i, len(d.buf), final)
	}
	if end > i && d.buf[end-1] == '\r' {
		end--
	}
	d.extraLine = 0
	d.plain(i, end)
	return next, end
}

// plain goes over the fields of the row from i to end, which has no quotes.
func (d *csvDecoder) plain(i, end int) {
	p := unsafe.Pointer(unsafe.SliceData(d.buf))
	for f := range d.wantedEnd {
		next := -1
		if t := d.fields[f]; t >= 0 && d.exact && d.rowErr == nil {
			switch g := &d.targets[t]; g.how {
			case convertInt:
				if v, n := integer(p, i); n >= 0 && n <= end && (n == end || d.buf[n] == d.delim) && fits(g.t.OID, v) {
					g.v.Int[d.row], next = v, n
				}
			case convertTimestamp, convertTimestamptz:
				if v, n := d.memo.prefix(view(d.buf[i:end])); n >= 0 && (i+n == end || d.buf[i+n] == d.delim) {
					g.v.Int[d.row], next = v, i+n
				}
			}
		}
		if next < 0 {
			if next = end; i < end {
				if n := bytes.IndexByte(d.buf[i:end], d.delim); n >= 0 {
					next = i + n
				}
			}
			if d.fields[f] >= 0 {
				d.store(f, view(d.buf[i:next]), false)
			}
		}
		if next >= end {
			d.seen = f + 1
			return
		}
		i = next + 1
	}
	d.seen = d.wantedEnd + 1 + bytes.Count(d.buf[i:end], d.delimText[:])
}

// scan goes over the fields of the row at i. It returns the index of the row after it and of the row's end without its line end; next is
// negative when the row is not complete.
func (d *csvDecoder) scan(i, length int, final bool) (next, end int) {
	const (
		newlines = '\n' * ones
	)
	p := unsafe.Pointer(unsafe.SliceData(d.buf))
	d.extraLine = 0
	for f := 0; ; f++ {
		start, lines := i, d.extraLine
		if i < length && d.buf[i] == d.quote {
			if q := d.closing(i+1, length); q > 0 && (q+1 < length || final) {
				if q+1 >= length || d.buf[q+1] == d.delim || d.buf[q+1] == '\n' || d.buf[q+1] == '\r' && q+2 < length && d.buf[q+2] == '\n' {
					d.store(f, view(d.buf[i+1:q]), true)
					i = q + 1
					goto separator
				}
			}
			goto general
		}
		for {
			x := load(p, i)
			m := equal(x, d.delims) | equal(x, newlines) | equal(x, d.quotes)
			if m == 0 {
				if i += 8; i >= length {
					i = length
					break
				}
				continue
			}
			i = min(i+bits.TrailingZeros64(m)>>3, length)
			break
		}
		if i < length && d.buf[i] == d.quote {
			goto general
		}
		if i == length && !final {
			return -1, 0
		}
		{
			e := i
			if e > start && (i == length || d.buf[i] == '\n') && d.buf[e-1] == '\r' {
				e--
			}
			d.store(f, view(d.buf[start:e]), false)
			if e < i { // CRLF
				return min(i+1, length), e
			}
		}
		goto separator
	general:
		{
			d.extraLine = lines
			e, ok := d.general(start, length, final)
			if !ok {
				return -1, 0
			}
			b := make([]byte, len(d.unquoted), len(d.unquoted)+Pad)
			copy(b, d.unquoted)
			d.store(f, view(b), true)
			i = e
		}
	separator:
		switch {
		case i >= length:
			return length, length
		case d.buf[i] == d.delim:
			i++
		case d.buf[i] == '\n':
			return i + 1, i
		default: // CR before LF, or at the very end
			return min(i+2, length), i
		}
	}
}

// closing returns the index of the quote that closes a value from i without doubled quotes; -1 when there is none so simple.
func (d *csvDecoder) closing(i, length int) int {
	n := bytes.IndexByte(d.buf[i:length], d.quote)
	if n < 0 {
		return -1
	}
	if b := d.buf[i : i+n]; n > 0 {
		d.extraLine += int64(bytes.Count(b, newline))
	}
	if q := i + n; q+1 >= length || d.buf[q+1] != d.quote {
		return q
	}
	return -1
}

// isClean reports whether all of the input is known to be text: then the single rows need no check.
func (d *csvDecoder) isClean(in *Input) bool {
	end := in.Offset + int64(len(in.Data))
	if end <= d.cleanTo {
		return true
	}
	from := max(d.cleanTo-in.Offset, 0)
	to := len(in.Data)
	if !in.Final {
		to = bytes.LastIndexByte(in.Data, '\n') + 1 // what follows may end inside a character
	}
	if from < int64(to) {
		if !isText(in.Data[from:to]) {
			return false
		}
		d.cleanTo = in.Offset + int64(to)
	}
	return true
}

func isText(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }

// checkText refuses a row that is no text.
func checkText(b []byte) error {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return pgerr.Newf(pgerr.CharacterNotInRepertoire, "invalid byte sequence for encoding \"UTF8\": 0x00")
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return pgerr.Newf(pgerr.CharacterNotInRepertoire, "invalid byte sequence for encoding \"UTF8\": 0x%02x", b[i])
		}
		i += n
	}
	return nil
}

var newline = []byte{'\n'}

// general puts the value at i together in d.unquoted and returns the index after it; ok is false when it does not end.
func (d *csvDecoder) general(i, length int, final bool) (next int, ok bool) {
	d.unquoted = d.unquoted[:0]
	quoted := false
	for ; i < length; i++ {
		c := d.buf[i]
		switch {
		case c == d.quote && quoted && i+1 < length && d.buf[i+1] == d.quote:
			i++
		case c == d.quote:
			if quoted && i+1 >= length && !final {
				return 0, false // the next byte might double it
			}
			quoted = !quoted
			continue
		case quoted:
			if c == '\n' {
				d.extraLine++
			}
		case c == d.delim, c == '\n':
			return i, true
		case c == '\r' && (i+1 < length && d.buf[i+1] == '\n' || i+1 == length && final):
			return i, true
		case c == '\r' && i+1 == length:
			return 0, false
		}
		d.unquoted = append(d.unquoted, c)
	}
	return i, final && !quoted
}
