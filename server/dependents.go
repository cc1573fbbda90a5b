package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/types"
)

// user is what depends on a relation or a function: a relation or index that goes with it, a function, or an expression of a table.
type user struct {
	text string
	obj  *catalog.Object
	fn   *catalog.Function
	// Of an expression: its table, and the column whose default it is, the column that it computes, or the name of the check.
	table                 *catalog.Object
	def, generated, check string
	on                    string // of enumFunctions: the type
}

func (u user) same(o user) bool {
	if u.obj != nil && o.obj != nil {
		return u.obj.ID == o.obj.ID
	}
	return u.fn != nil && u.fn == o.fn || u.text == o.text && u.table != nil && o.table != nil && u.table.ID == o.table.ID
}

func (d *dispatch) objectUser(o *catalog.Object) user { return user{text: d.describe(o), obj: o} }

func (d *dispatch) functionUser(f *catalog.Function) user {
	return user{text: "function " + d.describeFunction(f), fn: f}
}

// usersOf lists what depends on u itself.
func (d *dispatch) usersOf(snap *catalog.Snapshot, u user) []user {
	var out []user
	var id uint64
	switch {
	case u.obj != nil:
		id = u.obj.ID
	case u.fn != nil:
		id = uint64(u.fn.OID)
		for _, o := range snap.Objects() {
			out = append(out, d.expressionUsers(snap, o, u.fn)...)
		}
	default:
		return nil
	}
	for _, o := range snap.Objects() {
		if slices.Contains(o.DependsOn, id) {
			out = append(out, d.objectUser(o))
		}
	}
	for _, f := range snap.Functions() {
		if slices.Contains(f.DependsOn, id) || f.RowOf == id {
			out = append(out, d.functionUser(f))
		}
	}
	return out
}

// expressionUsers lists the expressions of a table or index that call f.
func (d *dispatch) expressionUsers(snap *catalog.Snapshot, o *catalog.Object, f *catalog.Function) []user {
	of := o
	calls := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool {
			if !strings.Contains(strings.ToLower(text), strings.ToLower(f.Name)) {
				return false
			}
			q, err := parseExpression(text)
			if err != nil {
				return false
			}
			deps, err := planner.Calls(q, of.Stored(), d.ss.planOptions(snap, nil))
			return err == nil && slices.Contains(deps, uint64(f.OID))
		})
	}
	var out []user
	if o.Kind == catalog.Index && o.Index != nil {
		table, ok := snap.Get(o.Index.Table)
		if !ok {
			return nil
		}
		of = table
		texts := []string{o.Index.Where}
		for _, k := range o.Index.Keys {
			texts = append(texts, k.Expr)
		}
		if calls(texts...) {
			out = append(out, d.objectUser(o))
		}
		return out
	}
	for _, c := range o.Columns {
		switch {
		case c.Dropped:
		case calls(c.Default):
			out = append(out, user{text: "default value for column " + sql.QuoteIdent(c.Name) + " of " + d.describe(o), table: o, def: c.Name})
		case calls(c.Generated):
			out = append(out, user{text: "column " + sql.QuoteIdent(c.Name) + " of " + d.describe(o), table: o, generated: c.Name})
		}
	}
	for _, c := range o.Checks {
		if calls(c.Text) {
			out = append(out, user{text: "constraint " + sql.QuoteIdent(c.Name) + " on " + d.describe(o), table: o, check: c.Name})
		}
	}
	return out
}

// closure lists what depends on the roots, directly or through others, with a line about each.
func (d *dispatch) closure(snap *catalog.Snapshot, roots []user) (extra []user, detail []string) {
	var follow func(u user)
	follow = func(u user) {
		for _, dep := range d.usersOf(snap, u) {
			if slices.ContainsFunc(roots, dep.same) || slices.ContainsFunc(extra, dep.same) ||
				dep.table != nil && slices.ContainsFunc(roots, func(r user) bool { return r.obj != nil && r.obj.ID == dep.table.ID }) {
				continue
			}
			on := u.text
			if dep.fn != nil && u.obj != nil && dep.fn.RowOf == u.obj.ID {
				on = "type" + strings.TrimPrefix(on, string(u.obj.Kind))
			}
			extra, detail = append(extra, dep), append(detail, dep.text+" depends on "+on)
			follow(dep)
		}
	}
	for _, r := range roots {
		follow(r)
	}
	return extra, detail
}

