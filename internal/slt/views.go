package slt

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// viewSet holds the materialized views that a mode makes of the queries of a file.
type viewSet struct {
	run   *run
	views map[string]*view // by viewKey
	order []*view
	next  int
	// settings[i] counts the SET statements of its session before record i: a view made under other settings is another view.
	settings []int
	// defines has the definitions of the file's own views, to know what a DROP touches.
	defines map[string]string
	sources []string
	dirty   bool // relations came or went since the last attempt to create pending views
}

// view is one query as a materialized view.
type view struct {
	name    string
	sql     string // resolved
	record  int    // the first one with this query
	conn    string
	columns int // -1 when not told
	raise   bool
	created bool
	refused string // why it cannot be a view
}

// sourceTimeout bounds the reading of a source by a view.
const sourceTimeout = 10 * time.Second

// Queries that mean something else in a view or that read what is not part of the database.
var (
	queryForm = regexp.MustCompile(`(?is)^(?:\s|--[^\n]*\n)*(SELECT|WITH|VALUES|\(\s*SELECT)\b`)
	notAView  = regexp.MustCompile(`(?is)\b(pg_catalog|information_schema|pg_(?:class|type|attribute|namespace|settings|matviews|tables|views|stat\w*|backend_pid|sleep)\b|streamdb\.|now\s*\(|` +
		`current_(?:date|time|timestamp|user|schema|schemas|setting|database|catalog)|localtime|localtimestamp|clock_timestamp|statement_timestamp|transaction_timestamp|` +
		`timeofday|random\s*\(|setseed|gen_random_uuid|version\s*\(|session_user|regclass|txid_\w+|` +
		`FOR\s+(?:UPDATE|SHARE|NO\s+KEY|KEY)|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|INTO\s+\w+\s+FROM|TABLESAMPLE)`)
	parameter       = regexp.MustCompile(`\$[0-9]`)
	changesRelation = regexp.MustCompile(`(?is)^\s*(DROP|ALTER)\s+(?:TABLE|VIEW|MATERIALIZED\s+VIEW|SOURCE|SCHEMA|INDEX|SINK)\s+(?:IF\s+EXISTS\s+)?(.*?)(?:\s+(?:CASCADE|RESTRICT|SET|ADD|DROP|RENAME|ALTER|OWNER)\b.*)?$`)
	definesView     = regexp.MustCompile(`(?is)^\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:MATERIALIZED\s+)?VIEW\s+(?:IF\s+NOT\s+EXISTS\s+)?("?[\w.]+"?)`)
	definesSource   = regexp.MustCompile(`(?is)^\s*CREATE\s+SOURCE\s+(?:IF\s+NOT\s+EXISTS\s+)?("?[\w.]+"?)`)
	isDDL           = regexp.MustCompile(`(?is)^\s*(CREATE|DROP|ALTER|SET|RESET|COMMIT|END|ROLLBACK|ABORT)\b|\bINTO\s+\w+\s+FROM\b`)
	isSet           = regexp.MustCompile(`(?is)^\s*(SET|RESET)\b`)
)

func newViewSet(r *run) *viewSet {
	v := &viewSet{run: r, views: map[string]*view{}, settings: make([]int, len(r.records)), defines: map[string]string{}, dirty: true}
	count := map[string]int{}
	for i, rec := range r.records {
		v.settings[i] = count[rec.conn]
		if rec.kind == kindStatement && isSet.MatchString(rec.sql) {
			count[rec.conn]++
		}
	}
	return v
}

// eligible tells whether a record is a query that can be a view.
func eligible(rec *record) bool {
	return (rec.kind == kindQuery || rec.kind == kindStatement && rec.wantError) &&
		queryForm.MatchString(rec.sql) && !notAView.MatchString(rec.sql) && !parameter.MatchString(rec.sql)
}

func (v *viewSet) active() bool { return v.run.streamdb && v.run.mode.views != noViews }

// of returns the view of a record.
func (v *viewSet) of(at int, rec *record, sql string) *view {
	key := fmt.Sprintf("%s\x00%d\x00%s", rec.conn, v.settings[at], sql)
	w := v.views[key]
	if w == nil {
		v.next++
		w = &view{name: fmt.Sprintf("slt_view_%d", v.next), sql: sql, record: at, conn: rec.conn, columns: -1}
		v.views[key] = w
		v.order = append(v.order, w)
	}
	if !rec.wantError {
		w.columns = len(rec.types)
	}
	return w
}

