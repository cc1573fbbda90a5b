package server

import (
	"context"
	"math"
	"slices"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// Some changes of a table give each row values of its own, or a new key. They replace all rows, as writes of the transaction, in a form of their
// own: the table that the transaction sees from then on has nothing but these. Others go on with the old form until the commit changes both at
// once. Readers of the change log see nothing of it, as nobody reads a column that changes.

// rewriting is a table all of whose rows a transaction replaces.
type rewriting struct {
	rel     *exec.Relation // as the transaction sees it
	columns []int          // that changed
}

// neverBuilt is when an index was filled that has to be filled again at a start from any checkpoint.
const neverBuilt = math.MaxUint64

// rewriteBatch is how many rows are computed together.
const rewriteBatch = types.MaxChunkRows

// newRows is what a change of a table computes for each row.
type newRows struct {
	values  map[int]*expr.Expr // by column, over the columns before the change
	rowID   int                // the column that numbers the rows, -1: none
	keyed   bool               // by other values than before
	columns []int              // that changed
}

// set has a column computed for every row.
func (a *alteration) set(column int, e *expr.Expr) {
	n := a.replaces()
	n.values[column] = e
	n.columns = append(n.columns, column)
	n.keyed = n.keyed || slices.Contains(a.o.Key, column)
}

func (a *alteration) replaces() *newRows {
	if a.rows == nil {
		a.rows = &newRows{values: map[int]*expr.Expr{}, rowID: -1}
	}
	return a.rows
}

// rewriter computes the new rows.
type rewriter struct {
	a        *alteration
	programs map[int]*expr.Program
	checks   []*expr.Program
	env      *expr.Env
	from, to *types.RowLayout
	w        *tableWrites
	rel      *exec.Relation

	old        *types.Chunk
	keys, rows [][]byte // of old, where they come from the table; rows are nil where they are the transaction's own
	moves      []move   // rows under new keys: all old ones are free by then
}

// rewrite replaces all rows.
func (a *alteration) rewrite() error {
	d, ss, srv := a.d, a.d.ss, a.d.ss.srv
	if err := d.fence(a.old); err != nil {
		return err
	}
	a.o.Rewrites++
	a.o.Terms++
	r := &rewriter{a: a, programs: map[int]*expr.Program{}, env: ss.env(nil)}
	var err error
	for i, e := range a.rows.values {
		if r.programs[i], err = expr.Compile(e, srv.registry); err != nil {
			return err
		}
	}
	opts := a.options()
	for _, ck := range a.o.Checks {
		q, err := parseExpression(ck.Text)
		if err != nil {
			return err
		}
		e, err := planner.BindDefinition(q, a.o.Stored(), "", types.Bool, "check constraints", opts)
		if err != nil {
			return err
		}
		p, err := expr.Compile(e, srv.registry)
		if err != nil {
			return err
		}
		if ck.NotValid {
			p = nil
		}
		r.checks = append(r.checks, p)
	}
	if r.to, err = layoutOf(a.o); err != nil {
		return err
	}
	before := ss.tx.rewritten[a.o.ID]
	if before != nil {
		r.rel = before.rel
	} else if rels, err := srv.engine.Relations([]uint64{a.o.ID}); err != nil {
		return err
	} else {
		r.rel = rels[0]
	}
	r.w = ss.tx.table(r.rel, a.old.Constraint)
	if r.w.made == nil {
		r.w.made = a.old
	}
	r.w.unique = nil // in the old form
	if err := r.all(); err != nil {
		return err
	}
	after, err := r.rel.Rewritten(a.o.Stored(), a.o.Key, r.to)
	if err != nil {
		return err
	}
	now := &rewriting{rel: after, columns: slices.Clone(a.rows.columns)}
	if before != nil {
		now.columns = append(now.columns, before.columns...)
	}
	if ss.tx.snapshot == nil {
		ss.tx.snapshot = srv.engine.Snapshot()
	}
	constraint, rel := r.w.constraint, r.w.rel
	d.atRollback(func(context.Context) error {
		ss.tx.see(a.o.ID, before, rel, constraint)
		return nil
	})
	ss.tx.see(a.o.ID, now, after, a.o.Constraint)
	if before == nil {
		return d.atCommit(func(context.Context) error { return ss.indexesBuilt(a.o.ID) })
	}
	return nil
}

// see has the transaction see the table as rel, which is the rewritten one or, with nil, the one of all.
func (t *txn) see(id uint64, now *rewriting, rel *exec.Relation, constraint string) {
	if w := t.writes[id]; w != nil {
		w.rel, w.constraint, w.unique, w.whole = rel, constraint, nil, now != nil
	}
	if t.rewritten == nil {
		t.rewritten = map[uint64]*rewriting{}
	}
	if now == nil {
		delete(t.rewritten, id)
		t.snapshot.Renew(id)
		return
	}
	t.rewritten[id] = now
	t.snapshot.Replace(now.rel.Latest())
}

// all goes through the rows of the table as the transaction sees it.
func (r *rewriter) all() error {
	v := r.rel.Latest()
	if v == nil {
		return nil
	}
	defer v.Release()
	r.from = v.Layout()
	r.old = types.NewChunk(r.from.Types)
	own := r.w.changes.Own()
	limit := r.a.d.ss.srv.transactionLimit()
	each := func(key, row []byte) error {
		if err := r.from.Decode(row, r.old.Cols); err != nil {
			return err
		}
		r.old.N++
		r.keys = append(r.keys, slices.Clone(key))
		if own.Has(key) {
			row = nil
		}
		r.rows = append(r.rows, slices.Clone(row))
		if r.old.N < rewriteBatch {
			return nil
		}
		if err := r.batch(); err != nil {
			return err
		}
		if err := context.Cause(r.a.d.ctx); err != nil {
			return err
		}
		return r.fits(limit)
	}
	if err := v.Each(own, each); err != nil {
		return err
	}
	if err := own.InOrder(each); err != nil {
		return err
	}
	if err := r.batch(); err != nil {
		return err
	}
	for _, m := range r.moves {
		if row, mine := r.w.row(m.key); mine && row != nil {
			return r.duplicate(m.row)
		}
		r.w.changes.Put(m.key, nil, m.row)
	}
	return r.fits(limit)
}

func (r *rewriter) fits(limit int64) error {
	n := int64(0)
	for _, m := range r.moves {
		n += int64(len(m.key) + len(m.row))
	}
	if err := r.a.d.ss.tx.fits(limit - n); err != nil {
		return pgerr.Newf(pgerr.ProgramLimitExceeded, "table %q is too large to replace all its rows: they exceed the limit of %s for a transaction", r.a.o.Name, bytesText(limit)).
			WithHint("Raise %s with ALTER SYSTEM SET.", settingMaxTransaction)
	}
	return nil
}

// batch computes the rows collected so far.
func (r *rewriter) batch() error {
	a := r.a
	if r.old.N == 0 {
		return nil
	}
	next := &types.Chunk{N: r.old.N, Cols: make([]*types.Vector, len(a.o.Columns))}
	for i := range a.o.Columns {
		switch p := r.programs[i]; {
		case p != nil:
			var errs expr.RowErrors
			v, err := p.Eval(r.old, r.env, &errs)
			if err != nil {
				return err
			}
			if len(errs.Errs) > 0 {
				return errs.Errs[0]
			}
			own := types.NewVector(a.o.Columns[i].Type, 0)
			own.AppendRange(v, 0, r.old.N)
			next.Cols[i] = own
		case i == a.rows.rowID:
			state := a.d.ss.srv.tableState(a.o.ID)
			v := types.NewVector(types.Int8, r.old.N)
			for k := range v.Int {
				v.Int[k] = state.nextRow.Add(1)
			}
			next.Cols[i] = v
		default:
			next.Cols[i] = r.old.Cols[i]
		}
	}
	if err := r.verify(next); err != nil {
		return err
	}
	for i := range next.N {
		row := r.to.Append(nil, next.Cols, i)
		if !a.rows.keyed {
			r.w.changes.Put(r.keys[i], r.rows[i], row)
			continue
		}
		r.w.changes.Put(r.keys[i], r.rows[i], nil)
		var key []byte
		for _, k := range a.o.Key {
			key = types.AppendKey(key, next.Cols[k], i, false, false)
		}
		r.moves = append(r.moves, move{key: key, row: row})
	}
	r.old.Reset()
	r.keys, r.rows = r.keys[:0], r.rows[:0]
	return nil
}

// verify looks at what is asked of the values that are new.
func (r *rewriter) verify(c *types.Chunk) error {
	o := r.a.o
	for i := range o.Columns {
		if r.programs[i] == nil || !o.Columns[i].NotNull {
			continue
		}
		for k := range c.N {
			if c.Cols[i].IsNull(k) {
				return r.a.containsNull(i)
			}
		}
	}
	for k, p := range r.checks {
		if p == nil {
			continue
		}
		v, err := p.Eval(c, r.env, nil)
		if err != nil {
			return err
		}
		for i := range c.N {
			if !v.IsNull(i) && !v.Bool[i] {
				return r.a.violated(o.Checks[k].Name)
			}
		}
	}
	return nil
}

func (a *alteration) containsNull(column int) error {
	e := pgerr.Newf(pgerr.NotNullViolation, "column %q of relation %q contains null values", a.o.Columns[column].Name, a.o.Name)
	e.Schema, e.Table, e.Column = a.o.Schema, a.o.Name, a.o.Columns[column].Name
	return e
}

// duplicate is the error of two rows with the same primary key.
func (r *rewriter) duplicate(row []byte) error {
	o := r.a.o
	spec := &exec.IndexSpec{Name: o.Constraint, Unique: true}
	for _, k := range o.Key {
		spec.Keys = append(spec.Keys, exec.IndexKey{Expr: expr.Col(k, o.Columns[k].Type), Label: catalog.IndexKeyText(catalog.IndexKey{Column: k}, o)})
	}
	rel, err := r.rel.Rewritten(o.Stored(), o.Key, r.to)
	if err != nil {
		return err
	}
	enc, err := exec.NewIndexEncoder(spec, rel, r.a.d.ss.srv.registry)
	if err != nil {
		return err
	}
	return located(enc.Duplicate(row, true), o)
}

// reindex has the commit fill the indexes of the rewritten table anew, and finds rows that unique ones cannot hold.
func (a *alteration) reindex() error {
	d, ss := a.d, a.d.ss
	var changed []*catalog.Object
	for _, x := range ss.snapshot().IndexesOf(a.o.ID) {
		spec, err := ss.srv.indexSpec(ss.snapshot(), x, a.o)
		if err != nil {
			return err
		}
		c, def := *x, *x.Index
		def.Keys, def.Built = slices.Clone(def.Keys), neverBuilt
		for i := range def.Keys {
			if err := ordered(spec.Keys[i].Expr.Type); err != nil {
				return err
			}
			if def.Keys[i].Column < 0 {
				def.Keys[i].Type = spec.Keys[i].Expr.Type
			}
		}
		c.Index = &def
		changed = append(changed, &c)
	}
	if err := ss.update(func(tx *catalog.Tx) error {
		for _, x := range changed {
			if err := tx.Replace(x); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	w := ss.tx.writes[a.o.ID]
	for _, x := range changed {
		if !x.Index.Unique || !slices.ContainsFunc(a.rows.columns, func(i int) bool { return a.indexDepends(x, i) }) {
			continue
		}
		spec, err := ss.srv.indexSpec(ss.snapshot(), x, a.o)
		if err == nil {
			err = d.uncommitted(x, a.o, spec)
		}
		if err != nil {
			return err
		}
	}
	w.unique = nil // what has so many rows is made anew where it is needed
	return nil
}

// indexesBuilt notes, after the commit, that the indexes of a rewritten table are filled.
func (ss *session) indexesBuilt(table uint64) error {
	return ss.srv.catalog.Update(func(tx *catalog.Tx) error {
		for _, x := range tx.Snapshot().IndexesOf(table) {
			if x.Index.Built != neverBuilt {
				continue
			}
			c, def := *x, *x.Index
			def.Built = ss.written
			c.Index = &def
			if err := tx.Replace(&c); err != nil {
				return err
			}
		}
		return nil
	})
}

// rewriteOf is what the engine has to know to commit the new rows of a table, nil: they were not all replaced.
func (ss *session) rewriteOf(id uint64) (*exec.Rewrite, error) {
	r := ss.tx.rewritten[id]
	if r == nil {
		return nil, nil
	}
	snap := ss.snapshot()
	o, ok := snap.Get(id)
	if !ok {
		return nil, nil
	}
	out := &exec.Rewrite{Columns: r.columns}
	for _, x := range snap.IndexesOf(id) {
		spec, err := ss.srv.indexSpec(snap, x, o)
		if err != nil {
			return nil, err
		}
		out.Indexes = append(out.Indexes, spec)
	}
	return out, nil
}
