package functions

// impl holds the implementation of a Func: exactly the field of its kind is set.
type impl struct{}
