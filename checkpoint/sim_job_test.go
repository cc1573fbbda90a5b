package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/streamdb/streamdb/checkpoint/barrier"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/state"
)

// simJob is what the catalog says of a job: subtasks that read sources of its own or the changes of other jobs, and, behind channels from each to each, subtasks
// that keep sums. Its output is a row per row. A sink gets the rows of its own sources.
type simJob struct {
	id       uint64
	inputs   []uint64
	parts    int // sources of its own
	aggs     int
	bytes    int // of a file of its state
	sink     bool
	settings JobSettings
}

func simValue(job uint64, part, i int) int64 {
	return int64(fnv1a(fnv1a(fnv1a(99, job), uint64(part)), uint64(i))>>20) % 1000
}

// simTotal is how many rows there are, and their sum.
type simTotal struct{ n, sum int64 }

func (t simTotal) plus(o simTotal) simTotal  { return simTotal{t.n + o.n, t.sum + o.sum} }
func (t simTotal) minus(o simTotal) simTotal { return simTotal{t.n - o.n, t.sum - o.sum} }

// simPrefix is the total of the first n rows of a source.
func simPrefix(job uint64, part, n int) (t simTotal) {
	for i := range n {
		t = t.plus(simTotal{1, simValue(job, part, i)})
	}
	return t
}

type simCutKey struct{ checkpoint, job uint64 }

// simRow is a row in a channel; an input's rows of one epoch are one.
type simRow struct {
	total   simTotal
	part, i int // of a source of its own; part < 0: else
	seq     uint64
	barrier Barrier
	loose   bool
}

// jobRun is one attempt to run a job, in one server.
type jobRun struct {
	srv     *simProcess
	job     *simJob
	dead    bool
	paused  bool
	loose   bool // barriers block no channels
	name    string
	sources []*simSource
	aggs    []*simAgg
	closes  []Barrier // epochs that have been closed, oldest first
	started simTotal  // its output when the run began, at the end of
	from    uint64    // this epoch
	since   uint64    // nobody who has read it up to this epoch only can go on from there: it began anew, or had rows in flight
	outputs map[uint64]*simOutput
	passed  uint64 // epoch that all aggs have passed
	cuts    map[uint64]*simCut
	wanted  map[uint64]bool
	made    map[uint64]*JobState // acknowledged, or to be
	keys    map[uint64]string    // what these describe
	saved   map[uint64]bool      // of savepoints: their files stay until these are written
	lastCut uint64
	writeAt time.Duration

	completed string // what the newest completed one describes; "": not known
	files     []simFile
	fileNo    int
	filed     []simTotal // per agg: what files hold
	pending   []uint64   // transactions prepared and not committed, oldest first
}

type simFile struct {
	handle state.Handle
	total  simTotal
}

type simOutput struct {
	total  simTotal
	passed int
}

// simSource is a subtask that reads.
type simSource struct {
	r       *jobRun
	ch      int
	part    int    // of its own; -1: changes of
	input   uint64 // this job
	offset  int
	read    simTotal // of the input's output
	closed  int      // of run.closes
	stopped bool
	busy    bool // an event to close the next epoch is under way
}

// simAgg is a subtask that keeps a sum.
type simAgg struct {
	r        *jobRun
	at       int
	handler  *barrier.Handler
	queues   [][]simRow
	blocked  []bool
	busy     bool
	total    simTotal
	out      []simRow // rows for the sink since the last transaction
	lastSeen []int    // per channel
}

// simCut is a job's part of a checkpoint while it is made.
type simCut struct {
	barrier  Barrier
	reads    int // sources that have passed
	offsets  []int
	read     []simTotal
	sealed   []bool
	totals   []simTotal
	rows     []int // of each agg's out
	complete int
	inflight simTotal
	unalign  bool
}

// simPart is the participant of a job.
type simPart struct {
	srv *simProcess
	job *simJob
}

func (p *simPart) ID() uint64            { return p.job.id }
func (p *simPart) Name() string          { return fmt.Sprintf("job%d", p.job.id) }
func (p *simPart) Inputs() []uint64      { return p.job.inputs }
func (p *simPart) Settings() JobSettings { return p.job.settings }

