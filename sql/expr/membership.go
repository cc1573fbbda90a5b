package expr

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// smallList is the length up to which IN compares with each element instead of looking into a hash table.
const smallList = 8

// inNode is x IN (list).
type inNode struct {
	in   node
	rest []node // elements that are not constants
	list types.Vector
	null bool // the constants hold a NULL
	ints map[int64]struct{}
	strs map[string]struct{}
	vals []Arg
	out  result
}

func newIn(args []node) *inNode {
	n := &inNode{in: args[0]}
	for _, a := range args[1:] {
		if c, ok := a.(constNode); ok {
			n.addConst(c.v.Get(0))
		} else {
			n.rest = append(n.rest, a)
		}
	}
	n.index()
	return n
}

func (n *inNode) addConst(d types.Datum) {
	if d.Null {
		n.null = true
		return
	}
	n.list.Type = d.Type
	n.list.AppendDatum(d)
}

func (n *inNode) index() {
	if n.list.Len() <= smallList {
		return
	}
	switch n.list.Type.Kind() {
	case types.KindInt:
		n.ints = make(map[int64]struct{}, n.list.Len())
		for _, v := range n.list.Int {
			n.ints[v] = struct{}{}
		}
	case types.KindString:
		if !plainText(n.list.Type.OID) {
			return
		}
		n.strs = make(map[string]struct{}, n.list.Len())
		for _, v := range n.list.Str {
			n.strs[v] = struct{}{}
		}
	}
}

// plainText reports whether values of the type are equal exactly when their bytes are.
func plainText(oid types.OID) bool {
	switch oid {
	case types.OIDText, types.OIDVarchar, types.OIDName, types.OIDBytea, types.OIDUUID, types.OIDChar:
		return true
	}
	return false
}

func (n *inNode) has(a Arg, i int) bool {
	switch {
	case n.ints != nil:
		_, ok := n.ints[a.Int[i]]
		return ok
	case n.strs != nil:
		_, ok := n.strs[a.Str[i]]
		return ok
	}
	switch a.Type.Kind() {
	case types.KindInt:
		for _, v := range n.list.Int {
			if v == a.Int[i] {
				return true
			}
		}
		return false
	case types.KindString:
		if plainText(a.Type.OID) {
			for _, v := range n.list.Str {
				if v == a.Str[i] {
					return true
				}
			}
			return false
		}
	}
	for j := range n.list.Len() {
		if types.Compare(a.Vector, i, &n.list, j) == 0 {
			return true
		}
	}
	return false
}

func (n *inNode) eval(x *run, rows []uint16) Arg {
	a := n.in.eval(x, rows)
	n.vals = n.vals[:0]
	for _, r := range n.rest {
		n.vals = append(n.vals, r.eval(x, rows))
	}
	out := n.out.begin(types.Bool, x.n)
	for _, row := range x.every(rows) {
		r := int(row)
		out.Bool[r] = false
		if a.Null(r) {
			out.SetNull(r)
			continue
		}
		i := a.At(r)
		found, null := n.has(a, i), n.null
		for _, v := range n.vals {
			if found {
				break
			}
			if v.Null(r) {
				null = true
				continue
			}
			found = types.Compare(a.Vector, i, v.Vector, v.At(r)) == 0
		}
		out.Bool[r] = found
		if !found && null {
			out.SetNull(r)
		}
	}
	return NewArg(out)
}

// quantifiedNode is x op ANY (array) or x op ALL (array).
type quantifiedNode struct {
	args  []node
	all   bool
	call  *callNode
	x     run
	errs  RowErrors
	c     types.Chunk
	left  types.Vector
	elems types.Vector
	out   result
}

// newQuantified returns a membership test instead where the array is constant and the operator is equality within one type.
func newQuantified(e *Expr, args []node, f Impl) node {
	if c, ok := args[1].(constNode); ok && e.Kind == AnyArray && !c.v.IsNull(0) && sameTypeEquality(e) {
		if a, err := types.DecodeArray(c.v.Str[0]); err == nil {
			n := &inNode{in: args[0]}
			for _, d := range a.Elems {
				n.addConst(d)
			}
			n.index()
			return n
		}
	}
	return &quantifiedNode{args: args, all: e.Kind == AllArray, call: newCall(types.Bool, []node{&slotNode{}, &slotNode{}}, f)}
}

