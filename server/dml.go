package server

import (
	"errors"
	"fmt"
	"slices"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// maxConflictRetries is how often a statement outside of a block is run again when another transaction was faster.
const maxConflictRetries = 20

func planChange(st sql.Statement, o planner.Options) (*planner.PlannedChange, error) {
	switch st := st.(type) {
	case *sql.Insert:
		return planner.PlanInsert(st, o)
	case *sql.Update:
		return planner.PlanUpdate(st, o)
	case *sql.Delete:
		return planner.PlanDelete(st, o)
	case *sql.Merge:
		return planner.PlanMerge(st, o)
	}
	return nil, pgerr.Newf(pgerr.InternalError, "%T is not a change", st)
}

// change runs INSERT, UPDATE, DELETE.
func (d *dispatch) change(st sql.Statement) error {
	ss := d.ss
	p := d.pre
	if p == nil || p.change == nil {
		p = &prepared{stmt: st, open: true}
		if err := ss.plan(p); err != nil {
			return err
		}
	} else if err := ss.fresh(p); err != nil {
		return err
	}
	if err := ss.authorize(p); err != nil {
		return err
	}
	obj, err := changeTarget(p.snap, p.change)
	if err != nil {
		return err
	}
	ss.explaining.runs(p)
	if len(p.change.Before) > 0 {
		return d.replanned(p, func() error { return d.changeWith(p, obj, st) }, func() error { return d.change(st) })
	}
	// Alone in its transaction the statement can be run again after a conflict, and UPDATE and DELETE wait for each other instead.
	alone := !ss.tx.explicit && len(ss.tx.writes) == 0 && d.last
	_, insert := st.(*sql.Insert)
	for try := 0; ; try++ {
		ss.explaining.again()
		c := &changer{d: d, p: p, obj: obj}
		err := c.runLocked(insert)
		if err == nil {
			return c.report(st)
		}
		if !alone || !ss.conflicts(p, err) || try == maxConflictRetries {
			return err
		}
		ss.tx.release()
		ss.tx.begin()
		// It may be the table's definition that has changed.
		if err := ss.fresh(p); err != nil {
			return err
		}
		if err := ss.authorize(p); err != nil {
			return err
		}
		if obj, err = changeTarget(p.snap, p.change); err != nil {
			return err
		}
	}
}

// ordersChanges reports whether the statement waits for other statements that change the same table. Who wait for the session's schema changes
// are not waited for.
func (ss *session) ordersChanges() bool {
	return !ss.tx.explicit && (ss.tx.schema == nil || len(ss.tx.schema.fences) == 0)
}

// changer executes one INSERT, UPDATE or DELETE.
type changer struct {
	d      *dispatch
	p      *prepared
	obj    *catalog.Object
	rel    *exec.Relation
	layout *types.RowLayout // of the rows it makes
	w      *tableWrites
	rows   int64
	seen   map[string]bool // keys of the rows that the statement has updated
	moves  []move
	early  bool // duplicates are found by the statement, not by the commit
	// updated are the keys of rows whose place in unique indexes is looked at when all have moved.
	updated   []string
	key, made []byte // of the row that is inserted

	checks    []*expr.Program
	programs  map[*expr.Expr]*expr.Program // of ON CONFLICT
	returning []*expr.Program
	out       *types.Chunk // RETURNING rows
	env       *expr.Env

	view    *statementView                                  // of a statement with several parts
	virtual exec.VirtualTables                              // nil: the session's system relations
	place   func(err error, ch *types.Chunk, row int) error // adds to an error where the row comes from; may be nil
}

// runLocked runs the statement and, when it is alone in its transaction, commits, all under the table's write lock for UPDATE and DELETE.
func (c *changer) runLocked(insert bool) error {
	ss := c.d.ss
	if (!insert || c.p.change.OnConflict != nil) && ss.ordersChanges() {
		unlock, err := ss.lockTable(c.d.ctx, c.obj.ID)
		if err != nil {
			return err
		}
		defer unlock()
	}
	if err := c.run(); err != nil {
		return err
	}
	return c.d.endStatement()
}

func (c *changer) run() error {
	ss := c.d.ss
	rels, err := ss.srv.engine.Relations([]uint64{c.obj.ID})
	if err != nil {
		return err
	}
	c.rel = rels[0]
	if c.layout, err = layoutOf(c.obj); err != nil {
		return err
	}
	c.env = ss.env(c.d.args)
	if err := c.compile(); err != nil {
		return err
	}
	ids := c.p.change.Plan.Inputs
	// A statement that does not commit by itself must find duplicates now, not at the end of its transaction.
	needTarget := c.p.change.OnConflict != nil || ss.tx.explicit || !c.d.last || c.view != nil
	if needTarget {
		ids = append(append([]uint64(nil), ids...), c.obj.ID)
	}
	v := c.view
	if v == nil {
		pins, own, err := ss.pin(c.d.ctx, ids, c.p.indexes(), c.p.snap)
		if err != nil {
			return err
		}
		if own {
			defer pins.Release()
		}
		if err := ss.warnAbout(pins, ids); err != nil {
			return err
		}
		v = &statementView{pins: pins, overlay: ss.tx.overlay(c.p.change.Plan.Inputs)}
	}
	pins := v.pins
	c.w = ss.tx.table(c.rel, c.obj.Constraint)
	if c.w.made == nil {
		c.w.made = c.obj
	}
	c.early = needTarget
	if needTarget {
		if err := c.w.keep(ss, c.obj); err != nil {
			return err
		}
	}
	q := &exec.Query{Plan: c.p.change.Plan, Env: c.env, Pinned: pins, Virtual: c.virtual, Overlay: v.overlay, Profile: ss.explaining.counts()}
	if c.view != nil {
		q.Virtual = &v.tables
	} else if q.Virtual == nil {
		q.Virtual = &systemTables{ss: ss}
	}
	current := pins.Versions[c.obj.ID]
	q.Emit = func(ch *types.Chunk) error {
		for i := range ch.Rows() {
			r := ch.Row(i)
			for range ch.Weight(r) {
				if err := c.row(ch, r, current); err != nil {
					if c.place != nil {
						err = c.place(err, ch, r)
					}
					return err
				}
			}
		}
		if !needTarget && c.p.change.Merge == nil && c.d.kindOf(c.p.stmt) == insertKind { // new rows in a transaction of their own
			if err := c.w.spill(ss.srv.engine); err != nil {
				return err
			}
		}
		return ss.tx.fits(ss.srv.transactionLimit())
	}
	if err := ss.srv.engine.Run(c.d.ctx, q); err != nil {
		return err
	}
	if err := c.applyMoves(current); err != nil {
		return err
	}
	for _, key := range c.updated {
		if row, mine := c.w.row([]byte(key)); mine && row != nil {
			if err := c.checkUnique(current, []byte(key), row); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *changer) compile() error {
	ss := c.d.ss
	lib := ss.srv.registry
	for _, e := range c.p.change.Returning {
		p, err := expr.Compile(e, lib)
		if err != nil {
			return err
		}
		c.returning = append(c.returning, p)
	}
	if c.returning != nil {
		c.out = types.NewChunk(c.p.change.ReturningColumns.Types())
	}
	o := ss.planOptions(c.p.snap, nil)
	for _, ck := range c.obj.Checks {
		q, err := parseExpression(ck.Text)
		if err != nil {
			return err
		}
		e, err := planner.BindScalar(q, c.obj.Stored(), o)
		if err != nil {
			return err
		}
		p, err := expr.Compile(e, lib)
		if err != nil {
			return err
		}
		c.checks = append(c.checks, p)
	}
	return nil
}

// row applies one row of the plan's result.
func (c *changer) row(ch *types.Chunk, r int, current *exec.Version) error {
	n := len(c.obj.Columns)
	c.rows++
	if c.p.change.Merge != nil {
		return c.mergeRow(ch, r, current)
	}
	switch c.d.kindOf(c.p.stmt) {
	case insertKind:
		return c.insert(&types.Chunk{Cols: ch.Cols[:n], N: ch.N}, ch.Cols[n:n+c.p.change.Extra], r, current)
	case updateKind:
		return c.update(&types.Chunk{Cols: ch.Cols[:n], N: ch.N}, &types.Chunk{Cols: ch.Cols[n : 2*n], N: ch.N}, ch.Cols[2*n:], r)
	}
	old := &types.Chunk{Cols: ch.Cols[:n], N: ch.N}
	key, row := c.encode(old, r)
	if c.gone(key) || c.changedByOther(key, row) {
		c.rows--
		return nil
	}
	if err := c.w.put(key, row, nil); err != nil {
		return err
	}
	return c.returnRow(old, ch.Cols[n:n+c.p.change.Extra], r)
}

// gone reports that the statement itself has changed the row already: joined rows of UPDATE … FROM and DELETE … USING may name a row twice.
func (c *changer) gone(key []byte) bool {
	now, mine := c.w.row(key)
	return mine && now == nil
}

// changedByOther reports that another part of the statement has changed the row: only the first change of a row takes place.
func (c *changer) changedByOther(key, row []byte) bool {
	if c.view == nil {
		return false
	}
	now, mine := c.w.row(key)
	return mine && (now == nil || string(now) != string(row))
}

func (c *changer) encode(ch *types.Chunk, r int) (key, row []byte) {
	return c.encodeTo(nil, nil, ch, r)
}

// encodeTo appends the key and the row form of row r.
func (c *changer) encodeTo(key, row []byte, ch *types.Chunk, r int) (_, _ []byte) {
	for _, k := range c.obj.Key {
		key = types.AppendKey(key, ch.Cols[k], r, false, false)
	}
	return key, c.layout.Append(row, ch.Cols, r)
}

func (c *changer) insert(ch *types.Chunk, extra []*types.Vector, r int, current *exec.Version) error {
	if one := c.withRowID(ch, r); one != ch {
		own := make([]*types.Vector, len(extra))
		for i, v := range extra {
			own[i] = types.NewVector(v.Type, 0)
			own[i].Append(v, r)
		}
		ch, extra, r = one, own, 0
	}
	oc := c.p.change.OnConflict
	taken := oc != nil && oc.OfTable && !oc.DoNothing // the row may be taken in by another
	if !taken {
		if err := c.verify(ch, r); err != nil {
			return err
		}
	}
	if oc == nil { // what it makes is copied
		c.key, c.made = c.key[:0], c.made[:0]
	} else {
		c.key, c.made = nil, nil
	}
	c.key, c.made = c.encodeTo(c.key, c.made, ch, r)
	key, row := c.key, c.made
	named := current
	if c.obj.Constraint == "" {
		named = nil // nobody has had the row number before
	}
	existing, exists, err := c.current(named, key)
	if err != nil {
		return err
	}
	if exists && (oc == nil || !oc.Key && len(oc.Arbiters) == 0) {
		return c.duplicate(ch, r)
	}
	// Conflicts of the arbiters are handled before any other is an error; the row with the key may be the one they find.
	at, self, keyTaken := key, key, exists && !oc.Key
	if keyTaken {
		exists, self = false, nil
	}
	for _, u := range c.w.unique {
		if exists || oc == nil || !slices.Contains(oc.Arbiters, u.enc.Spec.ID) {
			continue
		}
		other, taken, err := u.taken(c.w, current, self, row)
		if err != nil {
			return err
		}
		if taken {
			at = []byte(other)
			if existing, exists, err = c.current(current, at); err != nil {
				return err
			}
		}
	}
	if !exists && keyTaken {
		return c.duplicate(ch, r)
	}
	if !exists {
		if taken {
			if err := c.verify(ch, r); err != nil {
				return err
			}
		}
		if err := c.checkUnique(current, key, row); err != nil {
			return err
		}
		if err := c.w.put(key, nil, row); err != nil {
			return err
		}
		if oc != nil {
			// Had it seen a row there, the statement would have done something else.
			c.w.changes.SetAbsent(c.w.changes.Find(key))
			if !oc.OfTable {
				c.touch(key)
			}
		}
		return c.returnRow(ch, extra, r)
	}
	c.rows--
	if oc.DoNothing {
		return nil
	}
	if c.seen[string(at)] && !oc.OfTable {
		return pgerr.Newf(pgerr.CardinalityViolation, "ON CONFLICT DO UPDATE command cannot affect row a second time").
			WithHint("Ensure that no rows proposed for insertion within the same command have duplicate constrained values.")
	}
	existing = append([]byte(nil), existing...)
	if !oc.Whole {
		return c.conflict(oc, existing, at, ch, r)
	}
	if err := c.verify(ch, r); err != nil {
		return err
	}
	c.rows++
	if err := c.replace(at, existing, key, row); err != nil {
		return err
	}
	return c.returnRow(ch, extra, r)
}

// current returns the row at key as the statement sees it.
func (c *changer) current(v *exec.Version, key []byte) (row []byte, ok bool, err error) {
	if row, mine := c.w.row(key); mine {
		return row, row != nil, nil
	}
	if v == nil {
		return nil, false, nil
	}
	return v.Get(0, key)
}

// conflict is ON CONFLICT DO UPDATE of one row.
func (c *changer) conflict(oc *planner.PlannedConflict, existing, key []byte, proposed *types.Chunk, r int) error {
	both := types.NewChunk(append(append([]types.Type(nil), c.layout.Types...), c.layout.Types...))
	n := len(c.layout.Types)
	if err := c.layout.Decode(existing, both.Cols[:n]); err != nil {
		return err
	}
	for i, v := range both.Cols[n:] {
		v.Append(proposed.Cols[i], r)
	}
	both.N = 1
	if oc.Where != nil {
		ok, err := c.eval(oc.Where, both)
		if err != nil {
			return err
		}
		if ok.IsNull(0) || !ok.Bool[0] {
			return nil
		}
	}
	next := types.NewChunk(c.layout.Types)
	for i, e := range oc.Set {
		v, err := c.eval(e, both)
		if err != nil {
			return err
		}
		next.Cols[i].Append(v, 0)
	}
	next.N = 1
	if err := c.verify(next, 0); err != nil {
		return err
	}
	newKey, row := c.encode(next, 0)
	c.rows++
	if !oc.OfTable {
		c.touch(key)
	}
	if err := c.replace(key, existing, newKey, row); err != nil {
		return err
	}
	return c.returnRow(next, nil, 0)
}

// touch remembers that the statement has changed the row with the key.
func (c *changer) touch(key []byte) {
	if c.seen == nil {
		c.seen = map[string]bool{}
	}
	c.seen[string(key)] = true
}

func (c *changer) eval(e *expr.Expr, ch *types.Chunk) (*types.Vector, error) {
	p := c.programs[e]
	if p == nil {
		var err error
		if p, err = expr.Compile(e, c.d.ss.srv.registry); err != nil {
			return nil, err
		}
		if c.programs == nil {
			c.programs = map[*expr.Expr]*expr.Program{}
		}
		c.programs[e] = p
	}
	var errs expr.RowErrors
	v, err := p.Eval(ch, c.env, &errs)
	if err == nil && len(errs.Errs) > 0 {
		err = errs.Errs[0]
	}
	return v, err
}

func (c *changer) update(old, next *types.Chunk, extra []*types.Vector, r int) error {
	oldKey, oldRow := c.encode(old, r)
	if c.seen[string(oldKey)] {
		c.rows-- // joined rows of UPDATE … FROM may name a row twice: the first counts
		return nil
	}
	if c.changedByOther(oldKey, oldRow) {
		c.rows--
		return nil
	}
	c.touch(oldKey)
	if err := c.verify(next, r); err != nil {
		return err
	}
	newKey, newRow := c.encode(next, r)
	if err := c.replace(oldKey, oldRow, newKey, newRow); err != nil {
		return err
	}
	return c.returnRow(next, extra, r)
}

// replace changes a row. Whether its new place in unique indexes is free is looked at when all rows have left their old ones.
func (c *changer) replace(oldKey, oldRow, newKey, newRow []byte) error {
	if c.early && len(c.w.unique) > 0 {
		c.updated = append(c.updated, string(newKey))
	}
	if string(newKey) == string(oldKey) {
		return c.w.put(oldKey, oldRow, newRow)
	}
	// New keys are taken after all old ones are free: SET id = id + 1 must not stumble over itself.
	c.moves = append(c.moves, move{key: newKey, row: newRow})
	return c.w.put(oldKey, oldRow, nil)
}

// move is an updated row whose key has changed.
type move struct{ key, row []byte }

func (c *changer) applyMoves(current *exec.Version) error {
	for _, m := range c.moves {
		_, taken, err := c.current(current, m.key)
		if err != nil {
			return err
		}
		if taken {
			ch := types.NewChunk(c.layout.Types)
			if err := c.layout.Decode(m.row, ch.Cols); err != nil {
				return err
			}
			return c.duplicate(ch, 0)
		}
		if err := c.w.put(m.key, nil, m.row); err != nil {
			return err
		}
	}
	return nil
}

func (c *changer) duplicate(ch *types.Chunk, r int) error {
	err := pgerr.Newf(pgerr.UniqueViolation, "duplicate key value violates unique constraint %q", c.obj.Constraint)
	err.Schema, err.Table, err.Constraint = c.obj.Schema, c.obj.Name, c.obj.Constraint
	names, vals := "", ""
	for i, k := range c.obj.Key {
		if i > 0 {
			names, vals = names+", ", vals+", "
		}
		names += sql.QuoteIdent(c.obj.Columns[k].Name)
		vals += string(types.AppendText(nil, c.env.Format, ch.Cols[k], r))
	}
	return err.WithDetail("Key (%s)=(%s) already exists.", names, vals)
}

// withRowID gives a row of a keyless table its number; other rows are returned as they are.
func (c *changer) withRowID(ch *types.Chunk, r int) *types.Chunk {
	if c.obj.Constraint != "" {
		return ch
	}
	one := types.NewChunk(c.layout.Types)
	for i, v := range one.Cols {
		v.Append(ch.Cols[i], r)
	}
	one.N = 1
	id := types.NewVector(types.Int8, 1)
	id.Int[0] = c.d.ss.srv.tableState(c.obj.ID).nextRow.Add(1)
	one.Cols[c.obj.Key[0]] = id
	return one
}

// verify checks NOT NULL and CHECK constraints of one row.
func (c *changer) verify(ch *types.Chunk, r int) error {
	for i := range c.obj.Columns {
		col := &c.obj.Columns[i]
		if !col.NotNull || !ch.Cols[i].IsNull(r) {
			continue
		}
		err := pgerr.Newf(pgerr.NotNullViolation, "null value in column %q of relation %q violates not-null constraint", col.Name, c.obj.Name)
		err.Schema, err.Table, err.Column = c.obj.Schema, c.obj.Name, col.Name
		return err.WithDetail("Failing row contains (%s).", c.rowText(ch, r))
	}
	if len(c.checks) == 0 {
		return nil
	}
	part := *ch
	part.Sel = []uint16{uint16(r)}
	for i, p := range c.checks {
		var errs expr.RowErrors
		v, err := p.Eval(&part, c.env, &errs)
		if err != nil {
			return err
		}
		if len(errs.Errs) > 0 {
			return errs.Errs[0]
		}
		if !v.IsNull(r) && !v.Bool[r] {
			err := pgerr.Newf(pgerr.CheckViolation, "new row for relation %q violates check constraint %q", c.obj.Name, c.obj.Checks[i].Name)
			err.Schema, err.Table, err.Constraint = c.obj.Schema, c.obj.Name, c.obj.Checks[i].Name
			return err.WithDetail("Failing row contains (%s).", c.rowText(ch, r))
		}
	}
	return nil
}

func (c *changer) rowText(ch *types.Chunk, r int) string {
	s := ""
	for i := range c.obj.Columns {
		if c.obj.Columns[i].Hidden {
			continue
		}
		if s != "" {
			s += ", "
		}
		if ch.Cols[i].IsNull(r) {
			s += "null"
		} else {
			s += string(types.AppendText(nil, c.env.Format, ch.Cols[i], r))
		}
	}
	return s
}

func (c *changer) returnRow(row *types.Chunk, extra []*types.Vector, r int) error {
	if c.returning == nil {
		return nil
	}
	in := types.Chunk{Cols: append(append([]*types.Vector(nil), row.Cols...), extra...), N: row.N, Sel: []uint16{uint16(r)}}
	for i, p := range c.returning {
		var errs expr.RowErrors
		v, err := p.Eval(&in, c.env, &errs)
		if err != nil {
			return err
		}
		if len(errs.Errs) > 0 {
			return errs.Errs[0]
		}
		c.out.Cols[i].Append(v, r)
	}
	c.out.PushWeight(1)
	return nil
}

type changeKind uint8

const (
	insertKind changeKind = iota
	updateKind
	deleteKind
)

func (d *dispatch) kindOf(st sql.Statement) changeKind {
	switch st.(type) {
	case *sql.Insert:
		return insertKind
	case *sql.Update:
		return updateKind
	}
	return deleteKind
}

// report sends the RETURNING rows and the tag; the statement is committed already where it commits by itself.
func (c *changer) report(st sql.Statement) error {
	if c.out != nil {
		if err := c.d.w.RowDescription(fields(c.p.change.ReturningColumns, c.p.change.ReturningOrigins, c.d.formats)); err != nil {
			return err
		}
		for from := 0; from < c.out.N; from += types.MaxChunkRows {
			part := *c.out
			part.Sel = nil
			if c.out.N > types.MaxChunkRows {
				part = *types.NewChunk(c.p.change.ReturningColumns.Types())
				for i, v := range part.Cols {
					v.AppendRange(c.out.Cols[i], from, min(from+types.MaxChunkRows, c.out.N))
				}
				part.N = part.Cols[0].Len()
			}
			if err := c.d.w.Rows(&part); err != nil {
				return err
			}
		}
	}
	if c.p.change.Merge != nil {
		return c.d.w.CommandComplete(fmt.Sprintf("MERGE %d", c.rows))
	}
	switch c.d.kindOf(st) {
	case insertKind:
		return c.d.w.CommandComplete(fmt.Sprintf("INSERT 0 %d", c.rows))
	case updateKind:
		return c.d.w.CommandComplete(fmt.Sprintf("UPDATE %d", c.rows))
	}
	return c.d.w.CommandComplete(fmt.Sprintf("DELETE %d", c.rows))
}

// truncate empties tables.
func (d *dispatch) truncate(st *sql.Truncate) error {
	for _, n := range st.Tables {
		o, ok := d.ss.resolve(n)
		if !ok {
			return unchangeable(n)
		}
		if o.Kind != catalog.Table {
			return pgerr.Newf(pgerr.WrongObjectType, "%q is not a table", n.Name)
		}
		if o.AppendOnly {
			return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "cannot truncate append-only table %q", o.Name).WithHint("DROP it and CREATE it anew.")
		}
		stmts, err := sql.Parse("DELETE FROM " + qualified(o))
		if err != nil {
			return err
		}
		p := &prepared{stmt: stmts[0]}
		if err := d.ss.plan(p); err != nil {
			return err
		}
		c := &changer{d: d, p: p, obj: o}
		if err := c.run(); err != nil {
			return err
		}
		if st.RestartIdentity {
			if err := d.restartIdentity(o); err != nil {
				return err
			}
		}
	}
	return d.complete("TRUNCATE TABLE")
}

func qualified(o *catalog.Object) string {
	return sql.QuoteIdent(o.Schema) + "." + sql.QuoteIdent(o.Name)
}

func undefinedRelation(n sql.Name) error {
	return pgerr.Newf(pgerr.UndefinedTable, "relation %q does not exist", n.Key()).At(n.Pos)
}

// notMine refuses to change a relation of the system, nil for all others: where a name is none of the database's own it may be one of these.
func notMine(n sql.Name) error {
	if _, ok := lookupSystem(n.Schema, n.Name); !ok {
		return nil
	}
	return denied("permission denied: %q is a system catalog", n.Name)
}

// unchangeable is the error of a statement that would change a relation which the database does not have.
func unchangeable(n sql.Name) error {
	if err := notMine(n); err != nil {
		return err
	}
	return atNowhere(undefinedRelation(n))
}

// atNowhere takes the position from an error of a statement for which PostgreSQL reports none.
func atNowhere(err error) error {
	var e *pgerr.Error
	if errors.As(err, &e) {
		e.Pos = -1
	}
	return err
}

// parseExpression parses the text of a stored expression.
func parseExpression(text string) (*sql.Query, error) {
	stmts, err := sql.Parse("SELECT " + text)
	if err != nil {
		return nil, err
	}
	q, ok := stmts[0].(*sql.Query)
	if !ok || len(stmts) != 1 {
		return nil, pgerr.Newf(pgerr.SyntaxError, "not an expression: %s", text)
	}
	return q, nil
}
