package pgext

import (
	"github.com/pingcap/tidb/pkg/parser/ast"
)

// Query is the view of a query: exactly one of Select, Values and SetOp is set.
type Query struct {
	With    *With
	Select  *Select
	Values  *Values
	SetOp   *SetOp
	OrderBy []SortKey
	Limit   *Limit
	Locks   []Lock
	Pos     int // of the first word of the query's body where known, else -1
}

// LockStrength is the strength of a row lock, the strongest first.
type LockStrength uint8

// The row locks.
const (
	LockUpdate LockStrength = iota
	LockNoKeyUpdate
	LockShare
	LockKeyShare
)

// String returns the clause.
func (s LockStrength) String() string {
	return [...]string{"FOR UPDATE", "FOR NO KEY UPDATE", "FOR SHARE", "FOR KEY SHARE"}[s]
}

// Lock is a row locking clause. No names in Of mean all FROM items; Wait is "NOWAIT", "SKIP LOCKED" or nothing.
type Lock struct {
	Strength LockStrength
	Wait     string
	Of       []string
	OfPos    []int
	Pos      int
}

type (
	// With is a WITH clause.
	With struct {
		Recursive bool
		CTEs      []CTE
	}
	// CTE is one common table expression.
	CTE struct {
		Name    string
		Columns []string
		Query   ast.Node
		Pos     int
		CTEClauses
	}
	// CTEClauses are the clauses behind a recursive query, nil where there is none.
	CTEClauses struct {
		Search *Search
		Cycle  *Cycle
	}
	// Search is SEARCH .. FIRST BY .. SET column.
	Search struct {
		Breadth bool
		By      []string
		Column  string
		Pos     int
	}
	// Cycle is CYCLE by SET mark TO value DEFAULT default USING path; Value and Default are literals.
	Cycle struct {
		By                         []string
		Mark, Path, Value, Default string
		Pos                        int
	}
	// Values is VALUES; a row's element may be Default. Pos of each row is its first element's.
	Values struct {
		Rows [][]ast.ExprNode
	}
	// SetOp is left UNION|INTERSECT|EXCEPT [ALL] right.
	SetOp struct {
		Kind        SetOpKind
		All         bool
		Left, Right *Query
	}
	// Select is one SELECT. No From means no FROM clause, no Targets an empty list.
	Select struct {
		Distinct      bool
		DistinctOn    []ast.ExprNode
		Targets       []Target
		From          []FromItem
		Where         ast.ExprNode
		GroupBy       []GroupItem
		GroupDistinct bool
		Having        ast.ExprNode
		Windows       []Window
	}
	// Target is one item of a select list: Star for `*` and `a.*` (StarOf holds the qualifier), else X.
	Target struct {
		X      ast.ExprNode
		Alias  string // "" when none was written
		Star   bool
		StarOf []string
		Pos    int
	}
	// SortKey is one key of an ORDER BY.
	SortKey struct {
		X          ast.ExprNode // the number itself when ByNumber
		ByNumber   bool         // ORDER BY 2
		Ordinal    int          // the column number then; any integer, 0 and beyond the list included
		Desc       bool         // also of USING >
		NullsFirst bool         // resolved: the default is first for DESC, last otherwise
		// UsingSchema, Using name the operator of ORDER BY x USING op, "" when absent.
		UsingSchema, Using string
		Pos                int
	}
	// Limit is LIMIT, OFFSET and FETCH. Count is nil for LIMIT ALL or none.
	Limit struct {
		Count, Offset ast.ExprNode
		WithTies      bool
		Pos           int
	}
	// GroupItem is one item of GROUP BY.
	GroupItem struct {
		Kind     GroupKind
		X        ast.ExprNode // GroupExpr; a Row lists several columns
		ByNumber bool         // GroupExpr given as a column number
		Ordinal  int          // the number then
		Items    []GroupItem  // the members of ROLLUP, CUBE and GROUPING SETS
		Pos      int
	}
	// Window is a window specification. Only Name is set for OVER w; in a WINDOW clause Name is the one defined.
	Window struct {
		Name        string
		Ref         string // the window a specification starts from: (w ORDER BY ..)
		PartitionBy []ast.ExprNode
		OrderBy     []SortKey
		Frame       *Frame
		Pos         int
	}
	// Frame is a window frame.
	Frame struct {
		Unit       FrameUnit
		Start, End Bound
		Exclude    Exclusion
	}
	// Bound is one end of a frame; Offset is set for BoundPreceding and BoundFollowing.
	Bound struct {
		Kind   BoundKind
		Offset ast.ExprNode
	}
)

