// Package failpoint makes faults happen at named places, for tests of crashes and of failing devices. Actions are values handed
// down to the code they act on: there is no registry and no global switch. A nil *Set is inactive and costs one comparison.
package failpoint

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// maxDelay bounds a delay action, so that a typing mistake does not look like a hang.
const maxDelay = 10 * time.Minute

// Error is what an error action returns.
type Error struct{ Name, Message string }

func (e *Error) Error() string { return fmt.Sprintf("failpoint %s: %s", e.Name, e.Message) }

type kind uint8

const (
	kindKill kind = iota + 1
	kindError
	kindDelay
)

type action struct {
	kind    kind
	message string
	delay   time.Duration
	percent float64 // 100 = always
	left    int64   // hits that still act; negative = without limit
}

// Set is a set of named actions. It may be used by many goroutines.
type Set struct {
	mu      sync.Mutex
	actions map[string]*action
	hits    map[string]int64
}

// Parse reads "name=action;name=action". An action is kill, error(message), delay(duration) or off; a prefix N% makes it happen
// with that probability, a suffix *N only for the first N times: "state.ingest=error(disk full)*2;state.seal=1%kill".
// An empty text gives nil, the inactive set.
func Parse(spec string) (*Set, error) {
	set := New()
	if err := set.Change(spec); err != nil {
		return nil, err
	}
	if len(set.actions) == 0 {
		return nil, nil
	}
	return set, nil
}

// New returns a set without actions, for tests that give it some later.
func New() *Set { return &Set{actions: map[string]*action{}, hits: map[string]int64{}} }

// Change sets the actions of the names in spec, which is written as for Parse, and leaves the others.
func (s *Set) Change(spec string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, part := range split(spec) {
		name, text, ok := strings.Cut(part, "=")
		name, text = strings.TrimSpace(name), strings.TrimSpace(text)
		if !ok || name == "" {
			return fmt.Errorf("failpoint %q: want name=action", part)
		}
		a, err := parseAction(text)
		if err != nil {
			return fmt.Errorf("failpoint %s: %w", name, err)
		}
		if a != nil {
			s.actions[name] = a
		} else {
			delete(s.actions, name)
		}
	}
	return nil
}

// split cuts at semicolons, commas and newlines that are not within parentheses.
func split(spec string) []string {
	var parts []string
	depth, start := 0, 0
	for i := 0; i <= len(spec); i++ {
		if i < len(spec) {
			switch spec[i] {
			case '(':
				depth++
				continue
			case ')':
				depth--
				continue
			case ';', ',', '\n':
				if depth > 0 {
					continue
				}
			default:
				continue
			}
		}
		if p := strings.TrimSpace(spec[start:i]); p != "" {
			parts = append(parts, p)
		}
		start = i + 1
	}
	return parts
}

func parseAction(text string) (*action, error) {
	a := &action{percent: 100, left: -1}
	if p, rest, ok := strings.Cut(text, "%"); ok && !strings.Contains(p, "(") {
		v, err := strconv.ParseFloat(p, 64)
		if err != nil || v < 0 || v > 100 {
			return nil, fmt.Errorf("bad percentage %q", p)
		}
		a.percent, text = v, rest
	}
	if i := strings.LastIndexByte(text, '*'); i > strings.LastIndexByte(text, ')') {
		n, err := strconv.ParseInt(text[i+1:], 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("bad count %q", text[i+1:])
		}
		a.left, text = n, text[:i]
	}
	verb, arg := text, ""
	if i := strings.IndexByte(text, '('); i >= 0 {
		if !strings.HasSuffix(text, ")") {
			return nil, fmt.Errorf("action %q lacks its closing parenthesis", text)
		}
		verb, arg = text[:i], text[i+1:len(text)-1]
	}
	switch verb {
	case "off":
		return nil, nil
	case "kill":
		a.kind = kindKill
	case "error":
		a.kind, a.message = kindError, arg
		if arg == "" {
			a.message = "injected error"
		}
	case "delay":
		d, err := time.ParseDuration(arg)
		if err != nil || d < 0 || d > maxDelay {
			return nil, fmt.Errorf("bad delay %q", arg)
		}
		a.kind, a.delay = kindDelay, d
	default:
		return nil, fmt.Errorf("unknown action %q: use kill, error(message), delay(duration) or off", verb)
	}
	return a, nil
}

// Hit passes the place called name: it kills the process, returns an error, waits, or does nothing.
func (s *Set) Hit(name string) error {
	if s == nil {
		return nil
	}
	a, ok := s.take(name)
	if !ok {
		return nil
	}
	switch a.kind {
	case kindKill:
		return kill()
	case kindError:
		return &Error{Name: name, Message: a.message}
	case kindDelay:
		t := time.NewTimer(a.delay)
		defer t.Stop()
		<-t.C
	}
	return nil
}

func (s *Set) take(name string) (action, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hits[name]++
	a := s.actions[name]
	if a == nil || a.left == 0 || a.percent < 100 && rand.Float64()*100 >= a.percent {
		return action{}, false
	}
	if a.left > 0 {
		a.left--
	}
	return *a, true
}

// Hits returns how often name was passed.
func (s *Set) Hits(name string) int64 {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hits[name]
}

// kill ends the process as kill -9 does: no deferred call runs, no buffer is flushed.
func kill() error {
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		return err
	}
	select {}
}
