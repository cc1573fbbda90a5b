package catalog

import (
	"fmt"
	"strconv"
	"strings"
)

// Access methods of relations and indexes.
const (
	heapOID  = 2
	hashOID  = 405
	btreeOID = 403
)

// pageBytes is PostgreSQL's page size: pg_class counts sizes in pages.
const pageBytes = 8192

func pgClass(d *SystemData, w *rowWriter) {
	for _, r := range d.relations() {
		d.pgClassRow(w, r)
		for _, x := range d.indexes(r) {
			d.pgClassIndexRow(w, &x)
		}
	}
}

func (d *SystemData) pgClassRow(w *rowWriter, r *relation) {
	w.oid("oid", r.oid)
	w.str("relname", r.name)
	w.oid("relnamespace", d.namespaceOID(r.schema))
	w.oid("relowner", r.owner())
	w.str("relpersistence", "p")
	if r.object != nil && r.object.Temporary {
		w.str("relpersistence", "t")
	}
	w.str("relkind", string(r.kind))
	w.int("relnatts", int64(len(r.columns)+len(r.dropped)))
	w.bool("relispopulated", true)
	w.float("reltuples", -1)
	w.str("relreplident", "n")
	w.bool("relhasrules", r.kind == 'v')
	if r.kind == 'r' || r.kind == 'm' {
		w.oid("relam", heapOID)
		w.oid("relfilenode", r.oid)
	}
	if r.object != nil {
		d.acl(w, "relacl", r.object.ACL)
	} else {
		d.acl(w, "relacl", r.sys.Securable().ACL)
	}
	if r.sys != nil {
		w.oid("reltype", r.sys.RowType)
		w.bool("relisshared", isShared(r.oid))
		w.end()
		return
	}
	if r.kind == 'S' {
		w.float("reltuples", 1)
		w.int("relpages", 1)
		w.oid("relfilenode", r.oid)
		w.end()
		return
	}
	w.oid("reltype", rowTypeOID(r.object))
	w.bool("relhasindex", len(d.indexes(r)) > 0)
	w.int("relchecks", int64(len(r.checks())))
	w.bool("relispopulated", !r.object.Creating)
	if w.wants("reltuples") {
		w.float("reltuples", float64(d.rows(r)))
	}
	if w.wants("relpages") {
		w.int("relpages", (d.size(r)+pageBytes-1)/pageBytes)
	}
	if r.kind == 'r' || r.kind == 'm' {
		w.str("relreplident", "d")
	}
	w.texts("reloptions", options(r.object.Options, r.object.Settings))
	w.end()
}

func (d *SystemData) pgClassIndexRow(w *rowWriter, x *index) {
	w.oid("oid", x.oid)
	w.str("relname", x.name)
	w.oid("relnamespace", d.namespaceOID(x.table.schema))
	w.oid("relowner", x.table.owner())
	w.oid("relam", btreeOID)
	if x.def.Method == "hash" {
		w.oid("relam", hashOID)
	}
	w.oid("relfilenode", x.oid)
	w.str("relpersistence", "p")
	if x.table.object.Temporary {
		w.str("relpersistence", "t")
	}
	w.str("relkind", "i")
	w.str("relreplident", "n")
	w.int("relnatts", int64(x.columns()))
	w.bool("relispopulated", true)
	if w.wants("reltuples") {
		w.float("reltuples", float64(d.rows(x.table)))
	}
	if w.wants("relpages") {
		w.int("relpages", (x.size(d.Size)+pageBytes-1)/pageBytes)
	}
	w.end()
}

// isShared reports whether PostgreSQL keeps the relation once for all databases.
func isShared(oid uint32) bool {
	switch oid {
	case pgAuthidOID, 1261, pgDatabaseOID, 1213, 1214, 2396, 2964, 3592, 6000, 6100:
		return true
	}
	return false
}

func pgAttribute(d *SystemData, w *rowWriter) {
	for _, r := range d.relations() {
		for _, a := range r.columns {
			w.oid("attrelid", r.oid)
			attributeRow(w, a, a.num)
			d.acl(w, "attacl", a.ACL)
			w.bool("attnotnull", a.NotNull)
			w.bool("atthasdef", r.hasDefault(a))
			if a.Generated != "" {
				w.str("attgenerated", "s")
			}
			switch a.Identity {
			case "always":
				w.str("attidentity", "a")
			case "by default":
				w.str("attidentity", "d")
			}
			w.end()
		}
		for _, a := range r.dropped {
			w.oid("attrelid", r.oid)
			attributeRow(w, a, a.num)
			w.str("attname", fmt.Sprintf("........pg.dropped.%d........", a.num))
			w.oid("atttypid", 0)
			w.int("attstattarget", 0)
			w.int("attndims", 0)
			w.bool("attisdropped", true)
			w.end()
		}
		for _, x := range d.indexes(r) {
			for i, name := range x.columnNames() {
				w.oid("attrelid", x.oid)
				a, ok := x.attribute(i)
				if !ok {
					a = attribute{Column: &Column{Type: x.def.Keys[i].Type}}
				}
				attributeRow(w, a, int64(i+1))
				w.str("attname", name)
				w.end()
			}
		}
	}
}

