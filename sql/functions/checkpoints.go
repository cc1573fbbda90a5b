package functions

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
)

// The values that stand for what a call leaves out.
const (
	defaultTarget = "default" // the setting execution.checkpointing.savepoint-dir
	allRelations  = "*"
)

// checkpointFunctions lists the functions of the schema streamdb that make checkpoints and savepoints.
func checkpointFunctions() []entry {
	text := func(c *call, i int, def string) string {
		if i < len(c.args) && !c.null(i) {
			return c.str(i)
		}
		return def
	}
	request := func(c *call, target, format int) (expr.Savepoint, error) {
		r := expr.Savepoint{Target: text(c, target, defaultTarget)}
		if r.Target == defaultTarget {
			r.Target = ""
		}
		switch f := text(c, format, "native"); strings.ToLower(f) {
		case "native":
		case "canonical":
			r.Canonical = true
		default:
			return r, pgerr.Newf(pgerr.InvalidParameterValue, "unknown format of a savepoint: %q", f).WithHint("Use native or canonical.")
		}
		return r, nil
	}
	return []entry{
		{
			id: "streamdb.checkpoint(text,text)", sig: "int8 f f v d2", names: "relation=" + allRelations + ",type=configured",
			doc: "make a checkpoint of the database, or of a relation and what it reads; its id",
			impl: impl{kernel: each(func(c *call) error {
				s, err := session(c)
				if err != nil {
					return err
				}
				relation := text(c, 0, allRelations)
				if relation == allRelations {
					relation = ""
				}
				id, err := s.Checkpoint(relation, text(c, 1, "configured"))
				if err != nil {
					return err
				}
				return c.setInt(id)
			})},
		},
		{
			id: "streamdb.savepoint(text,text,text)", sig: "text f f v d3", names: "target=" + defaultTarget + ",relation=" + allRelations + ",format=native",
			doc: "make a savepoint of the database, or of a relation and what it reads; its path",
			impl: impl{kernel: each(func(c *call) error {
				s, err := session(c)
				if err != nil {
					return err
				}
				r, err := request(c, 0, 2)
				if err != nil {
					return err
				}
				if r.Relation = text(c, 1, allRelations); r.Relation == allRelations {
					r.Relation = ""
				}
				path, err := s.Savepoint(r)
				if err != nil {
					return err
				}
				return c.setStr(path)
			})},
		},
		{
			id: "streamdb.stop_with_savepoint(text,text,bool,text)", sig: "text f f v d3", names: "relation,target=" + defaultTarget + ",drain=false,format=native",
			doc: "stop a view, with a savepoint; its path",
			impl: impl{kernel: each(func(c *call) error {
				s, err := session(c)
				if err != nil {
					return err
				}
				r, err := request(c, 1, 3)
				if err != nil {
					return err
				}
				if c.null(0) {
					c.setNull()
					return nil
				}
				r.Relation, r.Stop, r.Drain = c.str(0), true, len(c.args) > 2 && !c.null(2) && c.bool(2)
				path, err := s.Savepoint(r)
				if err != nil {
					return err
				}
				return c.setStr(path)
			})},
		},
		{
			id: "streamdb.dispose_savepoint(text)", sig: "bool f t v -", names: "path", doc: "remove a savepoint",
			impl: impl{kernel: each(func(c *call) error {
				s, err := session(c)
				if err != nil {
					return err
				}
				if err := s.DisposeSavepoint(c.str(0)); err != nil {
					return err
				}
				return c.setBool(true)
			})},
		},
	}
}
