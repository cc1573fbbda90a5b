package server

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// systemRelation is one relation of the schema streamdb: columns and how to make its rows.
type systemRelation struct {
	catalog.SystemRelation
	rows func(s *Server) [][]types.Datum
}

const firstSystemOID = 13100

func column(name string, t types.Type) catalog.Column { return catalog.Column{Name: name, Type: t} }

// streamdbRelations are the relations of the system schema.
func streamdbRelations() []systemRelation {
	rel := func(n uint32, name string, rows func(*Server) [][]types.Datum, cols ...catalog.Column) systemRelation {
		return systemRelation{SystemRelation: catalog.SystemRelation{OID: firstSystemOID + n, Kind: 'v', Schema: catalog.SystemSchema, Name: name, Columns: cols}, rows: rows}
	}
	i8, tx, f8, tz := types.Int8, types.Text, types.Float8, types.Timestamptz
	return []systemRelation{
		rel(0, "jobs", jobsRelation, column("job_id", i8), column("name", tx), column("kind", tx), column("state", tx), column("last_error", tx),
			column("epoch", i8), column("lag_ms", i8), column("parallelism", i8), column("state_bytes", i8), column("backend", tx), column("restarts", i8), column("last_error_at", tz)),
		rel(1, "operators", operatorsRelation, column("job_id", i8), column("operator_id", i8), column("name", tx), column("fragment", i8), column("subtasks", i8),
			column("rows_in", i8), column("rows_out", i8), column("state_rows", i8), column("state_bytes", i8), column("busy_ratio", f8), column("backpressure_ratio", f8)),
		rel(2, "checkpoints", checkpointsRelation, column("job_id", i8), column("checkpoint_id", i8), column("status", tx), column("kind", tx), column("trigger_time", tz),
			column("duration_ms", i8), column("sync_ms", i8), column("checkpointed_size", i8), column("full_size", i8), column("uploaded_bytes", i8), column("failure_reason", tx), column("failure_message", tx),
			column("epoch", i8), column("acknowledged_ms", f8), column("wait_ms", f8), column("publication_ms", f8), column("processed_bytes", i8), column("persisted_bytes", i8), column("unaligned", types.Bool), column("path", tx)),
		rel(3, "checkpoint_subtasks", checkpointSubtasksRelation, column("job_id", i8), column("checkpoint_id", i8), column("operator", tx), column("subtask", i8),
			column("start_delay_ms", f8), column("alignment_ms", f8), column("sync_ms", f8), column("async_ms", f8), column("checkpointed_size", i8), column("full_size", i8), column("unaligned", types.Bool),
			column("processed_bytes", i8), column("persisted_bytes", i8), column("acknowledged", tz)),
		rel(4, "errors", func(s *Server) [][]types.Datum { return errorsRelation(s, false) }, errorColumns()...),
		rel(5, "late_rows", func(s *Server) [][]types.Datum { return errorsRelation(s, true) }, errorColumns()...),
		rel(6, "sources", sourcesRelation, column("job_id", i8), column("source", tx), column("split", tx), column("position", tx), column("lag", i8), column("idle", types.Bool)),
		rel(7, "settings", settingsRelation, column("name", tx), column("setting", tx), column("scope", tx), column("description", tx)),
		rel(8, "subscriptions", subscriptionsRelation, column("pid", types.Int4), column("relation_id", i8), column("name", tx), column("epoch", i8), column("lag_ms", i8),
			column("rows", i8), column("started", tz)),
		rel(9, "histories", historiesRelation, column("relation_id", i8), column("name", tx), column("earliest_epoch", i8), column("newest_epoch", i8), column("bytes", i8)),
		rel(10, "hot_keys", hotKeysRelation, column("job_id", i8), column("job", tx), column("operator_id", i8), column("key", tx), column("left_rows", i8), column("right_rows", i8),
			column("matches", i8)),
		rel(11, "checkpoint_config", checkpointConfigRelation, column("job_id", i8), column("name", tx), column("mode", tx), column("interval_ms", i8), column("interval_during_backlog_ms", i8),
			column("min_pause_ms", i8), column("timeout_ms", i8), column("max_concurrent", i8), column("tolerable_failures", i8), column("unaligned", types.Bool),
			column("aligned_timeout_ms", i8), column("incremental", types.Bool), column("after_tasks_finish", types.Bool), column("restored_checkpoint_id", i8), column("restored_at", tz)),
		rel(12, "restores", restoresRelation, column("job_id", i8), column("name", tx), column("checkpoint_id", i8), column("restored_at", tz), column("download_ms", f8),
			column("open_ms", f8), column("rebuild_ms", f8)),
	}
}

