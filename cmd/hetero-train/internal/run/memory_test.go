package run

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/memory"
)

// Optional parts fill the limit in many runs. They are no reason for a warning about images.
func TestDecodersBeyondTheLimit(t *testing.T) {
	account := memory.Account{Host: []memory.Part{{Name: "program", Bytes: 60}},
		Optional: []memory.Part{{Name: "decoded images", Bytes: 40}}, Limit: memory.Limit{Bytes: 100}}
	for used, want := range map[int64]bool{0: false, 40: false, 41: true} {
		if got := beyond(account, used); got != want {
			t.Errorf("%d bytes: got %v, want %v", used, got, want)
		}
	}
	account.Host[0].Bytes = 110 // accepted within the tolerance of a run
	if beyond(account, 0) {
		t.Error("a warning about images without images")
	}
}
