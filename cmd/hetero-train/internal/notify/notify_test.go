package notify

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetero-train/hetero-train/balancer/straggler"
	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/logtest"
	"github.com/hetero-train/hetero-train/engine/train"
)

func open(t *testing.T, o Options) (*Sender, *logtest.Buffer) {
	t.Helper()
	var out logtest.Buffer
	o.Events, o.Log = config.NotifyEvents, slog.New(slog.NewTextHandler(&out, nil))
	o.Hide = func(text string) string { return strings.ReplaceAll(text, "s3cr3t-value", "[redacted]") }
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s, &out
}

func TestAProgramGetsTheEvent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "event")
	s, out := open(t, Options{Command: []string{"sh", "-c", `cat > "$0"`, file}})
	code, loss := 4, 1.5
	s.Send(Event{Event: Diverged, Run: "run", Step: 12, Loss: &loss, Exit: &code,
		Message: "token s3cr3t-value is in the text"})
	s.Close()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err, out)
	}
	if !strings.HasSuffix(string(text), "}\n") {
		t.Errorf("got %q, want one line", text)
	}
	var got Event
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != 1 || got.Event != Diverged || got.Run != "run" || got.Step != 12 || *got.Loss != 1.5 ||
		*got.Exit != 4 || got.Rank != nil ||
		got.Message != "token [redacted] is in the text" {
		t.Errorf("got %s", text)
	}
}

func TestFailuresOfAProgram(t *testing.T) {
	for _, c := range []struct{ script, says string }{
		{"echo wrong s3cr3t-value; exit 3", "exit status 3: wrong [redacted]"},
		{"yes | head -c 1000000; exit 1", "exit status 1"},
	} {
		s, out := open(t, Options{Command: []string{"sh", "-c", c.script}})
		s.Send(Event{Event: Finished})
		s.Close()
		if text := out.String(); !strings.Contains(text, c.says) || strings.Contains(text, "s3cr3t") ||
			len(text) > 4*mostOutput || strings.Count(text, "WARN") != 1 {
			t.Errorf("%s: got %.300q, want one warning with %q", c.script, text, c.says)
		}
	}
}

// A program that never ends must be killed after its time-out, even if its child keeps the output open.
func TestAProgramThatHangsIsKilled(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	var text []byte
	for _, limit := range []time.Duration{300 * time.Millisecond, 3 * time.Second, 30 * time.Second} {
		// On a busy machine, the program needs a longer time-out to start its child.
		s, out := open(t, Options{Command: []string{"sh", "-c", `sleep 1000 & echo $! > "$0"; wait`, pid},
			Timeout: limit})
		s.Send(Event{Event: Finished})
		s.Close()
		if text := out.String(); !strings.Contains(text, "did not end within "+limit.String()) {
			t.Errorf("got %q", text)
		}
		if text, _ = os.ReadFile(pid); len(text) > 0 { // the program has started its child
			break
		}
	}
	if len(text) == 0 {
		t.Fatal("the program did not start its child within its time-out")
	}
	// The kernel kills the process some time after the call. The limit allows for a very busy machine.
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(text)) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			// The child is a zombie: its parent, which is another process, has not read its status.
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the child of the program still runs: %s", stat)
		}
	}
}

