package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// The columns of a subscription that come before those of the relation.
const (
	columnEpoch      = "streamdb_epoch"
	columnProgressed = "streamdb_progressed"
	columnDiff       = "streamdb_diff"
)

// subscribed is what a SUBSCRIBE reads.
type subscribed struct {
	obj      *catalog.Object // nil: the query
	query    *sql.Query
	columns  types.Schema // of the result
	head     int          // so many of them are the subscription's own
	stored   []int        // the others, as columns of the relation
	progress bool
	snapshot bool
}

// subscribed resolves what a SUBSCRIBE reads.
func (ss *session) subscribed(st *sql.Subscribe) (*subscribed, error) {
	t := &subscribed{query: st.Query, snapshot: st.AsOf == nil}
	for i, o := range st.Options {
		name := strings.ToLower(o.Name)
		if slices.ContainsFunc(st.Options[:i], func(other sql.Option) bool { return strings.EqualFold(other.Name, name) }) {
			return nil, pgerr.Newf(pgerr.SyntaxError, "conflicting or redundant options").At(o.Pos)
		}
		if name != "snapshot" && name != "progress" {
			return nil, pgerr.Newf(pgerr.InvalidParameterValue, "unrecognized parameter %q", o.Name).At(o.Pos).WithHint("SUBSCRIBE knows: snapshot, progress.")
		}
		b, err := boolean(o.Value)
		if err != nil {
			return nil, pgerr.Newf(pgerr.InvalidParameterValue, "%s requires a Boolean value", name).At(o.ValuePos)
		}
		switch {
		case name == "progress":
			t.progress = b == "on"
		case st.AsOf != nil && b == "on":
			return nil, pgerr.Newf(pgerr.FeatureNotSupported, "a subscription AS OF an epoch goes on with the changes after it: it has no snapshot").At(o.Pos)
		default:
			t.snapshot = b == "on"
		}
	}
	if st.UpTo != nil && st.AsOf != nil && st.UpTo.Number < st.AsOf.Number {
		return nil, pgerr.Newf(pgerr.InvalidParameterValue, "UP TO %d is before AS OF %d", st.UpTo.Number, st.AsOf.Number).At(st.UpTo.Pos)
	}
	t.columns = types.Schema{{Name: columnEpoch, Type: types.Int8}}
	if t.progress {
		t.columns = append(t.columns, types.Column{Name: columnProgressed, Type: types.Bool})
	}
	t.columns = append(t.columns, types.Column{Name: columnDiff, Type: types.Int8})
	t.head = len(t.columns)
	if t.query == nil {
		if o, ok := ss.resolve(st.Name); ok && (o.Kind == catalog.Table || o.Kind == catalog.MaterializedView) {
			t.obj = o
			for i, c := range o.Columns {
				if !c.Hidden {
					t.columns = append(t.columns, types.Column{Name: c.Name, Type: c.Type})
					t.stored = append(t.stored, i)
				}
			}
			return t, ss.mayRelation(o, catalog.PrivSelect, t.stored)
		}
		name := sql.QuoteIdent(st.Name.Name)
		if st.Name.Schema != "" {
			name = sql.QuoteIdent(st.Name.Schema) + "." + name
		}
		stmts, err := sql.Parse("SELECT * FROM " + name)
		if err != nil {
			return nil, err
		}
		t.query = stmts[0].(*sql.Query) //nolint:forcetypeassert // it is a SELECT
	}
	if st.AsOf != nil {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "a subscription to a query cannot go on AS OF an epoch: its changes are not kept").At(st.AsOf.Pos).
			WithHint("Create a materialized view of the query WITH (retention = '1 hour') and subscribe to that.")
	}
	q, err := planner.PlanStream(t.query, ss.planOptions(ss.snapshot(), nil))
	if err == nil && len(q.Params) > 0 {
		err = pgerr.Newf(pgerr.UndefinedParameter, "there is no parameter $1")
	}
	if err != nil {
		if st.Query == nil {
			err = atPos(atNowhere(err), st.Name.Pos)
		}
		return nil, err
	}
	for i, c := range q.Columns {
		t.columns = append(t.columns, c)
		t.stored = append(t.stored, i)
	}
	return t, nil
}

