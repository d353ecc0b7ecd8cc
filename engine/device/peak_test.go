package device_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hetero-train/hetero-train/engine/device"
)

// processor is a measurer with the figures of a CPU; a limit that it lacks is unsupported.
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
		f32, bf16 device.Reached // bf16 0: not in this hardware
	}{
		{"AVX2: no bf16 instruction", processor{device.PeakF32: 133e9, device.PeakF32Product: 120e9}, device.Reached{133e9, loop}, device.Reached{}},
		{"AVX-512 without bf16", processor{device.PeakF32: 265e9, device.PeakF32Product: 250e9}, device.Reached{265e9, loop}, device.Reached{}},
		{"AVX-512 BF16", processor{device.PeakF32: 524e9, device.PeakF32Product: 500e9, device.PeakBF16: 1009e9, device.PeakBF16Product: 940e9},
			device.Reached{524e9, loop}, device.Reached{1009e9, loop}},
		{"AMX, by a loop of AVX-512 BF16", processor{device.PeakF32: 265e9, device.PeakF32Product: 250e9, device.PeakBF16: 136e9, device.PeakBF16Product: 1900e9},
			device.Reached{265e9, loop}, device.Reached{1900e9, product}},
		{"AMX", processor{device.PeakF32: 265e9, device.PeakF32Product: 250e9, device.PeakBF16: 2100e9, device.PeakBF16Product: 1900e9},
			device.Reached{265e9, loop}, device.Reached{2100e9, loop}},
		{"without a library of products", processor{device.PeakF32: 10e9}, device.Reached{10e9, loop}, device.Reached{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for what, want := range map[device.Peak]device.Reached{device.PeakF32: c.f32, device.PeakBF16: c.bf16} {
				got, err := device.MeasureBest(c.cpu, what, time.Millisecond)
				if got != want || errors.Is(err, device.ErrUnsupported) != (want.PerSecond == 0) {
					t.Errorf("limit %d: got %v, %v; want %v", what, got, err, want)
				}
			}
		})
	}
	failing := errors.New("lost")
	if _, err := device.MeasureBest(broken{failing}, device.PeakF32, time.Millisecond); !errors.Is(err, failing) {
		t.Errorf("a product that fails: got %v, want its error", err)
	}
}

// broken fails at products.
type broken struct{ err error }

func (b broken) MeasurePeak(what device.Peak, _ time.Duration) (float64, error) {
	if what == device.PeakF32Product {
		return 0, b.err
	}
	return 1, nil
}
