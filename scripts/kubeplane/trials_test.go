package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const patience = 4 * time.Minute

// An indexed Job trains on the intended nodes, and after each kind of loss the resumed run ends with bit-equal
// parameters.
func TestIndexedJobTrains(t *testing.T) {
	if !apart(t) {
		return
	}
	c := start(t)
	job := func() time.Time {
		at := time.Now()
		c.overlay("testdata/indexed-job")
		return at
	}
	complete := func() {
		c.until("complete Job", patience, func() bool {
			return c.field("job/train", `.status.conditions[?(@.type=="Complete")].status`) == "True"
		})
	}
	again := func() {
		c.kubectl("delete", "job", "train", "--namespace=hetero-train", "--wait")
		c.forget()
	}

	// The first run is not interrupted.
	at := job()
	c.kubectl("wait", "--namespace=hetero-train", "job/train", "--for=jsonpath={.status.ready}=3", "--timeout=110s")
	c.until("first step", patience, func() bool { return c.says("train-0-", "step 1/") })
	t.Logf("from kubectl apply to the first step: %.1f s", time.Since(at).Seconds())
	placed := c.kubectl("get", "pods", "--namespace=hetero-train", "-l", "app.kubernetes.io/component=rank", "-o",
		`jsonpath={range .items[*]}{.spec.nodeName} {end}`)
	if h100s, t4s := strings.Count(placed, "h100-"), strings.Count(placed, "t4-"); h100s+t4s != 3 || h100s == 0 ||
		t4s == 0 || strings.Contains(placed, "cpu-") {
		t.Errorf("got the nodes %s, want 3 with GPUs, of both kinds", placed)
	}
	c.dashboard()
	complete()
	want := c.weights("whole")
	if log := c.logs("train-0-"); len(log) != 1 {
		t.Errorf("got %d pods of rank 0, want 1", len(log))
	}
	again()

	// SIGKILL, and an eviction.
	job()
	c.until("step 100", patience, func() bool { return c.says("train-0-", "step 100/") })
	c.signal("train-1-", syscall.SIGKILL)
	c.until("second start", patience, func() bool {
		return len(c.logs("train-0-")) == 2 && c.says("train-0-", "| shares")
	})
	if codes := c.codes(); !maps.Equal(codes, map[string]int{"137": 1, "5": 2}) {
		t.Errorf("after SIGKILL: got the exit codes %v, want one 137 and two 5", codes)
	}
	c.until("3 ready pods", patience, func() bool { return c.field("job/train", ".status.ready") == "3" })
	pods := strings.Fields(c.kubectl("get", "pods", "--namespace=hetero-train", "--field-selector=status.phase=Running",
		"-l", "app.kubernetes.io/component=rank", "-o", `jsonpath={.items[*].metadata.name}`))
	evict := func(pod string) (string, int) {
		return c.try(fmt.Sprintf(`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": %q,
			"namespace": "hetero-train"}}`, pod), "kubectl", "create", "--raw",
			"/api/v1/namespaces/hetero-train/pods/"+pod+"/eviction", "-f", "-")
	}
	c.until("eviction", patience, func() bool { _, code := evict(pods[2]); return code == 0 })
	if out, code := evict(pods[1]); code == 0 || !strings.Contains(out, "disruption budget") {
		t.Errorf("a second eviction: got exit code %d and %q, want a refusal by the budget", code, out)
	}
	complete()
	if !bytes.Equal(c.weights("interrupted"), want) {
		t.Error("the parameters differ from those of an uninterrupted run")
	}
	t.Logf("failed pods that count: %s", c.field("job/train", ".status.failed"))
	// The evicted pod is gone. The other two ranks exit with 75, but one may exit with 5 if it loses the connection to
	// another rank before it has stopped.
	if codes := c.codes(); codes["75"] == 0 || codes["75"]+codes["5"] != 4 || codes["0"] != 3 || codes["137"] != 1 ||
		len(codes) > 4 {
		t.Errorf("after the eviction: got the exit codes %v, want 75, or 5 for a rank, of two more pods", codes)
	}
	saved := 0
	for _, path := range c.logs("train-") {
		text, err := os.ReadFile(path)
		c.must(err)
		if strings.Contains(string(text), "stopped by SIGTERM: saved") {
			saved++
		}
		if strings.Contains(string(text), c.token) {
			t.Errorf("%s has the token", path)
		}
		for _, warning := range []string{"/dev/shm", "unknown variable", "read-only file system", "permission denied"} {
			if strings.Contains(string(text), warning) {
				t.Errorf("%s: got %q in\n%s", path, warning, text)
			}
		}
	}
	if saved == 0 {
		t.Error("no rank saved after the eviction")
	}
	again()

	// A lost node: its pods remain until the Node object is deleted.
	job()
	c.until("step 100", patience, func() bool { return c.says("train-0-", "step 100/") })
	node := c.kubectl("get", "pods", "--namespace=hetero-train", "-l", "batch.kubernetes.io/job-completion-index=1",
		"-o", "jsonpath={.items[0].spec.nodeName}")
	c.kubectl("delete", "node", node)
	complete()
	if !bytes.Equal(c.weights("moved"), want) {
		t.Error("after the loss of a node: the parameters differ from those of an uninterrupted run")
	}
	if placed := c.kubectl("get", "pods", "--namespace=hetero-train", "--field-selector=status.phase=Succeeded", "-o",
		"jsonpath={.items[*].spec.nodeName}"); strings.Contains(placed, node) || len(strings.Fields(placed)) != 3 {
		t.Errorf("after the loss of %s: got the nodes %s, want 3 others", node, placed)
	}
	again()

	// A wrong setting ends the Job immediately.
	c.kubectl("patch", "configmap", "hetero-train", "--namespace=hetero-train", "--type=merge", "--patch",
		`{"data": {"config.toml": "[model]\nname = \"resnet51\"\n"}}`)
	text := c.kubectl("kustomize", "testdata/indexed-job")
	c.apply(text[strings.LastIndex(text[:strings.Index(text, "kind: Job")], "---")+4:])
	c.until("failed Job", patience, func() bool {
		return c.field("job/train", `.status.conditions[?(@.type=="Failed")].reason`) == "PodFailurePolicy"
	})
	if text := c.field("job/train", `.status.conditions[?(@.type=="Failed")].message`); !strings.Contains(text,
		"exit code 2") {
		t.Errorf("got the message %q, want exit code 2", text)
	}
}

