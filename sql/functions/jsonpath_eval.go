package functions

import (
	"math"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// pathItem is an item of a path's result: a JSON value, or a date or time made by .datetime().
type pathItem struct {
	tree *types.JSONTree
	time types.Datum // valid when tree is nil
}

func (i pathItem) is(k types.JSONKind) bool { return i.tree != nil && i.tree.Kind == k }

func (i pathItem) container() bool { return i.is(types.JSONArray) || i.is(types.JSONObject) }

// pathResult is the outcome of a step.
type pathResult uint8

const (
	pathOK pathResult = iota
	pathNotFound
	pathFailed // an error of the data; it is in pathRun.err when errors are reported
)

// truth is a value of three-valued logic.
type truth uint8

const (
	isFalse truth = iota
	isTrue
	isUnknown
)

// pathRun evaluates one path over one document. In lax mode arrays unwrap where they meet an accessor and structural errors are empty
// results; in strict mode they are errors.
type pathRun struct {
	f           *expr.Frame
	root        *types.JSONTree
	vars        *types.JSONTree // an object; nil for the operators, where every variable is null
	current     pathItem
	strict      bool
	ignore      bool // structural errors are no errors
	report      bool // data errors are reported, not only noticed
	zones       bool // conversions may depend on the session's time zone
	arraySize   int  // of the innermost array with subscripts, for last
	base        *types.JSONTree
	baseID      int64
	generatedID int64
	err         error // ends the evaluation when set
}

// fail notes a data error.
func (x *pathRun) fail(code pgerr.Code, format string, args ...any) pathResult {
	if x.report && x.err == nil {
		x.err = pgerr.Newf(code, format, args...)
	}
	return pathFailed
}

// structural notes an error of the kind that lax mode forgives.
func (x *pathRun) structural(code pgerr.Code, format string, args ...any) pathResult {
	if x.ignore {
		return pathNotFound
	}
	return x.fail(code, format, args...)
}

// next goes on with the item that a node yielded; found is nil where only existence is asked for.
func (x *pathRun) next(n *types.PathNode, it pathItem, found *[]pathItem) pathResult {
	if n.Next != nil {
		return x.exec(n.Next, it, found, !x.strict)
	}
	if found != nil {
		*found = append(*found, it)
	}
	return pathOK
}

func (x *pathRun) value(n *types.PathNode, tree types.JSONTree, found *[]pathItem) pathResult {
	return x.next(n, pathItem{tree: &tree}, found)
}

// exec applies a node, and all that follow it, to an item.
func (x *pathRun) exec(n *types.PathNode, it pathItem, found *[]pathItem, unwrap bool) pathResult {
	if x.err != nil {
		return pathFailed
	}
	if n.Predicate() {
		t := x.condition(n, it)
		if x.err != nil {
			return pathFailed
		}
		if n.Next == nil && found == nil {
			return pathOK
		}
		tree := types.JSONTree{Kind: types.JSONBool, Bool: t == isTrue}
		if t == isUnknown {
			tree.Kind = types.JSONNull
		}
		return x.value(n, tree, found)
	}
	switch n.Kind {
	case types.PathNull:
		return x.value(n, types.JSONTree{Kind: types.JSONNull}, found)
	case types.PathBool:
		return x.value(n, types.JSONTree{Kind: types.JSONBool, Bool: n.Bool}, found)
	case types.PathNumber:
		return x.value(n, types.JSONTree{Kind: types.JSONNumber, Num: n.Num}, found)
	case types.PathString:
		return x.value(n, types.JSONTree{Kind: types.JSONString, Str: n.Str}, found)
	case types.PathVariable:
		if x.vars == nil {
			return x.value(n, types.JSONTree{Kind: types.JSONNull}, found)
		}
		v, ok := x.vars.Get(n.Str)
		if !ok {
			x.err = pgerr.Newf(pgerr.UndefinedObject, "could not find jsonpath variable \"%s\"", n.Str)
			return pathFailed
		}
		return x.next(n, pathItem{tree: v}, found)
	case types.PathRoot:
		return x.next(n, pathItem{tree: x.root}, found)
	case types.PathCurrent:
		return x.next(n, x.current, found)
	case types.PathLast:
		return x.value(n, types.JSONTree{Kind: types.JSONNumber, Num: types.NumericFromInt64(int64(x.arraySize - 1))}, found)
	case types.PathAdd, types.PathSub, types.PathMul, types.PathDiv, types.PathMod:
		return x.arithmetic(n, it, found)
	case types.PathPlus, types.PathMinus:
		return x.sign(n, it, found)
	case types.PathAnyArray:
		switch {
		case it.is(types.JSONArray):
			return x.descend(n.Next, it.tree, found, 1, 1, 1, false, !x.strict)
		case !x.strict:
			return x.next(n, it, found)
		}
		return x.structural(pgerr.SQLJSONArrayNotFound, "jsonpath wildcard array accessor can only be applied to an array")
	case types.PathIndex:
		return x.subscripts(n, it, found)
	case types.PathAny:
		return x.anyLevel(n, it, found)
	}
	if unwrap && it.is(types.JSONArray) && !(n.Kind == types.PathMethod && (n.Str == "type" || n.Str == "size")) {
		return x.descend(n, it.tree, found, 1, 1, 1, false, false)
	}
	switch n.Kind {
	case types.PathKey:
		if !it.is(types.JSONObject) {
			return x.structural(pgerr.SQLJSONMemberNotFound, "jsonpath member accessor can only be applied to an object")
		}
		v, ok := it.tree.Get(n.Str)
		if !ok {
			return x.structural(pgerr.SQLJSONMemberNotFound, "JSON object does not contain key \"%s\"", n.Str)
		}
		return x.next(n, pathItem{tree: v}, found)
	case types.PathAnyKey:
		if !it.is(types.JSONObject) {
			return x.structural(pgerr.SQLJSONObjectNotFound, "jsonpath wildcard member accessor can only be applied to an object")
		}
		return x.descend(n.Next, it.tree, found, 1, 1, 1, false, !x.strict)
	case types.PathFilter:
		saved := x.current
		x.current = it
		t := x.condition(n.Left, it)
		x.current = saved
		switch {
		case x.err != nil:
			return pathFailed
		case t != isTrue:
			return pathNotFound
		}
		return x.next(n, it, found)
	}
	return x.method(n, it, found)
}

// descend applies n (nil: nothing) to the values within a container from level first to level last.
func (x *pathRun) descend(n *types.PathNode, in *types.JSONTree, found *[]pathItem, level, first, last uint32, ignore, unwrap bool) pathResult {
	if level > last {
		return pathNotFound
	}
	res := pathNotFound
	for i := range in.Elems {
		it := pathItem{tree: &in.Elems[i]}
		if level >= first || first == types.PathMaxLevel && !it.container() {
			switch {
			case n != nil:
				saved := x.ignore
				x.ignore = x.ignore || ignore
				res = x.exec(n, it, found, unwrap)
				x.ignore = saved
				if res == pathFailed || res == pathOK && found == nil {
					return res
				}
			case found == nil:
				return pathOK
			default:
				*found = append(*found, it)
				res = pathOK
			}
		}
		if level < last && it.container() {
			if r := x.descend(n, it.tree, found, level+1, first, last, ignore, unwrap); r == pathFailed || r == pathOK && found == nil {
				return r
			} else if r == pathOK {
				res = r
			}
		}
	}
	return res
}

func (x *pathRun) anyLevel(n *types.PathNode, it pathItem, found *[]pathItem) pathResult {
	res := pathNotFound
	if n.First == 0 {
		saved := x.ignore
		x.ignore = true
		res = x.next(n, it, found)
		x.ignore = saved
		if res == pathFailed || res == pathOK && found == nil {
			return res
		}
	}
	if it.container() {
		return x.descend(n.Next, it.tree, found, 1, n.First, n.Last, true, !x.strict)
	}
	return res
}

func (x *pathRun) subscripts(n *types.PathNode, it pathItem, found *[]pathItem) pathResult {
	if !it.is(types.JSONArray) && x.strict {
		return x.structural(pgerr.SQLJSONArrayNotFound, "jsonpath array accessor can only be applied to an array")
	}
	saved := x.arraySize
	defer func() { x.arraySize = saved }()
	size := 1
	if it.is(types.JSONArray) {
		size = len(it.tree.Elems)
	}
	x.arraySize = size
	res := pathNotFound
	for _, r := range n.Ranges {
		from, ok := x.subscript(r.From, it)
		if !ok {
			return pathFailed
		}
		to := from
		if r.To != nil {
			if to, ok = x.subscript(r.To, it); !ok {
				return pathFailed
			}
		}
		if !x.ignore && (from < 0 || from > to || to >= size) {
			return x.fail(pgerr.InvalidSQLJSONSubscript, "jsonpath array subscript is out of bounds")
		}
		for i := max(from, 0); i <= min(to, size-1); i++ {
			v := it
			if it.is(types.JSONArray) {
				v = pathItem{tree: &it.tree.Elems[i]}
			}
			x.arraySize = size
			if res = x.next(n, v, found); res == pathFailed || res == pathOK && found == nil {
				return res
			}
		}
		x.arraySize = size
	}
	return res
}

func (x *pathRun) subscript(n *types.PathNode, it pathItem) (int, bool) {
	var vs []pathItem
	if x.exec(n, it, &vs, !x.strict) == pathFailed {
		return 0, false
	}
	if len(vs) != 1 || !vs[0].is(types.JSONNumber) {
		x.fail(pgerr.InvalidSQLJSONSubscript, "jsonpath array subscript is not a single numeric value")
		return 0, false
	}
	whole, err := types.NumTrunc(vs[0].tree.Num, 0)
	var i int64
	if err == nil {
		i, err = types.NumToInt(whole, types.OIDInt4)
	}
	if err != nil {
		x.fail(pgerr.InvalidSQLJSONSubscript, "jsonpath array subscript is out of integer range")
		return 0, false
	}
	return int(i), true
}

// items evaluates an operand; in lax mode arrays among the items are unwrapped when unwrap is set.
func (x *pathRun) items(n *types.PathNode, it pathItem, unwrap bool) ([]pathItem, pathResult) {
	var vs []pathItem
	if x.exec(n, it, &vs, !x.strict) == pathFailed {
		return nil, pathFailed
	}
	if !unwrap || x.strict {
		return vs, pathOK
	}
	var out []pathItem
	for _, v := range vs {
		if !v.is(types.JSONArray) {
			out = append(out, v)
			continue
		}
		for i := range v.tree.Elems {
			out = append(out, pathItem{tree: &v.tree.Elems[i]})
		}
	}
	return out, pathOK
}

// quiet is items with data errors noticed but not reported.
func (x *pathRun) quiet(n *types.PathNode, it pathItem, unwrap bool) ([]pathItem, pathResult) {
	saved := x.report
	x.report = false
	defer func() { x.report = saved }()
	return x.items(n, it, unwrap)
}

func (x *pathRun) arithmetic(n *types.PathNode, it pathItem, found *[]pathItem) pathResult {
	// Both operands are evaluated before either is judged.
	l, res := x.items(n.Left, it, true)
	if res == pathFailed {
		return res
	}
	r, res := x.items(n.Right, it, true)
	if res == pathFailed {
		return res
	}
	if len(l) != 1 || !l[0].is(types.JSONNumber) {
		return x.fail(pgerr.SingletonSQLJSONItemRequired, "left operand of jsonpath operator %s is not a single numeric value", n.Kind.Symbol())
	}
	if len(r) != 1 || !r[0].is(types.JSONNumber) {
		return x.fail(pgerr.SingletonSQLJSONItemRequired, "right operand of jsonpath operator %s is not a single numeric value", n.Kind.Symbol())
	}
	op := types.NumAdd
	switch n.Kind {
	case types.PathSub:
		op = types.NumSub
	case types.PathMul:
		op = types.NumMul
	case types.PathDiv:
		op = types.NumDiv
	case types.PathMod:
		op = types.NumMod
	}
	v, err := op(l[0].tree.Num, r[0].tree.Num)
	if err != nil {
		if x.report && x.err == nil {
			x.err = err
		}
		return pathFailed
	}
	return x.value(n, types.JSONTree{Kind: types.JSONNumber, Num: v}, found)
}

func (x *pathRun) sign(n *types.PathNode, it pathItem, found *[]pathItem) pathResult {
	vs, res := x.items(n.Left, it, true)
	if res == pathFailed {
		return res
	}
	res = pathNotFound
	for _, v := range vs {
		if !v.is(types.JSONNumber) {
			if found == nil && n.Next == nil {
				continue
			}
			return x.fail(pgerr.SQLJSONNumberNotFound, "operand of unary jsonpath operator %s is not a numeric value", n.Kind.Symbol())
		}
		if found == nil && n.Next == nil {
			return pathOK
		}
		num := v.tree.Num
		if n.Kind == types.PathMinus {
			num = types.NumNeg(num)
		}
		r := x.value(n, types.JSONTree{Kind: types.JSONNumber, Num: num}, found)
		if r == pathFailed {
			return r
		}
		if r == pathOK {
			if found == nil {
				return r
			}
			res = r
		}
	}
	return res
}

func (x *pathRun) condition(n *types.PathNode, it pathItem) truth {
	switch n.Kind {
	case types.PathAnd:
		l := x.condition(n.Left, it)
		if l == isFalse {
			return l
		}
		if r := x.condition(n.Right, it); r != isTrue {
			return r
		}
		return l
	case types.PathOr:
		l := x.condition(n.Left, it)
		if l == isTrue {
			return l
		}
		if r := x.condition(n.Right, it); r != isFalse {
			return r
		}
		return l
	case types.PathNot:
		switch x.condition(n.Left, it) {
		case isTrue:
			return isFalse
		case isFalse:
			return isTrue
		}
		return isUnknown
	case types.PathIsUnknown:
		return truthOf(x.condition(n.Left, it) == isUnknown)
	case types.PathExists:
		if !x.strict {
			saved := x.report
			x.report = false
			res := x.exec(n.Left, it, nil, true)
			x.report = saved
			if res == pathFailed {
				return isUnknown
			}
			return truthOf(res == pathOK)
		}
		vs, res := x.quiet(n.Left, it, false)
		if res == pathFailed {
			return isUnknown
		}
		return truthOf(len(vs) > 0)
	case types.PathLikeRegex:
		return x.compare(n, it, true, x.likeRegex)
	case types.PathStartsWith:
		return x.compare(n, it, false, func(n *types.PathNode, a, b pathItem) truth {
			if !a.is(types.JSONString) || !b.is(types.JSONString) {
				return isUnknown
			}
			return truthOf(strings.HasPrefix(a.tree.Str, b.tree.Str))
		})
	}
	return x.compare(n, it, true, x.comparison)
}

func truthOf(b bool) truth {
	if b {
		return isTrue
	}
	return isFalse
}

// compare applies a test to all pairs of the operands' items: in lax mode one that holds decides, in strict mode one that is unknown.
func (x *pathRun) compare(n *types.PathNode, it pathItem, unwrapRight bool, test func(n *types.PathNode, a, b pathItem) truth) truth {
	ls, res := x.quiet(n.Left, it, true)
	if res == pathFailed {
		return isUnknown
	}
	rs := []pathItem{{}}
	if n.Right != nil {
		if rs, res = x.quiet(n.Right, it, unwrapRight); res == pathFailed {
			return isUnknown
		}
	}
	holds, unknown := false, false
	for _, l := range ls {
		for _, r := range rs {
			switch test(n, l, r) {
			case isTrue:
				if !x.strict {
					return isTrue
				}
				holds = true
			case isUnknown:
				if x.strict {
					return isUnknown
				}
				unknown = true
			}
		}
	}
	switch {
	case holds:
		return isTrue
	case unknown:
		return isUnknown
	}
	return isFalse
}

func (x *pathRun) likeRegex(n *types.PathNode, a, _ pathItem) truth {
	if !a.is(types.JSONString) {
		return isUnknown
	}
	re, err := compiled(x.f, n.Str, pathRegexFlags(n.Flags))
	if err != nil {
		x.err = err
		return isUnknown
	}
	found, err := re.match(a.tree.Str)
	if err != nil {
		x.err = err
		return isUnknown
	}
	return truthOf(found)
}

// pathRegexFlags turns the flags of like_regex into those of regular expressions.
func pathRegexFlags(flags string) string {
	out := ""
	if strings.Contains(flags, "i") {
		out += "i"
	}
	if strings.Contains(flags, "q") {
		return out + "q"
	}
	if !strings.Contains(flags, "s") {
		out += "p"
	}
	if strings.Contains(flags, "m") {
		out += "w"
	}
	return out
}

func (x *pathRun) comparison(n *types.PathNode, a, b pathItem) truth {
	cmp := 0
	switch {
	case a.tree == nil || b.tree == nil:
		if a.is(types.JSONNull) || b.is(types.JSONNull) {
			return truthOf(n.Kind == types.PathNotEqual)
		}
		if a.tree != nil || b.tree != nil {
			return isUnknown
		}
		c, ok := x.compareTimes(a.time, b.time)
		if !ok {
			return isUnknown
		}
		cmp = c
	case a.tree.Kind != b.tree.Kind:
		if a.tree.Kind == types.JSONNull || b.tree.Kind == types.JSONNull {
			return truthOf(n.Kind == types.PathNotEqual)
		}
		return isUnknown
	default:
		switch a.tree.Kind {
		case types.JSONNull:
		case types.JSONBool:
			switch {
			case a.tree.Bool == b.tree.Bool:
			case a.tree.Bool:
				cmp = 1
			default:
				cmp = -1
			}
		case types.JSONNumber:
			cmp = types.CompareNumeric(a.tree.Num, b.tree.Num)
		case types.JSONString:
			cmp = strings.Compare(a.tree.Str, b.tree.Str)
		default:
			return isUnknown
		}
	}
	switch n.Kind {
	case types.PathEqual:
		return truthOf(cmp == 0)
	case types.PathNotEqual:
		return truthOf(cmp != 0)
	case types.PathLess:
		return truthOf(cmp < 0)
	case types.PathLessEqual:
		return truthOf(cmp <= 0)
	case types.PathGreater:
		return truthOf(cmp > 0)
	}
	return truthOf(cmp >= 0)
}

func (x *pathRun) method(n *types.PathNode, it pathItem, found *[]pathItem) pathResult {
	number := func(f func(types.Numeric) (types.Numeric, error)) pathResult {
		if !it.is(types.JSONNumber) {
			return x.fail(pgerr.NonNumericSQLJSONItem, "jsonpath item method .%s() can only be applied to a numeric value", n.Str)
		}
		v, err := f(it.tree.Num)
		if err != nil {
			return x.fail(pgerr.NumericValueOutOfRange, "%s", err.Error())
		}
		return x.value(n, types.JSONTree{Kind: types.JSONNumber, Num: v}, found)
	}
	switch n.Str {
	case "type":
		name := ""
		if it.tree != nil {
			name = it.tree.Kind.String()
		} else {
			name = it.time.Type.String()
		}
		return x.value(n, types.JSONTree{Kind: types.JSONString, Str: name}, found)
	case "size":
		size := 1
		if it.is(types.JSONArray) {
			size = len(it.tree.Elems)
		} else if x.strict {
			return x.structural(pgerr.SQLJSONArrayNotFound, "jsonpath item method .%s() can only be applied to an array", n.Str)
		}
		return x.value(n, types.JSONTree{Kind: types.JSONNumber, Num: types.NumericFromInt64(int64(size))}, found)
	case "abs":
		return number(func(v types.Numeric) (types.Numeric, error) { return types.NumAbs(v), nil })
	case "floor":
		return number(types.NumFloor)
	case "ceiling":
		return number(types.NumCeil)
	case "double":
		return x.double(n, it, found)
	case "datetime":
		return x.datetime(n, it, found)
	}
	return x.keyValue(n, it, found)
}

func (x *pathRun) double(n *types.PathNode, it pathItem, found *[]pathItem) pathResult {
	const text = "string argument of jsonpath item method .%s() is not a valid representation of a double precision number"
	switch {
	case it.is(types.JSONNumber):
		if _, err := types.ParseFloat(it.tree.Num.String(), types.OIDFloat8); err != nil {
			return x.fail(pgerr.NonNumericSQLJSONItem, "numeric argument of jsonpath item method .%s() is out of range for type double precision", n.Str)
		}
		return x.next(n, it, found)
	case it.is(types.JSONString):
		v, err := types.ParseFloat(it.tree.Str, types.OIDFloat8)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return x.fail(pgerr.NonNumericSQLJSONItem, text, n.Str)
		}
		const float8Digits = 15
		num, err := types.NumericFromFloat64(v, float8Digits)
		if err != nil {
			return x.fail(pgerr.NonNumericSQLJSONItem, text, n.Str)
		}
		return x.value(n, types.JSONTree{Kind: types.JSONNumber, Num: num}, found)
	}
	return x.fail(pgerr.NonNumericSQLJSONItem, "jsonpath item method .%s() can only be applied to a string or numeric value", n.Str)
}

