package catalog

import (
	"fmt"
	"maps"
	"reflect"
)

// Private is the catalog as one transaction sees and changes it: the state at its beginning plus its own changes, which nobody else sees
// before Catalog.Commit. It belongs to one goroutine. Changes are made by others only as far as they are not schema changes (a view that
// was filled, PAUSE): the caller keeps other schema changes out while a Private exists.
type Private struct {
	c         *Catalog
	base, cur *Snapshot
}

// Begin starts a private state.
func (c *Catalog) Begin() *Private {
	s := c.cur.Load()
	return &Private{c: c, base: s, cur: s}
}

// Snapshot returns the state as changed so far.
func (p *Private) Snapshot() *Snapshot { return p.cur }

// Base returns the state at the beginning.
func (p *Private) Base() *Snapshot { return p.base }

// Update applies f to a copy and makes that the private state.
func (p *Private) Update(f func(*Tx) error) error {
	tx := &Tx{s: p.cur.clone(), c: p.c}
	if err := f(tx); err != nil {
		return err
	}
	p.cur = tx.s
	return nil
}

// Reset goes back to an earlier private state, as Snapshot returned it.
func (p *Private) Reset(s *Snapshot) { p.cur = s }

// Changed reports whether there is anything to commit.
func (p *Private) Changed() bool { return p.cur != p.base }

// Commit makes the private state that of the catalog. Given durable, that is called with the new content instead of persist; its error
// leaves the catalog as it was.
func (c *Catalog) Commit(p *Private, durable func(data []byte, version uint64) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.cur.Load()
	s := p.cur.clone()
	s.Version = now.Version + 1
	s.nextID = c.nextID.Load()
	if now != p.base {
		s.objects = merged(p.base.objects, p.cur.objects, now.objects, func(a, b *Object) bool { return a == b })
		for id, o := range s.objects {
			// What a job said of itself meanwhile stays true.
			if n, ok := now.objects[id]; ok && n != o && p.base.objects[id] != n {
				c := *o
				c.Creating, c.Paused, c.Stopped = n.Creating, n.Paused, n.Stopped
				s.objects[id] = &c
			}
		}
		s.names = make(map[string]*Object, len(s.objects))
		for _, o := range s.objects {
			s.names[o.Schema+"\x00"+o.Name] = o
		}
		s.spaces = merged(p.base.spaces, p.cur.spaces, now.spaces, func(a, b Namespace) bool { return reflect.DeepEqual(a, b) })
		s.enums = merged(p.base.enums, p.cur.enums, now.enums, func(a, b *Enum) bool { return a == b })
		s.functions = merged(p.base.functions, p.cur.functions, now.functions, func(a, b *Function) bool { return a == b })
		s.roles = merged(p.base.roles, p.cur.roles, now.roles, func(a, b *Role) bool { return a == b })
		if reflect.DeepEqual(p.cur.defaults, p.base.defaults) {
			s.defaults = now.defaults
		}
		if reflect.DeepEqual(p.cur.database, p.base.database) {
			s.database = now.database
		}
		s.changed = maps.Clone(now.changed)
		for oid := range p.cur.changed {
			if s.changed == nil {
				s.changed = map[uint32]bool{}
			}
			s.changed[oid] = true
		}
	}
	data, err := s.Marshal()
	if err != nil {
		return fmt.Errorf("encode catalog: %w", err)
	}
	switch {
	case durable != nil:
		err = durable(data, s.Version)
	case c.persist != nil:
		err = c.persist(data)
	}
	if err != nil {
		return err
	}
	c.cur.Store(s)
	return nil
}

// merged applies what mine changed of base to now.
func merged[K comparable, V any](base, mine, now map[K]V, same func(a, b V) bool) map[K]V {
	out := make(map[K]V, len(now))
	maps.Copy(out, now)
	for k, v := range mine {
		if old, ok := base[k]; !ok || !same(old, v) {
			out[k] = v
		}
	}
	for k := range base {
		if _, ok := mine[k]; !ok {
			delete(out, k)
		}
	}
	return out
}

// With returns the state with a changed copy of an object in its place: for asking what would be.
func (s *Snapshot) With(o *Object) *Snapshot {
	c := s.clone()
	if old, ok := c.objects[o.ID]; ok {
		delete(c.names, old.Schema+"\x00"+old.Name)
	}
	c.objects[o.ID], c.names[o.Schema+"\x00"+o.Name] = o, o
	return c
}
