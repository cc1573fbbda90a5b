package types

import "math/big"

// NumericForm tells finite numbers from the special values.
type NumericForm uint8

// The forms of a numeric. The order is not the sort order: NaN sorts above everything.
const (
	Finite NumericForm = iota
	NaN
	PosInf
	NegInf
)

// Numeric is PostgreSQL's numeric: coefficient × 10^-Scale, Scale being the display scale (1.10 has Scale 2).
// The coefficient is Coef while Big is nil; a Big that is set is immutable and outside int64.
type Numeric struct {
	Coef  int64
	Big   *big.Int
	Scale int16
	Form  NumericForm
}