func errorColumns() []catalog.Column {
	return []catalog.Column{
		column("job_id", types.Int8), column("job", types.Text), column("operator_id", types.Int8), column("operator", types.Text), column("sqlstate", types.Text),
		column("message", types.Text), column("row", types.JSONB), column("weight", types.Int8),
	}
}

// lookupSystem finds a system relation.
func lookupSystem(schema, name string) (*catalog.SystemRelation, bool) {
	if schema == catalog.SystemSchema {
		for _, r := range streamdbRelations() {
			if r.Name == name {
				return &r.SystemRelation, true
			}
		}
		return nil, false
	}
	return catalog.LookupSystem(schema, name)
}

// systemTables produces the rows of system relations for queries of a session.
type systemTables struct{ ss *session }

// Rows implements exec.VirtualTables.
func (t *systemTables) Rows(ctx context.Context, name string, columns []int, emit func(*types.Chunk) error) error {
	if id, ok := strings.CutPrefix(name, sequenceRelation); ok {
		return t.sequenceRow(id, columns, emit)
	}
	if name, ok := strings.CutPrefix(name, storedRelation); ok {
		return t.storedRows(ctx, name, columns, emit)
	}
	schema, rel, _ := strings.Cut(name, ".")
	if schema != catalog.SystemSchema {
		return t.ss.systemData().Rows(ctx, schema, rel, columns, emit)
	}
	for _, r := range streamdbRelations() {
		if r.Name != rel {
			continue
		}
		ts := make([]types.Type, len(columns))
		for i, c := range columns {
			ts[i] = r.Columns[c].Type
		}
		c := types.NewChunk(ts)
		for _, row := range t.ss.mine(r.Name, r.rows(t.ss.srv)) {
			for i, col := range columns {
				c.Cols[i].AppendDatum(row[col])
			}
			c.PushWeight(1)
			if c.N == types.MaxChunkRows {
				if err := emit(c); err != nil {
					return err
				}
				c.Reset()
			}
		}
		if c.N > 0 {
			return emit(c)
		}
		return nil
	}
	return undefinedSystem(name)
}

func jobsRelation(s *Server) [][]types.Datum {
	var rows [][]types.Datum
	for _, j := range s.engine.Jobs() {
		m := j.Metrics()
		lag := j.Behind().Milliseconds()
		rows = append(rows, []types.Datum{
			int8d(int64(j.PublicID())), text(s.jobName(j)), text(jobKind(j)), text(s.jobState(j)), errText(j.Err()),
			int8d(int64(j.Epoch())), int8d(lag), int8d(int64(j.Parallelism())), int8d(exec.StateBytes(m)), text(string(j.Spec.Backend)), int8d(int64(j.Restarts())), timeOrNull(j.FailedAt()),
		})
	}
	return rows
}

// jobName is the name that the job's relation has now.
func (s *Server) jobName(j *exec.Job) string {
	id := j.Spec.ID
	if r := j.Relation(); r != nil {
		id = r.ID
	}
	o, ok := s.catalog.Snapshot().Get(id)
	switch {
	case !ok:
		return j.Spec.Name
	case j.Hidden():
		return fmt.Sprintf("%s (%d)", o.Name, j.Spec.ID)
	}
	return o.Name
}

// publicID is the id under which users know the job with that id of its own.
func (s *Server) publicID(job uint64) uint64 {
	if j, ok := s.engine.JobWithID(job); ok {
		return j.PublicID()
	}
	return job
}

