package checkpoint

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/object"
)

const (
	uploadParallelism = 8
	packFileBytes     = 256 << 10 // files up to this size go into packs
	packBytes         = 64 << 20  // size at which another pack is begun
	inlineBytes       = 128       // blobs up to this size are always inline in the manifest
	inlineTotalBytes  = 256 << 10 // inline bytes that a manifest carries at most, or twice the threshold if that is more
	createAttempts    = 2         // attempts to write a manifest, beside those of the store
	garbageKeys       = 100_000   // keys remembered for deletion; what is beyond is left to the next start's sweep
)

// publisher writes checkpoints. Its lock serializes everything that moves HEAD; it is held across calls of the store, so that waiting for
// it ends with the waiter's context.
type publisher struct {
	store      object.Store
	holder     string
	process    string
	elected    bool
	claimID    string                   // of this server's claim
	line       atomic.Pointer[[]string] // of the claims, as in HEAD; nil before the claim
	log        zerolog.Logger
	failpoints *failpoint.Set
	scratch    string // folder for temporary files
	cur        atomic.Pointer[Manifest]

	lock       chan struct{} // holds one token while free; guards what follows
	head       *head         // as last written; nil before the claim
	etag       string
	unresolved string                     // nonce of a write of HEAD whose outcome is not known
	objects    map[string]map[string]bool // manifest in HEAD → all keys it needs
	uploaded   map[fileKey]ref            // files uploaded by an attempt that failed, good for the next with the same Seq
	attempted  map[string]uint64          // keys written for a Seq and not yet known to be referenced
	attempts   int                        // makes names unique
	unfinished bool                       // the store may hold parts of files that are not stored

	packs, packedFiles, inlineFiles atomic.Int64
	fetches, fetchTime              atomic.Int64 // ns

	garbageMu sync.Mutex
	garbage   []string
	cleaning  chan struct{} // holds one token unless somebody deletes it

	pinMu  sync.Mutex
	pinned map[*Manifest]int // read by somebody: what they need stays

	goneMu sync.Mutex
	gone   map[uint64]bool // jobs whose local files may go at any time
}

type fileKey struct {
	job  uint64
	name string
}

// published is the outcome of a publication.
type published struct {
	manifest *Manifest
	uploaded map[uint64]int64 // new bytes per job
	silent   bool             // the notification is lost, as in a crash
}

// Files counts what became of state since the start.
type Files struct {
	Packs, Packed, Inline int64 // objects that hold small files, the files in them, files in manifests
	Garbage               int   // objects that are still to be deleted
	// Fetches is how many states were made local for a restore, FetchTime how long that took in all, of jobs that are restored at the same time too.
	Fetches   int64
	FetchTime time.Duration
}

// Files returns the counts.
func (c *Coordinator) Files() Files {
	p := c.pub
	p.garbageMu.Lock()
	defer p.garbageMu.Unlock()
	return Files{Packs: p.packs.Load(), Packed: p.packedFiles.Load(), Inline: p.inlineFiles.Load(), Garbage: len(p.garbage), Fetches: p.fetches.Load(), FetchTime: time.Duration(p.fetchTime.Load())}
}

func newPublisher(store object.Store, holder string, log zerolog.Logger, failpoints *failpoint.Set) *publisher {
	p := &publisher{
		store: store, holder: holder, claimID: newNonce(), cleaning: make(chan struct{}, 1), log: log, failpoints: failpoints,
		lock: make(chan struct{}, 1), uploaded: map[fileKey]ref{}, attempted: map[string]uint64{}, gone: map[uint64]bool{},
	}
	p.release()
	p.cleaning <- struct{}{}
	return p
}

func (p *publisher) acquire(ctx context.Context) error {
	_, err := receive(ctx, p.lock)
	return err
}

func (p *publisher) release() { p.lock <- struct{}{} }

func (p *publisher) hit(name string) error { return p.failpoints.Hit(name) }

func (p *publisher) latest() *Manifest { return p.cur.Load() }

// reserve makes sure that id may be given out: that no server after a crash gives it out again.
func (p *publisher) reserve(ctx context.Context, id uint64) error {
	if err := p.acquire(ctx); err != nil {
		return err
	}
	defer p.release()
	if id <= p.head.IDsReservedTo {
		return nil
	}
	next := *p.head
	next.Seq++
	next.IDsReservedTo = id + idBlock
	return p.writeHead(ctx, &next)
}

