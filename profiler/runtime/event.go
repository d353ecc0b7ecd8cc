package runtime

import (
	"math"
	"time"
)

// EventsFile is the name of the file with the events of a run, in the folder of logs. Each line is a JSON object.
const EventsFile = "events.jsonl"

// Event is a line of EventsFile. Only the field for its kind is set. When a run resumes or rolls back, the events of
// steps after the checkpoint are removed.
type Event struct {
	Step int64     `json:"step"` // number of completed optimizer steps
	Time time.Time `json:"time"`

	Start      *StartEvent      `json:"start,omitempty"`
	Length     *LengthEvent     `json:"length,omitempty"`
	Evaluation *EvaluationEvent `json:"evaluation,omitempty"`
	Bottleneck *BottleneckEvent `json:"bottleneck,omitempty"`
	Checkpoint *CheckpointEvent `json:"checkpoint,omitempty"`
}

// StartEvent reports that a process has started a new run or resumed a run.
type StartEvent struct {
	Program   string `json:"program"` // version of the program
	Model     string `json:"model"`
	Dataset   string `json:"dataset"`
	Policy    string `json:"policy"`
	Ranks     int    `json:"ranks"`
	BatchSize int    `json:"batch_size"` // samples of the global batch
	// element types of the ranks, as chosen: "bf16", or "bf16 (rank 0), f32 (rank 1)"
	Precision string        `json:"precision"`
	Unit      string        `json:"unit"`             // unit of throughput, such as "img"
	Units     int           `json:"units_per_sample"` // 1 for images, the number of tokens for text
	Metrics   []EventMetric `json:"metrics"`          // metrics of evaluations in addition to the loss
	// BestMetric is the key of the metric that determines the best evaluation.
	BestMetric string   `json:"best_metric"`
	Notes      []string `json:"notes,omitempty"` // conditions that are needed to interpret the figures
}

// EventMetric describes a metric of evaluations.
type EventMetric struct {
	Key     string `json:"key"`
	Title   string `json:"title"`
	Percent bool   `json:"percent"` // the value is a fraction 0…1 and is shown in percent
}

// LengthEvent contains the length of a run in steps. It is written after the first step of a process.
type LengthEvent struct {
	Steps      int64 `json:"steps"` // number of steps of the whole run; 0 if unknown
	EpochSteps int   `json:"epoch_steps"`
}

// EvaluationEvent contains the result of an evaluation.
type EvaluationEvent struct {
	Samples int                 `json:"samples"`
	Loss    *float64            `json:"loss"`    // nil if not finite
	Metrics map[string]*float64 `json:"metrics"` // values by EventMetric.Key
	Best    bool                `json:"best"`    // the result is the best so far
	Seconds float64             `json:"seconds"`
}

// BottleneckEvent contains the verdict on a window of BottleneckWindow steps. The window ends with the step of the
// event.
type BottleneckEvent struct {
	Bound   string  `json:"bound"` // text of Bound.String
	Rank    int     `json:"rank"`  // value of Bottleneck.Rank
	Text    string  `json:"text"`
	Advice  string  `json:"advice"`
	Seconds float64 `json:"step_seconds"`
	// parts of a step in s, by the names of package account; they sum to Seconds
	Parts map[string]float64 `json:"parts_seconds"`
}

// CheckpointEvent reports that a checkpoint was saved.
type CheckpointEvent struct {
	Seconds float64 `json:"seconds"` // duration of the save, s
}

// Event converts the verdict to an event.
func (v Bottleneck) Event(s BottleneckSettings) *BottleneckEvent {
	e := &BottleneckEvent{Bound: v.Bound.String(), Rank: v.Rank, Text: v.String(), Advice: v.Advice(s), Seconds: v.Step,
		Parts: map[string]float64{}}
	for _, p := range v.Parts() {
		e.Parts[p.Name] = p.Seconds
	}
	return e
}

// Known returns a pointer to v. If v is NaN or infinite, which JSON cannot represent, it returns nil.
func Known(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
