package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/pgerr"
)

func (s *sink) progress() string { return pgx.Identifier{s.schema, progressTable}.Sanitize() }

// makeProgress makes the table of all sinks' progress unless it is there.
func (s *sink) makeProgress(ctx context.Context) error {
	var there bool
	if err := s.conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", s.progress()).Scan(&there); err != nil || there {
		return targetError(err)
	}
	_, err := s.conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+s.progress()+" (sink text PRIMARY KEY, epoch bigint NOT NULL)")
	return targetError(err)
}

// Recover implements connector.Sink. A target that is ahead of the epoch was written to by a copy of this database from later on: epochs count anew from here.
func (s *sink) Recover(ctx context.Context, epoch uint64, _ *connector.Committables) error {
	if !s.cfg.ExactlyOnce {
		return nil
	}
	return s.within(ctx, func(ctx context.Context) error {
		change := "UPDATE " + s.progress() + " SET epoch = least(epoch, $2) WHERE sink = $1"
		if epoch == 0 {
			change = "DELETE FROM " + s.progress() + " WHERE sink = $1 AND $2 = 0::bigint"
		}
		_, err := s.conn.Exec(ctx, change, s.cfg.ID, int64(epoch)) //nolint:gosec // epochs are small
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == string(pgerr.UndefinedTable) {
			return nil
		}
		return targetError(err)
	})
}

// within runs f with a connection, which is closed after an error: nobody knows what state it is in.
func (s *sink) within(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if err := s.connect(ctx); err != nil {
		return err
	}
	err := f(ctx)
	if err != nil {
		_ = s.Close() // the error that matters is there
	}
	return err
}

// Commit implements connector.Sink.
func (s *sink) Commit(ctx context.Context, epoch uint64, list *connector.Committables) error {
	return s.within(ctx, func(ctx context.Context) error {
		tx, err := s.conn.Begin(ctx)
		if err != nil {
			return targetError(err)
		}
		defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after a commit there is nothing to roll back
		done := int64(0)
		if s.cfg.ExactlyOnce {
			if done, err = s.lock(ctx, tx); err != nil {
				return err
			}
			if done >= int64(epoch) { //nolint:gosec // epochs are small
				return nil
			}
		}
		if err := s.write(ctx, tx, uint64(done), list); err != nil { //nolint:gosec // not negative
			return err
		}
		if err := s.cfg.Failpoints.Hit("sink/half-commit"); err != nil {
			return err
		}
		if s.cfg.ExactlyOnce {
			if _, err := tx.Exec(ctx, "UPDATE "+s.progress()+" SET epoch = $2 WHERE sink = $1", s.cfg.ID, int64(epoch)); err != nil { //nolint:gosec // epochs are small
				return targetError(err)
			}
		}
		return targetError(tx.Commit(ctx))
	})
}

// lock returns up to which epoch the sink has written, and makes others who would write for it wait.
func (s *sink) lock(ctx context.Context, tx pgx.Tx) (done int64, err error) {
	_, err = tx.Exec(ctx, "INSERT INTO "+s.progress()+" VALUES ($1, 0) ON CONFLICT DO NOTHING", s.cfg.ID)
	if err == nil {
		err = tx.QueryRow(ctx, "SELECT epoch FROM "+s.progress()+" WHERE sink = $1 FOR UPDATE", s.cfg.ID).Scan(&done)
	}
	return done, targetError(err)
}

// changes is the temporary table of the rows of a commit.
const changes = "streamdb_changes"

// write puts what came after an epoch into the table.
func (s *sink) write(ctx context.Context, tx pgx.Tx, after uint64, list *connector.Committables) error {
	if s.cfg.Mode != connector.Upsert {
		return s.copyInto(ctx, tx, "COPY "+s.table+" ("+s.columns+") FROM STDIN", after, list)
	}
	if _, err := tx.Exec(ctx, "CREATE TEMP TABLE "+changes+" ON COMMIT DROP AS SELECT "+s.columns+", ''::text AS __op FROM "+s.table+" WITH NO DATA"); err != nil {
		return targetError(err)
	}
	if _, err := tx.Exec(ctx, "ALTER TABLE "+changes+" ADD COLUMN __number bigint GENERATED ALWAYS AS IDENTITY"); err != nil {
		return targetError(err)
	}
	if err := s.copyInto(ctx, tx, "COPY "+changes+" ("+s.columns+", __op) FROM STDIN", after, list); err != nil {
		return err
	}
	for _, q := range s.upsert() {
		if _, err := tx.Exec(ctx, q); err != nil {
			return targetError(err)
		}
	}
	return nil
}

// upsert are the statements that carry out the last change of each key.
func (s *sink) upsert() []string {
	key := s.list(s.cfg.Key, "")
	last := "SELECT DISTINCT ON (" + key + ") * FROM " + changes + " ORDER BY " + key + ", __number DESC"
	var same, set []string
	for i := range s.cfg.Columns {
		name := pgx.Identifier{s.cfg.Columns[i].Name}.Sanitize()
		if slices.Contains(s.cfg.Key, i) {
			same = append(same, "t."+name+" = c."+name)
		} else {
			set = append(set, name+" = excluded."+name)
		}
	}
	do := "NOTHING"
	if len(set) > 0 {
		do = "UPDATE SET " + strings.Join(set, ", ")
	}
	return []string{
		fmt.Sprintf("DELETE FROM %s t USING (%s) c WHERE c.__op = '%c' AND %s", s.table, last, opDelete, strings.Join(same, " AND ")),
		fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM (%s) c WHERE c.__op = '%c' ON CONFLICT (%s) DO %s", s.table, s.columns, s.columns, last, opPut, key, do),
	}
}

// copyInto sends the blocks that came after an epoch.
func (s *sink) copyInto(ctx context.Context, tx pgx.Tx, statement string, after uint64, list *connector.Committables) error {
	r, w := io.Pipe()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		w.CloseWithError(list.Each(func(epoch uint64, b []byte) error { //nolint:errcheck // it returns none
			if epoch <= after {
				return nil
			}
			_, err := w.Write(b)
			return err
		}))
	}()
	_, err := tx.Conn().PgConn().CopyFrom(ctx, r, statement)
	_ = r.CloseWithError(errors.New("the copy has ended")) // lets the sender go
	<-sent
	return targetError(err)
}
