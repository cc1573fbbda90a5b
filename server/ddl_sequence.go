package server

import (
	"context"
	"errors"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/types"
)

// serialTypes maps the notational types of serial columns to what they are stored as.
func serialType(n *sql.TypeName) (types.Type, bool) {
	if n == nil || n.Schema != "" || n.ArrayDims > 0 {
		return types.Type{}, false
	}
	switch n.Name {
	case "serial", "serial4":
		return types.Int4, true
	case "bigserial", "serial8":
		return types.Int8, true
	case "smallserial", "serial2":
		return types.Int2, true
	}
	return types.Type{}, false
}

func badSequence(format string, args ...any) error {
	return pgerr.Newf(pgerr.InvalidParameterValue, format, args...)
}

// sequenceChange is what the options of a sequence say beyond its definition.
type sequenceChange struct {
	restart bool
	value   int64
	owner   *sql.SequenceOption
	name    *sql.Name
}

// sequenceOptions applies options to def; isNew makes defaults of what is not said. typ is the type that an identity column gives.
func (d *dispatch) sequenceOptions(def *catalog.SequenceDef, opts []sql.SequenceOption, isNew, identity bool) (ch sequenceChange, err error) {
	by := map[string]*sql.SequenceOption{}
	for i := range opts {
		by[opts[i].Name] = &opts[i]
	}
	old := types.OID(def.Type)
	resetMin, resetMax := isNew, isNew
	if o := by["as"]; o != nil {
		if identity {
			return ch, pgerr.Newf(pgerr.SyntaxError, "conflicting or redundant options").At(o.Pos)
		}
		t, err := d.columnType(o.Type)
		if err != nil {
			return ch, err
		}
		switch t.OID {
		case types.OIDInt2, types.OIDInt4, types.OIDInt8:
		default:
			return ch, badSequence("sequence type must be smallint, integer, or bigint")
		}
		if !isNew {
			// A bound that was the old type's own becomes the new type's.
			lo, hi := typeBounds(old)
			resetMax = def.Increment > 0 && def.Max == hi || def.Increment < 0 && def.Max == hi
			resetMin = def.Min == lo
		}
		def.Type = uint32(t.OID)
	}
	if o := by["increment"]; o != nil {
		if o.Value == 0 {
			return ch, badSequence("INCREMENT must not be zero")
		}
		def.Increment = o.Value
	}
	lo, hi := typeBounds(types.OID(def.Type))
	name := types.T(types.OID(def.Type)).String()
	if o := by["cycle"]; o != nil {
		def.Cycle = !o.No
	}
	switch o := by["maxvalue"]; {
	case o != nil && !o.No:
		def.Max = o.Value
	case o != nil || resetMax:
		def.Max = -1
		if def.Increment > 0 || !isNew && o == nil {
			def.Max = hi
		}
	}
	if def.Max < lo || def.Max > hi {
		return ch, badSequence("MAXVALUE (%d) is out of range for sequence data type %s", def.Max, name)
	}
	switch o := by["minvalue"]; {
	case o != nil && !o.No:
		def.Min = o.Value
	case o != nil || resetMin:
		def.Min = 1
		if def.Increment < 0 || !isNew && o == nil {
			def.Min = lo
		}
	}
	if def.Min < lo || def.Min > hi {
		return ch, badSequence("MINVALUE (%d) is out of range for sequence data type %s", def.Min, name)
	}
	if def.Min >= def.Max {
		return ch, badSequence("MINVALUE (%d) must be less than MAXVALUE (%d)", def.Min, def.Max)
	}
	switch o := by["start"]; {
	case o != nil:
		def.Start = o.Value
	case isNew && def.Increment > 0:
		def.Start = def.Min
	case isNew:
		def.Start = def.Max
	}
	if def.Start < def.Min {
		return ch, badSequence("START value (%d) cannot be less than MINVALUE (%d)", def.Start, def.Min)
	}
	if def.Start > def.Max {
		return ch, badSequence("START value (%d) cannot be greater than MAXVALUE (%d)", def.Start, def.Max)
	}
	if o := by["restart"]; o != nil {
		ch.restart, ch.value = true, def.Start
		if o.Given {
			ch.value = o.Value
		}
		if ch.value < def.Min {
			return ch, badSequence("RESTART value (%d) cannot be less than MINVALUE (%d)", ch.value, def.Min)
		}
		if ch.value > def.Max {
			return ch, badSequence("RESTART value (%d) cannot be greater than MAXVALUE (%d)", ch.value, def.Max)
		}
	}
	if o := by["cache"]; o != nil {
		if o.Value <= 0 {
			return ch, badSequence("CACHE (%d) must be greater than zero", o.Value)
		}
		def.Cache = o.Value
	}
	if o := by["owned"]; o != nil {
		if identity && !o.No {
			return ch, pgerr.Newf(pgerr.FeatureNotSupported, "cannot change ownership of identity sequence").At(o.Pos)
		}
		if !identity {
			ch.owner = o
		}
	}
	if o := by["sequence name"]; o != nil {
		if !identity {
			return ch, pgerr.Newf(pgerr.SyntaxError, "invalid sequence option SEQUENCE NAME").At(o.Pos)
		}
		ch.name = &o.Seq
	}
	return ch, nil
}

