package planner

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
)

// Explained is what EXPLAIN shows of a statement.
type Explained struct {
	Plan    *plan.Plan
	Verbose bool
	// Change and Target are the operation ("Insert", "Update", …) and the table of a statement that changes data; it is the root of the plan then.
	Change, Target string
	Conflict       *ExplainedConflict // of an INSERT that handles conflicts
	Parts          []ExplainedPart    // queries of the WITH clause that run before

	Actual    func(*plan.Node) (Actual, bool) // of EXPLAIN ANALYZE: what an operator did, false when it did not run. nil: not run
	Running   *RunningJob                     // of EXPLAIN ANALYZE of a materialized view; nil: not asked for
	Timing    bool
	Settings  [][2]string    // shown when not nil
	Planning  *time.Duration // shown when not nil
	Execution *time.Duration

	estimated map[*plan.Node]estimate // of EXPLAIN (COSTS), nil: not asked for
}

// ExplainedPart is a query of a WITH clause that runs by itself.
type ExplainedPart struct {
	Name           string
	Plan           *plan.Plan
	Change, Target string
	Conflict       *ExplainedConflict
}

// ExplainedConflict is what an INSERT does with rows that exist.
type ExplainedConflict struct {
	Resolution string // NOTHING, UPDATE
	Arbiters   []string
	Filter     string
}

// ExplainConflict describes what an INSERT does with rows that exist, nil when nothing is handled.
func ExplainConflict(c *PlannedChange) *ExplainedConflict {
	oc := c.OnConflict
	if oc == nil {
		return nil
	}
	out := &ExplainedConflict{Resolution: "UPDATE"}
	if oc.DoNothing {
		out.Resolution = "NOTHING"
	}
	if oc.Key && !oc.Any {
		out.Arbiters = append(out.Arbiters, c.Target.Constraint)
	}
	for _, x := range c.Target.Indexes {
		if !oc.Any && slices.Contains(oc.Arbiters, x.ID) {
			out.Arbiters = append(out.Arbiters, x.Name)
		}
	}
	if oc.Where != nil {
		var names []string
		for _, of := range []string{c.Target.Name, "excluded"} {
			for _, col := range c.Target.Columns {
				names = append(names, of+"."+col.Name)
			}
		}
		out.Filter = expr.String(oc.Where, names)
	}
	return out
}

// Actual is what an operator did in a statement that was run.
type Actual struct {
	Rows, Batches, Loops int64
	First, Total         time.Duration
}

// perLoop is the mean of a count over the runs of an operator, as PostgreSQL shows it.
func (a Actual) perLoop() int64 { return (2*a.Rows + a.Loops) / (2 * a.Loops) }

func (a Actual) times() (first, total string) {
	return millis(a.First / time.Duration(a.Loops)), millis(a.Total / time.Duration(a.Loops))
}

func millis(d time.Duration) string { return strconv.FormatFloat(float64(d)/1e6, 'f', 3, 64) }

// group is a node of an EXPLAIN document: named values, lists and groups in their order.
type group struct{ members []member }

type member struct {
	name   string
	text   string // a value
	bare   bool   // it is a number or a truth value
	list   []string
	groups []*group // a list of groups, unless one
	kind   memberKind
}

type memberKind uint8

const (
	valueMember memberKind = iota
	listMember
	groupMember  // one group
	groupsMember // a list of groups
)

func (g *group) add(name, text string) {
	g.members = append(g.members, member{name: name, text: text})
}

func (g *group) bare(name, text string) {
	g.members = append(g.members, member{name: name, text: text, bare: true})
}

func (g *group) int(name string, n int64) { g.bare(name, strconv.FormatInt(n, 10)) }

func (g *group) addList(name string, list []string) {
	g.members = append(g.members, member{name: name, list: list, kind: listMember})
}

func (g *group) addGroup(name string, c *group) {
	g.members = append(g.members, member{name: name, groups: []*group{c}, kind: groupMember})
}

func (g *group) addGroups(name string, gs []*group) {
	g.members = append(g.members, member{name: name, groups: gs, kind: groupsMember})
}

