package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/storage/object"
)

const (
	savepointKind   = "savepoint"
	savepointFormat = 2            // 1 without rows in flight
	savepointPrefix = "savepoint-" // of folders
	savepointKey    = "manifest"   // below the folder
)

// The forms of a savepoint's states.
const (
	FormNative    = "native"    // the backend's own files
	FormCanonical = "canonical" // files that every backend reads
)

// savepointDoc is the manifest of a savepoint: that of a checkpoint with references below its own folder.
type savepointDoc struct {
	manifestDoc
	Form  string   `json:"form"`
	Named []uint64 `json:"named,omitempty"` // the jobs that were asked for; absent: the whole database
	Line  []string `json:"line,omitempty"`  // as in HEAD
}

// Opened is a checkpoint or savepoint found by its path.
type Opened struct {
	*Manifest
	Path      string
	Form      string // "" for checkpoints
	Named     []uint64
	Savepoint bool
	Line      []string // the claims that led to it, and for checkpoints perhaps later ones; empty when it was written by an older version

	store object.Store
	whole bool // positions and operator states have been read
}

// Foreign reports whether the bytes of s are in another store than that of the coordinator that it was given to: the next state of its job must be whole, and
// none is Unchanged until then.
func (s *JobState) Foreign() bool { return s.refs != nil && s.refs.store != nil }

// Under returns what a server restores that was started from o, of which its own newest checkpoint (nil: there is none) does not have all: the states of own, those of o of the jobs that own does not
// have, and what these have read from that is not the newest state any more.
func (o *Opened) Under(own *Manifest) *Manifest {
	if own == nil {
		return o.Manifest
	}
	m := *own
	m.Jobs, m.Held = maps.Clone(o.Jobs), map[uint64][]*HeldState{}
	maps.Copy(m.Jobs, own.Jobs)
	maps.Copy(m.Held, own.Held)
	for job, reader := range o.Jobs {
		if own.Jobs[job] != nil {
			continue
		}
		for _, in := range reader.Inputs {
			m.holdFrom(o.Manifest, in, reader.Checkpoint)
		}
	}
	return &m
}

// OpenPath finds what path names: the folder of a savepoint, a checkpoint folder (its newest checkpoint), or a manifest in a checkpoint folder, with positions
// and operator states. The states are Foreign.
func OpenPath(ctx context.Context, path string) (*Opened, error) {
	o, err := openPath(ctx, path)
	if err != nil {
		return nil, err
	}
	if !o.whole {
		if err := resolve(ctx, o.store, o.Manifest); err != nil {
			return nil, err
		}
	}
	if !o.Savepoint {
		h, _, err := readHead(ctx, o.store)
		if err != nil {
			return nil, err
		}
		if h != nil {
			o.Line = h.line()
		}
	}
	o.Path = path
	for _, s := range o.Jobs {
		s.refs.store = o.store
	}
	for _, held := range o.Held {
		for _, h := range held {
			h.refs.store = o.store
		}
	}
	return o, nil
}

func openPath(ctx context.Context, path string) (*Opened, error) {
	if strings.HasSuffix(path, ".manifest") {
		return openManifest(ctx, path)
	}
	folder, local, err := object.Folder(path)
	if err != nil {
		return nil, err
	}
	if local && !isFolder(folder) {
		return nil, notFound(path) // opening a store would create it
	}
	store, err := object.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	if o, err := openSavepoint(ctx, store); err != nil || o != nil {
		return o, err
	}
	m, err := Load(ctx, store)
	if err != nil {
		return nil, err
	}
	if m == nil {
		return nil, noneAt(ctx, path, store)
	}
	return &Opened{Manifest: m, store: store, whole: true}, nil
}

// namedSavepoints is how many savepoints of a folder an error names.
const namedSavepoints = 3

// noneAt is notFound for a store that is there: it may be a folder of savepoints.
func noneAt(ctx context.Context, path string, store object.Store) error {
	found, err := savepointsIn(ctx, store)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return notFound(path)
	}
	slices.SortFunc(found, func(a, b object.Info) int { return b.Modified.Compare(a.Modified) })
	var urls []string
	for _, s := range found[:min(len(found), namedSavepoints)] {
		urls = append(urls, object.Below(path, strings.TrimSuffix(s.Key, "/"+savepointKey)))
	}
	of := "it has"
	if len(found) > namedSavepoints {
		of = fmt.Sprintf("the newest of the %d in it are", len(found))
	}
	return pgerr.Newf(pgerr.UndefinedFile, "there is no savepoint and no checkpoint at %s, which is a folder of savepoints", path).
		WithHint("Name one of them: %s %s.", of, strings.Join(urls, ", "))
}

// savepointsIn lists the manifests of the savepoints in a folder of such.
func savepointsIn(ctx context.Context, store object.Store) (found []object.Info, err error) {
	err = store.List(ctx, savepointPrefix, func(info object.Info) error {
		if folder, ok := strings.CutSuffix(info.Key, "/"+savepointKey); ok && !strings.Contains(folder, "/") {
			found = append(found, info)
		}
		return nil
	})
	return found, err
}

func notFound(path string) error {
	return pgerr.Newf(pgerr.UndefinedFile, "there is no savepoint and no checkpoint at %s", path).
		WithHint("Name the folder of a savepoint, a checkpoint folder, or a manifest in one.")
}

// openSavepoint reads the manifest of a savepoint; nil when the store is none.
func openSavepoint(ctx context.Context, store object.Store) (*Opened, error) {
	data, info, err := store.Get(ctx, savepointKey)
	if errors.Is(err, object.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read savepoint: %w", err)
	}
	doc := &savepointDoc{}
	if err := openDoc(savepointKind, savepointFormat, store.String()+"/"+savepointKey, data, doc); err != nil {
		return nil, err
	}
	m := manifestOf(&doc.manifestDoc, manifestRef{Object: savepointKey, Size: info.Size})
	return &Opened{Manifest: m, Form: doc.Form, Named: doc.Named, Savepoint: true, Line: doc.Line, store: store}, nil
}

// openManifest reads a manifest in a checkpoint folder by its own path.
func openManifest(ctx context.Context, path string) (*Opened, error) {
	parent, name, ok := object.Above(path)
	root, kind, ok2 := object.Above(parent)
	if !ok || !ok2 || kind+"/" != manifestPrefix {
		return nil, notFound(path)
	}
	if folder, local, err := object.Folder(root); err != nil {
		return nil, err
	} else if local && !isFolder(folder) {
		return nil, notFound(path)
	}
	store, err := object.Open(ctx, root)
	if err != nil {
		return nil, err
	}
	key := manifestPrefix + name
	data, _, err := store.Get(ctx, key)
	if errors.Is(err, object.ErrNotFound) {
		return nil, notFound(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	doc := &manifestDoc{}
	if err := openDoc("manifest", manifestFormat, store.String()+"/"+key, data, doc); err != nil {
		return nil, err
	}
	return &Opened{Manifest: manifestOf(doc, manifestRef{Object: key, Size: int64(len(data))}), store: store}, nil
}

// DisposeSavepoint removes the savepoint at path.
func DisposeSavepoint(ctx context.Context, path string) error {
	o, err := openPath(ctx, path)
	if err != nil {
		return err
	}
	if !o.Savepoint {
		return pgerr.Newf(pgerr.WrongObjectType, "%s is not a savepoint", path).
			WithHint("Checkpoints belong to their server, which removes them.")
	}
	if err := removeAll(ctx, o.store); err != nil {
		return err
	}
	return object.RemoveEmpty(o.store)
}
