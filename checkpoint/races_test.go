package checkpoint

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// races are what may come together badly, what becomes of it, and the test that brings it about ("file:function" or "file:function/case").
var races = []struct{ race, result, test string }{
	{"an acknowledgement after the timeout", "the state is let go, nothing rises again", "checkpoint/failure_test.go:TestRaces/ack after timeout"},
	{"an acknowledgement twice, or of an earlier attempt", "known for what it is", "checkpoint/failure_test.go:TestRaces/duplicate and unknown acks"},
	{"the last acknowledgement and the timeout in one tick", "one of them wins", "checkpoint/failure_test.go:TestRaces/last ack and timeout in the same tick"},
	{"a decline and the last acknowledgement", "what is being published is not given up", "checkpoint/failure_test.go:TestRaces/decline and last ack"},
	{"an abort before its barrier", "the barrier closes its epoch and no more", "checkpoint/barrier/handler_test.go:TestHandler/a cancelled checkpoint's barrier closes its epoch"},
	{"an abort while a state is written", "the writing ends, and the next checkpoint has it all", "exec/barrier_test.go:TestAbortedWhileItIsWritten"},
	{"the timeout while files are uploaded", "the upload ends, and the next checkpoint uses what is there", "checkpoint/giveup_test.go:TestTimeoutEndsWhatIsUnderWay"},
	{"the timeout while HEAD is changed", "what becomes of it is waited for, and decides", "checkpoint/giveup_test.go:TestHEADIsNotGivenUp"},
	{"an abort after the acknowledgement", "the local copy goes", "checkpoint/core_sim_test.go:TestCoreAtRandom"},
	{"a barrier before the older one is complete", "the newer one ends the wait", "checkpoint/barrier/handler_test.go:TestHandler/a newer barrier ends the wait for an older one"},
	{"a newer checkpoint completes first", "the older one is subsumed, unless others go on from it", "checkpoint/trigger_test.go:TestSubsumption"},
	{"others go on from the older one", "it is stored first, and held for them", "checkpoint/trigger_test.go:TestStatesThatReadersNeedAreStored"},
	{"a newer state of its reader waits for others", "the older one is stored with what it goes on from", "checkpoint/trigger_test.go:TestStatesThatReadersNeedAreStoredBeforeNewerOnesThatAreGrouped"},
	{"a publication fails that was to bring the catalog", "no state is stored without it", "checkpoint/coordinator_test.go:TestStatesAndCatalogGoTogether/the rest of a checkpoint after a failure"},
	{"a slow job answers after others have brought a newer catalog", "the newer one stays", "checkpoint/coordinator_test.go:TestStatesAndCatalogGoTogether/an older one comes later"},
	{"a cancel marker, then the barrier", "its channel goes on", "checkpoint/barrier/handler_test.go:TestHandler/cancelled while channels wait"},
	{"a notification for a run that has ended", "the new run ignores it; its sinks have committed at the restore", "checkpoint/simulation_test.go:TestSimulation"},
	{"a notification is lost", "the next one stands for all before", "checkpoint/sim_scenario_test.go:TestNotificationsAreLost"},
	{"a savepoint beside checkpoints that complete", "it is not subsumed, and is never the latest", "checkpoint/savepoint_core_test.go:TestSavepointBesideCheckpoints"},
	{"the switch to unaligned when the last barrier comes", "one cut", "checkpoint/barrier/handler_test.go:TestHandler/switched to when the last aligned barrier is there already"},
	{"a trigger while a job starts again", "left out, not counted as a failure", "checkpoint/failure_test.go:TestRaces/trigger during a failover"},
	{"cleaning while a restore reads", "what is read stays", "checkpoint/sim_scenario_test.go:TestRestoreWhileCleaning"},
	{"the leader changes with a commit on its way", "the compare-and-set decides, the answer is read back", "checkpoint/sim_scenario_test.go:TestStoppedLeaderIsFenced"},
	{"a restart with a checkpoint in flight", "given up; the restart is from the last completed one", "checkpoint/coordinator_test.go:TestRestartGivesUpWhatIsInFlight"},
	{"the clock of the wall jumps", "timers do not ask it", "checkpoint/failure_test.go:TestRaces/the clock of the wall is not asked"},
}

// Every race has its test.
func TestRacesHaveTests(t *testing.T) {
	name := regexp.MustCompile(`^([\w/]+_test\.go):(Test\w+)(?:/(.*))?$`)
	for _, r := range races {
		at := name.FindStringSubmatch(r.test)
		require.NotNil(t, at, r.race)
		src, err := os.ReadFile(filepath.Join("..", at[1]))
		require.NoError(t, err, r.race)
		require.Contains(t, string(src), "func "+at[2]+"(", r.race)
		require.Contains(t, string(src), at[3], r.race)
	}
}
