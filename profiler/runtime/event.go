package runtime

import (
	"math"
	"time"
)

// EventsFile contains the events of a run, one JSON object per line, in the folder of logs.
const EventsFile = "events.jsonl"

// Event is a line of EventsFile. The field of its kind is set. A run that resumes, or returns to a checkpoint, removes
// the events after the checkpoint's step.
type Event struct {
	Step int64     `json:"step"` // optimizer steps done
	Time time.Time `json:"time"`

	Start      *StartEvent      `json:"start,omitempty"`
	Length     *LengthEvent     `json:"length,omitempty"`
	Evaluation *EvaluationEvent `json:"evaluation,omitempty"`
	Bottleneck *BottleneckEvent `json:"bottleneck,omitempty"`
	Checkpoint *CheckpointEvent `json:"checkpoint,omitempty"`
}

// StartEvent reports that a process of the run has started: a new run, or one that resumes.
type StartEvent struct {
	Program   string        `json:"program"` // version
	Model     string        `json:"model"`
	Dataset   string        `json:"dataset"`
	Policy    string        `json:"policy"`
	Ranks     int           `json:"ranks"`
	BatchSize int           `json:"batch_size"`       // global, samples
	Unit      string        `json:"unit"`             // of throughput, such as "img"
	Units     int           `json:"units_per_sample"` // 1 for images, the number of tokens for text
	Metrics   []EventMetric `json:"metrics"`          // of evaluations, next to the loss
}

// EventMetric describes a metric of evaluations.
type EventMetric struct {
	Key     string `json:"key"`
	Title   string `json:"title"`
	Percent bool   `json:"percent"` // a fraction 0…1, shown in percent
}

// LengthEvent states the length of a run. It follows the first step of a process.
type LengthEvent struct {
	Steps      int64 `json:"steps"` // of the whole run; 0: unknown
	EpochSteps int   `json:"epoch_steps"`
}

// EvaluationEvent is the result of an evaluation.
type EvaluationEvent struct {
	Samples int                 `json:"samples"`
	Loss    *float64            `json:"loss"`    // nil: not finite
	Metrics map[string]*float64 `json:"metrics"` // by EventMetric.Key
	Best    bool                `json:"best"`    // the best so far
	Seconds float64             `json:"seconds"`
}

// BottleneckEvent is the verdict on a window of BottleneckWindow steps that ends with the event's step.
type BottleneckEvent struct {
	Bound   string             `json:"bound"` // as Bound.String
	Rank    int                `json:"rank"`  // as Bottleneck.Rank
	Text    string             `json:"text"`
	Advice  string             `json:"advice"`
	Seconds float64            `json:"step_seconds"`
	Lost    map[string]float64 `json:"lost_seconds"` // per step, by bound
}

// CheckpointEvent reports a saved checkpoint.
type CheckpointEvent struct {
	Seconds float64 `json:"seconds"` // duration of the save
}

// Event converts the verdict to an event.
func (v Bottleneck) Event(s BottleneckSettings) *BottleneckEvent {
	e := &BottleneckEvent{Bound: v.Bound.String(), Rank: v.Rank, Text: v.String(), Advice: v.Advice(s), Seconds: v.Step, Lost: map[string]float64{}}
	for bound := DataBound; bound < bounds; bound++ {
		e.Lost[bound.String()] = v.Lost[bound]
	}
	return e
}

// Known returns a pointer to v, nil if v is NaN or infinite, which JSON cannot represent.
func Known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
