package catalog

import (
	"strings"
	"sync"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// recorded is the content of a system relation as PostgreSQL has it. Read-only.
type recorded struct {
	rows *types.Chunk // all columns of the relation
	cols map[string]int
	err  error
}

// recordings maps a relation of pg_catalog to its recorded content; each is read on first use.
var recordings = func() map[string]func() *recorded {
	m := map[string]func() *recorded{}
	for _, name := range [...]string{
		"pg_aggregate", "pg_am", "pg_collation", "pg_language", "pg_opclass", "pg_operator", "pg_opfamily", "pg_proc", "pg_tablespace", "pg_type",
	} {
		m[name] = sync.OnceValue(func() *recorded { return readRecorded(name) })
	}
	return m
}()

func readRecorded(name string) *recorded {
	r := &recorded{cols: map[string]int{}}
	rel, ok := LookupSystem(PgCatalog, name)
	if !ok {
		r.err = pgerr.Newf(pgerr.InternalError, "system relation %q is missing", name)
		return r
	}
	data, err := systemFiles.ReadFile("data/" + name + ".tsv")
	if err != nil {
		r.err = pgerr.Wrap(pgerr.InternalError, err, "read the rows of %s", name)
		return r
	}
	var ts []types.Type
	for i, c := range rel.Columns {
		if c.Hidden { // at the end
			break
		}
		ts = append(ts, c.Type)
		r.cols[c.Name] = i
	}
	r.rows = types.NewChunk(ts)
	_, body, _ := strings.Cut(string(data), "\n")
	unescape := strings.NewReplacer(`\\`, `\`, `\t`, "\t", `\n`, "\n", `\r`, "\r")
	for line := range strings.Lines(body) {
		fields := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(fields) != len(ts) {
			r.err = pgerr.Newf(pgerr.InternalError, "a row of %s has %d fields instead of %d", name, len(fields), len(ts))
			return r
		}
		for i, f := range fields {
			v := r.rows.Cols[i]
			if f == `\N` {
				v.AppendNull()
				continue
			}
			d, err := types.ParseText(nil, ts[i], unescape.Replace(f))
			if err != nil {
				r.err = pgerr.Wrap(pgerr.InternalError, err, "read %s.%s", name, rel.Columns[i].Name)
				return r
			}
			v.AppendDatum(d)
		}
		r.rows.PushWeight(1)
	}
	return r
}

// int returns the number in a column of row i.
func (r *recorded) int(i int, column string) int64 { return r.rows.Cols[r.cols[column]].Int[i] }

// str returns the text in a column of row i.
func (r *recorded) str(i int, column string) string { return r.rows.Cols[r.cols[column]].Str[i] }

// typeForm is what pg_attribute repeats of a column's type.
type typeForm struct {
	len       int64
	byVal     bool
	align     string
	storage   string
	collation int64
}

var typeForms = sync.OnceValue(func() map[types.OID]typeForm {
	m := map[types.OID]typeForm{}
	r := recordings["pg_type"]()
	if r.err != nil {
		return m
	}
	for i := range r.rows.N {
		m[types.OID(r.int(i, "oid"))] = typeForm{
			len: r.int(i, "typlen"), byVal: r.rows.Cols[r.cols["typbyval"]].Bool[i], align: r.str(i, "typalign"), storage: r.str(i, "typstorage"),
			collation: r.int(i, "typcollation"),
		}
	}
	return m
})
