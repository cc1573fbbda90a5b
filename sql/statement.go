package sql

import (
	"strings"

	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
	"github.com/streamdb/streamdb/sql/pgext"
)

// Statement is one parsed statement. The concrete types are the structs of this package that embed Base.
type Statement interface {
	// Span returns the byte range of the statement in the message, without the closing semicolon.
	Span() (start, end int)
	// SourceText returns the statement as the user wrote it.
	SourceText() string
	// Params returns the highest parameter number ($n) used, 0 when there is none.
	Params() int
	base() *Base
}

// Base is what all statements have.
type Base struct {
	Start, End int
	Text       string // the user's text of [Start, End)
	MaxParam   int    // highest $n
	// Notices are remarks of the lexer: identifiers truncated to 63 bytes (42622).
	Notices []*pgerr.Error
}

// Span implements Statement.
func (b *Base) Span() (start, end int) { return b.Start, b.End }

// SourceText implements Statement.
func (b *Base) SourceText() string { return b.Text }

// Params implements Statement.
func (b *Base) Params() int { return b.MaxParam }

func (b *Base) base() *Base { return b }

// NoticesOf returns the lexer's remarks about a statement.
func NoticesOf(st Statement) []*pgerr.Error { return st.base().Notices }

// Query is a SELECT, VALUES, TABLE or WITH query; also the form of every expression inside another statement: an expression e is
// `SELECT e`, a RETURNING list `SELECT list`, the assignments of an UPDATE `SELECT assign(..) FROM target, .. WHERE ..`.
// Read Stmt through package pgext (pgext.QueryOf, pgext.ExprOf). It is immutable and may be shared.
type Query struct {
	Base
	Stmt ast.StmtNode
	// Relations maps every relation named (as Name.Key prints it) to its first offset.
	Relations map[string]int
	// Translated is the text given to TiDB's parser, for diagnostics.
	Translated string
	// EmitOnWindowClose is set by a trailing EMIT ON WINDOW CLOSE.
	EmitOnWindowClose bool
	// Into is the target of SELECT .. INTO, nil otherwise.
	Into *Name
	// Changes are the statements that change data in WITH clauses of the message's statement; pgext.Change gives the number of a WITH query's.
	Changes []Statement
}

// Pos returns the byte offset of node in the message, -1 when it has none. For operators it is the operator's own place.
func (q *Query) Pos(node ast.Node) int {
	if node == nil {
		return -1
	}
	return node.OriginTextPosition()
}

// Locking is the first row locking clause of the query itself ("FOR UPDATE"), "" when it has none.
func (q *Query) Locking() string {
	if l := pgext.QueryOf(q.Stmt).Locks; len(l) > 0 {
		return l[0].Strength.String()
	}
	return ""
}

// Expr returns the expression of a Query that stands for a single one (`SELECT e`).
func (q *Query) Expr() ast.ExprNode {
	if s, ok := q.Stmt.(*ast.SelectStmt); ok && s.Fields != nil && len(s.Fields.Fields) > 0 {
		return s.Fields.Fields[0].Expr
	}
	return nil
}

// Name is a possibly qualified name, folded as PostgreSQL folds it.
type Name struct {
	Catalog, Schema, Name string
	Pos                   int
}

// DatabaseName is the one database of a server; names in others are refused by Parse.
const DatabaseName = lex.DatabaseName

// Key is the unquoted dotted form without the catalog: the key of Query.Relations.
func (n Name) Key() string {
	if n.Schema == "" {
		return n.Name
	}
	return n.Schema + "." + n.Name
}

// String prints the name with quotes where PostgreSQL needs them.
func (n Name) String() string {
	var b strings.Builder
	for _, s := range []string{n.Catalog, n.Schema} {
		if s != "" {
			b.WriteString(QuoteIdent(s))
			b.WriteByte('.')
		}
	}
	b.WriteString(QuoteIdent(n.Name))
	return b.String()
}

// Ident is a single name with its position.
type Ident struct {
	Name string
	Pos  int
}

// Option is one name = value pair of WITH (..), SET (..) or a parenthesised option list. Value is the literal's text without
// quotes, "true" when no value was given.
type Option struct {
	Name, Value string
	Pos         int // of the name
	ValuePos    int // of the value, of the name when there is none
	NoValue     bool
}

