package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/storage/object"
)

const (
	idBlock       = 10_000 // ids reserved per write of HEAD
	claimAttempts = 20     // compare-and-sets of a claim that lose against others
	headAttempts  = 10     // refusals of a write of HEAD that is known not to be applied
	minBackoff    = 20 * time.Millisecond
	maxBackoff    = 5 * time.Second
)

// ErrFenced: another server has taken the checkpoint store over; this one must stop.
var ErrFenced = errors.New("another server has taken over the checkpoint store")

// NewClaim makes the name of a claim.
func NewClaim() string { return newNonce() }

// readHead reads HEAD; nil when there is none.
func readHead(ctx context.Context, store object.Store) (*head, string, error) {
	data, info, err := store.Get(ctx, headKey)
	if errors.Is(err, object.ErrNotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read checkpoint head: %w", err)
	}
	h := &head{}
	if err := openDoc("head", headFormat, store.String()+"/"+headKey, data, h); err != nil {
		return nil, "", err
	}
	return h, info.ETag, nil
}

// maxLine is how many claims a line keeps, the newest ones: what an earlier one wrote outside is taken for another database's when nothing was written there since.
const maxLine = 64

// joinLines is the line of a, then of b, each claim once where it comes last.
func joinLines(a, b []string) []string {
	var out []string
	all := slices.Concat(a, b)
	for i, c := range all {
		if c != "" && !slices.Contains(all[i+1:], c) {
			out = append(out, c)
		}
	}
	return out[max(0, len(out)-maxLine):]
}

// Unrelated reports whether two lines are those of databases that have nothing in common. Where one is not known, or not all of it, that is not certain.
func Unrelated(a, b []string) bool {
	if len(a) == 0 || len(b) == 0 || len(a) == maxLine || len(b) == maxLine {
		return false
	}
	return !slices.ContainsFunc(a, func(c string) bool { return slices.Contains(b, c) })
}

// line is that of HEAD, of one written by an older version what that tells.
func (h *head) line() []string {
	if h.Line != nil {
		return h.Line
	}
	return joinLines([]string{h.ClaimedFrom}, []string{h.Claim})
}

// Line returns the claims that led to what this server does, its own at the end; empty before Claim.
func (c *Coordinator) Line() []string { return c.pub.lineNow() }

func (p *publisher) lineNow() []string {
	if l := p.line.Load(); l != nil {
		return *l
	}
	return nil
}

// Claimed tells which server a store belongs to.
type Claimed struct {
	Claim, From string   // of the newest claim and the one before; empty when HEAD is of a version that has none, or there is no HEAD
	Line        []string // as in HEAD; nil when that is of a version that has none
	Database    string   // as in HEAD; empty when that is of a version that has none
	Holder      string
	Process     string // of the holder: as Process returns it
	Elected     bool   // the holder is the leader of several servers
	Term        uint64 // 0: there is no HEAD
	Checkpoint  uint64 // the newest completed one
}

// PeekClaim reads who has claimed store.
func PeekClaim(ctx context.Context, store object.Store) (Claimed, error) {
	h, _, err := readHead(ctx, store)
	if err != nil || h == nil {
		return Claimed{}, err
	}
	return claimedOf(h), nil
}

func claimedOf(h *head) Claimed {
	return Claimed{
		Claim: h.Claim, From: h.ClaimedFrom, Line: h.Line, Database: h.Database, Holder: h.Holder, Process: h.Process, Elected: h.Elected, Term: h.Term, Checkpoint: h.LastCompleted,
	}
}

// GoesOnFrom reports whether the database in the store has gone on from where the server with the given claim was, and whose HEAD had the given Database. Where HEAD
// does not tell that, or not any more, it is believed.
func (c Claimed) GoesOnFrom(claim, database string) bool {
	if database != "" && c.Database != "" && database != c.Database {
		return false
	}
	return c.Line == nil || slices.Contains(c.Line, claim) || len(c.Line) == maxLine && database != ""
}