func (p *simPart) run() *jobRun { return p.srv.runs[p.job.id] }

func (p *simPart) Trigger(b Barrier) error {
	r := p.run()
	if r == nil {
		return ErrNotRunning
	}
	if js := r.made[b.Checkpoint]; js != nil {
		p.srv.c.Acknowledge(js)
		return nil
	}
	if r.missed(b) {
		return ErrNotRunning
	}
	r.wanted[b.Checkpoint] = true
	return nil
}

func (p *simPart) NotifyComplete(id uint64) {
	w := p.srv.w
	if !w.calm && !w.faultless && w.chance(40) {
		return // lost
	}
	if w.muted > 0 {
		w.muted--
		return
	}
	r := p.run()
	if r == nil {
		return
	}
	if r.made[id] == nil {
		return // of an attempt before
	}
	r.completed = r.keys[id]
	for i := range r.made {
		if i <= id && !r.saved[i] {
			delete(r.made, i)
		}
	}
	r.free()
	w.after(w.ms(0, 20), p.srv, func() {
		if !r.dead {
			r.commit(id)
		}
	})
}

func (p *simPart) NotifyAborted(id uint64) {
	if r := p.run(); r != nil {
		delete(r.wanted, id)
		delete(r.made, id)
		r.abort(id)
		r.free()
	}
}

func (p *simPart) NotifySavepoint(id uint64) {
	if r := p.run(); r != nil {
		delete(r.made, id)
		r.free()
	}
}

// participants lists the jobs of the catalog.
func (s *simProcess) participants() []Participant {
	var ps []Participant
	for _, id := range s.jobs {
		ps = append(ps, s.participant(id))
	}
	return ps
}

func (s *simProcess) participant(id uint64) *simPart {
	p := s.parts[id]
	if p == nil {
		p = &simPart{s, s.w.defs[id]}
		s.parts[id] = p
	}
	return p
}

func (s *simProcess) catalog() (uint64, []byte) {
	data := []byte{}
	for _, id := range s.jobs {
		data = binary.BigEndian.AppendUint64(data, id)
	}
	return s.version, data
}

// BeginCheckpoint implements Clock.
func (s *simProcess) BeginCheckpoint(id uint64, cut Cut) (uint64, error) {
	w := s.w
	if by, twice := w.ids[id]; twice {
		w.failf("I5: checkpoint %d is begun by %s and by %s", id, by, s.name)
	}
	w.ids[id] = s.name
	s.epoch++
	s.active = false
	w.trace("begins", s.name, "", id)
	for _, job := range s.jobs {
		r := s.runs[job]
		if r == nil {
			continue
		}
		b := Barrier{Epoch: s.epoch}
		if cut.Means(job) {
			b = cut.Barrier(id, s.epoch, s.c.now(), r.job.settings)
			if cut.Kind == KindSavepoint && (b.Unaligned || b.AlignedTimeout > 0) {
				w.failf("a savepoint is not aligned")
			}
			r.cuts[id] = &simCut{
				barrier: b, offsets: make([]int, len(r.sources)), read: make([]simTotal, len(r.sources)), sealed: make([]bool, len(r.aggs)),
				totals: make([]simTotal, len(r.aggs)), rows: make([]int, len(r.aggs)),
			}
		}
		if n := len(r.closes); n == 0 || r.passed >= r.closes[n-1].Epoch {
			r.loose = r.job.settings.Mode == AtLeastOnce // a run passes barriers of one kind at a time
		}
		r.closes = append(r.closes, b)
		for _, src := range r.sources {
			src.wake()
		}
	}
	return s.epoch, nil
}

// Quiet implements Clock.
func (s *simProcess) Quiet() bool { return !s.active }

// missed reports whether the run will not cut for b.
func (r *jobRun) missed(b Barrier) bool { return r.cuts[b.Checkpoint] == nil }

// wake has a source close the next epoch when it can.
func (s *simSource) wake() {
	r := s.r
	if s.busy || r.dead || s.closed >= len(r.closes) {
		return
	}
	if s.part < 0 {
		in := r.srv.runs[s.input]
		if in == nil || in.passed < r.closes[s.closed].Epoch {
			return
		}
	}
	s.busy = true
	w := r.srv.w
	w.after(w.ms(0, 15), r.srv, func() {
		s.busy = false
		if r.dead {
			return
		}
		s.close(r.closes[s.closed])
		s.closed++
		s.wake()
	})
}

