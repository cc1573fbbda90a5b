//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// Shape of the workload.
const (
	writers           = 3
	accountsPerWriter = 40
	liveOrders        = 300 // a writer deletes old orders beyond that
	bulkRows          = 5
	bidRate           = 4000 // events per second
	bidEvents         = 120_000
	bidCycle          = 50 // of so many events
	bidsInCycle       = 46 // so many are bids
	clickEvery        = 10 * time.Millisecond
	clicksAtOnce      = 4
	clickPages        = 12
)

// views are the queries that are kept as materialized views; a later one may read an earlier one. Each has to equal its query after every restart.
var views = []struct{ name, query string }{
	{"v_join", `SELECT a.region, count(*) AS orders, sum(o.amount) AS total, min(o.amount) AS least, max(o.amount) AS most
		FROM orders o JOIN accounts a ON o.account = a.id GROUP BY a.region`},
	{"v_on_view", `SELECT orders % 7 AS rest, count(*) AS regions, sum(total) AS total FROM v_join GROUP BY 1`},
	{"v_distinct", `SELECT DISTINCT account, amount % 5 AS kind FROM orders`},
	{"v_top", `SELECT id, account, amount FROM orders ORDER BY amount DESC, id LIMIT 10`},
	{"v_full", `SELECT a.id AS account_id, a.region, a.balance, o.id AS order_id, o.amount FROM accounts a FULL JOIN orders o ON a.id = o.account`},
	{"v_journal", `SELECT writer, count(*) AS entries, count(DISTINCT n) AS numbers, max(n) AS last FROM journal GROUP BY writer`},
	{"v_range", `SELECT o.id, a.id AS account FROM orders o JOIN accounts a ON o.amount BETWEEN a.balance * 1000 AND a.balance * 1000 + 5000`},
	{"v_nearest", `SELECT o.id, o.amount, a.id AS account FROM orders o ASOF LEFT JOIN accounts a ON o.amount >= a.balance * 1000`},
	{"v_above", `SELECT id, amount FROM orders WHERE amount > (SELECT avg(amount) FROM orders)`},
	{"v_over", `SELECT id, account, lag(amount) OVER w AS before, rank() OVER (PARTITION BY account ORDER BY amount) AS place,
		sum(amount) OVER (PARTITION BY account ORDER BY id ROWS 2 PRECEDING) AS three FROM orders WINDOW w AS (PARTITION BY account ORDER BY id)`},
	{"v_sets", `(SELECT account FROM orders EXCEPT ALL SELECT id FROM accounts) UNION ALL (SELECT account FROM orders INTERSECT SELECT id FROM accounts WHERE balance > 500)`},
	{"v_reached", `WITH RECURSIVE r (origin, at) AS (SELECT id, balance % 120 FROM accounts WHERE id < 4 UNION SELECT r.origin, a.balance % 120 FROM r JOIN accounts a ON a.id = r.at)
		SELECT * FROM r`},
	{"v_sessions", `SELECT account, window_start, window_end, count(*) AS orders FROM
		SESSION((SELECT account, TIMESTAMP '2024-01-01' + amount * INTERVAL '1 second' AS at FROM orders), account, at, INTERVAL '1 day') GROUP BY 1, 2, 3`},
	{"v_places", `SELECT place, count(*) AS orders, sum(three) AS three FROM v_over GROUP BY place`},
	{"v_lookup", `SELECT o.id, a.region, p.orders FROM orders o LEFT JOIN accounts a ON a.id = o.account LEFT JOIN v_places p ON p.place = o.id % 10`},
}

// fileQuery is kept over the growing file; its twin reads the same file to its end.
const fileQuery = `SELECT page, count(*) AS clicks, sum(n) AS total, count(DISTINCT account) AS accounts FROM %s GROUP BY page`

// closedQuery is kept over generated bids, too: its windows come when the watermark closes them.
const closedQuery = `SELECT window_end, channel, count(*) AS bids, sum(price) AS total FROM TUMBLE(%s, date_time, INTERVAL '500 milliseconds') GROUP BY window_end, channel`

// windowQuery is kept over generated bids. They are numbered by their time, so the state at last is what the query says of the bids until last.
const windowQuery = `SELECT window_start, count(*) AS bids, sum(price) AS total, max(price) AS highest, count(DISTINCT bidder) AS bidders,
	max(date_time) AS last FROM TUMBLE(%s, date_time, INTERVAL '1 second') %s GROUP BY window_start`

