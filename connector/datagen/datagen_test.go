package datagen

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/connector/connectortest"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

func config(columns types.Schema, options ...string) *connector.SourceConfig {
	cfg := &connector.SourceConfig{Name: "s", Options: map[string]string{"connector": "datagen"}, Columns: columns}
	for _, o := range options {
		k, v, _ := strings.Cut(o, "=")
		cfg.Options[k] = v
	}
	return cfg
}

func open(t testing.TB, cn *Connector, cfg *connector.SourceConfig) connector.Source {
	t.Helper()
	require.NoError(t, connector.NewRegistry(cn).Validate(cfg))
	_, err := cn.Schema(cfg)
	require.NoError(t, err)
	src, err := cn.Source(context.Background(), cfg)
	require.NoError(t, err)
	return src
}

func everyType(t testing.TB) types.Schema {
	t.Helper()
	mod, err := types.TypmodIn(types.OIDNumeric, []int{10, 3})
	require.NoError(t, err)
	return types.Schema{
		{Name: "id", Type: types.Int8},
		{Name: "small", Type: types.Int2},
		{Name: "i", Type: types.Int4},
		{Name: "big", Type: types.Int8},
		{Name: "r", Type: types.Float4},
		{Name: "d", Type: types.Float8},
		{Name: "n", Type: types.NumericType},
		{Name: "n3", Type: types.Type{OID: types.OIDNumeric, Mod: mod}},
		{Name: "b", Type: types.Bool},
		{Name: "v", Type: types.Varchar},
		{Name: "seqtext", Type: types.Text},
		{Name: "dt", Type: types.Date},
		{Name: "ts", Type: types.Timestamp},
		{Name: "tz", Type: types.Timestamptz},
	}
}

func everyOption(more ...string) []string {
	return append([]string{
		"datagen.rows.per.second=0", "fields.id.kind=sequence", "fields.id.start=-5", "fields.small.min=-3", "fields.small.max=3",
		"fields.big.min=-9223372036854775808", "fields.big.max=9223372036854775807", "fields.v.length=7", "fields.v.seed=9",
		"fields.seqtext.kind=sequence", "fields.ts.kind=sequence", "fields.tz.max.past=2 hours", "fields.n3.kind=sequence",
	}, more...)
}

func TestConformance(t *testing.T) {
	schema := everyType(t)
	for _, splits := range []string{"1", "3"} {
		src := open(t, New(), config(schema, everyOption("datagen.rows=1000", "datagen.split.num="+splits)...))
		connectortest.RunSource(t, src, schema)
	}
}

func TestValues(t *testing.T) {
	schema := everyType(t)
	var want []connectortest.Row
	for _, splits := range []string{"1", "2", "5"} {
		src := open(t, New(), config(schema, everyOption("datagen.rows=5000", "datagen.split.num="+splits)...))
		rows := connectortest.ReadAll(t, src, schema, 300, &connectortest.Sink{})
		slices.SortFunc(rows, func(a, b connectortest.Row) int { return int(a.ID - b.ID) })
		if want == nil {
			want = rows
		}
		require.Equal(t, want, rows, "%s splits", splits)
	}
	require.Len(t, want, 5000)
	require.Equal(t, "-5", want[0].Values[0])
	require.Equal(t, "4994", want[4999].Values[0])
	require.Equal(t, "4999.000", want[4999].Values[7])
	require.Equal(t, "2024-01-01 00:00:04.999", want[4999].Values[12])
	small := map[string]int{}
	for _, r := range want {
		small[r.Values[1]]++
		require.Len(t, r.Values[9], 7)
		require.GreaterOrEqual(t, r.Values[13], "2023-12-31 22:00:00")
		require.LessOrEqual(t, r.Values[13], "2024-01-01 00:00:05+00")
	}
	require.Len(t, small, 7)
	for _, n := range small {
		require.InDelta(t, 5000/7, n, 150)
	}
}

func TestSequenceEnds(t *testing.T) {
	schema := types.Schema{{Name: "a", Type: types.Int8}, {Name: "b", Type: types.Int4}}
	src := open(t, New(), config(schema, "fields.a.kind=sequence", "fields.a.start=10", "fields.a.end=29", "fields.b.kind=sequence", "datagen.rows.per.second=0"))
	require.True(t, src.Bounded())
	require.Len(t, connectortest.ReadAll(t, src, schema, 7, &connectortest.Sink{}), 20)
}

// A sequence that leaves its type ends the split, but does not make the source one that is read to its end.
func TestSequenceLeavesType(t *testing.T) {
	schema := types.Schema{{Name: "a", Type: types.Int2}}
	src := open(t, New(), config(schema, "fields.a.kind=sequence", "fields.a.start=32760", "datagen.rows.per.second=0"))
	require.False(t, src.Bounded())
	rows := connectortest.ReadAll(t, src, schema, 100, &connectortest.Sink{})
	require.Len(t, rows, 8)
	require.Equal(t, "32767", rows[7].Values[0])
}

func TestRate(t *testing.T) {
	now := time.Unix(1000, 0)
	schema := types.Schema{{Name: "a", Type: types.Int8}}
	src := open(t, &Connector{now: func() time.Time { return now }}, config(schema, "fields.a.kind=sequence", "datagen.split.num=2"))
	require.False(t, src.Bounded())
	rows := 0
	for _, id := range []string{"0", "1"} {
		now = time.Unix(1000, 0)
		rd, err := src.Open(context.Background(), connector.Split{ID: id}, []int{0}, false, nil)
		require.NoError(t, err)
		c := connectortest.NewChunk(schema, []int{0}, false)
		for now.Before(time.Unix(1010, 0)) {
			c.Reset()
			st, wait, err := rd.Next(context.Background(), c, 100)
			require.NoError(t, err)
			require.Equal(t, connector.Idle, st)
			require.GreaterOrEqual(t, wait, pace)
			rows += c.N
			now = now.Add(wait)
		}
	}
	require.InDelta(t, 100, rows, 2, "10 rows a second")
}

func TestRefusals(t *testing.T) {
	schema := types.Schema{{Name: "a", Type: types.Int2}, {Name: "v", Type: types.Varchar}}
	for _, o := range []string{
		"fields.x.min=1", "fields.a.min=5;fields.a.max=4", "fields.a.max=40000", "fields.a.kind=foo", "datagen.rows=x", "fields.a.typo=1",
		"fields.v.length=-1", "fields.a.kind=sequence;fields.a.start=40000", "datagen.split.num=0",
	} {
		cfg := config(schema, strings.Split(o, ";")...)
		err := connector.NewRegistry(New()).Validate(cfg)
		if err == nil {
			_, err = New().Schema(cfg)
		}
		require.Equal(t, pgerr.InvalidParameterValue, pgerr.CodeOf(err), o)
	}
	_, err := New().Schema(config(types.Schema{{Name: "j", Type: types.JSONB}}))
	require.Equal(t, pgerr.FeatureNotSupported, pgerr.CodeOf(err))
	_, err = New().Schema(config(nil))
	require.Error(t, err)
}
