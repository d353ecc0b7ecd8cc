package httpguard

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// Beyond the limit, the server must close connections of clients that send nothing. An authenticated client must keep
// its connection, even if no other client can then connect.
func TestConnectionsBeyondTheLimitAreClosed(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/proved" {
			Prove(r)
		}
	})}
	l := Limit(server, inner, 2)
	go server.Serve(l)
	defer server.Close()
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(30 * time.Second))
		return c
	}
	ask := func(c net.Conn, path string) error {
		if _, err := c.Write([]byte("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
			return err
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		return err
	}
	closed := func(c net.Conn) bool {
		_, err := io.Copy(io.Discard, c)
		return !errors.Is(err, os.ErrDeadlineExceeded)
	}
	first := dial()
	if err := ask(first, "/proved"); err != nil {
		t.Fatal(err)
	}
	silent := dial()
	client := dial()
	if !closed(silent) {
		t.Error("a silent client keeps its place")
	}
	if err := ask(client, "/proved"); err != nil {
		t.Errorf("a client that needs the place of a silent one: got %v", err)
	}
	if !closed(dial()) {
		t.Error("a client got a place although all others have proved themselves")
	}
	client.Close()
	for deadline := time.Now().Add(30 * time.Second); ask(dial(), "/") != nil; {
		if time.Now().After(deadline) {
			t.Fatal("a closed connection does not leave its place")
		}
	}
	if err := ask(first, "/"); err != nil {
		t.Errorf("a client that has proved itself lost its place: %v", err)
	}
}

func TestWrongSecretsCountByAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limiter
		wrong := func(from string) (over, first bool) {
			name, over, first := l.Wrong(&http.Request{RemoteAddr: from + ":1"})
			if name != from {
				t.Errorf("got the address %s, want %s", name, from)
			}
			return over, first
		}
		firsts := 0
		for i := range 100 {
			over, first := wrong("10.0.0.1")
			if first {
				firsts++
			}
			if over != (i >= mostWrong) {
				t.Errorf("wrong secret %d: got over = %v", i, over)
			}
		}
		if firsts != 1 {
			t.Errorf("%d reports, want 1", firsts)
		}
		if over, _ := wrong("10.0.0.2"); over {
			t.Error("another address suffers")
		}
		time.Sleep(2 * time.Second)
		if over, _ := wrong("10.0.0.1"); over {
			t.Error("the address may send one secret per second")
		}
		for range 2 * mostWrong {
			wrong("10.0.0.3")
		}
		for i := range 2 * mostAddresses {
			time.Sleep(time.Millisecond)
			if i%1000 == 0 {
				if over, first := wrong("10.0.0.3"); !over || first {
					t.Errorf("after %d other addresses: got over = %v, first = %v of an address that goes on", i, over,
						first)
				}
			}
			wrong(netip.AddrFrom4([4]byte{11, 0, byte(i >> 8), byte(i)}).String())
		}
		if len(l.all) > mostAddresses {
			t.Errorf("%d addresses in memory, want at most %d", len(l.all), mostAddresses)
		}
	})
}

func TestHost(t *testing.T) {
	for header, want := range map[string]string{"a.example": "a.example", "a.example:80": "a.example",
		"127.0.0.1:1": "127.0.0.1",
		"[::1]:80":    "::1", "[::1]": "::1", "::1": "::1", "[[::1]]": "[::1]", "": ""} {
		if got := Host(header); got != want {
			t.Errorf("%q: got %q, want %q", header, got, want)
		}
	}
}

func TestEqual(t *testing.T) {
	if !Equal("secret", "secret") || Equal("secret", "Secret") || Equal("secret", "") || Equal("secret", "secret2") {
		t.Error("wrong comparison")
	}
}
