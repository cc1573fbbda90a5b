package objecttest

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// S3Server is a small S3 server in process: one bucket, conditional writes, multipart uploads, ranges, paged lists, and faults.
type S3Server struct {
	*httptest.Server
	Bucket string

	mu      sync.Mutex
	objects map[string]s3Object
	uploads map[string]*s3Upload
	serial  int
	fault   func(r *http.Request) S3Fault
	// IgnoreConditions makes it carry out every write, as servers do that do not know conditional writes.
	IgnoreConditions bool
	// IgnoreCopies makes it write what a request to copy carries, nothing, as servers do that do not know them.
	IgnoreCopies bool
	// PageSize is how many keys a list returns at once.
	PageSize int
}

// S3Fault is what the server does to a request instead of answering it. The zero value answers it.
type S3Fault struct {
	Status int           // answered with this
	Apply  bool          // carried out all the same
	Delay  time.Duration // before anything else
	Hang   bool          // not answered until the client gives up
	Torn   bool          // carried out, but the connection ends in the middle of the answer
}

// The usual faults.
var (
	S3FailBefore   = S3Fault{Status: http.StatusInternalServerError}
	S3FailAfter    = S3Fault{Status: http.StatusInternalServerError, Apply: true}
	S3HangAfter    = S3Fault{Hang: true, Apply: true}
	S3Throttled    = S3Fault{Status: http.StatusServiceUnavailable}
	S3TooMany      = S3Fault{Status: http.StatusTooManyRequests}
	S3Conflict     = S3Fault{Status: http.StatusConflict}
	S3Precondition = S3Fault{Status: http.StatusPreconditionFailed}
	S3Forbidden    = S3Fault{Status: http.StatusForbidden}
	S3Torn         = S3Fault{Torn: true}
)

// s3Codes are the codes of answers by status.
var s3Codes = map[int]string{
	http.StatusForbidden: "AccessDenied", http.StatusConflict: "ConditionalRequestConflict", http.StatusPreconditionFailed: "PreconditionFailed",
	http.StatusServiceUnavailable: "SlowDown", http.StatusTooManyRequests: "TooManyRequests", http.StatusInternalServerError: "InternalError",
}

// SetFault replaces what decides, for each request, what goes wrong; nil: nothing does.
func (s *S3Server) SetFault(fault func(r *http.Request) S3Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Keys lists the objects.
func (s *S3Server) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// s3Upload is a multipart upload that is going on.
type s3Upload struct {
	key   string
	parts map[int][]byte
}

type s3Object struct {
	data     []byte
	etag     string
	modified time.Time
}

// NewS3Server starts a server that ends with the test.
func NewS3Server(t *testing.T, bucket string) *S3Server {
	t.Helper()
	s := &S3Server{Bucket: bucket, objects: map[string]s3Object{}, uploads: map[string]*s3Upload{}, PageSize: 1000}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// StoreURL is the URL of a store below prefix.
func (s *S3Server) StoreURL(prefix string) string {
	return fmt.Sprintf("s3://%s/%s?endpoint=%s&region=us-east-1&force_path_style=true", s.Bucket, prefix, s.Server.URL)
}

// Uploads is the number of multipart uploads that were neither completed nor aborted.
func (s *S3Server) Uploads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uploads)
}

type s3Failure struct {
	XMLName xml.Name `xml:"Error"`
	Code    string
	Message string
}

func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_ = xml.NewEncoder(w).Encode(s3Failure{Code: code, Message: code}) // the client is gone
}

