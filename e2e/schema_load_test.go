//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// Bounds of what the schema changes leave.
const (
	mostColumns = 6
	mostRows    = 60
	mostIndexes = 3
	mostRoles   = 3
	mostLabels  = 40
	mostScratch = 2
	scratchRows = 20
)

// schemaModel is what the objects of the schema writer must be: one table that changes its shape and name under views, and what hangs on it.
type schemaModel struct {
	schema, table string
	columns       []string            // after k and mood
	rows          map[int][]string    // k → mood and columns
	indexes       map[string]string   // name → column
	uniques       map[string]string   // constraint → column, with k
	roles         map[string][]string // role → privileges on the table, sorted
	labels        []string            // of the type of mood
	scratch       []string            // tables with scratchRows rows and a materialized view
	orders        map[string]bool     // what the table of the other writers has besides: a column, an index, a constraint
}

func (m schemaModel) clone() schemaModel {
	m.columns, m.labels, m.scratch = slices.Clone(m.columns), slices.Clone(m.labels), slices.Clone(m.scratch)
	m.rows, m.roles = maps.Clone(m.rows), maps.Clone(m.roles)
	for k, v := range m.rows {
		m.rows[k] = slices.Clone(v)
	}
	m.indexes, m.uniques, m.orders = maps.Clone(m.indexes), maps.Clone(m.uniques), maps.Clone(m.orders)
	return m
}

func (m schemaModel) name() string { return m.schema + "." + m.table }

func (m schemaModel) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v\nindexes %v\nuniques %v\nroles %v\nlabels %v\nscratch %v\norders %v\n", m.name(), m.columns, m.indexes, m.uniques, m.roles, m.labels, m.scratch, m.orders)
	for _, k := range slices.Sorted(maps.Keys(m.rows)) {
		fmt.Fprintf(&b, "%d %v\n", k, m.rows[k])
	}
	return b.String()
}

// schemaWriter changes the schema, one statement or transaction after the other, and knows which of them were acknowledged.
type schemaWriter struct {
	rng          *rand.Rand
	next         int // number of the next name
	key          int // newest value of the sequence
	done         schemaModel
	doubt        *schemaModel
	acknowledged int
	conflicts    int
}

func newSchemaWriter(seed uint64) *schemaWriter {
	return &schemaWriter{rng: rand.New(rand.NewPCG(seed, 2000)), done: schemaModel{
		schema: "public", table: "ddl_t", rows: map[int][]string{}, indexes: map[string]string{}, uniques: map[string]string{}, roles: map[string][]string{},
		labels: []string{"m"}, orders: map[string]bool{},
	}}
}

// schemaViews are the queries of the views over the table, by what it is called.
var schemaViews = map[string]string{
	"ddl_plain": `SELECT k, mood FROM %s WHERE k %% 2 = 0`,
	"ddl_view":  `SELECT mood, count(*) AS n, sum(k) AS total FROM %s GROUP BY mood`,
}

func (s *schemaWriter) create(c *client) {
	c.exec(`CREATE SCHEMA ddl_other; CREATE TYPE ddl_mood AS ENUM ('m'); CREATE SEQUENCE ddl_seq; CREATE TABLE ddl_t (k bigint PRIMARY KEY, mood ddl_mood)`)
	c.exec(`CREATE VIEW ddl_plain AS ` + fmt.Sprintf(schemaViews["ddl_plain"], "ddl_t"))
	c.exec(`CREATE MATERIALIZED VIEW ddl_view AS ` + fmt.Sprintf(schemaViews["ddl_view"], "ddl_t"))
}

func (s *schemaWriter) newName(prefix string) string {
	s.next++
	return "ddl_" + prefix + strconv.Itoa(s.next)
}

// insert makes a statement that adds the row of the newest key.
func (s *schemaWriter) insert(m *schemaModel) string {
	row := []string{m.labels[s.rng.IntN(len(m.labels))]}
	for range m.columns {
		row = append(row, strconv.Itoa(s.rng.IntN(10)))
	}
	m.rows[s.key] = row
	return fmt.Sprintf(`INSERT INTO %s VALUES (%d, '%s')`, m.name(), s.key, strings.Join(row, "', '"))
}

// remove makes a statement that deletes the older half of the rows.
func (s *schemaWriter) remove(m *schemaModel) string {
	keys := slices.Sorted(maps.Keys(m.rows))
	if len(keys) == 0 {
		return fmt.Sprintf(`DELETE FROM %s`, m.name())
	}
	last := keys[len(keys)/2]
	maps.DeleteFunc(m.rows, func(k int, _ []string) bool { return k <= last })
	return fmt.Sprintf(`DELETE FROM %s WHERE k <= %d`, m.name(), last)
}

