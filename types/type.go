// Package types holds SQL types with their PostgreSQL OIDs, typed column vectors, chunks of weighted rows, and the text,
// binary, key and row encodings of values.
//
//	Type ── kind ──▶ Vector (one typed slice + validity) ──▶ Chunk (vectors + weights + selection)
//	                    │                                        │
//	   text, binary (wire)  key encoding (memcomparable)   row encoding (state, log)
package types

// OID is PostgreSQL's object id of a type. Clients hard-code the builtin ones, so they are PostgreSQL's own.
type OID uint32

// Builtin type OIDs (pg_type.dat).
const (
	OIDUnknown      OID = 705
	OIDBool         OID = 16
	OIDBytea        OID = 17
	OIDChar         OID = 18 // "char"
	OIDName         OID = 19
	OIDInt8         OID = 20
	OIDInt2         OID = 21
	OIDInt2Vector   OID = 22
	OIDInt4         OID = 23
	OIDRegproc      OID = 24
	OIDText         OID = 25
	OIDOid          OID = 26
	OIDXid          OID = 28
	OIDOidVector    OID = 30
	OIDJSON         OID = 114
	OIDNodeTree     OID = 194
	OIDFloat4       OID = 700
	OIDFloat8       OID = 701
	OIDAclItem      OID = 1033
	OIDBpchar       OID = 1042
	OIDVarchar      OID = 1043
	OIDDate         OID = 1082
	OIDTime         OID = 1083
	OIDTimestamp    OID = 1114
	OIDTimestamptz  OID = 1184
	OIDInterval     OID = 1186
	OIDTimetz       OID = 1266
	OIDNumeric      OID = 1700
	OIDRegprocedure OID = 2202
	OIDRegoper      OID = 2203
	OIDRegoperator  OID = 2204
	OIDRegclass     OID = 2205
	OIDRegtype      OID = 2206
	OIDRecord       OID = 2249
	OIDCstring      OID = 2275
	OIDVoid         OID = 2278
	OIDTrigger      OID = 2279
	OIDInternal     OID = 2281
	OIDUUID         OID = 2950
	OIDJSONB        OID = 3802
	OIDJSONPath     OID = 4072
	OIDRegnamespace OID = 4089
	OIDRegrole      OID = 4096
	OIDRegcollation OID = 4191

	// Pseudo types used in function signatures only.
	OIDAny              OID = 2276
	OIDAnyArray         OID = 2277
	OIDAnyElement       OID = 2283
	OIDAnyNonArray      OID = 2776
	OIDAnyEnum          OID = 3500
	OIDAnyCompatible    OID = 5077
	OIDAnyCompatibleArr OID = 5078
)

// Type is a SQL type with its modifier. It is a small comparable value; the zero Type is invalid.
// Mod is PostgreSQL's typmod (varchar(5) = 9, numeric(6,2) = 393222), -1 for none.
type Type struct {
	OID OID
	Mod int32
}

// T returns the type of the given OID without modifier.
func T(oid OID) Type { return Type{OID: oid, Mod: -1} }

// The common types without modifier.
var (
	Unknown     = T(OIDUnknown)
	Bool        = T(OIDBool)
	Int2        = T(OIDInt2)
	Int4        = T(OIDInt4)
	Int8        = T(OIDInt8)
	Float4      = T(OIDFloat4)
	Float8      = T(OIDFloat8)
	NumericType = T(OIDNumeric)
	Text        = T(OIDText)
	Varchar     = T(OIDVarchar)
	Bpchar      = T(OIDBpchar)
	Bytea       = T(OIDBytea)
	Date        = T(OIDDate)
	Time        = T(OIDTime)
	Timestamp   = T(OIDTimestamp)
	Timestamptz = T(OIDTimestamptz)
	IntervalT   = T(OIDInterval)
	UUID        = T(OIDUUID)
	JSONB       = T(OIDJSONB)
	JSON        = T(OIDJSON)
	Oid         = T(OIDOid)
	NameT       = T(OIDName)
	Void        = T(OIDVoid)
)

// Kind is the physical form of a type's values: it names the one slice of a Vector that holds them.
type Kind uint8

// Physical kinds. What each holds:
//
//	KindBool      bool
//	KindInt       int2, int4, int8, oid, xid, reg* (as oid), date (days since 2000-01-01), time (µs of the day), timestamp and timestamptz (µs since 2000-01-01;
//	              the extremes of int64 are ±infinity, for date the extremes of int32)
//	KindFloat     float4 (rounded to float32), float8
//	KindString    text, varchar, bpchar, name, "char"; bytea and uuid (raw bytes); json (text as given); jsonb (canonical text); timetz (µs of the day as
//	              8 bytes and seconds west of UTC as 4, both big-endian); arrays (see EncodeArray), records (see EncodeRecord), enums (see EnumValue)
//	KindNumeric   numeric
//	KindInterval  interval
const (
	KindInvalid Kind = iota
	KindBool
	KindInt
	KindFloat
	KindString
	KindNumeric
	KindInterval
)

// kinds has the kinds of the types with small OIDs, which all those that are not strings have.
var kinds = func() (k [OIDRegcollation + 1]Kind) {
	for oid := range k {
		k[oid] = KindString
	}
	k[0], k[OIDBool], k[OIDNumeric], k[OIDInterval], k[OIDFloat4], k[OIDFloat8] = KindInvalid, KindBool, KindNumeric, KindInterval, KindFloat, KindFloat
	for _, oid := range []OID{
		OIDInt2, OIDInt4, OIDInt8, OIDOid, OIDXid, OIDRegproc, OIDRegprocedure, OIDRegclass, OIDRegtype, OIDRegnamespace, OIDRegrole,
		OIDRegoper, OIDRegoperator, OIDRegcollation,
		OIDDate, OIDTime, OIDTimestamp, OIDTimestamptz,
	} {
		k[oid] = KindInt
	}
	return k
}()

// Kind returns the physical kind of t's values.
func (t Type) Kind() Kind {
	if t.OID < OID(len(kinds)) {
		return kinds[t.OID]
	}
	return KindString
}

// Widens reports whether every stored value of one type is, byte for byte, one of the other: ALTER TABLE need not write rows again, and jobs over them go on.
func Widens(from, to Type) bool {
	rank := func(t Type) int {
		switch t.OID {
		case OIDInt2:
			return 1
		case OIDInt4:
			return 2
		case OIDInt8:
			return 3
		}
		return 0
	}
	text := func(t Type) bool { return t.OID == OIDText || t.OID == OIDVarchar }
	switch {
	case rank(from) > 0 && rank(to) > 0:
		return rank(from) <= rank(to)
	case text(from) && text(to):
		return to.Mod < 0 || from.Mod >= 0 && from.Mod <= to.Mod
	case from.OID == OIDNumeric && to.OID == OIDNumeric:
		return to.Mod < 0
	}
	return false
}

// Column is a named, typed column of a relation or a plan node.
type Column struct {
	Name string
	Type Type
}

// Schema is the ordered list of columns of a relation or of a plan node's output.
type Schema []Column

// Types returns the column types in order.
func (s Schema) Types() []Type {
	ts := make([]Type, len(s))
	for i, c := range s {
		ts[i] = c.Type
	}
	return ts
}

// Index returns the position of the column called name, -1 when there is none.
func (s Schema) Index(name string) int {
	for i := range s {
		if s[i].Name == name {
			return i
		}
	}
	return -1
}