// close closes an epoch: all that was read before belongs to it.
func (s *simSource) close(b Barrier) {
	r := s.r
	if s.part < 0 {
		total := r.srv.runs[s.input].outputs[b.Epoch].total
		if more := total.minus(s.read); more.n > 0 {
			r.aggs[int(b.Epoch)%len(r.aggs)].push(s.ch, simRow{total: more, part: -1})
			s.read = total
			r.srv.active = true
		}
	}
	cut := r.cuts[b.Checkpoint]
	if cut != nil {
		cut.offsets[s.ch], cut.read[s.ch] = s.offset, s.read
		cut.reads++
	}
	if b.Stops(r.job.id) {
		s.stopped, r.srv.stopped[r.job.id] = true, true
	}
	for _, a := range r.aggs {
		a.push(s.ch, simRow{barrier: b, seq: b.Epoch, loose: r.loose})
	}
	if cut == nil || r.srv.sunk(r.job.id) {
		// A reader that is behind an unaligned checkpoint has to begin anew, which a sink cannot.
	} else if b.Unaligned {
		r.overtake(b.Checkpoint, r.srv.w.ms(0, 10))
	} else if b.AlignedTimeout > 0 && cut.reads == 1 {
		r.overtake(b.Checkpoint, b.AlignedTimeout)
	}
	r.finish(b.Checkpoint)
}

// overtake tells the aggs after a time that a checkpoint is unaligned.
func (r *jobRun) overtake(checkpoint uint64, d time.Duration) {
	for _, a := range r.aggs {
		r.srv.w.after(d, r.srv, func() {
			if r.dead || r.cuts[checkpoint] == nil {
				return
			}
			a.overtake(checkpoint)
		})
	}
}

func (a *simAgg) overtake(checkpoint uint64) {
	r := a.r
	do := a.handler.Overtake(checkpoint)
	a.follow(do)
	if do.Cut == 0 {
		return
	}
	r.srv.w.counts.overtaken++
	r.cuts[checkpoint].unalign = true
	for ch := range a.queues {
		if _, ok := a.handler.Collects(ch); !ok || r.srv.w.chance(400) {
			continue // what it delivers until its barrier is collected then
		}
		at := slices.IndexFunc(a.queues[ch], func(m simRow) bool { return m.barrier.Checkpoint == checkpoint && m.seq != 0 })
		if at < 0 {
			continue
		}
		for _, m := range a.queues[ch][:at] {
			r.cuts[checkpoint].inflight = r.cuts[checkpoint].inflight.plus(m.total)
		}
		a.follow(a.handler.Mark(ch, checkpoint))
	}
	r.finish(checkpoint)
}

func (a *simAgg) push(ch int, m simRow) {
	a.queues[ch] = append(a.queues[ch], m)
	a.wake()
}

// wake has the subtask take something, when there is anything to take.
func (a *simAgg) wake() {
	r, w := a.r, a.r.srv.w
	stuck := true
	readable := false
	for ch := range a.queues {
		stuck = stuck && a.blocked[ch]
		readable = readable || len(a.queues[ch]) > 0 && !a.blocked[ch]
	}
	if stuck {
		w.failf("I8: subtask %d of job %d has blocked all its channels", a.at, r.job.id)
	}
	if !a.handler.Aligning() && slices.Contains(a.blocked, true) {
		w.failf("I8: subtask %d of job %d blocks a channel and waits for nothing", a.at, r.job.id)
	}
	if a.busy || !readable {
		return
	}
	a.busy = true
	d := w.ms(0, 10)
	if w.chance(30) && !w.calm {
		d = w.ms(50, 800)
	}
	w.after(d, r.srv, func() {
		a.busy = false
		if r.dead {
			return
		}
		a.take()
		a.wake()
	})
}

