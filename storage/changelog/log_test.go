package changelog

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/types"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func chunk(rows int, v int64) *types.Chunk {
	c := types.NewChunk([]types.Type{types.Int8})
	for range rows {
		c.Cols[0].AppendDatum(types.Datum{Type: types.Int8, Int: v})
		c.PushWeight(1)
	}
	return c
}

// modelReader is a reader and what it has to have seen: the values of all epochs after from.
type modelReader struct {
	r    *Reader
	from uint64
}

// model is the log as a plain list that forgets nothing.
type model struct {
	t       *rapid.T
	l       *Log
	all     map[uint64][]string // epoch → what was appended
	closed  uint64
	next    int64
	readers []*modelReader
}

func (m *model) want(after, through uint64) []string {
	var out []string
	for e := after + 1; e <= through; e++ {
		out = append(out, m.all[e]...)
	}
	return out
}

func values(es []Entry) []string {
	var out []string
	for _, e := range es {
		for _, c := range e.Chunks {
			for i := range c.Rows() {
				out = append(out, fmt.Sprintf("%d:%d", e.Epoch, c.Cols[0].Int[c.Row(i)]))
			}
		}
	}
	return out
}

func (m *model) append() {
	e := m.closed + uint64(rapid.IntRange(1, 3).Draw(m.t, "ahead"))
	n := rapid.IntRange(1, 4).Draw(m.t, "rows")
	m.next++
	if m.l.HasReaders() {
		m.l.Append(e, chunk(n, m.next))
		for range n {
			m.all[e] = append(m.all[e], fmt.Sprintf("%d:%d", e, m.next))
		}
	}
}

func (m *model) close() {
	m.closed += uint64(rapid.IntRange(1, 2).Draw(m.t, "epochs"))
	m.l.Seal(m.closed)
	m.l.Wake()
}

func (m *model) pick() *modelReader {
	if len(m.readers) == 0 {
		return nil
	}
	return m.readers[rapid.IntRange(0, len(m.readers)-1).Draw(m.t, "reader")]
}

// read takes a reader up to the closed epoch and compares with what was appended.
func (m *model) read() {
	r := m.pick()
	if r == nil || r.r.Detached() {
		return
	}
	got, ok := m.l.Range(r.from, m.closed)
	require.True(m.t, ok, "an attached reader has everything after %d", r.from)
	require.Equal(m.t, m.want(r.from, m.closed), values(got))
	first, has := m.l.FirstAfter(r.from, m.closed)
	require.Equal(m.t, len(m.want(r.from, m.closed)) > 0, has)
	if has {
		require.NotEmpty(m.t, m.all[first])
		require.Empty(m.t, m.want(r.from, first-1))
	}
	r.from = m.closed
	r.r.Consumed(r.from)
}

// TestAgainstModel: whoever is attached and not detached reads exactly what was appended, whatever others do; who attaches from an epoch
// either gets all that followed or is refused.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.SampledFrom([]int64{40, 200, 1 << 30}).Draw(rt, "limit")
		m := &model{t: rt, l: New(5, limit), all: map[uint64][]string{}, closed: 5}
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(*rapid.T) { m.append() },
			"close":  func(*rapid.T) { m.close() },
			"read":   func(*rapid.T) { m.read() },
			"join": func(*rapid.T) {
				// As a job does: what was open when it joined may be incomplete, so it begins after the epochs in the making.
				r := m.l.Join(func() {})
				m.closed += 4
				m.l.Seal(m.closed)
				m.readers = append(m.readers, &modelReader{r: r, from: m.closed})
				r.Consumed(m.closed)
			},
			"attach": func(*rapid.T) {
				if len(m.readers) == 0 {
					return
				}
				old := m.pick()
				at := old.r.durable
				r, ok := m.l.Attach(at, func() {})
				if !ok {
					require.True(rt, old.r.Detached() || at < old.from, "a log refuses only what it has dropped")
					return
				}
				m.readers = append(m.readers, &modelReader{r: r, from: at})
			},
			"durable": func(*rapid.T) {
				if r := m.pick(); r != nil {
					r.r.Durable(r.from)
				}
			},
			"detach": func(*rapid.T) {
				if r := m.pick(); r != nil {
					r.r.Detach()
					m.readers = slices.DeleteFunc(m.readers, func(x *modelReader) bool { return x == r })
				}
			},
			"break": func(*rapid.T) {
				m.l.Break(m.closed)
				clear(m.all)
				for _, r := range m.readers {
					require.True(rt, r.r.Detached())
				}
				_, ok := m.l.Attach(m.closed, nil)
				require.False(rt, ok, "nobody goes on over a break")
			},
			"": func(rt *rapid.T) {
				m.readers = slices.DeleteFunc(m.readers, func(x *modelReader) bool { return x.r.Detached() })
				if m.l.HasReaders() {
					return
				}
				require.LessOrEqual(rt, len(m.l.entries), 0, "without readers nothing is kept")
			},
		})
	})
}

// TestLimitSparesReadersThatKeepUp: a reader that has read everything stays attached however much was written since its last checkpoint.
func TestLimitSparesReadersThatKeepUp(t *testing.T) {
	l := New(0, 100)
	fast, slow := l.Join(func() {}), l.Join(func() {})
	for e := uint64(1); e <= 50; e++ {
		l.Append(e, chunk(10, int64(e)))
		l.Seal(e)
		fast.Consumed(e)
	}
	require.False(t, fast.Detached())
	require.True(t, slow.Detached())
	require.LessOrEqual(t, l.Bytes(), int64(200))
	_, ok := l.Attach(10, nil)
	require.False(t, ok, "what was dropped is not promised")
}

// TestResetMakesEpochsAnew: after a reset the log has only what is appended then.
func TestResetMakesEpochsAnew(t *testing.T) {
	l := New(0, 1<<20)
	r := l.Join(func() {})
	for e := uint64(1); e <= 6; e++ {
		l.Append(e, chunk(1, int64(e)))
		l.Seal(e)
	}
	l.Append(7, chunk(1, 7))
	l.Reset(4)
	require.EqualValues(t, 4, l.Closed())
	l.Append(6, chunk(1, 60))
	l.Seal(8)
	es, ok := l.Range(2, 8)
	require.True(t, ok)
	require.Equal(t, []string{"3:3", "4:4", "6:60"}, values(es))
	r.Detach()
	require.Zero(t, l.Bytes())
}

// TestWakeWithoutChanges: readers hear of every epoch, since what they read elsewhere may have waited for it.
func TestWakeWithoutChanges(t *testing.T) {
	l := New(0, 1<<20)
	n := 0
	r := l.Join(func() { n++ })
	l.Seal(1)
	l.Wake()
	require.Equal(t, 1, n)
	r.Detach()
	l.Wake()
	require.Equal(t, 1, n)
}
