package functions

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/types"
)

// isReg reports whether values of the type are OIDs that print as names.
func isReg(oid types.OID) bool {
	switch oid {
	case types.OIDRegclass, types.OIDRegtype, types.OIDRegproc, types.OIDRegprocedure, types.OIDRegnamespace, types.OIDRegrole,
		types.OIDRegoper, types.OIDRegoperator, types.OIDRegcollation:
		return true
	}
	return false
}

// Names reads and prints what needs the catalogue; it is types.Names over one state of it.
type Names struct {
	Catalog expr.CatalogInfo
	Path    []string
}

// EnumValue implements types.Names.
func (n Names) EnumValue(enum types.OID, label string) (string, error) {
	if n.Catalog != nil {
		if v, ok := n.Catalog.EnumValue(uint32(enum), label); ok {
			return v, nil
		}
	}
	name := types.T(enum).String()
	if n.Catalog != nil {
		if s, ok := n.Catalog.TypeName(uint32(enum), n.Path); ok {
			name = s
		}
	}
	return "", types.ErrEnumInput(name, label)
}

// RegText implements types.Names.
func (n Names) RegText(t types.OID, value uint32) string { return regName(n.Catalog, n.Path, t, value) }

// ParseReg implements types.Names.
func (n Names) ParseReg(t types.OID, text string) (uint32, error) {
	return findReg(n.Catalog, n.Path, t, text)
}

// parseReg reads a name, or a number, as an object of the class that the reg type stands for.
func parseReg(env *expr.Env, t types.OID, s string) (uint32, error) {
	if env == nil {
		return findReg(nil, nil, t, s)
	}
	return findReg(env.Catalog, env.Schemas, t, s)
}

// relationNamed is parseReg of a relation, except that digits are a name.
func relationNamed(env *expr.Env, s string) (uint32, error) {
	if strings.Trim(s, "0123456789") == "" && s != "" {
		return 0, pgerr.Newf(pgerr.UndefinedTable, "relation %q does not exist", s)
	}
	return parseReg(env, types.OIDRegclass, s)
}

func findReg(cat expr.CatalogInfo, path []string, t types.OID, s string) (uint32, error) {
	if s == "-" && t != types.OIDRegoper && t != types.OIDRegoperator {
		return 0, nil
	}
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		if n != uint64(uint32(n)) {
			return 0, pgerr.Newf(pgerr.NumericValueOutOfRange, "value \"%s\" is out of range for type oid", s)
		}
		return uint32(n), nil
	}
	switch t {
	case types.OIDRegtype:
		if strings.TrimSpace(s) == "" {
			return 0, pgerr.Newf(pgerr.SyntaxError, "invalid type name %q", s)
		}
		if oid, ok := types.TypeByName(s); ok {
			return uint32(oid), nil
		}
		if cat != nil {
			return cat.TypeOID(s, path)
		}
		return 0, pgerr.Newf(pgerr.UndefinedObject, "type %q does not exist", s)
	case types.OIDRegproc, types.OIDRegprocedure:
		return parseRegproc(cat, path, t, s)
	case types.OIDRegoper, types.OIDRegoperator:
		return parseRegoper(cat, path, t, s)
	}
	parts, ok := SplitName(s)
	if !ok || len(parts) != 1 && (t == types.OIDRegnamespace || t == types.OIDRegrole) {
		return 0, pgerr.Newf(pgerr.InvalidName, "invalid name syntax")
	}
	if t == types.OIDRegcollation {
		return parseRegcollation(parts)
	}
	if cat == nil {
		return 0, pgerr.Newf(pgerr.FeatureNotSupported, "names of catalog objects cannot be resolved here").WithHint("Use the object's OID.")
	}
	switch t {
	case types.OIDRegclass:
		if len(parts) > maxNameParts {
			return 0, pgerr.Newf(pgerr.SyntaxError, "improper relation name (too many dotted names): %s", strings.Join(parts, "."))
		}
		if len(parts) == maxNameParts && parts[0] != lex.DatabaseName {
			return 0, pgerr.Newf(pgerr.FeatureNotSupported, "cross-database references are not implemented: \"%s\"", strings.Join(parts, "."))
		}
		if oid, ok := cat.RelationOID(s, path); ok {
			return oid, nil
		}
		if len(parts) > 1 {
			if _, ok := cat.NamespaceOID(parts[len(parts)-2]); !ok {
				return 0, pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", parts[len(parts)-2])
			}
		}
		return 0, pgerr.Newf(pgerr.UndefinedTable, "relation %q does not exist", strings.Join(parts, "."))
	case types.OIDRegnamespace:
		if oid, ok := cat.NamespaceOID(parts[0]); ok {
			return oid, nil
		}
		return 0, pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", parts[0])
	default:
		if oid, ok := cat.RoleOID(parts[0]); ok {
			return oid, nil
		}
		return 0, pgerr.Newf(pgerr.UndefinedObject, "role %q does not exist", parts[0])
	}
}

