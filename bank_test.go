package streamdb_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/streamdb/streamdb"
)

var (
	bankTransfers = flag.Int("bank.transfers", 0, "transfers per round of TestBank instead of its usual number")
	bankSeed      = flag.Uint64("bank.seed", 1, "seed of TestBank")
)

const (
	bankAccounts = 40
	bankStart    = 1000 // balance of a new account
	bankWriters  = 4
	bankReaders  = 3
	bankUsual    = 150 // transfers per round
	bankPatience = 30 * time.Second
)

// bankSchema is a bank that keeps each transfer as two entries, beside the accounts' balances, and views that look at both in different ways.
var bankSchema = []string{
	"CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL)",
	"CREATE TABLE entries (transfer bigint, side text, account int NOT NULL, amount bigint NOT NULL, PRIMARY KEY (transfer, side))",
	fmt.Sprintf("INSERT INTO accounts SELECT i, %d FROM generate_series(1, %d) AS i", bankStart, bankAccounts),
	"CREATE MATERIALIZED VIEW total AS SELECT sum(balance) AS sum, count(*) AS n FROM accounts",
	// Debits joined with credits: a transfer that is seen in half shows up padded.
	`CREATE MATERIALIZED VIEW pairs WITH (parallelism = 2, retention = '1 hour') AS SELECT d.transfer AS debit_of, c.transfer AS credit_of, d.amount AS debit, c.amount AS credit
		FROM (SELECT * FROM entries WHERE side = 'debit') AS d FULL JOIN (SELECT * FROM entries WHERE side = 'credit') AS c ON d.transfer = c.transfer`,
	// Balances against the entries that made them.
	`CREATE MATERIALIZED VIEW flows WITH (parallelism = 3, retention = '1 hour') AS SELECT a.id, a.balance, coalesce(f.flow, 0) AS flow FROM accounts AS a
		LEFT JOIN (SELECT account, sum(CASE side WHEN 'credit' THEN amount ELSE -amount END) AS flow FROM entries GROUP BY account) AS f ON f.account = a.id`,
	"CREATE MATERIALIZED VIEW flow_total AS SELECT sum(balance) AS balance, sum(flow) AS flow FROM flows", // a view over a view
	"CREATE MATERIALIZED VIEW rich AS SELECT id, balance FROM accounts ORDER BY balance DESC, id LIMIT 5",
	"CREATE MATERIALIZED VIEW ranks AS SELECT id, balance, sum(balance) OVER (ORDER BY id) AS running FROM accounts",
}

// bankChecks are queries that must answer with no row at every moment.
var bankChecks = []string{
	fmt.Sprintf("SELECT * FROM total WHERE sum <> %d OR n <> %d", bankStart*bankAccounts, bankAccounts),
	"SELECT debit_of, debit, credit FROM pairs WHERE debit IS DISTINCT FROM credit",
	fmt.Sprintf("SELECT id, balance, flow FROM flows WHERE balance <> %d + flow", bankStart),
	fmt.Sprintf("SELECT balance, flow FROM flow_total WHERE balance <> %d OR flow <> 0", bankStart*bankAccounts),
	// One instant of tables and several views.
	"SELECT * FROM (SELECT (SELECT sum FROM total), (SELECT sum(balance) FROM accounts) AS table_sum, (SELECT balance FROM flow_total)) AS s WHERE sum <> table_sum OR sum <> balance",
	"SELECT * FROM (SELECT (SELECT count(*) FROM pairs) AS pairs, (SELECT count(*) FROM entries) AS entries) AS s WHERE 2 * pairs <> entries",
	"SELECT f.id FROM flows AS f FULL JOIN accounts AS a ON a.id = f.id WHERE f.balance IS DISTINCT FROM a.balance",
	"SELECT r.id FROM rich AS r LEFT JOIN flows AS f ON f.id = r.id WHERE r.balance IS DISTINCT FROM f.balance",
	"SELECT max(running) FROM ranks HAVING max(running) FILTER (WHERE id = " + fmt.Sprint(bankAccounts) + fmt.Sprintf(") <> %d", bankStart*bankAccounts),
}

