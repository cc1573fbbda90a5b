package pgwire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// fakeHandler makes sessions of a toy engine: enough to exercise each part of the Session contract.
type fakeHandler struct {
	committed atomic.Int64 // inserts that were committed
	open      atomic.Int64 // sessions not closed
	waiting   chan struct{}

	mu     sync.Mutex
	params []StartupParams
}

func newFakeHandler() *fakeHandler { return &fakeHandler{waiting: make(chan struct{}, 16)} }

func (h *fakeHandler) NewSession(_ context.Context, p StartupParams, n Notifier) (Session, error) {
	h.mu.Lock()
	h.params = append(h.params, p)
	h.mu.Unlock()
	if p.Database == "nope" {
		return nil, pgerr.Newf(pgerr.InvalidCatalogName, "database \"nope\" does not exist")
	}
	for _, s := range p.Settings {
		switch s.Name {
		case "application_name", "client_encoding", "TimeZone", "extra_float_digits", "work_mem", "DateStyle", "a_b":
		default:
			return nil, pgerr.Newf(pgerr.UndefinedObject, "unrecognized configuration parameter \"%s\"", s.Name)
		}
	}
	h.open.Add(1)
	return &fakeSession{h: h, n: n, format: types.DefaultFormat(), stmts: map[string]*fakeStmt{}, portals: map[string]*fakePortal{}}, nil
}

type fakeStmt struct {
	text   string
	params []types.OID
	cols   []FieldDescription
	data   func(s *fakeSession, args []int64) *types.Chunk // of a statement with rows
	run    func(ctx context.Context, s *fakeSession, w ResultWriter) error
}

type fakePortal struct {
	stmt *fakeStmt
	cols []FieldDescription
	args []int64
	rows *types.Chunk
	pos  int
}

type fakeSession struct {
	h       *fakeHandler
	n       Notifier
	format  *types.Format
	stmts   map[string]*fakeStmt
	portals map[string]*fakePortal
	block   bool // in BEGIN…COMMIT
	failed  bool
	inserts int64
}

func (s *fakeSession) ParameterStatus() []Param {
	return []Param{{"server_version", "14.0"}, {"client_encoding", "UTF8"}, {"standard_conforming_strings", "on"}}
}

func (s *fakeSession) Format() *types.Format { return s.format }

func (s *fakeSession) TxStatus() byte {
	switch {
	case s.block && s.failed:
		return TxFailed
	case s.block:
		return TxActive
	}
	return TxIdle
}

func (s *fakeSession) Fail(error) {
	s.failed = true
	s.inserts = 0
}

func (s *fakeSession) Close() { s.h.open.Add(-1) }

func (s *fakeSession) endTx() {
	if !s.failed {
		s.h.committed.Add(s.inserts)
	}
	s.inserts, s.failed, s.block = 0, false, false
	s.portals = map[string]*fakePortal{}
}

// keep turns a returned error into the failed state.
func (s *fakeSession) keep(err error) error {
	if err != nil {
		s.Fail(err)
	}
	return err
}

func col(name string, t types.Type) FieldDescription { return FieldDescription{Name: name, Type: t} }

func intChunk(from, to int64) *types.Chunk {
	c := types.NewChunk([]types.Type{types.Int4})
	for i := from; i <= to; i++ {
		c.Cols[0].Int = append(c.Cols[0].Int, i)
		c.PushWeight(1)
	}
	return c
}

func command(tag string, f func(s *fakeSession) error) func(context.Context, *fakeSession, ResultWriter) error {
	return func(_ context.Context, s *fakeSession, w ResultWriter) error {
		if f != nil {
			if err := f(s); err != nil {
				return err
			}
		}
		return w.CommandComplete(tag)
	}
}