func (g *group) has(name string) bool {
	for _, m := range g.members {
		if m.name == name {
			return true
		}
	}
	return false
}

// document builds the tree of all formats but text, with PostgreSQL's names for what PostgreSQL has too.
func (e *Explained) document() *group {
	x := e.explainer()
	root := e.Plan.Fragments[len(e.Plan.Fragments)-1]
	top := &group{}
	if len(e.Plan.Fragments) == 1 {
		top.addGroup("Plan", x.group(root.Root, ""))
	} else {
		g := &group{}
		g.add("Node Type", "Job")
		var fragments []*group
		for i := len(e.Plan.Fragments) - 1; i >= 0; i-- {
			f := x.group(e.Plan.Fragments[i].Root, "Fragment")
			f.int("Fragment", int64(e.Plan.Fragments[i].ID))
			fragments = append(fragments, f)
		}
		g.addGroups("Plans", fragments)
		top.addGroup("Plan", g)
	}
	if e.Settings != nil {
		g := &group{}
		for _, s := range e.Settings {
			g.add(s[0], s[1])
		}
		top.addGroup("Settings", g)
	}
	if e.Planning != nil {
		top.bare("Planning Time", millis(*e.Planning))
	}
	if e.Actual != nil {
		top.addGroups("Triggers", nil)
	}
	if e.Execution != nil {
		top.bare("Execution Time", millis(*e.Execution))
	}
	return top
}

func (x *explainer) group(n *plan.Node, relation string) *group {
	g := &group{}
	title, details := x.describe(n)
	x.kind(g, n, title)
	if relation != "" {
		g.add("Parent Relationship", relation)
	}
	if e, ok := x.estimated[n]; ok {
		g.bare("Plan Rows", fmt.Sprintf("%.0f", e.rows))
		if e.state >= 0 {
			g.bare("Plan State Rows", fmt.Sprintf("%.0f", e.state))
		}
	}
	x.actualMembers(g, n)
	x.running(g, n)
	if x.Verbose {
		g.int("Operator", int64(n.ID))
		g.addList("Output", x.names(n))
	}
	for _, d := range details {
		name, value, ok := strings.Cut(d, ": ")
		switch {
		case !ok && d != "":
			g.bare(d, "true")
		case d == "" || g.has(name):
		case name == "Sort Key":
			g.addList(name, x.sortTexts(n.Inputs[0], n.TopN.Order))
		default:
			g.add(name, value)
		}
	}
	var plans []*group
	if n.Kind == plan.KindResult {
		for i := range x.Parts {
			p := &x.Parts[i]
			f := p.Plan.Fragments[len(p.Plan.Fragments)-1]
			c := x.part(p).group(f.Root, "InitPlan")
			c.add("Subplan Name", "CTE "+p.Name)
			plans = append(plans, c)
		}
	}
	for i, in := range children(n) {
		relation = "Outer"
		if i > 0 {
			relation = "Inner"
		}
		if n.Kind == plan.KindUnion {
			relation = "Member"
		}
		plans = append(plans, x.group(in, relation))
	}
	if len(plans) > 0 {
		g.addGroups("Plans", plans)
	}
	return g
}

// children are the nodes shown below n.
func children(n *plan.Node) []*plan.Node {
	in := append([]*plan.Node(nil), n.Inputs...)
	if n.Recompute != nil {
		in = append(in, n.Recompute.Sub)
	}
	if n.Recurse != nil {
		in = append(in, n.Recurse.Base, n.Recurse.Step)
	}
	return in
}

