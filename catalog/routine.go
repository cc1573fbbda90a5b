package catalog

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// OIDs of languages.
const (
	internalLanguage = 12 // of builtin functions
	sqlLanguage      = 14
)

// What PostgreSQL plans functions with unless they say otherwise.
const (
	builtinCost = 1
	userCost    = 100
	setRows     = 1000
)

// routine is a function as the catalogue describes it: of a user, or builtin.
type routine struct {
	oid               uint32
	schema, name      string
	language          string
	kind              byte // f a w
	params            []FunctionArg
	result            types.OID
	set               bool
	volatility        byte
	parallel          byte
	strict, leakproof bool
	cost, rows        float64
	source            string // what AS says
	body              string // of a function that is no string
	aggregateKind     byte   // n o h
	directArgs        int64
	table             bool // RETURNS TABLE
}

// routine finds a function by its OID.
func (i *Info) routine(oid uint32) (*routine, bool) {
	if f, ok := i.Snap.functions[oid]; ok {
		return userRoutine(f), true
	}
	if row, ok := recordedProcs()[oid]; ok {
		return i.recordedRoutine(row), true
	}
	for _, f := range functionList(i.Registry) {
		if f.oid == oid {
			return ownRoutine(f), true
		}
	}
	return nil, false
}

func userRoutine(f *Function) *routine {
	r := &routine{
		oid: f.OID, schema: f.Schema, name: f.Name, language: "sql", kind: 'f', params: f.Parameters(), result: f.Returns.OID, set: f.ReturnsSet, volatility: 'v',
		parallel: 'u', strict: f.Strict, leakproof: f.Leakproof, cost: userCost, source: f.Body,
	}
	if f.Returns.OID == types.OIDRecord && f.RowOf != 0 {
		r.result = types.OID(derivedOID(classRowType, f.RowOf))
	}
	if f.Volatility != "" {
		r.volatility = f.Volatility[0]
	}
	if f.Parallel != "" {
		r.parallel = f.Parallel[0]
	}
	if f.Cost != 0 {
		r.cost = f.Cost
	}
	if r.set {
		if r.rows = setRows; f.Rows != 0 {
			r.rows = f.Rows
		}
	}
	for _, p := range r.params {
		r.table = r.table || p.Mode == ModeTable
	}
	switch f.Style {
	case StyleReturn:
		r.source, r.body = "", "RETURN "+strings.TrimPrefix(f.Body, "SELECT ")
	case StyleAtomic:
		r.source, r.body = "", "BEGIN ATOMIC\n "+f.Body+";\nEND"
	}
	return r
}

func ownRoutine(f function) *routine {
	r := &routine{
		oid: f.oid, schema: PgCatalog, name: f.Name, language: "internal", kind: byte(f.Kind), result: f.Result, volatility: byte(f.Volatility), parallel: 's',
		strict: f.Strict, cost: builtinCost, source: f.Name, aggregateKind: 'n',
	}
	if f.Kind == functions.SetOf {
		r.kind, r.set, r.rows = 'f', true, setRows
	}
	for n, t := range f.Args {
		p := FunctionArg{Type: types.T(t)}
		if f.ArgNames != nil {
			p.Name, p.Default = f.ArgNames[n], f.ArgDefaults[n]
		}
		if f.Variadic && n == len(f.Args)-1 {
			p.Mode = ModeVariadic
		}
		r.params = append(r.params, p)
	}
	return r
}

// recordedProcs gives the rows of the recorded pg_proc by OID.
var recordedProcs = sync.OnceValue(func() map[uint32]int {
	m := map[uint32]int{}
	r := recordings["pg_proc"]()
	if r.err != nil {
		return m
	}
	for i := range r.rows.N {
		m[uint32(r.int(i, "oid"))] = i
	}
	return m
})

// array returns the elements of an array in a column of row i, nil for NULL.
func (r *recorded) array(i int, column string) []types.Datum {
	d := r.rows.Cols[r.cols[column]].Get(i)
	if d.Null {
		return nil
	}
	a, err := types.DecodeArray(d.Str)
	if err != nil {
		return nil
	}
	return a.Elems
}

