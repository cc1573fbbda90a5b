package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/object"
)

// Snapshot is what a savepoint is made of: the states of jobs at one cut, and the catalog as of then.
type Snapshot struct {
	ID, Epoch      uint64
	CatalogVersion uint64
	Catalog        []byte
	// Jobs are acknowledged states, whose files are local, or those of a completed checkpoint. None is Unchanged.
	Jobs []*JobState
	// Named are the jobs that were asked for; empty: all.
	Named []uint64
	// Line are the claims that led to it.
	Line []string
}

// Places are where a savepoint is made.
type Places struct {
	Root    string       // URL of the folder for savepoints: a new one is made in it
	Own     object.Store // where the states of completed checkpoints are
	Scratch string       // folder for temporary files; it is created and removed
}

// CheckTarget refuses the URL of what cannot be a folder for savepoints. Nothing is opened or made.
func CheckTarget(rawURL string) error {
	if strings.HasPrefix(rawURL, "memory:") {
		return inMemory(rawURL)
	}
	return object.Check(rawURL)
}

func inMemory(rawURL string) error {
	return pgerr.Newf(pgerr.InvalidParameterValue, "a savepoint cannot be written to %s: nothing there outlives the server", rawURL).WithHint("Use file:// or s3://.")
}

// savepointRemoval is how long the removal of a savepoint may take that was given up: its store may hang.
const savepointRemoval = 10 * time.Second

// WriteSavepoint writes a savepoint into a new folder below at.Root and returns the folder's URL. A folder without its manifest, which is
// written last, is none.
func WriteSavepoint(ctx context.Context, at Places, snap *Snapshot, canonical bool) (path string, m *Manifest, err error) {
	root, err := hostOf(ctx).open(ctx, at.Root)
	if err != nil {
		return "", nil, err
	}
	if _, lost := root.(*object.Memory); lost {
		return "", nil, inMemory(at.Root)
	}
	if err := os.MkdirAll(at.Scratch, 0o700); err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(at.Scratch)) }()
	name := fmt.Sprintf("%s%d-%s", savepointPrefix, snap.ID, hostOf(ctx).nonce())
	w := &savepointWriter{Places: at, to: object.WithPrefix(root, name), canonical: canonical}
	m, err = w.write(ctx, snap)
	if err != nil {
		after, cancel := object.Aftermath(ctx, savepointRemoval)
		defer cancel()
		return "", nil, errors.Join(fmt.Errorf("write savepoint: %w", err), removeAll(after, w.to))
	}
	return object.Below(at.Root, name), m, nil
}

// savepointWriter writes one savepoint.
type savepointWriter struct {
	Places
	to        object.Store
	canonical bool

	group *calls
	small []smallBlob
}

func (w *savepointWriter) write(ctx context.Context, snap *Snapshot) (*Manifest, error) {
	m := &Manifest{
		ID: snap.ID, Epoch: snap.Epoch, Created: hostOf(ctx).now().UTC(), Object: savepointKey, CatalogVersion: snap.CatalogVersion, Catalog: snap.Catalog,
		Jobs: map[uint64]*JobState{},
	}
	group, gctx := newCalls(ctx, uploadParallelism)
	w.group = group
	w.keep(snap.Catalog, func(r ref) { m.catalogRef = &r })
	err := func() error {
		for _, s := range snap.Jobs {
			c, err := w.job(gctx, s)
			if err != nil {
				return wentAway(s, fmt.Errorf("job %q: %w", s.Name, err))
			}
			m.Jobs[c.Job] = c
		}
		return nil
	}()
	if err = errors.Join(group.Wait(), err); err != nil {
		return nil, err
	}
	if err := w.pack(ctx); err != nil {
		return nil, err
	}
	doc := savepointDoc{manifestDoc: *docOf(m, 0), Form: FormNative, Named: snap.Named, Line: snap.Line}
	if w.canonical {
		doc.Form = FormCanonical
	}
	data, err := sealDoc(savepointKind, doc.Format, doc)
	if err != nil {
		return nil, err
	}
	m.Size = int64(len(data))
	_, err = w.to.PutIfAbsent(ctx, savepointKey, data)
	return m, err
}

