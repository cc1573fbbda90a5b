package exec

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"sync/atomic"
	"time"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// discoverInterval is how often a source is asked for new splits.
const discoverInterval = time.Second

// splitAssignment gives splits to a source leaf. final: the source will never have more.
type splitAssignment struct {
	operator uint32
	splits   []connector.Split
	final    bool
}

// sourceLeaf reads the splits of one source that were assigned to one subtask.
type sourceLeaf struct {
	node    *node
	task    *subtask
	source  *sourceNode
	readers []*splitReader
	next    int
	chunk   *types.Chunk
	ended   map[string][]byte // positions of splits that are done
	// restored holds the positions of a checkpoint whose splits were not listed yet: they stay part of the next ones.
	restored map[string][]byte
	// restoredMarks holds their watermarks.
	restoredMarks map[string]int64
	final         bool
	endSeen       bool        // all splits have ended
	passed        atomic.Bool // and a barrier has been passed since
	assigned      bool        // has been told of its splits, or that it has none
	caught        atomic.Bool // every split has been read to where it ended, or paused, at least once
	align         alignment
	group         *alignGroup // that its splits keep together with, nil: none
	drift         int64       // by how much they may be ahead, in µs
	low           atomic.Int64
	// marks is the operator that derives the watermark of the rows, with its node; nil when the source has none.
	marks     op.SplitWatermarker
	marksNode *node
	patience  time.Duration // after which a split without rows is idle; 0: never
}

type splitReader struct {
	id     string
	reader connector.Reader
	wakeAt time.Time // idle until then
	caught bool      // has been idle at least once
	mark   int       // its number for the watermark
	rowAt  time.Time // when the last row came, or the split was opened
	silent bool      // for so long that it does not hold the watermark back
	rested bool      // was not read lately because it was ahead of others
}

func (t *subtask) addSource(n *node, parallelism int) error {
	r := t.run
	var sn *sourceNode
	for _, s := range r.sources {
		if s.node.ID == n.plan.ID {
			sn = s
		}
	}
	if sn == nil {
		src, err := r.engine.openSource(r.ctx, n.plan.Source)
		if err != nil {
			return err
		}
		sn = &sourceNode{node: n.plan, source: src, taken: map[string]bool{}, stored: src.Bounded() || n.plan.Source.Encode != ""}
		r.sources = append(r.sources, sn)
	}
	ts := n.plan.Schema.Types()
	l := &sourceLeaf{node: n, task: t, source: sn, chunk: types.NewChunk(ts), ended: map[string][]byte{}}
	if r.settling {
		t.restUntil = r.done
	}
	l.restored, l.restoredMarks = r.restoredPositions(n.plan, func(split string) bool { return splitOwner(split, parallelism) == t.index })
	sn.subs = append(sn.subs, l)
	n.source = l
	t.sources = append(t.sources, l)
	return nil
}

// markPrefix begins the names under which the watermarks of a source's splits are kept among the positions: 8 bytes, big-endian.
func markPrefix(n *plan.Node) string { return fmt.Sprintf("%d#watermark/", n.ID) }

func (e *Engine) openSource(ctx context.Context, s *plan.Source) (connector.Source, error) {
	c, err := e.cfg.Connectors.Lookup(s.Connector)
	if err != nil {
		return nil, err
	}
	return c.Source(ctx, &connector.SourceConfig{
		Name: s.Name, Options: s.Options, Format: s.Format, Encode: s.Encode, EncodeOptions: s.EncodeOptions, Columns: s.Declared,
	})
}

// discover assigns splits to subtasks as they appear, those restored at their positions.
func (s *sourceNode) discover(r *run) error {
	tick := time.NewTicker(discoverInterval)
	defer tick.Stop()
	failures, told := 0, false
	for {
		splits, err := s.source.Splits(r.ctx)
		if err == nil {
			failures = 0
			bounded := s.source.Bounded()
			if err := s.assign(splits, bounded, !told); err != nil || bounded {
				return err
			}
			told = true
		} else if failures++; failures > maxDiscoverFailures {
			return err
		}
		select {
		case <-tick.C:
		case <-r.stop:
			return errStopped
		}
	}
}

// assign hands out the splits that are new. With final the subtasks learn that no more will come; with first they are told also when there are none.
func (s *sourceNode) assign(splits []connector.Split, final, first bool) error {
	batches := make([]splitAssignment, len(s.subs))
	fresh := false
	for _, sp := range splits {
		if s.taken[sp.ID] {
			continue
		}
		s.taken[sp.ID], fresh = true, true
		i := splitOwner(sp.ID, len(s.subs))
		batches[i].splits = append(batches[i].splits, sp)
	}
	if !fresh && !final && !first {
		return nil
	}
	for i, l := range s.subs {
		batches[i].operator, batches[i].final = s.node.ID, final
		if !l.task.box.send(0, message{kind: msgSplits, splits: batches[i : i+1]}) {
			return errStopped
		}
	}
	return nil
}

