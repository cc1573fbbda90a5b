package catalog

import (
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/sql/functions"
)

// IndexKeyText prints a key of an index as pg_get_indexdef does for a single column: calls bare, other expressions in parentheses.
func IndexKeyText(k IndexKey, table *Object) string {
	if k.Column >= 0 {
		return functions.QuoteIdent(table.Columns[k.Column].Name)
	}
	e := bare(k.Expr)
	if isCall(e) {
		return e
	}
	return "(" + e + ")"
}

// isCall reports whether the expression is one function call and nothing else.
func isCall(s string) bool {
	open := strings.IndexByte(s, '(')
	if open <= 0 || !strings.HasSuffix(s, ")") {
		return false
	}
	for i := range open {
		if !isWord(s[i]) && s[i] != '.' && s[i] != '"' {
			return false
		}
	}
	switch strings.ToLower(s[:open]) {
	case "not", "cast", "array", "row", "exists":
		return false
	}
	depth, quote := 0, byte(0)
	for i := open; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth == 0 && i < len(s)-1 {
				return false
			}
		}
	}
	return depth == 0
}

// index is an index as the catalogue shows it: an object of its own, or the primary key of a table.
type index struct {
	oid     uint32
	name    string
	table   *relation
	def     *IndexDef
	object  *Object // nil for the primary key that a table was created with
	comment string
	about   string // the comment on the constraint that it holds
}

// indexes lists the indexes of a relation by OID.
func (d *SystemData) indexes(r *relation) []index { return indexesOf(d.Snap, r) }

func indexesOf(snap *Snapshot, r *relation) []index {
	if r.object == nil || r.kind != 'r' && r.kind != 'm' {
		return nil
	}
	var out []index
	if key := r.key(); key != nil {
		def := &IndexDef{Table: r.object.ID, Unique: true, Constraint: true, Primary: true}
		for _, a := range key {
			def.Keys = append(def.Keys, IndexKey{Column: a.pos})
		}
		out = append(out, index{oid: indexOID(r.object), name: r.object.Constraint, table: r, def: def, comment: r.object.KeyComment, about: r.object.ConstraintComment})
	}
	for _, o := range snap.IndexesOf(r.object.ID) {
		if oid := relationOID(o); oid != 0 {
			out = append(out, index{oid: oid, name: o.Name, table: r, def: o.Index, object: o, comment: o.Comment, about: o.ConstraintComment})
		}
	}
	return out
}

// size is what the index takes besides its table. A primary key that the table was created with lies in the table.
func (x *index) size(size func(uint64) int64) int64 {
	if x.object == nil || size == nil {
		return 0
	}
	return size(x.object.ID)
}

// constraintOID is the OID of the constraint that the index holds, 0 when there is none.
func (x *index) constraintOID() uint32 {
	switch {
	case !x.def.Constraint:
		return 0
	case x.object == nil:
		return primaryKeyOID(x.table.object)
	}
	return derivedOID(classUnique, x.object.ID)
}

// attribute returns the column of a key or included column, ok false for an expression.
func (x *index) attribute(i int) (attribute, bool) {
	pos := -1
	if i < len(x.def.Keys) {
		pos = x.def.Keys[i].Column
	} else if i-len(x.def.Keys) < len(x.def.Include) {
		pos = x.def.Include[i-len(x.def.Keys)]
	}
	if pos < 0 {
		return attribute{}, false
	}
	return x.table.at(pos)
}

// columns is the number of columns, included ones among them.
func (x *index) columns() int { return len(x.def.Keys) + len(x.def.Include) }

// columnNames are the names of the index's own columns.
func (x *index) columnNames() []string {
	out := make([]string, 0, x.columns())
	taken := map[string]bool{}
	for i := range x.columns() {
		name := "expr"
		if a, ok := x.attribute(i); ok {
			name = a.Name
		} else if i < len(x.def.Keys) && isCall(x.def.Keys[i].Expr) {
			e := x.def.Keys[i].Expr
			name = strings.ToLower(e[:strings.IndexByte(e, '(')])
			name = name[strings.LastIndexByte(name, '.')+1:]
		}
		base := name
		for n := 1; taken[name]; n++ {
			name = base + strconv.Itoa(n)
		}
		taken[name] = true
		out = append(out, name)
	}
	return out
}

// plainKey prints a key without its order. Operators have parentheses of their own unless it is pretty.
func (x *index) plainKey(i int, pretty bool) string {
	s := IndexKeyText(x.def.Keys[i], x.table.object)
	if !pretty && strings.HasPrefix(s, "(") && !strings.HasPrefix(strings.ToLower(s), "(case ") {
		s = "(" + s + ")"
	}
	return s
}

// keyText prints a key with its order, as the definition of the index does.
func (x *index) keyText(i int, pretty bool) string {
	k := x.def.Keys[i]
	s := x.plainKey(i, pretty)
	if k.OpClass != "" {
		s += " " + k.OpClass
	}
	switch {
	case k.Desc:
		s += " DESC"
		if !k.NullsFirst {
			s += " NULLS LAST"
		}
	case k.NullsFirst:
		s += " NULLS FIRST"
	}
	return s
}

func (x *index) included() string {
	var out []string
	for _, c := range x.def.Include {
		out = append(out, functions.QuoteIdent(x.table.object.Columns[c].Name))
	}
	return strings.Join(out, ", ")
}

// definition is the statement that makes the index.
func (x *index) definition(pretty bool) string {
	var b strings.Builder
	b.WriteString("CREATE ")
	if x.def.Unique {
		b.WriteString("UNIQUE ")
	}
	b.WriteString("INDEX " + functions.QuoteIdent(x.name) + " ON " + functions.QuoteIdent(x.table.schema) + "." + functions.QuoteIdent(x.table.name) + " USING ")
	if x.def.Method == "" {
		b.WriteString("btree (")
	} else {
		b.WriteString(x.def.Method + " (")
	}
	for i := range x.def.Keys {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(x.keyText(i, pretty))
	}
	b.WriteString(")")
	if inc := x.included(); inc != "" {
		b.WriteString(" INCLUDE (" + inc + ")")
	}
	if x.def.NullsNotDistinct {
		b.WriteString(" NULLS NOT DISTINCT")
	}
	if x.def.Where != "" {
		where := bare(x.def.Where)
		if !pretty {
			where = "(" + where + ")"
		}
		b.WriteString(" WHERE " + where)
	}
	return b.String()
}

// constraint is the definition of the constraint that the index holds.
func (x *index) constraint() string {
	s := "UNIQUE"
	if x.def.Primary {
		s = "PRIMARY KEY"
	}
	if x.def.NullsNotDistinct {
		s += " NULLS NOT DISTINCT"
	}
	var cols []string
	for _, k := range x.def.Keys {
		cols = append(cols, IndexKeyText(k, x.table.object))
	}
	s += " (" + strings.Join(cols, ", ") + ")"
	if inc := x.included(); inc != "" {
		s += " INCLUDE (" + inc + ")"
	}
	return s
}

// keyNumbers returns the attnums of the keys, 0 for expressions.
func (x *index) keyNumbers() []int64 {
	out := make([]int64, len(x.def.Keys))
	for i := range out {
		if a, ok := x.attribute(i); ok {
			out[i] = a.num
		}
	}
	return out
}

// keyColumns returns the columns among the keys.
func (x *index) keyColumns() []attribute {
	var out []attribute
	for i := range x.def.Keys {
		if a, ok := x.attribute(i); ok {
			out = append(out, a)
		}
	}
	return out
}
