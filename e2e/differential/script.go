//go:build e2e

package differential

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// maxExpansion bounds the statements that one template may stand for.
const maxExpansion = 4000

// script is one file of statements:
//
//	-- comments
//	--! views                       each query is also run as a materialized view
//	--! exact                       all fields of errors, notices and the state of the transaction are compared too
//	--! list name = a | b | c       {name} in a statement stands for each of them; several lists make all combinations
//	--! run text                    one statement, whatever its quotes and semicolons
//	--! setup                       the statements up to the next line are run on both servers and must succeed on both
//	--! queries                     the statements that are compared; statements end with a semicolon
//
// What a statement needs besides its text follows it (see call).
type script struct {
	family  string
	views   bool
	exact   bool
	setup   []string
	queries []string
}

var placeholder = regexp.MustCompile(`\{([a-z][a-z0-9]*)\}`)

func readScript(path string) (*script, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &script{family: strings.TrimSuffix(filepath.Base(path), ".sql")}
	lists := map[string][]string{}
	into := &s.queries
	var body strings.Builder
	flush := func() error {
		for _, st := range splitStatements(body.String()) {
			expanded, err := expand(st, lists)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			*into = append(*into, expanded...)
		}
		body.Reset()
		return nil
	}
	for line := range strings.Lines(string(text)) {
		directive, ok := strings.CutPrefix(line, "--!")
		if !ok {
			body.WriteString(line)
			continue
		}
		if err := flush(); err != nil {
			return nil, err
		}
		word, rest, _ := strings.Cut(strings.TrimSpace(directive), " ")
		switch word {
		case "run":
			*into = append(*into, rest)
		case "views":
			s.views = true
		case "exact":
			s.exact = true
		case "setup":
			into = &s.setup
		case "queries":
			into = &s.queries
		case "list":
			name, values, _ := strings.Cut(rest, "=")
			var list []string
			for _, v := range strings.Split(values, " | ") {
				list = append(list, strings.TrimSpace(v))
			}
			lists[strings.TrimSpace(name)] = list
		default:
			return nil, fmt.Errorf("%s: unknown directive %q", path, word)
		}
	}
	return s, flush()
}

// expand replaces the placeholders of a statement by all combinations of their lists' values.
func expand(st string, lists map[string][]string) ([]string, error) {
	out := []string{st}
	for {
		m := placeholder.FindStringSubmatch(out[0])
		if m == nil || lists[m[1]] == nil {
			return out, nil
		}
		var next []string
		for _, s := range out {
			for _, v := range lists[m[1]] {
				next = append(next, strings.ReplaceAll(s, m[0], v))
			}
		}
		if len(next) > maxExpansion {
			return nil, fmt.Errorf("%q stands for more than %d statements", st, maxExpansion)
		}
		out = next
	}
}

// splitStatements cuts a text at the semicolons outside of quotes and comments.
func splitStatements(text string) []string {
	var out []string
	var b strings.Builder
	for i := 0; i < len(text); {
		n := tokenLength(text[i:])
		token := text[i : i+n]
		i += n
		switch {
		case strings.HasPrefix(token, "--"):
		case token == ";":
			if st := strings.TrimSpace(b.String()); st != "" {
				out = append(out, st)
			}
			b.Reset()
		default:
			b.WriteString(token)
		}
	}
	if st := strings.TrimSpace(b.String()); st != "" {
		out = append(out, st)
	}
	return out
}

var dollarTag = regexp.MustCompile(`^\$([A-Za-z_]*)\$`)

// tokenLength returns the length of the quoted text or comment at the start of s, 1 for anything else.
func tokenLength(s string) int {
	end := func(from int, stop string) int {
		if i := strings.Index(s[from:], stop); i >= 0 {
			return from + i + len(stop)
		}
		return len(s)
	}
	switch {
	case strings.HasPrefix(s, "--"):
		return end(2, "\n") - min(1, strings.Count(s, "\n"))
	case strings.HasPrefix(s, "/*"):
		return end(2, "*/")
	case s[0] == '"':
		return end(1, `"`)
	case s[0] == '\'':
		return end(1, "'")
	case len(s) > 1 && (s[0] == 'E' || s[0] == 'e') && s[1] == '\'':
		for i := 2; i < len(s); i++ {
			switch s[i] {
			case '\\':
				i++
			case '\'':
				return i + 1
			}
		}
		return len(s)
	case s[0] == '$':
		if m := dollarTag.FindString(s); m != "" {
			return end(len(m), m)
		}
	case wordStart(s[0]):
		n := 1
		for n < len(s) && (wordStart(s[n]) || s[n] >= '0' && s[n] <= '9') {
			n++
		}
		return n
	}
	return 1
}

func wordStart(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
