package objects

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/minio/minio-go/v7"
)

var (
	errStuck   = errors.New("the server did not answer in time")
	errChanged = errors.New("the object has changed since its size and ETag were read")
	errRemoved = fmt.Errorf("%w: it was removed", errChanged)
)

// cutError reports a body that ended early.
type cutError struct{ err error }

func (e *cutError) Error() string { return "the body ended early: " + e.err.Error() }
func (e *cutError) Unwrap() error { return e.err }

// Error reports a request that failed.
type Error struct {
	Op     string // HEAD, GET, LIST, PUT, DELETE
	Name   Name
	Tries  int
	Status int    // of HTTP; 0: there was no answer
	Code   string // of S3, such as AccessDenied
	Cure   string
	Passes bool // the cause may be transient, so a later request may succeed
	Err    error
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %v", e.Op, e.Name, e.Err)
	if e.Tries > 1 {
		fmt.Fprintf(&b, " (%d tries)", e.Tries)
	}
	if e.Cure != "" {
		b.WriteString(": " + e.Cure)
	}
	return b.String()
}

// Kind returns a text that is equal for errors of different objects with the same cause.
func (e *Error) Kind() string {
	if e.Status > 0 {
		return fmt.Sprintf("%s %s: %d %s", e.Op, e.Name.Bucket, e.Status, e.Code)
	}
	cause := e.Err
	for next := cause; next != nil; next = errors.Unwrap(next) {
		cause = next // the innermost text has no ports, which differ
	}
	return fmt.Sprintf("%s %s: %v: %s", e.Op, e.Name.Bucket, cause, e.Cure)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Requested marks the error as that of a request, so that data.IsDamage does not treat it as damaged contents.
func (e *Error) Requested() {}

// Is makes the error of a missing object or bucket match fs.ErrNotExist.
func (e *Error) Is(target error) bool {
	return target == fs.ErrNotExist && e.Status == http.StatusNotFound
}

// Unavailable reports whether the request failed for another reason than a missing object. Another rank may then be
// able to read the object.
func (e *Error) Unavailable() bool { return e.Status != http.StatusNotFound }

// passes reports whether another try may succeed.
func (c *Client) passes(err error) bool {
	answer := minio.ToErrorResponse(err)
	status, code := answer.StatusCode, answer.Code
	if c.settings.region == "" && answer.Region != "" && (code == "AuthorizationHeaderMalformed" ||
		code == "InvalidRegion") {
		return true // the library has noted the region of the bucket
	}
	return passes(err, status, code)
}

func passes(err error, status int, code string) bool {
	switch code {
	case "SlowDown", "SlowDownRead", "SlowDownWrite", "RequestTimeout", "InternalError", "ServiceUnavailable",
		"Throttling", "ThrottlingException", "RequestLimitExceeded", "RequestThrottled", "BadDigest", "IncompleteBody":
		return true
	}
	if status > 0 && (status < 200 || status >= 300) {
		return status == http.StatusTooManyRequests || status == http.StatusRequestTimeout ||
			status >= 500 && status != http.StatusNotImplemented
	}
	if errors.Is(err, errChanged) || errors.Is(err, errCredentials) {
		return false
	}
	var url *url.Error
	var network net.Error
	var refused *net.OpError
	return errors.As(err, &url) || errors.As(err, &network) || errors.As(err, &refused) || errors.Is(err, errStuck) ||
		errors.As(err, new(*cutError)) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, os.ErrDeadlineExceeded)
}

// noConnection reports whether the server could not be reached.
func noConnection(err error) bool {
	var network *net.OpError
	return errors.As(err, new(*net.DNSError)) || errors.As(err, &network) && network.Op == "dial"
}

var errCredentials = errors.New("there are no credentials")

// explain returns the *Error of a failed operation.
func (c *Client) explain(op string, name Name, tries int, err error) error {
	answer := minio.ToErrorResponse(err)
	e := &Error{Op: op, Name: name, Tries: tries, Status: answer.StatusCode, Code: answer.Code, Err: plain(err),
		Passes: c.passes(err)}
	if e.Status > 0 {
		e.Err = fmt.Errorf("%d %s: %s", e.Status, e.Code, answer.Message)
	}
	place := c.host
	var address *net.OpError
	var dns *net.DNSError
	switch {
	case e.Code == "ExpiredToken" || e.Code == "TokenRefreshRequired" || e.Code == "InvalidToken":
		e.Cure = "get new credentials (AWS_SESSION_TOKEN), and resume the run"
	case e.Code == "InvalidAccessKeyId" || e.Code == "SignatureDoesNotMatch":
		e.Cure = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and that they belong to " + place
	case e.Code == "RequestTimeTooSkewed":
		e.Cure = "set the clock of this machine"
	case e.Code == "PermanentRedirect" || e.Code == "AuthorizationHeaderMalformed" || e.Code == "InvalidRegion" ||
		e.Status >= 300 && e.Status < 400:
		e.Cure = "the bucket is in another region: set AWS_REGION"
		if answer.Region != "" && answer.Region != c.settings.region {
			e.Cure += "=" + answer.Region
		}
	case e.Status == http.StatusPreconditionFailed:
		e.Err = errChanged
		e.Cure = "start again, or keep the objects of a data set unchanged while runs read them"
	case errors.Is(err, errChanged):
		e.Cure = "start again, or keep the objects of a data set unchanged while runs read them"
	case e.Status == http.StatusForbidden:
		e.Cure = "the credentials do not permit this request: permit " + permission[op] + " on this bucket"
		if op == "HEAD" { // the answer has no body that states the cause
			e.Cure = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and permit s3:GetObject and s3:ListBucket on this bucket"
		}
		if c.settings.unsigned {
			e.Cure = "the bucket is not public: unset AWS_NO_SIGN_REQUEST, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
		}
	case e.Code == "NoSuchBucket":
		e.Cure = "check the name of the bucket, and AWS_ENDPOINT_URL_S3: the server is " + place
	case e.Status == http.StatusNotFound:
		e.Cure = "check the name; the server is " + place
	case e.Status > 0:
	case errors.As(err, &dns):
		e.Cure = "check the network, and AWS_ENDPOINT_URL_S3: the server is " + place
	case errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &address) || errors.Is(err, errStuck):
		e.Cure = "check that the server runs, the network, and AWS_ENDPOINT_URL_S3: the server is " + place
	}
	if e.Status == 0 && c.settings.key == "" && !c.settings.unsigned && !errors.As(err, new(*cutError)) && !sentTo(err,
		c.host) {
		e.Err = fmt.Errorf("%w: the role of this machine gave none: %w", errCredentials, e.Err)
		e.Cure = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_NO_SIGN_REQUEST=true for a public bucket"
	}
	return e
}

// sentTo reports whether err is the error of a request to the host, rather than of a request for credentials.
func sentTo(err error, host string) bool {
	var u *url.Error
	if !errors.As(err, &u) {
		return errors.Is(err, errStuck) || errors.Is(err, errChanged)
	}
	at, parseErr := url.Parse(u.URL)
	return parseErr == nil && (at.Host == host || strings.HasSuffix(at.Host, "."+host) ||
		strings.Contains(at.Host, ".s3.") || strings.HasPrefix(at.Host, "s3."))
}

var permission = map[string]string{"HEAD": "s3:GetObject", "GET": "s3:GetObject", "LIST": "s3:ListBucket",
	"PUT": "s3:PutObject", "DELETE": "s3:DeleteObject"}

// plain returns the cause of an error of the transport. It leaves out the URL, which may contain a token.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
