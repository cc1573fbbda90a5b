package state

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
)

// Options configure a store. The zero value of a field means its default.
type Options struct {
	// Dir is the job's own folder on local disk; it is created when the first file is written.
	Dir            string
	Backend        BackendType
	MaxParallelism int
	// Budget overrides Shared.Overlay as the budget of the overlays.
	Budget *Budget
	// Shared holds the caches of the process; a store opened without has small caches of its own.
	Shared     *Shared
	Job        uint64
	Logger     zerolog.Logger
	FS         vfs.FS
	Failpoints *failpoint.Set
	// Policy tunes merging; zero fields have the values of DefaultPolicy.
	Policy Policy
}

// ownSharedBytes is the memory of a store that was opened without Shared.
const ownSharedBytes = 64 << 20

// Store keeps the state of one job. Part and Seal are for the subtasks; Snapshot, Flush, Confirm, Abort and the rest may be called
// by any goroutine. Snapshot and Flush run one at a time.
type Store struct {
	opts        Options
	fs          vfs.FS
	budget      *Budget
	shared      *Shared
	ownShared   bool
	policy      Policy
	heapOnly    bool // memory backend: no deltas, deletes leave nothing behind
	incarnation string

	// mu guards the fields below it and the published fields of the parts. It is never held during I/O.
	mu        sync.Mutex
	parts     []*Part
	bySubtask map[int][]*Part
	loaded    map[uint32]*tree // restored and not yet taken by a part
	restored  map[uint32]int64 // tables that may have keys only in Pebble, with their number of entries
	cold      *coldSnap
	closed    bool

	overlayBytes atomic.Int64
	evictions    atomic.Int64
	flushing     atomic.Pointer[chan struct{}]
	flushWanted  atomic.Bool // an operator waits to evict what it keeps
	unpublished  atomic.Bool // deltas were written that no snapshot describes
	published    atomic.Pointer[Metrics]
	background   atomic.Pointer[error] // a failure of Pebble's background work

	told []func() // what waits for snapMu; guarded by mu

	// snapMu is held by Snapshot, Flush and Close, and while told is worked off; it guards the fields below. Lock order: snapMu, mu.
	snapMu      sync.Mutex
	records     []record
	chain       chain
	last        *Snapshot
	lastVersion int // of the chain at last
	fileSeq     int
	dirMade     bool
	files       map[string]struct{} // local files of this incarnation outside the live DB
	oldDirs     []string            // folders of earlier incarnations, removed at the first confirmation
	baseFiles   map[string]Handle   // file name in the live DB → its handle in an earlier base
	db          *dbRef
	compacted   chan struct{} // signalled after a compaction
	stats       Metrics
}

// Metrics are sizes and counters of a store.
type Metrics struct {
	OverlayBytes, LiveEntries     int64
	DeltaCount                    int
	DeltaBytes, BaseBytes         int64
	DeltasWritten, EntriesWritten int64
	Merges, Ingests, Bases        int64
	IngestedBytes                 int64
	Evictions                     int64
	// Throttled is the time that ingestions waited for compactions.
	Throttled                  time.Duration
	PebbleOpen                 bool
	PebbleBytes                int64
	L0Sublevels                int
	CacheBytes, CompactedBytes int64
}

// NewMemory returns a store of the memory backend that never touches a disk: for one-shot queries and tests.
func NewMemory(maxParallelism int) *Store {
	return &Store{
		opts: Options{Backend: BackendMemory, MaxParallelism: maxParallelism}, heapOnly: true,
	}
}

