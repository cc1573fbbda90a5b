// Package format holds the decoders of sources: bytes straight into column vectors, only the wanted columns, without a value in between.
//
// A decoder is given blocks of input. Strings in the vectors are views into these blocks wherever the input spells them as they are, so a
// block must never be written again after a decoder has seen it.
package format

import (
	"bytes"
	"slices"
	"strings"
	"unsafe"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// Pad is how many bytes behind the end of Input.Data must be readable: decoders look at eight bytes at a time. The first must be zero, so
// that what is read there is never taken for input.
const Pad = 16

// MaxRowBytes is the length in bytes of the longest row; longer ones are bad rows.
const MaxRowBytes = 20 << 20

// Names of the encodings.
const (
	EncodeJSON = "JSON"
	EncodeCSV  = "CSV"
	EncodeAvro = "AVRO"
)

// Input is a part of a stream of bytes that starts at the beginning of a row.
type Input struct {
	Data   []byte // cap(Data) - len(Data) >= Pad
	Offset int64  // of Data[0] in the stream
	Final  bool   // nothing follows Data
	IDBase int64  // a row's id is IDBase plus its offset
	// Bad takes rows that cannot be decoded; raw is valid during the call.
	Bad func(line, offset int64, err error, raw []byte)
}

// Decoder decodes one stream. It is used by one goroutine.
type Decoder interface {
	// Start reads what comes before the first row (byte order mark, header) from the beginning of the stream. ok is false when
	// in does not hold all of it. It must be called once, before Decode, even when reading goes on in the middle of the stream.
	Start(in *Input) (consumed int, ok bool, err error)
	// Decode appends at most limit rows to c and returns the bytes consumed, bad rows included. When it consumes nothing and
	// in is not final, the row is not complete.
	Decode(in *Input, c *types.Chunk, limit int) (consumed int)
	// Line returns the number of the line that the next row starts in, the first is 1; SetLine sets it. Of an encoding without lines it is what else a position needs beside its offset.
	Line() int64
	SetLine(n int64)
	// Resync returns the number of bytes after which decoding may go on behind a row that is not complete, -1 for all there is.
	Resync(data []byte) int
}

// Config says what to decode.
type Config struct {
	Encode  string
	Options map[string]string
	Schema  types.Schema // all columns of the source
	Columns []int        // the wanted ones, in output order
	RowID   bool         // one more int8 column with the rows' ids
}

// Encodings lists the encodings with their options.
func Encodings() []connector.Encoding {
	return []connector.Encoding{{Name: EncodeJSON}, {Name: EncodeCSV, Options: csvOptions()}, {Name: EncodeAvro}}
}

// New returns a decoder.
func New(cfg *Config) (Decoder, error) {
	for _, c := range cfg.Schema {
		if err := decodable(c); err != nil {
			return nil, err
		}
	}
	for i, c := range cfg.Columns {
		if slices.Contains(cfg.Columns[:i], c) {
			return nil, pgerr.Newf(pgerr.InternalError, "column %d of a source was asked for twice", c)
		}
	}
	switch strings.ToUpper(cfg.Encode) {
	case EncodeJSON:
		return newJSON(cfg), nil
	case EncodeCSV:
		return newCSV(cfg)
	case EncodeAvro:
		return newAvro(cfg), nil
	}
	return nil, pgerr.Newf(pgerr.FeatureNotSupported, "ENCODE %s is not supported", cfg.Encode).
		WithHint("Supported encodings: %s, %s, %s.", EncodeJSON, EncodeCSV, EncodeAvro)
}

// Check checks the columns and options of a source.
func Check(cfg *Config) error {
	_, err := New(cfg)
	return err
}

func decodable(c types.Column) error {
	switch c.Type.OID {
	case types.OIDVoid, types.OIDTrigger, types.OIDInternal, types.OIDRecord, types.OIDUnknown, types.OIDCstring, 0:
		e := pgerr.Newf(pgerr.FeatureNotSupported, "column \"%s\" of type %s cannot be read from a source", c.Name, c.Type)
		e.Column = c.Name
		return e
	}
	return nil
}

func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// load returns the eight bytes at b[i:]; they must be readable, which Pad ensures.
func load(p unsafe.Pointer, i int) uint64 { return *(*uint64)(unsafe.Add(p, i)) }

// indexFrom returns the index of the first c in b that is not before i, len(b) when there is none.
func indexFrom(b []byte, i int, c byte) int {
	if n := bytes.IndexByte(b[i:], c); n >= 0 {
		return i + n
	}
	return len(b)
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
	// blanks are the least bytes that are no control characters.
	blanks    = ' ' * ones
	wordBytes = 8
)

// equal marks the high bit of the bytes of x that equal those of pattern; above the lowest mark there may be false ones.
func equal(x, pattern uint64) uint64 {
	a := x ^ pattern
	return (a - ones) &^ a & highs
}

func tooLong(n int) error {
	if n <= MaxRowBytes {
		return nil
	}
	return pgerr.Newf(pgerr.ProgramLimitExceeded, "row is longer than %d bytes", MaxRowBytes)
}

var utf8BOM = []byte("\xef\xbb\xbf")

// target is a wanted column: the vector of the chunk being filled and what is known about its type.
type target struct {
	t   types.Type
	how conversion
	v   *types.Vector
	out int
}

// conversion selects the fast path of a type.
type conversion uint8

const (
	convertOther conversion = iota // through types.ParseText
	convertInt
	convertText
	convertFloat
	convertNumeric
	convertBool
	convertTimestamp
	convertTimestamptz
	convertJSON
)

func newTarget(t types.Type, out int) target {
	g := target{t: t, out: out}
	switch t.OID {
	case types.OIDInt2, types.OIDInt4, types.OIDInt8:
		g.how = convertInt
	case types.OIDText, types.OIDVarchar, types.OIDBpchar:
		if t.Mod < 0 {
			g.how = convertText
		}
	case types.OIDFloat4, types.OIDFloat8:
		g.how = convertFloat
	case types.OIDNumeric:
		if t.Mod < 0 {
			g.how = convertNumeric
		}
	case types.OIDBool:
		g.how = convertBool
	case types.OIDTimestamp:
		if t.Mod < 0 {
			g.how = convertTimestamp
		}
	case types.OIDTimestamptz:
		if t.Mod < 0 {
			g.how = convertTimestamptz
		}
	case types.OIDJSON, types.OIDJSONB:
		g.how = convertJSON
	}
	return g
}

// newTargets returns the wanted columns, and which of them each column of the schema is, -1 for none.
func newTargets(cfg *Config) (targets []target, wanted []int) {
	wanted = make([]int, len(cfg.Schema))
	for i := range wanted {
		wanted[i] = -1
	}
	for out, i := range cfg.Columns {
		wanted[i] = out
		targets = append(targets, newTarget(cfg.Schema[i].Type, out))
	}
	return targets, wanted
}

// foldedNames counts the columns by name in lower case.
func foldedNames(schema types.Schema) map[string]int {
	n := map[string]int{}
	for _, c := range schema {
		n[strings.ToLower(c.Name)]++
	}
	return n
}

// matchNames returns for each column which of the names is its own, -1 for none: the exact one, or else the one that differs in case only, unless several names or several columns do.
func matchNames(schema types.Schema, names []string) []int {
	exact, folded := map[string]int{}, map[string]int{}
	for i, n := range slices.Backward(names) {
		exact[n] = i // of equal ones the first
		f := strings.ToLower(n)
		if _, ok := folded[f]; ok {
			i = -1
		}
		folded[f] = i
	}
	folds := foldedNames(schema)
	out := make([]int, len(schema))
	for c := range schema {
		lower := strings.ToLower(schema[c].Name)
		f, ok := exact[schema[c].Name]
		if !ok && folds[lower] == 1 {
			f, ok = folded[lower]
		}
		if !ok {
			f = -1
		}
		out[c] = f
	}
	return out
}

// set stores d as row r.
func (g *target) set(r int, d *types.Datum) {
	switch g.t.Kind() {
	case types.KindBool:
		g.v.Bool[r] = d.Bool
	case types.KindInt:
		g.v.Int[r] = d.Int
	case types.KindFloat:
		g.v.Float[r] = d.Float
	case types.KindString:
		g.v.Str[r] = d.Str
	case types.KindNumeric:
		g.v.Num[r] = d.Num
	case types.KindInterval:
		g.v.Ivl[r] = d.Ivl
	}
}

// null makes row r NULL.
func (g *target) null(r int) {
	if g.v.Type.Kind() == types.KindString {
		g.v.Str[r] = ""
	}
	g.v.SetNull(r)
}

// parse stores text as row r by PostgreSQL's input rules.
func (g *target) parse(r int, s string) error {
	d, err := types.ParseText(nil, g.t, s)
	if err != nil {
		return err
	}
	g.set(r, &d)
	return nil
}

// text stores s, which is no NULL, as row r: fast where the type and the spelling allow, otherwise by PostgreSQL's input rules. s must be
// followed by eight readable bytes.
func (g *target) text(r int, s string, memo *dateMemo) error {
	p := unsafe.Pointer(unsafe.StringData(s))
	switch g.how {
	case convertText:
		g.v.Str[r] = s
		return nil
	case convertInt:
		if v, n := integer(p, 0); n == len(s) && fits(g.t.OID, v) {
			g.v.Int[r] = v
			return nil
		}
	case convertFloat, convertNumeric:
		if v, scale, n := decimal(p, 0); n == len(s) {
			g.setDecimal(r, v, scale)
			return nil
		}
	case convertTimestamp, convertTimestamptz:
		if v, ok := memo.timestamp(s); ok {
			g.v.Int[r] = v
			return nil
		}
	}
	return g.parse(r, s)
}

func (g *target) setDecimal(r int, v int64, scale int) {
	if g.how == convertNumeric {
		g.v.Num[r] = types.Numeric{Coef: v, Scale: int16(scale)}
		return
	}
	f := float64(v) / float64(powersOfTen[scale]) // both exact: the quotient is rounded once
	if g.t.OID == types.OIDFloat4 {
		f = float64(float32(f))
	}
	g.v.Float[r] = f
}

// bind sets the vectors of the targets to those of c and makes room for limit rows. It returns the position of the first.
func bind(targets []target, c *types.Chunk, limit int) int {
	for i := range targets {
		targets[i].v = c.Cols[targets[i].out]
	}
	for _, v := range c.Cols {
		v.Resize(c.N + limit)
	}
	return c.N
}

// finish cuts the vectors of c to n rows and lets go of them.
func finish(targets []target, c *types.Chunk, n int) {
	for i := range targets {
		targets[i].v = nil
	}
	for _, v := range c.Cols {
		v.Resize(n)
	}
	c.N = n
}

// forget makes row r as new after a row that could not be decoded.
func forget(targets []target, r int) {
	for i := range targets {
		if v := targets[i].v; v.Valid != nil {
			v.Valid.Set(r)
		}
	}
}
