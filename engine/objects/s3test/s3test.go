// Package s3test is an S3 server in memory for tests. It checks the signature of each request, and simulates faults.
package s3test

import (
	"bytes"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Credentials and region that the server accepts.
const (
	KeyID  = "test-key"
	Secret = "test-secret/with+signs="
	Region = "us-east-1"
)

// Server is a server with buckets in memory.
type Server struct {
	URL string

	mu      sync.Mutex
	objects map[string]object // keys are "bucket/key"
	uploads map[string]*upload
	number  int
	log     []Request
	fault   func(r Request) *Fault
	delay   time.Duration
	odd     bool
}

type object struct {
	body []byte
	etag string
	time time.Time
	meta http.Header // x-amz-meta-*
}

type upload struct {
	name  string
	parts map[int][]byte
	meta  http.Header
}

// Request is a request that the server received.
type Request struct {
	Method, Bucket, Key string
	Query               url.Values
	Range               string
	Condition           string // If-Match or If-None-Match
	Bytes               int64  // size of the response body
}

// Fault is the response to a request that fails.
type Fault struct {
	Status int    // 0: the body of the regular response is truncated after Cut bytes
	Code   string // error code of S3
	Region string // region in the response
	Cut    int
	Close  bool // close the connection without a response
	Hold   bool // with Status 0: after Cut bytes, keep the connection open until the client closes it
	Lose   bool // serve the request, then close the connection without a response
}

// New starts a server that ends with the test, and sets the environment of the test for it.
func New(t testing.TB) *Server {
	t.Helper()
	s := Start()
	t.Cleanup(s.Close)
	for name, value := range s.Environ() {
		if tt, ok := t.(interface{ Setenv(key, value string) }); ok {
			tt.Setenv(name, value)
		}
	}
	return s
}

// Start starts a server.
func Start() *Server {
	s := &Server{objects: map[string]object{}, uploads: map[string]*upload{}}
	h := httptest.NewServer(s)
	s.URL = h.URL
	servers.Store(s, h)
	return s
}

var servers sync.Map

// Close ends the server.
func (s *Server) Close() {
	if h, ok := servers.LoadAndDelete(s); ok {
		h.(*httptest.Server).CloseClientConnections()
		h.(*httptest.Server).Close()
	}
}

// Environ returns the variables that select the server. Variables with an empty value must not be set.
func (s *Server) Environ() map[string]string {
	return map[string]string{"AWS_ENDPOINT_URL_S3": s.URL, "AWS_ENDPOINT_URL": "", "AWS_ACCESS_KEY_ID": KeyID,
		"AWS_SECRET_ACCESS_KEY": Secret, "AWS_SESSION_TOKEN": "", "AWS_REGION": Region, "AWS_NO_SIGN_REQUEST": ""}
}

// Store stores an object.
func (s *Server) Store(bucket, key string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(bucket+"/"+key, body, etagOf(body), nil)
}

func etagOf(body []byte) string {
	sum := md5.Sum(body)
	return hex.EncodeToString(sum[:])
}

func (s *Server) store(name string, body []byte, etag string, meta http.Header) {
	s.objects[name] = object{bytes.Clone(body), etag, time.Now().UTC().Truncate(time.Second), meta}
}

// metadata returns the metadata of an object in the headers of a request.
func metadata(r *http.Request) http.Header {
	meta := http.Header{}
	for name, values := range r.Header {
		if strings.HasPrefix(name, "X-Amz-Meta-") {
			meta[name] = values
		}
	}
	return meta
}

// Keys returns the keys of a bucket, sorted.
func (s *Server) Keys(bucket string) (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.objects {
		if key, ok := strings.CutPrefix(name, bucket+"/"); ok {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	return keys
}

// Body returns the contents of an object; nil if it does not exist.
func (s *Server) Body(bucket, key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[bucket+"/"+key].body
}

// Uploads returns the number of multipart uploads that were neither completed nor aborted.
func (s *Server) Uploads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.uploads)
}

// Requests returns the requests since its last call.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

// Inject sets a function that returns the fault for a request; nil: no fault.
func (s *Server) Inject(fault func(r Request) *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Delay delays the response to each request.
func (s *Server) Delay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

// OddETags makes the ETags of later multipart objects independent of the ETags of their parts, as on some servers.
func (s *Server) OddETags() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.odd = true
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	req := Request{Method: r.Method, Bucket: bucket, Key: key, Query: r.URL.Query(), Range: r.Header.Get("Range"),
		Condition: r.Header.Get("If-Match") + r.Header.Get("If-None-Match")}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has closed the connection
	}
	s.mu.Lock()
	delay, inject := s.delay, s.fault
	s.mu.Unlock()
	time.Sleep(delay)
	var fault *Fault
	if inject != nil {
		fault = inject(req)
	}
	if fault != nil && fault.Close {
		panic(http.ErrAbortHandler)
	}
	if fault != nil && fault.Status > 0 {
		s.note(req)
		fail(w, fault.Status, fault.Code, fault.Region)
		return
	}
	if why := checkSignature(r, body); why != "" {
		s.note(req)
		fail(w, http.StatusForbidden, "SignatureDoesNotMatch: "+why, "")
		return
	}
	a := &answer{header: http.Header{}, status: http.StatusOK}
	s.mu.Lock()
	s.serve(a, r, req, body)
	s.mu.Unlock()
	for name, values := range a.header {
		w.Header()[name] = values
	}
	if r.Method != http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	req.Bytes = int64(len(a.body))
	s.note(req)
	if fault != nil && fault.Lose {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(a.status)
	if fault != nil {
		w.Write(a.body[:min(fault.Cut, len(a.body))])
		if fault.Hold {
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}
	w.Write(a.body)
}

func (s *Server) note(r Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, r)
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a *answer) fail(status int, code string) {
	a.status, a.body = status, errorText(code, "")
	a.header.Set("Content-Type", "application/xml")
}

func (a *answer) xml(v any) {
	a.header.Set("Content-Type", "application/xml")
	text, err := xml.Marshal(v)
	if err != nil {
		panic(err)
	}
	a.body = append([]byte(xml.Header), text...)
}

func fail(w http.ResponseWriter, status int, code, region string) {
	if region != "" {
		w.Header().Set("X-Amz-Bucket-Region", region)
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	w.Write(errorText(code, region))
}

func errorText(code, region string) []byte {
	code, message, _ := strings.Cut(code, ": ")
	return fmt.Appendf(nil, "%s<Error><Code>%s</Code><Message>%s</Message><Region>%s</Region></Error>", xml.Header,
		code, message, region)
}

// serve responds to a request. The caller must hold the lock.
func (s *Server) serve(a *answer, r *http.Request, req Request, body []byte) {
	name := req.Bucket + "/" + req.Key
	q := req.Query
	switch {
	case req.Bucket == "missing-bucket":
		a.fail(http.StatusNotFound, "NoSuchBucket: The specified bucket does not exist")
	case req.Key == "" && r.Method == http.MethodGet && q.Get("list-type") == "2":
		s.list(a, req)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		s.get(a, r, name)
	case r.Method == http.MethodPost && q.Has("uploads"):
		s.number++
		id := fmt.Sprint("upload-", s.number)
		s.uploads[id] = &upload{name, map[int][]byte{}, metadata(r)}
		a.xml(struct {
			XMLName               xml.Name `xml:"InitiateMultipartUploadResult"`
			Bucket, Key, UploadId string
		}{Bucket: req.Bucket, Key: req.Key, UploadId: id})
	case q.Has("uploadId"):
		s.multipart(a, r, name, body)
	case r.Method == http.MethodPut:
		old, there := s.objects[name]
		if r.Header.Get("If-None-Match") == "*" && there {
			a.fail(http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		if want := strings.Trim(r.Header.Get("If-Match"), `"`); want != "" && want != old.etag {
			a.fail(http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		s.store(name, body, etagOf(body), metadata(r))
		a.header.Set("ETag", `"`+etagOf(body)+`"`)
	case r.Method == http.MethodDelete:
		delete(s.objects, name)
		a.status = http.StatusNoContent
	default:
		a.fail(http.StatusNotImplemented, "NotImplemented")
	}
}

func (s *Server) get(a *answer, r *http.Request, name string) {
	o, ok := s.objects[name]
	if !ok {
		a.fail(http.StatusNotFound, "NoSuchKey: The specified key does not exist.")
		return
	}
	a.header.Set("ETag", `"`+o.etag+`"`)
	a.header.Set("Last-Modified", o.time.Format(http.TimeFormat))
	a.header.Set("Content-Type", "application/octet-stream")
	for name, values := range o.meta {
		a.header[name] = values
	}
	if want := strings.Trim(r.Header.Get("If-Match"), `"`); want != "" && want != o.etag {
		a.fail(http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	if r.Method == http.MethodHead {
		a.header.Set("Content-Length", strconv.Itoa(len(o.body)))
		return
	}
	a.body = o.body
	var from, to int
	if n, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err == nil && n == 2 {
		if from >= len(o.body) {
			a.fail(http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
			return
		}
		to = min(to, len(o.body)-1)
		a.body, a.status = o.body[from:to+1], http.StatusPartialContent
		a.header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(o.body)))
	}
}

func (s *Server) multipart(a *answer, r *http.Request, name string, body []byte) {
	q := r.URL.Query()
	u := s.uploads[q.Get("uploadId")]
	switch {
	case u == nil || u.name != name:
		a.fail(http.StatusNotFound, "NoSuchUpload")
	case r.Method == http.MethodPut:
		number, _ := strconv.Atoi(q.Get("partNumber"))
		u.parts[number] = body
		a.header.Set("ETag", `"`+etagOf(body)+`"`)
	case r.Method == http.MethodDelete:
		delete(s.uploads, q.Get("uploadId"))
		a.status = http.StatusNoContent
	case r.Method == http.MethodPost:
		var list struct {
			Part []struct {
				PartNumber int
				ETag       string
			}
		}
		if err := xml.Unmarshal(body, &list); err != nil {
			a.fail(http.StatusBadRequest, "MalformedXML")
			return
		}
		var whole []byte
		sums := md5.New()
		for k, p := range list.Part {
			part, ok := u.parts[p.PartNumber]
			if !ok || strings.Trim(p.ETag, `"`) != etagOf(part) || k+1 < len(list.Part) && len(part) < 5<<20 {
				a.fail(http.StatusBadRequest, "InvalidPart")
				return
			}
			sum := md5.Sum(part)
			sums.Write(sum[:])
			whole = append(whole, part...)
		}
		etag := fmt.Sprintf("%x-%d", sums.Sum(nil), len(list.Part))
		if s.odd {
			etag = "odd-" + q.Get("uploadId")
		}
		s.store(name, whole, etag, u.meta)
		delete(s.uploads, q.Get("uploadId"))
		a.xml(struct {
			XMLName           xml.Name `xml:"CompleteMultipartUploadResult"`
			Bucket, Key, ETag string
		}{Bucket: strings.SplitN(name, "/", 2)[0], Key: strings.SplitN(name, "/", 2)[1], ETag: `"` + etag + `"`})
	}
}

// pageKeys is the number of keys in a page of a list. It is so small that tests receive several pages.
const pageKeys = 5

func (s *Server) list(a *answer, req Request) {
	type entry struct {
		Key, LastModified, ETag string
		Size                    int
	}
	var out struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Name, Prefix          string
		KeyCount, MaxKeys     int
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []entry
		CommonPrefixes        []struct{ Prefix string }
	}
	out.Name, out.Prefix, out.MaxKeys = req.Bucket, req.Query.Get("prefix"), pageKeys
	var keys []string
	for name := range s.objects {
		if key, ok := strings.CutPrefix(name, req.Bucket+"/"); ok && strings.HasPrefix(key, out.Prefix) &&
			key > max(req.Query.Get("start-after"), req.Query.Get("continuation-token")) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if out.IsTruncated = len(keys) > pageKeys; out.IsTruncated {
		keys = keys[:pageKeys]
		out.NextContinuationToken = keys[pageKeys-1]
	}
	for _, key := range keys {
		o := s.objects[req.Bucket+"/"+key]
		out.Contents = append(out.Contents, entry{key, o.time.Format(time.RFC3339), `"` + o.etag + `"`, len(o.body)})
	}
	out.KeyCount = len(keys)
	a.xml(out)
}

// checkSignature checks the signature of a request (AWS Signature Version 4). It returns "" if the signature is valid.
func checkSignature(r *http.Request, body []byte) string {
	header, ok := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	if !ok {
		return "no signature of version 4"
	}
	fields := map[string]string{}
	for field := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		fields[name] = value
	}
	scope := strings.Split(fields["Credential"], "/")
	if len(scope) != 5 || scope[0] != KeyID || scope[2] != Region || scope[3] != "s3" {
		return "credential " + fields["Credential"]
	}
	sum := r.Header.Get("X-Amz-Content-Sha256")
	if got := sha256.Sum256(body); hex.EncodeToString(got[:]) != sum && sum != "UNSIGNED-PAYLOAD" {
		return "the hash of the body is not " + sum
	}
	var canonical strings.Builder
	fmt.Fprintf(&canonical, "%s\n%s\n%s\n", r.Method, r.URL.EscapedPath(), strings.ReplaceAll(r.URL.Query().Encode(), "+",
		"%20"))
	for name := range strings.SplitSeq(fields["SignedHeaders"], ";") {
		value := strings.Join(r.Header.Values(name), ",")
		if name == "host" {
			value = r.Host
		}
		if name == "content-length" {
			value = strconv.FormatInt(r.ContentLength, 10)
		}
		fmt.Fprintf(&canonical, "%s:%s\n", name, strings.TrimSpace(value))
	}
	fmt.Fprintf(&canonical, "\n%s\n%s", fields["SignedHeaders"], sum)
	hashed := sha256.Sum256([]byte(canonical.String()))
	text := fmt.Sprintf("AWS4-HMAC-SHA256\n%s\n%s\n%x", r.Header.Get("X-Amz-Date"), strings.Join(scope[1:], "/"),
		hashed)
	key := []byte("AWS4" + Secret)
	for _, part := range append(slices.Clone(scope[1:]), text) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	if hex.EncodeToString(key) != fields["Signature"] {
		return "the signature is wrong"
	}
	return ""
}

// Forget removes an object, unless key is equal to keep.
func (s *Server) Forget(bucket, key, keep string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key != keep {
		delete(s.objects, bucket+"/"+key)
	}
}
