package exec

import (
	"context"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// indexBatch is how many rows a new index takes from its table per turn on the clock's goroutine: commits wait no longer than that.
const indexBatch = 1024

// IndexSpec says what an index holds of the rows of its table.
type IndexSpec struct {
	ID    uint64
	Name  string
	Table uint64
	Keys  []IndexKey
	// Unique refuses rows with equal keys; keys with a NULL are equal to none unless NullsNotDistinct.
	Unique, NullsNotDistinct bool
	Where                    *expr.Expr // over the stored columns; rows for which it is not true are not in the index
}

// IndexKey is a part of an index's key: an expression over the stored columns of the table.
type IndexKey struct {
	Expr             *expr.Expr
	Label            string // as messages show it
	Desc, NullsFirst bool
}

// IndexEncoder makes the entries of an index. It owns scratch space: every user has one of its own.
type IndexEncoder struct {
	Spec  *IndexSpec
	keys  []*expr.Program
	where *expr.Program
	env   *expr.Env
	row   *types.Chunk
	form  *rowForm
	of    *types.RowLayout // of row
	buf   []byte
}

// NewIndexEncoder prepares the expressions of an index over the rows of a table.
func NewIndexEncoder(spec *IndexSpec, rel *Relation, lib expr.Library) (*IndexEncoder, error) {
	return newIndexEncoder(spec, rel.form.Load(), lib)
}

func newIndexEncoder(spec *IndexSpec, form *rowForm, lib expr.Library) (*IndexEncoder, error) {
	x := &IndexEncoder{Spec: spec, form: form, env: &expr.Env{Format: types.DefaultFormat()}}
	for i := range spec.Keys {
		p, err := expr.Compile(spec.Keys[i].Expr, lib)
		if err != nil {
			return nil, err
		}
		x.keys = append(x.keys, p)
	}
	if spec.Where != nil {
		p, err := expr.Compile(spec.Where, lib)
		if err != nil {
			return nil, err
		}
		x.where = p
	}
	return x, nil
}

// fresh empties the row, which has the columns that the table has now.
func (x *IndexEncoder) fresh() {
	if l := x.form.layout.Load(); x.row == nil || l != x.of {
		x.of, x.row = l, types.NewChunk(l.Types)
	}
	x.row.Reset()
}

// Entry returns the key under which an index holds the row, which lies at pk in its table; nil when the index does not hold it. Keys of a
// unique index that are equal to no other, and all of other indexes, end in pk. The key is valid until the next call. shared reports that
// another row may not have it.
func (x *IndexEncoder) Entry(row, pk []byte) (key []byte, shared bool, err error) {
	x.fresh()
	if err := decodeRow(row, x.row, x.of); err != nil {
		return nil, false, err
	}
	if x.where != nil {
		v, err := x.where.Eval(x.row, x.env, nil)
		if err != nil {
			return nil, false, err
		}
		if v.IsNull(0) || !v.Bool[0] {
			return nil, false, nil
		}
	}
	x.buf = x.buf[:0]
	null := false
	for i, p := range x.keys {
		v, err := p.Eval(x.row, x.env, nil)
		if err != nil {
			return nil, false, err
		}
		null = null || v.IsNull(0)
		x.buf = types.AppendKey(x.buf, v, 0, x.Spec.Keys[i].Desc, x.Spec.Keys[i].NullsFirst)
	}
	if !x.Spec.Unique || null && !x.Spec.NullsNotDistinct {
		x.buf = append(x.buf, pk...)
		return x.buf, false, nil
	}
	return x.buf, true, nil
}

// Duplicate is the error for a row whose key another row has already. creating: an index is made over them.
func (x *IndexEncoder) Duplicate(row []byte, creating bool) error {
	err := pgerr.Newf(pgerr.UniqueViolation, "duplicate key value violates unique constraint %q", x.Spec.Name)
	verb := "already exists"
	if creating {
		err = pgerr.Newf(pgerr.UniqueViolation, "could not create unique index %q", x.Spec.Name)
		verb = "is duplicated"
	}
	err.Constraint = x.Spec.Name
	x.fresh()
	if derr := decodeRow(row, x.row, x.of); derr != nil {
		return err
	}
	var labels, vals []string
	for i, p := range x.keys {
		v, verr := p.Eval(x.row, x.env, nil)
		if verr != nil {
			return err
		}
		text := "null"
		if !v.IsNull(0) {
			text = string(types.AppendText(nil, x.env.Format, v, 0))
		}
		labels, vals = append(labels, x.Spec.Keys[i].Label), append(vals, text)
	}
	return err.WithDetail("Key (%s)=(%s) %s.", strings.Join(labels, ", "), strings.Join(vals, ", "), verb)
}

// tableIndex is an index of a table. It belongs to the clock's goroutine.
type tableIndex struct {
	enc  *IndexEncoder
	part *state.Part
	// stale: after a restart from a checkpoint without it the index is filled again once the write-ahead log was applied.
	stale bool
	// filling: not all rows are in it yet; no version shows it.
	filling bool
}

// indexChange is what one row of a transaction changes in an index.
type indexChange struct {
	at        int // in the transaction's changes
	drop, put []byte
	shared    bool
}

// phases are the steps of changeIndexes: where changes come in several parts, dropPhase of all precedes putPhase of the first.
type phases uint8

const (
	dropPhase phases = 1 << iota
	putPhase
	bothPhases = dropPhase | putPhase
)

// changeIndexes brings the indexes of the table to the changes, which the table itself has already. Entries that go are taken out before any is put
// in: within a transaction values may move from row to row.
func (t *Table) changeIndexes(changes []Change, undo []undoStep, check bool, p phases) ([]undoStep, error) {
	for _, x := range t.indexes {
		if x.stale {
			continue
		}
		todo := make([]indexChange, 0, len(changes))
		for i := range changes {
			ch := &changes[i]
			c := indexChange{at: i}
			if ch.Old != nil {
				key, _, err := x.enc.Entry(ch.Old, ch.Key)
				if err != nil {
					return undo, err
				}
				c.drop = append([]byte(nil), key...)
			}
			if ch.New != nil {
				key, shared, err := x.enc.Entry(ch.New, ch.Key)
				if err != nil {
					return undo, err
				}
				c.put, c.shared = append([]byte(nil), key...), shared
			}
			// While the index is filled an entry may be missing that does not change: filling passes over the row, which did.
			if x.filling || string(c.drop) != string(c.put) {
				todo = append(todo, c)
			}
		}
		for i := range todo {
			c := &todo[i]
			if len(c.drop) == 0 || p&dropPhase == 0 {
				continue
			}
			pk, ok, err := x.part.Get(0, c.drop)
			if err != nil {
				return undo, err
			}
			if !ok || string(pk) != string(changes[c.at].Key) {
				continue // not filled so far yet
			}
			undo = append(undo, undoStep{part: x.part, key: c.drop, old: append([]byte{}, pk...)})
			x.part.Delete(0, c.drop)
		}
		for i := range todo {
			c := &todo[i]
			if len(c.put) == 0 || p&putPhase == 0 {
				continue
			}
			ch := &changes[c.at]
			if c.shared && check {
				_, ok, err := x.part.Get(0, c.put)
				if err != nil {
					return undo, err
				}
				if ok && ch.Absent {
					return undo, errConcurrentUpdate()
				}
				if ok {
					return undo, x.enc.Duplicate(ch.New, false)
				}
			}
			// Nobody else has the key: what had it before was taken out above.
			undo = append(undo, undoStep{part: x.part, key: c.put})
			x.part.Put(0, c.put, ch.Key)
		}
	}
	return undo, nil
}

func errConcurrentUpdate() error {
	return pgerr.Newf(pgerr.SerializationFailure, "could not serialize access due to concurrent update").
		WithHint("The transaction might succeed if retried.")
}

// publish makes the table's content a version.
func (t *Table) publish(epoch, through uint64) {
	var views []indexView
	for _, x := range t.indexes {
		if !x.stale && !x.filling {
			views = append(views, indexView{id: x.enc.Spec.ID, view: x.part.View()})
		}
	}
	t.rel.publishIndexed(epoch, through, t.view(), views)
}

// indexView is the content of an index in a version.
type indexView struct {
	id   uint64
	view *state.View
}

// index returns the content of an index, nil when the version does not have it.
func (v *Version) index(id uint64) *state.View {
	for i := range v.indexes {
		if v.indexes[i].id == id {
			return v.indexes[i].view
		}
	}
	return nil
}

// IndexGet returns the key of the row that has the given key in a unique index; known is false when the version does not have the index.
func (v *Version) IndexGet(id uint64, key []byte) (pk []byte, ok, known bool, err error) {
	w := v.index(id)
	if w == nil {
		return nil, false, false, nil
	}
	pk, ok, err = w.Get(0, key)
	return pk, ok, true, err
}

func (e *Engine) openIndex(spec *IndexSpec) (*Table, *tableIndex, error) {
	t := e.tables.byID[spec.Table]
	if t == nil {
		return nil, nil, pgerr.Newf(pgerr.UndefinedTable, "relation %d does not exist any more", spec.Table)
	}
	enc, err := NewIndexEncoder(spec, t.rel, e.cfg.Lib)
	if err != nil {
		return nil, nil, err
	}
	p, err := e.tables.store.Part(uint32(spec.ID), 0, state.Range{From: 0, To: uint16(e.cfg.MaxPar)}, state.Ordered)
	if err != nil {
		return nil, nil, err
	}
	return t, &tableIndex{enc: enc, part: p}, nil
}

// OpenIndex makes an index known at a restart, before Replay. built is the epoch at which it was filled: a checkpoint of the tables that is not
// newer does not have all of it.
func (e *Engine) OpenIndex(spec *IndexSpec, built uint64) error {
	t, x, err := e.openIndex(spec)
	if err != nil {
		return err
	}
	restored := e.tablesEpoch()
	if restored <= built {
		x.stale = true
		clearPart(x.part)
	}
	t.indexes = append(t.indexes, x)
	t.publish(restored, restored)
	return nil
}

// refillIndexes fills the indexes that the restored checkpoint did not have. It runs before the clock.
func (tb *tables) refillIndexes() error {
	for _, t := range tb.byID {
		filled := false
		for _, x := range t.indexes {
			if !x.stale {
				continue
			}
			if err := x.fillFrom(t.part); err != nil {
				return err
			}
			x.stale, filled = false, true
		}
		if filled {
			now := tb.engine.clock.closed.Load()
			t.publish(now, now)
		}
	}
	return nil
}

// fillFrom puts the entries of all rows of a table in.
func (x *tableIndex) fillFrom(rows *state.Part) error {
	it := rows.ScanAll()
	defer it.Close()
	for it.Next() {
		if err := x.fill(it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return it.Err()
}

// fill puts the entry of a row in.
func (x *tableIndex) fill(pk, row []byte) error {
	key, shared, err := x.enc.Entry(row, pk)
	if err != nil || key == nil {
		return err
	}
	if shared {
		holder, ok, err := x.part.Get(0, key)
		if err != nil {
			return err
		}
		if ok && string(holder) != string(pk) {
			return x.enc.Duplicate(row, true)
		}
	}
	x.part.Put(0, append([]byte(nil), key...), append([]byte(nil), pk...))
	return nil
}

// CreateIndex makes an index over a table and fills it while the table goes on changing. It returns the epoch from which on all rows are in it.
func (e *Engine) CreateIndex(ctx context.Context, spec *IndexSpec) (built uint64, err error) {
	var t *Table
	var x *tableIndex
	var v *Version
	// From now on changes reach the index; what was there before is read from the version of this moment.
	e.bulk.Lock()
	cerr := e.clock.call(ctx, func() {
		if t, x, err = e.openIndex(spec); err == nil {
			clearPart(x.part) // ids of schema changes that a crash undid are given out again
			x.filling = true
			t.indexes = append(t.indexes, x)
			v = t.rel.Latest()
		}
	})
	e.bulk.Unlock()
	if cerr != nil {
		return 0, cerr
	}
	if err != nil {
		return 0, err
	}
	if v != nil {
		err = e.fillIndex(ctx, t, x, v)
		v.Release()
	}
	if err == nil {
		e.bulk.Lock()
		err = e.clock.call(ctx, func() {
			// What the index was made unique by must not be lost when the index is not.
			if err = e.clock.syncAll(); err != nil {
				return
			}
			x.filling = false
			built = e.clock.closed.Load()
			if e.tables.byID[spec.Table] == t {
				t.publish(built, built)
			}
		})
		e.bulk.Unlock()
	}
	if err != nil {
		if derr := e.DropIndex(context.WithoutCancel(ctx), spec.Table, spec.ID); derr != nil {
			return 0, derr
		}
		return 0, err
	}
	return built, nil
}

// fillIndex puts the rows of v into x that are still the same. Those that changed meanwhile are in it already.
func (e *Engine) fillIndex(ctx context.Context, t *Table, x *tableIndex, v *Version) error {
	it := v.views[0].ScanAll()
	defer it.Close()
	type entry struct{ key, row []byte }
	batch := make([]entry, 0, indexBatch)
	for more := true; more; {
		if err := e.cfg.Failpoints.Hit("exec/fill-index"); err != nil {
			return err
		}
		batch = batch[:0]
		for len(batch) < indexBatch {
			if more = it.Next(); !more {
				break
			}
			batch = append(batch, entry{append([]byte(nil), it.Key()...), append([]byte(nil), it.Value()...)})
		}
		if err := it.Err(); err != nil {
			return err
		}
		var err error
		if cerr := e.clock.call(ctx, func() {
			for i := range batch {
				var cur []byte
				var ok bool
				if cur, ok, err = t.part.Get(0, batch[i].key); err != nil {
					return
				}
				if !ok || string(cur) != string(batch[i].row) {
					continue
				}
				if err = x.fill(batch[i].key, batch[i].row); err != nil {
					return
				}
			}
			e.tables.flush()
		}); cerr != nil {
			return cerr
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// DropIndex forgets an index; its entries go with the next snapshots.
func (e *Engine) DropIndex(ctx context.Context, table, id uint64) error {
	e.bulk.Lock()
	defer e.bulk.Unlock()
	return e.clock.call(ctx, func() {
		t := e.tables.byID[table]
		if t == nil {
			return
		}
		for i, x := range t.indexes {
			if x.enc.Spec.ID == id {
				t.indexes = append(t.indexes[:i:i], t.indexes[i+1:]...)
				clearPart(x.part)
				now := e.clock.closed.Load()
				t.publish(now, now)
				return
			}
		}
	})
}

// RenameIndex changes the name that violations of a unique index report.
func (e *Engine) RenameIndex(ctx context.Context, table, id uint64, name string) error {
	return e.clock.call(ctx, func() {
		if t := e.tables.byID[table]; t != nil {
			for _, x := range t.indexes {
				if x.enc.Spec.ID == id {
					spec := *x.enc.Spec
					spec.Name = name
					x.enc.Spec = &spec
				}
			}
		}
	})
}

// ForgetIndex removes what an index left in the tables' state that was never finished. It runs before Start.
func (e *Engine) ForgetIndex(id uint64) error {
	p, err := e.tables.store.Part(uint32(id), 0, state.Range{From: 0, To: uint16(e.cfg.MaxPar)}, state.Ordered)
	if err == nil {
		clearPart(p)
	}
	return err
}

func clearPart(p *state.Part) {
	it := p.ScanAll()
	var keys [][]byte
	for it.Next() {
		keys = append(keys, append([]byte(nil), it.Key()...))
	}
	it.Close()
	for _, k := range keys {
		p.Delete(0, k)
	}
}
