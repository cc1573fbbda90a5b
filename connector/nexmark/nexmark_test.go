package nexmark

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/connector/connectortest"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files")

func open(t testing.TB, options ...string) (connector.Source, types.Schema) {
	t.Helper()
	return openAt(t, New(), options...)
}

func openAt(t testing.TB, cn *Connector, options ...string) (connector.Source, types.Schema) {
	t.Helper()
	cfg := &connector.SourceConfig{Name: "s", Options: map[string]string{"connector": "nexmark"}}
	for _, o := range options {
		k, v, _ := strings.Cut(o, "=")
		cfg.Options[k] = v
	}
	require.NoError(t, connector.NewRegistry(cn).Validate(cfg))
	schema, err := cn.Schema(cfg)
	require.NoError(t, err)
	cfg.Columns = schema
	src, err := cn.Source(context.Background(), cfg)
	require.NoError(t, err)
	return src, schema
}

func TestConformance(t *testing.T) {
	for _, table := range []string{"Person", "Auction", "Bid", "Event"} {
		t.Run(table, func(t *testing.T) {
			src, schema := open(t, "nexmark.table.type="+table, "nexmark.event.num=5033", "nexmark.split.num=2")
			connectortest.RunSource(t, src, schema)
		})
	}
}

func byID(rows []connectortest.Row) []connectortest.Row {
	slices.SortFunc(rows, func(a, b connectortest.Row) int { return int(a.ID - b.ID) })
	return rows
}

func TestSameRowsForAnySplits(t *testing.T) {
	for _, table := range tables() {
		var want []connectortest.Row
		for _, n := range []string{"1", "2", "3", "7"} {
			src, schema := open(t, "nexmark.table.type="+table, "nexmark.event.num=20001", "nexmark.split.num="+n)
			got := byID(connectortest.ReadAll(t, src, schema, 1000, &connectortest.Sink{}))
			if want == nil {
				want = got
			}
			require.Equal(t, want, got, "%s in %s splits", table, n)
		}
	}
}

// TestKeys shows that what is said to be different in all rows is.
func TestKeys(t *testing.T) {
	for kind, want := range map[string]string{"Person": "id", "Auction": "id", "Bid": "", "Event": ""} {
		cfg := &connector.SourceConfig{Options: map[string]string{"nexmark.table.type": kind}}
		require.Equal(t, want, New().Key(cfg), kind)
		if want == "" {
			continue
		}
		src, schema := open(t, "nexmark.table.type="+kind, "nexmark.event.num=10000")
		at, seen := schema.Index(want), map[string]bool{}
		for _, r := range connectortest.ReadAll(t, src, schema, 1000, &connectortest.Sink{}) {
			require.False(t, seen[r.Values[at]], "%s %s", kind, r.Values[at])
			seen[r.Values[at]] = true
		}
		require.NotEmpty(t, seen)
	}
}

// The table of all events holds exactly the rows of the three tables.
func TestEventTable(t *testing.T) {
	src, schema := open(t, "nexmark.event.num=1234")
	events := byID(connectortest.ReadAll(t, src, schema, 100, &connectortest.Sink{}))
	require.Len(t, events, 1234)
	perKind := map[string]map[int64]map[string]string{}
	for k, table := range tables()[:kindEvent] {
		src, s := open(t, "nexmark.event.num=1234", "nexmark.table.type="+table)
		rows := map[int64]map[string]string{}
		for _, r := range connectortest.ReadAll(t, src, s, 100, &connectortest.Sink{}) {
			m := map[string]string{}
			for i, c := range s {
				name := prefixes()[k] + c.Name
				if c.Name == columnDateTime {
					name = columnDateTime
				}
				m[name] = r.Values[i]
			}
			rows[r.ID] = m
		}
		perKind[fmt.Sprint(k)] = rows
	}
	for _, e := range events {
		want := perKind[e.Values[0]][e.ID]
		require.NotNil(t, want)
		for i, c := range schema[1:] {
			v, ok := want[c.Name]
			if !ok {
				v = "NULL"
			}
			require.Equal(t, v, e.Values[i+1], "%s of event %d", c.Name, e.ID)
		}
	}
}

