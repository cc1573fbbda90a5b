package state

import (
	"bytes"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// dbRef is a Pebble DB that stays open while its store, a view or an iterator uses it.
type dbRef struct {
	db     *pebble.DB
	refs   atomic.Int32
	onGone func(error) // called once, after the DB closed
}

func (d *dbRef) release() {
	if d.refs.Add(-1) == 0 {
		err := d.db.Close()
		if d.onGone != nil {
			d.onGone(err)
		}
	}
}

// coldSnap is the Pebble content after one ingestion, shared by all that read it: parts, views and their iterators. A nil coldSnap
// is one of a store without Pebble.
type coldSnap struct {
	db   *dbRef
	snap *pebble.Snapshot
	refs atomic.Int32
}

func newColdSnap(db *dbRef) *coldSnap {
	db.refs.Add(1)
	c := &coldSnap{db: db, snap: db.db.NewSnapshot()}
	c.refs.Store(1)
	return c
}

func (c *coldSnap) retain() *coldSnap {
	if c != nil {
		c.refs.Add(1)
	}
	return c
}

func (c *coldSnap) release() {
	if c == nil || c.refs.Add(-1) != 0 {
		return
	}
	// The error of closing a snapshot is always nil in this version of Pebble; reads report theirs themselves.
	_ = c.snap.Close()
	c.db.release()
}

// newIter opens an iterator without bounds; point says that it serves single keys, mostly absent ones.
func (c *coldSnap) newIter(point bool) (*pebble.Iterator, error) {
	it, err := c.snap.NewIter(&pebble.IterOptions{UseL6Filters: point})
	if err != nil {
		return nil, ioError(err, "read state")
	}
	return it, nil
}

// get is for any goroutine.
func (c *coldSnap) get(kg uint16, table uint32, key []byte) ([]byte, bool, error) {
	var buf [64]byte
	val, closer, err := c.snap.Get(appendDiskKey(buf[:0], kg, table, key))
	if err == pebble.ErrNotFound {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, ioError(err, "read state")
	}
	out := append(make([]byte, 0, len(val)), val...)
	return out, true, closer.Close()
}

// coldReader keeps the Pebble iterators of one part between reads: opening one costs as much as a read.
type coldReader struct {
	point    *pebble.Iterator
	scan     *pebble.Iterator
	scanBusy bool
	key      []byte
}

// get looks key up by its Bloom filters first, on all levels; the value is valid until the next get.
func (r *coldReader) get(c *coldSnap, kg uint16, table uint32, key []byte) ([]byte, bool, error) {
	if r.point == nil {
		it, err := c.newIter(true)
		if err != nil {
			return nil, false, err
		}
		r.point = it
	}
	r.key = appendDiskKey(r.key[:0], kg, table, key)
	if !r.point.SeekPrefixGE(r.key) {
		if err := r.point.Error(); err != nil {
			return nil, false, ioError(err, "read state")
		}
		return nil, false, nil
	}
	if !bytes.Equal(r.point.Key(), r.key) {
		return nil, false, nil
	}
	val, err := r.point.ValueAndErr()
	if err != nil {
		return nil, false, ioError(err, "read state")
	}
	return val, true, nil
}

// scanIter lends the part's scanning iterator.
func (r *coldReader) scanIter(c *coldSnap) (*pebble.Iterator, error) {
	if r.scan == nil {
		it, err := c.newIter(false)
		if err != nil {
			return nil, err
		}
		r.scan = it
	}
	r.scanBusy = true
	return r.scan, nil
}

// close closes the iterators; the next read opens new ones over what is then the part's snapshot.
func (r *coldReader) close() {
	for _, it := range []*pebble.Iterator{r.point, r.scan} {
		if it != nil {
			// Errors of reads were reported by the reads.
			_ = it.Close()
		}
	}
	r.point, r.scan, r.scanBusy = nil, nil, false
}
