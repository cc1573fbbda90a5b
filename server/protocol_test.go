package server_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

// raw sends frontend messages and returns what comes back until n ReadyForQuery, as short texts.
func (s *session) raw(ready int, msgs ...pgproto3.FrontendMessage) []string {
	s.d.t.Helper()
	fe := s.PgConn().Frontend()
	for _, m := range msgs {
		fe.Send(m)
	}
	require.NoError(s.d.t, fe.Flush())
	var out []string
	for ready > 0 {
		m, err := fe.Receive()
		require.NoError(s.d.t, err)
		switch m := m.(type) {
		case *pgproto3.ReadyForQuery:
			ready--
			out = append(out, "Z("+string(m.TxStatus)+")")
		case *pgproto3.DataRow:
			var cols []string
			for _, v := range m.Values {
				cols = append(cols, string(v))
			}
			out = append(out, "D("+strings.Join(cols, ",")+")")
		case *pgproto3.CommandComplete:
			out = append(out, "C("+string(m.CommandTag)+")")
		case *pgproto3.ErrorResponse:
			out = append(out, "E("+m.Code+")")
		case *pgproto3.RowDescription:
			var f []string
			for _, x := range m.Fields {
				f = append(f, fmt.Sprint("f", x.Format))
			}
			out = append(out, "T("+strings.Join(f, ",")+")")
		case *pgproto3.NoticeResponse:
			out = append(out, "N("+m.Code+")")
		case *pgproto3.ParameterStatus:
			out = append(out, "S("+m.Name+"="+m.Value+")")
		case *pgproto3.ParameterDescription:
			out = append(out, fmt.Sprint("t", m.ParameterOIDs))
		default:
			name := fmt.Sprintf("%T", m)
			out = append(out, name[strings.LastIndex(name, ".")+1:])
		}
	}
	return out
}

func TestDescribePortalReportsBoundFormats(t *testing.T) {
	s := open(t).connect()
	got := s.raw(1, &pgproto3.Parse{Query: "SELECT 1::int, 1.50::numeric, 'x'::text"}, &pgproto3.Describe{ObjectType: 'S'},
		&pgproto3.Bind{ResultFormatCodes: []int16{1, 0, 1}}, &pgproto3.Describe{ObjectType: 'P'}, &pgproto3.Execute{}, &pgproto3.Sync{})
	require.Equal(t, []string{"ParseComplete", "t[]", "T(f0,f0,f0)", "BindComplete", "T(f1,f0,f1)", "D(\x00\x00\x00\x01,1.50,x)", "C(SELECT 1)", "Z(I)"}, got)
}

func TestErrorsDiscardUntilSync(t *testing.T) {
	s := open(t).connect()
	got := s.raw(1, &pgproto3.Parse{Query: "SELECT 1/0"}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Parse{Query: "SELECT 2"}, &pgproto3.Bind{},
		&pgproto3.Execute{}, &pgproto3.Query{String: "SELECT 3"}, &pgproto3.Sync{})
	require.Equal(t, "Z(I)", got[len(got)-1])
	require.Equal(t, "E(22012)", got[len(got)-2])
	require.NotContains(t, got, "D(2)")
	require.NotContains(t, got, "D(3)")
	require.Equal(t, "1", s.row("SELECT 1"))
}

func TestBatchWithAnErrorRollsBack(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY)")
	b := &pgx.Batch{}
	b.Queue("INSERT INTO t VALUES (1)")
	b.Queue("INSERT INTO t VALUES ($1)", 2)
	b.Queue("INSERT INTO t VALUES (1)")
	b.Queue("INSERT INTO t VALUES (3)")
	require.Equal(t, "23505", string(codeOf(t, s.SendBatch(s.d.ctx, b).Close())))
	require.Empty(t, s.rows("TABLE t"))
	b = &pgx.Batch{}
	b.Queue("INSERT INTO t VALUES (1)")
	b.Queue("SELECT id FROM t")
	b.Queue("INSERT INTO t SELECT id + 1 FROM t")
	require.NoError(t, s.SendBatch(s.d.ctx, b).Close())
	require.Equal(t, []string{"1", "2"}, s.rows("SELECT id FROM t ORDER BY 1"))
}

