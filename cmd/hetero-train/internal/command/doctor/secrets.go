package doctor

import (
	"log/slog"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
)

// credential is a secret or a certificate that a run with this configuration reads on this machine.
type credential struct {
	Key   string     `json:"key"`
	From  *time.Time `json:"valid_from,omitempty"` // begin of the validity of a certificate
	Until *time.Time `json:"valid_until,omitempty"`
	Fault string     `json:"fault,omitempty"` // reason why the program would refuse it
	// Result is the effect of the fault if a run can train in spite of it, otherwise "".
	Result string `json:"result,omitempty"`
	Server bool   `json:"server,omitempty"` // certificate of a web server, which also reads a renewed one
}

// probeCredentials reads the secrets and certificates in the same way as a run.
func probeCredentials(k *compute.Rank) (list []credential) {
	cfg, env := k.Process.Cfg, k.Process.Opts.Env
	add := func(c credential, err error) {
		if err != nil {
			c.Fault = err.Error()
		} else {
			c.Result = ""
		}
		list = append(list, c)
	}
	own, err := process.ReadCredentials(cfg.Parallel, env)
	if err != nil {
		c := credential{Key: "parallel"}
		if k.Process.Opts.Assignment.WorldSize <= 1 {
			c.Result = "a run of one rank does not use it"
		}
		add(c, err)
	}
	if err == nil && own.Token != "" {
		add(credential{Key: "parallel.token_file"}, nil)
	}
	if err == nil && own.Certificates != nil {
		leaf := own.Certificates.Own()
		add(credential{Key: "parallel.cert_file", From: &leaf.NotBefore, Until: &leaf.NotAfter}, nil)
	}
	server := func(table, variable, token, certificate, key, result string) {
		secret, err := process.ReadServerToken(table, token, variable, env)
		if err != nil || secret != "" {
			add(credential{Key: table + ".token_file", Result: result}, err)
		}
		settings, err := process.ServerTLS(table, certificate, key, env, slog.New(slog.DiscardHandler))
		if err == nil && settings == nil {
			return // the configuration names no certificate
		}
		c := credential{Key: table + ".cert_file", Server: true, Result: result}
		if err == nil {
			if pair, err := settings.GetCertificate(nil); err == nil {
				c.From, c.Until = &pair.Leaf.NotBefore, &pair.Leaf.NotAfter
			}
		}
		add(c, err)
	}
	if m := &cfg.Metrics; m.ServedBy(k.Process.Opts.Assignment.Rank) {
		server("metrics", process.MetricsTokenVariable, m.TokenFile, m.CertFile, m.KeyFile, "")
	}
	if d := &cfg.Dashboard; d.Enabled && k.Team.Leads() {
		server("dashboard", process.DashboardTokenVariable, d.TokenFile, d.CertFile, d.KeyFile,
			"the run trains without its dashboard")
	}
	if n := &cfg.Notify; n.Webhook == "" && k.Team.Leads() {
		if secret, err := process.ReadSecret("notify.webhook_file", n.WebhookFile, process.WebhookVariable,
			env); err != nil || secret != "" {
			add(credential{Key: "notify.webhook_file"}, err)
		}
	}
	return list
}
