package handshake

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/cluster/porttest"
)

var test = Protocol{Name: [8]byte{'h', 't', 't', 'e', 's', 't', 's', 3}, Secret: []byte("a secret of many bytes"),
	Claim: 4}

// accepted is a check that accepts any claim.
func accepted([]byte) error { return nil }

// result contains the results of one side.
type result struct {
	session *Session
	secure  *tls.Conn
	err     error
}

// meet performs the handshake on both sides. If both have TLS settings, it also encrypts the connection. Another
// program may be between near and far.
func meet(caller, listener Protocol, near, far net.Conn, clientTLS, serverTLS *TLS) (c, l result) {
	var both sync.WaitGroup
	both.Go(func() {
		if l.session, l.err = listener.Answer(far, accepted); l.err == nil && serverTLS != nil {
			l.secure, l.err = l.session.Encrypt(far, *serverTLS)
		}
		if l.err != nil {
			far.Close()
		}
	})
	if c.session, c.err = caller.Call(near, []byte{1, 2, 3, 4}); c.err == nil && clientTLS != nil {
		c.secure, c.err = c.session.Encrypt(near, *clientTLS)
	}
	if c.err != nil {
		near.Close()
	}
	both.Wait()
	return c, l
}

func TestBothSidesGetTheSameKeys(t *testing.T) {
	for name, encrypted := range map[string]bool{"plain": false, "encrypted": true} {
		near, far := porttest.Connection(t)
		var client, server *TLS
		if encrypted {
			client, server = &TLS{Client: true}, &TLS{}
		}
		c, l := meet(test, test, near, far, client, server)
		if c.err != nil || l.err != nil {
			t.Fatalf("%s: got %v and %v", name, c.err, l.err)
		}
		if !bytes.Equal(c.session.Key("a"), l.session.Key("a")) || bytes.Equal(c.session.Key("a"), c.session.Key("b")) {
			t.Errorf("%s: the keys of both sides differ, or those of two purposes are equal", name)
		}
		if encrypted {
			go c.secure.Write([]byte("text"))
			got := make([]byte, 4)
			if _, err := io.ReadFull(l.secure, got); err != nil || string(got) != "text" ||
				l.secure.ConnectionState().Version != tls.VersionTLS13 {
				t.Errorf("got %q, %v, version %x", got, err, l.secure.ConnectionState().Version)
			}
		}
	}
}

func TestAnotherSecretIsRefused(t *testing.T) {
	other, none := test, test
	other.Secret, none.Secret = []byte("another secret"), nil
	for _, p := range []Protocol{other, none} {
		near, far := porttest.Connection(t)
		if c, l := meet(p, test, near, far, nil, nil); !errors.Is(c.err, ErrSecret) || !errors.Is(l.err, ErrSecret) {
			t.Errorf("got %v and %v, want ErrSecret twice", c.err, l.err)
		}
	}
}

// If the claim changes on its way, both sides must detect this.
func TestAnotherClaimIsRefused(t *testing.T) {
	near, between := porttest.Connection(t)
	out, far := porttest.Connection(t)
	go io.Copy(between, out)
	go func() {
		io.CopyN(out, between, GreetingBytes)
		claim := make([]byte, 4)
		io.ReadFull(between, claim)
		claim[0] ^= 1
		out.Write(claim)
		io.Copy(out, between)
	}()
	if c, l := meet(test, test, near, far, nil, nil); !errors.Is(c.err, ErrSecret) || !errors.Is(l.err, ErrSecret) {
		t.Errorf("got %v and %v, want ErrSecret twice", c.err, l.err)
	}
}

func TestAListenerMayRefuseAClaim(t *testing.T) {
	near, far := porttest.Connection(t)
	no := errors.New("no")
	done := make(chan error)
	go func() {
		_, err := test.Answer(far, func(claim []byte) error {
			if !bytes.Equal(claim, []byte{1, 2, 3, 4}) {
				t.Errorf("got claim %v", claim)
			}
			return no
		})
		far.Close()
		done <- err
	}()
	if _, err := test.Call(near, []byte{1, 2, 3, 4}); err == nil {
		t.Error("a refused caller got no error")
	}
	if err := <-done; !errors.Is(err, no) {
		t.Errorf("got %v, want the error of accept", err)
	}
}

