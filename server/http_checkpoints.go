package server

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/streamdb/streamdb/auth"
	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
)

// The REST interface of checkpoints has the paths and the names of fields that tools for Apache Flink know. What is asked for with POST runs in the background; the
// answer has an id under which its outcome can be read.

const (
	maxHTTPBody    = 64 << 10 // bytes of a request
	keptOperations = 1000     // outcomes that can be asked for; the oldest finished ones go first
	httpRealm      = "streamdb"
)

// checkpointRoutes registers the paths.
func (s *Server) checkpointRoutes(mux *http.ServeMux) {
	get := func(path string, f func(*http.Request, *exec.Job, uint64) (any, error)) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			j, id, err := s.httpJob(r)
			if err != nil {
				httpError(w, err)
				return
			}
			v, err := f(r, j, id)
			if err != nil {
				httpError(w, err)
				return
			}
			writeJSON(w, v)
		})
	}
	get("/jobs/{id}/checkpoints", s.httpCheckpoints)
	get("/jobs/{id}/checkpoints/config", s.httpCheckpointConfig)
	get("/jobs/{id}/checkpoints/details/{checkpoint}", s.httpCheckpointDetails)
	get("/jobs/{id}/checkpoints/details/{checkpoint}/subtasks/{vertex}", s.httpCheckpointSubtasks)
	for _, o := range []struct{ trigger, status string }{
		{"/jobs/{id}/checkpoints", "/jobs/{id}/checkpoints/{trigger}"},
		{"/jobs/{id}/savepoints", "/jobs/{id}/savepoints/{trigger}"},
		{"/jobs/{id}/stop", ""},
		{"/savepoint-disposal", "/savepoint-disposal/{trigger}"},
	} {
		mux.HandleFunc("POST "+o.trigger, s.httpTrigger)
		if o.status != "" {
			mux.HandleFunc("GET "+o.status, s.httpOperation)
		}
	}
}

// httpError answers with the error in the form that Flink's interface has.
func httpError(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch pgerr.CodeOf(err) {
	case pgerr.UndefinedObject, pgerr.UndefinedTable:
		status = http.StatusNotFound
	case pgerr.InvalidParameterValue, pgerr.WrongObjectType, pgerr.FeatureNotSupported:
		status = http.StatusBadRequest
	case pgerr.InsufficientPrivilege:
		status = http.StatusForbidden
	case pgerr.InvalidPassword:
		status = http.StatusUnauthorized
		w.Header().Set("WWW-Authenticate", `Basic realm="`+httpRealm+`", charset="UTF-8"`)
	case pgerr.ObjectNotInPrerequisiteState, pgerr.ObjectInUse:
		status = http.StatusConflict
	case pgerr.CannotConnectNow:
		status = http.StatusServiceUnavailable
	case pgerr.ConfigurationLimitExceeded:
		status = http.StatusTooManyRequests
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := pgerr.From(err)
	text := e.Message
	if e.Hint != "" {
		text += ". " + e.Hint
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []string{text}}) // the client is gone
}

// httpJob finds the job of the path: that of a view, or all tables.
func (s *Server) httpJob(r *http.Request) (*exec.Job, uint64, error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, 0, pgerr.Newf(pgerr.InvalidParameterValue, "%q is not the id of a job", r.PathValue("id")).WithHint("GET /jobs lists them.")
	}
	if !s.Ready() {
		return nil, 0, pgerr.Newf(pgerr.CannotConnectNow, "the server is starting")
	}
	if id == exec.TablesID {
		return nil, id, nil
	}
	j, ok := s.engine.Job(id)
	if !ok {
		return nil, 0, pgerr.Newf(pgerr.UndefinedObject, "there is no job %d", id).WithHint("GET /jobs lists them.")
	}
	return j, j.Spec.ID, nil
}

// restFigures are those of a checkpoint, and of the part that an operator chain has in it.
type restFigures struct {
	Status            checkpoint.Status `json:"status"`
	LatestAck         int64             `json:"latest_ack_timestamp"`
	CheckpointedSize  int64             `json:"checkpointed_size"`
	StateSize         int64             `json:"state_size"`
	EndToEndDuration  int64             `json:"end_to_end_duration"`
	AlignmentBuffered int64             `json:"alignment_buffered"`
	ProcessedData     int64             `json:"processed_data"`
	PersistedData     int64             `json:"persisted_data"`
	NumSubtasks       int               `json:"num_subtasks"`
	NumAcknowledged   int               `json:"num_acknowledged_subtasks"`
}

