package object

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/streamdb/streamdb/internal/pgerr"
)

const (
	// tempFolder holds files being written; it is in the store's folder so that rename and link work.
	tempFolder = ".tmp"
	// lockName is the file whose flock serializes conditional replacements.
	lockName = ".lock"
	// placeAttempts bounds how often a folder removed in the meantime is created again.
	placeAttempts = 5
	// staleTemp is how old a temporary file must be to be taken for what a crash left behind.
	staleTemp = time.Hour
)

// File is a store in a local folder. A write is a temporary file, synced, then renamed or linked to its place, and the folder synced.
// Several processes may share it: conditional replacements are serialized by flock.
type File struct {
	root string
}

var _ Store = (*File)(nil)

// NewFile opens the store in folder dir, which is created when missing. A folder that is there is left as it is until something is written.
func NewFile(dir string) (*File, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open folder %q: %w", dir, err)
	}
	f := &File{root: root}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, f.failWrite("open", "", fmt.Errorf("the folder cannot be made: %w", reason(err)))
	}
	temps, err := os.ReadDir(filepath.Join(root, tempFolder))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, f.fail("open", "", err)
	}
	for _, t := range temps {
		if info, err := t.Info(); err == nil && time.Since(info.ModTime()) > staleTemp {
			_ = os.Remove(filepath.Join(root, tempFolder, t.Name())) // another process may have been faster
		}
	}
	return f, nil
}

// String is the store's URL.
func (f *File) String() string { return "file://" + f.root }

func (f *File) path(key string) string { return filepath.Join(f.root, filepath.FromSlash(key)) }

func (f *File) fail(op, key string, cause error) error {
	e := &Error{Op: op, Key: key, Store: f.String(), Cause: cause}
	var own *Error
	switch {
	case errors.As(cause, &own), errors.Is(cause, context.Canceled), errors.Is(cause, context.DeadlineExceeded):
		return cause
	case errors.Is(cause, ErrPrecondition), errors.Is(cause, ErrNotFound):
		e.Kind, e.Cause = cause, nil
	case errors.Is(cause, fs.ErrNotExist):
		e.Kind, e.Cause = ErrNotFound, nil
	case errors.Is(cause, fs.ErrPermission):
		e.Kind = ErrForbidden
		e.Hint = "Check the owner and the permissions of the folder."
	case errors.Is(cause, syscall.ENOSPC), errors.Is(cause, syscall.EDQUOT):
		e.Cause = pgerr.Wrap(pgerr.DiskFull, cause, "no space for checkpoints").WithHint("Free space on the file system of %s.", f.root)
		e.Retryable = true
	}
	return e
}

// failWrite is fail for what makes something in the folder: what is missing then is not the object.
func (f *File) failWrite(op, key string, cause error) error {
	if errors.Is(cause, fs.ErrNotExist) || errors.Is(cause, syscall.ENOTDIR) || errors.Is(cause, syscall.EROFS) {
		return &Error{Op: op, Key: key, Store: f.String(), Cause: cause, Hint: "Name a folder that the server can make and write."}
	}
	return f.fail(op, key, cause)
}

// reason is the cause of an error of the file system without the call and the path.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func (f *File) info(key string, st fs.FileInfo) Info {
	// Every write makes a new file, so inode, size and time tell writes apart.
	var ino uint64
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		ino = sys.Ino
	}
	return Info{Key: key, Size: st.Size(), ETag: fmt.Sprintf("%x-%x-%x", ino, st.Size(), st.ModTime().UnixNano()), Modified: st.ModTime()}
}

// Get implements Store.
func (f *File) Get(ctx context.Context, key string) ([]byte, Info, error) {
	if err := errors.Join(ctx.Err(), checkKey("get", f.String(), key)); err != nil {
		return nil, Info{}, err
	}
	file, err := os.Open(f.path(key))
	if err != nil {
		return nil, Info{}, f.fail("get", key, err)
	}
	defer file.Close()
	st, err := file.Stat()
	if err == nil && st.IsDir() {
		err = ErrNotFound
	}
	if err != nil {
		return nil, Info{}, f.fail("get", key, err)
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, Info{}, f.fail("get", key, err)
	}
	return data, f.info(key, st), nil
}

