package dqn

import (
	"bytes"
	_ "embed" // for the trained network
	"encoding/json"
	"fmt"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/device"
)

// The built-in network, as two files of a checkpoint. To replace it, copy these files from another checkpoint.
var (
	//go:embed trained/model.safetensors
	trainedModel []byte
	//go:embed trained/state.json
	trainedState []byte
)

// OpenTrained returns policy "dqn" with the built-in network. The network was trained on the default cluster and on
// random clusters. docs/benchmarks/scheduling.md describes its training and its results.
func OpenTrained(dev device.Device, o scheduler.Options) (*Policy, error) {
	const path = "the network of the program"
	c := &checkpoint.Checkpoint{Path: path}
	if err := json.Unmarshal(trainedState, &c.State); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	state, err := readState(c)
	if err != nil {
		return nil, err
	}
	f, err := checkpoint.NewFile(bytes.NewReader(trainedModel), int64(len(trainedModel)), path)
	if err != nil {
		return nil, err
	}
	return openPolicy(dev, path, state, f, o)
}
