package stored

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/engine/objects"
)

func TestErrorsOfSeveralObjectsNameThem(t *testing.T) {
	failed := func(key string, status int, cause error) error {
		return &objects.Error{Op: "HEAD", Name: objects.Name{Bucket: "data", Key: key}, Status: status, Err: cause}
	}
	reset := func(port int) error {
		return &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: port},
			Err: syscall.ECONNRESET}
	}
	var missing []error
	for k := range 13 {
		missing = append(missing, failed(fmt.Sprintf("shard-%02d.tar", k), 404, errors.New("not found")), nil)
	}
	text := joined(missing).Error()
	for k := range 11 {
		if name := fmt.Sprintf("s3://data/shard-%02d.tar", k); strings.Count(text, name) != 1 {
			t.Errorf("%q: %d times %s", text, strings.Count(text, name), name)
		}
	}
	if !strings.Contains(text, "and 2 more") || strings.Contains(text, "\n") {
		t.Errorf("%q", text)
	}
	if err := joined([]error{failed("a", 0, reset(1000)), failed("b", 0, reset(2000)), failed("c", 0,
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})}); strings.Count(err.Error(), "\n") != 1 ||
		!strings.Contains(err.Error(), "(the same for s3://data/b)") {
		t.Errorf("equal causes must be one error, unequal ones two: %q", err)
	}
	other := errors.New("no credentials")
	if err := joined([]error{other, other}); err.Error() != "no credentials" {
		t.Errorf("%q", err)
	}
	if joined([]error{nil, nil}) != nil {
		t.Error("no errors are an error")
	}
}
