package server

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// Values of sequences are no part of transactions. The system table holds, durably, a value that none given out has passed; up to it values
// are given out from memory. After a crash a sequence goes on behind it: values are skipped, never repeated.

// Limits of reservation.
const (
	reserveLeast  = 32          // values, as PostgreSQL logs ahead
	reserveMost   = 1 << 16     // values; bulk loads reserve more and more
	reserveGrowth = time.Second // a reservation used up within that time is followed by one of twice the size
)

// sequence is the runtime of a sequence.
type sequence struct {
	mu     sync.Mutex
	loaded bool
	last   int64
	called bool
	ahead  int64 // values that may be given out before the next reservation
	size   int64 // of the last reservation
	at     time.Time
}

func (s *Server) sequence(id uint64) *sequence {
	if q, ok := s.sequences.Load(id); ok {
		return q.(*sequence) //nolint:forcetypeassert // only sequences are stored
	}
	q, _ := s.sequences.LoadOrStore(id, &sequence{})
	return q.(*sequence) //nolint:forcetypeassert // only sequences are stored
}

// load reads the durable state once; q.mu is held. Without any the sequence is at its start.
func (q *sequence) load(s *Server, id uint64, def *catalog.SequenceDef) error {
	if q.loaded {
		return nil
	}
	row, err := s.systemRow(int64(id))
	if err != nil {
		return err
	}
	q.last, q.called = def.Start, false
	if row != nil {
		a, b, err := decodeSystemRow(row)
		if err != nil {
			return err
		}
		q.last, q.called = a, b != 0
	}
	q.loaded = true
	return nil
}

// store makes a state durable; q.mu is held.
func (q *sequence) store(ctx context.Context, s *Server, id uint64, value int64, called bool) error {
	b := int64(0)
	if called {
		b = 1
	}
	w, err := s.systemWrite(int64(id), value, b)
	if err != nil {
		return err
	}
	_, err = s.engine.Commit(context.WithoutCancel(ctx), []exec.TableWrite{w})
	return err
}

// step returns the value n steps after v without passing a bound, and how many steps that are.
func step(def *catalog.SequenceDef, v, n int64) (last, steps int64) {
	var room uint64
	inc := uint64(def.Increment)
	if def.Increment > 0 {
		if v < def.Max {
			room = uint64(def.Max) - uint64(v)
		}
	} else {
		inc = -inc
		if v > def.Min {
			room = uint64(v) - uint64(def.Min)
		}
	}
	k := min(room/inc, uint64(n))
	return v + int64(k)*def.Increment, int64(k)
}

// next gives out a value.
func (q *sequence) next(ctx context.Context, s *Server, o *catalog.Object) (int64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	def := o.Sequence
	if err := q.load(s, o.ID, def); err != nil {
		return 0, err
	}
	v := q.last
	if q.called {
		var n int64
		if v, n = step(def, q.last, 1); n == 0 {
			bound, limit := "maximum", def.Max
			v = def.Min
			if def.Increment < 0 {
				bound, limit = "minimum", def.Min
				v = def.Max
			}
			if !def.Cycle {
				return 0, pgerr.Newf(pgerr.SequenceGeneratorLimitExceeded, "nextval: reached %s value of sequence \"%s\" (%d)", bound, o.Name, limit)
			}
			q.ahead = 0
		}
	}
	if q.ahead == 0 {
		now := time.Now()
		switch {
		case q.size == 0 || now.Sub(q.at) > reserveGrowth:
			q.size = reserveLeast
		default:
			q.size = min(2*q.size, reserveMost)
		}
		through, n := step(def, v, q.size)
		if err := q.store(ctx, s, o.ID, through, true); err != nil {
			return 0, err
		}
		q.at, q.ahead = now, n+1
	}
	q.ahead--
	q.last, q.called = v, true
	return v, nil
}

// state returns what `SELECT * FROM sequence` shows.
func (q *sequence) state(s *Server, o *catalog.Object) (last, logCount int64, called bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.load(s, o.ID, o.Sequence); err != nil {
		return 0, 0, false, err
	}
	return q.last, q.ahead, q.called, nil
}

// set moves the sequence and returns where it was.
func (q *sequence) set(ctx context.Context, s *Server, o *catalog.Object, value int64, called bool) (was int64, wasCalled bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.load(s, o.ID, o.Sequence); err != nil {
		return 0, false, err
	}
	was, wasCalled = q.last, q.called
	if err := q.store(ctx, s, o.ID, value, called); err != nil {
		return 0, false, err
	}
	q.last, q.called, q.ahead = value, called, 0
	return was, wasCalled, nil
}

// keepSequences stores where the sequences are, so that a server that is stopped skips no values.
func (s *Server) keepSequences(ctx context.Context) error {
	var err error
	s.sequences.Range(func(id, v any) bool {
		q := v.(*sequence) //nolint:forcetypeassert // only sequences are stored
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.loaded && q.ahead > 0 {
			err = q.store(ctx, s, id.(uint64), q.last, q.called) //nolint:forcetypeassert // by id
			q.ahead = 0
		}
		return err == nil
	})
	return err
}

// dropSequence forgets a sequence that is no more.
func (s *Server) dropSequence(ctx context.Context, id uint64) error {
	q := s.sequence(id)
	q.mu.Lock()
	defer q.mu.Unlock()
	s.sequences.Delete(id)
	return s.systemDelete(ctx, int64(id))
}

