// Package e2e tests the binary as it is shipped, from outside: it is started, killed with SIGKILL, started again and asked with a PostgreSQL
// client.
//
//	crash_test.go     40 kills at random moments and around the commits of checkpoints and of the schema; nothing acknowledged is lost or counted twice
//	s3_test.go        the same with checkpoints in a bucket; restore from the bucket alone; what is uploaded
//	badinput_test.go  wrong statements, broken rows, full disks, damaged files: clear errors, and everything else stays alive
//	security_test.go  psql logs in over TLS, with passwords and certificates; rules and certificates change; the first bytes of the protocol
//	schema_load_test.go  schema changes under load: each is there wholly or not at all
//	server_test.go    starts, kills and queries the binary
//	workload_test.go  tables, sources and views under load, and the check that every view equals its query
//
// The tests carry the build tag e2e:
//
//	go test -tags e2e -v ./e2e
//
// STREAMDB_E2E_BINARY names a binary to test instead of building one, STREAMDB_E2E_KILLS changes the number of kills, STREAMDB_E2E_SEED the
// random choices, STREAMDB_E2E_FULL=1 makes the state of the upload test 1 GB. The tests with a bucket need versitygw in PATH or in .cache/bin
// (make versitygw builds it).
package e2e
