package server

import (
	"slices"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/types"
)

// maxFunctionArgs is PostgreSQL's limit on the parameters of a function.
const maxFunctionArgs = 100

// otherLanguages are PostgreSQL's languages that cannot run here.
var otherLanguages = []string{"plpgsql", "c", "internal", "plperl", "plperlu", "plpython3u", "pltcl", "pltclu"}

func (d *dispatch) createFunction(st *sql.CreateFunction) error {
	unlock, err := d.lockSchema()
	if err != nil {
		return err
	}
	defer unlock()
	schema, err := d.targetSchema(st.Name)
	if err != nil {
		return atNowhere(err)
	}
	if catalog.IsSystemSchema(schema) {
		return pgerr.Newf(pgerr.InsufficientPrivilege, "permission denied for schema %s", schema)
	}
	switch name := strings.ToLower(st.Language.Name); {
	case name == "sql" || name == "" && !st.Quoted && st.Body != "":
	case name == "":
		return pgerr.Newf(pgerr.InvalidFunctionDefinition, "no language specified")
	case slices.Contains(otherLanguages, name):
		return pgerr.Newf(pgerr.FeatureNotSupported, "functions in language %s are not supported", name).WithHint("Write the function in language SQL.").At(st.Language.Pos)
	default:
		return pgerr.Newf(pgerr.UndefinedObject, "language \"%s\" does not exist", st.Language.Name)
	}
	if st.Body == "" && !st.Quoted && st.Style == "" {
		return pgerr.Newf(pgerr.InvalidFunctionDefinition, "no function body specified")
	}
	f := &catalog.Function{
		Schema: schema, Name: st.Name.Name, ReturnsSet: st.SetOf, Body: st.Body, SearchPath: d.ss.vars.searchPath(), Definition: st.Text,
		Volatility: st.Volatility, Strict: st.Strict, Leakproof: st.Leakproof, Parallel: st.Parallel, Cost: st.Cost, Rows: st.Rows, Style: st.Style,
	}
	if f.Rows != 0 && !f.ReturnsSet {
		return pgerr.Newf(pgerr.InvalidParameterValue, "ROWS is not applicable when function does not return a set")
	}
	if err := d.functionSignature(st, f); err != nil {
		return err
	}
	var old *catalog.Function
	for _, o := range d.ss.snapshot().FunctionsNamed(schema, f.Name) {
		if sameArgs(o.Args, argTypes(f.Args)) {
			old = o
		}
	}
	if old != nil {
		if err := d.replaces(st, old, f); err != nil {
			return err
		}
		f.OID, f.Owner, f.ACL, f.Comment = old.OID, old.Owner, old.ACL, old.Comment
	}
	pf, err := planFunction(f)
	if err != nil {
		return bodyError(err, st)
	}
	if pf.Body == nil && pf.Returns.OID != types.OIDVoid {
		return pgerr.Newf(pgerr.InvalidFunctionDefinition, "return type mismatch in function declared to return %s", d.typeName(f.Returns)).
			WithDetail("Function's final statement must be SELECT or INSERT/UPDATE/DELETE RETURNING.")
	}
	deps, err := planner.CheckFunction(d.ss.planOptions(d.ss.snapshot(), nil), pf)
	if err != nil {
		return bodyError(err, st)
	}
	if f.Style != "" { // as in PostgreSQL, nobody looks into a body that is a string
		f.DependsOn = deps
	}
	if err := d.ss.update(func(tx *catalog.Tx) error {
		if f.OID == 0 {
			f.OID = uint32(tx.NextID())
		}
		tx.PutFunction(f)
		return nil
	}); err != nil {
		return err
	}
	return d.complete("CREATE FUNCTION")
}

// bodyError moves the position of an error in a function's body to the statement, where the body is there letter by letter.
func bodyError(err error, st *sql.CreateFunction) error {
	e := *pgerr.From(err)
	at := -1
	if st.Quoted {
		if i := strings.Index(st.Text[st.BodyPos-st.Start:], st.Body); i >= 0 && st.Body != "" {
			at = st.BodyPos + i
		}
	}
	if e.Pos < 0 || at < 0 {
		e.Pos = -1
	} else {
		e.Pos += at
	}
	return &e
}

