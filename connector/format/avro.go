package format

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strconv"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

const (
	avroMagic    = "Obj\x01"
	avroSync     = 16 // bytes of the mark behind each block
	crcBytes     = 4
	nanosPerUs   = 1000
	microsPerMs  = 1000
	maxFastBytes = 8 // of a decimal that fits an int64
)

// avroDecoder reads object container files of Avro: a header with the schema they were written with, blocks of rows, compressed or not. Fields go to columns by name, the exact one or else one that differs
// in case. A block is consumed when all of its rows are; Line is how many of them have been.
type avroDecoder struct {
	schema  types.Schema
	targets []target
	wanted  []int // target of each column of schema, -1: none
	rowID   bool
	texts   bool // there are columns that hold views of the input
	sync    [avroSync]byte
	codec   string
	zstd    *zstd.Decoder
	deflate io.ReadCloser
	spare   []byte // of the last block, when nothing views it
	steps   []avroStep
	missing []int // targets without a field
	memo    dateMemo
	lost    bool // a block had no end: the next mark is looked for

	// Of the block being read.
	open  bool
	data  []byte // its rows, decompressed; Pad bytes behind them may be read
	plain bool   // data is part of the input
	size  int    // in the input
	from  int    // of its rows in the input
	rows  int64
	done  int64
	at    int // in data
}

// avroStep is what is done with a field.
type avroStep struct {
	typ    *avroType
	target int
	null   int // branch of a union of two that is null; -1: it is no such union
	op     avroOp
}

// avroOp is the fast path of a field.
type avroOp uint8

const (
	avroSkip avroOp = iota
	avroOther
	avroToInt
	avroToText
	avroToDouble
	avroToMillis // of a timestamp
	avroToMicros
)

func newAvro(cfg *Config) *avroDecoder {
	d := &avroDecoder{schema: cfg.Schema, rowID: cfg.RowID}
	d.targets, d.wanted = newTargets(cfg)
	d.texts = slices.ContainsFunc(d.targets, func(g target) bool { return g.t.Kind() == types.KindString })
	return d
}

// Line implements Decoder.
func (d *avroDecoder) Line() int64 { return d.done }

// SetLine implements Decoder.
func (d *avroDecoder) SetLine(n int64) { d.done = n }

// Resync implements Decoder.
func (d *avroDecoder) Resync(data []byte) int {
	d.done = 0
	if i := bytes.Index(data, d.sync[:]); i >= 0 {
		return i + avroSync
	}
	return -1
}

var errAvroBroken = pgerr.Newf(pgerr.DataCorrupted, "invalid Avro data")

// avroLong reads a number; next is -1 when it does not end.
func avroLong(b []byte, i int) (v int64, next int) {
	if len(b)-i >= wordBytes {
		x := binary.LittleEndian.Uint64(b[i:])
		if ends := ^x & highs; ends != 0 { // its last byte is the first without high bit; those before have seven bits each
			x &= (ends&-ends<<1 - 1) &^ highs
			x = x&0x007f007f007f007f | x&0x7f007f007f007f00>>1
			x = x&0x00003fff00003fff | x&0x3fff00003fff0000>>2
			x = x&0x000000000fffffff | x&0x0fffffff00000000>>4
			return int64(x>>1) ^ -int64(x&1), i + bits.TrailingZeros64(ends)>>3 + 1
		}
	}
	return avroLongSlow(b, i)
}

// avroLongSlow reads one that is longer than a word, or near the end.
func avroLongSlow(b []byte, i int) (v int64, next int) {
	var u uint64
	for shift := uint(0); i < len(b) && shift < 64; shift += 7 {
		c := b[i]
		i++
		u |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i
		}
	}
	return 0, -1
}

// avroLength reads a length and returns where what has that length begins and ends; end is -1 when it is not all there.
func avroLength(b []byte, i int) (from, end int) {
	n, i := avroLong(b, i)
	if i < 0 || n < 0 || n > int64(len(b)-i) {
		return 0, -1
	}
	return i, i + int(n)
}

