package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb"
	"github.com/streamdb/streamdb/server"
	"github.com/streamdb/streamdb/sql"
)

// demoSQL creates the sources and views of the demo; @start@ and @rate@ are filled in.
//
//go:embed demo.sql
var demoSQL string

type demoCmd struct {
	DataDir string        `help:"Local directory of the demo; it goes on with what is there." default:"./streamdb-data/demo" env:"STREAMDB_DATA_DIR"`
	Listen  string        `help:"Address for PostgreSQL clients. Default: 127.0.0.1:5433, another port if that is taken." env:"STREAMDB_LISTEN"`
	HTTP    string        `name:"http" help:"Address for health, metrics and REST. Default: 127.0.0.1:8433, another port if that is taken." env:"STREAMDB_HTTP"`
	Memory  byteSize      `help:"Memory for state and caches." default:"1GiB" env:"STREAMDB_MEMORY"`
	Rate    int           `help:"Events per second, when the demo starts for the first time." default:"5000"`
	Once    time.Duration `help:"Run for this long, print the tables, and stop."`
}

// Times of the demo.
const (
	demoRefresh     = time.Second      // of a terminal
	demoPrint       = 5 * time.Second  // when the output is not a terminal
	demoFirstResult = 30 * time.Second // the longest wait for the first rows
)

// demoTables is what the demo shows.
func demoTables() []struct{ title, query string } {
	return []struct{ title, query string }{
		{"Everything so far", "SELECT to_char(events, 'FM999,999,999,999') AS events, to_char(bids, 'FM999,999,999,999') AS bids, " +
			"to_char(auctions, 'FM999,999,999,999') AS auctions, to_char(volume, 'FM999,999,999,999,999') AS volume FROM totals"},
		{"Ten hottest auctions of the current window of 10 s", "SELECT to_char(window_start, 'HH24:MI:SS') AS window, auction, bids, top_price FROM hot_auctions " +
			"WHERE window_start = (SELECT max(window_start) FROM hot_auctions) ORDER BY bids DESC, auction"},
		{"Average price per category", "SELECT category, auctions, bids, avg_price FROM category_prices ORDER BY category"},
		{"Hottest channels", "SELECT channel, bids, avg_price FROM hot_channels ORDER BY bids DESC, channel"},
	}
}

// listenOr listens on the wanted address; without one on def, or on any free port when that is taken.
func listenOr(wanted, def string) (l net.Listener, moved bool, err error) {
	if wanted != "" {
		l, err = listenOn(wanted, "--listen or --http")
		return l, false, err
	}
	if l, err = net.Listen("tcp", def); !errors.Is(err, syscall.EADDRINUSE) {
		return l, false, err
	}
	host, _, err := net.SplitHostPort(def)
	if err != nil {
		return nil, false, err
	}
	l, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
	return l, true, err
}

// Run is `streamdb demo`.
func (c *demoCmd) Run(a *app) (err error) {
	if c.Rate <= 0 {
		return usageError{errors.New("--rate must be positive")}
	}
	l, moved, err := listenOr(c.Listen, server.DefaultListen)
	if err != nil {
		return err
	}
	if moved {
		a.log.Info().Str("listen", l.Addr().String()).Msg(server.DefaultListen + " is taken: another port is used")
	}
	hl, _, err := listenOr(c.HTTP, server.DefaultHTTP)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	limitHeap(int64(c.Memory))
	db, err := streamdb.Open(a.ctx, streamdb.Options{
		DataDir: c.DataDir, Memory: int64(c.Memory), Cores: a.cores, Logger: a.log.Level(max(a.log.GetLevel(), zerolog.WarnLevel)),
		Settings: map[string]string{"execution.checkpointing.interval": "1s"},
	})
	if err != nil {
		return errors.Join(err, l.Close(), hl.Close())
	}
	if err := db.CheckListen(l.Addr()); err != nil {
		return usageError{errors.Join(err, l.Close(), hl.Close(), db.Close(context.Background()))}
	}
	failed := make(chan error, 2)
	go func() { failed <- db.Serve(l) }()
	web := &http.Server{Handler: db.HTTPHandler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := web.Serve(hl); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	}()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), stopTimeout)
		defer cancel()
		err = errors.Join(err, web.Shutdown(ctx), db.Close(ctx))
	}()
	// The connection outlives Ctrl-C: a view that is being read is read to its end.
	conn, err := connectQuietly(context.WithoutCancel(a.ctx), db)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(a.ctx)) //nolint:errcheck // the server goes away with it
	if err := c.create(a.ctx, conn); err != nil {
		return err
	}
	d := &display{conn: conn, out: a.stdout, addr: l.Addr().String(), http: hl.Addr().String(), rate: c.Rate, dir: c.DataDir}
	if c.Once > 0 {
		return d.once(a.ctx, c.Once, failed, db.Fatal())
	}
	return d.follow(a.ctx, failed, db.Fatal())
}

