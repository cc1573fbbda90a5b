// Package datagen makes rows of declared columns: sequences and random values. Every value is a function of the seed and of the row's
// number, so that any split, any replay and any set of columns yields the same rows.
package datagen

import (
	"context"
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// Names of the options of the source as a whole.
const (
	optRate   = "datagen.rows.per.second"
	optRows   = "datagen.rows"
	optSplits = "datagen.split.num"
	optSeed   = "datagen.seed"
	optStart  = "datagen.start.time"

	fieldPrefix = "fields."
)

// Defaults and limits.
const (
	defaultRate   = 10
	maxRate       = 1_000_000_000 // rows a second
	maxRows       = 1 << 50
	defaultSplits = 1
	maxSplits     = 1024
	defaultStart  = "2024-01-01 00:00:00"
	// unpacedRate is the rate by which event time goes on when rows come as fast as possible.
	unpacedRate = 1000
)

// Connector makes datagen sources.
type Connector struct {
	now func() time.Time
}

// New returns the connector.
func New() *Connector { return &Connector{now: time.Now} }

// Name implements connector.Connector.
func (*Connector) Name() string { return "datagen" }

// NeedsEncode implements connector.Connector.
func (*Connector) NeedsEncode() bool { return false }

// Options implements connector.Connector.
func (*Connector) Options() []connector.Option {
	return []connector.Option{
		{
			Name: optRate, Default: strconv.Itoa(defaultRate), Check: connector.CheckInt(0, maxRate),
			Doc: "Rows per second of all splits together, of wall time and of event time. 0: as fast as possible; event time then goes on by " +
				strconv.Itoa(unpacedRate) + " rows a second.",
		},
		{
			Name: optRows, Check: connector.CheckInt(0, maxRows),
			Doc: "Number of rows, after which the source ends. Without it the source ends with its shortest sequence that has an end, or never.",
		},
		{
			Name: optSplits, Default: strconv.Itoa(defaultSplits), Check: connector.CheckInt(1, maxSplits),
			Doc: "Number of splits that can be read in parallel; they take the rows in turn.",
		},
		{Name: optSeed, Default: "0", Check: connector.CheckInt(math.MinInt64, math.MaxInt64), Doc: "Seed of all random columns."},
		{Name: optStart, Default: defaultStart, Check: connector.CheckTimestamp, Doc: "Event time of the first row, which timestamps refer to."},
		{
			Name: fieldPrefix + "*.kind", Default: kindRandom, Check: connector.CheckOneOf(kindSequence, kindRandom),
			Doc: "sequence or random. A sequence of numbers counts from start by one; of timestamps it is the row's event time.",
		},
		{Name: fieldPrefix + "*.start", Default: "0", Doc: "First value of a sequence."},
		{Name: fieldPrefix + "*.end", Doc: "Last value of a sequence, after which the source ends."},
		{Name: fieldPrefix + "*.min", Default: "0", Doc: "Least random number."},
		{Name: fieldPrefix + "*.max", Default: "100", Doc: "Greatest random number."},
		{
			Name: fieldPrefix + "*.length", Default: strconv.Itoa(defaultLength), Check: connector.CheckInt(0, maxLength),
			Doc: "Length of random text.",
		},
		{Name: fieldPrefix + "*.seed", Check: connector.CheckInt(math.MinInt64, math.MaxInt64), Doc: "Seed of one random column."},
		{
			Name: fieldPrefix + "*.max.past", Default: defaultMaxPast, Check: func(s string) error {
				_, err := types.ParseInterval(nil, s, -1)
				return err
			},
			Doc: "An interval: random timestamps are at most so long before the row's event time.",
		},
	}
}

// Schema implements connector.Connector: the columns must be declared, and of types that can be generated.
func (*Connector) Schema(cfg *connector.SourceConfig) (types.Schema, error) {
	if len(cfg.Columns) == 0 {
		return nil, pgerr.Newf(pgerr.InvalidObjectDefinition, "a datagen source needs its columns declared").
			WithHint("For example: CREATE SOURCE s (id bigint, v varchar) WITH (connector = 'datagen', fields.id.kind = 'sequence').")
	}
	for k := range cfg.Options {
		rest, ok := strings.CutPrefix(k, fieldPrefix)
		if !ok {
			continue
		}
		if !namesColumn(rest, cfg.Columns) {
			var names []string
			for _, c := range cfg.Columns {
				names = append(names, c.Name)
			}
			e := pgerr.Newf(pgerr.InvalidParameterValue, "option \"%s\" names no column", k)
			return nil, e.WithHint("The columns are: %s.", strings.Join(names, ", "))
		}
	}
	_, _, err := newColumns(cfg)
	return cfg.Columns, err
}

// namesColumn reports whether rest is a column's name and one of the suffixes.
func namesColumn(rest string, s types.Schema) bool {
	for _, c := range s {
		if suffix, ok := strings.CutPrefix(rest, c.Name+"."); ok {
			switch suffix {
			case "kind", "start", "end", "min", "max", "length", "seed", "max.past":
				return true
			}
		}
	}
	return false
}

// Source implements connector.Connector.
func (cn *Connector) Source(_ context.Context, cfg *connector.SourceConfig) (connector.Source, error) {
	v := connector.Values{Options: cfg.Options}
	s := &source{now: cn.now, rate: v.Int(defaultRate, optRate), splits: v.Int(defaultSplits, optSplits), rows: v.Int(-1, optRows)}
	if v.Err != nil {
		return nil, v.Err
	}
	var ends lengths
	var err error
	if s.columns, ends, err = newColumns(cfg); err != nil {
		return nil, err
	}
	if ends.declared >= 0 && (s.rows < 0 || ends.declared < s.rows) {
		s.rows = ends.declared
	}
	s.last = ends.possible
	return s, nil
}

type source struct {
	columns []column
	rows    int64 // -1: no end was asked for
	last    int64 // rows that are possible
	rate    int64
	splits  int64
	now     func() time.Time
}

// Splits implements connector.Source.
func (s *source) Splits(context.Context) ([]connector.Split, error) {
	out := make([]connector.Split, s.splits)
	for i := range out {
		out[i].ID = strconv.Itoa(i)
	}
	return out, nil
}

// Bounded implements connector.Source.
func (s *source) Bounded() bool { return s.rows >= 0 }

// Close implements connector.Source.
func (s *source) Close() error { return nil }

// positionVersion starts every position; the number of the next row follows as a varint.
const positionVersion = 1

// Open implements connector.Source.
func (s *source) Open(_ context.Context, split connector.Split, columns []int, rowID bool, _ connector.ErrorSink) (connector.Reader, error) {
	i, err := strconv.ParseInt(split.ID, 10, 64)
	if err != nil || i < 0 || i >= s.splits {
		return nil, pgerr.Newf(pgerr.InvalidParameterValue, "datagen split \"%s\" does not exist", split.ID).
			WithHint("%s must not change while a job runs.", optSplits)
	}
	r := &reader{s: s, next: i, rowID: rowID, opened: s.now()}
	if p := split.Position; p != nil {
		if len(p) < 2 || p[0] != positionVersion {
			return nil, pgerr.Newf(pgerr.DataCorrupted, "invalid position of a datagen split: %x", p)
		}
		u, n := binary.Uvarint(p[1:])
		if n != len(p)-1 || u > 1<<62 || int64(u)%s.splits != i {
			return nil, pgerr.Newf(pgerr.DataCorrupted, "invalid position of a datagen split: %x", p).
				WithHint("%s must not change while a job runs.", optSplits)
		}
		r.next = int64(u)
	}
	r.openedAt = r.next
	for _, c := range columns {
		r.columns = append(r.columns, &s.columns[c])
	}
	return r, nil
}

// pace is how long a rate-limited reader rests when it has caught up with the clock.
const pace = 10 * time.Millisecond

type reader struct {
	s        *source
	columns  []*column
	next     int64 // row number
	opened   time.Time
	openedAt int64
	rowID    bool
}

// due returns the number of the first row that must not be generated yet.
func (r *reader) due() int64 {
	if r.s.rate == 0 {
		return math.MaxInt64
	}
	elapsed := r.s.now().Sub(r.opened)
	whole, part := int64(elapsed/time.Second), int64(elapsed%time.Second)
	return r.openedAt + whole*r.s.rate + part*r.s.rate/int64(time.Second)
}

// Next implements connector.Reader.
func (r *reader) Next(_ context.Context, c *types.Chunk, limit int) (connector.Status, time.Duration, error) {
	end := r.s.last
	if r.s.rows >= 0 {
		end = min(end, r.s.rows)
	}
	if r.next >= end {
		return connector.End, 0, nil
	}
	stop, step := min(end, r.due()), r.s.splits
	n := 0
	if stop > r.next {
		n = int(min((stop-r.next-1)/step+1, int64(limit)))
	}
	if n > 0 {
		base := c.N
		for i, v := range c.Cols {
			v.Resize(base + n)
			if i < len(r.columns) {
				r.columns[i].fill(v, base, r.next, step)
				continue
			}
			for j := range n {
				v.Int[base+j] = r.next + int64(j)*step
			}
		}
		c.N += n
		r.next += int64(n) * step
	}
	switch {
	case r.next >= end:
		return connector.End, 0, nil
	case r.next >= stop:
		return connector.Idle, r.wait(), nil
	}
	return connector.More, 0, nil
}

// wait is the time until the next row is due, at least pace and at most a second.
func (r *reader) wait() time.Duration {
	if r.s.rate == 0 {
		return pace
	}
	rows := float64(r.next + 1 - r.openedAt)
	at := r.opened.Add(time.Duration(rows / float64(r.s.rate) * float64(time.Second)))
	return min(max(at.Sub(r.s.now()), pace), time.Second)
}

// Position implements connector.Reader.
func (r *reader) Position() []byte {
	return binary.AppendUvarint([]byte{positionVersion}, uint64(r.next))
}

// Lag implements connector.Reader.
func (r *reader) Lag() int64 {
	end := r.s.rows
	if end < 0 {
		if r.s.rate == 0 {
			return -1
		}
		end = r.due()
	}
	return max(end-r.next+r.s.splits-1, 0) / r.s.splits
}

// Close implements connector.Reader.
func (r *reader) Close() error { return nil }
