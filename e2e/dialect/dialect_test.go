// Package dialect compares streamdb's reading of SQL with that of PostgreSQL's own parser, statement by statement: what PostgreSQL accepts is accepted,
// and means the same. It is a module of its own, because the oracle (libpg_query, PostgreSQL 17's grammar as WebAssembly) is of no use to
// streamdb itself.
package dialect

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	pgquery "github.com/wasilibs/go-pgquery"
	"github.com/wasilibs/go-pgquery/parser"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/sql/sqlprint"
)

var mutations = flag.Int("mutations", 4000, "mutated statements of TestMutations")

// What the inputs and their mutations must reach.
const (
	minAccepted      = 0.98  // of the queries that PostgreSQL accepts
	minSamePosition  = 0.95  // of the mutated statements that both refuse
	maxDisagreements = 0.005 // of the mutated statements
	mutationSeed     = 11
	shown            = 40 // examples printed of each kind of difference
)

// corpus reads the stored inputs: this folder's, the differential suite's, the parser's, and the sqllogictest files of the repository.
func corpus(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"testdata/*.sql", "../differential/testdata/*.sql", "../../sql/testdata/roundtrip.sql"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			out = append(out, split(t, f)...)
		}
	}
	files, err := filepath.Glob("../../testdata/*/*.slt")
	if err != nil || len(files) == 0 {
		t.Fatal("no sqllogictest files", err)
	}
	for _, f := range files {
		out = append(out, logicTest(t, f)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// split cuts a file of statements at the semicolons that the oracle's scanner sees; a line that it cannot scan is left out with its neighbours.
func split(t *testing.T, file string) []string {
	t.Helper()
	var out []string
	text := read(t, file)
	result, err := pgquery.Scan(text)
	if err != nil { // one statement a line
		for line := range strings.Lines(text) {
			out = append(out, strings.TrimSuffix(strings.TrimSpace(line), ";"))
		}
		return out
	}
	start := int32(0)
	for _, tok := range result.Tokens {
		if tok.Token == ';' {
			out = append(out, strings.TrimSpace(text[start:tok.Start]))
			start = tok.End
		}
	}
	return append(out, strings.TrimSpace(text[start:]))
}

// logicTest returns the statements of a sqllogictest file.
func logicTest(t *testing.T, file string) []string {
	t.Helper()
	var out, stmt []string
	inside := false
	for line := range strings.Lines(read(t, file) + "\n\n") {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "statement ") || strings.HasPrefix(line, "query "):
			inside, stmt = true, nil
		case inside && (line == "" || line == "----"):
			out = append(out, strings.TrimSuffix(strings.TrimSpace(strings.Join(stmt, "\n")), ";"))
			inside = false
		case inside && strings.HasPrefix(line, `\i `):
			stmt = append(stmt, read(t, filepath.Join(filepath.Dir(file), line[len(`\i `):])))
		case inside:
			stmt = append(stmt, line)
		}
	}
	return out
}

// tree is PostgreSQL's parse of a text with one statement, without what is not meaning; kind names its statement.
func tree(text string) (kind string, root any, err error) {
	js, err := pgquery.ParseToJSON(text)
	if err != nil {
		return "", nil, err
	}
	var doc struct {
		Stmts []struct {
			Stmt map[string]any `json:"stmt"`
		} `json:"stmts"`
	}
	if err := json.Unmarshal([]byte(js), &doc); err != nil {
		return "", nil, err
	}
	if len(doc.Stmts) != 1 {
		return "", nil, errNotOne
	}
	for k := range doc.Stmts[0].Stmt {
		kind = k
	}
	return kind, normal(doc.Stmts[0].Stmt), nil
}

var errNotOne = errors.New("not one statement")

// noise are fields that do not change what a statement means here.
var noise = map[string]bool{"location": true, "funcformat": true, "ctematerialized": true, "stmt_location": true, "stmt_len": true, "coercionform": true, "row_format": true, "name_location": true, "alias_location": true, "isall_location": true, "catalogname": true}

