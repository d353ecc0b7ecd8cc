package devices

import (
	"github.com/hetero-train/hetero-train/cuda"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/device/null"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// Drivers are the devices that the program was built with. "auto" takes the first automatic one that opens.
var Drivers = []struct {
	device.Driver
	Automatic bool
	Promises  devicetest.Caps                        // what selftest holds it to
	Library   func() (path, build string, err error) // behind it; nil: none
}{
	{cuda.Driver{}, true, devicetest.Caps{Types: []tensor.DType{tensor.F32, tensor.BF16, tensor.F16}, Lacks: devicetest.TransformerOps}, cuda.Library},
	{cpu.Driver{}, true, devicetest.Caps{Types: []tensor.DType{tensor.F32, tensor.BF16}, Threads: true, Lacks: devicetest.TransformerOps}, cpu.Library},
	{reference.Driver{}, false, devicetest.Caps{Types: []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.F64}, Threads: true}, nil},
	{null.Driver{}, false, devicetest.Caps{Types: []tensor.DType{tensor.F32, tensor.BF16}, NoValues: true}, nil},
}
