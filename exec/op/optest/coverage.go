package optest

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// What a case shows beyond the fields of its node. Coverage has these, too.
const (
	HasOracle  = "an oracle or expected rows"
	HasRandom  = "drawn input"
	HasNulls   = "NULLs in the input"
	HasDeletes = "retractions"
	HasRescale = "several subtasks"
)

// Coverage is what cases have: per operator kind the fields of its node that were set, as paths like "Range.Expire" or, of
// those with a type of their own, "Type=full", and what the cases had. Of joins it also has pairs of a type and a field.
type Coverage map[plan.Kind]map[string]bool

// Add notes a case; drawn says that its input is.
func (c Coverage) Add(s *Spec, drawn bool) error {
	node := func(n *plan.Node) map[string]bool {
		by := c[n.Kind]
		if by == nil {
			by = map[string]bool{}
			c[n.Kind] = by
		}
		for _, f := range SetFields(n) {
			by[f] = true
		}
		return by
	}
	by := node(s.Node)
	by[HasRandom] = by[HasRandom] || drawn
	by[HasRescale] = by[HasRescale] || s.Route != nil
	by[HasOracle] = by[HasOracle] || s.Oracle != nil
	for _, e := range s.Epochs {
		by[HasOracle] = by[HasOracle] || e.Want != ""
		for port, n := range s.Node.Inputs {
			c, err := e.chunk(port, n.Schema.Types())
			if err != nil {
				return err
			}
			if c == nil {
				continue
			}
			for i := range c.Rows() {
				by[HasDeletes] = by[HasDeletes] || c.Weight(c.Row(i)) < 0
			}
			for _, v := range c.Cols {
				by[HasNulls] = by[HasNulls] || v.Valid != nil
			}
		}
	}
	if r := s.Node.Recompute; r != nil {
		subplans(r.Sub, func(n *plan.Node) { node(n) })
	}
	return nil
}

func subplans(n *plan.Node, f func(*plan.Node)) {
	n.Walk(func(n *plan.Node) {
		f(n)
		if n.Recurse != nil {
			subplans(n.Recurse.Base, f)
			subplans(n.Recurse.Step, f)
		}
	})
}

// SetFields lists the fields of a node's operator that are set, as in Coverage.
func SetFields(n *plan.Node) []string {
	var out []string
	v := Params(n)
	if !v.IsValid() {
		return nil
	}
	fields(v.Elem(), "", func(path string, set bool) {
		if set {
			out = append(out, path)
		}
	})
	if j := n.Join; j != nil {
		if len(j.LeftKeys) == 0 && j.Spread == nil {
			out = append(out, "one subtask")
		}
		for _, f := range out {
			if !strings.Contains(f, "=") && f != "RightKeys" {
				out = append(out, string(j.Type)+" with "+f)
			}
		}
	}
	return out
}

// AllFields lists the fields that the operator of a node has; of those with types of their own only the names.
func AllFields(n *plan.Node) []string {
	v := Params(n)
	if !v.IsValid() {
		return nil
	}
	var out []string
	all(v.Type().Elem(), "", &out)
	return out
}

// Params returns the field of a node that has the parameters of its operator, no value when the operator has none.
func Params(n *plan.Node) reflect.Value {
	t := reflect.TypeFor[plan.Node]()
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name == string(n.Kind) && t.Field(i).Type.Kind() == reflect.Pointer {
			return reflect.ValueOf(n).Elem().Field(i)
		}
	}
	return reflect.Value{}
}

// opaque types are not looked into.
func opaque(t reflect.Type) bool {
	return t == reflect.TypeFor[expr.Expr]() || t == reflect.TypeFor[types.Datum]() || t == reflect.TypeFor[types.Type]() || t == reflect.TypeFor[plan.Node]() || t.Kind() != reflect.Struct
}

func all(t reflect.Type, prefix string, out *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		e := f.Type
		for e.Kind() == reflect.Pointer || e.Kind() == reflect.Slice {
			e = e.Elem()
		}
		if f.Type.Kind() != reflect.Struct {
			*out = append(*out, prefix+f.Name)
		}
		if !opaque(e) {
			all(e, prefix+f.Name+".", out)
		}
	}
}

func fields(v reflect.Value, prefix string, found func(path string, set bool)) {
	for i := range v.NumField() {
		f, path := v.Field(i), prefix+v.Type().Field(i).Name
		switch k := f.Kind(); {
		case k == reflect.Struct:
			if !opaque(f.Type()) {
				fields(f, path+".", found)
			}
		case k == reflect.Slice && f.Type().Elem().Kind() != reflect.Pointer && !opaque(f.Type().Elem()):
			found(path, f.Len() > 0)
			for i := range f.Len() {
				fields(f.Index(i), path+".", found)
			}
		case k == reflect.Pointer && !opaque(f.Type().Elem()):
			found(path, !f.IsNil())
			if !f.IsNil() {
				fields(f.Elem(), path+".", found)
			}
		case k == reflect.String:
			found(path, f.Len() > 0)
			found(path+"="+f.String(), true)
		case k == reflect.Slice:
			found(path, f.Len() > 0)
			for i := range f.Len() {
				if e := f.Index(i); e.Kind() == reflect.String {
					found(path+"="+e.String(), true)
				}
			}
		case k == reflect.Int && (path == "OnClose" || strings.HasSuffix(path, "Filter")): // -1: none
			found(path, f.Int() >= 0)
		default:
			found(path, !f.IsZero())
		}
	}
}

// Missing lists what of want no case of the kind has.
func (c Coverage) Missing(k plan.Kind, want ...string) []string {
	var out []string
	for _, w := range want {
		if !c[k][w] {
			out = append(out, fmt.Sprintf("%s: %s", k, w))
		}
	}
	return out
}