// workload is the database under load and what it must contain.
type workload struct {
	t       *testing.T
	clicks  *clickFile
	writers []*writer
	schema  *schemaWriter
	copies  []*subscriber
	beside  []load
	closed  [][]string // the rows of closedQuery, once somebody asked for them
}

// load is what else there is in a database under load.
type load interface {
	create(c *client, w *workload)
	run(p *process, stop <-chan struct{})
	check(c *client) // after the workload's own
	finish(c *client)
}

func newWorkload(t *testing.T, seed uint64) *workload {
	w := &workload{t: t, clicks: &clickFile{path: filepath.Join(t.TempDir(), "clicks.json"), rng: rand.New(rand.NewPCG(seed, 1000))}, schema: newSchemaWriter(seed), copies: newSubscribers()}
	for i := range writers {
		w.writers = append(w.writers, newWriter(i, seed))
	}
	return w
}

// create makes tables, sources and views.
func (w *workload) create(c *client) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(w.clicks.path, nil, 0o600))
	c.exec(`CREATE TABLE accounts (id bigint PRIMARY KEY, region varchar, balance bigint)`)
	c.exec(`CREATE TABLE orders (id bigint PRIMARY KEY, account bigint, amount bigint)`)
	c.exec(`CREATE TABLE journal (writer bigint, n bigint)`) // without a key: a row written twice shows
	clicks := func(name, follow string) {
		c.exec(fmt.Sprintf(`CREATE SOURCE %s (n bigint, account bigint, page varchar) WITH (connector = 'file', path = '%s', file.follow = '%s')
			FORMAT PLAIN ENCODE JSON`, name, w.clicks.path, follow))
	}
	clicks("clicks", "true")
	clicks("clicks_all", "false")
	bids := func(name, columns string, rate int) {
		c.exec(fmt.Sprintf(`CREATE SOURCE %s %s WITH (connector = 'nexmark', nexmark.table.type = 'Bid', nexmark.event.num = '%d', nexmark.event.rate = '%d',
			nexmark.min.event.gap.in.ns = '%d', nexmark.split.num = '1')`, name, columns, bidEvents, rate, int(time.Second)/bidRate))
	}
	bids("bid", "", bidRate)
	bids("bid_all", "", 0)
	bids("bid_timed", `(channel varchar, price bigint, date_time timestamp, WATERMARK FOR date_time AS date_time)`, bidRate)
	c.exec(`SET lookup_join_rows = 0`)
	for _, v := range views {
		c.exec(`CREATE MATERIALIZED VIEW ` + v.name + ` AS ` + v.query)
	}
	c.exec(`RESET lookup_join_rows`)
	c.exec(`CREATE MATERIALIZED VIEW v_temporal AS SELECT c.n, a.region FROM clicks c LEFT JOIN accounts FOR SYSTEM_TIME AS OF PROCTIME() a ON a.id = c.account`)
	c.exec(`CREATE MATERIALIZED VIEW v_clicks AS ` + fmt.Sprintf(fileQuery, "clicks"))
	c.exec(`SET background_ddl = on; CREATE MATERIALIZED VIEW v_window AS ` + fmt.Sprintf(windowQuery, "bid", ""))
	c.exec(`CREATE MATERIALIZED VIEW v_closed AS ` + fmt.Sprintf(closedQuery, "bid_timed") + ` EMIT ON WINDOW CLOSE; RESET background_ddl`)
	for _, wr := range w.writers {
		c.exec(wr.firstRows())
	}
	w.schema.create(c)
}

// run writes until stop is closed or the server is gone.
func (w *workload) run(p *process, stop <-chan struct{}) {
	var wg sync.WaitGroup
	for _, wr := range w.writers {
		wg.Go(func() { wr.run(w.t, p, stop) })
	}
	wg.Go(func() { w.schema.run(w.t, p, stop) })
	wg.Go(func() { w.clicks.run(w.t, p, stop) })
	for _, s := range w.copies {
		wg.Go(func() { s.run(w.t, p, stop) })
	}
	for _, l := range w.beside {
		wg.Go(func() { l.run(p, stop) })
	}
	wg.Wait()
}

