package functions

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// variadicPrefix before the ID of a VARIADIC "any" function is that function with its last arguments given as an array.
const variadicPrefix = "$variadic "

// variadicCall spreads the array in the last argument, row by row: rows may have arrays of different lengths.
func variadicCall(inner expr.Kernel) expr.Kernel {
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		c := call{f: f, args: args, out: out}
		one := *f
		one.N, one.Rows = 1, nil
		last := len(args) - 1
		for i := range f.Len() {
			c.row = f.Row(i)
			if c.null(last) {
				c.setNull()
				continue
			}
			a, err := c.array(last)
			if err != nil {
				f.Fail(out, c.row, err)
				continue
			}
			spread := make([]expr.Arg, 0, last+len(a.Elems))
			for j := range args[:last] {
				spread = append(spread, constArg(c.datum(j)))
			}
			for _, e := range a.Elems {
				spread = append(spread, constArg(e))
			}
			result := &types.Vector{Type: out.Type}
			result.Resize(1)
			var errs expr.RowErrors
			one.Errs = &errs
			inner(&one, spread, result)
			switch {
			case len(errs.Errs) > 0:
				f.Fail(out, c.row, errs.Errs[0])
			case result.IsNull(0):
				c.setNull()
			default:
				expr.Set(out, c.row, result.Get(0))
			}
		}
	}
}

func constArg(d types.Datum) expr.Arg {
	v := &types.Vector{Type: d.Type}
	v.AppendDatum(d)
	return expr.ConstArg(v)
}

// MatchNames finds the function that a call with named arguments means and returns, per parameter, the argument for it (-1: its default) and the
// text of the default. names has "" for arguments without a name, which come first.
func (r *Registry) MatchNames(name string, args []types.Type, names []string) (order []int, defaults []string, err error) {
	in := oids(args)
	type match struct {
		*candidate
		order []int
	}
	var cands []*candidate
	var all []match
next:
	for _, f := range r.byName[name] {
		if f.ArgNames == nil || len(f.Args) < len(args) || f.Variadic {
			continue
		}
		m := match{candidate: &candidate{fn: f, args: make([]types.OID, len(args))}, order: make([]int, len(f.Args))}
		for i := range m.order {
			m.order[i] = -1
		}
		for i, n := range names {
			at := i
			if n != "" {
				if at = indexOf(f.ArgNames, n); at < 0 || m.order[at] >= 0 {
					continue next
				}
			}
			m.order[at], m.args[i] = i, f.Args[at]
		}
		for i, o := range m.order {
			if o < 0 && f.ArgDefaults[i] == "" {
				continue next
			}
		}
		cands, all = append(cands, m.candidate), append(all, m)
	}
	best := exact(cands, in)
	if best == nil {
		switch fit := r.match(cands, in); len(fit) {
		case 0:
		case 1:
			best = fit[0]
		default:
			if best = r.choose(fit, in); best == nil {
				return nil, nil, pgerr.Newf(pgerr.AmbiguousFunction, "function %s is not unique", namedSignature(name, args, names)).WithHint(hintChoose)
			}
		}
	}
	for _, m := range all {
		if m.candidate == best {
			return m.order, m.fn.ArgDefaults, nil
		}
	}
	return nil, nil, pgerr.Newf(pgerr.UndefinedFunction, "function %s does not exist", namedSignature(name, args, names)).WithHint(hintFunction)
}

func indexOf(list []string, s string) int {
	for i, x := range list {
		if x == s {
			return i
		}
	}
	return -1
}

// namedSignature prints a call with named arguments as PostgreSQL does in messages.
func namedSignature(name string, args []types.Type, names []string) string {
	parts := make([]string, len(args))
	for i, t := range args {
		if names[i] != "" {
			parts[i] = names[i] + " => "
		}
		parts[i] += types.T(t.OID).String()
	}
	return name + "(" + strings.Join(parts, ", ") + ")"
}

// ChooseSignature picks the one of several parameter lists, each as long as args, that a call with args means, by the rules of overloads: -1 when
// none fits; ok is false when several do equally well.
func (r *Registry) ChooseSignature(sigs [][]types.OID, args []types.Type) (index int, ok bool) {
	in := oids(args)
	cands := make([]*candidate, len(sigs))
	for i, s := range sigs {
		cands[i] = &candidate{args: s}
	}
	best := exact(cands, in)
	if best == nil {
		switch fit := r.match(cands, in); len(fit) {
		case 0:
			return -1, true
		case 1:
			best = fit[0]
		default:
			if best = r.choose(fit, in); best == nil {
				return -1, false
			}
		}
	}
	for i, c := range cands {
		if c == best {
			return i, true
		}
	}
	return -1, true
}

// HasExact reports whether a builtin function takes just these types.
func (r *Registry) HasExact(name string, args []types.Type) bool {
	return exact(r.functionCandidates(name, len(args), false), oids(args)) != nil
}

// Signature prints a call as PostgreSQL does in messages.
func (r *Registry) Signature(name string, args []types.Type) string { return r.signature(name, args) }
