package functions

import (
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
)

// sequenceFunctions lists the functions of sequences. Their effects do not belong to the transaction.
func sequenceFunctions() []entry {
	with := func(name string, f func(c *call, s expr.Sequences) error) expr.Kernel {
		return each(func(c *call) error {
			s := env(c.f).Sequences
			if s == nil {
				return pgerr.Newf(pgerr.FeatureNotSupported, "%s cannot be used in a materialized view", name)
			}
			return f(c, s)
		})
	}
	got := func(c *call, v int64, err error) error {
		if err != nil {
			return err
		}
		return c.setInt(v)
	}
	set := func(called func(c *call) bool) expr.Kernel {
		return with("setval", func(c *call, s expr.Sequences) error {
			return got(c, c.int(1), s.Set(uint32(c.int(0)), c.int(1), called(c)))
		})
	}
	return []entry{
		fn("nextval(regclass)", "", with("nextval", func(c *call, s expr.Sequences) error {
			v, err := s.Next(uint32(c.int(0)))
			return got(c, v, err)
		})),
		fn("currval(regclass)", "", with("currval", func(c *call, s expr.Sequences) error {
			v, err := s.Current(uint32(c.int(0)))
			return got(c, v, err)
		})),
		fn("lastval()", "", with("lastval", func(c *call, s expr.Sequences) error {
			v, err := s.Last()
			return got(c, v, err)
		})),
		fn("setval(regclass,int8)", "", set(func(*call) bool { return true })),
		fn("setval(regclass,int8,bool)", "", set(func(c *call) bool { return c.bool(2) })),
		fn("pg_sequence_last_value(regclass)", "", with("pg_sequence_last_value", func(c *call, s expr.Sequences) error {
			v, ok, err := s.Newest(uint32(c.int(0)))
			if err == nil && !ok {
				c.setNull()
			}
			return got(c, v, err)
		})),
		fn("pg_get_serial_sequence(text,text)", "", each(func(c *call) error {
			cat := env(c.f).Catalog
			if cat == nil {
				c.setNull()
				return nil
			}
			name, ok, err := cat.SerialSequence(c.str(0), c.str(1), env(c.f).Schemas)
			if !ok {
				c.setNull()
			}
			if err != nil {
				return err
			}
			return c.setStr(name)
		})),
	}
}
