package catalog

import (
	"slices"
	"strings"

	"github.com/streamdb/streamdb/types"
)

// relation is the common face of users' and system relations for the catalogue.
type relation struct {
	oid     uint32
	schema  string
	name    string
	kind    byte // pg_class.relkind
	columns []attribute
	dropped []attribute     // keep their numbers
	object  *Object         // nil for system relations
	sys     *SystemRelation // nil for users' relations
}

// attribute is a column that users see. pos is its position among the stored columns, num its attnum.
type attribute struct {
	*Column
	pos int
	num int64
}

// relKind is pg_class.relkind of a kind of object. A source is a foreign table: its rows live elsewhere and nobody can insert into it.
func relKind(k Kind) byte {
	switch k {
	case Source:
		return 'f'
	case View:
		return 'v'
	case MaterializedView:
		return 'm'
	case Index:
		return 'i'
	case Sequence:
		return 'S'
	}
	return 'r'
}

func objectRelation(o *Object) *relation {
	r := &relation{oid: relationOID(o), schema: o.Schema, name: o.Name, kind: relKind(o.Kind), object: o}
	num := int64(0)
	for i := range o.Columns {
		c := &o.Columns[i]
		if c.Hidden && !c.Dropped {
			continue
		}
		num++
		if a := (attribute{Column: c, pos: i, num: num}); c.Dropped {
			r.dropped = append(r.dropped, a)
		} else {
			r.columns = append(r.columns, a)
		}
	}
	return r
}

func systemRelation(s *SystemRelation) *relation {
	r := &relation{oid: s.OID, schema: s.Schema, name: s.Name, kind: s.Kind, sys: s, columns: make([]attribute, 0, len(s.Columns))}
	for i := range s.Columns {
		if !s.Columns[i].Hidden {
			r.columns = append(r.columns, attribute{Column: &s.Columns[i], pos: i, num: int64(i + 1)})
		}
	}
	return r
}

// userRelations lists users' relations by id; indexes belong to theirs, and sinks cannot be read.
func (d *SystemData) userRelations() []*relation {
	var out []*relation
	for _, o := range d.Snap.Objects() {
		if relationOID(o) != 0 && o.Kind != Index && o.Kind != Sink {
			out = append(out, objectRelation(o))
		}
	}
	return out
}

// relations lists all relations, the system's first.
func (d *SystemData) relations() []*relation {
	var out []*relation
	for _, s := range SystemRelations() {
		out = append(out, systemRelation(s))
	}
	for _, s := range d.Extra {
		out = append(out, systemRelation(s))
	}
	return append(out, d.userRelations()...)
}

// at returns the stored column at a position, ok false when it is hidden. A position is not an index of r.columns: hidden and dropped
// columns are not in there.
func (r *relation) at(pos int) (attribute, bool) {
	for _, a := range r.columns {
		if a.pos == pos {
			return a, true
		}
	}
	return attribute{}, false
}

// key returns the columns of the primary key that the table was created with; nil when there is none.
func (r *relation) key() []attribute {
	if r.object == nil || r.object.Constraint == "" {
		return nil
	}
	var out []attribute
	for _, pos := range r.object.Key {
		if a, ok := r.at(pos); ok {
			out = append(out, a)
		}
	}
	return out
}

func (r *relation) isView() bool { return r.kind == 'v' || r.kind == 'm' }

// check is a CHECK constraint with its OID and the columns its text names.
type check struct {
	Check
	oid uint32
}

func (r *relation) checks() []check {
	if r.object == nil {
		return nil
	}
	var out []check
	for i, c := range r.object.Checks {
		if oid := checkOID(r.object, i); oid != 0 {
			out = append(out, check{Check: c, oid: oid})
		}
	}
	return out
}

// columnsIn returns the columns whose names occur as words in the expression text, in the order of the text: what pg_constraint.conkey says of
// a check.
func (r *relation) columnsIn(text string) []attribute {
	var out []attribute
	word := func(name string) {
		for _, a := range r.columns {
			if a.Name == name && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '\'':
			end := strings.IndexByte(text[i+1:], '\'')
			if end < 0 {
				return out
			}
			i += end + 2
		case c == '"':
			end := strings.IndexByte(text[i+1:], '"')
			if end < 0 {
				return out
			}
			word(text[i+1 : i+1+end])
			i += end + 2
		case isWord(c):
			j := i
			for j < len(text) && isWord(text[j]) {
				j++
			}
			word(strings.ToLower(text[i:j]))
			i = j
		default:
			i++
		}
	}
	return out
}

func isWord(c byte) bool {
	return c == '_' || c == '$' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// hasDefault reports whether pg_attrdef has a row for the column.
func (r *relation) hasDefault(a attribute) bool {
	serial := a.Sequence != 0 && a.Identity == ""
	return r.object != nil && (a.Default != "" || a.Generated != "" || serial) && defaultOID(r.object, a.pos) != 0
}

func (d *SystemData) namespaceOID(name string) uint32 {
	n, _ := d.Snap.Namespace(name)
	return n.OID
}

// rows returns the number of rows of a relation, -1 when unknown.
func (d *SystemData) rows(r *relation) int64 {
	if r.object == nil || r.kind == 'v' || r.kind == 'f' || r.kind == 'S' || d.RowCount == nil {
		return -1
	}
	return d.RowCount(r.object.ID)
}

func (d *SystemData) size(r *relation) int64 { return sizeOf(r, d.Size) }

// sizeOf asks for the size of a relation that stores rows.
func sizeOf(r *relation, size func(uint64) int64) int64 {
	if r.object == nil || r.kind == 'v' || r.kind == 'f' || r.kind == 'S' || size == nil {
		return 0
	}
	return size(r.object.ID)
}

// options lists the named options as pg_class.reloptions does.
func options(names []string, values map[string]string) []string {
	out := make([]string, 0, len(names))
	for _, k := range names {
		v := values[k]
		if isSecret(k) {
			v = "********"
		}
		out = append(out, k+"="+v)
	}
	return out
}

// isSecret reports whether the value of an option must not be shown.
func isSecret(option string) bool {
	o := strings.ToLower(option)
	for _, s := range [...]string{"password", "secret", "token", "credential", "access.key", "access_key", "private", "sasl.jaas"} {
		if strings.Contains(o, s) {
			return true
		}
	}
	return false
}

// OwnerRole is the role that owns everything.
const OwnerRole = "streamdb"

func (d *SystemData) roleOID(name string) uint32 {
	for _, r := range d.authRoles() {
		if r.Name == name {
			return r.OID
		}
	}
	return 0
}

// typeDetails returns what pg_attribute repeats of a type.
func typeDetails(t types.Type) typeForm {
	if t.IsEnum() {
		t = types.Oid // its form, the collation too
	}
	if f, ok := typeForms()[t.OID]; ok {
		return f
	}
	return typeForm{len: -1, align: "i", storage: "x"}
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