// keyValue yields an object for each member: its key, its value, and a number that is the same for members of one object.
func (x *pathRun) keyValue(n *types.PathNode, it pathItem, found *[]pathItem) pathResult {
	if !it.is(types.JSONObject) {
		return x.fail(pgerr.SQLJSONObjectNotFound, "jsonpath item method .%s() can only be applied to an object", n.Str)
	}
	if len(it.tree.Elems) == 0 {
		return pathNotFound
	}
	if n.Next == nil && found == nil {
		return pathOK
	}
	const idStep = 10_000_000_000
	id := types.NumericFromInt64(x.baseID*idStep + int64(jsonbOffset(x.base, it.tree)))
	res := pathNotFound
	for i := range it.tree.Elems {
		obj := types.NewJSONObject([]string{"key", "value", "id"}, []types.JSONTree{
			{Kind: types.JSONString, Str: it.tree.Keys[i]}, it.tree.Elems[i], {Kind: types.JSONNumber, Num: id},
		})
		saved, savedID := x.base, x.baseID
		x.generatedID++
		x.base, x.baseID = &obj, x.generatedID
		res = x.value(n, obj, found)
		x.base, x.baseID = saved, savedID
		if res == pathFailed || res == pathOK && found == nil {
			return res
		}
	}
	return res
}

