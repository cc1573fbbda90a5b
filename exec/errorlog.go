package exec

import (
	"encoding/json"
	"fmt"
	"maps"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// Limits of what a job keeps of rows that failed.
const (
	maxErrorRows = 10_000 // distinct rows kept; further ones are only counted
	maxRawBytes  = 4096   // of an undecodable row
)

// ErrorRow is a row of streamdb.errors or streamdb.late_rows.
type ErrorRow struct {
	Operator uint32     `json:"operator"`
	Name     string     `json:"name"`
	Code     pgerr.Code `json:"code"`
	Message  string     `json:"message"`
	Row      string     `json:"row"` // JSON
	Weight   int64      `json:"weight"`
	Late     bool       `json:"late,omitempty"`
}

type errorKey struct {
	operator uint32
	code     pgerr.Code
	msg, row string
	late     bool
}

// errorLog is the job's share of the errors relation. Rows are weighted like all others: an error leaves when its cause is retracted. It is
// part of the job's checkpoints, as of the cut: what a subtask reports after its part of the cut, which it will report again after a crash, is not.
type errorLog struct {
	mu      sync.Mutex
	rows    map[errorKey]*ErrorRow
	dropped int64
	changed bool                   // since the last checkpoint
	cutting uint64                 // checkpoint that subtasks are cutting their state for; 0: none
	later   map[errorKey]*ErrorRow // reported meanwhile by those that have
	active  atomic.Int64           // weight of all errors, late rows not counted
}

// taskErrors is how a subtask reports to the log of its run.
type taskErrors struct {
	log *errorLog
	cut uint64 // checkpoint that the subtask has cut its state for, last; guarded by log.mu
}

// pass notes that the subtask cuts its state for a checkpoint now.
func (t *taskErrors) pass(checkpoint uint64) {
	l := t.log
	l.mu.Lock()
	defer l.mu.Unlock()
	t.cut = checkpoint
	if l.cutting != checkpoint {
		l.cutting, l.later = checkpoint, nil
	}
}

func (t *taskErrors) add(k errorKey, name string, w int64) {
	l := t.log
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed = true
	if !k.late {
		l.active.Add(w)
	}
	if l.rows == nil {
		l.rows = map[errorKey]*ErrorRow{}
	}
	if l.rows[k] == nil && len(l.rows) >= maxErrorRows {
		l.dropped++
		return
	}
	addError(l.rows, k, name, w)
	if l.cutting != 0 && t.cut == l.cutting {
		if l.later == nil {
			l.later = map[errorKey]*ErrorRow{}
		}
		addError(l.later, k, name, w)
	}
}

func addError(rows map[errorKey]*ErrorRow, k errorKey, name string, w int64) {
	r := rows[k]
	if r == nil {
		r = &ErrorRow{Operator: k.operator, Name: name, Code: k.code, Message: k.msg, Row: k.row, Late: k.late}
		rows[k] = r
	}
	if r.Weight += w; r.Weight == 0 {
		delete(rows, k)
	}
}

// Report implements op.ErrorReporter.
func (t *taskErrors) Report(n *plan.Node, err error, row *types.Chunk, r int, weight int64) error {
	pe := pgerr.From(err)
	schema := n.Schema
	if len(n.Inputs) > 0 && row != nil && len(row.Cols) == len(n.Inputs[0].Schema) {
		schema = n.Inputs[0].Schema
	}
	t.add(errorKey{operator: n.ID, code: pe.Code, msg: pe.Message, row: rowJSON(schema, row, r)}, string(n.Kind), weight)
	return nil
}

// Late implements op.ErrorReporter.
func (t *taskErrors) Late(n *plan.Node, row *types.Chunk, r int) error {
	schema := n.Schema
	if len(n.Inputs) > 0 {
		schema = n.Inputs[0].Schema
	}
	t.add(errorKey{operator: n.ID, msg: "row arrived after its window had closed", row: rowJSON(schema, row, r), late: true}, string(n.Kind), 1)
	return nil
}

func (t *taskErrors) raw(n *plan.Node, split, where string, err error, raw []byte) {
	pe := pgerr.From(err)
	text := raw[:min(len(raw), maxRawBytes)]
	for !utf8.Valid(text) && len(text) > 0 {
		text = []byte(fmt.Sprintf("%q", text))
	}
	row := []byte(`{"split": `)
	row = types.AppendJSONString(row, split)
	row = types.AppendJSONString(append(row, `, "at": `...), where)
	row = append(types.AppendJSONString(append(row, `, "raw": `...), string(text)), '}')
	t.add(errorKey{operator: n.ID, code: pe.Code, msg: pe.Message, row: string(row)}, string(n.Kind), 1)
}

func (l *errorLog) dirty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// snapshot returns the rows as of the cut that all subtasks have made.
func (l *errorLog) snapshot() []ErrorRow {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows := l.rows
	if l.changed = len(l.later) > 0; l.changed {
		rows = maps.Clone(rows)
		for k, r := range l.later {
			if was := rows[k]; was != nil {
				c := *was // it stays what it is in the log
				rows[k] = &c
			}
			addError(rows, k, r.Name, -r.Weight)
		}
	}
	return sortedErrors(rows)
}

// endCut forgets what was reported since the cut apart from what was before.
func (l *errorLog) endCut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutting, l.later = 0, nil
}

