package barrier

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/internal/checkpointrows"
)

// network is a subtask's input channels with a Handler over them, driven by scripts:
//
//	b5@0     barrier 5 of an epoch is sent on channel 0; b5.2@0 cuts checkpoint 2 with it, l5.2@0 is the same without blocking
//	r7@1     row 7 is sent on channel 1
//	m2@1     the sender on channel 1 cuts checkpoint 2 unaligned: the place is marked in the channel, and the subtask is told
//	u2       somebody else tells the subtask of unaligned checkpoint 2
//	c2       checkpoint 2 is cancelled
//	t        the subtask takes what it can, t1 takes one message
//
// Everything is written down: rows as 7@1, barriers that pass as [5], with the state cut for a checkpoint [5.2], an unaligned cut as <2>, what was
// in flight for it, once it is complete, as 2{7@1 8@1}, and what was dropped as 2!.
type network struct {
	h         *Handler
	queues    [][]msg
	blocked   []bool
	collected []msg
	told      []uint64
	out       []string
}

type msg struct {
	kind byte // r, b, l, m
	n    uint64
	ckpt uint64
	ch   int
}

func newNetwork(channels int) *network {
	return &network{h: New(channels), queues: make([][]msg, channels), blocked: make([]bool, channels)}
}

func (n *network) say(format string, args ...any) {
	n.out = append(n.out, fmt.Sprintf(format, args...))
}

// do follows an answer. It is what the task loop does.
func (n *network) do(d Do, ch int, b Barrier) {
	if d.Drop != 0 {
		n.collected = nil
		n.say("%d!", d.Drop)
	}
	if d.Cut != 0 {
		n.say("<%d>", d.Cut)
		for c := range n.queues {
			n.find(c, d.Cut)
		}
	}
	n.complete(d)
	if d.Release {
		clear(n.blocked)
	}
	if d.Block {
		n.blocked[ch] = true
	}
	if d.Pass {
		if d.Seal {
			n.say("[%d.%d]", b.Seq, b.Checkpoint)
		} else {
			n.say("[%d]", b.Seq)
		}
	}
}

func (n *network) complete(d Do) {
	if d.Complete == 0 {
		return
	}
	var rows []string
	for _, m := range n.collected {
		rows = append(rows, fmt.Sprintf("%d@%d", m.n, m.ch))
	}
	n.collected = nil
	n.say("%d{%s}", d.Complete, strings.Join(rows, " "))
}

// find collects what is queued in a channel before the place of the checkpoint, if that is there.
func (n *network) find(ch int, ckpt uint64) {
	if _, ok := n.h.Collects(ch); !ok {
		return
	}
	for i, m := range n.queues[ch] {
		if m.ckpt == ckpt {
			for _, m := range n.queues[ch][:i] {
				if m.kind == 'r' {
					n.collected = append(n.collected, m)
				}
			}
			n.complete(n.h.Mark(ch, ckpt))
			return
		}
	}
}

func (n *network) send(m msg) {
	n.queues[m.ch] = append(n.queues[m.ch], m)
	if m.kind == 'm' {
		n.told = append(n.told, m.ckpt)
	}
}

// urgent is what the subtask does before it takes anything.
func (n *network) urgent() {
	for _, id := range n.told {
		n.do(n.h.Overtake(id), 0, Barrier{})
		for ch := range n.queues {
			n.find(ch, id)
		}
	}
	n.told = nil
}

func (n *network) take(ch int) bool {
	n.urgent()
	if n.blocked[ch] || len(n.queues[ch]) == 0 {
		return false
	}
	m := n.queues[ch][0]
	n.queues[ch] = n.queues[ch][1:]
	switch m.kind {
	case 'r':
		if _, ok := n.h.Collects(ch); ok {
			n.collected = append(n.collected, m)
		}
		n.say("%d@%d", m.n, ch)
	case 'b', 'l':
		b := Barrier{Seq: m.n, Checkpoint: m.ckpt, Loose: m.kind == 'l'}
		n.do(n.h.Barrier(ch, b), ch, b)
	case 'm':
		n.do(n.h.Mark(ch, m.ckpt), ch, Barrier{})
	}
	return true
}

func (n *network) drain(limit int) {
	n.urgent()
	for again := true; again; {
		again = false
		for ch := range n.queues {
			if limit == 0 {
				return
			}
			if n.take(ch) {
				again = true
				limit--
			}
		}
	}
}

func (n *network) run(script string) string {
	for _, word := range strings.Fields(script) {
		what, at, _ := strings.Cut(word[1:], "@")
		a, b, _ := strings.Cut(what, ".")
		num, _ := strconv.ParseUint(a, 10, 64)
		ckpt, _ := strconv.ParseUint(b, 10, 64)
		ch, _ := strconv.Atoi(at)
		switch word[0] {
		case 't':
			limit := -1
			if num != 0 {
				limit = int(num)
			}
			n.drain(limit)
		case 'u':
			n.told = append(n.told, num)
		case 'c':
			n.do(n.h.Abort(num), 0, Barrier{})
		case 'm':
			n.send(msg{'m', 0, num, ch})
		default:
			n.send(msg{word[0], num, ckpt, ch})
		}
	}
	n.drain(-1)
	return strings.Join(n.out, " ")
}

