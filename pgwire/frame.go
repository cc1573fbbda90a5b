package pgwire

import (
	"encoding/binary"
)

// wellFormed reports whether the body of a message holds what its lengths and counts claim. The decoders of pgproto3 check most
// of it, but trust some of these numbers.
func wellFormed(typ byte, body []byte) bool {
	switch typ {
	case 'Q', 'f', 'D', 'C', 'E', 'P':
		return len(body) > 0
	case 'B':
		return bindWellFormed(body)
	}
	return true
}

// bindWellFormed walks over a Bind: portal, statement, parameter formats, parameters, result formats.
func bindWellFormed(b []byte) bool {
	for range 2 {
		i := 0
		for i < len(b) && b[i] != 0 {
			i++
		}
		if i == len(b) {
			return false
		}
		b = b[i+1:]
	}
	skipFormats := func() bool {
		if len(b) < 2 {
			return false
		}
		n := 2 + 2*int(binary.BigEndian.Uint16(b))
		if len(b) < n {
			return false
		}
		b = b[n:]
		return true
	}
	if !skipFormats() || len(b) < 2 {
		return false
	}
	params := int(binary.BigEndian.Uint16(b))
	b = b[2:]
	for range params {
		if len(b) < 4 {
			return false
		}
		size := int(int32(binary.BigEndian.Uint32(b)))
		b = b[4:]
		if size < -1 || size > len(b) {
			return false
		}
		b = b[max(size, 0):]
	}
	return skipFormats() && len(b) == 0
}
