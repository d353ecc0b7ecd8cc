package runtime

import (
	"cmp"
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

// Record contains the measurements of one rank in one optimizer step. Unknown floats must be math.NaN(). The package
// documentation lists the units.
type Record struct {
	Epoch     int64
	Iteration int64 // number of optimizer steps done, including this step
	Rank      int
	Timestamp time.Time
	BatchSize int64 // number of samples of this rank

	Loss         float64
	Accuracy     float64 // fraction 0…1
	LearningRate float64
	GradNorm     float64
	LossScale    float64
	Skipped      bool

	DataLoading         time.Duration
	Forward             time.Duration
	Backward            time.Duration
	Communication       time.Duration // time after the backward pass
	Optimizer           time.Duration
	CommunicationHidden time.Duration
	Exchanges           time.Duration // time of batch-normalisation exchanges
	StepTime            time.Duration // training time of a step, mean since the previous record; 0: unknown
	TrainingTime        time.Duration // training time of the run up to the end of this step; 0: unknown
	Bytes               int64         // bytes of gradients that were summed over ranks
	Buckets             int64         // number of all-reduces

	Telemetry telemetry.Sample // sensors without a column are not stored
}

// midColumns and lastColumns are the sensors that records contain. Existing files have two sensor columns between the
// other keys. All further sensors come last.
var midColumns, lastColumns = columns()

type column struct {
	sensor   telemetry.Sensor
	key      string // key in a record, such as ,"power":
	optional bool   // a record without the value lacks the key
}

func columns() (mid, last []column) {
	for _, s := range []telemetry.Sensor{telemetry.Utilization, telemetry.Memory} {
		mid = append(mid, columnOf(s))
	}
	for s, d := range telemetry.Declared {
		c := columnOf(telemetry.Sensor(s))
		if d.Column != "" && !slices.Contains(mid, c) {
			last = append(last, c)
		}
	}
	return mid, last
}

func columnOf(s telemetry.Sensor) column {
	d := telemetry.Declared[s]
	return column{s, `,"` + d.Column + `":`, d.Optional}
}

// IterationTime returns the sum of the parts of the step, as the rank measured them.
func (r *Record) IterationTime() time.Duration {
	return r.DataLoading + r.Forward + r.Backward + r.Communication + r.Optimizer
}

// Own returns the compute time of the rank, without waits for other ranks.
func (r *Record) Own() time.Duration {
	return r.DataLoading + r.Forward + r.Backward - r.Exchanges
}

// Took returns the training time of the step. In records of earlier versions of the program, which do not contain it, it
// is the sum of the parts.
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
	b = appendInt(b, `{"epoch":`, r.Epoch)
	b = appendInt(b, iterationKey, r.Iteration)
	b = appendFloat(b, `,"loss":`, r.Loss)
	b = appendFloat(b, `,"throughput":`, r.Throughput())
	b = appendSeconds(b, `,"iteration_time":`, r.IterationTime())
	b = appendSeconds(b, `,"data_loading_time":`, r.DataLoading)
	b = appendSeconds(b, `,"forward_time":`, r.Forward)
	b = appendSeconds(b, `,"backward_time":`, r.Backward)
	b = appendSeconds(b, `,"communication_time":`, r.Communication)
	b = appendSeconds(b, `,"optimizer_time":`, r.Optimizer)
	b = appendSeconds(b, `,"communication_hidden_time":`, r.CommunicationHidden)
	b = appendSeconds(b, `,"exchange_time":`, r.Exchanges)
	b = appendInt(b, `,"communication_bytes":`, r.Bytes)
	b = appendInt(b, `,"communication_buckets":`, r.Buckets)
	b = r.appendColumns(b, midColumns)
	b = appendInt(b, `,"batch_size":`, r.BatchSize)
	b = r.appendTimestamp(b)
	b = appendInt(b, `,"rank":`, int64(r.Rank))
	b = appendFloat(b, `,"accuracy":`, r.Accuracy)
	b = appendFloat(b, `,"learning_rate":`, r.LearningRate)
	b = appendFloat(b, `,"grad_norm":`, r.GradNorm)
	b = appendFloat(b, `,"loss_scale":`, r.LossScale)
	b = strconv.AppendBool(append(b, `,"skipped":`...), r.Skipped)
	if r.StepTime > 0 {
		b = appendSeconds(b, stepTimeKey, r.StepTime)
		b = appendSeconds(b, trainingTimeKey, r.TrainingTime)
	}
	b = r.appendColumns(b, lastColumns)
	return append(b, '}')
}

func (r *Record) appendColumns(b []byte, columns []column) []byte {
	for _, c := range columns {
		if v := r.Telemetry[c.sensor]; !c.optional || !math.IsNaN(v) {
			b = appendFloat(b, c.key, v)
		}
	}
	return b
}

