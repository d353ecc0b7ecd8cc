package httpguard

import (
	"io"
	"net"
	"testing"
)

func TestConnectionsBeyondTheLimitAreClosed(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	l := Limit(inner, 1)
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	accepted := make(chan net.Conn)
	go func() {
		for range 2 {
			c, err := l.Accept()
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}
	}()
	dial()
	first := <-accepted
	second := dial()
	if _, err := second.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("second connection: got %v, want it closed", err)
	}
	for range 2 { // a second Close frees no second place
		first.Close()
	}
	dial()
	defer (<-accepted).Close()
	if free := cap(l.(*limited).open) - len(l.(*limited).open); free != 0 {
		t.Errorf("%d free connections, want 0", free)
	}
}

func TestHost(t *testing.T) {
	for header, want := range map[string]string{"a.example": "a.example", "a.example:80": "a.example", "127.0.0.1:1": "127.0.0.1",
		"[::1]:80": "::1", "[::1]": "::1", "::1": "::1", "[[::1]]": "[::1]", "": ""} {
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
