package format

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// OpColumn is the column, or the member, of encoded rows of upsert sinks that tells what became of a row: OpUpsert or OpDelete.
const (
	OpColumn = "__op"
	OpUpsert = "U"
	OpDelete = "D"
)

// Encoder turns rows into lines of text. It is used by one goroutine.
type Encoder interface {
	// AppendHeader appends what comes before the first row of a file.
	AppendHeader(dst []byte) []byte
	// AppendRows appends the rows of c as they are told to a sink of the encoder's mode (connector.SinkWriter.Write), and returns how many lines that are.
	AppendRows(dst []byte, c *types.Chunk) (out []byte, lines int, err error)
}

// EncoderConfig says how to encode.
type EncoderConfig struct {
	Encode  string
	Options map[string]string
	Schema  types.Schema
	Mode    connector.SinkMode
	Text    *types.Format
}

// NewEncoder returns an encoder.
func NewEncoder(cfg *EncoderConfig) (Encoder, error) {
	for _, c := range cfg.Schema {
		if err := decodable(c); err != nil {
			e := pgerr.Newf(pgerr.FeatureNotSupported, "column \"%s\" of type %s cannot be written by a sink", c.Name, c.Type)
			e.Column = c.Name
			return nil, e
		}
	}
	switch strings.ToUpper(cfg.Encode) {
	case EncodeJSON:
		return newJSONEncoder(cfg), nil
	case EncodeCSV:
		if cfg.Mode == connector.Debezium {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "FORMAT DEBEZIUM ENCODE CSV is not supported").WithHint("Use ENCODE JSON.")
		}
		return newCSVEncoder(cfg)
	}
	return nil, pgerr.Newf(pgerr.FeatureNotSupported, "ENCODE %s is not supported", cfg.Encode).WithHint("Supported encodings: %s, %s.", EncodeJSON, EncodeCSV)
}

// jsonEncoder writes an object per line. In Debezium mode: {"before": …, "after": …, "op": "c" | "u" | "d"}.
type jsonEncoder struct {
	mode  connector.SinkMode
	text  *types.Format
	names [][]byte // quoted, with the colon
}

func newJSONEncoder(cfg *EncoderConfig) *jsonEncoder {
	e := &jsonEncoder{mode: cfg.Mode, text: cfg.Text}
	for _, c := range cfg.Schema {
		e.names = append(e.names, append(types.AppendJSONString(nil, c.Name), ':'))
	}
	return e
}

// AppendHeader implements Encoder.
func (*jsonEncoder) AppendHeader(dst []byte) []byte { return dst }

// AppendRows implements Encoder.
func (e *jsonEncoder) AppendRows(dst []byte, c *types.Chunk) (_ []byte, lines int, err error) {
	n := c.Rows()
	for i := 0; i < n; i++ {
		r := c.Row(i)
		gone := c.Weight(r) < 0
		switch {
		case e.mode == connector.Debezium:
			dst = append(dst, `{"before":`...)
			op := byte('c')
			if gone {
				if dst, err = e.object(dst, c, r, ""); err != nil {
					return dst, lines, err
				}
				op = 'd'
				if i+1 < n && c.Weight(c.Row(i+1)) > 0 {
					i++
					r, gone, op = c.Row(i), false, 'u'
				}
			} else {
				dst = append(dst, "null"...)
			}
			dst = append(dst, `,"after":`...)
			if gone {
				dst = append(dst, "null"...)
			} else if dst, err = e.object(dst, c, r, ""); err != nil {
				return dst, lines, err
			}
			dst = append(append(append(dst, `,"op":"`...), op), `"}`...)
		case e.mode == connector.Upsert && gone:
			dst, err = e.object(dst, c, r, OpDelete)
		case e.mode == connector.Upsert:
			dst, err = e.object(dst, c, r, OpUpsert)
		default:
			dst, err = e.object(dst, c, r, "")
		}
		if err != nil {
			return dst, lines, err
		}
		dst = append(dst, '\n')
		lines++
	}
	return dst, lines, nil
}

