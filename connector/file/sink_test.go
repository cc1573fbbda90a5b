package file

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/connector/connectortest"
	"github.com/streamdb/streamdb/storage/object"
	"github.com/streamdb/streamdb/types"
)

// lines turns files of objects with id and name into rows.
func lines(t *testing.T, data []byte) (rows []string) {
	for l := range strings.Lines(string(data)) {
		var r struct {
			ID   int64
			Name string
		}
		require.NoError(t, json.Unmarshal([]byte(l), &r))
		rows = append(rows, fmt.Sprintf("%d,%s", r.ID, r.Name))
	}
	return rows
}

func TestFolderSink(t *testing.T) {
	connectortest.TestSink(t, func(t *testing.T) connectortest.SinkTarget {
		dir := filepath.Join(t.TempDir(), "a", "b")
		names := func(t *testing.T, pattern string) []string {
			paths, err := filepath.Glob(filepath.Join(dir, pattern))
			require.NoError(t, err)
			return paths
		}
		return connectortest.SinkTarget{
			Connector: NewSink(),
			Config: connector.SinkConfig{
				Name: "a sink", Options: map[string]string{"connector": "file", optPath: dir, optRoll: "20000"}, Format: connector.FormatPlain, Encode: "JSON",
			},
			Rows: func(t *testing.T) (rows []string) {
				for _, p := range names(t, "[^.]*") {
					require.True(t, strings.HasPrefix(filepath.Base(p), "a_sink-") && strings.HasSuffix(p, ".json"), p)
					data, err := os.ReadFile(p)
					require.NoError(t, err)
					rows = append(rows, lines(t, data)...)
				}
				return rows
			},
			Hidden: func(t *testing.T) int { return len(names(t, ".streamdb-*")) },
		}
	})
}

func TestBucketSink(t *testing.T) {
	connectortest.TestSink(t, func(t *testing.T) connectortest.SinkTarget {
		store := object.NewMemory(t.Name())
		return connectortest.SinkTarget{
			Connector: SinkConnector{open: func(context.Context, string) (object.Store, error) { return store, nil }},
			Config: connector.SinkConfig{
				Name: "b", Options: map[string]string{"connector": "file", optPath: "s3://bucket", optRoll: "20000"}, Format: connector.FormatPlain, Encode: "JSON",
			},
			Rows: func(t *testing.T) (rows []string) {
				require.NoError(t, store.List(t.Context(), "", func(i object.Info) error {
					if strings.HasPrefix(i.Key, stagedFolder) {
						return nil
					}
					data, _, err := store.Get(t.Context(), i.Key)
					rows = append(rows, lines(t, data)...)
					return err
				}))
				return rows
			},
			Hidden: func(t *testing.T) (n int) {
				require.NoError(t, store.List(t.Context(), stagedFolder+"streamdb-", func(object.Info) error { n++; return nil }))
				return n
			},
		}
	})
}

// A file that is in its place under its own name is not there under another one, and one that the reader of the folder has taken away is not missed.
func TestCommittedFilesMayBeTakenAway(t *testing.T) {
	dir := t.TempDir()
	s, err := NewSink().Sink(&connector.SinkConfig{
		Name: "s", ID: strings.Repeat("0", 32), Options: map[string]string{optPath: dir}, Encode: "CSV", Columns: connectortest.SinkColumns(), Mode: connector.AppendOnly,
	})
	require.NoError(t, err)
	list := &connector.Committables{Len: 1, Each: func(fn func(uint64, []byte) error) error {
		return fn(1, []byte(`{"staged":"gone","final":"f.csv"}`))
	}}
	require.NoError(t, s.Recover(t.Context(), 1, list))
	require.NoError(t, s.Commit(t.Context(), 1, list))
	require.NoError(t, os.RemoveAll(dir))
	require.ErrorContains(t, s.Commit(context.Background(), 1, list), "write file of sink", "a folder that is gone may come back")
}

// Sinks that write at least once have an owner, too: what it has staged is not removed by others.
func TestSinkAtLeastOnceHasAnOwner(t *testing.T) {
	dir := t.TempDir()
	none := &connector.Committables{Each: func(func(uint64, []byte) error) error { return nil }}
	open := func(line ...string) connector.Sink {
		s, err := NewSink().Sink(&connector.SinkConfig{
			Name: "s", ID: strings.Repeat("0", 32), Options: map[string]string{optPath: dir}, Encode: "CSV", Columns: connectortest.SinkColumns(), Mode: connector.AppendOnly,
			Writer: connector.Identity{Line: line, Holder: line[len(line)-1]},
		})
		require.NoError(t, err)
		return s
	}
	old, next := open("a"), open("a", "b")
	require.NoError(t, old.Recover(t.Context(), 0, none))
	require.NoError(t, old.Commit(t.Context(), 9, none))
	require.NoError(t, next.Recover(t.Context(), 4, none), "epochs are not counted")
	require.ErrorIs(t, old.Commit(t.Context(), 10, none), connector.ErrSinkTaken)
	require.ErrorIs(t, open("a", "a2").Recover(t.Context(), 10, none), connector.ErrSinkTaken)
	require.NoError(t, next.Commit(t.Context(), 5, none))
}

