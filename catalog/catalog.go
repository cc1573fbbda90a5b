// Package catalog holds the database's objects and what depends on what. Readers work on immutable snapshots; changes are made one at a
// time by Update, which persists the new content before anyone sees it. The whole content is small and travels with every checkpoint, so a
// bucket alone restores the database.
package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// Kind is the kind of a relation. Stored.
type Kind string

// The kinds.
const (
	Table            Kind = "table"
	Source           Kind = "source"
	View             Kind = "view"
	MaterializedView Kind = "materialized view"
	Index            Kind = "index"
	Sink             Kind = "sink"
	Sequence         Kind = "sequence"
)

// Column of a relation. Hidden columns are stored but not part of `*`.
type Column struct {
	Name      string     `json:"name"`
	Type      types.Type `json:"type"`
	NotNull   bool       `json:"not_null,omitempty"`
	Hidden    bool       `json:"hidden,omitempty"`
	Default   string     `json:"default,omitempty"`   // expression text
	Generated string     `json:"generated,omitempty"` // expression text of a stored generated column
	Comment   string     `json:"comment,omitempty"`
	Identity  string     `json:"identity,omitempty"` // "always", "by default"
	Sequence  uint64     `json:"sequence,omitempty"` // of an identity or serial column: the sequence that it owns
	Dropped   bool       `json:"dropped,omitempty"`  // stays among the stored columns, has no name any more
	// Missing is the value of rows that are older than the column, in text form; nil means NULL.
	Missing *string `json:"missing,omitempty"`
	ACL     []ACL   `json:"acl,omitempty"`
}

// Layout says where the columns of a table lie in its stored rows once ALTER TABLE has changed them: see types.RowLayout.
type Layout struct {
	Base  int          `json:"base"`
	Slots []types.Slot `json:"slots"`
}

// Check is a CHECK constraint.
type Check struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// NotValid: rows older than the constraint were not checked.
	NotValid bool   `json:"not_valid,omitempty"`
	Comment  string `json:"comment,omitempty"`
}

// SourceDef is what CREATE SOURCE says beyond columns.
type SourceDef struct {
	Connector       string            `json:"connector"`
	Options         map[string]string `json:"options,omitempty"`
	Format          string            `json:"format,omitempty"`
	Encode          string            `json:"encode,omitempty"`
	EncodeOptions   map[string]string `json:"encode_options,omitempty"`
	WatermarkColumn string            `json:"watermark_column,omitempty"`
	WatermarkExpr   string            `json:"watermark_expr,omitempty"`
}

// SinkDef is what CREATE SINK says beyond its query.
type SinkDef struct {
	// ID is the sink's own among those of all servers: it names transactions in the target.
	ID            string            `json:"id"`
	Options       map[string]string `json:"options,omitempty"`
	Format        string            `json:"format,omitempty"`
	Encode        string            `json:"encode,omitempty"`
	EncodeOptions map[string]string `json:"encode_options,omitempty"`
	From          uint64            `json:"from,omitempty"` // the relation that it was made from, 0: a query
	Key           []int             `json:"key,omitempty"`
	Mode          string            `json:"mode"`
	ExactlyOnce   bool              `json:"exactly_once,omitempty"`
	ChangesOnly   bool              `json:"changes_only,omitempty"` // what the relation held when it was made is left out
}