// restCheckpoint is a checkpoint of a job.
type restCheckpoint struct {
	Class string `json:"className"`
	ID    uint64 `json:"id"`
	restFigures
	IsSavepoint       bool                `json:"is_savepoint"`
	SavepointFormat   string              `json:"savepointFormat,omitempty"`
	TriggerTimestamp  int64               `json:"trigger_timestamp"`
	Type              string              `json:"checkpoint_type"`
	Tasks             map[string]restTask `json:"tasks"`
	ExternalPath      string              `json:"external_path,omitempty"`
	Discarded         bool                `json:"discarded"`
	FailureTimestamp  int64               `json:"failure_timestamp,omitempty"`
	FailureMessage    string              `json:"failure_message,omitempty"`
	FailureReason     string              `json:"failure_reason,omitempty"`
	UploadedBytes     int64               `json:"uploaded_bytes"`
	PublicationMillis int64               `json:"publication_duration"`
	WaitMillis        int64               `json:"wait_duration"`
}

// restTask is the part of an operator chain in a checkpoint.
type restTask struct {
	ID string `json:"id"`
	restFigures
}

func (s *Server) httpCheckpoints(_ *http.Request, _ *exec.Job, id uint64) (any, error) {
	st := s.coord.JobStats(id)
	latest := map[string]any{"completed": nil, "savepoint": nil, "failed": nil, "restored": nil}
	for name, c := range map[string]*checkpoint.JobCheckpoint{"completed": st.Completed, "savepoint": st.SavepointDone, "failed": st.Failed} {
		if c != nil {
			latest[name] = s.rest(c)
		}
	}
	if r := st.Restored; r != nil {
		latest["restored"] = map[string]any{"id": r.ID, "restore_timestamp": r.At.UnixMilli(), "is_savepoint": r.IsSavepoint, "external_path": r.Path}
	}
	history := make([]restCheckpoint, 0, len(st.History))
	for i := range st.History {
		history = append(history, s.rest(&st.History[i]))
	}
	return map[string]any{"counts": st.Counts, "summary": s.coord.JobSummary(id), "latest": latest, "history": history}, nil
}

// rest gives a checkpoint the form of the interface.
func (s *Server) rest(c *checkpoint.JobCheckpoint) restCheckpoint {
	r := restCheckpoint{
		Class: strings.ToLower(string(c.Status)), ID: c.ID, IsSavepoint: c.Kind == checkpoint.KindSavepoint, TriggerTimestamp: c.TriggerTime.UnixMilli(),
		restFigures: restFigures{
			Status: c.Status, LatestAck: -1, CheckpointedSize: c.CheckpointedSize, StateSize: c.FullSize, EndToEndDuration: c.Duration.Milliseconds(),
			ProcessedData: c.ProcessedBytes, PersistedData: c.PersistedBytes,
		},
		Type: "CHECKPOINT", Tasks: map[string]restTask{}, FailureMessage: c.FailureMessage, FailureReason: c.Reason.String(), UploadedBytes: c.UploadedBytes,
		PublicationMillis: c.Publication.Milliseconds(), WaitMillis: c.Waited.Milliseconds(),
	}
	if c.Unaligned {
		r.Type = "UNALIGNED_CHECKPOINT"
	}
	if sp := c.Savepoint; sp != nil {
		r.Type, r.SavepointFormat = "SAVEPOINT", "NATIVE"
		if sp.Canonical {
			r.SavepointFormat = "CANONICAL"
		}
		if sp.Stop {
			r.Type = "SYNC_SAVEPOINT"
		}
	}
	switch c.Status {
	case checkpoint.StatusCompleted:
		r.ExternalPath = c.Path
	case checkpoint.StatusFailed:
		r.FailureTimestamp = c.TriggerTime.Add(c.Duration).UnixMilli()
	}
	for _, sub := range c.Subtasks {
		t := r.Tasks[sub.Operator]
		t.ID, t.Status = sub.Operator, c.Status
		t.NumSubtasks++
		t.NumAcknowledged++
		t.LatestAck = max(t.LatestAck, sub.Acknowledged.UnixMilli())
		t.CheckpointedSize += sub.Bytes
		t.StateSize += sub.FullBytes
		t.EndToEndDuration = max(t.EndToEndDuration, endToEnd(sub).Milliseconds())
		t.ProcessedData += sub.ProcessedBytes
		t.PersistedData += sub.PersistedBytes
		r.Tasks[sub.Operator] = t
		r.LatestAck = max(r.LatestAck, t.LatestAck)
		r.NumSubtasks++
		r.NumAcknowledged++
	}
	return r
}

