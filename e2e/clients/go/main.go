// Command clients is a program of each Go client of PostgreSQL: pgx in all its query modes, database/sql over pgx and over lib/pq, GORM. It is
// a module of its own, so that streamdb does not depend on them. The server is that of the usual PG* variables.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// run counts what held.
type run struct{ checks int }

// same ends the program when got is not want.
func (r *run) same(what string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		fmt.Fprintf(os.Stderr, "%s: got %#v, want %#v\n", what, got, want)
		os.Exit(1)
	}
	r.checks++
}

func must(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func value[T any](v T, err error) T {
	must(fmt.Sprintf("%T", v), err)
	return v
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r := &run{}
	for _, f := range []func(context.Context){r.pgxClient, r.stdlibClient, r.pqClient, r.gormClient} {
		f(ctx)
	}
	fmt.Println(r.checks, "checks")
}

func fresh(ctx context.Context, schema string) {
	c := value(pgx.Connect(ctx, ""))
	defer c.Close(ctx)
	_, err := c.Exec(ctx, "DROP SCHEMA IF EXISTS "+schema+" CASCADE; CREATE SCHEMA "+schema)
	must("schema", err)
}

func (r *run) pgxClient(ctx context.Context) {
	fresh(ctx, "c_pgx")
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		cfg := value(pgx.ParseConfig("search_path=c_pgx"))
		cfg.DefaultQueryExecMode = mode
		c := value(pgx.ConnectConfig(ctx, cfg))
		exec := func(q string, args ...any) string {
			tag, err := c.Exec(ctx, q, args...)
			must(q, err)
			return tag.String()
		}
		exec("DROP MATERIALIZED VIEW IF EXISTS v")
		exec("DROP TABLE IF EXISTS t")
		exec("DROP TYPE IF EXISTS mood")
		exec("CREATE TYPE mood AS ENUM ('sad', 'happy')")
		exec("CREATE TABLE t (id int PRIMARY KEY, s text, n numeric, at timestamptz, a int[], m mood, j jsonb)")
		exec("CREATE MATERIALIZED VIEW v AS SELECT m, count(*) AS n FROM t GROUP BY m")
		for _, name := range []string{"mood", "_mood"} {
			c.TypeMap().RegisterType(value(c.LoadType(ctx, name)))
		}
		at := time.Date(2024, 1, 2, 3, 4, 5, 6000, time.UTC)
		r.same("insert", exec("INSERT INTO t VALUES ($1,$2,$3::numeric,$4,$5,$6,$7)", 1, "x", "1.50", at, []int32{1, 2}, "happy", `{"k": "v"}`), "INSERT 0 1")
		var (
			id    int32
			s     string
			n     pgtype.Numeric
			got   time.Time
			a     []int32
			m     string
			j     map[string]any
			moods []string
		)
		must("scan", c.QueryRow(ctx, "SELECT id, s, n, at, a, m, j, ARRAY[m] FROM t WHERE id = $1", 1).Scan(&id, &s, &n, &got, &a, &m, &j, &moods))
		r.same("round trip", []any{id, s, n.Int.Int64(), n.Exp, got.UTC(), a, m, j, moods}, []any{int32(1), "x", int64(150), int32(-2), at, []int32{1, 2}, "happy", map[string]any{"k": "v"}, []string{"happy"}})
		rows := make([][]any, 100)
		for i := range rows {
			rows[i] = []any{int32(i + 10), fmt.Sprint("c", i), "sad"}
		}
		r.same("CopyFrom", value(c.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id", "s", "m"}, pgx.CopyFromRows(rows))), int64(100))
		b := &pgx.Batch{}
		for i := range 5 {
			b.Queue("SELECT s FROM t WHERE id = $1", 10+i)
		}
		b.Queue("UPDATE t SET s = 'u' WHERE id < 15")
		results := c.SendBatch(ctx, b)
		for i := range 5 {
			var s string
			must("batch", results.QueryRow().Scan(&s))
			r.same("batch", s, fmt.Sprint("c", i))
		}
		r.same("batch", value(results.Exec()).RowsAffected(), int64(6))
		must("batch", results.Close())
		exec("REFRESH MATERIALIZED VIEW v")
		type row struct {
			M string
			N int64
		}
		r.same("view", value(pgx.CollectRows(value(c.Query(ctx, "SELECT m, n FROM v ORDER BY m")), pgx.RowToStructByPos[row])), []row{{"sad", 100}, {"happy", 1}})
		_, err := c.Exec(ctx, "INSERT INTO t (id) VALUES ($1)", 1)
		pe, _ := err.(*pgconn.PgError)
		r.same("error", []string{pe.Code, pe.ConstraintName, pe.TableName, pe.SchemaName}, []string{"23505", "t_pkey", "t", "c_pgx"})
		must("transaction", pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "DELETE FROM t WHERE id = 1"); err != nil {
				return err
			}
			sub, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			if _, err := sub.Exec(ctx, "DELETE FROM t"); err != nil {
				return err
			}
			return sub.Rollback(ctx)
		}))
		var count int
		must("count", c.QueryRow(ctx, "SELECT count(*) FROM t").Scan(&count))
		r.same("count", count, 100)
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		_, err = c.Exec(short, "SELECT pg_sleep(60)")
		cancel()
		r.same("cancelled", err != nil, true)
		c.Close(ctx)
	}
	c := value(pgx.Connect(ctx, ""))
	defer c.Close(ctx)
	_, err := c.Exec(ctx, "LISTEN news")
	must("listen", err)
	_, err = c.Exec(ctx, "SELECT pg_notify('news', 'hi')")
	must("notify", err)
	r.same("notification", value(c.WaitForNotification(ctx)).Payload, "hi")
}