func attributeRow(w *rowWriter, a attribute, num int64) {
	t := typeDetails(a.Type)
	w.str("attname", a.Name)
	w.oid("atttypid", uint32(a.Type.OID))
	w.int("attstattarget", -1)
	w.int("attlen", t.len)
	w.int("attnum", num)
	if a.Type.IsArray() {
		w.int("attndims", 1)
	}
	w.int("attcacheoff", -1)
	w.int("atttypmod", int64(a.Type.Mod))
	w.bool("attbyval", t.byVal)
	w.str("attalign", t.align)
	w.str("attstorage", t.storage)
	w.bool("attislocal", true)
	w.int("attcollation", t.collation)
}

func pgAttrdef(d *SystemData, w *rowWriter) {
	for _, r := range d.userRelations() {
		for _, a := range r.columns {
			if !r.hasDefault(a) {
				continue
			}
			w.oid("oid", defaultOID(r.object, a.pos))
			w.oid("adrelid", r.oid)
			w.int("adnum", a.num)
			w.str("adbin", d.Snap.defaultText(a.Column, d.Path))
			w.end()
		}
	}
}

func pgNamespace(d *SystemData, w *rowWriter) {
	for _, n := range d.Snap.Namespaces() {
		w.oid("oid", n.OID)
		w.str("nspname", n.Name)
		w.oid("nspowner", ownerOf(n.Securable().Owner))
		d.acl(w, "nspacl", n.Securable().ACL)
		w.end()
	}
}

// Bits of pg_index.indoption.
const (
	indexDesc       = 1
	indexNullsFirst = 2
)

func pgIndex(d *SystemData, w *rowWriter) {
	for _, r := range d.userRelations() {
		for _, x := range d.indexes(r) {
			pgIndexRow(w, &x)
		}
	}
}

func pgIndexRow(w *rowWriter, x *index) {
	n := x.columns()
	numbers, collations, classes, options := make([]int64, n), make([]int64, len(x.def.Keys)), make([]int64, len(x.def.Keys)), make([]int64, len(x.def.Keys))
	var exprs []string
	for i := range n {
		a, column := x.attribute(i)
		if column {
			numbers[i] = a.num
		}
		if i >= len(x.def.Keys) {
			continue
		}
		k := x.def.Keys[i]
		t := k.Type
		if column {
			t = a.Type
		} else {
			exprs = append(exprs, IndexKeyText(k, x.table.object))
		}
		if w.wants("indcollation", "indclass") {
			collations[i], classes[i] = typeDetails(t).collation, btreeClass(t.OID)
		}
		if k.Desc {
			options[i] |= indexDesc
		}
		if k.NullsFirst {
			options[i] |= indexNullsFirst
		}
	}
	w.oid("indexrelid", x.oid)
	w.oid("indrelid", x.table.oid)
	w.int("indnatts", int64(n))
	w.int("indnkeyatts", int64(len(x.def.Keys)))
	w.bool("indisunique", x.def.Unique)
	w.bool("indisprimary", x.def.Primary)
	w.bool("indimmediate", true)
	ready := x.object == nil || !x.object.Creating
	w.bool("indisvalid", ready)
	w.bool("indisready", ready)
	w.bool("indislive", true)
	w.array("indkey", numbers)
	w.array("indcollation", collations)
	w.array("indclass", classes)
	w.array("indoption", options)
	if exprs != nil {
		w.str("indexprs", strings.Join(exprs, ", "))
	}
	if x.def.Where != "" {
		w.str("indpred", parenthesized(x.def.Where))
	}
	w.end()
}

func pgConstraint(d *SystemData, w *rowWriter) {
	row := func(r *relation, oid uint32, name, kind string) {
		w.oid("oid", oid)
		w.str("conname", name)
		w.oid("connamespace", d.namespaceOID(r.schema))
		w.str("contype", kind)
		w.bool("convalidated", true)
		w.oid("conrelid", r.oid)
		w.strs("confupdtype", " ", "confdeltype", " ", "confmatchtype", " ")
		w.bool("conislocal", true)
	}
	for _, r := range d.userRelations() {
		for _, x := range d.indexes(r) {
			oid := x.constraintOID()
			if oid == 0 {
				continue
			}
			kind := "u"
			if x.def.Primary {
				kind = "p"
			}
			row(r, oid, x.name, kind)
			w.oid("conindid", x.oid)
			w.bool("connoinherit", true)
			w.array("conkey", x.keyNumbers())
			w.end()
		}
		for _, c := range r.checks() {
			row(r, c.oid, c.Name, "c")
			w.str("conbin", c.Text)
			var nums []int64
			for _, a := range r.columnsIn(c.Text) {
				nums = append(nums, a.num)
			}
			if nums != nil {
				w.array("conkey", nums)
			}
			w.end()
		}
	}
}

