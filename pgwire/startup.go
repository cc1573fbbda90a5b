package pgwire

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgproto3/v2"

	"github.com/streamdb/streamdb/internal/pgerr"
)

const (
	// maxStartupBytes caps the first packet (PostgreSQL's MAX_STARTUP_PACKET_LENGTH), its length word excluded.
	maxStartupBytes = 10000
	// startupTimeout is how long a client may take to get through startup and authentication.
	startupTimeout = 60 * time.Second

	protocolMajor  = 3
	protocolMinor  = 2 // newest
	protocolLatest = protocolMajor<<16 | protocolMinor

	// The length of a cancel key: that of version 3.0 is fixed, since 3.2 it may be anything up to maxCancelKeyBytes.
	cancelKeyBytes30  = 4
	cancelKeyBytes    = 32
	maxCancelKeyBytes = 256

	codeCancel = 1234<<16 | 5678
	codeTLS    = 1234<<16 | 5679
	codeGSS    = 1234<<16 | 5680

	tlsRecordHandshake = 0x16         // first byte of a TLS ClientHello; as a packet length it would be far too long
	alpnProtocol       = "postgresql" // must be negotiated when TLS begins without SSLRequest
)

// negotiate reads what comes before the session: requests for encryption, a cancel request, the startup message.
func (c *conn) negotiate() (StartupParams, error) {
	var tlsDone, gssDone bool
	for {
		first, err := c.startupPacket(tlsDone)
		if err != nil {
			return StartupParams{}, err
		}
		if first == nil {
			if err := c.upgradeTLS(true); err != nil {
				return StartupParams{}, err
			}
			tlsDone, gssDone = true, true
			continue
		}
		code := binary.BigEndian.Uint32(first)
		switch {
		case code == codeTLS && len(first) == 4 && !tlsDone:
			tlsDone = true
			if err := c.answerTLS(); err != nil {
				return StartupParams{}, err
			}
		case code == codeGSS && len(first) == 4 && !gssDone:
			gssDone = true
			if err := c.answer('N'); err != nil {
				return StartupParams{}, err
			}
		case code == codeCancel:
			if n := len(first) - 8; n >= cancelKeyBytes30 && n <= maxCancelKeyBytes {
				c.srv.cancelQuery(int32(binary.BigEndian.Uint32(first[4:])), first[8:])
			}
			return StartupParams{}, errQuiet
		default:
			return c.startupParams(code, first[4:])
		}
	}
}

// startupPacket returns the next packet without its length, nil if the client began TLS at once. Junk ends the connection
// quietly, as it may not be PostgreSQL's protocol at all.
func (c *conn) startupPacket(tlsDone bool) ([]byte, error) {
	if err := c.rd.need(4, true); err != nil {
		return nil, err
	}
	head := c.rd.buf[c.rd.r:]
	if head[0] == tlsRecordHandshake && !tlsDone && c.tlsCfg() != nil {
		return nil, nil
	}
	size := binary.BigEndian.Uint32(head)
	if size < 8 || size > maxStartupBytes+4 {
		return nil, errQuiet
	}
	if err := c.rd.need(int(size), true); err != nil {
		return nil, err
	}
	b, err := c.rd.Next(int(size))
	if err != nil {
		return nil, err
	}
	return b[4:], nil
}

func (c *conn) answer(b byte) error {
	c.wr.out = append(c.wr.out, b)
	return c.wr.Flush()
}

func (c *conn) answerTLS() error {
	if c.tlsCfg() == nil {
		return c.answer('N')
	}
	if c.rd.buffered() > 0 {
		// Bytes sent in the clear must never be taken for encrypted ones.
		return fatal(protocolViolation("received unencrypted data after SSL request"))
	}
	if err := c.answer('S'); err != nil {
		return err
	}
	return c.upgradeTLS(false)
}

// upgradeTLS goes on with TLS on the same socket. direct: the client began without a request, its ClientHello is buffered.
func (c *conn) upgradeTLS(direct bool) error {
	nc := c.nc
	if direct {
		hello, err := c.rd.Next(c.rd.buffered())
		if err != nil {
			return err
		}
		nc = &prefixConn{Conn: nc, prefix: bytes.Clone(hello)}
	}
	cfg := c.tlsCfg().Clone()
	cfg.NextProtos = []string{alpnProtocol}
	tc := tls.Server(nc, cfg)
	err := tc.HandshakeContext(c.beginHandshake())
	c.endHandshake()
	if err != nil {
		return errQuiet
	}
	if direct && tc.ConnectionState().NegotiatedProtocol != alpnProtocol {
		return errQuiet
	}
	c.encrypted = true
	c.tlsState = tc.ConnectionState()
	if len(cfg.Certificates) > 0 && len(cfg.Certificates[0].Certificate) > 0 {
		c.serverCert = cfg.Certificates[0].Certificate[0]
	}
	c.setStream(tc)
	return nil
}

