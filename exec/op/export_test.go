package op

// LowerOverLimits makes window functions work on few rows at a time, and returns what undoes it.
func LowerOverLimits(dirtyBytes, slice, follow, small, fill int) (restore func()) {
	old := [...]int{maxDirtyBytes, overSliceRows, overFollowRows, overSmallRows, overFillRows}
	set := func(v [5]int) {
		maxDirtyBytes, overSliceRows, overFollowRows, overSmallRows, overFillRows = v[0], v[1], v[2], v[3], v[4]
	}
	set([5]int{dirtyBytes, slice, follow, small, fill})
	return func() { set(old) }
}

// OverWork returns how many rows an operator of window functions has loaded and how many of these it has computed.
func OverWork(o Operator) (loaded, computed int) {
	w := o.(*overOp).work
	return w.loaded, w.computed
}

// LowerOrderLimits makes joins keep few rows in order, in small blocks, and returns what undoes it.
func LowerOrderLimits(chain, block int) (restore func()) {
	oldChain, oldBlock := orderedChain, orderBlockRows
	orderedChain, orderBlockRows = uint32(chain), block
	return func() { orderedChain, orderBlockRows = oldChain, oldBlock }
}

// RecursionFed returns how many rows of inputs and working tables a recursion that is kept up to date has been fed.
func RecursionFed(o Operator) int64 { return o.(*recomputeOp).live.fed }
