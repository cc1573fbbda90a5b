package auth

import (
	"bufio"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// Limits of a file of rules.
const (
	maxHBALine  = 64 << 10 // bytes
	maxHBARules = 10_000
)

// The methods that a rule may name.
const (
	methodTrust    = "trust"
	methodReject   = "reject"
	methodSCRAM    = "scram-sha-256"
	methodPassword = "password"
	methodCert     = "cert"
)

// Option is name=value at the end of a rule.
type Option struct{ Name, Value string }

// Rule is one line of the file. Err says what is wrong with it: such a rule never comes into force.
type Rule struct {
	Line      int
	Type      string // local, host, hostssl, hostnossl, hostgssenc, hostnogssenc
	Databases []string
	Users     []string
	Address   string // as PostgreSQL's view shows it: an address, a name, all, samehost, samenet; "" for local
	Netmask   string
	Method    string
	Options   []Option
	Err       string

	quoted  map[string]bool // words in quotes lose their special meaning: d:name, u:name
	prefix  netip.Prefix
	comment string
}

func (r *Rule) option(name string) string {
	for _, o := range r.Options {
		if o.Name == name {
			return o.Value
		}
	}
	return ""
}

// Rules are the rules in force, first match first.
type Rules struct {
	File string // "" for the built-in ones
	List []Rule
}

// Notes says what was accepted without effect.
func (r *Rules) Notes() []string {
	var out []string
	for i := range r.List {
		if c := r.List[i].comment; c != "" {
			out = append(out, c)
		}
	}
	return out
}

// word is a token of the file.
type word struct {
	text   string
	quoted bool
}

// tokenize splits a line into fields of comma-separated words. A # outside of quotes begins a comment.
func tokenize(line string) (fields [][]word, err error) {
	var field []word
	var b strings.Builder
	inWord, inQuote, quoted, afterComma := false, false, false, false
	end := func() {
		if inWord {
			field = append(field, word{b.String(), quoted})
			b.Reset()
			inWord, quoted, afterComma = false, false, false
		}
	}
	endField := func() {
		if len(field) > 0 && !afterComma {
			fields, field = append(fields, field), nil
		}
	}
scan:
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case inQuote && c == '"':
			if i+1 < len(line) && line[i+1] == '"' {
				b.WriteByte('"')
				i++
				continue
			}
			inQuote = false
		case inQuote:
			b.WriteByte(c)
		case c == '"':
			if !inWord {
				endField()
			}
			inWord, inQuote, quoted = true, true, true
		case c == '#':
			break scan
		case c == ',':
			end()
			afterComma = true
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			end()
		default:
			if !inWord {
				endField()
			}
			inWord = true
			b.WriteByte(c)
		}
	}
	if inQuote {
		return nil, pgerr.Newf(pgerr.ConfigFileError, "unterminated quoted string")
	}
	end()
	afterComma = false
	endField()
	return fields, nil
}

