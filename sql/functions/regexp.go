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

// regexpFunctions lists regular expressions. Patterns are PostgreSQL's advanced ones as far as they are regular: back references and
// look-around are refused.
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

type regexCache map[string]*regexp.Regexp

// compiled returns the pattern from the call's cache.
func compiled(f *expr.Frame, pattern, flags string) (*regexp.Regexp, error) {
	cache, _ := f.State.(regexCache)
	key := flags + "\x00" + pattern
	if re, ok := cache[key]; ok {
		return re, nil
	}
	re, err := compileRegexp(pattern, flags)
	if err != nil {
		return nil, err
	}
	if cache == nil || len(cache) >= maxCachedPatterns {
		cache = regexCache{}
		f.State = cache
	}
	cache[key] = re
	return re, nil
}

func compileRegexp(pattern, flags string) (*regexp.Regexp, error) {
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
			pattern = stripExpanded(pattern)
		default:
			return nil, pgerr.Newf(pgerr.InvalidParameterValue, "invalid regular expression option: %q", string(c))
		}
	}
	if !literal {
		// Options at the start, as in (?i)abc, follow those of the flags argument.
		if end := strings.IndexByte(pattern, ')'); strings.HasPrefix(pattern, "(?") && end > 2 && strings.Trim(pattern[2:end], "bceimnpqstwx") == "" {
			return compileRegexp(pattern[end+1:], flags+pattern[2:end])
		}
	}
	if rest, ok := strings.CutPrefix(pattern, "***="); ok {
		pattern, literal = rest, true
	}
	pattern = strings.TrimPrefix(pattern, "***:")
	source := regexp.QuoteMeta(pattern)
	lazy := false
	if !literal {
		var err error
		if source, lazy, err = translateRegexp(pattern); err != nil {
			return nil, err
		}
	}
	if mode != "" {
		source = "(?" + mode + ")" + source
	}
	re, err := regexp.Compile(source)
	if err != nil {
		reason := err.Error()
		if i := strings.LastIndex(reason, ": "); i >= 0 && strings.HasPrefix(reason, "error parsing regexp: ") {
			reason = strings.TrimPrefix(reason, "error parsing regexp: ")
		}
		if strings.Contains(reason, "missing closing )") || strings.Contains(reason, "unexpected )") {
			reason = "parentheses () not balanced"
		} else if strings.Contains(reason, "missing closing ]") {
			reason = "brackets [] not balanced"
		} else if strings.Contains(reason, "missing argument to repetition") {
			reason = "quantifier operand invalid"
		}
		return nil, pgerr.Newf(pgerr.InvalidRegularExpression, "invalid regular expression: %s", reason)
	}
	if !lazy {
		// Without non-greedy quantifiers PostgreSQL takes the longest of the leftmost matches.
		re.Longest()
	}
	return re, nil
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

