// Package postgres writes rows into a table of a PostgreSQL server, or of one that speaks its protocol.
//
//	Write ─▶ blocks of COPY text (committables) ─▶ state of the job ─▶ one transaction: progress of the sink, COPY, upserts
//
// All that was written up to an epoch comes in one transaction, which also moves the sink's entry in a table of the target to that epoch: a commit that is repeated finds
// there what is done already, whoever did it.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgcopy"
	"github.com/streamdb/streamdb/types"
)

// Names of the options.
const (
	optURL      = "url"
	optPassword = "password"
	optTable    = "table"
	optSchema   = "schema"
)

// progressTable is where the target keeps up to which epoch each sink has written.
const progressTable = "streamdb_sinks"

// applicationPrefix begins the application_name of sessions, before the sink's name.
const applicationPrefix = "streamdb sink "

const (
	defaultSchema  = "public"
	connectTimeout = 10 * time.Second
	// commitTimeout bounds a transaction.
	commitTimeout = 30 * time.Minute
	// blockBytes is about how much text a committable holds.
	blockBytes = 256 << 10
)

// Connector makes sinks.
type Connector struct{}

// New returns the connector.
func New() Connector { return Connector{} }

// Name implements connector.SinkConnector.
func (Connector) Name() string { return "postgres" }

// Options implements connector.SinkConnector.
func (Connector) Options() []connector.Option {
	return []connector.Option{
		{
			Name: optURL, Required: true, Check: func(s string) error {
				if _, err := pgx.ParseConfig(s); err != nil {
					return pgerr.Newf(pgerr.InvalidParameterValue, "it is not a connection URL") // the cause may show a password
				}
				return nil
			},
			Doc: "postgres://user:password@host:port/database?sslmode=…, or the same as key = value pairs.",
		},
		{Name: optPassword, Doc: "The password, where the URL has none."},
		{Name: optTable, Required: true, Doc: "The table. It must be there, with a column of each name that the sink has."},
		{Name: optSchema, Default: defaultSchema, Doc: "The schema of the table, and of the table " + progressTable + ", which is made in it."},
	}
}

// Encodings implements connector.SinkConnector.
func (Connector) Encodings() []connector.Encoding { return nil }

// Modes implements connector.SinkConnector.
func (Connector) Modes() []connector.SinkMode {
	return []connector.SinkMode{connector.AppendOnly, connector.Upsert}
}

// Sink implements connector.SinkConnector.
func (Connector) Sink(cfg *connector.SinkConfig) (connector.Sink, error) { return newSink(cfg) }

// Check implements connector.SinkConnector.
func (Connector) Check(ctx context.Context, cfg *connector.SinkConfig) error {
	s, err := newSink(cfg)
	if err != nil {
		return err
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	err = s.check(ctx)
	if err == nil {
		err = s.mayDo(s.makeProgress(ctx, true))
	}
	if _, given := cfg.Options[connector.OptionTakeOver]; given && err == nil && !s.alone {
		err = s.transaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
			was, err := s.lock(ctx, tx)
			return cmp.Or(err, cfg.CheckTakeOver(was))
		})
	}
	return errors.Join(err, s.Close())
}

type sink struct {
	cfg     *connector.SinkConfig
	connect func(ctx context.Context) error
	config  *pgx.ConnConfig
	conn    *pgx.Conn // of Check, Recover and Commit; nil: not connected
	alone   bool      // nobody can tell whether other servers write: the sink may not use the table of all sinks' progress, and can do without
	schema  string
	table   string // quoted, with its schema
	columns string // quoted, separated by commas
}

func newSink(cfg *connector.SinkConfig) (*sink, error) {
	v := connector.Values{Options: cfg.Options}
	pc, err := pgx.ParseConfig(v.String("", optURL))
	if err != nil {
		return nil, pgerr.Newf(pgerr.InvalidParameterValue, "option %q is not a connection URL", optURL)
	}
	if p := v.String("", optPassword); p != "" {
		pc.Password = p
	}
	if pc.ConnectTimeout == 0 {
		pc.ConnectTimeout = connectTimeout
	}
	for k, val := range map[string]string{"application_name": applicationPrefix + cfg.Name, "DateStyle": "ISO", "IntervalStyle": "postgres", "client_encoding": "UTF8"} {
		pc.RuntimeParams[k] = val
	}
	s := &sink{cfg: cfg, config: pc, schema: v.String(defaultSchema, optSchema)}
	s.table = pgx.Identifier{s.schema, v.String("", optTable)}.Sanitize()
	s.columns = s.list(s.all(), "")
	s.connect = func(ctx context.Context) error {
		if s.conn != nil && !s.conn.IsClosed() {
			return nil
		}
		conn, err := pgx.ConnectConfig(ctx, pc)
		if err != nil {
			return targetError(err)
		}
		s.conn = conn
		return nil
	}
	return s, nil
}

func (s *sink) all() []int {
	out := make([]int, len(s.cfg.Columns))
	for i := range out {
		out[i] = i
	}
	return out
}

// list names columns, each after a prefix.
func (s *sink) list(columns []int, prefix string) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = prefix + pgx.Identifier{s.cfg.Columns[c].Name}.Sanitize()
	}
	return strings.Join(names, ", ")
}

