package exec

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/types"
)

const (
	// channelCapMessages bounds the messages queued between one pair of subtasks: enough to overlap, small enough that barriers move.
	channelCapMessages = 8
	// channelOverdraft is how many more an operator may send before it waits in the middle of its work: a subtask whose channels are full takes nothing
	// in, but does what cannot wait.
	channelOverdraft = 24
	// channelCapBytes bounds the bytes of a channel's rows, beyond one message.
	channelCapBytes = 8 << 20
)

// messageKind is a closed set.
type messageKind uint8

const (
	msgChunk     messageKind = iota // chunk, owned by the receiver until it is returned to its sender's free list
	msgWatermark                    // watermark
	msgBarrier                      // barrier: the channel is blocked until all channels have delivered it
	msgSplits                       // control: splits for a source leaf
	msgMark                         // where the sender cut its state for an unaligned checkpoint
	msgOvertake                     // urgent: an unaligned checkpoint has begun, or its place in a channel is known
	msgAbort                        // urgent: a checkpoint has been given up
)

// message travels over a channel between two subtasks, or from the job's driver to a subtask (channel 0).
type message struct {
	kind      messageKind
	idle      bool // watermark: the channel will send nothing for now and must not hold the others back
	loose     bool // barrier: it blocks no channel
	chunk     *types.Chunk
	bytes     int64 // of chunk
	watermark op.Watermark
	seq       uint64 // barrier: its number in the run
	barrier   checkpoint.Barrier
	splits    []splitAssignment
}

// inbox is the input of one subtask: a bounded queue per channel under one lock. Alignment is simply not taking from a channel
// whose barrier has arrived; its queue fills and the sender waits, so what is buffered stays within the cap. What is urgent goes ahead of the queues.
type inbox struct {
	mu       sync.Mutex
	arrived  sync.Cond // something can be taken, or the subtask's own receivers have room
	space    sync.Cond // something was taken
	queues   []queue
	urgent   []message
	network  *atomic.Int64 // bytes queued in all inboxes of the engine
	next     int           // round robin
	poked    bool
	timer    *time.Timer
	shutdown bool
}

type queue struct {
	ring    []message
	head, n int
	bytes   int64
	blocked bool
	full    atomic.Bool // the sender takes nothing in meanwhile
	sender  *inbox      // nil: the driver
}

// at returns the i-th queued message.
func (q *queue) at(i int) *message { return &q.ring[(q.head+i)%len(q.ring)] }

func (q *queue) push(m message) {
	if q.n == len(q.ring) {
		ring := make([]message, max(channelCapMessages, 2*q.n))
		for i := range q.n {
			ring[i] = *q.at(i)
		}
		q.ring, q.head = ring, 0
	}
	q.n++
	*q.at(q.n - 1) = m
	q.bytes += m.bytes
	q.full.Store(q.over(0))
}

func (q *queue) pop() message {
	m := q.ring[q.head]
	q.ring[q.head] = message{}
	q.head = (q.head + 1) % len(q.ring)
	q.n--
	q.bytes -= m.bytes
	if q.n == 0 && len(q.ring) > channelCapMessages {
		q.ring, q.head = make([]message, channelCapMessages), 0
	}
	return m
}

// over reports whether the queue holds more than it should, by so many messages.
func (q *queue) over(messages int) bool {
	return q.n >= channelCapMessages+messages || q.n > 0 && q.bytes >= channelCapBytes
}

func newInbox(channels int) *inbox {
	b := &inbox{queues: make([]queue, channels), network: new(atomic.Int64)}
	for i := range b.queues {
		b.queues[i].ring = make([]message, channelCapMessages)
	}
	b.arrived.L, b.space.L = &b.mu, &b.mu
	return b
}

// send queues m on channel ch, waiting while that channel is full. It returns false after close.
func (b *inbox) send(ch int, m message) bool { return b.sendOver(ch, m, 0) }

