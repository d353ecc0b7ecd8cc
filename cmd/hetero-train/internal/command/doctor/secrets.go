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

// soon is how long before the end of a certificate doctor begins to warn at the earliest. Long runs take weeks.
const soon = 14 * 24 * time.Hour

// credentials adds findings about secrets and certificates. It also warns in the last third of a certificate's validity
// if this third is shorter than soon. Certificates are valid for hours to years.
func (f *findings) credentials() {
	const cure = "correct the file, or the setting that names it (docs/security.md)"
	now := time.Now()
	for _, c := range f.of.Credentials {
		switch {
		case c.Fault != "" && c.Result != "":
			f.add("credentials", warning, cure, "%s; %s", c.Fault, c.Result)
		case c.Fault != "":
			f.add("credentials", fault, cure, "%s", c.Fault)
		case c.Until == nil:
			f.add("credentials", good, "", "%s: there is a secret", c.Key)
		case now.Before(*c.From): // certificate of a server: for ranks, this is a fault
			f.add("credentials", warning, "correct the clock, or make another certificate",
				"%s: the certificate is valid only from %s; clients refuse it until then", c.Key,
				c.From.UTC().Format(time.DateTime))
		case c.Until.Sub(now) < min(soon, c.Until.Sub(*c.From)/3):
			renew := "renew it before a long run, for example with \"hetero-train certs\""
			if c.Server {
				renew = "renew it; the server reads the new files without a restart"
			}
			f.add("credentials", warning, renew, "%s: the certificate expires on %s", c.Key,
				c.Until.UTC().Format(time.DateTime))
		default:
			f.add("credentials", good, "", "%s: the certificate is valid until %s", c.Key,
				c.Until.UTC().Format(time.DateOnly))
		}
	}
}
