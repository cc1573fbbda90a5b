package object

import (
	"context"
	"errors"
	"io"
	"net/url"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

const (
	// maxCopyBytes is the largest object that S3 copies with one request.
	maxCopyBytes = 5 << 30
	// copyChunkBytes is what goes through this process at a time where the store cannot copy by itself.
	copyChunkBytes = 8 << 20
)

// Copy writes the whole object key of from, which must not change, as toKey of to: within a server of S3, or between folders, without its bytes going
// through this process, else through a temporary file in folder scratch.
func Copy(ctx context.Context, from Store, key string, to Store, toKey, scratch string) (Info, error) {
	src, key := inner(from, key)
	dst, dstKey := inner(to, toKey)
	done := func(info Info, err error) (Info, error) {
		info.Key = toKey
		return info, err
	}
	switch s := src.(type) {
	case *File:
		if err := checkKey("get", s.String(), key); err != nil {
			return Info{}, err
		}
		if _, err := os.Stat(s.path(key)); err != nil {
			return Info{}, s.fail("get", key, err)
		}
		return done(dst.PutFile(ctx, dstKey, s.path(key)))
	case *S3:
		if d, ok := dst.(*S3); ok && d.endpoint == s.endpoint {
			info, err := d.copyFrom(ctx, s, key, dstKey)
			if err == nil || errors.Is(err, ErrNotFound) || ctx.Err() != nil {
				return done(info, err)
			}
			// Too large, or not allowed between these buckets: then through here.
		}
	}
	tmp, err := os.CreateTemp(scratch, "copy-")
	if err != nil {
		return Info{}, err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	st, err := src.Head(ctx, key)
	if err != nil {
		return Info{}, err
	}
	for off := int64(0); off < st.Size; {
		data, err := src.GetRange(ctx, key, off, min(copyChunkBytes, st.Size-off))
		if err != nil {
			return Info{}, err
		}
		if len(data) == 0 {
			return Info{}, io.ErrUnexpectedEOF
		}
		if _, err := tmp.Write(data); err != nil {
			return Info{}, err
		}
		off += int64(len(data))
	}
	return done(dst.PutFile(ctx, dstKey, tmp.Name()))
}

// inner is the store that s is a part of, and the key in it.
func inner(s Store, key string) (Store, string) {
	for {
		switch p := s.(type) {
		case *prefixed:
			s, key = p.Store, p.prefix+key
		case *Metered:
			s = p.Store
		default:
			return s, key
		}
	}
}

// InMemory reports whether s keeps its objects on the heap of this process.
func InMemory(s Store) bool {
	s, _ = inner(s, "")
	_, ok := s.(*Memory)
	return ok
}

// copyFrom copies an object of another bucket or prefix of the same server.
func (s *S3) copyFrom(ctx context.Context, from *S3, key, toKey string) (Info, error) {
	if err := checkKey("put", s.String(), s.prefix+toKey); err != nil {
		return Info{}, err
	}
	st, err := from.Head(ctx, key)
	if err != nil {
		return Info{}, err
	}
	if st.Size > maxCopyBytes {
		return Info{}, s.fail(ctx, "copy", toKey, true, errors.New("the object is too large to be copied with one request"))
	}
	var out *s3.CopyObjectOutput
	if err := s.do(ctx, "copy", toKey, true, st.Size, func(ctx context.Context) (err error) {
		out, err = s.client.CopyObject(ctx, &s3.CopyObjectInput{
			Bucket: aws.String(s.bucket), Key: s.key(toKey), CopySource: aws.String((&url.URL{Path: from.bucket + "/" + from.prefix + key}).EscapedPath()),
		})
		return err
	}); err != nil {
		return Info{}, err
	}
	if out.CopyObjectResult == nil {
		return Info{}, s.fail(ctx, "copy", toKey, true, errors.New("the server does not copy objects"))
	}
	return Info{Key: toKey, Size: st.Size, ETag: etag(out.CopyObjectResult.ETag)}, nil
}
