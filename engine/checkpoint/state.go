package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
)

// State is the state of a run without its tensors, as stored in state.json. A run that resumes with the same tensors
// and the same State continues as if it had never stopped.
type State struct {
	Program string `json:"program"` // version of the program that saved the state

	Step        int64  `json:"step"`         // number of optimizer steps done
	Epoch       int64  `json:"epoch"`        // epoch of the next step, from 0
	EpochSample int64  `json:"epoch_sample"` // number of samples of this epoch already used, over all ranks
	SamplesSeen int64  `json:"samples_seen"` // number of samples of the whole run, over all ranks
	Seed        uint64 `json:"seed"`

	Best      *Best            `json:"best"` // nil before the first evaluation
	Optimizer OptimizerState   `json:"optimizer"`
	LossScale *LossScale       `json:"loss_scale"` // nil without loss scaling
	Counters  map[string]int64 `json:"counters"`   // "skipped_steps" and others

	Config string `json:"config"` // resolved configuration, TOML

	// Extra contains the state of other parts of the program, by package name.
	Extra map[string]json.RawMessage `json:"extra,omitempty"`
}

// Best is the best evaluation so far.
type Best struct {
	Metric string `json:"metric"` // "top1", "loss", …
	Value  Float  `json:"value"`
	Step   int64  `json:"step"`
}

// OptimizerState is the state of an optimizer without its tensors.
type OptimizerState struct {
	Name    string           `json:"name"`
	Scalars map[string]Float `json:"scalars"`
}

// LossScale is the state of dynamic loss scaling.
type LossScale struct {
	Scale     Float `json:"scale"`
	GoodSteps int64 `json:"good_steps"` // number of steps since the last change of the scale
}

// Float is a float64 that JSON represents exactly. JSON has no numbers for NaN and infinities, so they are written as
// the strings "NaN", "+Inf" and "-Inf".
type Float float64

// MarshalJSON writes the shortest number that parses to exactly the value of f.
func (f Float) MarshalJSON() ([]byte, error) {
	v := float64(f)
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte(`"` + text + `"`), nil
	}
	return []byte(text), nil
}

// UnmarshalJSON parses a number that MarshalJSON wrote.
func (f *Float) UnmarshalJSON(text []byte) error {
	v, err := strconv.ParseFloat(string(bytes.Trim(text, `"`)), 64)
	if err != nil {
		return fmt.Errorf("got %s, want a number, \"NaN\", \"+Inf\" or \"-Inf\"", text)
	}
	*f = Float(v)
	return nil
}

// Upper limits, larger than in any real run. Sums and products of such numbers fit into int64.
const (
	mostCount  = 1 << 53 // limit of the number of steps or samples
	mostEpochs = 1 << 31
)

func (s State) check() error {
	if s.Step < 0 || s.Epoch < 0 || s.EpochSample < 0 || s.SamplesSeen < 0 {
		return fmt.Errorf("step %d, epoch %d, sample of the epoch %d, samples seen %d: want at least 0", s.Step,
			s.Epoch, s.EpochSample, s.SamplesSeen)
	}
	if max(s.Step, s.EpochSample, s.SamplesSeen) > mostCount || s.Epoch > mostEpochs {
		return fmt.Errorf("step %d, epoch %d, sample of the epoch %d, samples seen %d: want at most epoch %d, and %d for the other counters",
			s.Step, s.Epoch, s.EpochSample, s.SamplesSeen, int64(mostEpochs), int64(mostCount))
	}
	return nil
}

func encodeState(s State) ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(s, "", "  ")
	return append(text, '\n'), err
}

// decodeState returns an error for unknown fields. Otherwise, the program would silently discard them.
func decodeState(text []byte) (State, error) {
	var s State
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, err
	}
	if _, err := d.Token(); err != io.EOF {
		return s, fmt.Errorf("got text after the object")
	}
	return s, s.check()
}
