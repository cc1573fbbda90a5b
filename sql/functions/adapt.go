package functions

import (
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// The adapters below make kernels of plain functions over Go values. A slot names the slice of a vector that holds a type's values.
type slot[T any] func(v *types.Vector) []T

func boolSlot(v *types.Vector) []bool               { return v.Bool }
func intSlot(v *types.Vector) []int64               { return v.Int }
func floatSlot(v *types.Vector) []float64           { return v.Float }
func strSlot(v *types.Vector) []string              { return v.Str }
func numSlot(v *types.Vector) []types.Numeric       { return v.Num }
func intervalSlot(v *types.Vector) []types.Interval { return v.Ivl }

// nullary is a function without arguments.
func nullary[R any](r slot[R], fn func(f *expr.Frame) R) expr.Kernel {
	return func(f *expr.Frame, _ []expr.Arg, out *types.Vector) {
		o := r(out)
		for i := range f.Len() {
			o[f.Row(i)] = fn(f)
		}
	}
}

func map1[A, R any](a slot[A], r slot[R], fn func(A) R) expr.Kernel {
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		x, o := a(args[0].Vector), r(out)
		for i := range f.Len() {
			row := f.Row(i)
			o[row] = fn(x[args[0].At(row)])
		}
	}
}

func map1e[A, R any](a slot[A], r slot[R], fn func(A) (R, error)) expr.Kernel {
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		x, o := a(args[0].Vector), r(out)
		for i := range f.Len() {
			row := f.Row(i)
			v, err := fn(x[args[0].At(row)])
			if err != nil {
				f.Fail(out, row, err)
				continue
			}
			o[row] = v
		}
	}
}

func map2[A, B, R any](a slot[A], b slot[B], r slot[R], fn func(A, B) R) expr.Kernel {
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		x, y, o := a(args[0].Vector), b(args[1].Vector), r(out)
		for i := range f.Len() {
			row := f.Row(i)
			o[row] = fn(x[args[0].At(row)], y[args[1].At(row)])
		}
	}
}

func map2e[A, B, R any](a slot[A], b slot[B], r slot[R], fn func(A, B) (R, error)) expr.Kernel {
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		x, y, o := a(args[0].Vector), b(args[1].Vector), r(out)
		for i := range f.Len() {
			row := f.Row(i)
			v, err := fn(x[args[0].At(row)], y[args[1].At(row)])
			if err != nil {
				f.Fail(out, row, err)
				continue
			}
			o[row] = v
		}
	}
}

func map3e[A, B, C, R any](a slot[A], b slot[B], c slot[C], r slot[R], fn func(A, B, C) (R, error)) expr.Kernel {
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		x, y, z, o := a(args[0].Vector), b(args[1].Vector), c(args[2].Vector), r(out)
		for i := range f.Len() {
			row := f.Row(i)
			v, err := fn(x[args[0].At(row)], y[args[1].At(row)], z[args[2].At(row)])
			if err != nil {
				f.Fail(out, row, err)
				continue
			}
			o[row] = v
		}
	}
}

// call is one row of a call, for functions that the typed adapters do not fit.
type call struct {
	f    *expr.Frame
	args []expr.Arg
	row  int
	out  *types.Vector
}

func (c *call) has(i int) bool                { return i < len(c.args) }
func (c *call) null(i int) bool               { return c.args[i].Null(c.row) }
func (c *call) bool(i int) bool               { return c.args[i].Bool[c.args[i].At(c.row)] }
func (c *call) int(i int) int64               { return c.args[i].Int[c.args[i].At(c.row)] }
func (c *call) float(i int) float64           { return c.args[i].Float[c.args[i].At(c.row)] }
func (c *call) str(i int) string              { return c.args[i].Str[c.args[i].At(c.row)] }
func (c *call) num(i int) types.Numeric       { return c.args[i].Num[c.args[i].At(c.row)] }
func (c *call) ivl(i int) types.Interval      { return c.args[i].Ivl[c.args[i].At(c.row)] }
func (c *call) datum(i int) types.Datum       { return c.args[i].Get(c.args[i].At(c.row)) }
func (c *call) setNull()                      { c.out.SetNull(c.row) }
func (c *call) setBool(v bool) error          { c.out.Bool[c.row] = v; return nil }
func (c *call) setInt(v int64) error          { c.out.Int[c.row] = v; return nil }
func (c *call) setFloat(v float64) error      { c.out.Float[c.row] = v; return nil }
func (c *call) setStr(v string) error         { c.out.Str[c.row] = v; return nil }
func (c *call) setNum(v types.Numeric) error  { c.out.Num[c.row] = v; return nil }
func (c *call) setIvl(v types.Interval) error { c.out.Ivl[c.row] = v; return nil }
func (c *call) setDatum(d types.Datum) error {
	if d.Null {
		c.setNull()
		return nil
	}
	expr.Set(c.out, c.row, d)
	return nil
}

// each makes a kernel of a function over one row.
func each(fn func(c *call) error) expr.Kernel {
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		c := call{f: f, args: args, out: out}
		for i := range f.Len() {
			c.row = f.Row(i)
			err := f.Interrupted()
			if err == nil {
				err = fn(&c)
			}
			if err != nil {
				f.Fail(out, c.row, err)
			}
		}
	}
}

// ctx is map1e with the frame, for functions that depend on the session.
func ctx1[A, R any](a slot[A], r slot[R], fn func(*expr.Frame, A) (R, error)) expr.Kernel {
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		x, o := a(args[0].Vector), r(out)
		for i := range f.Len() {
			row := f.Row(i)
			v, err := fn(f, x[args[0].At(row)])
			if err != nil {
				f.Fail(out, row, err)
				continue
			}
			o[row] = v
		}
	}
}

func ctx2[A, B, R any](a slot[A], b slot[B], r slot[R], fn func(*expr.Frame, A, B) (R, error)) expr.Kernel {
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		x, y, o := a(args[0].Vector), b(args[1].Vector), r(out)
		for i := range f.Len() {
			row := f.Row(i)
			v, err := fn(f, x[args[0].At(row)], y[args[1].At(row)])
			if err != nil {
				f.Fail(out, row, err)
				continue
			}
			o[row] = v
		}
	}
}

// fn makes the entry of a function that may fail.
func fn(id, example string, k expr.Kernel) entry {
	return entry{id: id, example: example, impl: impl{kernel: k}}
}

// total makes the entry of a function that never fails and tolerates unspecified values.
func total(id, example string, k expr.Kernel) entry {
	return entry{id: id, example: example, impl: impl{kernel: k, total: true}}
}

func textOf(d types.Datum, f *types.Format) string {
	if d.Type.Kind() == types.KindString {
		switch d.Type.OID {
		case types.OIDText, types.OIDVarchar, types.OIDName, types.OIDUnknown, types.OIDBpchar:
			return d.Str
		}
	}
	return datumText(d, f)
}

// datumText returns the text form of a value that is not NULL.
func datumText(d types.Datum, f *types.Format) string {
	v := types.Vector{Type: d.Type}
	v.AppendDatum(d)
	return string(types.AppendText(nil, f, &v, 0))
}
