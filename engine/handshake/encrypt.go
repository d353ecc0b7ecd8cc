package handshake

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"sync"
	"time"
)

// exporterLabel is the label with which TLS exports the key that binds a handshake to its TLS session (RFC 9266).
const exporterLabel = "EXPORTER-Channel-Binding"

const (
	purposeBoundCaller   = "caller over TLS"
	purposeBoundListener = "listener over TLS"
)

// ErrIntercepted means that the two sides are in different TLS sessions.
var ErrIntercepted = errors.New(
	"a program between both sides intercepts the connection: the other side is in another TLS session")

// CertificateError reports a certificate that this side or the other side refused.
type CertificateError struct {
	Remote bool // the other side refused the certificate of this side
	Err    error
}

func (e *CertificateError) Error() string {
	if e.Remote {
		return fmt.Sprintf("the other side refused the certificate of this side: %v", e.Err)
	}
	return fmt.Sprintf("the certificate of the other side is not valid: %v", e.Err)
}

// Unwrap returns the error of package crypto/tls.
func (e *CertificateError) Unwrap() error { return e.Err }

// Certificates contains the certificate of this side, and the authority that must have signed the certificate of the
// other side.
type Certificates struct {
	own  tls.Certificate
	pool *x509.CertPool
}

// NewCertificates parses PEM files: the certificate of the authority, the certificate of this side (which may be
// followed by intermediate certificates), and its private key.
func NewCertificates(authority, certificate, key []byte) (*Certificates, error) {
	c := &Certificates{pool: x509.NewCertPool()}
	if !c.pool.AppendCertsFromPEM(authority) {
		return nil, errors.New("the file of the authority contains no certificate in PEM format")
	}
	var err error
	if c.own, err = tls.X509KeyPair(certificate, key); err != nil {
		return nil, err
	}
	return c, nil
}

// Own returns the certificate of this side.
func (c *Certificates) Own() *x509.Certificate { return c.own.Leaf }

// Verify checks the certificate of this side against the authority. It detects an expired certificate, or a certificate
// from another authority, before a connection is made.
func (c *Certificates) Verify() error {
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		between := x509.NewCertPool()
		for _, der := range c.own.Certificate[1:] {
			if other, err := x509.ParseCertificate(der); err == nil {
				between.AddCert(other)
			}
		}
		if _, err := c.own.Leaf.Verify(x509.VerifyOptions{Roots: c.pool, Intermediates: between,
			KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			return err
		}
	}
	return nil
}

// ValidAt returns an error if a certificate is not valid at the time now, which must come from the clock of this
// machine. The text of the error continues a sentence that begins with the certificate, for example "has expired: …".
// It contains the dates of the certificate and the time.
func ValidAt(c *x509.Certificate, now time.Time) error {
	const layout = "2006-01-02 15:04 MST" // with minutes, because a clock may be wrong by minutes
	text := func(t time.Time) string { return t.UTC().Format(layout) }
	switch {
	case now.Before(c.NotBefore):
		return fmt.Errorf("is not valid yet: it is valid from %s to %s, and the clock of this machine shows %s",
			text(c.NotBefore), text(c.NotAfter), text(now))
	case now.After(c.NotAfter):
		return fmt.Errorf("has expired: it was valid from %s to %s, and the clock of this machine shows %s",
			text(c.NotBefore), text(c.NotAfter), text(now))
	}
	return nil
}

// TLS configures Encrypt.
type TLS struct {
	Client       bool          // this side is the caller
	Certificates *Certificates // nil: only the secret authenticates the two sides
	// Server is the host name or address that the certificate of the other side must contain. It has an effect only if
	// Client and Certificates are set.
	Server string
}

// fresh returns a self-signed certificate of this process. The other side does not verify it.
var fresh = sync.OnceValues(func() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hetero-train"},
		NotBefore: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
})

