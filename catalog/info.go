package catalog

import (
	"slices"
	"strings"
	"sync"

	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
)

// Info answers the catalogue functions of SQL from one state of the catalog. Cheap to make: one per statement. Only Snap is needed: without
// Registry functions have no comments, without Size relations have the size 0, without User only the owner's role has a name.
type Info struct {
	Snap     *Snapshot
	Registry *functions.Registry
	User     string // connected
	Database string
	Size     func(relation uint64) int64
	Extra    []*SystemRelation // of schema streamdb

	docsOnce sync.Once
	docs     map[uint32]string
}

var _ expr.CatalogInfo = (*Info)(nil)

// NewInfo returns the Info over the same state as d.
func NewInfo(d *SystemData) *Info {
	return &Info{Snap: d.Snap, Registry: d.Registry, User: d.User, Database: d.Database, Size: d.Size, Extra: d.Extra}
}

// find returns the relation behind an OID: the relation itself, or with index set that whose primary key index it is.
func (i *Info) find(oid uint32) (r *relation, index, ok bool) {
	if s, ok := system().byOID[oid]; ok {
		return systemRelation(s), false, true
	}
	for _, s := range i.Extra {
		if s.OID == oid {
			return systemRelation(s), false, true
		}
	}
	id, class, _ := splitOID(oid)
	if class != 0 && class != classIndex {
		return nil, false, false
	}
	o, ok := i.Snap.Get(id)
	if !ok {
		return nil, false, false
	}
	r = objectRelation(o)
	if class == classIndex && r.key() == nil {
		return nil, false, false
	}
	return r, class == classIndex, true
}

// lookup finds a relation or index by its exact name.
func (i *Info) lookup(schema, name string) (uint32, bool) {
	if r, ok := LookupSystem(schema, name); ok && schema != "" {
		return r.OID, true
	}
	for _, s := range i.Extra {
		if s.Schema == schema && s.Name == name {
			return s.OID, true
		}
	}
	if o, ok := i.Snap.Lookup(schema, name); ok {
		return relationOID(o), relationOID(o) != 0
	}
	if _, ok := i.Snap.Namespace(schema); !ok || IsSystemSchema(schema) { // the search below looks at every object
		return 0, false
	}
	for _, o := range i.Snap.objects {
		if o.Constraint == name && o.Schema == schema && objectRelation(o).key() != nil {
			return indexOID(o), indexOID(o) != 0
		}
	}
	return 0, false
}

// searched returns the path with pg_catalog in its first place unless the path names it.
func searched(path []string) []string {
	if slices.Contains(path, PgCatalog) {
		return path
	}
	return append([]string{PgCatalog}, path...)
}

// resolve finds an unqualified name along the path.
func (i *Info) resolve(name string, path []string) (uint32, bool) {
	for _, schema := range searched(path) {
		if oid, ok := i.lookup(schema, name); ok {
			return oid, true
		}
	}
	return 0, false
}

func relationTitle(r *relation, index bool) string {
	if index {
		return r.object.Constraint
	}
	return r.name
}

// RelationName implements expr.CatalogInfo.
func (i *Info) RelationName(oid uint32, path []string) (string, bool) {
	r, index, ok := i.find(oid)
	if !ok {
		return "", false
	}
	name := functions.QuoteIdent(relationTitle(r, index))
	if found, ok := i.resolve(relationTitle(r, index), path); ok && found == oid {
		return name, true
	}
	return functions.QuoteIdent(r.schema) + "." + name, true
}

// RelationOID implements expr.CatalogInfo.
func (i *Info) RelationOID(name string, path []string) (uint32, bool) {
	parts, ok := functions.SplitName(name)
	if !ok {
		return 0, false
	}
	switch len(parts) {
	case 1:
		return i.resolve(parts[0], path)
	case 2:
		if at := slices.IndexFunc(path, IsTemporarySchema); at >= 0 && parts[0] == TemporaryAlias {
			parts[0] = path[at]
		}
		return i.lookup(parts[0], parts[1])
	case 3:
		if parts[0] == i.Database {
			return i.lookup(parts[1], parts[2])
		}
	}
	return 0, false
}

// RelationVisible implements expr.CatalogInfo.
func (i *Info) RelationVisible(oid uint32, path []string) bool {
	r, index, ok := i.find(oid)
	if !ok {
		return false
	}
	found, ok := i.resolve(relationTitle(r, index), path)
	return ok && found == oid
}

// NamespaceName implements expr.CatalogInfo.
func (i *Info) NamespaceName(oid uint32) (string, bool) {
	for _, n := range i.Snap.spaces {
		if n.OID == oid {
			return n.Name, true
		}
	}
	return "", false
}

