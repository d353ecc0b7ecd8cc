package train

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/platform"
)

// niceStep is the difference between the nice values of the dashboard and of the training. On a CPU with a busy thread
// of a rank, the dashboard gets at most 10 % of the time. With less, its pages would be seconds late.
const niceStep = 10

// startDashboard starts the dashboard as a separate process, whose faults cannot end the training. Its low priority
// keeps it from slowing the ranks down on busy CPUs. The priority has no effect on a CPU quota: the dashboard is in the
// control group of this process, and uses the same quota. The dashboard ends when the pipe to it is closed, by the
// function stop or by the end of this process. If the dashboard cannot start or fails, training continues with a
// warning.
func startDashboard(cfg *config.Config, opts session.Options) (stop func()) {
	log := opts.Log.With(logs.ComponentKey, logs.ComponentDashboard)
	failed := func(err error) func() {
		log.Warn("the dashboard cannot start; training continues", "error", err)
		return func() {}
	}
	program, err := os.Executable()
	if err != nil {
		return failed(err)
	}
	d := &cfg.Dashboard
	var hosts []string
	for _, h := range d.Hosts {
		hosts = append(hosts, fmt.Sprintf("%q", h))
	}
	cmd := exec.Command(program, "dashboard", "--with-training", "--input-dir", cfg.Experiment.OutputDir,
		"--set", fmt.Sprintf("dashboard.address=%q", d.Address), "--set", fmt.Sprint("dashboard.port=", d.Port),
		"--set", fmt.Sprint("dashboard.refresh_seconds=", d.RefreshSeconds),
		"--set", fmt.Sprintf("dashboard.token_file=%q", d.TokenFile), "--set",
		fmt.Sprint("dashboard.insecure=", d.Insecure), "--set", "dashboard.hosts=["+strings.Join(hosts, ",")+"]",
		"--set", fmt.Sprintf("dashboard.base_path=%q", d.BasePath),
		"--set", fmt.Sprintf("dashboard.cert_file=%q", d.CertFile),
		"--set", fmt.Sprintf("dashboard.key_file=%q", d.KeyFile))
	cmd.Env = opts.Env.Environ
	// In its own process group, the dashboard does not get Ctrl-C. Ctrl-C ends the training, which then ends the
	// dashboard.
	platform.OwnGroup(cmd)
	var said bytes.Buffer
	cmd.Stderr = &said
	alive, err := cmd.StdinPipe()
	if err != nil {
		return failed(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return failed(err)
	}
	if err := cmd.Start(); err != nil {
		return failed(err)
	}
	// Prefer the ranks on busy CPUs. The process group contains only the dashboard with its threads.
	if err := platform.Yield(cmd.Process.Pid, niceStep); err != nil {
		log.Warn("the dashboard has the CPU priority of the training", "error", err)
	}
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			// Repeat the call above, which misses a thread that starts at the same moment. Other threads inherit the
			// priority.
			_ = platform.Yield(cmd.Process.Pid, niceStep)
			log.Info(lines.Text())
		}
		err := cmd.Wait()
		select {
		case <-stopped:
		default:
			log.Warn("the dashboard ended; training continues", "error", err, "reason",
				strings.TrimSpace(said.String()))
		}
	}()
	return func() {
		close(stopped)
		alive.Close()
		<-done
	}
}