// config returns the configuration for crypto/tls.
func (o TLS) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true}
	if o.Certificates != nil {
		c.Certificates = []tls.Certificate{o.Certificates.own}
		c.RootCAs, c.ClientCAs = o.Certificates.pool, o.Certificates.pool
		c.ClientAuth, c.ServerName = tls.RequireAndVerifyClientCert, o.Server
		if o.Client && o.Server == "" {
			return nil, errors.New("handshake: got no name for the certificate of the other side")
		}
		return c, nil
	}
	own, err := fresh()
	c.Certificates = []tls.Certificate{own}
	c.InsecureSkipVerify = true // the proofs after the TLS handshake authenticate the other side
	return c, err
}

// Encrypt starts TLS 1.3 on conn and returns the encrypted connection. After Encrypt, the results of [Session.Key] also
// depend on the TLS session. After an error, the caller must close conn.
func (s *Session) Encrypt(conn net.Conn, o TLS) (*tls.Conn, error) {
	config, err := o.config()
	if err != nil {
		return nil, err
	}
	secure := tls.Server(conn, config)
	if o.Client {
		secure = tls.Client(conn, config)
	}
	if err := secure.Handshake(); err != nil {
		return nil, explained(err)
	}
	state := secure.ConnectionState()
	if s.binding, err = state.ExportKeyingMaterial(exporterLabel, nil, 32); err != nil {
		return nil, err
	}
	if o.Client {
		err = s.bindCaller(secure)
	} else {
		err = s.bindListener(secure)
	}
	if err != nil {
		return nil, explained(err)
	}
	return secure, nil
}

func (s *Session) bindCaller(conn net.Conn) error {
	if _, err := conn.Write(s.Key(purposeBoundCaller)); err != nil {
		return err
	}
	return intercepted(s.await(conn, purposeBoundListener))
}

func (s *Session) bindListener(conn net.Conn) error {
	if err := s.verify(conn, purposeBoundCaller); err != nil {
		if errors.Is(err, ErrSecret) {
			_, _ = conn.Write([]byte{verdictSecret}) // best effort: the connection is refused anyway
		}
		return intercepted(err)
	}
	_, err := conn.Write(append([]byte{verdictWelcome}, s.Key(purposeBoundListener)...))
	return err
}

// intercepted converts ErrSecret to ErrIntercepted, because both sides have proved before TLS that they have the same
// secret.
func intercepted(err error) error {
	if errors.Is(err, ErrSecret) {
		return ErrIntercepted
	}
	return err
}

// explained returns a CertificateError if err concerns a certificate. In TLS 1.3, a client learns only at its first
// read that the server has refused its certificate. Any other TLS alert means that bytes were changed between both
// sides.
func explained(err error) error {
	var invalid *tls.CertificateVerificationError
	switch {
	case errors.As(err, &invalid):
		return &CertificateError{Err: invalid.Err}
	case err != nil && err.Error() == noCertificate:
		return &CertificateError{Err: err}
	}
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" && op.Op != "local error" {
		return err
	}
	if op.Op == "remote error" && slices.Contains(certificateAlerts(), op.Err.Error()) {
		return &CertificateError{Remote: true, Err: err}
	}
	return fmt.Errorf("TLS did not start, because a program or a fault changed bytes between both sides: %w", err)
}

// noCertificate is the text of the crypto/tls error for a client that has sent no certificate.
const noCertificate = "tls: client didn't provide a certificate"

// certificateAlerts returns the texts of TLS alerts about certificates (RFC 8446, section 6.2). The texts are necessary
// because crypto/tls does not export the numbers of received alerts.
var certificateAlerts = sync.OnceValue(func() (texts []string) {
	for _, number := range []tls.AlertError{
		42,  // bad_certificate
		43,  // unsupported_certificate
		44,  // certificate_revoked
		45,  // certificate_expired
		46,  // certificate_unknown
		48,  // unknown_ca
		116, // certificate_required
	} {
		texts = append(texts, number.Error())
	}
	return texts
})
