package object

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is a store on the heap: for tests and for servers that keep nothing.
type Memory struct {
	name string

	mu      sync.Mutex
	objects map[string]memoryObject
	writes  uint64 // gives every write its own ETag
}

type memoryObject struct {
	data []byte
	info Info
}

var _ Store = (*Memory)(nil)

// NewMemory makes an empty store.
func NewMemory(name string) *Memory { return &Memory{name: name, objects: map[string]memoryObject{}} }

// String is the store's URL.
func (m *Memory) String() string { return "memory://" + m.name }

func (m *Memory) fail(op, key string, kind error) error {
	return &Error{Op: op, Key: key, Store: m.String(), Kind: kind}
}

// Get implements Store.
func (m *Memory) Get(ctx context.Context, key string) ([]byte, Info, error) {
	if err := ctx.Err(); err != nil {
		return nil, Info{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if !ok {
		return nil, Info{}, m.fail("get", key, ErrNotFound)
	}
	return slices.Clone(o.data), o.info, nil
}

// GetRange implements Store.
func (m *Memory) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	data, _, err := m.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if off < 0 || n < 0 {
		return nil, &Error{Op: "get", Key: key, Store: m.String(), Cause: fmt.Errorf("invalid range %d+%d", off, n)}
	}
	off = min(off, int64(len(data)))
	return data[off:min(off+n, int64(len(data)))], nil
}

// write stores data if allowed says so of the present ETag ("" when there is no object).
func (m *Memory) write(ctx context.Context, op, key string, data []byte, allowed func(etag string) bool) (Info, error) {
	if err := ctx.Err(); err != nil {
		return Info{}, err
	}
	if err := checkKey(op, m.String(), key); err != nil {
		return Info{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !allowed(m.objects[key].info.ETag) {
		return Info{}, m.fail(op, key, ErrPrecondition)
	}
	m.writes++
	info := Info{Key: key, Size: int64(len(data)), ETag: fmt.Sprintf("%d", m.writes), Modified: time.Now()}
	m.objects[key] = memoryObject{data: slices.Clone(data), info: info}
	return info, nil
}

// Put implements Store.
func (m *Memory) Put(ctx context.Context, key string, data []byte) (Info, error) {
	return m.write(ctx, "put", key, data, func(string) bool { return true })
}

// PutFile implements Store.
func (m *Memory) PutFile(ctx context.Context, key, path string) (Info, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Info{}, &Error{Op: "put", Key: key, Store: m.String(), Cause: err}
	}
	return m.Put(ctx, key, data)
}

// PutIfAbsent implements Store.
func (m *Memory) PutIfAbsent(ctx context.Context, key string, data []byte) (Info, error) {
	return m.write(ctx, "create", key, data, func(etag string) bool { return etag == "" })
}

// PutIfMatch implements Store.
func (m *Memory) PutIfMatch(ctx context.Context, key, etag string, data []byte) (Info, error) {
	return m.write(ctx, "replace", key, data, func(present string) bool { return present != "" && present == etag })
}

// Head implements Store.
func (m *Memory) Head(ctx context.Context, key string) (Info, error) {
	if err := ctx.Err(); err != nil {
		return Info{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if !ok {
		return Info{}, m.fail("head", key, ErrNotFound)
	}
	return o.info, nil
}

// List implements Store.
func (m *Memory) List(ctx context.Context, prefix string, fn func(Info) error) error {
	m.mu.Lock()
	infos := []Info{}
	for key, o := range m.objects {
		if strings.HasPrefix(key, prefix) {
			infos = append(infos, o.info)
		}
	}
	m.mu.Unlock()
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

// Delete implements Store.
func (m *Memory) Delete(ctx context.Context, keys ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		delete(m.objects, key)
	}
	return nil
}

// AbortUploads implements Store: there are none.
func (m *Memory) AbortUploads(ctx context.Context, _ string, _ func(string) bool) (int, error) {
	return 0, ctx.Err()
}
