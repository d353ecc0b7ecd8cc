package nccl_test

import (
	"errors"
	"testing"

	"github.com/hetero-train/hetero-train/nccl"
)

func TestUnavailableWithATypedReason(t *testing.T) {
	err := nccl.Available()
	var reason nccl.UnavailableError
	if !errors.As(err, &reason) || reason != nccl.ErrNotBuilt {
		t.Fatalf("got %v, want the reason ErrNotBuilt", err)
	}
	if got, want := err.Error(), "nccl is unavailable: this build contains no NCCL communicator"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
