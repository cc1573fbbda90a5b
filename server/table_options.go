package server

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
)

// Options of tables that are streamdb's own. The first two are settings, too, and options of materialized views.
const (
	settingRetention     = "retention"
	settingRetentionSize = "retention_size"
)

// Options that only tables have.
const (
	optionOnConflict = "on_conflict"
	optionAppendOnly = "append_only"
)

// ownTableOptions are the options of tables that have an effect.
var ownTableOptions = map[string]bool{settingRetention: true, settingRetentionSize: true, optionOnConflict: true, optionAppendOnly: true}

// conflictModes are the values of on_conflict, and the clauses of CREATE TABLE that mean them.
var conflictModes = map[string]string{
	"OVERWRITE": planner.ConflictOverwrite, "DO UPDATE FULL": planner.ConflictOverwrite, "IGNORE": planner.ConflictIgnore, "DO NOTHING": planner.ConflictIgnore,
	"DO UPDATE IF NOT NULL": planner.ConflictIfNotNull,
}

// tableOptions takes streamdb's own options into a table; the others are PostgreSQL's storage parameters, which are checked.
func (d *dispatch) tableOptions(o *catalog.Object, opts []sql.Option, reset bool) error {
	if !reset {
		if err := once(opts); err != nil {
			return err
		}
	}
	var others []sql.Option
	for _, opt := range opts {
		name := strings.ToLower(opt.Name)
		if !ownTableOptions[name] {
			others = append(others, opt)
			continue
		}
		value, err := d.tableOption(name, opt, reset)
		if err != nil {
			return err
		}
		setTableOption(o, name, value, !reset)
	}
	if reset {
		return nil
	}
	return storageParameters(catalog.Table, others)
}

func setTableOption(o *catalog.Object, name, value string, given bool) {
	if o.Settings = maps.Clone(o.Settings); o.Settings == nil {
		o.Settings = map[string]string{}
	}
	o.Settings[name] = value
	if value == "" {
		delete(o.Settings, name)
	}
	o.Options = withOption(o.Options, name, given)
	if name == optionAppendOnly {
		o.AppendOnly = value == "true"
	}
}

// clauseOptions takes APPEND ONLY and ON CONFLICT of a table's definition as the options that they are.
func clauseOptions(o *catalog.Object, def *sql.TableDef) {
	if def.AppendOnly {
		setTableOption(o, optionAppendOnly, "true", true)
	}
	if def.ConflictMode != "" {
		setTableOption(o, optionOnConflict, conflictModes[def.ConflictMode], true)
	}
}

// optionsFit checks what the options of a table ask of each other and of the table.
func (d *dispatch) optionsFit(o *catalog.Object) error {
	mode := o.Settings[optionOnConflict]
	if o.AppendOnly && mode != "" && mode != planner.ConflictIgnore {
		return pgerr.Newf(pgerr.InvalidParameterValue, "an append-only table cannot have on_conflict = '%s'", mode).WithHint("'ignore' leaves the rows there are as they are.")
	}
	if o.AppendOnly && o.OnCommit == catalog.OnCommitDelete {
		return pgerr.Newf(pgerr.InvalidTableDefinition, "an append-only table cannot have ON COMMIT DELETE ROWS")
	}
	return nil
}

func (d *dispatch) tableOption(name string, opt sql.Option, reset bool) (string, error) {
	switch name {
	case optionOnConflict:
		if reset {
			return "", nil
		}
		words := pgerr.NotOneOf{planner.ConflictOverwrite, planner.ConflictIgnore, planner.ConflictIfNotNull}
		if mode := strings.ToLower(opt.Value); slices.Contains(words, mode) {
			return mode, nil
		}
		return "", words.Option(name, optionText(opt)).At(opt.ValuePos)
	case optionAppendOnly:
		if reset {
			return "", nil
		}
		on, err := boolOption(opt)
		return strconv.FormatBool(on), err
	}
	st, err := d.ss.srv.settings.table.find(name)
	if err != nil {
		return "", err
	}
	if reset {
		return d.ss.vars.get(name), nil
	}
	return st.option(opt)
}

// defaultOptions gives a new table what the session's settings say.
func (d *dispatch) defaultOptions(o *catalog.Object) {
	if v := d.ss.vars.get(settingRetention); v != "0" {
		o.Settings = map[string]string{settingRetention: v, settingRetentionSize: d.ss.vars.get(settingRetentionSize)}
	}
}

// alterTableOptions is ALTER TABLE … SET | RESET (…).
func (d *dispatch) alterTableOptions(o *catalog.Object, x *sql.AlterAction) error {
	c := *o
	if err := d.tableOptions(&c, x.Options, x.Kind == sql.AlterReset); err != nil {
		return err
	}
	if maps.Equal(c.Settings, o.Settings) && len(c.Options) == len(o.Options) {
		return nil
	}
	if err := d.optionsFit(&c); err != nil {
		return atPos(err, x.Pos)
	}
	switch {
	case c.AppendOnly && !o.AppendOnly:
		if w := d.ss.tx.writes[o.ID]; w != nil {
			return pgerr.Newf(pgerr.ObjectInUse, "cannot make table %q append-only in a transaction that has changed it", o.Name).At(x.Pos)
		}
		c.Terms++ // changes of rows that others have made meanwhile fail
		if err := d.fence(o); err != nil {
			return err
		}
	case o.AppendOnly && !c.AppendOnly:
		for _, v := range d.ss.snapshot().Dependents(o.ID) {
			if v.Kind == catalog.MaterializedView || v.Kind == catalog.Sink {
				return pgerr.Newf(pgerr.DependentObjectsStillExist, "table %q must stay append-only because other objects depend on it", o.Name).At(x.Pos).
					WithDetail("%s relies on it.", d.describe(v)).WithHint("DROP the view and CREATE it anew after that.")
			}
		}
	}
	if err := d.ss.update(func(tx *catalog.Tx) error { return tx.Replace(&c) }); err != nil {
		return err
	}
	return d.atCommit(func(context.Context) error { return d.ss.srv.retain(&c, 0) })
}

// retentionOf is what an object's options say of its changes.
func retentionOf(settings map[string]string) exec.Retention {
	keep, err := parseDuration(settings[settingRetention])
	if err != nil { // there is no such option
		return exec.Retention{}
	}
	size, err := memoryBytes(settings[settingRetentionSize])
	if err != nil {
		size = defaultRetentionSize
	}
	return exec.Retention{Time: keep, Bytes: size}
}

// defaultRetentionSize is what a relation keeps of its changes at most, in bytes, where nobody says otherwise.
const defaultRetentionSize = 1 << 30

// retain has the engine keep the changes of a relation as its options say. from: the epoch it was restored to.
func (s *Server) retain(o *catalog.Object, from uint64) error {
	if rel, ok := s.engine.Relation(o.ID); ok {
		return s.engine.Retain(rel, retentionOf(o.Settings), from)
	}
	return nil
}