// subscription is a running SUBSCRIBE.
type subscription struct {
	*subscribed
	ss      *session
	sub     *exec.Subscription
	started time.Time
	rows    atomic.Int64 // given
	chunk   *types.Chunk // rows that are given
	at      int          // so many of them were
	mark    *types.Chunk // of progress, after chunk
	ended   bool
}

// startSubscription begins what a SUBSCRIBE asks for.
func (d *dispatch) startSubscription(st *sql.Subscribe) (*subscription, error) {
	ss := d.ss
	t, err := ss.subscribed(st)
	if err != nil {
		return nil, err
	}
	o := exec.SubscribeOptions{Columns: t.stored, Snapshot: t.snapshot, Progress: t.progress, UpTo: math.MaxUint64}
	if st.UpTo != nil {
		o.UpTo = st.UpTo.Number
	}
	if st.AsOf != nil {
		o.AsOf = &st.AsOf.Number
	}
	ctx, cancel := d.untilStop()
	defer cancel()
	s := &subscription{subscribed: t, ss: ss, started: time.Now()}
	if t.obj == nil {
		s.sub, err = d.subscribeQuery(ctx, t, o)
	} else {
		s.sub, err = d.subscribeRelation(ctx, t, o)
	}
	if err == nil {
		ss.srv.following.Store(s, struct{}{})
	}
	return s, err
}

// subscribeRelation reads a table or materialized view where it is. A view with a retention that no checkpoint has yet gets one first: after a crash it would be computed
// again, and nothing that was told of it could be gone on from.
func (d *dispatch) subscribeRelation(ctx context.Context, t *subscribed, o exec.SubscribeOptions) (*exec.Subscription, error) {
	ss := d.ss
	if err := complete(t.obj); err != nil {
		return nil, err
	}
	rels, err := ss.srv.engine.Relations([]uint64{t.obj.ID})
	if err != nil {
		return nil, err
	}
	o.Waits = func() error {
		return ss.notice("NOTICE", pgerr.SuccessfulCompletion, "materialized view %q is paused: the subscription begins when it goes on", t.obj.Name)
	}
	sub, err := ss.srv.engine.Subscribe(ctx, rels[0], o)
	if err != nil || sub.Lasting() || ss.srv.cfg.MemoryOnly {
		return sub, err
	}
	if _, err = ss.srv.coord.TriggerWith(ctx, checkpoint.TriggerRequest{Jobs: []uint64{t.obj.JobID()}, Class: checkpoint.ClassForced}); err == nil {
		return sub, nil
	}
	if ctx.Err() == nil {
		err = ss.notice("WARNING", pgerr.Warning, "no checkpoint has materialized view %q yet: until one is complete, no subscription goes on after a crash: %s", t.obj.Name, pgerr.From(err).Message)
	}
	if err != nil {
		sub.Close()
	}
	return sub, err
}

// subscribeQuery makes a query a job of the session.
func (d *dispatch) subscribeQuery(ctx context.Context, t *subscribed, o exec.SubscribeOptions) (*exec.Subscription, error) {
	ss := d.ss
	settings, _, _, err := d.viewOptions(nil)
	if err != nil {
		return nil, err
	}
	engine := ss.srv.engine
	opts := ss.planOptions(ss.snapshot(), nil)
	opts.Relation = engine.TemporaryID()
	if err := jobSettings(&opts, settings); err != nil {
		return nil, err
	}
	backend, err := state.ParseBackend(settings["state.backend.type"])
	if err != nil {
		return nil, err
	}
	q, err := planner.PlanStream(t.query, opts)
	if err != nil {
		return nil, err
	}
	if err := ss.mayAccess(q.Access); err != nil {
		return nil, err
	}
	if err := ss.mayCall(q.Calls); err != nil {
		return nil, err
	}
	if err := complete(objectsOf(ss.snapshot(), q.Relations)...); err != nil {
		return nil, err
	}
	p, err := storedForm(q)
	if err != nil {
		return nil, err
	}
	return engine.SubscribeJob(ctx, exec.JobSpec{
		ID: opts.Relation, Name: "subscription", Plan: p, Parallelism: opts.Parallelism, Backend: backend, Format: textFormat(settings),
	}, o)
}

