package catalog

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/types"
)

// CreateStatement is the statement that makes a relation as it is now, without its rows, and without comments, privileges and, of tables, indexes, which
// have statements of their own. Names that path does not find have their schema.
func (i *Info) CreateStatement(o *Object, path []string) string {
	name, temporary := sql.QuoteIdent(o.Schema)+"."+sql.QuoteIdent(o.Name), ""
	if o.Temporary {
		name, temporary = sql.QuoteIdent(o.Name), "TEMPORARY "
	}
	switch o.Kind {
	case View, MaterializedView:
		var cols []string
		for _, a := range objectRelation(o).columns {
			cols = append(cols, sql.QuoteIdent(a.Name))
		}
		query := strings.TrimSuffix(strings.TrimSpace(i.Snap.viewDefinition(o, path)), ";")
		return "CREATE " + temporary + strings.ToUpper(string(o.Kind)) + " " + name + " (" + strings.Join(cols, ", ") + ")" + o.withOptions() + " AS " + query
	case Table:
		s := "CREATE " + temporary + "TABLE " + name + " (" + strings.Join(i.tableParts(o, path), ", ") + ")" + o.withOptions()
		if o.OnCommit != "" {
			s += " ON COMMIT " + strings.ToUpper(o.OnCommit)
		}
		return s
	case Source:
		return "CREATE SOURCE " + name + i.sourceParts(o, path)
	case Sink:
		return "CREATE SINK " + name + i.sinkParts(o, path)
	case Sequence:
		return "CREATE " + temporary + "SEQUENCE " + name + " AS " + types.T(types.OID(o.Sequence.Type)).String() + o.Sequence.options()
	case Index:
		if table, ok := i.Snap.Get(o.Index.Table); ok {
			return (&index{name: o.Name, table: objectRelation(table), def: o.Index, object: o}).definition(false)
		}
	}
	return ""
}

// tableParts are the columns and constraints of a table.
func (i *Info) tableParts(o *Object, path []string) []string {
	r := objectRelation(o)
	var parts, constraints []string
	var primary []IndexKey
	for _, x := range indexesOf(i.Snap, r) {
		if x.def.Primary {
			primary = x.def.Keys
		}
		if x.def.Constraint {
			constraints = append(constraints, "CONSTRAINT "+sql.QuoteIdent(x.name)+" "+x.constraint())
		}
	}
	for _, c := range o.Checks {
		constraints = append(constraints, "CONSTRAINT "+sql.QuoteIdent(c.Name)+" CHECK "+parenthesized(c.Text))
	}
	serials := map[types.OID]string{types.OIDInt2: "smallserial", types.OIDInt4: "serial", types.OIDInt8: "bigserial"}
	for _, a := range r.columns {
		s := sql.QuoteIdent(a.Name) + " "
		serial, isSerial := serials[a.Type.OID]
		if isSerial = isSerial && a.Sequence != 0 && a.Identity == ""; !isSerial {
			serial = i.columnType(a.Type, path)
		}
		s += serial
		switch {
		case a.Generated != "":
			s += " GENERATED ALWAYS AS " + parenthesized(a.Generated) + " STORED"
		case a.Identity != "":
			s += " GENERATED " + strings.ToUpper(a.Identity) + " AS IDENTITY"
			if q, ok := i.Snap.Get(a.Sequence); ok {
				if opts := q.Sequence.options(); opts != "" {
					s += " (" + strings.TrimSpace(opts) + ")"
				}
			}
		case a.Default != "" && !isSerial:
			s += " DEFAULT " + i.Snap.defaultText(a.Column, path)
		}
		if a.NotNull && !isSerial && a.Identity == "" && !slices.ContainsFunc(primary, func(k IndexKey) bool { return k.Column == a.pos }) {
			s += " NOT NULL"
		}
		parts = append(parts, s)
	}
	return append(parts, constraints...)
}

