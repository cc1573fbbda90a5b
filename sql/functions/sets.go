package functions

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// setFunctions lists the set-returning functions.
func setFunctions() []entry {
	set := func(id string, k expr.SetKernel) entry { return entry{id: id, impl: impl{set: k}} }
	var out []entry
	for _, t := range [...]string{"int4", "int8"} {
		out = append(out, set("generate_series("+t+","+t+")", seriesInt), set("generate_series("+t+","+t+","+t+")", seriesInt))
	}
	return append(out,
		set("generate_series(numeric,numeric)", seriesNumeric), set("generate_series(numeric,numeric,numeric)", seriesNumeric),
		set("generate_series(timestamp,timestamp,interval)", seriesTime(false)), set("generate_series(timestamptz,timestamptz,interval)", seriesTime(true)),
		set("generate_subscripts(anyarray,int4)", subscripts), set("generate_subscripts(anyarray,int4,bool)", subscripts),
		set("unnest(anyarray)", rowsOf(func(c *call) ([][]types.Datum, error) {
			a, err := c.array(0)
			return single(a.Elems), err
		})),
		set("string_to_table(text,text)", rowsOf(stringToTable)), set("string_to_table(text,text,text)", rowsOf(stringToTable)),
		set("regexp_split_to_table(text,text)", rowsOf(regexpTable)), set("regexp_split_to_table(text,text,text)", rowsOf(regexpTable)),
		set("regexp_matches(text,text)", rowsOf(regexpMatches)), set("regexp_matches(text,text,text)", rowsOf(regexpMatches)),
		set("jsonb_array_elements(jsonb)", rowsOf(jsonbElements(false))), set("jsonb_array_elements_text(jsonb)", rowsOf(jsonbElements(true))),
		set("jsonb_each(jsonb)", rowsOf(jsonbEach(false))), set("jsonb_each_text(jsonb)", rowsOf(jsonbEach(true))),
		set("jsonb_object_keys(jsonb)", rowsOf(jsonbKeys)),
		set("json_array_elements(json)", rowsOf(rawElements("json_array_elements", false))), set("json_array_elements_text(json)", rowsOf(rawElements("json_array_elements_text", true))),
		set("json_each(json)", rowsOf(rawEach(false))), set("json_each_text(json)", rowsOf(rawEach(true))),
		set("json_object_keys(json)", rowsOf(rawKeys)),
		set("pg_timezone_names()", rowsOf(timezoneNames)), set("pg_options_to_table(_text)", rowsOf(optionsTable)),
		set("pg_get_keywords()", rowsOf(keywordRows)), set("aclexplode(_aclitem)", rowsOf(aclExplode)),
		// There are no partitions and no extensions.
		set("pg_partition_ancestors(regclass)", rowsOf(noRows)), set("pg_partition_tree(regclass)", rowsOf(noRows)),
		set("pg_available_extensions()", rowsOf(noRows)), set("pg_available_extension_versions()", rowsOf(noRows)),
	)
}

func single(ds []types.Datum) [][]types.Datum {
	out := make([][]types.Datum, len(ds))
	for i := range ds {
		out[i] = ds[i : i+1 : i+1]
	}
	return out
}

// materialized yields rows that were computed at once.
type materialized struct{ rows [][]types.Datum }

func (m *materialized) Next(out []*types.Vector, limit int) (int, error) {
	n := min(limit, len(m.rows))
	for _, row := range m.rows[:n] {
		for i, d := range row {
			out[i].AppendDatum(d)
		}
	}
	m.rows = m.rows[n:]
	return n, nil
}

func rowsOf(f func(c *call) ([][]types.Datum, error)) expr.SetKernel {
	return func(fr *expr.Frame, args []expr.Arg, r int) (expr.SetRows, error) {
		c := call{f: fr, args: args, row: r}
		rows, err := f(&c)
		if err != nil {
			return nil, err
		}
		return &materialized{rows}, nil
	}
}

func errStepZero() error {
	return pgerr.Newf(pgerr.InvalidParameterValue, "step size cannot equal zero")
}

type intSeries struct {
	at, stop, step int64
	done           bool
}

func (s *intSeries) Next(out []*types.Vector, limit int) (int, error) {
	n := 0
	for ; n < limit && !s.done && (s.step > 0 && s.at <= s.stop || s.step < 0 && s.at >= s.stop); n++ {
		out[0].Int = append(out[0].Int, s.at)
		next := s.at + s.step
		s.done = (next > s.at) != (s.step > 0) // overflow ends the series
		s.at = next
	}
	if n > 0 {
		// Resize restores the validity of the appended rows.
		out[0].Resize(len(out[0].Int))
	}
	return n, nil
}

