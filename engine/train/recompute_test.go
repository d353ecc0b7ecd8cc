package train

import (
	"reflect"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// TestRecomputedActivationsChangeNoBit trains with and without recomputation. The models are a transformer with
// dropout, and a network with batch normalisation and running statistics. It also uses two ranks with statistics over
// all samples.
func TestRecomputedActivationsChangeNoBit(t *testing.T) {
	for name, options := range map[string]replica.Options{"transformer": languageOptions(0.2),
		"batch normalisation": testOptions()} {
		for kind, open := range map[string]func(*testing.T) device.Device{"reference": openReference, "cpu": openCPU} {
			t.Run(name+" "+kind, func(t *testing.T) {
				options.Recompute = replica.RecomputeNever
				want := alone(t, options, open)
				options.Recompute = replica.RecomputeAlways
				got := alone(t, options, open)
				sameSteps(t, got, want)
				kept, again := want.replica, got.replica
				if again.Recomputed() < 1 || kept.Recomputed() != 0 {
					t.Errorf("recomputed %d layers, and %d without recomputation", again.Recomputed(),
						kept.Recomputed())
				}
				if more, less := kept.PredictedBytes(), again.PredictedBytes(); name == "transformer" && less >= more {
					// Recomputation must save memory of activations.
					t.Errorf("got %d bytes with recomputation, %d without", less, more)
				}
				if again.FLOPs() != kept.FLOPs() {
					t.Errorf("nominal operations: got %d, want %d", again.FLOPs(), kept.FLOPs())
				}
			})
		}
	}
	t.Run("two ranks", func(t *testing.T) {
		crew := crew{open: openReference, options: testOptions(), shares: []int{4, 2}, sync: true, cap: 200,
			dir: t.TempDir()}
		crew.options.Recompute = replica.RecomputeNever
		want := crew.start(t)
		crew.options.Recompute, crew.dir = replica.RecomputeAlways, t.TempDir()
		got := crew.start(t)
		for rank := range want {
			sameSteps(t, got[rank], want[rank])
		}
	})
}

// sameSteps requires bit-equal losses, norms and evaluations.
func sameSteps(t *testing.T, got, want session) {
	t.Helper()
	if got.err != nil || want.err != nil {
		t.Fatal(got.err, want.err)
	}
	if len(want.losses) == 0 || !slices.Equal(got.losses, want.losses) || !slices.Equal(got.norms, want.norms) ||
		!reflect.DeepEqual(got.evals, want.evals) {
		t.Errorf("losses %v, norms %v, evaluations %v, want %v, %v, %v", got.losses, got.norms, got.evals, want.losses,
			want.norms, want.evals)
	}
}
