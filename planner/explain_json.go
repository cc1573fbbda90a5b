package planner

import (
	"encoding/json"
	"strings"

	"github.com/streamdb/streamdb/planner/plan"
)

// ExplainJSON prints a plan as EXPLAIN (FORMAT JSON) does: an array of one object whose member Plan is the root. The lines of the text form
// are members, inputs are in Plans.
func ExplainJSON(p *plan.Plan, verbose bool) string {
	x := &jsonExplainer{explainer: explainer{plan: p, verbose: verbose}}
	root := p.Fragments[len(p.Fragments)-1]
	x.job = root.Root.Kind != plan.KindResult
	x.b.WriteString("[\n  {\n    \"Plan\": ")
	if len(p.Fragments) == 1 {
		x.object(root.Root, "", 2)
	} else {
		x.b.WriteString("{\n      \"Node Type\": \"Job\",\n      \"Plans\": [")
		for i := len(p.Fragments) - 1; i >= 0; i-- {
			if i < len(p.Fragments)-1 {
				x.b.WriteByte(',')
			}
			x.newline(4)
			x.object(p.Fragments[i].Root, "Fragment", 4)
		}
		x.newline(3)
		x.b.WriteString("]")
		x.newline(2)
		x.b.WriteString("}")
	}
	x.b.WriteString("\n  }\n]")
	return x.b.String()
}

type jsonExplainer struct {
	explainer
	b strings.Builder
}

func (x *jsonExplainer) newline(depth int) {
	x.b.WriteByte('\n')
	x.b.WriteString(strings.Repeat("  ", depth))
}

// member writes a member; the first of an object is "Node Type".
func (x *jsonExplainer) member(depth int, name string, value any) {
	if name != "Node Type" {
		x.b.WriteByte(',')
	}
	x.newline(depth)
	k, _ := json.Marshal(name) // texts always have a JSON form
	v, _ := json.Marshal(value)
	x.b.Write(k)
	x.b.WriteString(": ")
	x.b.Write(v)
}

func (x *jsonExplainer) object(n *plan.Node, relation string, depth int) {
	title, details := x.describe(n)
	x.b.WriteByte('{')
	x.member(depth+1, "Node Type", title)
	if relation != "" {
		x.member(depth+1, "Parent Relationship", relation)
	}
	if x.verbose {
		x.member(depth+1, "Operator", n.ID)
		x.member(depth+1, "Output", names(n))
	}
	given := map[string]bool{"Node Type": true, "Parent Relationship": true, "Operator": true, "Output": true, "Plans": true}
	for _, d := range details {
		name, value, ok := strings.Cut(d, ": ")
		if !ok {
			name, value = d, "true"
		}
		if name != "" && !given[name] {
			given[name] = true
			x.member(depth+1, name, value)
		}
	}
	inputs := append([]*plan.Node(nil), n.Inputs...)
	if n.Recompute != nil {
		inputs = append(inputs, n.Recompute.Sub)
	}
	if n.Recurse != nil {
		inputs = append(inputs, n.Recurse.Base, n.Recurse.Step)
	}
	if len(inputs) > 0 {
		x.b.WriteByte(',')
		x.newline(depth + 1)
		x.b.WriteString("\"Plans\": [")
		for i, in := range inputs {
			relation = "Outer"
			if i > 0 {
				relation = "Inner"
				x.b.WriteByte(',')
			}
			x.newline(depth + 2)
			x.object(in, relation, depth+2)
		}
		x.newline(depth + 1)
		x.b.WriteByte(']')
	}
	x.newline(depth)
	x.b.WriteByte('}')
}