// Insert is INSERT INTO .. [ON CONFLICT ..] [RETURNING ..]. A WITH clause is part of Query.
type Insert struct {
	Base
	Table      Name
	Alias      string
	Columns    []Ident
	Targets    *Query // SELECT of Columns with the subscripts behind them, see pgext.AssignTargets; nil when none has any
	Overriding string // "", "system", "user"
	With       *Query // the WITH clause in front of DEFAULT VALUES
	Query      *Query // nil for DEFAULT VALUES; DEFAULT in a VALUES row is pgext.Default
	OnConflict *OnConflict
	Returning  *Query
}

// OnConflict is the clause of INSERT. Without Columns, Exprs and Constraint it covers every unique index.
type OnConflict struct {
	Pos        int
	Target     *Query // SELECT key expressions [WHERE index predicate], nil when absent
	Constraint string
	DoNothing  bool
	Set        *Query // SELECT assignments [WHERE condition] of DO UPDATE; see pgext.Assignments
}

// Update is UPDATE .. SET .. Query is `[WITH ..] SELECT assign(..), .. FROM target [alias] [, from items] [WHERE ..]`.
type Update struct {
	Base
	Table     Name
	Alias     string
	Query     *Query
	Returning *Query
}

// Delete is DELETE FROM ..; Query is `[WITH ..] SELECT marker FROM target [alias] [, using items] [WHERE ..]`.
type Delete struct {
	Base
	Table     Name
	Alias     string
	Query     *Query
	Returning *Query
}

// ColumnDef is one column of a CREATE TABLE or CREATE SOURCE, or of ALTER .. ADD COLUMN.
type ColumnDef struct {
	Name       string
	Pos        int
	Type       *TypeName // nil when the definition gives none (a generated column's type follows from its expression)
	Collation  string
	NotNull    bool
	Null       bool
	PrimaryKey bool
	Unique     bool
	UniqueAs   TableConstraint // name and parameters of Unique
	KeyName    string          // of PrimaryKey, "" when not given
	Default    *Query
	Generated  *Query // GENERATED ALWAYS AS (e) STORED, or name [type] AS e
	Identity   string // "", "always", "by default"
	// IdentityOptions are those of the identity column's sequence.
	IdentityOptions []SequenceOption
	IdentityPos     int
	Checks          []TableConstraint
	References      *ForeignKey

	next int // token behind the name, where a missing type is reported
}

// ConstraintKind tells the kinds of TableConstraint apart.
type ConstraintKind uint8

// The kinds of table constraints.
const (
	ConstraintPrimaryKey ConstraintKind = iota
	ConstraintUnique
	ConstraintCheck
	ConstraintForeignKey
)

// TableConstraint is a constraint of a table, or a CHECK of a column.
type TableConstraint struct {
	Kind    ConstraintKind
	Name    string
	Columns []Ident
	Check   *Query
	Foreign *ForeignKey
	// Include, NullsNotDistinct and UsingIndex belong to UNIQUE and PRIMARY KEY.
	Include          []Ident
	NullsNotDistinct bool
	UsingIndex       *Ident
	// NotValid: existing rows are not checked.
	NotValid bool
	Pos      int
}

// ForeignKey is what REFERENCES says.
type ForeignKey struct {
	Table    Name
	Columns  []Ident
	OnDelete string
	OnUpdate string
	Pos      int
}

// Watermark is WATERMARK FOR column AS expr.
type Watermark struct {
	Column string
	Expr   *Query
	Pos    int
}

// Include is INCLUDE KEY|TIMESTAMP|OFFSET|PARTITION|HEADER .. [AS alias] of a source.
type Include struct {
	Field, Alias string
	Pos          int
}

// Format is FORMAT f ENCODE e [(options)] [KEY ENCODE k [(options)]].
type Format struct {
	Format, Encode string // upper case
	Options        []Option
	KeyEncode      string
	KeyOptions     []Option
	Pos            int
}

