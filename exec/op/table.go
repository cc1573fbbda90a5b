package op

import (
	"errors"
	"slices"
	"strings"
	"unsafe"

	"github.com/tidwall/btree"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// tablesPerNode is the number of state tables an operator may have: table id = node id × tablesPerNode + its number. Part of the state format.
const tablesPerNode = 8

// NodeOf returns the id of the operator that a state table belongs to.
func NodeOf(table uint32) uint32 { return table / tablesPerNode }

// HoldsRows reports whether a state table of an operator has what it keeps of rows: one entry per row or group. The others have watermarks, queues
// of what is due, and values of groups.
func HoldsRows(kind plan.Kind, table uint32) bool {
	switch n := table % tablesPerNode; kind {
	case plan.KindJoin, plan.KindAsofJoin:
		return n < 2 || n == nullsTable
	case plan.KindTemporalJoin:
		return n < 2
	case plan.KindRecompute:
		return true
	case plan.KindWatermark, plan.KindProcTime:
		return false
	default:
		return n == 0
	}
}

const (
	orderedMode = state.Ordered
	stagedMode  = state.Staged
)

// table is one state table of an operator: a part of the job's store, or in one-shot queries a tree that dies with the operator.
type table struct {
	part *state.Part
	mem  *btree.Map[string, []byte]
}

func openTable(ctx *Context, node *plan.Node, number uint32, mode state.PartMode) (table, error) {
	if ctx.OneShot || ctx.Store == nil {
		return table{mem: btree.NewMap[string, []byte](0)}, nil
	}
	p, err := ctx.Store.Part(node.ID*tablesPerNode+number, ctx.Subtask, ctx.Groups, mode)
	return table{part: p}, err
}

// errBudgetUsed ends the reading of state at a restore: what is left is read when it is needed.
var errBudgetUsed = errors.New("budget used up")

// dropTable deletes what a table holds that the operator does not use any more.
func dropTable(ctx *Context, node *plan.Node, number uint32) error {
	t, err := openTable(ctx, node, number, orderedMode)
	if err != nil {
		return err
	}
	for kg := ctx.Groups.From; kg < ctx.Groups.To; kg++ {
		if err := t.clear(kg, nil); err != nil {
			return err
		}
	}
	return nil
}

func errCorruptState(node *plan.Node) error {
	return pgerr.Newf(pgerr.DataCorrupted, "corrupt state of operator %d (%s)", node.ID, node.Kind)
}

func viewString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// get returns the value of key, valid until the table changes. It must not be modified.
func (t *table) get(kg uint16, key []byte) ([]byte, bool, error) {
	if t.mem != nil {
		v, ok := t.mem.Get(viewString(key))
		return v, ok, nil
	}
	return t.part.Get(kg, key)
}

// put copies key and val.
func (t *table) put(kg uint16, key, val []byte) error {
	if t.mem != nil {
		t.mem.Set(string(key), append([]byte(nil), val...))
		return nil
	}
	t.part.Put(kg, key, val)
	return nil
}

// append is put for callers that know whether the key is there.
func (t *table) append(kg uint16, key, val []byte, fresh bool) error {
	if t.mem != nil {
		return t.put(kg, key, val)
	}
	t.part.Append(kg, key, val, fresh)
	return nil
}

// remove is del for callers that know that the key is there.
func (t *table) remove(kg uint16, key []byte) error {
	if t.mem != nil {
		return t.del(kg, key)
	}
	t.part.Remove(kg, key)
	return nil
}

func (t *table) del(kg uint16, key []byte) error {
	if t.mem != nil {
		t.mem.Delete(viewString(key))
		return nil
	}
	t.part.Delete(kg, key)
	return nil
}

// scan calls f for the keys of a group that start with prefix, ascending or descending, until it returns false. F must not change the table;
// key and val are valid during the call.
func (t *table) scan(kg uint16, prefix []byte, desc bool, f func(key, val []byte) (bool, error)) error {
	return t.scanFrom(kg, prefix, nil, desc, f)
}

// scanFrom is scan that begins at from, a key with the prefix or nil: ascending at the first key that is not below it, descending at the last one that is
// not above it.
func (t *table) scanFrom(kg uint16, prefix, from []byte, desc bool, f func(key, val []byte) (bool, error)) error {
	if t.mem != nil {
		return t.scanMem(prefix, from, desc, f)
	}
	it := t.part.ScanFrom(kg, prefix, from, desc)
	defer it.Close()
	for it.Next() {
		if more, err := f(it.Key(), it.Value()); err != nil || !more {
			return err
		}
	}
	return it.Err()
}

func (t *table) scanMem(prefix, from []byte, desc bool, f func(key, val []byte) (bool, error)) error {
	var err error
	p := viewString(prefix)
	visit := func(k string, v []byte) bool {
		if !strings.HasPrefix(k, p) {
			return desc && k > p // descending scans start at the successor of the prefix
		}
		var more bool
		more, err = f(unsafe.Slice(unsafe.StringData(k), len(k)), v)
		return more && err == nil
	}
	switch succ := types.KeySuccessor(prefix); {
	case !desc && from != nil:
		t.mem.Ascend(viewString(from), visit)
	case !desc:
		t.mem.Ascend(p, visit)
	case from != nil:
		t.mem.Descend(viewString(from), visit)
	case succ == nil:
		t.mem.Reverse(visit)
	default:
		t.mem.Descend(viewString(succ), visit)
	}
	return err
}

// clear deletes the entries of a key group whose keys start with prefix.
func (t *table) clear(kg uint16, prefix []byte) error {
	var keys [][]byte
	err := t.scan(kg, prefix, false, func(k, _ []byte) (bool, error) {
		keys = append(keys, slices.Clone(k))
		return true, nil
	})
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := t.remove(kg, k); err != nil {
			return err
		}
	}
	return nil
}

// scanAll calls f for all entries.
func (t *table) scanAll(f func(kg uint16, key, val []byte) error) error {
	if t.mem != nil {
		return nil // a one-shot query starts without state
	}
	it := t.part.ScanAll()
	defer it.Close()
	for it.Next() {
		if err := f(it.Group(), it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return it.Err()
}

// keyGroup returns the key group of a row hash. State without key columns may run in several subtasks (each then has its own rows): its group is
// moved into the subtask's range.
func keyGroup(ctx *Context, hash uint64) uint16 {
	if ctx.OneShot || ctx.Store == nil {
		return 0
	}
	kg := types.KeyGroup(hash, ctx.Store.MaxParallelism())
	if !ctx.Groups.Contains(kg) {
		kg = ctx.Groups.From + kg%(ctx.Groups.To-ctx.Groups.From)
	}
	return kg
}