func TestPaging(t *testing.T) {
	s := open(t).connect()
	page := func(n uint32) pgproto3.FrontendMessage { return &pgproto3.Execute{Portal: "p", MaxRows: n} }
	for _, q := range []string{"SELECT * FROM generate_series(1, 5)", "VALUES (1), (2), (3), (4), (5)"} {
		got := s.raw(1, &pgproto3.Parse{Query: q}, &pgproto3.Bind{DestinationPortal: "p"}, page(2), page(2), &pgproto3.Flush{}, page(2), page(2), &pgproto3.Sync{})
		require.Equal(t, []string{
			"ParseComplete", "BindComplete", "D(1)", "D(2)", "PortalSuspended", "D(3)", "D(4)", "PortalSuspended", "D(5)", "C(SELECT 1)",
			"C(SELECT 0)", "Z(I)",
		}, got)
		require.Equal(t, []string{"E(34000)", "Z(I)"}, s.raw(1, page(2), &pgproto3.Sync{}), "portals end with their transaction")

		got = s.raw(4, &pgproto3.Query{String: "BEGIN"}, &pgproto3.Parse{Query: q}, &pgproto3.Bind{DestinationPortal: "p"}, page(3), &pgproto3.Sync{},
			&pgproto3.Query{String: "SELECT 7"}, page(2), page(1), &pgproto3.Close{ObjectType: 'P', Name: "p"}, &pgproto3.Sync{})
		require.Equal(t, []string{
			"C(BEGIN)", "Z(T)", "ParseComplete", "BindComplete", "D(1)", "D(2)", "D(3)", "PortalSuspended", "Z(T)", "T(f0)", "D(7)",
			"C(SELECT 1)", "Z(T)", "D(4)", "D(5)", "PortalSuspended", "C(SELECT 0)", "CloseComplete", "Z(T)",
		}, got)
		s.must("ROLLBACK")
	}
	s.must("CREATE TABLE t (id int PRIMARY KEY)")
	got := s.raw(1, &pgproto3.Parse{Query: "INSERT INTO t VALUES (1), (2), (3) RETURNING id"}, &pgproto3.Bind{DestinationPortal: "p"}, page(2), page(2), &pgproto3.Sync{})
	require.Equal(t, []string{"ParseComplete", "BindComplete", "D(1)", "D(2)", "PortalSuspended", "D(3)", "C(INSERT 0 3)", "Z(I)"}, got)
	require.Equal(t, "3", s.row("SELECT count(*) FROM t"))
}

func TestPagedPortalsAreClosedWithTheConnection(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int)", "INSERT INTO t SELECT * FROM generate_series(1, 50000)")
	for _, q := range []string{"TABLE t", "SELECT a.id FROM t a, t b"} {
		c := d.connect()
		c.raw(2, &pgproto3.Query{String: "BEGIN"}, &pgproto3.Parse{Query: q}, &pgproto3.Bind{DestinationPortal: "p"}, &pgproto3.Execute{Portal: "p", MaxRows: 1}, &pgproto3.Sync{})
		require.NoError(t, c.PgConn().Conn().Close())
	}
	c := d.connect()
	c.raw(2, &pgproto3.Query{String: "BEGIN"}, &pgproto3.Parse{Query: "TABLE t"}, &pgproto3.Bind{DestinationPortal: "p"}, &pgproto3.Execute{Portal: "p", MaxRows: 1}, &pgproto3.Sync{})
	s.must("DROP TABLE t")
	got := c.raw(1, &pgproto3.Execute{Portal: "p", MaxRows: 1}, &pgproto3.Sync{})
	require.Equal(t, "Z(T)", got[len(got)-1], "the pinned rows stay readable")
}

func TestEmptyStatements(t *testing.T) {
	s := open(t).connect()
	for _, q := range []string{"", ";", " ; ; ", "-- ping", "/* x */"} {
		require.Equal(t, []string{"EmptyQueryResponse", "Z(I)"}, s.raw(1, &pgproto3.Query{String: q}), q)
	}
	require.Equal(t, []string{"T(f0)", "D(1)", "C(SELECT 1)", "T(f0)", "D(2)", "C(SELECT 1)", "Z(I)"}, s.raw(1, &pgproto3.Query{String: "select 1;;select 2;"}))
	require.Equal(t, []string{"ParseComplete", "BindComplete", "NoData", "EmptyQueryResponse", "Z(I)"},
		s.raw(1, &pgproto3.Parse{Query: ";;;"}, &pgproto3.Bind{}, &pgproto3.Describe{ObjectType: 'P'}, &pgproto3.Execute{}, &pgproto3.Sync{}))
	require.Equal(t, []string{"ParseComplete", "t[]", "NoData", "Z(I)"}, s.raw(1, &pgproto3.Parse{}, &pgproto3.Describe{ObjectType: 'S'}, &pgproto3.Sync{}))
	require.Equal(t, []string{"E(42601)", "Z(I)"}, s.raw(1, &pgproto3.Parse{Query: "SELECT 1; SELECT 2"}, &pgproto3.Sync{}))
}

