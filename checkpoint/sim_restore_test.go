package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/streamdb/streamdb/checkpoint/barrier"
	"github.com/streamdb/streamdb/storage/object"
)

// simSink is a foreign system that takes transactions.
type simSink struct {
	job       uint64
	term      uint64              // of the server that opened it last
	prepared  map[uint64][]simRow // by checkpoint
	committed map[uint64]bool
	next      []int // per source: the row that comes next
}

func (s *simSink) prepare(_ string, checkpoint uint64, rows []simRow) {
	s.prepared[checkpoint] = rows
}

// commit takes a transaction into the output. Again is nothing.
func (s *simSink) commit(w *simWorld, checkpoint uint64) {
	rows, ok := s.prepared[checkpoint]
	if s.committed[checkpoint] {
		return
	}
	if !ok {
		w.failf("I3: transaction %d of job %d is to be committed and is not there", checkpoint, s.job)
	}
	s.committed[checkpoint] = true
	delete(s.prepared, checkpoint)
	slices.SortStableFunc(rows, func(a, b simRow) int { return a.i - b.i })
	for _, m := range rows {
		if m.i != s.next[m.part] {
			w.failf("I3: the output of job %d has row %d of source %d after %d", s.job, m.i, m.part, s.next[m.part]-1)
		}
		s.next[m.part]++
	}
}

// restoreTo commits what a restored state says is prepared and gives up the rest.
func (s *simSink) restoreTo(w *simWorld, pending []uint64) {
	for _, id := range pending {
		s.commit(w, id)
	}
	clear(s.prepared)
}

// simRestored is the state of a job as read from a checkpoint.
type simRestored struct {
	entry   *JobState
	total   simTotal // with what was in flight
	flown   simTotal
	files   []simFile
	offsets map[int]int
	read    map[uint64]simTotal
	pending []uint64
}

func simDecode(s *JobState) *simRestored {
	d := &simRestored{entry: s, offsets: map[int]int{}, read: map[uint64]simTotal{}}
	for name, b := range s.Positions {
		var part int
		var input uint64
		if _, err := fmt.Sscanf(name, "src/%d", &part); err == nil {
			d.offsets[part] = int(binary.BigEndian.Uint64(b))
		} else if _, err := fmt.Sscanf(name, "in/%d", &input); err == nil {
			d.read[input] = simTotalOf(b[8:])
		}
	}
	for b := s.Operators["sink"]; len(b) >= 8; b = b[8:] {
		d.pending = append(d.pending, binary.BigEndian.Uint64(b))
	}
	return d
}