func seriesInt(f *expr.Frame, args []expr.Arg, r int) (expr.SetRows, error) {
	c := call{f: f, args: args, row: r}
	s := &intSeries{at: c.int(0), stop: c.int(1), step: 1}
	if c.has(2) {
		s.step = c.int(2)
	}
	if s.step == 0 {
		return nil, errStepZero()
	}
	if f.Type.OID == types.OIDInt4 {
		s.stop = max(min(s.stop, rangeOf(types.OIDInt4).hi), rangeOf(types.OIDInt4).lo)
	}
	return s, nil
}

func subscripts(f *expr.Frame, args []expr.Arg, r int) (expr.SetRows, error) {
	c := call{f: f, args: args, row: r}
	a, err := c.array(0)
	if err != nil {
		return nil, err
	}
	n := c.int(1)
	if n < 1 || n > int64(len(a.Dims)) {
		return nil, nil
	}
	lo, hi := int64(a.Dims[n-1].Lower), int64(a.Dims[n-1].Lower+a.Dims[n-1].Len-1)
	if c.has(2) && c.bool(2) {
		return &intSeries{at: hi, stop: lo, step: -1}, nil
	}
	return &intSeries{at: lo, stop: hi, step: 1}, nil
}

type numericSeries struct{ at, stop, step types.Numeric }

func (s *numericSeries) Next(out []*types.Vector, limit int) (int, error) {
	n := 0
	for ; n < limit && types.CompareNumeric(s.at, s.stop)*s.step.Sign() <= 0; n++ {
		out[0].AppendDatum(types.Datum{Type: types.NumericType, Num: s.at})
		var err error
		if s.at, err = types.NumAdd(s.at, s.step); err != nil {
			return n, err
		}
	}
	return n, nil
}

func seriesNumeric(f *expr.Frame, args []expr.Arg, r int) (expr.SetRows, error) {
	c := call{f: f, args: args, row: r}
	s := &numericSeries{at: c.num(0), stop: c.num(1), step: types.NumericFromInt64(1)}
	if c.has(2) {
		s.step = c.num(2)
	}
	for i, n := range []types.Numeric{s.at, s.stop, s.step} {
		if n.Form != types.Finite {
			return nil, pgerr.Newf(pgerr.InvalidParameterValue, "%s cannot be NaN or infinity", [...]string{"start value", "stop value", "step size"}[i])
		}
	}
	if s.step.Sign() == 0 {
		return nil, errStepZero()
	}
	return s, nil
}

type timeSeries struct {
	at, stop int64
	step     types.Interval
	sign     int
	zoned    bool
	env      *expr.Env
}

