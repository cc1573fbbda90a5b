package expr

import (
	"context"
	"time"

	"github.com/streamdb/streamdb/types"
)

// Env is what expressions may depend on besides their input: one per statement, or per job for views. Read-only while in use.
type Env struct {
	Format      *types.Format // session settings for text conversions
	Params      []types.Datum // $1 … of the running statement
	TxnTime     int64         // now(): µs since 2000-01-01 UTC
	StmtTime    int64         // statement_timestamp()
	User        string
	SessionUser string
	Database    string
	Schemas     []string // search path, resolved
	Settings    func(name string) (string, bool)
	Catalog     CatalogInfo // for pg_get_userbyid and its like; nil inside jobs
	SessionID   int32       // pg_backend_pid()
	Sequences   Sequences   // nil inside jobs
	Session     SessionActions
	Random      *Random // nil inside jobs
	// Interrupt returns why the evaluation has to end, nil while it may go on; itself nil inside jobs. Cheap and safe for concurrent use.
	Interrupt func() error
}

// Interrupted returns why the evaluation has to end, nil while it may go on.
func (e *Env) Interrupted() error {
	if e == nil || e.Interrupt == nil {
		return nil
	}
	return e.Interrupt()
}

// InterruptedBy is the Interrupt of what ends with a context.
func InterruptedBy(ctx context.Context) func() error {
	return func() error {
		if ctx.Err() == nil {
			return nil
		}
		return context.Cause(ctx)
	}
}

// Sequences is what the functions of sequences do; sequences are named by OID. Safe for concurrent use.
type Sequences interface {
	Next(oid uint32) (int64, error)
	// Current is the value that the session got last of the sequence, Last that of whichever sequence it used last.
	Current(oid uint32) (int64, error)
	Last() (int64, error)
	Set(oid uint32, value int64, called bool) error
	// Newest is the newest value given out to anybody; ok is false when there was none.
	Newest(oid uint32) (value int64, ok bool, err error)
}

// SessionActions are what functions do to the session that calls them, and to others. nil where there is no session.
type SessionActions interface {
	// SetConfig sets a setting as SET does, SET LOCAL with local, and returns its new value.
	SetConfig(name, value string, local bool) (string, error)
	// Sleep waits, and ends early with an error when the statement is cancelled.
	Sleep(d time.Duration) error
	// Signal cancels what a session is doing, or ends it; false with a warning when there is no such session.
	Signal(pid int32, terminate bool) (bool, error)
	// Notify sends a message to the sessions that listen, at the end of the transaction.
	Notify(channel, payload string) error
	// ClientPort and ServerPort are those of the connection, false for one within the process.
	ClientPort() (int32, bool)
	ServerPort() (int32, bool)
	// AdvisoryLock takes an advisory lock for the session, or for the transaction with tx, and waits for it unless try.
	AdvisoryLock(l AdvisoryLock, tx, try bool) (bool, error)
	// AdvisoryUnlock gives a lock of the session back; false, with a warning, when it has none.
	AdvisoryUnlock(l AdvisoryLock) (bool, error)
	AdvisoryUnlockAll() error
	// Reload reads the rules of who may connect and the certificates again, if the session may ask for it. What cannot be read is for the log.
	Reload() error
	// Checkpoint makes a checkpoint of a relation and of what it reads, of all with "", if the session may, and returns its id.
	Checkpoint(relation, kind string) (id int64, err error)
	// Savepoint makes a savepoint, if the session may, and returns its path.
	Savepoint(s Savepoint) (path string, err error)
	DisposeSavepoint(path string) error
	// Started is when the server was started, Configured when it last read its configuration, µs since 2000-01-01 UTC.
	Started() int64
	Configured() int64
}

// Savepoint is what is asked for with a savepoint.
type Savepoint struct {
	Target    string // URL of the folder; "": the setting's
	Relation  string // as it is written in SQL; "": the whole database
	Canonical bool
	Stop      bool // the relation's job ends with it
	Drain     bool // with Stop: as if its sources had ended
}

