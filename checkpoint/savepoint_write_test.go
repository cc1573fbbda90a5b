package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/object"
	"github.com/streamdb/streamdb/storage/object/objecttest"
)

func snapshotOf(states ...*JobState) *Snapshot {
	return &Snapshot{ID: 3, Epoch: 30, CatalogVersion: 5, Catalog: []byte("catalog"), Jobs: states}
}

// savepointRoots are folders and buckets to write savepoints to.
func savepointRoots(t *testing.T) map[string]string {
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	return map[string]string{"folder": "file://" + t.TempDir() + "/sp", "bucket": objecttest.NewS3Server(t, "bucket").StoreURL("sp")}
}

func requireSavepoint(t *testing.T, path string, want *JobState) {
	t.Helper()
	o, err := OpenPath(context.Background(), path)
	require.NoError(t, err)
	require.True(t, o.Savepoint)
	require.Equal(t, "catalog", string(o.Catalog))
	require.EqualValues(t, 5, o.CatalogVersion)
	got := o.Jobs[want.Job]
	require.True(t, got.Foreign())
	require.Equal(t, want.Positions, got.Positions)
	require.Equal(t, want.Operators, got.Operators)
	dir := t.TempDir()
	snap, err := Fetch(context.Background(), nil, got, dir)
	require.NoError(t, err)
	for i, lists := range [][2][]state.Handle{{want.State.Base, snap.Base}, {want.State.Deltas, snap.Deltas}} {
		require.Len(t, lists[1], len(lists[0]), i)
		for j, h := range lists[0] {
			g := lists[1][j]
			require.Equal(t, []any{h.Name, h.Size, h.CRC, h.First, h.Last}, []any{g.Name, g.Size, g.CRC, g.First, g.Last})
			require.Equal(t, contentOf(t, h), contentOf(t, g))
		}
	}
}

func contentOf(t *testing.T, h state.Handle) []byte {
	t.Helper()
	if h.Path == "" {
		return h.Inline
	}
	b, err := os.ReadFile(h.Path)
	require.NoError(t, err)
	return b
}

func TestSavepointIsSelfContained(t *testing.T) {
	checkpointrows.Shows(t, 100)
	ctx := context.Background()
	for name, root := range savepointRoots(t) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			want := pebbleState(t, dir, 3, 3)
			own, err := object.Open(ctx, "file://"+filepath.Join(t.TempDir(), "own"))
			require.NoError(t, err)
			p := testPublisher(t, own)
			published := publishState(t, p, pebbleState(t, dir, 3, 3)).manifest.Jobs[7]
			at := Places{Root: root, Own: own, Scratch: filepath.Join(t.TempDir(), "scratch")}
			fresh, _, err := WriteSavepoint(ctx, at, snapshotOf(want), false)
			require.NoError(t, err)
			copied, _, err := WriteSavepoint(ctx, at, snapshotOf(published), false)
			require.NoError(t, err)
			require.NotEqual(t, fresh, copied)
			_, err = os.Stat(at.Scratch)
			require.ErrorIs(t, err, os.ErrNotExist)
			// Nothing of where it came from is needed any more.
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, own.(*object.File).Delete(ctx, published.refs.files["i1/000001.sst"].Object))
			want = pebbleState(t, t.TempDir(), 3, 3)
			requireSavepoint(t, fresh, want)
			requireSavepoint(t, copied, want)

			// It may be copied to wherever, and the copy restores.
			from, err := object.Open(ctx, copied)
			require.NoError(t, err)
			elsewhere := "file://" + t.TempDir() + "/mine"
			to, err := object.Open(ctx, elsewhere)
			require.NoError(t, err)
			require.NoError(t, from.List(ctx, "", func(info object.Info) error {
				data, _, err := from.Get(ctx, info.Key)
				if err == nil {
					_, err = to.Put(ctx, info.Key, data)
				}
				return err
			}))
			require.NoError(t, DisposeSavepoint(ctx, copied))
			requireSavepoint(t, elsewhere, want)
			again, _, err := WriteSavepoint(ctx, at, func() *Snapshot {
				o, err := OpenPath(ctx, elsewhere)
				require.NoError(t, err)
				return snapshotOf(o.Jobs[7])
			}(), false)
			require.NoError(t, err)
			requireSavepoint(t, again, want)
		})
	}
}

func TestDisposeSavepoint(t *testing.T) {
	checkpointrows.Shows(t, 103)
	ctx := context.Background()
	for name, root := range savepointRoots(t) {
		t.Run(name, func(t *testing.T) {
			path, _, err := WriteSavepoint(ctx, Places{Root: root, Scratch: filepath.Join(t.TempDir(), "s")}, snapshotOf(pebbleState(t, t.TempDir(), 3, 2)), false)
			require.NoError(t, err)
			require.NoError(t, DisposeSavepoint(ctx, path))
			store, err := object.Open(ctx, root)
			require.NoError(t, err)
			require.NoError(t, store.List(ctx, "", func(info object.Info) error { return fmt.Errorf("%s is left", info.Key) }))
			err = DisposeSavepoint(ctx, path)
			require.Equal(t, pgerr.UndefinedFile, pgerr.CodeOf(err), "%v", err)
		})
	}
	own, err := object.Open(ctx, "file://"+filepath.Join(t.TempDir(), "own"))
	require.NoError(t, err)
	publishState(t, testPublisher(t, own), pebbleState(t, t.TempDir(), 3, 1))
	err = DisposeSavepoint(ctx, own.String())
	require.Equal(t, pgerr.WrongObjectType, pgerr.CodeOf(err), "%v", err)
	_, err = own.Head(ctx, headKey)
	require.NoError(t, err)
}