// job stores one job's state and returns it with its references.
func (w *savepointWriter) job(ctx context.Context, s *JobState) (*JobState, error) {
	c := *s
	c.Subtasks, c.Unchanged = nil, false
	c.refs = &stateRefs{files: map[string]ref{}, memory: map[string]bool{}, positions: map[string]ref{}, operators: map[string]ref{}, since: s.Since()}
	for _, blobs := range []struct {
		bytes map[string][]byte
		refs  map[string]ref
	}{{s.Positions, c.refs.positions}, {s.Operators, c.refs.operators}} {
		for _, name := range slices.Sorted(maps.Keys(blobs.bytes)) {
			w.keep(blobs.bytes[name], func(r ref) { blobs.refs[name] = r })
		}
	}
	for _, h := range s.Inflight {
		if err := w.file(ctx, s, h, s.refs, c.refs); err != nil {
			return nil, err
		}
	}
	c.Inflight = withoutPaths(s.Inflight)
	if s.State == nil {
		return &c, nil
	}
	st, old := *s.State, s.refs
	if w.canonical && st.Backend != state.BackendCanonical {
		written, err := w.toCanonical(ctx, s)
		if err != nil {
			return nil, err
		}
		st, old = *written, nil
	}
	for _, h := range slices.Concat(st.Base, st.Deltas) {
		if err := w.file(ctx, s, h, old, c.refs); err != nil {
			return nil, err
		}
	}
	st.Base, st.Deltas = withoutPaths(st.Base), withoutPaths(st.Deltas)
	st.NewBytes = st.FullSize
	c.State = &st
	return &c, nil
}

// toCanonical writes a state in the form of no backend, into the scratch folder.
func (w *savepointWriter) toCanonical(ctx context.Context, s *JobState) (*state.Snapshot, error) {
	local := s.State
	if s.refs != nil {
		var err error
		if local, err = Fetch(ctx, w.Own, s, filepath.Join(w.Scratch, fmt.Sprintf("%d-from", s.Job))); err != nil {
			return nil, err
		}
	}
	return state.Canonical(ctx, state.Options{Dir: filepath.Join(w.Scratch, fmt.Sprintf("%d-to", s.Job))}, local)
}

// wentAway says why a local file of a state that no checkpoint has is not there: such files stay as long as their job.
func wentAway(s *JobState, err error) error {
	if s.refs != nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%q was dropped, or got another query, while its state was being copied", s.Name).WithHint("Make the savepoint again.")
}

// file stores a file of a state: from local disk, or, for a state of a completed checkpoint, from the store that it is in.
func (w *savepointWriter) file(ctx context.Context, s *JobState, h state.Handle, old, refs *stateRefs) error {
	if _, twice := refs.files[h.Name]; twice {
		return nil
	}
	var at ref
	own := w.Own
	if old != nil {
		at = old.files[h.Name]
		refs.memory[h.Name] = old.memory[h.Name]
		if old.store != nil {
			own = old.store
		}
	} else if h.Path == "" {
		refs.memory[h.Name] = true
	}
	refs.files[h.Name] = ref{} // until it has its place
	if h.Size > packFileBytes && (h.Path != "" || at.Object != "" && at.Offset == 0) {
		key := fmt.Sprintf("%s%d/%s", dataPrefix, s.Job, h.Name)
		refs.files[h.Name] = ref{Object: key, Size: h.Size, CRC: h.CRC}
		w.group.Go(func() error {
			var info object.Info
			var err error
			if old == nil {
				info, err = w.to.PutFile(ctx, key, h.Path)
				err = wentAway(s, err)
			} else {
				info, err = object.Copy(ctx, own, at.Object, w.to, key, w.Scratch)
			}
			if err == nil && info.Size != h.Size {
				err = corrupt(h.Name, "it has %d bytes instead of %d", info.Size, h.Size)
			}
			return err
		})
		return nil
	}
	data := h.Inline
	var err error
	switch {
	case old != nil && at.Object != "":
		data, err = own.GetRange(ctx, at.Object, at.Offset, at.Size)
	case old != nil:
		data = at.Inline
	case h.Path != "":
		data, err = os.ReadFile(h.Path)
	}
	if err != nil {
		return fmt.Errorf("read state file: %w", err)
	}
	if err := checkHandle(h, data); err != nil {
		return err
	}
	w.keep(data, func(r ref) { refs.files[h.Name] = r })
	return nil
}

func (w *savepointWriter) keep(data []byte, set func(ref)) {
	w.small = append(w.small, smallBlob{data: data, set: set})
}

// pack stores the small blobs: inline in the manifest when they are few, else in packs.
func (w *savepointWriter) pack(ctx context.Context) error {
	total := 0
	for _, b := range w.small {
		total += len(b.data)
	}
	packs := 0
	_, err := placeSmall(w.small, total <= DefaultInlineThreshold, func(pack []byte) (string, error) {
		packs++
		key := fmt.Sprintf("%s%d.pack", packPrefix, packs)
		_, err := w.to.PutIfAbsent(ctx, key, pack)
		return key, err
	})
	return err
}

// removeAll deletes every object of a store, the manifest of a savepoint first: what is left of one that cannot be removed as a whole is none.
func removeAll(ctx context.Context, s object.Store) error {
	if err := s.Delete(ctx, savepointKey); err != nil {
		return err
	}
	var keys []string
	if err := s.List(ctx, "", func(info object.Info) error {
		keys = append(keys, info.Key)
		return nil
	}); err != nil {
		return err
	}
	for chunk := range slices.Chunk(keys, deleteBatch) {
		if err := s.Delete(ctx, chunk...); err != nil {
			return err
		}
	}
	return nil
}
