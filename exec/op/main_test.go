package op_test

import (
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// schema reads "name type" pairs.
func schema(cols ...any) types.Schema {
	var s types.Schema
	for i := 0; i < len(cols); i += 2 {
		s = append(s, types.Column{Name: cols[i].(string), Type: cols[i+1].(types.Type)})
	}
	return s
}

// input is a node that only describes rows.
func input(key []int, s types.Schema) *plan.Node { return &plan.Node{Key: key, Schema: s} }
