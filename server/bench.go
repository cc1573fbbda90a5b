package server

import (
	"context"
	"time"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// BenchOptions describe one measured run of a query.
type BenchOptions struct {
	SQL         string
	Parallelism int           // subtasks per fragment; 0: the number of cores
	Materialize bool          // keep the result as a view does, instead of counting its rows
	StateTTL    time.Duration // see the option state_ttl of views
	// Watch is called after every so many rows of the sources, Every, when it is set. Its error ends the run.
	Watch func(rows int64, m state.Metrics) error
	Every int64
	// Measuring is called when the clock starts, and what it returns when it stops: what the job leaves to be done in the background is not of the run. nil: nobody.
	Measuring func() (stop func() error, err error)
}

// BenchResult is what a run did.
type BenchResult struct {
	Elapsed     time.Duration // from the start of the job until the last row of its sources is through
	SourceRows  int64
	OutputRows  int64 // rows at the root: changes when they are discarded, rows of the result when it is materialized
	StateBytes  int64
	Checkpoints int // completed while it ran
}

// Benchmark jobs have their start time as id, beyond those that the catalog hands out.
const (
	firstBenchJob = 1 << 60
	benchPoll     = time.Millisecond // how often the end of the sources is looked for
)

// RunBench runs a query over bounded sources as a job, with checkpoints like any other, until everything that the sources hold is through.
// The job is not part of the catalog and gone afterwards.
func (s *Server) RunBench(ctx context.Context, o BenchOptions) (res BenchResult, err error) {
	stmts, err := sql.Parse(o.SQL)
	if err != nil {
		return res, err
	}
	if len(stmts) != 1 {
		return res, pgerr.Newf(pgerr.InvalidParameterValue, "a benchmark is one query, not %d statements", len(stmts))
	}
	q, ok := stmts[0].(*sql.Query)
	if !ok {
		return res, pgerr.Newf(pgerr.InvalidParameterValue, "a benchmark is a query")
	}
	if o.Parallelism == 0 {
		o.Parallelism = s.defaultParallelism()
	}
	id := firstBenchJob + uint64(time.Now().UnixMicro())
	path := []string{"public"}
	planned, err := planner.PlanStream(q, planner.Options{
		Catalog: s.planCatalog(s.catalog.Snapshot(), path), Registry: s.registry, SearchPath: path, Parallelism: o.Parallelism, Relation: id, StateTTL: o.StateTTL.Microseconds(),
		Env: &expr.Env{Format: types.DefaultFormat(), Database: databaseName, User: "streamdb", Catalog: s.catalogInfo()}, Database: databaseName,
		DisabledRules: disabledRules(s.settings.get("streamdb.disabled_rules")),
	})
	if err != nil {
		return res, err
	}
	if !o.Materialize {
		discard(planned.Plan)
	}
	backend, err := state.ParseBackend(s.settings.get("state.backend.type"))
	if err != nil {
		return res, err
	}
	before := s.completedCheckpoints()
	j, err := s.engine.CreateJob(exec.JobSpec{ID: id, Name: "benchmark", Plan: planned.Plan, Parallelism: o.Parallelism, Backend: backend}, nil)
	if err != nil {
		return res, err
	}
	defer func() {
		res.Checkpoints = s.completedCheckpoints() - before
		if derr := s.closeJob(id); err == nil {
			err = derr
		}
	}()
	stop := func() error { return nil }
	if o.Measuring != nil {
		if stop, err = o.Measuring(); err != nil {
			return res, err
		}
	}
	began := time.Now()
	j.Start()
	tick := time.NewTicker(benchPoll)
	defer tick.Stop()
	next := o.Every
	for !j.SourcesEnded() {
		if rows := j.SourceRows(); o.Watch != nil && rows >= next {
			if err := o.Watch(rows, j.Metrics()); err != nil {
				return res, err
			}
			next = rows - rows%o.Every + o.Every
		}
		select {
		case <-ctx.Done():
			return res, context.Cause(ctx)
		case <-tick.C:
		}
		if jerr := j.Err(); jerr != nil {
			return res, jerr
		}
	}
	res.Elapsed = time.Since(began)
	if err := stop(); err != nil {
		return res, err
	}
	res.SourceRows, res.OutputRows, res.StateBytes = j.SourceRows(), j.Discarded(), exec.StateBytes(j.Metrics())
	if rel := j.Relation(); rel != nil {
		if v := rel.Latest(); v != nil {
			res.OutputRows = v.Rows
			v.Release()
		}
	}
	return res, nil
}

// discard replaces the root that keeps the result by one that counts it; an exchange that only brought rows to their place in the result
// goes too.
func discard(p *plan.Plan) {
	last := p.Fragments[len(p.Fragments)-1]
	root := last.Root
	root.Kind, root.Materialize = plan.KindDiscard, nil
	in := root.Inputs[0]
	if in.Kind != plan.KindExchange || len(p.Fragments) < 2 {
		return
	}
	readers := 0
	for _, f := range p.Fragments {
		f.Root.Walk(func(n *plan.Node) {
			if n.Kind == plan.KindExchange && n.Exchange.From == in.Exchange.From {
				readers++
			}
		})
	}
	for i, f := range p.Fragments {
		if f.ID == in.Exchange.From && readers == 1 && i == len(p.Fragments)-2 {
			root.Inputs[0] = f.Root
			f.Root = root
			p.Fragments = p.Fragments[:len(p.Fragments)-1]
			return
		}
	}
}

// SourceRows is how many rows the sources of a view have brought since it was started, 0 when there is no such view.
func (s *Server) SourceRows(view string) int64 {
	for _, j := range s.engine.Jobs() {
		if j.Name() == view {
			return j.SourceRows()
		}
	}
	return 0
}

func (s *Server) completedCheckpoints() int {
	n := 0
	for _, c := range s.coord.Stats().Checkpoints {
		if c.Status == checkpoint.StatusCompleted {
			n++
		}
	}
	return n
}
