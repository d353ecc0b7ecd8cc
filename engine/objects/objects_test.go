package objects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/objects/s3test"
)

// open returns a server and a client of it. Between attempts, the client waits only briefly.
func open(t *testing.T) (*s3test.Server, *Client) {
	t.Helper()
	s := s3test.New(t)
	c, err := Shared()
	if err != nil {
		t.Fatal(err)
	}
	c.wait = time.Millisecond
	return s, c
}

func TestAnObjectIsWrittenAndReadInRanges(t *testing.T) {
	s, c := open(t)
	ctx := t.Context()
	body := make([]byte, 2*partBytes+12345)
	for i := range body {
		body[i] = byte(i * 7 >> 3)
	}
	for _, name := range []string{"a/b c+d=é.bin", "x"} {
		n := Name{"data", name}
		for _, size := range []int{0, 1, 1000, partBytes, len(body)} {
			if err := c.Put(ctx, n, bytes.NewReader(body[:size]), int64(size)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(s.Body("data", name), body[:size]) {
				t.Fatalf("%s: the server has other bytes", name)
			}
			info, err := c.Stat(ctx, n)
			if err != nil || info.Size != int64(size) || info.ETag == "" {
				t.Fatalf("%s: %+v, %v", name, info, err)
			}
			for _, at := range []int{0, size / 3, max(size-1, 0)} {
				p := make([]byte, min(1000, size-at))
				if err := c.ReadRange(ctx, info, int64(at), p); err != nil || !bytes.Equal(p, body[at:at+len(p)]) {
					t.Fatalf("%s, byte %d: %v", name, at, err)
				}
			}
		}
	}
	if n := s.Uploads(); n != 0 {
		t.Errorf("%d uploads were not completed", n)
	}
	if err := c.Delete(ctx, Name{"data", "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stat(ctx, Name{"data", "x"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
}

// stored returns a server with an object of ten bytes, and a client of the server.
func stored(t *testing.T) (*s3test.Server, *Client, Info) {
	t.Helper()
	s, c := open(t)
	s.Store("data", "x", []byte("0123456789"))
	info, err := c.Stat(t.Context(), Name{"data", "x"})
	if err != nil {
		t.Fatal(err)
	}
	return s, c, info
}

func TestAListHasAllPages(t *testing.T) {
	s, c := open(t)
	for i := range 23 {
		s.Store("data", fmt.Sprintf("set/%02d.tar", i), []byte("x"))
	}
	s.Store("data", "settings", nil)
	list, err := c.List(t.Context(), Name{"data", "set/"})
	if err != nil || len(list) != 23 || list[22].Name.Key != "set/22.tar" {
		t.Fatalf("%d objects, %v", len(list), err)
	}
}

func TestPassingFaultsAreTriedAgain(t *testing.T) {
	s, c, info := stored(t)
	for _, fault := range []s3test.Fault{{Status: 503, Code: "SlowDown"}, {Status: 500, Code: "InternalError"},
		{Status: 429, Code: "Throttling"}, {Cut: 3}, {Cut: 0}, {Close: true}} {
		var failures atomic.Int64
		s.Inject(func(r s3test.Request) *s3test.Fault {
			if failures.Add(1) < mostTries {
				return &fault
			}
			return nil
		})
		p := make([]byte, 10)
		if err := c.ReadRange(t.Context(), info, 0, p); err != nil || string(p) != "0123456789" {
			t.Errorf("%+v: %q, %v", fault, p, err)
		}
		failures.Store(-100)
		err := c.ReadRange(t.Context(), info, 0, p)
		var e *Error
		if !errors.As(err, &e) || e.Tries != mostTries || !strings.Contains(err.Error(), "s3://data/x") {
			t.Errorf("%+v: got %v after %d requests, want an error after %d tries", fault, err, failures.Load()+100,
				mostTries)
		}
	}
}

func TestErrorsNameTheCure(t *testing.T) {
	s, c, info := stored(t)
	for _, k := range []struct {
		fault s3test.Fault
		want  string
	}{
		{s3test.Fault{Status: 403, Code: "AccessDenied: no"}, "GET s3://data/x: 403 AccessDenied: no: the credentials do not permit this request: permit s3:GetObject"},
		{s3test.Fault{Status: 400, Code: "ExpiredToken"}, "get new credentials (AWS_SESSION_TOKEN)"},
		{s3test.Fault{Status: 403, Code: "SignatureDoesNotMatch"}, "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"},
		{s3test.Fault{Status: 400, Code: "AuthorizationHeaderMalformed", Region: "eu-west-1"}, "set AWS_REGION=eu-west-1"},
		{s3test.Fault{Status: 301, Code: "PermanentRedirect", Region: "eu-west-1"}, "set AWS_REGION=eu-west-1"},
		{s3test.Fault{Status: 404, Code: "NoSuchBucket"}, "check the name of the bucket"},
		{s3test.Fault{Status: 412, Code: "PreconditionFailed"}, "the object has changed"},
		{s3test.Fault{Status: 403, Code: "RequestTimeTooSkewed"}, "set the clock"},
	} {
		requests := 0
		s.Inject(func(s3test.Request) *s3test.Fault { requests++; return &k.fault })
		err := c.ReadRange(t.Context(), info, 0, make([]byte, 4))
		if err == nil || !strings.Contains(err.Error(), k.want) {
			t.Errorf("%+v: got %v, want %q", k.fault, err, k.want)
		}
		if requests != 1 {
			t.Errorf("%+v: %d requests, want 1", k.fault, requests)
		}
	}
	s.Inject(nil)
	s.Store("data", "x", []byte("other text"))
	if err := c.ReadRange(t.Context(), info, 0, make([]byte, 4)); !errors.Is(err, errChanged) {
		t.Errorf("got %v, want errChanged", err)
	}
	s.Close()
	if _, err := c.Stat(t.Context(), Name{"data", "x"}); err == nil || !strings.Contains(err.Error(), "refused") ||
		!strings.Contains(err.Error(), "AWS_ENDPOINT_URL_S3") || strings.Contains(err.Error(), s3test.Secret) {
		t.Errorf("got %v", err)
	}
}

func TestRequestsInFlightAreBounded(t *testing.T) {
	s, c, info := stored(t)
	var now, most atomic.Int64
	s.Inject(func(s3test.Request) *s3test.Fault {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(time.Millisecond)
		now.Add(-1)
		return nil
	})
	var all sync.WaitGroup
	for range 4 * mostInFlight {
		all.Go(func() {
			if err := c.ReadRange(t.Context(), info, 0, make([]byte, 10)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if most.Load() > mostInFlight || most.Load() < 2 {
		t.Errorf("%d requests in flight, want 2 to %d", most.Load(), mostInFlight)
	}
}

func TestAFailedUploadIsAborted(t *testing.T) {
	s, c := open(t)
	s.Store("data", "x", []byte("old"))
	s.Inject(func(r s3test.Request) *s3test.Fault {
		if r.Query.Get("partNumber") == "2" {
			return &s3test.Fault{Status: 403, Code: "AccessDenied"}
		}
		return nil
	})
	body := make([]byte, 3*partBytes)
	err := c.Put(t.Context(), Name{"data", "x"}, bytes.NewReader(body), int64(len(body)))
	if err == nil || !strings.Contains(err.Error(), "s3:PutObject") {
		t.Errorf("got %v", err)
	}
	if s.Uploads() != 0 || string(s.Body("data", "x")) != "old" {
		t.Errorf("%d open uploads; the object is %.10q", s.Uploads(), s.Body("data", "x"))
	}
}

func TestCredentialsGoOnlyToTheEndpointOfTheEnvironment(t *testing.T) {
	_, c := open(t)
	visited := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visited = true }))
	defer other.Close()
	for _, text := range []string{"s3://" + strings.TrimPrefix(other.URL, "http://") + "/x",
		"s3://key:secret@" + strings.TrimPrefix(other.URL, "http://") + "/x", "s3://data@evil/x", "s3://data/x?endpoint=" + other.URL,
		"s3://data/../x", "s3://da/x", "s3://"} {
		if name, err := Parse(text); err == nil {
			t.Errorf("%s: got %v, want an error", text, name)
		} else if strings.Contains(err.Error(), "secret@") {
			t.Errorf("the error contains a secret: %v", err)
		}
	}
	// If the server redirects the client to another server, the client must not follow.
	redirect := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer redirect.Close()
	t.Setenv("AWS_ENDPOINT_URL_S3", redirect.URL)
	c2, err := Shared()
	if err != nil || c2 == c {
		t.Fatal(c2, err)
	}
	if _, err := c2.Stat(t.Context(), Name{"data", "x"}); err == nil || visited {
		t.Errorf("got %v; the other server was visited: %v", err, visited)
	}
}

func TestSettingsOfTheEnvironment(t *testing.T) {
	for _, k := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"AWS_ACCESS_KEY_ID": "a"}, "one of them is set"},
		{map[string]string{"AWS_EC2_METADATA_DISABLED": "true"}, "there are no credentials"},
		{map[string]string{"AWS_NO_SIGN_REQUEST": "YES"}, ""},
		{map[string]string{"AWS_EC2_METADATA_DISABLED": "true", "AWS_WEB_IDENTITY_TOKEN_FILE": "/x"}, ""},
		{map[string]string{"AWS_NO_SIGN_REQUEST": "1", "AWS_ENDPOINT_URL": "storage:9000"}, "want the URL of a server"},
		{map[string]string{"AWS_NO_SIGN_REQUEST": "1", "AWS_ENDPOINT_URL": "https://u:p@storage"}, "want the URL of a server"},
	} {
		s, err := settingsOf(func(name string) string { return k.env[name] })
		if err == nil {
			_, _, err = s.server()
		}
		if text := fmt.Sprint(err); k.want == "" && err != nil || !strings.Contains(text, k.want) {
			t.Errorf("%v: got %v, want %q", k.env, err, k.want)
		}
	}
	s, _ := settingsOf(func(name string) string {
		return map[string]string{"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "http://b:1",
			"AWS_NO_SIGN_REQUEST": "1"}[name]
	})
	if host, secure, err := s.server(); host != "b:1" || secure || err != nil {
		t.Error(host, secure, err)
	}
}

func TestAWebIdentityGivesCredentials(t *testing.T) {
	s, _ := open(t)
	container := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer-token" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, `{"Code":"Success","AccessKeyId":%q,"SecretAccessKey":%q,"Token":"t","Expiration":%q}`,
			s3test.KeyID, s3test.Secret, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	defer container.Close()
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", container.URL)
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Bearer-token")
	s.Store("data", "x", []byte("1"))
	c, err := Shared()
	if err != nil {
		t.Fatal(err)
	}
	c.wait = time.Millisecond
	if _, err := c.Stat(t.Context(), Name{"data", "x"}); err != nil {
		t.Error(err)
	}
	container.Close()
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "other") // the new client has no stored credentials
	c, err = newClient(c.settings)
	if err != nil {
		t.Fatal(err)
	}
	c.wait = time.Millisecond
	if _, err := c.Stat(t.Context(), Name{"data", "x"}); err == nil || !strings.Contains(err.Error(), "no credentials") {
		t.Errorf("got %v", err)
	}
}

func TestACancelledReadEnds(t *testing.T) {
	s, c, info := stored(t)
	ctx, stop := context.WithCancel(t.Context())
	s.Inject(func(s3test.Request) *s3test.Fault { stop(); return &s3test.Fault{Status: 503, Code: "SlowDown"} })
	if err := c.ReadRange(ctx, info, 0, make([]byte, 4)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestALostAnswerOfACompletedUploadIsNoError(t *testing.T) {
	s, c := open(t)
	lost := false
	s.Inject(func(r s3test.Request) *s3test.Fault {
		if r.Method == http.MethodPost && r.Query.Has("uploadId") && !lost {
			lost = true
			return &s3test.Fault{Cut: 0}
		}
		return nil
	})
	body := bytes.Repeat([]byte("parts"), partBytes/3)
	if err := c.Put(t.Context(), Name{"data", "x"}, bytes.NewReader(body), int64(len(body))); err != nil || !lost {
		t.Fatal(err, lost)
	}
	if !bytes.Equal(s.Body("data", "x"), body) {
		t.Error("the server has other bytes")
	}
}
