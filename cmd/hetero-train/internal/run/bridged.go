package run

import (
	"fmt"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/bridge"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/observe"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/tensor"
	"github.com/hetero-train/hetero-train/engine/train"
	"github.com/hetero-train/hetero-train/engine/train/replica"
	"github.com/hetero-train/hetero-train/profiler/measure"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// bridged is a rank of a run whose steps another program computes. It contains the balancer, the sensors and the
// records of a training run, but no replica, no data and no communicators.
type bridged struct {
	training  *training
	conn      *bridge.Conn
	screen    *observe.Console // nil on all ranks except rank 0
	observers observe.Observers
	ranks     []train.RankStep
	times     []replica.StepTimes // step times of each rank
	shares    []int               // shares of the latest step
	result    train.Result
	own       int
	reason    string // reason of the latest decision
}

// dtypes are the element types that a rank can report.
var dtypes = map[string]tensor.DType{"float32": tensor.F32, "bfloat16": tensor.BF16, "float16": tensor.F16}

// remote is the device of another program. It contains only a description, and computes nothing.
type remote struct {
	device.Device
	info device.Info
}

// Info implements device.Device.
func (r remote) Info() device.Info { return r.info }

// describe sets the parts of the run from the description in start.
func (b *bridged) describe(start *bridge.Start) {
	d := start.Device
	b.training.rank.Device = remote{info: device.Info{Name: fmt.Sprintf("%s:%d", d.Kind, d.Index), Kind: d.Kind,
		Model: d.Name, ISA: "torch" + start.Torch, Threads: d.Threads,
		MemoryBytes: d.MemoryBytes, FreeBytes: d.FreeBytes, UUID: d.UUID, BusID: d.BusID}}
	b.training.rank.Precision = dtypes[start.DType]
	b.training.run.Data = &parts.Opened{Name: start.Dataset.Name}
	b.training.run.Steps, b.training.run.StepsPer = start.Steps, start.Epoch
	b.training.run.Foreign = &assembly.Foreign{Script: experiment.Script{Program: "PyTorch " + start.Torch},
		Setting: fmt.Sprintf("PyTorch %s; %s %s, %d parameters; %s, %d micro-batches, %s; %s, %d data workers",
			start.Torch, start.Model.Name, start.Model.Hash, start.Model.Parameters,
			b.training.rank.Precision, b.training.process.Cfg.Train.MicroBatches(), start.Optimizer, start.Dataset.Name,
			start.Workers),
		Report: task.Report{Metrics: []task.Metric{task.Loss}, Unit: "samples", Units: 1, RateKey: "samples_per_sec"},
		TFLOPS: measure.Figure(start.TFLOPS), Copy: measure.Figure(start.Copy)}
	if start.Inputs != "" {
		b.training.run.Foreign.Setting += "; inputs " + start.Inputs
	}
	for _, p := range start.Curve {
		b.training.run.Foreign.Curve = append(b.training.run.Foreign.Curve,
			divide.Point{Samples: float64(p.Samples), Seconds: p.Seconds})
	}
}

func (b *bridged) policyName() string {
	if len(b.training.process.Cfg.Balance.FixedShares) > 0 {
		return "fixed"
	}
	return b.training.process.Cfg.Balance.Policy
}

// sample returns the telemetry of this rank.
func (b *bridged) sample() []bridge.Number {
	if b.training.rank.Telemetry == nil {
		return nil
	}
	s := b.training.rank.Telemetry.Sample()
	values := make([]bridge.Number, telemetry.Count)
	for i, v := range s {
		values[i] = bridge.Number(v)
	}
	return values
}
