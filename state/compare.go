package state

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"path/filepath"
)

// Compare calls f for what two snapshots of a job do not have in common of one table, in order of key group and key: was is nil for what only the newer one
// has, is for what only the older one has. The bytes are valid during the call. The files of both have to be local; opts.Dir is a folder for links to them,
// which the caller removes.
func Compare(ctx context.Context, opts Options, table uint32, older, newer *Snapshot, f func(was, is []byte) error) (err error) {
	open := func(snap *Snapshot, sub string) *entryReader {
		if err != nil || snap == nil {
			return &entryReader{}
		}
		o := opts
		o.Dir, o.Backend = filepath.Join(opts.Dir, sub), BackendPebble
		s, openErr := Open(ctx, o, snap)
		if err = openErr; err != nil {
			return &entryReader{}
		}
		r, readErr := s.readEntries(ctx)
		if readErr != nil {
			err = errors.Join(readErr, s.Close())
			return &entryReader{}
		}
		r.store = s
		return r
	}
	a := open(older, "older")
	b := open(newer, "newer")
	defer func() { err = errors.Join(err, a.closeAll(), b.closeAll()) }()
	for n := 0; ; n++ {
		if err == nil {
			err = errors.Join(a.toTable(table), b.toTable(table))
		}
		if err != nil || !a.ok && !b.ok {
			return err
		}
		if n%ctxCheckEntries == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		c := 1
		if a.ok {
			if c = -1; b.ok {
				c = bytes.Compare(a.key, b.key)
			}
		}
		was, is := a.val, b.val
		switch {
		case c < 0:
			is = nil
		case c > 0:
			was = nil
		}
		if c != 0 || !bytes.Equal(was, is) {
			if err := f(was, is); err != nil {
				return err
			}
		}
		if c <= 0 {
			err = a.next()
		}
		if c >= 0 && err == nil {
			err = b.next()
		}
	}
}

// toTable moves on to the next entry of the table, if the reader is not at one.
func (r *entryReader) toTable(table uint32) error {
	for r.ok {
		t := binary.BigEndian.Uint32(r.key[groupBytes:])
		if t == table {
			return nil
		}
		if r.it == nil {
			if err := r.next(); err != nil {
				return err
			}
			continue
		}
		group := binary.BigEndian.Uint16(r.key)
		if t > table {
			if group++; group == 0 {
				r.ok = false
				return nil
			}
		}
		r.seek = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(r.seek[:0], group), table)
		if err := r.at(r.it.SeekGE(r.seek)); err != nil {
			return err
		}
	}
	return nil
}

func (r *entryReader) closeAll() error {
	if r.store == nil {
		return nil
	}
	return errors.Join(r.close(), r.store.Close())
}
