// Package statetest is the conformance battery of state backends: random programs over a store are compared with a plain map, and
// every snapshot with the map as it was at its barrier.
package statetest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/state"
)

// Groups is the number of key groups in the battery's programs; a Factory opens its stores with it.
const Groups = 8

// Factory opens a store of the backend under test in a folder, from a snapshot or, with nil, empty.
type Factory func(ctx context.Context, dir string, from *state.Snapshot) (*state.Store, error)

const (
	tables    = 2
	maxSubs   = 3
	heldViews = 4
)

type modelKey struct {
	table uint32
	kg    uint16
	key   string
}

type model map[modelKey]string

type heldView struct {
	view *state.View
	want model
}

type point struct {
	sn   *state.Snapshot
	want model
}

// machine is one random program: a job of n subtasks over two tables.
type machine struct {
	open   Factory
	dir    string
	store  *state.Store
	n      int
	parts  [][]*state.Part // by subtask, table
	now    model
	sealed map[int]*state.Sealed // at the last barrier, not yet given away
	views  []heldView
	id     uint64
	points []point // confirmed snapshots, at most two
}

// Run runs the battery.
func Run(t *testing.T, open Factory) {
	t.Run("random programs", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			m := &machine{open: open, dir: t.TempDir(), now: model{}, n: 1}
			defer m.end(rt)
			m.start(rt, nil, 1)
			rt.Repeat(map[string]func(*rapid.T){
				"put": m.put, "delete": m.delete, "burst": m.burst, "get": m.get, "scan": m.scan, "scanAll": m.scanAll,
				"scanAndChange": m.scanAndChange, "view": m.hold, "checkViews": m.checkViews, "seal": m.sealOnly,
				"checkpoint": m.checkpoint, "flush": m.flush, "restore": m.restore,
			})
			m.checkAll(rt)
		})
	})
	t.Run("rescale", func(t *testing.T) { rescale(t, open) })
	t.Run("unchanged", func(t *testing.T) { unchanged(t, open) })
}

func (m *machine) start(t require.TestingT, from *state.Snapshot, n int) {
	s, err := m.open(context.Background(), m.dir, from)
	require.NoError(t, err)
	m.store, m.n, m.parts, m.sealed = s, n, nil, nil
	for i := range n {
		var ps []*state.Part
		for table := range uint32(tables) {
			mode := state.Ordered
			if table == 1 {
				mode = state.Staged
			}
			p, err := s.Part(table, i, state.SubtaskRange(Groups, n, i), mode)
			require.NoError(t, err)
			ps = append(ps, p)
		}
		m.parts = append(m.parts, ps)
	}
}

func (m *machine) end(t require.TestingT) {
	if m.store == nil {
		return
	}
	require.NoError(t, m.store.Destroy())
	for _, v := range m.views { // they outlive their store
		compare(t, v.want, v.view.ScanAll(), v.view.Table(), v.view.Range())
		v.view.Close()
	}
}

func (m *machine) part(table uint32, kg uint16) *state.Part {
	return m.parts[state.SubtaskOf(Groups, m.n, kg)][table]
}

func drawKey(t *rapid.T) modelKey {
	alphabet := rapid.SampledFrom([]byte{0, 'a', 'b', 0xff})
	return modelKey{
		table: uint32(rapid.IntRange(0, tables-1).Draw(t, "table")),
		kg:    uint16(rapid.IntRange(0, Groups-1).Draw(t, "kg")),
		key:   string(rapid.SliceOfN(alphabet, 0, 3).Draw(t, "key")),
	}
}

func (m *machine) put(t *rapid.T) {
	k := drawKey(t)
	v := rapid.StringN(0, 5, 20).Draw(t, "val")
	p := m.part(k.table, k.kg)
	if _, has := m.now[k]; rapid.Bool().Draw(t, "known") {
		p.Append(k.kg, []byte(k.key), []byte(v), !has)
	} else {
		p.Put(k.kg, []byte(k.key), []byte(v))
	}
	m.now[k] = v
}

func (m *machine) delete(t *rapid.T) {
	k := drawKey(t)
	p := m.part(k.table, k.kg)
	if _, has := m.now[k]; has && rapid.Bool().Draw(t, "known") {
		p.Remove(k.kg, []byte(k.key))
	} else {
		p.Delete(k.kg, []byte(k.key))
	}
	delete(m.now, k)
}

