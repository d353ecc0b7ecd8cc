package ports

import (
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"
)

func TestTextOfARange(t *testing.T) {
	for r, want := range map[Range]string{{}: "", {7, 7}: "7", {29600, 29663}: "29600-29663"} {
		if got := r.String(); got != want {
			t.Errorf("%+v: got %q, want %q", r, got, want)
		}
	}
	if got := (Range{29600, 29663}).Len(); got != 64 {
		t.Errorf("got %d ports, want 64", got)
	}
}

func TestOnlyFreePortsOfTheRange(t *testing.T) {
	var none net.ListenConfig
	any, err := Range{}.Listen(t.Context(), none, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer any.Close()
	_, text, _ := net.SplitHostPort(any.Addr().String())
	port, err := strconv.Atoi(text)
	if err != nil || port == 0 {
		t.Fatalf("got port %q", text)
	}
	var full *FullError
	if _, err := (Range{port, port}).Listen(t.Context(), none, "127.0.0.1"); !errors.As(err, &full) ||
		!errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("got %v, want a FullError", err)
	}
	// This machine lacks the address (RFC 5737), so the error must not be a FullError.
	if _, err := (Range{port, port + 1}).Listen(t.Context(), none, "192.0.2.1"); err == nil || errors.As(err, &full) {
		t.Errorf("got %v, want the error of the address", err)
	}
}
