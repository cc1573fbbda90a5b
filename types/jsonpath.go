package types

import (
	"strconv"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// PathKind is the kind of a node of a SQL/JSON path.
type PathKind uint8

// The kinds of nodes. Those from PathOr to PathExists yield truth values.
const (
	PathNull PathKind = iota
	PathBool
	PathNumber
	PathString
	PathVariable
	PathRoot
	PathCurrent
	PathLast
	PathKey
	PathAnyKey
	PathAnyArray
	PathIndex
	PathAny
	PathFilter
	PathMethod
	PathAdd
	PathSub
	PathMul
	PathDiv
	PathMod
	PathPlus
	PathMinus
	PathOr
	PathAnd
	PathNot
	PathIsUnknown
	PathEqual
	PathNotEqual
	PathLess
	PathLessEqual
	PathGreater
	PathGreaterEqual
	PathStartsWith
	PathLikeRegex
	PathExists
)

// PathMaxLevel stands for "last" in the levels of .**{…}.
const PathMaxLevel = 1<<32 - 1

// PathRange is one subscript of an array accessor; To is nil for a single one.
type PathRange struct{ From, To *PathNode }

// PathNode is a node of a path. Next is what is applied to its items.
type PathNode struct {
	Kind        PathKind
	Str         string // PathString, PathVariable, PathKey, PathMethod: the name; PathLikeRegex: the pattern
	Flags       string // PathLikeRegex
	Bool        bool
	Num         Numeric
	Left, Right *PathNode // operands; the argument of a filter, of .datetime()
	Ranges      []PathRange
	First, Last uint32 // levels of PathAny
	Next        *PathNode
}

// Predicate reports whether the node itself yields a truth value.
func (n *PathNode) Predicate() bool { return n.Kind >= PathOr }

// JSONPath is a parsed path.
type JSONPath struct {
	Strict bool
	Root   *PathNode
}

// pathSymbol is the text of the operators between two operands.
var pathSymbol = map[PathKind]string{
	PathAdd: "+", PathSub: "-", PathMul: "*", PathDiv: "/", PathMod: "%", PathOr: "||", PathAnd: "&&", PathEqual: "==", PathNotEqual: "!=",
	PathLess: "<", PathLessEqual: "<=", PathGreater: ">", PathGreaterEqual: ">=", PathStartsWith: "starts with", PathPlus: "+", PathMinus: "-",
}

// Symbol returns the operator as paths spell it.
func (k PathKind) Symbol() string { return pathSymbol[k] }

func (k PathKind) priority() int {
	switch k {
	case PathOr:
		return 0
	case PathAnd:
		return 1
	case PathEqual, PathNotEqual, PathLess, PathLessEqual, PathGreater, PathGreaterEqual, PathStartsWith:
		return 2
	case PathAdd, PathSub:
		return 3
	case PathMul, PathDiv, PathMod:
		return 4
	case PathPlus, PathMinus:
		return 5
	}
	return 6
}

// String returns the canonical text of the path, which is also the stored form.
func (p *JSONPath) String() string {
	var b []byte
	if p.Strict {
		b = append(b, "strict "...)
	}
	return string(p.Root.append(b, false, true))
}

func (n *PathNode) append(b []byte, inKey, brackets bool) []byte {
	operand := func(o *PathNode) { b = o.append(b, false, o.Kind.priority() <= n.Kind.priority()) }
	wrap := func(body func()) {
		if brackets {
			b = append(b, '(')
		}
		body()
		if brackets {
			b = append(b, ')')
		}
	}
	dot := func() {
		if inKey {
			b = append(b, '.')
		}
	}
	switch n.Kind {
	case PathNull:
		b = append(b, "null"...)
	case PathBool:
		b = strconv.AppendBool(b, n.Bool)
	case PathNumber:
		b = n.Num.AppendText(b)
	case PathString:
		b = AppendJSONString(b, n.Str)
	case PathVariable:
		b = AppendJSONString(append(b, '$'), n.Str)
	case PathRoot:
		b = append(b, '$')
	case PathCurrent:
		b = append(b, '@')
	case PathLast:
		b = append(b, "last"...)
	case PathKey:
		dot()
		b = AppendJSONString(b, n.Str)
	case PathAnyKey:
		dot()
		b = append(b, '*')
	case PathAnyArray:
		b = append(b, "[*]"...)
	case PathIndex:
		b = append(b, '[')
		for i, r := range n.Ranges {
			if i > 0 {
				b = append(b, ',')
			}
			b = r.From.append(b, false, false)
			if r.To != nil {
				b = r.To.append(append(b, " to "...), false, false)
			}
		}
		b = append(b, ']')
	case PathAny:
		dot()
		b = n.appendLevels(append(b, "**"...))
	case PathFilter:
		b = append(n.Left.append(append(b, "?("...), false, false), ')')
	case PathMethod:
		b = append(append(append(b, '.'), n.Str...), '(')
		if n.Left != nil {
			b = n.Left.append(b, false, false)
		}
		b = append(b, ')')
	case PathPlus, PathMinus:
		wrap(func() {
			b = append(b, pathSymbol[n.Kind]...)
			operand(n.Left)
		})
	case PathNot:
		b = append(n.Left.append(append(b, "!("...), false, false), ')')
	case PathIsUnknown:
		b = append(n.Left.append(append(b, '('), false, false), ") is unknown"...)
	case PathExists:
		b = append(n.Left.append(append(b, "exists ("...), false, false), ')')
	case PathLikeRegex:
		wrap(func() {
			operand(n.Left)
			b = AppendJSONString(append(b, " like_regex "...), n.Str)
			if n.Flags != "" {
				b = append(append(append(b, ` flag "`...), n.Flags...), '"')
			}
		})
	default:
		wrap(func() {
			operand(n.Left)
			b = append(append(append(b, ' '), pathSymbol[n.Kind]...), ' ')
			operand(n.Right)
		})
	}
	if n.Next != nil {
		b = n.Next.append(b, true, true)
	}
	return b
}

func (n *PathNode) appendLevels(b []byte) []byte {
	level := func(v uint32) {
		if v == PathMaxLevel {
			b = append(b, "last"...)
		} else {
			b = strconv.AppendUint(b, uint64(v), 10)
		}
	}
	if n.First == 0 && n.Last == PathMaxLevel {
		return b
	}
	b = append(b, '{')
	level(n.First)
	if n.Last != n.First {
		b = append(b, " to "...)
		level(n.Last)
	}
	return append(b, '}')
}

// ParseJSONPath reads a SQL/JSON path.
func ParseJSONPath(s string) (*JSONPath, error) {
	p := &pathParser{lex: pathLexer{s: s}}
	if err := p.advance(); err != nil {
		return nil, err
	}
	if p.tok.kind == pathEnd {
		return nil, pgerr.Newf(pgerr.InvalidTextRepresentation, "invalid input syntax for type jsonpath: %q", s)
	}
	out := &JSONPath{}
	if out.Strict = p.word("strict"); out.Strict || p.word("lax") {
		if err := p.advance(); err != nil {
			return nil, err
		}
	}
	var err error
	if out.Root, err = p.or(); err != nil {
		return nil, err
	}
	if p.tok.kind != pathEnd {
		return nil, p.unexpected()
	}
	return out, nil
}
