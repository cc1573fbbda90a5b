// Package plan holds physical plans: trees of operator nodes, cut into fragments. Plans of jobs are stored as JSON in the catalog
// together with their operator ids and are never derived again at restart, so field names and kinds here are a format promise.
//
//	Plan ── Fragment × parallelism ── tree of Nodes ── leaves: Source, Scan, Values, Exchange (from another fragment)
//
// Every node has a stream key: columns that identify a row of its output. Rows with equal keys never coexist (weights −1/+1
// replace them), which lets state be addressed by key and ties be broken the same way everywhere.
package plan

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// FormatVersion is the version of the stored form of plans.
const FormatVersion = 1

// Plan is the physical plan of a job or of a one-shot query (always one fragment, no exchange).
type Plan struct {
	Version   int          `json:"version"`
	Fragments []*Fragment  `json:"fragments"` // upstream before downstream; the last one holds the root
	Schema    types.Schema `json:"schema"`    // output; the first Visible columns are the user's
	Visible   int          `json:"visible"`
	Key       []int        `json:"key"`             // stream key of the output
	Inputs    []uint64     `json:"inputs"`          // relations read (their change logs), without duplicates
	NextID    uint32       `json:"next_id"`         // next free operator id
	Rules     []string     `json:"rules,omitempty"` // rules that fired, by name
	// Indexes are the indexes of materialized views that a one-shot plan would read: where one cannot be, the view is read instead.
	Indexes []uint64 `json:"indexes,omitempty"`
	// Unbounded is set when a one-shot plan reads a source that never ends.
	Unbounded bool `json:"unbounded,omitempty"`
}

// Fragment is a tree of operators that one subtask runs without channels inside.
type Fragment struct {
	ID int `json:"id"`
	// Parallelism: 0 = the job's, 1 = single subtask.
	Parallelism int   `json:"parallelism"`
	Root        *Node `json:"root"`
}

// Kind is an operator's kind. Its text is stored.
type Kind string

// The operator kinds. Input counts in parentheses.
const (
	KindSource       Kind = "source"        // (0) rows of a connector
	KindScan         Kind = "scan"          // (0) a relation: its version, then (in jobs) its change log
	KindValues       Kind = "values"        // (0) constant rows, once
	KindSeries       Kind = "series"        // (0) generate_series and other table functions over constants
	KindExchange     Kind = "exchange"      // (0) rows of another fragment
	KindFilter       Kind = "filter"        // (1)
	KindProject      Kind = "project"       // (1)
	KindUnnest       Kind = "unnest"        // (1) set-returning functions: input columns, then results, then ordinality
	KindWatermark    Kind = "watermark"     // (1) derives a watermark from a column
	KindWindow       Kind = "window"        // (1) TUMBLE/HOP: input columns, window_start, window_end
	KindProcTime     Kind = "proctime"      // (1) input columns, then the clock as of the last barrier, with its watermark
	KindTemporal     Kind = "temporal"      // (1) filter by the clock: rows enter or leave when their time has come
	KindExpire       Kind = "expire"        // (1) drops rows that have not been changed for a time
	KindSession      Kind = "session"       // (1) SESSION: input columns, window_start, window_end
	KindAgg          Kind = "agg"           // (1) hash aggregation; no aggregates = DISTINCT
	KindPartialAgg   Kind = "partial_agg"   // (1) sums of the rows of a chunk, to be added up by the aggregation behind an exchange
	KindJoin         Kind = "join"          // (2)
	KindAsofJoin     Kind = "asof_join"     // (2) each left row with the nearest right row
	KindTemporalJoin Kind = "temporal_join" // (2) left rows with what the right relation holds in their epoch
	KindLookupJoin   Kind = "lookup_join"   // (2) join that reads right rows from their relation
	// (2) the rows of the first input that compare with the one row of the second
	KindDynamicFilter Kind = "dynamic_filter"
	KindUnion         Kind = "union"        // (n) UNION ALL: inputs have equal schemas; the planner adds the branch number to the key
	KindPartialTopN   Kind = "partial_topn" // (1) drops rows that a Top-N behind an exchange cannot show
	KindTopN          Kind = "topn"         // (1) ORDER BY … LIMIT per group; also sort (no limit) in one-shot plans
	KindOver          Kind = "over"         // (1) window functions: input columns, then one per call
	KindRecompute     Kind = "recompute"    // (n) evaluates a sub-plan again per epoch over kept inputs and emits the difference
	KindInput         Kind = "input"        // (0) inside a recompute sub-plan: kept input number Input
	KindRecurse       Kind = "recurse"      // (0) inside a recompute sub-plan: WITH RECURSIVE, base and step are plans of their own
	KindWork          Kind = "work"         // (0) inside the step of a recurse node: the rows of the last iteration, then their number
	KindMaterialize   Kind = "materialize"  // (1) root of a job with a result
	KindSink          Kind = "sink"         // (1) root of a job that writes its result to a connector
	KindDiscard       Kind = "discard"      // (1) root of a benchmark job: counts rows
	KindResult        Kind = "result"       // (1) root of a one-shot query
)

