package expr

import (
	"github.com/streamdb/streamdb/types"
)

// logicNode is AND or OR. Later arguments are computed only for the rows the earlier ones left undecided.
type logicNode struct {
	args []node
	or   bool
	out  result
	rest []uint16
}

func (n *logicNode) eval(x *run, rows []uint16) Arg {
	out := n.out.begin(types.Bool, x.n)
	rest := x.every(rows)
	for _, r := range rest {
		out.Bool[r] = !n.or
	}
	// rest is this node's own list, which every round shrinks in place.
	n.rest = append(n.rest[:0], rest...)
	rest = n.rest
	for i, arg := range n.args {
		undecided := rest
		if i == 0 {
			undecided = rows
		}
		a := arg.eval(x, undecided)
		kept := rest[:0]
		for _, r := range rest {
			row := int(r)
			switch {
			case a.Null(row):
				out.SetNull(row)
				kept = append(kept, r)
			case a.Bool[a.At(row)] == n.or:
				out.Bool[row] = n.or
				if out.Valid != nil {
					out.Valid.Set(row)
				}
			default:
				kept = append(kept, r)
			}
		}
		if rest = kept; len(rest) == 0 {
			break
		}
	}
	return NewArg(out)
}

type notNode struct {
	in  node
	out result
}

func (n *notNode) eval(x *run, rows []uint16) Arg {
	a := n.in.eval(x, rows)
	if a.IsConst() {
		out := n.out.begin(types.Bool, 1)
		out.Bool[0] = !a.Bool[0]
		if a.Null(0) {
			out.SetNull(0)
		}
		return ConstArg(out)
	}
	out := n.out.begin(types.Bool, x.n)
	for i, v := range a.Bool[:x.n] {
		out.Bool[i] = !v
	}
	if a.Valid != nil {
		copy(n.out.bitmap(x.n), a.Valid)
	}
	return NewArg(out)
}

// nullNode is IS [NOT] NULL.
type nullNode struct {
	in  node
	not bool
	out result
}

func (n *nullNode) eval(x *run, rows []uint16) Arg {
	a := n.in.eval(x, rows)
	out := n.out.begin(types.Bool, x.n)
	if a.Valid == nil {
		for i := range out.Bool {
			out.Bool[i] = n.not
		}
		return NewArg(out)
	}
	for i := range out.Bool {
		out.Bool[i] = a.Null(i) != n.not
	}
	return NewArg(out)
}

// distinctNode is IS DISTINCT FROM. eq is nil where both sides have the same type.
type distinctNode struct {
	args []node
	eq   *callNode
	out  result
	both []uint16
}

func (n *distinctNode) eval(x *run, rows []uint16) Arg {
	l, r := n.args[0].eval(x, rows), n.args[1].eval(x, rows)
	out := n.out.begin(types.Bool, x.n)
	n.both = n.both[:0]
	for _, row := range x.every(rows) {
		i := int(row)
		ln, rn := l.Null(i), r.Null(i)
		switch {
		case ln || rn:
			out.Bool[i] = ln != rn
		case n.eq == nil:
			out.Bool[i] = types.Compare(l.Vector, l.At(i), r.Vector, r.At(i)) != 0
		default:
			n.both = append(n.both, row)
		}
	}
	if n.eq == nil || len(n.both) == 0 {
		return NewArg(out)
	}
	n.eq.args[0].(*slotNode).a, n.eq.args[1].(*slotNode).a = l, r
	eq := n.eq.eval(x, n.both)
	for _, row := range n.both {
		i := int(row)
		out.Bool[i] = eq.Null(i) || !eq.Bool[eq.At(i)]
	}
	return NewArg(out)
}

// caseNode is CASE: when1, then1, … [, else]. A branch is computed only for the rows that take it.
type caseNode struct {
	args  []node
	t     types.Type
	out   result
	rest  []uint16
	taken []uint16
}

func (n *caseNode) eval(x *run, rows []uint16) Arg {
	out := n.out.begin(n.t, x.n)
	n.rest = append(n.rest[:0], x.every(rows)...)
	rest := n.rest
	i := 0
	for ; i+1 < len(n.args) && len(rest) > 0; i += 2 {
		cond := n.args[i].eval(x, rest)
		if cond.IsConst() && (cond.Null(0) || !cond.Bool[0]) {
			continue
		}
		n.taken = n.taken[:0]
		kept := rest[:0]
		for _, r := range rest {
			row := int(r)
			if !cond.Null(row) && cond.Bool[cond.At(row)] {
				n.taken = append(n.taken, r)
			} else {
				kept = append(kept, r)
			}
		}
		rest = kept
		if len(n.taken) > 0 {
			copyRows(out, n.args[i+1].eval(x, n.taken), n.taken)
		}
	}
	if len(rest) == 0 {
		return NewArg(out)
	}
	if len(n.args)%2 == 1 {
		copyRows(out, n.args[len(n.args)-1].eval(x, rest), rest)
		return NewArg(out)
	}
	for _, r := range rest {
		out.SetNull(int(r))
	}
	return NewArg(out)
}

