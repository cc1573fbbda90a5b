//go:build e2e

package differential

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// call is a statement with what a client sends along:
//
//	select $1 + 1 \bind '5'                  in the extended protocol, with the values of its parameters
//	select $1 + 1 \types 20 \bind x'00000000000000FF'   with given parameter types; this value is in binary
//	copy t from stdin \data E'1\t2\n'        with the data of COPY
type call struct {
	sql     string
	bind    bool
	types   []uint32
	values  [][]byte
	formats []int16
	copyIn  bool
	data    []byte
}

func readCall(text string) (*call, error) {
	c := &call{}
	word := ""
	for i := 0; i < len(text); {
		if text[i] == '\\' {
			n := 1
			for i+n < len(text) && wordStart(text[i+n]) {
				n++
			}
			word = text[i+1 : i+n]
			c.bind, c.copyIn = c.bind || word == "bind", c.copyIn || word == "data"
			i += n
			continue
		}
		n := tokenLength(text[i:])
		token := text[i : i+n]
		if hexed := token == "x" && word != "" && i+1 < len(text) && text[i+1] == '\''; hexed {
			n += tokenLength(text[i+1:])
			token = text[i : i+n]
		}
		i += n
		var err error
		switch {
		case word == "":
			c.sql += token
		case strings.TrimSpace(token) == "":
		case word == "bind":
			err = c.value(token)
		case word == "types":
			n := 1
			for i < len(text) && text[i] >= '0' && text[i] <= '9' {
				token += text[i : i+n]
				i++
			}
			var oid uint64
			oid, err = strconv.ParseUint(token, 10, 32)
			c.types = append(c.types, uint32(oid))
		case word == "data":
			var data string
			data, err = literal(token)
			c.data = append(c.data, data...)
		default:
			err = fmt.Errorf("unknown word \\%s", word)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
	}
	c.sql = strings.TrimSpace(c.sql)
	return c, nil
}

// value adds a parameter: null, 'text', E'text' with escapes, or x'bytes'.
func (c *call) value(token string) error {
	v, format := []byte(nil), int16(0)
	switch {
	case strings.EqualFold(token, "null"):
	case token[0] == 'x':
		b, err := hex.DecodeString(strings.Trim(token[1:], "'"))
		if err != nil {
			return err
		}
		v, format = b, 1
	default:
		s, err := literal(token)
		if err != nil {
			return err
		}
		v = []byte(s)
	}
	c.values, c.formats = append(c.values, v), append(c.formats, format)
	return nil
}

// literal returns the text of 'text' or E'text'.
func literal(token string) (string, error) {
	body, escapes := token, false
	if token[0] == 'E' {
		body, escapes = token[1:], true
	}
	if len(body) < 2 || body[0] != '\'' {
		return "", fmt.Errorf("%s is no string", token)
	}
	body = strings.ReplaceAll(body[1:len(body)-1], "''", "'")
	if !escapes {
		return body, nil
	}
	var b strings.Builder
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' || i+1 == len(body) {
			b.WriteByte(body[i])
			continue
		}
		i++
		switch body[i] {
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'x':
			n, err := strconv.ParseUint(body[i+1:min(i+3, len(body))], 16, 8)
			if err != nil {
				return "", err
			}
			b.WriteByte(byte(n))
			i += 2
		default:
			b.WriteByte(body[i])
		}
	}
	return b.String(), nil
}

var copiesOut = regexp.MustCompile(`(?is)^copy\b.*\bto\s+stdout\b`)
