package types

import (
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// ParseChunk reads rows in the notation that tests, golden files and documents share: one row a line, a sign with an optional weight, then
// the values between blanks.
//
//   - 1 a
//   - 1 'with blanks, it”s quoted'
//     +3 2 NULL
//
// A value with blanks, an empty one, and one that reads NULL is written in single quotes. Empty lines and lines starting with # are skipped.
// Without any weight but 1 the chunk has no weights.
func ParseChunk(ts []Type, text string) (*Chunk, error) {
	c := NewChunk(ts)
	for n, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if err := c.parseLine(ts, line); err != nil {
			return nil, pgerr.Wrap(pgerr.CodeOf(err), err, "line %d", n+1)
		}
	}
	return c, nil
}

func (c *Chunk) parseLine(ts []Type, line string) error {
	head, rest, _ := strings.Cut(line, " ")
	if head[0] != '+' && head[0] != '-' {
		return pgerr.Newf(pgerr.SyntaxError, "row must start with + or -, not %q", head)
	}
	if len(head) == 1 {
		head += "1"
	}
	w, err := strconv.ParseInt(head, 10, 64)
	if err != nil {
		return pgerr.Newf(pgerr.SyntaxError, "bad weight %q", head)
	}
	row := make([]Datum, len(ts))
	for i, t := range ts {
		rest = strings.TrimLeft(rest, " \t")
		if rest == "" {
			return pgerr.Newf(pgerr.SyntaxError, "row has %d values, want %d", i, len(ts))
		}
		var word string
		quoted := rest[0] == '\''
		if quoted {
			var err error
			if word, rest, err = cutQuoted(rest); err != nil {
				return err
			}
		} else if p := strings.IndexAny(rest, " \t"); p >= 0 {
			word, rest = rest[:p], rest[p:]
		} else {
			word, rest = rest, ""
		}
		if !quoted && word == "NULL" {
			row[i] = NullDatum(t)
			continue
		}
		var err error
		if row[i], err = ParseText(nil, t, word); err != nil {
			return err
		}
	}
	if strings.TrimSpace(rest) != "" {
		return pgerr.Newf(pgerr.SyntaxError, "row has more than %d values", len(ts))
	}
	for i := range row {
		c.Cols[i].AppendDatum(row[i])
	}
	c.PushWeight(w)
	return nil
}

func cutQuoted(s string) (word, rest string, err error) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == 'n':
			b.WriteByte('\n')
			i++
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == '\\':
			b.WriteByte('\\')
			i++
		case s[i] != '\'':
			b.WriteByte(s[i])
		case i+1 < len(s) && s[i+1] == '\'':
			b.WriteByte('\'')
			i++
		default:
			return b.String(), s[i+1:], nil
		}
	}
	return "", "", pgerr.Newf(pgerr.SyntaxError, "unterminated quoted value")
}

// String prints the selected rows as ParseChunk reads them.
func (c *Chunk) String() string {
	var b []byte
	var text []byte
	for i := range c.Rows() {
		r := c.Row(i)
		switch w := c.Weight(r); {
		case w == 1:
			b = append(b, '+')
		case w == -1:
			b = append(b, '-')
		case w < 0:
			b = strconv.AppendInt(b, w, 10)
		default:
			b = strconv.AppendInt(append(b, '+'), w, 10)
		}
		for _, v := range c.Cols {
			b = append(b, ' ')
			if v.IsNull(r) {
				b = append(b, "NULL"...)
				continue
			}
			text = AppendText(text[:0], nil, v, r)
			b = appendPretty(b, string(text))
		}
		b = append(b, '\n')
	}
	return string(b)
}

func appendPretty(b []byte, s string) []byte {
	if s != "" && s != "NULL" && s[0] != '\'' && !strings.ContainsAny(s, " \t\n\r") && strings.TrimSpace(s) == s {
		return append(b, s...)
	}
	b = append(b, '\'')
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\'':
			b = append(b, '\'', '\'')
		case '\\':
			b = append(b, '\\', '\\')
		case '\n':
			b = append(b, '\\', 'n')
		default:
			b = append(b, s[i])
		}
	}
	return append(b, '\'')
}
