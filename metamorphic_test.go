package streamdb_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb"
	"github.com/streamdb/streamdb/internal/slt"
	"github.com/streamdb/streamdb/planner"
)

var (
	metamorphicPrograms = flag.Int("metamorphic.programs", 0, "generated programs that TestMetamorphic runs instead of its usual number")
	metamorphicSeed     = flag.Uint64("metamorphic.seed", 1, "seed of the first generated program")
	metamorphicOracle   = flag.String("metamorphic.oracle", "", "URL of a PostgreSQL server that answers the same queries")
)

const (
	metamorphicUsual    = 60               // programs in a run of all tests
	metamorphicProgress = 100              // programs between two lines of a long run's log
	metamorphicMemory   = 64 << 10         // bytes, of the starved servers
	metamorphicTimeout  = 60 * time.Second // of a program
	metamorphicQuery    = "5s"             // statement_timeout of questions; a query that takes longer is not compared
)

// metamorphicFound are the seeds of programs that have found something.
var metamorphicFound = []uint64{}

// TestMetamorphic runs generated programs: after every epoch that is looked at, a view holds what its query answers, whether it was made before
// or after its rows, in whatever number of subtasks, with little memory, and over restarts at any moment.
func TestMetamorphic(t *testing.T) {
	n := *metamorphicPrograms
	seeds := slices.Clone(metamorphicFound)
	if n == 0 {
		n = metamorphicUsual
		if testing.Short() {
			n /= 4
		}
	}
	for i := range n {
		seeds = append(seeds, *metamorphicSeed+uint64(i))
	}
	var oracle *pgconn.PgConn
	if *metamorphicOracle != "" {
		var err error
		oracle, err = pgconn.Connect(t.Context(), *metamorphicOracle)
		require.NoError(t, err)
		defer oracle.Close(context.Background())
	}
	compared, rows, skipped := 0, 0, 0
	for i, seed := range seeds {
		if i > 0 && i%metamorphicProgress == 0 {
			t.Logf("%d programs, %d comparisons", i, compared)
		}
		run := metamorphicRun{program: newProgram(seed), seed: seed, oracle: oracle}
		problem := run.do(t.Context())
		compared, rows, skipped = compared+run.compared, rows+run.rows, skipped+run.skipped
		if problem != "" {
			t.Errorf("seed %d: %s", seed, run.reduce(t.Context(), problem))
		}
	}
	t.Logf("%d programs, %d comparisons of %d rows, %d questions without an answer", len(seeds), compared, rows, skipped)
}

// metamorphicRun is one run of a program.
type metamorphicRun struct {
	*program
	seed                    uint64
	oracle                  *pgconn.PgConn
	compared, rows, skipped int

	target   slt.Target
	conn     *pgconn.PgConn
	created  []*genView
	settings string
}

// do returns what is wrong, "" when nothing is.
func (m *metamorphicRun) do(ctx context.Context) (problem string) {
	ctx, cancel := context.WithTimeout(ctx, metamorphicTimeout)
	defer cancel()
	r := rand.New(rand.NewPCG(m.seed, 1))
	durable := r.IntN(3) > 0
	memory := []int64{sltMemory, metamorphicMemory}[r.IntN(2)]
	chunk, parallel := []int{1, 2, 1024}[r.IntN(3)], 1+r.IntN(3)
	lookups := []string{"0", "100000"}[r.IntN(2)]
	m.settings = fmt.Sprintf("memory %d, chunk_rows %d, parallelism %d, lookup_join_rows %s, durable %t", memory, chunk, parallel, lookups, durable)
	var err error
	m.target, err = slt.Embedded(func(ctx context.Context, dir string, o slt.ServerOptions) (slt.Database, error) {
		return streamdb.Open(ctx, streamdb.Options{DataDir: dir, MemoryOnly: !o.Durable, Memory: memory, Settings: map[string]string{
			"execution.checkpointing.interval": "0", "chunk_rows": strconv.Itoa(chunk), "parallelism": strconv.Itoa(parallel), "lookup_join_rows": lookups,
		}})
	})(ctx, slt.ServerOptions{Durable: durable})
	if err != nil {
		return err.Error()
	}
	defer func() {
		if m.conn != nil {
			_ = m.conn.Close(ctx) // the server goes too
		}
		if err := m.target.Close(context.WithoutCancel(ctx)); err != nil && problem == "" {
			problem = err.Error()
		}
	}()
	m.created = nil
	if err := m.steps(ctx, r, durable, parallel); err != nil {
		return err.Error()
	}
	return ""
}

