package exit

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// Advice to reduce the batch is only useful if the model itself fits.
func TestAdviceAboutMemorySuitsTheCause(t *testing.T) {
	account := memory.Account{Unified: true, Limit: memory.Limit{Bytes: 10, Source: "x"},
		Device: []memory.Part{{Name: "weights", Bytes: 20}}}
	for _, c := range []struct {
		model  bool
		fit    int
		advice bool
	}{{false, 2, true}, {false, 0, false}, {true, 0, false}} {
		err := Classify(context.Background(), &replica.MemoryError{Samples: 4, Fit: c.fit, Account: &account,
			Model: c.model, Err: device.ErrOutOfMemory})
		advised := strings.Contains(err.Error(), "lower data.batch_size")
		if Code(err) != Device || advised != c.advice {
			t.Errorf("%+v: got exit code %d and %q", c, Code(err), err)
		}
	}
}

// If all ranks together cannot hold a batch, the error must name the lack of memory. The policy only reports that no
// shares exist.
func TestInfeasibleSharesAreALackOfMemory(t *testing.T) {
	cause := errors.New("no feasible split")
	err := Classify(context.Background(), &replica.MemoryError{Samples: 4, Together: true, Err: cause})
	if Code(err) != Device || !errors.Is(err, cause) || !errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("for lack of memory: got exit code %d of %v", Code(err), err)
	}
}
