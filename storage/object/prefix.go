package object

import (
	"context"
	"strings"
)

// prefixed is a store within a store.
type prefixed struct {
	Store
	prefix string
}

// WithPrefix returns the part of s whose keys begin with prefix and "/".
func WithPrefix(s Store, prefix string) Store {
	prefix = strings.Trim(prefix, "/")
	if prefix == "" {
		return s
	}
	return &prefixed{Store: s, prefix: prefix + "/"}
}

func (p *prefixed) inside(info Info, err error) (Info, error) {
	info.Key = strings.TrimPrefix(info.Key, p.prefix)
	return info, err
}

// String is the URL of the store and the prefix.
func (p *prefixed) String() string {
	return strings.TrimSuffix(p.Store.String(), "/") + "/" + strings.TrimSuffix(p.prefix, "/")
}

// Get implements Store.
func (p *prefixed) Get(ctx context.Context, key string) ([]byte, Info, error) {
	data, info, err := p.Store.Get(ctx, p.prefix+key)
	info, err = p.inside(info, err)
	return data, info, err
}

// GetRange implements Store.
func (p *prefixed) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	return p.Store.GetRange(ctx, p.prefix+key, off, n)
}

// Put implements Store.
func (p *prefixed) Put(ctx context.Context, key string, data []byte) (Info, error) {
	return p.inside(p.Store.Put(ctx, p.prefix+key, data))
}

// PutFile implements Store.
func (p *prefixed) PutFile(ctx context.Context, key, path string) (Info, error) {
	return p.inside(p.Store.PutFile(ctx, p.prefix+key, path))
}

// PutIfAbsent implements Store.
func (p *prefixed) PutIfAbsent(ctx context.Context, key string, data []byte) (Info, error) {
	return p.inside(p.Store.PutIfAbsent(ctx, p.prefix+key, data))
}

// PutIfMatch implements Store.
func (p *prefixed) PutIfMatch(ctx context.Context, key, etag string, data []byte) (Info, error) {
	return p.inside(p.Store.PutIfMatch(ctx, p.prefix+key, etag, data))
}

// Head implements Store.
func (p *prefixed) Head(ctx context.Context, key string) (Info, error) {
	return p.inside(p.Store.Head(ctx, p.prefix+key))
}

// List implements Store.
func (p *prefixed) List(ctx context.Context, prefix string, fn func(Info) error) error {
	return p.Store.List(ctx, p.prefix+prefix, func(info Info) error {
		info.Key = strings.TrimPrefix(info.Key, p.prefix)
		return fn(info)
	})
}

// Delete implements Store.
func (p *prefixed) Delete(ctx context.Context, keys ...string) error {
	full := make([]string, len(keys))
	for i, key := range keys {
		full[i] = p.prefix + key
	}
	return p.Store.Delete(ctx, full...)
}

// AbortUploads implements Store.
func (p *prefixed) AbortUploads(ctx context.Context, prefix string, dead func(key string) bool) (int, error) {
	return p.Store.AbortUploads(ctx, p.prefix+prefix, func(key string) bool { return dead(strings.TrimPrefix(key, p.prefix)) })
}
