package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/jobqueue"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

const (
	nodesText = `{"metadata":{"continue":"next"},"items":[
		{"metadata":{"name":"volta1","labels":{"kubernetes.io/hostname":"host-volta1","nvidia.com/gpu.product":"Tesla-V100","zone":"a"}},
		 "spec":{"taints":[{"key":"nvidia.com/gpu","effect":"NoSchedule"},{"key":"soft","effect":"PreferNoSchedule"}]},
		 "status":{"allocatable":{"cpu":"31500m","memory":"128Gi","nvidia.com/gpu":"4"},"conditions":[{"type":"Ready","status":"True"}]}}]}`
	moreNodesText = `{"items":[
		{"metadata":{"name":"radeon1","labels":{"kubernetes.io/hostname":"radeon1"}},"spec":{"unschedulable":true},
		 "status":{"allocatable":{"cpu":"16","memory":"67108864Ki","amd.com/gpu":"2"},"conditions":[{"type":"Ready","status":"True"}]}},
		{"metadata":{"name":"cpu1"},"status":{"allocatable":{"cpu":"8","memory":"16e9"},"conditions":[{"type":"Ready","status":"Unknown","reason":"NodeStatusUnknown"}]}}]}`
	podsText = `{"items":[
		{"metadata":{"name":"web","namespace":"shop"},"spec":{"nodeName":"volta1","containers":[{"resources":{"requests":{"cpu":"500m","memory":"1Gi"}}}]},"status":{"phase":"Running"}},
		{"metadata":{"name":"train-x","namespace":"ml","creationTimestamp":"2026-01-02T03:04:05Z","annotations":{"hetero-train/kind":"ResNet-50 (batch size 64)","hetero-train/steps":"1000"}},
		 "spec":{"nodeName":"volta1","containers":[{"resources":{"requests":{"cpu":"2"},"limits":{"nvidia.com/gpu":"3"}}},{}],"initContainers":[{"resources":{"requests":{"cpu":"4"}}}]},
		 "status":{"phase":"Running","startTime":"2026-01-02T03:05:05Z"}},
		{"metadata":{"name":"lost","namespace":"ml"},"spec":{"containers":[{"resources":{"limits":{"nvidia.com/gpu":"1"}}}]},"status":{"phase":"Pending"}}]}`
	oneGPU   = `"template":{"spec":{"containers":[{"resources":{"limits":{"nvidia.com/gpu":"1"}}}]}}`
	jobsText = `{"items":[
		{"metadata":{"name":"lm","namespace":"ml","resourceVersion":"77","labels":{"hetero-train/schedule":"true"},"creationTimestamp":"2026-01-02T03:04:05Z","annotations":{"hetero-train/kind":"LM (batch size 5)","hetero-train/steps":"5e4"}},
		 "spec":{"suspend":true,"parallelism":5,"completions":2,"activeDeadlineSeconds":3600,"template":{"spec":{"nodeSelector":{"zone":"a"},
		   "tolerations":[{"key":"nvidia.com/gpu","operator":"Exists","effect":"NoSchedule"},{"operator":"Exists","effect":"NoExecute"}],
		   "containers":[{"resources":{"requests":{"cpu":"4","memory":"8G"},"limits":{"nvidia.com/gpu":"1"}}}]}}}},
		{"metadata":{"name":"own","namespace":"ml","resourceVersion":"78","labels":{"hetero-train/schedule":"true"}},"spec":{"suspend":true,"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[]}}},
		   "containers":[{"resources":{"limits":{"nvidia.com/gpu":"1"}}}]}}}},
		{"metadata":{"name":"silent","namespace":"ml"},"spec":{"suspend":true,` + oneGPU + `}},
		{"metadata":{"name":"queued","namespace":"ml","labels":{"hetero-train/schedule":"true","kueue.x-k8s.io/queue-name":"team-a"}},"spec":{"suspend":true,` + oneGPU + `}},
		{"metadata":{"name":"nightly-1","namespace":"ml","labels":{"hetero-train/schedule":"true"},"ownerReferences":[{"kind":"CronJob","name":"nightly","controller":true}]},"spec":{"suspend":true,` + oneGPU + `}},
		{"metadata":{"name":"managed","namespace":"ml","labels":{"hetero-train/schedule":"true"}},"spec":{"suspend":true,"managedBy":"kueue.x-k8s.io/multikueue",` + oneGPU + `}},
		{"metadata":{"name":"poor","namespace":"small","labels":{"hetero-train/schedule":"true"}},"spec":{"suspend":true,"parallelism":2,` + oneGPU + `}},
		{"metadata":{"name":"cpus","namespace":"ml"},"spec":{"suspend":true,"template":{"spec":{"containers":[{}]}}}},
		{"metadata":{"name":"runs","namespace":"ml"},"spec":{"template":{"spec":{"containers":[{"resources":{"limits":{"nvidia.com/gpu":"1"}}}]}}}}]}`
	quotasText = `{"items":[{"metadata":{"name":"gpus","namespace":"small"},"status":{"hard":{"requests.nvidia.com/gpu":"4","pods":"9","requests.amd.com/gpu":"0","configmaps":"5"},"used":{"requests.nvidia.com/gpu":"3"}}},
		{"metadata":{"name":"ample","namespace":"ml"},"status":{"hard":{"requests.nvidia.com/gpu":"100"},"used":{}}}]}`
)

