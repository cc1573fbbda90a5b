package state

import (
	"encoding/binary"
	"math"
	"strings"
)

const (
	// nodeEntries makes a node 1000 bytes, which is what the first write to it after a view or a seal copies.
	nodeEntries = 30
	// mergeBelow is the number of entries below which a node looks for a neighbour to become one with, mergeUpTo how many they may have then.
	mergeBelow, mergeUpTo = nodeEntries / 4, nodeEntries * 3 / 4
	// treeDepth bounds the height: a node that is split has 30 entries.
	treeDepth = 16
)

// tree is a copy-on-write ordered tree of entries: copy is O(1), and each copy may then be used by its own goroutine. Entries are in the leaves.
//
// Searching reads few cache lines: a node has, beside its entries, eight bytes of each key from where the keys of the node differ, and what they have
// in common before that. Only keys that are equal there are looked at themselves.
type tree struct {
	root *node
	n    int
	own  *owner // of the nodes that this tree may change
}

// node is a leaf, or has one more kid than entries, which are then separators: keys of kids[i] are below items[i], those of kids[i+1] are not.
type node struct {
	own    *owner    // the tree that may change it, until it is copied
	prefix [2]uint64 // the first 16 bytes of what all keys begin with
	n      uint16
	skip   uint16 // length of what all keys begin with
	words  [nodeEntries]uint64
	items  [nodeEntries]entry
	kids   *[nodeEntries + 1]*node // nil: a leaf
}

// owner is nothing but different from all others.
type owner struct{ _ byte }

func newTree() *tree { return &tree{own: new(owner)} }

// copy returns a tree with the same entries.
func (t *tree) copy() *tree {
	t.own = new(owner)
	return &tree{root: t.root, n: t.n, own: new(owner)}
}

func (t *tree) len() int { return t.n }

// get returns the entry with a key.
func (t *tree) get(k string) (entry, bool) {
	n := t.root
	if n == nil {
		return entry{}, false
	}
	for n.kids != nil {
		n = n.kids[n.kid(k)]
	}
	if i, found := n.seek(k); found {
		return n.items[i], true
	}
	return entry{}, false
}

// set puts e in the place of the entry with its key, if there is one.
func (t *tree) set(e entry) {
	var c cursor
	c.seek(t, e.key())
	t.put(&c, e)
}

// load is set of entries that mostly come in their order.
func (t *tree) load(e entry) {
	var c cursor
	if !c.last(t) || c.item().key() >= e.key() {
		t.set(e)
		return
	}
	c.path[c.depth-1].i++
	t.put(&c, e)
}

// delete removes the entry with a key.
func (t *tree) delete(k string) {
	var c cursor
	if c.seek(t, k); c.found {
		t.remove(&c)
	}
}

// scan calls f with all entries in order until it returns false.
func (t *tree) scan(f func(entry) bool) {
	var c cursor
	for ok := c.first(t); ok && f(c.item()); ok = c.next() {
	}
}

// ascend is scan from a key on.
func (t *tree) ascend(from string, f func(entry) bool) {
	var c cursor
	for ok := c.seek(t, from); ok && f(c.item()); ok = c.next() {
	}
}

// cursor is a place in a tree, good until the tree is changed: of an entry, or where one would be put.
type cursor struct {
	path  [treeDepth]step
	depth int  // 0: the tree is empty
	found bool // by seek
}

type step struct {
	n *node
	i int
}

func (c *cursor) push(n *node, i int) {
	c.path[c.depth] = step{n, i}
	c.depth++
}

// seek goes to the first entry whose key is not below k, and reports whether there is one. put takes an entry with the key k then.
func (c *cursor) seek(t *tree, k string) bool {
	c.depth, c.found = 0, false
	n := t.root
	if n == nil {
		return false
	}
	for n.kids != nil {
		i := n.kid(k)
		c.push(n, i)
		n = n.kids[i]
	}
	i, found := n.seek(k)
	c.push(n, i)
	c.found = found
	return i < int(n.n) || c.after()
}

// after reports whether an entry follows the present leaf.
func (c *cursor) after() bool {
	for d := c.depth - 2; d >= 0; d-- {
		if c.path[d].i < int(c.path[d].n.n) {
			return true
		}
	}
	return false
}

// item returns the present entry. After a seek to the end of a leaf that is the first of the next one.
func (c *cursor) item() entry {
	if at := &c.path[c.depth-1]; at.i == int(at.n.n) {
		c.step(1)
	}
	at := &c.path[c.depth-1]
	return at.n.items[at.i]
}

// first goes to the first entry, last to the last one; they report whether there is one.
func (c *cursor) first(t *tree) bool { return c.edge(t.root, false) }

func (c *cursor) last(t *tree) bool { return c.edge(t.root, true) }

func (c *cursor) edge(n *node, last bool) bool {
	c.depth = 0
	if n == nil {
		return false
	}
	c.down(n, last)
	return true
}

