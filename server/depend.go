package server

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
)

// maxReportedDependents bounds the lines of a message about dependent objects, as in PostgreSQL.
const maxReportedDependents = 100

// thingKind tells the kinds of thing apart.
type thingKind uint8

const (
	thingRelation thingKind = iota
	thingDefault            // of a column
	thingColumn
	thingCheck
	thingFunction
	thingEnum
	thingSchema
)

// thing is what can be dropped, or depends on what is.
type thing struct {
	kind   thingKind
	o      *catalog.Object // the relation, or the table of a default, column or CHECK
	at     int             // the column, or the place of the CHECK
	f      *catalog.Function
	e      *catalog.Enum
	schema catalog.Namespace
}

// order is how PostgreSQL visits what depends on one thing: by age.
func (t *thing) order() (id uint64, kind, at int) {
	switch t.kind {
	case thingFunction:
		return uint64(t.f.OID), 0, 0
	case thingEnum:
		return uint64(t.e.OID), 0, 0
	case thingSchema:
		return uint64(t.schema.OID), 0, 0
	case thingCheck:
		return t.o.ID, 1, t.at
	case thingRelation:
		return t.o.ID, 2, 0
	}
	return t.o.ID, 0, t.at
}

func (t *thing) is(u *thing) bool {
	a, ak, at := t.order()
	b, bk, bt := u.order()
	return t.kind == u.kind && a == b && ak == bk && at == bt
}

// name says what a thing is in messages.
func (d *dispatch) nameOf(t *thing) string {
	switch t.kind {
	case thingFunction:
		return "function " + d.describeFunction(t.f)
	case thingEnum:
		return "type " + d.describeEnum(t.e)
	case thingSchema:
		return "schema " + sql.QuoteIdent(t.schema.Name)
	case thingDefault:
		return "default value for column " + sql.QuoteIdent(t.o.Columns[t.at].Name) + " of " + d.describe(t.o)
	case thingColumn:
		return "column " + sql.QuoteIdent(t.o.Columns[t.at].Name) + " of " + d.describe(t.o)
	case thingCheck:
		return "constraint " + sql.QuoteIdent(t.o.Checks[t.at].Name) + " on " + d.describe(t.o)
	}
	if t.o.Kind == catalog.Index && t.o.Index.Constraint {
		if table, ok := d.ss.snapshot().Get(t.o.Index.Table); ok {
			return "constraint " + sql.QuoteIdent(t.o.Name) + " on " + d.describe(table)
		}
	}
	return d.describe(t.o)
}

// dependent is a thing in a drop: silent ones belong to what is dropped and go without a word.
type dependent struct {
	thing
	target, silent bool
	on             *thing // what it was first found to depend on
	array          bool   // it depends on the enum type's array type, a type of its own as old as the enum type
	onType         string // the type that it depends on, where that belongs to on
}

// dependency finds what depends on things.
type dependency struct {
	d    *dispatch
	snap *catalog.Snapshot
	uses map[string][]uint64 // of expressions, by table and text
	list []*dependent        // dependents in front of what they depend on
	open []*thing
}

// dropThings drops targets and, with cascade, what depends on them; without it, that is an error.
func (d *dispatch) dropThings(targets []thing, cascade bool) error {
	if len(targets) == 0 {
		return nil
	}
	g := &dependency{d: d, snap: d.ss.snapshot(), uses: map[string][]uint64{}}
	for i := range targets {
		g.visit(&dependent{thing: targets[i], target: true})
	}
	slices.Reverse(g.list)
	if err := g.report(targets, cascade); err != nil {
		return err
	}
	return g.remove()
}