// server is a fake API server with lists of objects and one Job. It records the patches that it receives.
type server struct {
	mutex   sync.Mutex
	patches []string
	failing string            // path for which the server returns 403
	more    map[string]string // further answers, by path
	missing string            // message of responses with status 404
	// Answers by path that replace those of more. Each patch advances to the next answer.
	after     map[string][]string
	conflicts int // number of patches that the server refuses
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == s.failing {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"nodes is forbidden: no right to list","reason":"Forbidden","code":403}`)
		return
	}
	answers := map[string]string{
		"/api":                                 `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis":                                `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"batch","versions":[{"groupVersion":"batch/v1","version":"v1"}],"preferredVersion":{"groupVersion":"batch/v1","version":"v1"}}]}`,
		"/api/v1":                              `{"kind":"APIResourceList","groupVersion":"v1","resources":[]}`,
		"/apis/batch/v1":                       `{"kind":"APIResourceList","groupVersion":"batch/v1","resources":[{"name":"jobs","singularName":"job","namespaced":true,"kind":"Job","verbs":["get","list","patch"]}]}`,
		"/api/v1/nodes":                        nodesText,
		"/api/v1/pods":                         podsText,
		"/api/v1/resourcequotas":               quotasText,
		"/apis/batch/v1/jobs":                  jobsText,
		"/apis/batch/v1/namespaces/ml/jobs":    jobsText,
		"/apis/batch/v1/namespaces/ml/jobs/lm": `{"kind":"Job","apiVersion":"batch/v1","metadata":{"name":"lm","namespace":"ml","resourceVersion":"77"},"spec":{"suspend":true}}`,
	}
	text, ok := answers[r.URL.Path]
	if other, own := s.more[r.URL.Path]; own {
		text, ok = other, true
	}
	switch {
	case !ok:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"`+s.missing+`","reason":"NotFound","code":404}`)
		return
	case r.URL.Query().Get("continue") == "next":
		text = moreNodesText
	case r.Method == http.MethodPatch:
		body, _ := io.ReadAll(r.Body)
		s.patches = append(s.patches, r.URL.Path+" "+r.Header.Get("Content-Type")+" "+string(body))
		for path, later := range s.after {
			if len(later) > 0 {
				s.more[path], s.more[path+"/status"], s.after[path] = later[0], later[0], later[1:]
			}
		}
		if s.conflicts > 0 {
			s.conflicts--
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the object has been modified","reason":"Conflict","code":409}`)
			return
		}
	}
	fmt.Fprint(w, text)
}

// start starts the server, and makes the real kubectl use it.
func start(t *testing.T) *server {
	t.Helper()
	needtest.Program(t, "kubectl", "kubectl")
	s := new(server)
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	file := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`{"kind":"Config","apiVersion":"v1","current-context":"test","contexts":[{"name":"test","context":{"cluster":"test","user":"test"}}],
		"clusters":[{"name":"test","cluster":{"server":%q}}],"users":[{"name":"test","user":{"token":"secret"}}]}`, web.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	t.Setenv("HOME", t.TempDir()) // kubectl caches the server's resource types in HOME
	return s
}

