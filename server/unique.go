package server

import (
	"slices"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/exec"
)

// uniqueIndex is a unique index as one transaction sees it: that of the version it reads, with its own writes over it.
type uniqueIndex struct {
	enc *exec.IndexEncoder
	// own maps keys to the rows that the transaction wrote and that have them; several only in the midst of a statement.
	own map[string][]string
}

// keep has the writes of a table keep track of its unique indexes. Indexes made since are added, with what was written before.
func (w *tableWrites) keep(ss *session, table *catalog.Object) error {
	snap := ss.snapshot()
	indexes := snap.IndexesOf(table.ID)
	w.unique = slices.DeleteFunc(w.unique, func(u *uniqueIndex) bool { // dropped since, or made after a savepoint that was returned to
		return !slices.ContainsFunc(indexes, func(x *catalog.Object) bool { return x.ID == u.enc.Spec.ID })
	})
	for _, x := range indexes {
		if !x.Index.Unique || slices.ContainsFunc(w.unique, func(u *uniqueIndex) bool { return u.enc.Spec.ID == x.ID }) {
			continue
		}
		spec, err := ss.srv.indexSpec(snap, x, table)
		if err != nil {
			return err
		}
		enc, err := exec.NewIndexEncoder(spec, w.rel, ss.srv.registry)
		if err != nil {
			return err
		}
		w.unique = append(w.unique, &uniqueIndex{enc: enc})
	}
	for _, u := range w.unique {
		if u.own != nil {
			continue
		}
		u.own = map[string][]string{}
		for i := range w.changes.Len() {
			c := w.changes.At(i)
			if err := u.add(string(c.Key), c.New); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *uniqueIndex) add(pk string, row []byte) error {
	if row == nil {
		return nil
	}
	key, shared, err := u.enc.Entry(row, []byte(pk))
	if err == nil && shared {
		u.own[string(key)] = append(u.own[string(key)], pk)
	}
	return err
}

func (u *uniqueIndex) remove(pk string, row []byte) error {
	if row == nil {
		return nil
	}
	key, shared, err := u.enc.Entry(row, []byte(pk))
	if err != nil || !shared {
		return err
	}
	k := string(key)
	if rest := slices.DeleteFunc(u.own[k], func(s string) bool { return s == pk }); len(rest) > 0 {
		u.own[k] = rest
	} else {
		delete(u.own, k)
	}
	return nil
}

// move makes the row at pk another one.
func (u *uniqueIndex) move(pk string, from, to []byte) error {
	if err := u.remove(pk, from); err != nil {
		return err
	}
	return u.add(pk, to)
}

// taken finds another row that has row's key in u.
func (u *uniqueIndex) taken(w *tableWrites, v *exec.Version, pk, row []byte) (other string, ok bool, err error) {
	key, shared, err := u.enc.Entry(row, pk)
	if err != nil || !shared {
		return "", false, err
	}
	for _, o := range u.own[string(key)] {
		if o != string(pk) {
			return o, true, nil
		}
	}
	if v == nil {
		return "", false, nil
	}
	// A version from before the index does not have it: commit decides then.
	b, ok, _, err := v.IndexGet(u.enc.Spec.ID, key)
	// Of rows that the transaction has changed its own entries count.
	return string(b), ok && w.changes.Find(b) < 0 && string(b) != string(pk), err
}

// checkUnique fails when another row has the key of a row written by the statement.
func (c *changer) checkUnique(current *exec.Version, pk, row []byte) error {
	for _, u := range c.w.unique {
		_, ok, err := u.taken(c.w, current, pk, row)
		if err != nil {
			return err
		}
		if ok {
			return located(u.enc.Duplicate(row, false), c.obj)
		}
	}
	return nil
}