// splitOwner returns which of n subtasks reads a split: its id alone decides.
func splitOwner(id string, n int) int {
	h := fnv.New32a()
	h.Write([]byte(id)) //nolint:errcheck // never fails
	return int(h.Sum32() % uint32(n))
}

// maxDiscoverFailures is how many times in a row a source may fail to list its splits before the job fails.
const maxDiscoverFailures = 10

// finished reports that every split of every subtask has ended and no new ones will come.
func (s *sourceNode) finished() bool {
	for _, l := range s.subs {
		if !l.passed.Load() {
			return false
		}
	}
	return true
}

// partlyFinished reports whether some subtasks have read all that their sources will ever hold, and others have not.
func (r *run) partlyFinished() bool {
	ended, others := false, false
	for _, s := range r.sources {
		for _, l := range s.subs {
			if l.passed.Load() {
				ended = true
			} else {
				others = true
			}
		}
	}
	return ended && others
}

func (s *sourceNode) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.final {
		s.final = true
		_ = s.source.Close() // readers are closed already, nothing is written
	}
}

func (t *subtask) assign(as []splitAssignment) error {
	for _, a := range as {
		for _, l := range t.sources {
			if l.node.plan.ID != a.operator {
				continue
			}
			for _, sp := range a.splits {
				if pos, ok := l.restored[sp.ID]; ok {
					sp.Position = pos
				}
				rd, err := l.source.source.Open(t.run.ctx, sp, l.node.plan.Source.Columns, l.node.plan.Source.RowID, l)
				if err != nil {
					return fmt.Errorf("open split %s: %w", sp.ID, err)
				}
				s := &splitReader{id: sp.ID, reader: rd, rowAt: time.Now()}
				if l.marks != nil {
					mark, known := l.restoredMarks[sp.ID]
					s.mark = l.marks.AddSplit(mark, known)
				}
				l.readers = append(l.readers, s)
				delete(l.restored, sp.ID)
				delete(l.restoredMarks, sp.ID)
			}
			l.final, l.assigned = a.final, true
			l.checkEnd()
			l.noteCaught()
			l.noteRunning()
			l.noteLow()
		}
	}
	return nil
}

// idle reports whether none of the subtask's splits holds the watermark back. Until it is told of its splits it may get some, whose rows must not be late.
func (l *sourceLeaf) idle() bool {
	if !l.assigned || l.endSeen {
		return false
	}
	return !slices.ContainsFunc(l.readers, func(s *splitReader) bool { return !s.silent })
}

// noteSilent finds a split silent that had no rows for long enough.
func (l *sourceLeaf) noteSilent(s *splitReader) error {
	if l.marks == nil || s.silent || l.patience == 0 || time.Since(s.rowAt) < l.patience {
		return nil
	}
	s.silent = true
	return l.marks.IdleSplit(s.mark, l.marksNode)
}

// sourceReady reports whether a split may have rows now; when all are idle it arranges to be woken.
func (t *subtask) sourceReady() bool {
	if len(t.sources) == 0 || t.run.again.Load() || t.restUntil != 0 {
		return false
	}
	var wake time.Time
	now := time.Time{}
	for _, l := range t.sources {
		if l.task.run.job.isPaused() {
			return false
		}
		if l.ahead() {
			if now.IsZero() {
				now = time.Now()
			}
			if at := now.Add(alignPause); wake.IsZero() || at.Before(wake) {
				wake = at
			}
			continue
		}
		for _, s := range l.readers {
			at := s.wakeAt
			if l.rests(s) {
				at = time.Unix(0, l.group.next.Load())
			}
			if at.IsZero() {
				return true
			}
			if now.IsZero() {
				now = time.Now()
			}
			if !at.After(now) {
				return true
			}
			if wake.IsZero() || at.Before(wake) {
				wake = at
			}
		}
	}
	if !wake.IsZero() {
		t.box.pokeAfter(wake.Sub(now))
	}
	return false
}

// pumpSources reads one chunk of one split per source.
func (t *subtask) pumpSources() error {
	if len(t.sources) == 0 || t.run.job.isPaused() || t.run.again.Load() || t.restUntil != 0 {
		return nil
	}
	for _, l := range t.sources {
		if l.ahead() {
			continue
		}
		if err := l.pump(); err != nil {
			return err
		}
		l.noteRunning()
		l.noteLow()
	}
	return nil
}

