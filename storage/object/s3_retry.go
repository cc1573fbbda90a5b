package object

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// The limits of one call.
const (
	s3Attempts       = 5  // failures other than throttling, after which the call fails
	s3Throttled      = 15 // times that the store may ask the call to slow down
	s3MinBackoff     = 50 * time.Millisecond
	s3MaxBackoff     = 5 * time.Second
	s3AttemptTimeout = 30 * time.Second // of one attempt, plus the time that its bytes take at s3LeastRate
	s3LeastRate      = 256 << 10        // bytes per second
	s3BodyBytes      = 16 << 20         // what a read of unknown length is given time for
)

// pace slows down all calls to a store that asks for it: every throttled one doubles the pause before each call, every other quarters it.
type pace struct {
	mu    sync.Mutex
	delay time.Duration
}

// leastPace is the pause below which there is none.
const leastPace = 5 * time.Millisecond

func (p *pace) slower() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = min(max(2*p.delay, s3MinBackoff), s3MaxBackoff)
}

func (p *pace) faster() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.delay /= 4; p.delay < leastPace {
		p.delay = 0
	}
}

func (p *pace) current() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}

// sleep waits for d, somewhat more or less so that many clients do not come back together.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d/2 + rand.N(d))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// do makes a call, again while the store is throttling or in trouble, up to the limits. bytes is how much it moves, write whether it changes something. A write whose
// earlier attempt may have been applied may meet its own success: that is for the caller to find out.
func (s *S3) do(ctx context.Context, op, key string, write bool, bytes int64, call func(context.Context) error) error {
	ambiguous := false
	for failed, throttled := 0, 0; ; {
		err := sleep(ctx, s.pace.current())
		if err == nil {
			attempt, cancel := context.WithTimeout(ctx, s3AttemptTimeout+time.Duration(bytes)*time.Second/s3LeastRate)
			err = call(attempt)
			cancel()
			if err == nil {
				s.pace.faster()
				return nil
			}
		}
		e := s.fail(ctx, op, key, write, err)
		if e.Throttled {
			throttled++
			s.pace.slower()
			s.count.throttled.Add(1)
		} else {
			failed++
			s.pace.faster()
		}
		ambiguous = ambiguous || e.Ambiguous
		if ctx.Err() != nil || !e.Retryable || failed >= s3Attempts || throttled > s3Throttled {
			e.Ambiguous = ambiguous && !errors.Is(e.Kind, ErrPrecondition)
			return e
		}
		s.count.retries.Add(1)
		if !e.Throttled && sleep(ctx, min(s3MaxBackoff, s3MinBackoff<<failed)) != nil {
			e.Ambiguous = ambiguous
			return e
		}
	}
}
