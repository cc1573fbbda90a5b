// Package optest replays test cases against operators the way jobs drive them, and checks what must hold whatever the case is.
//
// A case is a list of epochs. It is run with several chunk sizes, with holes in the selection, with a barrier after every chunk, over
// both state backends, with operator caches that may hold nothing, and with a checkpoint and restore, also to another parallelism, at every
// epoch. After every epoch the accumulated output must equal what a fresh operator computes from the accumulated input in one go, and the case's
// own expectation.
package optest

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// Spec is a case.
type Spec struct {
	Node *plan.Node
	Lib  expr.Library
	// Route lists per port the columns by which rows go to subtasks, Everywhere: all of them get the rows; nil: the operator runs in one subtask.
	Route  [][]int
	Epochs []Epoch
	// Oracle computes the output from the accumulated inputs; nil: a fresh operator in one-shot mode.
	Oracle func(in []*types.Chunk) (*types.Chunk, error)
	// NoOracle: only the epochs' own expectations count.
	NoOracle bool
	// Lossy marks operators that emit rows they cannot take back (windows that close): multiplicities are not checked against keys.
	Lossy bool
	// Reduce, when set, makes of all output rows what is compared, in form of Oracle's rows, whose columns are Reduced.
	Reduce  func(out *types.Chunk) (*types.Chunk, error)
	Reduced types.Schema
	// Probed are the columns of the last input that are the key of its relation, which the operator reads by that key.
	Probed []int
}

// Everywhere is the route of a port whose rows go to all subtasks.
var Everywhere = []int{-1}

// Epoch is the input between two barriers, and what is expected after it.
type Epoch struct {
	In []string // rows per port, see types.ParseChunk
	// Chunks per port, instead of In.
	Chunks []*types.Chunk
	Marks  []Mark // watermarks that follow the rows
	Now    int64  // to which the barrier moves the clock, 0: it does not
	// Want is the accumulated output, "{}" for none, "" when the oracle suffices.
	Want string
	// Errors are the SQLSTATEs of the live error reports, sorted and joined by blanks; "" is not checked, "{}" is none.
	Errors string
	// Late is the number of late rows so far; 0 is not checked.
	Late int
}

// Mark is a watermark on a port.
type Mark struct {
	Port, Column int
	Value        int64
}

// variant is one way to run a case.
type variant struct {
	size        int
	holes       bool
	eachChunk   bool // a barrier after every chunk
	checkpoint  bool
	restore     bool
	parallelism []int // in turn, one per restore
	pebble      bool
	starved     bool // operators' caches may hold nothing
}

func (v variant) String() string {
	return fmt.Sprintf("size=%d,holes=%v,each=%v,ckpt=%v,restore=%v,par=%v,pebble=%v,starved=%v", v.size, v.holes, v.eachChunk, v.checkpoint, v.restore,
		v.parallelism, v.pebble, v.starved)
}

var variants = []variant{
	{size: 1024},
	{size: 1},
	{size: 2, holes: true},
	{size: 1, eachChunk: true},
	{size: 1024, holes: true, checkpoint: true},
	{size: 1024, checkpoint: true, restore: true},
	{size: 2, checkpoint: true, restore: true, parallelism: []int{1, 3, 2}},
	{size: 1024, checkpoint: true, starved: true},
	{size: 1, eachChunk: true, checkpoint: true, restore: true, pebble: true, starved: true},
	{size: 1024, checkpoint: true, restore: true, pebble: true, parallelism: []int{2, 5}},
}

// Run replays the case in all variants.
func Run(t *testing.T, s Spec) {
	t.Helper()
	for _, v := range variants {
		if v.parallelism != nil && s.Route == nil {
			v.parallelism = nil
		}
		t.Run(v.String(), func(t *testing.T) { (&runner{t: t, s: s, v: v}).run() })
	}
}

// Check runs the cases that draw makes of seeds 1 to n. Seeds are fixed, so that a failure is seen again.
func Check(t *testing.T, n int, draw func(rt *rapid.T) Spec) {
	t.Helper()
	gen := rapid.Custom(draw)
	for seed := 1; seed <= n; seed++ {
		s := gen.Example(seed)
		for _, v := range variants {
			if v.parallelism != nil && s.Route == nil {
				v.parallelism = nil
			}
			(&runner{t: t, s: s, v: v, name: fmt.Sprintf("seed %d, %s", seed, v)}).run()
		}
	}
}

