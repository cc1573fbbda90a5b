package catalog

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

const encodingUTF8 = 6

func pgDatabase(d *SystemData, w *rowWriter) {
	w.oid("oid", databaseOID)
	w.str("datname", d.Database)
	w.oid("datdba", ownerOf(d.Snap.database.Owner))
	d.acl(w, "datacl", d.Snap.database.ACL)
	w.int("encoding", encodingUTF8)
	w.strs("datcollate", "C", "datctype", "C", "datlocprovider", "c")
	w.bool("datallowconn", true)
	w.int("datconnlimit", -1)
	w.oid("dattablespace", defaultTablespace)
	w.end()
}

const defaultTablespace = 1663

func pgSettings(d *SystemData, w *rowWriter) {
	if d.Settings == nil {
		return
	}
	for _, s := range d.Settings() {
		typ, category, context, source, file := s.Type, s.Category, s.Context, "default", ""
		if typ == "" {
			typ = "string"
		}
		if category == "" {
			category = "Customized Options"
		}
		if context == "" {
			context = "user"
		}
		switch {
		case s.Value != s.Reset && context == "user":
			source = "session"
		case s.Source != "":
			source, file = s.Source, s.SourceFile
		case s.Value != s.Boot && context == "user":
			source = "client"
		case s.Value != s.Boot:
			source = "override"
		}
		w.strs("name", s.Name, "setting", s.Value, "category", category, "short_desc", s.Doc, "context", context, "vartype", typ, "source", source,
			"boot_val", s.Boot, "reset_val", s.Reset)
		w.text("unit", s.Unit)
		w.text("sourcefile", file)
		w.bool("pending_restart", false)
		w.end()
	}
}

func pgStatActivity(d *SystemData, w *rowWriter) {
	if d.Sessions == nil {
		return
	}
	for _, s := range d.Sessions() {
		w.oid("datid", databaseOID)
		w.strs("datname", s.Database, "usename", s.User, "application_name", s.Application)
		w.int("pid", int64(s.PID))
		if oid := d.roleOID(s.User); oid != 0 {
			w.oid("usesysid", oid)
		}
		w.str("query", s.Query)
		if !d.mayWatch(s.User) {
			w.str("query", "<insufficient privilege>")
			w.end()
			continue
		}
		w.text("client_addr", s.ClientAddr)
		if s.ClientPort != 0 {
			w.int("client_port", int64(s.ClientPort))
		}
		w.timestamp("backend_start", s.Started)
		w.timestamp("xact_start", s.TxnStarted)
		w.timestamp("query_start", s.QueryStarted)
		w.timestamp("state_change", s.StateTime)
		if s.State == "idle" || s.State == "idle in transaction" {
			w.strs("wait_event_type", "Client", "wait_event", "ClientRead")
		}
		w.text("state", s.State)
		w.str("backend_type", "client backend")
		w.end()
	}
}

// mayWatch reports whether the session may see what the sessions of a user do.
func (d *SystemData) mayWatch(user string) bool {
	if d.super() || d.usable(RoleReadAllStats) {
		return true
	}
	oid := d.roleOID(user)
	return oid != 0 && d.usable(oid)
}

func pgStatDatabase(d *SystemData, w *rowWriter) {
	w.oid("datid", databaseOID)
	w.str("datname", d.Database)
	if d.Sessions != nil && w.wants("numbackends") {
		w.int("numbackends", int64(len(d.Sessions())))
	}
	w.end()
}

// zeroCounts sets every column of the current row that counts something to 0: what is not counted here.
func zeroCounts(w *rowWriter, columns []string) {
	for _, c := range columns {
		if w.has(c) {
			w.int(c, 0)
		}
	}
}

// pgStatTables fills pg_stat_*_tables and pg_statio_*_tables with the tables and materialized views of users.
func pgStatTables(d *SystemData, w *rowWriter) {
	for _, r := range d.userRelations() {
		if r.kind != 'r' && r.kind != 'm' {
			continue
		}
		w.oid("relid", r.oid)
		w.strs("schemaname", r.schema, "relname", r.name)
		zeroCounts(w, []string{
			"seq_scan", "seq_tup_read", "idx_scan", "idx_tup_fetch", "n_tup_ins", "n_tup_upd", "n_tup_del", "n_tup_hot_upd", "n_dead_tup",
			"n_mod_since_analyze", "n_ins_since_vacuum", "vacuum_count", "autovacuum_count", "analyze_count", "autoanalyze_count",
			"heap_blks_read", "heap_blks_hit", "idx_blks_read", "idx_blks_hit",
		})
		if w.has("n_live_tup") && w.wants("n_live_tup") {
			w.int("n_live_tup", max(d.rows(r), 0))
		}
		w.end()
	}
}

// pgStatIndexes fills pg_stat_*_indexes and pg_statio_*_indexes.
func pgStatIndexes(d *SystemData, w *rowWriter) {
	for _, r := range d.userRelations() {
		for _, x := range d.indexes(r) {
			w.oid("relid", r.oid)
			w.oid("indexrelid", x.oid)
			w.strs("schemaname", r.schema, "relname", r.name, "indexrelname", x.name)
			zeroCounts(w, []string{"idx_scan", "idx_tup_read", "idx_tup_fetch", "idx_blks_read", "idx_blks_hit"})
			w.end()
		}
	}
}

func pgTimezoneNames(d *SystemData, w *rowWriter) {
	for _, name := range types.ZoneNames() {
		if w.done() {
			return
		}
		loc, ok := types.LookupZone(name)
		if !ok {
			w.failed(pgerr.Newf(pgerr.InternalError, "time zone %q is listed but unknown", name))
			return
		}
		offset, abbrev := types.ZoneOffset(d.Now, loc)
		w.strs("name", name, "abbrev", abbrev)
		w.interval("utc_offset", types.Interval{Micros: int64(offset) * 1_000_000})
		w.bool("is_dst", types.TimeFromTimestamp(d.Now).In(loc).IsDST())
		w.end()
	}
}

func pgTables(d *SystemData, w *rowWriter) {
	for _, r := range d.relations() {
		if r.kind != 'r' {
			continue
		}
		w.strs("schemaname", r.schema, "tablename", r.name, "tableowner", d.ownerName(r))
		w.bool("hasindexes", len(d.indexes(r)) > 0)
		for _, c := range [...]string{"hasrules", "hastriggers", "rowsecurity"} {
			w.bool(c, false)
		}
		w.end()
	}
}

func pgViews(d *SystemData, w *rowWriter) {
	for _, r := range d.relations() {
		if r.kind != 'v' {
			continue
		}
		w.strs("schemaname", r.schema, "viewname", r.name, "viewowner", d.ownerName(r))
		if r.object != nil {
			w.str("definition", d.Snap.viewDefinition(r.object, d.Path))
		}
		w.end()
	}
}

func pgMatviews(d *SystemData, w *rowWriter) {
	for _, r := range d.userRelations() {
		if r.kind != 'm' {
			continue
		}
		w.strs("schemaname", r.schema, "matviewname", r.name, "matviewowner", d.ownerName(r), "definition", d.Snap.viewDefinition(r.object, d.Path))
		w.bool("hasindexes", len(d.indexes(r)) > 0)
		w.bool("ispopulated", !r.object.Creating)
		w.end()
	}
}

func pgIndexes(d *SystemData, w *rowWriter) {
	for _, r := range d.userRelations() {
		for _, x := range d.indexes(r) {
			w.strs("schemaname", r.schema, "tablename", r.name, "indexname", x.name, "indexdef", x.definition(false))
			w.end()
		}
	}
}
