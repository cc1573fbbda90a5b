package server

import (
	"crypto/x509/pkix"
	"fmt"
	"slices"
	"strings"

	"github.com/streamdb/streamdb/auth"
	"github.com/streamdb/streamdb/catalog"
	"github.com/streamdb/streamdb/pgwire"
)

// hbaRules are the rows of pg_hba_file_rules: what the file says now, faulty lines and all, which need not be in force. Without a file they are
// the built-in rules.
func (s *Server) hbaRules() ([]catalog.HBARule, error) {
	rules := s.auth.Rules()
	if s.cfg.HBAFile != "" {
		read, err := auth.LoadRules(s.cfg.HBAFile)
		if read == nil {
			return nil, err
		}
		rules = read // err is about its lines, each of which has its own
	}
	out := make([]catalog.HBARule, len(rules.List))
	for i := range rules.List {
		r := &rules.List[i]
		out[i] = catalog.HBARule{
			Line: r.Line, Type: r.Type, Databases: r.Databases, Users: r.Users, Address: r.Address, Netmask: r.Netmask, Method: r.Method, Error: r.Err,
		}
		if r.Method == "cert" && r.Err == "" && !slices.ContainsFunc(r.Options, func(o auth.Option) bool { return o.Name == "clientcert" }) {
			out[i].Options = []string{"clientcert=verify-full"} // which the method implies
		}
		for _, o := range r.Options {
			out[i].Options = append(out[i].Options, o.Name+"="+o.Value)
		}
	}
	return out, nil
}

// tlsInfo describes the encryption of a connection, nil when there is none.
func tlsInfo(p *pgwire.StartupParams) *catalog.TLSInfo {
	if !p.TLS {
		return nil
	}
	out := &catalog.TLSInfo{Version: p.TLSVersion, Cipher: p.TLSCipher, Bits: cipherBits(p.TLSCipher)}
	if len(p.ClientCerts) > 0 {
		c := p.ClientCerts[0]
		out.ClientDN, out.IssuerDN, out.Serial = distinguishedName(c.Subject), distinguishedName(c.Issuer), c.SerialNumber
	}
	return out
}

// cipherBits is the length of the key of a cipher suite, which its name tells.
func cipherBits(name string) int {
	switch {
	case strings.Contains(name, "AES_128"), strings.Contains(name, "AES128"):
		return 128
	case strings.Contains(name, "3DES"):
		return 168
	}
	return 256 // AES-256, ChaCha20
}

// attributeNames are OpenSSL's short names of what a distinguished name is made of.
var attributeNames = map[string]string{
	"2.5.4.3": "CN", "2.5.4.4": "SN", "2.5.4.5": "serialNumber", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "street", "2.5.4.10": "O",
	"2.5.4.11": "OU", "2.5.4.12": "title", "2.5.4.17": "postalCode", "2.5.4.42": "GN", "1.2.840.113549.1.9.1": "emailAddress",
	"0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}

// distinguishedName prints a name as PostgreSQL does: /C=NO/O=Example/CN=ann.
func distinguishedName(n pkix.Name) string {
	var b strings.Builder
	for _, a := range n.Names {
		id := a.Type.String()
		if short, ok := attributeNames[id]; ok {
			id = short
		}
		fmt.Fprintf(&b, "/%s=%v", id, a.Value)
	}
	return b.String()
}