// check compares everything with what it must be. Nobody else may write.
func (w *workload) check(c *client) {
	w.t.Helper()
	for _, wr := range w.writers {
		wr.settle(w.t, c)
	}
	c.flush()
	w.schema.settle(w.t, c)
	c.wait(`SELECT coalesce(sum(clicks), 0) FROM v_clicks`, strconv.Itoa(w.clicks.written))
	for _, v := range views {
		c.sameRows(v.name, v.query)
	}
	c.sameRows("v_clicks", fmt.Sprintf(fileQuery, "clicks_all"))
	require.Equal(w.t, "0", c.value(`SELECT count(*) FROM v_journal WHERE entries <> numbers OR last <> entries`), "journal rows lost or doubled")
	c.wait(`SELECT count(*) FROM v_temporal`, strconv.Itoa(w.clicks.written))
	require.Equal(w.t, strconv.Itoa(w.clicks.written), c.value(`SELECT count(DISTINCT n) FROM v_temporal`))
	w.checkWindows(c)
	w.checkClosed(c)
	require.Empty(w.t, c.exec(`SELECT * FROM streamdb.errors`))
	for _, s := range w.copies {
		if s.relation != movingView {
			s.check(w.t, c)
		}
	}
	for _, l := range w.beside {
		l.check(c)
	}
}

// sameRows compares a view with its query. A difference is shown together with where the jobs and checkpoints are.
func (c *client) sameRows(view, query string) {
	c.t.Helper()
	want, got := lines(c.exec(query)), lines(c.exec(`SELECT * FROM `+view))
	if want == got {
		return
	}
	for _, sql := range []string{`SELECT * FROM streamdb.jobs`, `SELECT * FROM streamdb.checkpoints`, `SELECT * FROM ` + view, `FLUSH`, `SELECT * FROM ` + view} {
		c.t.Logf("%s\n%s", sql, lines(c.exec(sql)))
	}
	require.Equal(c.t, want, got, "view %s against its query\nserver: %s", view, c.p.log)
}

// checkWindows compares the windows, which go on growing, with the bids until the last that is in them.
func (w *workload) checkWindows(c *client) {
	w.t.Helper()
	rows := c.exec(`SELECT * FROM v_window`)
	last := ""
	for _, r := range rows {
		last = max(last, r[len(r)-1])
	}
	if last == "" {
		return
	}
	// ISO timestamps without fraction sort before those with one, so text order is time order.
	want := c.exec(fmt.Sprintf(windowQuery, "bid_all", `WHERE date_time <= TIMESTAMP '`+last+`'`))
	require.Equal(w.t, lines(want), lines(rows), "windows until %s", last)
}

// checkClosed compares the windows that were closed with all bids of them.
func (w *workload) checkClosed(c *client) {
	w.t.Helper()
	rows := c.exec(`SELECT * FROM v_closed`)
	last := ""
	for _, r := range rows {
		last = max(last, r[0])
	}
	if last == "" {
		return
	}
	if w.closed == nil {
		w.closed = c.exec(fmt.Sprintf(closedQuery, "bid_all"))
	}
	want := slices.DeleteFunc(slices.Clone(w.closed), func(r []string) bool { return r[0] > last })
	require.Equal(w.t, lines(want), lines(rows), "closed windows until %s", last)
}

// finish waits for the end of the generated bids and compares the windows with all of them.
func (w *workload) finish(c *client) {
	w.t.Helper()
	c.wait(`SELECT coalesce(sum(bids), 0) FROM v_window`, strconv.Itoa(bidEvents/bidCycle*bidsInCycle))
	require.Equal(w.t, lines(c.exec(fmt.Sprintf(windowQuery, "bid_all", ""))), lines(c.exec(`SELECT * FROM v_window`)))
}

// acknowledged counts the statements that the server said are done.
func (w *workload) acknowledged() (n int) {
	for _, wr := range w.writers {
		n += wr.acknowledged
	}
	return n
}

// conflicts counts the transactions that had to be tried again.
func (w *workload) conflicts() (n int) {
	for _, wr := range w.writers {
		n += wr.conflicts
	}
	return n + w.schema.conflicts
}

// model is what the rows of one writer must be.
type model struct {
	accounts map[int]string // id → region|balance
	orders   map[int]string // id → account|amount
	journal  int            // rows 1 … journal
}

func (m model) clone() model {
	return model{accounts: maps.Clone(m.accounts), orders: maps.Clone(m.orders), journal: m.journal}
}