func (s *schemaWriter) column(m *schemaModel) string { return m.columns[s.rng.IntN(len(m.columns))] }

func some[V any](rng *rand.Rand, m map[string]V) string {
	return slices.Sorted(maps.Keys(m))[rng.IntN(len(m))]
}

// change makes a statement or transaction, and what the schema is after it.
func (s *schemaWriter) change() (sql string, after schemaModel) {
	m := s.done.clone()
	block := func(stmts ...string) string { return `BEGIN; ` + strings.Join(stmts, "; ") + `; COMMIT` }
	alter := func(format string, args ...any) string {
		return `ALTER TABLE ` + m.name() + ` ` + fmt.Sprintf(format, args...)
	}
	kind := s.rng.IntN(13)
	if len(m.rows) > mostRows {
		return s.remove(&m), m
	}
	switch {
	case kind <= 1 && len(m.columns) < mostColumns:
		c := s.newName("c")
		sql = alter(`ADD COLUMN %s bigint DEFAULT 5`, c)
		m.columns = append(m.columns, c)
		for k := range m.rows {
			m.rows[k] = append(m.rows[k], "5")
		}
		if kind == 1 { // together with a row
			sql = block(sql, s.insert(&m))
		}
	case kind <= 2 && len(m.columns) > 0: // the column takes its indexes and constraints along
		c := s.column(&m)
		i := slices.Index(m.columns, c)
		m.columns = slices.Delete(m.columns, i, i+1)
		for k, row := range m.rows {
			m.rows[k] = slices.Delete(row, i+1, i+2)
		}
		on := func(_, column string) bool { return column == c }
		maps.DeleteFunc(m.indexes, on)
		maps.DeleteFunc(m.uniques, on)
		sql = block(s.remove(&m), alter(`DROP COLUMN %s`, c))
	case kind == 3 && len(m.columns) > 0:
		from, to := s.column(&m), s.newName("c")
		m.columns[slices.Index(m.columns, from)] = to
		for _, list := range []map[string]string{m.indexes, m.uniques} {
			for name, c := range list {
				if c == from {
					list[name] = to
				}
			}
		}
		sql = alter(`RENAME COLUMN %s TO %s`, from, to)
	case kind == 4 && len(m.indexes) >= mostIndexes:
		name := some(s.rng, m.indexes)
		delete(m.indexes, name)
		sql = fmt.Sprintf(`DROP INDEX %s.%s`, m.schema, name)
	case kind == 4 && len(m.columns) > 0:
		name := s.newName("i")
		m.indexes[name] = s.column(&m)
		sql = fmt.Sprintf(`CREATE INDEX %s ON %s (%s)`, name, m.name(), m.indexes[name])
		if s.rng.IntN(2) == 0 {
			sql = block(s.insert(&m), sql)
		}
	case kind == 5 && len(m.uniques) >= mostIndexes:
		name := some(s.rng, m.uniques)
		delete(m.uniques, name)
		sql = alter(`DROP CONSTRAINT %s`, name)
	case kind == 5 && len(m.columns) > 0:
		name := s.newName("u")
		m.uniques[name] = s.column(&m)
		sql = block(s.insert(&m), alter(`ADD CONSTRAINT %s UNIQUE (k, %s)`, name, m.uniques[name]))
	case kind == 6:
		to := map[string]string{"public": "ddl_other", "ddl_other": "public"}[m.schema]
		sql = alter(`SET SCHEMA %s`, to)
		m.schema = to
	case kind == 7: // under the views
		to := s.newName("t")
		sql = alter(`RENAME TO %s`, to)
		m.table = to
		if s.rng.IntN(2) == 0 {
			sql = block(sql, s.insert(&m))
		}
	case kind == 8 && len(m.roles) >= mostRoles:
		r := some(s.rng, m.roles)
		delete(m.roles, r)
		sql = block(fmt.Sprintf(`REVOKE ALL ON %s FROM %s`, m.name(), r), `DROP ROLE `+r)
	case kind == 8:
		r := s.newName("r")
		m.roles[r] = nil
		sql = `CREATE ROLE ` + r
	case kind == 9 && len(m.roles) > 0:
		r, p := some(s.rng, m.roles), []string{"DELETE", "INSERT", "SELECT"}[s.rng.IntN(3)]
		if i, has := slices.BinarySearch(m.roles[r], p); has {
			m.roles[r] = slices.Delete(slices.Clone(m.roles[r]), i, i+1)
			sql = fmt.Sprintf(`REVOKE %s ON %s FROM %s`, p, m.name(), r)
		} else {
			m.roles[r] = slices.Insert(slices.Clone(m.roles[r]), i, p)
			sql = fmt.Sprintf(`GRANT %s ON %s TO %s`, p, m.name(), r)
		}
	case kind == 10 && len(m.labels) < mostLabels:
		label := s.newName("m")
		m.labels = append(m.labels, label)
		sql = fmt.Sprintf(`ALTER TYPE ddl_mood ADD VALUE '%s'`, label)
	case kind == 11 && len(m.scratch) >= mostScratch:
		sql = block(s.insert(&m), `DROP TABLE `+m.scratch[0]+` CASCADE`)
		m.scratch = m.scratch[1:]
	case kind == 11:
		x := s.newName("x")
		m.scratch = append(m.scratch, x)
		sql = block(`CREATE TABLE `+x+` (a bigint)`, fmt.Sprintf(`INSERT INTO %s SELECT generate_series(1, %d)`, x, scratchRows),
			fmt.Sprintf(`CREATE MATERIALIZED VIEW %s_v AS SELECT count(*) AS n FROM %s`, x, x), s.insert(&m))
	case kind == 12: // of a table that others write to
		what := []string{"column", "index", "unique"}[s.rng.IntN(3)]
		sql = map[string][2]string{
			"column": {`ALTER TABLE orders ADD COLUMN extra bigint DEFAULT 1`, `ALTER TABLE orders DROP COLUMN extra`},
			"index":  {`CREATE INDEX orders_ddl_i ON orders (amount)`, `DROP INDEX orders_ddl_i`},
			"unique": {`ALTER TABLE orders ADD CONSTRAINT orders_ddl_u UNIQUE (id, amount)`, `ALTER TABLE orders DROP CONSTRAINT orders_ddl_u`},
		}[what][map[bool]int{true: 1}[m.orders[what]]]
		if m.orders[what] {
			delete(m.orders, what)
		} else {
			m.orders[what] = true
		}
	default:
		sql = s.insert(&m)
	}
	return sql, m
}

