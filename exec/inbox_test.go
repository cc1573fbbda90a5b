package exec

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/checkpoint/barrier"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// aligner is an inbox with what the task loop does about barriers, driven by scripts:
//
//	r7@1   row 7 arrives on channel 1      b5@0   barrier 5 arrives on channel 0
//	t      the task takes what it can      x      the task is stopped
//
// What it takes is written down; an aligned barrier as [5].
type aligner struct {
	box     *inbox
	handler *barrier.Handler
	out     []string
}

func newAligner(channels int) *aligner {
	return &aligner{box: newInbox(channels), handler: barrier.New(channels)}
}

// barrier does what the task loop does about one.
func (a *aligner) barrier(ch int, m message) (passes bool) {
	do := a.handler.Barrier(ch, barrier.Barrier{Seq: m.seq})
	if do.Block {
		a.box.block(ch)
	}
	if do.Release {
		a.box.unblock()
	}
	return do.Pass
}

func (a *aligner) message(text string) (int, message) {
	what, ch, _ := strings.Cut(text[1:], "@")
	n, _ := strconv.ParseUint(what, 10, 64)
	c, _ := strconv.Atoi(ch)
	if text[0] == 'b' {
		return c, message{kind: msgBarrier, seq: n, barrier: checkpoint.Barrier{Epoch: n}}
	}
	return c, message{kind: msgWatermark, watermark: op.Watermark{Value: int64(n)}}
}

func (a *aligner) drain() {
	for {
		ch, m, ok, closed := a.box.take(false)
		if closed {
			a.out = append(a.out, "stopped")
			return
		}
		if !ok {
			return
		}
		if m.kind != msgBarrier {
			a.out = append(a.out, fmt.Sprintf("%d@%d", m.watermark.Value, ch))
			continue
		}
		if a.barrier(ch, m) {
			a.out = append(a.out, fmt.Sprintf("[%d]", m.barrier.Epoch))
		}
	}
}

func (a *aligner) run(script string) string {
	for _, text := range strings.Fields(script) {
		switch text[0] {
		case 't':
			a.drain()
		case 'x':
			a.box.close()
		default:
			ch, m := a.message(text)
			a.box.send(ch, m)
		}
	}
	a.drain()
	return strings.Join(a.out, " ")
}

func TestAlignment(t *testing.T) {
	for _, c := range []struct {
		name     string
		channels int
		script   string
		want     string
	}{
		{"one channel needs no alignment", 1, "r1@0 b5@0 r2@0 b6@0", "1@0 [5] 2@0 [6]"},
		{"rows behind a barrier wait for the others'", 2, "b5@0 r1@0 t r2@1 t b5@1", "2@1 [5] 1@0"},
		{"both at once", 2, "r1@0 r2@1 t b5@0 b5@1 r3@0 r4@1", "1@0 2@1 [5] 3@0 4@1"},
		{"a channel two barriers ahead", 2, "b5@0 b6@0 r1@0 t b5@1 t r2@1 b6@1", "[5] 2@1 [6] 1@0"},
		{"three channels, last one late", 3, "b5@0 b5@1 r1@0 r2@1 r3@2 t b5@2", "3@2 [5] 1@0 2@1"},
		{"stopped while aligning", 2, "b5@0 r1@0 t x r2@1", "stopped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, newAligner(c.channels).run(c.script))
		})
	}
}

// TestAlignmentRandom: per channel the order is kept, and between two aligned barriers come exactly the rows that were sent between them.
func TestAlignmentRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(rt, "channels")
		epochs := rapid.IntRange(1, 4).Draw(rt, "epochs")
		a := newAligner(n)
		var wg sync.WaitGroup
		total := 0
		for ch := range n {
			var msgs []message
			for e := 1; e <= epochs; e++ {
				rows := rapid.IntRange(0, 2*channelCapMessages).Draw(rt, "rows")
				total += rows
				for range rows {
					msgs = append(msgs, message{kind: msgWatermark, watermark: op.Watermark{Value: int64(e)}})
				}
				msgs = append(msgs, message{kind: msgBarrier, seq: uint64(e), barrier: checkpoint.Barrier{Epoch: uint64(e)}})
			}
			wg.Go(func() {
				for _, m := range msgs {
					a.box.send(ch, m)
				}
			})
		}
		epoch, rows := 1, 0
		for epoch <= epochs {
			ch, m, ok, _ := a.box.take(true)
			require.True(rt, ok)
			if m.kind != msgBarrier {
				require.EqualValues(rt, epoch, m.watermark.Value)
				rows++
				continue
			}
			require.EqualValues(rt, epoch, m.barrier.Epoch)
			if a.barrier(ch, m) {
				epoch++
			}
		}
		require.Equal(rt, total, rows)
		wg.Wait()
	})
}

