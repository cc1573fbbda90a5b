package docs

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// oracle is a PostgreSQL to record the answers of the examples from; empty = compare with those recorded.
var oracle = flag.String("oracle", "", "URL of a PostgreSQL to record the answers of the functions' examples from")

const (
	examplesFile = "../testdata/functions/examples.txt"
	answersFile  = "../testdata/functions/answers.json"
	pageFile     = "functions.md"
	firstUserOID = 16384
	// exampleSetup makes what examples need.
	exampleSetup = "DROP TYPE IF EXISTS mood; CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy'); " +
		"DROP SEQUENCE IF EXISTS numbers; CREATE SEQUENCE numbers START 10; SELECT nextval('numbers')"
)

func setUp(t *testing.T, c *pgconn.PgConn) {
	t.Helper()
	_, err := c.Exec(context.Background(), exampleSetup).ReadAll()
	require.NoError(t, err)
}

// example is what follows SELECT, and what PostgreSQL gives for it.
type example struct {
	Query string
	Types []uint32    `json:",omitempty"`
	Rows  [][]*string `json:",omitempty"`
	Code  string      `json:",omitempty"`
}

// examples returns the example of each function and operator, by name: those of the file and, where it has none, those that stand beside the implementation.
func examples(t *testing.T, r *functions.Registry) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, f := range r.All() {
		if f.Example != "" && out[f.Name] == "" {
			out[f.Name] = f.Example
		}
	}
	text, err := os.ReadFile(examplesFile)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "# ") {
			continue
		}
		name, query, ok := strings.Cut(line, "\t")
		require.True(t, ok, line)
		out[name] = query
	}
	return out
}

// ask runs an example on a connection.
func ask(t *testing.T, c *pgconn.PgConn, query string) example {
	t.Helper()
	out := example{Query: query}
	results, err := c.Exec(context.Background(), "SELECT "+query).ReadAll()
	if err != nil {
		pe, ok := err.(*pgconn.PgError) //nolint:errorlint // as it comes
		require.True(t, ok, "%s: %v", query, err)
		out.Code = pe.Code
		return out
	}
	for _, f := range results[0].FieldDescriptions {
		oid := f.DataTypeOID
		if oid >= firstUserOID { // of the setup's enum type, another number on every server
			oid = 0
		}
		out.Types = append(out.Types, oid)
	}
	for _, row := range results[0].Rows {
		var cells []*string
		for _, v := range row {
			if v == nil {
				cells = append(cells, nil)
				continue
			}
			s := string(v)
			cells = append(cells, &s)
		}
		out.Rows = append(out.Rows, cells)
	}
	return out
}

func recorded(t *testing.T) map[string]example {
	t.Helper()
	data, err := os.ReadFile(answersFile)
	require.NoError(t, err)
	var list []example
	require.NoError(t, json.Unmarshal(data, &list))
	out := map[string]example{}
	for _, e := range list {
		out[e.Query] = e
	}
	return out
}

func recordAnswers(t *testing.T, list []string) {
	t.Helper()
	c, err := pgconn.Connect(context.Background(), *oracle)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close(context.Background())) }()
	setUp(t, c)
	var b bytes.Buffer
	b.WriteString("[\n")
	for i, q := range list {
		line, err := json.Marshal(ask(t, c, q))
		require.NoError(t, err)
		b.Write(line)
		if i < len(list)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("]\n")
	require.NoError(t, os.WriteFile(answersFile, b.Bytes(), 0o644))
}

// own are functions that PostgreSQL does not have: what streamdb answers is what the page shows.
func own(r *functions.Registry, name string) bool {
	for _, f := range r.Lookup(name) {
		if f.OID != 0 {
			return false
		}
	}
	return len(r.Lookup(name)) > 0
}