// run changes the schema until the server is gone or stop is closed.
func (s *schemaWriter) run(t *testing.T, p *process, stop <-chan struct{}) {
	repeat(p, stop, func(conn *pgconn.PgConn) bool {
		ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
		rows, err := query(ctx, conn, `SELECT nextval('ddl_seq')`)
		cancel()
		if err != nil {
			if p.alive() && !conn.IsClosed() {
				t.Errorf("nextval: %v", err)
			}
			return false
		}
		key, err := strconv.Atoi(rows[0][0])
		if err != nil || key <= s.key {
			t.Errorf("nextval: %s (%v) after %d", rows[0][0], err, s.key)
			return false
		}
		s.key = key
		sql, after := s.change()
		switch perform(t, p, conn, "schema writer", sql) {
		case performed:
			s.done = after
			s.acknowledged++
		case conflicted:
			s.conflicts++
		case unknown:
			s.doubt = &after
			return false
		case failed:
			return false
		}
		return true
	})
}

// observe reads what there is from the catalogue.
func (s *schemaWriter) observe(t *testing.T, c *client) schemaModel {
	t.Helper()
	m := schemaModel{
		rows: map[int][]string{}, indexes: map[string]string{}, uniques: map[string]string{}, roles: map[string][]string{}, orders: map[string]bool{},
	}
	column := func(sql string) (out []string) {
		for _, r := range c.exec(sql) {
			out = append(out, r[0])
		}
		return out
	}
	tables := c.exec(`SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND c.relname LIKE 'ddl\_t%'`)
	require.Len(t, tables, 1)
	m.schema, m.table = tables[0][0], tables[0][1]
	oid := `'` + m.name() + `'::regclass`
	m.columns = column(`SELECT attname FROM pg_attribute WHERE attrelid = ` + oid + ` AND attnum > 2 AND NOT attisdropped ORDER BY attnum`)
	for _, r := range c.exec(`SELECT ` + strings.Join(append([]string{"k", "mood"}, m.columns...), ", ") + ` FROM ` + m.name()) {
		k, err := strconv.Atoi(r[0])
		require.NoError(t, err)
		require.NotContains(t, m.rows, k, "a key twice")
		m.rows[k] = r[1:]
	}
	for _, r := range c.exec(`SELECT i.relname, a.attname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0]
		WHERE x.indrelid = ` + oid + ` AND i.relname LIKE 'ddl\_i%'`) {
		m.indexes[r[0]] = r[1]
	}
	for _, r := range c.exec(`SELECT x.conname, a.attname FROM pg_constraint x JOIN pg_attribute a ON a.attrelid = x.conrelid AND a.attnum = x.conkey[2]
		WHERE x.conrelid = ` + oid + ` AND x.contype = 'u'`) {
		m.uniques[r[0]] = r[1]
	}
	for _, r := range column(`SELECT rolname FROM pg_roles WHERE rolname LIKE 'ddl\_r%'`) {
		m.roles[r] = nil
	}
	for _, r := range c.exec(`SELECT r.rolname, x.privilege_type FROM pg_class c, aclexplode(c.relacl) x, pg_roles r
		WHERE c.oid = ` + oid + ` AND r.oid = x.grantee AND r.rolname LIKE 'ddl\_r%' ORDER BY 1, 2`) {
		m.roles[r[0]] = append(m.roles[r[0]], r[1])
	}
	m.labels = column(`SELECT enumlabel FROM pg_enum WHERE enumtypid = 'ddl_mood'::regtype ORDER BY enumsortorder`)
	m.scratch = column(`SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'ddl\_x%' ORDER BY oid`)
	for what, sql := range map[string]string{
		"column": `SELECT 1 FROM pg_attribute WHERE attrelid = 'orders'::regclass AND attname = 'extra'`,
		"index":  `SELECT 1 FROM pg_index WHERE indrelid = 'orders'::regclass AND indexrelid = to_regclass('orders_ddl_i')`,
		"unique": `SELECT 1 FROM pg_constraint WHERE conrelid = 'orders'::regclass AND conname = 'orders_ddl_u'`,
	} {
		if len(c.exec(sql)) > 0 {
			m.orders[what] = true
		}
	}
	return m
}

