package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/storage/object"
)

// Holder names this process in HEAD.
func Holder() string {
	return fmt.Sprintf("%s/%d", hostname(), os.Getpid())
}

func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}

// Process tells the process with a number from any other that had or will have it on a machine of the same name; "" where the system does not tell.
func Process(pid int) string {
	started, _ := processStarted(pid)
	return started
}

// processStarted returns when a process was started, in a form that is good for comparisons only, and whether it runs. It is "" where the system does not tell.
func processStarted(pid int) (started string, runs bool) {
	if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return "", false
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", !errors.Is(err, os.ErrNotExist)
	}
	const state, start = 0, 19 // of the fields after the name, which is in parentheses and may have any characters
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(f) <= start {
		return "", true
	}
	if f[state] == "Z" || f[state] == "X" { // it has ended, and nobody has asked how
		return "", false
	}
	return strings.TrimSpace(string(boot)) + "/" + f[start], true
}

// Owner is where the process that has claimed a store is.
type Owner struct {
	Host string // "": it names no process
	PID  int
	// Elsewhere: that is another machine. Here: it is another process on this one, and one of its number runs. Sure: that is no later one which has got the number.
	Elsewhere, Here, Sure bool
}

// Owner looks for the process that has claimed the store.
func (c Claimed) Owner() Owner {
	host, process, ok := strings.Cut(c.Holder, "/")
	pid, err := strconv.Atoi(process)
	if !ok || err != nil {
		return Owner{}
	}
	o := Owner{Host: host, PID: pid, Elsewhere: host != hostname()}
	if o.Elsewhere || pid == os.Getpid() {
		return o
	}
	started, runs := processStarted(pid)
	if !runs || c.Process != "" && started != "" && started != c.Process {
		return o
	}
	o.Here, o.Sure = true, c.Process != "" && started == c.Process
	return o
}

// Look reads who has claimed a store that a server is to keep its checkpoints in, and refuses one that cannot be that. Nothing is written.
func Look(ctx context.Context, store object.Store) (Claimed, error) {
	c, err := PeekClaim(ctx, store)
	if err != nil || c.Term > 0 {
		return c, err
	}
	switch _, err := store.Head(ctx, savepointKey); {
	case err == nil:
		return c, pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "%s is a savepoint: a server cannot keep its checkpoints in it", store).
			WithHint("To start a new database from it, set %s to it, and give another --checkpoint-dir.", SettingRecoveryPath)
	case !errors.Is(err, object.ErrNotFound):
		return c, err
	}
	if err := noneWithoutHead(ctx, store); err != nil {
		if now, again := PeekClaim(ctx, store); again != nil || now.Term > 0 { // another server has begun meanwhile
			return now, again
		}
		return c, err
	}
	return c, nil
}
