package server

import (
	"fmt"
	"strings"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

var jobColumns = types.Schema{
	{Name: "id", Type: types.Int8},
	{Name: "statement", Type: types.Text},
	{Name: "state", Type: types.Text},
	{Name: "progress", Type: types.Text},
	{Name: "error", Type: types.Text},
}

// showColumns are the result columns of a SHOW statement.
func (ss *session) showColumns(st *sql.Show) types.Schema {
	switch st.Kind {
	case sql.ShowSetting:
		name := st.Name
		if s, err := ss.srv.settings.table.find(name); err == nil {
			name = s.name
		}
		return types.Schema{{Name: name, Type: types.Text}}
	case sql.ShowAll:
		return types.Schema{{Name: "name", Type: types.Text}, {Name: "setting", Type: types.Text}, {Name: "description", Type: types.Text}}
	case sql.ShowCreate:
		return types.Schema{{Name: "name", Type: types.Text}, {Name: "create_sql", Type: types.Text}}
	case sql.ShowColumns:
		return types.Schema{{Name: "name", Type: types.Text}, {Name: "type", Type: types.Text}, {Name: "is_hidden", Type: types.Bool}, {Name: "description", Type: types.Text}}
	}
	if st.Objects == "jobs" {
		return jobColumns
	}
	return types.Schema{{Name: "name", Type: types.Text}}
}

func (d *dispatch) show(st *sql.Show) error {
	cols := d.ss.showColumns(st)
	switch st.Kind {
	case sql.ShowSetting:
		v, ok := d.ss.vars.lookup(st.Name)
		if !ok {
			return pgerr.Newf(pgerr.UndefinedObject, "unrecognized configuration parameter %q", st.Name)
		}
		return d.rows(cols, [][]types.Datum{{text(v)}}, "SHOW")
	case sql.ShowAll:
		var rows [][]types.Datum
		for _, s := range d.ss.srv.settings.table.list {
			if st.Like == "" || like(s.name, st.Like) {
				rows = append(rows, []types.Datum{text(s.name), text(d.ss.vars.get(s.name)), text(s.doc)})
			}
		}
		return d.rows(cols, rows, "SHOW")
	case sql.ShowCreate:
		o, ok := d.ss.resolve(st.Target)
		if !ok {
			return undefinedRelation(st.Target)
		}
		if string(o.Kind) != string(st.Object) {
			return pgerr.Newf(pgerr.WrongObjectType, "%q is not %s %s", o.Name, article(string(st.Object)), st.Object).At(st.Target.Pos)
		}
		info := catalog.Info{Snap: d.ss.snapshot()}
		return d.rows(cols, [][]types.Datum{{text(o.Schema + "." + o.Name), text(info.CreateStatement(o, d.ss.vars.searchPath()))}}, "SHOW")
	case sql.ShowColumns:
		o, ok := d.ss.resolve(st.Target)
		if !ok {
			return undefinedRelation(st.Target)
		}
		var rows [][]types.Datum
		for _, c := range o.Columns {
			rows = append(rows, []types.Datum{text(c.Name), text(d.fullTypeName(c.Type)), {Type: types.Bool, Bool: c.Hidden}, text(c.Comment)})
		}
		return d.rows(cols, rows, "SHOW")
	}
	return d.showObjects(st, cols)
}

func like(s, pattern string) bool {
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '%':
			for k := 0; k <= len(s); k++ {
				if like(s[k:], pattern[i+1:]) {
					return true
				}
			}
			return false
		case '_':
			if s == "" {
				return false
			}
			s = s[1:]
		default:
			if s == "" || s[0] != pattern[i] {
				return false
			}
			s = s[1:]
		}
	}
	return s == ""
}

func (d *dispatch) showObjects(st *sql.Show, cols types.Schema) error {
	snap := d.ss.snapshot()
	var rows [][]types.Datum
	add := func(name string) {
		if st.Like == "" || like(name, st.Like) {
			rows = append(rows, []types.Datum{text(name)})
		}
	}
	kinds := map[string]catalog.Kind{"tables": catalog.Table, "sources": catalog.Source, "views": catalog.View, "materialized views": catalog.MaterializedView, "indexes": catalog.Index, "sinks": catalog.Sink}
	switch {
	case st.Objects == "jobs":
		return d.rows(cols, d.ss.srv.jobRows(), "SHOW")
	case st.Objects == "schemas":
		for _, n := range snap.Namespaces() {
			add(n.Name)
		}
	case st.Objects == "databases":
		add(databaseName)
	case kinds[st.Objects] != "":
		for _, o := range snap.Objects() {
			if o.Kind == kinds[st.Objects] && (st.From == "" || o.Schema == st.From) {
				add(o.Name)
			}
		}
	default:
		start, _ := st.Span()
		return pgerr.Newf(pgerr.FeatureNotSupported, "SHOW %s is not supported", strings.ToUpper(st.Objects)).At(start).
			WithHint("SHOW knows TABLES, SOURCES, SINKS, VIEWS, MATERIALIZED VIEWS, SCHEMAS, JOBS, ALL, CREATE and the settings.")
	}
	return d.rows(cols, rows, "SHOW")
}

