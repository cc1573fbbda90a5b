package planner

import (
	"math/bits"
	"slices"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
)

// Limits of the rule reorder_joins.
const (
	maxOrderedJoins = 10  // relations whose orders are all compared; of more the next smallest pair is joined
	maxJoinChain    = 40  // relations of a chain that is ordered at all
	leastJoinRows   = 256 // a chain whose intermediate results are expected to have fewer rows stays as it is written
)

// joinTree is a chain of inner joins as it was written.
type joinTree struct {
	leaf int // -1: a join
	l, r *joinTree
	cond *expr.Expr
	cols map[int]bool
}

// joinOrder belongs to a join that was put into its place by the rule reorder_joins.
type joinOrder struct {
	written *joinTree
	keys    [][]int // stream keys of the relations, as they are built
	root    *node
}

// placedJoin is a join's part of a joinOrder.
type placedJoin struct {
	of    *joinOrder
	leafs [2]int // number of the relation on each side, -1: joins
	set   uint64 // relations below
}

// reorderJoins joins chains of inner joins in the order in which the fewest intermediate rows are expected, without cross products where conditions connect
// the relations. It counts rows as they are when the query is planned: plans of jobs are stored.
func (o *optimizer) reorderJoins(n *node) *node {
	if o.b.o.EmitOnClose {
		return n // windows close by watermarks, which some orders lose
	}
	if !chained(n, o.b) {
		for i, in := range n.in {
			n.in[i] = o.reorderJoins(in)
		}
		return n
	}
	c := &joinChain{o: o}
	t := c.collect(&n)
	if len(c.leaves) < 3 || len(c.leaves) > maxJoinChain {
		return n
	}
	c.measure()
	if c.timed() > 1 {
		return n // rows of streams that are joined go by their watermarks, which some orders lose
	}
	best, was := c.best(), c.cost(t)
	if best == nil || was < leastJoinRows || best.cost*2 > was {
		return n
	}
	o.fire("reorder_joins")
	order := &joinOrder{written: t, keys: make([][]int, len(c.leaves))}
	out := c.build(best, order)
	order.root = out
	var rest []*expr.Expr
	for i := range c.conds {
		if !c.conds[i].placed {
			rest = append(rest, c.conds[i].e)
		}
	}
	out.cond = and(append(conjuncts(out.cond), rest...)...)
	return out
}

// chained reports whether n is a join of a chain. A join with a single row is what it is: part of no chain.
func chained(n *node, b *binder) bool {
	return n.op == opJoin && n.jtype == plan.Inner && !b.atMostOne(n.in[0]) && !b.atMostOne(n.in[1])
}

// joinChain is a chain of inner joins that is being ordered.
type joinChain struct {
	o      *optimizer
	leaves []*node
	conds  []chainCond
	stats  []*relStats
	rows   map[uint64]float64
}

type chainCond struct {
	e      *expr.Expr
	set    uint64 // relations
	sel    float64
	placed bool
}

// joinCost is a way to join a set of relations. l is nil for a single one.
type joinCost struct {
	set  uint64
	cost float64
	l, r *joinCost
}

// collect takes a chain apart. What is no part of it is ordered by itself.
func (c *joinChain) collect(at **node) *joinTree {
	n := *at
	for n.op == opProject && passes(n) && chained(n.in[0], c.o.b) {
		n = n.in[0]
	}
	t := &joinTree{leaf: -1, cols: toSet(n.out())}
	if !chained(n, c.o.b) {
		n = c.o.reorderJoins(n)
		*at, t.leaf = n, len(c.leaves)
		c.leaves = append(c.leaves, n)
		return t
	}
	t.l, t.r, t.cond = c.collect(&n.in[0]), c.collect(&n.in[1]), n.cond
	for _, e := range conjuncts(n.cond) {
		c.conds = append(c.conds, chainCond{e: e})
	}
	return t
}

// timed counts the relations with a watermark.
func (c *joinChain) timed() int {
	n := 0
	for _, leaf := range c.leaves {
		has := false
		leaf.walk(func(x *node) { has = has || x.op == opWatermark })
		if has {
			n++
		}
	}
	return n
}

// passes reports whether a projection only drops columns.
func passes(n *node) bool {
	for i, e := range n.exprs {
		if e.Kind != expr.Column || e.Col != n.cols[i] {
			return false
		}
	}
	return true
}