// Sender returns the root of the fragment that an exchange reads.
func (p *Plan) Sender(x *Exchange) *Node {
	for _, f := range p.Fragments {
		if f.ID == x.From {
			return f.Root
		}
	}
	return nil
}

// Node is one operator. ID is unique in its plan and stable for the life of the job: state tables are addressed by it.
type Node struct {
	ID         uint32       `json:"id"`
	Kind       Kind         `json:"kind"`
	Schema     types.Schema `json:"schema"`
	Key        []int        `json:"key"` // stream key; empty = at most one row; nil = none: rows are changes that only count together
	AppendOnly bool         `json:"append_only,omitempty"`
	// Tables names the relation that each output column is of, by its alias, "" for none; nil: not known. It is shown only.
	Tables []string `json:"tables,omitempty"`
	// WatermarkCols lists output columns on which a watermark arrives.
	WatermarkCols []int   `json:"watermark_cols,omitempty"`
	Inputs        []*Node `json:"inputs,omitempty"`

	Source        *Source        `json:"source,omitempty"`
	Scan          *Scan          `json:"scan,omitempty"`
	Values        *Values        `json:"values,omitempty"`
	Series        *Series        `json:"series,omitempty"`
	Exchange      *Exchange      `json:"exchange,omitempty"`
	Filter        *Filter        `json:"filter,omitempty"`
	Project       *Project       `json:"project,omitempty"`
	Unnest        *Unnest        `json:"unnest,omitempty"`
	Watermark     *Watermark     `json:"watermark,omitempty"`
	Window        *Window        `json:"window,omitempty"`
	Session       *Session       `json:"session,omitempty"`
	Temporal      *Temporal      `json:"temporal,omitempty"`
	Expire        *Expire        `json:"expire,omitempty"`
	Agg           *Agg           `json:"agg,omitempty"`
	PartialAgg    *PartialAgg    `json:"partial_agg,omitempty"`
	Join          *Join          `json:"join,omitempty"`
	AsofJoin      *AsofJoin      `json:"asof_join,omitempty"`
	LookupJoin    *LookupJoin    `json:"lookup_join,omitempty"`
	TemporalJoin  *TemporalJoin  `json:"temporal_join,omitempty"`
	TopN          *TopN          `json:"topn,omitempty"`
	PartialTopN   *PartialTopN   `json:"partial_topn,omitempty"`
	DynamicFilter *DynamicFilter `json:"dynamic_filter,omitempty"`
	Over          *Over          `json:"over,omitempty"`
	Recompute     *Recompute     `json:"recompute,omitempty"`
	Recurse       *Recurse       `json:"recurse,omitempty"`
	Input         int            `json:"input,omitempty"`
	Materialize   *Materialize   `json:"materialize,omitempty"`
	Sink          *Sink          `json:"sink,omitempty"`
}

// Source reads a connector inside the job. Schema of the node = Columns of the declared columns, then _row_id (int8) when RowID.
type Source struct {
	Relation      uint64            `json:"relation"`
	Name          string            `json:"name"`
	Alias         string            `json:"alias,omitempty"` // in the query, where it is not the name; it is shown only
	Connector     string            `json:"connector"`
	Options       map[string]string `json:"options"`
	Format        string            `json:"format,omitempty"` // PLAIN
	Encode        string            `json:"encode,omitempty"` // JSON, CSV
	EncodeOptions map[string]string `json:"encode_options,omitempty"`
	Declared      types.Schema      `json:"declared"` // all columns of the source
	Columns       []int             `json:"columns"`  // those produced, positions in Declared
	RowID         bool              `json:"row_id,omitempty"`
}

