package handshake

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

var test = Protocol{Name: [8]byte{'h', 't', 't', 'e', 's', 't', 's', 3}, Secret: []byte("a secret of many bytes"),
	Claim: 4}

// pair returns the two ends of a TCP connection, with a deadline.
func pair(t testing.TB) (near, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if near, err = net.Dial("tcp", listener.Addr().String()); err == nil {
		far, err = listener.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{near, far} {
		c.SetDeadline(time.Now().Add(time.Minute))
		t.Cleanup(func() { c.Close() })
	}
	return near, far
}

// accepted accepts any claim.
func accepted([]byte) error { return nil }

// result is the outcome of one side.
type result struct {
	session *Session
	secure  *tls.Conn
	err     error
}

// meet performs the handshake on both sides, and the encryption if both sides have TLS settings. near and far may be
// connected through another program.
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
		near, far := pair(t)
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
		near, far := pair(t)
		if c, l := meet(p, test, near, far, nil, nil); !errors.Is(c.err, ErrSecret) || !errors.Is(l.err, ErrSecret) {
			t.Errorf("got %v and %v, want ErrSecret twice", c.err, l.err)
		}
	}
}

// The claim must not be changed between the two sides.
func TestAnotherClaimIsRefused(t *testing.T) {
	near, between := pair(t)
	out, far := pair(t)
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
	near, far := pair(t)
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
		near, far := pair(t)
		go far.Write([]byte(sent))
		_, err := test.Call(near, make([]byte, 4))
		var stranger *StrangerError
		if !errors.As(err, &stranger) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// A program that knows no secret passes the handshake on, and ends TLS on both sides.
func TestAnInterceptedConnectionIsFound(t *testing.T) {
	near, between := pair(t)
	out, far := pair(t)
	go func() {
		defer between.Close()
		defer out.Close()
		// the messages of the handshake, which it cannot change
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

// No function may read beyond the handshake, because the connection has another reader afterwards.
func TestNothingIsReadBeyondTheHandshake(t *testing.T) {
	near, far := pair(t)
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

// Any bytes of a caller must be refused, without a panic and without a proof in reply.
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

// Any bytes of a listener must be refused.
func FuzzCall(f *testing.F) {
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Add(append(bytes.Clone(test.Name[:]), make([]byte, 100)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := test.Call(&canned{Reader: bytes.NewReader(data)}, make([]byte, 4)); err == nil {
			t.Fatalf("%x was accepted", data)
		}
	})
}

// canned is a connection whose other side has sent everything.
type canned struct {
	io.Reader
	sent bytes.Buffer
}

func (c *canned) Write(p []byte) (int, error) { return c.sent.Write(p) }

// BenchmarkStranger is the cost of a refused caller, and BenchmarkCaller that of an accepted one, for both sides.
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
		near, far := pair(b)
		if c, l := meet(test, test, near, far, &TLS{Client: true}, &TLS{}); c.err != nil || l.err != nil {
			b.Fatal(c.err, l.err)
		}
		near.Close()
		far.Close()
	}
}