func TestOpenPathFindsCheckpoints(t *testing.T) {
	checkpointrows.Shows(t, 105, 109)
	ctx := context.Background()
	root := t.TempDir()
	own, err := object.Open(ctx, "file://"+root)
	require.NoError(t, err)
	p, dir := testPublisher(t, own), t.TempDir()
	m := publishState(t, p, pebbleState(t, dir, 3, 1)).manifest
	for _, path := range []string{root, "file://" + root, root + "/" + m.Object, "file://" + root + "/" + m.Object} {
		o, err := OpenPath(ctx, path)
		require.NoError(t, err, path)
		require.False(t, o.Savepoint)
		require.EqualValues(t, 3, o.ID)
		require.Equal(t, "offset 17", string(o.Jobs[7].Positions["src/0"]))
		snap, err := Fetch(ctx, nil, o.Jobs[7], t.TempDir())
		require.NoError(t, err)
		require.Len(t, snap.Deltas, 2)
	}
	absent := filepath.Join(t.TempDir(), "absent")
	for _, path := range []string{absent, "file://" + absent, root + "/chk/no.manifest", root + "/x.manifest", "file://" + t.TempDir(), absent + "/chk/a.manifest"} {
		_, err := OpenPath(ctx, path)
		require.Equal(t, pgerr.UndefinedFile, pgerr.CodeOf(err), "%s: %v", path, err)
	}
	_, err = os.Stat(absent)
	require.ErrorIs(t, err, os.ErrNotExist, "looking does not create a folder")
}

func TestDamagedSavepoint(t *testing.T) {
	checkpointrows.Shows(t, 115)
	ctx := context.Background()
	root := t.TempDir()
	path, _, err := WriteSavepoint(ctx, Places{Root: root, Scratch: filepath.Join(t.TempDir(), "s")}, snapshotOf(pebbleState(t, t.TempDir(), 3, 2)), false)
	require.NoError(t, err)
	files := 0
	require.NoError(t, filepath.WalkDir(path, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		was, err := os.ReadFile(file)
		require.NoError(t, err)
		for what, change := range map[string]func(){
			"flipped": func() {
				b := bytes.Clone(was)
				b[len(b)/2] ^= 1
				require.NoError(t, os.WriteFile(file, b, 0o600))
			},
			"missing": func() { require.NoError(t, os.Remove(file)) },
		} {
			change()
			o, err := OpenPath(ctx, path)
			if err == nil {
				_, err = Fetch(ctx, nil, o.Jobs[7], t.TempDir())
			}
			require.Error(t, err, file)
			code := pgerr.DataCorrupted
			if what == "missing" {
				code = pgerr.UndefinedFile
			}
			require.Equal(t, code, pgerr.CodeOf(err), "%s: %v", file, err)
			if what == "flipped" || !strings.HasSuffix(file, "manifest") {
				require.ErrorContains(t, err, file)
			}
			require.NoError(t, os.WriteFile(file, was, 0o600))
		}
		return nil
	}))
	require.Equal(t, 3, files, "manifest, pack, base file")
	requireSavepoint(t, path, pebbleState(t, t.TempDir(), 3, 2))
}

// TestSavepointWithoutManifest: a writer that dies leaves nothing that opens.
func TestSavepointFailsWhole(t *testing.T) {
	ctx := context.Background()
	root := t.TempDir()
	s := pebbleState(t, t.TempDir(), 3, 2)
	require.NoError(t, os.Remove(s.State.Base[0].Path))
	_, _, err := WriteSavepoint(ctx, Places{Root: root, Scratch: filepath.Join(t.TempDir(), "s")}, snapshotOf(s), false)
	require.Error(t, err)
	store, err := object.Open(ctx, root)
	require.NoError(t, err)
	require.NoError(t, store.List(ctx, "", func(info object.Info) error { return fmt.Errorf("%s is left", info.Key) }))
	_, _, err = WriteSavepoint(ctx, Places{Root: "memory://x"}, snapshotOf(s), false)
	require.Equal(t, pgerr.InvalidParameterValue, pgerr.CodeOf(err))
}

