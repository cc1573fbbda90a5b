package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDateStyles(t *testing.T) {
	s := open(t).connect()
	s.must("SET timezone = 'Europe/Paris'")
	const all = "SELECT '2003-02-01'::date, '2003-02-01 04:05:06.5'::timestamp, '2003-02-01 04:05:06+00'::timestamptz, '0044-03-15 BC'::date"
	for style, want := range map[string]string{
		"ISO, DMY":      "2003-02-01|2003-02-01 04:05:06.5|2003-02-01 05:05:06+01|0044-03-15 BC",
		"SQL, DMY":      "01/02/2003|01/02/2003 04:05:06.5|01/02/2003 05:05:06 CET|15/03/0044 BC",
		"SQL, MDY":      "02/01/2003|02/01/2003 04:05:06.5|02/01/2003 05:05:06 CET|03/15/0044 BC",
		"Postgres, DMY": "01-02-2003|Sat 01 Feb 04:05:06.5 2003|Sat 01 Feb 05:05:06 2003 CET|15-03-0044 BC",
		"Postgres, MDY": "02-01-2003|Sat Feb 01 04:05:06.5 2003|Sat Feb 01 05:05:06 2003 CET|03-15-0044 BC",
		"German, DMY":   "01.02.2003|01.02.2003 04:05:06.5|01.02.2003 05:05:06 CET|15.03.0044 BC",
	} {
		s.must("SET datestyle = '" + style + "'")
		require.Equal(t, style, s.row("SHOW datestyle"))
		require.Equal(t, want, s.row(all), style)
		require.Equal(t, `"2003-02-01"|"2003-02-01T04:05:06"`, s.row("SELECT to_json('2003-02-01'::date), to_json('2003-02-01 04:05:06'::timestamp)"), style)
	}
	s.must("SET datestyle = 'ISO, DMY'")
	require.Equal(t, "2003-02-01|2003-02-13|{2003-02-01}", s.row("SELECT '01/02/2003'::date, '13/02/2003'::date, '{01.02.2003}'::date[]"))
	s.fails("SELECT '02/13/2003'::date", "22008", `date/time field value out of range: "02/13/2003"`)
	s.must("SET datestyle = 'YMD'")
	require.Equal(t, "ISO, YMD|2003-02-01", s.row("SELECT current_setting('datestyle'), '03-02-01'::date"))
	s.must("SET datestyle = 'European'")
	require.Equal(t, "ISO, DMY", s.row("SHOW datestyle"))
	s.fails("SET datestyle = 'ISO, SQL'", "22023", "")
	s.fails("SET datestyle = 'foo'", "22023", "")
}

func TestTimeZonesOfPOSIX(t *testing.T) {
	s := open(t).connect()
	for zone, want := range map[string]string{
		"'FOO3BAR'":                        "FOO3BAR|2003-07-01 10:00:00-02|2003-01-01 10:00:00-03",
		"'EST5EDT4,M4.1.0,M10.5.0'":        "EST5EDT4,M4.1.0,M10.5.0|2003-07-01 10:00:00-04|2003-01-01 10:00:00-05",
		"'<+05>-5'":                        "<+05>-5|2003-07-01 10:00:00+05|2003-01-01 10:00:00+05",
		"-7":                               "<-07>+07|2003-07-01 10:00:00-07|2003-01-01 10:00:00-07",
		"5.5":                              "<+05:30>-05:30|2003-07-01 10:00:00+05:30|2003-01-01 10:00:00+05:30",
		"'UTC+3'":                          "UTC+3|2003-07-01 10:00:00-03|2003-01-01 10:00:00-03",
		"INTERVAL '-08:00' HOUR TO MINUTE": "<-08>+08|2003-07-01 10:00:00-08|2003-01-01 10:00:00-08",
	} {
		s.must("SET TIME ZONE " + zone)
		require.Equal(t, want, s.row("SELECT current_setting('timezone'), '2003-07-01 10:00'::timestamptz, '2003-01-01 10:00'::timestamptz"), zone)
	}
	s.fails("SET timezone = 'nope'", "22023", `invalid value for parameter "TimeZone": "nope"`)
	s.fails("SET timezone = 'AAA4BBB,nonsense'", "22023", "")
}
