package functions

import "github.com/streamdb/streamdb/types"

func isPolymorphic(oid types.OID) bool {
	switch oid {
	case types.OIDAnyElement, types.OIDAnyArray, types.OIDAnyNonArray, types.OIDAnyEnum, types.OIDAnyCompatible, types.OIDAnyCompatibleArr:
		return true
	}
	return false
}

// polymorphic settles the polymorphic parameter types of a call: it returns the type each argument is cast to and the type that
// result (0 for don't care) stands for. Parameters of type "any" take the argument's own type, text for an untyped literal.
func (r *Registry) polymorphic(params, in []types.OID, result types.OID) ([]types.OID, types.OID, bool) {
	out := append([]types.OID(nil), params...)
	var elem, array types.OID
	var compat []types.OID
	haveElem, haveCompat, compatArray := false, false, false
	for i, p := range params {
		t := in[i]
		switch p {
		case types.OIDAny:
			if t != types.OIDUnknown {
				out[i] = t
			}
		case types.OIDAnyElement, types.OIDAnyNonArray, types.OIDAnyEnum:
			haveElem = true
			if t == types.OIDUnknown {
				continue
			}
			if elem != 0 && elem != t || p == types.OIDAnyNonArray && types.T(t).IsArray() || p == types.OIDAnyEnum && !types.T(t).IsEnum() {
				return nil, 0, false
			}
			elem = t
		case types.OIDAnyArray:
			haveElem = true
			if t == types.OIDUnknown {
				continue
			}
			if !types.T(t).IsArray() || array != 0 && array != t {
				return nil, 0, false
			}
			array = t
		case types.OIDAnyCompatible:
			haveCompat = true
			compat = append(compat, t)
		case types.OIDAnyCompatibleArr:
			haveCompat, compatArray = true, true
			if t == types.OIDUnknown {
				compat = append(compat, t)
				continue
			}
			e, ok := types.T(t).Elem()
			if !ok {
				return nil, 0, false
			}
			compat = append(compat, e.OID)
		}
	}
	if array != 0 {
		e, _ := types.T(array).Elem()
		if elem != 0 && elem != e.OID {
			return nil, 0, false
		}
		elem = e.OID
	}
	if haveElem && elem == 0 && result != 0 {
		return nil, 0, false
	}
	if array == 0 && elem != 0 {
		array = types.ArrayOf(elem)
	}
	common := types.OIDText
	if haveCompat {
		var ok bool
		if common, ok = r.commonOID(compat); !ok || compatArray && types.ArrayOf(common) == 0 {
			return nil, 0, false
		}
	}
	settle := func(p types.OID) types.OID {
		switch p {
		case types.OIDAnyElement, types.OIDAnyNonArray, types.OIDAnyEnum:
			return elem
		case types.OIDAnyArray:
			return array
		case types.OIDAnyCompatible:
			return common
		case types.OIDAnyCompatibleArr:
			return types.ArrayOf(common)
		}
		return p
	}
	for i, p := range params {
		if isPolymorphic(p) {
			out[i] = settle(p)
		}
	}
	return out, settle(result), true
}