func TestTransactionStatusOfTheExtendedProtocol(t *testing.T) {
	s := open(t).connect()
	ext := func(q string) []string {
		return s.raw(1, &pgproto3.Parse{Query: q}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Sync{})
	}
	require.Equal(t, []string{"ParseComplete", "BindComplete", "C(BEGIN)", "Z(T)"}, ext("BEGIN"))
	require.Equal(t, []string{"ParseComplete", "BindComplete", "N(25001)", "C(BEGIN)", "Z(T)"}, ext("BEGIN"))
	require.Equal(t, []string{"E(42P01)", "Z(E)"}, ext("SELECT * FROM nope"))
	require.Equal(t, []string{"E(25P02)", "Z(E)"}, ext("SELECT 1"))
	require.Equal(t, []string{"ParseComplete", "BindComplete", "C(ROLLBACK)", "Z(I)"}, ext("COMMIT"))
	require.Equal(t, []string{"ParseComplete", "BindComplete", "N(25P01)", "C(COMMIT)", "Z(I)"}, ext("COMMIT"))
	require.Equal(t, []string{"ParseComplete", "BindComplete", "N(25P01)", "C(ROLLBACK)", "Z(I)"}, ext("ROLLBACK"))
}

func TestPreparedAcrossDDL(t *testing.T) {
	d := open(t)
	s, o := d.connect(), d.connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 2)", "CREATE MATERIALIZED VIEW m AS SELECT id FROM t")
	bind := func(name string, params ...[]byte) []string {
		return s.raw(1, &pgproto3.Bind{PreparedStatement: name, Parameters: params}, &pgproto3.Execute{}, &pgproto3.Sync{})
	}
	s.raw(1, &pgproto3.Parse{Name: "m", Query: "SELECT * FROM m"}, &pgproto3.Parse{Name: "p", Query: "SELECT v FROM t WHERE id = $1"},
		&pgproto3.Parse{Name: "i", Query: "INSERT INTO t VALUES ($1, $2)"}, &pgproto3.Sync{})
	require.Equal(t, []string{"BindComplete", "D(1)", "C(SELECT 1)", "Z(I)"}, bind("m"))
	require.Equal(t, []string{"BindComplete", "D(2)", "C(SELECT 1)", "Z(I)"}, bind("p", []byte("1")))
	o.must("DROP MATERIALIZED VIEW m", "CREATE MATERIALIZED VIEW m AS SELECT id FROM t WHERE id > 0")
	require.Equal(t, []string{"BindComplete", "D(1)", "C(SELECT 1)", "Z(I)"}, bind("m"), "same shape")
	o.must("DROP MATERIALIZED VIEW m", "CREATE MATERIALIZED VIEW m AS SELECT id, v FROM t")
	require.Equal(t, []string{"E(0A000)", "Z(I)"}, bind("m"))
	require.Equal(t, []string{"E(0A000)", "Z(I)"}, bind("m"))
	o.must("DROP TABLE t CASCADE")
	require.Equal(t, []string{"E(42P01)", "Z(I)"}, bind("m"))
	require.Equal(t, []string{"E(42P01)", "Z(I)"}, bind("p", []byte("1")))
	require.Equal(t, []string{"E(42P01)", "Z(I)"}, bind("i", []byte("1"), []byte("1")))
	o.must("CREATE TABLE t (v int, id int PRIMARY KEY)")
	require.Equal(t, []string{"BindComplete", "C(INSERT 0 1)", "Z(I)"}, bind("i", []byte("5"), []byte("6")))
	require.Equal(t, []string{"BindComplete", "D(5)", "C(SELECT 1)", "Z(I)"}, bind("p", []byte("6")))
	o.must("SET search_path = nope")
	s.must("SET search_path = nope")
	require.Equal(t, []string{"E(42P01)", "Z(I)"}, bind("p", []byte("6")))
}

