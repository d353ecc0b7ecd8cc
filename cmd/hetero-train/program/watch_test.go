package program

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/needtest"
)

// The command must show the traffic of this machine's loopback interface until Ctrl-C.
func TestProfileWatch(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/sys/class/net/lo/statistics/tx_bytes"); err != nil {
		needtest.Missing(t, "system", err)
	}
	p := buildProgram(t)
	cmd := exec.Command(p.path, "profile", "--watch", "--json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	for range 2 {
		if !lines.Scan() {
			t.Fatalf("the output ended: %v", lines.Err())
		}
		var v struct {
			GPUs  []any  `json:"gpus"`
			NoGPU string `json:"no_gpu"`
			Links []struct {
				Of, Name, Kind, Basis string
				Sent, Received        *float64
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatalf("%v: %s", err, lines.Bytes())
		}
		if (len(v.GPUs) == 0) == (v.NoGPU == "") {
			t.Errorf("got %d GPUs and the reason %q, want a reason exactly if there is none", len(v.GPUs), v.NoGPU)
		}
		found := false
		for _, l := range v.Links {
			found = found || l.Name == "lo" && l.Of == "machine" && l.Kind == "loopback" && l.Basis == "counter" &&
				l.Sent != nil && *l.Sent >= 0 && l.Received != nil
		}
		if !found {
			t.Errorf("got %s, want the traffic of lo", lines.Bytes())
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	if got := exitOf(t, cmd.Wait()); got != exit.Interrupted {
		t.Errorf("after Ctrl-C: got exit code %d, want %d", got, exit.Interrupted)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // without the signal, the command would not end
	defer cancel()
	for want, args := range map[string][]string{"remove --quick": {"--quick"}, "remove --nproc-per-node": {
		"--nproc-per-node", "2"}, "--set train.steps cannot be used": {"--set", "train.steps=1"}} {
		text, err := exec.CommandContext(ctx, p.path, append([]string{"profile", "--watch"}, args...)...).
			CombinedOutput()
		if got := exitOf(t, err); got != exit.Usage || !strings.Contains(string(text), want) {
			t.Errorf("%q: got exit code %d and %q, want %d and %q", args, got, text, exit.Usage, want)
		}
	}
}
