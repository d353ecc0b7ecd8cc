package objects

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetero-train/hetero-train/engine/logtest"
	"github.com/hetero-train/hetero-train/engine/objects/s3test"
)

func logged(t *testing.T) *logtest.Buffer {
	l := new(logtest.Buffer)
	LogTo(slog.New(slog.NewTextHandler(l, nil)))
	t.Cleanup(func() { LogTo(nil) })
	return l
}

func TestAServerThatDoesNotAnswerIsReported(t *testing.T) {
	s, c := open(t)
	s.Store("data", "x", []byte("0123456789"))
	log := logged(t)
	c.quiet, c.wait = 10*time.Millisecond, 5*time.Millisecond
	s.Inject(func(r s3test.Request) *s3test.Fault { return &s3test.Fault{Lose: true} })
	begun := time.Now()
	if _, err := c.Stat(t.Context(), Name{"data", "x"}); err == nil || !strings.Contains(err.Error(), "(8 tries)") {
		t.Fatalf("got %v", err)
	}
	text := log.String()
	for _, part := range []string{"does not answer: HEAD s3://data/x, try ", " of 8", "cause=", "gives_up_within_seconds=",
		c.host} {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
	if n := strings.Count(text, "\n"); n != 1 && time.Since(begun) < every {
		t.Errorf("%d reports, want one within %v:\n%s", n, every, text)
	}
}

// A command asks for several objects to find out what they are. If the server is unreachable, only the first request
// may try again.
func TestAfterAServerWithoutConnectionRequestsFailAtOnce(t *testing.T) {
	c, err := newClient(settings{endpoint: "http://127.0.0.1:1", key: "a", secret: "b"})
	if err != nil {
		t.Fatal(err)
	}
	c.wait = time.Millisecond
	for i, want := range []int64{mostTries, 1, 1} {
		before := c.Traffic().Requests
		_, err := c.Stat(t.Context(), Name{"data", "x"})
		if n := c.Traffic().Requests - before; err == nil || n != want ||
			!strings.Contains(err.Error(), "the server is 127.0.0.1:1") {
			t.Errorf("request %d: tried %d times, want %d: %v", i, n, want, err)
		}
	}
	c.born = c.born.Add(-2 * goneTime)
	before := c.Traffic().Requests
	if _, err := c.Stat(t.Context(), Name{"data", "x"}); err == nil || c.Traffic().Requests != before+mostTries {
		t.Errorf("later: tried %d times", c.Traffic().Requests-before)
	}
}

// After an answer, the server counts as reachable, and requests are tried again. Writes are always tried again.
func TestOnlyHeadAndListFailAtOnceAndOnlyUntilAnAnswer(t *testing.T) {
	s, c := open(t)
	s.Store("data", "x", []byte("0123456789"))
	gone := func() { c.gone.Store(max(c.age(), 1)) }
	broken := func() func() {
		s.Inject(func(r s3test.Request) *s3test.Fault { return &s3test.Fault{Close: true} })
		before := c.Traffic().Retries
		gone()
		return func() {
			t.Helper()
			if n := c.Traffic().Retries - before; n != mostTries-1 {
				t.Errorf("tried again %d times, want %d", n, mostTries-1)
			}
		}
	}
	check := broken()
	if err := c.PutBytes(t.Context(), Name{"data", "y"}, []byte("1")); err == nil {
		t.Error("the server closes all connections, and an object is stored")
	}
	check()
	check = broken()
	if err := c.Delete(t.Context(), Name{"data", "x"}); err == nil {
		t.Error("the server closes all connections, and an object is deleted")
	}
	check()
	s.Inject(nil)
	gone()
	if _, err := c.Stat(t.Context(), Name{"data", "x"}); err != nil || c.gone.Load() != 0 {
		t.Errorf("after an answer: %d, %v", c.gone.Load(), err)
	}
	failures := 2
	s.Inject(func(r s3test.Request) *s3test.Fault {
		if failures--; failures < 0 {
			return nil
		}
		return &s3test.Fault{Close: true}
	})
	if _, err := c.Stat(t.Context(), Name{"data", "x"}); err != nil {
		t.Errorf("after an answer, a request is not tried again: %v", err)
	}
}

func TestTheTimeToGiveUpIsThatOfTheOperation(t *testing.T) {
	c, err := newClient(settings{endpoint: "http://127.0.0.1:1", key: "a", secret: "b"})
	if err != nil {
		t.Fatal(err)
	}
	c.wait = time.Second
	dial := error(&net.OpError{Op: "dial", Err: errors.New("refused")})
	other := errors.New("the body ended early")
	for _, k := range []struct {
		most  int
		tries int64
		limit time.Duration
		last  error
		want  time.Duration
	}{
		{1, 1, answerTime, nil, answerTime},
		{1, 1, answerTime, dial, connectTime},
		{8, 8, completeTime, other, completeTime},
		{8, 7, answerTime, dial, 2*connectTime + longestWait},
		{4, 1, answerTime, other, 4*answerTime + 7*time.Second}, // the client waits 1, 2 and 4 s between attempts
	} {
		w := &waiting{most: k.most, limit: k.limit}
		w.tries.Store(k.tries)
		if k.last != nil {
			w.last.Store(&k.last)
		}
		if got := c.givesUp(w); got != k.want {
			t.Errorf("%+v: got %v", k, got)
		}
		if w.until = time.Now().Add(time.Second); c.givesUp(w) > time.Second {
			t.Errorf("%+v: %v, but the context ends after 1 s", k, c.givesUp(w))
		}
	}
}

// slow is a transport that transfers a body in pieces. It pauses before each piece.
type slow struct {
	pause   time.Duration
	stalled bool // it transfers nothing during the pauses, then the whole body at once
}

const pieces = 10

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.stalled {
		time.Sleep(pieces * s.pause)
		s.pause = 0
	}
	if _, err := io.Copy(io.Discard, slowly{r.Body, s.pause}); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(slowly{strings.NewReader("0123456789"),
		s.pause})}, nil
}

// slowly reads one byte at a time, with a pause before each.
type slowly struct {
	io.Reader
	pause time.Duration
}

func (s slowly) Read(p []byte) (int, error) {
	time.Sleep(s.pause)
	return s.Reader.Read(p[:1])
}

// The test uses the fake clock of synctest, so the load of the machine does not affect it.
func TestASlowBodyIsNotReported(t *testing.T) { synctest.Test(t, slowBody) }

func slowBody(t *testing.T) {
	c, err := newClient(settings{endpoint: "http://127.0.0.1:1", key: "a", secret: "b"})
	if err != nil {
		t.Fatal(err)
	}
	c.quiet = 250 * time.Millisecond // a body takes four times as long
	for _, stalled := range []bool{false, true} {
		c.reported.Store(0)
		log := logged(t)
		next := slow{4 * c.quiet / pieces, stalled}
		err := c.do(t.Context(), "PUT", Name{"data", "x"}, 0, func(ctx context.Context) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://x/", strings.NewReader("0123456789"))
			if err != nil {
				return err
			}
			resp, err := counting{next: next, c: c}.RoundTrip(r)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
			}
			return err
		})
		if reported := log.String() != ""; err != nil || reported != stalled {
			t.Errorf("stalled %v: %v, %q", stalled, err, log)
		}
	}
}