// Start implements Decoder.
func (d *avroDecoder) Start(in *Input) (int, bool, error) {
	b := in.Data
	incomplete := func() (int, bool, error) {
		if !in.Final || len(b) == 0 { // an empty file has no rows
			return 0, len(b) == 0 && in.Final, nil
		}
		return 0, true, pgerr.Newf(pgerr.DataCorrupted, "the header of the Avro file does not end")
	}
	if n := min(len(b), len(avroMagic)); string(b[:n]) != avroMagic[:n] {
		return 0, true, pgerr.Newf(pgerr.DataCorrupted, "the file is no Avro object container file")
	} else if n < len(avroMagic) {
		return incomplete()
	}
	var schema []byte
	i := len(avroMagic)
	for {
		n, next := avroLong(b, i)
		if next >= 0 && n < 0 {
			n = -n
			_, next = avroLong(b, next)
		}
		if next < 0 {
			return incomplete()
		}
		if i = next; n == 0 {
			break
		}
		for range n {
			key, end := avroLength(b, i)
			if end < 0 {
				return incomplete()
			}
			value, vend := avroLength(b, end)
			if vend < 0 {
				return incomplete()
			}
			switch string(b[key:end]) {
			case "avro.schema":
				schema = b[value:vend]
			case "avro.codec":
				d.codec = string(b[value:vend])
			}
			i = vend
		}
	}
	if len(b)-i < avroSync {
		return incomplete()
	}
	copy(d.sync[:], b[i:])
	switch d.codec {
	case "":
		d.codec = "null"
	case "null", "deflate", "snappy":
	case "zstandard":
		var err error
		if d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxRowBytes)); err != nil {
			return 0, true, err
		}
	default:
		return 0, true, pgerr.Newf(pgerr.FeatureNotSupported, "the Avro codec \"%s\" is not supported", d.codec).WithHint("Supported codecs: null, deflate, snappy, zstandard.")
	}
	t, err := parseAvroSchema(schema)
	if err != nil {
		return 0, true, err
	}
	return i + avroSync, true, d.bind(t)
}

// bind finds the columns among the fields.
func (d *avroDecoder) bind(t *avroType) error {
	d.steps = make([]avroStep, len(t.fields))
	names := make([]string, len(t.fields))
	for f, field := range t.fields {
		d.steps[f], names[f] = avroStep{typ: field.typ, null: -1}, field.name
	}
	found := false
	for c, f := range matchNames(d.schema, names) {
		found = found || f >= 0
		i := d.wanted[c]
		switch {
		case i < 0:
			continue
		case f < 0:
			d.missing = append(d.missing, i)
			continue
		}
		s := &d.steps[f]
		s.target = i
		if s.typ.kind == avroUnion && len(s.typ.branches) == 2 {
			for n, b := range s.typ.branches {
				if b.kind == avroNull {
					s.null, s.typ = n, s.typ.branches[1-n]
					break
				}
			}
		}
		s.op = avroOpOf(s.typ, &d.targets[i])
	}
	if !found {
		return pgerr.Newf(pgerr.DataCorrupted, "none of the columns is in the Avro schema of the file")
	}
	return nil
}

func avroOpOf(t *avroType, g *target) avroOp {
	switch {
	case t.kind == avroInt && g.how == convertInt:
		return avroToInt
	case t.kind == avroString && g.how == convertText && t.logical == avroPlain:
		return avroToText
	case t.kind == avroDouble && g.t.OID == types.OIDFloat8:
		return avroToDouble
	case g.how == convertTimestamp || g.how == convertTimestamptz:
		switch t.logical {
		case avroTimestampMicros:
			return avroToMicros
		case avroTimestampMillis:
			return avroToMillis
		}
	}
	return avroOther
}

