package planner

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// orderedSet knows the aggregates that cannot do without WITHIN GROUP.
func orderedSet(name string) bool {
	switch name {
	case "percentile_cont", "percentile_disc", "mode":
		return true
	}
	return false
}

// hypothetical knows the aggregates that rank a row which is not there; without WITHIN GROUP they are window functions.
func hypothetical(name string) bool {
	switch name {
	case "rank", "dense_rank", "percent_rank", "cume_dist":
		return true
	}
	return false
}

// withinGroup checks that WITHIN GROUP stands where it must and nowhere else.
func (x *exprCtx) withinGroup(e *pgext.Call, args []*expr.Expr, pos int) error {
	set := orderedSet(e.Name) || hypothetical(e.Name)
	switch {
	case set && len(e.WithinGroup) == 0:
		if _, err := x.b.reg.ResolveFunction(e.Name, argTypes(args)); err != nil {
			return pgerr.From(err).At(pos)
		}
		return pgerr.Newf(pgerr.WrongObjectType, "WITHIN GROUP is required for ordered-set aggregate %s", e.Name).At(pos)
	case !set && len(e.WithinGroup) > 0:
		if err := x.resolvesWithin(e, args, pos); err != nil {
			return err
		}
		return pgerr.Newf(pgerr.WrongObjectType, "%s is not an ordered-set aggregate, so it cannot have WITHIN GROUP", e.Name).At(pos)
	case !set:
		return nil
	case e.Distinct:
		return pgerr.Newf(pgerr.SyntaxError, "cannot use DISTINCT with WITHIN GROUP").At(pos)
	case e.Variadic:
		return pgerr.Newf(pgerr.SyntaxError, "cannot use VARIADIC with WITHIN GROUP").At(pos)
	case e.Name == "mode" && (len(args) > 0 || len(e.WithinGroup) > 1) || orderedSet(e.Name) && e.Name != "mode" && (len(args) != 1 || len(e.WithinGroup) != 1):
		if err := x.resolvesWithin(e, args, pos); err != nil {
			return err
		}
		return pgerr.Newf(pgerr.UndefinedFunction, "function %s does not exist", e.Name).At(pos)
	}
	return nil
}

// resolvesWithin looks for a function of the arguments followed by the keys of WITHIN GROUP.
func (x *exprCtx) resolvesWithin(e *pgext.Call, args []*expr.Expr, pos int) error {
	ts := argTypes(args)
	for _, k := range e.WithinGroup {
		c, err := x.bind(k.X)
		if err != nil {
			return err
		}
		ts = append(ts, c.Type)
	}
	if _, err := x.b.reg.ResolveFunction(e.Name, ts); err != nil {
		return pgerr.From(err).At(pos)
	}
	return nil
}

// hypotheticalArgs gives each direct argument and its key of WITHIN GROUP one type.
func (x *exprCtx) hypotheticalArgs(e *pgext.Call, args []*expr.Expr, direct, pos int) error {
	if direct != len(args)-direct {
		_, err := x.b.reg.ResolveFunction(e.Name+"_", argTypes(args))
		pe := pgerr.Newf(pgerr.UndefinedFunction, "function %s does not exist", e.Name)
		if err != nil {
			pe = pgerr.From(err)
			pe.Message = "function " + e.Name + pe.Message[len("function ")+len(e.Name)+1:]
		}
		pe.Hint = ""
		return pe.WithHint("To use the hypothetical-set aggregate %s, the number of hypothetical direct arguments (here %d) must match the number of ordering columns (here %d).",
			e.Name, direct, len(args)-direct).At(pos)
	}
	for i := range direct {
		pair := []*expr.Expr{args[i], args[direct+i]}
		if _, err := x.b.unify("WITHIN GROUP", pair); err != nil {
			return err
		}
		args[i], args[direct+i] = pair[0], pair[1]
	}
	return nil
}

// directArgs folds the arguments before WITHIN GROUP: one value for all groups.
func (x *exprCtx) directArgs(args []*expr.Expr) error {
	for i, a := range args {
		used := map[int]bool{}
		a.Columns(used)
		if len(used) > 0 || x.b.volatileExpr(a) {
			return pgerr.Newf(pgerr.FeatureNotSupported, "direct arguments of an ordered-set aggregate must be constants").
				WithHint("Compute one aggregate per value, for example with FILTER, or join with the values.").At(leftmost(a))
		}
		if a.Type.OID == types.OIDUnknown {
			c, err := x.b.known(a)
			if err != nil {
				return err
			}
			a = c
		}
		args[i] = x.b.fold(a)
	}
	return nil
}
