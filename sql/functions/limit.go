package functions

import (
	"github.com/streamdb/streamdb/internal/pgerr"
)

// limitFunctions lists the checks of row counts.
func limitFunctions() []entry {
	check := func(id, what string, code pgerr.Code) entry {
		return entry{id: id, sig: "int8 f t i", doc: "row count of " + what + ", which must not be negative", impl: impl{kernel: map1e(intSlot, intSlot, func(n int64) (int64, error) {
			if n < 0 {
				return 0, pgerr.Newf(code, "%s must not be negative", what)
			}
			return n, nil
		})}}
	}
	single := entry{id: "$single(int8)", sig: "bool f t i", doc: "whether a subquery may be a value by its number of rows; error 21000 when there are several", impl: impl{kernel: map1e(intSlot, boolSlot, func(n int64) (bool, error) {
		if n > 1 {
			return false, pgerr.Newf(pgerr.CardinalityViolation, "more than one row returned by a subquery used as an expression")
		}
		return true, nil
	})}}
	return []entry{single, check("$limit(int8)", "LIMIT", pgerr.InvalidRowCountInLimit), check("$offset(int8)", "OFFSET", pgerr.InvalidRowCountInOffset)}
}
