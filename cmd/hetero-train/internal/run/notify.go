package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/notify"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/cluster/supervisor"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/profiler/runs"
)

// openNotify starts to report events on rank 0, if table [notify] names a receiver. It runs before all stages of a run,
// so that it also reports their failures.
func (tr *training) openNotify(cfg *config.Config, opts session.Options) error {
	if opts.Assignment.Rank > 0 {
		return nil
	}
	sender, err := openSender(cfg, opts)
	if err != nil || sender == nil {
		return err
	}
	tr.process.Later(sender.Close)
	host := hostName()
	tr.sender = sender
	tr.watch = notify.NewWatch(sender, session.Seconds(cfg.Notify.StalledSeconds), func() notify.Event {
		e := notify.Event{Run: cfg.Experiment.Name, Host: host}
		if f := tr.folder.Load(); f != nil {
			e.Folder = *f
		}
		return e
	})
	tr.process.Later(tr.watch.Close)
	return nil
}

// openSender returns a sender to the receivers in table [notify], or nil if the table names none.
func openSender(cfg *config.Config, opts session.Options) (*notify.Sender, error) {
	c := cfg.Notify
	webhook := c.Webhook
	if webhook == "" {
		var err error
		if webhook, err = process.ReadSecret("notify.webhook_file", c.WebhookFile, process.WebhookVariable,
			opts.Env); err != nil {
			return nil, err
		}
	}
	if webhook == "" && len(c.Command) == 0 {
		return nil, nil
	}
	secrets := logs.SecretsIn(opts.Env.Environ)
	hide := func(text string) string {
		text = secrets.Text(text)
		if webhook != "" {
			text = strings.ReplaceAll(text, webhook, "[redacted]")
		}
		return text
	}
	sender, err := notify.Open(notify.Options{Command: c.Command, Webhook: webhook, Events: c.Events,
		Timeout: session.Seconds(c.TimeoutSeconds),
		Environ: withoutTokens(opts.Env.Environ), Hide: hide, Log: opts.LogOf(logs.ComponentTrainer)})
	if err != nil {
		return nil, exit.Usagef("%w", err)
	}
	return sender, nil
}

func hostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}

// reportLost reports the failure of a run if rank 0 was killed, crashed or did not end, so that it could not report it.
// The parameter err is the error of the supervisor.
func reportLost(cfg *config.Config, opts session.Options, err error) {
	var failed *supervisor.RankError
	// A rank 0 that sent its cause of failure to the supervisor has also reported the failure.
	if !errors.As(err, &failed) || failed.Rank != 0 || failed.Cause != "" || errors.As(err, new(exit.Stopped)) {
		return
	}
	code := exit.Code(err)
	if code == exit.Terminated || code == exit.Interrupted {
		return
	}
	sender, openErr := openSender(cfg, opts)
	if openErr != nil {
		opts.LogOf(logs.ComponentTrainer).Warn("the failure of the run was not reported", "error", openErr)
		return
	}
	if !sender.Wants(notify.Failed) {
		_ = sender.Close() // nothing was sent
		return
	}
	e := notify.Event{Event: notify.Failed, Time: time.Now(), Run: cfg.Experiment.Name, Host: hostName(), Exit: &code,
		Message: err.Error()}
	addRecorded(&e, filepath.Join(cfg.Experiment.OutputDir, cfg.Experiment.Name))
	sender.Send(e)
	_ = sender.Close() // always nil; failed deliveries are warnings
}

// addRecorded adds the folder of a run, and the step and loss of its newest record. Without a folder it adds nothing.
func addRecorded(e *notify.Event, dir string) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return
	}
	folder, err := runs.OpenFolder(dir)
	if err != nil {
		return // the run has not started
	}
	defer folder.Close() // no error: the folder is open for reading only
	e.Folder = dir
	list, err := folder.List(context.Background())
	if err != nil || len(list.Runs) != 1 {
		return
	}
	e.Step = list.Runs[0].Steps
	if loss := float64(list.Runs[0].Loss); !math.IsNaN(loss) && !math.IsInf(loss, 0) {
		e.Loss = &loss
	}
}

// trackingSecrets are the environment variables with the credentials of MLflow.
var trackingSecrets = []string{"MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"}

// withoutTokens returns the environment for the command notify.command, without the secrets of this program. It keeps
// other secrets, because the command may need them.
func withoutTokens(environ []string) (rest []string) {
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "HETERO_") && (strings.Contains(name, "TOKEN") ||
			strings.Contains(name, "SECRET")) || slices.Contains(trackingSecrets, name) {
			continue
		}
		rest = append(rest, pair)
	}
	return rest
}

// reportEnd reports the end of the run. It does not report a run that a signal stopped, because the user or the
// scheduler sent this signal.
func (tr *training) reportEnd(err error) {
	if tr.watch == nil || errors.As(err, new(exit.Stopped)) {
		return
	}
	name, message := notify.Finished, "the run is finished"
	code := exit.Code(err)
	switch {
	case err == nil && tr.late:
		_, message = (&experiment.Result{OutOfTime: true}).Outcome()
	case err == nil:
	case code == exit.Diverged:
		name, message = notify.Diverged, err.Error()
	default:
		name, message = notify.Failed, fmt.Sprint(err)
	}
	e := tr.watch.Event(name, message)
	e.Exit = &code
	tr.sender.Send(e)
}
