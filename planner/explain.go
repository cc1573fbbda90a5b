package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
)

// Explain prints a plan in the manner of PostgreSQL's EXPLAIN: the root first, inputs indented below. Plans of jobs show their
// fragments, exchanges and what operators keep. Verbose adds operator ids, output columns, stream keys and the rules that fired.
func Explain(p *plan.Plan, verbose bool) []string {
	return (&Explained{Plan: p, Verbose: verbose}).Text()
}

// Text prints it line by line, as Explain does.
func (e *Explained) Text() []string {
	p := e.Plan
	x := e.explainer()
	for i := len(p.Fragments) - 1; i >= 0; i-- {
		f := p.Fragments[i]
		if len(p.Fragments) > 1 {
			par := ""
			if f.Parallelism == 1 {
				par = " (single)"
			}
			x.line(0, "Fragment %d%s", f.ID, par)
			x.node(f.Root, 1)
			continue
		}
		x.node(f.Root, 0)
	}
	if p.Unbounded {
		x.line(0, "Unbounded: the query reads a source that may never end")
	}
	if e.Verbose && len(p.Rules) > 0 {
		x.line(0, "Rules: %s", strings.Join(p.Rules, ", "))
	}
	if e.Settings != nil {
		var list []string
		for _, s := range e.Settings {
			list = append(list, s[0]+" = '"+strings.ReplaceAll(s[1], "'", "''")+"'")
		}
		if len(list) > 0 {
			x.line(0, "Settings: %s", strings.Join(list, ", "))
		}
	}
	if e.Planning != nil {
		x.line(0, "Planning Time: %s ms", millis(*e.Planning))
	}
	if e.Execution != nil {
		x.line(0, "Execution Time: %s ms", millis(*e.Execution))
	}
	return x.out
}

type explainer struct {
	*Explained
	plan    *plan.Plan // this or one of its parts
	job     bool
	aliases bool // relations are shown with their aliases
	qualify bool // and columns with their relations'
	out     []string
}

// explainer begins. Columns have the names of their relations where the statement has more than one.
func (e *Explained) explainer() *explainer {
	x := &explainer{Explained: e, plan: e.Plan, aliases: true}
	x.job = e.Plan.Fragments[len(e.Plan.Fragments)-1].Root.Kind != plan.KindResult
	tables := map[string]bool{}
	plans := []*plan.Plan{e.Plan}
	for _, p := range e.Parts {
		plans = append(plans, p.Plan)
	}
	for _, p := range plans {
		upward(p, func(n *plan.Node) {
			for _, t := range n.Tables {
				if t != "" {
					tables[t] = true
				}
			}
		})
	}
	x.qualify = len(tables) > 1
	return x
}

// part is x for a query of the WITH clause.
func (x *explainer) part(p *ExplainedPart) *explainer {
	sub := *x.Explained
	sub.Change, sub.Target, sub.Conflict, sub.Parts = p.Change, p.Target, p.Conflict, nil
	return &explainer{Explained: &sub, plan: p.Plan, aliases: x.aliases, qualify: x.qualify, out: x.out}
}

// name is an output column of an operator.
func (x *explainer) name(n *plan.Node, column int) string {
	s := n.Schema[column].Name
	if x.qualify && column < len(n.Tables) && n.Tables[column] != "" {
		return n.Tables[column] + "." + s
	}
	return s
}

// relation is the name of a relation and its alias.
func (x *explainer) relation(name, alias string) string {
	if x.aliases && alias != "" {
		return name + " " + alias
	}
	return name
}

func (x *explainer) line(depth int, format string, args ...any) {
	x.out = append(x.out, strings.Repeat("  ", depth)+fmt.Sprintf(format, args...))
}

