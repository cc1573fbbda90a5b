package connectortest

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// SinkTarget is a target of a sink in a test.
type SinkTarget struct {
	Connector connector.SinkConnector
	// Config is of an exactly-once, append-only sink of the columns SinkColumns, but for its ID.
	Config connector.SinkConfig
	// Rows returns what is visible in the target, each row as "id,name", in any order.
	Rows func(t *testing.T) []string
	// Hidden reports how much the target has that is not visible; nil: such things are not in the target.
	Hidden func(t *testing.T) int
}

// SinkColumns are the columns of the rows that TestSink writes.
func SinkColumns() types.Schema {
	return types.Schema{{Name: "id", Type: types.Int8}, {Name: "name", Type: types.Text}}
}

type sinkTest struct {
	t    *testing.T
	to   SinkTarget
	sink connector.Sink
	// list are the committables with the epochs that they belong to.
	list []sealed
	next int
}

type sealed struct {
	epoch uint64
	c     []byte
}

// TestSink checks what the engine relies on: nothing is visible before a commit, everything once after it, however often it is repeated, by whom, and where the one
// before broke off; and what nobody knows is cleared away.
func TestSink(t *testing.T, target func(t *testing.T) SinkTarget) {
	run := func(name string, f func(s *sinkTest)) {
		t.Run(name, func(t *testing.T) {
			s := &sinkTest{t: t, to: target(t)}
			s.to.Config.ID = fmt.Sprintf("%032x", 77)
			s.to.Config.Columns, s.to.Config.Mode, s.to.Config.ExactlyOnce = SinkColumns(), connector.AppendOnly, true
			s.to.Config.Writer = connector.Identity{Line: []string{"a"}, Holder: "server a"}
			s.to.Config.Text, s.to.Config.Dir = types.DefaultFormat(), t.TempDir()
			require.NoError(t, s.to.Connector.Check(s.ctx(), &s.to.Config))
			s.open(0)
			t.Cleanup(func() { require.NoError(t, s.sink.Close()) })
			f(s)
		})
	}
	run("nothing is visible before a commit", func(s *sinkTest) {
		s.write(1, 0, 5000)
		s.sees(0)
		s.commit(1)
		s.sees(5000)
	})
	run("commits may be repeated", func(s *sinkTest) {
		s.write(1, 0, 10)
		s.commit(1)
		s.commit(1)
		s.write(2, 0, 10)
		s.commit(2)
		s.commit(2)
		s.sees(20)
	})
	run("who opens the sink again commits what was sealed", func(s *sinkTest) {
		s.write(1, 0, 10)
		s.write(2, 1, 10)
		s.open(2)
		s.commit(2)
		s.open(2)
		s.commit(2)
		s.sees(20)
	})
	run("a commit that covers several transactions", func(s *sinkTest) {
		s.write(1, 0, 10)
		s.write(2, 1, 10)
		s.commit(1)
		s.sees(10)
		s.write(3, 0, 10)
		s.commit(3)
		s.sees(30)
	})
	run("what nobody knows is aborted", func(s *sinkTest) {
		s.write(1, 0, 10)
		kept := slices.Clone(s.list)
		s.write(2, 0, 10)
		w := s.writer(1)
		_, err := w.Write(s.ctx(), s.rows(10))
		require.NoError(s.t, err) // and is never sealed
		s.list, s.next = kept, 10
		s.open(1)
		require.NoError(s.t, w.Close())
		s.commit(1)
		s.sees(10)
		s.write(3, 0, 10)
		s.commit(3)
		s.sees(20)
		if s.to.Hidden != nil {
			require.Zero(s.t, s.to.Hidden(s.t))
		}
	})
	run("recovery leaves alone what was begun since", func(s *sinkTest) {
		s.write(1, 0, 10)
		require.NoError(s.t, s.sink.Recover(s.ctx(), 0, s.committables(0)))
		s.commit(1)
		s.sees(10)
	})
	run("a flush may be repeated", func(s *sinkTest) {
		w := s.writer(0)
		done, err := w.Write(s.ctx(), s.rows(10))
		require.NoError(s.t, err)
		more, flush, err := w.Seal("1")
		require.NoError(s.t, err)
		s.keep(1, append(done, more...))
		if flush != nil {
			require.NoError(s.t, flush(s.ctx()))
			require.NoError(s.t, flush(s.ctx()))
		}
		require.NoError(s.t, w.Close())
		s.commit(1)
		s.sees(10)
	})
	run("nothing written is nothing to commit", func(s *sinkTest) {
		w := s.writer(0)
		list, _, err := w.Seal("1")
		require.NoError(s.t, err)
		require.Empty(s.t, list)
		require.NoError(s.t, w.Close())
	})
	run("a target that has more than the database is not written to before somebody says so", func(s *sinkTest) {
		s.write(7, 0, 10)
		s.commit(7)
		s.list = nil
		err := s.reopen(3) // a copy of the database from before: what it writes from now on is not what was written
		require.ErrorIs(s.t, err, connector.ErrSinkTaken)
		s.sees(10)
		s.to.Config.Options[connector.OptionTakeOver] = "0000"
		require.ErrorIs(s.t, s.reopen(3), connector.ErrSinkTaken)
		require.Equal(s.t, pgerr.InvalidParameterValue, pgerr.CodeOf(s.to.Connector.Check(s.ctx(), &s.to.Config)))
		s.to.Config.Options[connector.OptionTakeOver] = token(s.t, err)
		require.NoError(s.t, s.to.Connector.Check(s.ctx(), &s.to.Config))
		s.open(3)
		s.write(4, 0, 10)
		s.commit(4)
		s.sees(20)
	})
	run("who goes on elsewhere takes over", func(s *sinkTest) {
		s.write(1, 0, 10)
		s.commit(1)
		s.write(2, 0, 10) // sealed, and known to who goes on from epoch 2
		old, copied := *s, *s
		old.list, copied.list = slices.Clone(s.list), slices.Clone(s.list)
		copied.elsewhere("b").open(2)
		s.t.Cleanup(func() { require.NoError(s.t, copied.sink.Close()) })

		old.write(3, 0, 10)
		require.ErrorIs(s.t, old.tryCommit(3), connector.ErrSinkTaken, "it would lose the rows, or write them twice")
		require.ErrorContains(s.t, old.tryCommit(3), "belongs to server b (since 2")
		s.sees(10)
		copied.commit(2)
		copied.write(3, 1, 10)
		copied.commit(3)
		s.sees(30)
		require.ErrorIs(s.t, old.tryCommit(3), connector.ErrSinkTaken)
		require.NoError(s.t, old.sink.Abandon(s.ctx()), "dropping it where it was leaves alone what others write")
		copied.write(4, 0, 10)
		copied.commit(4)
		s.sees(40)

		restarted := old
		err := restarted.elsewhere("a2").reopen(3)
		require.ErrorIs(s.t, err, connector.ErrSinkTaken, "nor does a new start get it back")
		again := copied
		again.list = slices.Clone(copied.list)
		again.elsewhere("b2").open(4)
		require.ErrorIs(s.t, copied.tryCommit(5), connector.ErrSinkTaken, "a start is one more that goes on")
		again.write(5, 0, 10)
		again.commit(5)
		s.sees(50)

		forced := restarted
		require.ErrorIs(s.t, forced.reopen(3), connector.ErrSinkTaken)
		forced.to.Config.Options = maps.Clone(forced.to.Config.Options)
		forced.to.Config.Options[connector.OptionTakeOver] = token(s.t, forced.reopen(3))
		forced.open(3)
		require.ErrorIs(s.t, again.tryCommit(6), connector.ErrSinkTaken)
		require.ErrorIs(s.t, again.reopen(6), connector.ErrSinkTaken)
		require.NoError(s.t, again.sink.Close())
		require.NoError(s.t, forced.sink.Abandon(s.ctx()))
		*s = forced
	})
	run("who goes on from before what was written since does not take over", func(s *sinkTest) {
		s.write(1, 0, 10)
		s.commit(1)
		copied := *s
		copied.list = slices.Clone(s.list)
		s.write(2, 0, 10)
		s.commit(2)
		require.ErrorIs(s.t, copied.elsewhere("b").reopen(1), connector.ErrSinkTaken)
		s.write(3, 0, 10)
		s.commit(3)
		s.sees(30)
	})
}

