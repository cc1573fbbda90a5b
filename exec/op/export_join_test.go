package op

// JoinRows returns how many rows a join has in memory.
func JoinRows(o Operator) int {
	st := &o.(*joinOp).st
	return st.used - len(st.free)
}
