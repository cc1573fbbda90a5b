package server

import (
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgwire"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/types"
)

// sessionVars are a session's values over the server's.
type sessionVars struct {
	srv   *serverSettings
	vals  map[string]string
	reset map[string]string // what RESET goes back to
	// stored says of the settings that ALTER ROLE and DATABASE .. SET gave at login whose they are, as pg_settings.source does.
	stored map[string]string
	// Changes are transactional: before holds the values that a rollback brings back, after those that a commit leaves (SET LOCAL does not
	// change these). Both are nil while the transaction has changed nothing.
	before, after map[string]string
	fmt           *types.Format
	path          []string
	temporary     string // schema of the temporary relations, "" before there are any
	notify        func(name, value string) error
	mayBecome     func(setting, role string) error // checks SET ROLE and SET SESSION AUTHORIZATION
	isSuper       func() bool
}

func (s *Server) newSessionVars(user string) *sessionVars {
	v := &sessionVars{srv: s.settings, vals: map[string]string{}, stored: map[string]string{}}
	s.settings.mu.RLock()
	for k, x := range s.settings.vals {
		if !s.settings.table.index[strings.ToLower(k)].live {
			v.vals[k] = x
		}
	}
	s.settings.mu.RUnlock()
	v.vals["session_authorization"] = user
	return v
}

// startup makes the present values those that RESET goes back to.
func (v *sessionVars) startup() {
	v.reset = maps.Clone(v.vals)
	v.before, v.after = nil, nil
}

// changing is called before a change within a transaction.
func (v *sessionVars) changing() {
	if v.before == nil {
		v.before, v.after = maps.Clone(v.vals), maps.Clone(v.vals)
	}
}

func (v *sessionVars) get(name string) string {
	if st := v.srv.table.index[strings.ToLower(name)]; st != nil && (st.scope == scopeServer || st.live && v.vals[st.name] == "") {
		return v.srv.get(st.name)
	}
	return v.vals[name]
}

// live returns the session's own values of settings that otherwise are the server's.
func (v *sessionVars) live() map[string]string {
	own := map[string]string{}
	for i := range v.srv.table.list {
		if st := &v.srv.table.list[i]; st.live && v.vals[st.name] != "" {
			own[st.name] = v.vals[st.name]
		}
	}
	return own
}

// lookup finds a value by any spelling of its name.
func (v *sessionVars) lookup(name string) (string, bool) {
	st, err := v.srv.table.find(name)
	if err != nil {
		x, ok := v.vals[strings.ToLower(name)]
		return x, ok
	}
	return v.get(st.name), true
}

func (v *sessionVars) set(name string, values []string, local bool) error {
	value := strings.Join(values, ", ")
	st, err := v.srv.table.find(name)
	if err != nil {
		if !customised(name) {
			return err
		}
		if !simpleName(name) {
			return pgerr.Newf("42602", "invalid configuration parameter name %q", name).
				WithDetail("Custom parameter names must be two or more simple identifiers separated by dots.")
		}
		if len(values) > 1 {
			return pgerr.Newf(pgerr.InvalidParameterValue, "SET %s takes only one argument", name)
		}
		v.changing()
		v.vals[strings.ToLower(name)] = value
		if !local {
			v.after[strings.ToLower(name)] = value
		}
		return nil
	}
	switch st.scope {
	case scopeReadOnly:
		return pgerr.Newf(pgerr.CantChangeRuntimeParam, "parameter %q cannot be changed", st.name)
	case scopeServer:
		return pgerr.Newf(pgerr.CantChangeRuntimeParam, "parameter %q cannot be set for a session", st.name).WithHint("Use ALTER SYSTEM SET.")
	}
	switch st.name {
	case "search_path":
		value = joinPath(values)
	case "DateStyle", "temp_tablespaces", "streamdb.disabled_rules":
	default:
		if len(values) > 1 {
			return pgerr.Newf(pgerr.InvalidParameterValue, "SET %s takes only one argument", st.name)
		}
	}
	if st.name == "DateStyle" {
		if whole, err := completeDateStyle(strings.Join(values, ","), v.vals[st.name]); err == nil {
			value = whole
		}
	}
	if value, err = st.normalise(value); err != nil {
		return err
	}
	if st.identity() {
		return v.become(st, value, local)
	}
	if st.live {
		own := v.live()
		own[st.name] = value
		if err := v.srv.checkCheckpoints(own); err != nil {
			return err
		}
	}
	v.change(st, value, local)
	return nil
}