func sameTypeEquality(e *Expr) bool {
	elem, ok := e.Args[1].Type.Elem()
	name, _, _ := strings.Cut(e.Func, "(")
	return ok && elem.OID == e.Args[0].Type.OID && strings.HasSuffix(name, "eq") && !strings.HasSuffix(name, "regexeq")
}

func (n *quantifiedNode) eval(x *run, rows []uint16) Arg {
	l, arr := n.args[0].eval(x, rows), n.args[1].eval(x, rows)
	out := n.out.begin(types.Bool, x.n)
	for _, row := range x.every(rows) {
		r := int(row)
		if arr.Null(r) {
			out.SetNull(r)
			continue
		}
		a, err := types.DecodeArray(arr.Str[arr.At(r)])
		if err != nil {
			x.errs.Add(r, err)
			out.SetNull(r)
			continue
		}
		n.row(x, r, l, a, out)
	}
	return NewArg(out)
}

func (n *quantifiedNode) row(x *run, r int, l Arg, a types.Array, out *types.Vector) {
	out.Bool[r] = n.all
	null := false
	for from := 0; from < len(a.Elems); from += types.MaxChunkRows {
		part := a.Elems[from:min(from+types.MaxChunkRows, len(a.Elems))]
		n.elems.Reset()
		n.elems.Type = types.T(a.Elem)
		for _, d := range part {
			n.elems.AppendDatum(d)
		}
		n.left.Reset()
		n.left.Type = l.Type
		n.left.Append(l.Vector, l.At(r))
		n.call.args[0].(*slotNode).a, n.call.args[1].(*slotNode).a = ConstArg(&n.left), NewArg(&n.elems)
		n.errs.Reset()
		n.c.N = len(part)
		n.x.c, n.x.n, n.x.env, n.x.errs = &n.c, len(part), x.env, &n.errs
		v := n.call.eval(&n.x, nil)
		if len(n.errs.Errs) > 0 {
			x.errs.Add(r, n.errs.Errs[0])
			out.SetNull(r)
			return
		}
		for i := range part {
			switch {
			case v.Null(i):
				null = true
			case v.Bool[v.At(i)] != n.all:
				out.Bool[r] = !n.all
				return
			}
		}
	}
	if null {
		out.SetNull(r)
	}
}

// nestArrays joins arrays of equal dimensions to one with a dimension more.
func nestArrays(elem types.OID, parts []types.Datum) (string, error) {
	mismatch := pgerr.Newf(pgerr.ArraySubscriptError, "multidimensional arrays must have array expressions with matching dimensions")
	var out types.Array
	out.Elem = elem
	for i, p := range parts {
		if p.Null {
			if i > 0 && len(out.Dims) > 0 {
				return "", mismatch
			}
			continue
		}
		a, err := types.DecodeArray(p.Str)
		if err != nil {
			return "", err
		}
		if i == 0 {
			out.Dims = append([]types.Dim{{Len: int32(len(parts)), Lower: 1}}, a.Dims...)
			if len(a.Dims) == 0 {
				out.Dims = nil
			}
			if len(out.Dims) > types.MaxArrayDims {
				return "", types.ErrArrayDims(len(out.Dims))
			}
		} else if !sameDims(out.Dims, a.Dims) {
			return "", mismatch
		}
		out.Elems = append(out.Elems, a.Elems...)
	}
	if len(out.Elems) == 0 {
		out.Dims = nil
	}
	return types.EncodeArray(out), nil
}

func sameDims(outer, inner []types.Dim) bool {
	if len(outer) == 0 {
		return len(inner) == 0
	}
	if len(outer)-1 != len(inner) {
		return false
	}
	for i, d := range inner {
		if outer[i+1] != d {
			return false
		}
	}
	return true
}