func checkSnapshot(t *testing.T, s *jobqueue.Snapshot) {
	t.Helper()
	const gib = 1 << 30
	nodes := []jobqueue.Node{
		{Name: "volta1", GPUs: []jobqueue.GPUs{{Type: "Tesla-V100", Total: 4, Used: 3}}, CPUs: 31.5, UsedCPUs: 4.5,
			Memory: 128 * gib, UsedMemory: gib,
			Labels: []string{"kubernetes.io/hostname=host-volta1", "nvidia.com/gpu.product=Tesla-V100", "zone=a"},
			Repels: []string{"nvidia.com/gpu=:NoSchedule"}},
		{Name: "radeon1", GPUs: []jobqueue.GPUs{{Type: "amd.com/gpu", Total: 2}}, CPUs: 16, Memory: 64 * gib,
			Down: "cordoned", Labels: []string{"kubernetes.io/hostname=radeon1"}},
		{Name: "cpu1", CPUs: 8, Memory: 16e9, Down: "not ready: NodeStatusUnknown"},
	}
	if !reflect.DeepEqual(s.Nodes, nodes) {
		t.Errorf("nodes: got %+v\nwant %+v", s.Nodes, nodes)
	}
	jobs := []jobqueue.Job{
		{ID: "pod ml/train-x", Name: "train-x", Phase: jobqueue.Active, Submitted: 1767323045, Started: 1767323105,
			Limit: math.Inf(1), GPUs: 3, CPUs: 4,
			On: []string{"volta1"}, Holds: [][]jobqueue.GPUs{{{Type: "Tesla-V100", Total: 3}}},
			Kind: "ResNet-50 (batch size 64)", Work: 1000},
		{ID: "pod ml/lost", Name: "lost", Limit: math.Inf(1), GPUs: 1,
			Skip: "Kubernetes does not permit changes of a pod's placement; submit a suspended Job instead"},
		{ID: "ml/lm", Name: "lm", Submitted: 1767323045, Limit: 3600, GPUs: 2, CPUs: 8, Memory: 16e9,
			Requires:  []string{"zone=a"},
			Tolerates: []string{"nvidia.com/gpu=*:NoSchedule", "*:NoExecute"}, Kind: "LM (batch size 5)", Work: 5e4},
		{ID: "ml/own", Name: "own", Limit: math.Inf(1), GPUs: 1, Skip: "the Job already has a required node affinity"},
		{ID: "ml/silent", Name: "silent", Limit: math.Inf(1), GPUs: 1,
			Skip: "the Job does not opt in: want its label hetero-train/schedule=true"},
		{ID: "ml/queued", Name: "queued", Limit: math.Inf(1), GPUs: 1,
			Skip: "Kueue starts the Job, from its queue team-a"},
		{ID: "ml/nightly-1", Name: "nightly-1", Limit: math.Inf(1), GPUs: 1,
			Skip: "CronJob nightly owns the Job, and decides when it runs"},
		{ID: "ml/managed", Name: "managed", Limit: math.Inf(1), GPUs: 1,
			Skip: "kueue.x-k8s.io/multikueue manages the Job"},
		{ID: "small/poor", Name: "poor", Limit: math.Inf(1), GPUs: 2,
			Takes: []jobqueue.Take{{Budget: 1, Amount: 2}, {Budget: 3, Amount: 2}}},
	}
	for i := range jobs {
		if j := &jobs[i]; strings.HasPrefix(j.ID, "ml/") { // namespace ml has one quota, for NVIDIA's GPUs
			j.Takes = []jobqueue.Take{{Budget: 4, Amount: float64(j.GPUs)}}
		}
	}
	if want := (jobqueue.Budget{Name: "the quota gpus of the namespace small for requests.nvidia.com/gpu",
		Left: 1}); len(s.Budgets) != 5 || s.Budgets[3] != want {
		t.Errorf("budgets: got %+v, want 5 with %+v", s.Budgets, want)
	}
	if !reflect.DeepEqual(s.Jobs, jobs) {
		t.Errorf("jobs: got %+v\nwant %+v", s.Jobs, jobs)
	}
}

