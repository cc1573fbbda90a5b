package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/streamdb/streamdb"
	"github.com/streamdb/streamdb/sql"
)

type sqlCmd struct {
	dbFlags
	Command    []string `short:"c" help:"SQL to run; may be repeated." sep:"none"`
	File       string   `short:"f" help:"File with SQL to run; - is standard input." `
	MemoryOnly bool     `help:"Keep nothing on disk."`
}

// Run is `streamdb sql`.
func (c *sqlCmd) Run(a *app) (err error) {
	text := strings.Join(c.Command, ";\n")
	if c.File != "" || text == "" {
		var b []byte
		if c.File == "" || c.File == "-" {
			b, err = io.ReadAll(os.Stdin)
		} else {
			b, err = os.ReadFile(c.File)
		}
		if err != nil {
			return usageError{err}
		}
		text += "\n" + string(b)
	}
	o := c.options(a)
	o.MemoryOnly = c.MemoryOnly
	limitHeap(int64(c.Memory))
	db, err := streamdb.Open(a.ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close(context.WithoutCancel(a.ctx))) }()
	conn, err := connect(a.ctx, db)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(a.ctx)) //nolint:errcheck // the server goes away with it
	stmts, err := sql.Parse(text)
	if err != nil {
		return err
	}
	for _, st := range stmts {
		if err := printResult(a.ctx, a.stdout, conn, st.SourceText()); err != nil {
			return err
		}
	}
	return nil
}

// connect opens a connection to an embedded database.
func connect(ctx context.Context, db *streamdb.DB) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig("postgres://streamdb@streamdb/streamdb?sslmode=disable")
	if err != nil {
		return nil, err
	}
	cfg.DialFunc = db.DialFunc()
	cfg.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { fmt.Fprintf(os.Stderr, "%s:  %s\n", n.Severity, n.Message) }
	return pgx.ConnectConfig(ctx, cfg)
}

// printResult runs one statement and prints its rows as psql does.
func printResult(ctx context.Context, w io.Writer, conn *pgx.Conn, text string) error {
	results, err := conn.PgConn().Exec(ctx, text).ReadAll()
	if err != nil {
		return err
	}
	for _, r := range results {
		if len(r.FieldDescriptions) == 0 {
			if _, err := fmt.Fprintln(w, r.CommandTag.String()); err != nil {
				return err
			}
			continue
		}
		if err := printTable(w, r); err != nil {
			return err
		}
	}
	return nil
}

func printTable(w io.Writer, r *pgconn.Result) error {
	widths := make([]int, len(r.FieldDescriptions))
	header := make([]string, len(widths))
	for i, f := range r.FieldDescriptions {
		header[i] = f.Name
		widths[i] = len([]rune(f.Name))
	}
	rows := make([][]string, len(r.Rows))
	for k, row := range r.Rows {
		rows[k] = make([]string, len(row))
		for i, v := range row {
			rows[k][i] = string(v)
			widths[i] = max(widths[i], len([]rune(rows[k][i])))
		}
	}
	var b strings.Builder
	line := func(cells []string) {
		for i, c := range cells {
			if i > 0 {
				b.WriteString("|")
			}
			b.WriteString(" " + c + strings.Repeat(" ", widths[i]-len([]rune(c))+1))
		}
		b.WriteString("\n")
	}
	line(header)
	for i, n := range widths {
		if i > 0 {
			b.WriteString("+")
		}
		b.WriteString(strings.Repeat("-", n+2))
	}
	b.WriteString("\n")
	for _, row := range rows {
		line(row)
	}
	noun := "rows"
	if len(rows) == 1 {
		noun = "row"
	}
	fmt.Fprintf(&b, "(%d %s)\n", len(rows), noun)
	_, err := io.WriteString(w, b.String())
	return err
}