// tlsCfg is the configuration for this connection: the same one from its first byte on.
func (c *conn) tlsCfg() *tls.Config {
	if !c.tlsAsked {
		c.tlsAsked, c.tlsConfig = true, c.srv.tlsConfig()
	}
	return c.tlsConfig
}

// tlsVersionName prints a version as OpenSSL does.
func tlsVersionName(v uint16) string { return strings.Replace(tls.VersionName(v), "TLS ", "TLSv", 1) }

// cipherName prints a cipher suite as OpenSSL does: those of TLS 1.3 have the standard's names.
func cipherName(id uint16) string {
	name := tls.CipherSuiteName(id)
	exchange, cipher, ok := strings.Cut(strings.TrimPrefix(name, "TLS_"), "_WITH_")
	if !ok {
		return name
	}
	cipher = strings.NewReplacer("AES_", "AES", "_CBC_", "_", "POLY1305_SHA256", "POLY1305").Replace(cipher)
	if exchange != "RSA" {
		cipher = exchange + "_" + cipher
	}
	return strings.ReplaceAll(cipher, "_", "-")
}

// prefixConn is a connection of which some bytes were read already.
type prefixConn struct {
	net.Conn
	prefix []byte
}

func (c *prefixConn) Read(p []byte) (int, error) {
	if len(c.prefix) > 0 {
		n := copy(p, c.prefix)
		c.prefix = c.prefix[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// startupParams decodes a startup message and answers the parts of the protocol that this server does not speak.
func (c *conn) startupParams(version uint32, b []byte) (StartupParams, error) {
	p := StartupParams{RemoteAddr: c.nc.RemoteAddr(), LocalAddr: c.nc.LocalAddr(), TLS: c.encrypted, ProcessID: c.pid, Wake: c.wake}
	if c.encrypted {
		p.TLSVersion, p.TLSCipher = tlsVersionName(c.tlsState.Version), cipherName(c.tlsState.CipherSuite)
		p.ServerCert, p.ClientCerts = c.serverCert, c.tlsState.PeerCertificates
	}
	if version>>16 != protocolMajor {
		return p, fatal(pgerr.Newf(pgerr.FeatureNotSupported, "unsupported frontend protocol %d.%d: server supports %d.0 to %d.%d",
			version>>16, version&0xffff, protocolMajor, protocolMajor, protocolMinor))
	}
	c.minor = min(version&0xffff, protocolMinor)
	var unknown []string
	var settings []Param
	options := ""
	for {
		if len(b) == 1 && b[0] == 0 {
			break
		}
		name, rest, ok := bytes.Cut(b, []byte{0})
		value, rest2, ok2 := bytes.Cut(rest, []byte{0})
		if !ok || !ok2 || len(name) == 0 {
			return p, fatal(protocolViolation("invalid startup packet layout: expected terminator as last byte"))
		}
		b = rest2
		for _, s := range [][]byte{name, value} {
			if err := pgerr.CheckText(s); err != nil {
				return p, fatal(pgerr.From(err))
			}
		}
		switch n, v := string(name), string(value); {
		case n == "user":
			p.User = v
		case n == "database":
			p.Database = v
		case n == "options":
			options = v
		case n == "replication":
			if err := checkReplication(v); err != nil {
				return p, err
			}
		case strings.HasPrefix(n, "_pq_."):
			unknown = append(unknown, n)
		default:
			settings = append(settings, Param{n, v})
		}
	}
	if p.User == "" {
		return p, fatal(pgerr.Newf(pgerr.InvalidAuthorization, "no PostgreSQL user name specified in startup packet"))
	}
	if p.Database == "" {
		p.Database = p.User
	}
	var err error
	if p.Settings, err = parseOptions(options); err != nil {
		return p, err
	}
	p.Settings = append(p.Settings, settings...)
	if version > protocolLatest || len(unknown) > 0 {
		c.wr.negotiateVersion(c.minor, unknown)
	}
	return p, nil
}

func checkReplication(v string) error {
	switch strings.ToLower(v) {
	case "false", "off", "no", "0", "f", "n":
		return nil
	}
	return fatal(pgerr.Newf(pgerr.FeatureNotSupported, "replication connections are not supported"))
}

// negotiateVersion tells the version that is spoken from now on and the protocol options that are not known.
func (w *writer) negotiateVersion(minor uint32, unknown []string) {
	out := append(w.out, 'v', 0, 0, 0, 0)
	start := len(w.out) + 1
	out = binary.BigEndian.AppendUint32(out, protocolMajor<<16|minor)
	out = binary.BigEndian.AppendUint32(out, uint32(len(unknown)))
	for _, n := range unknown {
		out = append(append(out, n...), 0)
	}
	binary.BigEndian.PutUint32(out[start:], uint32(len(out)-start))
	w.out = out
}

// parseOptions reads the command-line switches of the startup parameter "options": -c name=value and --name=value, separated by
// blanks; a backslash takes the next character literally.
func parseOptions(s string) ([]Param, error) {
	var ps []Param
	words := splitOptions(s)
	for i := 0; i < len(words); i++ {
		word := words[i]
		var setting, flag string
		switch {
		case word == "-c" && i+1 < len(words):
			i++
			flag, setting = "-c ", words[i]
		case strings.HasPrefix(word, "-c") && len(word) > 2:
			flag, setting = "-c ", word[2:]
		case strings.HasPrefix(word, "--"):
			flag, setting = "--", word[2:]
		}
		name, value, ok := strings.Cut(setting, "=")
		if !ok && setting != "" {
			return nil, fatal(pgerr.Newf(pgerr.SyntaxError, "%s%s requires a value", flag, setting))
		}
		if name == "" {
			return nil, fatal(pgerr.Newf(pgerr.SyntaxError, "invalid command-line argument for server process: %s", word).
				WithHint("Use -c name=value or --name=value."))
		}
		ps = append(ps, Param{strings.ReplaceAll(name, "-", "_"), value})
	}
	return ps, nil
}

func splitOptions(s string) []string {
	var words []string
	var word []byte
	inWord, escaped := false, false
	for i := range len(s) {
		switch ch := s[i]; {
		case escaped:
			word, escaped = append(word, ch), false
		case ch == '\\':
			inWord, escaped = true, true
		case strings.IndexByte(" \t\n\v\f\r", ch) >= 0:
			if inWord {
				words = append(words, string(word))
				word, inWord = word[:0], false
			}
		default:
			word, inWord = append(word, ch), true
		}
	}
	if inWord {
		words = append(words, string(word))
	}
	return words
}

// CleartextPassword implements AuthExchange.
func (c *conn) CleartextPassword() (string, error) {
	b, err := c.ask(&pgproto3.AuthenticationCleartextPassword{})
	if err != nil {
		return "", err
	}
	password, rest, ok := bytes.Cut(b, []byte{0})
	if !ok || len(rest) > 0 {
		return "", fatal(protocolViolation("invalid password packet size"))
	}
	return string(password), nil
}

// SASL implements AuthExchange.
func (c *conn) SASL(mechanisms []string) (string, []byte, error) {
	b, err := c.ask(&pgproto3.AuthenticationSASL{AuthMechanisms: mechanisms})
	if err != nil {
		return "", nil, err
	}
	mechanism, rest, ok := bytes.Cut(b, []byte{0})
	if !ok || len(rest) < 4 {
		return "", nil, fatal(protocolViolation("malformed SASLInitialResponse"))
	}
	size := int32(binary.BigEndian.Uint32(rest))
	rest = rest[4:]
	switch {
	case size == -1 && len(rest) == 0:
		return string(mechanism), nil, nil
	case size >= 0 && int(size) == len(rest):
		return string(mechanism), rest, nil
	}
	return "", nil, fatal(protocolViolation("malformed SASLInitialResponse"))
}

// SASLContinue implements AuthExchange.
func (c *conn) SASLContinue(challenge []byte) ([]byte, error) {
	return c.ask(&pgproto3.AuthenticationSASLContinue{Data: challenge})
}

// SASLFinal implements AuthExchange.
func (c *conn) SASLFinal(data []byte) error {
	return c.wr.send(&pgproto3.AuthenticationSASLFinal{Data: data})
}

// ask sends a request of the authentication and returns a copy of the answer's body.
func (c *conn) ask(m pgproto3.BackendMessage) ([]byte, error) {
	if err := c.wr.send(m); err != nil {
		return nil, err
	}
	if err := c.wr.Flush(); err != nil {
		return nil, err
	}
	typ, body, err := c.rd.await(maxAuthMessageBytes, true)
	if err != nil {
		return nil, err
	}
	if typ != 'p' {
		return nil, fatal(protocolViolation("expected password response, got message type %d", typ))
	}
	c.rd.discard(body)
	return bytes.Clone(body), nil
}