// Claimed tells by which claim this server holds the store.
func (c *Coordinator) Claimed(ctx context.Context) (Claimed, error) {
	if err := c.pub.acquire(ctx); err != nil {
		return Claimed{}, err
	}
	defer c.pub.release()
	return claimedOf(c.pub.head), nil
}

// claim makes this server the only one that can publish, and loads the newest completed checkpoint. next is the first free id.
func (p *publisher) claim(ctx context.Context) (m *Manifest, next uint64, err error) {
	if err := p.acquire(ctx); err != nil {
		return nil, 0, err
	}
	defer p.release()
	for attempt := range claimAttempts {
		if attempt > 0 {
			if err := pause(ctx, attempt); err != nil {
				return nil, 0, err
			}
		}
		m, next, err = p.tryClaim(ctx)
		// An object may be missing because the server before has just moved on; when it stays missing, it is lost.
		moved := errors.Is(err, object.ErrNotFound) && attempt < loadAttempts
		if err == nil || !errors.Is(err, object.ErrPrecondition) && !object.IsRetryable(err) && !moved {
			return m, next, err
		}
	}
	return nil, 0, fmt.Errorf("take over checkpoint store %s: %w", p.store, err)
}

func (p *publisher) tryClaim(ctx context.Context) (*Manifest, uint64, error) {
	old, etag, err := readHead(ctx, p.store)
	if err != nil {
		return nil, 0, err
	}
	next := &head{Format: headFormat, Term: 1, Seq: 1, IDsReservedTo: idBlock, Retained: []manifestRef{}}
	first := uint64(1)
	if old != nil {
		// What cannot be read here must not be taken from a server that can.
		if _, err := loadNewest(ctx, p.store, old); err != nil {
			return nil, 0, err
		}
		c := *old
		next = &c
		first = old.IDsReservedTo + 1
		next.Term, next.Seq, next.IDsReservedTo = old.Term+1, old.Seq+1, old.IDsReservedTo+idBlock
		if old.Claim != p.claimID { // else an earlier attempt of this claim
			next.ClaimedFrom = old.Claim
		}
		next.Line = old.line()
	} else if err := noneWithoutHead(ctx, p.store); err != nil {
		switch now, _, readErr := readHead(ctx, p.store); {
		case readErr != nil:
			err = readErr // whether there is none is not known
		case now != nil:
			err = object.ErrPrecondition // another server has begun meanwhile: look again
		}
		return nil, 0, err
	}
	next.Nonce, next.Holder, next.Updated, next.Claim = hostOf(ctx).nonce(), p.holder, hostOf(ctx).now().UTC(), p.claimID
	next.Line = joinLines(next.Line, []string{p.claimID})
	next.Database, next.Process, next.Elected = cmp.Or(next.Database, p.claimID), p.process, p.elected
	data, err := sealDoc("head", headFormat, next)
	if err != nil {
		return nil, 0, err
	}
	var info object.Info
	if old == nil {
		info, err = p.store.PutIfAbsent(ctx, headKey, data)
	} else {
		info, err = p.store.PutIfMatch(ctx, headKey, etag, data)
	}
	if err != nil {
		// It may be our own write all the same.
		now, tag, readErr := readHead(ctx, p.store)
		if readErr != nil || now == nil || now.Nonce != next.Nonce {
			return nil, 0, err
		}
		info.ETag = tag
	}
	if err := p.hit("checkpoint/after-claim"); err != nil {
		return nil, 0, err
	}
	p.head, p.etag = next, info.ETag
	p.line.Store(&next.Line)
	p.objects = map[string]map[string]bool{}
	var newest *Manifest
	for _, r := range next.all() {
		m, err := loadManifest(ctx, p.store, r)
		if err != nil {
			return nil, 0, err
		}
		p.objects[r.Object] = m.objects()
		if n := next.newest(); n != nil && n.Object == r.Object {
			newest = m
		}
	}
	if newest != nil {
		if err := resolve(ctx, p.store, newest); err != nil {
			return nil, 0, err
		}
	}
	p.cur.Store(newest)
	return newest, first, nil
}