// checkCut holds a completed checkpoint against the reference: every state is that of its offsets, and what a job has read of another is what that one's state
// in the same checkpoint, or the one held for it, has put out.
func (w *simWorld) checkCut(m *Manifest) {
	totals := func(s *JobState) (t simTotal) {
		if s.State == nil {
			return t
		}
		for _, h := range s.State.Deltas {
			v, ok := w.files[h.Name]
			if !ok {
				v = simTotalOf(w.bucket.read(s.refs.files[h.Name]))
				w.files[h.Name] = v
			}
			t = t.plus(v)
		}
		for _, h := range s.Inflight {
			t = t.plus(simTotalOf(w.bucket.read(s.refs.files[h.Name])))
		}
		return t
	}
	for id, s := range m.Jobs {
		if seen := w.sinces[id]; len(seen) == 0 || seen[len(seen)-1] < s.Since() {
			w.sinces[id] = append(seen, s.Since())
		}
	}
	for _, id := range sortedJobs(m) {
		s, job := m.Jobs[id], w.defs[id]
		if s.Checkpoint > m.ID || s.Epoch > m.Epoch {
			w.failf("checkpoint %d with epoch %d holds job %d at %d with epoch %d", m.ID, m.Epoch, id, s.Checkpoint, s.Epoch)
		}
		for name, r := range s.refs.positions {
			s.Positions[name] = w.bucket.read(r)
		}
		for name, r := range s.refs.operators {
			s.Operators[name] = w.bucket.read(r)
		}
		d := simDecode(s)
		d.total = totals(s)
		want := simTotal{}
		for part, n := range d.offsets {
			want = want.plus(simPrefix(id, part, n))
		}
		for in, read := range d.read {
			want = want.plus(read)
			at := m.Jobs[in]
			switch {
			case at == nil:
				w.failf("I4: in checkpoint %d job %d has read from job %d, which is not in it", m.ID, id, in)
			case at.Checkpoint < s.Checkpoint:
				w.failf("I4: in checkpoint %d job %d at %d has read from job %d at %d", m.ID, id, s.Checkpoint, in, at.Checkpoint)
			case at.Since() <= s.Checkpoint:
				if t := totals(at); t != read {
					w.failf("I4: in checkpoint %d job %d at %d has read %v from job %d, which has %v", m.ID, id, s.Checkpoint, read, in, t)
				}
			default:
				w.counts.held++
				h := m.HeldAt(in, s.Checkpoint)
				if was, _ := slices.BinarySearch(w.sinces[in], s.Checkpoint+1); h == nil && was > 0 && w.inflight[simCutKey{w.sinces[in][was-1], in}] && !job.sink {
					break // its state was without what was in flight: the reader begins anew
				}
				if h == nil {
					w.failf("I4: in checkpoint %d nothing is held of job %d for job %d at %d", m.ID, in, id, s.Checkpoint)
				}
				if t := totals(h.JobState); t != read || len(h.Inflight) > 0 {
					w.failf("I4: in checkpoint %d job %d at %d has read %v from job %d, of which %v is held", m.ID, id, s.Checkpoint, read, in, t)
				}
			}
		}
		if job.exact() && d.total != want {
			w.failf("I4: in checkpoint %d job %d has %v at offsets %v, which are %v", m.ID, id, d.total, d.offsets, want)
		}
		if cut, ok := w.cuts[simCutKey{s.Since(), id}]; !ok || cut != d.total {
			w.failf("I4: checkpoint %d of job %d holds %v, %v was cut", s.Since(), id, d.total, cut)
		}
	}
}

// readState reads a state from the store, as a restore does.
func (s *simProcess) readState(ctx context.Context, entry *JobState) (*simRestored, error) {
	d := simDecode(entry)
	for _, h := range entry.Inflight {
		if castagnoli(h.Inline) != h.CRC {
			s.w.failf("I4: %s was restored with other bytes", h.Name)
		}
		d.flown = d.flown.plus(simTotalOf(h.Inline))
	}
	d.total = d.flown
	if entry.State == nil {
		return d, nil
	}
	for _, h := range entry.State.Deltas {
		b := h.Inline
		if r, ok := entry.refs.files[h.Name]; ok && b == nil {
			b = r.Inline
			for attempt := 1; r.Object != ""; attempt++ {
				var err error
				if b, err = s.store.GetRange(ctx, r.Object, r.Offset, r.Size); err == nil {
					break
				}
				if !object.IsRetryable(err) || attempt > 30 {
					return nil, err
				}
				if err := pause(ctx, attempt); err != nil {
					return nil, err
				}
			}
		}
		if h.Size > packFileBytes {
			b = bytes.TrimRight(b, "\x00")
		}
		if castagnoli(b) != h.CRC {
			s.w.failf("I4: %s was restored with other bytes", h.Name)
		}
		if h.Inline = b; h.Size > packFileBytes {
			h.Inline, h.Path = nil, h.Name
			s.disk[h.Name] = &simObject{data: b, size: h.Size}
		}
		f := simFile{h, simTotalOf(b)}
		d.files = append(d.files, f)
		d.total = d.total.plus(f.total)
	}
	return d, nil
}

// restore starts the jobs of a checkpoint; m is nil when there is none.
func (s *simProcess) restore(ctx context.Context, m *Manifest) error {
	w := s.w
	w.counts.restores++
	s.restored = m
	if m == nil {
		for id := range w.initial {
			s.jobs = append(s.jobs, id+1)
		}
		s.version = 1
	} else {
		s.version, s.epoch = m.CatalogVersion, m.Epoch
		s.jobs = simCatalog(m.Catalog)
		for id := range m.Jobs {
			if !slices.Contains(s.jobs, id) {
				s.c.Drop(id)
			}
		}
	}
	states, err := s.readStates(ctx, m, s.jobs)
	if err != nil {
		return err
	}
	for _, id := range s.jobs {
		if slices.Contains(s.jobs, id) {
			s.begin(w.defs[id], s.follows(w.defs[id], states[id], m), m)
		}
	}
	return nil
}

