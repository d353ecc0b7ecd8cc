package runs

import (
	"math"

	"github.com/hetero-train/hetero-train/profiler/account"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// column is a value that every record contains.
type column struct {
	Name string
	Unit string
	of   func(*runtime.Record) float64
}

// traffic returns the column of a sensor of traffic.
func traffic(s telemetry.Sensor) column {
	d := telemetry.Declared[s]
	return column{d.Column, d.Unit, sensor(s)}
}

func sensor(s telemetry.Sensor) func(*runtime.Record) float64 {
	return func(r *runtime.Record) float64 { return r.Telemetry[s] }
}

// rankColumns are the columns that each rank has.
var rankColumns = []column{
	{"share", "samples", func(r *runtime.Record) float64 { return float64(r.BatchSize) }},
	{"throughput", "samples/s", (*runtime.Record).Throughput},
	{"own", "s", ownSeconds},
	{"step", "s", func(r *runtime.Record) float64 { return r.Took().Seconds() }},
	{"data", "s", func(r *runtime.Record) float64 { return r.DataLoading.Seconds() }},
	{"forward", "s", func(r *runtime.Record) float64 { return r.Forward.Seconds() }},
	{"backward", "s", func(r *runtime.Record) float64 { return r.Backward.Seconds() }},
	{"communication", "s", func(r *runtime.Record) float64 { return r.Communication.Seconds() }},
	{"optimizer", "s", func(r *runtime.Record) float64 { return r.Optimizer.Seconds() }},
	{"hidden", "s", func(r *runtime.Record) float64 { return r.CommunicationHidden.Seconds() }},
	{"exchange", "s", func(r *runtime.Record) float64 { return r.Exchanges.Seconds() }},
	{"bus_bandwidth", "bytes/s", nil}, // computed by rank.fill, because it depends on the number of ranks
	{"utilization", "%", sensor(telemetry.Utilization)},
	{"memory", "%", sensor(telemetry.Memory)},
	{"temperature", "°C", sensor(telemetry.Temperature)},
	{"power", "W", sensor(telemetry.Power)},
	traffic(telemetry.NVLinkSent),
	traffic(telemetry.NVLinkReceived),
	traffic(telemetry.PCIeSent),
	traffic(telemetry.PCIeReceived),
	traffic(telemetry.NetworkSent),
	traffic(telemetry.NetworkReceived),
	traffic(telemetry.RDMASent),
	traffic(telemetry.RDMAReceived),
}

// Indices of columns.
const (
	shareColumn      = 0
	throughputColumn = 1
	stepColumn       = 3
	busColumn        = 11
	// trafficColumn is the first column of traffic. Figures omits these columns for ranks without values.
	trafficColumn = 16
)

// totalColumn is the throughput of all ranks together.
var totalColumn = column{Name: "total_throughput", Unit: "samples/s"}

// runColumns are the columns whose values are equal on all ranks. They follow the columns of rank 0.
var runColumns = []column{
	{"loss", "", func(r *runtime.Record) float64 { return r.Loss }},
	{"accuracy", "fraction", func(r *runtime.Record) float64 { return r.Accuracy }},
	{"learning_rate", "", func(r *runtime.Record) float64 { return r.LearningRate }},
	{"grad_norm", "", func(r *runtime.Record) float64 { return r.GradNorm }},
	{"loss_scale", "", func(r *runtime.Record) float64 { return r.LossScale }},
	{"skipped", "fraction", func(r *runtime.Record) float64 { return telemetry.Bit(r.Skipped) }},
	{"training_time", "s", trainingSeconds},
}

// decisionColumns are the columns of the balancer's decisions: those of decided.add.
var decisionColumns = func() []column {
	list := []column{
		{Name: "share_of_oracle", Unit: "fraction"},
		{Name: "share_of_oracle_low", Unit: "fraction"},
		{Name: "share_of_oracle_high", Unit: "fraction"},
		{Name: "imbalance", Unit: "fraction"},
		{Name: "decided_step", Unit: "s"},
		{Name: "oracle_step", Unit: "s"},
		{Name: "useful", Unit: "s"},
		{Name: "equal_step", Unit: "s"},
	}
	for _, cause := range account.Losses {
		list = append(list, column{Name: "lost_" + cause, Unit: "s"})
	}
	return list
}()

// ownSeconds returns the compute time of a rank in seconds, without waits for other ranks.
func ownSeconds(r *runtime.Record) float64 {
	return max(0, r.Own().Seconds())
}

// trainingSeconds returns the training time of the run up to the end of the step in s, or NaN if it is unknown.
func trainingSeconds(r *runtime.Record) float64 {
	if r.TrainingTime <= 0 {
		return math.NaN()
	}
	return r.TrainingTime.Seconds()
}

// busBandwidth returns the bus bandwidth of the gradient all-reduces in bytes/s; see runtime.BusBandwidth.
func busBandwidth(r *runtime.Record, ranks int) float64 {
	return runtime.BusBandwidth(float64(r.Bytes), (r.Communication + r.CommunicationHidden).Seconds(), ranks)
}

// find returns the index of the column with the given name, or -1 if there is none.
func find(columns []column, name string) int {
	for i, c := range columns {
		if c.Name == name {
			return i
		}
	}
	return -1
}