func TestHandler(t *testing.T) {
	checkpointrows.Shows(t, 6, 11, 14, 15, 16, 17, 21)
	for _, c := range []struct {
		name     string
		channels int
		script   string
		want     string
	}{
		{"one channel needs no alignment", 1, "r1@0 b5.2@0 r2@0", "1@0 [5.2] 2@0"},
		{"rows behind a barrier wait for the others'", 2, "b5.2@0 r1@0 t r2@1 t b5.2@1", "2@1 [5.2] 1@0"},
		{"at least once nothing waits", 2, "l5.2@0 r1@0 t r2@1 t l5.2@1", "1@0 2@1 [5.2]"},
		{"a loose barrier that all have delivered ends the counting of older ones", 2, "l5.2@0 l6.3@0 t l6.3@1 t l5.2@1", "[6.3]"},
		{"a newer barrier ends the wait for an older one", 2, "b5.1@0 t b6.2@1 t r1@0 b6.2@0", "1@0 [6.2]"},
		{"a late barrier lets its channel go on", 2, "b5@0 t b6@1 t b6@0 t b5@1 r1@1 t", "[6] 1@1"},
		{"a cancelled checkpoint's barrier closes its epoch", 2, "c2 b5.2@0 t b5.2@1", "[5]"},
		{"cancelled while channels wait", 2, "b5.2@0 r1@0 t c2 t b5.2@1", "[5] 1@0"},
		{"cancelled twice, and late", 1, "b5.2@0 t c2 c2 b6.3@0", "[5.2] [6.3]"},
		{"unaligned: cut at once, what is queued belongs to it", 1, "r1@0 r2@0 m2@0 r3@0", "<2> 2{1@0 2@0} 1@0 2@0 3@0"},
		{"other channels are collected until their mark", 2, "m2@0 t r1@1 t r2@1 m2@1 r3@1 r4@0", "<2> 1@1 2{1@1 2@1} 4@0 2@1 3@1"},
		{"told by the driver first", 2, "u2 t r1@0 t r2@1 t m2@0 t r3@1 m2@1", "<2> 1@0 2@1 2{1@0 2@1 3@1} 3@1"},
		{"an aligned barrier that waits is where its channel is cut", 2, "r1@0 b5.2@0 r2@0 t u2 r3@1 t b5.2@1", "1@0 <2> 3@1 2{3@1} [5] 2@0"},
		{"a channel blocked by an epoch is collected beyond it", 2, "b5@0 r1@0 t m2@0 t r2@1 m2@1 b5@1", "<2> 2{1@0 2@1} 2@1 [5] 1@0"},
		{"switched to when the last aligned barrier is there already", 2, "b5.2@0 b5.2@1 t u2 t", "[5.2]"},
		{"its own aligned barrier comes after an unaligned cut", 2, "u2 m2@0 m2@1 t b5.2@0 b5.2@1", "<2> 2{} [5]"},
		{"aligned of one sender, unaligned of the other", 2, "u2 t r1@0 b5.2@0 r2@0 t r3@1 m2@1 r4@1 b5.2@1", "<2> 1@0 2{1@0 3@1} 3@1 4@1 [5] 2@0"},
		{"cancelled while it collects", 2, "m2@0 t r1@1 t c2 r2@1 m2@1 t", "<2> 1@1 2! 2@1"},
		{"a newer one ends the collecting", 2, "m2@0 t r1@1 t m3@0 t r2@1 m3@1", "<2> 1@1 2! <3> 3{2@1} 2@1"},
		{"older and repeated ones are ignored", 1, "m3@0 t m2@0 u3 t", "<3> 3{}"},
		{"cancelled before it came", 1, "c2 r1@0 m2@0", "1@0"},
		{"a newer aligned one ends the collecting", 2, "m2@0 t b5.3@0 b5.3@1 t", "<2> 2! [5.3]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, newNetwork(c.channels).run(c.script))
		})
	}
}

