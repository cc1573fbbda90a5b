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
	"github.com/aws/aws-sdk-go-v2/aws/retry"
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
	multipartThreshold = 64 << 20 // bytes; larger objects go up in parts
	partBytes          = 16 << 20
	maxParts           = 10_000
	partParallelism    = 4
	deleteBatch        = 1000 // keys per DeleteObjects, the protocol's limit
	s3Attempts         = 4    // per call, first one included
	s3MaxBackoff       = 3 * time.Second
	s3AttemptTimeout   = 60 * time.Second
	s3DialTimeout      = 5 * time.Second
	defaultRegion      = "us-east-1"
)

// S3 is a store in a bucket, below a prefix.
type S3 struct {
	client         *s3.Client
	bucket, prefix string // prefix is "" or ends in "/"
	endpoint       string // "" for Amazon's own
}

var _ Store = (*S3)(nil)

// openS3 reads s3://bucket/prefix?endpoint=…&region=…&force_path_style=….
func openS3(ctx context.Context, rawURL string) (*S3, error) {
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
	s := &S3{bucket: u.Host}
	if p := strings.Trim(u.Path, "/"); p != "" {
		s.prefix = p + "/"
	}
	region, pathStyle := "", false
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
			region = value
		case "force_path_style":
			if pathStyle, err = strconv.ParseBool(value); err != nil {
				return nil, bad("force_path_style must be true or false")
			}
		default:
			return nil, bad("unknown parameter %q", name)
		}
	}
	if s.endpoint != "" && !u.Query().Has("force_path_style") {
		pathStyle = true // what servers other than Amazon's understand everywhere
	}
	loaded, err := config.LoadDefaultConfig(ctx,
		config.WithLogger(logging.Nop{}),
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(s3AttemptTimeout).WithDialerOptions(func(d *net.Dialer) { d.Timeout = s3DialTimeout })),
		config.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = s3Attempts, s3MaxBackoff })
		}))
	if err != nil {
		return nil, pgerr.Wrap(pgerr.ConfigFileError, err, "load AWS configuration")
	}
	s.client = s3.NewFromConfig(loaded, func(o *s3.Options) {
		if region != "" {
			o.Region = region
		}
		if o.Region == "" {
			o.Region = defaultRegion
		}
		if s.endpoint != "" {
			o.BaseEndpoint = aws.String(s.endpoint)
		}
		o.UsePathStyle = pathStyle
		o.DisableLogOutputChecksumValidationSkipped = true
		// Some servers send the whole object's checksum with a range; readers check their own checksums anyway.
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	return s, nil
}

// String is the store's URL without parameters.
func (s *S3) String() string { return strings.TrimSuffix("s3://"+s.bucket+"/"+s.prefix, "/") }

func (s *S3) key(key string) *string { return aws.String(s.prefix + key) }

// fail turns an SDK error into the store's. write tells that the call may have changed something.
func (s *S3) fail(ctx context.Context, op, key string, write bool, err error) error {
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
	switch {
	case code == "NoSuchBucket":
		e.Kind = ErrNoBucket
		e.Hint = fmt.Sprintf("Create bucket %q at %s, or correct the name in the URL.", s.bucket, where)
	case code == "NoSuchUpload":
		e.Retryable = true
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
		e.Kind, e.Retryable, e.Ambiguous = ErrUnavailable, true, write
	case status >= 500:
		e.Kind, e.Retryable, e.Ambiguous = ErrUnavailable, true, write
	case status == 0:
		var network net.Error
		if strings.Contains(err.Error(), "credentials") && !errors.As(err, &network) || strings.Contains(err.Error(), "get credentials") {
			e.Kind = ErrForbidden
			e.Hint = "No AWS credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
			break
		}
		e.Kind, e.Retryable, e.Ambiguous = ErrUnavailable, true, write
		e.Cause = shortest(err)
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
func (s *S3) Get(ctx context.Context, key string) ([]byte, Info, error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: s.key(key)})
	if err != nil {
		return nil, Info{}, s.fail(ctx, "get", key, false, err)
	}
	defer out.Body.Close()
	data, err := io.ReadAll(out.Body)
	if err != nil {
		return nil, Info{}, s.fail(ctx, "get", key, false, err)
	}
	if out.ContentLength != nil && *out.ContentLength != int64(len(data)) {
		return nil, Info{}, s.fail(ctx, "get", key, false, io.ErrUnexpectedEOF)
	}
	return data, Info{Key: key, Size: int64(len(data)), ETag: etag(out.ETag), Modified: aws.ToTime(out.LastModified)}, nil
}

// GetRange implements Store.
func (s *S3) GetRange(ctx context.Context, key string, off, n int64) ([]byte, error) {
	if off < 0 || n < 0 {
		return nil, &Error{Op: "get", Key: key, Store: s.String(), Cause: fmt.Errorf("invalid range %d+%d", off, n)}
	}
	if n == 0 {
		_, err := s.Head(ctx, key)
		return nil, err
	}
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &s.bucket, Key: s.key(key), Range: aws.String(fmt.Sprintf("bytes=%d-%d", off, off+n-1)),
	})
	if err != nil {
		var resp *smithyhttp.ResponseError
		if errors.As(err, &resp) && resp.HTTPStatusCode() == http.StatusRequestedRangeNotSatisfiable {
			return []byte{}, nil
		}
		return nil, s.fail(ctx, "get", key, false, err)
	}
	defer out.Body.Close()
	data, err := io.ReadAll(io.LimitReader(out.Body, n))
	if err != nil {
		return nil, s.fail(ctx, "get", key, false, err)
	}
	return data, nil
}