// bankFollowed are relations with a check that their rows must pass after each epoch that a subscriber has taken in.
var bankFollowed = map[string]func(columns []string) bool{
	"pairs": func(c []string) bool { return c[0] == c[1] && c[2] == c[3] },
	"flows": func(c []string) bool { return number64(c[1]) == bankStart+number64(c[2]) },
}

func number64(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return math.MinInt64
	}
	return n
}

// bankCopy is what a subscriber made of a relation's changes.
type bankCopy struct {
	relation string
	epoch    int64            // up to which it is complete, 0: nothing yet
	rows     map[string]int64 // by their text
}

// bank is a database under transfers.
type bank struct {
	t        *testing.T
	db       *streamdb.DB
	next     atomic.Int64 // id of the next transfer
	checks   atomic.Int64
	followed atomic.Int64 // epochs
	anew     atomic.Int64 // how often a subscriber had to begin anew
	copies   []*bankCopy
	limit    int64
	crashed  atomic.Bool

	mu   sync.Mutex
	kept map[int64]bool // acknowledged transfers: whether they are there
}

// TestBank moves money between accounts while readers look: whatever is done to the server meanwhile, every SELECT sees every transfer wholly or not
// at all, in tables, in each view and between them.
func TestBank(t *testing.T) {
	defer goleak.VerifyNone(t)
	rounds := []struct {
		name    string
		disturb func(b *bank, c *pgx.Conn) error
	}{
		{"nothing", nil},
		{"checkpoints", bankStatements("CHECKPOINT", "CHECKPOINT")},
		{"another parallelism", bankStatements("ALTER MATERIALIZED VIEW flows SET (parallelism = 1)", "ALTER MATERIALIZED VIEW pairs SET (parallelism = 3)")},
		{"crash", func(b *bank, _ *pgx.Conn) error { b.crashed.Store(true); return b.db.Abort() }},
		{"restart of all jobs", bankStatements("CHECKPOINT", "RECOVER")},
		{"new view", bankStatements("CREATE MATERIALIZED VIEW later AS SELECT id FROM flows WHERE balance <> 1000 + flow", "DROP MATERIALIZED VIEW later")},
		{"another query", bankStatements("CREATE OR REPLACE MATERIALIZED VIEW flow_total AS SELECT sum(balance) AS balance, sum(flow) AS flow, count(*) AS n FROM flows")},
		{"another query below another view", bankStatements("ALTER MATERIALIZED VIEW flows AS SELECT a.id, a.balance, coalesce(sum(CASE e.side WHEN 'credit' THEN e.amount WHEN 'debit' THEN -e.amount END), 0) AS flow FROM accounts AS a LEFT JOIN entries AS e ON e.account = a.id GROUP BY a.id, a.balance")},
		{"pause", bankStatements("PAUSE ranks", "RESUME ranks")},
		{"crash again", func(b *bank, _ *pgx.Conn) error { b.crashed.Store(true); return b.db.Abort() }},
	}
	o := streamdb.Options{DataDir: t.TempDir(), Memory: 64 << 20, Settings: map[string]string{"execution.checkpointing.interval": "200ms", "chunk_rows": "16"}}
	b := &bank{t: t, kept: map[int64]bool{}}
	for name := range bankFollowed {
		b.copies = append(b.copies, &bankCopy{relation: name, rows: map[string]int64{}})
	}
	perRound := int64(bankUsual)
	if *bankTransfers > 0 {
		perRound = int64(*bankTransfers)
	}
	for i, round := range rounds {
		if b.db == nil {
			var err error
			b.db, err = streamdb.Open(t.Context(), o)
			require.NoError(t, err)
		}
		c := connect(t, b.db)
		if i == 0 {
			exec(t, c, bankSchema...)
		}
		b.limit = b.next.Load() + perRound
		b.round(round.name, func() error {
			if round.disturb == nil {
				return nil
			}
			return round.disturb(b, c)
		})
		if t.Failed() {
			break
		}
		if b.crashed.Swap(false) {
			b.db = nil
			continue
		}
		exec(t, c, "FLUSH")
		b.look(c, "after "+round.name)
		b.sameCopies(c)
		b.complete(c)
		require.NoError(t, c.Close(t.Context()))
	}
	if b.db != nil {
		require.NoError(t, b.db.Close(t.Context()))
	}
	t.Logf("%d transfers, %d checks, subscribers took in %d epochs and began %d times anew", b.next.Load(), b.checks.Load(), b.followed.Load(), b.anew.Load())
}

