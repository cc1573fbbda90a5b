package exec

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/planner"
)

const testAccounts = 20

// accounts makes accounts with 100 each, and views whose answers are known at every instant.
func accounts(d *testDB) {
	d.table("accounts", "id int8, bal int8")
	d.table("transfers", "id int8, amount int8")
	var rows []string
	for i := range testAccounts {
		rows = append(rows, fmt.Sprintf("+%d,100", i))
	}
	d.exec("accounts " + strings.Join(rows, " "))
	d.view("total", "select sum(bal) as s from accounts", 2)
	d.view("spread", "select bal % 10 as k, count(*) as n, sum(bal) as s from accounts group by bal % 10", 3)
	d.view("fees", "select coalesce(sum(amount), 0) as s from transfers", 1)
	d.view("none", "select id from transfers where amount < 0", 1) // never has rows
	d.view("all_in", "select total.s + fees.s as s from total, fees where not exists (select 1 from none)", 1)
}

// transfer moves money and takes a fee of 1, which transfers records: balances and fees always add up to the same.
func transfer(d *testDB, r *rand.Rand, id int) error {
	a, b := r.IntN(testAccounts), r.IntN(testAccounts)
	if a == b {
		return nil
	}
	rel := d.rel("accounts")
	v := rel.Latest()
	defer v.Release()
	w := TableWrite{Table: rel}
	for i, acc := range [2]int{a, b} {
		key, _ := encode(rel, fmt.Sprintf("%d,0", acc))
		old, ok, err := v.Get(0, key)
		if err != nil || !ok {
			return fmt.Errorf("account %d: %v %w", acc, ok, err)
		}
		old = append([]byte(nil), old...)
		bal := decodeInt(rel, old, 1)
		_, row := encode(rel, fmt.Sprintf("%d,%d", acc, bal+int64([2]int{-8, 7}[i])))
		w.Changes = append(w.Changes, Change{Key: key, Old: old, New: row})
	}
	t := d.rel("transfers")
	key, row := encode(t, fmt.Sprintf("%d,1", id))
	_, err := d.engine.Commit(context.Background(), []TableWrite{w, {Table: t, Changes: []Change{{Key: key, New: row}}}})
	return err
}

// TestOneInstant (P3): whatever is pinned together adds up, while writers run and checkpoints are made.
func TestOneInstant(t *testing.T) {
	d := openDB(t, testOptions{})
	accounts(d)
	p, err := planner.PlanQuery(d.parse(`select (select sum(bal) from accounts) + (select coalesce(sum(amount), 0) from transfers),
		(select s from total) + (select s from fees), (select sum(s) from spread) + (select s from fees), (select s from all_in), (select sum(n) from spread)`), d.planOptions(0, 1))
	require.NoError(t, err)
	rels, err := d.engine.Relations(p.Plan.Inputs)
	require.NoError(t, err)
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for i := w; ; i += 2 {
				select {
				case <-stop:
					return
				default:
				}
				_ = transfer(d, r, i) // conflicts are part of it
			}
		})
	}
	want := []string{"2000,2000,2000,2000,20"}
	last := uint64(0)
	for i := range 150 {
		if i%30 == 29 {
			d.checkpoint()
		}
		var min uint64
		if i%2 == 0 {
			min = d.engine.Epoch()
		}
		pins, err := d.engine.Pin(d.ctx(), rels, min)
		if err != nil {
			t.Fatalf("%v\n%s", err, d.describe())
		}
		require.GreaterOrEqual(t, pins.Epoch, min)
		require.GreaterOrEqual(t, pins.Epoch, last, "time does not go back")
		last = pins.Epoch
		require.Equal(t, want, d.run(p, pins))
		pins.Release()
	}
	close(stop)
	writers.Wait()
	d.same()
	every := make([]*Relation, 0, len(d.engine.rels))
	for _, r := range d.engine.rels {
		every = append(every, r)
	}
	snap := d.engine.Snapshot()
	all, err := snap.Pin(d.ctx(), every)
	require.NoError(t, err)
	require.Empty(t, all.Stale)
	require.Len(t, all.Versions, 7)
	require.Equal(t, want, d.run(p, all))
	snap.Release()
	d.reopen()
	d.same()
	require.Equal(t, want, d.query("select (select s from total) + (select s from fees), 2000, 2000, (select s from all_in), (select sum(n) from spread)", d.engine.Epoch()))
}

