package slt

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"sync"
)

// Options of Main.
type Options struct {
	URL       string    // a server somewhere else; only the mode batch applies then, unless it is a streamdb
	Modes     string    // names separated by commas; "" is batch
	Files     []string  // files, folders or patterns
	Out       io.Writer // report
	NewServer NewServer // opens servers of this process; not needed with URL
	Rewrite   bool      // write the rows that come back into the files
	Workers   int       // files at a time; 0: one
}

// Summary adds up all files and modes.
type Summary struct {
	Passed, Failed, Skipped, Views, Restarts int
	NotMaterializable                        int
}

// Main runs files in modes and prints a report that ends with "N passed, N failed". Failing records are counted, not returned as an error.
func Main(ctx context.Context, o Options) (Summary, error) {
	var sum Summary
	if o.Modes == "" {
		o.Modes = "batch"
	}
	modes, err := ParseModes(o.Modes)
	if err != nil {
		return sum, err
	}
	files, err := Expand(o.Files)
	if err != nil {
		return sum, err
	}
	if o.URL != "" {
		if o.NewServer, err = newURL(o.URL, strconv.Itoa(os.Getpid())); err != nil {
			return sum, err
		}
	}
	type job struct {
		file string
		mode Mode
	}
	var jobs []job
	for _, m := range modes {
		for _, f := range files {
			jobs = append(jobs, job{f, m})
		}
	}
	reports := make([]FileReport, len(jobs))
	done := make([]chan struct{}, len(jobs))
	for i := range done {
		done[i] = make(chan struct{})
	}
	next := make(chan int)
	var wg sync.WaitGroup
	for range max(1, o.Workers) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range next {
				reports[i] = runFile(ctx, jobs[i].file, jobs[i].mode, o.NewServer, o.Rewrite)
				close(done[i])
			}
		}()
	}
	wg.Add(1)
	go func() {
		defer wg.Done()
		defer close(next)
		for i := range jobs {
			next <- i
		}
	}()
	var werr error
	for i := range jobs {
		<-done[i]
		sum.add(&reports[i])
		if _, err := io.WriteString(o.Out, reports[i].String()); err != nil && werr == nil {
			werr = fmt.Errorf("write report: %w", err)
		}
	}
	wg.Wait()
	if _, err := fmt.Fprintln(o.Out, sum); err != nil && werr == nil {
		werr = fmt.Errorf("write report: %w", err)
	}
	return sum, werr
}

func (s *Summary) add(r *FileReport) {
	s.Passed += r.Passed
	s.Failed += r.Failed
	s.Skipped += r.Skipped
	s.Views += r.Views
	s.Restarts += r.Restarts
	s.NotMaterializable += len(r.NotMaterializable)
}

// Add counts one more file.
func (s *Summary) Add(r FileReport) { s.add(&r) }

// String is the last line of a report.
func (s Summary) String() string {
	line := fmt.Sprintf("%d passed, %d failed", s.Passed, s.Failed)
	if s.Skipped > 0 {
		line += fmt.Sprintf(", %d skipped", s.Skipped)
	}
	return line
}

// String describes the file: a line of figures, then what failed, was left out, and cannot be a view.
func (r FileReport) String() string {
	s := fmt.Sprintf("%-15s %s: %d passed, %d failed", r.Mode, r.File, r.Passed, r.Failed)
	if r.Skipped > 0 {
		s += fmt.Sprintf(", %d skipped", r.Skipped)
	}
	if r.Views > 0 {
		s += fmt.Sprintf(", %d views", r.Views)
	}
	if r.Restarts > 0 {
		s += fmt.Sprintf(", %d restarts", r.Restarts)
	}
	s += "\n"
	for _, f := range r.Failures {
		s += "FAIL " + f
	}
	for _, l := range r.Skips {
		s += "  skipped " + l + "\n"
	}
	for _, l := range r.NotMaterializable {
		s += "  not materializable " + l + "\n"
	}
	return s
}

// Expand resolves folders (all .slt files below) and patterns.
func Expand(args []string) ([]string, error) {
	var out []string
	for _, a := range args {
		info, err := os.Stat(a)
		switch {
		case err == nil && !info.IsDir():
			out = append(out, a)
			continue
		case err == nil:
			if err := filepath.WalkDir(a, func(p string, d os.DirEntry, err error) error {
				if err == nil && !d.IsDir() && filepath.Ext(p) == ".slt" {
					out = append(out, p)
				}
				return err
			}); err != nil {
				return nil, fmt.Errorf("list %s: %w", a, err)
			}
			continue
		}
		found, err := filepath.Glob(a)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", a, err)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("no file matches %q", a)
		}
		sort.Strings(found)
		out = append(out, found...)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no test files given")
	}
	return slices.Compact(out), nil
}
