// Package nexmark offers the queries of the Nexmark benchmark, which are in testdata/nexmark, two of windows and three of aggregations alone, and what they read.
package nexmark

import (
	"embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	queries "github.com/streamdb/streamdb/testdata/nexmark"
)

//go:embed *.sql
var windows embed.FS

// Query returns the SQL of a query: q0 … q22, tumble, tumble_live, skew, total or uniform.
func Query(name string) (string, error) {
	for _, files := range []embed.FS{queries.Queries, windows} {
		if b, err := files.ReadFile(name + ".sql"); err == nil {
			return string(b), nil
		}
	}
	return "", fmt.Errorf("unknown query %q: known are %s", name, strings.Join(Names(), ", "))
}

// Names lists the queries, by number.
func Names() []string {
	var out []string
	for _, files := range []embed.FS{queries.Queries, windows} {
		entries, err := files.ReadDir(".")
		if err != nil {
			return nil
		}
		for _, e := range entries {
			out = append(out, strings.TrimSuffix(e.Name(), ".sql"))
		}
	}
	number := func(n string) int {
		if i, err := strconv.Atoi(strings.TrimPrefix(n, "q")); err == nil {
			return i
		}
		return len(out) * len(out)
	}
	slices.SortFunc(out, func(a, b string) int { return number(a) - number(b) })
	return out
}

// Sources returns the statements that make person, auction and bid, and the table side_input. events counts all three kinds together, 0 for sources without
// end; rate is the number of events per second of wall time, 0 for as fast as possible. Each source has so many splits.
func Sources(events, rate int64, splits int) []string {
	var out []string
	for _, t := range []struct{ name, kind, columns string }{
		{"person", "Person", "id bigint, name varchar, email_address varchar, credit_card varchar, city varchar, state varchar, date_time timestamp, extra varchar"},
		{"auction", "Auction", "id bigint, item_name varchar, description varchar, initial_bid bigint, reserve bigint, date_time timestamp, " +
			"expires timestamp, seller bigint, category bigint, extra varchar"},
		{"bid", "Bid", "auction bigint, bidder bigint, price bigint, channel varchar, url varchar, date_time timestamp, extra varchar"},
	} {
		options := fmt.Sprintf("connector = 'nexmark', nexmark.table.type = '%s', nexmark.event.rate = '%d', nexmark.split.num = '%d'", t.kind, rate, splits)
		if events > 0 {
			options += fmt.Sprintf(", nexmark.event.num = '%d'", events)
		}
		out = append(out, fmt.Sprintf("CREATE SOURCE %s (%s, WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds') WITH (%s)", t.name, t.columns, options))
	}
	return append(out, "CREATE TABLE side_input (key bigint PRIMARY KEY, value varchar)",
		"INSERT INTO side_input SELECT g, 'value ' || g FROM generate_series(0, 9999) g")
}