func (d *dispatch) functionSignature(st *sql.CreateFunction, f *catalog.Function) error {
	if len(st.Args) > maxFunctionArgs {
		return pgerr.Newf("54023", "functions cannot have more than %d arguments", maxFunctionArgs)
	}
	seen := map[string]sql.FunctionParam{}
	in := func(p sql.FunctionParam) bool { return p.Mode == "" || p.Mode == catalog.ModeVariadic }
	unique := func(p sql.FunctionParam) error {
		o, twice := seen[p.Name]
		// What is only put in and what only comes out may share a name.
		if p.Name != "" && twice && !(in(p) && o.Mode == catalog.ModeOut || in(o) && p.Mode == catalog.ModeOut) {
			return pgerr.Newf(pgerr.InvalidFunctionDefinition, "parameter name \"%s\" used more than once", p.Name)
		}
		seen[p.Name] = p
		return nil
	}
	modes := false
	for i, a := range st.Args {
		t, err := d.functionType(a.Type)
		if err != nil {
			return err
		}
		if err := unique(a); err != nil {
			return err
		}
		arg := catalog.FunctionArg{Name: a.Name, Type: t, Mode: a.Mode}
		switch a.Mode {
		case catalog.ModeOut, catalog.ModeInOut:
			if st.Columns != nil {
				return pgerr.Newf(pgerr.InvalidFunctionDefinition, "OUT and INOUT arguments aren't allowed in TABLE functions")
			}
			f.Columns = append(f.Columns, catalog.FunctionArg{Name: a.Name, Type: t})
		case catalog.ModeVariadic:
			if slices.ContainsFunc(st.Args[i+1:], func(p sql.FunctionParam) bool { return p.Mode != catalog.ModeOut }) {
				return pgerr.Newf(pgerr.InvalidFunctionDefinition, "VARIADIC parameter must be the last input parameter")
			}
			if !t.IsArray() {
				return pgerr.Newf(pgerr.InvalidFunctionDefinition, "VARIADIC parameter must be an array")
			}
		}
		modes = modes || a.Mode != ""
		if a.Default != nil {
			if a.Mode == catalog.ModeOut {
				return pgerr.Newf(pgerr.InvalidFunctionDefinition, "only input parameters can have default values")
			}
			arg.Default = expressionText(a.Default)
		} else if n := len(f.Args); n > 0 && f.Args[n-1].Default != "" && a.Mode != catalog.ModeOut {
			return pgerr.Newf(pgerr.InvalidFunctionDefinition, "input parameters after one with a default value must also have defaults")
		}
		if f.Params = append(f.Params, arg); a.Mode != catalog.ModeOut {
			f.Args = append(f.Args, arg)
		}
	}
	for _, c := range st.Columns {
		t, err := d.functionType(c.Type)
		if err != nil {
			return err
		}
		c.Mode = catalog.ModeTable
		if err := unique(c); err != nil {
			return err
		}
		f.Columns = append(f.Columns, catalog.FunctionArg{Name: c.Name, Type: t})
		f.Params = append(f.Params, catalog.FunctionArg{Name: c.Name, Type: t, Mode: c.Mode})
	}
	if !modes { // Args and Columns tell all
		f.Params = nil
	}
	if f.Columns != nil && st.Columns == nil {
		f.Returns = types.T(types.OIDRecord)
		if len(f.Columns) == 1 {
			f.Returns = f.Columns[0].Type
		}
		if st.Returns == nil {
			return nil
		}
		t, err := planner.ResolveType(*st.Returns, d.ss.srv.planCatalog(d.ss.snapshot(), d.ss.vars.searchPath()))
		if err != nil || t.OID != f.Returns.OID {
			return pgerr.Newf(pgerr.InvalidFunctionDefinition, "function result type must be %s because of OUT parameters", d.typeName(f.Returns))
		}
		return nil
	}
	if st.Columns != nil {
		f.Returns = types.T(types.OIDRecord)
		if len(f.Columns) == 1 {
			f.Returns = f.Columns[0].Type
		}
		return nil
	}
	if st.Returns == nil {
		return pgerr.Newf(pgerr.InvalidFunctionDefinition, "function result type must be specified")
	}
	if t, err := planner.ResolveType(*st.Returns, d.ss.srv.planCatalog(d.ss.snapshot(), d.ss.vars.searchPath())); err == nil && t.OID == types.OIDVoid && !st.SetOf {
		f.Returns = types.Void
		return nil
	}
	t, err := d.functionType(st.Returns)
	if err == nil {
		f.Returns = t
		return nil
	}
	// A relation: rows of its columns.
	if o, ok := d.ss.resolve(sql.Name{Schema: st.Returns.Schema, Name: st.Returns.Name}); ok && o.Kind != catalog.Index && o.Kind != catalog.Sequence {
		f.Returns, f.RowOf = types.T(types.OIDRecord), o.ID
		for _, c := range o.Columns {
			if !c.Hidden && !c.Dropped {
				f.Columns = append(f.Columns, catalog.FunctionArg{Name: c.Name, Type: c.Type})
			}
		}
		return nil
	}
	if pgerr.CodeOf(err) == pgerr.UndefinedObject {
		return pgerr.Newf(pgerr.UndefinedObject, "type \"%s\" does not exist", strings.TrimSpace(st.Returns.Text))
	}
	return err
}

