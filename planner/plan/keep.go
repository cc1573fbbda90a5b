package plan

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// Kept says which operators of a plan go on with the state that they have in the job whose plan it replaces.
type Kept struct {
	// Roots give all that they have put out again from their state: what reads them is new.
	Roots map[uint32]bool
	// Nodes are the roots and all below them.
	Nodes map[uint32]bool
	// Inputs are the relations that they read.
	Inputs map[uint64]bool
	// Stored says of roots whose state does not tell what they have put out that the rows of the replaced view are just that.
	Stored map[uint32]*StoredRows
	// Lasting: some of them keep what cannot be computed again from the inputs.
	Lasting bool
	// Temporal: temporal joins are among them.
	Temporal bool
}

// StoredRows are the stored rows of a view as those of an operator, whose columns are Columns of Schema; -1: the view does not have it, and nobody reads it.
type StoredRows struct {
	Columns []int
	Schema  types.Schema
}

// Keep finds the operators of next that do what operators of old do: of the same kind, with the same parameters, over inputs for which the same
// holds. They get the ids of those, the others ids that old never had. What reads one of the changed relations is not the same. It returns nil
// when nothing is kept.
func (next *Plan) Keep(old *Plan, changed func(relation uint64) bool) *Kept {
	was, is := newFingerprints(old, nil), newFingerprints(next, changed)
	byPrint := map[string][]*Node{}
	for _, f := range old.Fragments {
		f.Root.Walk(func(n *Node) { byPrint[was.of(n)] = append(byPrint[was.of(n)], n) })
	}
	pairs := map[*Node]*Node{} // of next, of old
	taken := map[*Node]bool{}
	var roots []*Node
	outputs := was.storedOutputs(old)
	stored := map[*Node]*StoredRows{}
	match := func(n *Node, fits func(o *Node) bool) *Node {
		for _, o := range byPrint[is.of(n)] {
			if fits(o) && pair(is, was, n, o, pairs, taken) {
				return o
			}
		}
		return nil
	}
	replays := func(n *Node) bool {
		return n.Replayable() && slices.ContainsFunc(byPrint[is.of(n)], (*Node).Replayable)
	}
	var find func(n *Node)
	find = func(n *Node) {
		if pairs[n] != nil {
			return
		}
		if n.Replayable() && match(n, (*Node).Replayable) != nil {
			roots = append(roots, n)
			return
		}
		if is.lasts(n) && !is.covers(n, replays) {
			free := is.spreadFreely(next, n)
			if o := match(n, func(o *Node) bool {
				return outputs[o] != nil && (free || outputs[o].inPlace) && is.enough(next, n, outputs[o])
			}); o != nil {
				roots, stored[n] = append(roots, n), &outputs[o].StoredRows
				return
			}
		}
		for _, in := range is.inputs(n) {
			find(in)
		}
	}
	find(next.Fragments[len(next.Fragments)-1].Root)
	// What is kept puts out nothing of what it has taken in already, so nobody else may read it.
	for again := true; again; {
		again = false
		k := keptOf(is, roots)
		for _, f := range next.Fragments {
			f.Root.Walk(func(n *Node) {
				if n.Kind != KindExchange || k[n] || !k[is.roots[n.Exchange.From]] {
					return
				}
				shared := is.roots[n.Exchange.From]
				left := slices.DeleteFunc(slices.Clone(roots), func(r *Node) bool { return r != shared && keptOf(is, []*Node{r})[shared] })
				again = again || len(left) < len(roots)
				roots = left
			})
		}
	}
	k := &Kept{Roots: map[uint32]bool{}, Nodes: map[uint32]bool{}, Inputs: map[uint64]bool{}, Stored: map[uint32]*StoredRows{}}
	for n := range keptOf(is, roots) {
		n.ID = pairs[n].ID
		n.takeKeepNulls(pairs[n])
		k.Nodes[n.ID] = true
		k.Lasting, k.Temporal = k.Lasting || n.Remembers(), k.Temporal || n.Kind == KindTemporalJoin
		if n.Kind == KindScan {
			k.Inputs[n.Scan.Relation] = true
		}
	}
	for _, r := range roots {
		k.Roots[r.ID] = true
		if s := stored[r]; s != nil {
			k.Stored[r.ID] = s
		}
	}
	id := max(old.NextID, 1)
	in := keptOf(is, roots)
	for _, f := range next.Fragments {
		f.Root.Walk(func(n *Node) {
			if !in[n] {
				n.ID = id
				id++
			}
		})
	}
	next.NextID = id
	if len(roots) == 0 {
		return nil
	}
	return k
}

