package exec

import (
	"slices"
	"strings"
	"time"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/checkpoint/barrier"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// An unaligned checkpoint is cut ahead of the barrier that closes its epoch:
//
//	driver ─ msgOvertake ─▶ all subtasks, ahead of their queues
//	each:  operators emit what they hold back ─▶ channels, with a mark behind it ─▶ state sealed, sources rest
//	       what is queued in front of the marks of its channels, or comes in before them, is in flight: part of the checkpoint
//	later: the barrier of the epoch passes as any other; subtasks that have cut do not cut again, and sources go on behind it
//
// Because sources rest, what the epoch's barrier closes is what the checkpoint holds, with what was in flight taken in: jobs that read from this one may
// have cut theirs at the barrier. Rows of change logs that were not fed yet, up to the epoch, are in flight, too.

// MayOvertake reports whether barriers may overtake rows in a plan. Operators have to be such that they can emit in the middle of an epoch, when the rows that
// belong together have not all come, and that what they have emitted at its end does not depend on the order of the rows. Every row of an exchange has
// to have one receiver that follows from the row.
func MayOvertake(p *plan.Plan, lib expr.Library) bool {
	ok := true
	for _, f := range p.Fragments {
		f.Root.Walk(func(n *plan.Node) { ok = ok && nodeYields(n, lib) })
	}
	return ok
}

func nodeYields(n *plan.Node, lib expr.Library) bool {
	switch n.Kind {
	case plan.KindSource, plan.KindWatermark, plan.KindWindow, plan.KindUnion, plan.KindValues, plan.KindSeries, plan.KindMaterialize, plan.KindDiscard:
		return true
	case plan.KindScan:
		return !n.Scan.Probed && !n.Scan.ChangesOnly
	case plan.KindExchange:
		return n.Exchange.Dist == plan.DistHash || n.Exchange.Dist == plan.DistSingle
	case plan.KindFilter:
		return settled(lib, n.Filter.Cond)
	case plan.KindProject:
		return settled(lib, n.Project.Exprs...)
	case plan.KindUnnest:
		return settled(lib, n.Unnest.Calls...)
	case plan.KindAgg:
		return n.Agg.OnClose < 0 && n.Agg.TTL == 0 && callsYield(n.Agg.Calls, n.Inputs[0].Schema)
	case plan.KindPartialAgg:
		return n.PartialAgg.OnClose < 0 && callsYield(n.PartialAgg.Calls, n.Inputs[0].Schema)
	case plan.KindPartialTopN:
		return n.PartialTopN.OnClose == nil
	case plan.KindJoin:
		return n.Join.CloseKey == nil && n.Join.Range == nil && n.Join.Spread == nil && settled(lib, n.Join.Residual) && (n.Join.Wanted == nil || settled(lib, n.Join.Wanted.Cond))
	}
	return false
}

// callsYield reports whether aggregates do not depend on the order of rows. Sums of floating-point numbers do.
func callsYield(calls []plan.AggCall, in types.Schema) bool {
	return !slices.ContainsFunc(calls, func(c plan.AggCall) bool {
		switch name, _, _ := strings.Cut(c.Func, "("); name {
		case "count", "bool_and", "bool_or", "every", "min", "max", plan.CountTrue:
			return false
		case "sum", "avg":
			return slices.ContainsFunc(c.Args, func(a int) bool {
				oid := in[a].Type.OID
				return oid == types.OIDFloat4 || oid == types.OIDFloat8
			})
		}
		return true
	})
}

// settled reports whether expressions give the same for the same row whenever they are evaluated.
func settled(lib expr.Library, es ...*expr.Expr) bool {
	ok := true
	for _, e := range es {
		e.Walk(func(e *expr.Expr) bool {
			if e.Kind == expr.Call {
				impl, known := lib.Function(e.Func)
				ok = ok && known && !impl.Volatile
			}
			return ok
		})
	}
	return ok
}

// hurried decides while a barrier is in flight whether a checkpoint overtakes it, and starts that. again is when it has to be asked again, 0: when something
// happens.
func (r *run) hurried(inFlight checkpoint.Barrier) (again time.Duration) {
	s := r.job.Settings()
	if !s.Unaligned || inFlight.Checkpoint == flushOnly {
		return 0
	}
	b := inFlight
	if b.Checkpoint == 0 {
		var ok bool
		if b, ok = r.nextCheckpoint(r.job.closedByInputs()); !ok || b.Epoch <= inFlight.Epoch {
			return 0
		}
	}
	if !r.yields || r.backfill || r.settling || b.Kind != checkpoint.KindCheckpoint || len(r.timed) > 0 || r.job.exact.Load() > 0 || r.job.aligned.Load() > 0 || r.overtaken.Checkpoint >= b.Checkpoint {
		return 0
	}
	if rel := r.job.rel; rel != nil && rel.history.Load() != nil {
		return 0
	}
	// A reader that is behind such a checkpoint has to begin anew, which a sink that has written rows cannot.
	if slices.ContainsFunc(r.engine.withReaders([]*Job{r.job}), (*Job).exactlyOnce) {
		return 0
	}
	if left := s.AlignedTimeout - time.Since(b.Triggered); s.AlignedTimeout > 0 && left > 0 {
		return left
	}
	r.overtaken, r.ahead = b, r.cutOf(b)
	for _, t := range r.subtasks {
		t.box.hurry(message{kind: msgOvertake, barrier: b, seq: r.done})
	}
	return 0
}

// overtake tells the subtask of an unaligned checkpoint, or that its place in a channel is known now.
func (t *subtask) overtake(m message) error {
	b := m.barrier
	t.passedOver = max(t.passedOver, m.seq)
	if err := t.follow(t.handler.Overtake(b.Checkpoint), b); err != nil {
		return err
	}
	for ch := t.first; ch < len(t.channels); ch++ {
		id, ok := t.handler.Collects(ch - t.first)
		if !ok || id != b.Checkpoint {
			continue
		}
		var rows []*types.Chunk
		if !t.box.before(ch, id, func(c *types.Chunk) { rows = append(rows, c.Clone()) }) {
			continue // what comes is collected as it is taken
		}
		for _, c := range rows {
			t.cut.keep(t.channels[ch].node, c)
		}
		if err := t.follow(t.handler.Mark(ch-t.first, id), b); err != nil {
			return err
		}
	}
	return nil
}

// follow does what the barrier handler says about unaligned checkpoints.
func (t *subtask) follow(do barrier.Do, b checkpoint.Barrier) error {
	if do.Drop != 0 && t.cut != nil && t.cut.checkpoint == do.Drop {
		t.cut.release()
		t.cut = nil
	}
	if do.Cut != 0 {
		if err := t.cutNow(b); err != nil {
			return err
		}
		if t.first == 0 { // what the driver has sent is known: barriers, and rows of logs by their epochs
			done := t.handler.Mark(0, do.Cut).Complete
			do.Complete = max(do.Complete, done)
		}
	}
	if do.Complete != 0 && t.cut != nil && t.cut.checkpoint == do.Complete {
		c := t.cut
		t.cut = nil
		t.run.collect(c)
	}
	return nil
}

// cutNow cuts the subtask's state in the middle of an epoch.
func (t *subtask) cutNow(b checkpoint.Barrier) error {
	began := time.Now()
	early := checkpoint.Barrier{Epoch: b.Epoch, Checkpoint: b.Checkpoint, Unaligned: true, Triggered: b.Triggered}
	for _, e := range t.edges {
		e.overdraft = unbounded
	}
	for _, n := range t.nodes {
		if n.op == nil {
			continue
		}
		if err := n.op.Barrier(early, n); err != nil {
			return err
		}
	}
	mark := message{kind: msgMark, barrier: b}
	for _, e := range t.edges {
		if err := e.broadcast(mark); err != nil {
			return err
		}
		e.overdraft = channelOverdraft
	}
	for _, e := range t.edges {
		for i := range e.targets {
			if box := e.targets[i].box; box != nil {
				box.hurry(message{kind: msgOvertake, barrier: b, seq: t.passedOver})
			}
		}
	}
	c, err := t.seal(b)
	if err != nil {
		return err
	}
	c.stats.Unaligned, c.stats.StartDelay = true, began.Sub(b.Triggered)
	t.cut = c
	if t.sink != nil {
		if err := t.sink.unapplied(func(rows *types.Chunk) { c.keep(t.root, rows) }); err != nil {
			return err
		}
	}
	for _, s := range t.scans {
		if err := s.unfed(b.Epoch, func(rows *types.Chunk) { c.keep(s.node, rows.Clone()) }); err != nil {
			return err
		}
	}
	if len(t.sources) > 0 {
		t.restUntil = b.Epoch
	}
	return nil
}

// unbounded is an overdraft that lets nothing wait.
const unbounded = 1 << 30

// kept are rows in flight to an operator.
type kept struct {
	node *node
	rows *types.Chunk
}

// keep makes rows part of the checkpoint; it takes the chunk over.
func (c *taskCut) keep(n *node, rows *types.Chunk) {
	b := rows.Bytes()
	c.bytes += b
	c.task.run.engine.network.Add(b)
	c.inflight = append(c.inflight, kept{n, rows})
}

// release gives back what was kept.
func (c *taskCut) release() {
	c.task.run.engine.network.Add(-c.bytes)
	c.inflight, c.bytes = nil, 0
}

// unfed calls each with the rows up to an epoch that the scan has not given to its readers.
func (s *scanLeaf) unfed(through uint64, each func(*types.Chunk)) error {
	if s.node.plan.Scan.Probed {
		return nil
	}
	after := max(s.done, s.task.passedOver)
	if f := s.feeding; f != nil {
		rest := *f
		for c := s.next(&rest); c != nil; c = s.next(&rest) {
			each(c)
		}
		after = max(after, f.through)
	}
	if through <= after {
		return nil
	}
	entries, err := s.changes(after, through)
	if err != nil {
		return err
	}
	rest := logFeed{entries: entries}
	for c := s.next(&rest); c != nil; c = s.next(&rest) {
		each(c)
	}
	return nil
}

// unapplied calls each with the rows of the running epoch that wait for its end.
func (m *materializeOp) unapplied(each func(*types.Chunk)) error {
	c := types.NewChunk(m.types)
	for i := 1; i < len(m.rows.rows); i++ {
		p := &m.rows.rows[i]
		if p.weight == 0 {
			continue
		}
		if c.N == types.MaxChunkRows {
			each(c)
			c = types.NewChunk(m.types)
		}
		if _, err := types.DecodeRow(m.rows.bytes(p.row), c.Cols); err != nil {
			return err
		}
		c.PushWeight(p.weight)
	}
	if c.N > 0 {
		each(c)
	}
	return nil
}
