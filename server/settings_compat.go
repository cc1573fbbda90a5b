package server

import (
	"fmt"
	"strconv"
	"strings"
)

// compatDoc describes the settings that clients send and that have nothing to act on here.
const compatDoc = "Accepted for compatibility."

// compatSettings are settings of PostgreSQL that clients, dumps and tools send. What they are about does not exist here: they are checked,
// kept and shown.
func compatSettings() []setting {
	var out []setting
	add := func(check func(string) (string, error), pairs ...string) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, setting{name: pairs[i], value: pairs[i+1], check: check, doc: compatDoc})
		}
	}
	add(boolean, "array_nulls", "on", "check_function_bodies", "on", "default_transaction_deferrable", "off", "transaction_deferrable", "off",
		"enable_bitmapscan", "on", "enable_hashagg", "on", "enable_hashjoin", "on", "enable_incremental_sort", "on", "enable_indexonlyscan", "on",
		"enable_indexscan", "on", "enable_material", "on", "enable_memoize", "on", "enable_mergejoin", "on", "enable_nestloop", "on",
		"enable_parallel_append", "on", "enable_parallel_hash", "on", "enable_partition_pruning", "on", "enable_seqscan", "on", "enable_sort", "on",
		"enable_tidscan", "on", "escape_string_warning", "on", "geqo", "on", "jit", "on", "quote_all_identifiers", "off", "row_security", "on",
		"synchronize_seqscans", "on", "track_activities", "on", "track_counts", "on", "transform_null_equals", "off")
	add(anyInteger(0), "default_statistics_target", "100", "effective_io_concurrency", "1", "from_collapse_limit", "8", "join_collapse_limit", "8",
		"max_parallel_maintenance_workers", "2", "max_parallel_workers", "8", "max_parallel_workers_per_gather", "2", "tcp_keepalives_count", "0")
	add(anyInteger(-1), "log_min_duration_statement", "-1")
	add(memory, "effective_cache_size", "4GB", "maintenance_work_mem", "64MB", "temp_buffers", "8MB", "work_mem", "4MB")
	add(number, "cpu_index_tuple_cost", "0.005", "cpu_operator_cost", "0.0025", "cpu_tuple_cost", "0.01", "cursor_tuple_fraction", "0.1",
		"hash_mem_multiplier", "2", "random_page_cost", "4", "seq_page_cost", "1")
	add(duration, "client_connection_check_interval", "0", "deadlock_timeout", "1s", "tcp_user_timeout", "0")
	add(keepalive, "tcp_keepalives_idle", "0", "tcp_keepalives_interval", "0")
	add(nil, "default_tablespace", "", "default_text_search_config", "pg_catalog.simple", "temp_tablespaces", "")
	add(oneOf("on", "off", "safe_encoding"), "backslash_quote", "safe_encoding")
	add(oneOf("auto", "force_generic_plan", "force_custom_plan"), "plan_cache_mode", "auto")
	add(oneOf("origin", "replica", "local"), "session_replication_role", "origin")
	add(oneOf("content", "document"), "xmloption", "content")
	add(oneOf("base64", "hex"), "xmlbinary", "base64")
	add(oneOf("debug5", "debug4", "debug3", "debug2", "debug1", "info", "notice", "warning", "error", "log", "fatal", "panic"), "log_min_messages", "warning")
	add(oneOf("none", "ddl", "mod", "all"), "log_statement", "none")
	return out
}

func anyInteger(low int) func(string) (string, error) { return integer(low, maxTimeout) }

func number(s string) (string, error) {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil {
		return "", fmt.Errorf("a number is required")
	}
	return strconv.FormatFloat(f, 'g', -1, 64), nil
}

// keepalive takes a number of seconds.
func keepalive(s string) (string, error) {
	if n, err := strconv.Atoi(strings.TrimSpace(s)); err == nil && n >= 0 {
		return strconv.Itoa(n), nil
	}
	return duration(s)
}
