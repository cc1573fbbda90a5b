package slt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Limits of a run.
const (
	stepTimeout = 20 * time.Second // of one statement; a file in which one takes longer is given up
	// maxRestarts of one file in the mode restart: files with more records are restarted after every k-th.
	maxRestarts = 12
	waitEvery   = 5 * time.Millisecond // between two looks of wait
)

// Variables that every file has.
const (
	dirVariable = "SLT_DIR" // folder of the test file
	tmpVariable = "SLT_TMP" // folder of the run
)

// run is one file in one mode.
type run struct {
	mode     Mode
	target   Target
	records  []*record
	rewrite  bool
	streamdb bool // otherwise PostgreSQL

	sessions  map[string]*session
	vars      map[string]string
	labels    map[string][]string
	threshold int
	views     *viewSet
	restarts  int

	report  FileReport
	changes []change
}

// change is what rewriting does to the file.
type change struct {
	first, last int
	lines       []string
}

// FileReport is the outcome of one file in one mode.
type FileReport struct {
	File, Mode              string
	Passed, Failed, Skipped int
	Views                   int // comparisons with a view that passed
	Restarts                int
	Failures                []string // one text each
	Skips                   []string // file:line: reason
	NotMaterializable       []string // file:line: why
}

// RunFile runs one file in one mode on a server of its own.
func RunFile(ctx context.Context, file string, mode Mode, newServer NewServer) FileReport {
	return runFile(ctx, file, mode, newServer, false)
}

