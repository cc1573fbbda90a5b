package server

import (
	"math"
	"slices"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/types"
)

// maxLabelBytes is the length of an enum label, that of a name.
const maxLabelBytes = 63

func checkLabel(label string) error {
	if len(label) > maxLabelBytes {
		return pgerr.Newf(pgerr.InvalidName, "invalid enum label \"%s\"", label).WithDetail("Labels must be %d bytes or less.", maxLabelBytes)
	}
	return nil
}

func (d *dispatch) createEnum(st *sql.CreateEnum) error {
	unlock, err := d.lockSchema()
	if err != nil {
		return err
	}
	defer unlock()
	schema, err := d.targetSchema(st.Name)
	if err != nil {
		return atNowhere(err)
	}
	if catalog.IsSystemSchema(schema) {
		return pgerr.Newf(pgerr.InsufficientPrivilege, "permission denied to create \"%s.%s\"", schema, st.Name.Name).
			WithDetail("System catalog modifications are currently disallowed.")
	}
	e := &catalog.Enum{Schema: schema, Name: st.Name.Name}
	if err := d.ss.update(func(tx *catalog.Tx) error {
		id := tx.NextID()
		if types.T(types.OID(id)).IsEnum() {
			e.OID = uint32(id)
		} else {
			return pgerr.Newf(pgerr.ProgramLimitExceeded, "there are no object ids left for types")
		}
		for i, l := range st.Labels {
			if err := checkLabel(l.Text); err != nil {
				return err
			}
			if slices.ContainsFunc(e.Labels, func(o catalog.EnumLabel) bool { return o.Label == l.Text }) {
				return pgerr.Newf(pgerr.UniqueViolation, "duplicate key value violates unique constraint \"pg_enum_typid_label_index\"").
					WithDetail("Key (enumtypid, enumlabel)=(%d, %s) already exists.", e.OID, l.Text)
			}
			e.Labels = append(e.Labels, catalog.EnumLabel{OID: uint32(tx.NextID()), Label: l.Text, Sort: float32(i + 1)})
		}
		return tx.PutEnum(e)
	}); err != nil {
		return err
	}
	return d.complete("CREATE TYPE")
}

// enum finds the enum type that a statement about types names.
func (d *dispatch) enum(n sql.Name) (*catalog.Enum, error) {
	snap := d.ss.snapshot()
	if n.Schema != "" && n.Schema != catalog.PgCatalog {
		if _, ok := snap.Namespace(n.Schema); !ok {
			return nil, pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", n.Schema)
		}
	}
	if oid, ok := types.TypeByName(n.Name); ok && (n.Schema == "" || n.Schema == catalog.PgCatalog) {
		return nil, pgerr.Newf(pgerr.WrongObjectType, "%s is not an enum", types.T(oid))
	}
	if e, ok := snap.ResolveEnum(n.Schema, n.Name, d.ss.vars.searchPath()); ok {
		return e, nil
	}
	if o, ok := d.ss.resolve(n); ok && o.Kind != catalog.Index && o.Kind != catalog.Sequence {
		return nil, pgerr.Newf(pgerr.WrongObjectType, "%s is not an enum", sql.QuoteIdent(o.Name))
	}
	return nil, pgerr.Newf(pgerr.UndefinedObject, "type %q does not exist", n.Key())
}

// describeEnum names an enum type in messages.
func (d *dispatch) describeEnum(e *catalog.Enum) string {
	name, _ := d.ss.srv.planCatalog(d.ss.snapshot(), d.ss.vars.searchPath()).TypeName(types.OID(e.OID))
	return name
}

