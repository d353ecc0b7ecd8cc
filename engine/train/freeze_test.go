package train

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// frozenOptions returns options that freeze block0 and train the rest, with a learning rate for each layer.
func frozenOptions() replica.Options {
	o := testOptions()
	o.Freeze = nn.Freeze{Patterns: []string{"block0"}}
	o.Optimizer = optim.Options{Name: "adamw", Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.05, LayerDecay: 0.5}
	return o
}

// contents returns copies of the tensors' values, by name.
func contents(t *testing.T, tensors []checkpoint.Tensor) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, tensor := range tensors {
		var b bytes.Buffer
		if err := tensor.Stream(&b); err != nil {
			t.Fatal(err)
		}
		all[tensor.Name] = b.Bytes()
	}
	return all
}

var frozenNames = []string{"block0.conv1.weight", "block0.bn1.weight", "block0.bn1.bias", "block0.conv2.weight",
	"block0.bn2.weight", "block0.bn2.bias",
	"block0.bn1.running_mean", "block0.bn1.running_var", "block0.bn2.running_mean", "block0.bn2.running_var"}

func TestFrozenLayersStayAsTheyAre(t *testing.T) {
	for name, open := range map[string]func(*testing.T) device.Device{"reference": openReference, "cpu": openCPU} {
		t.Run(name, func(t *testing.T) {
			o, dev := frozenOptions(), open(t)
			r, err := replica.New(dev, o)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			model, optimizer := r.Tensors()
			before := contents(t, model)
			if len(optimizer) != 2*8 { // 6 + 2 parameters have two moments each
				t.Errorf("got %d tensors of optimizer state, want 16", len(optimizer))
			}
			loader := testLoader(t, o, false)
			for range 3 {
				if _, err := r.Step(context.Background(), loader, replica.StepOptions{Rate: 0.01}); err != nil {
					t.Fatal(err)
				}
			}
			for name, now := range contents(t, model) {
				if frozen, same := slices.Contains(frozenNames, name), bytes.Equal(before[name], now); frozen != same {
					t.Errorf("%s: frozen %v, unchanged %v", name, frozen, same)
				}
			}
			if allocated, _ := dev.Memory(); r.PredictedBytes() != allocated {
				t.Errorf("predicted %d bytes, the device gave out %d", r.PredictedBytes(), allocated)
			}
			if r.FrozenCount() != 3*3*3*3+3*3*3*3+4*3 || r.ParamCount() <= r.FrozenCount() {
				t.Errorf("got %d of %d parameters frozen, want 174", r.FrozenCount(), r.ParamCount())
			}
		})
	}
}

// TestRanksKeepFrozenStatistics checks that the ranks do not average frozen statistics. The average of three equal
// numbers can differ from the number, because 1/3 is rounded.
func TestRanksKeepFrozenStatistics(t *testing.T) {
	o := frozenOptions()
	var before, after map[string][]byte
	ranks := crew{open: openReference, options: o, shares: []int{3, 2, 1}, dir: t.TempDir(),
		change: func(rank int, _ context.CancelFunc, opts *Options, rec *recorder) {
			if rank == 0 {
				model, _ := opts.Replica.Tensors()
				for _, s := range opts.Replica.State().Params.States { // these values differ from sums of thirds
					raw := []byte{1, 0xab, 0xaa, 0x3e, 3, 0, 0x80, 0x3f, 7, 0xab, 0xaa, 0x3f, 9, 0x77, 0x12,
						0x3f}[:s.Spec.Size()]
					if err := opts.Replica.State().Write(opts.Replica.State().States, s, raw); err != nil {
						t.Error(err)
					}
				}
				before = contents(t, model)
				rec.over = func() { after = contents(t, model) }
			}
		}}.start(t)
	for rank, s := range ranks {
		if s.err != nil {
			t.Fatalf("rank %d: %v", rank, s.err)
		}
	}
	for _, name := range frozenNames {
		if !bytes.Equal(before[name], after[name]) {
			t.Errorf("%s has changed", name)
		}
	}
	if name := "block1.bn1.running_mean"; bytes.Equal(before[name], after[name]) {
		t.Errorf("%s has not changed", name)
	}
}
