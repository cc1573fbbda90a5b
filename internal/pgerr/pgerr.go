// Package pgerr carries errors that are coded at birth: every error a user may see has a SQLSTATE, and where it helps a
// position, a detail and a hint. Packages return these errors; only the top of a request or a job logs them, once.
package pgerr

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Error is a PostgreSQL error report. Pos is a byte offset into the text of the statement that caused it, -1 when unknown.
type Error struct {
	Code     Code
	Severity string // "" means ERROR
	Message  string
	Detail   string
	Hint     string
	Where    string // the protocol's context field: what was being worked on, for instance the line of COPY data
	Pos      int
	// Object names, reported as the protocol's schema, table, column, data type and constraint fields.
	Schema, Table, Column, DataType, Constraint string

	cause error
}

// Newf makes an error of the given code without a position.
func Newf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: sprintf(format, args...), Pos: -1}
}

// Wrap makes an error of the given code that keeps cause in its chain; the message is "format: cause".
func Wrap(code Code, cause error, format string, args ...any) *Error {
	return &Error{Code: code, Message: sprintf(format, args...) + ": " + cause.Error(), Pos: -1, cause: cause}
}

// Error returns the message alone, as PostgreSQL prints it.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the error given to Wrap.
func (e *Error) Unwrap() error { return e.cause }

// At sets the position (byte offset in the statement's text) unless one is known already.
func (e *Error) At(pos int) *Error {
	if e.Pos < 0 {
		e.Pos = pos
	}
	return e
}

// WithHint sets the hint.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = sprintf(format, args...)
	return e
}

// Within adds a line to the context: what surrounds that which is named there already.
func (e *Error) Within(where string) *Error {
	if e.Where != "" {
		e.Where += "\n"
	}
	e.Where += where
	return e
}

// WithDetail sets the detail.
func (e *Error) WithDetail(format string, args ...any) *Error {
	e.Detail = sprintf(format, args...)
	return e
}

// From returns err as an *Error: the first one in its chain, query_canceled for a cancelled context, else an internal error.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &Error{Code: QueryCanceled, Message: "canceling statement due to user request", Pos: -1, cause: err}
	}
	return &Error{Code: InternalError, Message: err.Error(), Pos: -1, cause: err}
}

// CodeOf returns the SQLSTATE of err, XX000 for an uncoded error and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return From(err).Code
}

// sprintf prints %q as PostgreSQL quotes names in its messages: between double quotes, nothing escaped.
func sprintf(format string, args ...any) string {
	if false {
		_ = fmt.Sprintf(format, args...) // lets vet check the calls of this package
	}
	return fmt.Sprintf(strings.ReplaceAll(format, "%q", "\"%s\""), args...)
}
