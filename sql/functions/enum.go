package functions

import (
	"slices"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// UserTypes tells what statements need to know of enum types: one state of the catalogue, one search path.
type UserTypes interface {
	// TypeName returns the name of an enum type as messages print it: qualified where the search path does not find it.
	TypeName(oid types.OID) (string, bool)
	// Type finds an enum type; schema "" means along the search path.
	Type(schema, name string) (types.OID, bool)
	// EnumValues returns the stored forms of an enum type's values in their order.
	EnumValues(oid types.OID) []string
}

// IDs of the functions that the binder puts in the place of those that need the labels of an enum type. The first argument holds them, as a
// constant array of all values, so that a stored plan depends on no catalogue.
const (
	enumInput = "$enum_in(anyarray,text,text)" // values, name of the type, text or text[]
	enumRange = "$enum_range(anyarray,anyenum,anyenum)"
)

// WithTypes returns r for statements that may name enum types.
func (r *Registry) WithTypes(t UserTypes) *Registry {
	c := *r
	c.user = t
	return &c
}

// TypeName prints a type as messages do, without its modifier.
func (r *Registry) TypeName(oid types.OID) string {
	t := types.T(oid)
	if e, ok := t.Elem(); ok && e.IsEnum() {
		return r.TypeName(e.OID) + "[]"
	}
	if t.IsEnum() && r.user != nil {
		if name, ok := r.user.TypeName(oid); ok {
			return name
		}
	}
	return t.String()
}

// enumConst is the constant that holds all values of an enum type.
func (r *Registry) enumConst(enum types.OID) (*expr.Expr, error) {
	var values []string
	if r.user != nil {
		values = r.user.EnumValues(enum)
	}
	if values == nil {
		return nil, pgerr.Newf(pgerr.UndefinedObject, "type with OID %d does not exist", enum)
	}
	elems := make([]types.Datum, len(values))
	for i, v := range values {
		elems[i] = types.Datum{Type: types.T(enum), Str: v}
	}
	return expr.Literal(types.Datum{Type: types.T(types.ArrayOf(enum)), Str: types.EncodeArray(types.NewArray(enum, elems))}), nil
}

// enumLiteral turns the text of an untyped literal into a constant of an enum type or of an array of one.
func (r *Registry) enumLiteral(s string, to types.Type) (types.Datum, error) {
	f := *literalFormat
	f.Names = enumNames{r}
	return types.ParseText(&f, to, s)
}

// enumNames reads enum values while a statement is bound. Nothing else of types.Names is asked for then.
type enumNames struct{ r *Registry }

func (n enumNames) EnumValue(enum types.OID, label string) (string, error) {
	if n.r.user != nil {
		for _, v := range n.r.user.EnumValues(enum) {
			if types.EnumLabel(v) == label {
				return v, nil
			}
		}
	}
	return "", types.ErrEnumInput(n.r.TypeName(enum), label)
}

func (enumNames) RegText(types.OID, uint32) string { return "" }

func (enumNames) ParseReg(t types.OID, _ string) (uint32, error) {
	return 0, pgerr.Newf(pgerr.InternalError, "type %s is not read when a statement is bound", types.T(t))
}

// enumCast is the input function of an enum type, or element by element of an array of one, over e of a string type.
func (r *Registry) enumCast(e *expr.Expr, to types.Type) (*expr.Expr, error) {
	enum := to
	if el, ok := to.Elem(); ok {
		enum = el
	}
	values, err := r.enumConst(enum.OID)
	if err != nil {
		return nil, err
	}
	name := expr.Literal(types.Datum{Type: types.Text, Str: r.TypeName(enum.OID)})
	return &expr.Expr{Kind: expr.Call, Type: to, Func: enumInput, Args: []*expr.Expr{values, name, e}, Pos: e.Pos}, nil
}

// toEnum converts to an enum type or an array of one; the cast is known to exist.
func (r *Registry) toEnum(e *expr.Expr, to types.Type) (*expr.Expr, error) {
	text := types.Text
	if from, ok := e.Type.Elem(); ok && category(from.OID) == 'S' {
		text = types.T(types.ArrayOf(types.OIDText))
	}
	s, err := r.Cast(e, text, Explicit)
	if err != nil {
		return nil, err
	}
	return r.enumCast(s, to)
}

// typeByName finds a type by its name in a call such as text(x).
func (r *Registry) typeByName(name string) (types.OID, bool) {
	if oid, ok := types.TypeByName(name); ok || r.user == nil {
		return oid, ok
	}
	return r.user.Type("", name)
}

// EnumCall rewrites a call of enum_first, enum_last or enum_range, which depend on the type of their argument alone, or on the place of
// their arguments in it. Other calls are returned as they are.
func (r *Registry) EnumCall(c *expr.Expr) (*expr.Expr, error) {
	var first, last bool
	switch c.Func {
	case "enum_first(anyenum)":
		first = true
	case "enum_last(anyenum)":
		last = true
	case "enum_range(anyenum)", "enum_range(anyenum,anyenum)":
	default:
		return c, nil
	}
	values, err := r.enumConst(c.Args[0].Type.OID)
	if err != nil {
		return nil, err
	}
	values.Pos = c.Pos
	if first || last {
		a, err := types.DecodeArray(values.Const.Str)
		if err != nil {
			return nil, err
		}
		if len(a.Elems) == 0 {
			return nil, pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "enum %s contains no values", r.TypeName(c.Type.OID)).At(c.Pos)
		}
		d := a.Elems[0]
		if last {
			d = a.Elems[len(a.Elems)-1]
		}
		return &expr.Expr{Kind: expr.Const, Type: c.Type, Const: &d, Pos: c.Pos}, nil
	}
	if len(c.Args) == 1 {
		return values, nil
	}
	return &expr.Expr{Kind: expr.Call, Type: c.Type, Func: enumRange, Args: append([]*expr.Expr{values}, c.Args...), Pos: c.Pos}, nil
}