type coalesceNode struct {
	args []node
	t    types.Type
	out  result
	rest []uint16
}

func (n *coalesceNode) eval(x *run, rows []uint16) Arg {
	out := n.out.begin(n.t, x.n)
	n.rest = append(n.rest[:0], x.every(rows)...)
	rest := n.rest
	if len(rest) == 0 {
		return NewArg(out) // an empty list may be nil, which would stand for all rows
	}
	for _, arg := range n.args {
		failed := len(x.errs.Rows)
		a := arg.eval(x, rest)
		if a.Valid == nil {
			copyValues(out, a, rest)
			return NewArg(out)
		}
		kept := rest[:0]
		for _, r := range rest {
			row := int(r)
			switch {
			case !a.Null(row):
				out.SetValue(row, a.Vector, a.At(row))
			case failedRow(x.errs.Rows[failed:], r):
				out.SetNull(row)
			default:
				kept = append(kept, r)
			}
		}
		if rest = kept; len(rest) == 0 {
			return NewArg(out)
		}
	}
	for _, r := range rest {
		out.SetNull(int(r))
	}
	return NewArg(out)
}

// failedRow reports whether r is among rows. The list is short: failures are rare.
func failedRow(rows []uint16, r uint16) bool {
	for _, f := range rows {
		if f == r {
			return true
		}
	}
	return false
}

// extremeNode is GREATEST (sign 1) or LEAST (sign -1).
type extremeNode struct {
	args []node
	t    types.Type
	sign int
	vals []Arg
	out  result
}

func (n *extremeNode) eval(x *run, rows []uint16) Arg {
	n.vals = n.vals[:0]
	for _, a := range n.args {
		n.vals = append(n.vals, a.eval(x, rows))
	}
	out := n.out.begin(n.t, x.n)
	for _, row := range x.every(rows) {
		i := int(row)
		best := -1
		for j, a := range n.vals {
			if a.Null(i) {
				continue
			}
			if best < 0 || types.Compare(a.Vector, a.At(i), n.vals[best].Vector, n.vals[best].At(i))*n.sign > 0 {
				best = j
			}
		}
		if best < 0 {
			out.SetNull(i)
			continue
		}
		out.SetValue(i, n.vals[best].Vector, n.vals[best].At(i))
	}
	return NewArg(out)
}

// arrayNode is ARRAY[…]; when the arguments are arrays themselves the result has one dimension more.
type arrayNode struct {
	args []node
	t    types.Type
	vals []Arg
	out  result
}

func (n *arrayNode) eval(x *run, rows []uint16) Arg {
	n.vals = n.vals[:0]
	for _, a := range n.args {
		n.vals = append(n.vals, a.eval(x, rows))
	}
	out := n.out.begin(n.t, x.n)
	elem, _ := n.t.Elem()
	nested := len(n.vals) > 0 && n.vals[0].Type.IsArray()
	for _, row := range x.every(rows) {
		i := int(row)
		elems := make([]types.Datum, len(n.vals))
		for j, a := range n.vals {
			elems[j] = a.Get(a.At(i))
		}
		if !nested {
			out.Str[i] = types.EncodeArray(types.NewArray(elem.OID, elems))
			continue
		}
		s, err := nestArrays(elem.OID, elems)
		if err != nil {
			x.errs.Add(i, err)
			out.SetNull(i)
			continue
		}
		out.Str[i] = s
	}
	return NewArg(out)
}

// rowNode is ROW(…).
type rowNode struct {
	args  []node
	names []string
	t     types.Type
	vals  []Arg
	out   result
}

func (n *rowNode) eval(x *run, rows []uint16) Arg {
	n.vals = n.vals[:0]
	for _, a := range n.args {
		n.vals = append(n.vals, a.eval(x, rows))
	}
	out := n.out.begin(n.t, x.n)
	fields := make([]types.Datum, len(n.vals))
	for _, row := range x.every(rows) {
		i := int(row)
		for j, a := range n.vals {
			fields[j] = a.Get(a.At(i))
		}
		out.Str[i] = types.EncodeNamedRecord(fields, n.names)
	}
	return NewArg(out)
}
