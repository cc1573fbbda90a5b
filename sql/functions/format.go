package functions

import (
	"strings"
	"unicode/utf8"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// format is format(text, ...): %s %I %L %% with %[n$][-][width|*|*n$].
func format(c *call) error {
	if c.null(0) {
		c.setNull()
		return nil
	}
	s := c.str(0)
	var b strings.Builder
	next := 1
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		i++
		if i >= len(s) {
			return errUnterminated()
		}
		if s[i] == '%' {
			b.WriteByte('%')
			continue
		}
		spec := formatSpec{s: s, at: i}
		if err := spec.parse(c, &next); err != nil {
			return err
		}
		i = spec.at
		text, err := spec.value(c)
		if err != nil {
			return err
		}
		b.WriteString(text)
	}
	return c.setStr(b.String())
}

func errUnterminated() error {
	return pgerr.Newf(pgerr.InvalidParameterValue, "unterminated format() type specifier").WithHint(`For a single "%%" use "%%%%".`)
}

type formatSpec struct {
	s     string
	at    int // of the byte being read; at the end the conversion letter's
	arg   int
	width int
	left  bool
	verb  byte
}

// number reads digits; ok is false when there are none.
func (p *formatSpec) number() (n int, ok bool) {
	for p.at < len(p.s) && p.s[p.at] >= '0' && p.s[p.at] <= '9' {
		n, ok = n*10+int(p.s[p.at]-'0'), true
		p.at++
		if n > maxResultBytes {
			return n, ok
		}
	}
	return n, ok
}

func (p *formatSpec) parse(c *call, next *int) error {
	explicit := 0
	start := p.at
	if n, ok := p.number(); ok {
		if p.at < len(p.s) && p.s[p.at] == '$' {
			if n == 0 {
				return pgerr.Newf(pgerr.InvalidParameterValue, "format specifies argument 0, but arguments are numbered from 1")
			}
			explicit = n
			p.at++
		} else {
			p.at = start
		}
	}
	for p.at < len(p.s) && p.s[p.at] == '-' {
		p.left = true
		p.at++
	}
	if p.at < len(p.s) && p.s[p.at] == '*' {
		if err := p.starWidth(c, next); err != nil {
			return err
		}
	} else if n, ok := p.number(); ok {
		p.width = n
	}
	if p.at >= len(p.s) {
		return errUnterminated()
	}
	if p.width > maxResultBytes {
		return errTooLarge()
	}
	p.verb = p.s[p.at]
	if p.verb != 's' && p.verb != 'I' && p.verb != 'L' {
		return pgerr.Newf(pgerr.InvalidParameterValue, "unrecognized format() type specifier \"%c\"", p.verb).WithHint(`For a single "%%" use "%%%%".`)
	}
	p.arg = *next
	if explicit > 0 {
		p.arg = explicit
	}
	*next = p.arg + 1
	if p.arg >= len(c.args) {
		return pgerr.Newf(pgerr.InvalidParameterValue, "too few arguments for format()")
	}
	return nil
}

func (p *formatSpec) starWidth(c *call, next *int) error {
	p.at++
	arg := *next
	if n, ok := p.number(); ok && p.at < len(p.s) && p.s[p.at] == '$' {
		arg = n
		p.at++
	}
	*next = arg + 1
	if arg < 1 || arg >= len(c.args) {
		return pgerr.Newf(pgerr.InvalidParameterValue, "too few arguments for format()")
	}
	if c.null(arg) {
		return nil
	}
	if c.args[arg].Type.Kind() != c.out.Type.Kind() && len(c.args[arg].Int) > 0 {
		p.width = int(c.int(arg))
	}
	if p.width < 0 {
		p.width, p.left = -p.width, true
	}
	return nil
}

func (p *formatSpec) value(c *call) (string, error) {
	var text string
	switch null := c.null(p.arg); {
	case null && p.verb == 'L':
		text = "NULL"
	case null && p.verb == 'I':
		return "", pgerr.Newf(pgerr.NullValueNotAllowed, "null values cannot be formatted as an SQL identifier")
	case null:
	case p.verb == 'I':
		text = quoteIdent(outText(c, p.arg))
	case p.verb == 'L':
		text = quoteLiteral(outText(c, p.arg))
	default:
		text = outText(c, p.arg)
	}
	if n := p.width - utf8.RuneCountInString(text); n > 0 {
		if p.left {
			return text + strings.Repeat(" ", n), nil
		}
		return strings.Repeat(" ", n) + text, nil
	}
	return text, nil
}
