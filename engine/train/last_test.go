package train

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// lastOptions returns o with another batch size and number of micro-batches. The last step of each epoch of the 26 test
// samples is smaller.
func lastOptions(o replica.Options, batch, micro int) replica.Options {
	o.BatchSize, o.Accumulation, o.LastBatch = batch, micro, 26%batch
	return o
}

// tensors returns the values of all parameters and statistics, by name.
func tensors(t *testing.T, r *replica.Replica) map[string][]float32 {
	t.Helper()
	all := map[string][]float32{}
	model, _ := r.Tensors()
	for _, tensor := range model {
		var b bytes.Buffer
		if err := tensor.Stream(&b); err != nil {
			t.Fatal(err)
		}
		for raw := b.Bytes(); len(raw) > 0; raw = raw[4:] {
			all[tensor.Name] = append(all[tensor.Name], math.Float32frombits(binary.LittleEndian.Uint32(raw)))
		}
	}
	return all
}

// TestTheLastStepIsThatOfABatchOfItsSize compares two steps over the same samples. One is the last step of an epoch,
// and the other is a step of a run with this batch size. In PyTorch, DataLoader(drop_last=False) and a loss that is a
// mean have the same effect.
func TestTheLastStepIsThatOfABatchOfItsSize(t *testing.T) {
	for name, c := range map[string]struct {
		options replica.Options
		open    func(*testing.T) device.Device
	}{
		"reference":                       {lastOptions(testOptions(), 8, 1), openReference},
		"cpu":                             {lastOptions(testOptions(), 8, 1), openCPU},
		"asynchronous streams":            {lastOptions(testOptions(), 8, 1), openBehind},
		"one of four micro-batches":       {lastOptions(testOptions(), 8, 4), openReference},
		"one of four, asynchronous":       {lastOptions(testOptions(), 8, 4), openBehind},
		"a part of a micro-batch":         {lastOptions(testOptions(), 8, 2), openCPU},
		"a part, asynchronous":            {lastOptions(testOptions(), 8, 2), openBehind},
		"a single sample":                 {lastOptions(testOptions(), 5, 1), openCPU},
		"texts":                           {lastOptions(languageOptions(0.2), 8, 1), openReference},
		"texts, a part of a micro-batch":  {lastOptions(languageOptions(0.2), 8, 2), openCPU},
		"texts, asynchronous":             {lastOptions(languageOptions(0.2), 8, 1), openBehind},
		"pairs of texts, with two losses": {lastOptions(pairOptions(0), 8, 1), openReference},
	} {
		t.Run(name, func(t *testing.T) {
			step := func(o replica.Options, first int) (replica.StepResult, map[string][]float32) {
				r, err := replica.New(c.open(t), o)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				loader := testLoader(t, o, false)
				if err := loader.JumpTo(int64(first)); err != nil {
					t.Fatal(err)
				}
				out, err := r.Step(context.Background(), loader, replica.StepOptions{Rate: 0.1})
				if err != nil {
					t.Fatal(err)
				}
				return out, tensors(t, r)
			}
			o, last := c.options, c.options.LastBatch
			got, values := step(o, 26/o.BatchSize*o.Accumulation)
			twin := o
			twin.BatchSize, twin.Accumulation, twin.LastBatch = last, 1, 0
			want, exact := step(twin, 26/last-1)
			if got.Samples != last || got.Count != want.Count {
				t.Errorf("got %d samples and %d targets, want %d and %d", got.Samples, got.Count, last, want.Count)
			}
			if a, b := got.Score().Loss, want.Score().Loss; !(math.Abs(a-b) <= 1e-6*b) {
				t.Errorf("loss %.9g, want %.9g", a, b)
			}
			if a, b := got.GradNorm, want.GradNorm; !(math.Abs(a-b) <= 1e-5*b) {
				t.Errorf("gradient norm %.9g, want %.9g", a, b)
			}
			for name, v := range values {
				for i := range v {
					// If other samples affected the gradient, the difference would exceed 1e-3.
					if d := math.Abs(float64(v[i] - exact[name][i])); !(d <= 2e-6*max(1, math.Abs(float64(v[i])))) {
						t.Fatalf("%s[%d] is %.9g after the step, want %.9g", name, i, v[i], exact[name][i])
					}
				}
			}
		})
	}
}

