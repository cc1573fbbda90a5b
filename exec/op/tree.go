package op

import (
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// RunTree runs a plan tree once, in this goroutine: the leaves one after the other, then the one final barrier from the inputs up. Leaves
// other than values and series are emitted by leaf. Ctx serves as a pattern for the operators' contexts; it should be a one-shot one.
func RunTree(root *plan.Node, ctx *Context, leaf func(n *plan.Node, out Emitter) error, out Emitter) error {
	t := &treeRun{ctx: ctx, leaf: leaf}
	err := t.run(root, ctx.Self, out)
	for _, o := range t.open {
		if cerr := o.Close(); err == nil {
			err = cerr
		}
	}
	return err
}

type treeRun struct {
	ctx  *Context
	leaf func(n *plan.Node, out Emitter) error
	open []Operator
}

// run evaluates n; above works on its output.
func (t *treeRun) run(n *plan.Node, above *NodeProfile, out Emitter) (err error) {
	profile := t.ctx.Profile
	self := profile.Node(n)
	out = profile.emitter(self, above, out)
	if check := NewContract(n, OfQuery).Edge(); check != nil {
		out = &checked{check: check, out: out}
		defer func() {
			if err == nil {
				check.Barrier(1)
				check.Check()
			}
		}()
	}
	if len(n.Inputs) == 0 {
		return profile.Run(self, func() error { return t.runLeaf(n, out) })
	}
	o, err := New(n)
	if err != nil {
		return err
	}
	ctx := *t.ctx
	ctx.Node, ctx.Self = n, self
	ctx.InputTypes = make([][]types.Type, len(n.Inputs))
	for i, in := range n.Inputs {
		ctx.InputTypes[i] = in.Schema.Types()
	}
	t.open = append(t.open, o)
	if err := o.Open(&ctx); err != nil {
		return err
	}
	for i, in := range n.Inputs {
		if err := t.run(in, self, &portEmitter{o: o, port: i, out: out}); err != nil {
			return err
		}
	}
	return profile.Run(self, func() error { return o.Barrier(checkpoint.Barrier{Epoch: 1}, out) })
}

func (t *treeRun) runLeaf(n *plan.Node, out Emitter) error {
	if n.Kind != plan.KindValues && n.Kind != plan.KindSeries {
		return t.leaf(n, out)
	}
	l, err := NewLeaf(n)
	if err != nil {
		return err
	}
	return l.Run(t.ctx, out)
}

// portEmitter hands an input's output to the operator above it.
type portEmitter struct {
	o    Operator
	port int
	out  Emitter
}

func (p *portEmitter) Emit(c *types.Chunk) error { return p.o.Process(p.port, c, p.out) }

func (p *portEmitter) EmitWatermark(w Watermark) error { return p.o.Watermark(p.port, w, p.out) }
