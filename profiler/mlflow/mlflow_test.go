package mlflow

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fillSpool adds a point every 10 steps to a spool, up to step last. It adds an evaluation every 50 steps.
func fillSpool(t *testing.T, dir string, fresh bool, from, last int64) {
	t.Helper()
	params := map[string]string{}
	for i := range 150 {
		params[fmt.Sprintf("key.%d", i)] = "value"
	}
	s, err := OpenSpool(dir, Start{Experiment: "e", Name: "run", Time: 1000, Params: params,
		Tags: map[string]string{"host": "h"}}, fresh, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for step := from; step <= last; step += 10 {
		s.Add(Line{Step: step, Time: 1000 + step, Metrics: map[string]Value{"train/loss": Value(1 / float64(step)),
			"time/step": 0.5}})
		if step%50 == 0 {
			s.Add(Line{Step: step, Time: 1000 + step, Evaluation: true,
				Metrics: map[string]Value{"eval/loss": Value(math.NaN())}})
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// checkSteps fails the test unless got contains the steps every, 2·every, …, last in this order, each of them once.
func checkSteps(t *testing.T, what string, got []int64, every, last int64) {
	t.Helper()
	want := []int64{}
	for step := every; step <= last; step += every {
		want = append(want, step)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: got %d points %.200s, want %d from %d to %d, once each", what, len(got), fmt.Sprint(got),
			len(want), every, last)
	}
}

// runWithResults returns the folder of a run that contains a file of results.
func runWithResults(t *testing.T) string {
	t.Helper()
	run := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(run, "results"), 0o700),
		os.WriteFile(filepath.Join(run, "results", "a b.md"), []byte("results"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return run
}

// The state file of a run may be untrusted. If only this file names a server, the server must get no credentials. If
// only this file names a folder, the folder must get no files.
func TestATargetThatTheRunNamesGetsNoCredentials(t *testing.T) {
	for _, c := range []struct {
		folder  bool // the target is a folder instead of a server
		environ []string
		refused bool
	}{
		{false, nil, false},
		{false, []string{tokenVariable + "=t"}, true},
		{false, []string{userVariable + "=u", passwordVariable + "=p"}, true},
		{false, []string{tokenVariable + "=t", addressVariable + "=SERVER/"}, false},
		{false, []string{tokenVariable + "=t", addressVariable + "=http://127.0.0.1:1"}, true},
		{true, nil, true},
	} {
		dir, target := t.TempDir(), newFake(t).URL
		if c.folder {
			target = t.TempDir()
		}
		for i := range c.environ {
			c.environ[i] = strings.Replace(c.environ[i], "SERVER", target, 1)
		}
		fillSpool(t, dir, true, 10, 20)
		if err := os.WriteFile(filepath.Join(dir, StateFile), []byte(fmt.Sprintf(`{"target":%q}`, target)),
			0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := Sync(context.Background(), SenderOptions{LogDir: dir, Environ: c.environ})
		var refused *UnconfirmedError
		if errors.As(err, &refused) != c.refused || !c.refused && err != nil {
			t.Errorf("%s with %q: got %v, want a refusal: %v", target, c.environ, err, c.refused)
		}
		if _, _, err := Sync(context.Background(),
			SenderOptions{LogDir: dir, Target: target, Environ: c.environ}); err != nil {
			t.Errorf("%s with %q, as the user's target: got %v", target, c.environ, err)
		}
	}
}

func TestARunIsSent(t *testing.T) {
	f, dir := newFake(t), t.TempDir()
	fillSpool(t, dir, true, 10, 20000)
	run := runWithResults(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o600),
		os.Symlink(secret, filepath.Join(run, "link"))); err != nil {
		t.Fatal(err)
	}
	s, err := OpenSpool(dir, Start{}, false, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Add(Line{Artifact: "results/a b.md"})
	// These names come from the spool, which may be untrusted.
	outside := []string{"results/gone", "link", secret, "../../" + filepath.Base(secret), "logs/../../x"}
	for _, name := range outside {
		s.Add(Line{Artifact: name})
	}
	s.Add(Line{Status: Finished, Time: 5000})
	s.Close()
	var skipped []string
	if _, _, err := Sync(context.Background(), SenderOptions{RunDir: run, LogDir: dir, Target: f.URL + "/",
		OnSkip: func(file string, _ error) { skipped = append(skipped, file) }}); err != nil {
		t.Fatal(err)
	}
	checkSteps(t, "train/loss", f.steps("train/loss"), 10, 20000)
	checkSteps(t, "eval/loss", f.steps("eval/loss"), 50, 20000)
	if len(f.params) != 150 || f.tags["host"] != "h" || f.tags[idTag] == "" || f.created != 1 {
		t.Errorf("got %d parameters, tags %v, %d runs; want 150, host and id, 1", len(f.params), f.tags, f.created)
	}
	if got := fmt.Sprint(f.status); got != "[RUNNING RUNNING FINISHED]" {
		t.Errorf("got statuses %s", got)
	}
	if got := f.files["/api/2.0/mlflow-artifacts/artifacts/1/"+fakeRun+"/artifacts/results/a b.md"]; got != "results" ||
		len(f.files) != 1 {
		t.Errorf("got files %v, want results.md", f.files)
	}
	if !slices.Equal(skipped, outside) {
		t.Errorf("got skipped files %q, want %q", skipped, outside)
	}
	// The state file already names the target.
	if _, _, err := Sync(context.Background(), SenderOptions{LogDir: dir}); err != nil {
		t.Fatal(err)
	}
	checkSteps(t, "train/loss after another sync", f.steps("train/loss"), 10, 20000)
}

// About half of the requests fail. The server refuses the request, or processes it and loses the reply. Each attempt
// acts like a new process.
func TestNoPointIsDoubledByFaults(t *testing.T) {
	f, dir := newFake(t), t.TempDir()
	// One generator for the server, and one for this goroutine.
	r, own := rand.New(rand.NewPCG(1, 2)), rand.New(rand.NewPCG(3, 4))
	f.fault = func(string) (int, bool) {
		switch r.IntN(4) {
		case 0:
			return http.StatusServiceUnavailable, false
		case 1:
			return 0, true
		}
		return 0, false
	}
	faults := 0
	for last := int64(3000); last <= 12000; last += 3000 {
		fillSpool(t, dir, last == 3000, 10, last) // in the last round, a resumed run repeats all steps
		for {
			_, _, err := Sync(context.Background(), SenderOptions{LogDir: dir, Target: f.URL})
			if err == nil {
				break
			}
			if faults++; errors.As(err, new(*Refused)) || faults > 10000 {
				t.Fatal(err)
			}
			if own.IntN(3) == 0 { // simulates a crash before the state was written
				if err := os.Remove(filepath.Join(dir, StateFile)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if faults < 10 {
		t.Errorf("got %d faults, want at least 10", faults)
	}
	checkSteps(t, "train/loss", f.steps("train/loss"), 10, 12000)
	checkSteps(t, "eval/loss", f.steps("eval/loss"), 50, 12000)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.created != 1 {
		t.Errorf("got %d runs, want 1", f.created)
	}
}

func TestASenderWaitsForTheServer(t *testing.T) {
	f, dir := newFake(t), t.TempDir()
	down := make(chan bool, 1)
	down <- true
	f.fault = func(string) (int, bool) {
		select {
		case <-down:
			return http.StatusInternalServerError, false
		default:
			return 0, false
		}
	}
	fillSpool(t, dir, true, 10, 1000)
	var told []error
	s := StartSender(SenderOptions{LogDir: dir, Target: f.URL, OnFault: func(err error) { told = append(told, err) }})
	if s.Close(time.Minute) {
		t.Error("a part is left")
	}
	checkSteps(t, "train/loss", f.steps("train/loss"), 10, 1000)
	if len(told) != 2 || told[0] == nil || told[1] != nil {
		t.Errorf("got %v, want one fault and its end", told)
	}
}

// A server that never replies must delay the end of a run by at most the given time.
func TestAServerThatHangs(t *testing.T) {
	f, dir := newFake(t), t.TempDir()
	release := make(chan struct{})
	f.fault = func(string) (int, bool) { <-release; return http.StatusServiceUnavailable, false }
	defer close(release)
	fillSpool(t, dir, true, 10, 100)
	s := StartSender(SenderOptions{LogDir: dir, Target: f.URL})
	if !s.Close(50 * time.Millisecond) { // without this limit, Close would block forever
		t.Error("got no rest, want one")
	}
}

func TestRefusalsEndTheSender(t *testing.T) {
	f, dir := newFake(t), t.TempDir()
	requests := 0
	f.fault = func(string) (int, bool) { requests++; return http.StatusForbidden, false }
	fillSpool(t, dir, true, 10, 100)
	var refused error
	s := StartSender(SenderOptions{LogDir: dir, Target: f.URL, OnRefuse: func(err error) { refused = err }})
	if left := s.Close(time.Minute); !left || requests != 1 || refused == nil ||
		!strings.Contains(refused.Error(), "403") {
		t.Errorf("got %d requests, rest %v, error %v; want one request, a rest and status 403", requests, left, refused)
	}
}

func TestAnswersThatAreNotOfMLflow(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		},
		"another page":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"a huge answer": func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 3*mostReply)) },
		"an empty run":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") },
	} {
		t.Run(name, func(t *testing.T) {
			f, dir := newFake(t), t.TempDir()
			f.Config.Handler = handler
			fillSpool(t, dir, true, 10, 100)
			if _, _, err := Sync(context.Background(), SenderOptions{LogDir: dir, Target: f.URL}); !errors.As(err,
				new(*Refused)) {
				t.Errorf("got %v, want a refusal", err)
			}
		})
	}
}

func TestCredentials(t *testing.T) {
	for want, environ := range map[string][]string{
		"Bearer s3cr3t": {"MLFLOW_TRACKING_TOKEN=s3cr3t"},
		"Basic bWU6czNjcjN0": {"MLFLOW_TRACKING_USERNAME=me", "MLFLOW_TRACKING_PASSWORD=s3cr3t",
			"MLFLOW_TRACKING_TOKEN=other"},
		"": nil,
	} {
		s, err := newServer("https://host/prefix/", environ, time.Second)
		if err != nil || s.header.Get("Authorization") != want {
			t.Errorf("%q: got %q, %v, want %q", environ, s.header.Get("Authorization"), err, want)
		}
	}
	for _, target := range []string{"ftp://host", "http://", "http://me:s3cr3t@host", "http://host/?key=value",
		"http://host/#part", ""} {
		if err := CheckTarget(target); err == nil {
			t.Errorf("%q: got no error", target)
		}
	}
}

// A crash truncates the last line at an arbitrary byte. The resumed run repeats steps, and each point must be sent
// once.
func TestASpoolCutByACrash(t *testing.T) {
	f, dir := newFake(t), t.TempDir()
	fillSpool(t, dir, true, 10, 300)
	path := filepath.Join(dir, SpoolFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := len(whole) - 150; cut < len(whole); cut++ {
		f.mu.Lock()
		clear(f.points)
		clear(f.tags)
		f.created = 0
		f.mu.Unlock()
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		os.Remove(filepath.Join(dir, StateFile))
		fillSpool(t, dir, false, 10, 400)
		if _, _, err := Sync(context.Background(), SenderOptions{LogDir: dir, Target: f.URL}); err != nil {
			t.Fatal(err)
		}
		checkSteps(t, fmt.Sprintf("cut at %d: train/loss", cut), f.steps("train/loss"), 10, 400)
		checkSteps(t, fmt.Sprintf("cut at %d: eval/loss", cut), f.steps("eval/loss"), 50, 400)
	}
}

func TestOneSenderAtATime(t *testing.T) {
	f, dir := newFake(t), t.TempDir()
	fillSpool(t, dir, true, 10, 100)
	g, err := SenderOptions{LogDir: dir, Target: f.URL}.open()
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	if _, _, err := Sync(context.Background(), SenderOptions{LogDir: dir, Target: f.URL}); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
}
