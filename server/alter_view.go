package server

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
)

// alterViewOptions changes the options of a materialized view while it runs: ALTER MATERIALIZED VIEW … SET | RESET (…).
func (d *dispatch) alterViewOptions(x *sql.AlterAction, o *catalog.Object) error {
	srv := d.ss.srv
	j, ok := srv.engine.Job(o.ID)
	if !ok {
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "materialized view %q is not running", o.Name)
	}
	c := *o
	c.Settings = maps.Clone(o.Settings)
	for _, opt := range x.Options {
		st, err := srv.settings.table.find(opt.Name)
		if err != nil || st.scope != scopeJob {
			return pgerr.Newf(pgerr.InvalidParameterValue, "unrecognized parameter %q", opt.Name).At(opt.Pos).
				WithHint("What can be changed of a materialized view: execution.checkpointing.…, parallelism, on_error, retention, retention_size.")
		}
		if err := d.ss.tellDeprecated(opt.Name); err != nil {
			return err
		}
		if !st.live && st.name != settingParallelism && st.name != settingOnError && st.name != settingRetention && st.name != settingRetentionSize {
			return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "parameter %q of a materialized view cannot be changed", st.name).At(opt.Pos).
				WithHint("DROP the view and CREATE it anew.")
		}
		value := d.ss.vars.get(st.name)
		if x.Kind != sql.AlterReset {
			if value, err = st.option(opt); err != nil {
				return err
			}
		}
		if st.name == settingParallelism && value == "0" {
			value = strconv.Itoa(defaultParallelism())
		}
		c.Settings[st.name] = value
		if st.live && x.Kind == sql.AlterReset {
			delete(c.Settings, st.name) // the server's again
		}
		c.Options = withOption(c.Options, st.name, x.Kind != sql.AlterReset)
	}
	n, err := strconv.Atoi(c.Settings[settingParallelism])
	if err != nil || n > srv.engine.MaxParallelism() {
		return pgerr.Newf(pgerr.InvalidParameterValue, "parallelism must be at most %d", srv.engine.MaxParallelism()).At(x.Pos)
	}
	if err := srv.settings.checkCheckpoints(c.Settings); err != nil {
		return atPos(err, x.Pos)
	}
	if err := srv.engine.CanRescale(j, n); err != nil {
		return atPos(err, x.Pos)
	}
	if err := d.ss.update(func(tx *catalog.Tx) error { return tx.Replace(&c) }); err != nil {
		return err
	}
	return d.atCommit(func(context.Context) error {
		j.SetSettings(srv.ownCheckpoints(&c))
		j.SetRaises(c.Settings[settingOnError] == "raise")
		if n != j.Parallelism() {
			srv.engine.Rescale(j, n)
		}
		if err := srv.retain(&c, 0); err != nil {
			return err
		}
		return srv.engine.AwaitHistory(d.ctx, j.Relation())
	})
}

// withOption returns the names of options, sorted, with one more or one less.
func withOption(names []string, name string, given bool) []string {
	out := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
	if given {
		out = append(out, name)
		slices.Sort(out)
	}
	return out
}
