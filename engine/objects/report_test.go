package objects

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/objects/s3test"
)

// lines is a log that several goroutines write.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func logged(t *testing.T) *lines {
	l := new(lines)
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

// A command asks for several objects to find out what they are. Only the first request waits for the server.
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

func TestASlowBodyIsNotReported(t *testing.T) {
	s, c := open(t)
	s.Store("data", "x", []byte("0123456789"))
	info, err := c.Stat(t.Context(), Name{"data", "x"})
	if err != nil {
		t.Fatal(err)
	}
	log := logged(t)
	c.quiet = 200 * time.Millisecond
	s.Inject(func(r s3test.Request) *s3test.Fault { return nil })
	if err := c.ReadRange(t.Context(), info, 0, make([]byte, 10)); err != nil || log.String() != "" {
		t.Errorf("%v, %q", err, log)
	}
}