// Object is a relation. It is immutable once in a snapshot.
type Object struct {
	ID         uint64            `json:"id"` // also its OID; never reused
	Kind       Kind              `json:"kind"`
	Schema     string            `json:"schema"`
	Name       string            `json:"name"`
	Columns    []Column          `json:"columns"`
	Key        []int             `json:"key,omitempty"`        // stored columns
	Constraint string            `json:"constraint,omitempty"` // name of the primary key, "" when the key is hidden
	Checks     []Check           `json:"checks,omitempty"`
	Layout     *Layout           `json:"layout,omitempty"`      // of stored rows; nil: those of the columns in their order
	Query      string            `json:"query,omitempty"`       // views: the defining query
	SearchPath []string          `json:"search_path,omitempty"` // in force when it was created
	Source     *SourceDef        `json:"source,omitempty"`
	Sink       *SinkDef          `json:"sink,omitempty"`
	Plan       json.RawMessage   `json:"plan,omitempty"` // of a job; never derived again
	Settings   map[string]string `json:"settings,omitempty"`
	Options    []string          `json:"options,omitempty"` // names of the settings that a statement gave: pg_class.reloptions
	DependsOn  []uint64          `json:"depends_on,omitempty"`
	AppendOnly bool              `json:"append_only,omitempty"`
	// EmitOnClose of a view: its query ends with EMIT ON WINDOW CLOSE, which is no part of Query.
	EmitOnClose bool   `json:"emit_on_close,omitempty"`
	Paused      bool   `json:"paused,omitempty"`   // by PAUSE, until RESUME
	Stopped     bool   `json:"stopped,omitempty"`  // the same with a savepoint
	Job         uint64 `json:"job,omitempty"`      // of a view whose query was replaced: the id of its job, 0 = the view's own
	Creating    bool   `json:"creating,omitempty"` // a view that has not caught up: dropped at restart unless it runs in the background
	Comment     string `json:"comment,omitempty"`
	// ConstraintComment is about the constraint that an index holds, or a table's primary key; KeyComment about that key's index.
	ConstraintComment string `json:"constraint_comment,omitempty"`
	KeyComment        string `json:"key_comment,omitempty"`
	// Terms counts what came to be asked of a table's rows since it was made.
	Terms uint64 `json:"terms,omitempty"`
	// Rewrites counts how often all rows of a table, or the query of a view, were replaced.
	Rewrites  uint64       `json:"rewrites,omitempty"`
	Index     *IndexDef    `json:"index,omitempty"`
	Sequence  *SequenceDef `json:"sequence,omitempty"`
	Temporary bool         `json:"temporary,omitempty"` // ends with the session that made it, and with the server
	OnCommit  string       `json:"on_commit,omitempty"` // of a temporary table
	Owner     uint32       `json:"owner,omitempty"`     // a role, 0 = the bootstrap superuser
	ACL       []ACL        `json:"acl,omitempty"`       // nil = the owner's default
}

// Column returns the position of a column by name, -1 when there is none.
func (o *Object) Column(name string) int {
	for i := range o.Columns {
		if o.Columns[i].Name == name {
			return i
		}
	}
	return -1
}

// HasQuery reports whether the object is made of a query.
func (o *Object) HasQuery() bool {
	return o.Kind == View || o.Kind == MaterializedView || o.Kind == Sink
}

// JobID is the id of the job that keeps the relation up to date. Jobs are younger than those of what they read.
func (o *Object) JobID() uint64 {
	if o.Job != 0 {
		return o.Job
	}
	return o.ID
}

// Stored returns the schema of all stored columns.
func (o *Object) Stored() types.Schema {
	s := make(types.Schema, len(o.Columns))
	for i, c := range o.Columns {
		s[i] = types.Column{Name: c.Name, Type: c.Type}
	}
	return s
}

// Namespace is a schema.
type Namespace struct {
	OID     uint32 `json:"oid"`
	Name    string `json:"name"`
	Owner   uint32 `json:"owner,omitempty"`
	ACL     []ACL  `json:"acl,omitempty"`
	Comment string `json:"comment,omitempty"`
}

// Snapshot is an immutable state of the catalog.
type Snapshot struct {
	Version uint64
	objects map[uint64]*Object
	names   map[string]*Object // schema + "\x00" + name
	spaces  map[string]Namespace
	// Enums, functions and roles by OID; defaults are what ALTER DEFAULT PRIVILEGES said.
	enums     map[uint32]*Enum
	functions map[uint32]*Function
	roles     map[uint32]*Role
	changed   map[uint32]bool // predefined roles that are not as they come
	defaults  []DefaultACL
	database  Database
	nextID    uint64
}

// Well-known namespaces and where users' ids begin.
const (
	PublicOID     uint32 = 2200
	PgCatalogOID  uint32 = 11
	InfoSchemaOID uint32 = 13000
	StreamdbOID   uint32 = 13001
	firstUserID   uint64 = 16384
	DefaultSchema        = "public"
	SystemSchema         = "streamdb"
	FormatVersion        = 1
)

