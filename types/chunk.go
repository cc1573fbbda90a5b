package types

// MaxChunkRows caps the physical rows of a chunk: 2048 keeps per-chunk overheads below 0.1 ns a row and a chunk's buffers in the second-level cache.
const MaxChunkRows = 2048

// Chunk is a batch of weighted rows in columns.
//
// Ownership: a chunk handed to a function is LENT for the duration of the call. The callee must not modify it, nor keep it or its
// vectors afterwards; what it wants to keep it copies (Vector.Append*, Chunk.AppendChunk). The lender may therefore reuse the
// buffers after the call. String views may be kept: their buffers are never reused.
type Chunk struct {
	Cols []*Vector // all of N rows; may be shared with the chunk this one was projected from
	N    int       // physical rows
	Sel  []uint16  // selected physical rows, ascending; nil = all N. Unselected rows do not exist.
	// Weights per physical row: +1 inserts, -1 retracts, other values are multiplicities. nil = all +1. A changed row is -old, +new.
	Weights []int64
}

// NewChunk returns an empty chunk of the given column types.
func NewChunk(ts []Type) *Chunk {
	c := &Chunk{Cols: make([]*Vector, len(ts))}
	for i, t := range ts {
		c.Cols[i] = &Vector{Type: t}
	}
	return c
}

// Rows returns the number of selected rows.
func (c *Chunk) Rows() int {
	if c.Sel != nil {
		return len(c.Sel)
	}
	return c.N
}

// Row returns the physical position of the i-th selected row.
func (c *Chunk) Row(i int) int {
	if c.Sel != nil {
		return int(c.Sel[i])
	}
	return i
}

// Weight returns the weight of physical row r.
func (c *Chunk) Weight(r int) int64 {
	if c.Weights == nil {
		return 1
	}
	return c.Weights[r]
}

// Reset empties a chunk that owns its vectors and keeps their storage.
func (c *Chunk) Reset() {
	for _, v := range c.Cols {
		v.Reset()
	}
	c.N, c.Sel, c.Weights = 0, nil, c.Weights[:0]
	if len(c.Weights) == 0 {
		c.Weights = nil
	}
}

// AppendRow appends physical row r of src with weight w to a dense chunk that owns its vectors.
func (c *Chunk) AppendRow(src *Chunk, r int, w int64) {
	for i, v := range c.Cols {
		v.Append(src.Cols[i], r)
	}
	c.PushWeight(w)
}

// PushWeight counts one more physical row, of weight w, after its values were appended to every column.
func (c *Chunk) PushWeight(w int64) {
	if w != 1 && c.Weights == nil {
		c.Weights = make([]int64, c.N, MaxChunkRows)
		for i := range c.Weights {
			c.Weights[i] = 1
		}
	}
	c.N++
	if c.Weights != nil {
		c.Weights = append(c.Weights, w)
	}
}

// AppendChunk appends the selected rows of src, weights included, to a dense chunk that owns its vectors.
func (c *Chunk) AppendChunk(src *Chunk) {
	n := c.N
	if src.Sel == nil {
		for i, v := range c.Cols {
			v.AppendRange(src.Cols[i], 0, src.N)
		}
	} else {
		for i, v := range c.Cols {
			v.AppendGather(src.Cols[i], src.Sel)
		}
	}
	c.N += src.Rows()
	if src.Weights == nil && c.Weights == nil {
		return
	}
	if c.Weights == nil {
		c.Weights = make([]int64, n, max(c.N, MaxChunkRows))
		for i := range c.Weights {
			c.Weights[i] = 1
		}
	}
	for i := range src.Rows() {
		c.Weights = append(c.Weights, src.Weight(src.Row(i)))
	}
}

// Clone returns a dense copy that owns its vectors.
func (c *Chunk) Clone() *Chunk {
	ts := make([]Type, len(c.Cols))
	for i, v := range c.Cols {
		ts[i] = v.Type
	}
	d := NewChunk(ts)
	d.AppendChunk(c)
	return d
}

// Bytes returns the memory that the chunk's values take, approximately.
func (c *Chunk) Bytes() int64 {
	b := int64(8 * len(c.Weights))
	for _, v := range c.Cols {
		b += int64(len(v.Bool) + 8*len(v.Int) + 8*len(v.Float) + 16*len(v.Str) + 24*len(v.Num) + 16*len(v.Ivl))
		for _, s := range v.Str {
			b += int64(len(s))
		}
	}
	return b
}
