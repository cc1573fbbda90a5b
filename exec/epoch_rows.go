package exec

// epochRows is the net effect of an epoch on the keys that it changes: rows of one epoch may arrive in any order.
type epochRows struct {
	byKey map[string]int32
	rows  []pendingRow // the first is nobody's
}

// pendingRow is the net effect of an epoch on one key: the rows with their weights.
type pendingRow struct {
	kg     uint16
	first  bool // of its key
	key    string
	row    string
	weight int64
	next   int32 // further rows of the same key, 0 = none
}

// add takes a row of the key. Key may be used again, row is kept.
func (e *epochRows) add(kg uint16, key []byte, row string, w int64) {
	i, ok := e.byKey[string(key)]
	if !ok {
		key := string(key)
		e.rows = append(e.rows, pendingRow{kg: kg, first: true, key: key, row: row, weight: w})
		e.byKey[key] = int32(len(e.rows) - 1)
		return
	}
	free := int32(0)
	for {
		p := &e.rows[i]
		if p.row == row {
			p.weight += w
			return
		}
		if p.weight == 0 && free == 0 {
			free = i
		}
		if p.next == 0 {
			break
		}
		i = p.next
	}
	if free != 0 {
		e.rows[free].row, e.rows[free].weight = row, w
		return
	}
	e.rows = append(e.rows, pendingRow{kg: kg, row: row, weight: w})
	e.rows[i].next = int32(len(e.rows) - 1)
}

// each calls f with the place of the first row of every key.
func (e *epochRows) each(f func(i int32) error) error {
	for i := 1; i < len(e.rows); i++ {
		if !e.rows[i].first {
			continue
		}
		if err := f(int32(i)); err != nil {
			return err
		}
	}
	return nil
}

// maxKeptPending bounds the buffers kept from one epoch to the next.
const maxKeptPending = 1 << 16

// reset forgets all rows; the first call makes the collection usable.
func (e *epochRows) reset() {
	if e.byKey == nil || len(e.rows) > maxKeptPending {
		e.rows, e.byKey = make([]pendingRow, 1), map[string]int32{}
		return
	}
	clear(e.byKey)
	clear(e.rows)
	e.rows = e.rows[:1]
}
