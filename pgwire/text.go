package pgwire

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// cleanText makes s fit for a field of a message, which ends at the first NUL.
func cleanText(s string) string {
	if pgerr.CheckText(s) == nil {
		return s
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
}
