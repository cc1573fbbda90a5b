package op

import (
	"time"

	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/types"
)

// calendar counts the units, days or months of local time, that windows of a plan.Calendar are made of.
type calendar struct {
	spec *plan.Calendar
	zone *time.Location
	// The unit [lo, hi) that timestamps fell into lately: the next ones mostly do too.
	unit, lo, hi int64
	bounds       map[int64]int64 // begin of units, in µs since 2000-01-01
}

// epochDay is 1970-01-01 in days since 2000-01-01.
const epochDay = unixEpochMicros / microsPerDay

// maxCalendarBounds bounds the units whose begin is remembered.
const maxCalendarBounds = 1 << 12

func newCalendar(c *plan.Calendar) (*calendar, error) {
	cal := &calendar{spec: c, zone: time.UTC, bounds: map[int64]int64{}}
	if c.Zone != "" {
		var err error
		if cal.zone, err = types.ZoneByText(c.Zone); err != nil {
			return nil, err
		}
	}
	return cal, nil
}

// begin returns when a unit begins; 22008 when no timestamp does.
func (c *calendar) begin(unit int64) (int64, error) {
	if ts, ok := c.bounds[unit]; ok {
		return ts, nil
	}
	s := c.spec
	day := epochDay + unit*s.Unit
	if s.Months {
		day = types.DaysFromCivil(1970, int(1+unit*s.Unit+s.OffsetMonths), 1)
	}
	day += s.OffsetDays
	if day > maxTimestamp/microsPerDay || day < minTimestamp/microsPerDay {
		return 0, errTimestampRange
	}
	ts, err := types.LocalToTimestamptz(day*microsPerDay+s.Offset, c.zone)
	if err != nil {
		return 0, err
	}
	if len(c.bounds) >= maxCalendarBounds {
		clear(c.bounds)
	}
	c.bounds[unit] = ts
	return ts, nil
}

// find returns the unit that a timestamp falls into.
func (c *calendar) find(ts int64) (int64, error) {
	if ts >= c.lo && ts < c.hi {
		return c.unit, nil
	}
	s := c.spec
	local, err := types.TimestamptzToLocal(ts, c.zone)
	if err != nil {
		return 0, err
	}
	day := floorDiv(local-s.Offset, microsPerDay) - s.OffsetDays
	unit := floorDiv(day-epochDay, s.Unit)
	if s.Months {
		y, m, _ := types.CivilFromDays(day)
		unit = floorDiv(int64(y-1970)*12+int64(m-1)-s.OffsetMonths, s.Unit)
	}
	// Where clocks are put back or forward, or months have few days for an offset, that is one off.
	lo, err := c.begin(unit)
	for err == nil && lo > ts {
		unit--
		lo, err = c.begin(unit)
	}
	if err != nil {
		return 0, err
	}
	hi, err := c.begin(unit + 1)
	for err == nil && hi <= ts {
		unit++
		lo = hi
		hi, err = c.begin(unit + 1)
	}
	if err != nil {
		return 0, err
	}
	c.unit, c.lo, c.hi = unit, lo, hi
	return unit, nil
}

// first returns the window that begins and ends first of those that hold a row of the unit.
func (c *calendar) first(unit int64) (from, to int64) {
	n := c.spec.Count
	if c.spec.Cumulate {
		return n * floorDiv(unit, n), unit + 1
	}
	return unit - n + 1, unit + 1
}

// next returns the window that follows for a row of the unit, false after the last one.
func (c *calendar) next(unit, from, to int64) (int64, int64, bool) {
	if c.spec.Cumulate {
		return from, to + 1, to < from+c.spec.Count
	}
	return from + 1, to + 1, from < unit
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
