package auth

import (
	"crypto"
	_ "crypto/sha512" // SHA-384 and SHA-512 for channel binding
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// hashOf returns the hash of a signature algorithm; MD5 and SHA-1 are replaced by SHA-256, as the RFC says.
func hashOf(a x509.SignatureAlgorithm) crypto.Hash {
	switch a {
	case x509.MD5WithRSA, x509.SHA1WithRSA, x509.DSAWithSHA1, x509.ECDSAWithSHA1,
		x509.SHA256WithRSA, x509.DSAWithSHA256, x509.ECDSAWithSHA256, x509.SHA256WithRSAPSS:
		return crypto.SHA256
	case x509.SHA384WithRSA, x509.ECDSAWithSHA384, x509.SHA384WithRSAPSS:
		return crypto.SHA384
	case x509.SHA512WithRSA, x509.ECDSAWithSHA512, x509.SHA512WithRSAPSS:
		return crypto.SHA512
	}
	return 0 // Ed25519: the RFC does not say
}

// TLSFiles names the files of the server's certificate, its key, and the authorities that client certificates must come from.
type TLSFiles struct {
	Cert, Key, CA string
	MinVersion    uint16 // of package tls; 0: TLS 1.2
}

// ParseTLSVersion reads PostgreSQL's names of versions.
func ParseTLSVersion(s string) (uint16, error) {
	switch strings.ToLower(s) {
	case "", "tlsv1.2":
		return tls.VersionTLS12, nil
	case "tlsv1.3":
		return tls.VersionTLS13, nil
	}
	return 0, pgerr.Newf(pgerr.InvalidParameterValue, "TLS version %q is not supported", s).WithHint("Available: TLSv1.2, TLSv1.3.")
}

// TLS holds the configuration made of the files, and makes it again when they change.
type TLS struct {
	files TLSFiles

	mu    sync.Mutex
	cfg   *tls.Config
	stamp [3]fileStamp
}

type fileStamp struct {
	mod  time.Time
	size int64
}

// OpenTLS reads the files.
func OpenTLS(f TLSFiles) (*TLS, error) {
	t := &TLS{files: f}
	if err := t.Reload(); err != nil {
		return nil, err
	}
	return t, nil
}

// Config returns the configuration for a new connection. Files that changed since the last call are read again; when they are not a pair, the
// former certificate stays in use and err says why.
func (t *TLS) Config() (cfg *tls.Config, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.stamps(); s != t.stamp {
		t.stamp = s // a broken pair is reported once, not at every connection
		err = t.load()
	}
	return t.cfg, err
}

// Reload reads the files whether they changed or not.
func (t *TLS) Reload() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stamp = t.stamps()
	return t.load()
}

func (t *TLS) stamps() (out [3]fileStamp) {
	for i, name := range []string{t.files.Cert, t.files.Key, t.files.CA} {
		if st, err := os.Stat(name); err == nil {
			out[i] = fileStamp{mod: st.ModTime(), size: st.Size()}
		}
	}
	return out
}

func (t *TLS) load() error {
	cert, err := tls.LoadX509KeyPair(t.files.Cert, t.files.Key)
	if err != nil {
		return pgerr.Wrap(pgerr.ConfigFileError, err, "could not load server certificate %q with key %q", t.files.Cert, t.files.Key)
	}
	if st, err := os.Stat(t.files.Key); err == nil && st.Mode().Perm()&0o007 != 0 {
		return pgerr.Newf(pgerr.ConfigFileError, "private key file %q has group or world access", t.files.Key).
			WithHint("File must have permissions u=rw (0600) or less, or g=r (0640) for a group of its own.")
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: max(t.files.MinVersion, tls.VersionTLS12)}
	if t.files.CA != "" {
		pem, err := os.ReadFile(t.files.CA)
		if err != nil {
			return pgerr.Wrap(pgerr.ConfigFileError, err, "could not load root certificate file %q", t.files.CA)
		}
		cfg.ClientCAs = x509.NewCertPool()
		if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
			return pgerr.Wrap(pgerr.ConfigFileError, errors.New("no certificate in it"), "could not load root certificate file %q", t.files.CA)
		}
		// A certificate that is shown must be good; whether one must be shown is a matter of the rule that fits.
		cfg.ClientAuth = tls.VerifyClientCertIfGiven
	}
	t.cfg = cfg
	return nil
}

// HasCA reports whether client certificates can be verified.
func (t *TLS) HasCA() bool { return t.files.CA != "" }