// burst makes enough changes for maintenance, and bytes for files.
func (m *machine) burst(t *rapid.T) {
	k := drawKey(t)
	n := rapid.IntRange(1, 600).Draw(t, "n")
	fill := bytes.Repeat([]byte{byte(n)}, rapid.IntRange(0, 100).Draw(t, "size"))
	del := rapid.Bool().Draw(t, "delete")
	for i := range n {
		k := k
		k.kg = (k.kg + uint16(i)) % Groups
		k.key += fmt.Sprint("burst", i)
		if p := m.part(k.table, k.kg); del {
			p.Delete(k.kg, []byte(k.key))
			delete(m.now, k)
		} else {
			v := fmt.Sprint(i, string(fill))
			p.Put(k.kg, []byte(k.key), []byte(v))
			m.now[k] = v
		}
	}
}

func (m *machine) get(t *rapid.T) {
	k := drawKey(t)
	v, ok, err := m.part(k.table, k.kg).Get(k.kg, []byte(k.key))
	require.NoError(t, err)
	want, has := m.now[k]
	require.Equal(t, has, ok, "get %v", k)
	require.Equal(t, want, string(v))
}

type pair struct{ Key, Val string }

func (w model) scan(table uint32, kg uint16, prefix, from []byte, desc bool) []pair {
	out := []pair{}
	for k, v := range w {
		if k.table != table || k.kg != kg || !bytes.HasPrefix([]byte(k.key), prefix) {
			continue
		}
		if from != nil && (!desc && k.key < string(from) || desc && k.key > string(from)) {
			continue
		}
		out = append(out, pair{k.key, v})
	}
	slices.SortFunc(out, func(a, b pair) int {
		c := bytes.Compare([]byte(a.Key), []byte(b.Key))
		if desc {
			c = -c
		}
		return c
	})
	return out
}

func drain(t require.TestingT, it *state.Iter) []pair {
	out := []pair{}
	for it.Next() {
		out = append(out, pair{string(it.Key()), string(it.Value())})
	}
	require.NoError(t, it.Err())
	it.Close()
	return out
}

func drawScan(t *rapid.T) (k modelKey, from []byte, desc bool) {
	k = drawKey(t)
	if rapid.Bool().Draw(t, "hasFrom") {
		from = []byte(drawKey(t).key)
	}
	return k, from, rapid.Bool().Draw(t, "desc")
}

func (m *machine) scan(t *rapid.T) {
	k, from, desc := drawScan(t)
	got := drain(t, m.part(k.table, k.kg).ScanFrom(k.kg, []byte(k.key), from, desc))
	require.Equal(t, m.now.scan(k.table, k.kg, []byte(k.key), from, desc), got)
}

func (m *machine) scanAll(t *rapid.T) { m.checkAll(t) }

// scanAndChange deletes what it passes and inserts behind itself: each key that was there must be seen once.
func (m *machine) scanAndChange(t *rapid.T) {
	k, from, desc := drawScan(t)
	p := m.part(k.table, k.kg)
	want := m.now.scan(k.table, k.kg, []byte(k.key), from, desc)
	it := p.ScanFrom(k.kg, []byte(k.key), from, desc)
	got := []pair{}
	for it.Next() {
		got = append(got, pair{string(it.Key()), string(it.Value())})
		mk := modelKey{k.table, k.kg, string(it.Key())}
		if len(got)%2 == 0 {
			p.Delete(k.kg, []byte(mk.key))
			delete(m.now, mk)
		} else {
			p.Put(k.kg, []byte(mk.key), []byte("changed"))
			m.now[mk] = "changed"
		}
	}
	require.NoError(t, it.Err())
	it.Close()
	require.Equal(t, want, got)
}

func (m *machine) hold(t *rapid.T) {
	if len(m.views) == heldViews {
		m.views[0].view.Close()
		m.views = m.views[1:]
	}
	k := drawKey(t)
	m.views = append(m.views, heldView{m.part(k.table, k.kg).View(), maps.Clone(m.now)})
}

func (m *machine) checkViews(t *rapid.T) {
	k, from, desc := drawScan(t)
	for _, v := range m.views {
		k.table = v.view.Table()
		if r := v.view.Range(); !r.Contains(k.kg) {
			k.kg = r.From
		}
		got := drain(t, v.view.ScanFrom(k.kg, []byte(k.key), from, desc))
		require.Equal(t, v.want.scan(k.table, k.kg, []byte(k.key), from, desc), got)
		val, ok, err := v.view.Get(k.kg, []byte(k.key))
		require.NoError(t, err)
		want, has := v.want[k]
		require.Equal(t, has, ok)
		require.Equal(t, want, string(val))
		compare(t, v.want, v.view.ScanAll(), v.view.Table(), v.view.Range())
	}
}

func compare(t require.TestingT, want model, it *state.Iter, table uint32, r state.Range) {
	got, expect := model{}, model{}
	var last []byte
	for it.Next() {
		k := append([]byte{byte(it.Group())}, it.Key()...)
		require.True(t, last == nil || bytes.Compare(last, k) < 0, "keys out of order")
		last = k
		got[modelKey{table, it.Group(), string(it.Key())}] = string(it.Value())
	}
	require.NoError(t, it.Err())
	it.Close()
	for k, v := range want {
		if k.table == table && r.Contains(k.kg) {
			expect[k] = v
		}
	}
	require.Equal(t, expect, got)
}

