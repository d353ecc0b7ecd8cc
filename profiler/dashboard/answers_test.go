package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestAReopenedRunGetsNoOldAnswers(t *testing.T) {
	folder, dir := folderOf(t, "a")
	s := newServer(t, folder)
	for _, loss := range []string{"2", "3"} {
		writeRun(t, filepath.Join(dir, "a"), loss)
		if _, body := ask(s, "/api/runs/a/figures?columns=loss"); !strings.Contains(body, `"mean":[`+loss+`]`) {
			t.Errorf("got figures %s, want loss %s", body, loss)
		}
		if _, body := ask(s, "/api/runs/a"); !strings.Contains(body, `"loss":`+loss) {
			t.Errorf("got %s, want loss %s", body, loss)
		}
		s.closeFollowers()
		s.followers = map[string]*follower{}
	}
}

// While clients watch eight runs, the server must refuse a ninth one. When no client watches one of the eight runs any
// more, the ninth run must replace it.
func TestFollowersInUseRemain(t *testing.T) {
	names := runNames(mostFollowers + 1)
	folder, _ := folderOf(t, names...)
	s := newServer(t, folder)
	s.graceTime = time.Hour
	watched, releases := joinAll(t, s, names[:mostFollowers])
	last := "/api/runs/" + names[mostFollowers]
	if status, body := ask(s, last); status != 503 || !strings.Contains(body, "8 runs") {
		t.Errorf("run %d: got status %d and %q, want 503", mostFollowers+1, status, body)
	}
	releases[3]()
	releases[3]() // a second release has no effect
	if status, _ := ask(s, last); status != 503 {
		t.Errorf("run %d a moment after the end of a stream: got status %d, want 503", mostFollowers+1, status)
	}
	s.graceTime = 0
	if status, body := ask(s, last); status != 200 {
		t.Errorf("run %d after the end of a stream: got status %d: %s", mostFollowers+1, status, body)
	}
	<-watched[3].done
	for i, f := range watched {
		if i != 3 && f.wait() == nil {
			t.Errorf("run %d is watched, but its follower has ended", i)
		}
	}
	if status, _ := ask(s, "/api/runs/"+names[3]); status != 200 { // this run replaces the ninth one
		t.Errorf("the run that was replaced: got status %d, want 200", status)
	}
}

// Requests without a stream, like those of a comparison, must not be refused: their runs replace each other.
func TestRequestsReplaceOneAnother(t *testing.T) {
	names := runNames(mostFollowers + 2)
	folder, _ := folderOf(t, names...)
	s := newServer(t, folder)
	s.graceTime = time.Hour
	for range 2 {
		for _, name := range names {
			if status, body := ask(s, "/api/runs/"+name); status != 200 {
				t.Errorf("%s: got status %d and %q, want 200", name, status, body)
			}
		}
	}
}

func TestAnswersAreBuiltOnceAndWithoutALock(t *testing.T) {
	var a answers
	begun, proceed := make(chan struct{}), make(chan struct{})
	calls := 0
	slow := func(context.Context) (any, error) {
		if calls++; calls == 1 {
			close(begun)
		}
		<-proceed
		return "slow", nil
	}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if got, err := a.get(t.Context(), "slow", 1, slow); err != nil || string(got.plain) != `"slow"` {
				t.Errorf("got %v and error %v", got, err)
			}
		})
	}
	<-begun
	if got, err := a.get(t.Context(), "fast", 1, func(context.Context) (any, error) {
		return "fast", nil
	}); err != nil || string(got.plain) != `"fast"` {
		t.Errorf("while another answer is built: got %v and error %v", got, err)
	}
	close(proceed)
	all.Wait()
	if calls != 1 {
		t.Errorf("the answer was built %d times, want once", calls)
	}
}

