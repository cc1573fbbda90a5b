//go:build e2e

package differential

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
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
}

// client is a connection that is made again after the server closed it.
type client struct {
	connect func(ctx context.Context) (*pgconn.PgConn, error)
	conn    *pgconn.PgConn
}

func (c *client) ready(ctx context.Context) error {
	if c.conn != nil && !c.conn.IsClosed() {
		return nil
	}
	conn, err := c.connect(ctx)
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
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	if err := c.ready(ctx); err != nil {
		return failed(err)
	}
	results, err := c.conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return failed(err)
	}
	out := &answer{}
	for _, r := range results {
		out.add(r)
	}
	return out
}

// extended prepares a query without parameters, and runs it with its results in binary.
func (c *client) extended(ctx context.Context, sql string) *answer {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	if err := c.ready(ctx); err != nil {
		return failed(err)
	}
	described, err := c.conn.Prepare(ctx, "", sql, nil)
	if err != nil {
		return failed(err)
	}
	r := c.conn.ExecPrepared(ctx, "", nil, nil, []int16{1}).Read()
	if r.Err != nil {
		return failed(r.Err)
	}
	out := &answer{}
	out.add(r)
	out.columns = columnsOf(described.Fields)
	for _, p := range described.ParamOIDs {
		out.columns = append(out.columns, fmt.Sprintf("$ %d", p))
	}
	return out
}

func failed(err error) *answer {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return &answer{code: e.Code, message: e.Message}
	}
	return &answer{code: "connection lost", message: err.Error()}
}

func columnsOf(fields []pgconn.FieldDescription) []string {
	var out []string
	for _, f := range fields {
		out = append(out, fmt.Sprintf("%s %d", f.Name, f.DataTypeOID))
	}
	return out
}

func (a *answer) add(r *pgconn.Result) {
	a.columns = append(a.columns, columnsOf(r.FieldDescriptions)...)
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
	if a.code != "" {
		return a.code + " " + a.message
	}
	const shownRows = 6
	rows := a.rows[:min(len(a.rows), shownRows)]
	text := strings.Join(a.columns, ", ") + " | " + strings.Join(rows, " / ")
	text = strings.NewReplacer(nullMark, "∅", "\x1f", "·", "\n", "⏎").Replace(text)
	if len(a.rows) > shownRows {
		text += fmt.Sprintf(" … %d rows", len(a.rows))
	}
	return text + " | " + a.tag
}

// equal compares two answers; rows only count in their order when the query asks for one.
func (a *answer) equal(b *answer, ordered bool) bool {
	return a.code == b.code && a.tag == b.tag && slices.Equal(a.columns, b.columns) && sameRows(a.rows, b.rows, ordered)
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
