package planner

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/sql/pgext"
	"github.com/streamdb/streamdb/types"
)

// sample puts TABLESAMPLE above the scan n of the only table in sc. Rows are chosen one by one, also by method SYSTEM: there are no blocks. With REPEATABLE a
// hash of the row's key decides, so that a row keeps its place in the sample, whatever comes and goes beside it; without it the dice do.
func (b *binder) sample(s *pgext.TableSample, n *node, sc *scope, pos int) (*node, error) {
	t := sc.tables[0]
	if t.rel == nil || t.rel.Kind == View || t.rel.Kind == System || t.rel.Kind == Source {
		return nil, pgerr.Newf(pgerr.SyntaxError, "TABLESAMPLE clause can only be applied to tables and materialized views").At(pos)
	}
	at := b.pos(s.Pos)
	if s.Method != "bernoulli" && s.Method != "system" {
		return nil, pgerr.Newf(pgerr.UndefinedObject, "tablesample method %s does not exist", s.Method).At(at)
	}
	if len(s.Args) != 1 {
		return nil, pgerr.Newf(pgerr.InvalidTablesampleArgument, "tablesample method %s requires 1 argument, not %d", s.Method, len(s.Args)).At(at)
	}
	x := &exprCtx{b: b, sc: &scope{}, ev: &env{}, clause: "TABLESAMPLE"}
	args := make([]*expr.Expr, 2)
	for i, e := range append(s.Args, s.Repeatable) {
		if e == nil {
			continue
		}
		c, err := x.bind(e)
		if err != nil {
			return nil, err
		}
		if c, err = b.castArg(c, types.Float8, "argument of TABLESAMPLE must be type real, not type %s"); err != nil {
			return nil, err
		}
		args[i] = b.fold(c)
	}
	if len(x.applies) > 0 {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "subqueries in TABLESAMPLE are not supported").WithHint("Use a constant or a parameter.").At(at)
	}
	if c := args[0]; c.Kind == expr.Const {
		if c.Const.Null {
			return nil, pgerr.Newf(pgerr.InvalidTablesampleArgument, "TABLESAMPLE parameter cannot be null")
		}
		if p := c.Const.Float; p != p || p < 0 || p > 100 {
			return nil, pgerr.Newf(pgerr.InvalidTablesampleArgument, "sample percentage must be between 0 and 100")
		}
	}
	if args[1] == nil {
		if b.stream {
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "TABLESAMPLE without REPEATABLE cannot be used in a materialized view: it chooses other rows each time").
				WithHint("Add REPEATABLE (seed): whether a row belongs to the sample then depends on its key alone.").At(at)
		}
		dice, err := b.call("random", nil, at)
		if err != nil {
			return nil, err
		}
		hundred := expr.Literal(types.Datum{Type: types.Float8, Float: 100})
		return filterNode(n, b.mustOp("<", b.mustOp("*", dice, hundred), args[0])), nil
	}
	if c := args[1]; c.Kind == expr.Const && c.Const.Null {
		return nil, pgerr.Newf(pgerr.InvalidTablesampleRepeat, "TABLESAMPLE REPEATABLE parameter cannot be null")
	}
	all := appendCols(t.cols, t.hidden)
	for _, k := range t.rel.Key {
		for _, c := range all {
			if c.id == n.out()[k] {
				args = append(args, b.md.ref(c.id))
			}
		}
	}
	cond := &expr.Expr{Kind: expr.Call, Type: types.Bool, Func: functions.SampleFunc, Args: args, Pos: at}
	return filterNode(n, cond), nil
}
