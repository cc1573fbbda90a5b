// Package invariants switches on checks that are too dear for the field: build with `-tags invariants`, or with the race detector. Code guards
// them with Enabled, a constant, so that they compile away otherwise.
package invariants

import "fmt"

// Violation is what a broken invariant panics with. Whoever turns panics into errors lets it pass: a job that starts again would hide it.
type Violation string

// Failf panics with a Violation.
func Failf(format string, args ...any) { panic(Violation(fmt.Sprintf(format, args...))) }

// Pass panics again with a recovered value that is a Violation.
func Pass(recovered any) {
	if v, ok := recovered.(Violation); ok {
		panic(v)
	}
}
