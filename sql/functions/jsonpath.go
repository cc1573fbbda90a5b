package functions

import (
	"regexp"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// jsonPathFunctions lists the functions that apply SQL/JSON paths to jsonb. Those ending in _tz may depend on the session's time zone.
func jsonPathFunctions() []entry {
	const long = "(jsonb,jsonpath,jsonb,bool)"
	out := []entry{
		fn("jsonb_path_exists_opr(jsonb,jsonpath)", `'{"a":[1,2]}'::jsonb @? '$.a[*] ? (@ > 1)'`, each(pathExists(false, true))),
		fn("jsonb_path_match_opr(jsonb,jsonpath)", `'{"a":[1,2]}'::jsonb @@ '$.a[*] > 1'`, each(pathMatch(false, true))),
	}
	for _, tz := range [...]bool{false, true} {
		suffix, ex := "", func(s string) string { return s }
		if tz {
			suffix, ex = "_tz", func(string) string { return "" }
		}
		out = append(out,
			fn("jsonb_path_exists"+suffix+long, ex(`jsonb_path_exists('{"a":[1,2]}','$.a[*] ? (@ > $x)','{"x":1}',false)`), each(pathExists(tz, false))),
			fn("jsonb_path_match"+suffix+long, ex(`jsonb_path_match('{"a":1}','$.a == 1','{}',false)`), each(pathMatch(tz, false))),
			fn("jsonb_path_query_array"+suffix+long, ex(`jsonb_path_query_array('{"a":[1,2,3]}','$.a[*] ? (@ >= 2)','{}',false)`), each(func(c *call) error {
				vs, err := c.pathItems(tz)
				if err != nil {
					return err
				}
				return c.setStr((&types.JSONTree{Kind: types.JSONArray, Elems: vs}).String())
			})),
			fn("jsonb_path_query_first"+suffix+long, ex(`jsonb_path_query_first('{"a":[1,2,3]}','$.a[last]','{}',false)`), each(func(c *call) error {
				vs, err := c.pathItems(tz)
				if err != nil {
					return err
				}
				if len(vs) == 0 {
					c.setNull()
					return nil
				}
				return c.setStr(vs[0].String())
			})),
			entry{id: "jsonb_path_query" + suffix + long, impl: impl{set: rowsOf(func(c *call) ([][]types.Datum, error) {
				vs, err := c.pathItems(tz)
				if err != nil {
					return nil, err
				}
				rows := make([][]types.Datum, len(vs))
				for i := range vs {
					rows[i] = []types.Datum{{Type: types.JSONB, Str: vs[i].String()}}
				}
				return rows, nil
			})}})
	}
	return out
}

// runPath evaluates the path of argument 1 over the document of argument 0, with the variables of argument 2. Errors of the data are
// reported unless quiet, as with the operators, or argument 3 says so.
func (c *call) runPath(tz, quiet, list bool) (x *pathRun, items []pathItem, res pathResult, err error) {
	doc, err := types.ParseJSON(c.str(0))
	if err != nil {
		return nil, nil, 0, err
	}
	path, err := types.ParseJSONPath(c.str(1))
	if err != nil {
		return nil, nil, 0, err
	}
	x = &pathRun{f: c.f, root: &doc, current: pathItem{tree: &doc}, base: &doc, strict: path.Strict, ignore: !path.Strict, zones: tz, report: !quiet}
	if !quiet {
		x.vars = &types.JSONTree{Kind: types.JSONObject}
	}
	if c.has(2) {
		vars, err := types.ParseJSON(c.str(2))
		if err != nil {
			return nil, nil, 0, err
		}
		if vars.Kind != types.JSONObject {
			return nil, nil, 0, pgerr.Newf(pgerr.InvalidParameterValue, `"vars" argument is not an object`).
				WithDetail(`Jsonpath parameters should be encoded as key-value pairs of "vars" object.`)
		}
		x.vars = &vars
	}
	if c.has(3) {
		x.report = !c.bool(3)
	}
	if list || path.Strict {
		// Strict mode must see every error, so it computes all items.
		if res = x.exec(path.Root, x.current, &items, !x.strict); res != pathFailed {
			res = pathNotFound
			if len(items) > 0 {
				res = pathOK
			}
		}
	} else {
		res = x.exec(path.Root, x.current, nil, true)
	}
	return x, items, res, x.err
}

// pathItems returns the items of a path as JSON values.
func (c *call) pathItems(tz bool) ([]types.JSONTree, error) {
	_, items, _, err := c.runPath(tz, false, true)
	if err != nil {
		return nil, err
	}
	out := make([]types.JSONTree, len(items))
	for i, it := range items {
		if it.tree != nil {
			out[i] = *it.tree
			continue
		}
		text, err := AppendJSON(nil, c.f.Format(), it.time, true)
		if err != nil {
			return nil, err
		}
		if out[i], err = types.ParseJSON(string(text)); err != nil {
			return nil, err
		}
		if t := out[i].Str; it.time.Type.OID == types.OIDTimetz && len(t) > 3 && strings.IndexByte("+-", t[len(t)-3]) >= 0 {
			out[i].Str += ":00"
		}
	}
	return out, nil
}

func pathExists(tz, quiet bool) func(c *call) error {
	return func(c *call) error {
		_, _, res, err := c.runPath(tz, quiet, false)
		if err != nil {
			return err
		}
		if res == pathFailed {
			c.setNull()
			return nil
		}
		return c.setBool(res == pathOK)
	}
}

func pathMatch(tz, quiet bool) func(c *call) error {
	return func(c *call) error {
		x, items, _, err := c.runPath(tz, quiet, true)
		switch {
		case err != nil:
			return err
		case len(items) == 1 && items[0].is(types.JSONBool):
			return c.setBool(items[0].tree.Bool)
		case len(items) == 1 && items[0].is(types.JSONNull), !x.report:
			c.setNull()
			return nil
		}
		return pgerr.Newf(pgerr.SingletonSQLJSONItemRequired, "single boolean result is expected")
	}
}

var (
	pathDate  = regexp.MustCompile(`^\d{4}-\d{1,2}-\d{1,2}$`)
	pathTime  = regexp.MustCompile(`^\d{1,2}:\d{1,2}:\d{1,2}(\.\d+)?( ?[+-]\d{1,2}(:\d{1,2})?)?$`)
	pathStamp = regexp.MustCompile(`^\d{4}-\d{1,2}-\d{1,2}[ T](\d{1,2}:\d{1,2}:\d{1,2}(\.\d+)?( ?[+-]\d{1,2}(:\d{1,2})?)?)$`)
)

// datetime turns a string into a date, a time or a timestamp: by its ISO form, or by a template.
func (x *pathRun) datetime(n *types.PathNode, it pathItem, found *[]pathItem) pathResult {
	if !it.is(types.JSONString) {
		return x.fail(pgerr.InvalidSQLJSONDatetime, "jsonpath item method .%s() can only be applied to a string", n.Str)
	}
	if n.Left != nil {
		return x.byTemplate(n, it, found)
	}
	s := it.tree.Str
	zoned := func(t string) bool { return strings.ContainsAny(t, "+-") }
	t := types.Type{}
	switch m := pathStamp.FindStringSubmatch(s); {
	case pathDate.MatchString(s):
		t = types.Date
	case m != nil && zoned(m[1]):
		t = types.Timestamptz
	case m != nil:
		t = types.Timestamp
	case pathTime.MatchString(s) && zoned(s):
		t = types.T(types.OIDTimetz)
	case pathTime.MatchString(s):
		t = types.Time
	}
	if t.OID != 0 {
		if d, err := types.ParseText(x.f.Format(), t, s); err == nil {
			return x.next(n, pathItem{time: d}, found)
		}
	}
	res := x.fail(pgerr.InvalidSQLJSONDatetime, "datetime format is not recognized: \"%s\"", s)
	if e, ok := x.err.(*pgerr.Error); ok && e.Code == pgerr.InvalidSQLJSONDatetime {
		e.Hint = "Use a datetime template argument to specify the input data format."
	}
	return res
}

// byTemplate is .datetime("template"): the fields of the template decide what the result is.
func (x *pathRun) byTemplate(n *types.PathNode, it pathItem, found *[]pathItem) pathResult {
	template := n.Left.Str
	upper := strings.ToUpper(template)
	has := func(fields ...string) bool {
		for _, f := range fields {
			if strings.Contains(upper, f) {
				return true
			}
		}
		return false
	}
	date, clock, zone := has("YY", "DD", "MM", "MON", "CC", "IW", "WW"), has("HH", "MI", "SS", "MS", "US", "FF"), has("TZ", "OF")
	p, err := parseTemplate(it.tree.Str, template)
	var days, us, ts int64
	if err == nil {
		days, us, err = p.value()
	}
	if err == nil {
		ts, err = types.DateToTimestamp(days)
	}
	if err != nil {
		if x.report && x.err == nil {
			x.err = err
		}
		return pathFailed
	}
	d := types.Datum{Type: types.Timestamp, Int: ts + us}
	switch {
	case date && clock && zone:
		d = types.Datum{Type: types.Timestamptz, Int: ts + us - int64(p.zone)*microsPerSecond}
	case date && clock:
	case date:
		d = types.Datum{Type: types.Date, Int: days}
	case clock && zone:
		d = types.Datum{Type: types.T(types.OIDTimetz), Str: types.MakeTimetz(us, int32(-p.zone))}
	default:
		d = types.Datum{Type: types.Time, Int: us}
	}
	return x.next(n, pathItem{time: d}, found)
}

// compareTimes orders two dates or times; ok is false when their types do not compare.
func (x *pathRun) compareTimes(a, b types.Datum) (cmp int, ok bool) {
	clock := func(d types.Datum) bool { return d.Type.OID == types.OIDTime || d.Type.OID == types.OIDTimetz }
	if clock(a) != clock(b) {
		return 0, false
	}
	target := types.OIDTimetz
	if !clock(a) {
		target = types.OIDDate
		for _, d := range [...]types.Datum{a, b} {
			if rank(d.Type.OID) > rank(target) {
				target = d.Type.OID
			}
		}
	} else if a.Type.OID == types.OIDTime && b.Type.OID == types.OIDTime {
		target = types.OIDTime
	}
	av, ok := x.toTime(a, target)
	if !ok {
		return 0, false
	}
	bv, ok := x.toTime(b, target)
	if !ok {
		return 0, false
	}
	return types.CompareDatum(av, bv), true
}

func rank(oid types.OID) int {
	switch oid {
	case types.OIDDate:
		return 0
	case types.OIDTimestamp:
		return 1
	}
	return 2
}

// toTime converts a date or time to a wider type. What depends on the session's zone is an error except in the functions ending in _tz.
func (x *pathRun) toTime(d types.Datum, to types.OID) (types.Datum, bool) {
	if d.Type.OID == to {
		return d, true
	}
	if (to == types.OIDTimestamptz || to == types.OIDTimetz) && !x.zones {
		x.err = pgerr.Newf(pgerr.FeatureNotSupported, "cannot convert value from %s to %s without time zone usage", infoName(d.Type.OID), infoName(to)).
			WithHint("Use *_tz() function for time zone support.")
		return d, false
	}
	out := types.Datum{Type: types.T(to), Int: d.Int}
	var err error
	if d.Type.OID == types.OIDDate {
		out.Int, err = types.DateToTimestamp(d.Int)
	}
	switch {
	case err != nil:
	case to == types.OIDTimestamptz:
		out.Int, err = types.LocalToTimestamptz(out.Int, loc(x.f))
	case to == types.OIDTimetz:
		off, _ := types.ZoneOffset(txnTime(x.f), loc(x.f))
		out.Str = types.MakeTimetz(d.Int, int32(-off))
	}
	if err != nil {
		x.err = err
		return d, false
	}
	return out, true
}

func infoName(oid types.OID) string {
	i, _ := types.InfoOf(oid)
	return i.Name
}

// checkPathRegexes reports the first pattern of like_regex in a path that is no regular expression.
func checkPathRegexes(n *types.PathNode) error {
	for ; n != nil; n = n.Next {
		if n.Kind == types.PathLikeRegex {
			if _, err := compileRegexp(n.Str, pathRegexFlags(n.Flags)); err != nil {
				return err
			}
		}
		for _, side := range [...]*types.PathNode{n.Left, n.Right} {
			if err := checkPathRegexes(side); err != nil {
				return err
			}
		}
		for _, r := range n.Ranges {
			for _, side := range [...]*types.PathNode{r.From, r.To} {
				if err := checkPathRegexes(side); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// parsePath is the input function of jsonpath.
func parsePath(s string) (types.Datum, error) {
	p, err := types.ParseJSONPath(s)
	if err == nil {
		err = checkPathRegexes(p.Root)
	}
	if err != nil {
		return types.Datum{}, err
	}
	return types.Datum{Type: types.T(types.OIDJSONPath), Str: p.String()}, nil
}
