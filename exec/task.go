package exec

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/checkpoint/barrier"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// subtaskStride numbers subtasks: fragment × stride + index is unique in a job. Parallelism stays below it.
const subtaskStride = 1024

// node is an operator in a subtask's tree. As an Emitter it takes the operator's output: to the parent, or over the edges.
type node struct {
	plan   *plan.Node
	op     op.Operator // nil for leaves that the task loop feeds
	parent *node
	port   int
	inputs []*node
	task   *subtask
	out    *counters
	check  *op.ContractEdge
	muted  bool // a kept operator before its replay: its readers do not have what its changes are about
	holds  bool // watermarks wait for what the kept operator has put out before
	held   []op.Watermark
	leaf   *sourceLeaf // whose event time the operator's watermarks tell, when its subtasks keep together
	source *sourceLeaf // of a source
	marks  *watermarks // of an exchange
	rests  bool        // as of the last barrier nothing came that tells the time, and nobody shall wait for it
}

// counters of one operator in one subtask, read by streamdb.operators while they run.
type counters struct {
	rowsIn, rowsOut atomic.Int64
}

// Emit implements op.Emitter.
func (n *node) Emit(c *types.Chunk) error {
	rows := c.Rows()
	if rows == 0 || n.muted {
		return nil
	}
	n.check.Chunk(c)
	return n.pass(c)
}

// pass hands rows to who reads them.
func (n *node) pass(c *types.Chunk) error {
	rows := c.Rows()
	n.out.rowsOut.Add(int64(rows))
	if p := n.parent; p != nil {
		p.out.rowsIn.Add(int64(rows))
		return p.op.Process(n.port, c, p)
	}
	for _, e := range n.task.edges {
		if err := e.Emit(c); err != nil {
			return err
		}
	}
	return n.task.sendMarks(rows)
}

// earlyMarkRows is after how many rows watermarks are sent ahead of the barrier to those who can let go of state with them.
const earlyMarkRows = 1 << 15

