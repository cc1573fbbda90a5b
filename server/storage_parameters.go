package server

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
)

// parameterKind is the type of a storage parameter.
type parameterKind int

const (
	parameterBool parameterKind = iota
	parameterInt
	parameterReal
	parameterOnOffAuto
)

// storageParameter is one of PostgreSQL's. They are checked as there and have no effect.
type storageParameter struct {
	kind     parameterKind
	min, max int
	toast    bool // of a table's TOAST table too
}

var tableParameters = map[string]storageParameter{
	"fillfactor":                            {kind: parameterInt, min: 10, max: 100},
	"toast_tuple_target":                    {kind: parameterInt, min: 128, max: 8160},
	"parallel_workers":                      {kind: parameterInt, max: 1024},
	"user_catalog_table":                    {},
	"autovacuum_enabled":                    {toast: true},
	"vacuum_truncate":                       {toast: true},
	"vacuum_index_cleanup":                  {kind: parameterOnOffAuto, toast: true},
	"autovacuum_vacuum_threshold":           {kind: parameterInt, max: math.MaxInt32, toast: true},
	"autovacuum_vacuum_insert_threshold":    {kind: parameterInt, min: -1, max: math.MaxInt32, toast: true},
	"autovacuum_analyze_threshold":          {kind: parameterInt, max: math.MaxInt32},
	"autovacuum_vacuum_cost_limit":          {kind: parameterInt, min: 1, max: 10_000, toast: true},
	"autovacuum_vacuum_cost_delay":          {kind: parameterReal, max: 100, toast: true},
	"autovacuum_vacuum_scale_factor":        {kind: parameterReal, max: 100, toast: true},
	"autovacuum_vacuum_insert_scale_factor": {kind: parameterReal, max: 100, toast: true},
	"autovacuum_analyze_scale_factor":       {kind: parameterReal, max: 100},
	"autovacuum_freeze_min_age":             {kind: parameterInt, max: 1_000_000_000, toast: true},
	"autovacuum_freeze_max_age":             {kind: parameterInt, min: 100_000, max: 2_000_000_000, toast: true},
	"autovacuum_freeze_table_age":           {kind: parameterInt, max: 2_000_000_000, toast: true},
	"autovacuum_multixact_freeze_min_age":   {kind: parameterInt, max: 1_000_000_000, toast: true},
	"autovacuum_multixact_freeze_max_age":   {kind: parameterInt, min: 10_000, max: 2_000_000_000, toast: true},
	"autovacuum_multixact_freeze_table_age": {kind: parameterInt, max: 2_000_000_000, toast: true},
	"log_autovacuum_min_duration":           {kind: parameterInt, min: -1, max: math.MaxInt32, toast: true},
}

var indexParameters = map[string]storageParameter{
	"fillfactor":        {kind: parameterInt, min: 10, max: 100},
	"deduplicate_items": {},
}

// storageParameters checks WITH (..) and SET (..) of a table or an index; 22023 for what PostgreSQL refuses.
func storageParameters(kind catalog.Kind, opts []sql.Option) error {
	if err := once(opts); err != nil {
		return err
	}
	known := tableParameters
	if kind == catalog.Index {
		known = indexParameters
	}
	for _, o := range opts {
		name := strings.ToLower(o.Name)
		space, rest, toast := strings.Cut(name, ".")
		if toast {
			if space != "toast" || kind == catalog.Index {
				return pgerr.Newf(pgerr.InvalidParameterValue, "unrecognized parameter namespace %q", space).At(o.Pos)
			}
			name = rest
		}
		p, ok := known[name]
		if !ok || toast && !p.toast {
			e := pgerr.Newf(pgerr.InvalidParameterValue, "unrecognized parameter %q", name).At(o.Pos)
			if kind == catalog.Index {
				return e
			}
			return e.WithHint("A table knows: append_only, on_conflict, retention, retention_size, and the storage parameters of PostgreSQL.")
		}
		if err := p.check(name, o); err != nil {
			return atPos(err, o.ValuePos)
		}
	}
	return nil
}

// once checks that no option is given twice.
func once(opts []sql.Option) error {
	for i, o := range opts {
		if slices.ContainsFunc(opts[:i], func(other sql.Option) bool { return strings.EqualFold(other.Name, o.Name) }) {
			return pgerr.Newf(pgerr.InvalidParameterValue, "parameter %q specified more than once", strings.ToLower(o.Name))
		}
	}
	return nil
}

func (p storageParameter) check(name string, o sql.Option) error {
	value := optionText(o)
	invalid := func(kind string) error {
		return pgerr.Newf(pgerr.InvalidParameterValue, "invalid value for %s option %q: %s", kind, name, value)
	}
	switch p.kind {
	case parameterInt:
		v, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return invalid("integer")
		}
		if v < int64(p.min) || v > int64(p.max) {
			return pgerr.Newf(pgerr.InvalidParameterValue, "value %s out of bounds for option %q", value, name).WithDetail("Valid values are between \"%d\" and \"%d\".", p.min, p.max)
		}
	case parameterReal:
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return invalid("floating point")
		}
		if !(v >= float64(p.min) && v <= float64(p.max)) {
			return pgerr.Newf(pgerr.InvalidParameterValue, "value %s out of bounds for option %q", value, name).
				WithDetail("Valid values are between \"%d.000000\" and \"%d.000000\".", p.min, p.max)
		}
	case parameterOnOffAuto:
		if _, err := boolean(value); err != nil && !strings.EqualFold(value, "auto") {
			return pgerr.NotOneOf{"on", "off", "auto"}.Option(name, value)
		}
	default:
		if _, err := boolean(value); err != nil {
			return invalid("boolean")
		}
	}
	return nil
}
