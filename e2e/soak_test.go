//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// Shape of the soak.
const (
	defaultSoakKills = 6
	soakSplits       = 3 // of the generated events
	mixedEvents      = 60_000
	mixedRate        = 1500 // per second
	disturbEvery     = 150 * time.Millisecond
	keptSavepoints   = 2
)

const (
	ofOrders = `SELECT a.region, count(*) AS orders, sum(o.amount) AS total FROM orders o JOIN accounts a ON o.account = a.id GROUP BY a.region`
	ofClicks = `SELECT page, count(*) AS clicks, sum(n) AS total FROM %s GROUP BY page`
	ofBids   = `SELECT channel, count(*) AS bids, sum(price) AS total FROM %s GROUP BY channel`
	ofSales  = `SELECT a.category, count(*) AS bids, max(b.price) AS highest FROM %s b JOIN %s a ON b.auction = a.id GROUP BY a.category`
)

// mixedView is a view with checkpoints of its own kind.
type mixedView struct {
	name, settings, query string
	twin                  string // the query over all that its source will ever have, where it reads generated events
	doubles               bool   // at least once, through several channels: never less than the twin
}

const setting = `"execution.checkpointing.%s" = '%s'`

func with(pairs ...string) string {
	var out []string
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, fmt.Sprintf(setting, pairs[i], pairs[i+1]))
	}
	return strings.Join(out, ", ")
}

// mixed are views over the relations of the workload, and over generated events in several splits.
var mixed = []mixedView{
	{name: "m_unaligned", settings: with("unaligned.enabled", "true") + ", parallelism = 2", query: ofOrders},
	{name: "m_timeout", settings: with("unaligned.enabled", "true", "aligned-checkpoint-timeout", "20ms"), query: `SELECT account % 7 AS g, count(*) AS kinds FROM v_distinct GROUP BY 1`},
	{name: "m_over", settings: with("interval", "70ms"), query: `SELECT orders % 5 AS g, count(*) AS regions, sum(total) AS total FROM m_unaligned GROUP BY 1`},
	{name: "m_rare", settings: with("interval", "5s"), query: `SELECT account % 11 AS g, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY 1`},
	{name: "m_many", settings: with("interval", "30ms", "max-concurrent-checkpoints", "2"), query: `SELECT o.id, a.region, o.amount FROM orders o JOIN accounts a ON a.id = o.account`},
	{name: "m_whole", settings: with("incremental", "false"), query: `SELECT writer, count(*) AS entries, max(n) AS last FROM journal GROUP BY writer`},
	{name: "m_least", settings: with("mode", "AT_LEAST_ONCE") + ", parallelism = 1", query: fmt.Sprintf(ofClicks, "clicks")},
	{name: "m_least_bids", settings: with("mode", "AT_LEAST_ONCE") + ", parallelism = 3, background = true", query: fmt.Sprintf(ofBids, "mixed_bid"), twin: fmt.Sprintf(ofBids, "mixed_bid_all"), doubles: true},
	{name: "m_bids", settings: with("unaligned.enabled", "true") + ", parallelism = 3, background = true", query: fmt.Sprintf(ofBids, "mixed_bid"), twin: fmt.Sprintf(ofBids, "mixed_bid_all")},
	{name: "m_sales", settings: with("unaligned.enabled", "true", "interval", "100ms") + ", parallelism = 2, background = true", query: fmt.Sprintf(ofSales, "mixed_bid", "mixed_auction"), twin: fmt.Sprintf(ofSales, "mixed_bid_all", "mixed_auction_all")},
	{name: "m_aligned", settings: "parallelism = 2, background = true", query: fmt.Sprintf(ofSales, "mixed_bid", "mixed_auction"), twin: fmt.Sprintf(ofSales, "mixed_bid_all", "mixed_auction_all")},
}

// mixedJobs are a load beside the workload: views whose checkpoints are each of another kind, exactly-once sinks, and a client that makes savepoints, pauses,
// resumes and changes settings while the server is killed.
type mixedJobs struct {
	t          *testing.T
	w          *workload
	rng        *rand.Rand
	dir        string
	savepoints []string // complete ones that are kept
	made       map[string]int
	refused    map[string]int
}

func newMixedJobs(t *testing.T, seed uint64) *mixedJobs {
	return &mixedJobs{t: t, dir: t.TempDir(), rng: rand.New(rand.NewPCG(seed, 2000)), made: map[string]int{}, refused: map[string]int{}}
}