func (g *dependency) visit(n *dependent) {
	for _, m := range g.list {
		if m.is(&n.thing) {
			m.target, m.silent = m.target || n.target, m.silent || n.silent
			return
		}
	}
	if slices.ContainsFunc(g.open, func(t *thing) bool { return t.is(&n.thing) }) {
		return
	}
	g.open = append(g.open, &n.thing)
	children := g.dependents(&n.thing)
	slices.SortStableFunc(children, func(a, b *dependent) int {
		x, xk, xa := a.order()
		y, yk, ya := b.order()
		if a.array {
			x = 0
		}
		if b.array {
			y = 0
		}
		return cmp.Or(cmp.Compare(y, x), cmp.Compare(yk, xk), cmp.Compare(ya, xa))
	})
	for _, c := range children {
		c.on = &n.thing
		g.visit(c)
	}
	g.open = g.open[:len(g.open)-1]
	g.list = append(g.list, n)
}

// dependents lists what depends on t directly.
func (g *dependency) dependents(t *thing) []*dependent {
	var out []*dependent
	add := func(t thing, silent bool) { out = append(out, &dependent{thing: t, silent: silent}) }
	switch t.kind {
	case thingSchema:
		for _, o := range g.snap.Objects() {
			if o.Schema == t.schema.Name {
				add(thing{o: o}, o.Kind == catalog.Index || o.Kind == catalog.Sequence && o.Sequence.OwnerTable != 0)
			}
		}
		for _, e := range enumsIn(g.snap, t.schema.Name) {
			add(thing{kind: thingEnum, e: e}, false)
		}
		for _, f := range g.snap.Functions() {
			if f.Schema == t.schema.Name {
				add(thing{kind: thingFunction, f: f}, false)
			}
		}
	case thingRelation:
		for _, v := range g.viewsOn(t.o.ID) {
			add(thing{o: v}, false)
		}
		for _, v := range lookupReaders(g.snap, t.o) {
			add(thing{o: v}, false)
		}
		for _, x := range g.snap.IndexesOf(t.o.ID) {
			add(thing{o: x}, true)
		}
		if t.o.Kind == catalog.Table {
			for _, q := range g.snap.OwnedSequences(t.o.ID) {
				add(thing{o: q}, true)
			}
		}
		if t.o.Kind == catalog.Sequence {
			out = append(out, g.expressionsUsing(t.o.ID)...)
		}
		for _, f := range g.snap.Functions() {
			switch {
			case f.RowOf == t.o.ID:
				n := &dependent{thing: thing{kind: thingFunction, f: f}}
				n.onType = "type" + strings.TrimPrefix(g.d.describe(t.o), kindInMessages(t.o.Kind))
				out = append(out, n)
			case slices.Contains(f.DependsOn, t.o.ID):
				add(thing{kind: thingFunction, f: f}, false)
			}
		}
	case thingFunction:
		for _, v := range g.viewsOn(uint64(t.f.OID)) {
			add(thing{o: v}, false)
		}
		for _, f := range g.snap.Functions() {
			if slices.Contains(f.DependsOn, uint64(t.f.OID)) {
				add(thing{kind: thingFunction, f: f}, false)
			}
		}
		out = append(out, g.expressionsUsing(uint64(t.f.OID))...)
	case thingEnum:
		for _, u := range g.d.enumUsers(g.snap, t.e) {
			if i := u.object.Column(u.column); u.column != "" && i >= 0 {
				n := &dependent{thing: thing{kind: thingColumn, o: u.object, at: i}}
				if strings.HasSuffix(u.on, "[]") {
					n.array, n.onType = true, u.on
				}
				out = append(out, n)
			} else if u.column == "" && strings.HasPrefix(u.on, "type ") {
				add(thing{o: u.object}, false)
			}
		}
		for _, f := range g.snap.Functions() {
			if functionUses(f, t.e.OID) || slices.Contains(f.DependsOn, uint64(t.e.OID)) {
				add(thing{kind: thingFunction, f: f}, false)
			}
		}
	case thingColumn:
		for _, v := range g.d.viewsOnColumn(g.snap, t.o, t.at) {
			add(thing{o: v}, false)
		}
		a := &alteration{d: g.d, old: t.o, o: t.o}
		for _, x := range g.snap.IndexesOf(t.o.ID) {
			if a.indexDepends(x, t.at) {
				add(thing{o: x}, true)
			}
		}
		for i := range t.o.Columns {
			if c := &t.o.Columns[i]; i != t.at && c.Generated != "" && a.names(c.Generated, t.at) {
				add(thing{kind: thingColumn, o: t.o, at: i}, false)
			}
		}
		for _, q := range g.snap.OwnedSequences(t.o.ID) {
			if q.Sequence.OwnerColumn == t.at {
				add(thing{o: q}, true)
			}
		}
		if c := &t.o.Columns[t.at]; c.Default != "" || c.Sequence != 0 {
			add(thing{kind: thingDefault, o: t.o, at: t.at}, true)
		}
	}
	return out
}

