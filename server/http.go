package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/streamdb/streamdb/exec"
)

// HTTPHandler serves health, metrics and the state of jobs and checkpoints.
func (s *Server) HTTPHandler() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &metrics{s})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.Ready() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		if err := s.mayExecute(); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.HandleFunc("GET /jobs", s.httpJobs)
	s.checkpointRoutes(mux)
	mux.HandleFunc("GET /{$}", s.httpIndex)
	return mux
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

type httpJob struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Status      string `json:"status"`
	Epoch       uint64 `json:"epoch"`
	Parallelism int    `json:"parallelism"`
	StateBytes  int64  `json:"state_bytes"`
	LastError   string `json:"last_error,omitempty"`
}

func (s *Server) httpJobs(w http.ResponseWriter, _ *http.Request) {
	jobs := []httpJob{}
	for _, j := range s.engine.Jobs() {
		h := httpJob{
			ID: strconv.FormatUint(j.PublicID(), 10), Name: s.jobName(j), Status: s.jobState(j), Epoch: j.Epoch(), Parallelism: j.Parallelism(),
			StateBytes: exec.StateBytes(j.Metrics()),
		}
		if err := j.Err(); err != nil {
			h.LastError = err.Error()
		}
		jobs = append(jobs, h)
	}
	writeJSON(w, map[string]any{"jobs": jobs})
}

func (s *Server) httpIndex(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "streamdb, up %v\n\nGET /metrics, /healthz, /readyz, /jobs, /jobs/{id}/checkpoints\nAll paths: docs/operations.md\n", time.Since(s.started).Round(time.Second))
}

// maxSubtaskMetrics bounds the subtasks of a job that have metrics of their own.
const maxSubtaskMetrics = 256

type metricFunc func(name, help string, v float64, labels, values []string)

// checkpoints collects what is known of the checkpoints of a job.
func (m *metrics) checkpoints(j *exec.Job, name, path string, gauge, counter metricFunc) {
	st, l := m.s.coord.JobStats(j.Spec.ID), []string{name}
	gauge("job_checkpoints_in_progress", "Checkpoints of the job in progress.", float64(st.Counts.InProgress), jobLabels, l)
	counter("job_checkpoints_completed_total", "Completed checkpoints of the job.", float64(st.Counts.Completed), jobLabels, l)
	counter("job_checkpoints_failed_total", "Failed checkpoints of the job.", float64(st.Counts.Failed), jobLabels, l)
	counter("job_checkpoints_total", "Checkpoints of the job that were begun.", float64(st.Counts.Total), jobLabels, l)
	if r := st.Restored; r != nil {
		gauge("job_restore_timestamp_seconds", "When the job was last restored.", float64(r.At.UnixMilli())/1000, jobLabels, l)
	}
	if r := j.Restored(); r != nil {
		gauge("job_restore_download_seconds", "What it took then to make the state's files local.", m.s.downloaded(j, r).Seconds(), jobLabels, l)
		gauge("job_restore_open_seconds", "What it took to open them.", r.Open.Seconds(), jobLabels, l)
		gauge("job_restore_rebuild_seconds", "What it took to rebuild what operators have in memory.", r.Rebuild.Seconds(), jobLabels, l)
	}
	c := st.Completed
	if c == nil {
		return
	}
	gauge("job_last_checkpoint_id", "Id of the newest completed one.", float64(c.ID), jobLabels, l)
	gauge("job_last_checkpoint_duration_seconds", "From its trigger until it was complete.", c.Duration.Seconds(), jobLabels, l)
	gauge("job_last_checkpoint_size_bytes", "New with it.", float64(c.CheckpointedSize), jobLabels, l)
	gauge("job_last_checkpoint_full_size_bytes", "All that it consists of.", float64(c.FullSize), jobLabels, l)
	gauge("job_last_checkpoint_completed_timestamp_seconds", "When it was complete.", float64(st.CompletedAt.UnixMilli())/1000, jobLabels, l)
	gauge("job_last_checkpoint_processed_bytes", "Processed while its barriers were aligned.", float64(c.ProcessedBytes), jobLabels, l)
	gauge("job_last_checkpoint_persisted_bytes", "In flight, and part of it.", float64(c.PersistedBytes), jobLabels, l)
	gauge("job_last_checkpoint_external_path", "1; the label path says where it is.", 1, []string{"job", "path"}, []string{name, m.s.objects.String() + "/" + path})
	for _, sub := range c.Subtasks[:min(len(c.Subtasks), maxSubtaskMetrics)] {
		labels, values := []string{"job", "operator", "subtask"}, []string{name, sub.Operator, strconv.Itoa(sub.Subtask)}
		gauge("job_checkpoint_start_delay_seconds", "From the trigger of the newest completed one to its first barrier, by subtask.", sub.StartDelay.Seconds(), labels, values)
		gauge("job_checkpoint_alignment_seconds", "From its first barrier to the last one, by subtask.", sub.Alignment.Seconds(), labels, values)
	}
}

// metrics collects the server's state for Prometheus at each scrape; labels are jobs, of which there are few.
type metrics struct{ s *Server }

var jobLabels = []string{"job"}

