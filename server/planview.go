package server

import (
	"fmt"
	"slices"
	"sync"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// snapshotView is the catalog state that a statement is planned with.
type snapshotView = *catalog.Snapshot

// planCatalog shows a catalog snapshot to the planner: names along the search path, system relations, parsed view texts.
type planCatalog struct {
	srv  *Server
	snap *catalog.Snapshot
	path []string

	mu    sync.Mutex
	cache map[uint64]*planner.Relation
}

func (s *Server) planCatalog(snap *catalog.Snapshot, path []string) *planCatalog {
	return &planCatalog{srv: s, snap: snap, path: path, cache: map[uint64]*planner.Relation{}}
}

// SchemaExists implements planner.Catalog.
func (c *planCatalog) SchemaExists(name string) bool {
	_, ok := c.snap.Namespace(name)
	return ok
}

// Type implements planner.Catalog.
func (c *planCatalog) Type(schema, name string) (types.OID, bool) {
	if e, ok := c.snap.ResolveEnum(schema, name, c.path); ok {
		return types.OID(e.OID), true
	}
	return c.snap.ResolveEnumArray(schema, name, c.path)
}

// TypeName implements planner.Catalog.
func (c *planCatalog) TypeName(oid types.OID) (string, bool) {
	return c.snap.EnumName(uint32(oid), c.path)
}

// EnumValues implements planner.Catalog.
func (c *planCatalog) EnumValues(oid types.OID) []string {
	if e, ok := c.snap.Enum(uint32(oid)); ok {
		return e.Values()
	}
	return nil
}

// Relation implements planner.Catalog.
func (c *planCatalog) Relation(schema, name string) (*planner.Relation, bool) {
	if schema == "" {
		// pg_catalog comes first unless the path names it.
		if r, ok := c.system("pg_catalog", name); ok {
			return r, true
		}
		for _, p := range c.path {
			if r, ok := c.in(p, name); ok {
				return r, true
			}
		}
		return nil, false
	}
	return c.in(schema, name)
}

func (c *planCatalog) in(schema, name string) (*planner.Relation, bool) {
	if i := slices.IndexFunc(c.path, catalog.IsTemporarySchema); i >= 0 && schema == catalog.TemporaryAlias {
		schema = c.path[i]
	}
	if r, ok := c.system(schema, name); ok {
		return r, true
	}
	o, ok := c.snap.Lookup(schema, name)
	if !ok {
		return nil, false
	}
	return c.relation(o)
}

func (c *planCatalog) byID(id uint64) (*planner.Relation, bool) {
	if o, ok := c.snap.Get(id); ok {
		return c.relation(o)
	}
	return nil, false
}

func (c *planCatalog) system(schema, name string) (*planner.Relation, bool) {
	sys, ok := lookupSystem(schema, name)
	if !ok {
		return nil, false
	}
	r := &planner.Relation{
		ID: uint64(sys.OID), OID: sys.OID, Schema: schema, Name: name, Kind: planner.System, Virtual: schema + "." + name,
	}
	for i, col := range sys.Columns {
		rc := planner.RelColumn{Name: col.Name, Type: col.Type, NotNull: col.NotNull, Hidden: col.Hidden}
		if !col.Hidden {
			rc.Attr = int16(i + 1)
		}
		r.Columns = append(r.Columns, rc)
	}
	return r, true
}

func (c *planCatalog) relation(o *catalog.Object) (*planner.Relation, bool) {
	if o.Kind == catalog.Sink { // it cannot be read
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.cache[o.ID]; ok {
		return r, true
	}
	r := &planner.Relation{ID: o.ID, OID: uint32(o.ID), Schema: o.Schema, Name: o.Name, Key: o.Key, AppendOnly: o.AppendOnly, SearchPath: o.SearchPath, OnConflict: o.Settings[optionOnConflict]}
	attr := int16(0)
	for _, col := range o.Columns {
		if !col.Hidden || col.Dropped {
			attr++
		}
		rc := planner.RelColumn{Name: col.Name, Type: col.Type, NotNull: col.NotNull, Hidden: col.Hidden}
		rc.Default, rc.Generated, rc.Identity = c.expression(col.Default), c.expression(col.Generated), col.Identity
		if col.Sequence != 0 {
			rc.Default = c.expression(fmt.Sprintf("nextval('%d'::regclass)", col.Sequence))
		}
		if !col.Hidden {
			rc.Attr = attr
		}
		r.Columns = append(r.Columns, rc)
	}
	switch o.Kind {
	case catalog.Table:
		r.Kind, r.Constraint, r.Ordered = planner.Table, o.Constraint, true
		r.Indexes = c.indexes(o)
	case catalog.Index:
		r.Kind = planner.Index
	case catalog.MaterializedView:
		r.Kind = planner.MaterializedView
		r.Indexes = c.indexes(o)
	case catalog.Sequence:
		r.Kind, r.Virtual = planner.System, fmt.Sprint(sequenceRelation, o.ID)
	case catalog.View:
		r.Kind = planner.View
		if stmts, err := sql.Parse(o.Query); err == nil && len(stmts) == 1 {
			r.Query, _ = stmts[0].(*sql.Query)
		}
		if r.Query == nil {
			return nil, false
		}
	case catalog.Source:
		r.Kind = planner.Source
		d := o.Source
		r.Source = &plan.Source{
			Name: o.Name, Connector: d.Connector, Options: d.Options, Format: d.Format, Encode: d.Encode, EncodeOptions: d.EncodeOptions,
		}
		c.tellSource(o, r)
		if d.WatermarkColumn != "" {
			r.Watermark = &planner.RelWatermark{Column: o.Column(d.WatermarkColumn), Expr: c.expression(d.WatermarkExpr)}
		}
	}
	if rel, ok := c.srv.engine.Relation(o.ID); ok {
		r.Rows = rel.Rows()
	}
	c.cache[o.ID] = r
	return r, true
}

// tellSource sets what a source's connector knows of its rows: a key, and how many there are.
func (c *planCatalog) tellSource(o *catalog.Object, r *planner.Relation) {
	cn, err := c.srv.cfg.Connectors.Lookup(o.Source.Connector)
	if err != nil {
		return
	}
	cfg := &connector.SourceConfig{Name: o.Name, Options: o.Source.Options}
	if sized, ok := cn.(connector.Sized); ok {
		r.Rows = sized.Rows(cfg)
	}
	if keyed, ok := cn.(connector.Keyed); ok {
		name := keyed.Key(cfg)
		for i, col := range o.Columns {
			if col.Name == name {
				r.Key = []int{i}
			}
		}
	}
}

// indexes lists the indexes of a relation that are complete.
func (c *planCatalog) indexes(o *catalog.Object) []planner.RelIndex {
	var out []planner.RelIndex
	for _, x := range c.snap.IndexesOf(o.ID) {
		if x.Creating {
			continue
		}
		out = append(out, c.index(x))
	}
	return out
}

func (c *planCatalog) index(x *catalog.Object) planner.RelIndex {
	ri := planner.RelIndex{
		ID: x.ID, Name: x.Name, Unique: x.Index.Unique, NullsNotDistinct: x.Index.NullsNotDistinct, Constraint: x.Index.Constraint, Primary: x.Index.Primary,
		Where: c.expression(x.Index.Where), SearchPath: x.SearchPath,
	}
	for _, k := range x.Index.Keys {
		ri.Keys = append(ri.Keys, planner.RelIndexKey{Column: k.Column, Expr: c.expression(k.Expr), Desc: k.Desc, NullsFirst: k.NullsFirst})
	}
	return ri
}

func (c *planCatalog) expression(text string) *sql.Query {
	if text == "" {
		return nil
	}
	q, err := parseExpression(text)
	if err != nil { // it was parsed when the object was made
		c.srv.log.Error().Err(err).Str("expression", text).Msg("stored expression does not parse")
		return nil
	}
	return q
}

// catalogInfo answers the catalogue functions of expressions.
func (s *Server) catalogInfo() expr.CatalogInfo {
	return &catalog.Info{Snap: s.catalog.Snapshot(), Database: databaseName, Size: s.relationSize}
}

func (s *Server) relationSize(id uint64) int64 {
	if j, ok := s.engine.Job(id); ok {
		return exec.StateBytes(j.Metrics())
	}
	if r, ok := s.engine.Relation(id); ok {
		return r.Bytes()
	}
	if o, ok := s.catalog.Snapshot().Get(id); ok && o.Index != nil {
		if r, ok := s.engine.Relation(o.Index.Table); ok {
			return r.IndexBytes(id)
		}
	}
	return 0
}