func TestRanksWithASmallerLastStepTrainAsOneRank(t *testing.T) {
	mixed := testOptions()
	mix(&mixed)
	ghost := testOptions()
	ghost.GhostGroup = 2
	labels := testOptions()
	several(&labels)
	padded := labels
	use(&padded, noNorm)
	mixedPadded := testOptions()
	mix(&mixedPadded)
	use(&mixedPadded, noNorm)
	for _, c := range []struct {
		name string
		crew crew
	}{
		{"two ranks, one without samples in the last step",
			crew{options: lastOptions(testOptions(), 8, 1), shares: []int{5, 3}, sync: true, cap: 200}},
		{"samples on all three ranks",
			crew{options: lastOptions(testOptions(), 9, 1), shares: []int{1, 5, 3}, sync: true}},
		{"the first rank never has samples",
			crew{options: lastOptions(testOptions(), 8, 1), shares: []int{0, 1, 7}, sync: true}},
		{"whole micro-batches and a smaller one",
			crew{options: lastOptions(testOptions(), 9, 3), shares: []int{1, 2}, sync: true,
				cap: 200}},
		{"fewer samples than micro-batches",
			crew{options: lastOptions(testOptions(), 8, 4), shares: []int{1, 1}, sync: true,
				cap: 200}},
		{"a part of one micro-batch",
			crew{options: lastOptions(testOptions(), 8, 2), shares: []int{1, 3}, sync: true,
				cap: 200, sequential: true}},
		{"a single sample",
			crew{options: lastOptions(testOptions(), 5, 1), shares: []int{2, 3}, sync: true}},
		{"groups", crew{options: lastOptions(ghost, 8, 1), shares: []int{2, 6}}},
		{"groups, the last one smaller",
			crew{options: lastOptions(ghost, 7, 1), shares: []int{4, 3}}},
		{"mixed samples", crew{options: lastOptions(mixed, 8, 1), shares: []int{3, 5}, sync: true}},
		{"texts", crew{options: lastOptions(languageOptions(0.2), 8, 1), shares: []int{1, 7}}},
		{"texts in micro-batches",
			crew{options: lastOptions(languageOptions(0), 9, 3), shares: []int{2, 1}, cap: 200}},
		{"texts, fewer than micro-batches",
			crew{options: lastOptions(languageOptions(0), 8, 4), shares: []int{1, 1}, cap: 200}},
		{"pairs of texts", crew{options: lastOptions(pairOptions(0), 8, 1), shares: []int{1, 7}}},
		{"several labels per image",
			crew{options: lastOptions(labels, 8, 1), shares: []int{5, 3}, sync: true}},
		{"several labels per image, padded",
			crew{options: lastOptions(padded, 8, 1), shares: []int{1, 7}}},
		{"mixed images, padded",
			crew{options: lastOptions(mixedPadded, 8, 1), shares: []int{1, 7}}},
		{"shares that change at every step",
			crew{options: lastOptions(testOptions(), 8, 1), shares: []int{3, 3, 2}, sync: true,
				splitter: rotating{[][]int{{1, 4, 3}, {8, 0, 0}, {0, 1, 7}, nil, {2, 3, 3}}}}},
	} {
		c.crew.follows(t, c.name, func(t *testing.T, one session, ranks []session) {
			var want []int
			for i := range one.steps {
				want = append(want, one.steps[i].Samples)
			}
			last, per := c.crew.options.LastBatch, (26+c.crew.options.BatchSize-1)/c.crew.options.BatchSize
			for i, n := range want {
				if exact := c.crew.options.BatchSize; (i+1)%per == 0 && n != last || (i+1)%per != 0 && n != exact {
					t.Errorf("step %d: %d samples, want %d, and %d in each step %d", i+1, n, exact, last, per)
				}
			}
			for rank, s := range ranks {
				if int(s.result.SamplesSeen) != sum(want) {
					t.Errorf("rank %d: %d samples, want %d", rank, s.result.SamplesSeen, sum(want))
				}
			}
		})
	}
}

// noNorm is a network without batch normalisation. Its passes may contain padding.
func noNorm(net *nn.Net, x *graph.Value, classes int) *graph.Value {
	x = net.Graph.Unary("relu", graph.ReLU, net.Conv2D("conv1", x, nn.Conv{Out: 4, Kernel: 3, Padding: 1, Bias: true}))
	return net.Logits("fc", net.GlobalAvgPool("pool", x), classes)
}

func sum(values []int) (total int) {
	for _, v := range values {
		total += v
	}
	return total
}