// plan notes the views of all records from at on whose text is known.
func (v *viewSet) plan(at int) {
	for i := at; i < len(v.run.records); i++ {
		rec := v.run.records[i]
		if !eligible(rec) {
			continue
		}
		if _, skip := v.run.skips(rec); skip {
			continue
		}
		if sql, ok := v.run.resolved(rec); ok {
			if w := v.of(i, rec, sql); rec.wantError {
				w.raise = true
			}
		}
	}
}

// before gives up the views that a DROP or ALTER would meet.
func (v *viewSet) before(ctx context.Context, s *session, sql string) error {
	m := changesRelation.FindStringSubmatch(sql)
	if !v.active() || m == nil {
		return nil
	}
	var touched []string
	for _, n := range strings.Split(m[2], ",") {
		if f := strings.Fields(n); len(f) > 0 {
			touched = append(touched, bare(f[0]))
		}
	}
	for _, w := range v.order {
		if !w.created || !v.reads(w.sql, touched, nil) {
			continue
		}
		if !s.idle() {
			continue // within a transaction block the file's own statement shows what happens
		}
		if _, err := s.exec(ctx, "DROP MATERIALIZED VIEW "+w.name); err != nil {
			return fmt.Errorf("drop the view of %q: %w", w.sql, err)
		}
		w.created = false
	}
	return nil
}

// bare is a name without schema and quotes.
func bare(name string) string {
	name = name[strings.LastIndexByte(name, '.')+1:]
	return strings.ToLower(strings.Trim(name, `"`))
}

// reads tells whether a query reads one of the relations, also through the file's own views.
func (v *viewSet) reads(sql string, names, seen []string) bool {
	words := strings.FieldsFunc(strings.ToLower(sql), func(c rune) bool {
		return c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9')
	})
	for _, w := range words {
		if slices.Contains(names, w) {
			return true
		}
		if def, ok := v.defines[w]; ok && !slices.Contains(seen, w) && v.reads(def, names, append(seen, w)) {
			return true
		}
	}
	return false
}

// after creates the views that have become possible.
func (v *viewSet) after(ctx context.Context, s *session, at int, rec *record, sql string, succeeded bool) error {
	if !v.active() {
		return nil
	}
	if m := definesView.FindStringSubmatch(sql); m != nil && succeeded {
		v.defines[bare(m[1])] = sql
	}
	if m := definesSource.FindStringSubmatch(sql); m != nil && succeeded {
		v.sources = append(v.sources, bare(m[1]))
	}
	if rec.wantError && eligible(rec) {
		problem, err := v.check(ctx, s, at, rec, sql, nil)
		if err == nil && problem != "" {
			v.run.settle(rec, problem)
		}
		return err
	}
	if succeeded && isDDL.MatchString(sql) {
		v.dirty = true
	}
	if v.run.mode.views != viewsEarly || !v.dirty || !s.idle() {
		return nil
	}
	v.dirty = false
	v.plan(at + 1)
	next := at + 1
	for _, w := range v.order {
		if w.created || w.refused != "" || w.conn != rec.conn || w.record >= 0 && !v.due(w, next) {
			continue
		}
		if err := v.create(ctx, s, w); err != nil {
			if ctx.Err() != nil || s.pg.IsClosed() {
				return fmt.Errorf("create the view of %q: %w", w.sql, err)
			}
			if sqlstate(err) == "0A000" {
				v.refuse(w, err)
			}
		}
	}
	return nil
}

// due tells whether the settings in force are those under which the query of the view will run, and whether it is still to come.
func (v *viewSet) due(w *view, next int) bool {
	if next >= len(v.run.records) {
		return false
	}
	now := -1
	for i := next; i < len(v.run.records); i++ {
		if v.run.records[i].conn == w.conn {
			now = v.settings[i]
			break
		}
	}
	if now < 0 || now != v.settings[w.record] {
		return false
	}
	for i := next; i < len(v.run.records); i++ {
		rec := v.run.records[i]
		if rec.conn == w.conn && v.settings[i] == now && eligible(rec) {
			if sql, ok := v.run.resolved(rec); ok && sql == w.sql {
				return true
			}
		}
	}
	return false
}