func (s *timeSeries) Next(out []*types.Vector, limit int) (int, error) {
	n := 0
	for ; n < limit && (s.sign > 0 && s.at <= s.stop || s.sign < 0 && s.at >= s.stop); n++ {
		out[0].AppendDatum(types.Datum{Type: out[0].Type, Int: s.at})
		var err error
		if s.zoned {
			f := expr.Frame{Env: s.env}
			s.at, err = types.TimestampAddInterval(s.at, s.step, loc(&f))
		} else {
			s.at, err = types.TimestampAddInterval(s.at, s.step, nil)
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func seriesTime(zoned bool) expr.SetKernel {
	return func(f *expr.Frame, args []expr.Arg, r int) (expr.SetRows, error) {
		c := call{f: f, args: args, row: r}
		s := &timeSeries{at: c.int(0), stop: c.int(1), step: c.ivl(2), zoned: zoned, env: f.Env}
		s.sign = types.CompareInterval(s.step, types.Interval{})
		if s.sign == 0 {
			return nil, errStepZero()
		}
		if types.IsTimestampInfinite(s.at) || types.IsTimestampInfinite(s.stop) {
			return nil, pgerr.Newf(pgerr.InvalidParameterValue, "generate_series bounds must be finite")
		}
		return s, nil
	}
}

func stringToTable(c *call) ([][]types.Datum, error) {
	parts, _, err := splitFields(c)
	return single(parts), err
}

func regexpTable(c *call) ([][]types.Datum, error) {
	re, _, err := c.pattern(1)
	if err != nil {
		return nil, err
	}
	parts, err := splitRegexp(re, c.str(0))
	return single(parts), err
}

func regexpMatches(c *call) ([][]types.Datum, error) {
	re, global, err := c.pattern(1)
	if err != nil {
		return nil, err
	}
	limit := 1
	if global {
		limit = -1
	}
	s := c.str(0)
	matches, err := re.findAll(s, 0, limit)
	if err != nil {
		return nil, err
	}
	var out [][]types.Datum
	for _, m := range matches {
		out = append(out, []types.Datum{{Type: types.T(types.ArrayOf(types.OIDText)), Str: textArray(groups(s, m))}})
	}
	return out, nil
}

func jsonDatum(j *types.JSONTree, text bool) types.Datum {
	if !text {
		return types.Datum{Type: types.JSONB, Str: j.String()}
	}
	s, null := jsonText(j)
	return types.Datum{Type: types.Text, Str: s, Null: null}
}

func jsonbElements(text bool) func(c *call) ([][]types.Datum, error) {
	return func(c *call) ([][]types.Datum, error) {
		j, err := types.ParseJSON(c.str(0))
		if err != nil {
			return nil, err
		}
		switch j.Kind {
		case types.JSONArray:
		case types.JSONObject:
			return nil, pgerr.Newf(pgerr.InvalidParameterValue, "cannot extract elements from an object")
		default:
			return nil, pgerr.Newf(pgerr.InvalidParameterValue, "cannot extract elements from a scalar")
		}
		out := make([][]types.Datum, len(j.Elems))
		for i := range j.Elems {
			out[i] = []types.Datum{jsonDatum(&j.Elems[i], text)}
		}
		return out, nil
	}
}

func jsonbObject(c *call, what string) (types.JSONTree, error) {
	j, err := types.ParseJSON(c.str(0))
	if err == nil && j.Kind != types.JSONObject {
		err = errNotObject(j.Kind == types.JSONArray, what)
	}
	return j, err
}

func errNotObject(array bool, fn string) error {
	if strings.HasPrefix(fn, "jsonb_each") {
		return pgerr.Newf(pgerr.InvalidParameterValue, "cannot call %s on a non-object", fn)
	}
	if array {
		return pgerr.Newf(pgerr.InvalidParameterValue, "cannot call %s on an array", fn)
	}
	return pgerr.Newf(pgerr.InvalidParameterValue, "cannot call %s on a scalar", fn)
}

func jsonbEach(text bool) func(c *call) ([][]types.Datum, error) {
	return func(c *call) ([][]types.Datum, error) {
		name := "jsonb_each"
		if text {
			name = "jsonb_each_text"
		}
		j, err := jsonbObject(c, name)
		if err != nil {
			return nil, err
		}
		out := make([][]types.Datum, len(j.Elems))
		for i := range j.Elems {
			out[i] = []types.Datum{textDatum(j.Keys[i]), jsonDatum(&j.Elems[i], text)}
		}
		return out, nil
	}
}

func jsonbKeys(c *call) ([][]types.Datum, error) {
	j, err := jsonbObject(c, "jsonb_object_keys")
	if err != nil {
		return nil, err
	}
	out := make([][]types.Datum, len(j.Keys))
	for i, k := range j.Keys {
		out[i] = []types.Datum{textDatum(k)}
	}
	return out, nil
}

func rawDatum(s string, text bool) (types.Datum, error) {
	if !text {
		return types.Datum{Type: types.JSON, Str: s}, nil
	}
	t, null, err := rawText(s)
	return types.Datum{Type: types.Text, Str: t, Null: null}, err
}

func rawElements(name string, text bool) func(c *call) ([][]types.Datum, error) {
	return func(c *call) ([][]types.Datum, error) {
		members, object, container, err := rawMembers(c.str(0))
		if err != nil {
			return nil, err
		}
		if object || !container {
			what := "a scalar"
			if object {
				what = "a non-array"
			}
			return nil, pgerr.Newf(pgerr.InvalidParameterValue, "cannot call %s on %s", name, what)
		}
		out := make([][]types.Datum, len(members))
		for i, m := range members {
			d, err := rawDatum(m.val, text)
			if err != nil {
				return nil, err
			}
			out[i] = []types.Datum{d}
		}
		return out, nil
	}
}

func rawEach(text bool) func(c *call) ([][]types.Datum, error) {
	return func(c *call) ([][]types.Datum, error) {
		members, object, container, err := rawMembers(c.str(0))
		if err != nil {
			return nil, err
		}
		if !object {
			what := "a scalar"
			if container {
				what = "an array as an object"
			}
			return nil, pgerr.Newf(pgerr.InvalidParameterValue, "cannot deconstruct %s", what)
		}
		out := make([][]types.Datum, len(members))
		for i, m := range members {
			d, err := rawDatum(m.val, text)
			if err != nil {
				return nil, err
			}
			out[i] = []types.Datum{textDatum(m.key), d}
		}
		return out, nil
	}
}

func rawKeys(c *call) ([][]types.Datum, error) {
	members, object, container, err := rawMembers(c.str(0))
	if err != nil {
		return nil, err
	}
	if !object {
		return nil, errNotObject(container, "json_object_keys")
	}
	out := make([][]types.Datum, len(members))
	for i, m := range members {
		out[i] = []types.Datum{textDatum(m.key)}
	}
	return out, nil
}
