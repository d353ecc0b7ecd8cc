package train

import (
	"context"
	"math"
	"strconv"
	"testing"

	"github.com/hetero-train/hetero-train/engine/collective"
	"github.com/hetero-train/hetero-train/engine/collective/staged"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/gradsync"
	"github.com/hetero-train/hetero-train/engine/models/resnet"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// openBehind opens the CUDA device compiled for the host, because its streams are asynchronous.
func openBehind(t *testing.T) device.Device { return gpus(t, 1)[0] }

// gpus opens n CUDA devices compiled for the host.
func gpus(t *testing.T, n int) (devs []device.Device) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // the cache stores the fastest algorithms
	t.Setenv("HETERO_SHIM_GPUS", strconv.Itoa(n))
	lib := nativetest.Load(t, "cpu", nativetest.CUDAShim)
	for i := range n {
		dev, err := lib.Open(i, device.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if !dev.Info().Behind {
			t.Fatal("its streams do not run behind the caller")
		}
		t.Cleanup(func() { dev.Close() })
		devs = append(devs, dev)
	}
	return devs
}

// TestResNetOnTheGPUsKernels compares two steps of a residual network with the CPU device. The devices sum convolutions
// in different orders. Batch normalisation over few values amplifies the difference, so losses agree only to 1e-4. A
// single wrong gradient would change them by 1e-2 or more.
func TestResNetOnTheGPUsKernels(t *testing.T) {
	needtest.NotShort(t, "trains a large network")
	o := testOptions()
	blocks := [4]int{1, 1, 0, 0}
	if needtest.Large.On() { // each further stage has four times as many weights
		blocks = [4]int{1, 1, 1, 1}
	}
	use(&o, resnet.Build(resnet.Depth{Blocks: blocks}, resnet.Options{CIFARStem: true}))
	o.BatchSize = 4
	var want []replica.StepResult
	for _, dev := range []device.Device{openCPU(t), openBehind(t)} {
		r, err := replica.New(dev, o)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		loader := testLoader(t, o, false)
		for step := range 2 {
			out, err := r.Step(context.Background(), loader, replica.StepOptions{Rate: 0.01})
			if err != nil {
				t.Fatal(err)
			}
			if len(want) <= step {
				want = append(want, out)
				continue
			}
			if w := want[step]; math.Abs(out.Loss-w.Loss) > 1e-4*w.Loss ||
				math.Abs(out.GradNorm-w.GradNorm) > 1e-3*w.GradNorm {
				t.Errorf("step %d: got loss %.7f and gradient norm %.7f, want %.7f and %.7f", step, out.Loss,
					out.GradNorm, w.Loss, w.GradNorm)
			}
			t.Logf("step %d: loss %.7f, %.7f; gradient norm %.7f, %.7f", step, out.Loss, want[step].Loss, out.GradNorm,
				want[step].GradNorm)
		}
	}
}

// lasting is a device whose Close does nothing.
type lasting struct{ device.Device }

func (lasting) Close() error { return nil }

// In TestRanksThatRunBehindTrainAsOneRank, the host enqueues a micro-batch while the device still executes the
// exchanges of the previous one.
func TestRanksThatRunBehindTrainAsOneRank(t *testing.T) {
	o := testOptions()
	o.Accumulation = 2
	one := alone(t, o, openBehind)
	c := onGPUs(t, crew{options: o, shares: []int{2, 1}, sync: true, cap: 200, dir: t.TempDir()})
	ranks := c.start(t)
	follows(t, one, ranks)
	for rank, s := range ranks {
		for _, step := range s.steps {
			if step.Times.Exchanges <= 0 {
				t.Errorf("rank %d, step %d: its exchanges took %v", rank, step.Step, step.Times.Exchanges)
			}
		}
	}
}

// onGPUs lets each rank of a crew train on a GPU. The communicators transfer data through page-locked memory. While a
// stream is blocked on an exchange, the shim notes every load of code and every release of memory. There must be no
// notes.
func onGPUs(t *testing.T, c crew) crew {
	t.Helper()
	devs := gpus(t, len(c.shares))
	through := func(inner collective.Communicator, dev device.Device) collective.Communicator {
		s, err := staged.New(inner, dev)
		if err != nil {
			t.Error(err)
			return inner
		}
		t.Cleanup(func() { s.Close() }) // the communicator inside s is already closed
		return s
	}
	c.openRank = func(rank int) device.Device { return lasting{devs[rank]} }
	c.peers = func(rank int, p *replica.Peers) {
		p.Group = &gradsync.Group{Grads: through(p.Group.Grads, devs[rank]), Stats: through(p.Group.Stats, devs[rank])}
	}
	for _, dev := range devs {
		t.Cleanup(func() {
			if notes := dev.(device.Noting).Notes(); notes != "" {
				t.Errorf("device %s notes: %s", dev.Info().Name, notes)
			}
		})
	}
	return c
}

// In TestSharesChangeOnGPUs, ranks compile plans while streams are blocked on the exchanges of batch normalisation.
// When the shares change, the next batch is already staged for the old shares.
func TestSharesChangeOnGPUs(t *testing.T) {
	o := testOptions()
	one := alone(t, o, openBehind)
	o.CachedPlans = 1
	c := onGPUs(t, crew{options: o, shares: []int{4, 2}, sync: true, cap: 200, dir: t.TempDir(),
		change: func(rank int, _ context.CancelFunc, o *Options, rec *recorder) {
			to := []int{1, 5}
			o.Splitter = once{1, to}
			rec.after = func(step int64) {
				if step == 6 {
					cachePlans(o.Replica, to[rank])
				}
			}
		}})
	ranks := c.start(t)
	follows(t, one, ranks)
	for rank, s := range ranks {
		if at, shares := changes(t, s); len(at) != 1 {
			t.Errorf("rank %d: changed at steps %v, want at one; shares %v", rank, at, shares)
		}
	}
}