// ParseRules reads rules in the form of pg_hba.conf. dir is where files named with @ are looked for. Every faulty line is one of the rules,
// with its error; err is that of the first, with all in its detail.
func ParseRules(text, file string) (*Rules, error) {
	rules := &Rules{File: file}
	sc := bufio.NewScanner(strings.NewReader(text))
	sc.Buffer(nil, maxHBALine)
	pending, start := "", 0
	for n := 1; sc.Scan(); n++ {
		line := sc.Text()
		if pending == "" {
			start = n
		}
		if cont, ok := strings.CutSuffix(line, `\`); ok {
			pending += cont + " "
			continue
		}
		line, pending = pending+line, ""
		rules.add(line, start, filepath.Dir(file))
		if len(rules.List) > maxHBARules {
			return rules, pgerr.Newf(pgerr.ConfigFileError, "%s has more than %d rules", file, maxHBARules)
		}
	}
	if pending != "" {
		rules.add(pending, start, filepath.Dir(file))
	}
	if err := sc.Err(); err != nil {
		return rules, pgerr.Wrap(pgerr.ConfigFileError, err, "read %s", file)
	}
	var faults []string
	for i := range rules.List {
		if r := &rules.List[i]; r.Err != "" {
			faults = append(faults, fileLine(file, r.Line)+": "+r.Err)
		}
	}
	if len(faults) > 0 {
		return rules, pgerr.Newf(pgerr.ConfigFileError, "%s", faults[0]).WithDetail("%s", strings.Join(faults, "\n"))
	}
	if len(rules.List) == 0 {
		return rules, pgerr.Newf(pgerr.ConfigFileError, "configuration file %q contains no entries", file)
	}
	return rules, nil
}

// LoadRules reads a file.
func LoadRules(file string) (*Rules, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, pgerr.Wrap(pgerr.ConfigFileError, err, "could not open configuration file %q", file)
	}
	return ParseRules(string(text), file)
}

func (rs *Rules) add(line string, n int, dir string) {
	fields, err := tokenize(line)
	r := Rule{Line: n, quoted: map[string]bool{}}
	if err == nil {
		if len(fields) == 0 {
			return
		}
		err = r.parse(fields, dir)
	}
	if err != nil {
		r.Err = pgerr.From(err).Message
	}
	rs.List = append(rs.List, r)
}

func bad(format string, args ...any) error { return pgerr.Newf(pgerr.ConfigFileError, format, args...) }

func (r *Rule) parse(fields [][]word, dir string) error {
	if len(fields[0]) > 1 {
		return bad("multiple values specified for connection type")
	}
	switch r.Type = fields[0][0].text; r.Type {
	case "local", "host", "hostssl", "hostnossl", "hostgssenc", "hostnogssenc":
	case "include", "include_if_exists", "include_dir":
		return bad("%q is not supported: put all rules into one file", r.Type)
	default:
		return bad("invalid connection type %q", r.Type)
	}
	rest := fields[1:]
	take := func(what string) ([]word, error) {
		if len(rest) == 0 {
			return nil, bad("end-of-line before %s", what)
		}
		f := rest[0]
		rest = rest[1:]
		return f, nil
	}
	for _, part := range []struct {
		what, key string
		into      *[]string
	}{{"database specification", "d:", &r.Databases}, {"role specification", "u:", &r.Users}} {
		f, err := take(part.what)
		if err != nil {
			return err
		}
		for _, w := range f {
			if strings.HasPrefix(w.text, "@") && !w.quoted {
				return bad("a file of names (%s) is not supported: list the names, or make a role of which they are members", w.text)
			}
			if strings.HasPrefix(w.text, "/") && !w.quoted {
				return bad("regular expressions (%s) are not supported", w.text)
			}
			if w.quoted {
				r.quoted[part.key+w.text] = true
			}
			*part.into = append(*part.into, w.text)
		}
	}
	if r.Type != "local" {
		f, err := take("IP address specification")
		if err != nil {
			return err
		}
		if len(f) > 1 {
			return bad("multiple values specified for host address")
		}
		if err := r.address(f[0], &rest); err != nil {
			return err
		}
	}
	f, err := take("authentication method")
	if err != nil {
		return err
	}
	if len(f) > 1 {
		return bad("multiple values specified for authentication type")
	}
	r.Method = f[0].text
	for _, f := range rest {
		for _, w := range f {
			name, value, ok := strings.Cut(w.text, "=")
			if !ok {
				return bad("authentication option not in name=value format: %s", w.text)
			}
			r.Options = append(r.Options, Option{name, value})
		}
	}
	return r.check()
}

func (r *Rule) address(w word, rest *[][]word) error {
	if !w.quoted {
		switch w.text {
		case "all", "samehost", "samenet":
			r.Address = w.text
			return nil
		}
	}
	if strings.Contains(w.text, "/") {
		p, err := netip.ParsePrefix(w.text)
		if err != nil {
			return bad("invalid CIDR mask in address %q", w.text)
		}
		r.prefix = p
		r.Address, r.Netmask = p.Addr().String(), maskText(p)
		return nil
	}
	addr, err := netip.ParseAddr(w.text)
	if err != nil {
		return bad("host names (%q) are not supported: give an address", w.text)
	}
	if len(*rest) == 0 {
		return bad("end-of-line before netmask specification")
	}
	mask, err := netip.ParseAddr((*rest)[0][0].text)
	if err != nil || mask.Is4() != addr.Is4() {
		return bad("invalid IP mask %q", (*rest)[0][0].text)
	}
	*rest = (*rest)[1:]
	ones, bits := net.IPMask(mask.AsSlice()).Size()
	if bits == 0 {
		return bad("invalid IP mask %q", mask)
	}
	r.prefix = netip.PrefixFrom(addr, ones)
	r.Address, r.Netmask = addr.String(), mask.String()
	return nil
}

func maskText(p netip.Prefix) string {
	m := net.CIDRMask(p.Bits(), p.Addr().BitLen())
	a, _ := netip.AddrFromSlice(m)
	return a.String()
}

// knownMethods are PostgreSQL's others, which are not offered here.
var knownMethods = []string{"gss", "sspi", "ident", "peer", "ldap", "radius", "pam", "bsd"}

func (r *Rule) check() error {
	switch r.Method {
	case methodTrust, methodReject, methodSCRAM, methodPassword, methodCert:
	case "md5":
		return bad("authentication method \"md5\" is not supported: use scram-sha-256")
	default:
		if r.Type == "local" && slices.Contains(knownMethods, r.Method) {
			break // ignored with the line
		}
		if slices.Contains(knownMethods, r.Method) {
			return bad("authentication method %q is not supported: use scram-sha-256, password, cert, trust or reject", r.Method)
		}
		return bad("invalid authentication method %q", r.Method)
	}
	switch {
	case r.Type == "local":
		r.comment = fileLine("line", r.Line) + ": there are no Unix-domain sockets: rules of type local are ignored"
		return nil
	case r.Type == "hostgssenc":
		r.comment = fileLine("line", r.Line) + ": there is no GSSAPI encryption: the rule never fits"
	case r.Method == methodCert && r.Type != "hostssl":
		return bad("cert authentication is only supported on hostssl connections")
	}
	for _, o := range r.Options {
		switch o.Name {
		case "clientcert":
			if r.Type != "hostssl" {
				return bad("clientcert can only be configured for \"hostssl\" rows")
			}
			if o.Value != "verify-ca" && o.Value != "verify-full" {
				return bad("invalid value for clientcert: %q", o.Value)
			}
			if o.Value == "verify-ca" && r.Method == methodCert {
				return bad("clientcert only accepts \"verify-full\" when using \"cert\" authentication")
			}
		case "clientname":
			if r.Type != "hostssl" {
				return bad("clientname can only be configured for \"hostssl\" rows")
			}
			if o.Value != "CN" && o.Value != "DN" {
				return bad("invalid value for clientname: %q", o.Value)
			}
		case "map":
			return bad("authentication option \"map\" is not supported: use map-role=name=role")
		case "map-role":
			if r.Method != methodCert {
				return bad("authentication option %q is only valid for authentication method cert", o.Name)
			}
			if _, role, ok := strings.Cut(o.Value, "="); !ok || role == "" {
				return bad("invalid value for map-role: %q; it is certificate-name=role", o.Value)
			}
		default:
			return bad("unrecognized authentication option name: %q", o.Name)
		}
	}
	return nil
}

func fileLine(file string, n int) string { return file + ":" + itoa(n) }
