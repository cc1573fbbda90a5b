package streamdb_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// kind is the type of a generated expression.
type kind string

const (
	kInt  kind = "int"
	kText kind = "text"
	kNum  kind = "numeric"
	kTime kind = "timestamp"
	kBool kind = "boolean"
)

var kinds = []kind{kInt, kInt, kInt, kText, kText, kNum, kTime, kBool}

type genColumn struct {
	name string
	kind kind
}

type genTable struct {
	name    string
	columns []genColumn
	key     int // columns of the primary key, the first ones; 0: none
}

// genView is a query that is asked directly and kept as a materialized view.
type genView struct {
	name    string
	columns []genColumn
	query   string
	native  bool // has words that PostgreSQL does not know
	reads   []string
}

// program is a generated schema, views over it and a sequence of changes.
type program struct {
	tables  []genTable
	views   []*genView
	changes []string
}

// generator makes programs whose answers are functions of the rows alone: no order of rows, no clock and no error decides anything.
type generator struct {
	r      *rand.Rand
	tables []genTable
	views  []*genView // those that queries may read
	depth  int
	n      int // aliases handed out
	native bool
	reads  []string
	ctes   []genTable
}

// newProgram returns the program of a seed.
func newProgram(seed uint64) *program {
	g := &generator{r: rand.New(rand.NewPCG(seed, 0x6d6f7270))}
	p := &program{}
	for i := range 2 + g.r.IntN(2) {
		t := genTable{name: fmt.Sprintf("t%d", i)}
		for c := range 2 + g.r.IntN(4) {
			k := kinds[g.r.IntN(len(kinds))]
			if c == 0 {
				k = kInt
			}
			t.columns = append(t.columns, genColumn{fmt.Sprintf("%c", 'a'+c), k})
		}
		if g.r.IntN(3) > 0 {
			t.key = 1 + g.r.IntN(2)
		}
		g.tables = append(g.tables, t)
	}
	p.tables = g.tables
	for i := range 3 + g.r.IntN(4) {
		g.n, g.native, g.reads = 0, false, nil
		q, cols := g.query(nil, nil)
		v := &genView{name: fmt.Sprintf("v%d", i), query: q, native: g.native, reads: g.reads}
		for c, k := range cols {
			v.columns = append(v.columns, genColumn{fmt.Sprintf("c%d", c+1), k})
		}
		p.views = append(p.views, v)
		g.views = append(g.views, v)
	}
	for range 8 + g.r.IntN(20) {
		c := g.change()
		if g.r.IntN(6) == 0 {
			c = "BEGIN; " + c + "; " + g.change() + "; " + g.one("COMMIT", "COMMIT", "ROLLBACK")
		}
		p.changes = append(p.changes, c)
	}
	return p
}

func (g *generator) one(texts ...string) string { return texts[g.r.IntN(len(texts))] }

// create returns the statement that makes the table.
func (t *genTable) create() string {
	var cols []string
	for _, c := range t.columns {
		cols = append(cols, c.name+" "+string(c.kind))
	}
	if t.key > 0 {
		var key []string
		for _, c := range t.columns[:t.key] {
			key = append(key, c.name)
		}
		cols = append(cols, "PRIMARY KEY ("+strings.Join(key, ", ")+")")
	}
	return "CREATE TABLE " + t.name + " (" + strings.Join(cols, ", ") + ")"
}

// create returns the statement that makes the view.
func (v *genView) create() string {
	var cols []string
	for _, c := range v.columns {
		cols = append(cols, c.name)
	}
	return "CREATE MATERIALIZED VIEW " + v.name + " (" + strings.Join(cols, ", ") + ") AS " + v.query
}