// noneWithoutHead refuses to start empty where checkpoints lie without the HEAD that lists them: they would be swept away.
func noneWithoutHead(ctx context.Context, store object.Store) error {
	return store.List(ctx, manifestPrefix, func(info object.Info) error {
		return pgerr.Newf(pgerr.DataCorrupted, "%s has checkpoints (%s) but no %s", store, info.Key, headKey).
			WithHint("Restore %s from a copy, or use another folder or prefix to start empty.", headKey)
	})
}

// writeHead replaces HEAD by next, whose Term, Seq and Nonce identify the write: the commit point. It returns when the outcome is known,
// or when ctx ends. While the outcome is not known nothing else may be written, since the write may still arrive.
func (p *publisher) writeHead(ctx context.Context, next *head) error {
	next.Nonce, next.Holder, next.Updated = hostOf(ctx).nonce(), p.holder, hostOf(ctx).now().UTC()
	data, err := sealDoc("head", headFormat, next)
	if err != nil {
		return err
	}
	if len(p.unresolved) > 0 {
		if err := p.resolveHead(ctx); err != nil {
			return err
		}
	}
	ambiguous := false
	for attempt := 0; ; attempt++ {
		info, err := p.store.PutIfMatch(ctx, headKey, p.etag, data)
		if err == nil {
			p.head, p.etag = next, info.ETag
			return nil
		}
		ambiguous = ambiguous || object.IsAmbiguous(err)
		if !ambiguous && (!errors.Is(err, object.ErrPrecondition) && !object.IsRetryable(err) || attempt >= headAttempts) {
			return fmt.Errorf("write checkpoint head: %w", err)
		}
		now, etag, readErr := readHead(ctx, p.store)
		switch {
		case readErr != nil && !ambiguous:
			return readErr
		case readErr != nil: // ask again: the answer decides
		case now != nil && now.Nonce == next.Nonce:
			p.head, p.etag = next, etag
			return nil
		case now == nil || now.Nonce != p.head.Nonce:
			return p.fenced(now)
		default:
			p.etag = etag
		}
		if ctxErr := pause(ctx, attempt); ctxErr != nil {
			if ambiguous {
				p.unresolved = next.Nonce
			}
			return fmt.Errorf("write checkpoint head: %w", errors.Join(err, ctxErr))
		}
	}
}

// StillHeld looks at HEAD, and returns an error matching ErrFenced when another server has taken the store over. It asks the store for nothing when this server writes, or
// has not told yet what became of a write.
func (c *Coordinator) StillHeld(ctx context.Context) error { return c.pub.stillHeld(ctx) }

func (p *publisher) stillHeld(ctx context.Context) error {
	select {
	case <-p.lock:
	default:
		return nil // who has it writes HEAD, and learns the same
	}
	defer p.release()
	if len(p.unresolved) > 0 {
		return nil
	}
	info, err := p.store.Head(ctx, headKey)
	if err == nil && info.ETag == p.etag || err != nil && !errors.Is(err, object.ErrNotFound) {
		return err
	}
	now, etag, err := readHead(ctx, p.store)
	if err != nil {
		return err
	}
	if now == nil || now.Nonce != p.head.Nonce {
		return p.fenced(now)
	}
	p.etag = etag
	return nil
}

// resolveHead finds out whether a write that was given up when a context ended has been applied. If so, this server's view is out of
// date and it must start again.
func (p *publisher) resolveHead(ctx context.Context) error {
	now, _, err := readHead(ctx, p.store)
	if err != nil {
		return err
	}
	if now == nil || now.Nonce != p.head.Nonce {
		return p.fenced(now)
	}
	p.unresolved = ""
	return nil
}

// fenced is the error of a server that another one has taken the store from.
func (p *publisher) fenced(now *head) error {
	if now == nil {
		return pgerr.Wrap(pgerr.CrashShutdown, ErrFenced, "%s has lost its %s", p.store, headKey)
	}
	return pgerr.Wrap(pgerr.CrashShutdown, ErrFenced, "checkpoint store %s now belongs to %s (term %d; this server has term %d)",
		p.store, now.Holder, now.Term, p.head.Term).
		WithHint("Two servers must not share a checkpoint folder. Stop one of them, or give it its own --checkpoint-dir.")
}