// jobKind is what a job keeps up to date.
func jobKind(j *exec.Job) string {
	if r := j.Relation(); r != nil && r.IndexOf != nil {
		return string(catalog.Index)
	}
	if j.Spec.Sink != nil {
		return string(catalog.Sink)
	}
	return string(catalog.MaterializedView)
}

func operatorsRelation(s *Server) [][]types.Datum {
	var rows [][]types.Datum
	for _, j := range s.engine.Jobs() {
		for _, o := range j.Operators() {
			rows = append(rows, []types.Datum{
				int8d(int64(j.PublicID())), int8d(int64(o.ID)), text(o.Name), int8d(int64(o.Fragment)), int8d(int64(o.Subtasks)), int8d(o.RowsIn), int8d(o.RowsOut),
				int8d(o.StateRows), int8d(o.StateBytes),
				{Type: types.Float8, Float: o.Busy},
				{Type: types.Float8, Float: o.Backpressure},
			})
		}
	}
	return rows
}

func ms(d time.Duration) types.Datum {
	return types.Datum{Type: types.Float8, Float: float64(d.Microseconds()) / 1000}
}

func timestamptz(t time.Time) types.Datum {
	return types.Datum{Type: types.Timestamptz, Int: t.Sub(pgEpoch).Microseconds()}
}

func timeOrNull(t time.Time) types.Datum {
	if t.IsZero() {
		return types.NullDatum(types.Timestamptz)
	}
	return timestamptz(t)
}

func checkpointsRelation(s *Server) [][]types.Datum {
	var rows [][]types.Datum
	for _, r := range s.coord.Stats().Checkpoints {
		reason, message, path := types.NullDatum(types.Text), types.NullDatum(types.Text), types.NullDatum(types.Text)
		if r.Path != "" {
			path = text(r.Path)
		}
		if r.Status == checkpoint.StatusFailed {
			reason, message = text(r.Reason.String()), text(r.FailureMessage)
		}
		rows = append(rows, []types.Datum{
			int8d(int64(s.publicID(r.Job))), int8d(int64(r.ID)), text(string(r.Status)), text(r.Kind.String()), timestamptz(r.TriggerTime), int8d(r.Duration.Milliseconds()),
			int8d(r.Sync.Milliseconds()), int8d(r.CheckpointedSize), int8d(r.FullSize), int8d(r.UploadedBytes), reason, message,
			int8d(int64(r.Epoch)), ms(r.Acknowledged), ms(r.Waited), ms(r.Publication), int8d(r.ProcessedBytes), int8d(r.PersistedBytes),
			{Type: types.Bool, Bool: r.Unaligned},
			path,
		})
	}
	return rows
}

func checkpointSubtasksRelation(s *Server) [][]types.Datum {
	var rows [][]types.Datum
	for _, r := range s.coord.Stats().Checkpoints {
		for _, t := range r.Subtasks {
			rows = append(rows, subtaskRow(s.publicID(r.Job), r.ID, t))
		}
	}
	return rows
}

func subtaskRow(job, id uint64, t checkpoint.SubtaskStats) []types.Datum {
	return []types.Datum{
		int8d(int64(job)), int8d(int64(id)), text(t.Operator), int8d(int64(t.Subtask)), ms(t.StartDelay), ms(t.Alignment), ms(t.Sync), ms(t.Async),
		int8d(t.Bytes), int8d(t.FullBytes),
		{Type: types.Bool, Bool: t.Unaligned},
		int8d(t.ProcessedBytes), int8d(t.PersistedBytes), timestamptz(t.Acknowledged),
	}
}

// checkpointConfigRelation has a row for each job, and one for the tables.
func checkpointConfigRelation(s *Server) [][]types.Datum {
	var rows [][]types.Datum
	for _, p := range s.engine.Participants() {
		c := p.Settings()
		id, at := types.NullDatum(types.Int8), types.NullDatum(types.Timestamptz)
		if r := s.coord.JobStats(p.ID()).Restored; r != nil {
			id, at = int8d(int64(r.ID)), timestamptz(r.At)
		}
		rows = append(rows, []types.Datum{
			int8d(int64(s.publicID(p.ID()))), text(p.Name()), text(c.Mode.String()), int8d(c.Interval.Milliseconds()), int8d(c.BacklogInterval.Milliseconds()),
			int8d(c.MinPause.Milliseconds()), int8d(c.Timeout.Milliseconds()), int8d(int64(c.MaxConcurrent)), int8d(int64(c.TolerableFailures)),
			{Type: types.Bool, Bool: c.Unaligned},
			int8d(c.AlignedTimeout.Milliseconds()),
			{Type: types.Bool, Bool: c.Incremental},
			{Type: types.Bool, Bool: c.AfterTasksFinish},
			id, at,
		})
	}
	return rows
}