// pgExtension has one row: the schema streamdb and what is in it count as an extension, so that pg_dump leaves them out.
func pgExtension(d *SystemData, w *rowWriter) {
	w.oid("oid", extensionOID)
	w.str("extname", SystemSchema)
	w.oid("extowner", ownerOID)
	w.oid("extnamespace", StreamdbOID)
	w.str("extversion", "1.0")
	w.end()
}

// pgInitPrivs lists what may be done with system relations and schemas. They cannot be changed, and pg_dump looks here for what changed.
func pgInitPrivs(d *SystemData, w *rowWriter) {
	row := func(class, oid uint32, list []ACL) {
		if list == nil {
			return
		}
		w.oid("objoid", oid)
		w.oid("classoid", class)
		w.int("objsubid", 0)
		w.str("privtype", "i")
		d.acl(w, "initprivs", list)
		w.end()
	}
	for _, r := range d.relations() {
		if r.sys != nil {
			row(pgClassOID, r.oid, r.sys.Securable().ACL)
		}
	}
	for _, n := range d.Snap.Namespaces() {
		if n.OID != PublicOID && !IsUserID(uint64(n.OID)) {
			row(pgNamespaceOID, n.OID, n.Securable().ACL)
		}
	}
}

// pgDepend lists what relations, indexes, constraints and defaults depend on. A view's dependencies are its own, not those of a rule.
func pgDepend(d *SystemData, w *rowWriter) {
	row := func(class, obj uint32, sub int64, refClass, refObj uint32, refSub int64, kind string) {
		w.oid("classid", class)
		w.oid("objid", obj)
		w.int("objsubid", sub)
		w.oid("refclassid", refClass)
		w.oid("refobjid", refObj)
		w.int("refobjsubid", refSub)
		w.str("deptype", kind)
		w.end()
	}
	row(pgNamespaceOID, StreamdbOID, 0, pgExtensionOID, extensionOID, 0, "e")
	row(pgWrapperOID, wrapperOID, 0, pgExtensionOID, extensionOID, 0, "e")
	for _, s := range d.Extra {
		row(pgClassOID, s.OID, 0, pgExtensionOID, extensionOID, 0, "e")
	}
	for _, r := range d.userRelations() {
		row(pgClassOID, r.oid, 0, pgNamespaceOID, d.namespaceOID(r.schema), 0, "n")
		for _, id := range r.object.DependsOn {
			if _, ok := d.Snap.Enum(uint32(id)); ok {
				continue // its columns depend on it
			}
			if _, ok := d.Snap.functions[uint32(id)]; ok {
				row(pgClassOID, r.oid, 0, pgProcOID, uint32(id), 0, "n")
				continue
			}
			if oid := derivedOID(0, id); oid != 0 {
				row(pgClassOID, r.oid, 0, pgClassOID, oid, 0, "n")
			}
		}
		for _, a := range r.columns {
			if id := enumOf(a.Type); id != 0 {
				row(pgClassOID, r.oid, a.num, pgTypeOID, uint32(a.Type.OID), 0, "n")
			}
		}
		if q := r.object.Sequence; q != nil && q.OwnerTable != 0 {
			if t, ok := d.Snap.Get(q.OwnerTable); ok {
				owner, _ := objectRelation(t).at(q.OwnerColumn)
				kind := "a"
				if d.isIdentity(r.object) {
					kind = "i"
				}
				row(pgClassOID, r.oid, 0, pgClassOID, relationOID(t), owner.num, kind)
			}
		}
		for _, x := range d.indexes(r) {
			class, obj := uint32(pgClassOID), x.oid
			if oid := x.constraintOID(); oid != 0 {
				row(pgClassOID, x.oid, 0, pgConstraintOID, oid, 0, "i")
				class, obj = pgConstraintOID, oid
			}
			for _, num := range x.keyNumbers() {
				if num != 0 {
					row(class, obj, 0, pgClassOID, r.oid, num, "a")
				}
			}
		}
		for _, c := range r.checks() {
			for _, a := range r.columnsIn(c.Text) {
				row(pgConstraintOID, c.oid, 0, pgClassOID, r.oid, a.num, "a")
			}
		}
		for _, a := range r.columns {
			if r.hasDefault(a) {
				row(pgAttrdefOID, defaultOID(r.object, a.pos), 0, pgClassOID, r.oid, a.num, "a")
				if a.Sequence != 0 {
					row(pgAttrdefOID, defaultOID(r.object, a.pos), 0, pgClassOID, derivedOID(0, a.Sequence), 0, "n")
				}
			}
		}
	}
	d.functionDepends(row)
}