// storedForm takes a plan through its stored form, as the plans of views are taken: a job shares nothing with the planner.
func storedForm(q *planner.Planned) (*plan.Plan, error) {
	b, err := json.Marshal(q.Plan)
	if err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	p := &plan.Plan{}
	return p, json.Unmarshal(b, p)
}

// untilStop is the statement's context, which ends when the server is asked to stop, too: nobody waits for a subscription to end by itself.
func (d *dispatch) untilStop() (context.Context, context.CancelFunc) { return d.ss.untilStop(d.ctx) }

func (ss *session) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(ss.srv.stopping, func() {
		cancel(pgerr.Newf(pgerr.AdminShutdown, "terminating connection due to administrator command"))
	})
	return ctx, func() { stop(); cancel(nil) }
}

// subscribe runs SUBSCRIBE until it is cancelled or has given the last epoch asked for.
func (d *dispatch) subscribe(st *sql.Subscribe) error {
	if err := d.commitFirst(); err != nil {
		return err
	}
	s, err := d.startSubscription(st)
	if err != nil {
		return err
	}
	defer s.close()
	ctx, cancel := d.untilStop()
	defer cancel()
	if err := d.w.RowDescription(fields(s.columns, nil, d.formats)); err != nil {
		return err
	}
	n, err := s.run(ctx, d.w)
	if err != nil {
		return err
	}
	return d.complete(fmt.Sprintf("SUBSCRIBE %d", n))
}