// Scan reads a relation. Schema of the node = Columns of the relation's stored columns.
type Scan struct {
	Relation uint64 `json:"relation"`
	Name     string `json:"name"`
	Alias    string `json:"alias,omitempty"` // as of Source
	Columns  []int  `json:"columns"`
	// Point, when set (one-shot plans), gives one expression per primary key column of the relation: a read of at most one row.
	Point []*expr.Expr `json:"point,omitempty"`
	// Index, when set (one-shot plans), says which part of the relation to read, by its primary key or an index of it. All conditions are checked
	// above: reading more rows than that is no mistake.
	Index *IndexScan `json:"index,omitempty"`
	// Probe, when set (one-shot plans), is what to read instead when a join above gives the values of its first keys: see Join.Lookups.
	Probe *IndexScan `json:"probe,omitempty"`
	// Leading scans of a job are read before all others when the job is filled. Those of which Probed is set emit nothing: the operator above reads the
	// relation by its key.
	Leading bool `json:"leading,omitempty"`
	Probed  bool `json:"probed,omitempty"`
	// ChangesOnly scans of a job do not give what the relation holds when the job is filled.
	ChangesOnly bool `json:"changes_only,omitempty"`
	// Lookup, when set, is what the operator above reads a relation by of which Probed or ChangesOnly is set, instead of all of its key.
	Lookup *LookupIndex `json:"lookup,omitempty"`
	// Rows of system relations are produced by the server: Virtual names them ("pg_catalog.pg_class").
	Virtual string `json:"virtual,omitempty"`
}

// IndexScan reads the rows whose key begins with one of the values of Equal for each of the first keys and lies between Low and High in the next.
type IndexScan struct {
	Index uint64 `json:"index"` // 0 = the primary key
	// Relation is set for an index of a materialized view: a relation of its own with the view's columns, in order of the keys.
	Relation         uint64         `json:"relation,omitempty"`
	Name             string         `json:"name"`
	Keys             []IndexKey     `json:"keys"`
	Unique           bool           `json:"unique,omitempty"`
	NullsNotDistinct bool           `json:"nulls_not_distinct,omitempty"`
	Equal            [][]*expr.Expr `json:"equal,omitempty"` // a single value of an array type stands for its elements
	Low              *IndexBound    `json:"low,omitempty"`
	High             *IndexBound    `json:"high,omitempty"`
	// Ordered scans give rows in order of the index, or with Backward in the opposite one: the operator above needs no more than its limit.
	Ordered  bool `json:"ordered,omitempty"`
	Backward bool `json:"backward,omitempty"`
}

// LookupIndex is an index of a table whose first keys are columns that a join gives values of.
type LookupIndex struct {
	Index   uint64     `json:"index"` // 0 = the primary key
	Name    string     `json:"name"`
	Columns []int      `json:"columns"` // stored columns of the relation
	Order   []KeyOrder `json:"order"`   // one for each of Columns
}

// AppendKey appends the memcomparable key of physical row i of vectors of Columns.
func (x *LookupIndex) AppendKey(dst []byte, cols []*types.Vector, i int) []byte {
	for k, v := range cols {
		dst = types.AppendKey(dst, v, i, x.Order[k].Desc, x.Order[k].NullsFirst)
	}
	return dst
}

// IndexKey is a key of an index: an expression over the relation's stored columns.
type IndexKey struct {
	Expr       *expr.Expr `json:"expr"`
	Desc       bool       `json:"desc,omitempty"`
	NullsFirst bool       `json:"nulls_first,omitempty"`
}

// IndexBound is an end of a range of keys. Its value needs no row; NULL leaves nothing.
type IndexBound struct {
	Value     *expr.Expr `json:"value"`
	Inclusive bool       `json:"inclusive,omitempty"`
}

// Values holds constant rows; expressions see no input.
type Values struct {
	Rows [][]*expr.Expr `json:"rows"`
}

// Series is a table function over constant arguments. Schema = results, then ordinality (int8) when Ordinality, then a hidden row number int8.
type Series struct {
	Func       string       `json:"func"` // functions.Registry id of a set-returning function
	Args       []*expr.Expr `json:"args"`
	Ordinality bool         `json:"ordinality,omitempty"`
}

// Unnest appends the columns of set-returning calls to each input row (one output row per result row), then an int8 ordinal.
type Unnest struct {
	Calls []*expr.Expr `json:"calls"`          // Kind Call of set-returning functions
	Left  bool         `json:"left,omitempty"` // keep input rows without results, NULL-padded
}

// Distribution tells how an exchange spreads rows over the receiving subtasks.
type Distribution string

