package server

import (
	"context"
	"fmt"
	"strings"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/types"
)

// endStatement commits an implicit transaction after its last statement.
func (d *dispatch) endStatement() error {
	if d.ss.tx.explicit || !d.last {
		return nil
	}
	return d.ss.commitKeeping(d.ctx, d.portal)
}

// dispatch is the execution of one statement.
type dispatch struct {
	ss     *session
	ctx    context.Context //nolint:containedctx // lives as long as the call
	w      pgwire.ResultWriter
	args   []types.Datum
	last   bool
	pre    *prepared // when the statement was prepared: its plan may be used again
	portal *portal
	// formats of a portal's result
	formats []pgwire.Format
}

func (d *dispatch) complete(tag string) error {
	if err := d.endStatement(); err != nil {
		return err
	}
	return d.w.CommandComplete(tag)
}

// statement runs one statement to its completion message.
func (d *dispatch) statement(st sql.Statement) error {
	if err := d.mayWrite(st); err != nil {
		return err
	}
	if err := d.permit(st); err != nil {
		return err
	}
	switch st := st.(type) {
	case *sql.Query:
		return d.query(st)
	case *sql.Insert, *sql.Update, *sql.Delete, *sql.Merge:
		return d.change(st)
	case *sql.Copy:
		return d.copy(st)
	case *sql.Subscribe:
		return d.subscribe(st)
	case *sql.Declare:
		return d.declare(st)
	case *sql.Listen:
		return d.listen(st)
	case *sql.Unlisten:
		return d.unlisten(st)
	case *sql.Notify:
		return d.notify(st)
	case *sql.Fetch:
		return d.fetch(st)
	case *sql.Close:
		return d.closeCursor(st)
	case *sql.Begin:
		return d.begin(st)
	case *sql.Commit:
		return d.commit(st)
	case *sql.Rollback:
		return d.rollback(st)
	case *sql.Savepoint:
		return d.savepoint(st)
	case *sql.RollbackTo:
		return d.rollbackTo(st)
	case *sql.Release:
		return d.releaseSavepoint(st)
	case *sql.Set:
		return d.set(st)
	case *sql.SetTransaction:
		return d.setTransaction(st)
	case *sql.SetConstraints:
		if err := d.outsideBlock("SET CONSTRAINTS"); err != nil {
			return err
		}
		return d.complete("SET CONSTRAINTS")
	case *sql.Reset:
		return d.reset(st)
	case *sql.Show:
		return d.show(st)
	case *sql.Discard:
		return d.discard(st)
	case *sql.Explain:
		return d.explain(st)
	case *sql.Prepare:
		return d.prepareSQL(st)
	case *sql.Execute:
		return d.executeSQL(st)
	case *sql.Deallocate:
		return d.deallocate(st)
	case *sql.CreateTable:
		return d.createTable(st)
	case *sql.CreateTableAs:
		return d.createTableAs(st)
	case *sql.CreateSource:
		return d.createSource(st)
	case *sql.CreateMaterializedView:
		return d.createMaterializedView(st)
	case *sql.CreateView:
		return d.createView(st)
	case *sql.CreateSequence:
		return d.createSequence(st)
	case *sql.AlterSequence:
		return d.alterSequence(st)
	case *sql.CreateSchema:
		return d.createSchema(st)
	case *sql.CreateEnum:
		return d.createEnum(st)
	case *sql.AlterType:
		return d.alterType(st)
	case *sql.CreateFunction:
		return d.createFunction(st)
	case *sql.DropFunction:
		return d.dropFunction(st)
	case *sql.AlterFunction:
		return d.alterFunction(st)
	case *sql.Drop:
		if st.Kind == sql.KindRole {
			return d.dropRoles(st)
		}
		return d.drop(st)
	case *sql.Truncate:
		return d.truncate(st)
	case *sql.AlterObject:
		if done, err := d.changesOwner(st); done {
			return err
		}
		return d.alter(st)
	case *sql.Grant:
		return d.grant(st)
	case *sql.CreateRole:
		return d.createRole(st)
	case *sql.AlterRole:
		return d.alterRole(st)
	case *sql.AlterSettings:
		return d.alterSettings(st)
	case *sql.AlterDefaultPrivileges:
		return d.alterDefaultPrivileges(st)
	case *sql.ReassignOwned:
		return d.reassignOwned(st)
	case *sql.DropOwned:
		return d.dropOwned(st)
	case *sql.CommentOn:
		return d.comment(st)
	case *sql.Checkpoint:
		return d.checkpoint(st)
	case *sql.Flush:
		return d.flush()
	case *sql.Wait:
		return d.wait(st)
	case *sql.CancelJobs:
		return d.cancelJobs(st)
	case *sql.Pause:
		return d.pause(st.Object, true)
	case *sql.Resume:
		return d.pause(st.Object, false)
	case *sql.Recover:
		d.ss.srv.engine.Recover()
		return d.complete("RECOVER")
	case *sql.Vacuum:
		return d.nothing("VACUUM", st.Tables)
	case *sql.Analyze:
		return d.nothing("ANALYZE", st.Tables)
	case *sql.Refresh:
		return d.nothing("REFRESH MATERIALIZED VIEW", []sql.Name{st.Name})
	case *sql.Lock:
		if err := d.inBlock("LOCK TABLE"); err != nil {
			return err
		}
		return d.complete("LOCK TABLE")
	case *sql.CreateIndex:
		return d.createIndex(st)
	case *sql.Reindex:
		return d.reindex(st)
	case *sql.CreateSink:
		return d.createSink(st)
	}
	return unsupported(st)
}