// dashboard checks the pod of the dashboard: it serves requests only under the host names of its Service, and shows the
// run.
func (c *cluster) dashboard() {
	c.t.Helper()
	get := func(path, host string) (int, string) {
		address := c.kubectl("get", "pods", "--namespace=hetero-train", "-l", "app.kubernetes.io/component=dashboard",
			"-o", "jsonpath={.items[0].status.podIP}")
		request, err := http.NewRequest("GET", "http://"+address+":8501"+path, nil)
		c.must(err)
		request.Host = host
		request.Header.Set("Authorization", "Bearer "+strings.Repeat("d1", 32))
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(text)
	}
	var text string
	c.until("dashboard with the run", time.Minute, func() bool {
		_, text = get("/api/runs", "hetero-train-dashboard:8501")
		return strings.Contains(text, `"name":"train"`)
	})
	for host, want := range map[string]int{"hetero-train-dashboard.hetero-train:8501": 200,
		"hetero-train-dashboard.hetero-train.svc:8501": 200, "hetero-train-dashboard.other.svc:8501": 403} {
		if code, text := get("/api/runs", host); code != want {
			c.t.Errorf("dashboard as %s: got status %d and %s, want %d", host, code, text, want)
		}
	}
}

// rights that `schedule advise --kubernetes` needs, and kubectl's error without each.
var rights = []struct{ kind, name, resource, verb, says string }{
	{"clusterrole", "hetero-train-advise", "nodes", "list", `cannot list resource "nodes" in API group ""`},
	{"clusterrole", "hetero-train-advise", "pods", "list", `cannot list resource "pods" in API group ""`},
	{"clusterrole", "hetero-train-advise", "resourcequotas", "list",
		`cannot list resource "resourcequotas" in API group ""`},
	{"clusterrole", "hetero-train-advise", "jobs", "list", `cannot list resource "jobs" in API group "batch"`},
	{"clusterrole", "hetero-train-advise", "namespaces", "get", `cannot get resource "namespaces" in API group ""`},
	{"role", "hetero-train-advise-apply", "jobs", "get", `cannot get resource "jobs" in API group "batch"`},
	{"role", "hetero-train-advise-apply", "jobs", "patch", `cannot patch resource "jobs" in API group "batch"`},
}