func (m *metamorphicRun) connect(ctx context.Context) error {
	var err error
	if m.conn, err = m.target.Connect(ctx); err != nil {
		return err
	}
	_, err = m.exec(ctx, m.conn, "SET statement_timeout = '"+metamorphicQuery+"'")
	return err
}

func (m *metamorphicRun) exec(ctx context.Context, c *pgconn.PgConn, sql string) ([]string, error) {
	res, err := c.Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sql, err)
	}
	var rows []string
	for _, row := range res[len(res)-1].Rows {
		var vs []string
		for i, v := range row {
			switch {
			case v == nil:
				vs = append(vs, "NULL")
			case res[len(res)-1].FieldDescriptions[i].DataTypeOID == 1700 && strings.Contains(string(v), "."):
				vs = append(vs, strings.TrimRight(strings.TrimRight(string(v), "0"), "."))
			default:
				vs = append(vs, string(v))
			}
		}
		rows = append(rows, strings.Join(vs, "|"))
	}
	sort.Strings(rows)
	return rows, nil
}

// both runs a statement here and at the oracle.
func (m *metamorphicRun) both(ctx context.Context, sql string) error {
	if _, err := m.exec(ctx, m.conn, sql); err != nil {
		return err
	}
	if m.oracle != nil {
		if _, err := m.exec(ctx, m.oracle, sql); err != nil {
			return fmt.Errorf("oracle: %w", err)
		}
	}
	return nil
}

func (m *metamorphicRun) steps(ctx context.Context, r *rand.Rand, durable bool, parallel int) error {
	if err := m.connect(ctx); err != nil {
		return err
	}
	if m.oracle != nil {
		if _, err := m.exec(ctx, m.oracle, "DROP SCHEMA IF EXISTS metamorphic CASCADE; CREATE SCHEMA metamorphic; SET search_path = metamorphic; SET statement_timeout = '"+metamorphicQuery+"'"); err != nil {
			return err
		}
	}
	for _, t := range m.tables {
		if err := m.both(ctx, t.create()); err != nil {
			return err
		}
	}
	next := 0
	for i, c := range m.changes {
		// Half of the views are there from the start.
		for next < len(m.views) && (i == len(m.changes)-1 || r.IntN(2) == 0) {
			if err := m.createView(ctx, m.views[next]); err != nil {
				return err
			}
			next++
		}
		if err := m.both(ctx, c); err != nil {
			return err
		}
		if r.IntN(8) == 0 {
			if _, err := m.exec(ctx, m.conn, "CHECKPOINT"); err != nil {
				return err
			}
		}
		if durable && r.IntN(8) == 0 {
			_ = m.conn.Close(ctx)
			if err := m.target.Restart(ctx); err != nil {
				return err
			}
			if err := m.connect(ctx); err != nil {
				return err
			}
		}
		if parallel > 1 && len(m.created) > 0 && r.IntN(6) == 0 {
			v := m.created[r.IntN(len(m.created))]
			if _, err := m.exec(ctx, m.conn, fmt.Sprintf("ALTER MATERIALIZED VIEW %s SET (parallelism = %d)", v.name, 2+r.IntN(3))); err != nil {
				return err
			}
		}
		if len(m.created) > 0 && r.IntN(6) == 0 { // its operators go on with their state
			v := m.created[r.IntN(len(m.created))]
			if _, err := m.exec(ctx, m.conn, strings.Replace(v.create(), "CREATE", "CREATE OR REPLACE", 1)); err != nil && !tooMuch(err) {
				return err
			}
		}
		if i == len(m.changes)-1 || r.IntN(4) == 0 {
			if err := m.compare(ctx, ""); err != nil {
				return err
			}
		}
	}
	// A view whose plan one of the rules did not change has the same rows.
	if _, err := m.exec(ctx, m.conn, "SET streamdb.disabled_rules = '"+m.rule(r.IntN(1<<16))+"'"); err != nil {
		return err
	}
	defer func() { _, _ = m.exec(ctx, m.conn, "RESET streamdb.disabled_rules") }()
	for _, v := range m.created {
		late := *v
		late.name += "_late"
		if _, err := m.exec(ctx, m.conn, late.create()); err != nil && !tooMuch(err) {
			return err
		}
	}
	return m.compare(ctx, "_late")
}

// tooMuch tells that a query took too long or met what no value may be: nothing can be compared then.
func tooMuch(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == "57014" || strings.HasPrefix(e.Code, "22") || e.Code == "54000" || e.Code == "53200")
}

