package functions

import (
	"slices"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// Resolved is the outcome of overload resolution.
type Resolved struct {
	Func *Func // nil when the call is a cast written as a function (Cast)
	// Args are the types the arguments must be cast to, one per given argument.
	Args   []types.Type
	Result types.Type
	// Cast is set for calls such as text(x) that PostgreSQL reads as CAST(x AS text); Result is the target type.
	Cast bool
}

const (
	hintFunction = "No function matches the given name and argument types. You might need to add explicit type casts."
	hintOperator = "No operator matches the given name and argument types. You might need to add explicit type casts."
	hintPrefix   = "No operator matches the given name and argument type. You might need to add an explicit type cast."
	hintChoose   = "Could not choose a best candidate function. You might need to add explicit type casts."
	hintChooseOp = "Could not choose a best candidate operator. You might need to add explicit type casts."
)

// candidate is one overload with its parameter list spread over the given arguments.
type candidate struct {
	fn       *Func
	op       *Operator
	args     []types.OID
	variadic bool // the last parameter was spread
	defaults int  // arguments left out
}

func category(oid types.OID) byte {
	if i, ok := types.InfoOf(oid); ok {
		return i.Category
	}
	switch t := types.T(oid); {
	case t.IsEnum():
		return 'E'
	case t.IsArray():
		return 'A'
	}
	return 'U'
}

func preferred(oid types.OID) bool {
	i, ok := types.InfoOf(oid)
	return ok && i.Preferred
}

func oids(ts []types.Type) []types.OID {
	out := make([]types.OID, len(ts))
	for i, t := range ts {
		out[i] = t.OID
	}
	return out
}

// ResolveFunction chooses the overload of name for arguments of the given types by PostgreSQL's rules. Literals without a type
// have type unknown. The error is 42883 (no such function), 42725 (ambiguous) or 0A000 (PostgreSQL has it, streamdb does not).
func (r *Registry) ResolveFunction(name string, args []types.Type) (*Resolved, error) {
	return r.resolveFunction(name, args, false)
}

// ResolveVariadic is ResolveFunction for calls whose last argument is marked VARIADIC.
func (r *Registry) ResolveVariadic(name string, args []types.Type) (*Resolved, error) {
	return r.resolveFunction(name, args, true)
}

func (r *Registry) resolveFunction(name string, args []types.Type, variadic bool) (*Resolved, error) {
	in := oids(args)
	cands := r.functionCandidates(name, len(in), variadic)
	best := exact(cands, in)
	if best == nil && len(in) == 1 && !variadic {
		if t, ok := r.typeByName(name); ok && r.functionIsCast(in[0], t) {
			return &Resolved{Cast: true, Args: []types.Type{types.T(t)}, Result: types.T(t)}, nil
		}
	}
	if best == nil {
		matching := r.match(cands, in)
		switch {
		case len(matching) == 1:
			best = matching[0]
		case len(matching) > 1:
			if best = r.choose(matching, in); best == nil {
				return nil, pgerr.Newf(pgerr.AmbiguousFunction, "function %s is not unique", r.signature(name, args)).WithHint(hintChoose)
			}
		default:
			return nil, pgerr.Newf(pgerr.UndefinedFunction, "function %s does not exist", r.signature(name, args)).WithHint(hintFunction)
		}
	}
	if variadic && !best.fn.Variadic {
		return nil, pgerr.Newf(pgerr.UndefinedFunction, "function %s does not exist", r.signature(name, args)).WithHint(hintFunction)
	}
	res, err := r.finish(best, args, name)
	if err == nil && variadic && best.fn.Args[len(best.fn.Args)-1] == types.OIDAny {
		if last := args[len(args)-1]; !last.IsArray() && last.OID != types.OIDUnknown {
			return nil, pgerr.Newf(pgerr.DatatypeMismatch, "VARIADIC argument must be an array")
		}
		f := *best.fn
		f.ID = variadicPrefix + f.ID
		res.Func = &f
	}
	return res, err
}

// functionIsCast reports whether f(x) with f the name of type to is a cast.
func (r *Registry) functionIsCast(from, to types.OID) bool {
	if from == types.OIDUnknown {
		return true
	}
	path, c := r.pathway(from, to, Explicit)
	switch path {
	case pathBinary:
		return true
	case pathIO:
		return !(from == types.OIDRecord && category(to) == 'S')
	}
	_ = c
	return false
}

// signature prints a call as PostgreSQL does in messages.
func (r *Registry) signature(name string, args []types.Type) string {
	var b strings.Builder
	b.WriteString(name)
	b.WriteByte('(')
	for i, t := range args {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(r.TypeName(t.OID))
	}
	b.WriteByte(')')
	return b.String()
}

func (r *Registry) functionCandidates(name string, n int, explicit bool) []*candidate {
	var out []*candidate
	for _, f := range r.byName[name] {
		np := len(f.Args)
		c := &candidate{fn: f}
		switch {
		case f.Variadic && !explicit && n >= np:
			c.variadic = true
			c.args = append(append(c.args, f.Args[:np-1]...), make([]types.OID, n-np+1)...)
			elem := variadicElem(f.Args[np-1])
			for i := np - 1; i < n; i++ {
				c.args[i] = elem
			}
		case n == np && (!f.Variadic || explicit):
			c.args = f.Args
		case n < np && n >= np-f.Defaults && !f.Variadic:
			c.args, c.defaults = f.Args[:n], np-n
		default:
			continue
		}
		out = appendUnlessShadowed(out, c)
	}
	return out
}

func variadicElem(oid types.OID) types.OID {
	switch oid {
	case types.OIDAny:
		return types.OIDAny
	case types.OIDAnyArray:
		return types.OIDAnyElement
	case types.OIDAnyCompatibleArr:
		return types.OIDAnyCompatible
	}
	if e, ok := types.T(oid).Elem(); ok {
		return e.OID
	}
	return oid
}

// appendUnlessShadowed drops the less specific of two overloads that take the same types: one without defaults wins, then one
// that is not variadic.
func appendUnlessShadowed(cs []*candidate, c *candidate) []*candidate {
	for i, o := range cs {
		if !sameTypes(o.args, c.args) {
			continue
		}
		if o.variadic && !c.variadic || o.variadic == c.variadic && o.defaults > c.defaults {
			cs[i] = c
		}
		return cs
	}
	return append(cs, c)
}

func sameTypes(a, b []types.OID) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func exact(cs []*candidate, in []types.OID) *candidate {
	for _, c := range cs {
		if sameTypes(c.args, in) {
			return c
		}
	}
	return nil
}

// match returns the candidates that accept the arguments with implicit casts.
func (r *Registry) match(cs []*candidate, in []types.OID) []*candidate {
	var out []*candidate
next:
	for _, c := range cs {
		for i, t := range in {
			if !r.canCoerce(t, c.args[i], Implicit) {
				continue next
			}
		}
		if _, _, ok := r.polymorphic(c.args, in, 0); !ok {
			continue
		}
		out = append(out, c)
	}
	return out
}

// choose is PostgreSQL's func_select_candidate.
func (r *Registry) choose(cs []*candidate, in []types.OID) *candidate {
	unknowns := 0
	for _, t := range in {
		if t == types.OIDUnknown {
			unknowns++
		}
	}
	cs = best(cs, func(c *candidate) int {
		n := 0
		for i, t := range in {
			if t != types.OIDUnknown && c.args[i] == t {
				n++
			}
		}
		return n
	})
	if len(cs) == 1 {
		return cs[0]
	}
	cs = best(cs, func(c *candidate) int {
		n := 0
		for i, t := range in {
			if t != types.OIDUnknown && (c.args[i] == t || preferred(c.args[i]) && category(c.args[i]) == category(t)) {
				n++
			}
		}
		return n
	})
	if len(cs) == 1 {
		return cs[0]
	}
	if unknowns == 0 {
		return nil
	}
	if narrowed, ok := byCategory(cs, in); ok {
		cs = narrowed
	}
	if len(cs) == 1 {
		return cs[0]
	}
	return r.assumeSame(cs, in, unknowns)
}

// best keeps the candidates of the highest score.
func best(cs []*candidate, score func(*candidate) int) []*candidate {
	var out []*candidate
	top := -1
	for _, c := range cs {
		switch s := score(c); {
		case s > top:
			top, out = s, append(out[:0:0], c)
		case s == top:
			out = append(out, c)
		}
	}
	return out
}

// byCategory narrows by the type category that the candidates accept for literals of unknown type, preferring strings.
func byCategory(cs []*candidate, in []types.OID) ([]*candidate, bool) {
	cats := make([]byte, len(in))
	pref := make([]bool, len(in))
	for i, t := range in {
		if t != types.OIDUnknown {
			continue
		}
		conflict := false
		for j, c := range cs {
			cat, p := category(c.args[i]), preferred(c.args[i])
			switch {
			case j == 0:
				cats[i], pref[i] = cat, p
			case cat == cats[i]:
				pref[i] = pref[i] || p
			case cat == 'S':
				cats[i], pref[i] = cat, p
			default:
				conflict = true
			}
		}
		if conflict && cats[i] != 'S' {
			return nil, false
		}
	}
	var out []*candidate
next:
	for _, c := range cs {
		for i, t := range in {
			if t != types.OIDUnknown {
				continue
			}
			if category(c.args[i]) != cats[i] || pref[i] && !preferred(c.args[i]) {
				continue next
			}
		}
		out = append(out, c)
	}
	return out, len(out) > 0
}

// assumeSame is the last heuristic: literals of unknown type get the type that all other arguments share.
func (r *Registry) assumeSame(cs []*candidate, in []types.OID, unknowns int) *candidate {
	if unknowns == len(in) {
		return nil
	}
	var known types.OID
	for _, t := range in {
		switch {
		case t == types.OIDUnknown || t == known:
		case known == 0:
			known = t
		default:
			return nil
		}
	}
	same := make([]types.OID, len(in))
	for i := range same {
		same[i] = known
	}
	var out *candidate
	for _, c := range cs {
		ok := true
		for i := range same {
			ok = ok && r.canCoerce(known, c.args[i], Implicit)
		}
		if ok {
			_, _, ok = r.polymorphic(c.args, same, 0)
		}
		if !ok {
			continue
		}
		if out != nil {
			return nil
		}
		out = c
	}
	return out
}

// finish settles polymorphic types and builds the result.
func (r *Registry) finish(c *candidate, args []types.Type, name string) (*Resolved, error) {
	in := oids(args)
	result := c.fn.Result
	targets, result, ok := r.polymorphic(c.args, in, result)
	if !ok && slices.Contains(c.args, types.OIDAnyEnum) { // nothing is coerced to an enum type that is not known
		return nil, pgerr.Newf(pgerr.UndefinedFunction, "function %s does not exist", r.signature(name, args)).WithHint(hintFunction)
	}
	if !ok {
		if name == "unnest" && len(in) == 1 && in[0] == types.OIDUnknown {
			// PostgreSQL has two of them.
			return nil, pgerr.Newf(pgerr.AmbiguousFunction, "function %s is not unique", r.signature(name, args)).WithHint(hintChoose)
		}
		return nil, pgerr.Newf(pgerr.DatatypeMismatch, "could not determine polymorphic type because input has type unknown")
	}
	if !c.fn.implemented() {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "%s is not supported", r.signature(name, args)).WithHint("See the list of functions in the manual or in pg_proc.")
	}
	res := &Resolved{Func: c.fn, Args: make([]types.Type, len(args)), Result: types.T(result)}
	for i, t := range targets {
		res.Args[i] = types.T(t)
		if args[i].OID == t || c.fn.Name == "pg_typeof" {
			res.Args[i] = args[i]
		}
	}
	return res, nil
}

