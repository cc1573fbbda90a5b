package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
)

// Temporary relations live in a schema of their session, which its search path begins with. They are dropped when the session ends; what a
// crash leaves is dropped at the next start.

// dropTemporaryTime is how long the end of a session waits for other schema changes before it leaves its temporary relations to the next start.
const dropTemporaryTime = 10 * time.Second

func (ss *session) temporarySchema() string {
	return fmt.Sprintf("%s%d", catalog.TemporaryPrefix, ss.params.ProcessID)
}

// schemaFor is the schema that a new relation goes to.
func (d *dispatch) schemaFor(n sql.Name, temporary bool) (string, error) {
	own := d.ss.temporarySchema()
	if n.Schema != catalog.TemporaryAlias && n.Schema != own && !temporary {
		return d.targetSchema(n)
	}
	if n.Schema != "" && n.Schema != catalog.TemporaryAlias && n.Schema != own {
		return "", catalog.ErrNotTemporarySchema(n.Pos)
	}
	if snap := d.ss.snapshot(); snap.Has(d.ss.role(), snap.Database().Securable(), catalog.PrivTemporary) == 0 {
		return "", denied("permission denied to create temporary tables in database %q", databaseName)
	}
	if v := d.ss.vars; v.temporary == "" {
		v.temporary, v.path = own, nil
	}
	return own, nil
}

// withSchema makes the schema of a temporary relation where it is the first.
func withSchema(tx *catalog.Tx, o *catalog.Object) {
	if o.Temporary {
		tx.AddTemporaryNamespace(o.Schema)
	}
}

// onCommit notes what ON COMMIT says of a table.
func onCommit(o *catalog.Object, clause string) error {
	if clause == "" {
		return nil
	}
	if !o.Temporary {
		return pgerr.Newf(pgerr.InvalidTableDefinition, "ON COMMIT can only be used on temporary tables")
	}
	if clause != "preserve rows" {
		o.OnCommit = clause
	}
	return nil
}

// dropOnCommit removes, before a transaction commits, the tables that last no longer than it. Its schema changes must be private.
func (ss *session) dropOnCommit() error {
	s := ss.tx.schema
	if s == nil || ss.vars.temporary == "" {
		return nil
	}
	var gone []*catalog.Object
	snap := s.private.Snapshot()
	for _, o := range snap.Objects() {
		if o.OnCommit == catalog.OnCommitDrop && o.Schema == ss.vars.temporary {
			gone = append(gone, o)
		}
	}
	if gone == nil {
		return nil
	}
	d := &dispatch{ss: ss, ctx: ss.ctx, last: true}
	for i := 0; i < len(gone); i++ {
		for _, o := range snap.Objects() {
			of := slices.Contains(o.DependsOn, gone[i].ID) || o.Index != nil && o.Index.Table == gone[i].ID
			if of && !slices.Contains(gone, o) {
				gone = append(gone, o)
			}
		}
	}
	return d.dropObjects(gone)
}

// emptied reports whether a table is empty after every commit.
func emptied(snap snapshotView, id uint64) bool {
	o, ok := snap.Get(id)
	return ok && o.OnCommit == catalog.OnCommitDelete
}

// dropTemporary ends the session's temporary relations.
func (ss *session) dropTemporary() error {
	schema := ss.vars.temporary
	if schema == "" || !ss.srv.ready.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ss.ctx), dropTemporaryTime)
	defer cancel()
	d := &dispatch{ss: ss, ctx: ctx, last: true}
	unlock, err := d.lockSchema()
	if err != nil {
		return err
	}
	defer unlock()
	var gone []*catalog.Object
	for _, o := range ss.snapshot().Objects() {
		if o.Schema == schema {
			gone = append(gone, o)
		}
	}
	slices.Reverse(gone)
	err = d.dropObjects(gone)
	ss.vars.temporary, ss.vars.path = "", nil
	return errors.Join(err, ss.update(func(tx *catalog.Tx) error {
		tx.RemoveNamespace(schema)
		return nil
	}))
}

// forgetTemporary removes what sessions of an earlier process left.
func (s *Server) forgetTemporary(tx *catalog.Tx) error {
	for _, o := range tx.Snapshot().Objects() {
		if !o.Temporary {
			continue
		}
		tx.Remove(o.ID)
		if o.Kind == catalog.Index || o.Kind == catalog.Table {
			if err := s.engine.ForgetIndex(o.ID); err != nil {
				return err
			}
		}
	}
	for _, n := range tx.Snapshot().Namespaces() {
		if catalog.IsTemporarySchema(n.Name) {
			tx.RemoveNamespace(n.Name)
		}
	}
	return nil
}

// storedPath is the search path that the definition of a lasting object keeps: without temporary relations.
func (v *sessionVars) storedPath() []string {
	return slices.DeleteFunc(slices.Clone(v.searchPath()), catalog.IsTemporarySchema)
}

// refersToTemporary names a temporary relation among those that a definition depends on, "" when there is none.
func refersToTemporary(snap snapshotView, ids []uint64) string {
	for _, id := range ids {
		if o, ok := snap.Get(id); ok && o.Temporary {
			return o.Name
		}
	}
	return ""
}
