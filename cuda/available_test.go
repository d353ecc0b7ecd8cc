package cuda_test

import (
	"errors"
	"testing"

	"github.com/hetero-train/hetero-train/cuda"
)

func TestUnavailableWithATypedReason(t *testing.T) {
	err := cuda.Available()
	var reason cuda.UnavailableError
	if !errors.As(err, &reason) || reason != cuda.ErrNotBuilt {
		t.Fatalf("got %v, want the reason ErrNotBuilt", err)
	}
	if got, want := err.Error(), "cuda is unavailable: this build contains no CUDA device"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
