package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/storage/object"
)

// target is where a sink's files go. Names of staged files are without what hides them.
type target interface {
	check(ctx context.Context) error
	// folder is the local one that files are written in, under their staged names behind hiddenMark.
	folder() string
	// stage makes a complete file durable.
	stage(ctx context.Context, name string) error
	// publish gives a staged file its final name. One that is not there was published before.
	publish(ctx context.Context, staged, final string) error
	// staged lists the files that are not published, by the beginning of their names.
	staged(ctx context.Context, prefix string) ([]string, error)
	remove(ctx context.Context, staged string) error
	// leases is where what the target knows of its sinks is kept, by leaseKey.
	leases() (object.Store, error)
	// sync makes durable what files the target has.
	sync(ctx context.Context) error
}

// leaseFolder is the folder of folderTarget.leases.
const leaseFolder = hiddenMark + "streamdb"

// hiddenMark begins the names of files that are not to be read yet: patterns leave such files out.
const hiddenMark = "."

// stagedFolder is where objects are that are not to be read yet; readers of buckets leave names out that begin so.
const stagedFolder = "_staged/"

func (cn SinkConnector) openTarget(cfg *connector.SinkConfig, path string) (target, error) {
	path, err := object.FromHere(path)
	if err != nil {
		return nil, err
	}
	if dir, local, err := object.Folder(path); err != nil || local {
		return &folderTarget{dir: dir}, err
	}
	store, err := cn.open(context.Background(), path)
	if err != nil {
		return nil, err
	}
	return &bucketTarget{store: store, dir: cfg.Dir}, nil
}

func ioError(err error) error {
	if err == nil {
		return nil
	}
	return pgerr.Wrap(pgerr.IOError, err, "write file of sink")
}

// folderTarget has hidden files beside the published ones: publishing is a rename.
type folderTarget struct{ dir string }

func (t *folderTarget) folder() string { return t.dir }

func (t *folderTarget) check(context.Context) error {
	if err := os.MkdirAll(t.dir, 0o755); err != nil { //nolint:gosec // others read what a sink writes
		return ioError(err)
	}
	f, err := os.CreateTemp(t.dir, hiddenMark+"streamdb-probe-")
	if err != nil {
		return ioError(err)
	}
	return ioError(errors.Join(f.Close(), os.Remove(f.Name())))
}

func (t *folderTarget) leases() (object.Store, error) {
	if _, err := os.Stat(t.dir); err != nil { // one that is gone may come back
		return nil, ioError(err)
	}
	return object.NewFile(filepath.Join(t.dir, leaseFolder))
}

func (t *folderTarget) path(staged string) string { return filepath.Join(t.dir, hiddenMark+staged) }

func (t *folderTarget) stage(_ context.Context, name string) error {
	f, err := os.OpenFile(t.path(name), os.O_RDWR, 0)
	if err != nil {
		return ioError(err)
	}
	return ioError(errors.Join(f.Sync(), f.Close()))
}

func (t *folderTarget) publish(_ context.Context, staged, final string) error {
	err := os.Rename(t.path(staged), filepath.Join(t.dir, final))
	if errors.Is(err, fs.ErrNotExist) {
		if _, serr := os.Stat(t.dir); serr == nil {
			return nil
		}
	}
	return ioError(err)
}

func (t *folderTarget) staged(_ context.Context, prefix string) ([]string, error) {
	entries, err := os.ReadDir(t.dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, ioError(err)
	}
	var names []string
	for _, e := range entries {
		if n, ok := strings.CutPrefix(e.Name(), hiddenMark); ok && strings.HasPrefix(n, prefix) {
			names = append(names, n)
		}
	}
	return names, nil
}

func (t *folderTarget) remove(_ context.Context, staged string) error {
	return ioError(removeFile(t.path(staged)))
}

// removeFile removes a file that may be gone.
func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (t *folderTarget) sync(context.Context) error {
	d, err := os.Open(t.dir)
	if err != nil {
		return ioError(err)
	}
	return ioError(errors.Join(d.Sync(), d.Close()))
}

// bucketTarget has staged objects, and local files before that. Publishing writes the object once more under its final name, in one call, and then removes the
// staged one: a bucket can neither rename nor hide.
type bucketTarget struct {
	store object.Store
	dir   string
}

func (t *bucketTarget) folder() string { return t.dir }

func (t *bucketTarget) check(ctx context.Context) error {
	leases, err := t.leases()
	if err != nil {
		return err
	}
	return object.Probe(ctx, leases)
}

func (t *bucketTarget) leases() (object.Store, error) {
	return object.WithPrefix(t.store, strings.TrimSuffix(stagedFolder, "/")), nil
}

func (t *bucketTarget) stage(ctx context.Context, name string) error {
	local := filepath.Join(t.dir, hiddenMark+name)
	if _, err := t.store.PutFile(ctx, stagedFolder+name, local); err != nil {
		return err
	}
	return ioError(os.Remove(local))
}

func (t *bucketTarget) publish(ctx context.Context, staged, final string) error {
	data, _, err := t.store.Get(ctx, stagedFolder+staged)
	if errors.Is(err, object.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := t.store.Put(ctx, final, data); err != nil { // the same bytes each time: an unknown outcome needs no care
		return err
	}
	return t.store.Delete(ctx, stagedFolder+staged)
}

func (t *bucketTarget) staged(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	err := t.store.List(ctx, stagedFolder+prefix, func(i object.Info) error {
		names = append(names, strings.TrimPrefix(i.Key, stagedFolder))
		return nil
	})
	local, lerr := (&folderTarget{dir: t.dir}).staged(ctx, prefix)
	return append(names, local...), errors.Join(err, lerr)
}

func (t *bucketTarget) remove(ctx context.Context, staged string) error {
	return errors.Join(t.store.Delete(ctx, stagedFolder+staged), (&folderTarget{dir: t.dir}).remove(ctx, staged))
}

func (t *bucketTarget) sync(context.Context) error { return nil }