func (c *joinChain) setOf(e *expr.Expr, cols []map[int]bool) uint64 {
	used := map[int]bool{}
	e.Columns(used)
	set := uint64(0)
	for i, m := range cols {
		for col := range used {
			if m[col] {
				set |= 1 << i
				break
			}
		}
	}
	return set
}

// measure estimates the relations and what their conditions leave.
func (c *joinChain) measure() {
	var cols []map[int]bool
	for _, leaf := range c.leaves {
		cols = append(cols, toSet(leaf.out()))
		c.stats = append(c.stats, c.o.statsOf(leaf))
	}
	type pair struct{ a, b int }
	equal := map[pair][]int{} // conditions that equate columns of two relations
	for i := range c.conds {
		x := &c.conds[i]
		x.set, x.sel = c.setOf(x.e, cols), rangeShare
		if c.o.equality(x.e) && bits.OnesCount64(x.set) == 2 {
			a := bits.TrailingZeros64(x.set)
			b := 63 - bits.LeadingZeros64(x.set)
			equal[pair{a, b}] = append(equal[pair{a, b}], i)
			x.sel = 1
		}
	}
	for p, list := range equal {
		var pairs [][2]*expr.Expr
		for _, i := range list {
			pairs = append(pairs, sides(c.conds[i].e, cols[p.b]))
		}
		c.conds[list[0]].sel = matchShare(c.o.b.reg, c.stats[p.a], c.stats[p.b], pairs)
	}
	c.rows = map[uint64]float64{}
}

// sides orders the operands of an equality: the second one uses columns of the right side.
func sides(e *expr.Expr, right map[int]bool) [2]*expr.Expr {
	if onSide(e.Args[0], right) {
		return [2]*expr.Expr{e.Args[1], e.Args[0]}
	}
	return [2]*expr.Expr{e.Args[0], e.Args[1]}
}

// rowsOf is how many rows the join of a set of relations is expected to have.
func (c *joinChain) rowsOf(set uint64) float64 {
	if r, ok := c.rows[set]; ok {
		return r
	}
	r := 1.0
	for i, s := range c.stats {
		if set&(1<<i) != 0 {
			r *= s.rows
		}
	}
	for i := range c.conds {
		if x := &c.conds[i]; bits.OnesCount64(x.set) > 1 && x.set&^set == 0 {
			r *= x.sel
		}
	}
	r = max(r, 1)
	c.rows[set] = r
	return r
}

// cost adds up the intermediate rows of a chain as it is written, without the result.
func (c *joinChain) cost(t *joinTree) float64 {
	total := 0.0
	var walk func(t *joinTree, top bool) uint64
	walk = func(t *joinTree, top bool) uint64 {
		if t.leaf >= 0 {
			return 1 << t.leaf
		}
		set := walk(t.l, false) | walk(t.r, false)
		if !top {
			total += c.rowsOf(set)
		}
		return set
	}
	walk(t, true)
	return total
}

// joins reports whether a condition connects two sets.
func (c *joinChain) joins(a, b uint64) bool {
	for i := range c.conds {
		if s := c.conds[i].set; s&a != 0 && s&b != 0 && s&^(a|b) == 0 {
			return true
		}
	}
	return false
}

// connected returns the sets of relations that conditions connect.
func (c *joinChain) connected() []uint64 {
	var parts []uint64
	for i := range c.leaves {
		parts = append(parts, 1<<i)
	}
	for i := range c.conds {
		set := c.conds[i].set
		for _, p := range parts {
			if p&c.conds[i].set != 0 {
				set |= p
			}
		}
		if set == 0 {
			continue // it uses no column
		}
		parts = append(slices.DeleteFunc(parts, func(p uint64) bool { return p&set != 0 }), set)
	}
	return parts
}

