package slt

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Limits of files.
const (
	maxIncludeDepth = 8
	maxRecords      = 1_000_000 // after loops
)

// parser turns the lines of one file into records.
type parser struct {
	file  string
	lines []string
	at    int
	depth int // of includes
	loops int

	out        []*record
	conn       string
	conditions []condition
	vars       map[string]string
}

// parseFile reads the records of a file and of those that it includes.
func parseFile(path string) ([]*record, error) {
	p := &parser{file: path}
	if err := p.load(); err != nil {
		return nil, err
	}
	if _, err := p.records(""); err != nil {
		return nil, err
	}
	return p.out, nil
}

func (p *parser) load() error {
	data, err := os.ReadFile(p.file)
	if err != nil {
		return fmt.Errorf("read test file: %w", err)
	}
	p.lines = splitLines(string(data))
	return nil
}

func splitLines(s string) []string {
	lines := strings.Split(strings.ReplaceAll(s, "\r\n", "\n"), "\n")
	if n := len(lines); n > 0 && lines[n-1] == "" {
		lines = lines[:n-1]
	}
	return lines
}

func (p *parser) errorf(line int, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", p.file, line+1, fmt.Sprintf(format, args...))
}

// records parses up to the directive end, or to the end of the file when end is empty. halted tells that the rest is to be ignored.
func (p *parser) records(end string) (halted bool, err error) {
	start := p.at
	for p.at < len(p.lines) {
		line := strings.TrimSpace(p.lines[p.at])
		if line == "" || line[0] == '#' {
			p.at++
			continue
		}
		words := strings.Fields(line)
		if words[0] == end {
			p.at++
			return false, nil
		}
		if words[0] == "halt" && !p.skipsHalt() {
			return true, nil
		}
		if err := p.directive(line, words); err != nil {
			return false, err
		}
		if len(p.out) > maxRecords {
			return false, p.errorf(p.at, "more than %d records", maxRecords)
		}
	}
	if end != "" {
		return false, p.errorf(start-1, "%s is missing", end)
	}
	return false, nil
}

// skipsHalt consumes the conditions before a halt: "onlyif mysql" and the like belong to other products' runs of a shared file.
func (p *parser) skipsHalt() bool {
	skip := slices.ContainsFunc(p.conditions, func(c condition) bool { return c.only != (c.label == "postgresql" || c.label == "streamdb") })
	p.conditions = nil
	return skip
}

func (p *parser) directive(line string, words []string) error {
	at := p.at
	p.at++
	switch words[0] {
	case "halt":
		return nil
	case "statement":
		p.orMalformed(at, p.statement(at, line, words))
	case "query":
		p.orMalformed(at, p.query(at, line, words))
	case "flush":
		p.add(&record{line: at + 1, kind: kindFlush})
	case "checkpoint":
		p.add(&record{line: at + 1, kind: kindCheckpoint})
	case "restart":
		p.add(&record{line: at + 1, kind: kindRestart})
	case "connection":
		if len(words) != 2 {
			return p.errorf(at, "connection needs one name")
		}
		p.conn = words[1]
		if p.conn == "default" {
			p.conn = ""
		}
	case "let":
		if len(words) != 2 || !isVariable(words[1]) {
			return p.errorf(at, "let needs one $name")
		}
		r := &record{line: at + 1, kind: kindLet, name: words[1][1:]}
		if err := p.sql(r, "let needs a query"); err != nil {
			return err
		}
		p.add(r)
	case "append":
		if len(words) != 2 {
			return p.errorf(at, "append needs one path")
		}
		start := p.at
		for p.at < len(p.lines) && strings.TrimSpace(p.lines[p.at]) != "" {
			p.at++
		}
		p.add(&record{line: at + 1, kind: kindAppend, name: words[1], want: p.lines[start:p.at]})
	case "wait":
		r := &record{line: at + 1, kind: kindWait}
		if err := p.sql(r, "wait needs a query"); err != nil {
			return err
		}
		p.add(r)
	case "hash-threshold":
		n, err := strconv.Atoi(strings.Join(words[1:], " "))
		if err != nil || n < 0 {
			return p.errorf(at, "hash-threshold needs a number")
		}
		p.add(&record{line: at + 1, kind: kindHashThreshold, number: n})
	case "skipif", "onlyif":
		if len(words) < 2 {
			return p.errorf(at, "%s needs a label", words[0])
		}
		c := condition{only: words[0] == "onlyif", label: words[1]}
		if i := strings.Index(line, "#"); i >= 0 {
			c.reason = strings.TrimSpace(line[i+1:])
		}
		p.conditions = append(p.conditions, c)
	case "include":
		return p.include(at, words)
	case "for", "foreach":
		if len(words) < 4 || !isVariable(words[1]) || words[2] != "in" {
			return p.errorf(at, "for needs: for $name in VALUES")
		}
		return p.repeat(words[1][1:], words[3:], "endfor")
	case "loop":
		return p.loop(at, words)
	case "sleep":
		return p.errorf(at, "sleep is not allowed: use flush, WAIT or CHECKPOINT, which end when what they wait for is there")
	default:
		return p.errorf(at, "unknown directive %q", words[0])
	}
	return nil
}

