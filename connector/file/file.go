// Package file reads rows from files: whole ones, or growing ones like logs, by path or pattern.
package file

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/connector/format"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// Names of the options.
const (
	optPath   = "path"
	optFollow = "file.follow"
	optFlush  = "file.idle.flush.ms"
)

// Defaults and limits.
const (
	defaultFlushMillis = 10_000
	maxFlushMillis     = 86_400_000
	gzipSuffix         = ".gz"
	patternChars       = `*?[\`
)

// Connector makes file sources.
type Connector struct {
	now func() time.Time
}

// New returns the connector.
func New() *Connector { return &Connector{now: time.Now} }

// Name implements connector.Connector.
func (*Connector) Name() string { return "file" }

// NeedsEncode implements connector.Connector.
func (*Connector) NeedsEncode() bool { return true }

// Options implements connector.Connector.
func (*Connector) Options() []connector.Option {
	return []connector.Option{
		{
			Name: optPath, Required: true, Check: func(s string) error {
				if s == "" {
					return pgerr.Newf(pgerr.InvalidParameterValue, "the path is empty")
				}
				if _, err := filepath.Match(s, ""); err != nil {
					return pgerr.Wrap(pgerr.InvalidParameterValue, err, "invalid pattern \"%s\"", s)
				}
				return nil
			},
			Doc: "A file, or a pattern with *, ? and […], on the server, relative to its working directory. Each file is one split. " +
				"Files whose names end in .gz are decompressed and read once.",
		},
		{
			Name: optFollow, Default: "true", Check: connector.CheckBool,
			Doc: "true: wait for more rows at the end of the files, and for more files. false: the source ends with the files there are.",
		},
		{
			Name: optFlush, Default: strconv.Itoa(defaultFlushMillis), Check: connector.CheckInt(0, maxFlushMillis),
			Doc: "While following: a last line without line end becomes a row when the file has not changed for so many milliseconds. 0: never.",
		},
	}
}

// Schema implements connector.Connector.
func (*Connector) Schema(cfg *connector.SourceConfig) (types.Schema, error) {
	if len(cfg.Columns) == 0 {
		return nil, pgerr.Newf(pgerr.InvalidObjectDefinition, "a file source needs its columns declared").
			WithHint("For example: CREATE SOURCE s (id bigint, name varchar) WITH (connector = 'file', path = 'data.csv') FORMAT PLAIN ENCODE CSV.")
	}
	if err := format.Check(&format.Config{Encode: cfg.Encode, Options: cfg.EncodeOptions, Schema: cfg.Columns}); err != nil {
		return nil, err
	}
	v := connector.Values{Options: cfg.Options}
	path, follow := v.String("", optPath), v.Bool(true, optFollow)
	if v.Err != nil {
		return nil, v.Err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, pgerr.Newf(pgerr.WrongObjectType, "\"%s\" is a directory", path).WithHint("Use a pattern: %s.", filepath.Join(path, "*"))
	}
	if !follow {
		paths, err := list(path)
		if err != nil {
			return nil, err
		}
		if len(paths) == 0 {
			return nil, pgerr.Newf(pgerr.UndefinedFile, "could not open file \"%s\" for reading: No such file or directory", path).
				WithHint("Relative paths start at the server's working directory.")
		}
	}
	return cfg.Columns, nil
}

// Source implements connector.Connector.
func (cn *Connector) Source(_ context.Context, cfg *connector.SourceConfig) (connector.Source, error) {
	v := connector.Values{Options: cfg.Options}
	s := &source{
		path: v.String("", optPath), follow: v.Bool(true, optFollow), now: cn.now, taken: map[identity]string{},
		flush:  time.Duration(v.Int(defaultFlushMillis, optFlush)) * time.Millisecond,
		format: format.Config{Encode: cfg.Encode, Options: cfg.EncodeOptions, Schema: cfg.Columns},
	}
	if v.Err != nil {
		return nil, v.Err
	}
	if s.path == "" {
		return nil, pgerr.Newf(pgerr.InvalidParameterValue, "option \"%s\" is missing", optPath)
	}
	return s, format.Check(&s.format)
}

type source struct {
	path   string
	follow bool
	flush  time.Duration
	format format.Config
	now    func() time.Time
	// known are the files seen by Splits, by path, nil before the first listing; moved are the paths of those that were split under another.
	known map[string]os.FileInfo
	moved map[string]bool

	mu sync.Mutex
	// taken are the paths of the readers that have files open, so that one renamed before Splits has seen it is not split again.
	taken map[identity]string
}

func (s *source) take(id identity, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken[id] = path
}

func (s *source) release(id identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.taken, id)
}

// takenFrom reports whether a reader of another path has the file.
func (s *source) takenFrom(path string, info os.FileInfo) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.taken[identityOf(info)]
	if !ok || p == path {
		return false
	}
	at, err := os.Stat(p)
	return err != nil || !os.SameFile(at, info) // a link to it is a split like any other
}

// list returns the files that a path or pattern means, in alphabetical order.
func list(path string) ([]string, error) {
	paths := []string{path}
	if strings.ContainsAny(path, patternChars) {
		if _, err := os.Lstat(path); err != nil { // a file may be called like a pattern
			if paths, err = filepath.Glob(path); err != nil {
				return nil, pgerr.Wrap(pgerr.InvalidParameterValue, err, "invalid pattern \"%s\"", path)
			}
		}
	}
	files := paths[:0]
	for _, p := range paths {
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() {
			files = append(files, p)
		}
	}
	sort.Strings(files)
	return files, nil
}

// Splits implements connector.Source: one split per file, its id is the path. A file that was renamed from a path that is a split already is
// none of its own: the reader of that path reads it to its end.
func (s *source) Splits(context.Context) ([]connector.Split, error) {
	paths, err := list(s.path)
	if err != nil {
		return nil, err
	}
	first := s.known == nil
	if first {
		s.known, s.moved = map[string]os.FileInfo{}, map[string]bool{}
	}
	var splits []connector.Split
	infos := map[string]os.FileInfo{}
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			continue // gone since it was listed
		}
		if _, ok := s.known[p]; !ok && (!first && s.renamed(info) || s.takenFrom(p, info)) {
			s.moved[p] = true
		}
		infos[p] = info
		if !s.moved[p] {
			splits = append(splits, connector.Split{ID: p})
		}
	}
	maps.Copy(s.known, infos)
	return splits, nil
}

// renamed reports whether the file was listed under another path, which it has left since.
func (s *source) renamed(info os.FileInfo) bool {
	for p, k := range s.known {
		if !os.SameFile(k, info) {
			continue
		}
		if now, err := os.Stat(p); err != nil || !os.SameFile(now, info) {
			return true
		}
	}
	return false
}

// Bounded implements connector.Source.
func (s *source) Bounded() bool { return !s.follow }

// Close implements connector.Source.
func (s *source) Close() error { return nil }

// Open implements connector.Source. The file itself is opened by the first Next: it may be missing by then.
func (s *source) Open(_ context.Context, split connector.Split, columns []int, rowID bool, errs connector.ErrorSink) (connector.Reader, error) {
	r := &reader{s: s, path: split.ID, errs: errs, format: s.format, gzip: strings.HasSuffix(split.ID, gzipSuffix)}
	r.format.Columns, r.format.RowID = columns, rowID
	for _, c := range columns {
		r.views = r.views || s.format.Schema[c].Type.Kind() == types.KindString
	}
	if split.Position != nil {
		var err error
		if r.restore, err = decodePosition(split.Position); err != nil {
			return nil, err
		}
	}
	r.generation, r.read = r.restore.generation, r.restore.read
	if r.restore.floor != 0 {
		r.floor = time.Unix(0, r.restore.floor)
	}
	return r, nil
}