// ResolveOperator chooses the operator sym for operands of the given types; left is the zero Type for a prefix operator.
func (r *Registry) ResolveOperator(sym string, left, right types.Type) (*Resolved, error) {
	if sym == "!=" {
		sym = "<>"
	}
	args := []types.Type{left, right}
	if left.OID == 0 {
		args = args[1:]
	}
	in := oids(args)
	cs := r.operatorCandidates(sym, len(in))
	best := exact(cs, in)
	if best == nil && len(in) == 2 {
		best = exactWithUnknown(cs, in)
	}
	if best == nil {
		matching := r.match(cs, in)
		switch {
		case len(matching) == 1:
			best = matching[0]
		case len(matching) > 1:
			if best = r.choose(matching, in); best == nil {
				return nil, pgerr.Newf(pgerr.AmbiguousFunction, "operator is not unique: %s", r.operatorSignature(sym, args)).WithHint(hintChooseOp)
			}
		}
	}
	if best == nil {
		hint := hintOperator
		if len(in) == 1 {
			hint = hintPrefix
		}
		return nil, pgerr.Newf(pgerr.UndefinedFunction, "operator does not exist: %s", r.operatorSignature(sym, args)).WithHint("%s", hint)
	}
	return r.finish(best, args, best.fn.Name)
}

// exactWithUnknown looks for an operator on twice the type of the operand that is not an untyped literal.
func exactWithUnknown(cs []*candidate, in []types.OID) *candidate {
	switch {
	case in[0] == types.OIDUnknown && in[1] != types.OIDUnknown:
		return exact(cs, []types.OID{in[1], in[1]})
	case in[1] == types.OIDUnknown && in[0] != types.OIDUnknown:
		return exact(cs, []types.OID{in[0], in[0]})
	}
	return nil
}

func (r *Registry) operatorSignature(sym string, args []types.Type) string {
	if len(args) == 1 {
		return sym + " " + r.TypeName(args[0].OID)
	}
	return r.TypeName(args[0].OID) + " " + sym + " " + r.TypeName(args[1].OID)
}

func (r *Registry) operatorCandidates(sym string, n int) []*candidate {
	var out []*candidate
	for _, o := range r.operators[sym] {
		switch {
		case n == 1 && o.Left == 0:
			out = append(out, &candidate{fn: o.Func, op: o, args: []types.OID{o.Right}})
		case n == 2 && o.Left != 0:
			out = append(out, &candidate{fn: o.Func, op: o, args: []types.OID{o.Left, o.Right}})
		}
	}
	return out
}