// functionType resolves the type of a parameter or of a result. Modifiers are dropped, as PostgreSQL does.
func (d *dispatch) functionType(tn *sql.TypeName) (types.Type, error) {
	t, err := planner.ResolveType(*tn, d.ss.srv.planCatalog(d.ss.snapshot(), d.ss.vars.searchPath()))
	if pgerr.CodeOf(err) == pgerr.UndefinedObject {
		return types.Type{}, pgerr.Newf(pgerr.UndefinedObject, "type %s does not exist", strings.TrimSpace(tn.Text))
	}
	if err != nil {
		return types.Type{}, atPos(err, tn.Pos)
	}
	if i, ok := types.InfoOf(t.OID); ok && i.Category == 'P' {
		return types.Type{}, pgerr.Newf(pgerr.FeatureNotSupported, "functions of type %s are not supported", t).At(tn.Pos).WithHint("Use RETURNS TABLE, or one function for each type.")
	}
	return types.T(t.OID), nil
}

func argTypes(args []catalog.FunctionArg) []types.OID {
	out := make([]types.OID, len(args))
	for i, a := range args {
		out[i] = a.Type.OID
	}
	return out
}

func sameArgs(args []catalog.FunctionArg, ts []types.OID) bool {
	return slices.Equal(argTypes(args), ts)
}

// replaces checks that f may take the place of old.
func (d *dispatch) replaces(st *sql.CreateFunction, old, f *catalog.Function) error {
	if !st.Replace {
		return pgerr.Newf(pgerr.DuplicateFunction, "function \"%s\" already exists with same argument types", f.Name)
	}
	if err := d.ownsFunction(old); err != nil {
		return err
	}
	hint := "Use DROP FUNCTION " + d.describeFunction(old) + " first."
	if old.Returns.OID != f.Returns.OID || old.ReturnsSet != f.ReturnsSet {
		return pgerr.Newf(pgerr.InvalidFunctionDefinition, "cannot change return type of existing function").WithHint("%s", hint)
	}
	if !slices.EqualFunc(old.Columns, f.Columns, func(a, b catalog.FunctionArg) bool { return a.Name == b.Name && a.Type.OID == b.Type.OID }) {
		return pgerr.Newf(pgerr.InvalidFunctionDefinition, "cannot change return type of existing function").
			WithDetail("Row type defined by OUT parameters is different.").WithHint("%s", hint)
	}
	for i, a := range old.Args {
		if a.Name != "" && a.Name != f.Args[i].Name {
			return pgerr.Newf(pgerr.InvalidFunctionDefinition, "cannot change name of input parameter \"%s\"", a.Name).WithHint("%s", hint)
		}
		if a.Default != "" && f.Args[i].Default == "" {
			return pgerr.Newf(pgerr.InvalidFunctionDefinition, "cannot remove parameter defaults from existing function").WithHint("%s", hint)
		}
	}
	return nil
}

func (d *dispatch) typeName(t types.Type) string {
	if name, ok := d.ss.srv.planCatalog(d.ss.snapshot(), d.ss.vars.searchPath()).TypeName(t.OID); ok {
		return name
	}
	return types.T(t.OID).String()
}

// fullTypeName names a type with what limits it, as in a cast.
func (d *dispatch) fullTypeName(t types.Type) string {
	if name, ok := d.ss.srv.planCatalog(d.ss.snapshot(), d.ss.vars.searchPath()).TypeName(t.OID); ok {
		return name
	}
	if e, ok := t.Elem(); ok && e.IsEnum() {
		return d.fullTypeName(e) + "[]"
	}
	return t.String()
}

// describeFunction names a function with its argument types, as messages do.
func (d *dispatch) describeFunction(f *catalog.Function) string {
	parts := make([]string, len(f.Args))
	for i, a := range f.Args {
		parts[i] = d.typeName(a.Type)
	}
	name := sql.QuoteIdent(f.Name)
	if !slices.Contains(d.ss.vars.searchPath(), f.Schema) {
		name = sql.QuoteIdent(f.Schema) + "." + name
	}
	return name + "(" + strings.Join(parts, ",") + ")"
}

// planFunction shows a function to the planner; its Body is nil when it is empty.
func planFunction(f *catalog.Function) (*planner.Function, error) {
	out := &planner.Function{ID: uint64(f.OID), Schema: f.Schema, Name: f.Name, Returns: f.Returns, Set: f.ReturnsSet, SearchPath: f.SearchPath, Strict: f.Strict}
	for _, a := range f.Args {
		arg := planner.FunctionArg{Name: a.Name, Type: a.Type}
		if a.Default != "" {
			q, err := parseExpression(a.Default)
			if err != nil {
				return nil, err
			}
			arg.Default = q
		}
		out.Args = append(out.Args, arg)
	}
	for i, c := range f.Columns {
		if c.Name == "" {
			c.Name = "column" + strconv.Itoa(i+1)
			if f.Returns.OID != types.OIDRecord { // one result without a name is called as the function is
				break
			}
		}
		out.Columns = append(out.Columns, types.Column{Name: c.Name, Type: c.Type})
	}
	out.Variadic = slices.ContainsFunc(f.Args, func(a catalog.FunctionArg) bool { return a.Mode == catalog.ModeVariadic })
	var err error
	out.Body, err = sql.ParseBody(f.Body)
	return out, err
}

