package file

import (
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
			Hidden: func(t *testing.T) int { return len(names(t, ".*")) },
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
				require.NoError(t, store.List(t.Context(), stagedFolder, func(object.Info) error { n++; return nil }))
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
	require.NoError(t, s.Commit(t.Context(), 1, list))
	require.NoError(t, os.RemoveAll(dir))
	require.ErrorContains(t, s.Commit(context.Background(), 1, list), "write file of sink", "a folder that is gone may come back")
}
