package types

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/streamdb/streamdb/internal/pgerr"
)

type pathTokenKind uint8

const (
	pathEnd    pathTokenKind = iota
	pathPunct                // operators and brackets, in text
	pathIdent                // a name or a keyword
	pathQuoted               // "…"
	pathVar                  // $name and $"…"
	pathInt
	pathDecimal
)

type pathToken struct {
	kind pathTokenKind
	text string
	from int
}

// pathLexer cuts a path into tokens.
type pathLexer struct {
	s   string
	pos int
}

const pathSpecial = "?%$.[]{}()|&!=<>@#,*:-+/ \t\n\r\f\"\\"

var pathOperators = [...]string{"&&", "||", "**", "<>", "==", "!=", "<=", ">="}

func (l *pathLexer) next() (pathToken, error) {
	for l.pos < len(l.s) {
		if strings.HasPrefix(l.s[l.pos:], "/*") {
			end := strings.Index(l.s[l.pos+2:], "*/")
			if end < 0 {
				return pathToken{}, pgerr.Newf(pgerr.SyntaxError, "unexpected end of comment at end of jsonpath input")
			}
			l.pos += end + 4
			continue
		}
		if strings.IndexByte(" \t\n\r\f", l.s[l.pos]) < 0 {
			break
		}
		l.pos++
	}
	from := l.pos
	if from >= len(l.s) {
		return pathToken{from: from}, nil
	}
	c := l.s[from]
	switch {
	case c == '"':
		text, err := l.quoted()
		return pathToken{pathQuoted, text, from}, err
	case c == '$':
		l.pos++
		if l.pos < len(l.s) && l.s[l.pos] == '"' {
			text, err := l.quoted()
			return pathToken{pathVar, text, from}, err
		}
		text, err := l.name()
		if text == "" {
			return pathToken{pathPunct, "$", from}, err
		}
		return pathToken{pathVar, text, from}, err
	case isDigit(c) || c == '.' && from+1 < len(l.s) && isDigit(l.s[from+1]):
		return l.number()
	case strings.IndexByte(pathSpecial, c) >= 0 && c != '\\':
		for _, op := range pathOperators {
			if strings.HasPrefix(l.s[from:], op) {
				l.pos += len(op)
				return pathToken{pathPunct, op, from}, nil
			}
		}
		l.pos++
		return pathToken{pathPunct, l.s[from:l.pos], from}, nil
	}
	text, err := l.name()
	return pathToken{pathIdent, text, from}, err
}

func (l *pathLexer) number() (pathToken, error) {
	from, kind := l.pos, pathInt
	digits := func() {
		for l.pos < len(l.s) && isDigit(l.s[l.pos]) {
			l.pos++
		}
	}
	if l.s[l.pos] == '0' && l.pos+1 < len(l.s) && isDigit(l.s[l.pos+1]) {
		return pathToken{}, pgerr.Newf(pgerr.SyntaxError, "trailing junk after numeric literal at or near %q of jsonpath input", l.s[l.pos:l.pos+2])
	}
	digits()
	if l.pos < len(l.s) && l.s[l.pos] == '.' && !strings.HasPrefix(l.s[l.pos:], ".*") && (l.pos+1 >= len(l.s) || !wordByte(l.s[l.pos+1]) || isDigit(l.s[l.pos+1])) {
		kind = pathDecimal
		l.pos++
		digits()
	}
	if l.pos < len(l.s) && (l.s[l.pos] == 'e' || l.s[l.pos] == 'E') {
		at := l.pos
		l.pos++
		if l.pos < len(l.s) && (l.s[l.pos] == '+' || l.s[l.pos] == '-') {
			l.pos++
		}
		start := l.pos
		if digits(); l.pos == start {
			return pathToken{}, pgerr.Newf(pgerr.SyntaxError, "trailing junk after numeric literal at or near %q of jsonpath input", l.s[from:min(at+1, len(l.s))])
		}
		kind = pathDecimal
	}
	if l.pos < len(l.s) && wordByte(l.s[l.pos]) {
		return pathToken{}, pgerr.Newf(pgerr.SyntaxError, "trailing junk after numeric literal at or near %q of jsonpath input", l.s[from:l.pos+1])
	}
	return pathToken{kind, l.s[from:l.pos], from}, nil
}

func wordByte(c byte) bool { return strings.IndexByte(pathSpecial, c) < 0 }

