package bridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/bridge"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
)

// rank is a bridge to which the test sends the messages of a PyTorch rank.
type rank struct {
	t    *testing.T
	in   *io.PipeWriter
	out  *bufio.Scanner
	done chan error
	log  *bytes.Buffer
}

func startRank(t *testing.T) *rank {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	in, send := io.Pipe()
	receive, out := io.Pipe()
	r := &rank{t: t, in: send, out: bufio.NewScanner(receive), done: make(chan error, 1), log: new(bytes.Buffer)}
	r.out.Buffer(nil, 1<<20)
	a := &cli.App{Env: session.Environment{Stdout: out, Stderr: r.log, Catalog: parts.BuiltinCatalog}, LogLevel: "info",
		LogFormat: "text"}
	go func() {
		err := Serve(context.Background(), a, in)
		out.Close()
		r.done <- err
	}()
	return r
}

func (r *rank) send(format string, args ...any) {
	r.t.Helper()
	if _, err := fmt.Fprintf(r.in, format+"\n", args...); err != nil {
		r.t.Fatal(err)
	}
}

// receive returns the next message, which must have this type.
func (r *rank) receive(kind string, to any) {
	r.t.Helper()
	if !r.out.Scan() {
		r.t.Fatalf("got no message, want %s: %v", kind, <-r.done)
	}
	var head struct{ Type string }
	if err := json.Unmarshal(r.out.Bytes(), &head); err != nil || head.Type != kind {
		r.t.Fatalf("got %s, want a message of type %s", r.out.Text(), kind)
	}
	if err := json.Unmarshal(r.out.Bytes(), to); err != nil {
		r.t.Fatal(err)
	}
}

const start = `{"type":"start","model":{"name":"Net","hash":"12ab","parameters":1000},"dataset":{"name":"Numbers","samples":960},` +
	`"device":{"kind":"cpu","name":"Test CPU","index":0,"uuid":"","bus_id":"","threads":1,"memory_bytes":1073741824,"free_bytes":0},"dtype":"float32","torch":"2.4.0","optimizer":"SGD",` +
	`"workers":0,"max_share":0,"sync_norm":false,"step":%d,"samples":%d,"steps":60,"epoch_steps":20,"tflops":0.1,"copy_gbytes_per_second":5,"curve":[]}`

// open starts a run of three ranks and returns the first shares. All ranks have the values of this rank. more contains
// further settings as JSON, each with a comma before it.
func (r *rank) open(dir string, step int, more ...string) []int {
	r.t.Helper()
	r.send(`{"type":"hello","protocol":1,"package":"test","rank":0,"world_size":3,"local_rank":0,"local_world_size":3,"settings":{"data.batch_size":"48","experiment.output_dir":%q,"experiment.name":"run"%s}}`,
		dir, strings.Join(more, ""))
	r.receive("welcome", new(bridge.Welcome))
	r.send(start, step, 48*step)
	return r.answerGathers()
}

// answerGathers answers the gathers of the other ranks until the run has started, and returns the first shares.
func (r *rank) answerGathers() []int {
	r.t.Helper()
	for {
		if !r.out.Scan() {
			r.t.Fatalf("the bridge has ended: %v", <-r.done)
		}
		var m struct {
			Type   string
			Value  json.RawMessage
			Shares []int
		}
		if err := json.Unmarshal(r.out.Bytes(), &m); err != nil {
			r.t.Fatal(err)
		}
		if m.Type == "started" {
			return m.Shares
		}
		if m.Type != "gather" {
			r.t.Fatalf("got %s, want a gather", r.out.Text())
		}
		r.send(`{"type":"gathered","values":[%s,%s,%s]}`, m.Value, m.Value, m.Value)
	}
}

// list formats a list with one value per rank as JSON.
func list[T any](values ...T) string {
	text, _ := json.Marshal(values) // numbers can always be encoded
	return string(text)
}

