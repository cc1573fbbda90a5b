package op

import (
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
)

// New returns the operator of a plan node that has inputs. Sources, scans, exchanges and the roots of plans belong to the task loop,
// leaves without inputs come from NewLeaf.
func New(node *plan.Node) (Operator, error) {
	b := base{node: node}
	switch node.Kind {
	case plan.KindFilter:
		return &filterOp{base: b}, nil
	case plan.KindProject:
		return &projectOp{base: b}, nil
	case plan.KindUnnest:
		return &unnestOp{base: b}, nil
	case plan.KindWatermark:
		return &watermarkOp{base: b}, nil
	case plan.KindWindow:
		return &windowOp{base: b}, nil
	case plan.KindProcTime:
		return &procTimeOp{base: b}, nil
	case plan.KindTemporal:
		return &temporalOp{base: b}, nil
	case plan.KindExpire:
		return &expireOp{base: b}, nil
	case plan.KindSession:
		return &sessionOp{base: b}, nil
	case plan.KindAgg:
		if node.Agg.TTL > 0 {
			return &expiringAggOp{aggOp: aggOp{base: b}}, nil
		}
		return &aggOp{base: b}, nil
	case plan.KindPartialAgg:
		return &partialAggOp{base: b}, nil
	case plan.KindJoin:
		return &joinOp{base: b}, nil
	case plan.KindAsofJoin:
		return &asofJoinOp{base: b}, nil
	case plan.KindDynamicFilter:
		return &dynamicFilterOp{base: b}, nil
	case plan.KindLookupJoin:
		return &lookupJoinOp{base: b}, nil
	case plan.KindTemporalJoin:
		return &temporalJoinOp{base: b}, nil
	case plan.KindUnion:
		return &unionOp{base: b}, nil
	case plan.KindTopN:
		if boundedTopN(node) {
			return &boundedTopNOp{base: b}, nil
		}
		return &topNOp{base: b}, nil
	case plan.KindPartialTopN:
		return &partialTopNOp{base: b}, nil
	case plan.KindOver:
		return &overOp{base: b}, nil
	case plan.KindRecompute:
		return &recomputeOp{base: b}, nil
	}
	return nil, pgerr.Newf(pgerr.InternalError, "no operator for plan node %d of kind %q", node.ID, node.Kind)
}

// base gives operators the node and context, and methods that do nothing.
type base struct {
	node     *plan.Node
	ctx      *Context
	reported int64 // bytes that the budget knows of
}

func (b *base) Watermark(int, Watermark, Emitter) error { return nil }

func (b *base) Barrier(checkpoint.Barrier, Emitter) error { return nil }

func (b *base) Close() error {
	b.report(0)
	return nil
}

// report tells the budget how many bytes the operator holds; Close gives them back.
func (b *base) report(bytes int64) {
	if bytes != b.reported {
		b.ctx.Budget.Add(bytes - b.reported)
		b.reported = bytes
	}
}

// cancelled reports whether the job or query is to stop.
func (b *base) cancelled() error {
	if b.ctx.Cancelled != nil && b.ctx.Cancelled() {
		return pgerr.Newf(pgerr.QueryCanceled, "canceling statement due to user request")
	}
	return nil
}
