package exec

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/storage/changelog"
	"github.com/streamdb/streamdb/storage/wal"
	"github.com/streamdb/streamdb/types"
)

// Limits of histories.
const (
	historyMarkBytes  = 64 << 10         // between two places from which a history can be read, and forgotten
	historyMarkTime   = 10 * time.Second // the same as time, at least
	historyMarks      = 1000             // as many such places there are in the time that is kept, about
	historyTailBytes  = 1 << 20          // of the newest changes are held in memory
	historyRetry      = time.Second      // after an error of the disk
	historyPatience   = 10 * time.Second // that a checkpoint has with a history
	historyPoll       = time.Millisecond
	historySettles    = 2 * time.Second // that the beginning of a checkpoint waits for histories
	leastSegmentBytes = 256 << 10
	mostSegmentBytes  = 16 << 20
)

// Retention says how much a relation keeps of its changes.
type Retention struct {
	Time  time.Duration // 0: nothing
	Bytes int64         // at most, on disk
}

// history keeps the changes of a relation on disk, for subscriptions that go on after an epoch of the past. It is a reader of the relation's change
// log with a goroutine of its own. An epoch can be read from it when it is on disk.
//
//	change log ─▶ history: one record per chunk, one fsync for all that is there ─▶ subscriptions
//
// After a restart of the relation from a checkpoint its changes come again, those of a view perhaps cut into other epochs and with other rows. What
// was told to subscribers stays true: at the first epoch after all that anybody was told the history appends the difference between what came again
// since the checkpoint and what it has of it itself, and goes on from there.
type history struct {
	engine *Engine
	rel    *Relation
	dir    string
	log    *wal.WAL // nil until it is open
	reader *changelog.Reader
	wake   chan struct{}
	quit   context.CancelFunc
	life   context.Context //nolint:containedctx // ends with the history
	done   sync.WaitGroup
	layout *types.RowLayout
	print  uint32 // of layout

	mu    sync.Mutex
	keep  Retention
	state historyState
	// from is the epoch that the relation went back to; meets is the epoch at which the history is whole again.
	from, meets uint64
	resets      int64  // of the change log, that are known
	began       int64  // how often it began anew
	joined      int64  // how often it became whole
	since       uint64 // when that was, last
	base        uint64 // changes up to here are gone
	through     uint64 // all up to here is kept
	marks       []historyMark
	tail        []changelog.Entry
	tailFrom    uint64 // the tail has all after it
	tailBytes   int64
	bytes       int64 // on disk since the first mark
	followers   map[*Subscription]struct{}
}

// historyState is how a history stands to its relation.
type historyState uint8

const (
	historyNew   historyState = iota // it begins with what comes → Whole
	historyBack                      // the relation went back to an epoch that the history has passed → Whole, New
	historyWhole                     // it has all up to through → Back, New
)

// historyMark is a place in a history: all before it are changes up to epoch.
type historyMark struct {
	epoch uint64
	lsn   uint64
	at    int64 // ms
	bytes int64 // of the records behind it, up to the next mark
}

// A record: kind, uvarint epoch, uvarint epoch before (there are no changes between them), uvarint time in ms, u32 print of the layout, and the
// chunk of a change. The records of an epoch are written with one sync, so they are all there or none.
const (
	historyBegin  = 1 // changes up to the epoch are not kept; records before are void
	historyChange = 2
)

// historyDir is named after a table, or the job of a view: another query makes it another view.
func (e *Engine) historyDir(r *Relation) string {
	id := r.ID
	if r.job != nil {
		id = r.job.Spec.ID
	}
	return filepath.Join(e.cfg.Dir, "history", strconv.FormatUint(id, 10))
}

// HistoryStats is what a relation keeps of its changes.
type HistoryStats struct {
	Relation         uint64
	Name             string
	Earliest, Newest uint64 // epochs that a subscription can go on from
	Bytes            int64
}