// AdvisoryLock names an advisory lock and the mode wanted: Two tells whether Class and Object are two numbers, or the halves of one.
type AdvisoryLock struct {
	Class, Object uint32
	Two, Shared   bool
}

// CatalogInfo answers the catalogue functions that clients call (pg_table_is_visible, regclass text, …). Implemented by the catalog.
type CatalogInfo interface {
	// RelationName returns the name of the relation, qualified when it is not visible on path.
	RelationName(oid uint32, path []string) (string, bool)
	// RelationOID resolves a possibly qualified, possibly quoted name.
	RelationOID(name string, path []string) (uint32, bool)
	RelationVisible(oid uint32, path []string) bool
	NamespaceName(oid uint32) (string, bool)
	NamespaceOID(name string) (uint32, bool)
	// TypeName returns the name of a type that users made, as format_type prints it: enum types, rows of relations, and arrays of both.
	TypeName(oid uint32, path []string) (string, bool)
	// TypeOID reads a type name.
	TypeOID(name string, path []string) (uint32, error)
	// EnumValue returns the stored form of an enum type's label.
	EnumValue(enum uint32, label string) (string, bool)
	RoleName(oid uint32) (string, bool)
	RoleOID(name string) (uint32, bool)
	ViewDefinition(oid uint32, path []string) (string, bool)
	IndexDefinition(oid uint32, column int, pretty bool) (string, bool)
	ConstraintDefinition(oid uint32, pretty bool) (string, bool)
	Comment(oid uint32, class string, sub int32) (string, bool)
	// RelationSize returns the bytes that a relation takes, or a database when oid is that of one.
	RelationSize(oid uint32) (int64, bool)
	// IndexesSize returns the bytes that the indexes of a relation take.
	IndexesSize(oid uint32) (int64, bool)
	DatabaseSize(name string) (int64, bool)
	// SerialSequence returns the qualified name of the sequence that a column owns.
	SerialSequence(table, column string, path []string) (name string, ok bool, err error)
	// Function tells of a function that a user made.
	Function(oid uint32) (schema, name string, args []types.OID, ok bool)
	// FunctionsNamed returns the functions of users in a schema, or with schema "" those visible on path.
	FunctionsNamed(schema, name string, path []string) []uint32
	// FunctionText describes any function.
	FunctionText(oid uint32, part FunctionPart, path []string) (text string, ok bool, err error)
	// HasPrivilege answers has_table_privilege and its like; known is false where the answer is NULL.
	HasPrivilege(q *PrivilegeQuery) (has, known bool, err error)
	// HasRole answers pg_has_role.
	HasRole(user, role Ref, privilege string) (bool, error)
}

// Ref names an object of the catalog, by its name or by its OID.
type Ref struct {
	Name  string
	OID   uint32
	Named bool
}

// PrivilegeQuery asks whether a user has one of the privileges of a list on an object.
type PrivilegeQuery struct {
	Kind       string // as in has_<kind>_privilege
	User       Ref
	Object     Ref
	Column     Ref // OID is the column's number
	Privileges string
	Path       []string
}

// FunctionPart is what FunctionText prints.
type FunctionPart byte

// The parts of a function.
const (
	FunctionDefinition FunctionPart = iota // CREATE OR REPLACE FUNCTION ..
	FunctionArguments                      // with defaults
	FunctionIdentity                       // without
	FunctionResult
	FunctionBody // of a function whose body is not a string
)

// RowErrors collects the rows whose evaluation failed. A failed row's value is NULL; the operator decides what becomes of the row
// (a one-shot query raises the first error, a job diverts the row to the errors relation).
type RowErrors struct {
	Rows []uint16 // physical rows, ascending within one evaluation, no duplicates after Sort
	Errs []error
}

// Add records that physical row r failed.
func (e *RowErrors) Add(r int, err error) {
	e.Rows = append(e.Rows, uint16(r))
	e.Errs = append(e.Errs, err)
}

// Reset empties the list and keeps its storage.
func (e *RowErrors) Reset() { e.Rows, e.Errs = e.Rows[:0], e.Errs[:0] }