// literal is a value out of few, so that values meet.
func (g *generator) literal(k kind, null bool) string {
	if null && g.r.IntN(6) == 0 {
		return "NULL::" + string(k)
	}
	switch k {
	case kInt:
		return fmt.Sprint(g.r.IntN(9) - 1)
	case kText:
		return g.one("'a'", "'b'", "'ab'", "''", "'B'", "'abc'")
	case kNum:
		return g.one("0.5", "1.25", "-3.0", "10.00", "0.0", "7.1")
	case kTime:
		return fmt.Sprintf("timestamp '2024-02-29 %02d:%02d:00'", g.r.IntN(3)+21, g.r.IntN(4)*15)
	}
	return g.one("true", "false")
}

func (g *generator) row(t *genTable) string {
	var vs []string
	for i, c := range t.columns {
		vs = append(vs, g.literal(c.kind, i >= t.key))
	}
	return "(" + strings.Join(vs, ", ") + ")"
}

// change returns a statement that changes a table, or a block of them.
func (g *generator) change() string {
	t := &g.tables[g.r.IntN(len(g.tables))]
	own := t.columns
	rows := func(n int) string {
		seen, out := map[string]bool{}, []string{}
		for range n {
			row := g.row(t)
			id := row
			if t.key > 0 {
				id = strings.Join(strings.SplitN(row, ",", t.key+1)[:t.key], ",")
			}
			if !seen[id] || t.key == 0 {
				seen[id] = true
				out = append(out, row)
			}
		}
		return strings.Join(out, ", ")
	}
	var key, set []string
	for i, c := range own {
		if i < t.key {
			key = append(key, c.name)
		} else {
			set = append(set, c.name+" = excluded."+c.name)
		}
	}
	conflict := ""
	if t.key > 0 {
		conflict = " ON CONFLICT DO NOTHING"
		if len(set) > 0 && g.r.IntN(2) == 0 {
			conflict = " ON CONFLICT (" + strings.Join(key, ", ") + ") DO UPDATE SET " + strings.Join(set, ", ")
		}
	}
	cond := func() string { return g.simple(own, "") }
	switch g.r.IntN(13) {
	case 12:
		return "CREATE INDEX ON " + t.name + " (" + own[g.r.IntN(len(own))].name + g.one("", " DESC") + ")"
	case 0, 1, 2, 3, 4:
		return "INSERT INTO " + t.name + " VALUES " + rows(1+g.r.IntN(4)) + conflict
	case 5, 6, 7:
		if t.key == len(own) {
			break
		}
		c := own[t.key+g.r.IntN(len(own)-t.key)]
		value := g.literal(c.kind, true)
		if c.kind == kInt && g.r.IntN(2) == 0 {
			value = "(" + c.name + " + 1) % 9"
		}
		return "UPDATE " + t.name + " SET " + c.name + " = " + value + " WHERE " + cond()
	case 8, 9:
		return "DELETE FROM " + t.name + " WHERE " + cond()
	case 10:
		if g.r.IntN(3) == 0 {
			return "TRUNCATE " + t.name
		}
		if t.key == 0 {
			return "INSERT INTO " + t.name + " SELECT * FROM " + t.name + " WHERE " + cond()
		}
	}
	return "INSERT INTO " + t.name + " VALUES " + rows(7) + conflict
}

// simple is a condition without subqueries over columns, with a prefix to their names.
func (g *generator) simple(cols []genColumn, prefix string) string {
	c := cols[g.r.IntN(len(cols))]
	n := prefix + c.name
	switch g.r.IntN(5) {
	case 0:
		return n + g.one(" IS NULL", " IS NOT NULL")
	case 1:
		return n + " IN (" + g.literal(c.kind, false) + ", " + g.literal(c.kind, true) + ")"
	}
	return n + " " + g.one("=", "<>", "<", ">=") + " " + g.literal(c.kind, false)
}

// column returns a column of a kind, or "".
func (g *generator) column(cols []genColumn, k kind) string {
	var of []string
	for _, c := range cols {
		if c.kind == k {
			of = append(of, c.name)
		}
	}
	if len(of) == 0 {
		return ""
	}
	return of[g.r.IntN(len(of))]
}