// cascades says what goes besides.
func (d *dispatch) cascades(extra []user) error {
	switch len(extra) {
	case 0:
		return nil
	case 1:
		return d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "drop cascades to %s", extra[0].text)
	}
	e := pgerr.Newf(pgerr.SuccessfulCompletion, "drop cascades to %d other objects", len(extra))
	e.Severity = "NOTICE"
	lines := make([]string, len(extra))
	for i, u := range extra {
		lines[i] = "drop cascades to " + u.text
	}
	return d.ss.notifier.Notice(e.WithDetail("%s", strings.Join(lines, "\n")))
}

// dropUsers removes what is no relation and no index: functions and expressions of tables.
func (d *dispatch) dropUsers(us []user) error {
	for _, u := range us {
		if u.generated != "" {
			return pgerr.Newf(pgerr.FeatureNotSupported, "dropping the generated %s by CASCADE is not supported", u.text).WithHint("Drop the column first.")
		}
	}
	return d.ss.update(func(tx *catalog.Tx) error {
		for _, u := range us {
			if u.fn != nil {
				tx.RemoveFunction(u.fn.OID)
			}
			if u.table == nil {
				continue
			}
			o, ok := tx.Snapshot().Get(u.table.ID)
			if !ok {
				continue
			}
			c := *o
			if u.def != "" {
				c.Columns = slices.Clone(o.Columns)
				c.Columns[c.Column(u.def)].Default = ""
			} else {
				c.Checks = slices.DeleteFunc(slices.Clone(o.Checks), func(k catalog.Check) bool { return k.Name == u.check })
			}
			if err := tx.Replace(&c); err != nil {
				return err
			}
		}
		return nil
	})
}

// objectsOf picks the relations and indexes.
func objectsOf(us []user) []*catalog.Object {
	var out []*catalog.Object
	for _, u := range us {
		if u.obj != nil {
			out = append(out, u.obj)
		}
	}
	return out
}

// errDependents is the refusal to drop something that others need.
func errDependents(what string, detail []string) error {
	return pgerr.Newf(pgerr.DependentObjectsStillExist, "cannot drop %s because other objects depend on it", what).
		WithDetail("%s", strings.Join(detail, "\n")).WithHint("Use DROP ... CASCADE to drop the dependent objects too.")
}

// inSchemas lists what goes with schemas: their relations and functions.
func (d *dispatch) inSchemas(snap *catalog.Snapshot, targets []*catalog.Object, spaces []string) (in []user, detail []string) {
	for _, o := range targets {
		in = append(in, d.objectUser(o))
	}
	for _, f := range snap.Functions() {
		if slices.Contains(spaces, f.Schema) {
			in = append(in, d.functionUser(f))
		}
	}
	for _, u := range in {
		schema := ""
		if u.obj != nil {
			schema = u.obj.Schema
		} else {
			schema = u.fn.Schema
		}
		detail = append(detail, fmt.Sprintf("%s depends on schema %s", u.text, sql.QuoteIdent(schema)))
	}
	return in, detail
}

// enumFunctions lists the functions that take or return an enum type, or name it in their body.
func (d *dispatch) enumFunctions(snap *catalog.Snapshot, enums []*catalog.Enum) []user {
	var out []user
	for _, f := range snap.Functions() {
		for _, e := range enums {
			oid := types.OID(e.OID)
			uses := func(a catalog.FunctionArg) bool { return a.Type.OID == oid || a.Type.OID == types.ArrayOf(oid) }
			if slices.ContainsFunc(f.Parameters(), uses) || uses(catalog.FunctionArg{Type: f.Returns}) || slices.Contains(f.DependsOn, uint64(e.OID)) {
				u := d.functionUser(f)
				u.on = d.describeEnum(e)
				out = append(out, u)
				break
			}
		}
	}
	return out
}
