package pgcopy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

const (
	// blockBytes is how much of the input is made into one string, which the fields are views of.
	blockBytes = 64 << 10
	// maxRowBytes bounds a row of the input.
	maxRowBytes = 256 << 20
	// maxShownBytes bounds the piece of input that an error's context shows.
	maxShownBytes = 100
)

// Source gives the input piece by piece, io.EOF at its end. A piece is lent until the next call.
type Source interface {
	Next() ([]byte, error)
}

// Decoder reads rows. Its strings are views of blocks of the input, so a chunk keeps the blocks of its rows alive and nothing else.
type Decoder struct {
	ctx    context.Context //nolint:containedctx // the statement's
	src    Source
	table  string
	opts   Options
	cols   types.Schema
	format *types.Format

	buf     []byte // gathers a block
	text    string // the block; text[pos:] is unread
	pos     int
	eof     bool // the source has ended
	started bool // what precedes the rows is read
	done    bool // the end of the data is read

	eol    string // how lines end; "" until the first has
	line   int64  // of the row being read, from 1
	raw    string // its text
	whole  bool   // raw is read
	column int    // being read, -1: none
	value  string // its text
	null   bool   // it is null

	fields []field
	quoted []byte // builds fields that are not a part of the input as it is

	lines []int64  // of the rows of the chunk read last
	raws  []string // their texts
}

// field is a value of a line.
type field struct {
	s    string
	null bool
}

// NewDecoder returns a decoder of rows with the given columns. table is what errors name as their place.
func NewDecoder(ctx context.Context, src Source, table string, opts Options, cols types.Schema, format *types.Format) *Decoder {
	return &Decoder{ctx: ctx, src: src, table: table, opts: opts, cols: cols, format: format, column: -1}
}

// Read appends rows to c until it is full, and returns io.EOF when there were none any more. Rows before a bad one are lost with it.
func (d *Decoder) Read(c *types.Chunk) error {
	d.lines, d.raws = d.lines[:0], d.raws[:0]
	for c.N < types.MaxChunkRows {
		more, err := d.row(c)
		if err != nil {
			return d.placed(err)
		}
		if !more {
			break
		}
		c.N++
		d.lines, d.raws = append(d.lines, d.line), append(d.raws, d.raw)
	}
	if c.N == 0 {
		return io.EOF
	}
	return nil
}

// Drain reads the rest of the input, which follows the end of the data.
func (d *Decoder) Drain() error {
	for !d.eof {
		if err := d.next(); err != nil {
			return err
		}
		d.buf = d.buf[:0]
	}
	return nil
}

func (d *Decoder) row(c *types.Chunk) (bool, error) {
	d.column, d.raw, d.whole = -1, "", false
	if d.done {
		return false, nil
	}
	if d.opts.Format == Binary {
		return d.binaryRow(c)
	}
	if !d.started {
		d.started = true
		if err := d.header(); err != nil || d.done {
			return false, err
		}
	}
	line, ok, err := d.readLine()
	if err != nil || !ok {
		return false, err
	}
	if err := d.split(line); err != nil {
		return false, err
	}
	switch {
	case len(d.cols) == 0 && len(d.fields) == 1 && line == "":
		return true, nil
	case len(d.fields) > len(d.cols):
		return false, bad("extra data after last expected column")
	}
	for i := range d.cols {
		if i == len(d.fields) {
			d.column = -1
			return false, bad("missing data for column %q", d.cols[i].Name)
		}
		f := &d.fields[i]
		d.column, d.value, d.null = i, f.s, f.null
		v := c.Cols[i]
		switch {
		case f.null:
			v.AppendNull()
			continue
		case v.Type == types.Text:
			v.AppendDatum(types.Datum{Type: types.Text, Str: f.s})
			continue
		}
		dt, err := types.ParseText(d.format, v.Type, f.s)
		if err != nil {
			return false, err
		}
		v.AppendDatum(dt)
	}
	d.column = -1
	return true, nil
}

