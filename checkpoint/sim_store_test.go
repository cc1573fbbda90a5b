package checkpoint

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/streamdb/streamdb/storage/object"
)

// simObjects is a bucket: what the network has brought to it. It checks what is written as it arrives.
type simObjects struct {
	w       *simWorld
	name    string
	keys    map[string]*simObject
	uploads map[string]bool // begun in parts and not completed
	writes  int
	gone    map[string][]byte // what deleted objects held: a name that comes again holds the same
	// moving is the number of calls on their way.
	moving int
}

type simObject struct {
	data []byte
	size int64 // what it would have
	etag string
}

func newSimObjects(w *simWorld, name string) *simObjects {
	return &simObjects{w: w, name: name, keys: map[string]*simObject{}, uploads: map[string]bool{}, gone: map[string][]byte{}}
}

func (o *simObjects) info(key string) object.Info {
	return object.Info{Key: key, Size: o.keys[key].size, ETag: o.keys[key].etag, Modified: simEpoch}
}

func (o *simObjects) put(key string, data []byte, size int64) object.Info {
	old := o.keys[key]
	if o == o.w.bucket && key != headKey && key != leaderKey {
		before := o.gone[key]
		if old != nil {
			before = old.data
		}
		if before != nil && !bytes.Equal(before, data) {
			o.w.failf("I1: %s is written twice with different bytes", key)
		}
	}
	o.writes++
	o.keys[key] = &simObject{data: data, size: size, etag: fmt.Sprint(o.writes)}
	delete(o.uploads, key)
	if o == o.w.bucket && key == headKey {
		o.w.headWritten(old, data)
	}
	return o.info(key)
}

func (o *simObjects) delete(key string) {
	if old := o.keys[key]; old != nil {
		if o == o.w.bucket && o.w.needed[key] {
			o.w.failf("I1: %s is deleted, which HEAD needs", key)
		}
		o.gone[key] = old.data
		delete(o.keys, key)
	}
}

// simFaults are the chances of what may go wrong with a call, in thousandths.
type simFaults struct{ refused, lost, late, conflict, slow int }

// simFate is what a plot has in mind for a call.
type simFate int

const (
	simRandom    simFate = iota
	simDies              // the server, before the request arrives
	simDiesAfter         // after it was carried out
	simFreezes
	simLost // the answer
	simLate // the request, when the answer was given up already
)

// simStore is a bucket as one server sees it. Its calls are made by coroutines.
type simStore struct {
	o       *simObjects
	srv     *simProcess
	timeout time.Duration // after which the caller gives up; 0: never
}

var errDead = errors.New("the server is gone")

func (s *simStore) String() string { return "sim://" + s.o.name }

func (s *simStore) fail(op, key string, e object.Error) error {
	e.Op, e.Key, e.Store = op, key, s.String()
	if e.Cause == nil && e.Kind == nil {
		e.Kind = object.ErrUnavailable
	}
	return &e
}

