package runs

import (
	"math"

	"github.com/hetero-train/hetero-train/profiler/account"
	"github.com/hetero-train/hetero-train/profiler/runtime"
	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// column describes a value that every record contains.
type column struct {
	Name string
	Unit string
	of   func(*runtime.Record) float64
}

// metric returns the column of a step metric.
func metric(m telemetry.Metric) column {
	d := telemetry.Metrics[m]
	c := column{d.Column, d.Unit, func(r *runtime.Record) float64 { return r.Values[m] }}
	switch {
	case d.Kind == telemetry.Flag:
		c.Unit, c.of = "fraction", func(r *runtime.Record) float64 { return telemetry.Bit(r.Skipped) }
	case d.Kind == telemetry.Seconds && d.Optional: // 0: unknown
		c.of = func(r *runtime.Record) float64 {
			if v := *r.Seconds(m); v > 0 {
				return v.Seconds()
			}
			return math.NaN()
		}
	case d.Kind == telemetry.Seconds:
		c.of = func(r *runtime.Record) float64 { return r.Seconds(m).Seconds() }
	}
	return c
}

// traffic returns the column of a traffic sensor.
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
	metric(telemetry.DataLoading),
	metric(telemetry.Forward),
	metric(telemetry.Backward),
	metric(telemetry.Communication),
	metric(telemetry.OptimizerTime),
	metric(telemetry.CommunicationHidden),
	metric(telemetry.Exchanges),
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
	// trafficColumn is the index of the first column of traffic. Figures omits columns of traffic if they have no
	// values.
	trafficColumn = 16
)

// totalColumn is the throughput of all ranks together.
var totalColumn = column{Name: "total_throughput", Unit: "samples/s"}

// runColumns are the columns whose values are equal on all ranks. They follow the columns of rank 0.
var runColumns = func() (list []column) {
	for m, d := range telemetry.Metrics {
		if d.Scope == telemetry.OfRun && d.Column != "" {
			list = append(list, metric(telemetry.Metric(m)))
		}
	}
	return list
}()

// decisionColumns are the columns of the balancer's decisions, in the order in which decided.add sets them.
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
		{Name: "equal_step_low", Unit: "s"},
		{Name: "equal_step_high", Unit: "s"},
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
