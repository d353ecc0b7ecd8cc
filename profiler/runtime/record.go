package runtime

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/hetero-train/hetero-train/profiler/telemetry"
)

// FileName returns the name of a rank's file in the folder of logs.
func FileName(rank int) string { return fmt.Sprintf("rank_%d_metrics.json", rank) }

// Record contains the measurements of one rank in one optimizer step. Unknown floats must be math.NaN().
// [telemetry.Metrics] lists the units.
type Record struct {
	Epoch     int64
	Iteration int64 // number of completed optimizer steps, including this step
	Rank      int
	Timestamp time.Time
	BatchSize int64 // number of samples of this rank

	Values  telemetry.Values
	Skipped bool

	DataLoading         time.Duration
	Forward             time.Duration
	Backward            time.Duration
	Communication       time.Duration // time of the gradient exchange after the backward pass
	Optimizer           time.Duration
	CommunicationHidden time.Duration
	Exchanges           time.Duration // time of batch-normalisation exchanges
	StepTime            time.Duration // training time of a step, as a mean since the previous record; 0: unknown
	TrainingTime        time.Duration // training time of the run up to the end of this step; 0: unknown
	Bytes               int64         // bytes of gradients that were summed over ranks
	Buckets             int64         // number of all-reduces

	Telemetry telemetry.Sample // sensors without a column are not stored
}

// entry is a key of a record: a metric, or a sensor.
type entry struct {
	key      string // text such as ,"power":
	kind     telemetry.Kind
	metric   telemetry.Metric
	sensor   telemetry.Sensor // telemetry.Count for a metric
	optional bool             // if the value is unknown, the record omits the key
}

// entries lists the keys of a record in their order: the metrics, with two sensors between them, then all other
// sensors.
var entries = layout()

func layout() (all []entry) {
	addSensor := func(s telemetry.Sensor) {
		d := telemetry.Declared[s]
		all = append(all, entry{key: `,"` + d.Column + `":`, sensor: s, optional: d.Optional})
	}
	middle := []telemetry.Sensor{telemetry.Utilization, telemetry.Memory}
	for m, d := range telemetry.Metrics {
		if telemetry.Metric(m) == telemetry.BatchSize {
			for _, s := range middle {
				addSensor(s)
			}
		}
		start := ","
		if m == 0 {
			start = "{"
		}
		all = append(all, entry{start + `"` + d.Key + `":`, d.Kind, telemetry.Metric(m), telemetry.Count, d.Optional})
	}
	for s, d := range telemetry.Declared {
		if d.Column != "" && !slices.Contains(middle, telemetry.Sensor(s)) {
			addSensor(telemetry.Sensor(s))
		}
	}
	return all
}

// integer returns the value of a metric of kind Integer.
func (r *Record) integer(m telemetry.Metric) int64 {
	if m == telemetry.Rank {
		return int64(r.Rank)
	}
	return *r.count(m)
}

// setInteger sets the value of a metric of kind Integer.
func (r *Record) setInteger(m telemetry.Metric, v int64) {
	if m == telemetry.Rank {
		r.Rank = int(v)
		return
	}
	*r.count(m) = v
}

func (r *Record) count(m telemetry.Metric) *int64 {
	switch m {
	case telemetry.Epoch:
		return &r.Epoch
	case telemetry.Iteration:
		return &r.Iteration
	case telemetry.CommunicationBytes:
		return &r.Bytes
	case telemetry.Buckets:
		return &r.Buckets
	case telemetry.BatchSize:
		return &r.BatchSize
	}
	panic("runtime: " + telemetry.Metrics[m].Key + " is no integer of a record")
}

// Seconds returns the value of a metric of kind Seconds.
func (r *Record) Seconds(m telemetry.Metric) *time.Duration {
	switch m {
	case telemetry.DataLoading:
		return &r.DataLoading
	case telemetry.Forward:
		return &r.Forward
	case telemetry.Backward:
		return &r.Backward
	case telemetry.Communication:
		return &r.Communication
	case telemetry.OptimizerTime:
		return &r.Optimizer
	case telemetry.CommunicationHidden:
		return &r.CommunicationHidden
	case telemetry.Exchanges:
		return &r.Exchanges
	case telemetry.StepTime:
		return &r.StepTime
	case telemetry.TrainingTime:
		return &r.TrainingTime
	}
	panic("runtime: " + telemetry.Metrics[m].Key + " is no time of a record")
}

