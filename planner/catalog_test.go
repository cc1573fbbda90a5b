package planner_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// fakeCatalog holds the relations of a test. Definitions are one per line:
//
//	table t(id int4 pk, k text, v int4 notnull)
//	source s(ts timestamp, v int8) watermark ts - interval '5 seconds'
//	view v as select ..
type fakeCatalog struct {
	rels map[string]*planner.Relation
}

func (c *fakeCatalog) Relation(schema, name string) (*planner.Relation, bool) {
	if schema != "" && schema != "public" {
		return nil, false
	}
	r, ok := c.rels[name]
	return r, ok
}

func (c *fakeCatalog) byID(id uint64) (*planner.Relation, bool) {
	for _, r := range c.rels {
		if r.ID == id {
			return r, true
		}
	}
	return nil, false
}

func (c *fakeCatalog) TypeName(types.OID) (string, bool)     { return "", false }
func (c *fakeCatalog) Type(string, string) (types.OID, bool) { return 0, false }
func (c *fakeCatalog) EnumValues(types.OID) []string         { return nil }

func (c *fakeCatalog) Functions(string, string) []*planner.Function { return nil }

func (c *fakeCatalog) SchemaExists(name string) bool { return name == "public" || name == "pg_catalog" }

func (c *fakeCatalog) define(t testing.TB, line string) {
	t.Helper()
	kind, rest, _ := strings.Cut(line, " ")
	id := uint64(len(c.rels) + 1)
	if kind == "view" {
		name, text, ok := strings.Cut(rest, " as ")
		require.True(t, ok, line)
		c.rels[name] = &planner.Relation{ID: id, Schema: "public", Name: name, Kind: planner.View, Query: parseQuery(t, text)}
		return
	}
	name, rest, _ := strings.Cut(rest, "(")
	end := strings.LastIndexByte(rest, ')')
	cols, mark := rest[:end], rest[end+1:]
	r := &planner.Relation{ID: id, Schema: "public", Name: name}
	for i, def := range strings.Split(cols, ",") {
		f := strings.Fields(def)
		tn, err := sql.ParseTypeName(strings.ReplaceAll(f[1], "_", " "))
		require.NoError(t, err)
		typ, err := planner.ResolveType(tn, c)
		require.NoError(t, err)
		col := planner.RelColumn{Name: f[0], Type: typ}
		for _, w := range f[2:] {
			switch {
			case w == "pk":
				col.NotNull = true
				r.Key, r.Constraint = append(r.Key, i), name+"_pkey"
			case w == "notnull":
				col.NotNull = true
			case strings.HasPrefix(w, "default="):
				col.Default = parseQuery(t, "select "+w[8:])
			case strings.HasPrefix(w, "generated="):
				col.Generated = parseQuery(t, "select "+w[10:])
			}
		}
		r.Columns = append(r.Columns, col)
	}
	switch kind {
	case "table":
		r.Kind = planner.Table
	case "mv":
		r.Kind = planner.MaterializedView
	case "source":
		r.Kind = planner.Source
		r.AppendOnly = true
		r.Source = &plan.Source{Connector: "nexmark", Options: map[string]string{}}
	default:
		t.Fatalf("bad definition %q", line)
	}
	if kind != "source" && len(r.Key) == 0 {
		r.Key = []int{len(r.Columns)}
		r.Columns = append(r.Columns, planner.RelColumn{Name: "_row_id", Type: types.Int8, NotNull: true, Hidden: true})
	}
	if w, ok := strings.CutPrefix(strings.TrimSpace(mark), "watermark "); ok {
		col := strings.Fields(w)[0]
		for i, c := range r.Columns {
			if c.Name == col {
				r.Watermark = &planner.RelWatermark{Column: i, Expr: parseQuery(t, "select "+w)}
			}
		}
	}
	c.rels[name] = r
}

func parseQuery(t testing.TB, text string) *sql.Query {
	t.Helper()
	stmts, err := sql.Parse(text)
	require.NoError(t, err, text)
	require.Len(t, stmts, 1)
	q, ok := stmts[0].(*sql.Query)
	require.True(t, ok, "%T", stmts[0])
	return q
}

const schemaText = `table t(id int4 pk, k text, v int4, d date, n numeric)
table u(id int8 pk, tid int4, x int8 notnull, s varchar(10))
table keyless(a int4, b text)
table arr(id int4 pk, xs int4[], js jsonb)
mv m(k text pk, c int8)
source bid(auction int8, bidder int8, price int8, date_time timestamp) watermark date_time - interval '4 seconds'
source ev(id int8, at timestamptz)
view big as select id, v * 2 as dbl from t where v > 10
table ins(id int4 pk, a int8 default=7, b varchar(3), g int4 generated=id*2)
source auction(id int8 pk, seller int8, category int4)`

func newCatalog(t testing.TB) *fakeCatalog {
	c := &fakeCatalog{rels: map[string]*planner.Relation{}}
	for _, l := range strings.Split(schemaText, "\n") {
		c.define(t, l)
	}
	return c
}

func newOptions(t testing.TB) planner.Options {
	return planner.Options{Catalog: newCatalog(t), Registry: functions.Builtins(), SearchPath: []string{"public"}}
}
