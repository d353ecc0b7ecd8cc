package download

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
)

var body = bytes.Repeat([]byte("0123456789abcdef"), 40_000) // 640 kB

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// server serves body and counts requests. If handler is not nil, it handles the requests for which it returns true.
type server struct {
	*httptest.Server
	mu      sync.Mutex
	ranges  []string // Range header of each request
	handler func(n int, w http.ResponseWriter, r *http.Request) bool
}

func newServer(t *testing.T, handler func(n int, w http.ResponseWriter, r *http.Request) bool) *server {
	t.Helper()
	s := &server{handler: handler}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		n := len(s.ranges)
		s.ranges = append(s.ranges, r.Header.Get("Range"))
		s.mu.Unlock()
		if s.handler != nil && s.handler(n, w, r) {
			return
		}
		http.ServeContent(w, r, "file", time.Time{}, bytes.NewReader(body))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) request(t *testing.T) Request {
	return Request{URL: s.URL + "/file", SHA256: sum(body), MaxBytes: 1 << 20, Dir: filepath.Join(t.TempDir(), "cache"),
		Name:         "file",
		StartTimeout: patience, StallTimeout: patience}
}

// patience is a time-out that no step reaches, even on a busy machine.
const patience = time.Minute

// short is a time-out that a test waits for. On a busy machine, the steps before this wait can take longer than short.
const short = time.Second

func wantBody(t *testing.T, path string, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, body) {
		t.Fatalf("contents differ, %v", err)
	}
	if _, err := os.Stat(path + ".part"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the part is left: %v", err)
	}
}

// cutAfter sends the first n bytes of the requested range, then breaks the connection.
func cutAfter(w http.ResponseWriter, from, n int) {
	w.Header().Set("Content-Length", fmt.Sprint(len(body)-from))
	if from > 0 {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(body)-1, len(body)))
		w.WriteHeader(http.StatusPartialContent)
	}
	w.Write(body[from:][:n])
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

func TestFetchLoadsOnceAndServesFromTheFolderAfterwards(t *testing.T) {
	s := newServer(t, nil)
	q := s.request(t)
	var last int64
	q.Progress = func(done, total int64) {
		if last = done; total != int64(len(body)) {
			t.Errorf("total is %d", total)
		}
	}
	path, err := Fetch(t.Context(), q)
	wantBody(t, path, err)
	if last != int64(len(body)) {
		t.Errorf("the last report of progress says %d of %d", last, len(body))
	}
	path, err = Fetch(t.Context(), q)
	wantBody(t, path, err)
	if len(s.ranges) != 1 {
		t.Errorf("%d requests, want 1", len(s.ranges))
	}
}

func TestABrokenConnectionGoesOnWhereItStopped(t *testing.T) {
	s := newServer(t, func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n == 0 {
			cutAfter(w, 0, 100_000)
		}
		return false
	})
	path, err := Fetch(t.Context(), s.request(t))
	wantBody(t, path, err)
	if len(s.ranges) != 2 || s.ranges[1] != "bytes=100000-" {
		t.Errorf("ranges %q, want the second to begin at 100000", s.ranges)
	}
}

func TestANewProcessGoesOnWhereTheLastStopped(t *testing.T) {
	s := newServer(t, nil)
	q := s.request(t)
	for _, c := range []struct {
		name      string
		part      []byte
		wantRange string
		requests  int
	}{
		{"half", body[:300_000], "bytes=300000-", 1},
		{"all but the name", body, "bytes=640000-", 1},
		{"longer than the file", append(bytes.Clone(body), 1, 2, 3), "bytes=640003-", 2},
		{"longer than allowed", make([]byte, 2<<20), "", 1},
		{"other contents", make([]byte, 1000), "bytes=1000-", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			q.Dir = t.TempDir()
			s.ranges = nil
			if err := os.WriteFile(filepath.Join(q.Dir, "file.part"), c.part, 0o644); err != nil {
				t.Fatal(err)
			}
			path, err := Fetch(t.Context(), q)
			wantBody(t, path, err)
			if s.ranges[0] != c.wantRange || len(s.ranges) != c.requests {
				t.Errorf("ranges %q, want %d, the first %q", s.ranges, c.requests, c.wantRange)
			}
		})
	}
}