func (x *explainer) node(n *plan.Node, depth int) {
	title, details := x.describe(n)
	if n.Kind == plan.KindResult && x.Change != "" {
		title = x.Change + " on " + x.Target
	}
	if x.Verbose {
		title += fmt.Sprintf("  (id=%d)", n.ID)
	}
	if text := x.estimate(n); text != "" {
		title += "  (" + text + ")"
	}
	title += x.actual(n)
	var subtasks []Running
	if x.Running != nil {
		if subtasks = x.Running.Operators[n.ID]; len(subtasks) > 0 {
			title += " (" + x.Running.text(sum(subtasks)) + ")"
		}
	}
	prefix := ""
	if depth > 0 {
		prefix = "->  "
	}
	x.line(depth, "%s%s", prefix, title)
	inner := depth + 1
	if depth > 0 {
		inner = depth + 2
	}
	for _, d := range details {
		if d != "" {
			x.line(inner, "%s", d)
		}
	}
	if c := x.Conflict; c != nil && n.Kind == plan.KindResult {
		x.line(inner, "Conflict Resolution: %s", c.Resolution)
		if c.Arbiters != nil {
			x.line(inner, "Conflict Arbiter Indexes: %s", strings.Join(c.Arbiters, ", "))
		}
		if c.Filter != "" {
			x.line(inner, "Conflict Filter: %s", c.Filter)
		}
	}
	if x.Actual != nil {
		if removed, ok := x.removed(n); ok {
			x.line(inner, "Rows Removed by Filter: %d", removed)
		}
		if a, ran := x.Actual(n); ran && x.Verbose {
			x.line(inner, "Batches: %d", a.Batches)
		}
	}
	if x.Verbose {
		for _, r := range subtasks {
			x.line(inner, "Subtask %d: %s", r.Subtask, x.Running.text(r))
		}
		x.line(inner, "Output: %s", strings.Join(x.names(n), ", "))
		if x.job {
			key := x.columnList(n, n.Key)
			switch {
			case n.Key == nil:
				key = "none (rows are changes)"
			case len(n.Key) == 0:
				key = "none (at most one row)"
			}
			x.line(inner, "Stream Key: %s", key)
			if n.AppendOnly {
				x.line(inner, "Append Only")
			}
			if len(n.WatermarkCols) > 0 {
				x.line(inner, "Watermark On: %s", x.columnList(n, n.WatermarkCols))
			}
		}
	}
	if n.Kind == plan.KindResult {
		for i := range x.Parts {
			p := &x.Parts[i]
			x.line(inner, "CTE %s", p.Name)
			c := x.part(p)
			c.node(p.Plan.Fragments[len(p.Plan.Fragments)-1].Root, inner+1)
			x.out = c.out
		}
	}
	for _, in := range children(n) {
		x.node(in, inner)
	}
}

// estimate tells what is expected of an operator, after its title.
func (x *explainer) estimate(n *plan.Node) string {
	e, ok := x.estimated[n]
	switch {
	case !ok:
		return ""
	case e.state < 0:
		return fmt.Sprintf("rows=%.0f", e.rows)
	}
	return fmt.Sprintf("rows=%.0f state rows=%.0f", e.rows, e.state)
}

// actual tells what an operator did, after its title.
func (x *explainer) actual(n *plan.Node) string {
	if x.Actual == nil {
		return ""
	}
	a, ran := x.Actual(n)
	if !ran {
		return " (never executed)"
	}
	if !x.Timing {
		return fmt.Sprintf(" (actual rows=%d loops=%d)", a.perLoop(), a.Loops)
	}
	first, total := a.times()
	return fmt.Sprintf(" (actual time=%s..%s rows=%d loops=%d)", first, total, a.perLoop(), a.Loops)
}

func (x *explainer) names(n *plan.Node) []string {
	out := make([]string, len(n.Schema))
	for i := range n.Schema {
		out[i] = x.name(n, i)
	}
	return out
}

func (x *explainer) columnList(n *plan.Node, cols []int) string {
	out := make([]string, len(cols))
	for i, c := range cols {
		out[i] = x.name(n, c)
	}
	return strings.Join(out, ", ")
}

func (x *explainer) sortList(n *plan.Node, ks []plan.SortKey) string {
	return strings.Join(x.sortTexts(n, ks), ", ")
}

