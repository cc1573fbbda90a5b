package functions

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// IDs of casts that have no function of their own in PostgreSQL. Stored in plans.
const (
	castRetype      = expr.Retype    // binary-coercible: the same value under another type
	castInput       = "$in(text)"    // the type's input function over a string
	castOutput      = "$out(any)"    // the type's output function
	castLength      = "$length(any)" // the type modifier, as in assignments: too long a value is an error
	castLengthCut   = "$length_cut(any)"
	castOidInt      = "$oid(int4)" // int4 and oid share 32 bits, not the sign
	castIntOid      = "$int4(oid)"
	arrayCastPrefix = "$array:"
)

type path byte

const (
	pathNone path = iota
	pathBinary
	pathFunc
	pathIO
	pathArray
)

// pathway finds how a value of type from becomes one of type to in a context (PostgreSQL's find_coercion_pathway).
func (r *Registry) pathway(from, to types.OID, ctx CastContext) (path, *CastEntry) {
	if from == to {
		return pathBinary, nil
	}
	if c := r.casts[[2]types.OID{from, to}]; c != nil {
		if ctx < c.Context {
			return pathNone, nil
		}
		if c.Binary {
			return pathBinary, c
		}
		if c.Func != nil {
			return pathFunc, c
		}
		return pathIO, c
	}
	fe, fok := types.T(from).Elem()
	te, tok := types.T(to).Elem()
	if fok && tok && !isVectorType(to) {
		if p, _ := r.pathway(fe.OID, te.OID, ctx); p != pathNone {
			return pathArray, nil
		}
		return pathNone, nil
	}
	if ctx >= Assignment && category(to) == 'S' || ctx == Explicit && category(from) == 'S' {
		return pathIO, nil
	}
	return pathNone, nil
}

// isVectorType reports the array-like types that no array converts to.
func isVectorType(oid types.OID) bool { return oid == types.OIDInt2Vector || oid == types.OIDOidVector }

// canCoerce is can_coerce_type for one type: literals without a type go anywhere, pseudo types accept what fits them.
func (r *Registry) canCoerce(from, to types.OID, ctx CastContext) bool {
	switch {
	case from == to, to == types.OIDAny, to == types.OIDAnyElement, to == types.OIDAnyCompatible, from == types.OIDUnknown:
		return true
	case to == types.OIDAnyNonArray:
		return !types.T(from).IsArray()
	case to == types.OIDAnyEnum:
		return types.T(from).IsEnum()
	case to == types.OIDAnyArray, to == types.OIDAnyCompatibleArr:
		return types.T(from).IsArray()
	}
	p, _ := r.pathway(from, to, ctx)
	return p != pathNone
}

// CanCast reports whether a value of type from may become one of type to in the context.
func (r *Registry) CanCast(from, to types.Type, ctx CastContext) bool {
	return r.canCoerce(from.OID, to.OID, ctx)
}

func (r *Registry) commonOID(ts []types.OID) (types.OID, bool) {
	var best types.OID
	for _, t := range ts {
		switch {
		case t == types.OIDUnknown || t == best:
		case best == 0:
			best = t
		case category(t) != category(best):
			return 0, false
		case !preferred(best) && r.canCoerce(best, t, Implicit) && !r.canCoerce(t, best, Implicit):
			best = t
		}
	}
	if best == 0 {
		return types.OIDText, true
	}
	for _, t := range ts {
		if !r.canCoerce(t, best, Implicit) {
			return 0, false
		}
	}
	return best, true
}