// IsUserID reports whether id is that of an object that users made; smaller ones belong to the system.
func IsUserID(id uint64) bool { return id >= firstUserID }

// Get returns an object by id.
func (s *Snapshot) Get(id uint64) (*Object, bool) {
	o, ok := s.objects[id]
	return o, ok
}

// Lookup returns the object called name in schema.
func (s *Snapshot) Lookup(schema, name string) (*Object, bool) {
	o, ok := s.names[schema+"\x00"+name]
	return o, ok
}

// Resolve looks a possibly unqualified name up along path.
func (s *Snapshot) Resolve(schema, name string, path []string) (*Object, bool) {
	if schema != "" {
		return s.Lookup(schema, name)
	}
	for _, p := range path {
		if o, ok := s.Lookup(p, name); ok {
			return o, true
		}
	}
	return nil, false
}

// Objects lists all relations by id.
func (s *Snapshot) Objects() []*Object {
	out := make([]*Object, 0, len(s.objects))
	for _, o := range s.objects {
		out = append(out, o)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out
}

// Namespaces lists all schemas by name.
func (s *Snapshot) Namespaces() []Namespace {
	out := make([]Namespace, 0, len(s.spaces))
	for _, n := range s.spaces {
		out = append(out, n)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// Namespace returns a schema by name.
func (s *Snapshot) Namespace(name string) (Namespace, bool) {
	n, ok := s.spaces[name]
	return n, ok
}

// Dependents lists what depends on id, directly or not, those that depend on others of the list last first: the order to drop them in.
func (s *Snapshot) Dependents(id uint64) []*Object {
	var out []*Object
	seen := map[uint64]bool{id: true}
	var visit func(uint64)
	visit = func(id uint64) {
		for _, o := range s.Objects() {
			if seen[o.ID] {
				continue
			}
			for _, d := range o.DependsOn {
				if d == id {
					seen[o.ID] = true
					visit(o.ID)
					out = append(out, o)
					break
				}
			}
		}
	}
	visit(id)
	return out
}

// Catalog is the changing catalog.
type Catalog struct {
	mu      sync.Mutex
	cur     atomic.Pointer[Snapshot]
	persist func([]byte) error
	nextID  atomic.Uint64 // shared by all that is in the making, so that no id is given out twice
}

// New returns a catalog with the content of data (as Snapshot.Marshal made it), or an empty one. persist is called with the new content
// before a change becomes visible; its error undoes the change.
func New(data []byte, persist func([]byte) error) (*Catalog, error) {
	s := &Snapshot{
		objects: map[uint64]*Object{}, names: map[string]*Object{}, spaces: map[string]Namespace{}, nextID: firstUserID,
		enums: map[uint32]*Enum{}, functions: map[uint32]*Function{}, roles: predefined(),
	}
	for _, n := range []Namespace{
		{OID: PublicOID, Name: DefaultSchema}, {OID: PgCatalogOID, Name: "pg_catalog"}, {OID: InfoSchemaOID, Name: "information_schema"}, {OID: StreamdbOID, Name: SystemSchema},
	} {
		s.spaces[n.Name] = n
	}
	if len(data) > 0 {
		if err := s.unmarshal(data); err != nil {
			return nil, err
		}
	}
	c := &Catalog{persist: persist}
	c.cur.Store(s)
	c.nextID.Store(s.nextID)
	return c, nil
}

// Snapshot returns the current state.
func (c *Catalog) Snapshot() *Snapshot { return c.cur.Load() }

// Update applies f to a copy, persists it and makes it current. One change at a time; f must not call Update.
func (c *Catalog) Update(f func(*Tx) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	tx := &Tx{s: c.cur.Load().clone(), c: c}
	if err := f(tx); err != nil {
		return err
	}
	tx.s.Version++
	tx.s.nextID = c.nextID.Load()
	if c.persist != nil {
		data, err := tx.s.Marshal()
		if err != nil {
			return fmt.Errorf("encode catalog: %w", err)
		}
		if err := c.persist(data); err != nil {
			return fmt.Errorf("store catalog: %w", err)
		}
	}
	c.cur.Store(tx.s)
	return nil
}

func (s *Snapshot) clone() *Snapshot {
	return &Snapshot{
		Version: s.Version, nextID: s.nextID, objects: maps.Clone(s.objects), names: maps.Clone(s.names), spaces: maps.Clone(s.spaces),
		enums: maps.Clone(s.enums), functions: maps.Clone(s.functions), roles: maps.Clone(s.roles), defaults: slices.Clone(s.defaults),
		changed: s.changed, database: s.database,
	}
}

// Tx is a change in the making.
type Tx struct {
	s *Snapshot
	c *Catalog
	// creator owns what is added, 0 = the bootstrap superuser.
	creator uint32
}

// SetCreator says who owns what is added from now on.
func (t *Tx) SetCreator(role uint32) { t.creator = role }

// Snapshot returns the state as changed so far.
func (t *Tx) Snapshot() *Snapshot { return t.s }

// NextID takes a new object id. Ids are never used again, also after the object is gone.
func (t *Tx) NextID() uint64 {
	return t.c.nextID.Add(1) - 1
}

// Add puts a new object in.
func (t *Tx) Add(o *Object) error {
	if o.Owner == 0 {
		o.Owner = t.creator
	}
	if x := o.Securable(); o.ACL == nil {
		o.ACL = t.s.NewACL(x.Class, o.Owner, o.Schema)
	}
	if _, ok := t.s.spaces[o.Schema]; !ok {
		return pgerr.Newf(pgerr.InvalidSchemaName, "schema %q does not exist", o.Schema)
	}
	if o.Schema == "pg_catalog" || o.Schema == "information_schema" || o.Schema == SystemSchema {
		return pgerr.Newf(pgerr.InsufficientPrivilege, "permission denied to create \"%s.%s\"", o.Schema, o.Name).
			WithDetail("System catalog modifications are currently disallowed.")
	}
	key := o.Schema + "\x00" + o.Name
	if _, ok := t.s.names[key]; ok {
		return pgerr.Newf(pgerr.DuplicateTable, "relation %q already exists", o.Name)
	}
	if _, ok := t.s.LookupEnum(o.Schema, o.Name); ok && o.hasRowType() {
		return pgerr.Newf(pgerr.DuplicateObject, "type %q already exists", o.Name).
			WithHint("A relation has an associated type of the same name, so you must use a name that doesn't conflict with any existing type.")
	}
	t.dependOnTypes(o)
	t.s.objects[o.ID], t.s.names[key] = o, o
	return nil
}

// Replace puts a changed copy of an object in the place of the old one.
func (t *Tx) Replace(o *Object) error {
	old, ok := t.s.objects[o.ID]
	if !ok {
		return pgerr.Newf(pgerr.UndefinedTable, "relation %q does not exist", o.Name)
	}
	key := o.Schema + "\x00" + o.Name
	if other, ok := t.s.names[key]; ok && other.ID != o.ID {
		return pgerr.Newf(pgerr.DuplicateTable, "relation %q already exists", o.Name)
	}
	t.dependOnTypes(o)
	delete(t.s.names, old.Schema+"\x00"+old.Name)
	t.s.objects[o.ID], t.s.names[key] = o, o
	return nil
}

// Remove takes an object out.
func (t *Tx) Remove(id uint64) {
	if o, ok := t.s.objects[id]; ok {
		delete(t.s.objects, id)
		delete(t.s.names, o.Schema+"\x00"+o.Name)
	}
}

// AddNamespace creates a schema.
func (t *Tx) AddNamespace(name string) error {
	if strings.HasPrefix(name, "pg_") {
		return pgerr.Newf(pgerr.ReservedName, "unacceptable schema name %q", name).WithDetail("The prefix \"pg_\" is reserved for system schemas.")
	}
	if _, ok := t.s.spaces[name]; ok {
		return pgerr.Newf(pgerr.DuplicateSchema, "schema %q already exists", name)
	}
	t.s.spaces[name] = Namespace{OID: uint32(t.NextID()), Name: name, Owner: t.creator, ACL: t.s.NewACL(ClassSchema, t.creator, "")}
	return nil
}

// RenameNamespace gives a schema and all in it another name.
func (t *Tx) RenameNamespace(from, to string) error {
	if strings.HasPrefix(to, "pg_") {
		return pgerr.Newf(pgerr.ReservedName, "unacceptable schema name %q", to).WithDetail("The prefix \"pg_\" is reserved for system schemas.")
	}
	if _, ok := t.s.spaces[to]; ok {
		return pgerr.Newf(pgerr.DuplicateSchema, "schema %q already exists", to)
	}
	n := t.s.spaces[from]
	n.Name = to
	delete(t.s.spaces, from)
	t.s.spaces[to] = n
	for _, o := range t.s.Objects() {
		path := o.SearchPath
		if i := slices.Index(path, from); i >= 0 {
			path = slices.Clone(path)
			path[i] = to
		} else if o.Schema != from {
			continue
		}
		c := *o
		c.SearchPath = path
		if c.Schema == from {
			c.Schema = to
		}
		if err := t.Replace(&c); err != nil {
			return err
		}
	}
	for _, e := range t.s.Enums() {
		if e.Schema == from {
			c := *e
			c.Schema = to
			t.s.enums[c.OID] = &c
		}
	}
	for _, f := range t.s.Functions() {
		if f.Schema == from {
			c := *f
			c.Schema = to
			t.s.functions[c.OID] = &c
		}
	}
	return nil
}

// RemoveNamespace drops a schema.
func (t *Tx) RemoveNamespace(name string) { delete(t.s.spaces, name) }

type stored struct {
	Format     int          `json:"format"`
	Version    uint64       `json:"version"`
	NextID     uint64       `json:"next_id"`
	Namespaces []Namespace  `json:"namespaces"`
	Objects    []*Object    `json:"objects"`
	Enums      []*Enum      `json:"enums,omitempty"`
	Functions  []*Function  `json:"functions,omitempty"`
	Roles      []*Role      `json:"roles,omitempty"`
	Defaults   []DefaultACL `json:"default_acls,omitempty"`
	Database   *Database    `json:"database,omitempty"`
}

// Marshal encodes the snapshot; the container adds the checksum.
func (s *Snapshot) Marshal() ([]byte, error) {
	st := stored{
		Format: FormatVersion, Version: s.Version, NextID: s.nextID, Objects: s.Objects(), Enums: s.Enums(), Functions: s.Functions(), Roles: s.storedRoles(),
		Defaults: s.defaults,
	}
	if d := s.database; d.Owner != 0 || d.ACL != nil || d.ConnLimit != nil || d.Comment != "" || d.Config != nil || d.RoleConfig != nil {
		st.Database = &d
	}
	for _, n := range s.Namespaces() {
		if n.OID >= uint32(firstUserID) || n.Owner != 0 || n.ACL != nil || n.Comment != "" {
			st.Namespaces = append(st.Namespaces, n)
		}
	}
	return json.Marshal(st)
}

func (s *Snapshot) unmarshal(data []byte) error {
	var st stored
	if err := json.Unmarshal(data, &st); err != nil {
		return pgerr.Wrap(pgerr.DataCorrupted, err, "catalog is malformed")
	}
	if st.Format > FormatVersion {
		return pgerr.Newf(pgerr.FeatureNotSupported, "catalog has format %d, this version of streamdb knows %d", st.Format, FormatVersion).
			WithHint("Use the version that wrote it, or a newer one.")
	}
	s.Version, s.nextID = st.Version, st.NextID
	for _, n := range st.Namespaces {
		s.spaces[n.Name] = n
	}
	for _, o := range st.Objects {
		s.objects[o.ID] = o
		s.names[o.Schema+"\x00"+o.Name] = o
	}
	for _, e := range st.Enums {
		s.enums[e.OID] = e
	}
	for _, f := range st.Functions {
		s.functions[f.OID] = f
	}
	for _, r := range st.Roles {
		s.roles[r.OID] = r
		if IsPredefined(r.OID) {
			if s.changed == nil {
				s.changed = map[uint32]bool{}
			}
			s.changed[r.OID] = true
		}
	}
	if st.Database != nil {
		s.database = *st.Database
	}
	s.defaults = st.Defaults
	return nil
}
