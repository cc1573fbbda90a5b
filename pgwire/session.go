package pgwire

import (
	"context"
	"crypto/x509"
	"io"
	"net"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// Format is the wire format of a value.
type Format int16

// The two wire formats.
const (
	FormatText   Format = 0
	FormatBinary Format = 1
)

// Transaction status bytes of ReadyForQuery.
const (
	TxIdle   byte = 'I' // not in a transaction block
	TxActive byte = 'T' // in a transaction block
	TxFailed byte = 'E' // in a failed transaction block; all but its end is refused with 25P02
)

// Param is a run-time parameter: one of the startup message, or one reported by ParameterStatus.
type Param struct {
	Name, Value string
}

// StartupParams is what a client said when it connected.
type StartupParams struct {
	User     string
	Database string // User when the client named none
	// Settings holds the run-time parameters in the order in which they apply: first those of "options" (-c name=value,
	// --name=value), then the message's own (application_name, client_encoding, …). Names are as the client wrote them, not
	// checked: NewSession refuses an unknown one with 42704. Repeated names are possible, the last one counts.
	Settings   []Param
	RemoteAddr net.Addr
	LocalAddr  net.Addr
	TLS        bool  // the connection is encrypted
	ProcessID  int32 // the pid in BackendKeyData, for pg_backend_pid()
	// Wake makes the connection ask the session for notifications (Idler) when it waits for its client. Any goroutine may call it.
	Wake func()
	// Of an encrypted connection: version and cipher by name, the server's certificate (DER), and what the client showed, verified when the
	// configuration has authorities for that.
	TLSVersion, TLSCipher string
	ServerCert            []byte
	ClientCerts           []*x509.Certificate
}

// FieldDescription describes a result column.
type FieldDescription struct {
	Name     string
	TableOID uint32 // relation the column comes from, 0 when it is computed
	Attr     int16  // its attribute number there, 0 when it is computed
	Type     types.Type
	Format   Format // as bound; in a simple query FormatText but for rows of a binary cursor; DescribeStatement ignores it
}

// Handler makes sessions. Package server implements it.
type Handler interface {
	// NewSession opens a session for a client that is authenticated already. It applies p.Settings. An error is sent as FATAL
	// (3D000 unknown database, 42704 unknown setting, 22023 bad value, …) and ends the connection. ctx ends with the connection.
	// n may be used until Close returns, under the rule given at Notifier.
	NewSession(ctx context.Context, p StartupParams, n Notifier) (Session, error)
}

// Session is one client's session. pgwire calls its methods from one goroutine, one at a time, in the order of the client's
// messages; no call overlaps another. Only Close may follow a panic.
//
// Contexts. The ctx of a call is cancelled by a cancel request that arrives during the call, when the client disconnects and
// when the server's shutdown runs out of patience; it is also cancelled some time after the call returned. What lives longer
// than a call (an open portal, a transaction) therefore hangs on the context given to NewSession and must merely be stopped by
// ctx while a call works on it. A cancel request between two calls hits nothing. context.Cause(ctx) is a *pgerr.Error that says
// why (57014, 57P01, 08006); a session that returns ctx.Err(), bare or wrapped by something else than a *pgerr.Error, gets the
// same report. A deadline that the session sets itself (statement_timeout) it also reports itself.
//
// Errors. A returned error is sent as ErrorResponse, with pgerr.From's fields, severity ERROR; a session whose error has
// Severity "FATAL" is closed after it. Any error, be it returned by the session or told to it by Fail, ends an implicit
// transaction with a rollback and puts an explicit one into the failed state; TxStatus shows it from then on. In the extended
// protocol pgwire then discards messages until Sync. Pos counts bytes in the text given to SimpleQuery or Prepare (all of the
// text, also when it holds several statements); errors of the other calls are sent without position.
// Errors returned by ResultWriter methods mean that the client is gone: return them as they are, at once.
//
// Memory. Byte slices and format slices passed in are lent for the call; strings may be kept.
//
// Text. Strings are checked before: valid UTF-8 without NUL. Parameters are not, in no format: Bind tells which of them is bad.
type Session interface {
	// ParameterStatus returns what is reported to the client at startup, in order (server_version, client_encoding, …).
	ParameterStatus() []Param

	// Format returns the settings that text output depends on. It is asked for at each ResultWriter.RowDescription with columns in text format.
	Format() *types.Format

	// TxStatus returns TxIdle, TxActive or TxFailed; it is asked for when ReadyForQuery is sent. An implicit transaction counts
	// as TxIdle.
	TxStatus() byte

	// SimpleQuery runs all statements of text, writing each one's result to w: RowDescription and Rows for those with rows, then
	// exactly one of CommandComplete and EmptyQuery (text without any statement: one EmptyQuery for all of it; empty statements
	// between others: nothing). The statements outside of a BEGIN…COMMIT block form one implicit transaction together,
	// committed when the call returns nil. An implicit transaction left open by extended messages without Sync joins it. It also
	// destroys the unnamed statement and the unnamed portal.
	SimpleQuery(ctx context.Context, text string, w ResultWriter) error

	// Prepare makes a prepared statement of text, which holds at most one statement (42601 otherwise; none is fine, executing it
	// writes EmptyQuery). name "" is the unnamed statement, replaced without asking; any other must be new (42P05). paramOIDs
	// may be shorter than the parameters; 0 in it means "infer". In a failed transaction all but the statements that end one are
	// refused (25P02).
	Prepare(ctx context.Context, name, text string, paramOIDs []uint32) error

	// DescribeStatement returns the parameter types and the result columns of a prepared statement (26000 if there is none). nil
	// columns mean that it returns no rows; a result without columns is a non-nil empty slice. Formats in it are ignored.
	DescribeStatement(ctx context.Context, name string) (params []types.OID, cols []FieldDescription, err error)

	// Bind makes a portal of a prepared statement (26000). portal "" is replaced without asking, any other must be new (42P03).
	// A nil element of params is NULL. paramFormats and resultFormats hold 0 (all text), 1 (for all) or as many formats as there
	// are parameters or columns; Bind reports another number of params than the statement has, and another number of
	// resultFormats than 0, 1 or its columns, as 08P01. A result type that differs from the prepared one is reported here, as
	// 0A000 "cached plan must not change result type".
	Bind(ctx context.Context, portal, stmt string, paramFormats []Format, params [][]byte, resultFormats []Format) error

	// DescribePortal returns the columns of a portal with the formats bound (34000 if there is none; SQL cursors are portals
	// too); nil as in DescribeStatement.
	DescribePortal(ctx context.Context, name string) ([]FieldDescription, error)

	// Execute runs a portal (34000), or goes on with it where the last Execute stopped. It writes RowDescription (not sent
	// again in this protocol, it sets the formats) and Rows, then exactly one of CommandComplete, EmptyQuery and, when maxRows > 0
	// rows were written and the portal was not seen to have ended, Suspended. maxRows 0 means all. Copies asked for by a weight
	// count as rows.
	// A completed portal that returns rows may be executed again and completes with 0 rows; another one is an error (55000).
	Execute(ctx context.Context, portal string, maxRows int, w ResultWriter) error

	// CloseStatement and ClosePortal drop one; a name that does not exist is no error. Closing a statement closes its portals.
	CloseStatement(ctx context.Context, name string) error
	ClosePortal(ctx context.Context, name string) error

	// Sync ends an extended batch: an implicit transaction commits, or rolls back if anything failed since the last Sync. Portals
	// of an implicit transaction end with it, portals of an open block stay. Its error is reported before ReadyForQuery.
	Sync(ctx context.Context) error

	// Fail tells the session of an error that pgwire found by itself between calls (malformed message, bad UTF-8): the
	// transaction fails as if the session had returned err. Sync follows, at the client's next one or at once.
	Fail(err error)

	// Close ends the session: rolls back, drops temporary objects. It is called exactly once, also after a panic and when the
	// client vanished. It must not use the Notifier.
	Close()
}

// Notifier sends messages that are not part of a result. pgwire implements it. It may be used only inside of a call of the
// session, NewSession included, by one goroutine at a time: in practice by the goroutine that the call runs on.
type Notifier interface {
	// Notice sends e as NoticeResponse, at once. Severity "" means NOTICE; WARNING, INFO, LOG and DEBUG are the others.
	Notice(e *pgerr.Error) error
	// ParameterStatus reports a changed run-time parameter. It goes out before the next ReadyForQuery, and only if the value
	// differs from the one reported last: a change and its rollback cancel out.
	ParameterStatus(name, value string) error
}

// ResultWriter takes the results of one SimpleQuery or Execute call. pgwire implements it; it is valid until the call returns
// and is used by one goroutine at a time. Output is buffered and goes out when 64 KiB have gathered, at Flush, Notice, CopyIn,
// and at the end of the batch.
type ResultWriter interface {
	Notifier

	// RowDescription begins a result with rows. It comes before the first Rows of each statement, and of each Execute. fields is
	// kept until the next one and must not change.
	RowDescription(fields []FieldDescription) error

	// Rows encodes the selected rows of c, straight from its vectors, in the formats of the last RowDescription. A row of weight
	// n > 0 is written n times, of weight 0 not at all; a negative weight is an internal error. c is lent for the call.
	Rows(c *types.Chunk) error

	// CommandComplete ends a statement: "SELECT 3", "INSERT 0 1", "CREATE MATERIALIZED VIEW".
	CommandComplete(tag string) error
	// EmptyQuery ends a text without a statement.
	EmptyQuery() error
	// Suspended ends an Execute whose row limit was reached.
	Suspended() error

	// Flush sends what is buffered; for results that come slowly.
	Flush() error

	// CopyIn begins COPY … FROM STDIN with ncols columns all of the given format. The statement's CommandComplete follows after
	// the data was read. An error returned by the reader is to be returned by the call as it is. What the session leaves unread
	// is discarded.
	CopyIn(format Format, ncols int) (CopyReader, error)

	// CopyOut begins COPY … TO STDOUT; CopyData sends a row (b is lent), CopyDone ends the data; CommandComplete follows.
	CopyOut(format Format, ncols int) error
	CopyData(b []byte) error
	CopyDone() error
}

// Lookahead is what the ResultWriter of an Execute call may know besides.
type Lookahead interface {
	// SyncFollows reports that the client's next message is here already and is a Sync. The implicit transaction may then be committed within
	// the call, so that an error of the commit is reported as the statement's. false says nothing.
	SyncFollows() bool
}

// CopyReader gives the bytes of COPY … FROM STDIN. Both methods return io.EOF after the client's CopyDone; after a CopyFail the
// error is 57014 with the client's reason. Message borders need not be row borders. The bytes are not checked in any way.
type CopyReader interface {
	io.Reader
	// Next returns the bytes of the next message, or what Read left of the current one. They are lent until the next call.
	Next() ([]byte, error)
}

// Authenticator decides whether a client is who it says. It is called once per connection, after the startup message. nil in
// Config means trust. An error is sent as FATAL: 28P01 wrong password, 28000 otherwise refused.
type Authenticator interface {
	Authenticate(ctx context.Context, p StartupParams, x AuthExchange) error
}

// AuthExchange is the conversation that an Authenticator may lead. Password, or SASL followed by SASLContinue and SASLFinal.
type AuthExchange interface {
	// CleartextPassword asks for the password.
	CleartextPassword() (string, error)
	// SASL offers mechanisms and returns the one chosen with the client's first message (nil when it sent none).
	SASL(mechanisms []string) (mechanism string, initial []byte, err error)
	// SASLContinue sends a challenge and returns the client's answer.
	SASLContinue(challenge []byte) ([]byte, error)
	// SASLFinal sends the last data of a successful exchange.
	SASLFinal(data []byte) error
}