// kind names the operator as PostgreSQL names the same thing, so that tools know it.
func (x *explainer) kind(g *group, n *plan.Node, title string) {
	relation := func(kind, name string) {
		g.add("Node Type", kind)
		g.add("Relation Name", name)
		g.add("Alias", cmp.Or(n.Scan.Alias, name))
	}
	switch n.Kind {
	case plan.KindScan:
		switch s := n.Scan; {
		case s.Index != nil:
			g.add("Node Type", "Index Scan")
			direction := "Forward"
			if s.Index.Backward {
				direction = "Backward"
			}
			g.add("Scan Direction", direction)
			g.add("Index Name", s.Index.Name)
			g.add("Relation Name", s.Name)
			g.add("Alias", cmp.Or(s.Alias, s.Name))
		case len(s.Point) > 0:
			relation("Index Scan", s.Name)
		case strings.HasPrefix(s.Virtual, withTable):
			g.add("Node Type", "CTE Scan")
			g.add("CTE Name", s.Name)
			g.add("Alias", cmp.Or(s.Alias, s.Name))
		case s.Virtual != "":
			relation("Seq Scan", s.Virtual)
		case x.job:
			relation("Stream Scan", s.Name)
		default:
			relation("Seq Scan", s.Name)
		}
	case plan.KindValues:
		if len(n.Values.Rows) == 1 {
			g.add("Node Type", "Result")
			return
		}
		g.add("Node Type", "Values Scan")
	case plan.KindSeries:
		g.add("Node Type", "Function Scan")
		g.add("Function Name", n.Series.Func)
	case plan.KindAgg:
		g.add("Node Type", "Aggregate")
		strategy := "Hashed"
		if n.Agg.Global {
			strategy = "Plain"
		}
		g.add("Strategy", strategy)
	case plan.KindJoin:
		kind := "Hash Join"
		if len(n.Join.LeftKeys) == 0 {
			kind = "Nested Loop"
		}
		g.add("Node Type", kind)
		g.add("Join Type", map[plan.JoinType]string{
			plan.Inner: "Inner", plan.Left: "Left", plan.Right: "Right", plan.Full: "Full", plan.Semi: "Semi", plan.Anti: "Anti",
		}[n.Join.Type])
	case plan.KindUnion:
		g.add("Node Type", "Append")
	case plan.KindOver:
		g.add("Node Type", "WindowAgg")
	case plan.KindUnnest:
		g.add("Node Type", "ProjectSet")
	case plan.KindRecurse:
		g.add("Node Type", "Recursive Union")
	case plan.KindWork:
		g.add("Node Type", "WorkTable Scan")
	case plan.KindResult:
		if x.Change != "" {
			g.add("Node Type", "ModifyTable")
			g.add("Operation", x.Change)
			g.add("Relation Name", x.Target)
			g.add("Alias", x.Target)
			if c := x.Conflict; c != nil {
				g.add("Conflict Resolution", c.Resolution)
				if c.Arbiters != nil {
					g.addList("Conflict Arbiter Indexes", c.Arbiters)
				}
				if c.Filter != "" {
					g.add("Conflict Filter", c.Filter)
				}
			}
			return
		}
		g.add("Node Type", title)
	default:
		g.add("Node Type", title)
	}
}

func (x *explainer) actualMembers(g *group, n *plan.Node) {
	if x.Actual == nil {
		return
	}
	a, ran := x.Actual(n)
	if !ran {
		a.Loops = 1 // divides nothing
	}
	if x.Timing {
		first, total := a.times()
		g.bare("Actual Startup Time", first)
		g.bare("Actual Total Time", total)
	}
	g.int("Actual Rows", a.perLoop())
	if !ran {
		a.Loops = 0
	}
	g.int("Actual Loops", a.Loops)
	if ran {
		g.int("Actual Batches", a.Batches)
	}
	if removed, ok := x.removed(n); ok {
		g.int("Rows Removed by Filter", removed)
	}
}

// removed is the number of rows that a filter took and did not pass on, in the mean of its runs.
func (x *explainer) removed(n *plan.Node) (int64, bool) {
	if n.Kind != plan.KindFilter {
		return 0, false
	}
	in, ok := x.Actual(n.Inputs[0])
	out, ok2 := x.Actual(n)
	if !ok || !ok2 || in.Rows <= out.Rows {
		return 0, false
	}
	return Actual{Rows: in.Rows - out.Rows, Loops: out.Loops}.perLoop(), true
}