// endToEnd is the time from the trigger until the subtask's state was written.
func endToEnd(s checkpoint.SubtaskStats) time.Duration {
	return s.StartDelay + s.Alignment + s.Sync + s.Async
}

func (s *Server) httpCheckpointConfig(_ *http.Request, j *exec.Job, _ uint64) (any, error) {
	st := s.settings.checkpoints().JobSettings()
	backend := s.settings.get("state.backend.type")
	if j != nil {
		st, backend = j.Settings(), string(j.Spec.Backend)
	}
	return map[string]any{
		"mode": strings.ToLower(st.Mode.String()), "interval": st.Interval.Milliseconds(), "timeout": st.Timeout.Milliseconds(), "min_pause": st.MinPause.Milliseconds(),
		"max_concurrent": st.MaxConcurrent, "tolerable_failed_checkpoints": st.TolerableFailures,
		"externalization":       map[string]bool{"enabled": st.Retention != checkpoint.NoExternalized, "delete_on_cancellation": st.Retention == checkpoint.DeleteOnCancellation},
		"state_backend":         backend,
		"checkpoint_storage":    s.objects.String(),
		"unaligned_checkpoints": st.Unaligned, "aligned_checkpoint_timeout": st.AlignedTimeout.Milliseconds(),
		"checkpoints_after_tasks_finish": st.AfterTasksFinish, "incremental": st.Incremental, "interval_during_backlog": st.BacklogInterval.Milliseconds(),
		"num_retained": s.settings.checkpoints().Retained,
		// What is uploaded are changes, which the state is made of at intervals: both names of Flink for that are true.
		"state_changelog_enabled": st.Incremental,
	}, nil
}

// checkpointOf finds the checkpoint of the path in the history of a job.
func (s *Server) checkpointOf(r *http.Request, id uint64) (*checkpoint.JobCheckpoint, error) {
	n, err := strconv.ParseUint(r.PathValue("checkpoint"), 10, 64)
	if err != nil {
		return nil, pgerr.Newf(pgerr.InvalidParameterValue, "%q is not the id of a checkpoint", r.PathValue("checkpoint"))
	}
	history := s.coord.JobStats(id).History
	i := slices.IndexFunc(history, func(c checkpoint.JobCheckpoint) bool { return c.ID == n })
	if i < 0 {
		return nil, pgerr.Newf(pgerr.UndefinedObject, "the history of the job has no checkpoint %d", n).WithHint("%s says how many it keeps.", checkpoint.SettingHistory)
	}
	return &history[i], nil
}

func (s *Server) httpCheckpointDetails(r *http.Request, _ *exec.Job, id uint64) (any, error) {
	c, err := s.checkpointOf(r, id)
	if err != nil {
		return nil, err
	}
	return s.rest(c), nil
}

// restSubtask is the part of a subtask in a checkpoint. Times are milliseconds.
type restSubtask struct {
	Index            int           `json:"index"`
	Status           string        `json:"status"`
	Ack              int64         `json:"ack_timestamp"`
	EndToEndDuration int64         `json:"end_to_end_duration"`
	CheckpointedSize int64         `json:"checkpointed_size"`
	StateSize        int64         `json:"state_size"`
	Checkpoint       restDurations `json:"checkpoint"`
	Alignment        restAlignment `json:"alignment"`
	StartDelay       int64         `json:"start_delay"`
	Unaligned        bool          `json:"unaligned_checkpoint"`
	Aborted          bool          `json:"aborted"`
}