// Anew returns the operators of next that do not go on with state although old has one of the kind, and that cannot compute again what that one has put out.
func (next *Plan) Anew(old *Plan, kept *Kept) []*Node {
	was := map[string]bool{}
	name := func(n *Node) string {
		if n.Kind == KindSource {
			return fmt.Sprint(n.Kind, n.Source.Relation)
		}
		return string(n.Kind)
	}
	for _, f := range old.Fragments {
		f.Root.Walk(func(n *Node) { was[name(n)] = was[name(n)] || n.Remembers() })
	}
	var out []*Node
	for _, f := range next.Fragments {
		f.Root.Walk(func(n *Node) {
			if n.Remembers() && was[name(n)] && (kept == nil || !kept.Nodes[n.ID]) {
				out = append(out, n)
			}
		})
	}
	return out
}

// Again returns the names of the relations that next reads from their beginning, without duplicates.
func (next *Plan) Again(kept *Kept) []string {
	var out []string
	for _, f := range next.Fragments {
		f.Root.Walk(func(n *Node) {
			name := ""
			switch n.Kind {
			case KindScan:
				name = n.Scan.Name
			case KindSource:
				name = n.Source.Name
			}
			if name != "" && (kept == nil || !kept.Nodes[n.ID]) && !slices.Contains(out, name) {
				out = append(out, name)
			}
		})
	}
	return out
}

// pair matches two equal trees node by node, unless a node has its partner already.
func pair(is, was *fingerprints, n, o *Node, pairs map[*Node]*Node, taken map[*Node]bool) bool {
	got, used := map[*Node]*Node{}, map[*Node]bool{}
	var walk func(n, o *Node) bool
	walk = func(n, o *Node) bool {
		if p := got[n]; p != nil {
			return p == o
		}
		if pairs[n] != nil || taken[o] || used[o] {
			return false
		}
		got[n], used[o] = o, true
		in, on := is.inputs(n), was.inputs(o)
		for i := range in {
			if !walk(in[i], on[i]) {
				return false
			}
		}
		return true
	}
	if !walk(n, o) {
		return false
	}
	for n, o := range got {
		pairs[n], taken[o] = o, true
	}
	return true
}

func keptOf(f *fingerprints, roots []*Node) map[*Node]bool {
	out := map[*Node]bool{}
	var add func(n *Node)
	add = func(n *Node) {
		if out[n] {
			return
		}
		out[n] = true
		for _, in := range f.inputs(n) {
			add(in)
		}
	}
	for _, r := range roots {
		add(r)
	}
	return out
}

// Replayable reports whether the state of the operator holds all that it has put out. Watermarks are not part of that.
func (n *Node) Replayable() bool {
	switch n.Kind {
	case KindAgg:
		return n.Agg.OnClose < 0
	case KindJoin:
		j := n.Join
		return !j.Closes() && len(j.Once) == 0 && (j.KeepNulls || !j.Pads() || j.Range == nil && len(j.LeftKeys) <= len(j.NullSafe) && !slices.Contains(j.NullSafe, false))
	case KindAsofJoin:
		return n.AsofJoin.KeepNulls || n.AsofJoin.Type == Inner
	case KindTopN:
		return n.TopN.OnClose == nil
	case KindOver:
		return n.Over.OnClose == nil && n.Over.Forget == nil
	case KindSession:
		return !n.Session.OnClose
	case KindLookupJoin, KindDynamicFilter, KindRecompute, KindExpire:
		return true
	}
	return false
}

