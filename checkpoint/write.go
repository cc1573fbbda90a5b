package checkpoint

import (
	"context"
	"errors"
	"sync"
)

// errGivenUp: a write was ended because it took too long. Nothing counts of what it has written.
var errGivenUp = errors.New("it was given up")

// write is what can be given up of writing a checkpoint or savepoint: all up to the change of HEAD, whose outcome has to be found out.
type write struct {
	mu     sync.Mutex
	cancel context.CancelFunc // nil before it has begun
	over   bool               // given up
	past   bool               // it cannot be given up any more
}

// begin returns a context that ends with ctx, or when the write is given up.
func (w *write) begin(ctx context.Context) context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, w.cancel = context.WithCancel(ctx) //nolint:gosec // end calls it
	if w.over {
		w.cancel()
	}
	return ctx
}

// giveUp ends the write, unless it is too late for that.
func (w *write) giveUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.past {
		return
	}
	if w.over = true; w.cancel != nil {
		w.cancel()
	}
}

// commit returns an error when the write was given up. From then on it cannot be.
func (w *write) commit() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return errGivenUp
	}
	w.past = true
	return nil
}

// end releases the context and says so of err when the write was given up.
func (w *write) end(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel()
	if err != nil && w.over && !errors.Is(err, errGivenUp) {
		return errors.Join(errGivenUp, err)
	}
	return err
}
