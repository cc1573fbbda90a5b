package functions

import (
	"crypto/rand"
	"slices"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// defaultVersion is reported where no session says otherwise.
const defaultVersion = "14.0"

// systemFunctions lists what clients ask about session and catalogue.
func systemFunctions() []entry {
	own := func(id, sig, doc string, k expr.Kernel) entry {
		return entry{id: id, sig: sig, doc: doc, impl: impl{kernel: k}}
	}
	yes := each(func(c *call) error { return c.setBool(true) })
	no := each(func(c *call) error { return c.setBool(false) })
	null := each(func(c *call) error { c.setNull(); return nil })
	text := func(f func(f *expr.Frame) string) expr.Kernel { return nullary(strSlot, f) }
	user := text(func(f *expr.Frame) string { return env(f).User })
	sessionUser := text(func(f *expr.Frame) string {
		if e := env(f); e.SessionUser != "" {
			return e.SessionUser
		}
		return env(f).User
	})
	database := text(func(f *expr.Frame) string { return env(f).Database })
	out := []entry{
		fn("version()", "", text(func(f *expr.Frame) string {
			v, ok := setting(f, "server_version")
			if !ok {
				v = defaultVersion
			}
			return "PostgreSQL " + v + " (streamdb)"
		})),
		fn("current_database()", "", database), own("current_catalog()", "name f t s", "CURRENT_CATALOG", database),
		fn("current_user()", "", user), fn("session_user()", "", sessionUser), fn("getpgusername()", "", user),
		own("user()", "name f t s", "USER", user), own("current_role()", "name f t s", "CURRENT_ROLE", user),
		fn("current_schema()", "", each(func(c *call) error {
			for _, s := range env(c.f).Schemas {
				if s != "pg_catalog" && !temporary(s) && schemaExists(c.f, s) {
					return c.setStr(s)
				}
			}
			c.setNull()
			return nil
		})),
		fn("current_schemas(bool)", "", each(currentSchemas)),
		fn("current_setting(text)", "", each(currentSetting)), fn("current_setting(text,bool)", "", each(currentSetting)),
		fn("pg_backend_pid()", "", nullary(intSlot, func(f *expr.Frame) int64 { return int64(env(f).SessionID) })),
		fn("pg_typeof(any)", "pg_typeof(1.5)", each(func(c *call) error { return c.setInt(int64(c.args[0].Type.OID)) })),
		{id: "format_type(oid,int4)", example: "format_type(1043,9)", impl: impl{kernel: each(formatType), catalog: true}},
		fn("gen_random_uuid()", "", each(randomUUID)),
		fn("pg_encoding_to_char(int4)", "pg_encoding_to_char(6)", map1(intSlot, strSlot, func(v int64) string {
			switch v {
			case encodingUTF8:
				return "UTF8"
			case 0:
				return "SQL_ASCII"
			}
			return ""
		})),
		fn("pg_char_to_encoding(name)", "pg_char_to_encoding('UTF8')", map1(strSlot, intSlot, func(s string) int64 {
			if isUTF8Name(s) {
				return encodingUTF8
			}
			return -1
		})),
		fn("getdatabaseencoding()", "", text(func(*expr.Frame) string { return "UTF8" })),
		fn("pg_client_encoding()", "", text(func(*expr.Frame) string { return "UTF8" })),
		fn("pg_is_in_recovery()", "", no), fn("pg_is_other_temp_schema(oid)", "", no), fn("row_security_active(text)", "", no), fn("row_security_active(oid)", "", no),
		fn("pg_my_temp_schema()", "", nullary(intSlot, func(*expr.Frame) int64 { return 0 })),
		fn("pg_trigger_depth()", "", nullary(intSlot, func(*expr.Frame) int64 { return 0 })),
		fn("pg_jit_available()", "", no),
		fn("pg_size_pretty(int8)", "pg_size_pretty(123456789::int8)", map1(intSlot, strSlot, sizePretty)),
	}
	out = append(append(out, sessionFunctions()...), advisoryFunctions()...)
	for _, e := range catalogFunctions(null, yes, no) {
		e.impl.catalog = true
		out = append(out, e)
	}
	out = append(out, sequenceFunctions()...)
	return append(out, privilegeFunctions()...)
}

const encodingUTF8 = 6

var noEnv = &expr.Env{}

func env(f *expr.Frame) *expr.Env {
	if f.Env == nil {
		return noEnv
	}
	return f.Env
}

func setting(f *expr.Frame, name string) (string, bool) {
	if get := env(f).Settings; get != nil {
		return get(name)
	}
	return "", false
}

func nameArray(names []string) string {
	ds := make([]types.Datum, len(names))
	for i, n := range names {
		ds[i] = types.Datum{Type: types.NameT, Str: n}
	}
	return types.EncodeArray(types.NewArray(types.OIDName, ds))
}

// temporary reports whether a schema of the path is that of the session's temporary relations, which is searched without being named.
func temporary(schema string) bool { return strings.HasPrefix(schema, "pg_temp_") }

// schemaExists reports whether a schema of the search path is there: the path may name others.
func schemaExists(f *expr.Frame, name string) bool {
	if env(f).Catalog == nil {
		return true
	}
	_, ok := env(f).Catalog.NamespaceOID(name)
	return ok
}

// currentSchemas lists the search path; true adds pg_catalog, which is searched first unless the path names it.
func currentSchemas(c *call) error {
	var out []string
	named := false
	for _, s := range env(c.f).Schemas {
		named = named || s == "pg_catalog"
	}
	if c.bool(0) {
		for _, s := range env(c.f).Schemas {
			if temporary(s) {
				out = append(out, s)
			}
		}
		if !named {
			out = append(out, "pg_catalog")
		}
	}
	for _, s := range env(c.f).Schemas {
		if !temporary(s) && schemaExists(c.f, s) {
			out = append(out, s)
		}
	}
	return c.setStr(nameArray(out))
}

func currentSetting(c *call) error {
	name := c.str(0)
	if v, ok := setting(c.f, name); ok {
		return c.setStr(v)
	}
	if c.has(1) && c.bool(1) {
		c.setNull()
		return nil
	}
	return pgerr.Newf(pgerr.UndefinedObject, "unrecognized configuration parameter %q", name)
}

func typeIsVisible(c *call) error {
	oid := uint32(c.int(0))
	if _, ok := types.InfoOf(types.OID(oid)); ok {
		return c.setBool(true)
	}
	if c.f.Env != nil && c.f.Env.Catalog != nil {
		if name, ok := c.f.Env.Catalog.TypeName(oid, c.f.Env.Schemas); ok {
			parts, _ := SplitName(strings.TrimSuffix(name, "[]"))
			return c.setBool(len(parts) == 1)
		}
	}
	c.setNull()
	return nil
}

func formatType(c *call) error {
	if c.null(0) {
		c.setNull()
		return nil
	}
	t := types.T(types.OID(c.int(0)))
	if !c.null(1) {
		t.Mod = int32(c.int(1))
	}
	if _, builtin := types.InfoOf(t.OID); !builtin && c.f.Env != nil && c.f.Env.Catalog != nil {
		if name, ok := c.f.Env.Catalog.TypeName(uint32(t.OID), c.f.Env.Schemas); ok {
			if t.Mod >= 0 {
				elem, isArray := strings.CutSuffix(name, "[]")
				name = elem + "(" + strconv.Itoa(int(t.Mod)) + ")"
				if isArray {
					name += "[]"
				}
			}
			return c.setStr(name)
		}
	}
	if !c.null(1) && t.Mod == -1 && t.OID == types.OIDBpchar {
		return c.setStr("bpchar")
	}
	return c.setStr(t.String())
}

func randomUUID(c *call) error {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return pgerr.Wrap(pgerr.InternalError, err, "could not generate random values")
	}
	b[6], b[8] = b[6]&0x0F|0x40, b[8]&0x3F|0x80
	return c.setStr(string(b[:]))
}

