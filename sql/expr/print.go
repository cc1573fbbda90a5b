package expr

import (
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/types"
)

// infix maps the names of operator functions, without their type prefix, to symbols, for printing.
var infix = map[string]string{
	"pl": "+", "mi": "-", "mul": "*", "div": "/", "mod": "%", "eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
	"numeric_add": "+", "numeric_sub": "-", "textcat": "||", "textlike": "~~", "textnlike": "!~~", "texticlike": "~~*", "texticnlike": "!~~*",
	"textregexeq": "~", "textregexne": "!~", "texticregexeq": "~*", "texticregexne": "!~*", "anytextcat": "||", "textanycat": "||", "array_cat": "||",
	"jsonb_object_field": "->", "jsonb_object_field_text": "->>", "json_object_field": "->", "json_object_field_text": "->>",
	"jsonb_array_element": "->", "jsonb_array_element_text": "->>", "jsonb_contains": "@>", "jsonb_contained": "<@", "jsonb_concat": "||",
	"timestamp_mi": "-", "timestamptz_mi": "-", "interval_mi": "-", "date_pli": "+", "date_mii": "-", "dpow": "^", "numeric_power": "^",
}

// operatorPrefixes are the type parts of operator function names.
var operatorPrefixes = []string{
	"int24", "int28", "int42", "int48", "int82", "int84", "int2", "int4", "int8", "float48", "float84", "float4", "float8", "numeric_", "text_", "text",
	"bpchar", "bytea", "bool", "date_", "timestamp_", "timestamptz_", "time_", "timetz_", "interval_", "uuid_", "jsonb_", "array_", "record_", "enum_", "oid",
	"name", "char",
}

func operatorSymbol(name string) (string, bool) {
	if s, ok := infix[name]; ok {
		return s, true
	}
	for _, p := range operatorPrefixes {
		rest, ok := strings.CutPrefix(name, p)
		if !ok {
			continue
		}
		if s, ok := infix[rest]; ok {
			return s, true
		}
		// Functions between two types are called timestamp_pl_interval, date_lt_timestamp.
		if head, _, found := strings.Cut(rest, "_"); found {
			if s, ok := infix[head]; ok && strings.HasSuffix(p, "_") {
				return s, true
			}
		}
	}
	return "", false
}

// String returns e as SQL-like text for EXPLAIN. columns names the input columns; missing names print as $col<n>.
func String(e *Expr, columns []string) string {
	var b strings.Builder
	printExpr(&b, e, columns)
	return b.String()
}

func printExpr(b *strings.Builder, e *Expr, cols []string) {
	list := func(args []*Expr, sep string) {
		for i, a := range args {
			if i > 0 {
				b.WriteString(sep)
			}
			printExpr(b, a, cols)
		}
	}
	wrap := func(open string, args []*Expr, sep string) {
		b.WriteString(open + "(")
		list(args, sep)
		b.WriteByte(')')
	}
	switch e.Kind {
	case Column:
		if e.Col < len(cols) && cols[e.Col] != "" {
			b.WriteString(cols[e.Col])
		} else {
			b.WriteString("$col" + strconv.Itoa(e.Col))
		}
	case Const:
		printConst(b, e)
	case Param:
		b.WriteString("$" + strconv.Itoa(e.Col))
	case And:
		wrap("", e.Args, " AND ")
	case Or:
		wrap("", e.Args, " OR ")
	case Not:
		b.WriteString("(NOT ")
		printExpr(b, e.Args[0], cols)
		b.WriteByte(')')
	case IsNull, IsNotNull:
		b.WriteByte('(')
		printExpr(b, e.Args[0], cols)
		b.WriteString(map[Kind]string{IsNull: " IS NULL)", IsNotNull: " IS NOT NULL)"}[e.Kind])
	case Distinct:
		wrap("", e.Args, " IS DISTINCT FROM ")
	case InList:
		b.WriteByte('(')
		printExpr(b, e.Args[0], cols)
		wrap(" IN ", e.Args[1:], ", ")
		b.WriteByte(')')
	case AnyArray, AllArray:
		name, _, _ := strings.Cut(e.Func, "(")
		sym, ok := operatorSymbol(name)
		if !ok {
			sym = name
		}
		b.WriteByte('(')
		printExpr(b, e.Args[0], cols)
		b.WriteString(" " + sym + " " + map[Kind]string{AnyArray: "ANY", AllArray: "ALL"}[e.Kind])
		wrap(" ", e.Args[1:], "")
		b.WriteByte(')')
	case Case:
		b.WriteString("CASE")
		for i := 0; i+1 < len(e.Args); i += 2 {
			b.WriteString(" WHEN ")
			printExpr(b, e.Args[i], cols)
			b.WriteString(" THEN ")
			printExpr(b, e.Args[i+1], cols)
		}
		if len(e.Args)%2 == 1 {
			b.WriteString(" ELSE ")
			printExpr(b, e.Args[len(e.Args)-1], cols)
		}
		b.WriteString(" END")
	case Array:
		b.WriteString("ARRAY[")
		list(e.Args, ", ")
		b.WriteByte(']')
	case Call:
		if e.Func == MarkedSet {
			e = e.Args[0]
		}
		printCall(b, e, cols)
	default:
		wrap(strings.ToUpper(string(e.Kind)), e.Args, ", ")
	}
}

func printConst(b *strings.Builder, e *Expr) {
	d := *e.Const
	if d.Null {
		b.WriteString("NULL")
		return
	}
	d.Type = e.Type
	text := datumText(d)
	switch e.Type.OID {
	case types.OIDInt4, types.OIDInt2, types.OIDInt8, types.OIDNumeric, types.OIDOid:
		b.WriteString(text)
	case types.OIDBool:
		b.WriteString(map[bool]string{true: "true", false: "false"}[d.Bool])
	default:
		b.WriteString("'" + strings.ReplaceAll(text, "'", "''") + "'")
		if _, builtin := types.InfoOf(e.Type.OID); builtin && e.Type.OID != types.OIDUnknown { // names of others are in the catalogue
			b.WriteString("::" + e.Type.String())
		}
	}
}

func printCall(b *strings.Builder, e *Expr, cols []string) {
	name, _, _ := strings.Cut(e.Func, "(")
	cast := strings.HasPrefix(name, "$") && len(e.Args) > 0 && name != "$scalar" && name != "$first" && name != "$single"
	if i, ok := types.InfoOf(e.Type.OID); ok && len(e.Args) == 1 && name == i.Name {
		cast = true
	}
	if cast {
		b.WriteByte('(')
		printExpr(b, e.Args[0], cols)
		b.WriteString(")::" + e.Type.String())
		return
	}
	if sym, ok := operatorSymbol(name); ok && len(e.Args) == 2 {
		b.WriteByte('(')
		printExpr(b, e.Args[0], cols)
		b.WriteString(" " + sym + " ")
		printExpr(b, e.Args[1], cols)
		b.WriteByte(')')
		return
	}
	b.WriteString(name + "(")
	for i, a := range e.Args {
		if i > 0 {
			b.WriteString(", ")
		}
		printExpr(b, a, cols)
	}
	b.WriteByte(')')
}