// CommonType returns the type that values of all ts are brought to, by the rules of UNION, CASE, COALESCE, VALUES, ARRAY and IN.
// what names the construct in the error ("UNION", "CASE", …).
func (r *Registry) CommonType(what string, ts []types.Type) (types.Type, error) {
	var best types.Type
	for _, t := range ts {
		switch {
		case t.OID == types.OIDUnknown || t.OID == best.OID:
		case best.OID == 0:
			best = t
		case category(t.OID) != category(best.OID):
			return types.Type{}, pgerr.Newf(pgerr.DatatypeMismatch, "%s types %s and %s cannot be matched", what, r.TypeName(best.OID), r.TypeName(t.OID))
		case !preferred(best.OID) && r.canCoerce(best.OID, t.OID, Implicit) && !r.canCoerce(t.OID, best.OID, Implicit):
			best = t
		}
	}
	if best.OID == 0 {
		return types.Text, nil
	}
	mod, set := int32(-1), false
	for _, t := range ts {
		if !r.canCoerce(t.OID, best.OID, Implicit) {
			if what == "CASE" {
				what = "CASE/WHEN"
			}
			return types.Type{}, pgerr.Newf(pgerr.CannotCoerce, "%s could not convert type %s to %s", what, r.TypeName(t.OID), r.TypeName(best.OID))
		}
		switch {
		case t.OID != best.OID || set && t.Mod != mod:
			return types.T(best.OID), nil
		case !set:
			mod, set = t.Mod, true
		}
	}
	return types.Type{OID: best.OID, Mod: mod}, nil
}

// Cast returns e cast to the given type, e itself when it has that type already. Untyped literals become typed constants at once, with
// the error of the type's input function. Errors: 42846 (no such cast), 42804 (not in this context).
func (r *Registry) Cast(e *expr.Expr, to types.Type, ctx CastContext) (*expr.Expr, error) {
	if e.Type == to {
		return e, nil
	}
	if e.Type.OID == types.OIDUnknown {
		if to.OID == types.OIDAny {
			to = types.Text
		}
		return r.castUnknown(e, to, ctx)
	}
	if e.Type.OID == to.OID {
		return length(e, to, ctx), nil
	}
	if to.OID == types.OIDAny {
		return e, nil
	}
	if to.IsUserType() && r.canCoerce(e.Type.OID, to.OID, ctx) {
		return r.toEnum(e, to)
	}
	x, ok := r.convert(e, to.OID, ctx)
	if !ok {
		if ctx == Explicit || !r.canCoerce(e.Type.OID, to.OID, Explicit) {
			return nil, pgerr.Newf(pgerr.CannotCoerce, "cannot cast type %s to %s", r.TypeName(e.Type.OID), r.TypeName(to.OID)).At(e.Pos)
		}
		return nil, pgerr.Newf(pgerr.DatatypeMismatch, "cannot convert type %s to %s without an explicit cast", r.TypeName(e.Type.OID), r.TypeName(to.OID)).
			WithHint("You will need to rewrite or cast the expression.").At(e.Pos)
	}
	return length(x, to, ctx), nil
}

// convert builds the conversion between two types without modifiers.
func (r *Registry) convert(e *expr.Expr, to types.OID, ctx CastContext) (*expr.Expr, bool) {
	p, c := r.pathway(e.Type.OID, to, ctx)
	t := types.T(to)
	switch p {
	case pathBinary:
		if id := signCast(e.Type.OID, to); id != castRetype {
			return &expr.Expr{Kind: expr.Call, Type: t, Func: id, Args: []*expr.Expr{e}, Pos: e.Pos}, true
		}
		return retype(e, t), true
	case pathFunc:
		call := &expr.Expr{Kind: expr.Call, Type: types.T(c.Func.Result), Func: c.Func.ID, Args: []*expr.Expr{e}, Pos: e.Pos}
		if c.Func.Result != to {
			// Such as int2 to oid, by way of int4.
			return r.convert(call, to, ctx)
		}
		return call, true
	case pathIO:
		return r.ioCast(e, t), true
	case pathArray:
		id, ok := r.elementCast(e.Type.OID, to, ctx)
		if !ok {
			return nil, false
		}
		return &expr.Expr{Kind: expr.Call, Type: t, Func: arrayCastPrefix + id, Args: []*expr.Expr{e}, Pos: e.Pos}, true
	}
	return nil, false
}

func (r *Registry) elementCast(from, to types.OID, ctx CastContext) (string, bool) {
	fe, _ := types.T(from).Elem()
	te, _ := types.T(to).Elem()
	p, c := r.pathway(fe.OID, te.OID, ctx)
	switch p {
	case pathBinary:
		return signCast(fe.OID, te.OID), true
	case pathFunc:
		return c.Func.ID, true
	case pathIO:
		if category(fe.OID) == 'S' {
			return castInput, true
		}
		return castOutput, true
	}
	return "", false
}