func (m *machine) checkAll(t require.TestingT) {
	for _, ps := range m.parts {
		for _, p := range ps {
			compare(t, m.now, p.ScanAll(), p.Table(), p.Range())
		}
	}
}

func (m *machine) seal() []*state.Sealed {
	var out []*state.Sealed
	for i := range m.n {
		out = append(out, m.store.Seal(i))
	}
	return out
}

// sealOnly is a barrier whose checkpoint never gets so far as to be written.
func (m *machine) sealOnly(*rapid.T) { m.seal() }

func (m *machine) checkpoint(t *rapid.T) {
	sealed, want := m.seal(), maps.Clone(m.now)
	m.id++
	sn, err := m.store.Snapshot(context.Background(), m.id, sealed)
	require.NoError(t, err)
	checkDescription(t, sn)
	if rapid.IntRange(0, 3).Draw(t, "abort") == 0 {
		m.store.Abort(m.id)
		return
	}
	m.store.Confirm(m.id)
	m.points = append(m.points, point{sn, want})
	if len(m.points) > 2 {
		m.points = m.points[1:]
	}
}

func checkDescription(t require.TestingT, sn *state.Snapshot) {
	names := map[string]bool{}
	var size int64
	for _, h := range append(slices.Clone(sn.Base), sn.Deltas...) {
		require.False(t, names[h.Name], "name %s twice", h.Name)
		names[h.Name] = true
		size += h.Size
	}
	require.Equal(t, size, sn.FullSize)
	require.LessOrEqual(t, sn.NewBytes, sn.FullSize)
}

func (m *machine) flush(t *rapid.T) {
	require.NoError(t, m.store.Flush(context.Background(), m.seal()))
}

// restore is a crash: the store goes, and a confirmed snapshot comes back, at another parallelism.
func (m *machine) restore(t *rapid.T) {
	if len(m.points) == 0 {
		t.Skip("nothing to restore")
	}
	i := rapid.IntRange(0, len(m.points)-1).Draw(t, "point")
	n := rapid.IntRange(1, maxSubs).Draw(t, "parallelism")
	p := m.points[i]
	require.NoError(t, m.store.Close())
	m.start(t, p.sn, n)
	m.now = maps.Clone(p.want)
	m.points = nil // local files of the earlier incarnation may go from now on
	m.checkAll(t)
}

// rescale takes one state through parallelism 1, 3 and 2 with a checkpoint, changes and a crash in between.
func rescale(t *testing.T, open Factory) {
	m := &machine{open: open, dir: t.TempDir(), now: model{}}
	defer m.end(t)
	var from *state.Snapshot
	for round, n := range []int{1, 3, 2, 1} {
		if m.store != nil {
			require.NoError(t, m.store.Close())
		}
		m.start(t, from, n)
		m.checkAll(t)
		for i := range 500 {
			k := modelKey{uint32(i % tables), uint16(i % Groups), fmt.Sprint(i)}
			if i%7 == round {
				m.part(k.table, k.kg).Delete(k.kg, []byte(k.key))
				delete(m.now, k)
				continue
			}
			v := fmt.Sprint(round, i)
			m.part(k.table, k.kg).Put(k.kg, []byte(k.key), []byte(v))
			m.now[k] = v
		}
		sn, err := m.store.Snapshot(context.Background(), uint64(round+1), m.seal())
		require.NoError(t, err)
		m.store.Confirm(uint64(round + 1))
		var live int64
		for _, n := range sn.Entries {
			live += n
		}
		require.Positive(t, live)
		m.part(0, 0).Put(0, []byte("lost in the crash"), nil)
		from = sn
	}
}

// unchanged shows that a checkpoint without changes costs nothing.
func unchanged(t *testing.T, open Factory) {
	m := &machine{open: open, dir: t.TempDir(), now: model{}}
	defer m.end(t)
	m.start(t, nil, 2)
	m.part(0, 1).Put(1, []byte("k"), []byte("v"))
	require.True(t, m.store.Dirty())
	first, err := m.store.Snapshot(context.Background(), 1, m.seal())
	require.NoError(t, err)
	require.Positive(t, first.NewBytes)
	require.False(t, m.store.Dirty())
	m.part(0, 1).Put(1, []byte("k"), []byte("v"))
	require.False(t, m.store.Dirty(), "putting the same value is no change")
	second, err := m.store.Snapshot(context.Background(), 2, m.seal())
	require.NoError(t, err)
	require.Zero(t, second.NewBytes)
	first.NewBytes = 0
	require.Equal(t, first, second)
}