// The distributions.
const (
	DistHash      Distribution = "hash"      // by key group of Columns
	DistBroadcast Distribution = "broadcast" // every row to all
	DistSingle    Distribution = "single"    // all rows to subtask 0
	DistForward   Distribution = "forward"   // subtask i to subtask i (equal parallelism)
)

// Exchange receives the output of fragment From.
type Exchange struct {
	From    int          `json:"from"`
	Dist    Distribution `json:"dist"`
	Columns []int        `json:"columns,omitempty"`
}

// Filter keeps rows for which Cond is true.
type Filter struct {
	Cond *expr.Expr `json:"cond"`
}

// Project computes Exprs over its input.
type Project struct {
	Exprs []*expr.Expr `json:"exprs"`
}

// Watermark emits watermarks max(Expr) over column Column; Expr is of the column's type, e.g. ts - interval '5 seconds'.
type Watermark struct {
	Column int        `json:"column"`
	Expr   *expr.Expr `json:"expr"`
	// Lateness, in µs, is taken away from what is emitted: windows close that much later. Of dates it is whole days.
	Lateness int64 `json:"lateness,omitempty"`
}

// Window assigns rows to windows over Column (date, timestamp or timestamptz). Half-open [start, end), floored also before 1970.
// Slide = 0: tumbling. Sizes in µs. Rows whose Column is NULL belong to no window.
type Window struct {
	Column int   `json:"column"`
	Size   int64 `json:"size"`
	Slide  int64 `json:"slide,omitempty"`
	Offset int64 `json:"offset,omitempty"`
	// Step, when set, makes windows that begin every Size and grow by Step: a row belongs to those from the first that holds it to the whole one.
	Step int64 `json:"step,omitempty"`
	// Reach, when set, is the size of the windows that these are parts of: rows are in range when those are.
	Reach int64 `json:"reach,omitempty"`
	// Calendar, when set, gives the windows instead of the sizes above.
	Calendar *Calendar `json:"calendar,omitempty"`
}

// Calendar describes windows of whole days or months, counted from 1970-01-01 in local time. A window is Count units of Unit days or months long and
// begins every unit, or, with Cumulate, every Count units and grows by a unit. All of them begin later by OffsetMonths, OffsetDays and Offset µs of local time.
type Calendar struct {
	Zone         string `json:"zone,omitempty"` // "" = UTC
	Months       bool   `json:"months,omitempty"`
	Unit         int64  `json:"unit"`
	Count        int64  `json:"count"`
	Cumulate     bool   `json:"cumulate,omitempty"`
	OffsetMonths int64  `json:"offset_months,omitempty"`
	OffsetDays   int64  `json:"offset_days,omitempty"`
	Offset       int64  `json:"offset,omitempty"`
}

// Temporal keeps rows while a comparison of the clock with Bound, a timestamptz, holds: with Leaves while the clock is before it, else from it on. With
// After the moment of Bound itself counts as before. Rows whose Bound is NULL are never kept.
type Temporal struct {
	Bound  *expr.Expr `json:"bound"`
	Leaves bool       `json:"leaves,omitempty"`
	After  bool       `json:"after,omitempty"`
}

// Expire drops rows TTL µs after their last change, with Groups those of a group of equal GroupBy together, after the last change of any. Retractions of rows
// that were dropped go with them. Spread are the columns by which rows come to their subtask, of GroupBy if there are groups.
type Expire struct {
	TTL     int64 `json:"ttl"`
	Groups  bool  `json:"groups,omitempty"`
	GroupBy []int `json:"group_by,omitempty"`
	Spread  []int `json:"spread"`
}

// Session assigns rows with equal Keys to sessions: rows whose Column is less than Gap µs after that of the row before belong to one. A session lasts
// from its first row to Gap after its last one. Rows whose Column is NULL belong to none. With OnClose the rows of a session are emitted once, when
// the watermark of Column has passed its end, and dropped; later rows that would belong to it are late rows.
type Session struct {
	Keys    []int `json:"keys,omitempty"`
	Column  int   `json:"column"`
	Gap     int64 `json:"gap"`
	OnClose bool  `json:"on_close,omitempty"`
}

// SortKey orders by a column.
type SortKey struct {
	Column     int  `json:"column"`
	Desc       bool `json:"desc,omitempty"`
	NullsFirst bool `json:"nulls_first,omitempty"`
}

