package run

import (
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/engine/memory"
)

// Decoders may use more than planned as long as the rank stays within its limit.
func TestDecodersBeyondTheLimit(t *testing.T) {
	account := memory.Account{Host: []memory.Part{{Name: "program", Bytes: 50}, {Name: assembly.Decoders, Bytes: 8}},
		Optional: []memory.Part{{Name: assembly.DataCache, Bytes: 20}}, Limit: memory.Limit{Bytes: 100}}
	for used, want := range map[int64]bool{0: false, 8: false, 30: false, 31: true} {
		if got := beyond(account, used); got != want {
			t.Errorf("%d bytes: got %v, want %v", used, got, want)
		}
	}
}
