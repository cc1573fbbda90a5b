package catalog

import (
	"embed"
	"strconv"
	"strings"
	"sync"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// The system relations are tables of data: pg_catalog.tsv and information_schema.tsv hold one relation a line (name, OID, OID of the row type,
// kind, then `column type`, with ! when the column is never NULL); the other files hold the content of relations whose rows never change,
// in the form of COPY with the column names first. All are PostgreSQL 14's. Column types streamdb does not have are replaced: the domains of
// information_schema by their base types; inet, pg_lsn, the statistics types, anyarray and cstring by text (such columns are NULL here).
//
//go:embed data/*.tsv
var systemFiles embed.FS

// Names of the system schemas that PostgreSQL has too.
const (
	PgCatalog  = "pg_catalog"
	InfoSchema = "information_schema"
)

// SystemRelation is a relation that every database has. Immutable.
type SystemRelation struct {
	OID     uint32
	RowType uint32 // OID of the type of its rows, 0 when there is none
	Schema  string
	Name    string
	Kind    byte // pg_class.relkind: r or v
	Columns []Column
}

// Column returns the position of a column by name, -1 when there is none.
func (r *SystemRelation) Column(name string) int {
	for i := range r.Columns {
		if r.Columns[i].Name == name {
			return i
		}
	}
	return -1
}

// systemTables is built once, on first use, and only read.
type systemTables struct {
	all    []*SystemRelation
	byName map[string]*SystemRelation // schema + "\x00" + name
	byOID  map[uint32]*SystemRelation
	err    error
}

var system = sync.OnceValue(loadSystem)

func loadSystem() *systemTables {
	t := &systemTables{byName: map[string]*SystemRelation{}, byOID: map[uint32]*SystemRelation{}}
	for _, schema := range [...]string{PgCatalog, InfoSchema} {
		data, err := systemFiles.ReadFile("data/" + schema + ".tsv")
		if err != nil {
			t.err = pgerr.Wrap(pgerr.InternalError, err, "read the list of system relations")
			return t
		}
		for line := range strings.Lines(string(data)) {
			r, err := parseSystemRelation(schema, strings.TrimRight(line, "\n"))
			if err != nil {
				t.err = err
				return t
			}
			t.all = append(t.all, r)
			t.byName[schema+"\x00"+r.Name] = r
			t.byOID[r.OID] = r
		}
	}
	return t
}

func parseSystemRelation(schema, line string) (*SystemRelation, error) {
	f := strings.Split(line, "\t")
	if len(f) < 5 {
		return nil, pgerr.Newf(pgerr.InternalError, "malformed system relation %q", line)
	}
	oid, err := strconv.ParseUint(f[1], 10, 32)
	if err != nil {
		return nil, pgerr.Wrap(pgerr.InternalError, err, "read system relation %s", f[0])
	}
	row, err := strconv.ParseUint(f[2], 10, 32)
	if err != nil {
		return nil, pgerr.Wrap(pgerr.InternalError, err, "read system relation %s", f[0])
	}
	r := &SystemRelation{OID: uint32(oid), RowType: uint32(row), Schema: schema, Name: f[0], Kind: f[3][0]}
	for _, c := range f[4:] {
		name, typ, _ := strings.Cut(c, " ")
		name, later := strings.CutPrefix(name, "~") // of versions after the reported one: there for clients that ask by name, no part of *
		typ, notNull := strings.CutSuffix(typ, "!")
		t, ok := systemColumnType(typ)
		if !ok {
			return nil, pgerr.Newf(pgerr.InternalError, "column %s.%s has the unknown type %s", r.Name, name, typ)
		}
		r.Columns = append(r.Columns, Column{Name: name, Type: t, NotNull: notNull, Hidden: later})
	}
	if r.Kind == 'r' {
		// Of PostgreSQL's system columns those that clients read from catalogues. No part of *.
		r.Columns = append(r.Columns, Column{Name: "tableoid", Type: types.Oid, NotNull: true, Hidden: true},
			Column{Name: "xmin", Type: types.T(types.OIDXid), NotNull: true, Hidden: true})
	}
	return r, nil
}

// systemColumnType reads a type name with at most one number as its modifier.
func systemColumnType(s string) (types.Type, bool) {
	name, mod, _ := strings.Cut(strings.TrimSuffix(s, ")"), "(")
	oid, ok := types.TypeByName(name)
	if !ok {
		return types.Type{}, false
	}
	t := types.T(oid)
	if mod != "" {
		n, err := strconv.Atoi(mod)
		if err != nil {
			return types.Type{}, false
		}
		if t.Mod, err = types.TypmodIn(oid, []int{n}); err != nil {
			return types.Type{}, false
		}
	}
	return t, true
}

// SystemRelations lists pg_catalog and information_schema. The result is shared: do not modify it.
func SystemRelations() []*SystemRelation { return system().all }

// LookupSystem finds a system relation. Without a schema only pg_catalog is searched, which every search path holds implicitly in its first
// place; a search path that names pg_catalog or information_schema itself is resolved by asking with each of its schemas.
func LookupSystem(schema, name string) (*SystemRelation, bool) {
	if schema == "" {
		schema = PgCatalog
	}
	r, ok := system().byName[schema+"\x00"+name]
	return r, ok
}

// IsSystemSchema reports whether users cannot create objects in the schema.
func IsSystemSchema(name string) bool {
	return name == PgCatalog || name == InfoSchema || name == SystemSchema
}
