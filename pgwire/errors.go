package pgwire

import (
	"context"
	"errors"
	"unicode/utf8"

	"github.com/jackc/pgproto3/v2"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// Severities of reports.
const (
	severityError  = "ERROR"
	severityFatal  = "FATAL"
	severityPanic  = "PANIC"
	severityNotice = "NOTICE"
)

// errQuiet ends a connection without a word: what the other side sent was no PostgreSQL message, or it asked for nothing more.
var errQuiet = errors.New("connection ended")

// errInterrupted is what a read returns when the server is shutting down.
var errInterrupted = errors.New("read interrupted by shutdown")

// fatal returns a copy of e that ends the connection.
func fatal(e *pgerr.Error) *pgerr.Error {
	f := *e
	f.Severity = severityFatal
	return &f
}

func protocolViolation(format string, args ...any) *pgerr.Error {
	return pgerr.Newf(pgerr.ProtocolViolation, format, args...)
}

// The causes that contexts are cancelled with. Each call makes a new one: sessions may add to an error.
func causeUserCancel() *pgerr.Error {
	return pgerr.Newf(pgerr.QueryCanceled, "canceling statement due to user request")
}

func causeShutdown() *pgerr.Error {
	return fatal(pgerr.Newf(pgerr.AdminShutdown, "terminating connection due to administrator command"))
}

func causeClientGone(err error) *pgerr.Error {
	return fatal(pgerr.Wrap(pgerr.ConnectionFailure, err, "connection to client lost"))
}

// report returns err as an error report; a bare context error is replaced by what ctx was cancelled for.
func report(ctx context.Context, err error) *pgerr.Error {
	var e *pgerr.Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &e) {
		return e
	}
	return pgerr.From(err)
}

// closesConnection reports whether the connection ends after e was sent.
func closesConnection(e *pgerr.Error) bool {
	return e.Severity == severityFatal || e.Severity == severityPanic
}

// errorResponse turns e into a message. text is what e.Pos counts in; "" leaves the position out.
func errorResponse(e *pgerr.Error, text, severity string) *pgproto3.ErrorResponse {
	if e.Severity != "" {
		severity = e.Severity
	}
	m := &pgproto3.ErrorResponse{
		Severity:            severity,
		SeverityUnlocalized: severity,
		Code:                string(e.Code),
		Message:             cleanText(e.Message),
		Detail:              cleanText(e.Detail),
		Hint:                cleanText(e.Hint),
		Where:               cleanText(e.Where),
		SchemaName:          cleanText(e.Schema),
		TableName:           cleanText(e.Table),
		ColumnName:          cleanText(e.Column),
		DataTypeName:        cleanText(e.DataType),
		ConstraintName:      cleanText(e.Constraint),
	}
	if m.Code == "" {
		m.Code = string(pgerr.InternalError)
	}
	if m.Message == "" {
		m.Message = "missing error text"
	}
	if text != "" && e.Pos >= 0 && e.Pos <= len(text) {
		m.Position = int32(1 + utf8.RuneCountInString(text[:e.Pos]))
	}
	return m
}