func TestProportionsAndSkew(t *testing.T) {
	const events = 500_000
	n := bidsBefore(events)
	require.EqualValues(t, events/50*46, n)
	require.EqualValues(t, events/50*3, auctionsBefore(events))
	require.EqualValues(t, events/50, personsBefore(events))

	g := NewGenerator(42, 0, 100, 1)
	bids := BidColumns{
		ID: make([]int64, n), Auction: make([]int64, n), Bidder: make([]int64, n), Price: make([]int64, n), DateTime: make([]int64, n),
		Channel: make([]string, n), URL: make([]string, n), Extra: make([]string, n),
	}
	g.Bids(0, int(n), &bids)
	var hotAuction, hotBidder, hotChannel, extra, withID float64
	var logPrice float64
	decades := [7]float64{}
	distinct := map[string]bool{}
	for i := range int(n) {
		epoch := bids.ID[i] / 50
		if bids.Auction[i] == (epoch*3+2)/100*100+1000 {
			hotAuction++
		}
		if bids.Bidder[i] == epoch/100*100+1+1000 {
			hotBidder++
		}
		switch bids.Channel[i] {
		case "Google", "Facebook", "Baidu", "Apple":
			hotChannel++
		default:
			distinct[bids.Channel[i]] = true
			if strings.Contains(bids.URL[i], "&channel_id=") {
				withID++
			}
		}
		require.GreaterOrEqual(t, bids.Price[i], int64(100))
		require.LessOrEqual(t, bids.Price[i], int64(100_000_001))
		decades[int(math.Log10(float64(bids.Price[i])/100)*0.9999999)]++
		logPrice += math.Log10(float64(bids.Price[i]) / 100)
		extra += float64(len(bids.Extra[i]))
		require.GreaterOrEqual(t, bids.Auction[i], int64(1000))
		require.LessOrEqual(t, bids.Auction[i], epoch*3+2+10+1000)
		require.LessOrEqual(t, bids.Bidder[i], epoch+10+1000)
		require.Equal(t, bids.ID[i]*100, bids.DateTime[i])
	}
	total := float64(n)
	require.InDelta(t, 0.5, hotAuction/total, 0.02, "hot auctions")
	require.InDelta(t, 0.75, hotBidder/total, 0.02, "hot bidders")
	require.InDelta(t, 0.5, hotChannel/total, 0.01, "hot channels")
	require.InDelta(t, 0.9, withID/(total-hotChannel), 0.02, "urls with a channel id")
	require.Len(t, distinct, channels)
	require.InDelta(t, 3, logPrice/total, 0.02, "mean of log10(price)")
	for d := range 6 {
		require.InDelta(t, 1.0/6, decades[d]/total, 0.01, "decade %d", d)
	}
	require.InDelta(t, 68, extra/total, 1, "extra")
}

func TestRowSizes(t *testing.T) {
	for table, want := range map[string]float64{"Person": 200, "Auction": 500, "Bid": 100} {
		src, schema := open(t, "nexmark.event.num=100000", "nexmark.table.type="+table)
		var size float64
		rows := connectortest.ReadAll(t, src, schema, 2048, &connectortest.Sink{})
		for _, r := range rows {
			for i, c := range schema {
				switch {
				case c.Type.Kind() == types.KindInt && c.Name != "date_time":
					size += 8
				case table == "Bid" && c.Name != "extra": // channel and url are not counted by the reference
				case c.Name != "date_time" || table == "Bid":
					size += float64(len(r.Values[i]))
				}
			}
			if table == "Bid" {
				size += 8
			}
		}
		require.InDelta(t, want, size/float64(len(rows)), want*0.05, table)
	}
}

