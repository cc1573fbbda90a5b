package functions

import (
	"strings"

	"github.com/streamdb/streamdb/types"
)

// literalFormat is what literals are parsed with when a statement is bound; literals that depend on the session are not parsed
// then (see inputIsStable).
var literalFormat = types.DefaultFormat()

// parseLiteral turns the text of an untyped literal into a constant, without the modifier of to except that the fields of an interval
// decide what its text means.
func parseLiteral(s string, to types.Type) (types.Datum, error) {
	if to.OID == types.OIDJSONPath {
		return parsePath(s)
	}
	t := types.T(to.OID)
	if to.OID == types.OIDInterval {
		t = to
	}
	d, err := types.ParseText(literalFormat, t, s)
	d.Type = types.T(to.OID)
	return d, err
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
		types.OIDRegnamespace, types.OIDRegrole, types.OIDRegoper, types.OIDRegoperator, types.OIDRegcollation, types.OIDAclItem:
		return true
	case types.OIDDate, types.OIDTimestamp, types.OIDTime:
		return readsClock(s) || t.OID != types.OIDTime && (types.ReadsDateOrder(s) || t.OID != oid)
	}
	return false
}

// readsClock reports whether a date's text depends on the time it is read.
func readsClock(s string) bool {
	s = strings.ToLower(s)
	for _, w := range [...]string{"now", "today", "tomorrow", "yesterday"} {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}

// checkLiteral finds errors in the text of a session-dependent literal that every session has.
func checkLiteral(oid types.OID, s string) error {
	if isReg(oid) || readsClock(s) || types.T(oid).IsArray() {
		return nil
	}
	_, err := types.ParseText(literalFormat, types.T(oid), s)
	for order := types.OrderDMY; err != nil && order <= types.OrderYMD; order++ {
		f := *literalFormat
		f.DateOrder = order
		if _, other := types.ParseText(&f, types.T(oid), s); other == nil {
			return nil
		}
	}
	return err
}
