package server_test

import (
	"encoding/binary"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/server"
)

// wireClient sends messages that are encoded already and reads answers without looking into them: what it allocates and how long it takes is the
// server's doing.
type wireClient struct {
	t    testing.TB
	conn net.Conn
	buf  []byte
	in   []byte
}

func (d *database) wire(t testing.TB, prepare ...*pgproto3.Parse) *wireClient {
	h, err := d.connect().PgConn().Hijack()
	require.NoError(t, err)
	c := &wireClient{t: t, conn: h.Conn, buf: make([]byte, 64<<10)}
	t.Cleanup(func() { _ = h.Conn.Close() })
	var msgs []pgproto3.FrontendMessage
	for _, p := range prepare {
		msgs = append(msgs, p)
	}
	c.roundTrip(encoded(t, append(msgs, &pgproto3.Sync{})...), 1)
	return c
}

// encoded are the bytes of messages.
func encoded(t testing.TB, msgs ...pgproto3.FrontendMessage) (out []byte) {
	for _, m := range msgs {
		var err error
		out, err = m.Encode(out)
		require.NoError(t, err)
	}
	return out
}

// executes are the messages of an execution of the prepared statement "s" with one int8 in binary form, the result in binary form, too.
func executes(t testing.TB, id int64) []byte {
	return encoded(t, &pgproto3.Bind{
		PreparedStatement: "s", ParameterFormatCodes: []int16{1}, Parameters: [][]byte{binary.BigEndian.AppendUint64(nil, uint64(id))}, ResultFormatCodes: []int16{1},
	}, &pgproto3.Execute{}, &pgproto3.Sync{})
}

// roundTrip sends bytes and reads until so many ReadyForQuery; it returns the number of rows. The answer must have no errors.
func (c *wireClient) roundTrip(b []byte, ready int) (rows int) {
	if _, err := c.conn.Write(b); err != nil {
		c.t.Fatal(err)
	}
	c.in = c.in[:0]
	for {
		for len(c.in) >= 5 {
			n := 1 + int(binary.BigEndian.Uint32(c.in[1:]))
			if len(c.in) < n {
				break
			}
			switch c.in[0] {
			case 'E':
				c.t.Fatalf("error: %q", c.in[:n])
			case 'D':
				rows++
			case 'Z':
				ready--
			}
			c.in = c.in[n:]
		}
		if ready == 0 {
			return rows
		}
		n, err := c.conn.Read(c.buf)
		if err != nil {
			c.t.Fatal(err)
		}
		if len(c.in) == 0 {
			c.in = c.buf[:n]
			continue
		}
		c.in = append(c.in[:len(c.in):len(c.in)], c.buf[:n]...)
	}
}

const servingRows = 1000

func servingDatabase(t testing.TB) *database {
	d := open(t)
	d.connect().must("CREATE TABLE items (id bigint PRIMARY KEY, price bigint, name text)",
		"INSERT INTO items SELECT i, i * 7, 'item ' || i FROM generate_series(1, 1000) i",
		"CREATE MATERIALIZED VIEW totals AS SELECT id, sum(price)::bigint AS total, max(name) AS name, count(*) AS n FROM items GROUP BY id")
	return d
}

// Executing a prepared read by key again costs no planning and next to no memory, whatever the result's types are.
func TestPointReadsAllocateLittle(t *testing.T) {
	d := servingDatabase(t)
	for _, q := range []string{"SELECT total FROM totals WHERE id = $1", "SELECT name, n, total FROM totals WHERE id = $1", "SELECT * FROM items WHERE id = $1"} {
		c := d.wire(t, &pgproto3.Parse{Name: "s", Query: q, ParameterOIDs: []uint32{20}})
		reads := make([][]byte, 64)
		for i := range reads {
			reads[i] = executes(t, int64(1+i*13))
		}
		i := 0
		allocs := testing.AllocsPerRun(1000, func() {
			if rows := c.roundTrip(reads[i%len(reads)], 1); rows != 1 {
				t.Fatalf("%d rows", rows)
			}
			i++
		})
		t.Logf("%s: %.1f allocations", q, allocs)
		require.LessOrEqual(t, allocs, 8.0, q)
	}
}

func BenchmarkPointRead(b *testing.B) {
	d := servingDatabase(b)
	c := d.wire(b, &pgproto3.Parse{Name: "s", Query: "SELECT total FROM totals WHERE id = $1", ParameterOIDs: []uint32{20}})
	reads := make([][]byte, servingRows)
	for i := range reads {
		reads[i] = executes(b, int64(1+i))
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		c.roundTrip(reads[i%len(reads)], 1)
	}
}

func BenchmarkInsertRow(b *testing.B) {
	d := servingDatabase(b)
	c := d.wire(b, &pgproto3.Parse{Name: "s", Query: "INSERT INTO items VALUES ($1, 7, 'a name of some length')", ParameterOIDs: []uint32{20}})
	c.roundTrip(encoded(b, &pgproto3.Query{String: "SET synchronous_commit = off"}), 1)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		b.StopTimer()
		m := executes(b, int64(servingRows+1+i))
		b.StartTimer()
		c.roundTrip(m, 1)
	}
}

// New views spread over as many cores as the server is told, not over as many threads as the process may run.
func TestViewsSpreadOverCores(t *testing.T) {
	d := open(t, func(c *server.Config) { c.Cores = 3 })
	s := d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY)", "CREATE MATERIALIZED VIEW v AS SELECT id % 10 AS k, count(*) AS n FROM t GROUP BY 1")
	var n int
	require.NoError(t, s.QueryRow(d.ctx, "SELECT parallelism FROM streamdb.jobs WHERE name = 'v'").Scan(&n))
	require.Equal(t, 3, n)
}