// header reads the line of column names, and compares them when asked to.
func (d *Decoder) header() error {
	if d.opts.Header == HeaderOff {
		return nil
	}
	line, _, err := d.readLine()
	if err != nil || d.opts.Header != HeaderMatch {
		return err
	}
	d.whole = true // a line that is missing is an empty one
	if err := d.split(line); err != nil {
		return err
	}
	if len(d.fields) != len(d.cols) {
		return bad("wrong number of fields in header line: got %d, expected %d", len(d.fields), len(d.cols))
	}
	for i, f := range d.fields {
		switch name := d.cols[i].Name; {
		case f.null:
			return bad("column name mismatch in header line field %d: got null value (%q), expected %q", i+1, d.opts.Null, name)
		case f.s != name:
			return bad("column name mismatch in header line field %d: got %q, expected %q", i+1, f.s, name)
		}
	}
	return nil
}

func bad(format string, args ...any) *pgerr.Error {
	return pgerr.Newf(pgerr.BadCopyFileFormat, format, args...)
}

// placed gives an error the place in the input where it arose.
func (d *Decoder) placed(err error) error {
	var e *pgerr.Error
	if !errors.As(err, &e) || d.line == 0 {
		return err
	}
	where := fmt.Sprintf("COPY %s, line %d", d.table, d.line)
	switch {
	case d.column >= 0 && d.opts.Format == Binary:
		where += ", column " + d.cols[d.column].Name
	case d.column >= 0 && d.null:
		where += fmt.Sprintf(", column %s: null input", d.cols[d.column].Name)
	case d.column >= 0:
		where += fmt.Sprintf(", column %s: \"%s\"", d.cols[d.column].Name, shown(d.value))
	case d.whole:
		where += fmt.Sprintf(": \"%s\"", shown(d.raw))
	}
	return e.Within(where)
}

// Where names the place of a row of the chunk read last; out of its range the table alone is named.
func (d *Decoder) Where(row int) string {
	if row < 0 || row >= len(d.lines) {
		return "COPY " + d.table
	}
	where := fmt.Sprintf("COPY %s, line %d", d.table, d.lines[row])
	if d.opts.Format != Binary {
		where += fmt.Sprintf(": \"%s\"", shown(d.raws[row]))
	}
	return where
}

func shown(s string) string {
	if len(s) <= maxShownBytes {
		return s
	}
	n := maxShownBytes
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "..."
}

// next appends the source's next piece to the buffer.
func (d *Decoder) next() error {
	if d.ctx.Err() != nil {
		return context.Cause(d.ctx)
	}
	b, err := d.src.Next()
	if errors.Is(err, io.EOF) {
		d.eof = true
		return nil
	}
	d.buf = append(d.buf, b...)
	return err
}

// refill makes a longer block that begins with what is unread; at least twice that, so that a long row is not looked at too often.
func (d *Decoder) refill() error {
	rest := d.text[d.pos:]
	if len(rest) > maxRowBytes {
		return pgerr.Newf(pgerr.ProgramLimitExceeded, "a row of COPY data exceeds the limit of %d bytes", maxRowBytes)
	}
	d.buf = append(d.buf[:0], rest...)
	for want := max(blockBytes, 2*len(rest)); len(d.buf) < want && !d.eof; {
		if err := d.next(); err != nil {
			return err
		}
	}
	d.text, d.pos = string(d.buf), 0
	return nil
}

// readLine returns the next line without its end, and false at the end of the data.
func (d *Decoder) readLine() (string, bool, error) {
	d.line++
	first := d.line
	for {
		n, end, err := d.scan(d.text[d.pos:])
		if err != nil {
			return "", false, err
		}
		if n < 0 && !d.eof {
			d.line = first
			if err := d.refill(); err != nil {
				return "", false, err
			}
			continue
		}
		if n < 0 {
			n, end = len(d.text)-d.pos, len(d.text)-d.pos
			if n == 0 {
				d.done = true
				return "", false, nil
			}
		}
		line := d.text[d.pos : d.pos+n]
		d.pos += end
		if line == endMarker {
			d.done = true
			return "", false, nil
		}
		if err := pgerr.CheckText(line); err != nil {
			return "", false, err
		}
		d.raw, d.whole = line, true
		return line, true, nil
	}
}
