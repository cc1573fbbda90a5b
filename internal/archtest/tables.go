package archtest

import (
	"fmt"
	"strings"
)

const module = "github.com/streamdb/streamdb"

// layer is a row of the layout: its packages may import those of the rows below and, where it says so, one another.
type layer struct {
	packages []string // folders, with all in them
	why      string
}

// layers stand from top to bottom.
var layers = []layer{
	{[]string{"cmd", "e2e", "examples"}, "programs use everything; nothing uses them"},
	{[]string{"."}, "the embedding API: what a program that contains the database sees"},
	{[]string{"server"}, "the composition root is the only place that knows all parts"},
	{[]string{"auth"}, "who may connect; knows roles through an interface"},
	{[]string{"connector/all"}, "the list of what connectors there are"},
	{[]string{"connector/nexmark", "connector/datagen", "connector/file", "connector/postgres"}, "a connector knows what is offered to it, not the engine that runs it"},
	{[]string{"exec"}, "runs plans over state with connectors and checkpoints; does not know names, sessions or SQL text"},
	{[]string{"planner"}, "turns statements into plans and runs nothing"},
	{[]string{"checkpoint"}, "cuts and stores state, whatever it is state of"},
	{[]string{"connector"}, "what a source and a sink are"},
	{[]string{"catalog"}, "objects and their dependencies"},
	{[]string{"pgwire"}, "the protocol alone"},
	{[]string{"pgcopy"}, "the data formats of COPY; no tables, no sessions"},
	{[]string{"planner/plan"}, "the plan as data: made by the planner, run by exec"},
	{[]string{"state"}, "keyed tables"},
	{[]string{"sql"}, "language: lexer, parser, expressions, functions"},
	{[]string{"storage"}, "object stores and logs"},
	{[]string{"types"}, "values, rows and chunks"},
	{[]string{"internal/pgerr", "internal/failpoint", "internal/invariants", "internal/slt", "internal/checkpointrows", "internal/archtest"}, "tools without knowledge of the product"},
	{[]string{"bench", "testdata", "docs", "tools"}, "measurements and texts; the product does not use them"},
}

// exception lets one row import another that the order of layers alone would forbid or forbids one that it would allow.
type exception struct {
	from, to string
	allowed  bool
	why      string
}

// exceptions are looked at first; the first that fits decides.
var exceptions = []exception{
	{"exec", "catalog", false, "jobs know relations by number; names are the server's"},
	{"exec", "planner/plan", true, "the plan is what it runs"},
	{"exec", "planner", false, "plans are data; making them is not its part"},
	{"planner", "connector", false, "plans hold options, not connections"},
	{"planner", "checkpoint", false, "planning reads no state"},
	{"planner", "state", false, "planning reads no state"},
	{"planner", "storage", false, "planning reads no files"},
	{"checkpoint", "connector", false, "positions are bytes to it"},
	{"checkpoint", "catalog", false, "the catalog is bytes to it"},
	{"checkpoint", "sql", false, "state has no language"},
	{"catalog", "pgwire", false, "objects do not speak"},
	{"catalog", "planner", false, "objects are stored with their text and plan as bytes"},
	{"connector", "catalog", false, "a source is told its columns"},
	{"connector", "pgwire", false, "a source does not talk to clients"},
	{"connector", "planner", false, "a source does not know the query"},
	{"connector", "state", false, "positions are all the state a source has"},
	{"connector", "exec", false, "it is called, it does not call"},
	{"pgwire", "sql", false, "text is the session's"},
	{"pgwire", "state", false, "the protocol reads no state"},
	{"pgwire", "storage", false, "the protocol reads no files"},
	{"pgwire", "planner", false, "plans are the session's"},
	{"state", "sql", false, "keys and values are bytes to it"},
	{"cmd", "bench", true, "streamdb bench"},
	{"server", "bench", true, "streamdb bench"},
	{"bench", "connector/nexmark", true, "the same events as the engine gets"},
	{"connector", "connector", true, "encodings and connectors share one vocabulary"},
}

// forbidden returns why a package may not import another, "" when it may. Tests may also import what stands above, when Go lets them: a test
// of the whole from below is worth more than the order.
func forbidden(from, to string, test bool) string {
	if test {
		return ""
	}
	f, fl := layerOf(from)
	t, tl := layerOf(to)
	switch {
	case fl < 0:
		return fmt.Sprintf("package %s is in no row of the layout: add it to layers", from)
	case tl < 0:
		return fmt.Sprintf("package %s is in no row of the layout: add it to layers", to)
	case f == t && fl == tl:
		return ""
	}
	for _, e := range exceptions {
		if within(from, e.from) && within(to, e.to) {
			if e.allowed {
				return ""
			}
			return fmt.Sprintf("%s does not import %s: %s", e.from, e.to, e.why)
		}
	}
	if fl > tl {
		return fmt.Sprintf("%s stands below %s (%s)", from, to, layers[fl].why)
	}
	return ""
}

// layerOf finds the row of a folder; the longest name wins, so planner/plan is not planner.
func layerOf(dir string) (name string, row int) {
	row = -1
	for i, l := range layers {
		for _, p := range l.packages {
			if (dir == p || strings.HasPrefix(dir, p+"/")) && len(p) > len(name) {
				name, row = p, i
			}
		}
	}
	return name, row
}

// confinement keeps a library in one place.
type confinement struct {
	library string
	in      []string
	tests   bool // tests may use it anywhere
	why     string
}

var confined = []confinement{
	{"github.com/pingcap/tidb/", []string{"sql", "planner"}, true, "the syntax tree of queries is made in sql and read by the binder; everything behind it has plans"},
	{"github.com/jackc/pgproto3/", []string{"pgwire"}, true, "one implementation of the protocol"},
	{"github.com/aws/", []string{"storage/object"}, true, "stores look alike from outside"},
	{"github.com/cockroachdb/pebble/", []string{"state"}, true, "keyed tables have two backends; nobody may depend on one"},
	{"github.com/alecthomas/kong", []string{"cmd"}, false, "flags are the program's, not the library's"},
	{"github.com/jackc/pgx/", []string{"cmd", "connector/postgres", "examples", "e2e", "internal/slt"}, true, "the server does not call itself as a client"},
	{"github.com/stretchr/testify", []string{"e2e", "exec/op/optest", "state/statetest", "storage/object/objecttest", "connector/connectortest"}, true, "assertions belong into tests"},
	{"pgregory.net/rapid", []string{"e2e", "exec/op/optest", "state/statetest"}, true, "random tests, MPL-2.0: not in the binary"},
}

// panics lists where a panic may be: recovered at the entry of the package, or a way out that a library demands.
var panics = map[string]string{
	"sql":                  "the parser unwinds by panic and recovers at Parse",
	"planner/bind_expr.go": "the binder unwinds by panic and recovers at its entries",
	"state/store.go":       "Pebble's Fatalf must not return; the job's subtask recovers",
	"exec/table.go":        "a row that this process encoded does not decode",
	"internal/invariants":  "a broken invariant ends the process, in builds that check for it",
}

// tables are files that are long because they list things.
var tables = map[string]string{}

// globals are package-level variables that change, by folder and name, with the reason.
var globals = map[string]string{
	"sql/internal/tidb.parsers": "a pool: a new parser costs more than the parse of a short query, and none has an identity",
}
