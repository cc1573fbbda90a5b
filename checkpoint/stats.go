package checkpoint

import (
	"cmp"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/streamdb/streamdb/storage/object"
)

// Status is where a job's checkpoint stands.
type Status string

// The statuses.
const (
	StatusInProgress Status = "IN_PROGRESS"
	StatusCompleted  Status = "COMPLETED"
	StatusFailed     Status = "FAILED"
)

// JobCheckpoint is a row of streamdb.checkpoints: one checkpoint of one job.
type JobCheckpoint struct {
	ID, Epoch        uint64
	Job              uint64
	JobName          string
	Status           Status
	Kind             Kind
	TriggerTime      time.Time
	Duration         time.Duration // until now while in progress
	Acknowledged     time.Duration // from the trigger until the job had handed in its state; 0: it has not
	Waited           time.Duration // from then until its publication began: for slower jobs of the same checkpoint, and for the one before
	Publication      time.Duration // upload, manifest and HEAD, of all that was published with it
	Sync             time.Duration // of the slowest subtask
	CheckpointedSize int64         // new with it
	FullSize         int64
	UploadedBytes    int64
	ProcessedBytes   int64
	PersistedBytes   int64
	Unaligned        bool   // of some subtask
	Path             string // URL of its manifest, or of the folder of a savepoint, when it is completed
	Savepoint        *SavepointSpec
	Reason           FailureReason
	FailureMessage   string
	Subtasks         []SubtaskStats
}

// Phase is a part of the time that a checkpoint takes.
type Phase string

// The phases, in their order.
const (
	PhaseStartDelay  Phase = "start delay" // from the trigger until the first barrier came
	PhaseAlignment   Phase = "alignment"   // until the last one came
	PhaseSync        Phase = "sync"        // sealing the state, while no row is processed
	PhaseAsync       Phase = "async"       // writing what was sealed to the local disk
	PhaseWait        Phase = "wait"        // for other jobs of the same checkpoint
	PhasePublication Phase = "publication" // uploading, and making it what jobs restart from
)

// PhaseTime is how long a phase took.
type PhaseTime struct {
	Phase Phase
	Time  time.Duration
}

// Slowest returns the subtask that was done last, and the times of the phases of the checkpoint as it went through them. Without one that has reported,
// what is known is the time since the trigger.
func (c *JobCheckpoint) Slowest() (s SubtaskStats, phases []PhaseTime) {
	total := func(s SubtaskStats) time.Duration { return s.StartDelay + s.Alignment + s.Sync + s.Async }
	for i, t := range c.Subtasks {
		if i == 0 || total(t) > total(s) {
			s = t
		}
	}
	if len(c.Subtasks) == 0 {
		phases = append(phases, PhaseTime{PhaseStartDelay, cmp.Or(c.Acknowledged, c.Duration)})
	} else {
		phases = append(phases, PhaseTime{PhaseStartDelay, s.StartDelay}, PhaseTime{PhaseAlignment, s.Alignment}, PhaseTime{PhaseSync, s.Sync}, PhaseTime{PhaseAsync, s.Async})
	}
	if c.Acknowledged > 0 {
		phases = append(phases, PhaseTime{PhaseWait, c.Waited}, PhaseTime{PhasePublication, c.Publication})
	}
	return s, phases
}

// Counts are numbers of checkpoints of a job since the start.
type Counts struct {
	Restored   int `json:"restored"`
	Total      int `json:"total"`
	InProgress int `json:"in_progress"`
	Completed  int `json:"completed"`
	Failed     int `json:"failed"`
}

