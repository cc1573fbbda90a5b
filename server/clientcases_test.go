package server_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTimestampTextOfParameters: a bound timestamp may be written in each way that PostgreSQL reads; the answers are PostgreSQL's.
func TestTimestampTextOfParameters(t *testing.T) {
	s := open(t).connect()
	s.must("SET timezone = 'America/New_York'")
	for in, want := range map[string]string{
		"2024-07-04T09:30:00.000Z":       "2024-07-04 05:30:00-04",
		"2024-07-04T09:30:00.000+05:30":  "2024-07-04 00:00:00-04",
		"2024-07-04T09:30:00.000+0530":   "2024-07-04 00:00:00-04",
		"2024-07-04":                     "2024-07-04 00:00:00-04",
		"2024-07-04 09:30:00.123456789Z": "2024-07-04 05:30:00.123457-04",
		"20240704T093000Z":               "2024-07-04 05:30:00-04",
		"2024-07-04 24:00:00":            "2024-07-05 00:00:00-04",
		"Jul 4 2024 3:04 PM":             "2024-07-04 15:04:00-04",
		"7/4/2024":                       "2024-07-04 00:00:00-04",
		"2024-07-04 09:30 EDT":           "2024-07-04 09:30:00-04",
		"2024-07-04 09:30:60":            "2024-07-04 09:31:00-04",
		"epoch":                          "1969-12-31 19:00:00-05",
		"infinity":                       "infinity",
		"0044-03-15 BC":                  "0044-03-15 00:00:00-04:56:02 BC",
	} {
		r := s.PgConn().ExecParams(context.Background(), "SELECT $1::timestamptz", [][]byte{[]byte(in)}, nil, nil, nil).Read()
		require.NoError(t, r.Err, in)
		require.Equal(t, want, string(r.Rows[0][0]), in)
	}
	for in, code := range map[string]string{"2024-02-30": "22008", "": "22007"} {
		r := s.PgConn().ExecParams(context.Background(), "SELECT $1::timestamptz", [][]byte{[]byte(in)}, nil, nil, nil).Read()
		require.Equal(t, code, pgErr(t, r.Err).Code, in)
	}
	require.Equal(t, "2024-07-04 09:30:00", s.row("SELECT '2024-07-04T09:30:00Z'::timestamp"))
}

// TestColumnsThatClientsRead selects each column that known clients read from the catalogue, by its name, and looks for the relations of a database
// where they are expected.
func TestColumnsThatClientsRead(t *testing.T) {
	text, err := os.ReadFile("testdata/clientcolumns.txt")
	require.NoError(t, err)
	s := open(t).connect()
	s.must("CREATE TABLE t (a int PRIMARY KEY)", "CREATE VIEW v AS SELECT a FROM t", "CREATE MATERIALIZED VIEW mv AS SELECT count(*) AS n FROM t")
	checked := 0
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		relation, columns, _ := strings.Cut(line, ":")
		for _, c := range strings.Fields(columns) {
			s.must("SELECT " + c + " FROM " + relation + " LIMIT 3")
			checked++
		}
		s.must("SELECT x.* FROM " + relation + " AS x WHERE 1 <> 1 LIMIT 1")
	}
	require.Greater(t, checked, 300)
	require.Equal(t, []string{"mv|m", "t|r", "v|v"}, s.rows("SELECT relname, relkind FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind <> 'i' ORDER BY 1"))
	require.Equal(t, "t", s.row("SELECT age(xmin) >= 0 FROM pg_catalog.pg_class LIMIT 1"))
}

// TestOriginsOfColumns: a result tells which columns of which relation it shows, through subqueries and joins, as drivers need it for their metadata.
func TestOriginsOfColumns(t *testing.T) {
	s := open(t).connect()
	s.must("CREATE TABLE t (a int PRIMARY KEY, b text)", "CREATE VIEW v AS SELECT b, a + 1 AS c FROM t", "CREATE MATERIALIZED VIEW mv AS SELECT b, count(*) AS n FROM t GROUP BY b")
	for q, want := range map[string][]string{
		"SELECT a, b, a + 1 FROM t":                                   {"t 1", "t 2", ""},
		"SELECT x.b, y.a FROM t x JOIN (SELECT a FROM t) y USING (a)": {"t 2", "t 1"},
		"SELECT * FROM v":                                             {"v 1", "v 2"},
		"SELECT n, b FROM mv":                                         {"mv 2", "mv 1"},
		"SELECT b, count(*) FROM t GROUP BY b":                        {"t 2", ""},
		"WITH w AS (SELECT b FROM t) SELECT b FROM w":                 {"t 2"},
		"SELECT a FROM t UNION SELECT a FROM t":                       {""},
		"INSERT INTO t VALUES (1, 'x') RETURNING b, a, a + 1":         {"t 2", "t 1", ""},
		"SELECT relname FROM pg_class":                                {"pg_class 2"},
	} {
		d, err := s.Prepare(context.Background(), "", q)
		require.NoError(t, err, q)
		var got []string
		for _, f := range d.Fields {
			if f.TableOID == 0 {
				got = append(got, "")
				continue
			}
			got = append(got, s.row(fmt.Sprintf("SELECT relname || ' %d' FROM pg_class WHERE oid = %d", f.TableAttributeNumber, f.TableOID)))
		}
		require.Equal(t, want, got, q)
	}
}
