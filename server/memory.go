package server

import (
	"runtime/debug"
	"time"

	"github.com/streamdb/streamdb/pgwire"
)

const (
	// largeInput is how many bytes a COPY has read when the memory that it took is given back to the system.
	largeInput = 16 << 20
	// giveBackDelay is how long after that: one collection serves all that ended by then.
	giveBackDelay = time.Second
)

// giveBack has the garbage of a large statement collected soon and its memory given back to the system: a server that idles then would keep it
// for minutes, since nothing asks for a collection.
func (s *Server) giveBack() {
	if !s.givingBack.CompareAndSwap(false, true) {
		return
	}
	s.work.Go(func() {
		t := time.NewTimer(giveBackDelay)
		defer t.Stop()
		select {
		case <-t.C:
			s.givingBack.Store(false)
			debug.FreeOSMemory()
		case <-s.ctx.Done():
		}
	})
}

// countedInput counts the bytes of a COPY.
type countedInput struct {
	pgwire.CopyReader
	bytes int64
}

// Next implements pgcopy.Source.
func (c *countedInput) Next() ([]byte, error) {
	b, err := c.CopyReader.Next()
	c.bytes += int64(len(b))
	return b, err
}