// Decode implements Decoder.
func (d *avroDecoder) Decode(in *Input, c *types.Chunk, limit int) int {
	r := bind(d.targets, c, limit)
	last := r + limit
	at := 0
	bad := func(err error, end int) { in.Bad(d.done+1, in.Offset+int64(at), err, in.Data[at:end]) }
	for r < last && at < len(in.Data) {
		if d.lost {
			n := d.Resync(in.Data[at:])
			switch {
			case n >= 0:
				d.lost = false
				at += n
				continue
			case in.Final:
				at = len(in.Data)
			default:
				at = max(at, len(in.Data)-avroSync+1) // the mark may begin there
			}
			break
		}
		if !d.open {
			switch ok, err := d.block(in.Data[at:]); {
			case err != nil:
				bad(err, len(in.Data))
				d.lost, d.done = true, 0
				at = min(at+1, len(in.Data))
				continue
			case !ok && in.Final:
				bad(pgerr.Newf(pgerr.DataCorrupted, "the last block of the Avro file does not end"), len(in.Data))
				at, d.done = len(in.Data), 0
				continue
			case !ok:
				finish(d.targets, c, r)
				return at
			}
		} else if d.plain {
			d.data = in.Data[at+d.from : at+d.size-avroSync]
		}
		for r < last && d.done < d.rows {
			next, err := d.row(d.at, r)
			if next < 0 {
				forget(d.targets, r)
				bad(errAvroBroken, at+d.size)
				d.done = d.rows
				break
			}
			if err != nil {
				forget(d.targets, r)
				bad(err, at)
			} else {
				for _, t := range d.missing {
					d.targets[t].null(r)
				}
				if d.rowID {
					c.Cols[len(c.Cols)-1].Int[r] = in.IDBase + d.id(in.Offset+int64(at))
				}
				r++
			}
			d.at = next
			d.done++
		}
		if d.done < d.rows {
			break
		}
		at += d.size
		d.open, d.done, d.data = false, 0, nil
	}
	finish(d.targets, c, r)
	return at
}

// id is what tells a row from others of the file: a number between the offsets of its block and of the next one, as far as there are as many.
func (d *avroDecoder) id(block int64) int64 {
	if d.done < int64(d.size) {
		return block + d.done
	}
	return int64((uint64(block)*0x9e3779b97f4a7c15 ^ uint64(d.done)) * 0xbf58476d1ce4e5b9 >> 2)
}

// block begins the block at b; ok is false when it is not all there. Rows of it that are done are skipped.
func (d *avroDecoder) block(b []byte) (ok bool, err error) {
	rows, i := avroLong(b, 0)
	size, from := int64(0), -1
	if i >= 0 {
		size, from = avroLong(b, i)
	}
	switch {
	case from < 0 && len(b) >= 2*binary.MaxVarintLen64 || from >= 0 && (rows < 0 || rows > MaxRowBytes || size < 0 || size > MaxRowBytes):
		return false, errAvroBroken
	case from < 0 || int64(len(b)-from) < size+avroSync:
		return false, nil
	}
	end := from + int(size)
	if !bytes.Equal(b[end:end+avroSync], d.sync[:]) {
		return false, errAvroBroken
	}
	if d.data, err = d.decompress(b[from:end]); err != nil {
		return false, err
	}
	d.plain = d.codec == "null"
	d.open, d.from, d.size, d.rows, d.at = true, from, end+avroSync, rows, 0
	for range min(d.done, rows) {
		for k := range d.steps {
			t := d.steps[k].typ
			if n := d.steps[k].null; n >= 0 {
				branch, next := avroLong(d.data, d.at)
				if d.at = next; next >= 0 && branch == int64(n) {
					continue
				}
			}
			if d.at >= 0 {
				d.at = avroSkipValue(d.data, d.at, t, 0)
			}
			if d.at < 0 {
				d.open = false
				return false, errAvroBroken
			}
		}
	}
	return true, nil
}

// decompress returns the rows of a block.
func (d *avroDecoder) decompress(b []byte) (out []byte, err error) {
	if d.codec == "null" {
		return b, nil
	}
	out = d.spare[:0]
	switch d.codec {
	case "deflate":
		if d.deflate == nil {
			d.deflate = flate.NewReader(nil)
		}
		if err := d.deflate.(flate.Resetter).Reset(bytes.NewReader(b), nil); err != nil {
			return nil, err
		}
		w := bytes.NewBuffer(out)
		_, err = io.Copy(w, io.LimitReader(d.deflate, MaxRowBytes+1))
		out = w.Bytes()
	case "snappy":
		if len(b) < crcBytes {
			return nil, errAvroBroken
		}
		sum := binary.BigEndian.Uint32(b[len(b)-crcBytes:])
		b = b[:len(b)-crcBytes]
		if n, lerr := snappy.DecodedLen(b); lerr != nil || n > MaxRowBytes {
			return nil, errAvroBroken
		}
		if out, err = snappy.Decode(out[:cap(out)], b); err == nil && crc32.ChecksumIEEE(out) != sum {
			err = errors.New("wrong checksum")
		}
	case "zstandard":
		out, err = d.zstd.DecodeAll(b, out)
	}
	switch {
	case err != nil:
		return nil, pgerr.Wrap(pgerr.DataCorrupted, err, "could not decompress a block of the Avro file")
	case len(out) > MaxRowBytes:
		return nil, pgerr.Newf(pgerr.ProgramLimitExceeded, "a block of the Avro file is longer than %d bytes", MaxRowBytes)
	}
	n := len(out)
	out = append(out, make([]byte, Pad)...)[:n]
	if !d.texts {
		d.spare = out
	}
	return out, nil
}

