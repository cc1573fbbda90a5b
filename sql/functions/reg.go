package functions

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// isReg reports whether values of the type are OIDs that print as names.
func isReg(oid types.OID) bool {
	switch oid {
	case types.OIDRegclass, types.OIDRegtype, types.OIDRegproc, types.OIDRegprocedure, types.OIDRegnamespace, types.OIDRegrole:
		return true
	}
	return false
}

// parseReg reads a name, or a number, as an object of the class that the reg type stands for.
func parseReg(env *expr.Env, t types.OID, s string) (uint32, error) {
	s = strings.TrimSpace(s)
	if s == "-" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		return uint32(n), nil
	}
	var cat expr.CatalogInfo
	var path []string
	if env != nil {
		cat, path = env.Catalog, env.Schemas
	}
	switch t {
	case types.OIDRegtype:
		if oid, ok := types.TypeByName(s); ok {
			return uint32(oid), nil
		}
		return 0, pgerr.Newf(pgerr.UndefinedObject, "type %q does not exist", s)
	case types.OIDRegproc, types.OIDRegprocedure:
		return parseRegproc(t, s)
	}
	if cat == nil {
		return 0, pgerr.Newf(pgerr.FeatureNotSupported, "names of catalog objects cannot be resolved here").WithHint("Use the object's OID.")
	}
	switch t {
	case types.OIDRegclass:
		if oid, ok := cat.RelationOID(s, path); ok {
			return oid, nil
		}
		return 0, pgerr.Newf(pgerr.UndefinedTable, "relation %q does not exist", foldName(s))
	case types.OIDRegnamespace:
		if oid, ok := cat.NamespaceOID(unquote(s)); ok {
			return oid, nil
		}
		return 0, pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", unquote(s))
	default:
		if oid, ok := cat.RoleOID(unquote(s)); ok {
			return oid, nil
		}
		return 0, pgerr.Newf(pgerr.UndefinedObject, "role %q does not exist", unquote(s))
	}
}

// foldName lowers an unquoted name and strips the quotes of quoted parts.
func foldName(s string) string {
	parts := strings.Split(s, ".")
	for i := range parts {
		parts[i] = unquote(parts[i])
	}
	return strings.Join(parts, ".")
}

func unquote(s string) string {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return strings.ReplaceAll(s[1:len(s)-1], `""`, `"`)
	}
	return strings.ToLower(s)
}

// recordedTable gives the recorded functions by OID and by name.
type recordedTable struct {
	byOID  map[uint32][]string
	byName map[string][][]string
}

// recordedFunctions is made on first use and only read.
var recordedFunctions = sync.OnceValue(func() *recordedTable {
	t := &recordedTable{byOID: map[uint32][]string{}, byName: map[string][][]string{}}
	for _, f := range rows(functionData) {
		t.byOID[parseOID(f[0])] = f
		t.byName[f[1]] = append(t.byName[f[1]], f)
	}
	return t
})

// parseRegproc finds the recorded OIDs of functions by name. Functions are immutable, so the recorded table is all there is.
func parseRegproc(t types.OID, s string) (uint32, error) {
	name := strings.TrimPrefix(foldName(s), "pg_catalog.")
	var found []uint32
	plain, list, signed := strings.Cut(strings.TrimSuffix(name, ")"), "(")
	var args []types.OID
	if signed = signed && t == types.OIDRegprocedure; signed && strings.TrimSpace(list) != "" {
		for _, a := range strings.Split(list, ",") {
			oid, ok := types.TypeByName(a)
			if !ok {
				return 0, pgerr.Newf(pgerr.UndefinedObject, "type %q does not exist", strings.TrimSpace(a))
			}
			args = append(args, oid)
		}
	}
	for _, f := range recordedFunctions().byName[plain] {
		ts, ok := parseTypes(f[2])
		if signed && ok && slices.Equal(ts, args) || !signed && t == types.OIDRegproc {
			found = append(found, parseOID(f[0]))
		}
	}
	switch len(found) {
	case 0:
		return 0, pgerr.Newf(pgerr.UndefinedFunction, "function %q does not exist", s)
	case 1:
		return found[0], nil
	}
	return 0, pgerr.Newf(pgerr.AmbiguousFunction, "more than one function named %q", s)
}

// regText prints an OID as the name of its object, as a number when there is no such object.
func regText(env *expr.Env, t types.OID, oid uint32) string {
	number := strconv.FormatUint(uint64(oid), 10)
	if oid == 0 {
		return "-"
	}
	var cat expr.CatalogInfo
	var path []string
	if env != nil {
		cat, path = env.Catalog, env.Schemas
	}
	switch t {
	case types.OIDRegtype:
		if _, ok := types.InfoOf(types.OID(oid)); ok {
			return types.T(types.OID(oid)).String()
		}
		return number
	case types.OIDRegproc, types.OIDRegprocedure:
		if f, ok := recordedFunctions().byOID[oid]; ok {
			if t == types.OIDRegproc {
				return f[1]
			}
			ts, _ := parseTypes(f[2])
			args := make([]types.Type, len(ts))
			for i, o := range ts {
				args[i] = types.T(o)
			}
			return strings.ReplaceAll(signature(f[1], args), ", ", ",")
		}
		return number
	}
	if cat == nil {
		return number
	}
	var name string
	var ok bool
	switch t {
	case types.OIDRegclass:
		name, ok = cat.RelationName(oid, path)
		if ok {
			return name
		}
	case types.OIDRegnamespace:
		name, ok = cat.NamespaceName(oid)
	case types.OIDRegrole:
		name, ok = cat.RoleName(oid)
	}
	if !ok {
		return number
	}
	return quoteIdent(name)
}