// functionUses reports whether a function's signature has the type.
func functionUses(f *catalog.Function, enum uint32) bool {
	is := func(a catalog.FunctionArg) bool {
		elem, _ := a.Type.Elem()
		return uint32(a.Type.OID) == enum || uint32(elem.OID) == enum
	}
	return is(catalog.FunctionArg{Type: f.Returns}) || slices.ContainsFunc(f.Parameters(), is) || slices.ContainsFunc(f.Columns, is)
}

// viewsOn lists the views whose queries name the relation or function themselves, not only through other views.
func (g *dependency) viewsOn(id uint64) []*catalog.Object {
	var out []*catalog.Object
	for _, v := range g.snap.Objects() {
		if !v.HasQuery() || !slices.Contains(v.DependsOn, id) {
			continue
		}
		through := slices.ContainsFunc(v.DependsOn, func(dep uint64) bool {
			o, ok := g.snap.Get(dep)
			return ok && dep != id && o.Kind == catalog.View && slices.Contains(o.DependsOn, id)
		})
		if !through || g.named(v, id) {
			out = append(out, v)
		}
	}
	return out
}

// lookupReaders lists the materialized views that read a table by an index of it.
func lookupReaders(snap *catalog.Snapshot, x *catalog.Object) []*catalog.Object {
	if x.Kind != catalog.Index || x.Plan != nil {
		return nil
	}
	var out []*catalog.Object
	for _, v := range snap.Objects() {
		if v.Kind != catalog.MaterializedView && v.Kind != catalog.Sink || !slices.Contains(v.DependsOn, x.Index.Table) {
			continue
		}
		if spec, err := jobSpec(v); err == nil && spec.Plan.LooksUp(x.ID) {
			out = append(out, v)
		}
	}
	return out
}

// indexesAreFree refuses to drop indexes by which views that stay read their tables.
func (d *dispatch) indexesAreFree(objs []*catalog.Object) error {
	for _, x := range objs {
		for _, v := range lookupReaders(d.ss.snapshot(), x) {
			if !slices.ContainsFunc(objs, func(o *catalog.Object) bool { return o.ID == v.ID }) {
				return pgerr.Newf(pgerr.DependentObjectsStillExist, "cannot drop %s because other objects depend on it", d.describe(x)).
					WithDetail("%s depends on %s", d.describe(v), d.describe(x)).WithHint("Drop the materialized view first; it is planned anew when it is made again.")
			}
		}
	}
	return nil
}

// named reports whether a view's text names the relation.
func (g *dependency) named(v *catalog.Object, id uint64) bool {
	stmts, err := sql.Parse(v.Query)
	if err != nil || len(stmts) != 1 {
		return true
	}
	q, ok := stmts[0].(*sql.Query)
	if !ok {
		return true
	}
	for name := range q.Relations {
		schema, rel, ok := strings.Cut(name, ".")
		if !ok {
			schema, rel = "", name
		}
		if o, ok := g.snap.Resolve(schema, rel, v.SearchPath); ok && o.ID == id {
			return true
		}
	}
	return false
}

