// Package archtest holds the rules of this codebase that a compiler does not: which package may import which, where third-party libraries may
// be used, and the house style as far as a program can see it. A fixture in testdata/planted breaks every rule, because a checker that can
// only pass rots unseen.
package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Finding is one place where a rule is broken.
type Finding struct {
	Rule string
	File string // path from the root, with slashes
	Line int    // 0: the whole file or package
	Text string
}

func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.Rule, f.Text)
}

// file is one parsed Go file.
type file struct {
	path string // from the root
	dir  string
	text []byte
	set  *token.FileSet
	ast  *ast.File
	test bool
}

func (f *file) line(p token.Pos) int { return f.set.Position(p).Line }

// pkg is the Go files of one directory.
type pkg struct {
	dir   string
	files []*file
}

// rule is one rule. Exactly one of the checks is set.
type rule struct {
	name string
	file func(f *file, report func(token.Pos, string))
	pkg  func(p *pkg, report func(f *file, at token.Pos, text string))
	text func(name string, text []byte, report func(line int, text string))
}

func rules() []rule {
	return []rule{
		{name: "imports", file: checkImports},
		{name: "third-party", file: checkThirdParty},
		{name: "no-init", file: checkInit},
		{name: "no-sleep", file: checkSleep},
		{name: "no-panic", file: checkPanic},
		{name: "file-size", file: checkSize},
		{name: "no-globals", pkg: checkGlobals},
		{name: "package-doc", pkg: checkDoc},
		{name: "nolint-reason", file: checkNolint},
		{name: "banned-words", text: checkWords},
		{name: "machine-paths", text: checkPaths},
	}
}

// Check applies all rules to the tree.
func Check(root fs.FS) ([]Finding, error) {
	files, texts, err := load(root)
	if err != nil {
		return nil, err
	}
	pkgs := map[string]*pkg{}
	for _, f := range files {
		if pkgs[f.dir] == nil {
			pkgs[f.dir] = &pkg{dir: f.dir}
		}
		pkgs[f.dir].files = append(pkgs[f.dir].files, f)
	}
	var found []Finding
	for _, r := range rules() {
		at := func(f *file, p token.Pos, text string) {
			found = append(found, Finding{Rule: r.name, File: f.path, Line: f.line(p), Text: text})
		}
		switch {
		case r.file != nil:
			for _, f := range files {
				r.file(f, func(p token.Pos, text string) { at(f, p, text) })
			}
		case r.pkg != nil:
			for _, p := range pkgs {
				r.pkg(p, at)
			}
		case r.text != nil:
			for name, text := range texts {
				r.text(name, text, func(line int, what string) {
					found = append(found, Finding{Rule: r.name, File: name, Line: line, Text: what})
				})
			}
		}
	}
	slices.SortFunc(found, func(a, b Finding) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		return a.Line - b.Line
	})
	return found, nil
}

// textSuffixes are the files that are read as text.
var textSuffixes = []string{".go", ".md", ".sh", ".sql", ".slt", ".yml", ".yaml", ".mod", "Makefile", "run"}

// load reads the tree. Folders of data, of built files and of hidden files are left out.
func load(root fs.FS) (files []*file, texts map[string][]byte, err error) {
	set := token.NewFileSet()
	texts = map[string][]byte{}
	err = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := path.Base(name); name != "." && (strings.HasPrefix(base, ".") && base != ".ci" || base == "testdata" || base == "bin" || base == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.ContainsFunc(textSuffixes, func(s string) bool { return strings.HasSuffix(name, s) }) {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		texts[name] = text
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		tree, err := parser.ParseFile(set, name, text, parser.ParseComments)
		if err != nil {
			return fmt.Errorf("parse %s: %w", name, err)
		}
		files = append(files, &file{path: name, dir: path.Dir(name), text: text, set: set, ast: tree, test: strings.HasSuffix(name, "_test.go")})
		return nil
	})
	return files, texts, err
}

func importPaths(f *file) (paths []string, at []token.Pos) {
	for _, s := range f.ast.Imports {
		p, err := strconv.Unquote(s.Path.Value)
		if err != nil {
			continue // the parser has seen a string
		}
		paths, at = append(paths, p), append(at, s.Pos())
	}
	return paths, at
}

func checkImports(f *file, report func(token.Pos, string)) {
	paths, at := importPaths(f)
	for i, p := range paths {
		if p == module {
			p = module + "/."
		}
		to, own := strings.CutPrefix(p, module+"/")
		if !own {
			continue
		}
		if why := forbidden(f.dir, to, f.test); why != "" {
			report(at[i], why)
		}
	}
}

func checkThirdParty(f *file, report func(token.Pos, string)) {
	paths, at := importPaths(f)
	for i, p := range paths {
		for _, c := range confined {
			if strings.HasPrefix(p, c.library) && !slices.ContainsFunc(c.in, func(d string) bool { return within(f.dir, d) }) && !(f.test && c.tests) {
				report(at[i], fmt.Sprintf("%s belongs into %s: %s", c.library, strings.Join(c.in, ", "), c.why))
			}
		}
	}
}

func checkInit(f *file, report func(token.Pos, string)) {
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			report(fn.Pos(), "no init(): what a program consists of is written down where it is put together")
		}
	}
}

// checkSleep also looks at tests. In a bubble of testing/synctest time is virtual, and sleeping is exact.
func checkSleep(f *file, report func(token.Pos, string)) {
	paths, _ := importPaths(f)
	if f.test && slices.Contains(paths, "testing/synctest") {
		return
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Sleep" {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" {
				report(n.Pos(), "no time.Sleep: wait for what is to happen")
			}
		}
		return true
	})
}

