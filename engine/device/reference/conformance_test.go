package reference_test

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/needtest"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

func TestConformance(t *testing.T) {
	open := func(t conformance.TB, opts device.Options) device.Device {
		t.Helper()
		dev, err := reference.Driver{}.Open(0, opts)
		if err != nil {
			t.Fatal(err)
		}
		return dev
	}
	caps := devicetest.Caps{Types: []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.F64}, Threads: true}
	if !needtest.Large.On() {
		// All layouts are plain. Other types differ only in the loads and stores of values.
		caps.Brief = []tensor.DType{tensor.F16, tensor.F64}
	}
	devicetest.Run(conformance.Go(t), open, caps)
}