// expr returns an expression of a kind over columns.
func (g *generator) expr(cols []genColumn, k kind, deep int) string {
	c := g.column(cols, k)
	if c == "" {
		c = g.literal(k, true)
	}
	if deep <= 0 || g.r.IntN(2) == 0 {
		return c
	}
	sub := func(k kind) string { return g.expr(cols, k, deep-1) }
	switch g.r.IntN(6) {
	case 0:
		return "coalesce(" + c + ", " + sub(k) + ")"
	case 1:
		return "CASE WHEN " + g.cond(cols, nil, deep-1) + " THEN " + sub(k) + " ELSE " + sub(k) + " END"
	case 2:
		return "nullif(" + c + ", " + sub(k) + ")"
	}
	switch k {
	case kInt:
		return g.one("("+c+" + "+sub(kInt)+")", "("+c+" - 1)", "("+c+" % 3)", "length("+sub(kText)+")", "abs("+c+")", "extract(hour FROM "+sub(kTime)+")::int", "greatest("+c+", 2)")
	case kText:
		return g.one("("+c+" || "+sub(kText)+")", "upper("+c+")", "substr("+c+", 1, 1)", "("+sub(kInt)+")::text", "concat("+c+", "+sub(kInt)+")")
	case kNum:
		return g.one("("+c+" * 2)", "("+c+" + "+sub(kInt)+")", "("+sub(kInt)+")::numeric", "round("+c+", 1)")
	case kTime:
		return g.one("("+c+" + interval '15 minutes')", "date_trunc('hour', "+c+")")
	}
	return "(" + g.cond(cols, nil, deep-1) + ")"
}

// cond returns a condition; outer are columns of the queries around.
func (g *generator) cond(cols, outer []genColumn, deep int) string {
	c := cols[g.r.IntN(len(cols))]
	all := append(append([]genColumn(nil), cols...), outer...)
	op := g.one("=", "<>", "<", "<=", ">", ">=")
	switch k := g.r.IntN(14); {
	case k < 3:
		return c.name + " " + op + " " + g.expr(all, c.kind, deep)
	case k == 3:
		return c.name + g.one(" IS NOT DISTINCT FROM ", " IS DISTINCT FROM ") + g.expr(all, c.kind, deep)
	case k == 4 && deep > 0:
		return "(" + g.cond(cols, outer, deep-1) + g.one(" OR ", " AND ") + g.cond(cols, outer, deep-1) + ")"
	case k == 5 && deep > 0:
		return "NOT (" + g.cond(cols, outer, deep-1) + ")"
	case k == 6:
		return c.name + " BETWEEN " + g.literal(c.kind, false) + " AND " + g.expr(all, c.kind, deep)
	case k == 7 && g.depth < 2:
		q, _ := g.query(all, nil)
		return g.one("", "NOT ") + "EXISTS (" + q + ")"
	case k == 8 && g.depth < 2:
		q, _ := g.query(all, []kind{c.kind})
		return c.name + g.one(" IN (", " NOT IN (") + q + ")"
	case k == 9 && g.depth < 2:
		q, _ := g.query(all, []kind{c.kind})
		return c.name + " " + op + g.one(" ANY (", " ALL (") + q + ")"
	case k == 10 && g.depth < 2:
		return c.name + " " + op + " " + g.scalar(all, c.kind)
	case k == 11:
		if t := g.column(cols, kText); t != "" {
			return t + g.one(" LIKE 'a%'", " LIKE '%b'", " ~ '^[a-b]+$'", " NOT LIKE '_'")
		}
	}
	return g.simple(cols, "")
}

// scalar is a subquery of one row and one column.
func (g *generator) scalar(outer []genColumn, k kind) string {
	g.depth++
	defer func() { g.depth-- }()
	from, cols := g.from(outer)
	where := g.where(cols, outer)
	return "(SELECT " + g.aggregate(cols, k) + " FROM " + from + where + ")"
}