// ServeHTTP carries out one request.
func (s *S3Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if strings.HasPrefix(r.Header.Get("X-Amz-Content-Sha256"), "STREAMING-") {
		body = unchunk(body)
	}
	s.mu.Lock()
	decide := s.fault
	s.mu.Unlock()
	var f S3Fault
	if decide != nil {
		f = decide(r)
	}
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-r.Context().Done():
			return
		}
	}
	answer := httptest.NewRecorder()
	if f.Status == 0 && !f.Hang || f.Apply {
		s.mu.Lock()
		s.serve(answer, r, body)
		s.mu.Unlock()
	}
	switch {
	case f.Hang:
		<-r.Context().Done()
	case f.Status != 0:
		fail(w, f.Status, s3Codes[f.Status])
	default:
		maps.Copy(w.Header(), answer.Header())
		if r.Method != http.MethodHead {
			w.Header().Set("Content-Length", strconv.Itoa(answer.Body.Len()))
		}
		w.WriteHeader(answer.Code)
		data := answer.Body.Bytes()
		if f.Torn {
			data = data[:len(data)/2] // less than promised: the connection is cut
		}
		_, _ = w.Write(data) // the client may be gone
	}
}

// unchunk undoes the aws-chunked encoding: "size;signature CRLF bytes CRLF … 0 CRLF trailers".
func unchunk(body []byte) []byte {
	var out []byte
	for {
		line, rest, ok := bytes.Cut(body, []byte("\r\n"))
		digits, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseInt(string(digits), 16, 64)
		if !ok || err != nil || n == 0 || n > int64(len(rest)) {
			return out
		}
		out = append(out, rest[:n]...)
		body = bytes.TrimPrefix(rest[n:], []byte("\r\n"))
	}
}

func (s *S3Server) serve(w http.ResponseWriter, r *http.Request, body []byte) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	switch {
	case bucket != s.Bucket:
		fail(w, http.StatusNotFound, "NoSuchBucket")
	case r.Method == http.MethodGet && key == "" && q.Has("uploads"):
		s.listUploads(w, q.Get("prefix"), q.Get("key-marker"), q.Get("upload-id-marker"))
	case r.Method == http.MethodGet && key == "":
		s.list(w, q.Get("prefix"), q.Get("continuation-token"))
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		s.get(w, r, key)
	case r.Method == http.MethodPut && q.Has("uploadId"):
		s.part(w, q.Get("uploadId"), q.Get("partNumber"), body)
	case r.Method == http.MethodPut && r.Header.Get("X-Amz-Copy-Source") != "" && !s.IgnoreCopies:
		s.copy(w, r, key)
	case r.Method == http.MethodPut:
		s.put(w, r, key, body)
	case r.Method == http.MethodPost && q.Has("uploads"):
		s.serial++
		id := fmt.Sprintf("upload-%d", s.serial)
		s.uploads[id] = &s3Upload{key: key, parts: map[int][]byte{}}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
	case r.Method == http.MethodPost && q.Has("uploadId"):
		s.complete(w, r, key, q.Get("uploadId"))
	case r.Method == http.MethodPost && q.Has("delete"):
		s.delete(w, body)
	case r.Method == http.MethodDelete && q.Has("uploadId"):
		delete(s.uploads, q.Get("uploadId"))
		w.WriteHeader(http.StatusNoContent)
	default:
		fail(w, http.StatusNotImplemented, "NotImplemented")
	}
}

