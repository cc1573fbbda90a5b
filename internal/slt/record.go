package slt

type recordKind uint8

const (
	kindStatement recordKind = iota
	kindQuery
	kindFlush
	kindCheckpoint
	kindRestart
	kindLet
	kindHashThreshold
	kindAppend
	kindWait
	kindMalformed
)

type sortMode uint8

const (
	noSort sortMode = iota
	rowSort
	valueSort
)

// record is one step of a file. Loops and includes are resolved by the parser.
type record struct {
	file       string
	line       int // of the directive, from 1
	kind       recordKind
	conn       string // session; "" is the first
	sql        string
	vars       map[string]string // of the loops around it
	conditions []condition

	wantError bool
	errorWant string // SQLSTATE, regular expression or "" for any
	count     int64  // rows touched; -1 when not told
	types     string
	sort      sortMode
	label     string
	want      []string
	number    int    // hash threshold
	name      string // of let; path of append
	problem   string // of a malformed record

	// Lines of the expected rows, from 0; last is exclusive. Only of records that stand once in the file itself.
	first, last int
	rewritable  bool
}

// condition is a skipif or onlyif before a record.
type condition struct {
	only   bool
	label  string
	reason string
}