func (g *generator) where(cols, outer []genColumn) string {
	if g.r.IntN(3) == 0 {
		return ""
	}
	w := " WHERE " + g.cond(cols, outer, 2)
	if g.depth == 1 && g.r.IntN(4) == 0 {
		c := cols[g.r.IntN(len(cols))]
		switch {
		case c.kind == kBool:
		case g.r.IntN(3) == 0:
			w = " WHERE " + g.expr(cols, c.kind, 1) + " BETWEEN " + g.scalar(nil, c.kind) + " AND " + g.scalar(nil, c.kind)
		default:
			w = " WHERE " + c.name + g.one(" < ", " <= ", " > ", " >= ") + g.scalar(nil, c.kind)
		}
	}
	if g.r.IntN(3) == 0 {
		w += " AND " + g.cond(cols, outer, 1)
	}
	return w
}

// aggregate is an aggregate of a kind.
func (g *generator) aggregate(cols []genColumn, k kind) string {
	filter := ""
	if g.r.IntN(4) == 0 {
		filter = " FILTER (WHERE " + g.simple(cols, "") + ")"
	}
	arg := func(k kind) string { return g.expr(cols, k, 1) }
	switch k {
	case kInt:
		return "(" + g.one("count(*)", "count("+arg(kText)+")", "count(DISTINCT "+arg(kInt)+")", "sum("+arg(kInt)+")", "max("+arg(kInt)+")", "min("+arg(kInt)+")", "bit_or("+arg(kInt)+")") + filter + ")::int"
	case kText:
		a := arg(kText)
		return g.one("max("+a+")", "min("+a+")", "string_agg("+a+", ',' ORDER BY "+a+")", "string_agg(DISTINCT "+a+", '')") + filter
	case kNum:
		return g.one("sum("+arg(kNum)+")", "avg("+arg(kInt)+")", "max("+arg(kNum)+")", "avg("+arg(kNum)+")", "var_pop("+arg(kInt)+")", "stddev("+arg(kNum)+")") + filter
	case kTime:
		return g.one("max(", "min(") + arg(kTime) + ")" + filter
	}
	return g.one("bool_and(", "bool_or(", "every(") + arg(kBool) + ")" + filter
}

// relation is an item of FROM under a fresh alias.
func (g *generator) relation(outer []genColumn) (string, []genColumn) {
	g.n++
	a := fmt.Sprintf("r%d", g.n)
	under := func(cols []genColumn) []genColumn {
		var out []genColumn
		for _, c := range cols {
			out = append(out, genColumn{a + "." + c.name, c.kind})
		}
		return out
	}
	switch k := g.r.IntN(12); {
	case k < 2 && len(g.views) > 0:
		v := g.views[g.r.IntN(len(g.views))]
		g.reads = append(g.reads, v.name)
		g.native = g.native || v.native
		return v.name + " " + a, under(v.columns)
	case k == 2 && g.depth < 2:
		q, ks := g.query(nil, nil)
		var names []string
		var cols []genColumn
		for i, k := range ks {
			names = append(names, fmt.Sprintf("x%d", i))
			cols = append(cols, genColumn{names[i], k})
		}
		return "(" + q + ") " + a + " (" + strings.Join(names, ", ") + ")", under(cols)
	case k == 3:
		return "(VALUES (1, 'a'), (2, NULL), (3, 'b')) " + a + " (x, y)", under([]genColumn{{"x", kInt}, {"y", kText}})
	case k == 4 && len(g.ctes) > 0:
		t := g.ctes[g.r.IntN(len(g.ctes))]
		return t.name + " " + a, under(t.columns)
	case k == 5:
		t := g.tables[g.r.IntN(len(g.tables))]
		if at := g.column(t.columns, kTime); at != "" {
			g.native = true
			fn := g.one("TUMBLE("+t.name+", "+at+", interval '30 minutes')", "HOP("+t.name+", "+at+", interval '15 minutes', interval '30 minutes')")
			return fn + " " + a, under(append(append([]genColumn(nil), t.columns...), genColumn{"window_start", kTime}, genColumn{"window_end", kTime}))
		}
	}
	t := g.tables[g.r.IntN(len(g.tables))]
	return t.name + " " + a, under(t.columns)
}