// translateRegexp rewrites PostgreSQL's escapes to Go's; lazy tells whether a non-greedy quantifier occurs.
func translateRegexp(p string) (out string, lazy bool, err error) {
	var b strings.Builder
	inClass := false
	for i := 0; i < len(p); i++ {
		c := p[i]
		switch {
		case c == '\\':
			i++
			if i >= len(p) {
				return "", false, pgerr.Newf(pgerr.InvalidRegularExpression, `invalid regular expression: invalid escape \ sequence`)
			}
			if n := map[byte]int{'u': 4, 'U': 8}[p[i]]; n > 0 && i+n < len(p) && isHex(p[i+1:i+1+n]) {
				b.WriteString(`\x{` + p[i+1:i+1+n] + "}")
				i += n
				continue
			}
			if p[i] >= '1' && p[i] <= '9' && !inClass && strings.Count(p[:i], "(") < int(p[i]-'0') {
				return "", false, pgerr.Newf(pgerr.InvalidRegularExpression, "invalid regular expression: invalid backreference number")
			}
			if err := translateEscape(&b, p[i], inClass); err != nil {
				return "", false, err
			}
		case inClass:
			switch {
			case c == '[' && i+1 < len(p) && p[i+1] == ':':
				end := strings.Index(p[i:], ":]")
				if end < 0 {
					return "", false, pgerr.Newf(pgerr.InvalidRegularExpression, "invalid regular expression: brackets [] not balanced")
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
			b.WriteString(`\b`)
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
		case strings.HasPrefix(p[i:], "(?=") || strings.HasPrefix(p[i:], "(?!") || strings.HasPrefix(p[i:], "(?<=") || strings.HasPrefix(p[i:], "(?<!"):
			return "", false, pgerr.Newf(pgerr.FeatureNotSupported, "look-around in regular expressions is not supported").WithHint("Match the surroundings and extract the part with parentheses.")
		case c == '*' && i > 0 && p[i-1] == '^' && (i < 2 || p[i-2] != '\\'):
			return "", false, pgerr.Newf(pgerr.InvalidRegularExpression, "invalid regular expression: quantifier operand invalid")
		case c == '{' && tooManyRepeats(p[i+1:]):
			return "", false, pgerr.Newf(pgerr.InvalidRegularExpression, "invalid regular expression: invalid repetition count(s)")
		case c == '?' && i > 0 && strings.IndexByte("*+?}", p[i-1]) >= 0 && (i < 2 || p[i-2] != '\\'):
			lazy = true
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), lazy, nil
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

func translateEscape(b *strings.Builder, c byte, inClass bool) error {
	switch c {
	case 'w':
		if inClass {
			b.WriteString(wordClass)
		} else {
			b.WriteString("[" + wordClass + "]")
		}
	case 'W':
		b.WriteString("[^" + wordClass + "]")
	case 'y', 'm', 'M':
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
	case '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return pgerr.Newf(pgerr.FeatureNotSupported, "back references in regular expressions are not supported")
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
		var re *regexp.Regexp
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
			out.Bool[r] = re.MatchString(a.Str[a.At(r)]) != not
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
			b.WriteString(regexp.QuoteMeta(next))
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

func (c *call) pattern(i int) (*regexp.Regexp, bool, error) {
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
	m := re.FindStringSubmatchIndex(c.str(0))
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
	m := re.FindStringIndex(c.str(0))
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
	var b strings.Builder
	at := 0
	for _, m := range re.FindAllStringSubmatchIndex(s, limit) {
		b.WriteString(s[at:m[0]])
		expandReplacement(&b, by, s, m)
		at = m[1]
	}
	b.WriteString(s[at:])
	return c.setStr(b.String())
}

// pattern3 is pattern for regexp_replace, whose flags come after the replacement.
func (c *call) pattern3() (*regexp.Regexp, bool, error) {
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
func splitRegexp(re *regexp.Regexp, s string) []types.Datum {
	var out []types.Datum
	at := 0
	for _, m := range re.FindAllStringIndex(s, -1) {
		if m[0] == m[1] && (m[0] == at && m[0] == 0 || m[0] == len(s) || m[0] == at) {
			continue
		}
		out = append(out, textDatum(s[at:m[0]]))
		at = m[1]
	}
	return append(out, textDatum(s[at:]))
}

func regexpSplit(c *call) error {
	re, global, err := c.pattern(1)
	if err != nil {
		return err
	}
	if global {
		return pgerr.Newf(pgerr.InvalidParameterValue, "regexp_split_to_array() does not support the \"global\" option")
	}
	return c.setStr(textArray(splitRegexp(re, c.str(0))))
}

func substringRegexp(c *call) error {
	re, err := compiled(c.f, c.str(1), "")
	if err != nil {
		return err
	}
	return c.firstGroup(re)
}

func (c *call) firstGroup(re *regexp.Regexp) error {
	s := c.str(0)
	m := re.FindStringSubmatchIndex(s)
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