func TestCanonicalSavepoint(t *testing.T) {
	checkpointrows.Shows(t, 100)
	ctx := context.Background()
	store, err := state.Open(ctx, state.Options{Dir: t.TempDir(), Backend: state.BackendPebble}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Destroy()) }()
	part, err := store.Part(1, 0, state.Range{To: 128}, state.Ordered)
	require.NoError(t, err)
	for i := range 20_000 {
		part.Put(uint16(i%128), fmt.Appendf(nil, "key %06d", i), bytes.Repeat([]byte{byte(i)}, 40))
	}
	sn, err := store.Snapshot(ctx, 1, []*state.Sealed{store.Seal(0)})
	require.NoError(t, err)
	js := &JobState{Job: 7, Name: "mv", Checkpoint: 3, State: sn, Parallelism: 1}
	own, err := object.Open(ctx, "file://"+filepath.Join(t.TempDir(), "own"))
	require.NoError(t, err)
	published := publishState(t, testPublisher(t, own), js).manifest.Jobs[7]
	for _, from := range []*JobState{js, published} {
		path, _, err := WriteSavepoint(ctx, Places{Root: t.TempDir(), Own: own, Scratch: filepath.Join(t.TempDir(), "s")}, snapshotOf(from), true)
		require.NoError(t, err)
		o, err := OpenPath(ctx, path)
		require.NoError(t, err)
		require.Equal(t, FormCanonical, o.Form)
		snap, err := Fetch(ctx, nil, o.Jobs[7], t.TempDir())
		require.NoError(t, err)
		require.Equal(t, state.BackendCanonical, snap.Backend)
		for _, backend := range []state.BackendType{state.BackendMemory, state.BackendPebble} {
			restored, err := state.Open(ctx, state.Options{Dir: t.TempDir(), Backend: backend}, snap)
			require.NoError(t, err)
			p, err := restored.Part(1, 0, state.Range{To: 128}, state.Ordered)
			require.NoError(t, err)
			require.EqualValues(t, 20_000, p.Len())
			v, ok, err := p.Get(17, []byte("key 000017"))
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, bytes.Repeat([]byte{17}, 40), v)
			require.NoError(t, restored.Destroy())
		}
	}
}

func TestToolsReadSavepoints(t *testing.T) {
	checkpointrows.Shows(t, 75)
	ctx := context.Background()
	for name, root := range savepointRoots(t) {
		t.Run(name, func(t *testing.T) {
			path, m, err := WriteSavepoint(ctx, Places{Root: root, Scratch: filepath.Join(t.TempDir(), "s")}, snapshotOf(pebbleState(t, t.TempDir(), 3, 2)), false)
			require.NoError(t, err)
			in, err := object.Open(ctx, root)
			require.NoError(t, err)
			store, err := object.Open(ctx, path)
			require.NoError(t, err)
			for _, s := range []object.Store{in, store} {
				var out bytes.Buffer
				require.NoError(t, List(ctx, s, &out))
				require.Regexp(t, `(?m)^3 +30 .* native +1 +\d+ +`+regexp.QuoteMeta(store.String())+`$`, out.String())
			}
			var out bytes.Buffer
			require.NoError(t, Inspect(ctx, store, 0, &out))
			require.Regexp(t, `savepoint +3\nepoch +30\n`, out.String())
			require.Contains(t, out.String(), "base i1/000001.sst")
			problems, err := Verify(ctx, store, &out)
			require.NoError(t, err)
			require.Zero(t, problems)
			key := m.Jobs[7].refs.files["i1/000001.sst"].Object
			data, _, err := store.Get(ctx, key)
			require.NoError(t, err)
			data[1000] ^= 1
			_, err = store.Put(ctx, key, data)
			require.NoError(t, err)
			out.Reset()
			problems, err = Verify(ctx, store, &out)
			require.NoError(t, err)
			require.Equal(t, 1, problems, out.String())
			require.Contains(t, out.String(), store.String()+"/"+key)
		})
	}
}

// The files of a job may go while they are copied: it was dropped, or got another query. That is what the error says, and nothing is left of the savepoint.
func TestFilesThatGoWhileTheyAreCopied(t *testing.T) {
	for _, canonical := range []bool{false, true} {
		root, dir := t.TempDir(), t.TempDir()
		s := pebbleState(t, dir, 3, 2)
		require.NoError(t, os.RemoveAll(dir))
		_, _, err := WriteSavepoint(t.Context(), Places{Root: root, Scratch: filepath.Join(t.TempDir(), "s")}, snapshotOf(s), canonical)
		require.ErrorContains(t, err, "was dropped, or got another query, while its state was being copied")
		require.Equal(t, pgerr.ObjectNotInPrerequisiteState, pgerr.CodeOf(err))
		left, err := os.ReadDir(root)
		require.NoError(t, err)
		require.Empty(t, left)
	}
	root, dir := t.TempDir(), t.TempDir()
	s := job(1).next(1)
	s.State.Deltas = []state.Handle{fileHandle(t, dir, "full-1.sst", make([]byte, packFileBytes+1))}
	require.NoError(t, os.RemoveAll(dir))
	_, _, err := WriteSavepoint(t.Context(), Places{Root: root, Scratch: filepath.Join(t.TempDir(), "s")}, snapshotOf(s), false)
	require.ErrorContains(t, err, "was dropped, or got another query, while its state was being copied")
}