func (s *simProcess) readStates(ctx context.Context, m *Manifest, jobs []uint64) (map[uint64]*simRestored, error) {
	states := map[uint64]*simRestored{}
	for _, id := range slices.Clone(jobs) {
		if m == nil || m.Jobs[id] == nil {
			continue
		}
		d, err := s.readState(ctx, m.Jobs[id])
		if err != nil {
			return nil, fmt.Errorf("state of job %d: %w", id, err)
		}
		states[id] = d
	}
	return states, nil
}

// sunk reports whether a sink reads from a job, directly or not.
func (s *simProcess) sunk(job uint64) bool {
	return slices.ContainsFunc(s.withReaders(map[uint64]bool{job: true}), func(id uint64) bool { return s.w.defs[id].sink })
}

// follows returns d when what the job misses of its inputs can be had after a crash: it is the difference of a state that was held and the newest one.
func (s *simProcess) follows(job *simJob, d *simRestored, m *Manifest) *simRestored {
	if d == nil {
		return nil
	}
	for _, in := range job.inputs {
		at := m.Jobs[in]
		if at.Since() <= d.entry.Checkpoint {
			continue
		}
		if h := m.HeldAt(in, d.entry.Checkpoint); h == nil || len(at.Inflight) > 0 {
			if h == nil && job.sink {
				s.w.failf("I3: nothing is held of job %d for the sink %d at %d", in, job.id, d.entry.Checkpoint)
			}
			return s.anew(job)
		}
		s.w.counts.held++
	}
	return d
}

// anew takes note of a job that cannot go on from its state.
func (s *simProcess) anew(job *simJob) *simRestored {
	if job.sink && !s.w.forgotten[job.id] {
		s.w.failf("I3: job %d has a sink and cannot go on", job.id)
	}
	s.w.counts.anew++
	s.w.anew[job.id] = true
	s.w.trace("anew", s.name, "", job.id)
	return nil
}

// begin starts a run of a job from d, or anew.
func (s *simProcess) begin(job *simJob, d *simRestored, m *Manifest) {
	w := s.w
	if d != nil && slices.ContainsFunc(job.inputs, func(in uint64) bool { return s.runs[in] != nil && d.entry.Epoch < s.runs[in].since }) {
		d = s.anew(job)
	}
	if w.forgotten[job.id] {
		if d == nil && job.sink && m != nil && m.Jobs[job.id] != nil { // it does not run, and whoever had dropped it does so again
			for _, id := range slices.Backward(s.withReaders(map[uint64]bool{job.id: true})) {
				w.trace("drops again", s.name, "", id)
				s.forget(id)
			}
			return
		}
		if w.head.Holder == s.name {
			delete(w.forgotten, job.id)
		}
	}
	r := &jobRun{
		srv: s, job: job, name: fmt.Sprintf("job%d.%s", job.id, w.nonce()), outputs: map[uint64]*simOutput{}, cuts: map[uint64]*simCut{}, wanted: map[uint64]bool{},
		made: map[uint64]*JobState{}, keys: map[uint64]string{}, saved: map[uint64]bool{}, filed: make([]simTotal, job.aggs), from: s.epoch, passed: s.epoch,
	}
	s.runs[job.id] = r
	if d == nil {
		r.since = s.epoch + 1
	} else if d.flown.n != 0 {
		r.since = d.entry.Epoch
	}
	for p := range job.parts {
		r.sources = append(r.sources, &simSource{r: r, ch: len(r.sources), part: p, stopped: s.stopped[job.id]})
	}
	for _, in := range job.inputs {
		r.sources = append(r.sources, &simSource{r: r, ch: len(r.sources), part: -1, input: in})
	}
	for i := range job.aggs {
		a := &simAgg{r: r, at: i, handler: barrier.New(len(r.sources)), queues: make([][]simRow, len(r.sources)), blocked: make([]bool, len(r.sources)), lastSeen: make([]int, len(r.sources))}
		for ch := range a.lastSeen {
			a.lastSeen[ch] = -1
		}
		r.aggs = append(r.aggs, a)
	}
	total := simTotal{}
	if d != nil {
		total = d.total
		r.files = d.files
	} else if k := w.sinks[job.id]; k != nil && slices.Max(k.next) > 0 && w.head.Holder == s.name {
		w.failf("I3: job %d has output and begins anew", job.id)
	}
	r.aggs[0].total = total
	r.filed[0] = total
	if d != nil {
		r.filed[0] = total.minus(d.flown)
	}
	for _, src := range r.sources {
		if src.part >= 0 {
			if d != nil {
				src.offset = d.offsets[src.part]
			}
			s.produce(src)
			continue
		}
		in := s.runs[src.input]
		if in == nil {
			w.failf("job %d reads from job %d, which does not run", job.id, src.input)
		}
		now := in.started
		if in.passed > in.from {
			now = in.outputs[in.passed].total
		}
		if d == nil {
			src.read = now
			r.aggs[0].total = r.aggs[0].total.plus(now)
			continue
		}
		src.read = d.read[src.input]
		// What has become of the input since the reader's checkpoint is read as the difference.
		more := now.minus(src.read)
		if more.n < 0 && !w.anew[src.input] {
			w.failf("I4: job %d has read %v from job %d, which is at %v after a restore", job.id, src.read, src.input, now)
		}
		src.read = now
		r.aggs[0].total = r.aggs[0].total.plus(more)
	}
	for _, a := range r.aggs {
		r.started = r.started.plus(a.total)
	}
	if k := w.sinks[job.id]; k != nil && s.c.pub.head.Term >= k.term { // a system outside refuses who was there earlier
		k.term = s.c.pub.head.Term
		var pending []uint64
		if d != nil {
			pending = d.pending
		}
		k.restoreTo(w, pending)
	}
}

