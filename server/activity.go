package server

import (
	"net"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/streamdb/streamdb/catalog"
)

// activity is what other sessions may know of a session.
type activity struct {
	mu                             sync.Mutex // guards all below
	application, query             string
	status                         byte // as in ReadyForQuery; 0: a statement runs
	txStarted, queryStarted, since time.Time
}

// begin notes that a statement runs.
func (a *activity) begin(ss *session, query string) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status, a.query, a.queryStarted, a.since, a.application = 0, query, now, now, ss.vars.vals["application_name"]
	a.txStarted = ss.tx.at
}

// end notes that the session waits for its client.
func (a *activity) end(ss *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status, a.since, a.application = ss.TxStatus(), time.Now(), ss.vars.vals["application_name"]
	a.txStarted = time.Time{}
	if ss.tx.explicit {
		a.txStarted = ss.tx.at
	}
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Sub(pgEpoch).Microseconds()
}

// states are the words of pg_stat_activity for the status bytes of the protocol.
var states = map[byte]string{0: "active", 'I': "idle", 'T': "idle in transaction", 'E': "idle in transaction (aborted)"}

func (ss *session) sessionInfo() catalog.SessionInfo {
	a := &ss.activity
	a.mu.Lock()
	defer a.mu.Unlock()
	i := catalog.SessionInfo{
		PID: ss.params.ProcessID, User: ss.params.User, Database: databaseName, Application: a.application, State: states[a.status], Query: a.query,
		Started: micros(ss.began), TxnStarted: micros(a.txStarted), QueryStarted: micros(a.queryStarted), StateTime: micros(a.since),
	}
	if t, ok := ss.params.RemoteAddr.(*net.TCPAddr); ok {
		i.ClientAddr, i.ClientPort = t.IP.String(), int32(t.Port)
		i.TLS = tlsInfo(&ss.params)
	}
	return i
}

// sessionInfos lists the sessions in the order of their numbers.
func (s *Server) sessionInfos() []catalog.SessionInfo {
	var out []catalog.SessionInfo
	s.sessions.Range(func(_, v any) bool {
		if ss, ok := v.(*session); ok {
			out = append(out, ss.sessionInfo())
		}
		return true
	})
	slices.SortFunc(out, func(a, b catalog.SessionInfo) int { return int(a.PID) - int(b.PID) })
	return out
}

// cursorInfos are the rows of pg_cursors.
func (ss *session) cursorInfos() []catalog.CursorInfo {
	var out []catalog.CursorInfo
	for name, p := range ss.portals {
		switch {
		case p.sql != nil:
			out = append(out, catalog.CursorInfo{
				Name: name, Statement: p.sql.text, Holdable: p.sql.hold, Binary: p.sql.binary, Scrollable: p.sql.scroll, Created: micros(p.at),
			})
		case p.stmt.query != nil && name != "":
			out = append(out, catalog.CursorInfo{Name: name, Statement: p.stmt.text, Created: micros(p.at)})
		}
	}
	sort.Slice(out, func(i, k int) bool { return out[i].Name < out[k].Name })
	return out
}

// preparedInfos are the rows of pg_prepared_statements.
func (ss *session) preparedInfos() []catalog.PreparedInfo {
	var out []catalog.PreparedInfo
	for name, p := range ss.prepared {
		if name == "" {
			continue
		}
		i := catalog.PreparedInfo{Name: name, Statement: p.text, Prepared: micros(p.at), FromSQL: p.fromSQL, GenericPlans: p.uses, Params: []int64{}}
		for _, t := range p.params {
			i.Params = append(i.Params, int64(t.OID))
		}
		out = append(out, i)
	}
	sort.Slice(out, func(i, k int) bool { return out[i].Name < out[k].Name })
	return out
}

// settingInfos are the rows of pg_settings.
func (ss *session) settingInfos() []catalog.Setting {
	var out []catalog.Setting
	for _, st := range ss.srv.settings.table.list {
		s := catalog.Setting{Name: st.name, Value: ss.vars.get(st.name), Doc: st.doc, Boot: st.value, Reset: ss.vars.resetValue(&st), Source: ss.vars.stored[st.name], Category: "Preset Options", Context: "internal"}
		if from, file, value := ss.srv.settings.origin(st.name); s.Source == "" && value == s.Reset {
			if s.Source = from; ss.snapshot().IsSuper(ss.role()) {
				s.SourceFile = file
			}
		}
		switch st.scope {
		case scopeSession:
			s.Category, s.Context = "Client Connection Defaults", "user"
		case scopeJob:
			s.Category, s.Context = "Defaults of New Jobs", "user"
		case scopeServer:
			s.Category, s.Context = "Server", "sighup"
		case scopeReadOnly:
		}
		if st.name != strings.ToLower(st.name) {
			s.Category = "Client Connection Defaults / Locale and Formatting"
		}
		out = append(out, s)
	}
	return out
}