// row reads the row at i as row r and returns the index after it, -1 when the data is broken. After an error of a value the others of the row are skipped.
func (d *avroDecoder) row(i, r int) (next int, rowErr error) {
	b := d.data
	for k := range d.steps {
		s := &d.steps[k]
		op := s.op
		if rowErr != nil {
			op = avroSkip
		}
		if s.null >= 0 {
			branch, next := avroLong(b, i)
			if i = next; next < 0 || branch != 0 && branch != 1 {
				return -1, nil
			}
			if int(branch) == s.null {
				if op != avroSkip {
					d.targets[s.target].null(r)
				}
				continue
			}
		}
		switch op {
		case avroSkip:
			switch s.typ.kind {
			case avroInt:
				_, i = avroLong(b, i)
			case avroString:
				_, i = avroLength(b, i)
			default:
				i = avroSkipValue(b, i, s.typ, 0)
			}
		case avroToInt:
			var v int64
			g := &d.targets[s.target]
			if v, i = avroLong(b, i); fits(g.t.OID, v) {
				g.v.Int[r] = v
			} else {
				rowErr = g.number(r, strconv.FormatInt(v, 10))
			}
		case avroToText:
			from, end := avroLength(b, i)
			if i = end; end >= 0 {
				if text := b[from:end]; isText(text) {
					d.targets[s.target].v.Str[r] = view(text)
				} else {
					rowErr = checkText(text)
				}
			}
		case avroToDouble:
			if len(b)-i < wordBytes {
				return -1, nil
			}
			d.targets[s.target].v.Float[r] = math.Float64frombits(binary.LittleEndian.Uint64(b[i:]))
			i += wordBytes
		case avroToMillis, avroToMicros:
			var v int64
			if v, i = avroLong(b, i); op == avroToMillis {
				v = saturatingMul(v, microsPerMs)
			}
			d.targets[s.target].v.Int[r], rowErr = types.TimestampFromUnixMicros(v)
		default:
			i, rowErr = d.value(i, r, s.typ, &d.targets[s.target], 0)
		}
		if i < 0 {
			return -1, nil
		}
	}
	return i, rowErr
}

// saturatingMul is v*by, the nearest number where that does not fit.
func saturatingMul(v, by int64) int64 {
	switch {
	case v > math.MaxInt64/by:
		return math.MaxInt64
	case v < math.MinInt64/by:
		return math.MinInt64
	}
	return v * by
}

// value reads a value that has no fast path.
func (d *avroDecoder) value(i, r int, t *avroType, g *target, depth int) (next int, err error) {
	b := d.data
	switch t.kind {
	case avroUnion:
		branch, i := avroLong(b, i)
		if i < 0 || branch < 0 || branch >= int64(len(t.branches)) || depth > maxAvroDepth {
			return -1, nil
		}
		return d.value(i, r, t.branches[branch], g, depth+1)
	case avroArray, avroMap, avroRecord:
		text, next := avroJSON(nil, b, i, t, depth)
		if next < 0 {
			return -1, nil
		}
		return next, g.json(r, padText(text))
	}
	text, kind, next := avroText(nil, b, i, t)
	switch {
	case next < 0:
		return -1, nil
	case kind == avroWord:
		return next, g.json(r, padText(text))
	case kind == avroRaw && g.t.OID == types.OIDBytea:
		g.v.Str[r] = string(text)
		return next, nil
	case kind == avroRaw:
		text = append([]byte(`\x`), hex.AppendEncode(nil, text)...)
	}
	if t.kind == avroInt && g.how == convertInt { // a date or time as the number that it is written as
		v, _ := avroLong(b, i)
		return next, g.number(r, strconv.FormatInt(v, 10))
	}
	if !isText(text) {
		return next, checkText(text)
	}
	if g.how == convertJSON {
		return next, g.parse(r, string(types.AppendJSONString(nil, view(text))))
	}
	return next, g.text(r, padText(text), &d.memo)
}

