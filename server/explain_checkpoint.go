package server

import (
	"fmt"
	"slices"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/types"
)

// explainCheckpoint tells where the time of a checkpoint went: per job the subtask that was done last, and the phases one after the other.
func (d *dispatch) explainCheckpoint(x *sql.ExplainedCheckpoint) error {
	s := d.ss.srv
	rows := s.coord.Stats().Checkpoints
	if x.Job != nil {
		jobs, err := d.jobsNamed(x.Job)
		if err != nil {
			return err
		}
		rows = slices.DeleteFunc(rows, func(c checkpoint.JobCheckpoint) bool { return c.Job != jobs[0].ID() })
	}
	id := x.ID
	for _, c := range rows {
		if x.Newest && c.Status != checkpoint.StatusInProgress {
			id = max(id, c.ID)
		}
	}
	rows = slices.DeleteFunc(rows, func(c checkpoint.JobCheckpoint) bool { return c.ID != id })
	if len(rows) == 0 && x.Newest {
		return pgerr.Newf(pgerr.UndefinedObject, "there is no checkpoint in the history").At(x.IDPos).WithHint("CHECKPOINT makes one.")
	}
	if len(rows) == 0 {
		return pgerr.Newf(pgerr.UndefinedObject, "there is no checkpoint %d in the history", x.ID).At(x.IDPos).
			WithHint("streamdb.checkpoints lists those there are, as many of each job as %s says.", checkpoint.SettingHistory)
	}
	var lines []string
	if x.Newest {
		lines = append(lines, fmt.Sprintf("Checkpoint %d", id))
	}
	for _, c := range rows {
		lines = append(lines, explainJobCheckpoint(&c, s.operatorsOf(c.Job))...)
	}
	out := make([][]types.Datum, len(lines))
	for i, l := range lines {
		out[i] = []types.Datum{text(l)}
	}
	return d.rows(types.Schema{{Name: "QUERY PLAN", Type: types.Text}}, out, "EXPLAIN")
}

// operatorsOf names the operators of the chains of a job, as checkpoints number them.
func (s *Server) operatorsOf(job uint64) map[string]string {
	names := map[string]string{}
	if j, ok := s.engine.JobWithID(job); ok {
		for _, o := range j.Operators() {
			chain := fmt.Sprint(o.Fragment)
			if names[chain] != "" {
				names[chain] += ", "
			}
			names[chain] += o.Name
		}
	}
	return names
}

// explainJobCheckpoint is the part of a job, whose operator chains have these names.
func explainJobCheckpoint(c *checkpoint.JobCheckpoint, chains map[string]string) []string {
	msText := func(t time.Duration) string { return fmt.Sprintf("%.3f ms", float64(t.Microseconds())/1000) }
	head := fmt.Sprintf("%s: %s after %s", c.JobName, c.Status, msText(c.Duration))
	if c.Status == checkpoint.StatusFailed {
		head += fmt.Sprintf(" (%s: %s)", c.Reason, c.FailureMessage)
	}
	slowest, phases := c.Slowest()
	most := phases[0]
	for _, p := range phases {
		if p.Time > most.Time {
			most = p
		}
	}
	lines := []string{head, fmt.Sprintf("  Slowest phase: %s, %s", most.Phase, msText(most.Time))}
	if len(c.Subtasks) > 0 {
		line := fmt.Sprintf("  Slowest subtask: %s/%d, of %d", slowest.Operator, slowest.Subtask, len(c.Subtasks))
		if names := chains[slowest.Operator]; names != "" {
			line += " (" + names + ")"
		}
		lines = append(lines, line)
	}
	for _, p := range phases {
		lines = append(lines, fmt.Sprintf("  %-12s %s", p.Phase, msText(p.Time)))
	}
	return append(lines, fmt.Sprintf("  State: %d bytes new of %d, %d uploaded", c.CheckpointedSize, c.FullSize, c.UploadedBytes))
}

// Checkpoint implements expr.SessionActions.
func (a *actions) Checkpoint(relation, kind string) (int64, error) {
	if err := a.inSession("streamdb.checkpoint"); err != nil {
		return 0, err
	}
	ss := a.ss
	if !ss.snapshot().HasPrivilegesOf(ss.role(), catalog.RoleCheckpoint) {
		return 0, denied("must be superuser or have privileges of pg_checkpoint to ask for a checkpoint")
	}
	var req checkpoint.TriggerRequest
	var ok bool
	if req.Type, ok = checkpoint.ParseType(kind); !ok {
		return 0, pgerr.Newf(pgerr.InvalidParameterValue, "unknown type of a checkpoint: %q", kind).WithHint("Use configured, full or incremental.")
	}
	if relation != "" {
		o, ok := a.named(relation)
		if !ok {
			return 0, pgerr.Newf(pgerr.UndefinedTable, "relation %q does not exist", relation)
		}
		req.Jobs = []uint64{exec.TablesID}
		if o.Plan != nil {
			req.Jobs = []uint64{o.JobID()}
		}
	}
	id, err := ss.srv.coord.TriggerWith(a.ctx, req)
	return int64(id), err //nolint:gosec // ids count checkpoints
}