// normal drops noise, and writes the same meaning in one way: operators spelled by keyword as operators, the directions of sort keys in full,
// nested AND and OR flat.
func normal(n any) any {
	switch n := n.(type) {
	case []any:
		out := make([]any, len(n))
		for i := range n {
			out[i] = normal(n[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, v := range n {
			if !noise[k] {
				out[k] = normal(v)
			}
		}
		for key, v := range out {
			kind := key
			if bare[key] != "" {
				kind = bare[key]
			} else if len(out) > 1 { // a field that is called like a node
				continue
			}
			if inner, ok := v.(map[string]any); ok && rewrites[kind] != nil {
				rewrites[kind](inner)
			}
		}
		return out
	}
	return n
}

// bare are the fields whose nodes are not wrapped in their kind.
var bare = map[string]string{"over": "WindowDef", "typeName": "TypeName", "larg": "SelectStmt", "rarg": "SelectStmt"}

var rewrites = map[string]func(map[string]any){
	"A_Expr": func(e map[string]any) {
		switch e["kind"] {
		case "AEXPR_LIKE", "AEXPR_ILIKE", "AEXPR_SIMILAR":
			e["kind"] = "AEXPR_OP"
		}
	},
	"A_Indirection": func(e map[string]any) { // (a[1]).b is a[1].b
		inner, ok := e["arg"].(map[string]any)["A_Indirection"].(map[string]any)
		path, _ := e["indirection"].([]any)
		if _, field := path[0].(map[string]any)["String"]; ok && field {
			e["arg"], e["indirection"] = inner["arg"], append(append([]any{}, inner["indirection"].([]any)...), path...)
		}
	},
	"RangeFunction": func(e map[string]any) { delete(e, "lateral") }, // implied
	"SortBy": func(e map[string]any) {
		if e["sortby_dir"] == "SORTBY_DEFAULT" {
			e["sortby_dir"] = "SORTBY_ASC"
		}
		if e["sortby_dir"] == "SORTBY_USING" { // whether nulls come first follows from the operator
			delete(e, "sortby_nulls")
		}
		if e["sortby_nulls"] == "SORTBY_NULLS_DEFAULT" {
			e["sortby_nulls"] = "SORTBY_NULLS_LAST"
			if e["sortby_dir"] == "SORTBY_DESC" {
				e["sortby_nulls"] = "SORTBY_NULLS_FIRST"
			}
		}
	},
	"WindowDef": func(e map[string]any) {
		const between = 0x10 // ROWS n PRECEDING is ROWS BETWEEN n PRECEDING AND CURRENT ROW
		if f, ok := e["frameOptions"].(float64); ok {
			e["frameOptions"] = float64(int(f) &^ between)
		}
	},
	"TypeName": func(e map[string]any) { // types by keyword are those of the catalogue
		if names, ok := e["names"].([]any); ok && len(names) == 2 && reflect.DeepEqual(names[0], map[string]any{"String": map[string]any{"sval": "pg_catalog"}}) {
			e["names"] = names[1:]
		}
	},
	"SelectStmt": func(e map[string]any) { // LIMIT ALL is no limit
		if c, ok := e["limitCount"].(map[string]any); ok {
			if k, ok := c["A_Const"].(map[string]any); ok && k["isnull"] == true {
				delete(e, "limitCount")
			}
		}
	},
	"BoolExpr": func(e map[string]any) {
		args, _ := e["args"].([]any)
		var flat []any
		for _, a := range args {
			m, _ := a.(map[string]any)
			if inner, ok := m["BoolExpr"].(map[string]any); ok && inner["boolop"] == e["boolop"] && e["boolop"] != "NOT_EXPR" {
				nested, _ := inner["args"].([]any)
				flat = append(flat, nested...)
				continue
			}
			flat = append(flat, a)
		}
		e["args"] = flat
	},
}

// ours parses text as streamdb does. printed is empty for a statement that is no query.
func ours(text string) (printed string, err error) {
	stmts, err := sql.Parse(text)
	if err != nil {
		return "", err
	}
	if len(stmts) != 1 {
		return "", errNotOne
	}
	q, ok := stmts[0].(*sql.Query)
	if !ok || len(q.Changes) > 0 {
		return "", nil
	}
	return sqlprint.Query(pgext.QueryOf(q.Stmt)), nil
}

// later reports a construct of PostgreSQL 16 and 17, whose grammar the oracle has: the SQL/JSON constructors took over function names.
func later(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(text, "json_object(") || strings.Contains(text, "json_array(") || strings.Contains(text, "json_object (") || strings.Contains(text, "json_array (")
}

// refusedByChoice tells errors that say so from those of a grammar that lacks something.
func refusedByChoice(err error) bool { return pgerr.CodeOf(err) == pgerr.FeatureNotSupported }

type tally struct {
	t        *testing.T
	counts   map[string]int
	examples map[string][]string
}

func newTally(t *testing.T) *tally { return &tally{t, map[string]int{}, map[string][]string{}} }

func (y *tally) add(kind, format string, args ...any) {
	y.counts[kind]++
	if format != "" && len(y.examples[kind]) < shown {
		y.examples[kind] = append(y.examples[kind], fmt.Sprintf(format, args...))
	}
}

func (y *tally) report() {
	y.t.Helper()
	for _, kind := range slices.Sorted(maps.Keys(y.counts)) {
		y.t.Logf("%-34s %6d", kind, y.counts[kind])
	}
	for _, kind := range slices.Sorted(maps.Keys(y.examples)) {
		for _, e := range y.examples[kind] {
			y.t.Logf("%s: %s", kind, e)
		}
	}
}

// TestCorpus: queries that PostgreSQL accepts are accepted, and print as SQL that PostgreSQL reads as the same tree.
func TestCorpus(t *testing.T) {
	y := newTally(t)
	for _, text := range corpus(t) {
		kind, want, err := tree(text)
		if err != nil {
			if errors.Is(err, errNotOne) {
				continue
			}
			y.add("PostgreSQL refuses", "")
			continue
		}
		if later(text) {
			y.add("later than PostgreSQL 15", "")
			continue
		}
		printed, err := ours(text)
		if kind != "SelectStmt" {
			if err != nil && !refusedByChoice(err) {
				y.add("other statement: refused", "%s\n\t%v", text, err)
				continue
			}
			y.add("other statement", "")
			continue
		}
		y.add("queries", "")
		switch {
		case err != nil && refusedByChoice(err):
			y.add("query: refused by choice", "%s\n\t%v", text, err)
		case err != nil:
			y.add("query: refused", "%s\n\t%v", text, err)
		case printed == "": // SELECT INTO
			y.add("query: accepted", "")
		default:
			y.add("query: accepted", "")
			_, got, err := tree(printed)
			if err != nil || !reflect.DeepEqual(got, want) {
				y.add("query: DIFFERENT TREE", "%s\n\t%s\n\t%v", text, printed, err)
			}
		}
	}
	y.report()
	if y.counts["query: DIFFERENT TREE"] > 0 {
		t.Error("a round trip changed what a query means")
	}
	if float64(y.counts["query: accepted"]) < minAccepted*float64(y.counts["queries"]) {
		t.Errorf("fewer than %.0f %% of the queries are accepted", 100*minAccepted)
	}
}

// TestMutations breaks statements by deleting, doubling, swapping and moving tokens: both parsers must agree which are still SQL, on what they mean, and
// on the place of the error.
func TestMutations(t *testing.T) {
	y := newTally(t)
	var inputs []string
	for _, s := range corpus(t) {
		if kind, _, err := tree(s); err == nil && kind == "SelectStmt" && len(s) < 2000 {
			if _, err := ours(s); err == nil {
				inputs = append(inputs, s)
			}
		}
	}
	r := rand.New(rand.NewPCG(mutationSeed, mutationSeed))
	for range *mutations {
		text := mutate(r, inputs)
		kind, want, pgErr := tree(text)
		if errors.Is(pgErr, errNotOne) || (pgErr == nil && kind != "SelectStmt") || later(text) {
			continue
		}
		printed, err := ours(text)
		y.add("mutations", "")
		switch {
		case pgErr != nil && err != nil:
			y.add("both refuse", "")
			var e *parser.Error
			if errors.As(pgErr, &e) && e.Cursorpos-1 == pgerr.From(err).Pos {
				y.add("both refuse at the same place", "")
			}
		case pgErr != nil:
			y.add("only we accept", "%s\n\t%v", text, pgErr)
		case err != nil && refusedByChoice(err):
			y.add("refused by choice", "")
		case err != nil:
			y.add("only PostgreSQL accepts", "%s\n\t%v", text, err)
		case printed != "":
			y.add("both accept", "")
			if _, got, err := tree(printed); err != nil || !reflect.DeepEqual(got, want) {
				y.add("DIFFERENT TREE", "%s\n\t%s\n\t%v", text, printed, err)
			}
		}
	}
	y.report()
	total := float64(y.counts["mutations"])
	if bad := y.counts["only we accept"] + y.counts["only PostgreSQL accepts"] + y.counts["DIFFERENT TREE"]; float64(bad) > maxDisagreements*total {
		t.Errorf("%d of %.0f mutations are read in two ways", bad, total)
	}
	if float64(y.counts["both refuse at the same place"]) < minSamePosition*float64(y.counts["both refuse"]) {
		t.Errorf("fewer than %.0f %% of the errors are at PostgreSQL's place", 100*minSamePosition)
	}
}

// mutate changes one to three tokens of an input, or takes a run of tokens from another one.
func mutate(r *rand.Rand, inputs []string) string {
	toks := tokens(inputs[r.IntN(len(inputs))])
	for range 1 + r.IntN(3) {
		if len(toks) < 3 {
			break
		}
		i, j := r.IntN(len(toks)), r.IntN(len(toks))
		switch r.IntN(5) {
		case 0:
			toks = slices.Delete(toks, i, i+1)
		case 1:
			toks = slices.Insert(toks, i, toks[j])
		case 2:
			toks[i], toks[j] = toks[j], toks[i]
		case 3:
			toks[i] = toks[j]
		case 4:
			other := tokens(inputs[r.IntN(len(inputs))])
			if k := r.IntN(len(other)); len(other) > 0 {
				toks = slices.Insert(toks, i, other[k:min(k+1+r.IntN(3), len(other))]...)
			}
		}
	}
	return strings.Join(toks, " ")
}

func tokens(text string) []string {
	result, err := pgquery.Scan(text)
	if err != nil {
		return strings.Fields(text)
	}
	var out []string
	for _, tok := range result.Tokens {
		if s := text[tok.Start:tok.End]; !strings.HasPrefix(s, "--") && !strings.HasPrefix(s, "/*") {
			out = append(out, s)
		}
	}
	return out
}
