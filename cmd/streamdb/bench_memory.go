package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/jackc/pgx/v5"

	"github.com/streamdb/streamdb/server"
)

type benchMemory struct {
	benchFlags
	Groups   int64 `help:"Distinct groups of an aggregation; 0: none." default:"10000000"`
	JoinRows int64 `help:"Rows of each side of a join, every one of which has one partner; 0: none." default:"1000000"`
}

type memoryResult struct {
	Of string `json:"of"` // groups, join-rows
	figures
	Memory     int64 `json:"memory_bytes"`
	StateBytes int64 `json:"state_bytes"`
	// HeapPerEvent is what each group, or row of a join, has added to the heap that is in use when all are there; ResidentPerEvent what it has added to the peak of what is resident. In bytes.
	HeapPerEvent     float64 `json:"heap_bytes_per_event"`
	ResidentPerEvent float64 `json:"resident_bytes_per_event"`
}

// Run is `streamdb bench memory`.
func (c *benchMemory) Run(a *app) error {
	if c.Groups > 0 {
		if err := c.measure(a, "groups", c.Groups, c.Groups, "SELECT id, count(*) AS n, sum(id) AS total FROM l GROUP BY id"); err != nil {
			return err
		}
	}
	if c.JoinRows > 0 {
		return c.measure(a, "join-rows", c.JoinRows, 2*c.JoinRows, "SELECT l.id, l.v, r.v AS w FROM l JOIN r ON l.id = r.id")
	}
	return nil
}

// measure runs a query over sources of so many rows that keeps so many entries.
func (c *benchMemory) measure(a *app, of string, rows, entries int64, query string) error {
	return c.withServer(a, func(srv *server.Server, _ *dialer, conn *pgx.Conn) error {
		for _, source := range []string{"l", "r"} {
			if err := runAll(a.ctx, conn, fmt.Sprintf("CREATE SOURCE %s (id bigint, v bigint) WITH (connector = 'datagen', datagen.rows = '%d', datagen.rows.per.second = '0', "+
				"fields.id.kind = 'sequence', fields.id.start = '1', fields.id.end = '%d')", source, rows, rows)); err != nil {
				return err
			}
		}
		var s sample
		var heap, resident int64
		m := c.meter()
		b, err := srv.RunBench(a.ctx, server.BenchOptions{SQL: query, Measuring: func() (func() error, error) {
			debug.FreeOSMemory() // what the measurement before has left is not resident any more
			err := m.start()
			heap, resident = heapInUse(), residentNow()
			return func() (err error) {
				s, err = m.stop(entries)
				runtime.GC()
				heap, resident = heapInUse()-heap, s.peak-resident
				return err
			}, err
		}})
		if err != nil {
			return err
		}
		r := memoryResult{Of: of, Memory: int64(c.Memory), StateBytes: b.StateBytes, HeapPerEvent: float64(heap) / float64(entries), ResidentPerEvent: float64(resident) / float64(entries)}
		s.extra = []metric{{r.HeapPerEvent, "heap-B/entry"}, {r.ResidentPerEvent, "resident-B/entry"}}
		r.figures = figuresOf([]sample{s}, "", nil)
		return c.print(a, "memory/"+of, &r, &r.figures, fmt.Sprintf("%d %s under --memory %d MiB: each %.0f B on the heap, %.0f B resident; %d MiB of state", entries, of, r.Memory>>20, r.HeapPerEvent, r.ResidentPerEvent, r.StateBytes>>20))
	})
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
