package process

import (
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
)

// A process can use only one MIG slice, so the supervisor must assign a different slice to each rank.
func TestRanksGetASliceEach(t *testing.T) {
	env := session.Environment{Environ: []string{"CUDA_VISIBLE_DEVICES=MIG-1,MIG-2"}}
	for local, want := range []string{"MIG-1", "MIG-2"} {
		if got := rankEnvironment(env, local); got[len(got)-1] != "CUDA_VISIBLE_DEVICES="+want {
			t.Errorf("rank %d: got %q, want %s", local, got, want)
		}
	}
	env = session.Environment{Environ: []string{"CUDA_VISIBLE_DEVICES=0,1"}}
	if got := rankEnvironment(env, 1); len(got) != 1 {
		t.Errorf("two GPUs: got %q, want what the supervisor has", got)
	}
}
