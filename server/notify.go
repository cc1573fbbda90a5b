package server

import (
	"sync"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/sql"
)

const (
	// maxPendingNotifications bounds the messages that wait for one session. One that takes none for so long is ended: what it would miss it
	// could not know of.
	maxPendingNotifications = 100_000
	// maxTxNotifications bounds the messages of one transaction.
	maxTxNotifications = 100_000
	// maxChannelBytes and maxPayloadBytes are PostgreSQL's limits.
	maxChannelBytes = 63
	maxPayloadBytes = 7999
)

// channels are the sessions that listen, by channel.
type channels struct {
	mu        sync.Mutex // guards the rest, and the inboxes' lists of channels
	listeners map[string]map[*session]struct{}
}

// inbox is what waits for a session that listens.
type inbox struct {
	channels []string // guarded by channels.mu

	mu       sync.Mutex // guards the rest
	pending  []pgwire.Notification
	overflow bool
}

// listening is a LISTEN or UNLISTEN of a transaction; it takes effect when that commits.
type listening struct {
	channel string // "": all
	off     bool
}

func checkChannel(channel, payload string) error {
	switch {
	case channel == "":
		return pgerr.Newf(pgerr.InvalidParameterValue, "channel name cannot be empty")
	case len(channel) > maxChannelBytes:
		return pgerr.Newf(pgerr.InvalidParameterValue, "channel name too long")
	case len(payload) > maxPayloadBytes:
		return pgerr.Newf(pgerr.InvalidParameterValue, "payload string too long")
	}
	return nil
}

// addNotification adds a message to the transaction; the same one twice is sent once.
func (t *txn) addNotification(n pgwire.Notification) error {
	if err := checkChannel(n.Channel, n.Payload); err != nil {
		return err
	}
	if t.notified == nil {
		t.notified = map[pgwire.Notification]struct{}{}
	}
	if _, twice := t.notified[n]; twice {
		return nil
	}
	if len(t.notices) >= maxTxNotifications {
		return pgerr.Newf(pgerr.ProgramLimitExceeded, "a transaction may send %d notifications", maxTxNotifications)
	}
	t.notified[n] = struct{}{}
	t.notices = append(t.notices, n)
	return nil
}

// forgetNotifications drops what was added after a savepoint.
func (t *txn) forgetNotifications(notices, listens int) {
	for _, n := range t.notices[notices:] {
		delete(t.notified, n)
	}
	t.notices, t.listens = t.notices[:notices], t.listens[:listens]
}

// deliver makes a committed transaction's LISTEN and UNLISTEN effective and hands its messages to those who listen.
func (s *Server) deliver(ss *session, t *txn) {
	if len(t.listens) == 0 && len(t.notices) == 0 {
		return
	}
	s.channels.mu.Lock()
	defer s.channels.mu.Unlock()
	for _, l := range t.listens {
		s.channels.listen(ss, l)
	}
	for _, n := range t.notices {
		for to := range s.channels.listeners[n.Channel] {
			to.inbox.put(n)
			if to != ss {
				to.params.Wake()
			}
		}
	}
}

// listen changes what a session listens to; c.mu is held.
func (c *channels) listen(ss *session, l listening) {
	for i := 0; i < len(ss.inbox.channels); i++ {
		name := ss.inbox.channels[i]
		if l.channel != "" && l.channel != name {
			continue
		}
		if !l.off {
			return
		}
		ss.inbox.channels = append(ss.inbox.channels[:i], ss.inbox.channels[i+1:]...)
		i--
		delete(c.listeners[name], ss)
		if len(c.listeners[name]) == 0 {
			delete(c.listeners, name)
		}
	}
	if l.off {
		return
	}
	if c.listeners == nil {
		c.listeners = map[string]map[*session]struct{}{}
	}
	if c.listeners[l.channel] == nil {
		c.listeners[l.channel] = map[*session]struct{}{}
	}
	c.listeners[l.channel][ss] = struct{}{}
	ss.inbox.channels = append(ss.inbox.channels, l.channel)
}

// stopListening takes a session that ends from all channels.
func (s *Server) stopListening(ss *session) {
	s.channels.mu.Lock()
	defer s.channels.mu.Unlock()
	s.channels.listen(ss, listening{off: true})
}

func (b *inbox) put(n pgwire.Notification) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending) >= maxPendingNotifications {
		b.overflow = true
		return
	}
	b.pending = append(b.pending, n)
}

// Notifications implements pgwire.Idler.
func (ss *session) Notifications() []pgwire.Notification {
	if ss.tx.explicit || ss.tx.started {
		return nil
	}
	b := &ss.inbox
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.pending
	b.pending = nil
	if b.overflow {
		ss.srv.wire.Terminate(ss.params.ProcessID)
	}
	return out
}

func (d *dispatch) listen(st *sql.Listen) error {
	if err := checkChannel(st.Channel, ""); err != nil {
		return err
	}
	d.ss.tx.listens = append(d.ss.tx.listens, listening{channel: st.Channel})
	return d.complete("LISTEN")
}

func (d *dispatch) unlisten(st *sql.Unlisten) error {
	d.ss.tx.listens = append(d.ss.tx.listens, listening{channel: st.Channel, off: true})
	return d.complete("UNLISTEN")
}

func (d *dispatch) notify(st *sql.Notify) error {
	n := pgwire.Notification{PID: d.ss.params.ProcessID, Channel: st.Channel, Payload: st.Payload}
	if err := d.ss.tx.addNotification(n); err != nil {
		return err
	}
	return d.complete("NOTIFY")
}