// sourceParts is what follows the name of a source.
func (i *Info) sourceParts(o *Object, path []string) string {
	var parts []string
	for _, a := range objectRelation(o).columns {
		s := sql.QuoteIdent(a.Name) + " " + i.columnType(a.Type, path)
		switch {
		case a.Generated != "":
			s += " AS " + a.Generated
		case a.NotNull:
			s += " NOT NULL"
		}
		parts = append(parts, s)
	}
	d := o.Source
	if d.WatermarkColumn != "" {
		parts = append(parts, "WATERMARK FOR "+sql.QuoteIdent(d.WatermarkColumn)+" AS "+d.WatermarkExpr)
	}
	s := " (" + strings.Join(parts, ", ") + ")" + listed(" WITH", sortedKeys(d.Options), d.Options)
	if d.Format != "" {
		s += " FORMAT " + d.Format + " ENCODE " + d.Encode + listed("", sortedKeys(d.EncodeOptions), d.EncodeOptions)
	}
	return s
}

// Hidden is shown in the place of what nobody may see.
const Hidden = "********"

// sinkParts is what follows the name of a sink.
func (i *Info) sinkParts(o *Object, path []string) string {
	d := o.Sink
	s := " AS " + strings.TrimSuffix(strings.TrimSpace(i.Snap.viewDefinition(o, path)), ";")
	if from, ok := i.Snap.Get(d.From); ok {
		s = " FROM " + sql.QuoteIdent(from.Schema) + "." + sql.QuoteIdent(from.Name)
	}
	shown := maps.Clone(d.Options)
	for n, v := range shown {
		shown[n] = withoutPassword(n, v)
	}
	names := sortedKeys(shown)
	for _, n := range o.Options {
		shown[n] = o.Settings[n]
		names = append(names, n)
	}
	s += listed(" WITH", names, shown)
	if d.Format != "" {
		s += " FORMAT " + d.Format + " ENCODE " + d.Encode + listed("", sortedKeys(d.EncodeOptions), d.EncodeOptions)
	}
	return s
}

// withoutPassword hides what a connector's option has to hide: passwords, in options of their own and in URLs.
func withoutPassword(name, value string) string {
	if strings.Contains(strings.ToLower(name), "password") {
		return Hidden
	}
	value = regexp.MustCompile(`(?i)(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)`).ReplaceAllString(value, "${1}"+Hidden)
	u, err := url.Parse(value)
	if err != nil || u.User == nil {
		return value
	}
	if _, has := u.User.Password(); !has {
		return value
	}
	u.User = url.User(u.User.Username())
	user, rest, _ := strings.Cut(u.String(), "@")
	return user + ":" + Hidden + "@" + rest
}

func (i *Info) columnType(t types.Type, path []string) string {
	if name, ok := i.TypeName(uint32(t.OID), path); ok {
		return name
	}
	return t.String()
}

// withOptions are the options that statements gave.
func (o *Object) withOptions() string { return listed(" WITH", o.Options, o.Settings) }

// listed prints options in parentheses after a word; nothing where there are none.
func listed(word string, names []string, values map[string]string) string {
	if len(names) == 0 {
		return ""
	}
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = sql.QuoteIdent(n) + " = " + sql.QuoteLiteral(values[n])
	}
	return word + " (" + strings.Join(parts, ", ") + ")"
}

// options are those that CREATE SEQUENCE would not choose by itself.
func (q *SequenceDef) options() string {
	low, high := int64(1), int64(math.MaxInt64)
	switch types.OID(q.Type) {
	case types.OIDInt2:
		high = math.MaxInt16
	case types.OIDInt4:
		high = math.MaxInt32
	}
	start := q.Min
	if q.Increment < 0 {
		low, high, start = -high-1, -1, q.Max
	}
	var b strings.Builder
	for _, o := range []struct {
		name         string
		value, usual int64
	}{{"INCREMENT BY", q.Increment, 1}, {"MINVALUE", q.Min, low}, {"MAXVALUE", q.Max, high}, {"START WITH", q.Start, start}, {"CACHE", q.Cache, 1}} {
		if o.value != o.usual {
			fmt.Fprintf(&b, " %s %d", o.name, o.value)
		}
	}
	if q.Cycle {
		b.WriteString(" CYCLE")
	}
	return b.String()
}
