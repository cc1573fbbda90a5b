package pgerr

import (
	"fmt"
	"strings"
)

// NotOneOf is the error of a value that is none of these words.
type NotOneOf []string

// Error names the words.
func (e NotOneOf) Error() string { return "available values: " + strings.Join(e, ", ") }

// Option is the error for the option of a relation that has the value, in PostgreSQL's words (22023).
func (e NotOneOf) Option(name, value string) *Error {
	var list strings.Builder
	for i, w := range e {
		switch {
		case i == 0:
		case i < len(e)-1:
			list.WriteString(", ")
		case len(e) > 2:
			list.WriteString(", and ")
		default:
			list.WriteString(" and ")
		}
		fmt.Fprintf(&list, "%q", w)
	}
	return Newf(InvalidParameterValue, "invalid value for enum option %q: %s", name, value).WithDetail("Valid values are %s.", list.String())
}
