package device_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

// processor is a PeakMeasurer with fixed values. It does not support limits without a value.
type processor map[device.Peak]float64

func (p processor) MeasurePeak(what device.Peak, _ time.Duration) (float64, error) {
	if v, ok := p[what]; ok {
		return v, nil
	}
	return 0, device.ErrUnsupported
}

func TestThePeakOfATypeIsTheLargerOfLoopAndProduct(t *testing.T) {
	const loop, product = "loop in registers", "matrix product"
	for _, c := range []struct {
		name      string
		cpu       processor
		f32, bf16 device.Reached // rates; bf16 is 0 if the hardware does not support it
	}{
		{"AVX2: no bf16 instruction", processor{device.PeakF32: 133e9, device.PeakF32Product: 120e9},
			device.Reached{PerSecond: 133e9, By: loop}, device.Reached{}},
		{"AVX-512 without bf16", processor{device.PeakF32: 265e9, device.PeakF32Product: 250e9},
			device.Reached{PerSecond: 265e9, By: loop}, device.Reached{}},
		{"AVX-512 BF16", processor{device.PeakF32: 524e9, device.PeakF32Product: 500e9, device.PeakBF16: 1009e9,
			device.PeakBF16Product: 940e9},
			device.Reached{PerSecond: 524e9, By: loop}, device.Reached{PerSecond: 1009e9, By: loop}},
		{"AMX, by a loop of AVX-512 BF16", processor{device.PeakF32: 265e9, device.PeakF32Product: 250e9,
			device.PeakBF16: 136e9, device.PeakBF16Product: 1900e9},
			device.Reached{PerSecond: 265e9, By: loop}, device.Reached{PerSecond: 1900e9, By: product}},
		{"AMX", processor{device.PeakF32: 265e9, device.PeakF32Product: 250e9, device.PeakBF16: 2100e9,
			device.PeakBF16Product: 1900e9},
			device.Reached{PerSecond: 265e9, By: loop}, device.Reached{PerSecond: 2100e9, By: loop}},
		{"without a library of products", processor{device.PeakF32: 10e9}, device.Reached{PerSecond: 10e9, By: loop},
			device.Reached{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for what, want := range map[device.Peak]device.Reached{device.PeakF32: c.f32, device.PeakBF16: c.bf16} {
				got, err := device.MeasureBest(c.cpu, what, 3, time.Millisecond)
				if err == nil {
					want.Repeats = 3
				}
				if got != want || errors.Is(err, device.ErrUnsupported) != (want.PerSecond == 0) {
					t.Errorf("limit %d: got %v, %v; want %v", what, got, err, want)
				}
			}
		})
	}
	failing := errors.New("lost")
	if _, err := device.MeasureBest(broken{failing}, device.PeakF32, 1, time.Millisecond); !errors.Is(err, failing) {
		t.Errorf("a product that fails: got %v, want its error", err)
	}
}

// broken is a PeakMeasurer that fails to measure matrix products.
type broken struct{ err error }

func (b broken) MeasurePeak(what device.Peak, _ time.Duration) (float64, error) {
	if what == device.PeakF32Product {
		return 0, b.err
	}
	return 1, nil
}

// noisy is a PeakMeasurer on a busy machine. Only one of its measurements is undisturbed.
type noisy struct{ measured int }

func (n *noisy) MeasurePeak(what device.Peak, _ time.Duration) (float64, error) {
	if what != device.PeakF32 {
		return 300e9, nil
	}
	if n.measured++; n.measured == 3 {
		return 1072e9, nil
	}
	return 448e9, nil
}

func TestAPeakIsTheBestOfItsRepeats(t *testing.T) {
	for repeats, want := range map[int]float64{2: 448e9, 4: 1072e9} {
		got, err := device.MeasureBest(new(noisy), device.PeakF32, repeats, time.Millisecond)
		if err != nil || got != (device.Reached{PerSecond: want, By: "loop in registers", Repeats: repeats}) {
			t.Errorf("%d repeats: got %v, %v; want %v", repeats, got, err, want)
		}
	}
}
