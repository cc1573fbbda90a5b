package pgcopy

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// scan finds the end of the line that s begins with: n bytes of text, end bytes with the line's end. n < 0: s does not hold all of it.
func (d *Decoder) scan(s string) (n, end int, err error) {
	if d.eol == "\n" {
		// Most lines hold nothing of interest before their end.
		if n = strings.IndexByte(s, '\n'); n < 0 && !d.eof {
			return -1, 0, nil
		} else if n >= 0 && d.plain(s[:n]) {
			return n, n + 1, nil
		}
	}
	quoted, escaped := false, false
	csv, quote, escape := d.opts.Format == CSV, d.opts.Quote, d.opts.Escape
	for i := 0; i < len(s); i++ {
		c := s[i]
		if csv {
			if quoted && c == escape && escape != quote {
				escaped = !escaped
			}
			if c == quote && !escaped {
				quoted = !quoted
			}
			if c != escape || escape == quote {
				escaped = false
			}
			if quoted {
				if c == '\n' && d.eol == "\n" || c == '\r' && d.eol != "\n" {
					d.line++
				}
				continue
			}
		}
		switch c {
		case '\\':
			if !csv {
				if i+1 < len(s) && s[i+1] == '.' {
					if err := d.marker(s, i); err != nil {
						return 0, 0, err
					}
				}
				i++ // whatever follows belongs to the line
			}
		case '\r', '\n':
			size, err := d.lineEnd(s, i)
			if err != nil {
				return 0, 0, err
			}
			if size < 0 {
				return -1, 0, nil
			}
			if size > 0 {
				return i, i + size, nil
			}
		}
	}
	return -1, 0, nil
}

// plain reports whether a line can be taken as it is.
func (d *Decoder) plain(line string) bool {
	if strings.IndexByte(line, '\r') >= 0 {
		return false
	}
	if d.opts.Format == CSV {
		return strings.IndexByte(line, d.opts.Quote) < 0
	}
	return strings.IndexByte(line, '\\') < 0
}

// marker refuses an end marker that is not alone in its line.
func (d *Decoder) marker(s string, at int) error {
	rest := s[at+2:]
	if rest == "" && !d.eof {
		return nil // looked at again when there is more
	}
	if at > 0 || rest != "" && rest[0] != '\n' && rest[0] != '\r' {
		return bad("end-of-copy marker corrupt")
	}
	if d.eol != "" && rest != "" && !strings.HasPrefix(rest, d.eol) && (d.eof || len(rest) >= len(d.eol)) {
		return bad("end-of-copy marker does not match previous newline style")
	}
	return nil
}

// lineEnd returns the size of the line's end at s[i], 0 when that is data, -1 when more input decides. All lines end as the first one does.
func (d *Decoder) lineEnd(s string, i int) (int, error) {
	if d.eol == "" {
		switch {
		case s[i] == '\n':
			d.eol = "\n"
		case i+1 < len(s) && s[i+1] == '\n':
			d.eol = "\r\n"
		case i+1 < len(s) || d.eof:
			d.eol = "\r"
		default:
			return -1, nil
		}
		return len(d.eol), nil
	}
	if strings.HasPrefix(s[i:], d.eol) {
		return len(d.eol), nil
	}
	if d.eol == "\r\n" && s[i] == '\r' && i+1 == len(s) && !d.eof {
		return -1, nil
	}
	name, letter := "newline", "n"
	if s[i] == '\r' {
		name, letter = "carriage return", "r"
	}
	if d.opts.Format == CSV {
		return 0, bad("unquoted %s found in data", name).WithHint("Use quoted CSV field to represent %s.", name)
	}
	return 0, bad("literal %s found in data", name).WithHint("Use \"\\%s\" to represent %s.", letter, name)
}

// split cuts a line into its fields.
func (d *Decoder) split(line string) error {
	d.fields, d.quoted = d.fields[:0], d.quoted[:0]
	if d.opts.Format == CSV {
		return d.splitCSV(line)
	}
	return d.splitText(line)
}

