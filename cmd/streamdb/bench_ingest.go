package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/streamdb/streamdb/bench/limit"
	benchnexmark "github.com/streamdb/streamdb/bench/nexmark"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/connector/format"
	"github.com/streamdb/streamdb/connector/nexmark"
	"github.com/streamdb/streamdb/server"
	"github.com/streamdb/streamdb/types"
)

type benchIngest struct {
	benchFlags
	Format      string `help:"CSV, JSON, AVRO, several separated by commas." default:"CSV,JSON,AVRO"`
	Query       string `help:"all: a view of all rows; tumble: count and sum per auction and 10 s; separated by commas." default:"tumble,all"`
	Rows        int64  `help:"Bids, a line each." default:"10000000"`
	Files       int    `help:"Files that the rows are in; each is a split, read by one subtask at a time." default:"1"`
	Parallelism int    `help:"Subtasks per fragment; 0: the number of cores." default:"0"`
	Rounds      int    `help:"Rounds; the median counts." default:"3"`
	Dir         string `help:"Where to write the files. Default: a temporary directory." type:"path"`
	NoLimit     bool   `help:"Leave out the hand-written loop."`
}

type ingestResult struct {
	Format string `json:"format"`
	Query  string `json:"query"`
	figures
	Bytes          int64   `json:"bytes"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	OutputRows     int64   `json:"output_rows"`
	Parallelism    int     `json:"parallelism"`
	Files          int     `json:"files"`
	Checkpoints    int     `json:"checkpoints"`
}

const (
	// ingestAll is the query that keeps all rows.
	ingestAll = "SELECT auction, bidder, price, channel, url, date_time, extra FROM bid"
	// ingestBlock is how many bids go to a file before it is the next one's turn, as with the splits of the nexmark source.
	ingestBlock = 2000
)

// Run is `streamdb bench ingest`.
func (c *benchIngest) Run(a *app) (err error) {
	if c.Rows <= 0 || c.Rounds <= 0 || c.Files <= 0 {
		return usageError{errors.New("--rows, --rounds and --files must be positive")}
	}
	queries := strings.Split(c.Query, ",")
	for _, q := range queries {
		if q != limit.FileAll && q != limit.FileTumble {
			return usageError{fmt.Errorf("unknown query %q: known are %s, %s", q, limit.FileTumble, limit.FileAll)}
		}
	}
	dir := c.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "streamdb-bench-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	for _, f := range strings.Split(strings.ToUpper(c.Format), ",") {
		if !slices.Contains([]string{format.EncodeCSV, format.EncodeJSON, format.EncodeAvro}, f) {
			return usageError{fmt.Errorf("unknown format %q: known are %s, %s, %s", f, format.EncodeCSV, format.EncodeJSON, format.EncodeAvro)}
		}
		paths, size, err := c.write(dir, f)
		if err != nil {
			return err
		}
		for _, q := range queries {
			if err := c.measure(a, f, q, paths, size); err != nil {
				return fmt.Errorf("%s %s: %w", f, q, err)
			}
		}
		for _, p := range paths {
			if err := os.Remove(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// write makes the files of one encoding.
func (c *benchIngest) write(dir, encode string) (paths []string, size int64, err error) {
	schema, err := nexmark.New().Schema(&connector.SourceConfig{Options: map[string]string{"nexmark.table.type": "Bid"}})
	if err != nil {
		return nil, 0, err
	}
	header, rows := benchnexmark.AvroHeader(), func(dst []byte, bids *nexmark.BidColumns, c *types.Chunk) ([]byte, error) {
		return benchnexmark.AppendAvro(dst, bids, c.N), nil
	}
	if encode != format.EncodeAvro {
		enc, err := format.NewEncoder(&format.EncoderConfig{Encode: encode, Schema: schema, Mode: connector.AppendOnly, Text: types.DefaultFormat()})
		if err != nil {
			return nil, 0, err
		}
		header, rows = enc.AppendHeader(nil), func(dst []byte, _ *nexmark.BidColumns, c *types.Chunk) ([]byte, error) {
			dst, _, err := enc.AppendRows(dst, c)
			return dst, err
		}
	}
	var files []*os.File
	var writers []*bufio.Writer
	defer func() {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
	}()
	for i := range c.Files {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("bids-%d.%s", i, strings.ToLower(encode))))
		if err != nil {
			return nil, 0, err
		}
		files, writers, paths = append(files, f), append(writers, bufio.NewWriterSize(f, copyBlock)), append(paths, f.Name())
		if _, err := writers[i].Write(header); err != nil {
			return nil, 0, err
		}
	}
	gen, chunk := nexmark.Default(), types.NewChunk(schema.Types())
	var buf []byte
	next := int64(0)
	for done := int64(0); done < c.Rows; done += int64(chunk.N) {
		chunk.N = int(min(ingestBlock, c.Rows-done))
		for _, v := range chunk.Cols {
			v.Resize(chunk.N)
		}
		v := chunk.Cols
		bids := &nexmark.BidColumns{Auction: v[0].Int, Bidder: v[1].Int, Price: v[2].Int, Channel: v[3].Str, URL: v[4].Str, DateTime: v[5].Int, Extra: v[6].Str}
		next = gen.Bids(next, chunk.N, bids)
		if buf, err = rows(buf[:0], bids, chunk); err != nil {
			return nil, 0, err
		}
		size += int64(len(buf))
		if _, err := writers[done/ingestBlock%int64(c.Files)].Write(buf); err != nil {
			return nil, 0, err
		}
	}
	for _, w := range writers {
		err = errors.Join(err, w.Flush())
	}
	return paths, size, err
}

// measure runs a query over the files and the hand-written loop in turn.
func (c *benchIngest) measure(a *app, encode, query string, paths []string, size int64) error {
	text := ingestAll
	if query == limit.FileTumble {
		var err error
		if text, err = benchnexmark.Query(query); err != nil {
			return err
		}
	}
	r := ingestResult{Format: encode, Query: query, Bytes: size, Parallelism: c.Parallelism, Files: c.Files}
	if r.Parallelism == 0 {
		r.Parallelism = a.cores
	}
	var own, loops []sample
	err := c.withServer(a, func(srv *server.Server, _ *dialer, conn *pgx.Conn) error {
		pattern := filepath.Join(filepath.Dir(paths[0]), "bids-*."+strings.ToLower(encode))
		if err := runAll(a.ctx, conn, fmt.Sprintf("CREATE SOURCE bid (auction bigint, bidder bigint, price bigint, channel varchar, url varchar, date_time timestamp, extra varchar, "+
			"WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds') WITH (connector = 'file', path = '%s', file.follow = 'false') FORMAT PLAIN ENCODE %s",
			strings.ReplaceAll(pattern, "'", "''"), encode)); err != nil {
			return err
		}
		m := c.meter()
		for range c.Rounds {
			b, s, err := m.query(a.ctx, srv, server.BenchOptions{SQL: text, Parallelism: c.Parallelism, Materialize: query == limit.FileAll}, c.Rows)
			if err != nil {
				return err
			}
			if b.SourceRows != c.Rows {
				return fmt.Errorf("%d rows of %d were read", b.SourceRows, c.Rows)
			}
			r.OutputRows, r.Checkpoints = b.OutputRows, r.Checkpoints+b.Checkpoints
			own = append(own, s)
			if c.NoLimit {
				continue
			}
			var l limit.Result
			if s, err = (&meter{}).span(func() (_ int64, err error) {
				l, err = limit.Files(encode, query, paths)
				return l.Events, err
			}); err != nil {
				return err
			}
			if l.Rows != b.OutputRows {
				return fmt.Errorf("the query has %d rows, the hand-written loop %d", b.OutputRows, l.Rows)
			}
			loops = append(loops, s)
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.figures = figuresOf(own, loopName, loops)
	r.BytesPerSecond = per(float64(size), r.Seconds)
	return c.print(a, "ingest/"+strings.ToLower(encode)+"/"+query, &r, &r.figures, fmt.Sprintf("%d MB in %d files, %.0f MB/s; %d checkpoints, %d rows out", size/1e6, c.Files, r.BytesPerSecond/1e6, r.Checkpoints, r.OutputRows))
}