func (m model) String() string {
	var b strings.Builder
	for _, t := range []struct {
		name string
		rows map[int]string
	}{{"account", m.accounts}, {"order", m.orders}} {
		for _, id := range slices.Sorted(maps.Keys(t.rows)) {
			fmt.Fprintf(&b, "%s %d|%s\n", t.name, id, t.rows[id])
		}
	}
	fmt.Fprintf(&b, "journal %d", m.journal)
	return b.String()
}

// writer changes rows that are its own, one statement or transaction after the other, and knows which of them were acknowledged.
type writer struct {
	id           int
	rng          *rand.Rand
	next         int
	done         model
	doubt        *model // sent when the connection broke: it happened wholly or not at all
	acknowledged int
	conflicts    int // statements refused with 40001
}

const serializationFailure = "40001"

func newWriter(id int, seed uint64) *writer {
	w := &writer{id: id, rng: rand.New(rand.NewPCG(seed, uint64(id))), done: model{accounts: map[int]string{}, orders: map[int]string{}}}
	for i := range accountsPerWriter {
		w.done.accounts[i*writers+id] = "region " + strconv.Itoa(i%9) + "|0"
	}
	return w
}

func (w *writer) firstRows() string {
	var rows []string
	for _, id := range slices.Sorted(maps.Keys(w.done.accounts)) {
		region, balance, _ := strings.Cut(w.done.accounts[id], "|")
		rows = append(rows, fmt.Sprintf("(%d, '%s', %s)", id, region, balance))
	}
	return `INSERT INTO accounts VALUES ` + strings.Join(rows, ", ")
}

func (w *writer) account() int { return w.rng.IntN(accountsPerWriter)*writers + w.id }

func (w *writer) newOrder(m *model) (row string) {
	id := w.next*writers + w.id
	w.next++
	account := w.account()
	if w.rng.IntN(10) == 0 {
		account = -id - 1 // of no account
	}
	amount := w.rng.IntN(1_000_000)
	m.orders[id] = fmt.Sprintf("%d|%d", account, amount)
	return fmt.Sprintf("(%d, %d, %d)", id, account, amount)
}

func (w *writer) someOrder(m *model) int {
	ids := slices.Sorted(maps.Keys(m.orders))
	return ids[w.rng.IntN(len(ids))]
}

// change makes a statement or transaction, and what the rows are after it.
func (w *writer) change() (sql string, after model) {
	after = w.done.clone()
	kind := w.rng.IntN(10)
	if len(after.orders) == 0 {
		kind = 0
	}
	if len(after.orders) > liveOrders {
		kind = 9
	}
	switch kind {
	case 0, 1, 2, 3: // three tables in one transaction
		order, account := w.newOrder(&after), w.account()
		after.journal++
		region, balance := fmt.Sprintf("region %d", w.rng.IntN(9)), w.rng.IntN(1000)
		after.accounts[account] = fmt.Sprintf("%s|%d", region, balance)
		sql = fmt.Sprintf(`BEGIN; INSERT INTO orders VALUES %s; INSERT INTO journal VALUES (%d, %d);
			UPDATE accounts SET region = '%s', balance = %d WHERE id = %d; COMMIT`, order, w.id, after.journal, region, balance, account)
	case 4, 5:
		id, amount := w.someOrder(&after), w.rng.IntN(1_000_000)
		account, _, _ := strings.Cut(after.orders[id], "|")
		after.orders[id] = fmt.Sprintf("%s|%d", account, amount)
		sql = fmt.Sprintf(`UPDATE orders SET amount = %d WHERE id = %d`, amount, id)
	case 6:
		id := w.someOrder(&after)
		delete(after.orders, id)
		sql = fmt.Sprintf(`DELETE FROM orders WHERE id = %d`, id)
	case 7:
		after.journal++
		sql = fmt.Sprintf(`INSERT INTO journal VALUES (%d, %d)`, w.id, after.journal)
	case 8:
		var rows []string
		for range bulkRows {
			rows = append(rows, w.newOrder(&after))
		}
		sql = `INSERT INTO orders VALUES ` + strings.Join(rows, ", ")
	default:
		ids := slices.Sorted(maps.Keys(after.orders))
		ids = ids[:(len(ids)+1)/2]
		for _, id := range ids {
			delete(after.orders, id)
		}
		sql = fmt.Sprintf(`DELETE FROM orders WHERE id %% %d = %d AND id <= %d`, writers, w.id, ids[len(ids)-1])
		if ids[0] < 0 {
			panic("order numbers are not negative")
		}
	}
	return sql, after
}

