package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// sample is what a measured span took.
type sample struct {
	events        int64
	elapsed, cpu  time.Duration
	bytes, allocs uint64
	peak          int64 // bytes resident
	extra         []metric
}

// metric is a further value of a sample, in a unit of Go's benchmark format.
type metric struct {
	value float64
	unit  string
}

func (s sample) perSecond() float64 { return per(float64(s.events), s.elapsed.Seconds()) }

func (s sample) perCPU() float64 { return per(float64(s.events), s.cpu.Seconds()) }

// per is n/d, 0 when nothing is known of d.
func per(n, d float64) float64 {
	if d == 0 {
		return 0
	}
	return n / d
}

// meter measures spans of the process, one after the other.
type meter struct {
	prof   profiler
	before usage
	began  time.Time
}

func (f *benchFlags) meter() *meter { return &meter{prof: profiler{dir: f.Profile}} }

// start begins a span, with a heap that has been collected.
func (m *meter) start() (err error) {
	runtime.GC()
	resetPeak()
	if err := m.prof.start(); err != nil {
		return err
	}
	m.began = time.Now()
	m.before, err = usageNow()
	return err
}

// stop ends it.
func (m *meter) stop(events int64) (sample, error) {
	s := sample{events: events, elapsed: time.Since(m.began)}
	after, err := usageNow()
	if err = errors.Join(err, m.prof.stop()); err != nil {
		return s, err
	}
	s.cpu, s.bytes, s.allocs, s.peak = after.cpu-m.before.cpu, after.bytes-m.before.bytes, after.count-m.before.count, peakRSS()
	return s, nil
}

// span measures run, which tells through how many events it has been.
func (m *meter) span(run func() (events int64, err error)) (sample, error) {
	if err := m.start(); err != nil {
		return sample{}, err
	}
	events, err := run()
	s, serr := m.stop(events)
	return s, errors.Join(err, serr)
}

// figures are what every benchmark tells: medians over its rounds.
type figures struct {
	Rounds              int     `json:"rounds"`
	Events              int64   `json:"events"` // of a round
	Seconds             float64 `json:"seconds"`
	EventsPerSecond     float64 `json:"events_per_second"`
	EventsPerCPUSecond  float64 `json:"events_per_cpu_second"`
	AllocatedPerEvent   float64 `json:"bytes_allocated_per_event"`
	AllocationsPerEvent float64 `json:"allocations_per_event"`
	PeakRSS             int64   `json:"peak_rss_bytes"` // of all rounds

	// The yardstick, which has run in turn with what is measured, and the rates measured compared to its own; 0 when there is none.
	Against             string  `json:"against,omitempty"`
	AgainstPerSecond    float64 `json:"against_events_per_second,omitempty"`
	AgainstPerCPUSecond float64 `json:"against_events_per_cpu_second,omitempty"`
	Ratio               float64 `json:"ratio,omitempty"`     // of wall time
	CPURatio            float64 `json:"cpu_ratio,omitempty"` // of processor time

	samples []sample
}

// figuresOf sums samples up; those of the yardstick, if there is one, are of the same rounds.
func figuresOf(own []sample, against string, yardstick []sample) figures {
	f := figures{Rounds: len(own), samples: own}
	if len(own) == 0 {
		return f
	}
	of := func(in []sample, get func(s sample) float64) float64 {
		v := make([]float64, len(in))
		for i, s := range in {
			v[i] = get(s)
		}
		return median(v)
	}
	f.Events = int64(of(own, func(s sample) float64 { return float64(s.events) }))
	f.Seconds = of(own, func(s sample) float64 { return s.elapsed.Seconds() })
	f.EventsPerSecond, f.EventsPerCPUSecond = of(own, sample.perSecond), of(own, sample.perCPU)
	f.AllocatedPerEvent = of(own, func(s sample) float64 { return per(float64(s.bytes), float64(s.events)) })
	f.AllocationsPerEvent = of(own, func(s sample) float64 { return per(float64(s.allocs), float64(s.events)) })
	for _, s := range own {
		f.PeakRSS = max(f.PeakRSS, s.peak)
	}
	if len(yardstick) != len(own) {
		return f
	}
	f.Against, f.AgainstPerSecond, f.AgainstPerCPUSecond = against, of(yardstick, sample.perSecond), of(yardstick, sample.perCPU)
	ratios, cpus := ratiosOf(own, yardstick)
	for i := range own {
		own[i].extra = append(own[i].extra, metric{cpus[i], "cpu-ratio"})
	}
	f.Ratio, f.CPURatio = median(ratios), median(cpus)
	return f
}

// ratiosOf compares what ran side by side: the machine changes between rounds more than within one.
func ratiosOf(own, other []sample) (wall, cpu []float64) {
	for i := range min(len(own), len(other)) {
		wall, cpu = append(wall, per(own[i].perSecond(), other[i].perSecond())), append(cpu, per(own[i].perCPU(), other[i].perCPU()))
	}
	return wall, cpu
}

// String is the line of text that all results share.
func (f *figures) String() string {
	line := fmt.Sprintf("%11.0f events/s %11.0f events/CPU-s %8.1f B/event %7.3f allocations/event  peak %5d MiB", f.EventsPerSecond, f.EventsPerCPUSecond, f.AllocatedPerEvent, f.AllocationsPerEvent, f.PeakRSS>>20)
	if f.Against != "" {
		line += fmt.Sprintf("\n%-18s%11.0f events/s %11.0f events/CPU-s by %s: ratio %.2f, of CPU time %.2f", "", f.AgainstPerSecond, f.AgainstPerCPUSecond, f.Against, f.Ratio, f.CPURatio)
	}
	return line
}

