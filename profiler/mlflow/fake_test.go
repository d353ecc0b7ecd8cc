package mlflow

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// fake is an MLflow server. It stores each point that it receives, even if it already has an equal one.
type fake struct {
	*httptest.Server
	mu      sync.Mutex
	tags    map[string]string
	params  map[string]string
	points  map[string][]int64 // steps of the stored points, by metric
	status  []string
	files   map[string]string
	created int
	// fault is called for each request of MLflow's API. If status is not 0, the server does nothing but return this
	// status. If lose is true, the server processes the request, and then closes the connection without a reply.
	fault func(method string) (status int, lose bool)
}

const fakeRun = "0123456789abcdef0123456789abcdef"

func newFake(t *testing.T) *fake {
	f := &fake{tags: map[string]string{}, params: map[string]string{}, points: map[string][]int64{},
		files: map[string]string{}}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	method := r.URL.Path[strings.LastIndex(strings.TrimSuffix(r.URL.Path, "/"), "mlflow/")+len("mlflow/"):]
	if r.Method == http.MethodPut {
		method = "artifact"
	}
	lose := false
	if f.fault != nil {
		var status int
		if status, lose = f.fault(method); status != 0 {
			w.WriteHeader(status)
			fmt.Fprint(w, `{"error_code": "INTERNAL_ERROR", "message": "a fault of the test"}`)
			return
		}
	}
	reply := f.answer(method, r, body, w)
	if lose {
		panic(http.ErrAbortHandler) // closes the connection without a reply
	}
	if reply != nil {
		json.NewEncoder(w).Encode(reply)
	}
}

// steps returns the steps of a metric.
func (f *fake) steps(metric string) []int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.points[metric])
}

// run returns the run in the format of replies.
func (f *fake) run() map[string]any {
	return map[string]any{"info": map[string]string{"run_id": fakeRun, "artifact_uri": "mlflow-artifacts:/1/" +
		fakeRun + "/artifacts"}, "data": map[string]any{"tags": pairs(f.tags, 1000)}}
}

func (f *fake) answer(method string, r *http.Request, body []byte, w http.ResponseWriter) any {
	var request struct {
		Metrics []metric
		Params  []pair
		Tags    []pair
		Status  string
	}
	if method != "artifact" && len(body) > 0 && json.Unmarshal(body, &request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return nil
	}
	switch method {
	case "experiments/get-by-name":
		w.WriteHeader(http.StatusNotFound)
		return map[string]string{"error_code": "RESOURCE_DOES_NOT_EXIST"}
	case "experiments/create":
		return map[string]string{"experiment_id": "1"}
	case "runs/search":
		if f.created == 0 {
			return map[string]any{}
		}
		return map[string]any{"runs": []any{f.run()}}
	case "runs/get":
		return map[string]any{"run": f.run()}
	case "runs/create", "runs/log-batch":
		if method == "runs/create" {
			f.created++
		}
		for _, t := range request.Tags {
			f.tags[t.Key] = t.Value
		}
		for _, p := range request.Params {
			f.params[p.Key] = p.Value
		}
		for _, m := range request.Metrics {
			f.points[m.Key] = append(f.points[m.Key], m.Step)
		}
		if n := len(request.Metrics); n > 1000 || len(request.Params) > 100 || len(request.Tags) > 100 ||
			len(body) > 1<<20 {
			w.WriteHeader(http.StatusBadRequest)
			return map[string]string{"error_code": "INVALID_PARAMETER_VALUE", "message": "the batch is too large"}
		}
		return map[string]any{"run": f.run()}
	case "runs/update":
		f.status = append(f.status, request.Status)
		return map[string]any{}
	case "artifact":
		f.files[r.URL.Path] = string(body)
		return map[string]any{}
	}
	w.WriteHeader(http.StatusNotFound)
	return nil
}