// down goes to the first or last entry under n.
func (c *cursor) down(n *node, last bool) {
	for {
		i := 0
		if last {
			i = int(n.n)
		}
		if n.kids == nil {
			if last {
				i--
			}
			c.push(n, i)
			return
		}
		c.push(n, i)
		n = n.kids[i]
	}
}

// next goes to the following entry, prev to the one before; false: there is none, and the cursor is of no use any more.
func (c *cursor) next() bool {
	at := &c.path[c.depth-1]
	if at.i == int(at.n.n) && !c.step(1) { // after a seek to the end of a leaf
		return false
	}
	if at = &c.path[c.depth-1]; at.i+1 < int(at.n.n) {
		at.i++
		return true
	}
	return c.step(1)
}

func (c *cursor) prev() bool {
	if at := &c.path[c.depth-1]; at.i > 0 {
		at.i--
		return true
	}
	return c.step(-1)
}

// step goes to the nearest entry of the next leaf, or with -1 of the one before.
func (c *cursor) step(by int) bool {
	for d := c.depth - 2; d >= 0; d-- {
		at := &c.path[d]
		if i := at.i + by; i >= 0 && i <= int(at.n.n) {
			at.i, c.depth = i, d+1
			c.down(at.n.kids[i], by < 0)
			return true
		}
	}
	return false
}

// reach makes the nodes of the path ones that the tree may change.
func (t *tree) reach(c *cursor) {
	for d := range c.depth {
		at := &c.path[d]
		if at.n.own == t.own {
			continue
		}
		at.n = at.n.clone(t.own)
		if d == 0 {
			t.root = at.n
		} else {
			up := &c.path[d-1]
			up.n.kids[up.i] = at.n
		}
	}
}

func (n *node) clone(by *owner) *node {
	m := new(node)
	*m = *n
	m.own = by
	if n.kids != nil {
		m.kids = new([nodeEntries + 1]*node)
		*m.kids = *n.kids
	}
	return m
}

// put puts e where seek went to with its key.
func (t *tree) put(c *cursor, e entry) {
	if t.root == nil {
		t.root = &node{own: t.own}
		c.push(t.root, 0)
	}
	t.reach(c)
	at := &c.path[c.depth-1]
	if c.found {
		at.n.items[at.i] = e
		return
	}
	t.n++
	if at.n.n < nodeEntries {
		at.n.insert(at.i, e, nil)
		return
	}
	kid := (*node)(nil)
	for d := c.depth - 1; ; d-- {
		at := &c.path[d]
		if at.n.n < nodeEntries {
			at.n.insert(at.i, e, kid)
			return
		}
		e, kid = t.split(at.n, at.i, e, kid)
		if d == 0 {
			root := &node{own: t.own, kids: new([nodeEntries + 1]*node)}
			root.kids[0] = at.n
			root.insert(0, e, kid)
			t.root = root
			return
		}
	}
}

// split inserts into a full node, half of which moves to a new one on its right, and returns what the node above has to insert. Where entries come in
// their order as little as possible moves, so that nodes become full.
func (t *tree) split(n *node, i int, e entry, kid *node) (sep entry, right *node) {
	right = &node{own: t.own}
	mid := nodeEntries / 2
	if n.kids == nil {
		if i == nodeEntries {
			mid = nodeEntries
		}
		n.moveTo(right, mid)
		if i <= mid && mid < nodeEntries {
			n.insert(i, e, nil)
		} else {
			right.insert(i-mid, e, nil)
		}
		low, high := n.items[n.n-1].key(), right.items[0].key()
		k := strings.Clone(high[:common(low, high)+1])
		return probe(k), right
	}
	if i == nodeEntries {
		mid = nodeEntries - 1
	}
	right.kids = new([nodeEntries + 1]*node)
	n.moveTo(right, mid+1)
	n.n--
	sep = n.items[mid]
	n.items[mid] = entry{}
	if i <= mid {
		n.insert(i, e, kid)
	} else {
		right.insert(i-mid-1, e, kid)
	}
	return sep, right
}

// moveTo moves the entries from the i-th on, and the kids on their right and left, to the empty node m.
func (n *node) moveTo(m *node, i int) {
	m.n = uint16(copy(m.items[:], n.items[i:n.n]))
	if n.kids != nil {
		copy(m.kids[:], n.kids[i:n.n+1])
		clear(n.kids[i : n.n+1])
	}
	clear(n.items[i:n.n])
	n.n = uint16(i)
	m.index()
}

// insert makes e the i-th entry, and kid what is on its right.
func (n *node) insert(i int, e entry, kid *node) {
	k := e.key()
	fits := n.n > 0 && len(k) >= int(n.skip) && n.place(k) == 0
	copy(n.items[i+1:n.n+1], n.items[i:n.n])
	n.items[i] = e
	if kid != nil {
		copy(n.kids[i+2:n.n+2], n.kids[i+1:n.n+1])
		n.kids[i+1] = kid
	}
	n.n++
	if !fits {
		n.index()
		return
	}
	copy(n.words[i+1:n.n], n.words[i:n.n-1])
	n.words[i] = word(k, int(n.skip))
}

