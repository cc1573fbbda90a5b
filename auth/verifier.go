package auth

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/xdg-go/stringprep"

	"github.com/streamdb/streamdb/internal/pgerr"
)

const (
	// DefaultIterations is what PostgreSQL hashes passwords with.
	DefaultIterations = 4096
	// MaxIterations bounds the time that one login with a verifier made elsewhere may take.
	MaxIterations = 10_000_000

	scramMethod = "SCRAM-SHA-256"
	saltBytes   = 16
)

// Verifier is what the server keeps of a password: enough to check a proof, not enough to make one.
type Verifier struct {
	Iterations           int
	Salt                 []byte
	StoredKey, ServerKey [sha256.Size]byte
}

// NewVerifier hashes a password with a fresh salt.
func NewVerifier(password string, iterations int) (Verifier, error) {
	salt := make([]byte, saltBytes)
	if _, err := rand.Read(salt); err != nil {
		return Verifier{}, pgerr.Wrap(pgerr.InternalError, err, "could not generate random salt")
	}
	return derive(password, salt, iterations)
}

func derive(password string, salt []byte, iterations int) (Verifier, error) {
	v := Verifier{Iterations: iterations, Salt: salt}
	salted, err := pbkdf2.Key(sha256.New, prepare(password), salt, iterations, sha256.Size)
	if err != nil {
		return v, pgerr.Wrap(pgerr.InternalError, err, "could not hash the password")
	}
	v.StoredKey = sha256.Sum256(mac(salted, "Client Key"))
	copy(v.ServerKey[:], mac(salted, "Server Key"))
	return v, nil
}

func mac(key []byte, message string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(message)) // never fails
	return h.Sum(nil)
}

// prepare normalises a password by SASLprep. One that it refuses is taken as it stands, as PostgreSQL and its clients do.
func prepare(password string) string {
	if p, err := stringprep.SASLprep.Prepare(password); err == nil && p != "" {
		return p
	}
	return password
}

// String prints the verifier in PostgreSQL's form.
func (v Verifier) String() string {
	e := base64.StdEncoding
	return scramMethod + "$" + strconv.Itoa(v.Iterations) + ":" + e.EncodeToString(v.Salt) + "$" +
		e.EncodeToString(v.StoredKey[:]) + ":" + e.EncodeToString(v.ServerKey[:])
}

// ParseVerifier reads PostgreSQL's form.
func ParseVerifier(s string) (Verifier, bool) {
	rest, ok := strings.CutPrefix(s, scramMethod+"$")
	head, keys, ok2 := strings.Cut(rest, "$")
	count, salt, ok3 := strings.Cut(head, ":")
	stored, server, ok4 := strings.Cut(keys, ":")
	if !ok || !ok2 || !ok3 || !ok4 {
		return Verifier{}, false
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > MaxIterations {
		return Verifier{}, false
	}
	v := Verifier{Iterations: n}
	e := base64.StdEncoding.Strict()
	if v.Salt, err = e.DecodeString(salt); err != nil || len(v.Salt) == 0 {
		return Verifier{}, false
	}
	for _, k := range []struct {
		text string
		into *[sha256.Size]byte
	}{{stored, &v.StoredKey}, {server, &v.ServerKey}} {
		b, err := e.DecodeString(k.text)
		if err != nil || len(b) != sha256.Size {
			return Verifier{}, false
		}
		copy(k.into[:], b)
	}
	return v, true
}

// Matches reports whether the verifier was made of this password.
func (v Verifier) Matches(password string) bool {
	got, err := derive(password, v.Salt, v.Iterations)
	return err == nil && subtle.ConstantTimeCompare(got.ServerKey[:], v.ServerKey[:]) == 1
}

// IsMD5 reports whether a password is a hash of PostgreSQL's old method, which is not accepted here.
func IsMD5(s string) bool {
	if len(s) != len("md5")+32 || !strings.HasPrefix(s, "md5") {
		return false
	}
	return strings.Trim(s[3:], "0123456789abcdef") == ""
}