func (m *metamorphicRun) createView(ctx context.Context, v *genView) error {
	if slices.ContainsFunc(v.reads, func(n string) bool {
		return !slices.ContainsFunc(m.created, func(c *genView) bool { return c.name == n })
	}) {
		return nil
	}
	_, err := m.exec(ctx, m.conn, v.create())
	switch {
	case err != nil && tooMuch(err):
		m.skipped++
		return nil
	case err != nil:
		return err
	}
	m.created = append(m.created, v)
	if m.oracle != nil && !v.native {
		if _, err := m.exec(ctx, m.oracle, strings.Replace(v.create(), "MATERIALIZED ", "", 1)); err != nil {
			return fmt.Errorf("oracle: %w", err)
		}
	}
	return nil
}

// rule is one of the planner's rules.
func (m *metamorphicRun) rule(n int) string {
	rules := planner.Rules()
	return rules[n%len(rules)].Name
}

// without compares a question's answer with that of a plan without one of the rules.
func (m *metamorphicRun) without(ctx context.Context, rule, query string, want []string) error {
	if _, err := m.exec(ctx, m.conn, "SET streamdb.disabled_rules = '"+rule+"'"); err != nil {
		return err
	}
	got, err := m.exec(ctx, m.conn, query)
	if _, err := m.exec(ctx, m.conn, "RESET streamdb.disabled_rules"); err != nil {
		return err
	}
	switch {
	case err != nil && tooMuch(err):
		m.skipped++
		return nil
	case err != nil:
		return fmt.Errorf("without rule %s: %w", rule, err)
	case !slices.Equal(want, got):
		return fmt.Errorf("%s\n              query: %s\n  without %s: %s", query, strings.Join(want, " ; "), rule, strings.Join(got, " ; "))
	}
	return nil
}

func (m *metamorphicRun) compare(ctx context.Context, suffix string) error {
	if _, err := m.exec(ctx, m.conn, "SET statement_timeout = 0; FLUSH; SET statement_timeout = '"+metamorphicQuery+"'"); err != nil {
		return err
	}
	for _, v := range m.created {
		want, err := m.exec(ctx, m.conn, v.query)
		if err != nil {
			if tooMuch(err) {
				m.skipped++
				continue
			}
			return err
		}
		got, err := m.exec(ctx, m.conn, "TABLE "+v.name+suffix)
		if err != nil {
			var pe *pgconn.PgError
			if suffix != "" && errors.As(err, &pe) && pe.Code == "42P01" { // it took too long to create
				continue
			}
			return err
		}
		if !slices.Equal(want, got) {
			return fmt.Errorf("%s%s\n  query: %s\n   view: %s", v.name, suffix, strings.Join(want, " ; "), strings.Join(got, " ; "))
		}
		m.compared++
		if suffix == "" {
			if err := m.without(ctx, m.rule(int(m.seed)+m.compared), v.query, want); err != nil {
				return err
			}
		}
		m.rows += len(got)
		if m.oracle != nil && !v.native && suffix == "" {
			want, err := m.exec(ctx, m.oracle, v.query)
			switch {
			case err != nil && !tooMuch(err):
				return fmt.Errorf("oracle: %w", err)
			case err == nil && !slices.Equal(want, got):
				return fmt.Errorf("%s\n  PostgreSQL: %s\n        view: %s", v.name, strings.Join(want, " ; "), strings.Join(got, " ; "))
			}
		}
	}
	return nil
}

// reduce makes a failing program smaller and returns it as a script.
func (m *metamorphicRun) reduce(ctx context.Context, problem string) string {
	fails := func(p *program) bool {
		run := metamorphicRun{program: p, seed: m.seed, oracle: m.oracle}
		found := run.do(ctx)
		if found != "" {
			problem = found
		}
		return found != ""
	}
	for i := len(m.views) - 1; i >= 0; i-- {
		p := *m.program
		p.views = slices.Delete(slices.Clone(m.views), i, i+1)
		if len(p.views) > 0 && fails(&p) {
			m.program = &p
		}
	}
	for i := len(m.changes) - 1; i >= 0; i-- {
		p := *m.program
		p.changes = slices.Delete(slices.Clone(m.changes), i, i+1)
		if len(p.changes) > 0 && fails(&p) {
			m.program = &p
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n-- %s\n", problem, m.settings)
	for _, t := range m.tables {
		fmt.Fprintf(&b, "%s;\n", t.create())
	}
	for _, v := range m.views {
		fmt.Fprintf(&b, "%s;\n", v.create())
	}
	for _, c := range m.changes {
		fmt.Fprintf(&b, "%s;\n", c)
	}
	return b.String()
}