// signCast returns the ID of the cast between two binary-coercible types.
func signCast(from, to types.OID) string {
	switch {
	case from == types.OIDInt4 && to != types.OIDInt4:
		return castOidInt
	case to == types.OIDInt4:
		return castIntOid
	}
	return castRetype
}

func (r *Registry) ioCast(e *expr.Expr, t types.Type) *expr.Expr {
	call := func(id string, typ types.Type, arg *expr.Expr) *expr.Expr {
		return &expr.Expr{Kind: expr.Call, Type: typ, Func: id, Args: []*expr.Expr{arg}, Pos: e.Pos}
	}
	if category(e.Type.OID) == 'S' && e.Type.OID != types.OIDChar {
		return call(castInput, t, e)
	}
	if category(t.OID) == 'S' && t.OID != types.OIDName {
		return call(castOutput, t, e)
	}
	return call(castInput, t, call(castOutput, types.Text, e))
}

// retype gives e another type of the same representation.
func retype(e *expr.Expr, t types.Type) *expr.Expr {
	if e.Type == t {
		return e
	}
	if e.Kind == expr.Const {
		d := *e.Const
		d.Type = t
		return &expr.Expr{Kind: expr.Const, Type: t, Const: &d, Pos: e.Pos}
	}
	if e.Kind == expr.Call && e.Func == castRetype {
		return retype(e.Args[0], t)
	}
	return &expr.Expr{Kind: expr.Call, Type: t, Func: castRetype, Args: []*expr.Expr{e}, Pos: e.Pos}
}

// length applies a type modifier to a value that has the type already.
func length(e *expr.Expr, to types.Type, ctx CastContext) *expr.Expr {
	if e.Type == to {
		return e
	}
	if to.Mod < 0 {
		return retype(e, to)
	}
	id := castLength
	if ctx == Explicit {
		id = castLengthCut
	}
	return &expr.Expr{Kind: expr.Call, Type: to, Func: id, Args: []*expr.Expr{e}, Pos: e.Pos}
}

func (r *Registry) castUnknown(e *expr.Expr, to types.Type, ctx CastContext) (*expr.Expr, error) {
	switch {
	case to.OID == types.OIDAny || isPolymorphic(to.OID):
		to = types.Text
	case e.Kind == expr.Const && e.Const.Null:
		d := types.NullDatum(to)
		return &expr.Expr{Kind: expr.Const, Type: to, Const: &d, Pos: e.Pos}, nil
	case e.Kind == expr.Param:
		c := *e
		c.Type = to
		return &c, nil
	}
	if to.IsUserType() {
		if e.Kind != expr.Const {
			return r.enumCast(retype(e, types.Text), to)
		}
		d, err := r.enumLiteral(e.Const.Str, to)
		if err != nil {
			return nil, pgerr.From(err).At(e.Pos)
		}
		return &expr.Expr{Kind: expr.Const, Type: to, Const: &d, Pos: e.Pos}, nil
	}
	if e.Kind == expr.Const && !inputIsStable(to.OID, e.Const.Str) {
		d, err := parseLiteral(e.Const.Str, to)
		if err != nil {
			return nil, pgerr.From(err).At(e.Pos)
		}
		if c, err := types.Coerce(d, to, ctx == Explicit); err == nil {
			return &expr.Expr{Kind: expr.Const, Type: to, Const: &c, Pos: e.Pos}, nil
		}
		// The length is another function's business than the input's: its error comes when it is called.
		return length(&expr.Expr{Kind: expr.Const, Type: types.T(to.OID), Const: &d, Pos: e.Pos}, to, ctx), nil
	}
	if e.Kind == expr.Const {
		if err := checkLiteral(to.OID, e.Const.Str); err != nil {
			return nil, pgerr.From(err).At(e.Pos)
		}
	}
	text := retype(e, types.Text)
	if to.OID == types.OIDText {
		return text, nil
	}
	in := &expr.Expr{Kind: expr.Call, Type: types.T(to.OID), Func: castInput, Args: []*expr.Expr{text}, Pos: e.Pos}
	return length(in, to, ctx), nil
}