func TestAServerWithoutRangesStartsAgain(t *testing.T) {
	s := newServer(t, func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n == 0 {
			cutAfter(w, 0, 100_000)
		}
		w.Write(body)
		return true
	})
	path, err := Fetch(t.Context(), s.request(t))
	wantBody(t, path, err)
}

func TestAWrongRangeStartsAgain(t *testing.T) {
	s := newServer(t, func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n == 1 {
			cutAfter(w, 50, 10)
		}
		if n == 0 {
			cutAfter(w, 0, 100_000)
		}
		return false
	})
	path, err := Fetch(t.Context(), s.request(t))
	wantBody(t, path, err)
}

func TestAFileOfWrongContentsInTheFolderIsReplaced(t *testing.T) {
	s := newServer(t, nil)
	q := s.request(t)
	q.Dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(q.Dir, "file"), []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	path, err := Fetch(t.Context(), q)
	wantBody(t, path, err)
}

func TestAWrongFileIsAMismatchAndIsNotKept(t *testing.T) {
	for name, handler := range map[string]func(int, http.ResponseWriter, *http.Request) bool{
		"wrong hash": func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			fmt.Fprint(w, "something else")
			return true
		},
		"too long, announced": func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			w.Write(make([]byte, 2<<20))
			return true
		},
		"too long, unannounced": chunked,
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, handler)
			q := s.request(t)
			if _, err := Fetch(t.Context(), q); !errors.Is(err, ErrMismatch) || errors.Is(err, ErrUnavailable) {
				t.Errorf("got %v, want ErrMismatch", err)
			}
			if _, err := os.Stat(filepath.Join(q.Dir, "file")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a wrong file is kept: %v", err)
			}
			if len(s.ranges) != 1 {
				t.Errorf("%d requests, want 1", len(s.ranges))
			}
		})
	}
}

func chunked(_ int, w http.ResponseWriter, _ *http.Request) bool {
	for range 32 {
		w.Write(make([]byte, 1<<16))
		w.(http.Flusher).Flush()
	}
	return true
}

func TestWhatCannotBeHadIsUnavailableInTime(t *testing.T) {
	hang := func(_ int, w http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }
	headersOnly := func(_ int, w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Length", "640000")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	status := func(code int) func(int, http.ResponseWriter, *http.Request) bool {
		return func(_ int, w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(code); return true }
	}
	for _, c := range []struct {
		name     string
		handler  func(int, http.ResponseWriter, *http.Request) bool
		url      string
		start    time.Duration // StartTimeout
		want     string
		requests int
	}{
		{"no server", nil, "http://" + porttest.Refusing(t) + "/file", patience, "refused", 0},
		{"unknown host", nil, "http://host.invalid/file", time.Second, "host.invalid", 0},
		{"silent server", hang, "", short, "sent no data", 1},
		{"silent after the headers", headersOnly, "", short, "sent no data", 1},
		{"not found", status(404), "", patience, "404", 1},
		{"forbidden", status(403), "", patience, "403", 1},
		{"overloaded", status(503), "", patience, "503", 1 + startFailures},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for limit := c.start; ; limit *= 20 {
				s := newServer(t, c.handler)
				q := s.request(t)
				q.StartTimeout = limit
				if c.url != "" {
					q.URL = c.url
				}
				_, err := Fetch(t.Context(), q)
				if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want ErrUnavailable with %q", err, c.want)
				}
				s.mu.Lock()
				requests := len(s.ranges)
				s.mu.Unlock()
				if limit == short && requests == 0 {
					continue // the machine is busy: the request did not arrive within the time-out
				}
				if requests != c.requests {
					t.Errorf("%d requests, want %d", requests, c.requests)
				}
				break
			}
		})
	}
}

