package plan

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Kept says which operators of a plan go on with the state that they have in the job whose plan it replaces.
type Kept struct {
	// Roots give all that they have put out again from their state: what reads them is new.
	Roots map[uint32]bool
	// Nodes are the roots and all below them.
	Nodes map[uint32]bool
	// Inputs are the relations that they read.
	Inputs map[uint64]bool
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
	var find func(n *Node)
	find = func(n *Node) {
		if pairs[n] != nil {
			return
		}
		if n.Replayable() {
			for _, o := range byPrint[is.of(n)] {
				if o.Replayable() && pair(is, was, n, o, pairs, taken) {
					roots = append(roots, n)
					return
				}
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
	k := &Kept{Roots: map[uint32]bool{}, Nodes: map[uint32]bool{}, Inputs: map[uint64]bool{}}
	for n := range keptOf(is, roots) {
		n.ID = pairs[n].ID
		n.takeKeepNulls(pairs[n])
		k.Nodes[n.ID] = true
		if n.Kind == KindScan {
			k.Inputs[n.Scan.Relation] = true
		}
	}
	for _, r := range roots {
		k.Roots[r.ID] = true
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
		return !j.Closes() && (j.KeepNulls || !j.Pads() || j.Range == nil && len(j.LeftKeys) <= len(j.NullSafe) && !slices.Contains(j.NullSafe, false))
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
	// What temporal joins gave depends on the epochs in which rows came.
	if f.changed != nil && (n.Kind == KindTemporalJoin || n.Kind == KindScan && f.changed(n.Scan.Relation)) {
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
			case "name", "pos", "names", "labels", "text":
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
