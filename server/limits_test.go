package server_test

import (
	"context"
	"encoding/binary"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

// TestConnectionLimit: sessions beyond max_connections are refused, the last ones are for superusers.
func TestConnectionLimit(t *testing.T) {
	d := open(t)
	admin := d.connect()
	admin.must("CREATE ROLE streamdb_admin SUPERUSER LOGIN", "CREATE ROLE ann LOGIN", "ALTER SYSTEM SET max_connections = 4", "ALTER SYSTEM SET superuser_reserved_connections = 2")
	as := func(user string) (*pgx.Conn, error) {
		cfg := d.config()
		cfg.User = user
		return pgx.ConnectConfig(d.ctx, cfg)
	}
	ann, err := as("ann")
	require.NoError(t, err)
	_, err = as("ann")
	pe := pgErr(t, err)
	require.Equal(t, "53300", pe.Code)
	require.Equal(t, "FATAL", pe.Severity)
	require.Equal(t, "remaining connection slots are reserved for non-replication superuser connections", pe.Message)
	var more []*pgx.Conn
	for range 2 {
		c, err := as("streamdb")
		require.NoError(t, err)
		more = append(more, c)
	}
	_, err = as("streamdb")
	pe = pgErr(t, err)
	require.Equal(t, "53300", pe.Code)
	require.Equal(t, "sorry, too many clients already", pe.Message)
	require.Equal(t, "4", admin.row("SHOW max_connections"))
	for _, c := range append(more, ann) {
		require.NoError(t, c.Close(context.Background()))
	}
	require.Eventually(t, func() bool {
		c, err := as("ann")
		return err == nil && c.Close(context.Background()) == nil
	}, testTimeout, time.Millisecond)
}

// TestLimitsOfMessages: what is too much is an error, and the session goes on.
func TestLimitsOfMessages(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (a int)")

	// As many parameters as a message can bind, and one more.
	list := func(n int) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString("($" + strconv.Itoa(i+1) + "::int)")
		}
		return b.String()
	}
	const most = 65535
	params := make([][]byte, most)
	for i := range params {
		params[i] = []byte("7")
	}
	r := s.PgConn().ExecParams(s.d.ctx, "INSERT INTO t VALUES "+list(most), params, nil, nil, nil).Read()
	require.NoError(t, r.Err)
	require.Equal(t, "INSERT 0 65535", r.CommandTag.String())
	_, err := s.PgConn().Prepare(s.d.ctx, "", "INSERT INTO t VALUES "+list(most+1), nil)
	require.Contains(t, []string{"54023", "42P02", "42P18"}, string(codeOf(t, err)))
	require.Equal(t, "65535", s.row("SELECT count(*) FROM t"))

	// Columns of a result.
	cols := strings.TrimSuffix(strings.Repeat("1,", 1664), ",")
	require.Len(t, strings.Split(s.row("SELECT "+cols), "|"), 1664)
	s.fails("SELECT "+cols+",1", "54011", "target lists can have at most 1664 entries")

	// Counts in a message that its length belies, formats that do not fit, a function call.
	raw := func(body []byte, typ byte) []string {
		m := append([]byte{typ}, binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))...)
		_, err := s.PgConn().Conn().Write(append(m, body...))
		require.NoError(t, err)
		if typ == 'F' {
			return s.raw(1)
		}
		return s.raw(1, &pgproto3.Sync{})
	}
	require.Equal(t, []string{"E(08P01)", "Z(I)"}, raw([]byte{0, 0, 0xff, 0xff}, 'B'))
	require.Equal(t, []string{"E(08P01)", "Z(I)"}, raw([]byte{0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 1}, 'B'))
	require.Equal(t, []string{"E(08P01)", "Z(I)"}, raw([]byte{0, 0, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff, 0, 0}, 'B'))
	require.Equal(t, []string{"E(08P01)", "Z(I)"}, raw(append([]byte("p\x00SELECT 1\x00"), 0xff, 0xff), 'P'))
	require.Equal(t, []string{"E(0A000)", "Z(I)"}, raw([]byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, 'F'))
	require.Equal(t, []string{"ParseComplete", "E(08P01)", "Z(I)"},
		s.raw(1, &pgproto3.Parse{Query: "SELECT 1, 2"}, &pgproto3.Bind{ResultFormatCodes: []int16{0, 0, 0}}, &pgproto3.Sync{}))
	require.Equal(t, []string{"ParseComplete", "E(22023)", "Z(I)"},
		s.raw(1, &pgproto3.Parse{Query: "SELECT 1"}, &pgproto3.Bind{ResultFormatCodes: []int16{2}}, &pgproto3.Sync{}))
	require.Equal(t, "1", s.row("SELECT 1"))

	// Depth: an answer or 54001, in bounded memory.
	for _, q := range []string{
		"SELECT " + strings.Repeat("(", 50_000) + "1" + strings.Repeat(")", 50_000),
		"SELECT " + strings.Repeat("ARRAY[", 20_000) + "1" + strings.Repeat("]", 20_000),
		"SELECT " + strings.Repeat("NOT ", 50_000) + "true",
		"SELECT " + strings.Repeat("abs(", 20_000) + "1" + strings.Repeat(")", 20_000),
		"SELECT " + strings.Repeat("CASE WHEN true THEN ", 10_000) + "1" + strings.Repeat(" END", 10_000),
		"SELECT 1" + strings.Repeat("::int", 50_000),
		"SELECT 1" + strings.Repeat(" UNION ALL SELECT 1", 5_000),
		strings.Repeat("SELECT * FROM (", 5_000) + "SELECT 1" + strings.Repeat(") x", 5_000),
		"SELECT 'x'" + strings.Repeat(" || 'x'", 20_000),
		"SELECT '" + strings.Repeat("[", 100_000) + "'::jsonb",
		"SELECT '" + strings.Repeat("{", 100_000) + "'::int[]",
		"WITH " + strings.TrimSuffix(strings.Repeat("a AS (SELECT 1), ", 2_000), ", ") + " SELECT 1",
		"EXPLAIN " + strings.Repeat("EXPLAIN ", 20_000) + "SELECT 1",
		"SELECT " + strings.Repeat("x.", 20_000) + "x",
	} {
		code := s.code(q)
		require.Contains(t, []string{"", "54001", "54000", "54011", "22P02", "42601", "42712", "22026", "0A000"}, code, "%.60s", q)
		require.Equal(t, "1", s.row("SELECT 1"))
	}
}