func bankStatements(list ...string) func(*bank, *pgx.Conn) error {
	return func(b *bank, c *pgx.Conn) error {
		for _, s := range list {
			if _, err := c.Exec(b.t.Context(), s); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
		}
		return nil
	}
}

// round lets writers and readers work until the limit, disturbed in the middle.
func (b *bank) round(name string, disturb func() error) {
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	half := make(chan struct{})
	var once sync.Once
	start := b.next.Load()
	for i := range bankWriters {
		writers.Add(1)
		go func() {
			defer writers.Done()
			b.work(name, func(ctx context.Context, c *pgx.Conn, r *rand.Rand) error {
				for {
					id := b.next.Add(1)
					if id > b.limit || b.t.Failed() {
						once.Do(func() { close(half) })
						return nil
					}
					if id > (start+b.limit)/2 {
						once.Do(func() { close(half) })
					}
					if err := b.transfer(ctx, c, r, id); err != nil {
						return err
					}
				}
			}, uint64(i))
		}()
	}
	for i := range bankReaders {
		readers.Add(1)
		go func() {
			defer readers.Done()
			b.work(name, func(ctx context.Context, c *pgx.Conn, r *rand.Rand) error {
				for {
					select {
					case <-done:
						return nil
					default:
					}
					if b.t.Failed() {
						return nil
					}
					if err := b.read(ctx, c, r); err != nil {
						return err
					}
				}
			}, uint64(100+i))
		}()
	}
	for i, copied := range b.copies {
		readers.Add(1)
		go func() {
			defer readers.Done()
			b.work(name, func(ctx context.Context, c *pgx.Conn, _ *rand.Rand) error { return b.follow(ctx, c, copied, done) }, uint64(200+i))
		}()
	}
	<-half
	if err := disturb(); err != nil {
		b.t.Errorf("%s: %v", name, err)
	}
	writers.Wait()
	close(done)
	readers.Wait()
	b.next.Store(b.limit)
}

// work runs f on a connection of its own. Only a crash may end it with an error.
func (b *bank) work(round string, f func(context.Context, *pgx.Conn, *rand.Rand) error, n uint64) {
	ctx := b.t.Context()
	cfg, err := pgx.ParseConfig("postgres://streamdb@streamdb/streamdb?sslmode=disable")
	if err != nil {
		b.t.Error(err)
		return
	}
	cfg.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"streamdb"}, nil }
	cfg.DialFunc = b.db.DialFunc()
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err == nil {
		defer c.Close(context.Background()) //nolint:errcheck // the server may have crashed
		err = f(ctx, c, rand.New(rand.NewPCG(*bankSeed, n)))
	}
	if err != nil && !b.crashed.Load() {
		b.t.Errorf("%s: %v", round, err)
	}
}

// transfer moves money in one transaction, or takes an earlier transfer back, or changes its amount; conflicts are tried again, and some are given up.
func (b *bank) transfer(ctx context.Context, c *pgx.Conn, r *rand.Rand, id int64) error {
	for {
		err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error { return b.move(ctx, tx, r, id) })
		var pe *pgconn.PgError
		switch {
		case err == nil:
			b.mu.Lock()
			b.kept[id] = true
			b.mu.Unlock()
			return nil
		case errors.Is(err, errGivenUp):
			b.mu.Lock()
			b.kept[id] = false
			b.mu.Unlock()
			return nil
		case errors.As(err, &pe) && (pe.Code == "40001" || pe.Code == "40P01"):
		default:
			return err
		}
	}
}

