// Package cloud tests the files of this folder without a cloud.
package cloud

import (
	"context"
	"encoding/json"
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
	notice        string // path with a notice, from the fourth request on; all requests before get 404
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
	case m.asked.Load() >= 4 && r.URL.Path == m.notice:
		io.WriteString(w, `{"action": "terminate", "time": "2026-11-30T08:22:00Z"}`)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

const (
	action    = "/latest/meta-data/spot/instance-action"
	rebalance = "/latest/meta-data/events/recommendations/rebalance"
)

func TestASpotNoticeRunsTheCommandOnce(t *testing.T) {
	need(t, "sh", "curl")
	for _, c := range []struct{ name, notice, variable string }{
		{"an interruption", action, "SPOT_REBALANCE=0"},
		{"a rebalance recommendation", rebalance, "SPOT_REBALANCE=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			service := &metadata{notice: c.notice}
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
			if !strings.Contains(string(said), `"action": "terminate"`) || strings.Contains(string(said), "AQAEA") {
				t.Errorf("got %q, want the notice, and no token", said)
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	ran := filepath.Join(t.TempDir(), "ran")
	cmd := exec.CommandContext(ctx, "ec2/spot-watch.sh", "touch", ran)
	cmd.Env = append(os.Environ(), "AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:1", "SPOT_INTERVAL=0.1")
	cmd.WaitDelay = 10 * time.Second
	said, _ := cmd.CombinedOutput()
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
	cmd := exec.Command("ec2/user-data.sh")
	cmd.Env = append(os.Environ(), "RELEASE=https://example.com/it's.tar.gz", "TRAIN_ARGUMENTS=-c configs/resnet50.toml",
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
		"(umask 077; print-token >/etc/hetero-train/token)"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the user data lack %q", want)
		}
	}
	const most = 16 << 10 // a limit of EC2
	if len(out) > most {
		t.Errorf("got %d bytes, want at most %d", len(out), most)
	}
	cmd = exec.Command("ec2/user-data.sh")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	if cmd.Run() == nil {
		t.Error("user data without a release")
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
	for name, more := range map[string][]string{
		"several instances without a token": {"--group", "cpus:ml.c5.9xlarge:1"},
		"a group without a count":           {"--group", "cpus:ml.c5.9xlarge"},
		"a subnet without a security group": {"--subnet", "s"},
		"a wait shorter than the training":  {"--spot", "--hours", "4", "--wait-hours", "3"},
	} {
		if err := exec.Command("python3", append(usual, more...)...).Run(); err == nil ||
			err.(*exec.ExitError).ExitCode() != 2 {
			t.Errorf("%s: got %v, want exit code 2", name, err)
		}
	}
}