type restDurations struct {
	Sync  int64 `json:"sync"`
	Async int64 `json:"async"`
}

type restAlignment struct {
	Buffered  int64 `json:"buffered"`
	Processed int64 `json:"processed"`
	Persisted int64 `json:"persisted"`
	Duration  int64 `json:"duration"`
}

func (s *Server) httpCheckpointSubtasks(r *http.Request, _ *exec.Job, id uint64) (any, error) {
	c, err := s.checkpointOf(r, id)
	if err != nil {
		return nil, err
	}
	vertex := r.PathValue("vertex")
	subs := []restSubtask{}
	var sizes, states, ends, syncs, asyncs, processed, persisted, durations, delays []int64
	for _, t := range c.Subtasks {
		if t.Operator != vertex {
			continue
		}
		x := restSubtask{
			Index: t.Subtask, Status: "completed", Ack: t.Acknowledged.UnixMilli(), EndToEndDuration: endToEnd(t).Milliseconds(), CheckpointedSize: t.Bytes, StateSize: t.FullBytes,
			Checkpoint: restDurations{t.Sync.Milliseconds(), t.Async.Milliseconds()},
			Alignment:  restAlignment{Processed: t.ProcessedBytes, Persisted: t.PersistedBytes, Duration: t.Alignment.Milliseconds()},
			StartDelay: t.StartDelay.Milliseconds(), Unaligned: t.Unaligned, Aborted: c.Status == checkpoint.StatusFailed,
		}
		subs = append(subs, x)
		sizes, states, ends = append(sizes, x.CheckpointedSize), append(states, x.StateSize), append(ends, x.EndToEndDuration)
		syncs, asyncs = append(syncs, x.Checkpoint.Sync), append(asyncs, x.Checkpoint.Async)
		processed, persisted = append(processed, x.Alignment.Processed), append(persisted, x.Alignment.Persisted)
		durations, delays = append(durations, x.Alignment.Duration), append(delays, x.StartDelay)
	}
	if len(subs) == 0 {
		return nil, pgerr.Newf(pgerr.UndefinedObject, "checkpoint %d has no operator chain %q", c.ID, vertex)
	}
	d := checkpoint.DistributionOf
	return map[string]any{
		"task": s.rest(c).Tasks[vertex], "subtasks": subs,
		"summary": map[string]any{
			"checkpointed_size": d(sizes), "state_size": d(states), "end_to_end_duration": d(ends), "checkpoint_duration": map[string]any{"sync": d(syncs), "async": d(asyncs)},
			"alignment": map[string]any{"processed": d(processed), "persisted": d(persisted), "duration": d(durations)}, "start_delay": d(delays),
		},
	}, nil
}

// operations are what was asked for with POST.
type operations struct {
	mu       sync.Mutex
	all      map[string]*operation
	order    []string
	running  sync.WaitGroup
	sessions atomic.Int32
}

type operation struct {
	done   bool
	result map[string]any
}

