package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/server"
)

// rest sends a request to the HTTP port; change may alter it before.
func (d *database) rest(method, path, body string, change ...func(*http.Request)) (int, map[string]any) {
	d.t.Helper()
	r := httptest.NewRequestWithContext(d.ctx, method, "http://127.0.0.1:8433"+path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:40000"
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	d.srv.HTTPHandler().ServeHTTP(w, r)
	var v map[string]any
	require.NoError(d.t, json.Unmarshal(w.Body.Bytes(), &v), "%s", w.Body)
	return w.Code, v
}

// outcome asks for something and waits for what becomes of it.
func (d *database) outcome(path, status, body string) map[string]any {
	d.t.Helper()
	code, v := d.rest(http.MethodPost, path, body)
	require.Equal(d.t, http.StatusAccepted, code, v)
	for {
		code, got := d.rest(http.MethodGet, fmt.Sprintf("%s/%s", status, v["request-id"]), "")
		require.Equal(d.t, http.StatusOK, code, got)
		switch got["status"].(map[string]any)["id"] {
		case "COMPLETED":
			return got["operation"].(map[string]any)
		case "IN_PROGRESS":
			require.NoError(d.t, d.ctx.Err())
		default:
			require.Fail(d.t, "unknown status", got)
		}
		<-time.After(time.Millisecond)
	}
}

func TestCheckpointsOverREST(t *testing.T) {
	checkpointrows.Shows(t, 39, 99, 103, 135)
	bucket := "file://" + t.TempDir()
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (k int PRIMARY KEY, v int)", "CREATE MATERIALIZED VIEW m WITH (parallelism = 2) AS SELECT v, count(*) AS n FROM t GROUP BY v", "INSERT INTO t SELECT g, g % 7 FROM generate_series(1, 1000) g",
		"FLUSH", "CHECKPOINT")
	id := s.row("SELECT job_id FROM streamdb.jobs WHERE name = 'm'")
	job := "/jobs/" + id

	_, all := d.rest(http.MethodGet, job+"/checkpoints", "")
	for _, field := range []string{"counts", "summary", "latest", "history"} {
		require.Contains(t, all, field)
	}
	require.Equal(t, s.row("SELECT count(*) FROM streamdb.checkpoints WHERE status = 'COMPLETED' AND job_id = "+id), fmt.Sprint(len(all["history"].([]any))))
	latest := all["latest"].(map[string]any)["completed"].(map[string]any)
	for _, field := range []string{
		"id", "status", "is_savepoint", "trigger_timestamp", "latest_ack_timestamp", "checkpointed_size", "state_size", "end_to_end_duration", "alignment_buffered", "processed_data",
		"persisted_data", "num_subtasks", "num_acknowledged_subtasks", "checkpoint_type", "tasks", "external_path", "discarded",
	} {
		require.Contains(t, latest, field)
	}
	require.Equal(t, s.row("SELECT checkpointed_size FROM streamdb.checkpoints WHERE job_id = "+id+" ORDER BY checkpoint_id DESC LIMIT 1"), fmt.Sprint(latest["checkpointed_size"]))
	require.InDelta(t, 1, all["counts"].(map[string]any)["completed"], 1)
	p99 := all["summary"].(map[string]any)["end_to_end_duration"].(map[string]any)["p99"].(float64)
	require.GreaterOrEqual(t, p99, all["summary"].(map[string]any)["end_to_end_duration"].(map[string]any)["min"])

	checkpoint := fmt.Sprint(latest["id"])
	_, details := d.rest(http.MethodGet, job+"/checkpoints/details/"+checkpoint, "")
	require.Equal(t, latest, details)
	subtasks := 0
	for chain, task := range details["tasks"].(map[string]any) {
		_, v := d.rest(http.MethodGet, job+"/checkpoints/details/"+checkpoint+"/subtasks/"+chain, "")
		require.Equal(t, task, v["task"])
		for _, sub := range v["subtasks"].([]any) {
			subtasks++
			for _, field := range []string{"index", "status", "ack_timestamp", "end_to_end_duration", "checkpointed_size", "state_size", "checkpoint", "alignment", "start_delay", "unaligned_checkpoint", "aborted"} {
				require.Contains(t, sub, field)
			}
		}
		require.Contains(t, v["summary"].(map[string]any)["checkpoint_duration"], "sync")
	}
	require.Equal(t, details["num_subtasks"], float64(subtasks))

	_, config := d.rest(http.MethodGet, job+"/checkpoints/config", "")
	require.Equal(t, "exactly_once", config["mode"])
	s.must("ALTER MATERIALIZED VIEW m SET (execution.checkpointing.timeout = '77s')")
	_, config = d.rest(http.MethodGet, job+"/checkpoints/config", "")
	require.InDelta(t, 77000, config["timeout"], 0)

	// What is asked for.
	s.must("INSERT INTO t VALUES (2000, 1)", "FLUSH")
	got := d.outcome(job+"/checkpoints", job+"/checkpoints", `{"checkpointType": "FULL"}`)
	require.Equal(t, s.row("SELECT max(checkpoint_id) FROM streamdb.checkpoints WHERE status = 'COMPLETED' AND job_id = "+id), fmt.Sprint(got["checkpointId"]))
	got = d.outcome(job+"/savepoints", job+"/savepoints", `{"target-directory": "`+bucket+`", "formatType": "NATIVE"}`)
	path := got["location"].(string)
	require.Contains(t, path, bucket)
	_, all = d.rest(http.MethodGet, job+"/checkpoints", "")
	require.Equal(t, true, all["latest"].(map[string]any)["savepoint"].(map[string]any)["is_savepoint"])
	require.Empty(t, d.outcome("/savepoint-disposal", "/savepoint-disposal", `{"savepoint-path": "`+path+`"}`))
	require.Contains(t, d.outcome("/savepoint-disposal", "/savepoint-disposal", `{"savepoint-path": "`+path+`"}`), "failure-cause")
	got = d.outcome(job+"/stop", job+"/savepoints", `{"targetDirectory": "`+bucket+`", "drain": false}`)
	require.Contains(t, got["location"], bucket)
	require.Equal(t, "STOPPED", s.row("SELECT state FROM streamdb.jobs WHERE name = 'm'"))
	require.Contains(t, d.outcome(job+"/stop", job+"/savepoints", `{"targetDirectory": "`+bucket+`"}`), "failure-cause", "it is stopped already")

	// The same request again is the same operation.
	code, a := d.rest(http.MethodPost, "/jobs/1/checkpoints", `{"triggerId": "mine"}`)
	require.Equal(t, http.StatusAccepted, code)
	_, b := d.rest(http.MethodPost, "/jobs/1/checkpoints", `{"triggerId": "mine"}`)
	require.Equal(t, a, b)
	require.Equal(t, "mine", a["request-id"])

	for _, bad := range []struct {
		method, path, body string
		code               int
	}{
		{http.MethodGet, "/jobs/99999999/checkpoints", "", http.StatusNotFound},
		{http.MethodGet, "/jobs/x/checkpoints", "", http.StatusBadRequest},
		{http.MethodGet, job + "/checkpoints/details/99999999", "", http.StatusNotFound},
		{http.MethodGet, job + "/checkpoints/details/" + checkpoint + "/subtasks/zzz", "", http.StatusNotFound},
		{http.MethodGet, job + "/savepoints/nothing", "", http.StatusNotFound},
		{http.MethodPost, job + "/checkpoints", "{", http.StatusBadRequest},
		{http.MethodPost, job + "/checkpoints", `{"checkpointType": "HALF"}`, http.StatusBadRequest},
		{http.MethodPost, job + "/savepoints", `{"formatType": "x"}`, http.StatusBadRequest},
		{http.MethodPost, "/jobs/1/stop", `{}`, http.StatusBadRequest},
		{http.MethodPost, "/savepoint-disposal", `{}`, http.StatusBadRequest},
	} {
		code, v := d.rest(bad.method, bad.path, bad.body)
		require.Equal(t, bad.code, code, "%s %s: %v", bad.method, bad.path, v)
		require.NotEmpty(t, v["errors"])
	}
}

