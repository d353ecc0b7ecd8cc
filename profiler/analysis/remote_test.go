package analysis

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
	"github.com/hetero-train/hetero-train/profiler/mlflow"
)

// fakeMLflow is an MLflow server with the runs of one experiment. A page of a metric's history contains two points.
type fakeMLflow struct {
	*httptest.Server
	runs   map[string]map[string]any // by run id, in the format of replies
	points map[string]map[string][]string
	asked  []string // Authorization header of each request
	status int      // HTTP status of all replies; 0: normal replies
	also   string   // name of another experiment that contains the same runs
	empty  bool     // a search returns empty pages without end
}

func newFakeMLflow(t *testing.T) *fakeMLflow {
	f := &fakeMLflow{runs: map[string]map[string]any{}, points: map[string]map[string][]string{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.asked = append(f.asked, r.Header.Get("Authorization"))
		reply := f.answer(strings.TrimPrefix(r.URL.Path, "/api/2.0/mlflow/"), r)
		if f.status != 0 || reply == nil {
			w.WriteHeader(max(f.status, http.StatusNotFound))
			reply = map[string]string{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no such thing"}
			if f.status != 0 {
				reply = map[string]string{"error_code": "INTERNAL_ERROR", "message": "a fault of the test"}
			}
		}
		if err := json.NewEncoder(w).Encode(reply); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

// add adds a run. points contains lines "time value step", by metric.
func (f *fakeMLflow) add(id, name, status string, params map[string]string, points map[string][]string) {
	list := func(m map[string]string) (all []map[string]string) {
		for _, key := range sortedKeys(m) {
			all = append(all, map[string]string{"key": key, "value": m[key]})
		}
		return all
	}
	var metrics []map[string]string
	for _, key := range sortedKeys(points) {
		metrics = append(metrics, map[string]string{"key": key})
	}
	f.runs[id] = map[string]any{
		"info": map[string]string{"run_id": id, "run_name": name, "experiment_id": "7", "status": status},
		"data": map[string]any{"params": list(params), "tags": list(map[string]string{"hetero_train.ranks": "2"}),
			"metrics": metrics},
	}
	f.points[id] = points
}

func (f *fakeMLflow) answer(method string, r *http.Request) any {
	query := r.URL.Query()
	switch method {
	case "experiments/get-by-name":
		if name := query.Get("experiment_name"); name == "team/resnet" || name == f.also {
			return map[string]any{"experiment": map[string]string{"experiment_id": "7"}}
		}
	case "runs/get":
		if run := f.runs[query.Get("run_id")]; run != nil {
			return map[string]any{"run": run}
		}
	case "runs/search":
		var request struct {
			Filter string
			IDs    []string `json:"experiment_ids"`
			Token  string   `json:"page_token"`
		}
		if json.NewDecoder(r.Body).Decode(&request) != nil || !slices.Equal(request.IDs, []string{"7"}) {
			return nil
		}
		if request.Token == "" || f.empty { // the first page of results is empty
			return map[string]any{"next_page_token": "more"}
		}
		var found []any
		for _, id := range sortedKeys(f.runs) {
			if request.Filter == fmt.Sprintf("attributes.run_name = '%s'",
				f.runs[id]["info"].(map[string]string)["run_name"]) {
				found = append(found, f.runs[id])
			}
		}
		return map[string]any{"runs": found}
	case "metrics/get-history":
		lines := f.points[query.Get("run_id")][query.Get("metric_key")]
		from, _ := strconv.Atoi(query.Get("page_token"))
		to := min(from+2, len(lines))
		var page []map[string]any
		for i, line := range lines[from:to] {
			fields := strings.Fields(line)
			point := map[string]any{"timestamp": json.Number(fields[0]), "value": json.Number(fields[1]),
				"step": json.Number(fields[2])}
			if i == 1 { // protobuf's JSON encodes 64-bit integers as strings
				point["timestamp"], point["step"] = fields[0], fields[2]
			}
			if fields[1] == "NaN" {
				point["value"] = "NaN"
			}
			page = append(page, point)
		}
		reply := map[string]any{"metrics": page}
		if to < len(lines) {
			reply["next_page_token"] = strconv.Itoa(to)
		}
		return reply
	}
	return nil
}

const (
	firstID  = "0123456789abcdef0123456789abcdef"
	secondID = "f123456789abcdef0123456789abcdef"
	thirdID  = "f223456789abcdef0123456789abcdef"
)

func TestARunOnAServerIsCompared(t *testing.T) {
	f := newFakeMLflow(t)
	f.add(firstID, "a b", "FINISHED", map[string]string{"model.name": "bert_base", "optimizer.lr": "0.1"},
		map[string][]string{
			"train/loss":                {"1000 2.5 1", "2000 2.0 10", "2500 9.0 20", "3000 1.5 20", "4000 NaN 30"},
			"progress/training_seconds": {"1000 0.5 1", "2000 1.4 10", "3000 3.4 20"},
			"speed/tokens_per_second":   {"1000 100 1", "2000 200 10", "3000 300 20"},
			"eval/next_sentence":        {"2000 0.5 10", "3000 0.75 20"},
			"memory":                    {"1 1 1"},
		})
	f.add(secondID, "other", "KILLED", map[string]string{"optimizer.lr": "0.2"},
		map[string][]string{"train/loss": {"1000 2 1"}})
	environ := []string{"MLFLOW_TRACKING_TOKEN=canary"}
	var all []*Trial
	for _, address := range []string{f.URL + "/#/experiments/7/runs/" + firstID + "/model-metrics?x=1",
		f.URL + "#team/resnet/other"} {
		trial, err := ReadTrial(t.Context(), address, environ)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, trial)
	}
	m := all[0]
	if m.Name != "a b" || m.Status != "finished" || m.Unit != "tok" || m.Ranks != 2 || m.TrainLoss != 1.5 ||
		m.Model != "bert_base" || m.Source != "mlflow" {
		t.Errorf("got %+v", m)
	}
	const seconds = 0.5 + 0.9 + 2 // 1 step takes 0.5 s, 9 steps take 0.1 s each, and 10 steps take 0.2 s each
	if want := (0.5*100 + 0.9*200 + 2*300) / seconds; !within(float64(m.Throughput), want, 1e-9) ||
		!within(float64(m.TrainingTime), seconds, 1e-9) {
		t.Errorf("got %g tok/s and %g s, want %g and %g", m.Throughput, m.TrainingTime, want, seconds)
	}
	if got, want := fmt.Sprint(m.curve(lossCurve).Points), "[{1 0.5 2.5} {10 1.4 2} {20 3.4 1.5}]"; got != want {
		t.Errorf("got %s, want %s: all pages, and the last point of a step", got, want)
	}
	if got, want := fmt.Sprint(m.curve(evalPrefix+"next_sentence").Points), "[{10 1.4 50} {20 3.4 75}]"; got != want ||
		m.lastMetric("next_sentence") != "75.00 %" {
		t.Errorf("next sentence: got %s and %s, want %s and 75 %%", got, m.lastMetric("next_sentence"), want)
	}
	s, err := CompareTrials(all)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Settings) != 2 || all[1].Status != "stopped" || all[1].Path != f.URL+"/#/experiments/7/runs/"+secondID {
		t.Errorf("got settings that differ %+v, status %q and path %q", s.Settings, all[1].Status, all[1].Path)
	}
	for _, same := range []string{f.URL + "/#/experiments/7/runs/" + firstID,
		"HTTP://mlflow.example:80/#/experiments/7/runs/" + firstID, "mlruns/7/" + firstID} {
		if _, err := CompareTrials([]*Trial{all[0], {Path: same}}); !errors.Is(err, ErrNotComparable) ||
			!strings.Contains(err.Error(), "same run") {
			t.Errorf("%s is the same run: got %v", same, err)
		}
	}
	if i := slices.IndexFunc(f.asked, func(got string) bool { return got != "Bearer canary" }); i >= 0 ||
		len(f.asked) == 0 {
		t.Errorf("request %d of %d: got authorization %q, want the token", i, len(f.asked), f.asked[max(i, 0)])
	}
}

func TestAddressesThatAreNoRun(t *testing.T) {
	f := newFakeMLflow(t)
	f.add(firstID, "twice", "FINISHED", nil, map[string][]string{"memory": {"1 1 1"}})
	f.add(secondID, "twice", "FINISHED", nil, nil)
	for address, says := range map[string]string{
		"/":                                      "want the address of a run's page",
		"/#/experiments/7":                       "want the address of a run's page",
		"/#/experiments/7/runs/..%2f..":          "want the address of a run's page",
		"?run=1#team/resnet/twice":               "want the address of a run's page",
		"#twice":                                 "want the address of a run's page",
		"#other/twice":                           `no experiment "other"`,
		"#team/resnet/none":                      `experiment "team/resnet" of MLflow has no run "none"`,
		"#team/resnet/a/b":                       `experiment "team/resnet" of MLflow has no run "a/b"`,
		"#a/b/c/d/e/f/g/h/i/j":                   "the names contain 9 slashes, want at most 8",
		"#team/resnet/twice":                     firstID + " " + f.URL + "/#/experiments/7/runs/" + secondID,
		"/#/experiments/7/runs/aaaa":             "MLflow has no run aaaa",
		"/#/experiments/7/runs/" + firstID + "/": "no metric that can be compared",
	} {
		_, err := ReadTrial(t.Context(), f.URL+address, nil)
		if err == nil || !strings.Contains(err.Error(), says) || errors.As(err, new(*ServerError)) {
			t.Errorf("%s: got %v, want %q and no fault of the server", address, err, says)
		}
	}
	for _, address := range []string{"http://me:canary@host#a/b", "http://me:canary@host?x=1#a/b",
		"https://me:canary@ho st#a/b"} {
		if _, err := ReadTrial(t.Context(), address, nil); !errors.Is(err, mlflow.ErrAddress) ||
			strings.Contains(err.Error(), "canary") {
			t.Errorf("an address with a password: got %v", err)
		}
	}
	f.empty = true
	if _, err := ReadTrial(t.Context(), f.URL+"#team/resnet/twice", nil); !errors.Is(err, mlflow.ErrLimit) ||
		errors.As(err, new(*ServerError)) {
		t.Errorf("a search without an end: got %v, want a limit", err)
	}
	f.status = http.StatusInternalServerError
	if _, err := ReadTrial(t.Context(), f.URL+"#team/resnet/twice", nil); !errors.As(err, new(*ServerError)) ||
		!strings.Contains(err.Error(), "a fault of the test") {
		t.Errorf("status 500: got %v, want a fault of the server", err)
	}
	if _, err := ReadTrial(t.Context(), "http://"+porttest.Refusing(t)+"#team/resnet/twice", nil); !errors.As(err,
		new(*ServerError)) {
		t.Errorf("the server is down: got %v, want a fault of the server", err)
	}
}

// The reply to a search contains a run without an id.
func TestARunWithoutIDIsAnError(t *testing.T) {
	f := newFakeMLflow(t)
	f.add("", "a", "FINISHED", nil, nil)
	if _, err := ReadTrial(t.Context(), f.URL+"#team/resnet/a", nil); !errors.As(err, new(*ServerError)) ||
		!strings.Contains(err.Error(), "contains no run id") {
		t.Errorf("got %v, want a fault of the server", err)
	}
}

// In an address, the names of the experiment and of the run can contain slashes.
func TestNamesWithSlashes(t *testing.T) {
	f := newFakeMLflow(t)
	points := map[string][]string{"train/loss": {"1 1 1", "2 1 2", "3 1 3"}}
	f.add(firstID, "lr/0.1/a", "FINISHED", nil, points)
	f.add(secondID, "b", "FINISHED", nil, points)
	for address, want := range map[string]string{"#team/resnet/lr/0.1/a": "lr/0.1/a",
		"#team%2Fresnet/lr%2F0.1%2Fa": "lr/0.1/a", "#team/resnet/b": "b"} {
		trial, err := ReadTrial(t.Context(), f.URL+address, nil)
		if err != nil || trial.Name != want {
			t.Errorf("%s: got %+v and %v, want run %q", address, trial, err, want)
		}
	}
	f.add(thirdID, "resnet/b", "FINISHED", nil, points)
	f.also = "team"
	_, err := ReadTrial(t.Context(), f.URL+"#team/resnet/b", nil)
	if !errors.Is(err, mlflow.ErrAmbiguous) || errors.As(err, new(*ServerError)) ||
		!strings.Contains(err.Error(), "/runs/"+secondID+" ") || !strings.HasSuffix(err.Error(), "/runs/"+thirdID) {
		t.Errorf("run b of team/resnet, and run resnet/b of team: got %v, want the addresses of both", err)
	}
	for address, want := range map[string]string{"#team%2Fresnet/b": "b", "#team/resnet%2Fb": "resnet/b"} {
		if trial, err := ReadTrial(t.Context(), f.URL+address, nil); err != nil || trial.Name != want {
			t.Errorf("%s: got %+v and %v, want run %q", address, trial, err, want)
		}
	}
	f.also = ""
	reader, run, err := mlflow.OpenRun(t.Context(), f.URL+"#team/resnet/b", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.History(t.Context(), run.ID, "train/loss", 2); !errors.Is(err, mlflow.ErrLimit) {
		t.Errorf("three points, at most two: got %v, want a limit", err)
	}
}
