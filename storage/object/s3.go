package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"golang.org/x/sync/errgroup"

	"github.com/streamdb/streamdb/internal/pgerr"
)

const (
	multipartThreshold = 16 << 20 // bytes; larger objects go up in parts
	partBytes          = 16 << 20
	maxParts           = 10_000
	partParallelism    = 4
	deleteBatch        = 1000 // keys per DeleteObjects, the protocol's limit
	s3DialTimeout      = 5 * time.Second
	s3AbortTimeout     = 500 * time.Millisecond // for the abort of an upload that its caller has given up
	defaultRegion      = "us-east-1"
)

// S3 is a store in a bucket, below a prefix.
type S3 struct {
	client         *s3.Client
	bucket, prefix string // prefix is "" or ends in "/"
	endpoint       string // "" for Amazon's own
	pace           pace
	count          *counts
}

var _ Store = (*S3)(nil)

// s3URL is what s3://bucket/prefix?endpoint=…&region=…&force_path_style=… says.
type s3URL struct {
	bucket, prefix   string
	endpoint, region string
	pathStyle        bool
}

func parseS3(rawURL string) (*s3URL, error) {
	bad := func(format string, args ...any) error {
		return pgerr.Newf(pgerr.InvalidParameterValue, "invalid object store URL %q: "+format, append([]any{rawURL}, args...)...).
			WithHint("Use s3://bucket/prefix?endpoint=…&region=…&force_path_style=true.")
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, bad("%v", errors.Unwrap(err))
	}
	if u.Host == "" {
		return nil, bad("the bucket is missing")
	}
	if u.User != nil {
		return nil, bad("credentials do not belong into the URL; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	s := &s3URL{bucket: u.Host}
	if p := strings.Trim(u.Path, "/"); p != "" {
		s.prefix = p + "/"
	}
	for name, values := range u.Query() {
		value := values[len(values)-1]
		switch name {
		case "endpoint":
			if !strings.Contains(value, "://") {
				value = "http://" + value
			}
			if e, err := url.Parse(value); err != nil || e.Host == "" {
				return nil, bad("endpoint %q is not a URL", value)
			}
			s.endpoint = strings.TrimSuffix(value, "/")
		case "region":
			s.region = value
		case "force_path_style":
			if s.pathStyle, err = strconv.ParseBool(value); err != nil {
				return nil, bad("force_path_style must be true or false")
			}
		default:
			return nil, bad("unknown parameter %q", name)
		}
	}
	if s.endpoint != "" && !u.Query().Has("force_path_style") {
		s.pathStyle = true // what servers other than Amazon's understand everywhere
	}
	return s, nil
}

func openS3(ctx context.Context, rawURL string) (*S3, error) {
	at, err := parseS3(rawURL)
	if err != nil {
		return nil, err
	}
	s := &S3{bucket: at.bucket, prefix: at.prefix, endpoint: at.endpoint, count: &counts{}}
	loaded, err := config.LoadDefaultConfig(ctx,
		config.WithLogger(logging.Nop{}),
		config.WithHTTPClient(awshttp.NewBuildableClient().WithDialerOptions(func(d *net.Dialer) { d.Timeout = s3DialTimeout })),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} })) // do repeats calls
	if err != nil {
		return nil, pgerr.Wrap(pgerr.ConfigFileError, err, "load AWS configuration")
	}
	s.client = s3.NewFromConfig(loaded, func(o *s3.Options) {
		if at.region != "" {
			o.Region = at.region
		}
		if o.Region == "" {
			o.Region = defaultRegion
		}
		if s.endpoint != "" {
			o.BaseEndpoint = aws.String(s.endpoint)
		}
		o.UsePathStyle = at.pathStyle
		o.DisableLogOutputChecksumValidationSkipped = true
		// Some servers send the whole object's checksum with a range; readers check their own checksums anyway.
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	return s, nil
}

func (s *S3) countInto(c *counts) { s.count = c }

// String is the store's URL without parameters.
func (s *S3) String() string { return strings.TrimSuffix("s3://"+s.bucket+"/"+s.prefix, "/") }

func (s *S3) key(key string) *string { return aws.String(s.prefix + key) }

// fail turns an SDK error into the store's. write tells that the call may have changed something.
func (s *S3) fail(ctx context.Context, op, key string, write bool, err error) *Error {
	e := &Error{Op: op, Key: key, Store: s.String(), Cause: err}
	if ctx.Err() != nil {
		e.Cause, e.Ambiguous = ctx.Err(), write
		return e
	}
	where := s.endpoint
	if where == "" {
		where = "Amazon S3"
	}
	status := 0
	var resp *smithyhttp.ResponseError
	if errors.As(err, &resp) {
		status = resp.HTTPStatusCode()
	}
	code := ""
	var api smithy.APIError
	if errors.As(err, &api) {
		code = api.ErrorCode()
		e.Cause = fmt.Errorf("%s: %s", code, api.ErrorMessage())
	}
	noCredentials := strings.Contains(err.Error(), "get credentials")
	switch {
	case noCredentials:
		e.Kind = ErrForbidden
		e.Hint = "No AWS credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
	case code == "NoSuchBucket":
		e.Kind = ErrNoBucket
		e.Hint = fmt.Sprintf("Create bucket %q at %s, or correct the name in the URL.", s.bucket, where)
	case code == "NoSuchUpload":
		e.Kind = ErrNotFound
	case status == http.StatusNotFound:
		e.Kind, e.Cause = ErrNotFound, nil
		if op == "replace" {
			e.Kind = ErrPrecondition
		}
	case status == http.StatusPreconditionFailed:
		e.Kind, e.Cause = ErrPrecondition, nil
	case status == http.StatusConflict:
		e.Kind = ErrConflict
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		e.Kind = ErrForbidden
		e.Hint = fmt.Sprintf("Check the credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE) and that they may read and write bucket %q.", s.bucket)
	case status == http.StatusMovedPermanently || code == "AuthorizationHeaderMalformed":
		e.Hint = "The bucket is in another region: set region=… in the URL."
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || code == "SlowDown":
		e.Kind, e.Retryable, e.Ambiguous, e.Throttled = ErrUnavailable, true, write, true
	case status >= 500, status/100 == 2: // the latter: an answer that was cut off
		e.Kind, e.Retryable, e.Ambiguous = ErrUnavailable, true, write
	case status == 0:
		e.Kind, e.Retryable, e.Ambiguous = ErrUnavailable, true, write
		e.Cause = shortest(err)
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			e.Kind = ErrUnreachable
		}
		e.Hint = fmt.Sprintf("Check that %s can be reached from here.", where)
	}
	return e
}