// sendMarks counts rows that went out and sends the watermarks so far from time to time. They are sent with the next barrier all the same.
func (t *subtask) sendMarks(rows int) error {
	if t.sinceMarks += rows; t.sinceMarks < earlyMarkRows || len(t.marks) == 0 {
		return nil
	}
	t.sinceMarks = 0
	for _, e := range t.edges {
		if !e.early {
			continue
		}
		for _, w := range t.marks {
			if err := e.EmitWatermark(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// EmitWatermark implements op.Emitter. Between fragments watermarks travel with the next barrier: they are promises, and most operators
// emit at barriers anyway. Aggregations that emit closed windows get them early, too.
func (n *node) EmitWatermark(w op.Watermark) error {
	if n.holds {
		n.held = append(n.held, w)
		return nil
	}
	n.check.Watermark(w)
	if n.leaf != nil {
		n.leaf.align.mark.Store(w.Value)
	}
	if p := n.parent; p != nil {
		return p.op.Watermark(n.port, w, p)
	}
	n.task.marks = withMark(n.task.marks, w)
	return nil
}

// withMark returns marks, one per column, with another one.
func withMark(marks []op.Watermark, w op.Watermark) []op.Watermark {
	for i := range marks {
		if marks[i].Column == w.Column {
			marks[i].Value = max(marks[i].Value, w.Value)
			return marks
		}
	}
	return append(marks, w)
}

// findRest finds whether the node rests; its inputs have. Inputs without watermarks say nothing about that.
func (n *node) findRest() error {
	switch {
	case n.source != nil:
		n.rests = n.source.idle()
		return nil
	case n.marks != nil:
		n.rests = n.marks.rest()
		return nil
	}
	n.rests = false
	for _, in := range n.inputs {
		if len(in.plan.WatermarkCols) == 0 && n.plan.Kind != plan.KindWatermark {
			continue
		}
		if n.rests = in.rests; !in.rests {
			break
		}
	}
	idler, ok := n.op.(op.Idler)
	if !ok || n.rests {
		return nil
	}
	for _, in := range n.inputs {
		if in.rests {
			if err := idler.Idle(in.port, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// subtask is one parallel instance of a fragment: a goroutine, a tree of operators, an inbox.
type subtask struct {
	run      *run
	frag     *plan.Fragment
	name     string
	index    int // within the fragment
	number   int // unique in the job
	box      *inbox
	nodes    []*node // inputs before parents
	root     *node
	edges    []*edge
	marks    []op.Watermark // waiting for the next barrier
	sent     []op.Watermark // those that went out last
	rested   bool           // those behind the edges have been told that the subtask is idle
	sources  []*sourceLeaf
	scans    []*scanLeaf
	leaves   []leafNode
	adopted  []*adoptedRows
	channels []channelInput // by channel; 0 is the driver's
	errors   taskErrors
	handler  *barrier.Handler
	first    int      // the first channel that delivers barriers
	feeding  message  // the driver's barrier while scans feed what it closes
	cut      *taskCut // of an unaligned checkpoint, while what is in flight is collected
	restored []kept   // was in flight at the checkpoint that the run goes on from
	// restUntil is the epoch before whose end sources are not read, 0: they are.
	restUntil uint64
	// passedOver is the epoch up to which the driver has passed over without sending barriers.
	passedOver uint64
	processed  int64 // bytes taken in while channels wait for others
	outputs    []*queue
	firstAt    time.Time
	sink       *materializeOp
	writer     *sinkOp

	// sinceMarks counts the rows emitted since watermarks were sent early.
	sinceMarks int

	began   atomic.Int64 // when the loop started, ns of wall time
	waited  atomic.Int64 // ns spent waiting for input
	waiting atomic.Int64 // since when it waits now, ns of wall time, 0 = it works
}

type leafNode struct {
	leaf op.Leaf
	node *node
	ctx  *op.Context
}

// channelInput is where a data channel's messages go.
type channelInput struct {
	node *node
	free chan *types.Chunk
	wms  *watermarks
	slot int
}

// watermarks combines the watermarks of all channels into one exchange: the least of those that are not idle, the greatest when all are.
type watermarks struct {
	chans []map[int]int64
	idle  []bool
	sent  map[int]int64
}

// rest reports whether all channels are idle.
func (w *watermarks) rest() bool { return !slices.Contains(w.idle, false) }

func (w *watermarks) update(slot int, m message) (out []op.Watermark) {
	if m.idle {
		w.idle[slot] = true
	} else {
		w.idle[slot] = false
		if w.chans[slot] == nil {
			w.chans[slot] = map[int]int64{}
		}
		if old, ok := w.chans[slot][m.watermark.Column]; !ok || m.watermark.Value > old {
			w.chans[slot][m.watermark.Column] = m.watermark.Value
		}
	}
	cols := map[int]bool{}
	for _, c := range w.chans {
		for col := range c {
			cols[col] = true
		}
	}
	for col := range cols {
		low, high, all, active := int64(math.MaxInt64), int64(math.MinInt64), true, false
		for i, c := range w.chans {
			v, ok := c[col]
			if ok {
				high = max(high, v)
			}
			if w.idle[i] {
				continue
			}
			if !ok {
				all = false
				break
			}
			low, active = min(low, v), true
		}
		if !active {
			low = high // nobody goes on: what each promised holds
		}
		if sent, ok := w.sent[col]; all && (!ok || low > sent) {
			w.sent[col] = low
			out = append(out, op.Watermark{Column: col, Value: low})
		}
	}
	return out
}

// build makes all subtasks of the run with their channels, and opens their operators over the restored state.
func (r *run) build() error {
	p := r.job.Spec.Plan
	r.consumed.Store(r.done)
	r.settling = r.from != nil && len(r.from.Inflight) > 0
	r.yields = MayOvertake(p, r.engine.cfg.Lib) && !r.job.Spec.Temporary
	r.now = r.engine.now()
	byFrag := make(map[int][]*subtask, len(p.Fragments))
	for i, f := range p.Fragments {
		n := f.Parallelism
		if n == 0 {
			n = r.job.Parallelism()
		}
		if m := r.engine.MaxParallelism(); n > m {
			return fmt.Errorf("parallelism %d exceeds the maximum of %d", n, m)
		}
		for k := range n {
			t := &subtask{run: r, frag: f, index: k, number: i*subtaskStride + k, name: fmt.Sprintf("%d.%d", f.ID, k), channels: make([]channelInput, 1), errors: taskErrors{log: &r.errors}}
			byFrag[f.ID] = append(byFrag[f.ID], t)
			r.subtasks = append(r.subtasks, t)
		}
	}
	for _, f := range p.Fragments {
		for _, t := range byFrag[f.ID] {
			if err := t.build(len(byFrag[f.ID]), byFrag); err != nil {
				return err
			}
		}
	}
	// Channels are numbered; now the inboxes can be made and the senders told.
	for _, t := range r.subtasks {
		t.box = newInbox(len(t.channels))
		t.box.network = &r.engine.network
		t.first = 1
		if len(t.sources)+len(t.scans)+len(t.leaves) > 0 || len(t.channels) == 1 {
			t.first = 0
			r.leaves = append(r.leaves, t)
		}
		t.handler = barrier.New(len(t.channels) - t.first)
	}
	for _, t := range r.subtasks {
		for _, e := range t.edges {
			for i := range e.targets {
				if rt := e.targets[i].task; rt != nil { // a forward exchange has one receiver
					e.targets[i].box = rt.box
					q := &rt.box.queues[e.targets[i].channel]
					q.sender = t.box
					t.outputs = append(t.outputs, q)
					e.early = closesWindows(rt.channels[e.targets[i].channel].node)
				}
			}
		}
	}
	r.alignSources()
	return r.loadInflight()
}

// closesWindows reports whether the rows of an exchange go to an operator that emits windows when they close.
func closesWindows(n *node) bool {
	for n = n.parent; n != nil; n = n.parent {
		switch n.plan.Kind {
		case plan.KindFilter, plan.KindProject, plan.KindWindow, plan.KindPartialAgg, plan.KindPartialTopN:
		case plan.KindAgg:
			return n.plan.Agg.OnClose >= 0
		case plan.KindSession:
			return n.plan.Session.OnClose
		default:
			return false
		}
	}
	return false
}

// build makes the tree of one subtask and connects its exchanges to the senders' subtasks.
func (t *subtask) build(parallelism int, byFrag map[int][]*subtask) error {
	r := t.run
	groups := state.SubtaskRange(r.engine.cfg.MaxPar, parallelism, t.index)
	env := r.engine.jobEnv()
	if r.job.Spec.Format != nil {
		env.Format = r.job.Spec.Format
	}
	var make1 func(pn *plan.Node) (*node, error)
	make1 = func(pn *plan.Node) (*node, error) {
		n := &node{plan: pn, task: t, out: &counters{}, check: r.contract(pn).Edge(), holds: r.adopted.hasRoot(pn.ID)}
		if from := r.adopted.stored(pn.ID); from != nil {
			if err := t.addAdopted(n, from, groups); err != nil {
				return nil, err
			}
		} else {
			n.muted = n.holds
		}
		var inTypes [][]types.Type
		for i, in := range pn.Inputs {
			c, err := make1(in)
			if err != nil {
				return nil, err
			}
			c.parent, c.port = n, i
			n.inputs = append(n.inputs, c)
			inTypes = append(inTypes, in.Schema.Types())
		}
		ctx := &op.Context{
			Node: pn, InputTypes: inTypes, Subtask: t.number, Parallelism: parallelism, Groups: groups, Store: r.store, Lib: r.engine.cfg.Lib,
			Env: env, Errors: &t.errors, Budget: r.engine.cfg.Shared.Operators, Cancelled: r.stopped, Now: r.now, Clock: r.engine.now,
			Filling: r.backfill && !r.adopted.has(pn.ID), Live: r.job.hasSources || r.adopted.rows(), Probe: r.probe,
		}
		var err error
		switch pn.Kind {
		case plan.KindSource:
			err = t.addSource(n, parallelism)
		case plan.KindScan:
			err = t.addScan(n, parallelism)
		case plan.KindExchange:
			t.addExchange(n, byFrag[pn.Exchange.From])
		case plan.KindValues, plan.KindSeries:
			var l op.Leaf
			if l, err = op.NewLeaf(pn); err == nil && t.index == 0 && !r.adopted.has(pn.ID) {
				t.leaves = append(t.leaves, leafNode{leaf: l, node: n, ctx: ctx})
			}
		case plan.KindMaterialize:
			t.sink = &materializeOp{run: r}
			n.op = t.sink
		case plan.KindSink:
			t.writer = &sinkOp{run: r}
			n.op = t.writer
		case plan.KindDiscard:
			n.op = &discardOp{rows: &r.job.discarded}
		default:
			n.op, err = op.New(pn)
		}
		if err == nil && n.op != nil {
			err = n.op.Open(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %d: %w", pn.Kind, pn.ID, err)
		}
		t.nodes = append(t.nodes, n)
		return n, nil
	}
	root, err := make1(t.frag.Root)
	t.root = root
	return err
}

func (t *subtask) addExchange(n *node, senders []*subtask) {
	ex := n.plan.Exchange
	w := &watermarks{chans: make([]map[int]int64, len(senders)), idle: make([]bool, len(senders)), sent: map[int]int64{}}
	n.marks = w
	for i, s := range senders {
		if ex.Dist == plan.DistForward && s.index != t.index {
			w.idle[i] = true
			continue
		}
		free := make(chan *types.Chunk, freeChunks)
		ch := len(t.channels)
		t.channels = append(t.channels, channelInput{node: n, free: free, wms: w, slot: i})
		e := s.edgeTo(n.plan)
		for len(e.targets) <= t.index {
			e.targets = append(e.targets, target{})
		}
		e.targets[t.index] = target{task: t, channel: ch, free: free}
	}
}

// edgeTo returns the sender's edge for the exchange, shared by all receiving subtasks.
func (t *subtask) edgeTo(ex *plan.Node) *edge {
	for _, e := range t.edges {
		if e.exchange == ex.ID {
			return e
		}
	}
	e := &edge{
		exchange: ex.ID, dist: ex.Exchange.Dist, columns: ex.Exchange.Columns, types: ex.Schema.Types(), maxPar: t.run.engine.cfg.MaxPar, subtask: t.index,
		overdraft: channelOverdraft,
	}
	t.edges = append(t.edges, e)
	return e
}

func (e *Engine) jobEnv() *expr.Env {
	return &expr.Env{Format: types.DefaultFormat(), Database: "streamdb", User: "streamdb"}
}

// loop is the task loop: it takes messages and feeds the tree, reads sources while nothing waits, and turns aligned barriers into the
// operators' Barrier calls. While a channel to a receiver is full it takes nothing but what is urgent.
func (t *subtask) loop() error {
	t.began.Store(time.Now().UnixNano())
	if err := t.takeRestored(); err != nil {
		return err
	}
	for {
		if feeds := t.feeding.kind == msgBarrier; feeds || !t.roomy() {
			m, ok, closed := t.box.takeUrgent(t.roomy)
			switch {
			case closed:
				return errStopped
			case ok:
				if err := t.handle(0, m); err != nil {
					return err
				}
			case feeds:
				if err := t.feed(); err != nil {
					return err
				}
			}
			continue
		}
		ready := t.sourceReady()
		ch, m, ok, closed := t.take(!ready)
		if closed {
			return errStopped
		}
		if !ok {
			if err := t.pumpSources(); err != nil {
				return err
			}
			continue
		}
		if err := t.handle(ch, m); err != nil {
			return err
		}
		if ready && m.kind != msgBarrier {
			if err := t.pumpSources(); err != nil {
				return err
			}
		}
	}
}

// roomy reports whether all channels to receivers take more.
func (t *subtask) roomy() bool {
	for _, q := range t.outputs {
		if q.full.Load() {
			return false
		}
	}
	return true
}

// take is inbox.take, counting the time spent waiting.
func (t *subtask) take(wait bool) (ch int, m message, ok, closed bool) {
	if ch, m, ok, closed = t.box.take(false); ok || closed || !wait {
		return ch, m, ok, closed
	}
	began := time.Now()
	t.waiting.Store(began.UnixNano())
	ch, m, ok, closed = t.box.take(true)
	t.waiting.Store(0)
	t.waited.Add(int64(time.Since(began)))
	return ch, m, ok, closed
}

// busyTime is how long the subtask did not wait for input, and how long it has lived.
func (t *subtask) busyTime() (busy, life time.Duration) {
	began := t.began.Load()
	if began == 0 {
		return 0, 0
	}
	idle, now := t.waited.Load(), time.Now().UnixNano()
	if since := t.waiting.Load(); since != 0 {
		idle += now - since
	}
	life = time.Duration(max(1, now-began))
	return min(life, max(0, life-time.Duration(idle))), life
}

func (t *subtask) handle(ch int, m message) error {
	switch m.kind {
	case msgChunk:
		in := &t.channels[ch]
		if err := t.run.engine.cfg.Failpoints.Hit("exec/take"); err != nil {
			return err
		}
		if _, ok := t.handler.Collects(ch - t.first); ok {
			t.cut.keep(in.node, m.chunk.Clone())
		}
		if t.handler.Aligning() {
			t.processed += m.bytes
		}
		err := in.node.Emit(m.chunk)
		m.chunk.Reset()
		select {
		case in.free <- m.chunk:
		default:
		}
		return err
	case msgWatermark:
		in := &t.channels[ch]
		for _, w := range in.wms.update(in.slot, m) {
			if err := in.node.EmitWatermark(w); err != nil {
				return err
			}
		}
		return nil
	case msgSplits:
		return t.assign(m.splits)
	case msgBarrier:
		if !t.handler.Aligning() {
			t.firstAt, t.processed = time.Now(), 0
		}
		if ch == 0 {
			return t.begin(m)
		}
		return t.delivered(ch, m)
	case msgMark:
		return t.follow(t.handler.Mark(ch-t.first, m.barrier.Checkpoint), m.barrier)
	case msgOvertake:
		return t.overtake(m)
	case msgAbort:
		return t.follow(t.handler.Abort(m.barrier.Checkpoint), m.barrier)
	}
	return nil
}

// begin looks for what scans and constant leaves hold for the epoch that the driver's barrier closes, and begins to feed the tree with it.
func (t *subtask) begin(m message) error {
	b := m.barrier
	if b.Filling == checkpoint.FillAgain {
		return t.delivered(0, m)
	}
	for _, s := range t.scans {
		if err := s.begin(b); err != nil {
			return err
		}
	}
	if t.run.backfill && !t.run.leavesRan && !b.Filling.Early() {
		for _, l := range t.leaves {
			if err := l.leaf.Run(l.ctx, l.node); err != nil {
				return err
			}
		}
	}
	t.feeding = m
	return t.feed()
}

// feed gives the tree the next chunk; at the end the barrier counts as delivered.
func (t *subtask) feed() error {
	for _, s := range t.scans {
		if s.feeding != nil {
			return s.step()
		}
	}
	m := t.feeding
	t.feeding = message{}
	return t.delivered(0, m)
}

// delivered counts a barrier that a channel has delivered.
func (t *subtask) delivered(ch int, m message) error {
	b := barrier.Barrier{Seq: m.seq, Checkpoint: m.barrier.Checkpoint, Loose: m.loose}
	if b.Checkpoint == flushOnly {
		b.Checkpoint = 0
	}
	do := t.handler.Barrier(ch-t.first, b)
	if err := t.follow(do, m.barrier); err != nil {
		return err
	}
	if do.Block {
		t.box.block(ch)
	}
	if do.Pass {
		if err := t.barrier(m, do.Seal); err != nil {
			return err
		}
	}
	if do.Release {
		t.box.unblock()
	}
	return nil
}

// barrier passes an aligned barrier through the tree, inputs first, sends it on, and then cuts the subtask's state: downstream aligns
// while this subtask seals.
func (t *subtask) barrier(m message, seal bool) error {
	aligned, b := time.Now(), m.barrier
	for _, l := range t.sources {
		if err := l.passEnd(); err != nil {
			return err
		}
	}
	if b.Drains(t.run.job.Spec.ID) {
		if err := t.drain(); err != nil {
			return err
		}
	}
	if b.Filling == checkpoint.FillAgain {
		for _, a := range t.adopted {
			if err := a.feed(); err != nil {
				return err
			}
		}
	}
	for _, n := range t.nodes {
		if err := n.findRest(); err != nil {
			return err
		}
		// Kept operators have taken in nothing while what they had put out is put out again: what they do about the time must come behind it.
		if n.op != nil && (b.Filling != checkpoint.FillAgain || !t.run.adopted.has(n.plan.ID)) {
			if err := n.op.Barrier(b, n); err != nil {
				return err
			}
		}
		if n.holds && !b.Filling.Early() {
			if err := n.resume(); err != nil {
				return err
			}
		}
		n.check.Barrier(b.Epoch)
	}
	for _, w := range t.marks {
		t.sent = withMark(t.sent, w)
	}
	marks := t.marks
	if t.rested && !t.root.rests {
		marks = t.sent // who found the subtask idle hears that it is not
	}
	t.rested = t.root.rests
	for _, e := range t.edges {
		for _, w := range marks {
			if err := e.EmitWatermark(w); err != nil {
				return err
			}
		}
		if t.rested {
			if err := e.idle(); err != nil {
				return err
			}
		}
		if err := e.barrier(m); err != nil {
			return err
		}
	}
	t.marks = t.marks[:0]
	if seal || b.Checkpoint == flushOnly {
		c, err := t.seal(b)
		if err != nil {
			return err
		}
		if c.stats.StartDelay = t.firstAt.Sub(b.Triggered); !m.loose {
			c.stats.Alignment, c.stats.ProcessedBytes = aligned.Sub(t.firstAt), t.processed
		}
		t.run.collect(c)
	}
	if b.Epoch >= t.restUntil {
		t.restUntil = 0
	}
	t.publishSplits()
	t.run.passedBy()
	return nil
}

// seal cuts the subtask's state.
func (t *subtask) seal(b checkpoint.Barrier) (*taskCut, error) {
	if err := t.run.engine.cfg.Failpoints.Hit("exec/seal"); err != nil {
		return nil, err
	}
	began := time.Now()
	if b.Checkpoint != flushOnly {
		t.errors.pass(b.Checkpoint)
	}
	c := &taskCut{task: t, checkpoint: b.Checkpoint, sealed: t.run.store.Seal(t.number), positions: t.positions()}
	c.stats = checkpoint.SubtaskStats{Operator: fmt.Sprint(t.frag.ID), Subtask: t.index, Sync: time.Since(began)}
	return c, nil
}

// drain tells operators what they hear when all rows have been read.
func (t *subtask) drain() error {
	for _, n := range t.nodes {
		if e, ok := n.op.(op.Ender); ok {
			if err := e.End(n); err != nil {
				return err
			}
		}
		if n.plan.Kind == plan.KindWatermark {
			if err := n.op.Watermark(0, op.Watermark{Column: n.plan.Watermark.Column, Value: op.EndOfTime}, n); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *subtask) close() {
	for _, n := range t.nodes {
		if n.op == nil {
			continue
		}
		if err := n.op.Close(); err != nil {
			t.run.engine.cfg.Logger.Warn().Err(err).Str("job", t.run.job.Spec.Name).Uint32("operator", n.plan.ID).Msg("close operator")
		}
	}
	for _, s := range t.sources {
		s.close()
	}
}
