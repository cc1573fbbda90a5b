package op_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/exec/op"
	"github.com/streamdb/streamdb/exec/op/optest"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

func TestCumulatingWindows(t *testing.T) {
	const minute = 60 * 1000 * 1000
	in := input([]int{0}, schema("id", types.Int4, "ts", types.Timestamp))
	node := windowNode(in, &plan.Window{Column: 1, Size: 6 * minute, Step: 2 * minute})
	node.Key = []int{0, 3}
	runCase(t, optest.Spec{
		Node: node, Route: [][]int{{0}},
		Epochs: []optest.Epoch{
			{
				In: []string{"+ 1 '1969-12-31 23:57:00'\n+ 2 NULL\n+ 3 '1970-01-01 00:04:00'"},
				Want: "+ 1 '1969-12-31 23:57:00' '1969-12-31 23:54:00' '1969-12-31 23:58:00'\n+ 1 '1969-12-31 23:57:00' '1969-12-31 23:54:00' '1970-01-01 00:00:00'\n" +
					"+ 3 '1970-01-01 00:04:00' '1970-01-01 00:00:00' '1970-01-01 00:06:00'",
			},
			{
				In: []string{"- 1 '1969-12-31 23:57:00'\n+ 1 '1970-01-01 00:00:00'"},
				Want: "+ 1 '1970-01-01 00:00:00' '1970-01-01 00:00:00' '1970-01-01 00:02:00'\n+ 1 '1970-01-01 00:00:00' '1970-01-01 00:00:00' '1970-01-01 00:04:00'\n" +
					"+ 1 '1970-01-01 00:00:00' '1970-01-01 00:00:00' '1970-01-01 00:06:00'\n+ 3 '1970-01-01 00:04:00' '1970-01-01 00:00:00' '1970-01-01 00:06:00'",
			},
		},
	})
}

// TestPartsOfWindows: rows are in range when the windows are that theirs are parts of.
func TestPartsOfWindows(t *testing.T) {
	const minute = 60 * 1000 * 1000
	in := input([]int{0}, schema("id", types.Int4, "ts", types.Timestamp))
	runCase(t, optest.Spec{
		Node: windowNode(in, &plan.Window{Column: 1, Size: minute, Reach: 60 * minute}), Route: [][]int{{0}},
		Epochs: []optest.Epoch{
			{In: []string{"+ 1 '1970-01-01 00:00:30'\n+ 2 NULL"}, Want: "+ 1 '1970-01-01 00:00:30' '1970-01-01 00:00:00' '1970-01-01 00:01:00'"},
			{In: []string{"- 1 '1970-01-01 00:00:30'\n+ 3 '294276-12-31 22:50:00'"}, Want: "+ 3 '294276-12-31 22:50:00' '294276-12-31 22:50:00' '294276-12-31 22:51:00'"},
			{In: []string{"+ 4 '294276-12-31 23:30:00'"}, Errors: "22008"},
		},
	})
}