// begin notes an operation, under the id that the client chose or a new one; false when the id is known: then nothing is to be done again.
func (o *operations) begin(id string) (string, *operation, bool) {
	if id == "" {
		var b [16]byte
		_, _ = rand.Read(b[:]) // never fails
		id = hex.EncodeToString(b[:])
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if op, ok := o.all[id]; ok {
		return id, op, false
	}
	if o.all == nil {
		o.all = map[string]*operation{}
	}
	for i := 0; i < len(o.order) && len(o.order) >= keptOperations; i++ {
		if old := o.order[i]; o.all[old].done {
			delete(o.all, old)
			o.order = slices.Delete(o.order, i, i+1)
			i--
		}
	}
	op := &operation{}
	o.all[id], o.order = op, append(o.order, id)
	return id, op, true
}

func (o *operations) end(op *operation, result map[string]any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	op.done, op.result = true, result
}

func (s *Server) httpOperation(w http.ResponseWriter, r *http.Request) {
	s.operations.mu.Lock()
	defer s.operations.mu.Unlock()
	op, ok := s.operations.all[r.PathValue("trigger")]
	switch {
	case !ok:
		httpError(w, pgerr.Newf(pgerr.UndefinedObject, "nothing was asked for under the id %q", r.PathValue("trigger")))
	case !op.done:
		writeJSON(w, map[string]any{"status": map[string]string{"id": "IN_PROGRESS"}})
	default:
		writeJSON(w, map[string]any{"status": map[string]string{"id": "COMPLETED"}, "operation": op.result})
	}
}

// restRequest are the bodies of all requests.
type restRequest struct {
	TriggerID string `json:"triggerId"`
	// Of a checkpoint: CONFIGURED, FULL or INCREMENTAL.
	CheckpointType string `json:"checkpointType"`
	// Of a savepoint; a stop has the target under another name.
	TargetDirectory string `json:"target-directory"`
	CancelJob       bool   `json:"cancel-job"`
	FormatType      string `json:"formatType"`
	Target          string `json:"targetDirectory"`
	Drain           bool   `json:"drain"`
	// Of a disposal.
	Path string `json:"savepoint-path"`
}

// unknownField returns the name, in quotes, that a decoder did not know; encoding/json has no type for that error.
func unknownField(err error) (string, bool) {
	if err == nil {
		return "", false
	}
	return strings.CutPrefix(err.Error(), "json: unknown field ")
}

func (s *Server) httpTrigger(w http.ResponseWriter, r *http.Request) {
	user, err := s.httpUser(r)
	if err != nil {
		httpError(w, err)
		return
	}
	var q restRequest
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxHTTPBody))
	d.DisallowUnknownFields() // a misspelt "drain" must not stop a job without
	var wrong *json.UnmarshalTypeError
	if err := d.Decode(&q); errors.As(err, &wrong) && wrong.Field != "" {
		httpError(w, pgerr.Newf(pgerr.InvalidParameterValue, "%q cannot be of type %s", wrong.Field, wrong.Value))
		return
	} else if errors.As(err, &wrong) {
		httpError(w, pgerr.Newf(pgerr.InvalidParameterValue, "the request is not a JSON object but of type %s", wrong.Value))
		return
	} else if field, ok := unknownField(err); ok {
		httpError(w, pgerr.Newf(pgerr.InvalidParameterValue, "unrecognized field %s", field))
		return
	} else if err != nil && !errors.Is(err, io.EOF) {
		httpError(w, pgerr.Newf(pgerr.InvalidParameterValue, "the request is not JSON: %v", err))
		return
	}
	what := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	var j *exec.Job
	if what != "savepoint-disposal" {
		if j, _, err = s.httpJob(r); err != nil {
			httpError(w, err)
			return
		}
	}
	run, err := s.httpAction(what, j, q)
	if err != nil {
		httpError(w, err)
		return
	}
	id, op, fresh := s.operations.begin(q.TriggerID)
	if fresh {
		s.operations.running.Go(func() { s.operations.end(op, s.httpRun(user, run)) })
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_ = json.NewEncoder(w).Encode(map[string]string{"request-id": id}) // the client is gone
}

