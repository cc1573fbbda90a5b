//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// followed are relations of the workload whose columns stay what they are.
var followed = []string{"accounts", "journal", "v_join", "v_on_view", "v_journal", "v_clicks", "v_window"}

// movingView moves by itself until its source has ended.
const movingView = "v_window"

// subscriber keeps a copy of a relation by SUBSCRIBE: it takes over what it was given when it is told that an epoch is complete, and goes on after that
// with the next server.
type subscriber struct {
	relation string
	epoch    uint64
	rows     map[string]int
	taken    int // epochs
	resumed  int
	err      error // that must not be
}

func newSubscribers() []*subscriber {
	var out []*subscriber
	for _, r := range followed {
		out = append(out, &subscriber{relation: r, rows: map[string]int{}})
	}
	return out
}

// open subscribes, from the last complete epoch on.
func (s *subscriber) open(ctx context.Context, conn *pgconn.PgConn) error {
	from := ""
	if s.epoch > 0 {
		from = fmt.Sprintf(" AS OF %d", s.epoch)
		s.resumed++
	}
	_, err := query(ctx, conn, `DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE `+s.relation+` WITH (PROGRESS)`+from)
	return err
}

// run follows until stop is closed or the server is gone.
func (s *subscriber) run(t *testing.T, p *process, stop <-chan struct{}) {
	conn, err := p.connect(t.Context())
	if err != nil {
		return
	}
	defer conn.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // the server may have been killed
	if err = s.open(t.Context(), conn); err == nil {
		pending := map[string]int{}
		for err == nil {
			select {
			case <-stop:
				return
			default:
			}
			err = s.fetch(t.Context(), conn, pending, "200ms")
		}
	}
	if sqlstate, message := code(err); sqlstate != "" && !strings.HasPrefix(sqlstate, "57P") && !strings.Contains(message, "is still being created") {
		s.err = err
	}
}

// fetch takes what there is.
func (s *subscriber) fetch(ctx context.Context, conn *pgconn.PgConn, pending map[string]int, timeout string) error {
	rows, err := query(ctx, conn, `FETCH 500 FROM c WITH (timeout = '`+timeout+`')`)
	if err != nil {
		return err
	}
	for _, r := range rows {
		epoch, err := strconv.ParseUint(r[0], 10, 64)
		if err != nil {
			return err
		}
		if epoch < s.epoch {
			s.err = fmt.Errorf("%s: epoch %d after %d", s.relation, epoch, s.epoch)
		}
		if r[1] == "t" {
			for row, n := range pending {
				if s.rows[row] += n; s.rows[row] == 0 {
					delete(s.rows, row)
				}
				if s.rows[row] < 0 {
					s.err = fmt.Errorf("%s: row %s went without having come, in epoch %d", s.relation, row, epoch)
				}
			}
			clear(pending)
			s.epoch, s.taken = epoch, s.taken+1
			continue
		}
		n, err := strconv.Atoi(r[2])
		if err != nil {
			return err
		}
		pending[strings.Join(r[3:], "|")] += n
	}
	return nil
}

func (s *subscriber) content() string {
	var rows [][]string
	for r, n := range s.rows {
		for range n {
			rows = append(rows, []string{r})
		}
	}
	return lines(rows)
}

// check goes on with a new connection until the copy is equal to the relation, to which nobody writes.
func (s *subscriber) check(t *testing.T, c *client) {
	t.Helper()
	require.NoError(t, s.err, "%s\nserver: %s", s.relation, c.p.log)
	conn, err := c.p.connect(t.Context())
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context())) //nolint:errcheck // read only
	require.NoError(t, s.open(t.Context(), conn), s.relation)
	pending, want := map[string]int{}, ""
	require.True(t, eventually(statementTimeout, func() bool {
		want = lines(c.exec(`SELECT * FROM ` + s.relation))
		if len(pending) == 0 && want == s.content() {
			return true
		}
		if err := s.fetch(t.Context(), conn, pending, "50ms"); err != nil {
			s.err = err
		}
		return s.err != nil || len(pending) == 0 && want == s.content()
	}), "the copy of %s at epoch %d is not the relation:\n%s\n\n%s", s.relation, s.epoch, want, s.content())
	require.NoError(t, s.err, "%s\nserver: %s", s.relation, c.p.log)
}

// psql streams what a subscription gives, and ends with it.
func TestPsqlFollows(t *testing.T) {
	psql, err := exec.LookPath("psql")
	if err != nil {
		t.Skip("no psql")
	}
	p := serve(t, serveOptions{dataDir: filepath.Join(t.TempDir(), "data")})
	host, port, _ := strings.Cut(p.addr, ":")
	run := func(stmts ...string) string {
		t.Helper()
		args := []string{"-X", "-A", "-t", "-h", host, "-p", port, "-U", "streamdb", "-d", "streamdb", "-v", "ON_ERROR_STOP=1"}
		for _, s := range stmts {
			args = append(args, "-c", s)
		}
		out, err := exec.Command(psql, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	run(`CREATE TABLE t (id int PRIMARY KEY, v text) WITH (on_conflict = 'overwrite', retention = '1 hour')`, `INSERT INTO t VALUES (1, 'a'), (2, NULL)`)
	out := run(`DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE t WITH (PROGRESS)`, `FETCH ALL FROM c`)
	rows := strings.Split(out, "\n")[1:]
	require.Len(t, rows, 3)
	epoch, rest, _ := strings.Cut(rows[2], "|")
	require.Equal(t, "t|||", rest)
	run(`INSERT INTO t VALUES (2, 'b'), (3, 'c')`)
	p.kill()
	p = serve(t, serveOptions{dataDir: p.dataDir()})
	host, port, _ = strings.Cut(p.addr, ":")
	out = run(`DECLARE c CURSOR WITH HOLD FOR SUBSCRIBE t AS OF `+epoch, `FETCH ALL FROM c`)
	rows = strings.Split(out, "\n")[1:]
	require.Len(t, rows, 3)
	last, _, _ := strings.Cut(rows[0], "|")
	require.Equal(t, last+"\t-1\t2\t\\N\n"+last+"\t1\t2\tb\n"+last+"\t1\t3\tc", run(fmt.Sprintf(`COPY (SUBSCRIBE t AS OF %s UP TO %s) TO STDOUT`, epoch, last)))
	require.Equal(t, "streamdb_epoch,streamdb_diff,id,v\n"+last+",-1,2,\n"+last+",1,2,b\n"+last+",1,3,c", run(fmt.Sprintf(`COPY (SUBSCRIBE t AS OF %s UP TO %s) TO STDOUT (FORMAT csv, HEADER)`, epoch, last)))
}

// dataDir is the directory that the server was started with.
func (p *process) dataDir() string {
	for i, a := range p.cmd.Args {
		if a == "--data-dir" {
			return p.cmd.Args[i+1]
		}
	}
	return ""
}
