package functions

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// maxCachedPatterns bounds the compiled patterns that one call keeps when the pattern varies from row to row.
const maxCachedPatterns = 64

// regexpFunctions lists regular expressions. Patterns are PostgreSQL's advanced ones.
func regexpFunctions() []entry {
	var out []entry
	for _, t := range [...]string{"text", "name", "bpchar"} {
		out = append(out,
			fn(t+"regexeq("+t+",text)", "", regexKernel("", false)), fn(t+"regexne("+t+",text)", "", regexKernel("", true)),
			fn(t+"icregexeq("+t+",text)", "", regexKernel("i", false)), fn(t+"icregexne("+t+",text)", "", regexKernel("i", true)))
	}
	similar := map1e(strSlot, strSlot, func(p string) (string, error) { return similarToRegexp(p, `\`) })
	similar2 := map2e(strSlot, strSlot, strSlot, similarToRegexp)
	return append(out,
		fn("similar_to_escape(text)", "'abc' SIMILAR TO '%(b|d)%'", similar), fn("similar_to_escape(text,text)", "", similar2),
		fn("similar_escape(text,text)", "similar_escape('a%',NULL)", each(func(c *call) error {
			if c.null(0) {
				c.setNull()
				return nil
			}
			esc := `\`
			if !c.null(1) {
				esc = c.str(1)
			}
			re, err := similarToRegexp(c.str(0), esc)
			c.out.Str[c.row] = re
			return err
		})),
		fn("regexp_match(text,text)", "regexp_match('foobarbequebaz','(bar)(beque)')", each(regexpMatch)),
		fn("regexp_match(text,text,text)", "regexp_match('ABC','b','i')", each(regexpMatch)),
		fn("regexp_like(text,text)", "regexp_like('Hello','l+')", each(regexpLike)), fn("regexp_like(text,text,text)", "regexp_like('Hello','L+','i')", each(regexpLike)),
		fn("regexp_count(text,text)", "regexp_count('abcabc','b')", each(regexpCount)),
		fn("regexp_replace(text,text,text)", `regexp_replace('Thomas','.[mN]a.','<\&>')`, each(regexpReplace)),
		fn("regexp_replace(text,text,text,text)", `regexp_replace('foobarbaz','b(..)','X\1Y','g')`, each(regexpReplace)),
		fn("regexp_split_to_array(text,text)", `regexp_split_to_array('hello world  x','\s+')`, each(regexpSplit)),
		fn("regexp_split_to_array(text,text,text)", "regexp_split_to_array('aXbxc','x','i')", each(regexpSplit)),
		fn("substring(text,text)", "substring('foobar' from 'o(.)b')", each(substringRegexp)),
		fn("substring(text,text,text)", `substring('foobar' similar '%#"o_b#"%' escape '#')`, each(substringSimilar)),
		fn("regexp_substr(text,text)", "regexp_substr('foobar','o+')", each(regexpSubstr)),
	)
}

type regexCache map[string]*pattern

// compiled returns the pattern from the call's cache.
func compiled(f *expr.Frame, source, flags string) (*pattern, error) {
	cache, _ := f.State.(regexCache)
	key := flags + "\x00" + source
	if re, ok := cache[key]; ok {
		re.within(f)
		return re, nil
	}
	re, err := compileRegexp(source, flags)
	if err != nil {
		return nil, err
	}
	if cache == nil || len(cache) >= maxCachedPatterns {
		cache = regexCache{}
		f.State = cache
	}
	cache[key] = re
	re.within(f)
	return re, nil
}

func compileRegexp(source, flags string) (*pattern, error) {
	mode := "s"
	literal := false
	for _, c := range flags {
		switch c {
		case 'i':
			mode += "i"
		case 'c':
			mode = strings.ReplaceAll(mode, "i", "")
		case 'n', 'm':
			mode = strings.ReplaceAll(mode, "s", "") + "m"
		case 'w':
			mode += "m"
		case 'p':
			mode = strings.ReplaceAll(mode, "s", "")
		case 's', 'e', 'b', 't', 'g':
		case 'q':
			literal = true
		case 'x':
			source = stripExpanded(source)
		default:
			return nil, pgerr.Newf(pgerr.InvalidParameterValue, "invalid regular expression option: %q", string(c))
		}
	}
	if !literal {
		// Options at the start, as in (?i)abc, follow those of the flags argument.
		if end := strings.IndexByte(source, ')'); strings.HasPrefix(source, "(?") && end > 2 && strings.Trim(source[2:end], "bceimnpqstwx") == "" {
			return compileRegexp(source[end+1:], flags+source[2:end])
		}
	}
	if rest, ok := strings.CutPrefix(source, "***="); ok {
		source, literal = rest, true
	}
	source = strings.TrimPrefix(source, "***:")
	if mode != "" {
		mode = "(?" + mode + ")"
	}
	if literal {
		re, err := linearPattern(mode+regexp.QuoteMeta(source), true)
		return re, badRegexp(err)
	}
	t := translation{}
	if err := t.translate(source); err != nil {
		return nil, err
	}
	re := &pattern{}
	if !t.back {
		var err error
		// Without non-greedy quantifiers PostgreSQL takes the longest of the leftmost matches.
		if re, err = linearPattern(mode+t.out.String(), !t.lazy); err != nil {
			return nil, badRegexp(err)
		}
		if !t.asserts {
			return re, nil
		}
		re.words = t.words
	}
	b := translation{back: true, multiline: strings.Contains(mode, "m")}
	if err := b.translate(source); err != nil {
		return nil, err
	}
	var err error
	re.back, err = compileBacktracker(mode+b.out.String(), !b.lazy)
	return re, badRegexp(err)
}

// badRegexp words a library's error as PostgreSQL does.
func badRegexp(err error) error {
	if err == nil {
		return nil
	}
	reason := err.Error()
	for _, r := range [...][2]string{
		{"missing closing )", "parentheses () not balanced"},
		{"unexpected )", "parentheses () not balanced"},
		{"ot enough )", "parentheses () not balanced"},
		{"oo many )", "parentheses () not balanced"},
		{"missing closing ]", "brackets [] not balanced"},
		{"nterminated []", "brackets [] not balanced"},
		{"missing argument to repetition", "quantifier operand invalid"},
		{"nested repetition", "quantifier operand invalid"},
		{"ested quantifier", "quantifier operand invalid"},
		{"uantifier", "quantifier operand invalid"},
		{"invalid repeat count", "invalid repetition count(s)"},
		{"llegal {x,y}", "invalid repetition count(s)"},
		{"invalid character class range: `[:", "invalid character class"},
		{"invalid character class range", "invalid character range"},
		{"range in reverse order", "invalid character range"},
	} {
		if strings.Contains(reason, r[0]) {
			return pgerr.Newf(pgerr.InvalidRegularExpression, "invalid regular expression: %s", r[1])
		}
	}
	if i := strings.LastIndex(reason, ": "); i >= 0 && strings.HasPrefix(reason, "error parsing regexp: ") {
		reason = strings.TrimPrefix(reason, "error parsing regexp: ")
	}
	return pgerr.Newf(pgerr.InvalidRegularExpression, "invalid regular expression: %s", reason)
}

// stripExpanded removes white space and comments (option x).
func stripExpanded(p string) string {
	var b strings.Builder
	inClass := false
	for i := 0; i < len(p); i++ {
		c := p[i]
		switch {
		case c == '\\' && i+1 < len(p):
			b.WriteString(p[i : i+2])
			i++
			continue
		case c == '[':
			inClass = true
		case c == ']':
			inClass = false
		case !inClass && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			continue
		case !inClass && c == '#':
			for i < len(p) && p[i] != '\n' {
				i++
			}
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

const wordClass = `\p{L}\p{N}_`

// translation rewrites a pattern of PostgreSQL's for a library.
type translation struct {
	out       strings.Builder
	lazy      bool // there is a non-greedy quantifier
	back      bool // there are back references or look-around
	asserts   bool // something is asserted about what is before or behind
	words     bool // boundaries of words are
	multiline bool // for back: $ also matches at the ends of lines
}

func (t *translation) translate(p string) error {
	b := &t.out
	inClass := false
	groups, around, depth := 0, 0, 0 // groups that have begun; depth of parentheses, and of the outermost look-around, 0 for none
	for i := 0; i < len(p); i++ {
		c := p[i]
		switch {
		case c == '\\':
			i++
			if i >= len(p) {
				return pgerr.Newf(pgerr.InvalidRegularExpression, `invalid regular expression: invalid escape \ sequence`)
			}
			if n := map[byte]int{'u': 4, 'U': 8}[p[i]]; n > 0 && i+n < len(p) && isHex(p[i+1:i+1+n]) {
				b.WriteString(`\x{` + p[i+1:i+1+n] + "}")
				i += n
				continue
			}
			if group, digits := referenced(p[i:], groups); digits > 0 && !inClass {
				if group > groups || around > 0 {
					return pgerr.Newf(pgerr.InvalidRegularExpression, "invalid regular expression: invalid backreference number")
				}
				t.back = true
				b.WriteString(`(?:\` + strconv.Itoa(group) + ")")
				i += digits - 1
				continue
			}
			if err := t.escape(p[i], inClass); err != nil {
				return err
			}
		case inClass:
			switch {
			case c == '[' && i+1 < len(p) && p[i+1] == ':':
				end := strings.Index(p[i:], ":]")
				if end < 0 {
					return pgerr.Newf(pgerr.InvalidRegularExpression, "invalid regular expression: brackets [] not balanced")
				}
				b.WriteString(posixClass(p[i+2 : i+end]))
				i += end + 1
			case c == '[' && i+4 < len(p) && (p[i+1] == '.' || p[i+1] == '=') && p[i+3] == p[i+1] && p[i+4] == ']':
				// A collating element or equivalence class of one character is that character.
				b.WriteString(regexp.QuoteMeta(p[i+2 : i+3]))
				i += 4
			case c == '[':
				b.WriteString(`\[`)
			case c == ']':
				inClass = false
				b.WriteByte(c)
			case c == '&' || c == '~':
				b.WriteString(`\` + string(c))
			default:
				b.WriteByte(c)
			}
		case strings.HasPrefix(p[i:], "[[:<:]]") || strings.HasPrefix(p[i:], "[[:>:]]"):
			if err := t.escape(map[bool]byte{true: 'm', false: 'M'}[p[i+3] == '<'], false); err != nil {
				return err
			}
			i += len("[[:<:]]") - 1
		case c == '[':
			inClass = true
			b.WriteByte(c)
			if i+1 < len(p) && p[i+1] == '^' {
				b.WriteByte('^')
				i++
			}
			if i+1 < len(p) && p[i+1] == ']' {
				b.WriteString(`\]`)
				i++
			}
		case c == '(':
			open := lookAround(p[i:])
			depth++
			switch {
			case open != "":
				t.back = true
				if around == 0 {
					around = depth
				}
				b.WriteString(open)
				i += len(open) - 1
			case strings.HasPrefix(p[i:], "(?"):
				b.WriteByte(c)
			case around > 0:
				// Parentheses inside of look-around do not capture.
				b.WriteString("(?:")
			default:
				groups++
				b.WriteByte(c)
			}
		case c == ')':
			if depth == around {
				around = 0
				if i+1 < len(p) && strings.IndexByte("*+?{", p[i+1]) >= 0 {
					return pgerr.Newf(pgerr.InvalidRegularExpression, "invalid regular expression: quantifier operand invalid")
				}
			}
			depth--
			b.WriteByte(c)
		case c == '$' || c == '^':
			t.asserts = true
			if c == '$' && t.back && !t.multiline {
				b.WriteString(`\z`)
			} else {
				b.WriteByte(c)
			}
		case c == '*' && i > 0 && p[i-1] == '^' && (i < 2 || p[i-2] != '\\'):
			return pgerr.Newf(pgerr.InvalidRegularExpression, "invalid regular expression: quantifier operand invalid")
		case c == '{' && tooManyRepeats(p[i+1:]):
			return pgerr.Newf(pgerr.InvalidRegularExpression, "invalid regular expression: invalid repetition count(s)")
		case c == '?' && i > 0 && strings.IndexByte("*+?}", p[i-1]) >= 0 && (i < 2 || p[i-2] != '\\'):
			t.lazy = true
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return nil
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdefABCDEF") == "" }

// maxRepeats is the largest bound of {m,n}.
const maxRepeats = 255

// tooManyRepeats reports whether the bounds that begin s are above the limit.
func tooManyRepeats(s string) bool {
	bounds, _, ok := strings.Cut(s, "}")
	low, high, _ := strings.Cut(bounds, ",")
	for _, v := range [...]string{low, high} {
		if n, err := strconv.Atoi(v); ok && err == nil && n > maxRepeats {
			return true
		}
	}
	return false
}

func posixClass(name string) string {
	switch name {
	case "alpha":
		return `\p{L}`
	case "digit":
		return `\p{Nd}`
	case "alnum":
		return `\p{L}\p{N}`
	case "upper":
		return `\p{Lu}`
	case "lower":
		return `\p{Ll}`
	}
	return "[:" + name + ":]"
}

func (t *translation) escape(c byte, inClass bool) error {
	b := &t.out
	if strings.IndexByte("mMyYA", c) >= 0 && !inClass {
		t.asserts = true
		t.words = t.words || c != 'A'
	}
	switch c {
	case 'w':
		if inClass {
			b.WriteString(wordClass)
		} else {
			b.WriteString("[" + wordClass + "]")
		}
	case 'W':
		b.WriteString("[^" + wordClass + "]")
	case 'm', 'M':
		b.WriteString(`\b`)
		if t.back {
			b.WriteString(map[byte]string{'m': "(?=[" + wordClass + "])", 'M': "(?<=[" + wordClass + "])"}[c])
		}
	case 'y':
		b.WriteString(`\b`)
	case 'Y':
		b.WriteString(`\B`)
	case 'B':
		b.WriteString(`\\`)
	case 'Z':
		b.WriteString(`\z`)
	case 'b':
		b.WriteString(`\x08`)
	case 'e':
		b.WriteString(`\x1b`)
	default:
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c < utf8.RuneSelf {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return nil
}

func regexKernel(flags string, not bool) expr.Kernel {
	return func(f *expr.Frame, args []expr.Arg, out *types.Vector) {
		a, b := args[0], args[1]
		var re *pattern
		last := ""
		for i := range f.Len() {
			r := f.Row(i)
			p := b.Str[b.At(r)]
			if re == nil || p != last {
				var err error
				if re, err = compiled(f, p, flags); err != nil {
					f.Fail(out, r, err)
					continue
				}
				last = p
			}
			found, err := re.match(a.Str[a.At(r)])
			if err != nil {
				f.Fail(out, r, err)
				continue
			}
			out.Bool[r] = found != not
		}
	}
}

// similarToRegexp turns a SIMILAR TO pattern into an anchored regular expression.
func similarToRegexp(p, esc string) (string, error) {
	if utf8.RuneCountInString(esc) > 1 {
		return "", pgerr.Newf(pgerr.InvalidEscapeSequence, "invalid escape string").WithHint("Escape string must be empty or one character.")
	}
	var b strings.Builder
	b.WriteString("^(?:")
	inClass := false
	quotes := 0
	for i := 0; i < len(p); {
		_, w := utf8.DecodeRuneInString(p[i:])
		ch := p[i : i+w]
		i += w
		switch {
		case esc != "" && ch == esc:
			if i >= len(p) {
				b.WriteString(`\\`)
				break
			}
			_, w = utf8.DecodeRuneInString(p[i:])
			next := p[i : i+w]
			i += w
			if next == `"` && !inClass {
				// substring(… similar …): the part between the separators is the result.
				b.WriteString([...]string{"){1,1}?(", "){1,1}(?:", ""}[min(quotes, 2)])
				quotes++
				break
			}
			b.WriteString(`\` + next)
		case inClass:
			if ch == "]" {
				inClass = false
			}
			if ch == `\` {
				b.WriteByte('\\')
			}
			b.WriteString(ch)
		case ch == "[":
			inClass = true
			b.WriteString(ch)
		case ch == "%":
			b.WriteString(".*")
		case ch == "_":
			b.WriteByte('.')
		case ch == "(":
			b.WriteString("(?:")
		case ch == `\` || ch == "." || ch == "^" || ch == "$":
			b.WriteString(`\` + ch)
		default:
			b.WriteString(ch)
		}
	}
	b.WriteString(")$")
	return b.String(), nil
}

func (c *call) pattern(i int) (*pattern, bool, error) {
	flags := ""
	if c.has(i + 1) {
		flags = c.str(i + 1)
	}
	global := strings.Contains(flags, "g")
	re, err := compiled(c.f, c.str(i), flags)
	return re, global, err
}

func textArray(parts []types.Datum) string {
	return types.EncodeArray(types.NewArray(types.OIDText, parts))
}

func textDatum(s string) types.Datum { return types.Datum{Type: types.Text, Str: s} }

// groups returns the parenthesised parts of a match, the whole match when there are none.
func groups(s string, m []int) []types.Datum {
	if len(m) == 2 {
		return []types.Datum{textDatum(s[m[0]:m[1]])}
	}
	out := make([]types.Datum, 0, len(m)/2-1)
	for i := 2; i < len(m); i += 2 {
		if m[i] < 0 {
			out = append(out, types.NullDatum(types.Text))
			continue
		}
		out = append(out, textDatum(s[m[i]:m[i+1]]))
	}
	return out
}

func regexpMatch(c *call) error {
	re, global, err := c.pattern(1)
	if err != nil {
		return err
	}
	if global {
		return pgerr.Newf(pgerr.InvalidParameterValue, "regexp_match() does not support the \"global\" option").WithHint("Use the regexp_matches function instead.")
	}
	m, err := re.find(c.str(0))
	if err != nil {
		return err
	}
	if m == nil {
		c.setNull()
		return nil
	}
	return c.setStr(textArray(groups(c.str(0), m)))
}

func regexpSubstr(c *call) error {
	re, _, err := c.pattern(1)
	if err != nil {
		return err
	}
	m, err := re.find(c.str(0))
	if err != nil {
		return err
	}
	if m == nil {
		c.setNull()
		return nil
	}
	return c.setStr(c.str(0)[m[0]:m[1]])
}

func regexpReplace(c *call) error {
	re, global, err := c.pattern3()
	if err != nil {
		return err
	}
	s, by := c.str(0), c.str(2)
	limit := 1
	if global {
		limit = -1
	}
	matches, err := re.findAll(s, 0, limit)
	if err != nil {
		return err
	}
	var b strings.Builder
	at := 0
	for _, m := range matches {
		b.WriteString(s[at:m[0]])
		expandReplacement(&b, by, s, m)
		at = m[1]
	}
	b.WriteString(s[at:])
	return c.setStr(b.String())
}

// pattern3 is pattern for regexp_replace, whose flags come after the replacement.
func (c *call) pattern3() (*pattern, bool, error) {
	flags := ""
	if c.has(3) {
		flags = c.str(3)
	}
	re, err := compiled(c.f, c.str(1), flags)
	return re, strings.Contains(flags, "g"), err
}

func expandReplacement(b *strings.Builder, by, s string, m []int) {
	for i := 0; i < len(by); i++ {
		if by[i] != '\\' || i+1 >= len(by) {
			b.WriteByte(by[i])
			continue
		}
		i++
		switch c := by[i]; {
		case c == '&':
			b.WriteString(s[m[0]:m[1]])
		case c >= '1' && c <= '9':
			if g := 2 * int(c-'0'); g+1 < len(m) && m[g] >= 0 {
				b.WriteString(s[m[g]:m[g+1]])
			}
		case c == '\\':
			b.WriteByte('\\')
		default:
			b.WriteString(by[i-1 : i+1])
		}
	}
}

// splitRegexp splits s at the matches; empty matches at the ends and right after a match split nothing.
func splitRegexp(re *pattern, s string) ([]types.Datum, error) {
	matches, err := re.findAll(s, 0, -1)
	if err != nil {
		return nil, err
	}
	var out []types.Datum
	at := 0
	for _, m := range matches {
		if m[0] == m[1] && (m[0] == at && m[0] == 0 || m[0] == len(s) || m[0] == at) {
			continue
		}
		out = append(out, textDatum(s[at:m[0]]))
		at = m[1]
	}
	return append(out, textDatum(s[at:])), nil
}

func regexpSplit(c *call) error {
	re, global, err := c.pattern(1)
	if err != nil {
		return err
	}
	if global {
		return pgerr.Newf(pgerr.InvalidParameterValue, "regexp_split_to_array() does not support the \"global\" option")
	}
	parts, err := splitRegexp(re, c.str(0))
	if err != nil {
		return err
	}
	return c.setStr(textArray(parts))
}

func substringRegexp(c *call) error {
	re, err := compiled(c.f, c.str(1), "")
	if err != nil {
		return err
	}
	return c.firstGroup(re)
}

func (c *call) firstGroup(re *pattern) error {
	s := c.str(0)
	m, err := re.find(s)
	if err != nil {
		return err
	}
	if m == nil || len(m) > 2 && m[2] < 0 {
		c.setNull()
		return nil
	}
	if len(m) > 2 {
		return c.setStr(s[m[2]:m[3]])
	}
	return c.setStr(s[m[0]:m[1]])
}

func substringSimilar(c *call) error {
	p, err := similarToRegexp(c.str(1), c.str(2))
	if err != nil {
		return err
	}
	re, err := compiled(c.f, p, "")
	if err != nil {
		return err
	}
	return c.firstGroup(re)
}