// Open opens the state of a job in a new incarnation: empty when from is nil, else with the content of that snapshot, whose files
// have to be local.
func Open(ctx context.Context, opts Options, from *Snapshot) (*Store, error) {
	if opts.MaxParallelism == 0 {
		opts.MaxParallelism = DefaultMaxParallelism
	}
	if opts.Backend == "" {
		opts.Backend = BackendPebble
	}
	if opts.Backend != BackendMemory && opts.Backend != BackendPebble {
		return nil, pgerr.Newf(pgerr.InvalidParameterValue, "unknown state backend %q", opts.Backend)
	}
	s := &Store{opts: opts, fs: opts.FS, shared: opts.Shared, policy: opts.Policy.withDefaults(), heapOnly: opts.Backend == BackendMemory}
	if s.fs == nil {
		s.fs = vfs.Default
	}
	if s.shared == nil && !s.heapOnly {
		s.shared, s.ownShared = OpenShared(ownSharedBytes), true
	}
	s.budget = opts.Budget
	if s.budget == nil && s.shared != nil {
		s.budget = s.shared.Overlay
	}
	if s.budget != nil {
		s.budget.stores.Add(1)
	}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, pgerr.Wrap(pgerr.SystemError, err, "name state incarnation")
	}
	s.incarnation = hex.EncodeToString(id[:])
	if err := s.findOldDirs(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if from != nil {
		if err := s.restore(ctx, from); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// OperatorBudget is the budget for caches that operators keep outside their parts; nil means without limit.
func (s *Store) OperatorBudget() *Budget {
	if s.shared == nil {
		return nil
	}
	return s.shared.Operators
}

// MaxParallelism returns the number of key groups.
func (s *Store) MaxParallelism() int { return s.opts.MaxParallelism }

// Backend returns the type of the store.
func (s *Store) Backend() BackendType { return s.opts.Backend }

// Part opens the share of a table that a subtask owns. Opened again with the same arguments it returns the same part; ranges of
// different subtasks must not overlap.
func (s *Store) Part(table uint32, subtask int, r Range, mode PartMode) (*Part, error) {
	if r.From > r.To || int(r.To) > max(1, s.opts.MaxParallelism) {
		return nil, pgerr.Newf(pgerr.InternalError, "key groups [%d, %d) are outside of max parallelism %d", r.From, r.To, s.opts.MaxParallelism)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed()
	}
	for _, p := range s.parts {
		if p.table != table {
			continue
		}
		if p.subtask == subtask && p.rng == r {
			return p, nil
		}
		if p.rng.From < r.To && r.From < p.rng.To {
			return nil, pgerr.Newf(pgerr.InternalError, "key groups [%d, %d) of state table %d are owned by subtask %d", p.rng.From, p.rng.To, table, p.subtask)
		}
	}
	p := &Part{store: s, table: table, subtask: subtask, rng: r, mode: mode, overlay: newTree(), seq: 2, writtenSeq: 1, evictedSeq: 1, complete: true}
	if s.cold != nil {
		p.cold, p.ingestedSeq = s.cold.retain(), 1
	}
	if n, ok := s.restored[table]; ok {
		p.complete = false
		p.live = n * int64(r.To-r.From) / int64(max(1, s.opts.MaxParallelism))
	}
	if mode == Staged && !s.heapOnly {
		p.staged = &staged{cur: p.newStage()}
		// What Pebble has already is unknown to the filter.
		p.staged.filter.off.Store(s.cold != nil)
	}
	s.take(p)
	s.parts = append(s.parts, p)
	if s.bySubtask == nil {
		s.bySubtask = map[int][]*Part{}
	}
	s.bySubtask[subtask] = append(s.bySubtask[subtask], p)
	p.liveNow.Store(p.live)
	return p, nil
}

// take moves what was loaded at the restore into p.
func (s *Store) take(p *Part) {
	all := s.loaded[p.table]
	if all == nil {
		return
	}
	lo := appendGroupKey(nil, p.rng.From, nil)
	hi := stringOf(appendGroupKey(nil, p.rng.To, nil))
	all.ascend(stringOf(lo), func(e entry) bool {
		if e.key() >= hi {
			return false
		}
		p.overlay.load(e)
		p.bytes += e.size()
		return true
	})
	p.live, p.evictedSeq = int64(p.overlay.len()), 0
	p.reported = p.bytes // counted when it was loaded
	defer p.stageLoaded()
	p.bytesNow.Store(p.bytes)
	if p.overlay.len() == all.len() {
		delete(s.loaded, p.table)
		return
	}
	p.overlay.scan(func(e entry) bool {
		all.delete(e.key())
		return true
	})
	if all.len() == 0 {
		delete(s.loaded, p.table)
	}
}

// Sealed is what one subtask's barrier froze. It costs memory until it is given to Snapshot or Flush, or forgotten: a later seal
// of the same subtask covers it.
type Sealed struct {
	subtask int
	parts   []sealedPart
}

type sealedPart struct {
	part   *Part
	frozen *tree
	stages []*stage // of staged parts
	seq    uint32
	live   int64
}

// Seal freezes what the subtask's parts changed since its previous seal. The subtask's goroutine calls it at a checkpoint barrier.
func (s *Store) Seal(subtask int) *Sealed {
	s.mu.Lock()
	parts := s.bySubtask[subtask]
	s.mu.Unlock()
	for _, p := range parts {
		p.maintain()
	}
	sealed := &Sealed{subtask: subtask}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range parts {
		if sp, ok := p.seal(); ok {
			sealed.parts = append(sealed.parts, sp)
		}
	}
	return sealed
}

// Dirty reports whether anything changed since the last snapshot that was not aborted.
func (s *Store) Dirty() bool {
	if s.unpublished.Load() {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		if p.changed.Load() || len(p.pending) > 0 {
			return true
		}
	}
	return false
}

// NeedsFlush reports that overlays use so much memory that the job should seal and Flush, or take its next checkpoint, now.
func (s *Store) NeedsFlush() bool {
	if s.heapOnly || s.flushing.Load() != nil {
		return false
	}
	return s.flushWanted.Load() || s.budget.Soft() && s.overlayBytes.Load() > s.budget.fairShare()
}

// RequestFlush asks for a barrier at which operators may evict what they keep outside of their parts, before the next checkpoint.
func (s *Store) RequestFlush() { s.flushWanted.Store(true) }

// WaitForFlush holds a subtask until what is being written to disk is there. Barriers wait for it meanwhile.
func (s *Store) WaitForFlush() {
	if done := s.flushing.Load(); done != nil {
		<-*done
	}
}

// waitForRoom holds a subtask that fills the overlay faster than a running flush empties it, until that flush has ended.
func (s *Store) waitForRoom() {
	if s.budget.Over() {
		s.WaitForFlush()
	}
}

// roomPercent of the overlays' budget is where MakeRoom waits.
const roomPercent = 80

// MakeRoom waits for a running flush when memory is short, so that whoever fills parts on behalf of somebody else holds up only itself.
func (s *Store) MakeRoom() {
	if s.budget.OverBy(roomPercent) {
		s.WaitForFlush()
	}
}

// Metrics returns sizes and counters. While a snapshot is being written, those of the background are as they were before it.
func (s *Store) Metrics() Metrics {
	if s.snapMu.TryLock() {
		m := s.backgroundMetrics()
		s.published.Store(&m)
		s.unlockSnap()
	}
	var m Metrics
	if p := s.published.Load(); p != nil {
		m = *p
	}
	m.OverlayBytes = s.overlayBytes.Load()
	m.Evictions = s.evictions.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		m.LiveEntries += max(0, p.liveNow.Load())
	}
	return m
}

// TableMetrics is the share of a state table that a subtask owns.
type TableMetrics struct {
	Table   uint32
	Subtask int
	Entries int64 // live ones, approximately
	Bytes   int64 // in memory
}

// Tables returns the sizes of all tables that subtasks have opened.
func (s *Store) Tables() []TableMetrics {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]TableMetrics, len(s.parts))
	for i, p := range s.parts {
		out[i] = TableMetrics{Table: p.table, Subtask: p.subtask, Entries: max(0, p.liveNow.Load()), Bytes: max(0, p.bytesNow.Load())}
	}
	return out
}