var errGivenUp = errors.New("the transfer is given up")

func (b *bank) move(ctx context.Context, tx pgx.Tx, r *rand.Rand, id int64) error {
	from, to, amount := 1+r.IntN(bankAccounts), 1+r.IntN(bankAccounts), int64(1+r.IntN(50))
	do := func(sql string, args ...any) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	}
	book := func(from, to int, amount int64) error {
		if r.IntN(2) == 0 {
			return do("UPDATE accounts SET balance = balance + CASE id WHEN $1 THEN -$3::bigint ELSE 0 END + CASE id WHEN $2 THEN $3 ELSE 0 END WHERE id IN ($1, $2)", from, to, amount)
		}
		if err := do("UPDATE accounts SET balance = balance - $2 WHERE id = $1", from, amount); err != nil {
			return err
		}
		return do("UPDATE accounts SET balance = balance + $2 WHERE id = $1", to, amount)
	}
	if r.IntN(4) == 0 { // an earlier one changes or goes
		old := 1 + r.Int64N(id)
		rows, err := tx.Query(ctx, "SELECT account, amount FROM entries WHERE transfer = $1 ORDER BY side", old) // credit, debit
		if err != nil {
			return err
		}
		type entry struct {
			Account int
			Amount  int64
		}
		entries, err := pgx.CollectRows(rows, pgx.RowToStructByPos[entry])
		if err != nil {
			return err
		}
		if len(entries) == 2 {
			credit, debit := entries[0], entries[1]
			if r.IntN(2) == 0 {
				if err := do("UPDATE entries SET amount = amount + $2 WHERE transfer = $1", old, amount); err != nil {
					return err
				}
				if err := book(debit.Account, credit.Account, amount); err != nil {
					return err
				}
			} else {
				if err := do("INSERT INTO entries VALUES ($1, 'debit', $2, $4), ($1, 'credit', $3, $4)", id, credit.Account, debit.Account, debit.Amount); err != nil {
					return err
				}
				return book(credit.Account, debit.Account, debit.Amount)
			}
		}
	}
	if err := do("INSERT INTO entries VALUES ($1, 'debit', $2, $3)", id, from, amount); err != nil {
		return err
	}
	if err := book(from, to, amount); err != nil {
		return err
	}
	if err := do("INSERT INTO entries VALUES ($1, 'credit', $2, $3)", id, to, amount); err != nil {
		return err
	}
	if r.IntN(10) == 0 {
		return errGivenUp
	}
	return nil
}

// read looks once, by single statements or at several views in one transaction.
func (b *bank) read(ctx context.Context, c *pgx.Conn, r *rand.Rand) error {
	if r.IntN(2) == 0 {
		return b.check(ctx, c, bankChecks[r.IntN(len(bankChecks))])
	}
	err := pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		var first, again int64
		if err := tx.QueryRow(ctx, "SELECT sum(id * balance) FROM accounts").Scan(&first); err != nil {
			return err
		}
		if err := b.check(ctx, tx, bankChecks[r.IntN(len(bankChecks))]); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, "SELECT sum(id * balance) FROM accounts").Scan(&again); err != nil {
			return err
		}
		if first != again {
			b.t.Errorf("one transaction sees %d, then %d", first, again)
		}
		return nil
	})
	var pe *pgconn.PgError
	if errors.As(err, &pe) && pe.Code == "40001" {
		return nil // a view has got another query since the transaction began
	}
	return err
}

type bankQuerier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func (b *bank) check(ctx context.Context, c bankQuerier, sql string) error {
	rows, err := c.Query(ctx, sql)
	if err != nil {
		return err
	}
	wrong, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		v, err := row.Values()
		return fmt.Sprint(v), err
	})
	if err != nil {
		return err
	}
	if len(wrong) > 0 {
		b.t.Errorf("%s: %s", sql, strings.Join(wrong, " "))
	}
	b.checks.Add(1)
	return nil
}