// simpleName reports whether all parts of a dotted name are identifiers.
func simpleName(name string) bool {
	for _, part := range strings.Split(name, ".") {
		for i, c := range part {
			letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
			if !letter && (i == 0 || !(c >= '0' && c <= '9' || c == '$')) {
				return false
			}
		}
		if part == "" {
			return false
		}
	}
	return true
}

// identity reports whether a setting says who the session is.
func (s *setting) identity() bool { return s.name == "role" || s.name == "session_authorization" }

// become changes who the session is.
func (v *sessionVars) become(st *setting, value string, local bool) error {
	if v.mayBecome != nil {
		if err := v.mayBecome(st.name, value); err != nil {
			return err
		}
	}
	v.change(st, value, local)
	if st.name == "session_authorization" {
		v.change(v.srv.table.index["role"], "none", local)
	}
	if v.isSuper != nil {
		v.change(v.srv.table.index["is_superuser"], onOff(v.isSuper()), local)
	}
	return nil
}

func onOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}

// currentUser is the name of the role that the session acts as.
func (v *sessionVars) currentUser() string {
	if r := v.vals["role"]; r != "none" && r != "" {
		return r
	}
	return v.vals["session_authorization"]
}

// customised reports whether a name is one that applications may invent: class.name, the class not one of the server's.
func customised(name string) bool {
	class, _, ok := strings.Cut(strings.ToLower(name), ".")
	return ok && class != "execution" && class != "state" && class != catalog.SystemSchema
}

func (v *sessionVars) change(st *setting, value string, local bool) {
	v.changing()
	if !local {
		v.after[st.name] = value
	}
	v.assign(st, value)
}

func (v *sessionVars) assign(st *setting, value string) {
	v.vals[st.name] = value
	v.fmt, v.path = nil, nil
	if st.report && v.notify != nil {
		_ = v.notify(st.name, value) // the client is gone if this fails; the next write tells
	}
}

func (v *sessionVars) resetOne(name string) error {
	st, err := v.srv.table.find(name)
	if err != nil {
		if !customised(name) {
			return err
		}
		v.changing()
		if _, ok := v.vals[strings.ToLower(name)]; ok { // once used it stays known, with an empty value
			v.vals[strings.ToLower(name)], v.after[strings.ToLower(name)] = "", ""
		}
		return nil
	}
	if st.scope == scopeReadOnly || st.scope == scopeServer {
		return pgerr.Newf(pgerr.CantChangeRuntimeParam, "parameter %q cannot be changed", st.name)
	}
	if st.identity() {
		return v.become(st, v.reset[st.name], false)
	}
	v.change(st, v.reset[st.name], false)
	return nil
}

// resetValue is what RESET of a setting goes back to.
func (v *sessionVars) resetValue(st *setting) string {
	if st.scope == scopeServer || st.live && v.reset[st.name] == "" {
		return v.srv.get(st.name)
	}
	return v.reset[st.name]
}

func (v *sessionVars) resetAll() {
	for i := range v.srv.table.list {
		if st := &v.srv.table.list[i]; v.vals[st.name] != v.reset[st.name] && st.name != "transaction_isolation" && st.name != "transaction_read_only" && !st.identity() && st.name != "is_superuser" {
			v.change(st, v.reset[st.name], false)
		}
	}
}

// beginTx gives a transaction the default modes.
func (v *sessionVars) beginTx() {
	v.vals["transaction_isolation"], v.vals["transaction_read_only"] = v.vals["default_transaction_isolation"], v.vals["default_transaction_read_only"]
}

// endTx brings back what SET LOCAL changed, and after a rollback what SET changed.
func (v *sessionVars) endTx(committed bool) {
	if v.before != nil {
		target := v.before
		if committed {
			target = v.after
		}
		v.restore(target)
		v.before, v.after = nil, nil
	}
	v.beginTx()
}

// restore goes to other values and reports those that differ.
func (v *sessionVars) restore(target map[string]string) {
	old := v.vals
	v.vals = maps.Clone(target)
	v.fmt, v.path = nil, nil
	for k, x := range target {
		if st := v.srv.table.index[strings.ToLower(k)]; st != nil && old[k] != x {
			v.assign(st, x)
		}
	}
}

// varsMark is what a savepoint remembers of the settings.
type varsMark struct{ vals, before, after map[string]string }

func (v *sessionVars) mark() varsMark {
	return varsMark{vals: maps.Clone(v.vals), before: maps.Clone(v.before), after: maps.Clone(v.after)}
}

func (v *sessionVars) rollbackTo(m varsMark) {
	v.restore(m.vals)
	v.before, v.after = maps.Clone(m.before), maps.Clone(m.after)
}