// The form of a lease is a promise.
func TestLeaseFormat(t *testing.T) {
	dir, sample := t.TempDir(), filepath.Join("..", "..", "testdata", "compat", "sinks", "owner-v1.json")
	s, err := NewSink().Sink(&connector.SinkConfig{Name: "s", ID: strings.Repeat("0", 32), Options: map[string]string{optPath: dir}, Encode: "CSV", Columns: connectortest.SinkColumns(), ExactlyOnce: true})
	require.NoError(t, err)
	data, err := os.ReadFile(sample)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, leaseFolder), 0o755))
	file := filepath.Join(dir, leaseFolder, "owner-"+strings.Repeat("0", 32))
	require.NoError(t, os.WriteFile(file, data, 0o600))
	none := &connector.Committables{Each: func(func(uint64, []byte) error) error { return nil }}
	require.ErrorContains(t, s.Recover(t.Context(), 99, none), "belongs to db1/4711 (since 2026-11-30 15:20:00 UTC)")
	require.NoError(t, os.WriteFile(file, bytes.Replace(data, []byte(`"format":1`), []byte(`"format":2`), 1), 0o600))
	require.ErrorContains(t, s.Recover(t.Context(), 99, none), "has format version 2, this binary reads up to 1")
}

// What was sealed for one place gets there, although the sink writes to another one by now.
func TestSealedFilesAfterAnotherPath(t *testing.T) {
	for name, at := range map[string]string{"from a folder": filepath.Join(t.TempDir(), "old"), "from a bucket": "s3://old"} {
		t.Run(name, func(t *testing.T) {
			stores := map[string]object.Store{"s3://old": object.NewMemory("old"), "s3://new": object.NewMemory("new")}
			cn := SinkConnector{open: func(_ context.Context, url string) (object.Store, error) { return stores[url], nil }}
			cfg := connector.SinkConfig{
				Name: "s", ID: strings.Repeat("0", 32), Format: connector.FormatPlain, Encode: "JSON", Columns: connectortest.SinkColumns(), Mode: connector.AppendOnly, ExactlyOnce: true,
				Text: types.DefaultFormat(), Dir: t.TempDir(),
			}
			var list [][]byte
			all := func() *connector.Committables {
				return &connector.Committables{Len: len(list), Last: 1, Each: func(fn func(uint64, []byte) error) error {
					for _, c := range list {
						if err := fn(1, c); err != nil {
							return err
						}
					}
					return nil
				}}
			}
			for _, path := range []string{at, "s3://new"} {
				cfg.Options = map[string]string{optPath: path}
				require.NoError(t, cn.Check(t.Context(), &cfg))
				s, err := cn.Sink(&cfg)
				require.NoError(t, err)
				require.NoError(t, s.Recover(t.Context(), 1, all()))
				if path == at {
					w, err := s.Writer(0)
					require.NoError(t, err)
					c := types.NewChunk(connectortest.SinkColumns().Types())
					c.Cols[0].AppendDatum(types.Datum{Type: types.Int8, Int: 7})
					c.Cols[1].AppendDatum(types.Datum{Type: types.Text, Str: "seven"})
					c.PushWeight(1)
					_, err = w.Write(t.Context(), c)
					require.NoError(t, err)
					var flush func(context.Context) error
					list, flush, err = w.Seal("1")
					require.NoError(t, err)
					require.NoError(t, flush(t.Context()))
					continue
				}
				require.NoError(t, s.Commit(t.Context(), 1, all()))
				require.NoError(t, s.Commit(t.Context(), 1, all()))
			}
			var names []string
			if strings.HasPrefix(at, "s3:") {
				require.NoError(t, stores[at].List(t.Context(), "s-", func(i object.Info) error { names = append(names, i.Key); return nil }))
			} else {
				var err error
				names, err = filepath.Glob(filepath.Join(at, "s-*.json"))
				require.NoError(t, err)
			}
			require.Len(t, names, 1)
		})
	}
}
