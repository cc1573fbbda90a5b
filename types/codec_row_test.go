package types

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVarints reads numbers of all lengths, whatever follows them.
func TestVarints(t *testing.T) {
	for bits := range 65 {
		for range 100 {
			v := rand.Uint64() >> (64 - bits) //nolint:gosec // a test
			b := binary.AppendUvarint(nil, v)
			for _, rest := range []string{"", "\x00", "\x80\xff\x7f", "\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\x00\x80\x00\x80\x00\x80\x00\x80"} {
				r := decoder{s: string(b) + rest}
				require.Equal(t, v, r.uvarint())
				require.Equal(t, rest, r.s)
				require.False(t, r.bad)
			}
			r := decoder{s: string(b[:len(b)-1])}
			require.Zero(t, r.uvarint())
			require.True(t, r.bad)
		}
	}
}