// from is a FROM list with joins.
func (g *generator) from(outer []genColumn) (string, []genColumn) {
	text, cols := g.relation(outer)
	for g.r.IntN(5) < 2 && strings.Count(text, "JOIN") < 2 && g.depth < 3 {
		if g.r.IntN(6) == 0 && g.depth < 2 {
			g.n++
			a := fmt.Sprintf("l%d", g.n)
			k := kinds[g.r.IntN(len(kinds))]
			g.depth++
			q, _ := g.query(append(append([]genColumn(nil), cols...), outer...), []kind{k})
			g.depth--
			text += g.one(" CROSS JOIN LATERAL (", " LEFT JOIN LATERAL (") + q + ") " + a + " (z)"
			if strings.Contains(text[strings.LastIndex(text, "JOIN LATERAL (")-6:], "LEFT JOIN LATERAL") {
				text += " ON true"
			}
			cols = append(cols, genColumn{a + ".z", k})
			continue
		}
		r, rc := g.relation(outer)
		join := g.one(" JOIN ", " JOIN ", " LEFT JOIN ", " RIGHT JOIN ", " FULL JOIN ")
		k := rc[g.r.IntN(len(rc))]
		l := g.column(cols, k.kind)
		on := ""
		switch {
		case l == "":
			join, on = " LEFT JOIN ", g.simple(rc, "")
		case join == " FULL JOIN ":
			on = l + " = " + k.name
		case g.r.IntN(5) == 0:
			on = g.expr(cols, k.kind, 2) + " = " + g.expr(rc, k.kind, 2)
		case g.r.IntN(4) == 0:
			on = g.between(l, cols, rc, k)
		default:
			on = l + " = " + k.name
			if g.r.IntN(3) == 0 {
				on += " AND " + g.cond(append(append([]genColumn(nil), cols...), rc...), nil, 0)
			}
		}
		text += join + r + " ON " + on
		cols = append(cols, rc...)
	}
	return text, cols
}

// between is a join condition of comparisons between column l of cols and column k of rc, of one kind.
func (g *generator) between(l string, cols, rc []genColumn, k genColumn) string {
	shift := func(by string) string {
		switch k.kind {
		case kInt, kNum:
			return k.name + by + g.one("1", "2")
		case kTime:
			return k.name + by + g.one("interval '15 minutes'", "interval '1 hour'", "interval '1 month'")
		}
		return k.name
	}
	low, high := shift(" - "), shift(" + ")
	switch g.r.IntN(4) {
	case 0:
		low = g.column(rc, k.kind)
	case 1:
		return g.column(cols, k.kind) + g.one(" < ", " <= ", " > ", " >= ") + g.one(k.name, low, high)
	case 2: // spans that overlap
		return l + g.one(" <= ", " < ") + g.column(rc, k.kind) + " AND " + g.column(cols, k.kind) + g.one(" >= ", " > ") + k.name
	}
	on := l + g.one(" >= ", " > ") + low + " AND " + l + g.one(" <= ", " < ") + high
	if g.r.IntN(3) > 0 {
		return on
	}
	for _, c := range rc {
		if m := g.column(cols, c.kind); m != "" {
			return on + " AND " + m + g.one(" = ", " <> ") + c.name
		}
	}
	return on
}