func (i *Info) recordedRoutine(row int) *routine {
	p := recordings["pg_proc"]()
	flag := func(column string) bool { return p.rows.Cols[p.cols[column]].Bool[row] }
	r := &routine{
		oid: uint32(p.int(row, "oid")), schema: PgCatalog, name: p.str(row, "proname"), language: "internal", kind: p.str(row, "prokind")[0],
		result: types.OID(p.int(row, "prorettype")), set: flag("proretset"), volatility: p.str(row, "provolatile")[0], parallel: p.str(row, "proparallel")[0],
		strict: flag("proisstrict"), leakproof: flag("proleakproof"), cost: p.rows.Cols[p.cols["procost"]].Float[row], rows: p.rows.Cols[p.cols["prorows"]].Float[row],
		source: p.str(row, "prosrc"), aggregateKind: 'n',
	}
	switch p.int(row, "prolang") {
	case 13:
		r.language = "c"
	case sqlLanguage:
		r.language = "sql"
	}
	ts := p.array(row, "proallargtypes")
	if ts == nil {
		ts = p.array(row, "proargtypes")
	}
	names, modes := p.array(row, "proargnames"), p.array(row, "proargmodes")
	input := 0
	for n, t := range ts {
		a := FunctionArg{Type: types.T(types.OID(t.Int))}
		if n < len(names) {
			a.Name = names[n].Str
		}
		if n < len(modes) && modes[n].Str != "i" {
			a.Mode = modes[n].Str
		}
		if !a.output() {
			input++
		}
		r.params = append(r.params, a)
	}
	if f, ok := i.registered(r.oid); ok && len(f.ArgDefaults) > 0 {
		at := 0
		for n := range r.params {
			if a := &r.params[n]; !a.output() {
				if at < len(f.ArgDefaults) && f.ArgDefaults[at] != "" {
					a.Default = builtinDefault(a.Type.OID, f.ArgDefaults[at])
				}
				at++
			}
		}
	}
	if agg := recordings["pg_aggregate"](); r.kind == 'a' && agg.err == nil {
		for n := range agg.rows.N {
			if uint32(agg.int(n, "aggfnoid")) == r.oid {
				r.aggregateKind, r.directArgs = agg.str(n, "aggkind")[0], agg.int(n, "aggnumdirectargs")
			}
		}
	}
	return r
}

func (i *Info) registered(oid uint32) (*functions.Func, bool) {
	for _, f := range functionList(i.Registry) {
		if f.oid == oid {
			return f.Func, true
		}
	}
	return nil, false
}

// builtinDefault prints the default of a builtin function's parameter as PostgreSQL's deparser does.
func builtinDefault(t types.OID, text string) string {
	switch t {
	case types.OIDFloat8:
		if !strings.Contains(text, ".") {
			return text + ".0"
		}
	case types.OIDText, types.OIDJSONB, types.OIDJSON:
		return "'" + strings.ReplaceAll(strings.Trim(text, "'"), "'", "''") + "'::" + types.T(t).String()
	}
	return text
}

// typeText prints a type as format_type does.
func (i *Info) typeText(t types.OID, path []string) string {
	if _, ok := types.InfoOf(t); !ok {
		if name, ok := i.TypeName(uint32(t), path); ok {
			return name
		}
	}
	return types.T(t).String()
}

// param prints a parameter.
func (i *Info) param(p FunctionArg, defaults bool, path []string) string {
	var b strings.Builder
	b.WriteString(map[string]string{ModeOut: "OUT ", ModeInOut: "INOUT ", ModeVariadic: "VARIADIC "}[p.Mode])
	if p.Name != "" {
		b.WriteString(functions.QuoteIdent(p.Name) + " ")
	}
	b.WriteString(i.typeText(p.Type.OID, path))
	if defaults && p.Default != "" {
		b.WriteString(" DEFAULT " + p.Default)
	}
	return b.String()
}

// arguments prints the parameters of a function.
func (i *Info) arguments(r *routine, defaults bool, path []string) string {
	var parts []string
	for _, p := range r.params {
		if p.Mode != ModeTable {
			parts = append(parts, i.param(p, defaults, path))
		}
	}
	if r.aggregateKind == 'o' || r.aggregateKind == 'h' {
		direct := min(int(r.directArgs), len(parts))
		direct = max(direct, 0)
		first, keys := parts[:direct], parts[direct:]
		if len(keys) == 0 && len(parts) > 0 { // a variadic parameter stands for both
			keys = parts[len(parts)-1:]
		}
		return strings.TrimPrefix(strings.Join(first, ", ")+" ORDER BY "+strings.Join(keys, ", "), " ")
	}
	return strings.Join(parts, ", ")
}

func (i *Info) resultText(r *routine, path []string) string {
	if r.table {
		var parts []string
		for _, p := range r.params {
			if p.Mode == ModeTable {
				parts = append(parts, i.param(p, false, path))
			}
		}
		return "TABLE(" + strings.Join(parts, ", ") + ")"
	}
	t := i.typeText(r.result, path)
	if r.set {
		t = "SETOF " + t
	}
	return t
}

