package bridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/hetero-train/hetero-train/engine/experiment"
)

// Version is the version of the protocol.
const Version = 1

// MostBytes is the maximum length of a line. The reports of ten steps of about a thousand ranks need 4 MB.
const MostBytes = 64 << 20

// Message is a message that the bridge receives.
type Message interface{ check() error }

// Hello is the first message of a rank.
type Hello struct {
	Protocol       int               `json:"protocol"`
	Package        string            `json:"package"` // version of the package hetero_train
	Rank           int               `json:"rank"`
	WorldSize      int               `json:"world_size"`
	LocalRank      int               `json:"local_rank"`
	LocalWorldSize int               `json:"local_world_size"`
	Settings       map[string]string `json:"settings"` // values of settings in TOML, by dotted key
}

// Start is the message that a rank sends before its first step. It describes the model, the data set and the device of
// the rank.
type Start struct {
	Model   Model   `json:"model"`
	Inputs  string  `json:"inputs"` // shapes and types of a sample at the input of the model; "": unknown
	Dataset Dataset `json:"dataset"`
	Device  Device  `json:"device"`

	DType     string  `json:"dtype"` // float32, bfloat16 or float16
	Torch     string  `json:"torch"` // version of PyTorch
	Optimizer string  `json:"optimizer"`
	Workers   int     `json:"workers"`   // number of processes that load the data of this rank
	MaxShare  int     `json:"max_share"` // largest share of a micro-batch that this rank can hold; 0: no limit
	SyncNorm  bool    `json:"sync_norm"` // batch normalisation uses the samples of all ranks
	Step      int64   `json:"step"`      // optimizer steps that the run has already completed; 0: a new run
	Trained   int64   `json:"samples"`   // number of samples in these steps, on all ranks
	Steps     int64   `json:"steps"`     // optimizer steps of the whole run; 0: unknown
	Epoch     int64   `json:"epoch_steps"`
	TFLOPS    float64 `json:"tflops"`                 // measured speed of matrix products, TFLOP/s; 0: not measured
	Copy      float64 `json:"copy_gbytes_per_second"` // measured speed of copies in memory, GB/s; 0: not measured
	Curve     []Point `json:"curve"`                  // measured step times; empty: none
}

// Lookup requests the cached step-time curve for the values of a [Start]. A rank may send it before the
// start.
type Lookup struct{ Start }

// Model identifies the model.
type Model struct {
	Name       string `json:"name"`
	Hash       string `json:"hash"` // hash of the names, shapes and types of the parameters
	Parameters int64  `json:"parameters"`
}

// Dataset identifies the data set.
type Dataset struct {
	Name    string `json:"name"`
	Samples int    `json:"samples"`
}

// Device identifies the device of a rank.
type Device struct {
	Kind        string `json:"kind"` // cpu, cuda
	Name        string `json:"name"` // name that the manufacturer gave
	Index       int    `json:"index"`
	UUID        string `json:"uuid"`
	BusID       string `json:"bus_id"`
	Threads     int    `json:"threads"`      // number of threads; only for a CPU
	MemoryBytes int64  `json:"memory_bytes"` // 0: unknown
	FreeBytes   int64  `json:"free_bytes"`
}

// Point is the measured time of a step with this number of samples in a micro-batch.
type Point struct {
	Samples int     `json:"samples"`
	Seconds float64 `json:"seconds"`
}

// Gathered contains the values of all ranks, by rank, as the answer to a [Gather].
type Gathered struct {
	Values []json.RawMessage `json:"values"`
}

// Steps contains the reports of all ranks about consecutive optimizer steps.
type Steps struct {
	First int64  `json:"first"` // number of the first step, from 1
	Steps []Step `json:"steps"`
	// latest telemetry of each rank, which it got in [Started] or [Decided]; empty: unknown
	Telemetry [][]Number `json:"telemetry"`
}

