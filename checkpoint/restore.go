package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/object"
)

const (
	fetchParallelism = 8
	fetchBytes       = 8 << 20 // per read of an object
	loadAttempts     = 5       // when HEAD moves while a manifest is read
)

// Load returns the newest completed checkpoint with all of the jobs' positions and operator states, nil when there is none. A server may
// be running on the store.
func Load(ctx context.Context, store object.Store) (*Manifest, error) {
	var last error
	for range loadAttempts {
		h, _, err := readHead(ctx, store)
		if err != nil || h == nil {
			return nil, err
		}
		m, err := loadNewest(ctx, store, h)
		if err == nil {
			return m, nil
		}
		if !errors.Is(err, object.ErrNotFound) {
			return nil, err
		}
		last = err
	}
	return nil, last
}

// loadNewest reads the newest checkpoint of h completely.
func loadNewest(ctx context.Context, store object.Store, h *head) (*Manifest, error) {
	at := h.newest()
	if at == nil {
		return nil, nil
	}
	m, err := loadManifest(ctx, store, *at)
	if err != nil {
		return nil, err
	}
	return m, resolve(ctx, store, m)
}

// loadManifest reads and checks a manifest; bytes outside of it are not read.
func loadManifest(ctx context.Context, store object.Store, at manifestRef) (*Manifest, error) {
	where := store.String() + "/" + at.Object
	data, _, err := store.Get(ctx, at.Object)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	doc := &manifestDoc{}
	if err := openDoc("manifest", manifestFormat, where, data, doc); err != nil {
		return nil, err
	}
	if int64(len(data)) != at.Size || castagnoli(data) != at.CRC {
		return nil, corrupt(where, "it is not the manifest that %s names", headKey)
	}
	return manifestOf(doc, at), nil
}

// wanted is bytes to be read, and what to do with them.
type wanted struct {
	ref ref
	set func([]byte)
}

// resolve reads catalog, positions, operator states and inline files of m.
func resolve(ctx context.Context, store object.Store, m *Manifest) error {
	var all []wanted
	read := func(r ref, set func([]byte)) { all = append(all, wanted{r, set}) }
	if m.catalogRef != nil {
		read(*m.catalogRef, func(b []byte) { m.Catalog = b })
	}
	states := slices.Collect(maps.Values(m.Jobs))
	for _, held := range m.Held {
		for _, h := range held {
			if h.catalogRef != nil {
				read(*h.catalogRef, func(b []byte) { h.Catalog = b })
			}
			states = append(states, h.JobState)
		}
	}
	for _, s := range states {
		for name, r := range s.refs.positions {
			read(r, func(b []byte) { s.Positions[name] = b })
		}
		for name, r := range s.refs.operators {
			read(r, func(b []byte) { s.Operators[name] = b })
		}
		lists := [][]state.Handle{s.Inflight}
		if s.State != nil {
			lists = append(lists, s.State.Base, s.State.Deltas)
		}
		for _, list := range lists {
			for i := range list {
				if s.refs.memory[list[i].Name] {
					read(s.refs.files[list[i].Name], func(b []byte) { list[i].Inline = b })
				}
			}
		}
	}
	if err := readAll(ctx, store, all); err != nil {
		return fmt.Errorf("read checkpoint %d: %w", m.ID, err)
	}
	return nil
}

// readAll reads many small pieces, those that lie near each other in one object with one call.
func readAll(ctx context.Context, store object.Store, all []wanted) error {
	slices.SortFunc(all, func(a, b wanted) int {
		return cmp.Or(strings.Compare(a.ref.Object, b.ref.Object), cmp.Compare(a.ref.Offset, b.ref.Offset))
	})
	group, gctx := newCalls(ctx, fetchParallelism)
	var mu sync.Mutex
	for len(all) > 0 {
		n, first := 1, all[0].ref
		end := first.Offset + first.Size
		for n < len(all) && all[n].ref.Object == first.Object && all[n].ref.Offset+all[n].ref.Size-first.Offset <= fetchBytes {
			end = max(end, all[n].ref.Offset+all[n].ref.Size)
			n++
		}
		run := all[:n]
		all = all[n:]
		group.Go(func() error {
			var data []byte
			if first.Object != "" {
				var err error
				if data, err = store.GetRange(gctx, first.Object, first.Offset, end-first.Offset); err != nil {
					return err
				}
			}
			for _, w := range run {
				b, where := w.ref.Inline, "inline data of a manifest"
				if w.ref.Object != "" {
					from := min(w.ref.Offset-first.Offset, int64(len(data)))
					b, where = slices.Clone(data[from:min(from+w.ref.Size, int64(len(data)))]), store.String()+"/"+w.ref.Object
				}
				if int64(len(b)) != w.ref.Size || castagnoli(b) != w.ref.CRC {
					return corrupt(where, "%d bytes from offset %d have checksum %08x instead of %d with %08x", len(b), w.ref.Offset, castagnoli(b), w.ref.Size, w.ref.CRC)
				}
				if b == nil {
					b = []byte{}
				}
				mu.Lock()
				w.set(b)
				mu.Unlock()
			}
			return nil
		})
	}
	return group.Wait()
}