// backgroundMetrics are those that snapMu guards.
func (s *Store) backgroundMetrics() Metrics {
	m := s.stats
	m.DeltaCount = len(s.chain.deltas)
	m.DeltaBytes, m.BaseBytes = s.chain.deltaBytes(), s.chain.baseBytes
	if s.db == nil {
		return m
	}
	pm := s.db.db.Metrics()
	m.PebbleOpen = true
	m.PebbleBytes = int64(pm.DiskSpaceUsage())
	m.L0Sublevels = int(pm.Levels[0].Sublevels)
	m.CacheBytes = pm.BlockCache.Size
	for i := range pm.Levels {
		m.CompactedBytes += int64(pm.Levels[i].TableBytesCompacted)
	}
	return m
}

// Close gives back memory and files. Subtasks have ended before; views stay readable. Closing twice is harmless.
func (s *Store) Close() error {
	s.snapMu.Lock()
	defer s.unlockSnap()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	parts := s.parts
	s.parts, s.bySubtask, s.loaded = nil, nil, nil
	cold := s.cold
	s.cold = nil
	s.mu.Unlock()
	for _, p := range parts {
		p.release()
	}
	s.budget.Add(-s.overlayBytes.Swap(0))
	if s.budget != nil {
		s.budget.stores.Add(-1)
	}
	cold.release()
	if s.db != nil {
		s.db.release()
		s.db = nil
	}
	if s.ownShared {
		s.shared.Close() // an open DB holds its own references to the caches
	}
	return s.backgroundError()
}