// sizePretty is PostgreSQL's pg_size_pretty: a unit is left when the number reaches 10 of the next one.
func sizePretty(size int64) string {
	units := [...]string{"bytes", "kB", "MB", "GB", "TB", "PB"}
	limit := [...]int64{10 * 1024, 20*1024 - 1, 20*1024 - 1, 20*1024 - 1, 20*1024 - 1}
	shift := [...]uint{9, 10, 10, 10, 10}
	for i, u := range units {
		if i == len(units)-1 || max(size, -size) < limit[i] {
			if i > 0 {
				// The value carries one bit more than the unit, for rounding.
				if size > 0 {
					size++
				} else if size < 0 {
					size--
				}
				size /= 2
			}
			return strconv.FormatInt(size, 10) + " " + u
		}
		size /= 1 << shift[i]
	}
	return ""
}

// withCatalog calls f with the catalogue; without one the result is NULL.
func withCatalog(f func(c *call, cat expr.CatalogInfo) (string, bool)) expr.Kernel {
	return each(func(c *call) error {
		cat := env(c.f).Catalog
		if cat == nil {
			c.setNull()
			return nil
		}
		s, ok := f(c, cat)
		if !ok {
			c.setNull()
		}
		return c.setStr(s)
	})
}

// commentClasses names the catalogue that holds objects of unknown class for the one-argument obj_description.
const commentClassAny = ""

