package catalog

import (
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// pgType lists the types that streamdb knows, pseudo types, and the row types of users' relations with their arrays.
func pgType(d *SystemData, w *rowWriter) {
	recordedRows("pg_type")(d, w)
	d.enumTypes(w)
	for _, r := range d.userRelations() {
		if r.kind == 'S' {
			continue
		}
		space := d.namespaceOID(r.schema)
		rowTypeForm(w, r, space)
		w.oid("oid", rowTypeOID(r.object))
		w.str("typname", r.name)
		w.str("typtype", "c")
		w.str("typcategory", "C")
		w.oid("typrelid", r.oid)
		w.oid("typarray", rowArrayOID(r.object))
		procs(w, "typinput", "record_in", "typoutput", "record_out", "typreceive", "record_recv", "typsend", "record_send")
		w.end()
		rowTypeForm(w, r, space)
		w.oid("oid", rowArrayOID(r.object))
		w.str("typname", arrayPrefix+r.name)
		w.str("typtype", "b")
		w.str("typcategory", "A")
		w.oid("typelem", rowTypeOID(r.object))
		procs(w, "typinput", "array_in", "typoutput", "array_out", "typreceive", "array_recv", "typsend", "array_send", "typanalyze", "array_typanalyze",
			"typsubscript", "array_subscript_handler")
		w.end()
	}
}

// enumTypes lists the enum types and their arrays.
func (d *SystemData) enumTypes(w *rowWriter) {
	for _, e := range d.Snap.Enums() {
		owner, space := e.Owner, d.namespaceOID(e.Schema)
		if owner == 0 {
			owner = ownerOID
		}
		form := func(oid types.OID, name, kind, category, storage string, length int64) {
			w.oid("oid", uint32(oid))
			w.oid("typnamespace", space)
			w.oid("typowner", owner)
			w.int("typlen", length)
			w.bool("typisdefined", true)
			w.strs("typname", name, "typtype", kind, "typcategory", category, "typdelim", ",", "typalign", "i", "typstorage", storage)
			w.int("typtypmod", -1)
		}
		oid := types.OID(e.OID)
		form(oid, e.Name, "e", "E", "p", enumLen)
		d.acl(w, "typacl", e.ACL)
		w.bool("typbyval", true)
		w.oid("typarray", uint32(types.ArrayOf(oid)))
		procs(w, "typinput", "enum_in", "typoutput", "enum_out", "typreceive", "enum_recv", "typsend", "enum_send")
		w.end()
		form(types.ArrayOf(oid), arrayPrefix+e.Name, "b", "A", "x", -1)
		w.oid("typelem", e.OID)
		procs(w, "typinput", "array_in", "typoutput", "array_out", "typreceive", "array_recv", "typsend", "array_send", "typanalyze", "array_typanalyze",
			"typsubscript", "array_subscript_handler")
		w.end()
	}
}

// enumLen is the length of an enum value in PostgreSQL, which clients may look at.
const enumLen = 4

func pgEnum(d *SystemData, w *rowWriter) {
	for _, e := range d.Snap.Enums() {
		for _, l := range e.Labels {
			w.oid("oid", l.OID)
			w.oid("enumtypid", e.OID)
			w.float("enumsortorder", float64(l.Sort))
			w.str("enumlabel", l.Label)
			w.end()
		}
	}
}

func rowTypeForm(w *rowWriter, r *relation, space uint32) {
	w.oid("typnamespace", space)
	w.oid("typowner", r.owner())
	w.int("typlen", -1)
	w.bool("typisdefined", true)
	w.strs("typdelim", ",", "typalign", "d", "typstorage", "x")
	w.int("typtypmod", -1)
}

// procs sets columns of type regproc to functions given by name: column, name, column, name…
func procs(w *rowWriter, pairs ...string) {
	if !w.wants("typinput", "typoutput", "typreceive", "typsend", "typanalyze", "typsubscript") {
		return
	}
	r := recordings["pg_proc"]()
	if r.err != nil {
		w.failed(r.err)
		return
	}
	for i := 0; i < len(pairs); i += 2 {
		for row := range r.rows.N {
			if r.str(row, "proname") == pairs[i+1] {
				w.int(pairs[i], r.int(row, "oid"))
				break
			}
		}
	}
}

// btreeClass returns the default operator class of a type for btree indexes, 0 when it has none.
func btreeClass(t types.OID) int64 {
	if types.T(t).IsArray() {
		t = types.OIDAnyArray
	}
	if t == types.OIDVarchar {
		t = types.OIDText // PostgreSQL's varchar_ops is text's class under another name
	}
	r := recordings["pg_opclass"]()
	if r.err != nil {
		return 0
	}
	isDefault := r.rows.Cols[r.cols["opcdefault"]].Bool
	for i := range r.rows.N {
		if r.int(i, "opcmethod") == btreeOID && types.OID(r.int(i, "opcintype")) == t && isDefault[i] {
			return r.int(i, "oid")
		}
	}
	return 0
}

// function is a function that can be called, with its OID.
type function struct {
	*functions.Func
	oid uint32
}

// functionList lists what can be called by name. Functions that PostgreSQL does not have get OIDs of their own.
func functionList(reg *functions.Registry) []function {
	if reg == nil {
		return nil
	}
	all := reg.All()
	out := make([]function, 0, len(all))
	taken := make(map[uint32]bool, len(all))
	for _, f := range all {
		if f.OID != 0 && !taken[f.OID] {
			taken[f.OID] = true
			out = append(out, function{f, f.OID})
		}
	}
	for _, f := range all {
		if f.OID != 0 || f.Name == "" || f.Name[0] == '$' {
			continue
		}
		oid := ownFuncOID(f.ID)
		for i := 0; taken[oid] && i < int(ownFuncs); i++ {
			oid = firstOwnFunc + (oid-firstOwnFunc+1)%ownFuncs
		}
		taken[oid] = true
		out = append(out, function{f, oid})
	}
	return out
}

// pgProc lists the functions that can be called, and those that other catalogues refer to: input, output and the handlers of access methods
// and languages, which cannot be called by name.
func pgProc(d *SystemData, w *rowWriter) {
	r := recordings["pg_proc"]()
	if r.err != nil {
		w.failed(r.err)
		return
	}
	fs := functionList(d.Registry)
	callable := make(map[uint32]bool, len(fs))
	for _, f := range fs {
		callable[f.oid] = true
	}
	referred := referredProcs()
	seen := make(map[uint32]bool, r.rows.N)
	for i := range r.rows.N {
		oid := uint32(r.int(i, "oid"))
		if callable[oid] || referred[oid] {
			seen[oid] = true
			w.copyFrom(r, i)
			w.end()
		}
	}
	for _, f := range fs {
		if !seen[f.oid] {
			ownProcRow(w, f)
		}
	}
	d.userProcs(w)
}

// referredProcs are the OIDs of the functions that other recorded relations name.
func referredProcs() map[uint32]bool {
	out := map[uint32]bool{}
	for table, columns := range map[string][]string{
		"pg_type":     {"typinput", "typoutput", "typreceive", "typsend", "typmodin", "typmodout", "typanalyze", "typsubscript"},
		"pg_am":       {"amhandler"},
		"pg_language": {"lanplcallfoid", "laninline", "lanvalidator"},
	} {
		r := recordings[table]()
		if r.err != nil {
			continue
		}
		for _, c := range columns {
			for i := range r.rows.N {
				out[uint32(r.int(i, c))] = true
			}
		}
	}
	return out
}

func ownProcRow(w *rowWriter, f function) {
	w.oid("oid", f.oid)
	w.str("proname", f.Name)
	w.oid("pronamespace", PgCatalogOID)
	w.oid("proowner", ownerOID)
	w.oid("prolang", internalLanguage)
	w.float("procost", 1)
	kind := string(byte(f.Kind))
	if f.Kind == functions.SetOf {
		kind = "f"
		w.bool("proretset", true)
		w.float("prorows", 1000)
	}
	w.str("prokind", kind)
	w.bool("proisstrict", f.Strict)
	w.str("provolatile", string(byte(f.Volatility)))
	w.str("proparallel", "s")
	w.int("pronargs", int64(len(f.Args)))
	w.int("pronargdefaults", int64(f.Defaults))
	w.oid("prorettype", uint32(f.Result))
	args := make([]int64, len(f.Args))
	for i, a := range f.Args {
		args[i] = int64(a)
	}
	w.array("proargtypes", args)
	if f.Variadic && len(f.Args) > 0 {
		last := types.T(f.Args[len(f.Args)-1])
		if e, ok := last.Elem(); ok {
			w.oid("provariadic", uint32(e.OID))
		} else {
			w.oid("provariadic", uint32(last.OID))
		}
	}
	w.str("prosrc", f.Name)
	w.end()
}

func pgOperator(d *SystemData, w *rowWriter) {
	if d.Registry == nil {
		return
	}
	have := map[uint32]bool{}
	for _, o := range d.Registry.Operators() {
		have[o.OID] = true
	}
	recordedIf(w, "pg_operator", "oid", have)
}

func pgAggregate(d *SystemData, w *rowWriter) {
	have := map[uint32]bool{}
	for _, f := range functionList(d.Registry) {
		have[f.oid] = true
	}
	recordedIf(w, "pg_aggregate", "aggfnoid", have)
	for _, f := range functionList(d.Registry) {
		if f.Kind == functions.Aggregate && f.OID == 0 {
			w.oid("aggfnoid", f.oid)
			w.strs("aggkind", "n", "aggfinalmodify", "r", "aggmfinalmodify", "r")
			w.oid("aggtranstype", uint32(types.OIDInternal))
			w.end()
		}
	}
}

// recordedIf writes the recorded rows whose OID in the given column is in have.
func recordedIf(w *rowWriter, name, column string, have map[uint32]bool) {
	r := recordings[name]()
	if r.err != nil {
		w.failed(r.err)
		return
	}
	for i := range r.rows.N {
		if have[uint32(r.int(i, column))] {
			w.copyFrom(r, i)
			w.end()
		}
	}
}

func pgCast(d *SystemData, w *rowWriter) {
	if d.Registry == nil {
		return
	}
	for i, c := range d.Registry.Casts() {
		w.oid("oid", firstCast+uint32(i))
		w.oid("castsource", uint32(c.Source))
		w.oid("casttarget", uint32(c.Target))
		w.str("castcontext", string("iae"[c.Context]))
		switch {
		case c.Binary:
			w.str("castmethod", "b")
		case c.Func != nil:
			w.str("castmethod", "f")
			w.oid("castfunc", c.Func.OID)
		default:
			w.str("castmethod", "i")
		}
		w.end()
	}
}