// sessionSequences gives expressions the sequences of a session.
type sessionSequences struct {
	ss *session

	mu   sync.Mutex
	got  map[uint64]int64 // newest value by sequence
	last uint64           // sequence used last
}

// find checks that oid is a sequence.
func (q *sessionSequences) find(oid uint32) (*catalog.Object, error) {
	o, ok := q.ss.snapshot().Get(uint64(oid))
	if !ok {
		return nil, pgerr.Newf(pgerr.InternalError, "could not open relation with OID %d", oid)
	}
	if o.Kind != catalog.Sequence {
		return nil, pgerr.Newf(pgerr.WrongObjectType, "\"%s\" is not a sequence", o.Name)
	}
	return o, nil
}

func (q *sessionSequences) writable(what string) error {
	if q.ss.vars.readOnly() {
		return pgerr.Newf(pgerr.ReadOnlySQLTransaction, "cannot execute %s() in a read-only transaction", what)
	}
	return nil
}

// Next implements expr.Sequences.
func (q *sessionSequences) Next(oid uint32) (int64, error) {
	o, err := q.find(oid)
	if err != nil {
		return 0, err
	}
	if err := q.ss.maySequence(o, catalog.PrivUsage|catalog.PrivUpdate, true); err != nil {
		return 0, err
	}
	if err := q.writable("nextval"); err != nil {
		return 0, err
	}
	v, err := q.ss.srv.sequence(o.ID).next(q.ss.ctx, q.ss.srv, o)
	if err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.got == nil {
		q.got = map[uint64]int64{}
	}
	q.got[o.ID], q.last = v, o.ID
	return v, nil
}

// Current implements expr.Sequences.
func (q *sessionSequences) Current(oid uint32) (int64, error) {
	o, err := q.find(oid)
	if err != nil {
		return 0, err
	}
	if err := q.ss.maySequence(o, catalog.PrivUsage|catalog.PrivSelect, false); err != nil {
		return 0, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	v, ok := q.got[o.ID]
	if !ok {
		return 0, pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "currval of sequence \"%s\" is not yet defined in this session", o.Name)
	}
	return v, nil
}

// Last implements expr.Sequences.
func (q *sessionSequences) Last() (int64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.ss.snapshot().Get(q.last); !ok {
		return 0, pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "lastval is not yet defined in this session")
	}
	return q.got[q.last], nil
}

// Set implements expr.Sequences.
func (q *sessionSequences) Set(oid uint32, value int64, called bool) error {
	o, err := q.find(oid)
	if err != nil {
		return err
	}
	if err := q.ss.maySequence(o, catalog.PrivUpdate, false); err != nil {
		return err
	}
	if err := q.writable("setval"); err != nil {
		return err
	}
	if d := o.Sequence; value < d.Min || value > d.Max {
		return pgerr.Newf(pgerr.NumericValueOutOfRange, "setval: value %d is out of bounds for sequence \"%s\" (%d..%d)", value, o.Name, d.Min, d.Max)
	}
	if _, _, err = q.ss.srv.sequence(o.ID).set(q.ss.ctx, q.ss.srv, o, value, called); err != nil || !called {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.got == nil {
		q.got = map[uint64]int64{}
	}
	q.got[o.ID] = value
	return nil
}

// Newest implements expr.Sequences.
func (q *sessionSequences) Newest(oid uint32) (value int64, ok bool, err error) {
	o, err := q.find(oid)
	if err != nil {
		return 0, false, err
	}
	last, _, called, err := q.ss.srv.sequence(o.ID).state(q.ss.srv, o)
	return last, called, err
}

// forget is DISCARD SEQUENCES.
func (q *sessionSequences) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.got, q.last = nil, 0
}

// sequenceColumns are those of every sequence.
func sequenceColumns() []catalog.Column {
	return []catalog.Column{{Name: "last_value", Type: types.Int8, NotNull: true}, {Name: "log_cnt", Type: types.Int8, NotNull: true}, {Name: "is_called", Type: types.Bool, NotNull: true}}
}

// sequenceRelation begins the name of the virtual relation that a sequence is to queries; its id follows.
const sequenceRelation = "sequence."

// sequenceRow is the one row of a sequence.
func (t *systemTables) sequenceRow(id string, columns []int, emit func(*types.Chunk) error) error {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return undefinedSystem(sequenceRelation + id)
	}
	o, ok := t.ss.snapshot().Get(n)
	if !ok || o.Kind != catalog.Sequence {
		return undefinedSystem(sequenceRelation + id)
	}
	last, logged, called, err := t.ss.srv.sequence(n).state(t.ss.srv, o)
	if err != nil {
		return err
	}
	row := []types.Datum{int8d(last), int8d(logged), {Type: types.Bool, Bool: called}}
	ts := make([]types.Type, len(columns))
	for i, n := range columns {
		ts[i] = row[n].Type
	}
	c := types.NewChunk(ts)
	for i, n := range columns {
		c.Cols[i].AppendDatum(row[n])
	}
	c.PushWeight(1)
	return emit(c)
}

// typeBounds returns the least and largest value of an integer type.
func typeBounds(oid types.OID) (least, most int64) {
	switch oid {
	case types.OIDInt2:
		return math.MinInt16, math.MaxInt16
	case types.OIDInt4:
		return math.MinInt32, math.MaxInt32
	}
	return math.MinInt64, math.MaxInt64
}
