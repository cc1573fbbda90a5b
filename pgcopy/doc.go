// Package pgcopy reads and writes the three formats of PostgreSQL's COPY: text, csv and binary. A Decoder turns the bytes of a client into
// chunks, an Encoder turns chunks into bytes. Neither knows tables, sessions or the wire: who calls them gives columns and a byte source.
package pgcopy

// Format is one of the formats of COPY.
type Format uint8

// The formats of COPY.
const (
	Text Format = iota
	CSV
	Binary
)

// Header says what is done with a first line of column names.
type Header uint8

// The values of the option HEADER.
const (
	HeaderOff Header = iota
	HeaderOn
	HeaderMatch // the names must be those of the columns
)

// Options are the options of a COPY statement, checked and complete.
type Options struct {
	Format    Format
	Delimiter byte
	Null      string
	Header    Header
	Quote     byte // csv
	Escape    byte // csv

	// Per column; nil is none.
	ForceQuote   []bool
	ForceNotNull []bool
	ForceNull    []bool
}

// Defaults returns the options of a format that are used when a statement names none.
func Defaults(f Format) Options {
	if f == CSV {
		return Options{Format: f, Delimiter: ',', Quote: '"', Escape: '"'}
	}
	return Options{Format: f, Delimiter: '\t', Null: `\N`}
}

// endMarker is a line that ends the data in text form.
const endMarker = `\.`

// signature begins binary data.
const signature = "PGCOPY\n\xff\r\n\x00"

func flag(set []bool, i int) bool { return set != nil && set[i] }