func TestParametersOfEveryType(t *testing.T) {
	s := open(t).connect()
	for _, c := range []struct{ typ, text string }{
		{"bool", "t"},
		{"int2", "-32768"},
		{"int4", "2147483647"},
		{"int8", "-9223372036854775808"},
		{"float4", "1.5"},
		{"float8", "-Infinity"},
		{"float8", "NaN"},
		{"numeric", "-12345678901234567890.000100"},
		{"numeric", "NaN"},
		{"numeric", "0"},
		{"text", "häß 'q'"},
		{"varchar", ""},
		{"bpchar", "ab"},
		{"name", "n"},
		{"bytea", `\x00ff10`},
		{"date", "2024-02-29"},
		{"date", "infinity"},
		{"time", "23:59:59.999999"},
		{"timestamp", "1969-12-31 23:59:59.5"},
		{"timestamptz", "2024-07-04 09:30:00+00"},
		{"interval", "1 mon 2 days -03:00:00"},
		{"uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"},
		{"json", `{"b":1, "a":[1,2]}`},
		{"jsonb", `{"a": [1, 2], "b": 1.10}`},
		{"int4[]", "{1,NULL,3}"},
		{"text[]", `{a,"b c",NULL,"NULL"}`},
		{"oid", "4000000000"},
		{"numeric[]", "{1.50,2}"},
		{"timestamptz[]", `{"2024-07-04 09:30:00+00"}`},
	} {
		q := "SELECT $1::" + c.typ
		r := s.PgConn().ExecParams(s.d.ctx, q, [][]byte{[]byte(c.text)}, nil, nil, []int16{1}).Read()
		require.NoError(t, r.Err, c)
		binary := r.Rows[0][0]
		r = s.PgConn().ExecParams(s.d.ctx, q, [][]byte{append([]byte(nil), binary...)}, nil, []int16{1}, []int16{0}).Read()
		require.NoError(t, r.Err, c)
		require.Equal(t, c.text, string(r.Rows[0][0]), "binary and back: %v", c)
		r = s.PgConn().ExecParams(s.d.ctx, q+" IS NULL, $1 = $1", [][]byte{nil}, nil, nil, nil).Read()
		if c.typ != "json" {
			require.NoError(t, r.Err, c)
			require.Equal(t, "t", string(r.Rows[0][0]))
		}
		if len(binary) > 0 && c.typ != "text" && c.typ != "varchar" && c.typ != "bpchar" && c.typ != "name" && c.typ != "bytea" && c.typ != "json" {
			r = s.PgConn().ExecParams(s.d.ctx, q, [][]byte{binary[:len(binary)-1]}, nil, []int16{1}, nil).Read()
			require.Error(t, r.Err, "short binary %v", c)
			require.NotEqual(t, "XX000", string(codeOf(t, r.Err)), c)
		}
	}
	require.Equal(t, "1", s.row("SELECT 1"))
}

func TestUntypedParameters(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY, n numeric(6,2), ts timestamptz, j jsonb)")
	for q, want := range map[string][]uint32{
		"SELECT $1":                                    {25},
		"SELECT * FROM t WHERE id = $1":                {23},
		"SELECT * FROM t LIMIT $1 OFFSET $2":           {20, 20},
		"INSERT INTO t VALUES ($1, $2, $3, $4)":        {23, 1700, 1184, 3802},
		"UPDATE t SET n = $2 WHERE id = $1":            {23, 1700},
		"SELECT $2::text, $1::int":                     {23, 25},
		"SELECT * FROM t WHERE id = ANY($1)":           {1007},
		"SELECT * FROM t WHERE ts > $1 AND n IN ($2)":  {1184, 1700},
		"SELECT coalesce($1, 5), $2 || 'x', -$3::int8": {23, 25, 20},
	} {
		sd, err := s.Prepare(s.d.ctx, "", q)
		require.NoError(t, err, q)
		require.Equal(t, want, sd.ParamOIDs, q)
	}
	for q, code := range map[string]string{"SELECT $1 + $2": "42725", "SELECT $2": "42P18", "SELECT $99999": "42P18"} {
		_, err := s.Prepare(s.d.ctx, "", q)
		require.Equal(t, code, string(codeOf(t, err)), q)
	}
	require.Equal(t, "08P01", string(codeOf(t, s.PgConn().ExecParams(s.d.ctx, "SELECT $1::int", nil, nil, nil, nil).Read().Err)))
	require.Equal(t, "22P02", string(codeOf(t, s.PgConn().ExecParams(s.d.ctx, "SELECT $1::int", [][]byte{[]byte("x")}, nil, nil, nil).Read().Err)))
}