// parseFake is the toy engine's parser.
func parseFake(text string) (*fakeStmt, error) {
	st := &fakeStmt{text: text}
	word, rest, _ := strings.Cut(text, " ")
	switch {
	case text == "":
		st.run = func(_ context.Context, _ *fakeSession, w ResultWriter) error { return w.EmptyQuery() }
	case text == "begin":
		st.run = command("BEGIN", func(s *fakeSession) error { s.block = true; return nil })
	case text == "insert":
		st.run = command("INSERT 0 1", func(s *fakeSession) error { s.inserts++; return nil })
	case text == "select 1/0":
		st.cols = []FieldDescription{col("?column?", types.Int4)}
		st.run = func(context.Context, *fakeSession, ResultWriter) error {
			return pgerr.Newf(pgerr.DivisionByZero, "division by zero").At(9)
		}
	case word == "select" || word == "series":
		n, err := strconv.ParseInt(rest, 10, 32)
		if err != nil {
			return nil, pgerr.Newf(pgerr.UndefinedColumn, "column \"%s\" does not exist", rest).At(len("select ")).
				WithHint("a hint").WithDetail("a detail")
		}
		st.cols = []FieldDescription{col("n", types.Int4)}
		from := n
		if word == "series" {
			from = 1
		}
		st.data = func(*fakeSession, []int64) *types.Chunk { return intChunk(from, n) }
	case text == "weights":
		st.cols = []FieldDescription{col("n", types.Int4)}
		st.data = func(*fakeSession, []int64) *types.Chunk {
			c := intChunk(1, 4)
			c.Weights = []int64{2, 0, 3, 1}
			c.Sel = []uint16{0, 1, 2}
			return c
		}
	case word == "lookup":
		st.params = []types.OID{types.OIDInt8}
		st.cols = []FieldDescription{col("id", types.Int8), col("name", types.Text)}
		st.data = func(s *fakeSession, args []int64) *types.Chunk {
			c := types.NewChunk([]types.Type{types.Int8, types.Text})
			c.Cols[0].Int = append(c.Cols[0].Int, args[0])
			c.Cols[1].Str = append(c.Cols[1].Str, "name")
			c.PushWeight(1)
			return c
		}
	case word == "texts":
		st.params = []types.OID{types.OIDText, types.OIDText}
		st.cols = []FieldDescription{}
		st.data = func(*fakeSession, []int64) *types.Chunk { return &types.Chunk{N: 1} }
	case text == "types":
		st.cols = []FieldDescription{
			col("i", types.Int4), col("num", types.NumericType), col("t", types.Text), col("missing", types.Int8),
			col("ts", types.Timestamptz),
		}
		st.data = func(*fakeSession, []int64) *types.Chunk {
			c := types.NewChunk([]types.Type{types.Int4, types.NumericType, types.Text, types.Int8, types.Timestamptz})
			c.Cols[0].Int = []int64{42}
			c.Cols[1].Num = []types.Numeric{{Coef: 150, Scale: 2}}
			c.Cols[2].Str = []string{"añb"}
			c.Cols[3].AppendNull()
			c.Cols[4].Int = []int64{86400000000}
			c.PushWeight(1)
			return c
		}
	case text == "wait":
		st.run = func(ctx context.Context, s *fakeSession, _ ResultWriter) error {
			s.h.waiting <- struct{}{}
			<-ctx.Done()
			return fmt.Errorf("waiting: %w", ctx.Err())
		}
	case text == "panic":
		st.run = func(context.Context, *fakeSession, ResultWriter) error { panic("a bug") }
	case text == "fatal":
		st.run = func(context.Context, *fakeSession, ResultWriter) error {
			e := pgerr.Newf(pgerr.AdminShutdown, "bye")
			e.Severity = "FATAL"
			return e
		}
	case text == "nothing":
		st.run = func(context.Context, *fakeSession, ResultWriter) error { return nil }
	case word == "set":
		st.run = func(_ context.Context, s *fakeSession, w ResultWriter) error {
			name, value, _ := strings.Cut(rest, " ")
			return errors.Join(s.n.ParameterStatus(name, value), w.CommandComplete("SET"))
		}
	case word == "notice":
		st.run = func(_ context.Context, _ *fakeSession, w ResultWriter) error {
			return errors.Join(w.Notice(pgerr.Newf(pgerr.SuccessfulCompletion, "%s", rest)), w.CommandComplete("DO"))
		}
	case word == "copyin":
		st.run = func(_ context.Context, s *fakeSession, w ResultWriter) error { return s.copyIn(w, rest) }
	case text == "copyout":
		st.run = func(_ context.Context, _ *fakeSession, w ResultWriter) error {
			return errors.Join(w.CopyOut(FormatText, 1), w.CopyData([]byte("1\n")), w.CopyData([]byte("2\n")), w.CopyDone(),
				w.CommandComplete("COPY 2"))
		}
	default:
		return nil, pgerr.Newf(pgerr.SyntaxError, "syntax error at or near \"%s\"", word).At(0)
	}
	return st, nil
}