// The real kubectl must be able to read from the fake server, and to patch its objects.
func TestKubectl(t *testing.T) {
	web := start(t)
	c := &Client{Context: "test"}
	s, err := c.Read(context.Background(), 1767323200)
	if err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, s)
	if err := c.Apply(context.Background(), jobqueue.Placement{Job: "ml/lm", Nodes: []string{"volta1"}}); err != nil {
		t.Fatal(err)
	}
	const want = `/apis/batch/v1/namespaces/ml/jobs/lm application/merge-patch+json {"metadata":{"resourceVersion":"77"},"spec":{"suspend":false,"template":{"spec":{"affinity":` +
		`{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In","values":["host-volta1"]}]}]}}}}}}}`
	if len(web.patches) != 1 || !sameJSON(web.patches[0], want) {
		t.Errorf("got patches %q\nwant %q", web.patches, want)
	}
	for _, p := range []jobqueue.Placement{{Job: "ml/unknown", Nodes: []string{"volta1"}}, {Job: "ml/lm"},
		{Job: "lm", Nodes: []string{"volta1"}}} {
		if err := c.Apply(context.Background(), p); err == nil {
			t.Errorf("placement %+v: got no error", p)
		}
	}
	web.failing = "/api/v1/nodes"
	if _, err := c.Read(context.Background(), 0); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("no rights: got error %v", err)
	}
}

// sameJSON reports whether two texts have the same words before a JSON object, and equal objects.
func sameJSON(a, b string) bool {
	i, j := strings.IndexByte(a, '{'), strings.IndexByte(b, '{')
	var x, y any
	return i >= 0 && j >= 0 && a[:i] == b[:j] && json.Unmarshal([]byte(a[i:]), &x) == nil &&
		json.Unmarshal([]byte(b[j:]), &y) == nil && reflect.DeepEqual(x, y)
}

func parsed(t testing.TB, texts ...string) ([]node, []pod, []job, error) {
	t.Helper()
	var nodes, more page[node]
	var pods page[pod]
	var jobs page[job]
	for i, to := range []any{&nodes, &pods, &jobs, &more} {
		if i < len(texts) {
			if err := json.Unmarshal([]byte(texts[i]), to); err != nil {
				return nil, nil, nil, err
			}
		}
	}
	return slices.Concat(nodes.Items, more.Items), pods.Items, jobs.Items, nil
}

func TestSnapshot(t *testing.T) {
	nodes, pods, jobs, err := parsed(t, nodesText, podsText, jobsText, moreNodesText)
	if err != nil {
		t.Fatal(err)
	}
	var quotas page[quota]
	if err := json.Unmarshal([]byte(quotasText), &quotas); err != nil {
		t.Fatal(err)
	}
	s, err := new(Client).snapshot(nodes, pods, jobs, quotas.Items, 0)
	if err != nil {
		t.Fatal(err)
	}
	checkSnapshot(t, s)
}

func TestQuantity(t *testing.T) {
	for text, want := range map[string]float64{"2": 2, "250m": 0.25, "16Gi": 16 << 30, "1e3": 1000, "5k": 5000,
		"1E": 1e18, "0": 0, "1.5Gi": 1.5 * (1 << 30)} {
		if got, err := quantity(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "1Qi", "Gi", "1e999", "NaN", "x"} {
		if got, err := quantity(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func FuzzSnapshot(f *testing.F) {
	f.Add(nodesText, podsText, jobsText)
	f.Add(moreNodesText, podsText, jobsText)
	f.Add(`{"items":[{"status":{"allocatable":{"nvidia.com/gpu":"1E"}}}]}`, `{}`, `{"items":[{"spec":{"suspend":true,"parallelism":-5,"template":{"spec":{"containers":[{"resources":{"limits":{"amd.com/gpu":"999999"}}}]}}}}]}`)
	f.Fuzz(func(t *testing.T, a, b, c string) {
		nodes, pods, jobs, err := parsed(t, a, b, c)
		if err != nil {
			return
		}
		s, err := new(Client).snapshot(nodes, pods, jobs, nil, 0)
		if err != nil {
			return
		}
		for _, j := range s.Jobs {
			if j.GPUs < 1 {
				t.Errorf("job %+v has no GPUs", j)
			}
		}
	})
}
