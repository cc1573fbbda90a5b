package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/internal/pgerr"
)

func (s *sink) progress() string { return pgx.Identifier{s.schema, progressTable}.Sanitize() }

// progressColumns are those of the table of all sinks' progress beyond what its first version had.
const progressColumns = "owner text NOT NULL DEFAULT '', token text NOT NULL DEFAULT '', holder text NOT NULL DEFAULT '', since timestamptz"

// makeProgress makes the table of all sinks' progress, if it may, or what its present version has more than the one that is there.
func (s *sink) makeProgress(ctx context.Context, may bool) error {
	var there, whole bool
	err := s.conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL, EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = 'since' AND NOT attisdropped)", s.progress()).Scan(&there, &whole)
	switch {
	case err != nil || whole:
	case !there && !may:
		return pgerr.Newf(pgerr.UndefinedTable, "the target has no table %s: how far the sink has written is not known", s.progress()).WithHint("DROP the sink and CREATE it anew.")
	case there:
		_, err = s.conn.Exec(ctx, "ALTER TABLE "+s.progress()+" ADD COLUMN IF NOT EXISTS "+strings.ReplaceAll(progressColumns, ", ", ", ADD COLUMN IF NOT EXISTS "))
	default:
		_, err = s.conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+s.progress()+" (sink text PRIMARY KEY, epoch bigint NOT NULL, "+progressColumns+")")
	}
	return targetError(err)
}

// mayDo is err unless it says that the role may not use the table of all sinks' progress: sinks that write at least once do without then.
func (s *sink) mayDo(err error) error {
	s.alone = !s.cfg.ExactlyOnce && pgerr.CodeOf(err) == pgerr.InsufficientPrivilege
	if s.alone {
		return nil
	}
	return err
}

// Recover implements connector.Sink.
func (s *sink) Recover(ctx context.Context, epoch uint64, _ *connector.Committables) error {
	err := s.takeOver(ctx, epoch)
	return s.mayDo(err)
}

func (s *sink) takeOver(ctx context.Context, epoch uint64) error {
	return s.transaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.makeProgress(ctx, epoch == 0 || !s.cfg.ExactlyOnce); err != nil {
			return err
		}
		var was *connector.Lease
		if err := s.unblock(ctx, func(ctx context.Context) (err error) {
			if _, err = tx.Exec(ctx, "INSERT INTO "+s.progress()+" (sink, epoch) VALUES ($1, 0) ON CONFLICT DO NOTHING", s.cfg.ID); err != nil { // that others who do this wait
				return targetError(err)
			}
			was, err = s.lock(ctx, tx)
			return err
		}); err != nil {
			return err
		}
		now, err := s.cfg.TakeOver(was, epoch)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE "+s.progress()+" SET epoch = $2, owner = $3, token = $4, holder = $5, since = $6 WHERE sink = $1", s.cfg.ID,
			int64(now.Epoch), now.Owner, now.Token, now.Holder, now.Since) //nolint:gosec // epochs are small
		return targetError(err)
	})
}

// Abandon implements connector.Sink.
func (s *sink) Abandon(ctx context.Context) error {
	err := s.transaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
		was, err := s.lock(ctx, tx)
		if err != nil || !s.cfg.MayForget(was) {
			return err
		}
		_, err = tx.Exec(ctx, "DELETE FROM "+s.progress()+" WHERE sink = $1", s.cfg.ID)
		return targetError(err)
	})
	if pgerr.CodeOf(err) == pgerr.UndefinedTable { // it knows nothing
		return nil
	}
	return s.mayDo(err)
}

// transaction runs f in a transaction of the connection, which is closed after an error: nobody knows what state it is in.
func (s *sink) transaction(ctx context.Context, f func(ctx context.Context, tx pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if err := s.connect(ctx); err != nil {
		return err
	}
	err := func() error {
		tx, err := s.conn.Begin(ctx)
		if err != nil {
			return targetError(err)
		}
		defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after a commit there is nothing to roll back
		if err := f(ctx, tx); err != nil {
			return err
		}
		return targetError(tx.Commit(ctx))
	}()
	if err != nil {
		_ = s.Close() // the error that matters is there
	}
	return err
}

// Commit implements connector.Sink.
func (s *sink) Commit(ctx context.Context, _ uint64, list *connector.Committables) error {
	return s.transaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
		done := uint64(0)
		if !s.alone {
			was, err := s.lock(ctx, tx)
			if err == nil {
				err = s.cfg.Holds(was)
			}
			if err != nil {
				return err
			}
			if done = was.Epoch; s.cfg.ExactlyOnce && done >= list.Last {
				return nil
			}
		}
		if err := s.write(ctx, tx, done, list); err != nil {
			return err
		}
		if err := s.cfg.Failpoints.Hit("sink/half-commit"); err != nil {
			return err
		}
		if s.cfg.ExactlyOnce {
			if _, err := tx.Exec(ctx, "UPDATE "+s.progress()+" SET epoch = $2 WHERE sink = $1", s.cfg.ID, int64(list.Last)); err != nil { //nolint:gosec // epochs are small
				return targetError(err)
			}
		}
		return nil
	})
}

// lock returns what the table knows of the sink, nil when that is nothing, and makes others who would write for it wait.
func (s *sink) lock(ctx context.Context, tx pgx.Tx) (*connector.Lease, error) {
	var l connector.Lease
	var epoch int64
	var since *time.Time
	err := tx.QueryRow(ctx, "SELECT epoch, owner, token, holder, since FROM "+s.progress()+" WHERE sink = $1 FOR UPDATE", s.cfg.ID).Scan(&epoch, &l.Owner, &l.Token, &l.Holder, &since)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if l.Epoch = uint64(epoch); since != nil { //nolint:gosec // not negative
		l.Since = *since
	}
	return &l, targetError(err)
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