// SetOpKind is the kind of a set operation.
type SetOpKind uint8

// The set operations.
const (
	Union SetOpKind = iota
	Except
	Intersect
)

// GroupKind is the kind of a GROUP BY item.
type GroupKind uint8

// The kinds of GROUP BY items.
const (
	GroupExpr GroupKind = iota
	GroupEmpty
	GroupRollup
	GroupCube
	GroupSets
)

// FrameUnit is ROWS, RANGE or GROUPS.
type FrameUnit uint8

// The frame units.
const (
	Rows FrameUnit = iota
	Range
	Groups
)

// BoundKind is the kind of a frame bound, in order.
type BoundKind uint8

// The frame bounds.
const (
	UnboundedPreceding BoundKind = iota
	BoundPreceding
	CurrentRow
	BoundFollowing
	UnboundedFollowing
)

// Exclusion is the EXCLUDE clause of a frame.
type Exclusion uint8

// The exclusions.
const (
	ExcludeNoOthers Exclusion = iota
	ExcludeCurrentRow
	ExcludeGroup
	ExcludeTies
)

// FromItem is one item of FROM: *Relation, *Derived, *TableFunction or *Join.
type FromItem interface{ fromItem() }

type (
	// Relation is a named relation.
	Relation struct {
		Schema, Name string
		Alias        string
		Columns      []string     // alias column list
		SystemTime   ast.ExprNode // FOR SYSTEM_TIME AS OF e
		Sample       *TableSample
		Pos          int
	}
	// TableSample is TABLESAMPLE method (args) [REPEATABLE (seed)].
	TableSample struct {
		Method     string
		Args       []ast.ExprNode
		Repeatable ast.ExprNode
		Pos        int
	}
	// Derived is [LATERAL] (query) [alias [(columns)]]; VALUES too.
	Derived struct {
		Query   ast.Node
		Lateral bool
		Alias   string
		Columns []string
		Pos     int
	}
	// TableFunction is f(..) or ROWS FROM (f(..), ..) in FROM; always lateral. Tumble and hop are such calls too, with the name of
	// a relation as first argument (a Column view).
	TableFunction struct {
		Funcs      []FuncItem
		RowsFrom   bool
		Ordinality bool
		Alias      string
		Columns    []string
		Pos        int
	}
	// FuncItem is one call (a Call, Special, SQLValue or Cast view) with the column definitions of AS (a int, ..).
	FuncItem struct {
		X       ast.ExprNode
		Columns []ColumnDef
	}
	// ColumnDef is a column of a record-returning function.
	ColumnDef struct {
		Name, Type, Collation string
		Pos                   int
	}
	// Join is left join right.
	Join struct {
		Kind        JoinKind
		Asof        bool // inner or left
		Left, Right FromItem
		Natural     bool
		On          ast.ExprNode
		Using       []string
		UsingAlias  string   // USING (..) AS alias
		Alias       string   // (a JOIN b ..) AS alias
		Columns     []string // (a JOIN b ..) AS alias (columns)
		Pos         int
	}
)

// JoinKind is the kind of a join.
type JoinKind uint8

// The kinds of joins. A cross join has neither On nor Using.
const (
	InnerJoin JoinKind = iota
	LeftJoin
	RightJoin
	FullJoin
	CrossJoin
)

func (*Relation) fromItem()      {}
func (*Derived) fromItem()       {}
func (*TableFunction) fromItem() {}
func (*Join) fromItem()          {}

// AssignTarget is what an assignment changes: a column, or the part of it that Part tells, a chain of Subscript, Slice and Field over
// a constant with the column's name. Part is nil for the whole column.
type AssignTarget struct {
	Column string
	Part   ast.ExprNode
	Pos    int
}

// Assignment is one item of SET: column = value, or (columns) = row. Value is Default for DEFAULT; for a row it is a Row
// or a Subquery.
type Assignment struct {
	Columns []AssignTarget
	Row     bool
	Value   ast.ExprNode
	Pos     int
}