// httpAction checks a request and returns what it is about to do, which gives the fields of its outcome.
func (s *Server) httpAction(what string, j *exec.Job, q restRequest) (func(*actions) (map[string]any, error), error) {
	if what == "savepoint-disposal" {
		if q.Path == "" {
			return nil, pgerr.Newf(pgerr.InvalidParameterValue, "savepoint-path is missing")
		}
		return func(a *actions) (map[string]any, error) { return map[string]any{}, a.DisposeSavepoint(q.Path) }, nil
	}
	if what == "checkpoints" {
		types := map[string]checkpoint.Type{"": checkpoint.TypeConfigured, "CONFIGURED": checkpoint.TypeConfigured, "FULL": checkpoint.TypeFull, "INCREMENTAL": checkpoint.TypeIncremental}
		typ, ok := types[strings.ToUpper(q.CheckpointType)]
		if !ok {
			return nil, pgerr.Newf(pgerr.InvalidParameterValue, "checkpointType %q is none of CONFIGURED, FULL, INCREMENTAL", q.CheckpointType)
		}
		id := exec.TablesID
		if j != nil {
			id = j.Spec.ID
		}
		return func(a *actions) (map[string]any, error) {
			if !a.ss.snapshot().HasPrivilegesOf(a.ss.role(), catalog.RoleCheckpoint) {
				return nil, denied("must be superuser or have privileges of pg_checkpoint to ask for a checkpoint")
			}
			n, err := s.coord.TriggerWith(a.ctx, checkpoint.TriggerRequest{Jobs: []uint64{id}, Type: typ})
			return map[string]any{"checkpointId": n}, err
		}, nil
	}
	sp := expr.Savepoint{Target: q.TargetDirectory, Stop: q.CancelJob || what == "stop", Drain: q.Drain}
	if q.Target != "" {
		sp.Target = q.Target
	}
	switch strings.ToUpper(q.FormatType) {
	case "", "CANONICAL":
		sp.Canonical = true
	case "NATIVE":
	default:
		return nil, pgerr.Newf(pgerr.InvalidParameterValue, "formatType %q is none of CANONICAL, NATIVE", q.FormatType)
	}
	if j != nil {
		o, ok := s.catalog.Snapshot().Get(j.PublicID())
		if !ok {
			return nil, pgerr.Newf(pgerr.UndefinedObject, "job %d has no relation", j.PublicID())
		}
		sp.Relation = sql.QuoteIdent(o.Schema) + "." + sql.QuoteIdent(o.Name)
	} else if sp.Stop {
		return nil, pgerr.Newf(pgerr.WrongObjectType, "tables are no job that could be stopped")
	}
	return func(a *actions) (map[string]any, error) {
		path, err := a.Savepoint(sp)
		return map[string]any{"location": path}, err
	}, nil
}

// deaf is a client that is told nothing.
type deaf struct{}

// Notice implements pgwire.Notifier.
func (deaf) Notice(*pgerr.Error) error { return nil }

// ParameterStatus implements pgwire.Notifier.
func (deaf) ParameterStatus(string, string) error { return nil }

// httpRun runs an action in a session of its own and returns the outcome.
func (s *Server) httpRun(user string, run func(*actions) (map[string]any, error)) map[string]any {
	fail := func(err error) map[string]any {
		e := pgerr.From(err)
		return map[string]any{"failure-cause": map[string]string{"class": string(e.Code), "stack-trace": fmt.Sprintf("%s: %s", e.Code, e.Error())}}
	}
	ss, err := s.NewSession(s.ctx, pgwire.StartupParams{User: user, Database: databaseName, ProcessID: -s.operations.sessions.Add(1)}, deaf{})
	if err != nil {
		return fail(err)
	}
	defer ss.Close()
	mine, ok := ss.(*session)
	if !ok {
		return fail(errors.New("no session"))
	}
	result, err := run(&actions{ss: mine, ctx: s.ctx})
	if err != nil {
		return fail(err)
	}
	return result
}

// httpUser finds out who asks for something to be done. As long as nobody has set a password whoever reaches the port from this machine is the superuser, as on
// the PostgreSQL port; after that name and password are asked for. Pages of other sites cannot ask in their visitors' place: browsers send JSON elsewhere only
// with permission, and the name that the port is addressed with must be one of this machine.
func (s *Server) httpUser(r *http.Request) (string, error) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return "", pgerr.Newf(pgerr.InvalidParameterValue, "the request needs Content-Type: application/json")
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Host != r.Host {
			return "", denied("requests of other sites (%s) are refused", origin)
		}
	}
	user, password, given := r.BasicAuth()
	if !given {
		remote, err := net.ResolveTCPAddr("tcp", r.RemoteAddr)
		local := err == nil && remote.IP.IsLoopback() && (host == "localhost" || net.ParseIP(host) != nil)
		if local && s.auth.BuiltIn() && s.AuthOpen() {
			return catalog.OwnerRole, nil
		}
		return "", pgerr.Newf(pgerr.InvalidPassword, "name and password are needed")
	}
	role, ok := s.AuthRole(user)
	v, valid := auth.ParseVerifier(role.Verifier)
	if !ok || !valid || !v.Matches(password) || role.ValidUntil != nil && role.ValidUntil.Before(time.Now()) {
		return "", pgerr.Newf(pgerr.InvalidPassword, "password authentication failed for user %q", user)
	}
	return user, nil
}
