package functions

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
)

const (
	// maxMatchTime bounds the search in one value by a pattern that backtracks: its time can grow exponentially with the value's length.
	maxMatchTime = time.Second
	// maxLongerPatterns bounds the compiled variants that a pattern keeps.
	maxLongerPatterns = 256
)

// pattern is a compiled regular expression. Those without back references and look-around run in linear time, the others backtrack. So do
// those with assertions where the linear library does not see what they ask for. A pattern belongs to one goroutine.
type pattern struct {
	linear *regexp.Regexp
	empty  *emptyMatches // of linear, nil when it cannot match the empty string
	back   *backtracker
	words  bool // there are boundaries of words: linear knows those of ASCII
}

// within makes a long search end when the evaluation does.
func (p *pattern) within(f *expr.Frame) {
	if p.back != nil {
		p.back.interrupted = f.Interrupted
	}
}

// backtracks reports whether to look for the pattern in s with the matcher that backtracks.
func (p *pattern) backtracks(s string, from int) bool {
	return p.linear == nil || p.back != nil && (from > 0 || p.words && !ascii(s))
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func linearPattern(source string, longest bool) (*pattern, error) {
	tree, err := syntax.Parse(source, syntax.Perl)
	if err != nil {
		return nil, err
	}
	compile := func(source string) *regexp.Regexp {
		var re *regexp.Regexp
		if re, err = regexp.Compile(source); err == nil && longest {
			re.Longest()
		}
		return re
	}
	p := &pattern{linear: compile(source)}
	if err == nil && mayBeEmpty(tree) {
		p.empty = &emptyMatches{inside: compile(`\A(?s:.)(?:` + source + `)(?s:.)\z`)}
		if err == nil {
			p.empty.atEnd = compile(`\A(?s:.)(?:` + source + `)\z`)
		}
	}
	return p, err
}

func mayBeEmpty(tree *syntax.Regexp) bool {
	switch tree.Op {
	case syntax.OpNoMatch, syntax.OpLiteral, syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return false
	case syntax.OpConcat:
		return !slices.ContainsFunc(tree.Sub, func(t *syntax.Regexp) bool { return !mayBeEmpty(t) })
	case syntax.OpAlternate:
		return slices.ContainsFunc(tree.Sub, mayBeEmpty)
	case syntax.OpCapture, syntax.OpPlus:
		return mayBeEmpty(tree.Sub[0])
	case syntax.OpRepeat:
		return tree.Min == 0 || mayBeEmpty(tree.Sub[0])
	}
	return true // what may be left out, and assertions
}

// emptyMatches finds empty matches right after another match, which the library leaves out. Whether there is one depends on the characters
// before and behind it only: the patterns match these two, or the last one, with nothing between or behind.
type emptyMatches struct{ inside, atEnd *regexp.Regexp }

// at returns the empty match at byte at of s, which is not the start, nil for none.
func (e *emptyMatches) at(s string, at int) []int {
	_, before := utf8.DecodeLastRuneInString(s[:at])
	re, to := e.atEnd, at
	if at < len(s) {
		_, behind := utf8.DecodeRuneInString(s[at:])
		re, to = e.inside, at+behind
	}
	m := re.FindStringSubmatchIndex(s[at-before : to])
	if m == nil {
		return nil
	}
	m[0], m[1] = at, at
	for i := 2; i < len(m); i++ {
		if m[i] >= 0 {
			m[i] = at
		}
	}
	return m
}

// match reports whether the pattern occurs in s.
func (p *pattern) match(s string) (bool, error) {
	if !p.backtracks(s, 0) {
		return p.linear.MatchString(s), nil
	}
	m, err := p.back.all(s, 0, 1, false)
	return len(m) > 0, err
}

// find returns the byte offsets of the first match and its groups, nil for none.
func (p *pattern) find(s string) ([]int, error) {
	if !p.backtracks(s, 0) {
		return p.linear.FindStringSubmatchIndex(s), nil
	}
	m, err := p.back.all(s, 0, 1, true)
	if len(m) == 0 {
		return nil, err
	}
	return m[0], err
}

// findAll returns the first n matches in s from a byte on, all when n is negative.
func (p *pattern) findAll(s string, from, n int) ([][]int, error) {
	if p.backtracks(s, from) {
		return p.back.all(s, from, n, true)
	}
	matches := p.linear.FindAllStringSubmatchIndex(s[from:], n)
	for _, m := range matches {
		for i := range m {
			if m[i] >= 0 {
				m[i] += from
			}
		}
	}
	if p.empty == nil || len(matches) == n {
		return matches, nil
	}
	var out [][]int
	for i, m := range matches {
		out = append(out, m)
		if m[0] == m[1] || i+1 < len(matches) && matches[i+1][0] == m[1] {
			continue
		}
		if e := p.empty.at(s, m[1]); e != nil {
			out = append(out, e)
		}
	}
	if n >= 0 && len(out) > n {
		out = out[:n]
	}
	return out, nil
}

// backtracker matches with back references and look-around.
type backtracker struct {
	source      string
	re          *regexp2.Regexp
	interrupted func() error            // of the environment in which it is used, or nil
	longest     bool                    // the longest of the leftmost matches is taken
	longer      map[int]*regexp2.Regexp // source, at the start of the search, with at most so many characters behind the match
}

func compileBacktracker(source string, longest bool) (*backtracker, error) {
	re, err := regexp2.Compile(source, regexp2.RE2)
	if err != nil {
		return nil, err
	}
	return &backtracker{source: source, re: re, longest: longest, longer: map[int]*regexp2.Regexp{}}, nil
}

func (b *backtracker) all(s string, from, n int, extend bool) ([][]int, error) {
	deadline := time.Now().Add(maxMatchTime)
	text := []rune(s)
	start := 0
	offsets := make([]int, 0, len(text)+1)
	for i := range s {
		if i < from {
			start++
		}
		offsets = append(offsets, i)
	}
	offsets = append(offsets, len(s))
	var out [][]int
	for at := start; at <= len(text) && (n < 0 || len(out) < n); {
		if b.interrupted != nil {
			if err := b.interrupted(); err != nil {
				return nil, err
			}
		}
		m, err := b.search(b.re, text, at, deadline)
		if err != nil {
			return nil, err
		}
		if m == nil {
			break
		}
		if extend && b.longest {
			if m, err = b.extend(m, text, deadline); err != nil {
				return nil, err
			}
		}
		if at = m.Index + m.Length; m.Length == 0 {
			at++
		}
		groups := m.Groups()
		found := make([]int, 0, 2*len(groups))
		for i := range groups {
			g := &groups[i]
			if len(g.Captures) == 0 {
				found = append(found, -1, -1)
				continue
			}
			found = append(found, offsets[g.Index], offsets[g.Index+g.Length])
		}
		out = append(out, found)
	}
	return out, nil
}

// extend returns the longest match that begins where m does. A backtracking matcher finds the first in the order of its alternatives, so the
// pattern is tried again with less and less text behind the match until there is none.
func (b *backtracker) extend(m *regexp2.Match, text []rune, deadline time.Time) (*regexp2.Match, error) {
	for {
		rest := len(text) - m.Index - m.Length - 1
		if rest < 0 {
			return m, nil
		}
		re := b.longer[rest]
		if re == nil {
			var err error
			if re, err = regexp2.Compile(`\G(?:`+b.source+`)(?!(?s:.){`+strconv.Itoa(rest+1)+`})`, regexp2.RE2); err != nil {
				return nil, err
			}
			if len(b.longer) >= maxLongerPatterns {
				clear(b.longer)
			}
			b.longer[rest] = re
		}
		next, err := b.search(re, text, m.Index, deadline)
		if err != nil {
			return nil, err
		}
		if next == nil {
			return m, nil
		}
		m = next
	}
}

func (b *backtracker) search(re *regexp2.Regexp, text []rune, at int, deadline time.Time) (*regexp2.Match, error) {
	if re.MatchTimeout = time.Until(deadline); re.MatchTimeout > 0 {
		m, err := re.FindRunesMatchStartingAt(text, at)
		if err == nil {
			return m, nil
		}
	}
	return nil, pgerr.Newf(pgerr.ProgramLimitExceeded, "regular expression with back references or look-around took longer than %s for one value", maxMatchTime)
}

// referenced returns the group that the digits at the start of s refer to, with the number of digits, 0 for none: two digits count only when
// there are that many groups.
func referenced(s string, groups int) (group, digits int) {
	if s == "" || s[0] < '1' || s[0] > '9' {
		return 0, 0
	}
	group = int(s[0] - '0')
	if len(s) > 1 && s[1] >= '0' && s[1] <= '9' {
		if two := 10*group + int(s[1]-'0'); two <= groups {
			return two, 2
		}
	}
	return group, 1
}

// lookAround returns the opening of the look-around at the start of s, "" for none.
func lookAround(s string) string {
	for _, open := range [...]string{"(?=", "(?!", "(?<=", "(?<!"} {
		if len(s) >= len(open) && s[:len(open)] == open {
			return open
		}
	}
	return ""
}
