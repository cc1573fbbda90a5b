// Package differential runs the same statements on streamdb and on PostgreSQL and compares what a client sees: rows, column names, type OIDs,
// command tags, SQLSTATEs and messages, in the simple protocol as text, and for queries in the extended protocol in binary.
//
//	testdata/*.sql   the statements, one family a file; script.go describes the form
//	call.go          what a statement is sent with: parameters, data of COPY
//	accepted.txt     the queries whose answers may differ, each group under its reason in docs/differences.md
//	postgres_test.go finds or starts PostgreSQL
//	answer_test.go   asks one server, and compares two answers
//	run_test.go      the test: one subtest a file, and the table of totals
//
// STREAMDB_POSTGRES names a running PostgreSQL (a connection string of a role that may create databases). Without it the test starts one from the
// binaries in /usr/lib/postgresql or PATH. Without those it is skipped, or fails when STREAMDB_E2E_REQUIRE_POSTGRES=1.
//
//	go test -tags e2e -v ./e2e/differential -run 'TestDifferential/jsonb'
//
// STREAMDB_DIFFERENTIAL_ACCEPTED=1 also prints the accepted differences.
package differential
