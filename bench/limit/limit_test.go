package limit

import (
	"context"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/connector/connectortest"
	"github.com/streamdb/streamdb/connector/nexmark"
	"github.com/streamdb/streamdb/types"
)

// bids reads the bids from the source as the engine would.
func bids(t *testing.T, events int64) *types.Chunk {
	t.Helper()
	cn := nexmark.New()
	cfg := &connector.SourceConfig{Options: map[string]string{
		"connector": "nexmark", "nexmark.table.type": "Bid", "nexmark.event.num": strconv.FormatInt(events, 10),
	}}
	schema, err := cn.Schema(cfg)
	require.NoError(t, err)
	cfg.Columns = schema
	src, err := cn.Source(context.Background(), cfg)
	require.NoError(t, err)
	all := types.NewChunk(schema.Types())
	sps, err := src.Splits(context.Background())
	require.NoError(t, err)
	for _, sp := range sps {
		rd, err := src.Open(context.Background(), sp, connectortest.AllColumns(schema), false, nil)
		require.NoError(t, err)
		for st := connector.More; st != connector.End; {
			c := types.NewChunk(schema.Types())
			st, _, err = rd.Next(context.Background(), c, 1000)
			require.NoError(t, err)
			all.AppendChunk(c)
		}
	}
	return all
}

type key struct{ window, auction int64 }

// The loops give what plain maps over the source's rows give, in whatever order these come.
func TestLoops(t *testing.T) {
	for _, events := range []int64{0, 3, 50, 99_999, 100_000, 100_001, 777_777} {
		all := bids(t, events)
		auction, bidder, price, ts, extra := all.Cols[0].Int, all.Cols[1].Int, all.Cols[2].Int, all.Cols[5].Int, all.Cols[6].Str
		want := map[string]*Result{}
		for _, n := range Names() {
			want[n] = &Result{Events: events}
		}
		highest := map[int64]int64{}
		hop, tumble, sums := map[key]int64{}, map[key]int64{}, map[key]int64{}
		most := map[int64]int64{}
		for i := range all.N {
			q0, q1 := want["q0"], want["q1"]
			q0.Rows, q1.Rows = q0.Rows+1, q1.Rows+1
			q0.Checksum += uint64(price[i]) + uint64(len(extra[i]))
			q1.Checksum += uint64(price[i]*908) + uint64(len(extra[i]))
			if auction[i]%123 == 0 {
				want["q2"].Rows++
				want["q2"].Checksum += uint64(auction[i] + price[i])
			}
			w := ts[i] / windowMicros
			highest[w] = max(highest[w], price[i])
			tumble[key{w, auction[i]}]++
			sums[key{w, auction[i]}] += price[i]
			for p := range int64(panes) {
				k := key{ts[i]/slideMicros - p, auction[i]}
				hop[k]++
				most[k.window] = max(most[k.window], hop[k])
			}
		}
		for i := range all.N {
			if price[i] == highest[ts[i]/windowMicros] {
				want["q7"].Rows++
				want["q7"].Checksum += uint64(auction[i] + bidder[i] + price[i])
			}
		}
		for k, n := range hop {
			if n == most[k.window] {
				want["q5"].Rows++
				want["q5"].Checksum += uint64(k.auction * n)
			}
		}
		for k, n := range tumble {
			want["tumble"].Rows++
			want["tumble"].Checksum += uint64(k.auction*n + sums[k])
		}
		for n, l := range Loops() {
			require.Equal(t, *want[n], l.Run(events), "%s over %d events", n, events)
		}
	}
}

func cpu() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func BenchmarkLoops(b *testing.B) {
	for _, n := range Names() {
		b.Run(n, func(b *testing.B) {
			const events = 2_000_000
			before, total := cpu(), int64(0)
			for b.Loop() {
				total += Loops()[n].Run(events).Events
			}
			b.ReportMetric(float64(cpu()-before)/float64(total), "cpu-ns/event")
		})
	}
}
