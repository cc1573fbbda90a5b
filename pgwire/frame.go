package pgwire

import (
	"encoding/binary"
)

// wellFormed reports whether the body of a message holds what the decoders of pgproto3 take for granted.
func wellFormed(typ byte, body []byte) bool {
	switch typ {
	case 'Q', 'f', 'D', 'C', 'E', 'P':
		return len(body) > 0
	}
	return true
}

// bindMessage is a Bind. It is used again for the next one.
type bindMessage struct {
	portal, stmt string
	formats      []Format // of the parameters, then of the results
	paramFormats int      // how many are of the parameters
	params       [][]byte // views of the message
}

// decode reads the body of a message: portal, statement, parameter formats, parameters, result formats. It reports whether the body holds what its
// lengths and counts claim.
func (m *bindMessage) decode(b []byte) (ok bool) {
	m.formats, m.params = m.formats[:0], m.params[:0]
	if b, ok = cutName(&m.portal, b); !ok {
		return false
	}
	if b, ok = cutName(&m.stmt, b); !ok {
		return false
	}
	if b, ok = m.cutFormats(b); !ok || len(b) < 2 {
		return false
	}
	m.paramFormats = len(m.formats)
	n := int(binary.BigEndian.Uint16(b))
	b = b[2:]
	for range n {
		if len(b) < 4 {
			return false
		}
		size := int(int32(binary.BigEndian.Uint32(b)))
		b = b[4:]
		if size < -1 || size > len(b) {
			return false
		}
		if size < 0 {
			m.params = append(m.params, nil)
			continue
		}
		m.params = append(m.params, b[:size:size])
		b = b[size:]
	}
	b, ok = m.cutFormats(b)
	return ok && len(b) == 0
}

// cutName reads a name; s keeps its memory when it is the same already.
func cutName(s *string, b []byte) (rest []byte, ok bool) {
	i := 0
	for i < len(b) && b[i] != 0 {
		i++
	}
	if i == len(b) {
		return nil, false
	}
	if *s != string(b[:i]) {
		*s = string(b[:i])
	}
	return b[i+1:], true
}

func (m *bindMessage) cutFormats(b []byte) (rest []byte, ok bool) {
	if len(b) < 2 {
		return nil, false
	}
	n := int(binary.BigEndian.Uint16(b))
	if b = b[2:]; len(b) < 2*n {
		return nil, false
	}
	for i := range n {
		m.formats = append(m.formats, Format(binary.BigEndian.Uint16(b[2*i:])))
	}
	return b[2*n:], true
}