func TestExplainExecute(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (id int PRIMARY KEY)", "PREPARE p (int) AS SELECT * FROM t WHERE id > $1", "PREPARE i AS INSERT INTO t VALUES (1)")
	require.NotEmpty(t, s.rows("EXPLAIN EXECUTE p(1)"))
	require.NotEmpty(t, s.rows("EXPLAIN EXECUTE i"))
	require.Empty(t, s.rows("TABLE t"))
}

func TestBadText(t *testing.T) {
	s := open(t).connect()
	for _, p := range [][]byte{{0x61, 0, 0x62}, {0xff, 0xfe}} {
		require.Equal(t, "22021", string(codeOf(t, s.PgConn().ExecParams(s.d.ctx, "SELECT $1::text", [][]byte{p}, nil, nil, nil).Read().Err)))
		require.Equal(t, "22021", string(codeOf(t, s.PgConn().ExecParams(s.d.ctx, "SELECT $1::text", [][]byte{p}, nil, []int16{1}, nil).Read().Err)), "binary %x", p)
	}
	require.Equal(t, "22021", s.code("SELECT '\xc3\x28'"))
	require.Equal(t, "1", s.row("SELECT 1"))
}

func TestCancel(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int)", "INSERT INTO t SELECT * FROM generate_series(1, 3000)")
	for name, q := range map[string]string{
		"select":  "SELECT count(*) FROM t a, t b, t c WHERE a.id + b.id = c.id + 1 AND a.id * b.id % 7 = 3",
		"series":  "SELECT count(*) FROM generate_series(1, 100000000000)",
		"rows":    "SELECT a.id FROM t a, t b, t c",
		"create":  "CREATE MATERIALIZED VIEW m AS SELECT count(*) FROM t a, t b, t c WHERE a.id < b.id AND b.id < c.id",
		"insert":  "INSERT INTO t SELECT a.id FROM t a, t b, t c WHERE a.id * b.id = c.id * -1",
		"ctas":    "CREATE TABLE u AS SELECT a.id FROM t a, t b, t c WHERE a.id * b.id = c.id * -1",
		"execute": "PREPARE p AS SELECT count(*) FROM t a, t b, t c WHERE a.id * b.id = c.id * -1; EXECUTE p",
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(d.ctx, 200*time.Millisecond)
			defer cancel()
			c := d.connect()
			done := make(chan error, 1)
			go func() {
				_, err := c.PgConn().Exec(d.ctx, q).ReadAll()
				done <- err
			}()
			<-ctx.Done()
			began := time.Now()
			require.NoError(t, c.PgConn().CancelRequest(d.ctx))
			require.Equal(t, "57014", string(codeOf(t, <-done)))
			require.Less(t, time.Since(began), 5*time.Second)
			require.Equal(t, "1", c.row("SELECT 1"))
		})
	}
	require.Empty(t, s.rows("SHOW JOBS"))
	require.Equal(t, []string{"t"}, s.rows("SHOW TABLES"), "nothing is left of what was cancelled")
	require.Equal(t, "3000", s.row("SELECT count(*) FROM t"))
	s.must("SET statement_timeout = '100ms'")
	pe := s.fails("SELECT count(*) FROM generate_series(1, 100000000000)", "57014", "canceling statement due to statement timeout")
	require.Empty(t, pe.Hint)
	pe = s.fails("CREATE MATERIALIZED VIEW m AS SELECT count(*) FROM t a, t b, t c WHERE a.id < b.id AND b.id < c.id", "57014", "")
	require.Equal(t, "canceling statement due to statement timeout", pe.Message)
	require.Empty(t, s.rows("SHOW JOBS"))
	c := d.connect(func(cfg *pgx.ConnConfig) { cfg.RuntimeParams["options"] = "-c statement_timeout=50" })
	require.Equal(t, "57014", c.code("SELECT count(*) FROM generate_series(1, 100000000000)"))
}

func TestStatementsEndWithTheirClient(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (id int)", "INSERT INTO t SELECT * FROM generate_series(1, 2000)")
	for _, q := range []string{
		"SELECT count(*) FROM generate_series(1, 100000000000)",
		"SELECT a.id FROM t a, t b, t c",
		"CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t a, t b, t c WHERE a.id < b.id AND b.id < c.id",
	} {
		c := d.connect()
		ctx, cancel := context.WithTimeout(d.ctx, 300*time.Millisecond)
		_, err := c.PgConn().Exec(ctx, q).ReadAll()
		cancel()
		require.Error(t, err, q)
		require.True(t, c.PgConn().IsClosed())
	}
	require.Eventually(t, func() bool { return len(s.rows("SHOW JOBS")) == 0 }, testTimeout, time.Millisecond)
	began := time.Now()
	require.NoError(t, d.srv.Close(d.ctx))
	require.Less(t, time.Since(began), 5*time.Second)
}