// TestBackpressure: what one channel holds is bounded while it is blocked, the others go on, and its sender is let go by the alignment or by
// the end of the task.
func TestBackpressure(t *testing.T) {
	for _, end := range []string{"align", "stop"} {
		t.Run(end, func(t *testing.T) {
			b := newInbox(2)
			require.True(t, b.send(0, message{kind: msgBarrier}))
			_, _, ok, _ := b.take(false)
			require.True(t, ok)
			b.block(0)
			for range channelCapMessages {
				require.True(t, b.send(0, message{kind: msgWatermark}))
			}
			sent := make(chan bool, 1)
			go func() { sent <- b.send(0, message{kind: msgWatermark}) }()
			require.True(t, b.send(1, message{kind: msgWatermark}))
			ch, _, ok, _ := b.take(false)
			require.True(t, ok)
			require.Equal(t, 1, ch)
			require.InDelta(t, 1, b.fill(), 0)
			_, _, ok, _ = b.take(false)
			require.False(t, ok, "blocked until the other barrier")
			select {
			case <-sent:
				t.Fatal("the sender must wait")
			default:
			}
			if end == "stop" {
				b.close()
				require.False(t, <-sent)
				return
			}
			b.unblock()
			_, _, ok, _ = b.take(false)
			require.True(t, ok)
			require.True(t, <-sent)
		})
	}
}

// TestPokeIsNotLost: a poke that comes while the task looks for messages ends the wait that follows.
func TestPokeIsNotLost(t *testing.T) {
	b := newInbox(1)
	b.poke()
	_, _, ok, _ := b.take(false)
	require.False(t, ok)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.take(true)
	}()
	select {
	case <-done:
	case <-time.After(testPatience):
		t.Error("the poke was swallowed by a take that did not wait")
		b.close()
		<-done
	}
}

func TestWatermarkMerge(t *testing.T) {
	mark := func(v int64) message {
		return message{kind: msgWatermark, watermark: op.Watermark{Column: 2, Value: v}}
	}
	idle := message{kind: msgWatermark, idle: true}
	for _, c := range []struct {
		name  string
		slots int
		in    []message // slot i mod slots
		want  []int64
	}{
		{"single", 1, []message{mark(3), mark(2), mark(7)}, []int64{3, 7}},
		{"minimum of two", 2, []message{mark(3), mark(5), mark(8), mark(6)}, []int64{3, 5, 6}},
		{"before the epoch", 2, []message{mark(-50), mark(-70), mark(-60), mark(-40)}, []int64{-70, -50}},
		{"idle does not hold back", 2, []message{mark(3), idle, mark(9), idle}, []int64{3, 9}},
		{"idle comes back", 2, []message{idle, mark(4), mark(2), mark(9), mark(6), mark(9)}, []int64{4, 6}},
		{"all idle says nothing", 2, []message{idle, idle}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &watermarks{chans: make([]map[int]int64, c.slots), idle: make([]bool, c.slots), sent: map[int]int64{}}
			var got []int64
			for i, m := range c.in {
				for _, o := range w.update(i%c.slots, m) {
					require.Equal(t, 2, o.Column)
					got = append(got, o.Value)
				}
			}
			require.Equal(t, c.want, got)
		})
	}
}

// TestExchangePartition: every row goes to the subtask that owns its key group, weights included, whatever the sizes of chunks.
func TestExchangePartition(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const maxPar = 128
		n := rapid.IntRange(2, 5).Draw(rt, "receivers")
		ts := []types.Type{types.Int8, types.Int8}
		e := &edge{dist: plan.DistHash, columns: []int{0}, types: ts, maxPar: maxPar}
		boxes := make([]*inbox, n)
		for i := range n {
			boxes[i] = newInbox(2)
			e.targets = append(e.targets, target{task: &subtask{}, box: boxes[i], channel: 1, free: make(chan *types.Chunk, freeChunks)})
		}
		want := map[string]int64{}
		for range rapid.IntRange(1, 3).Draw(rt, "chunks") {
			c := types.NewChunk(ts)
			for range rapid.IntRange(1, 300).Draw(rt, "rows") {
				k, v, w := rapid.Int64Range(0, 50).Draw(rt, "k"), rapid.Int64Range(0, 5).Draw(rt, "v"), rapid.SampledFrom([]int64{-1, 1, 2}).Draw(rt, "w")
				c.Cols[0].AppendDatum(types.Datum{Type: types.Int8, Int: k})
				c.Cols[1].AppendDatum(types.Datum{Type: types.Int8, Int: v})
				c.PushWeight(w)
				want[fmt.Sprint(k, v)] += w
			}
			require.NoError(rt, e.Emit(c))
		}
		require.NoError(rt, e.barrier(message{kind: msgBarrier, barrier: checkpoint.Barrier{Epoch: 9}}))
		got := map[string]int64{}
		for i, b := range boxes {
			for {
				_, m, ok, _ := b.take(false)
				require.True(rt, ok)
				if m.kind == msgBarrier {
					break
				}
				h := make([]uint64, m.chunk.N)
				types.HashRows(m.chunk, []int{0}, h)
				for j := range m.chunk.Rows() {
					r := m.chunk.Row(j)
					require.True(rt, state.SubtaskRange(maxPar, n, i).Contains(types.KeyGroup(h[r], maxPar)))
					got[fmt.Sprint(m.chunk.Cols[0].Int[r], m.chunk.Cols[1].Int[r])] += m.chunk.Weight(r)
				}
			}
		}
		require.Equal(rt, want, got)
	})
}