// When a client disconnects, it must stop waiting. When all clients of an answer have disconnected, the building of
// this answer must end.
func TestABuildEndsWhenItsClientsLeave(t *testing.T) {
	var a answers
	begun, ended := make(chan struct{}), make(chan error, 1)
	hangs := func(ctx context.Context) (any, error) {
		close(begun)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}
	var leave [2]context.CancelFunc
	left := make(chan error, 2)
	for i := range leave {
		ctx, cancel := context.WithCancel(t.Context())
		leave[i] = cancel
		go func() {
			_, err := a.get(ctx, "slow", 1, hangs)
			left <- err
		}()
	}
	<-begun
	for a.waiting() < 2 {
		time.Sleep(time.Millisecond)
	}
	leave[0]()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("a client that left: got %v", err)
	}
	select {
	case <-ended:
		t.Error("the build ended although a client waits")
	default:
	}
	leave[1]()
	<-left
	<-ended
	if got, err := a.get(t.Context(), "slow", 1, func(context.Context) (any, error) {
		return "again", nil
	}); err != nil || string(got.plain) != `"again"` {
		t.Errorf("the next client: got %v and error %v", got, err)
	}
	if _, err := a.get(t.Context(), "panics", 1, func(context.Context) (any, error) { panic("no") }); err == nil ||
		!strings.Contains(err.Error(), "panic: no") {
		t.Errorf("got %v, want the panic as an error", err)
	}
}

// waiting returns the number of clients that wait for answers.
func (a *answers) waiting() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.builds {
		n += b.clients
	}
	return n
}

func TestTheMemoryOfAnswersIsLimited(t *testing.T) {
	var a answers
	for i, length := range []int{1000, mostCachedBytes, 1000, mostCachedBytes / 2, mostCachedBytes / 2,
		mostCachedBytes / 2, mostCachedBytes / 2, mostCachedBytes / 2} {
		text := strings.Repeat("x", length)
		if got, err := a.get(t.Context(), fmt.Sprint(i), 1, func(context.Context) (any, error) {
			return text, nil
		}); err != nil || len(got.plain) != length+2 {
			t.Fatalf("answer of %d bytes: error %v", length, err)
		}
		sum := 0
		for _, x := range a.all {
			sum += x.size()
		}
		if sum != a.bytes || sum > mostAnswerBytes || a.all["1"] != nil {
			t.Errorf("after answer %d: got %d bytes, counted as %d, want at most %d and no long answer", i, sum,
				a.bytes, mostAnswerBytes)
		}
	}
	if a.all["7"] == nil {
		t.Error("the newest answer is not cached")
	}
	if _, err := a.get(t.Context(), "bad", 1, func(context.Context) (any, error) {
		return nil, errors.New("bad")
	}); err == nil || a.all["bad"] != nil {
		t.Errorf("got error %v, want one, and no cached answer", err)
	}
}

// The time limit must apply to the client, and not to the building of the answer.
func TestAnAnswerThatTakesLongIsSent(t *testing.T) {
	// The second limit is for a busy machine.
	for _, limit := range []time.Duration{100 * time.Millisecond, 10 * time.Second} {
		err := answerAfterTheLimit(t, limit)
		if err == nil {
			return
		}
		t.Logf("with a time limit of %v: %v", limit, err)
	}
	t.Error("got no whole answer")
}

// answerAfterTheLimit requests an answer. Building this answer takes three times as long as the client may take to read
// it.
func answerAfterTheLimit(t *testing.T, limit time.Duration) error {
	t.Helper()
	folder, _ := folderOf(t, "a")
	s := newServer(t, folder)
	s.writeTime = limit
	var canceled atomic.Bool
	server := httptest.NewUnstartedServer(s.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(3 * s.writeTime) // simulates reading records on a busy machine
		canceled.Store(r.Context().Err() != nil)
		io.WriteString(w, strings.Repeat("x", 1<<20))
	})))
	server.Config.ReadTimeout = s.writeTime
	server.Start()
	defer server.Close()
	answer, err := http.Get(server.URL)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if n, err := io.Copy(io.Discard, answer.Body); n != 1<<20 || err != nil {
		return fmt.Errorf("got %d bytes and error %w, want all", n, err)
	}
	if canceled.Load() {
		return errors.New("the request was canceled")
	}
	return nil
}

// The client sends requests, but reads no answer until the server has disconnected it.
func TestClientsThatDoNotReadAreDisconnected(t *testing.T) {
	folder, _ := folderOf(t, "a")
	s := newServer(t, folder)
	s.writeTime = 100 * time.Millisecond
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	server := &http.Server{Handler: s, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(closed)
		}
	}}
	go server.Serve(listener) // returns when the server is closed
	defer server.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		for { // sends until all buffers are full, and the server disconnects
			if _, err := io.WriteString(conn, "GET /app.js HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
				return
			}
		}
	}()
	<-closed
}
