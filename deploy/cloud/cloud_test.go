// Package cloud tests the files of this folder without a cloud.
package cloud

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("needs ", name)
		}
	}
}

// metadata is a metadata service of EC2 (version 2) whose tokens work for a number of requests.
type metadata struct {
	tokens, asked atomic.Int64
	notices       map[string]int64 // by path: number of the first request that gets the notice; the others get 404
}

func (m *metadata) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
		if r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		m.tokens.Add(1)
		io.WriteString(w, "AQAEA-token==")
	case r.Header.Get("X-aws-ec2-metadata-token") != "AQAEA-token==":
		w.WriteHeader(http.StatusUnauthorized)
	case m.asked.Add(1) == 2: // the token has expired
		w.WriteHeader(http.StatusUnauthorized)
	default:
		if from, is := m.notices[r.URL.Path]; !is || m.asked.Load() < from {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		io.WriteString(w, `{"action": "terminate", "time": "2026-11-30T08:22:00Z"}`)
	}
}

const (
	action    = "/latest/meta-data/spot/instance-action"
	rebalance = "/latest/meta-data/events/recommendations/rebalance"
)

func TestASpotNoticeRunsTheCommandOnce(t *testing.T) {
	need(t, "sh", "curl")
	for _, c := range []struct {
		name, variable, want string
		notices              map[string]int64
	}{
		{"an interruption", "SPOT_REBALANCE=0", action, map[string]int64{action: 6}},
		{"a rebalance recommendation", "SPOT_REBALANCE=1", rebalance, map[string]int64{rebalance: 6}},
		{"an unwanted recommendation", "SPOT_REBALANCE=0", action, map[string]int64{rebalance: 1, action: 6}},
		// the training was started in spite of it
		{"a recommendation before the start", "SPOT_REBALANCE=1", action, map[string]int64{rebalance: 1, action: 8}},
	} {
		t.Run(c.name, func(t *testing.T) {
			service := &metadata{notices: c.notices}
			server := httptest.NewServer(service)
			defer server.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			ran := filepath.Join(t.TempDir(), "ran")
			cmd := exec.CommandContext(ctx, "ec2/spot-watch.sh", "sh", "-c", `echo once >>"$0"; exit 7`, ran)
			cmd.Env = append(os.Environ(), "AWS_EC2_METADATA_SERVICE_ENDPOINT="+server.URL+"/", "SPOT_INTERVAL=0.05",
				c.variable)
			said, _ := cmd.CombinedOutput()
			text, err := os.ReadFile(ran)
			if cmd.ProcessState.ExitCode() != 7 || err != nil || string(text) != "once\n" {
				t.Fatalf("got exit code %d, %q, %v, want that of the command: %s", cmd.ProcessState.ExitCode(), text,
					err, said)
			}
			if !strings.Contains(string(said), c.want+`: {"action": "terminate"`) || strings.Contains(string(said), "AQAEA") {
				t.Errorf("got %q, want the notice of %s, and no token", said, c.want)
			}
			if got := service.tokens.Load(); got != 2 {
				t.Errorf("got %d tokens, want 2: one at the start, and one after the first has expired", got)
			}
		})
	}
}

// Without a metadata service, as on other machines, the watcher waits, says so once, and runs nothing.
func TestNoMetadataService(t *testing.T) {
	need(t, "sh", "curl")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if asked.Add(1) == 4 {
			cancel()
		}
		panic(http.ErrAbortHandler) // closes the connection
	}))
	defer server.Close()
	ran := filepath.Join(t.TempDir(), "ran")
	cmd := exec.CommandContext(ctx, "ec2/spot-watch.sh", "touch", ran)
	cmd.Env = append(os.Environ(), "AWS_EC2_METADATA_SERVICE_ENDPOINT="+server.URL, "SPOT_INTERVAL=0.05")
	cmd.WaitDelay = 30 * time.Second
	said, _ := cmd.CombinedOutput()
	if asked.Load() < 4 {
		t.Errorf("the watcher asked %d times, want 4: %q", asked.Load(), said)
	}
	if _, err := os.Stat(ran); err == nil || strings.Count(string(said), "no answer of the metadata service") != 1 {
		t.Errorf("got %q, want one message and no command", said)
	}
	if err := exec.Command("ec2/spot-watch.sh").Run(); err == nil || err.(*exec.ExitError).ExitCode() != 2 {
		t.Errorf("no command: got %v, want exit code 2", err)
	}
}

