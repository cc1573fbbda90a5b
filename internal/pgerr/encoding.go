package pgerr

import (
	"strings"
	"unicode/utf8"
)

// CheckText reports bytes that are not UTF-8, and NUL. Of a bad character it names as many bytes as the first one announces.
func CheckText[T ~string | ~[]byte](s T) error {
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf && c != 0 {
			i++
			continue
		}
		head := string(s[i:min(i+utf8.UTFMax, len(s))])
		r, n := utf8.DecodeRuneInString(head)
		if r == 0 || r == utf8.RuneError && n <= 1 {
			return badBytes(head)
		}
		i += n
	}
	return nil
}

func badBytes(s string) error {
	n := 1
	switch c := s[0]; {
	case c&0xe0 == 0xc0:
		n = 2
	case c&0xf0 == 0xe0:
		n = 3
	case c&0xf8 == 0xf0:
		n = 4
	}
	const hex = "0123456789abcdef"
	var b strings.Builder
	for _, c := range []byte(s[:min(n, len(s))]) {
		b.WriteString(" 0x")
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return Newf(CharacterNotInRepertoire, "invalid byte sequence for encoding \"UTF8\":%s", b.String())
}