func newSequenceDef(t types.Type) *catalog.SequenceDef {
	return &catalog.SequenceDef{Type: uint32(t.OID), Increment: 1, Cache: 1}
}

func (d *dispatch) createSequence(st *sql.CreateSequence) error {
	const tag = "CREATE SEQUENCE"
	unlock, err := d.lockSchema()
	if err != nil {
		return err
	}
	defer unlock()
	schema, err := d.schemaFor(st.Name, st.Temporary)
	if err != nil {
		return err
	}
	if done, err := d.exists(schema, st.Name, st.IfNotExists, tag); done || err != nil {
		return err
	}
	o := &catalog.Object{
		Kind: catalog.Sequence, Schema: schema, Name: st.Name.Name, Columns: sequenceColumns(), Sequence: newSequenceDef(types.Int8),
		Temporary: catalog.IsTemporarySchema(schema),
	}
	ch, err := d.sequenceOptions(o.Sequence, st.Options, true, false)
	if err != nil {
		return err
	}
	if err := d.ownedBy(o, ch.owner); err != nil {
		return err
	}
	if err := d.ss.update(func(tx *catalog.Tx) error {
		withSchema(tx, o)
		o.ID = tx.NextID()
		return tx.Add(o)
	}); err != nil {
		return err
	}
	if ch.restart {
		if err := d.moveSequence(o, ch.value, false); err != nil {
			return err
		}
	}
	return d.complete(tag)
}

// ownedBy sets the column that a sequence belongs to.
func (d *dispatch) ownedBy(o *catalog.Object, opt *sql.SequenceOption) error {
	if opt == nil {
		return nil
	}
	if opt.No {
		o.Sequence.OwnerTable, o.Sequence.OwnerColumn = 0, 0
		return nil
	}
	t, ok := d.ss.resolve(opt.Owner)
	if !ok {
		return atNowhere(undefinedRelation(opt.Owner))
	}
	if t.Kind != catalog.Table {
		return pgerr.Newf(pgerr.WrongObjectType, "sequence cannot be owned by relation %q", t.Name).WithDetail("This operation is not supported for %s.", kindPlural(t.Kind))
	}
	if t.Schema != o.Schema {
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "sequence must be in same schema as table it is linked to")
	}
	c := userColumn(t, opt.Owned.Name)
	if c < 0 {
		return pgerr.Newf(pgerr.UndefinedColumn, "column %q of relation %q does not exist", opt.Owned.Name, t.Name)
	}
	o.Sequence.OwnerTable, o.Sequence.OwnerColumn = t.ID, c
	return nil
}

// identityOf returns the column of which the sequence is the identity.
func identityOf(snap *catalog.Snapshot, o *catalog.Object) (table *catalog.Object, ok bool) {
	t, ok := snap.Get(o.Sequence.OwnerTable)
	if !ok || o.Sequence.OwnerColumn >= len(t.Columns) {
		return nil, false
	}
	c := t.Columns[o.Sequence.OwnerColumn]
	return t, c.Identity != "" && c.Sequence == o.ID
}