// Functions implements planner.Catalog.
func (c *planCatalog) Functions(schema, name string) []*planner.Function {
	schemas := []string{schema}
	if schema == "" {
		schemas = c.path
	}
	var out []*planner.Function
	for _, s := range schemas {
		for _, f := range c.snap.FunctionsNamed(s, name) {
			pf, err := planFunction(f)
			if err != nil || pf.Body == nil && pf.Returns.OID != types.OIDVoid { // it was parsed when the function was made
				c.srv.log.Error().Err(err).Str("function", name).Msg("stored function does not parse")
				continue
			}
			out = append(out, pf)
		}
	}
	return out
}

func (d *dispatch) dropFunction(st *sql.DropFunction) error {
	if err := d.beginSchema(); err != nil {
		return err
	}
	snap := d.ss.snapshot()
	var fs []*catalog.Function
	for _, sig := range st.Functions {
		f, err := d.findFunction(snap, sig)
		if err != nil {
			if e := pgerr.From(err); st.IfExists && (e.Code == pgerr.UndefinedFunction || e.Code == pgerr.InvalidSchemaName || e.Code == pgerr.UndefinedObject) {
				message := e.Message
				if e.Code == pgerr.UndefinedFunction {
					message = strings.Replace(message, "could not find a function named \"", "function ", 1)
					message = strings.Replace(strings.TrimSuffix(message, "\""), "\" does", "() does", 1)
					if !strings.HasSuffix(message, "does not exist") {
						message += "() does not exist"
					}
				}
				if err := d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "%s, skipping", message); err != nil {
					return err
				}
				continue
			}
			return err
		}
		if err := d.ownsFunction(f); err != nil {
			return err
		}
		if !slices.Contains(fs, f) {
			fs = append(fs, f)
		}
	}
	targets := make([]thing, len(fs))
	for i, f := range fs {
		targets[i] = thing{kind: thingFunction, f: f}
	}
	if err := d.dropThings(targets, st.Cascade); err != nil {
		return err
	}
	return d.complete("DROP FUNCTION")
}

// findFunction finds the function that DROP FUNCTION names.
func (d *dispatch) findFunction(snap *catalog.Snapshot, sig sql.FunctionSignature) (*catalog.Function, error) {
	schemas := d.ss.vars.searchPath()
	if sig.Name.Schema != "" {
		if _, ok := snap.Namespace(sig.Name.Schema); !ok {
			return nil, pgerr.Newf(pgerr.InvalidSchemaName, "schema \"%s\" does not exist", sig.Name.Schema)
		}
		schemas = []string{sig.Name.Schema}
	}
	want := make([]types.OID, len(sig.Args))
	names := make([]string, len(sig.Args))
	for i, a := range sig.Args {
		t, err := planner.ResolveType(*a, d.ss.srv.planCatalog(snap, d.ss.vars.searchPath()))
		if err != nil {
			return nil, atNowhere(err)
		}
		want[i], names[i] = t.OID, d.typeName(t)
	}
	var found []*catalog.Function
	for _, s := range schemas {
		for _, f := range snap.FunctionsNamed(s, sig.Name.Name) {
			if sig.Any || sameArgs(f.Args, want) {
				found = append(found, f)
			}
		}
	}
	switch {
	case len(found) == 1 || len(found) > 1 && !sig.Any:
		return found[0], nil
	case len(found) > 1:
		return nil, pgerr.Newf(pgerr.AmbiguousFunction, "function name \"%s\" is not unique", sig.Name.Key()).
			WithHint("Specify the argument list to select the function unambiguously.")
	case len(d.ss.srv.registry.Lookup(sig.Name.Name)) > 0 && (sig.Name.Schema == "" || sig.Name.Schema == catalog.PgCatalog):
		return nil, pgerr.Newf(pgerr.DependentObjectsStillExist, "cannot drop function %s because it is required by the database system", sig.Name.Name)
	case sig.Any:
		return nil, pgerr.Newf(pgerr.UndefinedFunction, "could not find a function named \"%s\"", sig.Name.Key())
	}
	return nil, pgerr.Newf(pgerr.UndefinedFunction, "function %s(%s) does not exist", sig.Name.Key(), strings.Join(names, ","))
}
