package types

import (
	"encoding/binary"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// MaxArrayDims is PostgreSQL's MAXDIM, the largest number of dimensions of an array; maxArrayElems its limit of elements.
const (
	MaxArrayDims  = 6
	maxArrayElems = 134217727
)

// ErrArrayDims is the error of an array of n dimensions, where that is too many.
func ErrArrayDims(n int) *pgerr.Error {
	return pgerr.Newf(pgerr.ProgramLimitExceeded, "number of array dimensions (%d) exceeds the maximum allowed (%d)", n, MaxArrayDims)
}

// Dim is one dimension of an array: subscripts Lower … Lower+Len-1.
type Dim struct {
	Len, Lower int32
}

// Array is an array value taken apart. An empty array has no dimensions. Elems are in row-major order.
type Array struct {
	Elem  OID
	Dims  []Dim
	Elems []Datum
}

// NewArray returns the one-dimensional array of elems with lower bound 1.
func NewArray(elem OID, elems []Datum) Array {
	a := Array{Elem: elem, Elems: elems}
	if len(elems) > 0 {
		a.Dims = []Dim{{Len: int32(len(elems)), Lower: 1}}
	}
	return a
}

// EncodeArray returns the storage form of an array:
//
//	uvarint element OID · uvarint dimensions · (uvarint length, varint lower bound) per dimension · per element: 0 for NULL, or 1 and the value as in rows
func EncodeArray(a Array) string {
	b := make([]byte, 0, 16+12*len(a.Elems))
	b = binary.AppendUvarint(b, uint64(a.Elem))
	b = binary.AppendUvarint(b, uint64(len(a.Dims)))
	for _, d := range a.Dims {
		b = binary.AppendUvarint(b, uint64(d.Len))
		b = binary.AppendVarint(b, int64(d.Lower))
	}
	for i := range a.Elems {
		b = appendOptional(b, &a.Elems[i])
	}
	return string(b)
}

func appendOptional(b []byte, d *Datum) []byte {
	if d.Null {
		return append(b, 0)
	}
	return appendDatumValue(append(b, 1), d)
}

// optional reads what appendOptional wrote.
func (r *decoder) optional(t Type) Datum {
	switch r.byte() {
	case 0:
		return NullDatum(t)
	case 1:
		return r.value(t)
	}
	r.fail()
	return Datum{}
}

func errCorrupt(what string) error {
	return pgerr.Newf(pgerr.DataCorrupted, "corrupt %s", what)
}

// DecodeArray takes the storage form of an array apart.
func DecodeArray(s string) (Array, error) {
	r := decoder{s: s}
	a := Array{Elem: OID(r.uvarint())}
	nd := r.uvarint()
	if r.bad || nd > MaxArrayDims {
		return Array{}, errCorrupt("array")
	}
	n := uint64(0)
	if nd > 0 {
		a.Dims = make([]Dim, nd)
		n = 1
	}
	for i := range a.Dims {
		l, low := r.uvarint(), r.varint()
		if l == 0 || l > maxArrayElems || low != int64(int32(low)) {
			return Array{}, errCorrupt("array")
		}
		a.Dims[i] = Dim{Len: int32(l), Lower: int32(low)}
		n *= l
		if n > uint64(len(s)) {
			return Array{}, errCorrupt("array")
		}
	}
	if n > 0 {
		a.Elems = make([]Datum, n)
	}
	et := T(a.Elem)
	for i := range a.Elems {
		a.Elems[i] = r.optional(et)
	}
	if r.bad || len(r.s) > 0 {
		return Array{}, errCorrupt("array")
	}
	return a, nil
}

// EncodeRecord is EncodeNamedRecord without names.
func EncodeRecord(fields []Datum) string { return EncodeNamedRecord(fields, nil) }

// EncodeNamedRecord returns the storage form of a composite value:
//
//	uvarint fields · per field: uvarint type OID, then as an array element · with names: per field uvarint length and bytes
//
// Names, nil or one per field, matter only where a value is written as JSON: values that differ in nothing else are equal.
func EncodeNamedRecord(fields []Datum, names []string) string {
	b := binary.AppendUvarint(make([]byte, 0, 8+12*len(fields)), uint64(len(fields)))
	for i := range fields {
		b = binary.AppendUvarint(b, uint64(fields[i].Type.OID))
		b = appendOptional(b, &fields[i])
	}
	for _, n := range names {
		b = binary.AppendUvarint(b, uint64(len(n)))
		b = append(b, n...)
	}
	return string(b)
}

// DecodeRecord takes the storage form of a composite value apart.
func DecodeRecord(s string) ([]Datum, error) {
	fields, _, err := DecodeNamedRecord(s)
	return fields, err
}

// DecodeNamedRecord is DecodeRecord with the names of the fields, nil when the value has none.
func DecodeNamedRecord(s string) (fields []Datum, names []string, err error) {
	r := decoder{s: s}
	n := r.uvarint()
	if r.bad || n > uint64(len(s)) {
		return nil, nil, errCorrupt("record")
	}
	fields = make([]Datum, n)
	for i := range fields {
		fields[i] = r.optional(T(OID(r.uvarint())))
	}
	if !r.bad && len(r.s) > 0 {
		names = make([]string, n)
		for i := range names {
			names[i] = r.bytes(r.uvarint())
		}
	}
	if r.bad || len(r.s) > 0 {
		return nil, nil, errCorrupt("record")
	}
	return fields, names, nil
}
