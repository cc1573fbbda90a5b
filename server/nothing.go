package server

import "github.com/streamdb/streamdb/sql"

// nothing answers a statement that has nothing to do here. The relations that it names must exist.
func (d *dispatch) nothing(tag string, tables []sql.Name) error {
	for _, n := range tables {
		if _, ok := d.ss.resolve(n); ok {
			continue
		}
		if _, ok := lookupSystem(n.Schema, n.Name); !ok {
			return atNowhere(undefinedRelation(n))
		}
	}
	return d.complete(tag)
}
