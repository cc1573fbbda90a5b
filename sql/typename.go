package sql

// TypeName is a type as written in SQL, with PostgreSQL's own spellings resolved as gram.y does: int is pg_catalog.int4, char(n)
// pg_catalog.bpchar, timestamp with time zone pg_catalog.timestamptz.
type TypeName struct {
	Schema, Name string
	Mods         []int  // type modifiers as written: numeric(10,2) has 10, 2; char has 1
	ArrayDims    int    // number of [] pairs
	Interval     string // field restriction of interval: "day to second"
	SetOf        bool
	Text         string // canonical text; ParseTypeName reads it back
	Pos          int
}
