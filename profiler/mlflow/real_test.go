//go:build linux

package mlflow

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/profiler/mlflow/mlflowtest"
)

// A real MLflow server is slow, returns status 500, loses replies, and is killed and restarted. Afterwards, it must
// contain each point once.
func TestARealServerWithFaults(t *testing.T) {
	program, dir, logs := mlflowtest.Program(t), t.TempDir(), t.TempDir()
	port := porttest.Free(t)
	stop := mlflowtest.Start(t, program, dir, port)
	defer func() { stop() }()
	direct := "http://127.0.0.1:" + strconv.Itoa(port)
	target, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	r, seen := rand.New(rand.NewPCG(1, 2)), map[string]int{}
	faulty := true
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !faulty {
			proxy.ServeHTTP(w, q)
			return
		}
		switch r.IntN(5) { // no lock is needed, because the sender sends one request at a time
		case 0:
			seen["500"]++
			w.WriteHeader(http.StatusInternalServerError)
		case 1:
			seen["lost reply"]++
			proxy.ServeHTTP(httptest.NewRecorder(), q)
			panic(http.ErrAbortHandler)
		case 2:
			seen["slow"]++
			proxy.ServeHTTP(w, q)
			time.Sleep(20 * time.Millisecond)
		default:
			proxy.ServeHTTP(w, q)
		}
	}))
	defer front.Close()
	o := SenderOptions{LogDir: logs, Target: front.URL}
	sync := func() {
		t.Helper()
		for try := 0; ; try++ {
			_, _, err := Sync(context.Background(), o)
			if err == nil {
				return
			}
			if errors.As(err, new(*Refused)) || try > 1000 {
				t.Fatal(err)
			}
		}
	}
	fillSpool(t, logs, true, 10, 5000)
	sync()
	stop() // sends SIGKILL
	fillSpool(t, logs, false, 10, 8000)
	if _, _, err := Sync(context.Background(), o); err == nil || errors.As(err, new(*Refused)) {
		t.Errorf("the server is down: got %v, want an error that another try may cure", err)
	}
	stop = mlflowtest.Start(t, program, dir, port)
	sync()
	o.RunDir = runWithResults(t)
	s, err := OpenSpool(logs, Start{}, false, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Add(Line{Artifact: "results/a b.md"})
	s.Add(Line{Status: Finished, Time: 5000})
	s.Close()
	faulty = false
	o.OnSkip = func(file string, why error) { t.Errorf("%s: %v", file, why) }
	_, run, err := Sync(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if seen["500"] == 0 || seen["lost reply"] == 0 || seen["slow"] == 0 {
		t.Errorf("got faults %v, want each kind", seen)
	}
	checkRealRun(t, direct, run)
}

// checkRealRun checks the run on the server: each point of fillSpool up to step 8000 exists once, and status,
// parameters and file are correct.
func checkRealRun(t *testing.T, direct, run string) {
	t.Helper()
	fetch := func(path string, reply any) {
		t.Helper()
		resp, err := http.Get(direct + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v, %s", path, err, text)
		}
		if err := json.Unmarshal(text, reply); err != nil {
			t.Fatal(err)
		}
	}
	for name, every := range map[string]int64{"train/loss": 10, "eval/loss": 50} {
		var history struct{ Metrics []struct{ Step int64 } }
		fetch("/api/2.0/mlflow/metrics/get-history?max_results=10000&run_id="+run+"&metric_key="+url.QueryEscape(name),
			&history)
		var got []int64
		for _, m := range history.Metrics {
			got = append(got, m.Step)
		}
		checkSteps(t, name, got, every, 8000)
		reader, remote, err := OpenRun(t.Context(), direct+"/#/experiments/1/runs/"+run, nil)
		if err != nil {
			t.Fatal(err)
		}
		reader.page = 30 // small pages, so that the reader needs several of them
		points, err := reader.History(t.Context(), remote.ID, name, 1000)
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		for _, p := range points {
			got = append(got, p.Step)
		}
		checkSteps(t, name, got, every, 8000)
	}
	var reply struct {
		Run struct {
			Info struct{ Status string }
			Data struct{ Params []pair }
		}
	}
	fetch("/api/2.0/mlflow/runs/get?run_id="+run, &reply)
	if reply.Run.Info.Status != Finished || len(reply.Run.Data.Params) != 150 {
		t.Errorf("got status %q and %d parameters, want FINISHED and 150", reply.Run.Info.Status,
			len(reply.Run.Data.Params))
	}
	var files struct{ Files []struct{ Path string } }
	fetch("/api/2.0/mlflow/artifacts/list?path=results&run_id="+run, &files)
	if len(files.Files) != 1 || files.Files[0].Path != "results/a b.md" {
		t.Errorf("got files %v, want results/a b.md", files.Files)
	}
}
