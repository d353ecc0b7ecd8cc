package dashboard

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/profiler/runs"
)

// event is an event that a stream sent.
type event struct {
	kind, Run, Why string
	Version        int64
	Missing        bool
}

// openStream opens a stream and returns a function that waits for its next event.
func openStream(t *testing.T, address string) (next func() event) {
	t.Helper()
	answer, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	if answer.StatusCode != 200 {
		t.Fatalf("%s: got status %d, want 200", address, answer.StatusCode)
	}
	lines := bufio.NewScanner(answer.Body)
	return func() (e event) {
		t.Helper()
		for lines.Scan() {
			if kind, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				e.kind = kind
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					t.Fatal(err)
				}
				return e
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
		return e
	}
}

// A stream must send one event immediately, and one after each change.
func TestAStreamFollowsARun(t *testing.T) {
	folder, dir := folderOf(t, "a")
	at := serve(t, Options{Folder: folder, Loopback: true, Refresh: 5 * time.Millisecond})
	next, seen := openStream(t, "http://"+at+"/api/stream?run=a"), map[int64]bool{}
	for change := range 4 {
		e := next()
		if e.kind != "version" || e.Version == 0 || seen[e.Version] {
			t.Fatalf("event %d: got %+v after the versions %v", change, e, seen)
		}
		seen[e.Version] = true
		grow(t, filepath.Join(dir, "a"))
	}
}

// Many streams must take only a bounded part of the CPU time from a training run.
func TestManyStreamsGetFewerEvents(t *testing.T) {
	now := time.Now()
	for _, x := range []struct {
		since   time.Duration
		streams int64
		more    bool
		want    bool
	}{
		{0, 0, false, true},
		{0, 0, true, false},
		{time.Second, 0, true, true},
		{streamPause - 1, 1, false, false},
		{streamPause, 1, false, true},
		{streamPause, 1, true, false},
		{1000*streamPause - 1, 1000, true, false},
		{1000 * streamPause, 1000, true, true},
		{mostPause - 1, mostConnections, false, false},
		{mostPause, mostConnections, false, true},
	} {
		if got := due(now.Add(-x.since), now, x.streams, x.more, time.Second); got != x.want {
			t.Errorf("%v after the last event, %d streams, more %v: got %v, want %v", x.since, x.streams, x.more, got,
				x.want)
		}
	}
}

