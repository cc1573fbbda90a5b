package types

import (
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// Info describes a builtin type as pg_type does. Infos are read-only and shared.
type Info struct {
	OID       OID
	Name      string // pg_type.typname
	SQLName   string // format_type without modifier
	Len       int16  // typlen: -1 variable, -2 C string
	Array     OID    // type of arrays of this type, 0 when there is none
	Elem      OID    // typelem
	Category  byte   // typcategory
	Preferred bool   // typispreferred
	ByVal     bool   // typbyval
	TypType   byte   // typtype: b base, p pseudo
}

// baseInfos is the part of pg_type.dat that streamdb knows; array types are derived from it.
var baseInfos = [...]Info{
	{OIDBool, "bool", "boolean", 1, 1000, 0, 'B', true, true, 'b'},
	{OIDBytea, "bytea", "bytea", -1, 1001, 0, 'U', false, false, 'b'},
	{OIDChar, "char", `"char"`, 1, 1002, 0, 'Z', false, true, 'b'},
	{OIDName, "name", "name", 64, 1003, 18, 'S', false, false, 'b'},
	{OIDInt8, "int8", "bigint", 8, 1016, 0, 'N', false, true, 'b'},
	{OIDInt2, "int2", "smallint", 2, 1005, 0, 'N', false, true, 'b'},
	{OIDInt2Vector, "int2vector", "int2vector", -1, 1006, 21, 'A', false, false, 'b'},
	{OIDInt4, "int4", "integer", 4, 1007, 0, 'N', false, true, 'b'},
	{OIDRegproc, "regproc", "regproc", 4, 1008, 0, 'N', false, true, 'b'},
	{OIDText, "text", "text", -1, 1009, 0, 'S', true, false, 'b'},
	{OIDOid, "oid", "oid", 4, 1028, 0, 'N', true, true, 'b'},
	{OIDXid, "xid", "xid", 4, 1011, 0, 'U', false, true, 'b'},
	{OIDOidVector, "oidvector", "oidvector", -1, 1013, 26, 'A', false, false, 'b'},
	{OIDJSON, "json", "json", -1, 199, 0, 'U', false, false, 'b'},
	{OIDNodeTree, "pg_node_tree", "pg_node_tree", -1, 0, 0, 'Z', false, false, 'b'},
	{OIDFloat4, "float4", "real", 4, 1021, 0, 'N', false, true, 'b'},
	{OIDFloat8, "float8", "double precision", 8, 1022, 0, 'N', true, true, 'b'},
	{OIDUnknown, "unknown", "unknown", -2, 0, 0, 'X', false, false, 'p'},
	{OIDAclItem, "aclitem", "aclitem", 12, 1034, 0, 'U', false, false, 'b'},
	{OIDBpchar, "bpchar", "character", -1, 1014, 0, 'S', false, false, 'b'},
	{OIDVarchar, "varchar", "character varying", -1, 1015, 0, 'S', false, false, 'b'},
	{OIDDate, "date", "date", 4, 1182, 0, 'D', false, true, 'b'},
	{OIDTime, "time", "time without time zone", 8, 1183, 0, 'D', false, true, 'b'},
	{OIDTimestamp, "timestamp", "timestamp without time zone", 8, 1115, 0, 'D', false, true, 'b'},
	{OIDTimestamptz, "timestamptz", "timestamp with time zone", 8, 1185, 0, 'D', true, true, 'b'},
	{OIDInterval, "interval", "interval", 16, 1187, 0, 'T', true, false, 'b'},
	{OIDTimetz, "timetz", "time with time zone", 12, 1270, 0, 'D', false, false, 'b'},
	{OIDNumeric, "numeric", "numeric", -1, 1231, 0, 'N', false, false, 'b'},
	{OIDRegprocedure, "regprocedure", "regprocedure", 4, 2207, 0, 'N', false, true, 'b'},
	{OIDRegoper, "regoper", "regoper", 4, 2208, 0, 'N', false, true, 'b'},
	{OIDRegoperator, "regoperator", "regoperator", 4, 2209, 0, 'N', false, true, 'b'},
	{OIDRegcollation, "regcollation", "regcollation", 4, 4192, 0, 'N', false, true, 'b'},
	{OIDRegclass, "regclass", "regclass", 4, 2210, 0, 'N', false, true, 'b'},
	{OIDRegtype, "regtype", "regtype", 4, 2211, 0, 'N', false, true, 'b'},
	{OIDRegnamespace, "regnamespace", "regnamespace", 4, 4090, 0, 'N', false, true, 'b'},
	{OIDRegrole, "regrole", "regrole", 4, 4097, 0, 'N', false, true, 'b'},
	{OIDUUID, "uuid", "uuid", 16, 2951, 0, 'U', false, false, 'b'},
	{OIDJSONB, "jsonb", "jsonb", -1, 3807, 0, 'U', false, false, 'b'},
	{OIDJSONPath, "jsonpath", "jsonpath", -1, 4073, 0, 'U', false, false, 'b'},
	{OIDRecord, "record", "record", -1, 2287, 0, 'P', false, false, 'p'},
	{OIDCstring, "cstring", "cstring", -2, 1263, 0, 'P', false, false, 'p'},
	{OIDVoid, "void", "void", 4, 0, 0, 'P', false, true, 'p'},
	{OIDTrigger, "trigger", "trigger", 4, 0, 0, 'P', false, true, 'p'},
	{OIDInternal, "internal", "internal", 8, 0, 0, 'P', false, true, 'p'},
	{OIDAny, "any", `"any"`, 4, 0, 0, 'P', false, true, 'p'},
	{OIDAnyArray, "anyarray", "anyarray", -1, 0, 0, 'P', false, false, 'p'},
	{OIDAnyElement, "anyelement", "anyelement", 4, 0, 0, 'P', false, true, 'p'},
	{OIDAnyNonArray, "anynonarray", "anynonarray", 4, 0, 0, 'P', false, true, 'p'},
	{OIDAnyEnum, "anyenum", "anyenum", 4, 0, 0, 'P', false, true, 'p'},
	{OIDAnyCompatible, "anycompatible", "anycompatible", 4, 0, 0, 'P', false, true, 'p'},
	{OIDAnyCompatibleArr, "anycompatiblearray", "anycompatiblearray", -1, 0, 0, 'P', false, false, 'p'},
}

// typeTable holds the catalogue in its three access paths. It is built once and only read.
type typeTable struct {
	all    []*Info
	byOID  map[OID]*Info
	byName map[string]OID
}

var builtins = buildTypeTable()

// typeAliases are the SQL spellings beside typname; all in lower case with single blanks.
var typeAliases = map[string]OID{
	"boolean": OIDBool, "smallint": OIDInt2, "integer": OIDInt4, "int": OIDInt4, "bigint": OIDInt8,
	"real": OIDFloat4, "float": OIDFloat8, "double precision": OIDFloat8, "double": OIDFloat8, "decimal": OIDNumeric, "dec": OIDNumeric,
	"character varying": OIDVarchar, "char varying": OIDVarchar, "national character varying": OIDVarchar, "national char varying": OIDVarchar,
	"nchar varying": OIDVarchar, "character": OIDBpchar, "char": OIDBpchar, "national character": OIDBpchar, "national char": OIDBpchar,
	"nchar": OIDBpchar, `"char"`: OIDChar, "string": OIDText,
	"timestamp without time zone": OIDTimestamp, "timestamp with time zone": OIDTimestamptz,
	"time without time zone": OIDTime, "time with time zone": OIDTimetz,
}

func buildTypeTable() *typeTable {
	t := &typeTable{byOID: map[OID]*Info{}, byName: map[string]OID{}}
	add := func(i *Info) {
		t.all = append(t.all, i)
		t.byOID[i.OID] = i
		t.byName[i.Name] = i.OID
	}
	for i := range baseInfos {
		b := &baseInfos[i]
		add(b)
		if b.Array == 0 {
			continue
		}
		cat := byte('A')
		if b.TypType == 'p' {
			cat = 'P'
			if b.OID == OIDCstring {
				cat = 'A'
			}
		}
		tt := byte('b')
		if b.OID == OIDRecord {
			tt = 'p'
		}
		add(&Info{OID: b.Array, Name: "_" + b.Name, SQLName: b.SQLName + "[]", Len: -1, Elem: b.OID, Category: cat, TypType: tt})
	}
	// "double" and "string" are streaming users' spellings, not PostgreSQL's; they never hide a PostgreSQL name.
	for name, oid := range typeAliases {
		t.byName[name] = oid
	}
	return t
}

// InfoOf returns the catalogue entry of a builtin type.
func InfoOf(oid OID) (*Info, bool) {
	i, ok := builtins.byOID[oid]
	return i, ok
}

// AllInfos returns every catalogue entry. The result is shared: do not modify it.
func AllInfos() []*Info { return builtins.all }

// TypeByName returns the builtin type of that name: pg_type names (int4, _int4), SQL spellings (double precision), and either of
// them followed by []. Unquoted names match in any case; "char" in quotes is the one-byte type, bpchar otherwise. A pg_catalog
// prefix is accepted.
func TypeByName(name string) (OID, bool) {
	name = strings.TrimSpace(name)
	dims := false
	for strings.HasSuffix(name, "]") {
		open := strings.LastIndexByte(name, '[')
		if open < 0 {
			return 0, false
		}
		if _, err := strconv.Atoi(name[open+1 : len(name)-1]); err != nil && open+2 != len(name) {
			return 0, false
		}
		name, dims = strings.TrimSpace(name[:open]), true
	}
	lower := strings.ToLower(name)
	if l, ok := strings.CutPrefix(lower, "pg_catalog."); ok {
		// A qualified name is never a keyword: pg_catalog.char is the one-byte type.
		lower = strings.Trim(l, `"`)
		if lower == "char" {
			lower = `"char"`
		}
		if lower == "int" || lower == "decimal" || lower == "dec" {
			return 0, false
		}
	}
	oid, ok := builtins.byName[lower]
	if !ok {
		if strings.ContainsAny(lower, " \t\n") {
			oid, ok = builtins.byName[strings.Join(strings.Fields(lower), " ")]
		}
		if !ok && len(name) > 2 && name[0] == '"' && name[len(name)-1] == '"' {
			oid, ok = builtins.byName[name[1:len(name)-1]]
		}
	}
	if !ok {
		return 0, false
	}
	if dims {
		if i := builtins.byOID[oid]; i.Category == 'A' && i.Array == 0 {
			return oid, true
		}
		oid = ArrayOf(oid)
		return oid, oid != 0
	}
	return oid, true
}

// ArrayOf returns the type of arrays of oid, 0 when there is none.
func ArrayOf(oid OID) OID {
	if T(oid).IsEnum() {
		return enumArrayBits | oid
	}
	if i, ok := builtins.byOID[oid]; ok {
		return i.Array
	}
	return 0
}

// Elem returns the element type of an array type. The modifier of an array type is that of its elements.
// int2vector and oidvector count as arrays, name does not.
func (t Type) Elem() (Type, bool) {
	if t.OID < 1000 && t.OID != 199 && t.OID != OIDInt2Vector && t.OID != OIDOidVector {
		return Type{}, false
	}
	if isEnumArray(t.OID) {
		return Type{OID: t.OID & userOIDMask, Mod: t.Mod}, true
	}
	i, ok := builtins.byOID[t.OID]
	if !ok || i.Elem == 0 || t.OID == OIDName {
		return Type{}, false
	}
	return Type{OID: i.Elem, Mod: t.Mod}, true
}

// IsArray reports whether values of t are arrays.
func (t Type) IsArray() bool {
	_, ok := t.Elem()
	return ok
}

// intervalFieldNames names the field restrictions of interval modifiers, as format_type prints them.
var intervalFieldNames = map[int32]string{
	1 << fieldYear: " year", 1 << fieldMonth: " month", 1 << fieldDay: " day", 1 << fieldHour: " hour", 1 << fieldMinute: " minute", 1 << fieldSecond: " second",
	1<<fieldYear | 1<<fieldMonth:                                 " year to month",
	1<<fieldDay | 1<<fieldHour:                                   " day to hour",
	1<<fieldDay | 1<<fieldHour | 1<<fieldMinute:                  " day to minute",
	1<<fieldDay | 1<<fieldHour | 1<<fieldMinute | 1<<fieldSecond: " day to second",
	1<<fieldHour | 1<<fieldMinute:                                " hour to minute",
	1<<fieldHour | 1<<fieldMinute | 1<<fieldSecond:               " hour to second",
	1<<fieldMinute | 1<<fieldSecond:                              " minute to second",
}

// Bits of the field mask in interval modifiers (datetime.h).
const (
	fieldMonth  = 1
	fieldYear   = 2
	fieldDay    = 3
	fieldHour   = 10
	fieldMinute = 11
	fieldSecond = 12

	intervalFullRange     = 0x7FFF
	intervalFullPrecision = 0xFFFF
	// maxSecondPrecision is the number of fraction digits kept in times.
	maxSecondPrecision = 6
)

// String returns the type as format_type(oid, typmod) prints it.
func (t Type) String() string {
	if e, ok := t.Elem(); ok && t.OID != OIDInt2Vector && t.OID != OIDOidVector {
		return e.String() + "[]"
	}
	i, ok := InfoOf(t.OID)
	if !ok {
		if t.OID == 0 {
			return "-"
		}
		return "???"
	}
	mod := ""
	switch t.OID {
	case OIDBpchar:
		if t.Mod < 0 {
			// format_type prints a bpchar without modifier as "character" only when no modifier is known at all; declared
			// columns always carry one.
			return i.SQLName
		}
		mod = "(" + strconv.Itoa(int(t.Mod-varHeader)) + ")"
	case OIDVarchar:
		if t.Mod >= 0 {
			mod = "(" + strconv.Itoa(int(t.Mod-varHeader)) + ")"
		}
	case OIDNumeric:
		if t.Mod >= 0 {
			p, s := numericTypmod(t.Mod)
			mod = "(" + strconv.Itoa(p) + "," + strconv.Itoa(s) + ")"
		}
	case OIDTime, OIDTimestamp, OIDTimetz, OIDTimestamptz:
		if t.Mod >= 0 {
			head, rest, _ := strings.Cut(i.SQLName, " ")
			return head + "(" + strconv.Itoa(int(t.Mod)) + ") " + rest
		}
	case OIDInterval:
		if t.Mod >= 0 {
			rng, prec := t.Mod>>16&0x7FFF, t.Mod&0xFFFF
			if rng != intervalFullRange {
				mod = intervalFieldNames[rng]
			}
			if prec != intervalFullPrecision {
				mod += "(" + strconv.Itoa(int(prec)) + ")"
			}
		}
	}
	return i.SQLName + mod
}

// varHeader is PostgreSQL's VARHDRSZ, which its length modifiers include.
const varHeader = 4

// maxCharLength is PostgreSQL's limit of n in varchar(n) and char(n), in characters.
const maxCharLength = 10485760

// Limits of numeric(p, s).
const (
	maxNumericPrecision = 1000
	minNumericScale     = -1000
	maxNumericScale     = 1000
)

func numericTypmod(mod int32) (precision, scale int) {
	m := mod - varHeader
	return int(m >> 16 & 0xFFFF), int((m&0x7FF)^1024) - 1024
}

// NumericTypmod returns the modifier of numeric(precision, scale).
func NumericTypmod(precision, scale int) int32 {
	return int32(precision<<16|(scale&0x7FF)) + varHeader
}

// IntervalTypmod returns the modifier of an interval restricted to the fields of a qualifier as format_type spells it, such as
// "day to second" or "" for none, with the precision of seconds, -1 for none.
func IntervalTypmod(qualifier string, precision int) (int32, error) {
	rng, prec := int32(intervalFullRange), int32(intervalFullPrecision)
	if qualifier != "" {
		found := false
		for m, name := range intervalFieldNames {
			if name[1:] == strings.ToLower(qualifier) {
				rng, found = m, true
			}
		}
		if !found {
			return 0, pgerr.Newf(pgerr.SyntaxError, "invalid interval qualifier %q", qualifier)
		}
	}
	if precision >= 0 {
		prec = int32(min(precision, maxSecondPrecision))
	} else if qualifier == "" {
		return -1, nil
	}
	return prec | rng<<16, nil
}

// TypmodIn returns the modifier that the list in parentheses after a type name stands for, -1 for an empty list.
func TypmodIn(oid OID, mods []int) (int32, error) {
	if len(mods) == 0 {
		if oid == OIDBpchar {
			return 1 + varHeader, nil
		}
		return -1, nil
	}
	if e, ok := T(oid).Elem(); ok {
		return TypmodIn(e.OID, mods)
	}
	name := oidName(oid)
	switch oid {
	case OIDBpchar, OIDVarchar:
		if oid == OIDBpchar {
			name = "char"
		}
		switch {
		case len(mods) != 1:
			return 0, pgerr.Newf(pgerr.InvalidParameterValue, "invalid type modifier")
		case mods[0] < 1:
			return 0, pgerr.Newf(pgerr.InvalidParameterValue, "length for type %s must be at least 1", name)
		case mods[0] > maxCharLength:
			return 0, pgerr.Newf(pgerr.InvalidParameterValue, "length for type %s cannot exceed %d", name, maxCharLength)
		}
		return int32(mods[0]) + varHeader, nil
	case OIDNumeric:
		if len(mods) > 2 {
			return 0, pgerr.Newf(pgerr.InvalidParameterValue, "invalid NUMERIC type modifier")
		}
		if mods[0] < 1 || mods[0] > maxNumericPrecision {
			return 0, pgerr.Newf(pgerr.InvalidParameterValue, "NUMERIC precision %d must be between 1 and %d", mods[0], maxNumericPrecision)
		}
		scale := 0
		if len(mods) == 2 {
			scale = mods[1]
			if scale < minNumericScale || scale > maxNumericScale {
				return 0, pgerr.Newf(pgerr.InvalidParameterValue, "NUMERIC scale %d must be between %d and %d", scale, minNumericScale, maxNumericScale)
			}
		}
		return NumericTypmod(mods[0], scale), nil
	case OIDTime, OIDTimestamp, OIDTimetz, OIDTimestamptz, OIDInterval:
		if len(mods) != 1 {
			return 0, pgerr.Newf(pgerr.InvalidParameterValue, "invalid type modifier")
		}
		label := strings.ToUpper(strings.TrimSuffix(name, "tz"))
		suffix := ""
		if strings.HasSuffix(name, "tz") {
			suffix = " WITH TIME ZONE"
		}
		if mods[0] < 0 {
			return 0, pgerr.Newf(pgerr.InvalidParameterValue, "%s(%d)%s precision must not be negative", label, mods[0], suffix)
		}
		// PostgreSQL lowers a larger precision to 6 with a warning only.
		p := int32(min(mods[0], maxSecondPrecision))
		if oid == OIDInterval {
			return p | intervalFullRange<<16, nil
		}
		return p, nil
	}
	return 0, pgerr.Newf(pgerr.SyntaxError, "type modifier is not allowed for type %q", name)
}

func oidName(oid OID) string {
	if i, ok := InfoOf(oid); ok {
		return i.Name
	}
	return strconv.FormatUint(uint64(oid), 10)
}