func isVariable(s string) bool { return len(s) > 1 && s[0] == '$' }

// add completes a record with what holds at its place.
func (p *parser) add(r *record) {
	r.file, r.conn, r.conditions = p.file, p.conn, p.conditions
	r.vars = p.vars
	r.rewritable = p.loops == 0 && p.depth == 0
	p.out = append(p.out, r)
	p.conn, p.conditions = "", nil
}

// orMalformed makes what is wrong with a statement or query a record that fails, so that the others of the file run.
func (p *parser) orMalformed(at int, err error) {
	if err == nil {
		return
	}
	for p.at < len(p.lines) && strings.TrimSpace(p.lines[p.at]) != "" {
		p.at++
	}
	p.add(&record{line: at + 1, kind: kindMalformed, sql: p.lines[at], problem: "  " + err.Error() + "\n"})
}

// text reads the lines of SQL up to an empty line, or to ----, which it leaves.
func (p *parser) text() (string, error) {
	start := p.at
	for p.at < len(p.lines) && strings.TrimSpace(p.lines[p.at]) != "" && strings.TrimRight(p.lines[p.at], " \t") != "----" {
		p.at++
	}
	lines, err := p.filed(start)
	return strings.TrimSuffix(strings.TrimSpace(strings.Join(lines, "\n")), ";"), err
}

// sql reads the SQL of a record; missing says what is wrong when there is none.
func (p *parser) sql(r *record, missing string) (err error) {
	if r.sql, err = p.text(); err == nil && r.sql == "" {
		err = p.errorf(r.line-1, "%s", missing)
	}
	return err
}

// filed returns the lines from start on. Instead of a line \i PATH those of the file stand.
func (p *parser) filed(start int) (out []string, err error) {
	for i, line := range p.lines[start:p.at] {
		words := strings.Fields(line)
		if len(words) != 2 || words[0] != `\i` {
			out = append(out, line)
			continue
		}
		data, err := os.ReadFile(filepath.Join(filepath.Dir(p.file), words[1]))
		if err != nil {
			return nil, p.errorf(start+i, "%v", err)
		}
		out = append(out, splitLines(string(data))...)
	}
	return out, nil
}

func (p *parser) atResults() bool {
	return p.at < len(p.lines) && strings.TrimRight(p.lines[p.at], " \t") == "----"
}

func (p *parser) statement(at int, line string, words []string) error {
	r := &record{line: at + 1, kind: kindStatement, count: -1}
	if len(words) < 2 {
		return p.errorf(at, "statement needs ok, count or error")
	}
	switch words[1] {
	case "ok":
	case "count":
		n, err := strconv.ParseInt(strings.Join(words[2:], " "), 10, 64)
		if err != nil {
			return p.errorf(at, "statement count needs a number")
		}
		r.count = n
	case "error":
		r.wantError = true
		r.errorWant = after(line, 2)
	default:
		return p.errorf(at, "statement needs ok, count or error")
	}
	if err := p.sql(r, "statement without SQL"); err != nil {
		return err
	}
	if p.atResults() {
		return p.errorf(p.at, "a statement has no rows; use query")
	}
	p.add(r)
	return nil
}