// call sends a request to the bucket and waits for the answer. What arrives there is done, whatever becomes of the server meanwhile.
func (s *simStore) call(op, key string, write bool, apply func() error) error {
	w, srv := s.o.w, s.srv
	if srv.dead {
		return errDead
	}
	f := srv.faults()
	there, back := w.ms(1, 8), w.ms(1, 8)
	if w.chance(f.slow) {
		there += w.ms(100, 3000)
	}
	fate := w.rng.IntN(1000)
	planned := simRandom
	if w.plot != nil && !w.calm {
		planned = w.plot(srv, op, key)
	}
	var err error
	answered := false
	co := w.cur
	arrive := func(d time.Duration, answer func(error)) {
		if key != leaderKey {
			s.o.moving++
		}
		w.after(d, nil, func() {
			if key != leaderKey {
				s.o.moving--
			}
			w.trace("arrives", op, key, uint64(srv.slot))
			answer(apply())
		})
	}
	reply := func(d time.Duration, e error) {
		w.after(d, srv, func() {
			if !answered {
				answered, err = true, e
				w.resume(co)
			}
		})
	}
	conditional := op == "create" || op == "replace"
	switch {
	case planned == simDies:
		w.after(there, srv, func() { srv.kill(true) })
	case planned == simDiesAfter:
		arrive(there, func(error) { srv.kill(true) })
	case planned == simFreezes: // with its request on the way for long
		arrive(20*time.Second, func(e error) { reply(back, e) })
		srv.freeze(15 * time.Second)
	case planned == simLost && write:
		arrive(there, func(error) {})
		reply(there+back, s.fail(op, key, object.Error{Ambiguous: true, Retryable: true}))
	case planned == simLate && write:
		arrive(there+time.Second, func(error) {})
		reply(there+back, s.fail(op, key, object.Error{Ambiguous: true, Retryable: true}))
	case fate < f.refused:
		w.counts.faults++
		throttled := w.chance(500)
		reply(there+back, s.fail(op, key, object.Error{Retryable: true, Throttled: throttled}))
	case write && fate < f.refused+f.lost: // applied or not, the answer is lost
		w.counts.faults++
		switch {
		case w.chance(500):
			arrive(there, func(error) {})
		case w.chance(f.late):
			arrive(there+w.ms(50, 6000), func(error) {})
		}
		reply(there+back, s.fail(op, key, object.Error{Ambiguous: true, Retryable: true}))
	case conditional && fate < f.refused+f.lost+f.conflict:
		w.counts.faults++
		reply(there+back, s.fail(op, key, object.Error{Kind: object.ErrConflict}))
	default:
		arrive(there, func(e error) { reply(back, e) })
		if s.timeout > 0 {
			reply(s.timeout, s.fail(op, key, object.Error{Ambiguous: write, Retryable: true}))
		}
	}
	w.park()
	if srv.dead {
		return errDead
	}
	w.trace("answered", op, key, uint64(srv.slot))
	return err
}

func (s *simStore) notFound(op, key string) error {
	return s.fail(op, key, object.Error{Kind: object.ErrNotFound})
}

func (s *simStore) Get(_ context.Context, key string) (data []byte, info object.Info, err error) {
	err = s.call("get", key, false, func() error {
		o := s.o.keys[key]
		if o == nil {
			return s.notFound("get", key)
		}
		data, info = slices.Clone(o.data), s.o.info(key)
		return nil
	})
	if err != nil {
		return nil, object.Info{}, err
	}
	return data, info, nil
}

func (s *simStore) GetRange(_ context.Context, key string, off, n int64) (data []byte, err error) {
	err = s.call("get", key, false, func() error {
		o := s.o.keys[key]
		if o == nil {
			return s.notFound("get", key)
		}
		off = min(off, o.size)
		data = make([]byte, min(n, o.size-off))
		copy(data, o.data[min(off, int64(len(o.data))):]) // the rest of a large file is zeros
		return nil
	})
	return data, err
}

func (s *simStore) Put(_ context.Context, key string, data []byte) (info object.Info, err error) {
	data = slices.Clone(data)
	err = s.call("put", key, true, func() error {
		info = s.o.put(key, data, int64(len(data)))
		return nil
	})
	return info, err
}

// PutFile stores a file of the server's simulated disk, in parts.
func (s *simStore) PutFile(_ context.Context, key, path string) (info object.Info, err error) {
	f := s.srv.disk[path]
	if real, err := os.ReadFile(path); f == nil && err == nil { // of a copy
		f = &simObject{data: bytes.TrimRight(real, "\x00"), size: int64(len(real))}
	}
	if f == nil {
		if !s.srv.dead && !s.srv.mayLack(path) {
			s.o.w.failf("file %s went while it was needed for a checkpoint", path)
		}
		return object.Info{}, s.fail("put", key, object.Error{Cause: errors.New("no such file")})
	}
	if s.srv.dead {
		return object.Info{}, errDead
	}
	s.o.uploads[key] = true
	err = s.call("put", key, true, func() error {
		info = s.o.put(key, f.data, f.size)
		return nil
	})
	return info, err
}