// shortest finds the network error in the SDK's chain, which says all that matters.
func shortest(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op
	}
	var u *url.Error
	if errors.As(err, &u) {
		return u
	}
	return err
}

func etag(p *string) string { return strings.Trim(aws.ToString(p), `"`) }

// Get implements Store.
func (s *S3) Get(ctx context.Context, key string) (data []byte, info Info, err error) {
	err = s.do(ctx, "get", key, false, s3BodyBytes, func(ctx context.Context) error {
		out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: s.key(key)})
		if err != nil {
			return err
		}
		defer out.Body.Close()
		if data, err = io.ReadAll(out.Body); err != nil {
			return err
		}
		if out.ContentLength != nil && *out.ContentLength != int64(len(data)) {
			return io.ErrUnexpectedEOF
		}
		info = Info{Key: key, Size: int64(len(data)), ETag: etag(out.ETag), Modified: aws.ToTime(out.LastModified)}
		return nil
	})
	if err != nil {
		return nil, Info{}, err
	}
	return data, info, nil
}

// GetRange implements Store.
func (s *S3) GetRange(ctx context.Context, key string, off, n int64) (data []byte, err error) {
	if off < 0 || n < 0 {
		return nil, &Error{Op: "get", Key: key, Store: s.String(), Cause: fmt.Errorf("invalid range %d+%d", off, n)}
	}
	if n == 0 {
		_, err := s.Head(ctx, key)
		return nil, err
	}
	err = s.do(ctx, "get", key, false, n, func(ctx context.Context) (err error) {
		data, err = s.getRange(ctx, key, off, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

// getRange is one attempt. The length that the server has promised must come: what is shorter was torn on the way.
func (s *S3) getRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &s.bucket, Key: s.key(key), Range: aws.String(fmt.Sprintf("bytes=%d-%d", off, off+n-1)),
	})
	if err != nil {
		var resp *smithyhttp.ResponseError
		if errors.As(err, &resp) && resp.HTTPStatusCode() == http.StatusRequestedRangeNotSatisfiable {
			return []byte{}, nil
		}
		return nil, err
	}
	defer out.Body.Close()
	if out.ContentRange == nil { // the whole object: a server may ignore the range
		if _, err := io.CopyN(io.Discard, out.Body, off); err != nil {
			if errors.Is(err, io.EOF) && out.ContentLength != nil && *out.ContentLength <= off {
				return []byte{}, nil
			}
			return nil, err
		}
	}
	data, err := io.ReadAll(io.LimitReader(out.Body, n))
	if err != nil {
		return nil, err
	}
	if out.ContentRange != nil && out.ContentLength != nil && *out.ContentLength != int64(len(data)) {
		return nil, io.ErrUnexpectedEOF
	}
	return data, nil
}

// put writes size bytes of from with one request.
func (s *S3) put(ctx context.Context, op, key string, from io.ReaderAt, size int64, condition func(*s3.PutObjectInput)) (info Info, err error) {
	if err := checkKey(op, s.String(), key); err != nil {
		return Info{}, err
	}
	err = s.do(ctx, op, key, true, size, func(ctx context.Context) error {
		in := &s3.PutObjectInput{Bucket: &s.bucket, Key: s.key(key), Body: io.NewSectionReader(from, 0, size), ContentLength: aws.Int64(size)}
		if condition != nil {
			condition(in)
		}
		out, err := s.client.PutObject(ctx, in)
		if err == nil {
			info = Info{Key: key, Size: size, ETag: etag(out.ETag), Modified: time.Now()}
		}
		return err
	})
	return info, err
}

// Put implements Store.
func (s *S3) Put(ctx context.Context, key string, data []byte) (Info, error) {
	return s.putAny(ctx, key, bytes.NewReader(data), int64(len(data)))
}

// putAny writes with one request, or in parts.
func (s *S3) putAny(ctx context.Context, key string, from io.ReaderAt, size int64) (Info, error) {
	if size > multipartThreshold {
		return s.multipart(ctx, key, from, size)
	}
	return s.put(ctx, "put", key, from, size, nil)
}

// PutIfAbsent implements Store.
func (s *S3) PutIfAbsent(ctx context.Context, key string, data []byte) (Info, error) {
	return s.put(ctx, "create", key, bytes.NewReader(data), int64(len(data)), func(in *s3.PutObjectInput) { in.IfNoneMatch = aws.String("*") })
}

// PutIfMatch implements Store.
func (s *S3) PutIfMatch(ctx context.Context, key, tag string, data []byte) (Info, error) {
	return s.put(ctx, "replace", key, bytes.NewReader(data), int64(len(data)), func(in *s3.PutObjectInput) { in.IfMatch = aws.String(`"` + tag + `"`) })
}

// PutFile implements Store.
func (s *S3) PutFile(ctx context.Context, key, path string) (Info, error) {
	file, err := os.Open(path)
	if err != nil {
		return Info{}, &Error{Op: "put", Key: key, Store: s.String(), Cause: err}
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return Info{}, &Error{Op: "put", Key: key, Store: s.String(), Cause: err}
	}
	return s.putAny(ctx, key, file, st.Size())
}

// multipart uploads in parts. A failed upload is aborted, so that its parts cost nothing; one that was given up may stay for AbortUploads when the server hangs.
func (s *S3) multipart(ctx context.Context, key string, from io.ReaderAt, size int64) (info Info, err error) {
	if err := checkKey("put", s.String(), key); err != nil {
		return Info{}, err
	}
	var id *string
	if err := s.do(ctx, "put", key, false, 0, func(ctx context.Context) error {
		// The client adds this checksum to the parts anyway. Servers want to know at the beginning which one they will be told at the end.
		create, err := s.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &s.bucket, Key: s.key(key), ChecksumAlgorithm: types.ChecksumAlgorithmCrc32})
		if err == nil {
			id = create.UploadId
		}
		return err
	}); err != nil {
		return Info{}, err
	}
	defer func() {
		if err != nil {
			after, cancel := Aftermath(ctx, s3AbortTimeout)
			defer cancel()
			err = errors.Join(err, s.abort(after, key, id))
		}
	}()
	each := max(partBytes, (size+maxParts-1)/maxParts)
	parts := make([]types.CompletedPart, (size+each-1)/each)
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(partParallelism)
	for i := range parts {
		group.Go(func() error {
			off := int64(i) * each
			n := min(each, size-off)
			return s.do(gctx, "put", key, false, n, func(ctx context.Context) error {
				out, err := s.client.UploadPart(ctx, &s3.UploadPartInput{
					Bucket: &s.bucket, Key: s.key(key), UploadId: id, PartNumber: aws.Int32(int32(i + 1)), ChecksumAlgorithm: types.ChecksumAlgorithmCrc32,
					Body: io.NewSectionReader(from, off, n), ContentLength: aws.Int64(n),
				})
				if err != nil {
					return err
				}
				parts[i] = types.CompletedPart{PartNumber: aws.Int32(int32(i + 1)), ETag: out.ETag, ChecksumCRC32: out.ChecksumCRC32}
				return nil
			})
		})
	}
	if err := group.Wait(); err != nil {
		return Info{}, err
	}
	err = s.do(ctx, "put", key, true, 0, func(ctx context.Context) error {
		out, err := s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: &s.bucket, Key: s.key(key), UploadId: id, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
		})
		if err == nil {
			info = Info{Key: key, Size: size, ETag: etag(out.ETag), Modified: time.Now()}
		}
		return err
	})
	if err != nil {
		// An attempt whose answer was lost may have completed it; the next finds no upload then.
		if now, headErr := s.Head(ctx, key); headErr == nil && now.Size == size {
			return now, nil
		}
		return Info{}, err
	}
	return info, nil
}

