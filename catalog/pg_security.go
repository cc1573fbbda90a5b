package catalog

import (
	"math/big"

	"github.com/streamdb/streamdb/types"
)

// HBARule is a line of the rules of who may connect, as pg_hba_file_rules lists it: Error is "" or says why it is none.
type HBARule struct {
	Line             int
	Type             string
	Databases, Users []string
	Address, Netmask string
	Method           string
	Options          []string // name=value
	Error            string
}

// TLSInfo is what pg_stat_ssl tells of an encrypted connection; names and number of a client certificate are empty when none was shown.
type TLSInfo struct {
	Version, Cipher    string
	Bits               int
	ClientDN, IssuerDN string
	Serial             *big.Int
}

func pgHBAFileRules(d *SystemData, w *rowWriter) {
	if d.HBARules == nil {
		return
	}
	rules, err := d.HBARules()
	if err != nil {
		w.failed(err)
		return
	}
	for i := range rules {
		r := &rules[i]
		w.int("line_number", int64(r.Line))
		if r.Error != "" {
			w.str("error", r.Error)
			w.end()
			continue
		}
		w.str("type", r.Type)
		w.texts("database", r.Databases)
		w.texts("user_name", r.Users)
		w.text("address", r.Address)
		w.text("netmask", r.Netmask)
		w.str("auth_method", r.Method)
		w.texts("options", r.Options)
		w.end()
	}
}

// pgStatSSL lists connections over the network that the session may watch.
func pgStatSSL(d *SystemData, w *rowWriter) {
	d.networkSessions(func(s *SessionInfo) {
		w.int("pid", int64(s.PID))
		w.bool("ssl", s.TLS != nil)
		if t := s.TLS; t != nil {
			w.strs("version", t.Version, "cipher", t.Cipher)
			w.int("bits", int64(t.Bits))
			w.text("client_dn", t.ClientDN)
			w.text("issuer_dn", t.IssuerDN)
			if t.Serial != nil {
				w.bigInt("client_serial", t.Serial)
			}
		}
		w.end()
	})
}

// pgStatGSSAPI says of the same connections that GSSAPI has no part in them.
func pgStatGSSAPI(d *SystemData, w *rowWriter) {
	d.networkSessions(func(s *SessionInfo) {
		w.int("pid", int64(s.PID))
		w.bool("gss_authenticated", false)
		w.bool("encrypted", false)
		w.end()
	})
}

// networkSessions calls f for the connections over the network that the session may watch.
func (d *SystemData) networkSessions(f func(*SessionInfo)) {
	if d.Sessions == nil {
		return
	}
	sessions := d.Sessions()
	for i := range sessions {
		if s := &sessions[i]; s.ClientPort != 0 && d.mayWatch(s.User) {
			f(s)
		}
	}
}

// bigInt sets a column of type numeric.
func (w *rowWriter) bigInt(column string, v *big.Int) {
	if d := w.slot(column, types.KindNumeric); d != nil {
		n, err := types.NewNumeric(new(big.Int).Set(v), 0)
		w.failed(err)
		d.Num = n
	}
}
