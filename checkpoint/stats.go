package checkpoint

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// historyPerJob is how many checkpoints of each job the history keeps.
const historyPerJob = 10

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
	Sync             time.Duration // of the slowest subtask
	CheckpointedSize int64         // new with it
	FullSize         int64
	UploadedBytes    int64
	ProcessedBytes   int64
	PersistedBytes   int64
	FailureReason    string
	Subtasks         []SubtaskStats
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

// history is filled by the coordinator's loop and read by queries.
type history struct {
	mu    sync.Mutex
	jobs  map[uint64][]*JobCheckpoint // oldest first
	total Stats
}

func newHistory() *history { return &history{jobs: map[uint64][]*JobCheckpoint{}} }

func (h *history) restored(m *Manifest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.total.RestoredID, h.total.RestoredAt = m.ID, time.Now()
	h.total.LastCompletedID, h.total.LastCompletedAt, h.total.LastPath = m.ID, m.Created, m.Object
}

func (h *history) published(m *Manifest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.total.LastCompletedID, h.total.LastCompletedAt, h.total.LastPath = m.ID, m.Created, m.Object
}

func (h *history) begin(p *pendingCheckpoint, q *part) {
	h.mu.Lock()
	defer h.mu.Unlock()
	job := q.p.ID()
	h.total.InProgress++
	rows := append(h.jobs[job], &JobCheckpoint{
		ID: p.id, Epoch: p.epoch, Job: job, JobName: q.p.Name(), Status: StatusInProgress, Kind: p.cut.Kind, TriggerTime: p.triggered,
	})
	if len(rows) > historyPerJob {
		rows = slices.Delete(rows, 0, len(rows)-historyPerJob)
	}
	h.jobs[job] = rows
}

// find returns the row of a checkpoint that is in progress: the last one of its job.
func (h *history) find(p *pendingCheckpoint, q *part) *JobCheckpoint {
	rows := h.jobs[q.p.ID()]
	if len(rows) == 0 || rows[len(rows)-1].ID != p.id {
		return &JobCheckpoint{}
	}
	return rows[len(rows)-1]
}

func (h *history) acknowledged(p *pendingCheckpoint, q *part) {
	h.mu.Lock()
	defer h.mu.Unlock()
	row := h.find(p, q)
	row.Subtasks = q.ack.Subtasks
	for _, s := range q.ack.Subtasks {
		row.Sync = max(row.Sync, s.Sync)
		row.ProcessedBytes += s.ProcessedBytes
		row.PersistedBytes += s.PersistedBytes
	}
	if s := q.ack.State; s != nil {
		row.CheckpointedSize, row.FullSize = s.NewBytes, s.FullSize
	}
}

func (h *history) completed(now time.Time, p *pendingCheckpoint, q *part, uploaded int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.total.InProgress--
	if q.ack.Unchanged && !p.forced {
		// A checkpoint of an idle job is no news: it would only push the others out.
		if rows := h.jobs[q.p.ID()]; len(rows) > 0 && rows[len(rows)-1].ID == p.id {
			h.jobs[q.p.ID()] = rows[:len(rows)-1]
		}
		return
	}
	h.total.Completed++
	h.total.UploadedBytes += uploaded
	row := h.find(p, q)
	row.Status, row.Duration, row.UploadedBytes = StatusCompleted, now.Sub(p.triggered), uploaded
}

func (h *history) failed(now time.Time, p *pendingCheckpoint, q *part) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.total.InProgress--
	h.total.Failed++
	row := h.find(p, q)
	row.Status, row.Duration, row.FailureReason = StatusFailed, now.Sub(p.triggered), q.err.Error()
}

// forget removes a dropped job's rows.
func (h *history) forget(job uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if rows := h.jobs[job]; len(rows) > 0 && rows[len(rows)-1].Status == StatusInProgress {
		h.jobs[job] = rows[len(rows)-1:]
		return
	}
	delete(h.jobs, job)
}

func (h *history) snapshot() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.total
	for _, rows := range h.jobs {
		for _, row := range rows {
			r := *row
			if r.Status == StatusInProgress {
				r.Duration = time.Since(r.TriggerTime)
			}
			s.Checkpoints = append(s.Checkpoints, r)
		}
	}
	slices.SortFunc(s.Checkpoints, func(a, b JobCheckpoint) int {
		return cmp.Or(cmp.Compare(b.ID, a.ID), cmp.Compare(a.Job, b.Job))
	})
	return s
}