// AggCall is one aggregate; arguments and filter are input columns.
type AggCall struct {
	Func     string     `json:"func"` // functions.Registry aggregate id
	Args     []int      `json:"args,omitempty"`
	Distinct bool       `json:"distinct,omitempty"`
	Filter   int        `json:"filter"` // boolean input column, -1 = none
	Order    []SortKey  `json:"order,omitempty"`
	Type     types.Type `json:"type"` // result
	// Direct are the arguments before WITHIN GROUP: constants or parameters. Order then lists the keys of WITHIN GROUP, which are Args.
	Direct []*expr.Expr `json:"direct,omitempty"`
	// Count, when set, is an input column with the number of values that a row stands for: Args is their sum, of booleans the number of those that are
	// true, and Squares the sum of their squares. A PartialAgg has added them up.
	Count   *int `json:"count,omitempty"`
	Squares *int `json:"squares,omitempty"`
}

// Agg groups by columns; output = group columns, then calls. Key = group columns' positions. Without group columns (Global) there is
// always exactly one output row. With OnClose (position in GroupBy of a window_end column) a group is emitted once, when the watermark passes its end,
// and its state dropped; later rows for it are late rows.
type Agg struct {
	GroupBy []int     `json:"group_by"`
	Calls   []AggCall `json:"calls"`
	Global  bool      `json:"global,omitempty"`
	OnClose int       `json:"on_close"` // index into GroupBy, -1 = emit every epoch
	// TTL, when set, is after how many µs without a change a group is dropped; the input is append-only.
	TTL int64 `json:"ttl,omitempty"`
	// Rows, when set, is an input column with the number of rows that a row stands for: a PartialAgg has added them up.
	Rows *int `json:"rows,omitempty"`
}

// PartialAgg adds up rows of an epoch by group columns without keeping anything from one epoch to the next; output = group columns, then calls, then the
// columns Rest: those of the stream key that are not grouped by, taken from any row of the group. Calls are count, sum, SumOfSquares, CountTrue and, over rows
// that are only added, min, max, bool_and and bool_or; also with a filter. Output rows have no stream key: they are changes, which only count together.
type PartialAgg struct {
	GroupBy []int     `json:"group_by"`
	Calls   []AggCall `json:"calls"`
	Rest    []int     `json:"rest,omitempty"`
	OnClose int       `json:"on_close"` // that of the aggregation
	// Rows, when set, is the call that counts all rows. Input rows may be retracted then, and groups of which nothing is left are not emitted.
	Rows *int `json:"rows,omitempty"`
	// Consolidate, without calls: rows that are the same become one of the sum of their weights, and go when that is 0.
	Consolidate bool `json:"consolidate,omitempty"`
}

// Functions that only a PartialAgg has.
const (
	SumOfSquares = "sum_squares"
	CountTrue    = "count_true"
)

// JoinType is the kind of a join.
type JoinType string

// The join types. Semi and anti joins output the left columns only.
const (
	Inner JoinType = "inner"
	Left  JoinType = "left"
	Right JoinType = "right"
	Full  JoinType = "full"
	Semi  JoinType = "semi"
	Anti  JoinType = "anti"
)

// Join matches rows by key columns (NULL never matches unless NullSafe) and the residual condition over left++right columns.
// Without key columns every pair is a candidate (single subtask). Output = Output columns of left++right, all when nil.
type Join struct {
	Type      JoinType   `json:"type"`
	LeftKeys  []int      `json:"left_keys"`
	RightKeys []int      `json:"right_keys"`
	NullSafe  []bool     `json:"null_safe,omitempty"`
	Residual  *expr.Expr `json:"residual,omitempty"`
	Output    []int      `json:"output,omitempty"`
	// Range, when set, is the part of the condition by which candidates are found in ordered rows. It and Residual are the whole condition beside the keys.
	Range *JoinRange `json:"range,omitempty"`
	// Spread, when set, says how a join without key columns runs in several subtasks. The side that has it decides what rows are output.
	Spread *JoinSpread `json:"spread,omitempty"`
	// CloseKey, when set, is the position in the keys of a window column with a watermark on both sides: when both watermarks have passed
	// the window of a key, paddings are emitted for rows that found no partner, once, and the rows are dropped. Later rows are late rows.
	CloseKey *int `json:"close_key,omitempty"`
	// Lookups (one-shot plans) are the sides that need not be read whole when the other one is small: rows that match nothing do not count.
	Lookups []Lookup `json:"lookups,omitempty"`
	// KeepNulls: rows that are padded because NULL in them matches nothing are kept too, so that the state tells all that was put out.
	KeepNulls bool `json:"keep_nulls,omitempty"`
	// Once, of inner joins, are the sides (0: left) whose rows have one partner at most and are not kept once they have met one of their key: both sides only
	// grow, and the key of the other side follows from the join keys.
	Once []int `json:"once,omitempty"`
	// Wanted, with Once, is a condition of the one partner: rows that do not meet it are kept to tell those of the other side that they have none.
	Wanted *JoinWanted `json:"wanted,omitempty"`
}

