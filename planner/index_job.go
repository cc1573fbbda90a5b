package planner

import (
	"fmt"
	"slices"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// PlanIndex makes the plan of the job that keeps an index of a materialized view: the view's rows, all columns of them, then the keys that are
// expressions, in order of the keys and then of the view's own key. Readers of the index need not look at the view.
func PlanIndex(view *Relation, x *RelIndex, o Options) (*plan.Plan, error) {
	var schema types.Schema
	scan := &plan.Scan{Relation: view.ID, Name: view.Name}
	for i, c := range view.Columns {
		schema = append(schema, types.Column{Name: c.Name, Type: c.Type})
		scan.Columns = append(scan.Columns, i)
	}
	keys, where, err := BindIndex(x, schema, o)
	if err != nil {
		return nil, err
	}
	n := &plan.Node{Kind: plan.KindScan, Schema: schema, Key: view.Key, AppendOnly: view.AppendOnly, Scan: scan}
	if where != nil {
		n = &plan.Node{Kind: plan.KindFilter, Schema: schema, Key: view.Key, AppendOnly: view.AppendOnly, Inputs: []*plan.Node{n}, Filter: &plan.Filter{Cond: where}}
	}
	m := &plan.Materialize{Relation: o.Relation}
	p := &plan.Project{}
	for i, c := range schema {
		p.Exprs = append(p.Exprs, expr.Col(i, c.Type))
	}
	out := slices.Clone(schema)
	for i, k := range keys {
		at := x.Keys[i].Column
		if at < 0 {
			at = len(out)
			p.Exprs, out = append(p.Exprs, k), append(out, types.Column{Name: fmt.Sprintf("_expr_%d", i+1), Type: k.Type})
		}
		m.KeyColumns, m.Order = append(m.KeyColumns, at), append(m.Order, plan.KeyOrder{Desc: x.Keys[i].Desc, NullsFirst: x.Keys[i].NullsFirst})
	}
	for _, k := range view.Key {
		m.KeyColumns, m.Order = append(m.KeyColumns, k), append(m.Order, plan.KeyOrder{})
	}
	if len(out) > len(schema) {
		n = &plan.Node{Kind: plan.KindProject, Schema: out, Key: view.Key, AppendOnly: view.AppendOnly, Inputs: []*plan.Node{n}, Project: p}
	}
	n = &plan.Node{Kind: plan.KindMaterialize, Schema: out, Key: m.KeyColumns, Inputs: []*plan.Node{n}, Materialize: m}
	pl := &plan.Plan{
		Version: plan.FormatVersion, Fragments: []*plan.Fragment{{Parallelism: 1, Root: n}}, Schema: out, Visible: len(out), Key: m.KeyColumns,
		Inputs: []uint64{view.ID},
	}
	pl.NextID = number(pl.Fragments)
	return pl, nil
}
