package functions

import (
	"strings"
	"unicode/utf8"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// regexpPositions lists the regular expression functions that begin at a position and choose among the matches.
func regexpPositions() []entry {
	out := []entry{
		fn("regexp_count(text,text,int4)", "regexp_count('123123123','3',4)", each(regexpCount)), fn("regexp_count(text,text,int4,text)", "regexp_count('ABCabc','b',1,'i')", each(regexpCount)),
		fn("regexp_replace(text,text,text,int4)", "regexp_replace('banana','a','X',3)", each(regexpReplaceFrom)),
		fn("regexp_replace(text,text,text,int4,int4)", "regexp_replace('banana','a','X',1,2)", each(regexpReplaceFrom)),
		fn("regexp_replace(text,text,text,int4,int4,text)", "regexp_replace('bAnana','a','X',1,0,'i')", each(regexpReplaceFrom)),
	}
	args := "text,text"
	for _, next := range [...]string{"", ",int4", ",int4", ",int4", ",text", ",int4"} {
		args += next
		out = append(out, fn("regexp_instr("+args+")", "", each(regexpInstr)))
	}
	args = "text,text"
	for _, next := range [...]string{",int4", ",int4", ",text", ",int4"} {
		args += next
		out = append(out, fn("regexp_substr("+args+")", "", each(regexpSubstrFrom)))
	}
	return out
}

// intArg returns argument i, the default when it is left out, or an error when it is less than least.
func (c *call) intArg(i int, otherwise, least int64, name string) (int64, error) {
	v := otherwise
	if c.has(i) {
		v = c.int(i)
	}
	if v < least {
		return 0, pgerr.Newf(pgerr.InvalidParameterValue, "invalid value for parameter \"%s\": %d", name, v)
	}
	return v, nil
}

// patternOf compiles the pattern of argument 1 with the flags of argument i for a function that gives g no meaning.
func (c *call) patternOf(i int, function string) (*pattern, error) {
	flags := ""
	if c.has(i) {
		flags = c.str(i)
	}
	if strings.Contains(flags, "g") {
		return nil, pgerr.Newf(pgerr.InvalidParameterValue, "%s() does not support the \"global\" option", function)
	}
	return compiled(c.f, c.str(1), flags)
}

// matchesFrom returns the matches in s from character start on, with their groups, as byte offsets. What stands before is seen by \m and its like.
func matchesFrom(re *pattern, s string, start int64) ([][]int, error) {
	if start > int64(utf8.RuneCountInString(s))+1 {
		return nil, nil
	}
	return re.findAll(s, charOffset(s, start-1), -1)
}

func regexpCount(c *call) error {
	start, err := c.intArg(2, 1, 1, "start")
	if err != nil {
		return err
	}
	re, err := c.patternOf(3, "regexp_count")
	if err != nil {
		return err
	}
	matches, err := matchesFrom(re, c.str(0), start)
	if err != nil {
		return err
	}
	return c.setInt(int64(len(matches)))
}

// group returns the byte range of a group of the n-th match, ok false when there is none.
func group(matches [][]int, n, sub int64) (from, to int, ok bool) {
	if n > int64(len(matches)) {
		return 0, 0, false
	}
	m := matches[n-1]
	if 2*sub+1 >= int64(len(m)) || m[2*sub] < 0 {
		return 0, 0, false
	}
	return m[2*sub], m[2*sub+1], true
}

func regexpInstr(c *call) error {
	start, err := c.intArg(2, 1, 1, "start")
	if err != nil {
		return err
	}
	n, err := c.intArg(3, 1, 1, "n")
	if err != nil {
		return err
	}
	end := int64(0)
	if c.has(4) {
		if end = c.int(4); end != 0 && end != 1 {
			return pgerr.Newf(pgerr.InvalidParameterValue, "invalid value for parameter \"endoption\": %d", end)
		}
	}
	sub, err := c.intArg(6, 0, 0, "subexpr")
	if err != nil {
		return err
	}
	re, err := c.patternOf(5, "regexp_instr")
	if err != nil {
		return err
	}
	s := c.str(0)
	matches, err := matchesFrom(re, s, start)
	if err != nil {
		return err
	}
	from, to, ok := group(matches, n, sub)
	if !ok {
		return c.setInt(0)
	}
	if end == 1 {
		from = to
	}
	return c.setInt(int64(utf8.RuneCountInString(s[:from])) + 1)
}

func regexpSubstrFrom(c *call) error {
	start, err := c.intArg(2, 1, 1, "start")
	if err != nil {
		return err
	}
	n, err := c.intArg(3, 1, 1, "n")
	if err != nil {
		return err
	}
	sub, err := c.intArg(5, 0, 0, "subexpr")
	if err != nil {
		return err
	}
	re, err := c.patternOf(4, "regexp_substr")
	if err != nil {
		return err
	}
	s := c.str(0)
	matches, err := matchesFrom(re, s, start)
	if err != nil {
		return err
	}
	from, to, ok := group(matches, n, sub)
	if !ok {
		c.setNull()
		return nil
	}
	return c.setStr(s[from:to])
}

// regexpReplaceFrom is regexp_replace with a position to begin at and the number of the match to replace, 0 for all. Without a number the
// flag g decides; with one it has no meaning.
func regexpReplaceFrom(c *call) error {
	start, err := c.intArg(3, 1, 1, "start")
	if err != nil {
		return err
	}
	n, err := c.intArg(4, 1, 0, "n")
	if err != nil {
		return err
	}
	flags := ""
	if c.has(5) {
		flags = c.str(5)
	}
	re, err := compiled(c.f, c.str(1), flags)
	if err != nil {
		return err
	}
	s, by := c.str(0), c.str(2)
	matches, err := matchesFrom(re, s, start)
	if err != nil {
		return err
	}
	var b strings.Builder
	at := 0
	for i, m := range matches {
		if n != 0 && int64(i)+1 != n {
			continue
		}
		b.WriteString(s[at:m[0]])
		expandReplacement(&b, by, s, m)
		at = m[1]
	}
	b.WriteString(s[at:])
	return c.setStr(b.String())
}

func regexpLike(c *call) error {
	re, err := c.patternOf(2, "regexp_like")
	if err != nil {
		return err
	}
	found, err := re.match(c.str(0))
	if err != nil {
		return err
	}
	return c.setBool(found)
}

// parseIdent is parse_ident(name [, strict]): the parts of a qualified identifier.
func parseIdent(c *call) error {
	s := c.str(0)
	strict := !c.has(1) || c.bool(1)
	bad := func(detail string) error {
		e := pgerr.Newf(pgerr.InvalidParameterValue, "string is not a valid identifier: \"%s\"", s)
		if detail != "" {
			e = e.WithDetail("%s", detail)
		}
		return e
	}
	const blanks = " \t\n\r\f\v"
	rest := strings.TrimLeft(s, blanks)
	var parts []types.Datum
	for {
		switch {
		case strings.HasPrefix(rest, `"`):
			var b strings.Builder
			rest = rest[1:]
			for {
				i := strings.IndexByte(rest, '"')
				if i < 0 {
					return bad("String has unclosed double quotes.")
				}
				b.WriteString(rest[:i])
				rest = rest[i+1:]
				if !strings.HasPrefix(rest, `"`) {
					break
				}
				b.WriteByte('"')
				rest = rest[1:]
			}
			if b.Len() == 0 {
				return bad("Quoted identifier must not be empty.")
			}
			parts = append(parts, textDatum(b.String()))
		default:
			n := 0
			for n < len(rest) && (identStart(rest[n]) || n > 0 && (rest[n] >= '0' && rest[n] <= '9' || rest[n] == '$')) {
				n++
			}
			if n == 0 {
				switch {
				case strings.HasPrefix(rest, "."):
					return bad("No valid identifier before \".\".")
				case len(parts) > 0:
					return bad("No valid identifier after \".\".")
				}
				return bad("")
			}
			parts = append(parts, textDatum(strings.ToLower(rest[:n])))
			rest = rest[n:]
		}
		rest = strings.TrimLeft(rest, blanks)
		if strings.HasPrefix(rest, ".") {
			rest = strings.TrimLeft(rest[1:], blanks)
			continue
		}
		if rest != "" && strict {
			return bad("")
		}
		return c.setStr(textArray(parts))
	}
}

func identStart(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