// JoinWanted is a condition over the columns of a side.
type JoinWanted struct {
	Side int        `json:"side"` // 0: left
	Cond *expr.Expr `json:"cond"`
}

// AsofJoin gives each left row at most one right row: of those with equal keys (NULL never matches unless NullSafe) that satisfy "left Op right" the one
// whose Right is nearest to Left, of several the first one by the stream key of the right input. Left and Right are columns of one type. Output =
// Output columns of left++right, all when nil.
type AsofJoin struct {
	Type      JoinType `json:"type"` // Inner or Left
	LeftKeys  []int    `json:"left_keys"`
	RightKeys []int    `json:"right_keys"`
	NullSafe  []bool   `json:"null_safe,omitempty"`
	Left      int      `json:"left"`
	Right     int      `json:"right"`
	Op        string   `json:"op"` // <, <=, > or >=
	Output    []int    `json:"output,omitempty"`

	KeepNulls bool `json:"keep_nulls,omitempty"` // as of Join
}

// JoinSpread says that the rows of a side are spread over the subtasks by columns, and that each subtask has all rows of the other side.
type JoinSpread struct {
	Side    int   `json:"side"` // 0: left
	Columns []int `json:"columns"`
}

// JoinRange bounds left values by right ones, from one end or both. Rows with NULL in a column of it match nothing. Lower and Upper hold for all pairs
// for which Cond does; Cond may be stricter.
type JoinRange struct {
	Cond  *expr.Expr `json:"cond"`            // the comparisons, over left++right columns
	Lower *JoinBound `json:"lower,omitempty"` // Left >= Right + Offset
	Upper *JoinBound `json:"upper,omitempty"` // Left <= Right + Offset
	// Expire: both ends are on one time column of either side, on which a watermark arrives, and both inputs only grow. Rows are dropped when the
	// watermark of the other side tells that they can find no partner any more; rows behind the watermark of their own side are late rows.
	Expire bool `json:"expire,omitempty"`
	// OnClose: rows without a partner are padded once, as they are dropped.
	OnClose bool `json:"on_close,omitempty"`
}

// JoinBound is a comparison of columns of the two sides, of one type. Offset is for types that are kept as integers: of timestamps it is in µs, of
// dates in days; infinite values stay what they are.
type JoinBound struct {
	Left   int   `json:"left"`
	Right  int   `json:"right"`
	Offset int64 `json:"offset,omitempty"`
}

// TemporalJoin joins each left row with the right rows that are there at the end of the epoch in which it comes; what the right side becomes later changes
// nothing. A left row that goes takes with it what it brought. Keys, Residual and Output are as of Join.
type TemporalJoin struct {
	Type      JoinType   `json:"type"` // Inner or Left
	LeftKeys  []int      `json:"left_keys"`
	RightKeys []int      `json:"right_keys"`
	NullSafe  []bool     `json:"null_safe,omitempty"`
	Residual  *expr.Expr `json:"residual,omitempty"`
	Output    []int      `json:"output,omitempty"`
	// Spread are the left columns by which rows are spread over subtasks, and with them what is remembered of rows that may go.
	Spread []int `json:"spread,omitempty"`
	// Point, when set, says that the right input is a scan whose relation is read by its key, or by its Lookup, of which column i has the value of the left
	// column Point[i]: nothing of it is kept.
	Point []int `json:"point,omitempty"`
}

// LookupJoin is a join whose right input gives changes of Relation only (see Scan.ChangesOnly): its rows are read by the relation's key, or with Lookup by
// an index, of which column i has the value of the left column Point[i], and not kept. Columns are the stored columns that the right input has. Keys, Residual
// and Output are as of Join; the keys are columns of the relation's key or index.
type LookupJoin struct {
	Type      JoinType   `json:"type,omitempty"` // Inner (also when empty), Left, Semi or Anti
	LeftKeys  []int      `json:"left_keys"`
	RightKeys []int      `json:"right_keys"`
	Residual  *expr.Expr `json:"residual,omitempty"`
	Output    []int      `json:"output,omitempty"`
	Relation  uint64     `json:"relation"`
	Columns   []int      `json:"columns"`
	Point     []int      `json:"point"`

	Lookup *LookupIndex `json:"lookup,omitempty"`
}