func TestLimitsOfStatements(t *testing.T) {
	s := open(t).connect()
	for i := range 10_000 {
		s.PgConn().Frontend().Send(&pgproto3.Parse{Name: fmt.Sprint("s", i), Query: "SELECT 1"})
		if i%500 == 499 {
			s.raw(1, &pgproto3.Sync{})
		}
	}
	_, err := s.PgConn().Prepare(s.d.ctx, "one too many", "SELECT 1", nil)
	require.Equal(t, "53400", string(codeOf(t, err)))
	s.must("DEALLOCATE ALL")
	_, err = s.PgConn().Prepare(s.d.ctx, "x", "SELECT 1", nil)
	require.NoError(t, err)
	_, err = s.PgConn().Prepare(s.d.ctx, "x", "SELECT 1", nil)
	require.Equal(t, "42P05", string(codeOf(t, err)))

	cols := func(n int) string {
		c := make([]string, n)
		for i := range c {
			c[i] = fmt.Sprintf("c%d int", i)
		}
		return strings.Join(c, ", ")
	}
	s.must("CREATE TABLE wide (" + cols(1600) + ")")
	s.must("INSERT INTO wide (c0, c1599) VALUES (1, 2)")
	require.Equal(t, "1|2", s.row("SELECT c0, c1599 FROM wide"))
	require.Equal(t, "54011", s.code("CREATE TABLE wider ("+cols(1601)+")"))
	require.Equal(t, "100000", s.row("SELECT length('"+strings.Repeat("x", 100_000)+"')"))
	require.Equal(t, "5000001", s.row("SELECT 1 + length('"+strings.Repeat("x", 5_000_000)+"')"))
	require.Contains(t, []string{"", "54001"}, s.code("SELECT "+strings.Repeat("(", 20_000)+"1"+strings.Repeat(")", 20_000)))
	require.Contains(t, []string{"", "54001"}, s.code("SELECT "+strings.Repeat("- ", 20_000)+"1"))
	require.Contains(t, []string{"", "54001"}, s.code("SELECT "+strings.Repeat("1 + ", 20_000)+"1"))
	require.Contains(t, []string{"", "54001"}, s.code("SELECT "+strings.Repeat("(SELECT ", 2_000)+"1"+strings.Repeat(")", 2_000)))
	require.Contains(t, []string{"", "54001"}, s.code("SELECT 1 WHERE 1 IN ("+strings.Repeat("1, ", 50_000)+"2)"))
	require.Contains(t, []string{"", "54001"}, s.code("SELECT 1 WHERE "+strings.Repeat("true AND ", 20_000)+"true"))
	vals := strings.TrimSuffix(strings.Repeat("(1),", 20_000), ",")
	s.must("CREATE TABLE many (a int)", "INSERT INTO many VALUES "+vals)
	require.Equal(t, "20000", s.row("SELECT count(*) FROM many"))
	require.Equal(t, "1", s.row("SELECT 1"))
}

// TestParameterTypesStay executes a statement whose parameter got its type from a column that has another one now: clients send what they were told.
func TestParameterTypesStay(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (k int PRIMARY KEY, v text)")
	sd, err := s.PgConn().Prepare(s.d.ctx, "p", "SELECT v FROM t WHERE k = $1", nil)
	require.NoError(t, err)
	require.Equal(t, []uint32{23}, sd.ParamOIDs)
	read := func() ([][][]byte, error) {
		r := s.PgConn().ExecPrepared(s.d.ctx, "p", [][]byte{{0, 0, 0, 1}}, []int16{1}, nil).Read()
		return r.Rows, r.Err
	}
	for _, k := range []string{"bigint", "numeric", "smallint"} {
		s.must("DROP TABLE t")
		s.must("CREATE TABLE t (k " + k + " PRIMARY KEY, v text)")
		s.must("INSERT INTO t VALUES (1, 'one')")
		rows, err := read()
		require.NoError(t, err, k)
		require.Equal(t, [][][]byte{{[]byte("one")}}, rows, k)
	}
	for _, k := range []string{"text", "date"} {
		s.must("DROP TABLE t")
		s.must("CREATE TABLE t (k " + k + " PRIMARY KEY, v text)")
		_, err := read()
		require.ErrorContains(t, err, "operator does not exist: "+k+" = integer")
	}
}