// query returns a query and the kinds of its columns; want fixes them.
func (g *generator) query(outer []genColumn, want []kind) (string, []kind) {
	g.depth++
	defer func() { g.depth-- }()
	if g.depth == 1 && g.r.IntN(6) == 0 {
		q, ks := g.query(nil, nil)
		c := genTable{name: "w"}
		var names []string
		for i, k := range ks {
			names = append(names, fmt.Sprintf("y%d", i))
			c.columns = append(c.columns, genColumn{names[i], k})
		}
		g.ctes = append(g.ctes, c)
		defer func() { g.ctes = nil }()
		from, cols := g.relation(outer)
		text := "w"
		all := append(append([]genColumn(nil), c.columns...), cols...)
		for i := range all[:len(c.columns)] {
			all[i].name = "w." + all[i].name
		}
		sel, kinds := g.selectList(all, want)
		return "WITH w (" + strings.Join(names, ", ") + ") AS (" + q + ") SELECT " + sel + " FROM " + text + ", " + from + g.where(all, nil), kinds
	}
	if g.depth == 1 && want == nil && g.r.IntN(10) == 0 {
		return g.recursive()
	}
	from, cols := g.from(outer)
	where := g.where(cols, outer)
	switch k := g.r.IntN(12); {
	case k < 3:
		return g.grouped(from, where, cols, want)
	case k == 3:
		sel, ks := g.selectList(cols, want)
		return "SELECT DISTINCT " + sel + " FROM " + from + where, ks
	case k == 4 && g.depth < 3:
		sel, ks := g.selectList(cols, want)
		q, _ := g.query(outer, ks)
		return "(SELECT " + sel + " FROM " + from + where + ")" + g.one(" UNION ", " UNION ALL ", " EXCEPT ", " INTERSECT ", " EXCEPT ALL ", " INTERSECT ALL ") + "(" + q + ")", ks
	case k == 5 && want == nil:
		return g.over(from, where, cols)
	case k == 6:
		sel, ks := g.selectList(cols, want)
		var order []string
		for i := range ks {
			order = append(order, fmt.Sprint(i+1)+g.one("", " DESC", " NULLS FIRST"))
		}
		tail := fmt.Sprintf(" LIMIT %d", 1+g.r.IntN(4))
		if g.r.IntN(3) == 0 {
			tail += fmt.Sprintf(" OFFSET %d", g.r.IntN(3))
		}
		if g.r.IntN(5) == 0 {
			tail = fmt.Sprintf(" FETCH FIRST %d ROWS WITH TIES", 1+g.r.IntN(3))
		}
		return "SELECT " + sel + " FROM " + from + where + " ORDER BY " + strings.Join(order, ", ") + tail, ks
	case k == 7 && want == nil:
		on := cols[g.r.IntN(len(cols))]
		var order, sel []string
		var ks []kind
		order = append(order, on.name)
		for _, c := range cols {
			if c.name != on.name {
				order = append(order, c.name+g.one("", " DESC"))
			}
			sel, ks = append(sel, c.name), append(ks, c.kind)
		}
		return "SELECT DISTINCT ON (" + on.name + ") " + strings.Join(sel, ", ") + " FROM " + from + where + " ORDER BY " + strings.Join(order, ", "), ks
	case k == 8 && want == nil && g.depth < 2:
		sel, ks := g.selectList(cols, nil)
		k := kinds[g.r.IntN(len(kinds))]
		return "SELECT " + sel + ", " + g.scalar(cols, k) + " FROM " + from + where, append(ks, k)
	}
	sel, ks := g.selectList(cols, want)
	return "SELECT " + sel + " FROM " + from + where, ks
}