// name reads an unquoted name, in which escapes may stand.
func (l *pathLexer) name() (string, error) {
	var b strings.Builder
	for l.pos < len(l.s) {
		c := l.s[l.pos]
		if c == '\\' {
			r, err := l.escape()
			if err != nil {
				return "", err
			}
			b.WriteRune(r)
			continue
		}
		if !wordByte(c) {
			break
		}
		b.WriteByte(c)
		l.pos++
	}
	return b.String(), nil
}

func (l *pathLexer) quoted() (string, error) {
	var b strings.Builder
	for l.pos++; l.pos < len(l.s); {
		switch c := l.s[l.pos]; c {
		case '"':
			l.pos++
			return b.String(), nil
		case '\\':
			r, err := l.escape()
			if err != nil {
				return "", err
			}
			b.WriteRune(r)
		default:
			b.WriteByte(c)
			l.pos++
		}
	}
	return "", pgerr.Newf(pgerr.SyntaxError, "unterminated quoted string at end of jsonpath input")
}

func (l *pathLexer) escape() (rune, error) {
	l.pos++
	if l.pos >= len(l.s) {
		return 0, pgerr.Newf(pgerr.SyntaxError, "unexpected end after backslash at end of jsonpath input")
	}
	c := l.s[l.pos]
	if i := strings.IndexByte("bfnrtv", c); i >= 0 {
		l.pos++
		return rune("\b\f\n\r\t\v"[i]), nil
	}
	hex := func(n int) (rune, bool) {
		if l.pos+n > len(l.s) {
			return 0, false
		}
		v, err := strconv.ParseUint(l.s[l.pos:l.pos+n], 16, 32)
		l.pos += n
		return rune(v), err == nil
	}
	switch c {
	case 'x':
		l.pos++
		if r, ok := hex(2); ok {
			return r, nil
		}
		return 0, pgerr.Newf(pgerr.SyntaxError, "invalid hex character sequence at or near %q of jsonpath input", l.s[max(0, l.pos-4):min(l.pos, len(l.s))])
	case 'u':
		return l.unicode(hex)
	}
	r, w := utf8.DecodeRuneInString(l.s[l.pos:])
	l.pos += w
	return r, nil
}

// unicode reads \uXXXX, pairs of surrogates, and \u{X…}.
func (l *pathLexer) unicode(hex func(int) (rune, bool)) (rune, error) {
	bad := func() (rune, error) {
		return 0, pgerr.Newf(pgerr.SyntaxError, "invalid Unicode escape sequence at or near %q of jsonpath input", l.s[max(0, l.pos-2):min(l.pos+1, len(l.s))])
	}
	l.pos++
	var r rune
	var ok bool
	if l.pos < len(l.s) && l.s[l.pos] == '{' {
		l.pos++
		end := strings.IndexByte(l.s[l.pos:], '}')
		const maxHexDigits = 6
		if end < 1 || end > maxHexDigits {
			return bad()
		}
		if r, ok = hex(end); !ok {
			return bad()
		}
		l.pos++
	} else if r, ok = hex(4); !ok {
		return bad()
	}
	if r >= 0xD800 && r < 0xDC00 && strings.HasPrefix(l.s[l.pos:], `\u`) {
		l.pos += 2
		low, ok := hex(4)
		if !ok || low < 0xDC00 || low > 0xDFFF {
			return 0, pgerr.Newf(pgerr.InvalidTextRepresentation, "invalid input syntax for type jsonpath").WithDetail("Unicode low surrogate must follow a high surrogate.")
		}
		return 0x10000 + (r-0xD800)<<10 + (low - 0xDC00), nil
	}
	switch {
	case r == 0:
		return 0, pgerr.Newf(pgerr.UntranslatableCharacter, "unsupported Unicode escape sequence").WithDetail("\\u0000 cannot be converted to text.")
	case r >= 0xD800 && r <= 0xDFFF:
		return 0, pgerr.Newf(pgerr.InvalidTextRepresentation, "invalid input syntax for type jsonpath").WithDetail("Unicode low surrogate must follow a high surrogate.")
	case r > utf8.MaxRune:
		return bad()
	}
	return r, nil
}

// pathParser is a parser by recursive descent, one method per level of precedence.
type pathParser struct {
	lex       pathLexer
	tok       pathToken
	depth     int
	filters   int // nesting of filters: @ is allowed
	subscript int // nesting of array subscripts: last is allowed
}

func (p *pathParser) advance() (err error) {
	p.tok, err = p.lex.next()
	return err
}

