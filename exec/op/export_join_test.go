package op

// JoinRows returns how many rows a join has in memory.
func JoinRows(o Operator) int {
	return o.(*joinOp).st.slab.live()
}
