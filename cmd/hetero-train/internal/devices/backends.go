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

// Drivers lists the devices of this build. With "auto", the program selects the first device with Automatic set that it
// can open.
var Drivers = []struct {
	device.Driver
	Automatic bool
	Promises  devicetest.Caps // capabilities that selftest checks
	// returns path and build of the device's native library; nil if the device has none
	Library func() (path, build string, err error)
}{
	{cuda.Driver{}, true, devicetest.Caps{Types: []tensor.DType{tensor.F32, tensor.BF16, tensor.F16},
		Lacks: cuda.Lacks}, cuda.Library},
	{cpu.Driver{}, true, devicetest.Caps{Types: []tensor.DType{tensor.F32, tensor.BF16}, Threads: true,
		Lacks: cpu.Lacks}, cpu.Library},
	{reference.Driver{}, false, devicetest.Caps{Types: []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.F64},
		Threads: true}, nil},
	{null.Driver{}, false, devicetest.Caps{Types: []tensor.DType{tensor.F32, tensor.BF16}, NoValues: true}, nil},
}
