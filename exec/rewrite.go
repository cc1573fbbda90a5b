package exec

import (
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// Rewrite is what a transaction says about a table all of whose rows it replaces, because they are to be stored in another form.
type Rewrite struct {
	// Indexes are all that the table has from now on. They are filled anew.
	Indexes []*IndexSpec
	// Columns are those that changed: nobody who reads the change log uses them.
	Columns []int

	was *rowForm
}

func newForm(schema types.Schema, key []int, l *types.RowLayout) *rowForm {
	f := &rowForm{schema: schema, key: key}
	f.layout.Store(l)
	return f
}

// Rewritten returns the table as a transaction sees it that replaces all its rows: it has none but those that the transaction writes.
func (r *Relation) Rewritten(schema types.Schema, key []int, l *types.RowLayout) (*Relation, error) {
	c := &Relation{ID: r.ID, Name: r.Name, Schema: schema, Types: schema.Types(), Key: key, MaxPar: r.MaxPar, Log: r.Log, engine: r.engine}
	c.form.Store(newForm(schema, key, l))
	p, err := state.NewMemory(r.MaxPar).Part(uint32(r.ID), 0, state.Range{From: 0, To: uint16(r.MaxPar)}, state.Ordered)
	if err != nil {
		return nil, err
	}
	c.publish(r.engine.clock.closed.Load(), r.engine.clock.closed.Load(), []*state.View{p.View()})
	return c, nil
}

// SetLayout changes how the rows of a table that is being rewritten are read and written.
func (r *Relation) SetLayout(l *types.RowLayout) { r.form.Load().layout.Store(l) }

// Each calls f with the keys and rows of the version that own does not have other ones of; the bytes are lent.
func (v *Version) Each(own *OwnRows, f func(key, row []byte) error) error {
	for _, w := range v.views {
		it := w.ScanAll()
		for it.Next() {
			if own.Has(it.Key()) {
				continue
			}
			if err := f(it.Key(), it.Value()); err != nil {
				it.Close()
				return err
			}
		}
		err := it.Err()
		it.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// rewrite gives the table the new form, once it has the new rows, and fills its indexes anew. Runs on the owner.
func (t *Table) rewrite(w *TableWrite, undo []undoStep) ([]undoStep, error) {
	e := t.rel.engine
	was, indexes := t.rel.form.Load(), t.indexes
	w.Rewrite.was = was
	undo = append(undo, undoStep{do: func() {
		t.rel.form.Store(was)
		t.indexes = indexes
	}})
	t.rel.form.Store(w.Table.form.Load())
	t.indexes = nil
	for _, x := range indexes {
		it := x.part.ScanAll()
		for it.Next() {
			undo = append(undo, undoStep{part: x.part, key: append([]byte(nil), it.Key()...), old: append([]byte{}, it.Value()...)})
		}
		err := it.Err()
		it.Close()
		if err != nil {
			return undo, err
		}
		clearPart(x.part)
	}
	for _, spec := range w.Rewrite.Indexes {
		_, x, err := e.openIndex(spec)
		if err != nil {
			return undo, err
		}
		clearPart(x.part) // ids of schema changes that a crash undid are given out again
		undo = append(undo, undoStep{do: func() { clearPart(x.part) }})
		if err := x.fillFrom(t.part); err != nil {
			return undo, err
		}
		t.indexes = append(t.indexes, x)
	}
	return undo, nil
}

// logRewrite appends the changes of a rewrite to the change log after c, as far as its readers can see any, and returns the chunk to go on with.
func (t *Table) logRewrite(epoch uint64, c *types.Chunk, w *TableWrite) *types.Chunk {
	if c.N > 0 {
		t.rel.Log.Append(epoch, c)
	}
	before, after := w.Rewrite.was.layout.Load(), t.rel.Layout()
	if !t.rel.Log.HasReaders() {
		return types.NewChunk(after.Types)
	}
	full := func(c *types.Chunk) { t.rel.Log.Append(epoch, c) }
	same := w.Rewrite.unseen(before, after)
	old, next := types.NewChunk(before.Types), types.NewChunk(after.Types)
	for i := range w.Changes {
		ch := &w.Changes[i]
		if ch.Old != nil && ch.New != nil && same(ch.Old, ch.New) {
			continue
		}
		old = t.addRow(old, before, ch.Old, -1, (*types.RowLayout).Decode, full)
		next = t.addRow(next, after, ch.New, 1, (*types.RowLayout).Decode, full)
	}
	if old.N > 0 {
		t.rel.Log.Append(epoch, old)
	}
	return next
}

// unseen returns a function that reports whether readers of the change log cannot tell an old row from a new one.
func (r *Rewrite) unseen(before, after *types.RowLayout) func(old, next []byte) bool {
	changed := map[int]bool{}
	for _, c := range r.Columns {
		changed[c] = true
	}
	a, b := types.NewChunk(before.Types), types.NewChunk(after.Types)
	var left, right []*types.Vector
	for i := range before.Types {
		if !changed[i] {
			left, right = append(left, a.Cols[i]), append(right, b.Cols[i])
		}
	}
	return func(old, next []byte) bool {
		a.Reset()
		b.Reset()
		if before.Decode(old, a.Cols) != nil || after.Decode(next, b.Cols) != nil {
			return false
		}
		return string(types.AppendRow(nil, left, 0)) == string(types.AppendRow(nil, right, 0))
	}
}