func TestADownloadThatStallsForGoodIsUnavailableInTime(t *testing.T) {
	headers := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "540000")
		w.Header().Set("Content-Range", "bytes 100000-639999/640000")
		w.WriteHeader(http.StatusPartialContent)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	for name, after := range map[string]func(http.ResponseWriter, *http.Request){
		"silence":                      func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"silence after the headers":    headers,
		"connections that end at once": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"an overloaded server": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		},
		"bytes that were there, no more": func(w http.ResponseWriter, _ *http.Request) { cutAfter(w, 0, 100_000) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for limit := 2 * short; ; limit *= 20 {
				s := newServer(t, func(n int, w http.ResponseWriter, r *http.Request) bool {
					if n == 0 {
						cutAfter(w, 0, 100_000)
					}
					after(w, r)
					return true
				})
				q := s.request(t)
				q.StartTimeout, q.StallTimeout = patience, limit
				if _, err := Fetch(t.Context(), q); !errors.Is(err, ErrUnavailable) {
					t.Errorf("got %v, want ErrUnavailable", err)
				}
				part, err := os.Stat(filepath.Join(q.Dir, "file.part"))
				if limit == 2*short && err == nil && part.Size() < 100_000 {
					continue // the machine is busy: the first bytes did not arrive within the time-out
				}
				if err != nil || part.Size() != 100_000 {
					t.Errorf("the part is %v, %v, want 100000 bytes for the next download", part, err)
				}
				break
			}
		})
	}
}

// stallingServer sends 200,000 bytes to the first request, calls sent, and then sends nothing.
func stallingServer(t *testing.T, sent func()) *server {
	t.Helper()
	return newServer(t, func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n > 0 {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.Write(body[:200_000])
		w.(http.Flusher).Flush()
		sent()
		<-r.Context().Done()
		return true
	})
}

func TestAStallInTheMiddleIsMadeGoodByANewConnection(t *testing.T) {
	for limit := 2 * short; ; limit *= 20 {
		s := stallingServer(t, func() {})
		q := s.request(t)
		q.StartTimeout, q.StallTimeout = patience, limit
		path, err := Fetch(t.Context(), q)
		if limit == 2*short && errors.Is(err, ErrUnavailable) {
			continue // the machine is busy: the new connection took longer than the time-out
		}
		wantBody(t, path, err)
		break
	}
}

func TestASlowServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	for limit := short; ; limit *= 20 { // a busy machine needs a longer limit
		s := newServer(t, func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
			for at := 0; at < len(body); at += len(body) / 8 {
				w.Write(body[at:][:len(body)/8])
				w.(http.Flusher).Flush()
				time.Sleep(limit * 3 / 20)
			}
			return true
		})
		q := s.request(t)
		q.StartTimeout, q.StallTimeout = limit, limit // shorter than the time of the download
		path, err := Fetch(t.Context(), q)
		if limit == short && errors.Is(err, ErrUnavailable) {
			continue
		}
		wantBody(t, path, err)
		break
	}
}

func TestACancelledDownloadKeepsItsPart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var part string
	s := stallingServer(t, func() {
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if info, err := os.Stat(part); err == nil && info.Size() == 200_000 {
				break
			}
		}
		cancel()
	})
	q := s.request(t)
	part = filepath.Join(q.Dir, "file.part")
	if _, err := Fetch(ctx, q); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	path, err := Fetch(t.Context(), q)
	wantBody(t, path, err)
	if s.ranges[1] != "bytes=200000-" {
		t.Errorf("the second download asked for %q", s.ranges[1])
	}
}

func TestConcurrentFetchesLoadOnce(t *testing.T) {
	s := newServer(t, nil)
	q := s.request(t)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			if _, err := Fetch(t.Context(), q); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if len(s.ranges) != 1 {
		t.Errorf("%d requests, want 1", len(s.ranges))
	}
}

func TestARedirectionToPlainHTTPIsRefused(t *testing.T) {
	https, err := http.NewRequest("GET", "https://a/", nil)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := http.NewRequest("GET", "http://a/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if noDowngrade(plain, []*http.Request{https}) == nil || noDowngrade(https, []*http.Request{plain}) != nil {
		t.Error("want https to http refused, and http to https followed")
	}
}