// NamespaceOID implements expr.CatalogInfo.
func (i *Info) NamespaceOID(name string) (uint32, bool) {
	n, ok := i.Snap.Namespace(name)
	return n.OID, ok
}

// RoleName implements expr.CatalogInfo.
func (i *Info) RoleName(oid uint32) (string, bool) {
	if r, ok := i.Snap.roles[oid]; ok {
		return r.Name, true
	}
	return i.User, oid == sessionOID
}

// RoleOID implements expr.CatalogInfo.
func (i *Info) RoleOID(name string) (uint32, bool) {
	if r, ok := i.Snap.LookupRole(name); ok {
		return r.OID, true
	}
	return sessionOID, name == i.User && name != ""
}

// ViewDefinition implements expr.CatalogInfo.
func (i *Info) ViewDefinition(oid uint32, path []string) (string, bool) {
	r, index, ok := i.find(oid)
	if !ok || index || r.object == nil || !r.isView() {
		return "", false
	}
	return i.Snap.viewDefinition(r.object, path), true
}

// viewDefinition prints a view's query as PostgreSQL does: one blank before, a semicolon after, and a schema before the names that path does not
// find or finds something else for.
func (s *Snapshot) viewDefinition(o *Object, path []string) string {
	text := strings.TrimRight(strings.TrimSpace(o.Query), "; \t\r\n")
	if !slices.Equal(path, o.SearchPath) {
		text = sql.Qualified(text, func(use sql.Use, name string) string { return s.schemaOf(use, name, o, path) })
	}
	if o.EmitOnClose {
		text += " EMIT ON WINDOW CLOSE"
	}
	return " " + text + ";"
}

// schemaOf is the schema of what a name in a view's query stands for, "" where path finds it too and for what belongs to the system.
func (s *Snapshot) schemaOf(use sql.Use, name string, view *Object, path []string) string {
	switch use {
	case sql.UseType:
		e, ok := s.ResolveEnum("", name, view.SearchPath)
		if !ok {
			return ""
		}
		if now, ok := s.ResolveEnum("", name, path); !ok || now != e {
			return e.Schema
		}
	case sql.UseFunction:
		for _, schema := range view.SearchPath {
			for _, id := range view.DependsOn {
				if f, ok := s.functions[uint32(id)]; ok && f.Name == name && f.Schema == schema && !slices.Contains(path, schema) {
					return schema
				}
			}
		}
	default:
		o, ok := s.Resolve("", name, view.SearchPath)
		if !ok {
			return ""
		}
		if now, ok := s.Resolve("", name, path); !ok || now != o {
			return o.Schema
		}
	}
	return ""
}

// IndexDefinition implements expr.CatalogInfo: the statement, or with column > 0 what the index holds at that place.
func (i *Info) IndexDefinition(oid uint32, column int, pretty bool) (string, bool) {
	x, ok := i.index(oid)
	switch {
	case !ok:
		return "", false
	case column == 0:
		return x.definition(pretty), true
	case column < 0 || column > x.columns():
		return "", true
	case column > len(x.def.Keys):
		a, _ := x.attribute(column - 1)
		return functions.QuoteIdent(a.Name), true
	}
	return x.plainKey(column-1, pretty), true
}

// index finds an index by its OID.
func (i *Info) index(oid uint32) (index, bool) {
	id, class, _ := splitOID(oid)
	o, ok := i.Snap.Get(id)
	if !ok || class != 0 && class != classIndex {
		return index{}, false
	}
	if o.Kind == Index && o.Index != nil {
		if o, ok = i.Snap.Get(o.Index.Table); !ok {
			return index{}, false
		}
	}
	for _, x := range indexesOf(i.Snap, objectRelation(o)) {
		if x.oid == oid {
			return x, true
		}
	}
	return index{}, false
}

// ConstraintDefinition implements expr.CatalogInfo.
func (i *Info) ConstraintDefinition(oid uint32, pretty bool) (string, bool) {
	id, class, num := splitOID(oid)
	o, ok := i.Snap.Get(id)
	if !ok {
		return "", false
	}
	switch class {
	case classPrimaryKey, classUnique:
		of := o
		if class == classUnique && o.Index != nil {
			of, _ = i.Snap.Get(o.Index.Table)
		}
		if of == nil {
			return "", false
		}
		for _, x := range indexesOf(i.Snap, objectRelation(of)) {
			if x.constraintOID() == oid {
				return x.constraint(), true
			}
		}
		return "", false
	case manyFlag >> classShift:
		if num < firstCheck || num-firstCheck >= len(o.Checks) {
			return "", false
		}
		text := parenthesized(o.Checks[num-firstCheck].Text)
		if !pretty {
			text = "(" + text + ")"
		}
		return "CHECK " + text, true
	}
	return "", false
}

