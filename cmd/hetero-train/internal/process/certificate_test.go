package process

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
)

// writeCertificate writes a certificate for a name, and its key.
func writeCertificate(t *testing.T, files [2]string, name string, until time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: until.AddDate(-1, 0, 0), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err = errors.Join(err,
		os.WriteFile(files[0], pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644),
		os.WriteFile(files[1], pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// A server must use a renewed certificate without a restart. While certificate and key do not match, it must keep the
// previous certificate.
func TestACertificateIsRenewed(t *testing.T) {
	dir := t.TempDir()
	files := [2]string{filepath.Join(dir, "a.pem"), filepath.Join(dir, "a-key.pem")}
	writeCertificate(t, files, "first", time.Now().AddDate(0, 1, 0))
	var said strings.Builder
	c, err := ServerTLS("dashboard", files[0], files[1], session.Environment{},
		slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	first, err := c.GetCertificate(nil)
	if err != nil || first.Leaf.Subject.CommonName != "first" {
		t.Fatalf("got %v, %v", first, err)
	}
	r := &renewed{table: "dashboard", files: files, log: slog.New(slog.NewTextHandler(&said, nil))}
	r.due.Store(int64(time.Hour)) // for an hour, only the test starts checks of the files
	r.started = time.Now()
	r.own.Store(first)
	r.versions = r.look()
	for _, step := range []struct {
		name    string
		change  func() error
		want    string
		warning string // "": no warning
	}{
		{"nothing changed", func() error { return nil }, "first", ""},
		{"a certificate without its key", func() error {
			other := [2]string{files[0], filepath.Join(dir, "other.pem")}
			writeCertificate(t, other, "second", time.Now().AddDate(0, 1, 0))
			return nil
		}, "first", "private key"},
		{"the same again", func() error { return nil }, "first", ""},
		{"a key that others can read", func() error {
			writeCertificate(t, files, "third", time.Now().AddDate(0, 1, 0))
			return os.Chmod(files[1], 0o644)
		}, "first", "other users can read"},
		// This changes neither the time nor the size of the file.
		{"the mode of the key", func() error { return os.Chmod(files[1], 0o600) }, "third", ""},
	} {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		said.Reset()
		r.renew()
		got, err := r.get(nil)
		if err != nil || got.Leaf.Subject.CommonName != step.want {
			t.Errorf("%s: got %v, %v, want %s", step.name, got.Leaf.Subject, err, step.want)
		}
		if step.warning == "" && said.Len() > 0 || !strings.Contains(said.String(), step.warning) {
			t.Errorf("%s: got the warning %q, want %q", step.name, said.String(), step.warning)
		}
	}
}

// When a check of the files is due, the next handshake must start it, and must not wait for it.
func TestAHandshakeRenewsTheCertificate(t *testing.T) {
	dir := t.TempDir()
	files := [2]string{filepath.Join(dir, "a.pem"), filepath.Join(dir, "a-key.pem")}
	writeCertificate(t, files, "first", time.Now().AddDate(0, 1, 0))
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().AddDate(0, 1, 0) // the fake clock of the test starts in another year
		writeCertificate(t, files, "first", until)
		c, err := ServerTLS("dashboard", files[0], files[1], session.Environment{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		writeCertificate(t, files, "renewed", until)
		for _, want := range []string{"first", "first", "renewed"} { // check not due yet; check started; check done
			got, err := c.GetCertificate(nil)
			if err != nil || got.Leaf.Subject.CommonName != want {
				t.Errorf("got %v, %v, want %s", got.Leaf.Subject, err, want)
			}
			synctest.Wait()
			time.Sleep(renewalTime)
		}
	})
}

// A certificate that expires while the server runs must cause one warning. A valid replacement must end this state.
func TestACertificateExpiresWhileTheServerRuns(t *testing.T) {
	dir := t.TempDir()
	files := [2]string{filepath.Join(dir, "a.pem"), filepath.Join(dir, "a-key.pem")}
	synctest.Test(t, func(t *testing.T) {
		writeCertificate(t, files, "first", time.Now().Add(time.Minute))
		var said strings.Builder
		c, err := ServerTLS("metrics", files[0], files[1], session.Environment{},
			slog.New(slog.NewTextHandler(&said, nil)))
		if err != nil {
			t.Fatal(err)
		}
		handshakes := func(want int) {
			t.Helper()
			for range 3 {
				time.Sleep(renewalTime)
				if _, err := c.GetCertificate(nil); err != nil {
					t.Error(err)
				}
				synctest.Wait()
			}
			if got := strings.Count(said.String(), "has expired"); got != want {
				t.Errorf("got %d warnings, want %d: %s", got, want, said.String())
			}
		}
		handshakes(0)
		time.Sleep(time.Minute)
		handshakes(1)
		writeCertificate(t, files, "renewed", time.Now().Add(time.Hour))
		handshakes(1)
		if got, err := c.GetCertificate(nil); err != nil || got.Leaf.Subject.CommonName != "renewed" {
			t.Errorf("got %v, %v, want the renewed certificate", got, err)
		}
		// The certificate gets a replacement that is valid for longer.
		writeCertificate(t, files, "later", time.Now().AddDate(1, 0, 1))
		handshakes(1)
		if got := strings.Count(said.String(), "is not valid yet"); got != 1 {
			t.Errorf("got %d warnings about a certificate of the future, want 1: %s", got, said.String())
		}
	})
}

// If the clock of the server is late, its certificate is not valid yet. This must not end the training: the server
// warns once, and clients decide whether to accept the certificate.
func TestACertificateThatIsNotValidYet(t *testing.T) {
	dir := t.TempDir()
	files := [2]string{filepath.Join(dir, "a.pem"), filepath.Join(dir, "a-key.pem")}
	synctest.Test(t, func(t *testing.T) {
		// Valid for a year, from the next minute on.
		writeCertificate(t, files, "early", time.Now().AddDate(1, 0, 0).Add(time.Minute))
		var said strings.Builder
		c, err := ServerTLS("metrics", files[0], files[1], session.Environment{},
			slog.New(slog.NewTextHandler(&said, nil)))
		if err != nil {
			t.Fatal(err)
		}
		for range 12 { // 2 minutes in total
			time.Sleep(renewalTime)
			if got, err := c.GetCertificate(nil); err != nil || got.Leaf.Subject.CommonName != "early" {
				t.Errorf("got %v, %v", got, err)
			}
			synctest.Wait()
		}
		if strings.Count(said.String(), "WARN") != 1 || !strings.Contains(said.String(), "is not valid yet") {
			t.Errorf("got %q, want one warning", said.String())
		}
		time.Sleep(366 * 24 * time.Hour)
		if _, err := c.GetCertificate(nil); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if strings.Count(said.String(), "has expired") != 1 {
			t.Errorf("a year later: got %q, want that it has expired", said.String())
		}
	})
}

func TestAPrivateKeyOnWindows(t *testing.T) {
	for variable, want := range map[string]string{"": "a proxy", "HETERO_TOKEN": "environment variable HETERO_TOKEN"} {
		err := unchecked("metrics.key_file", "key.pem", variable)
		if !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(want)) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestCertificatesOfAServerThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	good, old := [2]string{in("good.pem"), in("good-key.pem")}, [2]string{in("old.pem"), in("old-key.pem")}
	writeCertificate(t, good, "good", time.Now().AddDate(0, 1, 0))
	writeCertificate(t, old, "old", time.Now().Add(-time.Hour))
	open := in("open-key.pem")
	text, err := os.ReadFile(good[1])
	if err = errors.Join(err, os.WriteFile(open, text, 0o644), os.Chmod(open, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, certificate, key, want string }{
		{"an expired certificate", old[0], old[1], "has expired: it was valid from "},
		{"another key", good[0], old[1], "private key"},
		{"a key that others can read", good[0], open, "other users can read"},
		{"no certificate", in("none"), good[1], "metrics.cert_file"},
		{"no key", good[0], in("none"), "metrics.key_file"},
	} {
		if _, err := ServerTLS("metrics", c.certificate, c.key, session.Environment{}, slog.Default()); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	if c, err := ServerTLS("metrics", "", "", session.Environment{}, slog.Default()); c != nil || err != nil {
		t.Errorf("no files: got %v, %v", c, err)
	}
}
