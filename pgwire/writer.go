package pgwire

import (
	"bytes"
	"encoding/binary"
	"net"

	"github.com/jackc/pgproto3/v2"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

const (
	// flushBytes is how much output gathers before it is sent.
	flushBytes = 64 << 10
	// outputBufferBytes is the size of a connection's output buffer when it has little to say.
	outputBufferBytes = 8 << 10
	// maxRowBytes caps an encoded row (PostgreSQL's limit of an allocation).
	maxRowBytes = 1<<30 - 1
	// maxColumns caps the columns of a result: the count is an int16.
	maxColumns = 1<<15 - 1
)

// resultState says what a ResultWriter call may come next.
type resultState uint8

const (
	resultClosed   resultState = iota // no call of the session is running that may write results
	resultOpen                        // between results
	resultRows                        // RowDescription was given
	resultComplete                    // in Execute: CommandComplete, EmptyQuery or Suspended was written
)

// writer is a connection's output buffer and its ResultWriter. The first failed write is kept: from then on nothing is sent.
type writer struct {
	nc  net.Conn
	rd  *reader // for CopyIn
	out []byte
	err error

	state  resultState
	simple bool // SimpleQuery: RowDescription is sent, many results may follow each other
	fields []FieldDescription
	format *types.Format
	sess   Session
	copyIn *copyReader // of the running call; nil: none

	reported map[string]string // run-time parameters as the client knows them
	changed  []Param           // to be reported before the next ReadyForQuery
}

var _ ResultWriter = (*writer)(nil)

func newWriter(nc net.Conn, rd *reader) *writer {
	return &writer{nc: nc, rd: rd, out: make([]byte, 0, outputBufferBytes), reported: map[string]string{}}
}

// SyncFollows implements Lookahead.
func (w *writer) SyncFollows() bool {
	return !w.simple && w.rd.buffered() > 0 && w.rd.buf[w.rd.r] == 'S'
}

// begin lets the session write results, end takes that back.
func (w *writer) begin(simple bool) { w.state, w.simple = resultOpen, simple }

func (w *writer) end() {
	w.state = resultClosed
	if w.copyIn != nil {
		w.copyIn.close()
		w.copyIn = nil
	}
	w.fields, w.format = nil, nil
}

// Flush implements ResultWriter.
func (w *writer) Flush() error {
	if w.err == nil && len(w.out) > 0 {
		if _, err := w.nc.Write(w.out); err != nil {
			w.err = causeClientGone(err)
		}
	}
	if cap(w.out) > maxIdleBufferBytes {
		w.out = make([]byte, 0, outputBufferBytes)
	}
	w.out = w.out[:0]
	return w.err
}

// sent is called after a message was appended.
func (w *writer) sent() error {
	if len(w.out) >= flushBytes {
		return w.Flush()
	}
	return w.err
}

// send appends a message.
func (w *writer) send(m pgproto3.BackendMessage) error {
	out, err := m.Encode(w.out)
	if err != nil {
		return pgerr.Wrap(pgerr.ProgramLimitExceeded, err, "cannot send message")
	}
	w.out = out
	return w.sent()
}

// sendEmpty appends a message that has no body.
func (w *writer) sendEmpty(typ byte) error {
	w.out = append(w.out, typ, 0, 0, 0, 4)
	return w.sent()
}

// Notice implements Notifier.
func (w *writer) Notice(e *pgerr.Error) error {
	if err := w.send((*pgproto3.NoticeResponse)(errorResponse(e, "", severityNotice))); err != nil {
		return err
	}
	return w.Flush()
}

// ParameterStatus implements Notifier.
func (w *writer) ParameterStatus(name, value string) error {
	for i := range w.changed {
		if w.changed[i].Name == name {
			w.changed[i].Value = value
			return w.err
		}
	}
	w.changed = append(w.changed, Param{name, value})
	return w.err
}

// sendParameters reports the run-time parameters that have changed.
func (w *writer) sendParameters() error {
	for _, p := range w.changed {
		if old, ok := w.reported[p.Name]; ok && old == p.Value {
			continue
		}
		w.reported[p.Name] = p.Value
		if err := w.send(&pgproto3.ParameterStatus{Name: cleanText(p.Name), Value: cleanText(p.Value)}); err != nil {
			return err
		}
	}
	w.changed = w.changed[:0]
	return w.err
}

// sendError appends an ErrorResponse and sends all there is: a client that sent Flush or nothing waits for it.
func (w *writer) sendError(e *pgerr.Error, text string) error {
	if err := w.send(errorResponse(e, text, severityError)); err != nil {
		return err
	}
	return w.Flush()
}

// misuse reports a session that breaks the contract of ResultWriter.
func misuse(what string) error {
	return pgerr.Newf(pgerr.InternalError, "result writer: %s", what)
}

// RowDescription implements ResultWriter.
func (w *writer) RowDescription(fields []FieldDescription) error {
	if w.state != resultOpen {
		return misuse("RowDescription out of place")
	}
	w.state, w.fields, w.format = resultRows, fields, nil
	for i := range fields {
		if fields[i].Format == FormatText {
			w.format = w.sess.Format()
			break
		}
	}
	if !w.simple {
		return w.err
	}
	return w.describeRows(fields, false)
}

// describeRows appends a RowDescription; text says that the formats are not bound yet.
func (w *writer) describeRows(fields []FieldDescription, text bool) error {
	if len(fields) > maxColumns {
		return pgerr.Newf(pgerr.TooManyColumns, "a result may have at most %d columns", maxColumns)
	}
	out := append(w.out, 'T', 0, 0, 0, 0)
	start := len(w.out) + 1
	out = binary.BigEndian.AppendUint16(out, uint16(len(fields)))
	for i := range fields {
		f := &fields[i]
		out = append(out, f.Name...)
		out = append(out, 0)
		out = binary.BigEndian.AppendUint32(out, f.TableOID)
		out = binary.BigEndian.AppendUint16(out, uint16(f.Attr))
		out = binary.BigEndian.AppendUint32(out, uint32(f.Type.OID))
		out = binary.BigEndian.AppendUint16(out, uint16(typeSize(f.Type.OID)))
		out = binary.BigEndian.AppendUint32(out, uint32(f.Type.Mod))
		format := f.Format
		if text {
			format = FormatText
		}
		out = binary.BigEndian.AppendUint16(out, uint16(format))
	}
	binary.BigEndian.PutUint32(out[start:], uint32(len(out)-start))
	w.out = out
	return w.sent()
}

// Rows implements ResultWriter.
func (w *writer) Rows(c *types.Chunk) error {
	if w.state != resultRows {
		return misuse("Rows without RowDescription")
	}
	if len(c.Cols) != len(w.fields) {
		return misuse("Rows with another number of columns than RowDescription")
	}
	for i := range c.Rows() {
		r := c.Row(i)
		n := c.Weight(r)
		if n < 0 {
			return misuse("a row of negative weight")
		}
		if n == 0 {
			continue
		}
		start := len(w.out)
		if err := w.row(c, r); err != nil {
			w.out = w.out[:start]
			return err
		}
		if n == 1 {
			if err := w.sent(); err != nil {
				return err
			}
			continue
		}
		if err := w.repeat(start, n); err != nil {
			return err
		}
	}
	return w.err
}

// row appends physical row r as DataRow.
func (w *writer) row(c *types.Chunk, r int) error {
	out := append(w.out, 'D', 0, 0, 0, 0)
	start := len(w.out) + 1
	out = binary.BigEndian.AppendUint16(out, uint16(len(c.Cols)))
	for i, v := range c.Cols {
		if v.IsNull(r) {
			out = append(out, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		at := len(out)
		out = append(out, 0, 0, 0, 0)
		if w.fields[i].Format == FormatBinary {
			out = types.AppendBinary(out, v, r)
		} else {
			out = types.AppendText(out, w.format, v, r)
		}
		binary.BigEndian.PutUint32(out[at:], uint32(len(out)-at-4))
	}
	size := len(out) - start
	w.out = out
	if size > maxRowBytes {
		return pgerr.Newf(pgerr.ProgramLimitExceeded, "a row of %d bytes exceeds the limit of %d bytes", size, maxRowBytes)
	}
	binary.BigEndian.PutUint32(out[start:], uint32(size))
	return nil
}

// repeat appends n-1 more copies of the row that begins at start.
func (w *writer) repeat(start int, n int64) error {
	row := w.out[start:]
	if n-1 > int64((flushBytes-len(w.out))/len(row)) {
		row = bytes.Clone(row) // Flush reuses the buffer it lies in
	}
	if err := w.sent(); err != nil {
		return err
	}
	for range n - 1 {
		w.out = append(w.out, row...)
		if err := w.sent(); err != nil {
			return err
		}
	}
	return nil
}

// complete ends a result.
func (w *writer) complete() error {
	if w.state != resultOpen && w.state != resultRows {
		return misuse("a result that ends twice")
	}
	w.state = resultComplete
	if w.simple {
		w.state = resultOpen
	}
	return nil
}

// CommandComplete implements ResultWriter.
func (w *writer) CommandComplete(tag string) error {
	if err := w.complete(); err != nil {
		return err
	}
	out := append(w.out, 'C', 0, 0, 0, 0)
	start := len(w.out) + 1
	out = append(out, tag...)
	out = append(out, 0)
	binary.BigEndian.PutUint32(out[start:], uint32(len(out)-start))
	w.out = out
	return w.sent()
}

// EmptyQuery implements ResultWriter.
func (w *writer) EmptyQuery() error {
	if err := w.complete(); err != nil {
		return err
	}
	return w.sendEmpty('I')
}

// Suspended implements ResultWriter.
func (w *writer) Suspended() error {
	if w.simple {
		return misuse("Suspended in a simple query")
	}
	if err := w.complete(); err != nil {
		return err
	}
	return w.sendEmpty('s')
}

// typeSize is pg_type.typlen.
func typeSize(oid types.OID) int16 {
	switch oid {
	case types.OIDBool, types.OIDChar:
		return 1
	case types.OIDInt2:
		return 2
	case types.OIDInt4, types.OIDFloat4, types.OIDDate, types.OIDOid, types.OIDVoid,
		types.OIDRegproc, types.OIDRegprocedure, types.OIDRegclass, types.OIDRegtype, types.OIDRegnamespace, types.OIDRegrole:
		return 4
	case types.OIDInt8, types.OIDFloat8, types.OIDTime, types.OIDTimestamp, types.OIDTimestamptz:
		return 8
	case types.OIDTimetz:
		return 12
	case types.OIDInterval, types.OIDUUID:
		return 16
	case types.OIDName:
		return 64
	case types.OIDUnknown:
		return -2
	}
	return -1
}
