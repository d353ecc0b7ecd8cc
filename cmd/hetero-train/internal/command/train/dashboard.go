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

// niceStep is added to the nice value of the training for the dashboard: next to a busy thread of a rank, the dashboard
// gets at most 10 % of a CPU. With less, its pages would be seconds late.
const niceStep = 10

// startDashboard starts the dashboard as a separate process, which cannot end the training. Its low priority protects
// the ranks on busy CPUs, and does not protect a CPU quota: the dashboard is in the control group of this process, and
// uses its quota. The process ends when the pipe to it is closed, by stop or by the end of this process. If the
// dashboard cannot start or fails, training continues with a warning.
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
	// Ctrl-C ends only the training, which then ends the dashboard
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
	// The ranks get the CPUs first. The group has only this process, and its threads.
	if err := platform.Yield(cmd.Process.Pid, niceStep); err != nil {
		log.Warn("the dashboard has the CPU priority of the training", "error", err)
	}
	stopped, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			// The first call misses a thread that begins at that moment. Other threads inherit the priority.
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
