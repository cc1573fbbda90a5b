package file

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/connector/format"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/storage/object"
	"github.com/streamdb/streamdb/types"
)

// optRoll is how large a file of a sink becomes before the next one is begun, in bytes.
const optRoll = "file.max.bytes"

const (
	defaultRoll = 64 << 20
	minRoll     = 1 << 10
	maxRoll     = 1 << 30
	// writeBuffer is how many bytes of rows are put into a file at once.
	writeBuffer = 256 << 10
	// idDigits is how much of a sink's id is in the names of its files.
	idDigits = 12
)

// SinkConnector makes sinks that write files into a folder, or objects into a bucket. Rows go to files that are hidden by their names; committing a file gives it
// its own name, once it is complete.
type SinkConnector struct {
	open func(ctx context.Context, url string) (object.Store, error) // of buckets
}

// NewSink returns the connector.
func NewSink() SinkConnector { return SinkConnector{open: object.Open} }

// Name implements connector.SinkConnector.
func (SinkConnector) Name() string { return "file" }

// Options implements connector.SinkConnector.
func (SinkConnector) Options() []connector.Option {
	return []connector.Option{
		{
			Name: optPath, Required: true, Check: func(s string) error {
				if s == "" {
					return pgerr.Newf(pgerr.InvalidParameterValue, "the path is empty")
				}
				return nil
			},
			Doc: "A folder on the server, which is made if need be, or s3://bucket/prefix?endpoint=…&region=…&force_path_style=true.",
		},
		{
			Name: optRoll, Default: strconv.Itoa(defaultRoll), Check: connector.CheckInt(minRoll, maxRoll),
			Doc: "After how many bytes another file is begun.",
		},
	}
}

// Encodings implements connector.SinkConnector.
func (SinkConnector) Encodings() []connector.Encoding { return format.Encodings() }

// Modes implements connector.SinkConnector.
func (SinkConnector) Modes() []connector.SinkMode {
	return []connector.SinkMode{connector.AppendOnly, connector.Upsert, connector.Debezium}
}

// Check implements connector.SinkConnector.
func (cn SinkConnector) Check(ctx context.Context, cfg *connector.SinkConfig) error {
	if _, err := format.NewEncoder(encoderOf(cfg)); err != nil {
		return err
	}
	t, err := cn.openTarget(cfg, cfg.Options[optPath])
	if err != nil {
		return err
	}
	if err := t.check(ctx); err != nil {
		return err
	}
	s := &sink{cfg: cfg, target: t}
	if _, given := cfg.Options[connector.OptionTakeOver]; given {
		if _, err := s.readLease(ctx); err != nil {
			return err
		}
	}
	return cfg.CheckTakeOver(s.lease.was)
}

func encoderOf(cfg *connector.SinkConfig) *format.EncoderConfig {
	return &format.EncoderConfig{Encode: cfg.Encode, Options: cfg.EncodeOptions, Schema: cfg.Columns, Mode: cfg.Mode, Text: cfg.Text}
}

// Sink implements connector.SinkConnector.
func (cn SinkConnector) Sink(cfg *connector.SinkConfig) (connector.Sink, error) {
	v := connector.Values{Options: cfg.Options}
	s := &sink{cfg: cfg, open: cn.openTarget, roll: v.Int(defaultRoll, optRoll)}
	if v.Err != nil {
		return nil, v.Err
	}
	var err error
	if s.target, err = cn.openTarget(cfg, cfg.Options[optPath]); err != nil {
		return nil, err
	}
	var own [4]byte
	_, _ = rand.Read(own[:]) // never fails
	s.own = hex.EncodeToString(own[:])
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, cfg.Name)
	s.final = name
	s.hidden = "streamdb-" + strings.ReplaceAll(cfg.ID, "-", "")[:idDigits] + "-"
	s.suffix = "." + strings.ToLower(cfg.Encode)
	return s, nil
}

type sink struct {
	cfg    *connector.SinkConfig
	open   func(*connector.SinkConfig, string) (target, error)
	target target
	roll   int64
	own    string // of this opening: hidden files with it are being written
	final  string // how names of files begin
	hidden string // how names of hidden files begin, which all openings of the sink share
	suffix string
	files  atomic.Int64 // begun
	lease  lease        // of Recover, Commit and Abandon
}

// committable names a file that is complete.
type committable struct {
	Staged string `json:"staged"`
	Final  string `json:"final"`
	At     string `json:"at,omitempty"` // the path that it was staged at, which the sink may have no more; "": written by an older version, the sink's
}

// Writer implements connector.Sink.
func (s *sink) Writer(subtask int) (connector.SinkWriter, error) {
	enc, err := format.NewEncoder(encoderOf(s.cfg))
	if err != nil {
		return nil, err
	}
	return &writer{s: s, subtask: subtask, enc: enc}, nil
}

// Recover implements connector.Sink. What others have staged is removed only by the one that writes now.
func (s *sink) Recover(ctx context.Context, epoch uint64, known *connector.Committables) error {
	if err := s.takeOver(ctx, epoch); err != nil {
		return err
	}
	return s.clear(ctx, known)
}

// Abandon implements connector.Sink.
func (s *sink) Abandon(ctx context.Context) error {
	if may, err := s.mayForget(ctx); err != nil || !may {
		if errors.Is(err, fs.ErrNotExist) { // the folder is gone
			return nil
		}
		return err
	}
	return errors.Join(s.clear(ctx, &connector.Committables{Each: func(func(uint64, []byte) error) error { return nil }}), s.forget(ctx))
}