// connectQuietly is connect without printing notices.
func connectQuietly(ctx context.Context, db *streamdb.DB) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig("postgres://streamdb@streamdb/streamdb?sslmode=disable")
	if err != nil {
		return nil, err
	}
	cfg.DialFunc = db.DialFunc()
	cfg.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	return pgx.ConnectConfig(ctx, cfg)
}

// create makes what is not there yet.
func (c *demoCmd) create(ctx context.Context, conn *pgx.Conn) error {
	text := strings.NewReplacer("@start@", time.Now().UTC().Truncate(time.Second).Format(time.DateTime), "@rate@", strconv.Itoa(c.Rate)).Replace(demoSQL)
	stmts, err := sql.Parse(text)
	if err != nil {
		return err
	}
	for _, st := range stmts {
		if _, err := conn.Exec(ctx, st.SourceText()); err != nil {
			return err
		}
	}
	return nil
}

// display shows the views of the demo.
type display struct {
	conn            *pgx.Conn
	out             io.Writer
	addr, http, dir string
	rate            int
	terminal        bool
}

// psqlLine is the command that connects to the demo.
func (d *display) psqlLine() string {
	host, port, err := net.SplitHostPort(d.addr)
	if err != nil {
		return d.addr
	}
	return fmt.Sprintf("psql -h %s -p %s -U streamdb streamdb", host, port)
}

// frame renders all tables: the second one beside the last two, so that a small terminal holds them. empty counts those without rows.
func (d *display) frame() (text string, empty int, err error) {
	var blocks []string
	for _, t := range demoTables() {
		results, err := d.conn.PgConn().Exec(context.Background(), t.query).ReadAll()
		if err != nil {
			return "", 0, err
		}
		r := results[0]
		if len(r.Rows) == 0 || string(r.Rows[0][0]) == "0" {
			empty++
		}
		b := bytes.NewBufferString(t.title + "\n")
		if err := printTable(b, r); err != nil {
			return "", 0, err
		}
		blocks = append(blocks, b.String())
	}
	return blocks[0] + "\n" + beside(blocks[1], blocks[2]+"\n"+blocks[3]), empty, nil
}

// beside puts two texts side by side.
func beside(left, right string) string {
	const gap = 3
	l, r := strings.Split(strings.TrimRight(left, "\n"), "\n"), strings.Split(strings.TrimRight(right, "\n"), "\n")
	width := 0
	for _, s := range l {
		width = max(width, len([]rune(s)))
	}
	var b strings.Builder
	for i := range max(len(l), len(r)) {
		line := ""
		if i < len(l) {
			line = l[i]
		}
		if i < len(r) {
			line += strings.Repeat(" ", width+gap-len([]rune(line))) + r[i]
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// Terminal control.
const (
	ansiClear = "\x1b[2J\x1b[3J\x1b[H"
	ansiHome  = "\x1b[H"
	ansiEOL   = "\x1b[K"
	ansiBelow = "\x1b[J"
)

// follow shows the tables again and again until ctx ends.
func (d *display) follow(ctx context.Context, failed, fatal <-chan error) error {
	d.terminal = isTerminal(d.out)
	every := demoPrint
	if d.terminal {
		every = demoRefresh
		if _, err := io.WriteString(d.out, ansiClear); err != nil {
			return err
		}
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		text, _, err := d.frame()
		if err != nil {
			return err
		}
		head := fmt.Sprintf("streamdb demo: %d auction events a second, views kept up to date. Ctrl-C stops; the next start goes on from %s\n  %s\n  http://%s/metrics\n\n",
			d.rate, d.dir, d.psqlLine(), d.http)
		screen := head + text
		if d.terminal {
			screen = ansiHome + strings.ReplaceAll(screen, "\n", ansiEOL+"\n") + ansiBelow
		}
		if _, err := io.WriteString(d.out, screen); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case err := <-failed:
			return err
		case err := <-fatal:
			return err
		case <-ctx.Done():
			_, err := fmt.Fprintln(d.out, "stopping: last checkpoint")
			return err
		}
	}
}

// once waits for the given time, and for the first rows, and prints the tables.
func (d *display) once(ctx context.Context, wait time.Duration, failed, fatal <-chan error) error {
	if _, err := fmt.Fprintf(d.out, "streamdb demo: %d auction events a second for %v\n\n    %s\n\n", d.rate, wait, d.psqlLine()); err != nil {
		return err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	deadline := time.Now().Add(wait + demoFirstResult)
	for {
		select {
		case <-timer.C:
		case err := <-failed:
			return err
		case err := <-fatal:
			return err
		case <-ctx.Done():
			return nil
		}
		text, empty, err := d.frame()
		if err != nil {
			return err
		}
		switch {
		case empty == 0:
			_, err := io.WriteString(d.out, text)
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("%d views are still empty after %v", empty, wait+demoFirstResult)
		}
		timer.Reset(demoRefresh)
	}
}
