package functions

import (
	"github.com/streamdb/streamdb/internal/pgerr"
)

// limitFunctions lists the checks of row counts that subqueries compute.
func limitFunctions() []entry {
	check := func(id, what string, code pgerr.Code) entry {
		return entry{id: id, sig: "int8 f t i", doc: "row count of " + what + ", which must not be negative", impl: impl{kernel: map1e(intSlot, intSlot, func(n int64) (int64, error) {
			if n < 0 {
				return 0, pgerr.Newf(code, "%s must not be negative", what)
			}
			return n, nil
		})}}
	}
	return []entry{check("$limit(int8)", "LIMIT", pgerr.InvalidRowCountInLimit), check("$offset(int8)", "OFFSET", pgerr.InvalidRowCountInOffset)}
}