func (v *viewSet) refuse(w *view, err error) {
	w.refused = describe(err)
	rec := v.run.records[w.record]
	v.run.report.NotMaterializable = append(v.run.report.NotMaterializable, fmt.Sprintf("%s:%d: %s", rec.file, rec.line, w.refused))
}

func (v *viewSet) create(ctx context.Context, s *session, w *view) error {
	var b strings.Builder
	b.WriteString("CREATE MATERIALIZED VIEW " + w.name)
	if w.columns > 0 {
		for i := range w.columns {
			b.WriteString([]string{", ", " ("}[boolToInt(i == 0)])
			fmt.Fprintf(&b, "c%d", i+1)
		}
		b.WriteByte(')')
	}
	if w.raise {
		b.WriteString(" WITH (on_error = 'raise')")
	}
	b.WriteString(" AS " + w.sql)
	_, err := s.exec(ctx, b.String())
	w.created = err == nil
	return err
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// check compares the view of a query with what the query must return. A problem that it returns begins with "  view:". In a transaction
// block there is nothing to compare: views show what is committed.
func (v *viewSet) check(ctx context.Context, s *session, at int, rec *record, sql string, res *result) (string, error) {
	if !v.active() || !eligible(rec) || !s.idle() {
		return "", nil
	}
	w := v.of(at, rec, sql)
	w.raise = w.raise || rec.wantError
	if w.refused != "" {
		return "", nil
	}
	if rec.wantError && w.created && !v.raises(w) {
		return "", nil
	}
	if !w.created {
		if err := v.create(ctx, s, w); err != nil {
			switch {
			case ctx.Err() != nil:
				return "", fmt.Errorf("create the view of the query: %w", err)
			case rec.wantError && (rec.columnsClash(err) || errorProblem(rec.errorWant, err) == ""):
				return "", nil
			case sqlstate(err) == "0A000":
				v.refuse(w, err)
				return "", nil
			}
			return "  view: create: " + describe(err) + "\n", nil
		}
	}
	problem := v.compare(ctx, s, w, rec, res)
	if v.run.mode.views == viewsLate {
		if _, err := s.exec(ctx, "DROP MATERIALIZED VIEW "+w.name); err != nil {
			return "", fmt.Errorf("drop the view of the query: %w", err)
		}
		w.created = false
	}
	if problem == "" {
		v.run.report.Views++
	}
	return problem, nil
}

// compare reads a view and returns how it differs from what its query must return. A view over a source fills by itself: FLUSH covers what
// is committed, not what is still to be read outside, so it is looked at until it is right or sourceTimeout has passed.
func (v *viewSet) compare(ctx context.Context, s *session, w *view, rec *record, res *result) string {
	look := func() string {
		if _, err := s.exec(ctx, "FLUSH"); err != nil {
			return "  view: FLUSH: " + describe(err) + "\n"
		}
		got, err := s.exec(ctx, "SELECT * FROM "+w.name)
		return v.difference(rec, res, got, err)
	}
	problem := look()
	if problem == "" || !v.reads(w.sql, v.sources, nil) {
		return problem
	}
	tick := time.NewTicker(waitEvery)
	defer tick.Stop()
	for began := time.Now(); problem != "" && time.Since(began) < sourceTimeout; problem = look() {
		select {
		case <-ctx.Done():
			return problem
		case <-tick.C:
		}
	}
	return problem
}

// raises tells whether the view was created to raise errors.
func (v *viewSet) raises(w *view) bool { return w.raise }

// columnsClash tells that only the missing names of columns keep a query that must fail from being a view.
func (rec *record) columnsClash(err error) bool { return sqlstate(err) == "42701" }

func (v *viewSet) difference(rec *record, res, got *result, err error) string {
	switch {
	case rec.wantError:
		if p := errorProblem(rec.errorWant, err); p != "" {
			return "  view: read\n" + p
		}
		return ""
	case err != nil:
		return "  view: read: " + describe(err) + "\n"
	}
	if res != nil && !slices.Equal(res.types, got.types) {
		return fmt.Sprintf("  view: types of the query are %v, of the view %v\n", res.types, got.types)
	}
	order := rec.sort
	if order == noSort {
		order = rowSort
	}
	want := rec.want
	if isDigest(want) {
		if res == nil {
			return ""
		}
		want = lines(res.rows, order)
	}
	if p := compare(want, got.rows, order, len(got.types)); p != "" {
		return "  view:\n" + p
	}
	return ""
}
