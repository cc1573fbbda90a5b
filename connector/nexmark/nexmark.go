package nexmark

import (
	"context"
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// Names of the options.
const (
	optTable     = "nexmark.table.type"
	optNum       = "nexmark.event.num"
	optRate      = "nexmark.event.rate"
	optGap       = "nexmark.min.event.gap.in.ns"
	optSplits    = "nexmark.split.num"
	optSeed      = "nexmark.seed"
	optStart     = "nexmark.start.time"
	optNumFlink  = "events.num"
	optRateFlink = "first-event.rate"
)

// Defaults and limits of the options.
const (
	defaultSplits   = 4
	maxSplits       = 1024
	defaultGapNanos = 100_000 // 10 000 events a second
	maxGapNanos     = 1_000_000_000_000
	maxRate         = 1_000_000_000 // events a second
	maxEvents       = 1 << 50
	defaultStart    = "2015-07-15 00:00:00"
	nanosPerMicro   = 1000
	microsPerSecond = 1_000_000
)

// splitBlock is how many consecutive events a split owns before the next one's turn, and the most that one chunk spans: with the splits
// read in turn, rows are out of order by fewer than splits × splitBlock events.
const splitBlock = 40 * eventsPerEpoch

var (
	_ connector.Keyed = (*Connector)(nil)
	_ connector.Sized = (*Connector)(nil)
)

// Connector makes nexmark sources.
type Connector struct {
	now func() time.Time
}

// New returns the connector.
func New() *Connector { return &Connector{now: time.Now} }

// Name implements connector.Connector.
func (*Connector) Name() string { return "nexmark" }

// NeedsEncode implements connector.Connector.
func (*Connector) NeedsEncode() bool { return false }

// Options implements connector.Connector.
func (*Connector) Options() []connector.Option {
	rate := connector.CheckInt(0, maxRate)
	return []connector.Option{
		{
			Name: optTable, Default: "Event", Check: connector.CheckOneOf(tables()...),
			Doc: "Person, Auction or Bid: the table to generate. Event, the default, is one table of all events: event_type " +
				"(0 person, 1 auction, 2 bid), date_time, and the columns of the three with the prefixes person_, auction_ and bid_.",
		},
		{
			Name: optNum, Check: connector.CheckInt(0, maxEvents),
			Doc: "Number of events of all three kinds together: of 50 events 1 is a person, 3 are auctions, 46 are bids. Without it the source never ends.",
		},
		{
			Name: optRate, Default: "0", Check: rate,
			Doc: "Events (of all kinds) per second, of event time and of wall time. 0: as fast as possible, event time by " + optGap + ".",
		},
		{
			Name: optGap, Default: strconv.Itoa(defaultGapNanos), Check: connector.CheckInt(1, maxGapNanos),
			Doc: "Nanoseconds of event time from one event to the next when " + optRate + " is 0.",
		},
		{
			Name: optSplits, Default: strconv.Itoa(defaultSplits), Check: connector.CheckInt(1, maxSplits),
			Doc: "Number of splits that can be read in parallel. They share the events in blocks of " + strconv.Itoa(splitBlock) +
				" in turn, so rows may be out of order by up to that many events per split; 1 keeps them in order.",
		},
		{
			Name: optSeed, Default: "0", Check: connector.CheckInt(-1<<63, 1<<63-1),
			Doc: "Seed of the random values: the same seed gives the same events.",
		},
		{
			Name: optStart, Default: defaultStart, Check: connector.CheckTimestamp,
			Doc: "Event time of the first event, a timestamp without time zone.",
		},
		{Name: optNumFlink, Check: connector.CheckInt(0, maxEvents), Doc: "Other name of " + optNum + "."},
		{Name: optRateFlink, Check: rate, Doc: "Other name of " + optRate + "."},
	}
}

func kindOf(cfg *connector.SourceConfig) (int, error) {
	t, ok := cfg.Options[optTable]
	if !ok {
		return kindEvent, nil
	}
	for k, n := range tables() {
		if strings.EqualFold(n, t) {
			return k, nil
		}
	}
	return 0, pgerr.NotOneOf(tables()).Option(optTable, t)
}

// Schema implements connector.Connector: declared columns must be among the generated ones, with their types.
func (*Connector) Schema(cfg *connector.SourceConfig) (types.Schema, error) {
	kind, err := kindOf(cfg)
	if err != nil {
		return nil, err
	}
	all := schemaOf(kind)
	if len(cfg.Columns) == 0 {
		return all, nil
	}
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.Name
	}
	for _, c := range cfg.Columns {
		i := all.Index(c.Name)
		if i < 0 {
			e := pgerr.Newf(pgerr.InvalidColumnDefinition, "the nexmark table %s has no column \"%s\"", tables()[kind], c.Name)
			e.Column = c.Name
			return nil, e.WithHint("Its columns are: %s.", strings.Join(names, ", "))
		}
		if !compatible(all[i].Type, c.Type) {
			e := pgerr.Newf(pgerr.DatatypeMismatch, "column \"%s\" of the nexmark table %s is of type %s, not %s",
				c.Name, tables()[kind], all[i].Type, c.Type)
			e.Column = c.Name
			return nil, e.WithHint("Declare it as %s, or leave the columns out.", all[i].Type)
		}
	}
	return cfg.Columns, nil
}

