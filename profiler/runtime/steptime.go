package runtime

import "math"

// There was a pause between two recorded steps if the time between their ends exceeds their training time by more than
// PauseSeconds. Without the times of the training loop, the limit is PauseTimes times the time that the ranks measured,
// plus PauseSeconds.
const (
	PauseTimes   = 3
	PauseSeconds = 1
)

// StepTimes computes the times of the steps of a run from the records of rank 0, in their order. All reports use
// StepTimes, so they agree. The zero value is ready for the first record.
type StepTimes struct {
	previous Record
	elapsed  float64
}

// StepSpan contains the steps from one record to the next one. There is more than one if not every step is recorded.
type StepSpan struct {
	Seconds float64 // time of a step; mean of the span
	Steps   float64 // number of steps of the span, at least 1
	Elapsed float64 // training time of the run up to the end of the span, s
	Paused  bool    // the time between the ends of both steps exceeds the time of the steps, see PauseSeconds
}

// Next returns the span that ends with a record. measured is the longest time of this step that a rank measured, in s.
//
// The time of a step follows from the training times in the records. If a record contains no training time, it is the
// time between the ends of two steps, or measured if there was a pause between them.
func (s *StepTimes) Next(r *Record, measured float64) StepSpan {
	span := StepSpan{Seconds: measured, Steps: 1}
	first := s.previous.Iteration <= 0 || r.Iteration <= s.previous.Iteration
	if !first {
		span.Steps = float64(r.Iteration - s.previous.Iteration)
	}
	between := math.NaN() // of the ends of the two recorded steps, s
	if !first && !s.previous.Timestamp.IsZero() && !r.Timestamp.IsZero() {
		between = r.Timestamp.Sub(s.previous.Timestamp).Seconds()
	}
	switch trained := (r.TrainingTime - s.previous.TrainingTime).Seconds(); {
	case r.StepTime > 0 && trained > 0 && (first || s.previous.TrainingTime > 0):
		if first { // a run from a checkpoint of another run does not start at step 0
			span.Steps = max(1, math.Round(trained/r.StepTime.Seconds()))
		}
		span.Seconds = trained / span.Steps // after a resume between two records, StepTime may cover fewer steps
		span.Paused = between > trained+PauseSeconds
		s.elapsed += trained
	case r.StepTime > 0: // the previous record lacks the training time
		span.Seconds = r.StepTime.Seconds()
		span.Paused = between > span.Steps*span.Seconds+PauseSeconds
		s.elapsed += span.Steps * span.Seconds
	case math.IsNaN(between):
		s.elapsed += span.Steps * span.Seconds
	default:
		span.Paused = between > span.Steps*PauseTimes*measured+PauseSeconds
		if !span.Paused && between > 0 { // a time of 0 or less: the clock was set back
			span.Seconds = between / span.Steps
		}
		s.elapsed += span.Steps * span.Seconds
	}
	s.previous, span.Elapsed = *r, s.elapsed
	return span
}
