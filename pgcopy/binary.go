package pgcopy

import "github.com/streamdb/streamdb/types"

// Flags of the header of binary data.
const (
	flagOIDs     = 1 << 16
	criticalMask = 0xffff0000
)

func (d *Decoder) binaryRow(c *types.Chunk) (bool, error) {
	if !d.started {
		d.started = true
		if err := d.binaryHeader(); err != nil {
			return false, err
		}
	}
	d.line++
	s, err := d.take(2)
	if err != nil {
		return false, err
	}
	if len(s) < 2 {
		d.done = true // without a trailer, as writers of the first version of the format left it
		return false, nil
	}
	n := int(int16(be16(s)))
	if n == -1 {
		d.done = true
		if s, err := d.take(1); err != nil || s != "" {
			if err != nil {
				return false, err
			}
			return false, bad("received copy data after EOF marker")
		}
		return false, nil
	}
	if n != len(d.cols) {
		return false, bad("row field count is %d, expected %d", n, len(d.cols))
	}
	for i := range d.cols {
		d.column = i
		if s, err = d.take(4); err != nil {
			return false, err
		}
		if len(s) < 4 {
			return false, bad("unexpected EOF in COPY data")
		}
		size := int(int32(be32(s)))
		if size == -1 {
			c.Cols[i].AppendNull()
			continue
		}
		if size < 0 {
			return false, bad("invalid field size")
		}
		if s, err = d.take(size); err != nil {
			return false, err
		}
		if len(s) < size {
			return false, bad("unexpected EOF in COPY data")
		}
		d.quoted = append(d.quoted[:0], s...)
		v, err := types.ParseBinaryIn(d.format, c.Cols[i].Type, d.quoted)
		if err != nil {
			return false, err
		}
		c.Cols[i].AppendDatum(v)
	}
	d.column = -1
	return true, nil
}

func (d *Decoder) binaryHeader() error {
	s, err := d.take(len(signature))
	if err != nil {
		return err
	}
	if s != signature {
		return bad("COPY file signature not recognized")
	}
	if s, err = d.take(4); err != nil {
		return err
	}
	if len(s) < 4 {
		return bad("invalid COPY file header (missing flags)")
	}
	flags := be32(s)
	if flags&flagOIDs != 0 {
		return bad("invalid COPY file header (WITH OIDS)")
	}
	if flags&criticalMask != 0 {
		return bad("unrecognized critical flags in COPY file header")
	}
	if s, err = d.take(4); err != nil {
		return err
	}
	if len(s) < 4 || int32(be32(s)) < 0 {
		return bad("invalid COPY file header (missing length)")
	}
	size := int(be32(s))
	if s, err = d.take(size); err != nil {
		return err
	}
	if len(s) < size {
		return bad("invalid COPY file header (wrong length)")
	}
	return nil
}

// take reads n bytes, fewer at the end of the input.
func (d *Decoder) take(n int) (string, error) {
	for len(d.text)-d.pos < n && !d.eof {
		if n > maxRowBytes {
			return "", bad("invalid field size")
		}
		if err := d.refill(); err != nil {
			return "", err
		}
	}
	s := d.text[d.pos:min(d.pos+n, len(d.text))]
	d.pos += len(s)
	return s, nil
}

func be16(s string) uint16 { return uint16(s[0])<<8 | uint16(s[1]) }

func be32(s string) uint32 {
	return uint32(s[0])<<24 | uint32(s[1])<<16 | uint32(s[2])<<8 | uint32(s[3])
}
