package runtime

import "math"

// There was a pause between two recorded steps if the time between their ends exceeds their training time by more than
// PauseSeconds. If the records contain no training time, the limit is PauseTimes times the time that the ranks
// measured, plus PauseSeconds.
const (
	PauseTimes   = 3
	PauseSeconds = 1
)

// StepTimes computes the times of the steps of a run from the records of rank 0, in their order. All reports use
// StepTimes, so that they state the same times. The zero value is ready for the first record.
type StepTimes struct {
	previous Record
	elapsed  float64
}

// StepSpan describes the steps after one record up to the next one. These are several steps if not every step is
// recorded.
type StepSpan struct {
	Seconds float64 // time of a step, s; mean over the span
	Steps   float64 // number of steps of the span, at least 1
	Elapsed float64 // training time of the run up to the end of the span, s
	Paused  bool    // the time between the ends of both recorded steps exceeds the time of the steps; see PauseSeconds
}

// Next returns the span that ends with a record. The parameter measured is the time of this step in s, as the slowest
// rank measured it.
//
// The time of a step follows from the training times in the records. If a record contains no training time, Next uses
// the time between the ends of the two recorded steps. If there was a pause between them, Next uses the parameter
// measured.
func (s *StepTimes) Next(r *Record, measured float64) StepSpan {
	span := StepSpan{Seconds: measured, Steps: 1}
	first := s.previous.Iteration <= 0 || r.Iteration <= s.previous.Iteration
	if !first {
		span.Steps = float64(r.Iteration - s.previous.Iteration)
	}
	between := math.NaN() // time between the ends of the two recorded steps, s
	if !first && !s.previous.Timestamp.IsZero() && !r.Timestamp.IsZero() {
		between = r.Timestamp.Sub(s.previous.Timestamp).Seconds()
	}
	switch trained := (r.TrainingTime - s.previous.TrainingTime).Seconds(); {
	case r.StepTime > 0 && trained > 0 && (first || s.previous.TrainingTime > 0):
		if first { // a run that starts from a checkpoint of another run does not start at step 0
			span.Steps = max(1, math.Round(trained/r.StepTime.Seconds()))
		}
		span.Seconds = trained / span.Steps // after a resume between two records, StepTime may cover fewer steps
		span.Paused = between > trained+PauseSeconds
		s.elapsed += trained
	case r.StepTime > 0: // the previous record does not contain the training time
		span.Seconds = r.StepTime.Seconds()
		span.Paused = between > span.Steps*span.Seconds+PauseSeconds
		s.elapsed += span.Steps * span.Seconds
	case math.IsNaN(between):
		s.elapsed += span.Steps * span.Seconds
	default:
		span.Paused = between > span.Steps*PauseTimes*measured+PauseSeconds
		if !span.Paused && between > 0 { // with a time of 0 or less, the clock was set back
			span.Seconds = between / span.Steps
		}
		s.elapsed += span.Steps * span.Seconds
	}
	s.previous, span.Elapsed = *r, s.elapsed
	return span
}