func (s *Server) jobRows() [][]types.Datum {
	snap := s.catalog.Snapshot()
	info := &catalog.Info{Snap: snap}
	var rows [][]types.Datum
	for _, o := range snap.Objects() {
		j, ok := s.engine.Job(o.ID)
		if !ok {
			continue
		}
		rows = append(rows, s.jobRow(o.ID, info.CreateStatement(o, o.SearchPath), j, o.Creating))
	}
	for _, j := range s.engine.Jobs() {
		if j.Hidden() {
			rows = append(rows, s.jobRow(j.Spec.ID, "REPLACE "+strings.ToUpper(jobKind(j))+" "+sql.QuoteIdent(j.Spec.Name), j, true))
		}
	}
	return rows
}

func (s *Server) jobRow(id uint64, definition string, j *exec.Job, filling bool) []types.Datum {
	progress := types.NullDatum(types.Text)
	if j.Status() == exec.JobBackfilling || filling {
		read, total := j.Progress()
		pct := int64(100)
		if total > 0 {
			pct = min(100, read*100/total)
		}
		progress = text(fmt.Sprintf("%d %% (%d of %d rows)", pct, read, total))
	}
	return []types.Datum{int8d(int64(id)), text(definition), text(s.jobState(j)), progress, errText(j.Err())}
}

func errText(err error) types.Datum {
	if err == nil {
		return types.NullDatum(types.Text)
	}
	if e := pgerr.From(err); e.Hint != "" {
		return text(err.Error() + "\nHINT:  " + e.Hint)
	}
	return text(err.Error())
}

func (d *dispatch) cancelJobs(st *sql.CancelJobs) error {
	var rows [][]types.Datum
	for _, raw := range st.IDs {
		var id uint64
		if _, err := fmt.Sscan(strings.Trim(raw, "' "), &id); err != nil {
			return pgerr.Newf(pgerr.InvalidTextRepresentation, "invalid job id %q", raw)
		}
		o, ok := d.ss.snapshot().Get(id)
		if j, hidden := d.ss.srv.engine.JobWithID(id); !ok && hidden && j.Hidden() {
			view, ok := d.ss.snapshot().Get(j.Relation().ID)
			if ok {
				if err := d.ss.mustOwn(view, false); err != nil {
					return err
				}
			}
			j.Stop() // who waits for it cleans up
			rows = append(rows, []types.Datum{int8d(int64(id))})
			continue
		}
		if !ok || o.Plan == nil {
			return pgerr.Newf(pgerr.UndefinedObject, "job %d does not exist", id)
		}
		if !o.Creating {
			return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "job %d is not being created: it runs", id).WithHint("DROP %s ends a running one.", strings.ToUpper(string(o.Kind)))
		}
		if err := d.dropObjects([]*catalog.Object{o}); err != nil {
			return err
		}
		rows = append(rows, []types.Datum{int8d(int64(id))})
	}
	return d.rows(types.Schema{{Name: "id", Type: types.Int8}}, rows, "CANCEL JOBS")
}