// Lookup says that the scan at the bottom of a side of a join can be narrowed to the rows with the keys of the other side: of the first keys of
// its Probe, key i is the join's key Keys[i].
type Lookup struct {
	Side int   `json:"side"` // 0: left
	Keys []int `json:"keys"`
}

// DynamicFilter keeps rows of the first input for which "Column Op Scalar" holds, Scalar being a column of the one row of the second input, of the same type. No
// row and NULL keep none. Rows of the first input are spread by the columns Spread, those of the second go to all subtasks.
type DynamicFilter struct {
	Column int    `json:"column"`
	Op     string `json:"op"` // <, <=, > or >=
	Scalar int    `json:"scalar"`
	Spread []int  `json:"spread"`
}

// TopN keeps rows [Offset, Offset+Limit) per group in Order, ties broken by the stream key of the input. Limit < 0: no limit.
// Limit and offset of one-shot plans may be expressions without columns (parameters): LimitExpr, OffsetExpr win when set.
type TopN struct {
	GroupBy  []int     `json:"group_by,omitempty"`
	Order    []SortKey `json:"order"`
	Limit    int64     `json:"limit"`
	Offset   int64     `json:"offset,omitempty"`
	WithTies bool      `json:"with_ties,omitempty"`
	Dense    bool      `json:"dense,omitempty"` // the limit counts rows that are equal in Order once; no offset
	// Ranks are columns behind those of the input: RankNumber, RankRank or RankDense of the row in its group.
	Ranks      []string   `json:"ranks,omitempty"`
	LimitExpr  *expr.Expr `json:"limit_expr,omitempty"`
	OffsetExpr *expr.Expr `json:"offset_expr,omitempty"`
	// Early (one-shot plans): the first rows will do, the input is asked for no more than those.
	Early bool `json:"early,omitempty"`
	// OnClose, when set, is an input column of GroupBy with a watermark: a group is emitted once, when the watermark has passed its value, and forgotten;
	// later rows for it are late rows.
	OnClose *int `json:"on_close,omitempty"`
}

// PartialTopN drops rows, of those that are only added, that come in their group behind Limit others. It keeps nothing that is part of a checkpoint; output = input.
type PartialTopN struct {
	GroupBy []int     `json:"group_by,omitempty"`
	Order   []SortKey `json:"order"` // the first key decides
	Limit   int64     `json:"limit"`
	OnClose *int      `json:"on_close,omitempty"` // that of the Top-N
}

// The ranks that Top-N can output.
const (
	RankNumber = "row_number"
	RankRank   = "rank"
	RankDense  = "dense_rank"
)

// FrameMode is the unit of a window frame.
type FrameMode string

// The frame modes.
const (
	FrameRows   FrameMode = "rows"
	FrameRange  FrameMode = "range"
	FrameGroups FrameMode = "groups"
)

// BoundKind is the kind of a frame bound.
type BoundKind string

// The frame bounds.
const (
	UnboundedPreceding BoundKind = "unbounded_preceding"
	Preceding          BoundKind = "preceding"
	CurrentRow         BoundKind = "current_row"
	Following          BoundKind = "following"
	UnboundedFollowing BoundKind = "unbounded_following"
)

// Bound is one end of a frame; Offset or Expr is set for Preceding and Following.
type Bound struct {
	Kind   BoundKind    `json:"kind"`
	Offset *types.Datum `json:"offset,omitempty"`
	// Expr is an offset that is known when the operator opens: one with parameters (one-shot plans), or an infinite number.
	Expr *expr.Expr `json:"expr,omitempty"`
}

// CheckOffset returns the error of a frame offset that is NULL or negative; which is "starting" or "ending". RANGE says so per row.
func CheckOffset(d types.Datum, mode FrameMode, which string) error {
	if d.Null {
		return pgerr.Newf(pgerr.NullValueNotAllowed, "frame %s offset must not be null", which)
	}
	if mode != FrameRange && d.Int < 0 {
		return pgerr.Newf("22013", "frame %s offset must not be negative", which)
	}
	return nil
}