// compatible reports whether generated values of type have are values of type want without conversion.
func compatible(have, want types.Type) bool {
	switch {
	case have == want:
		return true
	case have == types.Varchar:
		return want == types.Text
	case have == types.Timestamp:
		return want == types.Timestamptz
	case have == types.Int4:
		return want == types.Int8 || want == types.Int2
	}
	return false
}

// Key implements connector.Keyed: persons and auctions are numbered.
func (*Connector) Key(cfg *connector.SourceConfig) string {
	if kind, err := kindOf(cfg); err == nil && (kind == kindPerson || kind == kindAuction) {
		return columnID
	}
	return ""
}

// Rows implements connector.Sized.
func (cn *Connector) Rows(cfg *connector.SourceConfig) int64 {
	src, err := cn.Source(context.Background(), cfg)
	if s, ok := src.(*source); err == nil && ok && s.events >= 0 {
		return s.rows(0, s.events)
	}
	return 0
}

// Source implements connector.Connector.
func (cn *Connector) Source(_ context.Context, cfg *connector.SourceConfig) (connector.Source, error) {
	kind, err := kindOf(cfg)
	if err != nil {
		return nil, err
	}
	v := connector.Values{Options: cfg.Options}
	s := &source{
		kind: kind, columns: cfg.Columns, now: cn.now,
		events: v.Int(-1, optNum, optNumFlink),
		rate:   v.Int(0, optRate, optRateFlink),
		splits: v.Int(defaultSplits, optSplits),
	}
	seed, gap, start := v.Int(0, optSeed), v.Int(defaultGapNanos, optGap), v.Timestamp(defaultStart, optStart)
	if v.Err != nil {
		return nil, v.Err
	}
	if len(s.columns) == 0 {
		s.columns = schemaOf(kind)
	}
	num, den := gap, int64(nanosPerMicro)
	if s.rate > 0 {
		num, den = microsPerSecond, s.rate
	}
	s.gen = NewGenerator(uint64(seed), start, num, den)
	return s, nil
}

type source struct {
	gen     *Generator
	kind    int
	columns types.Schema
	events  int64 // -1: no end
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
func (s *source) Bounded() bool { return s.events >= 0 }

// Close implements connector.Source.
func (s *source) Close() error { return nil }

// positionVersion starts every position; the number of the next event follows as a varint.
const positionVersion = 1

func encodePosition(next int64) []byte {
	return binary.AppendUvarint([]byte{positionVersion}, uint64(next))
}

func decodePosition(b []byte) (int64, error) {
	if len(b) > 1 && b[0] == positionVersion {
		if v, n := binary.Uvarint(b[1:]); n == len(b)-1 && v <= 1<<62 {
			return int64(v), nil
		}
	}
	return 0, pgerr.Newf(pgerr.DataCorrupted, "invalid position of a nexmark split: %x", b)
}

// Open implements connector.Source.
func (s *source) Open(_ context.Context, split connector.Split, columns []int, rowID bool, _ connector.ErrorSink) (connector.Reader, error) {
	i, err := strconv.ParseInt(split.ID, 10, 64)
	if err != nil || i < 0 || i >= s.splits {
		return nil, pgerr.Newf(pgerr.InvalidParameterValue, "nexmark split \"%s\" does not exist", split.ID).
			WithHint("%s must not change while a job runs.", optSplits)
	}
	r := &reader{s: s, next: i * splitBlock, opened: s.now(), rowID: rowID}
	if split.Position != nil {
		if r.next, err = decodePosition(split.Position); err != nil {
			return nil, err
		}
		if r.next/splitBlock%s.splits != i {
			return nil, pgerr.Newf(pgerr.InvalidParameterValue, "event %d does not belong to nexmark split \"%s\"", r.next, split.ID).
				WithHint("%s must not change while a job runs.", optSplits)
		}
	}
	r.openedAt = r.next
	for out, c := range columns {
		r.bind(out, fieldOf(s.kind, s.columns[c].Name))
	}
	return r, nil
}
