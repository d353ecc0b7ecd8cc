package train

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
)

// Even if its checksum is correct, a state can contain text that is not a state of the loop.
func TestAnUnusableStateIsDamage(t *testing.T) {
	err := Forget(&checkpoint.State{Step: 5, Extra: map[string]json.RawMessage{loopKey: json.RawMessage(`"x"`)}})
	if corrupt := new(checkpoint.CorruptError); !errors.As(err, &corrupt) {
		t.Errorf("got %v, want a CorruptError", err)
	}
}
