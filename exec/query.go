package exec

import (
	"context"
	"errors"
	"time"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// ErrDone is returned by Query.Emit to end the query early, as a success.
var ErrDone = errors.New("no more rows wanted")

// VirtualTables produces the rows of system relations.
type VirtualTables interface {
	// Rows emits the given columns of the relation; the chunk is lent.
	Rows(ctx context.Context, name string, columns []int, emit func(*types.Chunk) error) error
}

// Query is a one-shot query: the operators of a plan fed with pinned versions and one final barrier.
type Query struct {
	Plan    *plan.Plan
	Env     *expr.Env
	Pinned  *Pinned
	Virtual VirtualTables
	// Overlay holds the uncommitted writes of the session's own transaction, by relation.
	Overlay map[uint64]*OwnRows
	// Emit takes result rows in order; the chunk is lent.
	Emit func(*types.Chunk) error
	// Profile counts what the operators do, nil: nobody asked.
	Profile *op.Profile
}

// Run evaluates q on the calling goroutine.
func (e *Engine) Run(ctx context.Context, q *Query) error {
	if len(q.Plan.Fragments) != 1 {
		return pgerr.Newf(pgerr.InternalError, "one-shot plan with %d fragments", len(q.Plan.Fragments))
	}
	x := &oneShot{engine: e, q: q, ctx: ctx, began: time.Now()}
	if q.Env != nil {
		x.env = *q.Env
	}
	x.env.Interrupt = expr.InterruptedBy(ctx)
	defer x.close()
	err := x.run()
	if errors.Is(err, ErrDone) {
		return nil
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// oneShot is the run of one query.
type oneShot struct {
	engine *Engine
	q      *Query
	env    expr.Env        // of q, interrupted by ctx
	ctx    context.Context //nolint:containedctx // lives exactly as long as Run
	store  *state.Store
	nodes  []*shotNode // in the order in which they run
	opened []op.Operator
	began  time.Time
	cancel func() bool
	// narrowed holds the scans that a join reads by keys.
	narrowed map[*plan.Node]*narrowed
}

// shotNode is an operator of a one-shot query; as an Emitter it passes rows to its parent.
type shotNode struct {
	plan   *plan.Node
	op     op.Operator
	parent *shotNode
	port   int
	feed   func(*shotNode) error // leaves
	emit   func(*types.Chunk) error

	check   *op.ContractEdge
	profile *op.Profile // nil: nobody asked
	counts  *op.NodeProfile
}

// Emit implements op.Emitter.
func (n *shotNode) Emit(c *types.Chunk) error {
	if c.Rows() == 0 {
		return nil
	}
	n.check.Chunk(c)
	if n.profile != nil {
		n.profile.Emitted(n.counts, c)
		defer n.profile.Leave(n.profile.Enter(n.parent.counts))
	}
	if p := n.parent; p.op != nil {
		return p.op.Process(n.port, c, p)
	}
	if n.profile != nil {
		n.profile.Emitted(n.parent.counts, c)
	}
	return n.parent.emit(c)
}

// EmitWatermark implements op.Emitter.
func (n *shotNode) EmitWatermark(w op.Watermark) error {
	n.check.Watermark(w)
	if p := n.parent; p.op != nil {
		return p.op.Watermark(n.port, w, p)
	}
	return nil
}

func (x *oneShot) run() error {
	root := x.q.Plan.Fragments[0].Root
	if root.Kind != plan.KindResult {
		return pgerr.Newf(pgerr.InternalError, "one-shot plan ends in %q", root.Kind)
	}
	profile := x.q.Profile
	top := &shotNode{plan: root, emit: x.q.Emit, profile: profile, counts: profile.Node(root)}
	if profile != nil {
		top.counts.Loops++
	}
	x.cancel = func() bool { return x.ctx.Err() != nil }
	if err := x.build(root.Inputs[0], top, 0); err != nil {
		return err
	}
	return x.drive(x.nodes)
}

// drive runs some of the operators of a query from their leaves to the final barrier.
func (x *oneShot) drive(nodes []*shotNode) error {
	for _, n := range nodes {
		if n.feed != nil {
			if err := n.profile.Run(n.counts, func() error { return n.feed(n) }); err != nil && !errors.Is(err, op.ErrEnough) {
				return err
			}
		}
	}
	b := checkpoint.Barrier{Epoch: x.q.Pinned.Epoch, Triggered: x.began}
	for _, n := range nodes {
		if n.op != nil {
			if err := n.profile.Run(n.counts, func() error { return n.op.Barrier(b, n) }); err != nil && !errors.Is(err, op.ErrEnough) {
				return err
			}
		}
		if n.check != nil {
			n.check.Barrier(1)
			n.check.Check()
		}
	}
	return nil
}

func (x *oneShot) build(pn *plan.Node, parent *shotNode, port int) error {
	n := &shotNode{plan: pn, parent: parent, port: port, check: op.NewContract(pn, op.OfQuery).Edge(), profile: x.q.Profile, counts: x.q.Profile.Node(pn)}
	inTypes := make([][]types.Type, len(pn.Inputs))
	for i := range pn.Inputs {
		inTypes[i] = pn.Inputs[i].Schema.Types()
	}
	if err := x.buildInputs(n); err != nil {
		return err
	}
	var err error
	switch pn.Kind {
	case plan.KindScan:
		n.feed = x.scan
		if pn.Scan.Virtual != "" {
			n.feed = x.virtual
		}
	case plan.KindSource:
		n.feed = x.source
	case plan.KindValues, plan.KindSeries:
		var l op.Leaf
		l, err = op.NewLeaf(pn)
		n.feed = func(n *shotNode) error { return l.Run(x.opContext(n, nil), n) }
	default:
		if n.op, err = op.New(pn); err == nil {
			x.opened = append(x.opened, n.op)
			err = n.op.Open(x.opContext(n, inTypes))
		}
	}
	if err != nil {
		return err
	}
	x.nodes = append(x.nodes, n)
	return nil
}

func (x *oneShot) buildInputs(n *shotNode) error {
	if n.plan.Kind == plan.KindJoin {
		if l := x.chooseLookup(n.plan); l != nil {
			return x.buildLookup(n, l)
		}
	}
	for k := range n.plan.Inputs {
		i := k
		if n.plan.Kind == plan.KindJoin || n.plan.Kind == plan.KindAsofJoin { // the left rows come last, so that the result has their order, as clients expect of small joins
			i = len(n.plan.Inputs) - 1 - k
		}
		if err := x.build(n.plan.Inputs[i], n, i); err != nil {
			return err
		}
	}
	return nil
}

func (x *oneShot) opContext(n *shotNode, in [][]types.Type) *op.Context {
	pn := n.plan
	if x.store == nil && len(pn.Inputs) > 0 {
		x.store = state.NewMemory(x.engine.cfg.MaxPar)
	}
	return &op.Context{
		Node: pn, InputTypes: in, Parallelism: 1, Groups: state.Range{From: 0, To: uint16(x.engine.cfg.MaxPar)}, Store: x.store,
		Lib: x.engine.cfg.Lib, Env: &x.env, Errors: shotErrors{}, OneShot: true, Cancelled: x.cancel, Now: x.env.TxnTime,
		Profile: n.profile, Self: n.counts,
	}
}

func (x *oneShot) close() {
	for _, o := range x.opened {
		_ = o.Close() // nothing of a one-shot query survives it
	}
	if x.store != nil {
		_ = x.store.Close()
	}
}

// shotErrors turns the first failed row into the query's error.
type shotErrors struct{}

// Report implements op.ErrorReporter.
func (shotErrors) Report(_ *plan.Node, err error, _ *types.Chunk, _ int, _ int64) error { return err }

// Late implements op.ErrorReporter: a one-shot query drops late rows as its view would.
func (shotErrors) Late(*plan.Node, *types.Chunk, int) error { return nil }

func (x *oneShot) scan(n *shotNode) error {
	s := n.plan.Scan
	v := x.q.Pinned.Versions[s.Relation]
	if v == nil {
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%q holds no rows yet: it is being created", s.Name)
	}
	own := x.q.Overlay[s.Relation]
	if s.Point != nil {
		return x.point(n, v, own)
	}
	if by := x.narrowed[n.plan]; by != nil {
		if used, err := x.scanIndex(n, v, own, s.Probe, by); used || err != nil {
			return err
		}
	} else if s.Index != nil {
		if used, err := x.scanIndex(n, v, own, s.Index, nil); used || err != nil {
			return err
		}
	}
	if own != nil {
		return x.scanOwn(n, v, own)
	}
	rows := newVersionScan(v, s.Columns, 0, 1, x.engine.cfg.ChunkRows)
	rows.of = 1
	defer rows.close()
	for {
		c, err := rows.next()
		if err != nil || c == nil {
			return err
		}
		if x.ctx.Err() != nil {
			return context.Cause(x.ctx)
		}
		if err := n.Emit(c); err != nil {
			return err
		}
	}
}

// pick returns the scan's columns of a chunk of all stored columns.
func pick(full *types.Chunk, columns []int) *types.Chunk {
	out := &types.Chunk{Cols: make([]*types.Vector, len(columns)), N: full.N}
	for i, c := range columns {
		out.Cols[i] = full.Cols[c]
	}
	return out
}

func (x *oneShot) scanOwn(n *shotNode, v *Version, own *OwnRows) error {
	layout := v.Layout()
	full := types.NewChunk(layout.Types)
	flush := func() error {
		if full.N == 0 {
			return nil
		}
		err := n.Emit(pick(full, n.plan.Scan.Columns))
		full.Reset()
		return err
	}
	add := func(row []byte) error {
		if err := decodeRow(row, full, layout); err != nil {
			return err
		}
		if full.N >= x.engine.cfg.ChunkRows {
			return flush()
		}
		return nil
	}
	each := func(_, row []byte) error { return add(row) }
	if err := v.Each(own, each); err != nil {
		return err
	}
	if err := own.Each(each); err != nil {
		return err
	}
	return flush()
}

// point reads at most one row by its key.
func (x *oneShot) point(n *shotNode, v *Version, own *OwnRows) error {
	key := make([]types.Datum, len(n.plan.Scan.Point))
	var enc []byte
	for i, e := range n.plan.Scan.Point {
		d, err := expr.EvalConst(e, &x.env, x.engine.cfg.Lib)
		if err != nil {
			return err
		}
		if d.Null {
			return nil
		}
		key[i] = d
		enc = types.AppendKeyDatum(enc, d, false, false)
	}
	row, mine := own.Get(enc)
	if !mine {
		var ok bool
		var err error
		if row, ok, err = v.Get(v.Relation.KeyGroupOf(key), enc); err != nil || !ok {
			return err
		}
	}
	if row == nil {
		return nil
	}
	layout := v.Layout()
	full := types.NewChunk(layout.Types)
	if err := decodeRow(row, full, layout); err != nil {
		return err
	}
	return n.Emit(pick(full, n.plan.Scan.Columns))
}

func (x *oneShot) virtual(n *shotNode) error {
	return x.q.Virtual.Rows(x.ctx, n.plan.Scan.Virtual, n.plan.Scan.Columns, n.Emit)
}

// source reads all that the source's splits hold now.
func (x *oneShot) source(n *shotNode) error {
	src, err := x.engine.openSource(x.ctx, n.plan.Source)
	if err != nil {
		return err
	}
	defer src.Close() //nolint:errcheck // read only
	splits, err := src.Splits(x.ctx)
	if err != nil {
		return err
	}
	if err := x.readSplits(n, src, splits); err != nil {
		return err
	}
	if src.Bounded() {
		for p := n.parent; p != nil && p.op != nil && len(p.plan.Inputs) == 1; p = p.parent {
			if p.plan.Kind == plan.KindWatermark {
				return p.op.Watermark(0, op.Watermark{Column: p.plan.Watermark.Column, Value: op.EndOfTime}, p)
			}
		}
	}
	return nil
}

// maxOpenSplits is how many splits of a source a query reads in turn: those of a generator with a rate all take their time at once.
const maxOpenSplits = 16

// readSplits reads the splits of a source to their present end.
func (x *oneShot) readSplits(n *shotNode, src connector.Source, splits []connector.Split) error {
	c := types.NewChunk(n.plan.Schema.Types())
	bad := &shotBadRows{}
	var open []connector.Reader
	defer func() {
		for _, rd := range open {
			_ = rd.Close() // read only
		}
	}()
	for len(splits)+len(open) > 0 {
		for len(open) < maxOpenSplits && len(splits) > 0 {
			rd, err := src.Open(x.ctx, splits[0], n.plan.Source.Columns, n.plan.Source.RowID, bad)
			if err != nil {
				return err
			}
			open, splits = append(open, rd), splits[1:]
		}
		idle := time.Duration(-1) // until the first of them has rows again, when none has
		for i := 0; i < len(open); {
			c.Reset()
			st, wait, err := open[i].Next(x.ctx, c, x.engine.cfg.ChunkRows)
			if err == nil {
				err = bad.err
			}
			if err == nil && c.N > 0 {
				err = n.Emit(c)
			}
			if err == nil && x.ctx.Err() != nil {
				err = context.Cause(x.ctx)
			}
			if err != nil {
				return err
			}
			switch {
			case st == connector.End, st == connector.Idle && !src.Bounded():
				_ = open[i].Close() // read only
				open = append(open[:i], open[i+1:]...)
				idle = 0
				continue
			case st != connector.Idle:
				idle = 0
			case idle < 0 || wait < idle:
				idle = wait
			}
			i++
		}
		if idle > 0 {
			if err := pauseQuery(x.ctx, idle); err != nil {
				return err
			}
		}
	}
	return nil
}

func pauseQuery(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// shotBadRows makes a row that cannot be decoded an error of the query.
type shotBadRows struct{ err error }

// BadRow implements connector.ErrorSink.
func (s *shotBadRows) BadRow(split, where string, err error, _ []byte) {
	if s.err == nil {
		pe := pgerr.From(err)
		e := *pe
		s.err = e.WithDetail("%s, %s", split, where)
	}
}

// Lookup is the fast path of a point read: it decodes the row with the given key values into c. Its strings may be kept.
func (v *Version) Lookup(key []types.Datum, c *types.Chunk) (bool, error) {
	var buf [64]byte
	enc := buf[:0]
	for _, d := range key {
		if d.Null {
			return false, nil
		}
		enc = types.AppendKeyDatum(enc, d, false, false)
	}
	row, ok, err := v.Get(v.Relation.KeyGroupOf(key), enc)
	if err != nil || !ok {
		return false, err
	}
	if err := v.Layout().DecodeView(row, c.Cols); err != nil {
		return false, err
	}
	c.PushWeight(1)
	return true, nil
}
