package server

import (
	"slices"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
)

// alterFunction is ALTER FUNCTION.
func (d *dispatch) alterFunction(st *sql.AlterFunction) error {
	if st.Owner.Name != "" {
		f, err := d.findFunction(d.ss.snapshot(), st.Function)
		if err != nil {
			return err
		}
		return d.alterOwner(sql.KindFunction, functionSecurable(f), f.Schema, st.Owner)
	}
	unlock, err := d.lockSchema()
	if err != nil {
		return err
	}
	defer unlock()
	snap := d.ss.snapshot()
	old, err := d.findFunction(snap, st.Function)
	if err != nil {
		return err
	}
	if err := d.ownsFunction(old); err != nil {
		return err
	}
	f := *old
	switch {
	case st.Rename.Name != "":
		f.Name = st.Rename.Name
	case st.Schema.Name != "":
		if _, ok := snap.Namespace(st.Schema.Name); !ok {
			return pgerr.Newf(pgerr.InvalidSchemaName, "schema \"%s\" does not exist", st.Schema.Name)
		}
		if catalog.IsSystemSchema(st.Schema.Name) {
			return pgerr.Newf(pgerr.InsufficientPrivilege, "permission denied for schema %s", st.Schema.Name)
		}
		f.Schema = st.Schema.Name
	default:
		if err := changeOptions(&f, st); err != nil {
			return err
		}
	}
	moves := f.Name != old.Name || f.Schema != old.Schema
	if moves {
		if err := d.mayMove(snap, old, &f); err != nil {
			return err
		}
	}
	if err := d.ss.update(func(tx *catalog.Tx) error {
		if tx.PutFunction(&f); !moves {
			return nil
		}
		to := f.Name
		if f.Schema != old.Schema {
			to = f.Schema + "\x00" + f.Name
		}
		return d.viewsFollow(tx, snap, []uint64{uint64(f.OID)}, old.Name, to, true)
	}); err != nil {
		return err
	}
	return d.complete("ALTER FUNCTION")
}

func changeOptions(f *catalog.Function, st *sql.AlterFunction) error {
	o := st.Options
	for _, option := range st.Given {
		switch option {
		case "volatility":
			f.Volatility = o.Volatility
		case "strict":
			f.Strict = o.Strict
		case "leakproof":
			f.Leakproof = o.Leakproof
		case "parallel":
			f.Parallel = o.Parallel
		case "cost":
			f.Cost = o.Cost
		case "rows":
			if !f.ReturnsSet {
				return pgerr.Newf(pgerr.InvalidParameterValue, "ROWS is not applicable when function does not return a set")
			}
			f.Rows = o.Rows
		}
	}
	return nil
}

// mayMove checks that a function may get another name or schema: the name is free, and no stored text but views' calls it by the old one.
func (d *dispatch) mayMove(snap *catalog.Snapshot, old, f *catalog.Function) error {
	for _, o := range snap.FunctionsNamed(f.Schema, f.Name) {
		if slices.Equal(o.ArgTypes(), f.ArgTypes()) {
			title := d.describeFunction(f)
			title = strings.TrimPrefix(title, sql.QuoteIdent(f.Schema)+".")
			return pgerr.Newf(pgerr.DuplicateFunction, "function %s already exists in schema \"%s\"", strings.ReplaceAll(title, ",", ", "), f.Schema)
		}
	}
	g := &dependency{d: d, snap: snap, uses: map[string][]uint64{}}
	us := slices.DeleteFunc(g.dependents(&thing{kind: thingFunction, f: old}), func(u *dependent) bool {
		return u.kind == thingRelation && u.o.HasQuery()
	})
	if len(us) > 0 {
		return pgerr.Newf(pgerr.FeatureNotSupported, "cannot rename function %s because %s uses it by name", d.describeFunction(old), d.nameOf(&us[0].thing)).
			WithHint("Make the function under the new name, and the other object anew.")
	}
	return nil
}

// ownsFunction checks that the session may change or drop a function.
func (d *dispatch) ownsFunction(f *catalog.Function) error {
	if !d.ss.snapshot().HasPrivilegesOf(d.ss.role(), f.Owner) {
		return denied("must be owner of function %s", f.Name)
	}
	return nil
}
