package catalog

import (
	"context"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// Setting is a configuration parameter as pg_settings lists it. All but the first three may be left empty.
type Setting struct {
	Name, Value, Doc string
	Type             string // bool, enum, integer, real, string; "" = string
	Unit             string
	Category         string
	Context          string // internal, sighup, user; "" = user
	Source           string // where the value that the session began with is from, in PostgreSQL's words; "" = from nowhere
	SourceFile       string // of a configuration file; "" = none, or not for the user's eyes
	Boot, Reset      string // what it is without anybody's doing, and what RESET goes back to
}

// SessionInfo is a connection as pg_stat_activity lists it. Times are µs since 2000-01-01 UTC, 0 for none.
type SessionInfo struct {
	PID                                          int32
	User, Database, Application, ClientAddr      string
	ClientPort                                   int32
	State, Query                                 string
	Started, TxnStarted, QueryStarted, StateTime int64
	TLS                                          *TLSInfo // nil: not encrypted
}

// SystemData is what the rows of the system relations are made of: one consistent state, good for one statement. Functions may be nil.
type SystemData struct {
	Snap     *Snapshot
	Registry *functions.Registry
	User     string // connected
	Role     uint32 // that the session acts as; 0 is the superuser
	Database string
	// RowCount and Size tell what a relation, by id, holds; RowCount < 0 means unknown.
	RowCount func(relation uint64) int64
	Size     func(relation uint64) int64
	// SequenceValue is the newest value of a sequence; ok is false when it gave none yet.
	SequenceValue    func(id uint64) (value int64, ok bool, err error)
	Path             []string // the session's search path
	Settings         func() []Setting
	Sessions         func() []SessionInfo
	Locks            func() []LockInfo
	Cursors          func() []CursorInfo
	Prepared         func() []PreparedInfo
	HBARules         func() ([]HBARule, error)
	ServerVersion    string
	ServerVersionNum int
	Now              int64 // µs since 2000-01-01 UTC
	// Extra are the relations of schema streamdb: they are listed, their rows come from elsewhere.
	Extra []*SystemRelation
}

// producer writes all rows of one system relation.
type producer func(d *SystemData, w *rowWriter)

// producers holds the relations that have rows. The others of SystemRelations are empty here: streamdb has no such objects.
var producers = map[string]producer{
	"pg_catalog\x00pg_aggregate":            pgAggregate,
	"pg_catalog\x00pg_am":                   recordedRows("pg_am"),
	"pg_catalog\x00pg_attrdef":              pgAttrdef,
	"pg_catalog\x00pg_attribute":            pgAttribute,
	"pg_catalog\x00pg_authid":               pgAuthid,
	"pg_catalog\x00pg_auth_members":         pgAuthMembers,
	"pg_catalog\x00pg_default_acl":          pgDefaultACL,
	"pg_catalog\x00pg_group":                pgGroup,
	"pg_catalog\x00pg_cast":                 pgCast,
	"pg_catalog\x00pg_class":                pgClass,
	"pg_catalog\x00pg_collation":            recordedRows("pg_collation"),
	"pg_catalog\x00pg_constraint":           pgConstraint,
	"pg_catalog\x00pg_cursors":              pgCursors,
	"pg_catalog\x00pg_database":             pgDatabase,
	"pg_catalog\x00pg_db_role_setting":      pgDBRoleSetting,
	"pg_catalog\x00pg_depend":               pgDepend,
	"pg_catalog\x00pg_enum":                 pgEnum,
	"pg_catalog\x00pg_description":          pgDescription,
	"pg_catalog\x00pg_shdescription":        pgShdescription,
	"pg_catalog\x00pg_extension":            pgExtension,
	"pg_catalog\x00pg_foreign_data_wrapper": pgForeignDataWrapper,
	"pg_catalog\x00pg_foreign_server":       pgForeignServer,
	"pg_catalog\x00pg_foreign_table":        pgForeignTable,
	"pg_catalog\x00pg_hba_file_rules":       pgHBAFileRules,
	"pg_catalog\x00pg_index":                pgIndex,
	"pg_catalog\x00pg_indexes":              pgIndexes,
	"pg_catalog\x00pg_init_privs":           pgInitPrivs,
	"pg_catalog\x00pg_language":             recordedRows("pg_language"),
	"pg_catalog\x00pg_locks":                pgLocks,
	"pg_catalog\x00pg_matviews":             pgMatviews,
	"pg_catalog\x00pg_namespace":            pgNamespace,
	"pg_catalog\x00pg_opclass":              recordedRows("pg_opclass"),
	"pg_catalog\x00pg_operator":             pgOperator,
	"pg_catalog\x00pg_opfamily":             recordedRows("pg_opfamily"),
	"pg_catalog\x00pg_proc":                 pgProc,
	"pg_catalog\x00pg_roles":                pgRoles,
	"pg_catalog\x00pg_prepared_statements":  pgPreparedStatements,
	"pg_catalog\x00pg_sequence":             pgSequence,
	"pg_catalog\x00pg_sequences":            pgSequences,
	"pg_catalog\x00pg_settings":             pgSettings,
	"pg_catalog\x00pg_shadow":               pgShadow,
	"pg_catalog\x00pg_stat_activity":        pgStatActivity,
	"pg_catalog\x00pg_stat_all_indexes":     pgStatIndexes,
	"pg_catalog\x00pg_stat_gssapi":          pgStatGSSAPI,
	"pg_catalog\x00pg_stat_ssl":             pgStatSSL,
	"pg_catalog\x00pg_stat_user_indexes":    pgStatIndexes,
	"pg_catalog\x00pg_stat_all_tables":      pgStatTables,
	"pg_catalog\x00pg_stat_database":        pgStatDatabase,
	"pg_catalog\x00pg_stat_user_tables":     pgStatTables,
	"pg_catalog\x00pg_statio_all_indexes":   pgStatIndexes,
	"pg_catalog\x00pg_statio_all_tables":    pgStatTables,
	"pg_catalog\x00pg_statio_user_indexes":  pgStatIndexes,
	"pg_catalog\x00pg_statio_user_tables":   pgStatTables,
	"pg_catalog\x00pg_tables":               pgTables,
	"pg_catalog\x00pg_tablespace":           recordedRows("pg_tablespace"),
	"pg_catalog\x00pg_timezone_names":       pgTimezoneNames,
	"pg_catalog\x00pg_type":                 pgType,
	"pg_catalog\x00pg_user":                 pgUser,
	"pg_catalog\x00pg_views":                pgViews,

	"information_schema\x00administrable_role_authorizations":     isAdministrable,
	"information_schema\x00role_routine_grants":                   isRoleRoutineGrants,
	"information_schema\x00role_udt_grants":                       isRoleUDTGrants,
	"information_schema\x00role_usage_grants":                     isRoleUsageGrants,
	"information_schema\x00routine_privileges":                    isRoutinePrivileges,
	"information_schema\x00udt_privileges":                        isUDTPrivileges,
	"information_schema\x00usage_privileges":                      isUsagePrivileges,
	"information_schema\x00applicable_roles":                      isApplicableRoles,
	"information_schema\x00character_sets":                        isCharacterSets,
	"information_schema\x00check_constraints":                     isCheckConstraints,
	"information_schema\x00collations":                            isCollations,
	"information_schema\x00column_privileges":                     isColumnPrivileges,
	"information_schema\x00columns":                               isColumns,
	"information_schema\x00constraint_column_usage":               isConstraintColumnUsage,
	"information_schema\x00constraint_table_usage":                isConstraintTableUsage,
	"information_schema\x00element_types":                         isElementTypes,
	"information_schema\x00enabled_roles":                         isEnabledRoles,
	"information_schema\x00foreign_data_wrappers":                 isForeignDataWrappers,
	"information_schema\x00foreign_servers":                       isForeignServers,
	"information_schema\x00foreign_tables":                        isForeignTables,
	"information_schema\x00information_schema_catalog_name":       isCatalogName,
	"information_schema\x00key_column_usage":                      isKeyColumnUsage,
	"information_schema\x00parameters":                            isParameters,
	"information_schema\x00role_column_grants":                    isRoleColumnGrants,
	"information_schema\x00role_table_grants":                     isRoleTableGrants,
	"information_schema\x00routines":                              isRoutines,
	"information_schema\x00schemata":                              isSchemata,
	"information_schema\x00sequences":                             isSequences,
	"information_schema\x00table_constraints":                     isTableConstraints,
	"information_schema\x00table_privileges":                      isTablePrivileges,
	"information_schema\x00tables":                                isTables,
	"information_schema\x00view_table_usage":                      isViewTableUsage,
	"information_schema\x00views":                                 isViews,
	"information_schema\x00collation_character_set_applicability": isCollationCharacterSet,
}

// Rows calls emit with the rows of a system relation in chunks of the columns at the given positions of SystemRelation.Columns, in that order.
// A chunk is lent for the call.
func (d *SystemData) Rows(ctx context.Context, schema, name string, columns []int, emit func(*types.Chunk) error) error {
	sys := system()
	if sys.err != nil {
		return sys.err
	}
	rel, ok := LookupSystem(schema, name)
	if !ok {
		return pgerr.Newf(pgerr.UndefinedTable, "relation \"%s.%s\" does not exist", schema, name)
	}
	w, err := newRowWriter(ctx, rel, columns, emit)
	if err != nil {
		return err
	}
	if p := producers[rel.Schema+"\x00"+rel.Name]; p != nil {
		p(d, w)
	}
	return w.finish()
}

// rowWriter takes rows column by column and hands them on in chunks. Columns that a row does not mention are NULL, or, in columns that are
// never NULL, false, 0, or empty. The first error sticks and makes all that follows a no-op.
type rowWriter struct {
	ctx    context.Context
	rel    *SystemRelation
	index  map[string]int // column → position in rel
	slots  []int          // position in rel → position in the chunk, -1 when not wanted
	copies [][2]int       // wanted a second time: chunk positions (from, to)
	chunk  *types.Chunk
	empty  []types.Datum // by chunk position
	row    []types.Datum
	emit   func(*types.Chunk) error
	err    error
}

func newRowWriter(ctx context.Context, rel *SystemRelation, columns []int, emit func(*types.Chunk) error) (*rowWriter, error) {
	w := &rowWriter{ctx: ctx, rel: rel, index: make(map[string]int, len(rel.Columns)), slots: make([]int, len(rel.Columns)), emit: emit}
	for i, c := range rel.Columns {
		w.index[c.Name], w.slots[i] = i, -1
	}
	ts := make([]types.Type, len(columns))
	w.empty = make([]types.Datum, len(columns))
	for i, c := range columns {
		if c < 0 || c >= len(rel.Columns) {
			return nil, pgerr.Newf(pgerr.InternalError, "relation %s has no column at position %d", rel.Name, c)
		}
		col := &rel.Columns[c]
		ts[i] = col.Type
		w.empty[i] = types.NullDatum(col.Type)
		if col.NotNull {
			w.empty[i] = types.Datum{Type: col.Type}
			if e, ok := col.Type.Elem(); ok {
				w.empty[i].Str = types.EncodeArray(types.NewArray(e.OID, nil))
			}
			if col.Hidden && col.Name == "tableoid" {
				w.empty[i].Int = int64(rel.OID)
			}
		}
		if w.slots[c] >= 0 {
			w.copies = append(w.copies, [2]int{w.slots[c], i})
			continue
		}
		w.slots[c] = i
	}
	w.chunk = types.NewChunk(ts)
	w.row = append([]types.Datum(nil), w.empty...)
	return w, nil
}

// slot returns where the current row keeps a column, nil when it is not wanted.
func (w *rowWriter) slot(column string, kind types.Kind) *types.Datum {
	i, ok := w.index[column]
	if !ok || w.rel.Columns[i].Type.Kind() != kind {
		if w.err == nil {
			w.err = pgerr.Newf(pgerr.InternalError, "relation %s has no such column %q of that kind", w.rel.Name, column)
		}
		return nil
	}
	if w.slots[i] < 0 {
		return nil
	}
	d := &w.row[w.slots[i]]
	d.Null = false
	return d
}

// has reports whether the relation has a column: producers shared by several relations ask.
func (w *rowWriter) has(column string) bool {
	_, ok := w.index[column]
	return ok
}

// wants reports whether any of the columns is asked for: what is dear to make is made only then.
func (w *rowWriter) wants(columns ...string) bool {
	for _, c := range columns {
		if i, ok := w.index[c]; ok && w.slots[i] >= 0 {
			return true
		}
	}
	return false
}

func (w *rowWriter) int(column string, v int64) {
	if d := w.slot(column, types.KindInt); d != nil {
		d.Int = v
	}
}

func (w *rowWriter) oid(column string, v uint32) { w.int(column, int64(v)) }

func (w *rowWriter) bool(column string, v bool) {
	if d := w.slot(column, types.KindBool); d != nil {
		d.Bool = v
	}
}

func (w *rowWriter) float(column string, v float64) {
	if d := w.slot(column, types.KindFloat); d != nil {
		d.Float = v
	}
}

func (w *rowWriter) interval(column string, v types.Interval) {
	if d := w.slot(column, types.KindInterval); d != nil {
		d.Ivl = v
	}
}

// maxNameBytes is PostgreSQL's limit of values of type name.
const maxNameBytes = 63

func (w *rowWriter) str(column, v string) {
	if d := w.slot(column, types.KindString); d != nil {
		if d.Type.OID == types.OIDName && len(v) > maxNameBytes {
			v = strings.ToValidUTF8(v[:maxNameBytes], "")
		}
		d.Str = v
	}
}

// strs sets several text columns: name, value, name, value…
func (w *rowWriter) strs(pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		w.str(pairs[i], pairs[i+1])
	}
}