func (e *jsonEncoder) object(dst []byte, c *types.Chunk, r int, op string) ([]byte, error) {
	dst = append(dst, '{')
	if op != "" {
		dst = append(append(append(dst, `"`+OpColumn+`":"`...), op...), '"')
	}
	for i, v := range c.Cols {
		if i > 0 || op != "" {
			dst = append(dst, ',')
		}
		dst = append(dst, e.names[i]...)
		switch {
		case v.IsNull(r):
			dst = append(dst, "null"...)
			continue
		case v.Type.OID == types.OIDInt8 || v.Type.OID == types.OIDInt4:
			dst = strconv.AppendInt(dst, v.Int[r], 10)
			continue
		case v.Type.OID == types.OIDText || v.Type.OID == types.OIDVarchar:
			dst = types.AppendJSONString(dst, v.Str[r])
			continue
		}
		at := len(dst)
		var err error
		if dst, err = functions.AppendJSON(dst, e.text, v.Get(r), false); err != nil {
			return dst, err
		}
		if v.Type.OID == types.OIDJSON { // it may hold line ends between its tokens, which are no more than blanks
			for k := at; k < len(dst); k++ {
				if dst[k] == '\n' || dst[k] == '\r' {
					dst[k] = ' '
				}
			}
		}
	}
	return append(dst, '}'), nil
}

// csvEncoder writes CSV as the decoder reads it. Upserts have OpColumn first.
type csvEncoder struct {
	mode   connector.SinkMode
	text   *types.Format
	schema types.Schema
	csv    *csvDecoder // its options
	field  []byte
}

func newCSVEncoder(cfg *EncoderConfig) (*csvEncoder, error) {
	d, err := newCSV(&Config{Options: cfg.Options})
	if err != nil {
		return nil, err
	}
	return &csvEncoder{mode: cfg.Mode, text: cfg.Text, schema: cfg.Schema, csv: d}, nil
}

// AppendHeader implements Encoder.
func (e *csvEncoder) AppendHeader(dst []byte) []byte {
	if !e.csv.header {
		return dst
	}
	if e.mode == connector.Upsert {
		dst = append(append(dst, OpColumn...), e.csv.delim)
	}
	for i, c := range e.schema {
		if i > 0 {
			dst = append(dst, e.csv.delim)
		}
		dst = e.append(dst, []byte(c.Name))
	}
	return append(dst, '\n')
}

// AppendRows implements Encoder.
func (e *csvEncoder) AppendRows(dst []byte, c *types.Chunk) ([]byte, int, error) {
	for i := range c.Rows() {
		r := c.Row(i)
		if e.mode == connector.Upsert {
			op := OpUpsert
			if c.Weight(r) < 0 {
				op = OpDelete
			}
			dst = append(append(dst, op...), e.csv.delim)
		}
		for k, v := range c.Cols {
			if k > 0 {
				dst = append(dst, e.csv.delim)
			}
			if v.IsNull(r) {
				dst = append(dst, e.csv.null...)
				continue
			}
			e.field = types.AppendText(e.field[:0], e.text, v, r)
			dst = e.append(dst, e.field)
		}
		dst = append(dst, '\n')
	}
	return dst, c.Rows(), nil
}

// append appends a field, in quotes where it would not be read back otherwise. A row of one empty field would be a blank line.
func (e *csvEncoder) append(dst, field []byte) []byte {
	plain := string(field) != e.csv.null && len(field) > 0 && bytes.IndexByte(field, e.csv.delim) < 0 && bytes.IndexByte(field, e.csv.quote) < 0 && !bytes.ContainsAny(field, "\r\n")
	if plain {
		return append(dst, field...)
	}
	dst = append(dst, e.csv.quote)
	for _, b := range field {
		if b == e.csv.quote {
			dst = append(dst, b)
		}
		dst = append(dst, b)
	}
	return append(dst, e.csv.quote)
}