// recursive is a recursive query over the first columns of tables, which are integers.
func (g *generator) recursive() (string, []kind) {
	edges, starts := g.tables[g.r.IntN(len(g.tables))], g.tables[g.r.IntN(len(g.tables))]
	to := "(e.a * 2 + 1) % 7"
	if c := g.column(edges.columns[1:], kInt); c != "" {
		to = "e." + c
	}
	if g.r.IntN(3) == 0 {
		to += " + 1"
	}
	where := ""
	if g.r.IntN(2) == 0 {
		where = " AND " + g.simple(edges.columns, "e.")
	}
	join := g.one(" JOIN ", " JOIN ", " LEFT JOIN ") + edges.name + " e ON e.a = r.n" + where
	tail := ""
	if strings.HasPrefix(join, " LEFT") {
		tail = " AND r.n IS NOT NULL"
	}
	if g.r.IntN(4) == 0 {
		tail += " AND EXISTS (SELECT 1 FROM " + starts.name + " x WHERE x.a <> r.n)"
	}
	if g.r.IntN(2) == 0 {
		return "WITH RECURSIVE r (n) AS (SELECT a FROM " + starts.name + " UNION SELECT " + to + " FROM r" + join + " WHERE r.n < 20" + tail + ") SELECT n FROM r", []kind{kInt}
	}
	union := g.one(" UNION ", " UNION ALL ")
	q := "WITH RECURSIVE r (n, q) AS (SELECT a, 0 FROM " + starts.name + union + "SELECT " + to + ", q + 1 FROM r" + join + " WHERE q < 3" + tail + ") SELECT n, q"
	if g.r.IntN(2) == 0 {
		return q + " FROM r", []kind{kInt, kInt}
	}
	return q + ", count(*)::int FROM r GROUP BY n, q", []kind{kInt, kInt, kInt}
}

func (g *generator) selectList(cols []genColumn, want []kind) (string, []kind) {
	if want == nil {
		for range 1 + g.r.IntN(3) {
			want = append(want, kinds[g.r.IntN(len(kinds))])
		}
	}
	var sel []string
	for _, k := range want {
		sel = append(sel, g.expr(cols, k, 2))
	}
	return strings.Join(sel, ", "), want
}

// grouped is an aggregation; with GROUPING SETS, HAVING, or over all rows.
func (g *generator) grouped(from, where string, cols []genColumn, want []kind) (string, []kind) {
	free := want == nil
	if free {
		for range 1 + g.r.IntN(3) {
			want = append(want, kinds[g.r.IntN(len(kinds))])
		}
	}
	var keys, sel []string
	var ks []kind
	for range g.r.IntN(3) {
		c := cols[g.r.IntN(len(cols))]
		keys = append(keys, c.name)
		if free {
			sel, ks = append(sel, c.name), append(ks, c.kind)
		}
	}
	for _, k := range want {
		sel, ks = append(sel, g.aggregate(cols, k)), append(ks, k)
	}
	text := "SELECT " + strings.Join(sel, ", ") + " FROM " + from + where
	switch {
	case len(keys) == 0:
	case len(keys) == 2 && g.r.IntN(4) == 0:
		text += " GROUP BY " + g.one("ROLLUP", "CUBE") + " (" + strings.Join(keys, ", ") + ")"
	default:
		text += " GROUP BY " + strings.Join(keys, ", ")
	}
	if g.r.IntN(4) == 0 {
		text += " HAVING " + g.one("count(*) > 1", "count("+cols[g.r.IntN(len(cols))].name+") < 3", "max("+g.expr(cols, kInt, 0)+") > 1")
	}
	return text, ks
}

// valueFrame is the frame for a value of one of its rows: where a row is not in its own frame PostgreSQL 15 takes that with EXCLUDE from other rows
// than those that aggregates see.
func valueFrame(frame string) string {
	for _, without := range []string{"BETWEEN 1 FOLLOWING", "BETWEEN 3 FOLLOWING", "AND 2 PRECEDING", "AND 1 PRECEDING"} {
		if strings.Contains(frame, without) {
			frame, _, _ = strings.Cut(frame, " EXCLUDE")
		}
	}
	return frame
}