// take takes messages of an unblocked channel, up to a barrier.
func (a *simAgg) take() {
	w := a.r.srv.w
	first := w.rng.IntN(len(a.queues))
	for i := range a.queues {
		ch := (first + i) % len(a.queues)
		if a.blocked[ch] || len(a.queues[ch]) == 0 {
			continue
		}
		for n := 0; n < 4 && len(a.queues[ch]) > 0; n++ {
			m := a.queues[ch][0]
			a.queues[ch] = a.queues[ch][1:]
			if m.seq != 0 {
				a.deliver(ch, m)
				return
			}
			a.process(ch, m)
		}
		return
	}
}

func (a *simAgg) process(ch int, m simRow) {
	r := a.r
	if cp, ok := a.handler.Collects(ch); ok {
		if c := r.cuts[cp]; c != nil {
			c.inflight = c.inflight.plus(m.total)
		}
	}
	if m.part >= 0 {
		if m.i <= a.lastSeen[ch] {
			r.srv.w.failf("a channel has lost its order")
		}
		a.lastSeen[ch] = m.i
		if r.job.sink {
			a.out = append(a.out, m)
		}
	}
	a.total = a.total.plus(m.total)
	r.srv.active = true
}

func (a *simAgg) deliver(ch int, m simRow) {
	r := a.r
	do := a.handler.Barrier(ch, barrier.Barrier{Seq: m.seq, Checkpoint: m.barrier.Checkpoint, Loose: m.loose})
	a.follow(do)
	if do.Release {
		clear(a.blocked)
	}
	if do.Block {
		a.blocked[ch] = true
	}
	if do.Pass {
		if do.Seal {
			a.seal(m.barrier.Checkpoint)
			a.complete(m.barrier.Checkpoint)
		} else if c := r.cuts[m.barrier.Checkpoint]; c != nil && !c.sealed[a.at] {
			r.giveUp(m.barrier.Checkpoint, Failed(CheckpointDeclinedSubsumed, errOvertaken)) // a savepoint
		}
		r.pass(m.seq, a.total)
		clear(a.blocked)
	}
	r.finish(m.barrier.Checkpoint)
}

var errOvertaken = errors.New("an unaligned checkpoint has overtaken it")

func (a *simAgg) follow(do barrier.Do) {
	if do.Drop != 0 {
		a.r.giveUp(do.Drop, Failed(CheckpointDeclinedSubsumed, errors.New("a newer barrier came")))
	}
	if do.Cut != 0 {
		a.seal(do.Cut)
	}
	if do.Complete != 0 {
		a.complete(do.Complete)
	}
}

// seal cuts the subtask's state.
func (a *simAgg) seal(checkpoint uint64) {
	c := a.r.cuts[checkpoint]
	if c == nil {
		return
	}
	if c.sealed[a.at] {
		a.r.srv.w.failf("subtask %d of job %d cuts its state twice for %d", a.at, a.r.job.id, checkpoint)
	}
	c.sealed[a.at], c.totals[a.at], c.rows[a.at] = true, a.total, len(a.out)
}

func (a *simAgg) complete(checkpoint uint64) {
	if c := a.r.cuts[checkpoint]; c != nil {
		c.complete++
	}
}

// pass notes that an agg has passed the end of an epoch.
func (r *jobRun) pass(epoch uint64, total simTotal) {
	o := r.outputs[epoch]
	if o == nil {
		o = &simOutput{}
		r.outputs[epoch] = o
	}
	o.total = o.total.plus(total)
	if o.passed++; o.passed < len(r.aggs) {
		return
	}
	r.passed = max(r.passed, epoch)
	for _, id := range r.srv.jobs {
		if reader := r.srv.runs[id]; reader != nil {
			for _, src := range reader.sources {
				if src.input == r.job.id {
					src.wake()
				}
			}
		}
	}
}

// abort tells the subtasks that a checkpoint was given up.
func (r *jobRun) abort(checkpoint uint64) {
	if r.cuts[checkpoint] == nil {
		return
	}
	delete(r.cuts, checkpoint)
	for _, a := range r.aggs {
		r.srv.w.after(r.srv.w.ms(0, 10), r.srv, func() {
			if !r.dead {
				a.follow(a.handler.Abort(checkpoint))
			}
		})
	}
}