func (d *Decoder) splitText(line string) error {
	escapes := strings.IndexByte(line, '\\') >= 0
	for {
		n, special := len(line), false
		if !escapes {
			if k := strings.IndexByte(line, d.opts.Delimiter); k >= 0 {
				n = k
			}
		} else {
			for i := 0; i < len(line); i++ {
				if line[i] == '\\' {
					special = true
					i++
				} else if line[i] == d.opts.Delimiter {
					n = i
					break
				}
			}
		}
		f := field{s: line[:n]}
		switch {
		case f.s == d.opts.Null:
			f.null = true
		case special:
			var checked bool
			if f.s, checked = unescape(f.s); !checked {
				if err := pgerr.CheckText(f.s); err != nil {
					return err
				}
			}
		}
		d.fields = append(d.fields, f)
		if n == len(line) {
			return nil
		}
		line = line[n+1:]
	}
}

// unescape resolves backslashes. valid is false when numbered bytes may have made something that is no text.
func unescape(s string) (out string, valid bool) {
	b := make([]byte, 0, len(s))
	valid = true
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c != '\\' || i+1 == len(s) {
			b = append(b, c)
			continue
		}
		i++
		switch c = s[i]; c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'v':
			c = '\v'
		case '0', '1', '2', '3', '4', '5', '6', '7':
			v := int(c - '0')
			for k := 0; k < 2 && i+1 < len(s) && s[i+1] >= '0' && s[i+1] <= '7'; k++ {
				i++
				v = v<<3 + int(s[i]-'0')
			}
			c = byte(v)
			valid = valid && c != 0 && c < 0x80
		case 'x':
			v, k := 0, 0
			for k < 2 && i+1 < len(s) {
				h := hexDigit(s[i+1])
				if h < 0 {
					break
				}
				v, i, k = v<<4+h, i+1, k+1
			}
			if k > 0 {
				c = byte(v)
				valid = valid && c != 0 && c < 0x80
			}
		}
		b = append(b, c)
	}
	return string(b), valid
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

func (d *Decoder) splitCSV(line string) error {
	o := &d.opts
	quotes := strings.IndexByte(line, o.Quote) >= 0
	for {
		f, rest, more, wasQuoted := field{}, "", false, false
		if !quotes {
			f.s = line
			if k := strings.IndexByte(line, o.Delimiter); k >= 0 {
				f.s, rest, more = line[:k], line[k+1:], true
			}
		} else {
			var err error
			if f.s, rest, more, wasQuoted, err = d.quotedField(line); err != nil {
				return err
			}
		}
		i := len(d.fields)
		f.null = f.s == o.Null && (!wasQuoted && !(i < len(d.cols) && flag(o.ForceNotNull, i)) || wasQuoted && i < len(d.cols) && flag(o.ForceNull, i))
		d.fields = append(d.fields, f)
		if !more {
			return nil
		}
		line = rest
	}
}

// quotedField reads a field that may have quotes, also in its midst.
func (d *Decoder) quotedField(line string) (s, rest string, more, wasQuoted bool, err error) {
	o := &d.opts
	d.quoted = d.quoted[:0]
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case o.Delimiter:
			return string(d.quoted), line[i+1:], true, wasQuoted, nil
		case o.Quote:
			wasQuoted = true
			for i++; ; i++ {
				if i >= len(line) {
					return "", "", false, true, pgerr.Newf(pgerr.BadCopyFileFormat, "unterminated CSV quoted field")
				}
				c := line[i]
				if c == o.Escape && i+1 < len(line) && (line[i+1] == o.Quote || line[i+1] == o.Escape) {
					i++
					d.quoted = append(d.quoted, line[i])
					continue
				}
				if c == o.Quote {
					break
				}
				d.quoted = append(d.quoted, c)
			}
		default:
			d.quoted = append(d.quoted, c)
		}
	}
	return string(d.quoted), "", false, wasQuoted, nil
}
