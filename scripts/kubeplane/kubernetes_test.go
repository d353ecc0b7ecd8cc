package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary is also kubeplane itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && slices.Contains([]string{"up", "apiserver", "controller-manager", "scheduler"}, os.Args[1]) {
		main()
		return
	}
	os.Exit(m.Run())
}

// nodes are of three unlike kinds: two H100s, three T4s, CPUs.
var nodes = []string{
	"h100-a=cpu:32,memory:256Gi,nvidia.com/gpu:2,label:nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3",
	"t4-a=cpu:16,memory:128Gi,nvidia.com/gpu:2,label:nvidia.com/gpu.product=Tesla-T4",
	"t4-b=cpu:16,memory:128Gi,nvidia.com/gpu:1,label:nvidia.com/gpu.product=Tesla-T4",
	"cpu-a=cpu:64,memory:256Gi",
}

// cluster is a control plane of a test.
type cluster struct {
	t       *testing.T
	folder  string // of kubeplane
	volumes string
	program string
	token   string // of the ranks
}

// apart repeats the test in namespaces of its own, where its addresses and mounts have no effect on others. It reports
// whether the caller is the repetition.
func apart(t *testing.T) bool {
	if os.Getenv("KUBEPLANE_APART") != "" {
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		// ip netns needs a place for its names.
		for _, args := range [][]string{{"--make-rprivate", "/"}, {"-t", "tmpfs", "none", "/run"}} {
			if out, err := exec.Command("mount", args...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		return true
	}
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root")
	}
	for _, name := range []string{"unshare", "nsenter", "setpriv", "ip", "kubectl"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", self,
		"-test.v", "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "KUBEPLANE_APART=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, os.Stdout), os.Stderr
	if err := cmd.Run(); err != nil || !strings.Contains(out.String(), "--- PASS: "+t.Name()) {
		t.Errorf("in namespaces of its own: %v", err)
	}
	return false
}

// start starts a control plane whose nodes run hetero-train, with the namespace, the secrets and the volumes of
// docs/kubernetes.md.
func start(t *testing.T) *cluster {
	c := &cluster{t: t, program: os.Getenv("HETERO_TRAIN")}
	if c.program == "" {
		t.Fatal("HETERO_TRAIN is not set: want the path of the program")
	}
	var err error
	if c.folder, err = os.MkdirTemp("", "kubeplane"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && os.Getenv("KUBEPLANE_KEEP") != "" {
			fmt.Println("kept:", c.folder)
			return
		}
		os.RemoveAll(c.folder)
	})
	os.Chmod(c.folder, 0o755)
	image := filepath.Join(c.folder, "image")
	c.copy(c.program, filepath.Join(image, "bin", "hetero-train"))
	if libraries := os.Getenv("HETERO_LIB_DIR"); libraries != "" {
		c.must(os.CopyFS(filepath.Join(image, "lib", "hetero-train"), os.DirFS(libraries)))
	}
	self, err := os.Executable()
	c.must(err)
	plane := exec.Command(self, append([]string{"up", "--image", "hetero-train=" + image, c.folder}, nodes...)...)
	plane.Stderr = os.Stderr
	plane.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := plane.StdoutPipe()
	c.must(err)
	c.must(plane.Start())
	t.Cleanup(func() { plane.Process.Signal(syscall.SIGTERM); plane.Wait() })
	line := make([]byte, 4096)
	n, err := out.Read(line)
	if err != nil || !strings.HasPrefix(string(line[:n]), "ready ") {
		t.Fatalf("kubeplane: got %q (%v), want ready", line[:n], err)
	}
	os.Setenv("KUBECONFIG", filepath.Join(c.folder, "kubeconfig"))

	c.kubectl("create", "namespace", "hetero-train")
	// The strictest level of the Pod Security Standards.
	c.kubectl("label", "namespace", "hetero-train", "pod-security.kubernetes.io/enforce=restricted")
	for _, name := range []string{"token", "metrics-token", "dashboard-token"} {
		text := strings.Repeat(name[:1]+"1", 32) + "\n"
		if name == "token" {
			c.token = strings.TrimSpace(text)
		}
		c.must(os.WriteFile(filepath.Join(c.folder, name), []byte(text), 0o600))
	}
	c.kubectl("create", "secret", "generic", "hetero-train", "--namespace=hetero-train",
		"--from-file="+filepath.Join(c.folder, "token"), "--from-file="+filepath.Join(c.folder, "metrics-token"),
		"--from-file="+filepath.Join(c.folder, "dashboard-token"))
	c.volumes = filepath.Join(c.folder, "volumes")
	for name, claim := range map[string]string{"work": "100Gi", "data": "500Gi"} {
		c.apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": %q}, "spec": {
			"capacity": {"storage": %q}, "accessModes": ["ReadWriteMany"], "hostPath": {"path": %q},
			"claimRef": {"namespace": "hetero-train", "name": %q}}}`, name, claim, filepath.Join(c.volumes, name),
			"hetero-train-"+name))
	}
	c.overlay("../../deploy/kubernetes/storage")
	c.kubectl("apply", "--validate=strict", "--namespace=hetero-train", "-f", "../../deploy/kubernetes/storage/data.yaml")
	return c
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) copy(from, to string) {
	c.t.Helper()
	text, err := os.ReadFile(from)
	c.must(err)
	c.must(os.MkdirAll(filepath.Dir(to), 0o755))
	c.must(os.WriteFile(to, text, 0o755))
}

// try runs a program, and returns its output and its exit code.
func (c *cluster) try(input string, program string, args ...string) (string, int) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		c.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	out, code := c.try("", "kubectl", args...)
	if code != 0 {
		c.t.Fatalf("kubectl %s: exit code %d: %s", strings.Join(args, " "), code, out)
	}
	return strings.TrimSpace(out)
}

func (c *cluster) apply(text string) {
	c.t.Helper()
	if out, code := c.try(text, "kubectl", "apply", "--validate=strict", "-f", "-"); code != 0 {
		c.t.Fatalf("kubectl apply: %s", out)
	}
}

// overlay applies a folder, strictly.
func (c *cluster) overlay(path string) {
	c.t.Helper()
	c.kubectl("apply", "--validate=strict", "--server-side", "--field-manager=test", "-k", path)
}

// until polls a condition until it is true, and fails the test after a limit.
func (c *cluster) until(what string, limit time.Duration, condition func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(limit); !condition(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Log(c.kubectl("get", "pods,jobs,pvc", "-A", "-o", "wide"))
			for _, path := range c.logs("") {
				text, _ := os.ReadFile(path)
				c.t.Logf("%s:\n%s", filepath.Base(path), text[max(0, len(text)-3000):])
			}
			c.t.Fatalf("no %s within %v", what, limit)
		}
	}
}

// logs returns the logs of the pods whose names begin with a text, in the order of their start.
func (c *cluster) logs(prefix string) []string {
	paths, _ := filepath.Glob(filepath.Join(c.folder, "logs", "hetero-train_"+prefix+"*.log"))
	changed := func(path string) int64 {
		info, err := os.Stat(strings.TrimSuffix(path, ".log") + ".pid")
		if err != nil {
			return 0
		}
		return info.ModTime().UnixNano()
	}
	slices.SortFunc(paths, func(a, b string) int { return int(min(1, max(-1, changed(a)-changed(b)))) })
	return paths
}

// forget renames the logs of a run that has ended.
func (c *cluster) forget() {
	c.t.Helper()
	for _, path := range c.logs("train-") {
		c.must(os.Rename(path, path+".old"))
	}
}

// says reports whether the last log of a rank contains a text.
func (c *cluster) says(prefix, text string) bool {
	logs := c.logs(prefix)
	if len(logs) == 0 {
		return false
	}
	out, _ := os.ReadFile(logs[len(logs)-1])
	return strings.Contains(string(out), text)
}

// signal sends a signal to the last process of a rank.
func (c *cluster) signal(prefix string, s syscall.Signal) {
	c.t.Helper()
	logs := c.logs(prefix)
	text, err := os.ReadFile(strings.TrimSuffix(logs[len(logs)-1], ".log") + ".pid")
	c.must(err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	c.must(err)
	c.must(syscall.Kill(pid, s))
}

// weights returns the parameters that the run has at its end, and moves its folder away.
func (c *cluster) weights(as string) []byte {
	c.t.Helper()
	run := filepath.Join(c.volumes, "work", "train")
	text, err := os.ReadFile(filepath.Join(run, "checkpoints", "step-00002000", "model.safetensors"))
	if err != nil {
		found, _ := filepath.Glob(filepath.Join(run, "checkpoints", "*"))
		c.t.Fatalf("%v; found %q", err, found)
	}
	c.must(os.Rename(run, filepath.Join(c.volumes, "work", as)))
	return text
}

// codes returns the number of ended pods of the run for each exit code. The control plane keeps failed pods until their
// Job is deleted, but not evicted ones.
func (c *cluster) codes() map[string]int {
	c.t.Helper()
	codes := map[string]int{}
	for _, code := range strings.Fields(c.kubectl("get", "pods", "--namespace=hetero-train", "-l",
		"app.kubernetes.io/component=rank", "-o",
		"jsonpath={.items[*].status.containerStatuses[0].state.terminated.exitCode}")) {
		codes[code]++
	}
	return codes
}

func (c *cluster) field(object, path string) string {
	return c.kubectl("get", object, "--namespace=hetero-train", "-o", "jsonpath={"+path+"}")
}