func TestTimestamps(t *testing.T) {
	for _, fr := range [][2]int64{{100, 1}, {100_000, 1000}, {1_000_000, 3}, {1_000_000, 7_777_777}, {1, 1000}, {maxGapNanos, 1000}} {
		g := NewGenerator(0, 5, fr[0], fr[1])
		got := make([]int64, 1000)
		for _, from := range []int64{0, 12345, 1 << 40} {
			if fr[0] == maxGapNanos && from > 1<<30 {
				continue
			}
			g.timestamps(got, from)
			for i, ts := range got {
				require.Equal(t, g.Timestamp(from+int64(i)), ts)
			}
		}
		require.Equal(t, 5+fr[0], g.Timestamp(fr[1]))
	}
}

func TestGolden(t *testing.T) {
	for _, table := range tables() {
		src, schema := open(t, "nexmark.event.num=1000", "nexmark.seed=7", "nexmark.split.num=1", "nexmark.table.type="+table)
		var b strings.Builder
		for i, r := range connectortest.ReadAll(t, src, schema, 20, &connectortest.Sink{}) {
			if i < 20 {
				fmt.Fprintf(&b, "%d|%s\n", r.ID, strings.Join(r.Values, "|"))
			}
		}
		file := "testdata/" + strings.ToLower(table) + ".golden"
		if *rewrite {
			require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o600))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), b.String(), "these rows are a promise: a replay must not see others")
	}
}

func TestRate(t *testing.T) {
	now := time.Unix(1000, 0)
	cn := &Connector{now: func() time.Time { return now }}
	src, schema := openAt(t, cn, "nexmark.event.rate=5000", "nexmark.split.num=1", "nexmark.table.type=Event")
	require.False(t, src.Bounded())
	rd, err := src.Open(context.Background(), connector.Split{ID: "0"}, []int{1}, false, nil)
	require.NoError(t, err)
	c := connectortest.NewChunk(schema, []int{1}, false)
	rows := 0
	var last int64
	for range 300 {
		for {
			c.Reset()
			st, wait, err := rd.Next(context.Background(), c, 64)
			require.NoError(t, err)
			rows += c.N
			if c.N > 0 {
				last = c.Cols[0].Int[c.N-1]
			}
			if st == connector.Idle {
				require.Equal(t, pace, wait)
				break
			}
		}
		require.EqualValues(t, 0, rd.Lag())
		now = now.Add(pace)
	}
	require.Equal(t, 299*50, rows, "5000 events a second")
	start, err := types.ParseTimestamp(nil, defaultStart)
	require.NoError(t, err)
	require.Equal(t, start+int64(rows-1)*200, last)
}

// Splits share the rate evenly in every lot, and go on so from where they were.
func TestRateOfSplits(t *testing.T) {
	now := time.Unix(1000, 0)
	cn := &Connector{now: func() time.Time { return now }}
	src, schema := openAt(t, cn, "nexmark.event.rate=4000", "nexmark.table.type=Event")
	c := connectortest.NewChunk(schema, []int{1}, false)
	read := func(rd connector.Reader) (rows int) {
		for {
			c.Reset()
			st, _, err := rd.Next(context.Background(), c, 64)
			require.NoError(t, err)
			rows += c.N
			if st == connector.Idle {
				return rows
			}
		}
	}
	splits, err := src.Splits(context.Background())
	require.NoError(t, err)
	require.Len(t, splits, 4)
	for _, split := range splits {
		for range 3 { // opened, and opened again at its position twice
			rd, err := src.Open(context.Background(), split, []int{1}, false, nil)
			require.NoError(t, err)
			for lot := range 250 {
				now = now.Add(pace)
				require.EqualValues(t, 10, rd.Lag())
				require.Equal(t, 10, read(rd), "split %s, lot %d", split.ID, lot)
				require.EqualValues(t, 0, rd.Lag())
			}
			split.Position = rd.Position()
		}
	}
}