// padText is b as a string with readable bytes behind it.
func padText(b []byte) string { return view(append(b, make([]byte, Pad)...)[:len(b)]) }

// avroForm is how a value is told as text.
type avroForm uint8

const (
	avroWord   avroForm = iota // null, true, false, a number: as in JSON
	avroQuoted                 // text
	avroRaw                    // bytes
)

// avroText appends the text of a value that holds no others.
func avroText(dst, b []byte, i int, t *avroType) (out []byte, form avroForm, next int) {
	switch t.kind {
	case avroNull:
		return append(dst, "null"...), avroWord, i
	case avroBoolean:
		if i >= len(b) || b[i] > 1 {
			return dst, 0, -1
		}
		return strconv.AppendBool(dst, b[i] == 1), avroWord, i + 1
	case avroInt:
		v, next := avroLong(b, i)
		if next < 0 {
			return dst, 0, -1
		}
		return avroTime(dst, v, t.logical, next)
	case avroFloat, avroDouble:
		size := wordBytes
		if t.kind == avroFloat {
			size /= 2
		}
		if len(b)-i < size {
			return dst, 0, -1
		}
		var f float64
		if t.kind == avroFloat {
			f = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[i:])))
		} else {
			f = math.Float64frombits(binary.LittleEndian.Uint64(b[i:]))
		}
		dst, form := types.AppendFloat(dst, nil, f, size*8), avroWord
		if math.IsNaN(f) || math.IsInf(f, 0) {
			form = avroQuoted
		}
		return dst, form, i + size
	case avroEnum:
		n, next := avroLong(b, i)
		if next < 0 || n < 0 || n >= int64(len(t.symbols)) {
			return dst, 0, -1
		}
		return append(dst, t.symbols[n]...), avroQuoted, next
	}
	from, end := i, i+t.size
	if t.kind != avroFixed {
		from, end = avroLength(b, i)
	}
	if end < 0 || end > len(b) {
		return dst, 0, -1
	}
	value := b[from:end]
	switch {
	case t.kind == avroString:
		return append(dst, value...), avroQuoted, end
	case t.logical == avroDecimal:
		n, err := avroNumeric(value, t.scale)
		if err != nil {
			return dst, 0, -1
		}
		return n.AppendText(dst), avroWord, end
	case t.logical == avroUUID:
		return types.Datum{Type: types.UUID, Str: string(value)}.AppendText(dst, nil), avroQuoted, end
	}
	return append(dst, value...), avroRaw, end
}

// avroTime appends a number, or the date or time that it stands for.
func avroTime(dst []byte, v int64, logical avroLogical, next int) ([]byte, avroForm, int) {
	var err error
	switch logical {
	case avroDate:
		if v, err = types.DateFromUnixDays(v); err == nil {
			return types.AppendDate(dst, v), avroQuoted, next
		}
	case avroTimeMillis, avroTimeMicros:
		if logical == avroTimeMillis {
			v = saturatingMul(v, microsPerMs)
		}
		if v >= 0 && v < 24*microsPerHour {
			return types.AppendTime(dst, v), avroQuoted, next
		}
	case avroTimestampMillis, avroTimestampMicros, avroTimestampNanos:
		switch logical {
		case avroTimestampMillis:
			v = saturatingMul(v, microsPerMs)
		case avroTimestampNanos:
			v = (v - (v%nanosPerUs+nanosPerUs)%nanosPerUs) / nanosPerUs
		}
		if v, err = types.TimestampFromUnixMicros(v); err == nil {
			return append(types.AppendTimestamp(dst, v), 'Z'), avroQuoted, next
		}
	}
	return strconv.AppendInt(dst, v, 10), avroWord, next
}

// avroNumeric is a decimal, whose unscaled value is a big-endian number in two's complement.
func avroNumeric(b []byte, scale int) (types.Numeric, error) {
	if len(b) <= maxFastBytes {
		v := int64(0)
		for k, c := range b {
			if v = v<<8 | int64(c); k == 0 {
				v = int64(int8(c))
			}
		}
		return types.Numeric{Coef: v, Scale: int16(scale)}, nil
	}
	n := new(big.Int).SetBytes(b)
	if b[0] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(len(b))*8))
	}
	return types.NewNumeric(n, scale)
}