// copyIn counts lines; "read" reads them as a stream, "early" stops after the first message, "bad" fails there.
func (s *fakeSession) copyIn(w ResultWriter, mode string) error {
	r, err := w.CopyIn(FormatText, 2)
	if err != nil {
		return err
	}
	lines := 0
	if mode == "read" {
		b, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		return w.CommandComplete("COPY " + strconv.Itoa(bytes.Count(b, []byte("\n"))))
	}
	for {
		b, err := r.Next()
		if errors.Is(err, io.EOF) || mode == "early" {
			break
		}
		if err != nil {
			return err
		}
		if mode == "bad" {
			return pgerr.Newf(pgerr.InvalidTextRepresentation, "invalid input syntax for type integer: \"x\"")
		}
		lines += strings.Count(string(b), "\n")
	}
	s.inserts += int64(lines)
	return w.CommandComplete("COPY " + strconv.Itoa(lines))
}

// splitFake splits at semicolons and drops comments and empty statements.
func splitFake(text string) []string {
	var out []string
	for _, part := range strings.Split(text, ";") {
		if part, _, _ = strings.Cut(part, "--"); strings.TrimSpace(part) != "" {
			out = append(out, strings.TrimSpace(part))
		}
	}
	return out
}

func (s *fakeSession) SimpleQuery(ctx context.Context, text string, w ResultWriter) error {
	parts := splitFake(text)
	if len(parts) == 0 {
		return w.EmptyQuery()
	}
	for _, part := range parts {
		if err := s.simple(ctx, part, w); err != nil {
			if s.Fail(err); !s.block {
				s.endTx()
			}
			return err
		}
	}
	if !s.block {
		s.endTx()
	}
	return nil
}

func (s *fakeSession) simple(ctx context.Context, text string, w ResultWriter) error {
	if text == "commit" {
		return s.commit(w)
	}
	if s.failed {
		return pgerr.Newf(pgerr.InFailedSQLTransaction, "current transaction is aborted, commands ignored until end of transaction block")
	}
	st, err := parseFake(text)
	if err != nil {
		return err
	}
	if st.data == nil {
		return st.run(ctx, s, w)
	}
	c := st.data(s, []int64{7})
	if err := errors.Join(w.RowDescription(st.cols), w.Rows(c)); err != nil {
		return err
	}
	return w.CommandComplete("SELECT " + strconv.Itoa(c.Rows()))
}

func (s *fakeSession) commit(w ResultWriter) error {
	tag := "COMMIT"
	if s.failed {
		tag = "ROLLBACK"
	} else if !s.block {
		e := pgerr.Newf(pgerr.NoActiveSQLTransaction, "there is no transaction in progress")
		e.Severity = "WARNING"
		if err := w.Notice(e); err != nil {
			return err
		}
	}
	s.endTx()
	return w.CommandComplete(tag)
}

func (s *fakeSession) Prepare(_ context.Context, name, text string, _ []uint32) error {
	parts := splitFake(text)
	if len(parts) > 1 {
		return s.keep(pgerr.Newf(pgerr.SyntaxError, "cannot insert multiple commands into a prepared statement"))
	}
	if name != "" && s.stmts[name] != nil {
		return s.keep(pgerr.Newf(pgerr.DuplicatePreparedStatement, "prepared statement \"%s\" already exists", name))
	}
	text = strings.Join(parts, "")
	st := &fakeStmt{text: text, run: func(_ context.Context, s *fakeSession, w ResultWriter) error { return s.commit(w) }}
	if text != "commit" {
		var err error
		if st, err = parseFake(text); err != nil {
			return s.keep(err)
		}
	}
	s.stmts[name] = st
	return nil
}