// Step contains the measurements of one optimizer step. Each list has one value for each rank. Times are in s.
type Step struct {
	Epoch      int      `json:"epoch"`       // counted from 0
	EpochStep  int      `json:"epoch_step"`  // number of steps of the epoch so far, including this step
	EpochSteps int      `json:"epoch_steps"` // number of steps of an epoch
	Settling   bool     `json:"settling"`    // the times of this step are not typical of later steps
	Rate       Number   `json:"learning_rate"`
	GradNorm   Number   `json:"grad_norm"`
	Skipped    bool     `json:"skipped"` // the optimizer did not update the parameters
	Scale      Number   `json:"loss_scale"`
	Time       float64  `json:"time"`    // s since 1970, at the end of the step on rank 0
	Seconds    []Number `json:"seconds"` // from the end of the previous step to the end of this step, without pauses
	Samples    []int    `json:"samples"` // samples of all micro-batches
	Count      []Number `json:"count"`   // weight of the loss: samples or valid tokens
	Loss       []Number `json:"loss"`    // sum of the losses over Count
	Data       []Number `json:"data"`
	Forward    []Number `json:"forward"`
	Backward   []Number `json:"backward"` // time until the last gradient
	Exposed    []Number `json:"exposed"`  // wait for the sums of gradients after the last gradient
	Hidden     []Number `json:"hidden"`   // communication during the backward pass
	Optimizer  []Number `json:"optimizer"`
	Other      []Number `json:"other"`
	Bytes      []Number `json:"bytes"` // bytes of the summed gradients
	Buckets    []int    `json:"buckets"`
}

// Evaluation reports an evaluation of the model.
type Evaluation struct {
	Step    *int64  `json:"step"` // optimizer steps before the evaluation
	Samples int     `json:"samples"`
	Loss    Number  `json:"loss"`
	Seconds float64 `json:"seconds"`
}

// Saved reports that the program has saved a checkpoint. All records up to this step must be on the disk.
type Saved struct {
	Step    *int64  `json:"step"` // optimizer steps before the checkpoint
	Seconds float64 `json:"seconds"`
}

// End is the last message. Error is the reason of a failed run. Stopped is true if the user stopped the run. Closed is
// true if the program has ended the run normally.
type End struct {
	Step    *int64 `json:"step"` // optimizer steps that the program has completed
	Error   string `json:"error"`
	Stopped bool   `json:"stopped"`
	Closed  bool   `json:"closed"`
}

// Number is a number that is null in JSON if it is unknown, NaN or infinite.
type Number = experiment.Number

// Fault reports a line that is not a message of the protocol.
type Fault struct {
	Reason string
}

func (f *Fault) Error() string {
	return "bridge: " + f.Reason + "; the package hetero_train and the program hetero-train must be of one release"
}

// kinds has a function for each type that creates an empty message.
var kinds = map[string]func() Message{
	"hello": func() Message { return new(Hello) }, "start": func() Message { return new(Start) },
	"gathered": func() Message { return new(Gathered) }, "steps": func() Message { return new(Steps) },
	"evaluation": func() Message { return new(Evaluation) }, "saved": func() Message { return new(Saved) },
	"end": func() Message { return new(End) }, "lookup": func() Message { return new(Lookup) },
}

// Parse reads one line. It refuses unknown types and keys, and values that no rank can report.
func Parse(line []byte) (Message, error) {
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return nil, &Fault{fmt.Sprintf("got a line of %d bytes that is no JSON object: %v", len(line), err)}
	}
	create := kinds[head.Type]
	if create == nil {
		return nil,
			&Fault{
				fmt.Sprintf("got a message of type %.40q, want hello, lookup, start, gathered, steps, evaluation, saved or end",
					head.Type)}
	}
	m := create()
	var err error
	if head.Type == "hello" { // unknown keys are no error here: the caller first compares the versions
		err = json.Unmarshal(line, m)
	} else {
		err = strict(line, m)
	}
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return nil, &Fault{fmt.Sprintf("message %q: %v", head.Type, err)}
	}
	return m, nil
}

// strict decodes a message and refuses keys that the message type does not contain.
func strict(line []byte, m Message) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(line, &keys); err != nil {
		return err
	}
	delete(keys, "type")
	rest, err := json.Marshal(keys)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(rest))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("got text after the object")
	}
	return nil
}
