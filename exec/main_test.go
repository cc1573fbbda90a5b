package exec

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testPatience is how long a test waits for what should happen at once.
const testPatience = 30 * time.Second