// run writes until the server is gone or stop is closed.
func (w *writer) run(t *testing.T, p *process, stop <-chan struct{}) {
	repeat(p, stop, func(conn *pgconn.PgConn) bool {
		sql, after := w.change()
		switch perform(t, p, conn, "writer "+strconv.Itoa(w.id), sql) {
		case performed:
			w.done = after
			w.acknowledged++
		case conflicted:
			w.conflicts++
		case unknown:
			w.doubt = &after
			return false
		case failed:
			return false
		}
		return true
	})
}

// repeat connects and takes steps until one of them says that it was the last, or stop is closed.
func repeat(p *process, stop <-chan struct{}, step func(*pgconn.PgConn) bool) {
	conn, err := p.connect(context.Background())
	if err != nil {
		return // killed already
	}
	defer conn.Close(context.Background())
	for {
		select {
		case <-stop:
			return
		default:
		}
		if !step(conn) {
			return
		}
	}
}

// outcome is what a client knows of a statement that it sent.
type outcome int

const (
	performed outcome = iota
	conflicted
	unknown // the connection broke: it happened wholly or not at all
	failed  // the test did
)

// perform runs a statement or transaction of a writer.
func perform(t *testing.T, p *process, conn *pgconn.PgConn, who, sql string) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	_, err := query(ctx, conn, sql)
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return performed
	case ctx.Err() != nil:
		t.Errorf("%s: no answer in %s: %s\n%s", who, statementTimeout, sql, p.log)
		return unknown
	case errors.As(err, &refused) && refused.Code == serializationFailure:
		// Snapshots may be older than what another session wrote last. Nothing happened; a client tries again.
		_, _ = query(ctx, conn, `ROLLBACK`) // the next statement finds out if that fails
		return conflicted
	case errors.As(err, &refused) && p.alive() && !conn.IsClosed():
		t.Errorf("%s: %v: %s", who, err, sql)
		return failed
	}
	return unknown
}

// settle reads the writer's rows: they are those acknowledged, with or without the one change in doubt.
func (w *writer) settle(t *testing.T, c *client) {
	t.Helper()
	got := model{accounts: map[int]string{}, orders: map[int]string{}}
	read := func(into map[int]string, sql string) {
		for _, r := range c.exec(fmt.Sprintf(sql, writers, w.id)) {
			id, err := strconv.Atoi(r[0])
			require.NoError(t, err)
			require.NotContains(t, into, id, "a key twice")
			into[id] = strings.Join(r[1:], "|")
		}
	}
	read(got.accounts, `SELECT id, region, balance FROM accounts WHERE id %% %d = %d`)
	read(got.orders, `SELECT id, account, amount FROM orders WHERE id %% %d = %d`)
	numbers := c.exec(fmt.Sprintf(`SELECT n FROM journal WHERE writer = %d ORDER BY n`, w.id))
	for i, r := range numbers {
		require.Equal(t, strconv.Itoa(i+1), r[0], "journal of writer %d: a row is lost or doubled", w.id)
	}
	got.journal = len(numbers)
	if w.doubt != nil && got.String() == w.doubt.String() {
		w.done = *w.doubt
	}
	w.doubt = nil
	require.Equal(t, w.done.String(), got.String(), "rows of writer %d against what was acknowledged", w.id)
}

// clickFile grows line by line, sometimes by half a line.
type clickFile struct {
	path    string
	rng     *rand.Rand
	written int
}

func (f *clickFile) run(t *testing.T, p *process, stop <-chan struct{}) {
	out, err := os.OpenFile(f.path, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Error(err)
		return
	}
	defer out.Close()
	tick := time.NewTicker(clickEvery)
	defer tick.Stop()
	for {
		var lines bytes.Buffer
		for range 1 + f.rng.IntN(clicksAtOnce) {
			f.written++
			fmt.Fprintf(&lines, "{\"n\": %d, \"account\": %d, \"page\": \"page %d\"}\n", f.written, f.rng.IntN(writers*accountsPerWriter), f.rng.IntN(clickPages))
		}
		half := f.rng.IntN(lines.Len())
		for _, part := range [][]byte{lines.Bytes()[:half], lines.Bytes()[half:]} {
			if _, err := out.Write(part); err != nil {
				t.Error(err)
				return
			}
		}
		select {
		case <-stop:
			return
		case <-p.done:
			return
		case <-tick.C:
		}
	}
}