// TestViewWithoutChangesWakesReaders: a view whose result did not change still lets its readers go on with what changed elsewhere.
func TestViewWithoutChangesWakesReaders(t *testing.T) {
	d := openDB(t, testOptions{})
	d.table("t", "id int8, v int8")
	d.table("u", "id int8, v int8")
	d.view("big", "select id, v from t where v > 100", 1)
	d.view("bigger", "select id, v from big where v > 1000", 1)
	d.view("pairs", "select u.id, bigger.v from u left join bigger on u.id = bigger.id", 1)
	for i := range 20 {
		e := d.exec(fmt.Sprintf("t +%d,%d; u +%d,0", i, i, i))
		require.Len(t, d.query("select * from pairs", e), i+1)
	}
	e := d.exec("t +3,5000")
	require.Contains(t, d.query("select * from pairs", e), "3,5000")
	d.same()
	d.checkpoint()
	require.Equal(t, d.covered("pairs"), d.covered("big"))
}

// TestVersionsOfASlowReader: versions that a lagging view has to be read with are kept, in bounded number.
func TestVersionsOfASlowReader(t *testing.T) {
	d := openDB(t, testOptions{noWAL: true})
	d.table("t", "id int8, v int8")
	j := d.view("s", "select sum(v) as s from t", 1)
	d.exec("t +0,0")
	d.query("select * from s", d.engine.Epoch())
	hold := make(chan struct{})
	held := j.hold(hold)
	d.exec("t +1,1")
	d.wait(held, "the job is held")
	for i := range 3 * maxVersions {
		d.exec(fmt.Sprintf("t +1,%d", i))
	}
	rel := d.rel("t")
	rel.mu.Lock()
	n := len(rel.versions)
	rel.mu.Unlock()
	require.LessOrEqual(t, n, 2*maxVersions)
	p, err := planner.PlanQuery(d.parse("select (select s from s), (select sum(v) from t)"), d.planOptions(0, 1))
	require.NoError(t, err)
	rels, err := d.engine.Relations(p.Plan.Inputs)
	require.NoError(t, err)
	pins := d.engine.tryPin(rels, 0, false)
	require.NotNil(t, pins, "there is an epoch that both have")
	got := strings.Split(d.run(p, pins)[0], ",")
	require.Equal(t, got[0], got[1])
	pins.Release()
	close(hold)
	d.same()
}

// TestSnapshotDoesNotWaitForViews: a transaction block sees the newest commit although a view lags, and the view at the same epoch once it
// has come there, whatever was committed meanwhile.
func TestSnapshotDoesNotWaitForViews(t *testing.T) {
	d := openDB(t, testOptions{noWAL: true})
	d.table("t", "id int8, v int8")
	j := d.view("s", "select sum(v) as s from t", 1)
	d.exec("t +0,1")
	d.query("select * from s", d.engine.Epoch())
	hold := make(chan struct{})
	held := j.hold(hold)
	d.exec("t +1,10")
	d.wait(held, "the job is held")
	d.exec("t +2,100")
	snap := d.engine.Snapshot()
	for i := range 50 {
		d.exec(fmt.Sprintf("t +%d,1000", i+3))
	}
	pins, err := snap.Pin(d.ctx(), []*Relation{d.rel("t")})
	require.NoError(t, err)
	p, err := planner.PlanQuery(d.parse("select sum(v) from t"), d.planOptions(0, 1))
	require.NoError(t, err)
	require.Equal(t, []string{"111"}, d.run(p, pins))
	close(hold)
	pins, err = snap.Pin(d.ctx(), []*Relation{d.rel("t"), d.rel("s")})
	require.NoError(t, err)
	p, err = planner.PlanQuery(d.parse("select (select s from s), (select sum(v) from t)"), d.planOptions(0, 1))
	require.NoError(t, err)
	require.Equal(t, []string{"111,111"}, d.run(p, pins))
	snap.Release()
	d.same()
}