// TestCalendarWindows compares windows of days and months with those found by going through a calendar of the standard library.
func TestCalendarWindows(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	day := func(y, m, d int) time.Time { return time.Date(y, time.Month(m), d, 0, 0, 0, 0, berlin) }
	utc := func(y, m, d int) time.Time { return time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC) }
	for _, c := range []struct {
		name string
		cal  plan.Calendar
		at   []time.Time
		want [][2]time.Time // windows of all of at
	}{
		{
			"days around the hour that is skipped",
			plan.Calendar{Zone: "Europe/Berlin", Unit: 1, Count: 1},
			[]time.Time{day(2024, 3, 31), day(2024, 4, 1).Add(-time.Microsecond)},
			[][2]time.Time{{day(2024, 3, 31), day(2024, 4, 1)}},
		},
		{
			"days around the hour that comes twice",
			plan.Calendar{Zone: "Europe/Berlin", Unit: 1, Count: 1},
			[]time.Time{day(2024, 10, 27), day(2024, 10, 28).Add(-time.Microsecond)},
			[][2]time.Time{{day(2024, 10, 27), day(2024, 10, 28)}},
		},
		{
			"sliding days",
			plan.Calendar{Zone: "Europe/Berlin", Unit: 1, Count: 3},
			[]time.Time{day(2024, 3, 31)},
			[][2]time.Time{{day(2024, 3, 29), day(2024, 4, 1)}, {day(2024, 3, 30), day(2024, 4, 2)}, {day(2024, 3, 31), day(2024, 4, 3)}},
		},
		{
			"business days",
			plan.Calendar{Zone: "Europe/Berlin", Unit: 1, Count: 1, Offset: 6 * 3600 * 1e6},
			[]time.Time{time.Date(2024, 3, 31, 5, 59, 59, 0, berlin), time.Date(2024, 3, 30, 6, 0, 0, 0, berlin)},
			[][2]time.Time{{time.Date(2024, 3, 30, 6, 0, 0, 0, berlin), time.Date(2024, 3, 31, 6, 0, 0, 0, berlin)}},
		},
		{"months", plan.Calendar{Months: true, Unit: 1, Count: 1}, []time.Time{utc(2024, 2, 1), utc(2024, 3, 1).Add(-time.Microsecond)}, [][2]time.Time{{utc(2024, 2, 1), utc(2024, 3, 1)}}},
		{"months before 1970", plan.Calendar{Months: true, Unit: 1, Count: 1}, []time.Time{utc(1969, 12, 31), utc(1969, 12, 1)}, [][2]time.Time{{utc(1969, 12, 1), utc(1970, 1, 1)}}},
		{"fiscal years", plan.Calendar{Months: true, Unit: 12, Count: 1, OffsetMonths: 3}, []time.Time{utc(2024, 3, 31), utc(2023, 4, 1)}, [][2]time.Time{{utc(2023, 4, 1), utc(2024, 4, 1)}}},
		{
			"growing quarters",
			plan.Calendar{Zone: "Europe/Berlin", Months: true, Unit: 1, Count: 3, Cumulate: true},
			[]time.Time{day(2024, 2, 10)},
			[][2]time.Time{{day(2024, 1, 1), day(2024, 3, 1)}, {day(2024, 1, 1), day(2024, 4, 1)}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := input([]int{0}, schema("id", types.Int4, "ts", types.Timestamptz))
			node := windowNode(in, &plan.Window{Column: 1, Calendar: &c.cal})
			node.Schema[2].Type, node.Schema[3].Type = types.Timestamptz, types.Timestamptz
			if node.Key = []int{0, 2}; c.cal.Cumulate {
				node.Key = []int{0, 3}
			}
			text := func(x time.Time) string { return "'" + x.UTC().Format("2006-01-02 15:04:05.999999") + "+00'" }
			var rows, want []string
			for _, at := range c.at {
				id := string(rune('0' + len(rows)))
				rows = append(rows, "+ "+id+" "+text(at))
				for _, w := range c.want {
					want = append(want, "+ "+id+" "+text(at)+" "+text(w[0])+" "+text(w[1]))
				}
			}
			runCase(t, optest.Spec{
				Node: node, Route: [][]int{{0}},
				Epochs: []optest.Epoch{
					{In: []string{strings.Join(rows, "\n")}, Want: strings.Join(want, "\n")},
					{In: []string{"- " + rows[0][2:]}},
					{In: []string{"+ 9 infinity\n+ 8 NULL"}, Errors: "22008"},
				},
			})
			// A watermark promises the windows of its own moment.
			h := optest.NewHost(t, functions.Builtins())
			out := &capture{}
			require.NoError(t, h.Open(node).Watermark(0, op.Watermark{Column: 1, Value: types.TimestampFromTime(c.at[0])}, out))
			require.Equal(t, []op.Watermark{
				{Column: 1, Value: types.TimestampFromTime(c.at[0])},
				{Column: 2, Value: types.TimestampFromTime(c.want[0][0])},
				{Column: 3, Value: types.TimestampFromTime(c.want[0][1])},
			}, out.marks)
		})
	}
}