// text sets a text column, NULL when v is empty.
func (w *rowWriter) text(column, v string) {
	if v != "" {
		w.str(column, v)
	}
}

// yes sets a column of type yes_or_no.
func (w *rowWriter) yes(column string, v bool) {
	if v {
		w.str(column, "YES")
	} else {
		w.str(column, "NO")
	}
}

// timestamp sets a time, NULL when v is 0.
func (w *rowWriter) timestamp(column string, v int64) {
	if v != 0 {
		w.int(column, v)
	}
}

// array sets an array of numbers. The subscripts of int2vector and oidvector begin with 0.
func (w *rowWriter) array(column string, vs []int64) {
	d := w.slot(column, types.KindString)
	if d == nil {
		return
	}
	e, _ := d.Type.Elem()
	elems := make([]types.Datum, len(vs))
	for i, v := range vs {
		elems[i] = types.Datum{Type: e, Int: v}
	}
	a := types.NewArray(e.OID, elems)
	if len(vs) > 0 && (d.Type.OID == types.OIDInt2Vector || d.Type.OID == types.OIDOidVector) {
		a.Dims[0].Lower = 0
	}
	d.Str = types.EncodeArray(a)
}

// texts sets an array of texts, NULL when there are none.
func (w *rowWriter) texts(column string, vs []string) {
	if len(vs) == 0 {
		return
	}
	if d := w.slot(column, types.KindString); d != nil {
		d.Str = textArray(d.Type, vs)
	}
}