// elsewhere makes s the sink of another server, that goes on from what it has.
func (s *sinkTest) elsewhere(name string) *sinkTest {
	s.to.Config.Writer = connector.Identity{Line: append(slices.Clone(s.to.Config.Writer.Line), name), Holder: "server " + name}
	s.to.Config.Dir = s.t.TempDir()
	s.sink = nil
	return s
}

// token is what err says is to be given to take over.
func token(t *testing.T, err error) string {
	t.Helper()
	m := regexp.MustCompile(connector.OptionTakeOver + ` = '(\w+)'`).FindStringSubmatch(pgerr.From(err).Hint)
	require.NotNil(t, m, "%v", err)
	return m[1]
}

func (s *sinkTest) ctx() context.Context { return s.t.Context() }

func (s *sinkTest) open(epoch uint64) {
	s.t.Helper()
	require.NoError(s.t, s.reopen(epoch))
}

// reopen opens the sink once more and returns what recovery says.
func (s *sinkTest) reopen(epoch uint64) error {
	s.t.Helper()
	if s.sink != nil {
		require.NoError(s.t, s.sink.Close())
	}
	cfg := s.to.Config
	var err error
	s.sink, err = s.to.Connector.Sink(&cfg)
	require.NoError(s.t, err)
	return s.sink.Recover(s.ctx(), epoch, s.committables(0))
}

