package dashboard

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/profiler/runs"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// largeRun writes the records of a run, in which one step of rank 0 is slow.
func largeRun(t *testing.T, dir string, ranks int, steps int64) {
	t.Helper()
	logs := filepath.Join(dir, "logs")
	if err := errors.Join(os.MkdirAll(logs, 0o755), os.MkdirAll(filepath.Join(dir, "configs"), 0o755),
		os.WriteFile(filepath.Join(dir, "configs", "resolved.toml"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for rank := range ranks {
		w, _, err := runtime.Open(filepath.Join(logs, runtime.FileName(rank)), runtime.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := runtime.Record{Rank: rank, Telemetry: telemetry.Unknown(),
			Values: telemetry.Values{telemetry.LearningRate: 0.1, telemetry.GradNorm: 1.23456789012,
				telemetry.LossScale: 1, telemetry.Accuracy: math.NaN()}, BatchSize: 64}
		for step := int64(1); step <= steps; step++ {
			r.Iteration, r.Timestamp = step, time.Unix(1700000000, step*1e6)
			r.Values[telemetry.Loss], r.Forward, r.Backward = 2.123456789012/float64(step),
				time.Duration(10e6+step%977*1000), time.Duration(20e6+step%877*1000)
			if step == steps/3 && rank == 0 {
				r.Forward = 3 * time.Second
			}
			w.Append(&r)
			if step%4000 == 0 {
				w.Flush()
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func getJSON(t *testing.T, address string, into any) (took time.Duration) {
	t.Helper()
	begin := time.Now()
	answer, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	took = time.Since(begin)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v: %.100s", address, err, text)
	}
	return took
}

// The test reads a run of a million steps and a run of a thousand ranks. It logs times and memory.
func TestLongAndWideRuns(t *testing.T) {
	needtest.Hostile.Need(t, "writes 1.5 GB")
	const columns = "/figures?points=600&columns=loss,accuracy,throughput,total_throughput,share,own,communication,hidden,bus_bandwidth,utilization,memory,temperature,power,learning_rate,grad_norm,data,forward,backward,optimizer,step,exchange"
	for _, c := range []struct {
		ranks int
		steps int64
	}{{2, 1_000_000}, {1000, 1000}} {
		dir := t.TempDir()
		largeRun(t, filepath.Join(dir, "a"), c.ranks, c.steps)
		folder, err := runs.OpenFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		folder.Indexes = t.TempDir()
		at := "http://" + serve(t, Options{Folder: folder, Loopback: true, Log: slog.New(slog.DiscardHandler)}) +
			"/api/runs/a"
		var view runs.View
		var figures struct {
			Steps []int64
			Lines []struct {
				Column string
				Max    []*float64
			}
		}
		first := getJSON(t, at, &view) + getJSON(t, at+columns, &figures)
		begin := time.Now()
		for getJSON(t, at, &view); view.Last < c.steps ||
			view.Progress.Read < view.Progress.Bytes-int64(4*c.ranks); getJSON(t, at, &view) {
			time.Sleep(100 * time.Millisecond)
		}
		all := time.Since(begin)
		whole := getJSON(t, at+columns, &figures)
		goruntime.GC()
		var memory goruntime.MemStats
		goruntime.ReadMemStats(&memory)
		t.Logf("%d ranks, %d steps, %d MB: first answers after %v, all records read after %v, answer then %v, live heap %d MB",
			c.ranks, c.steps, view.Progress.Bytes>>20, first, all, whole, memory.HeapAlloc>>20)
		if memory.HeapAlloc > 50<<20 {
			t.Errorf("%d ranks, %d steps: got a heap of %d bytes, want at most 50 MB", c.ranks, c.steps,
				memory.HeapAlloc)
		}
		slowest := 0.0
		for _, l := range figures.Lines {
			for _, v := range l.Max {
				if l.Column == "forward" && v != nil {
					slowest = max(slowest, *v)
				}
			}
		}
		if slowest != 3 || len(figures.Steps) > 600 {
			t.Errorf("%d ranks, %d steps: got a slowest forward pass of %v s in %d points, want 3 s in at most 600",
				c.ranks, c.steps, slowest, len(figures.Steps))
		}
		folder.Close()
		if c.ranks == 2 {
			restarted(t, dir, folder.Indexes, columns, c.steps)
		}
	}
}

// restarted waits until the previous server has written the index. A new server must then show all steps of run a
// within a second. The fastest of three starts counts, because other programs use the machine.
func restarted(t *testing.T, dir, indexes, columns string, steps int64) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if files, err := filepath.Glob(filepath.Join(indexes, "*.index")); err == nil && len(files) > 0 {
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatal("got no index within a minute")
		}
	}
	fastest := time.Hour
	for range 3 {
		folder, err := runs.OpenFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		folder.Indexes = indexes
		at := "http://" + serve(t, Options{Folder: folder, Loopback: true, Log: slog.New(slog.DiscardHandler)}) +
			"/api/runs/a"
		var view runs.View
		var figures struct{ Steps []int64 }
		took := getJSON(t, at, &view) + getJSON(t, at+columns, &figures)
		if n := len(figures.Steps); view.Last != steps || n == 0 || figures.Steps[n-1] != steps {
			t.Errorf("after a restart: got %d steps, and figures of %v, want %d", view.Last, figures.Steps, steps)
		}
		fastest = min(fastest, took)
		folder.Close()
	}
	t.Logf("%d steps: after a restart, first answers after %v", steps, fastest)
	if fastest > time.Second {
		t.Errorf("%d steps: got the first answers after %v, want at most 1 s", steps, fastest)
	}
}

// Each client must get the last change, even if other clients never read.
func TestManyStreams(t *testing.T) {
	clients, deaf := 100, 20
	if needtest.Hostile.On() {
		clients, deaf = 1000, 500
	}
	if files, known := platform.FileLimit(); known && files < uint64(3*(clients+deaf)) {
		needtest.Missing(t, "files", fmt.Sprintf("the limit of open files is %d, want %d", files, 3*(clients+deaf)))
	}
	dir := t.TempDir()
	largeRun(t, filepath.Join(dir, "a"), 1, 5)
	folder, err := runs.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	at := serve(t, Options{Folder: folder, Loopback: true, Log: slog.New(slog.DiscardHandler)})
	for range deaf {
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /api/stream?run=a HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
	var ready sync.WaitGroup // waits for the first event, which contains the current version
	times := make(chan time.Time, clients)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for range clients {
		answer, err := (&http.Client{Transport: transport}).Get("http://" + at + "/api/stream?run=a")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		ready.Add(1)
		go func() {
			events := 0
			for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
				if !strings.HasPrefix(lines.Text(), "data: ") {
					continue
				}
				if events++; events == 1 {
					ready.Done()
					continue
				}
				times <- time.Now()
				return
			}
		}()
	}
	ready.Wait()
	begin := time.Now()
	if err := os.WriteFile(filepath.Join(dir, "a", "logs", "balance.jsonl"),
		[]byte(`{"step":5,"shares":[1],"next":[1]}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var delays []time.Duration
	for range clients {
		select {
		case at := <-times:
			delays = append(delays, at.Sub(begin))
		case <-time.After(mostPause + time.Minute):
			t.Fatalf("got an event at %d of %d clients", len(delays), clients)
		}
	}
	slices.Sort(delays)
	t.Logf("%d clients and %d that never read: the change reached the first client after %v, the median after %v, p99 after %v",
		clients, deaf, delays[0], delays[clients/2], delays[clients*99/100])
}