func (s *S3) put(ctx context.Context, op, key string, data []byte, condition func(*s3.PutObjectInput)) (Info, error) {
	if err := checkKey(op, s.String(), key); err != nil {
		return Info{}, err
	}
	in := &s3.PutObjectInput{Bucket: &s.bucket, Key: s.key(key), Body: bytes.NewReader(data), ContentLength: aws.Int64(int64(len(data)))}
	condition(in)
	out, err := s.client.PutObject(ctx, in)
	if err != nil {
		return Info{}, s.fail(ctx, op, key, true, err)
	}
	return Info{Key: key, Size: int64(len(data)), ETag: etag(out.ETag), Modified: time.Now()}, nil
}

// Put implements Store.
func (s *S3) Put(ctx context.Context, key string, data []byte) (Info, error) {
	if len(data) > multipartThreshold {
		return s.multipart(ctx, key, bytes.NewReader(data), int64(len(data)))
	}
	return s.put(ctx, "put", key, data, func(*s3.PutObjectInput) {})
}

// PutIfAbsent implements Store.
func (s *S3) PutIfAbsent(ctx context.Context, key string, data []byte) (Info, error) {
	return s.put(ctx, "create", key, data, func(in *s3.PutObjectInput) { in.IfNoneMatch = aws.String("*") })
}

// PutIfMatch implements Store.
func (s *S3) PutIfMatch(ctx context.Context, key, tag string, data []byte) (Info, error) {
	return s.put(ctx, "replace", key, data, func(in *s3.PutObjectInput) { in.IfMatch = aws.String(`"` + tag + `"`) })
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
	if st.Size() > multipartThreshold {
		return s.multipart(ctx, key, file, st.Size())
	}
	if err := checkKey("put", s.String(), key); err != nil {
		return Info{}, err
	}
	out, err := s.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &s.bucket, Key: s.key(key), Body: file, ContentLength: aws.Int64(st.Size())})
	if err != nil {
		return Info{}, s.fail(ctx, "put", key, true, err)
	}
	return Info{Key: key, Size: st.Size(), ETag: etag(out.ETag), Modified: time.Now()}, nil
}

// multipart uploads in parts. A failed upload is aborted, so that its parts cost nothing.
func (s *S3) multipart(ctx context.Context, key string, from io.ReaderAt, size int64) (info Info, err error) {
	if err := checkKey("put", s.String(), key); err != nil {
		return Info{}, err
	}
	create, err := s.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &s.bucket, Key: s.key(key)})
	if err != nil {
		return Info{}, s.fail(ctx, "put", key, false, err)
	}
	defer func() {
		if err != nil {
			_, abortErr := s.client.AbortMultipartUpload(context.WithoutCancel(ctx),
				&s3.AbortMultipartUploadInput{Bucket: &s.bucket, Key: s.key(key), UploadId: create.UploadId})
			if abortErr != nil {
				err = errors.Join(err, s.fail(ctx, "abort", key, false, abortErr))
			}
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
			out, err := s.client.UploadPart(gctx, &s3.UploadPartInput{
				Bucket: &s.bucket, Key: s.key(key), UploadId: create.UploadId, PartNumber: aws.Int32(int32(i + 1)),
				Body: io.NewSectionReader(from, off, n), ContentLength: aws.Int64(n),
			})
			if err != nil {
				return s.fail(ctx, "put", key, false, err)
			}
			parts[i] = types.CompletedPart{
				PartNumber: aws.Int32(int32(i + 1)), ETag: out.ETag, ChecksumCRC32: out.ChecksumCRC32, ChecksumCRC32C: out.ChecksumCRC32C,
				ChecksumCRC64NVME: out.ChecksumCRC64NVME,
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Info{}, err
	}
	out, err := s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &s.bucket, Key: s.key(key), UploadId: create.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	})
	if err != nil {
		return Info{}, s.fail(ctx, "put", key, true, err)
	}
	return Info{Key: key, Size: size, ETag: etag(out.ETag), Modified: time.Now()}, nil
}

// Head implements Store.
func (s *S3) Head(ctx context.Context, key string) (Info, error) {
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: s.key(key)})
	if err != nil {
		return Info{}, s.fail(ctx, "head", key, false, err)
	}
	return Info{Key: key, Size: aws.ToInt64(out.ContentLength), ETag: etag(out.ETag), Modified: aws.ToTime(out.LastModified)}, nil
}

// List implements Store.
func (s *S3) List(ctx context.Context, prefix string, fn func(Info) error) error {
	pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: s.key(prefix)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return s.fail(ctx, "list", prefix, false, err)
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
		out, err := s.client.DeleteObjects(ctx, &s3.DeleteObjectsInput{Bucket: &s.bucket, Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)}})
		if err != nil {
			return s.fail(ctx, "delete", chunk[0], true, err)
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