const maxParallelism = 16

type runner struct {
	t     *testing.T
	s     Spec
	v     variant
	name  string
	root  string
	dirs  int
	store *state.Store
	last  *state.Snapshot
	id    uint64
	epoch uint64
	tasks []*task
	out   *collector
	errs  *reporter
	in    []*types.Chunk // accumulated, consolidated
	read  *types.Chunk   // of the last input what has come until now
	now   int64          // of the barriers
}

type task struct {
	op  op.Operator
	out *collector
}

func (r *runner) run() {
	r.out = newCollector(r.t, r.s.Node)
	r.errs = &reporter{live: map[string]int64{}}
	for _, n := range r.s.Node.Inputs {
		r.in = append(r.in, types.NewChunk(n.Schema.Types()))
		r.read = types.NewChunk(n.Schema.Types())
	}
	r.open(r.width())
	defer func() { r.close() }()
	for i, e := range r.s.Epochs {
		r.play(e)
		r.now = max(r.now, e.Now)
		r.barrier()
		r.check(i, e)
		if r.v.restore {
			r.close()
			r.open(r.width())
		}
	}
}

func (r *runner) width() int {
	if r.v.parallelism == nil {
		return 1
	}
	return r.v.parallelism[int(r.epoch)%len(r.v.parallelism)]
}

func (r *runner) open(width int) {
	backend := state.BackendMemory
	if r.v.pebble {
		backend = state.BackendPebble
	}
	var err error
	r.store, err = state.Open(context.Background(), state.Options{
		Dir: r.dir(), Backend: backend, MaxParallelism: maxParallelism, Job: 1,
	}, r.last)
	require.NoError(r.t, err)
	r.tasks = nil
	for i := range width {
		ctx := r.context(r.s.Node)
		ctx.Subtask, ctx.Parallelism, ctx.Groups, ctx.Store = i, width, state.SubtaskRange(maxParallelism, width, i), r.store
		if r.v.starved {
			ctx.Budget = state.NewBudget(1)
		}
		o, err := op.New(r.s.Node)
		require.NoError(r.t, err)
		require.NoError(r.t, o.Open(ctx))
		out := *r.out
		out.marks = map[int]int64{}
		r.tasks = append(r.tasks, &task{op: o, out: &out})
	}
}

// dir returns a folder for the store; what snapshots refer to stays valid until the end of the test.
func (r *runner) dir() string {
	r.dirs++
	if r.root == "" {
		r.root = r.t.TempDir()
	}
	return filepath.Join(r.root, strconv.Itoa(r.dirs))
}

func (r *runner) context(n *plan.Node) *op.Context {
	ctx := &op.Context{
		Node: n, Parallelism: 1, Lib: r.s.Lib, Env: &expr.Env{Format: types.DefaultFormat()}, Errors: r.errs, Now: r.now, Groups: state.Range{To: maxParallelism},
	}
	for _, in := range n.Inputs {
		ctx.InputTypes = append(ctx.InputTypes, in.Schema.Types())
	}
	if r.s.Probed != nil {
		ctx.Probe = func(_ uint64, _ []int, by *plan.LookupIndex) (op.Probe, error) { return probe{r, by}, nil }
	}
	return ctx
}

func (r *runner) close() {
	for _, t := range r.tasks {
		require.NoError(r.t, t.op.Close())
	}
	require.NoError(r.t, r.store.Close())
	r.tasks = nil
}