// Distribution describes the values of the completed checkpoints of a job, of the newest ones when there are many.
type Distribution struct {
	Min int64   `json:"min"`
	Max int64   `json:"max"`
	Avg int64   `json:"avg"`
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// Summary describes the completed checkpoints of a job: sizes in bytes, times in milliseconds, those of subtasks of the slowest one.
type Summary struct {
	CheckpointedSize Distribution `json:"checkpointed_size"`
	StateSize        Distribution `json:"state_size"`
	EndToEndDuration Distribution `json:"end_to_end_duration"`
	ProcessedData    Distribution `json:"processed_data"`
	PersistedData    Distribution `json:"persisted_data"`
	StartDelay       Distribution `json:"start_delay"`
	Alignment        Distribution `json:"alignment_duration"`
	Sync             Distribution `json:"sync_duration"`
	Async            Distribution `json:"async_duration"`
}

// Restored is what a job was restored from.
type Restored struct {
	ID          uint64
	At          time.Time
	IsSavepoint bool
	Path        string // URL of the manifest, or what a savepoint was named by, as a URL
}

// JobStats are the counts, the newest checkpoints of each kind (nil: none) and the history, newest first, of one job.
type JobStats struct {
	Counts                           Counts
	Completed, SavepointDone, Failed *JobCheckpoint
	Restored                         *Restored
	History                          []JobCheckpoint
	UploadedBytes                    int64
	CompletedAt                      time.Time // of Completed
}

// Stats are counts since the start, and the history, newest first.
type Stats struct {
	InProgress, Completed, Failed int
	UploadedBytes                 int64
	RestoredID                    uint64 // 0: started empty
	RestoredAt                    time.Time
	LastCompletedID               uint64
	LastCompletedAt               time.Time
	LastPath                      string // manifest of the newest completed one
	Checkpoints                   []JobCheckpoint
}

// keptSamples is how many completed checkpoints of a job a summary describes.
const keptSamples = 1000

// The values of a sample.
const (
	sampleCheckpointed = iota
	sampleState
	sampleDuration
	sampleProcessed
	samplePersisted
	sampleStartDelay
	sampleAlignment
	sampleSync
	sampleAsync
	sampleValues
)

type sample [sampleValues]int64

type jobHistory struct {
	stats   JobStats
	rows    []*JobCheckpoint // oldest first
	samples []sample         // a ring of keptSamples
	at      int
}

// history is filled by the coordinator's loop and read by queries.
type history struct {
	mu    sync.Mutex
	store string // URL of the checkpoint directory
	size  int
	jobs  map[uint64]*jobHistory
	total Stats
}

func newHistory(size int) *history { return &history{size: size, jobs: map[uint64]*jobHistory{}} }

func (h *history) of(job uint64) *jobHistory {
	j := h.jobs[job]
	if j == nil {
		j = &jobHistory{}
		h.jobs[job] = j
	}
	return j
}

// resize changes how many checkpoints of each job are kept.
func (h *history) resize(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.size = n
	for _, j := range h.jobs {
		j.trim(n)
	}
}

func (j *jobHistory) trim(n int) {
	if over := len(j.rows) - n; over > 0 {
		j.rows = slices.Delete(j.rows, 0, over)
	}
}

func (h *history) restored(m *Manifest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.total.RestoredID, h.total.RestoredAt = m.ID, time.Now()
	h.total.LastCompletedID, h.total.LastCompletedAt, h.total.LastPath = m.ID, m.Created, m.Object
	for job := range m.Jobs {
		h.restoredJob(job, m)
	}
}

// restoredJob notes what a job starts from; the lock is held.
func (h *history) restoredJob(job uint64, m *Manifest) {
	s := m.Jobs[job]
	if s == nil {
		return
	}
	j := h.of(job)
	j.stats.Counts.Restored++
	j.stats.Restored = &Restored{ID: s.Checkpoint, At: time.Now(), Path: h.store + "/" + m.Object}
}

// foreign notes what jobs start from that have no state in own, the newest checkpoint of this server (nil: none).
func (h *history) foreign(o *Opened, own *Manifest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if own == nil {
		h.total.RestoredID, h.total.RestoredAt = o.ID, time.Now()
	}
	for job := range o.Jobs {
		if own == nil || own.Jobs[job] == nil {
			h.restoredJob(job, o.Manifest)
			r := h.of(job).stats.Restored
			r.IsSavepoint, r.Path = o.Savepoint, asURL(o.Path)
		}
	}
}

// asURL is the URL of a folder that may be named by its path.
func asURL(path string) string {
	if filepath.IsAbs(path) {
		return object.FolderURL(path)
	}
	return path
}

// restarted notes what jobs start from again; m is nil when there is nothing.
func (h *history) restarted(jobs []uint64, m *Manifest) {
	if m == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, job := range jobs {
		h.restoredJob(job, m)
	}
}

func (h *history) published(m *Manifest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.total.LastCompletedID, h.total.LastCompletedAt, h.total.LastPath = m.ID, m.Created, m.Object
}

func (h *history) begin(p *pendingCheckpoint, q *part) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.total.InProgress++
	j := h.of(q.p.ID())
	j.stats.Counts.InProgress++
	j.stats.Counts.Total++
	j.rows = append(j.rows, &JobCheckpoint{
		ID: p.id, Epoch: p.epoch, Job: q.p.ID(), JobName: q.p.Name(), Status: StatusInProgress, Kind: p.cut.Kind, Savepoint: p.cut.Savepoint, TriggerTime: p.triggered,
	})
	j.trim(h.size)
}