// Many streams of one run must delay the events of this run, but not those of another run.
func TestThePauseDependsOnTheStreamsOfTheRun(t *testing.T) {
	folder, dir := folderOf(t, "a", "b")
	s := newServer(t, folder)
	s.options.Refresh = time.Millisecond
	begun := time.Now()
	next := map[string]<-chan struct{}{}
	followers := map[string]*follower{}
	for _, name := range []string{"a", "b"} {
		f, leave, err := s.join(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		if got := f.streams.Load(); got != 1 {
			t.Fatalf("run %s: got %d streams, want 1", name, got)
		}
		next[name], followers[name] = f.wait(), f
	}
	f := followers["a"]
	f.streams.Add(mostConnections) // with this number of streams, the pause is mostPause
	for range 2 {                  // the second change is read only after the server has decided about the first one
		version := f.run.Version()
		grow(t, filepath.Join(dir, "a"))
		for f.run.Version() == version {
			time.Sleep(time.Millisecond)
		}
	}
	select {
	case <-next["a"]:
		if took := time.Since(begun); took < mostPause { // unless the pause is already over on a busy machine
			t.Errorf("run a: got an event within the pause, after %v", took)
		}
	default:
	}
	grow(t, filepath.Join(dir, "b"))
	<-next["b"]
	f.streams.Add(-mostConnections)
	<-next["a"] // closes after the next read of the files
}

// grow adds a decision to a run.
func grow(t *testing.T, dir string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(dir, "logs", "balance.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintln(file, `{"step":1,"shares":[1],"next":[1]}`)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The pages of a browser share a stream. If one run cannot be followed, the stream must continue for the others.
func TestOneStreamFollowsSeveralRuns(t *testing.T) {
	folder, dir := folderOf(t, "a", "b")
	at := serve(t, Options{Folder: folder, Loopback: true, Refresh: 5 * time.Millisecond})
	next := openStream(t, "http://"+at+"/api/stream?run=b&run=a&run=none&run=a")
	first := map[string]event{}
	for range 3 {
		e := next()
		first[e.Run] = e
	}
	if first["a"].kind != "version" || first["b"].kind != "version" ||
		first["none"] != (event{"refused", "none", "there is no such run", 0, true}) {
		t.Fatalf("got %+v, want a version of a and b, and the refusal of none", first)
	}
	for _, name := range []string{"b", "a"} {
		grow(t, filepath.Join(dir, name))
		if e := next(); e.kind != "version" || e.Run != name || e.Version == first[name].Version {
			t.Errorf("after a change of %s: got %+v", name, e)
		}
	}
}

// A stream of nine runs must send the versions of eight of them.
func TestAStreamOfTooManyRunsFollowsSome(t *testing.T) {
	query := url.Values{"run": runNames(mostFollowers + 1)}
	folder, _ := folderOf(t, query["run"]...)
	at := serve(t, Options{Folder: folder, Loopback: true})
	next, kinds := openStream(t, "http://"+at+"/api/stream?"+query.Encode()), map[string]int{}
	for range mostFollowers + 1 {
		kinds[next().kind]++
	}
	if kinds["version"] != mostFollowers || kinds["refused"] != 1 {
		t.Errorf("got %v, want %d versions and one refusal", kinds, mostFollowers)
	}
}

// watchedServer returns a server whose folder contains mostFollowers + 1 runs. The server follows all runs except last.
// The functions in leave end the streams of these runs.
func watchedServer(t *testing.T) (address, dir, last string, leave []func()) {
	t.Helper()
	names := runNames(mostFollowers + 1)
	folder, dir := folderOf(t, names...)
	s := newServer(t, folder)
	s.retryTime, s.graceTime = time.Millisecond, 0
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	_, leave = joinAll(t, s, names[:mostFollowers])
	return server.URL, dir, names[mostFollowers], leave
}

// A stream of a ninth run must report that the server refuses to follow it. When the stream of another run ends, the
// server must follow the ninth run.
func TestARefusedRunIsFollowedLater(t *testing.T) {
	address, _, last, leave := watchedServer(t)
	next := openStream(t, address+"/api/stream?run="+last)
	if e := next(); e.kind != "refused" || e.Missing || !strings.Contains(e.Why, "8 runs") {
		t.Errorf("got %+v, want a refusal because of 8 runs", e)
	}
	leave[0]()
	if e := next(); e.kind != "version" {
		t.Errorf("after the end of another stream: got %+v, want a version", e)
	}
}

// The server refuses to follow a run because of other runs. While the stream waits, the run is deleted, and the stream
// must report this.
func TestAStreamTellsANewReason(t *testing.T) {
	address, dir, last, _ := watchedServer(t)
	next := openStream(t, address+"/api/stream?run="+last)
	if e := next(); !strings.Contains(e.Why, "8 runs") {
		t.Errorf("got %+v, want a refusal because of 8 runs", e)
	}
	remove(t, filepath.Join(dir, last))
	if e := next(); e.Why != "there is no such run" || !e.Missing {
		t.Errorf("after the run was deleted: got %+v", e)
	}
}

// While all followers are in use, a request for a missing run must still get the status of a missing run.
func TestAMissingRunIsNotBusy(t *testing.T) {
	names := runNames(mostFollowers + 1)
	folder, _ := folderOf(t, names...)
	s := newServer(t, folder)
	joinAll(t, s, names[:mostFollowers])
	for name, want := range map[string]int{"none": 404, "-bad": 400, names[mostFollowers]: 503} {
		for _, path := range []string{"", "/config", "/figures?columns=loss"} {
			if want == 503 && path != "" {
				continue // see TestAComparisonNeedsNoPlace
			}
			if status, body := ask(s, "/api/runs/"+name+path); status != want {
				t.Errorf("%s%s: got status %d and %q, want %d", name, path, status, body, want)
			}
		}
	}
}

// While all followers are in use, a request for the figures or settings of another run must read the files once. Its
// answer must equal that of a follower.
func TestAComparisonNeedsNoPlace(t *testing.T) {
	names := runNames(mostFollowers + 2*mostVisits)
	folder, _ := folderOf(t, names...)
	s := newServer(t, folder)
	paths := []string{"/config", "/figures?columns=loss"}
	want := map[string]string{}
	for _, path := range paths {
		_, want[path] = ask(s, "/api/runs/"+names[0]+path) // all runs have equal content
	}
	joinAll(t, s, names[:mostFollowers])
	version := regexp.MustCompile(`"version":\d+`)
	var all sync.WaitGroup
	for _, name := range names[mostFollowers:] {
		for _, path := range paths {
			all.Go(func() {
				status, body := ask(s, "/api/runs/"+name+path)
				if status != 200 || version.ReplaceAllString(body, "") != version.ReplaceAllString(want[path], "") {
					t.Errorf("%s%s: got status %d and %s, want %s", name, path, status, body, want[path])
				}
			})
		}
	}
	all.Wait()
	if len(s.followers) != mostFollowers || len(s.visits) != 0 {
		t.Errorf("got %d followers and %d open visits, want %d and none", len(s.followers), len(s.visits),
			mostFollowers)
	}
}

// remove deletes a folder and its content.
func remove(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

// quickStream starts a server that checks its files every millisecond, and opens a stream of a run. It also returns the
// first event.
func quickStream(t *testing.T, s *Server, run string) (next func() event, first event) {
	t.Helper()
	s.options.Refresh, s.retryTime = time.Millisecond, time.Millisecond
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	next = openStream(t, server.URL+"/api/stream?run="+run)
	return next, next()
}

// The server must close the files of a deleted run, inform the stream, and read a new run with the same name.
func TestADeletedRunEnds(t *testing.T) {
	folder, dir := folderOf(t, "a", "b")
	s := newServer(t, folder)
	next, first := quickStream(t, s, "a")
	s.mu.Lock()
	f := s.followers["a"]
	s.mu.Unlock()
	remove(t, filepath.Join(dir, "a"))
	<-f.done
	// The stream may send a version while the records are already deleted and the folder is not.
	var e event
	for e = next(); e.kind == "version"; e = next() {
	}
	if e != (event{"refused", "a", "the folder of the run no longer exists", 0, true}) {
		t.Errorf("after the run was deleted: got %+v", e)
	}
	if _, err := f.run.Figures(t.Context(), runs.Query{Points: 1, Columns: []string{"loss"}}); err == nil &&
		f.run.View().Last > 0 {
		t.Error("the files of the deleted run are open")
	}
	if status, body := ask(s, "/api/runs/a"); status != 404 {
		t.Errorf("the deleted run: got status %d and %q, want 404", status, body)
	}
	writeRun(t, filepath.Join(dir, "other"), "3")
	// The run appears atomically.
	if err := os.Rename(filepath.Join(dir, "other"), filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	if e := next(); e.kind != "version" || e.Version <= first.Version {
		t.Errorf("a new run of this name: got %+v, want a version above %d", e, first.Version)
	}
	if _, body := ask(s, "/api/runs/a"); !strings.Contains(body, `"loss":3`) {
		t.Errorf("a new run of this name: got %s, want loss 3", body)
	}
}

// Another run replaces a run with the same name, as train --resume none does. The server must read the new run.
func TestAReplacedRunIsReadAgain(t *testing.T) {
	for _, single := range []bool{false, true} {
		folder, dir := folderOf(t, "a")
		writeRun(t, filepath.Join(dir, "other"), "3")
		if single {
			var err error
			if folder, err = runs.OpenFolder(filepath.Join(dir, "a")); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { folder.Close() })
		}
		s := newServer(t, folder)
		next, first := quickStream(t, s, "a")
		if err := errors.Join(os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "a-1")),
			os.Rename(filepath.Join(dir, "other"), filepath.Join(dir, "a"))); err != nil {
			t.Fatal(err)
		}
		e := next()
		if e.kind == "refused" { // the server checked the folder between the two renames
			e = next()
		}
		if e.kind != "version" || e.Version <= first.Version {
			t.Errorf("single %v: got %+v, want a version above %d", single, e, first.Version)
		}
		if _, body := ask(s, "/api/runs/a"); !strings.Contains(body, `"loss":3`) {
			t.Errorf("single %v: got %s, want loss 3", single, body)
		}
	}
}
