package replica

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
)

// openBehind opens the CUDA device compiled for the host, because its streams are asynchronous.
func openBehind(t *testing.T) device.Device {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // the cache stores the fastest algorithms
	t.Setenv("HETERO_SHIM_GPUS", strconv.Itoa(1))
	dev, err := nativetest.Load(t, "cpu", nativetest.CUDAShim).Open(0, device.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !dev.Info().Behind {
		t.Fatal("its streams do not run behind the caller")
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// inStep is a stream. Its calls return only after their work is done.
type inStep struct{ device.Stream }

func (s inStep) Run(p device.Program) error { return errors.Join(s.Stream.Run(p), s.Sync()) }
func (s inStep) Copy(dst, src device.Region) error {
	return errors.Join(s.Stream.Copy(dst, src), s.Sync())
}

// TestBatchesStagedAheadAreTheSame compares two kinds of batches: those staged while the device computes, and those
// loaded when the step needs them.
func TestBatchesStagedAheadAreTheSame(t *testing.T) {
	for _, accumulation := range []int{1, 2} {
		o := testOptions()
		if o.Accumulation = accumulation; accumulation == 1 {
			mix(&o)
		}
		var want []StepResult
		for _, staged := range []bool{false, true} {
			r, err := New(openBehind(t), o)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if !staged {
				feed, stream := r.feed, r.stream
				r.feed, r.stream = nil, inStep{stream}
				defer func() { r.feed, r.stream = feed, stream }()
			}
			if allocated, _ := r.dev.Memory(); allocated != r.PredictedBytes() {
				t.Errorf("the device gave out %d bytes, predicted were %d", allocated, r.PredictedBytes())
			}
			for step := range 3 {
				if step == 2 {
					if err := r.Discard(); err != nil {
						t.Fatal(err)
					}
					if staged && r.feed.staged {
						t.Error("the batch that was read ahead was not forgotten")
					}
				}
				loader := testLoader(t, o) // the loader begins again, so no staged batch may be used
				for range 2 {
					out, err := r.Step(context.Background(), loader, StepOptions{Rate: 0.05})
					if err != nil {
						t.Fatal(err)
					}
					if r.feed != nil && !r.feed.staged {
						t.Error("the next batch has not been read")
					}
					if out.Times.Data <= 0 || out.Times.Forward <= 0 || out.Times.Backward <= 0 ||
						out.Times.Optimizer <= 0 || out.Times.Total() > patience {
						t.Errorf("step %d took %+v", step, out.Times)
					}
					out.Times = StepTimes{}
					if !staged {
						want = append(want, out)
					} else if next := want[0]; next.Sums != out.Sums || next.GradNorm != out.GradNorm {
						t.Errorf("%d micro-batches, step %d: got %+v, want %+v", accumulation, step, out, next)
					} else {
						want = want[1:]
					}
				}
			}
		}
	}
}