// TestWhoMayAskOverREST: nobody asks in another's place, and with a password of the superuser nobody without it.
func TestWhoMayAskOverREST(t *testing.T) {
	d := open(t)
	ask := func(change ...func(*http.Request)) int {
		code, _ := d.rest(http.MethodPost, "/jobs/1/checkpoints", "{}", change...)
		return code
	}
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	login := func(user, password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth(user, password) }
	}
	require.Equal(t, http.StatusAccepted, ask())
	require.Equal(t, http.StatusAccepted, ask(header("Origin", "http://127.0.0.1:8433")))
	require.Equal(t, http.StatusForbidden, ask(header("Origin", "https://elsewhere.example")))
	require.Equal(t, http.StatusBadRequest, ask(header("Content-Type", "text/plain")))
	require.Equal(t, http.StatusUnauthorized, ask(func(r *http.Request) { r.Host = "elsewhere.example:8433" }), "a name that points to this machine")
	require.Equal(t, http.StatusUnauthorized, ask(func(r *http.Request) { r.RemoteAddr = "192.0.2.1:40000" }))

	d.connect().must("CREATE ROLE other LOGIN PASSWORD 'theirs'", "ALTER ROLE streamdb PASSWORD 'mine'")
	require.Equal(t, http.StatusUnauthorized, ask())
	require.Equal(t, http.StatusUnauthorized, ask(login("streamdb", "theirs")))
	require.Equal(t, http.StatusUnauthorized, ask(login("nobody", "")))
	require.Equal(t, http.StatusAccepted, ask(login("streamdb", "mine"), func(r *http.Request) { r.RemoteAddr = "192.0.2.1:40000" }))
	code, v := d.rest(http.MethodPost, "/jobs/1/checkpoints", `{"triggerId": "o"}`, login("other", "theirs"))
	require.Equal(t, http.StatusAccepted, code)
	for {
		_, got := d.rest(http.MethodGet, fmt.Sprint("/jobs/1/checkpoints/", v["request-id"]), "")
		if op, ok := got["operation"]; ok {
			require.Equal(t, "42501", op.(map[string]any)["failure-cause"].(map[string]any)["class"])
			break
		}
		<-time.After(time.Millisecond)
	}
}

