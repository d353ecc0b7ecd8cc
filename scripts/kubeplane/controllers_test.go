package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// module returns the folder of a module of the controllers.
func (c *cluster) module(path string) string {
	c.t.Helper()
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", path)
	cmd.Dir = "controllers"
	out, err := cmd.Output()
	c.must(err)
	return strings.TrimSpace(string(out))
}

// controllers starts JobSet's controller, and Trainer's if both are wanted, with their webhooks.
func (c *cluster) controllers(trainer bool) {
	c.t.Helper()
	folder := os.Getenv("KUBEPLANE_CONTROLLERS")
	if folder == "" {
		c.t.Fatal("KUBEPLANE_CONTROLLERS is not set: want the folder that (cd controllers && go build -o FOLDER tool) wrote")
	}
	jobset, kubeflow := c.module("sigs.k8s.io/jobset"), c.module("github.com/kubeflow/trainer/v2")
	c.kubectl("apply", "--server-side", "-f", filepath.Join(jobset, "config/components/crd/bases"))
	if trainer {
		c.kubectl("apply", "--server-side", "-k", filepath.Join(kubeflow, "manifests/base/crds"))
	}
	for _, name := range strings.Fields(c.kubectl("get", "crds", "-o", "name")) {
		// kubectl wait fails if the definition has no list of conditions yet.
		c.until(name+" is established", time.Minute, func() bool {
			_, code := c.try("", "kubectl", "wait", "--for=condition=Established", "--timeout=10s", name)
			return code == 0
		})
	}
	// Where controllers look for certificates, below TMPDIR.
	certificates := filepath.Join(c.folder, "k8s-webhook-server", "serving-certs")
	c.must(os.MkdirAll(filepath.Dir(certificates), 0o755))
	if out, code := c.try("", c.program, "certs", certificates, "127.0.0.1"); code != 0 {
		c.t.Fatal(out)
	}
	c.copy(filepath.Join(certificates, "127.0.0.1.pem"), filepath.Join(certificates, "tls.crt"))
	c.copy(filepath.Join(certificates, "127.0.0.1-key.pem"), filepath.Join(certificates, "tls.key"))
	authority, err := os.ReadFile(filepath.Join(certificates, "ca.pem"))
	c.must(err)
	c.kubectl("create", "namespace", "controllers")
	begin := func(name, config string, port int, hooks string, args ...string) {
		path := filepath.Join(c.folder, name+".yaml")
		c.must(os.WriteFile(path, fmt.Appendf(nil, config, port), 0o644))
		log, err := os.Create(filepath.Join(c.folder, name+".log"))
		c.must(err)
		cmd := exec.Command(filepath.Join(folder, name), append(args, "--config="+path)...)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.Env = append(os.Environ(), "NAMESPACE=controllers", "TMPDIR="+c.folder)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		c.must(cmd.Start())
		c.t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
			if text, _ := os.ReadFile(log.Name()); c.t.Failed() {
				c.t.Logf("%s:\n%s", name, text[max(0, len(text)-6000):])
			}
		})
		text, err := os.ReadFile(hooks)
		c.must(err)
		service := regexp.MustCompile(`service:\n +name: webhook-service\n +namespace: system\n +path: (\S+)`)
		c.apply(service.ReplaceAllString(strings.ReplaceAll(string(text), "-webhook-configuration", "-"+name),
			fmt.Sprintf("url: https://127.0.0.1:%d$1\n    caBundle: %s", port,
				base64.StdEncoding.EncodeToString(authority))))
	}
	begin("jobset", `apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
webhook: {host: 127.0.0.1, port: %d}
internalCertManagement: {enable: false}
leaderElection: {leaderElect: false}
metrics: {bindAddress: "0"}
health: {healthProbeBindAddress: "0"}
`, 9443, filepath.Join(jobset, "config/components/webhook/manifests.yaml"))
	if trainer {
		begin("trainer-controller-manager", `apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
webhook: {host: 127.0.0.1, port: %d}
certManagement: {enable: false}
leaderElection: {leaderElect: false}
metrics: {bindAddress: "0"}
health: {healthProbeBindAddress: "0"}
`, 9444, filepath.Join(kubeflow, "manifests/base/webhook/manifests.yaml"))
	}
}

// trained waits for the end of a run that loses a rank in its middle, and returns its parameters.
func (c *cluster) trained(object, first, lost string) []byte {
	c.t.Helper()
	// The webhooks answer after a moment.
	begin, at := time.Now(), time.Now()
	c.until("accepted "+object, time.Minute, func() bool {
		at = time.Now()
		out, code := c.try("", "kubectl", "apply", "--validate=strict", "--server-side", "--field-manager=test", "-k",
			"testdata/"+map[bool]string{true: "jobset", false: "trainer"}[strings.HasPrefix(object, "jobset")])
		if code != 0 && time.Since(begin) > 50*time.Second {
			c.t.Log(out)
		}
		return code == 0
	})
	c.until("first step", patience, func() bool { return c.says(first, "step 1/") })
	c.t.Logf("%s: from kubectl apply to the first step: %.1f s", object, time.Since(at).Seconds())
	c.until("step 100", patience, func() bool { return c.says(first, "step 100/") })
	placed := c.kubectl("get", "pods", "--namespace=hetero-train", "-l", "app.kubernetes.io/component=rank", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{"\n"}{end}`)
	for _, line := range strings.Split(placed, "\n") {
		pod, node, _ := strings.Cut(line, " ")
		kind, _, _ := strings.Cut(node, "-")
		if !strings.HasPrefix(pod, "train-"+kind+"-") && !(strings.HasPrefix(pod, "train-node-") && kind != "cpu") {
			c.t.Errorf("the pod %s is on the node %s", pod, node)
		}
	}
	ranks := strings.Count(placed, "\n") + 1
	if ranks != map[bool]int{true: 5, false: 3}[strings.HasPrefix(object, "jobset")] {
		c.t.Errorf("%s: got %d pods", object, ranks)
	}
	if lost != "" {
		c.signal(lost, syscall.SIGKILL)
	}
	c.until("end of "+object, patience, func() bool {
		text := c.field(object, `.status.conditions[?(@.status=="True")].type`)
		return strings.Contains(text, "Complete")
	})
	want := map[string]int{"0": ranks}
	if lost != "" {
		want["137"], want["5"] = 1, ranks-1
	}
	if codes := c.codes(); !maps.Equal(codes, want) {
		c.t.Errorf("%s: got the exit codes %v, want %v", object, codes, want)
	}
	weights := c.weights(fmt.Sprint(at.Unix()))
	if starts := len(c.logs(first)); starts != map[bool]int{true: 2, false: 1}[lost != ""] {
		c.t.Errorf("%s: rank 0 started %d times", object, starts)
	}
	c.kubectl("delete", object, "--namespace=hetero-train", "--wait")
	c.forget()
	return weights
}

func TestJobSetTrainsOnUnlikeNodes(t *testing.T) {
	survives(t, false, "jobset/train", "train-h100-0-0-", "train-cpu-0-0-")
}

func TestTrainJobTrains(t *testing.T) {
	survives(t, true, "trainjob/train", "train-node-0-0-", "train-node-0-2-")
}

// survives trains twice. In the second run, the pod lost is killed. Both runs must end with the same parameters.
func survives(t *testing.T, trainer bool, object, first, lost string) {
	if !apart(t) {
		return
	}
	c := start(t)
	c.controllers(trainer)
	want := c.trained(object, first, "")
	if !bytes.Equal(c.trained(object, first, lost), want) {
		t.Error("the parameters differ from those of an uninterrupted run")
	}
}
