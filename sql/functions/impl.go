package functions

import "github.com/streamdb/streamdb/sql/expr"

// impl holds the implementation of a Func: exactly the field of its kind is set.
type impl struct {
	kernel                  expr.Kernel    // scalar functions
	set                     expr.SetKernel // set-returning functions
	filter                  expr.Filter    // fused selection of comparisons with a constant, optional
	intEquality, intModulus bool           // see expr.Impl
	catalog                 bool           // reads the catalog, which only sessions have
	total                   bool           // kernel may run over NULL and unselected rows: it never fails
	session                 bool           // depends on session settings although its volatility is immutable: only the planner, who has the session, folds it
	byOperator              bool           // aggregates and window functions: package exec implements them by ID
}