// produce has a source read a few rows from time to time.
func (s *simProcess) produce(src *simSource) {
	w, r := s.w, src.r
	w.after(w.ms(100, 700), s, func() {
		if r.dead {
			return
		}
		if w.producing && !r.paused && !src.stopped {
			for range 1 + w.rng.IntN(3) {
				m := simRow{total: simTotal{1, simValue(r.job.id, src.part, src.offset)}, part: src.part, i: src.offset}
				a := r.aggs[int(uint64(m.total.sum)%uint64(len(r.aggs)))]
				if len(a.queues[src.ch]) >= 8 {
					break
				}
				src.offset++
				s.active = true
				a.push(src.ch, m)
			}
		}
		if w.producing {
			s.produce(src)
		}
	})
}

// withReaders adds what reads from the given jobs, in the order of the catalog: inputs come first.
func (s *simProcess) withReaders(ids map[uint64]bool) []uint64 {
	var all []uint64
	in := maps.Clone(ids)
	for _, id := range s.jobs {
		for _, from := range s.w.defs[id].inputs {
			in[id] = in[id] || in[from]
		}
		if in[id] {
			all = append(all, id)
		}
	}
	return all
}

// fail starts a job again, with all that read from it.
func (s *simProcess) fail(job uint64) {
	if s.dead || !slices.Contains(s.jobs, job) {
		return
	}
	s.broken[job] = true
	s.mend()
}

func (s *simProcess) mend() {
	if s.mending || len(s.broken) == 0 || s.dead || !s.leading || s.ending {
		return
	}
	s.mending = true
	w := s.w
	group := s.withReaders(s.broken)
	clear(s.broken)
	w.counts.restarts++
	for _, id := range group {
		w.trace("restarts", s.name, "", id)
		if r := s.runs[id]; r != nil {
			s.end(r, ErrNotRunning)
		}
	}
	w.spawn(s, func(ctx context.Context) {
		m, err := s.c.Restart(ctx, group)
		var states map[uint64]*simRestored
		if err == nil {
			states, err = s.readStates(ctx, m, group)
		}
		if s.dead {
			return
		}
		s.mending = false
		if !s.leading || s.ending {
			return
		}
		if err != nil {
			w.mayFail(s, err)
			for _, id := range group {
				s.broken[id] = true
			}
			w.after(w.ms(10, 500), s, s.mend)
			return
		}
		for _, id := range group {
			if slices.Contains(s.jobs, id) {
				s.begin(w.defs[id], states[id], m)
			}
		}
		s.mend()
	})
}

// end ends a run; what it owes is answered.
func (s *simProcess) end(r *jobRun, err error) {
	r.dead = true
	delete(s.runs, r.job.id)
	for _, id := range slices.Sorted(maps.Keys(r.wanted)) {
		s.c.Decline(r.job.id, id, err)
	}
}
