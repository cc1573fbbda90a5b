package format

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// avroKind is a type of Avro.
type avroKind uint8

const (
	avroNull avroKind = iota
	avroBoolean
	avroInt // int and long, which are written alike
	avroFloat
	avroDouble
	avroBytes
	avroString
	avroFixed
	avroEnum
	avroArray
	avroMap
	avroUnion
	avroRecord
)

// avroLogical is what a value stands for beside its type.
type avroLogical uint8

const (
	avroPlain avroLogical = iota
	avroDecimal
	avroUUID
	avroDate
	avroTimeMillis
	avroTimeMicros
	avroTimestampMillis
	avroTimestampMicros
	avroTimestampNanos
)

// avroType is a type of the schema that a file was written with.
type avroType struct {
	kind     avroKind
	logical  avroLogical
	scale    int         // of decimals
	size     int         // of fixed, in bytes
	symbols  []string    // of enums
	elem     *avroType   // of arrays and maps
	branches []*avroType // of unions
	fields   []avroField // of records
}

type avroField struct {
	name string
	typ  *avroType
}

const (
	// maxAvroDepth bounds the nesting of types in a schema, and of values.
	maxAvroDepth = 64
	uuidBytes    = 16
	maxScale     = 16383 // as many digits as a numeric can have behind the point
)

// avroParser reads a schema.
type avroParser struct {
	named map[string]*avroType // records, enums and fixed, by full name
}

func avroSchemaError(text string, args ...any) error {
	return pgerr.Newf(pgerr.DataCorrupted, "invalid Avro schema: "+text, args...)
}

// parseAvroSchema reads the JSON text of a schema. A file's must be a record.
func parseAvroSchema(text []byte) (*avroType, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, avroSchemaError("%v", err)
	}
	p := avroParser{named: map[string]*avroType{}}
	t, err := p.parse(v, "", 0)
	if err != nil {
		return nil, err
	}
	if t.kind != avroRecord {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "the Avro schema of the file is no record")
	}
	return t, nil
}

var avroPrimitives = map[string]avroKind{
	"null": avroNull, "boolean": avroBoolean, "int": avroInt, "long": avroInt, "float": avroFloat, "double": avroDouble, "bytes": avroBytes, "string": avroString,
}

func (p *avroParser) parse(v any, space string, depth int) (*avroType, error) {
	if depth > maxAvroDepth {
		return nil, avroSchemaError("types are nested deeper than %d levels", maxAvroDepth)
	}
	switch v := v.(type) {
	case string:
		if k, ok := avroPrimitives[v]; ok {
			return &avroType{kind: k}, nil
		}
		if t, ok := p.named[fullName(v, space)]; ok {
			return t, nil
		}
		if t, ok := p.named[v]; ok {
			return t, nil
		}
		return nil, avroSchemaError("unknown type \"%s\"", v)
	case []any:
		t := &avroType{kind: avroUnion}
		for _, b := range v {
			branch, err := p.parse(b, space, depth+1)
			if err != nil {
				return nil, err
			}
			t.branches = append(t.branches, branch)
		}
		return t, nil
	case map[string]any:
		return p.complex(v, space, depth)
	}
	return nil, avroSchemaError("a type is a name, a list or an object")
}

func fullName(name, space string) string {
	if space == "" || strings.Contains(name, ".") {
		return name
	}
	return space + "." + name
}

// complex reads a type that is written as an object.
func (p *avroParser) complex(v map[string]any, space string, depth int) (*avroType, error) {
	name, ok := v["type"].(string)
	if !ok {
		if v["type"] == nil {
			return nil, avroSchemaError("an object without \"type\"")
		}
		return p.parse(v["type"], space, depth+1)
	}
	t := &avroType{}
	switch name {
	case "record", "error", "enum", "fixed":
		n, _ := v["name"].(string)
		if s, ok := v["namespace"].(string); ok {
			space = s
		}
		full := fullName(n, space)
		if i := strings.LastIndexByte(full, '.'); i >= 0 {
			space = full[:i]
		}
		if _, ok := p.named[full]; ok || n == "" {
			return nil, avroSchemaError("a type without a name of its own: \"%s\"", full)
		}
		p.named[full] = t
	}
	switch name {
	case "record", "error":
		t.kind = avroRecord
		fields, _ := v["fields"].([]any)
		for _, f := range fields {
			o, _ := f.(map[string]any)
			n, ok := o["name"].(string)
			if !ok {
				return nil, avroSchemaError("a field without a name")
			}
			typ, err := p.parse(o["type"], space, depth+1)
			if err != nil {
				return nil, err
			}
			t.fields = append(t.fields, avroField{n, typ})
		}
	case "enum":
		t.kind = avroEnum
		symbols, _ := v["symbols"].([]any)
		for _, s := range symbols {
			n, ok := s.(string)
			if !ok {
				return nil, avroSchemaError("a symbol that is no text")
			}
			t.symbols = append(t.symbols, n)
		}
	case "fixed":
		t.kind = avroFixed
		if t.size, ok = avroNumber(v["size"]); !ok || t.size > MaxRowBytes {
			return nil, avroSchemaError("fixed without a valid size")
		}
	case "array", "map":
		t.kind = avroArray
		of := v["items"]
		if name == "map" {
			t.kind, of = avroMap, v["values"]
		}
		var err error
		if t.elem, err = p.parse(of, space, depth+1); err != nil {
			return nil, err
		}
	default:
		of, err := p.parse(name, space, depth+1)
		if err != nil {
			return nil, err
		}
		if _, ok := avroPrimitives[name]; ok {
			of.logicalOf(v)
		}
		return of, nil
	}
	t.logicalOf(v)
	return t, nil
}

// avroNumber is a number of a schema that is not negative.
func avroNumber(v any) (int, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := n.Int64()
	return int(i), err == nil && i >= 0 && i <= 1<<31
}

// logicalOf takes the logical type of an object, if it is one of those known and fits; others are ignored, as Avro wants it.
func (t *avroType) logicalOf(v map[string]any) {
	name, _ := v["logicalType"].(string)
	switch {
	case name == "decimal" && (t.kind == avroBytes || t.kind == avroFixed):
		scale, ok := avroNumber(v["scale"])
		if (ok || v["scale"] == nil) && scale <= maxScale {
			t.logical, t.scale = avroDecimal, scale
		}
	case name == "uuid" && (t.kind == avroString || t.kind == avroFixed && t.size == uuidBytes):
		t.logical = avroUUID
	case t.kind == avroInt:
		switch strings.TrimPrefix(name, "local-") {
		case "date":
			t.logical = avroDate
		case "time-millis":
			t.logical = avroTimeMillis
		case "time-micros":
			t.logical = avroTimeMicros
		case "timestamp-millis":
			t.logical = avroTimestampMillis
		case "timestamp-micros":
			t.logical = avroTimestampMicros
		case "timestamp-nanos":
			t.logical = avroTimestampNanos
		}
	}
}
