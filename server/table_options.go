package server

import (
	"context"
	"maps"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
)

// Options of tables that are streamdb's own. The first two are settings, too, and options of materialized views.
const (
	settingRetention     = "retention"
	settingRetentionSize = "retention_size"
)

// ownTableOptions are the options of tables that have an effect.
var ownTableOptions = map[string]bool{settingRetention: true, settingRetentionSize: true}

// tableOptions takes streamdb's own options into a table; the others are PostgreSQL's storage parameters, which are checked.
func (d *dispatch) tableOptions(o *catalog.Object, opts []sql.Option, reset bool) error {
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
		if o.Settings = maps.Clone(o.Settings); o.Settings == nil {
			o.Settings = map[string]string{}
		}
		o.Settings[name] = value
		o.Options = withOption(o.Options, name, !reset)
	}
	if reset {
		return nil
	}
	return storageParameters(catalog.Table, others)
}

func (d *dispatch) tableOption(name string, opt sql.Option, reset bool) (string, error) {
	st, err := d.ss.srv.settings.table.find(name)
	if err != nil {
		return "", err
	}
	if reset {
		return d.ss.vars.get(name), nil
	}
	if opt.NoValue {
		return "", pgerr.Newf(pgerr.InvalidParameterValue, "parameter %q needs a value", name).At(opt.Pos)
	}
	value, err := st.normalise(opt.Value)
	return value, atPos(err, opt.ValuePos)
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
