package server

import (
	"slices"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/types"
)

// lastError is the place of jobs.last_error.
const lastError = 4

// mine leaves out what is not the session's to see of the rows of a system relation. The rows that could not be processed, and the messages
// about them, hold data: they are for the owner of the view and for who may read all data. Where sources are read is also for who may watch
// everything.
func (ss *session) mine(relation string, rows [][]types.Datum) [][]types.Datum {
	snap, role := ss.snapshot(), ss.role()
	if snap.IsSuper(role) {
		return rows
	}
	has := func(of uint32) bool { return snap.HasPrivilegesOf(role, of) }
	owns := func(row []types.Datum) bool {
		o, ok := snap.Get(uint64(row[0].Int))
		return ok && has(o.Owner)
	}
	switch relation {
	case "errors", "late_rows", "hot_keys":
		if !has(catalog.RoleReadAllData) {
			rows = slices.DeleteFunc(rows, func(row []types.Datum) bool { return !owns(row) })
		}
	case "subscriptions":
		if !has(catalog.RoleReadAllStats) {
			rows = slices.DeleteFunc(rows, func(row []types.Datum) bool { return int32(row[0].Int) != ss.params.ProcessID })
		}
	case "sources":
		if !has(catalog.RoleReadAllStats) {
			rows = slices.DeleteFunc(rows, func(row []types.Datum) bool { return !owns(row) })
		}
	case "jobs":
		if !has(catalog.RoleReadAllData) {
			for _, row := range rows {
				if !owns(row) && !row[lastError].Null {
					row[lastError] = text("<insufficient privilege>")
				}
			}
		}
	}
	return rows
}
