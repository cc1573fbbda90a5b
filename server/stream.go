package server

import (
	"context"

	"github.com/streamdb/streamdb/internal/invariants"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/types"
)

// streamChunks bounds the chunks that a running query holds ready for who fetches them.
const streamChunks = 2

// stream is the result of a statement that is fetched in parts. A query runs in a goroutine of its own and waits while nobody fetches; the
// rows of other statements are there already.
type stream struct {
	start  func() // begins the query; nil once it has begun
	rows   chan *types.Chunk
	result chan error
	cancel context.CancelFunc
	ended  bool
	tag    string // completion of a statement that is no query
}

// next returns the next rows, nil at the end. The chunk is the caller's; each of its rows counts once.
func (s *stream) next(ctx context.Context) (*types.Chunk, error) {
	if s.ended {
		return nil, nil
	}
	if s.start != nil {
		s.start()
		s.start = nil
	}
	select {
	case c, ok := <-s.rows:
		if ok {
			return c, nil
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.ended = true
	s.cancel()
	return nil, <-s.result
}

// close ends the query and waits for its goroutine.
func (s *stream) close() {
	s.cancel()
	if s.ended {
		return
	}
	s.ended = true
	if s.start != nil {
		s.start()
		s.start = nil
	}
	for range s.rows { //nolint:revive // drained so that the query's goroutine ends
	}
	<-s.result
}

// background makes the stream of a query over what is pinned now. It hangs on the session, not on the statement.
func (ss *session) background(p *prepared, args []types.Datum) (*stream, error) {
	ctx, cancel := context.WithCancel(ss.ctx)
	q, err := ss.queryNow(ctx, p, args)
	if err != nil {
		cancel()
		return nil, err
	}
	for id, own := range q.query.Overlay {
		q.query.Overlay[id] = own.Apart()
	}
	s := &stream{rows: make(chan *types.Chunk, streamChunks), result: make(chan error, 1), cancel: cancel}
	q.query.Env.Session = &actions{ss: ss, ctx: ctx, beside: true}
	visible := len(p.columns)
	q.query.Emit = func(ch *types.Chunk) error {
		part := *ch
		part.Cols = part.Cols[:visible]
		return singly(&part, func(c *types.Chunk) error {
			select {
			case s.rows <- c:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}
	run := func() (err error) {
		defer q.release()
		defer func() {
			if r := recover(); r != nil {
				invariants.Pass(r)
				err = pgerr.Newf(pgerr.InternalError, "panic: %v", r)
			}
		}()
		return ss.srv.engine.Run(ctx, q.query)
	}
	s.start = func() {
		go func() {
			s.result <- run()
			close(s.rows)
		}()
	}
	return s, nil
}

// singly copies rows so that each has the weight one.
func singly(c *types.Chunk, emit func(*types.Chunk) error) error {
	if c.Weights == nil {
		d := c.Clone()
		return emit(d)
	}
	ts := make([]types.Type, len(c.Cols))
	for i, v := range c.Cols {
		ts[i] = v.Type
	}
	d := types.NewChunk(ts)
	for i := range c.Rows() {
		r := c.Row(i)
		for range c.Weight(r) {
			if d.N == types.MaxChunkRows {
				if err := emit(d); err != nil {
					return err
				}
				d = types.NewChunk(ts)
			}
			d.AppendRow(c, r, 1)
		}
	}
	if d.N == 0 {
		return nil
	}
	return emit(d)
}

// collector is the ResultWriter of a statement whose rows are kept to be fetched.
type collector struct {
	pgwire.Notifier
	chunks []*types.Chunk
	tag    string
}

// RowDescription implements pgwire.ResultWriter.
func (c *collector) RowDescription([]pgwire.FieldDescription) error { return nil }

// Rows implements pgwire.ResultWriter.
func (c *collector) Rows(ch *types.Chunk) error {
	return singly(ch, func(d *types.Chunk) error {
		c.chunks = append(c.chunks, d)
		return nil
	})
}

// CommandComplete implements pgwire.ResultWriter.
func (c *collector) CommandComplete(tag string) error {
	c.tag = tag
	return nil
}

// EmptyQuery implements pgwire.ResultWriter.
func (c *collector) EmptyQuery() error { return nil }

// Suspended implements pgwire.ResultWriter.
func (c *collector) Suspended() error { return nil }

// Flush implements pgwire.ResultWriter.
func (c *collector) Flush() error { return nil }

// CopyIn implements pgwire.ResultWriter.
func (c *collector) CopyIn(pgwire.Format, int) (pgwire.CopyReader, error) {
	return nil, pgerr.Newf(pgerr.FeatureNotSupported, "COPY cannot be fetched in pages")
}

// CopyOut implements pgwire.ResultWriter.
func (c *collector) CopyOut(pgwire.Format, int) error { return nil }

// CopyData implements pgwire.ResultWriter.
func (c *collector) CopyData([]byte) error { return nil }

// CopyDone implements pgwire.ResultWriter.
func (c *collector) CopyDone() error { return nil }

// stream makes a stream of what was collected.
func (c *collector) stream() *stream {
	s := &stream{rows: make(chan *types.Chunk, len(c.chunks)), result: make(chan error, 1), cancel: func() {}, tag: c.tag}
	for _, ch := range c.chunks {
		s.rows <- ch
	}
	close(s.rows)
	s.result <- nil
	return s
}