// giveUp declines a checkpoint.
func (r *jobRun) giveUp(checkpoint uint64, err error) {
	if r.cuts[checkpoint] == nil {
		return
	}
	r.abort(checkpoint)
	if r.wanted[checkpoint] {
		delete(r.wanted, checkpoint)
		r.srv.c.Decline(r.job.id, checkpoint, err)
	}
}

// finish writes a cut that is complete, in the background, and answers.
func (r *jobRun) finish(checkpoint uint64) {
	c, w := r.cuts[checkpoint], r.srv.w
	if c == nil || c.reads < len(r.sources) || c.complete < len(r.aggs) {
		return
	}
	c.complete = -1 << 30 // once
	d := w.ms(1, 60)
	decline := false
	if !w.calm && !w.faultless {
		switch {
		case w.chance(20):
			d = c.barrier.Triggered.Sub(r.srv.c.now()) + r.job.settings.Timeout + w.ms(-3, 500)
			w.counts.expired++
		case w.chance(60):
			d = w.ms(200, 3000)
		case w.chance(20):
			decline = true
		}
	}
	// States are written one after the other.
	r.writeAt = max(r.writeAt+time.Microsecond, w.now+d)
	w.after(r.writeAt-w.now, r.srv, func() {
		if r.dead || r.cuts[checkpoint] != c {
			return
		}
		switch {
		case decline:
			w.counts.declined++
			r.giveUp(checkpoint, pgerr.Newf(pgerr.IOError, "the disk is full"))
		case checkpoint < r.lastCut:
			r.giveUp(checkpoint, Failed(CheckpointDeclinedSubsumed, errors.New("a newer one was written first")))
		default:
			r.write(checkpoint, c)
		}
	})
}

// exact reports whether the job's state is that of its offsets.
func (j *simJob) exact() bool { return j.settings.Mode == ExactlyOnce }

// write makes a cut a state, with what changed in a new file.
func (r *jobRun) write(checkpoint uint64, c *simCut) {
	w, b := r.srv.w, c.barrier
	delete(r.cuts, checkpoint)
	r.lastCut = checkpoint
	if c.unalign {
		w.counts.unaligned++
	}
	want, total := simTotal{}, c.inflight
	for i, src := range r.sources {
		if src.part >= 0 {
			want = want.plus(simPrefix(r.job.id, src.part, c.offsets[i]))
		}
		want = want.plus(c.read[i])
	}
	for _, t := range c.totals {
		total = total.plus(t)
	}
	if r.job.exact() && total != want {
		w.failf("I4: job %d cuts %v for checkpoint %d at offsets %v, which are %v (in flight %v)", r.job.id, total, checkpoint, c.offsets, want, c.inflight)
	}
	state0 := simTotal{}
	for i, t := range c.totals {
		state0 = state0.plus(t.minus(r.filed[i]))
		r.filed[i] = t
	}
	var rows []simRow
	for i, a := range r.aggs {
		rows = append(rows, a.out[:c.rows[i]]...)
		a.out = a.out[c.rows[i]:]
		for id, o := range r.cuts {
			if id > checkpoint && o.sealed[i] {
				o.rows[i] -= c.rows[i]
			}
		}
	}
	if r.job.sink && len(rows) > 0 {
		w.sinks[r.job.id].prepare(r.name, checkpoint, rows)
		r.pending = append(r.pending, checkpoint)
	}
	js := &JobState{Job: r.job.id, Checkpoint: checkpoint, Parallelism: len(r.aggs), Positions: map[string][]byte{}, Operators: map[string][]byte{}}
	key := fmt.Sprint(c.offsets, c.read, total)
	if c.inflight.n != 0 {
		key = fmt.Sprint("in flight", checkpoint) // what comes next is another state
	}
	unchanged := !b.Full && r.completed == key
	if state0.n != 0 {
		r.file(checkpoint, "state", state0)
	}
	if b.Full || len(r.files) > 5 {
		all := simTotal{}
		for _, f := range r.files {
			all = all.plus(f.total)
		}
		r.files = nil
		r.file(checkpoint, "base", all)
	}
	snap := &state.Snapshot{Format: 1, Backend: state.BackendMemory, MaxParallelism: 128}
	for _, f := range r.files {
		snap.Deltas = append(snap.Deltas, f.handle)
		snap.FullSize += f.handle.Size
	}
	if c.inflight.n != 0 {
		w.counts.inflight++
		body := append(c.inflight.bytes(), r.name...)
		js.Inflight = []state.Handle{{Name: fmt.Sprintf("inflight/%d-0", checkpoint), Size: int64(len(body)), CRC: castagnoli(body), Inline: body}}
		w.inflight[simCutKey{checkpoint, r.job.id}] = true
	}
	js.State = snap
	for i, src := range r.sources {
		js.Positions[src.position()] = simPosition(c.offsets[i], c.read[i])
	}
	pending := []byte{}
	for _, id := range r.pending {
		pending = binary.BigEndian.AppendUint64(pending, id)
	}
	js.Operators["sink"] = pending
	if unchanged {
		js = &JobState{Job: r.job.id, Checkpoint: checkpoint, Unchanged: true}
	} else {
		w.cuts[simCutKey{checkpoint, r.job.id}] = total
	}
	r.made[checkpoint], r.keys[checkpoint], r.saved[checkpoint] = js, key, b.Kind == KindSavepoint
	if r.wanted[checkpoint] {
		delete(r.wanted, checkpoint)
		r.srv.c.Acknowledge(js)
		if !w.calm && w.chance(30) {
			r.srv.c.Acknowledge(js) // twice
		}
	}
}

