package sql

// TxModes are the modes of BEGIN and SET TRANSACTION.
type TxModes struct {
	Isolation  string // "", "read uncommitted", "read committed", "repeatable read", "serializable"
	ReadOnly   *bool
	Deferrable *bool
}

// Begin is BEGIN (Start false) or START TRANSACTION.
type Begin struct {
	Base
	IsStart bool
	Modes   TxModes
}

// Commit is COMMIT or END.
type Commit struct {
	Base
	Chain bool
}

// Rollback is ROLLBACK or ABORT.
type Rollback struct {
	Base
	Chain bool
}

// Savepoint is SAVEPOINT name.
type Savepoint struct {
	Base
	Name string
}

// RollbackTo is ROLLBACK TO [SAVEPOINT] name.
type RollbackTo struct {
	Base
	Name string
}

// Release is RELEASE [SAVEPOINT] name.
type Release struct {
	Base
	Name string
}

// Set is SET [SESSION|LOCAL] name TO values; also SET TIME ZONE (timezone), NAMES (client_encoding), SCHEMA (search_path),
// ROLE (role) and SESSION AUTHORIZATION (session_authorization).
type Set struct {
	Base
	Local    bool
	Name     string
	Values   []string
	Default  bool // TO DEFAULT, TIME ZONE LOCAL, ..
	ValuePos int
}

// SetTransaction is SET TRANSACTION modes, or SET SESSION CHARACTERISTICS AS TRANSACTION modes.
type SetTransaction struct {
	Base
	Session  bool
	Snapshot string
	Modes    TxModes
}

// SetConstraints is SET CONSTRAINTS, which has no effect on constraints that cannot be deferred.
type SetConstraints struct {
	Base
	Names    []Name // nil for ALL
	Deferred bool
}

// Reset is RESET name or RESET ALL.
type Reset struct {
	Base
	Name string
	All  bool
}

// ShowKind tells the forms of SHOW apart.
type ShowKind uint8

// The forms of SHOW.
const (
	ShowSetting ShowKind = iota // SHOW name
	ShowAll                     // SHOW ALL
	ShowObjects                 // SHOW JOBS, TABLES, SOURCES, MATERIALIZED VIEWS, VIEWS, SINKS, SCHEMAS, .. : Objects
	ShowCreate                  // SHOW CREATE kind name
	ShowColumns                 // SHOW COLUMNS FROM name, DESCRIBE name
)

// Show is SHOW and DESCRIBE.
type Show struct {
	Base
	Kind ShowKind
	Name string // ShowSetting
	// Objects is the plural as written, in lower case: "jobs", "tables", "materialized views", "internal tables", ..
	Objects string
	From    string // schema of SHOW TABLES FROM schema
	Like    string // pattern of SHOW .. LIKE
	Object  ObjectKind
	Target  Name
}

// Discard is DISCARD ALL|PLANS|SEQUENCES|TEMP (lower case in What).
type Discard struct {
	Base
	What string
}

// Explain is EXPLAIN in both forms. Options holds the list as written; the fields are their values.
type Explain struct {
	Base
	Analyze, Verbose bool
	Costs            bool
	Timing, Summary  bool   // default: Analyze
	Format           string // "text", "json", "xml", "yaml", "dot"
	Duration         string // of ANALYZE of a materialized view: an interval, "" = since its start
	Options          []Option
	Target           Statement
	View             *Name // instead of Target: EXPLAIN [ANALYZE] MATERIALIZED VIEW | SINK name
	Sink             bool  // View is a sink
	Checkpoint       *ExplainedCheckpoint
}

// ExplainedCheckpoint, instead of a Target, is that of EXPLAIN CHECKPOINT [id] [FOR name].
type ExplainedCheckpoint struct {
	ID    uint64 // with Newest: 0
	IDPos int
	Job   *Name // nil: all jobs

	Newest bool // no id is given
}

// Prepare is PREPARE name [(types)] AS statement.
type Prepare struct {
	Base
	Name   string
	Types  []TypeName
	Target Statement
}