// Histories returns what relations keep, in no order.
func (e *Engine) Histories() []HistoryStats {
	var out []HistoryStats
	for _, h := range e.histories() {
		newest := (&historyFeed{h: h}).closed()
		h.mu.Lock()
		if h.state != historyNew {
			out = append(out, HistoryStats{Relation: h.rel.ID, Name: h.rel.Name, Earliest: h.base, Newest: newest, Bytes: h.bytes})
		}
		h.mu.Unlock()
	}
	return out
}

func (e *Engine) histories() []*history {
	e.mu.Lock()
	defer e.mu.Unlock()
	var hs []*history
	for _, r := range e.rels {
		if h := r.history.Load(); h != nil {
			hs = append(hs, h)
		}
	}
	return hs
}

// Retain has a relation keep its changes from now on, or otherwise than before, or no longer. Before Start what a former process kept is taken up;
// from is then the epoch that the relation is restored to.
func (e *Engine) Retain(r *Relation, keep Retention, from uint64) error {
	h := r.history.Load()
	switch {
	case keep.Time <= 0 && h == nil:
		return nil
	case keep.Time <= 0:
		r.history.Store(nil)
		h.stop()
		return os.RemoveAll(h.dir)
	case h != nil:
		h.mu.Lock()
		h.keep = keep
		h.mu.Unlock()
		h.poke()
		return nil
	}
	h = &history{
		engine: e, rel: r, dir: e.historyDir(r), keep: keep, wake: make(chan struct{}, 1), layout: r.Layout(), followers: map[*Subscription]struct{}{},
	}
	h.print = printOf(h.layout)
	h.life, h.quit = context.WithCancel(e.life)
	if e.acker != nil { // what lies there belongs to a relation that is no more
		if err := os.RemoveAll(h.dir); err != nil {
			return pgerr.Wrap(pgerr.IOError, err, "begin the history of %q", r.Name)
		}
	}
	h.resets, _ = r.Log.Resets()
	var ok bool
	if e.acker == nil && (r.job == nil || r.job.restored()) {
		h.reader, ok = r.Log.Attach(from, h.poke)
	}
	if h.state = historyBack; !ok {
		h.reader, h.state = r.Log.Join(h.poke), historyNew
	}
	h.from = from
	r.history.Store(h)
	h.done.Add(1)
	go func() {
		defer h.done.Done()
		h.run()
	}()
	return nil
}

// restored reports whether the job goes on from a checkpoint.
func (j *Job) restored() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.run != nil && j.run.from != nil
}