func runFile(ctx context.Context, file string, mode Mode, newServer NewServer, rewrite bool) FileReport {
	r := &run{
		mode: mode, rewrite: rewrite, sessions: map[string]*session{}, vars: map[string]string{}, labels: map[string][]string{},
		report: FileReport{File: file, Mode: mode.Name},
	}
	broken := func(format string, args ...any) FileReport {
		r.report.Failed++
		r.report.Failures = append(r.report.Failures, fmt.Sprintf("%s: [%s] %s\n", file, mode.Name, fmt.Sprintf(format, args...)))
		return r.report
	}
	var err error
	if r.records, err = parseFile(file); err != nil {
		return broken("%v", err)
	}
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return broken("%v", err)
	}
	tmp, err := os.MkdirTemp("", "slt-")
	if err != nil {
		return broken("%v", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // a left-over of a test run is no failure of it
	r.vars[dirVariable], r.vars[tmpVariable] = dir, tmp
	if r.target, err = newServer(ctx, ServerOptions{Durable: mode.restarts || slices.ContainsFunc(r.records, func(x *record) bool { return x.kind == kindRestart }), ChunkRows: mode.chunkRows}); err != nil {
		return broken("open server: %v", err)
	}
	if err := r.all(ctx); err != nil {
		broken("%v", err)
	}
	r.disconnect(ctx)
	if err := r.target.Close(ctx); err != nil {
		broken("close server: %v", err)
	}
	if r.rewrite && len(r.changes) > 0 {
		if err := r.write(); err != nil {
			broken("%v", err)
		}
	}
	return r.report
}

func (r *run) disconnect(ctx context.Context) {
	for _, s := range r.sessions {
		if s.pg != nil {
			_ = s.pg.Close(ctx) // the server may be gone already
			s.pg = nil
		}
	}
}

// session returns the session of a name, connected.
func (r *run) session(ctx context.Context, name string) (*session, error) {
	s := r.sessions[name]
	if s == nil {
		s = &session{}
		r.sessions[name] = s
	}
	if s.pg != nil {
		return s, nil
	}
	pg, err := r.target.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	s.pg = pg
	setup := s.replay
	if r.streamdb {
		setup = append([]string{fmt.Sprintf("SET parallelism = %d", r.mode.parallelism)}, setup...)
	}
	for _, sql := range setup {
		if _, err := s.exec(ctx, sql); err != nil {
			return nil, fmt.Errorf("%s: %w", sql, err)
		}
	}
	return s, nil
}

// all runs the records. An error means that the rest of the file makes no sense.
func (r *run) all(ctx context.Context) error {
	s, err := r.session(ctx, "")
	if err != nil {
		return err
	}
	v, err := s.exec(ctx, "SELECT version()")
	if err != nil {
		return fmt.Errorf("ask for the version: %w", err)
	}
	r.streamdb = len(v.rows) == 1 && strings.Contains(strings.ToLower(v.rows[0][0]), "streamdb")
	if r.streamdb {
		if _, err := s.exec(ctx, fmt.Sprintf("SET parallelism = %d", r.mode.parallelism)); err != nil {
			return fmt.Errorf("set parallelism: %w", err)
		}
	}
	r.views = newViewSet(r)
	every := len(r.records)/maxRestarts + 1
	for i, rec := range r.records {
		if reason, skip := r.skips(rec); skip {
			r.report.Skipped++
			r.report.Skips = append(r.report.Skips, fmt.Sprintf("%s:%d: %s", rec.file, rec.line, reason))
			continue
		}
		if err := r.step(ctx, i, rec); err != nil {
			return fmt.Errorf("%s:%d: %w", rec.file, rec.line, err)
		}
		if r.mode.restarts && (i+1)%every == 0 && i+1 < len(r.records) {
			if err := r.restart(ctx, r.restarts%2 == 0); err != nil {
				return fmt.Errorf("after %s:%d: %w", rec.file, rec.line, err)
			}
		}
	}
	return nil
}

// skips evaluates the conditions of a record.
func (r *run) skips(rec *record) (string, bool) {
	engine := "postgresql"
	if r.streamdb {
		engine = "streamdb"
	}
	for _, c := range rec.conditions {
		if matches := c.label == engine || r.mode.matches(c.label); matches != c.only {
			word := "skipif"
			if c.only {
				word = "onlyif"
			}
			return strings.TrimSpace(fmt.Sprintf("%s %s %s", word, c.label, c.reason)), true
		}
	}
	return "", false
}

// restart stops the server hard and opens it again, where no transaction is open: a transaction block would be lost with it.
func (r *run) restart(ctx context.Context, checkpoint bool) error {
	for _, s := range r.sessions {
		if s.pg != nil && !s.idle() {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if checkpoint && r.streamdb {
		s, err := r.session(ctx, "")
		if err != nil {
			return err
		}
		if _, err := s.exec(ctx, "CHECKPOINT"); err != nil {
			return fmt.Errorf("checkpoint before restart: %w", err)
		}
	}
	r.disconnect(ctx)
	switch err := r.target.Restart(ctx); {
	case errors.Is(err, ErrCannotRestart):
	case err != nil:
		return fmt.Errorf("restart: %w", err)
	default:
		r.restarts++
		r.report.Restarts++
		// Views are readable at once, at the epoch of their checkpoint; files mean what was visible before the stop.
		s, err := r.session(ctx, "")
		if err != nil {
			return err
		}
		if _, err := s.exec(ctx, "FLUSH"); err != nil {
			return fmt.Errorf("flush after restart: %w", err)
		}
	}
	return nil
}

// outcome of a step: passes when problem is "".
func (r *run) settle(rec *record, problem string) {
	if problem == "" {
		r.report.Passed++
		return
	}
	r.report.Failed++
	sql := rec.sql
	if sql != "" {
		sql = "  " + strings.ReplaceAll(sql, "\n", "\n  ") + "\n"
	}
	r.report.Failures = append(r.report.Failures, fmt.Sprintf("%s:%d: [%s]\n%s%s", rec.file, rec.line, r.mode.Name, sql, problem))
}

func (r *run) step(ctx context.Context, at int, rec *record) error {
	limited, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	s, err := r.session(limited, rec.conn)
	if err != nil {
		return err
	}
	problem := ""
	switch rec.kind {
	case kindStatement:
		problem, err = r.statement(limited, s, at, rec)
	case kindQuery:
		problem, err = r.query(limited, s, at, rec)
	case kindFlush:
		problem = r.flush(limited, s)
	case kindCheckpoint:
		if r.streamdb {
			problem = told(s.exec(limited, "CHECKPOINT"))
		}
	case kindRestart:
		err = r.restart(ctx, false)
	case kindLet:
		problem = r.let(limited, s, rec)
	case kindAppend:
		err = r.append(rec)
	case kindWait:
		problem = r.wait(limited, s, rec)
	case kindMalformed:
		problem = rec.problem
	case kindHashThreshold:
		r.threshold = rec.number
	}
	if err != nil {
		return err
	}
	if rec.kind == kindStatement || rec.kind == kindQuery || problem != "" {
		r.settle(rec, problem)
	}
	if limited.Err() != nil {
		return fmt.Errorf("no answer within %v", stepTimeout)
	}
	for _, s := range r.sessions {
		if s.pg != nil && s.pg.IsClosed() {
			return errors.New("the server closed the connection")
		}
	}
	return nil
}

func told(_ *result, err error) string {
	if err != nil {
		return "  error: " + describe(err) + "\n"
	}
	return ""
}

// flush makes all that is committed visible in views.
func (r *run) flush(ctx context.Context, s *session) string {
	if r.streamdb {
		return told(s.exec(ctx, "FLUSH"))
	}
	// Views come after what they read, so their numbers rise in the order in which they have to be refreshed.
	list, err := s.exec(ctx, "SELECT format('REFRESH MATERIALIZED VIEW %I.%I', schemaname, matviewname) FROM pg_matviews ORDER BY format('%I.%I', schemaname, matviewname)::regclass::oid")
	if err != nil {
		return told(nil, err)
	}
	for _, row := range list.rows {
		if _, err := s.exec(ctx, row[0]); err != nil {
			return told(nil, err)
		}
	}
	return ""
}

// variable matches $name and ${name}, but not the parameters $1, $2.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z_0-9]*)\}|\$([A-Za-z_][A-Za-z_0-9]*)`)

// resolved puts the values of variables into a record's SQL; ok is false while one of them is not known. A $word that no loop and no
// let defines is left as it is: it may be part of a dollar-quoted text.
func (r *run) resolved(rec *record) (sql string, ok bool) {
	ok = true
	return variable.ReplaceAllStringFunc(rec.sql, func(m string) string {
		name := strings.Trim(m, "${}")
		if v, found := rec.vars[name]; found {
			return v
		}
		if v, found := r.vars[name]; found {
			return v
		}
		if slices.ContainsFunc(r.records, func(x *record) bool { return x.kind == kindLet && x.name == name }) {
			ok = false
		}
		return m
	}), ok
}

func (r *run) append(rec *record) error {
	path, _ := r.resolved(&record{sql: rec.name, vars: rec.vars})
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("append: %w", err)
	}
	_, err = f.WriteString(strings.Join(rec.want, "\n") + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("append: %w", err)
	}
	return nil
}

// wait looks again and again: nothing tells when rows from outside have arrived.
func (r *run) wait(ctx context.Context, s *session, rec *record) string {
	sql, _ := r.resolved(rec)
	tick := time.NewTicker(waitEvery)
	defer tick.Stop()
	for {
		res, err := s.exec(ctx, sql)
		if err != nil {
			return told(nil, err)
		}
		if len(res.rows) > 0 && res.rows[0][0] == "t" {
			return ""
		}
		select {
		case <-ctx.Done():
			return "  not true within " + stepTimeout.String() + "\n"
		case <-tick.C:
		}
	}
}

func (r *run) let(ctx context.Context, s *session, rec *record) string {
	sql, _ := r.resolved(rec)
	res, err := s.exec(ctx, sql)
	switch {
	case err != nil:
		return told(nil, err)
	case len(res.rows) != 1 || len(res.rows[0]) != 1:
		return fmt.Sprintf("  let needs one value, the query returned %d rows\n", len(res.rows))
	}
	r.vars[rec.name] = res.rows[0][0]
	return ""
}

var sqlstateForm = regexp.MustCompile(`^[0-9A-Z]{5}$`)

// errorProblem compares an error with the one wanted.
func errorProblem(want string, err error) string {
	switch {
	case err == nil:
		return "  want error " + want + "\n  have success\n"
	case sqlstate(err) == "":
		return "  want error " + want + "\n  have " + err.Error() + "\n"
	case want == "", sqlstateForm.MatchString(want) && sqlstate(err) == want:
		return ""
	}
	if !sqlstateForm.MatchString(want) {
		re, rerr := regexp.Compile(want)
		if rerr != nil {
			return "  " + rerr.Error() + "\n"
		}
		if re.MatchString(describe(err)) {
			return ""
		}
	}
	return "  want error " + want + "\n  have error " + describe(err) + "\n"
}

var (
	replayed  = regexp.MustCompile(`(?is)^\s*(SET|RESET|PREPARE|DEALLOCATE)\b`)
	transient = regexp.MustCompile(`(?is)^\s*(SET\s+(LOCAL|TRANSACTION)|PREPARE\s+TRANSACTION)\b`)
)

func (r *run) statement(ctx context.Context, s *session, at int, rec *record) (string, error) {
	sql, ok := r.resolved(rec)
	if !ok {
		return "  a variable has no value yet\n", nil
	}
	if err := r.views.before(ctx, s, sql); err != nil {
		return "", err
	}
	res, err := s.exec(ctx, sql)
	if err == nil && replayed.MatchString(sql) && !transient.MatchString(sql) {
		s.replay = append(s.replay, sql)
	}
	problem := ""
	switch {
	case rec.wantError:
		problem = errorProblem(rec.errorWant, err)
	case err != nil:
		problem = told(nil, err)
	case rec.count >= 0 && res.tag.RowsAffected() != rec.count:
		problem = fmt.Sprintf("  want %d rows touched\n  have %d\n", rec.count, res.tag.RowsAffected())
	}
	if verr := r.views.after(ctx, s, at, rec, sql, err == nil); verr != nil {
		return "", verr
	}
	return problem, nil
}

func (r *run) query(ctx context.Context, s *session, at int, rec *record) (string, error) {
	sql, ok := r.resolved(rec)
	if !ok {
		return "  a variable has no value yet\n", nil
	}
	res, err := s.exec(ctx, sql)
	problem := ""
	switch {
	case rec.wantError:
		problem = errorProblem(rec.errorWant, err)
	case err != nil:
		problem = told(nil, err)
	default:
		problem = r.compareResult(rec, res)
	}
	if ctx.Err() != nil {
		return problem, nil
	}
	vp, err := r.views.check(ctx, s, at, rec, sql, res)
	if err != nil {
		return "", err
	}
	if problem != "" && vp != "" && !strings.HasPrefix(vp, "  view:") {
		vp = ""
	}
	return problem + vp, nil
}

// compareResult checks types and rows, or notes them for rewriting.
func (r *run) compareResult(rec *record, res *result) string {
	if len(res.types) != len(rec.types) {
		if !r.rewrite {
			return fmt.Sprintf("  want %d columns (%s)\n  have %d (%s)\n", len(rec.types), rec.types, len(res.types), letters(res.types))
		}
	}
	if r.rewrite && rec.rewritable {
		out := lines(res.rows, rec.sort)
		if r.threshold > 0 && len(res.rows)*len(res.types) > r.threshold {
			out = []string{digest(res.rows, rec.sort)}
		}
		if compare(rec.want, res.rows, rec.sort, len(res.types)) != "" {
			r.changes = append(r.changes, change{first: rec.first, last: rec.last, lines: out})
		}
		return typesProblem(rec, res)
	}
	if p := typesProblem(rec, res); p != "" {
		return p
	}
	if p := compare(rec.want, res.rows, rec.sort, len(res.types)); p != "" {
		return p
	}
	if rec.label != "" {
		got := lines(res.rows, rec.sort)
		if prev, ok := r.labels[rec.label]; ok {
			if !slices.Equal(prev, got) {
				return "  rows differ from those of the other query labelled " + rec.label + "\n" + diff(prev, got)
			}
		} else {
			r.labels[rec.label] = got
		}
	}
	return ""
}

func typesProblem(rec *record, res *result) string {
	for i, oid := range res.types {
		if i < len(rec.types) && !typeMatches(rec.types[i], oid) {
			return fmt.Sprintf("  want types %s\n  have %s (column %d has type OID %d)\n", rec.types, letters(res.types), i+1, oid)
		}
	}
	return ""
}

// write puts the new expected rows into the file.
func (r *run) write() error {
	data, err := os.ReadFile(r.report.File)
	if err != nil {
		return fmt.Errorf("rewrite: %w", err)
	}
	lines := splitLines(string(data))
	for i := len(r.changes) - 1; i >= 0; i-- {
		c := r.changes[i]
		lines = slices.Concat(lines[:c.first], c.lines, lines[c.last:])
	}
	if err := os.WriteFile(r.report.File, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil { //nolint:gosec // a test file
		return fmt.Errorf("rewrite: %w", err)
	}
	return nil
}
