package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/streamdb/streamdb/storage/object"
)

const (
	deleteBatch    = 500 // keys that one call deletes
	deleteAttempts = 4   // of one batch
)

// discard finds out what the HEAD just written does not need any more: what manifests that left it referenced, and what attempts that
// failed have written. Keys are deleted later, by collect. The lock is held.
func (p *publisher) discard() {
	keep := map[string]bool{}
	listed := map[string]bool{}
	for _, r := range p.head.all() {
		listed[r.Object] = true
		for key := range p.objects[r.Object] {
			keep[key] = true
		}
	}
	p.pinMu.Lock()
	for m := range p.pinned {
		for key := range m.objects() {
			keep[key] = true
		}
	}
	p.pinMu.Unlock()
	dead := map[string]bool{}
	for name, keys := range p.objects {
		if !listed[name] {
			for key := range keys {
				dead[key] = !keep[key]
			}
			delete(p.objects, name)
		}
	}
	for key, seq := range p.attempted {
		if seq <= p.head.Seq {
			dead[key] = !keep[key]
			delete(p.attempted, key)
		}
	}
	p.garbageMu.Lock()
	defer p.garbageMu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(dead)) {
		if dead[key] && len(p.garbage) < garbageKeys {
			p.garbage = append(p.garbage, key)
		}
	}
}

// pin keeps what m needs, which was published last, until the returned func is called: that removes what HEAD does not need any more.
func (p *publisher) pin(m *Manifest) func(context.Context) error {
	p.pinMu.Lock()
	defer p.pinMu.Unlock()
	if p.pinned == nil {
		p.pinned = map[*Manifest]int{}
	}
	p.pinned[m]++
	return func(ctx context.Context) error {
		p.pinMu.Lock()
		if p.pinned[m]--; p.pinned[m] == 0 {
			delete(p.pinned, m)
		}
		p.pinMu.Unlock()
		if err := p.acquire(ctx); err != nil {
			return err
		}
		defer p.release()
		if _, listed := p.objects[m.Object]; !listed {
			// It left HEAD meanwhile: it is looked at again as if it did now.
			p.objects[m.Object] = m.objects()
			p.discard()
		}
		return nil
	}
}

// collect deletes what discard has found, one batch after the other, until nothing is left, and the parts of files that were given up; one caller at a time does. A batch
// that cannot be deleted is tried again, and in the end left to the next sweep.
//
// It is safe without looking at HEAD again: these keys were unreferenced in a HEAD that this server wrote, names are never reused, and a
// server that has taken over meanwhile started from that HEAD or a later one.
func (p *publisher) collect(ctx context.Context) error {
	if _, err := receive(ctx, p.cleaning); err != nil {
		return err
	}
	defer func() { p.cleaning <- struct{}{} }()
	failed := p.abortUnfinished(ctx)
	for {
		p.garbageMu.Lock()
		keys := slices.Clone(p.garbage[:min(len(p.garbage), deleteBatch)])
		p.garbageMu.Unlock()
		if len(keys) == 0 {
			return failed
		}
		if err := p.deleteGarbage(ctx, keys); err != nil {
			failed = fmt.Errorf("remove old checkpoints: %w", err)
			if ctx.Err() != nil {
				return failed
			}
		}
		p.garbageMu.Lock()
		p.garbage = p.garbage[len(keys):]
		p.garbageMu.Unlock()
	}
}

// abortUnfinished ends what uploads that were given up may have left in the store.
func (p *publisher) abortUnfinished(ctx context.Context) error {
	if err := p.acquire(ctx); err != nil {
		return err
	}
	unfinished, h := p.unfinished, p.head
	p.unfinished = false
	p.release()
	if !unfinished {
		return nil
	}
	return abortUploads(ctx, p.store, h)
}