// abort ends an upload in parts; one that is gone is no error.
func (s *S3) abort(ctx context.Context, key string, id *string) error {
	err := s.do(ctx, "abort", key, true, 0, func(ctx context.Context) error {
		_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.bucket, Key: s.key(key), UploadId: id})
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// AbortUploads implements Store.
func (s *S3) AbortUploads(ctx context.Context, prefix string, dead func(key string) bool) (int, error) {
	aborted := 0
	in := &s3.ListMultipartUploadsInput{Bucket: &s.bucket, Prefix: s.key(prefix)}
	for {
		var page *s3.ListMultipartUploadsOutput
		if err := s.do(ctx, "list uploads", prefix, false, 0, func(ctx context.Context) (err error) {
			page, err = s.client.ListMultipartUploads(ctx, in)
			return err
		}); err != nil {
			return aborted, err
		}
		for _, u := range page.Uploads {
			key := strings.TrimPrefix(aws.ToString(u.Key), s.prefix)
			if !dead(key) {
				continue
			}
			if err := s.abort(ctx, key, u.UploadId); err != nil {
				return aborted, err
			}
			aborted++
		}
		if !aws.ToBool(page.IsTruncated) {
			return aborted, nil
		}
		in.KeyMarker, in.UploadIdMarker = page.NextKeyMarker, page.NextUploadIdMarker
	}
}

// Head implements Store.
func (s *S3) Head(ctx context.Context, key string) (info Info, err error) {
	err = s.do(ctx, "head", key, false, 0, func(ctx context.Context) error {
		out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: s.key(key)})
		if err == nil {
			info = Info{Key: key, Size: aws.ToInt64(out.ContentLength), ETag: etag(out.ETag), Modified: aws.ToTime(out.LastModified)}
		}
		return err
	})
	return info, err
}