// run gives rows as they come until the last epoch asked for, and returns their number.
func (s *subscription) run(ctx context.Context, w pgwire.ResultWriter) (total int64, err error) {
	for wait := time.Duration(0); !s.ended; wait = -1 {
		n, err := s.give(ctx, math.MaxInt64, wait, w.Rows)
		total += n
		if err == nil {
			err = w.Flush()
		}
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// give gives up to n rows: those that are there, and where none are it waits for the first of them as exec.Subscription.Next does.
func (s *subscription) give(ctx context.Context, n int64, wait time.Duration, emit func(*types.Chunk) error) (int64, error) {
	done := int64(0)
	for done < n {
		if s.chunk == nil {
			w := wait
			if done > 0 {
				w = 0
			}
			ok, err := s.next(ctx, w)
			if err != nil {
				return done, err
			}
			if !ok {
				return done, nil
			}
		}
		part, k := *s.chunk, int(min(n-done, int64(s.chunk.Rows()-s.at)))
		if s.at > 0 || k < part.Rows() {
			part.Sel = make([]uint16, k)
			for i := range k {
				part.Sel[i] = uint16(s.chunk.Row(s.at + i))
			}
		}
		if err := emit(&part); err != nil {
			return done, err
		}
		done += int64(k)
		s.rows.Add(int64(k))
		if s.at += k; s.at == s.chunk.Rows() {
			s.chunk, s.at, s.mark = s.mark, 0, nil
		}
	}
	return done, nil
}

// next brings in rows; false: none came.
func (s *subscription) next(ctx context.Context, wait time.Duration) (bool, error) {
	for s.chunk == nil && !s.ended {
		b, err := s.sub.Next(ctx, wait)
		if errors.Is(err, io.EOF) {
			s.ended = true
			break
		}
		if err != nil || b == nil {
			return false, err
		}
		if b.Rows != nil && b.Rows.Rows() > 0 {
			s.chunk = s.framed(b)
		}
		if !b.Complete || !s.progress {
			continue
		}
		mark := types.NewChunk(s.columns.Types())
		for _, v := range mark.Cols[2:] {
			v.AppendDatum(types.Datum{Type: v.Type, Null: true})
		}
		mark.Cols[0].AppendDatum(int8d(int64(b.Epoch)))
		mark.Cols[1].AppendDatum(types.Datum{Type: types.Bool, Bool: true})
		mark.N = 1
		if s.chunk == nil {
			s.chunk = mark
		} else {
			s.mark = mark
		}
	}
	return s.chunk != nil, nil
}

// framed puts the subscription's own columns before rows.
func (s *subscription) framed(b *exec.Batch) *types.Chunk {
	c := &types.Chunk{N: b.Rows.N, Sel: b.Rows.Sel}
	for _, col := range s.columns[:s.head] {
		v := types.NewVector(col.Type, c.N)
		switch col.Name {
		case columnEpoch:
			for i := range v.Int {
				v.Int[i] = int64(b.Epoch)
			}
		case columnDiff:
			for i := range v.Int {
				v.Int[i] = b.Rows.Weight(i)
			}
		}
		c.Cols = append(c.Cols, v)
	}
	c.Cols = append(c.Cols, b.Rows.Cols...)
	return c
}

func (s *subscription) close() {
	s.ss.srv.following.Delete(s)
	s.sub.Close()
}

func subscriptionsRelation(srv *Server) [][]types.Datum {
	var rows [][]types.Datum
	srv.following.Range(func(k, _ any) bool {
		s := k.(*subscription) //nolint:forcetypeassert // only subscriptions are stored
		id, name := types.NullDatum(types.Int8), types.NullDatum(types.Text)
		if s.obj != nil {
			id, name = int8d(int64(s.obj.ID)), text(s.obj.Name)
		}
		epoch, lag := s.sub.Given()
		rows = append(rows, []types.Datum{
			{Type: types.Int4, Int: int64(s.ss.params.ProcessID)}, id, name, int8d(int64(epoch)), int8d(lag.Milliseconds()), int8d(s.rows.Load()), timestamptz(s.started),
		})
		return true
	})
	return rows
}

func historiesRelation(srv *Server) [][]types.Datum {
	var rows [][]types.Datum
	for _, h := range srv.engine.Histories() {
		name := h.Name
		if o, ok := srv.catalog.Snapshot().Get(h.Relation); ok {
			name = o.Name
		}
		rows = append(rows, []types.Datum{int8d(int64(h.Relation)), text(name), int8d(int64(h.Earliest)), int8d(int64(h.Newest)), int8d(h.Bytes)})
	}
	return rows
}

// declareSubscription runs DECLARE … CURSOR FOR SUBSCRIBE.
func (d *dispatch) declareSubscription(st *sql.Declare) error {
	ss := d.ss
	switch {
	case st.Scroll:
		return pgerr.Newf(pgerr.InvalidCursorDefinition, "a cursor for SUBSCRIBE cannot scroll")
	case st.Insensitive:
		return pgerr.Newf(pgerr.InvalidCursorDefinition, "a cursor for SUBSCRIBE cannot be insensitive")
	case !st.Hold && !ss.tx.explicit && d.last && !ss.tx.several:
		return pgerr.Newf(pgerr.NoActiveSQLTransaction, "DECLARE CURSOR can only be used in transaction blocks")
	case ss.portals[st.Name] != nil:
		return pgerr.Newf(pgerr.DuplicateCursor, "cursor %q already exists", st.Name)
	case len(ss.portals) >= maxPortals:
		return pgerr.Newf(pgerr.ConfigurationLimitExceeded, "a session may hold %d cursors", maxPortals).WithHint("CLOSE those that are not needed any more.")
	}
	s, err := d.startSubscription(st.Subscribe)
	if err != nil {
		return err
	}
	p := &portal{name: st.Name, stmt: &prepared{stmt: st.Subscribe, columns: s.columns}, at: time.Now(), depth: len(ss.tx.saved), sub: s, sql: &declared{
		text: st.SourceText(), hold: st.Hold, binary: st.Binary, tx: ss.tx,
	}}
	if st.Binary {
		p.formats = []pgwire.Format{pgwire.FormatBinary}
	}
	ss.portals[st.Name] = p
	if err := d.complete("DECLARE CURSOR"); err != nil {
		ss.closePortal(st.Name)
		return err
	}
	return nil
}

// fetchChanges runs FETCH from a cursor for SUBSCRIBE: it gives what there is. What the session wrote itself is waited for.
func (d *dispatch) fetchChanges(st *sql.Fetch, p *portal) error {
	wait := time.Duration(0)
	for _, o := range st.Options {
		if !strings.EqualFold(o.Name, "timeout") {
			return pgerr.Newf(pgerr.InvalidParameterValue, "unrecognized parameter %q", o.Name).At(o.Pos).WithHint("FETCH knows: timeout.")
		}
		text, err := timeSpan(o.Value)
		if err == nil {
			wait, err = parseDuration(text)
		}
		if err != nil {
			return pgerr.Newf(pgerr.InvalidParameterValue, "invalid value for parameter %q: %q", "timeout", o.Value).At(o.ValuePos).WithHint("%s.", capital(err.Error()))
		}
	}
	n := st.Count
	if st.All {
		n = math.MaxInt64
	}
	if st.Direction != sql.FetchForward || n < 0 {
		return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "cursor can only scan forward").WithHint("Changes of a relation with a retention can be read again: SUBSCRIBE … AS OF an earlier epoch.")
	}
	emit := func(*types.Chunk) error { return nil }
	if !st.Move {
		formats := d.formats
		if d.portal == nil {
			formats = p.formats
		}
		if err := d.w.RowDescription(fields(p.stmt.columns, nil, formats)); err != nil {
			return err
		}
		emit = d.w.Rows
	}
	ctx, cancel := d.untilStop()
	defer cancel()
	err := p.sub.sub.Reach(ctx, d.ss.written)
	given := int64(0)
	if err == nil {
		given, err = p.sub.give(ctx, n, wait, emit)
	}
	if err != nil {
		if p.failed = context.Cause(ctx) == nil; p.failed { // otherwise what was not given is given by the next FETCH
			p.sub.close()
		}
		return err
	}
	word := "FETCH "
	if st.Move {
		word = "MOVE "
	}
	return d.complete(word + strconv.FormatInt(given, 10))
}

// pageChanges sends up to maxRows rows of a portal of SUBSCRIBE, 0 for all.
func (ss *session) pageChanges(ctx context.Context, p *portal, st *sql.Subscribe, maxRows int, w pgwire.ResultWriter) error {
	d := &dispatch{ss: ss, ctx: ctx, w: w, portal: p, formats: p.formats}
	if p.sub == nil {
		s, err := d.startSubscription(st)
		if err != nil {
			return err
		}
		p.sub = s
	}
	ctx, cancel := ss.untilStop(ctx)
	defer cancel()
	if err := w.RowDescription(fields(p.stmt.columns, nil, p.formats)); err != nil {
		return err
	}
	if maxRows == 0 {
		n, err := p.sub.run(ctx, w)
		if err != nil {
			return err
		}
		p.done = p.sql == nil
		return w.CommandComplete(fmt.Sprintf("SUBSCRIBE %d", n))
	}
	n, err := p.sub.give(ctx, int64(maxRows), -1, w.Rows)
	if err != nil {
		return err
	}
	if !p.sub.ended {
		return w.Suspended()
	}
	p.done = p.sql == nil
	return w.CommandComplete(fmt.Sprintf("SUBSCRIBE %d", n))
}

// reserveEpochs returns what keeps on disk up to which epoch clients may have been told; nil where nothing is kept.
func (s *Server) reserveEpochs() func(uint64) error {
	if s.cfg.MemoryOnly {
		return nil
	}
	return func(through uint64) error {
		return writeFile(filepath.Join(s.cfg.DataDir, epochsFile), epochsMagic, "epochs", []byte(strconv.FormatUint(through, 10)))
	}
}

// movedEpochs is how far a server jumps ahead that starts from a checkpoint alone: more than the other one can have gone since.
const movedEpochs = 1 << 32

// skipReserved goes on after all epochs that clients may have been told.
func (s *Server) skipReserved() error {
	if s.cfg.MemoryOnly {
		return nil
	}
	if s.moved {
		n := s.engine.Epoch() + movedEpochs
		s.engine.SkipTo(n)
		return s.reserveEpochs()(n)
	}
	path := filepath.Join(s.cfg.DataDir, epochsFile)
	b, err := readFile(path, epochsMagic, "epochs", "Remove it when no client goes on with a SUBSCRIBE from before.")
	if err != nil || b == nil {
		return err
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		return pgerr.Wrap(pgerr.DataCorrupted, err, "%s", path)
	}
	s.engine.SkipTo(n)
	return nil
}
