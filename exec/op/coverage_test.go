package op_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(covering{m}) }

// covering runs all tests and fails when there is an operator, or a field of one, that no case of the harness had: whoever adds one adds a case.
type covering struct{ m *testing.M }

func (c covering) Run() int {
	code := c.m.Run()
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.bench", "test.fuzz"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return code
		}
	}
	if code != 0 {
		return code
	}
	missing, err := uncovered()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, m := range missing {
		fmt.Fprintln(os.Stderr, "no case of the harness has", m)
		code = 1
	}
	return code
}

// covered is what the cases of all tests have.
var covered = optest.Coverage{}

// runCase is optest.Run, and counts for what operators must have.
func runCase(t *testing.T, s optest.Spec) {
	t.Helper()
	require.NoError(t, covered.Add(&s, false))
	optest.Run(t, s)
}

// checkCases is optest.Check, and counts for what operators must have.
func checkCases(t *testing.T, n int, draw func(rt *rapid.T) optest.Spec) {
	t.Helper()
	optest.Check(t, n, func(rt *rapid.T) optest.Spec {
		s := draw(rt)
		require.NoError(t, covered.Add(&s, true))
		return s
	})
}

// exempt are fields that cases cannot have, and why. What is exempt covers what is below it.
var exempt = map[string]string{
	"join.Lookups":                "plans of queries only",
	"topn.LimitExpr":              "parameters of queries",
	"topn.OffsetExpr":             "parameters of queries",
	"topn.Early":                  "plans of queries only",
	"over.Calls.Frame.Start.Expr": "parameters of queries",
	"over.Calls.Frame.End.Expr":   "parameters of queries",
	"partial_agg.Calls.Distinct":  "not added up in parts",
	"partial_agg.Calls.Order":     "not added up in parts",
	"partial_agg.Calls.Direct":    "not added up in parts",
	"partial_agg.Calls.Count":     "of the aggregation that follows",
	"partial_agg.Calls.Squares":   "of the aggregation that follows",
	"recompute.Reason":            "for EXPLAIN only",
}

func isExempt(field string) bool {
	for {
		if _, ok := exempt[field]; ok {
			return true
		}
		i := strings.LastIndexByte(field, '.')
		if i < 0 {
			return false
		}
		field = field[:i]
	}
}

func uncovered() (missing []string, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), "../../planner/plan/plan.go", nil, 0)
	if err != nil {
		return nil, err
	}
	for _, text := range constants(f, "Kind") {
		n := &plan.Node{Kind: plan.Kind(text)}
		params := optest.Params(n)
		if params.IsValid() {
			params.Set(reflect.New(params.Type().Elem()))
		}
		if _, err := op.New(n); err != nil {
			continue // of the task loop, or inside a subplan
		}
		want := []string{optest.HasOracle, optest.HasRandom, optest.HasNulls}
		if n.Kind != plan.KindRecompute { // runs in one subtask
			want = append(want, optest.HasRescale)
		}
		if n.Kind != plan.KindProcTime && n.Kind != plan.KindPartialTopN { // over rows that only grow
			want = append(want, optest.HasDeletes)
		}
		for _, f := range optest.AllFields(n) {
			if !isExempt(text + "." + f) {
				want = append(want, f)
			}
		}
		missing = append(missing, covered.Missing(n.Kind, append(want, variants(f, n.Kind)...)...)...)
	}
	for _, k := range []plan.Kind{plan.KindRecurse, plan.KindWork, plan.KindInput} {
		if covered[k] == nil {
			missing = append(missing, string(k))
		}
	}
	return missing, nil
}

// variants lists what cases of a kind must have beside its fields.
func variants(f *ast.File, k plan.Kind) (want []string) {
	each := func(path, typ string) {
		for _, c := range constants(f, typ) {
			want = append(want, path+"="+c)
		}
	}
	switch k {
	case plan.KindJoin:
		for _, typ := range constants(f, "JoinType") {
			for _, with := range []string{"LeftKeys", "Residual", "Range", "Range.Expire", "Range.OnClose", "CloseKey", "one subtask", "Spread"} {
				if typ != string(plan.Full) || with != "Spread" {
					want = append(want, typ+" with "+with)
				}
			}
		}
	case plan.KindAsofJoin:
		want = []string{"Type=inner", "Type=left", "Op=<", "Op=<=", "Op=>", "Op=>="}
	case plan.KindTemporalJoin:
		want = []string{"Type=inner", "Type=left"}
	case plan.KindDynamicFilter:
		want = []string{"Op=<", "Op=<=", "Op=>", "Op=>="}
	case plan.KindTopN:
		want = []string{"Ranks=" + plan.RankNumber, "Ranks=" + plan.RankRank, "Ranks=" + plan.RankDense}
	case plan.KindOver:
		each("Calls.Frame.Mode", "FrameMode")
		each("Calls.Frame.Start.Kind", "BoundKind")
		each("Calls.Frame.End.Kind", "BoundKind")
		want = slices.DeleteFunc(want, func(s string) bool {
			return s == "Calls.Frame.Start.Kind="+string(plan.UnboundedFollowing) || s == "Calls.Frame.End.Kind="+string(plan.UnboundedPreceding)
		})
		for _, x := range []string{"", "current", "group", "ties"} {
			want = append(want, "Calls.Frame.Exclude="+x)
		}
	}
	return want
}

// constants returns the values of the string constants of a type.
func constants(f *ast.File, typ string) (out []string) {
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			v := s.(*ast.ValueSpec)
			if t, ok := v.Type.(*ast.Ident); !ok || t.Name != typ {
				continue
			}
			for _, e := range v.Values {
				if text, err := strconv.Unquote(strings.TrimSpace(e.(*ast.BasicLit).Value)); err == nil {
					out = append(out, text)
				}
			}
		}
	}
	return out
}
