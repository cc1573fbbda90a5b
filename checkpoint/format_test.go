package checkpoint

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/checkpointrows"
)

// TestHalfAManifestIsNone: a manifest that was cut at any byte, or in which any byte is another one, is not taken for one.
func TestHalfAManifestIsNone(t *testing.T) {
	checkpointrows.Shows(t, 76)
	m := &Manifest{ID: 7, Seq: 3, Epoch: 9, Jobs: map[uint64]*JobState{
		5: {Job: 5, Name: "v", Checkpoint: 7, Epoch: 9, Parallelism: 2, refs: &stateRefs{positions: map[string]ref{"1/0": {Inline: []byte{1, 2, 3}, Size: 3, CRC: castagnoli([]byte{1, 2, 3})}}, since: 7}},
	}}
	data, err := sealDoc("manifest", manifestFormat, docOf(m, 1))
	require.NoError(t, err)
	read := func(b []byte) error { return openDoc("manifest", manifestFormat, "here", b, &manifestDoc{}) }
	require.NoError(t, read(data))
	for n := range data {
		require.Error(t, read(data[:n]), "cut at byte %d of %d", n, len(data))
	}
	for n := range data {
		changed := append([]byte(nil), data...)
		changed[n] ^= 0x01
		require.Error(t, read(changed), "byte %d is another one", n)
	}
	require.Error(t, read(append(data, ' ')))
}
