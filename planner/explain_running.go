package planner

import (
	"fmt"
	"strings"
	"time"

	"github.com/streamdb/streamdb/planner/plan"
)

// Running is what an operator of a running job does, in one of its subtasks.
type Running struct {
	Subtask               int
	RowsIn, RowsOut       int64 // since the job was started, or of the interval
	StateRows, StateBytes int64
	Busy, Backpressure    float64 // 0 … 1
}

// RunningJob is what EXPLAIN ANALYZE shows of a running job.
type RunningJob struct {
	Operators map[uint32][]Running // by id, in order of subtasks
	// Interval is the time that rows are counted in; 0: since the start.
	Interval time.Duration
}

// sum is an operator over all its subtasks: the busiest one tells how busy it is.
func sum(of []Running) Running {
	var s Running
	for _, r := range of {
		s.RowsIn, s.RowsOut, s.StateRows, s.StateBytes = s.RowsIn+r.RowsIn, s.RowsOut+r.RowsOut, s.StateRows+r.StateRows, s.StateBytes+r.StateBytes
		s.Busy, s.Backpressure = max(s.Busy, r.Busy), max(s.Backpressure, r.Backpressure)
	}
	return s
}

func (j *RunningJob) rate(rows int64) string {
	return fmt.Sprintf("%.1f", float64(rows)/j.Interval.Seconds())
}

func (j *RunningJob) text(r Running) string {
	rows := fmt.Sprintf("rows in=%d out=%d", r.RowsIn, r.RowsOut)
	if j.Interval > 0 {
		rows = fmt.Sprintf("rows/s in=%s out=%s", j.rate(r.RowsIn), j.rate(r.RowsOut))
	}
	return fmt.Sprintf("%s state rows=%d bytes=%d busy=%.1f%% backpressure=%.1f%%", rows, r.StateRows, r.StateBytes, 100*r.Busy, 100*r.Backpressure)
}

func (j *RunningJob) members(g *group, r Running) {
	if j.Interval > 0 {
		g.bare("Rows In Per Second", j.rate(r.RowsIn))
		g.bare("Rows Out Per Second", j.rate(r.RowsOut))
	} else {
		g.int("Rows In", r.RowsIn)
		g.int("Rows Out", r.RowsOut)
	}
	g.int("State Rows", r.StateRows)
	g.int("State Bytes", r.StateBytes)
	g.bare("Busy Ratio", fmt.Sprintf("%.3f", r.Busy))
	g.bare("Backpressure Ratio", fmt.Sprintf("%.3f", r.Backpressure))
}

// running adds what an operator of a running job does, with Verbose for each subtask.
func (x *explainer) running(g *group, n *plan.Node) {
	if x.Running == nil || len(x.Running.Operators[n.ID]) == 0 {
		return
	}
	of := x.Running.Operators[n.ID]
	x.Running.members(g, sum(of))
	if !x.Verbose {
		return
	}
	var subtasks []*group
	for _, r := range of {
		s := &group{}
		s.int("Subtask", int64(r.Subtask))
		x.Running.members(s, r)
		subtasks = append(subtasks, s)
	}
	g.addGroups("Subtasks", subtasks)
}

// Dot prints the plan as a graph for Graphviz: a cluster per fragment, operators in them, exchanges as edges between them.
func (e *Explained) Dot() []string {
	p := e.Plan
	x := e.explainer()
	x.line(0, "digraph plan {")
	x.line(1, "rankdir=BT;")
	x.line(1, "node [shape=box, fontname=\"monospace\"];")
	ids := map[*plan.Node]int{} // of nodes inside a recompute operator ids say nothing
	for _, f := range p.Fragments {
		each(f.Root, func(n *plan.Node) { ids[n] = len(ids) + 1 })
	}
	var between []string
	for _, f := range p.Fragments {
		x.line(1, "subgraph cluster_%d {", f.ID)
		label := fmt.Sprintf("Fragment %d", f.ID)
		if f.Parallelism == 1 {
			label += " (single)"
		}
		x.line(2, "label=%s;", dotString(label))
		each(f.Root, func(n *plan.Node) {
			title, details := x.describe(n)
			if n.Kind == plan.KindResult && x.Change != "" {
				title = x.Change + " on " + x.Target
			}
			lines := []string{title}
			if x.Verbose {
				lines[0] += fmt.Sprintf("  (id=%d)", n.ID)
				for _, d := range details {
					if d != "" {
						lines = append(lines, d)
					}
				}
				lines = append(lines, "Output: "+strings.Join(x.names(n), ", "))
			}
			if text := x.estimate(n); text != "" {
				lines = append(lines, text)
			}
			if x.Actual != nil {
				lines = append(lines, strings.TrimSpace(x.actual(n)))
			}
			if x.Running != nil {
				if of := x.Running.Operators[n.ID]; len(of) > 0 {
					lines = append(lines, x.Running.text(sum(of)))
				}
			}
			x.line(2, "n%d [label=%s];", ids[n], dotString(strings.Join(lines, "\n")))
			for _, in := range children(n) {
				between = append(between, fmt.Sprintf("n%d -> n%d;", ids[in], ids[n]))
			}
			if n.Kind == plan.KindExchange {
				how := string(n.Exchange.Dist)
				if n.Exchange.Dist == plan.DistHash {
					how += " by " + x.columnList(n, n.Exchange.Columns)
				}
				between = append(between, fmt.Sprintf("n%d -> n%d [label=%s, style=bold];", ids[p.Sender(n.Exchange)], ids[n], dotString(how)))
			}
		})
		x.line(1, "}")
	}
	for _, l := range between {
		x.line(1, "%s", l)
	}
	x.line(0, "}")
	return x.out
}

// each calls f for n and all below it, those of plans inside operators too.
func each(n *plan.Node, f func(*plan.Node)) {
	f(n)
	for _, in := range children(n) {
		each(in, f)
	}
}

// dotString is a string of the language of Graphviz; its lines are set flush left.
func dotString(s string) string {
	r := strings.NewReplacer("\\", "\\\\", "\"", "\\\"", "\n", "\\l")
	s = r.Replace(s)
	if strings.Contains(s, "\\l") {
		s += "\\l"
	}
	return "\"" + s + "\""
}
