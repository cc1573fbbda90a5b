package exec

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
)

// bulkRows are rows of several blocks.
const bulkRows = 20_000

// bulk makes a transaction of changes, written as those of exec are.
func (d *testDB) bulk(table string, changes func(add func(string))) TableWrite {
	b, err := d.engine.NewBulk(d.rel(table))
	require.NoError(d.t, err)
	changes(func(text string) { require.NoError(d.t, b.Add(d.change(table, text))) })
	return TableWrite{Table: d.rel(table), Bulk: b, Constraint: table + "_pkey"}
}

func inserts(n int) func(func(string)) {
	return func(add func(string)) {
		for i := range n {
			add(fmt.Sprintf("+%d,%d", i, i%7))
		}
	}
}

func (d *testDB) sides() []string {
	found, err := filepath.Glob(filepath.Join(d.dir, "wal", "*.side"))
	require.NoError(d.t, err)
	return found
}

func TestBulkIsOneTransaction(t *testing.T) {
	d := openDB(t, testOptions{})
	d.table("t", "id int8, v int8")
	d.table("u", "id int8, v int8")
	d.view("s", "select v, count(*) as n from t group by v", 2)
	e, err := d.engine.Commit(d.ctx(), []TableWrite{d.bulk("t", inserts(bulkRows)), {Table: d.rel("u"), Changes: []Change{d.change("u", "+1,1")}}})
	require.NoError(t, err)
	require.Equal(t, []string{"20000"}, d.query("select count(*) from t", e))
	require.Equal(t, []string{"20000"}, d.query("select sum(n) from s", e))
	d.same()
	d.reopen()
	require.Equal(t, []string{"20000"}, d.query("select count(*) from t", 0))
	require.Equal(t, []string{"1,1"}, d.query("select * from u", 0))
	d.same()
	require.Len(t, d.sides(), 1)
	// Rows that are there change and go.
	w := d.bulk("t", func(add func(string)) {
		for i := range bulkRows {
			if i%2 == 0 {
				add(fmt.Sprintf("-%d,%d", i, i%7))
			}
		}
		for i := range bulkRows {
			if i%2 == 1 {
				add(fmt.Sprintf("+%d,%d", i, 100))
			}
		}
	})
	e, err = d.engine.Commit(d.ctx(), []TableWrite{w})
	require.NoError(t, err)
	require.Equal(t, []string{"10000,1000000"}, d.query("select count(*), sum(v) from t", e))
	d.same()
	d.reopen()
	require.Equal(t, []string{"10000,1000000"}, d.query("select count(*), sum(v) from t", 0))
	d.same()
	d.checkpoint()
	require.Empty(t, d.sides(), "the checkpoint has the rows")
	d.reopen()
	require.Equal(t, []string{"10000,1000000"}, d.query("select count(*), sum(v) from t", 0))
	d.same()
}

// What fails in the midst, or at the end, leaves nothing, neither at once nor after a restart; transactions that waited for the table go on.
func TestBulkFails(t *testing.T) {
	for _, c := range []struct {
		name, fail string
		code       pgerr.Code
		changes    func(func(string))
	}{
		{"duplicate in the table", "", pgerr.UniqueViolation, func(add func(string)) { inserts(bulkRows)(add); add("!1000000,1") }},
		{"duplicate in itself", "", pgerr.UniqueViolation, func(add func(string)) { inserts(bulkRows)(add); add("+5,5") }},
		{"row that changed", "", pgerr.SerializationFailure, func(add func(string)) { inserts(bulkRows)(add); add("+1000000,5") }},
		{"commit record", "wal/sync=error(no space left on device)*1", pgerr.DiskFull, inserts(bulkRows)},
		{"data", "wal/side=error(no space left on device)*1", pgerr.DiskFull, inserts(bulkRows)},
		{"a block", "exec/bulk=error(broken)*1", pgerr.InternalError, inserts(bulkRows)},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := openDB(t, testOptions{})
			d.table("t", "id int8, v int8")
			d.view("s", "select v, count(*) as n from t group by v", 1)
			d.exec("t +1000000,2")
			fp, err := failpoint.Parse(c.fail)
			require.NoError(t, err)
			if c.fail != "" {
				d.fail = fp
				d.reopen()
			}
			b, err := d.engine.NewBulk(d.rel("t"))
			require.NoError(t, err)
			c.changes(func(text string) {
				if err == nil {
					err = b.Add(d.change("t", text))
				}
			})
			last := "1000000,2"
			if c.code == pgerr.SerializationFailure {
				last = "1000000,3"
				d.exec("t +" + last)
			}
			if err == nil {
				_, err = d.engine.Commit(d.ctx(), []TableWrite{{Table: d.rel("t"), Bulk: b, Constraint: "t_pkey"}})
			}
			require.Equal(t, c.code, pgerr.CodeOf(err), "%v", err)
			b.Discard()
			e := d.exec("t +7,1")
			require.ElementsMatch(t, []string{"7,1", last}, d.query("select * from t", e))
			require.Empty(t, d.sides())
			d.same()
			d.fail, err = failpoint.Parse("nothing=off")
			require.NoError(t, err)
			d.checkpoint()
			d.reopen()
			require.ElementsMatch(t, []string{"7,1", last}, d.query("select * from t", 0))
			d.same()
		})
	}
}

