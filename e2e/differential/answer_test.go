//go:build e2e

package differential

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// queryTimeout bounds one statement on one server.
const queryTimeout = 20 * time.Second

// nullMark stands for NULL in rows: no text has it.
const nullMark = "\x00"

// answer is what a client sees of a statement.
type answer struct {
	columns []string // name and type OID
	rows    []string // the values of a row, joined
	tag     string
	code    string // SQLSTATE, "" for success
	message string
	fields  string // the other fields of an error
	notices []string
	status  byte // of the transaction
}

// client is a connection that is made again after the server closed it.
type client struct {
	config  func() (*pgconn.Config, error)
	conn    *pgconn.PgConn
	notices []string
}

func (c *client) ready(ctx context.Context) error {
	if c.conn != nil && !c.conn.IsClosed() {
		return nil
	}
	config, err := c.config()
	if err != nil {
		return err
	}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		e := (*pgconn.PgError)(n)
		c.notices = append(c.notices, e.Severity+" "+e.Code+" "+e.Message+fieldsOf(e))
	}
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	c.conn = conn
	for _, setting := range [...]string{"set timezone = 'UTC'", "set extra_float_digits = 1", "set intervalstyle = 'postgres'", "set bytea_output = 'hex'"} {
		if err := conn.Exec(ctx, setting).Close(); err != nil {
			return fmt.Errorf("%s: %w", setting, err)
		}
	}
	return nil
}

func (c *client) close() {
	if c.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
		defer cancel()
		_ = c.conn.Close(ctx) // nothing depends on it
	}
}

// simple runs a statement in the simple protocol.
func (c *client) simple(ctx context.Context, sql string) *answer {
	return c.ask(ctx, func(ctx context.Context, out *answer) error {
		results, err := c.conn.Exec(ctx, sql).ReadAll()
		if err != nil {
			return err
		}
		for _, r := range results {
			out.add(r)
		}
		return nil
	})
}

// extended prepares a statement, and runs it with its results in binary, or in text.
func (c *client) extended(ctx context.Context, q *call, format int16) *answer {
	return c.ask(ctx, func(ctx context.Context, out *answer) error {
		described, err := c.conn.Prepare(ctx, "", q.sql, q.types)
		if err != nil {
			return err
		}
		r := c.conn.ExecPrepared(ctx, "", q.values, q.formats, []int16{format}).Read()
		if r.Err != nil {
			return r.Err
		}
		out.add(r)
		out.columns = columnsOf(described.Fields, true)
		for _, p := range described.ParamOIDs {
			out.columns = append(out.columns, fmt.Sprintf("$ %d", known(p)))
		}
		return nil
	})
}

// copy runs a COPY statement; what it sends is one row.
func (c *client) copy(ctx context.Context, q *call) *answer {
	return c.ask(ctx, func(ctx context.Context, out *answer) error {
		var data bytes.Buffer
		var tag pgconn.CommandTag
		var err error
		if q.copyIn {
			tag, err = c.conn.CopyFrom(ctx, bytes.NewReader(q.data), q.sql)
		} else {
			tag, err = c.conn.CopyTo(ctx, &data, q.sql)
			out.rows = []string{data.String()}
		}
		out.tag = tag.String()
		return err
	})
}

// run runs a statement as it asks for.
func (c *client) run(ctx context.Context, q *call) *answer {
	switch {
	case q.bind:
		return c.extended(ctx, q, 1)
	case q.copyIn || copiesOut.MatchString(q.sql):
		return c.copy(ctx, q)
	}
	return c.simple(ctx, q.sql)
}

func (c *client) ask(ctx context.Context, do func(context.Context, *answer) error) *answer {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	if err := c.ready(ctx); err != nil {
		return failed(err)
	}
	c.notices = nil
	out := &answer{}
	if err := do(ctx, out); err != nil {
		out = failed(err)
	}
	out.notices, out.status = c.notices, c.conn.TxStatus()
	return out
}

func failed(err error) *answer {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return &answer{code: e.Code, message: e.Message, fields: fieldsOf(e)}
	}
	return &answer{code: "connection lost", message: err.Error()}
}

// fieldsOf shows the fields of an error that are not always there.
func fieldsOf(e *pgconn.PgError) string {
	var b strings.Builder
	add := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %s: %s", name, value)
		}
	}
	if e.Position != 0 {
		add("position", strconv.Itoa(int(e.Position)))
	}
	add("detail", e.Detail)
	add("hint", e.Hint)
	add("where", e.Where)
	add("schema", e.SchemaName)
	add("table", e.TableName)
	add("column", e.ColumnName)
	add("type", e.DataTypeName)
	add("constraint", e.ConstraintName)
	return b.String()
}