// step reports a step in which rank 2 needs four times as long per sample.
func (r *rank) step(number int, shares []int) bridge.Decided {
	r.t.Helper()
	pass := func(rank int, of float64) float64 {
		slow := []float64{1, 1, 4}[rank]
		return float64(shares[rank]) * slow * of
	}
	all := func(of float64) string { return list(pass(0, of), pass(1, of), pass(2, of)) }
	longest := max(pass(0, 0.003), pass(1, 0.003), pass(2, 0.003))
	r.send(`{"type":"steps","first":%d,"steps":[{"epoch":%d,"epoch_step":%d,"epoch_steps":20,"settling":false,"learning_rate":0.1,"grad_norm":null,"skipped":false,"loss_scale":1,"time":%d,`+
		`"seconds":%s,"samples":%s,"count":%s,"loss":%s,"data":[0,0,0],"forward":%s,"backward":%s,"exposed":%s,"hidden":[0,0,0],"optimizer":[0.001,0.001,0.001],"other":[0,0,0],"bytes":[4000,4000,4000],"buckets":[1,1,1]}],"telemetry":[]}`,
		number, (number-1)/20, (number-1)%20+1, 1_700_000_000+number, list(longest+0.001, longest+0.001, longest+0.001),
		list(shares...), list(shares...), all(2), all(0.001), all(0.002),
		list(longest-pass(0, 0.003), longest-pass(1, 0.003), longest-pass(2, 0.003)))
	var d bridge.Decided
	r.receive("decided", &d)
	return d
}