// parenthesized puts an expression in parentheses unless it is wholly in one pair already.
func parenthesized(s string) string {
	s = strings.TrimSpace(s)
	if !strings.HasPrefix(s, "(") || !strings.HasSuffix(s, ")") {
		return "(" + s + ")"
	}
	depth, quote := 0, byte(0)
	for i := range len(s) {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth == 0 && i < len(s)-1 {
				return "(" + s + ")"
			}
		}
	}
	return s
}

// bare is an expression without the parentheses around all of it.
func bare(s string) string {
	for s = strings.TrimSpace(s); strings.HasPrefix(s, "(") && parenthesized(s) == s; {
		s = strings.TrimSpace(s[1 : len(s)-1])
	}
	return s
}

// Comment implements expr.CatalogInfo. Classes are the names of catalogues; "" means any.
func (i *Info) Comment(oid uint32, class string, sub int32) (string, bool) {
	text := ""
	if class == "" || class == "pg_class" {
		if r, index, ok := i.find(oid); ok && r.object != nil {
			switch {
			case index && sub == 0:
				for _, x := range indexesOf(i.Snap, r) {
					if x.oid == oid {
						text = x.comment
					}
				}
			case index:
			case sub == 0:
				text = r.object.Comment
			case sub > 0:
				for _, a := range r.columns {
					if a.num == int64(sub) {
						text = a.Comment
					}
				}
			}
		}
	}
	if e, ok := i.Snap.Enum(oid); ok && sub == 0 && (class == "" || class == "pg_type") {
		text = e.Comment
	}
	if f, ok := i.Snap.functions[oid]; ok && sub == 0 && (class == "" || class == "pg_proc") {
		text = f.Comment
	}
	if text == "" && sub == 0 && (class == "" || class == "pg_namespace") {
		if name, ok := i.NamespaceName(oid); ok {
			text = namespaceComment(i.Snap.spaces[name])
		}
	}
	if text == "" && sub == 0 && (class == "" || class == "pg_constraint") {
		text = i.constraintComment(oid)
	}
	if r, ok := i.Snap.Role(oid); ok && text == "" && sub == 0 && class == "pg_authid" {
		text = r.Comment
	}
	if oid == databaseOID && sub == 0 && class == "pg_database" {
		text = i.Snap.database.Comment
	}
	if text == "" && sub == 0 && (class == "" || class == "pg_proc") && i.Registry != nil {
		if doc, ok := i.functionDocs()[oid]; ok {
			text = doc
		}
	}
	return text, text != ""
}

func (i *Info) constraintComment(oid uint32) string {
	id, _, _ := splitOID(oid)
	o, ok := i.Snap.Get(id)
	switch {
	case !ok:
		return ""
	case o.Index != nil && derivedOID(classUnique, o.ID) == oid, o.Kind == Table && primaryKeyOID(o) == oid:
		return o.ConstraintComment
	}
	for k, c := range o.Checks {
		if checkOID(o, k) == oid {
			return c.Comment
		}
	}
	return ""
}

// functionDocs maps the OIDs of functions to their descriptions; made when it is first asked for.
func (i *Info) functionDocs() map[uint32]string {
	i.docsOnce.Do(func() {
		fs := functionList(i.Registry)
		i.docs = make(map[uint32]string, len(fs))
		for _, f := range fs {
			i.docs[f.oid] = f.Doc
		}
	})
	return i.docs
}

// DatabaseSize implements expr.CatalogInfo.
func (i *Info) DatabaseSize(name string) (int64, bool) {
	if name != i.Database {
		return 0, false
	}
	return i.RelationSize(databaseOID)
}

// IndexesSize implements expr.CatalogInfo.
func (i *Info) IndexesSize(oid uint32) (int64, bool) {
	r, _, ok := i.find(oid)
	if !ok {
		return 0, false
	}
	total := int64(0)
	for _, x := range indexesOf(i.Snap, r) {
		total += x.size(i.Size)
	}
	return total, true
}

// RelationSize implements expr.CatalogInfo. The key of a relation lies in the relation: its index takes no space of its own.
func (i *Info) RelationSize(oid uint32) (int64, bool) {
	if oid == databaseOID {
		total := int64(0)
		for _, o := range i.Snap.objects {
			total += sizeOf(objectRelation(o), i.Size)
		}
		return total, true
	}
	r, index, ok := i.find(oid)
	if !ok {
		return 0, false
	}
	if index {
		return 0, true
	}
	return sizeOf(r, i.Size), true
}