// goUnits tells benchstat which way the units are better that it does not know.
const goUnits = "Unit cpu-ratio better=higher\nUnit peak-RSS-bytes better=lower\n"

// print writes a result: as JSON, as one line of Go's benchmark format per round, or as text, which begins with the name and the figures; text is what else there is to say.
func (f *benchFlags) print(a *app, name string, result any, of *figures, text string) error {
	switch {
	case f.JSON:
		return json.NewEncoder(a.stdout).Encode(result)
	case f.GoBench:
		out := goUnits
		for _, s := range of.samples {
			n := float64(s.events)
			out += fmt.Sprintf("Benchmark%s%s %d %.4g ns/op %.4g cpu-ns/op %.4g B/op %.4g allocs/op %d peak-RSS-bytes", strings.ToUpper(name[:1]), name[1:], max(1, s.events),
				per(float64(s.elapsed), n), per(float64(s.cpu), n), per(float64(s.bytes), n), per(float64(s.allocs), n), s.peak)
			for _, m := range s.extra {
				out += fmt.Sprintf(" %.4g %s", m.value, m.unit)
			}
			out += "\n"
		}
		_, err := fmt.Fprint(a.stdout, out)
		return err
	}
	line := fmt.Sprintf("%-18s%s\n", name, of)
	if text != "" {
		line += fmt.Sprintf("%-18s%s\n", "", text)
	}
	_, err := fmt.Fprint(a.stdout, line)
	return err
}

// profiler writes profiles of what runs between start and stop.
type profiler struct {
	dir    string
	cpu    *os.File
	flight *trace.FlightRecorder
}

const (
	// mutexFraction is the share of contended locks that are recorded while profiling: one in so many.
	mutexFraction = 5
	// A trace has the last traceSpan of what is measured, traceBytes at most.
	traceSpan  = 5 * time.Second
	traceBytes = 64 << 20
)

func (p *profiler) start() error {
	if p.dir == "" {
		return nil
	}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	runtime.SetMutexProfileFraction(mutexFraction)
	f, err := os.Create(filepath.Join(p.dir, "cpu.pprof"))
	if err != nil {
		return err
	}
	p.cpu = f
	p.flight = trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: traceSpan, MaxBytes: traceBytes})
	return errors.Join(p.flight.Start(), pprof.StartCPUProfile(f))
}

func (p *profiler) stop() error {
	if p.cpu == nil {
		return nil
	}
	pprof.StopCPUProfile()
	err := p.cpu.Close()
	p.cpu = nil
	write := func(name string, to func(f *os.File) error) {
		f, ferr := os.Create(filepath.Join(p.dir, name))
		if ferr != nil {
			err = errors.Join(err, ferr)
			return
		}
		err = errors.Join(err, to(f), f.Close())
	}
	write("trace.out", func(f *os.File) error {
		_, err := p.flight.WriteTo(f)
		return err
	})
	p.flight.Stop()
	for _, name := range []string{"heap", "allocs", "mutex"} {
		write(name+".pprof", func(f *os.File) error { return pprof.Lookup(name).WriteTo(f, 0) })
	}
	return err
}

// usage is what the process has used so far.
type usage struct {
	cpu   time.Duration
	bytes uint64 // allocated
	count uint64
}

func usageNow() (usage, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return usage{}, fmt.Errorf("getrusage: %w", err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{cpu: time.Duration(r.Utime.Nano() + r.Stime.Nano()), bytes: m.TotalAlloc, count: m.Mallocs}, nil
}

// resetPeak makes peakRSS count from now, where the kernel allows that.
func resetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) } // without it the peak of the whole process is reported

// peakRSS is the largest resident size since resetPeak, residentNow the present one, in bytes.
func peakRSS() int64 {
	if n := procStatus("VmHWM:"); n > 0 {
		return n
	}
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return r.Maxrss << 10
}

func residentNow() int64 { return procStatus("VmRSS:") }

// procStatus is a size of the process that the kernel tells, in bytes; 0 where it does not.
func procStatus(field string) int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, field); ok {
			if n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64); err == nil {
				return n << 10
			}
		}
	}
	return 0
}

// millis is a duration in milliseconds.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// median of a copy of v, 0 without values.
func median[T float64 | int64 | time.Duration](v []T) T {
	s := slices.Clone(v)
	slices.Sort(s)
	return percentile(s, 0.5)
}

// percentile of sorted values, 0 without any.
func percentile[T float64 | int64 | time.Duration](sorted []T, p float64) T {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

// latencies are those of calls, in milliseconds.
type latencies struct {
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p99_9_ms"`
}

func latenciesOf(v []time.Duration) latencies {
	slices.Sort(v)
	return latencies{millis(percentile(v, 0.5)), millis(percentile(v, 0.99)), millis(percentile(v, 0.999))}
}

// medianLatencies are the medians over rounds.
func medianLatencies(rounds []latencies) latencies {
	var p50, p99, p999 []float64
	for _, l := range rounds {
		p50, p99, p999 = append(p50, l.P50), append(p99, l.P99), append(p999, l.P999)
	}
	return latencies{median(p50), median(p99), median(p999)}
}

// metrics are the same for Go's benchmark format.
func (l latencies) metrics(what string) []metric {
	return []metric{{l.P50 * 1e6, what + "p50-ns"}, {l.P99 * 1e6, what + "p99-ns"}, {l.P999 * 1e6, what + "p99.9-ns"}}
}

func (l latencies) String() string {
	return fmt.Sprintf("p50 %.3f ms, p99 %.3f ms, p99.9 %.3f ms", l.P50, l.P99, l.P999)
}
