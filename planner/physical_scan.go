package planner

import (
	"slices"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// scan reads the columns wanted and those of the key. A relation without a key is identified by all its columns.
func (ph *physical) scan(n *node) *phys {
	rel := n.rel
	ids, stored := append([]int(nil), n.cols...), append([]int(nil), n.stored...)
	add := func(k int) int {
		for i, s := range stored {
			if s == k {
				return ids[i]
			}
		}
		name, t := rowIDName, types.Int8 // of storedRowID
		if k >= 0 {
			name, t = rel.Columns[k].Name, rel.Columns[k].Type
		}
		id := ph.md.add(name, t)
		ph.md.cols[id].table = n.label
		ph.md.cols[id].notNull = k < 0 || rel.Columns[k].NotNull || name == rowIDName
		ids, stored = append(ids, id), append(stored, k)
		return id
	}
	var key []int
	for _, k := range rel.Key {
		key = append(key, add(k))
	}
	if len(rel.Key) == 0 {
		if n.op == opSource {
			key = append(key, add(storedRowID))
		} else {
			for i := range rel.Columns {
				key = append(key, add(i))
			}
		}
	}
	clock := 0
	if n.op == opSource {
		if i := slices.Index(stored, storedProcTime); i >= 0 {
			clock = ids[i]
			ids, stored = slices.Delete(ids, i, i+1), slices.Delete(stored, i, i+1)
		}
		// The row id is the last column of the node.
		if i := slices.Index(stored, storedRowID); i >= 0 {
			ids = append(append(ids[:i:i], ids[i+1:]...), ids[i])
			stored = append(append(stored[:i:i], stored[i+1:]...), storedRowID)
		}
	}
	kind := plan.KindScan
	if n.op == opSource {
		kind = plan.KindSource
	}
	p := ph.node(kind, ids, key)
	for _, id := range ids {
		p.nn[id] = ph.md.cols[id].notNull
	}
	ph.b.labels.scans[p.n] = n.label
	p.app = rel.AppendOnly || !ph.b.stream
	if n.op == opSource {
		p.n.Source = ph.source(rel, stored)
		if !ph.b.stream {
			ph.endless = true
		}
	} else {
		p.n.Scan = &plan.Scan{Relation: rel.ID, Name: rel.Name, Columns: stored, Virtual: rel.Virtual}
		ph.reads(rel.ID)
		if rel.Schema != "" && rel.Schema != "public" {
			p.n.Scan.Name = rel.Schema + "." + rel.Name
		}
	}
	ph.seal(p)
	if clock != 0 {
		p = ph.procTime(p, rel, clock)
	}
	if n.op == opSource && rel.Watermark == nil {
		return ph.forward(p, rel)
	}
	return p
}

// procTime adds the time at which rows are read. A row could not be taken back with the value that it came with, so rows are only added.
func (ph *physical) procTime(in *phys, rel *Relation, id int) *phys {
	if !in.app {
		ph.b.fail(pgerr.Newf(pgerr.FeatureNotSupported, "PROCTIME() of source \"%s\", whose rows change, is not supported", rel.Name).
			WithHint("Use a time column of the source."))
	}
	p := ph.like(plan.KindProcTime, in, id)
	p.nn[id], p.wm[id] = true, true
	return ph.seal(p)
}

// forward cuts the plan above a source that is read more than once, so that all its readers share one.
func (ph *physical) forward(p *phys, rel *Relation) *phys {
	if !ph.cut || !ph.shared[rel.ID] {
		return p
	}
	return ph.exchange(p, plan.DistForward, nil)
}

// shareSources lets all reads of a source produce the same columns.
func (ph *physical) shareSources(n *node) {
	reads := map[uint64][]*node{}
	n.walk(func(x *node) {
		if x.op == opSource {
			reads[x.rel.ID] = append(reads[x.rel.ID], x)
		}
	})
	ph.shared = map[uint64]bool{}
	for id, nodes := range reads {
		if len(nodes) < 2 {
			continue
		}
		ph.shared[id] = true
		used := map[int]bool{}
		for _, x := range nodes {
			for _, s := range x.stored {
				used[s] = true
			}
		}
		for _, x := range nodes {
			have := map[int]int{}
			for i, s := range x.stored {
				have[s] = x.cols[i]
			}
			x.cols, x.stored = nil, nil
			for _, s := range sortedKeys(used) {
				c, ok := have[s]
				switch {
				case ok:
				case s == storedRowID:
					c = ph.md.add(rowIDName, types.Int8)
				case s == storedProcTime:
					c = ph.md.add(procTimeName, types.Timestamptz)
				default:
					c = ph.md.add(x.rel.Columns[s].Name, x.rel.Columns[s].Type)
					ph.md.cols[c].notNull = x.rel.Columns[s].NotNull
				}
				x.cols, x.stored = append(x.cols, c), append(x.stored, s)
			}
		}
	}
}

func (ph *physical) source(rel *Relation, stored []int) *plan.Source {
	s := plan.Source{}
	if rel.Source != nil {
		s = *rel.Source
	}
	s.Relation, s.Name = rel.ID, rel.Name
	s.Declared, s.Columns, s.RowID = nil, nil, false
	declared := make([]int, len(rel.Columns))
	for i, c := range rel.Columns {
		if declared[i] = len(s.Declared); c.Generated == nil {
			s.Declared = append(s.Declared, types.Column{Name: c.Name, Type: c.Type})
		}
	}
	for _, c := range stored {
		if c == storedRowID {
			s.RowID = true
		} else {
			s.Columns = append(s.Columns, declared[c])
		}
	}
	if s.Columns == nil {
		s.Columns = []int{}
	}
	return &s
}

func (ph *physical) values(n *node) *phys {
	ids := append([]int(nil), n.cols...)
	rows := make([][]*expr.Expr, len(n.rows))
	var key []int
	if len(rows) > 1 {
		key = []int{ph.md.add("?row?", types.Int4)}
		ids = append(ids, key[0])
	}
	p := ph.node(plan.KindValues, ids, key)
	for i, r := range n.rows {
		rows[i] = append([]*expr.Expr(nil), r...)
		if len(key) > 0 {
			rows[i] = append(rows[i], intConst(types.Int4, int64(i)))
		}
	}
	for _, id := range ids {
		p.nn[id] = ph.b.notNullCol(n, id)
	}
	if len(key) > 0 {
		p.nn[key[0]] = true
	}
	p.n.Values = &plan.Values{Rows: rows}
	p.dist, p.app, p.ttl = distSingle, true, true
	return ph.seal(p)
}

func (ph *physical) series(n *node) *phys {
	row := ph.md.add("?row?", types.Int8)
	p := ph.node(plan.KindSeries, append(append([]int(nil), n.cols...), row), []int{row})
	p.nn[row] = true
	p.n.Series = &plan.Series{Func: n.calls[0].Func, Args: n.calls[0].Args, Ordinality: n.ordinal != 0}
	p.dist, p.app, p.ttl = distSingle, true, true
	return ph.seal(p)
}

func (ph *physical) filter(n *node, need map[int]bool) *phys {
	cond := n.cond
	var point []*expr.Expr
	if s := n.in[0]; s.op == opScan && !ph.b.stream && !ph.o.off(rulePointReads) {
		point, cond = ph.point(s, cond)
	}
	var path *plan.IndexScan
	if s := n.in[0]; s.op == opScan {
		if point == nil {
			path = ph.indexScan(s, cond)
		}
		delete(ph.wanted, s)
	}
	in := ph.build(n.in[0], need)
	if point != nil {
		ph.o.fire(rulePointReads)
		in.n.Scan.Point = point
	}
	if path != nil {
		in.n.Scan.Index = path
	}
	var timed []*expr.Expr
	if ph.b.stream {
		timed, cond = splitTimed(cond)
	}
	if cond == nil {
		return ph.temporal(in, timed, need)
	}
	p := ph.like(plan.KindFilter, in)
	p.n.Filter = &plan.Filter{Cond: ph.expr(cheapFirst(cond), in)}
	for _, c := range conjuncts(cond) {
		for id := range need {
			if !p.nn[id] && ph.b.rejectsNull(c, map[int]bool{id: true}) {
				p.nn[id] = true
			}
		}
	}
	return ph.temporal(ph.seal(p), timed, need)
}

// point finds an equality with a value that needs no row for every key column. It returns what is left of the condition.
func (ph *physical) point(s *node, cond *expr.Expr) ([]*expr.Expr, *expr.Expr) {
	if len(s.rel.Key) == 0 || s.rel.Kind != Table && s.rel.Kind != MaterializedView {
		return nil, cond
	}
	rest := conjuncts(cond)
	var point []*expr.Expr
	for _, k := range s.rel.Key {
		found := false
		for i, c := range rest {
			e := ph.pointValue(s, k, c)
			if e == nil {
				continue
			}
			point = append(point, e)
			rest = append(append([]*expr.Expr(nil), rest[:i]...), rest[i+1:]...)
			found = true
			break
		}
		if !found {
			return nil, cond
		}
	}
	return point, and(rest...)
}

func (ph *physical) pointValue(s *node, k int, c *expr.Expr) *expr.Expr {
	if !ph.o.equality(c) {
		return nil
	}
	for side := range 2 {
		col, val := strip(c.Args[side]), c.Args[1-side]
		if col.Kind != expr.Column || !constantArgs(val) || ph.b.volatileExpr(val) {
			continue
		}
		for i, id := range s.cols {
			if id != col.Col || s.stored[i] != k {
				continue
			}
			t := s.rel.Columns[k].Type
			switch {
			case val.Type.OID == t.OID || textual(val.Type.OID) && textual(t.OID):
				return val
			case t.OID == types.OIDInt8 && (val.Type.OID == types.OIDInt4 || val.Type.OID == types.OIDInt2),
				t.OID == types.OIDInt4 && val.Type.OID == types.OIDInt2:
				e, err := ph.b.reg.Cast(val, types.T(t.OID), 0)
				if err != nil {
					return nil
				}
				return ph.b.fold(e)
			case val.Kind == expr.Const && !val.Const.Null && val.Type.Kind() == types.KindInt && t.Kind() == types.KindInt && val.Type.OID == types.OIDInt4 && t.OID == types.OIDInt2 && val.Const.Int == int64(int16(val.Const.Int)):
				d := *val.Const
				d.Type = types.Int2
				return expr.Literal(d)
			}
		}
	}
	return nil
}

// strip removes conversions that keep the value as it is.
func strip(e *expr.Expr) *expr.Expr {
	for e.Kind == expr.Call && len(e.Args) == 1 && e.Func == expr.Retype && textual(e.Type.OID) && textual(e.Args[0].Type.OID) {
		e = e.Args[0]
	}
	return e
}

func textual(oid types.OID) bool { return oid == types.OIDText || oid == types.OIDVarchar }