// TestCheckpointMetrics: all figures of jobs and subtasks are there and are those of the relations.
func TestCheckpointMetrics(t *testing.T) {
	checkpointrows.Shows(t, 130, 131)
	d := open(t, func(*server.Config) {})
	s := d.connect()
	s.must("CREATE TABLE t (k int PRIMARY KEY, v int)", "CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v", "INSERT INTO t SELECT g, g % 7 FROM generate_series(1, 1000) g", "FLUSH", "CHECKPOINT")
	d.crash()
	s = d.connect()
	s.must("INSERT INTO t VALUES (2000, 1)", "FLUSH", "CHECKPOINT")
	w := httptest.NewRecorder()
	d.srv.HTTPHandler().ServeHTTP(w, httptest.NewRequestWithContext(d.ctx, http.MethodGet, "/metrics", nil))
	metrics := w.Body.String()
	for name, column := range map[string]string{
		"last_checkpoint_id": "checkpoint_id", "last_checkpoint_size_bytes": "checkpointed_size", "last_checkpoint_full_size_bytes": "full_size",
	} {
		want := s.row("SELECT " + column + " FROM streamdb.checkpoints JOIN streamdb.jobs USING (job_id) WHERE name = 'm' AND status = 'COMPLETED' ORDER BY checkpoint_id DESC LIMIT 1")
		require.Contains(t, metrics, fmt.Sprintf("streamdb_job_%s{job=\"m\"} %s\n", name, want))
	}
	for _, name := range []string{
		"last_checkpoint_duration_seconds", "last_checkpoint_completed_timestamp_seconds", "last_checkpoint_processed_bytes", "last_checkpoint_persisted_bytes", "restore_timestamp_seconds",
		"restore_download_seconds", "restore_open_seconds", "restore_rebuild_seconds",
		"checkpoints_in_progress", "checkpoints_completed_total", "checkpoints_failed_total", "checkpoints_total",
	} {
		require.Contains(t, metrics, fmt.Sprintf("\nstreamdb_job_%s{job=\"m\"} ", name))
	}
	require.Contains(t, metrics, "streamdb_job_last_checkpoint_external_path{job=\"m\",path=\"file://")
	for _, name := range []string{"start_delay", "alignment"} {
		require.Contains(t, metrics, fmt.Sprintf("\nstreamdb_job_checkpoint_%s_seconds{job=\"m\",operator=", name))
	}
}

// A value of the wrong kind is told by the name that the request has for it.
func TestRESTValuesOfTheWrongKind(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (a int)", "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
	job := "/jobs/" + s.row("SELECT job_id FROM streamdb.jobs WHERE name = 'm'")
	for body, want := range map[string]string{
		`{"cancel-job": "yes"}`: `"cancel-job" cannot be of type string`, `{"target-directory": 1}`: `"target-directory" cannot be of type number`, `{"darin": true}`: `unrecognized field "darin"`, `[]`: "the request is not a JSON object but of type array",
	} {
		code, v := d.rest(http.MethodPost, job+"/savepoints", body)
		require.Equal(t, http.StatusBadRequest, code, body)
		require.Contains(t, fmt.Sprint(v["errors"]), want)
		require.NotContains(t, fmt.Sprint(v["errors"]), "Go ")
	}
}
