package functions

import "github.com/streamdb/streamdb/sql/expr"

// advisoryFunctions lists the functions that take advisory locks and give them back. A lock is named by a number of 64 bits, or by two of 32.
func advisoryFunctions() []entry {
	var out []entry
	for _, shared := range [...]bool{false, true} {
		suffix := ""
		if shared {
			suffix = "_shared"
		}
		for _, args := range [...]string{"(int8)", "(int4,int4)"} {
			for _, tx := range [...]bool{false, true} {
				scope := ""
				if tx {
					scope = "xact_"
				}
				out = append(out, fn("pg_advisory_"+scope+"lock"+suffix+args, "", each(func(c *call) error {
					_, err := takeAdvisory(c, shared, tx, false)
					if err != nil {
						return err
					}
					return c.setStr("")
				})), fn("pg_try_advisory_"+scope+"lock"+suffix+args, "", each(func(c *call) error {
					ok, err := takeAdvisory(c, shared, tx, true)
					if err != nil {
						return err
					}
					return c.setBool(ok)
				})))
			}
			out = append(out, fn("pg_advisory_unlock"+suffix+args, "", each(func(c *call) error {
				s, err := session(c)
				if err != nil {
					return err
				}
				ok, err := s.AdvisoryUnlock(advisoryLock(c, shared))
				if err != nil {
					return err
				}
				return c.setBool(ok)
			})))
		}
	}
	return append(out, fn("pg_advisory_unlock_all()", "", each(func(c *call) error {
		s, err := session(c)
		if err != nil {
			return err
		}
		if err := s.AdvisoryUnlockAll(); err != nil {
			return err
		}
		return c.setStr("")
	})))
}

func advisoryLock(c *call, shared bool) expr.AdvisoryLock {
	if c.has(1) {
		return expr.AdvisoryLock{Class: uint32(c.int(0)), Object: uint32(c.int(1)), Two: true, Shared: shared}
	}
	return expr.AdvisoryLock{Class: uint32(c.int(0) >> 32), Object: uint32(c.int(0)), Shared: shared}
}

func takeAdvisory(c *call, shared, tx, try bool) (bool, error) {
	s, err := session(c)
	if err != nil {
		return false, err
	}
	return s.AdvisoryLock(advisoryLock(c, shared), tx, try)
}