// GetRange implements Store.
func (f *File) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if err := errors.Join(ctx.Err(), checkKey("get", f.String(), key)); err != nil {
		return nil, err
	}
	if off < 0 || n < 0 {
		return nil, f.fail("get", key, fmt.Errorf("invalid range %d+%d", off, n))
	}
	file, err := os.Open(f.path(key))
	if err != nil {
		return nil, f.fail("get", key, err)
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return nil, f.fail("get", key, err)
	}
	buf := make([]byte, max(0, min(n, st.Size()-off)))
	got, err := file.ReadAt(buf, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, f.fail("get", key, err)
	}
	return buf[:got], nil
}

// makeTemp makes the folder for temporary files. It does not make the store's: one that was removed while the store is open is not a new, empty one.
func (f *File) makeTemp() error {
	if err := os.Mkdir(filepath.Join(f.root, tempFolder), 0o755); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// temp writes and syncs a temporary file.
func (f *File) temp(data []byte) (path string, err error) {
	if err := f.makeTemp(); err != nil {
		return "", err
	}
	file, err := os.CreateTemp(filepath.Join(f.root, tempFolder), "put-")
	if err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, file.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	if _, err := file.Write(data); err != nil {
		return file.Name(), err
	}
	return file.Name(), file.Sync()
}

// place makes the temporary file at path the object key by move, and makes that durable.
func (f *File) place(path, key string, move func(from, to string) error) (Info, error) {
	to := f.path(key)
	for attempt := 1; ; attempt++ {
		err := f.mkdirs(filepath.Dir(to))
		if err == nil {
			err = move(path, to)
		}
		if err == nil {
			break
		}
		// Delete may have removed the folder, then empty, in between.
		if !errors.Is(err, fs.ErrNotExist) || attempt == placeAttempts {
			return Info{}, err
		}
	}
	st, err := os.Stat(to)
	if err != nil {
		return Info{}, err
	}
	if err := syncFolder(filepath.Dir(to)); err != nil {
		return Info{}, &Error{Op: "put", Key: key, Store: f.String(), Cause: err, Ambiguous: true}
	}
	return f.info(key, st), nil
}

// mkdirs creates a folder within the store; new entries are synced in their parents.
func (f *File) mkdirs(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if parent := filepath.Dir(dir); parent != dir && strings.HasPrefix(parent, f.root) {
		if err := f.mkdirs(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(filepath.Dir(dir))
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (f *File) write(ctx context.Context, op, key string, data []byte, move func(from, to string) error) (Info, error) {
	if err := errors.Join(ctx.Err(), checkKey(op, f.String(), key)); err != nil {
		return Info{}, err
	}
	path, err := f.temp(data)
	if err != nil {
		return Info{}, f.failWrite(op, key, err)
	}
	info, err := f.place(path, key, move)
	if err != nil {
		if e := os.Remove(path); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
		return Info{}, f.failWrite(op, key, err)
	}
	return info, nil
}

// linkNew links from to to, which must not exist, and removes from.
func linkNew(from, to string) error {
	if err := os.Link(from, to); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return ErrPrecondition
		}
		return err
	}
	return os.Remove(from)
}

// Put implements Store.
func (f *File) Put(ctx context.Context, key string, data []byte) (Info, error) {
	return f.write(ctx, "put", key, data, os.Rename)
}

// PutIfAbsent implements Store.
func (f *File) PutIfAbsent(ctx context.Context, key string, data []byte) (Info, error) {
	return f.write(ctx, "create", key, data, linkNew)
}

// PutIfMatch implements Store.
func (f *File) PutIfMatch(ctx context.Context, key, etag string, data []byte) (Info, error) {
	if err := ctx.Err(); err != nil {
		return Info{}, err
	}
	lock, err := os.OpenFile(filepath.Join(f.root, lockName), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return Info{}, f.failWrite("replace", key, err)
	}
	// Closing the file releases the lock. Holders keep it for one small write, so waiting for it is short.
	defer lock.Close()
	if err := flock(ctx, lock); err != nil {
		return Info{}, f.fail("replace", key, err)
	}
	return f.write(ctx, "replace", key, data, func(from, to string) error {
		st, err := os.Stat(to)
		if errors.Is(err, fs.ErrNotExist) || err == nil && f.info(key, st).ETag != etag {
			return ErrPrecondition
		}
		if err != nil {
			return err
		}
		return os.Rename(from, to)
	})
}

// lockPoll is how long a waiter for the lock sleeps at a time: a holder may be stopped, so that waiting must be able to end.
const lockPoll = 2 * time.Millisecond

func flock(ctx context.Context, file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			if err := sleep(ctx, lockPoll); err != nil {
				return err
			}
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
}

// PutFile implements Store. The file is linked where the file system allows, and copied otherwise.
func (f *File) PutFile(ctx context.Context, key, path string) (Info, error) {
	if err := errors.Join(ctx.Err(), checkKey("put", f.String(), key)); err != nil {
		return Info{}, err
	}
	in, err := os.Open(path)
	if err != nil {
		// Not a missing object: the caller's file is missing.
		return Info{}, &Error{Op: "put", Key: key, Store: f.String(), Cause: err}
	}
	defer in.Close()
	if err := in.Sync(); err != nil {
		return Info{}, f.fail("put", key, err)
	}
	if err := f.makeTemp(); err != nil {
		return Info{}, f.failWrite("put", key, err)
	}
	temp := filepath.Join(f.root, tempFolder, filepath.Base(path)+fmt.Sprintf("-%x", time.Now().UnixNano()))
	if err := os.Link(path, temp); err != nil {
		if temp, err = f.copyFile(ctx, in); err != nil {
			return Info{}, f.failWrite("put", key, err)
		}
	}
	info, err := f.place(temp, key, renameAlways)
	if err != nil {
		if e := os.Remove(temp); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
		return Info{}, f.failWrite("put", key, err)
	}
	return info, nil
}

// renameAlways renames from to to. Where both are links to one file already, rename does nothing and leaves from: it is removed.
func renameAlways(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	if err := os.Remove(from); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f *File) copyFile(ctx context.Context, in *os.File) (path string, err error) {
	out, err := os.CreateTemp(filepath.Join(f.root, tempFolder), "copy-")
	if err != nil {
		return "", err
	}
	defer func() {
		err = errors.Join(err, out.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(out.Name()))
		}
	}()
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if _, err := io.CopyN(out, in, copyChunkBytes); errors.Is(err, io.EOF) {
			return out.Name(), out.Sync()
		} else if err != nil {
			return "", err
		}
	}
}

