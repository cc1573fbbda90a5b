package functions

import (
	_ "embed" // the tables below
	"sort"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// The signatures of PostgreSQL's functions, operators and casts, recorded from its catalogue:
//
//	functions  oid name args result kind(f a w s) strict volatility variadic defaults result-columns description
//	operators  symbol left right result function oid commutator negator merges hashes
//	casts      source target function context(i a e) method(f b i)
//
// A function of the list has an entry in the registry when a family file of this package implements it.
var (
	//go:embed data/functions.tsv
	functionData string
	//go:embed data/operators.tsv
	operatorData string
	//go:embed data/casts.tsv
	castData string
	//go:embed data/argnames.tsv
	argNameData string // function ID, names of its parameters with =default
	//go:embed data/keywords.tsv
	keywordData string // of pg_get_keywords
)

// Operator is one operator overload. Left is 0 for prefix operators.
type Operator struct {
	Symbol      string
	OID         uint32
	Left, Right types.OID
	Result      types.OID
	Func        *Func
	Commutator  uint32 // OIDs of operators, 0 for none
	Negator     uint32
	Merges      bool
	Hashes      bool
}

// CastEntry is one row of pg_cast. Func is nil for binary-coercible pairs.
type CastEntry struct {
	Source, Target types.OID
	Func           *Func
	Context        CastContext
	Binary         bool
}

// CastContext is the place a cast is asked for; each context allows the casts of those before it.
type CastContext byte

// The cast contexts.
const (
	Implicit CastContext = iota
	Assignment
	Explicit
)

// Registry is the immutable table of everything callable. Safe for concurrent use.
type Registry struct {
	byID      map[string]*Func
	byName    map[string][]*Func
	all       []*Func
	operators map[string][]*Operator
	ops       []*Operator
	orphans   []string // implementations of functions that the recorded catalogue lacks
	casts     map[[2]types.OID]*CastEntry
	castList  []*CastEntry
	user      UserTypes // of one statement, see WithTypes
}

// entry is the implementation side of one function, as the family files list them.
type entry struct {
	id      string // name(argument types)
	sig     string // for functions PostgreSQL does not have: result kind strict volatility [v|dN [columns]], e.g. "text f t i"
	names   string // of the parameters of such functions, each with =default when it may be left out
	example string
	doc     string
	impl
}

// Builtins builds the registry. Call it once and pass the result down.
func Builtins() *Registry {
	r := &Registry{
		byID: map[string]*Func{}, byName: map[string][]*Func{}, operators: map[string][]*Operator{}, casts: map[[2]types.OID]*CastEntry{},
	}
	impls := map[string]*entry{}
	for _, family := range families() {
		for i := range family {
			e := &family[i]
			impls[e.id] = e
		}
	}
	for _, f := range rows(functionData) {
		fn, ok := parseFunc(f)
		if !ok {
			continue
		}
		if e := impls[fn.ID]; e != nil {
			fn.impl, fn.Example = e.impl, e.example
			if fn.set != nil && fn.Kind == Scalar {
				// A function of one row: in FROM it yields a row also for NULL.
				fn.Kind, fn.Strict = SetOf, false
			}
			if e.doc != "" {
				fn.Doc = e.doc
			}
			delete(impls, fn.ID)
		}
		r.add(fn)
	}
	for _, f := range rows(argNameData) {
		if fn := r.byID[f[0]]; fn != nil {
			fn.nameArgs(strings.Split(f[1], ","))
		}
	}
	for _, e := range impls {
		if e.sig == "" {
			r.orphans = append(r.orphans, e.id)
			continue
		}
		r.add(ownFunc(e))
	}
	sort.Slice(r.all, func(i, j int) bool { return r.all[i].ID < r.all[j].ID })
	r.loadOperators()
	r.loadCasts()
	return r
}

func rows(data string) [][]string {
	lines := strings.Split(strings.TrimRight(data, "\n"), "\n")
	out := make([][]string, len(lines))
	for i, l := range lines {
		out[i] = strings.Split(l, "\t")
	}
	return out
}

func typeOID(name string) (types.OID, bool) {
	if name == "char" {
		return types.OIDChar, true
	}
	if name == "_char" {
		return types.ArrayOf(types.OIDChar), true
	}
	return types.TypeByName(name)
}

func parseTypes(list string) ([]types.OID, bool) {
	if list == "" {
		return nil, true
	}
	names := strings.Split(list, ",")
	out := make([]types.OID, len(names))
	for i, n := range names {
		oid, ok := typeOID(n)
		if !ok {
			return nil, false
		}
		out[i] = oid
	}
	return out, true
}

func parseFunc(f []string) (*Func, bool) {
	oid, err := strconv.ParseUint(f[0], 10, 32)
	if err != nil {
		return nil, false
	}
	args, ok := parseTypes(f[2])
	res, ok2 := typeOID(f[3])
	if !ok || !ok2 {
		return nil, false
	}
	fn := &Func{
		ID: f[1] + "(" + f[2] + ")", Name: f[1], OID: uint32(oid), Kind: FuncKind(f[4][0]), Args: args, Result: res,
		Strict: f[5] == "t", Volatility: Volatility(f[6][0]), Variadic: f[7] != "", Doc: f[10],
	}
	if fn.ID == "count()" {
		fn.ID = "count(*)"
	}
	fn.Defaults, _ = strconv.Atoi(f[8])
	if f[9] != "" {
		fn.Columns = parseColumns(f[9])
	}
	return fn, true
}

func parseColumns(list string) []types.Column {
	var out []types.Column
	for _, c := range strings.Split(list, ",") {
		name, typ, _ := strings.Cut(c, ":")
		if t, ok := typeOID(typ); ok {
			out = append(out, types.Column{Name: name, Type: types.T(t)})
		}
	}
	return out
}

// nameArgs takes the names of parameters, each with =default when it may be left out.
func (f *Func) nameArgs(names []string) {
	f.ArgNames, f.ArgDefaults = names, make([]string, len(names))
	for i, n := range names {
		f.ArgNames[i], f.ArgDefaults[i], _ = strings.Cut(n, "=")
	}
}

func ownFunc(e *entry) *Func {
	name, list, _ := strings.Cut(strings.TrimSuffix(e.id, ")"), "(")
	args, _ := parseTypes(list)
	f := strings.Fields(e.sig)
	res, _ := typeOID(f[0])
	fn := &Func{
		ID: e.id, Name: name, Kind: FuncKind(f[1][0]), Args: args, Result: res, Strict: f[2] == "t", Volatility: Volatility(f[3][0]),
		Doc: e.doc, Example: e.example, impl: e.impl,
	}
	if len(f) > 4 {
		fn.Variadic = f[4] == "v"
		fn.Defaults, _ = strconv.Atoi(strings.TrimPrefix(f[4], "d"))
	}
	if len(f) > 5 {
		fn.Columns = parseColumns(f[5])
	}
	if e.names != "" {
		fn.nameArgs(strings.Split(e.names, ","))
	}
	return fn
}

func (r *Registry) add(fn *Func) {
	r.byID[fn.ID] = fn
	r.byName[fn.Name] = append(r.byName[fn.Name], fn)
	r.all = append(r.all, fn)
}

func (r *Registry) loadOperators() {
	for _, f := range rows(operatorData) {
		o := &Operator{Symbol: f[0], Func: r.byID[f[4]], Merges: f[8] == "t", Hashes: f[9] == "t"}
		if o.Func == nil {
			continue
		}
		if f[1] != "" {
			o.Left, _ = typeOID(f[1])
		}
		o.Right, _ = typeOID(f[2])
		o.Result, _ = typeOID(f[3])
		o.OID, o.Commutator, o.Negator = parseOID(f[5]), parseOID(f[6]), parseOID(f[7])
		r.operators[o.Symbol] = append(r.operators[o.Symbol], o)
		r.ops = append(r.ops, o)
	}
}

func parseOID(s string) uint32 {
	n, _ := strconv.ParseUint(s, 10, 32)
	return uint32(n)
}

func (r *Registry) loadCasts() {
	for _, f := range rows(castData) {
		c := &CastEntry{Binary: f[4] == "b"}
		var ok, ok2 bool
		c.Source, ok = typeOID(f[0])
		c.Target, ok2 = typeOID(f[1])
		if !ok || !ok2 {
			continue
		}
		if f[2] != "" {
			c.Func = r.byID[f[2]]
		}
		switch f[3] {
		case "a":
			c.Context = Assignment
		case "e":
			c.Context = Explicit
		}
		r.casts[[2]types.OID{c.Source, c.Target}] = c
		r.castList = append(r.castList, c)
	}
}

// implemented reports whether calls of f can be executed: aggregates and window functions are implemented by the operators.
func (f *Func) implemented() bool {
	return f.kernel != nil || f.set != nil || f.byOperator
}

// Lookup returns the implemented overloads of name.
func (r *Registry) Lookup(name string) []*Func {
	var out []*Func
	for _, f := range r.byName[name] {
		if f.implemented() {
			out = append(out, f)
		}
	}
	return out
}

// ByID returns the function of that ID.
func (r *Registry) ByID(id string) (*Func, bool) {
	f, ok := r.byID[id]
	return f, ok && f.implemented()
}

// All returns every implemented function, ordered by ID.
func (r *Registry) All() []*Func {
	var out []*Func
	for _, f := range r.all {
		if f.implemented() {
			out = append(out, f)
		}
	}
	return out
}

// Operators returns every operator whose function is implemented. Do not modify what it points to.
func (r *Registry) Operators() []*Operator {
	var out []*Operator
	for _, o := range r.ops {
		if o.Func.implemented() {
			out = append(out, o)
		}
	}
	return out
}

// Unrecorded returns the IDs of implementations whose signature is not recorded: there must be none.
func (r *Registry) Unrecorded() []string { return r.orphans }

// Casts returns the rows of pg_cast. Do not modify what it points to.
func (r *Registry) Casts() []*CastEntry { return r.castList }

// Function implements expr.Library.
func (r *Registry) Function(id string) (expr.Impl, bool) {
	if inner, ok := strings.CutPrefix(id, arrayCastPrefix); ok {
		f, ok := r.Function(inner)
		if !ok || f.Kernel == nil {
			return expr.Impl{}, false
		}
		return expr.Impl{Kernel: arrayCast(f), Strict: true, Volatile: f.Volatile, Stable: f.Stable}, true
	}
	if inner, ok := strings.CutPrefix(id, variadicPrefix); ok {
		f, ok := r.Function(inner)
		if !ok || f.Kernel == nil {
			return expr.Impl{}, false
		}
		return expr.Impl{Kernel: variadicCall(f.Kernel), Volatile: f.Volatile, Stable: f.Stable}, true
	}
	f, ok := r.byID[id]
	if !ok || !f.implemented() {
		return expr.Impl{}, false
	}
	return expr.Impl{
		Kernel: f.kernel, Set: f.set, Filter: f.filter, Strict: f.Strict, Total: f.total, Columns: f.Columns,
		IntEquality: f.intEquality, IntModulus: f.intModulus,
		Volatile: f.Volatility == Volatile, Stable: f.Volatility == Stable || f.session,
	}, true
}