func (d *dispatch) alterType(st *sql.AlterType) error {
	unlock, err := d.lockSchema()
	if err != nil {
		return err
	}
	defer unlock()
	old, err := d.enum(st.Name)
	if err != nil {
		return err
	}
	e := *old
	e.Labels = slices.Clone(old.Labels)
	switch st.Kind {
	case sql.AlterTypeAddValue:
		done, err := d.addLabel(&e, st)
		if done || err != nil {
			return err
		}
	case sql.AlterTypeRenameValue:
		if err := d.renameLabel(&e, st); err != nil {
			return err
		}
	case sql.AlterTypeRename:
		e.Name = st.NewName.Name
	case sql.AlterTypeSetSchema:
		if _, ok := d.ss.snapshot().Namespace(st.NewName.Name); !ok {
			return pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", st.NewName.Name)
		}
		if catalog.IsSystemSchema(st.NewName.Name) {
			return pgerr.Newf(pgerr.InsufficientPrivilege, "permission denied for schema %s", st.NewName.Name)
		}
		e.Schema = st.NewName.Name
	case sql.AlterTypeOwner:
		role, ok := d.ss.catalogInfo().RoleOID(st.NewName.Name)
		if !ok {
			return pgerr.Newf(pgerr.UndefinedObject, "role %q does not exist", st.NewName.Name)
		}
		if catalog.IsUserID(uint64(role)) {
			e.Owner = role
		} else {
			e.Owner = 0
		}
	}
	if err := d.ss.update(func(tx *catalog.Tx) error {
		for i := range e.Labels {
			if e.Labels[i].OID == 0 {
				e.Labels[i].OID = uint32(tx.NextID())
			}
		}
		return tx.PutEnum(&e)
	}); err != nil {
		return err
	}
	return d.complete("ALTER TYPE")
}

func labelIndex(e *catalog.Enum, label string) int {
	return slices.IndexFunc(e.Labels, func(l catalog.EnumLabel) bool { return l.Label == label })
}

// addLabel puts a new label in its place; done means that the statement has been answered.
func (d *dispatch) addLabel(e *catalog.Enum, st *sql.AlterType) (done bool, err error) {
	if err := checkLabel(st.Label.Text); err != nil {
		return false, err
	}
	if labelIndex(e, st.Label.Text) >= 0 {
		if !st.IfNotExists {
			return false, pgerr.Newf(pgerr.DuplicateObject, "enum label %q already exists", st.Label.Text)
		}
		if err := d.ss.notice("NOTICE", pgerr.DuplicateObject, "enum label %q already exists, skipping", st.Label.Text); err != nil {
			return false, err
		}
		return true, d.complete("ALTER TYPE")
	}
	at := len(e.Labels)
	if st.Neighbor != nil {
		if at = labelIndex(e, st.Neighbor.Text); at < 0 {
			return false, pgerr.Newf(pgerr.InvalidParameterValue, "%q is not an existing enum label", st.Neighbor.Text)
		}
		if st.After {
			at++
		}
	}
	sort := float32(1)
	switch n := len(e.Labels); {
	case n == 0:
	case at == 0:
		sort = e.Labels[0].Sort - 1
	case at == n:
		sort = e.Labels[n-1].Sort + 1
	default:
		// Stored values hold their number, so that labels are never numbered anew.
		lo, hi := e.Labels[at-1].Sort, e.Labels[at].Sort
		if sort = lo + (hi-lo)/2; sort <= lo || sort >= hi || math.IsInf(float64(sort), 0) {
			return false, pgerr.Newf(pgerr.ProgramLimitExceeded, "there is no place left between the enum labels %q and %q", e.Labels[at-1].Label, e.Labels[at].Label).
				WithHint("Make a new type with the labels in their order, and a new table with a column of it.")
		}
	}
	e.Labels = slices.Insert(e.Labels, at, catalog.EnumLabel{Label: st.Label.Text, Sort: sort})
	return false, nil
}

// renameLabel changes a label of a type that nothing uses: stored values and plans hold labels.
func (d *dispatch) renameLabel(e *catalog.Enum, st *sql.AlterType) error {
	at := labelIndex(e, st.Label.Text)
	switch {
	case at < 0:
		return pgerr.Newf(pgerr.InvalidParameterValue, "%q is not an existing enum label", st.Label.Text)
	case labelIndex(e, st.NewName.Name) >= 0:
		return pgerr.Newf(pgerr.DuplicateObject, "enum label %q already exists", st.NewName.Name)
	}
	if err := checkLabel(st.NewName.Name); err != nil {
		return err
	}
	if users := d.ss.snapshot().EnumDependents(e.OID); len(users) > 0 {
		return pgerr.Newf(pgerr.FeatureNotSupported, "cannot rename a value of type %s because %s uses the type", d.describeEnum(e), d.describe(users[0])).
			WithHint("Add the new value with ALTER TYPE .. ADD VALUE and UPDATE the rows that have the old one.")
	}
	e.Labels[at].Label = st.NewName.Name
	return nil
}