// avroJSON appends a value as JSON; bytes are told in base64. next is -1 when the data is broken.
func avroJSON(dst, b []byte, i int, t *avroType, depth int) (out []byte, next int) {
	if depth > maxAvroDepth {
		return dst, -1
	}
	switch t.kind {
	case avroUnion:
		branch, i := avroLong(b, i)
		if i < 0 || branch < 0 || branch >= int64(len(t.branches)) {
			return dst, -1
		}
		return avroJSON(dst, b, i, t.branches[branch], depth+1)
	case avroRecord:
		dst = append(dst, '{')
		for k, f := range t.fields {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = append(types.AppendJSONString(dst, f.name), ':')
			if dst, i = avroJSON(dst, b, i, f.typ, depth+1); i < 0 {
				return dst, -1
			}
		}
		return append(dst, '}'), i
	case avroArray, avroMap:
		open, end := byte('['), byte(']')
		if t.kind == avroMap {
			open, end = '{', '}'
		}
		dst = append(dst, open)
		first := true
		for {
			n, next := avroCount(b, i)
			if i = next; next < 0 {
				return dst, -1
			}
			if n == 0 {
				return append(dst, end), i
			}
			for range n {
				if !first {
					dst = append(dst, ',')
				}
				first = false
				if t.kind == avroMap {
					from, to := avroLength(b, i)
					if to < 0 || !isText(b[from:to]) {
						return dst, -1
					}
					dst = append(types.AppendJSONString(dst, view(b[from:to])), ':')
					i = to
				}
				before := i
				if dst, i = avroJSON(dst, b, i, t.elem, depth+1); i < 0 || i == before && len(dst) > MaxRowBytes {
					return dst, -1
				}
			}
		}
	}
	at := len(dst)
	dst, form, next := avroText(dst, b, i, t)
	switch {
	case next < 0:
		return dst, -1
	case form == avroQuoted:
		text := string(dst[at:])
		if !isText(dst[at:]) {
			return dst, -1
		}
		dst = types.AppendJSONString(dst[:at], text)
	case form == avroRaw:
		raw := bytes.Clone(dst[at:])
		dst = append(base64.StdEncoding.AppendEncode(append(dst[:at], '"'), raw), '"')
	}
	return dst, next
}

// avroCount reads how many elements follow in an array or a map.
func avroCount(b []byte, i int) (n int64, next int) {
	if n, i = avroLong(b, i); i >= 0 && n < 0 {
		n = -n
		_, i = avroLong(b, i) // their size in bytes
	}
	if n < 0 || n > MaxRowBytes {
		return 0, -1
	}
	return n, i
}

// avroSkipValue returns the index after the value at i, -1 when the data is broken.
func avroSkipValue(b []byte, i int, t *avroType, depth int) int {
	if depth > maxAvroDepth {
		return -1
	}
	switch t.kind {
	case avroNull:
		return i
	case avroInt, avroEnum:
		_, i = avroLong(b, i)
		return i
	case avroString, avroBytes:
		_, i = avroLength(b, i)
		return i
	case avroBoolean:
		i++
	case avroFloat:
		i += wordBytes / 2
	case avroDouble:
		i += wordBytes
	case avroFixed:
		i += t.size
	case avroUnion:
		branch, next := avroLong(b, i)
		if next < 0 || branch < 0 || branch >= int64(len(t.branches)) {
			return -1
		}
		return avroSkipValue(b, next, t.branches[branch], depth+1)
	case avroRecord:
		for _, f := range t.fields {
			if i = avroSkipValue(b, i, f.typ, depth+1); i < 0 {
				return -1
			}
		}
		return i
	case avroArray, avroMap:
		for {
			n, next := avroCount(b, i)
			if i = next; next < 0 || n == 0 {
				return i
			}
			for range n {
				if t.kind == avroMap {
					if _, i = avroLength(b, i); i < 0 {
						return -1
					}
				}
				if i = avroSkipValue(b, i, t.elem, depth+1); i < 0 {
					return -1
				}
			}
		}
	}
	if i > len(b) {
		return -1
	}
	return i
}
