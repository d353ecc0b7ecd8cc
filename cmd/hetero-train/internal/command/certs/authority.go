package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/handshake"
)

const authorityName = "ca"

// clockTolerance is how long before its creation a certificate begins to be valid. Machines whose clocks are slow
// therefore accept a new certificate.
const clockTolerance = time.Hour

// authority is the certificate authority that signs the certificates of machines.
type authority struct {
	certificate *x509.Certificate
	key         any
}

// openAuthority reads the certificate authority of a folder, or creates one.
func openAuthority(folder string, days int, now time.Time) (a authority, made bool, err error) {
	files := paths(folder, authorityName)
	_, noCertificate := os.Lstat(files[0])
	_, noKey := os.Lstat(files[1])
	if errors.Is(noCertificate, fs.ErrNotExist) && errors.Is(noKey, fs.ErrNotExist) {
		a, err = newAuthority(files, days, now)
		return a, true, err
	}
	pair, err := tls.LoadX509KeyPair(files[0], files[1])
	if err != nil {
		return a, false, exit.Usagef("certs: read the authority: %w; restore both files, or remove both to make another authority",
			err)
	}
	a.certificate, a.key = pair.Leaf, pair.PrivateKey
	if !a.certificate.IsCA {
		return a, false, exit.Usagef("certs: %s is not the certificate of an authority", files[0])
	}
	if err := handshake.ValidAt(a.certificate, now); err != nil {
		return a, false, exit.Usagef("certs: the authority %s %w: remove %s and %s to make another one, or correct the clock",
			files[0], err, files[0], files[1])
	}
	return a, false, nil
}

func newAuthority(files [2]string, days int, now time.Time) (a authority, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return a, err
	}
	template := &x509.Certificate{SerialNumber: serial(), Subject: pkix.Name{CommonName: "hetero-train authority"},
		NotBefore: now.Add(-clockTolerance), NotAfter: now.AddDate(0, 0, days), IsCA: true, BasicConstraintsValid: true,
		MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return a, err
	}
	a.key = key
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		return a, err
	}
	return a, store(files, der, key)
}

// issue creates the files of a machine and returns the time at which its certificate expires.
func (a authority) issue(folder string, m machine, days int, now time.Time) (until time.Time, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return until, err
	}
	until = now.AddDate(0, 0, days)
	if until.After(a.certificate.NotAfter) { // a certificate must not outlive its authority
		until = a.certificate.NotAfter
	}
	template := &x509.Certificate{SerialNumber: serial(), Subject: pkix.Name{CommonName: m.name},
		NotBefore: now.Add(-clockTolerance), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    m.names, IPAddresses: m.addresses}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return until, fmt.Errorf("certs: sign the certificate of %s: %w", m.name, err)
	}
	return until, store(paths(folder, m.name), der, key)
}

// store writes a certificate and its key to two files.
func store(files [2]string, certificate []byte, key *ecdsa.PrivateKey) error {
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := write(files[1], pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600); err != nil {
		return err
	}
	return write(files[0], pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o644)
}

// serial returns a random serial number.
func serial() *big.Int {
	var bytes [16]byte
	_, _ = rand.Read(bytes[:]) // rand.Read never returns an error
	bytes[0] &= 0x7f           // the number is positive: its encoding stays within 20 bytes
	return new(big.Int).SetBytes(bytes[:])
}