// User data contain the files of this folder byte for byte, and no token.
func TestUserDataOfEC2(t *testing.T) {
	need(t, "sh", "sed")
	hash := strings.Repeat("0123456789abcdef", 4)
	cmd := exec.Command("ec2/user-data.sh")
	cmd.Env = append(os.Environ(), "RELEASE=https://example.com/it's.tar.gz", "SHA256="+hash+"  it's.tar.gz", "TRAIN_ARGUMENTS=-c configs/resnet50.toml",
		"TOKEN_COMMAND=print-token")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hetero-train.service", "hetero-spot.service", "spot-watch.sh"} {
		text, err := os.ReadFile("ec2/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var block strings.Builder
		for line := range strings.Lines(string(text)) {
			if line != "\n" {
				block.WriteString("      ")
			}
			block.WriteString(line)
		}
		if !strings.Contains(string(out), block.String()) {
			t.Errorf("%s is not in the user data", name)
		}
	}
	for _, want := range []string{`'https://example.com/it'\''s.tar.gz'`, "HETERO_TOKEN_FILE=/etc/hetero-train/token",
		"(umask 077; print-token >/etc/hetero-train/token)", `echo "` + hash + `  $archive" | sha256sum -c -`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the user data lack %q", want)
		}
	}
	const most = 16 << 10 // a limit of EC2
	if len(out) > most {
		t.Errorf("got %d bytes, want at most %d", len(out), most)
	}
	usual := []string{"PATH=" + os.Getenv("PATH"), "TRAIN_ARGUMENTS=-c x"}
	for name, more := range map[string][]string{
		"no release": {"SHA256=" + hash}, "no hash": {"RELEASE=https://example.com/a"},
		"a short hash":                {"RELEASE=https://example.com/a", "SHA256=" + hash[1:]},
		"an address with a quotation": {`RELEASE=https://example.com/"a`, "SHA256=" + hash},
	} {
		cmd = exec.Command("ec2/user-data.sh")
		cmd.Env = append(more, usual...)
		if err := cmd.Run(); err == nil || err.(*exec.ExitError).ExitCode() != 2 {
			t.Errorf("%s: got %v, want exit code 2", name, err)
		}
	}
}

// The installation repeats a failed download, and refuses an archive with another hash.
func TestInstallationOnEC2(t *testing.T) {
	need(t, "sh", "curl", "tar", "sha256sum")
	folder := t.TempDir()
	run := func(script string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
		cmd.Dir = folder
		return cmd.CombinedOutput()
	}
	if out, err := run("mkdir a && echo program >a/program && tar -czf a.tar.gz a"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	archive, err := os.ReadFile(filepath.Join(folder, "a.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Write(archive)
	}))
	defer server.Close()
	for _, c := range []struct {
		hash  string
		wrong bool
	}{{fmt.Sprintf("%x", sha256.Sum256(archive)), false}, {strings.Repeat("0", 64), true}} {
		asked.Store(0)
		cmd := exec.Command("ec2/user-data.sh")
		cmd.Env = append(os.Environ(), "RELEASE="+server.URL+"/a?X-Amz-Signature=1&Y=%20", "SHA256="+c.hash, "TRAIN_ARGUMENTS=-c x")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		_, script, found := strings.Cut(string(out), "      archive=/opt/hetero-train/release.tar.gz\n")
		script, _, end := strings.Cut(script, "      install -d")
		if !found || !end {
			t.Fatalf("no installation in %s", out)
		}
		into := t.TempDir()
		script = "set -eu\narchive=" + into + "/release.tar.gz\nsleep() { echo waits $1; }\n" +
			strings.ReplaceAll(script, "/opt/hetero-train", into)
		said, err := run(script)
		_, missing := os.Stat(filepath.Join(into, "program"))
		if (err != nil) != c.wrong || (missing != nil) != c.wrong || !strings.Contains(string(said), "waits 30") {
			t.Errorf("a wrong hash: %v: got %v, %v: %s", c.wrong, err, missing, said)
		}
	}
}

