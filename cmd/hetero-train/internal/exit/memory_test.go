package exit

import (
	"context"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// A smaller batch helps only if the model itself fits.
func TestAdviceAboutMemorySuitsTheCause(t *testing.T) {
	account := memory.Account{Unified: true, Limit: memory.Limit{Bytes: 10, Source: "x"},
		Device: []memory.Part{{Name: "weights", Bytes: 20}}}
	for _, model := range []bool{false, true} {
		err := Classify(context.Background(),
			&replica.MemoryError{Samples: 4, Account: &account, Model: model, Err: device.ErrOutOfMemory})
		if advised := strings.Contains(err.Error(), "lower data.batch_size"); Code(err) != Device || advised == model {
			t.Errorf("model alone %v: got exit code %d and %q", model, Code(err), err)
		}
	}
}