func (r *run) stdlibClient(ctx context.Context) { r.overSQL(ctx, "pgx", "c_stdlib") }

func (r *run) pqClient(ctx context.Context) {
	r.overSQL(ctx, "postgres", "c_pq")
	db := value(sql.Open("postgres", "sslmode=disable search_path=c_pq"))
	defer db.Close()
	tx := value(db.BeginTx(ctx, nil))
	st := value(tx.PrepareContext(ctx, pq.CopyIn("t", "id", "s")))
	for i := range 10 {
		_, err := st.ExecContext(ctx, 100+i, fmt.Sprint("c\t", i))
		must("copy", err)
	}
	value(st.ExecContext(ctx))
	must("copy", st.Close())
	must("copy", tx.Commit())
	var s string
	must("copied", db.QueryRowContext(ctx, "SELECT s FROM t WHERE id = 109").Scan(&s))
	r.same("copied", s, "c\t9")
}

func (r *run) overSQL(ctx context.Context, driver, schema string) {
	fresh(ctx, schema)
	db := value(sql.Open(driver, "sslmode=disable search_path="+schema))
	defer db.Close()
	for _, q := range []string{"CREATE TABLE t (id int PRIMARY KEY, s text, at timestamptz, f float8, b bytea)", "INSERT INTO t VALUES (1, 'x', '2024-01-02 03:04:05Z', 1.5, '\\x00ff')"} {
		_, err := db.ExecContext(ctx, q)
		must(q, err)
	}
	st := value(db.PrepareContext(ctx, "SELECT s, at, f, b FROM t WHERE id = $1"))
	defer st.Close()
	for range 3 {
		var (
			s  string
			at time.Time
			f  float64
			b  []byte
		)
		must("scan", st.QueryRowContext(ctx, 1).Scan(&s, &at, &f, &b))
		r.same("round trip", []any{s, at.UTC(), f, b}, []any{"x", time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC), 1.5, []byte{0, 255}})
	}
	rows := value(db.QueryContext(ctx, "SELECT id, s, NULL::numeric AS n FROM t"))
	ct := value(rows.ColumnTypes())
	r.same("column types", []string{ct[0].DatabaseTypeName(), ct[1].DatabaseTypeName(), ct[2].DatabaseTypeName()}, []string{"INT4", "TEXT", "NUMERIC"})
	must("close", rows.Close())
	tx := value(db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}))
	_, err := tx.ExecContext(ctx, "DELETE FROM t")
	r.same("read only", err != nil, true)
	must("rollback", tx.Rollback())
}

type author struct {
	ID    uint    `gorm:"primaryKey"`
	Name  string  `gorm:"size:40;uniqueIndex;not null"`
	Score float64 `gorm:"type:numeric(8,2);default:0"`
	Born  *time.Time
	gorm.DeletedAt
}

func (r *run) gormClient(ctx context.Context) {
	fresh(ctx, "c_gorm")
	db := value(gorm.Open(postgres.Open("sslmode=disable search_path=c_gorm"), &gorm.Config{Logger: logger.Default.LogMode(logger.Silent)}))
	db = db.WithContext(ctx)
	must("migrate", db.AutoMigrate(&author{}))
	must("migrate again", db.AutoMigrate(&author{}))
	must("create", db.Create(&[]author{{Name: "a", Score: 1}, {Name: "b", Score: 2.5}}).Error)
	var found author
	must("first", db.First(&found, "name = ?", "b").Error)
	r.same("first", []any{found.ID, found.Score}, []any{uint(2), 2.5})
	must("update", db.Model(&found).Update("score", 9).Error)
	must("delete", db.Delete(&author{}, 1).Error)
	var n int64
	must("count", db.Model(&author{}).Count(&n).Error)
	r.same("count", n, int64(1))
	m := db.Migrator()
	r.same("migrator", []bool{m.HasTable(&author{}), m.HasColumn(&author{}, "score"), m.HasIndex(&author{}, "Name"), m.HasTable("nope")}, []bool{true, true, true, false})
	types := value(m.ColumnTypes(&author{}))
	var names []string
	for _, t := range types {
		key, _ := t.PrimaryKey()
		names = append(names, fmt.Sprint(t.Name(), " ", t.DatabaseTypeName(), " ", key))
	}
	r.same("columns", names, []string{"id int8 true", "name varchar false", "score numeric false", "born timestamptz false", "deleted_at timestamptz false"})
	must("view", db.Exec("CREATE MATERIALIZED VIEW best AS SELECT name, score FROM authors WHERE score > 5").Error)
	must("refresh", db.Exec("REFRESH MATERIALIZED VIEW best").Error)
	var best []author
	must("best", db.Table("best").Select("name", "score").Scan(&best).Error)
	r.same("best", len(best), 1)
	must("transaction", db.Transaction(func(tx *gorm.DB) error {
		return tx.Create(&author{Name: "c"}).Error
	}))
}