func (m *mixedJobs) create(c *client, w *workload) {
	m.t.Helper()
	m.w = w
	w.copies = nil // the histories of views that are behind at a crash begin anew
	for _, s := range []struct{ name, table string }{{"mixed_bid", "Bid"}, {"mixed_auction", "Auction"}} {
		for _, all := range []struct {
			suffix string
			rate   int
		}{{"", mixedRate}, {"_all", 0}} {
			c.exec(fmt.Sprintf(`CREATE SOURCE %s%s WITH (connector = 'nexmark', nexmark.table.type = '%s', nexmark.event.num = '%d', nexmark.event.rate = '%d', nexmark.split.num = '%d')`,
				s.name, all.suffix, s.table, mixedEvents, all.rate, soakSplits))
		}
	}
	for _, v := range mixed {
		c.exec(`CREATE MATERIALIZED VIEW ` + v.name + ` WITH (` + v.settings + `) AS ` + v.query)
	}
	c.exec(`CREATE SINK k_clicks AS SELECT n, account, page FROM clicks WITH (connector = 'file', path = '` + m.folder("clicks") + `') FORMAT PLAIN ENCODE JSON`)
	c.exec(`CREATE SINK k_upserts FROM v_journal WITH (connector = 'file', path = '` + m.folder("upserts") + `') FORMAT UPSERT ENCODE JSON`)
}

func (m *mixedJobs) folder(name string) string { return filepath.Join(m.dir, name) }

// run disturbs the jobs until stop is closed or the server is gone.
func (m *mixedJobs) run(p *process, stop <-chan struct{}) {
	tick := time.NewTicker(disturbEvery)
	defer tick.Stop()
	repeat(p, stop, func(conn *pgconn.PgConn) bool {
		ok := m.disturb(p, conn)
		select {
		case <-stop:
		case <-p.done:
		case <-tick.C:
		}
		return ok
	})
}

func (m *mixedJobs) disturb(p *process, conn *pgconn.PgConn) (connected bool) {
	v := mixed[m.rng.IntN(len(mixed))].name
	kind, sql := "", ""
	switch m.rng.IntN(9) {
	case 0, 1:
		format := []string{"native", "canonical"}[m.rng.IntN(2)]
		kind, sql = "savepoint "+format, fmt.Sprintf(`SELECT streamdb.savepoint('file://%s', format => '%s')`, m.folder("savepoints"), format)
	case 2:
		kind, sql = "savepoint of one", fmt.Sprintf(`SELECT streamdb.savepoint('file://%s', relation => '%s')`, m.folder("savepoints"), v)
	case 3:
		kind, sql = "pause", `PAUSE `+v
	case 4:
		kind, sql = "resume", `RESUME `+v
	case 5:
		kind, sql = "interval", `ALTER MATERIALIZED VIEW `+v+` SET (`+with("interval", strconv.Itoa(20+m.rng.IntN(2000))+"ms")+`)`
	case 6:
		kind, sql = "parallelism", fmt.Sprintf(`ALTER MATERIALIZED VIEW %s SET (parallelism = %d)`, v, 1+m.rng.IntN(3))
		if v == "m_least" {
			return true // with one channel it is exact
		}
	case 7:
		kind, sql = "checkpoint", `CHECKPOINT`
	default:
		kind, sql = "full checkpoint", `CHECKPOINT WITH (type = full)`
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), statementTimeout)
	defer cancel()
	rows, err := query(ctx, conn, sql)
	if err == nil {
		m.made[kind]++
		if strings.HasPrefix(kind, "savepoint") {
			m.keep(conn, rows[0][0])
		}
		return true
	}
	if ctx.Err() != nil && m.t.Context().Err() == nil {
		m.t.Errorf("no answer in %s: %s\n%s", statementTimeout, sql, p.log)
		return false
	}
	if refused := (*pgconn.PgError)(nil); !errors.As(err, &refused) || conn.IsClosed() {
		return false
	}
	_, message := code(err)
	m.refused[kind+": "+message]++
	return true
}

// keep adds a savepoint and disposes of the oldest.
func (m *mixedJobs) keep(conn *pgconn.PgConn, path string) {
	m.savepoints = append(m.savepoints, path)
	if len(m.savepoints) > keptSavepoints {
		_, _ = query(m.t.Context(), conn, `SELECT streamdb.dispose_savepoint('`+m.savepoints[0]+`')`)
		m.savepoints = m.savepoints[1:]
	}
}