// publish makes b durable: new files, small things in a pack, the manifest, and then HEAD. Until then it ends when b's write is given up: what was uploaded is used by the
// next one.
func (p *publisher) publish(ctx context.Context, b *batch) (res *published, err error) {
	w := cmp.Or(b.write, &write{})
	until := w.begin(ctx)
	defer func() { err = w.end(err) }()
	if err := p.acquire(until); err != nil {
		return nil, err
	}
	defer p.release()
	seq := p.head.Seq + 1
	maps.DeleteFunc(p.uploaded, func(_ fileKey, r ref) bool {
		tag, _ := tagOf(r.Object)
		return tag != seq
	})
	if err := p.hit("checkpoint/before-upload"); err != nil {
		return nil, err
	}
	u, err := p.upload(until, b, seq)
	if err != nil {
		return nil, err
	}
	if err := p.hit("checkpoint/after-upload"); err != nil {
		return nil, err
	}
	at, err := p.writeManifest(until, u.manifest)
	if err != nil {
		return nil, err
	}
	if err := p.hit("checkpoint/after-manifest"); err != nil {
		return nil, err
	}
	if err := w.commit(); err != nil {
		return nil, err
	}
	next := *p.head
	next.Seq = seq
	next.LastCompleted = max(next.LastCompleted, u.manifest.ID)
	next.Retained = append(slices.Clone(next.Retained), at)
	if n := len(next.Retained) - max(1, b.retained); n > 0 {
		next.Retained = next.Retained[n:]
	}
	if err := p.writeHead(ctx, &next); err != nil {
		return nil, err
	}
	p.cur.Store(u.manifest)
	p.objects[at.Object] = u.manifest.objects()
	p.discard()
	p.goneMu.Lock()
	for _, job := range b.drop {
		delete(p.gone, job)
	}
	p.goneMu.Unlock()
	res = &published{manifest: u.manifest, uploaded: u.bytes}
	res.silent = p.hit("checkpoint/after-head") != nil // durable all the same
	return res, nil
}

// dropping tells that the local files of a job may go at any time.
func (p *publisher) dropping(job uint64) {
	p.goneMu.Lock()
	defer p.goneMu.Unlock()
	p.gone[job] = true
}

// upload stores what b needs, without the states of jobs that are dropped meanwhile when it fails with them.
func (p *publisher) upload(ctx context.Context, b *batch, seq uint64) (*upload, error) {
	rest := *b
	for {
		u := &upload{p: p, seq: seq, batch: &rest, manifest: p.merge(&rest, seq, hostOf(ctx).now()), bytes: map[uint64]int64{}}
		err := u.run(ctx)
		if err == nil {
			return u, nil
		}
		n := len(rest.changed)
		p.goneMu.Lock()
		rest.changed = slices.DeleteFunc(slices.Clone(rest.changed), func(s *JobState) bool { return p.gone[s.Job] })
		p.goneMu.Unlock()
		if len(rest.changed) == n || ctx.Err() != nil {
			return nil, err
		}
	}
}

// merge makes the next manifest: the newest one with b's changes. References of changed jobs are still to be filled in.
func (p *publisher) merge(b *batch, seq uint64, now time.Time) *Manifest {
	m := &Manifest{ID: b.id, Seq: seq, Epoch: b.epoch, Created: now.UTC(), Jobs: map[uint64]*JobState{}}
	if cur := p.latest(); cur != nil {
		m.ID, m.Epoch = max(m.ID, cur.ID), max(m.Epoch, cur.Epoch)
		m.CatalogVersion, m.Catalog, m.catalogRef = cur.CatalogVersion, cur.Catalog, cur.catalogRef
		maps.Copy(m.Jobs, cur.Jobs)
	}
	for _, s := range b.unchanged {
		if old := m.Jobs[s.Job]; old != nil && old.Checkpoint < s.Checkpoint {
			advanced := *old
			advanced.Checkpoint, advanced.Epoch, advanced.Name = s.Checkpoint, s.Epoch, s.Name
			m.Jobs[s.Job] = &advanced
			m.ID, m.Epoch = max(m.ID, s.Checkpoint), max(m.Epoch, s.Epoch)
		}
	}
	before := &Manifest{Jobs: maps.Clone(m.Jobs), CatalogVersion: m.CatalogVersion, Catalog: m.Catalog, catalogRef: m.catalogRef}
	if cur := p.latest(); cur != nil {
		before.Held = cur.Held
	}
	for _, s := range b.changed {
		c := *s
		c.Subtasks = nil
		c.refs = &stateRefs{files: map[string]ref{}, memory: map[string]bool{}, positions: map[string]ref{}, operators: map[string]ref{}, since: s.Checkpoint}
		if s.State != nil {
			st := *s.State
			st.Base, st.Deltas = withoutPaths(st.Base), withoutPaths(st.Deltas)
			c.State = &st
		}
		m.Jobs[s.Job] = &c
	}
	for _, job := range b.drop {
		delete(m.Jobs, job)
	}
	m.hold(before, b.late)
	return m
}