func catalogFunctions(null, yes, no expr.Kernel) []entry {
	viewdef := withCatalog(func(c *call, cat expr.CatalogInfo) (string, bool) {
		return cat.ViewDefinition(uint32(c.int(0)), env(c.f).Schemas)
	})
	viewdefByName := withCatalog(func(c *call, cat expr.CatalogInfo) (string, bool) {
		oid, ok := cat.RelationOID(c.str(0), env(c.f).Schemas)
		if !ok {
			return "", false
		}
		return cat.ViewDefinition(oid, env(c.f).Schemas)
	})
	indexdef := withCatalog(func(c *call, cat expr.CatalogInfo) (string, bool) {
		column := 0
		if c.has(1) {
			column = int(c.int(1))
		}
		return cat.IndexDefinition(uint32(c.int(0)), column, c.has(2) && c.bool(2))
	})
	condef := withCatalog(func(c *call, cat expr.CatalogInfo) (string, bool) {
		return cat.ConstraintDefinition(uint32(c.int(0)), c.has(1) && c.bool(1))
	})
	sized := func(of ...func(expr.CatalogInfo, uint32) (int64, bool)) expr.Kernel { // the sum
		return each(func(c *call) error {
			total, cat := int64(0), env(c.f).Catalog
			for _, f := range of {
				n, ok := int64(0), cat != nil
				if ok {
					n, ok = f(cat, uint32(c.int(0)))
				}
				if !ok {
					c.setNull()
					return nil
				}
				total += n
			}
			return c.setInt(total)
		})
	}
	size := sized(expr.CatalogInfo.RelationSize)
	databaseSize := each(func(c *call) error { // there is one database, in one tablespace
		if cat, e := env(c.f).Catalog, env(c.f); cat != nil {
			if n, ok := cat.DatabaseSize(e.Database); ok {
				return c.setInt(n)
			}
		}
		c.setNull()
		return nil
	})
	// Default expressions are kept as their text.
	exprText := map1(strSlot, strSlot, same[string])
	out := []entry{
		fn("pg_get_userbyid(oid)", "", each(func(c *call) error {
			oid := uint32(c.int(0))
			if cat := env(c.f).Catalog; cat != nil {
				if name, ok := cat.RoleName(oid); ok {
					return c.setStr(name)
				}
			}
			return c.setStr("unknown (OID=" + strconv.FormatUint(uint64(oid), 10) + ")")
		})),
		fn("age(xid)", "", each(func(c *call) error { return c.setInt(0) })), // rows of the catalogue have no age
		fn("pg_table_is_visible(oid)", "", each(func(c *call) error {
			cat := env(c.f).Catalog
			if cat == nil {
				c.setNull()
				return nil
			}
			return c.setBool(cat.RelationVisible(uint32(c.int(0)), env(c.f).Schemas))
		})),
		fn("pg_get_viewdef(oid)", "", viewdef), fn("pg_get_viewdef(oid,bool)", "", viewdef), fn("pg_get_viewdef(oid,int4)", "", viewdef),
		fn("pg_get_viewdef(text)", "", viewdefByName), fn("pg_get_viewdef(text,bool)", "", viewdefByName),
		fn("pg_get_indexdef(oid)", "", indexdef), fn("pg_get_indexdef(oid,int4,bool)", "", indexdef),
		fn("pg_get_constraintdef(oid)", "", condef), fn("pg_get_constraintdef(oid,bool)", "", condef),
		fn("pg_get_expr(pg_node_tree,oid)", "", exprText), fn("pg_get_expr(pg_node_tree,oid,bool)", "", exprText),
		fn("pg_get_function_result(oid)", "", functionText(expr.FunctionResult)), fn("pg_get_function_arguments(oid)", "", functionText(expr.FunctionArguments)),
		fn("pg_get_function_identity_arguments(oid)", "", functionText(expr.FunctionIdentity)), fn("pg_get_functiondef(oid)", "", functionText(expr.FunctionDefinition)),
		fn("pg_get_function_sqlbody(oid)", "", functionText(expr.FunctionBody)), fn("pg_function_is_visible(oid)", "", each(functionIsVisible)),
		fn("pg_get_partkeydef(oid)", "", null), fn("pg_get_triggerdef(oid)", "", null), fn("pg_get_triggerdef(oid,bool)", "", null),
		fn("pg_get_ruledef(oid)", "", null), fn("pg_get_ruledef(oid,bool)", "", null),
		fn("pg_get_statisticsobjdef_columns(oid)", "", null), fn("pg_get_statisticsobjdef(oid)", "", null),
		fn("pg_get_partition_constraintdef(oid)", "", null), fn("pg_get_replica_identity_index(regclass)", "", null),
		fn("pg_relation_is_publishable(regclass)", "", no), fn("pg_partition_root(regclass)", "", null), fn("pg_relation_filenode(regclass)", "", null),
		fn("pg_relation_size(regclass)", "", size), fn("pg_relation_size(regclass,text)", "", size), fn("pg_total_relation_size(regclass)", "", sized(expr.CatalogInfo.RelationSize, expr.CatalogInfo.IndexesSize)),
		fn("pg_table_size(regclass)", "", size), fn("pg_indexes_size(regclass)", "", sized(expr.CatalogInfo.IndexesSize)),
		fn("pg_database_size(oid)", "", size), fn("pg_tablespace_size(oid)", "", databaseSize), fn("pg_tablespace_size(name)", "", databaseSize),
		fn("pg_database_size(name)", "", each(func(c *call) error {
			cat := env(c.f).Catalog
			if cat == nil {
				c.setNull()
				return nil
			}
			n, ok := cat.DatabaseSize(c.str(0))
			if !ok {
				return pgerr.Newf(pgerr.InvalidCatalogName, "database \"%s\" does not exist", c.str(0))
			}
			return c.setInt(n)
		})),
		fn("pg_tablespace_location(oid)", "", each(func(c *call) error { return c.setStr("") })),
		fn("obj_description(oid)", "", comment(func(c *call) (string, int32) { return commentClassAny, 0 })),
		fn("obj_description(oid,name)", "", comment(func(c *call) (string, int32) { return c.str(1), 0 })),
		fn("shobj_description(oid,name)", "", comment(func(c *call) (string, int32) { return c.str(1), 0 })),
		fn("col_description(oid,int4)", "", comment(func(c *call) (string, int32) { return "pg_class", int32(c.int(1)) })),
		fn("regclass(text)", "", each(func(c *call) error {
			oid, err := relationNamed(c.f.Env, c.str(0))
			c.out.Int[c.row] = int64(oid)
			return err
		})),
	}
	for _, name := range [...]string{"operator", "opclass", "opfamily", "collation"} {
		out = append(out, fn("pg_"+name+"_is_visible(oid)", "", yes))
	}
	for _, name := range [...]string{"conversion", "ts_parser", "ts_dict", "ts_template", "ts_config"} { // there are none
		out = append(out, fn("pg_"+name+"_is_visible(oid)", "", null))
	}
	out = append(out, entry{
		id: "pg_stat_get_numscans(oid)", sig: "int8 f t s", doc: "number of scans of a table or index: not counted",
		impl: impl{kernel: each(func(c *call) error { return c.setInt(0) })},
	})
	out = append(out, fn("pg_type_is_visible(oid)", "", each(typeIsVisible)))
	out = append(out, entry{id: "pg_statistics_obj_is_visible(oid)", sig: "bool f t s", impl: impl{kernel: yes}})
	for _, t := range [...]struct {
		name string
		oid  types.OID
	}{
		{"regclass", types.OIDRegclass},
		{"regtype", types.OIDRegtype},
		{"regproc", types.OIDRegproc},
		{"regprocedure", types.OIDRegprocedure},
		{"regnamespace", types.OIDRegnamespace},
		{"regrole", types.OIDRegrole},
		{"regoper", types.OIDRegoper},
		{"regoperator", types.OIDRegoperator},
		{"regcollation", types.OIDRegcollation},
	} {
		out = append(out, fn("to_"+t.name+"(text)", "", each(func(c *call) error {
			oid, err := parseReg(c.f.Env, t.oid, c.str(0))
			if err != nil {
				switch pgerr.CodeOf(err) {
				case pgerr.SyntaxError, pgerr.InvalidName, pgerr.InvalidTextRepresentation, pgerr.UndefinedParameter, pgerr.TooManyArguments:
					return err
				}
				c.setNull()
			}
			return c.setInt(int64(oid))
		})))
	}
	return out
}