// TableDef is the shape that tables and sources share.
type TableDef struct {
	Name         Name
	IfNotExists  bool
	Columns      []ColumnDef
	AllColumns   bool // a `*` in the column list: columns derived from the external schema too
	Constraints  []TableConstraint
	Likes        []TableLike
	Watermarks   []Watermark
	Includes     []Include
	AppendOnly   bool
	OnCommit     string // "", "preserve rows", "delete rows", "drop"
	ConflictMode string // ON CONFLICT [DO UPDATE FULL | DO NOTHING | OVERWRITE | IGNORE] of the definition, upper case, "" when absent
	Options      []Option
	Format       *Format

	parens bool // a column list was given
}

// TableLike is LIKE in a table's definition.
type TableLike struct {
	Name  Name
	At    int // columns of the definition before it
	parts uint16
}

// The parts of a relation that LIKE may include.
const (
	LikeComments uint16 = 1 << iota
	LikeConstraints
	LikeDefaults
	LikeGenerated
	LikeIdentity
	LikeIndexes
	LikeOther // what columns and indexes do not have here: compression, statistics, storage

	likeAll = 1<<iota - 1
)

// Including reports whether a part is to be copied.
func (l *TableLike) Including(part uint16) bool { return l.parts&part != 0 }

// CreateTable is CREATE [TEMP] TABLE.
type CreateTable struct {
	Base
	TableDef
	Temporary, Unlogged bool
}

// CreateSource is CREATE SOURCE.
type CreateSource struct {
	Base
	TableDef
}

// CreateTableAs is CREATE TABLE .. AS query and SELECT .. INTO.
type CreateTableAs struct {
	Base
	OnCommit            string
	Name                Name
	IfNotExists         bool
	Temporary, Unlogged bool
	Columns             []Ident
	Options             []Option
	Query               *Query
	WithNoData          bool
}

// CreateMaterializedView is CREATE MATERIALIZED VIEW, and with Alter ALTER MATERIALIZED VIEW name AS query.
type CreateMaterializedView struct {
	Base
	Name                   Name
	IfNotExists, OrReplace bool
	Alter, IfExists        bool
	Columns                []Ident
	Options                []Option
	Query                  *Query
	EmitOnWindowClose      bool
	WithNoData             bool
}

// CreateView is CREATE VIEW.
type CreateView struct {
	Base
	Name                   Name
	IfNotExists, OrReplace bool
	Temporary              bool
	Columns                []Ident
	Options                []Option
	Recursive              bool // Query has the WITH RECURSIVE
	Query                  *Query
}

// CreateSink is CREATE SINK name [INTO table] FROM relation | AS query [WITH ..] [FORMAT ..].
type CreateSink struct {
	Base
	Name        Name
	IfNotExists bool
	Into        *Name
	From        *Name
	Query       *Query
	Options     []Option
	Format      *Format

	EmitOnWindowClose bool
}

// IndexKey is one key of CREATE INDEX: a column, or an expression.
type IndexKey struct {
	Column     string // "" for an expression
	Expr       *Query
	Collation  string
	OpClass    string
	Desc       bool
	NullsFirst bool // resolved: PostgreSQL's default is nulls last for ASC, nulls first for DESC
	Pos        int
}

// CreateIndex is CREATE [UNIQUE] INDEX; Name is empty when PostgreSQL would choose one.
type CreateIndex struct {
	Base
	Name         Ident
	Unique       bool
	Concurrently bool
	IfNotExists  bool
	Table        Name
	Method       string
	Keys         []IndexKey
	Include      []Ident
	Options      []Option
	Where        *Query
	DistributeBy []Ident

	NullsNotDistinct bool
}

// Reindex is REINDEX; Object is set for an index or a table.
type Reindex struct {
	Base
	Kind   ObjectKind
	Object *Name
}

// CreateSchema is CREATE SCHEMA.
type CreateSchema struct {
	Base
	Name          Ident
	IfNotExists   bool
	Authorization *RoleSpec // nil: the current role
}

// ObjectKind names a kind of object in DROP, ALTER, COMMENT, SHOW CREATE and GRANT, in lower case.
type ObjectKind string

