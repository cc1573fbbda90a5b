package functions

import (
	"strings"

	"github.com/streamdb/streamdb/types"
)

// literalFormat is what literals are parsed with when a statement is bound; literals that depend on the session are not parsed
// then (see inputIsStable).
var literalFormat = types.DefaultFormat()

// parseLiteral turns the text of an untyped literal into a constant.
func parseLiteral(s string, to types.Type, ctx CastContext) (types.Datum, error) {
	d, err := types.ParseText(literalFormat, types.T(to.OID), s)
	if err != nil {
		return d, err
	}
	if to.Mod >= 0 {
		if d, err = types.Coerce(d, to, ctx == Explicit); err != nil {
			return d, err
		}
	}
	d.Type = to
	return d, nil
}

// inputIsStable reports whether the text s as a value of the type depends on the session: its time zone, clock or catalogue.
func inputIsStable(oid types.OID, s string) bool {
	t := types.T(oid)
	for {
		e, ok := t.Elem()
		if !ok {
			break
		}
		t = e
	}
	switch t.OID {
	case types.OIDTimestamptz, types.OIDTimetz, types.OIDRegclass, types.OIDRegproc, types.OIDRegprocedure, types.OIDRegtype,
		types.OIDRegnamespace, types.OIDRegrole:
		return true
	case types.OIDDate, types.OIDTimestamp, types.OIDTime:
		s = strings.ToLower(s)
		for _, w := range []string{"now", "today", "tomorrow", "yesterday"} {
			if strings.Contains(s, w) {
				return true
			}
		}
	}
	return false
}
