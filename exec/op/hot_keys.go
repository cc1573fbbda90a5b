package op

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"

	"github.com/streamdb/streamdb/types"
)

// HotKey is a key of a join with many rows.
type HotKey struct {
	Key     string   // its values as text, separated by commas
	Rows    [2]int64 // different rows of the left and of the right side, when they last met
	Matches int64    // pairs of rows that met since the operator started, before other conditions
}

// HotKeyed is an operator that knows its hot keys.
type HotKeyed interface {
	// HotKeys returns the keys with the most matches, those first, as of the last barrier. Any goroutine may ask.
	HotKeys() []HotKey
}

const (
	// hotChain is the number of rows that one row meets from which on its key is counted: nothing beside what that costs.
	hotChain = 256
	// hotKeysKept bounds the keys that are counted, hotKeysShown those that are shown.
	hotKeysKept  = 64
	hotKeysShown = 8
)

// hotKeys counts the matches of a join's keys with long chains. When there are too many, those with the shortest chains give way.
type hotKeys struct {
	of      map[uint64]*hotKey // by the key's hash
	least   int64              // once the map was full: no chain is shorter
	changed bool
	shown   atomic.Pointer[[]HotKey]
}

type hotKey struct {
	HotKey
	longest int64
}

// met counts that row r of the chunk in work meets the rows of the other side.
func (h *hotKeys) met(o *joinOp, words []uint64, r int) {
	rows := [2]int64{int64(half(words[joinLength], 0)), int64(half(words[joinLength], 1))}
	k := h.of[words[rowHash]]
	if k == nil {
		if k = h.admit(words[rowHash], max(rows[0], rows[1])); k == nil {
			return
		}
		k.Key = o.keyText(r)
	}
	k.Rows, k.longest = rows, max(k.longest, rows[0], rows[1])
	k.Matches += rows[1-o.srcSide]
	h.changed = true
}

func (h *hotKeys) admit(hash uint64, longest int64) *hotKey {
	if h.of == nil {
		h.of = map[uint64]*hotKey{}
	}
	if len(h.of) >= hotKeysKept {
		if longest <= h.least {
			return nil
		}
		var shortest uint64
		h.least = math.MaxInt64
		for x, k := range h.of {
			if k.longest < h.least {
				shortest, h.least = x, k.longest
			}
		}
		if longest <= h.least {
			return nil
		}
		delete(h.of, shortest)
	}
	k := &hotKey{longest: longest}
	h.of[hash] = k
	return k
}

// publish shows the keys with the most matches.
func (h *hotKeys) publish() {
	if !h.changed {
		return
	}
	h.changed = false
	list := make([]HotKey, 0, len(h.of))
	for _, k := range h.of {
		list = append(list, k.HotKey)
	}
	slices.SortFunc(list, func(a, b HotKey) int { return cmp.Or(cmp.Compare(b.Matches, a.Matches), cmp.Compare(a.Key, b.Key)) })
	list = slices.Clip(list[:min(len(list), hotKeysShown)])
	h.shown.Store(&list)
}

// keyText is the key of row r of the chunk in work.
func (o *joinOp) keyText(r int) string {
	var b []byte
	for i, c := range o.keys[o.srcSide] {
		if i > 0 {
			b = append(b, ", "...)
		}
		if v := o.src.Cols[c]; v.IsNull(r) {
			b = append(b, "NULL"...)
		} else {
			b = types.AppendText(b, o.ctx.Env.Format, v, r)
		}
	}
	return string(b)
}

// HotKeys implements HotKeyed.
func (o *joinOp) HotKeys() []HotKey {
	if p := o.hot.shown.Load(); p != nil {
		return *p
	}
	return nil
}