// The kinds of objects.
const (
	KindTable            ObjectKind = "table"
	KindView             ObjectKind = "view"
	KindMaterializedView ObjectKind = "materialized view"
	KindSource           ObjectKind = "source"
	KindSink             ObjectKind = "sink"
	KindIndex            ObjectKind = "index"
	KindSchema           ObjectKind = "schema"
	KindColumn           ObjectKind = "column"
	KindDatabase         ObjectKind = "database"
	KindRole             ObjectKind = "role"
	KindSystem           ObjectKind = "system"
	KindConstraint       ObjectKind = "constraint"
	KindFunction         ObjectKind = "function"
	KindSequence         ObjectKind = "sequence"
	KindType             ObjectKind = "type"
	KindExtension        ObjectKind = "extension"
)

// Drop is DROP kind names.
type Drop struct {
	Base
	Kind         ObjectKind
	Names        []Name
	IfExists     bool
	Cascade      bool
	Concurrently bool
}

// Truncate is TRUNCATE.
type Truncate struct {
	Base
	Tables          []Name
	RestartIdentity bool
	Cascade         bool
}

// AlterKind tells the actions of ALTER apart.
type AlterKind uint8

// The actions of ALTER.
const (
	AlterRename             AlterKind = iota // RENAME TO NewName
	AlterSetSchema                           // SET SCHEMA NewName
	AlterSetOptions                          // SET (Options), ALTER SYSTEM SET, SET k = v
	AlterReset                               // RESET (names in Options; none: ALL)
	AlterOwner                               // OWNER TO NewName
	AlterAddColumn                           // ADD COLUMN Column
	AlterDropColumn                          // DROP COLUMN Name
	AlterRenameColumn                        // RENAME COLUMN Name TO NewName
	AlterSetDefault                          // ALTER COLUMN Name SET DEFAULT Default
	AlterDropDefault                         // ALTER COLUMN Name DROP DEFAULT
	AlterSetNotNull                          // ALTER COLUMN Name SET NOT NULL
	AlterDropNotNull                         // ALTER COLUMN Name DROP NOT NULL
	AlterColumnType                          // ALTER COLUMN Name TYPE Type [USING Using]
	AlterAddConstraint                       // ADD Constraint
	AlterDropConstraint                      // DROP CONSTRAINT Name
	AlterRenameConstraint                    // RENAME CONSTRAINT Name TO NewName
	AlterRefreshSchema                       // REFRESH SCHEMA
	AlterAddIdentity                         // ALTER COLUMN Name ADD GENERATED Identity AS IDENTITY (Sequence)
	AlterSetIdentity                         // ALTER COLUMN Name SET GENERATED Identity, SET/RESTART options (Sequence)
	AlterDropIdentity                        // ALTER COLUMN Name DROP IDENTITY [IF EXISTS]
	AlterDropExpression                      // ALTER COLUMN Name DROP EXPRESSION [IF EXISTS]
	AlterValidateConstraint                  // VALIDATE CONSTRAINT Name
	AlterNothing                             // accepted without effect: storage and statistics settings
)

// AlterAction is one action of ALTER; which fields are set follows from Kind.
type AlterAction struct {
	Kind                  AlterKind
	Name                  Ident
	NewName               Ident
	Column                *ColumnDef
	Constraint            *TableConstraint
	Type                  *TypeName
	Using                 *Query
	Default               *Query
	Options               []Option
	Identity              string // "", "always", "by default"
	Sequence              []SequenceOption
	IfExists, IfNotExists bool
	Cascade               bool
	Pos                   int
}

// AlterObject is ALTER TABLE, MATERIALIZED VIEW, VIEW, SOURCE, SINK, INDEX, SCHEMA, DATABASE or SYSTEM (whose Name is empty).
type AlterObject struct {
	Base
	Kind     ObjectKind
	Name     Name
	IfExists bool
	Actions  []AlterAction
}

// CommentOn is COMMENT ON kind name IS text; Comment is nil for NULL. Column is set for a column of the relation Name.
type CommentOn struct {
	Base
	Kind    ObjectKind
	Name    Name
	Column  string // also the constraint of KindConstraint
	Comment *string
	// Function is what KindFunction names.
	Function *FunctionSignature
}
