package server_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Conditions on windows leave the same rows whether or not they bound the time column below, at the ends of months, around changes of clocks, and before 1970.
func TestConditionsOnWindows(t *testing.T) {
	s := open(t).connect()
	s.must("SET timezone = 'UTC'", "CREATE TABLE e (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ts timestamp, at timestamptz, d date)",
		`INSERT INTO e (ts, at, d) SELECT x, x AT TIME ZONE 'UTC', x::date FROM (
			SELECT edge + shift AS x FROM unnest(ARRAY[timestamp '2024-02-29', '2024-03-31', '2024-10-27', '2024-12-31', '1969-12-31', '2011-12-30']) edge,
			unnest(ARRAY[interval '-1 day', '-1 microsecond', '0', '1 microsecond', '1 hour', '2 hours 30 minutes', '10 hours', '23 hours', '1 day', '32 days']) shift) s`,
		"INSERT INTO e (ts) VALUES (NULL)")
	narrowed := 0
	for _, w := range []struct{ call, typ string }{
		{"TUMBLE(e, ts, INTERVAL '1 hour', INTERVAL '7 minutes')", "timestamp"},
		{"HOP(e, ts, INTERVAL '1 hour', INTERVAL '3 hours')", "timestamp"},
		{"CUMULATE(e, ts, INTERVAL '1 hour', INTERVAL '3 hours')", "timestamp"},
		{"TUMBLE(e, ts, INTERVAL '1 month', INTERVAL '1 day')", "timestamp"},
		{"HOP(e, at, INTERVAL '1 month', INTERVAL '3 months')", "timestamptz"},
		{"TUMBLE(e, d, INTERVAL '7 days')", "timestamp"},
		{"TUMBLE(e, at, INTERVAL '1 day', zone => 'Europe/Berlin')", "timestamptz"},
		{"CUMULATE(e, at, INTERVAL '1 day', INTERVAL '7 days', zone => 'Pacific/Apia')", "timestamptz"},
		{"TUMBLE(e, at, INTERVAL '1 month', zone => 'America/Havana')", "timestamptz"},
	} {
		ends := s.rows("SELECT DISTINCT w FROM (SELECT window_start::text w FROM " + w.call + " UNION SELECT window_end::text FROM " + w.call + " UNION SELECT (window_start + interval '1 microsecond')::text FROM " + w.call + ") x ORDER BY w")
		for i, end := range ends {
			if testing.Short() && i%11 != 0 {
				continue
			}
			for _, col := range []string{"window_start", "window_end"} {
				for _, op := range []string{"<", "<=", "=", ">=", ">"} {
					q := fmt.Sprintf("SELECT id || ' ' || window_start || ' ' || window_end FROM %s WHERE %s %s %s '%s' ORDER BY 1", w.call, col, op, w.typ, end)
					got := s.rows(q)
					s.must("SET streamdb.disabled_rules = 'push_into_windows'")
					require.Equal(t, s.rows(q), got, q)
					s.must("RESET streamdb.disabled_rules")
					narrowed++
				}
			}
		}
	}
	require.Greater(t, narrowed, 500)
}