func (x *explainer) sortTexts(n *plan.Node, ks []plan.SortKey) []string {
	out := make([]string, len(ks))
	for i, k := range ks {
		out[i] = x.name(n, k.Column)
		if k.Desc {
			out[i] += " DESC"
		}
		if k.NullsFirst != k.Desc {
			if k.NullsFirst {
				out[i] += " NULLS FIRST"
			} else {
				out[i] += " NULLS LAST"
			}
		}
	}
	return out
}

func exprList(es []*expr.Expr, cols []string) string {
	out := make([]string, len(es))
	for i, e := range es {
		out[i] = expr.String(e, cols)
	}
	return strings.Join(out, ", ")
}

func labelled(label, text string) string {
	if text == "" {
		return ""
	}
	return label + ": " + text
}

// OperatorTitle is what EXPLAIN calls an operator of a job's plan.
func OperatorTitle(p *plan.Plan, n *plan.Node) string {
	title, _ := (&explainer{plan: p, job: true}).describe(n)
	return title
}

// describe returns the title of an operator and its detail lines.
func (x *explainer) describe(n *plan.Node) (string, []string) {
	var in *plan.Node
	var cols []string
	if len(n.Inputs) > 0 {
		in = n.Inputs[0]
		cols = x.names(in)
	}
	state := func(s string) string {
		if !x.job {
			return ""
		}
		return "State: " + s
	}
	switch n.Kind {
	case plan.KindSource:
		return "Source " + x.relation(n.Source.Name, n.Source.Alias), []string{labelled("Connector", n.Source.Connector)}
	case plan.KindScan:
		on := x.relation(n.Scan.Name, n.Scan.Alias)
		switch {
		case len(n.Scan.Point) > 0:
			return "Point Read on " + on, []string{"Key: " + exprList(n.Scan.Point, nil)}
		case n.Scan.Index != nil:
			return indexTitle(n.Scan, on), append(indexLines(n.Scan.Index), probeLine(n.Scan))
		case n.Scan.Probe != nil:
			return "Scan on " + on, []string{probeLine(n.Scan)}
		case strings.HasPrefix(n.Scan.Virtual, withTable):
			return "CTE Scan on " + on, nil
		case n.Scan.Virtual != "":
			return "System Scan on " + x.relation(n.Scan.Virtual, n.Scan.Alias), nil
		case n.Scan.Probed:
			return "Lookup by " + lookupBy(n.Scan) + " on " + on, nil
		case n.Scan.ChangesOnly:
			return "Lookup by " + lookupBy(n.Scan) + " and Changes of " + on, nil
		case x.job:
			return "Stream Scan on " + on, nil
		}
		return "Scan on " + on, nil
	case plan.KindValues:
		if len(n.Values.Rows) == 1 {
			return "Values", []string{"Row: " + exprList(n.Values.Rows[0], nil)}
		}
		if x.estimated != nil {
			return "Values", nil // which are counted behind all operators
		}
		return fmt.Sprintf("Values  (rows=%d)", len(n.Values.Rows)), nil
	case plan.KindSeries:
		return "Function Scan on " + n.Series.Func, []string{labelled("Arguments", exprList(n.Series.Args, nil))}
	case plan.KindExchange:
		e := n.Exchange
		how := string(e.Dist)
		if e.Dist == plan.DistHash {
			how += " by " + x.columnList(n, e.Columns)
		}
		return fmt.Sprintf("Exchange from fragment %d  (%s)", e.From, how), nil
	case plan.KindFilter:
		return "Filter", []string{"Condition: " + expr.String(n.Filter.Cond, cols)}
	case plan.KindProject:
		return "Project", []string{"Expressions: " + exprList(n.Project.Exprs, cols)}
	case plan.KindUnnest:
		title := "Unnest"
		if n.Unnest.Left {
			title = "Left Unnest"
		}
		return title, []string{"Calls: " + exprList(n.Unnest.Calls, cols)}
	case plan.KindWatermark:
		lateness := ""
		if n.Watermark.Lateness != 0 {
			lateness = "Allowed Lateness: " + micros(n.Watermark.Lateness)
		}
		return "Watermark", []string{cols[n.Watermark.Column] + " AS " + expr.String(n.Watermark.Expr, cols), lateness}
	case plan.KindWindow:
		return windowTitle(n.Window, cols), nil
	case plan.KindProcTime:
		return "Processing Time", nil
	case plan.KindTemporal:
		t := n.Temporal
		op := map[[2]bool]string{{true, false}: "<", {true, true}: "<=", {false, false}: ">=", {false, true}: ">"}[[2]bool{t.Leaves, t.After}]
		return "Temporal Filter", []string{"Condition: now() " + op + " " + expr.String(t.Bound, cols), state("rows that will enter or leave")}
	case plan.KindExpire:
		per := "row"
		if n.Expire.Groups {
			per = x.columnList(in, n.Expire.GroupBy)
		}
		return "Expire", []string{"After: " + micros(n.Expire.TTL) + " without a change", "Per: " + per, state("all rows, by when they go")}
	case plan.KindSession:
		s := n.Session
		kept := "all rows by key and time"
		if s.OnClose {
			kept = "rows of open sessions; emitted when the session closes"
		}
		return fmt.Sprintf("Session Window on %s  (gap %s)", cols[s.Column], micros(s.Gap)), []string{labelled("Keys", x.columnList(in, s.Keys)), state(kept)}
	case plan.KindAgg:
		return x.agg(n, in, state)
	case plan.KindPartialAgg:
		if n.PartialAgg.Consolidate {
			return "Consolidate", []string{"Rows: " + x.columnList(in, n.PartialAgg.GroupBy)}
		}
		return "Partial Aggregate", []string{labelled("Group By", x.columnList(in, n.PartialAgg.GroupBy)), labelled("Calls", x.callList(in, n.PartialAgg.Calls))}
	case plan.KindPartialTopN:
		p := n.PartialTopN
		return "Partial Top-N", []string{labelled("Per Group", x.columnList(in, p.GroupBy)), labelled("Sort Key", x.sortList(in, p.Order)), fmt.Sprintf("Limit: %d", p.Limit)}
	case plan.KindJoin:
		return x.join(n, state)
	case plan.KindAsofJoin:
		return x.asofJoin(n, state)
	case plan.KindDynamicFilter:
		f := n.DynamicFilter
		return "Dynamic Filter", []string{
			"Condition: (" + cols[f.Column] + " " + f.Op + " " + x.name(n.Inputs[1], f.Scalar) + ")", state("all rows of the first input, ordered; those between the old and the new value are passed on"),
		}
	case plan.KindLookupJoin:
		j, l, r := n.LookupJoin, n.Inputs[0], n.Inputs[1]
		return "Lookup" + joinTitles[cmp.Or(j.Type, plan.Inner)], []string{labelled("Keys", x.keyPairs(l, r, j.LeftKeys, j.RightKeys, nil)), labelled("Condition", x.overBoth(j.Residual, l, r)), state("all rows of the left input")}
	case plan.KindTemporalJoin:
		return x.temporalJoin(n, state)
	case plan.KindUnion:
		return "Union All", nil
	case plan.KindTopN:
		return x.topN(n, in, state)
	case plan.KindOver:
		o := n.Over
		var calls []string
		for _, c := range o.Calls {
			calls = append(calls, c.Func)
		}
		title := "Window Functions"
		if o.Backward {
			title = "Window Functions  (backward)"
		}
		kept := "all rows of each partition, with their results"
		if o.Forget != nil {
			kept = "rows that the watermark has not passed or that later ones read; late rows are dropped"
		}
		return title, []string{
			"Calls: " + strings.Join(calls, ", "), labelled("Partition By", x.columnList(in, o.PartitionBy)),
			labelled("Order By", x.sortList(in, o.Order)), x.closingLine(in, o.OnClose), state(kept),
		}
	case plan.KindRecompute:
		if r := n.Recompute.Sub.Recurse; r != nil && r.Live {
			return "Recursion", []string{state("all rows of its inputs and the result; in memory those of the steps, made anew after a restart")}
		}
		return "Recompute", []string{"Reason: " + n.Recompute.Reason, state("all rows of its inputs; evaluated again in every epoch")}
	case plan.KindRecurse:
		if n.Recurse.All {
			return "Recursive Union All " + n.Recurse.Name, nil
		}
		return "Recursive Union " + n.Recurse.Name, nil
	case plan.KindWork:
		return "Rows of the last iteration", nil
	case plan.KindInput:
		return fmt.Sprintf("Input %d", n.Input), nil
	case plan.KindMaterialize:
		return "Materialize", []string{labelled("Key", x.columnList(n, n.Materialize.KeyColumns))}
	case plan.KindSink:
		if n.Sink.Key == nil {
			return "Sink " + n.Sink.Name, nil
		}
		return "Sink " + n.Sink.Name, []string{labelled("Key", x.columnList(n, n.Sink.Key))}
	case plan.KindDiscard:
		return "Discard", nil
	case plan.KindResult:
		return "Result", nil
	}
	return string(n.Kind), nil
}

