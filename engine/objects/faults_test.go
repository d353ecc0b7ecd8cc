package objects

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/objects/s3test"
)

// A server sends the start of a list, and then nothing. List must return as soon as its context ends.
func TestAListEndsWithItsContext(t *testing.T) {
	s, c := open(t)
	s.Store("data", "x", []byte("0123456789"))
	s.Inject(func(r s3test.Request) *s3test.Fault { return &s3test.Fault{Cut: 60, Hold: true} })
	stop := errors.New("stop")
	ctx, end := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, stop)
	defer end()
	done := make(chan error, 1)
	go func() {
		_, err := c.List(ctx, Name{"data", "x"})
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, stop) {
			t.Errorf("got %v, want the end of the context", err)
		}
	case <-time.After(time.Minute):
		t.Error("List did not return")
	}
}

func TestAListContinuesAfterAFailedPage(t *testing.T) {
	s, c := open(t)
	for _, key := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		s.Store("data", "x/"+key, []byte(key))
	}
	var requests atomic.Int64
	s.Inject(func(r s3test.Request) *s3test.Fault {
		if requests.Add(1)%3 == 0 {
			return &s3test.Fault{Status: 503, Code: "SlowDown"}
		}
		return nil
	})
	list, err := c.List(t.Context(), Name{"data", "x/"})
	var keys strings.Builder
	for _, o := range list {
		keys.WriteString(strings.TrimPrefix(o.Name.Key, "x/"))
	}
	if err != nil || keys.String() != "abcdefghijklmnopqrstuvwxyz" {
		t.Errorf("got %s, %v", &keys, err)
	}
}

// If an object is removed after Stat, the error must not be fs.ErrNotExist. Otherwise, the samples of the object would
// count as unreadable.
func TestARemovedObjectHasChanged(t *testing.T) {
	s, c, info := stored(t)
	s.Forget("data", "x", "")
	err := c.ReadRange(t.Context(), info, 0, make([]byte, 4))
	var failed *Error
	if !errors.Is(err, errChanged) || errors.Is(err, fs.ErrNotExist) || !errors.As(err, &failed) ||
		!failed.Unavailable() || failed.Passes {
		t.Errorf("got %v", err)
	}
}

func TestACompletedUploadIsKnownByItsMark(t *testing.T) {
	s, c := open(t)
	s.OddETags()
	body := bytes.Repeat([]byte("a"), partBytes+1)
	var lost atomic.Bool
	s.Inject(func(r s3test.Request) *s3test.Fault {
		if r.Method == "POST" && r.Query.Has("uploadId") && !lost.Swap(true) {
			return &s3test.Fault{Lose: true}
		}
		return nil
	})
	if err := c.Put(t.Context(), Name{"data", "x"}, bytes.NewReader(body), int64(len(body))); err != nil {
		t.Errorf("got %v, want no error: the server has completed the upload", err)
	}
	if !lost.Load() || len(s.Body("data", "x")) != len(body) {
		t.Errorf("the object has %d bytes", len(s.Body("data", "x")))
	}
	// The server no longer knows the upload. The object that exists is that of another upload, and must not count as
	// success.
	s.Inject(func(r s3test.Request) *s3test.Fault {
		if r.Method == "POST" && r.Query.Has("uploadId") {
			return &s3test.Fault{Status: 404, Code: "NoSuchUpload"}
		}
		return nil
	})
	if err := c.Put(t.Context(), Name{"data", "x"}, bytes.NewReader(body), int64(len(body))); err == nil {
		t.Error("got no error")
	}
}

func TestReplaceStoresOnlyInPlaceOfTheExpectedObject(t *testing.T) {
	s, c := open(t)
	x := Name{"data", "x"}
	for _, step := range []struct {
		text, etag string
		want       error
	}{{"one", "", nil}, {"two", "", ErrReplaced}, {"three", "0123", ErrReplaced}} {
		if err := c.Replace(t.Context(), x, []byte(step.text), step.etag); !errors.Is(err, step.want) {
			t.Errorf("%s: got %v, want %v", step.text, err, step.want)
		}
	}
	p, etag, err := c.ReadTagged(t.Context(), x, 100)
	if err != nil || string(p) != "one" {
		t.Fatalf("got %q, %v", p, err)
	}
	if err := c.Replace(t.Context(), x, []byte("four"), etag); err != nil || string(s.Body("data", "x")) != "four" {
		t.Errorf("got %v, %q", err, s.Body("data", "x"))
	}
	s.Inject(func(r s3test.Request) *s3test.Fault {
		if r.Method == "PUT" && r.Condition != "" {
			return &s3test.Fault{Status: 501, Code: "NotImplemented"}
		}
		return nil
	})
	if err := c.Replace(t.Context(), x, []byte("five"), ""); err != nil || string(s.Body("data", "x")) != "five" {
		t.Errorf("a server without conditions: got %v, %q", err, s.Body("data", "x"))
	}
}