// clear removes the staged files that known does not name and that this opening of the sink has not begun.
func (s *sink) clear(ctx context.Context, known *connector.Committables) error {
	names, err := s.target.staged(ctx, s.hidden)
	if err != nil || len(names) == 0 {
		return err
	}
	keep := map[string]bool{}
	if err := known.Each(func(_ uint64, b []byte) error {
		var c committable
		if err := json.Unmarshal(b, &c); err != nil {
			return pgerr.Wrap(pgerr.DataCorrupted, err, "committable of sink %q is malformed", s.cfg.Name)
		}
		keep[c.Staged] = true
		return nil
	}); err != nil {
		return err
	}
	for _, n := range names {
		if keep[n] || strings.HasPrefix(n, s.hidden+s.own) {
			continue
		}
		if err := s.target.remove(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// Commit implements connector.Sink. A file that is not there under its hidden name has been committed before, and perhaps been taken away by who reads the folder: nobody
// but who writes as the sink removes one, and that is this server, as of when the lease was written.
func (s *sink) Commit(ctx context.Context, _ uint64, list *connector.Committables) error {
	if err := s.reach(ctx, list.Last); err != nil {
		return err
	}
	i, elsewhere := 0, map[string]target{}
	err := list.Each(func(_ uint64, b []byte) (err error) {
		var c committable
		if err := json.Unmarshal(b, &c); err != nil {
			return pgerr.Wrap(pgerr.DataCorrupted, err, "committable of sink %q is malformed", s.cfg.Name)
		}
		if i++; i == 2 {
			if err := s.cfg.Failpoints.Hit("sink/half-commit"); err != nil {
				return err
			}
		}
		to := s.target
		if c.At != "" && c.At != s.cfg.Options[optPath] {
			if elsewhere[c.At] == nil {
				if elsewhere[c.At], err = s.open(s.cfg, c.At); err != nil {
					return err
				}
			}
			to = elsewhere[c.At]
		}
		return to.publish(ctx, c.Staged, c.Final)
	})
	if err != nil {
		return err
	}
	for _, t := range elsewhere {
		if err := t.sync(ctx); err != nil {
			return err
		}
	}
	return s.target.sync(ctx)
}

// Close implements connector.Sink.
func (s *sink) Close() error { return nil }

// writer writes the files of a subtask.
type writer struct {
	s       *sink
	subtask int
	enc     format.Encoder
	buf     []byte
	f       *os.File
	name    string // of f
	size    int64
	full    []string // complete, not sealed
}

// Write implements connector.SinkWriter.
func (w *writer) Write(_ context.Context, c *types.Chunk) ([][]byte, error) {
	if w.f == nil {
		if err := w.begin(); err != nil {
			return nil, err
		}
	}
	var err error
	if w.buf, _, err = w.enc.AppendRows(w.buf, c); err != nil {
		return nil, err
	}
	if len(w.buf) >= writeBuffer || w.size+int64(len(w.buf)) >= w.s.roll {
		if err := w.flush(); err != nil {
			return nil, err
		}
	}
	if w.size >= w.s.roll {
		return nil, w.end()
	}
	return nil, nil
}

func (w *writer) begin() error {
	dir := w.s.target.folder()
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // others read what a sink writes
		return ioError(err)
	}
	w.name = fmt.Sprintf("%s%s-%d-%d", w.s.hidden, w.s.own, w.subtask, w.s.files.Add(1))
	f, err := os.OpenFile(filepath.Join(dir, hiddenMark+w.name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // the user's own folder
	if err != nil {
		return ioError(err)
	}
	w.f, w.size, w.buf = f, 0, w.enc.AppendHeader(w.buf[:0])
	return nil
}

func (w *writer) flush() error {
	n, err := w.f.Write(w.buf)
	w.size += int64(n)
	w.buf = w.buf[:0]
	return ioError(err)
}

func (w *writer) end() error {
	if w.f == nil {
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	w.full = append(w.full, w.name)
	err := w.f.Close()
	w.f = nil
	return ioError(err)
}

// Seal implements connector.SinkWriter.
func (w *writer) Seal(name string) (out [][]byte, flush func(context.Context) error, err error) {
	if err := w.end(); err != nil || len(w.full) == 0 {
		return nil, nil, err
	}
	names := w.full
	w.full = nil
	for i, n := range names {
		// Staged names are of one opening of the sink, and so are these: no two transactions can mean the same file.
		b, err := json.Marshal(committable{Staged: n, At: w.s.cfg.Options[optPath], Final: fmt.Sprintf("%s-%s-%d-%d-%s%s", w.s.final, name, w.subtask, i, w.s.own, w.s.suffix)})
		if err != nil {
			return nil, nil, err
		}
		out = append(out, b)
	}
	return out, func(ctx context.Context) error {
		for len(names) > 0 {
			if err := w.s.target.stage(ctx, names[0]); err != nil {
				return err
			}
			names = names[1:]
		}
		return w.s.target.sync(ctx)
	}, nil
}

// Close implements connector.SinkWriter.
func (w *writer) Close() error {
	var err error
	dir := w.s.target.folder()
	if w.f != nil {
		err = errors.Join(w.f.Close(), removeFile(filepath.Join(dir, hiddenMark+w.name)))
		w.f = nil
	}
	for _, n := range w.full {
		err = errors.Join(err, removeFile(filepath.Join(dir, hiddenMark+n)))
	}
	w.full = nil
	return err
}