// play feeds the rows of an epoch in chunks of the variant's size.
func (r *runner) play(e Epoch) {
	for port, n := range r.s.Node.Inputs {
		c, err := e.chunk(port, n.Schema.Types())
		require.NoError(r.t, err)
		if c == nil || c.Rows() == 0 {
			continue
		}
		r.in[port] = consolidated(r.in[port], c)
		for from := 0; from < c.Rows(); from += r.v.size {
			to := min(from+r.v.size, c.Rows())
			if r.s.Probed != nil && port == len(r.in)-1 {
				part := types.NewChunk(n.Schema.Types())
				for i := from; i < to; i++ {
					part.AppendRow(c, c.Row(i), c.Weight(c.Row(i)))
				}
				r.read = consolidated(r.read, part)
			}
			for i, part := range r.split(port, c, from, to) {
				if part == nil || n.Scan != nil && n.Scan.Probed {
					continue
				}
				require.NoError(r.t, r.tasks[i].op.Process(port, part, r.tasks[i].out))
				mangle(part)
			}
			if r.v.eachChunk {
				r.barrier()
			}
		}
	}
	for _, m := range e.Marks {
		for _, t := range r.tasks {
			require.NoError(r.t, t.op.Watermark(m.Port, op.Watermark{Column: m.Column, Value: m.Value}, t.out))
		}
	}
}

// split copies rows [from, to) of c into one chunk per subtask, with garbage between them when the variant wants holes.
func (r *runner) split(port int, c *types.Chunk, from, to int) []*types.Chunk {
	parts := make([]*types.Chunk, len(r.tasks))
	var cols []int
	if len(r.tasks) > 1 {
		if cols = r.s.Route[port]; slices.Equal(cols, Everywhere) {
			for k := range r.tasks {
				parts[k] = types.NewChunk(r.s.Node.Inputs[port].Schema.Types())
				for i := from; i < to; i++ {
					parts[k].AppendRow(c, c.Row(i), c.Weight(c.Row(i)))
				}
			}
			return parts
		}
	}
	hash := make([]uint64, c.N)
	types.HashRows(c, cols, hash)
	for i := from; i < to; i++ {
		row := c.Row(i)
		k := 0
		if len(r.tasks) > 1 {
			k = state.SubtaskOf(maxParallelism, len(r.tasks), types.KeyGroup(hash[row], maxParallelism))
		}
		if parts[k] == nil {
			parts[k] = types.NewChunk(r.s.Node.Inputs[port].Schema.Types())
		}
		p := parts[k]
		if r.v.holes {
			p.AppendRow(c, c.Row((i*7+3)%c.Rows()), 5)
			p.Sel = append(p.Sel, uint16(p.N))
		}
		p.AppendRow(c, row, c.Weight(row))
	}
	return parts
}

// mangle overwrites a chunk that was lent, so that an operator which kept it is found out.
func mangle(c *types.Chunk) {
	for _, v := range c.Cols {
		for i := range v.Int {
			v.Int[i] = -0x5EED
		}
		for i := range v.Str {
			v.Str[i] = "mangled"
		}
		for i := range v.Float {
			v.Float[i] = -12345.5
		}
		for i := range v.Num {
			v.Num[i] = types.NumericFromInt64(-424242)
		}
	}
	for i := range c.Weights {
		c.Weights[i] = 99
	}
}

func (r *runner) barrier() {
	r.epoch++
	b := checkpoint.Barrier{Epoch: r.epoch, Now: r.now}
	if r.v.checkpoint {
		r.id++
		b.Checkpoint = r.id
	}
	for _, t := range r.tasks {
		require.NoError(r.t, t.op.Barrier(b, t.out))
	}
	if !r.v.checkpoint {
		return
	}
	var sealed []*state.Sealed
	for i := range r.tasks {
		sealed = append(sealed, r.store.Seal(i))
	}
	sn, err := r.store.Snapshot(context.Background(), r.id, sealed)
	require.NoError(r.t, err)
	r.store.Confirm(r.id)
	r.last = sn
}

// chunk returns the rows on a port, nil for none.
func (e Epoch) chunk(port int, ts []types.Type) (*types.Chunk, error) {
	switch {
	case port < len(e.Chunks):
		return e.Chunks[port], nil
	case port < len(e.In):
		return types.ParseChunk(ts, e.In[port])
	}
	return nil, nil
}

// consolidated returns the rows of all, which it may change, and c.
func consolidated(all, c *types.Chunk) *types.Chunk {
	all.AppendChunk(c)
	counts := map[string]int64{}
	firsts := map[string]int{}
	var keys []string
	for i := range all.N {
		k := string(types.AppendRow(nil, all.Cols, i))
		if _, ok := firsts[k]; !ok {
			firsts[k] = i
			keys = append(keys, k)
		}
		counts[k] += all.Weight(i)
	}
	var ts []types.Type
	for _, v := range all.Cols {
		ts = append(ts, v.Type)
	}
	next := types.NewChunk(ts)
	for _, k := range keys {
		if counts[k] != 0 {
			next.AppendRow(all, firsts[k], counts[k])
		}
	}
	return next
}