// best returns the cheapest way to join all relations; of equal ones that which is found first. It is nil where a condition that needs three relations or more is
// all that connects them.
func (c *joinChain) best() *joinCost {
	if len(c.leaves) > maxOrderedJoins {
		return c.greedy()
	}
	all := uint64(1)<<len(c.leaves) - 1
	parts := c.connected()
	// Cross products are of all relations that conditions connect with all that they connect.
	whole := func(set uint64) bool {
		return !slices.ContainsFunc(parts, func(p uint64) bool { return set&p != 0 && p&^set != 0 })
	}
	ways := make([]*joinCost, all+1)
	for set := uint64(1); set <= all; set++ {
		if set&(set-1) == 0 {
			ways[set] = &joinCost{set: set}
			continue
		}
		rows := 0.0
		if set != all {
			rows = c.rowsOf(set)
		}
		first := set & -set
		for _, connected := range [...]bool{true, false} {
			// The side with the first relation is the left one: a query's rows come in its order.
			for l := (set - 1) & set; l > 0; l = (l - 1) & set {
				a, b := ways[l], ways[set&^l]
				if l&first == 0 || a == nil || b == nil || c.joins(l, set&^l) != connected || !connected && !(whole(l) && whole(set&^l)) {
					continue
				}
				if cost := a.cost + b.cost + rows; ways[set] == nil || cost < ways[set].cost {
					ways[set] = &joinCost{set: set, cost: cost, l: a, r: b}
				}
			}
			if ways[set] != nil {
				break
			}
		}
	}
	return ways[all]
}

// greedy joins the pair with the fewest rows, again and again.
func (c *joinChain) greedy() *joinCost {
	var parts []*joinCost
	for i := range c.leaves {
		parts = append(parts, &joinCost{set: 1 << i})
	}
	for len(parts) > 1 {
		bi, bj, rows, connected := -1, -1, 0.0, false
		for i := range parts {
			for j := i + 1; j < len(parts); j++ {
				on := c.joins(parts[i].set, parts[j].set)
				r := c.rowsOf(parts[i].set | parts[j].set)
				if bi < 0 || on && !connected || on == connected && r < rows {
					bi, bj, rows, connected = i, j, r, on
				}
			}
		}
		if len(parts) == 2 {
			rows = 0
		}
		l, r := parts[bi], parts[bj]
		parts[bi] = &joinCost{set: l.set | r.set, cost: l.cost + r.cost + rows, l: l, r: r}
		parts = slices.Delete(parts, bj, bj+1)
	}
	return parts[0]
}

// build makes the joins.
func (c *joinChain) build(w *joinCost, order *joinOrder) *node {
	if w.l == nil {
		return c.leaves[bits.TrailingZeros64(w.set)]
	}
	n := &node{op: opJoin, jtype: plan.Inner, in: []*node{c.build(w.l, order), c.build(w.r, order)}}
	n.placed = &placedJoin{of: order, leafs: [2]int{-1, -1}, set: w.set}
	for i, side := range [...]*joinCost{w.l, w.r} {
		if side.l == nil {
			n.placed.leafs[i] = bits.TrailingZeros64(side.set)
		}
	}
	var conds []*expr.Expr
	for i := range c.conds {
		if x := &c.conds[i]; !x.placed && bits.OnesCount64(x.set) > 1 && x.set&^w.set == 0 {
			x.placed = true
			conds = append(conds, x.e)
		}
	}
	n.cond = and(conds...)
	return n
}

// built notes the keys of the relations that a join joins, and returns those of all relations below, which the joins above pass on.
func (x *placedJoin) built(l, r *phys) (keep []int) {
	if x == nil {
		return nil
	}
	for i, p := range [...]*phys{l, r} {
		if x.leafs[i] >= 0 {
			x.of.keys[x.leafs[i]] = p.key
		}
	}
	return x.below()
}

func (x *placedJoin) below() (keep []int) {
	for i, key := range x.of.keys {
		if x.set&(1<<i) != 0 {
			keep = append(keep, key...)
		}
	}
	return keep
}

// placedKey returns the key of a join whose own one is given, and the key columns that it passes on.
func (ph *physical) placedKey(n *node, key []int) ([]int, map[int]bool) {
	switch {
	case n.placed == nil:
	case n.placed.of.root != n:
		return key, union(toSet(key), n.placed.below())
	default:
		key = ph.keyAsWritten(n.placed.of.written, n.placed.of.keys)
	}
	return key, toSet(key)
}

// keyAsWritten is the stream key that a chain's result would have in the order in which it was written: ties are broken by it, whatever the sizes of tables were.
func (ph *physical) keyAsWritten(t *joinTree, keys [][]int) []int {
	if t.leaf >= 0 {
		return keys[t.leaf]
	}
	on, _ := ph.joinKeys(t.cond, t.l.cols, t.r.cols)
	return ph.innerKey(ph.keyAsWritten(t.l, keys), ph.keyAsWritten(t.r, keys), nil, nil, on)
}