func TestAWebhookIsTriedAgain(t *testing.T) {
	defer func(usual http.RoundTripper) { http.DefaultTransport = usual }(http.DefaultTransport)
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int64
		s, out := open(t, Options{Webhook: "http://host/s3cr3t-path"})
		http.DefaultTransport = roundTrip(func(r *http.Request) (*http.Response, error) {
			code := http.StatusServiceUnavailable
			if requests.Add(1) == 3 {
				code = http.StatusNoContent
			}
			return &http.Response{StatusCode: code, Status: http.StatusText(code),
				Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
		})
		s.Send(Event{Event: Failed})
		synctest.Wait()
		time.Sleep(firstPause + 2*firstPause) // this is time of the test's fake clock
		synctest.Wait()
		s.Close()
		if n := requests.Load(); n != 3 || out.String() != "" {
			t.Errorf("got %d requests and %q, want 3 and no warning", n, out)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAWebhookThatRefuses(t *testing.T) {
	defer func(usual http.RoundTripper) { http.DefaultTransport = usual }(http.DefaultTransport)
	http.DefaultTransport = &http.Transport{}
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
			return
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	for _, path := range []string{"/s3cr3t-path", "/moved"} {
		requests.Store(0)
		s, out := open(t, Options{Webhook: server.URL + path})
		s.Send(Event{Event: Finished})
		s.Close()
		if text := out.String(); requests.Load() != 1 || !strings.Contains(text, "the receiver answered") ||
			strings.Contains(text, path) {
			t.Errorf("%s: got %d requests and %q, want one request and a warning without the path", path,
				requests.Load(), text)
		}
	}
}

// One receiver accepts connections and never answers; at another address, no server listens. Neither Send nor the end
// of the run may wait longer than the time-out.
func TestSlowAndDeadReceivers(t *testing.T) {
	defer func(usual http.RoundTripper) { http.DefaultTransport = usual }(http.DefaultTransport)
	http.DefaultTransport = &http.Transport{}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, address := range []string{silent.Addr().String(), porttest.Refusing(t)} {
		s, out := open(t, Options{Webhook: "http://" + address + "/s3cr3t-path", Timeout: 200 * time.Millisecond})
		for range 10 * mostWaiting {
			s.Send(Event{Event: Straggler}) // if Send waited, this would block forever
		}
		s.Close() // if Close waited, this would block forever
		text := out.String()
		if !strings.Contains(text, "was not reported") ||
			!strings.Contains(text, "events were not reported, because the receiver is too slow") ||
			strings.Contains(text, "s3cr3t-path") {
			t.Errorf("got %q, want warnings without the address", text)
		}
		s.Send(Event{Event: Straggler}) // after Close, Send ignores events
	}
}

func TestSettingsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		o    Options
		says string
	}{
		{Options{Command: []string{"no-such-program"}}, "notify.command"},
		{Options{Webhook: "ftp://host/s3cr3t"}, "notify.webhook: want an address"},
		{Options{Webhook: "host/s3cr3t"}, "notify.webhook: want an address"},
		{Options{Webhook: "https://me:s3cr3t@host/"}, "without user:password@"},
	} {
		if _, err := Open(c.o); err == nil || !strings.Contains(err.Error(), c.says) ||
			strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%+v: got %v, want an error with %q and without the address", c.o, err, c.says)
		}
	}
}

// collected returns a sender that keeps the events in its queue.
func collected(t *testing.T) *Sender {
	_, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return &Sender{o: Options{Events: config.NotifyEvents, Hide: func(s string) string { return s }}, cancel: cancel,
		queue: make(chan Event, mostWaiting)}
}

func TestAStallIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := collected(t)
		w := NewWatch(s, 10*time.Second, func() Event { return Event{Run: "run"} })
		step := &train.StepRecord{Step: 7, Total: 100}
		events := func(want int) {
			t.Helper()
			synctest.Wait()
			if got := len(s.queue); got != want {
				t.Errorf("got %d events, want %d", got, want)
			}
		}
		for range 5 { // a step every 9 s does not count as a stall
			time.Sleep(9 * time.Second)
			w.StepDone(step)
		}
		events(0)
		time.Sleep(time.Minute)
		events(1)
		w.EvalDone(train.Evaluation{})
		time.Sleep(5 * time.Second)
		events(1)
		time.Sleep(10 * time.Second)
		events(2)
		if e := <-s.queue; e.Event != Stalled || e.Step != 7 || e.Steps != 100 || e.Run != "run" ||
			!strings.Contains(e.Message, "10s") {
			t.Errorf("got %+v", e)
		}
		w.Close()
	})
}

func TestAStragglerIsReportedOnce(t *testing.T) {
	s := collected(t)
	w := NewWatch(s, 0, func() Event { return Event{} })
	defer w.Close()
	healthy, sick := straggler.Verdict{}, straggler.Verdict{Kind: straggler.Sick, Ratio: 2, Cause: straggler.CauseData,
		Evidence: "evidence"}
	for _, v := range [][]straggler.Verdict{nil, {healthy, healthy}, {healthy, sick}, {healthy, sick},
		{healthy, healthy}, {healthy, sick}} {
		w.Decided(10, nil, v)
	}
	if len(s.queue) != 2 {
		t.Fatalf("got %d events, want one for each of 2 slow times", len(s.queue))
	}
	if e := <-s.queue; e.Event != Straggler || *e.Rank != 1 || !strings.Contains(e.Message, "2.0 times its usual") ||
		!strings.Contains(e.Message, "evidence") {
		t.Errorf("got %+v", e)
	}
}