func (s *fakeSession) stmt(name string) (*fakeStmt, error) {
	if st := s.stmts[name]; st != nil {
		return st, nil
	}
	return nil, s.keep(pgerr.Newf(pgerr.InvalidSQLStatementName, "prepared statement \"%s\" does not exist", name))
}

func (s *fakeSession) portal(name string) (*fakePortal, error) {
	if p := s.portals[name]; p != nil {
		return p, nil
	}
	return nil, s.keep(pgerr.Newf(pgerr.InvalidCursorName, "portal \"%s\" does not exist", name))
}

func (s *fakeSession) DescribeStatement(_ context.Context, name string) ([]types.OID, []FieldDescription, error) {
	st, err := s.stmt(name)
	if err != nil {
		return nil, nil, err
	}
	return st.params, st.cols, nil
}

func (s *fakeSession) Bind(_ context.Context, portal, stmt string, pf []Format, params [][]byte, rf []Format) error {
	st, err := s.stmt(stmt)
	if err != nil {
		return err
	}
	if len(params) != len(st.params) {
		return s.keep(pgerr.Newf(pgerr.ProtocolViolation, "bind message supplies %d parameters, but prepared statement \"%s\" requires %d",
			len(params), stmt, len(st.params)))
	}
	if len(rf) > 1 && len(rf) != len(st.cols) {
		return s.keep(pgerr.Newf(pgerr.ProtocolViolation, "bind message has %d result formats but query has %d columns", len(rf), len(st.cols)))
	}
	p := &fakePortal{stmt: st, cols: st.cols}
	if len(rf) > 0 && len(st.cols) > 0 {
		p.cols = append([]FieldDescription{}, st.cols...)
		for i := range p.cols {
			p.cols[i].Format = rf[min(i, len(rf)-1)]
		}
	}
	for i, b := range params {
		var v int64
		if st.params[i] == types.OIDInt8 && len(pf) > 0 && pf[min(i, len(pf)-1)] == FormatBinary {
			v = int64(binary.BigEndian.Uint64(b))
		} else if st.params[i] == types.OIDInt8 {
			if v, err = strconv.ParseInt(string(b), 10, 64); err != nil {
				return s.keep(pgerr.Newf(pgerr.InvalidTextRepresentation, "invalid input syntax for type bigint: \"%s\"", b))
			}
		}
		p.args = append(p.args, v)
	}
	s.portals[portal] = p
	return nil
}

func (s *fakeSession) DescribePortal(_ context.Context, name string) ([]FieldDescription, error) {
	p, err := s.portal(name)
	if err != nil {
		return nil, err
	}
	return p.cols, nil
}

func (s *fakeSession) Execute(ctx context.Context, portal string, maxRows int, w ResultWriter) error {
	p, err := s.portal(portal)
	if err != nil {
		return err
	}
	if p.stmt.data == nil {
		return s.keep(p.stmt.run(ctx, s, w))
	}
	if p.rows == nil {
		p.rows = p.stmt.data(s, p.args)
	}
	if err := w.RowDescription(p.cols); err != nil {
		return s.keep(err)
	}
	n := 0
	for ; p.pos < p.rows.N && (maxRows == 0 || n < maxRows); n++ {
		one := types.Chunk{Cols: p.rows.Cols, N: p.rows.N, Sel: []uint16{uint16(p.pos)}, Weights: p.rows.Weights}
		if err := w.Rows(&one); err != nil {
			return s.keep(err)
		}
		p.pos++
	}
	if maxRows > 0 && n == maxRows {
		return w.Suspended()
	}
	return w.CommandComplete("SELECT " + strconv.Itoa(n))
}

func (s *fakeSession) CloseStatement(_ context.Context, name string) error {
	delete(s.stmts, name)
	return nil
}

func (s *fakeSession) ClosePortal(_ context.Context, name string) error {
	delete(s.portals, name)
	return nil
}

func (s *fakeSession) Sync(context.Context) error {
	if !s.block {
		s.endTx()
	}
	return nil
}