// Remembers reports whether the operator cannot compute again what it has put out from what its inputs hold: that depends on what has been there, or on when it came.
func (n *Node) Remembers() bool {
	switch n.Kind {
	case KindSource, KindTemporalJoin, KindProcTime, KindExpire:
		return true
	case KindAgg:
		return n.Agg.OnClose >= 0 || n.Agg.TTL > 0
	case KindJoin:
		return n.Join.Closes()
	case KindTopN:
		return n.TopN.OnClose != nil
	case KindOver:
		return n.Over.OnClose != nil || n.Over.Forget != nil
	case KindSession:
		return n.Session.OnClose
	}
	return false
}

// stateless reports whether the operator passes on what comes row by row and keeps nothing.
func (n *Node) stateless() bool {
	switch n.Kind {
	case KindFilter, KindProject, KindUnnest, KindWindow, KindUnion, KindExchange, KindPartialAgg, KindPartialTopN:
		return true
	}
	return false
}

// takeKeepNulls makes the operator keep of rows with NULL what another one, whose state it takes over, has kept.
func (n *Node) takeKeepNulls(from *Node) {
	switch n.Kind {
	case KindJoin:
		n.Join.KeepNulls = from.Join.KeepNulls
	case KindAsofJoin:
		n.AsofJoin.KeepNulls = from.AsofJoin.KeepNulls
	}
}

// Pads reports whether rows of a side are output by themselves while they have no partner.
func (j *Join) Pads() bool { return j.Type != Inner && j.Type != Semi }

// Closes reports whether rows are dropped when watermarks tell that they can find no partner any more.
func (j *Join) Closes() bool { return j.CloseKey != nil || j.Range != nil && j.Range.Expire }

// fingerprints are texts that are equal for operators that do the same.
type fingerprints struct {
	roots   map[int]*Node // of fragments
	par     map[int]int
	changed func(uint64) bool
	known   map[*Node]string
}

func newFingerprints(p *Plan, changed func(uint64) bool) *fingerprints {
	f := &fingerprints{roots: map[int]*Node{}, par: map[int]int{}, changed: changed, known: map[*Node]string{}}
	for _, fr := range p.Fragments {
		f.roots[fr.ID], f.par[fr.ID] = fr.Root, fr.Parallelism
	}
	return f
}

// inputs are those of an operator; of an exchange the root of the fragment that it reads.
func (f *fingerprints) inputs(n *Node) []*Node {
	if n.Kind == KindExchange {
		return []*Node{f.roots[n.Exchange.From]}
	}
	return n.Inputs
}

// lasts reports whether an operator, or one below it, remembers.
func (f *fingerprints) lasts(n *Node) bool {
	return n.Remembers() || slices.ContainsFunc(f.inputs(n), f.lasts)
}

// covers reports whether all that comes to an operator that keeps nothing comes from operators that replay it.
func (f *fingerprints) covers(n *Node, replays func(*Node) bool) bool {
	if replays(n) {
		return true
	}
	in := f.inputs(n)
	return n.stateless() && len(in) > 0 && !slices.ContainsFunc(in, func(m *Node) bool { return !f.covers(m, replays) })
}

// parentOf returns the operator that reads n in its fragment, nil when n is the root.
func parentOf(p *Plan, n *Node) (parent *Node) {
	for _, f := range p.Fragments {
		f.Root.Walk(func(m *Node) {
			if slices.Contains(m.Inputs, n) {
				parent = m
			}
		})
	}
	return parent
}

// enough reports whether what reads n can do without the columns that the stored rows do not have: a projection does not read them. Rows that are taken back look different
// then, so none may be on the way there.
func (f *fingerprints) enough(p *Plan, n *Node, rows *output) bool {
	if !slices.Contains(rows.Columns, -1) {
		return true
	}
	for m := parentOf(p, n); m != nil; m = parentOf(p, m) {
		read := map[int]bool{}
		switch {
		case m.Kind == KindProject:
			for _, e := range m.Project.Exprs {
				e.Columns(read)
			}
		case m.Kind == KindFilter && n.AppendOnly:
			m.Filter.Cond.Columns(read)
		default:
			return false
		}
		for c := range read {
			if rows.Columns[c] < 0 {
				return false
			}
		}
		if m.Kind == KindProject {
			return true
		}
	}
	return false
}