// sendOver is send for who may overdraw the channel by so many messages.
func (b *inbox) sendOver(ch int, m message, messages int) bool {
	if m.chunk != nil {
		m.bytes = m.chunk.Bytes()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	q := &b.queues[ch]
	for q.over(messages) && !b.shutdown {
		b.space.Wait()
	}
	if b.shutdown {
		return false
	}
	b.network.Add(m.bytes)
	q.push(m)
	b.arrived.Signal()
	return true
}

// hurry puts m ahead of all that is queued.
func (b *inbox) hurry(m message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shutdown {
		return
	}
	b.urgent = append(b.urgent, m)
	b.arrived.Signal()
}

// takeUrgent returns the next urgent message. While may is false it waits for one.
func (b *inbox) takeUrgent(may func() bool) (m message, ok, closed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		switch {
		case b.shutdown:
			return message{}, false, true
		case len(b.urgent) > 0:
			return b.popUrgent(), true, false
		case may():
			return message{}, false, false
		}
		b.arrived.Wait()
	}
}

func (b *inbox) popUrgent() message {
	m := b.urgent[0]
	if b.urgent = b.urgent[1:]; len(b.urgent) == 0 {
		b.urgent = nil
	}
	return m
}

// take returns the next message of any unblocked channel, urgent ones first. With wait it blocks until there is one or somebody pokes; ok is false when
// there is none (or the inbox was closed: closed is true).
func (b *inbox) take(wait bool) (ch int, m message, ok, closed bool) {
	ch, m, ok, closed, roomy := b.takeNext(wait)
	if roomy != nil {
		roomy.room()
	}
	return ch, m, ok, closed
}

// takeNext also returns the inbox of a sender whose channel is no longer full.
func (b *inbox) takeNext(wait bool) (ch int, m message, ok, closed bool, roomy *inbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if b.shutdown {
			return 0, message{}, false, true, nil
		}
		if len(b.urgent) > 0 {
			return 0, b.popUrgent(), true, false, nil
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
			full := q.over(0)
			m = q.pop()
			b.network.Add(-m.bytes)
			if full {
				b.space.Broadcast()
				if !q.over(0) {
					q.full.Store(false)
					roomy = q.sender
				}
			}
			return ch, m, true, false, roomy
		}
		if !wait {
			return 0, message{}, false, false, nil
		}
		if b.poked {
			b.poked = false
			return 0, message{}, false, false, nil
		}
		b.arrived.Wait()
	}
}

// room tells a subtask that waits for it that one of its receivers has room.
func (b *inbox) room() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.arrived.Signal()
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

// block makes take leave out a channel until unblock.
func (b *inbox) block(ch int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queues[ch].blocked = true
}

// unblock ends an alignment.
func (b *inbox) unblock() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.queues {
		b.queues[i].blocked = false
	}
}

// before calls each with the rows that are queued on channel ch before the place of a checkpoint, all of them when that is not there yet. They must not be
// kept: the receiver owns them.
func (b *inbox) before(ch int, checkpoint uint64, each func(*types.Chunk)) (found bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := &b.queues[ch]
	for i := range q.n {
		m := q.at(i)
		if m.places(checkpoint) {
			return true
		}
		if m.kind == msgChunk {
			each(m.chunk)
		}
	}
	return false
}

// places reports whether the message is where its sender cut its state for a checkpoint.
func (m *message) places(checkpoint uint64) bool {
	return (m.kind == msgMark || m.kind == msgBarrier) && m.barrier.Checkpoint == checkpoint
}

// close wakes everyone; queued messages are dropped.
func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shutdown = true
	if b.timer != nil {
		b.timer.Stop()
	}
	for i := range b.queues {
		q := &b.queues[i]
		b.network.Add(-q.bytes)
		q.ring, q.head, q.n, q.bytes = nil, 0, 0, 0
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
	return min(1, full)
}