// Execute is EXECUTE name [(arguments)].
type Execute struct {
	Base
	Name string
	Args []*Query
}

// Deallocate is DEALLOCATE [PREPARE] name|ALL.
type Deallocate struct {
	Base
	Name string
	All  bool
}

// Declare is DECLARE name CURSOR FOR query.
type Declare struct {
	Base
	Name        string
	Binary      bool
	Insensitive bool
	Asensitive  bool
	Scroll      bool
	NoScroll    bool
	Hold        bool
	Query       *Query
	Subscribe   *Subscribe // instead of Query
}

// Subscribe is SUBSCRIBE [TO] name | (query) [WITH (..)] [AS OF epoch] [UP TO epoch], the last two in any order.
type Subscribe struct {
	Base
	Name       Name   // when there is no Query
	Query      *Query // nil when a relation is named
	Options    []Option
	AsOf, UpTo *Epoch
}

// Epoch is the number of an epoch in a statement.
type Epoch struct {
	Number uint64
	Pos    int
}

// FetchDirection is the direction of FETCH and MOVE.
type FetchDirection uint8

// The directions of FETCH.
const (
	FetchForward FetchDirection = iota
	FetchBackward
	FetchAbsolute
	FetchRelative
)

// Fetch is FETCH, or MOVE when Move is set. PRIOR is backward 1, FIRST absolute 1, LAST absolute -1.
type Fetch struct {
	Base
	Move      bool
	Direction FetchDirection
	Count     int64
	All       bool
	Name      string
	Options   []Option
}

// Close is CLOSE name|ALL.
type Close struct {
	Base
	Name string
	All  bool
}

// Copy is COPY in PostgreSQL's full syntax, old option spellings included (as Options).
type Copy struct {
	Base
	Table   Name
	Columns []Ident
	Query   Statement // COPY (query) TO; nil when a table is named
	From    bool
	Stdio   bool   // STDIN or STDOUT
	File    string // file name or command
	Program bool
	Options []CopyOption
	Where   *Query
}

// CopyOption is one option of COPY: List for FORCE_QUOTE (a, b), Star for FORCE_QUOTE *.
type CopyOption struct {
	Option
	List []Ident
	Star bool
}

// Listen is LISTEN channel.
type Listen struct {
	Base
	Channel string
}

// Unlisten is UNLISTEN channel|*.
type Unlisten struct {
	Base
	Channel string
	All     bool
}

// Notify is NOTIFY channel [, payload].
type Notify struct {
	Base
	Channel, Payload string
}

// Checkpoint is CHECKPOINT [name]: of all jobs, or of one.
type Checkpoint struct {
	Base
	Object  *Name
	Options []Option // WITH (type = …)
}

// Flush is FLUSH.
type Flush struct{ Base }

// Wait is WAIT [name]; nil waits for all.
type Wait struct {
	Base
	Object *Name
}

// CancelJobs is CANCEL JOB|JOBS ids.
type CancelJobs struct {
	Base
	IDs []string // as written: numbers or strings
}

// Pause is PAUSE name.
type Pause struct {
	Base
	Object *Name // nil pauses all
}

// Resume is RESUME name.
type Resume struct {
	Base
	Object *Name
}

// Recover is RECOVER.
type Recover struct{ Base }

// Vacuum is VACUUM, accepted for compatibility.
type Vacuum struct {
	Base
	Options []Option
	Tables  []Name
}

// Analyze is ANALYZE, accepted for compatibility.
type Analyze struct {
	Base
	Options []Option
	Tables  []Name
}

// Lock is LOCK TABLE.
type Lock struct {
	Base
	Tables []Name
	Mode   string // lower case, "access exclusive" by default
	NoWait bool
}

// Refresh is REFRESH MATERIALIZED VIEW: a no-op for views that refresh themselves.
type Refresh struct {
	Base
	Name         Name
	Concurrently bool
	WithNoData   bool
}