// find returns the row of a checkpoint of a job, an empty one when it is not kept any more.
func (h *history) find(p *pendingCheckpoint, q *part) *JobCheckpoint {
	for _, row := range h.of(q.p.ID()).rows {
		if row.ID == p.id {
			return row
		}
	}
	return &JobCheckpoint{}
}

func (h *history) acknowledged(now time.Time, p *pendingCheckpoint, q *part) {
	h.mu.Lock()
	defer h.mu.Unlock()
	row := h.find(p, q)
	row.Acknowledged = now.Sub(p.triggered)
	row.take(q.ack.Subtasks)
	if s := q.ack.State; s != nil {
		row.CheckpointedSize, row.FullSize = s.NewBytes, s.FullSize
	}
	for _, f := range q.ack.Inflight {
		row.CheckpointedSize += f.Size
		row.FullSize += f.Size
	}
}

// take fills in what subtasks have reported.
func (c *JobCheckpoint) take(subtasks []SubtaskStats) {
	c.Subtasks = subtasks
	for _, s := range subtasks {
		c.Sync = max(c.Sync, s.Sync)
		c.ProcessedBytes += s.ProcessedBytes
		c.PersistedBytes += s.PersistedBytes
		c.Unaligned = c.Unaligned || s.Unaligned
	}
}

func (h *history) publishing(now time.Time, p *pendingCheckpoint, q *part) {
	h.mu.Lock()
	defer h.mu.Unlock()
	row := h.find(p, q)
	row.Waited = now.Sub(p.triggered) - row.Acknowledged
}

func (h *history) completed(now time.Time, p *pendingCheckpoint, q *part, uploaded int64, path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.total.InProgress--
	j := h.of(q.p.ID())
	j.stats.Counts.InProgress--
	if q.ack.Unchanged && !p.forced {
		// A checkpoint of an idle job is no news: it would only push the others out.
		j.stats.Counts.Total--
		j.rows = slices.DeleteFunc(j.rows, func(row *JobCheckpoint) bool { return row.ID == p.id })
		return
	}
	h.total.Completed++
	h.total.UploadedBytes += uploaded
	j.stats.Counts.Completed++
	j.stats.UploadedBytes += uploaded
	row := h.find(p, q)
	row.Status, row.UploadedBytes, row.Path = StatusCompleted, uploaded, asURL(path)
	if p.savepoint == nil {
		row.Path = h.store + "/" + cmp.Or(path, h.total.LastPath)
	}
	row.end(now, p)
	if done := *row; p.savepoint != nil {
		j.stats.SavepointDone = &done
	} else {
		j.stats.Completed, j.stats.CompletedAt = &done, now
	}
	j.add(row)
}

// end notes when a checkpoint ended.
func (c *JobCheckpoint) end(now time.Time, p *pendingCheckpoint) {
	c.Duration = now.Sub(p.triggered)
	if c.Acknowledged > 0 {
		c.Publication = max(0, c.Duration-c.Acknowledged-c.Waited)
	}
}