// ForgetHistories removes what is kept of relations that there are no more. Call it before Start.
func (e *Engine) ForgetHistories() error {
	all := filepath.Join(e.cfg.Dir, "history")
	left, err := os.ReadDir(all)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	known := map[string]bool{}
	e.mu.Lock()
	for _, r := range e.rels {
		if h := r.history.Load(); h != nil {
			known[h.dir] = true
		}
	}
	e.mu.Unlock()
	for _, f := range left {
		if dir := filepath.Join(all, f.Name()); !known[dir] {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// printOf tells layouts apart.
func printOf(l *types.RowLayout) uint32 {
	return crc32.ChecksumIEEE([]byte(fmt.Sprint(l.Types, l.Base, l.Slots, l.Generation)))
}

func (h *history) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// stop ends the history; what is on disk stays.
func (h *history) stop() {
	h.quit()
	h.done.Wait()
	h.reader.Detach()
	h.pokeFollowers()
}

func (h *history) stopped() bool { return h.life.Err() != nil }

func (h *history) pokeFollowers() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.followers {
		s.poke()
	}
}

func (h *history) run() {
	err := h.open()
	defer func() {
		if h.log != nil {
			if err := h.log.Close(); err != nil {
				h.engine.cfg.Logger.Warn().Err(err).Str("relation", h.rel.Name).Msg("close the history")
			}
		}
	}()
	for {
		for err == nil && !h.stopped() {
			var more bool
			if more, err = h.step(); !more {
				break
			}
		}
		var retry <-chan time.Time
		if err != nil && !h.stopped() {
			h.engine.cfg.Logger.Error().Err(err).Str("relation", h.rel.Name).Msg("the history of a relation cannot be written: subscriptions wait")
			retry, err = time.After(historyRetry), nil
		}
		select {
		case <-h.wake:
		case <-retry:
		case <-h.life.Done():
			return
		}
		if h.log == nil {
			err = h.open()
		}
	}
}

// open reads what there is.
func (h *history) open() error {
	h.mu.Lock()
	segment := min(max(h.keep.Bytes/16, leastSegmentBytes), mostSegmentBytes)
	h.mu.Unlock()
	log, err := wal.Open(h.dir, wal.Options{SegmentBytes: segment, Log: h.engine.cfg.Logger, Failpoints: h.engine.cfg.Failpoints})
	if err == nil {
		if err = h.scan(log); err != nil {
			err = errors.Join(err, log.Close())
		}
	}
	if pgerr.CodeOf(err) == pgerr.DataCorrupted {
		h.engine.cfg.Logger.Error().Err(err).Str("relation", h.rel.Name).Msg("the history of a relation is damaged: it begins anew")
		if err = os.RemoveAll(h.dir); err == nil {
			h.mu.Lock()
			h.state, h.marks, h.bytes = historyNew, nil, 0
			h.mu.Unlock()
			log, err = wal.Open(h.dir, wal.Options{SegmentBytes: segment, Log: h.engine.cfg.Logger})
		}
	}
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.log = log
	h.mu.Unlock()
	return nil
}

// scan finds the marks.
func (h *history) scan(log *wal.WAL) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.marks, h.bytes, h.through = nil, 0, 0
	known := false
	err := log.Replay(0, func(lsn uint64, rec []byte) error {
		r, ok := readHistory(rec)
		if !ok {
			return pgerr.Newf(pgerr.DataCorrupted, "history of %q: record %d is malformed", h.rel.Name, lsn)
		}
		if known = r.print == h.print; r.kind == historyBegin {
			h.marks, h.bytes = nil, 0
		}
		h.mark(r, lsn, int64(len(rec)))
		return nil
	})
	if err != nil {
		return err
	}
	if !known { // there is nothing, or it is of rows of another form
		h.state, h.marks, h.bytes = historyNew, nil, 0
		return nil
	}
	h.base = h.marks[0].epoch
	h.tail, h.tailFrom, h.tailBytes = nil, h.through, 0
	return nil
}

// mark takes note of a record. Callers hold mu.
func (h *history) mark(r historyRecord, lsn uint64, bytes int64) {
	last := len(h.marks) - 1
	apart := max(historyMarkTime, h.keep.Time/historyMarks).Milliseconds()
	// An epoch is not cut: a mark stands before the first of its records.
	if first := r.epoch > h.through || r.kind == historyBegin; last < 0 || first && (h.marks[last].bytes >= historyMarkBytes || r.at-h.marks[last].at >= apart) {
		h.marks = append(h.marks, historyMark{epoch: r.before, lsn: lsn, at: r.at})
		last++
	}
	h.marks[last].bytes += bytes
	h.bytes += bytes
	h.through = r.epoch
}

type historyRecord struct {
	kind          byte
	epoch, before uint64
	at            int64
	print         uint32
	chunk         []byte
}

func appendHistory(b []byte, r historyRecord, c *types.Chunk) []byte {
	b = append(b, r.kind)
	b = binary.AppendUvarint(b, r.epoch)
	b = binary.AppendUvarint(b, r.before)
	b = binary.AppendUvarint(b, uint64(r.at))
	b = binary.BigEndian.AppendUint32(b, r.print)
	if c != nil {
		b = types.AppendChunk(b, c)
	}
	return b
}

func readHistory(b []byte) (r historyRecord, ok bool) {
	rd := recordReader{b: b}
	if kind := rd.bytes(1); len(kind) == 1 {
		r.kind = kind[0]
	}
	r.epoch, r.before, r.at = rd.uvarint(), rd.uvarint(), int64(rd.uvarint())
	if p := rd.bytes(4); len(p) == 4 {
		r.print = binary.BigEndian.Uint32(p)
	}
	r.chunk = rd.b
	return r, !rd.bad && (r.kind == historyBegin || r.kind == historyChange)
}

// step takes in what there is; more says that there may be something left.
func (h *history) step() (more bool, err error) {
	h.mu.Lock()
	if resets, to := h.rel.Log.Resets(); resets != h.resets {
		h.resets = resets
		if h.state == historyWhole {
			h.state, h.from = historyBack, to
		} else if h.state == historyBack {
			h.from = min(h.from, to)
		}
		h.meets = 0
	}
	if h.reader.Detached() || h.rel.Layout() != h.layout {
		h.state, h.meets = historyNew, 0
	}
	state, meets := h.state, h.meets
	h.mu.Unlock()
	if state != historyWhole {
		return h.becomeWhole(state, meets)
	}
	return h.takeIn()
}

// becomeWhole brings a history that does not follow its relation to where it does again.
func (h *history) becomeWhole(state historyState, meets uint64) (more bool, err error) {
	if meets == 0 {
		if state == historyNew {
			h.reader.Detach()
			h.mu.Lock()
			h.reader, h.layout = h.rel.Log.Join(h.poke), h.rel.Layout()
			h.print = printOf(h.layout)
			h.mu.Unlock()
		}
		// A new epoch comes after all that anybody was told, and all that changes from it on is in the change log.
		if meets, err = h.engine.clock.tick(h.life); err != nil {
			return false, err
		}
		if state == historyNew && h.rel.job == nil { // nor may it lose what the beginning holds
			if err := h.engine.SyncAll(h.life); err != nil {
				return false, err
			}
		}
		h.mu.Lock()
		h.meets = meets
		h.mu.Unlock()
		return true, nil
	}
	closed := h.rel.Closed()
	if closed < meets {
		return false, h.await(meets)
	}
	if state == historyNew {
		return true, h.begin(closed)
	}
	return true, h.correct(closed)
}

// await waits until the relation may have closed an epoch.
func (h *history) await(epoch uint64) error {
	for {
		changed := h.engine.progress.wait()
		if h.rel.Closed() >= epoch {
			h.poke()
			return nil
		}
		if resets, _ := h.rel.Log.Resets(); resets != h.resets || h.reader.Detached() {
			h.poke()
			return nil
		}
		select {
		case <-changed:
		case <-h.life.Done():
			return nil
		}
	}
}

// begin begins anew at an epoch.
func (h *history) begin(epoch uint64) error {
	if err := h.engine.reserve(epoch); err != nil {
		return err
	}
	r := historyRecord{kind: historyBegin, epoch: epoch, before: epoch, at: time.Now().UnixMilli(), print: h.print}
	rec := appendHistory(nil, r, nil)
	lsn := h.log.Append(rec)
	if err := h.log.Sync(); err != nil {
		return err
	}
	h.mu.Lock()
	h.marks, h.bytes = nil, 0
	h.mark(r, lsn, int64(len(rec)))
	h.base, h.tail, h.tailFrom, h.tailBytes = epoch, nil, epoch, 0
	h.began++
	h.whole(epoch)
	h.mu.Unlock()
	h.reader.DurableAsOf(h.resets, epoch)
	h.pokeFollowers()
	return h.log.TruncateBefore(lsn)
}

// whole says that the history has all up to an epoch. Callers hold mu.
func (h *history) whole(epoch uint64) {
	h.state, h.through, h.since = historyWhole, epoch, epoch
	h.joined++
}

// correct appends the difference between what came again up to an epoch, since the one that the relation went back to, and what the history has.
func (h *history) correct(epoch uint64) error {
	from := h.from
	if h.rel.job == nil { // what its epochs hold does not change
		from = max(from, h.base)
	}
	again, ok := h.rel.Log.Range(from, epoch)
	var had []changelog.Entry
	if ok && from < h.through {
		var err error
		var reached uint64
		if had, reached, err = h.read(from, h.through, h.engine.cfg.ChangeLog); err != nil || reached < h.through {
			ok = false
		}
	}
	size := int64(0)
	for _, es := range [][]changelog.Entry{again, had} {
		for i := range es {
			size += es[i].Bytes
		}
	}
	if from < h.base || size > h.engine.cfg.ChangeLog {
		ok = false
	}
	if !ok {
		h.mu.Lock()
		h.state, h.meets = historyNew, 0
		h.mu.Unlock()
		return nil
	}
	var chunks []*types.Chunk
	for i := range again {
		chunks = append(chunks, again[i].Chunks...)
	}
	for i := range had {
		for _, c := range had[i].Chunks {
			chunks = append(chunks, negated(c))
		}
	}
	net, err := netChanges(chunks, h.layout.Types)
	if err != nil {
		return err
	}
	if len(net) > 0 {
		e := changelog.Entry{Epoch: epoch, Chunks: net}
		if err := h.append([]changelog.Entry{e}, epoch); err != nil {
			return err
		}
	}
	h.mu.Lock()
	h.whole(epoch)
	h.mu.Unlock()
	h.reader.DurableAsOf(h.resets, epoch)
	h.pokeFollowers()
	return nil
}

// negated is a change taken back.
func negated(c *types.Chunk) *types.Chunk {
	n := *c
	n.Weights = make([]int64, c.N)
	for i := range n.Weights {
		n.Weights[i] = -c.Weight(i)
	}
	return &n
}

// takeIn appends what the change log has.
func (h *history) takeIn() (more bool, err error) {
	closed := h.rel.Closed()
	h.mu.Lock()
	after := h.through
	h.mu.Unlock()
	if closed <= after {
		return false, nil
	}
	es, ok := h.rel.Log.Range(after, closed)
	if resets, _ := h.rel.Log.Resets(); !ok || resets != h.resets || h.reader.Detached() || h.rel.Layout() != h.layout {
		if !ok && resets == h.resets {
			h.mu.Lock()
			h.state, h.meets = historyNew, 0
			h.mu.Unlock()
		}
		return true, nil
	}
	if err := h.append(es, closed); err != nil {
		return false, err
	}
	h.reader.DurableAsOf(h.resets, closed)
	if len(es) > 0 {
		h.pokeFollowers()
		return true, h.trim()
	}
	return false, nil
}

// append makes entries durable, and then all up to an epoch readable. A later process may tell of them, so their epochs must not come again, whether
// this one tells anybody or not.
func (h *history) append(es []changelog.Entry, through uint64) error {
	if len(es) > 0 {
		if err := h.engine.reserve(es[len(es)-1].Epoch); err != nil {
			return err
		}
	}
	h.mu.Lock()
	before := h.through
	h.mu.Unlock()
	type written struct {
		r     historyRecord
		lsn   uint64
		bytes int64
	}
	var ws []written
	now := time.Now().UnixMilli()
	var rec []byte
	for i := range es {
		for _, c := range es[i].Chunks {
			r := historyRecord{kind: historyChange, epoch: es[i].Epoch, before: before, at: now, print: h.print}
			rec = appendHistory(rec[:0], r, c)
			ws = append(ws, written{r, h.log.Append(rec), int64(len(rec))})
		}
		before = es[i].Epoch
	}
	if len(ws) > 0 {
		if err := h.log.Sync(); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range ws {
		h.mark(w.r, w.lsn, w.bytes)
	}
	h.tail = append(h.tail, es...)
	for i := range es {
		h.tailBytes += es[i].Bytes
	}
	n := 0
	for n < len(h.tail) && h.tailBytes > historyTailBytes {
		h.tailBytes -= h.tail[n].Bytes
		h.tailFrom = h.tail[n].Epoch
		n++
	}
	if n > 0 {
		h.tail = append(h.tail[:0:0], h.tail[n:]...)
	}
	h.through = max(h.through, through)
	return nil
}

// trim forgets what is older or larger than is to be kept. What comes again after a crash is kept for longer, within reason.
func (h *history) trim() error {
	needed := h.rel.completedEpoch()
	h.mu.Lock()
	old := time.Now().Add(-h.keep.Time).UnixMilli()
	n := 0
	for n+1 < len(h.marks) {
		next := &h.marks[n+1]
		if !(next.at < old || h.bytes > h.keep.Bytes) || next.epoch > needed && h.bytes <= 2*h.keep.Bytes {
			break
		}
		h.bytes -= h.marks[n].bytes
		n++
	}
	if n == 0 {
		h.mu.Unlock()
		return nil
	}
	h.marks = append(h.marks[:0:0], h.marks[n:]...)
	h.base = h.marks[0].epoch
	lsn := h.marks[0].lsn
	h.mu.Unlock()
	return h.log.TruncateBefore(lsn)
}

// keptUpTo waits until the histories of some relations have everything up to an epoch that a checkpoint ends with: after a restart from it what came
// before does not come again.
func (e *Engine) keptUpTo(epoch uint64, which func(*Relation) bool) error {
	for _, h := range e.histories() {
		if !which(h.rel) {
			continue
		}
		if err := h.reach(epoch); err != nil {
			return err
		}
	}
	return nil
}

// reach waits until the history has all up to an epoch, unless it begins anew. It fails for an epoch before the one at which the history takes back
// what an earlier run of the relation had made: at that epoch it is not what the relation is. It fails at once, because the job may be waiting for
// this snapshot before it goes on to that one.
func (h *history) reach(epoch uint64) error {
	if h.engine.cfg.Failpoints.Hit("history/reach") != nil {
		return checkpoint.ErrNotRunning
	}
	f := &historyFeed{h: h}
	late := time.After(historyPatience)
	for {
		h.mu.Lock()
		state, meets := h.state, h.meets
		h.mu.Unlock()
		if state == historyNew || h.stopped() {
			return nil
		}
		if _, since, whole := f.whole(); whole && epoch < since || state == historyBack && (meets == 0 || epoch < meets) {
			return checkpoint.ErrNotRunning
		}
		if state == historyWhole && f.closed() >= epoch {
			return nil
		}
		t := time.NewTimer(historyPoll)
		select {
		case <-t.C:
		case <-h.life.Done():
		case <-late:
			return pgerr.Newf(pgerr.IOError, "the history of %q does not follow", h.rel.Name)
		}
		t.Stop()
	}
}

// AwaitHistory waits until a relation keeps its changes, if it is to; a checkpoint after that holds no earlier state of a view than its history.
func (e *Engine) AwaitHistory(ctx context.Context, r *Relation) error {
	for {
		changed := e.progress.wait()
		h := r.history.Load()
		if h == nil || h.stopped() || h.standing() != historyNew {
			return nil
		}
		t := time.NewTimer(historyPoll)
		select {
		case <-changed:
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
		t.Stop()
	}
}

// settleHistories gives histories that have something to take back a moment for it: the checkpoint that is about to begin needs that.
func (e *Engine) settleHistories() {
	late := time.After(historySettles)
	for _, h := range e.histories() {
		for j := h.rel.job; h.standing() == historyBack && !h.stopped() && (j == nil || j.advancing() && !j.isPaused()); {
			t := time.NewTimer(historyPoll)
			select {
			case <-t.C:
			case <-late:
				t.Stop()
				return
			}
		}
	}
}

func (h *history) standing() historyState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// completedEpoch is the epoch of the newest complete checkpoint of the relation.
func (r *Relation) completedEpoch() uint64 {
	if r.job == nil {
		return r.engine.tables.completedEpoch.Load()
	}
	r.job.mu.Lock()
	defer r.job.mu.Unlock()
	if r.job.completed == nil {
		return 0
	}
	return r.job.completed.Epoch
}

// Lasting reports whether what the subscription tells can be gone on from after a crash, as far as the relation keeps its changes: a completed
// checkpoint has the view at an epoch that its history goes back to.
func (s *Subscription) Lasting() bool {
	f, kept := s.feed.(*historyFeed)
	if !kept || s.rel.job == nil {
		return true
	}
	completed := s.rel.completedEpoch()
	f.h.mu.Lock()
	defer f.h.mu.Unlock()
	return completed >= f.h.base
}

// errEnough ends the reading of a log.
var errEnough = errors.New("enough")

// read returns the entries of (after, through], not many more than the given bytes, and up to which epoch they are all.
func (h *history) read(after, through uint64, most int64) (es []changelog.Entry, reached uint64, err error) {
	h.mu.Lock()
	if after < h.base {
		first := h.base
		h.mu.Unlock()
		return nil, 0, errGone(h.rel.Name, after, first)
	}
	if after >= h.tailFrom {
		for i := range h.tail {
			if e := h.tail[i].Epoch; e > after && e <= through {
				es = append(es, h.tail[i])
			}
		}
		h.mu.Unlock()
		return es, through, nil
	}
	lsn := h.marks[max(sort.Search(len(h.marks), func(i int) bool { return h.marks[i].epoch > after })-1, 0)].lsn
	log, ts := h.log, h.layout.Types
	h.mu.Unlock()
	bytes := int64(0)
	err = log.Replay(lsn, func(_ uint64, rec []byte) error {
		r, ok := readHistory(rec)
		if !ok {
			return pgerr.Newf(pgerr.DataCorrupted, "the history of %q is malformed", h.rel.Name)
		}
		if r.kind == historyBegin || r.epoch <= after {
			return nil
		}
		n := len(es)
		if r.epoch > through || bytes >= most && es[n-1].Epoch != r.epoch {
			return errEnough
		}
		c, err := types.DecodeChunk(r.chunk, ts)
		if err != nil {
			return err
		}
		if n == 0 || es[n-1].Epoch != r.epoch {
			es = append(es, changelog.Entry{Epoch: r.epoch})
			n++
		}
		e := &es[n-1]
		e.Chunks = append(e.Chunks, c)
		e.Rows += int64(c.Rows())
		e.Bytes += int64(len(rec))
		bytes += int64(len(rec))
		return nil
	})
	h.mu.Lock()
	first := h.base
	h.mu.Unlock()
	switch {
	case after < first: // forgotten while it was read
		return nil, 0, errGone(h.rel.Name, after, first)
	case errors.Is(err, errEnough) && len(es) > 0 && bytes >= most:
		return es, es[len(es)-1].Epoch, nil
	case err != nil && !errors.Is(err, errEnough):
		return nil, 0, err
	}
	return es, through, nil
}

// historyFeed is how a subscription reads a history.
type historyFeed struct {
	h     *history
	s     *Subscription
	began int64
}

// follow makes a subscription read the history.
func (h *history) follow(s *Subscription) *historyFeed {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.followers[s] = struct{}{}
	return &historyFeed{h: h, s: s, began: h.began}
}

// whole reports how often the history became whole, and the epoch of the last time; false while it is not.
func (f *historyFeed) whole() (n int64, since uint64, ok bool) {
	h := f.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.s != nil && f.s.version == nil && f.s.done == 0 { // it has not begun
		f.began = h.began
	}
	if h.layout != h.rel.Layout() {
		h.poke()
		return h.joined, h.since, false
	}
	return h.joined, h.since, h.state == historyWhole
}

// closed implements feed. An epoch without changes needs nothing to be on disk.
func (f *historyFeed) closed() uint64 {
	h := f.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != historyWhole {
		return h.through
	}
	closed := h.rel.Closed()
	if closed <= h.through {
		return h.through
	}
	first, has := h.rel.Log.FirstAfter(h.through, closed)
	if resets, _ := h.rel.Log.Resets(); resets != h.resets || h.reader.Detached() {
		return h.through
	}
	if has {
		closed = first - 1
	}
	h.through = max(h.through, closed)
	return h.through
}

// take implements feed.
func (f *historyFeed) take(after, through uint64) ([]changelog.Entry, uint64, error) {
	return f.h.read(after, through, maxFetchedBytes)
}

// err implements feed.
func (f *historyFeed) err(after uint64) error {
	h := f.h
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.stopped():
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "the changes of %q after epoch %d are not kept any more", h.rel.Name, after).WithHint("SUBSCRIBE anew.")
	case f.began != h.began && after < h.base:
		return errGone(h.rel.Name, after, h.base)
	}
	return nil
}

func (f *historyFeed) close() {
	f.h.mu.Lock()
	defer f.h.mu.Unlock()
	delete(f.h.followers, f.s)
}
