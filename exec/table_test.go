package exec

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
)

func requireCode(t *testing.T, code pgerr.Code, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, code, pgerr.From(err).Code, "%v", err)
}

func TestCommit(t *testing.T) {
	d := openDB(t, testOptions{})
	d.table("t", "id int8, v int8")
	e1 := d.exec("t +1,10 +2,20")
	require.Equal(t, e1, d.engine.Epoch())
	stale := d.change("t", "+1,11")
	d.exec("t +1,12 -2,0")
	require.Equal(t, []string{"1,12"}, d.query("select * from t", 0))

	_, err := d.engine.Commit(context.Background(), []TableWrite{{Table: d.rel("t"), Changes: []Change{stale}}})
	requireCode(t, pgerr.SerializationFailure, err)
	_, err = d.try("t +3,30 !1,99")
	requireCode(t, pgerr.UniqueViolation, err)
	require.Contains(t, pgerr.From(err).Detail, "(id)=(1)")
	require.Equal(t, []string{"1,12"}, d.query("select * from t", 0), "nothing of a failed transaction is left")
}

// TestCommitTogether: transactions that share an fsync and an epoch succeed and fail each for itself.
func TestCommitTogether(t *testing.T) {
	d := openDB(t, testOptions{})
	d.table("t", "id int8, v int8")
	d.exec("t +1,1")
	reqs := make([]*commitReq, 0, 3)
	for _, c := range []string{"+2,2", "!1,9", "+3,3"} {
		r := &commitReq{writes: []TableWrite{{Table: d.rel("t"), Changes: []Change{d.change("t", c)}}}, reply: make(chan commitReply, 1)}
		reqs = append(reqs, r)
	}
	require.NoError(t, d.engine.clock.call(context.Background(), func() {
		d.engine.clock.txns <- reqs[1]
		d.engine.clock.txns <- reqs[2]
		d.engine.clock.commit(reqs[0])
	}))
	first, second, third := <-reqs[0].reply, <-reqs[1].reply, <-reqs[2].reply
	require.NoError(t, first.err)
	requireCode(t, pgerr.UniqueViolation, second.err)
	require.NoError(t, third.err)
	require.Equal(t, first.epoch, third.epoch)
	d.reopen()
	require.Equal(t, []string{"1,1", "2,2", "3,3"}, d.query("select * from t", 0))
}

// TestCommitLogFails: what cannot be made durable did not happen, and the next transaction works.
func TestCommitLogFails(t *testing.T) {
	for _, point := range []string{"wal/append", "wal/sync"} {
		t.Run(point, func(t *testing.T) {
			d := openDB(t, testOptions{})
			d.table("t", "id int8, v int8")
			d.view("s", "select sum(v) as s from t", 1)
			d.exec("t +1,1 +2,2")
			d.crash()
			fp, err := failpoint.Parse(point + "=error(disk full)*1")
			require.NoError(t, err)
			d.fail = fp
			d.open()
			_, err = d.try("t +1,100 -2,0 +3,3")
			require.ErrorContains(t, err, "disk full")
			require.Equal(t, []string{"1,1", "2,2"}, d.query("select * from t", 0))
			e := d.exec("t +4,4")
			require.Equal(t, []string{"7"}, d.query("select s from s", e))
			d.reopen()
			require.Equal(t, []string{"1,1", "2,2", "4,4"}, d.query("select * from t", 0))
			d.same()
		})
	}
}

// TestCommitAtShutdown: an answer is the truth: what was refused is not there after the next start, what was acknowledged is.
func TestCommitAtShutdown(t *testing.T) {
	d := openDB(t, testOptions{})
	d.table("t", "id int8, v int8")
	rel := d.rel("t")
	var mu sync.Mutex
	acked := []string{}
	began := make(chan struct{}, 4)
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ; i++ {
				row := fmt.Sprintf("%d,%d", w*100_000+i, i)
				key, val := encode(rel, row)
				_, err := d.engine.Commit(context.Background(), []TableWrite{{Table: rel, Changes: []Change{{Key: key, New: val}}}})
				if err != nil {
					requireCode(t, pgerr.AdminShutdown, err)
					return
				}
				mu.Lock()
				acked = append(acked, row)
				mu.Unlock()
				if i == 20 {
					began <- struct{}{}
				}
			}
		})
	}
	for range 4 {
		<-began
	}
	d.engine.clock.stop()
	writers.Wait()
	// The clock is stopped: the rest of the engine is closed without it.
	d.engine.clock.quit = make(chan struct{})
	d.reopen()
	require.ElementsMatch(t, acked, d.query("select * from t", 0))
}

