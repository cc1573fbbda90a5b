package planner

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

// Catalog is the planner's view of the catalog: one consistent state for the whole statement.
type Catalog interface {
	// Relation finds a relation; schema "" means along the search path.
	Relation(schema, name string) (*Relation, bool)
	SchemaExists(name string) bool
	// Functions lists the functions of users called name; schema "" means along the search path.
	Functions(schema, name string) []*Function
	functions.UserTypes
}

// RelKind is the kind of a relation.
type RelKind uint8

// The kinds of relations.
const (
	Table RelKind = iota
	Source
	MaterializedView
	View
	System
	Index
)

// Origin is the column of a relation that a result's column is, by OID and attribute number; zero for what is computed.
type Origin struct {
	Relation uint32
	Attr     int16
}

// RelColumn is one stored column of a relation (declared column of a source).
type RelColumn struct {
	Name    string
	Type    types.Type
	NotNull bool
	Hidden  bool // _row_id and key columns of materialized views: no part of *, selectable by name
	// Default, Generated are expressions over the relation's columns (Default over none), nil when absent.
	Default, Generated *sql.Query
	Attr               int16  // attribute number, 0 for hidden columns
	Identity           string // "", "always", "by default"
}

// Relation describes a relation to the planner. It is immutable.
type Relation struct {
	ID           uint64
	OID          uint32
	Schema, Name string
	Kind         RelKind
	Columns      []RelColumn
	// Key lists the columns of the primary key or of the stream key; for a keyless table the hidden _row_id. Of a source what its
	// connector knows to be different in all rows; empty when that is nothing (rows get a _row_id when read), and for system relations without one.
	Key        []int
	AppendOnly bool
	// OnConflict of a table says what an INSERT without ON CONFLICT does with a row whose primary key exists: one of the constants below.
	OnConflict string
	// Query and SearchPath define a View.
	Query      *sql.Query
	SearchPath []string
	// Source is the template of a Source's plan node: connector, options, format. Relation, Declared, Columns and RowID are filled in.
	Source *plan.Source
	// Watermark of a Source or table, nil when there is none.
	Watermark *RelWatermark
	// Virtual names a System relation to the server.
	Virtual string
	Rows    int64 // estimate, 0 when unknown
	// Constraint names the primary key, "" when the key is hidden. Ordered reports that rows are stored in order of the key.
	Constraint string
	Ordered    bool
	Indexes    []RelIndex
}

// What tables do with new rows whose primary key exists.
const (
	ConflictError     = ""                      // as in PostgreSQL
	ConflictOverwrite = "overwrite"             // the new row takes the place of the old one
	ConflictIgnore    = "ignore"                // the old row stays
	ConflictIfNotNull = "do_update_if_not_null" // the values of the new row that are not NULL are taken over
)

// primaryKey returns the columns of a table's primary key, nil when it has none.
func (r *Relation) primaryKey() []int {
	if len(r.Key) > 0 && !r.Columns[r.Key[0]].Hidden {
		return r.Key
	}
	for _, x := range r.Indexes {
		if x.Primary {
			var key []int
			for _, k := range x.Keys {
				key = append(key, k.Column)
			}
			return key
		}
	}
	return nil
}

// RelIndex is an index of a table or materialized view that has all its rows.
type RelIndex struct {
	ID               uint64
	Name             string
	Keys             []RelIndexKey
	Unique           bool
	NullsNotDistinct bool
	Constraint       bool       // UNIQUE or PRIMARY KEY, not only a unique index
	Primary          bool       // the primary key of a table that was created without one
	Where            *sql.Query // of a partial index
	SearchPath       []string
}

// RelIndexKey is a column of the relation, or with Column -1 an expression over its columns.
type RelIndexKey struct {
	Column           int
	Expr             *sql.Query
	Desc, NullsFirst bool
}

// RelWatermark is WATERMARK FOR column AS expr.
type RelWatermark struct {
	Column int
	Expr   *sql.Query
}