func (s *simSource) position() string {
	if s.part >= 0 {
		return fmt.Sprintf("src/%d", s.part)
	}
	return fmt.Sprintf("in/%d", s.input)
}

func simPosition(offset int, read simTotal) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(offset))
	return append(b, read.bytes()...)
}

func (t simTotal) bytes() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(t.n)), uint64(t.sum))
}

func simTotalOf(b []byte) simTotal {
	if len(b) < 16 {
		return simTotal{-1, -1}
	}
	return simTotal{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))}
}

// file adds a file to the state.
func (r *jobRun) file(checkpoint uint64, kind string, t simTotal) {
	r.fileNo++
	name := fmt.Sprintf("%s/%s-%d-%d.sst", r.name, kind, checkpoint, r.fileNo)
	body := append(t.bytes(), name...)
	h := state.Handle{Name: name, Size: int64(len(body))}
	switch {
	case r.job.bytes > packFileBytes: // a file on the disk, most of it imagined
		h.Path, h.Size = name, int64(r.job.bytes)
		r.srv.disk[name] = &simObject{data: body, size: h.Size}
	case r.job.bytes > len(body):
		body = append(body, make([]byte, r.job.bytes-len(body))...)
		h.Size = int64(len(body))
	}
	h.CRC = castagnoli(body)
	if h.Path == "" {
		h.Inline = body
	}
	r.files = append(r.files, simFile{h, t})
}

// free removes local files that no state needs.
func (r *jobRun) free() {
	if r.job.bytes <= packFileBytes {
		return
	}
	needed := map[string]bool{}
	for _, f := range r.files {
		needed[f.handle.Name] = true
	}
	for _, js := range r.made {
		if js.State != nil {
			for _, h := range js.State.Deltas {
				needed[h.Name] = true
			}
		}
	}
	for name := range r.srv.disk {
		if len(name) > len(r.name) && name[:len(r.name)+1] == r.name+"/" && !needed[name] {
			delete(r.srv.disk, name)
		}
	}
}

// mayLack reports whether a file may be gone although a checkpoint is written with it: its job was dropped.
func (s *simProcess) mayLack(path string) bool {
	var job uint64
	_, err := fmt.Sscanf(path, "job%d.", &job)
	return err != nil || !slices.Contains(s.jobs, job)
}

// commit commits what was prepared up to a checkpoint that is durable.
func (r *jobRun) commit(id uint64) {
	if !r.job.sink {
		return
	}
	for len(r.pending) > 0 && r.pending[0] <= id {
		r.srv.w.sinks[r.job.id].commit(r.srv.w, r.pending[0])
		r.pending = r.pending[1:]
	}
}