// closingLine tells when an operator that works per group emits, "" when in every epoch.
func (x *explainer) closingLine(in *plan.Node, column *int) string {
	if column == nil {
		return ""
	}
	return "Emit: when the watermark passes " + x.name(in, *column)
}

func windowTitle(w *plan.Window, cols []string) string {
	size, unit := micros(w.Size), micros(w.Slide+w.Step)
	if w.Size == w.Slide+w.Step || w.Slide+w.Step == 0 {
		unit = ""
	}
	kind, offset := "Tumble", ""
	if w.Step > 0 {
		kind = "Cumulate"
	} else if w.Slide > 0 {
		kind = "Hop"
	}
	if w.Offset != 0 {
		offset = ", offset " + micros(w.Offset)
	}
	if c := w.Calendar; c != nil {
		count := func(n int64) string {
			if c.Months {
				return fmt.Sprintf("%d mon", n)
			}
			return fmt.Sprintf("%d d", n)
		}
		size, unit = count(c.Unit*c.Count), count(c.Unit)
		switch {
		case c.Count == 1:
			unit = ""
		case c.Cumulate:
			kind = "Cumulate"
		default:
			kind = "Hop"
		}
		var parts []string
		if c.OffsetMonths != 0 {
			parts = append(parts, fmt.Sprintf("%d mon", c.OffsetMonths))
		}
		if us := c.OffsetDays*microsPerDay + c.Offset; us != 0 {
			parts = append(parts, micros(us))
		}
		if len(parts) > 0 {
			offset = ", offset " + strings.Join(parts, " ")
		}
		if c.Zone != "" {
			offset += ", zone " + c.Zone
		}
	}
	switch {
	case unit == "":
	case kind == "Cumulate":
		unit = "step " + unit + ", "
	default:
		unit = "slide " + unit + ", "
	}
	return fmt.Sprintf("%s Window on %s  (%ssize %s%s)", kind, cols[w.Column], unit, size, offset)
}