// appendDerived appends a metric of kind Derived.
func (r *Record) appendDerived(b []byte, e *entry) []byte {
	if e.metric == telemetry.IterationTime {
		return appendSeconds(b, e.key, r.IterationTime())
	}
	return appendFloat(b, e.key, r.Throughput())
}

// IterationTime returns the sum of the parts of the step, as the rank measured them.
func (r *Record) IterationTime() time.Duration {
	return r.DataLoading + r.Forward + r.Backward + r.Communication + r.Optimizer
}

// Own returns the compute time of the rank, without waits for other ranks.
func (r *Record) Own() time.Duration {
	return r.DataLoading + r.Forward + r.Backward - r.Exchanges
}

// Took returns the training time of the step. If the record does not contain this time, Took returns the sum of the
// parts.
func (r *Record) Took() time.Duration {
	if r.StepTime > 0 {
		return r.StepTime
	}
	return r.IterationTime()
}

// Throughput returns the samples per second of the rank, or NaN if no time was measured.
func (r *Record) Throughput() float64 {
	if r.Took() <= 0 {
		return math.NaN()
	}
	return float64(r.BatchSize) / r.Took().Seconds()
}

// appendJSON appends the record as one JSON object without a line break.
func (r *Record) appendJSON(b []byte) []byte {
	for i := range entries {
		e := &entries[i]
		switch {
		case e.sensor < telemetry.Count:
			if v := r.Telemetry[e.sensor]; !e.optional || !math.IsNaN(v) {
				b = appendFloat(b, e.key, v)
			}
		case e.kind == telemetry.Number:
			if v := r.Values[e.metric]; !e.optional || v != 0 {
				b = appendFloat(b, e.key, v)
			}
		case e.kind == telemetry.Integer:
			b = appendInt(b, e.key, r.integer(e.metric))
		case e.kind == telemetry.Seconds:
			if d := *r.Seconds(e.metric); !e.optional || d != 0 {
				b = appendSeconds(b, e.key, d)
			}
		case e.kind == telemetry.Instant:
			b = r.appendTimestamp(b, e.key)
		case e.kind == telemetry.Flag:
			b = strconv.AppendBool(append(b, e.key...), r.Skipped)
		default:
			b = r.appendDerived(b, e)
		}
	}
	return append(b, '}')
}

// appendTimestamp writes null for the zero time, because a Duration since 1970 cannot represent it.
func (r *Record) appendTimestamp(b []byte, key string) []byte {
	if r.Timestamp.IsZero() {
		return append(append(b, key...), "null"...)
	}
	return appendSeconds(b, key, time.Duration(r.Timestamp.UnixMicro())*time.Microsecond)
}

const (
	// MostStep is the largest valid number of a step in the files of a run. Numbers in files are untrusted. Within this
	// limit, no sum of steps overflows.
	MostStep = 1 << 40

	// mostSeconds is the largest valid duration in a record, in s, and the largest valid time since 1970 UTC. A
	// time.Duration can represent 292 years.
	mostSeconds = 9_000_000_000
)

// iterationKey is the key of the step, as records contain it.
const iterationKey = `,"iteration":`

func appendInt(b []byte, key string, v int64) []byte {
	return strconv.AppendInt(append(b, key...), v, 10)
}