func (d *dispatch) pause(n *sql.Name, pause bool) error {
	jobs, err := d.jobsNamed(n)
	if err != nil {
		return err
	}
	err = d.ss.update(func(tx *catalog.Tx) error {
		for _, j := range jobs {
			o, ok := tx.Snapshot().Get(j.PublicID())
			if !ok || o.Paused == pause {
				continue
			}
			c := *o
			c.Paused, c.Stopped = pause, false // it stays so over a restart
			if err := tx.Replace(&c); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if pause {
			j.Pause()
		} else {
			j.Resume()
		}
	}
	if pause {
		return d.complete("PAUSE")
	}
	return d.complete("RESUME")
}

// wait blocks until views have been filled and show all that is committed.
func (d *dispatch) wait(st *sql.Wait) error {
	jobs, err := d.jobsNamed(st.Object)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if err := j.WaitCaughtUp(d.ctx, progressEvery, j.HeldUp); err != nil {
			return err
		}
		if err := j.Err(); err != nil && st.Object != nil && j.Status() == exec.JobFailed {
			return err
		}
		if o, ok := d.ss.snapshot().Get(j.PublicID()); ok && o.Creating {
			if err := d.ss.update(created(o.ID, o.Name)); err != nil {
				return err
			}
		}
	}
	if err := d.ss.srv.engine.Flush(d.ctx); err != nil {
		return err
	}
	return d.complete("WAIT")
}

func (d *dispatch) set(st *sql.Set) error {
	v := d.ss.vars
	v.notify = d.ss.notifier.ParameterStatus
	if st.Local {
		if err := d.outsideBlock("SET LOCAL"); err != nil {
			return err
		}
	}
	var err error
	if st.Default {
		err = v.resetOne(st.Name)
	} else {
		err = v.set(st.Name, st.Values, st.Local)
	}
	if err != nil {
		return atPos(err, -1)
	}
	if err := d.ss.tellDeprecated(st.Name); err != nil {
		return err
	}
	return d.complete("SET")
}

func (d *dispatch) reset(st *sql.Reset) error {
	v := d.ss.vars
	v.notify = d.ss.notifier.ParameterStatus
	if st.All {
		v.resetAll()
	} else if err := v.resetOne(st.Name); err != nil {
		return err
	}
	return d.complete("RESET")
}

func (d *dispatch) discard(st *sql.Discard) error {
	ss := d.ss
	if st.What == "all" || st.What == "sequences" {
		ss.sequences.forget()
	}
	if st.What == "all" {
		if ss.tx.explicit {
			return pgerr.Newf(pgerr.ActiveSQLTransaction, "DISCARD ALL cannot run inside a transaction block")
		}
		ss.vars.notify = ss.notifier.ParameterStatus
		if err := ss.vars.resetOne("session_authorization"); err != nil {
			return err
		}
		ss.vars.resetAll()
		clear(ss.prepared)
		ss.tx.listens = append(ss.tx.listens, listening{off: true})
		ss.srv.locks.unlockAll(ss)
		ss.closePortals(func(p *portal) bool { return p != d.portal })
	}
	if st.What == "all" || st.What == "temp" || st.What == "temporary" {
		if err := ss.dropTemporary(); err != nil {
			return err
		}
	}
	return d.complete("DISCARD " + strings.ToUpper(st.What))
}

func (d *dispatch) prepareSQL(st *sql.Prepare) error {
	ss := d.ss
	if _, ok := ss.prepared[st.Name]; ok {
		return pgerr.Newf(pgerr.DuplicatePreparedStatement, "prepared statement %q already exists", st.Name)
	}
	p := &prepared{name: st.Name, text: st.SourceText(), stmt: st.Target, at: time.Now(), fromSQL: true}
	for i := range st.Types {
		t, err := d.columnType(&st.Types[i])
		if err != nil {
			return err
		}
		p.declared = append(p.declared, t)
	}
	if err := ss.plan(p); err != nil {
		return err
	}
	ss.prepared[st.Name] = p
	return d.complete("PREPARE")
}

func (d *dispatch) executeSQL(st *sql.Execute) error {
	ss := d.ss
	p := ss.prepared[st.Name]
	if p == nil {
		return noStatement(st.Name)
	}
	if err := ss.fresh(p); err != nil {
		return err
	}
	if len(st.Args) != len(p.params) {
		return pgerr.Newf(pgerr.SyntaxError, "wrong number of parameters for prepared statement %q", st.Name).
			WithDetail("Expected %d parameters but got %d.", len(p.params), len(st.Args))
	}
	p.uses++
	args := make([]types.Datum, len(st.Args))
	for i, q := range st.Args {
		e, err := bindArgument(ss, q, i+1, p.params[i])
		if err != nil {
			return err
		}
		if args[i], err = expr.EvalConst(e, ss.env(d.args), ss.srv.registry); err != nil {
			return err
		}
	}
	sub := &dispatch{ss: ss, ctx: d.ctx, w: d.w, args: args, last: d.last, pre: p, portal: d.portal, formats: d.formats}
	return sub.statement(p.stmt)
}

func (d *dispatch) deallocate(st *sql.Deallocate) error {
	ss := d.ss
	if st.All {
		clear(ss.prepared)
		return d.complete("DEALLOCATE ALL")
	}
	if ss.prepared[st.Name] == nil {
		return noStatement(st.Name)
	}
	delete(ss.prepared, st.Name)
	return d.complete("DEALLOCATE")
}