func TestStrangersAreNamed(t *testing.T) {
	for sent, want := range map[string]string{
		"HTTP/1.1 400 Bad Request":                      `does not use protocol httests (got "HTTP/1.1")`,
		"httests\x07" + strings.Repeat("x", NonceBytes): "uses version 7 of protocol httests, want version 3",
	} {
		near, far := porttest.Connection(t)
		go far.Write([]byte(sent))
		_, err := test.Call(near, make([]byte, 4))
		var stranger *StrangerError
		if !errors.As(err, &stranger) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// A man in the middle without the secret forwards the handshake, and ends TLS on both sides. The sides must detect
// this.
func TestAnInterceptedConnectionIsFound(t *testing.T) {
	near, between := porttest.Connection(t)
	out, far := porttest.Connection(t)
	go func() {
		defer between.Close()
		defer out.Close()
		// The man in the middle forwards these messages of the handshake, because it cannot change them.
		for _, step := range []struct {
			to, from net.Conn
			n        int64
		}{
			{out, between, GreetingBytes}, {between, out, GreetingBytes},
			{out, between, 4 + 32}, {between, out, 1 + 32},
		} {
			io.CopyN(step.to, step.from, step.n)
		}
		own, err := fresh()
		if err != nil {
			t.Error(err)
			return
		}
		server := tls.Server(between, &tls.Config{Certificates: []tls.Certificate{own}})
		client := tls.Client(out, &tls.Config{InsecureSkipVerify: true})
		go io.Copy(server, client)
		io.Copy(client, server)
	}()
	c, l := meet(test, test, near, far, &TLS{Client: true}, &TLS{})
	if !errors.Is(c.err, ErrIntercepted) || !errors.Is(l.err, ErrIntercepted) {
		t.Errorf("got %v and %v, want ErrIntercepted twice", c.err, l.err)
	}
}

// Both sides must find out the version of the other side. Proofs of one version must not be valid for another version.
func TestUnequalVersions(t *testing.T) {
	next := test
	next.Name[7]++
	near, far := porttest.Connection(t)
	c, l := meet(test, next, near, far, nil, nil)
	for who, side := range map[string]struct {
		err  error
		want byte
	}{"caller": {c.err, 4}, "listener": {l.err, 3}} {
		var stranger *StrangerError
		if !errors.As(side.err, &stranger) {
			t.Errorf("%s: got %v, want a StrangerError", who, side.err)
		} else if version, ok := stranger.Version(); !ok || version != side.want {
			t.Errorf("%s: got version %d, %v, want %d", who, version, ok, side.want)
		}
	}
	nonce := make([]byte, NonceBytes)
	if bytes.Equal(test.begin(nonce, nonce, nil).Key("a"), next.begin(nonce, nonce, nil).Key("a")) {
		t.Error("two versions have the same keys")
	}
}

// If a byte of TLS changes, the connection must end. The error must not be the error of a refused certificate.
func TestChangedBytesAreNoRefusedCertificate(t *testing.T) {
	authority, certificates := testCertificates(t)
	for name, c := range map[string]*Certificates{"certificates": certificates, "none": nil} {
		for _, towardsListener := range []bool{true, false} {
			for piece := range 2 {
				near, between := porttest.Connection(t)
				out, far := porttest.Connection(t)
				for _, conn := range []net.Conn{near, between, out, far} {
					conn.SetDeadline(time.Now().Add(time.Minute))
				}
				damaged := make(chan bool, 2)
				pass := func(to, from net.Conn, plain int64, damage bool) {
					defer to.Close()
					io.CopyN(to, from, plain) // forwards the handshake before TLS
					buffer := make([]byte, 16<<10)
					done := false
					for i := 0; ; i++ {
						n, err := from.Read(buffer)
						if damage && i == piece && n > 0 {
							buffer[n-1] ^= 1
							done = true
						}
						if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
							damaged <- done || !damage
							return
						}
					}
				}
				go pass(out, between, GreetingBytes+4+32, towardsListener)
				go pass(between, out, GreetingBytes+1+32, !towardsListener)
				caller, listener := meet(test, test, near, far, &TLS{Client: true, Certificates: c, Server: authority},
					&TLS{Certificates: c})
				for _, side := range []*result{&caller, &listener} { // a side may finish before it detects the change
					if side.secure != nil {
						_, side.err = side.secure.Read(make([]byte, 1))
					}
				}
				var refused *CertificateError
				for who, err := range map[string]error{"caller": caller.err, "listener": listener.err} {
					if err == nil || errors.As(err, &refused) {
						t.Errorf("%s, piece %d, towards the listener: %v: the %s got %v", name, piece, towardsListener,
							who, err)
					}
				}
				near.Close()
				far.Close()
				if !<-damaged || !<-damaged {
					t.Error("no byte was changed")
				}
			}
		}
	}
}

// testCertificates returns certificates for both sides. They contain the name of the host.
func testCertificates(t *testing.T) (host string, c *Certificates) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"host"}, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	c, err = NewCertificates(public, public, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
	if err != nil {
		t.Fatal(err)
	}
	return "host", c
}

