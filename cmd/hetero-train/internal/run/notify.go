package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/notify"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
)

// openNotify starts the reports of events on rank 0, if table [notify] names a receiver. It precedes the other steps of
// a run, so that their failures are reported too.
func (tr *training) openNotify(cfg *config.Config, opts session.Options) error {
	c := cfg.Notify
	if opts.Assignment.Rank > 0 {
		return nil
	}
	webhook := c.Webhook
	if webhook == "" {
		var err error
		if webhook, err = process.ReadSecret("notify.webhook_file", c.WebhookFile, "HETERO_NOTIFY_WEBHOOK_SECRET", opts.Env); err != nil {
			return err
		}
	}
	if webhook == "" && len(c.Command) == 0 {
		return nil
	}
	secrets := logs.SecretsIn(opts.Env.Environ)
	hide := func(text string) string {
		text = secrets.Text(text)
		if webhook != "" {
			text = strings.ReplaceAll(text, webhook, "[redacted]")
		}
		return text
	}
	sender, err := notify.Open(notify.Options{Command: c.Command, Webhook: webhook, Events: c.Events, Timeout: session.Seconds(c.TimeoutSeconds),
		Environ: withoutTokens(opts.Env.Environ), Hide: hide, Log: opts.LogOf(logs.ComponentTrainer)})
	if err != nil {
		return exit.Usagef("%w", err)
	}
	tr.Later(sender.Close)
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	tr.sender = sender
	tr.watch = notify.NewWatch(sender, session.Seconds(c.StalledSeconds), func() notify.Event {
		e := notify.Event{Run: cfg.Experiment.Name, Host: host}
		if f := tr.folder.Load(); f != nil {
			e.Folder = *f
		}
		return e
	})
	tr.Later(tr.watch.Close)
	return nil
}

// tellFolder sets the folder of the run in later events.
func (tr *training) tellFolder(dir string) {
	if whole, err := filepath.Abs(dir); err == nil {
		dir = whole
	}
	tr.folder.Store(&dir)
}

// withoutTokens returns the environment without the secrets of this program, which a notifying program does not need.
func withoutTokens(environ []string) (rest []string) {
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "HETERO_") && (strings.Contains(name, "TOKEN") || strings.Contains(name, "SECRET")) {
			continue
		}
		rest = append(rest, pair)
	}
	return rest
}

// reportEnd reports the end of the run. A run that a signal stopped is not reported, because its user or scheduler
// knows.
func (tr *training) reportEnd(err error) {
	if tr.watch == nil || errors.As(err, new(exit.Stopped)) {
		return
	}
	name, message := notify.Finished, "the run is finished"
	code := exit.Code(err)
	switch {
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