func TestAdviseNeedsTheDocumentedRights(t *testing.T) {
	if !apart(t) {
		return
	}
	c := start(t)
	c.overlay("../../deploy/kubernetes/advise")
	user := filepath.Join(c.folder, "advise.kubeconfig")
	admin, err := os.ReadFile(os.Getenv("KUBECONFIG"))
	c.must(err)
	secret := c.kubectl("create", "token", "hetero-train-advise", "--namespace=hetero-train")
	c.must(os.WriteFile(user, regexp.MustCompile(`token: "\w+"`).ReplaceAllLiteral(admin,
		[]byte(`token: "`+secret+`"`)), 0o600))
	gates := "" // of the pods
	suspendedIn := func(namespace, name string) {
		c.apply(fmt.Sprintf(`{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": %q,
			"namespace": %q, "labels": {"hetero-train/schedule": "true"}}, "spec": {"suspend": true,
			"template": {"spec": {%s"restartPolicy": "Never", "securityContext": {"runAsNonRoot": true, "runAsUser": 1,
			"seccompProfile": {"type": "RuntimeDefault"}}, "containers": [{"name": "c", "image": "other",
			"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
			"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}}}`, name, namespace, gates))
	}
	suspended := func(name string) { suspendedIn("hetero-train", name) }
	log := []string{"--log=" + filepath.Join(c.folder, "changes.jsonl"), "--changes-per-hour=100000"}
	adviseIn := func(namespace string, more ...string) (string, int) {
		if slices.Contains(more, "--apply") {
			more = append(more, log...)
		}
		return c.try("", "env", append([]string{"KUBECONFIG=" + user, c.program, "schedule", "advise", "--kubernetes",
			"--namespace=" + namespace}, more...)...)
	}
	advise := func(more ...string) (string, int) { return adviseIn("hetero-train", more...) }
	suspended("waits")
	if out, code := advise(); code != 0 || !strings.Contains(out, "waits") {
		t.Fatalf("with the documented rights: exit code %d and\n%s", code, out)
	}
	for i, r := range rights {
		text := c.kubectl("get", r.kind, r.name, "--namespace=hetero-train", "-o", "json")
		var role struct {
			Rules []struct {
				APIGroups []string `json:"apiGroups"`
				Resources []string `json:"resources"`
				Verbs     []string `json:"verbs"`
				Names     []string `json:"resourceNames,omitempty"`
			} `json:"rules"`
		}
		c.must(json.Unmarshal([]byte(text), &role))
		whole, err := json.Marshal(map[string]any{"rules": role.Rules})
		c.must(err)
		for j, rule := range role.Rules {
			for k, resource := range rule.Resources {
				if resource == r.resource && len(rule.Verbs) == 1 {
					role.Rules[j].Resources = append(append([]string{}, rule.Resources[:k]...), rule.Resources[k+1:]...)
				}
			}
			if len(rule.Verbs) > 1 {
				role.Rules[j].Verbs = nil
				for _, verb := range rule.Verbs {
					if verb != r.verb {
						role.Rules[j].Verbs = append(role.Rules[j].Verbs, verb)
					}
				}
			}
		}
		kept := role.Rules[:0]
		for _, rule := range role.Rules {
			if len(rule.Resources) > 0 {
				kept = append(kept, rule)
			}
		}
		less, err := json.Marshal(map[string]any{"rules": kept})
		c.must(err)
		patch := func(rules []byte) {
			c.kubectl("patch", r.kind, r.name, "--namespace=hetero-train", "--type=merge", "--patch", string(rules))
		}
		patch(less)
		var args []string
		if r.kind == "role" || r.resource == "namespaces" {
			args = []string{"--apply"}
		}
		var out string
		var code int
		for range 50 { // the server reads changed rights after a moment
			if out, code = advise(args...); code != 0 {
				break
			}
			c.kubectl("delete", "job", "waits", "--namespace=hetero-train", "--ignore-not-found")
			suspended("waits")
			time.Sleep(100 * time.Millisecond)
		}
		if code != 5 || !strings.Contains(out, r.says) {
			t.Errorf("%d: without %s of %s: got exit code %d and\n%s\nwant 5 and %s", i, r.verb, r.resource, code, out,
				r.says)
		}
		patch(whole)
	}
	c.until("placed Job", time.Minute, func() bool {
		out, code := advise("--apply")
		if code != 0 {
			t.Log(out)
		}
		return code == 0
	})
	// The same service account, for the Jobs of another namespace.
	c.kubectl("create", "namespace", "other")
	suspendedIn("other", "elsewhere")
	if out, code := adviseIn("other", "--apply"); code != 5 || !strings.Contains(out, `namespace "other"`) {
		t.Errorf("without rights in a namespace: got exit code %d and\n%s\nwant 5", code, out)
	}
	c.kubectl("create", "role", "hetero-train-advise-apply", "--namespace=other", "--verb=get,patch",
		"--resource=jobs.batch,jobs.batch/status")
	c.kubectl("create", "rolebinding", "hetero-train-advise-apply", "--namespace=other",
		"--role=hetero-train-advise-apply", "--serviceaccount=hetero-train:hetero-train-advise")
	c.until("placed Job of another namespace", time.Minute, func() bool {
		out, code := adviseIn("other", "--apply")
		return code == 0 && strings.Contains(out, "elsewhere")
	})
	c.until("pod on a GPU", time.Minute, func() bool {
		node := c.kubectl("get", "pods", "--namespace=hetero-train", "-l", "batch.kubernetes.io/job-name=waits", "-o",
			"jsonpath={.items[*].spec.nodeName}")
		return strings.HasPrefix(node, "h100-") || strings.HasPrefix(node, "t4-")
	})
	// A gate keeps the pods from starting, so undo can suspend the Job and remove its affinity.
	gates = `"schedulingGates": [{"name": "example.com/hold"}], `
	suspended("gated")
	c.until("placed Job with gated pods", time.Minute, func() bool {
		_, code := advise("--apply")
		return code == 0 && c.field("job/gated", ".spec.suspend") == "false" &&
			c.field("job/gated", ".status.active") == "1"
	})
	out, code := c.try("", "env", "KUBECONFIG="+user, c.program, "schedule", "advise", "undo", "--kubernetes", "--apply",
		"--job=hetero-train/gated", log[0])
	if code != 0 || !strings.Contains(out, "reverted: suspend the Job, remove its affinity for ") ||
		c.field("job/gated", ".spec.suspend") != "true" ||
		c.field("job/gated", ".spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution") != "" {
		t.Errorf("undo: got exit code %d and\n%s\n%s", code, out, c.kubectl("get", "job", "gated",
			"--namespace=hetero-train", "-o", "json"))
	}
}