// firstCreated is the first OID of what is not PostgreSQL's own.
const firstCreated = 16384

// known is the OID of a type, or 1 for a type that was created: those have no fixed OIDs.
func known(oid uint32) uint32 {
	if oid >= firstCreated {
		return 1
	}
	return oid
}

// columnsOf describes columns; modifiers of types only as Parse finds them, since PostgreSQL's plans know more of constants.
func columnsOf(fields []pgconn.FieldDescription, modifiers bool) []string {
	var out []string
	for _, f := range fields {
		text := fmt.Sprintf("%s %d", f.Name, known(f.DataTypeOID))
		if modifiers && f.TypeModifier != -1 {
			text += fmt.Sprintf(" modifier %d", f.TypeModifier)
		}
		if f.TableOID >= firstCreated {
			text += fmt.Sprintf(" column %d", f.TableAttributeNumber)
		}
		out = append(out, fmt.Sprintf("%s size %d", text, f.DataTypeSize))
	}
	return out
}

func (a *answer) add(r *pgconn.Result) {
	a.columns = append(a.columns, columnsOf(r.FieldDescriptions, false)...)
	a.tag += r.CommandTag.String()
	for _, row := range r.Rows {
		values := make([]string, len(row))
		for i, v := range row {
			values[i] = nullMark
			if v != nil {
				values[i] = string(v)
			}
		}
		a.rows = append(a.rows, strings.Join(values, "\x1f"))
	}
}

// String shows an answer in a report.
func (a *answer) String() string {
	said := ""
	for _, n := range a.notices {
		said += "\n              " + n
	}
	if a.code != "" {
		return a.code + " " + a.message + a.fields + said
	}
	const shownRows = 6
	rows := a.rows[:min(len(a.rows), shownRows)]
	text := strings.Join(a.columns, ", ") + " | " + strings.Join(rows, " / ")
	text = strings.NewReplacer(nullMark, "∅", "\x1f", "·", "\n", "⏎").Replace(text)
	if len(a.rows) > shownRows {
		text += fmt.Sprintf(" … %d rows", len(a.rows))
	}
	return text + " | " + a.tag + said
}

// equal compares two answers; rows only count in their order when the query asks for one.
func (a *answer) equal(b *answer, ordered bool) bool {
	return a.code == b.code && a.message == b.message && a.tag == b.tag && slices.Equal(a.columns, b.columns) && sameRows(a.rows, b.rows, ordered)
}

// same compares what equal leaves out.
func (a *answer) same(b *answer) bool {
	return a.fields == b.fields && a.status == b.status && slices.Equal(a.notices, b.notices)
}

func sameRows(a, b []string, ordered bool) bool {
	if !ordered {
		a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	}
	return slices.Equal(a, b)
}

// ordered reports whether a query's outermost level has an ORDER BY.
func ordered(sql string) bool {
	depth := 0
	for i := 0; i < len(sql); {
		n := tokenLength(sql[i:])
		switch token := sql[i : i+n]; token {
		case "(":
			depth++
		case ")":
			depth--
		default:
			if depth == 0 && strings.EqualFold(token, "order") {
				return true
			}
		}
		i += n
	}
	return false
}

var (
	queryStart = regexp.MustCompile(`(?is)^\(*\s*(select|values|with|table)\b`)
	writes     = regexp.MustCompile(`(?i)\b(insert|update|delete|merge|nextval|setval|set_config|into)\b`)
	volatile   = regexp.MustCompile(`(?i)\b(random|setseed|now|\w+_timestamp|timeofday|gen_random_uuid|current_\w+|localtime|localtimestamp|user|session_user|(pg|txid|has|to_reg|inet)_\w+|nextval|currval|lastval|version|limit|fetch|age|reg[a-z]+)\b`)
)

// isQuery reports whether a statement can be repeated: it reads only.
func isQuery(sql string) bool { return queryStart.MatchString(sql) && !writes.MatchString(sql) }

// viewable reports whether a query has one answer that a view must keep: nothing in it depends on the time, the session or the order of rows.
func viewable(sql string) bool { return isQuery(sql) && !volatile.MatchString(sql) }