// TestHandlerRandom sends rows, epochs and checkpoints in any order that senders can, and holds what the subtask does against what each sender did: a
// checkpoint has, of every channel, exactly the rows before the place where its sender cut it, in the state or in flight, once each and in order. Between two
// barriers of an epoch come the rows that were sent between them.
func TestHandlerRandom(t *testing.T) {
	checkpointrows.Shows(t, 11, 21)
	rapid.Check(t, func(rt *rapid.T) {
		channels := rapid.IntRange(1, 4).Draw(rt, "channels")
		n := newNetwork(channels)
		rows := make([]uint64, channels) // sent on each channel
		seq := make([]uint64, channels)
		atCut := map[uint64][]uint64{} // rows sent before the cut, per channel, of each checkpoint
		atEpoch := map[uint64][]uint64{}
		done := make([]uint64, channels) // newest checkpoint that the sender has cut
		aborted := map[uint64]bool{}
		newest := uint64(0)
		cutOf := func(id uint64) []uint64 {
			if atCut[id] == nil {
				atCut[id] = make([]uint64, channels)
			}
			return atCut[id]
		}
		for range rapid.IntRange(1, 120).Draw(rt, "steps") {
			ch := rapid.IntRange(0, channels-1).Draw(rt, "channel")
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0, 1, 2:
				rows[ch]++
				n.send(msg{'r', rows[ch], 0, ch})
			case 3: // a sender is at most one epoch ahead of the slowest, as the driver sends one at a time
				low := seq[0]
				for _, s := range seq {
					low = min(low, s)
				}
				if seq[ch] == low && n.h.passed >= low {
					seq[ch]++
					if atEpoch[seq[ch]] == nil {
						atEpoch[seq[ch]] = make([]uint64, channels)
					}
					atEpoch[seq[ch]][ch] = rows[ch]
					n.send(msg{'b', seq[ch], 0, ch})
				}
			case 4: // a new checkpoint, once all senders have cut the one before
				behind := false
				for _, d := range done {
					behind = behind || d < newest && !aborted[newest]
				}
				if !behind {
					newest++
					if rapid.Bool().Draw(rt, "told first") {
						n.told = append(n.told, newest)
					}
				}
			case 5:
				if done[ch] < newest {
					done[ch] = newest
					cutOf(newest)[ch] = rows[ch]
					n.send(msg{'m', 0, newest, ch})
				}
			case 6:
				if newest > 0 && rapid.IntRange(0, 5).Draw(rt, "abort") == 0 {
					aborted[newest] = true
					n.do(n.h.Abort(newest), 0, Barrier{})
				}
			default:
				n.drain(rapid.IntRange(1, 4).Draw(rt, "messages"))
			}
		}
		low := seq[0]
		for _, s := range seq {
			low = max(low, s)
		}
		for ch := range channels {
			for seq[ch] < low {
				seq[ch]++
				atEpoch[seq[ch]][ch] = rows[ch]
				n.send(msg{'b', seq[ch], 0, ch})
			}
			if done[ch] < newest {
				done[ch] = newest
				cutOf(newest)[ch] = rows[ch]
				n.send(msg{'m', 0, newest, ch})
			}
		}
		n.drain(-1)
		verify(rt, n.out, channels, atCut, atEpoch, aborted, newest, low, rows)
	})
}

func verify(rt *rapid.T, out []string, channels int, atCut, atEpoch map[uint64][]uint64, aborted map[uint64]bool, newest, epochs uint64, sent []uint64) {
	taken := make([]uint64, channels)
	stateAt := map[uint64][]uint64{}
	complete := map[uint64]bool{}
	last := uint64(0)
	text := strings.Join(out, " ")
	for text != "" {
		var word string
		if i := strings.IndexByte(text, '{'); i >= 0 && !strings.Contains(text[:i], " ") {
			word, text, _ = strings.Cut(text, "}")
		} else {
			word, text, _ = strings.Cut(text, " ")
		}
		text = strings.TrimSpace(text)
		switch {
		case word[0] == '[':
			var e uint64
			fmt.Sscanf(word, "[%d]", &e) //nolint:errcheck // zero then
			require.Equal(rt, last+1, e)
			last = e
			require.Equal(rt, atEpoch[e], taken, "rows before epoch %d", e)
		case word[0] == '<':
			var id uint64
			fmt.Sscanf(word, "<%d>", &id) //nolint:errcheck // zero then
			stateAt[id] = append([]uint64(nil), taken...)
		case strings.HasSuffix(word, "!"):
		case strings.Contains(word, "{"):
			head, list, _ := strings.Cut(word, "{")
			id, _ := strconv.ParseUint(head, 10, 64)
			got := append([]uint64(nil), stateAt[id]...)
			for _, r := range strings.Fields(list) {
				var v uint64
				var ch int
				fmt.Sscanf(r, "%d@%d", &v, &ch) //nolint:errcheck // zero then
				require.Equal(rt, got[ch]+1, v, "in flight on channel %d of checkpoint %d", ch, id)
				got[ch] = v
			}
			require.Equal(rt, atCut[id], got, "checkpoint %d: %s", id, word)
			complete[id] = true
		default:
			var v uint64
			var ch int
			fmt.Sscanf(word, "%d@%d", &v, &ch) //nolint:errcheck // zero then
			require.Equal(rt, taken[ch]+1, v)
			taken[ch] = v
		}
	}
	require.Equal(rt, epochs, last, "every epoch is closed")
	require.Equal(rt, sent, taken, "every row is taken")
	if newest > 0 && !aborted[newest] {
		require.True(rt, complete[newest], "checkpoint %d is complete", newest)
	}
}