// spreadFreely reports whether rows that an operator puts out may come from any subtask: up to the next exchange each is handled on its own.
func (f *fingerprints) spreadFreely(p *Plan, n *Node) bool {
	root := n
	for m := parentOf(p, root); m != nil && m.stateless(); m = parentOf(p, root) {
		root = m
	}
	read := false
	for _, fr := range p.Fragments {
		fr.Root.Walk(func(m *Node) {
			if m.Kind == KindExchange && f.roots[m.Exchange.From] == root {
				read = m.Exchange.Dist != DistForward
			}
		})
	}
	return read
}

// output is what the stored rows of a view are to an operator of its plan. InPlace: each subtask has those that it has put out.
type output struct {
	StoredRows
	inPlace bool
}

// storedOutputs finds the operators that have put out just what the view has stored, but for the order of columns.
func (f *fingerprints) storedOutputs(p *Plan) map[*Node]*output {
	root := p.Fragments[len(p.Fragments)-1].Root
	if root.Kind != KindMaterialize || root.Materialize.Order != nil {
		return nil
	}
	out := map[*Node]*output{}
	at := map[int]int{} // column of the operator → stored column
	for i := range root.Schema {
		at[i] = i
	}
	inPlace := true
	for n := root.Inputs[0]; ; n = f.inputs(n)[0] {
		cols := make([]int, len(n.Schema))
		for i := range cols {
			c, ok := at[i]
			if cols[i] = c; !ok {
				cols[i] = -1
			}
		}
		if slices.ContainsFunc(n.Key, func(k int) bool { return cols[k] < 0 }) {
			return out
		}
		out[n] = &output{StoredRows{cols, root.Schema}, inPlace}
		switch n.Kind {
		case KindExchange:
			inPlace = false
		case KindProject:
			below := map[int]int{}
			for i, e := range n.Project.Exprs {
				if c, ok := at[i]; ok && e.Kind == expr.Column {
					below[e.Col] = c
				}
			}
			at = below
		default:
			return out
		}
	}
}

func (f *fingerprints) of(n *Node) string {
	if p, ok := f.known[n]; ok {
		return p
	}
	c := *n
	c.ID, c.Inputs = 0, nil
	switch n.Kind { // older plans do not have KeepNulls
	case KindJoin:
		j := *n.Join
		j.KeepNulls, c.Join = false, &j
	case KindAsofJoin:
		j := *n.AsofJoin
		j.KeepNulls, c.AsofJoin = false, &j
	}
	if n.Kind == KindExchange {
		x := *n.Exchange
		x.From = f.par[x.From]
		c.Exchange = &x
	}
	b, err := json.Marshal(&c)
	if err == nil {
		var tree any
		if err = json.Unmarshal(b, &tree); err == nil {
			b, err = json.Marshal(Nameless(tree))
		}
	}
	h := sha256.New()
	if h.Write(b); err != nil { // cannot be: plans are stored
		fmt.Fprintf(h, "%p", n)
	}
	if f.changed != nil && n.Kind == KindScan && f.changed(n.Scan.Relation) {
		fmt.Fprint(h, "changed")
	}
	for _, in := range f.inputs(n) {
		fmt.Fprint(h, "\n", f.of(in))
	}
	f.known[n] = string(h.Sum(nil))
	return f.known[n]
}

// Nameless removes names and positions in the text from a plan that was decoded into a tree of maps.
func Nameless(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			switch strings.ToLower(k) {
			case "name", "pos", "names", "labels", "text", "tables", "alias":
				delete(v, k)
			default:
				v[k] = Nameless(x)
			}
		}
	case []any:
		for i, x := range v {
			v[i] = Nameless(x)
		}
	}
	return v
}
