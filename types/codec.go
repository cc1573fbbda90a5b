package types

import "time"

// Format carries the session settings that text input and output depend on. It is immutable once shared.
type Format struct {
	Location         *time.Location // TimeZone; nil = UTC
	ExtraFloatDigits int            // 1 (default): shortest exact text; 0 or less: 15+n digits
	IntervalStyle    IntervalStyle
	DateStyle        DateStyle
	DateOrder        DateOrder
	ByteaEscape      bool      // bytea_output = escape
	Now              time.Time // for 'now', 'today' as input; zero = not allowed
	Names            Names     // names of catalogue objects; nil: reg types print as numbers, enum types cannot be read
}

// IntervalStyle selects the text form of intervals.
type IntervalStyle uint8

// The interval styles of PostgreSQL.
const (
	IntervalPostgres IntervalStyle = iota
	IntervalPostgresVerbose
	IntervalSQLStandard
	IntervalISO8601
)

// DefaultFormat is UTC, PostgreSQL's defaults otherwise.
func DefaultFormat() *Format { return &Format{Location: time.UTC, ExtraFloatDigits: 1} }
