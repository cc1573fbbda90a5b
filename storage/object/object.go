// Package object stores immutable objects and a few small ones that change by compare-and-set, on a local folder, in memory, or in
// an S3 bucket, behind one interface.
//
//	checkpoint ──▶ Store ──┬─ file://   temp file, fsync, link or rename, fsync of the folder; compare-and-set under flock
//	                       ├─ memory:// a map, for tests and throw-away servers
//	                       └─ s3://     conditional PUT (If-None-Match, If-Match), multipart above multipartThreshold
//
// Every call is atomic: an object is visible whole or not at all. A write whose outcome is not known returns an error for which
// IsAmbiguous holds; the caller then reads back, since writing again may meet its own earlier success.
package object

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// MaxKeyBytes is the longest key a store accepts, prefix included: the limit of S3, less room for a prefix.
const MaxKeyBytes = 900

// Info describes a stored object. ETag is an opaque token that differs whenever the object was written again.
type Info struct {
	Key      string
	Size     int64
	ETag     string
	Modified time.Time
}

// Store keeps objects by key. Keys are relative, "/"-separated paths without empty, "." or ".." elements. All methods may be called
// concurrently. Byte slices given are not kept, those returned belong to the caller.
type Store interface {
	// Get reads a whole object; ErrNotFound when it does not exist.
	Get(ctx context.Context, key string) ([]byte, Info, error)
	// GetRange reads n bytes from off on; fewer when the object ends before.
	GetRange(ctx context.Context, key string, off, n int64) ([]byte, error)
	// Put writes an object, replacing what was there.
	Put(ctx context.Context, key string, data []byte) (Info, error)
	// PutFile writes the contents of a local file, which must not change any more: a local store may link to it.
	PutFile(ctx context.Context, key, path string) (Info, error)
	// PutIfAbsent creates an object; ErrPrecondition when one exists.
	PutIfAbsent(ctx context.Context, key string, data []byte) (Info, error)
	// PutIfMatch replaces the object whose ETag is etag. ErrPrecondition when it has another one or does not exist, ErrConflict when
	// another conditional write was going on (nothing was written).
	PutIfMatch(ctx context.Context, key, etag string, data []byte) (Info, error)
	// Head describes an object; ErrNotFound when it does not exist.
	Head(ctx context.Context, key string) (Info, error)
	// List calls fn for every object whose key begins with prefix, in key order, until fn returns an error, which List returns.
	List(ctx context.Context, prefix string, fn func(Info) error) error
	// Delete removes objects; those that do not exist are no error.
	Delete(ctx context.Context, keys ...string) error
	// AbortUploads ends the uploads in parts that nobody will complete, of keys that begin with prefix and are dead, and returns how many there were.
	AbortUploads(ctx context.Context, prefix string, dead func(key string) bool) (int, error)
	// String is the URL of the store, without secrets.
	String() string
}

// The outcomes that callers branch on; test with errors.Is.
var (
	ErrNotFound     = errors.New("object does not exist")
	ErrPrecondition = errors.New("object was changed or created by another writer")
	ErrConflict     = errors.New("another conditional write to the object is going on")
	ErrNoBucket     = errors.New("bucket does not exist")
	ErrForbidden    = errors.New("access denied")
	ErrUnavailable  = errors.New("object store is unavailable")
	ErrUnreachable  = fmt.Errorf("%w: it cannot be reached", ErrUnavailable)
)

// Error is a failed call. It matches its Kind (one of the sentinel errors) and carries a SQLSTATE and a hint for the user.
type Error struct {
	Op, Key, Store string
	Kind           error // a sentinel above, or nil
	// Retryable: the same call may succeed later. Ambiguous: a write that may have been applied, or be applied still.
	// Throttled: the store asks to slow down.
	Retryable, Ambiguous, Throttled bool
	Hint                            string
	Cause                           error
}

// Error names the call, the object and the cause.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", e.Op, strings.TrimSuffix(e.Store, "/"))
	if e.Key != "" {
		b.WriteString("/" + e.Key)
	}
	switch {
	case e.Kind != nil && e.Cause != nil:
		fmt.Fprintf(&b, ": %v: %v", e.Kind, e.Cause)
	case e.Kind != nil:
		fmt.Fprintf(&b, ": %v", e.Kind)
	default:
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	return b.String()
}

// Unwrap gives the sentinel, the cause, and the report with SQLSTATE and hint for pgerr.From.
func (e *Error) Unwrap() []error {
	code := pgerr.IOError
	switch {
	case errors.Is(e.Kind, ErrNotFound):
		code = pgerr.UndefinedFile
	case errors.Is(e.Kind, ErrForbidden):
		code = pgerr.InsufficientPrivilege
	case errors.Is(e.Kind, ErrUnreachable):
		code = pgerr.UnableToConnect
	}
	report := pgerr.Newf(code, "%s", e.Error())
	report.Hint = e.Hint
	errs := []error{}
	if e.Kind != nil {
		errs = append(errs, e.Kind)
	}
	if e.Cause != nil {
		errs = append(errs, e.Cause)
	}
	return append(errs, report)
}

// IsRetryable reports whether the same call may succeed later.
func IsRetryable(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.Retryable || e.Ambiguous || errors.Is(e.Kind, ErrConflict))
}

// isOutcome reports whether err is an answer and not a failure.
func isOutcome(err error) bool {
	return errors.Is(err, ErrNotFound) || errors.Is(err, ErrPrecondition) || errors.Is(err, ErrConflict) || errors.Is(err, context.Canceled)
}

// Aftermath returns a context for what has to be cleared away after a call with ctx has failed: where ctx has ended its caller waits no longer than limit for that.
func Aftermath(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	after := context.WithoutCancel(ctx)
	if ctx.Err() == nil {
		return after, func() {}
	}
	return context.WithTimeout(after, limit)
}

// IsAmbiguous reports whether err leaves open if the write was or will be applied.
func IsAmbiguous(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Ambiguous
}

// checkKey refuses keys that could leave the store's folder or that some store cannot hold.
func checkKey(op, store, key string) error {
	bad := key == "" || len(key) > MaxKeyBytes || strings.ContainsAny(key, "\\\x00\n")
	for _, part := range strings.Split(key, "/") {
		bad = bad || part == "" || part == "." || part == ".."
	}
	if bad {
		return &Error{Op: op, Store: store, Cause: fmt.Errorf("invalid object key %q", key)}
	}
	return nil
}