// documented lists the names of functions that the page has: not the ones that only an operator, a cast or a construct of the language stands for.
func documented(r *functions.Registry) []string {
	hidden := map[string]bool{}
	for _, o := range r.Operators() {
		if o.Func != nil {
			hidden[o.Func.Name] = true
		}
	}
	for _, c := range r.Casts() {
		if c.Func != nil {
			hidden[c.Func.Name] = true
		}
	}
	for _, name := range []string{"date_part", "timezone", "power", "pow", "mod", "abs", "sqrt", "cbrt", "mul", "starts_with"} { // of operators too, but called by name
		hidden[name] = false
	}
	var out []string
	for _, f := range r.All() {
		if strings.HasPrefix(f.Name, "$") || strings.HasPrefix(f.Name, "streamdb.") || // those of the schema streamdb are in checkpoints.md
			hidden[f.Name] || internalName[f.Name] || internalForm.MatchString(f.Name) {
			continue
		}
		out = append(out, f.Name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// internalForm are the functions behind indexes, hash tables, greatest and least.
var internalForm = regexp.MustCompile(`(larger|smaller|_?cmp|extended)$|^hash[a-su-z]|_hash$`)

// internalName are PostgreSQL's names behind others: dexp is exp.
var internalName = map[string]bool{
	"dexp": true, "dlog1": true, "dlog10": true, "dround": true, "dtrunc": true, "numeric_exp": true, "numeric_ln": true, "numeric_log": true, "numeric_sqrt": true, "like": true,
	"notlike": true, "pg_stat_get_numscans": true, "numeric_inc": true,
}

// TestFunctions: every function and operator has an example, its answer is PostgreSQL's, and the page lists them.
func TestFunctions(t *testing.T) {
	r := functions.Builtins()
	ex := examples(t, r)
	var names []string
	names = append(names, documented(r)...)
	for _, o := range r.Operators() {
		names = append(names, o.Symbol)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	var queries []string
	for _, n := range names {
		switch q := ex[bare(n)]; {
		case q == "":
			t.Errorf("%s has no example in %s", n, examplesFile)
		case !own(r, n):
			queries = append(queries, q)
		}
	}
	slices.Sort(queries)
	queries = slices.Compact(queries)
	if *oracle != "" {
		recordAnswers(t, queries)
	}
	want := recorded(t)
	conn := open(t)
	setUp(t, conn.PgConn())
	got := map[string]example{}
	for _, n := range names {
		q := ex[bare(n)]
		if q == "" {
			continue
		}
		e := ask(t, conn.PgConn(), q)
		got[q] = e
		if own(r, n) {
			continue
		}
		w, ok := want[q]
		if !ok {
			t.Errorf("no recorded answer of SELECT %s: run with -oracle", q)
			continue
		}
		if g, w := show(e), show(w); g != w {
			t.Errorf("SELECT %s: got %s, PostgreSQL gives %s", q, g, w)
		}
	}
	text := page(r, ex, got)
	if *rewrite {
		require.NoError(t, os.WriteFile(pageFile, []byte(text), 0o644))
	}
	have, err := os.ReadFile(pageFile)
	require.NoError(t, err)
	if !t.Failed() {
		require.Equal(t, string(have), text, "run with -rewrite")
	}
}

func bare(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

func show(e example) string {
	b, err := json.Marshal(e)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// page is functions.md.
func page(r *functions.Registry, ex map[string]string, got map[string]example) string {
	var b strings.Builder
	b.WriteString(`# Functions and operators

They are PostgreSQL's, with its names, types and answers; a test compares each example with what PostgreSQL 15 gives. ` + "`→`" + ` stands before the type
of the result. Constructs with a grammar of their own (` + "`CASE`, `COALESCE`, `EXTRACT`, `LIKE`, `SIMILAR TO`, `OVERLAPS`" + ` and so on) are in [sql.md](sql.md).
`)
	titles := []struct {
		kind  functions.FuncKind
		title string
	}{
		{functions.Scalar, "Scalar functions"}, {functions.Aggregate, "Aggregates"}, {functions.Window, "Window functions"}, {functions.SetOf, "Set-returning functions"},
	}
	for _, s := range titles {
		b.WriteString("\n## " + s.title + "\n\n| function | what it gives | example |\n|---|---|---|\n")
		for _, name := range documented(r) {
			var sigs []string
			doc := ""
			for _, f := range r.Lookup(name) {
				if f.Kind != s.kind {
					continue
				}
				sigs = append(sigs, signature(f))
				if doc == "" {
					doc = f.Doc
				}
			}
			if sigs == nil {
				continue
			}
			slices.Sort(sigs)
			const most = 8 // overloads listed
			if n := len(sigs); n > most {
				sigs = append(sigs[:most], fmt.Sprintf("and %d more", n-most))
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", cell(strings.Join(sigs, "<br>")), cell(doc), shown(got[ex[bare(name)]]))
		}
	}
	b.WriteString("\n## Operators\n\n| operator | what it gives | types | example |\n|---|---|---|---|\n")
	bySymbol := map[string][]*functions.Operator{}
	for _, o := range r.Operators() {
		bySymbol[o.Symbol] = append(bySymbol[o.Symbol], o)
	}
	var symbols []string
	for s := range bySymbol {
		symbols = append(symbols, s)
	}
	slices.Sort(symbols)
	for _, s := range symbols {
		var ts []string
		doc := ""
		for _, o := range bySymbol[s] {
			left := ""
			if o.Left != 0 {
				left = types.T(o.Left).String() + " "
			}
			ts = append(ts, left+s+" "+types.T(o.Right).String()+" → "+types.T(o.Result).String())
			if doc == "" && o.Func != nil {
				doc = o.Func.Doc
			}
		}
		const most = 6
		if n := len(ts); n > most {
			ts = append(ts[:most], fmt.Sprintf("and %d more", n-most))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", cell(s), cell(strings.TrimPrefix(doc, "implementation of "+s+" operator")), cell(strings.Join(ts, "<br>")), shown(got[ex[s]]))
	}
	b.WriteString("\n## Casts\n\n`i` = implicit, `a` = when stored into a column too, `e` = only where the cast is written.\n\n| from | to |\n|---|---|\n")
	targets := map[types.OID][]string{}
	var from []types.OID
	for _, c := range r.Casts() {
		if targets[c.Source] == nil {
			from = append(from, c.Source)
		}
		targets[c.Source] = append(targets[c.Source], types.T(c.Target).String()+" ("+string("iae"[c.Context])+")")
	}
	slices.SortFunc(from, func(a, b types.OID) int { return strings.Compare(types.T(a).String(), types.T(b).String()) })
	for _, f := range from {
		slices.Sort(targets[f])
		fmt.Fprintf(&b, "| %s | %s |\n", types.T(f), strings.Join(targets[f], ", "))
	}
	b.WriteString("\nEvery type casts to and from text through its text form, explicitly in both directions, and when stored into a text column.\n")
	return b.String()
}

func signature(f *functions.Func) string {
	var args []string
	for i, a := range f.Args {
		s := types.T(a).String()
		if f.Variadic && i == len(f.Args)-1 {
			s = "VARIADIC " + s
		}
		args = append(args, s)
	}
	return f.Name + "(" + strings.Join(args, ", ") + ") → " + types.T(f.Result).String()
}

func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

// shown is an example with its answer, rows one under the other.
func shown(e example) string {
	if e.Query == "" {
		return ""
	}
	var rows []string
	for _, row := range e.Rows {
		var cells []string
		for _, c := range row {
			if c == nil {
				cells = append(cells, "NULL")
				continue
			}
			cells = append(cells, *c)
		}
		rows = append(rows, "`"+cell(strings.Join(cells, " , "))+"`")
	}
	if e.Code != "" {
		rows = append(rows, "error "+e.Code)
	}
	return "`" + cell(e.Query) + "` ⇒ " + strings.Join(rows, "<br>")
}