func (v *sessionVars) reported() []pgwire.Param {
	var out []pgwire.Param
	for _, st := range v.srv.table.list {
		if st.report {
			out = append(out, pgwire.Param{Name: st.name, Value: v.get(st.name)})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

func (v *sessionVars) format() *types.Format {
	if v.fmt == nil {
		v.fmt = textFormat(v.vals)
		v.fmt.Now = time.Now()
	}
	return v.fmt
}

// formatSettings are the settings that the results of expressions depend on. A materialized view keeps those of the session that created it.
func formatSettings() []string {
	return []string{"TimeZone", "DateStyle", "IntervalStyle", "bytea_output", "extra_float_digits"}
}

// textFormat returns the text forms that settings ask for; what is missing has its default.
func textFormat(vals map[string]string) *types.Format {
	f := types.DefaultFormat()
	if zone := vals["TimeZone"]; zone != "" {
		if loc, _, err := loadZone(zone); err == nil {
			f.Location = loc
		}
	}
	style, order, _ := strings.Cut(vals["DateStyle"], ", ")
	f.DateStyle = map[string]types.DateStyle{"SQL": types.DateSQL, "Postgres": types.DatePostgres, "German": types.DateGerman}[style]
	f.DateOrder = map[string]types.DateOrder{"DMY": types.OrderDMY, "YMD": types.OrderYMD}[order]
	f.ByteaEscape = vals["bytea_output"] == "escape"
	if n, err := strconv.Atoi(vals["extra_float_digits"]); err == nil {
		f.ExtraFloatDigits = n
	}
	switch vals["IntervalStyle"] {
	case "postgres_verbose":
		f.IntervalStyle = types.IntervalPostgresVerbose
	case "sql_standard":
		f.IntervalStyle = types.IntervalSQLStandard
	case "iso_8601":
		f.IntervalStyle = types.IntervalISO8601
	}
	return f
}

// searchPath returns the schemas looked at, without those that are implied.
func (v *sessionVars) searchPath() []string {
	if v.path == nil {
		v.path = []string{}
		if v.temporary != "" && !slices.Contains(splitPath(v.vals["search_path"]), catalog.TemporaryAlias) {
			v.path = append(v.path, v.temporary)
		}
		for _, p := range splitPath(v.vals["search_path"]) {
			switch p {
			case "":
			case catalog.TemporaryAlias:
				if v.temporary != "" {
					v.path = append(v.path, v.temporary)
				}
			case "$user":
				// The user streamdb does not mean the system schema of that name.
				if p = v.currentUser(); p != catalog.SystemSchema {
					v.path = append(v.path, p)
				}
			default:
				v.path = append(v.path, p)
			}
		}
	}
	return v.path
}

// joinPath prints a list of schemas so that splitPath reads it back.
func joinPath(names []string) string {
	if len(names) == 1 && strings.ContainsAny(names[0], `,"`) { // one string that holds a list, as drivers send it
		return names[0]
	}
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = sql.QuoteIdent(n)
	}
	return strings.Join(quoted, ", ")
}

// splitPath reads a list of names, quoted or not, separated by commas.
func splitPath(s string) []string {
	var out []string
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		name := ""
		if s[0] == '"' {
			s = s[1:]
			for s != "" {
				if s[0] != '"' {
					name, s = name+s[:1], s[1:]
				} else if strings.HasPrefix(s, `""`) {
					name, s = name+`"`, s[2:]
				} else {
					break
				}
			}
			_, s, _ = strings.Cut(s, ",")
		} else {
			name, s, _ = strings.Cut(s, ",")
			name = strings.ToLower(strings.TrimSpace(name))
		}
		out = append(out, name)
	}
	return out
}

// timeout returns the value of a setting that is a duration; 0 is none.
func (v *sessionVars) timeout(name string) time.Duration {
	s := v.vals[name]
	if s == "0" {
		return 0
	}
	d, err := parseDuration(s)
	if err != nil {
		return 0
	}
	return d
}

// tempFileLimit returns the bytes of a temporary file, < 0 for no limit.
func (v *sessionVars) tempFileLimit() int64 {
	n, err := strconv.ParseInt(v.vals["temp_file_limit"], 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n << 10
}

func (v *sessionVars) disabledRules() map[string]bool {
	return disabledRules(v.vals["streamdb.disabled_rules"])
}

func disabledRules(list string) map[string]bool {
	var m map[string]bool
	for _, r := range strings.Split(list, ",") {
		if r = strings.TrimSpace(r); r != "" {
			if m == nil {
				m = map[string]bool{}
			}
			m[r] = true
		}
	}
	return m
}
