package catalog

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// TemporaryPrefix begins the names of the schemas that hold sessions' temporary relations.
const TemporaryPrefix = "pg_temp_"

// TemporaryAlias is what a session calls its own schema of temporary relations.
const TemporaryAlias = "pg_temp"

// What becomes of a temporary table's rows, or of the table, at the end of each transaction (Object.OnCommit). Stored.
const (
	OnCommitDelete = "delete rows"
	OnCommitDrop   = "drop"
)

// IsTemporarySchema reports whether a schema holds the temporary relations of a session.
func IsTemporarySchema(name string) bool { return strings.HasPrefix(name, TemporaryPrefix) }

// AddTemporaryNamespace creates the schema of a session's temporary relations unless it is there.
func (t *Tx) AddTemporaryNamespace(name string) {
	if _, ok := t.s.spaces[name]; !ok {
		t.s.spaces[name] = Namespace{OID: uint32(t.NextID()), Name: name}
	}
}

// ErrNotTemporarySchema is the error for a temporary relation in an ordinary schema.
func ErrNotTemporarySchema(pos int) error {
	return pgerr.Newf(pgerr.InvalidTableDefinition, "cannot create temporary relation in non-temporary schema").At(pos)
}