// After the handshake, another reader uses the connection. No function may therefore read beyond the handshake.
func TestNothingIsReadBeyondTheHandshake(t *testing.T) {
	near, far := porttest.Connection(t)
	go func() {
		test.Call(near, make([]byte, 4))
		near.Write([]byte("more"))
	}()
	if _, err := test.Answer(far, accepted); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(far, got); err != nil || string(got) != "more" {
		t.Errorf("got %q, %v", got, err)
	}
}

// FuzzAnswer lets a caller send any bytes. They must be refused, without a panic and without a proof in the answer.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add(append(bytes.Clone(test.Name[:]), make([]byte, 100)...))
	f.Add([]byte{0x16, 3, 1, 2, 0, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		conn := &canned{Reader: bytes.NewReader(data)}
		if _, err := test.Answer(conn, accepted); err == nil {
			t.Fatalf("%x was accepted", data)
		}
		if conn.sent.Len() > GreetingBytes+1 {
			t.Errorf("got a reply of %d bytes", conn.sent.Len())
		}
	})
}

// FuzzCall lets a listener send any bytes. They must be refused.
func FuzzCall(f *testing.F) {
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Add(append(bytes.Clone(test.Name[:]), make([]byte, 100)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := test.Call(&canned{Reader: bytes.NewReader(data)}, make([]byte, 4)); err == nil {
			t.Fatalf("%x was accepted", data)
		}
	})
}

// canned is a connection whose other side has already sent all its data.
type canned struct {
	io.Reader
	sent bytes.Buffer
}

func (c *canned) Write(p []byte) (int, error) { return c.sent.Write(p) }

// BenchmarkStranger measures the cost of a refused caller, and BenchmarkCaller that of an accepted one. Both include
// both sides.
func BenchmarkStranger(b *testing.B) {
	data := append(bytes.Clone(test.Name[:]), make([]byte, NonceBytes+4+32)...)
	for b.Loop() {
		if _, err := test.Answer(&canned{Reader: bytes.NewReader(data)}, accepted); !errors.Is(err, ErrSecret) {
			b.Fatal(err)
		}
	}
}

func BenchmarkCaller(b *testing.B) {
	for b.Loop() {
		near, far := porttest.Connection(b)
		if c, l := meet(test, test, near, far, &TLS{Client: true}, &TLS{}); c.err != nil || l.err != nil {
			b.Fatal(c.err, l.err)
		}
		near.Close()
		far.Close()
	}
}