func (p *pathParser) unexpected() error {
	near := p.tok.text
	switch p.tok.kind {
	case pathIdent:
		// The name is not named: PostgreSQL's lexer has gone on to what ends it.
		rest := p.lex.s[p.lex.pos:]
		near = rest[:len(rest)-len(strings.TrimLeft(rest, " \t\n\r\f"))]
	case pathVar:
		near = p.lex.s[p.tok.from:p.lex.pos]
	}
	if p.tok.kind == pathEnd || near == "" {
		return pgerr.Newf(pgerr.SyntaxError, "syntax error at end of jsonpath input")
	}
	return pgerr.Newf(pgerr.SyntaxError, "syntax error at or near \"%s\" of jsonpath input", near)
}

func (p *pathParser) punct(s string) bool { return p.tok.kind == pathPunct && p.tok.text == s }

func (p *pathParser) word(w string) bool {
	return p.tok.kind == pathIdent && strings.EqualFold(p.tok.text, w)
}

func (p *pathParser) expect(s string) error {
	if !p.punct(s) {
		return p.unexpected()
	}
	return p.advance()
}

func (p *pathParser) expectWord(w string) error {
	if !p.word(w) {
		return p.unexpected()
	}
	return p.advance()
}

// binary reads operands at one level of precedence, joined from the left.
func (p *pathParser) binary(operand func() (*PathNode, error), predicates bool, ops map[string]PathKind) (*PathNode, error) {
	left, err := operand()
	if err != nil {
		return nil, err
	}
	for p.tok.kind == pathPunct {
		kind, ok := ops[p.tok.text]
		if !ok {
			break
		}
		if left.isPredicate() != predicates {
			return nil, p.unexpected()
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
		right, err := operand()
		if err != nil {
			return nil, err
		}
		if right.isPredicate() != predicates {
			return nil, p.unexpected()
		}
		left = &PathNode{Kind: kind, Left: left, Right: right}
	}
	return left, nil
}

// isPredicate reports whether a chain of nodes is a bare condition: one with accessors after it is an expression.
func (n *PathNode) isPredicate() bool { return n.Predicate() && n.Next == nil }

var (
	pathOrOps  = map[string]PathKind{"||": PathOr}
	pathAndOps = map[string]PathKind{"&&": PathAnd}
	pathAddOps = map[string]PathKind{"+": PathAdd, "-": PathSub}
	pathMulOps = map[string]PathKind{"*": PathMul, "/": PathDiv, "%": PathMod}
	pathCmpOps = map[string]PathKind{
		"==": PathEqual, "!=": PathNotEqual, "<>": PathNotEqual, "<": PathLess, "<=": PathLessEqual, ">": PathGreater, ">=": PathGreaterEqual,
	}
)

func (p *pathParser) or() (*PathNode, error) {
	if p.depth++; p.depth > maxJSONDepth {
		return nil, pgerr.Newf(pgerr.StatementTooComplex, "stack depth limit exceeded")
	}
	defer func() { p.depth-- }()
	return p.binary(p.and, true, pathOrOps)
}

func (p *pathParser) and() (*PathNode, error) { return p.binary(p.not, true, pathAndOps) }

func (p *pathParser) not() (*PathNode, error) {
	if !p.punct("!") {
		return p.comparison()
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if !p.punct("(") && !p.word("exists") {
		return nil, p.unexpected()
	}
	arg, err := p.primary()
	if err != nil {
		return nil, err
	}
	if !arg.isPredicate() {
		return nil, p.unexpected()
	}
	return &PathNode{Kind: PathNot, Left: arg}, nil
}

func (p *pathParser) comparison() (*PathNode, error) {
	left, err := p.add()
	if err != nil {
		return nil, err
	}
	kind, compares := pathCmpOps[p.tok.text]
	switch {
	case p.tok.kind == pathPunct && compares:
		if left.isPredicate() {
			return nil, p.unexpected()
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
		right, err := p.add()
		if err != nil {
			return nil, err
		}
		if right.isPredicate() {
			return nil, p.unexpected()
		}
		return &PathNode{Kind: kind, Left: left, Right: right}, nil
	case p.word("starts") && !left.isPredicate():
		if err := p.advance(); err != nil {
			return nil, err
		}
		if err := p.expectWord("with"); err != nil {
			return nil, err
		}
		n := &PathNode{Kind: PathStartsWith, Left: left, Right: &PathNode{Kind: PathString, Str: p.tok.text}}
		switch p.tok.kind {
		case pathQuoted:
		case pathVar:
			n.Right.Kind = PathVariable
		default:
			return nil, p.unexpected()
		}
		return n, p.advance()
	case p.word("like_regex") && !left.isPredicate():
		return p.likeRegex(left)
	}
	return left, nil
}

// pathRegexFlags are the flags of like_regex in the order in which paths are printed.
const pathRegexFlags = "ismxq"

func (p *pathParser) likeRegex(left *PathNode) (*PathNode, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.tok.kind != pathQuoted {
		return nil, p.unexpected()
	}
	n := &PathNode{Kind: PathLikeRegex, Left: left, Str: p.tok.text}
	if err := p.advance(); err != nil || !p.word("flag") {
		return n, err
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.tok.kind != pathQuoted {
		return nil, p.unexpected()
	}
	for _, c := range p.tok.text {
		if !strings.ContainsRune(pathRegexFlags, c) {
			return nil, pgerr.Newf(pgerr.SyntaxError, "invalid input syntax for type jsonpath").
				WithDetail("Unrecognized flag character \"%c\" in LIKE_REGEX predicate.", c)
		}
	}
	for _, c := range pathRegexFlags {
		if strings.ContainsRune(p.tok.text, c) {
			n.Flags += string(c)
		}
	}
	if strings.Contains(n.Flags, "x") && !strings.Contains(n.Flags, "q") {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "XQuery \"x\" flag (expanded regular expressions) is not implemented")
	}
	return n, p.advance()
}

func (p *pathParser) add() (*PathNode, error) { return p.binary(p.mul, false, pathAddOps) }

func (p *pathParser) mul() (*PathNode, error) { return p.binary(p.unary, false, pathMulOps) }

func (p *pathParser) unary() (*PathNode, error) {
	kind := PathPlus
	switch {
	case p.punct("-"):
		kind = PathMinus
	case !p.punct("+"):
		return p.primary()
	}
	if p.depth++; p.depth > maxJSONDepth {
		return nil, pgerr.Newf(pgerr.StatementTooComplex, "stack depth limit exceeded")
	}
	defer func() { p.depth-- }()
	if err := p.advance(); err != nil {
		return nil, err
	}
	arg, err := p.unary()
	if err != nil {
		return nil, err
	}
	if arg.isPredicate() {
		return nil, p.unexpected()
	}
	// A sign before a number is part of it.
	if arg.Kind == PathNumber && arg.Next == nil {
		if kind == PathMinus {
			arg.Num = NumNeg(arg.Num)
		}
		return arg, nil
	}
	return &PathNode{Kind: kind, Left: arg}, nil
}

func (p *pathParser) primary() (*PathNode, error) {
	n := &PathNode{Str: p.tok.text}
	switch p.tok.kind {
	case pathQuoted:
		n.Kind = PathString
	case pathVar:
		n.Kind = PathVariable
	case pathInt, pathDecimal:
		num, err := ParseNumeric(p.tok.text)
		if err != nil {
			return nil, err
		}
		n.Kind, n.Num = PathNumber, num
	case pathPunct:
		switch p.tok.text {
		case "$":
			n.Kind = PathRoot
		case "@":
			if p.filters == 0 {
				return nil, pgerr.Newf(pgerr.SyntaxError, "@ is not allowed in root expressions")
			}
			n.Kind = PathCurrent
		case "(":
			return p.parenthesized()
		default:
			return nil, p.unexpected()
		}
	case pathIdent:
		switch {
		case p.tok.text == "null":
			n.Kind = PathNull
		case p.tok.text == "true", p.tok.text == "false":
			n.Kind, n.Bool = PathBool, p.tok.text == "true"
		case p.word("last"):
			if p.subscript == 0 {
				return nil, pgerr.Newf(pgerr.SyntaxError, "LAST is allowed only in array subscripts")
			}
			n.Kind = PathLast
		case p.word("exists"):
			return p.exists()
		default:
			return nil, p.unexpected()
		}
	default:
		return nil, p.unexpected()
	}
	if err := p.advance(); err != nil {
		return nil, err
	}
	return n, p.accessors(n)
}

func (p *pathParser) exists() (*PathNode, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	if err := p.expect("("); err != nil {
		return nil, err
	}
	arg, err := p.or()
	if err != nil {
		return nil, err
	}
	if arg.isPredicate() {
		return nil, p.unexpected()
	}
	return &PathNode{Kind: PathExists, Left: arg}, p.expect(")")
}

func (p *pathParser) parenthesized() (*PathNode, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	inner, err := p.or()
	if err != nil {
		return nil, err
	}
	if err := p.expect(")"); err != nil {
		return nil, err
	}
	if inner.isPredicate() && p.word("is") {
		if err := p.advance(); err != nil {
			return nil, err
		}
		return &PathNode{Kind: PathIsUnknown, Left: inner}, p.expectWord("unknown")
	}
	last := inner
	for last.Next != nil {
		last = last.Next
	}
	return inner, p.accessors(last)
}

// accessors reads what may follow an expression and chains it to n.
func (p *pathParser) accessors(n *PathNode) error {
	for {
		var next *PathNode
		var err error
		switch {
		case p.punct("."):
			next, err = p.member()
		case p.punct("["):
			next, err = p.subscripts()
		case p.punct("?"):
			next, err = p.filter()
		default:
			return nil
		}
		if err != nil {
			return err
		}
		n.Next, n = next, next
	}
}

func (p *pathParser) filter() (*PathNode, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	if err := p.expect("("); err != nil {
		return nil, err
	}
	p.filters++
	arg, err := p.or()
	p.filters--
	if err != nil {
		return nil, err
	}
	if !arg.isPredicate() {
		return nil, p.unexpected()
	}
	return &PathNode{Kind: PathFilter, Left: arg}, p.expect(")")
}

func (p *pathParser) subscripts() (*PathNode, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.punct("*") {
		if err := p.advance(); err != nil {
			return nil, err
		}
		return &PathNode{Kind: PathAnyArray}, p.expect("]")
	}
	n := &PathNode{Kind: PathIndex}
	p.subscript++
	defer func() { p.subscript-- }()
	index := func() (*PathNode, error) {
		e, err := p.or()
		if err == nil && e.isPredicate() {
			err = p.unexpected()
		}
		return e, err
	}
	for {
		var r PathRange
		var err error
		if r.From, err = index(); err != nil {
			return nil, err
		}
		if p.word("to") {
			if err := p.advance(); err != nil {
				return nil, err
			}
			if r.To, err = index(); err != nil {
				return nil, err
			}
		}
		n.Ranges = append(n.Ranges, r)
		if !p.punct(",") {
			return n, p.expect("]")
		}
		if err := p.advance(); err != nil {
			return nil, err
		}
	}
}

var pathMethods = []string{"type", "size", "abs", "floor", "ceiling", "double", "keyvalue", "datetime"}

func (p *pathParser) member() (*PathNode, error) {
	if err := p.advance(); err != nil {
		return nil, err
	}
	n := &PathNode{Kind: PathKey, Str: p.tok.text}
	switch {
	case p.punct("*"):
		n.Kind, n.Str = PathAnyKey, ""
		return n, p.advance()
	case p.punct("**"):
		return p.anyLevels()
	case p.tok.kind != pathIdent && p.tok.kind != pathQuoted:
		return nil, p.unexpected()
	}
	method := p.tok.kind == pathIdent && slices.Contains(pathMethods, strings.ToLower(n.Str))
	if err := p.advance(); err != nil || !method || !p.punct("(") {
		return n, err
	}
	n.Kind, n.Str = PathMethod, strings.ToLower(n.Str)
	if err := p.advance(); err != nil {
		return nil, err
	}
	if n.Str == "datetime" && p.tok.kind == pathQuoted {
		n.Left = &PathNode{Kind: PathString, Str: p.tok.text}
		if err := p.advance(); err != nil {
			return nil, err
		}
	}
	return n, p.expect(")")
}

func (p *pathParser) anyLevels() (*PathNode, error) {
	n := &PathNode{Kind: PathAny, Last: PathMaxLevel}
	if err := p.advance(); err != nil || !p.punct("{") {
		return n, err
	}
	level := func() (uint32, error) {
		if err := p.advance(); err != nil {
			return 0, err
		}
		v := uint64(PathMaxLevel)
		if !p.word("last") {
			var err error
			if v, err = strconv.ParseUint(p.tok.text, 10, 32); err != nil || p.tok.kind != pathInt {
				return 0, p.unexpected()
			}
		}
		return uint32(v), p.advance()
	}
	var err error
	if n.First, err = level(); err != nil {
		return nil, err
	}
	if n.Last = n.First; p.word("to") {
		if n.Last, err = level(); err != nil {
			return nil, err
		}
	}
	return n, p.expect("}")
}
