package types

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// zoneTable maps lower-case names to loaders that read the zone on first use and keep it.
var zoneTable = func() map[string]func() (*time.Location, error) {
	m := map[string]func() (*time.Location, error){}
	for _, name := range strings.Fields(zoneNames) {
		m[strings.ToLower(name)] = sync.OnceValues(func() (*time.Location, error) { return time.LoadLocation(name) })
	}
	m["utc"] = func() (*time.Location, error) { return time.UTC, nil }
	m["etc/utc"] = sync.OnceValues(func() (*time.Location, error) { return time.LoadLocation("Etc/UTC") })
	return m
}()

// ZoneNames returns the names of the time zones, sorted.
func ZoneNames() []string { return strings.Fields(zoneNames) }

// LookupZone finds a time zone by name in any case, or by a POSIX offset such as UTC+3 or -05:30, whose sign counts west of Greenwich.
func LookupZone(name string) (*time.Location, bool) {
	if load, ok := zoneTable[strings.ToLower(name)]; ok {
		if loc, err := load(); err == nil {
			return loc, true
		}
	}
	return posixZone(name)
}

func posixZone(name string) (*time.Location, bool) {
	i := 0
	label := ""
	if strings.HasPrefix(name, "<") {
		if i = strings.IndexByte(name, '>') + 1; i == 0 {
			return nil, false
		}
		label = name[1 : i-1]
	} else {
		for i < len(name) && isAlpha(name[i]) {
			i++
		}
		label = name[:i]
	}
	off := name[i:]
	if off == "" {
		return nil, false
	}
	if off[0] != '+' && off[0] != '-' {
		off = "+" + off
	}
	parts := strings.Split(off[1:], ":")
	if len(parts) > 3 {
		return nil, false
	}
	secs, unit := 0, 3600
	for k, p := range parts {
		v, err := strconv.Atoi(p)
		if err != nil && k == len(parts)-1 {
			return daylightZone(name)
		}
		if err != nil || v < 0 || k == 0 && v > 167 || k > 0 && v > 59 {
			return nil, false
		}
		secs += v * unit
		unit /= 60
	}
	if off[0] == '+' {
		secs = -secs
	}
	if label == "" {
		label = string(appendZone(nil, secs))
	}
	return time.FixedZone(strings.ToUpper(label), secs), true
}

// daylightRule is when daylight saving time holds in a POSIX zone that does not say: that of the United States.
const daylightRule = ",M3.2.0,M11.1.0"

// daylightZone reads a POSIX zone with daylight saving time, such as EST5EDT or EST5EDT,M3.2.0,M11.1.0, by way of a zone file that
// consists of nothing but its rule.
func daylightZone(rule string) (*time.Location, bool) {
	if len(rule) > maxDateText || strings.ContainsAny(rule, "\n\x00") {
		return nil, false
	}
	name := rule
	if !strings.ContainsRune(rule, ',') {
		rule += daylightRule
	}
	const header, counts = "TZif2", "\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x01" + "\x00\x00\x00\x04"
	const body = "\x00\x00\x00\x00\x00\x00" + "LMT\x00" // one type: offset 0, no daylight saving time, name 0
	block := header + strings.Repeat("\x00", 15) + counts + body
	loc, err := time.LoadLocationFromTZData(name, []byte(block+block+"\n"+rule+"\n"))
	if err != nil {
		return nil, false
	}
	// A rule that Go cannot read leaves the only type of the file in force.
	if abbrev, _ := time.Unix(pgEpochUnix, 0).In(loc).Zone(); abbrev == "LMT" {
		return nil, false
	}
	return loc, true
}

// AbbrevOffset returns the offset of a zone abbreviation in seconds east of UTC; where it depends on the date, the zone it stands for.
func AbbrevOffset(abbrev string) (offset int, zone *time.Location, ok bool) {
	a := strings.ToLower(abbrev)
	if z, found := zoneAbbrevs[a]; found {
		return z.offset, nil, true
	}
	if name, found := dynamicAbbrevs[a]; found {
		loc, found := LookupZone(name)
		return 0, loc, found
	}
	return 0, nil, false
}

// maxAbbrevPeriods bounds how many periods of a zone abbrevOffsetAt looks through, each way.
const maxAbbrevPeriods = 500

// abbrevOffsetAt returns what abbrev meant in loc at a local time: its latest use up to then, else its first use after, else the zone's own offset.
func abbrevOffsetAt(local int64, loc *time.Location, abbrev string) int {
	own := localOffset(local, loc)
	at := time.Unix(floorDiv64(local, microsPerSecond)+pgEpochUnix-int64(own), 0).In(loc)
	t := at
	for range maxAbbrevPeriods {
		if name, off := t.Zone(); strings.EqualFold(name, abbrev) {
			return off
		}
		start, _ := t.ZoneBounds()
		if start.IsZero() {
			break
		}
		t = start.Add(-time.Second)
	}
	t = at
	for range maxAbbrevPeriods {
		if name, off := t.Zone(); strings.EqualFold(name, abbrev) {
			return off
		}
		_, end := t.ZoneBounds()
		if end.IsZero() || !end.After(t) {
			break
		}
		t = end
	}
	return own
}

// ZoneByText resolves the zone argument of AT TIME ZONE: an abbreviation, a name or a POSIX offset; 22023 when it is none.
func ZoneByText(zone string) (*time.Location, error) {
	if off, loc, ok := AbbrevOffset(zone); ok {
		if loc != nil {
			return loc, nil
		}
		return time.FixedZone(strings.ToUpper(zone), off), nil
	}
	if loc, ok := LookupZone(zone); ok {
		return loc, nil
	}
	return nil, errZone(zone)
}

func errZone(zone string) error {
	return pgerr.Newf(pgerr.InvalidParameterValue, "time zone \"%s\" not recognized", zone)
}

func isAlpha(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool { return c >= '0' && c <= '9' }
