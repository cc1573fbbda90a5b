package server

import (
	"slices"
	"strconv"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
)

// likeCopy is what LIKE clauses give a table beyond its columns and CHECK constraints.
type likeCopy struct {
	key        []sql.Ident // of the primary key
	keyComment [2]string   // of its constraint and of its index
	indexes    []*catalog.Object
	names      [][]string                   // per index, those of its keys
	identities map[int]*catalog.SequenceDef // per identity column, the sequence to copy
}

// like adds the columns of another relation to a definition, with what INCLUDING names.
func (d *dispatch) like(l *sql.TableLike, o *catalog.Object, out *likeCopy) error {
	from, ok := d.ss.resolve(l.Name)
	if !ok {
		return undefinedRelation(l.Name)
	}
	switch from.Kind {
	case catalog.Index:
		return pgerr.Newf(pgerr.WrongObjectType, "relation %q is invalid in LIKE clause", from.Name).WithDetail("This operation is not supported for indexes.").At(l.Name.Pos)
	case catalog.Sequence:
		return pgerr.Newf(pgerr.WrongObjectType, "relation %q is invalid in LIKE clause", from.Name).WithDetail("This operation is not supported for sequences.").At(l.Name.Pos)
	}
	if err := d.ss.mayRelation(from, catalog.PrivSelect, nil); err != nil {
		return err
	}
	at := make([]int, len(from.Columns)) // where its columns are in the new table
	for i, c := range from.Columns {
		at[i] = -1
		if c.Hidden || c.Dropped {
			continue
		}
		if o.Column(c.Name) >= 0 {
			return pgerr.Newf(pgerr.DuplicateColumn, "column %q specified more than once", c.Name)
		}
		n := catalog.Column{Name: c.Name, Type: c.Type, NotNull: c.NotNull}
		if l.Including(sql.LikeDefaults) && c.Identity == "" {
			if n.Default = c.Default; c.Sequence != 0 {
				n.Default = "nextval('" + strconv.FormatUint(c.Sequence, 10) + "'::regclass)"
			}
		}
		if l.Including(sql.LikeGenerated) {
			n.Generated = c.Generated
		}
		if l.Including(sql.LikeComments) {
			n.Comment = c.Comment
		}
		at[i] = len(o.Columns)
		if q, ok := d.ss.snapshot().Get(c.Sequence); ok && c.Identity != "" && l.Including(sql.LikeIdentity) {
			n.Identity = c.Identity
			if out.identities == nil {
				out.identities = map[int]*catalog.SequenceDef{}
			}
			out.identities[at[i]] = q.Sequence
		}
		o.Columns = append(o.Columns, n)
	}
	if from.Kind != catalog.Table {
		return nil
	}
	if l.Including(sql.LikeConstraints) {
		for _, c := range from.Checks {
			if c.NotValid = false; !l.Including(sql.LikeComments) {
				c.Comment = ""
			}
			if slices.ContainsFunc(o.Checks, func(h catalog.Check) bool { return h.Name == c.Name }) {
				return errSecondConstraint(c.Name, o.Name)
			}
			o.Checks = append(o.Checks, c)
		}
	}
	if l.Including(sql.LikeIndexes) {
		return d.likeIndexes(l, from, o.Name, at, out)
	}
	return nil
}

// likeIndexes copies the primary key and the indexes of a table; at is where its columns are in the new one, named table.
func (d *dispatch) likeIndexes(l *sql.TableLike, from *catalog.Object, table string, at []int, out *likeCopy) error {
	if from.Constraint != "" {
		if out.key != nil {
			return errSecondKey(table, -1)
		}
		for _, k := range from.Key {
			out.key = append(out.key, sql.Ident{Name: from.Columns[k].Name, Pos: -1})
		}
		if l.Including(sql.LikeComments) {
			out.keyComment = [2]string{from.ConstraintComment, from.KeyComment}
		}
	}
	for _, x := range d.ss.snapshot().IndexesOf(from.ID) {
		def := *x.Index
		def.Table, def.Built, def.Keys, def.Include = 0, 0, slices.Clone(def.Keys), slices.Clone(def.Include)
		var names []string
		for i := range def.Keys {
			k := &def.Keys[i]
			if k.Column >= 0 {
				names, k.Column = append(names, from.Columns[k.Column].Name), at[k.Column]
				continue
			}
			q, err := parseExpression(k.Expr)
			if err != nil {
				return err
			}
			names = append(names, expressionName(q))
		}
		for i, c := range def.Include {
			names, def.Include[i] = append(names, from.Columns[c].Name), at[c]
		}
		if def.Primary { // a key made by ALTER TABLE
			if out.key != nil {
				return errSecondKey(table, -1)
			}
			out.key = []sql.Ident{}
			for _, n := range names[:len(def.Keys)] {
				out.key = append(out.key, sql.Ident{Name: n, Pos: -1})
			}
			if l.Including(sql.LikeComments) {
				out.keyComment = [2]string{x.ConstraintComment, x.Comment}
			}
			continue
		}
		c := &catalog.Object{Kind: catalog.Index, SearchPath: x.SearchPath, Index: &def}
		if l.Including(sql.LikeComments) {
			c.Comment, c.ConstraintComment = x.Comment, x.ConstraintComment
		}
		out.indexes, out.names = append(out.indexes, c), append(out.names, names)
	}
	return nil
}

// settle names the copied indexes, once the table has its own.
func (l *likeCopy) settle(d *dispatch, o *catalog.Object, indexes []*catalog.Object) []*catalog.Object {
	for i, x := range l.indexes {
		suffix := "idx"
		if x.Index.Constraint {
			suffix = "key"
		}
		x.Schema, x.Temporary = o.Schema, o.Temporary
		x.Name = freeName(d.ss.snapshot(), o.Schema, o.Name, l.names[i], suffix, func(name string) bool {
			return name == o.Name || name == o.Constraint || slices.ContainsFunc(indexes, func(y *catalog.Object) bool { return y.Name == name })
		})
		indexes = append(indexes, x)
	}
	return indexes
}

func errSecondKey(table string, pos int) error {
	return pgerr.Newf(pgerr.InvalidTableDefinition, "multiple primary keys for table %q are not allowed", table).At(pos)
}

func errSecondConstraint(name, table string) error {
	return pgerr.Newf(pgerr.DuplicateObject, "constraint %q for relation %q already exists", name, table)
}