// FunctionText implements expr.CatalogInfo.
func (i *Info) FunctionText(oid uint32, part expr.FunctionPart, path []string) (string, bool, error) {
	r, ok := i.routine(oid)
	if !ok {
		return "", false, nil
	}
	switch part {
	case expr.FunctionArguments:
		return i.arguments(r, true, path), true, nil
	case expr.FunctionIdentity:
		return i.arguments(r, false, path), true, nil
	case expr.FunctionResult:
		return i.resultText(r, path), true, nil
	case expr.FunctionBody:
		return r.body, r.body != "", nil
	}
	if r.kind == 'a' {
		return "", false, pgerr.Newf(pgerr.WrongObjectType, "\"%s\" is an aggregate function", r.name)
	}
	return i.functionDefinition(r, path), true, nil
}

// functionDefinition prints CREATE OR REPLACE FUNCTION as pg_get_functiondef does.
func (i *Info) functionDefinition(r *routine, path []string) string {
	var b strings.Builder
	b.WriteString("CREATE OR REPLACE FUNCTION " + functions.QuoteIdent(r.schema) + "." + functions.QuoteIdent(r.name))
	b.WriteString("(" + i.arguments(r, true, path) + ")\n RETURNS " + i.resultText(r, path) + "\n LANGUAGE " + r.language + "\n")
	var options []string
	add := func(is bool, word string) {
		if is {
			options = append(options, word)
		}
	}
	add(r.kind == 'w', "WINDOW")
	add(r.volatility == 'i', "IMMUTABLE")
	add(r.volatility == 's', "STABLE")
	add(r.parallel == 's', "PARALLEL SAFE")
	add(r.parallel == 'r', "PARALLEL RESTRICTED")
	add(r.strict, "STRICT")
	add(r.leakproof, "LEAKPROOF")
	cost := float64(userCost)
	if r.language == "internal" || r.language == "c" {
		cost = builtinCost
	}
	add(r.cost != cost, "COST "+strconv.FormatFloat(r.cost, 'g', -1, 32))
	add(r.rows > 0 && r.rows != setRows, "ROWS "+strconv.FormatFloat(r.rows, 'g', -1, 32))
	if len(options) > 0 {
		b.WriteString(" " + strings.Join(options, " ") + "\n")
	}
	if r.body != "" {
		b.WriteString(r.body + "\n")
		return b.String()
	}
	tag := "$function"
	for strings.Contains(r.source, tag+"$") {
		tag += "x"
	}
	b.WriteString("AS " + tag + "$" + r.source + tag + "$\n")
	return b.String()
}

// Function implements expr.CatalogInfo.
func (i *Info) Function(oid uint32) (schema, name string, args []types.OID, ok bool) {
	f, ok := i.Snap.functions[oid]
	if !ok {
		return "", "", nil, false
	}
	return f.Schema, f.Name, f.ArgTypes(), true
}

// FunctionsNamed implements expr.CatalogInfo.
func (i *Info) FunctionsNamed(schema, name string, path []string) []uint32 {
	schemas := path
	if schema != "" {
		schemas = []string{schema}
	}
	var out []uint32
	var seen [][]types.OID
	for _, s := range schemas {
		for _, f := range i.Snap.FunctionsNamed(s, name) {
			args := f.ArgTypes()
			if slices.ContainsFunc(seen, func(o []types.OID) bool { return slices.Equal(o, args) }) {
				continue // hidden by one in an earlier schema
			}
			seen = append(seen, args)
			out = append(out, f.OID)
		}
	}
	return out
}

// userProcs lists the functions of users.
func (d *SystemData) userProcs(w *rowWriter) {
	for _, f := range d.Snap.Functions() {
		r := userRoutine(f)
		w.oid("oid", f.OID)
		w.str("proname", f.Name)
		w.oid("pronamespace", d.namespaceOID(f.Schema))
		w.oid("proowner", ownerOf(f.Owner))
		d.acl(w, "proacl", f.ACL)
		w.oid("prolang", sqlLanguage)
		w.float("procost", r.cost)
		w.float("prorows", r.rows)
		w.strs("prokind", "f", "provolatile", string(r.volatility), "proparallel", string(r.parallel))
		w.bool("proleakproof", r.leakproof)
		w.bool("proisstrict", r.strict)
		w.bool("proretset", r.set)
		w.int("pronargs", int64(len(f.Args)))
		w.oid("prorettype", uint32(r.result))
		var args, all []int64
		var modes, names, defaults []string
		plain, named := true, false
		for _, p := range r.params {
			mode := p.Mode
			if mode == "" {
				mode = "i"
			}
			plain, named = plain && mode == "i", named || p.Name != ""
			all, modes, names = append(all, int64(p.Type.OID)), append(modes, mode), append(names, p.Name)
			if p.output() {
				continue
			}
			args = append(args, int64(p.Type.OID))
			if p.Default != "" {
				defaults = append(defaults, p.Default)
			}
			if p.Mode == ModeVariadic {
				e, _ := p.Type.Elem()
				w.oid("provariadic", uint32(e.OID))
			}
		}
		w.array("proargtypes", args)
		if !plain {
			w.array("proallargtypes", all)
			w.texts("proargmodes", modes)
		}
		if named {
			w.texts("proargnames", names)
		}
		w.int("pronargdefaults", int64(len(defaults)))
		w.text("proargdefaults", strings.Join(defaults, ", "))
		w.str("prosrc", r.source)
		w.text("prosqlbody", r.body)
		d.acl(w, "proacl", f.ACL)
		w.end()
	}
}