// While a transaction is put in, nobody sees it, others commit to other tables, and those to its table wait; a crash leaves nothing of it.
func TestBulkInTheMiddle(t *testing.T) {
	for _, crash := range []bool{false, true} {
		d := openDB(t, testOptions{})
		d.table("t", "id int8, v int8")
		d.table("u", "id int8, v int8")
		d.exec("t +1000000,2")
		w := d.bulk("t", inserts(bulkRows))
		require.NoError(t, w.Bulk.flush())
		require.NoError(t, w.Bulk.side.Finish())
		p := &bulkPut{w: &w}
		d.engine.bulk.Lock()
		require.NoError(t, d.engine.putBulk(d.ctx(), p))
		require.Greater(t, p.blocks, 3)
		e := d.exec("u +1,1")
		require.Equal(t, []string{"1000000,2"}, d.query("select * from t", e))
		waiting := make(chan error, 1)
		change := d.change("t", "+5,50") // the same key
		go func() {
			_, err := d.engine.Commit(context.Background(), []TableWrite{{Table: d.rel("t"), Changes: []Change{change}, Constraint: "t_pkey"}})
			waiting <- err
		}()
		for n := 0; n == 0; {
			require.NoError(t, d.engine.clock.call(d.ctx(), func() { n = len(d.engine.clock.parked) }))
		}
		if crash {
			d.engine.bulk.Unlock()
			d.crash()
			requireCode(t, pgerr.AdminShutdown, <-waiting)
			require.Len(t, d.sides(), 1)
			d.open()
			require.Empty(t, d.sides())
			require.Equal(t, []string{"1000000,2"}, d.query("select * from t", 0))
			continue
		}
		require.NoError(t, d.engine.takeOut(d.ctx(), p))
		require.NoError(t, d.engine.clock.call(d.ctx(), func() { d.engine.clock.release([]*Bulk{w.Bulk}) }))
		d.engine.bulk.Unlock()
		require.NoError(t, <-waiting)
		w.Bulk.Discard()
		require.ElementsMatch(t, []string{"5,50", "1000000,2"}, d.query("select * from t", d.engine.Epoch()))
	}
}

// A transaction that cannot be taken out again is never seen: nothing is committed, nor a checkpoint made, until a restart.
func TestBulkThatCannotBeTakenOut(t *testing.T) {
	d := openDB(t, testOptions{})
	d.table("t", "id int8, v int8")
	d.table("u", "id int8, v int8")
	d.exec("t +1000000,2")
	w := d.bulk("t", inserts(bulkRows))
	require.NoError(t, w.Bulk.flush())
	require.NoError(t, w.Bulk.side.Finish())
	p := &bulkPut{w: &w}
	require.NoError(t, d.engine.putBulk(d.ctx(), p))
	require.NoError(t, os.Remove(d.sides()[0]))
	requireCode(t, pgerr.IOError, d.engine.takeOut(d.ctx(), p))
	_, err := d.try("u +1,1")
	requireCode(t, pgerr.IOError, err)
	_, err = d.engine.BeginCheckpoint(100, checkpoint.Cut{Kind: checkpoint.KindCheckpoint})
	requireCode(t, pgerr.IOError, err)
	require.Equal(t, []string{"1000000,2"}, d.query("select * from t", 0))
	d.reopen()
	require.Equal(t, []string{"1000000,2"}, d.query("select * from t", 0))
	d.exec("t +5,5")
}

// A transaction larger than the change log may hold has the views over its table filled again, and takes no memory for it.
func TestBulkBeyondTheChangeLog(t *testing.T) {
	d := openDB(t, testOptions{changeLog: 100_000})
	d.table("t", "id int8, v int8")
	d.view("s", "select v, count(*) as n from t group by v", 1)
	d.exec("t +1000000,2")
	e, err := d.engine.Commit(d.ctx(), []TableWrite{d.bulk("t", inserts(bulkRows))})
	require.NoError(t, err)
	require.Zero(t, d.rel("t").Log.Bytes())
	require.Equal(t, []string{"20001"}, d.query("select sum(n) from s", e), "reads wait until the view is filled again")
	d.same()
	d.exec("t +1000001,2")
	d.same()
	d.reopen()
	require.Equal(t, []string{"20002"}, d.query("select sum(n) from s", d.engine.Epoch()))
	d.same()
}

// Rows are moved to disk while they are put in when memory is short, at the commit as well as after a crash.
func TestBulkUnderLittleMemory(t *testing.T) {
	const rows = 200_000
	d := openDB(t, testOptions{memory: 8 << 20})
	d.table("t", "id int8, v int8")
	e, err := d.engine.Commit(d.ctx(), []TableWrite{d.bulk("t", inserts(rows))})
	require.NoError(t, err)
	require.Equal(t, []string{"200000"}, d.query("select count(*) from t", e))
	require.Less(t, d.engine.tables.store.Metrics().OverlayBytes, int64(8<<20))
	d.reopen()
	require.Equal(t, []string{"200000"}, d.query("select count(*) from t", 0))
	require.Less(t, d.engine.tables.store.Metrics().OverlayBytes, int64(8<<20))
	_, err = d.engine.Commit(d.ctx(), []TableWrite{d.bulk("t", func(add func(string)) {
		for i := range rows {
			add(fmt.Sprintf("+%d,1", rows+i))
		}
		add("!3,1")
	})})
	requireCode(t, pgerr.UniqueViolation, err)
	require.Equal(t, []string{"200000"}, d.query("select count(*) from t", 0))
}

// A damaged file is an error that names it, not rows that are missing.
func TestBulkDamaged(t *testing.T) {
	d := openDB(t, testOptions{})
	d.table("t", "id int8, v int8")
	_, err := d.engine.Commit(d.ctx(), []TableWrite{d.bulk("t", inserts(bulkRows))})
	require.NoError(t, err)
	path := d.sides()[0]
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[len(data)/2] ^= 1
	require.NoError(t, os.WriteFile(path, data, 0o600))
	err = d.engine.Replay()
	require.Equal(t, pgerr.DataCorrupted, pgerr.CodeOf(err))
	require.True(t, strings.Contains(err.Error(), filepath.Base(path)))
}