func TestBridgeBalancesAndRecords(t *testing.T) {
	dir := t.TempDir()
	r := startRank(t)
	shares := r.open(dir, 0)
	if sum := shares[0] + shares[1] + shares[2]; sum != 48 || shares[0] != 16 {
		t.Fatalf("got first shares %v, want equal ones", shares)
	}
	for number := 1; number <= 40; number++ {
		if d := r.step(number, shares); d.Shares != nil {
			shares = d.Shares
		}
	}
	if shares[2] > 8 || shares[0] < 18 {
		t.Errorf("got shares %v, want about 21, 21 and 5", shares)
	}
	for _, loss := range []string{"2.5", "1.5", "null", "1.75"} { // null: the loss is not finite
		r.send(`{"type":"evaluation","step":40,"samples":100,"loss":%s,"seconds":0.1}`, loss)
		r.receive("done", new(bridge.Done))
	}
	r.send(`{"type":"end","step":0,"error":"","stopped":false,"closed":true}`)
	var ended bridge.Ended
	r.receive("ended", &ended)
	if err := <-r.done; err != nil {
		t.Fatal(err)
	}
	if ended.Steps != 40 || !(ended.ShareOfOracle > 0.9) {
		t.Errorf("got %d steps and %v of the oracle, want 40 and at least 0.9", ended.Steps, ended.ShareOfOracle)
	}
	var result struct {
		State, Model, Dataset string
		Steps, Ranks          int
		Best                  float64 `json:"best_eval"`
		Metric                string  `json:"best_eval_metric"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "run", "results", "result.json"))
	if err == nil {
		err = json.Unmarshal(text, &result)
	}
	if err != nil || result.State != "finished" || result.Steps != 40 || result.Ranks != 3 || result.Model != "Net" ||
		result.Dataset != "Numbers" || result.Best != 1.5 || result.Metric != "loss" {
		t.Errorf("got the result %+v, %v", result, err)
	}
	for name, lines := range map[string]int{"rank_2_metrics.json": 40, "balance.jsonl": 4, "curves.csv": 2,
		"summary.json": 1} {
		text, err := os.ReadFile(filepath.Join(dir, "run", "logs", name))
		if n := strings.Count(string(text), "\n"); err != nil || n < lines {
			t.Errorf("%s: got %d lines, want at least %d (%v)", name, n, lines, err)
		}
	}
	settings, err := os.ReadFile(filepath.Join(dir, "run", "configs", "resolved.toml"))
	if err != nil || strings.Contains(string(settings), "[optimizer]") ||
		!strings.Contains(string(settings), "PyTorch 2.4.0") {
		t.Errorf("got the settings %s, %v; want those that have an effect only", settings, err)
	}
}

// TestLookup checks that a run finds the curve that an earlier run of the same model stored in the cache.
func TestLookup(t *testing.T) {
	dir := t.TempDir()
	cache := filepath.Join(dir, "cache")
	points := `[{"samples":4,"seconds":0.5},{"samples":16,"seconds":1.5}]`
	first := startRank(t)
	t.Setenv("XDG_CACHE_HOME", cache)
	hello := `{"type":"hello","protocol":1,"package":"test","rank":0,"world_size":3,"local_rank":0,"local_world_size":3,` +
		`"settings":{"data.batch_size":"48","experiment.output_dir":%q,"experiment.name":"run"}}`
	shaped := strings.Replace(fmt.Sprintf(start, 0, 0), `"dataset"`, `"inputs":"[512] int64","dataset"`, 1)
	ask := strings.Replace(shaped, `"type":"start"`, `"type":"lookup"`, 1)
	lookup := func(r *rank, message string) int {
		r.send("%s", message)
		var c bridge.Curve
		r.receive("curve", &c)
		return len(c.Points)
	}
	first.send(hello, dir)
	first.receive("welcome", new(bridge.Welcome))
	if n := lookup(first, ask); n != 0 {
		t.Fatalf("an empty cache: got %d points, want none", n)
	}
	first.send("%s", strings.Replace(shaped, `"curve":[]`, `"curve":`+points, 1))
	first.answerGathers()
	first.in.Close()
	first.receive("error", new(bridge.Failed))
	<-first.done

	next := startRank(t)
	t.Setenv("XDG_CACHE_HOME", cache)
	next.send(hello, dir)
	next.receive("welcome", new(bridge.Welcome))
	if n := lookup(next, ask); n != 2 {
		t.Errorf("the same model: got %d points, want 2", n)
	}
	for _, other := range [][2]string{{`"hash":"12ab"`, `"hash":"34cd"`}, {`"dtype":"float32"`, `"dtype":"bfloat16"`},
		{`"torch":"2.4.0"`, `"torch":"2.5.0"`}, {`"name":"Test CPU"`, `"name":"Other CPU"`},
		{"[512] int64", "[2048] int64"}} {
		if n := lookup(next, strings.Replace(ask, other[0], other[1], 1)); n != 0 {
			t.Errorf("%s: got %d points, want none", other[1], n)
		}
	}
	next.in.Close()
	if err := <-next.done; err != nil {
		t.Error(err)
	}
	if n := strings.Count(next.log.String(), "comes from the cache"); n != 1 {
		t.Errorf("got %d messages about a cached curve, want 1: %s", n, next.log)
	}
}

func TestResumedRunKeepsItsRecords(t *testing.T) {
	dir := t.TempDir()
	for _, first := range []int{0, 5} {
		r := startRank(t)
		shares := r.open(dir, first)
		for number := first + 1; number <= first+7; number++ {
			r.step(number, shares)
		}
		if first == 0 {
			for _, e := range []string{`"step":5,"loss":0.5`, `"step":7,"loss":0.1`} { // step 7 is repeated
				r.send(`{"type":"evaluation",%s,"samples":100,"seconds":0.1}`, e)
				r.receive("done", new(bridge.Done))
			}
		}
		r.send(`{"type":"end","step":0,"error":"","stopped":false,"closed":true}`)
		r.receive("ended", new(bridge.Ended))
		if err := <-r.done; err != nil {
			t.Fatal(err)
		}
	}
	var records []struct {
		Iteration int
		Step      float64 `json:"step_time"`
		Training  float64 `json:"training_time"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "run", "logs", "rank_1_metrics.json"))
	if err == nil {
		err = json.Unmarshal(text, &records)
	}
	if err != nil || len(records) != 12 {
		t.Fatalf("got %d records, %v; want those of 12 steps", len(records), err)
	}
	seconds := 0.0
	for i, r := range records {
		if r.Iteration != i+1 {
			t.Errorf("record %d: got step %d", i, r.Iteration)
		}
		seconds += r.Step
		if math.Abs(r.Training-seconds) > 1e-4 { // the file contains rounded times
			t.Errorf("step %d: got a training time of %g s, want %g", i+1, r.Training, seconds)
		}
	}
	got := readResult(t, dir)
	if got.Seen != 12*48 || math.Abs(got.Rate-12*48/seconds) > 0.01*got.Rate || got.Best != 0.5 || got.At != 5 ||
		len(got.Notes) != 0 {
		t.Errorf("got the result %+v; want 576 samples in %g s, and the best loss 0.5 of step 5", got, seconds)
	}
}

// result contains some fields of result.json.
type result struct {
	State string
	Seen  int     `json:"samples_seen"`
	Rate  float64 `json:"samples_per_second"`
	Best  float64 `json:"best_eval"`
	At    int     `json:"best_eval_step"`
	Notes []string
}