// follow keeps a copy up to date by a subscription, until done is closed and the copy has everything. It goes on where it was, over crashes too;
// a view that gets another query ends it, and the copy begins anew.
func (b *bank) follow(ctx context.Context, c *pgx.Conn, copied *bankCopy, done <-chan struct{}) error {
	defer c.Exec(ctx, "CLOSE ALL") //nolint:errcheck // of a connection that may be gone
	for open := false; ; {
		if !open {
			q := "DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE " + copied.relation + " WITH (PROGRESS)"
			if copied.epoch > 0 {
				q += fmt.Sprintf(" AS OF %d", copied.epoch)
			}
			if _, err := c.Exec(ctx, q); err != nil {
				return err
			}
			open = true
		}
		last := false
		select {
		case <-done:
			last = true
		default:
		}
		results, err := c.PgConn().Exec(ctx, "FETCH ALL FROM c WITH (timeout = '100ms')").ReadAll()
		var pe *pgconn.PgError
		if errors.As(err, &pe) && pe.Code == "55000" && !b.crashed.Load() {
			b.anew.Add(1)
			copied.epoch = 0
			clear(copied.rows)
			if _, err := c.Exec(ctx, "CLOSE c"); err != nil {
				return err
			}
			open = false
			continue
		}
		if err != nil {
			return err
		}
		for _, row := range results[0].Rows {
			if string(row[1]) == "t" {
				copied.epoch = number64(string(row[0]))
				b.followed.Add(1)
				b.checkCopy(copied)
				continue
			}
			copied.take(row)
		}
		if last || b.t.Failed() {
			return nil
		}
	}
}

func (copied *bankCopy) take(row [][]byte) {
	var columns []string
	for _, v := range row[3:] {
		if v == nil {
			columns = append(columns, "NULL")
		} else {
			columns = append(columns, string(v))
		}
	}
	key := strings.Join(columns, ",")
	if copied.rows[key] += number64(string(row[2])); copied.rows[key] == 0 {
		delete(copied.rows, key)
	}
}

func (b *bank) checkCopy(copied *bankCopy) {
	for key, n := range copied.rows {
		if n != 1 || !bankFollowed[copied.relation](strings.Split(key, ",")) {
			b.t.Errorf("subscriber to %s in epoch %d: row %s, %d times", copied.relation, copied.epoch, key, n)
		}
	}
}

// look runs all checks.
func (b *bank) look(c *pgx.Conn, when string) {
	for _, q := range bankChecks {
		require.NoError(b.t, b.check(b.t.Context(), c, q), when)
	}
}

// sameCopies checks the copies against the relations, which subscribers get a moment after everybody else: when the changes are kept.
func (b *bank) sameCopies(c *pgx.Conn) {
	done := make(chan struct{})
	close(done)
	for _, copied := range b.copies {
		results, err := c.PgConn().Exec(b.t.Context(), "SELECT 0, '', 1, * FROM "+copied.relation).ReadAll()
		require.NoError(b.t, err)
		now := &bankCopy{rows: map[string]int64{}}
		for _, row := range results[0].Rows {
			now.take(row)
		}
		require.Eventually(b.t, func() bool {
			return b.follow(b.t.Context(), c, copied, done) != nil || b.t.Failed() || maps.Equal(now.rows, copied.rows)
		}, bankPatience, time.Millisecond, "copy of %s", copied.relation)
		require.Equal(b.t, now.rows, copied.rows, "copy of %s", copied.relation)
	}
}

// complete checks that what was acknowledged is there, and what was given up is not.
func (b *bank) complete(c *pgx.Conn) {
	rows, err := c.Query(b.t.Context(), "SELECT DISTINCT transfer FROM entries")
	require.NoError(b.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(b.t, err)
	there := map[int64]bool{}
	for _, id := range ids {
		there[id] = true
	}
	for id, kept := range b.kept {
		require.Equal(b.t, kept, there[id], "transfer %d", id)
	}
}