func appendFloat(b []byte, key string, v float64) []byte {
	b = append(b, key...)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(b, "null"...)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// appendSeconds writes whole nanoseconds, so that the written parts sum exactly to the written total.
func appendSeconds(b []byte, key string, d time.Duration) []byte {
	b = append(b, key...)
	if d < 0 {
		b = append(b, '-')
		d = -d
	}
	b = strconv.AppendInt(b, int64(d/time.Second), 10)
	nanoseconds := int64(d % time.Second)
	if nanoseconds == 0 {
		return b
	}
	// The leading 1 keeps the zeros after the decimal point. The decimal point then replaces the 1.
	at := len(b)
	b = strconv.AppendInt(b, int64(time.Second)+nanoseconds, 10)
	b[at] = '.'
	for b[len(b)-1] == '0' {
		b = b[:len(b)-1]
	}
	return b
}

// MarshalJSON returns the text that files contain.
func (r Record) MarshalJSON() ([]byte, error) { return r.appendJSON(nil), nil }

// UnmarshalJSON reads a record. Floats that are null or missing become NaN. A missing iteration is an error, and so is
// a time or a count below 0. UnmarshalJSON ignores keys whose values are computed from other keys.
func (r *Record) UnmarshalJSON(text []byte) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		return err
	}
	*r = Record{Iteration: -1, Telemetry: telemetry.Unknown()}
	for i := range entries {
		if err := r.read(&entries[i], keys); err != nil {
			return err
		}
	}
	if r.Iteration < 0 || r.Iteration > MostStep {
		return fmt.Errorf("metric record without an iteration from 0 to %d", int64(MostStep))
	}
	if key := r.negative(); key != "" {
		return fmt.Errorf("metric record with a %s below 0", key)
	}
	return nil
}

// atLeastZero returns the record, or a copy with 0 in place of times and counts below 0.
func (r *Record) atLeastZero() *Record {
	if r.negative() == "" {
		return r
	}
	sound := *r
	for m := range telemetry.MetricCount {
		switch telemetry.Metrics[m].Kind {
		case telemetry.Seconds:
			*sound.Seconds(m) = max(*sound.Seconds(m), 0)
		case telemetry.Integer:
			sound.setInteger(m, max(sound.integer(m), 0))
		}
	}
	for _, s := range percentages {
		if sound.Telemetry[s] < 0 {
			sound.Telemetry[s] = 0
		}
	}
	return &sound
}

// percentages are sensors whose values cannot be below 0.
var percentages = [...]telemetry.Sensor{telemetry.Utilization, telemetry.Memory}

// negative returns the key of a time, count or utilization that is below 0, or "".
func (r *Record) negative() string {
	for _, s := range percentages {
		if r.Telemetry[s] < 0 {
			return telemetry.Declared[s].Column
		}
	}
	for m := range telemetry.MetricCount {
		switch d := &telemetry.Metrics[m]; d.Kind {
		case telemetry.Seconds:
			if *r.Seconds(m) < 0 {
				return d.Key
			}
		case telemetry.Integer:
			if r.integer(m) < 0 {
				return d.Key
			}
		}
	}
	return ""
}

// read sets the value of one key.
func (r *Record) read(e *entry, keys map[string]json.RawMessage) error {
	name := e.key[len(`,"`) : len(e.key)-len(`":`)]
	value, found := keys[name]
	if !found {
		if !e.optional && e.sensor >= telemetry.Count && e.kind != telemetry.Derived {
			return fmt.Errorf("metric record without %s", name)
		}
		value = json.RawMessage("null")
	}
	var number *float64
	var whole *int64
	var target any = &number
	switch {
	case e.sensor < telemetry.Count:
	case e.kind == telemetry.Integer:
		target = &whole
	case e.kind == telemetry.Flag:
		target = &r.Skipped
	case e.kind == telemetry.Derived:
		return nil
	}
	if err := json.Unmarshal(value, target); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	switch {
	case e.sensor < telemetry.Count:
		r.Telemetry[e.sensor] = orNaN(number)
	case e.kind == telemetry.Number:
		r.Values[e.metric] = orNaN(number)
	case whole != nil:
		r.setInteger(e.metric, *whole)
	case number == nil && !e.optional && (e.kind == telemetry.Integer || e.kind == telemetry.Seconds):
		return fmt.Errorf("%s: got null, want a number", name)
	case number == nil:
	case e.kind == telemetry.Seconds || e.kind == telemetry.Instant:
		if !(math.Abs(*number) <= mostSeconds) {
			return fmt.Errorf("metric record with a time of %v s, want at most %d", *number, int64(mostSeconds))
		}
		if e.kind == telemetry.Instant {
			r.Timestamp = time.UnixMicro(int64(math.Round(*number * 1e6)))
		} else {
			*r.Seconds(e.metric) = duration(*number)
		}
	}
	return nil
}

func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

func duration(seconds float64) time.Duration {
	return time.Duration(math.Round(seconds * float64(time.Second)))
}