func micros(us int64) string {
	for _, u := range []struct {
		us   int64
		name string
	}{{microsPerDay, "d"}, {3_600_000_000, "h"}, {60_000_000, "min"}, {1_000_000, "s"}, {1000, "ms"}} {
		if us%u.us == 0 {
			return fmt.Sprintf("%d %s", us/u.us, u.name)
		}
	}
	return fmt.Sprintf("%d us", us)
}

func (x *explainer) agg(n, in *plan.Node, state func(string) string) (string, []string) {
	a := n.Agg
	title := "Hash Aggregate"
	switch {
	case a.Global:
		title = "Aggregate"
	case len(a.Calls) == 0:
		title = "Distinct"
	}
	keeps := "one entry per group"
	if a.Global {
		keeps = "one entry"
	}
	closing := ""
	if a.OnClose >= 0 {
		closing = "Emit: when the watermark passes " + x.name(in, a.GroupBy[a.OnClose])
		keeps = "one entry per open window and group"
	}
	expire := ""
	if a.TTL > 0 {
		expire = "Expire: groups, after " + micros(a.TTL) + " without a change"
	}
	return title, []string{labelled("Group By", x.columnList(in, a.GroupBy)), labelled("Calls", x.wholeCalls(in, a.Calls)), closing, expire, state(keeps)}
}

