package catalog

import "strconv"

// CursorInfo is a cursor of the session as pg_cursors lists it. Created is µs since 2000-01-01 UTC.
type CursorInfo struct {
	Name, Statement              string
	Holdable, Binary, Scrollable bool
	Created                      int64
}

// PreparedInfo is a prepared statement of the session as pg_prepared_statements lists it.
type PreparedInfo struct {
	Name, Statement           string
	Prepared                  int64
	Params                    []int64 // OIDs of types
	FromSQL                   bool
	GenericPlans, CustomPlans int64
}

// LockInfo is a lock, held or waited for, as pg_locks lists it: Relation is that of a "relation", the three after it are those of the others. Since is µs since 2000-01-01 UTC, 0 for none.
type LockInfo struct {
	Type          string
	Relation      uint32
	Class, Object uint32
	Sub           int
	PID           int32
	Mode          string
	Granted       bool
	Since         int64
}

func pgLocks(d *SystemData, w *rowWriter) {
	if d.Locks == nil {
		return
	}
	for _, l := range d.Locks() {
		w.strs("locktype", l.Type, "mode", l.Mode, "virtualtransaction", strconv.Itoa(int(l.PID))+"/0")
		if l.Type == "object" {
			w.oid("database", 0) // it is the database itself
		} else {
			w.oid("database", databaseOID)
		}
		if l.Relation != 0 {
			w.oid("relation", l.Relation)
		} else {
			w.oid("classid", l.Class)
			w.oid("objid", l.Object)
			w.int("objsubid", int64(l.Sub))
		}
		w.int("pid", int64(l.PID))
		w.bool("granted", l.Granted)
		w.bool("fastpath", false)
		w.timestamp("waitstart", l.Since)
		w.end()
	}
}

func pgCursors(d *SystemData, w *rowWriter) {
	if d.Cursors == nil {
		return
	}
	for _, c := range d.Cursors() {
		w.strs("name", c.Name, "statement", c.Statement)
		w.bool("is_holdable", c.Holdable)
		w.bool("is_binary", c.Binary)
		w.bool("is_scrollable", c.Scrollable)
		w.timestamp("creation_time", c.Created)
		w.end()
	}
}

func pgPreparedStatements(d *SystemData, w *rowWriter) {
	if d.Prepared == nil {
		return
	}
	for _, p := range d.Prepared() {
		w.strs("name", p.Name, "statement", p.Statement)
		w.timestamp("prepare_time", p.Prepared)
		w.array("parameter_types", p.Params)
		w.bool("from_sql", p.FromSQL)
		w.int("generic_plans", p.GenericPlans)
		w.int("custom_plans", p.CustomPlans)
		w.end()
	}
}
