package connector

import (
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// CheckInt returns a check for integers in [lo, hi].
func CheckInt(lo, hi int64) func(string) error {
	return func(s string) error {
		v, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
		if err != nil {
			return pgerr.Newf(pgerr.InvalidParameterValue, "\"%s\" is not an integer", s)
		}
		if v < lo || v > hi {
			return pgerr.Newf(pgerr.InvalidParameterValue, "%d is outside %d … %d", v, lo, hi)
		}
		return nil
	}
}

// CheckBool accepts what PostgreSQL reads as a boolean.
func CheckBool(s string) error {
	_, err := types.ParseBool(s)
	return err
}

// CheckOneOf returns a check for one of the given words, in any case.
func CheckOneOf(words ...string) func(string) error {
	return func(s string) error {
		for _, w := range words {
			if strings.EqualFold(w, s) {
				return nil
			}
		}
		return pgerr.NotOneOf(words)
	}
}

// CheckTimestamp accepts a timestamp without time zone.
func CheckTimestamp(s string) error {
	_, err := types.ParseTimestamp(nil, s)
	return err
}

// Values reads options with their defaults. The first error is kept; readers after it return zero values.
type Values struct {
	Options map[string]string
	Err     error
}

// Int reads an integer option; its aliases are tried in order.
func (v *Values) Int(def int64, names ...string) int64 {
	for _, n := range names {
		s, ok := v.Options[n]
		if !ok {
			continue
		}
		i, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
		if err != nil && v.Err == nil {
			v.Err = pgerr.Newf(pgerr.InvalidParameterValue, "invalid value for option \"%s\": \"%s\" is not an integer", n, s)
		}
		return i
	}
	return def
}

// Bool reads a boolean option.
func (v *Values) Bool(def bool, name string) bool {
	s, ok := v.Options[name]
	if !ok {
		return def
	}
	b, err := types.ParseBool(s)
	if err != nil && v.Err == nil {
		v.Err = pgerr.Wrap(pgerr.InvalidParameterValue, err, "invalid value for option \"%s\"", name)
	}
	return b
}

// Timestamp reads a timestamp option.
func (v *Values) Timestamp(def, name string) int64 {
	s, ok := v.Options[name]
	if !ok {
		s = def
	}
	ts, err := types.ParseTimestamp(nil, s)
	if err != nil && v.Err == nil {
		v.Err = pgerr.Wrap(pgerr.InvalidParameterValue, err, "invalid value for option \"%s\"", name)
	}
	return ts
}

// String reads a text option.
func (v *Values) String(def, name string) string {
	if s, ok := v.Options[name]; ok {
		return s
	}
	return def
}
