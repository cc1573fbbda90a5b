//go:build e2e

package differential

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb"
	"github.com/streamdb/streamdb/e2e/pgserver"
)

// minQueries is the least number of compared statements: a suite that shrinks fails.
const minQueries = 25000

// totals counts the outcomes of a family.
type totals struct {
	queries, equal, accepted, different int
	views, binary                       int
}

// suite is what all families share.
type suite struct {
	postgres string
	accepted []*acceptedQuery

	mu     sync.Mutex
	counts map[string]totals
}

// acceptedQuery is a line of accepted.txt: queries that match may differ, at least one has to.
type acceptedQuery struct {
	pattern           *regexp.Regexp
	family            string
	different, equals int // guarded by suite.mu
}

func TestDifferential(t *testing.T) {
	s := &suite{postgres: pgserver.Start(t), accepted: readAccepted(t), counts: map[string]totals{}}
	files, err := filepath.Glob("testdata/*.sql")
	require.NoError(t, err)
	t.Run("families", func(t *testing.T) {
		for _, f := range files {
			script, err := readScript(f)
			require.NoError(t, err)
			t.Run(script.family, func(t *testing.T) {
				t.Parallel()
				s.run(t, script)
			})
		}
	})
	sum := s.report(t)
	if len(s.counts) < len(files) {
		return // a part was asked for
	}
	require.GreaterOrEqual(t, sum.queries, minQueries)
	for _, a := range s.accepted {
		assert.NotZero(t, a.different, "accepted.txt: nothing that matches %q in %s differs any more", a.pattern, a.family)
	}
}

// readAccepted reads accepted.txt. A line "reason: …" heads a group and must be a sentence of docs/differences.md; the lines below it are
// "family: pattern".
func readAccepted(t *testing.T) []*acceptedQuery {
	t.Helper()
	text, err := os.ReadFile("accepted.txt")
	require.NoError(t, err)
	docs, err := os.ReadFile("../../docs/differences.md")
	require.NoError(t, err)
	plain := strings.Join(strings.Fields(string(docs)), " ")
	var out []*acceptedQuery
	reasoned := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if reason, ok := strings.CutPrefix(line, "reason: "); ok {
			require.Contains(t, plain, reason, "accepted.txt: the reason is not in docs/differences.md")
			reasoned = true
			continue
		}
		family, pattern, ok := strings.Cut(line, ": ")
		require.True(t, ok && reasoned, "accepted.txt: %q is no pattern under a reason", line)
		re, err := regexp.Compile("(?is)" + pattern)
		require.NoError(t, err)
		out = append(out, &acceptedQuery{pattern: re, family: family})
	}
	return out
}

// accepts reports whether a difference is accepted, and notes the outcome.
func (s *suite) accepts(family, sql string, differs bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := false
	for _, a := range s.accepted {
		if a.family != family && a.family != "*" || !a.pattern.MatchString(sql) {
			continue
		}
		found = true
		if differs {
			a.different++
		} else {
			a.equals++
		}
	}
	return found
}

func (s *suite) run(t *testing.T, sc *script) {
	ctx := t.Context()
	theirs := &client{config: s.database(t, sc.family)}
	db, err := streamdb.Open(ctx, streamdb.Options{MemoryOnly: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Abort()) })
	ours := &client{config: func() (*pgconn.Config, error) {
		config, err := pgconn.ParseConfig("postgres://postgres@streamdb/streamdb?sslmode=disable")
		if err != nil {
			return nil, err
		}
		config.DialFunc = db.DialFunc()
		config.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
		return config, nil
	}}
	t.Cleanup(theirs.close)
	t.Cleanup(ours.close)
	for _, sql := range sc.setup {
		for name, c := range map[string]*client{"PostgreSQL": theirs, "streamdb": ours} {
			a := c.simple(ctx, sql)
			require.Empty(t, a.code, "set-up on %s: %s\n%s", name, sql, a)
		}
	}
	var n totals
	defer func() {
		s.mu.Lock()
		s.counts[sc.family] = n
		s.mu.Unlock()
	}()
	for _, sql := range sc.queries {
		n.queries++
		q, err := readCall(sql)
		require.NoError(t, err)
		difference := s.compare(ctx, ours, theirs, q, sc, &n)
		accepted := s.accepts(sc.family, sql, difference != "")
		switch {
		case difference == "":
			n.equal++
		case accepted:
			n.accepted++
			if os.Getenv("STREAMDB_DIFFERENTIAL_ACCEPTED") != "" {
				fmt.Printf("%s: %s;\n%s\n", sc.family, sql, difference)
			}
		default:
			n.different++
			t.Errorf("%s;\n%s", sql, difference)
		}
	}
}

