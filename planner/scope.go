package planner

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// scopeCol is a column that a name can refer to.
type scopeCol struct {
	name string
	id   int
}

// rangeTable is one named item of FROM, for qualified references.
type rangeTable struct {
	schema, name string // schema is "" for anything with an alias
	cols         []scopeCol
	hidden       []scopeCol // selectable by name, no part of *
	// key are the ids of the columns under which rel stores its rows, primary those of its primary key: all columns follow from them. nil for
	// anything but a table.
	rel          *Relation
	key, primary []int
	// anyName: the qualifier does not matter (expressions over a relation whose name the planner is not told).
	anyName bool
	// procTime is the column of the rows' processing time, of sources only.
	procTime int
	// nullable: an outer join may leave the row out. present is then a column that is NULL exactly there, 0 when there is none.
	nullable bool
	present  int
	// scalar: a function that returns one value; the name stands for that, not for a row.
	scalar bool
	// work: the rows of a recursive query's last iteration.
	work bool
	cte  bool
	// label is what EXPLAIN calls it, nil when all its columns are of relations below.
	label *tableLabel
}

// scope is what column references see at one query level.
type scope struct {
	parent  *scope
	tables  []*rangeTable
	visible []scopeCol // unqualified names and *, merged columns once
	// notYet are FROM items of the same level that cannot be referenced here, for better messages.
	blocked []*rangeTable
	// holder is the clause whose subquery sees this scope as an outer one; nil for the items of a FROM clause.
	holder *exprCtx
}

// outCol is an output column of a query.
type outCol struct {
	name string
	id   int
}

func (s *scope) add(o *scope) error {
	for _, t := range o.tables {
		for _, u := range s.tables {
			if t.name == u.name && t.name != "" && (t.schema == u.schema || t.schema == "" || u.schema == "") {
				return pgerr.Newf(pgerr.DuplicateAlias, "table name \"%s\" specified more than once", t.name)
			}
		}
	}
	s.tables = append(s.tables, o.tables...)
	s.visible = append(s.visible, o.visible...)
	return nil
}

// column resolves a reference of one to three parts. depth is the number of levels up.
func (b *binder) column(s *scope, names []string, pos int) (id int, err error) {
	name := names[len(names)-1]
	switch len(names) {
	case 1:
		for l := s; l != nil; l = l.parent {
			id, n := l.unqualified(name)
			if n > 1 {
				return 0, pgerr.Newf(pgerr.AmbiguousColumn, "column reference \"%s\" is ambiguous", name).At(pos)
			}
			if n == 1 {
				return id, nil
			}
		}
		e := pgerr.Newf(pgerr.UndefinedColumn, "column \"%s\" does not exist", name).At(pos)
		return 0, suggest(e, s, "", name)
	case 2, 3:
		schema, table := "", names[len(names)-2]
		if len(names) == 3 {
			schema = names[0]
		}
		t, err := s.table(schema, table, pos)
		if err != nil {
			return 0, err
		}
		id, n := t.column(name)
		if n > 1 {
			return 0, pgerr.Newf(pgerr.AmbiguousColumn, "column reference \"%s\" is ambiguous", name).At(pos)
		}
		if n == 1 {
			return id, nil
		}
		e := pgerr.Newf(pgerr.UndefinedColumn, "column %s.%s does not exist", table, name).At(pos)
		return 0, suggest(e, s, table, name)
	}
	if b.o.Database != "" && names[0] != b.o.Database {
		return 0, pgerr.Newf(pgerr.FeatureNotSupported, "cross-database references are not implemented: %s", strings.Join(names, ".")).At(pos)
	}
	return b.column(s, names[1:], pos)
}

func (s *scope) unqualified(name string) (id, n int) {
	for _, c := range s.visible {
		if c.name == name {
			id = c.id
			n++
		}
	}
	if n > 0 {
		return id, n
	}
	for _, t := range s.tables {
		for _, c := range t.hidden {
			if c.name == name {
				id = c.id
				n++
			}
		}
	}
	return id, n
}

func (t *rangeTable) column(name string) (id, n int) {
	for _, c := range t.cols {
		if c.name == name {
			id = c.id
			n++
		}
	}
	if n == 0 {
		for _, c := range t.hidden {
			if c.name == name {
				return c.id, 1
			}
		}
	}
	return id, n
}