// dropType is DROP TYPE.
func (d *dispatch) dropType(st *sql.Drop) error {
	if err := d.beginSchema(); err != nil {
		return err
	}
	var enums []*catalog.Enum
	for _, n := range st.Names {
		e, err := d.enum(n)
		if err != nil {
			switch code := pgerr.CodeOf(err); {
			case st.IfExists && (code == pgerr.UndefinedObject || code == pgerr.InvalidSchemaName):
				if err := d.ss.notice("NOTICE", pgerr.SuccessfulCompletion, "%s, skipping", pgerr.From(err).Message); err != nil {
					return err
				}
				continue
			case code != pgerr.WrongObjectType:
				return err
			}
			if o, ok := d.ss.resolve(n); ok {
				return pgerr.Newf(pgerr.DependentObjectsStillExist, "cannot drop type %s because %s requires it", sql.QuoteIdent(n.Name), d.describe(o)).
					WithHint("You can drop %s instead.", d.describe(o))
			}
			oid, _ := types.TypeByName(n.Name)
			return pgerr.Newf(pgerr.DependentObjectsStillExist, "cannot drop type %s because it is required by the database system", types.T(oid))
		}
		if !slices.Contains(enums, e) {
			enums = append(enums, e)
		}
	}
	targets := make([]thing, len(enums))
	for i, e := range enums {
		targets[i] = thing{kind: thingEnum, e: e}
	}
	if err := d.dropThings(targets, st.Cascade); err != nil {
		return err
	}
	return d.complete("DROP TYPE")
}

// enumUser is what depends on an enum type: a column of a table or source, or a view.
type enumUser struct {
	object   *catalog.Object
	column   string
	text, on string
}

// enumUsers lists what depends on e, the views over a column after the column.
func (d *dispatch) enumUsers(snap *catalog.Snapshot, e *catalog.Enum) []enumUser {
	var out []enumUser
	users := snap.EnumDependents(e.OID)
	oid := types.OID(e.OID)
	has := func(o *catalog.Object, t types.OID) string {
		for _, c := range o.Columns {
			if c.Type.OID == t && !c.Dropped {
				return c.Name
			}
		}
		return ""
	}
	through := map[uint64]bool{} // views that use the type of a column
	for _, o := range users {
		if o.Kind != catalog.Table && o.Kind != catalog.Source {
			continue
		}
		first := ""
		for _, t := range [...]types.OID{types.ArrayOf(oid), oid} {
			for _, c := range o.Columns {
				if c.Type.OID != t || c.Dropped {
					continue
				}
				name := d.describeEnum(e)
				if t != oid {
					name += "[]"
				}
				first = "column " + sql.QuoteIdent(c.Name) + " of " + d.describe(o)
				out = append(out, enumUser{object: o, column: c.Name, text: first, on: "type " + name})
			}
		}
		for _, v := range users {
			if slices.Contains(v.DependsOn, o.ID) && has(v, oid)+has(v, types.ArrayOf(oid)) != "" && first != "" && !through[v.ID] {
				through[v.ID] = true
				out = append(out, enumUser{object: v, text: d.describe(v), on: first})
			}
		}
	}
	for _, v := range users {
		if v.Kind != catalog.Table && v.Kind != catalog.Source && !through[v.ID] {
			out = append(out, enumUser{object: v, text: d.describe(v), on: "type " + d.describeEnum(e)})
		}
	}
	return out
}

// commentOnType is COMMENT ON TYPE.
func (d *dispatch) commentOnType(st *sql.CommentOn) error {
	old, err := d.enum(st.Name)
	if err != nil {
		if pgerr.CodeOf(err) == pgerr.WrongObjectType {
			return pgerr.Newf(pgerr.FeatureNotSupported, "comments on this type are not supported").WithHint("Types made by CREATE TYPE can have a comment.")
		}
		return err
	}
	e := *old
	e.Comment = ""
	if st.Comment != nil {
		e.Comment = *st.Comment
	}
	if err := d.ss.update(func(tx *catalog.Tx) error { return tx.PutEnum(&e) }); err != nil {
		return err
	}
	return d.complete("COMMENT")
}

// enumsIn lists the enum types of a schema.
func enumsIn(snap *catalog.Snapshot, schema string) []*catalog.Enum {
	return slices.DeleteFunc(snap.Enums(), func(e *catalog.Enum) bool { return e.Schema != schema })
}
