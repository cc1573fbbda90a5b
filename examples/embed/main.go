// Command embed is a program with a database inside: page views go into a table, and a materialized view answers for which pages are read most.
//
//	go run ./examples/embed
//	curl -d '' 'http://127.0.0.1:8080/visit?page=/home'
//	curl http://127.0.0.1:8080/top
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/streamdb/streamdb"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	app, err := open(ctx, "./embed-data")
	if err != nil {
		log.Fatal(err)
	}
	web := &http.Server{Addr: "127.0.0.1:8080", Handler: app.handler(), ReadHeaderTimeout: 5 * time.Second}
	log.Printf("ready: http://%s/top", web.Addr)
	go func() {
		<-ctx.Done()
		if err := web.Close(); err != nil {
			log.Print(err)
		}
	}()
	if err := web.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Print(err)
	}
	if err := app.close(); err != nil {
		log.Fatal(err)
	}
}

// app is a database and a connection to it. With one session for all requests each of them sees what the ones before it wrote.
type app struct {
	db   *streamdb.DB
	mu   sync.Mutex // guards conn
	conn *pgx.Conn
}

// open restores the database, or creates it.
func open(ctx context.Context, dir string) (*app, error) {
	db, err := streamdb.Open(ctx, streamdb.Options{DataDir: dir, Memory: 256 << 20})
	if err != nil {
		return nil, err
	}
	cfg, err := pgx.ParseConfig("postgres://streamdb@streamdb/streamdb?sslmode=disable")
	if err != nil {
		return nil, errors.Join(err, db.Close(ctx))
	}
	cfg.DialFunc = db.DialFunc() // inside the process: no port is opened
	cfg.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, db.Close(ctx))
	}
	a := &app{db: db, conn: conn}
	for _, s := range []string{
		"CREATE TABLE IF NOT EXISTS visits (page text, at timestamptz DEFAULT now())",
		"CREATE MATERIALIZED VIEW IF NOT EXISTS top AS SELECT page, count(*) AS visits, max(at) AS last FROM visits GROUP BY page ORDER BY visits DESC, page LIMIT 10",
	} {
		if _, err := conn.Exec(ctx, s); err != nil {
			return nil, errors.Join(err, a.close())
		}
	}
	return a, nil
}

func (a *app) close() error {
	ctx := context.Background()
	return errors.Join(a.conn.Close(ctx), a.db.Close(ctx))
}

// page is a row of the view.
type page struct {
	Page   string    `json:"page"`
	Visits int64     `json:"visits"`
	Last   time.Time `json:"last"`
}

// visit counts a page view.
func (a *app) visit(ctx context.Context, name string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err := a.conn.Exec(ctx, "INSERT INTO visits (page) VALUES ($1)", name)
	return err
}

// top returns the pages that are read most.
func (a *app) top(ctx context.Context) ([]page, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	rows, err := a.conn.Query(ctx, "SELECT page, visits, last FROM top ORDER BY visits DESC, page")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[page])
}

func (a *app) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /visit", func(w http.ResponseWriter, r *http.Request) {
		if err := a.visit(r.Context(), r.FormValue("page")); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /top", func(w http.ResponseWriter, r *http.Request) {
		pages, err := a.top(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(pages); err != nil {
			log.Print(fmt.Errorf("write response: %w", err))
		}
	})
	return mux
}