// withoutPaths copies handles for keeping: their local files go away.
func withoutPaths(hs []state.Handle) []state.Handle {
	out := slices.Clone(hs)
	for i := range out {
		out[i].Path = ""
	}
	return out
}

// upload is one attempt to store what a batch needs.
type upload struct {
	p        *publisher
	seq      uint64
	batch    *batch
	manifest *Manifest
	bytes    map[uint64]int64
	small    []smallBlob
	large    []largeFile
}

type smallBlob struct {
	job  uint64
	data []byte
	set  func(ref)
}

type largeFile struct {
	job    uint64
	handle state.Handle
	key    string
	stored bool
}

func (u *upload) run(ctx context.Context) error {
	for _, s := range u.batch.changed {
		if err := u.plan(s); err != nil {
			return err
		}
	}
	if u.batch.catalog != nil {
		u.manifest.CatalogVersion, u.manifest.Catalog = u.batch.catalogVersion, u.batch.catalog
		u.addSmall(0, u.batch.catalog, func(r ref) { u.manifest.catalogRef = &r })
	}
	group, gctx := newCalls(ctx, uploadParallelism)
	for i := range u.large {
		f := &u.large[i]
		u.p.attempted[f.key] = u.seq
		group.Go(func() error {
			info, err := u.p.store.PutFile(gctx, f.key, f.handle.Path)
			if err == nil && info.Size != f.handle.Size {
				err = corrupt(f.handle.Path, "it has %d bytes instead of %d", info.Size, f.handle.Size)
			}
			f.stored = err == nil
			return cmp.Or(err, u.p.hit("checkpoint/uploaded"))
		})
	}
	packs := u.assignSmall()
	for _, key := range slices.Sorted(maps.Keys(packs)) {
		data := packs[key]
		u.p.attempted[key] = u.seq
		group.Go(func() error {
			_, err := u.p.store.Put(gctx, key, data)
			return cmp.Or(err, u.p.hit("checkpoint/uploaded"))
		})
	}
	err := group.Wait()
	for _, f := range u.large {
		if f.stored {
			u.p.uploaded[fileKey{f.job, f.handle.Name}] = ref{Object: f.key, Size: f.handle.Size, CRC: f.handle.CRC}
		} else {
			u.p.unfinished = true
		}
	}
	if err != nil {
		return fmt.Errorf("upload checkpoint: %w", err)
	}
	return nil
}

// plan sorts out what of s is stored already, and where the rest goes.
func (u *upload) plan(s *JobState) error {
	refs := u.manifest.Jobs[s.Job].refs
	old := &JobState{refs: &stateRefs{}}
	if cur := u.p.latest(); cur != nil && cur.Jobs[s.Job] != nil && !s.full {
		old = cur.Jobs[s.Job]
	}
	if s.State != nil {
		for _, h := range slices.Concat(s.State.Base, s.State.Deltas) {
			if err := u.planFile(s.Job, h, old.refs, refs); err != nil {
				return err
			}
		}
	}
	for _, h := range s.Inflight {
		if err := u.planFile(s.Job, h, old.refs, refs); err != nil {
			return err
		}
	}
	u.planBlobs(s.Job, s.Positions, old.Positions, old.refs.positions, refs.positions)
	u.planBlobs(s.Job, s.Operators, old.Operators, old.refs.operators, refs.operators)
	return nil
}

func (u *upload) planFile(job uint64, h state.Handle, old, refs *stateRefs) error {
	if _, twice := refs.files[h.Name]; twice {
		return nil
	}
	if h.Path == "" {
		refs.memory[h.Name] = true
	}
	known, ok := old.files[h.Name]
	if !ok {
		known, ok = u.p.uploaded[fileKey{job, h.Name}]
	}
	if ok {
		if known.Size != h.Size || known.CRC != h.CRC {
			return pgerr.Newf(pgerr.InternalError, "state file %q of job %d has other contents than one stored under that name", h.Name, job)
		}
		refs.files[h.Name] = known
		return nil
	}
	data := h.Inline
	if h.Path != "" {
		if h.Size > packFileBytes {
			key := fmt.Sprintf("%s%016d-%s/%d/%s", dataPrefix, u.seq, u.p.head.Nonce, job, h.Name)
			u.large = append(u.large, largeFile{job: job, handle: h, key: key})
			refs.files[h.Name] = ref{Object: key, Size: h.Size, CRC: h.CRC}
			u.bytes[job] += h.Size
			return nil
		}
		var err error
		if data, err = os.ReadFile(h.Path); err != nil {
			return fmt.Errorf("read state file: %w", err)
		}
	}
	if err := checkHandle(h, data); err != nil {
		return err
	}
	refs.files[h.Name] = ref{} // until it has its place
	u.addSmall(job, data, func(r ref) { refs.files[h.Name] = r })
	return nil
}