func (h *history) failed(now time.Time, p *pendingCheckpoint, q *part) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.total.InProgress--
	h.total.Failed++
	j := h.of(q.p.ID())
	j.stats.Counts.InProgress--
	j.stats.Counts.Failed++
	row := h.find(p, q)
	row.Status, row.Reason, row.FailureMessage = StatusFailed, ReasonOf(q.err), q.err.Error()
	var f *Failure
	if errors.As(q.err, &f) && row.Subtasks == nil {
		row.take(f.Subtasks)
		for _, s := range f.Subtasks {
			row.CheckpointedSize += s.Bytes
			row.FullSize += s.FullBytes
		}
	}
	row.end(now, p)
	last := *row
	j.stats.Failed = &last
}

// forget removes a dropped job's rows.
func (h *history) forget(job uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.jobs[job]
	if j == nil {
		return
	}
	if j.rows = slices.DeleteFunc(j.rows, func(row *JobCheckpoint) bool { return row.Status != StatusInProgress }); len(j.rows) == 0 {
		delete(h.jobs, job)
	}
}

// add takes a completed checkpoint into the summary.
func (j *jobHistory) add(row *JobCheckpoint) {
	s := sample{
		sampleCheckpointed: row.CheckpointedSize, sampleState: row.FullSize, sampleDuration: row.Duration.Milliseconds(),
		sampleProcessed: row.ProcessedBytes, samplePersisted: row.PersistedBytes,
	}
	for _, t := range row.Subtasks {
		for i, d := range map[int]time.Duration{sampleStartDelay: t.StartDelay, sampleAlignment: t.Alignment, sampleSync: t.Sync, sampleAsync: t.Async} {
			s[i] = max(s[i], d.Milliseconds())
		}
	}
	if len(j.samples) < keptSamples {
		j.samples = append(j.samples, s)
		return
	}
	j.samples[j.at] = s
	j.at = (j.at + 1) % keptSamples
}

func (j *jobHistory) distribution(value int) Distribution {
	vs := make([]int64, len(j.samples))
	for i, s := range j.samples {
		vs[i] = s[value]
	}
	return DistributionOf(vs)
}

// DistributionOf describes values, which it sorts; all is 0 without any.
func DistributionOf(vs []int64) Distribution {
	if len(vs) == 0 {
		return Distribution{}
	}
	sum := int64(0)
	for _, v := range vs {
		sum += v
	}
	slices.Sort(vs)
	// The smallest value that at least the given share of all is not above.
	at := func(percent int) float64 { return float64(vs[(len(vs)*percent+99)/100-1]) }
	return Distribution{Min: vs[0], Max: vs[len(vs)-1], Avg: sum / int64(len(vs)), P50: at(50), P90: at(90), P95: at(95), P99: at(99)}
}

// job returns the statistics of one job; zero ones for a job without checkpoints.
func (h *history) job(id uint64) JobStats {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.jobs[id]
	if j == nil {
		return JobStats{}
	}
	s := j.stats
	for _, row := range slices.Backward(j.rows) {
		s.History = append(s.History, row.now())
	}
	return s
}

// summary describes the completed checkpoints of a job; it sorts what is known of them.
func (h *history) summary(id uint64) Summary {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.jobs[id]
	if j == nil {
		return Summary{}
	}
	return Summary{
		CheckpointedSize: j.distribution(sampleCheckpointed), StateSize: j.distribution(sampleState), EndToEndDuration: j.distribution(sampleDuration),
		ProcessedData: j.distribution(sampleProcessed), PersistedData: j.distribution(samplePersisted), StartDelay: j.distribution(sampleStartDelay),
		Alignment: j.distribution(sampleAlignment), Sync: j.distribution(sampleSync), Async: j.distribution(sampleAsync),
	}
}

// now is a copy of a row as it stands.
func (c *JobCheckpoint) now() JobCheckpoint {
	r := *c
	if r.Status == StatusInProgress {
		r.Duration = time.Since(r.TriggerTime)
	}
	return r
}

func (h *history) snapshot() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.total
	for _, j := range h.jobs {
		for _, row := range j.rows {
			s.Checkpoints = append(s.Checkpoints, row.now())
		}
	}
	slices.SortFunc(s.Checkpoints, func(a, b JobCheckpoint) int {
		return cmp.Or(cmp.Compare(b.ID, a.ID), cmp.Compare(a.Job, b.Job))
	})
	return s
}
