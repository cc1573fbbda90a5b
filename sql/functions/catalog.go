package functions

import (
	"strings"

	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// NeedsCatalog reports whether a call reads the catalog, which only sessions have.
func (r *Registry) NeedsCatalog(e *expr.Expr) bool {
	if e.Kind != expr.Call {
		return false
	}
	id := strings.TrimPrefix(strings.TrimPrefix(e.Func, arrayCastPrefix), variadicPrefix)
	switch id {
	case castInput:
		return holdsReg(e.Type)
	case castOutput:
		return len(e.Args) == 1 && holdsReg(e.Args[0].Type)
	}
	f, ok := r.ByID(id)
	if !ok {
		return false
	}
	if f.catalog {
		return true
	}
	for _, a := range e.Args {
		if r.PrintsNames(f, a.Type) {
			return true
		}
	}
	return false
}

// NamesObject reports whether a call reads the text of an object's name.
func (r *Registry) NamesObject(e *expr.Expr) bool {
	id := strings.TrimPrefix(e.Func, arrayCastPrefix)
	return id == castInput || id == "regclass(text)" || strings.HasPrefix(id, "to_reg")
}

// PrintsNames reports whether f makes text of an argument that prints as a name: functions that print values are stable.
func (r *Registry) PrintsNames(f *Func, t types.Type) bool {
	return holdsReg(t) && f.Volatility != Immutable
}

// holdsReg reports whether values of the type, or elements of it, are OIDs that print as names.
func holdsReg(t types.Type) bool {
	if e, ok := t.Elem(); ok {
		t = e
	}
	return isReg(t.OID)
}

// firstUserOID is the least OID of what users make.
const firstUserOID = 16384

// IsObject reports whether a constant is the OID of a relation or function that a user made.
func IsObject(d types.Datum) bool {
	switch d.Type.OID {
	case types.OIDRegclass, types.OIDRegproc, types.OIDRegprocedure:
		return d.Int >= firstUserOID
	}
	return false
}