// appendTimestamp writes null for the zero time, because a Duration since 1970 cannot represent it.
func (r *Record) appendTimestamp(b []byte) []byte {
	const key = `,"timestamp":`
	if r.Timestamp.IsZero() {
		return append(b, key+"null"...)
	}
	return appendSeconds(b, key, time.Duration(r.Timestamp.UnixMicro())*time.Microsecond)
}

const (
	// MostStep is the largest valid number of a step in the files of a run. Numbers of files are untrusted. Within this
	// limit, no sum of steps overflows.
	MostStep = 1 << 40

	// mostSeconds is the largest valid time in a record, in s, also since 1970 UTC. A time.Duration has at most 292 years.
	mostSeconds = 9_000_000_000
)

const (
	iterationKey    = `,"iteration":`
	stepTimeKey     = `,"step_time":`
	trainingTimeKey = `,"training_time":`
)

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

// appendSeconds writes whole nanoseconds, so that the sum of the parts equals the total in every digit.
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
	// The leading 1 keeps the zeros after the decimal point. The point then replaces it.
	at := len(b)
	b = strconv.AppendInt(b, int64(time.Second)+nanoseconds, 10)
	b[at] = '.'
	for b[len(b)-1] == '0' {
		b = b[:len(b)-1]
	}
	return b
}

// MarshalJSON writes the same text as in files.
func (r Record) MarshalJSON() ([]byte, error) { return r.appendJSON(nil), nil }

// wireRecord is the JSON form of a Record. It lacks iteration_time and throughput, which are computed from other
// keys.
type wireRecord struct {
	Epoch               int64    `json:"epoch"`
	Iteration           *int64   `json:"iteration"`
	Rank                int      `json:"rank"`
	Timestamp           *float64 `json:"timestamp"`
	BatchSize           int64    `json:"batch_size"`
	Loss                *float64 `json:"loss"`
	Accuracy            *float64 `json:"accuracy"`
	LearningRate        *float64 `json:"learning_rate"`
	GradNorm            *float64 `json:"grad_norm"`
	LossScale           *float64 `json:"loss_scale"`
	Skipped             bool     `json:"skipped"`
	DataLoading         float64  `json:"data_loading_time"`
	Forward             float64  `json:"forward_time"`
	Backward            float64  `json:"backward_time"`
	Communication       float64  `json:"communication_time"`
	Optimizer           float64  `json:"optimizer_time"`
	CommunicationHidden float64  `json:"communication_hidden_time"`
	Exchanges           float64  `json:"exchange_time"`
	StepTime            float64  `json:"step_time"`
	TrainingTime        float64  `json:"training_time"`
	Bytes               int64    `json:"communication_bytes"`
	Buckets             int64    `json:"communication_buckets"`
}

// UnmarshalJSON reads a record. Floats that are null or missing become NaN. A missing iteration is an error.
func (r *Record) UnmarshalJSON(text []byte) error {
	var w wireRecord
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	if w.Iteration == nil || *w.Iteration < 0 || *w.Iteration > MostStep {
		return fmt.Errorf("metric record without an iteration from 0 to %d", int64(MostStep))
	}
	for _, seconds := range []float64{w.DataLoading, w.Forward, w.Backward, w.Communication, w.Optimizer, w.CommunicationHidden, w.Exchanges, w.StepTime, w.TrainingTime, *cmp.Or(w.Timestamp, new(float64))} {
		if !(math.Abs(seconds) <= mostSeconds) {
			return fmt.Errorf("metric record with a time of %v s, want at most %d", seconds, int64(mostSeconds))
		}
	}
	*r = Record{
		Epoch: w.Epoch, Iteration: *w.Iteration, Rank: w.Rank, BatchSize: w.BatchSize,
		Loss: orNaN(w.Loss), Accuracy: orNaN(w.Accuracy), LearningRate: orNaN(w.LearningRate),
		GradNorm: orNaN(w.GradNorm), LossScale: orNaN(w.LossScale), Skipped: w.Skipped,
		DataLoading: duration(w.DataLoading), Forward: duration(w.Forward), Backward: duration(w.Backward),
		Communication: duration(w.Communication), Optimizer: duration(w.Optimizer),
		CommunicationHidden: duration(w.CommunicationHidden), Exchanges: duration(w.Exchanges), StepTime: duration(w.StepTime), TrainingTime: duration(w.TrainingTime),
		Bytes: w.Bytes, Buckets: w.Buckets,
		Telemetry: telemetry.Unknown(),
	}
	if err := r.readColumns(text); err != nil {
		return err
	}
	if w.Timestamp != nil {
		r.Timestamp = time.UnixMicro(int64(math.Round(*w.Timestamp * 1e6)))
	}
	return nil
}

// readColumns sets the values of the sensors.
func (r *Record) readColumns(text []byte) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		return err
	}
	for s, d := range telemetry.Declared {
		value, found := keys[d.Column]
		if d.Column == "" || !found {
			continue
		}
		var v *float64
		if err := json.Unmarshal(value, &v); err != nil {
			return fmt.Errorf("%s: %w", d.Column, err)
		}
		r.Telemetry[s] = orNaN(v)
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