func (d *dispatch) alterSequence(st *sql.AlterSequence) error {
	const tag = "ALTER SEQUENCE"
	unlock, err := d.lockSchema()
	if err != nil {
		return err
	}
	defer unlock()
	o, ok := d.ss.resolve(st.Name)
	if !ok {
		if !st.IfExists {
			return atNowhere(undefinedRelation(st.Name))
		}
		if err := d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "relation %q does not exist, skipping", st.Name.Key()); err != nil {
			return err
		}
		return d.complete(tag)
	}
	if o.Kind != catalog.Sequence {
		return pgerr.Newf(pgerr.WrongObjectType, "%q is not a sequence", o.Name)
	}
	if t, ok := identityOf(d.ss.snapshot(), o); ok {
		for _, opt := range st.Options {
			if opt.Name == "owned" {
				return pgerr.Newf(pgerr.FeatureNotSupported, "cannot change ownership of identity sequence").
					WithDetail("Sequence \"%s\" is linked to table \"%s\".", o.Name, t.Name)
			}
		}
	}
	if err := d.changeSequence(o, st.Options, false); err != nil {
		return err
	}
	return d.complete(tag)
}

// changeSequence applies options to an existing sequence.
func (d *dispatch) changeSequence(o *catalog.Object, opts []sql.SequenceOption, identity bool) error {
	srv := d.ss.srv
	c, def := *o, *o.Sequence
	c.Sequence = &def
	ch, err := d.sequenceOptions(&def, opts, false, identity)
	if err != nil {
		return err
	}
	last, _, called, err := srv.sequence(o.ID).state(srv, o)
	if err != nil {
		return err
	}
	if ch.restart {
		last, called = ch.value, false
	}
	if last < def.Min {
		return badSequence("RESTART value (%d) cannot be less than MINVALUE (%d)", last, def.Min)
	}
	if last > def.Max {
		return badSequence("RESTART value (%d) cannot be greater than MAXVALUE (%d)", last, def.Max)
	}
	if err := d.ownedBy(&c, ch.owner); err != nil {
		return err
	}
	if err := d.ss.update(func(tx *catalog.Tx) error { return tx.Replace(&c) }); err != nil {
		return err
	}
	return d.moveSequence(&c, last, called)
}

// moveSequence sets a sequence as part of a schema change: a rollback sets it back.
func (d *dispatch) moveSequence(o *catalog.Object, value int64, called bool) error {
	srv := d.ss.srv
	was, wasCalled, err := srv.sequence(o.ID).set(d.ctx, srv, o, value, called)
	if err != nil {
		return err
	}
	d.atRollback(func(ctx context.Context) error {
		_, _, err := srv.sequence(o.ID).set(ctx, srv, o, was, wasCalled)
		return err
	})
	return nil
}

// ownSequence makes the sequence of a serial or identity column; the table takes its id when it is stored.
func (d *dispatch) ownSequence(tx *catalog.Tx, table *catalog.Object, column int, opts []sql.SequenceOption) (*catalog.Object, error) {
	col := &table.Columns[column]
	o := &catalog.Object{Kind: catalog.Sequence, Schema: table.Schema, Columns: sequenceColumns(), Sequence: newSequenceDef(col.Type), Temporary: table.Temporary}
	ch, err := d.sequenceOptions(o.Sequence, opts, true, true)
	if err != nil {
		return nil, err
	}
	switch {
	case ch.name != nil:
		o.Name = ch.name.Name
		if ch.name.Schema != "" {
			o.Schema = ch.name.Schema
		}
	default:
		o.Name = freeName(tx.Snapshot(), table.Schema, table.Name, []string{col.Name}, "seq", nil)
	}
	o.ID = tx.NextID()
	o.Sequence.OwnerTable, o.Sequence.OwnerColumn = table.ID, column
	if err := tx.Add(o); err != nil {
		return nil, err
	}
	col.Sequence = o.ID
	return o, nil
}

// restartIdentity sets the sequences that a table owns to their starts.
func (d *dispatch) restartIdentity(table *catalog.Object) error {
	var err error
	for _, o := range d.ss.snapshot().OwnedSequences(table.ID) {
		err = errors.Join(err, d.moveSequence(o, o.Sequence.Start, false))
	}
	return err
}
