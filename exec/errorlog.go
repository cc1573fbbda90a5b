package exec

import (
	"encoding/json"
	"fmt"
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
// part of the job's checkpoints.
type errorLog struct {
	mu      sync.Mutex
	rows    map[errorKey]*ErrorRow
	dropped int64
	changed atomic.Bool
	active  atomic.Int64 // weight of all errors, late rows not counted
}

func (l *errorLog) add(k errorKey, name string, w int64) {
	l.changed.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !k.late {
		l.active.Add(w)
	}
	if l.rows == nil {
		l.rows = map[errorKey]*ErrorRow{}
	}
	r := l.rows[k]
	if r == nil {
		if len(l.rows) >= maxErrorRows {
			l.dropped++
			return
		}
		r = &ErrorRow{Operator: k.operator, Name: name, Code: k.code, Message: k.msg, Row: k.row, Late: k.late}
		l.rows[k] = r
	}
	r.Weight += w
	if r.Weight == 0 {
		delete(l.rows, k)
	}
}

// Report implements op.ErrorReporter.
func (l *errorLog) Report(n *plan.Node, err error, row *types.Chunk, r int, weight int64) error {
	pe := pgerr.From(err)
	schema := n.Schema
	if len(n.Inputs) > 0 && row != nil && len(row.Cols) == len(n.Inputs[0].Schema) {
		schema = n.Inputs[0].Schema
	}
	l.add(errorKey{operator: n.ID, code: pe.Code, msg: pe.Message, row: rowJSON(schema, row, r)}, string(n.Kind), weight)
	return nil
}

// Late implements op.ErrorReporter.
func (l *errorLog) Late(n *plan.Node, row *types.Chunk, r int) error {
	schema := n.Schema
	if len(n.Inputs) > 0 {
		schema = n.Inputs[0].Schema
	}
	l.add(errorKey{operator: n.ID, msg: "row arrived after its window had closed", row: rowJSON(schema, row, r), late: true}, string(n.Kind), 1)
	return nil
}

func (l *errorLog) raw(n *plan.Node, split, where string, err error, raw []byte) {
	pe := pgerr.From(err)
	text := raw[:min(len(raw), maxRawBytes)]
	for !utf8.Valid(text) && len(text) > 0 {
		text = []byte(fmt.Sprintf("%q", text))
	}
	row := []byte(`{"split": `)
	row = types.AppendJSONString(row, split)
	row = types.AppendJSONString(append(row, `, "at": `...), where)
	row = append(types.AppendJSONString(append(row, `, "raw": `...), string(text)), '}')
	l.add(errorKey{operator: n.ID, code: pe.Code, msg: pe.Message, row: string(row)}, string(n.Kind), 1)
}

func (l *errorLog) dirty() bool { return l.changed.Load() }

// Errors returns the rows kept, in a stable order, and how many more there were.
func (l *errorLog) snapshot() []ErrorRow {
	l.changed.Store(false)
	return l.list()
}

func (l *errorLog) list() []ErrorRow {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]ErrorRow, 0, len(l.rows))
	for _, r := range l.rows {
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
	for _, r := range rows {
		l.add(errorKey{operator: r.Operator, code: r.Code, msg: r.Message, row: r.Row, late: r.Late}, r.Name, r.Weight)
	}
	l.changed.Store(false)
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