func pgDescription(d *SystemData, w *rowWriter) {
	row := func(class, oid uint32, sub int64, text string) {
		if text == "" {
			return
		}
		w.oid("objoid", oid)
		w.oid("classoid", class)
		w.int("objsubid", sub)
		w.str("description", text)
		w.end()
	}
	for _, n := range d.Snap.Namespaces() {
		row(pgNamespaceOID, n.OID, 0, namespaceComment(n))
	}
	for _, r := range d.userRelations() {
		row(pgClassOID, r.oid, 0, r.object.Comment)
		for _, x := range d.indexes(r) {
			row(pgClassOID, x.oid, 0, x.comment)
			row(pgConstraintOID, x.constraintOID(), 0, x.about)
		}
		for i, c := range r.checks() {
			row(pgConstraintOID, checkOID(r.object, i), 0, c.Comment)
		}
		for _, a := range r.columns {
			row(pgClassOID, r.oid, a.num, a.Comment)
		}
	}
	for _, e := range d.Snap.Enums() {
		row(pgTypeOID, e.OID, 0, e.Comment)
	}
	for _, f := range functionList(d.Registry) {
		row(pgProcOID, f.oid, 0, f.Doc)
	}
	for _, f := range d.Snap.Functions() {
		row(pgProcOID, f.OID, 0, f.Comment)
	}
}

// pgShdescription is about what PostgreSQL keeps for all databases: roles and databases.
func pgShdescription(d *SystemData, w *rowWriter) {
	row := func(class, oid uint32, text string) {
		if text != "" {
			w.oid("objoid", oid)
			w.oid("classoid", class)
			w.str("description", text)
			w.end()
		}
	}
	row(pgDatabaseOID, databaseOID, d.Snap.database.Comment)
	for _, r := range d.Snap.Roles() {
		row(pgAuthidOID, r.OID, r.Comment)
	}
}

func namespaceComment(n Namespace) string {
	if n.Comment != "" {
		return n.Comment
	}
	switch n.Name {
	case DefaultSchema:
		return "standard public schema"
	case PgCatalog:
		return "system catalog schema"
	case SystemSchema:
		return "state of the running database"
	}
	return ""
}

// wrapperName is the foreign-data wrapper whose servers are the connectors of sources.
const wrapperName = "streamdb"

func pgForeignDataWrapper(_ *SystemData, w *rowWriter) {
	w.oid("oid", wrapperOID)
	w.str("fdwname", wrapperName)
	w.oid("fdwowner", ownerOID)
	w.end()
}

// connectorServer is a connector in use, as a foreign server.
type connectorServer struct {
	name string
	oid  uint32
}

func (d *SystemData) servers() []connectorServer {
	var out []connectorServer
	for _, r := range d.userRelations() {
		if r.kind != 'f' || d.serverOf(out, r) != 0 {
			continue
		}
		out = append(out, connectorServer{connectorOf(r.object), serverOID(r.object)})
	}
	return out
}

func connectorOf(o *Object) string {
	if o.Source != nil {
		return o.Source.Connector
	}
	return ""
}

func (d *SystemData) serverOf(servers []connectorServer, r *relation) uint32 {
	for _, s := range servers {
		if s.name == connectorOf(r.object) {
			return s.oid
		}
	}
	return 0
}

func pgForeignServer(d *SystemData, w *rowWriter) {
	for _, s := range d.servers() {
		w.oid("oid", s.oid)
		w.str("srvname", s.name)
		w.oid("srvowner", ownerOID)
		w.oid("srvfdw", wrapperOID)
		w.end()
	}
}

func pgForeignTable(d *SystemData, w *rowWriter) {
	servers := d.servers()
	for _, r := range d.userRelations() {
		if r.kind != 'f' {
			continue
		}
		w.oid("ftrelid", r.oid)
		w.oid("ftserver", d.serverOf(servers, r))
		w.texts("ftoptions", sourceOptions(r.object.Source))
		w.end()
	}
}

func sourceOptions(s *SourceDef) []string {
	if s == nil {
		return nil
	}
	out := options(sortedKeys(s.Options), s.Options)
	if s.Format != "" {
		out = append(out, "format="+s.Format)
	}
	if s.Encode != "" {
		out = append(out, "encode="+s.Encode)
	}
	return out
}

// number prints an OID where information_schema wants a name.
func number(oid uint32) string { return strconv.FormatUint(uint64(oid), 10) }
