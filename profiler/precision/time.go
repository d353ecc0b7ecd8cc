package precision

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn"
	"github.com/hetero-train/hetero-train/engine/optim"
	"github.com/hetero-train/hetero-train/engine/task/images"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

const (
	// Margin is the fraction by which a format must be faster than the first one to be chosen. With a larger value,
	// the first format is kept even if another one is clearly faster. With a smaller value, noise decides between
	// equally fast formats.
	Margin = 0.1

	// number of samples in a step. It is large enough for the kernels that large batches use, and small enough for a
	// step of some milliseconds.
	samples = 8
	size    = 32 // height and width of an image in pixels
	classes = 10

	rounds = 8                      // number of steps in each format; the fastest one counts
	limit  = 300 * time.Millisecond // time limit of all rounds; slow devices run fewer rounds, but at least four
)

// Time trains a small network on synthetic images. It returns the time of the fastest step in each format, in
// seconds. The formats take turns step by step, so that another program on the machine slows down all of them. The
// device must compute values.
func Time(ctx context.Context, dev device.Device, types []tensor.DType) (seconds []float64, err error) {
	if dev.Info().Modelled {
		return nil,
			fmt.Errorf(
				"measure the speed of number formats: device %s is simulated and computes no values; use a real device",
				dev.Info().Name)
	}
	runtime.LockOSThread() // the threads of a device belong to the OS thread that calls it
	defer runtime.UnlockOSThread()
	trials := make([]trial, len(types))
	defer func() {
		for _, t := range trials {
			err = errors.Join(err, t.close())
		}
	}()
	for i, dt := range types {
		if err := trials[i].open(dev, dt); err != nil {
			return nil, fmt.Errorf("measure the speed of number formats: %v: %w", dt, err)
		}
	}
	seconds = make([]float64, len(types))
	for i := range seconds {
		seconds[i] = math.Inf(1)
	}
	began := time.Now()
	for round := 0; round <= rounds && (round <= 4 || time.Since(began) < limit); round++ {
		if round == 1 {
			began = time.Now() // the time starts after the first round, which includes page faults
		}
		for i := range trials {
			took, err := trials[i].step(ctx)
			if err != nil {
				return nil, fmt.Errorf("measure the speed of number formats: %v: %w", types[i], err)
			}
			if round > 0 {
				seconds[i] = min(seconds[i], took)
			}
		}
	}
	return seconds, nil
}

// Fastest returns the index of the chosen format. times[rank] contains the step time of each format in seconds, for one
// or more ranks with equal devices.
func Fastest(times [][]float64) int {
	best, least := 0, 0.0
	for i := range times[0] {
		ratio := 0.0 // mean logarithm of the time relative to the first format
		for _, seconds := range times {
			ratio += math.Log(seconds[i]/seconds[0]) / float64(len(times))
		}
		if i > 0 && ratio < math.Log(1-Margin) && ratio < least {
			best, least = i, ratio
		}
	}
	return best
}

// trial is the network in one format.
type trial struct {
	replica *replica.Replica
	loader  *data.Loader
}

func (t *trial) open(dev device.Device, dt tensor.DType) error {
	set, err := data.Synthetic(data.SyntheticOptions{Seed: 1, Train: 2 * samples, Eval: 1, Classes: classes,
		Size: size})
	if err != nil {
		return err
	}
	norm := set.Normalization
	if t.replica, err = replica.New(dev,
		replica.Options{Task: images.Classify{Model: network, Classes: classes, Size: size, Mean: norm.Mean,
			Std: norm.Std}, Compute: dt,
			BatchSize: samples, Accumulation: 1, Seed: 1, Optimizer: optim.Options{Name: "sgd"}}); err != nil {
		return err
	}
	t.loader, err = data.NewLoader(
		data.Options{
			Samples: data.Images{
				Dataset: set.Cached(0).Train, Transform: data.Transform{Crop: data.PadCrop, Size: size}}, Seed: 1,
			BatchSize: samples, Accumulation: 1, Workers: 1})
	return err
}

// step trains one step and returns its time in seconds, without the wait for data.
func (t *trial) step(ctx context.Context) (float64, error) {
	r, err := t.replica.Step(ctx, t.loader, replica.StepOptions{Rate: 0.01})
	return (r.Times.Total() - r.Times.Data).Seconds(), err
}

func (t *trial) close() error {
	var errs []error
	if t.loader != nil {
		errs = append(errs, t.loader.Close())
	}
	if t.replica != nil {
		errs = append(errs, t.replica.Close())
	}
	return errors.Join(errs...)
}

// network has the layers that dominate the step time of a ResNet: 3x3 and 1x1 convolutions with few and with many
// channels, and normalisation.
//
// Legend: N samples.
func network(net *nn.Net, x *graph.Value, classes int) *graph.Value {
	// (N, 64, 32, 32)
	x = net.BatchNorm("bn0", net.Conv2D("conv0", x, nn.Conv{Out: 64, Kernel: 3, Padding: 1}), nn.Norm{ReLU: true})
	// (N, 64, 16, 16)
	x = net.MaxPool2D("pool0", x, 2, 2, 0)
	y := net.BatchNorm("bn1", net.Conv2D("conv1", x, nn.Conv{Out: 64, Kernel: 3, Padding: 1}), nn.Norm{ReLU: true})
	x = net.BatchNorm("bn2", net.Conv2D("conv2", y, nn.Conv{Out: 64, Kernel: 3, Padding: 1}),
		nn.Norm{ReLU: true, Residual: x})
	// (N, 256, 16, 16)
	x = net.BatchNorm("bn3", net.Conv2D("conv3", x, nn.Conv{Out: 256, Kernel: 1}), nn.Norm{ReLU: true})
	// (N, 256, 8, 8)
	x = net.BatchNorm("bn4", net.Conv2D("conv4", x, nn.Conv{Out: 256, Kernel: 3, Stride: 2, Padding: 1}),
		nn.Norm{ReLU: true})
	// (N, classes)
	return net.Logits("fc", net.GlobalAvgPool("pool", x), classes)
}
