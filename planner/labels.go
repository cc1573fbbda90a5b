package planner

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
)

// tableLabel is what EXPLAIN calls a relation of a statement: its alias, with a number where another one before has the same.
type tableLabel struct{ alias, name string }

// labels are kept beside a plan while it is made: fragments that differ in them alone are one.
type labels struct {
	columns map[*plan.Node][]int // the ids of an operator's columns
	scans   map[*plan.Node]*tableLabel
}

// label gives the columns of an item of FROM that are of no relation yet that item's name.
func (m *metadata) label(t *rangeTable) {
	for _, cols := range [...][]scopeCol{t.cols, t.hidden} {
		for _, c := range cols {
			if m.cols[c.id].table == nil {
				if t.label == nil {
					t.label = &tableLabel{alias: t.name}
				}
				m.cols[c.id].table = t.label
			}
		}
	}
}

// label puts the names of relations into a plan, numbered in the order in which its operators are shown from the bottom, and names expressions by
// their texts.
func (b *binder) label(p *plan.Plan) {
	taken := map[string]bool{}
	name := func(t *tableLabel) string {
		if t == nil {
			return ""
		}
		if t.name == "" {
			t.name = t.alias
			for n := 1; taken[t.name]; n++ {
				t.name = t.alias + "_" + itoa(n)
			}
			taken[t.name] = true
		}
		return t.name
	}
	upward(p, func(n *plan.Node) {
		scan := name(b.labels.scans[n])
		switch {
		case n.Scan != nil && scan != n.Scan.Name && !strings.HasSuffix(n.Scan.Name, "."+scan):
			n.Scan.Alias = scan
		case n.Source != nil && scan != n.Source.Name:
			n.Source.Alias = scan
		}
		ids := b.labels.columns[n]
		for i, id := range ids {
			if t := b.md.cols[id].table; t != nil {
				if n.Tables == nil {
					n.Tables = make([]string, len(ids))
				}
				n.Tables[i] = name(t)
			}
		}
	})
	x := (&Explained{Plan: p}).explainer()
	texts := map[int]string{}
	upward(p, func(n *plan.Node) {
		for i, id := range b.labels.columns[n] {
			if b.md.cols[id].name != argName {
				continue
			}
			switch _, known := texts[id]; {
			case known:
			case n.Project != nil && n.Project.Exprs[i].Kind != expr.Column:
				texts[id] = expr.String(n.Project.Exprs[i], x.names(n.Inputs[0]))
			case n.PartialAgg != nil:
				if call := i - len(n.PartialAgg.GroupBy); call >= 0 && call < len(n.PartialAgg.Calls) {
					texts[id] = x.callList(n.Inputs[0], n.PartialAgg.Calls[call:call+1])
				}
			}
			if text := texts[id]; text != "" && len(text) <= maxArgName {
				n.Schema[i].Name = text
			}
		}
	})
}

// upward visits all operators of a plan, inputs first.
func upward(p *plan.Plan, visit func(*plan.Node)) {
	var node func(n *plan.Node)
	node = func(n *plan.Node) {
		for _, in := range children(n) {
			node(in)
		}
		visit(n)
	}
	for _, f := range p.Fragments {
		node(f.Root)
	}
}

// Renamed is a copy of a stored plan with the names that its relations and indexes have now: name gives that of an id, "" where it is not known.
func Renamed(p *plan.Plan, name func(id uint64) string) (*plan.Plan, error) {
	b, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	next := &plan.Plan{}
	if err := json.Unmarshal(b, next); err != nil {
		return nil, fmt.Errorf("decode plan: %w", err)
	}
	tables := map[string]string{}
	rename := func(id uint64, was *string, alias string) {
		now := name(id)
		if now == "" || now == *was {
			return
		}
		if alias == "" {
			tables[bareName(*was)] = bareName(now)
		}
		*was = now
	}
	upward(next, func(n *plan.Node) {
		if s := n.Scan; s != nil && s.Virtual == "" {
			rename(s.Relation, &s.Name, s.Alias)
			if x := s.Lookup; x != nil {
				if now := name(x.Index); now != "" {
					x.Name = bareName(now)
				}
			}
		}
		if s := n.Source; s != nil {
			rename(s.Relation, &s.Name, s.Alias)
		}
	})
	upward(next, func(n *plan.Node) {
		for i, t := range n.Tables {
			if now, ok := tables[t]; ok {
				n.Tables[i] = now
			}
		}
	})
	return next, nil
}

// bareName is a relation's name without its schema.
func bareName(s string) string { return s[strings.LastIndexByte(s, '.')+1:] }
