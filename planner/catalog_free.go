package planner

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
)

// catalogFree prepares a tree for jobs, which have no catalog: literals that name objects become the OIDs of these, other calls that need the
// catalog are refused.
func (b *binder) catalogFree(n *node) (err error) {
	literal := func(e *expr.Expr) *expr.Expr {
		if err != nil || !b.reg.NeedsCatalog(e) {
			return e
		}
		if len(e.Args) == 1 && e.Args[0].Kind == expr.Const && b.reg.NamesObject(e) {
			d, failed := expr.EvalConst(e, b.o.Env, b.reg)
			if failed != nil {
				err = pgerr.From(failed).At(e.Pos)
				return e
			}
			if d.Type = e.Type; !d.Null && functions.IsObject(d) {
				b.depend(uint64(d.Int))
			}
			c := expr.Literal(d)
			c.Pos = e.Pos
			return c
		}
		what := "a conversion to " + b.reg.TypeName(e.Type.OID)
		if f, ok := b.reg.ByID(e.Func); ok && f.Name != "" && f.Name[0] != '$' {
			what = "function " + f.Name + "()"
		} else if len(e.Args) > 0 {
			what = "a conversion from " + b.reg.TypeName(e.Args[0].Type.OID) + " to " + b.reg.TypeName(e.Type.OID)
		}
		err = pgerr.Newf(pgerr.FeatureNotSupported, "%s cannot be used in a materialized view: it reads the system catalogs", what).
			WithHint("Keep the OID in the view, and look its name up in queries over the view.").At(e.Pos)
		return e
	}
	n.walk(func(x *node) {
		x.eachExpr(func(e *expr.Expr) *expr.Expr { return e.Rewrite(literal) })
		for _, a := range x.aggs {
			f, ok := b.reg.ByID(a.fn)
			for _, c := range a.args {
				if err == nil && ok && b.reg.PrintsNames(f, b.md.typ(c)) {
					err = pgerr.Newf(pgerr.FeatureNotSupported, "function %s() cannot be used in a materialized view: it reads the system catalogs", f.Name).
						WithHint("Keep the OID in the view, and look its name up in queries over the view.")
				}
			}
		}
	})
	return err
}
