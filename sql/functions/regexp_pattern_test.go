package functions

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/pgerr"
)

func TestBacktrackingIsBounded(t *testing.T) {
	p, err := compileRegexp(`^(\w*)*\1=$`, "")
	require.NoError(t, err)
	begin := time.Now()
	_, err = p.match(strings.Repeat("a", 60))
	require.Equal(t, pgerr.ProgramLimitExceeded, pgerr.From(err).Code)
	require.Less(t, time.Since(begin), 20*maxMatchTime)
	// The time is that of one value: the next one is not refused.
	found, err := p.match("aa=")
	require.NoError(t, err)
	require.True(t, found)
}

func TestLinearPatternsStayLinear(t *testing.T) {
	p, err := compileRegexp(`(\w*)*=`, "")
	require.NoError(t, err)
	require.False(t, p.backtracks(strings.Repeat("ä", 60), 0))
	p, err = compileRegexp(`^(\w*)*=$`, "")
	require.NoError(t, err)
	require.False(t, p.backtracks(strings.Repeat("ä", 60), 0), "from the start of the text")
}

func TestLongestOfTheLeftmost(t *testing.T) {
	for pattern, want := range map[string]string{`a|ab|abc`: "abc", `(?:a|ab|abc)(?=.|$)`: "abc", `(a?)(ab)?(?!x)`: "ab", `(?:a|ab)*?(?=b)`: ""} {
		p, err := compileRegexp(pattern, "")
		require.NoError(t, err)
		s := "abcd"
		if strings.Contains(want, "ab") && len(want) == 2 {
			s = "ab"
		}
		m, err := p.find(s)
		require.NoError(t, err)
		require.NotNil(t, m, pattern)
		if want != "" {
			require.Equal(t, want, s[m[0]:m[1]], pattern)
		}
	}
}
