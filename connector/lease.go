package connector

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// Identity is as whom a database writes to targets.
type Identity struct {
	// Line names the lives of the database, oldest first: one for each start, also those of the database that it was restored from. The last one is this server.
	Line   []string
	Holder string // this server, for messages
}

func (i *Identity) self() string {
	if len(i.Line) == 0 {
		return ""
	}
	return i.Line[len(i.Line)-1]
}

// Lease is what the target of a sink knows of it: who writes there, and how far it has. It is changed in the step that makes rows visible, or before it: of several
// servers that take themselves for the same sink one writes, and the others learn of it.
type Lease struct {
	Owner  string    `json:"owner"` // the life that writes; "": it is not known
	Token  string    `json:"token"` // random, of the moment at which Owner began: who is to take over all the same says it
	Holder string    `json:"holder"`
	Since  time.Time `json:"since"`
	// Epoch is the last one of which there are rows, of exactly-once sinks; 0: none.
	Epoch uint64 `json:"epoch"`
}

// ErrSinkTaken is matched by the errors of a sink whose target is another server's: it stops until somebody says what is to be.
var ErrSinkTaken = errors.New("the target of the sink is another server's")

// takenError is a report that matches ErrSinkTaken.
type takenError struct{ report *pgerr.Error }

func (e takenError) Unwrap() []error { return []error{ErrSinkTaken, e.report} }

func (e takenError) Error() string { return e.report.Message }

// unknownToken is said to take over from an owner that is not known.
const unknownToken = "unknown"

func (l *Lease) token() string { return cmp.Or(l.Token, unknownToken) }

func (l *Lease) holder() string {
	if l.Holder == "" {
		return "an older version"
	}
	return l.Holder + " (since " + l.Since.UTC().Format("2006-01-02 15:04:05 MST") + ")"
}

// TakeOver returns what the target is to know of a sink that goes on from epoch (0: it begins), when it knows was (nil: nothing). An error that matches ErrSinkTaken
// says why the sink must not write: somebody else does, or has written what this database does not know of.
func (c *SinkConfig) TakeOver(was *Lease, epoch uint64) (*Lease, error) {
	self := c.Writer.self()
	now := &Lease{Owner: self, Token: newToken(), Holder: c.Writer.Holder, Since: time.Now().UTC().Truncate(time.Second)}
	if was == nil {
		return now, nil
	}
	written := was.Epoch > 0 || !c.ExactlyOnce
	switch {
	case was.token() == c.Options[OptionTakeOver]:
	case !c.earlier(was) && written:
		return nil, c.taken(was)
	case c.ExactlyOnce && was.Epoch > epoch:
		return nil, c.stopped("its target has rows up to epoch %d of %s, this database goes on from epoch %d, and what is between would be written twice", was.Epoch, was.holder(), epoch)("Restore from a snapshot that was made when the other server had stopped, or DROP the sink and CREATE it anew. To write on all the same: ALTER SINK … SET (%s = '%s').", OptionTakeOver, was.token())
	}
	if was.Owner == self && self != "" {
		now.Token, now.Since = was.Token, was.Since
	}
	now.Epoch = min(was.Epoch, epoch)
	return now, nil
}

// CheckTakeOver refuses an option to take over that does not name the moment at which the present owner of the target (nil: there is none) began.
func (c *SinkConfig) CheckTakeOver(now *Lease) error {
	token, given := c.Options[OptionTakeOver]
	refused := func(format string, args ...any) *pgerr.Error {
		return pgerr.Newf(pgerr.InvalidParameterValue, "invalid value for option %q: %q", OptionTakeOver, token).WithDetail(format, args...)
	}
	switch {
	case !given || now == nil && token == unknownToken || now != nil && token == now.token():
		return nil
	case now == nil:
		return refused("The target of sink %q belongs to no server.", c.Name).WithHint("To write there: ALTER SINK … SET (%s = '%s').", OptionTakeOver, unknownToken)
	case now.Owner == c.Writer.self():
		return refused("The target of sink %q belongs to this server, %s.", c.Name, now.holder()).WithHint("There is nothing to take over.")
	}
	return refused("The target of sink %q belongs to %s.", c.Name, now.holder()).WithHint("To write there, and stop the sink of that server: ALTER SINK … SET (%s = '%s').", OptionTakeOver, now.token())
}

// earlier reports that this database goes on from what wrote last.
func (c *SinkConfig) earlier(was *Lease) bool {
	return was.Owner == "" || slices.Contains(c.Writer.Line, was.Owner)
}

// Holds returns an error that matches ErrSinkTaken unless this server is the one that may write, as the target knows it (nil: it knows nothing).
func (c *SinkConfig) Holds(now *Lease) error {
	switch {
	case now == nil:
		return c.stopped("its target does not know it any more")("The sink was dropped by a server that had taken it over, or its entry in the target was removed. DROP the sink and CREATE it anew, or to go on here: ALTER SINK … SET (%s = '%s').", OptionTakeOver, unknownToken)
	case now.Owner != c.Writer.self():
		return c.taken(now)
	}
	return nil
}

// MayForget reports that what the target knows may be removed when the sink is dropped.
func (c *SinkConfig) MayForget(now *Lease) bool { return now != nil && c.earlier(now) }

// stopped makes the error, of which the hint is still to be said.
func (c *SinkConfig) stopped(why string, args ...any) func(hint string, args ...any) error {
	e := pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "sink %q has stopped: "+why, append([]any{c.Name}, args...)...)
	return func(hint string, args ...any) error { return takenError{e.WithHint(hint, args...)} }
}

func (c *SinkConfig) taken(by *Lease) error {
	return c.stopped("its target belongs to %s", by.holder())("That server goes on with this sink. DROP the sink here. To write here and stop it there: ALTER SINK … SET (%s = '%s').", OptionTakeOver, by.token())
}

func newToken() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
