package train

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// averagedOptions returns options with averages of the weights. The averages are updated every interval steps.
func averagedOptions(interval int) replica.Options {
	o := testOptions()
	o.Average = optim.AverageOptions{Decay: 0.9, Warmup: true, Interval: interval}
	return o
}

func TestTheAveragedWeightsAreEvaluatedAndTheOthersTrained(t *testing.T) {
	run := func(o replica.Options, averaged bool) session {
		s := start(context.Background(), t, openReference(t), t.TempDir(), o, &recorder{}, func(opts *Options) {
			opts.EvalAverage = averaged
		})
		if s.err != nil {
			t.Fatal(s.err)
		}
		return s
	}
	plain, both, average := run(testOptions(), true), run(averagedOptions(1), false), run(averagedOptions(1), true)
	if !slices.Equal(plain.losses, average.losses) || !slices.Equal(plain.losses, both.losses) {
		t.Errorf("losses of training: got %v and %v, without averages %v", average.losses, both.losses, plain.losses)
	}
	for i, e := range plain.evals {
		if !reflect.DeepEqual(both.evals[i], e) || e.Averaged {
			t.Errorf("evaluation of the trained weights: got %+v, want %+v", both.evals[i], e)
		}
		if a := average.evals[i]; !a.Averaged || a.Loss == e.Loss {
			t.Errorf("evaluation of averaged weights: got %+v, that of the trained ones is %+v", a, e)
		}
	}
}

// TestAveragesAreNeverSavedAsWeights interrupts an evaluation of averaged weights. The run must then save the trained
// weights. If the trained weights cannot be restored, the run must save nothing.
func TestAveragesAreNeverSavedAsWeights(t *testing.T) {
	for _, lost := range []bool{false, true} {
		ctx, cancel := context.WithCancel(context.Background())
		s := start(ctx, t, openReference(t), t.TempDir(), averagedOptions(1), &recorder{}, func(o *Options) {
			o.Observer.(*recorder).after = func(step int64) {
				if step == 4 { // an epoch and its evaluation follow after step 4
					if lost {
						averages, exchanges := o.Replica.Averages().Values(), 0
						faultsOf(t, o.Replica).copied = func(_, src device.Region) (done bool, err error) {
							if src == averages {
								if exchanges++; exchanges == 2 {
									err = errors.New("the device is lost")
								}
							}
							return false, err
						}
					}
					cancel()
				}
			}
		})
		cancel()
		switch {
		case !lost && (s.err != nil || !s.result.Interrupted || s.saved != 1):
			t.Errorf("interrupted: got %v, %+v, %d checkpoints, want a saved run", s.err, s.result, s.saved)
		case lost && (s.err == nil || errors.Is(s.err, context.Canceled) ||
			!strings.Contains(s.err.Error(), "the device is lost") || s.saved != 0):
			t.Errorf("weights that did not come back: got %v, %d checkpoints, want that error and none", s.err, s.saved)
		}
	}
}

func TestCheckpointsHoldAveragesUnderTheirNames(t *testing.T) {
	o, dir := averagedOptions(1), t.TempDir()
	s := start(context.Background(), t, openReference(t), dir, o, &recorder{}, nil)
	if s.err != nil {
		t.Fatal(s.err)
	}
	c := newest(t, dir)
	model, optimizer := s.replica.Tensors()
	if !c.Averaged() || len(c.Optimizer.Tensors()) != len(optimizer) {
		t.Fatalf("averaged %v, %d tensors, want %d", c.Averaged(), len(c.Optimizer.Tensors()), len(optimizer))
	}
	now := contents(t, model)
	if err := s.replica.ExchangeAverages(); err != nil {
		t.Fatal(err)
	}
	for name, want := range contents(t, model) {
		got := make([]byte, len(want))
		if err := c.ReadAverage(name, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) || bytes.Equal(got, now[name]) {
			t.Errorf("%s: the checkpoint's average is not the replica's, or is its value", name)
		}
	}
	for _, tensor := range []string{"fc.weight.ema", "block0.bn1.running_mean.ema"} {
		if _, ok := c.Optimizer.Info(tensor); !ok {
			t.Errorf("no %s in optimizer.safetensors", tensor)
		}
	}
}

// A resumed run may begin or end averaging.
func TestAveragesComeAndGoBetweenRuns(t *testing.T) {
	dir := t.TempDir()
	until := func(steps int64) func(*Options) { return func(o *Options) { o.Steps, o.EvalInterval = steps, 0 } }
	for i, o := range []replica.Options{testOptions(), averagedOptions(1), testOptions()} {
		s := start(context.Background(), t, openReference(t), dir, o, &recorder{}, until(int64(i+1)))
		if s.err != nil || s.result.Steps != int64(i+1) {
			t.Fatalf("run %d: %v after step %d", i, s.err, s.result.Steps)
		}
	}
}

func TestARankWithOtherAveragesIsFound(t *testing.T) {
	ranks := crew{open: openReference, options: averagedOptions(1), shares: []int{3, 3}, sync: true, dir: t.TempDir(),
		change: func(rank int, _ context.CancelFunc, opts *Options, rec *recorder) {
			rec.after = func(step int64) {
				if rank == 1 && step == 2 {
					opts.Replica.Averages().Values().Host()[0] ^= 1
				}
			}
		}}.start(t)
	for rank, s := range ranks {
		if s.err == nil || !strings.Contains(s.err.Error(), "replicas differ") {
			t.Errorf("rank %d: got %v, want replicas that differ", rank, s.err)
		}
	}
}

func TestAveragesAreInThePredictedBytes(t *testing.T) {
	dev := openReference(t)
	r, err := replica.New(dev, averagedOptions(3))
	if err != nil {
		t.Fatal(err)
	}
	if allocated, _ := dev.Memory(); r.PredictedBytes() != allocated ||
		r.Averages().Bytes() < 2*r.Averages().States().Bytes+r.Averages().Values().Bytes {
		t.Errorf("predicted %d bytes, the device gave out %d", r.PredictedBytes(), allocated)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := dev.Memory(); left != 0 {
		t.Errorf("%d bytes left after Close", left)
	}
}
