package catalog

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