// mayWrite refuses changes in read-only transactions.
func (d *dispatch) mayWrite(st sql.Statement) error {
	if !d.ss.vars.readOnly() {
		return nil
	}
	name := statementName(st)
	switch st := st.(type) {
	case *sql.Insert, *sql.Update, *sql.Delete, *sql.Merge, *sql.CreateTable, *sql.CreateTableAs, *sql.CreateSource, *sql.CreateMaterializedView, *sql.CreateView,
		*sql.CreateSchema, *sql.CreateSequence, *sql.AlterSequence, *sql.CreateIndex, *sql.CreateSink, *sql.AlterType, *sql.Reindex, *sql.CreateRole, *sql.AlterRole, *sql.AlterSettings, *sql.Grant, *sql.AlterDefaultPrivileges,
		*sql.ReassignOwned, *sql.DropOwned, *sql.AlterFunction:
	case *sql.CreateEnum:
		name = "CREATE TYPE"
	case *sql.CreateFunction:
		name = "CREATE FUNCTION"
	case *sql.DropFunction:
		name = "DROP FUNCTION"
	case *sql.Query:
		locks := st.Locking()
		if st.Into == nil && len(st.Changes) == 0 && locks == "" {
			return nil
		}
		name = "SELECT"
		if locks != "" {
			name = "SELECT " + locks
		}
		if st.Into != nil {
			name = "SELECT INTO"
		}
	case *sql.Drop:
		name = "DROP " + strings.ToUpper(string(st.Kind))
	case *sql.Truncate:
		name = "TRUNCATE TABLE"
	case *sql.AlterObject:
		if st.Kind == sql.KindSystem {
			return nil
		}
		name = "ALTER " + strings.ToUpper(string(st.Kind))
	case *sql.CommentOn:
		name = "COMMENT"
	case *sql.Copy:
		if !st.From {
			return nil
		}
		name = "COPY FROM"
	default:
		return nil
	}
	return pgerr.Newf(pgerr.ReadOnlySQLTransaction, "cannot execute %s in a read-only transaction", name)
}

func unsupported(st sql.Statement) error {
	start, _ := st.Span()
	return pgerr.Newf(pgerr.FeatureNotSupported, "%s is not supported", statementName(st)).At(start).
		WithHint("See the manual's list of statements for what this version offers.")
}

// checkpoint takes a checkpoint of everything, or of a table or a job together with all it reads from.
func (d *dispatch) checkpoint(st *sql.Checkpoint) error {
	var req checkpoint.TriggerRequest
	if n := st.Object; n != nil {
		req.Jobs = []uint64{exec.TablesID}
		if o, ok := d.ss.resolve(*n); !ok || o.Kind != catalog.Table {
			jobs, err := d.jobsNamed(n)
			if err != nil {
				return err
			}
			req.Jobs[0] = jobs[0].ID()
		}
	}
	if err := once(st.Options); err != nil {
		return err
	}
	for _, o := range st.Options {
		var ok bool
		if !strings.EqualFold(o.Name, "type") {
			return pgerr.Newf(pgerr.InvalidParameterValue, "unrecognized parameter %q", o.Name).At(o.Pos).WithHint("CHECKPOINT knows: type.")
		}
		if req.Type, ok = checkpoint.ParseType(o.Value); !ok {
			return pgerr.NotOneOf{"configured", "full", "incremental"}.Option("type", o.Value).At(o.ValuePos)
		}
	}
	if err := d.commitFirst(); err != nil {
		return err
	}
	if _, err := d.ss.srv.coord.TriggerWith(d.ctx, req); err != nil {
		return err
	}
	return d.complete("CHECKPOINT")
}

// commitFirst ends an implicit transaction before a statement that is about what was committed: in `INSERT …; CHECKPOINT` the rows belong to
// the checkpoint.
func (d *dispatch) commitFirst() error {
	if d.ss.tx.explicit || len(d.ss.tx.writes) == 0 {
		return nil
	}
	return d.ss.commitKeeping(d.ctx, d.portal)
}

func (d *dispatch) flush() error {
	if err := d.commitFirst(); err != nil {
		return err
	}
	if err := d.ss.srv.engine.Flush(d.ctx); err != nil {
		return err
	}
	return d.complete("FLUSH")
}

func statementName(st sql.Statement) string {
	name := fmt.Sprintf("%T", st)
	out := make([]byte, 0, len(name)+8)
	for i := len("*sql."); i < len(name); i++ {
		if c := name[i]; c >= 'A' && c <= 'Z' && len(out) > 0 {
			out = append(out, ' ', c)
		} else {
			out = append(out, c&^0x20)
		}
	}
	return string(out)
}