// table finds the FROM item a qualifier names.
func (s *scope) table(schema, name string, pos int) (*rangeTable, error) {
	for l := s; l != nil; l = l.parent {
		var found *rangeTable
		for _, t := range l.tables {
			if t.anyName || t.name == name && (schema == "" || t.schema == schema) {
				if found != nil {
					return nil, pgerr.Newf(pgerr.AmbiguousAlias, "table reference \"%s\" is ambiguous", name).At(pos)
				}
				found = t
			}
		}
		if found != nil {
			return found, nil
		}
	}
	for l := s; l != nil; l = l.parent {
		for _, t := range l.blocked {
			if t.name == name {
				return nil, pgerr.Newf(pgerr.UndefinedTable, "invalid reference to FROM-clause entry for table \"%s\"", name).
					WithHint("There is an entry for table \"%s\", but it cannot be referenced from this part of the query.", name).At(pos)
			}
		}
		for _, t := range l.tables {
			if schema != "" && t.name == name && t.schema != schema {
				return nil, pgerr.Newf(pgerr.UndefinedTable, "invalid reference to FROM-clause entry for table \"%s\"", name).
					WithHint("There is an entry for table \"%s\", but it cannot be referenced from this part of the query.", name).At(pos)
			}
			if t.rel != nil && t.rel.Name == name && t.name != name {
				return nil, pgerr.Newf(pgerr.UndefinedTable, "invalid reference to FROM-clause entry for table \"%s\"", name).
					WithHint("Perhaps you meant to reference the table alias \"%s\".", t.name).At(pos)
			}
		}
	}
	return nil, pgerr.Newf(pgerr.UndefinedTable, "missing FROM-clause entry for table \"%s\"", name).At(pos)
}

// find returns the FROM item called name at any level, nil when there is none.
func (s *scope) find(name string) *rangeTable {
	for l := s; l != nil; l = l.parent {
		for _, t := range l.tables {
			if t.name == name {
				return t
			}
		}
	}
	return nil
}

// suggest adds PostgreSQL's hint about similar names: the closest within half the name's length, two when equally close.
func suggest(e *pgerr.Error, s *scope, table, name string) error {
	best := max(len(name)/2, 1)
	if len(name) < 2 {
		best = 1
	}
	var found []string
	for l := s; l != nil; l = l.parent {
		for _, t := range l.tables {
			if table != "" && t.name != table {
				continue
			}
			for _, c := range t.cols {
				d := editDistance(c.name, name)
				if d > max(len(c.name), len(name))/2 || d == 0 && table != "" {
					continue
				}
				switch ref := t.name + "." + c.name; {
				case d < best || d == best && len(found) == 0:
					best, found = d, []string{ref}
				case d == best:
					found = append(found, ref)
				}
			}
		}
	}
	switch len(found) {
	case 1:
		e = e.WithHint("Perhaps you meant to reference the column \"%s\".", found[0])
	case 2:
		e = e.WithHint("Perhaps you meant to reference the column \"%s\" or the column \"%s\".", found[0], found[1])
	}
	return e
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diag, row[j] = row[j], min(row[j]+1, row[j-1]+1, diag+cost)
		}
	}
	return row[len(b)]
}

// starCols expands * or t.*.
func (s *scope) starCols(of []string, pos int) ([]scopeCol, error) {
	if len(of) == 0 {
		if len(s.tables) == 0 {
			return nil, pgerr.Newf(pgerr.SyntaxError, "SELECT * with no tables specified is not valid").At(pos)
		}
		return s.visible, nil
	}
	schema := ""
	if len(of) > 1 {
		schema = of[len(of)-2]
	}
	t, err := s.table(schema, of[len(of)-1], pos)
	if err != nil {
		return nil, err
	}
	return t.cols, nil
}

// StarColumn is one column that `*` stands for. Table is empty for a column that only its name finds, as that of JOIN .. USING.
type StarColumn struct {
	Schema, Table, Name string
}

// star records what a `*` at pos stands for.
func (b *binder) star(s *scope, cols []scopeCol, pos int) {
	if pos < 0 || len(b.frames) > 0 {
		return
	}
	out := make([]StarColumn, len(cols))
	for i, c := range cols {
		out[i] = StarColumn{Name: c.name}
		for _, t := range s.tables {
			if id, n := t.column(c.name); n == 1 && id == c.id {
				out[i].Table = t.name
				for _, u := range s.tables {
					if u != t && u.name == t.name {
						out[i].Schema = t.schema
					}
				}
				break
			}
		}
	}
	if b.stars == nil {
		b.stars = map[int][]StarColumn{}
	}
	b.stars[pos] = out
}