func readResult(t *testing.T, dir string) (r result) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "run", "results", "result.json"))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestStepsWithoutRecordsAreNamed ends a script whose last reports were lost, and resumes it after these steps.
func TestStepsWithoutRecordsAreNamed(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		first, last, done, seen int
		note                    string
	}{
		{0, 3, 5, 3 * 48, "no record: steps 4 to 5; the run ended before"},
		{5, 6, 6, 6 * 48, "the training time of steps 4 to 5 is an estimate: each counts as long as step 3"},
	} {
		r := startRank(t)
		shares := r.open(dir, c.first)
		for number := c.first + 1; number <= c.last; number++ {
			r.step(number, shares)
		}
		r.send(`{"type":"end","step":%d,"error":"","stopped":false,"closed":true}`, c.done)
		r.receive("ended", new(bridge.Ended))
		if err := <-r.done; err != nil {
			t.Fatal(err)
		}
		if got := readResult(t, dir); got.Seen != c.seen || len(got.Notes) != 1 ||
			!strings.HasPrefix(got.Notes[0], c.note) {
			t.Errorf("from step %d: got %+v, want %d samples and the note %q", c.first+1, got, c.seen, c.note)
		}
	}
}

func TestFailures(t *testing.T) {
	hello := `{"type":"hello","protocol":%d,"package":"test","rank":0,"world_size":2,"local_rank":0,"local_world_size":2,"settings":{%s}}`
	for _, c := range []struct {
		name, want string
		code       int
		lines      []string
	}{
		{"another protocol", "speaks version 2 of the protocol", 2, []string{fmt.Sprintf(hello, 2, "")}},
		{"a setting of the script", "optimizer.lr has no effect", 2,
			[]string{fmt.Sprintf(hello, 1, `"optimizer.lr":"0.1"`)}},
		{"a timeline", "profile.trace_steps has no effect", 2,
			[]string{fmt.Sprintf(hello, 1, `"profile.trace_steps":"3"`)}},
		{"an unknown policy", "balance.policy", 2, []string{fmt.Sprintf(hello, 1, `"balance.policy":"best"`)}},
		{"no hello", "want hello", 2, []string{`{"type":"end","step":1}`}},
		{"no message", "no JSON object", 2, []string{"hello"}},
	} {
		r := startRank(t)
		for _, line := range c.lines {
			r.send("%s", line)
		}
		var failed bridge.Failed
		r.receive("error", &failed)
		if !strings.Contains(failed.Message, c.want) || failed.Code != c.code {
			t.Errorf("%s: got code %d, %s; want code %d, %s", c.name, failed.Code, failed.Message, c.code, c.want)
		}
		if err := <-r.done; err == nil {
			t.Errorf("%s: the command ends without an error", c.name)
		}
	}
}

func TestFailuresOfStartedRuns(t *testing.T) {
	for _, c := range []struct {
		name, line, want, state string
	}{
		{"the script fails", `{"type":"end","step":0,"error":"rank 0: ValueError: no","stopped":false}`, "ValueError: no",
			"failed"},
		{"the user stops the script", `{"type":"end","step":0,"error":"","stopped":true}`, "stopped", "stopped"},
		{"a step is missing", strings.ReplaceAll(`{"type":"steps","first":9,"steps":[{"epoch":0,"epoch_step":1,"epoch_steps":1,"time":1,"seconds":#,"samples":#,"count":#,"loss":#,"data":#,"forward":#,"backward":#,"exposed":#,"hidden":#,"optimizer":#,"other":#,"bytes":#,"buckets":#}]}`,
			"#", "[1,1,1]"), "got step 9 after step 0", "failed"},
		{"another hello", `{"type":"hello","rank":0,"world_size":1}`, "got a message hello, want steps", "failed"},
		{"the script is killed", "", "has ended without balancer.close()", "failed"},
	} {
		dir := t.TempDir()
		r := startRank(t)
		r.open(dir, 0)
		if c.line == "" {
			r.in.Close()
		} else {
			r.send("%s", c.line)
		}
		var failed bridge.Failed
		r.receive("error", &failed)
		if err := <-r.done; err == nil || !strings.Contains(failed.Message, c.want) {
			t.Errorf("%s: got %v, %s; want %s", c.name, err, failed.Message, c.want)
		}
		text, err := os.ReadFile(filepath.Join(dir, "run", "results", "result.json"))
		if err != nil || !strings.Contains(string(text), fmt.Sprintf(`"state": %q`, c.state)) {
			t.Errorf("%s: got the result %s, %v; want state %s", c.name, text, err, c.state)
		}
	}
}