// List implements Store.
func (s *S3) List(ctx context.Context, prefix string, fn func(Info) error) error {
	pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: s.key(prefix)})
	for pages.HasMorePages() {
		var page *s3.ListObjectsV2Output
		if err := s.do(ctx, "list", prefix, false, 0, func(ctx context.Context) (err error) {
			page, err = pages.NextPage(ctx)
			return err
		}); err != nil {
			return err
		}
		for _, o := range page.Contents {
			info := Info{Key: strings.TrimPrefix(aws.ToString(o.Key), s.prefix), Size: aws.ToInt64(o.Size), ETag: etag(o.ETag), Modified: aws.ToTime(o.LastModified)}
			if err := fn(info); err != nil {
				return err
			}
		}
	}
	return nil
}

// Delete implements Store.
func (s *S3) Delete(ctx context.Context, keys ...string) error {
	for chunk := range slices.Chunk(keys, deleteBatch) {
		ids := make([]types.ObjectIdentifier, len(chunk))
		for i, key := range chunk {
			ids[i] = types.ObjectIdentifier{Key: s.key(key)}
		}
		var out *s3.DeleteObjectsOutput
		if err := s.do(ctx, "delete", chunk[0], true, 0, func(ctx context.Context) (err error) {
			out, err = s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &s.bucket, Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)}})
			return err
		}); err != nil {
			return err
		}
		for _, e := range out.Errors {
			if aws.ToString(e.Code) != "NoSuchKey" {
				return &Error{
					Op: "delete", Key: strings.TrimPrefix(aws.ToString(e.Key), s.prefix), Store: s.String(),
					Cause: fmt.Errorf("%s: %s", aws.ToString(e.Code), aws.ToString(e.Message)), Retryable: true,
				}
			}
		}
	}
	return nil
}
