package functions

import (
	"math"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
)

// sessionFunctions lists functions that act on sessions.
func sessionFunctions() []entry {
	port := func(get func(expr.SessionActions) (int32, bool)) expr.Kernel {
		return each(func(c *call) error {
			if s := env(c.f).Session; s != nil {
				if p, ok := get(s); ok {
					return c.setInt(int64(p))
				}
			}
			c.setNull()
			return nil
		})
	}
	since := func(get func(expr.SessionActions) int64) expr.Kernel {
		return each(func(c *call) error {
			s, err := session(c)
			if err != nil {
				return err
			}
			return c.setInt(get(s))
		})
	}
	signal := func(terminate bool) expr.Kernel {
		return each(func(c *call) error {
			s, err := session(c)
			if err != nil {
				return err
			}
			ok, err := s.Signal(int32(c.int(0)), terminate)
			if err != nil {
				return err
			}
			return c.setBool(ok)
		})
	}
	return []entry{
		fn("set_config(text,text,bool)", "", each(setConfig)),
		fn("pg_sleep(float8)", "", each(func(c *call) error { return sleep(c, c.float(0)*float64(time.Second)) })),
		fn("pg_sleep_for(interval)", "", each(func(c *call) error {
			iv := c.ivl(0)
			days := float64(iv.Months)*daysPerMonth + float64(iv.Days)
			return sleep(c, (float64(iv.Micros)+days*24*3600*1e6)*float64(time.Microsecond))
		})),
		fn("pg_sleep_until(timestamptz)", "", each(func(c *call) error {
			return sleep(c, float64(c.int(0)-clock())*float64(time.Microsecond))
		})),
		fn("pg_cancel_backend(int4)", "", signal(false)), fn("pg_terminate_backend(int4,int8)", "", signal(true)),
		fn("pg_notify(text,text)", "", each(func(c *call) error {
			s, err := session(c)
			if err != nil {
				return err
			}
			channel, payload := "", ""
			if !c.null(0) {
				channel = c.str(0)
			}
			if !c.null(1) {
				payload = c.str(1)
			}
			if err := s.Notify(channel, payload); err != nil {
				return err
			}
			return c.setStr("")
		})),
		fn("pg_notification_queue_usage()", "", each(func(c *call) error { return c.setFloat(0) })),
		{id: "inet_client_port()", sig: "int4 f f s", doc: "Port of the client, NULL within the process", impl: impl{kernel: port(expr.SessionActions.ClientPort)}},
		{id: "inet_server_port()", sig: "int4 f f s", doc: "Port of the server, NULL within the process", impl: impl{kernel: port(expr.SessionActions.ServerPort)}},
		fn("pg_reload_conf()", "", each(func(c *call) error {
			s, err := session(c)
			if err != nil {
				return err
			}
			if err := s.Reload(); err != nil {
				return err
			}
			return c.setBool(true)
		})),
		fn("pg_postmaster_start_time()", "", since(expr.SessionActions.Started)),
		fn("pg_conf_load_time()", "", since(expr.SessionActions.Configured)),
	}
}

// daysPerMonth is the length of a month where none is named.
const daysPerMonth = 30

// session returns the session that calls a function.
func session(c *call) (expr.SessionActions, error) {
	if s := env(c.f).Session; s != nil {
		return s, nil
	}
	return nil, pgerr.Newf(pgerr.FeatureNotSupported, "the function needs a session").WithHint("Call it in a query.")
}

func setConfig(c *call) error {
	if c.null(0) {
		return pgerr.Newf(pgerr.NullValueNotAllowed, "SET requires parameter name")
	}
	s, err := session(c)
	if err != nil {
		return err
	}
	value := ""
	if !c.null(1) {
		value = c.str(1)
	}
	v, err := s.SetConfig(c.str(0), value, !c.null(2) && c.bool(2))
	if err != nil {
		return err
	}
	return c.setStr(v)
}

func sleep(c *call, d float64) error {
	s, err := session(c)
	if err != nil {
		return err
	}
	if !(d > 0) {
		return c.setStr("")
	}
	if err := s.Sleep(time.Duration(min(d, math.MaxInt64/2))); err != nil {
		return err
	}
	return c.setStr("")
}