func checkPanic(f *file, report func(token.Pos, string)) {
	if f.test {
		return
	}
	for dir := range panics {
		if within(f.dir, dir) || f.path == dir {
			return
		}
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok {
			if x, ok := c.Fun.(*ast.Ident); ok && x.Name == "panic" {
				report(n.Pos(), "no panic: return an error")
			}
		}
		return true
	})
}

// maxLines is the size from which on a file is more than one thing. Tables of data and generated code are exempt.
const maxLines = 1000

func checkSize(f *file, report func(token.Pos, string)) {
	n := bytes.Count(f.text, []byte("\n"))
	if n <= maxLines || ast.IsGenerated(f.ast) {
		return
	}
	if _, ok := tables[f.path]; !ok {
		report(f.ast.Package, fmt.Sprintf("%d lines, at most %d: split it", n, maxLines))
	}
}

// checkGlobals allows package-level variables that nothing can change: sentinels and tables. Suspicious are those without a value, those of
// types made to be changed, and those that some function of the package assigns to.
func checkGlobals(p *pkg, report func(f *file, at token.Pos, text string)) {
	names := map[string]bool{}
	for _, f := range p.files {
		if f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			embedded := g.Doc != nil && strings.Contains(commentText(g.Doc), "//go:embed")
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				for _, n := range v.Names {
					if _, ok := globals[p.dir+"."+n.Name]; n.Name == "_" || ok {
						continue
					}
					names[n.Name] = true
					embedded := embedded || v.Doc != nil && strings.Contains(commentText(v.Doc), "//go:embed")
					if len(v.Values) == 0 && !embedded {
						report(f, n.Pos(), n.Name+" has no value: a variable that is set later is global state")
					}
					if t := mutableType(v); t != "" {
						report(f, n.Pos(), fmt.Sprintf("%s is a %s: global state", n.Name, t))
					}
				}
			}
		}
	}
	for _, f := range p.files {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			var targets []ast.Expr
			switch s := n.(type) {
			case *ast.AssignStmt:
				if s.Tok != token.DEFINE {
					targets = s.Lhs
				}
			case *ast.IncDecStmt:
				targets = []ast.Expr{s.X}
			case *ast.CallExpr:
				if x, ok := s.Fun.(*ast.Ident); ok && (x.Name == "delete" || x.Name == "clear") && len(s.Args) > 0 {
					targets = s.Args[:1]
				}
			}
			for _, t := range targets {
				if x := rootIdent(t); x != nil && names[x.Name] && isPackageLevel(f, x) {
					report(f, x.Pos(), x.Name+" is changed: package-level variables are constants")
				}
			}
			return true
		})
	}
}

func commentText(g *ast.CommentGroup) string {
	var b strings.Builder
	for _, c := range g.List {
		b.WriteString(c.Text + "\n")
	}
	return b.String()
}

// mutableType returns the type of a variable that is made to be changed, such as sync.Mutex.
func mutableType(v *ast.ValueSpec) string {
	of := v.Type
	if of == nil && len(v.Values) == 1 {
		value := v.Values[0]
		if u, ok := value.(*ast.UnaryExpr); ok && u.Op == token.AND {
			value = u.X
		}
		if c, ok := value.(*ast.CompositeLit); ok {
			of = c.Type
		}
	}
	if i, ok := of.(*ast.IndexExpr); ok {
		of = i.X
	}
	s, ok := of.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if x, ok := s.X.(*ast.Ident); ok && (x.Name == "sync" || x.Name == "atomic") {
		return x.Name + "." + s.Sel.Name
	}
	return ""
}

func rootIdent(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

// isPackageLevel reports whether a name stands for a declaration of the package: the parser resolves names within the file, and leaves those of
// the package's other files open.
func isPackageLevel(f *file, x *ast.Ident) bool {
	return x.Obj == nil || f.ast.Scope.Lookup(x.Name) == x.Obj
}

func checkDoc(p *pkg, report func(f *file, at token.Pos, text string)) {
	var first *file
	for _, f := range p.files {
		if f.test {
			continue
		}
		if f.ast.Doc != nil {
			return
		}
		if first == nil {
			first = f
		}
	}
	if first != nil {
		report(first, first.ast.Package, "package "+first.ast.Name.Name+" has no doc comment")
	}
}

var nolintForm = regexp.MustCompile(`^//nolint:[a-z0-9,]+ // \S`)

func checkNolint(f *file, report func(token.Pos, string)) {
	for _, g := range f.ast.Comments {
		for _, c := range g.List {
			if strings.HasPrefix(c.Text, "//nolint") && !nolintForm.MatchString(c.Text) {
				report(c.Pos(), "nolint needs the linter's name and a reason: //nolint:name // why")
			}
		}
	}
}

// The words are put together here so that this file does not contain them.
var (
	bannedWords  = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|HA` + `CK|X{3})\b`)
	machinePaths = regexp.MustCompile(`(^|[^A-Za-z0-9_./~$}-])/(wo` + `rk|ho` + `me/[a-z]+|ro` + `ot|Us` + `ers)/`)
)

func checkWords(_ string, text []byte, report func(int, string)) {
	eachMatch(text, bannedWords, func(line int, m string) { report(line, m+": do it, or write down as a limitation what is not done") })
}

func checkPaths(_ string, text []byte, report func(int, string)) {
	eachMatch(text, machinePaths, func(line int, m string) { report(line, strings.TrimSpace(m)+"… exists on one machine only") })
}

func eachMatch(text []byte, re *regexp.Regexp, f func(line int, match string)) {
	for i, line := range bytes.Split(text, []byte("\n")) {
		if m := re.Find(line); m != nil {
			f(i+1, string(m))
		}
	}
}

// within reports whether a folder is another or lies in it.
func within(dir, of string) bool { return dir == of || strings.HasPrefix(dir, of+"/") }