// Fetch makes the state of s local: every handle of the snapshot it returns has its bytes inline, or a file dir/Name. Files that lie in dir or
// one of the folders in local already, wherever a state store may have put them, with the same size and checksum, are not read from the store. nil when
// s has no state.
func Fetch(ctx context.Context, store object.Store, s *JobState, dir string, local ...string) (*state.Snapshot, error) {
	if s.State == nil {
		return nil, nil
	}
	if s.refs == nil {
		return nil, fmt.Errorf("fetch state of job %d: it was not loaded from a checkpoint", s.Job)
	}
	if s.refs.store != nil {
		store = s.refs.store
	}
	snap := *s.State
	snap.Base, snap.Deltas = slices.Clone(snap.Base), slices.Clone(snap.Deltas)
	group, gctx := newCalls(ctx, fetchParallelism)
	seen := map[string]bool{}
	have := localFiles(append([]string{dir}, local...))
	for _, list := range [][]state.Handle{snap.Base, snap.Deltas} {
		for i := range list {
			h := &list[i]
			if s.refs.memory[h.Name] {
				continue // inline already
			}
			path := filepath.Join(dir, filepath.FromSlash(h.Name))
			if !filepath.IsLocal(filepath.FromSlash(h.Name)) {
				return nil, corrupt("manifest", "invalid file name %q", h.Name)
			}
			h.Path, h.Checked = path, true
			if r := s.refs.files[h.Name]; !seen[h.Name] {
				seen[h.Name] = true
				group.Go(func() error { return fetchFile(gctx, store, r, path, have[filepath.Base(path)]) })
			}
		}
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("fetch state of %q: %w", s.Name, err)
	}
	return &snap, nil
}

// localFiles finds the files below folders by the last element of the name that their handles have: a state store links what it was restored from
// under names of its own (state.LocalName).
func localFiles(folders []string) map[string][]string {
	have := map[string][]string{}
	for _, dir := range folders {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error { // what cannot be read is not there
			if err == nil && e.Type().IsRegular() {
				name := state.LocalName(e.Name())
				have[name] = append(have[name], path)
			}
			return nil
		})
	}
	return have
}

// fetchFile makes path hold the bytes of r, which may be in one of the files given.
func fetchFile(ctx context.Context, store object.Store, r ref, path string, local []string) error {
	if sameFile(path, r) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, from := range local {
		if from != path && sameFile(from, r) && os.Link(from, path) == nil {
			return nil
		}
	}
	return download(ctx, store, r, path)
}

// sameFile reports whether the file at path has the bytes of r.
func sameFile(path string, r ref) bool {
	st, err := os.Stat(path)
	if err != nil || st.Size() != r.Size {
		return false
	}
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	_, err = io.Copy(sum, file)
	return err == nil && sum.Sum32() == r.CRC
}

// download writes the bytes of r to path, checked; path appears whole or not at all.
func download(ctx context.Context, store object.Store, r ref, path string) (err error) {
	out, err := os.CreateTemp(filepath.Dir(path), strings.TrimSuffix(filepath.Base(path), ".sst")+".part-")
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, out.Close())
		if err == nil {
			err = os.Rename(out.Name(), path)
		}
		if err != nil {
			err = errors.Join(err, os.Remove(out.Name()))
		}
	}()
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	got := int64(0)
	for got < r.Size || got == 0 && r.Size > 0 {
		data := r.Inline
		if r.Object != "" {
			if data, err = store.GetRange(ctx, r.Object, r.Offset+got, min(fetchBytes, r.Size-got)); err != nil {
				return err
			}
		}
		if len(data) == 0 {
			break
		}
		if _, err := io.MultiWriter(out, sum).Write(data); err != nil {
			return err
		}
		got += int64(len(data))
	}
	if got != r.Size || sum.Sum32() != r.CRC {
		return corrupt(store.String()+"/"+r.Object, "%d bytes from offset %d have checksum %08x instead of %d with %08x", got, r.Offset, sum.Sum32(), r.Size, r.CRC)
	}
	return nil
}

// sortedJobs lists a manifest's job ids in order.
func sortedJobs(m *Manifest) []uint64 { return slices.Sorted(maps.Keys(m.Jobs)) }

func isFolder(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// earlier reads the retained checkpoints before the newest.
func (p *publisher) earlier(ctx context.Context) ([]*Manifest, error) {
	if err := p.acquire(ctx); err != nil {
		return nil, err
	}
	refs := slices.Clone(p.head.Retained)
	p.release()
	var out []*Manifest
	for i := len(refs) - 2; i >= 0; i-- {
		m, err := loadManifest(ctx, p.store, refs[i])
		if err == nil {
			err = resolve(ctx, p.store, m)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			p.log.Warn().Err(err).Str("manifest", refs[i].Object).Msg("an earlier checkpoint cannot be read")
			continue
		}
		out = append(out, m)
	}
	return out, nil
}