// targetError is an error of the target: it keeps the SQLSTATE that the target gave.
func targetError(err error) error {
	if err == nil {
		return nil
	}
	var pg *pgconn.PgError
	var unreached *pgconn.ConnectError
	switch {
	case errors.As(err, &pg):
	case errors.As(err, &unreached):
		return pgerr.Wrap(pgerr.UnableToConnect, err, "target of the sink")
	default:
		return pgerr.Wrap(pgerr.ConnectionFailure, err, "target of the sink")
	}
	e := pgerr.Wrap(pgerr.Code(pg.Code), errors.New(pg.Message), "target of the sink")
	if pg.Detail != "" {
		e = e.WithDetail("%s", pg.Detail)
	}
	if pg.Hint != "" {
		e = e.WithHint("%s", pg.Hint)
	}
	return e
}

// column is one of the target's.
type column struct {
	name, typ string
	oid       uint32
	required  bool // it has to be given
}

// check compares the columns of the sink with those of the table.
func (s *sink) check(ctx context.Context) error {
	rows, err := s.conn.Query(ctx, `SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.atttypid, a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
		FROM pg_attribute a WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum`, s.table)
	if err != nil {
		return targetError(err)
	}
	there, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (c column, err error) {
		return c, r.Scan(&c.name, &c.typ, &c.oid, &c.required)
	})
	if err != nil {
		return targetError(err)
	}
	if len(there) == 0 {
		return pgerr.Newf(pgerr.UndefinedTable, "the target has no table %s", s.table).WithHint("Create it first.")
	}
	for _, c := range s.cfg.Columns {
		i := slices.IndexFunc(there, func(t column) bool { return t.name == c.Name })
		if i < 0 {
			return pgerr.Newf(pgerr.UndefinedColumn, "table %s of the target has no column %q that can be written", s.table, c.Name)
		}
		if err := s.fits(ctx, c, there[i]); err != nil {
			return err
		}
	}
	for _, t := range there {
		if t.required && !slices.ContainsFunc(s.cfg.Columns, func(c types.Column) bool { return c.Name == t.name }) {
			return pgerr.Newf(pgerr.NotNullViolation, "column %q of table %s of the target is NOT NULL without a default, and the sink does not have it", t.name, s.table)
		}
	}
	return s.checkKey(ctx)
}

// fits refuses a column whose values the target does not take.
func (s *sink) fits(ctx context.Context, c types.Column, t column) error {
	if uint32(c.Type.OID) == t.oid || c.Type.IsUserType() {
		return nil
	}
	var ok bool
	err := s.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_cast WHERE castsource = $1 AND casttarget = $2 AND castcontext IN ('a', 'i'))
		OR EXISTS (SELECT FROM pg_type WHERE oid = $2 AND (typcategory = 'S' OR typtype = 'd' AND typbasetype = $1))`, uint32(c.Type.OID), t.oid).Scan(&ok)
	if err != nil {
		return targetError(err)
	}
	if !ok {
		return pgerr.Newf(pgerr.DatatypeMismatch, "column %q of table %s of the target is of type %s but the sink's is of type %s", c.Name, s.table, t.typ, c.Type).
			WithHint("Cast the column in the query of the sink.")
	}
	return nil
}

// checkKey refuses an upsert sink whose primary key is not one of the table's.
func (s *sink) checkKey(ctx context.Context) error {
	if s.cfg.Mode != connector.Upsert {
		return nil
	}
	var names []string
	for _, k := range s.cfg.Key {
		names = append(names, s.cfg.Columns[k].Name)
	}
	var ok bool
	err := s.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indimmediate
		AND (SELECT array_agg(a.attname::text ORDER BY a.attname::text) FROM pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1]))
			= (SELECT array_agg(n ORDER BY n) FROM unnest($2::text[]) n))`, s.table, names).Scan(&ok)
	if err != nil {
		return targetError(err)
	}
	if !ok {
		return pgerr.Newf(pgerr.InvalidColumnReference, "table %s of the target has no primary key or unique index of (%s)", s.table, strings.Join(names, ", ")).
			WithHint("Create one, or name the columns of the one that is there: %s = '…'.", connector.OptionPrimaryKey)
	}
	return nil
}

// Writer implements connector.Sink.
func (s *sink) Writer(int) (connector.SinkWriter, error) {
	return &writer{s: s, enc: pgcopy.NewEncoder(pgcopy.Defaults(pgcopy.Text), s.cfg.Columns, s.cfg.Text)}, nil
}

// Close implements connector.Sink.
func (s *sink) Close() error {
	if s.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.conn.Close(ctx)
	s.conn = nil
	return err
}

// writer makes blocks of COPY text: the columns of a row and, in upsert sinks, what became of it.
type writer struct {
	s   *sink
	enc *pgcopy.Encoder
	buf []byte
}

// What became of a row of an upsert sink.
const (
	opPut    = 'U'
	opDelete = 'D'
)

// Write implements connector.SinkWriter.
func (w *writer) Write(_ context.Context, c *types.Chunk) (done [][]byte, err error) {
	for i := range c.Rows() {
		r := c.Row(i)
		w.buf = w.enc.AppendRow(w.buf, c, r)
		if w.s.cfg.Mode == connector.Upsert {
			op := byte(opPut)
			if c.Weight(r) < 0 {
				op = opDelete
			}
			w.buf = append(w.buf[:len(w.buf)-1], '\t', op, '\n')
		}
		if len(w.buf) >= blockBytes {
			done = append(done, w.buf)
			w.buf = nil
		}
	}
	return done, nil
}

// Seal implements connector.SinkWriter: blocks are durable with the state of the job.
func (w *writer) Seal(string) ([][]byte, func(context.Context) error, error) {
	if len(w.buf) == 0 {
		return nil, nil, nil
	}
	b := w.buf
	w.buf = nil
	return [][]byte{b}, nil, nil
}

// Close implements connector.SinkWriter.
func (*writer) Close() error { return nil }
