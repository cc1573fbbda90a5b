package exec

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/checkpoint"
)

// A snapshot that waited for a history which takes something back at a later epoch would hold up the job on its way to that epoch.
func TestCheckpointDoesNotWaitForAHistoryThatIsWholeLater(t *testing.T) {
	d := openDB(t, testOptions{})
	d.table("t", "id int PRIMARY KEY")
	rel := d.rel("t")
	for _, meets := range []uint64{0, 20} { // 0: it is not known yet which epoch that is
		h := &history{engine: d.engine, rel: rel, layout: rel.Layout(), state: historyBack, meets: meets, life: t.Context()}
		began := time.Now()
		require.ErrorIs(t, h.reach(10), checkpoint.ErrNotRunning)
		require.Less(t, time.Since(began), historyPatience)
	}
}
