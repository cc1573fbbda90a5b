package pgcopy

import (
	"bytes"
	"encoding/binary"

	"github.com/streamdb/streamdb/types"
)

// Encoder writes rows. It holds no rows itself: every method appends to dst.
type Encoder struct {
	opts   Options
	cols   types.Schema
	format *types.Format
	field  []byte // reused
}

// NewEncoder returns an encoder of rows with the given columns.
func NewEncoder(opts Options, cols types.Schema, format *types.Format) *Encoder {
	return &Encoder{opts: opts, cols: cols, format: format}
}

// AppendHeader appends what comes before the rows: the signature of binary data, the names of the columns if asked for, or nothing.
func (e *Encoder) AppendHeader(dst []byte) []byte {
	switch {
	case e.opts.Format == Binary:
		dst = append(dst, signature...)
		return append(dst, 0, 0, 0, 0, 0, 0, 0, 0) // flags, length of the extension
	case e.opts.Header == HeaderOff:
		return dst
	}
	for i := range e.cols {
		if i > 0 {
			dst = append(dst, e.opts.Delimiter)
		}
		dst = e.appendField(dst, []byte(e.cols[i].Name), false)
	}
	return append(dst, '\n')
}

// AppendRow appends physical row r of c.
func (e *Encoder) AppendRow(dst []byte, c *types.Chunk, r int) []byte {
	if e.opts.Format == Binary {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(c.Cols)))
		for _, v := range c.Cols {
			if v.IsNull(r) {
				dst = append(dst, 0xff, 0xff, 0xff, 0xff)
				continue
			}
			at := len(dst)
			dst = types.AppendBinary(append(dst, 0, 0, 0, 0), v, r)
			binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
		}
		return dst
	}
	for i, v := range c.Cols {
		if i > 0 {
			dst = append(dst, e.opts.Delimiter)
		}
		if v.IsNull(r) {
			dst = append(dst, e.opts.Null...)
			continue
		}
		e.field = types.AppendText(e.field[:0], e.format, v, r)
		dst = e.appendField(dst, e.field, flag(e.opts.ForceQuote, i))
	}
	return append(dst, '\n')
}

// AppendTrailer appends what comes after the rows.
func (e *Encoder) AppendTrailer(dst []byte) []byte {
	if e.opts.Format == Binary {
		return append(dst, 0xff, 0xff)
	}
	return dst
}

func (e *Encoder) appendField(dst, field []byte, force bool) []byte {
	if e.opts.Format == CSV {
		return e.appendCSV(dst, field, force)
	}
	from := 0
	for i, c := range field {
		if c >= 0x20 && c != '\\' && c != e.opts.Delimiter {
			continue
		}
		var esc byte
		switch c {
		case '\b':
			esc = 'b'
		case '\f':
			esc = 'f'
		case '\n':
			esc = 'n'
		case '\r':
			esc = 'r'
		case '\t':
			esc = 't'
		case '\v':
			esc = 'v'
		case '\\', e.opts.Delimiter:
			esc = c
		default:
			continue
		}
		dst = append(append(dst, field[from:i]...), '\\', esc)
		from = i + 1
	}
	return append(dst, field[from:]...)
}

func (e *Encoder) appendCSV(dst, field []byte, force bool) []byte {
	o := &e.opts
	// A lone \. would end the data.
	quote := force || string(field) == o.Null || len(e.cols) == 1 && string(field) == endMarker
	if !quote {
		quote = bytes.IndexByte(field, o.Delimiter) >= 0 || bytes.IndexByte(field, o.Quote) >= 0 || bytes.ContainsAny(field, "\r\n")
	}
	if !quote {
		return append(dst, field...)
	}
	dst = append(dst, o.Quote)
	for _, c := range field {
		if c == o.Quote || c == o.Escape {
			dst = append(dst, o.Escape)
		}
		dst = append(dst, c)
	}
	return append(dst, o.Quote)
}