// frame is a window frame, "" for the usual one.
func (g *generator) frame() string {
	if g.r.IntN(5) == 0 {
		return ""
	}
	ends := []string{"UNBOUNDED PRECEDING", "2 PRECEDING", "1 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "3 FOLLOWING", "UNBOUNDED FOLLOWING"}
	from := g.r.IntN(len(ends) - 1)
	to := from + g.r.IntN(len(ends)-from)
	if from == 0 {
		to = 1 + g.r.IntN(len(ends)-1)
	}
	if from == 1 && to == 1 || ends[from] == "1 FOLLOWING" && g.r.IntN(2) == 0 {
		to = len(ends) - 1
	}
	return g.one(" ROWS", " GROUPS") + " BETWEEN " + ends[from] + " AND " + ends[to] + g.one("", "", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES")
}

// over is a query with window functions whose order has no ties that could be told apart.
func (g *generator) over(from, where string, cols []genColumn) (string, []kind) {
	part := cols[g.r.IntN(len(cols))]
	var order, sel []string
	var ks []kind
	for _, i := range g.r.Perm(len(cols)) {
		order = append(order, cols[i].name+g.one("", " DESC", " NULLS FIRST"))
	}
	for _, c := range cols {
		sel, ks = append(sel, c.name), append(ks, c.kind)
	}
	by := "PARTITION BY " + part.name + " "
	if g.r.IntN(4) == 0 {
		by = ""
	}
	full := " OVER (" + by + "ORDER BY " + strings.Join(order, ", ")
	c := cols[g.r.IntN(len(cols))]
	frame := g.frame()
	switch g.r.IntN(11) {
	case 8:
		n := g.one("2", "1", "3")
		sel, ks = append(sel, "nth_value("+c.name+", "+n+")"+full+valueFrame(frame)+")"), append(ks, c.kind)
	case 9:
		sel, ks = append(sel, g.one("lag(", "lead(")+c.name+", "+g.expr(cols, kInt, 1)+")"+full+")"), append(ks, c.kind)
	case 10:
		sel, ks = append(sel, "string_agg("+g.expr(cols, kText, 0)+", '-')"+full+frame+")"), append(ks, kText)
	case 0, 1:
		sel, ks = append(sel, "(row_number()"+full+"))::int"), append(ks, kInt)
	case 2:
		sel, ks = append(sel, "("+g.one("rank()", "dense_rank()", "ntile(3)")+" OVER ("+by+"ORDER BY "+strings.Join(order, ", ")+"))::int"), append(ks, kInt)
	case 3:
		sel, ks = append(sel, g.one("lag(", "lead(")+c.name+g.one("", ", 2")+")"+full+")"), append(ks, c.kind)
	case 4:
		sel, ks = append(sel, g.one("first_value(", "last_value(")+c.name+")"+full+valueFrame(frame)+")"), append(ks, c.kind)
	case 5:
		sel, ks = append(sel, "(count(*)"+full+frame+"))::int"), append(ks, kInt)
	case 6:
		fn := g.one("sum(", "avg(", "max(")
		sel, ks = append(sel, fn+g.expr(cols, kInt, 0)+")"+full+frame+")"), append(ks, map[string]kind{"sum(": kInt, "avg(": kNum, "max(": kInt}[fn])
		if fn == "sum(" {
			sel[len(sel)-1] = "(" + sel[len(sel)-1] + ")::int"
		}
	default:
		sel, ks = append(sel, g.one("max(", "min(")+c.name+") OVER ("+strings.TrimSpace(by)+")"), append(ks, c.kind)
		if c.kind == kBool {
			sel[len(sel)-1] = "bool_or(" + c.name + ") OVER (" + strings.TrimSpace(by) + ")"
		}
	}
	// A rank under a filter is the way to ask for the first rows of groups.
	if g.r.IntN(3) == 0 && g.depth < 3 && ks[len(ks)-1] == kInt {
		var names []string
		for i := range ks {
			names = append(names, fmt.Sprintf("k%d", i))
		}
		g.n++
		return fmt.Sprintf("SELECT * FROM (SELECT %s FROM %s) o%d (%s) WHERE k%d <= %d", strings.Join(sel, ", "), from+where, g.n, strings.Join(names, ", "), len(ks)-1, 1+g.r.IntN(3)), ks
	}
	return "SELECT " + strings.Join(sel, ", ") + " FROM " + from + where, ks
}