func TestRequestOfSageMaker(t *testing.T) {
	need(t, "python3")
	usual := []string{"sagemaker/launch.py", "--print", "--name", "run-1", "--image", "IMAGE", "--role", "ROLE", "--bucket", "B",
		"--group", "gpus:ml.g5.12xlarge:1"}
	out, err := exec.Command("python3", append(usual, "--group", "cpus:ml.c5.9xlarge:2", "--token", "s3://B/token", "--spot",
		"--hyperparameter", "train.steps=30", "--", "-c", "configs/resnet50.toml")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		AlgorithmSpecification struct{ ContainerEntrypoint, ContainerArguments []string }
		CheckpointConfig       struct{ LocalPath, S3Uri string }
		ResourceConfig         struct {
			InstanceGroups []struct {
				InstanceType  string
				InstanceCount int
			}
		}
		HyperParameters           map[string]string
		EnableManagedSpotTraining bool
		StoppingCondition         struct{ MaxRuntimeInSeconds, MaxWaitTimeInSeconds int }
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	if strings.Join(r.AlgorithmSpecification.ContainerEntrypoint, " ") != "hetero-train train --sagemaker" ||
		strings.Join(r.AlgorithmSpecification.ContainerArguments, " ") != "-c configs/resnet50.toml" ||
		r.CheckpointConfig.LocalPath != "/opt/ml/checkpoints" || r.CheckpointConfig.S3Uri != "s3://B/checkpoints/run-1" ||
		len(r.ResourceConfig.InstanceGroups) != 2 || r.ResourceConfig.InstanceGroups[1].InstanceCount != 2 ||
		r.HyperParameters["train.steps"] != "30" || !r.EnableManagedSpotTraining ||
		r.StoppingCondition.MaxWaitTimeInSeconds < r.StoppingCondition.MaxRuntimeInSeconds {
		t.Errorf("got %s", out)
	}
	var names []string
	var cases [][]string
	for name, more := range map[string][]string{
		"several instances without a token": {"--group", "cpus:ml.c5.9xlarge:1"},
		"a group without a count":           {"--group", "cpus:ml.c5.9xlarge"},
		"a subnet without a security group": {"--subnet", "s"},
		"a wait shorter than the training":  {"--spot", "--hours", "4", "--wait-hours", "3"},
		"six groups": {"--token", "s3://B/token", "--group", "b:ml.c5.large:1", "--group", "c:ml.c5.large:1", "--group",
			"d:ml.c5.large:1", "--group", "e:ml.c5.large:1", "--group", "f:ml.c5.large:1"},
		"two groups of one name":      {"--token", "s3://B/token", "--group", "gpus:ml.c5.large:1"},
		"two channels of one name":    {"--channel", "a=s3://B/x", "--channel", "a=s3://B/y"},
		"a channel for the token":     {"--channel", "token=s3://B/x", "--token", "s3://B/token"},
		"a key twice":                 {"--hyperparameter", "a.b=1", "--hyperparameter", "a.b=2"},
		"no time":                     {"--hours", "0"},
		"a token that is no object":   {"--token", "token"},
		"a channel that is no folder": {"--channel", "a=/data"},
		"a name with an underscore":   {"--name", "run_1"},
		"a negative size of a disk":   {"--volume", "-1"},
	} {
		names, cases = append(names, name), append(cases, append(usual[1:len(usual):len(usual)], more...))
	}
	// one process, because Python starts slowly
	cmd := exec.Command("python3", "-B", "-c", `import json, sys
sys.path.insert(0, "sagemaker")
import launch
for arguments in json.load(sys.stdin):
    try:
        launch.options(arguments)
        print(0)
    except SystemExit as e:
        print(e.code)`)
	text, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = bytes.NewReader(text)
	codes, err := cmd.Output()
	if got := strings.Fields(string(codes)); err != nil || len(got) != len(names) {
		t.Fatalf("got %q, %v, want %d exit codes", codes, err, len(names))
	} else {
		for i, name := range names {
			if got[i] != "2" {
				t.Errorf("%s: got exit code %s, want 2", name, got[i])
			}
		}
	}
}