// Frame is a window frame. Exclude is "", "current", "group" or "ties".
type Frame struct {
	Mode    FrameMode `json:"mode"`
	Start   Bound     `json:"start"`
	End     Bound     `json:"end"`
	Exclude string    `json:"exclude,omitempty"`
}

// OverCall is one window function; aggregates may be called too.
type OverCall struct {
	Func        string     `json:"func"` // functions.Registry window or aggregate id
	Args        []int      `json:"args,omitempty"`
	Filter      int        `json:"filter"` // -1 = none
	Frame       Frame      `json:"frame"`
	IgnoreNulls bool       `json:"ignore_nulls,omitempty"`
	Type        types.Type `json:"type"`
	// Number is the second argument of lag, lead and nth_value and the argument of ntile where it is a constant that is not NULL.
	Number *int64 `json:"number,omitempty"`
}

// Over computes window functions that share one partitioning and order.
type Over struct {
	PartitionBy []int      `json:"partition_by,omitempty"`
	Order       []SortKey  `json:"order,omitempty"`
	Calls       []OverCall `json:"calls"`
	OnClose     *int       `json:"on_close,omitempty"` // as of TopN, of PartitionBy
	// Backward: order and frames are the opposite of the query's. Rows that are equal in Order are in descending order of the stream key.
	Backward bool `json:"backward,omitempty"`
	// Forget, when set, is the column of the first key of Order. It has a watermark, the input only grows and no function looks ahead: rows behind the watermark
	// are late rows, and those that no later row reads are forgotten.
	Forget *int `json:"forget,omitempty"`
}

// Recompute evaluates Sub (a one-shot plan whose KindInput leaves stand for the node's inputs) again per epoch and emits the difference.
type Recompute struct {
	Sub    *Node  `json:"sub"`
	Reason string `json:"reason"` // shown by EXPLAIN
	// Numbered: the last column of the output counts equal rows from 1. What Sub has there only tells its rows apart.
	Numbered bool `json:"numbered,omitempty"`
}

// Recurse is a recursive query: Base gives the first rows, Step what follows from the rows of the last iteration (leaves of KindWork), until
// nothing does. Leaves of KindInput are those of the recompute node around it. Schema of the node = Width columns, with All then a row number.
type Recurse struct {
	Name  string `json:"name"`
	Base  *Node  `json:"base"`
	Step  *Node  `json:"step"`
	Width int    `json:"width"`          // columns of the query; Base and Step may have others behind them
	All   bool   `json:"all,omitempty"`  // UNION ALL: equal rows are kept
	Keep  bool   `json:"keep,omitempty"` // the reader keeps the rows in memory
	// Linear: the rows that follow from two rows are those that follow from either.
	Linear bool `json:"linear,omitempty"`
	// Live: the result is kept up to date from changes. Source, set with UNION, is the output column of Step with the number of the row that each row follows from.
	Live          bool  `json:"live,omitempty"`
	Source        *int  `json:"source,omitempty"`
	MaxIterations int64 `json:"max_iterations"`
	MaxBytes      int64 `json:"max_bytes"`
}

// Materialize stores its input as the job's relation: rows addressed by the memcomparable key of KeyColumns.
type Materialize struct {
	Relation   uint64 `json:"relation"`
	KeyColumns []int  `json:"key_columns"`
	// Order, when set, is how each of KeyColumns is ordered: rows are stored in order of the whole key, by one subtask. Such a relation is an
	// index; KeyColumns begin with its keys.
	Order []KeyOrder `json:"order,omitempty"`
}

// Sink writes the first Visible columns of its input to the job's connector. Changes of an epoch are consolidated by the columns Key, nil: the input only grows and
// its rows are written as they come.
type Sink struct {
	Name    string `json:"name"`
	Visible int    `json:"visible"`
	Key     []int  `json:"key"`
}

// KeyOrder is how a column of a key is ordered.
type KeyOrder struct {
	Desc       bool `json:"desc,omitempty"`
	NullsFirst bool `json:"nulls_first,omitempty"`
}

// LooksUp reports whether the job reads a table by an index.
func (p *Plan) LooksUp(index uint64) bool {
	found := false
	for _, f := range p.Fragments {
		f.Root.Walk(func(n *Node) {
			found = found || n.Kind == KindScan && n.Scan.Lookup != nil && n.Scan.Lookup.Index == index
		})
	}
	return found
}

// Walk calls f for n and all its inputs, inputs first.
func (n *Node) Walk(f func(*Node)) {
	for _, in := range n.Inputs {
		in.Walk(f)
	}
	f(n)
}