func (s *sinkTest) writer(subtask int) connector.SinkWriter {
	s.t.Helper()
	w, err := s.sink.Writer(subtask)
	require.NoError(s.t, err)
	return w
}

func (s *sinkTest) rows(n int) *types.Chunk {
	c := types.NewChunk(SinkColumns().Types())
	for range n {
		c.Cols[0].AppendDatum(types.Datum{Type: types.Int8, Int: int64(s.next)})
		c.Cols[1].AppendDatum(types.Datum{Type: types.Text, Str: fmt.Sprintf("row \"%d\"", s.next)})
		c.PushWeight(1)
		s.next++
	}
	return c
}

// write writes n rows in a transaction that ends with an epoch.
func (s *sinkTest) write(epoch uint64, subtask, n int) {
	s.t.Helper()
	w := s.writer(subtask)
	for n > 0 {
		k := min(n, 1000)
		done, err := w.Write(s.ctx(), s.rows(k))
		require.NoError(s.t, err)
		s.keep(epoch, done)
		n -= k
	}
	list, flush, err := w.Seal(fmt.Sprint(epoch))
	require.NoError(s.t, err)
	s.keep(epoch, list)
	if flush != nil {
		require.NoError(s.t, flush(s.ctx()))
	}
	require.NoError(s.t, w.Close())
}

func (s *sinkTest) keep(epoch uint64, list [][]byte) {
	for _, c := range list {
		s.list = append(s.list, sealed{epoch, slices.Clone(c)})
	}
}

// committables are those through an epoch, 0: all.
func (s *sinkTest) committables(through uint64) *connector.Committables {
	var list []sealed
	for _, x := range s.list {
		if through == 0 || x.epoch <= through {
			list = append(list, x)
		}
	}
	last := uint64(0)
	if len(list) > 0 {
		last = list[len(list)-1].epoch
	}
	return &connector.Committables{Len: len(list), Last: last, Each: func(fn func(uint64, []byte) error) error {
		for _, x := range list {
			if err := fn(x.epoch, x.c); err != nil {
				return err
			}
		}
		return nil
	}}
}

func (s *sinkTest) tryCommit(epoch uint64) error {
	return s.sink.Commit(s.ctx(), epoch, s.committables(epoch))
}

func (s *sinkTest) commit(epoch uint64) {
	s.t.Helper()
	require.NoError(s.t, s.tryCommit(epoch))
}

// sees checks that n rows are visible, each once.
func (s *sinkTest) sees(n int) {
	s.t.Helper()
	got := s.to.Rows(s.t)
	require.Len(s.t, got, n)
	slices.Sort(got)
	require.Len(s.t, slices.Compact(got), n, "each row once")
}