// TestReplayAtEveryRecord: after a crash in the middle of a record the state is that of a prefix of the transactions, in tables and in views.
func TestReplayAtEveryRecord(t *testing.T) {
	d := openDB(t, testOptions{})
	d.table("t", "id int8, v int8")
	d.table("u", "id int8, v int8")
	d.view("s", "select count(*) as n, sum(t.v) as s from t join u on t.id = u.id", 1)
	d.checkpoint()
	sizes := []int64{walSize(t, d.dir)}
	states := [][]string{d.query("select * from t", 0)}
	for _, txn := range []string{"t +1,1 +2,2; u +1,1", "u +2,5", "t -1,0 +2,3", "t +1,8; u -2,0 +3,3", "t +3,3"} {
		d.exec(txn)
		sizes = append(sizes, walSize(t, d.dir))
		states = append(states, d.query("select * from t", 0))
	}
	d.crash()
	files, err := filepath.Glob(filepath.Join(d.dir, "wal", "*.wal"))
	require.NoError(t, err)
	last := files[len(files)-1]
	whole, err := os.ReadFile(last)
	require.NoError(t, err)
	for i := len(sizes) - 1; i >= 0; i-- {
		for _, cut := range []int64{sizes[i], sizes[i] + 3} {
			if i == len(sizes)-1 && cut > sizes[i] {
				continue
			}
			require.NoError(t, os.WriteFile(last, whole[:cut], 0o600))
			d.open()
			require.Equal(t, states[i], d.query("select * from t", 0), "record %d", i)
			d.same()
			d.crash()
		}
	}
	d.open()
}

// TestReplaySharesEpochs: several records of one epoch are one epoch after a restart too.
func TestReplaySharesEpochs(t *testing.T) {
	d := openDB(t, testOptions{})
	d.table("a", "id int8, v int8")
	d.table("b", "id int8, v int8")
	d.view("j", "select a.id, a.v + b.v as v from a join b on a.id = b.id", 1)
	d.checkpoint()
	var reqs []*commitReq
	for _, c := range [][2]string{{"a", "+1,1"}, {"b", "+1,2"}, {"a", "+2,5"}} {
		reqs = append(reqs, &commitReq{writes: []TableWrite{{Table: d.rel(c[0]), Changes: []Change{d.change(c[0], c[1])}}}, reply: make(chan commitReply, 1)})
	}
	require.NoError(t, d.engine.clock.call(context.Background(), func() {
		for _, r := range reqs[1:] {
			d.engine.clock.txns <- r
		}
		d.engine.clock.commit(reqs[0])
	}))
	epoch := d.engine.Epoch()
	d.reopen()
	require.Equal(t, epoch, d.engine.Epoch())
	require.Equal(t, []string{"1,3"}, d.query("select * from j", epoch))
	d.exec("b +2,5")
	d.same()
}

// TestTableCheckpointTruncatesLog: what a completed checkpoint covers is not replayed, and what is not covered is.
func TestTableCheckpointTruncatesLog(t *testing.T) {
	d := openDB(t, testOptions{})
	d.table("t", "id int8, v int8")
	var rows []string
	for i := range 30 {
		d.exec(fmt.Sprintf("t +%d,%d", i, i))
		rows = append(rows, fmt.Sprintf("%d,%d", i, i))
		if i%10 == 4 {
			d.checkpoint()
			d.engine.tables.mu.Lock()
			require.Empty(t, d.engine.tables.walMarks, "all records are covered")
			d.engine.tables.mu.Unlock()
		}
	}
	d.reopen()
	require.ElementsMatch(t, rows, d.query("select * from t", 0))
	d.checkpoint()
	d.checkpoint()
	d.reopen()
	require.ElementsMatch(t, rows, d.query("select * from t", 0))
}

// TestTableFlushKeepsOrder: moving rows to disk between two checkpoints does not put later epochs into the earlier one.
func TestTableFlushKeepsOrder(t *testing.T) {
	d := openDB(t, testOptions{})
	d.table("t", "id int8, v int8")
	d.view("s", "select sum(v) as s from t", 1)
	d.exec("t +1,1")
	var order []string
	release := make(chan struct{})
	require.NoError(t, d.engine.clock.call(context.Background(), func() {
		d.engine.tables.later(func() { <-release; order = append(order, "first") })
		for _, n := range []string{"second", "third"} {
			d.engine.tables.later(func() { order = append(order, n) })
		}
	}))
	close(release)
	d.checkpoint()
	require.Equal(t, "first second third", strings.Join(order, " "))
	d.reopen()
	d.same()
}

func TestDropTable(t *testing.T) {
	d := openDB(t, testOptions{})
	d.table("t", "id int8, v int8")
	d.exec("t +1,1")
	rel := d.rel("t")
	v := rel.Latest()
	require.NoError(t, d.engine.DropTable(context.Background(), rel.ID))
	row, ok, err := v.Get(0, d.mustKey(rel, "1,1"))
	require.NoError(t, err)
	require.True(t, ok, "pinned content stays readable")
	require.NotEmpty(t, row)
	v.Release()
	_, err = d.engine.Commit(context.Background(), []TableWrite{{Table: rel, Changes: []Change{{Key: []byte{1}, New: row}}}})
	requireCode(t, pgerr.UndefinedTable, err)
	d.defs = nil
}

func (d *testDB) mustKey(r *Relation, row string) []byte {
	k, _ := encode(r, row)
	return k
}

// A view that had nothing to do when one transaction was more than the change log may hold does not pass for up to date.
func TestAnIdleViewThatALargeTransactionDetached(t *testing.T) {
	d := openDB(t, testOptions{changeLog: 20_000})
	d.table("t", "id int8, v int8")
	d.view("s", "select count(*) as n from t", 1)
	var b strings.Builder
	b.WriteString("t")
	for i := range 5000 {
		fmt.Fprintf(&b, " +%d,1", i)
	}
	e := d.exec(b.String())
	require.Equal(t, []string{"5000"}, d.query("select n from s", e))
	d.same()
}