// cut removes the i-th entry.
func (n *node) cut(i int) {
	copy(n.items[i:n.n], n.items[i+1:n.n])
	copy(n.words[i:n.n], n.words[i+1:n.n])
	n.n--
	n.items[n.n] = entry{}
	if n.n == 0 {
		n.skip = 0
	}
}

// drop removes the i-th kid with the separator beside it. A node whose last kid goes is an empty leaf.
func (n *node) drop(i int) {
	if n.n == 0 {
		n.kids = nil
		return
	}
	copy(n.kids[i:n.n+1], n.kids[i+1:n.n+1])
	n.kids[n.n] = nil
	n.cut(max(i-1, 0))
}

// remove removes the entry that seek found.
func (t *tree) remove(c *cursor) {
	t.reach(c)
	t.n--
	at := &c.path[c.depth-1]
	at.n.cut(at.i)
	for d := c.depth - 1; d > 0 && c.path[d].n.n < mergeBelow; d-- {
		up := &c.path[d-1]
		if n := c.path[d].n; n.n == 0 && n.kids == nil {
			up.n.drop(up.i)
			continue
		}
		if up.n.n == 0 {
			continue
		}
		i := min(up.i, int(up.n.n)-1)
		left, right := up.n.kids[i], up.n.kids[i+1]
		if left.n+right.n >= mergeUpTo {
			continue
		}
		if left.own != t.own {
			left = left.clone(t.own)
			up.n.kids[i] = left
		}
		left.absorb(right, up.n.items[i])
		up.n.drop(i + 1)
	}
	for t.root.kids != nil && t.root.n == 0 {
		t.root = t.root.kids[0]
	}
	if t.root.n == 0 {
		t.root = nil
	}
}

// absorb appends the entries and kids of the node on the right, which sep separates from n.
func (n *node) absorb(right *node, sep entry) {
	if n.kids != nil {
		n.items[n.n] = sep
		copy(n.kids[n.n+1:], right.kids[:right.n+1])
		n.n++
	}
	n.n += uint16(copy(n.items[n.n:], right.items[:right.n]))
	n.index()
}

// index computes what searches use.
func (n *node) index() {
	if n.n == 0 {
		n.skip = 0
		return
	}
	first := n.items[0].key()
	skip := min(common(first, n.items[n.n-1].key()), math.MaxUint16)
	n.skip = uint16(skip)
	n.prefix = [2]uint64{word(first[:skip], 0), word(first[:skip], 8)}
	for i := range n.items[:n.n] {
		n.words[i] = word(n.items[i].key(), skip)
	}
}

// common is the length of what two keys begin with.
func common(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// word returns eight bytes of a key, with zeros behind its end.
func word(k string, from int) uint64 {
	if len(k) >= from+8 {
		return binary.BigEndian.Uint64(bytesOf(k[from:]))
	}
	if from >= len(k) {
		return 0
	}
	if len(k) >= 8 {
		return binary.BigEndian.Uint64(bytesOf(k[len(k)-8:])) << (8 * uint(from+8-len(k)))
	}
	w := uint64(0)
	for i := from; i < len(k); i++ {
		w |= uint64(k[i]) << (8 * uint(7-i+from))
	}
	return w
}

// place compares a key with what all keys of the node begin with: 0 when it begins so, or is that without zeros at the end.
func (n *node) place(k string) int {
	skip := int(n.skip)
	for i := 0; i < 2 && skip > 8*i; i++ {
		w := word(k, 8*i)
		if rest := skip - 8*i; rest < 8 {
			w &= ^uint64(0) << (8 * uint(8-rest))
		}
		if w != n.prefix[i] {
			if w < n.prefix[i] {
				return -1
			}
			return 1
		}
	}
	if skip <= 16 {
		return 0
	}
	return strings.Compare(k[min(16, len(k)):min(skip, len(k))], n.items[0].kv[16:skip])
}

// seek returns the position of the first entry whose key is not below k, and whether it is k.
func (n *node) seek(k string) (i int, found bool) {
	if c := n.place(k); c != 0 {
		if c < 0 {
			return 0, false
		}
		return int(n.n), false
	}
	w := word(k, int(n.skip))
	lo, hi := 0, int(n.n)
	for lo < hi {
		if m := int(uint(lo+hi) >> 1); n.words[m] < w {
			lo = m + 1
		} else {
			hi = m
		}
	}
	// Of those with the same word the keys decide.
	hi = lo
	for hi < int(n.n) && n.words[hi] == w {
		hi++
	}
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		switch c := strings.Compare(n.items[m].key(), k); {
		case c == 0:
			return m, true
		case c < 0:
			lo = m + 1
		default:
			hi = m
		}
	}
	return lo, false
}

// kid returns which kid has a key.
func (n *node) kid(k string) int {
	i, found := n.seek(k)
	if found {
		i++
	}
	return i
}
