package server_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Random statements between savepoints, against a map that is copied at each: nested ones, names used again, the same row changed on several
// levels, a unique index whose violations fail the block.
func TestSavepointsAreCopies(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, u int UNIQUE)")
	type saved struct {
		name string
		rows map[int]int
	}
	committed := map[int]int{}
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 7))
		rows := maps.Clone(committed)
		var stack []saved
		find := func(name string) int {
			for i, sp := range slices.Backward(stack) {
				if sp.name == name {
					return i
				}
			}
			return -1
		}
		taken := func(id, u int) bool {
			for k, v := range rows {
				if v == u && k != id {
					return true
				}
			}
			return false
		}
		failed := func(code, q string) {
			require.Equal(t, code, s.code(q), q)
			i := rng.IntN(len(stack))
			i = find(stack[i].name)
			s.must("ROLLBACK TO " + stack[i].name)
			rows, stack = maps.Clone(stack[i].rows), stack[:i+1]
		}
		s.must("BEGIN", "SAVEPOINT a")
		stack = append(stack, saved{"a", maps.Clone(rows)})
		for range 120 {
			name := string(rune('a' + rng.IntN(3)))
			id, u := rng.IntN(8), rng.IntN(8)
			_, there := rows[id]
			switch p := rng.IntN(20); {
			case p < 4:
				s.must("SAVEPOINT " + name)
				stack = append(stack, saved{name, maps.Clone(rows)})
			case p < 7:
				if i := find(name); i >= 0 {
					s.must("ROLLBACK TO " + name)
					rows, stack = maps.Clone(stack[i].rows), stack[:i+1]
				}
			case p < 9:
				if i := find(name); i > 0 {
					s.must("RELEASE " + name)
					stack = stack[:i]
				}
			case p < 13:
				q := fmt.Sprintf("INSERT INTO t VALUES (%d, %d)", id, u)
				if there || taken(id, u) {
					failed("23505", q)
					continue
				}
				s.must(q)
				rows[id] = u
			case p < 15:
				s.must(fmt.Sprintf("DELETE FROM t WHERE id = %d", id))
				delete(rows, id)
			case p < 17:
				q := fmt.Sprintf("UPDATE t SET u = %d WHERE id = %d", u, id)
				if there && taken(id, u) {
					failed("23505", q)
					continue
				}
				s.must(q)
				if there {
					rows[id] = u
				}
			default:
				if taken(id, u) {
					continue
				}
				s.must(fmt.Sprintf("INSERT INTO t VALUES (%d, %d) ON CONFLICT (id) DO UPDATE SET u = excluded.u", id, u))
				rows[id] = u
			}
			want := []string{}
			for _, k := range slices.Sorted(maps.Keys(rows)) {
				want = append(want, fmt.Sprintf("%d|%d", k, rows[k]))
			}
			require.Equal(t, want, s.rows("SELECT id, u FROM t ORDER BY id"), "seed %d", seed)
		}
		if seed%3 == 0 {
			s.must("ROLLBACK")
			continue
		}
		s.must("COMMIT")
		committed = rows
	}
}

// A cursor opened before goes on with the rows of its moment while later ones change and savepoints are returned to.
func TestCursorBesideSavepoints(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, v int)", "BEGIN", "INSERT INTO t SELECT g, 1 FROM generate_series(1, 5000) g", "DECLARE c CURSOR FOR SELECT v FROM t ORDER BY id")
	require.Equal(t, "1", s.row("FETCH c"))
	s.must("SAVEPOINT a", "UPDATE t SET v = 2", "ROLLBACK TO a", "UPDATE t SET v = 3", "INSERT INTO t VALUES (0, 3)")
	require.Equal(t, slices.Repeat([]string{"1"}, 4999), s.rows("FETCH ALL c"))
	require.Equal(t, "5001|15003", s.row("SELECT count(*), sum(v) FROM t"))
	s.must("ROLLBACK")
}