// userRoutines writes information_schema.routines.
func (d *SystemData) userRoutines(w *rowWriter) {
	i := Info{Snap: d.Snap}
	for _, f := range d.Snap.Functions() {
		r := userRoutine(f)
		t := types.T(r.result)
		w.strs("specific_catalog", d.Database, "specific_schema", f.Schema, "specific_name", specificNameOf(f.Name, f.OID), "routine_catalog", d.Database,
			"routine_schema", f.Schema, "routine_name", f.Name, "data_type", i.routineType(t), "dtd_identifier", "0", "routine_type", "FUNCTION",
			"routine_body", "SQL", "external_language", "SQL", "parameter_style", "GENERAL", "sql_data_access", "MODIFIES", "security_type", "INVOKER")
		d.routineUDT(w, "type_udt", t)
		w.str("routine_definition", r.source)
		w.yes("is_deterministic", r.volatility == 'i')
		w.yes("is_null_call", r.strict)
		w.yes("schema_level_routine", true)
		w.int("max_dynamic_result_sets", 0)
		w.yes("as_locator", false)
		w.yes("is_udt_dependent", false)
		w.end()
	}
}

// userParameters writes information_schema.parameters.
func (d *SystemData) userParameters(w *rowWriter) {
	i := Info{Snap: d.Snap}
	for _, f := range d.Snap.Functions() {
		for n, p := range f.Parameters() {
			mode := "IN"
			switch p.Mode {
			case ModeOut, ModeTable:
				mode = "OUT"
			case ModeInOut:
				mode = "INOUT"
			}
			w.strs("specific_catalog", d.Database, "specific_schema", f.Schema, "specific_name", specificNameOf(f.Name, f.OID), "parameter_mode", mode,
				"data_type", i.routineType(p.Type), "dtd_identifier", strconv.Itoa(n+1))
			w.int("ordinal_position", int64(n+1))
			w.text("parameter_name", p.Name)
			w.text("parameter_default", p.Default)
			w.yes("is_result", false)
			w.yes("as_locator", false)
			d.routineUDT(w, "udt", p.Type)
			w.end()
		}
	}
}

// routineType spells a type as information_schema does: rows of relations are the user's too.
func (i *Info) routineType(t types.Type) string {
	if _, ok := types.InfoOf(t.OID); !ok && !t.IsArray() {
		return "USER-DEFINED"
	}
	return dataType(t)
}

func (d *SystemData) routineUDT(w *rowWriter, prefix string, t types.Type) {
	if id, class, _ := splitOID(uint32(t.OID)); class == classRowType {
		if o, ok := d.Snap.Get(id); ok {
			w.strs(prefix+"_catalog", d.Database, prefix+"_schema", o.Schema, prefix+"_name", o.Name)
			return
		}
	}
	d.udt(w, prefix, t)
}

func specificNameOf(name string, oid uint32) string { return name + "_" + number(oid) }

// functionDepends writes the rows of pg_depend about functions.
func (d *SystemData) functionDepends(row func(class, obj uint32, sub int64, refClass, refObj uint32, refSub int64, kind string)) {
	for _, f := range d.Snap.Functions() {
		row(pgProcOID, f.OID, 0, pgNamespaceOID, d.namespaceOID(f.Schema), 0, "n")
		seen := map[uint32]bool{}
		typ := func(t types.OID) {
			if e, ok := types.T(t).Elem(); ok {
				t = e.OID
			}
			if oid := uint32(t); uint64(oid) >= firstUserID && !seen[oid] {
				seen[oid] = true
				row(pgProcOID, f.OID, 0, pgTypeOID, oid, 0, "n")
			}
		}
		r := userRoutine(f)
		typ(r.result)
		for _, p := range r.params {
			typ(p.Type.OID)
		}
		for _, id := range f.DependsOn {
			switch _, enum := d.Snap.Enum(uint32(id)); {
			case enum:
				typ(types.OID(id))
			case d.Snap.functions[uint32(id)] != nil:
				row(pgProcOID, f.OID, 0, pgProcOID, uint32(id), 0, "n")
			default:
				if oid := derivedOID(0, id); oid != 0 {
					row(pgProcOID, f.OID, 0, pgClassOID, oid, 0, "n")
				}
			}
		}
	}
}