func errorsRelation(s *Server, late bool) [][]types.Datum {
	var rows [][]types.Datum
	for _, j := range s.engine.Jobs() {
		for _, e := range j.Errors() {
			if e.Late != late {
				continue
			}
			row, err := types.ParseText(types.DefaultFormat(), types.JSONB, e.Row)
			if err != nil {
				row = types.NullDatum(types.JSONB)
			}
			rows = append(rows, []types.Datum{
				int8d(int64(j.PublicID())), text(s.jobName(j)), int8d(int64(e.Operator)), text(e.Name), text(string(e.Code)), text(e.Message), row, int8d(e.Weight),
			})
		}
	}
	return rows
}

func hotKeysRelation(s *Server) [][]types.Datum {
	var rows [][]types.Datum
	for _, j := range s.engine.Jobs() {
		for _, k := range j.HotKeys() {
			rows = append(rows, []types.Datum{
				int8d(int64(j.PublicID())), text(s.jobName(j)), int8d(int64(k.Operator)), text(k.Key), int8d(k.Rows[0]), int8d(k.Rows[1]), int8d(k.Matches),
			})
		}
	}
	return rows
}

func sourcesRelation(s *Server) [][]types.Datum {
	var rows [][]types.Datum
	for _, j := range s.engine.Jobs() {
		for _, p := range j.Splits() {
			rows = append(rows, []types.Datum{
				int8d(int64(j.PublicID())), text(p.Source), text(p.Split), text(p.Position), int8d(p.Lag), {Type: types.Bool, Bool: p.Idle},
			})
		}
	}
	return rows
}

func settingsRelation(s *Server) [][]types.Datum {
	names := [...]string{scopeSession: "session", scopeServer: "server", scopeJob: "job", scopeReadOnly: "fixed"}
	var rows [][]types.Datum
	for _, st := range s.settings.table.list {
		rows = append(rows, []types.Datum{text(st.name), text(s.settings.get(st.name)), text(names[st.scope]), text(st.doc)})
	}
	return rows
}

func undefinedSystem(name string) error {
	return pgerr.Newf(pgerr.UndefinedTable, "relation %q does not exist", name)
}

// systemData is what the relations of pg_catalog and information_schema are made from.
func (ss *session) systemData() *catalog.SystemData {
	s := ss.srv
	return &catalog.SystemData{
		Snap: ss.snapshot(), Registry: s.registry, User: ss.params.User, Role: ss.role(), Database: databaseName, Size: s.relationSize,
		Path:          ss.vars.searchPath(),
		SequenceValue: func(id uint64) (int64, bool, error) { return ss.sequences.Newest(uint32(id)) },
		RowCount: func(id uint64) int64 {
			if r, ok := s.engine.Relation(id); ok {
				return r.Rows()
			}
			return 0
		},
		Settings: ss.settingInfos, Sessions: s.sessionInfos, Locks: s.locks.infos, Cursors: ss.cursorInfos, Prepared: ss.preparedInfos, HBARules: s.hbaRules,
		ServerVersion: ServerVersion, ServerVersionNum: serverVersionNum, Now: time.Since(pgEpoch).Microseconds(), Extra: streamdbSystem(),
	}
}

// streamdbSystem lists the relations of the system schema for pg_class and its like.
func streamdbSystem() []*catalog.SystemRelation {
	rels := streamdbRelations()
	out := make([]*catalog.SystemRelation, len(rels))
	for i := range rels {
		out[i] = &rels[i].SystemRelation
	}
	return out
}
