package slt

import (
	"fmt"
	"strings"
)

// viewTiming tells when the view of a query is created.
type viewTiming uint8

const (
	noViews    viewTiming = iota
	viewsEarly            // as soon as its relations exist
	viewsLate             // where the query stands
)

// Mode is one way to run a file.
type Mode struct {
	Name        string
	views       viewTiming
	restarts    bool
	parallelism int
	chunkRows   int
}

// Modes of parallel runs: chunks as they are usual, and of one row.
const (
	parallelSubtasks  = 3
	parallelChunkRows = 1024
)

// Modes returns all modes.
func Modes() []Mode {
	return []Mode{
		{Name: "batch", parallelism: 1},
		{Name: "view-first", views: viewsEarly, parallelism: 1},
		{Name: "data-first", views: viewsLate, parallelism: 1},
		{Name: "restart", views: viewsEarly, restarts: true, parallelism: 2},
		{Name: "parallel", views: viewsEarly, parallelism: parallelSubtasks, chunkRows: parallelChunkRows},
		{Name: "parallel-chunk1", views: viewsEarly, parallelism: parallelSubtasks, chunkRows: 1},
	}
}

// ParseModes reads a list of names separated by commas. "parallel" means both of its modes, "all" all modes.
func ParseModes(list string) ([]Mode, error) {
	var out []Mode
	for _, name := range strings.Split(list, ",") {
		name = strings.TrimSpace(name)
		found := false
		for _, m := range Modes() {
			if m.matches(name) || name == "all" {
				out, found = append(out, m), true
			}
		}
		if !found {
			return nil, fmt.Errorf("unknown mode %q: known are batch, view-first, data-first, restart, parallel, all", name)
		}
	}
	return out, nil
}

// matches tells whether a label of skipif, onlyif or --mode means the mode.
func (m Mode) matches(label string) bool {
	return label == m.Name || label == "parallel" && strings.HasPrefix(m.Name, "parallel")
}
