// Package barrier decides what one subtask does about the barriers on its input channels. It is pure: no clock, no goroutine, no I/O. The task loop
// tells a Handler what it takes from its channels and does what the answer says.
//
// Two things go on at a time. Barriers in-band close epochs: a channel that has delivered one is not read until all others have, except by
// at-least-once barriers, which are only counted. Beside that a checkpoint may be cut unaligned: at the first sign of it the subtask's state is cut, and
// until the place of the cut is known in every channel what these deliver belongs to the checkpoint.
package barrier

import "slices"

// Barrier is one that was taken from a channel.
type Barrier struct {
	// Seq numbers the barriers of a run.
	Seq uint64
	// Checkpoint is cut with the barrier, unless it has been cut unaligned; 0: none.
	Checkpoint uint64
	// Loose barriers do not block channels: at least once.
	Loose bool
}

// Do is what has to be done about an event, in the order of the fields.
type Do struct {
	// Drop: what was collected of the channels for this checkpoint goes, it will not be completed. 0: nothing.
	Drop uint64
	// Cut: the subtask's state is cut now, for this unaligned checkpoint, and what the open channels hold and deliver is collected. 0: no.
	Cut uint64
	// Complete: all that was in flight for this checkpoint has been collected. 0: no.
	Complete uint64
	// Release: blocked channels go on.
	Release bool
	// Block: nothing more is taken from the channel before the barrier passes.
	Block bool
	// Pass: all channels have delivered the barrier, operators pass it. With Seal their state is cut for its checkpoint.
	Pass, Seal bool
}

const (
	// maxAborted is how many checkpoints that were given up before their barrier came are remembered.
	maxAborted = 16
	// maxOpen is how many loose barriers are counted at a time; the oldest is forgotten.
	maxOpen = 50
)

// Handler has what one subtask knows of barriers. Not safe for concurrent use.
type Handler struct {
	channels int
	passed   uint64 // newest barrier that all channels have delivered, or that was given up for a newer one
	open     []alignment
	cut      uint64 // newest checkpoint that was cut or given up
	aborted  []uint64
	// collecting is the unaligned checkpoint for which channels are still open, 0: none.
	collecting uint64
	unmarked   []bool
	left       int
}

// alignment is a barrier that some channels have delivered.
type alignment struct {
	barrier Barrier
	from    []bool
	count   int
}

// New returns a Handler of a subtask with so many channels that deliver barriers.
func New(channels int) *Handler {
	return &Handler{channels: channels, unmarked: make([]bool, channels)}
}

// Aligning reports whether some channels have delivered a barrier and others have not.
func (h *Handler) Aligning() bool { return len(h.open) > 0 }

// Collects reports whether what the channel delivers now belongs to an unaligned checkpoint, and to which.
func (h *Handler) Collects(ch int) (checkpoint uint64, ok bool) {
	return h.collecting, h.collecting != 0 && h.unmarked[ch]
}

// Barrier tells that a barrier was taken from a channel.
func (h *Handler) Barrier(ch int, b Barrier) (do Do) {
	if b.Seq <= h.passed { // late: whoever waits for it has gone on
		return Do{Release: !h.Aligning() || b.Loose}
	}
	if b.Checkpoint != 0 && b.Checkpoint == h.collecting {
		do.Complete = h.mark(ch)
	}
	a := h.alignment(b, &do)
	if a.from[ch] {
		return do
	}
	a.from[ch] = true
	a.count++
	if a.count < h.channels {
		do.Block = !b.Loose
		return do
	}
	// All of older barriers was before this one in every channel.
	h.passed = b.Seq
	h.open = slices.DeleteFunc(h.open, func(o alignment) bool { return o.barrier.Seq <= b.Seq })
	do.Pass, do.Release = true, true
	if b.Checkpoint > h.cut {
		h.cut = b.Checkpoint
		do.Seal = !slices.Contains(h.aborted, b.Checkpoint)
		if h.collecting != 0 && do.Seal { // an older one would go on without the state before the newer one
			do.Drop = h.giveUp()
		}
	}
	return do
}

// alignment returns what is known of b. A barrier that waits gives way to a newer one.
func (h *Handler) alignment(b Barrier, do *Do) *alignment {
	for i := range h.open {
		if h.open[i].barrier.Seq == b.Seq {
			return &h.open[i]
		}
	}
	if !b.Loose {
		for _, o := range h.open {
			if o.barrier.Seq < b.Seq {
				h.passed, do.Release = max(h.passed, o.barrier.Seq), true
			}
		}
		h.open = slices.DeleteFunc(h.open, func(o alignment) bool { return o.barrier.Seq < b.Seq })
	}
	if len(h.open) == maxOpen {
		h.open = h.open[1:]
	}
	h.open = append(h.open, alignment{barrier: b, from: make([]bool, h.channels)})
	return &h.open[len(h.open)-1]
}

// Overtake tells that an unaligned barrier of a checkpoint has come, ahead of what is queued. Channels that have delivered the aligned barrier of
// the same checkpoint are where they shall be cut; for the others the caller looks for the barrier in what is queued, and calls Mark.
func (h *Handler) Overtake(checkpoint uint64) (do Do) {
	if checkpoint <= h.cut {
		return do
	}
	h.cut = checkpoint
	if slices.Contains(h.aborted, checkpoint) {
		return do
	}
	if h.collecting != 0 {
		do.Drop = h.giveUp()
	}
	do.Cut = checkpoint
	h.collecting, h.left = checkpoint, 0
	for ch := range h.unmarked {
		h.unmarked[ch] = !slices.ContainsFunc(h.open, func(a alignment) bool { return a.barrier.Checkpoint == checkpoint && a.from[ch] })
		if h.unmarked[ch] {
			h.left++
		}
	}
	if h.left == 0 {
		h.collecting, do.Complete = 0, checkpoint
	}
	return do
}

// Mark tells that the place of an unaligned barrier in a channel is known: all that belongs to the checkpoint has been collected of it.
func (h *Handler) Mark(ch int, checkpoint uint64) (do Do) {
	if checkpoint == h.collecting && checkpoint != 0 {
		do.Complete = h.mark(ch)
	}
	return do
}

func (h *Handler) mark(ch int) (complete uint64) {
	if !h.unmarked[ch] {
		return 0
	}
	h.unmarked[ch] = false
	if h.left--; h.left == 0 {
		complete, h.collecting = h.collecting, 0
	}
	return complete
}

// Abort tells that a checkpoint has been given up. Its barrier may still come: it closes its epoch and no more.
func (h *Handler) Abort(checkpoint uint64) (do Do) {
	if checkpoint == h.collecting {
		do.Drop = h.giveUp()
	}
	if checkpoint > h.cut && !slices.Contains(h.aborted, checkpoint) {
		if len(h.aborted) == maxAborted {
			h.aborted = h.aborted[1:]
		}
		h.aborted = append(h.aborted, checkpoint)
	}
	return do
}

func (h *Handler) giveUp() (dropped uint64) {
	dropped, h.collecting, h.left = h.collecting, 0, 0
	clear(h.unmarked)
	return dropped
}
