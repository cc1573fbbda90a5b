// Package planner turns parsed statements into physical plans.
//
//	sql.Query ── binder ──▶ logical tree ── rules ──▶ logical tree ── physical ──▶ plan.Plan
//	             names, types,  (node: columns         pushdown, pruning,   stream keys, watermarks,
//	             casts          have ids)              decorrelation        fragments, operator ids
//
// The same pipeline serves one-shot queries (PlanQuery), jobs (PlanStream) and the row sources of INSERT, UPDATE and DELETE.
//
// In the logical tree every column has an id that is unique in the statement; expr.Expr.Col holds that id. Moving an expression
// through the tree therefore needs no renumbering, and a subquery is correlated exactly when it uses an id that it does not produce.
// Only the physical step turns ids into positions.
package planner