func comment(args func(c *call) (class string, sub int32)) expr.Kernel {
	return withCatalog(func(c *call, cat expr.CatalogInfo) (string, bool) {
		class, sub := args(c)
		return cat.Comment(uint32(c.int(0)), class, sub)
	})
}

// functionText describes a function; without a catalogue the result is NULL.
func functionText(part expr.FunctionPart) expr.Kernel {
	return each(func(c *call) error {
		if cat := env(c.f).Catalog; cat != nil {
			s, ok, err := cat.FunctionText(uint32(c.int(0)), part, env(c.f).Schemas)
			if err != nil {
				return err
			}
			if ok {
				return c.setStr(s)
			}
		}
		c.setNull()
		return nil
	})
}

func functionIsVisible(c *call) error {
	oid := uint32(c.int(0))
	if cat := env(c.f).Catalog; cat != nil {
		if _, name, args, ok := cat.Function(oid); ok {
			return c.setBool(!builtinHides(name, args) && slices.Contains(cat.FunctionsNamed("", name, env(c.f).Schemas), oid))
		}
		if _, ok, err := cat.FunctionText(oid, expr.FunctionResult, env(c.f).Schemas); !ok || err != nil {
			c.setNull()
			return err
		}
	}
	return c.setBool(true)
}

func timezoneNames(c *call) ([][]types.Datum, error) {
	var out [][]types.Datum
	now := txnTime(c.f)
	for _, name := range types.ZoneNames() {
		l, ok := types.LookupZone(name)
		if !ok {
			continue
		}
		off, abbrev := types.ZoneOffset(now, l)
		out = append(out, []types.Datum{
			textDatum(name), textDatum(abbrev),
			{Type: types.IntervalT, Ivl: types.Interval{Micros: int64(off) * microsPerSecond}},
			{Type: types.Bool, Bool: types.TimeFromTimestamp(now).In(l).IsDST()},
		})
	}
	return out, nil
}

func noRows(*call) ([][]types.Datum, error) { return nil, nil }

// keywordRows lists PostgreSQL's keywords: word, category, whether AS may be left out before it, and both in words.
func keywordRows(*call) ([][]types.Datum, error) {
	list := rows(keywordData)
	out := make([][]types.Datum, len(list))
	for i, f := range list {
		out[i] = []types.Datum{textDatum(f[0]), {Type: types.T(types.OIDChar), Str: f[1]}, {Type: types.Bool, Bool: f[2] == "t"}, textDatum(f[3]), textDatum(f[4])}
	}
	return out, nil
}

// optionsTable takes options such as fillfactor=70 apart.
func optionsTable(c *call) ([][]types.Datum, error) {
	a, err := c.array(0)
	if err != nil {
		return nil, err
	}
	var out [][]types.Datum
	for _, d := range a.Elems {
		k, v, found := strings.Cut(d.Str, "=")
		val := textDatum(v)
		val.Null = !found
		out = append(out, []types.Datum{textDatum(k), val})
	}
	return out, nil
}
