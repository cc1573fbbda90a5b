package types_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/types"
)

// TestFloatTextBetweenNeighbours shows numbers whose shortest text would lie exactly between them and a neighbour, and some near such; the texts are PostgreSQL's.
func TestFloatTextBetweenNeighbours(t *testing.T) {
	for _, c := range []struct {
		v     float64
		width int
		want  string
	}{
		{51704672, 32, "5.1704672e+07"},
		{-51704672, 32, "-5.1704672e+07"},
		{858865000, 32, "8.58865e+08"},
		{999859968, 32, "9.9985997e+08"},
		{16777216, 32, "1.6777216e+07"},
		{1e23, 64, "9.999999999999999e+22"},
		{-1e23, 64, "-9.999999999999999e+22"},
		{4e23, 64, "3.9999999999999997e+23"},
		{100486566685704192, 64, "1.0048656668570419e+17"},
		{9007199254740992, 64, "9.007199254740992e+15"},
		{math.Pow(2, 89), 64, "6.189700196426902e+26"},
	} {
		require.Equal(t, c.want, string(types.AppendFloat(nil, nil, c.v, c.width)))
	}
}
