package doctor

import (
	"log/slog"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
)

// credential is a token or a certificate that the configuration or the environment names.
type credential struct {
	Key   string     `json:"key"`
	Until *time.Time `json:"valid_until,omitempty"` // of a certificate
	Fault string     `json:"fault,omitempty"`       // the program would refuse it
}

// soon is the time before the end of a certificate in which doctor warns. Long runs take weeks.
const soon = 14 * 24 * time.Hour

// probeCredentials reads the tokens and certificates as a run would.
func probeCredentials(k *compute.Rank) (list []credential) {
	cfg, env := k.Process.Cfg, k.Process.Opts.Env
	own, err := process.ReadCredentials(cfg.Parallel, env)
	switch {
	case err != nil:
		list = append(list, credential{Key: "parallel", Fault: err.Error()})
	case own.Certificates != nil:
		list = append(list, credential{Key: "parallel.cert_file", Until: &own.Certificates.Own().NotAfter})
	case own.Token != "":
		list = append(list, credential{Key: "parallel.token_file"})
	}
	quiet := slog.New(slog.DiscardHandler)
	for _, server := range []struct{ table, certificate, key string }{
		{"dashboard", cfg.Dashboard.CertFile, cfg.Dashboard.KeyFile},
		{"metrics", cfg.Metrics.CertFile, cfg.Metrics.KeyFile},
	} {
		settings, err := process.ServerTLS(server.table, server.certificate, server.key, env, quiet)
		if err == nil && settings == nil {
			continue // no certificate is named
		}
		found := credential{Key: server.table + ".cert_file"}
		if err == nil {
			if own, err := settings.GetCertificate(nil); err == nil {
				found.Until = &own.Leaf.NotAfter
			}
		} else {
			found.Fault = err.Error()
		}
		list = append(list, found)
	}
	return list
}

// credentials adds findings about tokens and certificates.
func (f *findings) credentials() {
	for _, c := range f.of.Credentials {
		switch {
		case c.Fault != "":
			f.add("credentials", fault, "correct the file, or the setting that names it (docs/security.md)", "%s",
				c.Fault)
		case c.Until == nil:
			f.add("credentials", good, "", "%s: there is a token", c.Key)
		case time.Until(*c.Until) < soon:
			f.add("credentials", warning, "make another one with \"hetero-train certs\" before a long run",
				"%s: the certificate expires on %s", c.Key, c.Until.UTC().Format(time.DateTime))
		default:
			f.add("credentials", good, "", "%s: the certificate is valid until %s", c.Key,
				c.Until.UTC().Format(time.DateOnly))
		}
	}
}