func (l *sourceLeaf) pump() error {
	r := l.task.run
	for range len(l.readers) {
		l.next = (l.next + 1) % len(l.readers)
		s := l.readers[l.next]
		if l.rests(s) || !s.wakeAt.IsZero() && s.wakeAt.After(time.Now()) {
			continue
		}
		s.wakeAt = time.Time{}
		l.chunk.Reset()
		st, wait, err := s.reader.Next(r.ctx, l.chunk, r.engine.cfg.ChunkRows)
		if err != nil {
			return fmt.Errorf("read split %s: %w", s.id, err)
		}
		if l.chunk.N > 0 {
			r.job.sourceRows.Add(int64(l.chunk.N))
			if l.marks != nil {
				l.marks.SetSplit(s.mark)
				s.silent, s.rowAt = false, time.Now()
			}
			if err := l.node.Emit(l.chunk); err != nil {
				return err
			}
		}
		switch st {
		case connector.Idle:
			s.wakeAt = time.Now().Add(max(wait, time.Millisecond))
			if l.chunk.N == 0 {
				if err := l.noteSilent(s); err != nil {
					return err
				}
			}
			if !s.caught {
				s.caught = true
				l.noteCaught()
			}
		case connector.End:
			l.ended[s.id] = append([]byte(nil), s.reader.Position()...)
			if err := s.reader.Close(); err != nil {
				return err
			}
			l.readers = append(l.readers[:l.next], l.readers[l.next+1:]...)
			l.next = 0
			if l.marks != nil {
				if err := l.marks.IdleSplit(s.mark, l.marksNode); err != nil {
					return err
				}
			}
			l.checkEnd()
			l.noteCaught()
			return nil
		}
		if l.chunk.N > 0 {
			return nil
		}
	}
	return nil
}

// checkEnd notes when the last split has ended.
func (l *sourceLeaf) checkEnd() {
	if !l.final || len(l.readers) > 0 || l.endSeen {
		return
	}
	l.endSeen = true
}

// noteCaught notes that what the splits held when they were assigned has been read.
func (l *sourceLeaf) noteCaught() {
	if !l.assigned || l.caught.Load() {
		return
	}
	for _, s := range l.readers {
		if !s.caught {
			return
		}
	}
	l.caught.Store(true)
}

// caught reports that all sources that can be caught up with have been: those of stored rows, and generators that end.
func (r *run) caught() bool {
	for _, s := range r.sources {
		if !s.stored {
			continue
		}
		for _, l := range s.subs {
			if !l.caught.Load() {
				return false
			}
		}
	}
	return true
}

// passEnd is called before each barrier: after the end of all splits it emits the last watermarks once, so that all windows close.
func (l *sourceLeaf) passEnd() error {
	if !l.endSeen || l.passed.Load() {
		return nil
	}
	l.passed.Store(true)
	for n := l.node.parent; n != nil && len(n.plan.Inputs) == 1; n = n.parent {
		if e, ok := n.op.(op.Ender); ok {
			if err := e.End(n); err != nil {
				return err
			}
		}
		if n.plan.Kind == plan.KindWatermark {
			return n.op.Watermark(0, op.Watermark{Column: n.plan.Watermark.Column, Value: op.EndOfTime}, n)
		}
	}
	return nil
}

// positions returns where every split of the subtask stands, by "operator/split".
func (t *subtask) positions() map[string][]byte {
	if len(t.sources) == 0 {
		return nil
	}
	out := map[string][]byte{}
	for _, l := range t.sources {
		prefix := fmt.Sprintf("%d/", l.node.plan.ID)
		for id, p := range l.restored {
			out[prefix+id] = p
		}
		for id, p := range l.ended {
			out[prefix+id] = p
		}
		for id, m := range l.restoredMarks {
			out[markPrefix(l.node.plan)+id] = binary.BigEndian.AppendUint64(nil, uint64(m))
		}
		for _, s := range l.readers {
			out[prefix+s.id] = append([]byte(nil), s.reader.Position()...)
			if l.marks == nil {
				continue
			}
			if mark, ok := l.marks.SplitMark(s.mark); ok {
				out[markPrefix(l.node.plan)+s.id] = binary.BigEndian.AppendUint64(nil, uint64(mark))
			}
		}
	}
	return out
}

func (l *sourceLeaf) close() {
	for _, s := range l.readers {
		_ = s.reader.Close() // reading side: nothing is lost
	}
	l.readers = nil
}

// BadRow implements connector.ErrorSink: the raw row goes to the errors relation.
func (l *sourceLeaf) BadRow(split, where string, err error, raw []byte) {
	if pe := pgerr.From(err); pe.Severity == "NOTICE" { // the split has changed its ways, no row is missing
		l.task.run.engine.cfg.Logger.Warn().Str("job", l.task.run.job.Spec.Name).Str("split", split).Str("at", where).Msg(pe.Message)
		return
	}
	l.task.errors.raw(l.node.plan, split, where, err, raw)
}
