package pgwire

import (
	"encoding/binary"
	"io"
	"strings"

	"github.com/jackc/pgproto3/v2"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// copyReader reads the messages of COPY … FROM STDIN until CopyDone, CopyFail or an error.
type copyReader struct {
	w       *writer
	rest    []byte // unread part of pending
	pending []byte // body of the current message; lies in the reader's buffer and is not consumed yet
	held    bool   // there is a current message
	err     error
}

// CopyIn implements ResultWriter.
func (w *writer) CopyIn(format Format, ncols int) (CopyReader, error) {
	if err := w.beginCopy(); err != nil {
		return nil, err
	}
	if err := w.send(&pgproto3.CopyInResponse{OverallFormat: byte(format), ColumnFormatCodes: columnFormats(format, ncols)}); err != nil {
		return nil, err
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	if w.copyIn != nil {
		w.copyIn.close()
	}
	w.copyIn = &copyReader{w: w}
	return w.copyIn, nil
}

func (w *writer) beginCopy() error {
	if w.state != resultOpen {
		return misuse("COPY out of place")
	}
	return nil
}

func columnFormats(format Format, ncols int) []uint16 {
	fs := make([]uint16, ncols)
	for i := range fs {
		fs[i] = uint16(format)
	}
	return fs
}

// CopyOut implements ResultWriter.
func (w *writer) CopyOut(format Format, ncols int) error {
	if err := w.beginCopy(); err != nil {
		return err
	}
	return w.send(&pgproto3.CopyOutResponse{OverallFormat: byte(format), ColumnFormatCodes: columnFormats(format, ncols)})
}

// CopyData implements ResultWriter.
func (w *writer) CopyData(b []byte) error {
	if w.state != resultOpen {
		return misuse("CopyData out of place")
	}
	if len(b) > maxRowBytes {
		return pgerr.Newf(pgerr.ProgramLimitExceeded, "a row of %d bytes exceeds the limit of %d bytes", len(b), maxRowBytes)
	}
	w.out = append(w.out, 'd')
	w.out = binary.BigEndian.AppendUint32(w.out, uint32(len(b)+4))
	w.out = append(w.out, b...)
	return w.sent()
}

// CopyDone implements ResultWriter.
func (w *writer) CopyDone() error {
	if w.state != resultOpen {
		return misuse("CopyDone out of place")
	}
	return w.sendEmpty('c')
}

// Read implements io.Reader.
func (c *copyReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(c.rest) == 0 {
		if err := c.advance(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Next implements CopyReader.
func (c *copyReader) Next() ([]byte, error) {
	for len(c.rest) == 0 {
		if err := c.advance(); err != nil {
			return nil, err
		}
	}
	b := c.rest
	c.rest = nil
	return b, nil
}

// advance goes to the next CopyData.
func (c *copyReader) advance() error {
	if c.err == nil {
		c.err = c.receive()
	}
	return c.err
}

func (c *copyReader) receive() error {
	if c.w.copyIn != c {
		return misuse("COPY data read after the statement")
	}
	rd := c.w.rd
	c.close()
	for {
		typ, body, err := rd.await(maxMessageBytes, false)
		if err != nil {
			return lostInput(err)
		}
		switch typ {
		case 'd':
			c.rest, c.pending, c.held = body, body, true
			return nil
		case 'H', 'S':
			// Clients may send these without knowing that the statement is a COPY; PostgreSQL ignores them.
			rd.discard(body)
		case 'c':
			rd.discard(body)
			return io.EOF
		case 'f':
			reason, _, _ := strings.Cut(string(body), "\x00")
			rd.discard(body)
			return pgerr.Newf(pgerr.QueryCanceled, "COPY from stdin failed: %s", cleanText(reason))
		default:
			rd.discard(body)
			return protocolViolation("unexpected message type 0x%02X during COPY from stdin", typ)
		}
	}
}

// close consumes the message that is lent out. The rest of the data is discarded by the connection, message by message.
func (c *copyReader) close() {
	if c.held {
		c.w.rd.discard(c.pending)
		c.held, c.rest, c.pending = false, nil, nil
	}
}