// expressionsUsing lists the defaults, generated columns, constraints and indexes whose expressions use a sequence or function.
func (g *dependency) expressionsUsing(id uint64) []*dependent {
	var out []*dependent
	for _, o := range g.snap.Objects() {
		if o.Kind == catalog.Index {
			if t, ok := g.snap.Get(o.Index.Table); ok {
				uses := o.Index.Where != "" && g.expressionUses(t, o.Index.Where, id)
				for _, k := range o.Index.Keys {
					uses = uses || k.Column < 0 && g.expressionUses(t, k.Expr, id)
				}
				if uses {
					out = append(out, &dependent{thing: thing{o: o}})
				}
			}
			continue
		}
		if o.Kind != catalog.Table {
			continue
		}
		for i := range o.Columns {
			switch c := &o.Columns[i]; {
			case c.Dropped:
			case c.Generated != "":
				if g.expressionUses(o, c.Generated, id) {
					out = append(out, &dependent{thing: thing{kind: thingColumn, o: o, at: i}})
				}
			case c.Sequence == id || c.Default != "" && g.expressionUses(o, c.Default, id):
				out = append(out, &dependent{thing: thing{kind: thingDefault, o: o, at: i}})
			}
		}
		for i, ck := range o.Checks {
			if g.expressionUses(o, ck.Text, id) {
				out = append(out, &dependent{thing: thing{kind: thingCheck, o: o, at: i}})
			}
		}
	}
	return out
}

func (g *dependency) expressionUses(table *catalog.Object, text string, id uint64) bool {
	if _, relation := g.snap.Get(id); relation {
		return slices.Contains(sql.RelationIDs(text), id)
	}
	f, ok := g.snap.Function(uint32(id))
	if !ok || !strings.Contains(strings.ToLower(text), strings.ToLower(f.Name)) {
		return false
	}
	key := strconv.FormatUint(table.ID, 10) + " " + text
	ids, ok := g.uses[key]
	if !ok {
		if q, err := parseExpression(text); err == nil {
			if ids, err = planner.Calls(q, table.Stored(), g.d.ss.planOptions(g.snap, nil)); err != nil {
				ids = nil
			}
		}
		g.uses[key] = ids
	}
	return slices.Contains(ids, id)
}

// has reports whether a relation is among what is dropped.
func (g *dependency) has(o *catalog.Object) bool {
	return slices.ContainsFunc(g.list, func(n *dependent) bool { return n.kind == thingRelation && n.o.ID == o.ID })
}

// report says what depends on the targets: as the reason of an error, or in a notice.
func (g *dependency) report(targets []thing, cascade bool) error {
	d := g.d
	for _, n := range g.list {
		if n.kind != thingRelation || n.o.Kind != catalog.Sequence || n.silent {
			continue
		}
		if t, ok := identityOf(g.snap, n.o); ok && !g.has(t) {
			column := "column " + sql.QuoteIdent(t.Columns[n.o.Sequence.OwnerColumn].Name) + " of " + d.describe(t)
			return pgerr.Newf(pgerr.DependentObjectsStillExist, "cannot drop %s because %s requires it", d.nameOf(&n.thing), column).WithHint("You can drop %s instead.", column)
		}
	}
	var detail, lines []string
	for _, n := range g.list {
		if n.target || n.silent || n.kind != thingRelation && n.o != nil && g.has(n.o) || n.o != nil && n.o.Kind == catalog.Index && g.indexGoes(n.o) {
			continue
		}
		name := d.nameOf(&n.thing)
		on := n.onType
		if on == "" {
			on = d.nameOf(n.on)
		}
		detail = append(detail, name+" depends on "+on)
		lines = append(lines, "drop cascades to "+name)
	}
	few := func(lines []string) string {
		if more := len(lines) - maxReportedDependents; more > 0 {
			s := "s"
			if more == 1 {
				s = ""
			}
			lines = append(lines[:maxReportedDependents:maxReportedDependents], fmt.Sprintf("and %d other object%s (see server log for list)", more, s))
		}
		return strings.Join(lines, "\n")
	}
	switch {
	case len(detail) == 0:
		return nil
	case !cascade:
		what := "cannot drop " + d.nameOf(&targets[0]) + " because other objects depend on it"
		if len(targets) > 1 {
			what = "cannot drop desired object(s) because other objects depend on them"
		}
		return pgerr.Newf(pgerr.DependentObjectsStillExist, "%s", what).WithDetail("%s", few(detail)).WithHint("Use DROP ... CASCADE to drop the dependent objects too.")
	case len(lines) == 1:
		return d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "%s", lines[0])
	}
	return d.ss.notifier.Notice(note("drop cascades to %d other objects", len(lines)).WithDetail("%s", few(lines)))
}