// database makes an empty database in PostgreSQL that sorts as streamdb does, and drops it at the test's end.
func (s *suite) database(t *testing.T, family string) func() (*pgconn.Config, error) {
	name := fmt.Sprintf("differential_%s_%d", family, os.Getpid())
	admin := func(ctx context.Context, sql string) {
		c, err := pgconn.Connect(ctx, s.postgres)
		require.NoError(t, err)
		require.NoError(t, c.Exec(ctx, sql).Close())
		require.NoError(t, c.Close(ctx))
	}
	admin(t.Context(), "create database "+name+" template template0 encoding 'UTF8' lc_collate 'C' lc_ctype 'C.UTF-8'")
	t.Cleanup(func() { admin(context.Background(), "drop database "+name+" with (force)") })
	return func() (*pgconn.Config, error) {
		config, err := pgconn.ParseConfig(s.postgres)
		if err != nil {
			return nil, err
		}
		config.Database = name
		return config, nil
	}
}

// compare runs a statement on both servers and describes the difference, "" for none.
func (s *suite) compare(ctx context.Context, ours, theirs *client, q *call, sc *script, n *totals) string {
	sql := q.sql
	inOrder := ordered(sql)
	want, got := theirs.run(ctx, q), ours.run(ctx, q)
	if !got.equal(want, inOrder) || sc.exact && !got.same(want) {
		shape := "  PostgreSQL: %s\n  streamdb:   %s"
		if q.bind && want.code == "" && got.code == "" {
			shape = "  PostgreSQL: %q\n  streamdb:   %q"
		}
		return fmt.Sprintf(shape, want, got)
	}
	if want.code != "" || !isQuery(sql) {
		return ""
	}
	n.binary++
	format := int16(1)
	if q.bind {
		format = 0 // binary is what was compared above
	}
	if wantOther, gotOther := theirs.extended(ctx, q, format), ours.extended(ctx, q, format); !gotOther.equal(wantOther, inOrder) {
		return fmt.Sprintf("  in the extended protocol\n  PostgreSQL: %q\n  streamdb:   %q", wantOther, gotOther)
	}
	if !sc.views || q.bind || !viewable(sql) || duplicates(want.columns) {
		return ""
	}
	n.views++
	if a := ours.simple(ctx, "create materialized view differential_view as "+sql); a.code != "" {
		return fmt.Sprintf("  as a materialized view: %s", a)
	}
	view := ours.simple(ctx, "select * from differential_view")
	if a := ours.simple(ctx, "drop materialized view differential_view"); a.code != "" {
		return fmt.Sprintf("  drop of the materialized view: %s", a)
	}
	if view.code != "" || !sameRows(view.rows, want.rows, false) {
		return fmt.Sprintf("  as a materialized view\n  PostgreSQL: %s\n  streamdb:   %s", want, view)
	}
	return ""
}

func duplicates(columns []string) bool {
	seen := map[string]bool{}
	for _, c := range columns {
		name, _, _ := strings.Cut(c, " ")
		if seen[name] {
			return true
		}
		seen[name] = true
	}
	return len(columns) == 0
}

// report logs the totals of each family and returns their sum.
func (s *suite) report(t *testing.T) totals {
	var names []string
	for f := range s.counts {
		names = append(names, f)
	}
	sort.Strings(names)
	var b strings.Builder
	var sum totals
	line := func(name string, n totals) {
		fmt.Fprintf(&b, "%-14s %7d %7d %8d %9d %7d %7d\n", name, n.queries, n.equal, n.accepted, n.different, n.binary, n.views)
	}
	fmt.Fprintf(&b, "%-14s %7s %7s %8s %9s %7s %7s\n", "family", "queries", "equal", "accepted", "different", "binary", "views")
	for _, f := range names {
		n := s.counts[f]
		line(f, n)
		sum.queries += n.queries
		sum.equal += n.equal
		sum.accepted += n.accepted
		sum.different += n.different
		sum.binary += n.binary
		sum.views += n.views
	}
	line("all", sum)
	t.Logf("differential:\n%s", b.String())
	return sum
}