// after returns the line without its first n words.
func after(line string, n int) string {
	for range n {
		line = strings.TrimLeft(line, " \t")
		i := strings.IndexAny(line, " \t")
		if i < 0 {
			return ""
		}
		line = line[i:]
	}
	return strings.TrimSpace(line)
}

func (p *parser) query(at int, line string, words []string) error {
	r := &record{line: at + 1, kind: kindQuery, count: -1}
	if len(words) < 2 {
		return p.errorf(at, "query needs the types of its columns")
	}
	if words[1] == "error" {
		r.wantError, r.errorWant = true, after(line, 2)
	} else {
		r.types = words[1]
		if i := strings.IndexFunc(r.types, func(c rune) bool { return !strings.ContainsRune("IRBT", c) }); i >= 0 {
			return p.errorf(at, "type %q is none of I, R, B, T", r.types[i:i+1])
		}
		mode := "nosort"
		if len(words) > 2 {
			mode = words[2]
		}
		switch mode {
		case "nosort":
		case "rowsort":
			r.sort = rowSort
		case "valuesort":
			r.sort = valueSort
		default:
			return p.errorf(at, "sort mode %q is none of nosort, rowsort, valuesort", mode)
		}
		if len(words) > 3 {
			r.label = words[3]
		}
		if len(words) > 4 {
			return p.errorf(at, "unexpected %q after the label", words[4])
		}
	}
	if err := p.sql(r, "query without SQL"); err != nil {
		return err
	}
	r.first, r.last = p.at, p.at
	if p.atResults() {
		p.at++
		r.first = p.at
		for p.at < len(p.lines) && strings.TrimSpace(p.lines[p.at]) != "" {
			p.at++
		}
		r.last = p.at
		want, err := p.filed(r.first)
		if err != nil {
			return err
		}
		r.want = want
	} else if !r.wantError {
		return p.errorf(at, "query without ----")
	}
	p.add(r)
	r.rewritable = r.rewritable && slices.Equal(r.want, p.lines[r.first:r.last])
	return nil
}

func (p *parser) include(at int, words []string) error {
	if len(words) != 2 {
		return p.errorf(at, "include needs one path")
	}
	if p.depth == maxIncludeDepth {
		return p.errorf(at, "includes are nested deeper than %d", maxIncludeDepth)
	}
	in := &parser{file: filepath.Join(filepath.Dir(p.file), words[1]), depth: p.depth + 1, vars: p.vars, loops: p.loops}
	if err := in.load(); err != nil {
		return p.errorf(at, "%v", err)
	}
	if _, err := in.records(""); err != nil {
		return err
	}
	p.out = append(p.out, in.out...)
	return nil
}

func (p *parser) loop(at int, words []string) error {
	if len(words) != 4 || !isVariable(words[1]) {
		return p.errorf(at, "loop needs: loop $name FROM TO")
	}
	from, err := strconv.Atoi(words[2])
	if err != nil {
		return p.errorf(at, "loop needs numbers")
	}
	to, err := strconv.Atoi(words[3])
	if err != nil || to-from > maxRecords {
		return p.errorf(at, "loop needs numbers at most %d apart", maxRecords)
	}
	var values []string
	for i := from; i < to; i++ {
		values = append(values, strconv.Itoa(i))
	}
	return p.repeat(words[1][1:], values, "endloop")
}

// repeat parses the body once per value: its records differ in their variables.
func (p *parser) repeat(name string, values []string, end string) error {
	outer, body := p.vars, p.at
	p.loops++
	defer func() { p.loops, p.vars = p.loops-1, outer }()
	if len(values) == 0 {
		keep := p.out
		_, err := p.records(end)
		p.out = keep
		return err
	}
	for _, v := range values {
		p.at = body
		p.vars = maps.Clone(outer)
		if p.vars == nil {
			p.vars = map[string]string{}
		}
		p.vars[name] = v
		halted, err := p.records(end)
		if err != nil {
			return err
		}
		if halted {
			return p.errorf(body-1, "halt inside a loop")
		}
	}
	return nil
}
