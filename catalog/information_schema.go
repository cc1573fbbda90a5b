package catalog

import (
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// What the standard leaves to the implementation, as PostgreSQL answers.
const (
	charsetName   = "UTF8"
	maxTextOctets = 1 << 30 // character_octet_length of texts without a limit
	maxCharBytes  = 4       // of one character in UTF-8
)

// inInformationSchema reports whether the standard knows the kind of relation: materialized views it does not.
func inInformationSchema(r *relation) bool { return r.kind != 'm' && r.kind != 'S' }

func (r *relation) insertable() bool { return r.object != nil && r.kind == 'r' }

// table sets the three columns that name a relation.
func (d *SystemData) table(w *rowWriter, prefix string, r *relation) {
	w.strs(prefix+"_catalog", d.Database, prefix+"_schema", r.schema, prefix+"_name", r.name)
}

func isCatalogName(d *SystemData, w *rowWriter) {
	w.str("catalog_name", d.Database)
	w.end()
}

func isSchemata(d *SystemData, w *rowWriter) {
	for _, n := range d.Snap.Namespaces() {
		x := n.Securable()
		if !d.usable(x.Owner) && d.Snap.Has(d.Role, x, AllPrivileges(ClassSchema)) == 0 {
			continue
		}
		w.strs("catalog_name", d.Database, "schema_name", n.Name, "schema_owner", d.roleName(ownerOf(x.Owner)))
		w.end()
	}
}

func isTables(d *SystemData, w *rowWriter) {
	for _, r := range d.relations() {
		if !inInformationSchema(r) || !d.visible(r) {
			continue
		}
		d.table(w, "table", r)
		switch r.kind {
		case 'v':
			w.str("table_type", "VIEW")
		case 'f':
			w.str("table_type", "FOREIGN")
		default:
			w.str("table_type", "BASE TABLE")
		}
		w.yes("is_insertable_into", r.insertable())
		w.yes("is_typed", false)
		w.end()
	}
}

func isViews(d *SystemData, w *rowWriter) {
	for _, r := range d.relations() {
		if r.kind != 'v' || !d.visible(r) {
			continue
		}
		d.table(w, "table", r)
		if r.object != nil && d.usable(r.owner()) {
			w.str("view_definition", d.Snap.viewDefinition(r.object, d.Path))
		}
		w.str("check_option", "NONE")
		for _, c := range [...]string{"is_updatable", "is_insertable_into", "is_trigger_updatable", "is_trigger_deletable", "is_trigger_insertable_into"} {
			w.yes(c, false)
		}
		w.end()
	}
}

func isViewTableUsage(d *SystemData, w *rowWriter) {
	for _, r := range d.userRelations() {
		if r.kind != 'v' {
			continue
		}
		for _, id := range r.object.DependsOn {
			if o, ok := d.Snap.Get(id); ok && d.usable(o.Owner) {
				d.table(w, "view", r)
				d.table(w, "table", objectRelation(o))
				w.end()
			}
		}
	}
}

func isColumns(d *SystemData, w *rowWriter) {
	for _, r := range d.relations() {
		if !inInformationSchema(r) {
			continue
		}
		for _, a := range r.columns {
			if !d.visibleColumn(r, a) {
				continue
			}
			d.table(w, "table", r)
			w.str("column_name", a.Name)
			w.int("ordinal_position", a.num)
			w.yes("is_nullable", !a.NotNull)
			if a.Generated != "" {
				w.strs("is_generated", "ALWAYS", "generation_expression", a.Generated)
			} else {
				w.str("is_generated", "NEVER")
				w.text("column_default", d.Snap.defaultText(a.Column, d.Path))
			}
			w.str("data_type", dataType(a.Type))
			typeNumbers(w, a.Type)
			if typeDetails(a.Type).collation == collationC {
				w.strs("collation_catalog", d.Database, "collation_schema", PgCatalog, "collation_name", "C")
			}
			d.udt(w, "udt", a.Type)
			w.str("dtd_identifier", strconv.FormatInt(a.num, 10))
			w.yes("is_self_referencing", false)
			q := d.identity(a.Column)
			w.yes("is_identity", q != nil)
			w.yes("identity_cycle", q != nil && q.Cycle)
			if q != nil {
				num := func(n int64) string { return strconv.FormatInt(n, 10) }
				w.strs("identity_generation", strings.ToUpper(a.Identity), "identity_start", num(q.Start), "identity_increment", num(q.Increment),
					"identity_maximum", num(q.Max), "identity_minimum", num(q.Min))
			}
			w.yes("is_updatable", r.insertable() && a.Generated == "")
			w.end()
		}
	}
}

// collationC is the OID of the collation of names.
const collationC = 950

// dataType is how information_schema spells a type.
func dataType(t types.Type) string {
	if t.IsArray() {
		return "ARRAY"
	}
	if t.IsEnum() {
		return "USER-DEFINED"
	}
	t.Mod = -1
	return t.String()
}

func (d *SystemData) udt(w *rowWriter, prefix string, t types.Type) {
	if id := enumOf(t); id != 0 {
		if e, ok := d.Snap.Enum(uint32(id)); ok {
			name := e.Name
			if t.IsArray() {
				name = arrayPrefix + name
			}
			w.strs(prefix+"_catalog", d.Database, prefix+"_schema", e.Schema, prefix+"_name", name)
			return
		}
	}
	w.strs(prefix+"_catalog", d.Database, prefix+"_schema", PgCatalog)
	if i, ok := types.InfoOf(t.OID); ok {
		w.str(prefix+"_name", i.Name)
	}
}

// typeNumbers sets the lengths and precisions of a column's type.
func typeNumbers(w *rowWriter, t types.Type) {
	integer := func(bits int64) {
		w.int("numeric_precision", bits)
		w.int("numeric_precision_radix", 2)
		w.int("numeric_scale", 0)
	}
	switch t.OID {
	case types.OIDText, types.OIDVarchar, types.OIDBpchar:
		if t.Mod >= 0 && t.OID != types.OIDText {
			n := int64(t.Mod) - 4 // the modifier counts a header of four bytes
			w.int("character_maximum_length", n)
			w.int("character_octet_length", n*maxCharBytes)
			return
		}
		w.int("character_octet_length", maxTextOctets)
	case types.OIDInt2:
		integer(16)
	case types.OIDInt4:
		integer(32)
	case types.OIDInt8:
		integer(64)
	case types.OIDFloat4:
		w.int("numeric_precision", 24)
		w.int("numeric_precision_radix", 2)
	case types.OIDFloat8:
		w.int("numeric_precision", 53)
		w.int("numeric_precision_radix", 2)
	case types.OIDNumeric:
		w.int("numeric_precision_radix", 10)
		if t.Mod >= 0 {
			m := int64(t.Mod) - 4
			w.int("numeric_precision", m>>16&0xFFFF)
			w.int("numeric_scale", (m&0x7FF^1024)-1024)
		}
	case types.OIDDate:
		w.int("datetime_precision", 0)
	case types.OIDTime, types.OIDTimetz, types.OIDTimestamp, types.OIDTimestamptz:
		w.int("datetime_precision", secondDigits(t.Mod))
	case types.OIDInterval:
		p := int64(maxSecondDigits)
		if t.Mod >= 0 {
			p = secondDigits(t.Mod & 0xFFFF)
			if q := strings.TrimPrefix(t.String(), "interval"); strings.HasPrefix(q, " ") {
				w.str("interval_type", strings.ToUpper(strings.TrimSpace(q)))
			}
		}
		w.int("datetime_precision", p)
	}
}

const maxSecondDigits = 6

func secondDigits(mod int32) int64 {
	if mod < 0 || mod > maxSecondDigits {
		return maxSecondDigits
	}
	return int64(mod)
}

func isElementTypes(d *SystemData, w *rowWriter) {
	for _, r := range d.relations() {
		if !inInformationSchema(r) {
			continue
		}
		for _, a := range r.columns {
			e, ok := a.Type.Elem()
			if !ok {
				continue
			}
			n := strconv.FormatInt(a.num, 10)
			d.table(w, "object", r)
			if r.kind == 'v' {
				w.str("object_type", "VIEW")
			} else {
				w.str("object_type", "TABLE")
			}
			w.strs("collection_type_identifier", n, "data_type", dataType(e), "dtd_identifier", "a"+n)
			d.udt(w, "udt", e)
			w.end()
		}
	}
}

// notNullName is how PostgreSQL calls the constraint that NOT NULL stands for in the standard's eyes.
func (d *SystemData) notNullName(r *relation, a attribute) string {
	return number(d.namespaceOID(r.schema)) + "_" + number(r.oid) + "_" + strconv.FormatInt(a.num, 10) + "_not_null"
}

// constraint is one that information_schema knows: a primary key, a check, or NOT NULL.
type constraint struct {
	name    string
	kind    string
	clause  string // of checks
	columns []attribute
}

func (d *SystemData) constraints(r *relation) []constraint {
	var out []constraint
	for _, x := range d.indexes(r) {
		switch {
		case x.def.Primary:
			out = append(out, constraint{name: x.name, kind: "PRIMARY KEY", columns: x.keyColumns()})
		case x.def.Constraint:
			out = append(out, constraint{name: x.name, kind: "UNIQUE", columns: x.keyColumns()})
		}
	}
	for _, c := range r.checks() {
		out = append(out, constraint{name: c.Name, kind: "CHECK", clause: "(" + parenthesized(c.Text) + ")", columns: r.columnsIn(c.Text)})
	}
	if r.kind == 'r' {
		for _, a := range r.columns {
			if a.NotNull {
				out = append(out, constraint{name: d.notNullName(r, a), kind: "CHECK", clause: functions.QuoteIdent(a.Name) + " IS NOT NULL"})
			}
		}
	}
	return out
}

func isTableConstraints(d *SystemData, w *rowWriter) {
	for _, r := range d.relations() {
		if !d.changeable(r) {
			continue
		}
		for _, c := range d.constraints(r) {
			w.strs("constraint_catalog", d.Database, "constraint_schema", r.schema, "constraint_name", c.name, "constraint_type", c.kind)
			d.table(w, "table", r)
			w.yes("is_deferrable", false)
			w.yes("initially_deferred", false)
			w.yes("enforced", true)
			w.end()
		}
	}
}

func isCheckConstraints(d *SystemData, w *rowWriter) {
	for _, r := range d.relations() {
		if !d.usable(r.owner()) {
			continue
		}
		for _, c := range d.constraints(r) {
			if c.kind != "CHECK" {
				continue
			}
			w.strs("constraint_catalog", d.Database, "constraint_schema", r.schema, "constraint_name", c.name, "check_clause", c.clause)
			w.end()
		}
	}
}

func isKeyColumnUsage(d *SystemData, w *rowWriter) {
	for _, r := range d.userRelations() {
		if !d.visible(r) {
			continue
		}
		for _, x := range d.indexes(r) {
			if !x.def.Constraint {
				continue
			}
			for i, a := range x.keyColumns() {
				w.strs("constraint_catalog", d.Database, "constraint_schema", r.schema, "constraint_name", x.name)
				d.table(w, "table", r)
				w.str("column_name", a.Name)
				w.int("ordinal_position", int64(i+1))
				w.end()
			}
		}
	}
}

func isConstraintColumnUsage(d *SystemData, w *rowWriter) {
	for _, r := range d.userRelations() {
		if !d.usable(r.owner()) {
			continue
		}
		for _, c := range d.constraints(r) {
			for _, a := range c.columns {
				d.table(w, "table", r)
				w.strs("column_name", a.Name, "constraint_catalog", d.Database, "constraint_schema", r.schema, "constraint_name", c.name)
				w.end()
			}
		}
	}
}

func isConstraintTableUsage(d *SystemData, w *rowWriter) {
	for _, r := range d.userRelations() {
		if !d.usable(r.owner()) {
			continue
		}
		for _, x := range d.indexes(r) {
			if !x.def.Constraint {
				continue
			}
			d.table(w, "table", r)
			w.strs("constraint_catalog", d.Database, "constraint_schema", r.schema, "constraint_name", x.name)
			w.end()
		}
	}
}

func isCharacterSets(d *SystemData, w *rowWriter) {
	w.strs("character_set_name", charsetName, "character_repertoire", "UCS", "form_of_use", charsetName, "default_collate_catalog", d.Database,
		"default_collate_schema", PgCatalog, "default_collate_name", "C")
	w.end()
}

func (d *SystemData) eachCollation(w *rowWriter, f func(name string)) {
	r := recordings["pg_collation"]()
	if r.err != nil {
		w.failed(r.err)
		return
	}
	for i := range r.rows.N {
		w.strs("collation_catalog", d.Database, "collation_schema", PgCatalog)
		f(r.str(i, "collname"))
		w.end()
	}
}

func isCollations(d *SystemData, w *rowWriter) {
	d.eachCollation(w, func(name string) { w.strs("collation_name", name, "pad_attribute", "NO PAD") })
}

func isCollationCharacterSet(d *SystemData, w *rowWriter) {
	d.eachCollation(w, func(name string) { w.strs("collation_name", name, "character_set_name", charsetName) })
}

func isForeignDataWrappers(d *SystemData, w *rowWriter) {
	w.strs("foreign_data_wrapper_catalog", d.Database, "foreign_data_wrapper_name", wrapperName, "authorization_identifier", OwnerRole,
		"foreign_data_wrapper_language", "c")
	w.end()
}

func isForeignServers(d *SystemData, w *rowWriter) {
	for _, s := range d.servers() {
		w.strs("foreign_server_catalog", d.Database, "foreign_server_name", s.name, "foreign_data_wrapper_catalog", d.Database,
			"foreign_data_wrapper_name", wrapperName, "authorization_identifier", OwnerRole)
		w.end()
	}
}

func isForeignTables(d *SystemData, w *rowWriter) {
	for _, r := range d.userRelations() {
		if r.kind != 'f' {
			continue
		}
		d.table(w, "foreign_table", r)
		w.strs("foreign_server_catalog", d.Database, "foreign_server_name", connectorOf(r.object))
		w.end()
	}
}

func specificName(f function) string { return specificNameOf(f.Name, f.oid) }

func isRoutines(d *SystemData, w *rowWriter) {
	for _, f := range functionList(d.Registry) {
		t := types.T(f.Result)
		w.strs("specific_catalog", d.Database, "specific_schema", PgCatalog, "specific_name", specificName(f), "routine_catalog", d.Database,
			"routine_schema", PgCatalog, "routine_name", f.Name, "data_type", dataType(t), "dtd_identifier", "0",
			"routine_body", "EXTERNAL", "external_language", "INTERNAL", "parameter_style", "GENERAL", "sql_data_access", "MODIFIES",
			"security_type", "INVOKER")
		if f.Kind == functions.Scalar || f.Kind == functions.SetOf {
			w.str("routine_type", "FUNCTION")
		}
		d.udt(w, "type_udt", t)
		w.yes("is_deterministic", f.Volatility == functions.Immutable)
		w.yes("is_null_call", f.Strict)
		w.yes("schema_level_routine", true)
		w.int("max_dynamic_result_sets", 0)
		w.yes("as_locator", false)
		w.yes("is_udt_dependent", false)
		w.end()
	}
	d.userRoutines(w)
}

func isParameters(d *SystemData, w *rowWriter) {
	for _, f := range functionList(d.Registry) {
		for i, a := range f.Args {
			t := types.T(a)
			w.strs("specific_catalog", d.Database, "specific_schema", PgCatalog, "specific_name", specificName(f), "parameter_mode", "IN",
				"data_type", dataType(t), "dtd_identifier", strconv.Itoa(i+1))
			w.int("ordinal_position", int64(i+1))
			w.yes("is_result", false)
			w.yes("as_locator", false)
			d.udt(w, "udt", t)
			w.end()
		}
	}
	d.userParameters(w)
}