// enumFunctions lists the functions of enum types. Comparisons are among all others.
func enumFunctions() []entry {
	pick := func(larger bool) expr.Kernel {
		return map2(strSlot, strSlot, strSlot, func(a, b string) string {
			if (a < b) == larger {
				return b
			}
			return a
		})
	}
	bound := each(func(*call) error {
		return pgerr.Newf(pgerr.InternalError, "a call that depends on the labels of an enum type was not rewritten")
	})
	return []entry{
		fn("enum_cmp(anyenum,anyenum)", "", map2(strSlot, strSlot, intSlot, func(a, b string) int64 {
			return int64(types.CompareString(types.OIDBytea, a, b))
		})),
		fn("enum_smaller(anyenum,anyenum)", "", pick(false)), fn("enum_larger(anyenum,anyenum)", "", pick(true)),
		fn("enum_first(anyenum)", "", bound), fn("enum_last(anyenum)", "", bound),
		fn("enum_range(anyenum)", "", bound), fn("enum_range(anyenum,anyenum)", "", bound),
		{id: enumInput, sig: "any f t s", impl: impl{kernel: each(readEnum)}, doc: "the input function of enum types"},
		{id: enumRange, sig: "anyarray f f i", impl: impl{kernel: each(rangeOfEnum)}, doc: "values of an enum type between two bounds"},
	}
}

// enumTable is what a call keeps of its first argument: the values by label.
type enumTable map[string]string

func enumTableOf(c *call) (enumTable, error) {
	if t, ok := c.f.State.(enumTable); ok {
		return t, nil
	}
	a, err := types.DecodeArray(c.str(0))
	if err != nil {
		return nil, err
	}
	t := make(enumTable, len(a.Elems))
	for _, d := range a.Elems {
		t[types.EnumLabel(d.Str)] = d.Str
	}
	c.f.State = t
	return t, nil
}

func readEnum(c *call) error {
	t, err := enumTableOf(c)
	if err != nil {
		return err
	}
	read := func(s string) (string, error) {
		if v, ok := t[s]; ok {
			return v, nil
		}
		return "", types.ErrEnumInput(c.str(1), s)
	}
	elem, isArray := c.f.Type.Elem()
	if !isArray {
		v, err := read(c.str(2))
		if err != nil {
			return err
		}
		return c.setStr(v)
	}
	var a types.Array
	if c.args[2].Type.IsArray() {
		if a, err = types.DecodeArray(c.str(2)); err != nil {
			return err
		}
	} else {
		d, err := types.ParseText(c.f.Format(), types.T(types.ArrayOf(types.OIDText)), c.str(2))
		if err != nil {
			return err
		}
		if a, err = types.DecodeArray(d.Str); err != nil {
			return err
		}
	}
	a.Elem = elem.OID
	for i := range a.Elems {
		d := &a.Elems[i]
		d.Type = types.T(elem.OID)
		if d.Null {
			continue
		}
		if d.Str, err = read(d.Str); err != nil {
			return err
		}
	}
	return c.setStr(types.EncodeArray(a))
}

// rangeOfEnum returns the values from the first bound to the second; a NULL bound is open.
func rangeOfEnum(c *call) error {
	a, err := types.DecodeArray(c.str(0))
	if err != nil {
		return err
	}
	a.Elems = slices.DeleteFunc(a.Elems, func(d types.Datum) bool {
		return !c.null(1) && d.Str < c.str(1) || !c.null(2) && d.Str > c.str(2)
	})
	return c.setStr(types.EncodeArray(types.NewArray(a.Elem, a.Elems)))
}