func TestDeclaredColumns(t *testing.T) {
	cn := New()
	cfg := &connector.SourceConfig{Options: map[string]string{"connector": "nexmark", "nexmark.table.type": "bid", "nexmark.event.num": "500"}}
	cfg.Columns = types.Schema{{Name: "price", Type: types.Int8}, {Name: "date_time", Type: types.Timestamptz}, {Name: "url", Type: types.Text}}
	schema, err := cn.Schema(cfg)
	require.NoError(t, err)
	src, err := cn.Source(context.Background(), cfg)
	require.NoError(t, err)
	connectortest.RunSource(t, src, schema)

	cfg.Columns = types.Schema{{Name: "prise", Type: types.Int8}}
	_, err = cn.Schema(cfg)
	require.Equal(t, pgerr.InvalidColumnDefinition, pgerr.CodeOf(err))
	cfg.Columns = types.Schema{{Name: "price", Type: types.Int4}}
	_, err = cn.Schema(cfg)
	require.Equal(t, pgerr.DatatypeMismatch, pgerr.CodeOf(err))
}

func TestDefaultGenerator(t *testing.T) {
	src, schema := open(t, "nexmark.event.num=100", "nexmark.table.type=Bid", "nexmark.split.num=1")
	rows := connectortest.Read(t, src, schema, connector.Split{ID: "0"}, []int{0, 5}, false, 50, nil)
	ts := make([]int64, 50)
	auction := make([]int64, 50)
	Default().Bids(0, 50, &BidColumns{Auction: auction, DateTime: ts})
	for i := range ts {
		require.Equal(t, fmt.Sprint(auction[i]), rows[i].Values[0])
		require.Equal(t, types.Datum{Type: types.Timestamp, Int: ts[i]}.String(), rows[i].Values[1])
	}
}

func TestPositions(t *testing.T) {
	src, _ := open(t, "nexmark.event.num=100000")
	for _, pos := range [][]byte{{}, {2, 0}, {positionVersion}, {positionVersion, 0x80}, encodePosition(splitBlock)} {
		_, err := src.Open(context.Background(), connector.Split{ID: "0", Position: pos}, nil, false, nil)
		require.Error(t, err, "%x", pos)
	}
	_, err := src.Open(context.Background(), connector.Split{ID: "9"}, nil, false, nil)
	require.Error(t, err)
}

func benchmark(b *testing.B, table string, columns ...string) {
	src, schema := open(b, "nexmark.table.type="+table, "nexmark.split.num=1")
	var cols []int
	for _, c := range columns {
		cols = append(cols, schema.Index(c))
	}
	if columns == nil {
		cols = connectortest.AllColumns(schema)
	}
	rd, err := src.Open(context.Background(), connector.Split{ID: "0"}, cols, false, nil)
	require.NoError(b, err)
	c := connectortest.NewChunk(schema, cols, false)
	rows, before := 0, cpu()
	for b.Loop() {
		c.Reset()
		if _, _, err := rd.Next(context.Background(), c, types.MaxChunkRows); err != nil {
			b.Fatal(err)
		}
		rows += c.N
	}
	used := float64(cpu() - before)
	b.ReportMetric(used/float64(rd.(*reader).next), "cpu-ns/event")
	b.ReportMetric(used/float64(rows), "cpu-ns/row")
}

// cpu returns the processor time of the process in nanoseconds: wall time says little on a busy machine.
func cpu() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func BenchmarkBidAll(b *testing.B) { benchmark(b, "Bid") }
func BenchmarkBidNumeric(b *testing.B) {
	benchmark(b, "Bid", "auction", "bidder", "price", "date_time")
}

func BenchmarkBidChannel(b *testing.B) {
	benchmark(b, "Bid", "auction", "bidder", "price", "date_time", "channel")
}
func BenchmarkBidThree(b *testing.B)   { benchmark(b, "Bid", "auction", "price", "date_time") }
func BenchmarkBidQ5(b *testing.B)      { benchmark(b, "Bid", "auction", "date_time") }
func BenchmarkAuctionAll(b *testing.B) { benchmark(b, "Auction") }
func BenchmarkPersonAll(b *testing.B)  { benchmark(b, "Person") }
func BenchmarkEventAll(b *testing.B)   { benchmark(b, "Event") }
