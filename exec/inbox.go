package exec

import (
	"sync"
	"time"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/types"
)

// channelCapMessages bounds the messages queued between one pair of subtasks: enough to overlap, small enough that barriers move.
const channelCapMessages = 8

// messageKind is a closed set.
type messageKind uint8

const (
	msgChunk     messageKind = iota // chunk, owned by the receiver until it is returned to its sender's free list
	msgWatermark                    // watermark
	msgBarrier                      // barrier: the channel is blocked until all channels have delivered it
	msgSplits                       // control: splits for a source leaf
)

// message travels over a channel between two subtasks, or from the job's driver to a subtask (channel 0).
type message struct {
	kind      messageKind
	chunk     *types.Chunk
	watermark op.Watermark
	idle      bool // watermark: the channel will send nothing for now and must not hold the others back
	barrier   checkpoint.Barrier
	splits    []splitAssignment
}

// inbox is the input of one subtask: a bounded queue per channel under one lock. Alignment is simply not taking from a channel
// whose barrier has arrived; its queue fills and the sender waits, so what is buffered stays within the cap.
type inbox struct {
	mu       sync.Mutex
	arrived  sync.Cond // something can be taken
	space    sync.Cond // something was taken
	queues   []queue
	next     int // round robin
	poked    bool
	timer    *time.Timer
	shutdown bool
}

type queue struct {
	ring    [channelCapMessages]message
	head, n int
	blocked bool
}

func newInbox(channels int) *inbox {
	b := &inbox{queues: make([]queue, channels)}
	b.arrived.L, b.space.L = &b.mu, &b.mu
	return b
}

// send queues m on channel ch, waiting while that channel is full. It returns false after close.
func (b *inbox) send(ch int, m message) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := &b.queues[ch]
	for q.n == channelCapMessages && !b.shutdown {
		b.space.Wait()
	}
	if b.shutdown {
		return false
	}
	q.ring[(q.head+q.n)%channelCapMessages] = m
	q.n++
	b.arrived.Signal()
	return true
}

// take returns the next message of any unblocked channel. With wait it blocks until there is one or somebody pokes; ok is false when
// there is none (or the inbox was closed: closed is true).
func (b *inbox) take(wait bool) (ch int, m message, ok, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if b.shutdown {
			return 0, message{}, false, true
		}
		for range b.queues {
			ch = b.next
			b.next++
			if b.next == len(b.queues) {
				b.next = 0
			}
			q := &b.queues[ch]
			if q.n == 0 || q.blocked {
				continue
			}
			m = q.ring[q.head]
			q.ring[q.head] = message{}
			q.head = (q.head + 1) % channelCapMessages
			q.n--
			if m.kind == msgBarrier {
				q.blocked = true
			}
			if q.n == channelCapMessages-1 {
				b.space.Broadcast()
			}
			return ch, m, true, false
		}
		if !wait {
			return 0, message{}, false, false
		}
		if b.poked {
			b.poked = false
			return 0, message{}, false, false
		}
		b.arrived.Wait()
	}
}

// pokeAfter makes a waiting take return without a message after d.
func (b *inbox) pokeAfter(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shutdown {
		return
	}
	if b.timer == nil {
		b.timer = time.AfterFunc(d, b.poke)
		return
	}
	b.timer.Reset(d)
}

func (b *inbox) poke() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.poked = true
	b.arrived.Signal()
}

// unblock ends an alignment.
func (b *inbox) unblock() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.queues {
		b.queues[i].blocked = false
	}
}

// close wakes everyone; queued messages are dropped.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shutdown = true
	if b.timer != nil {
		b.timer.Stop()
	}
	b.arrived.Broadcast()
	b.space.Broadcast()
}

// fill returns the queued messages of data channels over their capacity: the backpressure that senders see.
func (b *inbox) fill() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	full := 0.0
	for i := range b.queues {
		full = max(full, float64(b.queues[i].n)/channelCapMessages)
	}
	return full
}
