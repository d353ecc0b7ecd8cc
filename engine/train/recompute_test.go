package train

import (
	"reflect"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
)

// TestRecomputedActivationsChangeNoBit trains with and without recomputation. It uses a transformer with dropout, a
// network with batch normalisation and running statistics, and two ranks with statistics over all samples.
func TestRecomputedActivationsChangeNoBit(t *testing.T) {
	for name, options := range map[string]ReplicaOptions{"transformer": languageOptions(0.2), "batch normalisation": testOptions()} {
		for kind, open := range map[string]func(*testing.T) device.Device{"reference": openReference, "cpu": openCPU} {
			t.Run(name+" "+kind, func(t *testing.T) {
				options.Recompute = RecomputeNever
				want := alone(t, options, open)
				options.Recompute = RecomputeAlways
				got := alone(t, options, open)
				sameSteps(t, got, want)
				kept, again := want.replica.now, got.replica.now
				if again.recomputed < 1 || kept.recomputed != 0 {
					t.Errorf("recomputed %d layers, and %d without recomputation", again.recomputed, kept.recomputed)
				}
				if name == "transformer" && again.arenaBytes() >= kept.arenaBytes() {
					t.Errorf("got %d bytes for activations with recomputation, %d without", again.arenaBytes(), kept.arenaBytes())
				}
				if again.flops != kept.flops {
					t.Errorf("nominal operations: got %d, want %d", again.flops, kept.flops)
				}
			})
		}
	}
	t.Run("two ranks", func(t *testing.T) {
		crew := crew{open: openReference, options: testOptions(), shares: []int{4, 2}, sync: true, cap: 200, dir: t.TempDir()}
		crew.options.Recompute = RecomputeNever
		want := crew.start(t)
		crew.options.Recompute, crew.dir = RecomputeAlways, t.TempDir()
		got := crew.start(t)
		for rank := range want {
			sameSteps(t, got[rank], want[rank])
		}
	})
}

// sameSteps compares losses, norms and evaluations bit by bit.
func sameSteps(t *testing.T, got, want session) {
	t.Helper()
	if got.err != nil || want.err != nil {
		t.Fatal(got.err, want.err)
	}
	if len(want.losses) == 0 || !slices.Equal(got.losses, want.losses) || !slices.Equal(got.norms, want.norms) || !reflect.DeepEqual(got.evals, want.evals) {
		t.Errorf("losses %v, norms %v, evaluations %v, want %v, %v, %v", got.losses, got.norms, got.evals, want.losses, want.norms, want.evals)
	}
}

// TestShortMemoryRecomputesAsFewLayersAsFit limits the memory to values between those with no and with all layers
// recomputed.
func TestShortMemoryRecomputesAsFewLayersAsFit(t *testing.T) {
	const samples = 6
	r := alone(t, languageOptions(0.2), openReference).replica
	bytes := func(layers int) int64 {
		p, err := r.plans.compileWith(samples, layers)
		if err != nil {
			t.Fatal(err)
		}
		defer p.free()
		if want := min(layers, 3); p.recomputed != want {
			t.Errorf("recomputed %d layers of %d, want %d: the last layer is never recomputed", p.recomputed, layers, want)
		}
		return p.arenaBytes()
	}
	var sizes []int64 // memory in bytes, by number of recomputed layers
	for layers := range 5 {
		sizes = append(sizes, bytes(layers))
	}
	for _, c := range []struct {
		free int64
		want int
	}{{0, 0}, {sizes[0], 0}, {sizes[0] - 1, 2}, {sizes[2] - 1, 3}, {sizes[3], 3}, {1, 3}} {
		r.plans.free = c.free
		p, err := r.plans.compile(samples)
		if err != nil {
			t.Fatal(err)
		}
		if p.recomputed != c.want {
			t.Errorf("%d bytes free: recomputed %d layers, want %d; bytes by number of layers: %d", c.free, p.recomputed, c.want, sizes)
		}
		if err := p.free(); err != nil {
			t.Error(err)
		}
	}
}
