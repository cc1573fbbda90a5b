package server_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/connector/all"
	"github.com/streamdb/streamdb/server"
)

// fuzzTimeout bounds one session of the fuzz target.
const fuzzTimeout = 20 * time.Second

// blunders of clients are internal errors in PostgreSQL too.
var blunders = regexp.MustCompile(`cache lookup failed for type|could not open relation with OID`)

// complaints keeps what a server logs as its own fault.
type complaints struct {
	mu   sync.Mutex
	text strings.Builder
}

func (c *complaints) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range []string{"panic", "internal error"} {
		if bytes.Contains(p, []byte(s)) && !blunders.Match(p) {
			c.text.Write(p)
			break
		}
	}
	return len(p), nil
}

func (c *complaints) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.text.Reset()
	return c.text.String()
}

// message is a record of the target's input: type, length in two bytes, body.
func message(typ byte, body string) string {
	return string(typ) + string(binary.BigEndian.AppendUint16(nil, uint16(len(body)))) + body
}

// fuzzMessages are the types that records stand for.
const fuzzMessages = "QPBEDCSHdcfF"

// FuzzSession sends messages to real sessions. Whatever comes, the session ends in order, the server finds no fault with itself, and the next
// session is served.
func FuzzSession(f *testing.F) {
	q := func(s string) string { return message('Q', s+"\x00") }
	parse := func(name, s string) string { return message('P', name+"\x00"+s+"\x00\x00\x00") }
	bind := func(portal, name string, params ...string) string {
		b := portal + "\x00" + name + "\x00\x00\x00" + string(binary.BigEndian.AppendUint16(nil, uint16(len(params))))
		for _, p := range params {
			b += string(binary.BigEndian.AppendUint32(nil, uint32(len(p)))) + p
		}
		return message('B', b+"\x00\x00")
	}
	execute := func(portal string, n byte) string { return message('E', portal+"\x00\x00\x00\x00"+string(n)) }
	sync1, flush := message('S', ""), message('H', "")
	for _, s := range []string{
		q("select a, b from t where a > 1 order by 2; insert into t values (9, 'x')"),
		parse("s", "select a from t where a = $1") + message('D', "Ss\x00") + bind("p", "s", "1") + message('D', "Pp\x00") + execute("p", 1) + execute("p", 0) + sync1,
		parse("", "insert into t values ($1, $2) returning *") + bind("", "", "7", "x") + execute("", 0) + flush + message('C', "S\x00") + sync1,
		q("begin") + parse("s", "select * from t") + bind("p", "s") + execute("p", 1) + q("savepoint a; select 1/0") + execute("p", 1) + sync1 + q("rollback to a") + execute("p", 1) + sync1 + q("commit"),
		q("copy t from stdin") + message('d', "21\tx\n22\t\\N\n") + message('c', "") + q("table t"),
		q("copy t from stdin (format csv, header)") + message('d', "a,b\n31,\"x\"\n") + message('f', "no\x00") + message('d', "x") + sync1,
		parse("", "copy t to stdout (format binary)") + bind("", "") + execute("", 0) + sync1,
		parse("", "copy t from stdin (format binary)") + bind("", "") + execute("", 0) + message('d', "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x04\x00\x00\x00\x2a\xff\xff\xff\xff\xff\xff") + message('c', "") + sync1,
		q("begin; declare c scroll cursor for select * from t; fetch 2 from c; fetch backward 1 from c; move absolute -1 in c; close c; commit"),
		q("begin; declare c cursor with hold for table t; commit; fetch all from c; declare d cursor for select 1"),
		q("listen x; notify x, 'y'; unlisten *; prepare p as select $1::int; execute p(3); deallocate all; discard all"),
		q("explain (analyze, format yaml) with recursive r as (select 1 as n union all select n + 1 from r where n < 5) select * from r join t on a = n"),
		q("create temp table x (a int); insert into x select a from t; update x set a = a + 1; delete from x where a = 2; select count(*) over (), max(a) from x group by a; drop table x"),
		q("set search_path = a; show all; reset all; set local timezone = 'UTC'") + message('F', "\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00") + sync1,
		q("merge into t using (values (1, 'q')) v (a, b) on t.a = v.a when matched then update set b = v.b when not matched then insert values (v.a, v.b)"),
		q("with d as (delete from t where a = 3 returning *) select * from d; insert into t values (1, 'y') on conflict (a) do update set b = excluded.b"),
	} {
		f.Add([]byte(s))
	}
	bad := &complaints{}
	srv, err := server.Open(context.Background(), server.Config{MemoryOnly: true, Memory: 256 << 20, Connectors: all.Builtin(), Logger: zerolog.New(bad)})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, srv.Close(context.Background())) })
	startup := "user\x00streamdb\x00database\x00streamdb\x00options\x00-c statement_timeout=300 -c lock_timeout=300\x00\x00"
	session := func(t *testing.T, in []byte) []byte {
		nc, err := srv.Dial(context.Background(), "", "")
		require.NoError(t, err)
		defer nc.Close() //nolint:errcheck // whatever is left of it
		require.NoError(t, nc.SetDeadline(time.Now().Add(fuzzTimeout)))
		b := binary.BigEndian.AppendUint32(nil, uint32(8+len(startup)))
		b = binary.BigEndian.AppendUint32(b, 3<<16)
		b = append(append(b, startup...), in...)
		type answer struct {
			out []byte
			err error
		}
		done := make(chan answer)
		go func() {
			out, err := io.ReadAll(nc)
			done <- answer{out, err}
		}()
		_, _ = nc.Write(append(b, 'X', 0, 0, 0, 4)) // a server that closes early is in its right
		a := <-done
		if errors.Is(a.err, os.ErrDeadlineExceeded) {
			require.Fail(t, "the session did not end")
		}
		return a.out
	}
	session(&testing.T{}, wireQuery("create table if not exists t (a int primary key, b text); insert into t values (1, 'a'), (2, 'b'), (3, null)"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if strings.Contains(strings.ToLower(string(in)), "system") {
			return // settings of the server would outlive the session
		}
		var wire []byte
		for len(in) >= 3 {
			n := min(int(binary.BigEndian.Uint16(in[1:])), len(in)-3)
			typ := in[0]
			if strings.IndexByte(fuzzMessages, typ) < 0 {
				typ = fuzzMessages[int(typ)%len(fuzzMessages)]
			}
			wire = append(wire, typ)
			wire = binary.BigEndian.AppendUint32(wire, uint32(n+4))
			wire = append(wire, in[3:3+n]...)
			in = in[3+n:]
		}
		session(t, append(wire, 'c', 0, 0, 0, 4, 'S', 0, 0, 0, 4))
		out := session(t, wireQuery("select 'still ' || 'here'"))
		require.Contains(t, string(out), "still here")
		require.Empty(t, bad.take())
	})
}

func wireQuery(s string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(len(s)+5))
	return append(append(b, s...), 0)
}