func (s *S3Server) get(w http.ResponseWriter, r *http.Request, key string) {
	o, ok := s.objects[key]
	if !ok {
		fail(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	w.Header().Set("ETag", o.etag)
	http.ServeContent(w, r, "", o.modified, bytes.NewReader(o.data))
}

// allowed checks the conditions of a write, and answers it when they do not hold.
func (s *S3Server) allowed(w http.ResponseWriter, r *http.Request, key string) bool {
	if s.IgnoreConditions {
		return true
	}
	o, ok := s.objects[key]
	if r.Header.Get("If-None-Match") == "*" && ok {
		fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return false
	}
	if match := r.Header.Get("If-Match"); match != "" {
		if !ok {
			fail(w, http.StatusNotFound, "NoSuchKey")
			return false
		}
		if match != o.etag {
			fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
			return false
		}
	}
	return true
}

func (s *S3Server) put(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	if !s.allowed(w, r, key) {
		return
	}
	o := s3Object{data: body, etag: fmt.Sprintf("%q", fmt.Sprintf("%x", md5.Sum(body))), modified: time.Now()}
	s.objects[key] = o
	w.Header().Set("ETag", o.etag)
}

func (s *S3Server) copy(w http.ResponseWriter, r *http.Request, key string) {
	source, err := url.PathUnescape(r.Header.Get("X-Amz-Copy-Source"))
	bucket, from, _ := strings.Cut(strings.TrimPrefix(source, "/"), "/")
	o, ok := s.objects[from]
	if err != nil || bucket != s.Bucket || !ok {
		fail(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	o.modified = time.Now()
	s.objects[key] = o
	fmt.Fprintf(w, "<CopyObjectResult><ETag>%s</ETag></CopyObjectResult>", o.etag)
}

func (s *S3Server) part(w http.ResponseWriter, id, number string, body []byte) {
	n, err := strconv.Atoi(number)
	if s.uploads[id] == nil || err != nil {
		fail(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	s.uploads[id].parts[n] = body
	w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprintf("%x", md5.Sum(body))))
}

func (s *S3Server) complete(w http.ResponseWriter, r *http.Request, key, id string) {
	upload, ok := s.uploads[id]
	if !ok {
		fail(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	parts := upload.parts
	if !s.allowed(w, r, key) {
		return
	}
	var data []byte
	for n := 1; n <= len(parts); n++ {
		data = append(data, parts[n]...)
	}
	delete(s.uploads, id)
	o := s3Object{data: data, etag: fmt.Sprintf("%q", fmt.Sprintf("%x-%d", md5.Sum(data), len(parts))), modified: time.Now()}
	s.objects[key] = o
	fmt.Fprintf(w, "<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>", o.etag)
}

func (s *S3Server) delete(w http.ResponseWriter, body []byte) {
	var in struct {
		Object []struct{ Key string }
	}
	if err := xml.Unmarshal(body, &in); err != nil {
		fail(w, http.StatusBadRequest, "MalformedXML")
		return
	}
	for _, o := range in.Object {
		delete(s.objects, o.Key)
	}
	fmt.Fprint(w, "<DeleteResult></DeleteResult>")
}

func (s *S3Server) list(w http.ResponseWriter, prefix, after string) {
	type content struct {
		Key, ETag    string
		Size         int
		LastModified string
	}
	var out struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []content
	}
	var names []string
	for key := range s.objects {
		if strings.HasPrefix(key, prefix) && key > after {
			names = append(names, key)
		}
	}
	slices.Sort(names)
	if len(names) > s.PageSize {
		names = names[:s.PageSize]
		out.IsTruncated, out.NextContinuationToken = true, names[len(names)-1]
	}
	for _, key := range names {
		o := s.objects[key]
		out.Contents = append(out.Contents, content{Key: key, ETag: o.etag, Size: len(o.data), LastModified: o.modified.UTC().Format(time.RFC3339)})
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(out) // the client is gone
}

func (s *S3Server) listUploads(w http.ResponseWriter, prefix, afterKey, afterID string) {
	type upload struct{ Key, UploadId string } //nolint:revive // the protocol's name
	var out struct {
		XMLName                           xml.Name `xml:"ListMultipartUploadsResult"`
		IsTruncated                       bool
		NextKeyMarker, NextUploadIdMarker string `xml:",omitempty"` //nolint:revive // the protocol's name
		Upload                            []upload
	}
	for id, u := range s.uploads {
		if strings.HasPrefix(u.key, prefix) && (u.key > afterKey || u.key == afterKey && id > afterID) {
			out.Upload = append(out.Upload, upload{u.key, id})
		}
	}
	slices.SortFunc(out.Upload, func(a, b upload) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.UploadId, b.UploadId))
	})
	if len(out.Upload) > s.PageSize {
		out.Upload = out.Upload[:s.PageSize]
		last := out.Upload[len(out.Upload)-1]
		out.IsTruncated, out.NextKeyMarker, out.NextUploadIdMarker = true, last.Key, last.UploadId
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(out) // the client is gone
}