// deleteGarbage deletes keys, with pauses when that fails.
func (p *publisher) deleteGarbage(ctx context.Context, keys []string) error {
	for attempt := 1; ; attempt++ {
		err := p.hit("checkpoint/gc")
		if err == nil {
			err = cmp.Or(p.store.Delete(ctx, keys...), p.hit("checkpoint/deleted"))
		}
		if err == nil || attempt == deleteAttempts {
			return err
		}
		if ctxErr := pause(ctx, attempt); ctxErr != nil {
			return errors.Join(err, ctxErr)
		}
	}
}

// sweep removes what earlier servers left behind when they died between upload and commit, and what could not be deleted.
func (p *publisher) sweep(ctx context.Context) error {
	if err := p.acquire(ctx); err != nil {
		return err
	}
	h := p.head
	keep := map[string]bool{}
	for _, keys := range p.objects {
		for key := range keys {
			keep[key] = true
		}
	}
	p.pinMu.Lock()
	for m := range p.pinned {
		for key := range m.objects() {
			keep[key] = true
		}
	}
	p.pinMu.Unlock()
	p.release()
	return p.sweepList(ctx, h, keep)
}

func (p *publisher) sweepList(ctx context.Context, h *head, keep map[string]bool) error {
	orphans, err := unreferenced(ctx, p.store, h, keep)
	if err != nil {
		return err
	}
	now, _, err := readHead(ctx, p.store)
	if err != nil {
		return err
	}
	if now == nil || now.Term != h.Term {
		return nil // another server's business now
	}
	if err := p.hit("checkpoint/swept-list"); err != nil {
		return err
	}
	for chunk := range slices.Chunk(orphans, deleteBatch) {
		if err := p.store.Delete(ctx, chunk...); err != nil {
			return err
		}
	}
	return abortUploads(ctx, p.store, h)
}

// abortUploads ends the uploads in parts that earlier servers did not complete: a bucket keeps and charges their parts, and lists them nowhere else.
func abortUploads(ctx context.Context, store object.Store, h *head) error {
	_, err := store.AbortUploads(ctx, dataPrefix, func(key string) bool {
		seq, ok := tagOf(key)
		return ok && seq <= h.Seq
	})
	if err != nil {
		return fmt.Errorf("end unfinished uploads: %w", err)
	}
	return nil
}

// unreferenced lists the objects that no checkpoint of h needs and none in the making can: those written for h or an earlier HEAD and
// not in keep.
func unreferenced(ctx context.Context, store object.Store, h *head, keep map[string]bool) ([]string, error) {
	var keys []string
	for _, prefix := range []string{manifestPrefix, packPrefix, dataPrefix} {
		err := store.List(ctx, prefix, func(info object.Info) error {
			if seq, ok := tagOf(info.Key); ok && seq <= h.Seq && !keep[info.Key] {
				keys = append(keys, info.Key)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("look for unreferenced objects: %w", err)
		}
	}
	return keys, nil
}

// GC removes, or with dryRun only lists, the objects that no retained checkpoint needs. A server may be running on the store: what it writes for the next HEAD is left alone. What it
// has pinned of checkpoints that left HEAD is not: who reads that gets an error.
func GC(ctx context.Context, store object.Store, dryRun bool, w io.Writer) error {
	h, _, err := readHead(ctx, store)
	if err != nil {
		return err
	}
	if h == nil {
		_, err := fmt.Fprintln(w, "no checkpoints")
		return err
	}
	keep := map[string]bool{}
	for _, r := range h.all() {
		m, err := loadManifest(ctx, store, r)
		if err != nil {
			return err
		}
		for key := range m.objects() {
			keep[key] = true
		}
	}
	keys, err := unreferenced(ctx, store, h, keep)
	if err != nil {
		return err
	}
	done := "removed"
	if dryRun {
		done = "would remove"
	}
	for _, key := range keys {
		if _, err := fmt.Fprintln(w, done, key); err != nil {
			return err
		}
	}
	if !dryRun {
		for chunk := range slices.Chunk(keys, deleteBatch) {
			if err := store.Delete(ctx, chunk...); err != nil {
				return err
			}
		}
	}
	_, err = fmt.Fprintf(w, "%s %d objects; %d are in use\n", done, len(keys), len(keep))
	return err
}
