package op

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/streamdb/streamdb/planner/plan"
)

// dueQueue is an ordered queue in state: what is to happen when time, a watermark or the clock, has reached a moment. State key: due (8 bytes, big-endian,
// sign bit inverted) · name.
type dueQueue struct {
	table table
	node  *plan.Node
	from  uint16
	first []int64 // per key group of the subtask: nothing is due before; math.MaxInt64 when there is nothing
	key   []byte
	found []dueEntry
}

type dueEntry struct {
	due       int64
	name, val []byte
}

// dueBatch is how many entries of a key group are taken out at a time.
const dueBatch = 1024

func (q *dueQueue) open(ctx *Context, node *plan.Node, number uint32) error {
	q.node = node
	var err error
	if q.table, err = openTable(ctx, node, number, orderedMode); err != nil {
		return err
	}
	n := 1
	if q.table.part != nil {
		q.from, n = ctx.Groups.From, int(ctx.Groups.To-ctx.Groups.From)
	}
	q.first = make([]int64, n)
	for i := range q.first {
		q.first[i] = math.MaxInt64
	}
	last := -1
	return q.table.scanAll(func(kg uint16, k, _ []byte) error {
		if i := int(kg - q.from); i != last {
			if len(k) < 8 {
				return errCorruptState(node)
			}
			last, q.first[i] = i, dueOf(k)
		}
		return nil
	})
}

func appendDue(dst []byte, due int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(due)^1<<63)
}

func dueOf(key []byte) int64 { return int64(binary.BigEndian.Uint64(key) ^ 1<<63) }

// put adds an entry; of one name several may be due at different times.
func (q *dueQueue) put(kg uint16, due int64, name, val []byte) error {
	q.first[kg-q.from] = min(q.first[kg-q.from], due)
	q.key = append(appendDue(q.key[:0], due), name...)
	return q.table.put(kg, q.key, val)
}

func (q *dueQueue) del(kg uint16, due int64, name []byte) error {
	q.key = append(appendDue(q.key[:0], due), name...)
	return q.table.del(kg, q.key)
}

// next returns a moment before which nothing is due, math.MaxInt64 when the queue is empty.
func (q *dueQueue) next() int64 { return slices.Min(q.first) }

// take removes what is due until the given moment, inclusive, and calls f for it, in order within each key group. F may put further entries.
func (q *dueQueue) take(until int64, f func(kg uint16, due int64, name, val []byte) error) error {
	for i := range q.first {
		kg := q.from + uint16(i)
		for q.first[i] <= until {
			q.found, q.first[i] = q.found[:0], math.MaxInt64
			err := q.table.scan(kg, nil, false, func(k, v []byte) (bool, error) {
				if len(k) < 8 {
					return false, errCorruptState(q.node)
				}
				due := dueOf(k)
				if due > until || len(q.found) == dueBatch {
					q.first[i] = due
					return false, nil
				}
				q.found = append(q.found, dueEntry{due: due, name: slices.Clone(k[8:]), val: slices.Clone(v)})
				return true, nil
			})
			if err != nil {
				return err
			}
			for _, e := range q.found {
				if err := q.del(kg, e.due, e.name); err != nil {
					return err
				}
				if err := f(kg, e.due, e.name, e.val); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
