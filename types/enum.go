package types

import (
	"encoding/binary"
	"math"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// Enum types are made by users. Their OIDs are the ids of catalogue objects, and the type of their arrays follows from the id alone:
//
//	16384 … 2^28 - 1   an enum type
//	6 << 28 | id       its array type
//
// A value is a string: 4 bytes that order the labels of the type, then the label. Comparison, keys, hashes and text output need no
// catalogue; only input does, since it has to find the number of a label.
const (
	firstUserOID  OID = 16384
	enumArrayBits OID = 6 << 28
	userOIDMask   OID = 1<<28 - 1
	enumSortBytes     = 4
)

// IsEnum reports whether t is a type made by CREATE TYPE .. AS ENUM.
func (t Type) IsEnum() bool { return t.OID >= firstUserOID && t.OID <= userOIDMask }

// isEnumArray reports whether oid is the type of arrays of an enum type.
func isEnumArray(oid OID) bool {
	return oid&^userOIDMask == enumArrayBits && oid&userOIDMask >= firstUserOID
}

// IsUserType reports whether t is an enum type or an array of one: such types have names in the catalogue only.
func (t Type) IsUserType() bool { return t.IsEnum() || isEnumArray(t.OID) }

// EnumValue returns the stored form of the value with that label and place among the labels of its type.
func EnumValue(sort float32, label string) string {
	b := make([]byte, 0, enumSortBytes+len(label))
	n := math.Float32bits(sort + 0)
	if n>>31 != 0 {
		n = ^n
	} else {
		n |= 1 << 31
	}
	return string(append(binary.BigEndian.AppendUint32(b, n), label...))
}

// EnumLabel returns the label of a value in stored form.
func EnumLabel(v string) string {
	if len(v) < enumSortBytes {
		return ""
	}
	return v[enumSortBytes:]
}

// ErrEnumInput is the error of a text that is no label of an enum type.
func ErrEnumInput(typeName, label string) error {
	return pgerr.Newf(pgerr.InvalidTextRepresentation, "invalid input value for enum %s: \"%s\"", typeName, label)
}

// Names answers what text forms need to know of the catalogue. Implementations are safe for the use of one statement.
type Names interface {
	// EnumValue returns the stored form of an enum type's label; 22P02 when it has no such label.
	EnumValue(enum OID, label string) (string, error)
	// RegText prints the value of a type such as regclass: a name, qualified where it is not visible, or a number.
	RegText(t OID, value uint32) string
	// ParseReg reads a value of a type such as regclass: a name or a number.
	ParseReg(t OID, text string) (uint32, error)
}

func parseEnum(f *Format, t Type, s string) (string, error) {
	if f == nil || f.Names == nil {
		return "", pgerr.Newf(pgerr.FeatureNotSupported, "values of enum types cannot be read here")
	}
	return f.Names.EnumValue(t.OID, s)
}
