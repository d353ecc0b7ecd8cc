package process

import (
	"crypto/tls"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
)

// renewalTime is the time between two looks at the files of a certificate. Certificates are renewed days before they
// expire.
const renewalTime = 10 * time.Second

// ServerTLS returns the settings of a web server with the certificate and the key that cert_file and key_file of a
// table name; nil without them. It reads both files now, and again after they have changed, because a server may run
// for longer than its certificate is valid. A replacement that is not valid is a warning, and the server keeps its
// certificate.
func ServerTLS(table, certFile, keyFile string, env session.Environment, log *slog.Logger) (*tls.Config, error) {
	if certFile == "" {
		return nil, nil
	}
	c := &renewed{table: table, files: [2]string{certFile, keyFile}, env: env, log: log, looked: time.Now()}
	c.versions = c.look()
	own, err := c.read()
	if err != nil {
		return nil, err
	}
	c.own = own
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}, nil
}

// renewed is a certificate whose files may change.
type renewed struct {
	table string
	files [2]string // certificate, key
	env   session.Environment
	log   *slog.Logger

	mu       sync.Mutex
	own      *tls.Certificate
	versions [2]version
	looked   time.Time
}

// version tells the contents of a file from those of its replacement.
type version struct {
	changed time.Time
	bytes   int64
}

func (c *renewed) look() (v [2]version) {
	for i, file := range c.files {
		if info, err := os.Stat(file); err == nil { // read reports a file that is missing
			v[i] = version{info.ModTime(), info.Size()}
		}
	}
	return v
}

func (c *renewed) read() (*tls.Certificate, error) {
	certificate, err := readPublic(c.table+".cert_file", c.files[0])
	if err != nil {
		return nil, err
	}
	key, err := ReadSecret(c.table+".key_file", c.files[1], "", c.env)
	if err != nil {
		return nil, err
	}
	own, err := tls.X509KeyPair(certificate, []byte(key))
	if err != nil {
		return nil, exit.Usagef("%s.cert_file %s, key_file %s: %w", c.table, c.files[0], c.files[1], err)
	}
	if now := time.Now(); now.After(own.Leaf.NotAfter) {
		return nil, exit.Usagef("%s.cert_file: the certificate in %s expired on %s: make another one with \"hetero-train certs\"",
			c.table, c.files[0], own.Leaf.NotAfter.Format(time.DateOnly))
	}
	return &own, nil
}

// get returns the certificate for a handshake.
func (c *renewed) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) >= renewalTime {
		c.looked = now
		if v := c.look(); v != c.versions {
			c.versions = v
			own, err := c.read()
			if err != nil { // one of two files may be missing while both are replaced
				c.log.Warn("the changed certificate cannot be used; the server keeps the previous one", "error", err)
			} else {
				c.own = own
			}
		}
	}
	return c.own, nil
}