// wholeCalls names the calls of an aggregation of in's rows as the query has them: over the rows that a partial aggregation has added up.
func (x *explainer) wholeCalls(in *plan.Node, of []plan.AggCall) string {
	if in.Kind == plan.KindExchange {
		in = x.plan.Sender(in.Exchange)
	}
	sums := in
	if in.Kind == plan.KindWindow { // sums of slides, which windows share
		sums = in.Inputs[0]
	}
	p := sums.PartialAgg
	if p == nil || p.Consolidate {
		return x.callList(in, of)
	}
	whole := make([]plan.AggCall, 0, len(of))
	for _, c := range of {
		at := c.Count
		if len(c.Args) > 0 {
			at = &c.Args[0]
		}
		part := p.Calls[*at-len(p.GroupBy)]
		whole = append(whole, plan.AggCall{Func: c.Func, Args: part.Args, Filter: part.Filter})
	}
	return x.callList(sums.Inputs[0], whole)
}

// callList names the calls of an aggregation of in's rows.
func (x *explainer) callList(in *plan.Node, of []plan.AggCall) string {
	var calls []string
	for _, c := range of {
		args := c.Args
		for _, more := range []*int{c.Squares, c.Count} {
			if more != nil {
				args = append(slices.Clip(args), *more)
			}
		}
		arg := x.columnList(in, args)
		name, _, _ := strings.Cut(c.Func, "(")
		if len(args) == 0 {
			arg = "*"
		}
		if c.Distinct {
			arg = "DISTINCT " + arg
		}
		if len(c.Order) > 0 {
			arg += " ORDER BY " + x.sortList(in, c.Order)
		}
		s := name + "(" + arg + ")"
		if c.Filter >= 0 {
			s += " FILTER (WHERE " + x.name(in, c.Filter) + ")"
		}
		calls = append(calls, s)
	}
	return strings.Join(calls, ", ")
}

var joinTitles = map[plan.JoinType]string{plan.Inner: " Join", plan.Left: " Left Join", plan.Right: " Right Join", plan.Full: " Full Join", plan.Semi: " Semi Join", plan.Anti: " Anti Join"}

func (x *explainer) join(n *plan.Node, state func(string) string) (string, []string) {
	j, l, r := n.Join, n.Inputs[0], n.Inputs[1]
	method := "Hash"
	if len(j.LeftKeys) == 0 {
		if method = "Nested Loop"; j.Range != nil {
			method = "Range"
		}
	}
	span := ""
	if j.Range != nil {
		span = x.overBoth(j.Range.Cond, l, r)
	}
	wanted, closing, keeps := "", "", "all rows of both inputs"
	if w := j.Wanted; w != nil {
		wanted = "Wanted: " + expr.String(w.Cond, x.names(n.Inputs[w.Side]))
	}
	if len(j.Once) > 0 {
		keeps = "all rows of " + [2]string{"the right", "the left"}[j.Once[0]] + " input; those of the other one until they have met theirs"
		if len(j.Once) == 2 {
			keeps = "rows of both inputs until they have met their partner"
		}
	}
	if j.CloseKey != nil {
		closing = "Forget: when both watermarks pass " + x.name(l, j.LeftKeys[*j.CloseKey])
		keeps = "rows of open windows of both inputs"
	}
	if j.Range != nil && j.Range.Expire {
		closing = "Forget: rows that the watermarks of " + x.name(l, j.Range.Lower.Left) + " and " + x.name(r, j.Range.Lower.Right) + " leave no partner"
		keeps = "rows of both inputs that may still find a partner"
	}
	return method + joinTitles[j.Type], []string{labelled("Keys", x.keyPairs(l, r, j.LeftKeys, j.RightKeys, j.NullSafe)), labelled("Range", span), labelled("Condition", x.overBoth(j.Residual, l, r)), wanted, closing, state(keeps)}
}