// list returns the rows kept.
func (l *errorLog) list() []ErrorRow {
	l.mu.Lock()
	defer l.mu.Unlock()
	return sortedErrors(l.rows)
}

// sortedErrors returns rows in a stable order.
func sortedErrors(rows map[errorKey]*ErrorRow) []ErrorRow {
	out := make([]ErrorRow, 0, len(rows))
	for _, r := range rows {
		out = append(out, *r)
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := &out[i], &out[j]
		if a.Operator != b.Operator {
			return a.Operator < b.Operator
		}
		if a.Message != b.Message {
			return a.Message < b.Message
		}
		return a.Row < b.Row
	})
	return out
}

// load restores what a checkpoint has kept.
func (l *errorLog) load(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	var rows []ErrorRow
	if err := json.Unmarshal(data, &rows); err != nil {
		return pgerr.Wrap(pgerr.DataCorrupted, err, "rows of the errors relation are malformed")
	}
	t := taskErrors{log: l}
	for _, r := range rows {
		t.add(errorKey{operator: r.Operator, code: r.Code, msg: r.Message, row: r.Row, late: r.Late}, r.Name, r.Weight)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed = false
	return nil
}

// Errors lists the job's rows of streamdb.errors and streamdb.late_rows.
func (j *Job) Errors() []ErrorRow {
	j.mu.Lock()
	r := j.run
	j.mu.Unlock()
	if r == nil {
		return nil
	}
	return r.errors.list()
}

// FirstFailed returns the first of the rows that are missing from the job's result because their evaluation failed.
func (j *Job) FirstFailed() (ErrorRow, bool) {
	for _, r := range j.Errors() {
		if !r.Late {
			return r, true
		}
	}
	return ErrorRow{}, false
}

// ErrorCount returns how many rows are missing from the job's result because their evaluation failed.
func (j *Job) ErrorCount() int64 {
	j.mu.Lock()
	r := j.run
	j.mu.Unlock()
	if r == nil {
		return 0
	}
	return max(0, r.errors.active.Load())
}

func rowJSON(schema types.Schema, c *types.Chunk, r int) string {
	if c == nil {
		return "{}"
	}
	b := []byte{'{'}
	for i, v := range c.Cols {
		if i >= len(schema) {
			break
		}
		if i > 0 {
			b = append(b, ", "...)
		}
		b = types.AppendJSONString(b, schema[i].Name)
		b = append(b, ": "...)
		if v.IsNull(r) {
			b = append(b, "null"...)
			continue
		}
		switch v.Type.OID {
		case types.OIDBool:
			b = strconv.AppendBool(b, v.Bool[r])
		case types.OIDInt2, types.OIDInt4, types.OIDInt8, types.OIDJSONB:
			b = types.AppendText(b, types.DefaultFormat(), v, r)
		default:
			b = types.AppendJSONString(b, string(types.AppendText(nil, types.DefaultFormat(), v, r)))
		}
	}
	return string(append(b, '}'))
}
