package process

import (
	"crypto/tls"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/handshake"
)

// renewalTime is the time between two checks whether the files of a certificate have changed. A longer time would
// suffice, because certificates are renewed days before they expire.
const renewalTime = 10 * time.Second

// ServerTLS returns the TLS settings of a web server. The keys cert_file and key_file of a table of the configuration
// name its certificate and private key. Without them, ServerTLS returns nil. It reads both files now. The server reads
// them again after they have changed, because it may run for longer than its certificate is valid. If a new certificate
// cannot be used, the server warns, keeps the old one, and tries again later. ServerTLS accepts a certificate that is
// not valid yet, with a warning. Only the clocks of the clients matter, and the clock of this machine may be late.
func ServerTLS(table, certFile, keyFile string, env session.Environment, log *slog.Logger) (*tls.Config, error) {
	if certFile == "" {
		return nil, nil
	}
	c := &renewed{table: table, files: [2]string{certFile, keyFile}, env: env, log: log}
	c.versions = c.look()
	own, err := c.read()
	if err != nil {
		return nil, err
	}
	if err := handshake.ValidAt(own.Leaf, time.Now()); err != nil {
		if time.Now().After(own.Leaf.NotAfter) {
			return nil, c.invalid(err)
		}
		c.warn(err)
	}
	c.own.Store(own)
	c.due.Store(int64(renewalTime))
	c.started = time.Now()
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}, nil
}

// renewed is a certificate whose files may change.
type renewed struct {
	table   string
	files   [2]string // paths of the certificate and of its key
	env     session.Environment
	log     *slog.Logger
	started time.Time

	own atomic.Pointer[tls.Certificate]
	due atomic.Int64 // time of the next call of renew, as a duration since started; or renewing

	// only renew uses these fields, and only one call of renew runs at a time
	versions [2]version // versions of the files when own was read
	said     string     // the newest warning
	late     bool       // a warning has stated that own is not valid now
}

// version identifies the contents of a file: a replacement has another time or size.
type version struct {
	changed time.Time
	bytes   int64
}

func (c *renewed) look() (v [2]version) {
	for i, file := range c.files {
		if info, err := os.Stat(file); err == nil { // read will report a missing file
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
	return &own, nil
}

// invalid returns the error for a certificate that is not valid now.
func (c *renewed) invalid(cause error) error {
	return exit.Usagef("%s.cert_file: the certificate in %s %w"+otherCertificate, c.table, c.files[0], cause)
}

// warn logs that the certificate in use is not valid now.
func (c *renewed) warn(cause error) {
	c.late = true
	c.log.Warn("clients refuse the certificate of this server: replace its files, which the server then reads, or correct the clock",
		"cert_file", c.files[0], "certificate", cause)
}

// renewing is the value of due while renew runs, so that no handshake starts another call.
const renewing = math.MaxInt64

// get returns the certificate for a handshake. If a check of the files is due, get starts renew in a goroutine. It does
// not wait for renew, because a disk that hangs must not stop handshakes.
func (c *renewed) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if due := c.due.Load(); int64(time.Since(c.started)) >= due && c.due.CompareAndSwap(due, renewing) {
		go c.renew()
	}
	return c.own.Load(), nil
}

// renew reads the files again if they have changed since the certificate was read. It also warns if the certificate is
// not valid now.
func (c *renewed) renew() {
	defer func() { c.due.Store(int64(time.Since(c.started) + renewalTime)) }()
	now := c.look()
	if now == c.versions {
		if err := handshake.ValidAt(c.own.Load().Leaf, time.Now()); err == nil {
			c.late = false
		} else if !c.late {
			c.warn(err)
		}
		return
	}
	own, err := c.read()
	if err == nil {
		if notNow := handshake.ValidAt(own.Leaf, time.Now()); notNow != nil {
			err = c.invalid(notNow)
		}
	}
	if err == nil {
		c.own.Store(own)
		c.versions, c.said, c.late = now, "", false
		return
	}
	// While both files are being replaced, one may be missing or not readable yet. c.versions does not change, so renew
	// reads the files again after renewalTime. To log an error only once, compare it without the present time, which it
	// may contain.
	if text, _, _ := strings.Cut(err.Error(), ", and the clock"); text != c.said {
		c.said = text
		c.log.Warn("the changed certificate cannot be used; the server keeps the previous one", "error", err)
	}
}
