package object

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// Schemes lists the forms of URLs that Open takes, for messages and help texts.
const Schemes = "file:///dir, memory://name, s3://bucket/prefix?endpoint=…&region=…&force_path_style=true"

// Open opens the store that rawURL names: file:///dir (or file://relative/dir, or a plain path), memory://name, or
// s3://bucket/prefix?endpoint=URL&region=NAME&force_path_style=true. S3 credentials come from the environment, the shared configuration
// files or the machine's role. Nothing is read or written yet: Probe does.
func Open(ctx context.Context, rawURL string) (Store, error) {
	switch folder, local, err := Folder(rawURL); {
	case err != nil:
		return nil, err
	case local:
		return NewFile(folder)
	}
	scheme, rest, _ := strings.Cut(rawURL, "://")
	switch scheme {
	case "memory":
		return NewMemory(rest), nil
	case "s3":
		return openS3(ctx, rawURL)
	}
	return nil, unknownScheme(scheme)
}

// Folder returns the folder that a URL, or an absolute path, names; local is false when it is of another kind of store.
func Folder(rawURL string) (folder string, local bool, err error) {
	bad := func(why string) (string, bool, error) {
		return "", false, pgerr.Newf(pgerr.InvalidParameterValue, "invalid object store URL %q: %s", rawURL, why).WithHint("Use file:///absolute/folder.")
	}
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if path, short := strings.CutPrefix(rawURL, "file:/"); short && !ok {
		scheme, rest, ok = "file", "/"+path, true
	}
	switch {
	case rawURL == "":
		return "", false, pgerr.Newf(pgerr.InvalidParameterValue, "empty object store URL").WithHint("Use one of %s.", Schemes)
	case !ok && filepath.IsAbs(rawURL):
		return rawURL, true, nil
	case !ok:
		return bad("a relative path is not allowed")
	case scheme != "file":
		return "", false, nil
	}
	if path, here := strings.CutPrefix(rest, "localhost/"); here {
		rest = "/" + path
	}
	path, err := url.PathUnescape(rest)
	switch {
	case err != nil:
		return bad(err.Error())
	case path == "":
		return bad("the folder is missing")
	case path[0] == '.':
		return bad("a relative path is not allowed")
	case path[0] != '/':
		return bad("it names a host; only folders of the server's own machine can be used")
	}
	return filepath.FromSlash(path), true, nil
}

// FolderURL returns the URL of a folder, whose path is absolute.
func FolderURL(folder string) string {
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(folder)}).String()
}

// FromHere makes the URL of a relative path absolute, from the working directory; others it returns as they are, file:/dir as file:///dir. What looks like a URL
// and is none is an error, not a path.
func FromHere(rawURL string) (string, error) {
	if rawURL == "" || strings.Contains(rawURL, "://") || filepath.IsAbs(rawURL) {
		return rawURL, nil
	}
	if path, short := strings.CutPrefix(rawURL, "file:/"); short {
		return "file:///" + path, nil
	}
	if scheme := schemeLike.FindString(rawURL); scheme != "" {
		return "", pgerr.Newf(pgerr.InvalidParameterValue, "invalid object store URL %q", rawURL).
			WithHint("Use one of %s; a path whose name begins with %q is written ./%s.", Schemes, scheme, rawURL)
	}
	return filepath.Abs(rawURL)
}

var schemeLike = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

// Check reports whether Open takes a URL. Nothing is opened or made.
func Check(rawURL string) error {
	if _, local, err := Folder(rawURL); local || err != nil {
		return err
	}
	scheme, _, _ := strings.Cut(rawURL, "://")
	switch scheme {
	case "memory":
		return nil
	case "s3":
		_, err := parseS3(rawURL)
		return err
	}
	return unknownScheme(scheme)
}

func unknownScheme(scheme string) error {
	return pgerr.Newf(pgerr.FeatureNotSupported, "unknown object store scheme %q", scheme).WithHint("Use one of %s.", Schemes)
}

// probePrefix is where Probe writes.
const probePrefix = "probe/"

// Probe checks that the store can be reached and written, and that its conditional writes do what fencing relies on: creating twice
// fails, replacing with a wrong ETag fails, and replacing what does not exist creates nothing.
func Probe(ctx context.Context, s Store) (err error) {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	key := probePrefix + hex.EncodeToString(id[:])
	info, err := s.PutIfAbsent(ctx, key, []byte("probe 1"))
	if err != nil {
		return fmt.Errorf("probe object store: %w", err)
	}
	defer func() {
		if e := s.Delete(context.WithoutCancel(ctx), key, key+"-absent"); e != nil && err == nil {
			err = fmt.Errorf("probe object store: %w", e)
		}
	}()
	broken := func(what string) error {
		return pgerr.Newf(pgerr.FeatureNotSupported, "object store %s does not support conditional writes: %s", s, what).
			WithHint("Use a store with If-None-Match and If-Match on PUT (Amazon S3, MinIO, Ceph, Cloudflare R2, versitygw), or file://.")
	}
	if _, err := s.PutIfAbsent(ctx, key, []byte("probe 2")); err == nil {
		return broken("an existing object was created again")
	} else if !errors.Is(err, ErrPrecondition) {
		return fmt.Errorf("probe object store: %w", err)
	}
	next, err := s.PutIfMatch(ctx, key, info.ETag, []byte("probe 3"))
	if err != nil {
		if errors.Is(err, ErrPrecondition) {
			return broken("an object could not be replaced by its own ETag")
		}
		return fmt.Errorf("probe object store: %w", err)
	}
	if next.ETag == info.ETag {
		return broken("the ETag did not change with the contents")
	}
	if _, err := s.PutIfMatch(ctx, key, info.ETag, []byte("probe 4")); err == nil {
		return broken("an object was replaced in spite of a wrong ETag")
	} else if !errors.Is(err, ErrPrecondition) && !errors.Is(err, ErrConflict) {
		return fmt.Errorf("probe object store: %w", err)
	}
	if _, err := s.PutIfMatch(ctx, key+"-absent", info.ETag, []byte("probe 5")); err == nil {
		return broken("replacing an object that does not exist created it")
	} else if !errors.Is(err, ErrPrecondition) && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("probe object store: %w", err)
	}
	return nil
}

// Below returns the URL of the part of a store whose keys begin with elem and "/".
func Below(rawURL, elem string) string {
	base, query, has := strings.Cut(rawURL, "?")
	if !strings.HasPrefix(rawURL, "s3://") {
		base, has = rawURL, false
	}
	base = strings.TrimSuffix(base, "/") + "/" + strings.Trim(elem, "/")
	if has {
		base += "?" + query
	}
	return base
}

// Above splits the last element of its path off a URL; ok is false when there is none.
func Above(rawURL string) (parent, last string, ok bool) {
	base, query := rawURL, ""
	if strings.HasPrefix(rawURL, "s3://") {
		base, query, _ = strings.Cut(rawURL, "?")
	}
	scheme, path, has := strings.Cut(base, "://")
	if !has {
		scheme, path = "", base
	}
	path = strings.TrimRight(path, "/")
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return "", "", false
	}
	parent, last = path[:i], path[i+1:]
	if has {
		parent = scheme + "://" + parent
	}
	if query != "" {
		parent += "?" + query
	}
	return parent, last, true
}
