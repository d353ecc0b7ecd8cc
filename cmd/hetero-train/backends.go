package main

import (
	"errors"
	"fmt"

	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/device/null"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/models/resnet"
	"github.com/hetero-train/hetero-train/engine/models/simplecnn"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// drivers are the devices that the program was built with. "auto" takes the first automatic one that opens.
var drivers = []struct {
	device.Driver
	automatic bool
	promises  devicetest.Caps // what selftest holds it to
}{
	{cpu.Driver{}, true, devicetest.Caps{Types: []tensor.DType{tensor.F32, tensor.BF16}, Threads: true}},
	{reference.Driver{}, false, devicetest.Caps{Types: []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.F64}, Threads: true}},
	{null.Driver{}, false, devicetest.Caps{Types: []tensor.DType{tensor.F32, tensor.BF16}, NoValues: true}},
}

// openDevice opens the device that the configuration asks for. "auto" never ends at a device that is slow by design:
// a missing native library is an error that says how to build it.
func openDevice(kind string, threads int) (device.Device, error) {
	var reasons []error
	for _, d := range drivers {
		if d.Kind() != kind && !(kind == "auto" && d.automatic) {
			continue
		}
		dev, err := d.Open(0, device.Options{Threads: threads})
		if err == nil {
			return dev, nil
		}
		reasons = append(reasons, fmt.Errorf("device %s: %w", d.Kind(), err))
	}
	if len(reasons) == 0 {
		return nil, usageError("device.kind: this program was built without device %q", kind)
	}
	err := errors.Join(reasons...)
	if errors.Is(err, device.ErrUnavailable) {
		return nil, withCode(exitUsage, fmt.Errorf("%w; device.kind = \"reference\" works everywhere, but is about a thousand times slower", err))
	}
	return nil, withCode(exitDevice, err)
}

// buildModel is the network that a configuration names.
func buildModel(m *config.Model) (models.Classifier, error) {
	switch o := m.Options.(type) {
	case *simpleCNNOptions:
		return simplecnn.Build(simplecnn.Options{Channels: o.Channels, Dropout: o.Dropout}), nil
	case *resnetOptions:
		return resnet.Build(resnet.Family[m.Name], resnet.Options{CIFARStem: o.Stem == "cifar", ZeroInitResidual: o.ZeroInitResidual, StochasticDepth: o.StochasticDepth}), nil
	}
	return nil, usageError("model.name: this program was built without model %q", m.Name)
}
