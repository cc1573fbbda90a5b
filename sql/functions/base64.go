package functions

import (
	"unicode/utf8"

	"github.com/streamdb/streamdb/internal/pgerr"
)

const base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

func base64Digit(c byte) int {
	for i := range len(base64Digits) {
		if base64Digits[i] == c {
			return i
		}
	}
	return -1
}

// decodeBase64 reads groups of four digits; white space may be anywhere, and more groups may follow a padded one.
func decodeBase64(s string) (string, error) {
	out := make([]byte, 0, len(s)/4*3)
	group, digits, padding := 0, 0, 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			continue
		case c == '=':
			if padding == 0 && digits < 2 {
				return "", pgerr.Newf(pgerr.InvalidParameterValue, "unexpected \"=\" while decoding base64 sequence")
			}
			padding++
			group <<= 6
		default:
			d := base64Digit(c)
			if d < 0 {
				_, w := utf8.DecodeRuneInString(s[i:])
				return "", pgerr.Newf(pgerr.InvalidParameterValue, "invalid symbol \"%s\" found while decoding base64 sequence", s[i:i+w])
			}
			group = group<<6 | d
		}
		if digits++; digits < 4 {
			continue
		}
		out = append(out, byte(group>>16))
		if padding < 2 {
			out = append(out, byte(group>>8))
		}
		if padding < 1 {
			out = append(out, byte(group))
		}
		group, digits, padding = 0, 0, 0
	}
	if digits != 0 {
		return "", pgerr.Newf(pgerr.InvalidParameterValue, "invalid base64 end sequence").WithHint("Input data is missing padding, is truncated, or is otherwise corrupted.")
	}
	return string(out), nil
}