func (s *simStore) PutIfAbsent(_ context.Context, key string, data []byte) (info object.Info, err error) {
	data = slices.Clone(data)
	err = s.call("create", key, true, func() error {
		if s.o.keys[key] != nil {
			return s.fail("create", key, object.Error{Kind: object.ErrPrecondition})
		}
		info = s.o.put(key, data, int64(len(data)))
		return nil
	})
	return info, err
}

func (s *simStore) PutIfMatch(_ context.Context, key, etag string, data []byte) (info object.Info, err error) {
	data = slices.Clone(data)
	err = s.call("replace", key, true, func() error {
		if o := s.o.keys[key]; o == nil || o.etag != etag {
			return s.fail("replace", key, object.Error{Kind: object.ErrPrecondition})
		}
		info = s.o.put(key, data, int64(len(data)))
		return nil
	})
	return info, err
}

func (s *simStore) Head(_ context.Context, key string) (info object.Info, err error) {
	err = s.call("head", key, false, func() error {
		if s.o.keys[key] == nil {
			return s.notFound("head", key)
		}
		info = s.o.info(key)
		return nil
	})
	return info, err
}

func (s *simStore) List(_ context.Context, prefix string, fn func(object.Info) error) error {
	var infos []object.Info
	if err := s.call("list", prefix, false, func() error {
		for _, key := range slices.Sorted(maps.Keys(s.o.keys)) {
			if strings.HasPrefix(key, prefix) {
				infos = append(infos, s.o.info(key))
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, info := range infos {
		if err := fn(info); err != nil {
			return err
		}
	}
	return nil
}

// Delete may be applied to some of the keys only.
func (s *simStore) Delete(_ context.Context, keys ...string) error {
	keys = slices.Clone(keys)
	n := len(keys)
	var err error
	if s.o.w.chance(s.srv.faults().lost) && n > 1 {
		n = s.o.w.rng.IntN(n)
		err = s.fail("delete", keys[n], object.Error{Ambiguous: true, Retryable: true})
	}
	return cmpErr(s.call("delete", keys[0], true, func() error {
		for _, key := range keys[:n] {
			s.o.delete(key)
		}
		return nil
	}), err)
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *simStore) AbortUploads(_ context.Context, prefix string, dead func(string) bool) (n int, err error) {
	err = s.call("abort uploads", prefix, true, func() error {
		for key := range s.o.uploads {
			if strings.HasPrefix(key, prefix) && dead(key) {
				delete(s.o.uploads, key)
				n++
			}
		}
		return nil
	})
	return n, err
}

// headWritten checks what a new HEAD says: its number, its term, and all that it lists.
func (w *simWorld) headWritten(old *simObject, data []byte) {
	h := &head{}
	if err := openDoc("head", headFormat, "HEAD", data, h); err != nil {
		w.failf("I1: %v", err)
	}
	w.trace("HEAD", h.Holder, h.Nonce, h.Seq)
	before := &head{}
	if old != nil {
		before = w.head
	}
	if h.Seq != before.Seq+1 {
		w.failf("I2: HEAD %d follows %d", h.Seq, before.Seq)
	}
	switch {
	case h.Term == before.Term && h.Claim != before.Claim, h.Term < before.Term, h.Term > before.Term+1:
		w.failf("I2: HEAD %d has term %d by %s after term %d by %s", h.Seq, h.Term, h.Claim, before.Term, before.Claim)
	case h.Term > before.Term:
		w.counts.claims++
	}
	if h.IDsReservedTo < before.IDsReservedTo || h.LastCompleted < before.LastCompleted || h.LastCompleted > h.IDsReservedTo {
		w.failf("I5: ids reserved to %d, completed %d after %d, %d", h.IDsReservedTo, h.LastCompleted, before.IDsReservedTo, before.LastCompleted)
	}
	if n, o := h.newest(), before.newest(); n != nil && (o == nil || n.Object != o.Object) {
		w.counts.commits++
	}
	w.head = h
	needed := map[string]bool{}
	manifests := map[string]*Manifest{}
	for _, at := range h.all() {
		m := w.manifests[at.Object]
		if m == nil {
			m = w.loadManifest(at)
		}
		manifests[at.Object] = m
		for key := range m.objects() {
			needed[key] = true
			if w.bucket.keys[key] == nil {
				w.failf("I1: HEAD %d lists checkpoint %d, which needs %s", h.Seq, at.ID, key)
			}
		}
	}
	if n, o := h.newest(), before.newest(); n != nil && o != nil && n.Object != o.Object {
		w.checkCatalog(w.manifests[o.Object], manifests[n.Object])
	}
	w.needed, w.manifests = needed, manifests
	if n := h.newest(); n != nil {
		if w.loud {
			m := manifests[n.Object]
			for _, id := range sortedJobs(m) {
				w.trace("", fmt.Sprintf("  job %d at %d, changed %d, reads %v, holds %d", id, m.Jobs[id].Checkpoint, m.Jobs[id].Since(), m.Jobs[id].Inputs, len(m.Held[id])), "", 0)
			}
		}
		w.checkCut(manifests[n.Object])
	}
}

// checkCatalog holds a checkpoint against the one before: its catalog is not an older one, and has a state for each job that had one, and each job that has one and that
// its server has not dropped.
func (w *simWorld) checkCatalog(before, m *Manifest) {
	if m.CatalogVersion < before.CatalogVersion {
		w.failf("I4: the catalog of checkpoint %d is version %d after %d", m.ID, m.CatalogVersion, before.CatalogVersion)
	}
	jobs := simCatalog(w.bucket.read(*m.catalogRef))
	for _, id := range jobs {
		if before.Jobs[id] != nil && m.Jobs[id] == nil {
			w.failf("I4: checkpoint %d lacks the state of job %d, which is in its catalog", m.ID, id)
		}
	}
	for _, id := range sortedJobs(m) {
		if slices.ContainsFunc(w.servers[:], func(s *simProcess) bool { return s != nil && s.name == w.head.Holder && slices.Contains(s.jobs, id) }) && !slices.Contains(jobs, id) {
			w.failf("I4: checkpoint %d lacks job %d in its catalog", m.ID, id)
		}
	}
}

// simCatalog lists the jobs in a catalog.
func simCatalog(data []byte) (jobs []uint64) {
	for ; len(data) >= 8; data = data[8:] {
		jobs = append(jobs, binary.BigEndian.Uint64(data))
	}
	return jobs
}

// loadManifest reads a manifest and all its bytes, without the network.
func (w *simWorld) loadManifest(at manifestRef) *Manifest {
	o := w.bucket.keys[at.Object]
	if o == nil {
		w.failf("I1: HEAD lists %s, which does not exist", at.Object)
	}
	if int64(len(o.data)) != at.Size || castagnoli(o.data) != at.CRC {
		w.failf("I1: %s is not what HEAD lists", at.Object)
	}
	doc := &manifestDoc{}
	if err := openDoc("manifest", manifestFormat, at.Object, o.data, doc); err != nil {
		w.failf("I1: %v", err)
	}
	m := manifestOf(doc, at)
	m.refsOf(func(job uint64, name string, r ref) {
		if b := w.bucket.read(r); castagnoli(b) != r.CRC {
			w.failf("I1: %s of job %d in checkpoint %d: %d bytes at %d of %q are not what was written", name, job, m.ID, r.Size, r.Offset, r.Object)
		}
	})
	return m
}

// read returns the bytes of r, as far as the simulation has them.
func (o *simObjects) read(r ref) []byte {
	if r.Object == "" {
		return r.Inline
	}
	b := o.keys[r.Object]
	if b == nil {
		return nil
	}
	return b.data[min(r.Offset, int64(len(b.data))):min(r.Offset+r.Size, int64(len(b.data)))]
}

// reachable are the keys that must be there when nothing is under way.
func (w *simWorld) reachable() map[string]bool {
	keys := map[string]bool{headKey: true}
	if w.bucket.keys[leaderKey] != nil {
		keys[leaderKey] = true
	}
	maps.Copy(keys, w.needed)
	return keys
}