func (x *explainer) asofJoin(n *plan.Node, state func(string) string) (string, []string) {
	j, l, r := n.AsofJoin, n.Inputs[0], n.Inputs[1]
	title := "ASOF Join"
	if j.Type == plan.Left {
		title = "ASOF Left Join"
	}
	order := "the greatest"
	if j.Op[0] == '<' {
		order = "the least"
	}
	right := x.name(r, j.Right)
	return title, []string{
		labelled("Keys", x.keyPairs(l, r, j.LeftKeys, j.RightKeys, j.NullSafe)),
		"Nearest: " + order + " " + right + " with " + x.name(l, j.Left) + " " + j.Op + " " + right,
		state("all rows of both inputs, ordered"),
	}
}

func (x *explainer) temporalJoin(n *plan.Node, state func(string) string) (string, []string) {
	j, l, r := n.TemporalJoin, n.Inputs[0], n.Inputs[1]
	title := "Temporal Join"
	if j.Type == plan.Left {
		title = "Temporal Left Join"
	}
	var keeps []string
	if j.Point == nil {
		keeps = append(keeps, "all rows of the right input")
	}
	if !l.AppendOnly {
		keeps = append(keeps, "matches of left rows")
	}
	if keeps == nil {
		keeps = []string{"none"}
	}
	return title, []string{labelled("Keys", x.keyPairs(l, r, j.LeftKeys, j.RightKeys, j.NullSafe)), labelled("Condition", x.overBoth(j.Residual, l, r)), state(strings.Join(keeps, ", "))}
}

// overBoth is a condition over the columns of both inputs of a join, "" when there is none.
func (x *explainer) overBoth(e *expr.Expr, l, r *plan.Node) string {
	if e == nil {
		return ""
	}
	return expr.String(e, append(x.names(l), x.names(r)...))
}

// keyPairs lists the equalities of a join.
func (x *explainer) keyPairs(l, r *plan.Node, lk, rk []int, nullSafe []bool) string {
	var conds []string
	for i := range lk {
		op := "="
		if i < len(nullSafe) && nullSafe[i] {
			op = "IS NOT DISTINCT FROM"
		}
		conds = append(conds, fmt.Sprintf("%s %s %s", x.name(l, lk[i]), op, x.name(r, rk[i])))
	}
	return strings.Join(conds, ", ")
}

func (x *explainer) topN(n, in *plan.Node, state func(string) string) (string, []string) {
	t := n.TopN
	title := "Limit"
	switch {
	case t.Limit < 0 && t.LimitExpr == nil && t.Offset == 0 && t.OffsetExpr == nil:
		title = "Sort"
	case len(t.Order) > 0:
		title = "Top-N"
	}
	limit := ""
	if t.Limit >= 0 {
		limit = fmt.Sprint(t.Limit)
	}
	if t.LimitExpr != nil {
		limit = expr.String(t.LimitExpr, nil)
	}
	if limit != "" && t.WithTies {
		limit += " with ties"
	}
	if t.Dense {
		limit += " values, with ties"
	}
	keeps := "all rows, ordered"
	if in.AppendOnly && t.Limit >= 0 {
		keeps = "rows that can be shown, ordered"
	}
	offset := ""
	if t.Offset > 0 {
		offset = fmt.Sprint(t.Offset)
	}
	if t.OffsetExpr != nil {
		offset = expr.String(t.OffsetExpr, nil)
	}
	return title, []string{
		labelled("Per Group", x.columnList(in, t.GroupBy)), labelled("Sort Key", x.sortList(in, t.Order)),
		labelled("Limit", limit), labelled("Offset", offset), labelled("Ranks", strings.Join(t.Ranks, ", ")), x.closingLine(in, t.OnClose), state(keeps),
	}
}
