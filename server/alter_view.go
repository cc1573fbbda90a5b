package server

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec"
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
	n, err := d.changeJob(x, x.Options, &c, j, settingParallelism, settingOnError, settingRetention, settingRetentionSize)
	if err != nil {
		return err
	}
	if err := d.ss.update(func(tx *catalog.Tx) error { return tx.Replace(&c) }); err != nil {
		return err
	}
	if snap := d.ss.snapshot(); c.Settings[checkpoint.SettingMode] != o.Settings[checkpoint.SettingMode] {
		d.tell(srv.looseUnder(snap, []*catalog.Object{&c}, snap.Dependents(c.ID)))
	}
	if c.Settings[checkpoint.SettingUnaligned] != o.Settings[checkpoint.SettingUnaligned] {
		d.tell(srv.staysAligned(&c))
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

// changeJob changes settings of a job in its object, those that always may be changed and the named ones, and returns the parallelism that it is to have.
func (d *dispatch) changeJob(x *sql.AlterAction, options []sql.Option, c *catalog.Object, j *exec.Job, changeable ...string) (parallelism int, err error) {
	srv := d.ss.srv
	c.Settings = maps.Clone(c.Settings)
	for _, opt := range options {
		st, err := srv.settings.table.find(opt.Name)
		if err != nil || st.scope != scopeJob {
			if err == nil && st.scope == scopeServer {
				return 0, errServerWide(st).At(opt.Pos)
			}
			return 0, srv.settings.table.notOfJobs(opt, func(st *setting) bool {
				return st.scope == scopeJob && (st.live || slices.Contains(changeable, st.name))
			},
				"What can be changed of a %s: execution.checkpointing.…, %s.", c.Kind, strings.Join(changeable, ", "))
		}
		if err := d.ss.tellDeprecated(opt.Name); err != nil {
			return 0, err
		}
		if !st.live && !slices.Contains(changeable, st.name) {
			e := pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "parameter %q of a %s cannot be changed", st.name, c.Kind).At(opt.Pos)
			if c.Kind == catalog.Sink {
				return 0, e.WithHint("DROP the sink and CREATE it anew.")
			}
			return 0, e.WithHint("DROP the view and CREATE it anew.")
		}
		value := d.ss.vars.get(st.name)
		if x.Kind != sql.AlterReset {
			if value, err = st.option(opt); err != nil {
				return 0, err
			}
		}
		if st.name == settingParallelism && value == "0" {
			value = strconv.Itoa(d.ss.srv.defaultParallelism())
		}
		c.Settings[st.name] = value
		if st.live && x.Kind == sql.AlterReset {
			delete(c.Settings, st.name) // the server's again
		}
		c.Options = withOption(c.Options, st.name, x.Kind != sql.AlterReset)
	}
	n, err := strconv.Atoi(c.Settings[settingParallelism])
	if err != nil || n > srv.engine.MaxParallelism() {
		return 0, pgerr.Newf(pgerr.InvalidParameterValue, "parallelism must be at most %d", srv.engine.MaxParallelism()).At(x.Pos)
	}
	if err := srv.settings.checkCheckpoints(c.Settings); err != nil {
		return 0, atPos(err, x.Pos)
	}
	return n, atPos(srv.engine.CanRescale(j, n), x.Pos)
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