// Head implements Store.
func (f *File) Head(ctx context.Context, key string) (Info, error) {
	if err := errors.Join(ctx.Err(), checkKey("head", f.String(), key)); err != nil {
		return Info{}, err
	}
	st, err := os.Stat(f.path(key))
	if err == nil && st.IsDir() {
		err = ErrNotFound
	}
	if err != nil {
		return Info{}, f.fail("head", key, err)
	}
	return f.info(key, st), nil
}

// List implements Store.
func (f *File) List(ctx context.Context, prefix string, fn func(Info) error) error {
	var infos []Info
	start := f.root
	if i := strings.LastIndexByte(prefix, '/'); i > 0 {
		start = f.path(prefix[:i])
	}
	err := filepath.WalkDir(start, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed while walking, or nothing there at all
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(f.root, path)
		if err != nil {
			return err
		}
		key := filepath.ToSlash(rel)
		if d.IsDir() {
			if key == tempFolder {
				return fs.SkipDir
			}
			return nil
		}
		if key == lockName || !strings.HasPrefix(key, prefix) {
			return nil
		}
		st, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		infos = append(infos, f.info(key, st))
		return nil
	})
	if err != nil {
		return f.fail("list", prefix, err)
	}
	slices.SortFunc(infos, func(a, b Info) int { return strings.Compare(a.Key, b.Key) })
	for _, info := range infos {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(info); err != nil {
			return err
		}
	}
	return nil
}

// Delete implements Store. Folders that become empty are removed too.
func (f *File) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := errors.Join(ctx.Err(), checkKey("delete", f.String(), key)); err != nil {
			return err
		}
		path := f.path(key)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return f.fail("delete", key, err)
		}
		for dir := filepath.Dir(path); dir != f.root && strings.HasPrefix(dir, f.root); dir = filepath.Dir(dir) {
			if os.Remove(dir) != nil {
				break // not empty
			}
		}
	}
	return nil
}

// RemoveEmpty removes the folder that s is, when nothing is left in it. Other kinds of stores have none.
func RemoveEmpty(s Store) error {
	f, ok := s.(*File)
	if !ok {
		return nil
	}
	_ = os.Remove(filepath.Join(f.root, tempFolder)) // somebody may be writing
	if entries, err := os.ReadDir(f.root); err != nil || len(entries) > 0 && (len(entries) > 1 || entries[0].Name() != lockName) {
		return nil //nolint:nilerr // it is gone already
	}
	for _, path := range []string{filepath.Join(f.root, lockName), f.root} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			return f.fail("remove", "", err)
		}
	}
	return nil
}

// AbortUploads implements Store: a file is written in one piece.
func (f *File) AbortUploads(ctx context.Context, _ string, _ func(string) bool) (int, error) {
	return 0, ctx.Err()
}