// Destroy closes the store and removes its files. What open views still read goes with the last of them.
func (s *Store) Destroy() error {
	err := s.Close()
	if s.opts.Dir == "" || s.fs == nil {
		return err
	}
	if e := s.findOldDirs(); e != nil {
		return errors.Join(err, e)
	}
	inUse := false
	for _, d := range s.oldDirs {
		inUse = !s.removeIncarnation(d) || inUse
	}
	if !inUse {
		if e := s.fs.RemoveAll(s.opts.Dir); e != nil {
			err = errors.Join(err, pgerr.Wrap(pgerr.IOError, e, "remove state of job %d", s.opts.Job))
		}
	}
	return err
}

func (s *Store) backgroundError() error {
	if e := s.background.Load(); e != nil {
		return *e
	}
	return nil
}

func errClosed() error {
	return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "state store is closed")
}

// entriesByTable counts live entries, tables without a part included.
func (s *Store) entriesByTable(live map[*Part]int64) map[uint32]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[uint32]int64{}
	for t, n := range s.restored {
		out[t] = n
	}
	for t, tr := range s.loaded {
		out[t] = int64(tr.len())
	}
	opened := map[uint32]int64{}
	groups := map[uint32]int64{}
	for _, p := range s.parts {
		n, ok := live[p]
		if !ok {
			n = p.liveNow.Load()
		}
		opened[p.table] += max(0, n)
		groups[p.table] += int64(p.rng.To - p.rng.From)
	}
	for t, n := range opened {
		if rest, ok := out[t]; ok && s.loaded[t] == nil {
			// The groups that no part owns keep their share of what was restored.
			n += rest - rest*groups[t]/int64(max(1, s.opts.MaxParallelism))
		} else if ok {
			n += rest
		}
		out[t] = n
	}
	return out
}

// sortedParts orders parts by table, as their keys are ordered within a key group.
func sortedParts(runs []run) {
	sort.Slice(runs, func(i, j int) bool { return runs[i].table < runs[j].table })
}

// pebbleLogger passes Pebble's errors on and drops its chatter.
type pebbleLogger struct{ log zerolog.Logger }

var _ pebble.Logger = pebbleLogger{}

func (pebbleLogger) Infof(string, ...any) {}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error().Msgf("pebble: "+format, args...)
}

// Fatalf must not return: Pebble calls it when going on would lose data. State up to the last checkpoint is safe, so the process
// restarts from there.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.log.Error().Msgf("pebble: "+format, args...)
	panic(pgerr.Newf(pgerr.IOError, "pebble: "+format, args...))
}
