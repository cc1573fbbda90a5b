// Package connectortest holds the battery that every bounded, replayable source must pass.
package connectortest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/types"
)

// BadRow is what a connector reported.
type BadRow struct {
	Split, Where string
	Err          error
	Raw          string
}

// Sink collects bad rows.
type Sink struct{ Rows []BadRow }

// BadRow implements connector.ErrorSink.
func (s *Sink) BadRow(split, where string, err error, raw []byte) {
	s.Rows = append(s.Rows, BadRow{split, where, err, string(raw)})
}

// Row is a row as text, with its row id when it was asked for.
type Row struct {
	ID     int64
	Values []string
}

// maxIdle is how often a reader may be idle in a row before Read takes what it has.
const maxIdle = 3

// Read reads a split from its position to its end, or until it stays idle, in chunks of at most size rows.
func Read(t testing.TB, src connector.Source, schema types.Schema, split connector.Split, columns []int, rowID bool, size int, sink connector.ErrorSink) []Row {
	t.Helper()
	rd, err := src.Open(context.Background(), split, columns, rowID, sink)
	require.NoError(t, err)
	defer func() { require.NoError(t, rd.Close()) }()
	c := NewChunk(schema, columns, rowID)
	var out []Row
	for idle := 0; idle < maxIdle; {
		c.Reset()
		st, _, err := rd.Next(context.Background(), c, size)
		require.NoError(t, err)
		require.LessOrEqual(t, c.N, size)
		out = AppendRows(out, c, rowID)
		switch {
		case st == connector.End:
			return out
		case st == connector.Idle && c.N == 0:
			idle++
		default:
			idle = 0
		}
	}
	return out
}

// NewChunk returns a chunk for the wanted columns.
func NewChunk(schema types.Schema, columns []int, rowID bool) *types.Chunk {
	var ts []types.Type
	for _, i := range columns {
		ts = append(ts, schema[i].Type)
	}
	if rowID {
		ts = append(ts, types.Int8)
	}
	return types.NewChunk(ts)
}

// AppendRows appends the rows of c as text.
func AppendRows(out []Row, c *types.Chunk, rowID bool) []Row {
	cols := c.Cols
	if rowID {
		cols = cols[:len(cols)-1]
	}
	for i := range c.N {
		r := Row{Values: make([]string, len(cols))}
		if rowID {
			r.ID = c.Cols[len(cols)].Int[i]
		}
		for j, v := range cols {
			r.Values[j] = "NULL"
			if !v.IsNull(i) {
				r.Values[j] = string(types.AppendText(nil, nil, v, i))
			}
		}
		out = append(out, r)
	}
	return out
}

// AllColumns returns the positions of all columns.
func AllColumns(schema types.Schema) []int {
	out := make([]int, len(schema))
	for i := range out {
		out[i] = i
	}
	return out
}

// ReadAll reads all splits in the order of their ids.
func ReadAll(t testing.TB, src connector.Source, schema types.Schema, size int, sink connector.ErrorSink) []Row {
	t.Helper()
	var out []Row
	for _, sp := range splits(t, src) {
		out = append(out, Read(t, src, schema, sp, AllColumns(schema), true, size, sink)...)
	}
	return out
}

func splits(t testing.TB, src connector.Source) []connector.Split {
	t.Helper()
	sps, err := src.Splits(context.Background())
	require.NoError(t, err)
	slices.SortFunc(sps, func(a, b connector.Split) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return sps
}

// RunSource checks a bounded source: row ids are unique and stable; the rows are the same at any chunk size, for any selection of columns,
// and when the split is opened again at every position it reports.
func RunSource(t *testing.T, src connector.Source, schema types.Schema) {
	t.Helper()
	require.True(t, src.Bounded())
	all := AllColumns(schema)
	seen := map[int64]bool{}
	for _, sp := range splits(t, src) {
		want := Read(t, src, schema, sp, all, true, types.MaxChunkRows, &Sink{})
		for _, r := range want {
			require.False(t, seen[r.ID], "row id %d twice", r.ID)
			seen[r.ID] = true
		}
		for _, size := range []int{1, 3, 64, 1000} {
			t.Run(fmt.Sprintf("split %s chunks of %d", sp.ID, size), func(t *testing.T) {
				require.Equal(t, want, Read(t, src, schema, sp, all, true, size, &Sink{}))
			})
		}
		t.Run(fmt.Sprintf("split %s reopened", sp.ID), func(t *testing.T) { reopen(t, src, schema, sp, want) })
		t.Run(fmt.Sprintf("split %s columns", sp.ID), func(t *testing.T) { selections(t, src, schema, sp, want) })
	}
}

// reopen closes the reader after every chunk and goes on with a new one at its position.
func reopen(t *testing.T, src connector.Source, schema types.Schema, sp connector.Split, want []Row) {
	t.Helper()
	all := AllColumns(schema)
	for _, size := range []int{1, 2, 37, 500} {
		var got []Row
		pos := sp
		steps := 0
		for end := false; !end; steps++ {
			require.LessOrEqual(t, steps, len(want)*4+1000, "no progress")
			rd, err := src.Open(context.Background(), pos, all, true, &Sink{})
			require.NoError(t, err)
			c := NewChunk(schema, all, true)
			st, _, err := rd.Next(context.Background(), c, size)
			require.NoError(t, err)
			got = AppendRows(got, c, true)
			pos.Position = slices.Clone(rd.Position())
			end = st == connector.End
			require.NoError(t, rd.Close())
		}
		require.Equal(t, want, got, "chunks of %d", size)
		require.Empty(t, Read(t, src, schema, pos, all, true, size, &Sink{}), "rows after the end")
	}
}

func selections(t *testing.T, src connector.Source, schema types.Schema, sp connector.Split, want []Row) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	sets := [][]int{{}}
	for i := range schema {
		sets = append(sets, []int{i})
	}
	for range 10 {
		p := rng.Perm(len(schema))
		sets = append(sets, p[:1+rng.IntN(len(p))])
	}
	for _, set := range sets {
		for _, rowID := range []bool{false, true} {
			got := Read(t, src, schema, sp, set, rowID, 100, &Sink{})
			require.Len(t, got, len(want), "columns %v", set)
			for i, r := range got {
				if rowID {
					require.Equal(t, want[i].ID, r.ID)
				}
				for j, col := range set {
					require.Equal(t, want[i].Values[col], r.Values[j], "row %d column %s of %v", i, schema[col].Name, set)
				}
			}
		}
	}
}
