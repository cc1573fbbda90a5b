// Package nexmark has the queries of the Nexmark benchmark in the dialect of streamdb, q0.sql to q22.sql, with the rows of a small run of each, q0.rows to
// q22.rows. See bench/nexmark for who runs them, nexmark.slt for what the rows belong to.
package nexmark

import "embed"

// Queries holds the SQL files.
//
//go:embed q*.sql
var Queries embed.FS