// Options of planning.
type Options struct {
	Catalog    Catalog
	Registry   *functions.Registry
	SearchPath []string
	// Params are the declared parameter types; the zero Type (and any parameter beyond the slice) is inferred.
	Params        []types.Type
	DisabledRules map[string]bool
	// Env is what constant folding may use; nil means defaults.
	Env *expr.Env
	// Parallelism 1 plans a job for a single subtask, without exchanges; any other value keeps it open.
	Parallelism int
	EmitOnClose bool
	// AllowedLateness, in µs, is how much later than their watermarks tell windows close under EmitOnClose, and rows are late under DropLate.
	AllowedLateness int64
	// DropLate lets a job drop rows behind a watermark, without EmitOnClose too, where it need not keep others then.
	DropLate bool
	// StateTTL, in µs, is after what time without a change a job drops what it keeps, 0: never.
	StateTTL int64
	// Checkpoint describes a relation as it is in a checkpoint or savepoint, for streamdb.read_checkpoint; nil: not here.
	Checkpoint func(path, relation string) (*Relation, error)
	Database   string // the current database, for three-part names; "" accepts any
	// LookupJoinRows is one more than the rows from which a relation that a view joins by its key is read there instead of kept once more; 0: none is.
	LookupJoinRows int64
	// Relation is the id of the relation that a job's result becomes.
	Relation uint64
	// Sink, when set, makes the plan of a job that writes its result to a connector.
	Sink *Sink
	// MaxRecursionIterations and MaxRecursionBytes bound recursive queries; 0 means the defaults.
	MaxRecursionIterations, MaxRecursionBytes int64
}

// Sink is what planning a sink depends on.
type Sink struct {
	Name string
	// PrimaryKey are columns of the result by name, nil: the rows are told apart as the result tells them apart.
	PrimaryKey []string
}

// The default bounds of recursive queries.
const (
	DefaultMaxRecursionIterations = 1_000_000
	DefaultMaxRecursionBytes      = 256 << 20
)

// Planned is a planned query.
type Planned struct {
	Plan *plan.Plan
	// Before are the statements of the WITH clause that change data, in their order.
	Before []PlannedWith
	// Locks are the rows that the query locks.
	Locks []PlannedLock
	// Columns are the user's columns with PostgreSQL's names and types: the first Plan.Visible ones of Plan.Schema.
	Columns types.Schema
	Origins []Origin // of Columns
	Params  []types.Type
	// Relations are the relations named, directly or through views, including the views: the dependencies.
	Relations []uint64
	// Access are the uses of relations, for the check of privileges.
	Access []Access
	// Calls are the functions of users that are called, directly or through views, by id, for the same check.
	Calls []uint64
	// NotNull tells for each column of Plan.Schema whether it is known to hold no NULL.
	NotNull []bool
	// Stars tells for each `*` and `t.*` of a select list, by its place in the text, what it stands for.
	Stars map[int][]StarColumn
	// Natural are the columns that each NATURAL JOIN joins on.
	Natural [][]string
	// Notices are for whoever makes a view of the query.
	Notices []*pgerr.Error
}

// PlannedChange is a planned INSERT, UPDATE or DELETE. Plan yields one row per affected row:
//
//	INSERT  the stored columns of the target (hidden ones are NULL: storage fills them)
//	UPDATE  the old stored columns, then the new ones, then Extra
//	DELETE  the old stored columns, then Extra
//	MERGE   the number of the WHEN clause (from 1), the old stored columns (NULL where nothing matched), then the new ones
type PlannedChange struct {
	Planned
	Target *Relation
	// Returning are expressions over the stored columns of the new row (the old one for DELETE), then Extra; nil without RETURNING.
	Returning        []*expr.Expr
	ReturningColumns types.Schema
	ReturningOrigins []Origin
	Extra            int // columns of other relations that RETURNING reads
	OnConflict       *PlannedConflict
	Merge            []sql.MergeAction // of MERGE, by number of the WHEN clause
}

// PlannedConflict is the ON CONFLICT clause of an INSERT.
type PlannedConflict struct {
	// Arbiters are the unique indexes whose conflicts are handled; with Any all are. Key reports that the primary key is one of them.
	Arbiters  []uint64
	Key, Any  bool
	DoNothing bool
	// Set gives the whole new row over the existing row's stored columns, then the proposed row's. Where is a condition over the same, nil = always.
	Set   []*expr.Expr
	Where *expr.Expr
	// OfTable: the table's own rule, not the statement's. It may change a row more than once, and asks nothing of a new row that another takes in.
	OfTable bool
	// Whole: Set is the proposed row as it is.
	Whole bool
}

// procTimeName is what the column of PROCTIME() is called.
const procTimeName = "proctime"

// rowIDName is the hidden column that identifies rows of relations without a key.
const rowIDName = "_row_id"