// indexGoes reports whether an index goes with its table.
func (g *dependency) indexGoes(x *catalog.Object) bool {
	t, ok := g.snap.Get(x.Index.Table)
	return ok && g.has(t)
}

// remove drops all that was found: relations, then what tables that stay have of it, then functions, types and schemas.
func (g *dependency) remove() error {
	d := g.d
	var objs []*catalog.Object
	changed := map[uint64][]*dependent{}
	var tables []uint64
	for _, n := range g.list {
		switch {
		case n.kind == thingRelation:
			objs = append(objs, n.o)
		case n.o != nil && !g.has(n.o):
			if changed[n.o.ID] == nil {
				tables = append(tables, n.o.ID)
			}
			changed[n.o.ID] = append(changed[n.o.ID], n)
		}
	}
	// What has a younger job depends on older ones, never the other way round.
	slices.SortFunc(objs, func(a, b *catalog.Object) int { return cmp.Compare(b.JobID(), a.JobID()) })
	kept, err := d.retain(objs)
	if err == nil {
		err = d.dropObjects(objs)
	}
	if err != nil {
		return errors.Join(err, d.forgetRetained(kept))
	}
	for _, id := range tables {
		if err := d.dropParts(id, changed[id]); err != nil {
			return err
		}
	}
	return d.ss.update(func(tx *catalog.Tx) error {
		for _, n := range g.list {
			switch n.kind {
			case thingFunction:
				tx.RemoveFunction(n.f.OID)
			case thingEnum:
				tx.RemoveEnum(n.e.OID)
			case thingSchema:
				tx.RemoveNamespace(n.schema.Name)
			}
		}
		return nil
	})
}

// dropParts takes defaults, columns and constraints out of a table that stays.
func (d *dispatch) dropParts(id uint64, parts []*dependent) error {
	old, ok := d.ss.snapshot().Get(id)
	if !ok {
		return nil
	}
	c := *old
	c.Columns, c.Checks = slices.Clone(old.Columns), slices.Clone(old.Checks)
	a := &alteration{d: d, old: old, o: &c}
	var checks []string
	for _, n := range parts {
		switch n.kind {
		case thingDefault:
			c.Columns[n.at].Default, c.Columns[n.at].Sequence = "", 0
		case thingCheck:
			checks = append(checks, old.Checks[n.at].Name)
		case thingColumn:
			a.dropColumn(n.at)
		}
	}
	c.Checks = slices.DeleteFunc(c.Checks, func(k catalog.Check) bool { return slices.Contains(checks, k.Name) })
	return a.store()
}

// viewsOnColumn lists the views that name a column of a table themselves, or hold rows by it.
func (d *dispatch) viewsOnColumn(snap *catalog.Snapshot, table *catalog.Object, column int) []*catalog.Object {
	probe := *table
	probe.Columns = slices.Clone(table.Columns)
	forget(&probe, column)
	trial := snap.With(&probe)
	var readers, out []*catalog.Object
	if slices.Contains(table.Key, column) {
		readers = readersOf(snap, table, []int{column})
	}
	for _, v := range snap.Objects() {
		if slices.Contains(readers, v) {
			out = append(out, v)
			continue
		}
		if v.HasQuery() && slices.Contains(v.DependsOn, table.ID) && d.viewStands(trial, v) != nil {
			out = append(out, v)
		}
	}
	return out
}

// forget makes a column one that was dropped.
func forget(o *catalog.Object, column int) {
	c := &o.Columns[column]
	c.Name, c.Hidden, c.Dropped, c.NotNull = "", true, true, false
	c.Default, c.Generated, c.Identity, c.Sequence, c.Comment = "", "", "", 0, ""
}
