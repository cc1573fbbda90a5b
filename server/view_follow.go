package server

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
)

// viewsFollow rewrites, after a change of names, the definitions of the views that use the relations with the given ids, so that each means
// what it meant: its plan, which names nothing, must be the same. A view that cannot be made to follow refuses the change. calls tells that the
// ids and names are those of functions.
func (d *dispatch) viewsFollow(tx *catalog.Tx, before *catalog.Snapshot, ids []uint64, from, to string, calls bool) error {
	for _, v := range before.Objects() {
		if !v.HasQuery() || !slices.ContainsFunc(v.DependsOn, func(id uint64) bool { return slices.Contains(ids, id) }) {
			continue
		}
		was, err := d.meaning(before, v, v.Query)
		if err != nil {
			return err
		}
		now, ok := tx.Snapshot().Get(v.ID)
		if !ok {
			continue
		}
		found := false
		for _, text := range [...]string{now.Query, renamedIn(now.Query, from, to, calls)} {
			if is, err := d.meaning(tx.Snapshot(), now, text); err != nil || is != was {
				continue
			}
			found = true
			if text = d.namedText(tx.Snapshot(), now, text); text != now.Query {
				c := *now
				c.Query = text
				if err := tx.Replace(&c); err != nil {
					return err
				}
			}
			break
		}
		if !found {
			return pgerr.Newf(pgerr.FeatureNotSupported, "cannot rename because %s uses the name in a way that cannot be followed", d.describe(v)).
				WithHint("Drop the view first, and create it again afterwards.")
		}
	}
	return nil
}

// meaning is the plan of a view's query with all names left out.
func (d *dispatch) meaning(snap *catalog.Snapshot, v *catalog.Object, text string) (string, error) {
	q, opts, err := d.queryOfView(snap, v, text)
	if err != nil {
		return "", err
	}
	p, err := planner.PlanQuery(q, opts)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(p.Plan)
	if err != nil {
		return "", err
	}
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return "", err
	}
	data, err = json.Marshal(plan.Nameless(tree))
	return string(data), err
}

// renamedIn replaces a name in a text of SQL wherever it stands as a name: as that of a function where calls says so, else as none of a function
// or a type. A name with a NUL in it is a qualified one: such a new name comes in the place of the old one alone and of that behind its schema.
func renamedIn(text, from, to string, calls bool) string {
	toks, err := sql.Names(text)
	if err != nil {
		return text
	}
	schema, name, qualified := strings.Cut(from, "\x00")
	if !qualified {
		schema, name = "", from
	}
	parts := strings.Split(to, "\x00")
	for i := range parts {
		parts[i] = sql.QuoteIdent(parts[i])
	}
	var b strings.Builder
	at := 0
	for i, t := range toks {
		start := t.Pos
		if t.Qualified && len(parts) > 1 {
			if i == 0 || toks[i-1].Qualified || toks[i-1].Name != schema {
				continue
			}
			start = toks[i-1].Pos
		}
		if t.Name != name || t.Call != calls || t.Type || start < at {
			continue
		}
		b.WriteString(text[at:start])
		b.WriteString(strings.Join(parts, "."))
		at = t.End
	}
	return b.String() + text[at:]
}