// maxNameParts is catalog.schema.relation.
const maxNameParts = 3

// Collations are PostgreSQL's.
var collations = map[string]uint32{"default": 100, "C": 950, "POSIX": 951, "ucs_basic": 12321}

func parseRegcollation(parts []string) (uint32, error) {
	name := parts[len(parts)-1]
	if oid, ok := collations[name]; ok && (len(parts) == 1 || parts[0] == "pg_catalog") {
		return oid, nil
	}
	return 0, pgerr.Newf(pgerr.UndefinedObject, "collation %q for encoding \"UTF8\" does not exist", strings.Join(parts, "."))
}

// SplitName takes a possibly qualified, possibly quoted name apart; unquoted parts are folded to lower case.
func SplitName(s string) ([]string, bool) {
	var parts []string
	s = strings.TrimSpace(s)
	for {
		var part string
		if strings.HasPrefix(s, `"`) {
			end := 1
			for ; ; end++ {
				if end >= len(s) {
					return nil, false
				}
				if s[end] != '"' {
					continue
				}
				if end+1 < len(s) && s[end+1] == '"' {
					end++
					continue
				}
				break
			}
			part, s = strings.ReplaceAll(s[1:end], `""`, `"`), strings.TrimLeft(s[end+1:], " \t\n")
		} else {
			end := strings.IndexByte(s, '.')
			if end < 0 {
				end = len(s)
			}
			part, s = strings.ToLower(strings.TrimSpace(s[:end])), s[end:]
			if strings.ContainsAny(part, "\" \t\n") {
				return nil, false
			}
		}
		if part == "" {
			return nil, false
		}
		parts = append(parts, part)
		if s == "" {
			return parts, true
		}
		if s[0] != '.' {
			return nil, false
		}
		s = strings.TrimLeft(s[1:], " \t\n")
	}
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

// parseRegproc finds functions by name: recorded ones, and those of users.
func parseRegproc(cat expr.CatalogInfo, path []string, t types.OID, s string) (uint32, error) {
	plain, list, signed := strings.Cut(s, "(")
	if t == types.OIDRegproc {
		plain, signed = s, false
	} else if !signed {
		return 0, pgerr.Newf(pgerr.InvalidTextRepresentation, "expected a left parenthesis")
	}
	parts, ok := SplitName(plain)
	if !ok {
		return 0, pgerr.Newf(pgerr.InvalidName, "invalid name syntax")
	}
	var args []types.OID
	if signed {
		list, ok = strings.CutSuffix(strings.TrimSpace(list), ")")
		if !ok {
			return 0, pgerr.Newf(pgerr.InvalidTextRepresentation, "expected a right parenthesis")
		}
		var err error
		if args, err = typeList(cat, path, list); err != nil {
			return 0, err
		}
	}
	var found []uint32
	if len(parts) == 1 || len(parts) == 2 && parts[0] == "pg_catalog" {
		for _, f := range recordedFunctions().byName[parts[len(parts)-1]] {
			ts, ok := parseTypes(f[2])
			if !signed || ok && slices.Equal(ts, args) {
				found = append(found, parseOID(f[0]))
			}
		}
	}
	if len(parts) > maxNameParts {
		return 0, pgerr.Newf(pgerr.SyntaxError, "improper qualified name (too many dotted names): %s", strings.Join(parts, "."))
	}
	if cat != nil {
		schema, name := "", parts[len(parts)-1]
		if len(parts) > 1 {
			schema = parts[len(parts)-2]
			if _, ok := cat.NamespaceOID(schema); !ok {
				return 0, pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", schema)
			}
		}
		for _, oid := range cat.FunctionsNamed(schema, name, path) {
			if _, _, ts, ok := cat.Function(oid); ok && (!signed || slices.Equal(ts, args)) {
				found = append(found, oid)
			}
		}
		if signed && len(found) > 1 {
			found = found[:1] // pg_catalog is searched first
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

// typeList reads the types of a signature; NONE, for the missing operand of an operator, is 0.
func typeList(cat expr.CatalogInfo, path []string, list string) ([]types.OID, error) {
	if strings.TrimSpace(list) == "" {
		return nil, nil
	}
	var out []types.OID
	for _, a := range strings.Split(list, ",") {
		if strings.EqualFold(strings.TrimSpace(a), "none") {
			out = append(out, 0)
			continue
		}
		oid, err := findReg(cat, path, types.OIDRegtype, strings.TrimSpace(a))
		if err != nil {
			return nil, err
		}
		out = append(out, types.OID(oid))
	}
	return out, nil
}

// recordedOperators gives the recorded operators: OID, symbol and operands.
var recordedOperators = sync.OnceValue(func() []*Operator {
	var out []*Operator
	for _, f := range rows(operatorData) {
		o := &Operator{Symbol: f[0], OID: parseOID(f[5])}
		if f[1] != "" {
			o.Left, _ = typeOID(f[1])
		}
		o.Right, _ = typeOID(f[2])
		out = append(out, o)
	}
	return out
})

func parseRegoper(cat expr.CatalogInfo, path []string, t types.OID, s string) (uint32, error) {
	symbol, list, signed := strings.Cut(s, "(")
	if t == types.OIDRegoper {
		symbol = s
	} else if !signed {
		return 0, pgerr.Newf(pgerr.InvalidTextRepresentation, "expected a left parenthesis")
	}
	var args []types.OID
	if t == types.OIDRegoperator {
		list, ok := strings.CutSuffix(strings.TrimSpace(list), ")")
		if !ok {
			return 0, pgerr.Newf(pgerr.InvalidTextRepresentation, "expected a right parenthesis")
		}
		var err error
		if args, err = typeList(cat, path, list); err != nil {
			return 0, err
		}
		switch {
		case len(args) == 1:
			return 0, pgerr.Newf(pgerr.UndefinedParameter, "missing argument").WithHint("Use NONE to denote the missing argument of a unary operator.")
		case len(args) != 2:
			return 0, pgerr.Newf(pgerr.TooManyArguments, "too many arguments").WithHint("Provide two argument types for operator.")
		}
	}
	name := strings.TrimPrefix(strings.TrimSpace(symbol), "pg_catalog.")
	var found []uint32
	for _, o := range recordedOperators() {
		if o.Symbol == name && (args == nil || o.Left == args[0] && o.Right == args[1]) {
			found = append(found, o.OID)
		}
	}
	switch len(found) {
	case 0:
		return 0, pgerr.Newf(pgerr.UndefinedFunction, "operator does not exist: %s", s)
	case 1:
		return found[0], nil
	}
	return 0, pgerr.Newf(pgerr.AmbiguousFunction, "more than one operator named %s", s)
}

// regText prints an OID as the name of its object, as a number when there is no such object.
func regText(env *expr.Env, t types.OID, oid uint32) string {
	if env == nil {
		return regName(nil, nil, t, oid)
	}
	return regName(env.Catalog, env.Schemas, t, oid)
}

func regName(cat expr.CatalogInfo, path []string, t types.OID, oid uint32) string {
	number := strconv.FormatUint(uint64(oid), 10)
	switch {
	case oid == 0 && (t == types.OIDRegoper || t == types.OIDRegoperator):
		return number
	case oid == 0:
		return "-"
	}
	switch t {
	case types.OIDRegtype:
		return typeName(cat, path, oid)
	case types.OIDRegproc, types.OIDRegprocedure:
		f, ok := recordedFunctions().byOID[oid]
		if !ok {
			return userFunctionName(cat, path, t, oid)
		}
		if t == types.OIDRegproc {
			others := 0
			if cat != nil {
				others = len(cat.FunctionsNamed("", f[1], path))
			}
			if len(recordedFunctions().byName[f[1]])+others > 1 { // the name alone would not find it
				return "pg_catalog." + quoteIdent(f[1])
			}
			return quoteIdent(f[1])
		}
		ts, _ := parseTypes(f[2])
		args := make([]types.Type, len(ts))
		for i, o := range ts {
			args[i] = types.T(o)
		}
		return strings.ReplaceAll((&Registry{}).signature(quoteIdent(f[1]), args), ", ", ",")
	case types.OIDRegoper, types.OIDRegoperator:
		for _, o := range recordedOperators() {
			if o.OID == oid {
				return operatorName(o, t == types.OIDRegoperator)
			}
		}
		return number
	case types.OIDRegcollation:
		for name, c := range collations {
			if c == oid {
				return quoteIdent(name)
			}
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

// userFunctionName prints a function of a user as a regproc or regprocedure, as a number when there is none.
func userFunctionName(cat expr.CatalogInfo, path []string, t types.OID, oid uint32) string {
	var schema, name string
	var args []types.OID
	ok := false
	if cat != nil {
		schema, name, args, ok = cat.Function(oid)
	}
	if !ok {
		return strconv.FormatUint(uint64(oid), 10)
	}
	visible := cat.FunctionsNamed("", name, path)
	title := quoteIdent(name)
	if !slices.Contains(visible, oid) || builtinHides(name, args) || t == types.OIDRegproc && len(visible)+len(recordedFunctions().byName[name]) > 1 {
		title = quoteIdent(schema) + "." + title
	}
	if t == types.OIDRegproc {
		return title
	}
	list := make([]string, len(args))
	for i, a := range args {
		list[i] = typeName(cat, path, uint32(a))
	}
	return title + "(" + strings.Join(list, ",") + ")"
}

// builtinHides reports whether a builtin function has the signature: pg_catalog is searched before the schemas of users.
func builtinHides(name string, args []types.OID) bool {
	return slices.ContainsFunc(recordedFunctions().byName[name], func(f []string) bool {
		ts, ok := parseTypes(f[2])
		return ok && slices.Equal(ts, args)
	})
}

func operatorName(o *Operator, signed bool) string {
	if !signed {
		n := 0
		for _, p := range recordedOperators() {
			if p.Symbol == o.Symbol {
				n++
			}
		}
		if n > 1 {
			return "pg_catalog." + o.Symbol
		}
		return o.Symbol
	}
	left := "NONE"
	if o.Left != 0 {
		left = types.T(o.Left).String()
	}
	return o.Symbol + "(" + left + "," + types.T(o.Right).String() + ")"
}

// typeName prints the OID of a type as format_type does, as a number when there is no such type.
func typeName(cat expr.CatalogInfo, path []string, oid uint32) string {
	t := types.T(types.OID(oid))
	if _, ok := types.InfoOf(t.OID); ok {
		return t.String()
	}
	if cat != nil {
		if name, ok := cat.TypeName(oid, path); ok {
			return name
		}
	}
	return strconv.FormatUint(uint64(oid), 10)
}

// FindProcedure finds the OID of a function by its name and the types of its arguments, as regprocedure does.
func FindProcedure(env *expr.Env, text string) (uint32, error) {
	return parseReg(env, types.OIDRegprocedure, text)
}
