package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
)

const (
	scramPlus   = scramMethod + "-PLUS"
	endPoint    = "tls-server-end-point"
	nonceBytes  = 18
	maxSCRAMLen = 64 << 10 // bytes of one message
)

// scram is the server's side of one exchange of RFC 5802 and 7677.
type scram struct {
	verifier Verifier
	mock     bool   // the exchange must fail, at its end, whatever the proof
	binding  []byte // hash of the server's certificate; nil: no channel binding on offer
	plus     bool   // the client chose the mechanism with channel binding

	gs2         string // as the client sent it
	clientFirst string // without gs2
	serverFirst string
	nonce       string
}

func malformed(detail string, args ...any) error {
	return pgerr.Newf(pgerr.ProtocolViolation, "malformed SCRAM message").WithDetail(detail, args...)
}

// printable reports whether s consists of the characters that nonces may have.
func printable(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x21 || c > 0x7e || c == ',' {
			return false
		}
	}
	return s != ""
}

// attribute takes "x=value" off the front of a message.
func attribute(s string, name byte) (value, rest string, err error) {
	if len(s) < 2 || s[0] != name || s[1] != '=' {
		return "", "", malformed("Expected attribute \"%c\".", name)
	}
	value, rest, _ = strings.Cut(s[2:], ",")
	return value, rest, nil
}

// first takes the client's first message and answers it. serverNonce is random.
func (x *scram) first(msg, serverNonce string) (string, error) {
	if len(msg) > maxSCRAMLen {
		return "", malformed("The message is too long.")
	}
	flag, rest, ok := strings.Cut(msg, ",")
	if !ok {
		return "", malformed("Expected a comma after the channel-binding flag.")
	}
	switch {
	case flag == "n":
		if x.plus {
			return "", malformed("The client selected %s, but the SCRAM message does not include channel binding data.", scramPlus)
		}
	case flag == "y":
		if x.plus {
			return "", malformed("The client selected %s, but the SCRAM message does not include channel binding data.", scramPlus)
		}
		if x.binding != nil {
			return "", pgerr.Newf(pgerr.InvalidAuthorization, "SCRAM channel binding negotiation error").
				WithDetail("The client supports SCRAM channel binding but thinks the server does not.  However, this server does support channel binding.")
		}
	case strings.HasPrefix(flag, "p="):
		if !x.plus {
			return "", malformed("The client selected %s without channel binding, but the SCRAM message includes channel binding data.", scramMethod)
		}
		if flag[2:] != endPoint {
			return "", pgerr.Newf(pgerr.ProtocolViolation, "unsupported SCRAM channel-binding type \"%s\"", flag[2:])
		}
	default:
		return "", malformed("Unexpected channel-binding flag.")
	}
	authzid, bare, ok := strings.Cut(rest, ",")
	if !ok {
		return "", malformed("Expected a comma after the authorization identity.")
	}
	if authzid != "" {
		return "", pgerr.Newf(pgerr.FeatureNotSupported, "client uses authorization identity, but it is not supported")
	}
	x.gs2, x.clientFirst = msg[:len(msg)-len(bare)], bare
	if strings.HasPrefix(bare, "m=") {
		return "", pgerr.Newf(pgerr.FeatureNotSupported, "client requires an unsupported SCRAM extension")
	}
	_, bare, err := attribute(bare, 'n') // the user is that of the startup message
	if err != nil {
		return "", err
	}
	nonce, _, err := attribute(bare, 'r')
	if err != nil {
		return "", err
	}
	if !printable(nonce) {
		return "", pgerr.Newf(pgerr.ProtocolViolation, "non-printable characters in SCRAM nonce")
	}
	x.nonce = nonce + serverNonce
	x.serverFirst = "r=" + x.nonce + ",s=" + base64.StdEncoding.EncodeToString(x.verifier.Salt) + ",i=" + strconv.Itoa(x.verifier.Iterations)
	return x.serverFirst, nil
}

// final takes the client's proof. ok tells whether it holds; the answer is for a client whose proof does.
func (x *scram) final(msg string) (answer string, ok bool, err error) {
	if len(msg) > maxSCRAMLen {
		return "", false, malformed("The message is too long.")
	}
	channel, rest, err := attribute(msg, 'c')
	if err != nil {
		return "", false, err
	}
	bound, err := base64.StdEncoding.Strict().DecodeString(channel)
	if err != nil || subtle.ConstantTimeCompare(bound, append([]byte(x.gs2), x.bindingData()...)) != 1 {
		if x.plus && err == nil {
			return "", false, pgerr.Newf(pgerr.InvalidAuthorization, "SCRAM channel binding check failed")
		}
		return "", false, pgerr.Newf(pgerr.ProtocolViolation, "unexpected SCRAM channel-binding attribute in client-final-message")
	}
	nonce, _, err := attribute(rest, 'r')
	if err != nil {
		return "", false, err
	}
	if subtle.ConstantTimeCompare([]byte(nonce), []byte(x.nonce)) != 1 {
		return "", false, pgerr.Newf(pgerr.ProtocolViolation, "invalid SCRAM response").WithDetail("Nonce does not match.")
	}
	at := strings.LastIndex(msg, ",p=")
	if at < 0 {
		return "", false, malformed("Expected attribute \"p\".")
	}
	proof, err := base64.StdEncoding.Strict().DecodeString(msg[at+len(",p="):])
	if err != nil || len(proof) != sha256.Size {
		return "", false, malformed("Malformed proof in client-final-message.")
	}
	text := x.clientFirst + "," + x.serverFirst + "," + msg[:at]
	signature := mac(x.verifier.StoredKey[:], text)
	subtle.XORBytes(proof, proof, signature)
	key := sha256.Sum256(proof)
	ok = hmac.Equal(key[:], x.verifier.StoredKey[:]) && !x.mock
	return "v=" + base64.StdEncoding.EncodeToString(mac(x.verifier.ServerKey[:], text)), ok, nil
}

func (x *scram) bindingData() []byte {
	if x.plus {
		return x.binding
	}
	return nil
}

func newNonce() (string, error) {
	b := make([]byte, nonceBytes)
	if _, err := rand.Read(b); err != nil {
		return "", pgerr.Wrap(pgerr.InternalError, err, "could not generate random nonce")
	}
	return base64.StdEncoding.EncodeToString(b), nil
}

// mockVerifier is what an unknown user's exchange runs with: the same for the same name, so that a second attempt does not tell that there is
// no such user.
func mockVerifier(secret []byte, user string) Verifier {
	return Verifier{Iterations: DefaultIterations, Salt: mac(secret, user)[:saltBytes]}
}

// endPointHash is the channel-binding data of a server certificate (RFC 5929, section 4.1); nil when its signature names no hash.
func endPointHash(der []byte) []byte {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil
	}
	h := hashOf(cert.SignatureAlgorithm)
	if h == 0 {
		return nil
	}
	d := h.New()
	d.Write(der) // never fails
	return d.Sum(nil)
}