// JSON prints it as EXPLAIN (FORMAT JSON) does.
func (e *Explained) JSON() string {
	var b strings.Builder
	b.WriteString("[\n  ")
	writeJSON(&b, e.document(), 1)
	b.WriteString("\n]")
	return b.String()
}

func indent(b *strings.Builder, depth int) {
	b.WriteByte('\n')
	b.WriteString(strings.Repeat("  ", depth))
}

func quoted(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // texts always have a JSON form
	return strings.TrimSuffix(b.String(), "\n")
}

func writeJSON(b *strings.Builder, g *group, depth int) {
	b.WriteByte('{')
	for i, m := range g.members {
		if i > 0 {
			b.WriteByte(',')
		}
		indent(b, depth+1)
		b.WriteString(quoted(m.name) + ": ")
		switch m.kind {
		case valueMember:
			if m.bare {
				b.WriteString(m.text)
			} else {
				b.WriteString(quoted(m.text))
			}
		case listMember:
			b.WriteByte('[')
			for k, s := range m.list {
				if k > 0 {
					b.WriteString(", ")
				}
				b.WriteString(quoted(s))
			}
			b.WriteByte(']')
		case groupMember:
			writeJSON(b, m.groups[0], depth+1)
		case groupsMember:
			b.WriteByte('[')
			for k, c := range m.groups {
				if k > 0 {
					b.WriteByte(',')
				}
				indent(b, depth+2)
				writeJSON(b, c, depth+2)
			}
			indent(b, depth+1)
			b.WriteByte(']')
		}
	}
	indent(b, depth)
	b.WriteByte('}')
}

// YAML prints it as EXPLAIN (FORMAT YAML) does.
func (e *Explained) YAML() string {
	var b strings.Builder
	b.WriteString("- ")
	writeYAML(&b, e.document(), 1)
	return b.String()
}

// writeYAML writes the members of a group; the first stands where the cursor is.
func writeYAML(b *strings.Builder, g *group, depth int) {
	for i, m := range g.members {
		if i > 0 {
			indent(b, depth)
		}
		b.WriteString(m.name + ": ")
		switch m.kind {
		case valueMember:
			if m.bare {
				b.WriteString(m.text)
			} else {
				b.WriteString(quoted(m.text))
			}
		case listMember:
			for _, s := range m.list {
				indent(b, depth+1)
				b.WriteString("- " + quoted(s))
			}
		case groupMember:
			if len(m.groups[0].members) > 0 {
				indent(b, depth+1)
				writeYAML(b, m.groups[0], depth+1)
			}
		case groupsMember:
			for _, c := range m.groups {
				indent(b, depth+1)
				b.WriteString("- ")
				writeYAML(b, c, depth+2)
			}
		}
	}
}

// XML prints it as EXPLAIN (FORMAT XML) does.
func (e *Explained) XML() string {
	var b strings.Builder
	b.WriteString(`<explain xmlns="http://www.postgresql.org/2009/explain">`)
	indent(&b, 1)
	writeXML(&b, "Query", e.document(), 1)
	b.WriteString("\n</explain>")
	return b.String()
}

var xmlText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\r", "&#x0d;")

func xmlTag(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '.' {
			return r
		}
		return '-'
	}, name)
}

func writeXML(b *strings.Builder, tag string, g *group, depth int) {
	b.WriteString("<" + tag + ">")
	for _, m := range g.members {
		indent(b, depth+1)
		t := xmlTag(m.name)
		if m.kind == groupMember {
			writeXML(b, t, m.groups[0], depth+1)
			continue
		}
		b.WriteString("<" + t + ">")
		switch m.kind {
		case listMember:
			for _, s := range m.list {
				indent(b, depth+2)
				b.WriteString("<Item>" + xmlText.Replace(s) + "</Item>")
			}
			indent(b, depth+1)
		case groupsMember:
			for _, c := range m.groups {
				indent(b, depth+2)
				writeXML(b, "Plan", c, depth+2)
			}
			indent(b, depth+1)
		default:
			b.WriteString(xmlText.Replace(m.text))
		}
		b.WriteString("</" + t + ">")
	}
	indent(b, depth)
	b.WriteString("</" + tag + ">")
}