func desc(name, help string, labels []string) *prometheus.Desc {
	return prometheus.NewDesc("streamdb_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector: the collector is unchecked, its metrics come and go with the jobs.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	s := m.s
	gauge := func(name, help string, v float64, labels, values []string) {
		ch <- prometheus.MustNewConstMetric(desc(name, help, labels), prometheus.GaugeValue, v, values...)
	}
	counter := func(name, help string, v float64, labels, values []string) {
		ch <- prometheus.MustNewConstMetric(desc(name, help, labels), prometheus.CounterValue, v, values...)
	}
	if !s.Ready() {
		return
	}
	if s.elector != nil {
		leads := 0.0
		if s.elector.Valid() {
			leads = 1
		}
		gauge("leader", leaderHelp, leads, nil, nil)
	}
	gauge("epoch", "Newest closed epoch.", float64(s.engine.Epoch()), nil, nil)
	gauge("connections", "Open client connections.", float64(s.wire.Connections()), nil, nil)
	counter("statements_total", "Statements executed.", float64(s.statements.Load()), nil, nil)
	st := s.coord.Stats()
	gauge("checkpoints_in_progress", "Checkpoints of jobs in progress.", float64(st.InProgress), nil, nil)
	counter("checkpoints_completed_total", "Completed checkpoints of jobs.", float64(st.Completed), nil, nil)
	counter("checkpoints_failed_total", "Failed checkpoints of jobs.", float64(st.Failed), nil, nil)
	counter("checkpoint_uploaded_bytes_total", "Bytes written to the checkpoint store.", float64(st.UploadedBytes), nil, nil)
	gauge("last_checkpoint_id", "Id of the newest completed checkpoint.", float64(st.LastCompletedID), nil, nil)
	if !st.LastCompletedAt.IsZero() {
		gauge("last_checkpoint_timestamp_seconds", "When the newest completed checkpoint was published.", float64(st.LastCompletedAt.Unix()), nil, nil)
	}
	files := s.coord.Files()
	counter("checkpoint_packs_total", "Objects that hold small files of many jobs.", float64(files.Packs), nil, nil)
	counter("checkpoint_packed_files_total", "Small files in them.", float64(files.Packed), nil, nil)
	counter("checkpoint_inline_files_total", "Small files written into manifests.", float64(files.Inline), nil, nil)
	counter("restore_fetches_total", "States that were made local to be restored, at the start and when jobs failed.", float64(files.Fetches), nil, nil)
	counter("restore_fetch_seconds_total", "What that took in all.", files.FetchTime.Seconds(), nil, nil)
	size, limit, hits, misses := s.shared.CacheMetrics()
	gauge("state_cache_bytes", "Blocks of state in the cache that all jobs share.", float64(size), nil, nil)
	gauge("state_cache_limit_bytes", "How many it may hold, a share of --memory.", float64(limit), nil, nil)
	counter("state_cache_hits_total", "Blocks found in it.", float64(hits), nil, nil)
	counter("state_cache_misses_total", "Blocks read from files.", float64(misses), nil, nil)
	gauge("state_memory_bytes", "State in memory that all jobs share the room for, besides the cache.", float64(s.shared.Overlay.Used()), nil, nil)
	gauge("state_memory_limit_bytes", "The room, a share of --memory.", float64(s.shared.Overlay.Limit()), nil, nil)
	gauge("start_seconds", "From the lock of the data directory until statements were taken.", s.startTook.Seconds(), nil, nil)
	gauge("checkpoint_garbage_objects", "Objects that no checkpoint needs any more and that are still to be deleted.", float64(files.Garbage), nil, nil)
	n := s.objects.Counts()
	for _, c := range []struct {
		name, help string
		v          int64
	}{
		{"reads_total", "Reads of the checkpoint store.", n.Reads},
		{"read_bytes_total", "Bytes read from it.", n.BytesRead},
		{"writes_total", "Objects written to it, and conditional writes that did not hold.", n.Writes},
		{"written_bytes_total", "Bytes of those objects.", n.BytesWritten},
		{"lists_total", "Lists of its objects.", n.Lists},
		{"deletes_total", "Calls that delete objects.", n.Deletes},
		{"deleted_objects_total", "Objects deleted.", n.Deleted},
		{"failures_total", "Calls that failed in spite of repetition.", n.Failed},
		{"retries_total", "Attempts that were repeated.", n.Retries},
		{"throttled_total", "Answers that asked to slow down.", n.Throttled},
		{"aborted_uploads_total", "Uploads in parts of servers that had died, ended by the sweep.", n.AbortedUploads},
	} {
		counter("object_store_"+c.name, c.help, float64(c.v), nil, nil)
	}
	for _, j := range s.engine.Jobs() {
		l := []string{s.jobName(j)}
		up := 0.0
		if j.Status() == exec.JobRunning {
			up = 1
		}
		gauge("job_running", "1 while the job runs.", up, jobLabels, l)
		gauge("job_epoch", "Newest epoch of the job.", float64(j.Epoch()), jobLabels, l)
		gauge("job_lag_epochs", "Epochs the job is behind.", float64(j.Lag()), jobLabels, l)
		counter("job_restarts_total", "Failures of the job.", float64(j.Restarts()), jobLabels, l)
		gauge("job_state_bytes", "Size of the job's state.", float64(exec.StateBytes(j.Metrics())), jobLabels, l)
		gauge("job_error_rows", "Rows missing from the result because their evaluation failed.", float64(j.ErrorCount()), jobLabels, l)
		counter("job_source_rows_total", "Rows read from sources.", float64(j.SourceRows()), jobLabels, l)
		m.checkpoints(j, l[0], st.LastPath, gauge, counter)
	}
}