// settle compares the schema with what was acknowledged, with or without the one change in doubt.
func (s *schemaWriter) settle(t *testing.T, c *client) {
	t.Helper()
	got := s.observe(t, c)
	if s.doubt != nil && got.String() == s.doubt.String() {
		s.done = *s.doubt
	}
	s.doubt = nil
	require.Equal(t, s.done.String(), got.String(), "schema against what was acknowledged")
	for view, sql := range schemaViews {
		c.sameRows(view, fmt.Sprintf(sql, got.name()))
	}
	for _, x := range got.scratch {
		require.Equal(t, strconv.Itoa(scratchRows), c.value(`SELECT n FROM `+x+`_v`), x)
		require.Equal(t, strconv.Itoa(scratchRows), c.value(`SELECT count(*) FROM `+x), x)
	}
	for name, column := range got.indexes { // each holds what the table does
		i := slices.Index(got.columns, column) + 1
		want := map[string]int{}
		for _, row := range got.rows {
			want[row[i]]++
		}
		for value, n := range want {
			require.Equal(t, strconv.Itoa(n), c.value(fmt.Sprintf(`SELECT count(*) FROM %s WHERE %s = %s`, got.name(), column, value)), "index %s of %s = %s", name, column, value)
		}
	}
	checkCatalogue(t, c)
}

// checkCatalogue asks what psql's \d asks, of all relations at once: nothing refers to what is not there.
func checkCatalogue(t *testing.T, c *client) {
	t.Helper()
	const user = `n.nspname IN ('public', 'ddl_other')`
	require.Empty(t, c.exec(`SELECT c.oid::regclass, c.relnatts, count(a.attnum) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 WHERE `+user+` GROUP BY c.oid, c.relnatts HAVING c.relnatts <> count(a.attnum)`), "relations without all their columns")
	columns := c.exec(`SELECT c.oid::regclass, a.attname, format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid), a.attnotnull
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		WHERE ` + user + ` AND a.attnum > 0 AND NOT a.attisdropped`)
	for _, r := range columns {
		require.NotContains(t, []string{"???", "-", null}, r[2], "type of %s", r)
	}
	for what, sql := range map[string]string{
		"indexes of no table":      `SELECT x.indexrelid FROM pg_index x LEFT JOIN pg_class c ON c.oid = x.indrelid LEFT JOIN pg_class i ON i.oid = x.indexrelid WHERE c.oid IS NULL OR i.oid IS NULL OR pg_get_indexdef(x.indexrelid) IS NULL`,
		"constraints of no table":  `SELECT x.oid FROM pg_constraint x LEFT JOIN pg_class c ON c.oid = x.conrelid WHERE x.conrelid <> 0 AND (c.oid IS NULL OR pg_get_constraintdef(x.oid) IS NULL)`,
		"views without definition": `SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE ` + user + ` AND c.relkind IN ('v', 'm') AND pg_get_viewdef(c.oid) IS NULL`,
		"grants to nobody":         `SELECT c.relname, x.grantee FROM pg_class c, aclexplode(c.relacl) x WHERE x.grantee <> 0 AND NOT EXISTS (SELECT 1 FROM pg_roles r WHERE r.oid = x.grantee)`,
	} {
		require.Empty(t, c.exec(sql), what)
	}
}