// check compares everything with what it must be. Nobody else may write, and the file has been read.
func (m *mixedJobs) check(c *client) {
	m.t.Helper()
	for _, v := range mixed {
		c.exec(`RESUME ` + v.name)
	}
	c.flush()
	clicks := strconv.Itoa(m.w.clicks.written)
	c.wait(`SELECT coalesce(sum(clicks), 0) FROM m_least`, clicks)
	for _, v := range mixed {
		switch {
		case v.twin != "":
		case v.name == "m_least":
			c.sameRows(v.name, fmt.Sprintf(ofClicks, "clicks_all"))
		default:
			c.sameRows(v.name, v.query)
		}
	}
	c.exec(`CHECKPOINT`)
	m.sameInFiles(c, "clicks", clicks, "", func(lines []string) string {
		seen := map[int]bool{}
		for _, l := range lines {
			var row struct{ N int }
			require.NoError(m.t, json.Unmarshal([]byte(l), &row), l)
			require.False(m.t, seen[row.N], "line %d twice in the sink", row.N)
			seen[row.N] = true
		}
		return strconv.Itoa(len(seen))
	})
	m.sameInFiles(c, "upserts", c.value(`SELECT coalesce(sum(last), 0) FROM v_journal`), "", func(upserts []string) string {
		last, sum := map[int]int{}, 0 // numbers only grow, in files whose order is not known
		for _, l := range upserts {
			var row struct{ Writer, Last int }
			require.NoError(m.t, json.Unmarshal([]byte(l), &row), l)
			last[row.Writer] = max(last[row.Writer], row.Last)
		}
		for _, n := range last {
			sum += n
		}
		return strconv.Itoa(sum)
	})
}

// sameInFiles waits until what fold makes of the lines of a sink's files is what a query gives, or want.
func (m *mixedJobs) sameInFiles(c *client, folder, want, sql string, fold func([]string) string) {
	m.t.Helper()
	if want == "" {
		want = lines(c.exec(sql))
	}
	got := ""
	if !eventually(sinkTimeout, func() bool { got = fold(m.sunk(folder)); return got == want }) {
		m.t.Logf("%s", lines(c.exec(`SELECT * FROM streamdb.jobs WHERE name LIKE 'k_%'`)))
		require.Equal(m.t, want, got, "sink %s\nserver: %s", folder, c.p.log)
	}
}

// sunk reads the files of a sink that have appeared.
func (m *mixedJobs) sunk(folder string) (all []string) {
	m.t.Helper()
	paths, err := filepath.Glob(filepath.Join(m.folder(folder), "[^.]*"))
	require.NoError(m.t, err)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(m.t, err)
		for l := range strings.Lines(string(data)) {
			all = append(all, l)
		}
	}
	return all
}

// finish waits for the end of the generated events, looks at the savepoints that are left, and lets a new server begin from one.
func (m *mixedJobs) finish(c *client) {
	m.t.Helper()
	for _, v := range mixed {
		if v.twin == "" {
			continue
		}
		if !v.doubles {
			want, got := lines(c.exec(v.twin)), ""
			if !eventually(statementTimeout, func() bool { got = lines(c.exec(`TABLE ` + v.name)); return got == want }) {
				require.Equal(m.t, want, got, v.name)
			}
			continue
		}
		c.wait(`SELECT count(*) FROM (`+v.twin+`) q LEFT JOIN `+v.name+` v ON v.channel = q.channel WHERE coalesce(v.bids, 0) < q.bids`, "0")
	}
	path := strings.TrimPrefix(c.value(`SELECT streamdb.savepoint('file://`+m.folder("savepoints")+`')`), "file://")
	m.savepoints = append(m.savepoints, "file://"+path)
	for _, s := range m.savepoints {
		exit, out := command(m.t, nil, "checkpoint", "verify", s)
		require.Equal(m.t, 0, exit, "%s: %s", s, out)
	}
	// The sinks of the new server would write to the same folders: it only has to be what the old one was.
	fresh := serve(m.t, serveOptions{dataDir: m.folder("restored"), settings: []string{"execution.state-recovery.path=file://" + path}})
	n := fresh.client(m.t)
	for _, v := range slices.Concat([]string{"accounts", "orders", "journal"}, names()) {
		require.Equal(m.t, lines(c.exec(`TABLE `+v)), lines(n.exec(`TABLE `+v)), "%s from the savepoint", v)
	}
	fresh.kill()
	var report strings.Builder
	for _, counts := range []map[string]int{m.made, m.refused} {
		for what, n := range counts {
			fmt.Fprintf(&report, "%4d  %s\n", n, what)
		}
	}
	m.t.Logf("done, and refused:\n%s", &report)
}

func names() (out []string) {
	for _, v := range mixed {
		out = append(out, v.name)
	}
	for _, v := range views {
		out = append(out, v.name)
	}
	return out
}

// TestSoak kills a server with jobs of all kinds at random moments, and at all places where a process may die.
func TestSoak(t *testing.T) {
	seed := uint64(intEnv(t, "STREAMDB_E2E_SEED", defaultSeed))
	killLoop(t, serveOptions{dataDir: filepath.Join(t.TempDir(), "data"), settings: crashSettings}, intEnv(t, "STREAMDB_E2E_SOAK", defaultSoakKills), newMixedJobs(t, seed))
}