// probe reads the last input by its key, as a relation.
type probe struct {
	r  *runner
	by *plan.LookupIndex
}

func (p probe) Seek(uint64) error { return nil }
func (p probe) Close()            {}

func (p probe) Each(_ uint64, key []byte, cols []*types.Vector, found func() error) error {
	in := p.r.read
	by := make([]*types.Vector, len(p.r.s.Probed))
	for k, c := range p.r.s.Probed {
		by[k] = in.Cols[c]
	}
	for i := range in.N {
		k := types.AppendKeyRow(nil, by, i)
		if p.by != nil {
			k = p.by.AppendKey(nil, by, i)
		}
		if !bytes.Equal(k, key) {
			continue
		}
		for range in.Weight(i) {
			for c, v := range in.Cols {
				cols[c].Append(v, i)
			}
			if err := found(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *runner) check(i int, e Epoch) {
	got := r.out.rows()
	if r.s.Reduce != nil {
		got = r.reduced()
	} else {
		r.out.contract(r.s.Lossy)
	}
	if !r.s.NoOracle {
		want, err := r.oracle()
		require.NoError(r.t, err)
		require.Equal(r.t, want, got, "%s epoch %d against the oracle, input %v", r.name, i, e.In)
	}
	r.replayed(got, i)
	if e.Want != "" {
		text := strings.TrimSpace(e.Want)
		if text == "{}" {
			text = ""
		}
		c, err := types.ParseChunk(r.s.Node.Schema.Types(), text)
		require.NoError(r.t, err)
		w := newCollector(r.t, r.s.Node)
		if c.Rows() > 0 {
			require.NoError(r.t, w.Emit(c))
		}
		require.Equal(r.t, w.rows(), got, "%s epoch %d", r.name, i)
	}
	if e.Errors != "" {
		require.Equal(r.t, e.Errors, r.errs.codes(), "epoch %d", i)
	}
	if e.Late != 0 {
		require.Equal(r.t, e.Late, r.errs.late, "epoch %d", i)
	}
}

// reduced returns the sorted rows of what the case makes of the output.
func (r *runner) reduced() []string {
	all := types.NewChunk(r.s.Node.Schema.Types())
	for k, n := range r.out.count {
		_, err := types.DecodeRow([]byte(k), all.Cols)
		require.NoError(r.t, err)
		all.PushWeight(n)
	}
	c, err := r.s.Reduce(all)
	require.NoError(r.t, err)
	w := newCollector(r.t, &plan.Node{Schema: r.s.Reduced})
	if c.Rows() > 0 {
		require.NoError(r.t, w.Emit(c))
	}
	return w.rows()
}

// replayed checks that operators which can put out all again, put out what they have.
func (r *runner) replayed(want []string, epoch int) {
	if !r.s.Node.Replayable() || !r.v.checkpoint {
		return
	}
	again := newCollector(r.t, r.s.Node)
	for _, t := range r.tasks {
		o, ok := t.op.(op.Replayer)
		require.True(r.t, ok)
		require.NoError(r.t, o.Replay(again))
	}
	require.Equal(r.t, want, again.rows(), "%s epoch %d, put out again", r.name, epoch)
}

// oracle returns the sorted rows of the case's oracle over the accumulated inputs.
func (r *runner) oracle() ([]string, error) {
	w := newCollector(r.t, r.s.Node)
	if r.s.Reduce != nil {
		w.node = &plan.Node{Schema: r.s.Reduced}
	}
	if r.s.Oracle != nil {
		c, err := r.s.Oracle(r.in)
		if err != nil || c.Rows() == 0 {
			return []string{}, err
		}
		err = w.Emit(c)
		return w.rows(), err
	}
	o, err := op.New(r.s.Node)
	if err != nil {
		return nil, err
	}
	ctx := r.context(r.s.Node)
	ctx.OneShot = true
	ctx.Errors = &reporter{live: map[string]int64{}}
	if err := o.Open(ctx); err != nil {
		return nil, err
	}
	for port, c := range r.in {
		d := c.Clone()
		if err := o.Process(port, d, w); err != nil {
			return nil, err
		}
	}
	if err := o.Barrier(checkpoint.Barrier{Epoch: 1}, w); err != nil {
		return nil, err
	}
	w.contract(true)
	return w.rows(), o.Close()
}

// collector accumulates output and checks the contract of emitters.
type collector struct {
	t     *testing.T
	node  *plan.Node
	count map[string]int64
	text  map[string]string
	keys  map[string]string
	marks map[int]int64
}

func newCollector(t *testing.T, n *plan.Node) *collector {
	return &collector{t: t, node: n, count: map[string]int64{}, text: map[string]string{}, keys: map[string]string{}, marks: map[int]int64{}}
}

// Emit implements op.Emitter.
func (c *collector) Emit(ch *types.Chunk) error {
	require.LessOrEqual(c.t, ch.N, types.MaxChunkRows, "chunk too long")
	require.Len(c.t, ch.Cols, len(c.node.Schema), "columns")
	require.Positive(c.t, ch.Rows(), "empty chunk")
	for i, v := range ch.Cols {
		require.Equal(c.t, c.node.Schema[i].Type.Kind(), v.Type.Kind(), "column %d", i)
		require.GreaterOrEqual(c.t, v.Len(), ch.N, "column %d is short", i)
	}
	for i := range ch.Rows() {
		r := ch.Row(i)
		require.NotZero(c.t, ch.Weight(r), "row of weight 0")
		k := string(types.AppendRow(nil, ch.Cols, r))
		c.count[k] += ch.Weight(r)
		if c.count[k] == 0 {
			delete(c.count, k)
			continue
		}
		var b []byte
		for j, v := range ch.Cols {
			if j > 0 {
				b = append(b, ' ')
			}
			if v.IsNull(r) {
				b = append(b, "NULL"...)
			} else {
				b = types.AppendText(b, types.DefaultFormat(), v, r)
			}
		}
		c.text[k] = string(b)
		key := make([]*types.Vector, 0, len(c.node.Key))
		for _, p := range c.node.Key {
			key = append(key, ch.Cols[p])
		}
		c.keys[k] = string(types.AppendKeyRow(nil, key, r))
	}
	return nil
}

// EmitWatermark implements op.Emitter.
func (c *collector) EmitWatermark(w op.Watermark) error {
	if last, ok := c.marks[w.Column]; ok {
		require.GreaterOrEqual(c.t, w.Value, last, "watermark of column %d fell", w.Column)
	}
	c.marks[w.Column] = w.Value
	return nil
}

// contract checks what holds at barriers: no negative multiplicity, at most one row per stream key.
func (c *collector) contract(lossy bool) {
	seen := map[string]string{}
	for k, n := range c.count {
		require.Positive(c.t, n, "row %s at a barrier", c.text[k])
		if lossy || c.node.Key == nil {
			continue
		}
		require.EqualValues(c.t, 1, n, "multiplicity of row %s", c.text[k])
		if other, ok := seen[c.keys[k]]; ok {
			require.Fail(c.t, "two rows of one stream key", "%s\n%s", other, c.text[k])
		}
		seen[c.keys[k]] = c.text[k]
	}
}

func (c *collector) rows() []string {
	out := []string{}
	for k, n := range c.count {
		out = append(out, fmt.Sprintf("%+d %s", n, c.text[k]))
	}
	sort.Strings(out)
	return out
}

// reporter sums error reports by SQLSTATE.
type reporter struct {
	live map[string]int64
	late int
}

func (r *reporter) Report(_ *plan.Node, err error, _ *types.Chunk, _ int, w int64) error {
	r.live[codeOf(err)] += w
	return nil
}

func (r *reporter) Late(*plan.Node, *types.Chunk, int) error {
	r.late++
	return nil
}

func (r *reporter) codes() string {
	var out []string
	for k, n := range r.live {
		for range n {
			out = append(out, k)
		}
	}
	if len(out) == 0 {
		return "{}"
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