func textArray(t types.Type, vs []string) string {
	e, _ := t.Elem()
	elems := make([]types.Datum, len(vs))
	for i, v := range vs {
		elems[i] = types.Datum{Type: e, Str: v}
	}
	return types.EncodeArray(types.NewArray(e.OID, elems))
}

// copyFrom sets all columns to those of a recorded row.
func (w *rowWriter) copyFrom(r *recorded, row int) {
	for c, s := range w.slots {
		if s >= 0 && c < len(r.rows.Cols) {
			w.row[s] = r.rows.Cols[c].Get(row)
		}
	}
}

// end closes the row.
func (w *rowWriter) end() {
	if w.err == nil {
		for _, c := range w.copies {
			w.row[c[1]] = w.row[c[0]]
		}
		for i, v := range w.chunk.Cols {
			v.AppendDatum(w.row[i])
		}
		w.chunk.PushWeight(1)
		if w.chunk.N == types.MaxChunkRows {
			w.flush()
		}
	}
	copy(w.row, w.empty)
}

func (w *rowWriter) flush() {
	if w.err != nil || w.chunk.N == 0 {
		return
	}
	if w.err = w.ctx.Err(); w.err == nil {
		w.err = w.emit(w.chunk)
	}
	w.chunk.Reset()
}

func (w *rowWriter) finish() error {
	w.flush()
	return w.err
}

// failed notes an error; done tells producers to stop.
func (w *rowWriter) failed(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *rowWriter) done() bool { return w.err != nil }

// recordedRows is the producer of a relation whose content never changes.
func recordedRows(name string) producer {
	return func(_ *SystemData, w *rowWriter) {
		r := recordings[name]()
		if r.err != nil {
			w.failed(r.err)
			return
		}
		for i := 0; i < r.rows.N && !w.done(); i++ {
			w.copyFrom(r, i)
			w.end()
		}
	}
}
