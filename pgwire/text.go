package pgwire

import (
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// maxReportedBytes caps how many bytes of a bad character an error message names.
const maxReportedBytes = 4

// checkText reports bytes that are not UTF-8, and NUL, as PostgreSQL does.
func checkText(b []byte) error {
	i := 0
	for i < len(b) {
		if c := b[i]; c < utf8.RuneSelf && c != 0 {
			i++
			continue
		}
		r, size := utf8.DecodeRune(b[i:])
		if r == 0 || r == utf8.RuneError && size <= 1 {
			return badByteSequence(b[i:])
		}
		i += size
	}
	return nil
}

// checkString is checkText for a string. It reads s in place.
func checkString(s string) error {
	return checkText(unsafe.Slice(unsafe.StringData(s), len(s)))
}

// badByteSequence names the bytes that the first one's length announces, as far as they are there.
func badByteSequence(b []byte) error {
	n := 1
	switch c := b[0]; {
	case c&0xe0 == 0xc0:
		n = 2
	case c&0xf0 == 0xe0:
		n = 3
	case c&0xf8 == 0xf0:
		n = maxReportedBytes
	}
	const hex = "0123456789abcdef"
	var s strings.Builder
	for i, c := range b[:min(n, len(b))] {
		if i > 0 {
			s.WriteByte(' ')
		}
		s.WriteString("0x")
		s.WriteByte(hex[c>>4])
		s.WriteByte(hex[c&15])
	}
	return pgerr.Newf(pgerr.CharacterNotInRepertoire, "invalid byte sequence for encoding \"UTF8\": %s", s.String())
}

// cleanText makes s fit for a field of a message, which ends at the first NUL.
func cleanText(s string) string {
	if checkString(s) == nil {
		return s
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
}