// jsonbOffset returns how far behind the start of the document in PostgreSQL's binary form a container within it stands, 0 for one that is
// not in it.
func jsonbOffset(root, want *types.JSONTree) int {
	at, _ := jsonbLayout(root, want, 0)
	return max(at, 0)
}

const jsonbWord = 4 // size of headers and entries, and the alignment of numbers and containers

// jsonbLayout lays out a container that begins at from, and returns where want begins (-1: not within) and where the container ends.
func jsonbLayout(j, want *types.JSONTree, from int) (at, end int) {
	at = -1
	if j == want {
		at = from
	}
	end = from + jsonbWord + jsonbWord*(len(j.Elems)+len(j.Keys))
	for _, k := range j.Keys {
		end += len(k)
	}
	align := func() { end = (end + jsonbWord - 1) / jsonbWord * jsonbWord }
	for i := range j.Elems {
		e := &j.Elems[i]
		switch e.Kind {
		case types.JSONString:
			end += len(e.Str)
		case types.JSONNumber:
			align()
			end += numericBytes(e.Num)
		case types.JSONArray, types.JSONObject:
			align()
			inner := -1
			if inner, end = jsonbLayout(e, want, end); inner >= 0 {
				at = inner
			}
		}
	}
	return at, end
}

// numericBytes is the size of a numeric in PostgreSQL's storage.
func numericBytes(n types.Numeric) int {
	const header, digitBytes, shortScale, shortWeight = 6, 2, 63, 63
	v := types.Vector{Type: types.NumericType}
	v.AppendDatum(types.Datum{Type: types.NumericType, Num: n})
	b := types.AppendBinary(nil, &v, 0)
	digits, weight, scale := int(b[0])<<8|int(b[1]), int(int16(uint16(b[2])<<8|uint16(b[3]))), int(b[6])<<8|int(b[7])
	size := header + digits*digitBytes
	if scale > shortScale || weight > shortWeight || weight < -shortWeight-1 {
		size += digitBytes
	}
	return size
}