func (u *upload) planBlobs(job uint64, blobs, old map[string][]byte, oldRefs, refs map[string]ref) {
	for _, name := range slices.Sorted(maps.Keys(blobs)) {
		data := blobs[name]
		if r, ok := oldRefs[name]; ok && bytes.Equal(old[name], data) {
			refs[name] = r
			continue
		}
		u.addSmall(job, data, func(r ref) { refs[name] = r })
	}
}

func (u *upload) addSmall(job uint64, data []byte, set func(ref)) {
	u.small = append(u.small, smallBlob{job, data, set})
	u.bytes[job] += int64(len(data))
}

// assignSmall decides which small blobs go inline into the manifest and packs the others. It returns the packs by key.
func (u *upload) assignSmall() map[string][]byte {
	carried, fresh := int64(0), 0
	u.manifest.refsOf(func(_ uint64, _ string, r ref) { carried += int64(len(r.Inline)) })
	for _, b := range u.small {
		fresh += len(b.data)
	}
	allInline := fresh <= u.batch.inline && carried+int64(fresh) <= max(inlineTotalBytes, 2*int64(u.batch.inline))
	packs := map[string][]byte{}
	inline, _ := placeSmall(u.small, allInline, func(pack []byte) (string, error) {
		u.p.attempts++
		key := fmt.Sprintf("%s%016d-%s-%d.pack", packPrefix, u.seq, u.p.head.Nonce, u.p.attempts)
		packs[key] = pack
		return key, nil
	})
	u.p.packs.Add(int64(len(packs)))
	u.p.inlineFiles.Add(int64(inline))
	u.p.packedFiles.Add(int64(len(u.small) - inline))
	return packs
}

// placeSmall gives small blobs their places: all or the smallest of them inline in the manifest, the others in packs, whose keys put returns. It returns how many are
// inline; an error is put's.
func placeSmall(small []smallBlob, allInline bool, put func(pack []byte) (key string, err error)) (inline int, err error) {
	var group []smallBlob
	size := 0
	flush := func() error {
		if len(group) == 0 {
			return nil
		}
		blobs := make([][]byte, len(group))
		for i, b := range group {
			blobs[i] = b.data
		}
		data, offsets := sealPack(blobs)
		key, err := put(data)
		if err != nil {
			return err
		}
		for i, b := range group {
			b.set(ref{Object: key, Offset: offsets[i], Size: int64(len(b.data)), CRC: castagnoli(b.data)})
		}
		group, size = nil, 0
		return nil
	}
	for _, b := range small {
		if allInline || len(b.data) <= inlineBytes {
			b.set(ref{Inline: bytes.Clone(b.data), Size: int64(len(b.data)), CRC: castagnoli(b.data)})
			inline++
			continue
		}
		group = append(group, b)
		if size += len(b.data); size >= packBytes {
			if err := flush(); err != nil {
				return inline, err
			}
		}
	}
	return inline, flush()
}

// checkHandle reports bytes that are not those that a state has under the handle.
func checkHandle(h state.Handle, data []byte) error {
	if int64(len(data)) == h.Size && castagnoli(data) == h.CRC {
		return nil
	}
	return corrupt("state file "+h.Name, "it has %d bytes with checksum %08x instead of %d with %08x", len(data), castagnoli(data), h.Size, h.CRC)
}

// writeManifest stores m under a new name and returns its reference.
func (p *publisher) writeManifest(ctx context.Context, m *Manifest) (manifestRef, error) {
	p.attempts++
	m.Object = fmt.Sprintf("%s%016d-%d-%s-%d.manifest", manifestPrefix, m.Seq, m.ID, p.head.Nonce, p.attempts)
	doc := docOf(m, p.head.Term)
	data, err := sealDoc("manifest", doc.Format, doc)
	if err != nil {
		return manifestRef{}, err
	}
	m.Size = int64(len(data))
	p.attempted[m.Object] = m.Seq
	for attempt := 1; ; attempt++ {
		_, err = p.store.PutIfAbsent(ctx, m.Object, data)
		if errors.Is(err, object.ErrPrecondition) {
			// The name is new, so this can only be an earlier attempt that arrived.
			if got, _, getErr := p.store.Get(ctx, m.Object); getErr == nil && bytes.Equal(got, data) {
				err = nil
			}
		}
		if err == nil {
			return manifestRef{ID: m.ID, Seq: m.Seq, Object: m.Object, Size: m.Size, CRC: castagnoli(data)}, nil
		}
		if !object.IsRetryable(err) || attempt == createAttempts {
			return manifestRef{}, fmt.Errorf("write manifest: %w", err)
		}
		if ctxErr := pause(ctx, attempt); ctxErr != nil {
			return manifestRef{}, errors.Join(err, ctxErr)
		}
	}
}
