package planner

import (
	"slices"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// maxIndexRanges bounds the parts of an index that one scan reads: the product of its IN lists.
const maxIndexRanges = 1024

// wantedOrder is the order in which a LIMIT above a scan wants rows. The scan says whether it gives them so.
type wantedOrder struct {
	keys  []sortKey
	exprs []*expr.Expr // of keys, over the scan's columns
	given bool
}

// indexPath is one way to read a table: the primary key (index 0) or an index.
type indexPath struct {
	scan  plan.IndexScan
	score int
	gives bool // the wanted order
}

// indexScan chooses how to read the table that n scans by the conditions above it and the order that a LIMIT wants; nil reads it whole.
func (ph *physical) indexScan(n *node, cond *expr.Expr) *plan.IndexScan {
	if ph.b.stream || ph.o.off(ruleIndexScans) || !(n.rel.Kind == Table && n.rel.Ordered || n.rel.Kind == MaterializedView) {
		return nil
	}
	rel := n.rel
	ids := ph.storedIDs(n)
	conds := conjuncts(cond)
	want := ph.wanted[n]
	var best *indexPath
	for _, x := range ph.indexesOf(rel) {
		keys, err := ph.b.indexKeys(x, rel, ids)
		if err != nil {
			ph.b.fail(err)
		}
		if ok, err := ph.b.implied(x, rel, ids, conds); err != nil || !ok {
			continue
		}
		if p := ph.pathOver(x, keys, ids, conds, want); p != nil && (best == nil || p.score > best.score) {
			best = p
		}
	}
	if best == nil {
		return nil
	}
	if want != nil {
		want.given = best.gives
	}
	ph.o.fire(ruleIndexScans)
	if rel.Kind == MaterializedView {
		ph.useIndexOfView(&best.scan)
	}
	return &best.scan
}

// indexesOf are the ways into a relation: its primary key, as an index without a number, and its indexes.
func (ph *physical) indexesOf(rel *Relation) []*RelIndex {
	var out []*RelIndex
	if rel.Constraint != "" {
		pk := &RelIndex{Name: rel.Constraint, Unique: true}
		for _, k := range rel.Key {
			pk.Keys = append(pk.Keys, RelIndexKey{Column: k})
		}
		out = append(out, pk)
	}
	for i := range rel.Indexes {
		out = append(out, &rel.Indexes[i])
	}
	return out
}

// storedIDs are the ids of all columns of the relation that n scans, also of those that it does not read.
func (ph *physical) storedIDs(n *node) []int {
	ids := make([]int, len(n.rel.Columns))
	for i, s := range n.stored {
		ids[s] = n.cols[i]
	}
	for i, c := range n.rel.Columns {
		if ids[i] == 0 {
			ids[i] = ph.md.add(c.Name, c.Type)
		}
	}
	return ids
}

// useIndexOfView makes a scan one of the relation that is the index of a view, which is to be pinned with the view.
func (ph *physical) useIndexOfView(s *plan.IndexScan) {
	s.Relation = s.Index
	if !slices.Contains(ph.indexes, s.Relation) {
		ph.indexes = append(ph.indexes, s.Relation)
	}
}

// pathOn is a scan of a whole index.
func (ph *physical) pathOn(x *RelIndex, keys []*expr.Expr, ids []int) *plan.IndexScan {
	s := &plan.IndexScan{Index: x.ID, Name: x.Name, Unique: x.Unique, NullsNotDistinct: x.NullsNotDistinct}
	at := map[int]int{}
	for i, id := range ids {
		at[id] = i
	}
	for i, k := range keys {
		s.Keys = append(s.Keys, plan.IndexKey{Expr: mapCols(k, func(c int) int { return at[c] }), Desc: x.Keys[i].Desc, NullsFirst: x.Keys[i].NullsFirst})
	}
	return s
}

// pathOver matches the conditions with the keys of an index: values of its first keys, then a range of the next one.
func (ph *physical) pathOver(x *RelIndex, keys []*expr.Expr, ids []int, conds []*expr.Expr, want *wantedOrder) *indexPath {
	p := &indexPath{scan: *ph.pathOn(x, keys, ids)}
	single, ranges := true, 1
	for _, k := range keys {
		vals, array := ph.keyValues(k, conds)
		if vals == nil || ranges*len(vals) > maxIndexRanges {
			break
		}
		single = single && len(vals) == 1 && !array
		ranges *= len(vals)
		p.scan.Equal = append(p.scan.Equal, vals)
	}
	eq := len(p.scan.Equal)
	p.score = 10 * eq
	if eq == len(keys) && x.Unique {
		p.score += 1000
	}
	if eq < len(keys) {
		p.score += 3 * ph.keyRange(keys[eq], conds, &p.scan)
	}
	if want != nil && single {
		if back, ok := ph.gives(x, keys, eq, want); ok {
			p.gives, p.scan.Ordered, p.scan.Backward = true, true, back
			p.score += 4
		}
	}
	if p.score == 0 {
		return nil
	}
	if x.ID == 0 {
		p.score++ // the rows lie there
	}
	return p
}

// gives reports whether the index, read forwards or backwards behind its first eq keys, which are fixed, gives the wanted order.
func (ph *physical) gives(x *RelIndex, keys []*expr.Expr, eq int, want *wantedOrder) (backward, ok bool) {
	at, decided := eq, false
	for i, w := range want.keys {
		fixed := false
		for _, k := range keys[:eq] {
			fixed = fixed || sameExpr(strip(k), strip(want.exprs[i]))
		}
		if fixed {
			continue
		}
		if at == len(keys) {
			return backward, decided && x.Unique && ph.neverNull(keys)
		}
		if !sameExpr(strip(keys[at]), strip(want.exprs[i])) {
			return false, false
		}
		k := x.Keys[at]
		back := w.desc != k.Desc
		nulls := k.NullsFirst != back
		if nulls != w.nullsFirst && !ph.neverNull(keys[at:at+1]) || decided && back != backward {
			return false, false
		}
		backward, decided = back, true
		at++
	}
	return backward, true
}

func (ph *physical) neverNull(keys []*expr.Expr) bool {
	for _, k := range keys {
		if k.Kind != expr.Column || !ph.md.cols[k.Col].notNull {
			return false
		}
	}
	return true
}

// comparison reports the value that c compares key with by the operator: key op value.
func (ph *physical) comparison(key, c *expr.Expr, operator, turned string) *expr.Expr {
	if c.Kind != expr.Call || len(c.Args) != 2 || c.Type.OID != types.OIDBool {
		return nil
	}
	for side, name := range [2]string{operator, turned} {
		r, err := ph.b.reg.ResolveOperator(name, c.Args[0].Type, c.Args[1].Type)
		if err != nil || r.Func.ID != c.Func || !sameExpr(strip(c.Args[side]), strip(key)) {
			continue
		}
		if v := ph.keyValue(key, c.Args[1-side]); v != nil {
			return v
		}
	}
	return nil
}

// keyValue is a value that needs no row, as one of the key's type; nil when it is not one.
func (ph *physical) keyValue(key, val *expr.Expr) *expr.Expr {
	if !constantArgs(val) || ph.b.volatileExpr(val) {
		return nil
	}
	t := key.Type
	switch {
	case val.Type.OID == t.OID || textual(val.Type.OID) && textual(t.OID):
		return val
	case t.OID == types.OIDInt8 && (val.Type.OID == types.OIDInt4 || val.Type.OID == types.OIDInt2), t.OID == types.OIDInt4 && val.Type.OID == types.OIDInt2:
		e, err := ph.b.reg.Cast(val, types.T(t.OID), 0)
		if err != nil {
			return nil
		}
		return ph.b.fold(e)
	case val.Kind == expr.Const && !val.Const.Null && val.Type.Kind() == types.KindInt && t.OID == types.OIDInt2 && val.Type.OID == types.OIDInt4 && val.Const.Int == int64(int16(val.Const.Int)):
		d := *val.Const
		d.Type = types.Int2
		return expr.Literal(d)
	}
	return nil
}

// keyValues are the values that the conditions leave to key: one, or those of a list. With array the only one is an array of them.
func (ph *physical) keyValues(key *expr.Expr, conds []*expr.Expr) (vals []*expr.Expr, array bool) {
	for _, c := range conds {
		if v := ph.comparison(key, c, "=", "="); v != nil {
			return []*expr.Expr{v}, false
		}
	}
	for _, c := range conds {
		switch {
		case c.Kind == expr.InList && sameExpr(strip(c.Args[0]), strip(key)):
			for _, a := range c.Args[1:] {
				v := ph.keyValue(key, a)
				if v == nil {
					vals = nil
					break
				}
				vals = append(vals, v)
			}
			if vals != nil {
				return vals, len(vals) > 1
			}
		case c.Kind == expr.AnyArray && sameExpr(strip(c.Args[0]), strip(key)) && constantArgs(c.Args[1]) && !ph.b.volatileExpr(c.Args[1]):
			elem, ok := c.Args[1].Type.Elem()
			if !ok || elem.OID != key.Type.OID && !(textual(elem.OID) && textual(key.Type.OID)) {
				continue
			}
			if r, err := ph.b.reg.ResolveOperator("=", elem, elem); err == nil && r.Func.ID == c.Func {
				return []*expr.Expr{c.Args[1]}, true
			}
		}
	}
	return nil, false
}

// keyRange finds the bounds that the conditions set to key, and returns how many.
func (ph *physical) keyRange(key *expr.Expr, conds []*expr.Expr, s *plan.IndexScan) int {
	for _, c := range conds {
		for _, b := range [...]struct {
			op, turned string
			high, incl bool
		}{{">", "<", false, false}, {">=", "<=", false, true}, {"<", ">", true, false}, {"<=", ">=", true, true}} {
			v := ph.comparison(key, c, b.op, b.turned)
			switch {
			case v == nil:
			case b.high && s.High == nil:
				s.High = &plan.IndexBound{Value: v, Inclusive: b.incl}
			case !b.high && s.Low == nil:
				s.Low = &plan.IndexBound{Value: v, Inclusive: b.incl}
			}
		}
	}
	if s.Low == nil && s.High == nil && textual(key.Type.OID) {
		for _, c := range conds {
			if p, ok := ph.likePrefix(key, c); ok {
				s.Low, s.High = &plan.IndexBound{Value: expr.Literal(types.Datum{Type: types.Text, Str: p}), Inclusive: true}, nil
				if end, ok := afterPrefix(p); ok {
					s.High = &plan.IndexBound{Value: expr.Literal(types.Datum{Type: types.Text, Str: end})}
				}
				break
			}
		}
	}
	n := 0
	if s.Low != nil {
		n++
	}
	if s.High != nil {
		n++
	}
	return n
}

// likePrefix is the beginning that key LIKE 'pattern' asks for.
func (ph *physical) likePrefix(key, c *expr.Expr) (string, bool) {
	if c.Kind != expr.Call || len(c.Args) != 2 || c.Args[1].Kind != expr.Const || c.Args[1].Const.Null || !sameExpr(strip(c.Args[0]), strip(key)) {
		return "", false
	}
	r, err := ph.b.reg.ResolveOperator("~~", types.Text, types.Text)
	if err != nil || r.Func.ID != c.Func {
		return "", false
	}
	prefix := []byte{}
	for p := c.Args[1].Const.Str; p != "" && p[0] != '%' && p[0] != '_'; p = p[1:] {
		if p[0] == '\\' {
			if p = p[1:]; p == "" {
				return "", false
			}
		}
		prefix = append(prefix, p[0])
	}
	return string(prefix), len(prefix) > 0
}

// afterPrefix is the least string above all that begin with p: the last byte that can be is raised by one. Its bytes need not be text.
func afterPrefix(p string) (string, bool) {
	b := []byte(p)
	for len(b) > 0 {
		if b[len(b)-1] < 0xFF {
			b[len(b)-1]++
			return string(b), true
		}
		b = b[:len(b)-1]
	}
	return "", false
}

// wantOrder notes, for a LIMIT, the order of the scan below that would let it stop early. Between them lie filters and projections only.
func (ph *physical) wantOrder(n *node) *wantedOrder {
	if ph.b.stream || n.limit == nil || n.withTies || len(n.group) > 0 || len(n.order) == 0 || ph.o.off(ruleIndexScans) {
		return nil
	}
	w := &wantedOrder{keys: n.order}
	for _, k := range n.order {
		w.exprs = append(w.exprs, ph.md.ref(k.col))
	}
	for x := n.in[0]; ; x = x.in[0] {
		switch x.op {
		case opFilter:
			continue
		case opProject:
			m := map[int]*expr.Expr{}
			for i, c := range x.cols {
				m[c] = x.exprs[i]
			}
			for i, e := range w.exprs {
				w.exprs[i] = substitute(e, m)
			}
			continue
		case opScan:
			ph.wanted[x] = w
			return w
		}
		return nil
	}
}
